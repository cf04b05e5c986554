"""Evaluation files as items of imported runs, on what the real lm-eval wrote."""

import json
import tarfile
from pathlib import Path

import pytest

from ablation.cli.main import main
from tests.ablation.store.imports.test_importing import asked, comparisons_of, trainer_run
from tests.ablation.typed import output, refused

FILES = Path(__file__).parents[2] / "readers/fixtures/lm_eval.tar.gz"
DECIDED = ["--direction", "max", "--margin", "0.01"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tarfile.open(FILES) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "runs"


def test_imported_samples_have_the_verdict_that_compare_gives(runs, capsys):
    words = ["compare", str(runs / "base"), "--with", str(runs / "new"), "--tasks", "openbook"]
    [compared] = json.loads(output(capsys, *words, "--allow", "prompt", "--json"))["rows"]
    words = ["import", "evaluation", str(runs), "--study", "prompts", "--items", "evaluation/openbook/acc", *DECIDED]
    line = refused(capsys, *words)
    assert "the prompts of openbook differ between new/" in line
    assert line.endswith("or pass --map allow=prompt if you are testing the prompt")
    assert not Path("results/imported/prompts").exists()
    assert "note: the prompts of openbook differ between new/" in output(capsys, *words, "--map", "allow=prompt")
    [comparison] = comparisons_of("prompts")
    assert (comparison.parent.partition("-")[0], comparison.child.partition("-")[0]) == ("base", "new")
    assert comparison.seeds == compared["seeds"] == 3
    assert (comparison.effect, comparison.low, comparison.high) == pytest.approx(
        (compared["effect"], compared["low"], compared["high"]), rel=1e-6
    )


def test_a_task_that_was_evaluated_again_counts_once_and_is_named_once(runs, capsys):
    older = next((runs / "base/seed0").rglob("samples_openbook_*.jsonl"))
    rows = [json.loads(line) | {"acc": 1.0} for line in older.read_text().splitlines()]
    newer = older.with_name("samples_openbook_2099-01-01T00-00-00.jsonl")
    newer.write_text("".join(json.dumps(row) + "\n" for row in rows))
    older.write_text(older.read_text()[:-40])  # it is not read
    words = ["--study", "s", "--items", "evaluation/openbook/acc", *DECIDED]
    out = output(capsys, "import", "evaluation", runs / "base", *words)
    assert out.count(f"is left out, because {newer.name} holds newer samples of openbook") == 1
    query = "SELECT value FROM results WHERE metric = 'evaluation/openbook/acc' AND seed = 0"
    assert asked(query) == [(1.0,)]


def test_a_table_of_items_joins_the_log_of_its_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for variant, better in (("base", 0), ("new", 1)):
        for seed in range(3):
            place = tmp_path / f"runs/{variant}/seed_{seed}"
            trainer_run(place, [{"step": step, "loss": 1 / step} for step in (1, 2)])
            lines = [f"q{i},{int(i % 3 == 0 or (better and i % 2))}" for i in range(30)]
            (place / "items.csv").write_text("\n".join(["item,value", *lines]))
    assert main(["import", "trainer_state", "runs", "--study", "s", "--metric", "loss", *DECIDED]) == 0
    again = ["import", "evaluation", "runs", "--study", "s", "--items", "evaluation/all/value"]
    assert main([*again, "--map", "variant=name:^([a-z]+)/"]) == 0
    [comparison] = comparisons_of("s")
    assert (comparison.child, comparison.seeds, comparison.items) == ("new", 3, 30)
    assert comparison.effect == pytest.approx(10 / 30)
    stages = asked("SELECT stage, count(*) FROM run_stages GROUP BY ALL ORDER BY ALL")
    assert stages == [("evaluation", 6), ("outcome", 12), ("trainer_state", 6)]


def test_runs_of_two_imports_that_were_asked_otherwise_are_no_pairs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for variant in ("base", "same", "other"):
        rows = [f"q{i},{i % 2},{'Think: ' * (variant == 'other')}question {i}" for i in range(9)]
        (tmp_path / f"{variant}.csv").write_text("\n".join(["item,value,prompt", *rows]))
    words = ["--study", "s", "--map", "variant=name:(.+)"]
    words += ["--items", "evaluation/all/value", *DECIDED]
    assert main(["import", "evaluation", "base.csv", *words]) == 0
    assert main(["import", "evaluation", "same.csv", *words]) == 0
    before = {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}
    assert "the prompts of all differ between" in refused(capsys, "import", "evaluation", "other.csv", *words)
    assert {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()} == before
    assert main(["import", "evaluation", "other.csv", *words, "--map", "allow=prompt"]) == 0
    assert not any(
        comparison.measurements.design.paired for comparison in comparisons_of("s")
    )  # because no run has a known seed
