"""`results/certificate.json`: the certificates of a database, remade only for changed studies.

certified(store, results, study) -> Certificates     made where needed, and written
known(results)                   -> Certificates | None     as they were last written
"""

from pathlib import Path

from ablation.contract.atomic import write_text
from ablation.judge.certificate.certify import certify
from ablation.judge.certificate.digest import digest_of
from ablation.judge.certificate.record import Certificates
from ablation.judge.measurements import read_measurements
from ablation.store.database import Store

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
