"""The certificate of a study, and `results/certificate.json` with those of all: remade only for changed studies."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from pathlib import Path

import numpy as np

from ablation.contract.atomic import write_text
from ablation.judge.certificate.tally import (
    Certificates,
    Judged,
    StudyCertificate,
    Trial,
    WordRecord,
    power,
    tally,
    verdicts,
)
from ablation.judge.certificate.worlds import FORMS, NOISY, World, forms_of, parts_of, worlds
from ablation.judge.edges import DECIDED, NOT_COMPARED, judge_edges, study_pairs
from ablation.judge.measurements import Measurements, read_measurements
from ablation.store.database import Store

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
    parts = None if study.cluster_fault else parts_of(study, items_only=items_only)
    trials: list[Trial] = []
    detectable = [edge.mde for edge in judged if np.isfinite(edge.mde) and edge.mde > 0]
    mde = float(np.median(detectable)) if detectable else 2 * study.analysis.margin
    pairs = len(study_pairs(study))
    for form in forms_of(study, items_only=items_only) if parts and pairs else ():
        rounds = size.lineages if form in NOISY else ceil(size.edges / pairs)
        if parts and form in size.forms:
            trials += (judge(form, world) for world in worlds(study, parts, form, rounds=rounds, mde=mde, seed=SEED))
    evidence = tally(trials, study.analysis)
    nothing = study.cluster_fault or "no variant has two runs, so there are no residuals to draw from"
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
        for edge in judge_edges(seen):
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


_PACKAGE = Path(__file__).parents[2]
_CODE = ("judge/**/*.py", "config/lineage.py", "config/study_schema.py")  # judges; lineage; defaults


def digest_of(study: Measurements) -> str:
    """Return 16 hex digits for everything of a study that its verdicts, and so its certificate, depend on."""
    known = hashlib.sha256(_code().encode())
    known.update(study.name.encode() + study.analysis.model_dump_json().encode())
    known.update(repr([(variant.name, variant.parent, variant.factors) for variant in study.variants]).encode())
    known.update(repr((list(study.states.items()), sorted(study.aborted), sorted(study.duplicates))).encode())
    known.update(study.cluster_fault.encode())
    known.update(repr(sorted((s, sorted(of.items())) for s, of in study.clusters.items())).encode())
    names: dict[object, bytes] = {}  # most runs have the same items
    for run in sorted(study.values):
        for subset, series in sorted(study.values[run].items()):
            items = (study.item_lists.get(run, run), subset)
            if items not in names:
                names[items] = "\n".join(map(str, series.index)).encode()
            known.update(repr((run, subset)).encode() + names[items])
            known.update(np.ascontiguousarray(series.values, dtype=float).tobytes())
    return known.hexdigest()[:16]


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a digest of the modules that judge and of those that they use, the certificate's own included."""
    known = hashlib.sha256()
    for path in sorted(path for pattern in _CODE for path in _PACKAGE.glob(pattern)):
        known.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return known.hexdigest()


CERTIFICATE = "certificate.json"


def known(results: Path) -> Certificates | None:
    """Return the certificates that were written last; None if there are none, or in another form."""
    try:
        return Certificates.model_validate_json((results / CERTIFICATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or not of this form: pydantic's error is a ValueError
        return None


def certified(store: Store, results: Path, study: str | None = None) -> Certificates:
    """Certify every study of the database, or one, and write all that still hold.

    A study whose measurements, analysis plan and judging code are as they were keeps its certificate.
    """
    before = known(results)
    found = []
    for name in store.studies():
        measurements = read_measurements(store, name)
        digest = digest_of(measurements)
        old = before.of(name) if before else None
        if old is not None and old.digest == digest:
            found.append(old)
        elif study in (None, name):
            found.append(certify(measurements))
    made = Certificates(studies=found)
    write_text(results / CERTIFICATE, made.model_dump_json(indent=1) + "\n")
    return made
