r"""The tables of a database as files, and the check of a paper's numbers.

Texts from configurations and logs are escaped for each format. With `--macros`, `numbers.tex` defines a macro for each
number. A paper inputs this file and writes `\ablation{gad/d-final/accuracy}`; `check_paper` compares the numbers of the
paper with the results.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ablation.contract.atomic import write_text
from ablation.contract.display import no_formula
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, fixed
from ablation.contract.reading import read_text
from ablation.judge.verdicts import judge_study
from ablation.show.methods import methods
from ablation.show.other_tables import check_key, group_table, subset_table
from ablation.show.page.inline import environment
from ablation.show.paper import (
    NO_WIDER_THAN_THE_PAGE,
    PACKAGES,
    label,
    latex,
    latex_row,
    macros_of,
    paper_document,
    paper_table,
)
from ablation.show.tables import ComparisonTable, Row, build_table, show_cell
from ablation.show.text import markdown, shortened
from ablation.store.database import Store

_Format = Callable[[ComparisonTable], str]
CONFOUNDED = "* confounded: more than one factor changed from the parent."
REASON_WIDTH = 120


def render_tables(database: Path, reports_dir: Path, *, macros: bool = False) -> list[Path]:
    """Write each study's tables and other files to `<reports_dir>/<study>/`; return the paths.

    `table.tex` is for a paper, with effects and verdicts; `paper.tex` is a document that shows it. `metrics.tex` has
    the columns of `table.{md,csv,html}`. With `macros`, each measured value in the `.tex` files is a macro that
    `numbers.tex` defines.
    """
    written = []
    tex = partial(to_latex, macros=macros)
    with Store(database) as store:
        for study in store.studies():
            table = build_table(store, study)
            by_subset = subset_table(store, table)
            texts = {f"table.{ending}": text(table) for ending, text in FORMATS.items() if ending != "tex"}
            texts["table.tex"] = paper_table(table, judge_study(store, study), macros=macros)
            texts |= {"paper.tex": paper_document(table.title, macros=macros), "metrics.tex": tex(table)}
            texts |= {"subsets.csv": to_csv(by_subset), "subsets.tex": tex(by_subset)}
            texts["runs.csv"] = to_runs_csv(study, store.runs(study), store.results(study))
            texts["methods.md"] = methods(store, study)
            if macros:
                texts["numbers.tex"] = definitions(numbers(table) | numbers(by_subset))
            written += _write(reports_dir / study, texts)
    return written


def render_groups(database: Path, reports_dir: Path, key: str) -> list[Path]:
    """Write `<reports_dir>/<study>/by-<key>.{md,csv,tex,html}` for each study that has the key; return the paths.

    Raises ConfigError if no study has the key.
    """
    written = []
    with Store(database) as store:
        variants = {study: store.variants(study) for study in store.studies()}
        for study in check_key(key, variants):
            table = group_table(build_table(store, study), variants[study], key)
            name = re.sub(r"[^A-Za-z0-9._-]", "-", f"by-{key}")
            written += _write(reports_dir / study, {f"{name}.{end}": text(table) for end, text in FORMATS.items()})
    return written


def _write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def to_markdown(table: ComparisonTable) -> str:
    """Return the table as GitHub-flavoured Markdown, with heading, caption and notes."""
    heads = [*table.heads[:2], *(c.label for c in table.columns), table.heads[2]]
    heads += [f"published {c.label}" for c in table.columns if c.published]
    heads += ["rules broken"] if table.has_broken else []
    lines = [pipe(heads), pipe(["---", "---", *["---:"] * (len(heads) - 2)], escape=False)]
    for row in table.rows:
        reason = [shortened(row.status, REASON_WIDTH), *[""] * (len(table.columns) - 1)]
        measured = reason if row.status else show_cells(row, table)
        rules = [", ".join(row.broken)] if table.has_broken else []
        lines.append(pipe([row.name, changed(row), *measured, show_seeds(row), *show_published(row, table), *rules]))
    text = [f"# {markdown(table.title)}", "", markdown(table.caption), "", *lines]
    if any(row.confounded for row in table.rows):
        text += ["", markdown(CONFOUNDED)]
    if table.notes:
        text += ["", *(f"- {markdown(shortened(note, 400))}" for note in table.notes)]
    return "\n".join(text) + "\n"


def to_csv(table: ComparisonTable) -> str:
    """Return CSV at full precision, with mean, sd, n and published number of each column.

    A row is a variant, or a value of a configuration key.
    """
    per_variant = table.counted == "seeds"
    parts = ("mean", "sd", "n", "published") if per_variant else ("mean", "sd", "n")
    heads = ["study", table.heads[0], "variants", "n", "planned"]
    if per_variant:
        heads = ["study", "variant", "parent", "changed", "confounded", "state", "reason", "seeds", "planned"]
    heads += [f"{column.label} {part}" for column in table.columns for part in parts]
    rows: list[list[Any]] = [[*heads, "rules broken"] if per_variant else heads]
    for row in table.rows:
        line: list[Any] = [table.study, row.name]
        line += [row.parent, row.changed, row.confounded, row.state, row.reason] if per_variant else [row.changed]
        line += [row.seeds, row.planned]
        for cell, value in zip(row.cells, row.published, strict=True):
            line += [cell.mean, cell.sd, len(cell.values), value][: len(parts)]
        line += ["; ".join(row.broken)] if per_variant else []
        rows.append(line)
    return _csv(rows)


def to_runs_csv(study: str, runs: pd.DataFrame, results: pd.DataFrame) -> str:
    """Return tidy CSV with a row per run and metric; a run without results has one row without a metric."""
    heads = ["study", "variant", "seed", "state", "reason", "metric", "value"]
    rows: list[list[Any]] = [heads]
    merged = runs.merge(results, on=["variant", "seed"], how="left").sort_values(["variant", "seed", "metric"])
    for variant, seed, state, reason, metric, value in merged[heads[1:]].itertuples(index=False, name=None):
        tail = [metric, value] if isinstance(metric, str) else ["", None]
        rows.append([study, variant, int(seed), state, reason, *tail])
    return _csv(rows)


def numbers(table: ComparisonTable) -> dict[str, str]:
    """Return {name of the macro, such as `gad/d-final/accuracy`: measured number as LaTeX}."""
    return {
        macro: latex(text)
        for row in table.rows
        if not row.status
        for macro, text in zip(macros_of(table, row), show_cells(row, table), strict=True)
    }


def to_latex(table: ComparisonTable, *, macros: bool = False) -> str:
    """Return the table as a LaTeX float, which needs booktabs, graphicx, textcomp and the T1 font encoding.

    macros: each measured number is a macro that `numbers` defines.
    """
    published, measured = [c for c in table.columns if c.published], len(table.columns)
    heads, cell_of_macro = [*table.heads[:2], *(c.label for c in table.columns), table.heads[2]], numbers(table)
    lines = [
        f"% {PACKAGES}",
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{latex(table.title)}. {latex(table.caption)}}}",
        rf"\label{{tab:{label(table.study + table.suffix)}}}",
        NO_WIDER_THAN_THE_PAGE,
        rf"\begin{{tabular}}{{@{{}}lp{{6cm}}{'r' * measured}r{'r' * len(published)}@{{}}}}",
        r"\toprule",
    ]
    if published:
        over = [rf"\multicolumn{{{measured}}}{{c}}{{measured}}", rf"\multicolumn{{{len(published)}}}{{c}}{{published}}"]
        lines.append(rf"& & {over[0]} & & {over[1]} \\")
        first = measured + 4
        lines.append(rf"\cmidrule(lr){{3-{measured + 2}}}\cmidrule(l){{{first}-{first + len(published) - 1}}}")
    lines += [latex_row(map(latex, [*heads, *(c.label for c in published)])), r"\midrule"]
    for row in table.rows:
        if row.status:
            middle = [rf"\multicolumn{{{measured}}}{{l}}{{\emph{{{latex(shortened(row.status, 60))}}}}}"]
        else:
            names = macros_of(table, row)
            middle = [rf"\ablation{{{name}}}" if macros else cell_of_macro[name] for name in names]
        tail = map(latex, [show_seeds(row), *show_published(row, table)])
        lines.append(latex_row([latex(row.name), rf"\raggedright {latex(changed(row))}", *middle, *tail]))
    lines += [r"\bottomrule", r"\end{tabular}}"]
    notes = [*([CONFOUNDED] if any(row.confounded for row in table.rows) else []), *table.notes]
    lines += [rf"\par\smallskip\footnotesize {latex(shortened(note, 400))}" for note in notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_html(table: ComparisonTable) -> str:
    """Return the table as a self-contained HTML page."""
    show = {"show_cells": show_cells, "show_seeds": show_seeds, "show_published": show_published, "changed": changed}
    template = environment(Path(__file__).parent / "templates").get_template("table.html.j2")
    return template.render(table=table, confounded=CONFOUNDED, **show)


def changed(row: Row) -> str:
    """Return the changes of a row from its parent, with a star if more than one factor changed."""
    return f"{row.changed} *" if row.confounded else row.changed


def show_cells(row: Row, table: ComparisonTable) -> list[str]:
    """Return the texts of the measured cells of a row."""
    pairs = zip(row.cells, table.columns, strict=True)
    return [show_cell(cell, column, row.seeds, table.counted) for cell, column in pairs]


def show_seeds(row: Row) -> str:
    """Return the number of seeds as text: `5`, or `3/5` if some are missing."""
    return str(row.seeds) if row.seeds == row.planned else f"{row.seeds}/{row.planned}"


def show_published(row: Row, table: ComparisonTable) -> list[str]:
    """Return the published numbers of the columns that have any, with the decimals of their source."""
    pairs = zip(table.columns, row.published, strict=True)
    return ["" if value is None else fixed(value, c.published_decimals) for c, value in pairs if c.published]


def pipe(cells: Iterable[str], *, escape: bool = True) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(markdown(cell) if escape else cell for cell in cells)} |"


def _csv(rows: Iterable[Iterable[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _csv_cell(value: Any) -> Any:
    """Convert a value to a CSV cell; numbers stay numbers, and text is safe from being read as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "nan"
    return no_formula(str(value))


