"""Which stages are to run, and which ended stages run again: damaged ones, blocked ones that nothing blocks any more,
and on request failed ones.

The next start of the workflow compares with what `collect` noted (`ablation.plan.collected`): what it could not read,
and which statuses the database holds.
"""

import os

from ablation.contract.atomic import LONG_AGO, date, write_json
from ablation.contract.errors import ConfigError
from ablation.contract.stage_folder import CHECKS, DATABASE
from ablation.contract.status import FAILED, STATUS, TO_COME, StageState, misplaced, read_state, replaced
from ablation.plan.collected import COLLECTED, digest, read_collected
from ablation.plan.plan import Address, Plan
from ablation.plan.plan_file import PlannedStage

States = dict[Address, StageState]
Waits = dict[Address, tuple[Address, ...]]  # a stage and, beside what it reads, those that must have been read before


def states_of(plan: Plan) -> States:
    """Return the state of every stage, read now; what the functions below set aside becomes missing in it."""
    return {address: read_state(stage.dir, stage.key) for address, stage in plan.stages.items()}


def retry_failed(plan: Plan, states: States) -> list[PlannedStage]:
    """Set aside the status of every selected stage that did not end well, so that it runs again; return them."""
    return _start_over([stage for stage in plan.selected() if states[stage.id, stage.key].state in FAILED], states)


def reread(plan: Plan, states: States) -> list[PlannedStage]:
    """Set aside the status of every selected command whose readers have changed; return them.

    The command itself does not run again: `ablation.runner.command`.
    """
    return _start_over([stage for stage in plan.selected() if _read_otherwise(plan, states, stage)], states)


def _read_otherwise(plan: Plan, states: States, stage: PlannedStage) -> bool:
    command = plan.configs[stage.id, stage.key].get("command")
    return command is not None and states[stage.id, stage.key].reading not in (None, command["reading"])


def pending(plan: Plan, states: States, study: str | None = None) -> list[PlannedStage]:
    """Return the selected stages that are to run: no status yet, a damaged one or, with `retry: failed`, a bad one.

    So are commands whose readers have changed.
    """
    again = (*TO_COME, "corrupt", *(FAILED if plan.settings.retry == "failed" else ()))
    stages = plan.selected(study)
    return [s for s in stages if states[s.id, s.key].state in again or _read_otherwise(plan, states, s)]


def to_do(plan: Plan, states: States) -> list[PlannedStage]:
    """Return the selected stages that Snakemake must know of: those to run, or all where it has to compare times.

    For a stage that has ended Snakemake only finds that there is no job to start, and whether its status is newer than
    the database, which is then collected again. It needs none of them if some stages are to run, after which it
    collects in any case, or if the database is newer than every status and holds it. Each would cost more than a
    millisecond.
    """
    found = pending(plan, states)
    run = any(states[stage.id, stage.key].state in TO_COME for stage in found)
    return found if run or _is_current(plan, states) else plan.selected()


def _is_current(plan: Plan, states: States) -> bool:
    try:
        collected = (plan.settings.results / DATABASE).stat().st_mtime_ns
        ended = [stage.status for address, stage in plan.stages.items() if states[address].state not in TO_COME]
        if any(os.stat(status).st_mtime_ns > collected for status in ended):
            return False
    except OSError:
        return False
    return read_collected(plan.settings.results).get("stages") == _digest_of(states)


def refuse_links(plan: Plan) -> None:
    """Raise ConfigError if a link or a file is in a stage's place: the stage would overwrite other files."""
    for stage in plan.selected():
        if replaced(stage.dir):
            problem = f"is a link to {os.readlink(stage.dir)}" if stage.dir.is_symlink() else "is not a folder"
            remedy = "put the folder itself there, or remove it"
            raise ConfigError(stage.dir, "", None, problem, f"{remedy}; `results` as a whole may be a link")


def repair(plan: Plan, states: States) -> list[PlannedStage]:
    """Make stages with damaged files run again, and collect what the database lacks; return the stages."""
    mark_stale(plan, states)
    return repair_corrupt(plan, states)


