"""Printed tests, `t(28) = 2.20, p = .036`, computed again from statistic and degrees of freedom.

As statcheck (Nuijten et al. 2016, Behavior Research Methods 48, 1205-1226): a p-value is inconsistent where no
statistic that prints as the one given has it, and the error is gross where it crosses 0.05.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablation.audit.finding import Finding
from ablation.config.printed import Printed
from ablation.config.published_schema import StatedTest

ALPHA = 0.05
_NUMBER = r"[-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"
TEST = re.compile(
    rf"(?P<name>t|F|r|[zZ]|chi2|chi\^2|χ2|χ²|X2)\s*(?:\(\s*(?P<df>\d+(?:\.\d+)?)\s*(?:,\s*(?:[nN]\s*=\s*)?(?P<df2>\d+(?:\.\d+)?)\s*)?\))?"
    rf"\s*=\s*(?P<value>{_NUMBER})\s*[,;]\s*p\s*(?P<sign>[<>=≤≥])\s*(?P<p>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{{1,3}})?)"
)


@dataclass(frozen=True)
class Stated:
    """One test as it is printed."""

    text: str
    name: str  # t, F, r, z or chi2
    first: float | None  # degrees of freedom
    second: float | None
    value: Printed
    sign: str
    p: Printed

    def p_of(self, value: float) -> float:
        """The two-sided p of a value of the statistic."""
        from scipy import special  # imported only if a test is stated

        if self.name == "z":
            return float(2 * special.ndtr(-abs(value)))
        if self.name == "t":
            return float(2 * special.stdtr(self.first, -abs(value)))
        if self.name == "r":
            free = self.first or 0.0
            return (
                0.0 if abs(value) >= 1 else float(2 * special.stdtr(free, -abs(value) * (free / (1 - value**2)) ** 0.5))
            )
        if self.name == "F":
            return float(special.fdtrc(self.first, self.second, max(value, 0.0)))
        return float(special.chdtrc(self.first, max(value, 0.0)))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest p of the statistics that print as the one given."""
        low, high = float(self.value.low), float(self.value.high)
        ends = [self.p_of(low), self.p_of(high), *([1.0] if low <= 0 <= high and self.name in "trz" else [])]
        return min(ends), max(ends)

    def agrees(self, low: float, high: float) -> bool:
        """Whether the printed p can be one between the two."""
        if self.sign in "<≤":
            return low < self.p.value or low == self.p.value == high
        if self.sign in ">≥":
            return high > self.p.value or low == self.p.value == high
        return low <= float(self.p.high) and float(self.p.low) <= high


def find_tests(text: str) -> list[Stated]:
    """Tests in a text. Degrees of freedom are needed for all but z."""
    found = []
    for match in TEST.finditer(text):
        name = {"Z": "z", "t": "t", "F": "F", "r": "r", "z": "z"}.get(match["name"], "chi2")
        first, second = (float(match[part]) if match[part] else None for part in ("df", "df2"))
        if (first is None and name != "z") or (name == "F" and second is None):
            continue
        value = Printed.of(match["value"])
        found.append(Stated(match[0], name, first, second, value, match["sign"], Printed.of(match["p"])))
    return found


def recomputed_findings(tests: Sequence[StatedTest]) -> Iterator[Finding]:
    """Tests whose p-value does not match their statistic."""
    for test in tests:
        for stated in find_tests(test.text):
            low, high = stated.range
            if stated.agrees(low, high):
                continue
            again = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
            start = f"{test.variant}: {stated.text}: the statistic gives p = {again}"
            if stated.name in ("t", "z", "r") and stated.agrees(low / 2, high / 2):
                yield Finding("test", test.variant, "", "note", f"{start}; the printed one is one-sided.")
                continue
            significant = stated.p.value <= ALPHA if stated.sign not in ">≥" else False
            crosses = (low > ALPHA and significant) or (high <= ALPHA and not significant)
            end = f", on the other side of {ALPHA:g}" if crosses else ""
            yield Finding("test", test.variant, "", "error" if crosses else "warn", f"{start}{end}.")
