"""Measure the cost of this project's workflow per job, compared with bare Snakemake workflows of as many jobs.

    python benchmarks/overhead.py --jobs 1000 --rounds 2
    python benchmarks/overhead.py --jobs 1000 --only rules trivial       Snakemake's part only; takes a minute

The job is a stub stage that logs 20 steps of a metric and saves 4 items. It does not import torch, which takes any real
stage a second. All workflows use the same Snakemake, scheduler and cores; each round runs them in another order:

    ours     this project: plan, `ablation.runner.run` (lock, lease, log, provenance, Parquet), log and benchmark files,
             and at the end collect, tables, figures, report and gate
    command  bare: one rule, no log, no benchmark; its job is the command that ours runs without the fork server
    script   bare: its job is a Python script that does the stub's work and writes the same Parquet and status
    rules    this project's plan and rules up to the last stage, with `touch` as the job
    trivial  bare: its job is `touch`

The table has CPU seconds (user and system) of Snakemake with all its children, which hardly depend on other work on the
machine, and wall seconds. The overhead is the CPU time minus that of the stub's script outside of any workflow, if
the job runs the stub (all but `rules` and `trivial`).
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes `tests` importable

from benchmarks.measure import Used, measure
from tests.workflow.project import Project

NAMES = ["ours", "command", "script", "rules", "trivial"]
STUB = """

def run(stage):
    for step in range(20):
        stage.log_metrics(step, {"edited/mean/score": step * stage.config.scale})
    stage.save_items([(str(item), "all", "edited", "score", float(item)) for item in range(4)])
"""
STUDY = """
title: Stub
question: What does a job cost?
source: a benchmark
config: trainers.debias.config:ToyConfig
stages:
  evaluate:
    entry: trainers.debias.evaluate
    reads: [scale]
    seeded: true
    resources: {threads: 1, mem_mb: 100, runtime: 5, gpu: 0}
table:
  columns: [{metric: edited/mean/score, label: score}]
analysis: {value: score, protocol: edited, subsets: [all], direction: max, margin: 0.1}
dirty_tree: allow
"""
SCRIPT = """
import json, sys
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq

config, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
scale = config["config"].get("scale", 1.0)
metrics = pa.table({"step": range(20), "name": ["edited/mean/score"] * 20, "value": [s * scale for s in range(20)]})
pq.write_table(metrics, out / "metrics.parquet", compression="zstd")
items = {"item": list("0123"), "subset": ["all"] * 4, "protocol": ["edited"] * 4, "name": ["score"] * 4}
pq.write_table(pa.table({**items, "value": [0.0, 1.0, 2.0, 3.0]}), out / "items.parquet", compression="zstd")
(out / "status.json").write_text(json.dumps({"state": "ok", "key": config["key"]}))
"""
BARE = """
KEYS = {keys!r}

rule all:
    input: expand("{folder}/{{key}}/status.json", key=KEYS)

rule job:
    output: "{folder}/{{key}}/status.json"
    shell: {command!r}
"""


def build(folder: Path, jobs: int) -> tuple[Project, list[str]]:
    """Create and plan a project with ten variants of `jobs / 10` seeds; return the project and the stages' keys."""
    project = Project.create(folder)
    project.write("trainers/debias/evaluate.py", STUB)
    project.write("configs/studies/debias/_study.yaml", STUDY)
    project.write("configs/scales/smoke.yaml", f"seeds: {jobs // 10}\nstudies: {{debias: {{}}}}\n")
    for name in ("b", "c"):
        (folder / f"configs/studies/debias/{name}.yaml").unlink()
    for number in range(9):
        project.write(f"configs/studies/debias/v{number}.yaml", f"extends: a\nwhy: one more\nscale: {number + 2}.0\n")
    code = "from ablation.plan.start import build_plan, load_settings; build_plan(load_settings({})).write()"
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=project.environment(), check=True)
    plan = json.loads(project.read("results/plan.json"))
    (folder / "stub.py").write_text(SCRIPT)
    return project, [stage["key"] for stage in plan["stages"]]


