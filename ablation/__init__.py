"""The tracker: variants, plan, store, verdicts, tables. It never imports torch, transformers, snakemake or trainers.

From Python: `ablation.open(results)`, `ablation.compare(a, b)`, `ablation.leaderboard({name: a, ...})`,
`ablation.judge(child, parent)` (docs/reference/python.md). They are imported when they are used, so that `import
ablation` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablation.api import Leaderboard, Results, TrackerError, Verdict, compare, judge, leaderboard, open

__all__ = ["Leaderboard", "Results", "TrackerError", "Verdict", "compare", "judge", "leaderboard", "open"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("ablation.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