FORMATS: dict[str, _Format] = {"md": to_markdown, "csv": to_csv, "tex": to_latex, "html": to_html}

_MACRO = (
    r"\providecommand{\ablation}[1]{\ifcsname ablation:#1\endcsname\csname ablation:#1\endcsname\else\textbf{??}\fi}"
)
_HEAD = (
    "% Made by `ablation tables --macros`. `ablation check-paper PAPER.tex` lists the numbers that no longer match.\n"
    f"{_MACRO}\n"
)
_COMMENT = re.compile(r"(?<!\\)%.*")
# \input{x}, \input x, \include{x}, \subfile{x}, \import{folder}{x}, and packages that lie beside the paper.
_INPUT = re.compile(
    r"\\(?:@?input|include|includestandalone|subfile|subfileinclude)\s*(?:\[[^\]]*\]\s*)?\{([^}]*)\}"
    r"|\\@?input\s+([^\s{}\\]+)"
)
_INPUT_IF = re.compile(r"\\InputIfFileExists\s*\{([^}]*)\}")
_IMPORT = re.compile(r"\\(?:sub)?(?:import|inputfrom|includefrom)\*?\s*\{([^}]*)\}\s*\{([^}]*)\}")
_PACKAGE = re.compile(r"\\(?:usepackage|RequirePackage|documentclass|LoadClass)\s*(?:\[[^\]]*\]\s*)?\{([^}]*)\}")
_OF_TEX = ("glyphtounicode", "glyphtounicode.tex")  # files of TeX itself that papers input
_DEFINED = re.compile(r"\\expandafter\\def\\csname ablation:([^\\#]+)\\endcsname\{(.*)\}$", re.MULTILINE)
_USED = re.compile(r"\\ablation\s*\{([^}#\\]+)\}")
_HIDDEN = re.compile(r"\\ablation(?![A-Za-z@])|\\csname\s*ablation\b")