def write_bare(project: Project, name: str, keys: list[str]) -> None:
    """Write the Snakefile of one of the bare workflows."""
    out = f"bare/{name}/{{wildcards.key}}"
    config = "results/stages/debias/evaluate/{wildcards.key}/config.json"
    commands = {
        "command": f"exec {sys.executable} -m ablation.runner.run --config {config} --out {out} --gpus 0 --threads 1",
        "script": f"exec {sys.executable} stub.py {config} {out}",
        "trivial": "touch {output}",
    }
    text = BARE.format(keys=keys, folder=f"bare/{name}", command=commands[name])
    project.write(f"{name}.smk", text)


def with_command(common: str, command: str) -> str:
    """Return the text of stages.smk with `command` as the command of every stage."""
    head, _, rest = common.partition("RUN_STAGE = (")
    after = rest.partition(")" + chr(10))[2]
    return f"{head}RUN_STAGE = {command!r}{chr(10)}{after}"


def one_round(project: Project, keys: list[str], cores: int, order: list[str]) -> dict[str, Used]:
    """Run each workflow from the start, in the order `order`; return what each used."""
    used = {}
    rules, text = "workflow/rules/stages.smk", project.read("workflow/rules/stages.smk")
    for name in order:
        shutil.rmtree(project.folder / "bare", ignore_errors=True)
        shutil.rmtree(project.folder / ".snakemake", ignore_errors=True)
        for status in project.statuses():
            status.unlink()
        common = ["-m", "snakemake", "--cores", str(cores), "--scheduler", "greedy", "--quiet", "all"]
        project.write(rules, with_command(text, "touch {output}") if name == "rules" else text)
        if name in ("ours", "rules"):
            own_processes = [*common, "--config", "fork_server=false"]  # processes of their own, as in `command`
            command = own_processes if name == "ours" else [*own_processes, "--until", "debias_evaluate"]
            used[name] = measure(command, project.folder, project.environment())
            assert len(project.statuses()) == len(keys)
        else:
            write_bare(project, name, keys)
            for key in keys:
                (project.folder / "bare" / name / key).mkdir(parents=True)
            command = [*common, "--snakefile", f"{name}.smk", "--workflow-profile", "none"]
            used[name] = measure(command, project.folder, project.environment())
            assert len(list((project.folder / "bare" / name).glob("*/status.json"))) == len(keys)
    return used


def alone(project: Project, keys: list[str], times: int = 10) -> float:
    """Return the mean CPU seconds of the stub's script, run `times` times outside of any workflow."""
    (project.folder / "alone").mkdir(exist_ok=True)
    command = ["stub.py", f"results/stages/debias/evaluate/{keys[0]}/config.json", "alone"]
    return sum(measure(command, project.folder, project.environment()).cpu for _ in range(times)) / times


def main() -> None:
    """Measure the workflows and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="number of jobs, a multiple of ten (default: 1000)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="workflows to measure (default: all)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    names, chance = arguments.only, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        project, keys = build(Path(folder) / "project", arguments.jobs)
        work = alone(project, keys)
        rounds = []
        for _ in range(arguments.rounds):
            order = chance.sample(names, len(names))
            rounds.append(one_round(project, keys, arguments.cores, order))
            print(f"order {', '.join(order)}: {rounds[-1]}", file=sys.stderr, flush=True)
    jobs, per_job = len(keys), {}
    print(f"{jobs} jobs, {arguments.rounds} rounds, {arguments.cores} cores; the stub's work alone: {work:.3f} CPU s\n")
    print("| workflow | CPU s a job | wall s a job | overhead, CPU s a job |\n| --- | ---: | ---: | ---: |")
    for name in names:
        cpu, wall = (sum(used[name][i] for used in rounds) / len(rounds) / jobs for i in (0, 1))
        per_job[name] = cpu
        overhead = f"{cpu if name in ('rules', 'trivial') else cpu - work:.3f}"
        print(f"| {name} | {cpu:.3f} | {wall:.3f} | {overhead} |")
    for workflow, baseline in (("ours", "command"), ("ours", "script"), ("rules", "trivial"), ("ours", "trivial")):
        if {workflow, baseline} <= per_job.keys():
            print(f"{workflow} / {baseline}: {per_job[workflow] / per_job[baseline]:.2f}")


if __name__ == "__main__":
    main()
