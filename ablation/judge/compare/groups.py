"""Reads evaluations as groups of runs, and checks whether two groups may be paired by seed and by item.

An item's prompt must be the same in both groups, unless the caller says that the prompt is the change under comparison.
"""

import glob
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd

from ablation.config.names import suggest
from ablation.config.variant_tree import natural
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import alone, counted, percent, stated
from ablation.judge.outcomes import Outcome, outcome_values
from ablation.readers import table
from ablation.readers.arrays import Frame, Values
from ablation.readers.evaluation import (
    evaluations_below,
    is_whole,
    reader_of,
    whole_of,
    without_retried,
    without_unfinished,
)
from ablation.readers.seeds import seed_in, without_seed
from ablation.readers.sheet import ANY, REPEATED, Errors, Sheet, Wanted, date_in, newer, short, some

DEFAULT_NAMES = ("baseline", "candidate")


def with_outcome(sheet: Sheet, outcome: Outcome) -> Sheet:
    """Return the sheet with the outcome of each item's samples in place of their mean.

    Raises:
        ConfigError: there are fewer samples of an item, or they are not right or wrong.
    """
    samples = sheet.facts.repeats

    def refusal(problem: str, remedy: str = "use --metric to name a metric whose values are 0 or 1") -> ConfigError:
        return ConfigError(sheet.source, outcome.option, outcome.k, problem, remedy)

    if outcome.k > samples:
        problem = f"each item has only {samples} sample{'s' * (samples != 1)}"
        raise refusal(problem, "sample each item more often, or reduce K")
    values, odd = outcome_values(sheet.values, samples, outcome)
    if odd is not None:
        raise refusal(f"item {short(str(sheet.items[odd]))} has samples whose score is neither 0 nor 1")
    if sheet.facts.larger_is_better is False:
        raise refusal("needs a metric for which larger values are better")
    facts = replace(sheet.facts, reported=None, stderr=None, larger_is_better=True)
    return replace(sheet, metric=f"{outcome.kind}@{outcome.k} of {sheet.metric}", values=values, facts=facts)


@dataclass(frozen=True)
class Options:
    """Options with which evaluation files are read."""

    wanted: Wanted = ANY
    seed_from: str | None = None  # a regular expression whose group matches the seed in a path
    latest: bool = False  # whether the newest of several evaluations of one run counts
    at: str | None = None  # name of the only folders to read, such as a checkpoint, if the group has one
    outcome: Outcome | None = None  # of an item's samples, instead of their mean
    independent: bool = False  # whether each file (or folder, if tasks have separate files) is a run of its own


@dataclass(frozen=True)
class Group:
    """The runs of one system, such as the baseline or the candidate."""

    name: str
    runs: dict[int, dict[str, Sheet]]  # {seed: {subset: sheet}}
    seeded: bool  # whether its files state seeds; else it is one run
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # reasons why no answer may rest on the group

    @property
    def seeds(self) -> list[int]:
        """The seeds of the group's runs, sorted."""
        return sorted(self.runs)

    @property
    def sheets(self) -> list[Sheet]:
        """The sheets of all runs of the group."""
        return [sheet for seed in self.seeds for sheet in self.runs[seed].values()]


@dataclass(frozen=True)
class Files:
    """The files of one group, and notes on the files of their folders that are left out."""

    paths: Sequence[Path]
    notes: Sequence[str] = ()

    def sheets(self, name: str, wanted: Wanted) -> Iterator[Sheet]:
        """Yield the sheets of all files; lm-eval's results are read with their samples."""
        samples = any(path.name.startswith("samples_") for path in self.paths)
        for path in self.paths:
            if not (samples and re.fullmatch(r".*results_.*\.json", path.name)):
                yield from (table if wanted.item and path.is_file() else reader_of(path)).sheets(path, wanted)


@dataclass(frozen=True)
class Side:
    """The sheets of one system, if the same files hold several systems."""

    read: Sequence[Sheet]
    paths: Sequence[Path] = ()  # shared with the others
    notes: Sequence[str] = ()

    def sheets(self, name: str, wanted: Wanted) -> list[Sheet]:
        """Return the sheets, which have been read already."""
        return list(self.read)


