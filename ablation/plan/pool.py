"""Stages that ask for more accelerators than there are are refused before any job; Snakemake would clamp the number."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from ablation.config.scale import load_scale
from ablation.contract.errors import ConfigError
from ablation.plan.plan import Plan
from ablation.plan.plan_file import PlannedStage
from ablation.plan.retry import States, pending


def check_pool(plan: Plan, states: States) -> None:
    """Raise ConfigError for the first stage that is to run and asks for more than the pool has."""
    for problem in pool_problems(plan, pending(plan, states)):
        raise problem


def pool_problems(plan: Plan, stages: Iterable[PlannedStage]) -> Iterator[ConfigError]:
    """Yield, once for each kind of stage, that it asks for more than the pool: where it does, and the remedies."""
    pool, seen = plan.settings.gpus, set()
    for stage in stages:
        gpu = stage.resources.gpu
        if gpu <= pool or (stage.id, gpu) in seen:
            continue
        seen.add((stage.id, gpu))
        problem = f"{stage.id} asks for more devices than the pool of {pool}"
        others = "leave the study out (--config studies=...)"
        yield ConfigError(*source_of(plan, stage, "gpu"), gpu, problem, f"run with --resources gpu={gpu}, or {others}")


def source_of(plan: Plan, stage: PlannedStage, resource: str) -> tuple[Path, str]:
    """Return the file and the key that ask for a stage's resource: a variant's (`gpu`), the scale's or the study's."""
    study = plan.studies[stage.study]
    for variant in (study.variants[name] for name in stage.variants):
        if resource == "gpu" and variant.gpu == stage.resources.gpu:
            return variant.file, "gpu"
    scale = load_scale(plan.settings).study(study.name)
    override = scale.definition.resources.get(stage.stage)
    if override is not None and getattr(override, resource) is not None:
        return scale.file, f"{scale.prefix}resources.{stage.stage}.{resource}"
    return study.file, f"stages.{stage.stage}.resources.{resource}"
