"""The command `explain`: find which of the changes between two variants cause the effect."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ablation.cli.common import add_shared, open_store, paragraph, print_json
from ablation.cli.configs import CONFIGS, describe, named_pair, settings_of, study_named, study_with
from ablation.config.between import Between
from ablation.config.scale import load_scale
from ablation.config.settings import Settings
from ablation.config.study import Variant
from ablation.contract.display import aligned
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, decimals_for, estimate, half, is_number, p_value, percent, shares
from ablation.contract.stage_folder import DATABASE
from ablation.judge.explain import Explanation, Part, explain, explain_groups, group_name, next_cuts
from ablation.judge.factorial import FRACTION, FULL, design
from ablation.judge.measurements import Measurements
from ablation.judge.stored import read_measurements
from ablation.plan.build import build_plan
from ablation.plan.cost import hours_of, in_words
from ablation.plan.plan_file import PlannedStage
from ablation.plan.retry import pending, states_of


def declare_explain(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `explain`."""
    parser.description = (
        "Find which of the changes between A and B cause the effect. The first call writes the variants between A "
        "and B into the study's folder and prints their cost. Once the grid has run them, another call prints the "
        "answer.\n"
        "Up to four factors (changed keys, or groups of keys) are tried in all combinations, up to eight in 16 "
        "combinations, and more by repeatedly halving groups of factors."
    )
    add_shared(parser, "--scale", "--config", "a", "b", "--study", "--results", "--json")
    text = "list the missing variants without writing them"
    parser.add_argument("--dry-run", action="store_true", help=text)


def run_explain(arguments: argparse.Namespace) -> int:
    """Print the variants between A and B and their cost or, once these have run, the effect of each change."""
    only, wanted = named_pair("explain", arguments)
    if not CONFIGS.exists():
        problem = "does not exist in this folder, so `explain` cannot add variants between A and B"
        remedy = "run `explain` in the project's folder; for imported runs, `ablation diff` shows the joint effect"
        raise ConfigError("explain", str(CONFIGS), None, problem, remedy)
    settings = settings_of(arguments)
    settings = settings.model_copy(update={"results": arguments.results or settings.results})
    study = study_named(settings, only or study_with(settings, *wanted), arguments)
    between = Between.of(study, load_scale(settings.configs, settings.scale).study(study.name), *wanted)
    overrides = [f"scale={arguments.scale}"] if arguments.scale else []  # which the grid needs, too
    overrides += [*arguments.config, *([f"results={arguments.results}"] if arguments.results else [])]
    explained = _Explained(settings, between, overrides)
    if not arguments.dry_run:
        for variant in explained.new:
            with variant.file.open("x", encoding="utf-8") as file:
                file.write(between.text(variant))
    if arguments.json:
        _print_json(explained, written=not arguments.dry_run)
        return 0
    lines = explained.answer_lines() if explained.answer is not None else explained.head()
    print("\n".join([*lines, *explained.work_lines(written=not arguments.dry_run)]))
    return 0


