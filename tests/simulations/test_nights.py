"""What the nightly rule promises where nights drift or carry over, and that the figures on the page are its own."""

import csv
from pathlib import Path

import pytest

from tests.simulations.nights import COUNTS, FILE, WORLDS, shares, table
from tests.simulations.sizes import assert_shares, sized

ORDERED = [count for count in COUNTS if count >= 15]


@sized(fast=200, slow=600, long=4000)
def test_a_tenth_of_unchanged_nights_is_rerun_and_a_hundredth_called_worse(replicates):
    """Within half as much again."""
    cells = [(name, count) for name in WORLDS for count in ORDERED]
    found = {cell: shares(WORLDS[cell[0]], cell[1], 0, replicates, seed) for seed, cell in enumerate(cells)}
    assert_shares({cell: asked for cell, (asked, _) in found.items()}, replicates, 0.05, 0.15)
    assert_shares({cell: worse for cell, (_, worse) in found.items()}, replicates, 0, 0.015)


@sized(fast=100, slow=400)
@pytest.mark.parametrize("fall", [2, 4])
def test_the_figures_of_the_page_are_those_of_the_rule(fall, replicates):
    with FILE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["fall in sd"] == str(fall)]
    assert [(row["nights"], int(row["past runs"])) for row in rows] == [(name, n) for name in WORLDS for n in COUNTS]
    for row in rows[:: 1 if replicates > 100 else 3]:
        share = shares(WORLDS[row["nights"]], int(row["past runs"]), fall, replicates, seed=10)[1]
        assert_shares({row["nights"]: share}, replicates, float(row["worse"]), float(row["worse"]))


def test_the_table_of_the_page_is_of_these_figures():
    page = (Path(__file__).parents[2] / "docs/how-to/nightly.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in page
