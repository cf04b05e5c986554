"""The command `verdicts`: judge every comparison of the studies."""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from ablation.cli.common import add_shared, open_store, paragraph, print_json, results_folder
from ablation.contract.display import aligned, listed, no_formula
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import bound, confidence, decimals_for, duration, fixed, half, interval, p_value, percent
from ablation.judge import verdicts
from ablation.judge.comparisons import Comparison, joint_steps
from ablation.judge.correct import CORRECTIONS
from ablation.show.answer import findings, interval_words, sentences, shown_interval, steps_in_words
from ablation.show.text import clean_records
from ablation.store.current import check_study

ORDER = ("better", "worse", "undecided", "equivalent", "confounded", "invalid", "not run")
IN_UNIT = ("effect", "low", "high", "joint_low", "joint_high", "mde", "margin")  # of the metric
TEXTS: dict[str, Callable[[float], str]] = {
    "in_seeds": percent,
    "p": p_value,
    "p_adjusted": p_value,
    "p_not_worse": p_value,
    "cost_hours": lambda hours: duration(3600 * hours),
}
_NAMED = 6  # variants of a caveat
LEGEND = {
    "in_seeds": "the verdict holds in at least this share of seeds ({confidence} confidence)",
    "p_adjusted": "p{corrected}",
    "mde": "the smallest effect that these numbers of seeds and items detect with 80% power",
}


