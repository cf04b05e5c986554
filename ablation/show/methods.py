"""The methods of a study in words: the analysis plan, its changes, and a paragraph for a paper (`methods.md`).

Formulas are in docs/explanation/statistics.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablation.config.judging_rules import FOLLOWED_RESULTS, RECORDED, RULES
from ablation.config.study_schema import Analysis, Target
from ablation.config.variant_tree import compared
from ablation.contract.display import listed
from ablation.contract.numbers import confidence, percent, plural, stated
from ablation.contract.rows import LOGGED
from ablation.judge.significance import seeds_for
from ablation.show.tables import means_over
from ablation.show.text import describe_value, markdown
from ablation.store.analysis_history import StoredStudy, seeds_added
from ablation.store.database import ENDED_WELL, Store

REFERENCES = {
    "smyth": "Smyth, G. K. (2004). Linear models and empirical Bayes methods for assessing differential expression in "
    "microarray experiments. Statistical Applications in Genetics and Molecular Biology 3, article 3.",
    "bell": "Bell, R. M. and McCaffrey, D. F. (2002). Bias reduction in standard errors for linear regression with "
    "multi-stage samples. Survey Methodology 28, 169-181.",
    "imbens": "Imbens, G. W. and Kolesár, M. (2016). Robust standard errors in small samples: some practical advice. "
    "Review of Economics and Statistics 98, 701-712.",
    "owen": "Owen, A. B. (2007). The pigeonhole bootstrap. Annals of Applied Statistics 1, 386-411.",
    "cochran": "Cochran, W. G. and Cox, G. M. (1957). Experimental Designs, 2nd edition, section 4.14. Wiley.",
    "banerjee": "Banerjee, S. K. (1960). Approximate confidence interval for linear functions of means of k "
    "populations when the population variances are not equal. Sankhya 22, 357-358.",
    "hanley": "Hanley, J. A. and Lippman-Hand, A. (1983). If nothing goes wrong, is everything all right? "
    "Journal of the American Medical Association 249, 1743-1745.",
    "louis": "Louis, T. A. (1984). Estimating a population of parameter values using Bayes and empirical Bayes "
    "methods. Journal of the American Statistical Association 79, 393-398.",
    "westfall": "Westfall, P. H. and Young, S. S. (1993). Resampling-Based Multiple Testing. Wiley.",
    "romano": "Romano, J. P. and Wolf, M. (2005). Exact and approximate stepdown methods for multiple hypothesis "
    "testing. Journal of the American Statistical Association 100, 94-108.",
    "benjamini": "Benjamini, Y. and Hochberg, Y. (1995). Controlling the false discovery rate. Journal of the Royal "
    "Statistical Society B 57, 289-300.",
    "yekutieli": "Benjamini, Y. and Yekutieli, D. (2005). False discovery rate-adjusted multiple confidence intervals. "
    "Journal of the American Statistical Association 100, 71-81.",
    "holm": "Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of "
    "Statistics 6, 65-70.",
    "clopper": "Clopper, C. J. and Pearson, E. S. (1934). The use of confidence or fiducial limits illustrated in the "
    "case of the binomial. Biometrika 26, 404-413.",
}
CLUSTERS = """SELECT count(DISTINCT (i.subset, i.item)), count(DISTINCT i.cluster)
FROM finals f JOIN items i USING (key)
WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset)"""


@dataclass
class _Cited:
    """Numbers of references, in the order in which the text cites them; a call returns a citation such as `[1, 2]`."""

    names: list[str] = field(default_factory=list)

    def __call__(self, *names: str) -> str:
        self.names += [name for name in names if name not in self.names]
        return f"[{', '.join(str(self.names.index(name) + 1) for name in names)}]"


def methods(store: Store, study: str) -> str:
    """Return a methods paragraph on a study as Markdown, with the cited references."""
    definition, cite = store.study(study), _Cited()
    pairs = compared(
        definition.analysis.comparisons, {variant.name: variant.parent for variant in store.variants(study)}
    )
    sentences = [
        *_design(store, definition, len(pairs)),
        *_estimate(definition.analysis, cite),
        *_decision(definition.analysis, len(pairs), cite),
        *_caveats(store, definition),
    ]
    references = [f"{number}. {REFERENCES[name]}" for number, name in enumerate(cite.names, 1)]
    text = " ".join(sentences).replace("<", r"\<")  # names and settings are not HTML
    return "\n".join([f"# Methods: {markdown(definition.title)}", "", text, "", *references]) + "\n"


def _design(store: Store, definition: StoredStudy, pairs: int) -> list[str]:
    analysis, study = definition.analysis, definition.name
    variants = store.variants(study)
    against = {"parent": "each with the variant that it changes", "root": "each with the root that it descends from"}
    how = "in the pairs that the plan lists"
    if isinstance(analysis.comparisons, str):
        how = against[analysis.comparisons]
    runs = store.runs(study)
    seeds = sorted({int(count) for count in runs.groupby("variant")["seed"].nunique()}) or [0]
    unit = "seed" if definition.imported else "training seed"
    same = "" if analysis.seeds == "independent" else ", the same for all,"
    per = f"{plural(seeds[0], unit)}{same}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} {unit}s"
    where = [study, analysis.protocol, analysis.value, analysis.subsets]
    [(items, clusters)] = store.rows(CLUSTERS, where)[1]
    counts = dict(store.item_counts(study).itertuples(index=False))
    by_subset = ", ".join(f"{subset} {counts[subset]:,}" for subset in analysis.subsets if subset in counts)
    asked = f"on the same {items:,} items" if items else "on items that have not been evaluated yet"
    if analysis.protocol == LOGGED:
        asked, clusters = "by the metrics that it logged (no item scores)", 0
    scale = "" if definition.imported else f" (scale {store.meta()['scale']})"
    return [
        f"We compared {plural(len(variants), 'variant')}{scale}, {how}: {plural(pairs, 'comparison')}.",
        f"Each was {'imported' if definition.imported else 'trained'} with {per} and evaluated {asked}"
        + (f" ({by_subset})" if len(analysis.subsets) > 1 and by_subset else "")
        + (f" in {plural(int(clusters), 'cluster')} of correlated items." if clusters else "."),
        f"The outcome was {primary_in_words(analysis)}.",
        *filter(None, [means_over(definition, variants, analysis.protocol)]),
        *_measured([variant.resolved.get("evaluate") for variant in variants]),
        *([definition.imported] if definition.imported else []),
    ]


def _measured(settings: Sequence[object]) -> list[str]:
    """Return a sentence on the evaluation settings that all variants share, in a list; empty if they share none."""
    evaluations = [each for each in settings if isinstance(each, Mapping)]
    if not evaluations or len(evaluations) < len(settings):
        return []
    shared = {
        key: value
        for key, value in evaluations[0].items()
        if isinstance(value, int | float | str) and all(each.get(key) == value for each in evaluations)
    }
    listed = ", ".join(f"{key} {describe_value(value)}" for key, value in shared.items())
    return [f"Settings of the evaluation (`evaluate`): {listed}."] if listed else []


def _estimate(analysis: Analysis, cite: _Cited) -> list[str]:
    effect, mean = "mean over seeds of the difference between two runs with the same seed", "the mean over seeds"
    if analysis.seeds == "independent":
        effect, mean = "difference between two means over independent runs", "this difference over runs"
    moderated = ", moderated by the variance of the study's other variants if there are at least three seeds and four "
    moderated = f"{moderated}variants (empirical Bayes {cite('smyth')})" if _is_moderated(analysis) else ""
    sums = "with bias-reduced sums and their degrees of freedom"
    noise, test = f"Its variance is that of {mean}{moderated}.", "Intervals and p-values are those of a t test."
    if analysis.claim == "checkpoints":
        noise = (
            "Verdicts are about these checkpoints and not about other seeds, so its variance is that due to the items, "
            f"estimated from each item cluster's contribution, {sums} {cite('bell', 'imbens')}."
        )
        test = "A p-value is at least those of a t test and of an exact sign-flip test over the clusters."
    elif analysis.protocol != LOGGED:
        noise = (
            f"Its variance has two parts. One is the variance of {mean}{moderated}. The other is the variance due to "
            f"the items, estimated from the covariance between seeds of each item cluster's contribution, {sums} "
            f"{cite('bell', 'imbens')}, so that the seed-by-item residual is counted only once {cite('owen')}."
        )
    items = "" if analysis.protocol == LOGGED else ", on the same items"
    sentences = [f"The effect of a change is the {effect}{items}.", noise]
    if isinstance(analysis.direction, Target):
        sentences.append(
            "A noisy mean makes the distance from the target too large on average, so the noise between "
            f"seeds was subtracted from the centre of intervals {cite('louis')}."
        )
    if analysis.claim != "checkpoints" and analysis.protocol != LOGGED:
        test = (
            f"Intervals use Cochran and Cox's critical value for a sum of two variances {cite('cochran')}. A p-value "
            "is the smallest level at which this rule excludes a zero effect; if the critical values of seeds and "
            f"items are far apart, Banerjee's more conservative rule replaces it {cite('banerjee')}. Intervals allow "
            f"for clusters of items that would have changed but were not sampled (rule of three {cite('hanley')}). "
            "P-values do the same or, if items are right or wrong, are at least those of an exact sign-flip test."
        )
    return [*sentences, test]


def _is_moderated(analysis: Analysis) -> bool:
    return analysis.variance == "moderated" and analysis.claim != "checkpoints"


def _decision(analysis: Analysis, pairs: int, cite: _Cited) -> list[str]:
    sentences, p = [], "p"
    if pairs > 1:
        sentences, p = [_correction(analysis, cite)], "adjusted p"
    equivalent = "; no margin was stated, so nothing is called equivalent"
    if analysis.margin is not None:
        equivalent = (
            f", and equivalent if its {confidence(analysis.alpha, 2)} interval lies within ±{stated(analysis.margin)}"
        )
        if analysis.claim != "checkpoints":
            equivalent += (
                f" and rests on at least {_enough_seeds(analysis)} seeds, since fewer cannot rule out that more than "
                f"{percent(analysis.rare)} of seeds behave differently {cite('clopper')}"
            )
    sentences += [
        f"A change is called better or worse if its {p} is at most {stated(analysis.alpha)}{equivalent}.",
        "Otherwise it is undecided. Whatever its p, it is confounded if more than one factor "
        "changed; invalid if a run failed, diverged or broke a health rule of severity abort, or if "
        "seeds or items do not match; and not run if a planned run has not ended. Nothing was "
        "imputed.",
    ]
    if analysis.interim_analyses:
        interims = ", ".join(map(str, analysis.interim_analyses))
        sentences.append(
            f"Seeds could be added while a change was undecided, with interim analyses at {interims} seeds, each with"
            " its share of the error."
        )
    return sentences


def _enough_seeds(analysis: Analysis) -> int:
    return max(seeds_for(analysis.rare, analysis.alpha), 2)


def _correction(analysis: Analysis, cite: _Cited) -> str:
    if analysis.error == "fdr":
        return (
            "P-values were adjusted for all comparisons of the study by Benjamini and Hochberg's "
            f"correction {cite('benjamini')}, at a false discovery rate of {stated(analysis.alpha)}; the "
            "corrected intervals of the significant changes control the false coverage rate at the same level "
            f"{cite('yekutieli')}."
        )
    if analysis.correction == "max-t":
        corrected = f"step-down max-t correction, which accounts for shared runs {cite('westfall', 'romano')}"
    else:
        corrected = f"Holm's correction {cite('holm')}"
    return (
        f"P-values were adjusted for all comparisons of the study by {corrected}, with a familywise error rate of"
        f" {stated(analysis.alpha)}."
    )


def _caveats(store: Store, definition: StoredStudy) -> list[str]:
    states = store.runs(definition.name)["state"]
    sentences = [f"{int(states.isin(ENDED_WELL).sum())} of {plural(len(states), 'run')} succeeded."]
    if len(definition.analysis_history) > 1:
        sentences.append(
            "The analysis plan, its seeds or the rules of judging were changed after results existed, so "
            "the verdicts are exploratory."
        )
    else:
        since = "has not changed since the first results" if definition.analysis_history else "has no results yet"
        sentences.append(f"The analysis plan (digest {definition.analysis_digest}) {since}.")
    sentences.append(
        "These rules of judging were adopted after results of the tracker's own demo were known: "
        f"{' '.join(FOLLOWED_RESULTS)}"
    )
    return sentences


def could_help(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the changes between two entries of a plan's history that could favour a verdict, in words."""
    before, after = old["analysis"], new["analysis"]
    keys = [(k, before.get(k), after.get(k)) for k in sorted({*before, *after}) if before.get(k) != after.get(k)]
    gone = [pair for pair in old.get("comparisons", []) if pair not in new.get("comparisons", [])]
    grown: dict[tuple[int, int], list[str]] = {}
    for name, numbers in seeds_added([old, new]).items():
        grown.setdefault(numbers, []).append(name)
    return [
        *(f"{key} {describe_value(before)} → {describe_value(after)}" for key, before, after in keys),
        *(f"{child} is no longer compared with {parent}" for child, parent in gone),
        *(
            f"{listed(names)} went from {before} to {after} seeds without planned interim analyses"
            for (before, after), names in grown.items()
        ),
    ]


