"""Turn imported studies into rows: a run has two stages, its log (named after the format) and its `outcome`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.health import Rule, parse_rules
from ablation.contract.status import StageState
from ablation.store.imports import stored
from ablation.store.imports.stored import OUTCOME, ImportedStudy, PlacedRun

IMPORTED = "imported"
_REASONS = {
    "failed": "the run failed, according to its source",
    "running": "the run had not ended when it was imported, according to its source",
}


@dataclass
class Imports:
    """Imported studies by name, the folders and states of their stages by key, and notes on studies left out."""

    studies: dict[str, ImportedStudy] = field(default_factory=dict)
    places: dict[str, Path] = field(default_factory=dict)
    states: dict[str, StageState] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def load_imports(results: Path, planned: Sequence[str]) -> Imports:
    """Return all imported studies. One named like a `planned` study gets the suffix `-imported`; problems are noted."""
    imports = Imports()
    for folder in stored.studies(results):
        try:
            study = stored.read_study(folder)
        except ConfigError as error:
            imports.problems.append(str(error))
            continue
        name = study.study.name if study.study.name not in planned else f"{study.study.name}-imported"
        if name in imports.studies:
            problem = f"a planned study has the same name, and {name} is already imported"
            problem += f"; rename the planned study {folder.name}"
            imports.problems.append(f"{folder}: {problem}")
            continue
        imports.studies[name] = study
        for run in study.runs:
            log, outcome = _keys(run)
            imports.places |= {log: folder / run.key / "log", outcome: folder / run.key / OUTCOME}
            imports.states |= dict(zip((log, outcome), _states(folder, run), strict=True))
    return imports


def health_rules(imports: Imports) -> dict[str, list[Rule]]:
    """Return {stage key: health rules} of the logs of imported runs."""
    rules: dict[str, list[Rule]] = {}
    for study in imports.studies.values():
        declared = [rule.model_dump() for rule in study.study.health]
        for run in study.runs:
            rules[_keys(run)[0]] = parse_rules(rule for rule in declared if rule["stage"] == run.format)
    return rules


def _keys(run: PlacedRun) -> tuple[str, str]:
    return f"{run.key}-log", f"{run.key}-{OUTCOME}"


def _states(folder: Path, run: PlacedRun) -> tuple[StageState, StageState]:
    try:
        stored.read_record(folder / run.key)
    except TrackerError as error:
        broken = StageState("corrupt", one_line(f"{error}; import the run again", 500))
        return broken, broken
    ended = StageState(IMPORTED, started=run.started)
    if run.state == "finished":
        return ended, ended
    return ended, StageState(run.state, _REASONS[run.state], started=run.started)


def note(study: ImportedStudy) -> str:
    """Return a note for readers on what is not known about the runs of an imported study."""
    formats = ", ".join(sorted({run.format for run in study.runs}))
    ends = "".join(f" {line[:1].upper()}{line[1:]}." for line in stored.steps_judged(study.runs))
    return (
        f"Imported runs ({formats}) have no code fingerprint. We only have the logs to show that "
        f"nothing else changed, and the analysis plan was written after the results.{ends}"
    )


def stage_rows(
    places: Mapping[str, Path], states: Mapping[str, StageState], name: str, study: ImportedStudy
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of an imported study for the table `stages`."""
    for run in study.runs:
        log, outcome = _keys(run)
        for key, stage, inputs in ((log, run.format, {}), (outcome, OUTCOME, {run.format: log})):
            state, label = states[key], f"{run.variant} seed {run.seed}"
            head = (key, name, stage, run.seed, label, state.state, state.reason, state.started)
            yield (*head, None, None, None, None, None, str(places[key]), json.dumps(inputs))


def run_stage_rows(name: str, study: ImportedStudy) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of an imported study for the table `run_stages`; a run's log comes before its outcome."""
    for run in study.runs:
        for position, (key, stage) in enumerate(zip(_keys(run), (run.format, OUTCOME), strict=True)):
            yield name, run.variant, run.seed, stage, position, key
