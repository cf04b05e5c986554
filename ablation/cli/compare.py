"""The command `compare`: judge evaluations that other tools wrote; this needs no project."""

import argparse
import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from ablation.cli.common import REQUIREMENTS, add_shared, print_gated, print_json, terminal_width
from ablation.config.formats import formats_of
from ablation.contract.display import no_formula
from ablation.contract.errors import ConfigError
from ablation.judge.compare.comparison import ComparisonResult
from ablation.judge.compare.groups import Files, Options, expand, read_group, sides_of
from ablation.judge.compare.options import compare_evaluations
from ablation.judge.measurements import runs_named
from ablation.readers.sheet import Errors, Wanted
from ablation.show.comparison import as_rows, in_words, write_comparison

if TYPE_CHECKING:
    from ablation.show.gated import Gated

# Options that a study file contains instead.
_OF_FILES = ["metric", "item", "filter", "cluster", "tasks", "margin", "direction", "seed_from", "seeds", "claim"]
_OF_FILES += ["at", "weight", "pass_at", "cons_at", "all_at", "transform", "errors"]
_OPTIONS = [*_OF_FILES, "without", "allow", "common_items", "latest", "changed_items"]


def declare_compare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `compare`."""
    parser.description = (
        "Compare evaluations that other tools wrote: verdict, effect, interval, p, and the items that changed most.\n"
        "Folders are searched; patterns in quotes are expanded."
    )
    parser.epilog = "\n".join(["formats:", *(f"  {each.title}" for each in formats_of("compare").values())])
    add = parser.add_argument
    text = "evaluations of the baseline; without --with or --by, each evaluation is a separate system"
    add("files", nargs="*", metavar="A", help=text)
    add("--with", nargs="+", dest="other", metavar="B", default=[], help="evaluations of the candidate")
    text = "column, or setting such as `model`, whose values are the systems to compare; NAME,NAME combines two"
    add("--by", metavar="NAME", help=text)
    add("--all-pairs", action="store_true", help="compare every pair of systems, instead of each system with the first")
    add("--study", type=Path, metavar="FILE", help="a YAML file that lists variants and the files of each")
    text = "names for the systems; with --by, the values to compare (default: all)"
    add("--names", nargs="+", metavar="NAME", help=text)
    text = "metric or column of a table to compare (default: the first metric, or the column `value`)"
    add("--metric", metavar="NAME", help=text)
    add("--item", metavar="NAME", help="the column that names a table's items (default: `item`)")
    add("--pass-at", type=int, metavar="K", help="compare the chance that at least one of K samples is right (pass@K)")
    add("--cons-at", type=int, metavar="K", help="compare the chance that most of K samples are right (majority vote)")
    add("--all-at", type=int, metavar="K", help="compare the chance that all of K samples are right (pass^K)")
    text = "log: compare the logarithms of the values, which must be above 0; 0.05 is then a difference of about 5%%"
    add("--transform", choices=("log",), help=text)
    add("--filter", metavar="NAME", help="lm-eval filter (default: the first)")
    add("--cluster", metavar="doc.FIELD", help="lm-eval field that is equal in correlated items, such as a passage")
    add("--tasks", nargs="+", metavar="TASK", default=[], help="compare only these tasks (default: all)")
    add("--weight", choices=("tasks", "items"), help="give tasks or items equal weight in the effect (default: tasks)")
    text = "max, min or target:0.5 (default: as the files state, or as the name of a well-known metric implies)"
    add("--direction", metavar="D", help=text)
    add("--margin", type=float, metavar="M", help="the smallest difference that matters; required by --require")
    add("--at", metavar="NAME", help="read only files or folders with this name, such as checkpoint-2000")
    text = (
        "paired: runs with the same seed share their data order or initialisation; independent: runs share "
        "nothing (default: paired if all files name seeds)"
    )
    add("--seeds", choices=("paired", "independent"), help=text)
    text = (
        "whether verdicts are about the recipe (all seeds) or only about these checkpoints "
        "(default: checkpoints if each side has only one run)"
    )
    add("--claim", choices=("recipe", "checkpoints"), help=text)
    text = "regular expression whose group matches the seed in a path, such as 'run(\\d+)'"
    add("--seed-from", metavar="REGEX", help=text)
    text = (
        "prompt, target, task: accept this difference, because it is what you are testing; identical: accept systems "
        "with equal values; scale: accept values on different scales"
    )
    add("--allow", nargs="+", choices=("prompt", "target", "task", "identical", "scale"), default=[], help=text)
    text = (
        "if items have no value because of an error: refuse the comparison (refuse, the default), count these items "
        "as 0 (fail), or leave them out on both sides (leave-out)"
    )
    add("--errors", choices=get_args(Errors), help=text)
    add("--common-items", action="store_true", help="leave out items that are missing from any run")
    add("--latest", action="store_true", help="if a run has several evaluations, read only the newest file")
    text = "how many improved and how many worsened items to show (default: 3 each)"
    add("--changed-items", type=int, default=3, metavar="N", help=text)
    add("--output", type=Path, metavar="FILE", help="also write the report page to this file")
    text = "exit as `gate` does: with 0 only if every comparison meets this requirement (docs/how-to/gate.md)"
    add("--require", choices=REQUIREMENTS, help=text)
    add_shared(parser, "--without", "--markdown")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print every column of verdicts as CSV, at full precision")
    add_shared(shape, "--json")


def run_compare(arguments: argparse.Namespace) -> int:
    """Print the verdicts; with --output, also write the report page."""
    if arguments.markdown and (arguments.csv or arguments.json):
        raise ConfigError("compare", "--markdown", None, "cannot be combined with --csv or --json", "leave one out")
    result = _from_study(arguments) if arguments.study else _from_files(arguments)
    if arguments.require and result.unstated:
        raise result.unstated[0]
    if arguments.require and result.doubts:
        remedy = "correct the files, the margin or the direction; without --require, this problem is only a warning"
        raise ConfigError("compare", "--require", arguments.require, result.doubts[0], remedy)
    gated = _gated(result, arguments.require) if arguments.require or arguments.markdown else None
    if arguments.output:
        write_comparison(result, arguments.output)
    if arguments.csv:
        from ablation.judge.verdicts import comparison_rows

        rows = comparison_rows(compared.comparison for compared in result.compared)
        print(rows.map(no_formula).to_csv(index=False), end="")
    elif arguments.json:
        board = {"leaderboard": [asdict(each) for each in result.leaderboard]} if result.leaderboard else {}
        print_json("compare", as_rows(result), **board, notes=result.notes)
    elif gated and arguments.markdown:
        print_gated(gated, markdown=True)
    else:
        print(in_words(result, terminal_width()))
        if gated:
            print()
            print_gated(gated, markdown=False)
    return gated.status if gated and arguments.require else 0


def _gated(result: ComparisonResult, required: str | None) -> "Gated":
    from ablation.judge.gate import answers
    from ablation.show.gated import Gated

    comparisons = [compared.comparison for compared in result.compared]
    answered = answers(result.measured, comparisons, required or "not-worse", comparisons)
    return Gated(result.measured, required, answered, doubts=[*result.turned, *result.doubts])


def _from_files(arguments: argparse.Namespace) -> ComparisonResult:
    by = [name.strip() for name in (arguments.by or "").split(",") if name.strip()]
    if by and arguments.other:
        remedy = "name all files before --by, without --with"
        raise ConfigError("compare", "--by", arguments.by, "cannot be combined with --with", remedy)
    if arguments.other or by:
        sides = [expand(words) for words in (arguments.files, arguments.other) if words]
    else:
        sides = sides_of(arguments.files)
    if len(sides) < 2 and not (by and sides):
        raise _needs_two(sides[0] if sides else Files(()), Wanted(arguments.metric, item=arguments.item))
    options = {name: getattr(arguments, name) for name in _OPTIONS}
    return compare_evaluations(sides, arguments.names, by=by, all_pairs=arguments.all_pairs, **options)


def _needs_two(side: Files, wanted: Wanted) -> ConfigError:
    """Return the error for a single side. Raises ConfigError if its file holds several systems."""
    remedy = "pass A B ..., A... --with B..., FILE --by COLUMN, or --study FILE"
    if len(side.paths) == 1:
        read_group("it", side, Options(replace(wanted, errors="leave-out")))
    elif side.paths:
        common = os.path.commonpath(side.paths)
        suffixes = {path.suffix if path.parent == Path(common) else "" for path in side.paths}
        each = shlex.quote(f"{common}/*{suffixes.pop() if len(suffixes) == 1 else ''}")
        several = f"to compare the {len(side.paths)} evaluations in this folder, run `ablation compare {each}`"
        remedy = f"{several}; otherwise, {remedy}"
    return ConfigError("compare", "", None, "needs two evaluations, or a study file", remedy)


def _from_study(arguments: argparse.Namespace) -> ComparisonResult:
    from ablation.judge.compare.study_file import compare_study

    given = [
        f"--{name.replace('_', '-')}"
        for name in ["names", "by", *_OF_FILES]
        if getattr(arguments, name) not in (None, [])
    ]
    given += ["--all-pairs"] if arguments.all_pairs else []
    if arguments.files or arguments.other or given:
        problem = f"cannot be combined with {', '.join(given) or 'files on the command line'}"
        raise ConfigError(
            "compare", "--study", str(arguments.study), problem, "write the files and options into the study file"
        )
    return compare_study(
        arguments.study,
        allow=frozenset(arguments.allow),
        without=runs_named("compare", arguments.without),
        common_items=arguments.common_items,
        latest=arguments.latest,
        changed_items=arguments.changed_items,
    )
