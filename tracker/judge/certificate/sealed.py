"""Sealed seeds and items: what a part of the data predicts of another part that the prediction never read.

The pool is the last third of the seeds (at least one) and a third of the items, whole clusters, chosen by a hash of
their names. The rest is judged, and predicts an interval of the effect on the pool for every edge. What is written
before the pool is opened is a hash of each interval with a nonce; what is written after it lets anyone compute the
hash again. Both stand in `results/sealed.json`.
"""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from contract.atomic import write_text
from contract.errors import ConfigError
from tracker.judge.certificate.pseudo import Runs
from tracker.judge.certificate.record import Sealing
from tracker.judge.edges import NOT_COMPARED, Edge, judge_edges
from tracker.judge.measurements import Measurements
from tracker.judge.statistics import run_statistics

Values = Mapping[str, pd.Series]  # of one run, by subset
Mask = NDArray[np.bool_]
Keep = Callable[[dict[str, Any]], None]
FEWEST_SEEDS = 3  # two predict, one is sealed
SEALED_FILE = "sealed.json"


@dataclass(frozen=True)
class Prediction:
    """The interval of an edge's effect on the pool, and the word that the rest of the data gives the edge."""

    child: str
    parent: str
    word: str
    low: float
    high: float

    def commitment(self, nonce: str) -> str:
        """Return the sha256 of the interval with a nonce, as JSON."""
        return hashlib.sha256(json.dumps([self.child, self.low, self.high, nonce]).encode()).hexdigest()


