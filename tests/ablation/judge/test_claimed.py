"""A source's claims beside what was measured: every word, and made data on the other side of its rule."""

import csv
import re
import runpy
from math import nan

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

from ablation.audit import claimed
from ablation.audit.measured import _deltas, measured
from ablation.audit.reproduction import Measured, MeasuredCell
from ablation.audit.training_claims import stated_metrics, window
from ablation.config.published_schema import PublishedFile, Step, load_published
from ablation.config.settings import load_settings
from ablation.config.validation import validate
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import estimate
from ablation.judge.power import minimal_detectable_effect, seeds_needed
from ablation.judge.significance import Noise, half_width
from ablation.judge.stored import read_measurements
from ablation.store.database import Store
from tests.ablation.judge.published import claim, published
from tests.ablation.judge.studies import measurements
from tests.ablation.judge.test_verdicts import edit_analysis, run
from tests.documented_metrics import PAGES, documented, fits
from tests.repository import ROOT

PUBLISHED = {path.stem: path for path in (ROOT / "configs/published").glob("*.yaml")}
ROWS = {"old": ["0.10", "0.10", "0.10"], "new": ["0.05", "0.10", "0.08"]}
T = stats.t.ppf(0.975, 4)


def cell(value, half=0.02, seeds=5, **more):
    """A mean over seeds with the interval `half`, all of it seed noise."""
    noise = Noise((half / T) ** 2, seeds - 1, 0.0)
    return MeasuredCell(value, nan, nan, seeds, half=half, noise=noise if half > 0 else None, **more)


def change(percent, new, base=0.1, **more):
    """The line for a claimed change of `mean` in percent, where `old` has the value `base`."""
    file = published(ROWS, [claim(column="mean", percent=percent)])
    deltas = {} if new is None else {("new", "old", "mean"): new}
    [found] = claimed(file, Measured({"old": {"mean": cell(base)}}, deltas=deltas, **more))
    return found


@pytest.mark.parametrize(
    ("percent", "new", "verdict"),
    [
        (-90, cell(-0.05), "reproduced"),
        (-90, cell(0.05), "contradicted"),
        (34, cell(0.05), "reproduced"),
        (-90, cell(-0.01), "not seen"),  # 0.09 would have been shown: the smallest visible change is 0.028
        (-20, cell(-0.01), "too small to see here"),  # 0.02 would not
        (-20, cell(-0.05, nan, 1), "not testable here"),
        (-20, None, "not testable here"),
        (-20, cell(-0.05, 0.0), "not testable here"),  # the same in each seed says nothing of another
        (-20, cell(0.0, 0.0, identical=True), "inert here"),
        (0, cell(0.0, 0.0, identical=True), "inert here"),  # and no proof of no change
        (0, cell(0.05), "contradicted"),
    ],
)
def test_a_claimed_change_gets_its_word_from_the_interval_and_from_what_it_could_see(percent, new, verdict):
    assert change(percent, new).verdict == verdict


def test_no_change_is_reproduced_within_the_margin_only():
    assert change(0, cell(0.001, 0.02), margin=0.03).verdict == "reproduced"
    assert change(0, cell(0.015, 0.02), margin=0.03).verdict == "too small to see here"  # it may be 0.035
    assert change(0, cell(0.001, 0.02)).verdict == "too small to see here"  # no margin


def test_the_smallest_visible_change_and_the_seeds_that_would_do_stand_in_the_claims_unit():
    new = cell(-0.01)
    smallest = minimal_detectable_effect(new.noise, 0.05)
    found = change(-20, new)
    assert found.measured == "-10% ± 20% (5 seeds)"
    seeds = seeds_needed(0.02, new.noise, 5, 0.05)
    assert found.visible == f"{100 * smallest / 0.1:.0f}% (detecting the claimed change takes {seeds} seeds)"
    # The claimed 20% of 0.05 are half as much.
    half = change(-20, new, base=0.05)
    seeds = seeds_needed(0.01, new.noise, 5, 0.05)
    assert half.visible == f"{100 * smallest / 0.05:.0f}% (detecting the claimed change takes {seeds} seeds)"
    assert change(-90, new).visible == f"{100 * smallest / 0.1:.0f}%"  # it could be seen, so no seeds are asked for
    assert change(-0.01, new).visible.endswith("(detecting the claimed change takes more than 1,000 seeds)")
    assert change(-20, new, base=0.0).verdict == "not testable here"  # no percentage of 0


