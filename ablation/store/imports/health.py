"""Health rules for the metrics that frameworks of reinforcement learning log, so that a verdict on imported runs warns.

The bounds are those of the frameworks' own documentation and nightly tests where they state any.
"""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ablation.config.study_schema import HealthRule

_SAMPLER = {
    "diagnosis": "the sampler's probabilities have drifted away from the trainer's, so the data are off-policy",
    "remedy": "check the weight synchronisation and the precision of both, or apply importance sampling",
}
_ENTROPY = {
    "diagnosis": "the policy has lost nearly all of its entropy, so it no longer explores",
    "remedy": "raise the KL or entropy coefficient or the upper clip range, or lower the learning rate",
}
_CLIPPED = {
    "diagnosis": "the surrogate clips a large share of the tokens, so the updates are too large for their data",
    "remedy": "lower the learning rate, or take fewer updates per rollout",
}
_CUT = {
    "diagnosis": "most responses end at the length limit, where their reward says little",
    "remedy": "raise the limit, or penalise long responses",
}
_SPREAD = {
    "diagnosis": "most groups have equal rewards, so their advantages are 0 and a step teaches little",
    "remedy": "choose problems that are sometimes solved, or sample dynamically",
}
_FINITE = {"diagnosis": "the value is not a finite number", "remedy": "lower the learning rate, or clip the gradient"}

# id, metric, how it is measured, what it means. `*` stands for a prefix such as `train/`.
_RULES: tuple[tuple[str, str, dict[str, Any], dict[str, str]], ...] = (
    ("sampler-drift", "*rollout_corr/kl", {"abs": True, "range": {"max": 0.1}}, _SAMPLER),  # verl
    ("sampler-weights", "*rollout_corr/rollout_is_eff_sample_size", {"range": {"min": 0.3}}, _SAMPLER),
    ("sampler-probabilities", "*rollout_actor_probs_pearson_corr", {"range": {"min": 0.95}}, _SAMPLER),
    ("sampler-difference", "*sampling/sampling_logp_difference/mean", {"range": {"max": 0.1}}, _SAMPLER),  # TRL
    ("sampler-difference-vllm", "*vllm_vs_local_logprob_diff_mean", {"range": {"max": 0.1}}, _SAMPLER),  # open-instruct
    ("sampler-error", "*token_mult_prob_error", {"range": {"max": 1.1}}, _SAMPLER),  # NeMo-RL
    ("sampler-kl", "*gen_kl_error", {"range": {"max": 0.01}}, _SAMPLER),
    *(
        (f"entropy-{name}", metric, {"measure": "ratio", "range": {"min": 0.05}}, _ENTROPY)
        for name, metric in (("trl", "entropy"), ("verl", "actor/entropy*"), ("mean", "*/*entropy_avg"))
    ),
    ("clip-fraction", "actor/pg_clipfrac", {"range": {"max": 0.5}}, _CLIPPED),
    ("clip-ratio", "*clip_ratio/region_mean", {"range": {"max": 0.5}}, _CLIPPED),
    ("cut-responses", "response_length/clip_ratio", {"range": {"max": 0.5}}, _CUT),
    ("cut-completions", "*completions/clipped_ratio", {"range": {"max": 0.5}}, _CUT),
    ("equal-rewards", "*frac_reward_zero_std", {"range": {"max": 0.8}}, _SPREAD),
    ("gradient", "*grad_norm", {"range": {}}, _FINITE),
)
_WINDOW = 3  # values in a row


def rules_for(metrics: Iterable[str], formats: Sequence[str]) -> list[HealthRule]:
    """Return the rules that say something about any of the metrics, for the logs of each format."""
    names = sorted(metrics)
    return [
        HealthRule.model_validate(
            {
                "id": f"{id}-{format.replace('_', '-')}" if number else id,
                **{"stage": format, "metric": metric, "window": _WINDOW, "severity": "warn", **how, **advice},
            }
        )
        for number, format in enumerate(formats)
        for id, metric, how, advice in _RULES
        if any(fnmatchcase(name, metric) for name in names)
    ]
