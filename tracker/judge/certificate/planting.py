"""Planted effects: lineages whose children are their parents' runs with changed items, so that every effect is known.

The items are drawn again from the study's own (whole clusters, with replacement), the parents' runs are those of one
of its variants, and the changes carry the noise of the study's own edges. A form says how a change acts:

    items       on items one by one, the same in every seed; with the study's noise
    clusters    on whole clusters; with the study's noise
    seeds       in some of the seeds only, as a collapse or early stopping does: in a larger share than `equivalent`
                leaves open; at level zero by an amount per seed
    rare        on few items, the same in every seed, and nothing else differs
    across      from one side of the target to the other
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import pi, sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from tracker.config.study_schema import Analysis
from tracker.judge.certificate.changes import ROOM, change_items, sides, signed_gain
from tracker.judge.certificate.noise import Noise
from tracker.judge.certificate.pseudo import Runs, has_clusters, pseudo_study
from tracker.judge.certificate.trials import Level, Trial, judged
from tracker.judge.measurements import Measurements
from tracker.judge.scope import share_otherwise
from tracker.judge.significance import Array

FORMS = ("items", "clusters", "seeds", "rare", "across")
CLUSTER_VOLUME = 10  # mean size of the changes, up and down, of a clusterwise change without effect, in margins
MORE = 0.01  # of the seeds: what a change of the form `seeds` acts in beyond the share that `equivalent` leaves open
PLAIN = 1.25  # times the level is the effect of such a change, so that one seed of those run that shows it is enough


@dataclass
class Node:
    """One variant of a planted lineage: its runs, and the means of what they were drawn from."""

    values: list[Array]  # [seeds, items] per subset
    means: list[Array]  # [seeds] per subset, over all items that could be drawn, but for the seeds' own shifts
    spread: float = 0.0  # standard deviation of these shifts
    side: float = 1.0  # of the target, in the form `across`


@dataclass
class World:
    """The items drawn for one planted study, and how a change acts in it."""

    study: Measurements
    runs: Runs
    noise: Noise
    form: str
    level: Level
    generator: np.random.Generator
    drawn: list[NDArray[np.int64]] = field(default_factory=list)  # per subset: places of the items
    clusters: list[NDArray[np.int64]] = field(default_factory=list)  # per subset: their clusters
    pool: list[Array] = field(default_factory=list)  # per subset: [variants, seeds, items] of the study, before drawing
    fresh: list[float] = field(default_factory=list)  # per subset: share of the values that a run has anew


def forms_of(study: Measurements, runs: Runs) -> list[str]:
    """Return the forms that the study can have: clusters where it names any, across where there is a target."""
    without = set() if has_clusters(runs.clusters) else {"clusters"}
    without |= {"across"} if not isinstance(study.direction, dict) else set()
    return [form for form in FORMS if form not in without]


def planted_trials(
    study: Measurements, runs: Runs, noise: Noise, form: str, level: Level, *, rounds: int, seed: int
) -> Iterator[Trial]:
    """Judge `rounds` planted lineages of one form at one level."""
    bases = list(runs.values)
    most = [name for name in bases if len(runs.values[name][0]) == runs.most_seeds]
    for round_ in range(rounds):
        generator = np.random.default_rng([seed, FORMS.index(form), sum(map(ord, level.name)), round_])
        world = World(study, runs, noise, form, level, generator)
        yield _plant(world, most[int(generator.integers(len(most)))], f"{form} {level.name} {round_}")


def _plant(world: World, base: str, unit: str) -> Trial:
    study, runs = world.study, world.runs
    seeds, arrays = runs.values[base]
    world.drawn, world.clusters = draw_items(runs.clusters, world.generator)
    _fill_pool(world, seeds, arrays)
    planned = {variant.name: study.seeds(variant.name) for variant in study.variants}
    nodes: dict[str, Node] = {}
    truths: dict[str, float | None] = {}
    values = {}
    for variant in study.variants:
        parent = nodes.get(variant.parent) if variant.parent is not None else None
        if parent is None:
            node = Node(
                [subset[:, index] for subset, index in zip(arrays, world.drawn, strict=True)],
                [subset.mean(axis=1) for subset in arrays],
            )
            if world.form == "across":
                node = _beside_target(world, node)
        else:
            paired = len(set(planned[variant.name]) & set(planned[variant.parent or ""]) & set(seeds))
            node, truths[variant.name] = _child(world, parent, paired)
        nodes[variant.name] = node
        kept = [place for place, seed in enumerate(seeds) if seed in planned[variant.name]]
        values[variant.name] = ([seeds[place] for place in kept], [subset[kept] for subset in node.values])
    items = [pd.Index([f"{place:06d}" for place in range(len(index))]) for index in world.drawn]
    made = pseudo_study(study, values, items, world.clusters)
    return judged(made, truths, form=world.form, level=world.level.name, unit=unit)


def draw_items(
    clusters: Sequence[NDArray[np.int64]], generator: np.random.Generator
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Draw whole clusters with replacement until every subset has as many items as before; the last may be cut.

    Return the drawn items' places, and the number of the draw that each came with: its cluster among the drawn.
    """
    if not has_clusters(clusters):  # each item by itself
        starts = np.cumsum([0, *(len(of) for of in clusters)])
        own = [np.arange(len(of)) + start for of, start in zip(clusters, starts, strict=False)]
        return [generator.integers(0, len(of), len(of)) for of in clusters], own
    names = np.unique(np.concatenate(list(clusters)))
    members = [{name: np.flatnonzero(of == name) for name in np.unique(of)} for of in clusters]
    empty = np.zeros(0, dtype=np.int64)
    places: list[list[NDArray[np.int64]]] = [[] for _ in clusters]
    draws: list[list[NDArray[np.int64]]] = [[] for _ in clusters]
    missing = [len(of) for of in clusters]
    count = 0
    while any(missing):
        name = names[int(generator.integers(len(names)))]
        for subset, of in enumerate(members):
            found = of.get(name, empty)[: missing[subset]]
            places[subset].append(found)
            draws[subset].append(np.full(len(found), count))
            missing[subset] -= len(found)
        count += 1
    return [np.concatenate(found) for found in places], [np.concatenate(found) for found in draws]


