"""Reader of Harbor and Terminal-Bench: a job's folder with a folder for each trial.

    <job>/<trial>/result.json                a trial of Harbor: `verifier_result.rewards`, `exception_info`
    <run>/<task>/<trial>/results.json        a trial of Terminal-Bench 1: `is_resolved`, `failure_mode`
    <job>/result.json, <run>/results.json    a summary that lists trials; it is read for those without a folder

A job is an evaluation, a task is an item, and the trials of a task are its samples. A trial counts if the verifier gave
a reward, even if the agent ran out of time. A trial without a reward or a result, or whose `reward_valid` is false
(Harbor 0.26), has no value.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from ablation.contract.errors import ConfigError
from ablation.readers.sheet import Facts, Sample, Sheet, Wanted, intact, json_start, read_evaluation, sample_sheets

_NAMES = {"result.json": (b'"trial_name"', b'"task_name"'), "results.json": (b'"trial_name"', b'"is_resolved"')}
_LIST = re.compile(rb'\s*\{\s*("id": "[^"]*",\s*)?"results": \[\s*\{[^{}]*"trial_name"')


def is_part(path: Path) -> bool:
    """Return whether a file is the result of a trial or the summary of a job; both have the same name."""
    return _holds(path) != ""


def whole(path: Path) -> Path:
    """Return the folder of the job that a result belongs to."""
    above = 0 if _holds(path) == "job" else 1 if path.name == "result.json" else 2
    return path.parents[above]


def _holds(path: Path) -> Literal["trial", "job", ""]:
    if path.name not in _NAMES:
        return ""
    start = json_start(path, 1 << 16)
    if b'"n_total_trials"' in start or _LIST.match(start):
        return "job"
    return "trial" if all(key in start for key in _NAMES[path.name]) else ""


def _summary(job: Path) -> Path | None:
    return next((file for name in _NAMES if (file := job / name).is_file() and _holds(file) == "job"), None)


def _trials(job: Path) -> list[Path]:
    files = sorted([*job.glob("*/result.json"), *job.glob("*/*/results.json")])
    return [file for file in files if _holds(file) == "trial"]


def recognises(path: Path) -> bool:
    """Return whether a path is the folder of a job of Harbor or Terminal-Bench."""
    return path.is_dir() and (_summary(path) is not None or bool(_trials(path)))


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield a `Sheet` for each subset; the subset of a task is its `source`.

    Raises ConfigError if a result is invalid or if the job lacks what `wanted` names.
    """
    trials = [(file, read_evaluation(file)) for file in _trials(path)]
    done = {file.parent for file, _ in trials}
    if (summary := _summary(path)) is not None:  # published ones may be all that is left of some trials
        with intact(summary):
            content = read_evaluation(summary)
            names = {trial["trial_name"] for _, trial in trials}
            listed = content.get("trial_results") or content.get("results") or ()
            trials += [(summary, trial) for trial in listed if trial["trial_name"] not in names]
    samples: list[Sample] = []
    agents: list[dict[str, str]] = []
    for file, trial in trials:
        with intact(file):
            samples.append(_sample(trial))
            agents.append(_agent(trial))
    begun = {file.parent for file in path.glob("*/config.json")} - done
    samples += [_unfinished(folder, samples) for folder in sorted(begun)]
    if not samples:
        raise ConfigError(path, "", None, "holds no trial with a result", "run the job to completion")
    settings = agents[0] if all(agent == agents[0] for agent in agents) else {}
    facts = Facts(tool="Harbor", larger_is_better=True, settings=settings)
    yield from sample_sheets(path, wanted, samples, lambda *_: facts)


def _sample(trial: dict[str, Any]) -> Sample:
    if "is_resolved" in trial:
        resolved = trial["is_resolved"]
        values = {} if resolved is None else {"resolved": resolved}
        error = None if values else f"failure mode {trial.get('failure_mode')}"
        return Sample("all", str(trial["task_id"]), values, repeat=str(trial["trial_name"]), error=error)
    rewards = (trial.get("verifier_result") or {}).get("rewards") or {}
    valid = trial.get("reward_valid") is not False
    values = {name: rewards[name] for name in sorted(rewards, key=lambda name: name != "reward") if valid}
    broken = trial.get("exception_info") or {}
    why = "the verifier gave no reward" if valid else "reward_valid is false"
    error = None if values else str(broken.get("exception_type", why))
    subset = str(trial.get("source") or "all")
    return Sample(subset, str(trial["task_name"]), values, repeat=str(trial["trial_name"]), error=error)


def _agent(trial: dict[str, Any]) -> dict[str, str]:
    agent = trial.get("agent_info")
    model = agent.get("model_info") if isinstance(agent, dict) else None
    named = {"agent": agent, "model": model}
    return {key: str(entry["name"]) for key, entry in named.items() if isinstance(entry, dict) and entry.get("name")}


def _unfinished(folder: Path, samples: list[Sample]) -> Sample:
    """Return a `Sample` without a value for a trial without a result, whose task is known from the folder's name."""
    task = folder.name.rpartition("__")[0]
    known = [sample for sample in samples if task and sample.item.startswith(task)]
    subset, item = (known[0].subset, known[0].item) if known else ("all", task or folder.name)
    return Sample(subset, item, {}, repeat=folder.name, error="the trial has no result.json")
