r"""LaTeX for a paper: a table of a study's variants with effects and verdicts, and a document that shows it.

A row has the value of the primary metric, the paired effect with the interval that agrees with the verdict, and a mark
for the verdict. The document, `paper.tex`, shows this table and the forest plot.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from ablation.contract.numbers import confidence, estimate, is_number, plural, stated
from ablation.judge.comparisons import Comparison
from ablation.judge.verdicts import JudgedStudy
from ablation.show.answer import effect_decimals, interval_of
from ablation.show.tables import ComparisonTable, Row, primary_column, primary_label, show_cell
from ablation.show.text import shortened

LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"}
LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$"}
LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "->": r"$\to$", '"': r"\textquotedbl{}"}
PACKAGES = r"\usepackage[T1]{fontenc} \usepackage{booktabs,graphicx,textcomp}"
NO_WIDER_THAN_THE_PAGE = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
MARKS = {
    "better": "$+$",
    "worse": "$-$",
    "equivalent": "$=$",
    "undecided": "?",
    "confounded": "c",
    "invalid": r"$\times$",
    "not run": "--",
}
_MEANINGS = {"confounded": "several factors changed", "invalid": "cannot be compared"}
_LINES = 40  # of one float
_CHANGE = 32  # characters of a line that says what changed


def paper_table(table: ComparisonTable, study: JudgedStudy, *, macros: bool = False) -> str:
    """Return the table of a study as LaTeX; a long table is split into several floats.

    The first line names the LaTeX packages that the table needs. macros: write each value as a macro of `numbers.tex`.
    """
    several_parents = len({comparison.parent for comparison in study.comparisons}) > 1
    same_seeds = len({(row.seeds, row.planned) for row in table.rows if not row.is_reference}) == 1
    index = primary_column(table, study.measurements.analysis)
    metric = primary_label(table, study.measurements.analysis)
    heads = ["variant", "change", metric, *(["vs."] if several_parents else []), "effect", "interval", ""]
    heads += [] if same_seeds else ["seeds"]
    columns = f"@{{}}lp{{0.3\\linewidth}}r{'l' if several_parents else ''}rrc{'' if same_seeds else 'r'}@{{}}"
    compared: dict[str, list[Comparison | None]] = {}
    for comparison in study.comparisons:
        compared.setdefault(comparison.child, []).append(comparison)
    decimals = effect_decimals(study.comparisons)
    lines: list[tuple[int, str]] = []  # height in lines, and the row
    for row in table.rows:
        change = row.label or ("" if row.parent is None else row.changed)
        value = latex(shortened(row.status, 40)) if row.status else _value(row, index, table, macros)
        for number, judged in enumerate(compared.get(row.name, [None])):
            first = [latex(row.name), rf"\raggedright {_broken(change)}", value] if not number else ["", "", ""]
            cells = [*first, *_effect(judged, decimals, several_parents)]
            cells += (
                [] if same_seeds else [f"{row.seeds}/{row.planned}" if row.seeds != row.planned else str(row.seeds)]
            )
            lines.append((max(1, -(-len(change) // _CHANGE)) if not number else 1, latex_row(cells)))
    parts = list(_split(lines))
    floats = [
        "\n".join(
            [
                r"\begin{table}[!htbp]",
                r"\centering\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\belowcaptionskip}{6pt}",
                rf"\caption{{{_caption(table, study, metric, same_seeds, several_parents)}}}"
                if not number
                else rf"\caption{{{latex(table.title)}, part {number + 1} of {len(parts)}.}}",
                rf"\label{{tab:{label(table.study)}{f'-{number + 1}' if number else ''}}}",
                NO_WIDER_THAN_THE_PAGE,
                rf"\begin{{tabular}}{{{columns}}}",
                r"\toprule",
                latex_row(map(latex, heads)),
                r"\midrule",
                *part,
                r"\bottomrule",
                r"\end{tabular}}",
                r"\end{table}",
            ]
        )
        for number, part in enumerate(parts)
    ]
    notes = [f"% {' '.join(note.split())}" for note in table.notes]
    return "\n".join([f"% {PACKAGES}", *notes, *floats]) + "\n"


def paper_document(study: str, *, macros: bool = False) -> str:
    """Return a LaTeX document with the table and, if `ablation figures` has drawn `forest.pdf`, the forest plot."""
    return "\n".join(
        [
            r"\documentclass{article}",
            PACKAGES,
            r"\begin{document}",
            *([r"\input{numbers}"] if macros else []),
            r"\input{table}",
            r"\IfFileExists{forest.pdf}{\begin{figure}[!htbp]\centering\includegraphics{forest.pdf}",
            rf"\caption{{{latex(study)}: effects with their intervals.}}\end{{figure}}}}{{}}",
            r"\end{document}",
            "",
        ]
    )


def _value(row: Row, index: int, table: ComparisonTable, macros: bool) -> str:
    if macros:
        return rf"\ablation{{{macros_of(table, row)[index]}}}"
    return latex(show_cell(row.cells[index], table.columns[index], row.seeds, table.counted))


def _broken(change: str) -> str:
    """Return text as LaTeX that allows line breaks after dots and underscores."""
    return latex(change).replace(".", r".\allowbreak{}").replace(r"\_", r"\_\allowbreak{}")


def _effect(comparison: Comparison | None, decimals: int, several_parents: bool) -> list[str]:
    if comparison is None:
        return [""] * (3 + several_parents)
    low, high = interval_of(comparison)
    effect, interval = estimate(comparison.effect, low, high, decimals)
    effect = f"${effect}$" if is_number(comparison.effect) else ""
    interval = "" if math.isnan(low) else f"${interval}$"
    against = [latex(comparison.parent)] if several_parents else []
    return [*against, effect, interval, MARKS[comparison.verdict]]


def _split(lines: Sequence[tuple[int, str]]) -> Iterator[list[str]]:
    """Split rows, given with their heights in lines, into floats of about equal height; yield the rows of each."""
    floats = -(-sum(height for height, _ in lines) // _LINES)
    most = -(-sum(height for height, _ in lines) // max(floats, 1))
    part, used = list[str](), 0
    for height, row in lines:
        if part and used + height > max(most, height):
            yield part
            part, used = [], 0
        part.append(row)
        used += height
    yield part


def _caption(table: ComparisonTable, study: JudgedStudy, metric: str, same_seeds: bool, several_parents: bool) -> str:
    measured = table.caption.partition(" Published: ")[0]  # this table has no column of published values
    analysis, sentences = study.measurements.analysis, [f"{table.title}. {measured}"]
    counted = [row for row in table.rows if not row.is_reference]
    if same_seeds and counted:
        sentences.append(f"{plural(counted[0].seeds, 'seed')} per variant.")
    said = latex(" ".join(sentences))
    if not study.comparisons:
        return said
    correction = study.comparisons[0].correction
    base = 'the variant in the column "vs."' if several_parents else study.comparisons[0].parent
    over = {"one": "", "none": "", "bh": " (adjusted for the false discovery rate)"}.get(
        correction.name,
        f" for all {len(correction.tested)} comparisons at once ({correction.name.replace('holm', 'Holm')})",
    )
    interval = f"{confidence(analysis.alpha)} interval{over}"
    effect = f"Effect: difference in {metric} from {base}, above 0 if better, with the {interval}."
    verdicts = {comparison.verdict for comparison in study.comparisons}
    marks = ", ".join(f"{mark} {_MEANINGS.get(name, name)}" for name, mark in MARKS.items() if name in verdicts)
    equivalent = ""
    if "equivalent" in verdicts:
        scope = "; the intervals of these rows are not adjusted" if over else ""
        equivalent = rf" Equivalent: within {latex(f'±{stated(analysis.margin)}')}{scope}."
    return f"{said} {latex(effect)} {marks}.{equivalent}"


def macros_of(table: ComparisonTable, row: Row) -> list[str]:
    """Return the macro name of each cell of a row, made from the column heading or, if headings repeat, the metric."""
    named = [[label(text, "./_") for text in (c.label, c.metric)] for c in table.columns]
    labels, metrics = zip(*named, strict=True)
    columns = labels if len(set(labels)) == len(labels) else metrics
    return [f"{table.study}{table.suffix}/{label(row.name, './_')}/{column}" for column in columns]


def latex(text: str) -> str:
    """Return text that LaTeX prints literally; characters outside Latin-1, which T1 fonts may lack, become `?`."""
    printable = "".join(c if ord(c) < 256 or c in LATEX else "..." if c == "…" else "?" for c in " ".join(text.split()))
    return re.sub("->|[" + re.escape("".join(k for k in LATEX if len(k) == 1)) + "]", lambda m: LATEX[m[0]], printable)


def latex_row(cells: Iterable[str]) -> str:
    r"""Return one table row that is safe after `\midrule` and `\\`, which take a leading `[` or `*` as an argument."""
    row = " & ".join(cells) + r" \\"
    return f"{{}}{row}" if row.startswith(("[", "*")) else row


def label(text: str, more: str = "") -> str:
    """Return text with dashes instead of characters that LaTeX labels do not allow, except the characters in `more`."""
    return re.sub(rf"[^A-Za-z0-9{more}-]", "-", text)
