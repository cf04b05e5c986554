"""Sequence classifiers as reward models, and the text of prompt and response that they read."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.config import Reward
from trainers.policy.models import Placement, load_tokenizer
from trainers.policy.sources import reward_model_folder
from trainers.policy.text import without_special_tokens
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage


class RewardModel:
    """Sequence classifier whose only logit is the reward of a response.

    Several ranks share its weights, and each rank scores a part of the responses.
    """

    def __init__(self, folder: Path, placement: Placement, batch_size: int = 64) -> None:
        self.tokenizer = prepare_tokenizer(load_tokenizer(folder, generates=False))
        ranks, self.placement = placement.ranks, placement

        def load() -> PreTrainedModel:
            dtype = torch.bfloat16 if placement.precision.compute == "bfloat16" else torch.float32
            model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype, local_files_only=True)
            if model.config.num_labels != 1:
                raise ValueError(
                    f"{folder}: the reward model has {model.config.num_labels} outputs; use a model with one output"
                )
            model.config.pad_token_id = self.tokenizer.pad_token_id
            return model.to(placement.before_sharding).eval().requires_grad_(False)

        self.model = placement.shard(ranks.build(load))
        self.micro_batch = MicroBatch(batch_size, ranks=ranks)

    @torch.no_grad()
    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> Tensor:
        """Return one reward per response, (N,), on the CPU.

        The model's own tokenizer reads the texts. Texts that are too long lose the beginning of the prompt.
        """

        def judge(texts: Sequence[str]) -> Tensor:
            return scores(self.model, self.tokenizer, self.placement, texts).cpu()

        return torch.cat(self.micro_batch.run(pair_texts(self.tokenizer, prompts, responses), judge))


def prepare_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Return the tokenizer with a padding token and with truncation on the left, so that responses are kept."""
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.truncation_side = "left"
    return tokenizer


def pair_texts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
    """Return the texts that a reward model reads: chats in its template, or `prompt response` without a template."""
    pairs = list(zip(prompts, without_special_tokens(tokenizer, responses), strict=True))
    if tokenizer.chat_template is None:
        return [f"{prompt} {response}" for prompt, response in pairs]
    chats = [[{"role": "user", "content": p}, {"role": "assistant", "content": r}] for p, r in pairs]
    return [tokenizer.apply_chat_template(chat, tokenize=False) for chat in chats]


def ids_around(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]
) -> tuple[Sequence[list[int]], Sequence[list[int]]]:
    """Return the token ids before and after each response in its chat; the tokenizer must have a chat template."""
    mark = "RESPONSE"
    texts = [text.rpartition(mark) for text in pair_texts(tokenizer, prompts, [mark] * len(prompts))]
    heads, _, tails = zip(*texts, strict=True)
    before, after = (tokenizer(list(each), add_special_tokens=False)["input_ids"] for each in (heads, tails))
    return before, after


def scores(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, placement: Placement, texts: Sequence[str]
) -> Tensor:
    """Return the float32 scores (N,) of texts from `pair_texts`, with gradient if the model is trainable."""
    inputs = tokenizer(
        list(texts),
        padding=True,
        truncation=True,
        add_special_tokens=tokenizer.chat_template is None,  # a chat template writes them itself
        return_token_type_ids=False,
        return_tensors="pt",
    )
    with placement.autocast():
        return model(**inputs.to(placement.device)).logits[:, 0].float()


def load_reward_model(stage: Stage, settings: Reward, placement: Placement) -> RewardModel | None:
    """Return the reward model of a stage; None if its weight `settings.model` is 0."""
    return RewardModel(reward_model_folder(stage), placement) if settings.model > 0 else None
