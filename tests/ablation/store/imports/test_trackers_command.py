"""One command from files of MLflow, wandb and trackio to a verdict: two variants, three seeds."""

import re
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from ablation.cli.main import main
from ablation.judge.verdicts import judge_study
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.store.database import Store
from tests.ablation.readers.stored import SOURCES, make
from tests.ablation.show.elements import unfolded

FORMATS = {
    "mlflow": ("mlflow_stores.py", "study/mlflow.db"),
    "wandb": ("wandb_runs.py", "study"),
    "trackio": ("trackio_projects.py", "study.db"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", FORMATS)
def test_import_in_one_command(kind, source, tmp_path, monkeypatch, capsys):
    script, place = FORMATS[kind]
    for name in ("files", "here"):
        (tmp_path / name).mkdir()
    path = make(kind, script, source, tmp_path / "files") / place
    monkeypatch.chdir(tmp_path / "here")
    command = ["import", kind, str(path), "--study", "lr", "--metric", "acc", "--direction", "max", "--margin", "0.01"]
    assert main(command) == 0
    with Store(Path("results/tracker.duckdb")) as store:
        query = "SELECT variant, seed, step, value FROM curves WHERE study = 'lr' AND metric = 'acc'"
        found = {tuple(row[:3]): row[3] for row in store.rows(query)[1]}
        fast = next(variant for variant in {key[0] for key in found} if variant.endswith("fast"))
        base = next(variant for variant in {key[0] for key in found} if variant.endswith("base"))
        rates = {base: 0.1, fast: 0.2}
        assert found == {
            (variant, seed, step): pytest.approx(step * rate + seed / 100, abs=1e-12)
            for variant, rate in rates.items()
            for seed in range(3)
            for step in range(3)
        }
        [verdict] = judge_study(store, "lr").comparisons
    assert (verdict.child, verdict.parent) == (fast, base)
    assert np.isclose(verdict.effect, 0.2)
    capsys.readouterr()
    assert main(command) == 0
    assert "0 new, 0 changed" in capsys.readouterr().out
    assert main([*command, "--map", "url=https://tracker.test/lr/runs/{id}"]) == 0
    with Store(Path("results/tracker.duckdb")) as store:
        ids = {row[0] for row in store.rows("SELECT json_extract_string(data, '$.imported.run') FROM provenance")[1]}
        html = unfolded(draw(read_page(store)))
    linked = set(re.findall(r'href="https://tracker.test/lr/runs/([^"]*)"', html))
    assert linked == {quote(each, safe="/") for each in ids if each}
    assert len(linked) == 6
    assert main([*command, "--map", "url=tracker.test/lr"]) == 2
    assert "must begin with https:// or http:// and contain {id}" in capsys.readouterr().err
