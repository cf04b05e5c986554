"""Options and helpers that several commands share. The settings and the database are imported only on use."""

import os
import re
import shutil
import textwrap
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ablation.contract.display import json_text, printable
from ablation.contract.errors import ConfigError, check_decoded

if TYPE_CHECKING:
    from ablation.config.settings import Settings
    from ablation.show.gated import Gated
    from ablation.store.database import Store

JSON_SCHEMA = 1  # increased if a key is removed or changes its meaning; docs/reference/python.md


_SHARED: dict[str, dict[str, Any]] = {
    "--results": {
        "type": Path,
        "metavar": "DIR",
        "help": "results folder (default: from configs/config.yaml)",
    },
    "--reports": {
        "type": Path,
        "metavar": "DIR",
        "help": "reports folder (default: from configs/config.yaml)",
    },
    "--scale": {"help": "use configs/scales/SCALE.yaml (default: from configs/config.yaml)"},
    "--config": {
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "override settings, as `snakemake --config` does",
    },
    "--json": {"action": "store_true", "help": "print JSON with every value (docs/reference/python.md)"},
    "study": {"nargs": "?", "metavar": "STUDY", "help": "only this study (default: all)"},
    "a": {"metavar": "A", "help": "the baseline: STUDY/VARIANT, or VARIANT if only one study has both A and B"},
    "b": {"metavar": "B", "help": "the candidate, as STUDY/VARIANT or VARIANT"},
    "--study": {"help": "the study of A and B, if neither name contains STUDY/"},
    "--without": {
        "nargs": "+",
        "metavar": "VARIANT:SEED",
        "default": [],
        "help": "leave out these runs, even missing or failed ones, and the other variant's runs with the same seeds",
    },
    "--markdown": {
        "action": "store_true",
        "help": "print Markdown; if GITHUB_STEP_SUMMARY names a file, also append it to this file",
    },
}
REQUIREMENTS = ("not-worse", "better", "equivalent")


def add_shared(parser: Any, *names: str) -> None:
    """Add the shared options with these names to a parser, or to a group of its options."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def overrides_of(pairs: Iterable[str]) -> dict[str, str]:
    """Return the `KEY=VALUE` texts of `--config` as {key: value}. Raises ConfigError for any other text."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError("--config", pair, None, "is not KEY=VALUE", "write KEY=VALUE, such as scale=smoke")
        overrides[key] = value.strip()
    return overrides


def results_folder(arguments: Namespace, overrides: Mapping[str, Any] | None = None) -> Path:
    """Return the folder given by `--results`, else by the settings; without settings, return `results`."""
    if arguments.results is not None:
        check_decoded(Path(arguments.results))
        return Path(arguments.results)
    settings = _settings(overrides)
    return Path("results") if settings is None else settings.results


def reports_folder(arguments: Namespace) -> Path:
    """Return the folder given by `--reports`, else by the settings; without settings, return `reports`."""
    if arguments.reports is not None:
        return Path(arguments.reports)
    settings = _settings()
    return Path("reports") if settings is None else settings.reports


def claimed_reports(arguments: Namespace) -> Path:
    """Return the reports folder. Raises ConfigError if it already holds the reports of another results folder."""
    from ablation.plan.collected import claim_reports

    reports = reports_folder(arguments)
    claim_reports(results_folder(arguments), reports)
    return reports


def print_gated(gated: "Gated", *, markdown: bool) -> None:
    """Print the answers of a gate; with `markdown`, also append them to the summary of the CI step, if there is one."""
    from ablation.show.gated import as_markdown, in_words

    if not markdown:
        print(in_words(gated))
        return
    print(text := as_markdown(gated), end="")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)


def print_paths(paths: Iterable[Path]) -> int:
    """Print the paths of the files that a command wrote; return 0, the exit status."""
    for path in paths:
        print(path)
    return 0


def price_per_hour() -> float | None:
    """Return the setting `cost_per_device_hour`; None if it is not set or there are no settings."""
    settings = _settings()
    return None if settings is None else settings.cost_per_device_hour


def _settings(overrides: Mapping[str, Any] | None = None) -> "Settings | None":
    if not Path("configs").exists():
        return None
    from ablation.config.settings import load_settings  # late: with --results, nothing of it is needed, nor pydantic

    return load_settings(overrides)


def open_store(results: Path, *, strict: bool = False) -> "Store":
    """Open the database of the results, after updating it if necessary.

    Raises TrackerError if there are no results, or, with `strict`, if the database cannot be updated.
    """
    from ablation.store.current import load_or_collect  # late: it takes a second to import
    from ablation.store.database import Store

    return Store(load_or_collect(results, strict=strict))


_GREEN, _RED, _YELLOW = "32", "31", "33"
_COLOURS = {"better": _GREEN, "worse": _RED, "undecided": _YELLOW, "confounded": _YELLOW, "invalid": _YELLOW}
_COLOURS |= {"error:": _RED, "warning:": _YELLOW}
# A verdict in a column, after a colon or in `is better`, but not the same word elsewhere in a sentence.
_COLOURED = re.compile(rf"(^|: |\bis |  )({'|'.join(_COLOURS)})(?![\w-])", re.MULTILINE)


class Shown:
    """A stream that escapes control characters, such as ESC in texts from files, and colours verdicts.

    Verdicts are coloured only on terminals, and only if NO_COLOR is not set (https://no-color.org).
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


def print_json(command: str, rows: Iterable[Mapping[str, Any]], **more: Any) -> None:
    """Print a command's result as JSON: an object for each row of its table, and further values by name."""
    print(json_text({"schema": JSON_SCHEMA, "command": command, "rows": list(rows)} | more))


def terminal_width() -> int:
    """Return the width of the terminal in characters, but at least 60; 120 if it is not known."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)


def paragraph(text: str, indent: str = "") -> str:
    """Wrap text to the width of the terminal; all lines but the first are indented by four more spaces."""
    later = f"{indent}    "
    return textwrap.fill(text, terminal_width(), initial_indent=indent, subsequent_indent=later, break_on_hyphens=False)
