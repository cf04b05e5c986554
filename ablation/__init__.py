"""The ablation tracker. It never imports torch, transformers, snakemake or trainers.

From Python: `ablation.open(results)`, `ablation.compare(a, b)`, `ablation.leaderboard({name: a, ...})` and
`ablation.judge(child, parent)` (docs/reference/python.md). These are imported on first use, so that `import ablation`
is fast.
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
