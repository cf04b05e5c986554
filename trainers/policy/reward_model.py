"""Stage `reward_model`: train a reward model on the rule's rewards, if `reward_training` enables it.

The policy is later trained on the classifier's rewards and measured by the rule, which shows the cost of reward
hacking. The classifier is the warm start's body with a linear head on the last token of `prompt response`.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from trainers.parallel import join
from trainers.policy.classifier import pair_texts, prepare_tokenizer, scores
from trainers.policy.config import PolicyConfig, Precision, RewardTraining
from trainers.policy.learner import Learner
from trainers.policy.models import (
    Placement,
    checkpoint_activations,
    load_policy,
    load_tokenizer,
    save_policy,
    without_dropout,
)
from trainers.policy.responses import Sampler
from trainers.policy.sources import REWARD_MODEL, load_task, policy_folder
from trainers.policy.supervised import Schedule, warmup_cosine
from trainers.running.stage import Stage, run_seed
from trainers.running.state import run_steps
from trainers.tasks.interface import bucket, by_rule, read_problems

RANKS = join  # several devices: a process for each
HELD_OUT = 10  # every tenth problem


def run(stage: Stage) -> None:
    """Train a sequence classifier, measure it on held-out problems and save it in the folder `reward_model`."""
    config: PolicyConfig = stage.config
    settings, placement = config.reward_training, Placement.of(stage.devices, config.precision, stage.ranks)
    if not settings.enabled:
        stage.log.info("reward_training.enabled is false, so no reward model is trained")
        return
    folder, seed = policy_folder(stage, "warm_start"), run_seed(stage.seed)
    texts, targets, correct = _scored_by_rule(stage, folder, placement, seed)
    tokenizer = prepare_tokenizer(load_tokenizer(folder))
    model = stage.ranks.build(lambda: new_classifier(folder, placement.before_sharding, config.precision, seed))
    model.config.pad_token_id = tokenizer.pad_token_id
    model = placement.shard(model)

    def score(part: Tensor) -> Tensor:
        return scores(model, tokenizer, placement, [texts[i] for i in part])

    held_out = torch.arange(len(texts)) // settings.samples % HELD_OUT == 0
    rows = (~held_out).nonzero()[:, 0]
    _fit(stage, model, score, targets, rows, seed=seed)
    rows = held_out.nonzero()[:, 0]
    with torch.no_grad():
        micro_batch = stage.micro_batch(settings.micro_batch)
        scored = torch.cat(micro_batch.run(rows, lambda part: score(part).cpu()))
    stage.log_metrics(settings.steps, agreement(scored, targets[rows], correct[rows]))
    save_policy(stage.out / REWARD_MODEL, model, tokenizer, stage.ranks)


def new_classifier(folder: Path, device: torch.device, precision: Precision, seed: int) -> PreTrainedModel:
    """Return the body in `folder` with a new head of one output, without changing the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, dtype=torch.float32, local_files_only=True
        )
    if precision.activation_checkpointing:
        checkpoint_activations(model)
    return without_dropout(model).to(device).eval()


def agreement(scores: Tensor, rewards: Tensor, correct: Tensor) -> dict[str, float]:
    """Return measures of the agreement of scores (N,) with the rule's rewards (N,) and with correctness (N,).

    `error` is the mean squared error. `pair_accuracy` is the share of pairs of a right and a wrong response in which
    the right one has the higher score; ties count half; it is absent if all responses are right, or all wrong.
    """
    metrics = {"reward_model/error": (scores - rewards).square().mean().item()}
    if scores.std() > 0 and rewards.std() > 0:
        metrics["reward_model/correlation"] = torch.corrcoef(torch.stack([scores, rewards]))[0, 1].item()
    difference = scores[correct > 0][:, None] - scores[correct == 0]
    if difference.numel():
        metrics["reward_model/pair_accuracy"] = (difference.sign().mean().item() + 1) / 2
    return metrics


def _scored_by_rule(stage: Stage, folder: Path, placement: Placement, seed: int) -> tuple[list[str], Tensor, Tensor]:
    """Sample responses of the policy; return their texts with prompts, the rule's rewards (N,) and correctness (N,)."""
    config: PolicyConfig = stage.config
    settings = config.reward_training
    tokenizer, task = load_tokenizer(folder), load_task(stage)
    sampler = Sampler(
        model=load_policy(folder, placement.device, config.precision),
        tokenizer=tokenizer,
        task=task,
        sampling=config.sampling,
        placement=placement,
        micro_batch=stage.micro_batch(settings.sampled_at_once),
    )
    problems = read_problems(stage.inputs["task_data"] / "train.jsonl")[: settings.problems]
    # The streams keep the stage's former name, `judge`, so that their numbers stay the same.
    generator = torch.Generator().manual_seed(bucket(f"judge {seed}", 2**62))
    sequences, responses = sampler.responses(problems, group_size=settings.samples, generator=generator)
    answered = [problem for problem in problems for _ in range(settings.samples)]
    ended = sequences.ended(tokenizer.eos_token_id).tolist()
    rewards, correct = map(torch.tensor, by_rule(task, answered, responses, ended))
    texts = pair_texts(tokenizer, [problem.prompt for problem in answered], responses)
    return texts, rewards, correct


def _fit(
    stage: Stage, model: PreTrainedModel, score: Callable[[Tensor], Tensor], targets: Tensor, rows: Tensor, *, seed: int
) -> None:
    """Minimise the mean squared error of the model's scores, on responses drawn from `rows` with replacement."""
    settings: RewardTraining = stage.config.reward_training
    generator = torch.Generator().manual_seed(bucket(f"judge order {seed}", 2**62))
    micro_batch = stage.micro_batch(settings.micro_batch)
    learner = Learner.adamw(model, lr=settings.lr, micro_batch=micro_batch)

    def draw(_: int) -> list[int]:
        return rows[torch.randint(len(rows), (settings.batch_size,), generator=generator)].tolist()

    schedule = Schedule(draw, settings.steps, settings.lr, warmup_cosine)

    def backward(part: Tensor) -> Tensor:
        scored = score(part)
        loss = (scored - targets[part].to(scored)).square().sum() / settings.batch_size
        learner.micro_batch.backward(loss)
        return loss.detach()

    def step(number: int) -> None:
        learner.set_rate(schedule.lr_at(number))
        losses, _ = learner.step(torch.tensor(schedule.rows(number)), backward)
        if schedule.logs(number):
            stage.log_metrics(number, {"reward_model/loss": sum(losses)})

    with learner.training():
        run_steps(stage, step, steps=settings.steps)
