"""Changes to the rules of judging, each with its date; the latest change comes last.

A change that gives another verdict or interval for the same numbers needs a line here, which
`tests/ablation/judge/test_rules.py` enforces. Such a change also changes every analysis plan, so the history of a
study's plans records the number of these lines (`ablation.store.analysis_history`).
"""

RULES = (
    "2026-11-22: The allowance for unseen differences counts only clusters whose items hardly differ, so intervals "
    "are narrower. The change was made in a commit after the demo's first sample report.",
    "2026-11-22: There is no allowance for unseen differences if the two models are equal in every seed, so intervals "
    "are narrower. The change was made in a commit after the demo's first sample report.",
    "2026-11-23: An item that is a cluster of its own counts as changed in proportion to its mean difference over "
    "seeds, and counts fully if this difference is at least a tenth of the range. As a result, fewer comparisons are "
    "equivalent.",
    "2026-11-23: Runs that have a single value, without items, get no correction for rounding, so their intervals are "
    "narrower.",
    "2026-11-23: If more than a tenth of the variants are far more or far less stable than the rest, all variants "
    "contribute to the prior of the seed variance. This gives fewer verdicts.",
    "2026-11-23: The prior of the seed variance has up to 10 degrees of freedom with five or more seeds, and up to 5 "
    "with four. This gives more verdicts.",
    "2026-11-23: At alpha 0.05, the verdict `equivalent` uses the 90% interval (two one-sided tests at level alpha). "
    "This gives more verdicts.",
    "2026-11-23: Comparisons on fewer than 30 items scored 0 or 1 must also pass an exact test. This gives fewer "
    "verdicts.",
    "2026-11-24: If all variants contribute to the prior and there are at least five seeds, the variance of an "
    "unstable variant is capped at the bound above which a variant counts as unstable. This gives more verdicts. The "
    "change was made after the demo's results were seen.",
    "2026-11-25: With few clusters of items, the mean square that is subtracted to get the variance over items is "
    "multiplied by the normal quantile instead of Student's t, so intervals are wider. The change was made after "
    "results of demonstrations were seen.",
    "2026-11-25: Comparisons of runs that have a single value are undecided if the difference is the same in every "
    "seed. This gives fewer verdicts.",
    "2026-11-27: If runs have a single value, and this value is equal, up to rounding, in all seeds of a variant, the "
    "seeds count as one run. This gives fewer verdicts.",
    "2026-11-27: In imported runs and in evaluations, seeds of a variant that are equal on every item count as one "
    "run, so intervals are wider. If the seeds of both variants are equal on every item, also in a planned study, the "
    "comparison is undecided. This gives fewer verdicts.",
    "2026-11-27: For items scored right or wrong, the verdicts `better` and `worse` come from exact sign-flip "
    "tests, whatever the number of items, with no allowance for unseen differences. This gives more verdicts if few "
    "items are right or few are wrong. If the interval and p disagree, p decides, and the interval ends at 0.",
    "2026-11-27: `ablation diff`, which does not correct for other comparisons, uses only the seed variance of the "
    "pair that it compares, so intervals are wider with few seeds.",
    "2026-11-27: With `error: fdr`, comparisons that are neither better nor worse also get a corrected interval, at "
    "the level that would apply if one more comparison were called better or worse. This interval contains 0.",
    "2026-11-27: An interim analysis gives no verdict, not even `equivalent`, if the variation between runs is "
    "unknown. This gives fewer verdicts. Comparisons of independent runs at different interim analyses count as "
    "correlated through the runs that they share, whatever the order of the variants.",
    "2026-11-28: The random draws of the max-t correction depend neither on the order of variants nor on rounding, so "
    "p and corrected intervals change in the third digit.",
    "2026-11-29: Without a stated margin, `compare` calls evaluations equivalent only if every value is 0 or 1. A "
    "metric with a well-known name gets its usual direction. For example, a smaller loss is better.",
    "2026-11-29: Items scored 0 or 100 count as right or wrong, like items scored 0 or 1, so the exact tests also "
    "judge them.",
    "2026-11-29: The variants that `explain` writes between two others do not contribute to the prior of the seed "
    "variance, so intervals change in studies that have such variants.",
    "2026-11-29: With two or more clusters of items, the degrees of freedom come from the clusters, and the exact "
    "sign-flip test applies to sixteen or more clusters. This gives fewer verdicts with two to four clusters, and "
    "more with five to fifteen.",
    "2026-11-29: For values without bounds, if two variants differ on many items and by similar amounts, the verdicts "
    "`better` and `worse` make no allowance for unseen differences. This gives more verdicts for skewed values, such "
    "as losses, lengths and latencies. Values from 0 to 100 count as bounded.",
    "2026-11-29: If the t quantiles of seeds and items are close, p uses their weighted mean instead of their "
    "weighted root mean square. This gives more verdicts with few seeds.",
    "2026-11-29: With 15 or more past runs in a known order, `nightly` predicts from their trend and autocorrelation, "
    "and tests the mean of the reruns at 2%. This gives fewer false alarms if the values drift or are correlated from "
    "night to night, but finds fewer small drops.",
    "2026-11-29: A gate passes the verdict `better` only if non-inferiority is also shown with the full allowance for "
    "unseen items. As a result, fewer comparisons with few items and unbounded values pass.",
    "2026-11-30: For values without bounds, the verdicts `better` and `worse` make no allowance for unseen "
    "differences if each subset has at least 200 items or clusters. For skewed values, p is at least the p-value of "
    "Hall's test, which replaces the bootstrap-t. This gives more verdicts if many items differ a little, and "
    "fewer for skewed differences.",
)
RECORDED = 2  # number of rules that were in force before histories counted them
FOLLOWED_RESULTS = tuple(rule for rule in RULES if "was made " in rule)
