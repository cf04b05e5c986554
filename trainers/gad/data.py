"""Stage `data` of study `gad`: prompts, teacher responses and their lengths, once for all variants and seeds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ablation.contract.atomic import write_json
from ablation.contract.reading import read_json
from trainers.assets import files, only_file
from trainers.gad.config import GadConfig
from trainers.gad.rows import read_teacher_rows, split_rows
from trainers.policy.models import load_tokenizer
from trainers.policy.sources import asset_files, load_task
from trainers.policy.text import prompt_tokens, response_tokens, word_tokenizer
from trainers.running.stage import Stage
from trainers.tasks.interface import Problem, bucket, write_problems


# Random numbers and rows depend on the step alone, so that checkpoints do not need the states of generators.
def generator(purpose: str, seed: int, step: int) -> torch.Generator:
    """Return a random generator whose seed depends on the three arguments."""
    return torch.Generator().manual_seed(bucket(f"{purpose} {seed} {step}", 2**62))


def number_of_steps(rows: int, batch_size: int, epochs: int, max_steps: int | None) -> int:
    """Return the number of steps of `epochs` passes over `rows` rows, but at most `max_steps`."""
    steps = math.ceil(epochs * rows / batch_size)
    return steps if max_steps is None else min(steps, max_steps)


def rows_of_step(rows: int, batch_size: int, step: int, *, purpose: str, seed: int) -> list[int]:
    """Return the `batch_size` row numbers of a step in repeated passes over all rows, each in its own random order."""
    first = step * batch_size
    chosen: list[int] = []
    while len(chosen) < batch_size:
        epoch, place = divmod(first + len(chosen), rows)
        order = torch.randperm(rows, generator=generator(purpose, seed, epoch)).tolist()
        chosen += order[place : place + batch_size - len(chosen)]
    return chosen


SPLITS = ("train", "dev", "test")
WORKED = "base.jsonl"  # flawed worked responses, with which a model from scratch is trained
LENGTHS = "teacher_lengths.json"


def run(stage: Stage) -> None:
    """Write the rows of each split, and the length statistics of the teacher's responses in the training split."""
    config: GadConfig = stage.config
    model = asset_files(stage, "model")
    words = () if model is not None else load_task(stage).words
    tokenizer = word_tokenizer(words or ()) if model is None else load_tokenizer(model)
    splits = _of_files(stage, tokenizer) if config.task is None else _generated(stage, config)
    for split, rows in splits.items():
        write_problems(stage.out / f"{split}.jsonl", rows)
        stage.log_metrics(0, {f"rows/{split}": len(rows)})
    lengths = length_statistics([len(response_tokens(tokenizer, row.answer)) for row in splits["train"]])
    stage.log.info("lengths of the teacher's responses in tokens: %s", lengths)
    write_json(stage.out / LENGTHS, lengths)
    stage.log_metrics(0, {f"teacher/length_{name}": value for name, value in lengths.items()})


def length_statistics(lengths: list[int]) -> dict[str, float]:
    """Return mean, p50, p95, p99 and max of response lengths in tokens."""
    values = np.array(lengths)
    percentiles = {f"p{q}": float(np.percentile(values, q)) for q in (50, 95, 99)}
    return {"mean": float(values.mean()), **percentiles, "max": float(values.max())}


def teacher_lengths(folder: Path) -> dict[str, float]:
    """Return the length statistics that the stage `data` wrote to `folder`, in tokens with the end token."""
    lengths: dict[str, float] = read_json(folder / LENGTHS)
    return lengths


def response_limit(config: GadConfig, lengths: dict[str, float]) -> int:
    """Return the length of the longest response in training, in tokens, from the settings under `sampling`.

    lengths: statistics of the teacher's responses; p99 is the limit if max_response_length is null.
    """
    configured = config.sampling.max_response_length
    return math.ceil((lengths["p99"] if configured is None else configured) * config.sampling.length_factor)


def _generated(stage: Stage, config: GadConfig) -> dict[str, list[Problem]]:
    data = config.data
    sizes: dict[str, Any] = {"warm": data.base, "train": data.train, "dev": data.dev, "test": data.test}
    problems = load_task(stage).splits(sizes, data.seed)
    write_problems(stage.out / WORKED, problems["warm"])
    return {split: problems[split] for split in SPLITS}


def _of_files(stage: Stage, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[Problem]]:
    """Return the rows of the data sources by split, and log how many are left out."""
    data, counts = stage.config.data, {"duplicates": 0, "too_long": 0}
    rows = _usable(stage, tokenizer, stage.inputs["data_source"], counts)
    validation = None
    if "validation_source" in stage.inputs:
        validation = _usable(stage, tokenizer, stage.inputs["validation_source"], counts)
    splits = split_rows(rows, train=data.train, dev=data.dev, test=data.test, seed=data.seed, validation=validation)
    held_out = {row.id for split in ("dev", "test") for row in splits[split]}
    counts["held_out"] = 0 if validation is None else sum(row.id in held_out for row in rows)
    for name, problem in (
        ("duplicates", "their chats repeat those of earlier rows"),
        ("too_long", "their prompts are longer than data.max_prompt_length"),
        ("held_out", "their chats are in the development or test split"),
    ):
        if counts[name]:
            stage.log.warning("rows are left out (%d), because %s", counts[name], problem)
    stage.log_metrics(0, {f"rows/{name}": count for name, count in counts.items()})
    return splits


def _usable(stage: Stage, tokenizer: PreTrainedTokenizerBase, asset: Path, counts: dict[str, int]) -> list[Problem]:
    """Return the usable rows of a data source, and add the numbers of unusable rows to `counts`."""
    rows, duplicates = read_teacher_rows(only_file(files(asset)))
    counts["duplicates"] += duplicates
    longest = stage.config.data.max_prompt_length
    if longest is None:
        return rows
    short = [row for row in rows if len(prompt_tokens(tokenizer, row)) <= longest]
    counts["too_long"] += len(rows) - len(short)
    return short
