"""Stage `data`: prompts and teacher responses of all splits, once for all variants and seeds, and how long they are."""

import math
from pathlib import Path

import numpy as np

from trainers.atomic import write_json
from trainers.gad.config import GadConfig
from trainers.gad.rows import Row, read_teacher_rows, split_rows, write_rows
from trainers.policy.models import load_tokenizer
from trainers.policy.sources import asset_files, load_task
from trainers.policy.text import response_tokens, word_tokenizer
from trainers.runlog import read_json
from trainers.stage import Stage
from trainers.tasks.interface import write_problems

SPLITS = ("train", "dev", "test")
WORKED = "base.jsonl"  # flawed worked responses of a generated task, for a model from scratch
LENGTHS = "teacher_lengths.json"


def run(stage: Stage) -> None:
    """Write train.jsonl, dev.jsonl and test.jsonl; log and keep the token statistics of the teacher's responses."""
    config: GadConfig = stage.config
    model, source = asset_files(stage, "model"), asset_files(stage, "data_source")
    if config.task is None:
        if source is None:
            raise ValueError("task is null: the config key `data_source` must hold an asset")
        data = config.data
        rows = read_teacher_rows(_only_file(source))
        splits = split_rows(rows, train=data.train, dev=data.dev, test=data.test, seed=data.seed)
    else:
        splits = _generated(stage, config)
    for split in SPLITS:
        write_rows(stage.out / f"{split}.jsonl", splits[split])
    words = () if model is not None else load_task(config.task, None).words
    tokenizer = word_tokenizer(words) if model is None else load_tokenizer(model)
    train = [len(response_tokens(tokenizer, row.teacher_response)) for row in splits["train"]]
    lengths = length_statistics(train)
    write_json(stage.out / LENGTHS, lengths)
    stage.log.info("teacher responses of the training split, tokens: %s", lengths)
    stage.log_metrics(0, {f"rows/{split}": len(splits[split]) for split in SPLITS})
    stage.log_metrics(0, {f"teacher/length_{name}": value for name, value in lengths.items()})


def length_statistics(lengths: list[int]) -> dict[str, float]:
    """Return mean, p50, p95, p99 and max of numbers of tokens, end-of-sequence tokens included."""
    values = np.array(lengths)
    percentiles = {f"p{q}": float(np.percentile(values, q)) for q in (50, 95, 99)}
    return {"mean": float(values.mean()), **percentiles, "max": float(values.max())}


def teacher_lengths(folder: Path) -> dict[str, float]:
    """Return the statistics that the stage `data` left in `folder`."""
    found = read_json(folder / LENGTHS)
    if found is None:
        raise ValueError(f"{folder / LENGTHS}: missing or unreadable; run the stage `data` again")
    return found


def response_limit(config: GadConfig, lengths: dict[str, float]) -> int:
    """Return the longest response in tokens: as configured, else from the teacher's 99th percentile, rounded up."""
    given = config.sampling.max_response_length
    return math.ceil(lengths["p99"] * config.sampling.length_factor) if given is None else given


def _generated(stage: Stage, config: GadConfig) -> dict[str, list[Row]]:
    data = config.data
    sizes = {"warm": data.base, "train": data.train, "dev": data.dev, "test": data.test}
    problems = load_task(config.task, None).splits(sizes, data.seed)
    write_problems(stage.out / WORKED, problems["warm"])
    return {split: [Row.of_problem(problem) for problem in problems[split]] for split in SPLITS}


def _only_file(folder: Path) -> Path:
    found = sorted(path for path in folder.iterdir() if path.suffix in (".parquet", ".jsonl", ".json"))
    if len(found) != 1:
        raise ValueError(f"{folder}: expected one .parquet or .jsonl file, found {len(found)}")
    return found[0]
