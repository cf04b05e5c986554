"""Settings of the tasks: one class per task, and their union. This module imports only pydantic."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from trainers.assets_config import Strict


class TaskBase(Strict):
    """Settings of a task. A subclass declares `name` as a Literal, the name of the task's module.

    reads_source: whether the task reads the asset `data_source`; it is not a configuration key.
    """

    reads_source: ClassVar[bool] = False
    name: str


class Arithmetic(TaskBase):
    """Sums, differences and products of whole numbers."""

    name: Literal["arithmetic"] = "arithmetic"
    form: Literal["compact", "textual"] = Field(
        default="compact", description="compact: a vocabulary of 18 words, for small models; textual: English."
    )
    digits: int = Field(default=2, ge=1, le=6, description="Largest number of digits per operand.")
    operations: list[Literal["+", "-", "*"]] = Field(
        default=["+", "-"], min_length=1, description="Operations that problems may have."
    )
    sloppy: float = Field(default=0.6, ge=0, le=1, description="Share of worked responses with one random digit.")


class KnightsKnaves(TaskBase):
    """Puzzles about who tells the truth, each with exactly one solution."""

    name: Literal["knights_knaves"] = "knights_knaves"
    form: Literal["compact", "textual"] = Field(
        default="compact",
        description="compact: a vocabulary of 25 words, for small models; textual: English, as in Logic-RL.",
    )
    people: int = Field(default=2, ge=2, le=5, description="Number of people per puzzle.")
    sloppy: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Share of worked responses that accept a random hypothesis without testing it.",
    )


class QuestionAnswer(TaskBase):
    """Questions and answers in the form of GSM8K, read from the asset `data_source`."""

    reads_source: ClassVar[bool] = True
    name: Literal["question_answer"] = "question_answer"
    question: str = Field(default="question", description="Name of the field with the question.")
    answer: str | None = Field(
        default="answer",
        description="Name of the field with the answer; if the field contains `####`, only the part after it counts. "
        "null: there are no answers, and a reward model judges responses.",
    )


class TemplatedLists(TaskBase):
    """Lists of three or four things to sort in a given style; a response has four parts, each of which has a reward."""

    name: Literal["templated_lists"] = "templated_lists"
    form: Literal["compact"] = Field(
        default="compact", description="compact: a vocabulary of 52 words, for small models."
    )
    sloppy: float = Field(
        default=0.55, ge=0, le=1, description="Probability of each of the four flaws in a worked response."
    )


TaskSettings = Annotated[Arithmetic | KnightsKnaves | QuestionAnswer | TemplatedLists, Field(discriminator="name")]
