"""Which formulas a configuration asks for. Here and not in `config.py`, because this code counts for a stage's key."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.demonstrations.config import DemonstrationsConfig, Reward


def rewards(config: "DemonstrationsConfig") -> list["Reward"]:
    """Return the rewards of which each trains a selector: one, or those of `per_shot`."""
    return [config.reward.model_copy(update={"mode": mode}) for mode in config.per_shot] or [config.reward]
