"""The items that changed along a comparison, the most telling first, and their texts, as far as there is room.

An item's change in a seed is child minus parent, turned so that a positive number is an improvement. An item that
changed the same way in more seeds tells more than one with a larger change in fewer: seeds are what may repeat. All
that is quoted fits into `BUDGET`: few comparisons are shown with many items and long texts, many comparisons with few.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ablation.judge.compare.comparison import improving
from ablation.judge.measurements import Column, Measurements
from ablation.show.text import MINUS, alike
from ablation.store.samples import Place, Run, Said, Samples

BUDGET = 2_000_000  # characters of a page that are quotes and what stands around them
MOST_OF_COMPARISON = 60_000
MOST_ITEMS = 12  # of a comparison
MARKUP = 1_400  # characters around an item's texts
LONGEST, SHORTEST = 2_000, 300  # characters of one text
MOST_LINES = 60
MOST_RESPONSES = 3  # of a group
POOL = 200  # items of a subset, in each direction, among which those with words are looked for
# Control characters but tab and newline, halves of a character, and what no text has.
_NOISE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

Comparison = tuple[str, str]  # parent, child
Words = list[tuple[str, str]]  # (name, text)
Quote = tuple[Words, Words]  # one judged text of one group: words and numbers by their names


@dataclass(frozen=True)
class ChangedItem:
    """One item: its values (seed, parent's, child's) in every seed, and its mean change."""

    subset: str
    item: str
    values: tuple[tuple[int, float, float], ...]
    change: float  # mean over the seeds; positive is an improvement
    agreeing: int  # seeds in which it changed in the direction of the mean
    against: int  # seeds in which it changed in the other

    @property
    def order(self) -> tuple[int, float, str, str]:
        """The most telling first: changed in most seeds, then by the largest change."""
        return (self.against - self.agreeing, -abs(self.change), self.subset, self.item)

    def telling_seeds(self) -> list[int]:
        """The seeds, the largest change in the item's direction first."""
        direction = np.sign(sum(after - before for _, before, after in self.values))
        return [seed for seed, _, _ in sorted(self.values, key=lambda v: (-direction * (v[2] - v[1]), v[0]))]


@dataclass(frozen=True)
class ChangedItems:
    """What changed between two variants: how many items improved and got worse on average, and the most telling.

    gained, lost: subset by subset, the most telling of each first.
    """

    seeds: int
    better: int
    worse: int
    gained: list[ChangedItem]
    lost: list[ChangedItem]


def find_changed_items(study: Measurements, parent: str, child: str) -> ChangedItems:
    """Compare two variants item by item, over the seeds that both have."""
    both = [seed for seed in study.seeds(parent) if seed in study.seeds(child)]
    runs_without_duplicates = study.values.keys() - study.duplicates
    seeds = [seed for seed in both if {(parent, seed), (child, seed)} <= runs_without_duplicates]
    better = worse = 0
    gained: list[ChangedItem] = []
    lost: list[ChangedItem] = []
    for subset in study.analysis.subsets:
        groups = [[study.values[variant, seed].get(subset) for seed in seeds] for variant in (parent, child)]
        items, before, after = _aligned(*groups)
        if not len(items):
            continue
        change = improving(before, after, study.analysis) * (after - before)
        tiny = 1e-9 * max(float(np.abs(change).max()), 1e-300)
        mean = change.mean(axis=0)
        better += int((mean > tiny).sum())
        worse += int((mean < -tiny).sum())
        up, down = (change > tiny).sum(axis=0), (change < -tiny).sum(axis=0)
        for direction, most_telling, agreeing, against in ((1, gained, up, down), (-1, lost, down, up)):
            order = np.lexsort((items, -np.abs(mean), against - agreeing))
            for at in [at for at in order.tolist() if direction * mean[at] > tiny][:POOL]:
                values = tuple(zip(seeds, before[:, at].tolist(), after[:, at].tolist(), strict=True))
                changed = ChangedItem(
                    subset, str(items[at]), values, float(mean[at]), int(agreeing[at]), int(against[at])
                )
                most_telling.append(changed)
    return ChangedItems(len(seeds), better, worse, gained, lost)


