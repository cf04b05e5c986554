"""The stages on a tiny model: their start, what they leave, what the source's faults would show, the evaluation."""

import copy
import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tests.trainers.gad.helpers import config, gad_stage, inputs_of, run_stage, run_stages, series, trainer, weights
from tests.trainers.parallel.copying import Copying, Frozen
from tests.trainers.policy.test_sampler_gap import broken, gap_rules
from trainers.gad import adversarial
from trainers.gad.adversarial import Trainer, steps_taken
from trainers.gad.measure import rouge_l
from trainers.gad.students import CRITIC, STUDENT
from trainers.policy import responses
from trainers.policy.models import load_policy
from trainers.running.micro_batch import OutOfMemory
from trainers.tasks.interface import read_problems


def test_seqkd_learns_from_the_base_models_student(before):
    table = pd.read_parquet(before / "seqkd" / "metrics.parquet")
    losses = series(table, "seqkd/loss")
    assert losses.iloc[-1] < losses.iloc[0]
    assert set(series(table, "seqkd/lr")) == {1e-3}
    assert (series(table, "seqkd/grad_norm") > 0).all()
    assert weights(before / "seqkd" / STUDENT) != weights(before / "base" / STUDENT)


def test_the_critic_learns_alone_first_and_then_both(root):
    table = run_stage(root, "warmup", config())
    assert series(table, "critic/grad_norm").index.tolist() == [1, 2, 3, 4]
    assert series(table, "actor/pg_loss").index.tolist() == [3, 4]  # two steps of the critic alone
    table = run_stage(root, "gad", config())
    assert series(table, "actor/pg_loss").index.tolist() == [5, 6, 7, 8]  # counted on
    assert series(table, "critic/prior_steps").tolist() == [4]


def test_gad_goes_on_with_the_warmups_student_and_critic(root):
    settings = config(gad={"max_steps": 1, "actor_lr": 1e-12, "critic_lr": 1e-12})
    run_stages(root, settings, "warmup", "gad")
    for part in ("head.safetensors", "model.safetensors"):
        old, new = (load_file(root / name / CRITIC / part) for name in ("warmup", "gad"))
        for key, value in old.items():
            torch.testing.assert_close(new[key], value, rtol=0, atol=1e-6)
    one, two = (load_policy(root / name / STUDENT, torch.device("cpu")) for name in ("warmup", "gad"))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_without_seqkd_the_warmup_starts_from_the_base_model(root):
    off = config(seqkd={"enabled": False}, warmup={"critic_warmup": 4})
    shutil.rmtree(root / "seqkd")
    run_stage(root, "seqkd", off, seed=None)
    assert not (root / "seqkd" / STUDENT).exists()
    run_stage(root, "warmup", off)
    assert weights(root / "warmup" / STUDENT) == weights(root / "base" / STUDENT)


def test_skipping_the_warmup_is_allowed_and_shows(root, caplog):
    off = config(warmup={"enabled": False})
    run_stage(root, "warmup", off)
    table = run_stage(root, "gad", off)
    assert series(table, "critic/prior_steps").tolist() == [0]
    assert series(table, "actor/pg_loss").index.tolist() == [1, 2, 3, 4]
    assert "the critic is untrained" in caplog.text


def unmoved(before, after):
    """Names of the tensors that are what they were, bit by bit."""
    old, new = (load_file(each) for each in (before, after))
    assert old.keys() == new.keys()
    return {name for name in old if torch.equal(old[name], new[name])}


# The bias of the head adds the same to every score, and a difference does not see it: its gradient is 0 where
# lengths do not count, but for the regulariser of d-final. It is the only such parameter.
SHIFT = {name: {"head.bias"} for name in ("original", "v1", "v2")}


