"""Task `question_answer`: questions with numeric or short answers from a file in the form of GSM8K (arXiv 2110.14168).

The file is JSON lines or Parquet with a question and an answer field. If an answer contains `#### x`, x is the answer
and the text before it is the worked response for the warm start. Without an answer field the questions are prompts,
whose responses only a reward model can judge.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from trainers.tasks.interface import SPLITS, Problem, bucket, places, rule_reward, tagged_answer
from trainers.tasks.settings import QuestionAnswer

INSTRUCTION = (
    "You are a helpful assistant. Write the reasoning within <think> </think> and only the final answer within "
    "<answer> </answer>, with nothing else around them."
)


@dataclass(frozen=True)
class Questions:
    """The task `question_answer` with one file of questions."""

    settings: QuestionAnswer
    source: Path
    words: None = None
    instruction: str | None = INSTRUCTION

    def splits(self, sizes: Mapping[str, int], seed: int) -> dict[str, list[Problem]]:
        """Return {split: distinct questions} in an order set by `seed`; texts decide between training, dev and test."""
        splits: dict[str, list[Problem]] = {split: [] for split in SPLITS}
        problems = {problem.prompt: problem for problem in self._problems()}
        for prompt in sorted(problems, key=lambda text: bucket(f"{seed} {text}", 2**60)):
            open_splits = [split for split in places(prompt) if len(splits[split]) < sizes[split]]
            if open_splits:
                splits[open_splits[0]].append(problems[prompt])
        counts = {split: len(splits[split]) for split in SPLITS}
        if short := [f"{split} {counts[split]} of {sizes[split]}" for split in SPLITS if counts[split] < sizes[split]]:
            raise ValueError(f"data: {self.source} has too few questions ({', '.join(short)}); lower the sizes in data")
        return splits

    def _problems(self) -> list[Problem]:
        table = _read(self.source)
        for field in (self.settings.question, self.settings.answer):
            if field is not None and field not in table.columns:
                raise ValueError(
                    f"{self.source}: the field {field!r} does not exist; choose from {', '.join(table.columns)}"
                )
        if self.settings.answer is None:
            return [Problem(_id(question), str(question), "") for question in table[self.settings.question]]
        answers = table[self.settings.answer]
        if missing := int((answers.isna() | (answers.astype(str).str.strip() == "")).sum()):
            raise ValueError(
                f"{self.source}: the field {self.settings.answer!r} is empty in {missing} of {len(table)} rows; "
                "fill it in, or use a reward model (set task.answer to null and reward.rule to 0)"
            )
        problems = []
        for question, text in zip(table[self.settings.question], table[self.settings.answer], strict=True):
            reasoning, _, final = str(text).rpartition("####")
            answer = _canonical(final)
            demonstration = f"<think> {reasoning.strip()} </think> <answer> {answer} </answer>"
            problems.append(Problem(_id(question), str(question), answer, demonstration))
        return problems

    def reward(self, problem: Problem, response: str) -> float:
        """Return the sum of the format reward and the answer reward, from -3 to 3."""
        predicted = tagged_answer(response)
        return rule_reward(response, None if not predicted else _canonical(predicted) == problem.answer)

    def correct(self, problem: Problem, response: str) -> bool:
        """Return whether form and answer are right, apart from spaces, case, thousands separators, units and `.0`."""
        predicted = tagged_answer(response)
        return predicted is not None and _canonical(predicted) == problem.answer


def create(settings: QuestionAnswer, source: Path | None = None) -> Questions:
    """Return the task `question_answer` with the file `source`, or with the only data file in the folder `source`."""
    if source is None:
        raise ValueError("the task question_answer needs data; set data_source")
    files = [source] if source.is_file() else sorted(p for p in source.iterdir() if p.suffix in (".jsonl", ".parquet"))
    if len(files) != 1:
        raise ValueError(
            f"{source} has {len(files)} .jsonl or .parquet files, but must have exactly one; add or remove files"
        )
    return Questions(settings, files[0], instruction=None if settings.answer is None else INSTRUCTION)


def _read(path: Path) -> pd.DataFrame:
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True, dtype=False)


def _id(question: object) -> str:
    return f"qa-{bucket(str(question), 16**12):012x}"


def _canonical(text: str) -> str:
    """Return the number in `text` in plain digits if it has exactly one number, and else the text in lower case."""
    text = " ".join(text.split())
    number = re.fullmatch(r"[^\d\-+.]*([-+]?[\d,]*\.?\d+)\s*[^\d]*", text)
    if number is None:
        return text.lower()
    value = float(number.group(1).replace(",", ""))
    return str(int(value)) if value.is_integer() else repr(value)
