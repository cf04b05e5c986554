"""Stages on several machines: which can run so, and where."""

import ast
from importlib.util import find_spec
from pathlib import Path

from contract.errors import ConfigError
from contract.fingerprint import read_source
from tracker.config.study_schema import COMMAND_ENTRY
from tracker.plan.plan import Plan
from tracker.plan.retry import States, pending


def check_nodes_of_stages(plan: Plan, states: States, *, on_slurm: bool) -> None:
    """Refuse `nodes` of more than one where the jobs run without Slurm, or a stage cannot run in several processes.

    Raises ConfigError, for the first such stage that is to run.
    """
    for stage in pending(plan, states):
        nodes = stage.resources.nodes
        if nodes == 1:
            continue
        study = plan.studies[stage.study]
        file: Path | str = study.file
        key = f"stages.{stage.stage}.resources.nodes"
        if study.written.stages[stage.stage].resources.nodes != study.stages[stage.stage].resources.nodes:
            file = plan.settings.configs / "scales" / f"{plan.settings.scale}.yaml"
            key = f"studies.{stage.study}.resources.{stage.stage}.nodes"
        if not _has_ranks(stage.entry):
            what = "a command" if stage.entry == COMMAND_ENTRY else stage.entry
            raise ConfigError(file, key, nodes, f"{what} runs on one machine only", "take it away, or set 1")
        if not on_slurm:
            problem = "several machines are one job of Slurm, and these jobs run without it"
            remedy = "start snakemake with --workflow-profile workflow/profiles/slurm (docs/clusters.md), or set 1"
            raise ConfigError(file, key, nodes, problem, remedy)


def _has_ranks(entry: str) -> bool:
    """Tell whether an entry module says `RANKS = ...` (trainers/parallel/join.py), without importing it."""
    found = find_spec(entry)
    if found is None or not found.has_location or found.origin is None:
        return False
    for node in ast.parse(read_source(Path(found.origin))).body:
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.asname or alias.name for alias in node.names]
        else:
            continue
        if "RANKS" in names:
            return True
    return False
