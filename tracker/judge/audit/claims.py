"""Claimed changes in percent: do they follow from the printed numbers?"""

from collections.abc import Iterator
from fractions import Fraction

from tracker.config.published_schema import Claim
from tracker.judge.audit.finding import Finding
from tracker.judge.audit.means import is_wrong_mean
from tracker.judge.audit.table import Table


def claim_findings(table: Table) -> Iterator[Finding]:
    """Claims outside of what rounding allows, and claims that rest on a wrong mean."""
    for claim in table.claims:
        new, old = table.number(claim.variant, claim.column), table.number(claim.against, claim.column)
        if new is None or old is None or old.low <= 0:
            continue
        said = f"{claim.variant} against {claim.against}, {claim.column}"
        change = float(100 * (new.exact / old.exact - 1))
        if not follows(table, claim):
            text = (
                f"{said}: the claimed change of {_signed(claim)}% does not follow from the numbers: "
                f"{new} / {old} - 1 = {change:+.1f}%."
            )
            yield Finding("claim", claim.variant, claim.column, "error", text)
        elif claim.column == table.mean:
            wrong = sorted({name for name in (claim.variant, claim.against) if is_wrong_mean(table, name)})
            means = [table.mean_of_parts(name) for name in (claim.variant, claim.against)]
            if not wrong or means[0] is None or not means[1]:
                continue
            fixed = " / ".join(new.show(float(mean or 0)) for mean in means)
            text = (
                f"{said}: the claimed change of {_signed(claim)}% rests on the wrong mean of {' and '.join(wrong)}; "
                f"the means of the parts give {fixed} - 1 = {float(100 * (means[0] / means[1] - 1)):+.1f}%."
            )
            yield Finding("claim", claim.variant, claim.column, "error", text)


def follows(table: Table, claim: Claim) -> bool:
    """Whether some numbers that print as the two cells have the claimed change between them."""
    new, old = table.number(claim.variant, claim.column), table.number(claim.against, claim.column)
    if new is None or old is None or old.low <= 0:
        return True
    low, high = 100 * (new.low / old.high - 1), 100 * (new.high / old.low - 1)
    percent, half = points(claim)
    return percent + half >= low and percent - half <= high


def points(claim: Claim) -> tuple[Fraction, Fraction]:
    """The claimed percentage and half a unit of its last digit, in points, with or without its sign."""
    scale = 100 if claim.percent.percent else 1
    return claim.percent.exact * scale, claim.percent.exact_half * scale


def _signed(claim: Claim) -> str:
    text = claim.percent.text.removesuffix("%")
    return text if text[0] in "+-" else f"+{text}"
