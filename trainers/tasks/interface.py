"""Interface of tasks for policy optimisation: problems, rewards by rule, and correctness of answers.

A task is a module in this package with `create(settings, source) -> Task`; its settings are in
`trainers.tasks.settings`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

SPLITS = ("warm", "train", "dev", "test")
_PATIENCE = 5_000  # number of useless random problems in a row after which no others are expected


@dataclass(frozen=True)
class Problem:
    """Problem with its prompt and its expected answer.

    answer: a teacher's whole response in study `gad`; empty if only a reward model judges responses. demonstration: a
    worked response for the warm start. cluster: name of a group of similar problems in the same split, which a policy
    tends to answer all rightly or all wrongly; None: the problem was drawn independently, or its cluster is unknown.
    earlier: messages of the chat before the prompt, each with role and content.
    """

    id: str
    prompt: str
    answer: str
    demonstration: str | None = None
    cluster: str | None = None
    earlier: list[dict[str, str]] = field(default_factory=list, hash=False)

    @property
    def chat(self) -> str:
        """Return the chat as one text, with roles if the chat has several messages."""
        if not self.earlier:
            return self.prompt
        messages = [*self.earlier, {"role": "user", "content": self.prompt}]
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


class Task(Protocol):
    """Source of problems, with a rule that checks responses.

    words: the whole vocabulary, if a small model with a word-level tokenizer can do the task; None if the task needs a
    pretrained tokenizer. instruction: system message of the chat; None for no system message.
    """

    words: tuple[str, ...] | None
    instruction: str | None

    def splits(self, sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
        """Return {split: problems} for warm (with demonstrations), train, dev and test, which share no problem."""

    def reward(self, problem: Problem, response: str) -> float:
        """Return the rule's reward of a response, which must depend only on the problem and the response."""

    def correct(self, problem: Problem, response: str) -> bool:
        """Return whether the response has the right answer in the right form."""


def by_rule(
    task: Task, problems: Iterable[Problem], responses: Iterable[str], ended: Iterable[bool]
) -> tuple[list[float], list[float]]:
    """Return the rule's rewards for the responses, and whether each response is correct (1 or 0).

    Response i answers problem i. A truncated response, for which `ended` is false, is judged like an empty one.
    """
    rows = [
        (problem, text if finished else "") for problem, text, finished in zip(problems, responses, ended, strict=True)
    ]
    judged = {row: (task.reward(*row), float(task.correct(*row))) for row in dict.fromkeys(rows)}  # many rows repeat
    return [judged[row][0] for row in rows], [judged[row][1] for row in rows]


def bucket(text: str, buckets: int) -> int:
    """Return a hash of `text` in [0, buckets), which is the same in every process and on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % buckets


def places(text: str) -> list[str]:
    """Return the splits that may have the problem with this text, which depend on a hash of the text.

    The seed has no influence, so no seed trains on a test problem of another seed. A fifth of all texts is for test, a
    tenth for dev, and the rest for warm and train.
    """
    return {0: ["test"], 1: ["test"], 2: ["dev"]}.get(bucket(text, 10), ["warm", "train"])


def draw_splits(
    sizes: Mapping[str, int], draw: Callable[[list[str], Container[str]], tuple[str, Problem] | None], advice: str
) -> dict[str, list[Problem]]:
    """Return {split: random problems} with distinct prompts, `sizes[split]` of them.

    draw: takes the splits that lack problems and the prompts in use; returns one of these splits and a random problem
    for it, or None if the drawn problem cannot be used. advice: remedy in the error message. Raises ValueError if there
    are too few distinct problems.
    """
    splits: dict[str, list[Problem]] = {split: [] for split in SPLITS}
    taken: set[str] = set()
    idle = 0
    while missing := [split for split in SPLITS if len(splits[split]) < sizes[split]]:
        idle += 1
        if idle > _PATIENCE:
            wanted = ", ".join(f"{split} {size}" for split, size in sizes.items())
            raise ValueError(f"data: the task has too few distinct problems for the sizes {wanted}; {advice}")
        drawn = draw(missing, taken)
        if drawn is None or drawn[1].prompt in taken:
            continue
        split, problem = drawn
        splits[split].append(problem)
        taken.add(problem.prompt)
        idle = 0
    return splits


def clusters_of(problems: Iterable[Problem]) -> dict[str, str] | None:
    """Return {problem id: cluster}; None if any problem has no cluster."""
    clusters = {problem.id: problem.cluster for problem in problems}
    named = {id: cluster for id, cluster in clusters.items() if cluster is not None}
    return named if len(named) == len(clusters) else None


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write problems to a file with one JSON object per line."""
    path.write_text("".join(json.dumps(asdict(problem)) + "\n" for problem in problems), encoding="utf-8")


def read_problems(path: Path) -> list[Problem]:
    """Return the problems in a file that `write_problems` wrote."""
    return [Problem(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


# Responses of the form `<think> ... </think> <answer> ... </answer>` and the rule reward of Logic-RL (arXiv 2502.14768,
# section 3.2): format +1 or -1; answer +2 if right, -1.5 if wrong, -2 if it cannot be read.
FORMAT_REWARD = 1.0
RIGHT, WRONG, UNREADABLE = 2.0, -1.5, -2.0

# With more than two characters of white space around the tags, a policy could fill its length limit at full reward.
_FORM = re.compile(r"\s{0,2}<think>(.*?)</think>\s{0,2}<answer>(.*?)</answer>\s{0,2}", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def tagged_answer(response: str) -> str | None:
    """Return the text between the answer tags; None if the response does not have the form of thinking and answer.

    The form is `<think>...</think><answer>...</answer>`, with each tag once, and with at most two characters of white
    space before, between and after the two parts.
    """
    match = _FORM.fullmatch(response)
    if match is None or any(response.count(tag) != 1 for tag in _TAGS):
        return None
    return match.group(2).strip()


def rule_reward(response: str, right: bool | None) -> float:
    """Return the sum of format reward and answer reward, from -3 to 3. right: None if the answer cannot be read."""
    if tagged_answer(response) is None:
        return -FORMAT_REWARD + UNREADABLE
    return FORMAT_REWARD + (UNREADABLE if right is None else RIGHT if right else WRONG)
