"""The in-context model of task `text`: any causal language model on multiple-choice questions.

A prompt is the demonstrations, each with its right option in words, then the question; an option is the answer when its
text has the highest mean log-probability per token (as `acc_norm` of lm-evaluation-harness, but per token).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.demonstrations.config import TextQuestions
from trainers.demonstrations.in_context import Pools, Scores, consecutive_splits, draw_pools, one_file
from trainers.models import load_model, load_tokenizer

_LETTER = re.compile(r"^\s*[A-Z]\.\s*")


@dataclass(frozen=True)
class Question:
    """One question: its text, its options in words, the number of the right one."""

    text: str
    options: list[str]
    answer: int

    def demonstration(self) -> str:
        """Return question and answer."""
        return f"{self.prompt()} {self.options[self.answer]}\n\n"

    def prompt(self) -> str:
        """Return the question without its answer."""
        return f"Question: {self.text}\nAnswer:"


class TextModel:
    """A frozen language model with the questions."""

    def __init__(
        self, task: TextQuestions, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path
    ) -> None:
        self.model, self.tokenizer, self.device = model, tokenizer, str(model.device)
        questions = read_questions(path)
        sizes = task.sizes
        count = sizes.train + sizes.validation + sizes.test
        if len(questions) <= count:
            raise ValueError(
                f"{path}: {len(questions)} questions, task.sizes ask for {count} queries and leave no demonstration"
            )
        order = torch.randperm(len(questions), generator=torch.Generator().manual_seed(task.seed)).tolist()
        self.queries = [questions[place] for place in order[:count]]
        self.demonstrations = [questions[place] for place in order[count:]]
        pools = draw_pools(count, len(self.demonstrations), task.candidates, task.seed)
        self.data = Pools([f"question-{place}" for place in order[:count]], consecutive_splits(sizes), pools)

    def embeddings(self) -> tuple[Tensor, Tensor]:
        """Return the mean last hidden states of the questions without their answers."""
        return self._embed(self.queries), self._embed(self.demonstrations)

    @torch.no_grad()
    def _embed(self, questions: Sequence[Question]) -> Tensor:
        rows = []
        for question in questions:
            tokens = torch.tensor([self._tokens(question.text)], device=self.device)
            hidden = self.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
            rows.append(hidden[0].float().mean(0).cpu())
        return torch.stack(rows)

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Answer one prompt after the other; acc_score is the right option's share of exp(mean log-probability)."""
        found = []
        for query, chosen in zip(queries.tolist(), demonstrations.tolist(), strict=True):
            prompt = "".join(self.demonstrations[number].demonstration() for number in chosen)
            question = self.queries[query]
            means = self.option_logps(prompt + question.prompt(), question.options)
            right = float(means.argmax() == question.answer)
            found.append((right, float(means.softmax(0)[question.answer]), float(means[question.answer]), right))
        return Scores(*torch.tensor(found).T)

    @torch.no_grad()
    def option_logps(self, prompt: str, options: Sequence[str]) -> Tensor:
        """Return the mean log-probability per token of each option after `prompt`, (options,).

        The prompt goes through the model once; its cache is repeated for the options.
        """
        prefix = torch.tensor([self._tokens(prompt)], device=self.device)
        texts = [self.tokenizer(f" {option}", add_special_tokens=False)["input_ids"] for option in options]
        longest = max(len(text) for text in texts)
        padded = torch.zeros(len(texts), longest, dtype=torch.int64, device=self.device)
        mask = torch.zeros(len(texts), longest, device=self.device)
        for row, text in enumerate(texts):
            padded[row, : len(text)] = torch.tensor(text, device=self.device)
            mask[row, : len(text)] = 1.0
        first = self.model(input_ids=prefix, use_cache=True)
        logits = first.logits[:, -1:].expand(len(texts), -1, -1)
        if longest > 1:
            cache = first.past_key_values
            cache.batch_repeat_interleave(len(texts))
            later = self.model(input_ids=padded[:, :-1], past_key_values=cache, use_cache=True).logits
            logits = torch.cat([logits, later], dim=1)
        logps = logits.float().log_softmax(-1).gather(-1, padded[..., None]).squeeze(-1)
        return ((logps * mask).sum(1) / mask.sum(1)).cpu()

    def _tokens(self, text: str) -> list[int]:
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        bos = self.tokenizer.bos_token_id
        return tokens if bos is None else [bos, *tokens]


def read_questions(path: Path) -> list[Question]:
    """Read JSON lines with question, options (one a line, "A. ...") and answer (one of them).

    Raises ValueError with file and line where a key is missing or the answer is not an option.
    """
    questions = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            options = [_LETTER.sub("", option) for option in row["options"].strip().splitlines()]
            answer = options.index(_LETTER.sub("", row["answer"].strip()))
            questions.append(Question(" ".join(row["question"].split()), options, answer))
        except (json.JSONDecodeError, KeyError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: needs question, options and answer ({error!r})") from None
        except ValueError:
            raise ValueError(f"{path}, line {number}: answer {row['answer']!r} is not one of {options}") from None
    return questions


def load(task: TextQuestions, assets: Mapping[str, Path], learner: Path, device: str) -> TextModel:
    """Return the language model of the asset `model` with the questions of the asset `data`."""
    model = load_model(assets["model"], device=device)
    return TextModel(task, model, load_tokenizer(assets["model"]), one_file(assets["data"], (".jsonl", ".json")))
