"""A stage small enough to be run many times: its config, its trainer, and a way to run it as the workflow does."""

import json
import os
import subprocess
import sys
from pathlib import Path

from ablation.contract.code import HARNESS, Code, Sources
from tests import warm
from tests.repository import ROOT

CONFIG = """
from pydantic import BaseModel, ConfigDict, model_validator


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    source: str  # required, and read by another stage only
    steps: int = 6
    lr: float = 0.5
    mode: str = "plain"
    pause: float = 0.0

    @model_validator(mode="after")
    def positive(self):
        if self.lr <= 0:
            raise ValueError("lr must be positive")
        return self

    def doubled(self):
        return 2 * self.steps
"""

TRAINER = """
import os, sys, time, torch
from trainers.running.stage import Diverged


def run(stage):
    config = stage.config
    print("chatter of a library")
    os.write(2, b"chatter of C code\\n")
    if config.mode == "raise":
        raise RuntimeError("the first line\\nand the second")
    if config.mode == "surrogate":
        raise ValueError("caf\\udce9 \\x1b[31mred")
    if config.mode == "exit":
        sys.exit(3)
    if config.mode == "unread":
        config.source
    weight, start = torch.zeros(2), 0
    found = stage.load_checkpoint()
    if found:
        start, weight = found.step, found.tensors["weight"]
        torch.set_rng_state(found.tensors["rng"])
    for step in range(start, config.steps):
        weight = weight + config.lr * torch.randn(2)
        loss = float("nan") if config.mode == "nan" and step == 3 else float(weight.square().sum())
        stage.log_metrics(step, {"train/loss": loss, "train/norm": weight.norm()})
        stage.save_checkpoint(step + 1, {"weight": weight, "rng": torch.get_rng_state()}, {"seen": step})
        stage.progress(step + 1, config.steps)
        if config.mode == "die" and step == 3 and not os.path.exists(stage.out / "died"):
            (stage.out / "died").touch()
            os.kill(os.getpid(), 9)
        until = time.monotonic() + config.pause
        while time.monotonic() < until and not os.path.exists(stage.out / "hurry"):
            time.sleep(0.02)
    if config.mode == "diverge":
        raise Diverged("collapsed")
    stage.save_items([("1", "gender", "edited", "ss", 1.0), ("2", "gender", "edited", "ss", 0.0)])
    (stage.out / "threads").write_text(f"{torch.get_num_threads()} {os.environ['CUDA_VISIBLE_DEVICES']!r}")
"""


DEFAULTS = {"steps": 6, "lr": 0.5, "mode": "plain", "pause": 0.0}


def write_stage(folder: Path, *, reads=tuple(DEFAULTS), abort_rules=(), seed=1, code=(), **config) -> Path:
    """Write the modules and the plan's config.json into `folder`; return the stage's own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy_config.py").write_text(CONFIG)
    (folder / "toy_trainer.py").write_text(TRAINER)
    out = folder / "out"
    out.mkdir(exist_ok=True)
    plan = {"stage": "toy.train", "key": "0123456789abcdef", "seed": seed, "entry": "toy_trainer"}
    values = {key: value for key, value in DEFAULTS.items() if key in reads} | config
    plan |= {"model": "toy_config:Config", "reads": list(reads), "config": values, "abort_rules": list(abort_rules)}
    sources = Sources(ROOT)
    begins = tuple(file for name in (*code, *HARNESS) for file in sources.defining(name))
    start = Code(begins, {}, {}, entry="toy_trainer")
    files = sources.files(start)
    plan["code"] = start._replace(files=files, text=sources.text(files))._asdict()
    (out / "config.json").write_text(json.dumps(plan))
    return out


def command(out: Path, *extra: str) -> list[str]:
    words = ["--config", f"{out}/config.json", "--out", str(out), "--label", "v8 seed 1", *extra]
    return [sys.executable, "-m", "ablation.runner.run", *words]


def environment(out: Path, **values: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "CUDA_", "ABLATION_"))}
    leases = str(out.parent / "leases")
    return {**kept, "PYTHONPATH": f"{out.parent}:{ROOT}", "ABLATION_LEASES": leases, **values}


def run_stage(out: Path, *extra: str, cold: bool = False, **values: str) -> subprocess.CompletedProcess[str]:
    """Run the stage to its end, as a fork of a process that has torch imported; `cold`: as a process of its own."""
    words, env = command(out, *extra), environment(out, **values)
    return warm.run(words[2], words[3:], cwd=ROOT, env=env, timeout=900, separate=True, cold=cold)


def status(out: Path) -> dict:
    return json.loads((out / "status.json").read_text())
