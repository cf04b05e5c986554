"""The in-context model of task `text`: any causal language model on multiple-choice questions.

A prompt is the demonstrations, each with the text of its right option, and then the question. The answer is the option
whose text has the highest mean log-probability per token (like `acc_norm` of lm-evaluation-harness, but per token).
"""

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.assets import only_file
from trainers.demonstrations.config import TextQuestions
from trainers.demonstrations.in_context import Division, Scores, divide_questions
from trainers.models.causal import load_model, load_tokenizer
from trainers.policy.text import pad

_LETTER = re.compile(r"^\s*[A-Z]\.\s*")


@dataclass(frozen=True)
class Question:
    """Multiple-choice question: its text, its options, and the index of the right option."""

    text: str
    options: list[str]
    answer: int

    def demonstration(self) -> str:
        """Return the question with its answer, as it is shown before other questions."""
        return f"{self.prompt()} {self.options[self.answer]}\n\n"

    def prompt(self) -> str:
        """Return the question up to the start of the answer."""
        return f"Question: {self.text}\nAnswer:"


class TextModel:
    """In-context model of the task `text`: a frozen language model and the questions."""

    def __init__(
        self, task: TextQuestions, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path
    ) -> None:
        self.task, self.model, self.tokenizer, self.device = task, model, tokenizer, str(model.device)
        self.questions = read_questions(path)
        self.names = [f"question-{place}" for place in range(len(self.questions))]
        self.clusters = None
        accepted = inspect.signature(model.forward).parameters
        self.positions = "position_ids" in accepted
        # Logits of all tokens would need much memory.
        self.last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def divide(self) -> Division:
        """Return the queries of all splits; the other questions of the file are demonstrations."""
        task, items = self.task, range(len(self.questions))
        return divide_questions(items, None, sizes=task.sizes, candidates=task.candidates, seed=task.seed)

    @torch.no_grad()
    def embed(self, items: Tensor) -> Tensor:
        """Return each question's mean last hidden state, (B, d)."""
        tokens, mask = self._padded([self._tokens(self.questions[item].text) for item in items.tolist()], left=True)
        inputs = self._inputs(tokens, mask)
        hidden = self.model.base_model(**inputs, use_cache=False).last_hidden_state.float()
        return ((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).cpu()

    def score(self, queries: Tensor, demonstrations: Tensor) -> Scores:
        """Return the scores of the answers; acc_score is a softmax of the options' mean log-probabilities."""
        questions = [self.questions[item] for item in queries.tolist()]
        prompts = [
            "".join(self.questions[item].demonstration() for item in chosen) + question.prompt()
            for question, chosen in zip(questions, demonstrations.tolist(), strict=True)
        ]
        rows, answers = [], []
        options = [question.options for question in questions]
        for question, means in zip(questions, self.option_logps(prompts, options), strict=True):
            predicted = int(means.argmax())
            answers.append(question.options[predicted])
            right = float(predicted == question.answer)
            rows.append((right, float(means.softmax(0)[question.answer]), float(means[question.answer]), right))
        correct, acc_score, gold_logp, accuracy = torch.tensor(rows).T
        return Scores(correct, acc_score, gold_logp, accuracy, answers)

    def in_words(self, items: Sequence[int]) -> list[tuple[str, str]]:
        """Return each question with its options, and its right option."""
        questions = [self.questions[item] for item in items]
        prompts = ["\n".join([one.text, *(f"- {option}" for option in one.options)]) for one in questions]
        return list(zip(prompts, self.right_answers(items), strict=True))

    def right_answers(self, queries: Sequence[int]) -> list[str]:
        """Return the right option of each query."""
        return [self.questions[item].options[self.questions[item].answer] for item in queries]

    @torch.no_grad()
    def option_logps(self, prompts: Sequence[str], options: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return a tensor (options,) per prompt: the mean log-probability per token of each option, in nats.

        The model reads each prompt once; its cache is then repeated for the options.
        """
        tokens, mask = self._padded([self._tokens(prompt) for prompt in prompts], left=True)
        texts = [
            self.tokenizer(f" {option}", add_special_tokens=False)["input_ids"] for row in options for option in row
        ]
        counts = [len(row) for row in options]
        owner = torch.arange(len(prompts), device=self.device).repeat_interleave(
            torch.tensor(counts, device=self.device)
        )
        answers, kept = self._padded(texts, left=False)
        first = self.model(**self._inputs(tokens, mask), use_cache=True, **self.last)
        logits = first.logits[:, -1:][owner]
        if answers.shape[1] > 1:
            cache = first.past_key_values
            cache.batch_select_indices(owner)
            attended = torch.cat([mask[owner], kept[:, :-1]], dim=1)
            inputs = self._inputs(answers[:, :-1], attended)
            logits = torch.cat([logits, self.model(**inputs, past_key_values=cache, use_cache=True).logits], dim=1)
        logps = logits.float().log_softmax(-1).gather(-1, answers[..., None]).squeeze(-1)
        return list(((logps * kept).sum(1) / kept.sum(1)).cpu().split(counts))

    def _inputs(self, tokens: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return the model's arguments for tokens (B, T), which are at the last T positions of `mask` (B, L)."""
        inputs = {"input_ids": tokens, "attention_mask": mask}
        if self.positions:
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        return inputs

    def _padded(self, rows: Sequence[Sequence[int]], *, left: bool) -> tuple[Tensor, Tensor]:
        tokens, mask = pad(rows, 0, left=left)
        return tokens.to(self.device), mask.to(self.device)

    def _tokens(self, text: str) -> list[int]:
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        bos = self.tokenizer.bos_token_id
        return tokens if bos is None else [bos, *tokens]


def read_questions(path: Path) -> list[Question]:
    """Return the questions of a JSON-lines file whose lines have the texts `question`, `options` and `answer`.

    `options` has a line for each option, which may begin with a letter as in "A. ...". Raises ValueError, with file and
    line, if a text is missing or the answer is not an option.
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
            problem = f"the line is not a JSON object with the strings `question`, `options` and `answer` ({error!r})"
            raise ValueError(f"{path}, line {number}: {problem}; correct it") from None
        except ValueError:
            problem = f"the answer {row['answer']!r} is not one of the options"
            raise ValueError(f"{path}, line {number}: {problem}; choose from {', '.join(options)}") from None
    return questions


def load(task: TextQuestions, assets: Mapping[str, Path], learner: Path, device: str) -> TextModel:
    """Return the in-context model, built from the assets `model` (language model) and `data` (questions)."""
    model = load_model(assets["model"], device=device)
    return TextModel(task, model, load_tokenizer(assets["model"]), only_file(assets["data"]))
