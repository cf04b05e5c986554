"""`ablation check`: run one variant with one seed in a separate folder, and check the output against the study file.

The grid does not use this run. The output of the command is kept, so that a corrected `collect` needs no rerun.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ablation.cli.common import add_shared
from ablation.cli.configs import settings_of
from ablation.cli.init import TEMPLATE
from ablation.config.study import Study
from ablation.config.yaml_io import load_yaml
from ablation.contract.display import listed
from ablation.contract.errors import TrackerError
from ablation.contract.numbers import alone, counted, duration, stated
from ablation.contract.stage_folder import CHECKS
from ablation.contract.status import StageState, read_state
from ablation.plan.build import build_plan
from ablation.plan.checks import pool_problems
from ablation.plan.plan_file import ASSETS, Plan, PlannedRun, PlannedStage, PlannedStudy
from ablation.store.collect import collect_apart
from ablation.store.database import DATABASE, Store
from ablation.store.unlogged import find_unlogged

_SHOWN = 12  # names of metrics, or of items


def declare_check(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `check`."""
    parser.description = (
        "Run one variant with one seed in a separate folder, read the output, and report problems. The grid does not "
        "use this run."
    )
    text = "a study, or a variant of it (default: the first variant)"
    parser.add_argument("study", metavar="STUDY[/VARIANT]", help=text)
    add_shared(parser, "--scale", "--config", "--results")


def run_check(arguments: argparse.Namespace) -> int:
    """Run the stages of one run; print problems, the peak memory, and the estimated time of the grid."""
    name, _, variant = arguments.study.partition("/")
    plan = build_plan(settings_of(arguments, studies=name, results=arguments.results))
    (study,) = plan.content.studies
    chosen = plan.studies[name].variant(variant or study.variants[0].name)
    run = next(run for run in study.runs if run.variant == chosen.name)
    alone = _alone(plan, study, run)
    for problem in pool_problems(plan, alone.content.stages):
        raise problem
    alone.write()
    place = alone.settings.results
    print(f"{name}/{run.variant} with seed {run.seed} runs in {place}; the grid does not use this run", flush=True)
    states = {stage.id: _run(plan, stage) for stage in alone.content.stages}
    for id, state in states.items():
        if state.state != "ok":
            print(f"problem: {id}: {state.state}: {state.reason}")
        if state.unread:
            print(
                "    the files of the stage are kept; correct `collect`, then run `check` again, which reads these "
                "files without running the stage again"
            )
    if any(state.state != "ok" for state in states.values()):
        return 1
    collect_apart(place, place / DATABASE)
    with Store(place / DATABASE) as store:
        problems = find_unlogged(store, name)
        left = left_of_the_example(plan.studies[name])
        lines = [*_found(store), _memory(states), *_cost(plan, states), *left]
        print(*lines, *(f"problem: {problem}" for problem in problems), sep="\n")
    return 1 if problems else 0


def left_of_the_example(study: Study) -> Iterator[str]:
    """Yield a note for each text that a study with a command of its own still has from the example project."""
    example = TEMPLATE / "configs" / "studies" / "example"
    example_study = load_yaml(example / "_study.yaml")
    if [stage.command for stage in study.stages.values()] == [
        stage["command"] for stage in example_study["stages"].values()
    ]:
        return
    whys = {load_yaml(path)["why"] for path in example.glob("[!_]*.yaml")}
    kept = [(study.file, key) for key in ("title", "question") if getattr(study.written, key) == example_study[key]]
    kept += [(variant.file, "why") for variant in study.variants.values() if variant.why in whys]
    for file, key in kept:
        yield f"note: {file}: {key} is still the text of the example; replace it, because the report page shows it"


def _alone(plan: Plan, study: PlannedStudy, run: PlannedRun) -> Plan:
    """Return a plan with only this run, in a separate folder that shares the assets of the grid."""
    results = plan.settings.results
    place = results / CHECKS
    wanted = plan.with_upstream((f"{study.name}.{stage}", key) for stage, key in run.stages.items())

    def moved(folder: Path) -> Path:
        inside = folder.relative_to(results)
        return (results if inside.parts[1] == ASSETS else place).absolute() / inside

    def checked(stage: PlannedStage) -> PlannedStage:
        inputs = {name: moved(folder) for name, folder in stage.inputs.items()}
        label = stage.label if stage.id == ASSETS else f"{run.variant} seed {run.seed}"
        return stage.model_copy(update={"dir": moved(stage.dir), "inputs": inputs, "label": label})

    stages = tuple(checked(stage) for address, stage in plan.stages.items() if address in wanted)
    only = {"results": place, "studies": (study.model_copy(update={"runs": (run,)}),), "stages": stages}
    return replace(
        plan, settings=plan.settings.model_copy(update={"results": place}), content=plan.content.model_copy(update=only)
    )


def _run(plan: Plan, stage: PlannedStage) -> StageState:
    """Run a stage as the grid does; return its state. Raises TrackerError if the stage could not run."""
    words = [sys.executable, "-m", "ablation.runner.run", *stage.arguments]
    words += ["--threads", str(stage.resources.threads), "--parent", str(os.getpid())]
    environment = {**os.environ, "ABLATION_WANDB": ""}  # in wandb, the grid's stage has the same id
    project = plan.settings.configs.absolute().parent
    if subprocess.run(words, check=False, cwd=project, env=environment).returncode != 0:
        raise TrackerError(f"{stage.id}: the stage could not run; read {stage.dir / 'log.txt'}")
    return read_state(stage.dir, stage.key)


def _found(store: Store) -> Iterator[str]:
    """Yield lines that name the metrics and the items that were read."""
    query = """SELECT name, count(*) FROM run_stages JOIN metrics USING (key) GROUP BY name ORDER BY name"""
    names = [f"{name} ({count} steps)" if count > 1 else name for name, count in store.rows(query)[1]]
    yield f"metrics: {listed(names, _SHOWN) or 'none'}"
    query = """SELECT concat_ws('/', protocol, subset, name), count(*), avg(value), min(value), max(value)
               FROM finals JOIN items USING (key) GROUP BY ALL ORDER BY ALL"""
    rows = store.rows(query)[1]
    same = {name for name, _, _, low, high in rows if low == high}
    found = [
        f"{name} ({counted(n, 'item')}, {f'all {stated(mean)}' if name in same else f'mean {alone(mean)}'})"
        for name, n, mean, *_ in rows
    ]
    none = "none, but verdicts need items; name a reader of items in `collect`, or write a single number as one item"
    yield f"items: {listed(found, _SHOWN) or none}"


def _memory(states: Mapping[str, StageState]) -> str:
    """Return a line with the peak memory of each stage: of the device or, if it used no device, of the process."""
    peaks = [
        f"{id} {state.device_memory_mb:,.0f} MB on the device"
        if state.device_memory_mb
        else f"{id} {state.memory_mb or 0:,.0f} MB in the process"
        for id, state in states.items()
    ]
    return f"peak memory: {', '.join(peaks)}"


def _cost(plan: Plan, states: Mapping[str, StageState]) -> Iterator[str]:
    """Yield a line with the estimated time of all jobs: for each stage, its seconds times its number of jobs."""
    counts = Counter(stage.id for stage in plan.stages.values() if stage.id != ASSETS)
    took = {id: states[id].wall_s or 0.0 for id in counts}
    parts = ", ".join(f"{id} {alone(took[id])} s x {count}" for id, count in counts.items())
    yield f"all jobs of the grid take about {duration(sum(took[id] * count for id, count in counts.items()))}: {parts}"
