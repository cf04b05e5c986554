"""What it costs to judge studies: python benchmarks/judging.py [--studies 5 --variants 20 --seeds 10 --items 2000].

Simulated 0/1 items in memory, a binary tree of variants, three subsets; CPU seconds of the verdicts of all comparisons
(`judge_comparisons`), without reading the database. `--target` judges the distance from 0.5, `--interim-analyses` at
three of them, `--pairs` every two variants as well, as the page does (`judge_all_pairs`).
"""

import argparse
import time

import numpy as np
import pandas as pd

from ablation.config.study_schema import Analysis
from ablation.judge.comparisons import judge_all_pairs, judge_comparisons
from ablation.judge.measurements import Measurements
from ablation.plan.plan_file import PlannedVariant

SUBSETS = ["a", "b", "c"]


def simulate(variants: int, seeds: int, items: int, *, analysis: Analysis, seed: int) -> Measurements:
    """One study: items of different ease, variants that differ by a little, seeds that spread by 0.01."""
    rng = np.random.default_rng(seed)
    sizes = dict(zip(SUBSETS, np.diff(np.linspace(0, items, len(SUBSETS) + 1).astype(int)), strict=True))
    ease = {name: rng.standard_normal(size) for name, size in sizes.items()}
    names = {name: pd.Index([f"{name}{number:05d}" for number in range(size)]) for name, size in sizes.items()}
    values = {}
    for variant in range(variants):
        for run in range(seeds):
            shift = 0.3 + 0.02 * variant + 0.03 * rng.standard_normal()
            values[f"v{variant}", run] = {
                name: pd.Series((ease[name] + rng.standard_normal(size) < shift).astype(float), index=names[name])
                for name, size in sizes.items()
            }
    planned = [
        PlannedVariant(
            name=f"v{n}",
            parent=f"v{(n - 1) // 2}" if n else None,
            why="",
            file="",
            resolved={},
            factors=("f",) if n else (),
            changes=(),
        )
        for n in range(variants)
    ]
    stages = pd.DataFrame({"variant": [], "seed": [], "key": [], "hours": []})
    return Measurements("study", analysis, planned, dict.fromkeys(values, ("ok", "")), {}, values, frozenset(), stages)


def main() -> None:
    """Print the CPU seconds of each study and of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("studies", 5), ("variants", 20), ("seeds", 10), ("items", 2000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--target", action="store_true")
    parser.add_argument("--interim-analyses", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    arguments = parser.parse_args()
    analysis = Analysis(
        value="hit",
        protocol="p",
        subsets=SUBSETS,
        direction={"target": 0.5} if arguments.target else "max",
        margin=0.02,
        interim_analyses=[3, 5, arguments.seeds] if arguments.interim_analyses else [],
    )
    total = 0.0
    for number in range(arguments.studies):
        study = simulate(arguments.variants, arguments.seeds, arguments.items, analysis=analysis, seed=number)
        start = time.process_time()
        comparisons = judge_comparisons(study)
        if arguments.pairs:
            judge_all_pairs(study)
        spent = time.process_time() - start
        total += spent
        verdicts = pd.Series([comparison.verdict for comparison in comparisons]).value_counts().to_dict()
        print(f"study {number}: {spent:.2f} CPU seconds, {verdicts}", flush=True)
    print(f"{arguments.studies} studies: {total:.1f} CPU seconds")


if __name__ == "__main__":
    main()
