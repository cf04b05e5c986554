"""Helpers that several commands share."""

import math
from typing import Literal

from ablation.config.names import suggest
from ablation.config.study_schema import Target
from ablation.contract.errors import ConfigError
from ablation.store.database import Store


def check_study(store: Store, command: str, study: str | None) -> None:
    """Refuse the name of a study that is not in the database; None asks for all."""
    if study is not None and study not in store.studies():
        raise ConfigError(command, "STUDY", study, "is not in the database", suggest(study, store.studies()))


def direction(command: str, text: str) -> Literal["max", "min"] | Target:
    """Return the direction of `--direction`. Raises ConfigError."""
    if text in ("max", "min"):
        return "max" if text == "max" else "min"
    name, _, number = text.partition("=")
    try:
        if name == "target" and math.isfinite(float(number)):
            return Target(target=float(number))
    except ValueError:
        pass
    raise ConfigError(command, "--direction", text, "is not a valid direction", "write max, min or target=0.5")
