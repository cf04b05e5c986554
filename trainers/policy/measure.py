"""Accuracy of a policy on problems, greedily and by sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainers.policy.config import Evaluate
from trainers.policy.experience import Sampler
from trainers.tasks.interface import Problem


@dataclass(frozen=True)
class Measured:
    """Values per problem, in order: accuracy (share of right responses), reward (by rule), model_reward, length.

    Without answers there is neither accuracy nor reward, without a reward model no model_reward.
    """

    values: dict[str, list[float]]

    def mean(self, name: str) -> float:
        """Return the mean of a value over the problems."""
        return sum(self.values[name]) / len(self.values[name])


def measure(sampler: Sampler, problems: Sequence[Problem], settings: Evaluate) -> dict[str, Measured]:
    """Return the results of `greedy` (the most likely response) and `sampled` (`samples` responses per problem).

    The sampling seed is the same for all variants and seeds: differences between them are paired also in their noise.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    return {
        "greedy": _measure(sampler, problems, 1, None, settings),
        "sampled": _measure(sampler, problems, settings.samples, generator, settings),
    }


def _measure(
    sampler: Sampler, problems: Sequence[Problem], samples: int, generator: torch.Generator | None, settings: Evaluate
) -> Measured:
    sequences, texts = sampler.responses(
        problems,
        group_size=samples,
        generator=generator,
        batch_size=settings.batch_size,
        temperature=settings.temperature,
    )
    pairs = [(problem, texts[i * samples + k]) for i, problem in enumerate(problems) for k in range(samples)]

    def means(values: list[float]) -> list[float]:
        return torch.tensor(values, dtype=torch.float64).view(-1, samples).mean(1).tolist()

    values = {"length": means(sequences.mask.sum(1).tolist())}
    if all(problem.answer for problem in problems):
        values["accuracy"] = means([float(sampler.task.correct(problem, text)) for problem, text in pairs])
        values["reward"] = means([sampler.task.reward(problem, text) for problem, text in pairs])
    if sampler.reward_model is not None:
        asked = [problem.prompt for problem, _ in pairs]
        values["model_reward"] = means(sampler.reward_model(asked, texts).tolist())
    return Measured(values)
