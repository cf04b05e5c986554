"""Decisions on which stages run and which ended stages run again, with the reasons.

Ended stages run again if their files are damaged, if they failed and `retry: failed` is set, or if they were blocked
and nothing blocks them any more. `collected.json` (`ablation.plan.collected`) lists stages with damaged files.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ablation.config.dotted import leaves
from ablation.contract.atomic import LONG_AGO, date, write_json
from ablation.contract.display import joined, listed
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.numbers import counted
from ablation.contract.reading import read_json
from ablation.contract.stage_folder import DATABASE
from ablation.contract.status import FAILED, TO_COME, StageState, read_state, replaced
from ablation.plan.collected import COLLECTED, noted_sources, read_collected, sources_now
from ablation.plan.plan_file import Address, Plan, PlannedRun, PlannedStage, read_plan

States = dict[Address, StageState]
_MOST_REASONS = 30  # lines


def states_of(plan: Plan) -> States:
    """Return the current state of every stage, from its status file."""
    return {address: read_state(stage.dir, stage.key) for address, stage in plan.stages.items()}


# Stages that are to run.


def pending(plan: Plan, states: States, study: str | None = None) -> list[PlannedStage]:
    """Return the selected stages that are to run: new, damaged, to be retried, or with changed readers."""
    again = (*TO_COME, "corrupt", *(FAILED if plan.settings.retry == "failed" else ()))
    stages = plan.selected(study)
    return [stage for stage in stages if states[stage.address].state in again or _read_otherwise(plan, states, stage)]


def to_do(plan: Plan, states: States) -> list[PlannedStage]:
    """Return the selected stages that Snakemake must consider: those to run, or all if it compares file times.

    Snakemake collects again if the status of an ended stage is newer than the database. It need not compare times if
    some stages are to run, after which it collects anyway, or if the database is current. This saves more than a
    millisecond per ended stage.
    """
    waiting = pending(plan, states)
    run = any(states[stage.address].state in TO_COME for stage in waiting)
    return waiting if run or _is_current(plan, states) else plan.selected()


def _is_current(plan: Plan, states: States) -> bool:
    try:
        collected = (plan.settings.results / DATABASE).stat().st_mtime_ns
        ended = [stage.status for address, stage in plan.stages.items() if states[address].state not in TO_COME]
        if any(os.stat(status).st_mtime_ns > collected for status in ended):
            return False
        return noted_sources(plan.settings.results) == sources_now(plan.settings.results)
    except (OSError, TrackerError):  # there is no database, or the plan is damaged and will be written again
        return False


# Ended stages that run again.

DAMAGED, REREAD, UNBLOCKED, RETRIED = "damaged", "reread", "unblocked", "retried"
_SAID = {
    DAMAGED: "{0.id} {0.label} runs again because its files are damaged ({0.dir})",
    REREAD: "the files of {0.id} {0.label} are read again because its `collect` changed",
    UNBLOCKED: "{0.id} {0.label} runs again because nothing blocks it any more",
}


class Actions(NamedTuple):
    """Changes that a start makes to existing results before the first job.

    again: {stage: reason} for the ended stages that run again, whose statuses are set aside. states: the states of all
    stages afterwards. collected: the content of collected.json.
    """

    again: dict[Address, str]
    states: States
    collected: Mapping[str, Any]

    def lines(self, plan: Plan) -> list[str]:
        """Return a line for each stage that runs again, except for failed ones, which the user asked to retry."""
        return [_SAID[why].format(plan.stages[address]) for address, why in self.again.items() if why in _SAID]


def decide(plan: Plan, states: States) -> Actions:
    """Return the actions for the selected stages that have ended but run again, with one of four reasons.

    damaged: the status cannot be read, or `collect` could not read another file. reread: the readers of a command have
    changed; the program itself does not run again. unblocked: the stage was blocked, but its inputs have been repaired
    or removed. retried: the stage did not succeed, and `retry: failed` is set.
    """
    collected = read_collected(plan.settings.results)
    now, corrupt = dict(states), collected.get("corrupt", {})
    again: dict[Address, str] = {}

    def start_over(stage: PlannedStage, why: str) -> None:
        again[stage.address], now[stage.address] = why, StageState("missing")

    for stage in plan.selected():
        state = now[stage.address].state
        if state == "corrupt" or (state not in TO_COME and stage.key in corrupt):
            start_over(stage, DAMAGED)
        elif _read_otherwise(plan, now, stage):
            start_over(stage, REREAD)
    for stage in plan.selected():  # in the order in which they can run
        blocking = (source for source in plan.upstream[stage.address] if now[source].state in FAILED)
        if now[stage.address].state == "blocked" and not any(blocking):
            start_over(stage, UNBLOCKED)
    for stage in plan.selected() if plan.settings.retry == "failed" else ():
        if now[stage.address].state in FAILED:
            start_over(stage, RETRIED)
    return Actions(again, now, collected)


def apply(plan: Plan, actions: Actions) -> None:
    """Set aside the statuses of stages that run again, then write the plan.

    A status is renamed to the first free `status.attempt-N.json`. A database that is not current gets an old date, so
    that Snakemake collects again.
    """
    results = plan.settings.results
    for address in actions.again:
        stage = plan.stages[address]
        number = 1
        while (aside := stage.dir / f"status.attempt-{number}.json").exists():
            number += 1
        with suppress(FileNotFoundError):
            stage.status.rename(aside)
    corrupt, mended = actions.collected.get("corrupt", {}), {key for _, key in actions.again}
    if mended.intersection(corrupt):
        left = {key: reason for key, reason in corrupt.items() if key not in mended}
        write_json(results / COLLECTED, {**actions.collected, "corrupt": left})
    plan.write()
    if (results / DATABASE).exists() and not _is_current(plan, actions.states):
        date([results / DATABASE], LONG_AGO)


def _read_otherwise(plan: Plan, states: States, stage: PlannedStage) -> bool:
    command = plan.configs[stage.address].get("command")
    return command is not None and states[stage.address].reading not in (None, command["reading"])


def refuse_links(plan: Plan) -> None:
    """Raise ConfigError if a stage's folder is a link or a file, because the stage would overwrite other files."""
    for stage in plan.selected():
        if replaced(stage.dir):
            problem = f"is a link to {os.readlink(stage.dir)}" if stage.dir.is_symlink() else "is not a folder"
            remedy = "replace it with a folder, or remove it"
            raise ConfigError(stage.dir, "", None, problem, f"{remedy}; only `results` as a whole may be a link")


