"""Task `knights_knaves`: puzzles about knights, who always tell the truth, and knaves, who always lie.

The textual form follows the puzzles of Xie et al. (arXiv 2410.23123) and the prompts of Logic-RL (arXiv 2502.14768);
the generator and the checker are new. As in Logic-RL, no puzzle is in two splits. Puzzles are drawn independently, so
they have no clusters.
"""

import itertools
import random
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.tasks.interface import Problem, bucket, draw_splits, rule_reward, tagged_answer
from trainers.tasks.settings import KnightsKnaves

LETTERS = tuple("ABCDEFGH")
NAMES = ("Avery", "Chloe", "Daniel", "Ella", "Ethan", "Jacob", "Lily", "Michael", "Noah", "Olivia", "Samuel", "Zoey")
CONNECTIVES = ("and", "or", "iff", "if")
WORDS = (
    *LETTERS,
    *("K", "N", "knight", "knave", ":", ";", "?"),
    *CONNECTIVES,
    *("ok", "bad", "<think>", "</think>", "<answer>", "</answer>"),
)
INSTRUCTION = (
    "You are a helpful assistant. First think about the reasoning in the mind, then give the answer. Write the "
    "reasoning within <think> </think> and the answer within <answer> </answer>, with nothing else around them. The "
    "answer states for every person who is a knight and who is a knave, for example: "
    "<answer> Zoey is a knight, Ethan is a knave </answer>"
)


@dataclass(frozen=True)
class Atom:
    """Claim that the person with this number is a knight, or a knave if `knight` is false."""

    person: int
    knight: bool


@dataclass(frozen=True)
class Statement:
    """One atom (connective None), or two that are joined by `and`, `or`, `iff` or `if` (`left` implies `right`)."""

    connective: str | None
    left: Atom
    right: Atom | None = None


Structure = tuple[Statement, ...]  # person i makes statement i


def holds(statement: Statement, knights: Sequence[bool]) -> bool:
    """Return whether a statement is true. knights: whether each person is a knight."""
    left = knights[statement.left.person] == statement.left.knight
    if statement.right is None:
        return left
    right = knights[statement.right.person] == statement.right.knight
    match statement.connective:
        case "and":
            return left and right
        case "or":
            return left or right
        case "iff":
            return left == right
    return not left or right  # if


def solutions(structure: Structure) -> list[tuple[bool, ...]]:
    """Return all assignments in which the statements of knights are true and those of knaves are false."""
    hypotheses = itertools.product((True, False), repeat=len(structure))
    return [knights for knights in hypotheses if all(_verdicts(structure, knights))]


def _verdicts(structure: Structure, knights: Sequence[bool]) -> list[bool]:
    return [holds(statement, knights) == knights[speaker] for speaker, statement in enumerate(structure)]


def _random_structure(people: int, rng: random.Random) -> Structure:
    statements = []
    for _ in range(people):
        connective = rng.choice((None, *CONNECTIVES))
        if connective is None:
            statements.append(Statement(None, Atom(rng.randrange(people), rng.random() < 0.5)))
        else:
            left, right = rng.sample(range(people), 2)
            statements.append(Statement(connective, Atom(left, rng.random() < 0.5), Atom(right, rng.random() < 0.5)))
    return tuple(statements)


