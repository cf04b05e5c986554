"""The first run of a study of commands goes first, to see before the others train whether its files can be read.

`ablation check`, which runs one variant in a folder of its own, may settle that before the grid starts.
"""

from ablation.contract.stage_folder import CHECKS
from ablation.contract.status import STATUS, read_state
from ablation.plan.plan import Plan
from ablation.plan.retry import States, Waits


def waits_of(plan: Plan, states: States) -> Waits:
    """Return which selected commands wait for which; none if files have already been read with the current readers."""
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
