"""Import files of other programs as a study: read runs, join them to stored ones, find variants, and store the study.

Without `Request.write` nothing is written, and the outcome describes what would be imported. A study is written
completely or not at all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ablation.config.import_file import ImportFile
from ablation.config.study_schema import Analysis
from ablation.contract.atomic import update_text
from ablation.contract.display import listed, one_line
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.numbers import counted
from ablation.contract.process import alone
from ablation.plan.plan_file import PlannedVariant
from ablation.readers.kept import kept_step
from ablation.readers.run import EVALUATION, ImportedRun, Reader, metric_table, shortened
from ablation.store.imports import stored
from ablation.store.imports.definition import KnownRun, describe_study, known_run, plan_analysis
from ablation.store.imports.final_step import FinalStep
from ablation.store.imports.grouping import changed_settings, continued, no_seed_is_known, other_ranks
from ablation.store.imports.stored import ImportedStudy, PlacedRun, Record
from ablation.store.imports.variant_tree import derive

_FACTS = (PlacedRun.model_fields.keys() & Record.model_fields.keys()) - {"seed"}  # that a study lists of a run
_NAMES = ("metrics", "items", "curves")  # of a known run
_DEEPEST = 100  # levels of a configuration; pydantic writes about 250, and reads fewer
_Run = tuple[Record, pa.Table, pa.Table | None]  # with its metrics and items
_Identity = tuple[str, str, str]  # `Record.identity`


@dataclass(frozen=True)
class Request:
    """A request to import runs.

    `written` is study.yaml with the options of the command, or None to use that of the last import. `where` is the
    study or file that errors name; `planned` has the names of planned studies. Only with `write` are files changed.
    """

    format: str
    reader: Reader
    paths: Sequence[Path]
    study: str
    where: str
    written: ImportFile | None
    planned: frozenset[str] = frozenset()
    write: bool = False


@dataclass
class Outcome:
    """The result of an import: the study as it is, or would be, after the import, and notes (`problems`) for the user.

    `missing` is the error that says what the analysis plan lacks, if the runs cannot be judged yet. `new` and `changed`
    are numbers of runs.
    """

    variants: tuple[PlannedVariant, ...] = ()
    runs: tuple[PlacedRun, ...] = ()
    new: int = 0
    changed: int = 0
    problems: list[str] = field(default_factory=list)
    analysis: Analysis | None = None
    missing: ConfigError | None = None
    written: bool = False


def import_runs(results: Path, request: Request) -> Outcome:
    """Import runs. If the request cannot be met, raise TrackerError and leave the stored study unchanged."""
    folder = results / stored.FOLDER / request.study
    with _alone(results / stored.FOLDER) if request.write else nullcontext():
        before = stored.read_study(folder) if (folder / stored.MANIFEST).exists() else None
        kept = {run.key for run in before.runs} if before else set()
        try:
            current = _Import(folder, request, before)
            study, outcome = current.gather(), current.outcome
            if request.write and study is not None:
                update_text(folder / stored.MANIFEST, study.text())
                kept, outcome.written = {run.key for run in study.runs}, True
        finally:
            if request.write:
                stored.remove_unnamed(folder, kept)
    return outcome


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other import writes to the same results; afterwards remove new folders that are still empty."""
    made = [place for place in (folder, folder.parent) if not place.exists()]
    lock = folder / ".lock"
    with alone(lock):
        try:
            yield
        finally:
            if list(folder.iterdir()) == [lock]:
                lock.unlink()
                with suppress(OSError):  # somebody else has put something there
                    for place in made:
                        place.rmdir()


