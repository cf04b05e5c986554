"""Runs of HELM: per_instance_stats.json and the files next to it. An item is an instance.

Perturbed copies of instances are left out; trials (`train_trial_index`) are repeats, whose mean counts. Prompts are in
instances.json, which `helm-summarize` writes, else in scenario_state.json. Formats follow the classes PerInstanceStats,
Stat, Instance, ScenarioState and RunSpec of crfm-helm.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_json
from ablation.readers import tabular
from ablation.readers.sheet import (
    Facts,
    ItemText,
    Sheet,
    Wanted,
    add_value,
    asked,
    digest,
    mean_over_repeats,
    refuse_options,
    short,
)

FILES = ("per_instance_stats.json",)
_OF_THE_MODEL = ("model", "model_deployment")
_STATS = f"""(SELECT instance_id, train_trial_index AS trial, unnest(stats) AS stat FROM read_json({{file}},
    format = 'array', maximum_object_size = {tabular.LARGEST_ROW}, columns = {{'instance_id': 'VARCHAR',
    'perturbation': 'JSON', 'train_trial_index': 'BIGINT', 'stats': 'STRUCT("name" STRUCT("name" VARCHAR,
    split VARCHAR, perturbation JSON), mean DOUBLE)[]'}}) WHERE perturbation IS NULL)"""


def recognises(path: Path) -> bool:
    """Whether the file has HELM's name."""
    return path.name in FILES


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Read one run: the statistic that `--metric` names, of the test split where there is one.

    Raises:
        ConfigError: no metric was named, or there is none of this name; or a file is damaged.
    """
    names_none, has_none = "a run of HELM names no clusters", "a run of HELM has no filters"
    refuse_options(path, wanted, cluster=names_none, filter=has_none)
    spec = _beside(path, "run_spec.json", {})
    task = _task(str(spec.get("name", path.parent.name)))
    if not wanted.wants(task):
        return
    names = tabular.query(path, f"SELECT DISTINCT stat.name.name AS name FROM {_STATS} ORDER BY 1")["name"]
    metric = wanted.metric or ""
    if metric not in names:
        problem = "there is none of this name" if wanted.metric else "HELM keeps many numbers: one must be named"
        raise ConfigError(path, "metric", wanted.metric, problem, f"--metric and one of {', '.join(map(str, names))}")
    rows = tabular.query(
        path,
        f"""SELECT instance_id, trial, stat.name.split AS split, stat.mean AS value FROM {_STATS}
            WHERE stat.name.name = ? AND stat.name.perturbation IS NULL""",
        [metric],
    )
    splits = [split or "" for split in rows["split"]]
    chosen = "test" if "test" in splits else next(iter(splits), "")
    values: dict[str, dict[Any, float]] = {}
    for item, trial, split, value in zip(rows["instance_id"], rows["trial"], splits, rows["value"], strict=True):
        if split == chosen:
            add_value(path, values, str(item), int(trial), float(value))
    _refuse_gaps(path, metric, chosen, values)
    items, means, repeats = mean_over_repeats(path, metric, values)
    words = _words(path)
    adapter = {key: value for key, value in spec.get("adapter_spec", {}).items() if key not in _OF_THE_MODEL}
    how = json.dumps(adapter, sort_keys=True)
    said = {
        "prompt": {item: digest(how, words[item].asked) for item in items if item in words},
        "target": {item: digest(words[item].wanted) for item in items if item in words},
    }
    settings = {key: spec.get("adapter_spec", {}).get(key) for key in _OF_THE_MODEL}

    def texts(which: Sequence[str]) -> dict[str, ItemText]:
        return {item: words[item] for item in which if item in words}

    facts = Facts(settings={k: v for k, v in settings.items() if v}, metrics=(metric,), repeats=repeats)
    yield Sheet(path, task, metric, "", items, means, None, asked(items, said), {}, facts, texts)


def _refuse_gaps(path: Path, metric: str, split: str, values: Mapping[str, Mapping[int, float]]) -> None:
    """Refuse a statistic that only some instances have: HELM leaves out NaN, which would drop items."""
    rows = tabular.query(
        path, f"SELECT DISTINCT instance_id, trial, stat.name.split AS split FROM {_STATS} ORDER BY ALL"
    )
    for item, trial, of in zip(rows["instance_id"], rows["trial"], rows["split"], strict=True):
        if (of or "") == split and int(trial) not in values.get(str(item), {}):
            problem = f"item {short(str(item))} has none (trial {trial}): HELM leaves out what is not a number"
            raise ConfigError(path, metric, None, problem, "repair the evaluation; no item may be dropped")


def _beside(path: Path, name: str, otherwise: Any) -> Any:
    try:
        return read_json(path.with_name(name), 256 << 20)
    except FileNotFoundError:
        return otherwise
    except (OSError, ValueError) as error:
        raise ConfigError(path.with_name(name), "", None, f"cannot be read ({error})", "copy the run again") from None


def _task(name: str) -> str:
    """The run's name without the model, which is the part that differs between two runs."""
    scenario, sign, arguments = name.partition(":")
    kept = [part for part in arguments.split(",") if part.split("=")[0] not in _OF_THE_MODEL]
    return f"{scenario}{sign}{','.join(kept)}".rstrip(":")


def _words(path: Path) -> dict[str, ItemText]:
    """Input and right answers of each instance that is not a perturbed copy."""
    instances = _beside(path, "instances.json", None)
    if instances is None:
        instances = [state["instance"] for state in _beside(path, "scenario_state.json", {}).get("request_states", ())]
    found: dict[str, ItemText] = {}
    for instance in instances:
        item = str(instance.get("id"))
        if not instance.get("perturbation") and item not in found:
            right = [r["output"]["text"] for r in instance.get("references", ()) if "correct" in r.get("tags", ())]
            found[item] = ItemText(str(instance["input"].get("text", "")), " | ".join(right))
    return found
