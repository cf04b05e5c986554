"""Are reported numbers possible, consistent, and larger than chance? Every finding is one sentence with its arithmetic.

    audit(published, measured=None) -> list[Finding]

`published` is the content of `configs/published/*.yaml` (`tracker.config.published_schema`); `measured` our own numbers
beside it (`tracker.judge.audit_measured.measured`). What is tested, and under which assumptions: docs/statistics.md.
Finding.kind is one of KINDS, severity is error (impossible or wrong), warn (unsupported) or note.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations
from math import ceil, sqrt
from typing import Any

import numpy as np

from tracker.judge.audit_finding import Finding
from tracker.judge.audit_reproduction import Measured, cell_findings, delta_findings
from tracker.judge.audit_training import training_findings
from tracker.judge.significance import normal_isf

KINDS = ("mean", "attainability", "claim", "noise", "group", "reproduction", "training")
ALPHA = 0.05
TWO_SIDED = normal_isf(ALPHA / 2)
_EXACT = 1e-9  # slack for binary floating point, far below any printed digit


@dataclass(frozen=True)
class _Reported:
    """A published table with its printed precision."""

    rows: Mapping[str, Mapping[str, float]]
    items: Mapping[str, int]
    batch_size: int | None
    target: float | None  # the numbers are distances from it; None: they are rates
    digits: int
    claims: Sequence[Mapping[str, Any]] = field(default=())

    @property
    def half(self) -> float:
        """Half a unit of the last printed digit."""
        return 0.5 * 10.0**-self.digits

    def show(self, value: float) -> str:
        """Print with the table's own digits."""
        return f"{value:.{self.digits}f}"


def audit(published: Mapping[str, Any], measured: Measured | None = None) -> list[Finding]:
    """Check one published table; findings come in the order of KINDS."""
    table = _reported(published)
    findings = [*_means(table), *_attainability(table), *_claims(table), *_noise(table), *_groups(table)]
    if measured is None:
        return [*findings, *training_findings(published, {}, "")]
    return [
        *findings,
        *cell_findings(table.rows, table.digits, measured),
        *delta_findings(published.get("deltas") or [], measured),
        *training_findings(published, measured.curves, measured.difference),
    ]


def attainable(items: int, batch_size: int | None, target: float | None) -> np.ndarray:
    """Values, sorted, that a rate over `items` yes/no items can take, or its distance from `target`.

    With `batch_size`, the mean of the means of batches of that size; the last batch holds the remainder and weighs as
    much.
    """
    full, rest = divmod(items, batch_size) if batch_size else (0, 0)
    if not batch_size or full == 0 or rest == 0:  # equal batches: the mean of their means is the mean
        rates = np.arange(items + 1) / items
    else:
        whole = np.arange(full * batch_size + 1) / batch_size
        rates = ((whole[:, None] + np.arange(rest + 1) / rest) / (full + 1)).ravel()
    return np.unique(rates if target is None else np.abs(rates - target))


def best_case_p(net_items: float) -> float:
    """Smallest two-sided sign-test p of a difference of `net_items` items: all that differ, differ the same way."""
    return min(1.0, 2.0 ** (1 - ceil(net_items - _EXACT)))


def _reported(published: Mapping[str, Any]) -> _Reported:
    columns = published.get("columns") or []
    rows = {
        name: {column: float(value) for column, value in zip(columns, values, strict=True) if value is not None}
        for name, values in (published.get("rows") or {}).items()
    }
    digits = max((_digits(value) for row in rows.values() for value in row.values()), default=0)
    return _Reported(
        rows=rows,
        items=published.get("items") or {},
        batch_size=published.get("batch_size"),
        target=published.get("target"),
        digits=digits,
        claims=published.get("claims") or (),
    )


def _digits(value: float) -> int:
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _parts(table: _Reported, row: Mapping[str, float]) -> list[float] | None:
    parts = [row[column] for column in table.items if column in row]
    return parts if len(parts) == len(table.items) and len(parts) > 1 else None


def _means(table: _Reported) -> Iterator[Finding]:
    for variant, row in table.rows.items():
        parts = _parts(table, row)
        if "mean" not in row or "mean" in table.items or parts is None:
            continue
        mean, printed = sum(parts) / len(parts), row["mean"]
        if abs(mean - printed) > 2 * table.half + _EXACT:  # each part and the mean are rounded
            sums = f"({' + '.join(table.show(part) for part in parts)}) / {len(parts)} = {table.show(mean)}"
            yield Finding(
                "mean",
                variant,
                "mean",
                "error",
                f"{variant}: the mean is reported as {table.show(printed)}, but {sums}.",
            )


def _attainability(table: _Reported) -> Iterator[Finding]:
    for column, count in table.items.items():
        plain = attainable(count, None, table.target)
        batched = attainable(count, table.batch_size, table.target) if table.batch_size else plain
        for variant, row in table.rows.items():
            if column not in row:
                continue
            value, formula = row[column], f"k/{count}" if table.target is None else f"|k/{count} - {table.target:g}|"
            below, above = _neighbours(plain, value)
            if min(value - below, above - value) <= table.half + _EXACT:
                continue
            near = " and ".join(f"{x:.{table.digits}f}" for x in dict.fromkeys((below, above)) if np.isfinite(x))
            start = f"{variant}, {column}: {table.show(value)} is not {formula} for any integer k (nearest: {near})"
            if not table.batch_size or len(batched) == len(plain):
                yield Finding("attainability", variant, column, "error", f"{start}, so no single run can give it.")
                continue
            low, high = _neighbours(batched, value)
            gap = min(value - low, high - value)
            if gap <= table.half + _EXACT:
                nearest = low if value - low <= high - value else high
                text = f"{start}; as the mean of the means of batches of {table.batch_size} it can be ({nearest:.6f})."
                yield Finding("attainability", variant, column, "warn", text)
            else:
                near = " and ".join(f"{x:.{table.digits + 1}f}" for x in (low, high) if np.isfinite(x))
                text = f"{start}, nor a mean of the means of batches of {table.batch_size} (nearest: {near})."
                yield Finding("attainability", variant, column, "error", text)


