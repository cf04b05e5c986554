"""Whether a study's stages may start while the project's files differ from their commit (`dirty_tree`)."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from ablation.contract.errors import ConfigError
from ablation.plan.plan import Plan
from ablation.plan.retry import States, pending

_SHOWN = 3


def check_trees(plan: Plan, root: Path, states: States) -> list[str]:
    """Return a warning for each study that wants one (`warn`) and has stages to run from the files below `root`.

    Stages that have ended and that `snakemake -F` or `-R` runs again are not known yet and do not count.
    Raises ConfigError for a study that wants clean trees only (`refuse`).
    """
    asked = {name: study.written.dirty_tree for name, study in plan.studies.items()}
    starting = {name: len(pending(plan, states, name)) for name, policy in asked.items() if policy != "allow"}
    if not any(starting.values()):
        return []
    problem, remedy = _problem(root, outside=(plan.settings.results, plan.settings.reports))
    warnings = []
    for name, count in starting.items():
        if not (problem and count):
            continue
        study = plan.studies[name]
        if asked[name] == "refuse":
            refused = f"{problem}, so the study {name} does not start its {count} stage{'s' if count > 1 else ''}"
            raise ConfigError(study.file, "dirty_tree", "refuse", refused, f"{remedy}, or set `dirty_tree: warn`")
        warnings.append(f"{name}: {problem}; no commit will hold what made these results ({study.file}: dirty_tree)")
    return warnings


def dirty_files(root: Path, outside: Iterable[Path] = ()) -> list[str] | None:
    """Return changed and untracked files below `root`, sorted; None where it is not in a git repository.

    Files that git ignores do not count, nor those in the folders `outside`.
    """
    base = root.resolve()
    folders = [folder.resolve() for folder in outside]
    excluded = [f":(exclude,literal){f.relative_to(base)}" for f in folders if f.is_relative_to(base) and f != base]
    command = ["git", "-C", str(base), "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"]
    try:
        done = subprocess.run(
            [*command, "--", ".", *excluded], capture_output=True, text=True, errors="replace", check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return sorted(entry[3:] for entry in done.stdout.split("\0") if entry)


def _problem(root: Path, outside: Iterable[Path]) -> tuple[str, str]:
    """Return how the tree differs from a commit, and what to do; nothing if it does not."""
    files = dirty_files(root, outside)
    if files is None:
        return f"{root} is not in a git repository", "put it into one"
    more = f" and {len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
    return (f"uncommitted files ({', '.join(files[:_SHOWN])}{more})" if files else ""), "commit or remove them"
