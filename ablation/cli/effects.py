"""The results on two variants, for the command `diff`; imported only where there are results."""

import json
from collections.abc import Iterator
from pathlib import Path

from ablation.config.study import Study, differences
from ablation.judge.edges import Pair, judge_edges, judge_pair
from ablation.judge.measurements import Measurements, read_measurements
from ablation.show.methods import primary_in_words
from ablation.show.text import describe_value
from ablation.store.current import load_or_collect
from ablation.store.database import Store


def describe_effect(results: Path, study: Study, scale: str, a: str, b: str) -> Iterator[str]:
    """Yield lines: the effect of B against A in the existing results, and how certain it is.

    `scale` is the scale of `study`: if the results have it too, their configuration is checked to be the same.
    """
    if a == b:
        return
    with Store(load_or_collect(results)) as store:
        measured_at = store.meta()["scale"]
        known = study.name in store.studies()
        measured = read_measurements(store, study.name) if known else None
    names = {variant.name for variant in measured.variants} if measured else set()
    if lacking := [name for name in (a, b) if name not in names]:
        yield f"no results of {' and '.join(lacking)} in {results}"
        return
    assert measured is not None
    yield from _effect(measured, measured_at, a, b)
    if scale == measured_at:
        then = {variant.name: variant.resolved for variant in measured.variants}
        for name in (a, b):
            now = json.loads(json.dumps(study.variants[name].values))  # as the plan holds it
            if changed := [key for key, *_ in differences(then[name], now)]:
                yield f"    {name} has been changed since ({', '.join(changed[:5])}): these results are from before"


def describe_stored(results: Path, name: str | None, a: str, b: str) -> list[str] | None:
    """Lines on two variants that only the results know, such as imported runs; None if they do not know both."""
    with Store(load_or_collect(results)) as store:
        having = studies_with(store, name, a, b)
        if len(having) != 1:
            return None
        return describe_pair(read_measurements(store, having[0]), store.meta()["scale"], a, b)


def studies_with(store: Store, name: str | None, a: str, b: str) -> list[str]:
    """The studies, or the one of a name, that have both variants."""
    studies = [study for study in store.studies() if name in (None, study)]
    return [study for study in studies if {a, b} <= {variant.name for variant in store.variants(study)}]


def describe_pair(measured: Measurements, scale: str, a: str, b: str) -> list[str]:
    """Lines on how two variants differ, and on the effect."""
    configs = {variant.name: variant.resolved for variant in measured.variants}
    lines = [
        f"{key}: {describe_value(old)} -> {describe_value(new)}"
        for key, old, new in differences(configs[a], configs[b])
    ]
    return [*(lines or ["no difference"]), *(_effect(measured, scale, a, b) if a != b else ())]


def _effect(study: Measurements, scale: str, a: str, b: str) -> Iterator[str]:
    """Yield the effect of B against A, and the verdict of the study's own edge between the two, if it has one."""
    of = "of imported runs" if study.imported else f"at scale {scale}"
    yield f"results {of}: {primary_in_words(study.analysis)}"
    yield from _numbers(study, judge_pair(study, b, a))
    edges = judge_edges(study)
    count = "1 edge" if len(edges) == 1 else f"{len(edges)} edges"
    for edge in edges:
        if {edge.child, edge.parent} == {a, b}:
            p = "" if edge.p_adjusted != edge.p_adjusted else f", p = {edge.p_adjusted:.2g}"
            word = f"{edge.child} after {edge.parent} is {edge.verdict}{p}"
            yield f"    as one of the study's {count}, corrected for all of them: {word}"


def _numbers(study: Measurements, pair: Pair) -> Iterator[str]:
    edge = pair.edge
    runs = f"{edge.seeds} seed{'s' * (edge.seeds != 1)}, {edge.items:,} item{'s' * (edge.items != 1)}"
    if edge.estimate is None:
        yield f"{edge.child} against {edge.parent}: {edge.detail}"
    else:
        bounds = f"{1 - study.analysis.alpha:.0%} interval [{edge.low:+.4g}, {edge.high:+.4g}]"
        interval = "no interval" if edge.low != edge.low else bounds
        p = "no p" if edge.p != edge.p else f"p = {edge.p:.2g}"
        yield f"{edge.child} against {edge.parent}, {runs}: {edge.effect:+.4g}, {interval}, {p}: {edge.detail}"
    for sentence in filter(None, (edge.why, *edge.notes, *map(str, edge.warnings))):
        yield f"    {sentence}"
    if edge.confounded:
        together = "the effect belongs to all of them together"
        yield f"    confounded: {len(edge.factors)} factors differ ({', '.join(edge.factors)}); {together}"
