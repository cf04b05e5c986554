"""The data of the page's scripts: learning curves, and comparisons of any two variants.

Curves have every seed of every variant, averaged over bins of steps so that all fit. Comparisons have the effect of
every pair of variants, and every configuration.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ablation.config import dotted
from ablation.config.study_schema import StudyDefinition
from ablation.contract.numbers import is_number
from ablation.contract.rows import LOGGED
from ablation.judge.comparisons import Pair, factor_among
from ablation.judge.judged import NOT_COMPARED
from ablation.plan.plan_file import PlannedVariant
from ablation.show.page.comparisons import Comparisons
from ablation.show.text import describe_value
from ablation.store.database import ENDED_WELL, Store

VALUES = 500_000  # on one page: 1.6 MB
DIGITS = 4  # as many as the page shows
FEWEST_BINS, MOST_BINS = 25, 400

SERIES = """
WITH runs AS (SELECT study, stage, metric, min(value) < max(value) OR NOT isfinite(max(value)) AS moves
    FROM curves GROUP BY study, stage, metric, variant, seed)
SELECT study, stage, metric, count(DISTINCT step) AS steps, count(DISTINCT (variant, seed)) AS series,
    count(DISTINCT seed) AS seeds, moves
FROM curves
JOIN (SELECT study, stage, metric, bool_or(moves) AS moves FROM runs GROUP BY ALL) USING (study, stage, metric)
GROUP BY ALL HAVING count(DISTINCT step) > 1 ORDER BY ALL"""

# A bin holds `per_bin` neighbouring logged steps of one metric of one stage, whichever runs logged them.
BINNED = """
WITH first_seeds AS (SELECT seed FROM run_stages WHERE study = $1 GROUP BY seed ORDER BY min(rowid) LIMIT $3),
points AS (SELECT stage, metric, variant, seed, step, value
           FROM curves SEMI JOIN first_seeds USING (seed) WHERE study = $1),
steps AS (SELECT stage, metric, step, row_number() OVER (PARTITION BY stage, metric ORDER BY step) - 1 AS rank,
          count(*) OVER (PARTITION BY stage, metric) AS steps FROM (SELECT DISTINCT stage, metric, step FROM points)),
