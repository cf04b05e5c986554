"""Stages on several machines: which can run so, and where."""

import ast
from collections.abc import Iterable
from pathlib import Path

from contract.errors import ConfigError
from contract.fingerprint import read_source
from tracker.config.study_schema import COMMAND_ENTRY
from tracker.plan.build import PROJECT
from tracker.plan.plan import Plan
from tracker.plan.pool import source_of
from tracker.plan.retry import States, pending


def check_nodes(plan: Plan, states: States, *, on_slurm: bool) -> None:
    """Refuse `nodes` where a stage cannot run in several processes, or these jobs run without Slurm.

    Raises ConfigError for the first such stage that is to run, and for devices that are not as many on each machine.
    """
    for stage in pending(plan, states):
        gpu, nodes = stage.resources.gpu, stage.resources.nodes
        if nodes == 1:
            continue
        where = source_of(plan, stage, "nodes")
        if not _has_ranks(stage.entry, (PROJECT, plan.settings.configs.parent)):
            what = "a command" if stage.entry == COMMAND_ENTRY else stage.entry
            raise ConfigError(*where, nodes, f"{stage.id} ({what}) runs on one machine only", "take it away, or set 1")
        if gpu < nodes or gpu % nodes:
            problem = (
                f"{stage.id} has devices on {nodes} machines (nodes), as many on each; this is their number in all"
            )
            remedy = f"set a multiple of {nodes}, such as {nodes * -(-gpu // nodes) or nodes}, or other nodes"
            raise ConfigError(*source_of(plan, stage, "gpu"), gpu, problem, remedy)
        if not on_slurm:
            problem = f"several machines are one job of Slurm, and {stage.id} would run without it"
            remedy = "start snakemake with --workflow-profile workflow/profiles/slurm (docs/clusters.md), or set 1"
            raise ConfigError(*where, nodes, problem, remedy)


def _has_ranks(entry: str, folders: Iterable[Path]) -> bool:
    """Tell whether an entry module says `RANKS = ...` (trainers/parallel/join.py), without importing it."""
    paths = [folder.joinpath(*entry.split(".")).with_suffix(".py") for folder in folders]
    body = [node for path in paths if path.is_file() for node in ast.parse(read_source(path)).body]
    assigned = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    imported = [alias for node in body if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {target.id for target in assigned if isinstance(target, ast.Name)}
    return "RANKS" in names | {alias.asname or alias.name for alias in imported}