def _neighbours(values: np.ndarray, value: float) -> tuple[float, float]:
    index = int(np.searchsorted(values, value))
    below = float(values[index - 1]) if index > 0 else -np.inf
    return below, float(values[index]) if index < len(values) else np.inf


def _claims(table: _Reported) -> Iterator[Finding]:
    wrong_means = {finding.variant for finding in _means(table)}
    for claim in table.claims:
        variant, against, column = claim["variant"], claim["against"], claim["column"]
        new, old = table.rows[variant].get(column), table.rows[against].get(column)
        if new is None or old is None or old - table.half <= 0:
            continue
        claimed, said = float(claim["percent"]), f"{variant} against {against}, {column}"
        slack = 0.5 * 10.0 ** -_digits(claimed)
        low = 100 * ((new - table.half) / (old + table.half) - 1)
        high = 100 * ((new + table.half) / (old - table.half) - 1)
        arithmetic = f"{table.show(new)} / {table.show(old)} - 1 = {100 * (new / old - 1):+.1f}%"
        if claimed + slack < low - _EXACT or claimed - slack > high + _EXACT:
            text = f"{said}: the claimed change of {claimed:+g}% does not follow from the numbers: {arithmetic}."
            yield Finding("claim", variant, column, "error", text)
        elif column == "mean" and (wrong := wrong_means & {variant, against}):
            parts = [_parts(table, table.rows[name]) for name in (variant, against)]
            new, old = (sum(part) / len(part) if part else 0.0 for part in parts)
            if not new or not old:
                continue
            fixed = f"{table.show(new)} / {table.show(old)} - 1 = {100 * (new / old - 1):+.1f}%"
            text = (
                f"{said}: the claimed change of {claimed:+g}% rests on the wrong mean of "
                f"{' and '.join(sorted(wrong))}; the means of the parts give {fixed}."
            )
            yield Finding("claim", variant, column, "error", text)


def _pairs(table: _Reported) -> list[tuple[str, str]]:
    return list(dict.fromkeys((claim["variant"], claim["against"]) for claim in table.claims))


def _rate(table: _Reported, value: float) -> float:
    return value if table.target is None else table.target + value


def noise_of_difference(rates: Sequence[float], items: int) -> float:
    """Standard error of the difference of two rates over `items` items each, unpaired: sqrt(sum p (1 - p) / n)."""
    return sqrt(sum(max(rate * (1 - rate), 0) for rate in rates) / items)


def _noise(table: _Reported) -> Iterator[Finding]:
    for variant, against in _pairs(table):
        inside, hopeless = [], True
        for column, count in table.items.items():
            if column not in table.rows[variant] or column not in table.rows[against]:
                continue
            new, old = table.rows[variant][column], table.rows[against][column]
            error = noise_of_difference([_rate(table, new), _rate(table, old)], count)
            difference, limit = abs(new - old), TWO_SIDED * error
            if difference > limit:
                continue
            # The printed digits hide up to one unit of the difference: give the claim that benefit.
            p = best_case_p((difference + 2 * table.half) * count if difference else 0)
            hopeless &= p > ALPHA
            inside.append(
                f"{column} {table.show(difference)} = {difference * count:.1f} of {count} items "
                f"(1.96 SE {limit:.4f}, best-case p {p:.2g})"
            )
        if inside:
            end = "; however the items pair, no sign test can be significant" if hopeless else ""
            text = f"{variant} against {against}: within the sampling noise of the items: {'; '.join(inside)}{end}."
            yield Finding("noise", variant, "", "warn", text)


def _groups(table: _Reported) -> Iterator[Finding]:
    """Rows that follow each other in the table and that no pairing of the items can tell apart, in any column."""
    names, taken = list(table.rows), -1
    for start in range(len(names)):
        stop = start + 1
        while stop < len(names) and _indistinct(table, names[start : stop + 1]):
            stop += 1
        if stop - start < 3 or stop <= taken:
            continue
        taken = stop
        group, said = names[start:stop], []
        for column, count in table.items.items():
            values = [table.rows[name][column] for name in group if column in table.rows[name]]
            spread = max(values) - min(values)
            limit = TWO_SIDED * noise_of_difference([_rate(table, v) for v in (min(values), max(values))], count)
            said.append(
                f"{column} differs by at most {table.show(spread)} = {spread * count:.1f} of {count} items "
                f"(1.96 SE {limit:.4f}, best-case p {best_case_p((spread + 2 * table.half) * count):.2g})"
            )
        names_said = f"{group[0]} to {group[-1]} ({', '.join(group)})"
        text = f"No difference among {names_said} exceeds the item noise: {'; '.join(said)}."
        yield Finding("group", group[0], "", "warn", text)


def _indistinct(table: _Reported, names: Sequence[str]) -> bool:
    for column, count in table.items.items():
        for first, second in combinations(names, 2):
            if column not in table.rows[first] or column not in table.rows[second]:
                return False
            new, old = table.rows[first][column], table.rows[second][column]
            limit = TWO_SIDED * noise_of_difference([_rate(table, new), _rate(table, old)], count)
            if abs(new - old) > limit or best_case_p((abs(new - old) + 2 * table.half) * count) <= ALPHA:
                return False
    return bool(table.items)
