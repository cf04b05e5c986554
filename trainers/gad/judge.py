"""A judge of two responses to a prompt: a reward model by its scores, any chat model by the letter that it names."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from trainers.micro_batch import MicroBatch
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.rewards import RewardModel
from trainers.policy.text import message_tokens, pad, pad_token, without_special_tokens
from trainers.policy.value_model import is_language_model

Judge = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[float]]
QUESTION = """Which response answers better?

[Conversation]
{prompt}

[Response A]
{first}

[Response B]
{second}

Answer with one letter: A, B, or C if they are equally good."""
WINS = {"A": 1.0, "B": 0.0, "C": 0.5}  # of the first response


def load_judge(folder: Path, placement: Placement, batch_size: int) -> Judge:
    """Return what judges N responses against N references to N prompts: 1 a win, 0.5 a tie, 0 a loss.

    A text that is its reference ties, whatever the judge says.
    """
    prefers = _by_letter(folder, placement, batch_size) if is_language_model(folder) else _by_score(folder, placement)

    def judge(prompts: Sequence[str], responses: Sequence[str], references: Sequence[str]) -> list[float]:
        wins = prefers(prompts, responses, references).tolist()
        pairs = zip(wins, responses, references, strict=True)
        return [0.5 if response == reference else win for win, response, reference in pairs]

    return judge


def _by_score(folder: Path, placement: Placement) -> Callable[..., Tensor]:
    model = RewardModel(folder, placement)
    return lambda prompts, first, second: 0.5 + 0.5 * (model(prompts, first) - model(prompts, second)).sign()


def _by_letter(folder: Path, placement: Placement, batch_size: int) -> Callable[..., Tensor]:
    """Return the mean over both orders of the two responses, as judges prefer a place (Zheng et al. 2023)."""
    tokenizer, ranks = load_tokenizer(folder), placement.ranks
    letters = [tokenizer(letter, add_special_tokens=False)["input_ids"] for letter in WINS]
    if any(len(ids) != 1 for ids in letters) or len({ids[0] for ids in letters}) < len(WINS):
        raise ValueError(f"{folder}: the letters {', '.join(WINS)} must be one token each for it to judge")
    model = load_policy(folder, placement.device, placement.precision)
    memory, wins = MicroBatch(batch_size, ranks=ranks), torch.tensor(list(WINS.values()))

    @torch.no_grad()
    def named(questions: Sequence[str]) -> Tensor:
        ids = [message_tokens(tokenizer, [{"role": "user", "content": text}]) for text in questions]
        tokens, mask = (part.to(placement.device) for part in pad(ids, pad_token(tokenizer), left=False))
        with placement.autocast():
            logits = model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
        last = logits[torch.arange(len(ids)), mask.sum(1) - 1]
        return wins[last[:, [ids[0] for ids in letters]].argmax(1).cpu()]

    def first_wins(prompts: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Tensor:
        plain = (without_special_tokens(tokenizer, texts) for texts in (first, second))
        texts = zip(prompts, *plain, strict=True)
        asked = [QUESTION.format(prompt=prompt, first=a, second=b) for prompt, a, b in texts]
        return torch.cat(memory.run(asked, named))

    return lambda prompts, first, second: (
        0.5 * (first_wins(prompts, first, second) + 1 - first_wins(prompts, second, first))
    )
