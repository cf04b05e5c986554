"""Functions by which the workflow's rules look up the files, resources and commands of their jobs in the plan.

`workflow` is Snakemake's object, in which a part of the command line is missing while the rules are read.
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

_KNOWN_TRIGGERS = {"mtime", "params"}  # Snakemake's rerun triggers that the plan evaluates itself


class Jobs:
    """The jobs of a plan as this Snakemake runs them; `states` are the states of the stages, if already read."""

    def __init__(self, plan: Plan, workflow: Any, states: States | None = None) -> None:
        self.plan, self.workflow = plan, workflow
        self._servers: list[subprocess.Popen[bytes]] = []
        if states is not None:
            self.states = states

    @cached_property
    def states(self) -> States:
        """Return the current states of all stages."""
        return states_of(self.plan)

    @cached_property
    def groups(self) -> Groups:
        """Return {stage: its group}; empty if this Snakemake runs the jobs itself."""
        return {} if self.runs_here else groups_of(self.plan)

    @cached_property
    def priorities(self) -> dict[Address, int]:
        """Return {stage: its priority}."""
        return priorities(self.plan)

    # Snakemake's options.

    @property
    def runs_here(self) -> bool:
        """Return whether this Snakemake runs the jobs itself; for a dry run, `--jobs` or the profile decides."""
        if self.workflow.output_settings.dryrun:
            return self.workflow.resource_settings.nodes is None
        return self.workflow.is_main_process and self.workflow.local_exec

    @property
    def _only_missing(self) -> bool:
        """Return whether Snakemake starts (or, in a dry run, lists) only jobs whose results are missing.

        Ended stages can then be left out of Snakemake's graph, which saves more than a millisecond for each. All stages
        are needed for summaries, graphs, reports and `--delete-all-output`, which execute nothing; for options such as
        `--forcerun`, `--until` and `--touch`; and for rerun triggers that only Snakemake can evaluate.
        """
        options = self.workflow.dag_settings
        return (
            self.workflow.is_main_process
            and self.workflow.execution_settings is not None
            and not self.workflow.touch
            and not (options.forceall or options.forcerun or options.until or options.omit_from or options.batch)
            and {str(trigger) for trigger in options.rerun_triggers} <= _KNOWN_TRIGGERS
        )

    @property
    def python(self) -> str:
        """Return the interpreter of the jobs: Snakemake's, unless each job has its own environment."""
        return "python" if self._deployed else shlex.quote(sys.executable)

    @property
    def folders(self) -> str:
        """Return the command-line options for the folders of results and reports."""
        settings = self.plan.settings
        return shlex.join(["--results", str(settings.results), "--reports", str(settings.reports)])

    @property
    def _forks(self) -> bool:
        """Return whether jobs are forks of a server process that has imported the jobs' libraries.

        Jobs are not forks if each has its own Snakemake, as on a scheduler's nodes, or its own environment.
        """
        usable = sys.platform == "linux" and not self._deployed
        return self.plan.settings.fork_server and self.workflow.is_main_process and usable

    @property
    def _deployed(self) -> bool:
        return bool(self.workflow.deployment_settings.deployment_method)

    # All jobs.

    def statuses(self, wildcards: Any) -> list[Path]:
        """Return the status files of the grid or, if Snakemake needs no others, those of the stages that are to run.

        This is an input function, which Snakemake calls after it has read the whole command line.
        """
        if self.runs_here and self.workflow.scheduling_settings is not None:
            # By default 100 jobs a second, for which each round of the scheduler starts a timer and so another round.
            self.workflow.scheduling_settings.max_jobs_per_timespan = None
        self._start_fork_servers()
        if not self._only_missing:
            return self.plan.statuses()
        return [stage.status for stage in to_do(self.plan, self.states)]

    def _start_fork_servers(self) -> None:
        """Start a fork server for trainers' stages and, if this Snakemake runs several commands, one for commands."""
        runs_nothing = self.workflow.output_settings.dryrun or self.workflow.execution_settings is None
        if self._servers or runs_nothing or self.workflow.touch or not (self._forks and self.runs_here):
            return
        waiting = pending(self.plan, self.states) if self._only_missing else self.plan.selected()
        counts = Counter((stage.entry == COMMAND_ENTRY, stage.resources.threads == 1) for stage in waiting)
        if counts[False, True]:
            self._start(fork_client.TRAINERS)
        if counts[True, True] + counts[True, False] > 1:
            self._start(fork_client.COMMANDS)

    def _start(self, kind: str) -> None:
        with contextlib.suppress(OSError):  # without a server each stage starts a new process
            self._servers.append(fork_server.start(kind))

    def render_what_is_there(self) -> None:
        """Collect and render the results after an error that stopped the rules, such as a stage without a status.

        The error is explained when the process ends, after Snakemake's own output.
        """
        atexit.register(say_what_failed, self.plan, sys.argv)
        if all(status.exists() for status in self.plan.statuses()):
            return
        collect = f"collect --results {shlex.quote(str(self.plan.settings.results))}"
        for command in (collect, *(f"{name} {self.folders}" for name in ("tables", "figures", "report"))):
            subprocess.run(shlex.split(f"{self.python} -m ablation {command}"), check=False)

    # One stage's job: functions that Snakemake calls with wildcards. `id` is such as `debias.train`.

    def folder_of(self, id: str) -> str:
        """Return the folder of the stages with an id, with {key} as a wildcard."""
        return f"{self.plan.settings.results}/stages/{id.replace('.', '/')}/{{key}}"

    def inputs_of(self, id: str) -> Callable[[Any], list[str]]:
        """Return a function of the wildcards that returns the status files of a stage's inputs."""
        return lambda wildcards: [
            f"{folder}/status.json" for folder in self.plan.stage(id, wildcards.key).inputs.values()
        ]

    def resource_of(self, id: str, name: str) -> Callable[[Any], int]:
        """Return a function of the wildcards that returns a stage's threads, mem_mb, runtime (minutes) or gpu."""
        return lambda wildcards: getattr(self.plan.stage(id, wildcards.key).resources, name)

    def priority_of(self, id: str) -> Callable[[Any], int]:
        """Return a function of the wildcards that returns a stage's priority; Snakemake starts the highest first."""
        return lambda wildcards: self.priorities[id, wildcards.key]

    def group_of(self, id: str) -> Callable[[Any], str | None]:
        """Return a function of the wildcards that returns the name of a stage's group, or None without a group."""
        return lambda wildcards: getattr(self.groups.get((id, wildcards.key)), "name", None)

    def scheduler_request(self, id: str) -> dict[str, Callable[[Any], int | str]]:
        """Return {resource: function of the wildcards} for a scheduler that has its own terms for resources.

        These are the profile's default resources that contain `{gpu}`, `{mem_mb}`, `{runtime}` (minutes) or
        `{seconds}`, such as `lsf_extra: -gpu num={gpu}`. A resource with `{gpu}` is empty, or 0, if the stage needs no
        device. Plugins that read `gpu`, `mem_mb` and `runtime` themselves need none of them.
        """

        def in_words(word: str) -> Callable[[Any], int | str]:
            def request(wildcards: Any) -> int | str:
                # Snakemake sums plain numbers over a group; minutes and text must already be those of the group.
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
        placeholder = re.compile(r"\{(gpu|mem_mb|runtime|seconds)\}")
        return {name: in_words(word) for name, word in words.items() if placeholder.search(word)}

    # Params. Functions that take `output` make derived params, whose changes do not make Snakemake run a job again: a
    # label changes when another variant shares the stage.

    def label_of(self, id: str) -> Callable[[Any, Any], str]:
        """Return a function that returns a stage's label, which names its variants and seed."""
        return lambda wildcards, output: self.plan.stage(id, wildcards.key).label

    def command_of(self, id: str) -> Callable[[Any, Any], str]:
        """Return a function that returns the arguments of Python that start a stage, as a fork or a new process."""

        def command(wildcards: Any, output: Any) -> str:
            stage = self.plan.stage(id, wildcards.key)
            kind = fork_client.COMMANDS if stage.entry == COMMAND_ENTRY else fork_client.TRAINERS
            start = ["-I", "-S", fork_client.__file__, kind] if self._forks else ["-m", "ablation.runner.run"]
            return shlex.join([*start, *stage.arguments])

        return command
