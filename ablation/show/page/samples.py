"""The texts of the items that changed most in each comparison, up to a size limit for the page.

All quoted texts fit into `BUDGET`, so the more comparisons there are, the fewer items and shorter texts each one shows.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ablation.contract.numbers import alone, counted, together
from ablation.judge.changed_items import Beside, ChangedItem, ChangedItems, find_changed_items
from ablation.judge.measurements import Measurements
from ablation.show.text import true_minus
from ablation.store.database import Run
from ablation.store.samples import Place, Response, Samples

BUDGET = 2_000_000  # characters of quotes on a page, including their markup
MOST_OF_COMPARISON = 60_000
MOST_ITEMS = 12  # of a comparison
MARKUP = 1_400  # characters around an item's texts
LONGEST, SHORTEST = 2_000, 300  # characters of one text
MOST_LINES = 60
MOST_RESPONSES = 3  # of a group
# Control characters but tab and newline, surrogates, and code points that are not characters.
_NOISE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

Pair = tuple[str, str]  # parent, child
Words = list[tuple[str, str]]  # (name, text)
Quote = tuple[Words, Words]  # one judged text of one group: its words and its numbers, by name


@dataclass(frozen=True)
class SampleItem:
    """One item of a comparison: its values by seed, and texts of one run of the parent and one of the child (`seed`).

    common: texts that are equal in both runs. groups: for each run, the variant, quotes, and the number of further
    quotes. both: a table with the headings `columns`, which replaces `groups` if only numbers differ.
    """

    subset: str
    item: str
    improved: bool
    before: str
    after: str
    agreeing: int
    values: list[tuple[int, str, str]]
    seed: int
    common: Words
    columns: list[str]
    both: list[tuple[Words, list[str]]]
    groups: list[tuple[str, list[Quote], int]]

    @property
    def length(self) -> int:
        """Approximate number of characters on the page."""
        quoted = [*self.both, *(quote for _, quotes, _ in self.groups for quote in quotes)]
        words = [*self.common, *(word for texts, _ in quoted for word in texts)]
        return MARKUP + sum(len(text) for _, text in words)


@dataclass(frozen=True)
class ComparisonSamples:
    """Items that changed in one comparison: counts of all items, and the texts of the largest changes."""

    seeds: int
    better: int
    worse: int
    items: list[SampleItem]
    notes: list[str]

    @property
    def subsets(self) -> list[str]:
        """Subsets of the items, for the filter of the page."""
        return sorted({item.subset for item in self.items})


Quoted = Mapping[str, Mapping[Pair, ComparisonSamples]]  # by study


def page_samples(
    studies: Sequence[tuple[Measurements, Sequence[Pair], Samples]],
) -> dict[str, dict[Pair, ComparisonSamples]]:
    """Choose and read the texts that the page quotes; return {study: {comparison: texts}} without empty comparisons."""
    comparisons = sum(len(comparisons) for study, comparisons, samples in studies if samples.files)
    budget = min(BUDGET // max(comparisons, 1), MOST_OF_COMPARISON)
    return {
        study.name: _study(study, comparisons, samples, budget)
        for study, comparisons, samples in studies
        if samples.files
    }


def _study(
    study: Measurements, comparisons: Sequence[Pair], samples: Samples, budget: int
) -> dict[Pair, ComparisonSamples]:
    longest = min(max(budget // 8, SHORTEST), LONGEST)
    changed_items: dict[Pair, ChangedItems] = {}
    chosen: dict[Pair, list[tuple[ChangedItem, Beside]]] = {}
    wanted: dict[Run, set[Place]] = {}
    for parent, child in comparisons:
        if not any(samples.places((parent, seed)) for seed in study.seeds(parent)):
            continue
        changed_items[parent, child] = find_changed_items(study, parent, child)
        chosen[parent, child] = _chosen(changed_items[parent, child], samples, (parent, child))
        for changed, seeds in chosen[parent, child]:
            for run in zip((parent, child), seeds[:2], strict=True):
                wanted.setdefault(run, set()).add((changed.subset, changed.item))
    said = {run: samples.read(run, places, longest) for run, places in sorted(wanted.items())}
    result = {}
    for (parent, child), changes in changed_items.items():
        items: list[SampleItem] = []
        length = 0
        for changed, seeds in chosen[parent, child]:
            runs = zip((parent, child), seeds[:2], strict=True)
            groups = [said[run].get((changed.subset, changed.item), []) for run in runs]
            item = _item(changed, seeds.child_seed, (parent, child), groups, study.analysis.protocol)
            length += item.length
            if length > budget and len(items) > 1:
                break
            items.append(item)
        notes = list(_notes(study, samples, (parent, child)))
        if items or notes:
            result[parent, child] = ComparisonSamples(changes.seeds, changes.better, changes.worse, items, notes)
    return result


def _chosen(changes: ChangedItems, samples: Samples, comparison: Pair) -> list[tuple[ChangedItem, Beside]]:
    """Return items with texts in both groups, and the runs to quote; improved and worse items alternate.

    The first item of each subset comes before the second of any subset, so that the filter has items of each.
    """
    turns = []
    for changed_items in (changes.gained, changes.lost):
        by_subset: dict[str, list[tuple[int, tuple[float, int, str, str], ChangedItem, Beside]]] = {}
        for changed in changed_items:
            few, place = by_subset.setdefault(changed.subset, []), (changed.subset, changed.item)
            if len(few) < MOST_ITEMS:
                quoted = (
                    beside
                    for beside in changed.telling()
                    if all(place in samples.places(run) for run in zip(comparison, beside[:2], strict=True))
                )
                if (beside := next(quoted, None)) is not None:
                    few.append((len(few), changed.order, changed, beside))
        turns.append(sorted((row for few in by_subset.values() for row in few), key=lambda row: row[:2]))
    return [row[2:] for both in zip_longest(*turns) for row in both if row][:MOST_ITEMS]


def _item(
    changed: ChangedItem, seed: int, comparison: Pair, groups: Sequence[Sequence[Response]], protocol: str
) -> SampleItem:
    quotable = [[each for each in group if each.protocol == protocol] or list(group) for group in groups]
    quoted = [group[:MOST_RESPONSES] for group in quotable]
    values = [value for pair in changed.values for value in (pair.before, pair.after)]
    shown = list(map(true_minus, together([changed.before, changed.after, *values])))
    common, rest = _common(quoted)
    columns, both = _both(comparison, quoted, rest)
    quotes = []
    if not both:
        for variant, few, group in zip(comparison, quoted, quotable, strict=True):
            quotes.append((variant, [_quote(each, rest) for each in few], len(group) - len(few)))
    return SampleItem(
        subset=changed.subset,
        item=changed.item,
        improved=changed.change > 0,
        before=shown[0],
        after=shown[1],
        agreeing=changed.agreeing,
        values=list(zip((pair.child_seed for pair in changed.values), shown[2::2], shown[3::2], strict=True)),
        seed=seed,
        common=common,
        columns=columns,
        both=both,
        groups=quotes,
    )


def _common(groups: Sequence[Sequence[Response]]) -> tuple[Words, list[str]]:
    """Return the texts that are equal in all quotes, and the names of the texts that differ."""
    everything = [each.texts for group in groups for each in group]
    names = list(dict.fromkeys(name for texts in everything for name in texts))
    common = [name for name in names if len({texts.get(name) for texts in everything}) == 1]
    return [(name, _shown(everything[0][name])) for name in common], [name for name in names if name not in common]


def _both(
    comparison: Pair, groups: Sequence[Sequence[Response]], names: Sequence[str]
) -> tuple[list[str], list[tuple[Words, list[str]]]]:
    """Return the headings and rows of one table if both groups have the same texts; else two empty lists."""
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


def _quote(said: Response, names: Sequence[str]) -> Quote:
    texts = [(name, _shown(said.texts.get(name, ""))) for name in names]
    return (texts, [(name, _number(value)) for name, value in said.numbers.items()])


def differing(text: str, other: str) -> tuple[str, str, str]:
    """Split a text, at whole words, into its shared start, its difference from another text, and its shared end.

    The difference is empty if the texts are equal, or if they share too little to mark the rest.
    """
    text_words, other_words = re.split(r"(\s+)", text), re.split(r"(\s+)", other)
    most = min(len(text_words), len(other_words))
    begin = next((at for at in range(most) if text_words[at] != other_words[at]), most)
    end = next((at for at in range(most - begin) if text_words[-1 - at] != other_words[-1 - at]), most - begin)
    stop = len(text_words) - end
    same, middle, rest = map("".join, (text_words[:begin], text_words[begin:stop], text_words[stop:]))
    return (same, middle, rest) if 5 * len(middle) < 4 * len(text) else (text, "", "")


def _notes(study: Measurements, samples: Samples, comparison: Pair) -> Iterator[str]:
    """Yield a note for each reason why texts cannot be read."""
    runs = [(variant, seed) for variant in comparison for seed in sorted(study.seeds(variant))]
    names_by_reason: dict[str, list[str]] = {}
    for variant, seed in runs:
        if (variant, seed) in samples.problems:
            names_by_reason.setdefault(samples.problems[variant, seed], []).append(f"{variant} (seed {seed})")
    for reason, names in names_by_reason.items():
        more = f" and {counted(len(names) - 1, 'more run')}" if len(names) > 1 else ""
        yield f"The texts of {names[0]}{more} cannot be read: {reason}."


def _shown(text: str) -> str:
    """Return a text for the page: invalid characters are replaced, and the middle of a long text is left out."""
    text = _NOISE.sub("\ufffd", text.replace("\r\n", "\n"))
    lines = text.split("\n")
    if len(lines) <= MOST_LINES:
        return text
    head, tail = lines[: 2 * MOST_LINES // 3], lines[-(MOST_LINES // 3) :]
    return "\n".join([*head, "[… lines left out …]", *tail])


def _number(value: float | None) -> str:
    return "" if value is None else true_minus(alone(value))
