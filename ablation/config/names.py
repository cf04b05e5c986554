"""Shared by the configuration's schemas: valid names, what they tell, and models that refuse unknown keys."""

import difflib
import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ablation.contract.display import listed, one_line
from ablation.contract.errors import ConfigError

_Each = TypeVar("_Each", bound=Hashable)
RESERVED_KEYS = ("extends", "why", "gpu", "between")  # of a variant file; no config model may have them
NO_VARIANT = "there is no such variant"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SMALLER = re.compile(  # loss, train/loss and lossTotal, not lossless; valMSE and val_mse, not answer_acc
    r"(?i:loss(es)?)(?![a-z])|(?i:perplexity|bits_per_byte|cross_?entropy|error|regret)"
    r"|(?<![A-Za-z])(?i:bpb|ppl|nll|err|wer|cer|mae|mse|rmse)(?![a-z])"
    r"|(?<=[a-z])(BPB|PPL|NLL|WER|CER|MAE|MSE|RMSE)(?![a-z])"
)


def is_safe_name(name: str) -> bool:
    """Return whether a name may become a folder: letters, digits, `.`, `-`, `_`; no leading dot or dash, no `..`."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and len(name) <= 100


def suggest(name: str, known: Iterable[object], what: str = "known") -> str:
    """Return the remedy for an unknown name: the closest match if there is one, and the known names after `what`."""
    names = [one_line(other, 200) for other in known]
    close = difflib.get_close_matches(str(name)[:200], names, n=1)  # of a very long one it would take minutes
    return (f"did you mean {close[0]!r}? " if close else "") + f"{what}: {listed(names, 25) or 'none'}"


def smaller_is_better(metric: str) -> bool:
    """Return whether a metric's name says that smaller values are better: a loss, a perplexity, an error."""
    return _SMALLER.search(metric) is not None


def check_name(name: str, known: Iterable[str], file: Path | str, key: str, problem: str) -> None:
    """Refuse a name that is not among the known ones. Raises ConfigError, which suggests the closest."""
    names = list(known)
    if name not in names:
        raise ConfigError(file, key, name, problem, suggest(name, names))


def distinct(values: tuple[_Each, ...]) -> tuple[_Each, ...]:
    """Return the values. Raises ValueError where two are equal."""
    if len(set(values)) != len(values):
        raise ValueError("holds a value twice; list each once")
    return values


def _simple(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError("must be lower-case letters, digits and underscores, starting with a letter")
    return name


def _dotted(path: str) -> str:
    if not all(part.isidentifier() for part in path.split(".")):
        raise ValueError("must be a dotted module path")
    return path


StageName = Annotated[str, AfterValidator(_simple)]
Module = Annotated[str, AfterValidator(_dotted)]
Text = Annotated[str, Field(min_length=1)]


class Strict(BaseModel):
    """Unknown keys are errors, and values stay as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)
