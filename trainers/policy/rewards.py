"""Rewards of responses: by the task's rule, by a sequence classifier, or a weighted sum of both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.batch import Sequences
from trainers.policy.config import Reward
from trainers.policy.models import Placement, load_tokenizer
from trainers.policy.sources import reward_model_folder
from trainers.policy.text import token_lists, without_special_tokens
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage
from trainers.tasks.interface import Problem, Task, by_rule


class RewardModel:
    """A sequence classifier with one logit, read as the reward of `prompt + response`.

    Several ranks share its weights, and each scores its part of the responses.
    """

    def __init__(self, folder: Path, placement: Placement, batch_size: int = 64) -> None:
        self.tokenizer = prepare_tokenizer(load_tokenizer(folder, generates=False))
        ranks, self.placement = placement.ranks, placement

        def load() -> PreTrainedModel:
            dtype = torch.bfloat16 if placement.precision.compute == "bfloat16" else torch.float32
            model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype, local_files_only=True)
            if model.config.num_labels != 1:
                raise ValueError(f"{folder}: a reward model has one output, this one has {model.config.num_labels}")
            model.config.pad_token_id = self.tokenizer.pad_token_id
            return model.to(placement.before_sharding).eval().requires_grad_(False)

        self.model = placement.shard(ranks.build(load))
        self.memory = MicroBatch(batch_size, ranks=ranks)

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> Tensor:
        """Return one reward per response, (N,), on the CPU.

        The texts are read by the model's own tokenizer, so it need not be the policy's. Those beyond its longest input
        lose the beginning of the prompt.
        """

        def judge(texts: Sequence[str]) -> Tensor:
            inputs = encode(self.tokenizer, texts).to(self.placement.device)
            with self.placement.autocast():
                return self.model(**inputs).logits[:, 0].float().cpu()

        return torch.cat(self.memory.run(pair_texts(self.tokenizer, prompts, responses), judge))


def prepare_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return it with a padding token, and so that what is too long loses its beginning, not the response."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.truncation_side = "left"
    return tokenizer


def pair_texts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
    """Return what a reward model reads: a chat in its template, without one the response after the prompt."""
    pairs = list(zip(prompts, without_special_tokens(tokenizer, responses), strict=True))
    if tokenizer.chat_template is None:
        return [f"{prompt} {response}" for prompt, response in pairs]
    chats = [[{"role": "user", "content": p}, {"role": "assistant", "content": r}] for p, r in pairs]
    return [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]


def ids_around(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]
) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
    """Return the ids before and after each response in the chats of `pair_texts`; the tokenizer has a template."""
    mark = "RESPONSE"
    texts = [text.rpartition(mark) for text in pair_texts(tokenizer, prompts, [mark] * len(prompts))]
    heads, _, tails = zip(*texts, strict=True)
    before, after = (tokenizer(list(each), add_special_tokens=False)["input_ids"] for each in (heads, tails))
    return before, after


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> BatchEncoding:
    """Return ids and mask of texts as `pair_texts` writes them."""
    return tokenizer(
        list(texts),
        padding=True,
        truncation=True,
        add_special_tokens=tokenizer.chat_template is None,  # a chat template writes them itself
        return_token_type_ids=False,
        return_tensors="pt",
    )


def load_reward_model(stage: Stage, settings: Reward, placement: Placement) -> RewardModel | None:
    """Return the reward model of a stage; None where it has no weight."""
    return RewardModel(reward_model_folder(stage), placement) if settings.model > 0 else None


@dataclass(frozen=True)
class Scored:
    """Rewards (N,), correctness (N,) as 0 or 1 (0 where there is no answer), and the mean of each part of the reward.

    tokens: the rewards (N, T) of tokens where these are rewarded; they add up to `rewards`.
    """

    rewards: Tensor
    correct: Tensor
    parts: dict[str, float]
    tokens: Tensor | None = None


def score(
    task: Task,
    problems: Sequence[Problem],
    responses: Sequence[str],
    settings: Reward,
    model: RewardModel | None,
    *,
    ended: Sequence[bool],
    tokens: Tensor | None = None,
    added: Tensor | None = None,
) -> Scored:
    """Return the rewards of responses; problem i belongs to response i.

    ended: which responses ended by themselves. tokens: rewards (N, T) by the model of each token, instead of `model`.
    added: rewards (N,) by the function that the settings name.
    """
    rewards, correct, parts = torch.zeros(len(problems)), torch.zeros(len(problems)), {}
    if all(problem.answer for problem in problems):
        rule, correct = map(torch.tensor, by_rule(task, problems, responses, ended))
        rewards, parts["reward/rule"] = settings.rule * rule, rule.mean().item()
    if added is not None:
        rewards, parts["reward/function"] = rewards + added, added.mean().item()
    if tokens is not None:
        judged = tokens.sum(1)
    elif model is not None:
        judged = model([problem.prompt for problem in problems], responses)
    else:
        return Scored(rewards, correct, parts)
    parts["reward/model"] = judged.mean().item()
    return Scored(
        rewards + settings.model * judged, correct, parts, None if tokens is None else settings.model * tokens
    )


@dataclass(frozen=True)
class Rewards:
    """What rewards the responses of a training: the task's rule, and what the settings add to it.

    model: scores whole responses; token_model: each token; function: of the user, called as TRL calls one.
    """

    task: Task
    settings: Reward
    placement: Placement
    end: int  # the policy's end-of-sequence token
    model: RewardModel | None = None
    token_model: Callable[[Sequences, Sequence[str], int], Tensor] | None = None
    function: Callable[..., Sequence[float]] | None = None

    def score(self, problems: Sequence[Problem], sequences: Sequences, texts: Sequence[str]) -> Scored:
        """Return the rewards of N responses, which problem i asked for; of several ranks those of the first."""
        tokens = added = None
        if self.token_model is not None:
            tokens = self.token_model(sequences, [problem.prompt for problem in problems], self.end)  # (N, T)
        if self.function is not None:
            ids = token_lists(sequences.response_ids, sequences.mask)
            added = by_function(self.function, problems, texts, ids)  # (N,)
        ended = sequences.ended(self.end).tolist()
        scored = score(self.task, problems, texts, self.settings, self.model, ended=ended, tokens=tokens, added=added)
        return self.placement.ranks.same(scored)  # what the ranks do next depends on it


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
