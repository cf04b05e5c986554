"""Devices that a stage would be given and leave idle: its entry module has one process, which uses the first."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tracker.config.study_schema import COMMAND_ENTRY
from tracker.plan.plan_file import PlannedStage

_USES_SEVERAL = {"RANKS", "USES_ALL_DEVICES"}  # names that an entry module binds, see docs/add-a-trainer.md


def idle_devices(stages: Iterable[PlannedStage], root: Path) -> list[str]:
    """Return a line for each kind of stage that asks for several devices and uses one; a command knows for itself.

    root: the folder that holds the packages of the entry modules.
    """
    most: dict[str, PlannedStage] = {}
    for stage in stages:
        known = most.get(stage.id)
        if stage.resources.gpu > (1 if known is None else known.resources.gpu) and stage.entry != COMMAND_ENTRY:
            most[stage.id] = stage
    uses_one = cache(lambda entry: (names := _names(entry, root)) is not None and not names & _USES_SEVERAL)
    return [
        f"{stage.id} is given {stage.resources.gpu} devices and uses one, the others idle: set gpu: 1 in "
        f"studies.{stage.study}.resources.{stage.stage} of the scale, not in a variant (docs/several-devices.md)"
        for stage in most.values()
        if uses_one(stage.entry)
    ]


def _names(entry: str, root: Path) -> set[str] | None:
    """Return the names that a module binds at its top level, by assignment; None where there is no such file."""
    stem = root.joinpath(*entry.split("."))
    module, package = stem.with_name(f"{stem.name}.py"), stem / "__init__.py"
    path = package if package.is_file() else module
    if not path.is_file():
        return None
    found: set[str] = set()
    for node in ast.parse(path.read_bytes()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