Evaluated = Files | Frame | Values | Side


def sides_by(given: Sequence[Evaluated], options: Options) -> dict[str, Side]:
    """Return a side for each value of the columns or settings named by `wanted.by`.

    Raises ConfigError if a file lacks such a column or setting, or if there is only one value.
    """
    by = options.wanted.by
    if options.at is not None:
        given = [replace(each, paths=at_place(each.paths, options.at)) for each in given if isinstance(each, Files)]
    sheets: dict[str, list[Sheet]] = {}
    for sheet in itertools.chain.from_iterable(each.sheets("table", options.wanted) for each in given):
        settings = sheet.facts.settings
        if absent := [name for name in by if name not in settings]:
            problem, remedy = "the file has no column or setting with this name", suggest(absent[0], settings)
            raise ConfigError(sheet.source, "--by", absent[0], problem, remedy)
        sheets.setdefault(" ".join(one_line(settings[name], 60) for name in by), []).append(sheet)
    if len(sheets) < 2:
        problem = f"separates the files into only one system, {next(iter(sheets), '')}"
        raise ConfigError("compare", "--by", ",".join(by), problem, "also name the files of other systems")
    notes = [note for each in given for note in each.notes]
    return {name: Side(read, (), () if at else notes) for at, (name, read) in enumerate(sheets.items())}


def sides_of(words: Sequence[str]) -> list[Files]:
    """Return a side for each path or match of a pattern.

    Raises ConfigError if the paths differ only in their seeds, or if `expand` raises it.
    """
    places = [
        place for word in words for place in ([word] if Path(word).exists() else sorted(glob.glob(word)) or [word])
    ]
    seeds = [seed_in(place) for place in places]
    stems = {without_seed(place, said) for place, said in zip(places, seeds, strict=True)}
    if len(places) > 1 and len(stems) == 1 and all(seeds):
        problem = f"{some(places)} differ only in their seed"
        raise ConfigError("compare", "", None, problem, "name the runs of another system after --with")
    return [expand([place]) for place in places]


def expand(words: Iterable[str], base: Path = Path()) -> Files:
    """Return the evaluations that the words name: each word is a file, a folder with evaluations, or a pattern.

    Raises ConfigError if there are none.
    """
    files: dict[Path, None] = {}
    notes: list[str] = []
    for word in words:
        path = base / word
        if path.is_dir() and is_whole(path):
            matches, problem = [path], ""
        elif path.is_dir():
            matches, problem = evaluations_below(path, notes.append, tables=False), ""
        elif path.is_file():
            matches, problem = [whole_of(path)], ""
        elif path.exists():  # a pipe, say, which would be waited for
            matches, problem = [], "is not a file"
        else:
            found = list(map(Path, sorted(glob.glob(str(path), recursive=True))))
            matches = [whole_of(each) for each in found if each.is_file() or is_whole(each)]
            for folder in found if not matches else []:
                matches += evaluations_below(folder, notes.append, tables=False)
            problem = "no file has this name or matches it as a pattern"
        if not matches:
            raise ConfigError(str(path), "", None, problem, "name files, a folder, or a pattern in quotes")
        files |= dict.fromkeys(matches)
    return Files(list(files), notes)


