"""Metrics of responses: similarity to the teacher (chrF2, ROUGE-L), the rule's reward, wins by the critic, length."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import pandas as pd
import torch
from sacrebleu.metrics import CHRF
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.gad.config import GadConfig
from trainers.gad.critic import score, teacher_scores_of
from trainers.objectives.discriminators import within_group_correlation
from trainers.policy.measure import frame_of
from trainers.policy.models import Placement
from trainers.policy.responses import Responder
from trainers.policy.sources import load_task
from trainers.policy.supervised import Examples
from trainers.policy.systematic_sampling import Distinct, Keep
from trainers.policy.value_model import ValueModel
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage
from trainers.tasks.interface import Problem, Task, by_rule

_CHRF = CHRF()  # sacreBLEU's defaults: character 6-grams, beta 2, no word n-grams (Popović 2015)
_CHARACTER = "\u3040-\u30ff\u4e00-\u9fff"  # scripts without spaces, in which each character counts as a word
_WORDS = re.compile(rf"[{_CHARACTER}]|[^\W_{_CHARACTER}]+")


def chrf(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the chrF2 of each response with its reference, in [0, 1]; it is 1 if the two are equal."""
    return [_sentence_chrf(*pair) for pair in zip(responses, references, strict=True)]


@lru_cache(maxsize=10_000)  # most responses occur more than once
def _sentence_chrf(response: str, reference: str) -> float:
    return _CHRF.sentence_score(response, [reference]).score / 100


def rouge_l(responses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Return the ROUGE-L (Lin 2004) of each response, in [0, 1]: F1 by the longest common subsequence of words.

    A word is a run of letters and digits, in lower case, or one Chinese or Japanese character.
    """
    pairs = zip(responses, references, strict=True)
    return [_f1(_WORDS.findall(one.lower()), _WORDS.findall(other.lower())) for one, other in pairs]


def _f1(words: Sequence[str], others: Sequence[str]) -> float:
    longest = [0] * (len(others) + 1)  # entry j: length of what the words so far and the first j others have in common
    for word in words:
        before = longest.copy()
        for j, other in enumerate(others):
            longest[j + 1] = before[j] + 1 if word == other else max(before[j + 1], longest[j])
    return 2 * longest[-1] / max(len(words) + len(others), 1)


def rule_of(stage: Stage) -> Task | None:
    """Return the task whose rule rewards responses; None if the rows come from a file."""
    return None if stage.config.task is None else load_task(stage)


def qualities(
    task: Task | None, rows: Sequence[Problem], texts: Sequence[str], ended: Sequence[bool]
) -> dict[str, list[float]]:
    """Return `chrf` of N responses to N rows and, if there is a task, its rule's reward as `rule`."""
    values = {"chrf": chrf(texts, [row.answer for row in rows])}
    if task is not None:
        values["rule"], _ = by_rule(task, rows, texts, ended)
    return values


def quality_metrics(quality: Mapping[str, Sequence[float]], scores: Tensor, group_size: int) -> dict[str, float]:
    """Return the mean of each quality (N,), and its correlation with scores (N,) within groups, if defined."""
    metrics = {f"quality/{name}": sum(values) / len(values) for name, values in quality.items()}
    for name, values in quality.items():
        correlation = within_group_correlation(scores.cpu(), torch.tensor(values), group_size)
        if torch.isfinite(correlation):
            metrics[f"quality/{name}_correlation"] = correlation.item()
    return metrics


def measure(
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Problem],
    *,
    config: GadConfig,
    task: Task | None,
    placement: Placement,
    lengths: Mapping[str, float],
    critic: ValueModel | None,
    micro_batch: MicroBatch,
    greedily: bool = True,
    keep: Keep | None = None,
) -> pd.DataFrame:
    """Return one row per prompt and value for the protocols `greedy` and `sampled` (means over samples).

    The values are chrf, rule (with a task) or rouge_l (without), win (with a critic) and length. Samples are spread
    evenly over a prompt's responses (`policy/systematic_sampling.py`). All variants and training seeds have the same
    sampling seed, so sampling noise largely cancels in their differences.

    lengths: statistics of the teacher's training responses, whose 99th percentile sets the response limit. micro_batch:
    number of responses sampled or scored at once. greedily: whether to measure the protocol `greedy`. keep: called with
    the responses of each protocol.
    """
    settings = config.evaluate
    limit = math.ceil(settings.length_factor * lengths["p99"])
    examples = Examples.of(tokenizer, rows, [row.answer for row in rows]).cut(limit)
    teacher = examples.batch(range(len(rows))).to(placement.device)
    respond, responses = Responder(student, tokenizer, placement), {}
    if greedily:
        sequences, texts = respond(examples.prompts, group_size=1, limit=limit, micro_batch=micro_batch)
        responses["greedy"] = (Distinct.single(sequences), texts)
    responses["sampled"] = respond.evenly(
        examples.prompts,
        samples=settings.samples,
        limit=limit,
        temperature=settings.temperature,
        generator=torch.Generator().manual_seed(settings.seed),
        micro_batch=micro_batch,
    )
    scores_by_prompt = None if critic is None else score(critic, teacher, micro_batch, config.pooling)
    frames = []
    for protocol, (distinct, texts) in responses.items():
        answered = [rows[i] for i in distinct.prompts.tolist()]
        ended = distinct.sequences.ended(tokenizer.eos_token_id).tolist()
        values = qualities(task, answered, texts, ended)
        if task is None:
            values["rouge_l"] = rouge_l(texts, [row.answer for row in answered])
        values["length"] = distinct.sequences.lengths.tolist()
        if critic is not None and scores_by_prompt is not None:
            student_scores = score(critic, distinct.sequences, micro_batch, config.pooling)
            teacher_scores = teacher_scores_of(
                teacher, scores_by_prompt, distinct.sequences, student_scores, distinct.prompts
            )
            values["win"] = (0.5 + 0.5 * (student_scores.pooled - teacher_scores.pooled).sign()).tolist()
        if keep is not None:
            keep(protocol, distinct, texts, values)
        means = {name: distinct.mean(torch.tensor(each, dtype=torch.float64)).tolist() for name, each in values.items()}
        frames.append(frame_of(protocol, [row.id for row in rows], means))
    return pd.concat(frames)
