"""Sampled responses to prompts: token ids in, sequences and texts out, as many at once as memory allows."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.batch import Sequences, concatenate
from trainers.policy.config import Sampled, Sampling
from trainers.policy.learner import Learner
from trainers.policy.models import Placement
from trainers.policy.rollout import sample_all
from trainers.policy.systematic_sampling import Distinct, sample_evenly
from trainers.policy.text import decode, pad, pad_token, prompt_tokens
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage
from trainers.tasks.interface import Problem, Task

Responds = Callable[..., tuple[Sequences, list[str]]]  # as `Responder` does


@dataclass(frozen=True)
class Responder:
    """Samples with `model` as it is at that moment, or, with several ranks, with a copy made for each call."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    placement: Placement

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        group_size: int,
        limit: int,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        micro_batch: MicroBatch | None = None,
    ) -> tuple[Sequences, list[str]]:
        """Return group_size responses per prompt, those of a prompt side by side, and their texts.

        prompts: token ids. limit: longest response in tokens. generator: None takes the most likely tokens.
        micro_batch: how many responses are drawn at once; fewer where the device's memory does not suffice.
        """
        self._check_positions(prompts, limit)
        ranks, uniforms = self.placement.ranks, None
        if generator is not None:  # of all prompts, whoever samples them
            uniforms = torch.rand(len(prompts), group_size, limit, generator=generator, dtype=torch.float64)
        mine = ranks.share(len(prompts))
        asked, numbers = prompts[mine], None if uniforms is None else uniforms[mine].flatten(0, 1)

        with self._sampler() as model:

            def draw(batch_size: int) -> Sequences:
                with self.placement.autocast():
                    return sample_all(
                        model,
                        *self.padded(asked),
                        batch_size=batch_size,
                        group_size=group_size,
                        uniforms=numbers,
                        max_new_tokens=limit,
                        eos=self.tokenizer.eos_token_id,
                        pad=pad_token(self.tokenizer),
                        temperature=temperature,
                    )

            sampled = (micro_batch or MicroBatch()).retry(len(asked) * group_size, draw) if asked else None
        sequences = concatenate([part for part in ranks.gather(sampled) if part is not None], pad_token(self.tokenizer))
        return sequences, decode(self.tokenizer, sequences.completion_ids, sequences.completion_mask)

    def evenly(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        samples: int,
        limit: int,
        temperature: float,
        generator: torch.Generator,
        micro_batch: MicroBatch,
    ) -> tuple[Distinct, list[str]]:
        """Return the different ones among `samples` responses per prompt, spread evenly, and their texts.

        For evaluation: less noise than independent samples (`trainers.policy.systematic_sampling`). Arguments as above.
        """
        self._check_positions(prompts, limit)
        ranks = self.placement.ranks
        uniforms = torch.rand(len(prompts), samples, limit, generator=generator, dtype=torch.float64)
        mine = ranks.share(len(prompts))
        asked, numbers = prompts[mine], uniforms[mine]

        with self._sampler() as model:

            def draw(batch_size: int) -> Distinct:
                with self.placement.autocast():
                    return sample_evenly(
                        model,
                        *self.padded(asked),
                        uniforms=numbers,
                        eos=self.tokenizer.eos_token_id,
                        pad=pad_token(self.tokenizer),
                        temperature=temperature,
                        batch_size=batch_size,
                    )

            drawn = micro_batch.retry(len(asked) * samples, draw) if asked else None
        parts = [(start, part) for start, part in ranks.gather((mine.start, drawn)) if part is not None]
        distinct = Distinct.join(parts, pad_token(self.tokenizer))
        return distinct, decode(self.tokenizer, distinct.sequences.completion_ids, distinct.sequences.completion_mask)

    def padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return ids and mask (B, P), padded on the left, on the policy's device."""
        ids, mask = pad(prompts, pad_token(self.tokenizer), left=True)
        return ids.to(self.placement.device), mask.to(self.placement.device)

    def _check_positions(self, prompts: Sequence[Sequence[int]], limit: int) -> None:
        """Raise ValueError if a response could go beyond the model's positions."""
        longest = max(map(len, prompts))
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if positions is not None and longest + limit > positions:
            raise ValueError(
                f"a prompt of {longest} tokens and a response of up to {limit} need {longest + limit} "
                f"positions, but the model has {positions}; allow shorter responses, leave out long prompts, "
                "or use another model"
            )

    def _sampler(self) -> AbstractContextManager[Any]:
        """Return the context in which there is a model that samples without the other ranks."""
        low = self.placement.precision.compute == "bfloat16"
        return self.placement.ranks.full_weights(self.model, autocast=low)


@dataclass(frozen=True)
class Sampler:
    """Samples responses to problems with a policy; `micro_batch`: how many are drawn at once.

    engine: what samples the responses of training in place of the policy itself, as vLLM.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    task: Task
    sampling: Sampling
    placement: Placement
    micro_batch: MicroBatch = field(default_factory=MicroBatch)
    engine: Responds | None = None
    _prompts: dict[str, list[int]] = field(default_factory=dict)

    def prompts(self, problems: Sequence[Problem]) -> list[list[int]]:
        """Return the token ids that the responses follow."""
        for problem in problems:
            if problem.id not in self._prompts:
                self._prompts[problem.id] = prompt_tokens(self.tokenizer, problem, self.task.instruction)
        return [self._prompts[problem.id] for problem in problems]

    def responses(
        self,
        problems: Sequence[Problem],
        *,
        group_size: int,
        generator: torch.Generator,
    ) -> tuple[Sequences, list[str]]:
        """Return group_size responses per problem, those of a problem side by side, and their texts."""
        respond = self.engine or Responder(self.model, self.tokenizer, self.placement)
        return respond(
            self.prompts(problems),
            group_size=group_size,
            limit=self.sampling.max_new_tokens,
            temperature=self.sampling.temperature,
            generator=generator,
            micro_batch=self.micro_batch,
        )


def start_engine(
    stage: Stage,
    rollout: Sampled,
    responder: Responder,
    folder: Path,
    *,
    learners: Iterable[Learner],
    version: Callable[[], int] = int,
) -> Responds | None:
    """Return what samples instead of the policy itself, if anything does.

    folder: holds the model's configuration. learners: what they need of the device is taken first. version: tells how
    many updates the trained weights have seen.
    """
    if rollout.engine == "own":
        return None
    for learner in learners:
        learner.allocate()
    engine: Responds = stage.parts["engine"](
        responder.model,
        responder.tokenizer,
        responder.placement,
        folder,
        rollout.vllm,
        at_once=rollout.batch_size,
        version=version,
    )
    return engine
