"""Runs the grid, judges the results, and adds the seeds that are likely to decide most comparisons per device-hour.

Seeds are added only at the interim analyses that the study declares (`interim_analyses: [3, 5, 10]`), so that the
p-values stay valid (`significance.sequential_p`). `ablation.judge.budget` estimates which comparisons are likely to be
decided, and what their seeds cost. Hours are device-hours: wall time times devices (`stages.device_hours`).
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pandas as pd

from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.numbers import alone, counted, device_time, stated
from ablation.judge.budget import Offer, Prices, choose, predict, seeds_wanted, table
from ablation.judge.comparisons import Comparison
from ablation.judge.judged import DECIDED
from ablation.judge.verdicts import JudgedStudy, judge_study
from ablation.plan.plan_file import save_extra_seeds
from ablation.store.current import load_or_collect
from ablation.store.database import DATABASE, Store


@dataclass(frozen=True)
class Tally:
    """The number of decided comparisons (better, worse or equivalent), and the device-hours of the study's stages."""

    decided: int
    hours: float

    def __sub__(self, before: "Tally") -> "Tally":
        """Return the decisions and hours added since an earlier count."""
        return Tally(self.decided - before.decided, self.hours - before.hours)

    def __str__(self) -> str:
        """Return, as text, the decided comparisons, the device-hours, and their ratio."""
        decided = f"{counted(self.decided, 'comparison')} decided in {device_time(self.hours)}"
        return f"{decided} ({alone(self.decided / self.hours)} per device-hour)" if self.hours > 0 else decided


@dataclass(frozen=True)
class Outcome:
    """Result of `decide`: why the rounds ended, the comparisons, and the counts before and after."""

    why: str
    comparisons: list[Comparison]
    before: Tally  # of the seeds that the plan had
    after: Tally
    rounds: int
    offers: Sequence[Offer]  # of the next round, the chosen ones first

    @property
    def spent_hours(self) -> float:
        """Device-hours spent since the start."""
        return self.after.hours - self.before.hours

    def report(self) -> str:
        """Return comparisons decided per device-hour: before, after, and by the added seeds alone."""
        names = {"before": self.before, "after": self.after, "added seeds": self.after - self.before}
        return "\n".join(f"{name}: {tally}" for name, tally in names.items())


def grid_command(study: str, cores: str, gpus: int, settings: Sequence[str]) -> list[str]:
    """Return the Snakemake call of one round; `settings` are key=value pairs of `--config`."""
    config = [*(pair for pair in settings if not pair.startswith("study=")), f"study={study}"]
    pool = ["--cores", cores, "--resources", f"gpu={gpus}"]
    return [sys.executable, "-m", "snakemake", *pool, "--rerun-incomplete", "--keep-going", "--config", *config]


def run_snakemake(command: Sequence[str], output: TextIO | None = None) -> int:
    """Run Snakemake in the foreground; return its exit status."""
    return subprocess.run(command, check=False, stdout=output).returncode


def decide(
    study: str,
    budget_hours: float,
    results: Path,
    run_grid: Callable[[], int],
    say: Callable[[str], None] = print,
    *,
    dry_run: bool = False,
) -> Outcome:
    """Run rounds until all comparisons are decided, the last interim analysis is done, or more seeds cost too much.

    `run_grid` runs the plan and rebuilds the database. It may fail for some runs (their comparisons are invalid), but
    must leave a database. `dry_run`: print what the next round would be, and neither run nor add anything.

    Raises:
        ConfigError: the analysis declares no interim analyses, or the study is not in the database.
    """
    database, rounds, start = results / DATABASE, 0, None
    while True:
        status = 0 if dry_run else run_grid()
        if not database.exists():
            if dry_run:
                raise TrackerError(f"{results} has no database; run the grid first, or leave out --dry-run")
            raise TrackerError(
                f"the grid (exit status {status}) wrote no database in {results}; correct the error that it printed"
            )
        judged, interims, prices = _read(load_or_collect(results, strict=True), study)
        comparisons = judged.comparisons
        hours = float(judged.measurements.stages.drop_duplicates("key")["hours"].sum())
        now = Tally(sum(comparison.verdict in DECIDED for comparison in comparisons), hours)
        start = now if start is None else start
        spent = now.hours - start.hours
        say(f"round {rounds}: {now.decided} of {len(comparisons)} comparisons decided, {device_time(spent)} spent")
        measured, taken = judged.measurements, {comparison.pair: comparison.seeds for comparison in comparisons}
        counts = {variant.name: len(measured.seeds(variant.name)) for variant in measured.variants}
        offers = choose(predict(measured, comparisons), taken, counts, prices, budget_hours - spent)
        wanted = seeds_wanted(offers, counts)
        if offers:
            say(table(offers))
        if not wanted or dry_run:
            why = "dry run" if wanted else _why(offers, interims, budget_hours)
            return Outcome(why, comparisons, start, now, rounds, offers)
        say("adding seeds: " + ", ".join(f"{variant} {counts[variant]} -> {n}" for variant, n in wanted.items()))
        save_extra_seeds(results, study, wanted)
        rounds += 1
        if rounds > len(interims) * max(len(comparisons), 1):
            raise TrackerError("the plan does not include the added seeds; correct the error that the grid printed")


def _why(offers: Sequence[Offer], interims: Sequence[int], budget_hours: float) -> str:
    """Return the reason why no further round is run."""
    reasons = {offer.why_not for offer in offers}
    if not reasons:
        return "every comparison is decided or cannot be judged"
    if "beyond the budget" in reasons:
        return f"more seeds would exceed the budget of {stated(budget_hours)} device-hours"
    if "more seeds cannot decide it" in reasons:
        return "more seeds are unlikely to decide the remaining comparisons"
    return f"the last interim analysis ({interims[-1]} seeds) is done"


def _read(database: Path, study: str) -> tuple[JudgedStudy, list[int], Prices]:
    """Return the judged study, the interim analyses that the study declares, and the cost of more seeds."""
    with Store(database) as store:
        if study not in store.studies():
            raise ConfigError(
                database, "study", study, "is not in the database", "add it to `studies` and run the grid"
            )
        judged, stages = judge_study(store, study), read_seeded_stages(store, study)
    interims = judged.measurements.analysis.interim_analyses
    if not interims:
        remedy = "declare numbers of seeds before there are results, such as `interim_analyses: [3, 5, 10]`"
        file, key = f"configs/studies/{study}/_study.yaml", "analysis.interim_analyses"
        raise ConfigError(file, key, None, "is missing", remedy)
    return judged, list(interims), Prices.from_stages(stages)


def read_seeded_stages(store: Store, study: str) -> pd.DataFrame:
    """Return rows (variant, stage, key, seed, hours) of the seeded stages, in plan order."""
    return store.sql(
        """SELECT r.variant, r.stage, r.key, r.seed, s.device_hours AS hours
           FROM run_stages r JOIN stages s USING (key)
           WHERE r.study = ? AND s.seed IS NOT NULL ORDER BY r.rowid""",
        [study],
    )
