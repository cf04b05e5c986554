"""Task `templated_lists`: sort three or four things and write them in a given style.

    casual list these fruit : plum apple mango ?
    hey , your sorted fruit : 1 apple 2 mango 3 plum . total 3 . cheers

A response has four parts (opening, list, total, closing), so it can be partly right. The expected answer is the whole
response, which a student can imitate (study `gad`). Worked responses have independent flaws: the opening or the closing
of another style, a wrong order, or a wrong total.
"""

import random
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainers.tasks.interface import Problem, bucket, draw_splits, places
from trainers.tasks.settings import TemplatedLists

THINGS = {
    "fruit": ("apple", "banana", "cherry", "grape", "lemon", "mango", "peach", "plum"),
    "tools": ("axe", "chisel", "drill", "file", "hammer", "pliers", "saw", "wrench"),
    "birds": ("crow", "duck", "eagle", "finch", "heron", "owl", "raven", "swan"),
}
OPENINGS = {"formal": "dear reader , the sorted", "casual": "hey , your sorted", "brief": "sorted"}
CLOSINGS = {"formal": "kind regards", "casual": "cheers", "brief": "done"}
SMALLEST, LARGEST = 3, 4
NUMBERS = tuple("12345")
WORDS = (
    *OPENINGS,
    *("list", "these", "?", ":", ".", "total"),
    *dict.fromkeys(word for text in (*OPENINGS.values(), *CLOSINGS.values()) for word in text.split()),
    *NUMBERS,
    *THINGS,
    *(thing for things in THINGS.values() for thing in things),
)
_PROMPT = re.compile(r"(\w+) list these (\w+) : ([\w ]+) \?")
_RESPONSE = re.compile(r"(.*?) (\w+) : ([\w ]*?) \. total (\d+) \.(.*)")


@dataclass(frozen=True)
class Lists:
    """The task `templated_lists`, which has only a compact form."""

    settings: TemplatedLists
    words: tuple[str, ...] = WORDS
    instruction: None = None

    def splits(self, sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
        """Return {split: distinct problems}; the set of things decides between training, dev and test."""
        rng = random.Random(f"templated lists {seed}")

        def draw(missing: list[str], taken: Container[str]) -> tuple[str, Problem] | None:
            style, category = rng.choice(list(OPENINGS)), rng.choice(list(THINGS))
            things = rng.sample(THINGS[category], rng.randint(SMALLEST, LARGEST))
            prompt = f"{style} list these {category} : {' '.join(things)} ?"
            cluster = f"{category} {' '.join(sorted(things))}"  # prompts with the same things in any style and order
            candidates = [split for split in places(cluster) if split in missing]
            if not candidates or prompt in taken:
                return None
            split = rng.choice(candidates)
            worked = self._flawed(style, category, things, rng) if split == "warm" else None
            answer = _write(style, category, sorted(things), len(things), style)
            return split, Problem(f"list-{bucket(prompt, 16**12):012x}", prompt, answer, worked, cluster)

        return draw_splits(sizes, draw, "request fewer problems")

    def reward(self, problem: Problem, response: str) -> float:
        """Return the mean reward of the four parts, in [0, 1]."""
        return sum(self.parts(problem, response).values()) / 4

    def parts(self, problem: Problem, response: str) -> dict[str, float]:
        """Return {part: reward in [0, 1]} for opening, list, total and closing; all 0 if the response lacks a part."""
        style, category, things = _read(problem.prompt)
        match = _RESPONSE.fullmatch(" ".join(response.split()))
        if match is None:
            return dict.fromkeys(("opening", "list", "total", "closing"), 0.0)
        opening, named, listed, total, closing = match.groups()
        expected = [f"{number} {thing}" for number, thing in enumerate(sorted(things), 1)]
        words = listed.split()
        predicted = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
        right = sum(a == b for a, b in zip(expected, predicted, strict=False))
        return {
            "opening": float(opening == OPENINGS[style] and named == category),
            "list": right / max(len(expected), len(predicted)),
            "total": float(total == str(len(things))),
            "closing": float(closing.strip() == CLOSINGS[style]),
        }

    def correct(self, problem: Problem, response: str) -> bool:
        """Return whether the response equals the expected one, apart from white space."""
        return response.split() == problem.answer.split()

    def _flawed(self, style: str, category: str, things: list[str], rng: random.Random) -> str:
        flaws = [rng.random() < self.settings.sloppy for _ in range(4)]
        others = [other for other in OPENINGS if other != style]
        order = list(things) if flaws[1] else sorted(things)
        total = len(things) + rng.choice((-1, 1)) if flaws[2] else len(things)
        closing = rng.choice(others) if flaws[3] else style
        return _write(rng.choice(others) if flaws[0] else style, category, order, total, closing)


def create(settings: TemplatedLists, source: Path | None = None) -> Lists:
    """Return the task `templated_lists`, which does not use the data asset `source`."""
    return Lists(settings)


def _write(opening: str, category: str, things: list[str], total: int, closing: str) -> str:
    listed = " ".join(f"{number} {thing}" for number, thing in enumerate(things, 1))
    return f"{OPENINGS[opening]} {category} : {listed} . total {total} . {CLOSINGS[closing]}"


def _read(prompt: str) -> tuple[str, str, list[str]]:
    match = _PROMPT.fullmatch(prompt)
    if match is None:
        raise ValueError(f"{prompt!r} is not a prompt of the task templated_lists")
    return match[1], match[2], match[3].split()
