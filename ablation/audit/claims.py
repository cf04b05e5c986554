"""Claimed changes in percent, superlatives and bounds: do they follow from the printed numbers?"""

from collections.abc import Iterator

from ablation.audit.counts import Evaluation
from ablation.audit.table import Finding, Table, is_wrong_mean
from ablation.config.published_schema import Claim
from ablation.contract.numbers import percent


def claim_findings(table: Table) -> Iterator[Finding]:
    """Yield claimed changes that rounding cannot explain, or that use a wrong mean."""
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
            fixed = " / ".join(new.show(float(mean or 0)) for mean in means)
            text = (
                f"{said}: the claimed change of {_signed(claim)}% uses the wrong mean of "
                f"{' and '.join(wrong)}; the means of the columns give {fixed} - 1 = "
                f"{percent(float(means[0] / means[1] - 1), 1, '+')}."
            )
            yield Finding("claim", claim.variant, claim.column, "error", text)


def standing_findings(table: Table) -> Iterator[Finding]:
    """Yield numbers that the source wrongly calls the best of their column, or below a bound."""
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
                end = f"a number printed like this is at least {number.show(float(least), more=2)}"
                yield Finding("claim", variant, column, "error", f"{start} below {standing.below}, but {end}.")
            else:
                end = "which can only be true if the number was rounded up"
                yield Finding("claim", variant, column, "warn", f"{start} below {standing.below}, {end}.")


def _signed(claim: Claim) -> str:
    text = claim.percent.text.removesuffix("%")
    return text if text[0] in "+-" else f"+{text}"
