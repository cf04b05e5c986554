"""Which formulas a configuration asks for. Here and not in `config.py`, because this code counts for a stage's key."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.policy.config import PolicyConfig


def transforms(config: "PolicyConfig") -> list[str]:
    """Return what is done to the importance ratio, in order: smoothing, then one ratio per response."""
    names = ["ema_smoothing"] if config.ema_smoothing is not None else []
    if config.amic:
        names.append("amic")
    elif config.ptrw is not None and config.ratio == "token":
        names.append("sequence_ratio")
    return names


def surrogate(config: "PolicyConfig") -> str:
    """Return the module of the per-token loss."""
    if config.ptrw is not None:
        return "ptrw"
    return "clipped" if config.asymmetric_clip is None else "asymmetric_clip"
