"""How good responses are, apart from any critic: chrF2 and ROUGE-L to the teacher's text, and the task's rule."""

import re
from collections.abc import Mapping, Sequence

import torch
from sacrebleu.metrics import CHRF
from torch import Tensor

from trainers.gad.rows import Row
from trainers.objectives.diagnostics import within_group_correlation
from trainers.policy.sources import load_task
from trainers.stage import Stage
from trainers.tasks.interface import Task, by_rule

_CHRF = CHRF()  # sacreBLEU's defaults: character 6-grams, beta 2, no word n-grams (Popović 2015)
_CHARACTER = "\u3040-\u30ff\u4e00-\u9fff"  # of a script without spaces: each is a word
_WORDS = re.compile(rf"[{_CHARACTER}]|[^\W_{_CHARACTER}]+")


def chrf(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return a number in [0, 1] for each response: 1 if it is its reference, 0 if they share no character."""
    pairs = zip(responses, references, strict=True)
    return [_CHRF.sentence_score(response, [reference]).score / 100 for response, reference in pairs]


def rouge_l(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return ROUGE-L (Lin 2004) in [0, 1] for each response: the F1 of the longest common subsequence of words.

    Words are lower-case runs of letters and digits; a Chinese or Japanese character is one.
    """
    pairs = zip(responses, references, strict=True)
    return [_f1(_WORDS.findall(one.lower()), _WORDS.findall(other.lower())) for one, other in pairs]


def _f1(words: Sequence[str], others: Sequence[str]) -> float:
    longest = [0] * (len(others) + 1)  # common to the words so far and the first j others
    for word in words:
        before = longest.copy()
        for j, other in enumerate(others):
            longest[j + 1] = before[j] + 1 if word == other else max(before[j + 1], longest[j])
    return 2 * longest[-1] / max(len(words) + len(others), 1)


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
