"""Stage `candidates` of study `demonstrations`: propose sequences for the training queries and score them, once.

With the config key `offline` the scored sequences come from a legacy JSON file instead.
"""

from pathlib import Path
from typing import Any

import torch

from trainers.assets import files
from trainers.demonstrations.in_context import load_in_context_model, one_file, score_pointers
from trainers.demonstrations.offline import FILE, import_json, write_candidates
from trainers.demonstrations.prepared import Prepared, load_prepared
from trainers.demonstrations.proposals import propose, similarities
from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Write `candidates.parquet`, one row per (query, sequence), and log what the sequences are like."""
    prepared = load_prepared(stage.inputs["embed"])
    if "offline" in stage.inputs:
        rows = _imported(one_file(files(stage.inputs["offline"]), (".json",)), prepared, stage.config.shots)
    else:
        rows = _scored(stage, prepared)
    write_candidates(stage.out / FILE, rows)
    stage.log.info("%d sequences", len(rows))


def _imported(path: Path, prepared: Prepared, shots: int) -> list[dict[str, Any]]:
    rows = import_json(path, prepared.candidates, shots)
    known = {prepared.names[number] for number in prepared.splits["train"]}
    for number, row in enumerate(rows):
        if row["query"] not in known:
            raise ValueError(f"{path}, row {number}: query {row['query']!r} is not a training query of this task")
    return rows


def _scored(stage: Stage, prepared: Prepared) -> list[dict[str, Any]]:
    settings, shots = stage.config.proposals, stage.config.shots
    model = load_in_context_model(stage)
    numbers = prepared.numbers("train")
    pointers, logps, methods = propose(similarities(*prepared.of(numbers)), shots, settings)
    count = len(methods)
    flat, repeated = pointers.flatten(0, 1), numbers.repeat_interleave(count)
    scores = score_pointers(
        model, repeated, flat, stage.config.score_batch, lambda done, total: stage.progress(done, total, "sequences")
    )
    nothing = torch.zeros(len(numbers), 0, dtype=torch.int64)
    zero_shot = score_pointers(model, numbers, nothing, stage.config.score_batch)
    gain = scores.gold_logp - zero_shot.gold_logp.repeat_interleave(count)
    _log(stage, scores.correct.view(-1, count), methods, zero_shot.accuracy.mean().item())
    columns = {
        "query": [prepared.names[number] for number in repeated.tolist()],
        "pointer": flat.tolist(),
        "correct": scores.correct.tolist(),
        "acc_score": scores.acc_score.tolist(),
        "info_score": gain.tolist(),
        "beam_logprob": logps.flatten().tolist(),
        "method": methods * len(numbers),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _log(stage: Stage, correct: torch.Tensor, methods: list[str], zero_shot: float) -> None:
    """Log the share of right answers by method, and how many queries have none or only right sequences."""
    figures = {"candidates/zero_shot": zero_shot, "candidates/correct": correct.mean().item()}
    figures["candidates/all_wrong"] = (correct.sum(1) == 0).float().mean().item()
    figures["candidates/all_right"] = (correct.sum(1) == correct.shape[1]).float().mean().item()
    for method in dict.fromkeys(methods):
        columns = [place for place, name in enumerate(methods) if name == method]
        figures[f"candidates/correct_{method}"] = correct[:, columns].mean().item()
    stage.log_metrics(0, figures)