def read_group(name: str, files: Evaluated, options: Options) -> Group:
    """Read one group's evaluations, and find the run of each.

    Raises:
        ConfigError: a file cannot be read, its seed cannot be determined, or a run was evaluated twice.
    """
    wanted, notes, doubts = options.wanted, list(files.notes), list[str]()
    if isinstance(files, Files):
        files = Files(_chosen_paths(name, files.paths, options, notes.append, doubts.append))
    sheets = list(files.sheets(name, wanted))
    if options.outcome is not None:
        sheets = [with_outcome(sheet, options.outcome) for sheet in sheets]
    if lacking := [task for task in wanted.tasks if task not in {sheet.subset for sheet in sheets}]:
        remedy = "name the files of the evaluation on this task, or leave out the task"
        raise ConfigError("compare", "--tasks", lacking[0], f"{name} was not evaluated on this task", remedy)
    seeds = _numbered(sheets) if options.independent else _seeds(sheets, options.seed_from)
    runs: dict[int, dict[str, Sheet]] = {}
    for sheet, seed in zip(sheets, seeds, strict=True):
        run_sheets = runs.setdefault(0 if seed is None else seed, {})
        other = run_sheets.get(sheet.subset)
        if other is not None and not (options.latest and other.source != sheet.source):
            which = name if seed is None else f"{name}, seed {seed},"
            of_run = [each.source for each, own in zip(sheets, seeds, strict=True) if own == seed]
            raise _evaluated_twice(which, sheet, other, sheets, of_run, by=wanted.by)
        if other is None or newer(sheet.source, other.source):
            run_sheets[sheet.subset] = sheet
    subsets = {subset for run in runs.values() for subset in run}
    for seed, run in runs.items():
        if missing := sorted(subsets - run.keys()):
            problem = f"seed {seed} was not evaluated on {', '.join(missing)}, but other seeds were"
            remedy = f"evaluate seed {seed} on these tasks too, or choose other tasks with --tasks"
            raise ConfigError(name, "", None, problem, remedy)
    return Group(name, dict(sorted(runs.items())), None not in seeds, tuple(notes), tuple(doubts))


def _chosen_paths(
    name: str, paths: Sequence[Path], options: Options, note: Callable[[str], None], doubt: Callable[[str], None]
) -> Sequence[Path]:
    """Return the files of a group that the options `at` and `latest` select, without those that a retry replaced."""
    if options.at is not None:
        chosen = at_place(paths, options.at)
        if not chosen:
            note(f"{name} has no file at {options.at}, so all its files are used")
        paths = chosen or paths
    paths = without_retried(paths, note)
    return without_unfinished(paths, note, doubt) if options.latest else paths


def _evaluated_twice(
    run: str, sheet: Sheet, other: Sheet, sheets: Sequence[Sheet], of_run: Sequence[Path], *, by: Sequence[str]
) -> ConfigError:
    """Return the error for two evaluations of one run on one subset; `of_run` holds the files of this run."""
    if other.source == sheet.source and (apart := _apart([each for each in sheets if each.source == sheet.source])):
        problem = f"contains several systems, which differ in {', '.join(apart)}"
        remedy = f"compare the systems with --by {','.join((*by, *apart))}"
        return ConfigError(sheet.source, "", None, problem, remedy)
    problem = f"{run} was also evaluated on {sheet.subset} in {other.source}"
    return ConfigError(sheet.source, "", None, problem, _one_of(of_run))


def _apart(sheets: Sequence[Sheet]) -> list[str]:
    """Return the names of the settings in which the sheets of one file differ."""
    settings = [sheet.facts.settings for sheet in sheets]
    return [name for name in settings[0] if len({str(values.get(name)) for values in settings}) > 1]


def at_place(paths: Sequence[Path], place: str | None) -> list[Path]:
    """Return the files that are in a folder of this name, or whose name without the suffix is this name."""
    return [path for path in paths if place in (*path.parts, path.stem)]


def _one_of(sources: Sequence[Path]) -> str:
    """Return the remedy for several evaluations of one run: choose one evaluation, or say what the seeds are."""
    sources = list(dict.fromkeys(sources))
    if len(sources) < 2:
        return REPEATED
    folders = [
        column for column in zip(*(source.parent.parts for source in sources), strict=False) if len({*column}) > 1
    ]
    if not folders and any(date_in(source) for source in sources):
        return "name one of the files, or pass --latest"
    names = sorted(set(folders[-1]) if folders else {source.stem for source in sources}, key=natural)
    remedy = f"choose one with --at {shlex.quote(names[-1])}" + (", or pass --latest" if folders else "")
    finding = _finding(names, sources) or "REGEX"
    advice = f"{remedy}; if the numbers in {some(names)} are seeds, pass --seed-from {shlex.quote(finding)}"
    return f"{advice}; if the runs share nothing, pass --seeds independent"


