"""Which code a variant of `demonstrations` uses, by stage; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from trainers.objectives import formula

if TYPE_CHECKING:
    from trainers.demonstrations.config import DemonstrationsConfig


def parts(config: "DemonstrationsConfig", stage: str) -> dict[str, str]:
    """Return what `stage` uses; a slot that a variant does without is absent.

    in_context: loads the in-context model of the task. <mode>_rewards: rewards (Q, N) of correctness (1 if the query
    was answered right after the sequence, else 0), soft accuracy in [0, 1], gain over zero-shot in the unit of
    `reward.gain`, (Q, N) each, and the settings. advantages: of rewards (Q, N). positives: which sequences are
    positive, (Q, N). trained_queries: which queries have enough of them, (Q,).
    """
    if stage not in ("learner", "rce", "grpo"):
        return {"in_context": f"trainers.demonstrations.in_context_{config.task.name}.load"}
    if stage == "learner" or config.selector.kind != "pointer" or (stage == "grpo" and not config.grpo.enabled):
        return {}
    modes = [*config.per_shot] or [config.reward.mode]
    used = {f"{mode}_rewards": formula(f"{mode}_rewards") for mode in modes}
    if stage == "grpo":
        used["advantages"] = formula(f"{config.grpo.advantage}_advantages")
        if config.grpo.min_positive_ratio is not None:
            used["positives"] = "trainers.objectives.selection.positives"
            used["trained_queries"] = "trainers.objectives.selection.trained_queries"
    return used
