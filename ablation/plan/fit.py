"""Whether stages fit into memory: the needs that a study's `footprint` module estimates, against declared sizes.

Declared are the memory of a device (`device_memory` of the settings, or of the scale) and the stage's `mem_mb`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from pydantic import ValidationError

from ablation.config import dotted
from ablation.config.study import Study, Variant
from ablation.config.study_file import import_beside_configs
from ablation.config.study_schema import ASSET_PREFIX
from ablation.contract.errors import ConfigError
from ablation.contract.footprint import GIB, Footprint, Footprints, ModelAsset
from ablation.plan.plan_file import Plan, PlannedStage
from ablation.plan.retry import States, pending

FILES = "files"  # of an asset's stage
MB = 1_000_000  # the unit of mem_mb in Snakemake and schedulers
USABLE = 0.97  # usable share of a device: the rest goes to its context and to the allocator's gaps between tensors
PROCESS = 300 << 20  # bytes of Python, torch and transformers that processes do not share (measured: 283 MiB)
_MOST_DEVICES = 64  # that are tried


@dataclass(frozen=True)
class Need:
    """Memory that one kind of stage needs with one configuration. memory: usable bytes of a device; None: unknown.

    function: the study's, by which other configurations and numbers of devices are estimated.
    """

    stage: PlannedStage
    study: Study
    variant: Variant
    footprint: Footprint
    models: Mapping[str, ModelAsset]
    memory: int | None
    function: Footprints
    devices: int

    @property
    def fits_device(self) -> bool:
        """Tell whether the stage can run at all, perhaps with smaller micro-batches."""
        return self.memory is None or self.footprint.least <= self.memory

    @property
    def host(self) -> dict[str, int]:
        """Return the bytes of the machine's memory by name, with what a process takes before it has read a model."""
        return {**self.footprint.host, "Python and libraries": self.devices * PROCESS}

    @property
    def host_size(self) -> int:
        """Return the bytes of the machine's memory that all processes take."""
        return sum(self.host.values())

    @property
    def fits_host(self) -> bool:
        """Tell whether its use of the machine's memory is within its `mem_mb`."""
        return self.host_size <= self.stage.resources.mem_mb * MB

    def on(self, devices: int) -> "Need":
        """Return the same stage on another number of devices."""
        made = self.function(self.stage.stage, self.variant.resolved, self.models, devices)
        assert made is not None  # it holds something on these
        return replace(self, footprint=made, devices=devices)

    @cached_property
    def enough(self) -> "Need | None":
        """Return it on the smallest sufficient number of devices; None: not even on 64."""
        tried = map(self.on, range(1, _MOST_DEVICES + 1))
        return next((need for need in tried if need.fits_device), None)


def needs_of(plan: Plan, stages: Iterable[PlannedStage], *, device_memory: float | None) -> list[Need]:
    """Return the needs of the stages, once for each configuration: seeds need the same. Others are left out.

    device_memory: GiB of one device. Raises ConfigError where a study's module cannot be imported.
    """
    memory = None if device_memory is None else int(USABLE * device_memory * GIB)
    found: dict[tuple[str, str, int], Need | None] = {}
    for stage in stages:
        study, devices = plan.studies.get(stage.study), max(1, stage.resources.gpu)
        function = None if study is None else function_of(study)
        address = (stage.id, stage.variants[0], devices)
        if study is None or function is None or address in found:
            continue
        variant = study.variants[stage.variants[0]]
        models = _models(plan, study, variant)
        made = function(stage.stage, variant.resolved, models, devices)
        found[address] = None if made is None else Need(stage, study, variant, made, models, memory, function, devices)
    return [need for need in found.values() if need is not None]


def function_of(study: Study) -> Footprints | None:
    """Return the function that estimates the needs of a study's stages; None if the study names no module for it."""
    name = study.written.footprint
    if name is None:
        return None
    try:
        function: Footprints = import_beside_configs(name).footprint
    except (ImportError, AttributeError) as error:
        remedy = "name a module with a function `footprint`, see ablation/contract/footprint.py"
        raise ConfigError(study.file, "footprint", name, f"cannot be used ({error})", remedy) from error
    return function


def check_fit(plan: Plan, states: States) -> list[str]:
    """Return a line for each kind of stage whose batches will be halved; only of stages that are to run.

    Raises ConfigError for a stage that cannot fit its device with one row at a time, or its `mem_mb`.
    """
    memory = plan.settings.device_memory
    needs = needs_of(plan, pending(plan, states), device_memory=memory)
    for need in fullest(needs):
        if problem := problem_of(need):
            raise problem
    return [line for need in fullest(needs, lambda need: need.footprint.peak) if (line := _halved(need)) is not None]


