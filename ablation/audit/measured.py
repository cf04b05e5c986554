"""Compute our own numbers for a published table, with prediction intervals, or reasons why a number is missing."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np

from ablation.audit.reproduction import Curves, Measured, MeasuredCell
from ablation.audit.training_claims import stated_metrics
from ablation.config.published_schema import PublishedFile
from ablation.contract.display import joined
from ablation.judge.measurements import Measurements, item_clusters, paired_values
from ablation.judge.significance import Array, Noise, half_width
from ablation.judge.statistics import Direction, Numbers, contrast
from ablation.judge.stored import read_measurements
from ablation.store.database import ENDED_WELL, Store

Part = tuple[Sequence[Array], Sequence[Numbers]]  # one array [groups, seeds, items] and one [items] per subset


def measured(store: Store, study: Measurements, published: PublishedFile) -> Measured:
    """Return our own table of a study, with the columns of the published table: one per subset, and their mean."""
    rows = {name: _cells(study, [name], published) for name in study.parents if name in published.rows}
    deltas = _deltas(study, published)
    identical = {(variant, against) for (variant, against, _), cell in deltas.items() if cell.identical}
    return Measured(
        {name: {column: row[column] for column in published.columns if column in row} for name, row in rows.items()},
        _difference(store, study, published),
        deltas,
        _curves(store, study.name, stated_metrics(published)),
        scale=store.meta().get("scale", ""),
        settings={variant.name: variant.resolved for variant in study.variants},
        ran=frozenset(variant for (variant, _), (state, _) in study.states.items() if state in ENDED_WELL),
        reached=_reached(store, study, identical),
        margin=nan if study.analysis.margin is None else study.analysis.margin,
        alpha=study.analysis.alpha,
    )


def _reached(store: Store, study: Measurements, pairs: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return {pair: clause on how many values of the primary metric differ}; {} if the source reports that metric."""
    plan = store.study(study.name).analysis
    if not pairs or plan.named == study.analysis.named:
        return {}
    planned, texts = read_measurements(store, study.name), {}
    for pair in sorted(pairs):
        values, _, _ = paired_values(planned, pair)
        differ = sum(int((subset[0] != subset[1]).sum()) for subset in values)
        everything = sum(subset[0].size for subset in values)
        texts[pair] = (
            f"; {plan.named}, by which the study is judged, differs in {differ} of {everything} values"
            if values
            else ""
        )
    return texts


def published_value(store: Store, study: str, published: PublishedFile) -> str | None:
    """Return the item value whose mean is the published metric (`ss` for `ss_distance`); None if no item has it.

    A study may be judged by another value than its source prints, such as a graded one with less noise.
    """
    name = str(published.metric).removesuffix("_distance")
    query = "SELECT 1 FROM finals JOIN items USING (key) WHERE study = ? AND items.name = ? LIMIT 1"
    return name if store.rows(query, [study, name])[1] else None


def prediction_half_width(noise: Noise, *, seeds: int, runs: int, alpha: float) -> float:
    """Return the half width of the prediction interval of a new mean over `runs` runs; NaN with one seed.

    The difference between our mean over `seeds` runs and the new mean has the variance of one run times
    (1 / seeds + 1 / runs), with seeds - 1 degrees of freedom, plus twice the variance of the items, since the new mean
    may come from different items. `noise` is the noise of our mean.
    """
    if not noise.seeds_known:
        return nan
    seed_variance = noise.seed_variance * seeds * (1 / seeds + 1 / runs)
    item_variance, residual = 2 * noise.item_variance, 2 * noise.residual
    noise_of_difference = replace(noise, seed_variance=seed_variance, item_variance=item_variance, residual=residual)
    return half_width(noise_of_difference, alpha)


def _curves(store: Store, study: str, metrics: list[str]) -> Curves:
    """Return the metrics' finite values in runs that succeeded, one array per seed, in order of steps."""
    text = """SELECT variant, stage, metric, seed, list(value ORDER BY step) AS course
              FROM curves JOIN runs USING (study, variant, seed)
              WHERE study = ? AND state IN ('ok', 'imported') AND list_contains(?, metric) AND isfinite(value)
              GROUP BY ALL ORDER BY variant, stage, metric, seed"""
    courses: dict[tuple[str, str, str], list[Array]] = {}
    for row in store.sql(text, [study, metrics]).itertuples() if metrics else ():
        courses.setdefault((row.variant, row.stage, row.metric), []).append(np.asarray(row.course))
    return courses