class _Import:
    """One import: its runs, both stored and newly read, and its outcome."""

    def __init__(self, folder: Path, request: Request, before: ImportedStudy | None) -> None:
        if request.study in request.planned:
            problem = "is a planned study, which imported runs cannot join"
            remedy = f"choose another name, such as {request.study}-imported"
            raise ConfigError("import", "--study", request.study, problem, remedy)
        self.folder, self.request, self.outcome = folder, request, Outcome()
        self.written = request.written or (before.written if before else ImportFile())
        self.final = FinalStep.of(self.written)
        self.runs = self._stored(before)

    def gather(self) -> ImportedStudy | None:
        """Read all runs and find their variants; return the study, or None if its analysis plan is incomplete."""
        request, written, outcome = self.request, self.written, self.outcome
        keys = {identity: run.key for identity, run in self.runs.items()}
        if self.final.at == "common":  # read twice, since tables of all runs at once may need much memory
            earlier = ((identity, stored.read_rows(self.folder / key)[0]) for identity, key in keys.items())
            now = ((record.identity, metrics) for record, metrics, _ in self._read([]))
            self.final.find_common(chain(earlier, now))
        self._take_in()
        order = sorted(self.runs)
        if ranks := other_ranks([self.runs[identity].record for identity in order], written):
            names = shortened([self.runs.pop(order[place]).record.name for place in ranks])
            what = "of runs that differ only in their rank, only rank 0 is imported"
            outcome.problems.append(f"{what}; left out: {names}")
        self._join()
        outcome.new = len(self.runs.keys() - keys.keys())
        outcome.changed = sum(self.runs[identity].key != key for identity, key in keys.items() if identity in self.runs)
        runs = [self.runs[identity] for identity in sorted(self.runs)]
        if not runs:
            problem, remedy = "contains no run to import", "name another path, or leave out fewer runs"
            raise ConfigError(request.paths[0], "", None, problem, remedy)
        records = [run.record for run in runs]
        numbered = _numbered(records, written, request.where, outcome.problems)
        outcome.variants, placed = _derived(records, numbered, request, outcome)
        outcome.runs = tuple(
            PlacedRun(key=run.key, variant=variant, seed=seed, **{name: getattr(run.record, name) for name in _FACTS})
            for run, (variant, seed) in zip(runs, placed, strict=True)
        )
        _refuse_copies(runs, outcome.runs, request.where)
        outcome.problems += stored.steps_judged(outcome.runs)
        other_prompts = _other_prompts(runs, [seed for _, seed in placed])
        pairing = {"seeds": "independent"} if numbered.runs.seed == "number" else {}  # numbers pair nothing
        try:
            outcome.analysis = plan_analysis(pairing | written.analysis, runs, request.where)
            decides = outcome.analysis.subsets if outcome.analysis.protocol == EVALUATION else []
            for subset in decides if "prompt" not in written.runs.allow else []:
                if subset in other_prompts:
                    raise other_prompts.pop(subset)
        except ConfigError as error:
            if request.write:
                raise
            outcome.missing = error
        outcome.problems += [difference.problem for difference in other_prompts.values()]
        if outcome.missing is not None or outcome.analysis is None:
            return None
        study = describe_study(request.study, written, outcome.analysis, runs)
        return ImportedStudy(written=written, study=study, variants=outcome.variants, runs=outcome.runs)

    def _stored(self, before: ImportedStudy | None) -> dict[_Identity, KnownRun]:
        """Return the runs of earlier imports by identity; report and leave out runs whose files are damaged."""
        known: dict[_Identity, KnownRun] = {}
        for run in before.runs if before else ():
            try:
                content = stored.read_record(self.folder / run.key)
                metrics, items = stored.read_rows(self.folder / run.key)
            except (TrackerError, OSError, pa.ArrowException) as error:
                self.outcome.problems.append(one_line(f"{error}; the stored copy of {run.name} is left out", 500))
                continue
            record = Record(**content.model_dump(include=set(Record.model_fields)))
            known[record.identity] = known_run(record, run.key, metrics, items)
        return known

    def _read(self, problems: list[str]) -> Iterator[_Run]:
        """Yield the runs of all paths, each run once, without the runs in `leave_out`."""
        seen = set()
        for path in self.request.paths:
            if not path.exists():
                raise ConfigError(path, "", None, "the file or folder does not exist", "correct the path")
            for run in self.request.reader(path, lambda line: problems.append(one_line(line, 500))):
                place = run.source.resolve(), run.id
                names = run.name, run.id
                if place not in seen and not any(fnmatchcase(n, p) for n in names for p in self.written.runs.leave_out):
                    seen.add(place)
                    yield _checked(run, self.request, self.written, problems)

    def _take_in(self) -> None:
        """Merge the present content of the sources into the runs of earlier imports, and store them if requested."""
        problems, not_yet_read = self.outcome.problems, dict(self.runs)
        for record, *rows in chain(self._read(problems), self._not_read(not_yet_read)):
            metrics, items = rows
            was = not_yet_read.pop(record.identity, None)
            if was is not None and (changed := changed_settings(was.record, record, self.written)):
                what = f"replaces a different run from an earlier import ({listed(changed)} changed)"
                problems.append(one_line(f"{record.source}: {record.name}: {what}", 500))
            elif was is not None:
                before, evaluated = stored.read_rows(self.folder / was.key)
                metrics, items = stored.merged_metrics(before, metrics), stored.merged_items(evaluated, items)
            self.runs[record.identity] = self._kept(record, metrics, items)

    def _not_read(self, left: Mapping[_Identity, KnownRun]) -> Iterator[_Run]:
        """Yield the stored runs that remain in `left`; advance this iterator only after all sources have been read."""
        for identity in list(left):
            yield self.runs[identity].record, *stored.read_rows(self.folder / self.runs[identity].key)

    def _kept(self, record: Record, metrics: pa.Table, items: pa.Table | None) -> KnownRun:
        """Return a record and its rows as a KnownRun with the steps of its metrics, after storing it if requested."""
        first, last = pc.min_max(metrics["step"]).as_py().values()
        steps = {"first_step": first, "last_step": last, "final": self.final.step(record, metrics)}
        record = record.model_copy(update=steps)
        key = stored.key_of_run(record, metrics, items)
        if self.request.write:
            stored.write_run(self.folder, key, record, metrics, items)
        return known_run(record, key, metrics, items)

    def _join(self) -> None:
        """Join runs that continue others, as after a preemption; from its first step on, only the later log counts.

        If nothing is to be written, only records and names are joined, not the rows of metrics and items.
        """
        order = sorted(self.runs)
        joined = dict(enumerate(order))  # by place: what the run is a part of
        records = [self.runs[identity].record for identity in order]
        for earlier_place, later_place in continued(records, self.written, self.request.where):
            earlier, later = self.runs[joined[earlier_place]], self.runs.pop(order[later_place])
            joined[later_place] = joined[earlier_place]
            what = f"continues {earlier.record.name} with the same settings, so the two are imported as one run"
            self.outcome.problems.append(one_line(f"{later.record.source}: {later.record.name} {what}", 500))
            facts = {"state": later.record.state, "last_step": later.record.last_step}
            record = earlier.record.model_copy(update=facts)
            if self.request.write:
                before, items = stored.read_rows(self.folder / earlier.key)
                metrics, evaluated = stored.read_rows(self.folder / later.key)
                rest = before.filter(pc.less(before["step"], later.record.first_step))
                metrics = stored.sorted_metrics(pa.concat_tables([rest, metrics]))
                run = self._kept(record, metrics, stored.merged_items(items, evaluated))
            else:
                names = {n: getattr(earlier, n) | getattr(later, n) for n in _NAMES}
                run = KnownRun(record, earlier.key, **names, logged=earlier.logged + later.logged)
            self.runs[joined[earlier_place]] = run


def _numbered(records: Sequence[Record], written: ImportFile, where: str, problems: list[str]) -> ImportFile:
    """Return `written` or, if no run has a known seed, a copy that numbers the runs, with a note in `problems`."""
    if written.analysis.get("seeds") == "paired" or not no_seed_is_known(records, written, where):
        return written
    problem = "no run has a known seed, so the runs are numbered by start time and judged as independent"
    problems.append(f"{problem}; to name the seeds, pass --map seed=KEY or seed=name:REGEX")
    return written.model_copy(update={"runs": written.runs.model_copy(update={"seed": "number"})})


def _derived(
    records: Sequence[Record], written: ImportFile, request: Request, outcome: Outcome
) -> tuple[tuple[PlannedVariant, ...], list[tuple[str, int]]]:
    """Return the variants and each run's (variant, seed); number runs without seeds if nothing is to be written."""
    try:
        return derive(records, written, request.where)
    except ConfigError as error:
        if request.write or error.key != "seed":
            raise
        outcome.missing = error
        by_number = written.model_copy(update={"runs": written.runs.model_copy(update={"seed": "number"})})
        return derive(records, by_number, request.where)


def _refuse_copies(runs: Sequence[KnownRun], placed: Sequence[PlacedRun], where: str) -> None:
    """Raise ConfigError if two seeds of a variant logged equal values, unless all runs of the variant did."""
    first: dict[tuple[str, str], PlacedRun] = {}
    logs_by_variant: dict[str, set[str]] = {}
    for run, place in zip(runs, placed, strict=True):
        logs_by_variant.setdefault(place.variant, set()).add(run.logged)
    for run, place in zip(runs, placed, strict=True):
        earlier = first.setdefault((place.variant, run.logged), place) if run.logged else place
        if earlier is not place and earlier.format == place.format and len(logs_by_variant[place.variant]) > 1:
            problem = f"{earlier.name} and {place.name} logged the same values at every step, so one may be a copy"
            key = f"{place.variant} seeds {earlier.seed} and {place.seed}"
            raise ConfigError(where, key, None, problem, f"leave one out with --map 'leave_out={place.name}'")


def _other_prompts(runs: Sequence[KnownRun], seeds: Sequence[int]) -> dict[str, ConfigError]:
    """Return {subset: error} of the subsets in which two runs with the same seed had different prompts."""
    first: dict[tuple[str, int], Record] = {}
    differing: dict[str, ConfigError] = {}
    for run, seed in zip(runs, seeds, strict=True):
        for subset, digest in run.record.prompts.items():
            earlier = first.setdefault((subset, seed), run.record)
            if earlier.prompts[subset] != digest:
                problem = f"the prompts of {subset} differ between {run.record.name} and {earlier.name}"
                remedy = "compare runs with the same prompts, or pass --map allow=prompt if you are testing the prompt"
                differing.setdefault(subset, ConfigError(run.record.source, "", None, problem, remedy))
    return differing


def _checked(run: ImportedRun, request: Request, written: ImportFile, problems: list[str]) -> _Run:
    """Return a run in a form that can be stored. Raises ConfigError if its items are invalid."""
    metrics, notes = run.metrics, list[str]()
    kept = kept_step(run, notes.append, "for another step, pass --at best or --at STEP")
    problems += [f"{run.source}: {line}" for line in notes if written.runs.at is None]
    renamed = {logged_name: new_name for new_name, logged_name in written.runs.metrics.items()}
    names = pc.unique(metrics["name"]).to_pylist()
    unused = {
        new_name
        for logged_name, new_name in renamed.items()
        if {logged_name, new_name} <= set(names) and new_name not in renamed
    }
    odd = {name for name in names if not name or len(name) > 500 or not name.isprintable()}  # no table can show them
    for what, some in (("that --map replaces", unused), ("without a usable name", odd)):
        if some:
            text = f"{run.source}: {run.name}: metrics {what} are left out: {', '.join(sorted(some))}"
            problems.append(one_line(text, 500))
    odd |= unused
    if odd or renamed or len(metrics.group_by(["step", "name"]).aggregate([])) < metrics.num_rows:
        rows = zip(*(column.to_pylist() for column in metrics.columns), strict=True)
        metrics = metric_table((step, renamed.get(name, name), value) for step, name, value in rows if name not in odd)
    if metrics.num_rows == 0 and run.items is None:
        problems.append(f"{run.source}: {run.name} has logged neither metrics nor items")
    items = None if run.items is None or run.items.num_rows == 0 else stored.sorted_items(run.items)
    if items is not None:
        _check_items(run, items)
    try:
        config = _json(run.config)
    except RecursionError:
        problems.append(f"{run.source}: the configuration is left out, because it is nested too deeply")
        config = {}
    record = Record(
        format=request.format,
        source=str(run.source.resolve()),
        id=run.id,
        name=one_line(run.name, 300),
        config=config,
        seed=run.seed,
        state=run.state,
        started=run.started,
        last_step=None,
        kept=kept,
        prompts=dict(run.prompts),
    )
    return record, stored.sorted_metrics(metrics), items


def _check_items(run: ImportedRun, items: pa.Table) -> None:
    place = f"{run.source}: {run.name}"
    if (problem := stored.twice(items)) is not None:
        raise ConfigError(place, "items", None, problem, "remove all but one of the values")
    bad = items.filter(pc.invert(pc.fill_null(pc.is_finite(items["value"]), False)))
    for row in bad.slice(0, 1).to_pylist():
        problem = f"the {row['name']} of item {row['item']} of {row['subset']} is not a finite number"
        problem += f" ({counted(bad.num_rows, 'such row')})"
        raise ConfigError(place, "items", row["value"], problem, "evaluate again, or remove the rows")


def _json(value: Any, left: int = _DEEPEST) -> Any:
    """Return a value that JSON and DuckDB can hold: dates, NaN and huge integers become text, surrogates are replaced.

    Raises RecursionError for a value that is nested `left` levels deep or more.
    """
    if not left:
        raise RecursionError
    if isinstance(value, dict):
        return {one_line(_json(str(key)), 200): _json(item, left - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_json(item, left - 1) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return str(value).encode("utf-8", "replace").decode("utf-8")
