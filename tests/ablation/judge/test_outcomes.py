"""pass@k and cons@k as the outcome of a study: the verdict is that of the samples behind its items."""

import re
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import ablation
from ablation.config.study_schema import Analysis
from ablation.judge.outcomes import Outcome
from ablation.judge.verdicts import judge_study
from ablation.show.methods import methods
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.simulate import Study, editing, simulate, stage_dir

SEEDS, ITEMS, SAMPLES = 5, 60, 6
PLAN = {"value": "hit", "protocol": "edited", "subsets": ["all"], "direction": "max", "margin": 0.02}


def drawn():
    """{variant: samples [seeds, items, samples]}: v1 spreads over more items than v0, which is surer of fewer."""
    rng = np.random.default_rng(5)
    sure = np.repeat([0.95, 0.05], ITEMS // 2)
    rates = {"v0": sure, "v1": np.full(ITEMS, 0.5)}
    return {name: rng.random((SEEDS, ITEMS, SAMPLES)) < of[None, :, None] for name, of in rates.items()}


def judged(folder, outcome, change=lambda value: value):
    """The study's only comparison, judged from the shares of right samples, and what its report says."""
    plan = simulate(folder, [Study("toy", variants=2, seeds=SEEDS, items={"all": ITEMS})])
    with editing(plan) as content:
        content["studies"][0]["analysis"] = Analysis(**PLAN | outcome).model_dump()
    for variant, samples in drawn().items():
        for seed in range(SEEDS):
            file = stage_dir(plan, "toy", variant, seed, "evaluate") / "items.parquet"
            rows = pq.read_table(file).to_pylist()
            for row, value in zip(rows, np.tile(samples[seed].mean(axis=1), 2), strict=True):
                row["value"] = change(float(value))
            pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(file)), file)
    collect(folder)
    with Store(folder / DATABASE) as store:
        [comparison] = judge_study(store, "toy").comparisons
        return comparison, methods(store, "toy") + draw(read_page(store))


@pytest.mark.parametrize("outcome", [{"pass_at": 3}, {"cons_at": 3}, {}])
def test_the_verdict_is_that_of_the_samples(outcome, tmp_path):
    comparison, said = judged(tmp_path / "results", outcome | {"samples": SAMPLES})
    samples = drawn()
    expected = ablation.judge(samples["v1"], samples["v0"], margin=0.02, direction="max", **outcome)
    found = (comparison.verdict, comparison.effect, comparison.low, comparison.high)
    assert found == (expected.verdict, *(pytest.approx(getattr(expected, end)) for end in ("effect", "low", "high")))
    name = {"pass_at": "pass@3 of hit", "cons_at": "cons@3 of hit"}[next(iter(outcome))] if outcome else "hit"
    assert said.count(f"{name} (protocol: edited) on all; larger is better") == 2
    # The mean does not show what more tries find.
    assert (comparison.verdict == "better") == (outcome == {"pass_at": 3})


@pytest.mark.parametrize(
    ("samples", "change", "why"),
    [
        (SAMPLES, lambda value: value * 0.9, "for item .*, which is not a share of 6 samples"),
        (["evaluate.samples"], float, "an unknown number of samples per item, but pass@2 needs 2"),
    ],
)
def test_what_has_no_such_samples_is_invalid(samples, change, why, tmp_path):
    comparison, _ = judged(tmp_path / "results", {"pass_at": 2, "samples": samples}, change)
    assert comparison.verdict == "invalid"
    assert re.search(why, comparison.why)


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        ({"pass_at": 7, "samples": 6}, "pass@7 needs 7 samples, but items have 6"),
        ({"pass_at": 2, "cons_at": 2, "samples": 6}, "`pass_at` and `cons_at` cannot be combined"),
        ({"cons_at": 2}, "cons@2 needs `samples` and `direction: max`"),
        ({"pass_at": 2, "samples": 6, "direction": "min"}, "needs `samples` and `direction: max`"),
        ({"transform": "log", "cons_at": 2, "samples": 6}, "`transform: log` cannot be combined"),
        ({"transform": "log", "direction": {"target": 0.5}}, "`transform: log` cannot be combined"),
    ],
)
def test_contradictory_outcomes_are_refused(outcome, problem):
    with pytest.raises(ValidationError, match=problem):
        Analysis(**PLAN | outcome)


def test_logarithms_are_judged_where_the_plan_asks_for_them(tmp_path):
    plan = {"transform": "log", "samples": SAMPLES}
    comparison, said = judged(tmp_path / "results", plan, lambda value: 1 + value)
    shares = {name: samples.mean(axis=-1) for name, samples in drawn().items()}
    expected = ablation.judge(*(np.log(1 + shares[name]) for name in ("v1", "v0")), margin=0.02, direction="max")
    found = (comparison.verdict, comparison.effect, comparison.low, comparison.high)
    assert found == (expected.verdict, *(pytest.approx(getattr(expected, end)) for end in ("effect", "low", "high")))
    assert said.count("log of hit (protocol: edited) on all; larger is better") == 2
    comparison, _ = judged(tmp_path / "other", plan)
    assert comparison.verdict == "invalid"
    assert re.search("hit 0 for item .*, which has no logarithm", comparison.why)
    measured = comparison.measurements
    assert not any(measured.values[run] for run in measured.not_judgeable)  # nothing of them is left as it was


def test_a_plan_without_an_outcome_keeps_its_digest():
    assert {"samples", "pass_at", "cons_at", "transform"}.isdisjoint(Analysis(**PLAN).model_dump())


@pytest.mark.parametrize("k", range(1, 6))
def test_outcomes_against_every_draw(k):
    for right in range(6):
        draws = [sum(draw) for draw in combinations([1] * right + [0] * (5 - right), k)]
        assert Outcome("pass", k).of(5)[right] == pytest.approx(np.mean([found > 0 for found in draws]))
        most = np.mean([(2 * found > k) + 0.5 * (2 * found == k) for found in draws])
        assert Outcome("cons", k).of(5)[right] == pytest.approx(most)
