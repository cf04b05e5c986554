"""The texts behind items that changed along an edge, side by side, as far as the page has room.

    page_samples(studies) -> {study: {(parent, child): EdgeSamples}}

All that is quoted fits into `BUDGET`: few edges are shown with many items and long texts, many edges with few.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablation.judge.measurements import Measurements
from ablation.show.page.flips import Flip, Flips, find_flips
from ablation.show.page.format import MINUS, alike
from ablation.store.samples import Place, Run, Said, Samples

BUDGET = 2_000_000  # characters of a page that are quotes and what stands around them
MOST_OF_EDGE = 60_000
MOST_ITEMS = 12  # of an edge
MARKUP = 1_400  # characters around an item's texts
LONGEST, SHORTEST = 2_000, 300  # characters of one text
MOST_LINES = 60
MOST_RESPONSES = 3  # of a side
# Control characters but tab and newline, halves of a character, and what no text has.
_NOISE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

Edge = tuple[str, str]  # parent, child
Words = list[tuple[str, str]]  # (name, text)


@dataclass(frozen=True)
class Quote:
    """One judged text of one side: words and numbers by their names."""

    texts: Words
    numbers: Words


@dataclass(frozen=True)
class Both:
    """A text that both sides judged with the same words: the words once, and the numbers of both sides in columns."""

    texts: Words
    numbers: list[str]


@dataclass(frozen=True)
class SampleItem:
    """One item: its value in each seed, what both sides have in common, and what each said in `seed`."""

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
    both: list[Both]  # where the words are the same and only numbers differ; else the two sides
    sides: list[tuple[str, list[Quote], int]]  # variant, quotes, how many more there are

    @property
    def length(self) -> int:
        """Characters that it takes on the page, about."""
        quotes: list[Quote | Both] = [*self.both, *(quote for _, quotes, _ in self.sides for quote in quotes)]
        words = [*self.common, *(word for quote in quotes for word in quote.texts)]
        return MARKUP + sum(len(text) for _, text in words)


@dataclass(frozen=True)
class EdgeSamples:
    """What changed along one edge: counts over all items, and some of them in words, the most telling first."""

    seeds: int
    better: int
    worse: int
    items: list[SampleItem]
    notes: list[str]

    @property
    def subsets(self) -> list[str]:
        """Subsets of the items, for the filter."""
        return sorted({item.subset for item in self.items})


Quoted = Mapping[str, Mapping[Edge, EdgeSamples]]  # by study


def page_samples(studies: Sequence[tuple[Measurements, Sequence[Edge], Samples]]) -> dict[str, dict[Edge, EdgeSamples]]:
    """Choose and read what the page quotes: for each study its edges, as far as there are words."""
    edges = sum(len(edges) for study, edges, samples in studies if samples.files)
    budget = min(BUDGET // max(edges, 1), MOST_OF_EDGE)
    return {study.name: _study(study, edges, samples, budget) for study, edges, samples in studies if samples.files}


def _study(study: Measurements, edges: Sequence[Edge], samples: Samples, budget: int) -> dict[Edge, EdgeSamples]:
    longest = min(max(budget // 8, SHORTEST), LONGEST)
    flips: dict[Edge, Flips] = {}
    chosen: dict[Edge, list[tuple[Flip, int]]] = {}
    wanted: dict[Run, set[Place]] = {}
    for parent, child in edges:
        if not any(samples.places((parent, seed)) for seed in study.seeds(parent)):
            continue
        found = flips[parent, child] = find_flips(study, parent, child)
        chosen[parent, child] = _chosen(found, samples, parent, child)
        for flip, seed in chosen[parent, child]:
            for variant in (parent, child):
                wanted.setdefault((variant, seed), set()).add((flip.subset, flip.item))
    said = {run: samples.read(run, places, longest) for run, places in sorted(wanted.items())}
    result = {}
    for (parent, child), found in flips.items():
        items: list[SampleItem] = []
        length = 0
        for flip, seed in chosen[parent, child]:
            sides = [said[variant, seed].get((flip.subset, flip.item), []) for variant in (parent, child)]
            item = _item(flip, seed, (parent, child), sides, study.analysis.protocol)
            length += item.length
            if length > budget and len(items) > 1:
                break
            items.append(item)
        notes = list(_notes(study, samples, (parent, child)))
        if items or notes:
            result[parent, child] = EdgeSamples(found.seeds, found.better, found.worse, items, notes)
    return result


def _chosen(found: Flips, samples: Samples, parent: str, child: str) -> list[tuple[Flip, int]]:
    """Return items of which both sides have words, with the seed to quote: improved and worse ones in turn.

    The most telling item of each subset comes before the second of any, so that the filter has something to show.
    """
    directions = []
    for flips in (found.gained, found.lost):
        with_words: list[tuple[Flip, int]] = []
        counts: dict[str, int] = {}
        for flip in sorted(flips, key=lambda flip: flip.rank):
            if counts.get(flip.subset, 0) == MOST_ITEMS:
                continue
            place = (flip.subset, flip.item)
            seeds = flip.telling_seeds(found.signs[flip.subset])
            quoted = (seed for seed in seeds if all(place in samples.places((side, seed)) for side in (parent, child)))
            if (seed := next(quoted, None)) is not None:
                counts[flip.subset] = counts.get(flip.subset, 0) + 1
                with_words.append((flip, seed))
        places: dict[str, int] = {}
        ranked = []
        for flip, seed in with_words:
            places[flip.subset] = places.get(flip.subset, -1) + 1
            ranked.append((places[flip.subset], flip.order, flip, seed))
        directions.append([(flip, seed) for _, _, flip, seed in sorted(ranked, key=lambda row: row[:2])])
    gained, lost = directions
    paired = [pair for both in zip(gained, lost, strict=False) for pair in both]
    short = min(len(gained), len(lost))
    return [*paired, *gained[short:], *lost[short:]][:MOST_ITEMS]


def _item(flip: Flip, seed: int, edge: Edge, sides: Sequence[Sequence[Said]], protocol: str) -> SampleItem:
    ours = [[each for each in side if each.protocol == protocol] or list(side) for side in sides]
    quoted = [side[:MOST_RESPONSES] for side in ours]
    before, after = ([value[place] for value in flip.values] for place in (1, 2))
    means = (sum(before) / len(before), sum(after) / len(after))
    shown = alike([*means, *(value for pair in zip(before, after, strict=True) for value in pair)])
    common, rest = _common(quoted)
    columns, both = _both(edge, quoted, rest)
    quotes = (
        []
        if both
        else [
            (variant, [_quote(each, rest) for each in few], len(side) - len(few))
            for variant, few, side in zip(edge, quoted, ours, strict=True)
        ]
    )
    return SampleItem(
        subset=flip.subset,
        item=flip.item,
        improved=flip.change > 0,
        before=shown[0],
        after=shown[1],
        agreeing=flip.agreeing,
        values=list(zip((at for at, *_ in flip.values), shown[2::2], shown[3::2], strict=True)),
        seed=seed,
        common=common,
        columns=columns,
        both=both,
        sides=quotes,
    )


def _common(sides: Sequence[Sequence[Said]]) -> tuple[Words, list[str]]:
    """Return the texts that all quotes have in common, and the names of the others."""
    everything = [each.texts for side in sides for each in side]
    names = list(dict.fromkeys(name for texts in everything for name in texts))
    common = [name for name in names if len({texts.get(name) for texts in everything}) == 1]
    return [(name, _shown(everything[0][name])) for name in common], [name for name in names if name not in common]


def _both(edge: Edge, sides: Sequence[Sequence[Said]], names: Sequence[str]) -> tuple[list[str], list[Both]]:
    """Return heads and rows of one table where both sides judged the same words; else nothing."""
    parents, children = sides
    if not parents or [p.texts for p in parents] != [c.texts for c in children]:
        return [], []
    numbers = list(dict.fromkeys(name for each in (*parents, *children) for name in each.numbers))
    equal = {
        name
        for name in numbers
        if all(p.numbers.get(name) == c.numbers.get(name) for p, c in zip(parents, children, strict=True))
    }
    columns = [head for name in numbers for head in ([name] if name in equal else [f"{name}, {side}" for side in edge])]
    rows = []
    for parent, child in zip(parents, children, strict=True):
        cells = [
            _number(value)
            for name in numbers
            for value in (
                [parent.numbers.get(name)] if name in equal else [each.numbers.get(name) for each in (parent, child)]
            )
        ]
        rows.append(Both([(name, _shown(parent.texts.get(name, ""))) for name in names], cells))
    return [*names, *columns], rows


def _quote(said: Said, names: Sequence[str]) -> Quote:
    texts = [(name, _shown(said.texts.get(name, ""))) for name in names]
    return Quote(texts, [(name, _number(value)) for name, value in said.numbers.items()])


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


def _notes(study: Measurements, samples: Samples, edge: Edge) -> Iterator[str]:
    """Say what cannot be quoted, and why."""
    runs = [(variant, seed) for variant in edge for seed in sorted(study.seeds(variant))]
    for word, known in (("cannot be read: ", samples.problems), ("", samples.notes)):
        told: dict[str, list[str]] = {}
        for variant, seed in runs:
            if (variant, seed) in known:
                told.setdefault(known[variant, seed], []).append(f"{variant} seed {seed}")
        for reason, names in told.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield f"The words of {names[0]}{more}: {word}{reason}."


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
