"""From files of other programs to verdicts: what is written, when nothing is, and what a second import adds."""

import hashlib
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablation.cli.main import main
from ablation.config import dotted
from ablation.config.import_file import ImportFile
from ablation.judge.verdicts import judge_study
from ablation.store.collect import collect
from ablation.store.database import Store
from ablation.store.imports import importing
from ablation.store.imports.grouping import other_ranks
from ablation.store.imports.stored import Record
from tests.ablation import typed
from tests.repository import ROOT
from tests.simulate import Study, simulate

WRITTEN = Path(__file__).parents[2] / "readers/written"
EVAL = ["--metric", "eval_loss", "--direction", "min", "--margin", "0.01"]
REWARD = ["--metric", "reward", "--direction", "max", "--margin", "1"]
HF = ["trainer_state", str(WRITTEN / "trainer"), "--study", "lr", "--map", "ignore=max_steps"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """A folder without configurations: the command needs no project."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def run(*arguments):
    return main(["import", *map(str, arguments)])


def content(folder=Path("results/imported")):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def refused(capsys, *arguments):
    """Return the one line of an error; nothing was written."""
    before = content()
    line = typed.refused(capsys, "import", *arguments)
    assert content() == before
    return line


def course(study, variant, seed, metric):
    with Store(Path("results/tracker.duckdb")) as store:
        of = "study = ? AND variant = ? AND seed = ? AND metric = ?"
        query = f"SELECT step, value FROM curves WHERE {of} ORDER BY step"
        return store.rows(query, [study, variant, seed, metric])[1]


def asked(query):
    with Store(Path("results/tracker.duckdb")) as store:
        return store.rows(query)[1]


def comparisons_of(study):
    with Store(Path("results/tracker.duckdb")) as store:
        return judge_study(store, study).comparisons


def test_a_dry_run_shows_the_variants_and_writes_nothing(capsys):
    out = typed.output(capsys, "import", *HF, "--dry-run")
    assert "lr: 4 runs of 2 variants (4 new, 0 changed)" in out
    assert "learning_rate: 0.05 -> 0.2" in out
    assert "runs end at different steps: most end at step 4, but fast seed 1 at 6" in out
    assert "metric, direction and margin are missing; pass --metric NAME" in out
    assert "nothing was written; correct mistakes" in out
    out = typed.output(capsys, "import", *HF, "--metric", "eval_loss", "--direction", "min", "--dry-run")
    assert "margin is missing; pass --margin M (the smallest difference that matters)" in out
    assert list(Path().iterdir()) == []


def test_a_refused_import_leaves_nothing_behind(capsys):
    assert run(*HF) == 2
    assert list(Path().iterdir()) == []
    Path("results").mkdir()
    assert run(*HF) == 2
    assert list(Path().rglob("*")) == [Path("results")]
    assert run(*HF, *EVAL) == 0
    capsys.readouterr()
    refused(capsys, *HF, "--metric", "eval_los")
    assert Path("results/imported/lr/study.json").exists()


def test_importing_twice_changes_no_byte():
    assert run(*HF, *EVAL) == 0
    before = content()
    assert len([name for name in before if name.endswith("run.json")]) == 4
    assert run(*HF, *EVAL) == 0
    assert content() == before
    assert run(*HF) == 0  # the analysis plan is known
    assert content() == before


def test_a_verdict_on_a_final_metric_is_a_paired_t_test_over_seeds(tmp_path, capsys):
    generator = np.random.default_rng(5)
    values = {"base": generator.normal(0.5, 0.02, 5), "new": generator.normal(0.6, 0.02, 5)}
    for variant, finals in values.items():
        for seed, value in enumerate(finals.tolist()):
            rows = [{"step": 1, "eval_acc": 0.1}, {"step": 2, "eval_acc": value}]
            trainer_run(tmp_path / f"runs/{variant}/seed_{seed}", rows)
    options = ["--metric", "eval_acc", "--direction", "max", "--margin", "0.01"]
    assert run("trainer_state", tmp_path / "runs", "--study", "acc", *options) == 0
    [comparison] = comparisons_of("acc")
    test = stats.ttest_rel(values["new"], values["base"])
    interval = test.confidence_interval(0.95)
    assert (comparison.parent, comparison.child, comparison.verdict, comparison.items) == ("base", "new", "better", 1)
    assert comparison.effect == pytest.approx(np.mean(values["new"] - values["base"]))
    assert comparison.p == pytest.approx(test.pvalue, rel=1e-9)
    assert (comparison.low, comparison.high) == pytest.approx(tuple(interval), rel=0.02)
    assert comparison.noise.item_variance == 0
    assert (
        "these are final metrics without items, so the interval does not include evaluation noise" in comparison.reason
    )
    assert "the runs were imported and have no code fingerprint" in comparison.reason


def trainer_run(folder, rows, **state):
    """Write what the Trainer logged: `rows` with a step each; `state`: more of `trainer_state.json`."""
    folder.mkdir(parents=True)
    last = max(row["step"] for row in rows)
    history = {"global_step": last, "max_steps": last, "log_history": rows} | state
    (folder / "trainer_state.json").write_text(json.dumps(history))


def final_values(metric):
    query = f"SELECT variant, seed, value FROM results WHERE metric = '{metric}' ORDER BY ALL"
    return {(variant, seed): value for variant, seed, value in asked(query)}


def test_one_step_of_all_runs(capsys):
    run(*HF, *EVAL)
    last = final_values("eval_loss")
    at_4 = dict(course("lr", "fast", 1, "eval_loss"))[4]
    out = typed.output(capsys, "import", *HF, "--at", "common")
    assert "(trainer_state at step 6, judged at 4)" in out
    assert "note: final metrics are taken at step 4; pass --at last for the last step" in out
    assert final_values("eval_loss") == last | {("fast", 1): at_4}
    [comparison] = comparisons_of("lr")
    assert "different steps" not in comparison.reason
    assert "different steps" not in typed.output(capsys, "gate", "lr")
    run(*HF, "--step", "4")
    assert final_values("eval_loss") == last | {("fast", 1): at_4}
    run(*HF, "--at", "last")
    assert final_values("eval_loss") == last
    # Runs that are not read again follow, too.
    run(*HF[:1], WRITTEN / "trainer/base", *HF[2:], "--at", "checkpoint-2")
    assert final_values("eval_loss")["fast", 1] == dict(course("lr", "fast", 1, "eval_loss"))[2]
    error = refused(capsys, *HF, "--at", "5")
    assert "--at = 5: base/seed_0" in error
    assert "logged eval_loss from step 2 and ended at step 4; pass --at common for the last step" in error
    assert "is not a step; write last, best, common or a number" in refused(capsys, *HF, "--at", "end")


CURVE = {100: 0.9, 200: 0.6, 300: 0.5, 400: 0.7}


def stopped_early(place, curve, settings, state):
    """Write a run of the Trainer whose best evaluation is not its last; `test_loss` is of the model at the end."""
    rows = [
        row for step, loss in curve.items() for row in ({"step": step, "loss": 1.0}, {"step": step, "eval_loss": loss})
    ]
    rows += [{"step": max(curve), "train_runtime": 9.0}, {"step": max(curve), "test_loss": 0.1}]
    trainer_run(place, rows, max_steps=1000, **state)
    if settings is not None:
        (place / "training_args.json").write_text(json.dumps(settings))


BEST = {"best_metric": 0.5, "best_global_step": 300, "best_model_checkpoint": "out/checkpoint-300"}
KEPT = "at the step of the kept model, 300; pass --at last for the last step"
LOADED = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "greater_is_better": False}


@pytest.mark.parametrize(
    ("settings", "state", "options", "step", "said"),
    [
        (LOADED, BEST, [], 300, KEPT),
        (LOADED, {}, [], 300, KEPT),  # of another version: from the evaluations
        (LOADED | {"save_strategy": "steps", "save_steps": 200}, {}, [], 200, "at the step of the kept model, 200"),
        (None, BEST, [], 300, "but no settings state whether its model was kept; for the last step pass"),
        ({"load_best_model_at_end": False, "save_strategy": "best"}, BEST, [], 300, KEPT),
        ({"load_best_model_at_end": False, "metric_for_best_model": "loss"}, BEST, [], 400, None),
        ({"save_best": True, "monitor": "eval_loss", "mode": "min"}, {}, [], 300, KEPT),
        ({"save_best": True}, {}, [], 400, "with these settings (save_best), the run may have kept an earlier model"),
        ({"early_stopping_patience": 2}, {}, [], 400, "for another step, pass --at best or --at STEP"),
        ({"early_stopping_patience": 2}, {}, ["--at", "best"], 300, "final metrics are taken at step 300; pass"),
        (LOADED, BEST, ["--at", "last"], 400, None),
        (LOADED, BEST, ["--at", "250"], 200, "final metrics are taken at step 200; pass"),  # the last one up to there
    ],
)
def test_the_model_that_was_kept_is_judged(settings, state, options, step, said, *, tmp_path, capsys):
    for seed in (0, 1):
        stopped_early(tmp_path / f"runs/base/seed_{seed}", CURVE, settings, state)
    arguments = ["trainer_state", tmp_path / "runs", "--study", "es", *EVAL, *options]
    out = typed.output(capsys, "import", *arguments)
    assert ("note:" in out) == (said is not None)
    assert said is None or said in out
    assert set(final_values("eval_loss").values()) == {CURVE[step]}
    assert set(final_values("test_loss").values()) == {0.1}


def test_runs_that_kept_models_of_different_steps_say_which(tmp_path, capsys):
    for variant, seed, best in (("a", 0, 200), ("a", 1, 300), ("b", 0, 300), ("b", 1, 400)):
        curve = CURVE | {best: 0.1 + seed / 10}
        settings = LOADED | {"learning_rate": 0.1 + (variant == "b")}
        stopped_early(tmp_path / f"runs/{variant}/seed_{seed}", curve, settings, {})
    out = typed.output(capsys, "import", "trainer_state", tmp_path / "runs", "--study", "es", *EVAL)
    assert "at the steps of kept models (a seed 0 at 200, a seed 1 at 300, b seed 0 at 300); pass --at last" in out
    [comparison] = comparisons_of("es")
    assert (
        "the values are those of the models that were kept: a at steps 200 to 300, b at steps 300 to 400"
        in comparison.reason
    )


def test_every_table_verdict_and_page_says_so(capsys):
    run(*HF, *EVAL)
    assert asked("SELECT DISTINCT state FROM runs") == asked("SELECT DISTINCT state FROM stages") == [("imported",)]
    assert asked("SELECT count(*) FROM finals") == [(4,)]
    for command in ("verdicts", "tables", "report"):
        assert main([command]) == 0
    assert "the runs were imported and have no code fingerprint" in " ".join(capsys.readouterr().out.split())
    said = "have no code fingerprint. We only have the logs to show that nothing else changed"
    assert all(said in Path(f"reports/lr/table.{kind}").read_text() for kind in ("md", "tex", "html"))
    text = Path("reports/lr/methods.md").read_text()
    assert said in text
    assert (
        "imported with 2 seeds, the same for all, and evaluated by the metrics that it logged (no item scores)." in text
    )
    assert "4 of 4 runs succeeded." in text
    assert "trained" not in text
    assert "P-values were adjusted" not in text  # there is one comparison
    assert "Imported." in Path("reports/lr/subsets.tex").read_text()
    assert ",imported," in Path("reports/lr/table.csv").read_text()
    assert ",imported," in Path("reports/lr/runs.csv").read_text()
    capsys.readouterr()
    assert typed.output(capsys, "diff", "base", "fast").startswith(
        "learning_rate: 0.05 -> 0.2\nresults of imported runs: "
    )
    assert "base and slow: no study in the results has both" in typed.refused(capsys, "diff", "base", "slow")
    assert "\n  fast\n      learning_rate: 0.05 -> 0.2\n" in typed.output(capsys, "variants", "lr")
    assert "\nlearning_rate: 0.2\n" in typed.output(capsys, "show", "lr/fast")
    assert main(["variants", "rl"]) == main(["show", "lr/slow"]) == 2
    errors = capsys.readouterr().err
    assert "'rl': is not in the database" in errors
    assert "'slow': is not a variant of this study; choose from base, fast" in errors
    page = Path("reports/index.html").read_text()
    assert said in page
    assert "of device time" not in page
    assert "<strong>Scale" not in page
    assert "Scale" not in Path("reports/lr/subsets.tex").read_text()
    assert "Runs end at different steps: most end at step 4, but fast seed 1 at 6; pass --at common" in page
    assert "the final logged value of eval_loss (no item scores); smaller is better" in page
    assert "All numbers come from files of runs and evaluations" in page
    apart = "runs end at different steps: base at step 4, fast at steps 4 to 6; if all logged a common step, "
    apart += "import all with --at common"
    assert apart in " ".join(typed.output(capsys, "verdicts").split())
    assert f"\nnote: {apart}" in typed.output(capsys, "gate", "lr")
    assert f"\n{apart}" in typed.output(capsys, "gate", "lr", "--markdown")
    assert "`ablation gate STUDY` for imported runs" in typed.refused(capsys, "status", "--failed")
    assert "was imported, so `add-seeds` cannot run more seeds; run more seeds" in typed.refused(
        capsys, "add-seeds", "lr", "--budget", "1"
    )


def test_in_a_project_of_other_studies_the_results_answer_for_an_imported_one(capsys):
    assert main(["init", "."]) == 0
    run(*HF, *EVAL)
    run(*HF, "--study", "again", *EVAL)
    capsys.readouterr()
    for command in (["variants", "lr"], ["show", "lr/fast"], ["variants", "example"]):
        assert main(command) == 0
    assert "'rl': the study does not exist" in typed.refused(capsys, "variants", "rl")
    assert "base and fast: are in 2 studies; name the study: again/base, lr/base" in typed.refused(
        capsys, "diff", "base", "fast"
    )


def test_a_resumed_run_adds_to_what_a_truncated_log_lost(tmp_path):
    place = tmp_path / "logs"
    shutil.copytree(WRITTEN / "verl/grpo", place / "grpo")
    shutil.copytree(WRITTEN / "verl/gspo", place / "gspo")
    options = ["--items", "validation/step 6/acc", "--direction", "max", "--margin", "0.05"]
    assert run("verl", place, "--study", "po", *options) == 0
    before = content()
    old = course("po", "grpo", 0, "critic/score/mean")
    assert [step for step, _ in old] == [1, 2, 3, 4, 5, 6]
    shutil.copytree(WRITTEN / "verl/resumed", place / "grpo", dirs_exist_ok=True)  # holds the steps from 5 on
    assert run("verl", place, "--study", "po") == 0
    new = course("po", "grpo", 0, "critic/score/mean")
    log = [json.loads(line) for line in (WRITTEN / "verl/resumed/seed_0.jsonl").read_text().splitlines()]
    assert new == [*old[:4], *((line["step"], line["data"]["critic/score/mean"]) for line in log)]
    assert [step for step, _ in new] == [1, 2, 3, 4, 5, 6, 7, 8]
    query = """SELECT DISTINCT subset FROM finals JOIN items USING (key)
               WHERE variant = 'grpo' AND seed = 0 AND protocol = 'validation' ORDER BY 1"""
    assert asked(query) == [("step 6",), ("step 8",)]
    [comparison] = comparisons_of("po")
    assert comparison.items == 8
    unchanged = [name for name in before if name in content()]
    assert len([name for name in unchanged if name.endswith("run.json")]) == 3


def test_another_run_in_the_folder_of_an_earlier_one_replaces_it(tmp_path, capsys):
    place = tmp_path / "runs"
    shutil.copytree(WRITTEN / "trainer", place, ignore=shutil.ignore_patterns("checkpoint-*", "runs"))
    options = ["trainer_state", place, "--study", "lr", "--map", "ignore=max_steps"]
    assert run(*options, *EVAL) == 0
    old = course("lr", "fast", 1, "eval_loss")
    log, settings = (place / "fast/seed_1" / name for name in ("trainer_state.json", "training_args.json"))
    state = json.loads(log.read_text())
    state["log_history"] = [entry for entry in state["log_history"] if entry["step"] <= 2]
    log.write_text(json.dumps(state))
    assert run(*options) == 0
    assert course("lr", "fast", 1, "eval_loss") == old  # the same settings: a log that was cut short
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"learning_rate": 0.5}))
    capsys.readouterr()
    assert run(*options, "--map", "variant=name:^(.*)/") == 0
    assert "replaces a different run from an earlier import (learning_rate changed)" in capsys.readouterr().out
    assert course("lr", "fast", 1, "eval_loss") == [entry for entry in old if entry[0] <= 2]


def test_items_with_repeats_are_paired_by_question_and_cluster():
    options = ["--items", "validation/step 6/acc", "--direction", "max", "--margin", "0.05"]
    assert run("verl", WRITTEN / "verl/grpo", WRITTEN / "verl/gspo", "--study", "po", *options) == 0
    [comparison] = comparisons_of("po")
    assert asked("SELECT DISTINCT item FROM items WHERE protocol = 'logged' AND item <> 'final'") == []

    def mean(name):
        files = [WRITTEN / f"verl/{name}/seed_{seed}/validation/6.jsonl" for seed in (0, 1)]
        return np.mean([np.mean([json.loads(line)["acc"] for line in file.read_text().splitlines()]) for file in files])

    assert comparison.effect == pytest.approx(mean(comparison.child) - mean(comparison.parent))
    assert {comparison.child, comparison.parent} == {"grpo", "gspo"}
    assert (comparison.items, comparison.seeds) == (8, 2)


def test_a_project_keeps_its_own_studies_and_the_imports_survive_a_rebuild(tmp_path, capsys):
    results = tmp_path / "results"
    simulate(results, [Study("toy", variants=2)])
    assert run(*HF, *EVAL, "--results", results) == 0
    database = results / "tracker.duckdb"
    database.unlink()
    collect(results)
    with Store(database) as store:
        assert store.studies() == ["toy", "lr"]
        assert dict(store.rows("SELECT study, any_value(state) FROM runs GROUP BY study")[1]) == {
            "toy": "ok",
            "lr": "imported",
        }
        assert store.meta()["scale"] == "simulated"
        assert [comparison.verdict for comparison in judge_study(store, "toy").comparisons] != []
    assert main(["status", "--failed", "--results", str(results)]) == 0
    assert main(["report", "--results", str(results), "--reports", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text()
    assert "<strong>Scale: simulated.</strong>" in page
    assert "imported from runs made elsewhere and have no scale: lr." in page


def test_a_metric_that_is_mapped_replaces_the_one_of_its_name(capsys):
    """What a run logged as both would else be mixed, step by step."""
    assert run(*HF, "--map", "metrics.loss=eval_loss", "--metric", "loss", *EVAL[2:]) == 0
    assert "metrics that --map replaces are left out: loss" in capsys.readouterr().out
    with Store(Path("results/tracker.duckdb")) as store:
        assert store.rows("SELECT count(*) FROM metrics WHERE name = 'eval_loss'")[1] == [(0,)]
    mapped = course("lr", "fast", 1, "loss")
    assert run(*HF[:2], "--study", "plain", *HF[4:], *EVAL) == 0
    assert mapped == course("plain", "fast", 1, "eval_loss")


def test_a_damaged_import_costs_its_run_and_importing_again_mends_it(capsys):
    run(*HF, *EVAL)
    before = content()
    [first, *_] = sorted(Path("results/imported/lr").glob("*/log/metrics.parquet"))
    flipped = bytearray(first.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    first.write_bytes(flipped)
    collect(Path("results"))
    assert asked("SELECT state FROM runs ORDER BY state") == [("corrupt",), *[("imported",)] * 3]
    assert run(*HF, *EVAL) == 0
    assert "the stored copy of" in capsys.readouterr().out
    assert content() == before


def test_a_broken_manifest_costs_no_other_study(tmp_path):
    run(*HF, *EVAL)
    run("trainer_state", WRITTEN / "trl", "--study", "other", *REWARD)
    Path("results/imported/lr/study.json").write_text("{")
    done = collect(Path("results"))
    with Store(done.database) as store:
        assert store.studies() == ["other"]
    assert len(done.problems) == 1
    assert "imported/lr/study.json" in done.problems[0]
    Path("results/imported/other/study.json").write_text("{")
    assert [len(collect(Path("results")).problems) for _ in range(2)] == [2, 2]  # not the first time alone


def test_an_import_that_is_killed_has_imported_nothing(monkeypatch):
    run(*HF, *EVAL)
    before = content()

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(importing, "update_text", killed)
    with pytest.raises(KeyboardInterrupt):
        run("trainer_state", WRITTEN / "trl", "--study", "lr")
    assert content() == before
    with pytest.raises(KeyboardInterrupt):
        run("trainer_state", WRITTEN / "trl", "--study", "new", *REWARD)
    assert not Path("results/imported/new").exists()


STUDY_YAML = """
name: rates
title: Learning rates
question: Does a larger rate help?
analysis: {metric: eval_loss, direction: min, margin: 0.01}
variants:
  slow: {parent: null, why: the default, where: {learning_rate: 0.05}}
  quick: {parent: slow, why: four times as much, runs: ["fast/*"]}
runs: {ignore: [max_steps]}
"""


def test_a_study_file_names_variants_parents_and_reasons(tmp_path, capsys):
    file = tmp_path / "my study.yaml"
    file.write_text(STUDY_YAML)
    assert run("trainer_state", WRITTEN / "trainer", "--study", file) == 0
    with Store(Path("results/tracker.duckdb")) as store:
        [comparison] = judge_study(store, "rates").comparisons
        assert (comparison.parent, comparison.child, comparison.factors) == ("slow", "quick", ("learning_rate",))
        assert [variant.why for variant in store.variants("rates")] == ["the default", "four times as much"]
        assert store.study("rates").title == "Learning rates"
    file.write_text(STUDY_YAML.replace('["fast/*"]', '["quick/*"]'))
    assert "run fast/seed_0 matches no variant" in refused(
        capsys, "trainer_state", WRITTEN / "trainer", "--study", file
    )
    file.write_text(STUDY_YAML.replace("margin", "margins"))
    line = refused(capsys, "trainer_state", WRITTEN / "trainer", "--study", file)
    assert "my study.yaml: analysis" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trainer_stat", "x", "--study", "s"], "'trainer_stat': is not a known format; did you mean 'trainer_state'?"),
        (["verl", "nowhere it's", "--study", "s"], "nowhere it's: the file or folder does not exist"),
        ([*HF, "--metric", "eval_los", *EVAL[2:]], "no run has logged the metric; did you mean 'eval_loss'?"),
        ([*HF, "--items", "a/b/c", *EVAL[2:]], "no run has these items"),
        ([*HF, *EVAL[:2], "--direction", "up", "--margin", "1"], "--direction = 'up': is not a valid direction"),
        ([*HF, *EVAL[:4], "--margin", "-1"], "analysis.margin = -1.0"),
        ([*HF, "--map", "sed=x"], "is not KEY=VALUE with a known key; did you mean 'seed'?"),
        ([*HF, "--map", "seed=nothing"], "other run of the variant have no known seed"),
        ([*HF, "--map", "parents.fast=bas"], "no run belongs to variant bas; did you mean 'base'?"),
        ([*HF, "--map", "variant=per_device_train_batch_size"], "are both seed 0 of the same variant"),
        ([*HF[:3], "a/b"], "is not a valid study name"),
    ],
)
def test_bad_input_is_one_line(arguments, words, capsys):
    assert words in refused(capsys, *arguments)


def test_a_study_of_the_plan_cannot_be_imported_into(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "is a planned study, which imported runs cannot join; choose another name" in typed.refused(
        capsys, "import", *HF[:2], "--study", "debias", "--results", tmp_path
    )


def test_items_that_make_no_sense_are_refused_and_nothing_is_half_imported(tmp_path, capsys):
    place = tmp_path / "it's a log"
    shutil.copytree(WRITTEN / "verl/grpo", place)
    samples = place / "seed_1/validation/6.jsonl"
    lines = samples.read_text().splitlines()
    row = json.loads(lines[0])
    samples.write_text("\n".join([json.dumps(row | {"acc": float("nan")}), *lines[1:]]))
    options = ["--metric", "critic/score/mean", "--direction", "max", "--margin", "0.05"]
    line = refused(capsys, "verl", place, "--study", "po", *options)
    assert "seed_1" in line
    assert "is not a finite number (1 such row)" in line
    assert not Path("results/imported/po").exists()


def preempted(place, second, *, seed=0):
    """Two runs of MLflow with the same settings and the same name, the second from step `second` on."""
    for number, steps in enumerate((range(1, 11), range(second, second + 10))):
        folder = place / f"mlruns/1/{number}{seed}{'a' * 30}"
        for name, text in (("params/lr", "0.1"), ("params/seed", str(seed)), ("tags/mlflow.runName", "base")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        (folder / "metrics").mkdir()
        (folder / "metrics/acc").write_text(
            "".join(f"{step} {number + step / 100 + seed / 7} {step}\n" for step in steps)
        )
        times = f"start_time: {1000 + number}\nstatus: {'3' if number else '5'}\n"
        (folder / "meta.yaml").write_text(f"run_id: {folder.name}\nlifecycle_stage: active\n{times}")


ACC = ["--metric", "acc", "--direction", "max", "--margin", "0.01"]


@pytest.mark.parametrize("second", [11, 6])
def test_a_run_with_another_id_after_a_preemption_goes_on(second, tmp_path, capsys):
    for seed in (0, 1):
        preempted(tmp_path, second, seed=seed)
    arguments = ["import", "mlflow", tmp_path / "mlruns", "--study", "s", *ACC]
    out = typed.output(capsys, *arguments, "--dry-run")
    assert "s: 2 runs of 1 variant" in out
    assert "base continues base with the same settings, so the two are imported as one run" in out
    assert f"seed 0: base (mlflow at step {second + 9})" in out
    assert "s: 2 runs of 1 variant (2 new, 0 changed)" in typed.output(capsys, *arguments)
    before = content()
    for seed in (0, 1):
        values = {step: (step >= second) + step / 100 + seed / 7 for step in range(1, second + 10)}
        assert dict(course("s", "base", seed, "acc")) == pytest.approx(values)
    assert "s: 2 runs of 1 variant (0 new, 0 changed)" in typed.output(capsys, *arguments)
    assert content() == before


def test_percent_beside_shares_is_named(capsys):
    """That it passes no gate: tests/chaos/test_families.py."""
    values = {"base": 0.8, "new": 80}  # independent, as no column names seeds
    rows = [
        f"{name},{'base' * (name == 'new')},{at},{value + at**2 / 1000}"
        for name, value in values.items()
        for at in range(6)
    ]
    Path("runs.csv").write_text("\n".join(["variant,parent,attempt,acc", *rows]) + "\n")
    assert run("table", "runs.csv", "--study", "s", *ACC) == 0
    capsys.readouterr()
    assert "so they may mix shares with percentages or ratings" in typed.output(capsys, "gate", "s", status=12)


@pytest.mark.parametrize(("second", "count"), [(11, 1), (2, 2)])
def test_runs_that_go_on_are_one_where_no_seed_is_known(second, count, tmp_path, capsys):
    """As Lightning's version_0 and version_1; a run that begins a step later is another seed."""
    preempted(tmp_path, second)
    for file in tmp_path.rglob("params/seed"):
        file.unlink()
    arguments = ["mlflow", tmp_path / "mlruns", "--study", "s", *ACC]
    out = typed.output(capsys, "import", *arguments, "--dry-run")
    assert "no run has a known seed, so the runs are numbered by start time and judged as independent" in out
    assert f"s: {count} run{'s' * (count > 1)} of 1 variant" in out


def test_two_runs_of_one_seed_are_refused_with_an_option_that_helps(tmp_path, capsys):
    preempted(tmp_path, 1)  # from the first step again: no continuation
    arguments = ["mlflow", tmp_path / "mlruns", "--study", "s", *ACC]
    error = refused(capsys, *arguments)
    assert "are both seed 0 of the same variant, and nothing else distinguishes them" in error
    option = re.search(r"--map '(leave_out=.*?)'", error)[1]
    assert run(*arguments, "--map", option) == 0
    assert asked("SELECT count(*) FROM curves WHERE metric = 'acc'") == [(10,)]


def ranks(name, count, **more):
    """Runs of W&B, an export each, that every rank of a job logged."""
    rows = [{"name": f"{name}-s{s}-rank{r}", "config": {"local_rank": r, **more}} for s in range(2) for r in count]
    return [row | {"summary": {"acc": place / 10}} for place, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "variants"),
    [
        ([*ranks("base", range(3), lr=1), *ranks("fast", range(3), lr=2)], {"base-rank0": 2, "fast-rank0": 2}),
        ([*ranks("lora", (0, 8)), *ranks("lora", (16,))], {"lora-rank0": 2, "lora-rank8": 2, "lora-rank16": 2}),
    ],
)
def test_of_a_run_for_each_rank_rank_0_counts(rows, variants, tmp_path, capsys):
    path = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    found = ["import", "wandb", str(path), "--study", "ddp", "--metric", "acc", "--direction", "max", "--margin", 1]
    said = typed.output(capsys, *found)
    judged = json.loads(Path("results/imported/ddp/study.json").read_text())["runs"]
    assert Counter(run["variant"] for run in judged) == variants
    assert ("left out: base-s0-rank1, base-s0-rank2, base-s1-rank1" in said) == ("base-rank0" in variants)
    assert typed.output(capsys, *found).endswith("0 new, 0 changed\nnext: ablation verdicts ddp\n")


@pytest.mark.parametrize(
    ("name", "config", "others"),
    [
        ("ddp-rank{rank}", {}, [1, 2, 4, 5]),
        ("swift-{place}", {"rank": None}, [1, 2, 4, 5]),  # a name for each process, as W&B makes them
        ("swift-{place}", {"dist.rank": None, "local_rank": 0}, [1, 2, 4, 5]),
        ("swift-{place}", {"lora.rank": None}, []),
        ("swift-{place}", {"rank": 8}, []),
    ],
)
def test_rank_0_counts_of_every_seed(name, config, others):
    facts = {"format": "wandb", "source": "s", "seed": None, "state": "finished", "started": None, "last_step": 1}
    places = [(seed, rank) for seed in range(2) for rank in range(3)]
    runs = [
        Record(
            id=str(place),
            name=name.format(rank=rank, place=place),
            config=dotted.nested({k: rank if v is None else v for k, v in config.items()}) | {"seed": seed},
            **facts,
        )
        for place, (seed, rank) in enumerate(places)
    ]
    assert sorted(other_ranks(runs, ImportFile())) == others
