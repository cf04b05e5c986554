"""Settings of the tasks: a module here for each task, of the same name, with one class. A new one needs no list.

Only pydantic is imported: validating and planning read these modules, and stay fast.
"""

import pkgutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from ablation.contract.errors import ConfigError
from trainers.tasks.settings.base import TaskBase


def _settings_of(name: str) -> type[TaskBase]:
    """Return the class of one task. Raises ConfigError where its module does not hold exactly that."""
    module = import_module(f"{__name__}.{name}")
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    found = [value for value in own if isinstance(value, type) and issubclass(value, TaskBase)]
    if len(found) != 1 or found[0].model_fields["name"].default != name:
        problem = "does not hold one class of settings with its own name"
        remedy = f'write one class of TaskBase with `name: Literal["{name}"] = "{name}"`'
        raise ConfigError(Path(str(module.__file__)), "", None, problem, remedy)
    return found[0]


if TYPE_CHECKING:
    TaskSettings = TaskBase
else:
    _NAMES = sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name != "base")
    TaskSettings = Annotated[Union[tuple(map(_settings_of, _NAMES))], Field(discriminator="name")]  # noqa: UP007
