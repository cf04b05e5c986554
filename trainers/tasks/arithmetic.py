"""Task `arithmetic`: sums, differences and products of whole numbers; compact prompts have one token per digit."""

import operator
import random
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainers.tasks.interface import Problem, draw_splits, places, rule_reward, tagged_answer
from trainers.tasks.settings import Arithmetic

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}
NAMES = {"+": "plus", "-": "minus", "*": "times"}
WORDS = (*"0123456789", "+", "-", "*", "=", "<think>", "</think>", "<answer>", "</answer>")
INSTRUCTION = (
    "You are a helpful assistant. Write the reasoning within <think> </think> and the answer, a whole number, within "
    "<answer> </answer>, with nothing else around them."
)


@dataclass(frozen=True)
class Sums:
    """The task `arithmetic` in its compact or textual form."""

    settings: Arithmetic

    @property
    def words(self) -> tuple[str, ...] | None:
        """Return the vocabulary of the compact form; None for the textual form, which needs a pretrained tokenizer."""
        return WORDS if self.settings.form == "compact" else None

    @property
    def instruction(self) -> str | None:
        """Return the system message of the textual form; None for the compact form."""
        return None if self.settings.form == "compact" else INSTRUCTION

    def splits(self, sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
        """Return {split: distinct problems}; the text of a problem decides between training, dev and test."""
        rng = random.Random(f"arithmetic-{seed}")

        def draw(missing: list[str], taken: Container[str]) -> tuple[str, Problem] | None:
            left, right = (rng.randrange(10 ** rng.randint(1, self.settings.digits)) for _ in range(2))
            sign = rng.choice(self.settings.operations)
            if sign == "-" and right > left:
                left, right = right, left  # no negative results
            candidates = [split for split in places(f"{left} {sign} {right}") if split in missing]
            if self.words:
                prompt = f"{_spell(left)} {sign} {_spell(right)} ="
            else:
                prompt = f"What is {left} {NAMES[sign]} {right}?"
            if not candidates or prompt in taken:
                return None
            split = rng.choice(candidates)
            result = str(OPERATIONS[sign](left, right))
            shown = self._demonstration(result, rng) if split == "warm" else None
            return split, Problem(f"sum-{left}{sign}{right}", prompt, result, shown)

        return draw_splits(sizes, draw, "request fewer problems, or more digits")

    def _demonstration(self, result: str, rng: random.Random) -> str:
        shown = result
        if rng.random() < self.settings.sloppy:
            place = rng.randrange(len(result))
            shown = result[:place] + rng.choice("0123456789") + result[place + 1 :]
        answer = _spell(shown) if self.words else shown
        return f"<think> </think> <answer> {answer} </answer>"

    def reward(self, problem: Problem, response: str) -> float:
        """Return the sum of the format reward and the answer reward, from -3 to 3."""
        predicted = _number(response)
        return rule_reward(response, None if predicted is None else predicted == int(problem.answer))

    def correct(self, problem: Problem, response: str) -> bool:
        """Return whether the response has the right form and the right number as its answer."""
        return _number(response) == int(problem.answer)


def create(settings: Arithmetic, source: Path | None = None) -> Sums:
    """Return the task `arithmetic`, which does not use the data asset `source`."""
    return Sums(settings)


def _spell(number: int | str) -> str:
    return " ".join(str(number))


def _number(response: str) -> int | None:
    answer = tagged_answer(response)
    if answer is None:
        return None
    text = re.sub(r"[\s,]", "", answer)
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else None