class _Explained:
    """The variants between A and B, the jobs that they need, and the answer once they have run."""

    def __init__(self, settings: Settings, between: Between, given: Sequence[str]) -> None:
        self.settings, self.between, self.factors, self.given = settings, between, between.factors, given
        n = len(self.factors)
        self.answer: Explanation | None = None
        if n <= FRACTION:
            self.runs = {run: between.variant(run) for run in design(n)}
        else:
            prefixes = {frozenset(range(cut)): between.variant(frozenset(range(cut))) for cut in range(n + 1)}
            self.runs = {run: variant for run, variant in prefixes.items() if self._declared(variant)}
        self._plan()
        if self.jobs or self.new or (measured := self._measured()) is None:
            return
        if n <= FRACTION:
            self.answer = explain(measured, {run: variant.name for run, variant in self.runs.items()}, n)
            return
        self.answer = explain_groups(measured, {len(run): variant.name for run, variant in self.runs.items()}, n)
        self.runs |= {(run := frozenset(range(cut))): prefixes[run] for cut in next_cuts(self.answer)}
        self._plan()

    def _declared(self, variant: Variant) -> bool:
        return variant.name in self.between.study.variants

    def _plan(self) -> None:
        """Set the variants that are new, and the jobs that have not run."""
        variants = list({variant.name: variant for variant in self.runs.values()}.values())
        self.new = [variant for variant in variants if not self._declared(variant)]
        update = {"studies": {self.between.study.name: ()}, "study": self.between.study.name, "seed": None}
        chosen = self.settings.model_copy(update=update | {"variant": tuple(each.name for each in variants)})
        plan = build_plan(chosen, more=self.new)
        states = states_of(plan)
        self.all_jobs: int = len(plan.selected())
        self.jobs: Sequence[PlannedStage] = pending(plan, states)
        self.hours, self.unknown = hours_of(plan, states, self.jobs)

    def _measured(self) -> Measurements | None:
        """Return the measurements if the database has all variants between A and B, else None.

        Raises ConfigError if the results are at another scale than the settings.
        """
        name, results = self.between.study.name, self.settings.results
        if not (results / DATABASE).exists():
            return None
        with open_store(results) as store:
            if (scale := store.meta()["scale"]) != self.settings.scale:
                remedy = f"pass --scale {scale}, or name another folder with --results"
                problem = f"differs from the scale of the results, {scale}"
                raise ConfigError(results, "scale", self.settings.scale, problem, remedy)
            measured = read_measurements(store, name, helpers=True) if name in store.studies() else None
        known = {variant.name for variant in measured.variants} if measured else set()
        return measured if {variant.name for variant in self.runs.values()} <= known else None

    def head(self) -> Iterator[str]:
        """Yield lines that name the factors in which A and B differ, and their changes."""
        between = self.between
        yield f"{between.study.name}: {between.a} and {between.b} differ in {len(self.factors)} factors"
        for factor, changes in between.changes.items():
            shown = ", ".join(describe(change) for change in changes)
            yield f"    {shown}" if shown.startswith(f"{factor}:") else f"    {factor}: {shown}"

    def work_lines(self, *, written: bool) -> Iterator[str]:
        """Yield lines on the variants that are needed, the cost of their jobs, and the next step."""
        n, new = len(self.factors), len(self.new)
        if self.answer is not None and not new:
            return
        kind = "all combinations" if n <= FULL else "a resolution IV fraction" if n <= FRACTION else "halved groups"
        yield f"{len(self.runs)} variants ({kind}), of which {new} {'is' if new == 1 else 'are'} new"
        cost = in_words(self.hours, self.unknown, len(self.jobs), self.settings.cost_per_device_hour)
        yield f"to run: {len(self.jobs)} of {self.all_jobs} jobs, {cost}" if self.jobs else "no jobs to run"
        if new and not written:
            folder = self.between.study.file.parent
            yield f"nothing was written; leave out --dry-run to write the new variants to {folder}"
            return
        if new:
            yield from (f"wrote {variant.file}" for variant in self.new)
        words = shlex.join([f"study={self.between.study.name}", *self.given])
        yield f"next: snakemake --cores all --config {words}"

    def answer_lines(self) -> Iterator[str]:
        """Yield the answer as a sentence, and tables of the effects from which it follows."""
        answer, between = self.answer, self.between
        assert answer is not None
        whole, items = " ".join(_numbers_shown([answer.total])[0]), counted(answer.items, "item")
        yield f"{between.study.name}: {between.a} -> {between.b} {whole}, {counted(answer.seeds, 'seed')} with {items}"
        yield paragraph(answer.in_words(self.factors))
        joint = [part for part in answer.joint if len(part.sets[0]) > 1]
        alone = [part for part in answer.joint if len(part.sets[0]) == 1]
        yield from ("", *_table("part of", answer.parts, self.factors, with_shares=True))
        if len(self.factors) in range(3, FULL + 1):
            yield from ("", *_table("main effect of", alone, self.factors))
        if joint:
            yield from ("", *_table("interaction of", joint, self.factors))
        if len(self.factors) > FRACTION:
            yield from (
                "",
                "each line shows what a group of factors, or one factor, adds to the factors above it; effects that "
                "cancel each other within a group are not visible",
            )


def _numbers_shown(parts: Sequence[Part]) -> list[tuple[str, str]]:
    decimals = decimals_for((part.effect for part in parts), (half(part.low, part.high) for part in parts))
    return [estimate(part.effect, part.low, part.high, decimals) for part in parts]


def _table(head: str, parts: Sequence[Part], factors: Sequence[str], *, with_shares: bool = False) -> list[str]:
    """Return a table as aligned lines, with a line per effect; `with_shares` adds the shares of the total effect."""
    rows = [[head, "effect", "interval", "p", *(("share", "") if with_shares else ())]]
    for part, numbers in zip(parts, _numbers_shown(parts), strict=True):
        name = group_name(part, factors) if with_shares else part.name(factors)
        row = [name, *numbers, p_value(part.p)]
        if with_shares:
            share_known = is_number(part.share)
            row += [percent(part.share), shares(part.share_low, part.share_high)] if share_known else ["-", ""]
        rows.append(row)
    return aligned(rows, [column > 0 for column in range(len(rows[0]))])


def _print_json(explained: _Explained, *, written: bool) -> None:
    rows: list[dict[str, Any]] = []
    answer = explained.answer
    for kind, parts in (("part", answer.parts), ("joint", answer.joint)) if answer else ():
        name = group_name if kind == "part" else Part.name
        rows += [{"kind": kind, "factors": name(part, explained.factors), **_numbers(part)} for part in parts]
    more: dict[str, Any] = {"answer": None, "total": None}
    if answer:
        more = {"answer": answer.in_words(explained.factors), "total": _numbers(answer.total)}
    variants = {
        variant.name: {"as_in_b": [explained.factors[index] for index in sorted(run)], "new": variant in explained.new}
        for run, variant in explained.runs.items()
    }
    more |= {"factors": explained.factors, "variants": variants, "jobs": len(explained.jobs), "hours": explained.hours}
    print_json("explain", rows, **more, jobs_of_unknown_cost=explained.unknown, written=written)


def _numbers(part: Part) -> Mapping[str, Any]:
    values = {name: value for name, value in vars(part).items() if name != "sets"}
    return {name: value if isinstance(value, bool) or is_number(value) else None for name, value in values.items()}
