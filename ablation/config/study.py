"""A checked study, with its stages and variants at the chosen scale, and the differences between variants."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from ablation.config import dotted
from ablation.config.names import NO_VARIANT, Strict, suggest
from ablation.config.published_schema import PublishedFile
from ablation.config.study_schema import StageDefinition, StudyFile
from ablation.contract.errors import ConfigError
from ablation.contract.parts import PartsOf


class Change(Strict):
    """A dotted key whose value differs between two variants."""

    key: str
    old: Any = Field(alias="from")
    new: Any = Field(alias="to")
    factor: str = Field(description="The factor (group of keys) to which the change belongs.")
    no_effect: str = Field(default="", description="Why the change cannot matter at the study's scale, if known.")
    idle_part: str = Field(
        default="", description="The parts of the change that cannot matter, with reasons; all other parts can."
    )


@dataclass(frozen=True)
class VariantFile:
    """The content of a variant's file."""

    name: str
    file: Path
    parent: str | None
    why: str
    gpu: int | None
    overrides: dict[str, Any]
    helper: bool = False  # it lies between two others for `explain`, and is in no comparison of the study
    label: str = ""  # what it changes, as a table or a figure names it


@dataclass(frozen=True, kw_only=True)
class Variant(VariantFile):
    """One configuration of a study. `parent` is None for a root, and for a variant that `explain` wrote.

    `declared` has the values of all keys before the scale applies, `values` those at the scale, and `resolved` is
    their checked model. Do not change any of them.
    """

    study: str
    declared: dict[str, Any]
    values: dict[str, Any]
    resolved: BaseModel
    changes: tuple[Change, ...]
    factors: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A study with its variants, parents before children, and its stages with the resources of the chosen scale."""

    name: str
    file: Path
    written: StudyFile
    config_model: type[BaseModel]
    parts: PartsOf | None
    stages: dict[str, StageDefinition]
    variants: dict[str, Variant]
    published: PublishedFile | None

    def variant(self, name: str) -> Variant:
        """Return the variant of this name. Raises ConfigError, with the closest name, if it does not exist."""
        if name not in self.variants:
            raise ConfigError(self.file.parent, name, None, NO_VARIANT, suggest(name, self.variants))
        return self.variants[name]

    @property
    def last_stage(self) -> str:
        """Return the name of the last stage, whose metrics are a run's results."""
        return next(reversed(self.stages))


def diff(study: Study, a: str, b: str, *, scaled: bool = False) -> list[Change]:
    """Return the changes from variant `a` to variant `b`, as declared or, if `scaled`, at the scale."""
    one, two = study.variant(a), study.variant(b)
    values = (one.values, two.values) if scaled else (one.declared, two.declared)
    return changes(*values, one.resolved, two.resolved, study.written.factors)


def changes(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    parent: BaseModel,
    child: BaseModel,
    factors: Mapping[str, list[str]],
) -> list[Change]:
    """Return the changes from `old`, the values of `parent`, to `new`, the values of `child`.

    A config model may define `unseen_changes(parent) -> {dotted key: reason}`, the reasons why changes cannot matter.
    Its keys may also name a part of a value, such as `rcs.alphas.1` of the list `rcs.alphas`.
    """
    unseen_changes = getattr(child, "unseen_changes", None)
    reasons = unseen_changes(parent) if unseen_changes else {}
    leaves = []
    for key, was, now in differences(old, new):
        if was is None and _other_kind(key, old, new) and now == _default(child, key):
            continue  # the default of another kind, whose change is shown
        row = {"key": key, "from": was, "to": now, "factor": factor_of(key, factors)}
        parts = [
            f"{part.removeprefix(f'{key}.')}: {why}" for part, why in reasons.items() if part.startswith(f"{key}.")
        ]
        notes = {"no_effect": reasons.get(key, ""), "idle_part": "; ".join(parts)}
        leaves.append(Change.model_validate(row | notes))
    return leaves


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted key, old, new) of each leaf in which two configurations differ; None stands for a missing leaf.

    A null that became a mapping, and leaves that only another kind of a tagged union removed, are left out.
    """
    before, after = dict(dotted.leaves(old)), dict(dotted.leaves(new))
    for key in dict.fromkeys([*before, *after]):
        if _opened(key, before, after) or _opened(key, after, before):
            continue  # null became a mapping, or the other way round: the keys below it show the change
        if key not in after and _other_kind(key, old, new):
            continue  # removed together with its kind, whose change is shown
        if before.get(key) != after.get(key) or (key in before) != (key in after):
            yield key, before.get(key), after.get(key)


def _opened(key: str, leaves: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether `key` is null in `leaves` and a mapping with content in `others`."""
    return key in leaves and leaves[key] is None and key not in others and any(o.startswith(f"{key}.") for o in others)


def _other_kind(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a key is in a tagged union whose kind (`kind` or `mode`) differs between the configurations."""
    parts = key.split(".")
    kinds = [".".join([*parts[:depth], tag]) for depth in range(1, len(parts)) for tag in ("kind", "mode")]
    both = [(dotted.get(old, kind, None), dotted.get(new, kind, None)) for kind in kinds if kind != key]
    return any(None not in pair and pair[0] != pair[1] for pair in both)


def _default(config: Any, key: str) -> Any:
    above, _, last = key.rpartition(".")
    model = reduce(lambda value, part: getattr(value, part, None), above.split("."), config)
    field = type(model).model_fields.get(last) if isinstance(model, BaseModel) else None
    return field.get_default() if field else None


def factor_of(key: str, factors: Mapping[str, Iterable[str]]) -> str:
    """Return the factor to which a key belongs: the declared group that contains it, or else the key itself."""
    for name, keys in factors.items():
        if any(dotted.covers(group, key) for group in keys):
            return name
    return key
