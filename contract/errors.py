"""Errors that a user can mend. Their text is one line: file, key, value, what is wrong, what to do."""

from pathlib import Path
from typing import Any


class TrackerError(Exception):
    """Base of the errors that the command line and the Snakefile print without a traceback."""


class ConfigError(TrackerError):
    """A configuration that cannot be run."""

    def __init__(self, file: Path | str, key: str, value: Any, problem: str, remedy: str) -> None:
        self.file, self.key, self.value, self.problem, self.remedy = file, key, value, problem, remedy
        where = f"{file}: {key}" if key else str(file)
        shown = "" if value is None else f" = {value!r}"
        super().__init__(f"{where}{shown}: {problem}; {remedy}".replace("\n", " "))
