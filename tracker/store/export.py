"""Where the final model of a run lies, and its copy as a Hugging Face folder."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from contract.errors import ConfigError, TrackerError
from contract.stage_folder import folders, read_plan, read_state
from tracker.config.settings import suggest


def find_model(results: Path, study: str, variant: str, seed: int | None = None) -> Path:
    """Return the folder of the model that the last stage of a run left that trains one.

    Args:
        results: folder of plan.json and the stages.
        study: its `_study.yaml` names the subfolder, `trained_model`.
        variant: of the study.
        seed: None: the first of the plan.

    Raises:
        ConfigError: there is no such study, variant or seed, or the study trains no such model.
        TrackerError: the run has not left a model (yet).
    """
    plan = read_plan(results / "plan.json")
    entry = _named(plan["studies"], "name", study, results / "plan.json", "studies")
    if not entry.get("trained_model"):
        remedy = "set `trained_model` in its _study.yaml, the subfolder that holds it"
        raise ConfigError(results / "plan.json", "studies", study, "the study names no trained model", remedy)
    _named(entry["variants"], "name", variant, results / "plan.json", f"{study}.variants")
    runs = [run for run in entry["runs"] if run["variant"] == variant]
    run = runs[0] if seed is None else _named(runs, "seed", seed, results / "plan.json", f"{study}.{variant}.seed")
    places, states = folders(plan, results), []
    for stage, key in reversed(run["stages"].items()):
        state = read_state(places[key], key).state
        states.append(f"{stage} {state}")
        model = places[key] / entry["trained_model"]
        if model.is_dir():
            if state != "ok":
                break
            return model
    raise TrackerError(
        f"{study}/{variant} seed {run['seed']} has left no finished model (last stages first: {', '.join(states)}); "
        f"run `snakemake --cores all --config study={study} variant={variant}`"
    )


def export(model: Path, target: Path) -> int:
    """Copy the model by `python -m trainers.export`, in a process of its own; return its exit status."""
    command = [sys.executable, "-m", "trainers.export", "--from", str(model), "--to", str(target)]
    return subprocess.run(command, check=False).returncode


def _named(entries: list[dict[str, Any]], key: str, value: Any, file: Path, where: str) -> dict[str, Any]:
    for entry in entries:
        if entry[key] == value:
            return entry
    raise ConfigError(file, where, value, "is not in the plan", suggest(str(value), [entry[key] for entry in entries]))
