"""The smoke grid, end to end: real trainers on tiny models, every configured study."""

import math
import subprocess
import sys

import pandas as pd
import pytest

from ablation.store.database import Store
from tests.documented_metrics import differences
from tests.repository import ROOT
from tests.workflow.smoke import chosen_variants, one_argument

pytestmark = pytest.mark.slow


CHOSEN = chosen_variants()
STUDIES = list(CHOSEN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("smoke")


def snakemake(folder, *words):
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--resources", "gpu=2", *words]
    command += ["--config", "scale=smoke", f"results={folder / 'results'}", f"reports={folder / 'reports'}"]
    command += [one_argument(CHOSEN)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False)


@pytest.fixture(scope="module")
def grid(folder):
    done = snakemake(folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("study", STUDIES)
def test_every_variant_is_in_the_table_with_numbers(grid, study):
    table = pd.read_csv(grid / "reports" / study / "runs.csv")
    chosen = table[table["variant"].isin(CHOSEN[study])]
    assert set(chosen["variant"]) == set(CHOSEN[study])
    assert chosen["value"].map(math.isfinite).all()
    with Store(grid / "results" / "tracker.duckdb") as store:
        runs = store.sql("SELECT variant, state FROM runs WHERE study = ?", [study])
    assert set(runs[runs["variant"].isin(CHOSEN[study])]["state"]) == {"ok"}


@pytest.mark.parametrize("study", STUDIES)
def test_final_metrics_are_those_of_the_items(grid, study):
    """What the trainer reports is what DuckDB computes from the rows of the primary protocol."""
    with Store(grid / "results" / "tracker.duckdb") as store:
        analysis = store.study(study).analysis
        stated = store.sql(
            "SELECT r.variant, r.seed, i.subset, avg(i.value) AS of_items, any_value(r.value) AS stated "
            "FROM results r JOIN finals f USING (study, variant, seed) JOIN items i ON i.key = f.key "
            "WHERE r.study = ? AND i.protocol = ? AND i.name = ? "
            "AND r.metric = i.protocol || '/' || i.subset || '/' || i.name GROUP BY ALL",
            [study, analysis.protocol, analysis.value],
        )
    assert len(stated) >= len(CHOSEN[study])
    assert (stated["of_items"] - stated["stated"]).abs().max() < 1e-6


def test_the_pages_define_what_is_logged_and_nothing_else(grid):
    query = "SELECT DISTINCT study, name FROM metrics JOIN stages USING (key) WHERE study <> 'assets'"
    logged = {study: set() for study in STUDIES}
    with Store(grid / "results" / "tracker.duckdb") as store:
        for study, name in store.rows(query)[1]:
            logged[study].add(name)
    assert differences(logged) == []


def test_the_page_shows_every_study(grid):
    page = (grid / "reports" / "index.html").read_text(encoding="utf-8")
    assert all(variant in page for names in CHOSEN.values() for variant in names)


def test_a_second_run_starts_no_job(grid):
    again = snakemake(grid)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr
