"""Batched sampling of groups of responses: one prefill per prompt, one row per distinct beginning.

Responses to a prompt share one row of the batch, with one key-value cache, until their tokens differ. A response leaves
the batch at its end-of-sequence token. It is drawn from its own row of uniform numbers by inverting the distribution
function, so, except for rounding, it depends on neither the rest of the batch nor when other responses end.

The host waits for the device at each token to learn which rows have ended. This costs nothing on a CPU; on an
accelerator vLLM (`trainers.policy.vllm_engine`) is faster.
"""

import torch
from torch import Tensor, nn

from trainers.policy.batch import Sequences, concatenate
from trainers.policy.decode import cumulative, read_prompts


@torch.no_grad()
def sample(
    model: nn.Module,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    *,
    group_size: int,
    max_new_tokens: int,
    eos: int,
    pad: int,
    temperature: float = 1.0,
    uniforms: Tensor | None = None,
) -> Sequences:
    """Return B * group_size responses with their log-probabilities, stored prompt by prompt.

    model: a causal language model of transformers, in evaluation mode. prompt_ids, prompt_mask: (B, P), padded on the
    left. max_new_tokens: longest response, `eos` included. pad: id of padding. temperature: divides the logits, also
    for the log-probabilities. uniforms: one number in [0, 1) per token, (B * group_size, max_new_tokens); None takes
    the most likely tokens.
    """
    device, rows = prompt_ids.device, len(prompt_ids) * group_size
    responses = torch.full((rows, max_new_tokens), pad, device=device)
    logps = torch.zeros(rows, max_new_tokens, device=device)
    mask = torch.zeros(rows, max_new_tokens, dtype=torch.long, device=device)
    logits, decoder = read_prompts(model, prompt_ids, prompt_mask, room=max_new_tokens)
    alive = torch.arange(rows, device=device)
    beginning = alive // group_size  # row of the logits for each response that has not ended
    uniforms = None if uniforms is None else uniforms.to(device)
    for t in range(max_new_tokens):
        drawn_by = None if uniforms is None else uniforms[alive, t]
        tokens, logp = _choose(logits.float() / temperature, beginning, drawn_by)
        responses[alive, t], logps[alive, t], mask[alive, t] = tokens, logp, 1
        going = (tokens != eos).nonzero()[:, 0]
        if len(going) == 0 or t + 1 == max_new_tokens:
            break
        alive, size = alive[going], logits.shape[1]
        followed, beginning = (beginning[going] * size + tokens[going]).unique(return_inverse=True)
        decoder.keep(followed // size)
        logits = decoder.next_logits(followed % size)
    width = int(mask.sum(1).max())
    return Sequences(
        prompt_ids.repeat_interleave(group_size, 0),
        prompt_mask.repeat_interleave(group_size, 0),
        responses[:, :width],
        mask[:, :width],
        logps[:, :width],
    )


def _choose(logits: Tensor, rows: Tensor, uniforms: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return tokens (R,) drawn by uniforms (R,) from rows (R,) of logits (S, V), and their log-probabilities (R,)."""
    logps = torch.log_softmax(logits, -1)
    if uniforms is None:
        tokens = logps.argmax(-1)[rows]
    else:
        # Double precision, because rounding in a sum over a large vocabulary would move probability to its end.
        sums = cumulative(logps.double().exp())[rows]
        threshold = uniforms.double()[:, None] * sums[:, -1:]
        tokens = torch.searchsorted(sums, threshold, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return tokens, logps[rows, tokens]


def sample_all(
    model: nn.Module,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    *,
    batch_size: int | None,
    group_size: int,
    uniforms: Tensor | None = None,
    **settings: float,
) -> Sequences:
    """Return the responses of `sample`, of which at most `batch_size` are sampled at once, in whole groups if possible.

    uniforms: (B, group_size, max_new_tokens). batch_size: None samples all at once.
    """
    uniforms = None if uniforms is None else uniforms.flatten(0, 1)
    if batch_size is not None and batch_size < group_size:  # then a prompt is read once per response
        prompt_ids, prompt_mask = (each.repeat_interleave(group_size, 0) for each in (prompt_ids, prompt_mask))
        group_size = 1
    step = len(prompt_ids) if batch_size is None else batch_size // group_size
    batches = []
    for start in range(0, len(prompt_ids), step):
        chosen = slice(start * group_size, (start + step) * group_size)
        numbers = None if uniforms is None else uniforms[chosen]
        ids, mask = prompt_ids[start : start + step], prompt_mask[start : start + step]
        batches.append(sample(model, ids, mask, group_size=group_size, uniforms=numbers, **settings))  # type: ignore[arg-type]
    return concatenate(batches, int(settings["pad"]))
