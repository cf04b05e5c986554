"""Group runs into variants: by `study.yaml`, by a rule, or by their configurations without the seed."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from ablation.config import dotted
from ablation.config.import_file import ImportFile, NamedVariant
from ablation.config.names import is_safe_name
from ablation.config.variant_tree import natural
from ablation.contract.display import joined
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.readers.seeds import seed_in, without_seed
from ablation.store.imports.stored import Record

SEED_KEYS = ("seed", "random_seed", "manual_seed", "global_seed", "seed_everything")
_PLACES = ("output_dir", "logging_dir", "default_local_dir", "validation_data_dir", "rollout_data_dir")
_NAMES = ("run_name", "exp_name", "experiment_name", "hub_model_id")
_NO_CHANGE = {*SEED_KEYS, *_PLACES, *_NAMES, "data_seed", "resume_from_checkpoint", "trackio_space_id"}
# SummaryWriter's <date>_<host><comment>; without a comment the date is all that tells two runs apart.
_START_IN_NAME = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_(?=[^/]*(?:_|[-.]s(?:eed)?[-=]?\d))")
_RANK = re.compile(r"(?<![^\W\d_])(?:(?:local|global|node)[-_]?)?rank[-_=]?(\d+)(?!\d)", re.IGNORECASE)
# Keys of a configuration, the likeliest first; a bare `rank` further down may be LoRA's.
_RANK_KEYS = (r"((ddp|dist|distributed)\.)?rank", r"(.*\.)?(global_rank|process_index)", r"(.*\.)?(local|node)_rank")
_LONGEST = 60


@dataclass
class Group:
    """The runs of one variant."""

    name: str
    runs: list[int]  # their places in the list of all
    leaves: dict[str, Any]  # dotted key: value, without seeds and keys that do not distinguish variants
    started: str = ""
    parent: str | None = None
    seeds: list[int] = field(default_factory=list)


def group_runs(runs: Sequence[Record], study: ImportFile, where: str) -> list[Group]:
    """Return the groups of runs with their seeds; the name of a group is "" if it is to come from its configuration.

    Raises ConfigError if a run has no known seed, belongs to no group or to several, or has the variant and seed of
    another run.
    """
    seeds = [_seed(run, study.runs.seed, where) for run in runs]
    groups = _named(runs, seeds, study, where)
    for group in groups:
        group.seeds = _seeds_of(group, runs, seeds, study, where)
        group.started = min((runs[i].started or "" for i in group.runs), default="")
    _check_seeds(groups, runs, where)
    return groups


def no_seed_is_known(runs: Sequence[Record], study: ImportFile, where: str) -> bool:
    """Return whether no run has a seed in a default place; False if a rule gives seeds or the formats differ."""
    return (
        study.runs.seed is None
        and len({run.format for run in runs}) == 1
        and all(_seed(run, None, where) is None for run in runs)
    )


def _seed(run: Record, rule: str | None, where: str) -> int | None:
    if rule == "number":
        return None
    if rule:
        return _integer(_found(run, rule, where))
    seed = run.seed
    if seed is None:
        seed = next((seed for seed in _seeds_in(run.config) if seed is not None), None)
    if seed is None and (match := seed_in(run.name)):
        seed = _integer(match["seed"])
    return seed


def _seeds_in(config: Mapping[str, Any]) -> Iterator[int | None]:
    """Yield the seeds in a configuration, in the order of SEED_KEYS and for each key from the top level downwards."""
    leaves = sorted(dotted.leaves(config), key=lambda leaf: leaf[0].count("."))
    for name in SEED_KEYS:
        yield from (_integer(value) for key, value in leaves if key.rpartition(".")[2].lower() == name)


def _integer(value: Any) -> int | None:
    try:
        number = None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and number == float(value) and abs(number) < 2**63 else None


def _found(run: Record, rule: str, where: str) -> Any:
    """Return what a rule finds in a run: `name:REGEX` in its name, or a dotted key in its configuration."""
    if not rule.startswith("name:"):
        return dotted.get(run.config, rule, None)
    try:
        match = re.search(rule.removeprefix("name:"), run.name)
        return match and match.group(1)
    except (re.error, IndexError) as error:
        problem = f"is not a valid regular expression with a group ({error})"
        raise ConfigError(where, "--map", rule, problem, "write one such as name:-s([0-9]+)$") from None


def _leaves(run: Record, study: ImportFile) -> dict[str, Any]:
    ignored, seed = study.runs.ignore, study.runs.seed
    return {
        key: value
        for key, value in dotted.leaves(run.config)
        if key.rpartition(".")[2].lower() not in _NO_CHANGE
        and key != seed
        and not any(dotted.covers(i, key) for i in ignored)
    }


def changed_settings(before: Record, now: Record, study: ImportFile) -> list[str]:
    """Return the dotted keys, except seeds, names and paths, that two records have with different values."""
    old, new = _leaves(before, study), _leaves(now, study)
    return sorted(key for key in old.keys() & new.keys() if old[key] != new[key])


def _named(runs: Sequence[Record], seeds: Sequence[int | None], study: ImportFile, where: str) -> list[Group]:
    rule, leaves = study.runs.variant, [_leaves(run, study) for run in runs]
    stems = [_stem(run, seed) for run, seed in zip(runs, seeds, strict=True)]
    if any(variant.where or variant.runs for variant in study.variants.values()):
        names = [_declared(run, study.variants, where) for run in runs]
    elif rule:
        names = [_by_rule(run, rule, where) for run in runs]
    else:
        return _by_configuration(runs, leaves, stems)
    members: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        members.setdefault(name, []).append(place)
    if rule:
        members = _safely_named(members, rule, where)
    return [Group(name, places, _common(leaves, places)) for name, places in members.items()]


def _safely_named(members: Mapping[str, list[int]], rule: str, where: str) -> dict[str, list[int]]:
    """Return the groups by valid variant name. Raises ConfigError if a group has no such name, or two have the same."""
    whose: dict[str, str] = {}
    for name in members:
        safe = safe_name(name)
        if not safe or whose.setdefault(safe, name) != name:
            alike = f"{name!r} and {whose[safe]!r} would both be named {safe!r}" if safe else ""
            problem = alike or f"{name!r} contains no ASCII letter or digit"
            raise ConfigError(where, "--map variant", rule, problem, "choose names under `variants` in a study.yaml")
    return {safe: members[name] for safe, name in whose.items()}


def _declared(run: Record, variants: Mapping[str, NamedVariant], where: str) -> str:
    fitting = [
        name
        for name, variant in variants.items()
        if (variant.where or variant.runs)
        and all(dotted.get(run.config, key, None) == value for key, value in variant.where.items())
        and (not variant.runs or any(fnmatchcase(run.name, pattern) for pattern in variant.runs))
    ]
    if len(fitting) != 1:
        problem = f"run {run.name} matches {f'the variants {joined(fitting)}' if fitting else 'no variant'}"
        remedy = "correct `where` or `runs`, or list the run in runs.leave_out"
        raise ConfigError(where, "variants", None, problem, remedy)
    return fitting[0]


def _by_rule(run: Record, rule: str, where: str) -> str:
    value = _found(run, rule, where)
    if value is None or not str(value):
        problem = f"the rule gives no variant for run {run.name} ({run.source})"
        raise ConfigError(where, "--map variant", rule, problem, "name another key, or pass another name:REGEX")
    return str(value)


def _stem(run: Record, seed: int | None) -> str:
    """Return a run's name without the seed, and without the date that TensorBoard puts in front of a comment."""
    name = _START_IN_NAME.sub("", run.name)
    match = seed_in(name)
    if match and int(match["seed"]) == seed:
        return without_seed(name, match)
    return without_seed(name if seed is None else re.sub(rf"[-_./ ]{seed}$", "", name), None)


