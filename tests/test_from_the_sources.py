"""docs/studies/statements.tsv lists what the five sources state, and names only what exists; the page is made of it."""

import re
import runpy
from collections import Counter
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


MAKE = runpy.run_path(str(ROOT / "docs/make_sources.py"))
ROWS = MAKE["statements"]()
STUDY = {"biasedit": "debias"}


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
    if name.startswith("make "):
        return f"\n{name.split()[1]}:" in (ROOT / "Makefile").read_text()
    if name.startswith(("ablation ", "snakemake ")):
        return True  # tests/test_printed_commands.py
    if name.startswith("$"):
        return any(name[1:] in path.read_text() for path in (ROOT / "trainers").rglob("*.py"))
    return name in known(study) or (ROOT / name).exists()


COUNTS = {"biasedit": 89, "innovations": 43, "gad": 115, "demonstrations": 46, "gspo": 37}


def test_no_statement_is_dropped():
    """Shortening the page takes the word `page` from a row, and leaves the row."""
    assert Counter(row["source"] for row in ROWS) == COUNTS
    assert len({(row["source"], row["section"], row["statement"]) for row in ROWS}) == len(ROWS)
    assert {row["page"] for row in ROWS} == {"", "page"}
    gad = {row["section"].split()[0].split(".")[0] for row in ROWS if row["source"] == "gad"}
    assert gad == {str(number) for number in range(1, 23)}
    versions = {row["section"] for row in ROWS if row["source"] == "biasedit"}
    assert versions >= {"baseline", *(f"v{number}" for number in range(1, 11)), "v8.1", "v8-earlystop"}


def test_the_page_is_made_of_the_statements():
    assert MAKE["page"](ROWS) == PAGE.read_text(), "run: python docs/make_sources.py"
    for row in ROWS:
        assert (f"| {row['statement']} | {row['here']} |" in PAGE.read_text()) == bool(row["page"]), row


def wrong(row):
    """What a row names that does not exist; a row without a place has a reason."""
    here, study = row["here"], STUDY.get(row["source"], row["source"])
    if here == "none":
        return [] if row["note"] else ["no reason"]
    left = re.sub(r"`[^`]+`", "", here).strip(", ")
    return [f"{left!r} is not in code"] * bool(left or not here) + [n for n in spans(here) if not exists(n, study)]


@pytest.mark.parametrize("source", sorted(COUNTS))
def test_everything_named_exists(source):
    found = {row["statement"]: fault for row in ROWS if row["source"] == source and (fault := wrong(row))}
    assert not found, found


def test_a_row_without_a_place_or_a_reason_is_found():
    row = {"source": "gspo", "here": "none", "note": ""}
    assert wrong(row)
    assert not wrong(row | {"note": "an opinion"})
    assert wrong(row | {"here": ""})
    assert wrong(row | {"here": "`gspo/gspo` and more"})
    assert wrong(row | {"here": "`gspo/gspo`, `grpo.betta`"})
    assert not wrong(row | {"here": "`gspo/gspo`, `kl.target`"})


def test_no_page_without_a_link_to_it():
    for page in ("README.md", "docs/index.md"):
        assert "from-the-sources.md" in (ROOT / page).read_text()


OF_ANOTHER_STUDY = "ema_smoothing"
ABSENT = ["grpo.betta", "train/losss", "figure gspo/trainings", "$NO_SUCH_VARIABLE", "docs/no-such-page.md"]


@pytest.mark.parametrize("name", [OF_ANOTHER_STUDY, *ABSENT])
def test_a_name_that_does_not_exist_is_found(name):
    assert not exists(name, "debias")
