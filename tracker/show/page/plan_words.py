"""The analysis plan in words, and what changed in it."""

from collections.abc import Mapping
from typing import Any

from tracker.config.study_schema import Analysis, Target


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(key, old value, new value) of what differs between two analysis plans."""
    return [(k, old.get(k), new.get(k)) for k in sorted({*old, *new}) if old.get(k) != new.get(k)]


def primary_in_words(analysis: Analysis) -> str:
    """What is compared, in one phrase."""
    subsets = analysis.subsets
    over = f", averaged over {', '.join(subsets[:-1])} and {subsets[-1]}" if len(subsets) > 1 else f" on {subsets[0]}"
    direction, value, protocol = analysis.direction, analysis.value, analysis.protocol
    if isinstance(direction, Target):
        return f"the distance of {value} from {direction.target:g} (protocol {protocol}){over}; smaller is better"
    return f"{value} (protocol {protocol}){over}; {'larger' if direction == 'max' else 'smaller'} is better"


def plan_in_words(analysis: Analysis) -> str:
    """The analysis plan as sentences."""
    counts = [str(count) for count in analysis.looks]
    looks = (
        f" Seeds may be added while a change is undecided, with looks at {', '.join(counts)} seeds." if counts else ""
    )
    return (
        f"The figure that decides is {primary_in_words(analysis)}. Every variant is compared with its parent on the"
        f" same seeds and items. A difference inside ±{analysis.margin} counts as none. Over all changes of the"
        f" study, the chance of any false “better” or “worse” is held at {analysis.alpha}"
        f" ({analysis.correction.capitalize()} correction).{looks}"
    )
