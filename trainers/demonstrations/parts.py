"""Names of the code that a variant of `demonstrations` uses in each stage; see `ablation.contract.parts`."""

from typing import TYPE_CHECKING

from trainers.objectives import formula

if TYPE_CHECKING:
    from trainers.demonstrations.config import DemonstrationsConfig


def parts(config: "DemonstrationsConfig", stage: str) -> dict[str, str]:
    """Return {slot: dotted name} of the code that `stage` uses; slots that the variant does not use are absent.

    in_context: loads the in-context model of the task. <mode>_rewards: takes correctness (0 or 1), soft accuracy (in
    [0, 1]) and the gain over zero-shot (in the unit of `reward.gain`), (Q, N) each, and the settings; returns rewards
    (Q, N). advantages: takes rewards, returns advantages (Q, N). positives: returns a mask (Q, N) of positive
    sequences. trained_queries: returns a mask (Q,) of the queries with enough positive sequences.
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
