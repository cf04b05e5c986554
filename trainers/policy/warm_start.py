"""Stage `warm_start`: supervised training on worked responses, once for all variants and seeds."""

import math

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.batch import Sequences, token_logps
from trainers.policy.config import PolicyConfig, WarmStart
from trainers.policy.models import POLICY, build_policy, load_policy, load_tokenizer, save_policy
from trainers.policy.placement import Placement
from trainers.policy.sources import asset_files, load_task, mark_untrained
from trainers.policy.text import pad, pad_token, prompt_tokens, response_tokens, word_tokenizer
from trainers.stage import Stage
from trainers.tasks.interface import Problem, Task, bucket, read_problems


def run(stage: Stage) -> None:
    """Train a model from scratch or from the asset `model`, and save it with its tokenizer."""
    config: PolicyConfig = stage.config
    placement = Placement.of(stage.devices, config.precision)
    task = load_task(config.task, asset_files(stage, "data_source"))
    source = asset_files(stage, "model")
    if source is not None and config.warm_start.steps == 0:
        mark_untrained(stage.out)
        return
    if source is not None:
        tokenizer = load_tokenizer(source)
        model = load_policy(source, placement.policy, config.precision, trainable=True)
    else:
        if task.words is None:
            raise ValueError(f"task = {config.task!r}: its text needs a pretrained `model`")
        tokenizer = word_tokenizer(task.words)
        model = build_policy(config.scratch, tokenizer, config.warm_start.seed).to(placement.policy)
    problems = read_problems(stage.inputs["task_data"] / "warm.jsonl")
    train(stage, model, tokenizer, task, problems, settings=config.warm_start, placement=placement)
    save_policy(stage.out / POLICY, model.eval(), tokenizer)


def train(
    stage: Stage,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    problems: list[Problem],
    *,
    settings: WarmStart,
    placement: Placement,
) -> None:
    """Minimise the cross-entropy of the demonstrations' tokens; the prompt has no loss."""
    missing = sum(problem.demonstration is None for problem in problems)
    if missing:
        raise ValueError(f"warm.jsonl: {missing} problems have no demonstration; set warm_start.steps to 0")
    prompts = [prompt_tokens(tokenizer, problem.prompt, task.instruction) for problem in problems]
    responses = [response_tokens(tokenizer, problem.demonstration or "") for problem in problems]
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=(0.9, 0.99), weight_decay=0.0)
    generator = torch.Generator().manual_seed(bucket(f"warm start {settings.seed}", 2**62))
    memory = stage.micro_batch(None)
    model.train()
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * rate(step, settings.steps)
        rows = torch.randint(len(problems), (settings.batch_size,), generator=generator).tolist()
        batch = Sequences(
            *pad([prompts[i] for i in rows], pad_token(tokenizer), left=True),
            *pad([responses[i] for i in rows], pad_token(tokenizer), left=False),
        ).to(placement.policy)

        def backward(part: Tensor, batch: Sequences = batch) -> Tensor:
            with placement.autocast(placement.policy):
                logps, _ = token_logps(model, batch if len(part) == len(batch) else batch.select(part))
            loss = -logps.sum() / batch.mask.sum()  # of the whole batch, so that micro-batches add up to it
            loss.backward()
            return loss.detach()

        losses = memory.run(torch.arange(len(batch)), backward, lambda: optimizer.zero_grad(set_to_none=True))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0 or step + 1 == settings.steps:
            stage.log_metrics(step, {"warm_start/loss": sum(losses)})
        stage.progress(step + 1, settings.steps)


def rate(step: int, steps: int) -> float:
    """Return the share of the peak rate: linear over the first tenth of the steps, then a cosine to 0."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
