"""Harbor and Terminal-Bench: a job's folder with a folder for each trial.

    <job>/<trial>/result.json                of Harbor: `verifier_result.rewards`, `exception_info`
    <run>/<task>/<trial>/results.json        of Terminal-Bench 1: `is_resolved`, `failure_mode`

The evaluation is the job; an item is a task, and its attempts are samples. A trial that the verifier rewarded counts,
even if the agent ran out of time; one without a reward, or without a result, was not judged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.config.formats import FORMATS
from ablation.contract.errors import ConfigError
from ablation.readers.sheet import Facts, Sample, Sheet, Wanted, no_texts, read_evaluation, sample_sheets

FILES = FORMATS["harbor"].patterns
_NAMES = {"result.json": (b'"trial_name"', b'"task_name"'), "results.json": (b'"trial_name"', b'"is_resolved"')}


def is_part(path: Path) -> bool:
    """Whether a file is the result of one trial; a job's own has the same name."""
    if path.name not in _NAMES:
        return False
    with path.open("rb") as handle:
        start = handle.read(1 << 16)
    return all(key in start for key in _NAMES[path.name]) and b'"results": [' not in start


def whole(path: Path) -> Path:
    """Return the folder of the job that a trial is a part of."""
    return path.parents[1 if path.name == "result.json" else 2]


def _trials(job: Path) -> list[Path]:
    return sorted([*job.glob("*/result.json"), *job.glob("*/*/results.json")])


def recognises(path: Path) -> bool:
    """Whether a path is the folder of a job."""
    return path.is_dir() and any(map(is_part, _trials(path)))


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Read the trials of a job. Raises ConfigError for a damaged result, and as `sample_sheets`."""
    trials = [(file, read_evaluation(file)) for file in _trials(path) if is_part(file)]
    samples = []
    for file, content in trials:
        try:
            samples.append(_sample(content))
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(file, "", None, f"is damaged ({error!r})", "copy it again") from None
    done = {file.parent for file, _ in trials}
    begun = {file.parent for file in path.glob("*/config.json")} - done
    samples += [_unfinished(folder, samples) for folder in sorted(begun)]
    agents = [_agent(content) for _, content in trials]
    settings = agents[0] if all(agent == agents[0] for agent in agents) else {}
    facts = Facts(tool="Harbor", larger_is_better=True, settings=settings)
    yield from sample_sheets(path, wanted, samples, lambda _, items: no_texts(items), lambda *_: facts)


def _sample(trial: dict[str, Any]) -> Sample:
    if "is_resolved" in trial:
        resolved = trial["is_resolved"]
        values = {} if resolved is None else {"resolved": resolved}
        error = None if values else f"failure mode {trial.get('failure_mode')}"
        return Sample("all", str(trial["task_id"]), values, repeat=str(trial["trial_name"]), error=error)
    rewards = (trial.get("verifier_result") or {}).get("rewards") or {}
    values = {name: rewards[name] for name in sorted(rewards, key=lambda name: name != "reward")}
    broken = trial.get("exception_info") or {}
    error = None if values else str(broken.get("exception_type", "the verifier gave no reward"))
    subset = str(trial.get("source") or "all")
    return Sample(subset, str(trial["task_name"]), values, repeat=str(trial["trial_name"]), error=error)


def _agent(trial: dict[str, Any]) -> dict[str, str]:
    """Return the names of agent and model, as far as a trial says them."""
    agent = trial.get("agent_info")
    model = agent.get("model_info") if isinstance(agent, dict) else None
    named = {"agent": agent, "model": model}
    return {key: str(of["name"]) for key, of in named.items() if isinstance(of, dict) and of.get("name")}


def _unfinished(folder: Path, samples: list[Sample]) -> Sample:
    """Return the sample of a trial without a result; its folder begins with the name of the task, which may be cut."""
    task = folder.name.rpartition("__")[0]
    known = [sample for sample in samples if task and sample.item.startswith(task)]
    subset, item = (known[0].subset, known[0].item) if known else ("all", task or folder.name)
    return Sample(subset, item, {}, repeat=folder.name, error="the trial has no result.json")
