"""Writes docs/evidence.md: what this project says about results that others measured. `make evidence` runs it."""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from ablation.judge.reference import watch  # noqa: E402

DATA = DOCS.parent / "benchmarks/evidence"
NIGHTS = 4000  # simulated nights of each cell

HEAD = """# Evidence

What this project says about results that others measured, beside what is known of them. `make evidence` makes this page
from [these files](../benchmarks/evidence/README.md); no number in it is typed.
"""


@dataclass(frozen=True)
class Contest:
    """The last validation loss of each run, {record: losses}, and the record that each started from."""

    losses: dict[str, list[float]]
    parents: dict[str, str]


def read_contest() -> Contest:
    """Read the runs of the optimiser contest."""
    last: dict[tuple[str, str], tuple[int, float]] = {}
    parents: dict[str, str] = {}
    with (DATA / "speedrun/runs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            run = (row["record"], row["run"])
            last[run] = max(last.get(run, (0, 0.0)), (int(row["step"]), float(row["val_loss"])))
            parents[row["record"]] = row["parent"]
    losses = defaultdict(list)
    for (record, _), (_, loss) in last.items():
        losses[record].append(loss)
    return Contest(dict(losses), parents)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


# --- one new run ---------------------------------------------------------------------------------------------------

Alarm = Callable[[np.ndarray, np.ndarray], bool]
"""Whether a check calls a night worse, given past losses and those of the new run and two reruns."""

CHECKS: dict[str, Alarm] = {
    "`gate --reference`": lambda past, new: watch("loss", "min", [*past], [*new]).outcome == "worse",
    "mean + 2 sd": lambda past, new: bool(new[0] > past.mean() + 2 * past.std(ddof=1)),
    "above the worst of the last ten": lambda past, new: bool(new[0] > past[-10:].max()),
    "fixed: first run + 0.1%": lambda past, new: bool(new[0] > 1.001 * past[0]),
    "fixed: first run + 1%": lambda past, new: bool(new[0] > 1.01 * past[0]),
}


def nightly(contest: Contest) -> Iterator[str]:
    """Split real runs of one recipe at random into past and new ones; a worse recipe is these plus one or two sd."""
    records = {name: np.array(losses) for name, losses in contest.losses.items() if len(losses) >= 16}
    rng = np.random.default_rng(11)
    rows = []
    for name, check in CHECKS.items():
        cells = []
        for count in (5, 10):
            for fall in (0, 1, 2):
                worse = 0
                for night in range(NIGHTS):
                    losses = records[[*records][night % len(records)]]
                    drawn = rng.permutation(losses)[: count + 3]
                    worse += check(drawn[:count], drawn[count:] + fall * losses.std(ddof=1))
                cells.append(f"{100 * worse / NIGHTS:.1f}")
        rows.append([name, *cells])
    error = 100 * np.sqrt(0.05 * 0.95 / NIGHTS)
    yield f"""## One new run against the runs that we have

{len(records)} records of the contest have 16 runs and more. Past runs, a new run and two reruns are drawn at random
from one record, {NIGHTS:,} times. Of 100 nights without any change, and of 100 with a loss that is one or two standard
deviations higher, so many are called worse (simulation error of a cell at 5%: {error:.1f}):
"""
    head = ["check", *(f"{count} past runs: {what}" for count in (5, 10) for what in ("no change", "1 sd", "2 sd"))]
    yield markdown(head, rows)
    yield """
A fixed threshold is right only by luck: it depends on one run and on a percentage that has nothing to do with the
noise. [How to use it](nightly.md)."""


def page() -> str:
    """Return the page."""
    contest = read_contest()
    return "\n".join([HEAD, *nightly(contest)]).rstrip() + "\n"


if __name__ == "__main__":
    (DOCS / "evidence.md").write_text(page(), encoding="utf-8")
