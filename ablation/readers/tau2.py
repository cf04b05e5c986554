"""Reader of tau2-bench's results: a list of simulated conversations with `task_id`, `trial` and a reward.

The domain is the subset, a task is an item, and trials are its samples. A simulation without a reward, or with an
infrastructure error, has no value, because the benchmark leaves it out, too. If the simulations are in a folder
`simulations/`, the results hold their index; until the run has ended, the files in the folder are read instead.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablation.contract.errors import ConfigError
from ablation.readers.sheet import Facts, Sample, Sheet, Wanted, intact, json_start, read_evaluation, sample_sheets

_NOT_JUDGED = "infrastructure_error"


def recognises(path: Path) -> bool:
    """Return whether a file begins like results of tau2-bench."""
    start = json_start(path, 1 << 16)
    return all(key in start for key in (b'"info"', b'"num_trials"', b'"agent_info"'))


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield the run's rewards as a `Sheet`. Raises ConfigError if the file is invalid or lacks what `wanted` names."""
    content = read_evaluation(path)
    with intact(path):
        info = content["info"]
        agent = info["agent_info"]
        domain = str(info["environment_info"]["domain_name"])
        settings = {"agent": agent["implementation"], "model": agent["llm"], "user": info["user_info"]["llm"]}
        rows = content.get("simulations") or content.get("simulation_index")
        if not rows:  # the run has not ended or was stopped, so it has no index yet
            rows = [read_evaluation(file) for file in sorted(path.with_name("simulations").glob("*.json"))]
        samples = [_sample(domain, row) for row in rows]
    if not samples:
        raise ConfigError(path, "simulations", None, "is empty", "run the benchmark again")
    facts = Facts(tool="tau2-bench", larger_is_better=True, settings=settings)
    yield from sample_sheets(path, wanted, samples, lambda *_: facts)


def _sample(domain: str, row: dict[str, Any]) -> Sample:
    reward = row["reward"] if "reward" in row else (row.get("reward_info") or {}).get("reward")
    reason = row.get("termination_reason")
    error = str(reason or "the simulation has no reward") if reward is None or reason == _NOT_JUDGED else None
    return Sample(
        domain, str(row["task_id"]), {} if error else {"reward": reward}, repeat=str(row["trial"]), error=error
    )
