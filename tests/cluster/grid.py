"""A project whose trainer says which device it was given, and can be held up; and its run through a scheduler."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from tests.workflow.project import MODULES, STUDY, Project

# A device that two jobs use at once is an error of the second. `hold` stops an attempt at the first step that none
# before it was stopped at, on a scheduler only, so that the local run's numbers are the undisturbed ones.
TRAIN = (
    MODULES["train"]
    .replace(
        "    config = stage.config\n",
        """    import fcntl, pathlib
    config = stage.config
    job, device = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS")
    pathlib.Path("devices").mkdir(exist_ok=True)
    if job:
        with open("devices/uses", "a") as uses:
            uses.write(f"{job} {device} {os.environ['CUDA_VISIBLE_DEVICES']}\\n")
        used = open(f"devices/{device}", "w")
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
""",
    )
    .replace(
        '        if config.mode == "die"',
        """        held = stage.out / f"held-{step}"
        if job and config.mode.startswith("hold-") and 1 <= step <= 3 and not held.exists():
            held.write_text(job)
            while not os.path.exists(config.mode.replace("hold", "go")):
                time.sleep(0.1)
        if config.mode == "die\"""",
    )
)
# For Snakemake on Slurm: short waits, as the machine is this one. The plugin's grow by ten seconds with each answer.
QUICK = ("--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5")
EACH_SECOND = """
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

RemoteExecutor.next_seconds_between_status_checks = property(lambda _: 1, lambda *_: None)
"""
PATIENCE = 900  # seconds; a job starts three interpreters one after the other


class Grid(Project):
    """The toy project, with a train stage as above."""

    @classmethod
    def create(cls, folder: Path, *done: str, hold: tuple[str, ...] = ()) -> "Grid":
        """Make the project; with `hold`, it has the root and these variants, which are held up.

        done: words for Snakemake, which runs so much here, so that a scheduler has the rest.
        """
        grid = cls(Project.create(folder).folder)
        grid.write("Snakefile", grid.read("Snakefile") + EACH_SECOND)
        grid.write("trainers/debias/train.py", TRAIN)
        grid.write("configs/studies/debias/_study.yaml", STUDY.replace("runtime: 5", "runtime: 30"))
        for name in hold:
            text = f"extends: a\nwhy: to be held up\nmode: hold-{name}\nsteps: 5\n"
            grid.write(f"configs/studies/debias/{name}.yaml", text)
        for name in ("b", "c") if hold else ():
            (grid.folder / f"configs/studies/debias/{name}.yaml").unlink()
        if done:
            grid.snakemake(*done)
        return grid

    def submit(self, *words: str, profile: str = "slurm") -> subprocess.Popen[str]:
        """Start Snakemake with a profile; its output goes to submit.log."""
        quick = QUICK if profile == "slurm" else QUICK[2:]
        place = f"workflow/profiles/{profile}"
        command = [sys.executable, "-m", "snakemake", "--workflow-profile", place, *quick, *words]
        with (self.folder / "submit.log").open("a") as log:
            return subprocess.Popen(command, cwd=self.folder, env=self.environment(), stdout=log, stderr=log, text=True)

    def log(self) -> str:
        return self.read("submit.log")

    @contextmanager
    def running(self, *words: str, profile: str = "slurm") -> Iterator[None]:
        """Have Snakemake run meanwhile, which must end well."""
        process = self.submit(*words, profile=profile)
        try:
            yield
            assert process.wait(timeout=PATIENCE) == 0, self.log()
        finally:
            process.kill()

    def held(self, variant: str, step: int = 1) -> str:
        """Wait until the variant is held up after this step; return the number of its job."""
        self.wait_for(lambda: variant in self.trained())
        held = self.trained()[variant] / f"held-{step}"
        self.wait_for(lambda: held.exists() and held.read_text())
        return held.read_text()

    def release(self, variant: str) -> None:
        (self.folder / f"go-{variant}").touch()

    def trained(self) -> dict[str, Path]:
        """Return the folder of each planned variant's train stage."""
        plan = self.folder / "results/plan.json"
        runs = json.loads(plan.read_text())["studies"][0]["runs"] if plan.exists() else []
        return {run["variant"]: self.folder / "results/stages/debias/train" / run["stages"]["train"] for run in runs}

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.2)

    def attempts(self) -> dict[str, int]:
        """Return how often the train stage of each variant was begun; all must have ended well."""
        statuses = {name: json.loads((path / "status.json").read_text()) for name, path in self.trained().items()}
        assert {status["state"] for status in statuses.values()} == {"ok"}, statuses
        return {name: status["attempt"] for name, status in statuses.items()}


def report(folder: Path, study: str = "debias") -> dict[str, str]:
    """Return the tables and verdicts of a study: what the report says, without what it cost."""
    files = {name: (folder / "reports" / study / name).read_text() for name in ("table.md", "table.csv", "table.tex")}
    words = [sys.executable, "-m", "ablation", "verdicts", study, "--csv", "--results", "results"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    verdicts = pd.read_csv(io.StringIO(done.stdout)).drop(columns="cost_hours")
    verdicts["reason"] = verdicts["reason"].str.replace(r", about [\d.,]+ \w+ of device time", "", regex=True)
    return {**files, "verdicts": verdicts.to_csv(index=False)}
