"""Compare two folders of results bit for bit, to see whether a change of the trainers' code changed a number.

    python benchmarks/oracle.py run results/before                  # before the change; one study: --study gad
    python benchmarks/oracle.py run results/after                   # after the change
    python benchmarks/oracle.py compare results/before results/after

`run` runs the smoke grid of every study, and seed 0 of three variants per study at demo scale (not with `--smoke`).
`compare` compares metrics without times, items, samples, and all tensors in stage folders. It pairs stages by study,
variant, seed and stage name, because stage keys change with the code.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import torch
from safetensors import safe_open

from ablation.contract.numbers import counted
from ablation.contract.reading import read_json
from ablation.plan.plan_file import read_plan

DEMO = {
    "innovations": ("2.3-amic", "2.5-temporal", "all-innovations"),
    "gspo": ("ppo", "dapo", "gspo-token-reward"),
    "gad": ("d-final", "pooling-sum", "warmup-cross-entropy"),
    "demonstrations": ("hard_plus_soft", "per-shot", "from-best-beam"),
    "debias": ("v4", "v8", "v10"),
}
TABLES = ("metrics", "items", "samples")


def run(results: Path, study: str | None, cores: int, *, smoke: bool) -> None:
    """Run the grids with the code of the working folder; write to `results/smoke` and `results/demo-<study>`."""
    grids = {"smoke": ["scale=smoke", *([f"study={study}"] if study else [])]}
    for name, variants in DEMO.items() if not smoke else ():
        if study in (None, name):
            grids[f"demo-{name}"] = ["scale=demo", f"study={name}", "seed=0", f"variant=[{','.join(variants)}]"]
    for name, settings in grids.items():
        folders = [f"results={results / name}", f"reports={results / name}-reports"]
        command = [str(Path(sys.executable).with_name("snakemake")), "collect", "--quiet", "all", "--cores", str(cores)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--resources", "gpu=1", "--config", *folders, *settings], check=True, env=environment)


def differences(before: Path, after: Path) -> tuple[int, list[str]]:
    """Return the number of stages that are in both folders, and a line for each difference between the folders."""
    compared, changes = 0, []
    for grid in sorted(path.parent.name for path in after.glob("*/plan.json")):
        old, new = stages(before / grid), stages(after / grid)
        changes += [f"{grid} {' '.join(map(str, name))}: not in {before}" for name in new.keys() - old.keys()]
        for name in sorted(old.keys() & new.keys()):
            compared += 1
            changes += [f"{grid} {' '.join(map(str, name))}: {what}" for what in differing(old[name], new[name])]
    return compared, changes


def stages(results: Path) -> dict[tuple[str, str, int, str], Path]:
    """Return {(study, variant, seed, stage): folder} of all stages that ended."""
    plan = read_plan(results / "plan.json")
    folders = plan.folders(results)
    named = {
        (study.name, run.variant, run.seed, stage): folders[key]
        for study in plan.studies
        for run in study.runs
        for stage, key in run.stages.items()
    }
    return {name: folder for name, folder in named.items() if (folder / "status.json").exists()}


def differing(before: Path, after: Path) -> list[str]:
    """Return a phrase for each difference between two folders of a stage; [] if the results are equal."""
    changes = []
    states = [read_json(folder / "status.json")["state"] for folder in (before, after)]
    if states[0] != states[1]:
        changes.append(f"state {states[0]} -> {states[1]}")
    old, new = tensors(before), tensors(after)
    if old != new:
        names = [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)]
        changes.append(f"{len(names)} of {len(old)} tensors differ, such as {min(names)}")
    return changes + [change for table in TABLES if (change := changed_rows(before, after, table))]


def changed_rows(before: Path, after: Path, table: str) -> str | None:
    """Return the first difference of a table as text; None if every bit is equal."""
    old, new = (rows(folder / f"{table}.parquet") for folder in (before, after))
    if old.equals(new):
        return None
    if len(old) != len(new) or list(old) != list(new):
        return f"{table}: (rows, columns) {old.shape} -> {new.shape}"
    first = next(number for number in range(len(old)) if not old.iloc[[number]].equals(new.iloc[[number]]))
    return f"{table}: {old.iloc[first].to_dict()} -> {new.iloc[first].to_dict()}"


def rows(path: Path) -> pd.DataFrame:
    """Return a table without measured times; an empty table if the file does not exist."""
    if not path.exists():
        return pd.DataFrame()
    table = pd.read_parquet(path)
    if path.stem == "metrics":
        table = table[~table["name"].str.contains("^time/|/wall_s$")]
    return table.sort_values([name for name in ("step", "name") if name in table], kind="stable", ignore_index=True)


def tensors(folder: Path) -> dict[str, str]:
    """Return {subfolder and name: digest} of every tensor in a stage folder."""
    digests = {}
    for path in sorted(folder.rglob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                tensor = file.get_tensor(name)
                content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                head = f"{tuple(tensor.shape)} {tensor.dtype};".encode()
                digests[f"{path.parent.relative_to(folder)}/{name}"] = hashlib.sha256(head + content).hexdigest()
    return digests


def main() -> int:
    """Run the grids, or compare two folders; return the exit status: 1 if results differ or there are none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    runs, compares = actions.add_parser("run"), actions.add_parser("compare")
    runs.add_argument("results", type=Path)
    runs.add_argument("--study", choices=DEMO)
    runs.add_argument("--smoke", action="store_true", help="leave out the variants at demo scale")
    runs.add_argument("--cores", type=int, default=1)
    compares.add_argument("before", type=Path)
    compares.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "run":
        run(arguments.results.resolve(), arguments.study, arguments.cores, smoke=arguments.smoke)
        return 0
    compared, changes = differences(arguments.before, arguments.after)
    print(*changes, f"{counted(compared, 'stage')} compared, {counted(len(changes), 'difference')}", sep="\n")
    return 1 if changes or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
