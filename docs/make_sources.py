"""Writes docs/studies/from-the-sources.md from statements.tsv: `python docs/make_sources.py`.

A row of the file is a statement of one of the five sources: source, section, the statement in few words, what has it
here (or "none"), a note (the reason, if it is "none"), and "page" if the page shows the row.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

STATEMENTS = Path(__file__).resolve().parent / "studies" / "statements.tsv"
PAGE = STATEMENTS.with_name("from-the-sources.md")

HEAD = """# From the sources

If you come from one of the five sets of notes behind this project, look up the script, flag or metric that you know. In
the second column `grpo.beta` is a [key](../index.md) of the section's study, `debias/v8` a variant, `debias.train` a
stage, `train/loss` a [metric](metrics/debias.md), and `figure gspo/training` a figure.

`snakemake --resources gpu=2 --config study=... variant=... scale=paper` replaces most scripts: it runs one variant with
all that it needs, or without `variant` the whole study. `scale=paper` has the sources' models and sizes.

This page leaves out what has nearly the same name here, and what the study's page explains.
[statements.tsv](statements.tsv) has all {count} statements of the notes; `docs/make_sources.py` writes this page.
"""
SECTIONS = {
    "biasedit": "The BiasEdit notes: GRPO on BiasEdit (study `debias`)",
    "innovations": "The innovations notes: six innovations of GRPO (study `innovations`)",
    "gad": "The GAD notes: GAD with GSPO (study `gad`)",
    "demonstrations": "The demonstrations notes: rewards for choosing demonstrations (study `demonstrations`)",
    "gspo": "The GSPO notes: GSPO (study `gspo`)",
}
TAIL = """
## Published numbers

[Which claims are reproduced](README.md). The report shows what a source states (`configs/published/`) beside our
results, and `ablation audit debias` checks the table of the BiasEdit notes itself.
"""


def statements(file: Path = STATEMENTS) -> list[dict[str, str]]:
    """Return the rows of the file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def page(rows: Iterable[dict[str, str]]) -> str:
    """Return the page."""
    rows = list(rows)
    parts = [HEAD.format(count=len(rows))]
    for source, heading in SECTIONS.items():
        shown = [row for row in rows if row["source"] == source and row["page"]]
        parts += [f"\n## {heading}\n\n| in the source | here | note |\n| --- | --- | --- |\n", *map(_line, shown)]
    return "".join([*parts, TAIL])


def _line(row: dict[str, str]) -> str:
    note = f" {row['note']} |" if row["note"] else ""
    return f"| {row['statement']} | {row['here']} |{note}\n"


if __name__ == "__main__":
    PAGE.write_text(page(statements()), encoding="utf-8")