def sealed_seeds(study: Measurements, runs: Runs) -> list[int]:
    """Return the last third of the seeds, at least one; none where two would not remain."""
    every = study.in_order_added({seed for seeds, _ in runs.values.values() for seed in seeds})
    return every[-max(len(every) // 3, 1) :] if len(every) >= FEWEST_SEEDS else []


def sealed_items(study: Measurements, runs: Runs) -> list[Mask]:
    """Return which items are sealed, one array of booleans per subset: about a third, whole clusters."""
    masks = []
    for subset, index in zip(study.analysis.subsets, runs.items, strict=True):
        of = study.clusters.get(subset, {})
        masks.append(np.array([_third(study.name, of.get(item, f"{subset}/{item}")) for item in index], dtype=bool))
    return masks


def _third(study: str, name: str) -> bool:
    return int(hashlib.sha256(f"{study}/{name}".encode()).hexdigest()[:8], 16) % 3 == 0


def predict(study: Measurements, runs: Runs, seeds: list[int], items: list[Mask]) -> list[Prediction]:
    """Judge the study without the pool; return the interval of every edge's effect on the pool.

    An interval of half width h from S seeds and n items becomes h sqrt(1 + S n / (S' n')) for S' seeds and n' items:
    the variance of the estimate and, no smaller than in truth, that of the effect measured on the pool. (Noise of
    the items shrinks with n, that of the seeds with S, that of both with S n.)
    """
    rest = replace(
        study,
        states={run: state for run, state in study.states.items() if run[1] not in seeds},
        values={
            run: {subset: series[~mask] for (subset, series), mask in zip(_in_order(study, found), items, strict=True)}
            for run, found in study.values.items()
            if run[1] not in seeds and _complete(study, runs, found)
        },
    )
    predictions = []
    for edge in judge_edges(rest, planning=False):
        if edge.detail in NOT_COMPARED or edge.seeds < 2 or not np.isfinite(edge.high - edge.low):
            continue
        predictions.append(_prediction(edge, len(seeds), items))
    return predictions


def _prediction(edge: Edge, seeds: int, items: list[Mask]) -> Prediction:
    ratio = max(float((~mask).sum()) / max(float(mask.sum()), 1.0) for mask in items)
    wider = float(np.sqrt(1 + max(edge.seeds / seeds, 1.0) * max(ratio, 1.0)))
    low, high = edge.effect - (edge.effect - edge.low) * wider, edge.effect + (edge.high - edge.effect) * wider
    return Prediction(edge.child, edge.parent, edge.detail, float(low), float(high))


def _in_order(study: Measurements, found: Values) -> list[tuple[str, pd.Series]]:
    return [(subset, found[subset]) for subset in study.analysis.subsets]


def _complete(study: Measurements, runs: Runs, found: Values) -> bool:
    return all(
        subset in found and found[subset].index.equals(index)
        for subset, index in zip(study.analysis.subsets, runs.items, strict=True)
    )


def measured(
    study: Measurements, runs: Runs, prediction: Prediction, seeds: list[int], items: list[Mask]
) -> float | None:
    """Open the pool for one edge: the effect on sealed seeds and items; None where a run is missing."""
    arms = []
    for variant in (prediction.child, prediction.parent):
        known, arrays = runs.values.get(variant, ([], []))
        if any(seed not in known for seed in seeds):
            return None
        places = [known.index(seed) for seed in seeds]
        arms.append([array[places][:, mask] for array, mask in zip(arrays, items, strict=True)])
    values = [np.stack(pair) for pair in zip(*arms, strict=True)]
    child, parent = run_statistics(values, study.direction)
    return float(np.mean(child - parent))


def seal_and_open(
    study: Measurements, runs: Runs, keep: Keep, nonce: Callable[[], str] = lambda: secrets.token_hex(16)
) -> Sealing | None:
    """Predict, keep the commitments, then open the pool, keep what opens them; None where the pool would be empty.

    `keep` writes a JSON object to the disk; it is called before the pool is opened and after it.
    """
    seeds, items = sealed_seeds(study, runs), sealed_items(study, runs)
    if not seeds or any(mask.sum() < 2 or (~mask).sum() < 2 for mask in items):
        return None
    predictions = predict(study, runs, seeds, items)
    if not predictions:
        return None
    nonces = [nonce() for _ in predictions]
    children = Counter(prediction.child for prediction in predictions)
    names = [p.child if children[p.child] == 1 else f"{p.child} after {p.parent}" for p in predictions]
    entry: dict[str, Any] = {
        "seeds": seeds,
        "items": int(sum(mask.sum() for mask in items)),
        "commitments": {name: p.commitment(n) for name, p, n in zip(names, predictions, nonces, strict=True)},
    }
    keep(entry)
    opened: dict[str, Any] = {}
    inside: list[tuple[Prediction, bool]] = []
    by_word: dict[str, tuple[int, int]] = {}
    for name, prediction, used in zip(names, predictions, nonces, strict=True):
        effect = measured(study, runs, prediction, seeds, items)
        opened[name] = {
            "low": prediction.low,
            "high": prediction.high,
            "nonce": used,
            "word": prediction.word,
            "effect": effect,
        }
        if effect is not None:
            held = prediction.low <= effect <= prediction.high
            inside.append((prediction, held))
            kept, every = by_word.get(prediction.word, (0, 0))
            by_word[prediction.word] = (kept + held, every + 1)
    keep(entry | {"opened": opened})
    if not inside:
        return None
    return Sealing(
        seeds=seeds,
        items=entry["items"],
        edges=len(inside),
        effective=float(disjoint_edges([p for p, _ in inside])),
        inside=sum(held for _, held in inside),
        by_word=by_word,
    )


def disjoint_edges(predictions: Sequence[Prediction]) -> int:
    """Return the size of a set of edges of which no two share a variant: they share no run."""
    used: set[str] = set()
    count = 0
    for prediction in reversed(predictions):  # leaves first: in a tree this finds as many as there are
        if used.isdisjoint((prediction.child, prediction.parent)):
            used |= {prediction.child, prediction.parent}
            count += 1
    return count


def keeper(file: Path, study: str, digest: str) -> Keep:
    """Return what writes a study's sealing into `file`, beside those of other studies and of earlier data."""

    def keep(entry: dict[str, Any]) -> None:
        try:
            every = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        except ValueError:
            problem = "is not JSON"
            raise ConfigError(file, study, None, problem, "move it away: it is the record of predictions") from None
        every.setdefault(study, {})[digest] = entry
        write_text(file, json.dumps(every, indent=1, sort_keys=True) + "\n")

    return keep
