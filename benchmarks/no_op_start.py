"""What a start of Snakemake costs when there is nothing to do.

    python benchmarks/no_op_start.py --stages 10000

Every stage has a status, as if it had run, and Snakemake has made the report. Then the same command is given again, a
few times, in turns with the same for the whole graph, a Snakefile without anything, and planning alone. CPU seconds of
the process and its children, and wall seconds.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # makes `tests` and `benchmarks` importable

from benchmarks.measure import Used, measure
from benchmarks.overhead import build

PLAN = "from ablation.plan.start import build_plan, load_settings; build_plan(load_settings({}))"


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=10_000, help="a multiple of ten (default: 10000)")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project, keys = build(Path(folder) / "project", arguments.stages)
        for config in project.folder.glob("results/stages/*/*/*/config.json"):
            (config.parent / "status.json").write_text(json.dumps({"state": "ok", "key": config.parent.name}))
        project.write("empty.smk", "rule all:\n")
        where = project.folder, project.environment()
        snakemake = ["-m", "snakemake", "--cores", "2", "--quiet", "all"]
        empty = ["--snakefile", "empty.smk", "--workflow-profile", "none"]
        print(f"{len(keys)} stages, the first run: {measure(snakemake, *where).cpu:.0f} CPU s", flush=True)
        commands = {
            "snakemake, nothing to do": snakemake,
            "the same, all stages in Snakemake's graph": [*snakemake, "--rerun-triggers", "mtime", "params", "input"],
            "the plan alone": ["-c", PLAN],
            "snakemake, an empty Snakefile": [*snakemake, *empty],
        }
        found: dict[str, list[Used]] = {name: [] for name in commands}
        for _ in range(arguments.rounds):
            for name, command in commands.items():
                found[name].append(measure(command, *where))
    print("| command | CPU s | wall s |\n| --- | ---: | ---: |")
    for name, taken in found.items():
        cpu = statistics.median(used.cpu for used in taken)
        wall = statistics.median(used.wall for used in taken)
        print(f"| {name} | {cpu:.1f} | {wall:.1f} |")


if __name__ == "__main__":
    main()
