"""Nights whose truth is known: how often `ablation nightly` asks for reruns and calls a run worse.

`python -m tests.simulations.nights` writes benchmarks/evidence/nights.csv, from which the table in
docs/how-to/nightly.md is made.
Tonight's run and its reruns are made on the same night. They share what the night has from the nights before, and a
part of what is new in it (data or code of that day); the rest is new in each run.
"""

import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from ablation.judge.reference import RERUNS, watch

FILE = Path(__file__).parents[2] / "benchmarks/evidence/nights.csv"
COLUMNS = ("nights", "past runs", "fall in sd", "nights simulated", "asks for reruns", "worse")
COUNTS = (5, 10, 15, 20, 40)

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""(generator, past runs): values of the past runs, then of tonight's run and its reruns; the sd of a run is 1."""


def noise(rng, size):
    return rng.standard_normal(size)


def skewed(rng, size):
    """Log-normal, with the long tail on the side that raises an alarm."""
    return (np.exp(0.5) - np.exp(rng.standard_normal(size))) / np.sqrt(np.exp(2) - np.exp(1))


def carried(rng, count, *, carry=0.0, shared=0.0, drift=0.0, draw=noise):
    """Deviations carry over; `shared` is the part of the variance of what is new that a night's runs have in common."""
    past = lfilter([1], [1, -carry], np.append(draw(rng, 1), np.sqrt(1 - carry**2) * draw(rng, count)))[1:]
    tonight = np.sqrt(shared) * draw(rng, 1) + np.sqrt(1 - shared) * draw(rng, 1 + RERUNS)
    tonight = carry * past[-1] + np.sqrt(1 - carry**2) * tonight
    return np.append(past - drift * np.arange(count), tonight - drift * count)


def of_a_state(rng, count, *, carry):
    """Half of the variance is a state of the night that carries over; the other half is new in each run."""
    state = lfilter([1], [1, -carry], np.append(noise(rng, 1), np.sqrt(1 - carry**2) * noise(rng, count + 1)))[1:]
    return np.sqrt(0.5) * (np.append(state, np.repeat(state[-1:], RERUNS)) + noise(rng, count + 1 + RERUNS))


WORLDS: dict[str, Draw] = {
    "independent": carried,
    "log-normal": partial(carried, draw=skewed),
    "drift of 0.05 sd a night": partial(carried, drift=0.05),
    "autocorrelation 0.7, the rest new in each run": partial(carried, carry=0.7),
    "autocorrelation 0.7, half of the rest new in each run": partial(carried, carry=0.7, shared=0.5),
    "a state with autocorrelation 0.7, half of the variance": partial(of_a_state, carry=0.7),
    "drift of 0.05 sd and autocorrelation 0.7": partial(carried, carry=0.7, drift=0.05),
}


def shares(draw: Draw, count: int, fall: float, nights: int, seed: int = 8) -> tuple[float, float]:
    """Return the shares of nights that ask for reruns, and that are called worse after them."""
    rng, asked, worse = np.random.default_rng(seed), 0, 0
    for _ in range(nights):
        values = [*draw(rng, count)]
        past, new = values[:count], [value - fall for value in values[count:]]
        alarm = watch("reward", "max", past, new[:1], in_order=True).outcome == "undecided"
        asked += alarm
        worse += alarm and watch("reward", "max", past, new, in_order=True).outcome == "worse"
    return asked / nights, worse / nights


def simulate(nights: int) -> None:
    """Write the shares of every world."""
    with FILE.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for name, draw in WORLDS.items():
            for count in COUNTS:
                rows.writerows([name, count, fall, nights, *shares(draw, count, fall, nights)] for fall in (0, 2, 4))


def table() -> list[str]:
    """Return the rows of the table in docs/how-to/nightly.md: from the lowest share of a world to the highest."""
    with FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for count in map(str, COUNTS):
        cells = [count]
        for fall, column, digits in (("0", COLUMNS[4], 0), ("0", "worse", 1), ("2", "worse", 0), ("4", "worse", 0)):
            of = [100 * float(row[column]) for row in rows if (row["past runs"], row["fall in sd"]) == (count, fall)]
            cells.append(f"{min(of):.{digits}f} to {max(of):.{digits}f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    simulate(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
