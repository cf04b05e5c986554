"""Stage `candidates` of study `demonstrations`: propose sequences for the training queries, score them.

With the config key `offline` the scored sequences come from a JSON file of the source instead.
"""

import json
from typing import Any

import torch

from trainers.assets import files
from trainers.demonstrations.in_context import load_in_context_model, one_file, score_pointers
from trainers.demonstrations.offline import FILE, check_pointer, write_candidates
from trainers.demonstrations.prepared import IMPORTED, Prepared, load_prepared
from trainers.demonstrations.proposals import propose, similarities
from trainers.demonstrations.resumable import Resumable
from trainers.demonstrations.source_json import read_sequences
from trainers.parallel import join
from trainers.stage import Stage, with_run_seed

RANKS = join  # several devices: a process for each, with some of the batches


def run(stage: Stage) -> None:
    """Write `candidates.parquet`, one row per (query, sequence), and log what the sequences are like."""
    prepared = load_prepared(stage.inputs["embed"])
    rows = _imported(stage, prepared) if "offline" in stage.inputs else _scored(stage, prepared)
    write_candidates(stage.out / FILE, rows)
    stage.log.info("%d sequences", len(rows))


def _imported(stage: Stage, prepared: Prepared) -> list[dict[str, Any]]:
    """Return the file's rows under the task's names; the stage `embed` took the pools from the same file."""
    sequences = read_sequences(one_file(files(stage.inputs["offline"]), (".json",)))
    for number, row in enumerate(sequences.rows):
        where = f"{sequences.path}, row {number} (query {row['query']})"
        check_pointer(row["pointer"], prepared.candidates, stage.config.train_shots or stage.config.shots, where)
    if sequences.skipped:
        stage.log.info("%s: %d sequences were not evaluated and are left out", sequences.path, sequences.skipped)
    named = json.loads((stage.inputs["embed"] / IMPORTED).read_text(encoding="utf-8"))
    return [{**row, "query": named[row["query"]]} for row in sequences.rows]


def _scored(stage: Stage, prepared: Prepared) -> list[dict[str, Any]]:
    proposals, shots = stage.config.proposals, stage.config.train_shots or stage.config.shots
    settings = proposals.model_copy(update={"seed": with_run_seed(proposals.seed, stage.seed)})
    model, work = load_in_context_model(stage), Resumable(stage, stage.config.score_batch)
    numbers = prepared.numbers("train")
    pointers, methods = propose(similarities(*prepared.of(numbers)), shots, settings)
    count = len(methods)
    flat, repeated = pointers.flatten(0, 1), numbers.repeat_interleave(count)
    scores = score_pointers(model, prepared, repeated, flat, work=work, name="sequences")
    nothing = torch.zeros(len(numbers), 0, dtype=torch.int64)
    zero_shot = score_pointers(model, prepared, numbers, nothing, work=work, name="zero-shot")
    before = zero_shot.gold_logp.repeat_interleave(count)
    _log(stage, scores.correct.view(-1, count), methods, zero_shot.accuracy.mean().item())
    columns = {
        "query": [prepared.names[number] for number in repeated.tolist()],
        "pointer": flat.tolist(),
        "correct": scores.correct.tolist(),
        "acc_score": scores.acc_score.tolist(),
        "info_score": (scores.gold_logp.exp() - before.exp()).tolist(),
        "logp_gain": (scores.gold_logp - before).tolist(),
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