grid AS (SELECT stage, metric, step, rank // ceil(steps / $2)::BIGINT AS bin FROM steps WHERE steps > 1),
centres AS (SELECT stage, metric, bin, avg(step) AS centre FROM grid GROUP BY ALL)
SELECT stage, metric, variant, seed, bin, any_value(centre) AS centre,
    avg(value) FILTER (isfinite(value)) AS value, count(*) FILTER (NOT isfinite(value)) AS bad
FROM points JOIN grid USING (stage, metric, step) JOIN centres USING (stage, metric, bin)
GROUP BY stage, metric, variant, seed, bin ORDER BY stage, metric, variant, seed, bin"""


@dataclass(frozen=True)
class CurveBudget:
    """The curves that fit on the page.

    kept: DataFrame(study, stage, metric, steps, series, seeds). left_out: number of other metrics by study. bins:
    largest number of bins of a curve. seeds: largest number of seeds of a curve, which are the first ones of the plan.
    """

    kept: pd.DataFrame
    left_out: dict[str, int]
    bins: int
    seeds: int

    def all_seeds(self, study: str) -> bool:
        """Return whether the curves of a study include all its seeds."""
        return not (self.kept.loc[self.kept["study"] == study, "seeds"] > self.seeds).any()


def plan_curves(store: Store, definitions: Mapping[str, StudyDefinition], values: int = VALUES) -> CurveBudget:
    """Choose metrics and bins so that the page shows about `values` numbers in total.

    Curves that `_study.yaml` declares come first, in that order, and are never left out; if they are too many, only the
    first seeds are kept. Then come the other logged metrics that change within some run.
    """
    candidates = store.sql(SERIES)
    declared = {(s, c.metric): i for s, d in definitions.items() for i, c in enumerate(d.curves)}
    names = list(zip(candidates["study"], candidates["metric"], strict=True))
    candidates["rank"] = [declared.get(name, len(declared)) for name in names]
    candidates = candidates[candidates["moves"] | (candidates["rank"] < len(declared))]
    candidates = candidates.sort_values(["rank", "study", "metric", "stage"], kind="stable")
    kept = (candidates["rank"] < len(declared)) | (candidates["series"].cumsum() <= values // FEWEST_BINS)
    left_out, chosen = candidates.loc[~kept].groupby("study").size(), candidates[kept]
    least, most = (chosen["series"] * chosen["steps"].clip(upper=FEWEST_BINS)).sum(), max(chosen["seeds"], default=0)
    seeds = int(most if least <= values else max(1, most * values // least))
    series = int((chosen["series"] * (seeds / chosen["seeds"]).clip(upper=1)).sum())
    bins = min(max(values // max(series, 1), FEWEST_BINS), MOST_BINS)
    return CurveBudget(chosen, {str(study): int(count) for study, count in left_out.items()}, bins, seeds)


def study_curves(store: Store, study: str, definition: StudyDefinition, budget: CurveBudget) -> dict[str, Any]:
    """Return the curves of one study for the script of the page.

    `{variants: [name], metrics: [{name, label, stage, declared, per_bin, logged, steps: [x], series}]}`. A series is
    `[variant, seed, ok, bad, values]`. There is one value per entry of `steps`: the mean of the finite values that were
    logged in that bin, to DIGITS digits, None if there is none; `bad` counts the values that are not finite.
    `ok` is whether the run succeeded; means include only runs that did.
    """
    variants = [variant.name for variant in store.variants(study)]
    index = {name: i for i, name in enumerate(variants)}
    labels = {curve.metric: curve.label for curve in definition.curves}
    runs = store.runs(study)
    ok = {(run.variant, run.seed) for run in runs.itertuples() if run.state in ENDED_WELL}
    points = store.sql(BINNED, [study, budget.bins, budget.seeds])  # sorted by its first five columns
    groups = _stretches(points, ["stage", "metric"])
    series_of = _stretches(points, ["stage", "metric", "variant", "seed"])
    columns = {name: points[name].to_numpy() for name in ("bin", "centre", "bad")}
    raw_values = points["value"].to_numpy(dtype="float64", na_value=np.nan).tolist()
    values = [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in raw_values]
    by_metric: dict[tuple[str, str], list[tuple[str, int, slice]]] = {}
    for (stage, metric, variant, seed), rows in series_of.items():
        if variant not in index:  # a helper of `explain`
            continue
        by_metric.setdefault((stage, metric), []).append((variant, int(seed), rows))
    metrics = []
    kept: Any = budget.kept[budget.kept["study"] == study].itertuples(index=False)
    for row in kept:
        metric_rows = groups[row.stage, row.metric]
        bins, first = np.unique(columns["bin"][metric_rows], return_index=True)
        centres = columns["centre"][metric_rows][first].tolist()
        series = []
        for variant, seed, rows in by_metric[row.stage, row.metric]:
            value_of_bin = dict(zip(columns["bin"][rows].tolist(), values[rows], strict=True))
            course = [value_of_bin.get(bin) for bin in bins.tolist()]
            series.append([index[variant], seed, (variant, seed) in ok, int(columns["bad"][rows].sum()), course])
        metric = {"name": row.metric, "label": labels.get(row.metric, row.metric), "stage": row.stage}
        metric |= {"declared": row.metric in labels, "per_bin": -(-row.steps // budget.bins), "logged": row.steps}
        steps = [int(x) if x.is_integer() else round(x, 2) for x in centres]
        metrics.append(metric | {"steps": steps, "series": sorted(series, key=lambda one: one[:2])})
    return {"variants": variants, "metrics": metrics}


def _stretches(frame: pd.DataFrame, names: list[str]) -> dict[tuple[Any, ...], slice]:
    """Return {values of the named columns: rows} of a frame that is sorted by the named columns."""
    if frame.empty:
        return {}
    columns = [frame[name].to_numpy() for name in names]
    changes = np.flatnonzero(np.any([column[1:] != column[:-1] for column in columns], axis=0)) + 1
    starts = [0, *changes.tolist()]
    return {
        tuple(column[start] for column in columns): slice(start, stop)
        for start, stop in zip(starts, [*starts[1:], len(frame)], strict=True)
    }


MOST_VARIANTS = 40  # all 780 pairs of these are computed in advance
GLYPHS = {"better": "▲", "worse": "▼", "equivalent": "=", "undecided": "○", "invalid": "×", "not run": "□"}
_TURNED = {"better": "worse", "worse": "better"}


@dataclass(frozen=True)
class Pairs:
    """Comparisons of any two variants of a study.

    cells[row][column]: verdict and effect of the row's variant against the column's, None on the diagonal; empty if the
    pairs were not computed. data: for the script of the page.
    """

    names: list[str]
    cells: list[list[tuple[str, float | None] | None]]
    data: Mapping[str, Any]

    @property
    def count(self) -> int:
        """Number of pairs that could be compared."""
        return sum(cell is not None and cell[1] is not None for row in self.cells for cell in row) // 2


def study_pairs(
    variants: Sequence[PlannedVariant], comparisons: Comparisons, pairs: Sequence[Pair], bound: float = math.inf
) -> Pairs:
    """Arrange the judged pairs of variants in the order of the variant tree; `pairs` may be empty.

    Intervals are limited to ±`bound`.

    The data: `{variants, pairs: {"i j": [effect, low, high, p, verdict, seeds, items, why]}, verdicts, whys,
    comparisons, keys, factors, base, own}`. The numbers of a pair are those of variant i against variant j; items is
    null for final metrics. `comparisons` has the verdicts of the study by the same "i j". `base` has the values of
    `keys` in the first variant as text, and `own` the different values of each variant, null for a missing key.
    """
    names = [row.variant.name for row in comparisons.rows]
    place = {name: number for number, name in enumerate(names)}
    cells: list[list[tuple[str, float | None] | None]] = [[None] * len(names) for _ in names] if pairs else []
    whys: dict[str, int] = {}
    rows: dict[str, list[Any]] = {}
    for pair in pairs:
        comparison = pair.comparison
        effect = comparison.effect if is_number(comparison.effect) else None
        i, j = place[comparison.child], place[comparison.parent]
        cells[i][j] = comparison.detail, effect
        cells[j][i] = _TURNED.get(comparison.detail, comparison.detail), -effect if effect is not None else None
        why = whys.setdefault(
            comparison.why if comparison.detail in NOT_COMPARED else "; ".join(comparison.notes), len(whys)
        )
        numbers = [
            _short(value)
            for value in (comparison.effect, max(comparison.low, -bound), min(comparison.high, bound), comparison.p)
        ]
        items = None if comparison.measurements.analysis.protocol == LOGGED else comparison.items
        rows[f"{i} {j}"] = [*numbers, list(GLYPHS).index(comparison.detail), comparison.seeds, items, why]
    judged = {f"{place[record['child']]} {place[record['parent']]}": record["verdict"] for record in comparisons.judged}
    data = {"variants": names, "pairs": rows, "verdicts": list(GLYPHS), "whys": list(whys), "comparisons": judged}
    return Pairs(names, cells, data | _configurations(variants, names))


def _configurations(variants: Sequence[PlannedVariant], names: Sequence[str]) -> dict[str, Any]:
    """Return the first configuration, and the differences of every configuration from it."""
    configs = {
        variant.name: {key: describe_value(value) for key, value in dotted.leaves(variant.resolved)}
        for variant in variants
    }
    keys = list(dict.fromkeys(key for name in names for key in configs[name]))
    factor_of_key = {change.key: change.factor for variant in variants for change in variant.changes}
    factors = {key: factor for key in keys if (factor := factor_among(key, factor_of_key)) != key}
    base = [configs[names[0]].get(key) for key in keys] if names else []
    own = [
        {at: configs[name].get(key) for at, key in enumerate(keys) if configs[name].get(key) != base[at]}
        for name in names
    ]
    return {"keys": keys, "factors": factors, "base": base, "own": own}


def _short(value: float) -> float | None:
    """Return a number rounded to five significant digits, more than the page shows; None if not finite."""
    return float(f"{value:.5g}") if is_number(value) else None
