"""Finds the reader of a format: the module of its name, imported when it is asked for."""

from importlib import import_module

from ablation.config.formats import formats_of
from ablation.config.names import suggest
from ablation.contract.errors import ConfigError
from ablation.readers.run import Reader


def load_reader(name: str, use: str = "import") -> Reader:
    """Return the reader of a format. Raises ConfigError if the command does not read it."""
    if name not in formats_of(use):
        raise ConfigError(use, "FORMAT", name, "is not a format", suggest(name, formats_of(use)))
    read: Reader = import_module(f"ablation.readers.{name}").read
    return read