@pytest.mark.parametrize(
    ("low", "high", "new", "verdict"),
    [
        (-0.026, -0.020, cell(-0.01, 0.005), "reproduced"),
        (-0.026, -0.020, cell(0.001, 0.005), "not seen"),
        (-0.026, -0.001, cell(0.001, 0.005), "too small to see here"),  # the near end of the range counts
        (0, 1, cell(0.01, 0.005), "reproduced"),
        (0, 1, cell(-0.01, 0.005), "contradicted"),
        (-1, 0, cell(0.001, 0.005), "too small to see here"),  # a claim in words names no size
    ],
)
def test_a_reported_range_of_differences_is_held_against_ours(low, high, new, verdict):
    delta = {"variant": "new", "against": "old", "column": "a", "low": low, "high": high, "text": "a change"}
    file = published({}, target=None, items={}, columns=["a"], deltas=[delta])
    [found] = claimed(file, Measured({}, deltas={("new", "old", "a"): new}))
    assert found.verdict == verdict


def test_every_claim_has_a_line_however_small():
    file = published(ROWS, [claim(column="a", percent=-50), claim(column="b", percent=1)])
    assert [line.said.split()[0] for line in claimed(file, None)] == ["a", "b"]
    debias = load_published(ROOT / "configs/published/debias.yaml")
    assert len(claimed(debias, None)) == len(debias.claims) + len(debias.standings) == 57


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        (cell(0.03), "reproduced"),
        (cell(0.2), "contradicted"),
        (cell(0.05), "too small to see here"),
        (cell(0.03, nan, 1), "not testable here"),
        (cell(0.03, 0.0), "not testable here"),
    ],
)
def test_a_bound_is_held_against_our_interval(own, verdict):
    standing = {"variant": "new", "column": "a", "below": "0.06", "text": "below 0.06"}
    file = published(ROWS, standings=[standing])
    [found] = claimed(file, Measured({"new": {"a": own}}))
    assert found.verdict == verdict


RIVALS = ROWS | {"third": ["0.30", "0.10", "0.2"]}


def best(old, third, rows=RIVALS):
    """The line for "new is the best of a", given its differences from the two others."""
    file = published(rows, standings=[{"variant": "new", "column": "a", "best": True, "text": "best"}])
    deltas = {("new", name, "a"): of for name, of in (("old", old), ("third", third)) if of is not None}
    [found] = claimed(file, Measured({"new": {"a": cell(0.1)}}, deltas=deltas))
    return found.verdict


def test_a_superlative_is_held_against_every_other_variant():
    assert best(cell(-0.05), cell(-0.1)) == "reproduced"
    assert best(cell(-0.05), cell(0.1)) == "contradicted"
    assert best(cell(-0.05), cell(-0.01, 0.06)) == "too small to see here"  # the source leads by 0.05
    assert best(cell(-0.05, 0.01), cell(-0.005, 0.01)) == "not seen"
    assert best(cell(-0.05), cell(0.0, 0.0, identical=True)) == "inert here"
    assert best(None, None) == "not testable here"
    # One of two rivals at the edge of its own interval: not at a level divided by their number.
    edge = half_width(cell(0, 0.02).noise, 0.05) * 1.01
    assert best(cell(edge), cell(-0.1)) != "contradicted"
    behind = RIVALS | {"old": ["0.04", "0.10", "0.07"]}  # the source's own table has a better one: there is no lead
    assert best(cell(-0.05, 0.01), cell(-0.005, 0.01), behind) == "too small to see here"


CURVE = [np.linspace(0.0, 1.0, 20) + shift for shift in (0.0, 0.02, -0.02)]  # three seeds, rising


def figure(value, curves=CURVE, ran=("new",), scale="demo", settings=None, **more):
    """The line for a stated figure of `loss`."""
    reading = {"variant": "new", "stage": "train", "kind": "seen", "values": {"loss": value}, "text": "low"}
    file = published({}, target=None, items={}, columns=["a"], training=[reading | more])
    ours = {("new", "train", "loss"): curves} if curves else {}
    settings = {"new": settings or {}}
    [found] = claimed(file, Measured({}, curves=ours, ran=frozenset(ran), scale=scale, settings=settings))
    return found


@pytest.mark.parametrize(
    ("value", "more", "verdict"),
    [
        (0.5, {}, "reproduced"),
        (0.9, {}, "not seen"),  # the curves pass it
        (0.9, {"at": {"step": 9, "of": 10}}, "reproduced"),
        (0.5, {"at": {"step": 9, "of": 10}}, "not seen"),
        (0.98, {"at": "end"}, "reproduced"),
        (0.5, {"at": "end"}, "not seen"),
        (0.02, {"at": "start"}, "reproduced"),
        ([0, 0.6], {}, "reproduced"),
        ([0.8, 2], {}, "not seen"),
        ([0.8, None], {"at": "end"}, "reproduced"),
        ([2, 3], {}, "contradicted"),
        ([None, 0.6], {"at": "end"}, "contradicted"),
    ],
)
def test_a_figure_is_held_against_the_part_of_our_training_that_it_is_of(value, more, verdict):
    assert figure(value, **more).verdict == verdict


