"""Accuracy, reward and length of a policy's responses to problems, greedy and sampled."""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import torch

from trainers.policy.config import Evaluate
from trainers.policy.responses import Responder, Sampler
from trainers.policy.systematic_sampling import Distinct, Keep
from trainers.running.micro_batch import MicroBatch
from trainers.tasks.interface import Problem, by_rule

SUBSET = "test"
COLUMNS = ["item", "subset", "protocol", "name", "value"]


def frame_of(protocol: str, items: Sequence[str], values: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """Return a frame with one row per item and name in `values`, which holds a value per item for each name."""
    cells = [
        (item, SUBSET, protocol, name, value)
        for name, column in values.items()
        for item, value in zip(items, column, strict=True)
    ]
    return pd.DataFrame(cells, columns=COLUMNS)


Values = dict[str, list[float]]  # per problem, in order, by name
ModelRewards = Callable[[Sequence[str], Sequence[str]], torch.Tensor]  # of N prompts and responses: (N,)


def average(measured: Sequence[Values]) -> Values:
    """Return the values per problem, averaged over several measurements."""
    columns = {name: zip(*(each[name] for each in measured), strict=True) for name in measured[0]}
    return {name: [sum(values) / len(values) for values in rows] for name, rows in columns.items()}


def measure(
    sampler: Sampler,
    problems: Sequence[Problem],
    settings: Evaluate,
    micro_batch: MicroBatch,
    reward_model: ModelRewards | None = None,
    *,
    greedy: bool = True,
    keep: Keep | None = None,
) -> dict[str, Values]:
    """Return values per problem for the protocols `greedy` (most likely response) and `sampled` (several responses).

    The values are length; accuracy and rule reward if all problems have answers; model_reward if there is a reward
    model. Samples are spread evenly over a problem's responses (`trainers.policy.systematic_sampling`), with one
    sampling seed for all variants and training seeds, so that sampling noise largely cancels in their differences.

    micro_batch: number of responses sampled at once. greedy: whether to measure that protocol. keep: called with the
    responses of each protocol.
    """
    respond = Responder(sampler.model, sampler.tokenizer, sampler.placement)
    prompts, limit = sampler.prompts(problems), sampler.sampling.max_new_tokens
    results = {}
    if greedy:
        sequences, texts = respond(prompts, group_size=1, limit=limit, micro_batch=micro_batch)
        results["greedy"] = _measured(
            sampler, problems, Distinct.single(sequences), texts, reward_model, protocol="greedy", keep=keep
        )
    distinct, different = respond.evenly(
        prompts,
        samples=settings.samples,
        limit=limit,
        temperature=settings.temperature,
        generator=torch.Generator().manual_seed(settings.seed),
        micro_batch=micro_batch,
    )
    return results | {
        "sampled": _measured(sampler, problems, distinct, different, reward_model, protocol="sampled", keep=keep)
    }


def _measured(
    sampler: Sampler,
    problems: Sequence[Problem],
    distinct: Distinct,
    texts: list[str],
    reward_model: ModelRewards | None,
    *,
    protocol: str,
    keep: Keep | None,
) -> Values:
    answered = [problems[i] for i in distinct.prompts.tolist()]
    values: Values = {"length": distinct.sequences.lengths.tolist()}
    if all(problem.answer for problem in problems):
        ended = distinct.sequences.ended(sampler.tokenizer.eos_token_id).tolist()
        rewards, values["accuracy"] = by_rule(sampler.task, answered, texts, ended)
        values["reward"] = rewards
    if reward_model is not None:
        values["model_reward"] = reward_model([problem.prompt for problem in answered], texts).tolist()
    if keep is not None:
        keep(protocol, distinct, texts, values)
    return {name: distinct.mean(torch.tensor(each, dtype=torch.float64)).tolist() for name, each in values.items()}
