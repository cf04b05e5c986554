"""`ablation campaign FILE`: judge which kept attempts of a past campaign are improvements, and name what to rerun."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ablation.campaign.past import Attempt, Settled, copied, pooled_sd, settle
from ablation.campaign.past_table import read_table, resolved
from ablation.cli.common import print_json
from ablation.config.names import known_direction
from ablation.contract.display import aligned
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, decimals_for, estimate, fixed, half, percent, rough
from ablation.judge.scales import unlike


def judge_past(path: Path, arguments: argparse.Namespace) -> int:
    """Print which kept attempts are improvements; return 0. Raises ConfigError if the table cannot be judged."""
    asked, _, direction = (arguments.metric or "").rpartition(":")
    if direction not in ("min", "max"):
        asked, direction = arguments.metric or "", ""
    table = read_table(path, asked or None)
    direction = direction or known_direction(table.metric) or ""
    if not direction:
        problem = "does not say which values are better"
        remedy = f"write {table.metric}:max if larger is better, {table.metric}:min if smaller is better"
        raise ConfigError(path, "--metric", table.metric, problem, remedy)
    smaller = direction == "min"
    attempts, ended = resolved(table.attempts, smaller)
    left_out = ", ".join(f"{count} ({reason})" for reason, count in table.left_out.items())
    if sum(attempt.value is not None for attempt in attempts) < 2:
        problem = "has fewer than two attempts with a value" + (f"; left out: {left_out}" if left_out else "")
        raise ConfigError(path, "", None, problem, "wait until more attempts have run")
    _check(path, table.metric, attempts)
    repeats = pooled_sd(attempts)
    sd = repeats if arguments.sd is None else arguments.sd
    if math.isnan(sd):
        problem = "the noise between runs is not known, because no attempt was repeated"
        remedy = "run the baseline three times, or pass the standard deviation with --sd"
        raise ConfigError(path, "--sd", None, problem, remedy)
    if not 0 < sd < math.inf:
        remedy = "pass the standard deviation between runs of the same code"
        raise ConfigError(path, "--sd", sd, "is not a positive number", remedy)
    settled = settle(attempts, sd, -1 if smaller else 1)
    if arguments.json:
        rows = [
            {"name": keep.attempt.name, "measured": keep.measured, "likely": keep.likely, "low": keep.low}
            | {"high": keep.high, "improvement": keep.real}
            for keep in settled.keeps
        ]
        total = {"measured": settled.measured, "likely": settled.likely, "low": settled.low, "high": settled.high}
        print_json("campaign", rows, metric=table.metric, sd=sd, total=total, left_out=dict(table.left_out))
        return 0
    source = "stated" if arguments.sd is not None else "from rows with the same name"
    kept = sum(bool(attempt.kept) for attempt in attempts)
    crashed = sum(attempt.value is None for attempt in attempts)
    better = "smaller" if smaller else "larger"
    print(
        f"{path}: {counted(len(attempts), 'attempt')}, {kept} kept, {crashed} crashed; {table.metric}: {better} is "
        f"better; standard deviation between runs {rough(sd)} ({source})"
    )
    if left_out:
        print(f"left out: {left_out}")
    if ended:
        says = "says" if ended == 1 else "say"
        print(
            f"{counted(ended, 'row')} {says} only that the run ended, and not whether it was kept; "
            "a row like this counts as kept if it beats every earlier row"
        )
    print(_in_words(settled, attempts))
    return 0


def _check(path: Path, metric: str, attempts: Sequence[Attempt]) -> None:
    """Raise ConfigError if repeats seem to be copies, or kept values seem to be on two scales."""
    if found := copied(attempts):
        name, count, value = found
        problem = (
            f"all {count} rows of {name} have this value, so they may be copies of one run, or runs with the same seed"
        )
        raise ConfigError(path, metric, value, problem, "keep only one of these rows")
    names = {attempt.name for attempt in attempts if attempt.kept}
    kept = sorted(each.value for each in attempts if each.name in names and each.value is not None)
    if kept and (why := unlike([np.array([value]) for value in kept])):
        remedy = "correct the values, or remove their rows; if all are correct, divide the column by its largest value"
        raise ConfigError(path, metric, kept[-1], f"among the kept attempts, {why}", remedy)


def _in_words(settled: Settled, attempts: list[Attempt]) -> str:
    if not settled.keeps:
        return "no attempt was kept after the baseline"
    rows = [("kept", "measured gain", "likely gain", "95% interval", "P(gain > 0)", "")]
    halves = [half(keep.low, keep.high) for keep in settled.keeps]
    decimals = decimals_for((keep.measured for keep in settled.keeps), halves)
    for keep in settled.keeps:
        likely = estimate(keep.likely, keep.low, keep.high, decimals)
        cells = (fixed(keep.measured, decimals, "+"), *likely, percent(keep.real))
        rows.append((keep.attempt.name, *cells, keep.attempt.text))
    noise = sum(keep.noise for keep in settled.keeps)
    baseline = next(attempt.name for attempt in attempts if attempt.value is not None)
    champion = settled.keeps[-1].attempt.name
    lines = ["", *aligned(rows, (False, True, True, True, True, False)), ""]
    luck = "; the rest is probably luck, because only the best attempts were kept" * (settled.likely < settled.measured)
    apart = 1.96 * math.sqrt(2) * settled.sd
    lines.append(
        f"{noise} of {counted(len(settled.keeps), 'kept attempt')} measured a gain within the noise: two runs of the "
        f"same code differ by less than {rough(apart)} in 95% of cases"
    )
    lines.append(
        f"from {baseline} to {champion}: measured {fixed(settled.measured, decimals, '+')}, likely "
        f"{' '.join(estimate(settled.likely, settled.low, settled.high, decimals))}{luck}"
    )
    lines.append(
        f"next: rerun {_reruns(settled)}. The expected number of kept attempts that are not improvements is "
        f"{fixed(settled.wrong, 1)}; after these reruns, the expected number of wrong decisions is "
        f"{fixed(settled.wrong_after, 1)}"
    )
    return "\n".join(lines)


def _reruns(settled: Settled) -> str:
    times = {name: settled.reruns.count(name) for name in settled.reruns}
    return ", ".join(
        name if count == 1 else f"{name} {('twice', 'three times')[count - 2]}" for name, count in times.items()
    )
