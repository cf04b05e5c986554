"""What several commands do alike."""

import shutil
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.errors import ConfigError
from tracker.config.settings import load_settings, suggest
from tracker.store.database import Store


def check_study(store: Store, command: str, study: str | None) -> None:
    """Refuse the name of a study that is not in the database; None asks for all."""
    if study is not None and study not in store.studies():
        raise ConfigError(command, "STUDY", study, "is not in the database", suggest(study, store.studies()))


def terminal_width() -> int:
    """Return the width of paragraphs."""
    return max(shutil.get_terminal_size((120, 24)).columns, 60)


def results_folder(arguments: Namespace, overrides: Mapping[str, Any] | None = None) -> Path:
    """Return `--results`, or that of the settings; `results` where nothing is configured and runs were imported."""
    if arguments.results is not None or _unconfigured():
        return Path(arguments.results or "results")
    return load_settings(overrides).results


def reports_folder(arguments: Namespace) -> Path:
    """Return `--reports`, or that of the settings; `reports` where nothing is configured."""
    if arguments.reports is not None or _unconfigured():
        return Path(arguments.reports or "reports")
    return load_settings().reports


def _unconfigured() -> bool:
    return not Path("configs").exists()
