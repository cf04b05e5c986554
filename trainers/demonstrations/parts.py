"""Which code a variant of `demonstrations` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from ablation.contract.parts import Parts

if TYPE_CHECKING:
    from trainers.demonstrations.config import DemonstrationsConfig


def parts(config: "DemonstrationsConfig", stage: str) -> Parts:
    """Return what `stage` uses."""
    from trainers.demonstrations import in_context_concepts, in_context_text, in_context_vision
    from trainers.objectives.selection import (
        advantage_position,
        advantage_rank,
        advantage_zscore,
        conditional,
        rce_position,
        rce_rank,
    )

    if stage == "rce" and config.selector.kind == "pointer":
        ranks = {"rank": rce_rank, "position": rce_position}
        found = _rewards(config)
        if config.rce.weights in ranks:
            found["normalised"] = ranks[config.rce.weights].rank_normalised
        return found
    if stage == "grpo" and config.selector.kind == "pointer" and config.grpo.enabled:
        advantages = {"zscore": advantage_zscore, "rank": advantage_rank, "position": advantage_position}
        found = _rewards(config) | {"advantages": advantages[config.grpo.advantage].advantages}
        if config.grpo.min_positive_ratio is not None:
            found |= {"positives": conditional.positives, "trained_queries": conditional.trained_queries}
        return found
    if stage in ("rce", "grpo"):
        return {}
    if stage == "learner":
        return {"train": in_context_concepts.train} if config.task.name == "concepts" else {}
    model = {"concepts": in_context_concepts, "text": in_context_text, "vision": in_context_vision}[config.task.name]
    return {"in_context": model.load}


def _rewards(config: "DemonstrationsConfig") -> Parts:
    """Return the reward of each mode in whose name a selector is trained."""
    from trainers.objectives.selection import reward_hard_plus_soft as hard_plus_soft
    from trainers.objectives.selection import reward_hard_plus_soft_v2 as hard_plus_soft_v2
    from trainers.objectives.selection import reward_hybrid as hybrid
    from trainers.objectives.selection import reward_legacy as legacy
    from trainers.objectives.selection import reward_separated as separated

    modes = {
        "hard_plus_soft": hard_plus_soft,
        "hard_plus_soft_v2": hard_plus_soft_v2,
        "hybrid": hybrid,
        "legacy": legacy,
        "separated": separated,
    }
    return {f"reward_{mode}": modes[mode].rewards for mode in config.per_shot or [config.reward.mode]}
