"""Settings of the task `arithmetic`."""

from typing import Literal

from pydantic import Field

from trainers.tasks.settings.base import TaskBase


class Arithmetic(TaskBase):
    """Sums, differences and products of whole numbers, digit by digit."""

    name: Literal["arithmetic"] = "arithmetic"
    form: Literal["compact", "textual"] = Field(default="compact", description="compact: 18 words; textual: English.")
    digits: int = Field(default=2, ge=1, le=6, description="Digits of the larger operand, at most.")
    operations: list[Literal["+", "-", "*"]] = Field(default=["+", "-"], min_length=1, description="Operations.")
    sloppy: float = Field(default=0.6, ge=0, le=1, description="Share of warm-start answers with a wrong digit.")
