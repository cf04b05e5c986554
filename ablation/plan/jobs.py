"""The functions by which the rules of the workflow look up their jobs in the plan. The rules only name files.

`workflow` is Snakemake's object of that name, which knows the command line only partly while the rules are read.
"""

import atexit
import contextlib
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from ablation.config.study_schema import COMMAND_ENTRY
from ablation.plan.order import Groups, groups_of, priorities, request_of
from ablation.plan.plan_file import Address, Plan
from ablation.plan.retry import States, pending, say_what_failed, states_of, to_do
from ablation.runner import fork_client, fork_server

_LOOKED_AT = {"mtime", "params"}  # reasons to run that the plan knows


class Jobs:
    """The jobs of a plan, as this Snakemake runs them. `states` are the stages' states if they have been read."""

    def __init__(self, plan: Plan, workflow: Any, states: States | None = None) -> None:
        self.plan, self.workflow = plan, workflow
        self._servers: list[subprocess.Popen[bytes]] = []
        if states is not None:
            self.states = states

    @cached_property
    def states(self) -> States:
        """Return the states of the stages."""
        return states_of(self.plan)

    @cached_property
    def groups(self) -> Groups:
        """Return the groups of stages; empty if this Snakemake runs the jobs itself."""
        return {} if self.runs_here else groups_of(self.plan)

    @cached_property
    def priorities(self) -> dict[Address, int]:
        """Return the priorities of the stages."""
        return priorities(self.plan)

    # How Snakemake was called

    @property
    def runs_here(self) -> bool:
        """Return whether this Snakemake runs the jobs itself; for a dry run, `--jobs` or the profile decides."""
        if self.workflow.output_settings.dryrun:
            return self.workflow.resource_settings.nodes is None
        return self.workflow.is_main_process and self.workflow.local_exec

    @property
    def _only_missing(self) -> bool:
        """Return whether jobs are to start (or, in a dry run, to be named) only for results that are missing.

        Then stages that have ended can be left out of Snakemake's graph, which costs a millisecond and more for each.
        Summaries, graphs, reports and `--delete-all-output` (which execute nothing), `--forcerun`, `--until`, `--touch`
        and the like, and reasons to run that only Snakemake knows, are about all stages.
        """
        asked = self.workflow.dag_settings
        return (
            self.workflow.is_main_process
            and self.workflow.execution_settings is not None
            and not self.workflow.touch
            and not (asked.forceall or asked.forcerun or asked.until or asked.omit_from or asked.batch)
            and {str(trigger) for trigger in asked.rerun_triggers} <= _LOOKED_AT
        )

    @property
    def python(self) -> str:
        """Return the jobs' interpreter: Snakemake's, unless each job has an environment of its own."""
        return "python" if self._deployed else shlex.quote(sys.executable)

    @property
    def folders(self) -> str:
        """Return the options of commands that name the folders."""
        settings = self.plan.settings
        return shlex.join(["--results", str(settings.results), "--reports", str(settings.reports)])

    @property
    def _forks(self) -> bool:
        """Return whether jobs are forks of a process that has imported the libraries they use.

        They never are on a scheduler's nodes, where each job has its own Snakemake, nor if each job has an environment.
        """
        usable = sys.platform == "linux" and not self._deployed
        return self.plan.settings.fork_server and self.workflow.is_main_process and usable

    @property
    def _deployed(self) -> bool:
        return bool(self.workflow.deployment_settings.deployment_method)

    # What all jobs are

    def statuses(self, wildcards: Any) -> list[Path]:
        """Return the status files of the grid; only the missing ones if nothing else is requested.

        It is an input function, so that it is called when Snakemake knows the requested targets.
        """
        if self.runs_here and self.workflow.scheduling_settings is not None:
            # 100 jobs a second by default: each round of the scheduler starts a timer, and each timer another round.
            self.workflow.scheduling_settings.max_jobs_per_timespan = None
        self._start_fork_servers()
        if not self._only_missing:
            return self.plan.statuses()
        return [stage.status for stage in to_do(self.plan, self.states)]

    def _start_fork_servers(self) -> None:
        """Start a fork server for the trainers' stages that this Snakemake will run, and one for several commands."""
        only_told = self.workflow.output_settings.dryrun or self.workflow.execution_settings is None
        if self._servers or only_told or self.workflow.touch or not (self._forks and self.runs_here):
            return
        waiting = pending(self.plan, self.states) if self._only_missing else self.plan.selected()
        counts = Counter((stage.entry == COMMAND_ENTRY, stage.resources.threads == 1) for stage in waiting)
        if counts[False, True]:
            self._start(fork_client.TRAINERS)
        if counts[True, True] + counts[True, False] > 1:
            self._start(fork_client.COMMANDS)

    def _start(self, kind: str) -> None:
        with contextlib.suppress(OSError):  # without it each stage is a process of its own
            self._servers.append(fork_server.start(kind))

    def render_what_is_there(self) -> None:
        """Collect and render the results after an error that stopped the rules, such as a stage that left no status.

        The error is explained at the very end, after Snakemake's own output.
        """
        atexit.register(say_what_failed, self.plan, sys.argv)
        if all(status.exists() for status in self.plan.statuses()):
            return
        collect = f"collect --results {shlex.quote(str(self.plan.settings.results))}"
        for command in (collect, *(f"{each} {self.folders}" for each in ("tables", "figures", "report"))):
            subprocess.run(shlex.split(f"{self.python} -m ablation {command}"), check=False)

    # What the job of one stage is: functions that Snakemake calls with its wildcards. `id` is as `debias.train`

    def folder_of(self, id: str) -> str:
        """Return the folder of a stage, with the wildcard {key}."""
        return f"{self.plan.settings.results}/stages/{id.replace('.', '/')}/{{key}}"

    def inputs_of(self, id: str) -> Callable[[Any], list[str]]:
        """Return the function for the status files of the stages that a stage reads."""
        return lambda wildcards: [
            f"{folder}/status.json" for folder in self.plan.stage(id, wildcards.key).inputs.values()
        ]

    def resource_of(self, id: str, name: str) -> Callable[[Any], int]:
        """Return the function for threads, mem_mb, runtime (minutes) or gpu."""
        return lambda wildcards: getattr(self.plan.stage(id, wildcards.key).resources, name)

    def priority_of(self, id: str) -> Callable[[Any], int]:
        """Return the function for the priority: of the jobs that can start, Snakemake takes the highest first."""
        return lambda wildcards: self.priorities[id, wildcards.key]

    def group_of(self, id: str) -> Callable[[Any], str | None]:
        """Return the function for the name of a stage's group: on a scheduler it is submitted as one job."""
        return lambda wildcards: getattr(self.groups.get((id, wildcards.key)), "name", None)

    def scheduler_request(self, id: str) -> dict[str, Callable[[Any], int | str]]:
        """Return the resources that the profile requests from its scheduler for a stage, in the scheduler's own terms.

        They are the default resources that contain `{gpu}`, `{mem_mb}`, `{runtime}` (minutes) or `{seconds}`, as in
        `lsf_extra: -gpu num={gpu}`; one that contains `{gpu}` is empty, or 0, if the stage needs no device. A plugin
        that reads `gpu`, `mem_mb` and `runtime` itself needs none.
        """

        def in_words(word: str) -> Callable[[Any], int | str]:
            def request(wildcards: Any) -> int | str:
                # Snakemake adds plain numbers up over a group itself; minutes and text must be the group's.
                groups = {} if word in ("{gpu}", "{mem_mb}") else self.groups
                needs = request_of(self.plan, groups, (id, wildcards.key))
                if "{gpu}" in word and not needs.gpu:
                    return 0 if word == "{gpu}" else ""
                numbers = {"gpu": needs.gpu, "mem_mb": needs.mem_mb, "runtime": needs.runtime}
                text = word.format(**numbers, seconds=60 * needs.runtime)
                return int(text) if text.isdigit() else text

            return request

        defaults = self.workflow.resource_settings.default_resources or {}
        words = {name: str(default.raw or "") for name, default in defaults.items()}
        asked = re.compile(r"\{(gpu|mem_mb|runtime|seconds)\}")
        return {name: in_words(word) for name, word in words.items() if asked.search(word)}

    # Params. They take `output`, which makes them derived: a variant that joins a shared stage changes the label, and
    # only params that are not derived make Snakemake run a job again

    def label_of(self, id: str) -> Callable[[Any, Any], str]:
        """Return the function for the variants and the seed that a stage serves."""
        return lambda wildcards, output: self.plan.stage(id, wildcards.key).label

    def command_of(self, id: str) -> Callable[[Any, Any], str]:
        """Return the function for Python's arguments, which start a fork of a fork server or a new process."""

        def command(wildcards: Any, output: Any) -> str:
            stage = self.plan.stage(id, wildcards.key)
            kind = fork_client.COMMANDS if stage.entry == COMMAND_ENTRY else fork_client.TRAINERS
            start = ["-I", "-S", fork_client.__file__, kind] if self._forks else ["-m", "ablation.runner.run"]
            return shlex.join([*start, *stage.arguments])

        return command
