"""Measure the CPU seconds that a tracker takes to log 400,000 points: 40,000 steps of ten metrics, one call per step.

    python benchmarks/points.py ours
    .venv-peers/trackio/bin/python benchmarks/points.py trackio        # after `make peers`; also wandb, mlflow
    python benchmarks/points.py aim                                    # in an environment with aim

Each tracker logs offline to a temporary folder and ends its run as its documentation says, so that the points can be
queried. The time includes child processes. `mlflow` gets a batch of a hundred steps per call, its fastest way.
"""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

STEPS, NAMES = 40_000, [f"train/m{number}" for number in range(10)]


def points() -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each step with its values by metric."""
    for step in range(STEPS):
        yield step, {name: 1.0 / (1 + step + number) for number, name in enumerate(NAMES)}


def ours(folder: Path) -> None:
    """Log as a stage of this project does, and read the points into a database as `collect` does."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import duckdb

    from ablation.runner.runlog import Metrics
    from ablation.store.database import SCHEMA
    from ablation.store.shards import insert_table, read_shard

    metrics = Metrics(folder / "metrics.parquet")
    for step, values in points():
        metrics.add(step, values)
    metrics.close()
    with duckdb.connect(str(folder / "tracker.duckdb")) as connection:
        connection.execute(SCHEMA)
        insert_table(connection, "metrics", read_shard(folder / "metrics.parquet", "metrics"))
        [totals] = connection.sql("SELECT count(*), sum(step) FROM metrics").fetchall()
    assert totals == (STEPS * len(NAMES), len(NAMES) * sum(range(STEPS)))


def trackio(folder: Path) -> None:
    """Log to trackio's local database."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio as peer

    peer.init(project="points", name="run")
    for step, values in points():
        peer.log(values, step=step)
    peer.finish()


def wandb(folder: Path) -> None:
    """Log in wandb's offline mode."""
    import wandb as peer

    run = peer.init(mode="offline", dir=str(folder), project="points")
    for step, values in points():
        run.log(values, step=step)
    run.finish()


def mlflow(folder: Path) -> None:
    """Log to an SQLite database with MLflow."""
    import mlflow as peer
    from mlflow.entities import Metric

    peer.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    client, rows = peer.MlflowClient(), list(points())
    run = client.create_run(client.create_experiment("points")).info.run_id
    for start in range(0, STEPS, 100):
        batch = [
            Metric(name, value, 0, step) for step, point in rows[start : start + 100] for name, value in point.items()
        ]
        client.log_batch(run, metrics=batch)
    client.set_terminated(run)


def aim(folder: Path) -> None:
    """Log to a local repository of aim, without system metrics."""
    import aim as peer

    run = peer.Run(repo=str(folder), experiment="points", system_tracking_interval=None)
    for step, values in points():
        run.track(values, step=step)
    run.close()


TRACKERS: dict[str, Callable[[Path], None]] = {of.__name__: of for of in (ours, trackio, wandb, mlflow, aim)}


def main() -> None:
    """Log with one tracker and print its CPU seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracker", choices=TRACKERS)
    chosen = parser.parse_args().tracker
    with tempfile.TemporaryDirectory() as folder:
        TRACKERS[chosen](Path(folder))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{chosen}: {sum(each.ru_utime + each.ru_stime for each in used):.1f} CPU seconds")


if __name__ == "__main__":
    main()
