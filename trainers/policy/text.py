"""Tokenizers: a word-level one for small vocabularies, the model's own with its chat template otherwise."""

import re
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from trainers.tasks.interface import Problem

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"


def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are `words`, separated by white space, and <pad>, <eos>, <unk>."""
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
    """Return the ids that a response follows: through the chat template, else the contents, a blank line between."""
    system = [] if instruction is None else [{"role": "system", "content": instruction}]
    chat = [*system, *problem.earlier, {"role": "user", "content": problem.prompt}]
    if tokenizer.chat_template is None:
        text = "\n\n".join(message["content"] for message in chat)
        return tokenizer(text if instruction is None else f"{text}\n", add_special_tokens=True)["input_ids"]
    return tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]


def response_tokens(tokenizer: PreTrainedTokenizerBase, response: str) -> list[int]:
    """Return the ids of a whole response, the end-of-sequence token included."""
    return [*tokenizer(response, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def token_lists(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """Return the ids of responses (N, T) without padding."""
    return [row[keep].tolist() for row, keep in zip(ids.cpu(), mask.cpu().bool(), strict=True)]


def decode(tokenizer: PreTrainedTokenizerBase, ids: Tensor, mask: Tensor) -> list[str]:
    """Return the texts of responses (N, T) without padding and end-of-sequence token; other special tokens are shown.

    An answer with a special token in it is another answer, and whoever reads samples should see it.
    """
    rows, end = token_lists(ids, mask), tokenizer.eos_token_id
    return tokenizer.batch_decode([row[:-1] if row[-1:] == [end] else row for row in rows], skip_special_tokens=False)


def without_special_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[str]:
    """Return texts without the special tokens of this tokenizer, which a model would take for the marks of a chat."""
    marks = re.compile("|".join(map(re.escape, tokenizer.all_special_tokens)) or "$^")
    return [marks.sub("", text) for text in texts]


def pad_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the padding id; a tokenizer without one pads with its end-of-sequence token (masks tell them apart)."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def pad(rows: Sequence[Sequence[int]], value: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """Return (ids, mask), both (rows, longest row), int64; `left`: padding comes first."""
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    width = int(lengths.max())
    fills = [[value] * (width - len(row)) for row in rows]
    padded = [[*fill, *row] if left else [*row, *fill] for row, fill in zip(rows, fills, strict=True)]
    columns = torch.arange(width)
    mask = columns >= width - lengths if left else columns < lengths
    return torch.tensor(padded, dtype=torch.long), mask.long()
