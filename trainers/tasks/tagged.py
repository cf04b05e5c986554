"""Responses of the form `<think> ... </think> <answer> ... </answer>` and the rule reward of Logic-RL.

Logic-RL (arXiv 2502.14768, section 3.2): format +1 or -1; answer +2 if right, -1.5 if wrong, -2 if it cannot be read.
"""

import re

FORMAT_REWARD = 1.0
RIGHT, WRONG, UNREADABLE = 2.0, -1.5, -2.0

_FORM = re.compile(r"\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*", re.DOTALL)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def tagged_answer(response: str) -> str | None:
    """Return the text between the answer tags; None unless each tag stands once, in order, with no text around."""
    match = _FORM.fullmatch(response)
    if match is None or any(response.count(tag) != 1 for tag in _TAGS):
        return None
    return match.group(2).strip()


def rule_reward(response: str, right: bool | None) -> float:
    """Return format + answer reward; `right` is None where the answer cannot be read."""
    if tagged_answer(response) is None:
        return -FORMAT_REWARD + UNREADABLE
    return FORMAT_REWARD + (UNREADABLE if right is None else RIGHT if right else WRONG)
