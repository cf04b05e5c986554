"""Sampling of responses: takes prompts as token ids and returns sequences and texts, in batches that fit in memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
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

T = TypeVar("T")
Responses = tuple[Sequences, list[str]]  # responses as tokens, and their texts
Responds = Callable[..., Responses]  # as `Responder` does


@dataclass(frozen=True)
class Responder:
    """Samples responses with the current weights of `model`, which several ranks gather at each call."""

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
    ) -> Responses:
        """Return `group_size` responses per prompt, stored prompt by prompt, and their texts.

        prompts: token ids. limit: longest response, in tokens. generator: None takes the most likely tokens.
        micro_batch: number of responses sampled at once, which is reduced if the device runs out of memory.
        """
        draw = partial(sample_all, group_size=group_size, max_new_tokens=limit, temperature=temperature)
        parts = self._on_ranks(prompts, draw, micro_batch or MicroBatch(), generator, responses=group_size, limit=limit)
        sequences = concatenate([part for _, part in parts], pad_token(self.tokenizer))
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
        """Return the distinct responses among `samples` evenly spread samples per prompt, and their texts.

        Evaluation uses these samples, because they have less noise than independent ones
        (`trainers.policy.systematic_sampling`). The other arguments are those of `__call__`.
        """
        draw = partial(sample_evenly, temperature=temperature)
        parts = self._on_ranks(prompts, draw, micro_batch, generator, responses=samples, limit=limit)
        distinct = Distinct.join(parts, pad_token(self.tokenizer))
        return distinct, decode(self.tokenizer, distinct.sequences.completion_ids, distinct.sequences.completion_mask)

    def _on_ranks(
        self,
        prompts: Sequence[Sequence[int]],
        draw: Callable[..., T],
        micro_batch: MicroBatch,
        generator: torch.Generator | None,
        *,
        responses: int,
        limit: int,
    ) -> list[tuple[int, T]]:
        """Return, for each rank that has prompts, the number of the first prompt and the result of `draw`.

        draw: `sample_all` or `sample_evenly`. responses: number per prompt. Raises ValueError if the model has too few
        positions.
        """
        longest = max(map(len, prompts))
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if positions is not None and longest + limit > positions:
            raise ValueError(
                f"a prompt of {longest} tokens and a response of up to {limit} need {longest + limit} "
                f"positions, but the model has {positions}; allow shorter responses, leave out long prompts, "
                "or use another model"
            )
        numbers = None
        if generator is not None:  # of all prompts, whichever rank samples them
            numbers = torch.rand(len(prompts), responses, limit, generator=generator, dtype=torch.float64)
        placement, padding = self.placement, pad_token(self.tokenizer)
        ranks, rows = placement.ranks, placement.ranks.share(len(prompts))
        with ranks.full_weights(self.model, autocast=placement.precision.compute == "bfloat16") as model:

            def attempt(batch_size: int) -> T:
                ids, mask = (each.to(placement.device) for each in pad(prompts[rows], padding, left=True))
                uniforms = None if numbers is None else numbers[rows]
                eos = self.tokenizer.eos_token_id
                with placement.autocast():
                    return draw(model, ids, mask, uniforms=uniforms, eos=eos, pad=padding, batch_size=batch_size)

            count = len(prompts[rows])
            drawn = micro_batch.retry(count * responses, attempt) if count else None
        return [(start, part) for start, part in ranks.gather((rows.start, drawn)) if part is not None]


@dataclass(frozen=True)
class Sampler:
    """Samples responses to problems with a policy, `micro_batch` responses at a time.

    engine: samples during training in place of the policy itself, such as vLLM.
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
        """Return the prompts of the problems as token ids."""
        for problem in problems:
            if problem.id not in self._prompts:
                self._prompts[problem.id] = prompt_tokens(self.tokenizer, problem, self.task.instruction)
        return [self._prompts[problem.id] for problem in problems]

    def responses(self, problems: Sequence[Problem], *, group_size: int, generator: torch.Generator) -> Responses:
        """Return `group_size` responses per problem, stored problem by problem, and their texts."""
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
    """Return the engine that samples during training in place of the policy; None if the policy itself samples.

    folder: contains the model's configuration. learners: allocate their device memory before the engine does. version:
    returns the number of updates of the trained weights.
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
