"""Whether stages fit into memory: what a study's `footprint` module estimates.

Declared are the memory of a device (`device_memory` of the settings, or of the scale) and the stage's `mem_mb`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from pydantic import ValidationError

from ablation.config import dotted
from ablation.config.study import Study, Variant
from ablation.config.study_file import import_beside_configs
from ablation.config.study_schema import ASSET_PREFIX
from ablation.contract.errors import ConfigError
from ablation.contract.footprint import GIB, Footprint, ModelAsset, UnknownSize
from ablation.plan.plan_file import Plan, PlannedStage
from ablation.plan.retry import States, pending

FILES = "files"  # of an asset's stage
MB = 1_000_000  # the unit of mem_mb in Snakemake and schedulers
USABLE = 0.97  # usable share of a device: the rest goes to its context and to the allocator's gaps between tensors
PROCESS = 300 << 20  # bytes of Python, torch and transformers that processes do not share (measured: 283 MiB)
_MOST_DEVICES = 64  # that are tried


@dataclass(frozen=True)
class Need:
    """Memory that one kind of stage needs with one configuration. device: GiB of a device; None: unknown.

    module: the study's, by which other configurations and numbers of devices are estimated.
    """

    stage: PlannedStage
    study: Study
    variant: Variant
    models: Mapping[str, ModelAsset]
    module: Any
    device: float | None
    devices: int
    footprint: Footprint

    @property
    def memory(self) -> int | None:
        """Return the usable bytes of a device; None: unknown."""
        return None if self.device is None else int((USABLE - self.footprint.reserved) * self.device * GIB)

    def estimate(self, config: Any, devices: int) -> Footprint | None:
        """Return what the stage needs with a configuration, on a number of devices; None if it holds no model."""
        try:
            estimate: Footprint | None = self.module.footprint(self.stage.stage, config, self.models, devices)
        except UnknownSize as error:
            return Footprint(notes=(f"not counted: {error}",))
        return estimate

    def on(self, devices: int) -> "Need | None":
        """Return the same stage on another number of devices; None if it holds no model."""
        footprint = self.estimate(self.variant.resolved, devices)
        return None if footprint is None else replace(self, footprint=footprint, devices=devices)

    @property
    def fits_device(self) -> bool:
        """Tell whether the stage can run at all, perhaps with smaller micro-batches."""
        return self.memory is None or self.footprint.least <= self.memory

    @property
    def host_size(self) -> int:
        """Return the bytes of the machine's memory that all processes take, their libraries included."""
        return self.footprint.host + self.devices * PROCESS

    @property
    def fits_host(self) -> bool:
        """Tell whether its use of the machine's memory is within its `mem_mb`."""
        return self.host_size <= self.stage.resources.mem_mb * MB

    @cached_property
    def enough(self) -> "Need | None":
        """Return it on the smallest sufficient number of devices; None: not even on 64."""
        tried = map(self.on, range(1, _MOST_DEVICES + 1))
        return next((need for need in tried if need is not None and need.fits_device), None)


def needs_of(plan: Plan, stages: Iterable[PlannedStage], *, device_memory: float | None) -> list[Need]:
    """Return the needs of the stages, once for each configuration: seeds need the same. Others are left out.

    device_memory: GiB of one device. Raises ConfigError where a study's module cannot be imported.
    """
    needs: dict[tuple[str, str, int], Need | None] = {}
    for stage in stages:
        study, devices = plan.studies.get(stage.study), max(1, stage.resources.gpu)
        address = (stage.id, stage.variants[0], devices)
        if study is None or study.written.footprint is None or address in needs:
            continue
        variant = study.variants[stage.variants[0]]
        models, module = _models(plan, study, variant), _module(study, study.written.footprint)
        needs[address] = Need(stage, study, variant, models, module, device_memory, devices, Footprint()).on(devices)
    return [need for need in needs.values() if need is not None]


