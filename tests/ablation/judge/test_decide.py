"""Rounds of more seeds, with a simulated grid instead of Snakemake; extra seeds and the plan that reads them."""

import json
import re

import pytest

from ablation.cli.add_seeds import run_add_seeds as run_decide
from ablation.cli.parser import build_parser
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError, TrackerError
from ablation.judge.decide import decide
from ablation.plan.build import build_plan
from ablation.plan.plan_file import load_extra_seeds, save_extra_seeds
from ablation.store.collect import collect
from tests.ablation import toy_study
from tests.simulate import Study, editing, simulate

ITEMS = {"gender": 400, "race": 400}
FAN = {"v0": (None, {}), "far": ("v0", {"lr": (1, 2)}), "same": ("v0", {"beta": (1, 2)})}
PER_SEED = 2 * 12.5 / 3600  # train and evaluate


class Grid:
    """Runs the plan that a real one would: every variant has its extra seeds, else three."""

    def __init__(self, results, interims=(3, 5, 8), obedient=True, **arguments):
        self.results, self.interims, self.obedient, self.calls = results, list(interims), obedient, 0
        defaults = {"variant_tree": FAN, "items": ITEMS, "rho": 0.8, "seed_sd": 0.01}
        self.arguments = defaults | {"distances": {"v0": 0.3, "far": 0.0, "same": 0.28}} | arguments

    def __call__(self):
        self.calls += 1
        extra = load_extra_seeds(self.results).get("toy", {}) if self.obedient else {}
        plan = simulate(self.results, [Study("toy", seeds=max([3, *extra.values()]), **self.arguments)])
        with editing(plan) as content:
            [study] = content["studies"]
            study["analysis"] |= {"interim_analyses": self.interims, "margin": 0.001}
            study["runs"] = [run for run in study["runs"] if run["seed"] < extra.get(run["variant"], 3)]
            used = {key for run in study["runs"] for key in run["stages"].values()}
            content["stages"] = [s for s in content["stages"] if s["key"] in used or s["study"] == "assets"]
        collect(self.results)
        return 0


