"""The certificate of a study.

certify(study) -> StudyCertificate
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ablation.judge.certificate.digest import digest_of
from ablation.judge.certificate.record import StudyCertificate, WordRecord
from ablation.judge.certificate.tally import Judged, Trial, power, tally, verdicts
from ablation.judge.certificate.worlds import FORMS, NOISY, World, forms_of, parts_of, worlds
from ablation.judge.edges import NOT_COMPARED, judge_edges, study_pairs
from ablation.judge.measurements import Measurements
from ablation.judge.scope import DECIDED

SEED = 20260101


@dataclass(frozen=True)
class Size:
    """How many worlds are judged."""

    lineages: int = 200  # of each form that carries noise
    edges: int = 400  # of each form that carries none
    forms: tuple[str, ...] = FORMS


def certify(study: Measurements, size: Size = Size()) -> StudyCertificate:
    """Judge worlds of known truth made from this study's runs."""
    judged = judge_edges(study)
    items_only = any(edge.estimate is not None and edge.estimate.items_only for edge in judged)
    parts = parts_of(study, items_only=items_only)
    trials: list[Trial] = []
    detectable = [edge.mde for edge in judged if np.isfinite(edge.mde) and edge.mde > 0]
    mde = float(np.median(detectable)) if detectable else 2 * study.analysis.margin
    pairs = len(study_pairs(study))
    for form in forms_of(study, items_only=items_only) if parts and pairs else ():
        rounds = size.lineages if form in NOISY else ceil(size.edges / pairs)
        if parts and form in size.forms:
            trials += (judge(form, world) for world in worlds(study, parts, form, rounds=rounds, mde=mde, seed=SEED))
    evidence = tally(trials, study.analysis)
    nothing = "no variant has two runs, so there are no residuals to draw from"
    return StudyCertificate(
        study=study.name,
        digest=digest_of(study),
        seeds=max(map(len, parts.runs.values())) if parts else 1,
        variants=len(study.variants),
        lineages=size.lineages if trials else 0,
        words=verdicts(evidence, size.lineages)
        if evidence
        else [WordRecord(word=word, status="uncertified", why=nothing) for word in DECIDED],
        evidence=evidence,
        power=power(trials, study.analysis.margin, mde),
    )


def judge(form: str, world: World) -> Trial:
    """Judge a world at every declared look, stopping at a decision: each edge's first decided verdict."""
    study = world.study
    found: dict[tuple[str, str], Judged] = {}
    for seen in _looks(study):
        for edge in judge_edges(seen, planning=False):
            if edge.detail not in NOT_COMPARED and (edge.pair not in found or found[edge.pair].word not in DECIDED):
                truth = world.gains[edge.child] - world.gains[edge.parent]
                found[edge.pair] = Judged(truth, edge.detail, edge.low, edge.high)
    return Trial(form, tuple(found.values()))


def _looks(study: Measurements) -> Iterator[Measurements]:
    """The study as it was at each look that has been passed, and as it is."""
    most = max((len(study.seeds(variant.name)) for variant in study.variants), default=0)
    for look in study.analysis.looks:
        if look < most:
            kept = {
                (variant.name, seed)
                for variant in study.variants
                for seed in study.in_order_added(study.seeds(variant.name))[:look]
            }
            states = {run: state for run, state in study.states.items() if run in kept}
            yield replace(study, states=states, values={run: study.values[run] for run in states})
    yield study
