"""Devices that a stage would leave idle: its entry module runs one process, which uses the first device."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from ablation.config.study_schema import COMMAND_ENTRY
from ablation.plan.entries import names_of
from ablation.plan.plan_file import PlannedStage

_USES_SEVERAL = {"RANKS", "USES_ALL_DEVICES"}  # names that an entry module binds, see docs/add-a-trainer.md


def idle_devices(stages: Iterable[PlannedStage], folders: Sequence[Path]) -> list[str]:
    """Return a line for each kind of stage, except commands, that asks for several devices and uses one.

    folders: those that hold the packages of the entry modules.
    """
    most: dict[str, PlannedStage] = {}
    for stage in stages:
        known = most.get(stage.id)
        if stage.resources.gpu > (1 if known is None else known.resources.gpu) and stage.entry != COMMAND_ENTRY:
            most[stage.id] = stage
    uses_one = cache(lambda entry: (names := names_of(entry, folders)) is not None and not names & _USES_SEVERAL)
    return [
        f"{stage.id} is given {stage.resources.gpu} devices and uses one, the others idle: set gpu: 1 in "
        f"studies.{stage.study}.resources.{stage.stage} of the scale, not in a variant (docs/several-devices.md)"
        for stage in most.values()
        if uses_one(stage.entry)
    ]