def _module(study: Study, name: str) -> Any:
    try:
        module = import_beside_configs(name)
        module.footprint  # noqa: B018 - it is there
    except (ImportError, AttributeError) as error:
        remedy = "name a module with a function `footprint`, see ablation/contract/footprint.py"
        raise ConfigError(study.file, "footprint", name, f"cannot be used ({error})", remedy) from error
    return module


def check_fit(plan: Plan, states: States) -> list[str]:
    """Return a line for each kind of stage whose batches will be halved; only of stages that are to run.

    Raises ConfigError for a stage that cannot fit its device with one row at a time, or its `mem_mb`.
    """
    needs = needs_of(plan, pending(plan, states), device_memory=plan.settings.device_memory)
    for need in fullest(needs):
        if problem := problem_of(need):
            raise problem
    return [
        f"{need.stage.id} ({need.variant.name}) will halve its batches: {gib(need.footprint.peak)} GiB as configured, "
        f"of {gib(need.memory)} usable"
        for need in fullest(needs, lambda need: need.footprint.peak)
        if need.memory is not None and need.footprint.peak > need.memory
    ]


def problem_of(need: Need) -> ConfigError | None:
    """Return why a stage cannot run, and a remedy; None if it can."""
    name, footprint, mem_mb = f"{need.stage.id} ({need.variant.name})", need.footprint, -(-need.host_size // MB)
    if need.memory is not None and not need.fits_device:
        parts = ", ".join(f"{part} {gib(size)}" for part, size in footprint.held.items())
        room = f"{gib(footprint.least)} GiB on a device with one row at a time, of {gib(need.memory)} usable"
        return ConfigError("device_memory", "", None, f"{name} needs {room}: {parts}", "; ".join(remedies(need)))
    if not need.fits_host:
        problem = (
            f"{name} needs {mem_mb} MB of the machine's memory, of {need.stage.resources.mem_mb} declared: "
            f"models while they are loaded or saved {gib(footprint.host)} GiB, "
            f"Python and libraries {gib(need.devices * PROCESS)} GiB"
        )
        scale = need.stage.id.replace(".", ".resources.", 1)
        return ConfigError("mem_mb", "", None, problem, f"set studies.{scale}.mem_mb in the scale to {mem_mb} at least")
    return None


def remedies(need: Need) -> list[str]:
    """Return settings and numbers of devices that would make the stage smaller, each tried."""
    smaller = []
    for key, value in getattr(need.module, "TRIED", {}).items():
        values = dotted.merge(need.variant.values, dotted.nested({key: value}))
        try:
            estimate = need.estimate(type(need.variant.resolved).model_validate(values), need.devices)
        except ValidationError:  # these settings exclude each other
            continue
        if estimate is not None and estimate.least < need.footprint.least:
            smaller.append((f"{key}: {json.dumps(value)}".replace('"', ""), estimate.least))
    if (enough := need.enough) is not None and enough.devices > need.devices:
        mem_mb = -(-enough.host_size // MB)
        smaller.append((f"gpu: {enough.devices} (with mem_mb of {mem_mb} at least)", enough.footprint.least))
    return [
        f"{what} makes it {gib(least)} GiB" + (", which fits" if need.memory and least <= need.memory else "")
        for what, least in smaller
    ] or ["use a smaller model, shorter sequences or a larger device"]


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


def _models(plan: Plan, study: Study, variant: Variant) -> dict[str, ModelAsset]:
    """Return the assets of a variant that are models, by their config key, with the folders of their files."""
    models = {}
    for stage in plan.content.stages:
        if stage.study != study.name or variant.name not in stage.variants:
            continue
        for name, source in study.stages[stage.stage].inputs.items():
            key = source.removeprefix(ASSET_PREFIX)
            if key != source and name in stage.inputs:
                asset: Any = reduce(getattr, key.split("."), variant.resolved)
                if asset.kind == "model":
                    models[key] = ModelAsset(asset, stage.inputs[name] / FILES)
    return models
