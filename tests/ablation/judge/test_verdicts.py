"""From simulated stage folders, through the database, to one verdict per comparison."""

import itertools
import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ablation.cli.verdicts import caveats, reasons
from ablation.judge.measurements import item_clusters
from ablation.judge.stored import read_measurements
from ablation.judge.verdicts import JudgedStudy, comparison_table, interaction_table, judge_interactions, judge_studies
from ablation.show.methods import could_help
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.ablation.judge.studies import measurements
from tests.simulate import Study, editing, simulate, stage_dir

ITEMS = {"gender": 400, "race": 400}

PAIR = {"v0": (None, {}), "v1": ("v0", {"lr": (1, 2)})}


def run(tmp_path, change=None, **arguments):
    """Simulate one study, change plan or files, collect; return (comparisons by child, store path)."""
    results = tmp_path / "results"
    study = Study(**({"variant_tree": PAIR, "seeds": 4, "items": ITEMS, "rho": 0.8} | arguments))
    plan = simulate(results, [study])
    if change:
        change(plan)
    collect(results)
    with Store(results / "tracker.duckdb") as store:
        return comparison_table(judge_studies(store)).set_index("child"), results


def judged(tmp_path, change=None, **arguments):
    """The comparison of v1 in such a study."""
    return run(tmp_path, change, **arguments)[0].loc["v1"]


def measured(results):
    with Store(results / "tracker.duckdb") as store:
        return read_measurements(store, "toy")


def edit_analysis(**values):
    def change(plan):
        with editing(plan) as content:
            for study in content["studies"]:
                study["analysis"] |= values

    return change


def edit_items(variant, seed, edit):
    def change(plan):
        path = stage_dir(plan, "toy", variant, seed, "evaluate") / "items.parquet"
        edit(pd.read_parquet(path)).to_parquet(path, index=False)

    return change


def both(*changes):
    return lambda plan: [change(plan) for change in changes]


def add_clusters(of_item, *, seeds=range(4)):
    """Write a column `cluster` into items of evaluate stages: `of_item(variant)(item) -> cluster`."""

    def add(variant, seed):
        return edit_items(variant, seed, lambda rows: rows.assign(cluster=rows["item"].map(of_item(variant))))

    return both(*itertools.starmap(add, itertools.product(("v0", "v1"), seeds)))


