"""The options of a comparison, which the command `compare` and `ablation.compare` share."""

from collections.abc import Sequence
from typing import Literal, get_args

from ablation.config.study_schema import Target, read_direction
from ablation.contract.errors import ConfigError
from ablation.judge.compare.comparison import ComparisonResult, Rules, Weight, compare_files
from ablation.judge.compare.groups import Evaluated
from ablation.judge.design import Claim, Seeds
from ablation.judge.measurements import runs_named
from ablation.judge.outcomes import Outcome
from ablation.readers.sheet import Errors, Wanted


def compare_evaluations(
    sides: Sequence[Evaluated],
    names: Sequence[str] | None = None,
    *,
    by: Sequence[str] = (),
    all_pairs: bool = False,
    metric: str | None = None,
    filter: str | None = None,
    tasks: Sequence[str] = (),
    cluster: str | None = None,
    item: str | None = None,
    direction: str | None = None,
    margin: float | None = None,
    transform: Literal["log"] | None = None,
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
    all_at: int | None = None,
    errors: Errors | None = None,
) -> ComparisonResult:
    """Judge evaluations against the first of them, with the options of the command `compare`.

    Raises:
        ConfigError: an option that is not valid, evaluations that cannot be read or paired, or no way to judge them.
    """
    if margin is not None and not 0 < margin < 1e100:
        raise ConfigError("compare", "--margin", margin, "is not a valid margin", "give a number above 0")
    if not 0 < alpha < 0.5:
        raise ConfigError("compare", "alpha", alpha, "is not a valid level", "give a number between 0 and 0.5")
    if changed_items < 0:
        problem = "is not a valid number of items"
        raise ConfigError("compare", "--changed-items", changed_items, problem, "give 0 or more")
    for name, given, choices in (
        ("--seeds", seeds, get_args(Seeds)),
        ("--claim", claim, get_args(Claim)),
        ("--errors", errors, get_args(Errors)),
        ("--transform", transform, ("log",)),
    ):
        if given is not None and given not in choices:
            raise ConfigError("compare", name, given, "is not a valid choice", f"choose {' or '.join(choices)}")
    outcome = _outcome(pass_at, cons_at, all_at)
    way = read_direction("compare", direction) if direction else None
    if transform and (outcome or isinstance(way, Target)):
        other = outcome.option if outcome else "--direction target"
        raise ConfigError("compare", "--transform", transform, f"cannot be combined with {other}", "leave one out")
    rules = Rules(
        Wanted(metric, filter, tuple(tasks), cluster, item, tuple(by), errors or "refuse"),
        seed_from,
        latest,
        at,
        outcome,
        independent=seeds == "independent" and seed_from is None,
        direction=way,
        margin=margin,
        allow=frozenset(allow),
        without=runs_named("compare", without),
        common_items=common_items,
        weight=weight,
        changed_items=changed_items,
        analysis={"alpha": alpha, "seeds": seeds, "claim": claim, "transform": transform},
    )
    return compare_files(sides, names, rules, all_pairs=all_pairs)


def _outcome(pass_at: int | None, cons_at: int | None, all_at: int | None) -> Outcome | None:
    """Return the statistic of an item's samples that is compared; None for their mean.

    Raises ConfigError for several options, or for a number below 1.
    """
    kinds: dict[Literal["pass", "cons", "all"], int | None] = {"pass": pass_at, "cons": cons_at, "all": all_at}
    given = [Outcome(kind, k) for kind, k in kinds.items() if k is not None]
    if len(given) > 1:
        problem = f"cannot be combined with {given[0].option}"
        raise ConfigError("compare", given[1].option, given[1].k, problem, "leave one out")
    if given and given[0].k < 1:
        raise ConfigError("compare", given[0].option, given[0].k, "is not a valid number of samples", "give 1 or more")
    return given[0] if given else None
