"""How good responses are, apart from any critic: near the teacher's text, and right by the task's rule, if any."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainers.gad.rows import Row
from trainers.gad.similarity import chrf
from trainers.objectives.diagnostics import within_group_correlation
from trainers.policy.sources import load_task
from trainers.stage import Stage
from trainers.tasks.interface import Task, by_rule


def rule_of(stage: Stage) -> Task | None:
    """Return the task, if it has a rule that tells good responses; rows of a file have none."""
    return None if stage.config.task is None else load_task(stage)


def qualities(
    task: Task | None, rows: Sequence[Row], texts: Sequence[str], ended: Sequence[bool]
) -> dict[str, list[float]]:
    """Return `chrf` of N responses to their teacher's, and with a rule `rule`; row i belongs to text i."""
    values = {"chrf": chrf(texts, [row.teacher_response for row in rows])}
    if task is not None:
        values["rule"], _ = by_rule(task, [row.problem() for row in rows], texts, ended)
    return values


def quality_metrics(found: Mapping[str, Sequence[float]], scores: Tensor, group_size: int) -> dict[str, float]:
    """Return the means, and the within-group correlation of the critic's scores (N,) with each; undefined ones lack."""
    metrics = {f"quality/{name}": sum(values) / len(values) for name, values in found.items()}
    for name, values in found.items():
        correlation = within_group_correlation(scores.cpu(), torch.tensor(values), group_size)
        if torch.isfinite(correlation):
            metrics[f"quality/{name}_correlation"] = correlation.item()
    return metrics
