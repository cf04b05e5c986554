"""A study of evaluations: one YAML file that names variants, their files and how they are judged.

read_study_file(path) -> EvaluationStudy        ConfigError for what it does not understand
"""

import argparse
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from contract.errors import ConfigError
from tracker.config.names import Strict, Text
from tracker.config.settings import suggest
from tracker.config.study_schema import Target
from tracker.config.validation import validate
from tracker.config.yaml_io import load_yaml
from tracker.evaluations.arms import Options, expand, read_arm
from tracker.evaluations.comparison import Comparison, Rules, compare
from tracker.evaluations.measure import Lineage
from tracker.evaluations.sheet import Wanted


class EvaluatedVariant(Strict):
    """One variant: its files, and what it is a change of."""

    extends: Text | None = Field(default=None, description="Its parent; without it, a root.")
    why: str = ""
    files: list[Text] = Field(min_length=1, description="Files, folders or patterns, from the folder of this file.")


class EvaluationRules(Strict):
    """How edges are judged: the keys of a study's `analysis` that evaluations leave open."""

    direction: Literal["max", "min"] | Target | None = None
    margin: float | None = Field(default=None, gt=0)
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    rare: float = Field(default=0.5, gt=0, lt=1)
    correction: Literal["max-t", "holm"] = "max-t"
    variance: Literal["moderated", "own"] = "moderated"
    edges: Literal["parent", "root"] | list[tuple[Text, Text]] = "parent"


class EvaluationStudyFile(Strict):
    """The file."""

    title: Text | None = None
    metric: Text | None = None
    filter: Text | None = None
    tasks: list[Text] = Field(default=[], description="Only these; none: all in the files.")
    seed_from: Text | None = None
    allow: list[Literal["prompt", "target", "task"]] = Field(default=[])
    common_items: bool = False
    analysis: EvaluationRules = Field(default=EvaluationRules())
    variants: dict[Text, EvaluatedVariant] = Field(min_length=2)


class EvaluationStudy:
    """A study that was read and whose lineage holds together."""

    def __init__(self, path: Path, file: EvaluationStudyFile) -> None:
        self.path, self.file = path, file

    @property
    def lineage(self) -> dict[str, Lineage]:
        """Parents before children, as the judge's variants stand."""
        found: dict[str, Lineage] = {}
        left = dict(self.file.variants)
        while left:
            ready = [name for name, variant in left.items() if variant.extends is None or variant.extends in found]
            if not ready:
                problem = f"extends each other in a circle: {', '.join(left)}"
                raise ConfigError(self.path, "variants", None, problem, "one of them must extend nothing")
            for name in ready:
                variant = left.pop(name)
                found[name] = Lineage(variant.extends, variant.why)
        return found

    def compare(self, arguments: argparse.Namespace) -> Comparison:
        """Read all files, and judge; `arguments` may allow more than the file does."""
        file, rules = self.file, self.file.analysis
        lineage = self.lineage
        options = Options(Wanted(file.metric, file.filter, tuple(file.tasks)), file.seed_from, arguments.latest)
        arms = [read_arm(name, expand(file.variants[name].files, self.path.parent), options) for name in lineage]
        left = {"alpha", "rare", "correction", "variance", "edges"}
        judged: dict[str, Any] = {key: getattr(rules, key) for key in left}
        return compare(
            file.title or self.path.stem,
            arms,
            lineage,
            Rules(
                direction=rules.direction,
                margin=rules.margin,
                allow=frozenset([*file.allow, *arguments.allow]),
                common_items=file.common_items or arguments.common_items,
                flips=arguments.flips,
                chosen=Wanted(file.metric, file.filter),
                analysis=judged,
            ),
        )


def read_study_file(path: Path) -> EvaluationStudy:
    """Return the study of a file.

    Raises:
        ConfigError: an unknown key, a value out of range, a parent or edge that no variant is, a circle.
    """
    file = validate(EvaluationStudyFile, load_yaml(path), path)
    names = list(file.variants)
    parents = [(f"variants.{name}.extends", v.extends) for name, v in file.variants.items() if v.extends]
    edges = file.analysis.edges if isinstance(file.analysis.edges, list) else []
    for key, name in [*parents, *(("analysis.edges", name) for pair in edges for name in pair)]:
        if name not in names:
            raise ConfigError(path, key, name, "there is no such variant", suggest(name, names))
    study = EvaluationStudy(path, file)
    if not edges and not parents:
        raise ConfigError(
            path, "variants", None, "no variant extends another: nothing is compared", "give `extends`, or edges"
        )
    return study