def _by_configuration(runs: Sequence[Record], leaves: Sequence[dict[str, Any]], stems: Sequence[str]) -> list[Group]:
    """Group runs by configuration, and also by name if all names contain the seed or a configuration is unknown.

    Formats record configurations in different ways, so only configurations of one format are compared. Runs of other
    formats get the configuration of the run with the same name.
    """
    leaves = _of_one_format(runs, leaves)
    systematic = all(stem and stem != _stem(run, None) for stem, run in zip(stems, runs, strict=True))
    keys = [
        (json.dumps(leaf, sort_keys=True), stem if systematic or not leaf else "")
        for leaf, stem in zip(leaves, stems, strict=True)
    ]
    members: dict[tuple[str, str], list[int]] = {}
    for place, key in enumerate(keys):
        members.setdefault(key, []).append(place)
    shared = [len(places) > 1 and _common_stem(stems, places) != "" for places in members.values()]
    names_tell = systematic or any(shared) or not any(leaves)
    groups = [
        Group(_common_stem(stems, places) if names_tell else "", places, leaves[places[0]])
        for places in members.values()
    ]
    by_name: dict[str, list[Group]] = {}
    for group in groups:
        by_name.setdefault(group.name, []).append(group)
    joined = []
    for name, same in by_name.items():
        configured = [group for group in same if group.leaves]
        if name and len(configured) <= 1:  # evaluations and logs of the same runs; one has the configuration
            joined.append(Group(name, sorted(p for g in same for p in g.runs), (configured or same)[0].leaves))
        else:
            joined += [Group("", group.runs, group.leaves) for group in same]
    safe = [safe_name(group.name) for group in joined]
    for group, name in zip(joined, safe, strict=True):
        group.name = name if safe.count(name) == 1 else ""
    return joined


