"""A reward model of one's own: a sequence classifier fitted to the rule's rewards of the warm start's responses.

The policy is then trained on what the classifier has learnt, and measured by the rule: what reward hacking costs can be
read off. The classifier is the warm start's body with a linear head on the last token of `prompt response`.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from trainers.micro_batch import MicroBatch
from trainers.policy.config import PolicyConfig, Precision, RewardTraining
from trainers.policy.experience import Sampler
from trainers.policy.models import load_policy, load_tokenizer, save_policy, without_dropout
from trainers.policy.placement import Placement
from trainers.policy.rewards import encode, pair_texts, prepare_tokenizer
from trainers.policy.sources import REWARD_MODEL, asset_files, load_task, policy_folder
from trainers.policy.supervised import warmup_cosine
from trainers.stage import Stage
from trainers.tasks.interface import bucket, read_problems

HELD_OUT = 10  # every tenth problem


def train(stage: Stage) -> None:
    """Sample, fit, measure on held-out problems, save."""
    config: PolicyConfig = stage.config
    settings, placement = config.reward_training, Placement.of(stage.devices, config.precision)
    folder = policy_folder(stage, "warm_start")
    texts, targets, correct = _judged(stage, folder, placement)
    tokenizer = prepare_tokenizer(load_tokenizer(folder))
    model = new_classifier(folder, placement.policy, config.precision, settings.seed)
    model.config.pad_token_id = tokenizer.pad_token_id
    held_out = torch.arange(len(texts)) // settings.samples % HELD_OUT == 0
    rows = (~held_out).nonzero()[:, 0]
    _fit(stage, model, tokenizer, texts=texts, targets=targets, rows=rows, placement=placement)
    rows = held_out.nonzero()[:, 0]
    scores = _scores(model, tokenizer, [texts[i] for i in rows], placement, stage.micro_batch(settings.micro_batch))
    stage.log_metrics(settings.steps, agreement(scores, targets[rows], correct[rows]))
    save_policy(stage.out / REWARD_MODEL, model, tokenizer)


def new_classifier(folder: Path, device: torch.device, precision: Precision, seed: int) -> PreTrainedModel:
    """Return the body in `folder` with a new head of one output; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, dtype=torch.float32, local_files_only=True
        )
    if precision.activation_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return without_dropout(model).to(device).eval()


def agreement(scores: Tensor, rewards: Tensor, correct: Tensor) -> dict[str, float]:
    """Return how well scores (N,) follow the rule's rewards (N,) and tell right from wrong responses, `correct` (N,).

    `pair_accuracy`: share of the pairs of a right and a wrong response in which the right one has the higher score,
    ties half; absent where all are right or all are wrong.
    """
    found = {"reward_model/error": (scores - rewards).square().mean().item()}
    if scores.std() > 0 and rewards.std() > 0:
        found["reward_model/correlation"] = torch.corrcoef(torch.stack([scores, rewards]))[0, 1].item()
    difference = scores[correct > 0][:, None] - scores[correct == 0]
    if difference.numel():
        found["reward_model/pair_accuracy"] = (difference.sign().mean().item() + 1) / 2
    return found


def _judged(stage: Stage, folder: Path, placement: Placement) -> tuple[list[str], Tensor, Tensor]:
    """Return the texts of prompts and sampled responses, the rule's rewards (N,) and correctness (N,)."""
    config: PolicyConfig = stage.config
    settings = config.reward_training
    tokenizer, task = load_tokenizer(folder), load_task(config.task, asset_files(stage, "data_source"))
    sampler = Sampler(
        model=load_policy(folder, placement.policy, config.precision),
        tokenizer=tokenizer,
        task=task,
        sampling=config.sampling,
        placement=placement,
    )
    problems = read_problems(stage.inputs["task_data"] / "train.jsonl")[: settings.problems]
    generator = torch.Generator().manual_seed(bucket(f"judge {settings.seed}", 2**62))
    _, responses = sampler.responses(
        problems, group_size=settings.samples, generator=generator, batch_size=settings.sampled_at_once
    )
    asked = [problem for problem in problems for _ in range(settings.samples)]
    pairs = list(zip(asked, responses, strict=True))
    rewards = torch.tensor([task.reward(problem, response) for problem, response in pairs])
    correct = torch.tensor([float(task.correct(problem, response)) for problem, response in pairs])
    texts = pair_texts(tokenizer, [problem.prompt for problem in asked], responses)
    return texts, rewards, correct


def _fit(
    stage: Stage,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    texts: list[str],
    targets: Tensor,
    rows: Tensor,
    placement: Placement,
) -> None:
    """Minimise the mean squared error of the scores, responses drawn with replacement."""
    settings: RewardTraining = stage.config.reward_training
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, betas=(0.9, 0.99), weight_decay=0.0)
    generator = torch.Generator().manual_seed(bucket(f"judge order {settings.seed}", 2**62))
    memory = stage.micro_batch(settings.micro_batch)
    model.train()
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * warmup_cosine(step, settings.steps)
        chosen = rows[torch.randint(len(rows), (settings.batch_size,), generator=generator)]

        def backward(part: Tensor) -> Tensor:
            scores = _forward(model, tokenizer, [texts[i] for i in part], placement)
            loss = (scores - targets[part].to(scores)).square().sum() / settings.batch_size
            loss.backward()
            return loss.detach()

        losses = memory.run(chosen, backward, lambda: optimizer.zero_grad(set_to_none=True))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0 or step + 1 == settings.steps:
            stage.log_metrics(step, {"reward_model/loss": sum(losses)})
        stage.progress(step + 1, settings.steps)
    model.eval()


@torch.no_grad()
def _scores(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: list[str],
    placement: Placement,
    memory: MicroBatch,
) -> Tensor:
    parts = memory.run(texts, lambda part: _forward(model, tokenizer, part, placement).cpu())
    return torch.cat(parts)


def _forward(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], placement: Placement
) -> Tensor:
    inputs = encode(tokenizer, texts).to(placement.policy)
    with placement.autocast(placement.policy):
        return model(**inputs).logits[:, 0].float()
