"""The command `gate --reference`: one new run against the runs that we have."""

import argparse
import hashlib
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from ablation.config.names import known_direction
from ablation.contract.display import aligned, counted, listed
from ablation.contract.errors import ConfigError
from ablation.judge.gate import STATUS
from ablation.judge.reference import ALARM, CONFIRM, MIN_RUNS, RERUNS, Direction, Watched, watch
from ablation.readers.past_runs import Value, Window, append, read_file, read_runs, values_of, window_of
from ablation.readers.run import ImportedRun, Problem

_DIRECTIONS: tuple[Direction, ...] = get_args(Direction)


def run_reference(arguments: argparse.Namespace) -> int:
    """Judge the new run; with --update, append it to the past runs if each metric passed or has too few."""
    from ablation.cli.common import print_json

    for option in ("new", "metric"):
        if not getattr(arguments, option):
            raise ConfigError(
                "gate", "--reference", arguments.reference, f"needs --{option}", "see ablation gate --help"
            )
    notes: list[str] = []
    watched = dict(_metric(text) for text in arguments.metric)
    names, path = list(watched), Path(arguments.reference)
    if arguments.at == "best" and watched[names[0]] == "both":
        raise ConfigError("gate", "--at", "best", f"asks which value of {names[0]} is better", "name a step")
    window = window_of(arguments.window or "last", arguments.at, smaller=watched[names[0]] == "min")
    if arguments.update and path.is_dir():
        raise ConfigError("gate", "--update", str(path), "is a folder", "name a file that is to be kept, as past.csv")
    runs = [(_name(run, place), run) for place in arguments.new for run in read_runs([place], names, notes.append)]
    if len(runs) != len(arguments.new):
        problem = f"hold {len(runs)} runs, and {len(arguments.new)} were named"
        raise ConfigError("gate", "--new", listed([name for name, _ in runs]), problem, "name each run's own folder")
    new = {name: values_of(run, name, names, window, notes.append) for name, run in runs}
    if len({name.rpartition("#")[2] for name in new}) < len(runs):
        raise ConfigError("gate", "--new", listed([*new]), "names one run twice", "name reruns with other seeds")
    sources = {run.source.resolve() for _, run in runs}
    if path.exists() or not arguments.update:
        past = _past(path, names, window, new=new, sources=sources, note=notes.append)
    else:
        past = {name: [] for name in names}
    broken = [fault for name, run in runs if (fault := _fault(run, new[name], past))]
    answers = (
        [] if broken else [_answer(name, direction, past, new, len(watched)) for name, direction in watched.items()]
    )
    outcome = "invalid" if broken else next(o for o in STATUS if any(a.outcome == o for a in answers))
    may_join = not broken and all(answer.outcome == "passed" or answer.runs < MIN_RUNS for answer in answers)
    if arguments.update and may_join:
        added = append(path, [value for values in new.values() for value in values])
        notes.append(f"{path}: {counted(added, 'run')} appended")
    if arguments.json:
        print_json("gate", [asdict(answer) for answer in answers], outcome=outcome, broken=broken, notes=notes)
    else:
        print(_in_words(answers, broken, notes, outcome))
    return STATUS[outcome]


def _metric(text: str) -> tuple[str, Direction]:
    """Return name and direction of `NAME:min`, or of a NAME that is known. Raises ConfigError for any other."""
    head, _, direction = text.rpartition(":")
    for known in _DIRECTIONS:
        if head and direction == known:
            return head, known
    if direction_of_name := known_direction(text):
        return text, direction_of_name
    remedy = f"write {text}:max if larger is better, {text}:min if smaller is, {text}:both if neither"
    raise ConfigError("gate", "--metric", text, "does not say which values are better", remedy)


def _name(run: ImportedRun, place: Path) -> str:
    """Return the name by which a run is known in the file of past runs: of the path that was named, and what it logged.

    A folder may hold another run each night, with the same value of a coarse metric.
    """
    digest = hashlib.sha256(b"".join(run.metrics[name].to_numpy().tobytes() for name in ("step", "value")))
    return f"{'/'.join(place.resolve().parts[-2:]) if place.is_dir() else run.name}#{digest.hexdigest()[:8]}"


