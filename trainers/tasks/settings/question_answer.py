"""Settings of the task `question_answer`."""

from typing import ClassVar, Literal

from pydantic import Field

from trainers.tasks.settings.base import TaskBase


class QuestionAnswer(TaskBase):
    """A data set of questions and answers in the form of GSM8K: the asset `data_source`."""

    reads_source: ClassVar[bool] = True
    name: Literal["question_answer"] = "question_answer"
    question: str = Field(default="question", description="Field of the question.")
    answer: str | None = Field(
        default="answer",
        description="Field of the answer, after `####` if present; null: prompts without answers.",
    )
