"""CPU seconds of `ablation tables`, `figures` and `report` over a database of the demo's size.

    python benchmarks/rendering.py                    # 2 seeds, in a folder that is removed
    python benchmarks/rendering.py --seeds 5 --keep DIR --commands tables figures report

The plan is that of the demo: 5 studies and their figures. Nothing is trained: learning curves and evaluation items are
drawn at random.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python benchmarks/rendering.py` finds the project

from ablation.config.settings import load_settings  # noqa: E402
from ablation.plan.build import build_plan  # noqa: E402
from ablation.store.collect import collect  # noqa: E402
from benchmarks.measure import measure  # noqa: E402

ITEMS = 300  # in each subset of an evaluation
DATA_ITEMS = 2000  # behind each box of a distribution
METRICS, STEPS = 30, 100  # learning curves of a run, the declared ones among them, and their points


def fill(results: Path, seeds: int) -> None:
    """Plan the demo in `results`, and end every stage of it."""
    settings = load_settings({"scale": "demo", "seeds": str(seeds), "results": str(results)})
    build_plan(settings).write()
    plan = json.loads((results / "plan.json").read_text(encoding="utf-8"))
    places = {stage["key"]: ROOT / stage["dir"] for stage in plan["stages"]}
    for stage in plan["stages"]:
        write_status(places[stage["key"]], stage)
    for study in plan["studies"]:
        for run in study["runs"]:
            rng = np.random.default_rng([len(run["variant"]), *run["variant"].encode(), run["seed"]])
            for stage, key in run["stages"].items():
                rows = [curves(study, rng)] if stage == list(run["stages"])[-2] else []
                if stage == study["last_stage"]:
                    items, finals = evaluation(study, rng)
                    items.to_parquet(places[key] / "items.parquet", index=False)
                    rows.append(finals)
                elif drawn := list(data_items(study, rng)):
                    pd.concat(drawn).to_parquet(places[key] / "items.parquet", index=False)
                if rows:
                    pd.concat(rows).to_parquet(places[key] / "metrics.parquet", index=False)
    collect(results)


def write_status(folder: Path, stage: Mapping[str, Any]) -> None:
    """End a stage well."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = "2026-01-01T00:00:00+00:00"
    status = {"state": "ok", "reason": "", "stage": stage["id"], "key": stage["key"], "seed": stage["seed"]}
    status |= {"started": moment, "ended": moment, "wall_s": 10.0, "attempt": 1, "device": "cpu"}
    (folder / "status.json").write_text(json.dumps(status))
    (folder / "provenance.json").write_text(json.dumps({"git": {"commit": "c0ffee"}, "python": sys.version}))


def curves(study: Mapping[str, Any], rng: np.random.Generator) -> pd.DataFrame:
    """Random walks under the names that the study declares, and others."""
    names = [curve["metric"] for curve in study["curves"]]
    names += [f"train/other-{number}" for number in range(METRICS - len(names))]
    values = rng.normal(0, 0.1, (len(names), STEPS)).cumsum(axis=1)
    columns = {"step": np.tile(np.arange(STEPS), len(names)), "name": np.repeat(names, STEPS), "value": values.ravel()}
    return pd.DataFrame(columns)


def evaluation(study: Mapping[str, Any], rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Items of the analysis, 0 or 1, and final metrics for every column and figure."""
    analysis, level = study["analysis"], rng.normal(0.6, 0.03)
    rows = [
        pd.DataFrame(
            {
                "item": [f"{subset}-{i:04d}" for i in range(ITEMS)],
                "subset": subset,
                "protocol": analysis["protocol"],
                "name": analysis["value"],
                "value": (rng.random(ITEMS) < level).astype(float),
            }
        )
        for subset in analysis["subsets"]
    ]
    names = [column["metric"] for column in study["table"]["columns"]]
    replace = (study["table"].get("reference") or {}).get("replace") or {}
    names += ["/".join(replace.get(part, part) for part in name.split("/")) for name in names]
    panels = [panel["metric"] for figure in study["figures"] for panel in figure["panels"]]
    names += [name.replace("*", subset) for name in panels for subset in analysis["subsets"] if "*" in name]
    names = list(dict.fromkeys(names))
    finals = pd.DataFrame({"step": 0, "name": names, "value": rng.normal(level, 0.01, len(names))})
    return pd.concat(rows), finals


def data_items(study: Mapping[str, Any], rng: np.random.Generator) -> Iterator[pd.DataFrame]:
    """The items of which the study draws distributions."""
    panels = [panel for figure in study["figures"] if figure["kind"] == "distributions" for panel in figure["panels"]]
    for panel in panels:
        protocol, _, name = panel["metric"].split("/")
        for subset in ("negative", "positive"):
            names = [f"{subset}-{i:04d}" for i in range(DATA_ITEMS)]
            values = rng.normal(0 if subset == "negative" else 1, 0.5, DATA_ITEMS)
            columns = {"item": names, "subset": subset, "protocol": protocol, "name": name, "value": values}
            yield pd.DataFrame(columns)


def main() -> None:
    """Fill a results folder and time the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a folder to keep, or one that was kept")
    parser.add_argument("--commands", nargs="+", default=["tables", "figures", "report"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        results, reports = folder / f"results-{arguments.seeds}", folder / f"reports-{arguments.seeds}"
        if not (results / "tracker.duckdb").exists():
            fill(results, arguments.seeds)
        for command in arguments.commands:
            folders = ["--results", str(results), "--reports", str(reports)]
            used = measure(["-m", "ablation", command, *folders], ROOT)
            print(f"{arguments.seeds} seeds  {command:8} {used.cpu:6.1f} s of CPU  {used.wall:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
