"""Checks before the first job: number of devices, installed packages, and uncommitted files."""

import subprocess
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from ablation.config import dotted
from ablation.config.scale import load_scale
from ablation.config.study_schema import COMMAND_ENTRY
from ablation.contract.code import Sources
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.plan.plan_file import Plan, PlannedStage
from ablation.plan.retry import States, pending

_USES_SEVERAL = {"RANKS", "USES_ALL_DEVICES"}  # names in entry modules (docs/how-to/add-a-trainer.md)


def check_pool(plan: Plan, states: States) -> None:
    """Raise ConfigError if a stage that is to run needs more devices than the grid may use.

    Snakemake would silently reduce the number.
    """
    for problem in pool_problems(plan, pending(plan, states)):
        raise problem


def pool_problems(plan: Plan, stages: Iterable[PlannedStage]) -> Iterator[ConfigError]:
    """Yield an error, with remedies, for each kind of stage that needs more devices than the grid may use."""
    pool, seen = plan.settings.gpus, set()
    for stage in stages:
        gpu = stage.resources.gpu
        if gpu <= pool or (stage.id, gpu) in seen:
            continue
        seen.add((stage.id, gpu))
        problem = f"{stage.id} needs {counted(gpu, 'device')}, but the grid may use only {pool}"
        remedy = f"run with --resources gpu={gpu}, or leave out the study (--config studies=...)"
        yield ConfigError(*source_of_gpu(plan, stage), gpu, problem, remedy)


def source_of_gpu(plan: Plan, stage: PlannedStage) -> tuple[Path, str]:
    """Return the file and the key that set a stage's number of devices, in a variant, the scale or the study."""
    study = plan.studies[stage.study]
    for variant in (study.variants[name] for name in stage.variants):
        if variant.gpu == stage.resources.gpu:
            return variant.file, "gpu"
    scale = load_scale(plan.settings.configs, plan.settings.scale).study(study.name)
    override = scale.definition.resources.get(stage.stage)
    if override is not None and override.gpu is not None:
        return scale.file, f"{scale.prefix}resources.{stage.stage}.gpu"
    return study.file, f"stages.{stage.stage}.resources.gpu"


def check_packages(plan: Plan, states: States) -> None:
    """Raise ConfigError if a stage that is to run needs a package that is not installed.

    A config model names these packages in `needed_packages(stage)` -> {package: (dotted key that needs it, remedy)}.
    """
    for stage in pending(plan, states):
        if stage.entry.startswith("trainers.") and find_spec("torch") is None:
            problem = f"{stage.id} needs the repository's trainers, but torch is not installed"
            raise ConfigError(Path("pyproject.toml"), "trainers", None, problem, "run pip install -e '.[trainers]'")
        study = plan.studies.get(stage.study)
        variants = [] if study is None else [study.variants[name] for name in stage.variants]
        for variant in variants:
            needed = getattr(variant.resolved, "needed_packages", None)
            for package, (key, remedy) in ({} if needed is None else needed(stage.stage)).items():
                if find_spec(package) is None:
                    problem = f"{stage.id} needs {package}, which is not installed"
                    raise ConfigError(variant.file, key, dotted.get(variant.values, key), problem, remedy)


def idle_devices(stages: Iterable[PlannedStage], root: Path) -> list[str]:
    """Return a line for each kind of stage, except commands, that requests several devices but uses only the first.

    root: folder with the packages of the entry modules.
    """
    most: dict[str, PlannedStage] = {}
    sources = Sources(root)  # reads the modules without importing them
    for stage in stages:
        planned = most.get(stage.id)
        if stage.resources.gpu > (1 if planned is None else planned.resources.gpu) and stage.entry != COMMAND_ENTRY:
            most[stage.id] = stage
    return [
        f"{stage.id} gets {stage.resources.gpu} devices but uses only one; set gpu: 1 under "
        f"studies.{stage.study}.resources.{stage.stage} in the scale's file, not in a variant "
        "(docs/how-to/several-devices.md)"
        for stage in most.values()
        if sources.find(stage.entry) and not _USES_SEVERAL.intersection(sources.binds(stage.entry))
    ]


def check_trees(plan: Plan, root: Path, states: States) -> list[str]:
    """Return a warning about uncommitted files for each study that asks for the warning and has stages to run.

    Stages that only `snakemake -F` or `-R` runs again are not known yet, so they do not count. Raises ConfigError for a
    study that refuses uncommitted files.
    """
    policies = {name: study.written.dirty_tree for name, study in plan.studies.items()}
    starting = {name: len(pending(plan, states, name)) for name, policy in policies.items() if policy != "allow"}
    if not any(starting.values()):
        return []
    files, remedy = dirty_files(root, outside=(plan.settings.results, plan.settings.reports)), "commit or remove them"
    problem = f"there are uncommitted files ({listed(files)})" if files else ""
    if files is None:
        problem = f"git cannot list the uncommitted files in {root.resolve()}"
        remedy = "create a repository with `git init` and commit the files, or correct what `git status` reports"
    warnings = []
    for name, count in starting.items():
        if not (problem and count):
            continue
        study = plan.studies[name]
        if policies[name] == "refuse":
            refused = f"{problem}, so the study {name} does not start its {counted(count, 'stage')}"
            raise ConfigError(study.file, "dirty_tree", "refuse", refused, f"{remedy}, or set dirty_tree to warn")
        warnings.append(
            f"{name}: {problem}, so no commit will contain the code of these results; {remedy}, or set "
            f"dirty_tree to allow in {study.file}"
        )
    return warnings


def dirty_files(root: Path, outside: Iterable[Path] = ()) -> list[str] | None:
    """Return the changed and untracked files below `root`, sorted; None outside a git repository, or if git fails.

    Files that git ignores and files in the folders `outside` do not count.
    """
    base = root.resolve()
    folders = [folder.resolve() for folder in outside]
    excluded = [f":(exclude,literal){f.relative_to(base)}" for f in folders if f.is_relative_to(base) and f != base]
    command = ["git", "-C", str(base), "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"]
    try:
        done = subprocess.run(
            [*command, "--", ".", *excluded], capture_output=True, text=True, errors="replace", check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return sorted(entry[3:] for entry in done.stdout.split("\0") if entry)