def _finding(names: Sequence[str], sources: Sequence[Path]) -> str | None:
    """Return a regular expression that finds each name's last number in the paths; None if no expression does."""
    split = [re.fullmatch(r"(|.*\D)(\d+)(\D*)", name) for name in names]
    around = {(match[1], match[3]) for match in split if match}
    if None in split or len(around) != 1:
        return None
    [(before, after)] = [(re.escape(a).replace(r"\-", "-"), re.escape(b)) for a, b in around]
    wanted = {int(match[2]) for match in split if match}
    for form in (f"{before}(\\d+)", f".*/{before}(\\d+){after}[/.]"):
        matches = [re.search(form, str(source)) for source in sources]
        if {int(each[1]) for each in matches if each} == wanted and all(matches):
            return form
    return None


def _seeds(sheets: Sequence[Sheet], pattern: str | None) -> list[int | None]:
    """Return the seed of each sheet, from the pattern, the file or the path (`seed_in`); None if there is one run."""
    if pattern is not None:
        return [_by_pattern(sheet.source, pattern) for sheet in sheets]
    seeds = [_seed_of(sheet) for sheet in sheets]
    if None not in seeds:
        return seeds
    if any(seed is not None for seed in seeds):
        lacking = next(sheet.source for sheet, seed in zip(sheets, seeds, strict=True) if seed is None)
        problem = "the seed of this file is unknown, although other files state their seed"
        raise ConfigError(lacking, "", None, problem, "pass --seed-from REGEX")
    if len({sheet.subset for sheet in sheets}) == len(sheets):
        return seeds
    named = _by_other_words(list(dict.fromkeys(sheet.source for sheet in sheets)))
    return [named.get(sheet.source) for sheet in sheets]


def _numbered(sheets: Sequence[Sheet]) -> list[int | None]:
    """Return the number of each sheet's run: one run per file, or per folder if tasks are in separate files."""
    subsets = {sheet.subset for sheet in sheets}
    subsets_by_source: dict[Path, set[str]] = {}
    for sheet in sheets:
        subsets_by_source.setdefault(sheet.source, set()).add(sheet.subset)
    each_complete = all(names == subsets for names in subsets_by_source.values())
    places = [
        (sheet.source if each_complete else sheet.source.parent, -1 if sheet.seed is None else sheet.seed)
        for sheet in sheets
    ]
    number = {place: count for count, place in enumerate(sorted(set(places)), 1)}
    return [number[place] for place in places]


def _seed_of(sheet: Sheet) -> int | None:
    """Return the seed that a file states, or the last `seed<n>` in its path; None if there is neither."""
    if sheet.seed is not None:
        return sheet.seed
    named = seed_in(str(sheet.source), only_seed=True)
    return int(named["seed"]) if named else None


def _by_pattern(path: Path, pattern: str) -> int:
    remedy = "put one group around the digits, such as 'run(\\d+)'"
    try:
        match = re.search(pattern, str(path))
    except re.error as error:
        problem = f"is not a valid regular expression ({error})"
        raise ConfigError("compare", "--seed-from", pattern, problem, remedy) from None
    number = match.group(1) if match and match.re.groups else ""
    if not (number or "").isdigit():
        problem = f"finds no number in {one_line(str(path), 200)}"
        raise ConfigError("compare", "--seed-from", pattern, problem, remedy)
    return int(number)


def _by_other_words(sources: Sequence[Path]) -> dict[Path, int]:
    """Return seeds from words such as `run-3` in the parts in which paths differ; {} if a path has no such word."""
    shared = os.path.commonpath([source.parent.absolute() for source in sources])
    names = {source: seed_in(source.absolute().relative_to(shared).as_posix()) for source in sources}
    seeds = {source: int(named["seed"]) for source, named in names.items() if named}
    return seeds if len(seeds) == len(sources) and len(set(seeds.values())) > 1 else {}


def name_groups(*sides: Sequence[Path]) -> list[str]:
    """Return names from the first part of the paths in which the sides differ, else `baseline`, `candidate`, ..."""
    columns = [zip(*(path.parts for path in paths)) for paths in sides]  # noqa: B905
    for parts in zip(*columns):  # noqa: B905
        part_sets = [set(part) for part in parts]
        if sum(map(len, part_sets)) == len(set().union(*part_sets)):  # disjoint
            names = [_common_name(part) for part in part_sets]
            if all(names) and len(set(names)) == len(names):
                return names
            break
    return list(DEFAULT_NAMES) if len(sides) == 2 else [f"system {number}" for number in range(1, len(sides) + 1)]


