"""Answers of a gate, as text for a terminal and as Markdown for a pull request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ablation.contract.numbers import alone, confidence, device_time, estimate, stated
from ablation.judge.changed_items import find_changed_items
from ablation.judge.comparisons import Comparison, may_differ
from ablation.judge.gate import STATUS, Answer, Guarded, Pair, most_severe, rails_in_words
from ablation.judge.measurements import Measurements
from ablation.judge.remarks import steps_apart
from ablation.judge.verdicts import comparison_rows
from ablation.readers.sheet import short
from ablation.show.answer import effect_decimals, interval_of
from ablation.show.table_files import pipe
from ablation.show.text import clean_records, markdown

MOST_CHANGED = 3  # items shown of each comparison


@dataclass(frozen=True)
class Gated:
    """A gate's answers on one study: whether each comparison meets the requirement.

    required: the required verdict; None if only the verdicts are shown. price: the price of a device-hour.
    doubts: notes on the files that were judged.
    """

    study: Measurements
    required: str | None
    answers: Sequence[Answer]
    price: float | None = None
    guarded: Mapping[Pair, Sequence[Guarded]] = field(default_factory=dict)
    doubts: Sequence[str] = ()

    @property
    def outcome(self) -> str:
        """The most severe outcome among all comparisons."""
        return most_severe(self.answers)

    @property
    def status(self) -> int:
        """Exit status of the gate."""
        return STATUS[self.outcome]

    @property
    def notes(self) -> list[str]:
        """Caveats that apply to the answers."""
        changed = "the analysis plan, its seeds or the rules of judging were changed after results existed"
        apart = (steps_apart(self.study, answer.comparison.compared_runs) for answer in self.answers)
        history = [changed] if len(self.study.history) > 1 else []
        seeds = may_differ([answer.comparison for answer in self.answers])
        return [*self.doubts, *history, *dict.fromkeys(chain.from_iterable(apart)), *filter(None, [seeds])]


def in_words(gated: Gated) -> str:
    """Return the answers as text: two lines per comparison, with numbers and reason, then notes and the outcome."""
    lines, decimals = list[str](), effect_decimals(answer.comparison for answer in gated.answers)
    for answer in gated.answers:
        comparison = answer.comparison
        numbers = f"{comparison.verdict}, {' '.join(_effect(comparison, decimals))}, margin {_margin(gated)}"
        cost = f", {shown}" if (shown := _cost(comparison, gated.price)) else ""
        lines += [
            f"{answer.outcome}: {comparison.child} after {comparison.parent} is {numbers}{cost}",
            f"    {answer.why}",
        ]
    lines += [f"note: {note}" for note in gated.notes]
    return "\n".join([*lines, f"{gated.study.name}: {gated.outcome} ({_required(gated)})"])


def as_markdown(gated: Gated) -> str:
    """Return the answers as Markdown: a table, the reason for each answer, and the items that changed most."""
    analysis = gated.study.analysis
    heads = ["comparison", "answer", "verdict", "effect", f"{confidence(analysis.alpha)} interval", "margin", "cost"]
    rows, decimals = [], effect_decimals(answer.comparison for answer in gated.answers)
    for answer in gated.answers:
        comparison, cost = answer.comparison, _cost(answer.comparison, gated.price)
        numbers = (*_effect(comparison, decimals), _margin(gated), cost)
        rows.append([_name(comparison), answer.outcome, comparison.verdict, *numbers])
    left_out = {"answer"} if gated.required is None else set()
    left_out |= set() if any(row[-1] for row in rows) else {"cost"}
    shown = [place for place, head in enumerate(heads) if head not in left_out]
    title = f"### {markdown(gated.study.name)}"
    if gated.required is None:
        lines = [title, ""]
    else:
        lines = [f"{title}: {gated.outcome}", "", f"{markdown(_required(gated))}.", ""]
    lines += [pipe([heads[place] for place in shown]), pipe(["---"] * len(shown), escape=False)]
    lines += [*(pipe([row[place] for place in shown]) for row in rows), ""]
    for answer in gated.answers:
        why = answer.why if gated.required else answer.comparison.reason
        lines.append(f"- **{markdown(_name(answer.comparison))}**: {markdown(why)}")
        lines += [f"  - {line}" for line in _most_changed(gated.study, answer.comparison)]
    lines += [f"\n{markdown(note)}." for note in gated.notes]
    return "\n".join(lines) + "\n"


def as_rows(gated: Gated) -> list[dict[str, Any]]:
    """Return a record per comparison: its columns, the words of its guardrails, and the answer."""
    comparisons = clean_records(comparison_rows(answer.comparison for answer in gated.answers))
    return [
        comparison
        | {"guardrails": rails_in_words(gated.guarded.get(answer.comparison.pair, ()), answer.comparison.verdict)}
        | {"outcome": answer.outcome, "why": answer.why, "p_not_worse": answer.p_not_worse}
        for comparison, answer in zip(comparisons, gated.answers, strict=True)
    ]


def _most_changed(study: Measurements, comparison: Comparison) -> list[str]:
    lines = []
    for changed in find_changed_items(study, comparison.parent, comparison.child, MOST_CHANGED).most(MOST_CHANGED):
        direction = "better" if changed.change > 0 else "worse"
        task = f" of {changed.subset}" if len(study.analysis.subsets) > 1 else ""
        values = f"{alone(changed.before)} -> {alone(changed.after)}"
        lines.append(f"{markdown(f'{short(changed.item)}{task}: {values}')} ({direction})")
    return lines


def _required(gated: Gated) -> str:
    comparisons = "1 comparison" if len(gated.answers) == 1 else f"each of {len(gated.answers)} comparisons"
    return f"required: {gated.required} in {comparisons}"


def _margin(gated: Gated) -> str:
    return "-" if gated.study.analysis.margin is None else stated(gated.study.analysis.margin)


def _name(comparison: Comparison) -> str:
    return f"{comparison.parent} -> {comparison.child}"


def _effect(comparison: Comparison, decimals: int) -> tuple[str, str]:
    """Return the texts of the effect and of the interval that agrees with the verdict."""
    return estimate(comparison.effect, *interval_of(comparison), decimals)


def _cost(comparison: Comparison, price: float | None) -> str:
    return device_time(comparison.cost_hours, price) if comparison.cost_hours else ""
