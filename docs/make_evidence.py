"""Write docs/explanation/evidence.md, verdicts on results that others measured. `make evidence` runs it."""

import contextlib
import csv
import io
import itertools
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

import ablation  # noqa: E402
from ablation.cli.main import main  # noqa: E402
from ablation.contract.numbers import estimate, p_equals, p_value  # noqa: E402
from ablation.judge.reference import watch  # noqa: E402

DATA = DOCS.parent / "benchmarks/evidence"
NIGHTS = 4000  # simulated nights of each cell
SPLITS = 400  # of each size

HEAD = """# Evidence

This page compares what this project says about results that others measured with what is known of them. `make evidence`
writes it from [these files](../../benchmarks/evidence/README.md).
"""


SLOPE = 0.0045 / 100  # of the loss by step, as the contest's maintainers use it
COMMON = 3000  # step to which the losses are moved


@dataclass(frozen=True)
class Contest:
    """The last validation loss of each run, moved to one step, {record: losses}, and each record's parent."""

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
    for (record, _), (step, loss) in last.items():
        losses[record].append(loss + SLOPE * (step - COMMON))
    return Contest(dict(losses), parents)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def section(title: str, text: str) -> str:
    """Return a heading and a paragraph in lines of the pages' width."""
    return f"## {title}\n\n{textwrap.fill(' '.join(text.split()), 120)}\n"


# --- a contest without seeds ---------------------------------------------------------------------------------------

STATED = {("9", "11"): 0.69, ("14", "16"): 0.34, ("30", "34"): 0.168}
"""The p that the maintainers print: one-sided, that the child needs fewer steps."""


def reruns_of_records(contest: Contest) -> Iterator[str]:
    """Judge every record by its parent, all as one study, as `import table` and `verdicts` do."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "contest.csv"
        with file.open("w", newline="") as table:
            rows = csv.writer(table)
            rows.writerow(("record", "parent", "run", "val_loss"))
            for record, losses in contest.losses.items():
                rows.writerows((record, contest.parents[record], run, loss) for run, loss in enumerate(losses))
        words = ["import", "table", str(file), "--study", "contest", "--results", folder]
        plan = ["--metric", "val_loss", "--direction", "min", "--margin", "0.001"]
        with contextlib.redirect_stdout(io.StringIO()):
            main([*words, *plan])
        with ablation.open(folder) as results:
            judged = results.verdicts("contest")
    rows = []
    for comparison in judged.itertuples():
        own = [np.array(contest.losses[name]) for name in (comparison.parent, comparison.child)]
        plain = stats.ttest_ind(own[1], own[0], equal_var=False, alternative="less").pvalue
        stated = STATED.get((comparison.parent, comparison.child))
        if stated is None:
            continue
        cells = [
            f"{comparison.parent} -> {comparison.child}",
            f"{len(own[0])}, {len(own[1])}",
            *estimate(comparison.effect, comparison.low, comparison.high),
        ]
        rows.append([*cells, comparison.verdict, p_value(plain), f"{stated:g}"])
    count = sum(map(len, contest.losses.values()))
    words = ", ".join(f"{number} {word}" for word, number in judged["verdict"].value_counts().items())
    yield section(
        "A contest in which nobody set a seed",
        f"""An optimiser contest has {len(contest.losses)} records with {count} runs. No seeds were set, so runs of two
        records share nothing, and machines differ. The last loss of each run is moved to step {COMMON:,} by the
        maintainers' slope. Each record is compared with the one that it started from, corrected for the number of
        comparisons (margin 0.001): {words}. The maintainers print a p for {len(rows)} of them:""",
    )
    head = ("step", "runs", "effect", "95% interval", "verdict", "p of Welch's t, one-sided", "p as printed there")
    yield markdown(head, rows)
    path = ablation.judge(
        np.array(contest.losses["43"])[:, None],
        np.array(contest.losses["30"])[:, None],
        seeds="independent",
        direction="min",
        margin=0.001,
    )
    effect = " ".join(estimate(path.effect, path.low, path.high))
    yield f"\nThe whole way from 30 to 43 is *{path.verdict}*: {effect}, {p_equals(path.p)}.\n"


def splits(contest: Contest) -> Iterator[str]:
    """Split the runs of one record at random into two groups: every verdict of better or worse is false."""
    records = {name: np.array(losses) for name, losses in contest.losses.items() if len(losses) >= 16}
    rng, rows = np.random.default_rng(12), []
    for size in (3, 5, 8):
        false = 0
        for number in range(SPLITS):
            drawn = rng.permutation(records[[*records][number % len(records)]])
            groups = (drawn[:size, None], drawn[size : 2 * size, None])
            result = ablation.judge(*groups, seeds="independent", direction="min", margin=0.001)
            false += result.verdict in ("better", "worse")
        rows.append(f"{false / SPLITS:.1%}")
    yield section(
        "A recipe against itself",
        f"""The runs of each of {len(records)} records are split at random, {SPLITS} times for each size. With 3, 5 and
        8 runs of each, {rows[0]}, {rows[1]} and {rows[2]} of the comparisons are falsely called better or worse
        (standard error {np.sqrt(0.05 * 0.95 / SPLITS):.1%}).""",
    )


# --- two checkpoints -----------------------------------------------------------------------------------------------


def checkpoints() -> Iterator[str]:
    """Judge GSM8K's systems by the first of them, one run each, beside McNemar's exact test."""
    systems = {}
    for file in sorted((DATA / "gsm8k").glob("*.csv")):
        with file.open(newline="") as table:
            systems[file.stem.removeprefix("gsm8k_")] = np.array([float(row["value"]) for row in csv.DictReader(table)])
    rows = []
    parent = next(iter(systems))
    for child in [*systems][1:]:
        before, after = systems[parent], systems[child]
        result = ablation.judge(after, before, margin=0.01)
        gained, lost = int((after > before).sum()), int((after < before).sum())
        exact = stats.binomtest(gained, gained + lost).pvalue
        effect = " ".join(estimate(result.effect, result.low, result.high))
        rows.append(
            [f"{parent} -> {child}", effect, result.verdict, p_value(result.p), f"{gained}, {lost}", p_value(exact)]
        )
    count = len(next(iter(systems.values())))
    yield section(
        "Two checkpoints, one run each",
        f"""Four systems answered the {count:,} test problems of GSM8K, right or wrong. The verdict is about these
        checkpoints; one run of each cannot show whether the recipe is better.""",
    )
    yield markdown(("", "effect, 95% interval", "verdict", "p", "better, worse items", "McNemar's exact p"), rows)


# --- one new run ---------------------------------------------------------------------------------------------------

Alarm = Callable[[np.ndarray, np.ndarray], bool]
"""Whether a check calls a night worse, given past losses and those of the new run and two reruns."""

CHECKS: dict[str, Alarm] = {
    "`ablation nightly`": lambda past, new: watch("loss", "min", [*past], [*new]).outcome == "worse",
    "mean + 2 sd": lambda past, new: bool(new[0] > past.mean() + 2 * past.std(ddof=1)),
    "above the worst of the last ten": lambda past, new: bool(new[0] > past[-10:].max()),
    "fixed: first run + 0.1%": lambda past, new: bool(new[0] > 1.001 * past[0]),
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
    yield section(
        "One new run against the runs that we have",
        f"""{len(records)} records of the contest have 16 runs or more. Past runs, a new run and two reruns are drawn at
        random from one record, {NIGHTS:,} times. The table shows how many of 100 nights are called worse without any
        change, and with a loss that is one or two standard deviations higher (simulation error of a cell at 5%:
        {error:.1f}):""",
    )
    head = ["check", *(f"{count} past runs: {what}" for count in (5, 10) for what in ("no change", "1 sd", "2 sd"))]
    yield markdown(head, rows)
    yield """