def _common_name(parts: Set[str]) -> str:
    """Return the common beginning of parts of paths, such as `base` for base-seed0.csv and base-seed1.csv."""
    if len(parts) > 1:
        columns = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*parts, strict=False))
        shared = "".join(letters[0] for letters in columns)
        if any(part[len(shared) :][:1].isalpha() for part in parts):  # they differ within a word
            shared = re.sub(r"[^\W_]+$", "", shared)
        return re.sub(r"(?i)([\W_]+(seed|run|rep|trial|s)?[\W_]*\d*|\d+)$", "", shared)
    return re.sub(r"\.(csv|tsv|jsonl|parquet|json|eval)$", "", next(iter(parts)))


def pairs_of(parent: Group, child: Group, *, paired: bool) -> list[tuple[int, int]]:
    """Return the pairs of runs (parent's, child's) with the same seed; if seeds are independent, pair runs in order."""
    if paired:
        return [(seed, seed) for seed in sorted(parent.runs.keys() & child.runs.keys())]
    return list(zip(parent.seeds, child.seeds, strict=False))


def check(parent: Group, child: Group, allow: Set[str] = frozenset(), *, paired: bool = True) -> list[str]:
    """Refuse groups that cannot be paired; return notes for the reader.

    Raises:
        ConfigError: no common seed, different subsets, metrics or items, or different prompts, targets or tasks that
            are not in `allow`.
    """
    runs = pairs_of(parent, child, paired=paired)
    if not runs:
        seeds = (f"{group.name}: {', '.join(map(str, group.seeds))}" for group in (parent, child))
        problem = f"{parent.name} and {child.name} have no common seed ({'; '.join(seeds)})"
        remedy = "find the seeds with --seed-from REGEX, or pass --seeds independent if the runs share nothing"
        raise ConfigError("compare", "seeds", None, problem, remedy)
    notes: list[str] = []
    first = parent.runs[runs[0][0]]
    if not paired:  # every run beside the first one
        runs = [*((parent.seeds[0], seed) for seed in child.seeds), *((seed, child.seeds[0]) for seed in parent.seeds)]
    for one, other in runs:
        parent_run, child_run = parent.runs[one], child.runs[other]
        if parent_run.keys() != child_run.keys():
            raise _unlike_subsets(parent, child, parent_run.keys(), child_run.keys())
        for subset, sheet in parent_run.items():
            notes += _check_pair(sheet, child_run[subset], allow)
            if not sheet.items.equals(first[subset].items):  # items are drawn once for all seeds
                raise _unlike_items(first[subset], sheet)
    return list(dict.fromkeys(notes))


def _unlike_subsets(parent: Group, child: Group, of_parent: Set[str], of_child: Set[str]) -> ConfigError:
    left = {parent.name: of_parent - of_child, child.name: of_child - of_parent}
    only = [f"only {name} has {', '.join(sorted(subsets))}" for name, subsets in left.items() if subsets]
    remedy = "name files of the same tasks for both systems, or choose common tasks with --tasks"
    return ConfigError("compare", "tasks", None, "; ".join(only), remedy)


