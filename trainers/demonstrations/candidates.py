"""Stage `candidates` of study `demonstrations`: propose sequences for the training queries and score them.

Sequences come from beam search, sampling and uniform draws; none of them repeats a candidate. The proposal policy draws
the next candidate with probabilities softmax(scale * cosine / temperature) over those not yet chosen (Plackett-Luce).
It reads only the embeddings, so all variants have the same sequences.
"""

import torch
from torch import Tensor

from trainers.demonstrations.config import Proposals
from trainers.demonstrations.in_context import Resumable, load_in_context_model, score_pointers
from trainers.demonstrations.prepared import load_prepared, write_candidates
from trainers.parallel import join
from trainers.running.stage import Stage, run_seed

RANKS = join  # several devices: a process for each, with some of the batches


def run(stage: Stage) -> None:
    """Write a row per query and sequence to `candidates.parquet`, and log statistics of the sequences."""
    config, prepared = stage.config, load_prepared(stage.inputs["embed"])
    model, work = load_in_context_model(stage), Resumable(stage)
    numbers = prepared.numbers("train")
    cosines, shots = similarities(*prepared.of(numbers)), config.train_shots or config.shots
    pointers, methods = propose(cosines, shots, config.proposals, run_seed(stage.seed))
    count = len(methods)
    flat, repeated = pointers.flatten(0, 1), numbers.repeat_interleave(count)
    scores = score_pointers(model, prepared, repeated, flat, work=work, name="sequences")
    no_pointers = torch.zeros(len(numbers), 0, dtype=torch.int64)
    zero_shot = score_pointers(model, prepared, numbers, no_pointers, work=work, name="zero-shot")
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
    write_candidates(stage.out, columns)
    stage.log.info("%d sequences were scored", len(flat))


def _log(stage: Stage, correct: Tensor, methods: list[str], zero_shot: float) -> None:
    figures = {"candidates/zero_shot": zero_shot, "candidates/correct": correct.mean().item()}
    figures["candidates/all_wrong"] = (correct.sum(1) == 0).float().mean().item()
    figures["candidates/all_right"] = (correct.sum(1) == correct.shape[1]).float().mean().item()
    for method in dict.fromkeys(methods):
        columns = [place for place, name in enumerate(methods) if name == method]
        figures[f"candidates/correct_{method}"] = correct[:, columns].mean().item()
    stage.log_metrics(0, figures)


def similarities(query: Tensor, candidates: Tensor) -> Tensor:
    """Return the cosines (Q, K) between queries (Q, d) and their candidates (Q, K, d)."""
    return torch.nn.functional.cosine_similarity(query[:, None], candidates, dim=-1)


def beam_search(logits: Tensor, shots: int, width: int) -> Tensor:
    """Return the `width` most probable sequences that beam search finds, the most probable first: (Q, width, shots).

    logits: (Q, K), of a query's candidates. Raises ValueError if `width` exceeds the number of possible sequences.
    """
    count, size = logits.shape
    expanded = logits[:, None].expand(count, 1, size)
    score, beams = torch.zeros(count, 1), torch.zeros(count, 1, 0, dtype=torch.int64)
    for _ in range(shots):
        total = (score[..., None] + expanded.log_softmax(-1)).flatten(1)
        keep = min(width, int(torch.isfinite(total[0]).sum()))
        score, place = total.topk(keep, dim=1)
        origin, pick = place // size, place % size
        beams = torch.cat([beams.gather(1, origin[..., None].expand(-1, -1, beams.shape[2])), pick[..., None]], dim=2)
        expanded = expanded.gather(1, origin[..., None].expand(-1, -1, size)).scatter(-1, pick[..., None], -torch.inf)
    if beams.shape[1] < width:
        raise ValueError(
            f"proposals.beam {width} exceeds {beams.shape[1]}, the number of sequences that beam search finds among "
            f"{size} candidates; lower proposals.beam"
        )
    return beams


def sample(logits: Tensor, shots: int, generator: torch.Generator) -> Tensor:
    """Return a sequence (Q, shots) per query, drawn without replacement by the Gumbel trick (arXiv 1903.06059)."""
    uniform = torch.rand(logits.shape, generator=generator).clamp(min=1e-12)
    return (logits - (-uniform.log()).log()).topk(shots, dim=1).indices


def propose(cosines: Tensor, shots: int, settings: Proposals, seed: int) -> tuple[Tensor, list[str]]:
    """Return N sequences per query, (Q, N, shots), for cosines (Q, K), and the method that proposed each of the N."""
    generator = torch.Generator().manual_seed(seed)
    logits = settings.scale * cosines
    sequences, methods = [], []
    if settings.beam:
        sequences.append(beam_search(logits, shots, settings.beam))
        methods += ["beam"] * settings.beam
    for temperature in settings.temperatures:
        sequences.append(sample(logits / temperature, shots, generator)[:, None])
        methods.append(f"sample_{temperature:g}")
    for _ in range(settings.random):
        sequences.append(sample(torch.zeros_like(logits), shots, generator)[:, None])
        methods.append("random")
    return torch.cat(sequences, dim=1), methods
