r"""The comparison tables of a database as files, how verdicts were made, and the numbers of a paper.

With `--macros`, `numbers.tex` defines a macro for each number. A paper inputs it and writes
`\ablation{gad/d-final/accuracy}`; `check_paper` compares the paper's numbers with the results.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_text
from ablation.show.methods import methods
from ablation.show.other_tables import check_key, group_table, subset_table
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

    The files go to `<reports_dir>/<study>/`; return their paths. With `macros`, `.tex` files have a macro for each
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


_HEAD = r"""% Made by `ablation tables --macros`. `ablation check PAPER.tex` says which numbers no longer match.
\providecommand{\ablation}[1]{\ifcsname ablation:#1\endcsname\csname ablation:#1\endcsname\else\textbf{??}\fi}
"""
_COMMENT = re.compile(r"(?<!\\)%.*")
_INPUT = re.compile(r"\\(?:input|include)\s*\{([^}#\\]+)\}")
_DEFINED = re.compile(r"\\csname ablation:([^\\#]+)\\endcsname\{(.*)\}$", re.MULTILINE)
_USED = re.compile(r"\\ablation\{([^}#\\]+)\}")


@dataclass(frozen=True)
class Checked:
    """The numbers of a paper that are those of the results, and a line for each that is not."""

    matching: int
    problems: tuple[str, ...]


def definitions(numbers: Mapping[str, str]) -> str:
    """The content of `numbers.tex`."""
    lines = (rf"\expandafter\def\csname ablation:{key}\endcsname{{{text}}}" for key, text in numbers.items())
    return _HEAD + "\n".join(lines) + "\n"


def check_paper(paper: Path, now: Mapping[str, str]) -> Checked:
    """Compare what a paper, with the files that it inputs, takes from results with what they are now.

    Raises:
        ConfigError: the paper cannot be read, or takes nothing from results.
    """
    texts = list(_texts(paper, paper.parent, set()))
    defined = {key: text for content in texts for key, text in _DEFINED.findall(content)}
    used = dict.fromkeys(key for content in texts for key in _USED.findall(content))
    if not used:
        remedy = r"write \ablation{STUDY/VARIANT/COLUMN} and input the numbers.tex of `ablation tables --macros`"
        raise ConfigError(paper, "", None, "has no number of a table", remedy)
    problems = []
    for key in used:
        if key not in defined:
            problems.append(f"{key}: no numbers.tex that the paper inputs defines it")
        elif key not in now:
            problems.append(f"{key}: the paper has {defined[key]}, the results have no such number")
        elif defined[key] != now[key]:
            problems.append(f"{key}: the paper has {defined[key]}, the results have {now[key]}")
    return Checked(len(used) - len(problems), tuple(problems))


def _texts(file: Path, folder: Path, seen: set[Path]) -> Iterator[str]:
    """The text of a file and of what it inputs, without comments; LaTeX looks for files from the paper's folder."""
    if (place := file.resolve()) in seen:
        return
    seen.add(place)
    try:
        text = _COMMENT.sub("", read_text(file))
    except (OSError, ValueError) as error:
        raise ConfigError(file, "", None, f"cannot be read ({error})", "name a LaTeX file") from None
    yield text
    for name in _INPUT.findall(text):
        inner = folder / name.strip()
        inner = inner if inner.is_file() else inner.with_name(f"{inner.name}.tex")
        if inner.is_file():  # what TeX brings itself lies elsewhere
            yield from _texts(inner, folder, seen)
