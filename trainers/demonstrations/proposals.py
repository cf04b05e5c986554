"""Candidate sequences from the similarity of embeddings alone: beams, samples, uniform draws; none repeats a candidate.

The proposal policy picks a candidate k with probability softmax(scale * cosine / temperature) among those still free
(Plackett-Luce). It needs no trained model, so that the offline data is the same for every variant.
"""

import torch
from torch import Tensor

from trainers.demonstrations.config import Proposals


def similarities(query: Tensor, candidates: Tensor) -> Tensor:
    """Return cosines (Q, K) of queries (Q, d) and their candidates (Q, K, d)."""
    return torch.nn.functional.cosine_similarity(query[:, None], candidates, dim=-1)


def beam_search(logits: Tensor, shots: int, width: int) -> Tensor:
    """Return sequences (Q, width, shots), the most probable first, by a beam of `width`.

    Raises ValueError where the pool has fewer sequences than `width`.
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
        raise ValueError(f"proposals.beam = {width}: the pool of {size} candidates has only {beams.shape[1]} sequences")
    return beams


def sample(logits: Tensor, shots: int, generator: torch.Generator) -> Tensor:
    """Draw one sequence (Q, shots) per query without replacement, by the Gumbel trick (arXiv 1903.06059)."""
    uniform = torch.rand(logits.shape, generator=generator).clamp(min=1e-12)
    return (logits - (-uniform.log()).log()).topk(shots, dim=1).indices


def propose(cosines: Tensor, shots: int, settings: Proposals) -> tuple[Tensor, list[str]]:
    """Return sequences (Q, N, shots) and the N methods' names.

    Args:
        cosines: (Q, K).
        shots: length of a sequence.
        settings: `proposals` of the configuration.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    logits = settings.scale * cosines
    parts, methods = [], []
    if settings.beam:
        parts.append(beam_search(logits, shots, settings.beam))
        methods += ["beam"] * settings.beam
    for temperature in settings.temperatures:
        parts.append(sample(logits / temperature, shots, generator)[:, None])
        methods.append(f"sample_{temperature:g}")
    for _ in range(settings.random):
        parts.append(sample(torch.zeros_like(logits), shots, generator)[:, None])
        methods.append("random")
    return torch.cat(parts, dim=1), methods
