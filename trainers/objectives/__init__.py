"""Pure tensor functions: losses, rewards, advantages. They import torch only."""

from typing import Any


def formula(name: str) -> Any:
    """Return the function of this name, in the file of its name; by `__import__`, as `ablation.contract.parts.part`."""
    return getattr(__import__(f"{__name__}.{name}", fromlist=[name]), name)
