"""Commands that judge results: verdicts, decide."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np
import pandas as pd

from ablation.cli.common import check_study, opened, overrides_of, paragraph, print_json, results_folder
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.contract.reading import device_time, duration, no_formula
from ablation.judge import verdicts
from ablation.judge.comparisons import Comparison
from ablation.judge.decide import decide, grid_command, run_snakemake
from ablation.show.answer import answer
from ablation.show.text import clean_records, is_number, leveled, p_value

SHOWN = ["parent", "child", "verdict", "in_seeds", "effect", "low", "high", "joint_low", "joint_high"]
SHOWN += ["p_adjusted", "mde", "seeds", "cost_hours"]
IN_UNIT = ("effect", "low", "high", "joint_low", "joint_high", "mde", "margin")  # of the metric
SAID: dict[str, Callable[[float], str]] = {
    "in_seeds": "{:.0%}".format,
    "p": p_value,
    "p_adjusted": p_value,
    "p_not_worse": p_value,
    "cost_hours": lambda hours: duration(3600 * hours),
}
TO_ROOT = ["child", "root", "root_effect", "root_low", "root_high"]


def run_verdicts(arguments: argparse.Namespace) -> int:
    """Print the comparisons, then the interactions of combinations; with `--brief` a sentence for each study."""
    with opened(results_folder(arguments)) as store:
        check_study(store, "verdicts", arguments.study)
        studies = verdicts.judge_studies(store, arguments.study)
    if arguments.brief:
        for study in studies:
            said = answer(verdicts.comparison_table([study]), study.measurements.analysis.margin)
            print(paragraph(f"{study.name}: {said}"))
        return 0
    if arguments.json:
        combinations = clean_records(verdicts.interaction_table(studies))
        rails = clean_records(verdicts.guardrail_table(studies))
        print_json(
            "verdicts", clean_records(verdicts.comparison_table(studies)), guardrails=rails, interactions=combinations
        )
        return 0
    if arguments.csv:
        print(verdicts.comparison_table(studies).map(no_formula).to_csv(index=False), end="")
        return 0
    for study in studies:
        _print_verdicts(study)
    combined = verdicts.interaction_table(studies)
    if not combined.empty:
        print(f"interactions: combination minus the sum of its parts\n{_text(combined)}")
    return 0


def _print_verdicts(study: verdicts.JudgedStudy) -> None:
    if study.comparisons:
        columns = [*SHOWN[:3], *(["guardrails"] if study.guarded else []), *SHOWN[3:]]
        print(f"{study.name}\n{_text(verdicts.comparison_table([study])[columns])}\n\n{_reasons(study.comparisons)}\n")
    if far := [comparison for comparison in study.comparisons if comparison.root not in ("", comparison.parent)]:
        table = verdicts.comparison_rows(far)[TO_ROOT].set_axis(
            ["child", "root", "effect", "joint_low", "joint_high"], axis=1
        )
        print(f"{study.name}: all changes since the root, intervals for all paths at once\n{_text(table)}\n")
    if study.guarded:
        table = verdicts.guardrail_table([study]).drop(columns=["study", "why"])
        print(f"{study.name}: guardrails, corrected for all comparisons and guardrails\n{_text(table)}\n")
    if study.comparisons and study.plan_changed:
        said = "the analysis plan, its seeds or the rules of judging were changed after results existed"
        print(f"{study.name}: {said} (see results/analysis_history.json)\n")


def run_decide(arguments: argparse.Namespace) -> int:
    """Run rounds of the grid; print the verdicts and what each cost."""
    overrides = overrides_of(arguments.config)
    results = results_folder(arguments, overrides)
    if (results / "imported" / arguments.study / "study.json").exists():
        remedy = "run more seeds where they were made, and import again"
        raise ConfigError("decide", "STUDY", arguments.study, "was imported: its runs are not made here", remedy)
    pairs = [*arguments.config, *([f"results={results}"] if arguments.results else [])]
    command = grid_command(arguments.study, arguments.cores, arguments.gpus or load_settings(overrides).gpus, pairs)
    say, output = (_to_stderr, sys.stderr) if arguments.json else (print, None)
    grid = partial(run_snakemake, command, output)
    run = decide(arguments.study, arguments.budget, results, grid, say, dry_run=arguments.dry_run)
    if arguments.json:
        told = {"stopped": run.why, "rounds": run.rounds, "spent_hours": run.spent_hours}
        print_json(
            "decide",
            clean_records(verdicts.comparison_rows(run.comparisons)),
            **told,
            offers=[asdict(each) for each in run.offers],
        )
        return 0
    spent = device_time(run.spent_hours)
    print(f"stopped: {run.why}; {spent} in {run.rounds} rounds of more seeds\n{run.report()}")
    if arguments.dry_run:
        return 0
    print(f"{_text(verdicts.comparison_rows(run.comparisons)[SHOWN])}\n\n{_reasons(run.comparisons)}")
    return 0


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def _reasons(comparisons: Sequence[Comparison]) -> str:
    """A paragraph per comparison: why its verdict, and which rules its runs broke; then what those rules mean."""
    paragraphs: list[str] = []
    meanings: dict[str, str] = {}
    for comparison in comparisons:
        broken = [warned.rule for warned in comparison.warnings]
        meanings |= {rule.id: rule.diagnosis for rule in broken}
        unhealthy = f"; unhealthy: {', '.join(dict.fromkeys(rule.id for rule in broken))}" if broken else ""
        paragraphs.append(
            f"{comparison.child} after {comparison.parent}: "
            f"{'; '.join(filter(None, (comparison.why, *comparison.notes)))}{unhealthy}"
        )
    paragraphs += [f"{rule}: {words}" for rule, words in sorted(meanings.items())]
    return "\n".join(map(paragraph, paragraphs))


def _text(frame: pd.DataFrame) -> str:
    """Return aligned lines; numbers of one metric have the same decimals, device time is shown where there is any."""
    shown = frame.astype(object)
    unit = [name for name in frame if name in IN_UNIT]
    of = frame.get("metric", frame.get("study", pd.Series("", frame.index)))
    for rows in of.groupby(of).groups.values():
        shown.loc[rows, unit] = np.reshape(leveled(frame.loc[rows, unit].to_numpy().ravel()), (-1, len(unit)))
    for name, said in SAID.items():
        if name in frame:
            shown[name] = [said(value) if is_number(value) else "-" for value in frame[name]]
    hours = shown.pop("cost_hours") if "cost_hours" in shown else None
    if hours is not None and frame["cost_hours"].any():
        shown["device time"] = hours
    return shown.to_string(index=False, na_rep="-")
