"""Rewards of responses: by the task's rule, by a sequence classifier, or a weighted sum of both."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from trainers.policy.config import Reward
from trainers.policy.models import load_tokenizer
from trainers.policy.placement import Placement
from trainers.tasks.interface import Problem, Task


class RewardModel:
    """A sequence classifier with one logit, read as the reward of `prompt + response`."""

    def __init__(self, folder: Path, placement: Placement, batch_size: int = 64) -> None:
        self.tokenizer = load_tokenizer(folder, generates=False)
        self.tokenizer.truncation_side = "left"
        model = AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True)
        if model.config.num_labels != 1:
            raise ValueError(f"{folder}: a reward model has one output, this one has {model.config.num_labels}")
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        model.config.pad_token_id = self.tokenizer.pad_token_id
        self.model = model.to(placement.reward).eval().requires_grad_(False)
        self.placement, self.batch_size = placement, batch_size

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> Tensor:
        """Return one reward per response, (N,), on the CPU.

        The texts are read by the model's own tokenizer, so it need not be the policy's. Those beyond its longest input
        lose the beginning of the prompt.
        """
        texts = [self._text(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
        rewards = []
        for start in range(0, len(texts), self.batch_size):
            inputs = self.tokenizer(
                texts[start : start + self.batch_size],
                padding=True,
                truncation=True,
                add_special_tokens=self.tokenizer.chat_template is None,  # a chat template writes them itself
                return_tensors="pt",
            ).to(self.placement.reward)
            with self.placement.autocast(self.placement.reward):
                logits = self.model(**{key: inputs[key] for key in ("input_ids", "attention_mask")}).logits
            rewards.append(logits[:, 0].float().cpu())
        return torch.cat(rewards)

    def _text(self, prompt: str, response: str) -> str:
        if self.tokenizer.chat_template is None:
            return f"{prompt} {response}"
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        return self.tokenizer.apply_chat_template(messages, tokenize=False)


def score(
    task: Task, problems: Sequence[Problem], responses: Sequence[str], settings: Reward, model: RewardModel | None
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Return rewards (N,), correctness (N,) as 0 or 1, and the mean of each part; problem i belongs to response i."""
    pairs = list(zip(problems, responses, strict=True))
    rule = torch.tensor([task.reward(problem, response) for problem, response in pairs])
    correct = torch.tensor([float(task.correct(problem, response)) for problem, response in pairs])
    rewards, parts = settings.rule * rule, {"reward/rule": rule.mean().item()}
    if model is not None:
        judged = model([problem.prompt for problem in problems], responses)
        rewards = rewards + settings.model * judged
        parts["reward/model"] = judged.mean().item()
    return rewards, correct, parts
