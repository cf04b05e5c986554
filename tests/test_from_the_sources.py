"""docs/studies/from-the-sources.md names only what exists: keys, variants, stages, metrics, commands and files."""

import re
from functools import cache

import pytest

from ablation.config.settings import load_settings
from ablation.config.validation import known_keys
from ablation.config.variants import load_studies
from tests.repository import ROOT

PAGE = ROOT / "docs/studies/from-the-sources.md"
STUDIES = sorted(path.parent.name for path in ROOT.glob("configs/studies/*/_study.yaml"))


@cache
def studies():
    return load_studies(load_settings({"studies": STUDIES}, configs=ROOT / "configs"))


@cache
def metrics():
    """Every name in the first column of a table of a page of metrics, and every other name with a slash.

    After `a/b` in one cell, `c` is `a/c` and `_c` is `a/b_c`.
    """
    found = set()
    for line in (line for page in ROOT.glob("docs/studies/metrics/*.md") for line in page.read_text().splitlines()):
        names = spans(line.split(" | ")[0])
        full = [name for name in names if "/" in name]
        found |= {*names} if line.startswith("| ") else {*full}
        if full and line.startswith("| "):
            folder = full[0].rpartition("/")[0]
            found |= {
                full[0] + name if name.startswith("_") else f"{folder}/{name}" for name in names if "/" not in name
            }
    return found


def spans(text):
    return re.findall(r"`([^`]+)`", text)


def rows():
    """(heading, source, here, note) of every row below a heading of a source, and of published numbers."""
    heading, found = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if heading and cells and cells[0] not in ("in the source", "source") and not cells[0].startswith("---"):
            found.append((heading, *([cell.strip("| ") for cell in cells] + [""] * 3)[:3]))
    return found


ROWS = rows()


@cache
def known(study):
    """What the second column may name, but for commands, variables and files: as the page says how to read it."""
    names = {*metrics(), *(known_keys(studies()[study].config_model) if study else ())}
    for name, found in studies().items():
        names |= {f"{name}/{variant}" for variant in found.variants} | {f"{name}.{stage}" for stage in found.stages}
        names |= {f"figure {name}/{figure.name}" for figure in found.written.figures}
    return names


def exists(name, study):
    """Whether what a span of the second column names exists."""
    if name.startswith(("ablation ", "snakemake ")):
        return True  # tests/test_printed_commands.py
    if name.startswith("$"):
        return any(name[1:] in path.read_text() for path in (ROOT / "trainers").rglob("*.py"))
    return name in known(study) or (ROOT / name).exists()


def test_the_page_has_a_table_for_each_source():
    named = {heading.partition(":")[0] for heading, *_ in ROWS if " notes:" in heading}
    assert named == {f"The {name} notes" for name in ("BiasEdit", "innovations", "GAD", "demonstrations", "GSPO")}
    assert len(ROWS) > 110


@pytest.mark.parametrize("heading", sorted({heading for heading, *_ in ROWS}))
def test_everything_named_exists(heading):
    wrong, [study] = [], re.findall(r"study `(\w+)`", heading) or [None]
    for _, source, here, note in (row for row in ROWS if row[0] == heading):
        if here == "none":
            wrong += [] if note else [f"{source}: no reason"]
            continue
        left = re.sub(r"`[^`]+`", "", here).strip(", ")
        wrong += [f"{source}: {left!r} is not in code"] if left or not here else []
        wrong += [f"{source}: {name!r} does not exist" for name in spans(here) if not exists(name, study)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "name",
    [
        "grpo.betta",
        "ema_smoothing",  # of another study
        "train/losss",
        "figure gspo/trainings",
        "$NO_SUCH_VARIABLE",
        "docs/no-such-page.md",
    ],
)
def test_a_name_that_does_not_exist_is_found(name):
    assert not exists(name, "debias")


def test_no_page_without_a_link_to_it():
    for page in ("README.md", "docs/index.md"):
        assert "from-the-sources.md" in (ROOT / page).read_text()
