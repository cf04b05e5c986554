"""Which code a variant of `demonstrations` uses, by stage and slot; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from ablation.contract.parts import Parts

if TYPE_CHECKING:
    from trainers.demonstrations.config import DemonstrationsConfig


def parts(config: "DemonstrationsConfig", stage: str) -> Parts:
    """Return what `stage` uses."""
    from trainers.demonstrations import in_context_concepts, in_context_text, in_context_vision
    from trainers.objectives import selection

    if stage == "rce" and config.selector.kind == "pointer":
        found = _rewards(config)
        if config.rce.weights == "position":
            found["normalised"] = selection.position_normalised
        return found
    if stage == "grpo" and config.selector.kind == "pointer" and config.grpo.enabled:
        advantages = getattr(selection, f"{config.grpo.advantage}_advantages")
        found = _rewards(config) | {"advantages": advantages}
        if config.grpo.min_positive_ratio is not None:
            found |= {"positives": selection.positives, "trained_queries": selection.trained_queries}
        return found
    if stage in ("learner", "rce", "grpo"):
        return {}
    model = {"concepts": in_context_concepts, "text": in_context_text, "vision": in_context_vision}[config.task.name]
    return {"in_context": model.load}


def _rewards(config: "DemonstrationsConfig") -> Parts:
    """Return the reward of each mode in whose name a selector is trained."""
    from trainers.objectives import selection

    modes = config.per_shot or [config.reward.mode]
    return {f"reward_{mode}": getattr(selection, f"{mode}_rewards") for mode in modes}
