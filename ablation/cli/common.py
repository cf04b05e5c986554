"""Options and helpers that several commands share. Importing it is cheap: it does not import the database."""

import os
import re
import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ablation.contract.display import json_text, printable
from ablation.contract.errors import ConfigError, check_decoded

if TYPE_CHECKING:
    from ablation.config.settings import Settings
    from ablation.show.gated import Gated
    from ablation.store.database import Store

JSON_SCHEMA = 1  # raised where a key changes its meaning or goes; docs/reference/python.md


def add_results(parser: ArgumentParser) -> None:
    """Add `--results`."""
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="results folder (default: from configs/config.yaml)"
    )


def add_reports(parser: ArgumentParser) -> None:
    """Add `--reports`."""
    parser.add_argument(
        "--reports", type=Path, metavar="DIR", help="reports folder (default: from configs/config.yaml)"
    )


def add_configs(parser: ArgumentParser) -> None:
    """Add `--scale` and `--config`."""
    parser.add_argument("--scale", help="use configs/scales/SCALE.yaml (default: from configs/config.yaml)")
    said = "override settings, as `snakemake --config` does"
    parser.add_argument("--config", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=said)


def add_study(parser: ArgumentParser) -> None:
    """Add an optional STUDY."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help="only this study (default: all)")


def add_pair(parser: ArgumentParser) -> None:
    """Add variants A and B of one study."""
    parser.add_argument(
        "a", metavar="A", help="the baseline: STUDY/VARIANT, or VARIANT if only one study has both A and B"
    )
    parser.add_argument("b", metavar="B", help="the candidate, written the same way")
    parser.add_argument("--study", help="the study of A and B, if they are named without STUDY/")
    add_results(parser)


def add_json(parser: Any) -> None:
    """Add `--json` to a parser, or to a group of options that exclude each other."""
    parser.add_argument("--json", action="store_true", help="print JSON with every value (docs/reference/python.md)")


def add_requirement(parser: ArgumentParser, text: str) -> None:
    """Add `--require`, `--without` and `--markdown`."""
    parser.add_argument("--require", choices=("not-worse", "better", "equivalent"), help=text)
    allowed = "runs that may be missing or failed; the other variant's run with that seed is left out as well"
    parser.add_argument("--without", nargs="+", metavar="VARIANT:SEED", default=[], help=allowed)
    said = "print Markdown, and append it to the file that GITHUB_STEP_SUMMARY names"
    parser.add_argument("--markdown", action="store_true", help=said)


def overrides_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return `--config KEY=VALUE ...` as a map. Raises ConfigError."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("--config", pair, None, "is not KEY=VALUE", "write, for example, scale=smoke")
        overrides[key] = value.strip()
    return overrides


def results_folder(arguments: Namespace, overrides: Mapping[str, Any] | None = None) -> Path:
    """Return `--results`, or the settings' folder; `results` if nothing is configured and runs were imported."""
    if arguments.results is not None:
        check_decoded(Path(arguments.results))
        return Path(arguments.results)
    settings = _settings(overrides)
    return Path("results") if settings is None else settings.results


def reports_folder(arguments: Namespace) -> Path:
    """Return `--reports`, or the settings' folder; `reports` if nothing is configured."""
    if arguments.reports is not None:
        return Path(arguments.reports)
    settings = _settings()
    return Path("reports") if settings is None else settings.reports


def claimed_reports(arguments: Namespace) -> Path:
    """Return the folder of reports. Raises ConfigError if it shows other results."""
    from ablation.plan.collected import claim_reports

    reports = reports_folder(arguments)
    claim_reports(results_folder(arguments), reports)
    return reports


def print_gated(gated: "Gated", *, markdown: bool) -> None:
    """Print the answers of a gate; Markdown also goes to the summary of a CI step, if there is one."""
    from ablation.show.gated import as_markdown, in_words

    if not markdown:
        print(in_words(gated))
        return
    print(text := as_markdown(gated), end="")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)


def print_paths(paths: Iterable[Path]) -> int:
    """Print the files that a command wrote; return its exit status."""
    for path in paths:
        print(path)
    return 0


def price_per_hour() -> float | None:
    """Return `cost_per_device_hour` of the settings; None without settings."""
    settings = _settings()
    return None if settings is None else settings.cost_per_device_hour


def _settings(overrides: Mapping[str, Any] | None = None) -> "Settings | None":
    if not Path("configs").exists():
        return None
    from ablation.config.settings import load_settings  # late: with --results, nothing of it is needed, nor pydantic

    return load_settings(overrides)


def open_store(results: Path, *, strict: bool = False) -> "Store":
    """Return the database of the results, brought up to date. Raises as `load_or_collect`."""
    from ablation.store.current import load_or_collect  # late: it takes a second to import
    from ablation.store.database import Store

    return Store(load_or_collect(results, strict=strict))


_GREEN, _RED, _YELLOW = "32", "31", "33"
_COLOURS = {"better": _GREEN, "worse": _RED, "undecided": _YELLOW, "confounded": _YELLOW, "invalid": _YELLOW}
_COLOURS |= {"error:": _RED, "warning:": _YELLOW}
# A verdict in a column, after a colon or as `is better`, and not the same word within a sentence.
_COLOURED = re.compile(rf"(^|: |\bis |  )({'|'.join(_COLOURS)})(?![\w-])", re.MULTILINE)


class Shown:
    """A stream that escapes control characters, such as ESC in texts from files, and colours verdicts.

    Colour is for terminals, unless NO_COLOR is set (https://no-color.org).
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.colour = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> int:
        """Write the text, escaped and coloured."""
        text = printable(text)
        if self.colour:
            text = _COLOURED.sub(lambda word: f"{word[1]}\x1b[1;{_COLOURS[word[2]]}m{word[2]}\x1b[0m", text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def obeyed(text: str) -> None:
    """Send the terminal a control sequence."""
    getattr(sys.stdout, "stream", sys.stdout).write(text)


def print_json(command: str, rows: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """Print a command's result as JSON: a map for each row of its table, and further values by name."""
    print(json_text({"schema": JSON_SCHEMA, "command": command, "rows": list(rows)} | more))


def terminal_width() -> int:
    """Return the width of paragraphs."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)


def paragraph(text: str, indent: str = "") -> str:
    """Wrap text to the terminal's width; all lines but the first are indented by four more columns."""
    further = f"{indent}    "
    return textwrap.fill(
        text, terminal_width(), initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )
