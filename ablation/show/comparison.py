"""The result of `ablation compare` as text, as records and as a report page."""

import hashlib
import math
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ablation.config.study_schema import ColumnDefinition, TableDefinition, Target
from ablation.contract.atomic import write_text
from ablation.contract.display import aligned, one_line
from ablation.contract.numbers import alone, confidence, decimals_for, estimate, fixed, half, p_value, rough, stated
from ablation.judge.compare.comparison import Compared, ComparisonResult, QuotedItem
from ablation.judge.comparisons import may_differ
from ablation.judge.verdicts import COMPARISON_COLUMNS
from ablation.readers.sheet import short
from ablation.show.answer import interval_of
from ablation.store.analysis_history import StoredStudy
from ablation.store.database import Run, Store
from ablation.store.samples import Samples


def in_words(result: ComparisonResult, width: int) -> str:
    """Return the text that `ablation compare` prints."""
    if result.leaderboard:
        blocks = [*_systems(result, width)]
    else:
        blocks = [_comparison(result, compared, width) for compared in result.compared]
    notes = [textwrap.fill(f"note: {note}", width, subsequent_indent="  ") for note in result.notes]
    return "\n\n".join([*blocks, *(["\n".join(notes)] if notes else [])])


def _systems(result: ComparisonResult, width: int) -> Iterator[str]:
    """Yield the leaderboard of several systems, and a line for each comparison."""
    analysis, level = result.measured.analysis, confidence(result.measured.analysis.alpha)
    rows = [["system", analysis.named, f"[{level}, for all pairs]", "group"]]
    board = result.leaderboard
    decimals = decimals_for((each.mean for each in board), (half(each.low, each.high) for each in board))
    for each in board:
        rows.append([each.system, *estimate(each.mean, each.low, each.high, decimals, sign=""), each.groups])
    yield "\n".join(aligned(rows, [False, True, False, False]))
    yield textwrap.fill("Systems that share a letter do not differ significantly (adjusted for all pairs).", width)
    rows = [["", "against", "verdict", "effect", f"[{level}]", "p", "corrected"]]
    decimals = _decimals(result.compared)
    for compared in result.compared:
        comparison = compared.comparison
        effect = estimate(comparison.effect, comparison.low, comparison.high, decimals)
        p = (p_value(comparison.p), p_value(comparison.p_adjusted))
        rows.append([comparison.child, comparison.parent, comparison.verdict, *effect, *p])
    yield "\n".join(aligned(rows, [False, False, False, True, False, True, True]))


def _comparison(result: ComparisonResult, compared: Compared, width: int) -> str:
    comparison, analysis, decimals = compared.comparison, result.measured.analysis, _decimals([compared])
    lines = [f"{comparison.child} against {comparison.parent}: {comparison.verdict}", ""]
    lines += [f"  {label:<18} {fact}" for label, fact in _facts(result, compared, decimals)]
    reason = comparison.reason if comparison.reason.endswith("?") else f"{comparison.reason}."
    lines += ["", textwrap.fill(reason, width, initial_indent="  ", subsequent_indent="  ")]
    if compared.subsets:
        lines += ["", *_subsets(compared, analysis.alpha, _tool(result), decimals)]
    if compared.changed_items.better or compared.changed_items.worse:
        lines += ["", *_changed_items(compared, width)]
    return "\n".join(lines)


def _facts(result: ComparisonResult, compared: Compared, decimals: int) -> Iterator[tuple[str, str]]:
    comparison, analysis = compared.comparison, result.measured.analysis
    low, high = interval_of(comparison)
    corrected = ", corrected for all comparisons" if (low, high) != (comparison.low, comparison.high) else ""
    effect, interval = estimate(comparison.effect, low, high, decimals)
    yield "effect", effect if math.isnan(low) else f"{effect}  {interval} {confidence(analysis.alpha)}{corrected}"
    yield from _noise(result, compared)
    if comparison.measurements.design.paired:
        named = f" ({', '.join(map(str, comparison.paired))})" if comparison.paired and comparison.seeds < 11 else ""
        covered = may_differ([comparison]) if compared is result.compared[0] else ""
        yield "seeds", "; ".join(filter(None, [f"{comparison.seeds}{named}", covered]))
    else:
        yield "runs", f"{len(comparison.runs[0])} against {len(comparison.runs[1])}, independent"
    tasks = f" in {len(analysis.subsets)} tasks of equal weight" if len(analysis.subsets) > 1 else ""
    yield "items", f"{comparison.items:,}{tasks}"
    if isinstance(analysis.direction, Target):
        side = f"target {stated(analysis.direction.target)}"
    else:
        side = {"max": "larger is better", "min": "smaller is better"}[analysis.direction]
    filters = f", filter {','.join(result.filters)}" if result.filters else ""
    margin = "no margin" if analysis.margin is None else f"margin {stated(analysis.margin)}"
    yield "metric", f"{analysis.named}{filters}; {side}, {margin}"


def _noise(result: ComparisonResult, compared: Compared) -> Iterator[tuple[str, str]]:
    """Yield p, the minimum detectable effect and the standard error, which with one seed cover only item noise."""
    comparison = compared.comparison
    one_seed = comparison.estimate is not None and comparison.single
    items_only = one_seed or result.measured.design.claim == "checkpoints"
    if one_seed and comparison.checkpoints is not None:
        only = f"p {p_value(comparison.checkpoints.p)} holds for these checkpoints only"
        if comparison.checkpoints.items_only:
            only = "there are also too few items to judge these checkpoints"
        yield "p", f"not available with one seed per side ({only})"
    else:
        p = p_value(comparison.p)
        if len(result.compared) > 1:
            p += f", {p_value(comparison.p_adjusted)} corrected for all comparisons"
        if not math.isnan(comparison.p_sign_flip):
            p += f"; {p_value(comparison.p_sign_flip)} by a sign-flip test over seeds"
        yield "p", f"{p}{' (these checkpoints only)' if items_only else ''}"
    mde = f"{rough(comparison.mde)}{' or more (item noise only)' * one_seed}"
    yield "MDE (80% power)", "not known" if math.isnan(comparison.mde) else mde
    paired = f"{rough(compared.stderr)} (paired, over {'items' if items_only else 'seeds and items'})"
    unpaired = f"; reported by {_tool(result)}: {rough(compared.stderr_unpaired)} (one run, unpaired)"
    stderr = "not known" if math.isnan(compared.stderr) else paired
    yield "standard error", f"{stderr}{'' if compared.stderr_unpaired is None else unpaired}"


def _subsets(compared: Compared, alpha: float, tool: str, decimals: int) -> list[str]:
    names = compared.comparison.parent, compared.comparison.child
    rows = [["task", "items", *names, "effect", f"[{confidence(alpha)}, this task alone]"]]
    for row in compared.subsets:
        sides = ((row.before, row.stderr_before), (row.after, row.stderr_after))
        before, after = (fixed(mean, decimals) + _plus_minus(error, decimals) for mean, error in sides)
        rows.append([row.subset, f"{row.items:,}", before, after, *estimate(row.effect, row.low, row.high, decimals)])
    lines = [f"  {line}" for line in aligned(rows, [False, True, True, True, True, False])]
    if any(row.stderr_before is not None for row in compared.subsets):
        lines.append(f"  ± is the standard error reported by {tool}, over the items of one run (mean over seeds).")
    return lines


def _tool(result: ComparisonResult) -> str:
    """Return the names of the tools that reported the standard errors in the files."""
    tools = {sheet.facts.tool for sheet in result.sheets if sheet.facts.stderr is not None}
    return " and ".join(sorted(tools)) or "the tool"


def _plus_minus(error: float | None, decimals: int) -> str:
    return "" if error is None else f" ± {fixed(error, decimals)}"


def _decimals(compared: Sequence[Compared]) -> int:
    """Return the number of decimals of effects and means, from the reported standard errors or else the intervals."""
    rows = [row for each in compared for row in each.subsets]
    values = [value for row in rows for value in (row.before, row.after, row.effect)]
    errors = [error for row in rows for error in (row.stderr_before, row.stderr_after) if error]
    return decimals_for(values, errors or [half(*interval_of(each.comparison)) for each in compared])


def _changed_items(compared: Compared, width: int) -> Iterator[str]:
    total = sum(row.items for row in compared.subsets)
    same = total - compared.changed_items.better - compared.changed_items.worse
    counts = f"{compared.changed_items.better:,} better, {compared.changed_items.worse:,} worse, {same:,} the same"
    yield f"  items: {counts}{', on average over the seeds' if compared.comparison.seeds > 1 else ''}"
    for end, quoted_items in (("best", compared.best), ("worst", compared.worst)):
        for quoted in quoted_items:
            changed = quoted.changed
            task = f" of {changed.subset}" if len(compared.subsets) > 1 else ""
            yield f"  {end:<5} {short(changed.item)}{task}: {alone(changed.before)} -> {alone(changed.after)}"
            yield from _texts(quoted, compared, width)