def acting_share(analysis: Analysis, seeds: int) -> float:
    """Return the share of seeds in which a change acts that `equivalent` from so many seeds denies.

    The word leaves open a share q of seeds (`tracker.judge.scope`), the most at the first look that may say it; from
    fewer seeds than `rare` asks for it must not be said at all. This share is a little more than q, or than `rare`. So
    none of the seeds that were run shows the change with a probability below alpha: the promise.
    """
    counts = [look for look in analysis.looks if look <= seeds] if analysis.looks else [seeds]
    left = [share_otherwise(count, analysis.alpha) for count in counts if count > 1]
    return min(max((q for q in left if q <= analysis.rare), default=analysis.rare) + MORE, 1.0)


def _child(world: World, parent: Node, paired: int) -> tuple[Node, float | None]:
    """Return a child of known effect, and this effect (None: not known, since the target lies within its noise).

    `paired`: the seeds that it has in common with its parent.
    """
    if world.form == "across":
        return _across(world, parent)
    amount, acting = world.level.amount, 1.0
    if world.form == "seeds" and amount:
        amount, acting = PLAIN * amount, acting_share(world.study.analysis, paired)
    gain = signed_gain(world.study, world.runs, parent.means, amount / acting, world.generator) if amount else 0.0
    if gain is None:
        return Node(parent.values, parent.means, parent.spread), None
    directions = sides(world.study, parent.means)
    count = len(parent.values[0])
    noisy = world.form in ("items", "clusters") or (world.form == "seeds" and not amount)
    if acting < 1:
        acts = (world.generator.random(count) < acting).astype(float)
        shift = np.zeros(count)
    else:
        acts = np.ones(count)
        shift = _shifts(world, parent, count) if noisy else np.zeros(count)
    drawn = _draws(world)
    values, means = [], []
    for subset in range(len(parent.values)):
        low, high = world.runs.low[subset], world.runs.high[subset]
        before, mean = parent.values[subset], parent.means[subset]
        wanted = mean + acts * gain * directions[subset]
        if noisy and world.form != "seeds":
            before, mean = _run_anew(world, before, mean, subset)
        changed, after = change_items(
            before, mean, wanted - mean, volume=_common_volume(world), low=low, high=high, draw=drawn[subset]
        )
        if noisy:
            new = world.generator.random(changed.shape)
            changed, _ = change_items(
                changed, after, shift * directions[subset], volume=0.0, low=low, high=high, draw=new
            )
        values.append(changed)
        means.append(after)
    own = float(np.hypot(parent.spread, _spread(world))) if noisy else parent.spread
    node = Node(values, means, own)
    if acting < 1:
        return node, amount * float(np.sign(gain))
    return node, expected_gain(world.study, node) - expected_gain(world.study, parent)


def _fill_pool(world: World, seeds: Sequence[int], arrays: Sequence[Array]) -> None:
    """Gather the values that another run of the same seed had of the same item, and how many a new run changes."""
    every = [found for found in world.runs.values.values() if set(seeds) <= set(found[0])]
    places = [[known.index(seed) for seed in seeds] for known, _ in every]
    world.pool = [
        np.stack([of[subset][place] for (_, of), place in zip(every, places, strict=True)])
        for subset in range(len(arrays))
    ]
    world.fresh = []
    for values, pool, low, high in zip(arrays, world.pool, world.runs.low, world.runs.high, strict=True):
        differ = float(((pool - values) ** 2).mean()) / (high - low) if high > low else 0.0
        world.fresh.append(min(1.0, world.noise.fresh / differ) if differ > 0 else 0.0)


