"""Export results: the model of a run as a Hugging Face folder, and the database as Parquet files."""

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import duckdb

from ablation.config.names import suggest
from ablation.contract.atomic import replacing, write_text
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.status import FAILED, read_state
from ablation.plan.collected import PLAN_FILE
from ablation.plan.plan_file import read_plan

KEPT = "steps"  # subfolder of a stage with one folder per kept step


def find_model(
    results: Path,
    study: str,
    variant: str,
    seed: int | None = None,
    *,
    part: str | None = None,
    stage: str | None = None,
    step: int | None = None,
) -> Path:
    """Return the folder of a run's model: the trained model or, if `part` names one, another model such as `critic`.

    By default, `seed` is the variant's first seed in the plan, and `stage` is the last stage that has a model. `step`
    selects a step that was kept (because of `keep_checkpoints`, or because an evaluation averages over it), numbered as
    in the stage's metrics; by default the model is from the end of the stage.

    Raises ConfigError if the study, variant, seed or stage does not exist, or if the study trains no such model, and
    TrackerError if the run does not have the model (yet).
    """
    file = results / PLAN_FILE
    plan = read_plan(file)
    entry = _named({study.name: study for study in plan.studies}, study, file, "studies")
    if not entry.trained_model:
        remedy = "in the study's _study.yaml, set `trained_model` to the subfolder in which a stage writes its model"
        raise ConfigError(file, "studies", study, "the study declares no trained model", remedy)
    _named(entry.parents, variant, file, f"{study}.variants")
    runs = {run.seed: run for run in entry.runs if run.variant == variant}
    run = _named(runs, next(iter(runs)) if seed is None else seed, file, f"{study}.{variant}.seed")
    keys = run.stages
    if stage is not None and stage not in keys:
        raise ConfigError(file, f"{study}.stages", stage, "the stage does not exist", suggest(stage, list(keys)))
    places, states, kept = plan.folders(results), [], set()
    for name, key in reversed(keys.items()):
        if stage not in (None, name):
            continue
        state = read_state(places[key], key).state
        states.append(f"{name} {state}")
        kept |= {folder.name for folder in places[key].glob(f"{KEPT}/[0-9]*")}
        below = places[key] if step is None else places[key] / KEPT / str(step)
        model = below / (part or entry.trained_model)
        if step is not None and part is None and (below / "config.json").is_file():
            model = below  # of a stage that keeps nothing but this model
        if model.is_dir():
            if state != "ok" and step is None:
                break
            return model
    what = f"{part or 'finished model'}{'' if step is None else f' of step {step}'}"
    steps = ""
    if step is not None:
        steps = f"; kept steps: {', '.join(sorted(kept, key=int)) or 'none (set `keep_checkpoints`)'}"
    settings = [f"study={study}", f"variant={variant}", f"scale={plan.scale}"]
    settings += [] if results == Path("results") else [f"results={results}", f"reports={plan.reports}"]
    settings += ["retry=failed"] if any(state.endswith(FAILED) for state in states) else []
    raise TrackerError(
        f"{study}/{variant} seed {run.seed} has no {what} (stages, the last first: {', '.join(states)}){steps}; "
        f"run `snakemake --cores all --config {shlex.join(settings)}`"
    )


def export(model: Path, target: Path, *options: str) -> int:
    """Copy a model with `python -m trainers.export`, in a separate process; return the exit status."""
    command = [sys.executable, "-m", "trainers.export", "--from", str(model), "--to", str(target), *options]
    return subprocess.run(command, check=False).returncode


def export_tables(database: Path, folder: Path) -> list[Path]:
    """Write each table and view of a database as Parquet, and `views.sql`, which defines views of these files.

    Files of an earlier export are replaced one by one. Returns the paths of all files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files, views = [], []
    with duckdb.connect(str(database), read_only=True, config={"threads": 1}) as store:
        names = "SELECT table_name FROM information_schema.tables ORDER BY table_name"
        for (name,) in store.sql(names).fetchall():
            file = folder / f"{name}.parquet"
            types = store.table(name).types
            # As text: other readers know no columns of JSON.
            columns = ", ".join(
                f'CAST("{column}" AS VARCHAR) AS "{column}"' if str(kind) == "JSON" else f'"{column}"'
                for column, kind in zip(store.table(name).columns, types, strict=True)
            )
            with replacing(file) as aside:
                store.table(name).project(columns).write_parquet(str(aside))
            files.append(file)
            views.append(f"CREATE VIEW {name} AS SELECT * FROM '{file.name}';\n")
    write_text(folder / "views.sql", f"-- Run this in the folder: duckdb -init views.sql\n{''.join(views)}")
    return [*files, folder / "views.sql"]


Name = TypeVar("Name")
Value = TypeVar("Value")


def _named(entries: Mapping[Name, Value], name: Name, file: Path, where: str) -> Value:
    if name in entries:
        return entries[name]
    raise ConfigError(file, where, name, "is not in the plan", suggest(str(name), entries))
