"""Reader of Every Eval Ever's samples (instance_level_eval 0.2): <id>.jsonl or <id>_samples.jsonl.

An item is a sample, named by its `sample_id`; the evaluation's name is the subset. The metrics are `score` (the
default) and `is_correct`.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ablation.readers.sheet import Facts, ItemText, Sample, Sheet, Wanted, json_lines, read_beside, sample_sheets
from ablation.readers.tabular import first_row


def recognises(path: Path) -> bool:
    """Return whether the first row of a file has the keys that the schema of Every Eval Ever requires."""
    return {"schema_version", "evaluation_id", "sample_id", "evaluation"} <= first_row(path).keys()


def sheets(path: Path, wanted: Wanted) -> Iterator[Sheet]:
    """Yield a `Sheet` for each evaluation. Raises ConfigError if the file is invalid or lacks what `wanted` names."""
    means = read_beside(path.with_name(f"{path.stem.removesuffix('_samples')}.json"), {})
    read = partial(json_lines, path, _sample)
    yield from sample_sheets(path, wanted, read(), partial(_facts, means), read)


def _sample(row: dict[str, Any]) -> Sample:
    question, scored = row["input"], row["evaluation"]
    prompt = question.get("formatted") or "\n".join([question["raw"], *(question.get("choices") or ())])
    answers = [answer["extracted_value"] for answer in row["answer_attribution"] if answer.get("is_terminal")]
    text = ItemText(prompt, " | ".join(question["reference"]), " | ".join(answers))
    values = {"score": scored["score"], "is_correct": scored["is_correct"]}
    return Sample(str(row["evaluation_name"]), str(row["sample_id"]), values, text)


def _facts(means: dict[str, Any], subset: str, metric: str) -> Facts:
    results = [result for result in means.get("evaluation_results", ()) if result.get("evaluation_name") == subset]
    smaller = results[0].get("metric_config", {}).get("lower_is_better") if results and metric == "score" else None
    model = means.get("model_info", {}).get("id")
    return Facts(
        tool="Every Eval Ever",
        larger_is_better=None if smaller is None else not smaller,
        settings={"model": model} if model else {},
    )