@dataclass(frozen=True)
class Checked:
    """The count of numbers in a paper that match the results, and a line for each problem."""

    matching: int
    problems: tuple[str, ...]


def definitions(numbers: Mapping[str, str]) -> str:
    """Return the content of `numbers.tex`, which defines a macro for each number."""
    lines = (rf"\expandafter\def\csname ablation:{key}\endcsname{{{text}}}" for key, text in numbers.items())
    return _HEAD + "\n".join(lines) + "\n"


def all_numbers(store: Store) -> dict[str, str]:
    """Return the numbers of every study's tables, by the names of their macros."""
    tables = [build_table(store, study) for study in store.studies()]
    return {
        name: text
        for table in tables
        for each in (table, subset_table(store, table))
        for name, text in numbers(each).items()
    }


def check_paper(paper: Path, now: Mapping[str, str]) -> Checked:
    """Compare the numbers in a paper, and in the files that it inputs, with the current results.

    Raises ConfigError if the paper cannot be read or does not use any number of a table.
    """
    problems: list[str] = []
    texts = list(_texts(paper, [paper.parent], set(), problems))
    defined: dict[str, set[str]] = {}
    for key, text in (found for content in texts for found in _DEFINED.findall(content)):
        defined.setdefault(key, set()).add(text)
    used = dict.fromkeys(key for content in texts for key in _USED.findall(content))
    hidden = [_HIDDEN.findall(_USED.sub("", _DEFINED.sub("", text.replace(_MACRO, "")))) for text in texts]
    if count := sum(map(len, hidden)):
        problems.append(
            rf"\ablation is used without a name {counted(count, 'time')}, as in a macro; write \ablation{{NAME}}"
        )
    if not used and not problems:
        remedy = r"write \ablation{STUDY/VARIANT/COLUMN} and input the numbers.tex of `ablation tables --macros`"
        raise ConfigError(paper, "", None, "does not use any number of a table", remedy)
    matching = 0
    for key in used:
        if key not in defined:
            problems.append(f"{key}: this number is not defined; input the numbers.tex of its study")
        elif len(defined[key]) > 1:
            problems.append(
                f"{key}: the paper defines this number as {' and as '.join(sorted(defined[key]))}; "
                "input only one file that defines it"
            )
        elif key not in now:
            problems.append(f"{key}: the paper has {min(defined[key])}, but the results do not contain this number")
        elif defined[key] != {now[key]}:
            problems.append(f"{key}: the paper has {min(defined[key])}, but the results have {now[key]}")
        else:
            matching += 1
    return Checked(matching, tuple(problems))


