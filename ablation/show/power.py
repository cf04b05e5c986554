"""The table of `ablation power` as text, and the smallest plans that detect an effect."""

from collections.abc import Iterator

from ablation.contract.display import aligned
from ablation.contract.numbers import (
    bound,
    counted,
    decimals_for,
    device_time,
    duration,
    fixed,
    half,
    money,
    percent,
    stated,
)
from ablation.judge.planning import MOST_SEEDS, Evaluated
from ablation.judge.sizes import EVALUATED, Search


def in_words(search: Search) -> str:
    """Return the table of plans as text, followed by the smallest plans that detect the effect.

    The table shows the comparison with median noise; a column named after the noisiest comparison has its effect.
    """
    heads = {
        "seeds": "seeds",
        "items": "items",
        "samples": "samples",
        "checkpoints": "checkpoints",
        "effect": f"MDE ({percent(search.request.power)} power)",
        "range": "likely range",
        "noisiest": search.pilots[-1].name,
        "hours": "device time",
        "hours_to_run": "to run",
        "cost": "cost",
    }
    rows = search.rows()
    effects = [row[name] for row in rows for name in ("effect", "noisiest")]
    decimals = decimals_for(effects, [half(row["low"], row["high"]) or row["effect"] for row in rows])
    cells = []
    for row in rows:
        shown = {"seeds": str(row["seeds"]), **{name: f"{row[name]:,}" for name in EVALUATED}}
        shown |= {"effect": fixed(row["effect"], decimals), "range": _range(row["low"], row["high"], decimals)}
        if len(search.pilots) > 1:
            shown["noisiest"] = fixed(row["noisiest"], decimals)
        if search.cost is not None:
            for name in ("hours", "hours_to_run"):
                shown[name] = "-" if row[name] is None else duration(3600 * row[name])
            if search.price:
                shown["cost"] = money(row["cost"])
        cells.append(shown)
    once = {name for name in EVALUATED if {row[name] for row in cells} == {"1"}}
    columns = [[heads[name], *(row[name] for row in cells)] for name in heads if name in cells[0] and name not in once]
    table = aligned(list(zip(*columns, strict=True)), [True] * len(columns))
    return "\n".join([*table, "", *smallest(search)])


def _range(low: float, high: float, decimals: int) -> str:
    if low == high:
        return fixed(low, decimals)
    return f"{bound(low, decimals, up=False)} to {bound(high, decimals, up=True)}"


def smallest(search: Search) -> Iterator[str]:
    """Yield a line per comparison with the number of seeds that detect the effect, then lines on other plans."""
    if search.one_run:
        yield from _of_one_run(search)
        return
    first, cheapest = search.first, search.cheapest
    for plan in search.smallest():
        if plan.seeds is None:
            more = (
                "" if plan.more_items is None else f"; {max(search.seeds)} seeds with {plan.more_items:,} items would"
            )
            yield f"{plan.name}: even {MOST_SEEDS} seeds{size(search, first)} would not detect {wanted(search)}{more}"
            continue
        decimals = decimals_for([plan.high], [half(plan.low, plan.high)])
        likely = "" if plan.low == plan.high else f" (likely {_range(plan.low, plan.high, decimals)})"
        best = "; this is the cheapest plan" if plan.hours is not None and cheapest and cheapest[2] == first else ""
        detected = f"{plan.seeds} seeds{size(search, first)} detect {wanted(search)}{likely}"
        yield f"{plan.name}: {detected}{_to_run(search, plan.hours)}{best}"
    if search.cost is None:
        others = [f"or {seeds} seeds{size(search, sizes)}" for sizes, seeds in search.plans.items() if sizes != first]
        if others:
            yield f"{search.middle.name}: {', '.join(others)}"
    elif cheapest and cheapest[2] != first:
        hours, seeds, evaluated = cheapest
        plan_size = f"{seeds} seeds{size(search, evaluated)}"
        yield f"{search.middle.name}: the cheapest plan is {plan_size}{_to_run(search, hours)}"


def _of_one_run(search: Search) -> Iterator[str]:
    """Yield lines on the items that detect an effect between two runs, and on the seeds for several noise levels."""
    items, name = search.enough_items(), search.middle.name
    enough = "even a million items would not" if items is None else f"{items:,} items"
    yield f"{name}: {enough} detect {wanted(search)} between these two runs"
    seeds = [
        f"{count or f'more than {MOST_SEEDS}'} seeds if that SD is {stated(sd)}" for sd, count in search.if_seeds_vary()
    ]
    known = f"one run per side says nothing about the SD between seeds; plans{size(search, search.evaluated[-1])}"
    yield f"{name}: {known} need {', '.join(seeds)} (state the SD with --seed-sd)"


def wanted(search: Search) -> str:
    """Return the effect to detect and the power, in words."""
    return f"an effect of {stated(search.request.effect)} with {percent(search.request.power)} power"


def size(search: Search, evaluated: Evaluated) -> str:
    """Return the size of a plan's evaluation in words, such as ` with 400 items`; empty for a metric without items."""
    items, samples, checkpoints = evaluated
    several = [any(others[place] > 1 for others in search.evaluated) for place in range(3)]
    counts = [counted(items, "item")] if several[0] else []
    counts += [f"{counted(samples, 'sample')} per item"] if several[1] else []
    averaged = f" at {counted(checkpoints, 'checkpoint')}" if several[2] else ""
    return f"{' with ' * bool(counts)}{' and '.join(counts)}{averaged}"


def _to_run(search: Search, hours: float | None) -> str:
    return "" if hours is None else f"; the remaining runs take {device_time(hours, search.price)}"
