"""What an import found, in words: shown before anything is written."""

import json
from collections.abc import Sequence

from ablation.store.imports.importing import Outcome
from ablation.store.imports.stored import PlacedRun


def describe(study: str, outcome: Outcome) -> str:
    """Return the lineage for a person to confirm: variants, what each changes, its runs, and what could not be read."""
    places = {variant.name: variant for variant in outcome.variants}
    lines = [
        f"{study}: {_count(len(outcome.runs), 'run')} of {_count(len(places), 'variant')}"
        f" ({outcome.new} new, {outcome.changed} changed)"
    ]
    depth: dict[str | None, int] = {None: -1}
    for variant in outcome.variants:
        depth[variant.name] = depth.get(variant.parent, -1) + 1
        indent = "  " * (depth[variant.name] + 1)
        flag = f"  [confounded: {len(variant.factors)} factors]" if len(variant.factors) > 1 else ""
        lines.append(f"{indent}{variant.name}{flag}")
        lines += [f"{indent}    {c.key}: {json.dumps(c.old)} -> {json.dumps(c.new)}" for c in variant.changes]
        if variant.parent and not variant.changes:
            lines.append(f"{indent}    what it changes is not known")
        lines.append(f"{indent}    {_seeds([run for run in outcome.runs if run.variant == variant.name])}")
    lines += [f"note: {problem}" for problem in outcome.problems]
    return "\n".join(lines)


def _seeds(runs: Sequence[PlacedRun]) -> str:
    shown = []
    for run in sorted(runs, key=lambda run: (run.seed, run.format)):
        state = "" if run.state == "finished" else f", {run.state}"
        step = "" if run.last_step is None else f" at step {run.last_step}"
        shown.append(f"seed {run.seed}: {run.name} ({run.format}{step}{state})")
    return "; ".join(shown)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
