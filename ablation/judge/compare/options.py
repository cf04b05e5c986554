"""The options of a comparison, which the command `compare` and `ablation.compare` share."""

import math
from collections.abc import Sequence
from typing import get_args

from ablation.config.study_schema import read_direction
from ablation.contract.errors import ConfigError
from ablation.judge.compare.comparison import ComparisonResult, Rules, Weight, compare_files
from ablation.judge.compare.groups import Files, Options
from ablation.judge.design import Claim, Seeds
from ablation.judge.measurements import runs_named
from ablation.judge.outcomes import Outcome
from ablation.readers.arrays import Values
from ablation.readers.sheet import Wanted


def compare_evaluations(
    a: Files | Values,
    b: Files | Values,
    names: Sequence[str] | None = None,
    *,
    metric: str | None = None,
    filter: str | None = None,
    tasks: Sequence[str] = (),
    cluster: str | None = None,
    item: str | None = None,
    direction: str | None = None,
    margin: float | None = None,
    alpha: float = 0.05,
    seed_from: str | None = None,
    seeds: Seeds | None = None,
    claim: Claim | None = None,
    without: Sequence[str] = (),
    at: str | None = None,
    allow: Sequence[str] = (),
    common_items: bool = False,
    latest: bool = False,
    weight: Weight | None = None,
    changed_items: int = 3,
    pass_at: int | None = None,
    cons_at: int | None = None,
) -> ComparisonResult:
    """Judge `b` against `a`, by options as the command has them.

    Raises:
        ConfigError: an option that is not valid, evaluations that cannot be read or paired, or no way to judge them.
    """
    if margin is not None and not 0 < margin < math.inf:
        raise ConfigError("compare", "--margin", margin, "is not a valid margin", "give a number above 0")
    if not 0 < alpha < 0.5:
        raise ConfigError("compare", "alpha", alpha, "is not a valid level", "give a number between 0 and 0.5")
    if changed_items < 0:
        problem = "is not a valid number of items"
        raise ConfigError("compare", "--changed-items", changed_items, problem, "give 0 or more")
    for name, given, choices in (("--seeds", seeds, get_args(Seeds)), ("--claim", claim, get_args(Claim))):
        if given is not None and given not in choices:
            raise ConfigError("compare", name, given, "is not known", f"give {' or '.join(choices)}")
    options = Options(
        Wanted(metric, filter, tuple(tasks), cluster, item),
        seed_from,
        latest,
        at,
        _outcome(pass_at, cons_at),
        independent=seeds == "independent" and seed_from is None,
    )
    rules = Rules(
        direction=read_direction("compare", direction) if direction else None,
        margin=margin,
        allow=frozenset(allow),
        without=runs_named("compare", without),
        common_items=common_items,
        weight=weight or "tasks",
        changed_items=changed_items,
        chosen=options.wanted,
        analysis={"alpha": alpha, "seeds": seeds, "claim": claim},
    )
    return compare_files(a, b, names, options, rules)


def _outcome(pass_at: int | None, cons_at: int | None) -> Outcome | None:
    """The statistic of an item's samples that is compared; None: their mean. Raises ConfigError."""
    given: list[Outcome] = [Outcome("pass", pass_at)] if pass_at is not None else []
    given += [Outcome("cons", cons_at)] if cons_at is not None else []
    if len(given) > 1:
        raise ConfigError("compare", "--cons-at", cons_at, "cannot be combined with --pass-at", "ask for one at a time")
    if given and given[0].k < 1:
        raise ConfigError("compare", given[0].option, given[0].k, "is not a valid number of samples", "give 1 or more")
    return given[0] if given else None
