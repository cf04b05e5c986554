"""Writes both stores of the real MLflow: `python mlflow_stores.py OUT`. Those in ../written/mlflow.tar.gz: 3.17.2.

OUT/mlflow.db and OUT/mlruns hold the same runs; OUT/expected.json is what MlflowClient says of them: per store and run
its description, and of each metric its history as [timestamp, step, value].
"""

import json
import os
import sys
from pathlib import Path

os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "LOGNAME": "user", "MLFLOW_DISABLE_TELEMETRY": "true"}
import mlflow
from mlflow.entities import Metric, Param, RunStatus, RunTag, ViewType

ODD = "odd/name with space.-:_ä"
START = 1_790_000_000_000


def make(client):
    experiment = client.create_experiment("grid", artifact_location="artifacts")
    gone = client.create_experiment("gone", artifact_location="artifacts")

    def run(name, place=experiment, at=0, **tags):
        tags = {key.replace("__", "."): value for key, value in tags.items()}
        tags |= {"mlflow.user": "user"}
        return client.create_run(place, start_time=START + at, tags=tags, run_name=name).info.run_id

    parent = run("sweep", seed="7")
    client.log_batch(
        parent,
        params=[
            Param("lr", str(1e-3)),
            Param("optim.name", "adam"),
            Param("flag", str(True)),
            Param("none", str(None)),
            Param("betas", str([0.9, 0.99])),
            Param("note", "two\nlines of 'text'"),
        ],
        tags=[RunTag("note", "ä")],
    )
    for i in range(5):
        client.log_metric(parent, "loss", 1 / (i + 1), timestamp=START + i, step=i)
    client.log_metric(parent, "loss", 99.0, timestamp=START + 10, step=2)  # again, and less after it
    client.log_metric(parent, "loss", 0.125, timestamp=START + 11, step=2)
    values = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf"), "zero": 0.0, ODD: 2.5}
    batch = [Metric(key, value, START + 20, 3) for key, value in values.items()]
    client.log_batch(parent, metrics=[*batch, Metric("system/cpu_utilization_percentage", 50.0, START + 20, 0)])
    for i in range(4):
        client.log_metric(parent, "no step", 1 / (i + 1), timestamp=START + 30 + i)
    client.log_metric(parent, "once", 4.0, timestamp=START + 40)
    client.log_metric(parent, "back", 1.0, timestamp=START + 50, step=-1)
    client.set_terminated(parent, "FINISHED", end_time=START + 100)

    child = run("child", at=1, mlflow__parentRunId=parent)
    client.log_param(child, "train/seed", 12)
    client.log_metric(child, "loss", 3.0, timestamp=START, step=0)
    client.set_terminated(child, RunStatus.to_string(RunStatus.FAILED), end_time=START + 100)
    grandchild = run("grandchild", at=2, mlflow__parentRunId=child)
    client.log_metric(grandchild, "loss", 4.0, timestamp=START, step=0)

    deleted = run("deleted", at=3)
    client.log_metric(deleted, "loss", 5.0, timestamp=START, step=0)
    client.delete_run(deleted)
    lost = run("of a deleted experiment", place=gone, at=4)
    client.log_metric(lost, "loss", 6.0, timestamp=START, step=0)
    client.delete_experiment(gone)
    return experiment


def study(client):
    """Two variants with three seeds each, in a run that holds them: what `ablation import` is for."""
    experiment = client.create_experiment("study", artifact_location="artifacts")
    sweep = client.create_run(experiment, start_time=START, run_name="sweep").info.run_id
    for variant, rate in (("base", 0.1), ("fast", 0.2)):
        for seed in range(3):
            tags = {"mlflow.parentRunId": sweep, "mlflow.user": "user"}
            run = client.create_run(experiment, START + 1, tags, run_name=f"{variant}-{seed}").info.run_id
            client.log_batch(run, params=[Param("lr", str(rate)), Param("seed", str(seed))])
            for step in range(3):
                client.log_metric(run, "acc", step * rate + seed / 100, timestamp=START + step, step=step)
            client.set_terminated(run, end_time=START + 100)
    client.set_terminated(sweep, end_time=START + 100)


def told(client, experiment):
    runs = {}
    for run in client.search_runs([experiment], run_view_type=ViewType.ALL):
        key = run.info.run_id
        history = {name: client.get_metric_history(key, name) for name in run.data.metrics}
        runs[key] = {
            "name": run.info.run_name,
            "stage": run.info.lifecycle_stage,
            "params": run.data.params,
            "history": {name: [[m.timestamp, m.step, m.value] for m in found] for name, found in history.items()},
        }
    return runs


def main(out):
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    expected = {"version": mlflow.__version__}
    for store, uri in {"mlflow.db": "sqlite:///mlflow.db", "mlruns": "mlruns"}.items():
        client = mlflow.MlflowClient(tracking_uri=uri)
        expected[store] = told(client, make(client))
    Path("study").mkdir(exist_ok=True)
    study(mlflow.MlflowClient(tracking_uri="sqlite:///study/mlflow.db"))
    Path("expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
