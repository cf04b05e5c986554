"""Supervised training on given responses: the warm start of reinforcement, and sequence-level distillation."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.batch import Sequences, token_logps
from trainers.policy.placement import Placement
from trainers.policy.text import pad, pad_token
from trainers.stage import Stage
from trainers.state import pack, unpack

Rate = Callable[[int, int], float]  # step, steps -> share of the peak rate


def train_on_responses(
    stage: Stage,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    *,
    rows: Callable[[int], Sequence[int]],
    steps: int,
    lr: float,
    rate: Rate,
    metric: str,
    placement: Placement,
    micro_batch: int | None = None,
    checkpoint_every: int | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Minimise the cross-entropy per response token, in nats; the prompt has no loss.

    Args:
        stage: logs `metric`, and `lr` and `grad_norm` under the same prefix; keeps checkpoints.
        model: in place; on the policy's device.
        tokenizer: says how to pad.
        prompts: token ids, one list per example.
        responses: token ids, the end-of-sequence token included.
        rows: the examples of a step. With checkpoints it must depend on the step alone.
        steps: of AdamW.
        lr: its peak rate.
        rate: share of the peak rate at a step.
        metric: name of the loss.
        placement: devices and precision.
        micro_batch: examples per forward and backward (gradient accumulation); None: all of a step.
        checkpoint_every: steps between checkpoints, from which a killed stage goes on; None: no checkpoints.
        after: called with the number of steps taken, after each.
    """
    prefix = metric.rpartition("/")[0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    modules, optimizers = {"model": model}, {"optimizer": optimizer}
    found = stage.load_checkpoint() if checkpoint_every else None
    if found is not None:
        unpack(found.tensors, modules, optimizers, {})
    memory = stage.micro_batch(micro_batch)
    model.train()
    for step in range(0 if found is None else found.step, steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * rate(step, steps)
        chosen = rows(step)
        batch = Sequences(
            *pad([prompts[i] for i in chosen], pad_token(tokenizer), left=True),
            *pad([responses[i] for i in chosen], pad_token(tokenizer), left=False),
        ).to(placement.policy)

        def backward(part: Tensor, batch: Sequences = batch) -> Tensor:
            with placement.autocast(placement.policy):
                logps, _ = token_logps(model, batch.select(part))
            loss = -logps.sum() / batch.mask.sum()  # of the whole batch, so that micro-batches add up to it
            loss.backward()
            return loss.detach()

        losses = memory.run(torch.arange(len(batch)), backward, lambda: optimizer.zero_grad(set_to_none=True))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0 or step + 1 == steps:
            values = {metric: sum(losses), f"{prefix}/lr": lr * rate(step, steps), f"{prefix}/grad_norm": norm}
            stage.log_metrics(step, values)
        stage.progress(step + 1, steps)
        if after is not None:
            after(step + 1)
        if checkpoint_every and (step + 1) % checkpoint_every == 0 and step + 1 < steps:
            stage.save_checkpoint(step + 1, pack(modules, optimizers, {}), {})
    model.eval()


def warmup_cosine(step: int, steps: int) -> float:
    """Return the share of the peak rate: linear over the first tenth of the steps, then a cosine to 0."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def constant(step: int, steps: int) -> float:
    """Return 1: the rate does not change."""
    return 1.0