def _past(
    path: Path,
    names: Sequence[str],
    window: Window,
    *,
    new: Mapping[str, list[Value]],
    sources: Set[Path],
    note: Problem,
) -> dict[str, list[Value]]:
    """Return {metric: a value of each past run}, without the new runs and without runs that failed."""
    values: list[Value] = []
    if path.is_dir():
        for run in read_runs([path], names, note):
            if run.source.resolve() in sources:
                note(f"{run.name}: left out of the past runs, being the new run")
            elif run.state != "finished":
                note(f"{run.name}: left out of the past runs, it is {run.state}")
            else:
                try:
                    values += values_of(run, run.name, names, window, note)
                except ConfigError as error:
                    note(f"{run.name}: left out of the past runs, {error.key} {error.problem}")
    else:
        known = [value for value in read_file(path) if value.window == str(window) and value.metric in names]
        values = [value for value in known if value.run not in new]
        for name in sorted({value.run for value in known} - {value.run for value in values}):
            note(f"{name}: left out of the past runs, being the new run")
    finite = [value for value in values if math.isfinite(value.value)]
    for value in values:
        if not math.isfinite(value.value):
            note(f"{value.run}: left out of the past runs, {value.metric} is {value.value}")
    return {name: [value for value in finite if value.metric == name] for name in names}


def _fault(run: ImportedRun, values: Sequence[Value], past: Mapping[str, Sequence[Value]]) -> str:
    """Return why a new run cannot be compared; empty if it can."""
    if run.state != "finished":
        how = "has not ended: it is still running, or was killed" if run.state == "running" else "failed"
        return f"{values[0].run}: the run {how}"
    for value in values:
        if not math.isfinite(value.value):
            return f"{value.run}: {value.metric} is {value.value}"
        steps = [each.last_step for each in past[value.metric]]
        if steps and value.last_step < min(steps):
            return (
                f"{value.run}: {value.metric} ends at step {value.last_step}, in all past runs at {min(steps)} or later"
            )
    return ""


def _answer(
    metric: str, direction: Direction, past: Mapping[str, Sequence[Value]], new: Mapping[str, list[Value]], metrics: int
) -> Watched:
    values = [value.value for run in new.values() for value in run if value.metric == metric]
    return watch(metric, direction, [value.value for value in past[metric]], values, metrics)


def _in_words(answers: Sequence[Watched], broken: Sequence[str], notes: Sequence[str], outcome: str) -> str:
    rows = [("metric", "new", "predicted", "past runs", "p", "")]
    for each in answers:
        past = f"{each.mean:.4g} (sd {each.sd:.2g}, {each.runs} runs)" if each.runs > 1 else f"{each.runs}"
        p = "-" if math.isnan(each.p) else f"{each.p:.2g}"
        rows.append((each.metric, f"{each.value:.4g}", _predicted(each), past, p, f"{each.outcome}: {each.why}"))
    lines = aligned(rows, (False, True, False, False, True, False)) if answers else []
    lines += [f"invalid: {fault}" for fault in broken]
    if any(each.outcome == "undecided" and each.p <= ALARM for each in answers):
        lines.append(
            f"next: rerun with other seeds, then name the run and its {RERUNS} reruns: --new RUN RERUN RERUN "
            f"(worse if their mean is outside at {CONFIRM:.0%})"
        )
    return "\n".join([*lines, *(f"note: {note}" for note in notes), outcome])


def _predicted(each: Watched) -> str:
    if math.isinf(each.low) and math.isinf(each.high):
        return "-"
    if math.isinf(each.high):
        return f"above {each.low:.4g}"
    return f"below {each.high:.4g}" if math.isinf(each.low) else f"{each.low:.4g} to {each.high:.4g}"
