"""Interface of a task for policy optimisation: problems, a rule reward, and whether an answer is right.

A task is a module here with `create(settings, source) -> Task`; its settings, of the same name, are in
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
_PATIENCE = 5_000  # random problems in a row of which none is new and wanted, before there are taken to be no more


@dataclass(frozen=True)
class Problem:
    """One problem: what the policy reads, the expected answer, and a worked response for the supervised warm start.

    answer: empty for a prompt that only a reward model judges; of a teacher, its whole response. cluster: problems of
    one cluster came into the split together and have so much in common that a policy is likely to be right or wrong at
    all of them; None: each problem was drawn by itself, or nothing is known. earlier: the chat's messages before the
    prompt, each with role and content.
    """

    id: str
    prompt: str
    answer: str
    demonstration: str | None = None
    cluster: str | None = None
    earlier: list[dict[str, str]] = field(default_factory=list, hash=False)

    @property
    def chat(self) -> str:
        """Return the chat as one text; roles are named if there are several messages."""
        if not self.earlier:
            return self.prompt
        messages = [*self.earlier, {"role": "user", "content": self.prompt}]
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages)


class Task(Protocol):
    """Problems that can be checked by a rule.

    `words` is the whole vocabulary where a small model with a word-level tokenizer can do the task (words are what
    white space separates); None if the text needs a pretrained tokenizer. `instruction` is the system message of a
    chat template, None without one.
    """

    words: tuple[str, ...] | None
    instruction: str | None

    def splits(self, sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
        """Return the problems of warm (with demonstrations), train, dev and test; no test problem stands elsewhere."""

    def reward(self, problem: Problem, response: str) -> float:
        """Return the reward of a response by rule, always the same for the same problem and response."""

    def correct(self, problem: Problem, response: str) -> bool:
        """Return whether the response holds the right answer in the right form."""


def by_rule(
    task: Task, problems: Iterable[Problem], responses: Iterable[str], ended: Iterable[bool]
) -> tuple[list[float], list[float]]:
    """Return the rewards of responses, and their correctness as 0 or 1; problem i belongs to response i.

    A response that was cut, and did not end by itself, gave no answer: it is judged as an empty one.
    """
    rows = [
        (problem, text if finished else "") for problem, text, finished in zip(problems, responses, ended, strict=True)
    ]
    judged = {row: (task.reward(*row), float(task.correct(*row))) for row in dict.fromkeys(rows)}  # most are repeated
    return [judged[row][0] for row in rows], [judged[row][1] for row in rows]


def bucket(text: str, buckets: int) -> int:
    """Return a number in [0, buckets) that depends on `text` alone: the same in every process and on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % buckets


def places(text: str) -> list[str]:
    """Return the splits that a problem may be in: by `text` alone, so that no seed trains on another's test problem.

    A fifth of all texts is for test, a tenth for dev; warm and train share the rest.
    """
    return {0: ["test"], 1: ["test"], 2: ["dev"]}.get(bucket(text, 10), ["warm", "train"])


def draw_splits(
    sizes: Mapping[str, int], draw: Callable[[list[str], Container[str]], tuple[str, Problem] | None], advice: str
) -> dict[str, list[Problem]]:
    """Return splits of these sizes of problems with distinct prompts.

    draw: called with the splits that lack problems and the prompts that are taken; returns one of the splits and a
    random problem for it, or None if what it drew is of no use. advice: what to do if there are too few problems.
    """
    splits: dict[str, list[Problem]] = {split: [] for split in SPLITS}
    taken: set[str] = set()
    idle = 0
    while missing := [split for split in SPLITS if len(splits[split]) < sizes[split]]:
        idle += 1
        if idle > _PATIENCE:
            raise ValueError(f"data: there are too few distinct problems for {dict(sizes)}; {advice}")
        drawn = draw(missing, taken)
        if drawn is None or drawn[1].prompt in taken:
            continue
        split, problem = drawn
        splits[split].append(problem)
        taken.add(problem.prompt)
        idle = 0
    return splits


def clusters_of(problems: Iterable[Problem]) -> dict[str, str] | None:
    """Return {id: cluster} for `Stage.save_items`; None if a problem has none."""
    clusters = {problem.id: problem.cluster for problem in problems}
    named = {id: cluster for id, cluster in clusters.items() if cluster is not None}
    return named if len(named) == len(clusters) else None


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write one JSON object per line."""
    path.write_text("".join(json.dumps(asdict(problem)) + "\n" for problem in problems), encoding="utf-8")


def read_problems(path: Path) -> list[Problem]:
    """Read what `write_problems` wrote."""
    return [Problem(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


# Responses of the form `<think> ... </think> <answer> ... </answer>` and the rule reward of Logic-RL (arXiv 2502.14768,
# section 3.2): format +1 or -1; answer +2 if right, -1.5 if wrong, -2 if it cannot be read.
FORMAT_REWARD = 1.0
RIGHT, WRONG, UNREADABLE = 2.0, -1.5, -2.0

# Between and after the tags a blank line is form; more would let a policy fill its limit at the full reward.
_FORM = re.compile(r"\s{0,2}<think>(.*?)</think>\s{0,2}<answer>(.*?)</answer>\s{0,2}", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def tagged_answer(response: str) -> str | None:
    """Return the text between the answer tags; None unless each tag stands once, in order, with no text around.

    Between and around the tags at most two characters of white space are allowed.
    """
    match = _FORM.fullmatch(response)
    if match is None or any(response.count(tag) != 1 for tag in _TAGS):
        return None
    return match.group(2).strip()


def rule_reward(response: str, right: bool | None) -> float:
    """Return format + answer reward; `right` is None if the answer cannot be read."""
    if tagged_answer(response) is None:
        return -FORMAT_REWARD + UNREADABLE
    return FORMAT_REWARD + (UNREADABLE if right is None else RIGHT if right else WRONG)
