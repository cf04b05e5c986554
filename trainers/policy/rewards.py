"""Rewards of responses: by the task's rule, a reward model, and a function of the user; a weighted sum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.policy.batch import Sequences
from trainers.policy.config import Reward
from trainers.policy.models import Placement
from trainers.policy.text import token_lists
from trainers.tasks.interface import Problem, Task, by_rule


@dataclass(frozen=True)
class Rollout:
    """N scored responses: rewards (N,) and correctness (N,) as 0 or 1, on the CPU, and means over all responses.

    correct: 0 where there is no answer. token_rewards: (N, T), which add up to the rewards; None where whole responses
    are rewarded.
    """

    sequences: Sequences
    rewards: Tensor
    correct: Tensor
    metrics: dict[str, float]
    token_rewards: Tensor | None = None


@dataclass(frozen=True)
class Rewards:
    """What rewards the responses of a training: the task's rule, and what the settings add to it.

    model: of N prompts and their responses, rewards (N,). token_model: of sequences, their prompts and the
    end-of-sequence token, rewards (N, T); in place of `model`. function: of the user, called as TRL calls one.
    overlong_penalty: of lengths (N,), what is added, 0 or less.
    """

    task: Task
    settings: Reward
    placement: Placement
    eos: int  # the policy's
    model: Callable[[Sequence[str], Sequence[str]], Tensor] | None = None
    token_model: Callable[[Sequences, Sequence[str], int], Tensor] | None = None
    function: Callable[..., Sequence[float]] | None = None
    overlong_penalty: Callable[[Tensor], Tensor] | None = None

    def score(self, problems: Sequence[Problem], sequences: Sequences, texts: Sequence[str]) -> Rollout:
        """Return the rewards of N responses, of which number i answers problem i; of several ranks the first's."""
        prompts = [problem.prompt for problem in problems]
        rewards, correct, metrics = torch.zeros(len(problems)), torch.zeros(len(problems)), {}
        if all(problem.answer for problem in problems):
            ended = sequences.ended(self.eos).tolist()
            rule, correct = map(torch.tensor, by_rule(self.task, problems, texts, ended))
            rewards, metrics["reward/rule"] = self.settings.rule * rule, rule.mean().item()
        if self.function is not None:
            ids = token_lists(sequences.completion_ids, sequences.completion_mask)
            added = by_function(self.function, problems, texts, ids)
            rewards, metrics["reward/function"] = rewards + added, added.mean().item()
        token_rewards = modelled = None
        if self.token_model is not None:
            modelled_tokens = self.token_model(sequences, prompts, self.eos)  # (N, T)
            modelled, token_rewards = modelled_tokens.sum(1), self.settings.model * modelled_tokens
        elif self.model is not None:
            modelled = self.model(prompts, texts)
        if modelled is not None:
            rewards, metrics["reward/model"] = rewards + self.settings.model * modelled, modelled.mean().item()
        if self.overlong_penalty is not None:
            penalty = self.overlong_penalty(sequences.lengths.cpu())
            rewards, metrics["reward/overlong_penalty"] = rewards + penalty, penalty.mean().item()
        if token_rewards is not None:  # what is of the whole response is given at its last token
            rest = rewards - token_rewards.sum(1)
            token_rewards = add_at_the_end(token_rewards, rest, sequences.completion_mask)
        return Rollout(sequences, *self.placement.ranks.same((rewards, correct, metrics, token_rewards)))


def by_function(
    function: Callable[..., Sequence[float]],
    problems: Sequence[Problem],
    responses: Sequence[str],
    completion_ids: Sequence[Sequence[int]],
) -> Tensor:
    """Return the rewards (N,) by a function that is called as TRL calls one.

    Raises ValueError if it returns another number of rewards, or something that is not a number for a response.
    """
    prompts, answer = [problem.prompt for problem in problems], [problem.answer for problem in problems]
    returned = function(prompts=prompts, completions=list(responses), completion_ids=completion_ids, answer=answer)
    rewards = [] if returned is None else list(returned)
    if len(rewards) != len(problems):
        raise ValueError(
            f"reward.function returned {len(rewards)} rewards of {len(problems)} responses; return one each"
        )
    for at, reward in enumerate(rewards):
        try:
            float(reward)
        except (TypeError, ValueError):
            said = f"reward.function returned {reward!r} for response {at + 1} of {len(rewards)}"
            raise ValueError(f"{said}; return a number for each, 0.0 where it does not apply") from None
    return torch.tensor(rewards, dtype=torch.float32)


def add_at_the_end(tokens: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
    """Return the rewards (N, T) of tokens with `rewards` (N,) added at each response's last token."""
    last = mask.cpu().sum(1).clamp(min=1) - 1
    return tokens.scatter_add(1, last[:, None], rewards[:, None].to(tokens))
