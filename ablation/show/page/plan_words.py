"""The analysis plan in words, and what changed in it."""

from collections.abc import Iterable, Mapping
from typing import Any

from ablation.config.judging_rules import RECORDED, RULES
from ablation.config.study_schema import Analysis, Target
from ablation.contract.rows import LOGGED
from ablation.judge.significance import seeds_for
from ablation.show.text import describe_value
from ablation.store.analysis_history import seeds_added


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(key, old value, new value) of what differs between two analysis plans."""
    return [(k, old.get(k), new.get(k)) for k in sorted({*old, *new}) if old.get(k) != new.get(k)]


def could_help(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Changes between two entries of a plan's history that could have been made to obtain a verdict."""
    keys = changed_keys(old["analysis"], new["analysis"])
    gone = [pair for pair in old.get("edges", []) if pair not in new.get("edges", [])]
    return [
        *(f"{key} {describe_value(before)} → {describe_value(after)}" for key, before, after in keys),
        *(f"{child} is no longer compared with {parent}" for child, parent in gone),
        *(
            f"{name} has {after} seeds, not {before}, without planned looks"
            for name, (before, after) in seeds_added([old, new]).items()
        ),
    ]


def rules_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Rules of judging that changed between two entries of a plan's history, each with its day."""
    return RULES[old.get("rules", RECORDED) : new.get("rules", RECORDED)]


def standing_together(comparisons: Iterable[tuple[str, Any]]) -> list[tuple[str, list[str]]]:
    """(parent, variants) of verdicts, better or worse, that rest on the runs of one parent."""
    found: dict[str, list[str]] = {}
    for name, comparison in comparisons:
        if comparison.verdict in ("better", "worse"):
            found.setdefault(comparison.parent, []).append(name)
    return [(parent, names) for parent, names in found.items() if len(names) > 1]


def primary_in_words(analysis: Analysis) -> str:
    """What is compared, in one phrase."""
    subsets = analysis.subsets
    over = f", averaged over {', '.join(subsets[:-1])} and {subsets[-1]}" if len(subsets) > 1 else f" on {subsets[0]}"
    direction, value, protocol = analysis.direction, analysis.named, analysis.protocol
    if protocol == LOGGED:
        named = f"the final value of {' and of '.join(analysis.subsets)}, as it was logged, without items"
        if isinstance(direction, Target):
            return f"{named}: its distance from {direction.target:g}; smaller is better"
        return f"{named}; {'larger' if direction == 'max' else 'smaller'} is better"
    if isinstance(direction, Target):
        return f"the distance of {value} from {direction.target:g} (protocol {protocol}){over}; smaller is better"
    return f"{value} (protocol {protocol}){over}; {'larger' if direction == 'max' else 'smaller'} is better"


def plan_in_words(analysis: Analysis) -> str:
    """The analysis plan as sentences."""
    counts = [str(count) for count in analysis.looks]
    looks = (
        f" Seeds may be added while a change is undecided, with looks at {', '.join(counts)} seeds." if counts else ""
    )
    pairs = analysis.edges if isinstance(analysis.edges, list) else []
    listed = ", ".join(f"{child} with {parent}" for child, parent in pairs)
    against = f"Compared are {listed}," if pairs else f"Every variant is compared with its {analysis.edges}"
    named = {"max-t": "max-t correction, which knows that changes share runs and items", "holm": "Holm's correction"}
    borrowed = (
        " The noise between seeds is each change's own, moderated by that of the study's other variants."
        if analysis.variance == "moderated"
        else ""
    )
    enough = f" “Equivalent” needs {max(seeds_for(analysis.rare, analysis.alpha), 2)} seeds."
    held = (
        "Of the changes called “better” or “worse”, the expected share that is called so wrongly is held at"
        f" {analysis.alpha} (false discovery rate, Benjamini-Hochberg correction), and so is that of their corrected"
        " intervals that miss."
        if analysis.error == "per_word"
        else "Over all changes of the study, the chance of any false “better” or “worse” is held at"
        f" {analysis.alpha} ({named[analysis.correction]})."
    )
    return (
        f"The figure that decides is {primary_in_words(analysis)}. {against} on the"
        f" same seeds and items. A difference inside ±{analysis.margin} counts as none.{enough}"
        f" {held}{borrowed}{looks}"
    )
