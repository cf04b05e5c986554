"""The certificate of a study, and the record of all studies of a database.

certify(study, keep=...) -> StudyCertificate
record(certificates)     -> Certificates
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil

import numpy as np

from tracker.judge.certificate import splits as aa
from tracker.judge.certificate.bounds import ENOUGH
from tracker.judge.certificate.digest import digest_of
from tracker.judge.certificate.noise import noise_of
from tracker.judge.certificate.planting import FORMS, forms_of, planted_trials
from tracker.judge.certificate.pseudo import Runs, as_lineage, usable
from tracker.judge.certificate.record import SPLITS, Certificates, Evidence, StudyCertificate
from tracker.judge.certificate.sealed import seal_and_open
from tracker.judge.certificate.tally import DIRECTION, evidence, power, sealed_evidence, tally, verdicts
from tracker.judge.certificate.trials import Level, Trial
from tracker.judge.edges import Edge, judge_edges
from tracker.judge.measurements import Measurements
from tracker.judge.scope import DECIDED

SEED = 20260101


@dataclass(frozen=True)
class Size:
    """How many pseudo-studies are judged. More cost more time and give closer bounds."""

    zero: int = 8  # planted lineages without effect, per form: trials of better and worse
    edges: int = 120  # edges with an effect as large as the margin, per form: trials of equivalent
    mde: int = 1  # planted lineages at the minimal detectable effect, per form
    splits: int = 1  # splits of each variant, without effect and at the margin
    forms: tuple[str, ...] = FORMS  # of planted effects


def certify(study: Measurements, keep: Callable[[dict], None], size: Size = Size()) -> StudyCertificate:
    """Judge pseudo-studies of known truth that are made of this study's runs. `keep` writes the sealed predictions."""
    runs, shape = usable(study), as_lineage(study)
    edges = sum(variant.parent is not None for variant in shape.variants)
    trials = list(_trials(shape, runs, edges, size)) if runs and edges and runs.most_seeds >= aa.SMALLEST_ARM else []
    arm = aa.arm_size(runs) if runs else 0
    independent = aa.effective_splits(runs) if runs else 0.0
    sealed = seal_and_open(study, runs, keep) if runs and edges else None  # of every pair that the plan compares
    found = tally(trials, study.analysis, independent, arm, sealed=sealed is not None)
    if sealed:
        found.append(sealed_evidence(sealed, study.analysis, len({e.kind for e in found}) + 1))
    needed = {word: _needed(runs, arm, independent, aa.telling_arm(word, study.analysis)) for word in DECIDED}
    return StudyCertificate(
        study=study.name,
        digest=digest_of(study),
        seeds=runs.most_seeds if runs else 0,
        variants=len(study.variants),
        arm=arm,
        splits=independent,
        words=verdicts(found, needed),
        evidence=found,
        power=power(trials),
        sealed=sealed,
    )


def _trials(study: Measurements, runs: Runs, edges: int, size: Size) -> chain[Trial]:
    margin = Level("margin", study.analysis.margin)
    split = aa.split_trials(study, runs, (Level("zero", 0.0), margin), size.splits, SEED)
    judged = judge_edges(study)
    if of_these_items(judged):  # and planted effects are of items that are drawn anew
        return chain(split)
    noise = noise_of(study, runs)
    found = [edge.mde for edge in judged if np.isfinite(edge.mde) and edge.mde > 0]
    detectable = Level("mde", float(np.median(found)) if found else 2 * study.analysis.margin)
    rounds = {Level("zero", 0.0): size.zero, margin: ceil(size.edges / edges), detectable: size.mde}
    planted = (
        planted_trials(study, runs, noise, form, level, rounds=count, seed=SEED)
        for form in forms_of(study, runs)
        if form in size.forms
        for level, count in rounds.items()
    )
    return chain(split, *planted)


def of_these_items(edges: Sequence[Edge]) -> bool:
    """Whether verdicts speak of these very items alone: they are too few clusters to stand for others."""
    return any(edge.estimate is not None and edge.estimate.items_only for edge in edges)


def _needed(runs: Runs | None, arm: int, independent: float, telling: int) -> str:
    """Return what would give splits enough, in words; "" where there are. `telling`: seeds of an arm that tells."""
    most, least = runs.most_seeds if runs else 0, 2 * telling
    if most < least:
        return f"{most} seeds cannot be split into two arms of {telling}: {least} seeds of {ENOUGH} variants could"
    if arm < telling:
        return (
            f"arms of {telling} seeds would leave too few independent splits of the {ENOUGH} needed: "
            f"{least} seeds of more variants, or {2 * least} seeds"
        )
    if independent >= ENOUGH:
        return ""
    return (
        f"the splits are worth {independent:.1f} independent trials of the {ENOUGH} needed: "
        f"{2 * least} seeds count twice, and so do more variants with {least}"
    )


def record(certificates: Sequence[StudyCertificate]) -> Certificates:
    """Return the certificates with their common record: trials of different studies are independent."""
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for found in chain.from_iterable(certificate.evidence for certificate in certificates):
        groups.setdefault((found.word, found.kind), []).append(found)
    kinds = len({kind for _, kind in groups})
    common = []
    for (word, kind), of in groups.items():
        effective = sum(e.effective for e in of)
        rate = sum(e.rate * e.effective for e in of) / effective if effective else 0.0
        promised = max(e.promise for e in of)
        trials = sum(e.trials for e in of)
        common.append(evidence(word, kind, promised, trials=trials, effective=effective, rate=rate, kinds=kinds))
    worth = {e.word: e.effective for e in common if e.kind == SPLITS}
    of_word = {word: worth.get("equivalent" if word == "equivalent" else DIRECTION, 0.0) for word in DECIDED}
    needed = {
        word: f"the splits of all studies that tell are worth {of:.1f} independent trials of the {ENOUGH} needed"
        for word, of in of_word.items()
    }
    words = verdicts(common, needed)
    return Certificates(studies=list(certificates), record=common, words=words)