def test_clusters_are_read_by_item_and_shared_between_subsets(tmp_path):
    _, results = run(tmp_path, add_clusters(lambda _: lambda item: f"term {int(item[-4:]) // 8}"))
    study = measured(results)
    assert study.clusters["race"]["race-0009"] == "term 1"
    gender, race = item_clusters(study, "v1", 2)
    assert gender.tolist() == race.tolist() == [i // 8 for i in range(400)]


def test_an_item_in_two_clusters_makes_comparisons_invalid(tmp_path):
    comparison = judged(tmp_path, add_clusters(lambda variant: lambda item: f"{variant} {item[-1]}"))
    assert comparison.verdict == "invalid"
    assert "item gender-0000 of gender is in cluster v0 0 in one run and in v1 0 in another" in comparison.reason


@pytest.mark.parametrize(("distance", "verdict"), [(0.0, "better"), (0.3, "worse")])
def test_a_large_effect_is_found(tmp_path, distance, verdict):
    comparison = judged(tmp_path, distances={"v0": 0.15, "v1": distance}, seeds=6)
    assert (comparison.verdict, comparison.detail) == (verdict, verdict)
    assert comparison.low < 0.15 - distance < comparison.high
    assert comparison.p_adjusted <= 0.05
    assert comparison.p_sign_flip == pytest.approx(2 / 64)
    assert comparison.in_seeds == pytest.approx(0.05 ** (1 / 6))


def test_a_change_that_changes_no_item_says_so(tmp_path):
    wide = judged(tmp_path / "wide", edit_analysis(margin=0.2), rho=1.0, seeds=5)
    narrow = judged(tmp_path / "narrow", edit_analysis(margin=0.0001), rho=1.0)
    assert wide.effect == narrow.effect == 0
    assert wide.verdict == "equivalent"
    assert wide.reason == "no item differs in any seed, so the change had no effect on these runs"
    assert narrow.verdict == "undecided"
    assert "rare difference" in narrow.reason


@pytest.mark.parametrize(
    ("seeds", "rare", "verdict"), [(4, 0.5, "undecided"), (4, 0.6, "equivalent"), (5, 0.4, "undecided")]
)
def test_equivalent_needs_seeds_enough(tmp_path, seeds, rare, verdict):
    comparison = judged(tmp_path, edit_analysis(margin=0.2, rare=rare), rho=0.95, seeds=seeds)
    assert comparison.verdict == verdict
    assert comparison.in_seeds == pytest.approx(0.05**0.25 if verdict == "equivalent" else float("nan"), nan_ok=True)
    assert "seeds rule out" not in comparison.reason  # said once, by the legend of `in_seeds`
    if verdict != "equivalent" and seeds == 4:
        assert (
            "4 seeds cannot rule out that 53% of seeds behave differently; 5 seeds would reduce that share to 50%"
            in comparison.reason
        )


def test_one_cluster_speaks_about_these_items_only(tmp_path):
    change = add_clusters(lambda _: lambda item: "a", seeds=range(6))

    comparison = judged(tmp_path, both(change, edit_analysis(margin=0.2)), rho=0.95, seeds=6)
    assert comparison.verdict == "equivalent"
    said = "all items are in one cluster, which cannot represent others, so the verdict is about these items only"
    assert said in comparison.reason


@pytest.mark.parametrize(
    ("digest", "stage"),
    [
        (lambda variant, seed: None, "evaluate"),
        (lambda variant, seed: f"{variant}{seed * (seed > 3)}", "evaluate"),
        (lambda variant, seed: f"d{seed}", "train"),  # the last stage says nothing of its own models
        (lambda variant, seed: f"d{seed}", "evaluate"),
    ],
    ids=["unknown", "other", "earlier", "equal"],
)
def test_models_that_were_measured_equal_leave_nothing_unseen(tmp_path, request, digest, stage):
    """Few items that all agree are not proof; the same models, measured in the same way, are one."""

    def alike(plan):
        for seed in range(6):
            source, target = (stage_dir(plan, "toy", variant, seed, "evaluate") for variant in ("v0", "v1"))
            shutil.copy(source / "items.parquet", target)
            for variant in ("v0", "v1"):
                weights = stage_dir(plan, "toy", variant, seed, stage) / "weights.json"
                if of := digest(variant, seed):
                    weights.write_text(json.dumps({"digest": of, "moved": []}))

    comparison = judged(tmp_path, both(alike, edit_analysis(margin=0.001)), seeds=6)
    if request.node.callspec.id == "equal":
        assert (comparison.verdict, comparison.low, comparison.high) == ("equivalent", 0, 0)
        said = "the models that were measured are equal in every seed, so no item can differ"
    else:
        assert comparison.verdict == "undecided"
        said = "cannot rule out a rare difference"
    assert said in comparison.reason


@pytest.mark.parametrize("seeds", ["paired", "independent"])
def test_runs_that_were_made_in_other_environments_are_said_to_be(tmp_path, seeds):
    """v1 has another torch in two seeds, in both stages, and another processor in one; v2 shares all that v0 had."""

    def change(plan):
        for variant in ("v0", "v1", "v2"):
            for seed in range(4):
                packages = {"torch": "2.10.0" if variant == "v1" and seed < 2 else "2.9.0", "numpy": f"2.{seed}"}
                processor = "Xeon" if variant == "v1" and seed == 0 else "EPYC\x1b"
                for stage in ("train", "evaluate"):
                    made = {"packages": packages, "hardware": {"processor": processor, "gpus": []}}
                    folder = stage_dir(plan, "toy", variant, seed, stage)
                    (folder / "provenance.json").write_text(json.dumps(made))
                    with editing(folder / "status.json") as status:
                        status["devices"] = 1
                        if variant == "v2" and stage == "train":
                            status |= {"device": f"{seed + 1} x H100", "devices": seed + 1}

    variant_tree = {"v0": (None, {}), "v1": ("v0", {"lr": (1, 2)}), "v2": ("v0", {"lr": (1, 3)})}
    comparisons, _ = run(tmp_path, both(change, edit_analysis(seeds=seeds)), variant_tree=variant_tree)
    assert comparisons.loc["v1", "reason"].endswith(
        "; train and evaluate ran on different processors in 1 of 4 seeds: EPYC\\x1b for v0, Xeon for v1; train and "
        "evaluate ran with different versions of torch in 2 of 4 seeds: 2.9.0 for v0, 2.10.0 for v1"
    )
    assert comparisons.loc["v2", "reason"].endswith(
        "; train ran on different processors in 4 of 4 seeds: EPYC\\x1b for v0, H100 for v2; train ran on different "
        "numbers of devices in 3 of 4 seeds: 1 for v0, 2, 3 and 4 for v2"
    )


def test_a_change_that_cannot_have_an_effect_is_said_in_its_comparison(tmp_path):
    def note(plan):
        with editing(plan) as content:
            child = next(variant for variant in content["studies"][0]["variants"] if variant["name"] == "v1")
            [change] = child["changes"]
            change["no_effect"] = "both act as 3"

    comparison = judged(tmp_path, note)
    assert (
        "lr cannot have any effect: both act as 3; none of the changes in this comparison can have an effect"
        in comparison.reason
    )


EVERY_RUN = list(itertools.product(("v0", "v1"), range(4)))
TWO_FACTORS = {"v0": (None, {}), "v1": ("v0", {"lr": (1, 2), "beta": (1, 2)})}


@pytest.mark.parametrize(
    ("states", "verdict", "said", "seeds"),
    [
        ({("v1", 1): "failed"}, "invalid", "v1 seed 1 failed", 3),
        ({("v0", 1): "diverged"}, "invalid", "v0 seed 1 is diverged", 3),
        ({("v0", 1): "missing"}, "not run", "v0 seed 1 has not run", 3),
        ({("v0", 1): "missing", ("v1", 2): "failed"}, "invalid", "v1 seed 2 failed", 2),
        (dict.fromkeys(EVERY_RUN, "missing"), "not run", "v0 seed 0 has not run", 0),
    ],
)
def test_a_run_that_failed_makes_its_comparison_invalid_and_one_that_is_to_come_not_run(
    tmp_path, states, verdict, said, seeds
):
    comparison = judged(tmp_path, states=states)
    assert (comparison.verdict, comparison.detail, comparison.seeds) == (verdict, verdict, seeds)
    assert said in comparison.reason
    assert np.isnan(comparison.p_adjusted)
    assert np.isfinite(comparison.effect) == (seeds > 0)


def test_a_comparison_of_other_items_does_not_wait_for_runs_and_one_of_two_factors_does(tmp_path):
    apart = edit_items("v1", 0, lambda rows: rows[1:])
    assert judged(tmp_path / "a", apart, states={("v1", 2): "missing"}).verdict == "invalid"
    comparison = judged(tmp_path / "b", variant_tree=TWO_FACTORS, states={("v1", 0): "missing"})
    assert (comparison.verdict, comparison.confounded) == ("not run", True)


WARNING = {"id": "lms-low", "stage": "train", "metric": "lms", "severity": "warn", "range": {"max": 0.0}}
WARNING |= {"diagnosis": "words are lost; see (a): b", "remedy": "lower lr"}
NOTE = WARNING | {"id": "slow", "metric": "speed", "severity": "note"}


def trip(rules):
    """Have runs log what these rules forbid: {run: rule}."""

    def change(plan):
        with editing(plan) as content:
            content["studies"][0]["health"] = [WARNING, NOTE]
        for (variant, seed), rule in rules.items():
            path = stage_dir(plan, "toy", variant, seed, "train") / "metrics.parquet"
            logged = pd.DataFrame({"step": [1], "name": [rule["metric"]], "value": [0.1]})
            pd.concat([pd.read_parquet(path), logged]).to_parquet(path, index=False)

    return change


def test_a_warning_is_told_with_the_verdict_and_changes_nothing_else(tmp_path):
    """Its diagnosis may hold what separates the parts of a reason: nothing takes a reason apart again."""
    diagnosis = WARNING["diagnosis"]
    healthy, _ = run(tmp_path / "a")
    warned, results = run(tmp_path / "b", trip({("v1", 0): WARNING, ("v1", 2): WARNING, ("v0", 1): NOTE}))
    ours, theirs = warned.loc["v1"], healthy.loc["v1"]
    assert ours.reason == f"{theirs.reason}; unhealthy (warn): lms-low: {diagnosis} (v1 seed 0, v1 seed 2)"
    assert ours.drop("reason").equals(theirs.drop("reason"))
    comparison = judged(tmp_path / "c", trip(dict.fromkeys(EVERY_RUN, WARNING)))
    assert comparison.reason.endswith(f"lms-low: {diagnosis} (v1 seed 0, v1 seed 1, v1 seed 2 and 5 more)")
    with Store(results / "tracker.duckdb") as store:
        assert len(store.health("toy")) == 3  # the note is kept, but is not a part of a verdict
        [judged_study] = judge_studies(store)
    [broken] = judged_study.comparisons[0].warnings
    assert (broken.rule, broken.runs) == (("lms-low", diagnosis), ("v1 seed 0", "v1 seed 2"))
    lines = reasons(judged_study.comparisons).splitlines()
    assert max(map(len, lines)) <= 120
    printed = " ".join(" ".join(lines).split())
    assert printed.count("lms-low") == 2  # beside the comparison, and with what it means
    assert f"lms-low: {diagnosis}" in printed


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda frame: frame[frame["item"] != "gender-0003"], "items of gender cannot be paired"),
        (lambda frame: frame[frame["subset"] != "race"], "no items of race"),
        (lambda frame: pd.concat([frame, frame.head(1)]), "has an item that occurs twice"),
        (lambda frame: frame.assign(value=frame["value"].where(frame["item"] != "race-0001")), "not finite"),
        (lambda frame: frame.assign(item=frame["item"] + "x"), "with only 0 in common"),
    ],
)
def test_items_must_be_the_same(tmp_path, edit, reason):
    comparison = judged(tmp_path, edit_items("v1", 2, edit))
    assert comparison.verdict == "invalid"
    assert reason in comparison.reason