def _check_pair(parent: Sheet, child: Sheet, allow: Set[str]) -> Iterator[str]:
    for key in ("metric", "filter"):
        a, b = getattr(parent, key), getattr(child, key)
        if a != b:
            problem, remedy = f"is not {a!r}, as in {parent.source}", f"use --{key} to choose a common {key}"
            raise ConfigError(child.source, key, b, problem, remedy)
    if not parent.items.equals(child.items):
        raise _unlike_items(parent, child)
    versions = parent.facts.version, child.facts.version
    if "task" not in allow and None not in versions and versions[0] != versions[1]:
        problem = f"task {parent.subset} has version {versions[1]}, but version {versions[0]} in {parent.source}"
        raise ConfigError(
            child.source, "", None, problem, "evaluate both systems with one version, or pass --allow task"
        )
    if parent.asked or child.asked:
        yield from _check_asked(parent, child, allow)
    hashes = parent.facts.task_hash, child.facts.task_hash
    if not parent.asked and "task" not in allow and None not in hashes and hashes[0] != hashes[1]:
        problem = f"task_hash of {parent.subset} is {hashes[1]}, but {hashes[0]} in {parent.source}"
        raise ConfigError(child.source, "", None, problem, "evaluate both on the same task, or pass --allow task")
    if parent.facts.repeats != child.facts.repeats:
        often = f"{counted(parent.facts.repeats, 'sample')} in the baseline and {child.facts.repeats} in the candidate"
        yield f"{parent.subset}: each item has {often}"


def _check_asked(parent: Sheet, child: Sheet, allow: Set[str]) -> Iterator[str]:
    """Refuse prompts or targets that differ and are not in `allow`; yield notes on the others."""
    for name in sorted(parent.asked.keys() | child.asked.keys()):
        if name not in parent.asked or name not in child.asked:
            yield f"{name}s cannot be checked, because only one of the two evaluations records them"
            continue
        differing = np.flatnonzero(parent.asked[name] != child.asked[name])
        if not len(differing):
            continue
        have = "has" if len(differing) == 1 else "have"
        share = f"{len(differing)} of {len(parent.items)} items{_of(parent.subset)} {have} a different {name}"
        if name not in allow:
            problem = f"{share} than in {parent.source} ({some(parent.items[differing].tolist())})"
            remedy = f"evaluate both systems with the same {name}s, or pass --allow {name}"
            raise ConfigError(child.source, "", None, problem, remedy)
        yield f"{share} in the candidate than in the baseline, as --allow {name} permits"


def _of(subset: str) -> str:
    """Return " of SUBSET" for a message; empty for `all`, the subset of files without subsets."""
    return "" if subset == "all" else f" of {subset}"


def _unlike_items(parent: Sheet, child: Sheet) -> ConfigError:
    only_ours, only_theirs = parent.items.difference(child.items), child.items.difference(parent.items)
    if len(only_ours) == len(parent.items):
        problem = f"has no item{_of(parent.subset)} in common with {parent.source}"
        examples = f"{some(only_theirs.tolist(), 2)} here, {some(only_ours.tolist(), 2)} in the other file"
        return ConfigError(child.source, "", None, f"{problem} ({examples})", "evaluate both systems on the same data")
    parts = [f"lacks {len(only_ours)} ({some(only_ours.tolist())})"] if len(only_ours) else []
    parts += [f"has {len(only_theirs)} more ({some(only_theirs.tolist())})"] if len(only_theirs) else []
    problem = f"does not have the same items{_of(parent.subset)} as {parent.source}: this file {' and '.join(parts)}"
    return ConfigError(child.source, "", None, problem, "evaluate both systems on all items, or pass --common-items")


def without_errors(groups: Sequence[Group], errors: Errors, *, common_items: bool) -> tuple[Sequence[Group], list[str]]:
    """Return the groups without the items that have no value in some run because a sample failed, and notes.

    Raises ConfigError, which counts these items, unless the caller chose to leave them out.
    """
    failed = {group.name: sum(sheet.facts.failed for sheet in group.sheets) for group in groups}
    notes = []
    if any(failed.values()):
        counts = ", ".join(f"{name} {count}" for name, count in failed.items())
        notes.append(f"samples without a value count as 0 ({counts})")
    sheets = [(group, sheet) for group in groups for sheet in group.sheets]
    if not any(sheet.unscored for _, sheet in sheets):
        return groups, notes
    first = next(sheet for _, sheet in sheets if sheet.unscored)
    item, why = next(iter(first.unscored.items()))
    lost = {group.name: {(s.subset, item) for s in group.sheets for item in s.unscored} for group in groups}
    asked = {
        group.name: {(s.subset, item) for s in group.sheets for item in (*s.items, *s.unscored)} for group in groups
    }
    others = len(first.unscored) - 1
    rest, have = (f" and {others} more", "have") if others else ("", "has")
    said = f"item {short(item)}{rest}{_of(first.subset)} {have} no score: {one_line(why, 200)}"
    counts = "; errors: " + ", ".join(f"{name} {len(lost[name])} of {len(asked[name])}" for name in lost)
    if errors != "leave-out" and not common_items:
        remedy = "evaluate again, leave these items out on both sides (--errors leave-out), or count them as 0"
        raise ConfigError(first.source, "", None, said + counts, f"{remedy} (--errors fail)")
    everywhere = set().union(*lost.values())
    kept = [
        _kept(group, lambda sheet: sheet.items[[(sheet.subset, i) not in everywhere for i in sheet.items]])
        for group in groups
    ]
    return kept, [*notes, f"{first.source}: {said}; items without a score are left out on both sides{counts}"]