def _texts(file: Path, places: Sequence[Path], seen: set[Path], problems: list[str]) -> Iterator[str]:
    r"""Yield the texts of a file and of all files that it inputs, without comments; add missing files to `problems`.

    places: folders in which LaTeX looks for files, the paper's own first.
    """
    if (place := file.resolve()) in seen:
        return
    seen.add(place)
    try:
        text = _COMMENT.sub("", read_text(file))
    except (OSError, ValueError) as error:
        raise ConfigError(file, "", None, f"cannot be read ({error})", "name a LaTeX file") from None
    yield text
    optional = _INPUT_IF.findall(text)
    wanted = [(places, name) for name in [*optional, *(braced or bare for braced, bare in _INPUT.findall(text))]]
    wanted += [([at / folder for at in places], name) for folder, name in _IMPORT.findall(text)]
    for folders, written in wanted:
        name = written.strip().strip('"')
        files = [path for at in folders for path in (at / name, at / f"{name}.tex") if name and path.is_file()]
        for inner in files:
            yield from _texts(inner, [*dict.fromkeys([*folders, inner.parent])], seen, problems)
        if not files and name not in (*_OF_TEX, *optional) and file.suffix not in (".sty", ".cls"):
            what = f"{written.strip()} does not exist; add the file" if name else "an input names no file; name one"
            problems.append(f"{file}: {what}, or remove the input")
    for name in (part.strip() for names in _PACKAGE.findall(text) for part in names.split(",")):
        for inner in (at / f"{name}{ending}" for at in places for ending in (".sty", ".cls")):
            if inner.is_file():
                yield from _texts(inner, places, seen, problems)