@dataclass(frozen=True)
class Puzzles:
    """The task `knights_knaves` in its compact or textual form."""

    settings: KnightsKnaves

    @property
    def words(self) -> tuple[str, ...] | None:
        """Return the vocabulary of the compact form; None for the textual form, which needs a pretrained tokenizer."""
        return WORDS if self.settings.form == "compact" else None

    @property
    def instruction(self) -> str | None:
        """Return the system message of the textual form; None for the compact form."""
        return None if self.settings.form == "compact" else INSTRUCTION

    def splits(self, sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
        """Return {split: distinct puzzles}, each with exactly one solution."""
        rng = random.Random(f"knights-knaves-{seed}")

        def draw(missing: list[str], taken: Container[str]) -> tuple[str, Problem] | None:
            structure = _random_structure(self.settings.people, rng)
            if len(solutions(structure)) != 1:
                return None
            split = rng.choice(missing)
            return split, self._problem(structure, split, rng)

        return draw_splits(sizes, draw, "request fewer problems, or more people")

    def _problem(self, structure: Structure, split: str, rng: random.Random) -> Problem:
        names = rng.sample(LETTERS if self.settings.form == "compact" else NAMES, len(structure))
        (solution,) = solutions(structure)
        demonstration = None
        if split == "warm":
            demonstration = self._demonstration(
                structure, names, solution, sloppy=rng.random() < self.settings.sloppy, rng=rng
            )
        prompt = _compact(structure, names) if self.settings.form == "compact" else _textual(structure, names)
        answer = " ".join(f"{name} {_role(knight)}" for name, knight in zip(names, solution, strict=True))
        return Problem(f"kk-{bucket(prompt, 16**12):012x}", prompt, answer, demonstration)

    def _demonstration(
        self,
        structure: Structure,
        names: Sequence[str],
        solution: tuple[bool, ...],
        *,
        sloppy: bool,
        rng: random.Random,
    ) -> str:
        """Return a worked response: a trace that tests hypotheses until one is consistent, and the answer.

        A sloppy trace accepts a random hypothesis without a test.
        """
        hypotheses = list(itertools.product((True, False), repeat=len(structure)))
        if sloppy:
            solution = rng.choice(hypotheses)
            steps = [(solution, [True] * len(structure))]
        else:
            tried = hypotheses[: hypotheses.index(solution) + 1]
            steps = [(knights, _verdicts(structure, knights)) for knights in tried]
        if self.settings.form == "compact":
            trace = " ".join(
                " ".join(
                    ["K" if knight else "N" for knight in knights] + ["ok" if good else "bad" for good in verdicts]
                )
                for knights, verdicts in steps
            )
            answer = " ".join(f"{name} {_role(knight)}" for name, knight in zip(names, solution, strict=True))
        else:
            trace = " ".join(_textual_step(names, knights, verdicts) for knights, verdicts in steps)
            answer = _list([f"{name} is a {_role(knight)}" for name, knight in zip(names, solution, strict=True)])
        return f"<think> {trace} </think> <answer> {answer} </answer>"

    def reward(self, problem: Problem, response: str) -> float:
        """Return the sum of format reward and answer reward of Logic-RL, from -3 to 3."""
        predicted = self._given(problem, response)
        return rule_reward(response, None if predicted is None else predicted == _roles(problem.answer))

    def correct(self, problem: Problem, response: str) -> bool:
        """Return whether the response has the right form and states the right role of every person."""
        return self._given(problem, response) == _roles(problem.answer)

    def _given(self, problem: Problem, response: str) -> dict[str, str] | None:
        """Return {person: role} as the response states it; None unless it states exactly one role for each person."""
        answer = tagged_answer(response)
        if answer is None:
            return None
        people = _roles(problem.answer)
        if self.settings.form == "compact":
            words = answer.split()
            pairs = list(zip(words[::2], words[1::2], strict=False)) if len(words) == 2 * len(people) else []
        else:
            pairs = re.findall(rf"\b({'|'.join(people)})\b\s+is\s+a\s+(knight|knave)\b", answer)
        predicted = dict(pairs)
        readable = len(pairs) == len(people) and predicted.keys() == people.keys()
        return predicted if readable and set(predicted.values()) <= {"knight", "knave"} else None


def create(settings: KnightsKnaves, source: Path | None = None) -> Puzzles:
    """Return the task `knights_knaves`, which does not use the data asset `source`."""
    return Puzzles(settings)


def _role(knight: bool) -> str:
    return "knight" if knight else "knave"


def _roles(answer: str) -> dict[str, str]:
    words = answer.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _compact(structure: Structure, names: Sequence[str]) -> str:
    def atom(a: Atom) -> str:
        return f"{names[a.person]} {'K' if a.knight else 'N'}"

    spoken = []
    for name, statement in zip(names, structure, strict=True):
        atoms = [atom(statement.left)] if statement.right is None else [atom(statement.left), atom(statement.right)]
        spoken.append(" ".join([name, ":", *([statement.connective] if statement.connective else []), *atoms]))
    return " ; ".join(spoken) + " ?"


def _textual(structure: Structure, names: Sequence[str]) -> str:
    def atom(a: Atom) -> str:
        return f"{names[a.person]} is a {_role(a.knight)}"

    forms = {"and": "{} and {}", "or": "{} or {}", "iff": "{} if and only if {}", "if": "If {} then {}"}
    spoken = [
        f'{name} says, "'
        + (atom(s.left) if s.right is None else forms[s.connective or ""].format(atom(s.left), atom(s.right)))
        + '."'
        for name, s in zip(names, structure, strict=True)
    ]
    return (
        "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves "
        f"always lie. You meet {len(names)} inhabitants: {_list(list(names))}. {' '.join(spoken)} "
        "So who is a knight and who is a knave?"
    )


def _textual_step(names: Sequence[str], knights: Sequence[bool], verdicts: Sequence[bool]) -> str:
    guess = _list([f"{name} is a {_role(knight)}" for name, knight in zip(names, knights, strict=True)])
    wrong = [name for name, good in zip(names, verdicts, strict=True) if not good]
    return f"Suppose {guess}. " + (f"That contradicts what {_list(wrong)} says." if wrong else "Every statement fits.")


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
