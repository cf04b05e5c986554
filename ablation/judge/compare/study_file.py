"""Compares the variants that a study file names (`compare --study`), the `study.yaml` that `ablation import` reads."""

from collections.abc import Mapping, Set
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablation.config.import_file import ImportFile, read_import_file
from ablation.config.names import suggest
from ablation.config.study_schema import Analysis
from ablation.config.validation import validate
from ablation.config.variant_tree import walk
from ablation.contract.errors import ConfigError
from ablation.judge.compare.comparison import ComparisonResult, Rules, TreeNode, compare
from ablation.judge.compare.groups import Group, expand, read_group
from ablation.readers.run import EVALUATION
from ablation.readers.sheet import Wanted
from ablation.store.database import Run

_JUDGED = ("alpha", "error", "rare", "correction", "variance", "comparisons", "seeds", "claim")
_ANALYSIS = ("direction", "margin", "transform", *_JUDGED)
_VALUES = ("metric", "value", "protocol", "subsets")
_BY_NAME = "name:"  # where runs.seed is a regular expression


def compare_study(
    path: Path, *, allow: Set[str], without: frozenset[Run], common_items: bool, latest: bool, changed_items: int
) -> ComparisonResult:
    """Read and judge the evaluations of all variants; `allow` and `common_items` add to the rules of the file.

    Raises:
        ConfigError: a key that is unknown or works only with `import`, a parent or comparison that does not exist, or
            as `compare`.
    """
    _, file = read_import_file(path)
    given, plan = file.evaluations, _rules(file.analysis, path)
    seed_from = _seed_from(file, path)
    variant_tree = _tree(file, plan, path)
    files = {name: expand(file.variants[name].runs, path.parent) for name in variant_tree}

    rules = Rules(
        _wanted(file, path),
        seed_from,
        latest,
        at=given.at,
        independent=plan.get("seeds") == "independent" and seed_from is None,
        direction=plan.pop("direction", None),
        margin=plan.pop("margin", None),
        allow=allow | {*file.runs.allow, *given.allow},
        common_items=given.common_items or common_items,
        without=without,
        weight=given.weight,
        changed_items=changed_items,
        analysis=plan,
    )

    @lru_cache(maxsize=1)  # the same values may also be judged with other weights
    def read(wanted: Wanted) -> list[Group]:
        return [read_group(name, paths, replace(rules, wanted=wanted)) for name, paths in files.items()]

    return compare(file.title or path.stem, variant_tree, read, rules)


def _rules(given: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the keys that the file's `analysis` states, except those that name values, after validating them."""
    stated = {key: value for key, value in given.items() if value is not None and key not in _VALUES}
    if wrong := [key for key in stated if key not in _ANALYSIS]:
        remedy = suggest(wrong[0], (*_VALUES, *_ANALYSIS))
        raise ConfigError(path, f"analysis.{wrong[0]}", None, "is not a key of this file", remedy)
    of_the_files = {"value": "-", "protocol": "-", "subsets": ["-"], "direction": "max", "margin": None}
    complete = validate(Analysis, of_the_files | stated, path, "analysis.")
    return {key: getattr(complete, key) for key in stated}


def _wanted(file: ImportFile, path: Path) -> Wanted:
    """Return the values to compare: `metric`, or items with the names of imported evaluations.

    Raises:
        ConfigError: both are given, several metrics, or items of other files.
    """
    given, chosen = {key: file.analysis[key] for key in _VALUES if key in file.analysis}, file.evaluations
    metric, filter, tasks = given.get("metric"), chosen.filter, chosen.tasks
    if metric is None and given:
        items = {"protocol": "", "value": "", "subsets": tasks} | given
        if items["protocol"] != EVALUATION or not isinstance(items["value"], str):
            remedy = f"write `metric`, or `value` and `protocol: {EVALUATION}`"
            raise ConfigError(path, "analysis", given, "does not name values of evaluation files", remedy)
        metric, _, of_lm_eval = items["value"].partition(",")
        filter, tasks = filter or of_lm_eval or None, items["subsets"]
    elif metric is not None and (len(given) > 1 or not isinstance(metric, str)):
        problem, remedy = "is not a single metric", "name one metric, or items, but not both"
        raise ConfigError(path, "analysis.metric", metric, problem, remedy)
    return Wanted(metric, filter, tuple(tasks), chosen.cluster, chosen.item, errors=chosen.errors)


def _seed_from(file: ImportFile, path: Path) -> str | None:
    """Return the regular expression for the seed in a path. Raises ConfigError for keys that only `import` uses."""
    for name in sorted(file.runs.model_fields_set - {"seed", "allow"}):
        problem = "works only with `ablation import`, because evaluations have no configurations"
        raise ConfigError(path, f"runs.{name}", None, problem, "name each variant's files in variants.NAME.runs")
    seed = file.runs.seed
    if seed is not None and not seed.startswith(_BY_NAME):
        problem = "cannot find the seed of an evaluation"
        raise ConfigError(path, "runs.seed", seed, problem, "write name:REGEX with a group around the seed in a path")
    return None if seed is None else seed.removeprefix(_BY_NAME)


def _tree(file: ImportFile, rules: Mapping[str, Any], path: Path) -> dict[str, TreeNode]:
    """Return {variant: its place in the tree}, parents before children.

    Raises ConfigError if a variant lacks runs, if a parent does not exist, or if parents form a cycle.
    """
    for name, variant in file.variants.items():
        if variant.where or not variant.runs:
            problem = "works only with `ablation import`" if variant.where else "is missing"
            key = f"variants.{name}.{'where' if variant.where else 'runs'}"
            raise ConfigError(path, key, None, problem, "name the variant's files, folders or patterns in `runs`")
    parents = {name: variant.parent for name, variant in file.variants.items()}
    comparisons = rules["comparisons"] if isinstance(rules.get("comparisons"), list) else []
    named = [(f"variants.{name}.parent", parent) for name, parent in parents.items() if parent is not None]
    for key, name in [*named, *(("analysis.comparisons", name) for pair in comparisons for name in pair)]:
        if name not in parents:
            raise ConfigError(path, key, name, "the variant does not exist", suggest(name, parents))
    if not comparisons and not named:
        problem = "no variant has a parent, so there is nothing to compare"
        remedy = "give a variant a `parent`, or list comparisons in `analysis`"
        raise ConfigError(path, "variants", None, problem, remedy)
    tree = {place.name: TreeNode(place.parent, file.variants[place.name].why or "") for place in walk(parents)}
    if circle := [name for name in parents if name not in tree]:
        problem = f"the variants' parents form a cycle: {', '.join(circle)}"
        raise ConfigError(path, "variants", None, problem, "remove `parent` from the variant that is the root")
    return tree