def check_failed(sheets: Sequence[Sheet], direction: object) -> None:
    """Raise ConfigError if failed samples count as 0 although 0 is not the value of a failure."""
    low, high = min(float(s.values.min()) for s in sheets), max(float(s.values.max()) for s in sheets)
    if direction != "max" or low < 0 or high > 1:
        why = f"values lie between {stated(low)} and {stated(high)} and the direction is {direction}"
        problem = f"0 does not always mean a failure, because {why}"
        raise ConfigError("compare", "--errors", "fail", problem, "pass --errors leave-out")


def _kept(group: Group, items_of: Callable[[Sheet], pd.Index]) -> Group:
    """Return the group with only these items in each sheet."""
    runs: dict[int, dict[str, Sheet]] = {}
    for seed, run in group.runs.items():
        runs[seed] = {}
        for name, sheet in run.items():
            items = items_of(sheet)
            if not len(items):
                raise ConfigError(sheet.source, name, None, "no item has a score in every run", "evaluate again")
            runs[seed][name] = sheet if sheet.items.equals(items) else sheet.only(items)
    return replace(group, runs=runs)


def common_items(groups: Sequence[Group]) -> tuple[list[Group], list[str], list[str]]:
    """Return the groups with the items that all runs have, notes on items that are left out, and doubts."""
    notes, doubts = [], []
    kept = {}
    for subset in dict.fromkeys(sheet.subset for group in groups for sheet in group.sheets):
        indexes = [sheet.items for group in groups for sheet in group.sheets if sheet.subset == subset]
        items = reduce(lambda a, b: a if a is b or a.equals(b) else a.intersection(b), indexes).sort_values()
        if not len(items):
            raise ConfigError(
                "compare", subset, None, "no item is common to all runs", "evaluate all runs on the same data"
            )
        kept[subset] = items
        most = max(map(len, indexes))
        if len(items) < most / 2:
            doubts.append(f"{subset}: only {len(items)} of {most} items are common to all runs")
        lost = {item for group in groups for sheet in group.sheets if sheet.subset == subset for item in sheet.unscored}
        every = len(lost.union(*indexes))
        if left := every - len(items):
            scores = filter(None, (_of_left_out(group, subset, items) for group in groups))
            lacking = f"--common-items leaves out {counted(left, 'item')} that some run lacks"
            remaining = f"{percent(len(items) / every)} of {every} remain"
            notes.append("; ".join([f"{subset}: {lacking}, and {remaining}", *scores]))
    return [_kept(group, lambda sheet: kept[sheet.subset]) for group in groups], notes, doubts


def _of_left_out(group: Group, subset: str, kept: pd.Index) -> str:
    """Return, in words, a group's scores on the items that are left out, and its scores on the common items."""
    means = []
    for sheet in [run[subset] for run in group.runs.values()]:
        common = sheet.items.isin(kept)
        if not common.all():
            means.append((int((~common).sum()), sheet.values[~common].mean(), sheet.values[common].mean()))
    if not means:
        return ""
    count, left, common = np.mean(means, axis=0)
    were = "was" if round(count) == 1 else "were"
    scores = f"{group.name} scores {alone(left)} on {counted(round(count), 'item')} that {were} left out"
    return f"{scores} and {alone(common)} on the common items"
