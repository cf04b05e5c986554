"""A student on held-out prompts: nearness to the teacher, the task's rule, the critic's verdict, response length."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.gad.config import GadConfig
from trainers.gad.critic import score, teachers_of
from trainers.gad.judge import Judge
from trainers.gad.quality import qualities, rouge_l
from trainers.gad.rollouts import Rollouts
from trainers.gad.rows import Row
from trainers.micro_batch import MicroBatch
from trainers.policy.models import Placement
from trainers.policy.spread import Distinct, Keep
from trainers.policy.value_model import ValueModel
from trainers.tasks.interface import Task

SUBSET = "test"
COLUMNS = ["item", "subset", "protocol", "name", "value"]


def measure(
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    *,
    config: GadConfig,
    task: Task | None,
    placement: Placement,
    lengths: Mapping[str, float],
    critic: ValueModel | None,
    memory: MicroBatch,
    judge: Judge | None = None,
    greedily: bool = True,
    keep: Keep | None = None,
) -> pd.DataFrame:
    """Return one row per prompt and value: protocols `greedy` (the most likely response) and `sampled` (means).

    Values: chrf, rule (where the task has one) or rouge_l, win (with a critic), judged (with a judge), length. Samples
    are spread evenly over a prompt's responses (`trainers.policy.spread`). Their seed is the same for all variants and
    seeds, so that differences between them are paired also in their noise. lengths: the teacher's, over the training
    prompts; its 99th percentile sets the limit, so one very long response costs nothing. memory: of
    `evaluate.batch_size` rows, less where there is too little memory. greedily: False leaves the protocol `greedy` out.
    keep: is handed the responses of each protocol.
    """
    settings = config.evaluate
    limit = math.ceil(settings.length_factor * lengths["p99"])
    generator = torch.Generator().manual_seed(settings.seed)
    greedy = Rollouts(student, tokenizer, placement, limit=limit)
    sampled = replace(greedy, temperature=settings.temperature)
    found = {}
    if greedily:
        sequences, texts = greedy.sample(rows, group_size=1, generator=generator, memory=memory)
        found["greedy"] = (Distinct.single(sequences), texts)
    found["sampled"] = sampled.evenly(rows, samples=settings.samples, generator=generator, memory=memory)
    teacher = greedy.teacher(rows)
    teacher_scores = None if critic is None else score(critic, teacher, memory, config.pooling)
    frames = []
    for protocol, (distinct, texts) in found.items():
        asked = [rows[i] for i in distinct.prompts.tolist()]
        ended = distinct.sequences.ended(tokenizer.eos_token_id).tolist()
        values = qualities(task, asked, texts, ended)
        if task is None:
            values["rouge_l"] = rouge_l(texts, [row.teacher_response for row in asked])
        if judge is not None:
            values["judged"] = judge([row.chat for row in asked], texts, [row.teacher_response for row in asked])
        values["length"] = distinct.sequences.mask.sum(1).tolist()
        if critic is not None and teacher_scores is not None:
            scores = score(critic, distinct.sequences, memory, config.pooling)
            pairs = teachers_of(teacher, teacher_scores, distinct.sequences, scores, distinct.prompts)
            values["win"] = (0.5 + 0.5 * (scores.pooled - pairs.pooled).sign()).tolist()
        if keep is not None:
            keep(protocol, distinct, texts, values)
        for name, column in values.items():
            means = distinct.mean(torch.tensor(column, dtype=torch.float64)).tolist()
            cells = [(row.id, SUBSET, protocol, name, value) for row, value in zip(rows, means, strict=True)]
            frames.append(pd.DataFrame(cells, columns=COLUMNS))
    return pd.concat(frames)
