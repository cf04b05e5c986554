"""Settings of the tasks. Only pydantic is imported: validating and planning read this module, and stay fast."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

TASKS = "trainers.tasks"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Task(_Strict):
    """A task's settings; written without defaults they keep their tag, or they could not be read again."""

    name: str

    @model_serializer(mode="wrap")
    def _keep_tag(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"name": self.name, **write(self)}


class KnightsKnaves(_Task):
    """Who tells the truth? Puzzles with exactly one solution, generated and checked by brute force."""

    name: Literal["knights_knaves"] = "knights_knaves"
    form: Literal["compact", "textual"] = Field(
        default="compact", description="compact: 25 words, for small models; textual: English, as in Logic-RL."
    )
    people: int = Field(default=2, ge=2, le=5, description="People per puzzle.")
    sloppy: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Share of warm-start traces that wave a random hypothesis through: room for reinforcement.",
    )


class Arithmetic(_Task):
    """Sums, differences and products of whole numbers, digit by digit."""

    name: Literal["arithmetic"] = "arithmetic"
    form: Literal["compact", "textual"] = Field(default="compact", description="compact: 17 words; textual: English.")
    digits: int = Field(default=2, ge=1, le=6, description="Digits of the larger operand, at most.")
    operations: list[Literal["+", "-", "*"]] = Field(default=["+", "-"], min_length=1, description="What is asked.")
    sloppy: float = Field(default=0.6, ge=0, le=1, description="Share of warm-start answers with one wrong digit.")


class TemplatedLists(_Task):
    """Sort three or four things in a given style: responses of four parts, each of which can be right or wrong."""

    name: Literal["templated_lists"] = "templated_lists"
    form: Literal["compact"] = Field(default="compact", description="52 words, for small models.")
    sloppy: float = Field(default=0.55, ge=0, le=1, description="Share of worked responses with each of four flaws.")


class QuestionAnswer(_Task):
    """A data set of questions and answers in the form of GSM8K: the asset `data_source`."""

    name: Literal["question_answer"] = "question_answer"
    question: str = Field(default="question", description="Field of the question.")
    answer: str | None = Field(
        default="answer",
        description="Field of the answer; what follows `####`, if that is there. null: prompts without answers.",
    )


TaskSettings = Annotated[KnightsKnaves | Arithmetic | TemplatedLists | QuestionAnswer, Field(discriminator="name")]
