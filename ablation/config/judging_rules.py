"""Changes to the rules of judging, each with its date, the latest last.

A change of the rules is a change of the analysis plan, so the history of a study's plans counts these lines
(`ablation.store.analysis_history`). A change that gives another verdict or interval for the same numbers needs a line
here; `tests/ablation/judge/test_rules.py` fails until then.
"""

RULES = (
    "2026-11-22: The allowance for unseen differences counts only clusters whose items hardly differ: narrower "
    "intervals. Made in a commit after the demo's first sample report.",
    "2026-11-22: There is no allowance for unseen differences if the two models are equal in every seed: narrower "
    "intervals. Made in a commit after the demo's first sample report.",
    "2026-11-23: An item that is a cluster of its own counts as changed in proportion to its mean difference over "
    "seeds, and fully from a tenth of the range on: fewer comparisons are equivalent.",
    "2026-11-23: Runs that have a single value, without items, get no correction for rounding: narrower intervals.",
    "2026-11-23: If more than a tenth of the variants are far more or far less stable than the rest, all variants form "
    "the prior of the seed variance: fewer verdicts.",
    "2026-11-23: The prior of the seed variance has up to 10 degrees of freedom with five or more seeds, and up to 5 "
    "with four: more verdicts.",
    "2026-11-23: At alpha 0.05, the verdict equivalent uses the 90% interval (two one-sided tests at level alpha): "
    "more verdicts.",
    "2026-11-23: Comparisons of fewer than 30 items scored 0 or 1 must also pass an exact test: fewer verdicts.",
    "2026-11-24: If all variants form the prior and there are at least five seeds, the variance of an unstable variant "
    "counts in the prior only up to the bound from which a variant is called unstable: more verdicts. Made after the "
    "demo's results were seen.",
    "2026-11-25: With few clusters of items, the term that is subtracted in the items' variance counts with the normal "
    "quantile instead of Student's t: wider intervals. Made after results of demonstrations were seen.",
    "2026-11-25: Comparisons of runs that have a single value are undecided if the difference is the same in every "
    "seed: fewer verdicts.",
    "2026-11-27: Runs that have a single value, and the same one in all seeds of a variant up to rounding, count as "
    "one run: fewer verdicts.",
    "2026-11-27: In imported runs and in evaluations, seeds of a variant that are equal on every item count as one "
    "run: wider intervals. If that is so for both variants, also in a planned study, the comparison is undecided: "
    "fewer verdicts.",
    "2026-11-27: For items scored right or wrong, the verdicts better and worse use exact sign flips for any number of "
    "items and make no allowance for unseen differences: more verdicts if few items are right or few are wrong. If "
    "interval and p disagree, p decides, and the interval ends at 0.",
    "2026-11-27: `ablation diff`, which corrects for no other comparisons, uses the seed variance of its own pair "
    "only: wider intervals with few seeds.",
    "2026-11-27: With `error: fdr`, comparisons that are neither better nor worse also get a corrected interval, at "
    "the level that one further verdict would have; it contains 0.",
    "2026-11-27: An interim analysis gives no verdict, equivalent included, if the variation between runs is unknown: "
    "fewer verdicts. Comparisons of independent runs at different interim analyses are correlated through the runs "
    "that they share, whatever the order of the variants.",
    "2026-11-28: The random draws of the max-t correction depend neither on the order of variants nor on rounding: "
    "p and corrected intervals change in the third digit.",
    "2026-11-29: Without a stated margin, `compare` calls evaluations equivalent only if every value is 0 or 1. A "
    "metric with a well-known name gets its usual direction: a smaller loss is better, for example.",
    "2026-11-29: Items scored 0 or 100 count as right or wrong, as items scored 0 or 1 do, so the exact tests judge "
    "them, too.",
    "2026-11-29: The variants that `explain` writes between two others do not contribute to the prior of the seed "
    "variance: different intervals in studies that have such variants.",
    "2026-11-29: With two or more clusters of items, the degrees of freedom come from the clusters, and the exact "
    "sign-flip test applies from sixteen clusters on: fewer verdicts with two to four clusters, more with five to "
    "fifteen.",
    "2026-11-29: For values without bounds whose differences are frequent and similar in size, the verdicts better and "
    "worse make no allowance for unseen differences: more verdicts for skewed values (losses, lengths, latencies). "
    "Values from 0 to 100 count as bounded.",
    "2026-11-29: If the t quantiles of seeds and items are close, p uses their weighted mean instead of the mean of "
    "their squares: more verdicts with few seeds.",
    "2026-11-29: With 15 or more past runs in a known order, `nightly` predicts from their trend and autocorrelation "
    "and tests the mean of the reruns at 2%: fewer false alarms if nights drift or carry over, and fewer small drops "
    "found.",
    "2026-11-29: A gate passes the verdict better only if non-inferiority is also shown with the full allowance for "
    "unseen items: fewer passes for few items with unbounded values.",
    "2026-11-30: For values without bounds, the verdicts better and worse make no allowance for unseen differences "
    "from 200 items or clusters on, and p is at least that of Hall's test for skewed values, which replaces the "
    "bootstrap-t: more verdicts for small differences of many items, fewer for skewed differences.",
)
RECORDED = 2  # number of rules that were in force before histories counted them
FOLLOWED_RESULTS = tuple(rule for rule in RULES if "Made " in rule)
