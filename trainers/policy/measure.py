"""Accuracy of a policy on problems, greedily and by sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainers.micro_batch import MicroBatch
from trainers.policy.batch import Sequences
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


def measure(
    sampler: Sampler, problems: Sequence[Problem], settings: Evaluate, memory: MicroBatch
) -> dict[str, Measured]:
    """Return the results of `greedy` (the most likely response) and `sampled` (`samples` responses per problem).

    The sampling seed is the same for all variants and seeds: differences between them are paired also in their noise.
    memory: of `settings.batch_size` responses, less where the device's memory does not suffice.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    drawn = {
        "greedy": (1, None),
        "sampled": (settings.samples, generator),
    }
    return {
        protocol: _measured(
            sampler,
            problems,
            *sampler.responses(
                problems, group_size=samples, generator=numbers, memory=memory, temperature=settings.temperature
            ),
        )
        for protocol, (samples, numbers) in drawn.items()
    }


def _measured(sampler: Sampler, problems: Sequence[Problem], sequences: Sequences, texts: list[str]) -> Measured:
    samples = len(texts) // len(problems)
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
