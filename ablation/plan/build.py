"""Construction of the plan: variants and seeds are expanded into content-addressed stages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablation.config.names import NO_VARIANT, check_name
from ablation.config.settings import Settings
from ablation.config.study import Study, Variant
from ablation.config.study_schema import ASSET_MODEL, StageDefinition, StudyDefinition
from ablation.config.variants import load_studies
from ablation.contract.display import joined, listed
from ablation.plan.keys import ASSET_STAGE, Asset, Finder, Ingredients, key_of
from ablation.plan.plan_file import (
    ASSETS,
    Address,
    Plan,
    PlanFile,
    PlannedRun,
    PlannedStage,
    PlannedStudy,
    PlannedVariant,
    extended,
    load_extra_seeds,
)

PROJECT = Path(__file__).resolve().parents[2]


def build_plan(
    settings: Settings, gpu_pool: int | None = None, *, root: Path = PROJECT, more: Sequence[Variant] = ()
) -> Plan:
    """Return the plan of all stages for the variants and seeds of the settings' studies.

    Args:
        settings: the studies, seeds and selection.
        gpu_pool: number of accelerators that Snakemake may use; by default the settings' `gpus`.
        root: folder with the packages whose code is part of the keys.
        more: further variants, which no file declares.

    Raises ConfigError if the configuration is wrong or a selected variant does not exist.
    """
    if gpu_pool is not None:
        settings = settings.model_copy(update={"gpus": gpu_pool})
    studies = load_studies(settings)
    for new in more:
        study = studies[new.study]
        studies[new.study] = replace(study, variants={**study.variants, new.name: new})
    chosen = [study for study in studies.values() if settings.study in (None, study.name)]
    names = [name for study in chosen for name in study.variants]
    for variant in settings.variant:
        check_name(variant, names, "--config", "variant", NO_VARIANT)
    return _Builder(settings, studies, root).plan()


@dataclass
class _Draft:
    """Stage of a plan that is being built; each variant that shares it is added to `variants`."""

    study: str
    stage: str
    definition: StageDefinition
    seed: int | None
    inputs: dict[str, Address]
    config: dict[str, Any]
    gpu: int
    variants: dict[str, None]
    label: str = ""


class _Builder:
    """Builder of a plan: it collects the stages of all runs, and stages with equal keys become one."""

    def __init__(self, settings: Settings, studies: Mapping[str, Study], root: Path) -> None:
        self.settings, self.studies = settings, dict(studies)
        self.finder = Finder(root, settings.configs.parent, (settings.results, settings.reports))
        self.drafts: dict[Address, _Draft] = {}
        self.extra_seeds = load_extra_seeds(settings.results)

    def plan(self) -> Plan:
        studies = tuple(_planned_study(study, self._runs(study)) for study in self.studies.values())
        drafts = dict(self._in_order())
        content = PlanFile(
            scale=self.settings.scale,
            results=self.settings.results,
            reports=self.settings.reports,
            studies=studies,
            stages=tuple(self._planned_stage(address, draft) for address, draft in drafts.items()),
        )
        upstream = {address: tuple(draft.inputs.values()) for address, draft in drafts.items()}
        configs = {address: draft.config for address, draft in drafts.items()}
        return Plan(self.settings, self.studies, content, upstream, configs)

    def _runs(self, study: Study) -> Iterator[PlannedRun]:
        for variant in study.variants.values():
            made_of = {stage: self.finder.ingredients(study, variant, stage) for stage in study.stages}
            extra = self.extra_seeds.get(study.name, {}).get(variant.name, 0)
            for seed in extended(self.settings.seeds_of(study.name), extra):
                keys: dict[str, str] = {}
                for stage, ingredients in made_of.items():
                    keys[stage] = self._add_stage(study, variant, stage, ingredients, seed=seed, keys=keys)
                yield PlannedRun(variant=variant.name, seed=seed, stages=keys)

    def _add_stage(
        self, study: Study, variant: Variant, stage: str, made_of: Ingredients, *, seed: int, keys: Mapping[str, str]
    ) -> str:
        # All seeds share a stage that is not seeded; inputs are stages or assets.
        definition, id = study.stages[stage], f"{study.name}.{stage}"
        own_seed = seed if definition.seeded else None
        inputs = {
            name: (f"{study.name}.{made_of.inputs[name]}", keys[made_of.inputs[name]])
            if name in made_of.inputs
            else self._add_asset(variant, made_of.assets[name])
            for name in definition.inputs
            if name in made_of.inputs or name in made_of.assets
        }

        # The key is a hash of everything that the stage's results depend on, and of nothing else.
        hashed = {
            "stage": id,
            "config": made_of.hashed,
            "seed": own_seed,
            "inputs": {name: key for name, (_, key) in inputs.items()},
            "abort": made_of.numbers,
            "code": made_of.code.digest,
        }
        if made_of.command:
            hashed["command"] = {"words": made_of.command["words"]}  # a change of its readers does not run it again
        key = key_of(hashed)
        gpu = (variant.gpu or definition.resources.gpu) if definition.resources.gpu else 0

        # Variants that share a stage have the same configuration; the largest number of devices counts.
        draft = self.drafts.get((id, key))
        if draft is None:
            config = {
                "stage": id,
                "key": key,
                "seed": own_seed,
                "entry": definition.module,
                "model": study.written.config if definition.entry else None,
                "reads": definition.reads,
                "config": made_of.config,
                "abort_rules": made_of.rules,
                "code": made_of.code._asdict(),
            }
            if made_of.command:
                config["command"] = made_of.command
            draft = _Draft(study.name, stage, definition, own_seed, inputs, config, gpu, {})
            self.drafts[id, key] = draft
        draft.variants[variant.name] = None
        draft.gpu = max(draft.gpu, gpu)
        return key

    def _add_asset(self, variant: Variant, asset: Asset) -> Address:
        address = (ASSETS, asset.key)
        if address not in self.drafts:
            config = {
                "stage": ASSETS,
                "key": asset.key,
                "seed": None,
                "entry": ASSET_STAGE.module,
                "model": ASSET_MODEL,
                "reads": sorted(asset.values),
                "config": asset.values,
                "abort_rules": [],
                "code": asset.code._asdict(),
                "digests": asset.digests,
            }
            label = asset_label(asset.values)
            self.drafts[address] = _Draft(ASSETS, ASSETS, ASSET_STAGE, None, {}, config, 0, {}, label)
        self.drafts[address].variants[variant.name] = None
        return address

    def _in_order(self) -> Iterator[tuple[Address, _Draft]]:
        """Yield the stages in an order in which they can run: assets, then the stages of each study as declared."""
        rank = {ASSETS: (-1, 0)}
        for number, study in enumerate(self.studies.values()):
            rank |= {f"{study.name}.{name}": (number, place) for place, name in enumerate(study.stages)}
        yield from sorted(self.drafts.items(), key=lambda item: rank[item[0][0]])

    def _planned_stage(self, address: Address, draft: _Draft) -> PlannedStage:
        id, key = address
        n_variants = 0 if id == ASSETS else len(self.studies[draft.study].variants)
        return PlannedStage(
            id=id,
            study=draft.study,
            stage=draft.stage,
            key=key,
            seed=draft.seed,
            label=draft.label or stage_label(list(draft.variants), n_variants, draft.seed),
            entry=draft.definition.module,
            dir=self._dir(id, key),
            inputs={name: self._dir(*above) for name, above in draft.inputs.items()},
            resources=draft.definition.resources.model_copy(update={"gpu": draft.gpu}),
            variants=tuple(draft.variants),
        )

    def _dir(self, id: str, key: str) -> Path:
        return self.settings.results.joinpath("stages", *id.split(".", 1), key)


def _planned_study(study: Study, runs: Iterator[PlannedRun]) -> PlannedStudy:
    variants = tuple(
        PlannedVariant(
            resolved=variant.values,
            file=str(variant.file),
            **{
                name: getattr(variant, name)
                for name in ("name", "parent", "why", "label", "gpu", "factors", "changes", "helper")
            },
        )
        for variant in study.variants.values()
    )
    return PlannedStudy(
        **study.written.fields_of(StudyDefinition),
        name=study.name,
        analysis_digest=key_of(study.written.analysis.model_dump(mode="json")),
        published=study.published,
        last_stage=study.last_stage,
        variants=variants,
        runs=tuple(runs),
    )


def stage_label(variants: Sequence[str], n_variants: int, seed: int | None) -> str:
    """Return a stage's label, such as `v8 seed 0`, `v4, v5 and 3 more, seed 0` or `all variants`.

    n_variants: the number of the study's variants.
    """
    with_seed = "" if seed is None else f"seed {seed}"
    if len(variants) == 1:
        return f"{variants[0]} {with_seed}".strip()
    if len(variants) == n_variants:
        shown = "all variants"
    elif len(variants) <= 3:
        shown = joined(variants)
    else:
        shown = listed(variants, 2)
    return f"{shown}, {with_seed}" if with_seed else shown


def asset_label(asset: Mapping[str, Any]) -> str:
    """Return an asset's label from its kind and its first source, such as `model openai-community/gpt2`."""
    source = asset["sources"][0]
    name = next((source[key] for key in ("repo", "package", "path", "architecture") if key in source), "")
    return f"{asset.get('kind', 'asset')} {name}".strip()
