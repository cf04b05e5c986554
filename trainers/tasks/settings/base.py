"""What the settings of all tasks have in common."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class TaskBase(BaseModel):
    """A task's settings; `name` is a Literal of the task's module.

    reads_source: whether the task reads the asset `data_source`. It belongs to the task and is not a key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    reads_source: ClassVar[bool] = False
    name: str
