"""Judges evaluations that other tools wrote: reads, checks and pairs them, as the command `compare` does.

The judge gets Measurements, as for a grid, and applies the same rules.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ablation.config.names import known_direction, suggest
from ablation.config.study import Change
from ablation.config.study_schema import Analysis, Target
from ablation.config.variant_tree import compared
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, estimate, rough, stated
from ablation.judge.changed_items import ChangedItem, ChangedItems, find_changed_items
from ablation.judge.compare.groups import (
    Evaluated,
    Group,
    Options,
    Side,
    at_place,
    check,
    check_failed,
    common_items,
    name_groups,
    read_group,
    sides_by,
    without_errors,
)
from ablation.judge.compare.leaderboard import Standing, standings
from ablation.judge.compare.weights import ALL, pooled, task_groups_that_disagree
from ablation.judge.comparisons import Comparison, judge_comparisons
from ablation.judge.judged import NOT_COMPARED
from ablation.judge.measurements import Column, Measurements, comparable, measurements_of, permitting
from ablation.judge.resampling import number_clusters
from ablation.judge.scales import scale_doubts
from ablation.judge.statistics import Group as JudgedGroup
from ablation.judge.statistics import contrast_groups
from ablation.plan.plan_file import PlannedVariant
from ablation.readers.sheet import ItemText, Sheet, Wanted
from ablation.store.database import Run


@dataclass(frozen=True)
class QuotedItem:
    """A changed item, with its texts in the pair of runs in which the item changed most."""

    changed: ChangedItem
    seed: int  # of the candidate's run
    text: ItemText
    answer_before: str


def _quoted(parent: Group, child: Group, changes: Sequence[ChangedItem]) -> tuple[QuotedItem, ...]:
    """Return changed items with their texts; each file is read only once."""
    pairs = [changed.telling()[0] for changed in changes]
    places: dict[tuple[int, int, str], list[str]] = {}
    for changed, beside in zip(changes, pairs, strict=True):
        places.setdefault((*beside[:2], changed.subset), []).append(changed.item)
    texts = {
        (one, other, subset): (parent.runs[one][subset].texts(items), child.runs[other][subset].texts(items))
        for (one, other, subset), items in places.items()
    }
    quoted = []
    for changed, beside in zip(changes, pairs, strict=True):
        texts_of_groups = texts[*beside[:2], changed.subset]
        parent_text, child_text = (group.get(changed.item, ItemText()) for group in texts_of_groups)
        quoted.append(QuotedItem(changed, beside.child_seed, child_text, parent_text.answered))
    return tuple(quoted)


PROTOCOL = "evaluated"
_MOST_OTHERS = 4  # other metrics, or filters, with which the comparison is repeated
FACTOR = "what was evaluated"
Direction = Literal["max", "min"] | Target
Weight = Literal["tasks", "items"]


@dataclass(frozen=True)
class TreeNode:
    """A variant's parent, and why the variant exists."""

    parent: str | None
    why: str = ""


@dataclass(frozen=True)
class Rules(Options):
    """Rules for reading and judging evaluations; None means that the files decide."""

    direction: Direction | None = None
    margin: float | None = None
    allow: Set[str] = frozenset()
    common_items: bool = False
    without: frozenset[Run] = frozenset()  # runs that may be missing
    weight: Weight | None = None  # what counts equally; None: tasks, because nobody chose
    changed_items: int = 3
    analysis: Mapping[str, Any] = field(default_factory=dict)  # further keys of the plan: alpha, comparisons, ...


@dataclass(frozen=True)
class SubsetRow:
    """One task: the value of each group, reported standard errors, and the difference on this task alone."""

    subset: str
    items: int
    before: float  # means over the paired seeds
    after: float
    stderr_before: float | None  # as the evaluation tool reports it for one run, mean over the seeds
    stderr_after: float | None
    effect: float
    low: float  # interval for this task alone, uncorrected
    high: float


