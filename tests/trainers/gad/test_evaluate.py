"""The evaluation: which students it measures, how, and what it keeps."""

import json
import shutil

import pandas as pd
import pytest
import torch

from tests.trainers.gad.helpers import config, run_stage, run_stages
from trainers.gad.measure import rouge_l
from trainers.gad.rows import read_rows
from trainers.gad.students import CRITIC, STUDENT
from trainers.policy import responses


def test_stopping_after_the_warmup_evaluates_its_student(root):
    off = config(gad={"enabled": False})
    run_stages(root, off, "warmup", "gad")
    assert not (root / "gad" / STUDENT).exists()
    stopped = run_stage(root, "evaluate", off)
    shutil.copytree(root / "warmup" / STUDENT, root / "gad" / STUDENT)
    shutil.copytree(root / "warmup" / CRITIC, root / "gad" / CRITIC)
    again = run_stage(root, "evaluate", off)
    pd.testing.assert_frame_equal(stopped, again)


def test_without_adversarial_stages_seqkds_student_is_evaluated_as_the_start_was(root):
    off = config(warmup={"enabled": False}, gad={"enabled": False})
    run_stages(root, off, "warmup", "gad", "evaluate")
    items = pd.read_parquet(root / "evaluate" / "items.parquet").set_index(["protocol", "name", "item"])["value"]
    for protocol in ("greedy", "sampled"):
        pd.testing.assert_series_equal(items[protocol], items[f"start_{protocol}"])


def test_sampling_and_evaluation_go_on_with_fewer_rows_where_memory_does_not_suffice(trained, monkeypatch):
    expected = run_stage(trained, "evaluate", config(), out=trained / "whole")
    original, sizes = responses.sample_all, []

    def small_device(*arguments, batch_size, **others):
        sizes.append(batch_size)
        if batch_size is None or batch_size > 3:
            raise torch.OutOfMemoryError("no")
        return original(*arguments, batch_size=batch_size, **others)

    monkeypatch.setattr(responses, "sample_all", small_device)
    found = run_stage(trained, "evaluate", config(), out=trained / "small")
    assert max(sizes) > 3 >= min(sizes)
    chosen = found[~found["name"].str.startswith("memory/")].reset_index(drop=True)
    pd.testing.assert_frame_equal(chosen, expected, rtol=1e-6)
    assert (found["name"] == "memory/halvings").any()


def test_evaluation_keeps_a_row_per_prompt_and_the_start_beside(trained):
    run_stage(trained, "evaluate", config())
    items = pd.read_parquet(trained / "evaluate" / "items.parquet")
    samples = pd.read_parquet(trained / "evaluate" / "samples.parquet")
    rows = {row.id: row for row in read_rows(trained / "data" / "test.jsonl")}
    tests = sorted(rows)
    assert set(samples["item"]) == set(tests)
    for row in samples.to_dict("records"):
        assert row["prompt"] == rows[row["item"]].content[-1]["content"]
        assert row["reference"] == rows[row["item"]].teacher_response
    near = items.query("protocol == 'greedy' and name == 'chrf'").set_index("item")["value"].sort_index()
    quoted = samples[samples["protocol"] == "greedy"].set_index("item")["chrf"].sort_index()
    pd.testing.assert_series_equal(quoted, near, check_names=False)
    for protocol in ("greedy", "sampled", "start_greedy", "start_sampled"):
        for name in ("chrf", "rule", "length"):
            chosen = items[(items["protocol"] == protocol) & (items["name"] == name)]
            assert sorted(chosen["item"]) == tests
    assert set(items.loc[items["name"] == "win", "protocol"]) == {"greedy", "sampled"}
    assert items.loc[items["name"].isin(["chrf", "rule", "win"]), "value"].between(0, 1).all()
    prompts = {id: row.content[0]["content"].split() for id, row in rows.items()}
    lists = {id: f"{words[3]} {' '.join(sorted(words[5:-1]))}" for id, words in prompts.items()}  # whatever the style
    assert (items["cluster"] == items["item"].map(lists)).all()


def test_values_are_means_over_the_last_students_of_gad(root):
    """Each measured on its own, the one of n steps before the last with a seed of n more."""

    def items(folder, **evaluate):
        run_stage(root, "evaluate", config(evaluate={"samples": 2, **evaluate}), out=folder)
        table = pd.read_parquet(folder / "items.parquet")
        return table[~table["protocol"].str.startswith("start")].set_index(["protocol", "name", "item"])["value"]

    settings = config(evaluate={"samples": 2, "checkpoints": 2, "seed": 3})
    run_stages(root, settings, "warmup", "gad")
    (kept,) = (root / "gad" / "measured").iterdir()
    both = items(root / "both", checkpoints=2, seed=3)
    kept.rename(root / "earlier")
    with pytest.raises(ValueError, match=r"gad/measured has models of the steps none: .* = 2 asks for 1"):
        items(root / "lost", checkpoints=2, seed=3)
    last = items(root / "last", seed=3)
    for part in ("student", "critic"):
        (root / "gad" / part).rename(root / f"last-{part}")
        (root / "earlier" / part).rename(root / "gad" / part)
    earlier = items(root / "before", seed=4)
    assert (last["sampled"] != earlier["sampled"]).any()
    pd.testing.assert_series_equal(both["sampled"].sort_index(), ((last + earlier) / 2)["sampled"].sort_index())
    pd.testing.assert_series_equal(both["greedy"].sort_index(), last["greedy"].sort_index())


def test_what_was_measured_is_known_by_its_digest(trained):
    """With another student, or measured in another way, it is another; tests/trainers/running say when it is not."""

    def digest(folder, settings):
        run_stage(trained, "evaluate", settings, out=trained / folder)
        return json.loads((trained / folder / "weights.json").read_text())["digest"]

    found = digest("one", config())
    assert found != digest("two", config(evaluate={"samples": 3}))
    run_stage(trained, "gad", config(), seed=1)
    assert found != digest("three", config())


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence():
    """Google's rouge_score gives the first three; it does not read Chinese."""
    texts = ["The cat sat, on the mat", "a b", "same words", "我爱北京", ""]
    others = ["the cat was on a mat", "c", "same words", "我也爱上海", "x"]
    assert rouge_l(texts, others) == pytest.approx([2 / 3, 0, 1, 4 / 9, 0])
