"""Interim analyses, families, paths and pairs of studies in memory: which verdict, and by which numbers."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from ablation.judge import measurements as pairing
from ablation.judge import statistics
from ablation.judge.budget import predict
from ablation.judge.comparisons import joint_steps, judge_all_pairs, judge_comparisons, may_differ
from ablation.judge.gate import answers, not_worse
from ablation.judge.measurements import paired_values
from ablation.show.answer import steps_in_words
from tests.ablation.judge.studies import measurements, normal_study


def of_seeds(means, *, items=400, **analysis):
    """Measurements of variants whose run in each seed has so many hits of `items`: {variant: (parent, [share])}."""
    order = np.random.default_rng(0).permutation(items)
    values = {
        name: {"all": np.array([order < round(share * items) for share in shares])}
        for name, (_, shares) in means.items()
    }
    parents = {name: parent for name, (parent, _) in means.items()}
    return measurements(values, parents, factors={name: (name,) for name in parents if parents[name]}, **analysis)


def test_the_verdict_is_that_of_the_interim_analysis_that_decided():
    """Three seeds agree; two more turn the mean. What three seeds excluded is not a difference, and not the gain."""
    rates = [0.30, 0.31, 0.29, 0.90, 0.99]
    [comparison] = judge_comparisons(
        of_seeds({"v0": (None, [0.5] * 5), "v1": ("v0", rates)}, interim_analyses=[3, 5], alpha=0.2)
    )
    assert comparison.effect > 0
    assert comparison.p == pytest.approx(comparison.interims[0].p / comparison.interims[0].weight)
    assert comparison.verdict == "worse"
    assert "at the interim analysis of 3 seeds" in comparison.why
    assert (
        may_differ([comparison]) == "3 seeds rule out that more than 42% of seeds behave differently (80% confidence)"
    )
    assert comparison.in_seeds == pytest.approx(0.2 ** (1 / 3))
    last = comparison.interims[-1]
    assert (comparison.low, comparison.high) == last.estimate.interval(0.2 * last.weight)


@pytest.mark.parametrize(("changed", "said"), [(8, True), (60, False)])
@pytest.mark.parametrize("seeds", ["paired", "independent"])
def test_a_seed_that_is_nearly_a_copy_of_another_is_told(seeds, changed, said):
    values = {name: (np.random.default_rng(at).random((4, 400)) < 0.6) for at, name in enumerate(("v0", "v1"))}
    values["v1"][3] = values["v1"][0]
    values["v1"][3, :changed] ^= True
    parents = {"v0": None, "v1": "v0"}
    [comparison] = judge_comparisons(
        measurements({name: {"all": of} for name, of in values.items()}, parents, seeds=seeds)
    )
    assert (
        "seeds 0 and 3 of v1 differ in only 8 items, but other pairs usually differ in 1" in comparison.reason
    ) is said
    assert comparison.reason.count("so one may be a copy of the other") == said


def test_equivalence_stays_decided_at_a_later_interim_analysis():
    """The sixth and seventh seed are far off; the interim analysis at five had decided."""
    calm, wild = [0.5, 0.5025, 0.4975, 0.5, 0.5025], [0.7, 0.3]
    study = of_seeds({"v0": (None, [0.5] * 7), "v1": ("v0", calm + wild)}, interim_analyses=[5, 7], margin=0.08)
    [comparison] = judge_comparisons(study)
    assert (comparison.verdict, comparison.seeds) == ("equivalent", 7)
    assert "at the interim analysis of 5 seeds" in comparison.reason
    assert may_differ([comparison]).startswith("5 seeds rule out that more than 45% of seeds behave differently")
    assert comparison.high > 0.08
    [again] = judge_comparisons(replace(study, analysis=study.analysis.model_copy(update={"interim_analyses": []})))
    assert again.verdict == "undecided"


def test_an_interim_analysis_of_too_few_seeds_does_not_withhold_what_a_later_one_finds():
    shares = [0.5, 0.5025, 0.4975, 0.68, 0.7, 0.69, 0.71, 0.7, 0.68, 0.72]
    study = of_seeds({"v0": (None, [0.5] * 10), "v1": ("v0", shares)}, interim_analyses=[3, 10], margin=0.08)
    [comparison] = judge_comparisons(study)
    first = comparison.interims[0]
    assert first.estimate.within(0.08, 0.05 * first.weight)
    assert comparison.verdict == "better"
    assert "at the interim analysis of 10 seeds" in comparison.reason


@pytest.mark.parametrize(("margin", "verdict"), [(0.05, "equivalent"), (0.02, "undecided")])
def test_an_interim_analysis_where_how_runs_vary_is_not_known_does_not_say_equivalent(margin, verdict):
    """The first five runs of either variant ignored their seeds, and one item differs; the later runs vary."""
    rng = np.random.default_rng(0)
    parent, noise = rng.random((10, 300)) < 0.5, rng.random((10, 300)) < 0.1
    parent[:] = parent[0]
    child = parent.copy()
    child[:5, 0] ^= True
    parent[5:] ^= noise[5:]
    child[5:] ^= noise[::-1][:5]
    study = measurements(
        {"v0": {"all": parent}, "v1": {"all": child}},
        {"v0": None, "v1": "v0"},
        interim_analyses=[5, 10],
        margin=margin,
    )
    [comparison] = judge_comparisons(study)
    first, last = comparison.interims
    assert (first.estimate.noise.seeds_known, last.estimate.noise.seeds_known) == (False, True)
    assert (comparison.verdict, comparison.decision[1]) == (verdict, last if verdict == "equivalent" else None)
    [answer] = answers(study, [comparison], "not-worse", [comparison])
    assert answer.outcome == "passed"
    early = replace(study, analysis=study.analysis.model_copy(update={"interim_analyses": [5, 12]}))
    assert (
        "the difference is the same in every seed, so seed-to-seed noise is unknown"
        in judge_comparisons(early)[0].reason
    )


def test_no_number_of_seeds_is_promised_where_the_items_are_too_few():
    """Five items that all turn have a sign-flip p of 2 / 32, whatever the seeds."""

    def study(items, seeds, interims=()):
        values = {name: {"all": np.full((seeds, items), hit)} for name, hit in (("v0", 0.0), ("v1", 1.0))}
        return measurements(values, {"v0": None, "v1": "v0"}, interim_analyses=list(interims), factors={"v1": ("v1",)})

    [comparison] = judge_comparisons(study(5, 5))
    assert (comparison.verdict, comparison.p, comparison.seeds_needed) == ("undecided", 2 / 32, None)
    with_interims = study(5, 3, (3, 5, 10))
    comparisons = judge_comparisons(with_interims)
    assert predict(with_interims, comparisons)["v1", "v0"] == {5: 0.0, 10: 0.0}


def test_an_interim_analysis_has_the_seeds_in_the_order_in_which_they_were_added():
    """Seeds 7, 8, 9 of the settings, then 0 and 1 that `add-seeds` added."""
    study = of_seeds({"v0": (None, [0.5] * 5), "v1": ("v0", [0.7, 0.3, 0.51, 0.5, 0.49])}, interim_analyses=[3, 5])
    added = {0: 3, 1: 4, 2: 0, 3: 1, 4: 2}  # what was seed 0 above is the fourth that was added
    order = sorted(study.states, key=lambda run: added[run[1]])
    ordered = replace(study, states={run: study.states[run] for run in order})
    assert paired_values(ordered, ["v1", "v0"])[1] == [2, 3, 4, 0, 1]
    [comparison] = judge_comparisons(ordered)
    assert comparison.interims[0].estimate.per_seed == pytest.approx((0.01, 0.0, -0.01))


TREE = {
    "v0": (None, [0.50, 0.52, 0.47]),
    "v1": ("v0", [0.52, 0.55, 0.51]),
    "v2": ("v1", [0.60, 0.63, 0.58]),
    "v3": ("v1", [0.53, 0.52, 0.50]),
    "v4": ("v2", [0.64, 0.66, 0.60]),
}


@pytest.mark.parametrize(
    ("seeds", "interims", "said"),
    [(1, [], "seed-to-seed noise is unknown"), (2, [3, 5], "the first interim analysis, at 3 seeds, is still to come")],
)
def test_a_comparison_that_is_not_tested_has_no_interval_for_all_comparisons_at_once(seeds, interims, said):
    first = {name: (parent, shares[: seeds if name == "v3" else 3]) for name, (parent, shares) in TREE.items()}
    _, tested, untested, _ = judge_comparisons(of_seeds(first, interim_analyses=interims))
    assert untested.verdict == "undecided"
    assert said in untested.reason
    assert np.isnan([untested.p, untested.joint_low, untested.joint_high]).all()
    assert np.isfinite([untested.low, untested.high, tested.joint_low, tested.joint_high]).all()


def test_comparisons_may_be_those_to_the_root_or_pairs():
    to_root = judge_comparisons(of_seeds(TREE, comparisons="root"))
    assert [(comparison.child, comparison.parent) for comparison in to_root] == [(f"v{n}", "v0") for n in range(1, 5)]
    assert to_root[3].effect == pytest.approx(np.mean([0.14, 0.14, 0.13]))
    assert to_root[3].factors == ("v1", "v2", "v4")  # all that lies between
    pairs = judge_comparisons(of_seeds(TREE, comparisons=[["v4", "v3"], ["v1", "v0"]]))
    assert [(comparison.child, comparison.parent, comparison.factors) for comparison in pairs] == [
        ("v4", "v3", ("v2", "v3", "v4")),
        ("v1", "v0", ("v1",)),
    ]
    assert pairs[0].effect == pytest.approx(np.mean([0.11, 0.14, 0.10]))


def test_a_comparison_says_whose_variance_it_used():
    moderated, own = judge_comparisons(of_seeds(TREE)), judge_comparisons(of_seeds(TREE, variance="own"))
    assert {(comparison.variance, comparison.prior_df) for comparison in own} == {("own", 0.0)}
    assert {comparison.variance for comparison in moderated} == {"moderated"}
    assert 0 < moderated[0].prior_df <= 4 / 4  # a quarter of the comparisons
    assert moderated[0].interims[-1].estimate.noise.seed_df == pytest.approx(2 + moderated[0].prior_df)
    two = of_seeds({name: (parent, shares[:2]) for name, (parent, shares) in TREE.items()})
    assert {comparison.variance for comparison in judge_comparisons(two)} == {"own"}


@pytest.mark.parametrize("correction", ["max-t", "holm"])
def test_all_changes_since_the_root_at_once(correction):
    study = of_seeds(TREE, correction=correction)
    comparisons = judge_comparisons(study)
    v1, _, _, v4 = comparisons
    assert (v4.root, v4.root_effect) == ("v0", pytest.approx(np.mean([0.14, 0.14, 0.13])))
    [_, _, _, direct] = judge_comparisons(
        replace(study, analysis=study.analysis.model_copy(update={"comparisons": "root"}))
    )
    assert v4.root_low < direct.low < v4.root_effect < direct.high < v4.root_high  # eight paths, not one
    assert v1.root_low <= v1.joint_low <= v1.joint_high <= v1.root_high  # eight paths, not four comparisons
    level = comparisons[0].correction.path_level
    assert level > 0.05 / 8 if correction == "max-t" else level == 0.05 / 8


def test_seeds_that_are_declared_to_be_paired_show_their_correlation():
    shares = {"v0": (None, [0.5, 0.52, 0.48, 0.51]), "v1": ("v0", [0.6, 0.615, 0.59, 0.62])}
    [silent], [declared] = (judge_comparisons(of_seeds(shares, **plan)) for plan in ({}, {"seeds": "paired"}))
    known = np.corrcoef(shares["v0"][1], shares["v1"][1])[0, 1]
    assert declared.seed_correlation == pytest.approx(known)
    assert f"paired seeds: correlation {known:.2f} over 4 seeds" in declared.reason
    assert "correlation" not in silent.reason
    assert (silent.p, silent.low, silent.high) == (declared.p, declared.low, declared.high)


def test_small_gains_are_shown_together():
    """Three steps of 0.01 with noise of as much; then one that is shown by itself, and below it a fan of nothing."""
    noise = np.random.default_rng(1).normal(0, 0.008, (8, 5)).round(3)
    means = [0.5, 0.51, 0.52, 0.53, 0.7, 0.7, 0.7]
    parents = [None, "v0", "v1", "v2", "v3", "v4", "v4"]
    of = {f"v{n}": (parents[n], mean + noise[n]) for n, mean in enumerate(means)}
    comparisons = judge_comparisons(of_seeds(of, items=2000))
    assert [comparison.significant for comparison in comparisons] == [False, False, False, True, False, False]
    [steps] = joint_steps(comparisons)
    v3 = comparisons[2]
    assert (steps.ancestor, steps.child, steps.steps) == ("v0", "v3", 3)
    assert (steps.effect, steps.low, steps.high) == (v3.root_effect, v3.root_low, v3.root_high)
    assert steps.low > 0
    said = steps_in_words(steps)
    assert said.startswith("v3 is better than v0: +0.0")
    assert said.endswith("], but none of the 3 steps on the path is significant")
    assert joint_steps(comparisons[:1]) == joint_steps([]) == []


def test_the_correction_of_the_family_is_at_most_holms():
    known, by_holm = judge_comparisons(of_seeds(TREE)), judge_comparisons(of_seeds(TREE, correction="holm"))
    for ours, theirs in zip(known, by_holm, strict=True):
        assert ours.p == theirs.p
        assert ours.p_adjusted <= theirs.p_adjusted
        assert theirs.joint_low <= ours.joint_low <= ours.low <= ours.effect <= ours.high <= ours.joint_high
        assert ours.mde <= theirs.mde
    assert any(ours.p_adjusted < theirs.p_adjusted for ours, theirs in zip(known, by_holm, strict=True))
    assert "after the max-t correction" in known[0].reason
    assert "after Holm's correction" in by_holm[0].reason


def test_the_order_of_variants_changes_no_number():
    """The correction draws at random, and the same draws must fall to the same comparisons."""

    def numbers(tree):
        comparisons = judge_comparisons(of_seeds(tree))
        shown = [(of.p_adjusted, of.low, of.joint_low, of.joint_high, of.root_low, of.mde) for of in comparisons]
        tests, _ = not_worse(comparisons[0].measurements, comparisons)
        return {of.pair: (tests[of.pair], *row) for of, row in zip(comparisons, shown, strict=True)}

    assert numbers(TREE) == numbers(dict(reversed(TREE.items())))


def test_a_verdict_beside_an_interval_that_holds_0_says_why():
    base, gains = [0.5, 0.51, 0.49, 0.5, 0.5], [0.05, 0.03, 0.07, 0.01, 0.09]
    runs = {"v0": (None, base), "v1": ("v0", [of + 0.3 for of in base])}
    runs["v2"] = ("v0", [of + more for of, more in zip(base, gains, strict=True)])
    large, small = judge_comparisons(of_seeds(runs, correction="holm", variance="own"))
    said = "the interval for all comparisons at once is more conservative than this p and still includes 0"
    assert (small.verdict, small.joint_low < 0, said in small.reason) == ("better", True, True)
    assert (large.verdict, large.joint_low < 0, said in large.reason) == ("better", False, False)


def test_one_comparison_whose_interval_ends_at_0_blames_no_correction():
    before = np.tile(np.arange(300) < 150, (3, 1))
    for seed in range(3):
        before[seed, 3 * seed : 3 * seed + 3] = False
    values = {"v0": {"all": before}, "v1": {"all": before | (np.arange(300) // 6 == 25)}}
    [comparison] = judge_comparisons(measurements(values, {"v0": None, "v1": "v0"}, margin=0.001))
    assert (comparison.verdict, comparison.joint_low) == ("better", 0.0)
    assert "at once" not in comparison.reason


def test_fdr_has_intervals_for_the_verdicts_found():
    comparisons = judge_comparisons(of_seeds(TREE, error="fdr"))
    np.testing.assert_allclose([e.p_adjusted for e in comparisons], false_discovery_control([e.p for e in comparisons]))
    found = [comparison for comparison in comparisons if comparison.p_adjusted <= 0.05]
    assert 0 < len(found) < len(comparisons)
    for comparison in comparisons:
        assert (comparison.joint_low <= 0 <= comparison.joint_high) == (comparison not in found)
    for comparison in found:
        alone = comparison.estimate.interval(0.05 * len(found) / len(comparisons))
        assert (comparison.joint_low, comparison.joint_high) == pytest.approx(alone)
        assert "after Benjamini and Hochberg's correction" in comparison.reason


def numbers(comparison):
    return [getattr(comparison, name) for name in ("effect", "low", "high", "p", "seeds", "items")]


def all_pairs(study):
    return {(pair.comparison.parent, pair.comparison.child): pair for pair in judge_all_pairs(study)}


def with_configs(study, configs, changes=()):
    """The same study, its variants with these configurations; changes: (key, factor) that the study knows."""
    known = [{"key": key, "from": 0, "to": 1, "factor": factor} for key, factor in changes]
    variants = []
    for variant in study.variants:
        content = variant.model_dump(by_alias=True) | {"resolved": configs[variant.name], "changes": known}
        variants.append(type(variant).model_validate(content))
    return replace(study, variants=variants)


@pytest.mark.parametrize("direction", ["max", "min", {"target": 0.6}])
def test_all_pairs_are_judged_and_one_that_is_a_comparison_has_its_numbers_without_the_correction(direction):
    study = normal_study(variants=5, seeds=4, items=120, size=2, seed=3, direction=direction, variance="own")
    pairs = {names: pair.comparison for names, pair in all_pairs(study).items()}
    assert list(pairs) == list(itertools.combinations([variant.name for variant in study.variants], 2))
    for comparison in judge_comparisons(study):
        pair = pairs[comparison.parent, comparison.child]
        assert numbers(pair) == numbers(comparison)
        assert pair.p_adjusted == pair.p <= comparison.p_adjusted
        assert "not corrected for other comparisons" in pair.why or pair.detail == "equivalent"


def test_what_differs_is_read_from_the_configurations_and_not_along_the_tree():
    """v1 and v2 make the same change of v0 under two names; v2 makes one more, of a key below a factor."""
    study = normal_study(variants=3, seeds=3)
    configs = {"v0": {"lr": 1, "rcs": None}, "v1": {"lr": 2, "rcs": None}, "v2": {"lr": 2, "rcs": {"a": 1, "b": 2}}}
    study = with_configs(study, configs, [("rcs", "RCS"), ("lr", "rate")])
    found = all_pairs(study)
    assert found["v1", "v2"].differing == {"RCS": [("rcs.a", None, 1), ("rcs.b", None, 2)]}
    assert not found["v1", "v2"].comparison.confounded
    assert found["v0", "v2"].comparison.factors == ("rate", "RCS")
    assert found["v0", "v2"].comparison.confounded


def test_a_failed_run_makes_its_pairs_invalid_and_no_other():
    study = normal_study(variants=3, seeds=3)
    pairs = all_pairs(replace(study, states={**study.states, ("v2", 1): ("failed", "killed")}))
    found = {names: pair.comparison for names, pair in pairs.items()}
    assert found["v0", "v2"].verdict == found["v1", "v2"].verdict == "invalid"
    assert "v2 seed 1 failed (killed)" in found["v0", "v2"].why
    assert found["v0", "v1"].verdict != "invalid"
    assert math.isnan(found["v0", "v2"].p)


def test_what_costs_most_is_done_once_a_variant_and_not_once_a_pair(monkeypatch):
    """Draws about a target, checks of runs and the clusters of items: 6 variants make 15 pairs."""
    calls = dict.fromkeys(("draw_sums", "_fault", "number_clusters"), 0)

    def counted(module, name):
        inner = getattr(module, name)

        def call(*arguments):
            calls[name] += 1
            return inner(*arguments)

        monkeypatch.setattr(module, name, call)

    counted(statistics, "draw_sums")
    counted(pairing, "_fault")
    counted(pairing, "number_clusters")
    judge_all_pairs(normal_study(variants=6, seeds=4, direction={"target": 0.6}))
    assert calls == {"draw_sums": 6, "_fault": 24, "number_clusters": 1}


def test_seeds_that_each_side_lacks_make_a_comparison_invalid_and_more_seeds_of_one_do_not():
    study = normal_study(variants=2, seeds=4)

    def without(*runs):
        [comparison] = judge_comparisons(
            replace(study, states={r: s for r, s in study.states.items() if r not in runs})
        )
        return comparison

    longer, apart = without(("v1", 2), ("v1", 3)), without(("v1", 0), ("v0", 3))
    assert (longer.seeds, longer.verdict != "invalid") == (2, True)
    assert apart.verdict == "invalid"
    assert "v1 has seeds [1, 2, 3]; v0 has seeds [0, 1, 2]" in apart.reason


def test_a_gate_allows_in_full_for_items_that_were_not_seen_where_a_verdict_does_not():
    """Fifty values without a bound cannot show that none of the other items loses far more."""
    rng = np.random.default_rng(1)
    ease = rng.lognormal(0, 0.5, 50)
    parent, child = (ease * (1 + change + rng.normal(0, 0.02, (5, 50))) for change in (0, rng.normal(0.08, 0.1, 50)))
    study = measurements({"v0": {"all": parent}, "v1": {"all": child}}, {"v0": None, "v1": "v0"}, margin=0.01)
    (comparison,) = judge_comparisons(study)
    assert (comparison.detail, comparison.unseen_in_full) == ("better", False)
    for required in ("not-worse", "better"):
        (answer,) = answers(study, [comparison], required, [comparison])
        assert answer.outcome == "undecided"
        assert answer.why.startswith("the verdict is `better`, but items outside the sample may lose much; ")
    # Right or wrong is bounded: the exact test allows for them as it is.
    hits = {
        name: {"all": (values > limit).astype(float)}
        for name, values, limit in (("v0", parent, 1.1), ("v1", child, 0.6))
    }
    (comparison,) = judge_comparisons(study := measurements(hits, {"v0": None, "v1": "v0"}, margin=0.01))
    (answer,) = answers(study, [comparison], "better", [comparison])
    assert (comparison.detail, comparison.unseen_in_full, answer.outcome) == ("better", True, "passed")
