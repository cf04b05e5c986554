"""DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): groups that are all right or all wrong teach nothing."""

from collections.abc import Callable
from dataclasses import replace

import torch

from trainers.policy.experience import Experience, join


def collect_informative(
    collect: Callable[[], Experience], *, group_size: int, max_rounds: int, padding: int
) -> Experience:
    """Return as many informative groups as one call of `collect` has groups, from at most `max_rounds` calls.

    Informative: neither all right nor all wrong. If the rounds do not give enough, groups of the last round that are
    not fill the step up, so that it has as many responses as asked for; of these only such have a policy term whose
    rewards differ in something else, format or length. Metrics are means over all responses sampled, kept or not, so
    that they compare with other variants; `sampling/rounds` and `sampling/kept_groups` say what it cost.
    """
    parts, keep, missing = [], [], None
    for _ in range(max_rounds):
        part = collect()
        right = part.correct.view(-1, group_size).mean(1)
        missing = len(right) if missing is None else missing
        informative = (right > 0) & (right < 1)
        groups = informative.nonzero()[:missing, 0]
        parts.append(part)
        keep.append(_rows(groups, group_size))
        missing -= len(groups)
        if missing == 0:
            break
    kept = sum(len(rows) for rows in keep)
    keep[-1] = torch.cat([keep[-1], _rows((~informative).nonzero()[:missing, 0], group_size)])
    found = join(parts, keep, padding)
    extra = {"sampling/rounds": float(len(parts)), "sampling/kept_groups": kept / group_size}
    return replace(found, metrics=found.metrics | extra)


def _rows(groups: torch.Tensor, group_size: int) -> torch.Tensor:
    return (groups[:, None] * group_size + torch.arange(group_size)).flatten()