@dataclass(frozen=True)
class Compared:
    """A comparison of two evaluations; all that is shown in addition to the verdict is computed on demand."""

    comparison: Comparison
    parent: Group
    child: Group
    most_quoted: int  # changed items, at each end

    @property
    def runs(self) -> list[list[dict[str, Sheet]]]:
        """The sheets of the runs that are compared, the parent's first."""
        sides = zip((self.parent, self.child), reversed(self.comparison.runs), strict=True)
        return [[group.runs[seed] for seed in seeds] for group, seeds in sides]

    @cached_property
    def changed_items(self) -> ChangedItems:
        """The items that changed between the two evaluations."""
        return find_changed_items(self.comparison.measurements, self.parent.name, self.child.name, self.most_quoted)

    @cached_property
    def best(self) -> tuple[QuotedItem, ...]:
        """The items that improved most, with their texts, the largest improvement first."""
        return _quoted(self.parent, self.child, self.changed_items.gained[: self.most_quoted])

    @cached_property
    def worst(self) -> tuple[QuotedItem, ...]:
        """The items that worsened most, with their texts, the largest loss first."""
        return _quoted(self.parent, self.child, self.changed_items.lost[: self.most_quoted])

    @property
    def stderr(self) -> float:
        """Standard error of the effect, from seeds and items (items alone with one seed); NaN if it cannot be known."""
        noise, estimate = self.comparison.noise, self.comparison.estimate
        if estimate is None or (estimate.items_only and not noise.seeds_known):
            return float("nan")
        return float(np.sqrt(np.nansum([noise.seed_variance, noise.item_variance])))

    @cached_property
    def subsets(self) -> tuple[SubsetRow, ...]:
        """The tasks, each judged alone by the runs of the comparison, without moderation; empty if it has no runs."""
        measured, runs = self.comparison.measurements, self.runs
        groups = comparable(measured, self.comparison.pair).groups
        named = enumerate(measured.analysis.subsets if groups else ())
        return tuple(_subset(subset, place, groups, runs, measured) for place, subset in named)

    @cached_property
    def stderr_unpaired(self) -> float | None:
        """Standard error of the effect, from the reported standard errors; None if none are reported.

        It ignores the pairing of items.
        """
        errors = [(row.stderr_before, row.stderr_after) for row in self.subsets]
        if not errors or any(None in pair for pair in errors):
            return None
        return float(np.sqrt(np.square(np.array(errors, float)).sum(axis=1).sum())) / len(errors)


@dataclass(frozen=True)
class ComparisonResult:
    """The result of `compare`: its comparisons, measurements and notes; notes are computed on demand."""

    name: str
    groups: Mapping[str, Group]
    measured: Measurements
    compared: tuple[Compared, ...]
    checked: tuple[str, ...]  # notes of reading and checking
    lost: tuple[str, ...]  # doubts of reading and checking
    rules: Rules
    by_rules: Callable[[Rules], "ComparisonResult"] = field(repr=False)  # compares the same evaluations by other rules
    unstated: tuple[ConfigError, ...] = ()  # what a requirement needs and nobody stated
    leaderboard: tuple[Standing, ...] = ()  # of more than two systems

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Reasons not to rely on an answer from these comparisons."""
        found = (scale_doubts(self.measured, each.parent.name, each.comparison.compared_runs) for each in self.compared)
        return (*self.lost, *dict.fromkeys(chain.from_iterable(found)))

    @cached_property
    def turned(self) -> tuple[str, ...]:
        """Notes on choices that the caller left open and that would change a sign or a verdict if made differently."""
        notes = []
        for words, option, rules in _other_choices(self):
            with suppress(ConfigError):  # what cannot be compared so says nothing
                other = self.by_rules(rules)
                notes += [f"{words}, {turn}; to see it, pass {option}" for turn in _turns(self, other)]
        weighted = self.rules.weight is not None or any("--weight items" in note for note in notes)
        if weighted or self.measured.analysis.transform or not any(sheet.facts.groups for sheet in self.sheets):
            return tuple(notes)
        for each in self.compared:  # groups of tasks are reported as means of the values
            notes += task_groups_that_disagree(each.parent, each.child)
        return tuple(notes)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes for the reader: other choices that would change a verdict, doubts, and findings of the checks."""
        return (*self.turned, *dict.fromkeys([*self.doubts, *self.checked]))

    @property
    def sheets(self) -> list[Sheet]:
        """The sheets of all groups."""
        return [sheet for group in self.groups.values() for sheet in group.sheets]

    @property
    def filters(self) -> list[str]:
        """Names of the answers' filters, sorted."""
        return sorted({sheet.filter for sheet in self.sheets} - {""})


