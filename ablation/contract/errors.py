"""Errors that a user can fix; each text is one line with file, key, value, problem and remedy."""

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from ablation.contract.display import one_line, printable

_SHOWN = 200  # characters of a value


class TrackerError(Exception):
    """Base of the errors that the command line and the Snakefile print without a traceback."""

    def __str__(self) -> str:
        """Return the text, with escapes for control characters, such as those of a file's name."""
        return printable(super().__str__())


def explained(error: TrackerError | OSError) -> str:
    """Return the text of an error, with one line for each mistake; a permission error gets a remedy."""
    if isinstance(error, ConfigError):
        return "\nerror: ".join(map(str, (error, *error.others)))
    if not isinstance(error, PermissionError) or error.filename is None:
        return str(error)
    remedy = "ask the owner to make this path readable and writable (`chmod -R g+rwX`, and `umask 002` for new files)"
    return printable(f"{error.filename}: cannot be used ({error.strerror}); {remedy}")


class ConfigError(TrackerError):
    """Raised for a configuration or a file that cannot be used; names file, key, value, problem and remedy."""

    def __init__(self, file: Path | str, key: str, value: Any, problem: str, remedy: str) -> None:
        self.file, self.key, self.value, self.problem, self.remedy = file, key, value, problem, remedy
        where = f"{file}: {one_line(key, _SHOWN)}" if key else str(file)
        shown = "" if value is None else f" = {one_line(repr(value), _SHOWN)}"
        self.others: tuple[ConfigError, ...] = ()  # further mistakes that were found with it
        super().__init__(f"{where}{shown}: {problem}; {remedy}".replace("\n", " "))


def check_decoded(folder: Path) -> None:
    """Raise ConfigError for a folder whose path the locale cannot decode, because no JSON or database could hold it."""
    path = str(folder.absolute())
    try:
        path.encode()
    except UnicodeEncodeError:
        remedy = "rename the folder, or set a UTF-8 locale (LANG=C.UTF-8)"
        raise ConfigError(path, "", None, "the path cannot be decoded", remedy) from None


class Mistakes:
    """Collector of ConfigErrors, one from each `with` block, so that all are reported at once.

    mistakes = Mistakes()
    for check in checks:
        with mistakes:
            check()
    mistakes.refuse()
    """

    def __init__(self, found: Iterable[ConfigError] = ()) -> None:
        self.found = list(found)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, ConfigError):
            self.found += [error, *error.others]
        return isinstance(error, ConfigError)

    def refuse(self) -> None:
        """Raise the first ConfigError, whose `others` holds all other errors; do nothing if there were no mistakes."""
        if self.found:
            first, *others = self.found
            first.others = tuple(others)
            raise first
