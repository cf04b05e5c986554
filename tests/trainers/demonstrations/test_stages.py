"""The stages of study `demonstrations` as wholes: what they leave, what they share, what they refuse."""

import json

import pandas as pd
import pytest
import torch

from tests.trainers.demonstrations.helpers import (
    ENTRIES,
    assert_equal_weights,
    config,
    demonstrations_stage,
    run,
    variant,
    weights,
)
from trainers.demonstrations import in_context_concepts
from trainers.demonstrations.in_context import Resumable, load_in_context_model, score_pointers
from trainers.demonstrations.prepared import load_prepared, read_candidates, write_candidates
from trainers.demonstrations.selector import build_selector


def with_candidates(folders, folder, change):
    """The same folders, but for the candidates: another table."""
    table = change(pd.read_parquet(folders["candidates"] / "candidates.parquet"))
    folder.mkdir()
    write_candidates(folder, table.to_dict("list"))
    return {**folders, "candidates": folder}


def test_candidates_hold_what_the_model_says(folders):
    settings = config()
    data = read_candidates(folders["candidates"])
    table = pd.read_parquet(folders["candidates"] / "candidates.parquet")
    drawn = settings.proposals
    assert len(table) == 20 * (drawn.beam + len(drawn.temperatures) + drawn.random)
    assert list(table["method"][:8]) == ["beam", "sample_2", "sample_4", "sample_8", *["random"] * 4]
    inputs = {"learner": folders["learner"], "embed": folders["embed"]}
    other = settings.model_copy(update={"score_batch": 7})  # another batch size: the same scores
    stage = demonstrations_stage("candidates", other, inputs, folders["candidates"] / "again")
    model, prepared = load_in_context_model(stage), load_prepared(folders["embed"])

    def scored(pointers):
        return score_pointers(model, prepared, torch.arange(20), pointers, work=Resumable(stage), name="x")

    none = scored(torch.zeros(20, 0, dtype=torch.int64))
    for place in (0, 5):
        scores = scored(data.pointers[:, place])
        assert scores.correct.tolist() == data.correct[:, place].tolist()
        torch.testing.assert_close(scores.gold_logp - none.gold_logp, data.logp_gain[:, place], atol=1e-5, rtol=1e-4)
        gain = scores.gold_logp.exp() - none.gold_logp.exp()  # the source's information score is of probabilities
        torch.testing.assert_close(gain, data.info_score[:, place], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(scores.gold_logp.exp(), data.acc_score[:, place], atol=1e-5, rtol=1e-4)


def test_a_run_writes_accuracy_per_shot_number_and_item(folders, whole):
    found, metrics = whole
    items = pd.read_parquet(found["evaluate"] / "items.parquet")
    accuracy = items[items["name"] == "accuracy"]
    assert set(accuracy["subset"]) == {"1", "2", "3"}
    assert accuracy.groupby("subset")["item"].nunique().tolist() == [12, 12, 12]
    for shots, values_ in accuracy.groupby("subset")["value"]:
        assert values_.mean() == pytest.approx(metrics[f"selected/{shots}/accuracy"])
    assert metrics["selected/mean/accuracy"] == pytest.approx(accuracy["value"].mean())
    prepared = load_prepared(folders["embed"])
    assert set(accuracy["item"]) == {prepared.names[number] for number in prepared.splits["test"]}
    assert (items["cluster"] == items["item"]).all()  # a query is one item for each shot number
    for stage, name in (("rce", "reward"), ("grpo", "advantage")):
        rows = pd.read_parquet(found[stage] / "items.parquet")
        assert set(rows["name"]) == {name}
        assert len(rows) == 20 * 8


def test_samples_hold_the_chosen_demonstrations_and_the_answer(folders, whole, tmp_path):
    found, _ = whole
    samples = pd.read_parquet(found["evaluate"] / "samples.parquet")
    items = pd.read_parquet(found["evaluate"] / "items.parquet").query("name == 'accuracy'")
    values = items.set_index(["item", "subset"])["value"]
    assert len(samples) == 12 * 3
    task, known = config().task, in_context_concepts.draw_queries(config().task)

    def words(query, place):
        return ", ".join(f"concept {w // task.words} word {w % task.words}" for w in known.words[query, place].tolist())

    inputs = {key: found[key] for key in ("embed", "grpo")}
    stage = demonstrations_stage("evaluate", config(), inputs, tmp_path / "again")
    choices = ENTRIES["evaluate"].select(stage, load_prepared(folders["embed"]), "legacy", "test").tolist()
    first = int(samples["item"].min().rpartition("-")[2])
    for row in samples.to_dict("records"):
        query = int(row["item"].rpartition("-")[2])
        assert row["prompt"] == words(query, 0)
        assert row["reference"] == f"label {int(known.gold[query, 0])}"
        assert (row["response"] == row["reference"]) == (row["accuracy"] == 1.0)
        assert row["accuracy"] == values[row["item"], row["subset"]]
        chosen = [choice + 1 for choice in choices[query - first][: int(row["subset"])]]
        expected = [f"{words(query, place)} → label {int(known.shown[query, place])}" for place in chosen]
        assert row["demonstrations"] == "\n".join(f"{n}. {text}" for n, text in enumerate(expected, 1))


def test_the_first_choices_of_more_shots_are_those_of_fewer(folders, tmp_path):
    """So 2 shots are measured with the first two of three."""
    _, three = variant(tmp_path / "three", folders, config(selector={"kind": "nearest"}))
    candidates = {**folders}
    candidates["candidates"], _ = run("candidates", config(shots=2), dict(folders), tmp_path / "candidates")
    _, two = variant(tmp_path / "two", candidates, config(shots=2, selector={"kind": "nearest"}))
    for shots in ("1", "2"):
        assert two[f"selected/{shots}/accuracy"] == three[f"selected/{shots}/accuracy"]


# With a threshold a sequence is positive that gains information, also where its answer is wrong.
CONDITIONS = [(None, 0.5, lambda data: data.correct > 0), (0.0, 0.6, lambda data: data.info_score > 0)]


@pytest.mark.parametrize(("threshold", "ratio", "positive"), CONDITIONS)
def test_conditional_counts_the_queries_that_train_and_means_are_over_them(
    folders, tmp_path, threshold, ratio, positive
):
    """As in the demonstrations notes, scheme 4: only valid queries are in the loss."""
    inputs = dict(folders)
    conditional = {"min_positive_ratio": ratio, "positive_threshold": threshold}
    settings = config(grpo={**conditional, "epochs": 2, "batch_size": 64})
    inputs["rce"], _ = run("rce", settings, inputs, tmp_path / "rce")
    _, metrics = run("grpo", settings, inputs, tmp_path / "grpo")
    share = (positive(read_candidates(folders["candidates"])).float().mean(1) >= ratio).float().mean().item()
    assert 0 < share < 1
    assert metrics["grpo/trained_queries"] == pytest.approx(share)
    assert metrics["grpo/loss"] == pytest.approx(metrics["grpo/policy_loss"] + 0.1 * metrics["grpo/kl"], rel=1e-5)


def test_conditional_without_any_right_sequence_learns_nothing(folders, tmp_path):
    """All queries are dropped, so the gradient is zero: only AdamW's weight decay is left."""
    wrong = with_candidates(folders, tmp_path / "candidates", lambda table: table.assign(correct=0.0))
    settings = config(grpo={"min_positive_ratio": 0.2, "lr": 0.01})
    wrong["rce"], _ = run("rce", settings, wrong, tmp_path / "rce")
    _, metrics = run("grpo", settings, wrong, tmp_path / "grpo")
    assert metrics["grpo/trained_queries"] == 0
    decay = (1 - 0.01 * 0.01) ** (4 * 3)  # epochs times batches
    after = weights(tmp_path / "grpo")
    for name, before in weights(wrong["rce"]).items():
        torch.testing.assert_close(after[name], before * decay)


def test_per_shot_trains_the_selectors_of_its_modes_and_chooses_on_validation(folders, tmp_path):
    modes = ["legacy", "hard_plus_soft", "hybrid"]
    together, metrics = variant(tmp_path / "together", folders, config(per_shot=modes))
    alone = {}
    for mode in modes:
        found, alone[mode] = variant(tmp_path / mode, folders, config(reward={"mode": mode}))
        assert_equal_weights(weights(found["grpo"], mode), weights(together["grpo"], mode))
    choices = json.loads((together["evaluate"] / "choices.json").read_text())
    for shots in ("1", "2", "3"):
        best = max(modes, key=lambda mode: alone[mode][f"validation/{shots}/accuracy"])
        assert choices["chosen"][shots] == best
        for split in ("validation", "selected"):
            assert metrics[f"{split}/{shots}/accuracy"] == alone[best][f"{split}/{shots}/accuracy"]


def test_sequences_without_any_difference_are_refused(folders, tmp_path):
    inputs = with_candidates(folders, tmp_path / "candidates", lambda table: table.assign(logp_gain=0.0))
    with pytest.raises(
        ValueError, match=r"reward\.mode legacy gives all 160 sequences the reward 0; set another reward\.mode"
    ):
        run("rce", config(reward={"gain": "nats"}), inputs, tmp_path / "rce")


@pytest.mark.parametrize("name", ["rce", "grpo"])
def test_every_parameter_of_the_selector_has_moved_after_three_steps(folders, tmp_path, name):
    """From the true initial values, through the trainer; what AdamW's weight decay does alone does not count."""
    settings = config(rce={"epochs": 1}, grpo={"epochs": 1})  # 20 queries in batches of 8: three steps
    inputs = dict(folders)
    d_embedding = load_prepared(folders["embed"]).d_embedding
    before = build_selector(settings.selector, d_embedding, seed=0).state_dict()
    if name == "grpo":
        inputs["rce"], _ = run("rce", settings, inputs, tmp_path / "rce")
        before = weights(inputs["rce"])
    run(name, settings, inputs, tmp_path / name)
    after, lr = weights(tmp_path / name), getattr(settings, name).lr
    assert after.keys() == before.keys()
    for parameter, start in before.items():
        decayed = start * (1 - lr * 0.01) ** 3
        assert (after[parameter] - decayed).abs().max() > 0.1 * lr, parameter


def test_prompts_that_do_not_fit_are_answered_in_smaller_batches(folders, tmp_path, monkeypatch):
    settings, inputs = config(score_batch=16), {"learner": folders["learner"], "embed": folders["embed"]}
    whole, _ = run("candidates", settings, inputs, tmp_path / "whole")
    real, sizes = in_context_concepts.ConceptModel.score, []

    def tight(self, queries, demonstrations):
        if len(queries) > 5:
            raise torch.OutOfMemoryError("out of memory")
        sizes.append(len(queries))
        return real(self, queries, demonstrations)

    monkeypatch.setattr(in_context_concepts.ConceptModel, "score", tight)
    halved, metrics = run("candidates", settings, inputs, tmp_path / "halved")
    assert metrics["memory/halvings"] == 2
    assert max(sizes) == 4
    tables = [pd.read_parquet(folder / "candidates.parquet") for folder in (whole, halved)]
    pd.testing.assert_frame_equal(*tables, rtol=1e-4, atol=1e-5)
