"""The comparison tables of a database as files, and how the verdicts of each study were made."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from ablation.contract.atomic import write_text
from ablation.show.groups import check_key, group_table
from ablation.show.methods import methods
from ablation.show.paper import definitions
from ablation.show.subsets import subset_table
from ablation.show.table_formats import numbers, to_csv, to_html, to_latex, to_markdown, to_runs_csv
from ablation.show.tables import ComparisonTable, build_table
from ablation.store.database import Store

_Format = Callable[[ComparisonTable], str]
FORMATS: dict[str, _Format] = {
    "md": to_markdown,
    "csv": to_csv,
    "tex": to_latex,
    "html": to_html,
}


def render_tables(database: Path, reports_dir: Path, *, macros: bool = False) -> list[Path]:
    """Write a study's `table.md`, `.csv`, `.tex` and `.html`, `subsets.csv` and `.tex`, `runs.csv` and `methods.md`.

    They stand in `<reports_dir>/<study>/`; returns the paths written. With `macros`, `.tex` files have a macro for each
    number, and `numbers.tex` defines them.
    """
    written = []
    formats = FORMATS | ({"tex": partial(to_latex, macros=True)} if macros else {})
    with Store(database) as store:
        for study in store.studies():
            table = build_table(store, study)
            folder, by_subset = reports_dir / study, subset_table(store, table)
            written += _write(folder, "table", table, formats)
            written += _write(folder, "subsets", by_subset, {name: formats[name] for name in ("csv", "tex")})
            texts = {
                "runs.csv": to_runs_csv(study, store.runs(study), store.results(study)),
                "methods.md": methods(store, study),
                **({"numbers.tex": definitions(numbers(table) | numbers(by_subset))} if macros else {}),
            }
            for name, text in texts.items():
                write_text(folder / name, text)
                written.append(folder / name)
    return written


def all_numbers(store: Store) -> dict[str, str]:
    """The numbers of every study's tables, by the names of their macros."""
    tables = [build_table(store, study) for study in store.studies()]
    return {
        name: text
        for table in tables
        for of in (table, subset_table(store, table))
        for name, text in numbers(of).items()
    }


def render_groups(database: Path, reports_dir: Path, key: str) -> list[Path]:
    """Write `<reports_dir>/<study>/by-<key>.{md,csv,tex,html}` for each study that has the key; return the paths.

    Raises ConfigError where none has it.
    """
    written = []
    with Store(database) as store:
        variants = {study: store.variants(study) for study in store.studies()}
        for study in check_key(key, variants):
            table = group_table(build_table(store, study), variants[study], key)
            name = re.sub(r"[^A-Za-z0-9._-]", "-", f"by-{key}")
            written += _write(reports_dir / study, name, table, FORMATS)
    return written


def _write(folder: Path, name: str, table: ComparisonTable, formats: Mapping[str, _Format]) -> list[Path]:
    paths = []
    for ending, text in formats.items():
        path = folder / f"{name}.{ending}"
        write_text(path, text(table))
        paths.append(path)
    return paths