def test_a_number_is_held_against_where_another_run_would_fall():
    found = figure(0.6, [np.full(10, value) for value in (0.5, 0.55, 0.45)])
    half = stats.t.ppf(0.975, 2) * 0.05 * (1 + 1 / 3) ** 0.5
    assert found.measured == " ".join(["loss", *estimate(0.5, 0.5 - half, 0.5 + half, sign="")])
    assert found.verdict == "reproduced"
    assert figure(0.8, [np.full(10, value) for value in (0.5, 0.55, 0.45)]).verdict == "not seen"
    assert figure(0.6, CURVE[:1]).verdict == "not testable here"  # one seed


def test_what_cannot_fail_is_true_by_construction():
    possible = {"possible": {"loss": [-1, 2]}}
    assert figure([-1, 2], **possible).verdict == "true by construction"
    assert figure([-1, None], **possible).verdict == "true by construction"
    assert figure([0.0, 1.0], **possible).verdict == "reproduced"  # some runs could fail it
    assert figure([2, 3], **possible).verdict == "contradicted"
    assert figure([-5, 5], possible={"loss": [0.5, 2]}).verdict == "reproduced"  # ours lie outside of what is possible


def test_what_repeats_a_setting_of_another_value_is_set_by_the_scale():
    follows = {"set_by": {"loss": "kl.target"}}
    assert figure(0.9, settings={"kl": {"target": 0.03}}, **follows).verdict == "set by the scale"
    assert figure(0.9, settings={"kl": {"target": 0.9}}, **follows).verdict == "not seen"
    assert figure(0.5, settings={"kl": {"target": 0.5}}, **follows).verdict == "reproduced"


def test_a_length_of_other_data_is_compared_at_its_scale_only():
    reading = {"variant": "new", "kind": "seen", "values": {"loss": 0.5}, "text": "low", "scale": "paper"}
    file = published({}, target=None, items={}, columns=["a"], training=[reading])
    for scale, verdict in (("demo", "not testable here"), ("paper", "reproduced")):
        ours = Measured({}, curves={("new", "train", "loss"): CURVE}, ran=frozenset({"new"}), scale=scale)
        assert claimed(file, ours)[0].verdict == verdict


def test_a_figure_of_a_metric_that_is_not_logged_is_an_error_and_of_a_variant_that_did_not_run_is_none():
    assert figure(0.5, []).verdict == "not logged"
    assert "loss is not logged" in figure(0.5, []).measured
    assert figure(0.5, [], ran=()).verdict == "not testable here"


def test_every_figure_of_the_sources_is_of_a_metric_that_is_documented():
    known = set().union(*map(documented, PAGES))
    for name in ("gad", "gspo", "innovations"):
        stated = stated_metrics(load_published(ROOT / f"configs/published/{name}.yaml"))
        assert stated
        assert not [metric for metric in stated if not any(fits(metric, pattern) for pattern in known)]
    assert not any(fits("critic/student_sum", pattern) for pattern in known)


def test_the_page_of_the_studies_is_made_of_the_table_of_claims():
    make = runpy.run_path(str(ROOT / "docs/make_claims.py"))
    rows = make["read"](ROOT / "docs/studies/claims.tsv")
    page = (ROOT / "docs/studies/README.md").read_text(encoding="utf-8")
    assert make["page"](rows) == page, "run: python docs/make_claims.py RESULTS"
    lines = {name: claimed(load_published(file), None) for name, file in PUBLISHED.items()}
    for scale in {row["scale"] for row in rows}:
        found = [(row["study"], row["variant"], row["claimed"]) for row in rows if row["scale"] == scale]
        sized = yaml.safe_load((ROOT / f"configs/scales/{scale}.yaml").read_text())["studies"]
        names = sorted(lines.keys() & sized.keys())
        assert found == [(name, line.variant, line.said) for name in names for line in lines[name]]


def test_the_part_of_the_plan_for_claims_runs_every_variant_that_a_claim_is_on():
    parts = yaml.safe_load((ROOT / "configs/claims.yaml").read_text())
    known = load_studies(load_settings(parts, configs=ROOT / "configs"))
    for row in csv.DictReader((ROOT / "docs/studies/claims.tsv").open(), delimiter="\t", quoting=csv.QUOTE_NONE):
        against = re.search(r" against (\S+?):", row["claimed"])
        assert {row["variant"], *(against.groups() if against else ())} <= known[row["study"]].variants.keys(), row