def _run_anew(world: World, values: Array, mean: Array, subset: int) -> tuple[Array, Array]:
    """Give a share of the values [seeds, items] that another run had of the same item; return them and their mean.

    So an easy item stays easy, as in a run of a variant without effect.
    """
    pool, share = world.pool[subset], world.fresh[subset]
    seeds, items = values.shape
    other = world.generator.integers(0, len(pool), (seeds, items))
    theirs = pool[other, np.arange(seeds)[:, None], world.drawn[subset][None, :]]
    anew = np.where(world.generator.random((seeds, items)) < share, theirs, values)
    return anew, (1 - share) * mean + share * pool.mean(axis=(0, 2))


def _common_volume(world: World) -> float:
    """Return the wanted mean size of the changes that all seeds share."""
    if world.form == "rare":
        return world.study.analysis.margin / 2
    if world.form == "clusters" and not world.level.amount:  # with too little, clusters would not be put to the test
        return max(world.noise.common, CLUSTER_VOLUME * world.study.analysis.margin)
    return world.noise.common if world.form in ("items", "clusters") else 0.0


def _spread(world: World) -> float:
    """Return the standard deviation of a seed's shift."""
    return max(world.noise.shift, world.study.analysis.margin) if world.form == "seeds" else world.noise.shift


def _shifts(world: World, parent: Node, count: int) -> Array:
    """Draw a seed's shifts: normal, and cut on both sides alike where the range of values ends."""
    room = min(
        float(np.minimum(high - mean, mean - low).min())
        for mean, low, high in zip(parent.means, world.runs.low, world.runs.high, strict=True)
    )
    return np.clip(_spread(world) * world.generator.standard_normal(count), -ROOM * room, ROOM * room)


def _draws(world: World) -> list[Array]:
    """Draw the uniform numbers [1, items] per subset that decide which items a change hits, in every seed."""
    if world.form != "clusters":
        return [world.generator.random((1, len(of))) for of in world.clusters]
    of_cluster = world.generator.random(max(int(of.max()) for of in world.clusters) + 1)
    return [of_cluster[of][None, :] for of in world.clusters]


def expected_gain(study: Measurements, node: Node) -> float:
    """Return the mean gain of a node's runs over the shifts of their seeds, had they all items."""
    direction = study.direction
    if not isinstance(direction, dict):
        return float(np.mean(node.means)) * (1 if direction == "max" else -1)
    distance = np.array(node.means) - direction["target"]
    if node.spread <= 0:
        return -float(np.abs(distance).mean())
    z = distance / node.spread  # the mean of |x| for a normal x (Leone, Nelson and Nottingham, 1961)
    folded = node.spread * sqrt(2 / pi) * np.exp(-(z**2) / 2) + distance * (1 - 2 * ndtr(-z))
    return -float(folded.mean())


def _beside_target(world: World, node: Node) -> Node:
    """Move a root to one standard error of its items above the target, where noise hides its side."""
    values, means = [], []
    for subset, (items, mean) in enumerate(zip(node.values, node.means, strict=True)):
        target = _target(world) + _near(world, subset)
        draw = world.generator.random((1, items.shape[1]))
        low, high = world.runs.low[subset], world.runs.high[subset]
        changed, after = change_items(items, mean, target - mean, volume=0.0, low=low, high=high, draw=draw)
        values.append(changed)
        means.append(after)
    return Node(values, means)


def _across(world: World, parent: Node) -> tuple[Node, float | None]:
    """Return a child on the other side of the target: as far from it as its parent, or further by the level."""
    further = world.level.amount if parent.side > 0 else 0.0
    values, means = [], []
    for subset, (items, mean) in enumerate(zip(parent.values, parent.means, strict=True)):
        wanted = _target(world) - parent.side * (_near(world, subset) + further)
        low, high = world.runs.low[subset], world.runs.high[subset]
        if not low + (1 - ROOM) * (mean.max() - low) <= wanted <= high - (1 - ROOM) * (high - mean.min()):
            return Node(parent.values, parent.means, side=parent.side), None
        draw = world.generator.random((1, items.shape[1]))
        anew, after = _run_anew(world, items, mean, subset)
        changed, after = change_items(
            anew, after, wanted - after, volume=world.noise.common, low=low, high=high, draw=draw
        )
        values.append(changed)
        means.append(after)
    node = Node(values, means, side=-parent.side)
    return node, expected_gain(world.study, node) - expected_gain(world.study, parent)


def _target(world: World) -> float:
    direction = world.study.direction
    assert isinstance(direction, dict)
    return direction["target"]


def _near(world: World, subset: int) -> float:
    """Return one standard error of a subset's mean over its items."""
    every = np.concatenate([arrays[subset] for _, arrays in world.runs.values.values()])
    return float(np.sqrt(every.var() / every.shape[1]))