def rules_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rules of judging that changed between two entries of a plan's history, each with a date."""
    return RULES[old.get("rules", RECORDED) : new.get("rules", RECORDED)]


def standing_together(comparisons: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return (parent, children) for each parent with several children that are better or worse than the parent."""
    children: dict[str, list[str]] = {}
    for record in comparisons:
        if record["verdict"] in ("better", "worse"):
            children.setdefault(record["parent"], []).append(record["child"])
    return [(parent, names) for parent, names in children.items() if len(names) > 1]


def primary_in_words(analysis: Analysis) -> str:
    """Return a phrase for the primary metric and its direction."""
    subsets = analysis.subsets
    several = f", averaged over subsets {', '.join(subsets[:-1])} and {subsets[-1]}"
    over = several if len(subsets) > 1 else f" on {subsets[0]}"
    direction, value, protocol = analysis.direction, analysis.named, analysis.protocol
    if protocol == LOGGED:
        named = f"the final logged value of {' and '.join(analysis.subsets)} (no item scores)"
        if isinstance(direction, Target):
            return f"the distance between {named} and {stated(direction.target)}; smaller is better"
        return f"{named}; {'larger' if direction == 'max' else 'smaller'} is better"
    if isinstance(direction, Target):
        return (
            f"the distance of {value} from {stated(direction.target)} (protocol: {protocol}){over}; smaller is better"
        )
    return f"{value} (protocol: {protocol}){over}; {'larger' if direction == 'max' else 'smaller'} is better"


def plan_in_words(analysis: Analysis) -> str:
    """Return the analysis plan as a paragraph."""
    interims = ""
    if analysis.interim_analyses:
        counts = ", ".join(map(str, analysis.interim_analyses))
        interims = f" Seeds may be added while a change is undecided, with interim analyses at {counts} seeds."
    pairs = analysis.comparisons if isinstance(analysis.comparisons, list) else []
    listed = ", ".join(f"{child} with {parent}" for child, parent in pairs)
    against = f"The comparisons are {listed}" if pairs else f"Every variant is compared with its {analysis.comparisons}"
    shared = {"seeds": analysis.seeds != "independent", "items": analysis.protocol != LOGGED}
    if any(shared.values()):
        against += f", on the same {' and '.join(name for name, same in shared.items() if same)}"
    if analysis.claim == "checkpoints":
        against += "; verdicts are about these checkpoints and not about other seeds"
    named = {"max-t": "max-t correction, which accounts for shared runs and items", "holm": "Holm's correction"}
    moderated = " The variance between seeds is moderated by the variance of the study's other variants."
    enough = "No margin was stated, so nothing is “equivalent”."
    if analysis.margin is not None:
        enough = f"A difference within ±{analysis.margin} does not matter."
        if analysis.claim != "checkpoints":
            enough += f" “Equivalent” needs at least {_enough_seeds(analysis)} seeds."
    held = (
        "Among the changes called “better” or “worse”, the expected share of false verdicts is at "
        f"most {analysis.alpha} (false discovery rate, Benjamini-Hochberg correction). The same holds for the expected "
        "share of their corrected intervals that miss the true effect."
        if analysis.error == "fdr"
        else f"The chance of any false “better” or “worse” in the study is at most {analysis.alpha} "
        f"({named[analysis.correction]})."
    )
    return (
        f"The primary metric is {primary_in_words(analysis)}. {against}. {enough} {held}"
        f"{moderated if _is_moderated(analysis) else ''}{interims}"
    )