def quiet(_text):
    pass


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with budget enough, what it said, and its grid."""
    results, said = tmp_path_factory.mktemp("finished"), []
    grid = Grid(results)
    return decide("toy", 100.0, results, grid, say=said.append), said, grid


def test_seeds_go_to_undecided_comparisons_only(finished):
    outcome, _, grid = finished
    comparisons = {comparison.child: comparison for comparison in outcome.comparisons}
    assert comparisons["far"].verdict == "better"
    assert comparisons["same"].verdict == "undecided"
    counts = load_extra_seeds(grid.results)["toy"]
    assert counts["same"] == counts["v0"] == 8
    assert counts.get("far", 3) < 8
    assert "last interim analysis (8 seeds)" in outcome.why
    assert grid.calls == outcome.rounds + 1
    assert comparisons["same"].cost_hours > comparisons["far"].cost_hours


def test_comparisons_per_device_hour_before_and_after(finished):
    outcome, _, _ = finished
    # The stage that all share, three seeds of three variants, then five more of two; one comparison decided at once.
    start = 12.5 / 3600 + 9 * PER_SEED
    assert (outcome.before.decided, outcome.before.hours) == (1, pytest.approx(start))
    assert (outcome.after.decided, outcome.after.hours) == (1, pytest.approx(start + 10 * PER_SEED))
    before, after, added = outcome.report().splitlines()
    assert before == "before: 1 comparison decided in 4 min of device time (15.16 per device-hour)"
    assert after == "after: 1 comparison decided in 8 min of device time (7.385 per device-hour)"
    assert added == "added seeds: 0 comparisons decided in 4 min of device time (0 per device-hour)"


def test_the_budget_is_kept(tmp_path):
    outcome = decide("toy", 10.5 * PER_SEED, tmp_path, Grid(tmp_path), say=quiet)
    assert outcome.spent_hours == pytest.approx(10 * PER_SEED)
    nothing = decide("toy", 3.9 * PER_SEED, tmp_path / "b", Grid(tmp_path / "b"), say=quiet)
    assert (nothing.rounds, nothing.spent_hours) == (0, 0.0)
    assert "budget" in nothing.why


def test_a_dry_run_says_what_it_would_do_and_does_nothing(tmp_path, capsys):
    with pytest.raises(TrackerError, match="run the grid first"):
        decide("toy", 100.0, tmp_path / "none", lambda: 0, say=quiet, dry_run=True)
    grid, said = Grid(tmp_path), []
    grid()
    outcome = decide("toy", 100.0, tmp_path, lambda: pytest.fail("ran"), say=said.append, dry_run=True)
    assert outcome.why == "dry run"
    assert outcome.before == outcome.after
    assert "chosen" in said[-1]
    assert load_extra_seeds(tmp_path) == {}
    words = ["add-seeds", "toy", "--budget", "100", "--dry-run", "--results", str(tmp_path)]
    assert run_decide(build_parser().parse_args(words)) == 0
    shown = capsys.readouterr().out
    assert "comparisons per hour" in shown
    assert "stopped: dry run; 0 s of device time spent in 0 rounds" in shown
    assert "before: 1 comparison decided in 4 min of device time" in shown
    assert run_decide(build_parser().parse_args([*words, "--json"])) == 0
    captured = capsys.readouterr()
    printed = json.loads(captured.out)  # progress goes elsewhere
    assert "round 0: 1 of " in captured.err
    assert {row["child"]: row["verdict"] for row in printed["rows"]} == {
        e.child: e.verdict for e in outcome.comparisons
    }
    assert [each["child"] for each in printed["offers"]] == [each.child for each in outcome.offers]
    assert (printed["stopped"], printed["rounds"], printed["spent_hours"]) == ("dry run", 0, 0)
    assert load_extra_seeds(tmp_path) == {}


def test_comparisons_that_more_seeds_do_not_decide_get_none(tmp_path):
    equal = {"v0": 0.3, "far": 0.0, "same": 0.3}  # and the margin is far below what the items can tell
    outcome = decide("toy", 100.0, tmp_path, Grid(tmp_path, interims=(3, 5), distances=equal), say=quiet)
    assert (outcome.rounds, outcome.why) == (0, "more seeds are unlikely to decide the remaining comparisons")
    confounded = FAN | {"same": ("v0", {"beta": (1, 2), "gamma": (1, 2)})}
    grid = Grid(tmp_path / "b", variant_tree=confounded)
    outcome = decide("toy", 100.0, tmp_path / "b", grid, say=quiet)
    assert {comparison.child: comparison.verdict for comparison in outcome.comparisons}["same"] == "confounded"
    assert (outcome.rounds, grid.calls) == (0, 1)


def test_interim_analyses_must_be_declared_and_the_study_known(tmp_path):
    with pytest.raises(
        ConfigError, match=r"analysis\.interim_analyses.*declare numbers of seeds before there are results"
    ):
        decide("toy", 1.0, tmp_path, Grid(tmp_path, interims=()), say=quiet)
    with pytest.raises(ConfigError, match="is not in the database"):
        decide("other", 1.0, tmp_path, Grid(tmp_path), say=quiet)


def test_a_grid_that_leaves_nothing_or_ignores_the_seeds_ends_it(tmp_path):
    with pytest.raises(TrackerError, match="wrote no database in"):
        decide("toy", 1.0, tmp_path / "none", lambda: 1, say=quiet)
    with pytest.raises(TrackerError, match="does not include the added seeds"):
        decide("toy", 100.0, tmp_path, Grid(tmp_path, obedient=False), say=quiet)


def test_extra_seeds_merge_and_never_shrink(tmp_path):
    save_extra_seeds(tmp_path, "a", {"v1": 4, "v2": 2})
    save_extra_seeds(tmp_path, "a", {"v1": 3, "v3": 5})
    save_extra_seeds(tmp_path, "b", {"v1": 2})
    assert load_extra_seeds(tmp_path) == {"a": {"v1": 4, "v2": 2, "v3": 5}, "b": {"v1": 2}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", ": "),
        ("[]", ": "),
        ('{"toy": 3}', ": toy = 3: "),
        ('{"toy": {"v1": 0}}', ": toy.v1 = 0: "),
        ('{"toy": {"v1": true}}', ": toy.v1 = True: "),
    ],
)
def test_a_broken_file_of_seeds_is_an_error_that_names_the_place(tmp_path, text, where):
    (tmp_path / "seeds.json").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(f"seeds.json{where}must hold a number of seeds")):
        load_extra_seeds(tmp_path)


def test_the_plan_takes_up_the_extra_seeds(tmp_path):
    toy = toy_study.Toy(tmp_path)
    settings = load_settings(configs=toy.configs)
    before = build_plan(settings, root=tmp_path)
    save_extra_seeds(settings.results, "toy", {"v3": 4})
    after = build_plan(settings, root=tmp_path)
    runs_of = [{(r.variant, r.seed) for r in plan.content.studies[0].runs} for plan in (before, after)]
    added = runs_of[1] - runs_of[0]
    assert added == {("v3", 2), ("v3", 3)}
    assert set(before.stages) < set(after.stages)  # what was run stays
