"""The plan's rules on the collected metrics: which series are judged, and that rules may change afterwards."""

import pandas as pd

from ablation.contract.health import evaluate, parse_rules
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.simulate import METRICS_DTYPES, Study, editing, simulate, stage_dir

WORDS = {"severity": "warn", "diagnosis": "too high", "remedy": "lower lr"}
KEPT = ["rule", "metric", "severity", "first_step", "last_step", "value"]


def declare(results, *rules):
    path = results / "plan.json"
    with editing(path) as plan:
        plan["studies"][0]["health"] = list(rules)


def log(plan, run, series, stage="train"):
    """Append {metric: [(step, value)]} to what a stage of a run logged, in this order of writing."""
    path = stage_dir(plan, "toy", *run, stage=stage) / "metrics.parquet"
    rows = [(step, name, value) for name, points in series.items() for step, value in points]
    more = pd.DataFrame(rows, columns=["step", "name", "value"]).astype(METRICS_DTYPES)
    pd.concat([pd.read_parquet(path), more]).to_parquet(path, index=False)


def events(results):
    with Store(collect(results).database) as store:
        return store.health("toy")


def rows(frame):
    return [(r["variant"], r["seed"], *(r[name] for name in KEPT)) for r in frame.to_dict("records")]


def test_a_rule_trips_on_the_run_that_broke_it_only(results):
    plan = simulate(results)
    declare(results, {"id": "high", "stage": "train", "metric": "x/a", "range": {"max": 1.0}, "window": 2} | WORDS)
    log(plan, ("v1", 0), {"x/a": [(1, 0.5), (2, 1.5), (3, 3.0), (4, 2.0), (5, 1.0), (6, 9.0)]})
    log(plan, ("v2", 1), {"x/a": [(1, 0.5), (2, 1.0)], "x/b": [(1, 99.0), (2, 99.0)]})
    found = events(results)
    assert rows(found) == [("v1", 0, "high", "x/a", "warn", 2, 4, 3.0)]
    assert found.loc[0, ["stage", "diagnosis", "remedy"]].tolist() == ["train", "too high", "lower lr"]


def test_a_changed_rule_needs_no_new_run(results):
    plan = simulate(results)
    log(plan, ("v1", 0), {"x/a": [(1, 0.5), (2, 1.5)]})
    rule = {"id": "high", "stage": "train", "metric": "x/a", "range": {"max": 2.0}} | WORDS
    declare(results, rule)
    assert events(results).empty
    declare(results, rule | {"range": {"max": 1.0}, "severity": "note", "diagnosis": "other words"})
    found = events(results)
    assert rows(found) == [("v1", 0, "high", "x/a", "note", 2, 2, 1.5)]
    assert found.loc[0, "diagnosis"] == "other words"


def test_a_stage_shared_by_runs_is_judged_once_and_shown_for_each(results):
    plan = simulate(results)
    declare(results, {"id": "high", "stage": "prepare", "metric": "x", "range": {"max": 1.0}} | WORDS)
    path = stage_dir(plan, "toy", "v0", 0, "prepare") / "metrics.parquet"
    pd.DataFrame({"step": [1], "name": ["x"], "value": [2.0]}).astype(METRICS_DTYPES).to_parquet(path, index=False)
    assert collect(results).rows["health"] == 1
    assert len(events(results)) == 8


def test_the_collector_finds_what_the_monitor_of_each_stage_would(results):
    """Against the rules applied to each shard on its own, read with pandas."""
    plan = simulate(results, [Study(steps=60, metrics=4)])
    rules = [
        {"id": "low", "stage": "train", "metric": "train/m0[0-2]", "range": {"min": 0.3}, "window": 3} | WORDS,
        {"id": "ratio", "stage": "train", "metric": "train/m01", "measure": "ratio", "reference": "train/m03",
         "range": {"min": 0.7, "max": 1.4}, "after": 5} | WORDS,
    ]  # fmt: skip
    declare(results, *rules)
    expected = []
    for variant in ("v0", "v1", "v2", "v3"):
        for seed in (0, 1):
            frame = pd.read_parquet(stage_dir(plan, "toy", variant, seed, "train") / "metrics.parquet")
            series = {n: list(zip(g["step"], g["value"], strict=True)) for n, g in frame.groupby("name")}
            for e in evaluate(parse_rules(rules), series):
                expected.append((variant, seed, e.rule.id, e.metric, "warn", e.first_step, e.last_step, e.value))
    assert len(expected) > 20
    assert {rule for _, _, rule, *_ in expected} == {"low", "ratio"}
    assert rows(events(results)) == expected