def test_holm_counts_the_comparisons_that_were_tested(tmp_path):
    comparisons, _ = run(tmp_path, variant_tree=None, variants=6, distances={"v1": 0.3}, states={("v5", 0): "failed"})
    tested = comparisons[comparisons["verdict"] != "invalid"]
    assert len(tested) == 4
    assert tested["p"].min() < 0.25
    assert tested["p_adjusted"].min() == pytest.approx(4 * tested["p"].min())


def test_cost_counts_devices(tmp_path):
    def on_two_devices(plan):
        path = stage_dir(plan, "toy", "v1", 2, "train") / "status.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"device": "NVIDIA H100", "devices": 2}))

    comparison = judged(tmp_path, on_two_devices)
    assert comparison.cost_hours == pytest.approx((4 * 2 + 1) * 12.5 / 3600)


def test_an_interaction_is_the_combination_minus_its_parts_and_has_no_p_with_a_failed_run():
    parents = {"v0": None, "a": "v0", "b": "v0", "ab": "a"}
    drawn = dict(zip(parents, np.random.default_rng(0).random((4, 4, 40)), strict=True))
    drawn["ab"] += 0.5
    study = measurements({name: {"all": of} for name, of in drawn.items()}, parents, combinations={"ab": ["a", "b"]})
    [row] = interaction_table([JudgedStudy(study, [], judge_interactions(study))]).to_dict("records")
    mean = {name: of.mean() for name, of in drawn.items()}
    assert (row["parts"], row["baseline"], row["seeds"]) == ("a + b", "v0", 4)
    assert row["effect"] == pytest.approx(mean["ab"] - mean["a"] - mean["b"] + mean["v0"])
    assert 0 < row["low"] < 0.5 < row["high"]
    assert row["p"] < 0.05
    [row] = judge_interactions(replace(study, states=study.states | {("ab", 3): ("failed", "out of memory")}))
    assert "ab seed 3" in row["reason"]
    assert np.isnan(row["p"])
    assert np.isfinite(row["effect"])


