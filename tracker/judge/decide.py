"""More seeds until decided: run the grid, judge the edges, add seeds where they are still undecided, within a budget.

    decide(study, budget_hours, results, run_grid, say=print) -> Outcome

Seeds are added at the looks that the study's analysis declares (`looks: [3, 5, 10]`) and no others, so that the
p-values of `tracker.judge.edges` (tracker/judge/sequential.py) hold however often one looked. Hours are
device-hours: wall time times devices (`stages.device_hours`).
"""

import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.errors import ConfigError, TrackerError
from tracker.judge.edges import Edge
from tracker.judge.verdicts import JudgedStudy, judge_study
from tracker.plan.extra_seeds import save_extra_seeds
from tracker.store.database import DATABASE, Store


@dataclass(frozen=True)
class Outcome:
    """How it ended: why, the study's edges, and the device-hours spent since the start."""

    why: str
    edges: list[Edge]
    spent_hours: float
    rounds: int


def grid_command(study: str, cores: str, gpus: int, settings: Sequence[str]) -> list[str]:
    """The Snakemake call of one round; `settings` are key=value pairs of `--config`."""
    config = [*(pair for pair in settings if not pair.startswith("study=")), f"study={study}"]
    pool = ["--cores", cores, "--resources", f"gpu={gpus}"]
    return [sys.executable, "-m", "snakemake", *pool, "--rerun-incomplete", "--keep-going", "--config", *config]


def run_snakemake(command: Sequence[str]) -> int:
    """Run it in the foreground; return its exit status."""
    return subprocess.run(command, check=False).returncode


def decide(
    study: str,
    budget_hours: float,
    results: Path,
    run_grid: Callable[[], int],
    say: Callable[[str], None] = print,
) -> Outcome:
    """Run rounds until every edge is decided, the last look is taken, or the next round would exceed the budget.

    `run_grid` runs what the plan asks for and rebuilds the database. It may fail for some runs (their edges are
    invalid), but must leave a database.

    Raises:
        ConfigError: the analysis declares no looks, or the study is not in the database.
    """
    database, rounds, start = results / DATABASE, 0, None
    while True:
        status = run_grid()
        if not database.exists():
            raise TrackerError(f"the grid left no database in {results} (exit status {status})")
        judged, looks, per_seed = _read(database, study)
        edges, measurements = judged.edges, judged.measurements
        counts = {variant.name: len(measurements.seeds(variant.name)) for variant in measurements.variants}
        total = float(measurements.stages.drop_duplicates("key")["hours"].sum())
        start = total if start is None else start
        spent = total - start
        undecided = [edge for edge in edges if edge.detail == "undecided"]
        open_edges = sorted(undecided, key=lambda edge: (math.isnan(edge.p_adjusted), edge.p_adjusted))
        say(f"round {rounds}: {len(edges) - len(open_edges)} of {len(edges)} edges decided, {spent:.3f} device-hours")
        if not open_edges:
            return Outcome("every edge is decided or cannot be judged", edges, spent, rounds)
        wanted, left_out = _next_round(open_edges, looks, counts, per_seed, budget_hours - spent)
        if not wanted:
            why = (
                f"the budget of {budget_hours:g} device-hours is used up"
                if left_out
                else f"the last look ({looks[-1]} seeds) is taken"
            )
            return Outcome(why, edges, spent, rounds)
        before = {variant: counts[variant] for variant in wanted}
        say("adding seeds: " + ", ".join(f"{variant} {before[variant]} -> {n}" for variant, n in wanted.items()))
        save_extra_seeds(results, study, wanted)
        rounds += 1
        if rounds > len(looks) * max(len(edges), 1):
            raise TrackerError("the plan does not take up the seeds that were added; see results/seeds.json")


def _read(database: Path, study: str) -> tuple[JudgedStudy, list[int], dict[str, float]]:
    """The judged study, the looks that it declares, and the device-hours of one more seed by variant."""
    with Store(database) as store:
        if study not in store.studies():
            raise ConfigError(
                database, "study", study, "is not in the database", "add it to `studies` and run the grid"
            )
        judged = judge_study(store, study)
        cost = store.sql(
            """SELECT r.variant, sum(s.device_hours) / count(DISTINCT r.seed) AS hours
               FROM run_stages r JOIN stages s USING (key)
               WHERE r.study = ? AND s.seed IS NOT NULL GROUP BY r.variant""",
            [study],
        )
    looks = judged.measurements.analysis.looks
    if not looks:
        remedy = "declare them before there are results, for example `looks: [3, 5, 10]` seeds"
        raise ConfigError(
            f"configs/studies/{study}/_study.yaml", "analysis.looks", None, "no looks are declared", remedy
        )
    return judged, list(looks), dict(zip(cost["variant"], cost["hours"], strict=True))


def _next_round(
    edges: Sequence[Edge],
    looks: Sequence[int],
    counts: Mapping[str, int],
    per_seed: Mapping[str, float],
    hours: float,
) -> tuple[dict[str, int], bool]:
    """Seeds per variant for the edges' next looks, nearest to a decision first, as far as `hours` go; whether any was
    left out.
    """
    wanted: dict[str, int] = {}
    left_out, predicted = False, 0.0
    for edge in edges:
        look = next((count for count in looks if count > edge.seeds), None)
        if look is None:
            continue
        more = {v: look for v in (edge.child, edge.parent) if look > max(counts[v], wanted.get(v, 0))}
        price = sum((n - max(counts[v], wanted.get(v, 0))) * per_seed.get(v, 0.0) for v, n in more.items())
        if predicted + price > hours:
            left_out = True
            continue
        wanted |= more
        predicted += price
    return wanted, left_out
