"""The command `nightly`: judge a new run against past runs."""

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.compute as pc

from ablation.cli.common import add_shared, print_json
from ablation.config.names import known_direction
from ablation.contract.display import aligned, listed
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import MISSING, bound, counted, decimals_for, fixed, p_value, percent, rough
from ablation.judge.gate import STATUS
from ablation.judge.reference import ALARM, MIN_IN_ORDER, MIN_RUNS, RERUNS, Direction, Watched, watch
from ablation.judge.scales import unlike
from ablation.readers.past_runs import (
    Value,
    Window,
    append,
    digest,
    in_time,
    read_file,
    read_runs,
    values_of,
    window_of,
)
from ablation.readers.run import ImportedRun, Problem

_DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
_COARSE = 8  # characters; runs often share a value that is not longer, such as an accuracy
_ENDS = {"running": "has not ended (it is still running, or was killed)", "failed": "failed"}


def declare_nightly(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `nightly`."""
    parser.description = (
        "Tell whether a new run is worse than past runs of the same recipe predict (docs/how-to/nightly.md). Exit "
        "code: 0 passed, 10 worse, 11 undecided (more reruns or past runs are needed), 12 invalid."
    )
    add = parser.add_argument
    add("past", metavar="PAST", help="a folder of runs, or the CSV file that --update keeps")
    add("--new", nargs="+", type=Path, metavar="RUN", required=True, help="the new run, then its reruns, if any")
    text = (
        "metric to watch: NAME:max if larger is better, NAME:min if smaller is better, "
        "NAME:both if neither; names of well-known metrics need no direction"
    )
    add("--metric", nargs="+", metavar="NAME[:max]", required=True, help=text)
    add("--window", metavar="last:N", help="judge the mean of the last N values (default: the last value)")
    text = "step of the values: last, best (by the first metric) or a number (default: the step of the kept model"
    add("--at", metavar="STEP", help=f"{text}, or the last step if that step is not known)")
    text = f"append the run to PAST if it passes, or if PAST has fewer than {MIN_RUNS} runs"
    add("--update", action="store_true", help=text)
    add_shared(parser, "--json")


def run_nightly(arguments: argparse.Namespace) -> int:
    """Judge the new run; with --update, append it to the past runs if it passes or if there are too few of them."""
    notes: list[str] = []
    watched = _watched(arguments.metric)
    names, path = list(watched), Path(arguments.past)
    if arguments.at == "best" and watched[names[0]] == "both":
        problem = f"is not defined for {names[0]}:both, because no direction is better"
        raise ConfigError("nightly", "--at", "best", problem, "write last, or a number such as 1000")
    window = window_of(arguments.window or "last", arguments.at, smaller=watched[names[0]] == "min")
    if arguments.update and path.is_dir():
        remedy = "name the file in which to keep past runs, such as past.csv"
        raise ConfigError("nightly", "--update", str(path), "is a folder", remedy)
    runs = [(_name(run, place), run) for place in arguments.new for run in read_runs([place], names, notes.append)]
    if len(runs) != len(arguments.new):
        problem = f"names {counted(len(runs), 'run')} in {counted(len(arguments.new), 'path')}"
        remedy = "pass one path for each run"
        raise ConfigError("nightly", "--new", listed([name for name, _ in runs]), problem, remedy)
    new = {name: values_of(run, name, names, window, notes.append) for name, run in runs}
    if len({digest(run) for _, run in runs}) < len(runs):
        remedy = "pass reruns with other seeds"
        raise ConfigError("nightly", "--new", listed([*new]), "the same run occurs twice", remedy)
    past: dict[str, list[Value]] = {name: [] for name in names}
    order = ""
    if path.exists() or not arguments.update:
        past, order = _past(path, names, window, new={digest(run) for _, run in runs}, note=notes.append)
    broken = [fault for name, run in runs if (fault := _fault(run, new[name], past, window, notes.append))]
    judged = {} if broken else watched
    answers = [_answer(name, direction, past, new, in_order=bool(order)) for name, direction in judged.items()]
    notes += _assumed(answers, order)
    outcome = "invalid" if broken else next(o for o in STATUS if any(a.outcome == o for a in answers))
    may_join = not broken and all(answer.outcome == "passed" or answer.runs < MIN_RUNS for answer in answers)
    if arguments.update and may_join:
        added = append(path, [value for values in new.values() for value in values])
        notes.append(f"{path}: {counted(added, 'run')} appended")
    if arguments.json:
        print_json("nightly", [asdict(answer) for answer in answers], outcome=outcome, broken=broken, notes=notes)
    else:
        print(_in_words(answers, broken, notes, outcome))
    return STATUS[outcome]


def _watched(texts: Sequence[str]) -> dict[str, Direction]:
    """Return {name: direction} for texts such as `NAME:min` or well-known names. Raises ConfigError for other texts."""
    watched: dict[str, Direction] = {}
    for text in texts:
        head, _, end = text.rpartition(":")
        stated = next((known for known in _DIRECTIONS if head and end == known), None)
        name, direction = (text, known_direction(text)) if stated is None else (head, stated)
        if direction is None:
            remedy = f"write {text}:max if larger is better, {text}:min if smaller is better, {text}:both if neither"
            raise ConfigError("nightly", "--metric", text, "does not say which values are better", remedy)
        if name in watched:
            raise ConfigError("nightly", "--metric", text, f"{name} occurs twice", "name each metric once")
        watched[name] = direction
    return watched


def _name(run: ImportedRun, place: Path) -> str:
    """Return the name of a run in the file of past runs, made from the run's path and a digest of what the run logged.

    The digest distinguishes the runs of different nights in one folder, even if their metrics are equal.
    """
    return f"{'/'.join(place.resolve().parts[-2:]) if place.is_dir() else run.name}#{digest(run)}"


def _past(
    path: Path, names: Sequence[str], window: Window, *, new: Set[str], note: Problem
) -> tuple[dict[str, list[Value]], str]:
    """Return {metric: the value of each past run}, and the source of the order of the runs, such as their names.

    New runs, copies, and runs that failed or ended early are left out. The source is empty if the order is not certain,
    or if the new run is not the last. `new`: digests of the new runs.

    Raises ConfigError for values that cannot be those of independent runs on one scale.
    """
    rows = [*_logged(path, names, window, note)] if path.is_dir() else read_file(path)
    values = [value for value in rows if value.window == str(window) and value.metric in names]
    by_run: dict[str, list[Value]] = {value.run: [] for value in rows}
    for value in values:
        by_run[value.run].append(value)
    usual = {name: _usual_end(value.last_step for value in values if value.metric == name) for name in names}
    seen = dict.fromkeys(new, "")
    kept: list[str] = []
    for name, run_values in by_run.items():
        if not run_values:
            continue
        shown = name.partition("#")[0] if path.is_dir() else name
        if why := _unusable(run_values, seen, usual):
            note(f"{shown}: left out of the past runs because {why}")
            continue
        seen[run_values[0].identity] = shown
        kept.append(name)
    own = [name for name in by_run if name.rpartition("#")[2] in new]
    ordered, order = [name for name in by_run if name in {*kept, *own}], "the rows of the file"
    if path.is_dir():
        ordered, order = in_time({name: by_run[name][0].started for name in ordered})
    if not {*ordered[len(kept) :]} <= {*own}:
        order = ""
    kept = [name for name in ordered if name not in own] if order else kept
    past = {metric: [each for run in kept for each in by_run[run] if each.metric == metric] for metric in names}
    for values_of_metric in filter(None, past.values()):
        _check(path, values_of_metric)
    return past, order


def _logged(path: Path, names: Sequence[str], window: Window, note: Problem) -> Iterator[Value]:
    """Yield the values of the finished runs in a folder."""
    for run in read_runs([path], names, note):
        if run.state != "finished":
            note(f"{run.name}: left out of the past runs because it {_ENDS[run.state]}")
            continue
        try:
            yield from values_of(run, f"{run.name}#{digest(run)}", names, window, note)
        except ConfigError as error:
            note(f"{run.name}: left out of the past runs because {error.key} {error.problem}")


def _unusable(values: Sequence[Value], seen: Mapping[str, str], usual: Mapping[str, int]) -> str:
    """Return the reason why a past run is left out; empty if it is not.

    `seen` is {identity: name} of the past runs that are not left out, and of the new runs, whose name is empty.
    """
    same = seen.get(values[0].identity)
    if same is not None:
        return f"it is a copy of {same}" if same else "it is the new run"
    for value in values:
        if not math.isfinite(value.value):
            return f"{value.metric} is {value.value}"
        if value.last_step < usual[value.metric]:
            return f"{value.metric} ends at step {value.last_step}, but most runs end at step {usual[value.metric]}"
    return ""


def _check(path: Path, past: Sequence[Value]) -> None:
    """Raise ConfigError if the values of a metric seem to be on two scales, or copies of one run."""
    if why := unlike([np.array([value.value]) for value in sorted(past, key=lambda value: value.value)]):
        most = max(past, key=lambda value: value.value)
        raise ConfigError(path, most.metric, most.value, f"{most.run}: {why}", "correct the value, or remove this run")
    times = Counter(value.value for value in past if len(repr(value.value)) > _COARSE)
    most_often = max(times.values(), default=0)
    all_twice = times.total() == len(past) and min(times.values(), default=0) > 1
    if len(times) > 1 and (all_twice or (most_often > 2 and 2 * most_often >= len(past))):
        value = max(times, key=times.__getitem__)
        runs = listed([each.run for each in past if each.value == value])
        problem = f"{runs} have the same value to the last digit, so they may be copies of one run"
        raise ConfigError(path, past[0].metric, value, problem, "keep only one of these runs")


def _usual_end(steps: Iterable[int]) -> int:
    """Return the step at which more than half of the runs end or, if there is none, the earliest last step."""
    ends = Counter(steps)
    step, count = max(ends.items(), key=lambda each: (each[1], each[0]), default=(0, 0))
    return step if 2 * count > ends.total() else min(ends, default=0)


def _fault(
    run: ImportedRun, values: Sequence[Value], past: Mapping[str, Sequence[Value]], window: Window, note: Problem
) -> str:
    """Return the reason why a new run cannot be compared; empty if it can."""
    if run.state != "finished":
        return f"{values[0].run}: the run {_ENDS[run.state]}"
    for value in values:
        logged = run.metrics.filter(pc.equal(run.metrics["name"], value.metric))["value"]
        last = logged[-1].as_py() if window.ends_the_run else value.value
        if odd := next((each for each in (value.value, last) if not math.isfinite(each)), None):
            return f"{value.run}: {value.metric} is {odd}"
        past_values = past[value.metric]
        steps = [each.last_step for each in past_values]
        if steps and value.last_step < min(steps):
            ended = f"ends at step {value.last_step}, but all past runs end at step {min(steps)} or later"
            return f"{value.run}: {value.metric} {ended}"
        if steps and value.last_step > max(steps):
            further = f"continues to step {value.last_step}, but all past runs end at step {max(steps)} or earlier"
            note(f"{value.run}: {value.metric} {further}")
        both = sorted([value.value, *(each.value for each in past_values)])
        if past_values and (why := unlike([np.array([each]) for each in both])):
            return f"{value.run}: {value.metric}: {why}"
    return ""


def _answer(
    metric: str,
    direction: Direction,
    past: Mapping[str, Sequence[Value]],
    new: Mapping[str, list[Value]],
    *,
    in_order: bool,
) -> Watched:
    values = [value.value for run in new.values() for value in run if value.metric == metric]
    earlier = [value.value for value in past[metric]]
    return watch(metric, direction, earlier, values, len(past), in_order=in_order)


def _assumed(answers: Sequence[Watched], order: str) -> Iterator[str]:
    """Yield a note on the trend and autocorrelation of each metric, and one if runs are treated as independent."""
    judged = [each for each in answers if not math.isnan(each.p)]
    for each in judged:
        if not math.isnan(each.trend):
            both = f"trend {each.trend:+.2g} per night, autocorrelation {each.autocorrelation:.2f}"
            yield f"{each.metric}: {both}, estimated from {each.runs} past runs in the order of {order}"
    if any(math.isnan(each.trend) for each in judged):
        unknown = "the order of the runs is not certain, or the new run is not the last"
        why = f"there are fewer than {MIN_IN_ORDER} past runs" if order else unknown
        yield (
            f"past runs are treated as independent because {why}; if metrics drift or are correlated from night to "
            "night, false alarms are more frequent than stated"
        )


def _in_words(answers: Sequence[Watched], broken: Sequence[str], notes: Sequence[str], outcome: str) -> str:
    rows = [("metric", "new", "predicted", "past runs", "p", "")]
    for each in answers:
        decimals = decimals_for((each.value, each.mean), [each.sd])
        mean = fixed(each.mean, decimals)
        past = f"{mean} (sd {rough(each.sd)}, {each.runs} runs)" if each.runs > 1 else f"{each.runs}"
        numbers = (fixed(each.value, decimals), _predicted(each, decimals), past, p_value(each.p))
        rows.append((each.metric, *numbers, f"{each.outcome}: {each.why}"))
    lines = aligned(rows, (False, True, False, False, True, False)) if answers else []
    lines += [f"invalid: {fault}" for fault in broken]
    if levels := sorted({each.confirm for each in answers if each.outcome == "undecided" and each.p <= ALARM}):
        level = " or ".join(f"{percent(each)}" for each in levels)
        lines.append(
            f"next: rerun with other seeds, then pass the run and its {RERUNS} reruns: --new RUN RERUN "
            f"RERUN (the mean of the reruns decides, at a significance level of {level})"
        )
    return "\n".join([*lines, *(f"note: {note}" for note in notes), outcome])


def _predicted(each: Watched, decimals: int) -> str:
    low, high = bound(each.low, decimals, up=False), bound(each.high, decimals, up=True)
    if math.isinf(each.low) and math.isinf(each.high):
        return MISSING
    if math.isinf(each.high):
        return f"above {low}"
    return f"below {high}" if math.isinf(each.low) else f"{low} to {high}"
