"""Gives items, not tasks, equal weights: pools all items, and checks lm-eval's groups of tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ablation.contract.numbers import together
from ablation.judge.compare.groups import Group
from ablation.readers.sheet import Facts, ItemText, Sheet

ALL = "all"  # the subset that holds the items of all tasks


def pooled(group: Group) -> Group:
    """Return the group with the items of all tasks in one subset; each item's name then begins with its task's name."""
    return replace(group, runs={seed: {ALL: _pooled(list(run.values()))} for seed, run in group.runs.items()})


def _pooled(sheets: Sequence[Sheet]) -> Sheet:
    places = {f"{sheet.subset}: {item}": (sheet, str(item)) for sheet in sheets for item in sheet.items}
    values = pd.Series(np.concatenate([sheet.values for sheet in sheets]), index=list(places)).sort_index()
    clusters = {name: f"{sheet.subset}: {sheet.clusters.get(item, item)}" for name, (sheet, item) in places.items()}
    facts = sheets[0].facts
    repeats = min(sheet.facts.repeats for sheet in sheets)

    def texts(chosen: Sequence[str]) -> dict[str, ItemText]:
        by_item: dict[str, ItemText] = {}
        for sheet in sheets:
            named = {places[name][1]: name for name in chosen if places[name][0] is sheet}
            by_item |= {named[item]: words for item, words in sheet.texts(list(named)).items()}
        return by_item

    return Sheet(
        sheets[0].source,
        ALL,
        sheets[0].metric,
        sheets[0].filter,
        items=values.index,
        values=values.to_numpy(),
        seed=sheets[0].seed,
        clusters=clusters if any(sheet.clusters for sheet in sheets) else {},
        facts=Facts(tool=facts.tool, settings=facts.settings, metrics=facts.metrics, repeats=repeats),
        texts=texts,
    )


def task_groups_that_disagree(parent: Group, child: Group) -> Iterator[str]:
    """Yield a note for each group of tasks whose difference has opposite signs with and without lm-eval's weights."""
    pairs = [(parent.runs[seed], child.runs[seed]) for seed in parent.seeds if seed in child.runs]
    groups = {name: tasks for run, _ in pairs for s in run.values() for name, (_, tasks) in s.facts.groups.items()}
    for group, tasks in groups.items():
        said, means = [], []
        for before, after in pairs:
            if not all(task in run and group in run[task].facts.groups for run in (before, after) for task in tasks):
                break
            said.append(after[tasks[0]].facts.groups[group][0] - before[tasks[0]].facts.groups[group][0])
            means.append(np.mean([after[task].values.mean() - before[task].values.mean() for task in tasks]))
        else:
            if np.mean(said) * np.mean(means) < 0:
                by_items, by_tasks = together([np.mean(said), np.mean(means)], "+")
                differs = f"{group} of {child.name} differs from {parent.name} by {by_items}"
                but = f"but the mean of the tasks differs by {by_tasks}; for lm-eval's weights, pass --weight items"
                yield f"lm-eval, which weights items equally, says that {differs}, {but}"