def _texts(quoted: QuotedItem, compared: Compared, width: int) -> Iterator[str]:
    text, comparison = quoted.text, compared.comparison
    if text.asked:  # the end, because a long prompt starts with instructions and examples
        asked = " ".join(text.asked.split())
        room = max(width - 8, 20)
        yield f"        {one_line(asked if len(asked) <= room else '…' + asked[1 - room :], room)}"
    answers = [("wanted", text.wanted), (comparison.parent, quoted.answer_before), (comparison.child, text.answered)]
    shown = "; ".join(f"{name}: {one_line(' '.join(answer.split()), 80)}" for name, answer in answers if answer)
    if shown:
        yield f"        {f'seed {quoted.seed}: ' if comparison.seeds > 1 else ''}{shown}"


def as_rows(result: ComparisonResult) -> list[dict[str, Any]]:
    """Return a record per comparison, whose values can be written as JSON."""
    analysis = result.measured.analysis
    return [
        {name: getattr(compared.comparison, name) for name in COMPARISON_COLUMNS}
        | {
            "item_p": compared.comparison.estimate.item_p if compared.comparison.estimate else None,
            "standard_error": compared.stderr,
            "standard_error_unpaired": compared.stderr_unpaired,
            "paired_seeds": list(compared.comparison.paired),
            "runs": list(map(len, compared.comparison.runs)),
            "design": result.measured.design.seeds,
            "claim": result.measured.design.claim,
            "metric": analysis.named,
            "direction": analysis.model_dump()["direction"],
            "margin": analysis.margin,
            "alpha": analysis.alpha,
            "tasks": [asdict(subset) for subset in compared.subsets],
            "items_better": compared.changed_items.better,
            "items_worse": compared.changed_items.worse,
            "best": [_as_row(quoted) for quoted in compared.best],
            "worst": [_as_row(quoted) for quoted in compared.worst],
        }
        for compared in result.compared
    ]


def _as_row(quoted: QuotedItem) -> dict[str, Any]:
    row = {name: getattr(quoted.changed, name) for name in ("subset", "item", "before", "after", "change")}
    return row | {"seed": quoted.seed, "text": asdict(quoted.text), "answer_before": quoted.answer_before}


def write_comparison(result: ComparisonResult, out: Path) -> Path:
    """Write the report page of a comparison into the file `out`; return `out`."""
    from ablation.show.page.content import read_page  # late: neither is needed without a page
    from ablation.show.page.render import draw
    from ablation.show.page.samples import page_samples
    from ablation.store.evaluated import STAGE, write_evaluated

    measured = result.measured
    analysis = measured.analysis.model_copy(update={"value": measured.analysis.named, "transform": None})  # as judged
    formats = sorted({sheet.source.suffix.lstrip(".") for sheet in result.sheets})
    filters = result.filters
    columns = [
        ColumnDefinition(metric=f"{analysis.protocol}/{subset}/{analysis.value}", label=subset)
        for subset in analysis.subsets
    ]
    digest = hashlib.sha256(analysis.model_dump_json().encode()).hexdigest()[:16]
    definition = StoredStudy(
        name=measured.name,
        title=measured.name,
        question=f"Does {analysis.value}{f' ({filters[0]})' if filters else ''} change?",
        source=f"evaluation files ({', '.join(formats)})",
        table=TableDefinition(columns=columns),
        analysis=analysis,
        analysis_digest=digest,
        published=None,
        last_stage=STAGE,
        analysis_history=[],
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "compared.duckdb"
        series = {
            run: {subset: pd.Series(values.values, values.index) for subset, values in by_subset.items()}
            for run, by_subset in measured.values.items()
        }
        write_evaluated(database, definition, measured.variants, series, measured.clusters)
        comparisons = [(compared.comparison.parent, compared.comparison.child) for compared in result.compared]
        quoted = page_samples([(measured, comparisons, Samples(_write_texts(result, Path(folder))))])
        with Store(database) as store:
            write_text(out, draw(replace(read_page(store), samples=quoted)))
    return out


def _write_texts(result: ComparisonResult, folder: Path) -> dict[Run, tuple[Path, ...]]:
    """Write the texts of the items that changed most into a file per run; return the files of each run."""
    rows: dict[Run, list[dict[str, str]]] = {}
    for compared in result.compared:
        for quoted in (*compared.best, *compared.worst):
            changed, text = quoted.changed, quoted.text
            place = {"item": changed.item, "subset": changed.subset, "protocol": result.measured.analysis.protocol}
            beside = changed.telling()[0]
            for run, answer in (
                ((compared.comparison.parent, beside.parent_seed), quoted.answer_before),
                ((compared.comparison.child, beside.child_seed), text.answered),
            ):
                texts = {"prompt": text.asked, "reference": text.wanted, "response": answer}
                rows.setdefault(run, []).append(place | texts)
    files: dict[Run, tuple[Path, ...]] = {}
    for number, (run, run_rows) in enumerate(rows.items()):
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(run_rows), path)
        files[run] = (path,)
    return files
