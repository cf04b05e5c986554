"""Measure the CPU time, wall time and peak memory of commands on projects with many stages; nothing is trained.

    python benchmarks/scale.py                         # 1,000 and 10,000 stages, in a temporary folder
    python benchmarks/scale.py 1000 100000 --keep DIR  # reuses the stages that an earlier call wrote to DIR
    python benchmarks/scale.py 100000 --variants 1000 --copied   # only commands that read the database; takes minutes

`plan` plans the given number of stages of `debias`. All other commands read synthetic stage folders
(`tests/simulate.py`): 10 variants (`--variants`) with enough seeds, two stages per run, and 200 items and 15 final
metrics per stage. The last column is the exponent of the CPU time from one size to the next; 1 is linear.

With `--copied` only two seeds are simulated and collected. All other seeds are copies of their rows in the database, in
which every eighth item has the other value and metrics are up to a hundredth larger.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python benchmarks/scale.py` finds the project

import duckdb  # noqa: E402

from ablation.contract.stage_folder import DATABASE  # noqa: E402
from ablation.contract.status import left_files  # noqa: E402
from benchmarks.measure import measure  # noqa: E402
from tests.simulate import Study, simulate  # noqa: E402

PLAN = """
import sys
from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
chosen = {"scale": "smoke", "study": "debias", "studies": "debias", "results": sys.argv[1]}
each = len(build_plan(load_settings(chosen | {"seeds": "2"})).stages)
print(len(build_plan(load_settings(chosen | {"seeds": str(round(2 * int(sys.argv[2]) / each))})).stages), "planned")
"""
ABLATION = ["-m", "ablation"]
FULL, ONE = "collect", "collect, one stage changed"
OF_DATABASE = ["sql", "verdicts", "report"]
# {table: what a copied row has instead of the row's own values, c being the copy}
COPIED = {
    "stages": "c.new AS key, t.seed + c.later AS seed",
    "metrics": "c.new AS key, t.value * (1 + hash(c.new, t.name, t.step) % 1000 / 1e5) AS value",
    "items": "c.new AS key, abs((hash(c.new, t.item, t.protocol) % 8 = 0)::INT - t.value) AS value",
    "loaded": "c.new AS key",
    "provenance": "c.new AS key",
}
ONCE = 20  # copies of all variants


def fill(results: Path, stages: int, variants: int) -> None:
    """Write the folders of `stages` stages that ended ok."""
    simulate(results, [Study(variants=variants, seeds=stages // (2 * variants), steps=5)])
    for status in results.rglob("status.json"):
        content = json.loads(status.read_text(encoding="utf-8"))
        status.write_text(json.dumps(content | left_files(status.parent)), encoding="utf-8")


def copy_seeds(database: Path, seeds: int) -> None:
    """Add runs to a collected database until each variant has `seeds` seeds."""
    with duckdb.connect(str(database), config={"threads": 1}) as connection:
        [[have]] = connection.sql("SELECT count(DISTINCT seed) FROM run_stages").fetchall()
        connection.execute(
            f"""CREATE TEMP TABLE copies AS SELECT key, i AS number, i * {have} AS later, md5(key || i)[:16] AS new
                FROM stages, range(1, {seeds // have}) of(i) WHERE seed IS NOT NULL"""
        )
        for start in range(1, seeds // have, ONCE):
            chosen = f"(FROM copies WHERE number BETWEEN {start} AND {start + ONCE - 1}) c"
            connection.execute(
                f"""INSERT INTO run_stages BY NAME
                    SELECT t.* REPLACE (coalesce(c.new, t.key) AS key, t.seed + number * {have} AS seed)
                    FROM range({start}, least({start + ONCE}, {seeds // have})) of(number)
                        CROSS JOIN (FROM run_stages WHERE seed < {have}) t LEFT JOIN {chosen} USING (key, number)
                    ORDER BY number, t.seed, t.variant, t.position"""
            )
            for table, values in COPIED.items():
                columns = "t.* EXCLUDE (device_hours)" if table == "stages" else "t.*"
                connection.execute(
                    f"""INSERT INTO {table} BY NAME SELECT {columns} REPLACE ({values})
                        FROM {table} t JOIN {chosen} USING (key) ORDER BY c.number, t.rowid"""
                )


def steps_of(results: Path, stages: int) -> dict[str, list[str]]:
    """Return {name of a step: arguments of Python}, in the order of measurement."""
    folders = ["--results", str(results)]
    reports = ["--reports", str(results.parent / f"reports-{stages}")]
    return {
        "plan": ["-c", PLAN, str(results.parent / "planned"), str(stages)],
        FULL: [*ABLATION, "collect", *folders],
        "collect, nothing changed": [*ABLATION, "collect", *folders],
        ONE: [*ABLATION, "collect", *folders],
        "sql": [*ABLATION, "sql", "select count(*) from results", *folders],
        "verdicts": [*ABLATION, "verdicts", "toy", *folders],
        "report": [*ABLATION, "report", *folders, *reports],
    }


def main() -> None:
    """Measure each number of stages and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--variants", type=int, default=10)
    parser.add_argument(
        "--copied", action="store_true", help="measure only commands that read the database, on copied rows"
    )
    parser.add_argument(
        "--keep", type=Path, help="folder of the stages, which later calls reuse (default: a temporary folder)"
    )
    parser.add_argument("--steps", nargs="+", help="steps to measure, by their names in the table (default: all)")
    arguments = parser.parse_args()
    before: dict[str, tuple[int, float]] = {}
    print(f"{'stages':>8}  {'step':26} {'CPU s':>8} {'wall s':>8} {'MB':>6}  exponent", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        for stages in sorted(arguments.stages):
            results = folder / f"results-{stages}"
            if not (results / "plan.json").exists():
                fill(results, 4 * arguments.variants if arguments.copied else stages, arguments.variants)
                if arguments.copied:
                    measure([*ABLATION, "collect", "--results", str(results)], ROOT)
                    copy_seeds(results / DATABASE, stages // (2 * arguments.variants))
            wanted = arguments.steps or (OF_DATABASE if arguments.copied else None)
            for step, command in steps_of(results, stages).items():
                if wanted and step not in wanted:
                    continue
                if step == FULL:
                    (results / DATABASE).unlink(missing_ok=True)
                elif step == ONE:
                    next(results.glob("stages/toy/train/*/metrics.parquet")).touch()
                cpu, wall, memory = measure(command, ROOT)
                fewer, less = before.get(step, (0, 0.0))
                exponent = f"{math.log(cpu / less) / math.log(stages / fewer):.2f}" if fewer else ""
                before[step] = stages, cpu
                print(f"{stages:8}  {step:26} {cpu:8.1f} {wall:8.1f} {memory:6.0f}  {exponent}", flush=True)


if __name__ == "__main__":
    main()