def test_figures_of_one_line_are_judged_together():
    """The worst of those that were tested; those that cannot fail do not make a line reproduced, nor hide one."""
    curves = {("new", "train", name): CURVE for name in ("a", "b")}

    def word(values, **more):
        reading = {"variant": "new", "kind": "seen", "values": values, "text": "x"} | more
        file = published({}, target=None, items={}, columns=["a"], training=[reading])
        return claimed(file, Measured({}, curves=curves, ran=frozenset({"new"})))[0].verdict

    assert word({"a": 0.5, "b": 0.5}) == "reproduced"
    assert word({"a": 0.5, "b": 0.9}) == "not seen"
    assert word({"a": 0.9, "b": [2, 3]}) == "contradicted"
    always = {"possible": {"a": [-1, 2]}}
    assert word({"a": [-1, 2], "b": [-1, 2]}, possible={"a": [-1, 2], "b": [-1, 2]}) == "true by construction"
    assert word({"a": [-1, 2], "b": 0.9}, **always) == "not seen"
    assert word({"a": 0.5, "c": 0.5}) == "not logged"


def test_the_steps_of_a_place():
    assert window(100, None) == slice(0, 100)
    assert window(100, "start") == slice(0, 10)
    assert window(100, "end") == slice(90, 100)
    assert window(100, Step(step=32, of=64)) == slice(45, 55)
    assert window(100, Step(step=64, of=64)) == slice(90, 100)
    assert window(14, Step(step=1, of=64)) == slice(0, 1)
    with pytest.raises(ValueError, match="step 3 is after the last step, 2"):
        Step(step=3, of=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"at": "middle"}, "middle"),
        ({"at": "end", "stage": None}, "`at` is a part of one stage's training"),
        ({"possible": {"lss": [0, 1]}}, "lss is missing from `values`"),
        ({"set_by": {"lss": "kl.target"}}, "lss is missing from `values`"),
        ({"values": {"loss": [None, None]}}, "the range of loss has no bound"),
    ],
)
def test_a_reading_that_says_nothing_is_refused(change, said):
    reading = {"variant": "new", "stage": "train", "kind": "seen", "values": {"loss": 1}, "text": "low"}
    with pytest.raises(ConfigError, match=said):
        validate(PublishedFile, {"source": "x", "training": [reading | change]}, "a log")


def test_an_inert_change_is_found_in_the_items_and_what_it_reached_is_said(tmp_path):
    """v2 has v1's items in every seed: its published value is identical, and the plan's graded value is not."""

    def graded(plan):
        files = sorted(plan.parent.glob("stages/*/*/*/items.parquet"))
        first = pd.read_parquet(files[0])
        for number, file in enumerate(files):
            more = first.assign(name="graded", value=0.1 * number)
            pd.concat([first, more]).to_parquet(file, index=False)
        edit_analysis(value="graded")(plan)

    _, results = run(tmp_path, graded)
    file = validate(
        PublishedFile,
        {"source": "x", "metric": "hit", "columns": ["gender"], "rows": {"v1": ["0.1"], "v0": ["0.1"]}}
        | {"claims": [claim("v1", "v0", "gender", percent=-10)]},
        "a table",
    )
    with Store(results / "tracker.duckdb") as store:
        names = store.sql("SELECT DISTINCT name FROM items")["name"].tolist()
        value = next(name for name in names if name != "graded")
        ours = measured(store, read_measurements(store, "toy", value), file)
    assert ours.deltas["v1", "v0", "gender"].identical
    [found] = claimed(file, ours)
    assert found.verdict == "inert here"
    assert (
        "every item has the same value in both variants; graded, by which the study is judged, differs in "
        in found.measured
    )


def test_equal_means_of_other_items_are_not_identical():
    runs = [[0, 1, 0, 0], [0, 0, 0, 1]]
    for new, identical in (([[1, 0, 0, 0], [0, 0, 0, 1]], False), (runs, True)):
        made = measurements({"old": {"a": np.array(runs)}, "new": {"a": np.array(new)}}, {"old": None, "new": "old"})
        delta = {"variant": "new", "against": "old", "column": "a", "low": 0, "high": 1, "text": "a change"}
        file = published({}, target=None, items={}, columns=["a"], deltas=[delta])
        [found] = _deltas(made, file).values()
        assert (found.value, found.identical) == (0, identical)
