"""The form of `configs/scales/<scale>.yaml`, and how a scale applies. Unknown keys are errors everywhere.

A scale sets the size of every study at once: it replaces values that no variant changes, and multiplies numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from ablation.config import dotted
from ablation.config.names import StageName, Strict, distinct, suggest
from ablation.config.validation import check_key, check_known, validate
from ablation.config.yaml_io import load_yaml
from ablation.contract.errors import ConfigError

_MAX_SEEDS = 10_000


def _counted(seeds: Any) -> Any:
    """Return the seeds 0 to n-1 for a number n; return a list unchanged, because its seeds are checked later."""
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if not 1 <= seeds <= _MAX_SEEDS:
            raise ValueError(
                f"is not a valid number of seeds; write a number from 1 to {_MAX_SEEDS}, or a list of seeds"
            )
        return tuple(range(seeds))
    if not isinstance(seeds, list | tuple):
        raise ValueError("is neither a whole number nor a list; write a value such as 3 or [0, 1, 2]")
    return tuple(seeds)


Seed = Annotated[int, Field(ge=0, lt=2**32)]  # numpy's generators take no larger one
Seeds = Annotated[
    tuple[Seed, ...],
    Field(min_length=1),
    BeforeValidator(_counted, json_schema_input_type=int | list[int]),
    AfterValidator(distinct),
]


class ResourceOverride(Strict):
    """Resources that a scale replaces."""

    threads: int | None = Field(default=None, ge=1)
    mem_mb: int | None = Field(default=None, ge=1)
    runtime: int | None = Field(default=None, ge=1)
    gpu: int | None = Field(default=None, ge=0)


class ScaleStudy(Strict):
    """The sizes that a scale sets in one study."""

    seeds: Seeds | None = Field(
        default=None, description="The study's number of seeds, or a list of seeds; by default the scale's seeds."
    )
    set: dict[str, Any] = Field(
        default={},
        description="Values that replace those of every variant. If a setting has several kinds, and its kind is not "
        "set here, the values apply only to variants whose kind has all these keys.",
    )
    multiply: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default={}, description="For each dotted key, the factor by which its value is multiplied."
    )
    resources: dict[StageName, ResourceOverride] = Field(default={})


class ScaleFile(Strict):
    """The content of `configs/scales/<scale>.yaml`."""

    seeds: Seeds = Field(
        description="The number of seeds, or a list of seeds; `seeds` in the settings or in a study takes precedence."
    )
    studies: dict[str, ScaleStudy] = Field(default={})


@dataclass(frozen=True)
class Scale:
    """One study's part of a scale file."""

    file: Path
    prefix: str
    definition: ScaleStudy

    def check(self, model: type[BaseModel], stages: set[str]) -> None:
        """Raise ConfigError for keys and stages that the study does not have."""
        check_known(model, self.definition.set, self.file, f"{self.prefix}set.")
        for name, field in model.model_fields.items():
            below = self.definition.set.get(name)
            if not field.discriminator or not isinstance(below, Mapping):
                continue
            if not any(below.keys() <= kind.model_fields.keys() for kind in dotted.models_in(field.annotation)):
                problem = f"the setting {name} has no kind with all of these keys"
                raise ConfigError(
                    self.file, f"{self.prefix}set.{name}", dict(below), problem, "set only keys of one kind"
                )
        for key in self.definition.multiply:
            check_key(model, key, self.file, f"{self.prefix}multiply")
            for other, _ in dotted.leaves(self.definition.set):
                if dotted.covers(key, other) or dotted.covers(other, key):
                    where, remedy = f"{self.prefix}multiply.{key}", "remove the key from `set` or from `multiply`"
                    raise ConfigError(self.file, where, None, f"`set` also contains {other}", remedy)
        for stage in self.definition.resources:
            if stage not in stages:
                where = f"{self.prefix}resources.{stage}"
                raise ConfigError(self.file, where, None, "the stage does not exist", suggest(stage, sorted(stages)))

    def refuse_overridden(self, overrides: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise ConfigError if the scale sets a value that a variant overrides, because the override would be lost."""
        changed = {key: name for name, tree in overrides.items() for key, _ in dotted.leaves(tree)}
        for key, value in dotted.leaves(self.definition.set):
            for other, variant in changed.items():
                if dotted.covers(key, other) or dotted.covers(other, key):
                    problem = f"variant {variant} changes {other}"
                    remedy = "use `multiply`, or remove the key; a scale may set only keys that no variant changes"
                    raise ConfigError(self.file, f"{self.prefix}set.{key}", value, problem, remedy)

    def apply(self, written: BaseModel, declared: Mapping[str, Any], variant: Path) -> BaseModel:
        """Return the configuration `written`, with plain values `declared`, at this scale; errors name `variant`."""
        model = type(written)
        if not self.definition.set and not self.definition.multiply:
            return written
        config = dotted.merge_into(model, declared, _of_its_kinds(written, self.definition.set))
        for key, factor in self.definition.multiply.items():
            value = dotted.get(config, key, None)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                where = f"{self.prefix}multiply.{key}"
                problem = f"the value in {variant.stem} is {value!r}, which is not a number"
                raise ConfigError(self.file, where, factor, problem, "multiply only keys that hold numbers")
            config = dotted.merge(config, dotted.nested({key: multiply(value, factor)}))
        return validate(model, config, f"{self.file} (for {variant})")


def _of_its_kinds(written: BaseModel, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` without settings for another kind of a tagged union than the configuration has."""
    fitting = dict(values)
    for name, field in type(written).model_fields.items():
        below, current = values.get(name), getattr(written, name)
        if (
            field.discriminator
            and isinstance(below, Mapping)
            and field.discriminator not in below
            and not below.keys() <= type(current).model_fields.keys()
        ):
            del fitting[name]
    return fitting


def multiply(value: float, factor: float) -> float:
    """Return the product, computed exactly in decimal; the product of an integer is rounded up, so it is never 0.

    As binary floats, 100 * 0.07 is 7.000000000000001, which would be rounded up to 8.
    """
    product = Decimal(repr(value)) * Decimal(repr(factor))
    return math.ceil(product) if isinstance(value, int) else float(product)


def load_scale(configs: Path, scale: str) -> "_Scales":
    """Read the file of a scale. Raises ConfigError if it is not valid or names a study that does not exist."""
    file = configs / "scales" / f"{scale}.yaml"
    written = validate(ScaleFile, load_yaml(file), file)
    study_names = sorted(path.parent.name for path in (configs / "studies").glob("*/_study.yaml"))
    for name in written.studies:
        if name not in study_names:
            raise ConfigError(file, f"studies.{name}", None, "the study does not exist", suggest(name, study_names))
    return _Scales(file, written)


@dataclass(frozen=True)
class _Scales:
    file: Path
    written: ScaleFile

    def study(self, name: str) -> Scale:
        """Return the part for one study, which is empty if the scale does not mention the study."""
        return Scale(self.file, f"studies.{name}.", self.written.studies.get(name, ScaleStudy()))
