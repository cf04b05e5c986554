"""A study of evaluations: one YAML file that names variants, their files and how they are judged."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ablation.config.names import Strict, Text, suggest
from ablation.config.study_schema import Analysis
from ablation.config.validation import validate
from ablation.config.variant_tree import walk
from ablation.config.yaml_io import load_yaml
from ablation.contract.errors import ConfigError
from ablation.judge.compare.comparison import ComparisonResult, Rules, TreeNode, Weight, compare
from ablation.judge.compare.groups import Options, expand, read_group
from ablation.judge.measurements import Run
from ablation.readers.sheet import Errors, Wanted

_KEYS = (
    "direction",
    "margin",
    "alpha",
    "error",
    "rare",
    "correction",
    "variance",
    "comparisons",
    "seeds",
    "claim",
)  # of `analysis`


class EvaluatedVariant(Strict):
    """One variant: its files and its parent."""

    extends: Text | None = Field(default=None, description="Its parent; without it, a root.")
    why: str = ""
    files: list[Text] = Field(min_length=1, description="Files, folders or patterns, from the folder of this file.")


class EvaluationStudyFile(Strict):
    """The file."""

    title: Text | None = None
    metric: Text | None = None
    item: Text | None = None
    filter: Text | None = None
    cluster: Text | None = None
    tasks: list[Text] = Field(default=[], description="Only these; none: all in the files.")
    seed_from: Text | None = None
    at: Text | None = None
    weight: Weight = "tasks"
    allow: list[Literal["prompt", "target", "task", "identical", "scale"]] = Field(default=[])
    common_items: bool = False
    errors: Errors = "refuse"
    analysis: dict[str, Any] = Field(default={}, description="As in _study.yaml; what is left out the files tell.")
    variants: dict[Text, EvaluatedVariant] = Field(min_length=2)


@dataclass(frozen=True)
class EvaluationStudy:
    """A study that was read and whose variants form a tree, parents before children."""

    path: Path
    file: EvaluationStudyFile
    rules: Mapping[str, Any]  # the keys of `Analysis` that the file names
    variant_tree: Mapping[str, TreeNode]

    def compare(
        self, *, allow: Set[str], without: frozenset[Run], common_items: bool, latest: bool, changed_items: int
    ) -> ComparisonResult:
        """Read all files, and judge; `allow` and `common_items` add to what the file says."""
        file = self.file
        wanted = Wanted(file.metric, file.filter, tuple(file.tasks), file.cluster, file.item, errors=file.errors)
        independent = self.rules.get("seeds") == "independent" and file.seed_from is None
        options = Options(wanted, file.seed_from, latest, at=file.at, independent=independent)
        groups = [
            read_group(name, expand(file.variants[name].files, self.path.parent), options) for name in self.variant_tree
        ]
        return compare(
            file.title or self.path.stem,
            groups,
            self.variant_tree,
            Rules(
                direction=self.rules.get("direction"),
                margin=self.rules.get("margin"),
                allow=allow | frozenset(file.allow),
                common_items=file.common_items or common_items,
                errors=file.errors,
                without=without,
                weight=file.weight,
                changed_items=changed_items,
                chosen=Wanted(file.metric, file.filter),
                analysis={key: value for key, value in self.rules.items() if key not in ("direction", "margin")},
            ),
        )


def read_study_file(path: Path) -> EvaluationStudy:
    """Return the study of a file.

    Raises:
        ConfigError: an unknown key, a value out of range, an unknown parent or comparison, a cycle.
    """
    file = validate(EvaluationStudyFile, load_yaml(path), path)
    rules = _rules(file.analysis, path)
    parents = {name: variant.extends for name, variant in file.variants.items()}
    comparisons = rules["comparisons"] if isinstance(rules.get("comparisons"), list) else []
    named = [(f"variants.{name}.extends", parent) for name, parent in parents.items() if parent is not None]
    for key, name in [*named, *(("analysis.comparisons", name) for pair in comparisons for name in pair)]:
        if name not in parents:
            raise ConfigError(path, key, name, "there is no such variant", suggest(name, parents))
    if not comparisons and not named:
        raise ConfigError(
            path, "variants", None, "no variant extends another: nothing is compared", "give `extends`, or comparisons"
        )
    variant_tree = {place.name: TreeNode(place.parent, file.variants[place.name].why) for place in walk(parents)}
    if circle := [name for name in parents if name not in variant_tree]:
        problem = f"extends each other in a circle: {', '.join(circle)}"
        raise ConfigError(path, "variants", None, problem, "one of them must extend nothing")
    return EvaluationStudy(path, file, rules, variant_tree)


def _rules(given: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the part of an analysis plan that the file names, as a whole plan would have it."""
    said = {key: value for key, value in given.items() if value is not None}
    if wrong := [key for key in said if key not in _KEYS]:
        raise ConfigError(path, f"analysis.{wrong[0]}", None, "is not known here", suggest(wrong[0], _KEYS))
    told_by_the_files = {"value": "-", "protocol": "-", "subsets": ["-"], "direction": "max", "margin": None}
    complete = validate(Analysis, told_by_the_files | said, path, "analysis.")
    return {key: getattr(complete, key) for key in said}
