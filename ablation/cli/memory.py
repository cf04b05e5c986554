"""The command `memory`: memory that every stage needs, next to declared sizes and measured use."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ablation.cli.common import print_json
from ablation.cli.configs import settings_of
from ablation.cli.options import add_configs, add_json, add_study
from ablation.contract.display import aligned
from ablation.contract.reading import read_json
from ablation.plan.build import build_plan
from ablation.plan.fit import MB, Need, fullest, gib, needs_of, problem_of
from ablation.plan.plan_file import Plan

_MAX_STATUS = 1 << 20
_HEAD = ("stage", "most with", "devices", "held", "one row", "configured", "fits", "host", "declared", "measured")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Estimate the memory that each stage needs, per device and on the machine, next to what is declared and "
        "measured, in GiB.\n"
        "held: from the first step to the last; one row: the least that a stage can run in; configured: with its "
        "batches as they are; halved: it runs, in smaller batches."
    )
    add_study(parser)
    device_memory = "memory of one device (default: as declared)"
    parser.add_argument("--device-memory", type=float, metavar="GIB", help=device_memory)
    add_json(parser)
    add_configs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; exit status 1 where a stage cannot fit."""
    settings = settings_of(arguments, studies=arguments.study, device_memory=arguments.device_memory)
    memory, plan = settings.device_memory, build_plan(settings)
    devices = "" if memory is None else f", devices of {memory:g} GiB"
    fullest_needs: list[Need] = []
    for name, study in plan.studies.items():
        stages = [stage for stage in plan.content.stages if stage.study == name]
        needs = needs_of(plan, stages, device_memory=memory)
        worst = fullest(needs)
        fullest_needs += worst
        if arguments.json:
            continue
        lines = [*memory_of(plan, worst), *notes(worst)]
        if study.written.footprint is None:
            lines = ["nothing is known: _study.yaml names no `footprint`"]
        print(f"{name} at scale {settings.scale}{devices}", *lines, sep="\n    ")
    if arguments.json:
        print_json("memory", list(map(as_row, fullest_needs)))
    return int(any(problem_of(need) is not None for need in fullest_needs))


def as_row(need: Need) -> dict[str, Any]:
    """Memory that one kind of stage needs, in bytes; None where its footprint knows nothing."""
    footprint, problem = need.footprint, problem_of(need)
    sizes = {"held": sum(footprint.held.values()), "one_row": footprint.least, "configured": footprint.peak}
    return {
        "study": need.study.name,
        "stage": need.stage.stage,
        "variant": need.variant.name,
        "devices": need.devices,
        **{name: size if footprint.held else None for name, size in sizes.items()},
        "usable": need.memory,
        "host": need.host_size,
        "declared": need.stage.resources.mem_mb * MB,
        "problem": None if problem is None else problem.problem,
    }


def memory_of(plan: Plan, needs: Sequence[Need]) -> list[str]:
    """Return a row for each kind of stage."""
    return aligned([_HEAD, *(_row(plan, need) for need in needs)], [False] * len(_HEAD))


def _row(plan: Plan, need: Need) -> tuple[str, ...]:
    """Return the cells of one kind of stage: GiB on its fullest device and on the machine."""
    footprint, fits = need.footprint, "-"
    if need.memory is not None:
        fits = "no" if not need.fits_device else "yes" if footprint.peak <= need.memory else "halved"
    sizes = [*map(gib, (sum(footprint.held.values()), footprint.least, footprint.peak)), fits, gib(need.host_size)]
    cells = sizes if footprint.held else "?" * len(sizes)
    name = (need.stage.stage, need.variant.name, str(need.devices))
    return (*name, *cells, gib(need.stage.resources.mem_mb * MB), measured(plan, need))


def notes(needs: Sequence[Need]) -> Iterator[str]:
    """Yield lines on what does not fit and what would help, then on what was assumed and what is not counted."""
    for need in needs:
        if (problem := problem_of(need)) is not None:
            yield f"does not fit: {problem.problem}"
            yield f"    {problem.remedy}"
    stages: dict[str, list[str]] = {}
    for need in needs:
        for line in need.footprint.notes:
            stages.setdefault(line, []).append(need.stage.stage)
    for line, names in stages.items():
        yield f"{line} ({', '.join(names)})"


def measured(plan: Plan, need: Need) -> str:
    """Return the peak memory measured for one kind of stage, on its device if it had one."""
    peaks = {"memory_mb": 0.0, "device_memory_mb": 0.0}
    for stage in plan.content.stages:
        if stage.id == need.stage.id and stage.status.exists():
            with suppress(OSError, ValueError, AttributeError):  # one that is damaged tells nothing
                status = read_json(stage.status, _MAX_STATUS)
                peaks = {key: max(peak, float(status.get(key) or 0) / 1024) for key, peak in peaks.items()}
    host, device = peaks.values()
    return (f"host {host:.1f}" + (f", device {device:.1f}" if device else "")) if host else "-"
