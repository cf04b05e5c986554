"""A student on held-out prompts: nearness to the teacher, the task's rule, the critic's verdict, response length."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.gad.config import GadConfig
from trainers.gad.critic import repeat, score
from trainers.gad.quality import qualities, rule_of
from trainers.gad.rollouts import Rollouts
from trainers.gad.rows import Row
from trainers.micro_batch import MicroBatch
from trainers.policy.placement import Placement
from trainers.policy.value_model import ValueModel

SUBSET = "test"
COLUMNS = ["item", "subset", "protocol", "name", "value"]


def measure(
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    *,
    config: GadConfig,
    placement: Placement,
    lengths: Mapping[str, float],
    critic: ValueModel | None,
    memory: MicroBatch,
) -> pd.DataFrame:
    """Return one row per prompt and value: protocols `greedy` (the most likely response) and `sampled` (means).

    Values: chrf, rule (where the task has one), win (with a critic), length. The sampling seed is the same for all
    variants and seeds, so that differences between them are paired also in their noise. lengths: the teacher's, over
    the training prompts; its 99th percentile sets the limit, so one very long response costs nothing. memory: of
    `evaluate.batch_size` rows, less where the device's memory does not suffice.
    """
    settings, task = config.evaluate, rule_of(config)
    limit = math.ceil(settings.length_factor * lengths["p99"])
    frames = []
    for protocol, samples, temperature in (("greedy", 1, None), ("sampled", settings.samples, settings.temperature)):
        rollouts = Rollouts(student, tokenizer, placement, limit=limit, temperature=temperature)
        generator = torch.Generator().manual_seed(settings.seed)
        sequences, texts = rollouts.sample(rows, group_size=samples, generator=generator, memory=memory)
        values = qualities(task, [row for row in rows for _ in range(samples)], texts)
        values["length"] = sequences.mask.sum(1).tolist()
        if critic is not None:
            teacher = repeat(score(critic, rollouts.teacher(rows), memory, config.pooling), samples)
            diff = score(critic, sequences, memory, config.pooling).pooled - teacher.pooled
            values["win"] = (0.5 + 0.5 * diff.sign()).tolist()
        for name, column in values.items():
            means = torch.tensor(column, dtype=torch.float64).view(-1, samples).mean(1).tolist()
            cells = [(row.id, SUBSET, protocol, name, value) for row, value in zip(rows, means, strict=True)]
            frames.append(pd.DataFrame(cells, columns=COLUMNS))
    return pd.concat(frames)
