"""The command `fit`: memory that every stage needs, next to declared sizes and measured use."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablation.cli.common import aligned, print_json
from ablation.cli.configs import settings_of
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json
from ablation.contract.status import STATUS
from ablation.plan.build import build_plan
from ablation.plan.fit import MB, Need, fullest, gib, needs_of, problem_of
from ablation.plan.plan_file import Plan

_MAX_STATUS = 1 << 20
_MOST_DEVICES = 1024


def run_fit(arguments: argparse.Namespace) -> int:
    """Print the table; exit status 1 where a stage cannot fit."""
    if wrong := [count for count in arguments.devices or () if not 1 <= count <= _MOST_DEVICES]:
        problem, remedy = "is not a valid number of devices", f"write numbers from 1 to {_MOST_DEVICES}"
        raise ConfigError("fit", "--devices", wrong[0], problem, remedy)
    given = {"studies": arguments.study, "device_memory": arguments.device_memory}
    arguments.config = [*arguments.config, *(f"{key}={value}" for key, value in given.items() if value is not None)]
    settings = settings_of(arguments)
    memory, plan, failed = settings.device_memory, build_plan(settings), False
    rows: list[dict[str, Any]] = []
    for name, study in plan.studies.items():
        stages = [stage for stage in plan.content.stages if stage.study == name]
        worst = fullest(needs_of(plan, stages, device_memory=memory))
        failed |= any(problem_of(need) is not None for need in worst)
        if arguments.json:
            rows += map(as_row, worst)
            continue
        of_device = "" if memory is None else f", devices of {memory:g} GiB"
        print(f"{name} at scale {settings.scale}{of_device}")
        if study.written.footprint is None:
            print("    nothing is known: _study.yaml names no `footprint`")
            continue
        for line in _divided(worst, arguments.devices) if arguments.devices else table(worst, measured(plan, worst)):
            print(f"    {line}")
        for line in () if arguments.devices else notes(worst):
            print(f"    {line}")
    if arguments.json:
        print_json("fit", rows)
    return int(failed)


def as_row(need: Need) -> dict[str, Any]:
    """Memory that one kind of stage needs, in bytes; None where its footprint knows nothing."""
    made, problem = need.footprint, problem_of(need)
    sizes = {"held": made.held_size, "one_row": made.least, "configured": made.peak}
    return {
        "study": need.study.name,
        "stage": need.stage.stage,
        "variant": need.variant.name,
        "devices": need.devices,
        **{name: size if made.held else None for name, size in sizes.items()},
        "usable": need.memory,
        "host": need.host_size,
        "declared": need.stage.resources.mem_mb * MB,
        "problem": None if problem is None else problem.problem,
    }


def table(needs: Sequence[Need], peaks: Sequence[str]) -> Iterator[str]:
    """Yield a row per kind of stage: GiB on its fullest device and on the machine."""
    head = ("stage", "most with", "devices", "held", "one row", "configured", "fits", "host", "declared", "measured")
    rows = [head, *(_row(need, peak) for need, peak in zip(needs, peaks, strict=True))]
    yield from aligned(rows, [False] * len(head))


def _row(need: Need, measured_: str) -> tuple[str, ...]:
    made, declared = need.footprint, gib(need.stage.resources.mem_mb * MB)
    sizes = [*map(gib, (made.held_size, made.least, made.peak)), _verdict(need), gib(need.host_size)]
    known = sizes if made.held else "?" * len(sizes)
    return (need.stage.stage, need.variant.name, str(need.devices), *known, declared, measured_)


def _verdict(need: Need) -> str:
    if need.memory is None:
        return "-"
    if not need.fits_device:
        return "no"
    return "yes" if need.footprint.peak <= need.memory else "halved"


def _divided(needs: Sequence[Need], devices: Sequence[int]) -> Iterator[str]:
    """Yield a row per kind of stage: GiB on the fullest device, with one row at a time, for each number of devices."""
    having = [need for need in needs if need.footprint.held]
    rows = [(need.stage.stage, *(gib(need.on(count).footprint.least) for count in devices)) for need in having]
    yield from aligned([("stage", *map(str, devices)), *rows], [False] * (1 + len(devices)))


def notes(needs: Sequence[Need]) -> Iterator[str]:
    """Yield lines on what does not fit and what would help, then on what was assumed and what is not counted."""
    for need in needs:
        if (problem := problem_of(need)) is not None:
            yield f"does not fit: {problem.problem}"
            yield f"    {problem.remedy}"
    for word, lines in (
        ("assumed", [(need, line) for need in needs for line in need.footprint.assumed]),
        ("not counted", [(need, line) for need in needs for line in need.footprint.unknown]),
    ):
        stages: dict[str, list[str]] = {}
        for need, line in lines:
            stages.setdefault(line, []).append(need.stage.stage)
        for line, names in stages.items():
            yield f"{word}: {line} ({', '.join(names)})"


def measured(plan: Plan, needs: Sequence[Need]) -> list[str]:
    """Return the peak memory measured for each kind of stage, on its device if it had one."""
    found = []
    for need in needs:
        ended = [_status(stage.dir / STATUS) for stage in plan.content.stages if stage.id == need.stage.id]
        host, device = (
            max(float(each.get(key) or 0) / 1024 for each in ended) for key in ("memory_mb", "device_memory_mb")
        )
        found.append(f"host {host:.1f}" + (f", device {device:.1f}" if device else "") if host else "-")
    return found


def _status(path: Path) -> dict[str, Any]:
    try:
        status = read_json(path, _MAX_STATUS)
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}
