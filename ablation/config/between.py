"""The configurations between two variants A and B, for `ablation explain A B`: A with some of B's changes."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ablation.config import dotted
from ablation.config.names import is_safe_name
from ablation.config.scale import Scale
from ablation.config.study import Change, Study, Variant, diff
from ablation.config.validation import validate
from ablation.config.variants import VariantFile, resolve
from ablation.contract.display import joined
from ablation.contract.errors import ConfigError

_LONG = 60  # characters of a name


@dataclass(frozen=True)
class Between:
    """Two variants of a study and their differences, by factor."""

    study: Study
    scale: Scale
    a: str
    b: str
    changes: Mapping[str, list[Change]]

    @classmethod
    def of(cls, study: Study, scale: Scale, a: str, b: str) -> "Between":
        """Return two variants of a study with their differences, by factor.

        Raises ConfigError if a variant does not exist, if the two differ in fewer than two factors, or if A with all
        changes of B is not equal to B.
        """
        factors: dict[str, list[Change]] = {}
        for change in diff(study, a, b):
            factors.setdefault(change.factor, []).append(change)
        if len(factors) < 2:
            one = f"the variants differ only in the factor {', '.join(factors)}"
            problem = one if factors else "the variants are equal"
            show = f"run `ablation diff {study.name}/{a} {b}` to see the effect of this factor"
            remedy = show if factors else "name two variants that differ"
            raise ConfigError("explain", f"{a} {b}", None, problem, remedy)
        between = cls(study, scale, a, b, factors)
        if between._config(between._values(range(len(factors)))).model_dump(mode="json") != study.variants[b].declared:
            problem = f"{a} with all changes of {b} is not equal to {b}, because a setting has another kind in {b}"
            remedy = "name two variants in which every setting has the same kind"
            raise ConfigError("explain", f"{a} {b}", None, problem, remedy)
        return between

    @property
    def factors(self) -> list[str]:
        """Return the names of the factors, in the order of the configuration."""
        return list(self.changes)

    def variant(self, chosen: frozenset[int]) -> Variant:
        """Return A with B's values of the factors at the indices `chosen`: an equal variant of the study, or a new one.

        Keys without effect in this configuration keep the values of A.

        Raises ConfigError if the values cannot be combined, or if the new variant's name is already used.
        """
        if not chosen or len(chosen) == len(self.changes):
            return self.study.variants[self.b if chosen else self.a]
        name, words = self._name(chosen), joined([self.factors[index] for index in sorted(chosen)])
        try:
            values = self._values(chosen)
            idle: Mapping[str, str] = getattr(self._config(values), "without_effect", dict)()
            values = {key: to for key, to in values.items() if not any(dotted.covers(other, key) for other in idle)}
            path, gpu = self.study.file.parent / f"{name}.yaml", self.study.variants[self.b].gpu
            overrides, why = dotted.nested(values), f"{self.a} with {words} of {self.b}"
            file = VariantFile(name, path, self.a, why, gpu, overrides, helper=True)
            made = resolve(
                file, self.study.variants[self.a],
                study=self.study.name, written=self.study.written, base={}, model=self.study.config_model,
                scale=self.scale,
            )  # fmt: skip
        except ConfigError as error:
            remedy = "in _study.yaml, declare the keys that must change together as one group under `factors`"
            problem = f"{self.a} with {words} of {self.b} is not a valid configuration: {error.key} {error.problem}"
            raise ConfigError("explain", f"{self.a} {self.b}", None, problem, remedy) from error
        same = (other for other in self.study.variants.values() if other.declared == made.declared)
        if (existing := next(same, None)) is not None:
            return existing
        if name in self.study.variants:
            problem = f"already exists, but its configuration differs from {file.why}, which needs this name"
            raise ConfigError(path, "", None, problem, "rename the file, or remove it if `explain` wrote it")
        return made

    def text(self, variant: Variant) -> str:
        """Return the YAML text of a new variant's file."""
        lines = [f"between: [{self.a}, {self.b}]", f"why: {json.dumps(variant.why, ensure_ascii=False)}"]
        lines += [f"gpu: {variant.gpu}"] if variant.gpu is not None else []
        lines += [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in variant.overrides.items()]
        note = "# written by `ablation explain`; the study's comparisons leave this variant out"
        return "\n".join([note, *lines, ""])

    def _config(self, values: Mapping[str, Any]) -> Any:
        model, above = self.study.config_model, self.study.variants[self.a].declared
        return validate(model, dotted.merge_into(model, above, dotted.nested(values)), "explain")

    def _values(self, chosen: Iterable[int]) -> dict[str, Any]:
        return {change.key: change.new for index in sorted(chosen) for change in self.changes[self.factors[index]]}

    def _name(self, chosen: frozenset[int]) -> str:
        words = (re.sub(r"[^A-Za-z0-9_]+", "-", self.factors[index]).strip("-") for index in sorted(chosen))
        name, first = ".".join([self.a, *words]), chosen == frozenset(range(len(chosen)))
        if len(name) > _LONG and len(self.changes) > len("abcdefgh") and first:
            return f"{self.a}.{self.b}.first-{len(chosen)}"
        if len(name) > _LONG or not is_safe_name(name):
            return f"{self.a}.{self.b}.{''.join(chr(ord('a') + index) for index in sorted(chosen))}"
        return name
