"""Writes projects with the real trackio: `python trackio_projects.py OUT`. Those in ../written/trackio.tar.gz: 0.43.0.

OUT holds a database per project, OUT/expected.json what trackio's own API says of its runs: their logs in order and
their configuration. The project `live` is as a killed writer leaves it, with rows in its write-ahead log.
"""

import json
import os
import sqlite3
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1]).absolute()
os.environ |= {"TRACKIO_DIR": str(FOLDER), "HF_HUB_OFFLINE": "1", "HF_HOME": str(FOLDER / "hf")}
import trackio  # noqa: E402
from trackio.sqlite_storage import SQLiteStorage  # noqa: E402

ODD = 'odd/näme "q" .x\\y #1'


def main():
    config = {"seed": 3, "lr": 1e-3, "optim": {"name": "adam"}, "nan": float("nan")}
    trackio.init(project="grid", name="base", config=config, group="g", auto_log_gpu=False)
    for i in range(5):
        trackio.log({"loss": 1 / (i + 1), "ok": i % 2 == 0, ODD: i})
    trackio.log({"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")})
    trackio.log({"loss": 9.0}, step=1)  # again
    trackio.log({"eval/acc": 0.5, "text": "words", "nothing": None, "hist": trackio.Histogram([1.0, 2.0])}, step=100)
    trackio.log({"nested": {"a": 1}, "step": 7})
    trackio.log_system({"cpu": 50.0})
    trackio.finish()
    # Another run of the same name.
    trackio.init(project="grid", name="base", config={"seed": 4}, auto_log_gpu=False)
    trackio.log({"loss": 4.0})
    trackio.finish()
    for first in (True, False):
        trackio.init(project="other project", name="resumed", config={"seed": 5}, resume="allow", auto_log_gpu=False)
        for step in range(0, 6) if first else range(4, 7):
            trackio.log({"loss": float(step) if first else 10.0 + step}, step=step)
        trackio.finish()
    # Two variants with three seeds each: what `ablation import` is for.
    for variant, rate in (("base", 0.1), ("fast", 0.2)):
        for seed in range(3):
            config = {"lr": rate, "seed": seed}
            trackio.init(project="study", name=f"{variant}-{seed}", config=config, auto_log_gpu=False)
            for step in range(3):
                trackio.log({"acc": step * rate + seed / 100})
            trackio.finish()
    trackio.init(project="live", name="killed", config={"seed": 6}, auto_log_gpu=False)
    trackio.log({"loss": 0.0})
    time.sleep(2)
    # Somebody who looks at it, a dashboard say: trackio's connections are short, and the last one empties the log.
    looks = sqlite3.connect(FOLDER / "live.db")
    looks.execute("SELECT * FROM metrics").fetchall()
    trackio.log({"loss": 1.0})
    trackio.log({"loss": 2.0})
    time.sleep(2)
    expected = {"version": trackio.__version__}
    for project in ("grid", "other project", "study", "live"):
        expected[project] = {
            run["id"]: {
                "name": run["name"],
                "logs": SQLiteStorage.get_logs(project, run_id=run["id"]),
                "config": SQLiteStorage.get_run_config(project, run_id=run["id"]),
            }
            for run in SQLiteStorage.get_run_records(project)
        }
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1))
    os._exit(0)


if __name__ == "__main__":
    main()