def repair_corrupt(plan: Plan, states: States) -> list[PlannedStage]:
    """Set aside the status of every selected stage with damaged files; return them.

    Damaged: its status cannot be read, or `collect` could not read another of its files.
    """
    corrupt = read_collected(plan.settings.results).get("corrupt", {})
    again = []
    for stage in plan.selected():
        state = states[stage.id, stage.key].state
        if state == "corrupt" or (state not in TO_COME and stage.key in corrupt):
            again.append(stage)
    _start_over(again, states)
    left = {key: reason for key, reason in corrupt.items() if all(key != stage.key for stage in again)}
    if left != corrupt:
        write_json(plan.settings.results / COLLECTED, {**read_collected(plan.settings.results), "corrupt": left})
    return again


def release(plan: Plan, states: States, waits: Waits) -> list[PlannedStage]:
    """Set aside the status of every selected stage that is blocked though nothing blocks it any more; return them.

    Its inputs may have been repaired or removed since: a retry of some variants also repairs inputs of others.
    """
    again = []
    for stage in plan.selected():  # in an order in which they can run
        address = stage.id, stage.key
        bad = [states[other] for other in plan.upstream[address] if states[other].state in FAILED]
        bad += [states[other] for other in waits.get(address, ()) if states[other].unread]
        if states[address].state == "blocked" and not bad:
            again += _start_over([stage], states)
    return again


def mark_stale(plan: Plan, states: States) -> None:
    """Make Snakemake collect again where stages ended that the database does not hold.

    Times alone are not enough: after a kill, a clock that was set back leaves statuses that are older than the
    database.
    """
    database, held = plan.settings.results / DATABASE, read_collected(plan.settings.results).get("stages")
    if held is None or not database.exists():
        return
    if held == _digest_of(states):
        return
    date([database], LONG_AGO)


def _digest_of(states: States) -> str:
    return digest((key, state) for (_, key), state in states.items())


def _start_over(stages: list[PlannedStage], states: States) -> list[PlannedStage]:
    """Set aside the statuses of stages, so that these run again; return the stages."""
    for stage in stages:
        _set_aside(stage)
        states[stage.id, stage.key] = StageState("missing")
    return stages


def _set_aside(stage: PlannedStage) -> None:
    """Rename the status to the first free `status.attempt-N.json`, and anything that blocks a file's place likewise."""
    for path in {stage.status, *misplaced(stage.dir)}:
        number = 1
        while os.path.lexists(aside := path.with_name(f"{path.stem}.attempt-{number}{path.suffix}")):
            number += 1
        if os.path.lexists(path):
            os.rename(path, aside)


def waits_of(plan: Plan, states: States) -> Waits:
    """Return which selected commands wait for which; none if files have already been read with the current readers.

    The first run of a study of commands goes first, to see before the others train whether its files can be read.
    `ablation check`, which runs one variant in a folder of its own, may settle that before the grid starts.
    """
    readings = {
        id: config["command"]["reading"]
        for (id, _), config in plan.configs.items()
        if config.get("command", {}).get("collect")
    }
    unknown = {id for id, reading in readings.items() if not _known(plan, id, reading, states)}
    selected = [(stage.id, stage.key) for stage in plan.selected()] if unknown else []
    waits: Waits = {}
    for study in plan.content.studies:
        runs = [[(f"{study.name}.{stage}", key) for stage, key in run.stages.items()] for run in study.runs]
        first = next((run for run in runs if set(selected).issuperset(run)), [])
        if ahead := tuple(address for address in first if address[0] in unknown):
            others = {address for run in runs for address in run}.intersection(selected).difference(first)
            waits |= {address: ahead for address in others if "command" in plan.configs[address]}
    return waits


def _known(plan: Plan, id: str, reading: str, states: States) -> bool:
    """Tell whether the grid or a check has read files of the stage with its current readers."""
    checks = plan.settings.results.joinpath(CHECKS, "stages", *id.split(".", 1)).glob(f"*/{STATUS}")
    found = [state for (other, _), state in states.items() if other == id]
    found += [read_state(path.parent) for path in checks]
    return any(state.reading == reading and state.state in ("ok", "diverged") for state in found)