def test_a_comparison_that_is_gone_after_results_is_a_changed_plan(tmp_path):
    """A variant less makes the family smaller and every other p; one more does not help anybody."""

    def keep(*names):
        def change(plan):
            with editing(plan) as content:
                [study] = content["studies"]
                for key in ("variants", "runs"):
                    study[key] = [e for e in study[key] if e.get("variant", e.get("name")) in names]

        return change

    variant_tree = {**PAIR, "v2": ("v0", {"beta": (1, 2)})}
    _, results = run(tmp_path, keep("v0", "v1"), variant_tree=variant_tree, seeds=1)
    full, histories = json.loads((results / "plan.json").read_text()), []
    simulate(tmp_path / "other", [Study(variant_tree=variant_tree, seeds=1, items=ITEMS)])
    whole = json.loads((tmp_path / "other" / "plan.json").read_text())["studies"][0]
    for names in (("v0", "v1", "v2"), ("v0", "v1", "v2"), ("v0", "v2")):
        full["studies"][0] |= {"variants": whole["variants"], "runs": whole["runs"]}
        (results / "plan.json").write_text(json.dumps(full))
        keep(*names)(results / "plan.json")
        collect(results)
        histories.append(measured(results).history)
    assert [len(history) for history in histories] == [1, 1, 2]
    assert histories[1][0]["comparisons"] == [["v1", "v0"], ["v2", "v0"]]
    assert could_help(*histories[2]) == ["v1 is no longer compared with v0"]


def test_notes_that_differ_only_in_their_details_are_one_line():
    note = "runs end at different steps: {}; import them again"
    first, second = (SimpleNamespace(child=name, notes=(note.format(name),), warnings=()) for name in ("v1", "v2"))
    assert caveats([first, second]) == "note: runs end at different steps; import them again"
    assert caveats([first]) == "note: runs end at different steps: v1; import them again"
