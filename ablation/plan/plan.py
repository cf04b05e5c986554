"""The plan in memory: plan.json, the settings that it was made for, and the stages that they select."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablation.config.settings import Settings
from ablation.config.study import Study
from ablation.contract.atomic import update_text
from ablation.contract.errors import ConfigError
from ablation.plan.collected import PLAN_FILE
from ablation.plan.plan_file import PlanFile, PlannedRun, PlannedStage, PlannedStudy, digest_of_plan

ASSETS = "assets"
_END = "\n}"
Address = tuple[str, str]  # a stage's id and key


@dataclass(frozen=True)
class Plan:
    """Everything that the settings ask for.

    `upstream` are the stages that each one reads, `configs` the content of each one's config.json.
    """

    settings: Settings
    studies: dict[str, Study]
    content: PlanFile
    upstream: dict[Address, tuple[Address, ...]]
    configs: dict[Address, dict[str, Any]]

    @cached_property
    def stages(self) -> dict[Address, PlannedStage]:
        """Return every stage by id and key, in an order in which they can run."""
        return {(stage.id, stage.key): stage for stage in self.content.stages}

    @property
    def runs(self) -> list[PlannedRun]:
        """Return the runs of all studies."""
        return [run for study in self.content.studies for run in study.runs]

    def stage(self, id: str, key: str) -> PlannedStage:
        """Return one stage by its id (`debias.train`) and key. Raises ConfigError if the plan has none."""
        try:
            return self.stages[id, key]
        except KeyError:
            problem = f"the plan has no stage {id} with this key"
            raise ConfigError(self.file, "stages", key, problem, "configuration or code changed: plan again") from None

    def stage_ids(self) -> list[str]:
        """Return the id of every kind of stage, `assets` first: one Snakemake rule for each."""
        return [ASSETS, *(f"{study.name}.{stage}" for study in self.studies.values() for stage in study.stages)]

    @property
    def file(self) -> Path:
        """Return the path of plan.json."""
        return self.settings.results / PLAN_FILE

    @cached_property
    def text(self) -> str:
        """Return the content of plan.json."""
        return self.content.text()

    @property
    def digest(self) -> str:
        """Return 16 hex digits that change with the plan."""
        return digest_of_plan(self.text)

    def write(self) -> None:
        """Write plan.json if its content changed, and the config.json of every selected stage likewise."""
        update_text(self.file, self.text)
        shared: dict[tuple[int, ...], str] = {}  # the text of what the seeds of a variant have in common
        for stage in self.selected():
            config = self.configs[stage.id, stage.key]
            own = {name: config[name] for name in ("stage", "key", "seed")}
            rest = {name: value for name, value in config.items() if name not in own}
            same = tuple(map(id, rest.values()))
            if same not in shared:
                shared[same] = _json(rest).removeprefix("{")
            text = f"{_json(own).removesuffix(_END)},{shared[same]}\n"
            # Not synced: a power cut may leave a part, then it is written again; ten thousand syncs take a minute.
            update_text(stage.dir / "config.json", text, sync=False)

    @cached_property
    def parents_added(self) -> dict[str, list[str]]:
        """Return study -> variants that run because a child was named: a change is judged against the parent."""
        added = {}
        for study in self._chosen_studies():
            named = [variant for variant in study.variants if variant.name in self.settings.variant]
            parents = dict.fromkeys(variant.parent for variant in named if variant.parent is not None)
            if new := [parent for parent in parents if parent not in self.settings.variant]:
                added[study.name] = new
        return added

    def selected(self, study: str | None = None) -> list[PlannedStage]:
        """Return the stages of the selected runs (settings' study, variant, seed, shard), with all that they need.

        The parents of the variants are selected with them.
        """
        if study not in self._selected:
            self._selected[study] = self._select(study)
        return list(self._selected[study])

    @cached_property
    def _selected(self) -> dict[str | None, list[PlannedStage]]:
        return {}

    def _select(self, study: str | None) -> list[PlannedStage]:
        wanted: set[Address] = set()
        for planned in self._chosen_studies():
            variants = {*self.settings.variant, *self.parents_added.get(planned.name, ())}
            seeds = self._sharded(sorted({run.seed for run in planned.runs}))
            for run in planned.runs if study in (None, planned.name) else ():
                if (not variants or run.variant in variants) and run.seed in seeds:
                    wanted |= {(f"{planned.name}.{stage}", key) for stage, key in run.stages.items()}
        waiting = list(wanted)
        while waiting:
            for above in self.upstream[waiting.pop()]:
                if above not in wanted:
                    wanted.add(above)
                    waiting.append(above)
        return [stage for address, stage in self.stages.items() if address in wanted]

    def _sharded(self, seeds: list[int]) -> list[int]:
        """Return the selected seeds. All runs of a seed are in one shard, since they are paired."""
        first, count = map(int, (self.settings.shard or "1/1").split("/"))
        return [seed for seed in seeds[first - 1 :: count] if self.settings.seed in (None, seed)]

    def statuses(self, study: str | None = None) -> list[Path]:
        """Return the status files of the selected stages."""
        return [stage.status for stage in self.selected(study)]

    def _chosen_studies(self) -> list[PlannedStudy]:
        return [study for study in self.content.studies if self.settings.study in (None, study.name)]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
