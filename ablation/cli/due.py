"""What a grid of so many seeds can find, for the end of `snakemake -n`.

    python -m ablation.cli.due RESULTS STUDY=SEEDS ...

One line for each study whose results tell its noise; others are passed over. It writes nothing.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ablation.contract.errors import TrackerError
from ablation.contract.stage_folder import DATABASE
from ablation.judge.edges import Correction, judge_edges
from ablation.judge.measurements import read_measurements
from ablation.judge.planning import detectable, split
from ablation.judge.power import minimal_detectable_effect
from ablation.judge.significance import look_weights
from ablation.store.database import Store

POWER = 0.8


def main(arguments: list[str]) -> int:
    """Print the lines; return the exit status."""
    wanted = dict(word.split("=") for word in arguments[1:])
    try:
        for line in findable(Path(arguments[0]), {study: int(seeds) for study, seeds in wanted.items()}):
            print(line)
    except (TrackerError, OSError) as error:
        print(f"what the grid can find is not known: {error}", file=sys.stderr)
    return 0


def findable(results: Path, seeds: Mapping[str, int]) -> Iterator[str]:
    """Yield `debias: 5 seeds find an effect of 0.02 with 80% (median of 19 edges)` for studies with two seeds or more.

    Raises:
        TrackerError: the database cannot be read.
    """
    if not (results / DATABASE).exists():
        return
    with Store(results / DATABASE) as store:
        for study, count in seeds.items():
            if study not in store.studies() or count < 2:
                continue
            measured = read_measurements(store, study)
            edges = judge_edges(measured)
            pilots = [split(edge) for edge in edges if edge.estimate is not None and edge.noise.seeds_known]
            if not pilots:
                continue
            looks, level = measured.analysis.looks, Correction.of(measured, edges).level
            shares = look_weights(looks) if looks else {}
            level *= next((share for look, share in shares.items() if look >= count), 1.0)
            pilots.sort(key=lambda pilot: minimal_detectable_effect(pilot.noise(pilot.seeds, pilot.items), level))
            middle = pilots[(len(pilots) - 1) // 2]
            effect = detectable(middle, count, middle.items, level, POWER)[0]
            of = f" (median of {len(pilots)} edges)" if len(pilots) > 1 else ""
            yield f"{study}: {count} seeds find an effect of {effect:.3g} with {POWER:.0%}{of}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
