"""The command `trace`: find the runs, stages and code behind one number in a table, and how to run them again."""

import argparse
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ablation.cli.common import add_shared, open_store, print_json, results_folder
from ablation.config.names import check_name, suggest
from ablation.contract.display import listed, printable
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, stated
from ablation.show.tables import Cell, ComparisonColumn, build_table, show_cell
from ablation.store.current import check_study
from ablation.store.database import Store

_CHANGED = re.compile(r"^diff --git a/(.*) b/", re.MULTILINE)
_MOST_BYTES = 16 << 20
_MOST_NAMES = 10


@dataclass(frozen=True)
class TracedStage:
    """A stage of a run behind a number, with the code that the stage ran."""

    variant: str
    seed: int
    value: float  # of the metric in this run
    stage: str
    state: str
    key: str
    folder: str
    ended: str | None
    commit: str | None
    dirty: bool | None  # whether files differed from the commit
    untracked: tuple[str, ...]  # files that were not under version control
    diff: str | None  # the file that holds the difference


@dataclass(frozen=True)
class Traced:
    """A cell of a table: its text, its metric, the stages that produced it, and commands that rerun the stages."""

    study: str
    row: str
    metric: str
    shown: str
    stages: tuple[TracedStage, ...]
    rerun: tuple[str, ...]  # commands

    def lines(self) -> Iterator[str]:
        """Yield the lines that `ablation trace` prints."""
        seeds = list(dict.fromkeys((stage.variant, stage.seed, stage.value) for stage in self.stages))
        yield f"{self.study}, {self.row}, {self.metric}: {self.shown} from {counted(len(seeds), 'run')}"
        for variant, seed, value in seeds:
            yield f"  {variant} seed {seed}: {stated(value)}"
            for stage in self.stages:
                if (stage.variant, stage.seed) == (variant, seed):
                    yield f"    {stage.stage}  {stage.key}  {stage.ended or stage.state}  {stage.folder}"
        codes = dict.fromkeys((stage.commit, stage.dirty) for stage in self.stages)
        for commit, dirty in codes:
            those = [stage for stage in self.stages if (stage.commit, stage.dirty) == (commit, dirty)]
            names = ", ".join(dict.fromkeys(stage.stage for stage in those))
            yield f"code of {names}: {f'commit {commit}' if commit else 'not under version control'}"
            for diff in dict.fromkeys(stage.diff for stage in those if stage.diff):
                files = ", ".join(_changed(Path(diff)))
                changes = f" to {files} ({diff})" if files else f", but {diff} cannot be read"
                yield f"  with uncommitted changes{changes}"
            if untracked := list(map(printable, dict.fromkeys(name for stage in those for name in stage.untracked))):
                yield f"  with files not under version control: {listed(untracked, _MOST_NAMES)}"
        imported = "another program made these runs; use that program to run them again"
        yield "to run these stages again:" if self.rerun else imported
        yield from (f"  {command}" for command in self.rerun)


def trace(store: Store, study: str, row: str, column: str) -> Traced:
    """Find the runs behind a cell; `column` is a heading of the study's table, or a metric of its results.

    Raises ConfigError if the row or column does not exist, or no run that succeeded has a value.
    """
    table = build_table(store, study)
    labels = {each.label: each for each in table.columns}
    metrics = [name for (name,) in store.rows("SELECT DISTINCT metric FROM results WHERE study = ?", [study])[1]]
    heading = labels.get(column) or (ComparisonColumn(column, column, None) if column in metrics else None)
    if heading is None:
        remedy = suggest(column, dict.fromkeys([*labels, *metrics]))
        raise ConfigError("trace", "COLUMN", column, "is not a column or a metric", remedy)
    check_name(row, [each.name for each in table.rows], "trace", "ROW", "is not a row of the table")
    table_row = next(each for each in table.rows if each.name == row)
    metric, reference = heading.metric, store.study(study).table.reference
    if table_row.is_reference and reference:  # the unchanged model, which every variant measures
        metric = "/".join(reference.replace.get(part, part) for part in metric.split("/"))
    names, rows = store.rows(
        f"""SELECT r.variant, r.seed, v.value, r.stage, s.state, r.key, s.dir AS folder, s.ended,
               p.data->'git'->>'commit' AS commit, (p.data->'git'->>'dirty')::BOOLEAN AS dirty,
               coalesce((p.data->'git'->'untracked')::VARCHAR[], []) AS untracked,
               s.dir || '/' || (p.data->'git'->>'diff_file') AS diff
           FROM run_stages r JOIN results v USING (study, variant, seed)
           JOIN stages s ON r.key = s.key AND r.study = s.study AND r.stage = s.stage
               AND r.seed = coalesce(s.seed, r.seed)
           LEFT JOIN provenance p ON r.key = p.key
           WHERE r.study = ? AND v.metric = ? {"" if table_row.is_reference else "AND r.variant = ?"}
           ORDER BY r.variant, r.seed, r.position""",
        [study, metric, *([] if table_row.is_reference else [row])],
    )
    if not rows:
        problem = f"has no value for {metric}" + (f" ({table_row.status})" if table_row.status else "")
        remedy = "name a row whose runs succeeded and logged this metric"
        raise ConfigError("trace", "ROW", row, problem, remedy)
    found_stages = (dict(zip(names, values, strict=True)) for values in rows)
    stages = tuple(TracedStage(**stage | {"untracked": tuple(stage["untracked"])}) for stage in found_stages)
    values = {(stage.variant, stage.seed): stage.value for stage in stages}
    cell = table_row.cells[table.columns.index(heading)] if heading in table.columns else Cell(tuple(values.values()))
    again = () if store.study(study).imported else tuple(_rerun(study, store.meta().get("scale", ""), stages))
    return Traced(study, row, metric, show_cell(cell, heading, table_row.seeds), stages, again)


def _rerun(study: str, scale: str, stages: tuple[TracedStage, ...]) -> Iterator[str]:
    """Yield commands that rerun the stages in separate folders, with their original code if they ran one commit."""
    commits = {stage.commit for stage in stages} - {None}
    diffs = {stage.diff for stage in stages if stage.diff}
    if len(commits) == 1:
        yield f"git checkout {commits.pop()}"
        if diffs:
            yield f"git apply {shlex.quote(min(diffs))}"
    variants, seeds = (
        list(dict.fromkeys(values)) for values in zip(*((s.variant, s.seed) for s in stages), strict=True)
    )
    only = [f"variant={variants[0]}"] if len(variants) == 1 else []
    overrides = [f"scale={scale}", f"study={study}", *only, f"seeds={json.dumps(seeds)}", "results=again/results"]
    overrides.append("reports=again/reports")
    yield f"snakemake --cores all --config {shlex.join(overrides)}"


def _changed(patch: Path) -> list[str]:
    try:
        with patch.open(encoding="utf-8", errors="replace") as file:
            return list(map(printable, dict.fromkeys(_CHANGED.findall(file.read(_MOST_BYTES)))))
    except OSError:
        return []


def declare_trace(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `trace`."""
    parser.description = (
        "Trace a number in a table to its runs, stages, commit and uncommitted changes, and print commands that run "
        "these stages again."
    )
    add_shared(parser, "--results", "--json")
    parser.add_argument("table", metavar="TABLE", help="a study, or one of its table files")
    parser.add_argument("row", metavar="ROW", help="a variant, or the name of the reference row")
    parser.add_argument("column", metavar="COLUMN", help="a column heading, or the name of any final metric")


def run_trace(arguments: argparse.Namespace) -> int:
    """Print the runs, stages and code behind a number in a table."""
    table = Path(arguments.table)
    study = table.parent.name if table.suffix in (".md", ".csv", ".tex", ".html") else arguments.table
    with open_store(results_folder(arguments)) as store:
        check_study(store, "trace", study)
        traced = trace(store, study, arguments.row, arguments.column)
    if arguments.json:
        print_json("trace", map(asdict, traced.stages), metric=traced.metric, shown=traced.shown, rerun=traced.rerun)
    else:
        print("\n".join(traced.lines()))
    return 0
