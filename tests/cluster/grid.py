"""A project whose trainer says which device it was given, and can be held up; and its run through a scheduler."""

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from tests.workflow.project import MODULES, STUDY, Project

# A device that two jobs use at once is an error of the second. `hold` stops the first attempt after two steps, on a
# scheduler only, so that the local run's numbers are the undisturbed ones.
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
        """        if job and config.mode.startswith("hold") and step == 1 and not (stage.out / "held").exists():
            (stage.out / "held").write_text(job)
            while not os.path.exists(f"go-{config.mode}"):
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
    def create(cls, folder: Path, *done: str, **modes: str) -> "Grid":
        """Make the project; with modes, it has the root and a variant for each of them.

        done: words for Snakemake, which runs so much here, so that a scheduler has the rest.
        """
        grid = cls(Project.create(folder).folder)
        grid.write("Snakefile", grid.read("Snakefile") + EACH_SECOND)
        grid.write("trainers/debias/train.py", TRAIN)
        grid.write("configs/studies/debias/_study.yaml", STUDY.replace("runtime: 5", "runtime: 30"))
        for name, mode in modes.items():
            text = f"extends: a\nwhy: to be held up\nmode: {mode}\nsteps: 5\n"
            grid.write(f"configs/studies/debias/{name}.yaml", text)
        for name in ("b", "c") if modes else ():
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

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "CONDOR_CONFIG": "/dev/null"}

    def log(self) -> str:
        return self.read("submit.log")

    def finish(self, process: subprocess.Popen[str]) -> None:
        """Wait for a Snakemake that must end well."""
        try:
            assert process.wait(timeout=PATIENCE) == 0, self.log()
        finally:
            process.kill()

    def held(self, mode: str) -> Path:
        """Wait until the variant of this mode is held up; return its stage's folder."""
        found: list[Path] = []

        def look() -> list[Path]:
            for path in self.folder.glob("results/stages/debias/train/*/config.json"):
                if (path.parent / "held").exists() and json.loads(path.read_text())["config"].get("mode") == mode:
                    found.append(path.parent)
            return found

        self.wait_for(look)
        return found[0]

    def release(self, mode: str) -> None:
        (self.folder / f"go-{mode}").touch()

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.2)

    def attempts(self) -> dict[str, int]:
        """Return how often the train stage of each variant was begun."""
        found = {}
        for path in self.folder.glob("results/stages/debias/train/*/status.json"):
            status = json.loads(path.read_text())
            assert status["state"] == "ok", status
            found[status["key"]] = status["attempt"]
        plan = json.loads(self.read("results/plan.json"))
        runs = plan["studies"][0]["runs"]
        return {run["variant"]: found[run["stages"]["train"]] for run in runs if run["stages"]["train"] in found}


def report(folder: Path, study: str = "debias") -> dict[str, str]:
    """Return the tables and verdicts of a study: what the report says, without what it cost."""
    files = {name: (folder / "reports" / study / name).read_text() for name in ("table.md", "table.csv", "table.tex")}
    words = [sys.executable, "-m", "ablation", "verdicts", study, "--csv", "--results", "results"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    verdicts = pd.read_csv(io.StringIO(done.stdout)).drop(columns="cost_hours")
    verdicts["reason"] = verdicts["reason"].str.replace(r", about [\d.,]+ \w+ of device time", "", regex=True)
    return {**files, "verdicts": verdicts.to_csv(index=False)}
