"""The command gate: each answer has an exit status of its own, and none but `passed` is 0."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ablation
from ablation.config.settings import load_settings
from ablation.contract.errors import TrackerError
from ablation.plan.build import build_plan
from ablation.plan.collected import PLAN_FILE
from ablation.store.collect import collect
from tests.ablation.typed import output, refused, typed
from tests.simulate import Study, simulate, stage_dir

SEEDS = range(5)
CHAIN = {f"v{n}": (f"v{n - 1}" if n else None, {f"key{n}": (0, 1)} if n else {}) for n in range(4)}
GAINS = {f"v{n}": 0.15 - 0.012 * n for n in range(4)}
NOT_RUN = {(f"v{n}", seed): "missing" for n in range(4) for seed in SEEDS}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """v1 is better than v0, v2 worse and v3 equivalent; in `noisy` nothing is known.

    The three changes of `steps` gain little each.
    """
    folder, many = tmp_path_factory.mktemp("results"), {"gender": 1500, "race": 1500}
    studies = [
        Study("known", seeds=5, distances={"v1": 0.0, "v2": 0.3}, seed_sd=0.005, items=many),
        Study("steps", seeds=5, variant_tree=CHAIN, distances=GAINS, seed_sd=0.01, items=many),
        Study("noisy", seeds=5, seed_sd=0.1),
        Study("broken", states={("v1", 0): "failed"}),
        Study("waiting", seeds=5, states=NOT_RUN),
        Study("missing", variants=2, seeds=5, states={("v1", 2): "missing"}),
    ]
    simulate(folder, studies)
    collect(folder)
    return folder


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["known", "v1"], 0, "passed: v1 after v0 is better"),
        (["known", "v1", "--require", "better"], 0, "known: passed (required: better in 1 comparison)"),
        (["known", "v0:v3"], 0, "passed: v3 after v0 is equivalent"),
        (["known", "v3", "--require", "equivalent"], 0, "the 90% interval lies within"),
        (["known", "v3", "--require", "better"], 13, "unmet: v3"),
        (["known", "v1", "--require", "equivalent"], 13, "unmet: v1"),
        (["known"], 10, "worse: v2 after v0 is worse"),
        (["steps", "--require", "better"], 11, "steps: undecided (required: better in each of 3 comparisons)"),
        (["steps", "v3", "--since", "v0", "--require", "better"], 0, "passed: v3 after v0 is confounded"),
        (["known", "v2", "--require", "equivalent"], 10, "known: worse"),
        (["noisy"], 11, "the effect is not significantly above -"),
        (["broken"], 12, "invalid: v1 after v0 is invalid"),
        (["missing"], 12, "invalid: v1 after v0 is not run"),
    ],
)
def test_answers(results, capsys, words, status, said):
    assert said in output(capsys, "gate", *words, "--results", results, status=status)


def test_the_interval_is_the_one_that_agrees_with_the_verdict(results, capsys):
    """Corrected for all comparisons, and of equivalent ones not, as these are judged."""
    rows = json.loads(output(capsys, "verdicts", "known", "--json", "--results", results))["rows"]
    said = output(capsys, "gate", "known", "--results", results, status=10)
    table = output(capsys, "verdicts", "known", "--results", results).splitlines()
    for row in rows:
        ends = ("low", "high") if row["verdict"] == "equivalent" else ("joint_low", "joint_high")
        [line] = [line for line in said.splitlines() if f": {row['child']} after" in line]
        shown = [float(end) for end in line.partition("[")[2].partition("]")[0].split(", ")]
        assert shown == pytest.approx([row[end] for end in ends], abs=1e-3), row["child"]
        assert row["joint_low"] != pytest.approx(row["low"], abs=1e-3)
        assert f"{line.partition('[')[2].partition(']')[0]}]" in _line_of(table, row["child"])


def _line_of(table, child):
    [line] = [line for line in table if line.startswith(f"{child} ")]
    return line


def test_a_line_for_each_verdict_the_clearest_first(results, capsys):
    rows = json.loads(output(capsys, "verdicts", "known", "--json", "--results", results))["rows"]
    order = ["better", "worse", "undecided", "equivalent", "confounded", "invalid", "not run"]
    wanted = sorted(rows, key=lambda row: (order.index(row["verdict"]), 1.0 if row["p"] is None else row["p"]))
    forms = ([], ["--why"], ["--all-columns"])
    brief, why, every = (output(capsys, "verdicts", "known", *words, "--results", results) for words in forms)
    lines = brief.splitlines()[2 : 2 + len(rows)]
    assert [(line.split()[0], line.split()[1]) for line in lines] == [(row["child"], row["parent"]) for row in wanted]
    assert {row["verdict"] for row in rows} == {"better", "worse", "equivalent"}
    assert "p_adjusted: p after" in brief
    for reason in (" ".join(row["reason"].split()) for row in rows):
        assert reason in " ".join(why.split())
        assert len(reason) <= 40 or reason not in " ".join(brief.split())
    assert {"joint_low", "low", "p_sign_flip", "root_effect"} <= set(every.splitlines()[1].split())


def test_verdicts_name_small_gains_that_are_shown_together_after_single_changes(results, capsys):
    said = "v3 is better than v0: +0.038 [+0.009, +0.068], but none of the 3 steps on the path is significant"
    shown = [output(capsys, "verdicts", "steps", *brief, "--results", results) for brief in ((), ("--brief",))]
    whole, brief = (" ".join(text.split()) for text in shown)  # lines end where the terminal does
    assert whole.startswith("steps variant after")
    assert f"steps: {said}" in whole
    assert brief.startswith(f"steps: {said}. 3 changes are undecided")
    [steps] = json.loads(output(capsys, "verdicts", "--json", "--results", results))["joint_steps"]
    assert (steps["study"], steps["ancestor"], steps["child"], steps["steps"]) == ("steps", "v0", "v3", 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["waiting"], "STUDY = 'waiting': has not run; run the grid first"),
        (["knwon"], "did you mean 'known'"),
        (["known", "v9"], "COMPARISON = 'v9': is not a comparison of the study; choose from v0:v1, v0:v2, v0:v3"),
        (["steps", "--since", "v3"], "--since = 'v3': has no descendants; choose from v0, v1, v2"),
        (["steps", "--since", "v9"], "--since = 'v9': is not a variant of steps; choose from v0, v1, v2"),
        ([], "STUDY: is missing; name a study"),
        (["runs/base", "runs/new"], "'runs/base': is a path, not a study; to gate evaluations, run `ablation compare"),
    ],
)
def test_bad_input_is_one_line(results, capsys, words, said):
    assert said in refused(capsys, "gate", *words, "--results", results)


def test_a_comment_has_what_a_reviewer_asks(results, capsys, monkeypatch, tmp_path):
    """Verdict, effect, interval, margin, cost with its price, and three items that changed."""
    (tmp_path / "configs/scales").mkdir(parents=True)
    (tmp_path / "configs/studies/known").mkdir(parents=True)
    (tmp_path / "configs/studies/known/_study.yaml").touch()
    (tmp_path / "configs/scales/demo.yaml").write_text("seeds: 1\n")
    (tmp_path / "configs/config.yaml").write_text("scale: demo\ncost_per_device_hour: 100\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("before\n")
    text = output(capsys, "gate", "known", "v2", "--markdown", "--results", results, status=10)
    assert (tmp_path / "summary.md").read_text() == f"before\n{text}"
    (row,) = [line for line in text.splitlines() if line.startswith("| v0 -> v2 | worse | worse | -0.2")]
    assert row.endswith("| 0.02 | 2 min of device time (3.47) |")  # two stages of 12.5 s, five seeds
    assert len([line for line in text.splitlines() if line.startswith("  - ")]) == 3
    (tmp_path / "configs/config.yaml").write_text("cost_per_device_hour: much\n")
    said = refused(capsys, "gate", "known", "--results", results)
    assert "cost_per_device_hour = 'much': input should be a valid number" in said


@pytest.mark.parametrize(("margin", "said"), [("0.5", "is as wide as the scale"), ("null", "is not stated")])
def test_a_plan_whose_margin_lets_everything_pass_is_refused(tmp_path, capsys, margin, said):
    plan = simulate(tmp_path, [Study("known", variants=2, seeds=5, distances={"v1": 0.4})])
    plan.write_text(plan.read_text().replace('"margin": 0.02', f'"margin": {margin}'))
    collect(tmp_path)
    line = refused(capsys, "gate", "known", "--results", tmp_path)
    assert "known: analysis.margin" in line
    assert said in line
    assert "equivalent" not in output(capsys, "verdicts", "known", "--results", tmp_path) or margin != "null"


def test_validate_names_a_margin_that_may_be_the_whole_scale(tmp_path, capsys, monkeypatch):
    output(capsys, "init", tmp_path / "my")
    monkeypatch.chdir(tmp_path / "my")
    assert "note:" not in output(capsys, "validate")
    [file] = Path().glob("configs/studies/*/_study.yaml")
    file.write_text(re.sub("margin: [0-9.]+", "margin: 1", file.read_text()))
    assert "margin 1 allows any change of a metric between 0 and 1" in output(capsys, "validate")


def _worse(results, **more):
    """v1 was better when the database was made; now it is worse."""
    study = Study("known", variants=2, seeds=5, seed_sd=0.005, items={"gender": 400, "race": 400})
    simulate(results, [replace(study, distances={"v1": 0.0})])
    collect(results)
    return simulate(results, [replace(study, distances={"v1": 0.3}, **more)])


DAMAGE = {
    "no plan": lambda results, plan: plan.write_text(plan.read_text().replace('"analysis":', '"other":')),
    "no history": lambda results, plan: (results / "analysis_history.json").write_text("{"),
    "no status": lambda results, plan: (stage_dir(plan, "known", "v1", 0, "evaluate") / "status.json").unlink(),
    "no folders": lambda results, plan: [shutil.rmtree(stage_dir(plan, "known", "v1", s, "evaluate")) for s in SEEDS],
    "no stages": lambda results, plan: shutil.rmtree(results / "stages"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("asked", [["gate", "known"], ["status", "--failed"], ["check-paper", "paper.tex"]])
def test_nothing_passes_by_an_old_database(tmp_path, capsys, monkeypatch, damage, asked):
    """It said better, and the results behind it have changed."""
    results = tmp_path / "results"
    DAMAGE[damage](results, _worse(results))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper.tex").write_text("\\input{macros}\n\\KnownVoneEditedMeanDistance\n")
    refused(capsys, *asked, "--results", results)
    with pytest.raises(TrackerError):
        ablation.open(results)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("train.py", "0.25, 1", "0.3, 1", "because base, average, slow-average, slow changed; run"),
        ("train.py", "Return the probability", "The probability", "has not run"),
        ("configs/studies/example/slow.yaml", "0.03", "0.05", "has outdated results, because slow changed; run"),
        ("configs/studies/example/slow-average.yaml", "average\n", "slow\naverage: true\n", "slow-average changed;"),
        ("configs/studies/example/_study.yaml", "max, margin: 0.02", "min, margin: 0.02", "the analysis plan changed"),
        ("configs/scales/full.yaml", "seeds: 5", "seeds: 8", "has not run"),  # the seeds that ran are judged
    ],
)
def test_nothing_passes_that_was_edited_since_it_ran(file, old, new, said, *, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output(capsys, "init", ".")
    settings = load_settings()
    settings.results.mkdir()
    (settings.results / PLAN_FILE).write_text(build_plan(settings).content.text())
    assert "has not run; run the grid first" in refused(capsys, "gate", "example")
    edited = tmp_path / file
    edited.write_text(edited.read_text().replace(old, new).replace("lr: 0.03\n" * ("slow-av" in file), ""))
    assert said in refused(capsys, "gate", "example")
    for name in ("tracker.duckdb", ".collect.lock"):
        (settings.results / name).unlink()
    (settings.results / ".collect.lock").mkdir()  # nothing can be written there: collected beside, without a plan file
    assert said in refused(capsys, "gate", "example")


@pytest.mark.parametrize("asked", [["gate", "known"], ["status", "--failed"]])
def test_results_that_cannot_be_written_are_collected_aside(tmp_path, capsys, asked):
    results = tmp_path / "results"
    _worse(results, states={("v1", 4): "failed"} if asked == ["status", "--failed"] else {})
    before = (results / "tracker.duckdb").read_bytes()
    (results / ".collect.lock").unlink()
    (results / ".collect.lock").mkdir()
    _, out, err = typed(capsys, *asked, "--results", results)
    assert ("worse: v1 after v0 is worse" in out) if asked == ["gate", "known"] else ("2 not" in err)
    assert (results / "tracker.duckdb").read_bytes() == before


def test_the_plain_gate_needs_a_stage_that_ran(tmp_path, capsys):
    simulate(tmp_path, [Study(states=NOT_RUN)])
    for path in tmp_path.glob("stages/**/status.json"):
        path.unlink()
    assert "no stage of the plan has run" in refused(capsys, "status", "--failed", "--results", tmp_path)


@pytest.mark.parametrize(("place", "status"), [("/dev/full", 2), (None, 10)])
def test_an_answer_that_cannot_be_written(results, place, status):
    """A full disk is an error; without a standard output at all the exit status answers."""
    command = shlex.join([sys.executable, "-m", "ablation", "gate", "known", "--results", str(results)])
    done = subprocess.run(["sh", "-c", f"{command} >{place or '&-'}"], stderr=subprocess.PIPE, check=False, text=True)
    assert done.returncode == status
    assert done.stderr.split(":")[0] == ("error" if place else "")
    assert done.stderr.count("\n") == (place is not None)
