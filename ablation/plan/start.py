"""What happens once, in the process that starts the jobs, before the first of them; the workflow imports this module.

prepare(plan, states) -> lines to say. From here on the files of the plan are those of `plan`.
"""

from pathlib import Path

from ablation.config.settings import load_settings
from ablation.config.study_schema import COMMAND_ENTRY
from ablation.contract.errors import ConfigError, TrackerError, explained
from ablation.plan.build import PROJECT, build_plan
from ablation.plan.clock import settle_times
from ablation.plan.dirty_tree import check_trees
from ablation.plan.first import waits_of
from ablation.plan.fit import check_fit
from ablation.plan.groups import Groups, groups_of, request_of
from ablation.plan.idle_devices import idle_devices
from ablation.plan.nodes import check_nodes
from ablation.plan.packages import check_packages
from ablation.plan.plan import Plan
from ablation.plan.pool import check_pool
from ablation.plan.reports import claim_reports
from ablation.plan.retry import (
    States,
    Waits,
    pending,
    refuse_links,
    release,
    repair,
    reread,
    retry_failed,
    states_of,
    to_do,
)
from ablation.plan.why import reasons

# The workflow imports this module only, so what it needs besides is here too.
__all__ = [
    "COMMAND",
    "FORK_CLIENT",
    "WORKFLOW",
    "Groups",
    "Plan",
    "States",
    "TrackerError",
    "Waits",
    "build_plan",
    "check_nodes",
    "check_pool",
    "explained",
    "groups_of",
    "load_settings",
    "prepare",
    "reasons",
    "refuse_hiding",
    "request_of",
    "selection_note",
    "states_of",
    "to_do",
    "waits_of",
]

COMMAND = COMMAND_ENTRY  # entry of the stages that are commands
FORK_CLIENT = str(PROJECT / "ablation" / "runner" / "fork_client.py")

WORKFLOW = str(Path(__file__).resolve().parents[1] / "workflow")  # rules, profiles, captions


def refuse_hiding(project: Path = Path()) -> None:
    """Raise ConfigError where something in the project's folder would be imported in place of this package."""
    for path in (project / "ablation", project / "ablation.py"):
        if path.exists() and path.resolve() != (PROJECT / path.name).resolve():
            problem = "jobs run in this folder, so Python would import it in place of the installed package"
            raise ConfigError(path, "", None, problem, "rename it, or keep configs/ and Snakefile in another folder")


def selection_note(plan: Plan) -> list[str]:
    """Return what is selected besides what was named."""
    return [
        f"{study}: {', '.join(parents)} {'runs' if len(parents) == 1 else 'run'} as well: "
        "a change is judged against the parent"
        for study, parents in plan.parents_added.items()
    ]


def prepare(plan: Plan, states: States, root: Path | None = None) -> list[str]:
    """Make what has to run again run again, and write plan.json and config.json; return what the user should know.

    `states` are those of every stage, as `states_of` has just read them; what has to run again becomes missing.

    Raises:
        ConfigError: a study wants a clean tree below `root`, by default the project, and it is not; a stage's folder is
            a link; the folder of reports shows other results; a stage that is to run asks for more devices than there
            are, needs a package that is not installed, or cannot fit into memory.
    """
    claim_reports(plan.settings.results, plan.settings.reports)
    said = [f"warning: {warning}" for warning in settle_times(plan)]
    refuse_links(plan)
    for stage in repair(plan, states):
        said.append(f"runs again, its files are damaged: {stage.id} {stage.label} ({stage.dir})")
    said += [f"is read again, its `collect` changed: {s.id} {s.label}" for s in reread(plan, states)]
    for stage in release(plan, states, waits_of(plan, states)):
        said.append(f"runs again, nothing blocks it any more: {stage.id} {stage.label}")
    check_packages(plan, states)
    # Of all that is to run, and before a failure is set aside: a start that is refused loses none.
    check_pool(plan, states)
    warnings = check_trees(plan, root or plan.settings.configs.parent, states) + check_fit(plan, states)
    warnings += idle_devices(pending(plan, states), (root or PROJECT, plan.settings.configs.parent))
    said += [f"warning: {warning}" for warning in warnings]
    if plan.settings.retry == "failed":
        retry_failed(plan, states)
    plan.write()
    return said