def declare_verdicts(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `verdicts`."""
    parser.description = "Judge every comparison: better, worse, equivalent, undecided, confounded, invalid or not run."
    add_shared(parser, "--results", "study")
    parser.add_argument("--why", action="store_true", help="also print the reason for each verdict, and the guardrails")
    text = "print every column, including all intervals and p-values"
    parser.add_argument("--all-columns", action="store_true", help=text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print every column as CSV, at full precision")
    add_shared(form, "--json")
    form.add_argument("--brief", action="store_true", help="print only the findings of each study, as in the report")


def run_verdicts(arguments: argparse.Namespace) -> int:
    """Print the comparisons, then the interactions of combinations; with `--brief`, only the findings."""
    for form in (name for name in ("brief", "csv", "json") if getattr(arguments, name)):
        for option in (name for name in ("why", "all_columns") if getattr(arguments, name)):
            problem = f"cannot be combined with --{form}"
            raise ConfigError("verdicts", f"--{option.replace('_', '-')}", None, problem, "leave one out")
    with open_store(results_folder(arguments)) as store:
        check_study(store, "verdicts", arguments.study)
        studies = verdicts.judge_studies(store, arguments.study)
    if arguments.brief:
        for study in studies:
            rows = clean_records(verdicts.comparison_table([study]))
            texts = findings(rows, study.measurements.analysis, joint_steps(study.comparisons))
            print(paragraph(f"{study.name}: {sentences(texts)}"))
        return 0
    if arguments.json:
        combinations = clean_records(verdicts.interaction_table(studies))
        rails = clean_records(verdicts.guardrail_table(studies))
        together = [
            {"study": study.name} | vars(steps_row) for study in studies for steps_row in joint_steps(study.comparisons)
        ]
        found = clean_records(verdicts.comparison_table(studies))
        print_json("verdicts", found, guardrails=rails, interactions=combinations, joint_steps=together)
        return 0
    if arguments.csv:
        print(verdicts.comparison_table(studies).map(no_formula).to_csv(index=False), end="")
        return 0
    for study in studies:
        _print_verdicts(study, why=arguments.why, all_columns=arguments.all_columns)
    combined = verdicts.interaction_table(studies)
    if not combined.empty:
        print(f"interactions: effect of the combination minus the sum of the effects of its parts\n{as_text(combined)}")
    return 0


def _print_verdicts(study: verdicts.JudgedStudy, *, why: bool, all_columns: bool) -> None:
    if study.comparisons:
        rows = verdicts.comparison_table([study])
        if not study.guarded:
            rows = rows.drop(columns="guardrails")
        shown = as_text(_sorted(rows).drop(columns="reason")) if all_columns else in_lines(rows, study.comparisons)
        print(f"{study.name}\n{shown}\n")
        if said := reasons(study.comparisons) if why else caveats(study.comparisons):
            print(f"{said}\n")
    for steps in joint_steps(study.comparisons):
        print(paragraph(f"{study.name}: {steps_in_words(steps)}"))
    if study.guarded and why:
        table = verdicts.guardrail_table([study]).drop(columns=["study", "why"])
        print(f"{study.name}: guardrails, corrected for all comparisons and guardrails\n{as_text(table)}\n")
    if study.comparisons and study.plan_changed:
        said = "the analysis plan, the seeds or the rules of judging changed after results existed"
        print(f"{study.name}: {said} (see analysis_history.json in the results folder)\n")


def in_lines(rows: pd.DataFrame, comparisons: Sequence[Comparison]) -> str:
    """Return a line for each comparison, sorted by verdict and p-value, and a legend.

    The interval is the one that agrees with the verdict; the heading says for how many comparisons it holds at once.

    comparisons: those of one study. rows: what `comparison_table` or `comparison_rows` returns for these.
    """
    correction, rows = comparisons[0].correction, _sorted(rows)
    several, records = correction.name not in ("one", "none"), clean_records(rows)
    ends, level = [shown_interval(row) for row in records], confidence(comparisons[0].measurements.analysis.alpha)
    decimals = decimals_for([*rows["effect"], *rows["mde"]], [half(*each) for each in ends])
    heading = f"{level} interval {interval_words(comparisons)}".rstrip()
    columns: dict[str, Iterable[str]] = {"variant": rows["child"], "after": rows["parent"], "verdict": rows["verdict"]}
    columns |= {"guardrails": rows["guardrails"]} if "guardrails" in rows else {}
    columns |= {
        "effect": [fixed(effect, decimals, "+") for effect in rows["effect"]],
        heading: [interval(*each, decimals) for each in ends],
        "p_adjusted": map(p_value, rows["p_adjusted"]),
        "in_seeds": map(percent, rows["in_seeds"]),
        "mde": [fixed(mde, decimals) for mde in rows["mde"]],
        "seeds": map(str, rows["seeds"]),
    }
    if rows["cost_hours"].any():
        columns["device time"] = [duration(3600 * hours) for hours in rows["cost_hours"]]
    right = [name not in ("variant", "after", "verdict", "guardrails") for name in columns]
    table = aligned([list(columns), *zip(*columns.values(), strict=True)], right)
    corrected = CORRECTIONS[correction.name] or "; a single comparison needs no correction"
    facts = {"corrected": corrected, "confidence": level}
    legend = [
        f"{name}: {text.format(**facts)}"
        for name, text in LEGEND.items()
        if name == "p_adjusted" or rows[name].notna().any()  # verdicts on checkpoints say nothing of other seeds
    ]
    if several and "equivalent" in set(rows["verdict"]):
        legend.append("equivalent: the interval is not adjusted, because this verdict depends on no other comparison")
    legend.append("--why prints the reason for each verdict, --all-columns every interval and p-value")
    return "\n".join([*table, "", *map(paragraph, legend)])


def _sorted(rows: pd.DataFrame) -> pd.DataFrame:
    place = rows["verdict"].map(ORDER.index)
    return rows.assign(_place=place).sort_values(["_place", "p"], kind="stable").drop(columns="_place")


def caveats(comparisons: Sequence[Comparison]) -> str:
    """Return the notes on verdicts and the broken health rules, each once, with the variants that they concern.

    Notes that are equal apart from details between a colon and a semicolon become one note, without these details.
    """
    about: dict[str, dict[str, None]] = {}
    notes = {note for comparison in comparisons for note in comparison.notes}
    alike = Counter(map(_general, notes))
    for comparison in comparisons:
        broken = [f"unhealthy: {warned.rule.id}" for warned in comparison.warnings]
        said = [_general(note) if alike[_general(note)] > 1 else note for note in comparison.notes]
        for text in (*(f"note: {note}" for note in said), *broken):
            about.setdefault(text, {})[comparison.child] = None
    whole = len({comparison.child for comparison in comparisons})
    return "\n".join(
        paragraph(text if len(names) == whole else f"{text} ({listed(list(names), _NAMED)})")
        for text, names in about.items()
    )


def _general(note: str) -> str:
    """Return the note without the details between its first colon and the next semicolon."""
    return re.sub(": .*?; ", "; ", note, count=1)


def reasons(comparisons: Sequence[Comparison]) -> str:
    """Return a paragraph per comparison with the reason for the verdict, then one per broken health rule."""
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
    """Return a table as aligned lines; values of one metric have the same number of decimals."""
    shown = frame.astype(object)
    names = frame.get("metric", frame.get("study", pd.Series("", frame.index)))
    for rows in names.groupby(names).groups.values():
        part = frame.loc[rows]
        decimals = decimals_for(part["effect"], map(half, part["low"], part["high"]))
        for name in (name for name in IN_UNIT if name in frame):
            end = name.rpartition("_")[2]
            texts = (bound(value, decimals, up=end == "high") for value in part[name])
            shown.loc[rows, name] = list(texts if end in ("low", "high") else (fixed(v, decimals) for v in part[name]))
    for name, said in TEXTS.items():
        if name in frame:
            shown[name] = list(map(said, frame[name]))
    hours = shown.pop("cost_hours") if "cost_hours" in shown else None
    if hours is not None and frame["cost_hours"].any():
        shown["device time"] = hours
    return shown.to_string(index=False, na_rep="-")
