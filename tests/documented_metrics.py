"""The metrics that the pages define, and which of them a grid at scale smoke cannot log."""

import re

from tests.repository import ROOT

DOCS = ROOT / "docs/studies/metrics"
PAGES = {
    "debias.md": ("debias",),
    "policy.md": ("innovations", "gspo"),
    "gad.md": ("gad",),
    "demonstrations.md": ("demonstrations",),
}
NOT_AT_SCALE_SMOKE = {
    "memory/halvings": "no device runs out of memory",
    "memory/micro_batch": "no device runs out of memory",
    "critic/same_text_diff": "no untrained student says what its teacher says",
    "rouge_l": "of files only",
    "rows/duplicates": "of files only",
    "rows/too_long": "of files only",
    "rows/held_out": "of files only",
    "reward/function": "no variant has a reward of its own",
    "reward_model/correlation": "the few held-out responses may all have one reward",
    "reward_model/pair_accuracy": "the few held-out responses may all be wrong",
}


def documented(page: str) -> set[str]:
    """The names in the first column of the tables that are headed `metric`."""
    names: set[str] = set()
    inside = False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[1] == "metric":
            inside = True
        elif inside:
            names |= set(re.findall(r"`([^`]+)`", cells[1]))
    return names


def fits(name: str, pattern: str) -> bool:
    """Whether a logged name is the one that a page defines."""
    pattern = pattern if "/" in pattern else f"<protocol>/<subset>/{pattern}"
    parts = re.split(r"<\w+>", pattern)
    return re.fullmatch(r"[^/]+".join(map(re.escape, parts)), name) is not None


def differences(logged: dict[str, set[str]]) -> list[str]:
    """What the pages and the names that each study logged do not have in common, in words."""
    common = {name for name in documented("debias.md") if name.startswith("memory/")}
    found = []
    for page, studies in PAGES.items():
        names, patterns = set().union(*(logged[study] for study in studies)), documented(page)
        undefined = {name for name in names if not any(fits(name, pattern) for pattern in patterns | common)}
        never = {pattern for pattern in patterns if not any(fits(name, pattern) for name in names)}
        found += [f"{page} does not define {name}" for name in sorted(undefined)]
        found += [f"{page} defines {name}, which is never logged" for name in sorted(never - NOT_AT_SCALE_SMOKE.keys())]
    return found
