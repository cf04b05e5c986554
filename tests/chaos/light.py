"""A project of light stages, whose trainer notes who holds its device."""

import shutil

from tests.workflow.project import ROOT, Project

TRAIN = """
import os, time
from ablation.contract.atomic import write_json


def run(stage):
    device = os.environ["CUDA_VISIBLE_DEVICES"]
    try:
        owner = os.open(f"device-{device}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(owner, str(os.getpid()).encode())
        os.close(owner)
    except FileExistsError:
        other = open(f"device-{device}").read()
        if other and os.path.exists(f"/proc/{other}"):
            open("double-leased", "a").write(f"device {device}: {os.getpid()} and {other}\\n")
        open(f"device-{device}", "w").write(str(os.getpid()))
    for step in range(stage.config.steps):
        stage.log_metrics(step, {"train/loss": 1 / (step + 1 + stage.seed)})
        stage.progress(step + 1, stage.config.steps)
        time.sleep(stage.config.pause)
    write_json(stage.out / "weight.json", stage.config.steps + stage.seed)
    os.unlink(f"device-{device}")
"""


def light(folder, seeds, pause):
    """A project of light stages: a train stage of 20 steps, `pause` seconds each."""
    project = Project.create(folder)
    project.write("trainers/debias/train.py", TRAIN)
    project.write("configs/scales/smoke.yaml", f"seeds: {seeds}\nstudies: {{debias: {{}}}}\n")
    study = project.read("configs/studies/debias/_study.yaml")
    project.write("configs/studies/debias/_study.yaml", f"{study}base: {{steps: 20, pause: {pause}}}\n")
    project.write("configs/studies/debias/c.yaml", "extends: a\nwhy: longer\nsteps: 25\n")
    return project


def real(folder):
    """The project itself in a folder of its own."""
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("ablation", "trainers", "workflow", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, folder)
    (folder / "profiles").symlink_to("workflow/profiles")
    return Project(folder)


def finish(project, *arguments, attempts=12):
    """Call Snakemake until it succeeds, as a user would in the morning."""
    for _ in range(attempts):
        done = project.snakemake(*arguments, check=False)
        if done.returncode == 0:
            return
    raise AssertionError(done.stdout[-3000:])


def fresh(project, folder):
    """The same project before anything ran."""
    shutil.copytree(project.folder, folder, ignore=shutil.ignore_patterns("results", "reports", ".snakemake"))
    return Project(folder)
