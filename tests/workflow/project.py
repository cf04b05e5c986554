"""A copy of the project whose study is a toy: the workflow and the tracker are the real ones, the trainer is tiny."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests import warm
from tests.repository import ROOT
from tests.time_limit import PATIENCE

CONFIG = """
scale: smoke
studies: [debias]
seeds: null
gpus: 2
results: results
reports: reports
"""

SCALE = "seeds: 1\nstudies: {debias: {}}\n"

STUDY = """
title: Toy
question: Does the workflow work?
source: a test
config: trainers.debias.config:ToyConfig
parts: trainers.debias.parts:parts
stages:
  prepare:
    entry: trainers.debias.prepare
    reads: [size]
    seeded: false
    resources: {threads: 1, mem_mb: 500, runtime: 5, gpu: 0}
  train:
    entry: trainers.debias.train
    inputs: {prepare: prepare}
    reads: [objective, steps, mode, pause]
    seeded: true
    resources: {threads: 1, mem_mb: 500, runtime: 5, gpu: 1}
  evaluate:
    entry: trainers.debias.evaluate
    inputs: {train: train}
    reads: [scale]
    seeded: true
    resources: {threads: 1, mem_mb: 500, runtime: 5, gpu: 0}
table:
  columns: [{metric: edited/mean/score, label: score}]
curves: [{metric: train/loss, label: loss}]
analysis: {value: score, protocol: edited, subsets: [all], direction: max, margin: 0.1}
"""

VARIANTS = {
    "a": "why: the root\n",
    "b": "extends: a\nwhy: another objective\nobjective: second\n",
    "c": "extends: a\nwhy: longer\nsteps: 5\n",
}

MODULES = {
    "__init__": "",
    "config": """
from pydantic import BaseModel, ConfigDict

class ToyConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 3
    objective: str = "first"
    steps: int = 4
    mode: str = "plain"
    pause: float = 0.0
    scale: float = 1.0
""",
    "parts": """
def parts(config, stage):
    return {"objective": f"trainers.objectives.{config.objective}.loss"} if stage == "train" else {}
""",
    "prepare": """
from ablation.contract.atomic import write_json


def run(stage):
    write_json(stage.out / "data.json", list(range(stage.config.size)))
""",
    "train": """
import json, os, time
from ablation.contract.atomic import write_json


def run(stage):
    config = stage.config
    loss_of = stage.parts["objective"]
    if config.mode == "raise" and not os.path.exists("mended"):
        raise RuntimeError("this variant is broken")
    found = stage.load_checkpoint()
    start, weight = (found.step, found.state["weight"]) if found else (0, float(stage.seed))
    for step in range(start, config.steps):
        weight = weight + 1
        stage.log_metrics(step, {"train/loss": loss_of(weight)})
        stage.save_checkpoint(step + 1, {}, {"weight": weight})
        stage.progress(step + 1, config.steps)
        if config.mode == "die" and step == 1 and not (stage.out / "died").exists():
            (stage.out / "died").touch()
            os.kill(os.getpid(), 9)
        until = time.monotonic() + config.pause
        while time.monotonic() < until and not os.path.exists("hurry"):
            time.sleep(0.02)
    write_json(stage.out / "weight.json", weight)
""",
    "evaluate": """
import json


def run(stage):
    score = stage.config.scale * json.loads((stage.inputs["train"] / "weight.json").read_text())
    stage.save_items([(str(item), "all", "edited", "score", score + item) for item in range(4)])
    stage.log_metrics(0, {"edited/mean/score": score + 1.5})
""",
}

OBJECTIVES = {
    "first": '"""First."""\n\n\ndef loss(x):\n    return 1.0 / x  # falls\n',
    "second": '"""Second."""\n\n\ndef loss(x):\n    return 2.0 / x\n',
}


class Project:
    """A working copy in a folder of its own."""

    output = ""  # of the run that finished it

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path) -> "Project":
        skip = shutil.ignore_patterns("__pycache__", "debias", "objectives", "*.log")
        for name in ("ablation", "trainers", "workflow"):
            keep = shutil.ignore_patterns("__pycache__") if name == "workflow" else skip
            shutil.copytree(ROOT / name, folder / name, ignore=keep)
        shutil.copy(ROOT / "Snakefile", folder)
        shutil.copy(ROOT / "environment.yml", folder)
        (folder / "profiles").symlink_to("workflow/profiles")
        project = cls(folder)
        project.write("configs/config.yaml", CONFIG)
        project.write("configs/scales/smoke.yaml", SCALE)
        project.write("configs/studies/debias/_study.yaml", STUDY)
        for name, text in VARIANTS.items():
            project.write(f"configs/studies/debias/{name}.yaml", text)
        for name, text in MODULES.items():
            project.write(f"trainers/debias/{name}.py", text)
        for name, text in {"__init__": "", **OBJECTIVES}.items():
            project.write(f"trainers/objectives/{name}.py", text)
        return project

    def copy(self, folder: Path) -> "Project":
        shutil.copytree(self.folder, folder, symlinks=True)
        return Project(folder)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()

    def edit(self, name: str, old: str, new: str) -> None:
        """Write other words in place of those that stand once in a file."""
        text = self.read(name)
        assert text.count(old) == 1, f"{name}: {old}"
        self.write(name, text.replace(old, new))

    def environment(self) -> dict[str, str]:
        leases = str(self.folder / "leases")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "CUDA_", "ABLATION_", "SNAKEMAKE"))}
        own = {"PYTHONPATH": str(self.folder), "ABLATION_LEASES": leases, "ABLATION_FAKE_GPUS": "2"}
        return {**kept, **own, "ABLATION_WANDB": "off"}  # not of the settings: a stage that got it would fail

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]

    def snakemake(
        self, *arguments: str, check: bool = True, timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake to its end, as a fork (tests/warm.py); its output is in stdout."""
        words = self.command(*arguments)[3:]
        done = warm.run("snakemake", words, cwd=self.folder, env=self.environment())
        assert not check or done.returncode == 0, done.stdout
        return done

    def tracker(self, *commands: str) -> subprocess.CompletedProcess[str]:
        """Run commands of the tracker one after the other, until one fails; return the last one's end."""
        for command in commands:
            done = warm.run("ablation", command.split(), cwd=self.folder, env=self.environment(), separate=True)
            if done.returncode != 0:
                break
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start Snakemake as a user does, in a process of its own."""
        # Tests that were themselves started in the background ignore SIGINT, and so would all that they start.
        return subprocess.Popen(
            ["env", "--default-signal=INT", *self.command(*arguments)],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )

    def would_run(self, *arguments: str) -> dict[str, int]:
        """Return how many jobs of each rule a dry run lists, without `all`."""
        text = self.snakemake("-n", *arguments).stdout
        if "Nothing to be done" in text:
            return {}
        counts = re.findall(r"^(\w+) +(\d+)$", text.rpartition("Job stats:")[2], flags=re.MULTILINE)
        return {rule: int(count) for rule, count in counts if rule not in ("all", "total")}

    def statuses(self) -> list[Path]:
        return sorted(self.folder.glob("results/stages/**/status.json"))

    def trainers(self) -> list[int]:
        """Return the processes of the runner that work in this copy."""
        return self.processes("ablation.runner.run")

    def processes(self, word: str = "") -> list[int]:
        """Return the processes that work in this copy, those with `word` among their arguments."""
        running, here = psutil.process_iter(["cwd", "cmdline"]), str(self.folder.resolve())
        return [each.pid for each in running if each.info["cwd"] == here and word in ("", *each.info["cmdline"])]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)
