"""Pure tensor functions: losses, rewards, advantages. They import torch only."""


def formula(name: str) -> str:
    """Return the dotted name of a formula that a setting chooses: the function of a file of the same name."""
    return f"{__name__}.{name}.{name}"
