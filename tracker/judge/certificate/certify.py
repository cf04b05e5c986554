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
from tracker.judge.certificate.pseudo import Runs, as_compared, usable
from tracker.judge.certificate.record import Certificates, Evidence, StudyCertificate
from tracker.judge.certificate.sealed import seal_and_open
from tracker.judge.certificate.tally import evidence, power, sealed_evidence, tally, verdicts
from tracker.judge.certificate.trials import Level, Trial
from tracker.judge.edges import judge_edges
from tracker.judge.measurements import Measurements

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
    digest, study = digest_of(study), as_compared(study)
    runs = usable(study)
    edges = sum(variant.parent is not None for variant in study.variants)
    trials = list(_trials(study, runs, edges, size)) if runs and edges and runs.most_seeds >= aa.SMALLEST_ARM else []
    arm = aa.arm_size(runs) if runs else 0
    independent = aa.effective_splits(runs) if runs else 0.0
    sealed = seal_and_open(study, runs, keep) if runs and edges else None
    found = tally(trials, study.analysis, independent)
    if sealed:
        found.append(sealed_evidence(sealed, study.analysis, len({e.kind for e in found}) + 1))
    needed = _needed(runs, independent)
    return StudyCertificate(
        study=study.name,
        digest=digest,
        seeds=runs.most_seeds if runs else 0,
        variants=len(study.variants),
        arm=arm,
        splits=independent,
        needed=needed,
        words=verdicts(found, independent, needed),
        evidence=found,
        power=power(trials),
        sealed=sealed,
    )


def _trials(study: Measurements, runs: Runs, edges: int, size: Size) -> chain[Trial]:
    noise = noise_of(study, runs)
    margin = Level("margin", study.analysis.margin)
    found = [edge.mde for edge in judge_edges(study) if np.isfinite(edge.mde) and edge.mde > 0]
    detectable = Level("mde", float(np.median(found)) if found else 2 * study.analysis.margin)
    rounds = {Level("zero", 0.0): size.zero, margin: ceil(size.edges / edges), detectable: size.mde}
    planted = (
        planted_trials(study, runs, noise, form, level, rounds=count, seed=SEED)
        for form in forms_of(study, runs)
        if form in size.forms
        for level, count in rounds.items()
    )
    split = aa.split_trials(study, runs, (Level("zero", 0.0), margin), size.splits, SEED)
    return chain(split, *planted)


def _needed(runs: Runs | None, independent: float) -> str:
    """Return what would give splits enough, in words; "" where there are."""
    if independent >= ENOUGH:
        return ""
    seeds, least = (runs.most_seeds, 2 * aa.SMALLEST_ARM) if runs else (0, 2 * aa.SMALLEST_ARM)
    if seeds < least:
        return f"{seeds} seeds cannot be split into two arms of {aa.SMALLEST_ARM}: {least} seeds of {ENOUGH} variants"
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
    independent = sum(certificate.splits for certificate in certificates)
    needed = f"the splits of all studies are worth {independent:.1f} independent trials of the {ENOUGH} needed"
    words = verdicts(common, independent, "" if independent >= ENOUGH else needed)
    return Certificates(studies=list(certificates), record=common, words=words)