def compare(
    name: str, variant_tree: Mapping[str, TreeNode], read: Callable[[Wanted], Sequence[Group]], rules: Rules
) -> ComparisonResult:
    """Read, check, pair and judge evaluations.

    read: returns the groups of the variant tree; it is called again for other metrics and filters.

    Raises:
        ConfigError: groups that cannot be read or paired, or no way to judge them.
    """
    groups = read(rules.wanted)
    notes = [note for group in groups for note in group.notes]
    doubts = [doubt for group in groups for doubt in group.doubts]
    if any(sheet.unscored or sheet.facts.failed for group in groups for sheet in group.sheets):
        groups, more = without_errors(groups, rules.wanted.errors, common_items=rules.common_items)
        notes += more
    if rules.common_items:
        groups, more, lost = common_items(groups)
        notes += more
        doubts += lost
    named = {group.name: group for group in groups}
    parents = {variant: place.parent for variant, place in variant_tree.items()}
    pairs = compared(rules.analysis.get("comparisons", "parent"), parents)
    # Every comparison of the variant tree, too: a difference over several comparisons needs pairs throughout.
    analysis_rules = dict(rules.analysis) | _declared(groups, rules.analysis)
    paired = analysis_rules.get("seeds") != "independent"
    for child, parent in dict.fromkeys([*pairs, *compared("parent", parents)]):
        notes += check(named[parent], named[child], rules.allow, paired=paired)
    sheets = [sheet for group in groups for sheet in group.sheets]
    notes += [remark for sheet in sheets for remark in sheet.facts.remarks]
    analysis, assumed = plan_analysis(sheets, rules.direction, rules.margin, **analysis_rules)
    if any(sheet.facts.failed for sheet in sheets):
        check_failed(sheets, analysis.direction)
    notes += [*assumed, *_first_taken(sheets, rules.wanted), *_shared(sheets), *_reported(sheets)]
    if rules.weight == "items":
        groups = [pooled(group) for group in groups]
        named = {group.name: group for group in groups}
        analysis = analysis.model_copy(update={"subsets": [ALL]})
    measured = measurements(name, groups, analysis, variant_tree, rules.allow)
    if rules.without:
        measured = permitting(measured, rules.without)
    results = tuple(
        Compared(comparison, named[comparison.parent], named[comparison.child], rules.changed_items)
        for comparison in judge_comparisons(measured)
    )
    by_rules, unstated = partial(compare, name, variant_tree, read), tuple(assumed.values())
    return ComparisonResult(name, named, measured, results, tuple(notes), tuple(doubts), rules, by_rules, unstated)


def _other_choices(result: ComparisonResult) -> Iterator[tuple[str, str, Rules]]:
    """Yield other choices that the caller left open: each as words, as a command-line option, and as rules."""
    rules = result.rules
    if rules.weight is None and len({sheet.subset for sheet in result.sheets}) > 1:
        yield "with items counted equally", "--weight items", replace(rules, weight="items")
    for kind in ("metric", "filter"):
        if getattr(rules.wanted, kind) is not None:
            continue
        for name in _others(result.sheets, kind)[:_MOST_OTHERS]:
            if kind == "filter":
                other = replace(rules, wanted=replace(rules.wanted, filter=name))
            else:  # a stated direction, margin or transform is that of the first metric
                wanted, plan = replace(rules.wanted, metric=name), {**rules.analysis, "transform": None}
                other = replace(rules, wanted=wanted, direction=None, margin=None, analysis=plan)
            yield f"by {kind} {name}", f"--{kind} {shlex.quote(name)}", other


def _turns(result: ComparisonResult, other: ComparisonResult) -> Iterator[str]:
    """Yield a clause for each comparison that has another sign or verdict in the result of another choice."""
    same_metric = result.measured.analysis.value == other.measured.analysis.value
    if not same_metric and any(error.key == "--direction" for error in other.unstated):
        return
    for first, second in zip(result.compared, other.compared, strict=True):
        before, after = first.comparison, second.comparison
        decided = {"better", "worse"} & {before.verdict, after.verdict}
        if after.verdict in NOT_COMPARED:
            continue
        if before.effect * after.effect < 0 or (decided and before.verdict != after.verdict):
            effect, _ = estimate(after.effect, after.low, after.high)
            yield f"{after.child} against {after.parent} is {after.verdict} ({effect})"


