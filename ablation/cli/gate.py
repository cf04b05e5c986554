"""The command `gate`: decide whether a study's changes may merge."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ablation.cli.common import (
    REQUIREMENTS,
    add_shared,
    open_store,
    price_per_hour,
    print_gated,
    print_json,
    results_folder,
)
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError

if TYPE_CHECKING:
    from ablation.store.database import Store


def declare_gate(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `gate`."""
    parser.description = (
        "Decide whether a study's changes may merge. To gate evaluation files, use `compare "
        "--require`. Exit code: 0 passed, 10 worse, 11 undecided, 12 invalid, 13 decided, but not as required."
    )
    add = parser.add_argument
    add_shared(parser, "--results", "--json")
    add("study", nargs="?", metavar="STUDY", help="the study to judge")
    add("comparisons", nargs="*", metavar="COMPARISON", help="CHILD or PARENT:CHILD (default: all comparisons)")
    text = "what every comparison must be (default: not-worse)"
    add("--require", choices=REQUIREMENTS, help=text)
    add_shared(parser, "--without", "--markdown")
    text = "compare each variant with ANCESTOR instead of its parent, to judge all changes since ANCESTOR together"
    add("--since", metavar="ANCESTOR", help=text)
    text = "identical: accept imported variants with equal values; scale: accept values on different scales"
    add("--allow", nargs="+", choices=("identical", "scale"), default=[], help=text)
    add("--reference", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run_gate(arguments: argparse.Namespace) -> int:
    """Print the gate's answer for each comparison; return the exit status for these answers."""
    if arguments.reference is not None:
        remedy = "use `ablation nightly PAST --new RUN --metric NAME`"
        raise ConfigError("gate", "--reference", None, "has become a separate command", remedy)
    if arguments.study is None:
        remedy = "name a study, such as `ablation gate gad`; to list failed stages, run `ablation status --failed`"
        raise ConfigError("gate", "STUDY", None, "is missing", remedy)
    if arguments.markdown and arguments.json:
        raise ConfigError("gate", "--markdown", None, "cannot be combined with --json", "leave one out")
    if "/" in arguments.study:
        command = "ablation compare BASE --with NEW --margin M --direction max --require not-worse"
        remedy = f"to gate evaluations, run `{command}`"
        raise ConfigError("gate", "STUDY", arguments.study, "is a path, not a study", remedy)
    from ablation.judge.gate import answers, apply_guardrails, check_margins, chosen
    from ablation.judge.measurements import runs_named
    from ablation.judge.verdicts import judge_study
    from ablation.show.gated import Gated, as_rows
    from ablation.store.current import check_study

    results = results_folder(arguments)
    with open_store(results, strict=True) as store:
        check_study(store, "gate", arguments.study)
        without = runs_named("gate", arguments.without)
        _refuse_other_plans(store, results, arguments.study)
        judged = judge_study(store, arguments.study, without, allow=frozenset(arguments.allow), since=arguments.since)
    comparisons = chosen(judged.comparisons, arguments.comparisons)
    if not comparisons or all(state == "missing" for state, _ in judged.measurements.states.values()):
        problem, remedy = "has no comparisons", "add a variant that extends another"
        if comparisons:
            problem, remedy = "has not run", "run the grid first"
        raise ConfigError("gate", "STUDY", arguments.study, problem, remedy)
    check_margins(comparisons, judged.guarded)
    required = arguments.require or "not-worse"
    judged_answers = apply_guardrails(
        answers(judged.measurements, judged.comparisons, required, comparisons), judged.guarded
    )
    gated = Gated(judged.measurements, required, judged_answers, price_per_hour(), judged.guarded)
    if arguments.json:
        print_json("gate", as_rows(gated), outcome=gated.outcome, required=required, notes=gated.notes)
    else:
        print_gated(gated, markdown=arguments.markdown)
    return gated.status


def _refuse_other_plans(store: "Store", results: Path, study: str) -> None:
    """Raise ConfigError if results are outdated, because the project now plans other keys or another analysis.

    Variants that were not planned are only named in a note, since a grid may run a part of a study.
    """
    from ablation.config.settings import load_settings
    from ablation.plan.build import build_plan

    configs, then, scale = Path("configs"), store.study(study), store.meta().get("scale", "")
    known = (configs / "studies" / study / "_study.yaml").is_file() and (configs / "scales" / f"{scale}.yaml").is_file()
    if then.imported or not known:
        return
    runs: dict[tuple[str, int], dict[str, str]] = {}
    query = "SELECT variant, seed, stage, key FROM run_stages WHERE study = ? ORDER BY rowid"
    for variant, seed, stage, key in store.rows(query, [study])[1]:
        runs.setdefault((variant, seed), {})[stage] = key
    seeds = sorted({seed for _, seed in runs})
    asked = {"scale": scale, "studies": [study], "study": study, "variant": [], "seeds": seeds}
    settings = load_settings(asked)
    if results != settings.results and not results.resolve().is_relative_to(Path.cwd()):
        return  # the results belong to another project
    [now] = build_plan(settings.model_copy(update={"results": results})).content.studies
    planned = {(run.variant, run.seed): run.stages for run in now.runs}
    parents = {variant.name: variant.parent for variant in store.variants(study)}
    changed = dict.fromkeys(variant for (variant, seed), keys in runs.items() if planned.get((variant, seed)) != keys)
    changed |= dict.fromkeys(name for name, parent in parents.items() if now.parents.get(name, "") != parent)
    if changed or now.analysis_digest != then.analysis_digest:
        what = listed([*changed], 5) if changed else "the analysis plan"
        problem = f"has outdated results, because {what} changed"
        remedy = f"run `snakemake --config scale={scale}` to update the results"
        raise ConfigError("gate", "STUDY", study, problem, remedy)
    if unplanned := [name for name in now.parents if name not in parents]:
        are, them = ("is", "it") if len(unplanned) == 1 else ("are", "them")
        why = f"because the results were made without {them}; run the grid to include {them}"
        print(f"note: {listed(unplanned, 5)} {are} not judged, {why}", file=sys.stderr)
