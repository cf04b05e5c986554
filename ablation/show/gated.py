"""The answers of a gate: in words for a terminal, and as Markdown for a pull request."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ablation.contract.reading import device_time
from ablation.judge.edges import Edge
from ablation.judge.gate import STATUS, Answer, Guarded, Pair, gravest, rails_in_words
from ablation.judge.measurements import Measurements
from ablation.judge.remarks import steps_apart
from ablation.judge.verdicts import edge_rows
from ablation.readers.sheet import short
from ablation.show.page.samples import find_flips
from ablation.show.table_files import pipe
from ablation.show.text import clean_records, leveled, markdown

FLIPPED = 3  # items shown of each edge


@dataclass(frozen=True)
class Gated:
    """The answers of one study's edges to one requirement."""

    study: Measurements
    required: str
    answers: Sequence[Answer]
    price: float | None = None  # of a device-hour
    guarded: Mapping[Pair, Sequence[Guarded]] = field(default_factory=dict)  # by edge
    doubts: Sequence[str] = ()  # of the files

    @property
    def outcome(self) -> str:
        """The outcome of all edges together."""
        return gravest(self.answers)

    @property
    def status(self) -> int:
        """The exit status."""
        return STATUS[self.outcome]

    @property
    def notes(self) -> list[str]:
        """What a reader should know before believing the answer."""
        changed = "the analysis plan, its seeds or the rules of judging were changed after results existed"
        edges = (answer.edge for answer in self.answers)
        apart = (steps_apart(self.study, [(n, s) for n in reversed(e.pair) for s in e.paired]) for e in edges)
        history = [changed] if len(self.study.history) > 1 else []
        return [*self.doubts, *history, *dict.fromkeys(chain.from_iterable(apart))]


def in_words(gated: Gated) -> str:
    """A line of numbers and a reason for each edge, and the outcome of all."""
    lines = []
    for answer in gated.answers:
        edge = answer.edge
        told = f"{edge.verdict}, {' '.join(_effect(edge))}, margin {gated.study.analysis.margin:g}"
        cost = f", {shown}" if (shown := _cost(edge, gated.price)) else ""
        lines += [f"{answer.outcome}: {edge.child} after {edge.parent} is {told}{cost}", f"    {answer.why}"]
    lines += [f"note: {note}" for note in gated.notes]
    return "\n".join([*lines, f"{gated.study.name}: {gated.outcome} ({_required(gated)})"])


def as_markdown(gated: Gated) -> str:
    """Word, effect, interval, margin, cost of each edge, why, and the items that changed most."""
    analysis = gated.study.analysis
    heads = ["edge", "answer", "verdict", "effect", f"{1 - analysis.alpha:.0%} interval", "margin", "cost"]
    rows = []
    for answer in gated.answers:
        edge, cost = answer.edge, _cost(answer.edge, gated.price)
        rows.append([_name(edge), answer.outcome, edge.verdict, *_effect(edge), f"{analysis.margin:g}", cost])
    columns = len(heads) if any(row[-1] for row in rows) else len(heads) - 1
    lines = [f"### {markdown(gated.study.name)}: {gated.outcome}", "", f"{markdown(_required(gated))}.", ""]
    lines += [pipe(heads[:columns]), pipe(["---"] * columns, escape=False), *(pipe(row[:columns]) for row in rows), ""]
    for answer in gated.answers:
        lines.append(f"- **{markdown(_name(answer.edge))}**: {markdown(answer.why)}")
        lines += [f"  - {line}" for line in _flipped(gated.study, answer.edge)]
    lines += [f"\n{markdown(note)}." for note in gated.notes]
    return "\n".join(lines) + "\n"


def as_rows(gated: Gated) -> list[dict[str, Any]]:
    """The verdict on each edge, what its guardrails add, and the answer."""
    edges = clean_records(edge_rows(answer.edge for answer in gated.answers))
    return [
        edge
        | {"guardrails": rails_in_words(gated.guarded.get(answer.edge.pair, ()))}
        | {"outcome": answer.outcome, "why": answer.why, "p_not_worse": answer.p_not_worse}
        for edge, answer in zip(edges, gated.answers, strict=True)
    ]


def _flipped(study: Measurements, edge: Edge) -> list[str]:
    flips = find_flips(study, edge.parent, edge.child)
    most = sorted([*flips.gained, *flips.lost], key=lambda flip: flip.order)[:FLIPPED]
    lines = []
    for flip in most:
        before, after = (sum(values) / flips.seeds for values in list(zip(*flip.values, strict=True))[1:])
        word = "better" if flip.change > 0 else "worse"
        lines.append(f"{markdown(f'{short(flip.item)} of {flip.subset}: {before:.3g} -> {after:.3g}')} ({word})")
    return lines


def _required(gated: Gated) -> str:
    of = "1 edge" if len(gated.answers) == 1 else f"each of {len(gated.answers)} edges"
    return f"required: {gated.required}, of {of}"


def _name(edge: Edge) -> str:
    return f"{edge.parent} -> {edge.child}"


def _effect(edge: Edge) -> tuple[str, str]:
    """Effect and interval."""
    effect, low, high = leveled((edge.effect, edge.low, edge.high), "+")
    return effect, "-" if math.isnan(edge.low) else f"[{low}, {high}]"


def _cost(edge: Edge, price: float | None) -> str:
    return device_time(edge.cost_hours, price) if edge.cost_hours else ""
