"""What one step learns from: prompts, sampled responses, their rewards, and their group advantages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.objectives.diagnostics import group_metrics
from trainers.policy.batch import Sequences, concatenate
from trainers.policy.config import Reward, Rollout, Sampling
from trainers.policy.models import Placement
from trainers.policy.responses import Responder, Responds
from trainers.policy.rewards import RewardModel, add_at_the_end, by_function, score
from trainers.policy.text import prompt_tokens, token_lists
from trainers.running.micro_batch import MicroBatch
from trainers.tasks.interface import Problem, Task

LengthPenalty = Callable[..., Tensor]
TokenRewards = Callable[[Sequences, Sequence[str], int], Tensor]


@dataclass(frozen=True)
class Experience:
    """N responses, those of a prompt side by side: rewards (N,), correctness (N,) as 0 or 1, on the CPU.

    token_rewards: (N, T), which add up to the rewards; None where whole responses are rewarded.
    """

    sequences: Sequences
    rewards: Tensor
    correct: Tensor
    metrics: dict[str, float]
    token_rewards: Tensor | None = None

    @property
    def finest(self) -> Tensor:
        """Return the rewards of tokens (N, T) where there are such, else of responses (N,)."""
        return self.rewards if self.token_rewards is None else self.token_rewards


@dataclass
class Sampler:
    """Samples responses to problems with a policy and scores them; `memory`: how many are drawn at once.

    engine: samples what is learnt from, instead of the policy itself. penalty: of length, with the share of the longest
    response that it covers.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    sampling: Sampling
    placement: Placement
    rollout: Rollout = field(default_factory=Rollout)
    reward: Reward = field(default_factory=Reward)
    reward_model: RewardModel | None = None
    token_rewards: TokenRewards | None = None
    reward_function: Callable[..., Sequence[float]] | None = None
    penalty: tuple[LengthPenalty, float] | None = None
    memory: MicroBatch = field(default_factory=MicroBatch)
    engine: Responds | None = None
    _prompts: dict[str, list[int]] = field(default_factory=dict)

    def prompts(self, problems: Sequence[Problem]) -> list[list[int]]:
        """Return the token ids that the responses follow."""
        for problem in problems:
            if problem.id not in self._prompts:
                self._prompts[problem.id] = prompt_tokens(self.tokenizer, problem.prompt, self.task.instruction)
        return [self._prompts[problem.id] for problem in problems]

    def responses(
        self,
        problems: Sequence[Problem],
        *,
        group_size: int,
        generator: torch.Generator | None,
        memory: MicroBatch | None = None,
        temperature: float | None = None,
    ) -> tuple[Sequences, list[str]]:
        """Return group_size responses per problem and their texts; without a generator the most likely ones.

        temperature: by default that of the sampling settings. memory: how many are drawn at once; None: all.
        """
        respond = self.engine or Responder(self.model, self.tokenizer, self.placement)
        return respond(
            self.prompts(problems),
            group_size=group_size,
            limit=self.sampling.max_new_tokens,
            temperature=self.sampling.temperature if temperature is None else temperature,
            generator=generator,
            memory=memory,
        )

    def collect(self, problems: Sequence[Problem], generator: torch.Generator) -> Experience:
        """Return a group of scored responses for every problem."""
        group = self.rollout.group_size
        sequences, texts = self.responses(problems, group_size=group, generator=generator, memory=self.memory)
        asked = [problem for problem in problems for _ in range(group)]
        end = self.tokenizer.eos_token_id
        of_tokens = None
        if self.token_rewards is not None:
            of_tokens = self.token_rewards(sequences, [problem.prompt for problem in asked], end)
        ended = sequences.ended(end).tolist()
        added = None
        if self.reward_function is not None:
            ids = token_lists(sequences.response_ids, sequences.mask)
            added = by_function(self.reward_function, asked, texts, ids)
        scored = score(
            self.task, asked, texts, self.reward, self.reward_model, ended=ended, tokens=of_tokens, added=added
        )
        scored = self.placement.ranks.same(scored)  # what the ranks do next depends on it
        rewards, metrics = scored.rewards, dict(scored.parts)
        lengths = sequences.mask.sum(1).cpu()
        if self.penalty is not None:
            function, share = self.penalty
            longest = self.sampling.max_new_tokens
            penalty = function(lengths, max_length=longest, buffer=max(1, round(share * longest)))
            rewards = rewards + penalty
            metrics["reward/overlong_penalty"] = penalty.mean().item()
        metrics |= _summary(rewards, group, sequences, end)
        if all(problem.answer for problem in problems):
            metrics["reward/accuracy"] = scored.correct.mean().item()
        if scored.tokens is None:
            return Experience(sequences, rewards, scored.correct, metrics)
        tokens = add_at_the_end(scored.tokens, rewards - scored.tokens.sum(1), sequences.mask)
        return Experience(sequences, rewards, scored.correct, metrics, tokens)


