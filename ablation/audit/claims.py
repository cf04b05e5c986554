"""Check whether claims follow from the printed numbers, and whether claimed differences exceed sampling noise.

The noise of a difference assumes that two rows share no items; rows that share items differ less by chance.
"""

from collections.abc import Iterator, Sequence
from math import ceil, sqrt

from ablation.audit.counts import Evaluation, item_weights
from ablation.audit.table import Finding, Table, is_wrong_mean
from ablation.config.printed import Printed
from ablation.config.published_schema import Claim
from ablation.contract.numbers import fixed, p_value, percent

ALPHA = 0.05
TWO_SIDED = 1.959963984540054  # the number that a standard normal exceeds with probability ALPHA / 2
_EXACT = 1e-9  # slack for binary floating point, far below any printed digit


def claim_findings(table: Table) -> Iterator[Finding]:
    """Yield a finding for each claimed change that rounding cannot explain, or that uses a wrong printed mean."""
    for claim in table.claims:
        new, old = table.number(claim.variant, claim.column), table.number(claim.against, claim.column)
        if new is None or old is None or old.low <= 0:
            continue
        said = f"{claim.variant} against {claim.against}, {claim.column}"
        scale = 100 if claim.percent.percent else 1
        stated_change, half = claim.percent.exact * scale, claim.percent.exact_half * scale
        low, high = 100 * (new.low / old.high - 1), 100 * (new.high / old.low - 1)
        # no two numbers that print as these cells give it
        if stated_change + half < low or high < stated_change - half:
            text = (
                f"{said}: the claimed change of {_signed(claim)}% does not follow from the numbers, because "
                f"{new} / {old} - 1 = {percent(float(new.exact / old.exact - 1), 1, '+')}."
            )
            yield Finding("claim", claim.variant, claim.column, "error", text)
        elif claim.column == table.mean:
            wrong = sorted({name for name in (claim.variant, claim.against) if is_wrong_mean(table, name)})
            means = [table.mean_of_parts(name) for name in (claim.variant, claim.against)]
            if not wrong or means[0] is None or not means[1]:
                continue
            ratio = " / ".join(new.show(float(mean or 0)) for mean in means)
            text = (
                f"{said}: the claimed change of {_signed(claim)}% is based on "
                f"{'a wrong printed mean' if len(wrong) == 1 else 'wrong printed means'} ({' and '.join(wrong)}); "
                f"the means of the columns give {ratio} - 1 = {percent(float(means[0] / means[1] - 1), 1, '+')}."
            )
            yield Finding("claim", claim.variant, claim.column, "error", text)


def standing_findings(table: Table) -> Iterator[Finding]:
    """Yield a finding for each number that the source wrongly calls the best of its column, or below a bound."""
    for standing in table.standings:
        variant, column, number = standing.variant, standing.column, table.number(standing.variant, standing.column)
        if number is None:
            continue
        start = f"{variant}, {column}: {number} is called"
        if standing.best:
            better = {
                name: rival
                for name, rival in table.column(column).items()
                if (rival.exact < number.exact if table.least_is_best else rival.exact > number.exact)
            }
            if better:
                listed = ", ".join(f"{name} has {rival}" for name, rival in better.items())
                yield Finding("claim", variant, column, "error", f"{start} the best, but {listed}.")
        elif standing.below is not None and number.exact >= standing.below.exact:
            inside = [number.low]
            if column in table.items and (table.runs or 1) == 1:
                evaluation = Evaluation(table.items[column], table.batches, table.target)
                inside = list(evaluation.batched.inside(number.low, number.high)) or inside
            least = min(inside)
            if least >= standing.below.exact:
                end = f"the unrounded number is at least {number.show(float(least), more=2)}"
                yield Finding("claim", variant, column, "error", f"{start} below {standing.below}, but {end}.")
            else:
                end = "which can only be true if the number was rounded up"
                yield Finding("claim", variant, column, "warn", f"{start} below {standing.below}, {end}.")


def _signed(claim: Claim) -> str:
    text = claim.percent.text.removesuffix("%")
    return text if text[0] in "+-" else f"+{text}"


def best_case_p(net_items: float) -> float:
    """Return the smallest two-sided sign-test p for a net change of `net_items` items, reached if all change alike."""
    return min(1.0, 2.0 ** (1 - ceil(net_items - _EXACT)))


def noise_of_difference(rates: Sequence[float], items: float) -> float:
    """Return the standard error of the difference between two unpaired rates: `sqrt(sum(p * (1 - p)) / items)`."""
    return sqrt(sum(max(rate * (1 - rate), 0) for rate in rates) / items)


def noise_findings(table: Table) -> Iterator[Finding]:
    """Yield a finding for each claimed pair of rows whose difference is within 1.96 standard errors in any column."""
    for variant, against in dict.fromkeys((claim.variant, claim.against) for claim in table.claims):
        inside, hopeless = [], True
        for column, items in table.items.items():
            new, old = table.number(variant, column), table.number(against, column)
            if new is None or old is None:
                continue
            limit = _limit(table, new, old, items)
            difference = abs(new.value - old.value)
            if difference > limit:
                continue
            hopeless &= _best_case(new, old, items) > ALPHA
            inside.append(f"{column} {_said(new, old, items, limit)}")
        if inside:
            end = "; no sign test can be significant, however the items are paired" if hopeless else ""
            what = f"the difference is within the sampling noise of the items ({'; '.join(inside)})"
            text = f"{variant} against {against}: {what}{end}."
            yield Finding("noise", variant, "", "warn", text)


def _limit(table: Table, new: Printed, old: Printed, items: int) -> float:
    squares = sum(count * float(weight) ** 2 for weight, count in item_weights(items, table.batches).items())
    return TWO_SIDED * noise_of_difference([table.rate(new.value), table.rate(old.value)], 1 / squares)


def _best_case(new: Printed, old: Printed, items: int) -> float:
    """Return the smallest sign-test p of any difference that the rounding of both numbers allows."""
    return best_case_p((abs(new.value - old.value) + new.half + old.half) * items if new.exact != old.exact else 0)


def _said(new: Printed, old: Printed, items: int, limit: float) -> str:
    difference = abs(new.value - old.value)
    finer = min(new, old, key=lambda number: number.exact_half)
    return (
        f"{finer.show(difference)} = {fixed(difference * items, 1)} of {items} items, "
        f"1.96 SE = {finer.show(limit)}, smallest possible p {p_value(_best_case(new, old, items))}"
    )
