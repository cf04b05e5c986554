"""Changes of the rules of judging, each with its date, the latest last.

Results judged before and after a change are judged by different plans, so a study's history of plans counts these lines
(`ablation.store.analysis_history`). A change that gives another verdict or interval for the same numbers needs a line
here; `tests/ablation/judge/test_rules.py` fails until then.
"""

RULES = (
    "2026-11-22: What went unseen is asked only of clusters whose items hardly differ: narrower intervals. Made "
    "in a commit after the demo's first sample report.",
    "2026-11-22: Nothing went unseen where the models that were measured are equal in every seed: narrower "
    "intervals. Made in a commit after the demo's first sample report.",
    "2026-11-23: An item alone counts as differing by its mean over seeds, in tenths of the range: fewer equivalent.",
    "2026-11-23: A run of one value has no rounding step: its intervals are narrower.",
    "2026-11-23: Where more than a tenth of the variants are far more or less stable than the rest, all of them form "
    "the prior of the seeds' noise: fewer verdicts.",
    "2026-11-23: The prior counts for up to 10 degrees of freedom from five seeds on, for 5 with four: more verdicts.",
    "2026-11-23: Equivalent rests on the 90% interval at alpha 0.05 (two one-sided tests at alpha): more verdicts.",
    "2026-11-23: Fewer than 30 items of 0 or 1 are judged by an exact test as well: fewer verdicts.",
    "2026-11-24: Where all variants form the prior, from five seeds on a variance counts in their mean up to the bound "
    "at which it is called unstable: more verdicts. Made after the demo's results were seen.",
    "2026-11-25: What is subtracted in the variance of few clusters of items counts by the normal quantile: wider "
    "intervals. Made after results of demonstrations were seen.",
    "2026-11-25: Runs of one value whose difference is the same in every seed are undecided: fewer verdicts.",
    "2026-11-27: Runs of one value, equal in all seeds of a variant but for rounding, are one run: fewer verdicts.",
    "2026-11-27: Seeds of one variant of imported runs or evaluations that are equal on every item count as one run: "
    "wider intervals. Where both are such, in a planned study too, the comparison is undecided: fewer verdicts.",
    "2026-11-27: Better and worse of right or wrong items rest on exact sign flips at every number of items, and ask "
    "nothing of what went unseen: more verdicts of rare and capped items. Intervals end at 0 where p decides.",
    "2026-11-27: A pair that is not corrected for others (diff) has its own variance: wider intervals of few seeds.",
    "2026-11-27: With a false discovery rate, comparisons that are not shown to be better or worse have a corrected "
    "interval, too, at the level of one further verdict: it holds 0.",
    "2026-11-27: An interim analysis at which it is not known how runs vary says nothing, not equivalent either: fewer "
    "verdicts. Comparisons of independent runs that stand at different interim analyses are correlated by the runs "
    "that they share, in any order of the variants.",
    "2026-11-28: The random draws of the max-t correction depend neither on the order of variants nor on rounding: "
    "p and corrected intervals move in their third digit.",
    "2026-11-29: `compare` of evaluations without a stated margin calls nothing equivalent, unless every value is 0 or "
    "1. A metric whose name is a common one has that name's direction: a loss is better if it is smaller.",
    "2026-11-29: Items of 0 and 100 are right or wrong as those of 0 and 1 are: the exact tests judge them, too.",
    "2026-11-29: The variants that `explain` writes between two others do not form the prior of the seeds' noise: "
    "other intervals in a study that has them.",
    "2026-11-29: From two clusters of items on, their number gives the degrees of freedom, and an exact test of sign "
    "flips is asked from sixteen on: fewer verdicts with two to four clusters, more with five to fifteen.",
    "2026-11-29: Of values without bounds whose differences are common and even, better and worse ask nothing of what "
    "went unseen: more verdicts of skewed values (losses, lengths, latencies). Values of 0 to 100 are bounded.",
    "2026-11-29: p weighs the quantiles of seeds and items, in place of their squares, where they are not far apart: "
    "more verdicts of few seeds.",
)
RECORDED = 2  # of these were in force before histories counted them
FOLLOWED_RESULTS = tuple(rule for rule in RULES if "Made " in rule)
