"""Text of configurations and logs as LaTeX, and the names by which a paper refers to numbers and tables."""

import re
from collections.abc import Iterable

from ablation.show.tables import ComparisonTable, Row

LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"}
LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$"}
LATEX |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "->": r"$\to$", '"': r"\textquotedbl{}"}
PACKAGES = r"\usepackage[T1]{fontenc} \usepackage{booktabs,graphicx,textcomp}"
NO_WIDER_THAN_THE_PAGE = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def macros_of(table: ComparisonTable, row: Row) -> list[str]:
    """The names of a row's macros: from the column headings, or from the metrics if headings are not unique."""
    named = [[label(text, "./_") for text in (c.label, c.metric)] for c in table.columns]
    labels, metrics = zip(*named, strict=True)
    columns = labels if len(set(labels)) == len(labels) else metrics
    return [f"{table.study}{table.suffix}/{label(row.name, './_')}/{column}" for column in columns]


def latex(text: str) -> str:
    """Text that LaTeX prints literally; characters outside Latin-1, which T1 fonts may lack, become `?`."""
    printable = "".join(c if ord(c) < 256 or c in LATEX else "..." if c == "…" else "?" for c in " ".join(text.split()))
    return re.sub("->|[" + re.escape("".join(k for k in LATEX if len(k) == 1)) + "]", lambda m: LATEX[m[0]], printable)


def latex_row(cells: Iterable[str]) -> str:
    r"""One row. `\midrule` and `\\` before it would take a `[` or `*` at its start as their argument."""
    row = " & ".join(cells) + r" \\"
    return f"{{}}{row}" if row.startswith(("[", "*")) else row


def label(text: str, more: str = "") -> str:
    """Text with what LaTeX's labels and macros cannot have replaced by dashes; `more`: what else may stay."""
    return re.sub(rf"[^A-Za-z0-9{more}-]", "-", text)
