"""Settings of the tasks: every subclass of `TaskBase` in a module here. A new task adds a module and edits no list.

Only pydantic is imported: validating and planning read these modules, and stay fast.
"""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ablation.contract.errors import ConfigError
from trainers.tasks.settings.base import TaskBase


def _named(settings: type[TaskBase]) -> str:
    """Return the name of a task. Raises ConfigError unless its module has that name too."""
    name, module = settings.model_fields["name"].default, settings.__module__.rpartition(".")[2]
    if name != module and settings.__module__ != TaskBase.__module__:
        raise ConfigError(
            Path(__file__).with_name(f"{module}.py"),
            f"{settings.__name__}.name",
            None,
            "is not the name of its module",
            f'write `name: Literal["{module}"] = "{module}"`',
        )
    return str(name)


if TYPE_CHECKING:
    TaskSettings = TaskBase
else:
    for _found in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{_found.name}")
    TaskSettings = Annotated[Union[tuple(sorted(TaskBase.__subclasses__(), key=_named))], Field(discriminator="name")]  # noqa: UP007
