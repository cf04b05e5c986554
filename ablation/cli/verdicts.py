"""The command `verdicts`: every comparison of a study, judged."""

import argparse
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from ablation.cli.common import open_store, paragraph, print_json, results_folder
from ablation.cli.options import add_json, add_results, add_study
from ablation.contract.display import duration, no_formula
from ablation.judge import verdicts
from ablation.judge.comparisons import Comparison
from ablation.judge.joint_steps import joint_steps
from ablation.show.answer import answer, steps_in_words
from ablation.show.text import clean_records, is_number, leveled, p_value
from ablation.store.current import check_study

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Judge every comparison: better, worse, equivalent, undecided, confounded, invalid or not run."
    add_results(parser)
    add_study(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print every column as CSV, at full precision")
    add_json(form)
    form.add_argument("--brief", action="store_true", help="print one sentence for each study, as in the report")


def run(arguments: argparse.Namespace) -> int:
    """Print the comparisons, then the interactions of combinations; with `--brief` a sentence for each study."""
    with open_store(results_folder(arguments)) as store:
        check_study(store, "verdicts", arguments.study)
        studies = verdicts.judge_studies(store, arguments.study)
    if arguments.brief:
        for study in studies:
            table, steps = verdicts.comparison_table([study]), joint_steps(study.comparisons)
            print(paragraph(f"{study.name}: {answer(table, study.measurements.analysis, steps)}"))
        return 0
    if arguments.json:
        combinations = clean_records(verdicts.interaction_table(studies))
        rails = clean_records(verdicts.guardrail_table(studies))
        together = [{"study": study.name} | vars(of) for study in studies for of in joint_steps(study.comparisons)]
        found = clean_records(verdicts.comparison_table(studies))
        print_json("verdicts", found, guardrails=rails, interactions=combinations, joint_steps=together)
        return 0
    if arguments.csv:
        print(verdicts.comparison_table(studies).map(no_formula).to_csv(index=False), end="")
        return 0
    for study in studies:
        _print_verdicts(study)
    combined = verdicts.interaction_table(studies)
    if not combined.empty:
        print(f"interactions: combination minus the sum of its parts\n{as_text(combined)}")
    return 0


def _print_verdicts(study: verdicts.JudgedStudy) -> None:
    if study.comparisons:
        columns = [*SHOWN[:3], *(["guardrails"] if study.guarded else []), *SHOWN[3:]]
        print(f"{study.name}\n{as_text(verdicts.comparison_table([study])[columns])}\n\n{reasons(study.comparisons)}\n")
    for steps in joint_steps(study.comparisons):
        print(paragraph(f"{study.name}: {steps_in_words(steps)}"))
    if far := [comparison for comparison in study.comparisons if comparison.root not in ("", comparison.parent)]:
        table = verdicts.comparison_rows(far)[TO_ROOT].set_axis(
            ["child", "root", "effect", "joint_low", "joint_high"], axis=1
        )
        print(f"{study.name}: all changes since the root, intervals for all paths at once\n{as_text(table)}\n")
    if study.guarded:
        table = verdicts.guardrail_table([study]).drop(columns=["study", "why"])
        print(f"{study.name}: guardrails, corrected for all comparisons and guardrails\n{as_text(table)}\n")
    if study.comparisons and study.plan_changed:
        said = "the analysis plan, its seeds or the rules of judging were changed after results existed"
        print(f"{study.name}: {said} (see results/analysis_history.json)\n")


def reasons(comparisons: Sequence[Comparison]) -> str:
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


def as_text(frame: pd.DataFrame) -> str:
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
