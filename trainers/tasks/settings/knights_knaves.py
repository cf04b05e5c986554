"""Settings of the task `knights_knaves`."""

from typing import Literal

from pydantic import Field

from trainers.tasks.settings.base import TaskBase


class KnightsKnaves(TaskBase):
    """Who tells the truth? Puzzles with exactly one solution, generated and checked by brute force."""

    name: Literal["knights_knaves"] = "knights_knaves"
    form: Literal["compact", "textual"] = Field(
        default="compact", description="compact: 25 words, for small models; textual: English, as in Logic-RL."
    )
    people: int = Field(default=2, ge=2, le=5, description="People per puzzle.")
    held_out: Literal["structures", "puzzles"] = Field(
        default="puzzles",
        description="What training never sees: the dev and test puzzles (Logic-RL), or their statement structures too.",
    )
    sloppy: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Share of careless warm-start traces, which accept a random hypothesis.",
    )