def _of_one_format(runs: Sequence[Record], leaves: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each run's configuration in the format that records most settings, or else in its own format."""
    size: dict[str, int] = {}
    for run, leaf in zip(runs, leaves, strict=True):
        size[run.format] = size.get(run.format, 0) + len(leaf)
    lead = max(sorted(size), key=lambda name: size[name], default="")
    configs = {run.name: leaf for run, leaf in zip(runs, leaves, strict=True) if run.format == lead}
    return [leaf if run.format == lead else configs.get(run.name, leaf) for run, leaf in zip(runs, leaves, strict=True)]


def _common_stem(stems: Sequence[str], places: Sequence[int]) -> str:
    distinct = {stems[place] for place in places}
    return distinct.pop() if len(distinct) == 1 else ""


def _common(leaves: Sequence[dict[str, Any]], places: Sequence[int]) -> dict[str, Any]:
    configured = [leaves[place] for place in places if leaves[place]]
    if not configured:
        return {}
    return {k: v for k, v in configured[0].items() if all(k in o and o[k] == v for o in configured)}


def _seeds_of(
    group: Group, runs: Sequence[Record], seeds: Sequence[int | None], study: ImportFile, where: str
) -> list[int]:
    if study.runs.seed == "number":
        order = sorted(group.runs, key=lambda place: (runs[place].started or "", natural(runs[place].name)))
        return [order.index(place) for place in group.runs]
    if silent := [runs[place] for place in group.runs if seeds[place] is None]:
        remedy = "pass --map seed=KEY (a configuration key), seed=name:REGEX, or seed=number to number the runs"
        more = f" and {counted(len(silent) - 1, 'other run')} of the variant have" if len(silent) > 1 else " has"
        problem = f"run {silent[0].name} ({silent[0].source}){more} no known seed"
        raise ConfigError(where, "seed", None, problem, remedy)
    return [seed for place in group.runs if (seed := seeds[place]) is not None]


def _check_seeds(groups: Iterable[Group], runs: Sequence[Record], where: str) -> None:
    """Raise ConfigError if two runs of one format would have the same variant and seed."""
    for group in groups:
        taken: dict[tuple[int, str], int] = {}
        for place, seed in zip(group.runs, group.seeds, strict=True):
            earlier = taken.setdefault((seed, runs[place].format), place)
            if earlier != place:
                first, second = (runs[i] for i in (earlier, place))
                alike = first.name == second.name
                pair = " and ".join(f"{r.name} ({f'{r.id}, ' if alike else ''}{r.source})" for r in (first, second))
                problem = f"{pair} are both seed {seed} of the same variant, and nothing else distinguishes them"
                left = f"--map 'leave_out={second.id if alike else second.name}'"
                remedy = f"pass --map variant=KEY or variant=name:REGEX, --map seed=KEY or seed=name:REGEX, or {left}"
                raise ConfigError(where, f"{group.name or 'variant'} seed {seed}", None, problem, remedy)


def continued(runs: Sequence[Record], study: ImportFile, where: str) -> list[tuple[int, int]]:
    """Return pairs (earlier, later) of indices of logs that belong to one run; pairs of the same run are in order.

    The two logs have equal settings and, if known, equal seeds, and the later log continues the steps of the earlier
    one. A preempted program leaves such logs if it gets a new id when it starts again.
    """
    seeds = [_seed(run, study.runs.seed, where) for run in runs]
    continuations = _versions_continued(runs, seeds, study, where)
    joined = {place for pair in continuations for place in pair}
    alike: dict[tuple[str, int | None, str], list[int]] = {}
    for number, group in enumerate(_named(runs, seeds, study, where)):
        for place in set(group.runs) - joined:
            settings, seed = _leaves(runs[place], study), seeds[place]
            if settings and runs[place].first_step is not None:
                key = f"{number} {runs[place].format}", seed, json.dumps(settings, sort_keys=True)
                alike.setdefault(key, []).append(place)
    for places in alike.values():
        known_seed = seeds[places[0]] is not None
        neighbours = list(pairwise(sorted(places, key=lambda place: runs[place].first_step or 0)))
        pairs = [(a, b) for a, b in neighbours if _goes_on(runs[a], runs[b], same_seed=known_seed)]
        if known_seed or pairs == neighbours:  # else nobody knows which of several seeds goes on
            continuations += pairs
    return continuations


def _versions_continued(
    runs: Sequence[Record], seeds: Sequence[int | None], study: ImportFile, where: str
) -> list[tuple[int, int]]:
    """Return index pairs (earlier, later) of Lightning's folders `version_0`, `version_1` that belong to one run.

    Raises ConfigError if this is unclear: only some folders continue the steps of the one before, or none does and no
    settings are known.
    """
    if study.runs.variant or any(variant.where or variant.runs for variant in study.variants.values()):
        return []
    alike: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for place, run in enumerate(runs):
        match = re.search(r"(?:^|[/_.-])version_(\d+)$", run.name)
        if match and seeds[place] is None and run.first_step is not None:
            key = run.format, run.name[: match.start()], json.dumps(_leaves(run, study), sort_keys=True)
            alike.setdefault(key, []).append((int(match[1]), place))
    continuations = []
    for (_, _, settings), numbered in alike.items():
        pairs = list(pairwise(place for _, place in sorted(numbered)))
        goes_on = [_goes_on(runs[a], runs[b], same_seed=True) for a, b in pairs]
        if goes_on and all(goes_on):
            continuations += pairs
        elif any(goes_on) or (pairs and settings == "{}"):
            first, second = (runs[place] for place in pairs[goes_on.index(False)])
            problem = f"{first.name} and {second.name} have the same settings, but {second.name} does not continue"
            problem += f" the steps of {first.name}"
            remedy = r"if they are runs of one variant, pass --map seed=name:version_(\d+)"
            remedy += r"; otherwise pass --map variant=name:(version_\d+)"
            raise ConfigError(where, "version", second.source, problem, remedy)
    return continuations


def _goes_on(earlier: Record, later: Record, *, same_seed: bool) -> bool:
    """Return whether `later` begins within or soon after the steps of `earlier`, and does not end before `earlier`.

    If the two are not known to have the same seed (`same_seed`), `later` must begin in the second half of `earlier` or
    after it, because a run of another seed begins with the first step.
    """
    first, last, begins, ends = earlier.first_step, earlier.last_step, later.first_step, later.last_step
    if first is None or last is None or begins is None or ends is None:
        return False
    if (earlier.started or "") > (later.started or ""):
        return False
    earliest = first if same_seed else (first + last) / 2
    return earliest < begins <= last + max(last - first, 1) and ends >= last


def other_ranks(runs: Sequence[Record], study: ImportFile) -> list[int]:
    """Return the indices of logs that ranks other than 0 wrote for a run that also has a log of rank 0.

    The logs of a run have the same settings, and their ranks are 0, 1, 2 and so on without a gap. A rank is in the
    name, such as `rank-1`, or in the configuration; with ranks in the configuration, the seeds must be equal, but
    the names may differ. The list is empty if a rule names the variants.
    """
    if study.runs.variant or any(variant.where or variant.runs for variant in study.variants.values()):
        return []
    jobs: dict[tuple[Any, ...], dict[int, list[int]]] = {}  # of several seeds, perhaps: all of them by these names
    for place, run in enumerate(runs):
        leaves = _leaves(run, study)
        rank_keys = [key for pattern in _RANK_KEYS for key in leaves if re.fullmatch(pattern, key, re.IGNORECASE)]
        if match := _RANK.search(run.name):
            number, alike = int(match[1]), (run.name[: match.start()], run.name[match.end() :])
        elif rank_keys and isinstance(leaves[rank_keys[0]], int):
            number, alike = leaves[rank_keys[0]], ("", str(_seed(run, None, "")))
        else:
            continue
        settings = json.dumps({k: v for k, v in leaves.items() if k not in rank_keys}, sort_keys=True)
        jobs.setdefault((run.format, *alike, settings), {}).setdefault(number, []).append(place)
    complete = (job for job in jobs.values() if sorted(job) == list(range(len(job))))
    return [place for job in complete for rank, places in job.items() if rank for place in places]


def safe_name(name: str) -> str:
    """Return a name as a valid variant name, with only ASCII letters, digits, `.`, `-` and `_`; "" if none is left."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    safe = re.sub(r"\.{2,}", ".", safe)[:_LONGEST].strip("-.")
    return safe if is_safe_name(safe) else ""
