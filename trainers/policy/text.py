"""Tokenizers, and conversion between texts and token ids; models from scratch have word-level tokenizers."""

import re
from collections.abc import Sequence
from functools import partial

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from trainers.tasks.interface import Problem

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer for `words` separated by white space, with the special tokens <pad>, <eos> and <unk>."""
    vocabulary = {word: index for index, word in enumerate((PAD, EOS, UNKNOWN, *words))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, problem: Problem, instruction: str | None = None) -> list[int]:
    """Return a problem's prompt as ids: in the tokenizer's chat template, or as messages separated by blank lines."""
    system = [] if instruction is None else [{"role": "system", "content": instruction}]
    chat = [*system, *problem.earlier, {"role": "user", "content": problem.prompt}]
    if tokenizer.chat_template is None:
        text = "\n\n".join(message["content"] for message in chat)
        return tokenizer(text if instruction is None else f"{text}\n", add_special_tokens=True)["input_ids"]
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]


def response_tokens(tokenizer: PreTrainedTokenizerBase, response: str) -> list[int]:
    """Return the ids of a complete response, including the end-of-sequence token."""
    return [*tokenizer(response, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def token_lists(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """Return the ids of responses (N, T) as lists without padding."""
    return [row[keep].tolist() for row, keep in zip(ids.cpu(), mask.cpu().bool(), strict=True)]


def decode(tokenizer: PreTrainedTokenizerBase, ids: Tensor, mask: Tensor) -> list[str]:
    """Return the texts of responses (N, T) without padding and end-of-sequence token.

    Other special tokens stay visible, because they change an answer and readers of samples should see them.
    """
    rows, end = token_lists(ids, mask), tokenizer.eos_token_id
    return tokenizer.batch_decode([row[:-1] if row[-1:] == [end] else row for row in rows], skip_special_tokens=False)


def without_special_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[str]:
    """Return texts without the tokenizer's special tokens, which a model would read as parts of the chat template."""
    marks = re.compile("|".join(map(re.escape, tokenizer.all_special_tokens)) or "$^")
    return [marks.sub("", text) for text in texts]


def pad_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the padding id, or the end-of-sequence id if the tokenizer has no padding token."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def pad(rows: Sequence[Sequence[int]], value: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Return (ids, mask), both int64 (rows, longest row), padded with `value` on the left or on the right."""
    padded = partial(pad_sequence, batch_first=True, padding_side="left" if left else "right")
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    return padded(ids, padding_value=value), padded([torch.ones_like(row) for row in ids])