def _deltas(study: Measurements, published: PublishedFile) -> dict[tuple[str, str, str], MeasuredCell]:
    """Return our cells for the differences that the source reports, claims, or implies by naming a best variant."""
    comparisons = [(delta.variant, delta.against, delta.column) for delta in published.deltas]
    comparisons += [(claim.variant, claim.against, claim.column) for claim in published.claims]
    for standing in published.standings:
        rivals = [rival for rival in published.rows if standing.best and rival != standing.variant]
        comparisons += [(standing.variant, rival, standing.column) for rival in rivals]
    cells_by_pair: dict[tuple[str, str], dict[str, MeasuredCell]] = {}
    deltas = {}
    for variant, against, column in comparisons:
        pair = (variant, against)
        if set(pair) <= study.parents.keys() and column in (*study.analysis.subsets, published.mean):
            cells_by_pair[pair] = cells_by_pair.get(pair) or _cells(study, pair, published)
            deltas[*pair, column] = cells_by_pair[pair][column]
    return deltas


def _cells(study: Measurements, variants: Sequence[str], published: PublishedFile) -> dict[str, MeasuredCell]:
    """Return {column: cell} of a variant, or of the difference of two variants: one per subset, and their mean.

    Differences are paired by seeds and items. They are differences of the metric, not gains.
    """
    values, seeds, problem = paired_values(study, variants)
    if not values:
        columns = {*published.columns, *study.analysis.subsets, published.mean}
        return {column: MeasuredCell(nan, nan, nan, 0, problem.text) for column in columns}
    clusters = item_clusters(study, variants[0], seeds[0])
    values_by_column: dict[str, Part] = {published.mean: (values, clusters)}
    values_by_column |= {name: ([v], [c]) for name, v, c in zip(study.analysis.subsets, values, clusters, strict=True)}
    weights = (1.0, -1.0)[: len(variants)]
    return {column: _cell(study, part, weights, published, problem.text) for column, part in values_by_column.items()}


def _cell(
    study: Measurements, part: Part, weights: tuple[float, ...], published: PublishedFile, problem: str
) -> MeasuredCell:
    """Return our value of the published metric: the distance from the source's target, or the mean without a target.

    The study's own direction does not matter: a source may print a mean while the study judges its distance.
    """
    target = None if published.target is None else published.target.value
    direction: Direction = "max" if target is None else {"target": target}
    alpha, (values, clusters) = study.analysis.alpha, part
    numbers = contrast(values, weights, direction, confidence=1 - alpha, clusters=clusters)
    value = numbers.effect if target is None else 0.0 - numbers.effect  # a gain is minus the distance; never -0
    half = prediction_half_width(numbers.noise, seeds=numbers.seeds, runs=published.runs or 1, alpha=alpha)
    low = value - half
    if target is not None and len(weights) == 1:
        low = float(np.maximum(low, 0.0))  # keeps NaN
    sure = half_width(numbers.noise, alpha) if numbers.noise.seeds_known else nan
    identical = len(weights) == 2 and all(np.array_equal(subset[0], subset[1]) for subset in values)
    return MeasuredCell(value, low, value + half, numbers.seeds, problem, sure, numbers.noise, identical)


def _difference(store: Store, study: Measurements, published: PublishedFile) -> str:
    scale = store.sql("SELECT value FROM meta WHERE key = 'scale'")["value"].tolist()
    reasons = [f"these results are at scale {scale[0]}" if scale and scale[0] != "paper" else ""]
    resolved = store.sql("SELECT resolved FROM variants WHERE study = ?", [study.name])["resolved"]
    models = [json.dumps((json.loads(text) if isinstance(text, str) else text or {}).get("model")) for text in resolved]
    if published.model is None:
        reasons.append("the source does not name its model")
    elif not all(published.model in model for model in models):
        reasons.append(f"the source's model is {published.model}, which these runs do not use")
    counted = {subset: len(series.index) for run in study.values.values() for subset, series in run.items()}
    published_items = published.items
    if unequal := [subset for subset, count in counted.items() if published_items.get(subset, count) != count]:
        listed = ", ".join(
            f"{subset}: {counted[subset]} here, {published_items[subset]} published" for subset in unequal
        )
        reasons.append(f"the numbers of items differ ({listed})")
    return joined([reason for reason in reasons if reason])
