"""Define an imported study: its analysis plan, table and curves.

What study.yaml leaves out is derived from the names that the runs logged.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ablation.config.import_file import ImportFile, analysis_of, with_known_direction
from ablation.config.names import suggest
from ablation.config.study_schema import Analysis, CurveDefinition, HealthRule, TableDefinition
from ablation.contract.display import joined, listed
from ablation.contract.errors import ConfigError
from ablation.contract.rows import LOGGED, OF_THE_MACHINE
from ablation.plan.keys import key_of
from ablation.plan.plan_file import StudyRecord
from ablation.store.imports import stored
from ablation.store.imports.stored import Record

_MOST_CURVES = 6
_TELLING = 10  # values of curves: two runs that share so many are one
_SCHEDULE = re.compile(r"(^|/)(epoch|learning_rate|lr|step|global_step|num_tokens)", re.IGNORECASE)  # equal in all runs
_FIRST = ("reward", "loss", "kl", "entropy", "accuracy", "length", "score")  # of the names to show or draw

# Health rules for what frameworks of reinforcement learning log, so that a verdict on imported runs warns. The bounds
# are those of the frameworks' own documentation and nightly tests where they state any.
_SAMPLER = {
    "diagnosis": "the sampler's probabilities have drifted away from the trainer's, so the data are off-policy",
    "remedy": "check the weight synchronisation and the precision of sampler and trainer, or apply importance sampling",
}
_ENTROPY = {
    "diagnosis": "the policy has lost nearly all of its entropy, so it no longer explores",
    "remedy": "raise the KL or entropy coefficient or the upper clip range, or lower the learning rate",
}
_CLIPPED = {
    "diagnosis": "the surrogate loss clips a large share of the tokens, so the updates are too large for the data",
    "remedy": "lower the learning rate, or take fewer updates per rollout",
}
_CUT = {
    "diagnosis": "most responses are cut off at the length limit, so their rewards carry little information",
    "remedy": "raise the limit, or penalise long responses",
}
_SPREAD = {
    "diagnosis": "in most groups all rewards are equal, so the advantages are 0 and the policy learns little",
    "remedy": "choose problems that the policy solves in some samples but not in all, or use dynamic sampling",
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


@dataclass
class KnownRun:
    """A stored or newly read run, with its key and the names that it logged."""

    record: Record
    key: str
    metrics: set[str]
    items: set[tuple[str, str, str]]  # protocol, name, subset
    curves: set[str]
    logged: str  # digest of its metrics, without those of the machine; empty if these are few


def known_run(record: Record, key: str, metrics: pa.Table, items: pa.Table | None) -> KnownRun:
    """Return a KnownRun with the names of a run's metrics, items and curves (metrics that are not constant)."""
    rows = metrics.group_by("name").aggregate([("value", "count_distinct")]).to_pylist()
    curves = {row["name"] for row in rows if row["value_count_distinct"] > 1}
    of_training = metrics.filter(pc.invert(pc.match_substring_regex(metrics["name"], OF_THE_MACHINE)))
    telling = {name for name in curves if not _SCHEDULE.search(name)}
    count = sum(name in telling for name in of_training["name"].to_pylist())
    logged = hashlib.sha256(repr(of_training.to_pydict()).encode()).hexdigest() if count >= _TELLING else ""
    kinds = [] if items is None else items.group_by(["protocol", "name", "subset"]).aggregate([]).to_pylist()
    return KnownRun(
        record,
        key,
        {row["name"] for row in rows},
        {(row["protocol"], row["name"], row["subset"]) for row in kinds},
        curves,
        logged,
    )


