"""Writes offline runs with the real wandb: `python wandb_runs.py OUT`. Those in ../written/wandb.tar.gz: 0.31.0.

OUT/wandb holds the runs, OUT/expected.json what `run.config` of the first said at its end.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

LONG = "long " * 8_000  # one record over several blocks of the file
ODD = 'odd/näme "q" .x\\y #1'


def settings():
    import wandb

    # Nothing of the machine that it runs on.
    return wandb.Settings(
        mode="offline", host="host", username="user", console="off", silent=True, disable_git=True, x_disable_meta=True
    )


def start(folder, key, **more):
    import wandb

    return wandb.init(project="grid", dir=str(folder), id=key, settings=settings(), **more)


def whole(folder):
    import wandb

    config = {"seed": 3, "lr": 1e-3, "optim": {"name": "adam", "betas": [0.9, 0.99]}, "none": None, "nan": float("nan")}
    run = start(folder, "abc1", name="first run", config=config, tags=["a"], group="g")
    run.define_metric("eval/step")
    run.define_metric("eval/*", step_metric="eval/step")
    run.define_metric("half/*", step_metric="half/epoch")
    run.define_metric("loss", summary="min")
    for i in range(20):
        run.log({"loss": 1 / (i + 1), "ok": i % 2 == 0, ODD: i, "nested": {"a": i, "b": {"c": 0.5}}}, step=i)
    run.log({"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "whole": 2**40}, step=20)
    run.log({"eval/step": 100, "eval/acc": 0.25}, step=21)
    run.log({"eval/step": 200, "eval/acc": 0.5}, step=22)
    run.log({"half/epoch": 0.5, "half/acc": 0.25}, step=23)
    run.log({"half/epoch": 1.0, "half/acc": 0.5}, step=24)
    run.log({"loss": 0.75}, step=30)  # twice at one step
    run.log({"loss": 0.25}, step=30)
    run.log(
        {"text": LONG, "hist": wandb.Histogram([1, 2, 3]), "table": wandb.Table(columns=["a"], data=[[1]])}, step=31
    )
    for i in range(40, 60):
        run.log({"loss": 1 / i}, step=i)
    run.config.update({"late": 1, "optim": {"name": "sgd"}}, allow_val_change=True)
    run.summary["test/acc"] = 0.875
    run.finish()
    return dict(run.config)


def resumed(folder, first):
    run = start(folder, "res2", name="resumed", config={"seed": 1}, resume="allow")
    for i in range(0, 10) if first else range(6, 9):
        run.log({"loss": i if first else 10.0 + i}, step=i)
    run.finish(exit_code=1 if first else 0)


def counted(folder, steps):
    """As the Trainer of Hugging Face logs: its own count of steps; W&B's begins at 0 again after a resume."""
    run = start(folder, "hf5", config={"seed": 5}, resume="allow")
    run.define_metric("train/global_step")
    run.define_metric("*", step_metric="train/global_step", step_sync=True)
    for step in steps:
        run.log({"train/loss": 1.0 + step, "train/global_step": step})
    run.log({"eval/loss": 2.0 + steps[-1]})  # W&B adds the last value of the step metric
    run.finish()


def failed(folder):
    run = start(folder, "bad3")
    run.log({"loss": 1.0})
    run.log({"loss": 2.0})
    run.finish(exit_code=2)


def killed(folder):
    """Kill this program and the one that writes the file: the run has no end."""
    code = f"""
import contextlib, glob, importlib.util, os, signal, time
spec = importlib.util.spec_from_file_location("produce", {__file__!r})
produce = importlib.util.module_from_spec(spec); spec.loader.exec_module(produce)
run = produce.start({str(folder)!r}, "cut4", config={{"seed": 4}})
for i in range(300):
    run.log({{"loss": 1 / (i + 1)}}, step=i)
time.sleep(2)
for stat in glob.glob("/proc/[0-9]*/stat"):
    with contextlib.suppress(OSError):
        found = open(stat).read()
        if "(wandb-core)" in found and found.rpartition(")")[2].split()[1] == str(os.getpid()):
            os.kill(int(found.split()[0]), signal.SIGKILL)
os._exit(1)
"""
    env = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}  # a writer of its own
    subprocess.run([sys.executable, "-c", code], check=False, env=env)


def study(folder):
    """Two variants with three seeds each: what `ablation import` is for."""
    for variant, rate in (("base", 0.1), ("fast", 0.2)):
        for seed in range(3):
            run = start(folder, f"{variant}{seed}", name=f"{variant}-{seed}", config={"lr": rate, "seed": seed})
            for step in range(3):
                run.log({"acc": step * rate + seed / 100}, step=step)
            run.finish()


def main(out):
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"WANDB_DATA_DIR": str(folder / "data"), "WANDB_CACHE_DIR": str(folder / "cache")}
    expected = {"abc1": {"config": whole(folder)}}
    failed(folder)
    for first in (True, False):
        resumed(folder, first)
    for steps in ([0, 10, 20, 30], [20, 25]):
        counted(folder, steps)
    killed(folder)
    (folder / "study").mkdir(exist_ok=True)
    study(folder / "study")
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
