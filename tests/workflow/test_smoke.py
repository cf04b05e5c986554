"""The smoke grid, end to end: real trainers on tiny models, every configured study."""

import math
import os
import runpy

import pandas as pd
import pytest

from ablation.store.database import Store
from tests import warm
from tests.documented_metrics import differences
from tests.repository import ROOT
from tests.workflow.smoke import chosen_variants, first_two, one_argument

pytestmark = pytest.mark.slow


STUDIES = sorted(path.parent.name for path in ROOT.glob("configs/studies/*/_study.yaml"))


class Grid:
    """The smoke grid of some variants, in a folder of its own; `cold`: by processes that start as a user's do."""

    def __init__(self, folder, chosen, cold):
        self.folder, self.chosen, self.cold = folder, chosen, cold

    def snakemake(self):
        words = ["--cores", "2", "--resources", "gpu=2", "--config", "scale=smoke"]
        words += [f"results={self.folder / 'results'}", f"reports={self.folder / 'reports'}", one_argument(self.chosen)]
        return warm.run("snakemake", words, cwd=ROOT, env=dict(os.environ), timeout=3600, cold=self.cold)

    def store(self):
        return Store(self.folder / "results" / "tracker.duckdb")


@pytest.fixture(scope="module", params=[first_two, pytest.param(chosen_variants, marks=pytest.mark.rest)])
def grid(request, tmp_path_factory):
    grid = Grid(tmp_path_factory.mktemp("smoke"), request.param(), cold=request.param is first_two)
    done = grid.snakemake()
    assert done.returncode == 0, done.stdout[-6000:]
    return grid


@pytest.mark.parametrize("study", STUDIES)
def test_every_variant_is_in_the_table_with_numbers(grid, study):
    table = pd.read_csv(grid.folder / "reports" / study / "runs.csv")
    chosen = table[table["variant"].isin(grid.chosen[study])]
    assert set(chosen["variant"]) == set(grid.chosen[study])
    assert chosen["value"].map(math.isfinite).all()
    with grid.store() as store:
        runs = store.sql("SELECT variant, state FROM runs WHERE study = ?", [study])
    assert set(runs[runs["variant"].isin(grid.chosen[study])]["state"]) == {"ok"}


@pytest.mark.parametrize("study", STUDIES)
def test_final_metrics_are_those_of_the_items(grid, study):
    """What the trainer reports is what DuckDB computes from the rows of the primary protocol."""
    with grid.store() as store:
        analysis = store.study(study).analysis
        stated = store.sql(
            "SELECT r.variant, r.seed, i.subset, avg(i.value) AS of_items, any_value(r.value) AS stated "
            "FROM results r JOIN finals f USING (study, variant, seed) JOIN items i ON i.key = f.key "
            "WHERE r.study = ? AND i.protocol = ? AND i.name = ? "
            "AND r.metric = i.protocol || '/' || i.subset || '/' || i.name GROUP BY ALL",
            [study, analysis.protocol, analysis.value],
        )
    assert len(stated) >= len(grid.chosen[study])
    assert (stated["of_items"] - stated["stated"]).abs().max() < 1e-6


@pytest.mark.parametrize("grid", [pytest.param(chosen_variants, marks=pytest.mark.rest)], indirect=True)
def test_the_pages_define_what_is_logged_and_nothing_else(grid):
    query = "SELECT DISTINCT study, name FROM metrics JOIN stages USING (key) WHERE study <> 'assets'"
    logged = {study: set() for study in STUDIES}
    with grid.store() as store:
        for study, name in store.rows(query)[1]:
            logged[study].add(name)
    assert differences(logged) == []


def test_the_table_of_claims_is_made_of_the_grid_and_every_stated_figure_is_logged(grid, tmp_path):
    """It ends with an error for a figure whose metric a variant does not log."""
    make = runpy.run_path(str(ROOT / "docs/make_claims.py"))
    make["main"]([grid.folder / "results"], studies=tmp_path)
    rows = make["read"](tmp_path / "claims.tsv")
    assert {row["study"] for row in rows} == set(STUDIES)
    assert {row["verdict"] for row in rows} <= set(make["VERDICTS"])
    assert ", smoke |" not in (tmp_path / "README.md").read_text(encoding="utf-8")  # too small to judge any


def test_the_page_shows_every_study(grid):
    page = (grid.folder / "reports" / "index.html").read_text(encoding="utf-8")
    assert all(variant in page for names in grid.chosen.values() for variant in names)
