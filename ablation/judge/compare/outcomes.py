"""Combined outcomes of several samples of an item, from the number of right ones.

    pass@k: the chance that any of k samples is right, 1 - C(n - c, k) / C(n, k) (Chen et al., 2021, arXiv 2107.03374)
    cons@k: the chance that most of k samples are right; a tie counts half

Both are of k samples drawn without replacement from the n of an item, c of them right: exact, and without bias.
"""

from dataclasses import dataclass, replace
from math import comb
from typing import Literal

import numpy as np

from ablation.contract.errors import ConfigError
from ablation.readers.sheet import Sheet, short


@dataclass(frozen=True)
class Outcome:
    """`pass` or `cons`, of k samples."""

    kind: Literal["pass", "cons"]
    k: int

    @property
    def option(self) -> str:
        """Of the command."""
        return f"--{self.kind}-at"

    def of(self, samples: int) -> list[float]:
        """The outcome of an item by the number of its samples that are right, 0 to all."""
        return [
            sum(self._weight(j) * _drawn(right, samples, j, self.k) for j in range(self.k + 1))
            for right in range(samples + 1)
        ]

    def _weight(self, right: int) -> float:
        if self.kind == "pass":
            return float(right > 0)
        return float(2 * right > self.k) + 0.5 * (2 * right == self.k)


def _drawn(right: int, samples: int, j: int, k: int) -> float:
    """The chance that j of k drawn samples are right."""
    return comb(right, j) * comb(samples - right, k - j) / comb(samples, k)


def with_outcome(sheet: Sheet, outcome: Outcome) -> Sheet:
    """The sheet with the outcome of each item's samples in place of their mean.

    Raises:
        ConfigError: there are fewer samples of an item, or they are not right or wrong.
    """
    samples = sheet.facts.repeats
    if outcome.k > samples:
        problem = f"items have {samples} sample{'s' * (samples != 1)}"
        raise ConfigError(
            sheet.source, outcome.option, outcome.k, problem, "sample each item more often, or ask for fewer"
        )
    right = sheet.values * samples
    odd = np.flatnonzero((abs(right - right.round()) > 1e-6) | (right < 0) | (right > samples))
    if len(odd) or sheet.facts.larger_is_better is False:
        problem = (
            f"the samples of {short(str(sheet.items[odd[0]]))} are not right or wrong"
            if len(odd)
            else "smaller is better"
        )
        raise ConfigError(
            sheet.source, outcome.option, outcome.k, problem, "name a metric that is 1 or 0 with --metric"
        )
    values = np.array(outcome.of(samples))[right.round().astype(int)]
    facts = replace(sheet.facts, reported=None, stderr=None, larger_is_better=True)
    return replace(sheet, metric=f"{outcome.kind}@{outcome.k} of {sheet.metric}", values=values, facts=facts)