@pytest.mark.parametrize("discriminator", ["original", "v1", "v2", "final"])
def test_every_parameter_has_moved_after_three_steps_from_the_true_start(root, discriminator, monkeypatch):
    """SeqKD's student, and student and critic of both adversarial stages, by the stages themselves."""
    starts = []
    original = adversarial.new_critic

    def watched(*arguments):
        critic = original(*arguments)
        critic.save(root / "new critic")
        starts.append(copy.deepcopy(critic.state_dict()))
        return critic

    monkeypatch.setattr(adversarial, "new_critic", watched)
    three = {"max_steps": 3, "critic_warmup": 0}
    settings = config(discriminator={"kind": discriminator}, seqkd={"max_steps": 3}, warmup=three, gad=three)
    shutil.rmtree(root / "seqkd")  # with its checkpoint
    run_stage(root, "seqkd", settings, seed=None)
    for name in ("warmup", "gad"):
        table = run_stage(root, name, settings)
        assert table["value"].notna().all()  # no NaN anywhere
        for logged in ("critic/d_loss", "critic/ranking_loss", "critic/d_acc", "reward/mean", "quality/chrf"):
            assert len(series(table, logged)) == 3, logged
    places = [root / "base", root / "seqkd", root / "warmup", root / "gad"]
    for before, after in pairwise(places):
        assert not unmoved(before / STUDENT / "model.safetensors", after / STUDENT / "model.safetensors"), after.name
    assert starts[0]["head.weight"].abs().min() > 0  # else the body would get no gradient at the first step
    for before, after in pairwise([root / "new critic", root / "warmup" / CRITIC, root / "gad" / CRITIC]):
        assert not unmoved(before / "model.safetensors", after / "model.safetensors"), after
        still = {f"head.{name}" for name in unmoved(before / "head.safetensors", after / "head.safetensors")}
        assert still <= SHIFT.get(discriminator, set()), after


def test_in_a_warmup_by_cross_entropy_the_student_comes_nearer_to_the_teachers_words(root):
    """While the critic learns as ever: the published code's warm-up."""
    table = run_stage(root, "warmup", config(warmup={"student": "cross_entropy", "max_steps": 8, "critic_warmup": 1}))
    losses = series(table, "actor/sft_loss")
    assert losses.index.tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert losses.iloc[-3:].mean() < losses.iloc[:3].mean()
    assert len(series(table, "critic/grad_norm")) == 8
    assert series(table, "actor/pg_loss").empty
    assert series(table, "critic/diff_limit").index.tolist() == [0]  # a constant is logged once


def test_models_of_chosen_steps_are_kept(root):
    kept = config(keep_checkpoints=2)
    shutil.rmtree(root / "seqkd")  # with its checkpoint
    for name in ("seqkd", "warmup", "gad"):
        run_stage(root, name, kept, seed=None if name == "seqkd" else 0)
    found = {name: sorted(p.name for p in (root / name / "steps").iterdir()) for name in ("seqkd", "warmup", "gad")}
    assert found == {"seqkd": ["2", "4", "6"], "warmup": ["2", "4"], "gad": ["6", "8"]}  # as the metrics count
    for name, last in (("seqkd", "6"), ("warmup", "4"), ("gad", "8")):
        assert weights(root / name / "steps" / last / STUDENT) == weights(root / name / STUDENT)
    assert weights(root / "gad" / "steps" / "8" / CRITIC) == weights(root / "gad" / CRITIC)
    assert weights(root / "gad" / "steps" / "6" / STUDENT) != weights(root / "gad" / STUDENT)


def test_a_measurement_that_does_not_fit_costs_neither_the_models_nor_the_stage(root, monkeypatch, caplog):
    def too_large(*_, **__):
        assert (root / "warmup" / STUDENT / "model.safetensors").exists()  # saved before anything is measured
        assert (root / "warmup" / CRITIC / "head.safetensors").exists()
        raise OutOfMemory("out of memory with one row at a time")

    monkeypatch.setattr(adversarial, "measure", too_large)
    table = run_stage(root, "warmup", config())
    assert not table["name"].str.startswith("dev/").any()
    assert "development split is not measured" in caplog.text


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"task": None}, "data_source"),
        ({"critic": {"init": "reward_model"}}, "reward_model"),
        ({"data": {"train": None}}, "data.train is null, but a generated task needs a number"),
        ({"rollout": {"group_size": 1}}, "greater than or equal to 2"),
        ({"data": {"dev": 0.1}}, "data.dev and data.test must be numbers, not shares"),
        ({"data": {"max_prompt_length": 9}}, "max_prompt_length has no effect"),
        ({"data": {"dev": 1.5}}, "whole number of rows"),
        ({"data": {"dev": 0.5, "test": 0.6}}, "`dev` 0.5 and `test` 0.6 add up to more than 1"),
        ({"evaluate": {"checkpoints": 5}}, "evaluate.checkpoints 5 exceeds gad.max_steps 4"),
    ],
)
def test_configurations_that_cannot_work_are_refused(values, problem):
    with pytest.raises(ValueError, match=re.escape(problem)):
        config(**values)


