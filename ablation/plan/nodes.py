"""Stages on several machines: which can run so, and where."""

from ablation.config.study_schema import COMMAND_ENTRY
from ablation.contract.errors import ConfigError
from ablation.plan.build import PROJECT
from ablation.plan.entries import names_of
from ablation.plan.plan import Plan
from ablation.plan.pool import source_of
from ablation.plan.retry import States, pending


def check_nodes(plan: Plan, states: States, *, on_slurm: bool) -> None:
    """Refuse `nodes` where a stage cannot run in several processes, or these jobs run without Slurm.

    Raises ConfigError for the first such stage that is to run, and for devices that do not divide evenly over machines.
    """
    for stage in pending(plan, states):
        gpu, nodes = stage.resources.gpu, stage.resources.nodes
        if nodes == 1:
            continue
        where = source_of(plan, stage, "nodes")
        if "RANKS" not in (names_of(stage.entry, (PROJECT, plan.settings.configs.parent)) or ()):
            what = "a command" if stage.entry == COMMAND_ENTRY else stage.entry
            raise ConfigError(*where, nodes, f"{stage.id} ({what}) runs on one machine only", "take it away, or set 1")
        if gpu < nodes or gpu % nodes:
            problem = f"{stage.id} has devices on {nodes} machines (nodes), the same number on each; this is the total"
            remedy = f"set a multiple of {nodes}, such as {nodes * -(-gpu // nodes) or nodes}, or other nodes"
            raise ConfigError(*source_of(plan, stage, "gpu"), gpu, problem, remedy)
        if not on_slurm:
            problem = f"several machines are one job of Slurm, and {stage.id} would run without it"
            remedy = "start snakemake with --workflow-profile workflow/profiles/slurm (docs/clusters.md), or set 1"
            raise ConfigError(*where, nodes, problem, remedy)
