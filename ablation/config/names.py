"""What the declared forms share: how names look, and models that refuse unknown keys."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def is_safe_name(name: str) -> bool:
    """Return whether a name may become a folder: letters, digits, `.`, `-`, `_`; no leading dot or dash, no `..`."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and len(name) <= 100


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