# Reasons for which stages run.


def reasons(plan: Plan, states: States) -> list[str]:
    """Return lines such as `12 x toy.train: train.py changed`; empty before the first start."""
    try:
        before = read_plan(plan.file)
    except ConfigError:
        return []
    runs = {(study.name, run.variant, run.seed): run for study in before.studies for run in study.runs}
    folders = {stage.address: stage.dir for stage in before.stages}
    waiting = {stage.address for stage in pending(plan, states)}
    # By stage and reason; `{}` in a reason stands for the variants to which it applies.
    by_reason: dict[tuple[str, str], dict[Address, str]] = {}
    for study in plan.content.studies:
        earlier_variants = {variant for name, variant, _ in runs if name == study.name}
        for run in study.runs:
            old = runs.get((study.name, run.variant, run.seed))
            for stage, key in run.stages.items():
                address = f"{study.name}.{stage}", key
                if address not in waiting:
                    continue
                waiting.discard(address)
                if run.variant not in earlier_variants:
                    text = f"new variant {run.variant}"
                elif old is None or stage not in old.stages:
                    text = f"new seed {run.seed}" if old is None else "a new stage"
                elif old.stages[stage] == key:
                    text = _again(states[address])
                else:
                    earlier = folders.get((address[0], old.stages[stage]))
                    text = _changes(_read(earlier), plan, address, old, run)
                by_reason.setdefault((address[0], text), {})[address] = run.variant
    lines = [
        f"{len(variant_by_stage)} x {id}: {text.replace('{}', listed(list(dict.fromkeys(variant_by_stage.values()))))}"
        for (id, text), variant_by_stage in by_reason.items()
    ]
    more = len(lines) - _MOST_REASONS
    return lines[:_MOST_REASONS] + ([f"and {counted(more, 'more reason')}"] if more > 0 else [])


def say_what_failed(plan: Plan, words: Sequence[str]) -> None:
    """Print the stages that failed, the reason and the log of the first failure, and the command to run next.

    words: Snakemake's command line.
    """
    states = states_of(plan)
    bad = [stage for stage in plan.selected() if states[stage.address].state in FAILED]
    if not (causes := [stage for stage in bad if states[stage.address].state != "blocked"]):
        print("error: the grid did not finish (see above); run the same command to continue", file=sys.stderr)
        return
    first, blocked = causes[0], len(bad) - len(causes)
    state, names = states[first.address], listed([f"{stage.id} {stage.label}" for stage in causes])
    again = [word for word in words if word != "retry=failed"] + ["--config"] * ("--config" not in words)
    again.insert(again.index("--config") + 1, "retry=failed")
    lines = [
        f"error: {counted(len(causes), 'stage')} failed: {names}",
        f"    first failure: {state.reason or state.state}",
        f"    log: {first.dir / 'log.txt'}",
        f"    next: {shlex.join(['snakemake', *again[1:]])}",
    ]
    lines[0] += f"; {counted(blocked, 'dependent stage')} did not start" if blocked else ""
    print("\n".join(lines), file=sys.stderr, flush=True)


def _again(state: StageState) -> str:
    if state.reading is not None and state.state != "corrupt":
        return "`collect` changed, so the files are read again" if state.state == "ok" else "the files are read again"
    if state.state == "corrupt":
        return "its files are damaged"
    return "it did not succeed" if state.state in FAILED else "it has not run yet"


def _read(folder: Path | None) -> Mapping[str, Any]:
    try:
        return dict(read_json(folder / "config.json") if folder else {})
    except (OSError, ValueError, TypeError):
        return {}


def _changes(before: Mapping[str, Any], plan: Plan, address: Address, old: PlannedRun, run: PlannedRun) -> str:
    now = plan.configs[address]
    parts = [*_code(before, now), *_values(before, now)]
    if before.get("command", {}).get("words") != now.get("command", {}).get("words"):
        parts.append("its command changed")
    if before.get("abort_rules") != now["abort_rules"]:
        parts.append("its abort rules changed")
    study = address[0].partition(".")[0]
    inputs = [id.partition(".")[2] for id, _ in plan.upstream[address] if id.startswith(f"{study}.")]
    after = [stage for stage in inputs if old.stages.get(stage) != run.stages[stage]]
    if not before:
        return "it changed"
    return "; ".join(parts) or (
        f"its input{'s' * (len(after) > 1)} {joined(after)} changed"
        if after
        else "a model or data set that it reads changed"
    )


def _code(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield one phrase with the names of changed code files, if there are any."""
    old_files, new_files = before.get("code", {}).get("files", {}), now["code"]["files"]
    if names := sorted(name for name in {*old_files, *new_files} if old_files.get(name) != new_files.get(name)):
        yield f"{listed(names)} changed"


def _values(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    old_values, new_values = dict(leaves(before.get("config", {}))), dict(leaves(now["config"]))
    for key in {**old_values, **new_values}:
        if (old := old_values.get(key)) != (new := new_values.get(key)):
            yield f"{key} of {{}} changed ({old} -> {new})"