def problem_of(need: Need) -> ConfigError | None:
    """Return why a stage cannot run, and a remedy; None if it can."""
    name, scale = f"{need.stage.id} ({need.variant.name})", need.stage.id.replace(".", ".resources.", 1)
    if not need.fits_device:
        assert need.memory is not None
        made = need.footprint
        problem = (
            f"{name} needs {gib(made.least)} GiB on a device with one row at a time, of {gib(need.memory)} usable: "
            f"{', '.join(f'{part} {gib(size)}' for part, size in made.held.items())}"
        )
        return ConfigError("device_memory", "", None, problem, "; ".join(remedies(need)))
    if not need.fits_host:
        size, mem = need.host_size, need.stage.resources.mem_mb
        parts = ", ".join(f"{part} {gib(bytes_)} GiB" for part, bytes_ in need.host.items())
        problem = f"{name} needs {-(-size // MB)} MB of the machine's memory, of {mem} declared: {parts}"
        remedy = f"set studies.{scale}.mem_mb in the scale to {-(-size // MB)} at least"
        return ConfigError("mem_mb", "", None, problem, remedy)
    return None


def remedies(need: Need) -> list[str]:
    """Return settings and numbers of devices that would make the stage smaller, each tried."""
    settings = getattr(import_beside_configs(need.study.written.footprint or ""), "TRIED", {})
    changes = [{key: value} for key, value in settings.items() if dotted.get(need.variant.values, key, value) != value]
    tried = [(change, least) for change in changes if (least := _least_with(need, change))]
    if len(tried) > 1:
        together = {key: value for change, _ in tried for key, value in change.items()}
        tried += [(together, least)] if (least := _least_with(need, together)) else []
    found = [
        (" and ".join(f"{key}: {json.dumps(value)}" for key, value in change.items()).replace('"', ""), least)
        for change, least in tried
    ]
    if (enough := need.enough) is not None and enough.devices > need.devices:
        mem_mb = -(-enough.host_size // MB)
        found.append((f"gpu: {enough.devices} (with mem_mb of {mem_mb} at least)", enough.footprint.least))
    return [
        f"{what} makes it {gib(least)} GiB" + (", which fits" if need.memory and least <= need.memory else "")
        for what, least in found
    ] or ["use a smaller model, shorter sequences or a larger device"]


def _least_with(need: Need, changes: Mapping[str, Any]) -> int | None:
    """Return the bytes that a stage needs with other settings; None where these are not less, or not valid."""
    values = deepcopy(dict(need.variant.values))
    for key, value in changes.items():
        dotted.put(values, key, value)
    try:
        config = type(need.variant.resolved).model_validate(values)
    except ValidationError:
        return None
    made = need.function(need.stage.stage, config, need.models, need.devices)
    return None if made is None or made.least >= need.footprint.least else made.least


def _rank(need: Need) -> tuple[bool, bool, int, int]:
    return (not need.fits_device, not need.fits_host, need.footprint.least, need.footprint.peak)


def fullest(needs: Iterable[Need], rank: Callable[[Need], Any] = _rank) -> list[Need]:
    """Return for each kind of stage the configuration that needs most device memory, in the order of the stages."""
    most: dict[str, Need] = {}
    for need in needs:
        most[need.stage.id] = max(most.get(need.stage.id, need), need, key=rank)  # the first of equal ones
    return list(most.values())


def gib(size: int) -> str:
    """Return bytes in GiB, with a readable number of digits."""
    value = size / GIB
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 0.05 or size == 0 else "<0.1"


def _halved(need: Need) -> str | None:
    """Return the warning for a stage that fits only with smaller parts of its batches."""
    made = need.footprint
    if need.memory is None or made.peak <= need.memory:
        return None
    large = [
        f"{work.name} ({work.rows:,} rows at once: {gib(work.size)} GiB)"
        for work in made.works
        if made.held_size + work.size > need.memory
    ]
    return (
        f"{need.stage.id} ({need.variant.name}) will halve its batches: {gib(made.peak)} GiB as configured, of "
        f"{gib(need.memory)} usable: {', '.join(large)}"
    )


def _models(plan: Plan, study: Study, variant: Variant) -> dict[str, ModelAsset]:
    """Return the assets of a variant that are models, by their config key, with the folders of their files."""
    found = {}
    for stage in plan.content.stages:
        if stage.study != study.name or variant.name not in stage.variants:
            continue
        for name, source in study.stages[stage.stage].inputs.items():
            key = source.removeprefix(ASSET_PREFIX)
            if key != source and name in stage.inputs:
                asset: Any = reduce(getattr, key.split("."), variant.resolved)
                if asset.kind == "model":
                    found[key] = ModelAsset(asset, stage.inputs[name] / FILES)
    return found