def join(parts: Sequence[Experience], keep: Sequence[Tensor], padding: int) -> Experience:
    """Return the rows `keep[i]` of each part, with the means of the parts' metrics."""
    sequences = [part.sequences.select(rows) for part, rows in zip(parts, keep, strict=True) if len(rows)]
    names = parts[0].metrics.keys()
    tokens = [part.token_rewards for part in parts if part.token_rewards is not None]
    width = max((len(each[0]) for each in tokens), default=0)
    padded = [torch.nn.functional.pad(each, (0, width - each.shape[1])) for each in tokens]
    kept = torch.cat([each[rows] for each, rows in zip(padded, keep, strict=True)]) if tokens else None
    joined = concatenate(sequences, padding)
    return Experience(
        joined,
        torch.cat([part.rewards[rows] for part, rows in zip(parts, keep, strict=True)]),
        torch.cat([part.correct[rows] for part, rows in zip(parts, keep, strict=True)]),
        {name: sum(part.metrics[name] for part in parts) / len(parts) for name in names},
        None if kept is None else kept[:, : joined.mask.shape[1]],
    )


def _summary(rewards: Tensor, group: int, sequences: Sequences, eos: int) -> dict[str, float]:
    values = group_metrics(rewards, group) | {
        "response/length": sequences.mask.sum(1).float().mean(),
        "response/ended": sequences.ended(eos).float().mean(),
    }
    return {name: value.item() for name, value in values.items()}


def collect_informative(
    collect: Callable[[], Experience], *, group_size: int, max_rounds: int, padding: int
) -> Experience:
    """Return as many informative groups as one call of `collect` has, from at most `max_rounds` calls.

    DAPO's dynamic sampling (arXiv 2503.14476, section 3.2).

    Informative: neither all right nor all wrong. If the rounds do not give enough, groups of the last round that are
    not fill the step up, so that it has as many responses as asked for; of these only such have a policy term whose
    rewards differ in something else, format or length. Metrics are means over all responses sampled, kept or not, so
    that they compare with other variants; `sampling/rounds` and `sampling/kept_groups` say what it cost.
    """
    parts, keep, missing = [], [], None
    for _ in range(max_rounds):
        part = collect()
        right = part.correct.view(-1, group_size).mean(1)
        missing = len(right) if missing is None else missing
        informative = (right > 0) & (right < 1)
        groups = informative.nonzero()[:missing, 0]
        parts.append(part)
        keep.append(_rows(groups, group_size))
        missing -= len(groups)
        if missing == 0:
            break
    kept = sum(len(rows) for rows in keep)
    keep[-1] = torch.cat([keep[-1], _rows((~informative).nonzero()[:missing, 0], group_size)])
    found = join(parts, keep, padding)
    extra = {"sampling/rounds": float(len(parts)), "sampling/kept_groups": kept / group_size}
    return replace(found, metrics=found.metrics | extra)


def _rows(groups: torch.Tensor, group_size: int) -> torch.Tensor:
    return (groups[:, None] * group_size + torch.arange(group_size)).flatten()