def test_stale_weights_are_noticed(root):
    """A sampler with a copy of the weights: the counter that the copy carries stays behind.

    The gap of the log-probabilities shows it too, and would also for a sampler that carries no counter.
    """
    run = trainer(root, config(warmup={"critic_warmup": 0, "actor_lr": 1e-2}))
    run.responder = replace(run.responder, model=copy.deepcopy(run.student))
    found = [run.step(step) for step in range(3)]
    assert [metrics["rollout/policy_lag"] for metrics in found] == [0.0, 2.0, 4.0]  # two minibatches a step
    gaps = [metrics["rollout/logp_gap"] for metrics in found]
    assert gaps[0] < 1e-5
    assert min(gaps[1:]) > 0.5  # what the rule stale-rollouts ends a run for
    run.responder = replace(run.responder, model=run.student)
    last = run.step(3)
    assert last["rollout/policy_lag"] == 0
    assert last["rollout/logp_gap"] < 1e-5
    assert steps_taken(run.student) == 8


def test_a_rank_that_does_not_refresh_its_copy_breaks_the_rules(root):
    settings = config(warmup={"critic_warmup": 0, "actor_lr": 1e-2}, precision={"compute": "bfloat16"})
    for ranks, expected in ((Copying(), set()), (Frozen(), {"sampler-differs", "stale-rollouts"})):
        stage = gad_stage(root / "warmup", settings, inputs_of(root, "warmup"))
        stage.ranks = ranks
        run = Trainer(stage)
        assert broken(gap_rules("gad", "warmup"), [run.step(step) for step in range(4)]) == expected


def test_identical_responses_give_no_signal(root):
    faulty = config(sampling={"temperature": None}, rollout={"group_size": 4})
    table = run_stage(root, "warmup", faulty)
    assert set(series(table, "reward/group_std")) == {0.0}
    assert set(series(table, "reward/zero_std_groups")) == {1.0}
    assert set(series(table, "rollout/distinct")) == {0.25}
    assert set(series(table, "actor/pg_loss").abs()) == {0.0}
    healthy = series(run_stage(root, "gad", config(warmup={"enabled": False})), "actor/pg_loss").abs()
    assert healthy.min() > 1e-4


def test_the_limit_follows_the_teachers_lengths(root):
    limits = {}
    for factor in (1.0, 3.0):
        settings = config(sampling={"length_factor": factor}, warmup={"max_steps": 2})
        table = run_stage(root, "warmup", settings, out=root / f"factor {factor}")
        limits[factor] = series(table, "response_length/limit").iloc[0]
        assert limits[factor] / series(table, "response_length/teacher_p99").iloc[0] == pytest.approx(factor, rel=0.05)
        assert series(table, "response_length/max").max() <= limits[factor]
    assert limits[3.0] > 2.9 * limits[1.0]


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
    rows = {row.id: row for row in read_problems(trained / "data" / "test.jsonl")}
    tests = sorted(rows)
    assert set(samples["item"]) == set(tests)
    for row in samples.to_dict("records"):
        assert row["prompt"] == rows[row["item"]].prompt
        assert row["reference"] == rows[row["item"]].answer
    near = items.query("protocol == 'greedy' and name == 'chrf'").set_index("item")["value"].sort_index()
    quoted = samples[samples["protocol"] == "greedy"].set_index("item")["chrf"].sort_index()
    pd.testing.assert_series_equal(quoted, near, check_names=False)
    for protocol in ("greedy", "sampled", "start_greedy", "start_sampled"):
        for name in ("chrf", "rule", "length"):
            chosen = items[(items["protocol"] == protocol) & (items["name"] == name)]
            assert sorted(chosen["item"]) == tests
    assert set(items.loc[items["name"] == "win", "protocol"]) == {"greedy", "sampled"}
    assert items.loc[items["name"].isin(["chrf", "rule", "win"]), "value"].between(0, 1).all()
    prompts = {id: row.prompt.split() for id, row in rows.items()}
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
    with pytest.raises(
        ValueError, match=r"gad/measured: .* = 2 needs the models of 1 earlier step, but the kept steps are: none"
    ):
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