def _aligned(parents: list[Column | None], children: list[Column | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the items that all runs have, and the values of both groups, [seeds, items]."""
    runs = [run for run in (*parents, *children) if run is not None]
    if not runs or len(runs) < 2 * len(parents):
        return np.array([]), np.empty((0, 0)), np.empty((0, 0))
    index = runs[0].index
    for run in runs:
        index = index if run.index.equals(index) else index.intersection(run.index)
    values = np.array(
        [run.values if run.index.equals(index) else run.values[run.index.get_indexer(index)] for run in runs]
    )
    finite = np.isfinite(values).all(axis=0)
    values = values[:, finite]
    return index.to_numpy(dtype=str)[finite], values[: len(parents)], values[len(parents) :]


@dataclass(frozen=True)
class SampleItem:
    """One item: its value in each seed, what both groups have in common, and what each said in `seed`."""

    subset: str
    item: str
    improved: bool
    before: str
    after: str
    agreeing: int
    values: list[tuple[int, str, str]]
    seed: int
    common: Words
    columns: list[str]  # heads of the table `both`
    both: list[tuple[Words, list[str]]]  # where only numbers differ: the words once, both groups' numbers in columns
    groups: list[tuple[str, list[Quote], int]]  # variant, quotes, how many more there are

    @property
    def length(self) -> int:
        """Characters that it takes on the page, about."""
        quoted = [*self.both, *(quote for _, quotes, _ in self.groups for quote in quotes)]
        words = [*self.common, *(word for texts, _ in quoted for word in texts)]
        return MARKUP + sum(len(text) for _, text in words)


@dataclass(frozen=True)
class ComparisonSamples:
    """What changed along one comparison: counts over all items, and some of them in words, the most telling first."""

    seeds: int
    better: int
    worse: int
    items: list[SampleItem]
    notes: list[str]

    @property
    def subsets(self) -> list[str]:
        """Subsets of the items, for the filter."""
        return sorted({item.subset for item in self.items})


Quoted = Mapping[str, Mapping[Comparison, ComparisonSamples]]  # by study


def page_samples(
    studies: Sequence[tuple[Measurements, Sequence[Comparison], Samples]],
) -> dict[str, dict[Comparison, ComparisonSamples]]:
    """Choose and read what the page quotes: for each study its comparisons, as far as there are words."""
    comparisons = sum(len(comparisons) for study, comparisons, samples in studies if samples.files)
    budget = min(BUDGET // max(comparisons, 1), MOST_OF_COMPARISON)
    return {
        study.name: _study(study, comparisons, samples, budget)
        for study, comparisons, samples in studies
        if samples.files
    }


def _study(
    study: Measurements, comparisons: Sequence[Comparison], samples: Samples, budget: int
) -> dict[Comparison, ComparisonSamples]:
    longest = min(max(budget // 8, SHORTEST), LONGEST)
    changed_items: dict[Comparison, ChangedItems] = {}
    chosen: dict[Comparison, list[tuple[ChangedItem, int]]] = {}
    wanted: dict[Run, set[Place]] = {}
    for parent, child in comparisons:
        if not any(samples.places((parent, seed)) for seed in study.seeds(parent)):
            continue
        changed_items[parent, child] = find_changed_items(study, parent, child)
        chosen[parent, child] = _chosen(changed_items[parent, child], samples, (parent, child))
        for changed, seed in chosen[parent, child]:
            for variant in (parent, child):
                wanted.setdefault((variant, seed), set()).add((changed.subset, changed.item))
    said = {run: samples.read(run, places, longest) for run, places in sorted(wanted.items())}
    result = {}
    for (parent, child), changes in changed_items.items():
        items: list[SampleItem] = []
        length = 0
        for changed, seed in chosen[parent, child]:
            groups = [said[variant, seed].get((changed.subset, changed.item), []) for variant in (parent, child)]
            item = _item(changed, seed, (parent, child), groups, study.analysis.protocol)
            length += item.length
            if length > budget and len(items) > 1:
                break
            items.append(item)
        notes = list(_notes(study, samples, (parent, child)))
        if items or notes:
            result[parent, child] = ComparisonSamples(changes.seeds, changes.better, changes.worse, items, notes)
    return result


def _chosen(changes: ChangedItems, samples: Samples, comparison: Comparison) -> list[tuple[ChangedItem, int]]:
    """Return items of which both groups have words, with the seed to quote: improved and worse ones in turn.

    The most telling item of each subset comes before the second of any, so that the filter has something to show.
    """
    turns = []
    for changed_items in (changes.gained, changes.lost):
        by_subset: dict[str, list[tuple[int, tuple[int, float, str, str], ChangedItem, int]]] = {}
        for changed in changed_items:
            few, place = by_subset.setdefault(changed.subset, []), (changed.subset, changed.item)
            if len(few) < MOST_ITEMS:
                quoted = (
                    s for s in changed.telling_seeds() if all(place in samples.places((v, s)) for v in comparison)
                )
                if (seed := next(quoted, None)) is not None:
                    few.append((len(few), changed.order, changed, seed))
        turns.append(sorted((row for few in by_subset.values() for row in few), key=lambda row: row[:2]))
    return [row[2:] for both in zip_longest(*turns) for row in both if row][:MOST_ITEMS]


def _item(
    changed: ChangedItem, seed: int, comparison: Comparison, groups: Sequence[Sequence[Said]], protocol: str
) -> SampleItem:
    ours = [[each for each in group if each.protocol == protocol] or list(group) for group in groups]
    quoted = [group[:MOST_RESPONSES] for group in ours]
    before, after = ([value[place] for value in changed.values] for place in (1, 2))
    means = (sum(before) / len(before), sum(after) / len(after))
    shown = alike([*means, *(value for pair in zip(before, after, strict=True) for value in pair)])
    common, rest = _common(quoted)
    columns, both = _both(comparison, quoted, rest)
    quotes = []
    if not both:
        for variant, few, group in zip(comparison, quoted, ours, strict=True):
            quotes.append((variant, [_quote(each, rest) for each in few], len(group) - len(few)))
    return SampleItem(
        subset=changed.subset,
        item=changed.item,
        improved=changed.change > 0,
        before=shown[0],
        after=shown[1],
        agreeing=changed.agreeing,
        values=list(zip((at for at, *_ in changed.values), shown[2::2], shown[3::2], strict=True)),
        seed=seed,
        common=common,
        columns=columns,
        both=both,
        groups=quotes,
    )


def _common(groups: Sequence[Sequence[Said]]) -> tuple[Words, list[str]]:
    """Return the texts that all quotes have in common, and the names of the others."""
    everything = [each.texts for group in groups for each in group]
    names = list(dict.fromkeys(name for texts in everything for name in texts))
    common = [name for name in names if len({texts.get(name) for texts in everything}) == 1]
    return [(name, _shown(everything[0][name])) for name in common], [name for name in names if name not in common]


def _both(
    comparison: Comparison, groups: Sequence[Sequence[Said]], names: Sequence[str]
) -> tuple[list[str], list[tuple[Words, list[str]]]]:
    """Return heads and rows of one table where both groups judged the same words; else nothing."""
    parents, children = groups
    if not parents or [p.texts for p in parents] != [c.texts for c in children]:
        return [], []
    numbers = list(dict.fromkeys(name for each in (*parents, *children) for name in each.numbers))
    equal = {
        name
        for name in numbers
        if all(p.numbers.get(name) == c.numbers.get(name) for p, c in zip(parents, children, strict=True))
    }
    columns = [
        head for name in numbers for head in ([name] if name in equal else [f"{name}, {group}" for group in comparison])
    ]
    rows = []
    for parent, child in zip(parents, children, strict=True):
        cells = [
            _number(value)
            for name in numbers
            for value in (
                [parent.numbers.get(name)] if name in equal else [each.numbers.get(name) for each in (parent, child)]
            )
        ]
        rows.append(([(name, _shown(parent.texts.get(name, ""))) for name in names], cells))
    return [*names, *columns], rows


def _quote(said: Said, names: Sequence[str]) -> Quote:
    texts = [(name, _shown(said.texts.get(name, ""))) for name in names]
    return (texts, [(name, _number(value)) for name, value in said.numbers.items()])


def differing(text: str, other: str) -> tuple[str, str, str]:
    """Split a text into the beginning that it shares with the other, the part that differs, and the shared end.

    Splits at whole words. The middle is empty if the two are equal, or share too little for a mark to mean anything.
    """
    ours, theirs = re.split(r"(\s+)", text), re.split(r"(\s+)", other)
    most = min(len(ours), len(theirs))
    begin = next((at for at in range(most) if ours[at] != theirs[at]), most)
    end = next((at for at in range(most - begin) if ours[-1 - at] != theirs[-1 - at]), most - begin)
    same, middle, rest = (
        "".join(words) for words in (ours[:begin], ours[begin : len(ours) - end], ours[len(ours) - end :])
    )
    return (same, middle, rest) if 5 * len(middle) < 4 * len(text) else (text, "", "")


def _notes(study: Measurements, samples: Samples, comparison: Comparison) -> Iterator[str]:
    """Say what cannot be quoted, and why."""
    runs = [(variant, seed) for variant in comparison for seed in sorted(study.seeds(variant))]
    told: dict[str, list[str]] = {}
    for variant, seed in runs:
        if (variant, seed) in samples.problems:
            told.setdefault(samples.problems[variant, seed], []).append(f"{variant} seed {seed}")
    for reason, names in told.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"The texts of {names[0]}{more} cannot be read: {reason}."


def _shown(text: str) -> str:
    """Return a text fit to be shown: invalid characters are replaced, and the middle of very many lines is left out."""
    text = _NOISE.sub("\ufffd", text.replace("\r\n", "\n"))
    lines = text.split("\n")
    if len(lines) <= MOST_LINES:
        return text
    head, tail = lines[: 2 * MOST_LINES // 3], lines[-(MOST_LINES // 3) :]
    return "\n".join([*head, "[… lines left out …]", *tail])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}".replace("-", MINUS)
