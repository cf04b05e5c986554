"""One seed out of a configured one and the run's: the stages that all variants of a seed share."""

import hashlib


def with_run_seed(configured: int, run: int | None) -> int:
    """Return a seed in [0, 2**31) of a `seed` key and `Stage.seed`, the same in every process and on every machine.

    A stage that the study declares as not seeded (run None) has the configured seed itself: one draw for all runs.
    """
    if run is None:
        return configured
    return int.from_bytes(hashlib.sha256(f"{configured} {run}".encode()).digest()[:8], "big") % 2**31
