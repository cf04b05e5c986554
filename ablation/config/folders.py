"""Folders for results and reports: an unsuitable one is refused before anything is written."""

from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.contract.reading import kind_of

# The project's own folders: what a grid writes there would be mixed up with them.
_PROJECT = (".git", ".snakemake", "ablation", "configs", "docs", "tests", "trainers", "workflow")
_RESULTS = ("stages", "imported", "tensorboard", "logs")  # of the results


def folder_of(key: str, value: Any, where: str, project: Path) -> Path:
    """Return the folder that the setting `key` names, with `~` written out. Raises ConfigError where it cannot be one.

    where: the file that holds the value, or `--config`. project: the folder that holds `configs`.
    """
    text = str(value)
    if not text.strip() or not text.isprintable() or set(text) & set("{}*?[]"):
        raise ConfigError(where, key, value, "is not a usable folder", "no braces, wildcards or control characters")
    if text.startswith("-"):  # Snakemake and the tracker get it as an argument
        raise ConfigError(where, key, value, "looks like an option of a command", "do not begin its name with `-`")
    try:
        folder = Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(where, key, value, "there is no such home folder", "write the whole path") from None
    try:
        problem = _problem(folder, project)
    except OSError as error:
        problem = f"cannot be looked at ({error.strerror})"
    if problem:
        raise ConfigError(where, key, value, problem, f"name a new folder, or one of earlier {key}")
    return folder


def check_apart(results: Path, reports: Path, values: dict[str, tuple[Any, str]]) -> None:
    """Raise ConfigError where reports would be among the results. values: what was written for each, and where."""
    place, held = reports.resolve(), results.resolve()
    among = place == held or any(place.is_relative_to(held / name) for name in _RESULTS)
    if among:
        value, where = values["reports"]
        problem = "is the folder of the results as well" if place == held else f"is in the results' own folder {value}"
        raise ConfigError(where, "reports", value, problem, "name another folder")


def _problem(folder: Path, project: Path) -> str:
    """Return why a folder cannot be used, or nothing."""
    for path in (folder, *folder.parents):
        if path.is_symlink() and not path.exists():
            return f"{'' if path == folder else f'{path} '}is a link to {path.readlink()}, which leads nowhere"
        if path.exists():
            if not path.is_dir():
                return f"{'' if path == folder else f'{path} '}is {kind_of(path.stat().st_mode)}"
            break
    place, root = folder.resolve(), project.resolve()
    if root.is_relative_to(place):
        return "is the project's own folder" if root == place else "holds the project itself"
    if any(place.is_relative_to(root / name) for name in _PROJECT):
        return f"is in the project's own folder {place.relative_to(root).parts[0]}"
    return ""
