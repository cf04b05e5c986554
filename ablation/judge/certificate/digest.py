"""A digest of a certificate's sources: the measurements, and the code that judges them."""

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from ablation.judge.measurements import Measurements

_PACKAGE = Path(__file__).parents[2]
_CODE = ("judge/**/*.py", "config/lineage.py", "config/study_schema.py")  # judges; lineage; defaults


def digest_of(study: Measurements) -> str:
    """Return 16 hex digits for everything of a study that its verdicts, and so its certificate, depend on."""
    known = hashlib.sha256(_code().encode())
    known.update(study.name.encode() + study.analysis.model_dump_json().encode())
    known.update(repr([(variant.name, variant.parent, variant.factors) for variant in study.variants]).encode())
    known.update(repr((list(study.states.items()), sorted(study.aborted), sorted(study.duplicates))).encode())
    known.update(repr(sorted((s, sorted(of.items())) for s, of in study.clusters.items())).encode())
    names: dict[object, bytes] = {}  # most runs have the same items
    for run in sorted(study.values):
        for subset, series in sorted(study.values[run].items()):
            items = (study.item_lists.get(run, run), subset)
            if items not in names:
                names[items] = "\n".join(map(str, series.index)).encode()
            known.update(repr((run, subset)).encode() + names[items])
            known.update(np.ascontiguousarray(series.to_numpy(dtype=float)).tobytes())
    return known.hexdigest()[:16]


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a digest of the modules that judge and of those that they use, the certificate's own included."""
    known = hashlib.sha256()
    for path in sorted(path for pattern in _CODE for path in _PACKAGE.glob(pattern)):
        known.update(path.relative_to(_PACKAGE).as_posix().encode() + path.read_bytes())
    return known.hexdigest()
