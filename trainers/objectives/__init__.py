"""Pure tensor functions: losses, rewards, advantages. They import torch only."""


def formula(name: str) -> str:
    """Return the dotted name of the function `name` in the module of the same name."""
    return f"{__name__}.{name}.{name}"
