"""Settings of the tasks: every subclass of `TaskBase` in a module here. A new task adds a module and edits no list.

Only pydantic is imported: validating and planning read these modules, and stay fast.
"""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from trainers.tasks.settings.base import TaskBase

if TYPE_CHECKING:
    TaskSettings = TaskBase
else:
    for _found in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{_found.name}")
    _CLASSES = sorted(TaskBase.__subclasses__(), key=lambda each: each.model_fields["name"].default)
    TaskSettings = Annotated[Union[tuple(_CLASSES)], Field(discriminator="name")]  # noqa: UP007
