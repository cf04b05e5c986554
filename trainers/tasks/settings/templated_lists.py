"""Settings of the task `templated_lists`."""

from typing import Literal

from pydantic import Field

from trainers.tasks.settings.base import TaskBase


class TemplatedLists(TaskBase):
    """Sort three or four things in a given style: responses of four parts, each of which can be right or wrong."""

    name: Literal["templated_lists"] = "templated_lists"
    form: Literal["compact"] = Field(default="compact", description="52 words, for small models.")
    sloppy: float = Field(default=0.55, ge=0, le=1, description="Share of worked responses with each of four flaws.")
