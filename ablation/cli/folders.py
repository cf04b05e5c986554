"""Folders of results and reports. Light: a command without a database must not import one."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablation.config.settings import Settings


def results_folder(arguments: Namespace, overrides: Mapping[str, Any] | None = None) -> Path:
    """Return `--results`, or the settings' folder; `results` if nothing is configured and runs were imported."""
    if arguments.results is not None or _unconfigured():
        return Path(arguments.results or "results")
    return _settings(overrides).results


def reports_folder(arguments: Namespace) -> Path:
    """Return `--reports`, or the settings' folder; `reports` if nothing is configured."""
    if arguments.reports is not None or _unconfigured():
        return Path(arguments.reports or "reports")
    return _settings().reports


def price_per_hour() -> float | None:
    """Return `cost_per_device_hour` of the settings, where there are any."""
    return None if _unconfigured() else _settings().cost_per_device_hour


def _settings(overrides: Mapping[str, Any] | None = None) -> "Settings":
    from ablation.config.settings import load_settings  # late: with --results, nothing of it is needed, nor pydantic

    return load_settings(overrides)


def _unconfigured() -> bool:
    return not Path("configs").exists()
