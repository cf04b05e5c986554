"""DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): sample until enough groups have right and wrong answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trainers.policy.batch import concatenate
from trainers.policy.grpo import Rollout


def informative_groups(sample: Callable[[], Rollout], *, group_size: int, max_rounds: int, padding: int) -> Rollout:
    """Call `sample` at most `max_rounds` times; return as many groups as one call gives, preferably informative ones.

    A group is informative if its answers are neither all right nor all wrong. If there are too few, other groups of the
    last round complete the rollout; they have a policy term only if their rewards differ in another way.
    Metrics are means over all sampled responses, kept or not, so that variants can be compared; `sampling/rounds` and
    `sampling/kept_groups` state the cost.
    """
    rounds, keep, missing = [], [], None
    for _ in range(max_rounds):
        rollout = sample()
        right = rollout.correct.view(-1, group_size).mean(1)
        missing = len(right) if missing is None else missing
        informative = (right > 0) & (right < 1)
        groups = informative.nonzero()[:missing, 0]
        rounds.append(rollout)
        keep.append(_rows(groups, group_size))
        missing -= len(groups)
        if missing == 0:
            break
    kept = sum(len(rows) for rows in keep)
    keep[-1] = torch.cat([keep[-1], _rows((~informative).nonzero()[:missing, 0], group_size)])
    joined = join(rounds, keep, padding)
    cost = {"sampling/rounds": float(len(rounds)), "sampling/kept_groups": kept / group_size}
    return replace(joined, metrics=joined.metrics | cost)


def join(rounds: Sequence[Rollout], keep: Sequence[Tensor], padding: int) -> Rollout:
    """Return one rollout of the rows `keep[i]` of each round i, with the metrics averaged over the rounds."""
    sequences = [each.sequences.select(rows) for each, rows in zip(rounds, keep, strict=True) if len(rows)]
    joined = concatenate(sequences, padding)
    tokens = [each.token_rewards for each in rounds if each.token_rewards is not None]
    width = max((len(each[0]) for each in tokens), default=0)
    padded = [torch.nn.functional.pad(each, (0, width - each.shape[1])) for each in tokens]
    kept = torch.cat([each[rows] for each, rows in zip(padded, keep, strict=True)]) if tokens else None
    return Rollout(
        joined,
        torch.cat([each.rewards[rows] for each, rows in zip(rounds, keep, strict=True)]),
        torch.cat([each.correct[rows] for each, rows in zip(rounds, keep, strict=True)]),
        {name: sum(each.metrics[name] for each in rounds) / len(rounds) for name in rounds[0].metrics},
        None if kept is None else kept[:, : joined.completion_mask.shape[1]],
    )


def _rows(groups: Tensor, group_size: int) -> Tensor:
    return (groups[:, None] * group_size + torch.arange(group_size)).flatten()
