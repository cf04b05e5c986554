r"""Numbers in a paper: `numbers.tex` has a macro for each, and `check` compares the paper's with the results.

    definitions(numbers) -> text of numbers.tex
    check_paper(paper, now) -> Checked

The paper inputs `numbers.tex` and writes `\ablation{gad/d-final/accuracy}`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_text

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
