"""Runs of HELM: per_instance_stats.json and the files next to it. An item is an instance.

Perturbed copies of instances are left out; trials (`train_trial_index`) are repeats, whose mean counts. Prompts are in
instances.json, which `helm-summarize` writes, else in scenario_state.json. Formats follow the classes PerInstanceStats,
Stat, Instance, ScenarioState and RunSpec of crfm-helm.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ablation.contract.errors import ConfigError
from ablation.readers import tabular
from ablation.readers.sheet import Facts, ItemText, Sample, Sheet, Wanted, read_beside, sample_sheets, short

FILES = ("per_instance_stats.json",)
_OF_THE_MODEL = ("model", "model_deployment")
_STATS = f"""(
    SELECT instance_id, coalesce(train_trial_index, 0) AS trial, row_number() OVER () AS row, unnest(stats) AS stat
    FROM read_json({{file}}, format = 'array', maximum_object_size = {tabular.LARGEST_ROW}, columns = {{
        'instance_id': 'VARCHAR', 'perturbation': 'JSON', 'train_trial_index': 'BIGINT', 'stats': 'STRUCT("name" STRUCT(
        "name" VARCHAR, split VARCHAR, perturbation JSON), mean DOUBLE)[]'}}) WHERE perturbation IS NULL)"""
_NAMES = f"SELECT DISTINCT stat.name.name AS name FROM {_STATS} WHERE stat.name.perturbation IS NULL ORDER BY 1"
_VALUES = f"""SELECT instance_id, trial, split, unnest(coalesce(means, [NULL])) AS value FROM (
    SELECT instance_id, trial, coalesce(stat.name.split, '') AS split, min(row) AS row,
        list(stat.mean) FILTER (stat.name.name = ? AND stat.name.perturbation IS NULL) AS means
    FROM {_STATS} GROUP BY ALL) ORDER BY row, split"""


def recognises(path: Path) -> bool:
    """Whether the file has HELM's name."""
    return path.name in FILES


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Read one run: the statistic that `--metric` names, of the test split where there is one.

    An instance without the statistic is refused: HELM leaves out NaN. Raises ConfigError if no metric was named, or
    there is none of this name, and as `sample_sheets`.
    """
    spec = read_beside(path.with_name("run_spec.json"), {})
    adapter = spec.get("adapter_spec", {})
    task = _task(str(spec.get("name", path.parent.name)))
    if not wanted.wants(task):
        return
    names = tabular.query(path, _NAMES)["name"]
    metric = wanted.metric or ""
    if metric not in names:
        problem = "there is none of this name" if wanted.metric else "HELM keeps many numbers: one must be named"
        raise ConfigError(path, "metric", wanted.metric, problem, f"--metric and one of {', '.join(map(str, names))}")
    words = _words(path)
    how = json.dumps({key: value for key, value in adapter.items() if key not in _OF_THE_MODEL}, sort_keys=True)

    def read() -> Iterator[Sample]:
        rows = tabular.query(path, _VALUES, [metric])
        lacking = np.isnan(rows["value"])
        splits = rows["split"][~lacking]  # of those that have the statistic
        chosen = "test" if "test" in splits else next(iter(splits), "")
        for item, trial, split, value, lacks in zip(*rows.values(), lacking, strict=True):
            if split != chosen:
                continue
            if lacks:
                problem = f"item {short(str(item))} has none (trial {trial}): HELM leaves out what is not a number"
                raise ConfigError(path, metric, None, problem, "repair the evaluation; no item may be dropped")
            asked = words.get(str(item), ItemText())
            yield Sample(task, str(item), {metric: float(value)}, asked, int(trial), (how,))

    def texts(task: str, items: Sequence[str]) -> dict[str, ItemText]:
        return {item: words[item] for item in items if item in words}

    settings = {key: adapter[key] for key in _OF_THE_MODEL if adapter.get(key)}
    yield from sample_sheets(path, wanted, read(), texts, lambda task, metric: Facts(settings=settings))


def _task(name: str) -> str:
    """The run's name without the model, which is the part that differs between two runs."""
    scenario, sign, arguments = name.partition(":")
    kept = [part for part in arguments.split(",") if part.split("=")[0] not in _OF_THE_MODEL]
    return f"{scenario}{sign}{','.join(kept)}".rstrip(":")


def _words(path: Path) -> dict[str, ItemText]:
    """Input and right answers of each instance that is not a perturbed copy."""
    instances = read_beside(path.with_name("instances.json"), None)
    if instances is None:
        state = read_beside(path.with_name("scenario_state.json"), {})
        instances = [request["instance"] for request in state.get("request_states", ())]
    found: dict[str, ItemText] = {}
    for instance in instances:
        item = str(instance.get("id"))
        if not instance.get("perturbation") and item not in found:
            right = [r["output"]["text"] for r in instance.get("references", ()) if "correct" in r.get("tags", ())]
            found[item] = ItemText(str(instance["input"].get("text", "")), " | ".join(right))
    return found