A fixed threshold depends on one run, and its percentage has nothing to do with the noise. [Guard a nightly
run](../how-to/nightly.md) has the rule, and its errors if nights drift or carry over."""


# --- what is found, in simulated studies ---------------------------------------------------------------------------


def power() -> Iterator[str]:
    """Show how often effects are found, beside a crossed analysis of variance, and how often where there is none."""
    with (DATA / "power.csv").open(newline="") as file:
        studies = list(csv.DictReader(file))
    yield section(
        "Power beside a crossed analysis of variance",
        """`python -m tests.simulations.test_power` simulates studies of 50, 400 and 1,319 items whose effect is 4
        standard errors (5 with three seeds), and studies without an effect, 300 of each. The table shows the percentage
        that is called better or worse and, in parentheses, that an analysis of variance of seeds and items (or means of
        clusters) calls significant at 5%: lowest and highest of the three sizes. The analysis weights clusters equally,
        this project items, so they answer different questions if clusters are unequal.""",
    )

    def shares(column: str, **chosen: str) -> str:
        alike = [study for study in studies if chosen.items() <= study.items()]
        return "-".join(f"{100 * end(float(study[column]) for study in alike):.0f}" for end in (min, max))

    seeds = list(dict.fromkeys(study["seeds"] for study in studies))
    found, found_by_anova, false, false_by_anova = [*studies[0]][3:]
    rows = []
    for name in dict.fromkeys(study["values"] for study in studies):
        of_seeds = [
            f"{shares(found, values=name, seeds=n)} ({shares(found_by_anova, values=name, seeds=n)})" for n in seeds
        ]
        rows.append([name, *of_seeds, f"{shares(false, values=name)} ({shares(false_by_anova, values=name)})"])
    yield markdown(["values", *(f"found, {count} seeds" for count in seeds), "false, any seeds"], rows)


def page() -> str:
    """Return the page."""
    contest = read_contest()
    pairs = itertools.chain(checkpoints(), [""], reruns_of_records(contest), splits(contest))
    return "\n".join([HEAD, *pairs, *nightly(contest), "", *power()]).rstrip() + "\n"


if __name__ == "__main__":
    (DOCS / "explanation/evidence.md").write_text(page(), encoding="utf-8")
