"""The measured difference of two variants: the keys in which their configurations differ, and the effect."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.config.study import Study, differences
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import confidence, counted, estimate, p_equals
from ablation.contract.rows import LOGGED
from ablation.judge.comparisons import Pair, judge_comparisons, judge_pair
from ablation.judge.measurements import Measurements
from ablation.judge.stored import read_measurements
from ablation.judge.verdicts import comparison_rows
from ablation.show.methods import primary_in_words
from ablation.show.text import clean_records, describe_value
from ablation.store.current import load_or_collect
from ablation.store.database import Store


@dataclass(frozen=True)
class MeasuredDifference:
    """The changes between two variants and their effect, each as records and as lines of text.

    `effect` is None if both variants are the same, or if one of them has no results.
    """

    changes: list[dict[str, Any]]
    changed: list[str]
    effect: dict[str, Any] | None
    lines: list[str]


def declared_effect(results: Path, study: Study, scale: str, a: str, b: str) -> MeasuredDifference:
    """Return the effect of variant B against variant A of a configured study, as measured in the existing results.

    `scale` is the scale of `study`. If the results have the same scale, a line names variants whose configuration has
    changed since.
    """
    if a == b:
        return MeasuredDifference([], [], None, [])
    with Store(load_or_collect(results)) as store:
        measured_at = store.meta()["scale"]
        known = study.name in store.studies()
        measured = measured_pair(store, study.name, a, b) if known else None
    names = {variant.name for variant in measured.variants} if measured else set()
    if lacking := [name for name in (a, b) if name not in names]:
        return MeasuredDifference([], [], None, [f"{results} has no results for {' and '.join(lacking)}"])
    assert measured is not None
    effect = pair_effect(measured, measured_at, a, b)
    if scale == measured_at:
        then = {variant.name: variant.resolved for variant in measured.variants}
        for name in (a, b):
            now = json.loads(json.dumps(study.variants[name].values))  # as the plan holds it
            if changed := [key for key, *_ in differences(then[name], now)]:
                effect.lines.append(f"    {name} has changed since these results were made ({', '.join(changed[:5])})")
    return effect


def stored_effect(results: Path, name: str | None, a: str, b: str) -> MeasuredDifference | None:
    """Return the difference between two variants that only the results contain; None if no study contains both.

    Raises ConfigError if several studies have both.
    """
    with Store(load_or_collect(results)) as store:
        having = studies_with(store, name, a, b)
        if len(having) > 1:
            remedy = f"name the study: {', '.join(f'{study}/{a}' for study in having)}"
            raise ConfigError(results, f"{a} and {b}", None, f"are in {len(having)} studies", remedy)
        if not having:
            return None
        return pair_effect(measured_pair(store, having[0], a, b), store.meta()["scale"], a, b)


def studies_with(store: Store, name: str | None, a: str, b: str) -> list[str]:
    """Return the studies in the database that have both variants; if `name` is given, look only in that study."""
    studies = [study for study in store.studies() if name in (None, study)]
    return [study for study in studies if {a, b} <= {variant.name for variant in store.variants(study, helpers=True)}]


def measured_pair(store: Store, study: str, a: str, b: str) -> Measurements:
    """Return the measurements of a study; variants that `explain` wrote are included only if A or B is one of them."""
    planned = {variant.name for variant in store.variants(study)}
    return read_measurements(store, study, helpers=not {a, b} <= planned)


def pair_effect(study: Measurements, scale: str, a: str, b: str) -> MeasuredDifference:
    """Return the changes between two variants and the effect of B against A."""
    configs = {variant.name: variant.resolved for variant in study.variants}
    key_changes = differences(configs[a], configs[b])
    changed = [f"{key}: {describe_value(old)} -> {describe_value(new)}" for key, old, new in key_changes]
    if a == b:
        return MeasuredDifference([], ["no difference"], None, [])
    pair = judge_pair(study, b, a)
    differing = ((factor, *change) for factor, keys in pair.differing.items() for change in keys)
    changes = [dict(zip(("factor", "key", "from", "to"), each, strict=True)) for each in differing]
    [effect] = clean_records(comparison_rows([pair.comparison]))
    effect["margin"] = study.analysis.margin
    return MeasuredDifference(changes, changed or ["no difference"], effect, list(_effect(study, scale, pair)))


def _effect(study: Measurements, scale: str, pair: Pair) -> Iterator[str]:
    """Yield lines on the effect of a pair and, if there is one, on the study's own comparison of the two variants."""
    origin = "of imported runs" if study.imported else f"at scale {scale}"
    yield f"results {origin}: {primary_in_words(study.analysis)}"
    yield from _numbers(study, pair)
    comparisons = judge_comparisons(study)
    several = len(comparisons) > 1
    one = f"one of the study's {len(comparisons)} comparisons" if several else "the study's only comparison"
    for comparison in comparisons:
        if {comparison.child, comparison.parent} == {pair.comparison.child, pair.comparison.parent}:
            p = "" if comparison.p_adjusted != comparison.p_adjusted else f", {p_equals(comparison.p_adjusted)}"
            verdict = f"{comparison.child} after {comparison.parent} is {comparison.verdict}{p}"
            corrected = ", corrected for all of them" if several else ""
            yield f"    as {one}{corrected}: {verdict}"


def _numbers(study: Measurements, pair: Pair) -> Iterator[str]:
    comparison = pair.comparison
    runs = counted(comparison.seeds, "seed")
    if study.analysis.protocol != LOGGED:
        runs += f", {counted(comparison.items, 'item')}"
    if comparison.estimate is None:
        yield f"{comparison.child} against {comparison.parent}: {comparison.detail}"
    else:
        effect, ends = estimate(comparison.effect, comparison.low, comparison.high)
        bounds = f"{confidence(study.analysis.alpha)} interval {ends}"
        interval = "no interval" if comparison.low != comparison.low else bounds
        p = "no p" if comparison.p != comparison.p else p_equals(comparison.p)
        yield f"{comparison.child} against {comparison.parent}, {runs}: {effect}, {interval}, {p}: {comparison.detail}"
    for sentence in filter(None, (comparison.why, *comparison.notes, *map(str, comparison.warnings))):
        yield f"    {sentence}"
    if comparison.confounded:
        together = "the effect is their joint effect"
        yield f"    confounded: {len(comparison.factors)} factors differ ({', '.join(comparison.factors)}); {together}"
