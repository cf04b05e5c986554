"""The scope of a verdict: seeds may behave differently that were not among those run.

share_otherwise(seeds, alpha) -> float       share of seeds that may behave differently from all that were run
seeds_for(rare, alpha) -> int                seeds that leave a smaller share than `rare`
within_scope(word, why, estimate, analysis)  the word where it may be said, and what it is said of
"""

from math import ceil, log

from ablation.config.study_schema import Analysis
from ablation.judge.statistics import Estimate

DECIDED = ("better", "worse", "equivalent")


def share_otherwise(seeds: int, alpha: float) -> float:
    """Return the share of seeds that may behave differently although none of those run did, at confidence 1 - alpha.

    If a share q of seeds does (a collapse, an early stop), none of S does with probability (1 - q)^S; the bound is the
    q for which that is alpha (Clopper and Pearson, 1934, Biometrika 26, 404-413). The spread of the seeds that were run
    does not show it.
    """
    return 1 - float(alpha ** (1 / seeds))


def seeds_for(rare: float, alpha: float) -> int:
    """Return how many seeds leave a share of at most `rare`."""
    return ceil(log(alpha) / log(1 - rare) - 1e-9)


def within_scope(word: str, why: str, estimate: Estimate, analysis: Analysis) -> tuple[str, str]:
    """Return the word and its reason with what it is said of; `equivalent` needs seeds enough, else it is undecided."""
    if estimate.seeds < 2:
        return word, why
    share = share_otherwise(estimate.seeds, analysis.alpha)
    if word == "equivalent" and share > analysis.rare:
        needed = seeds_for(analysis.rare, analysis.alpha)
        problem = f"but of {estimate.seeds} seeds alone, which leave {share:.0%} of seeds that may behave otherwise"
        word, why = "undecided", f"{why}, {problem}; {needed} seeds would leave at most {analysis.rare:.0%}"
    elif word in DECIDED:
        why = f"{why}; in at least {1 - share:.0%} of seeds, as {estimate.seeds} can tell"
    return word, why