def plan_analysis(values: Mapping[str, Any], runs: Sequence[KnownRun], where: str) -> Analysis:
    """Return the analysis plan of an imported study.

    Raises ConfigError if the metric, its direction or the margin is missing, or if no run has the metric or items.
    """
    values = with_known_direction(values)
    metrics = sorted(set().union(*(run.metrics for run in runs)))
    items = sorted(set().union(*(run.items for run in runs)))
    wanted = {
        "metric": "--metric NAME or --items PROTOCOL/SUBSET/NAME",
        "direction": "--direction (max, min, or a target such as target:0.5)",
        "margin": "--margin M (the smallest difference that matters)",
    }
    stated = {"metric", *values} if "value" in values else set(values)  # --items names the metric, too
    lacking = [name for name in wanted if name not in stated]
    if lacking:
        kinds = [f"{protocol}/{subset}/{name}" for protocol, name, subset in items]
        logged = listed(sorted(metrics, key=_rank), 12) or "nothing"
        shown = f"logged: {logged}" + (f"; items: {listed(kinds, 12)}" if kinds else "")
        options = ", and ".join(wanted[name] for name in lacking)
        remedy = f"pass {options}, or set {joined(lacking)} under `analysis` in a study.yaml ({shown})"
        missing = f"{joined(lacking)} {'is' if len(lacking) == 1 else 'are'} missing"
        raise ConfigError(where, "analysis", None, missing, remedy)
    analysis = analysis_of(values, where)
    if analysis.protocol == LOGGED:
        for name in analysis.subsets:
            if name not in metrics:
                problem = "no run has logged the metric"
                raise ConfigError(where, "analysis.metric", name, problem, suggest(name, metrics))
        return analysis
    subsets = {subset for protocol, name, subset in items if (protocol, name) == (analysis.protocol, analysis.value)}
    for subset in analysis.subsets:
        if subset not in subsets:
            available = [f"{protocol}/{subset}/{name}" for protocol, name, subset in items]
            asked_for = f"{analysis.protocol}/{subset}/{analysis.value}"
            raise ConfigError(where, "analysis", asked_for, "no run has these items", suggest(asked_for, available))
    return analysis


def _rank(name: str) -> int:
    return next((place for place, word in enumerate(_FIRST) if word in name.lower()), len(_FIRST))


def describe_study(name: str, written: ImportFile, analysis: Analysis, runs: Sequence[KnownRun]) -> StudyRecord:
    """Return the definition of an imported study; what `written` (study.yaml) leaves out is derived from the runs."""
    formats = sorted({run.record.format for run in runs})
    items = [f"{analysis.protocol}/{subset}/{analysis.value}" for subset in analysis.subsets]
    primary = list(analysis.subsets) if analysis.protocol == LOGGED else items
    columns = [{"metric": metric, "label": metric.removesuffix("/value")} for metric in primary]
    table = written.table or TableDefinition.model_validate({"columns": columns})
    curves = _curves(primary, runs) if written.curves is None else written.curves
    return StudyRecord(
        title=written.title or name,
        question=written.question or "What did each change do?",
        source=written.source or f"Imported runs ({', '.join(formats)}).",
        table=table,
        curves=curves,
        figures=[],
        analysis=analysis,
        health=rules_for(set().union(*(run.metrics for run in runs)), formats),
        trained_model=None,
        name=name,
        analysis_digest=key_of(analysis.model_dump(mode="json")),
        published=None,
        last_stage=stored.OUTCOME,
    )


def _curves(primary: Sequence[str], runs: Sequence[KnownRun]) -> list[CurveDefinition]:
    """Return curves for primary metrics and for rewards, losses, entropies and the like that all runs logged."""
    logged = [run.curves for run in runs if run.curves]
    common = sorted(set.intersection(*logged)) if logged else []
    chosen = [name for name in primary if name in common]
    chosen += sorted((name for name in common if _rank(name) < len(_FIRST)), key=_rank)
    return [CurveDefinition(metric=name, label=name) for name in list(dict.fromkeys(chosen))[:_MOST_CURVES]]


def rules_for(metrics: Iterable[str], formats: Sequence[str]) -> list[HealthRule]:
    """Return the health rules that apply to at least one of the metrics, repeated for each format of logs."""
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