def _declared(groups: Sequence[Group], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys of the design that the caller did not declare.

    Runs are paired if all files name their seeds. With one run each, the claim is about these checkpoints only.
    """
    declared = {}
    alone = all(len(group.runs) == 1 for group in groups)
    same = len({tuple(group.runs) for group in groups}) == 1
    if given.get("seeds") is None and not (same if alone else all(group.seeded for group in groups)):
        declared["seeds"] = "independent"
    if given.get("claim") is None and alone:
        declared["claim"] = "checkpoints"
    return declared


def compare_files(
    sides: Sequence[Evaluated], names: Sequence[str] | None, rules: Rules, *, all_pairs: bool = False
) -> ComparisonResult:
    """Compare several evaluations with the first, or every pair of them. Raises ConfigError if `compare` raises it."""
    if rules.at is not None and not at_place([path for side in sides for path in side.paths], rules.at):
        problem = "no file or folder has this name"
        raise ConfigError("compare", "--at", rules.at, problem, "name a folder, or a file without its suffix")
    given = sides

    @lru_cache(maxsize=1)
    def systems(wanted: Wanted) -> dict[str, Side]:
        return sides_by(given, replace(rules, wanted=wanted))

    if rules.wanted.by:
        by_name = systems(rules.wanted)
        if unknown := [name for name in names or () if name not in by_name]:
            raise ConfigError("compare", "--names", unknown[0], "no system has this name", suggest(unknown[0], by_name))
        names = list(names or by_name)
        sides = [by_name[name] for name in names]
    places: dict[tuple[int, int], tuple[int, Path]] = {}  # a link is the same file
    for at, side in enumerate(sides):
        for path in side.paths:
            status = path.stat()
            before, other = places.setdefault((status.st_dev, status.st_ino), (at, path))
            if before != at:
                problem = "belongs to both baseline and candidate" if len(sides) == 2 else "belongs to two systems"
                problem += "" if other == path else f" (also named as {other})"
                raise ConfigError(path, "", None, problem, "name different files for each system")
    names = list(names or name_groups(*(side.paths for side in sides)))
    if len(names) != len(sides):
        problem = f"has {counted(len(names), 'name')} for {len(sides)} systems"
        raise ConfigError("compare", "--names", " ".join(names), problem, "give each system one name")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError("compare", "--names", twice[0], "is the name of two systems", "give each system its own name")
    first, *others = names
    whys = ["the candidate"] if len(others) == 1 else ["compared with the first"] * len(others)
    variant_tree = {first: TreeNode(None, "the baseline")}
    variant_tree |= {name: TreeNode(first, why) for name, why in zip(others, whys, strict=True)}
    pairs = [(child, parent) for at, parent in enumerate(names) for child in names[at + 1 :]]
    if all_pairs:
        rules = replace(rules, analysis={**rules.analysis, "comparisons": pairs})
    title = f"{others[0]} against {first}" if len(others) == 1 else f"{len(names)} systems"

    @lru_cache(maxsize=1)  # the same values may also be judged with other weights
    def read(wanted: Wanted) -> list[Group]:
        by_name = systems(wanted) if wanted.by else dict(zip(names, sides, strict=True))
        return [read_group(name, by_name[name], replace(rules, wanted=wanted)) for name in names]

    result = compare(title, variant_tree, read, rules)
    if len(others) == 1:
        return result
    return replace(result, leaderboard=standings(result.measured, pairs))


def _others(sheets: Sequence[Sheet], kind: str) -> list[str]:
    """Return the metrics or filters (`kind`) that the files have but the sheets do not use."""
    taken = {getattr(sheet, kind) for sheet in sheets}
    offered = dict.fromkeys(name for sheet in sheets for name in getattr(sheet.facts, f"{kind}s"))
    return [name for name in offered if name not in taken]


def _first_taken(sheets: Sequence[Sheet], chosen: Wanted) -> Iterator[str]:
    """Yield notes on other metrics and filters of the files, if the caller chose none."""
    for kind in ("metric", "filter"):
        if getattr(chosen, kind) is None and (left := _others(sheets, kind)):
            taken = sorted({getattr(sheet, kind) for sheet in sheets})
            yield f"using {kind} {', '.join(taken)}; to use another, pass --{kind} ({', '.join(left)})"


def _shared(sheets: Sequence[Sheet]) -> Iterator[str]:
    """Yield notes on items that share a text, and so are correlated, if no cluster is chosen."""
    for subset, shared in {sheet.subset: sheet.facts.shared for sheet in sheets if sheet.facts.shared}.items():
        together = f"items of {subset} share {shared}, so they are correlated and the intervals are too narrow"
        yield f"{together}; pass --cluster {shared.split(',')[0]}"


def _reported(sheets: Sequence[Sheet]) -> Iterator[str]:
    """Yield a note if the number that a file reports is not the mean of the file's items."""
    for sheet in sheets:
        said, mean = sheet.facts.reported, float(sheet.values.mean())
        if said is not None and abs(said - mean) > 1e-6 * max(1.0, abs(said)):
            reported = f"{sheet.source.name} reports {stated(said)} for {sheet.metric}"
            yield f"{reported}, but the mean of its items is {stated(mean)}"
            return


def _subset(
    subset: str,
    place: int,
    groups: Sequence[JudgedGroup],
    runs: Sequence[Sequence[dict[str, Sheet]]],
    measured: Measurements,
) -> SubsetRow:
    """Judge one task alone; `groups` are candidate and baseline, `runs` the sheets of baseline and candidate."""
    clusters = groups[0].clusters.of_items[place]
    drawn = number_clusters([len(clusters)], [clusters])
    after, before = (replace(group, values=[group.values[place]], clusters=drawn) for group in groups)
    alone = contrast_groups([after, before], (1, -1), 1 - measured.analysis.alpha, measured.design)
    stderrs: list[float | None] = []
    for group in runs:
        known = [error for run in group if (error := run[subset].facts.stderr) is not None]
        complete = len(known) == len(group) and not measured.analysis.transform
        stderrs.append(float(np.mean(known)) if complete else None)
    means = [float(each.means.mean()) for each in (before, after)]
    interval = alone.effect, alone.low, alone.high
    return SubsetRow(subset, len(clusters), means[0], means[1], stderrs[0], stderrs[1], *interval)


def plan_analysis(
    sheets: Sequence[Sheet], direction: Direction | None, margin: float | None, **rules: Any
) -> tuple[Analysis, dict[str, ConfigError]]:
    """Return the analysis plan, and its assumptions as {note: the error that a gate raises instead of the note}.

    Raises:
        ConfigError: metrics differ, or have different directions.
    """
    assumed: dict[str, ConfigError] = {}
    metrics = sorted({sheet.metric for sheet in sheets})
    if len(metrics) > 1:
        named = {sheet.metric: sheet.subset for sheet in sheets}
        has = ", ".join(f"{subset} has {metric}" for metric, subset in named.items())
        problem = f"the tasks have different metrics ({has})"
        raise ConfigError(
            "compare", "--metric", None, problem, "name a metric that all tasks have, or choose tasks with --tasks"
        )
    if direction is None:
        direction, more = _find_direction(sheets, metrics[0])
        assumed |= more
    if margin is None:
        margin, more = _find_margin(sheets, logarithms=bool(rules.get("transform")))
        assumed |= more
    analysis = Analysis(
        value=metrics[0],
        protocol=PROTOCOL,
        subsets=sorted({sheet.subset for sheet in sheets}),  # draws of items must not depend on the order of files
        direction=direction,
        margin=margin,
        **rules,
    )
    return analysis, assumed


def _find_direction(sheets: Sequence[Sheet], metric: str) -> tuple[Direction, dict[str, ConfigError]]:
    """Return the direction that files or metric imply, else `max`; and the assumption as {note: a gate's error}.

    Raises ConfigError if the tasks have different directions.
    """
    said = {sheet.facts.larger_is_better for sheet in sheets} - {None}
    if len(said) > 1:
        odd = next(sheet for sheet in sheets if sheet.facts.larger_is_better is False)
        problem = f"smaller is better for {odd.subset} but larger for other tasks, so a mean over tasks has no meaning"
        raise ConfigError(odd.source, odd.metric, None, problem, "compare the tasks one at a time")
    if known := "min" if said == {False} else "max" if said else known_direction(metric):
        return known, {}
    note = "assuming larger is better (not stated in the files); override with --direction"
    problem = f"is not stated, and neither the files nor the name {metric!r} implies a direction"
    remedy = "pass --direction max or min (`direction` in the analysis of a study file)"
    return "max", {note: ConfigError("compare", "--direction", None, problem, remedy)}


def _find_margin(sheets: Sequence[Sheet], *, logarithms: bool) -> tuple[float | None, dict[str, ConfigError]]:
    """Return a margin of 0.01 if every value is 0 or 1, else None; and the assumption as {note: a gate's error}."""
    every = np.concatenate([sheet.values for sheet in sheets])
    if logarithms and every.min() > 0:
        every = np.log(every)
    span = f"{stated(every.min())} and {stated(every.max())}"
    problem = f"is not stated; the values lie between {span} (SD {rough(every.std())})"
    remedy = "pass the smallest difference that matters to you (`margin` in the analysis of a study file)"
    error = ConfigError("compare", "--margin", None, problem, remedy)
    if np.isin(every, (0, 1)).all():
        note = "the margin is 0.01, because every value is 0 or 1; state your own with --margin before you see results"
        return 0.01, {note: error}
    remedy = "pass --margin with the smallest difference that matters"
    return None, {f"no margin is stated, so nothing is called equivalent; {remedy}": error}


def measurements(
    name: str, groups: Sequence[Group], analysis: Analysis, variant_tree: Mapping[str, TreeNode], allowed: Set[str]
) -> Measurements:
    """Return the measurements of groups that `check` accepted."""
    named = {group.name: group for group in groups}
    runs = {(group.name, seed): run for group in groups for seed, run in group.runs.items()}
    measured = measurements_of(
        name,
        analysis,
        [_planned(named, variant, place) for variant, place in variant_tree.items()],
        dict.fromkeys(runs, ("ok", "")),
        {
            run: {task: Column(sheet.items, sheet.values) for task, sheet in sorted(by.items())}
            for run, by in runs.items()
        },
        samples={group.name: min(sheet.facts.repeats for sheet in group.sheets) for group in groups},
        clusters=_clusters(runs),
        planned=False,
        allowed=frozenset(allowed),
    )
    if measured.cluster_fault:
        problem, _, remedy = measured.cluster_fault.rpartition("; ")
        raise ConfigError("compare", "cluster", None, problem, remedy)
    for (variant, _), fault in measured.not_judgeable.items():
        raise ConfigError("compare", "--transform", "log", f"{variant} has {fault}", "leave out the item or the option")
    return measured


def _planned(groups: Mapping[str, Group], name: str, place: TreeNode) -> PlannedVariant:
    """Return a variant for the judge; its changes are the differences between the settings of the evaluations."""
    changes = _changes(groups[place.parent], groups[name]) if place.parent is not None else []
    settings = [dict(sheet.facts.settings) for sheet in groups[name].sheets]
    common = {key: value for key, value in settings[0].items() if all(values.get(key) == value for values in settings)}
    return PlannedVariant(
        name=name,
        parent=place.parent,
        why=place.why,
        file=str(groups[name].sheets[0].source),
        resolved=common,
        factors=(FACTOR,) if place.parent is not None else (),
        changes=tuple(changes),
    )


def _changes(parent: Group, child: Group) -> list[Change]:
    """Return the settings that differ in every pair of runs, with the values of the first pair."""
    pairs = [(parent.runs[seed], child.runs[seed]) for seed in parent.seeds if seed in child.runs]
    pairs = pairs or [(parent.runs[one], child.runs[other]) for one in parent.seeds for other in child.seeds]
    groups = [[dict(next(iter(run.values())).facts.settings) for run in pair] for pair in pairs]
    return [
        Change.model_validate(
            {"key": key, "from": groups[0][0].get(key), "to": groups[0][1].get(key), "factor": FACTOR}
        )
        for key in sorted({key for pair in groups for settings in pair for key in settings})
        if all(before.get(key) != after.get(key) for before, after in groups)
    ]


def _clusters(runs: Mapping[Run, Mapping[str, Sheet]]) -> Iterator[tuple[str, str, str]]:
    """Yield (subset, item, cluster) of all sheets, but only once for sheets of one file, as these share clusters."""
    named = {id(s.clusters): (s.subset, s.clusters) for run in runs.values() for s in run.values()}
    yield from ((subset, *pair) for subset, clusters in named.values() for pair in clusters.items())
