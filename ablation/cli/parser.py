"""The command line's parser: every command with its arguments, and the function that runs it.

The function is named, not imported: a command imports only what it uses, and `--help` nothing.
"""

import argparse
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ablation.config.formats import formats_of

_Commands = Any  # argparse gives the type of `add_subparsers` no public name


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m ablation`; each command sets `run`, `module:function` of the parsed arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m ablation",
        description="What changed between two variants, whether it helped, and whether to believe it.",
    )
    parser.add_argument("--version", action="version", version=f"ablation-tracker {_version()}")
    parser.add_argument("--parent", type=int, help="process id of the caller, with which this process ends")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    init = _add(commands, "init", "configs", "A project of your own: one study of one command, and a Snakefile.")
    init.add_argument(
        "folder", metavar="DIR", type=Path, nargs="?", default=Path(), help="a new folder (default: this)"
    )
    _configurations(commands)
    _results(commands)
    _imports(commands)
    _models(commands)
    _judgement(commands)
    return parser


def _version() -> str:
    try:
        return version("ablation-tracker")
    except PackageNotFoundError:
        return "(not installed)"


def _configurations(commands: _Commands) -> None:
    """Add validate, check, variants, show, diff, fit. But for `check` none needs a result or a GPU."""

    def add(name: str, text: str) -> argparse.ArgumentParser:
        parser = _add(commands, name, "configs", text)
        _add_configs(parser)
        return parser

    validate = add("validate", "Check every variant of every study, and count jobs.")
    validate.add_argument("--write-schema", action="store_true", help="also write configs/schema/*.json for editors")
    check = _add(
        commands,
        "check",
        "check",
        "Run one variant with one seed in a folder of its own, read what it leaves, and say what does not fit.",
        "None of it counts for the grid. Exit status 1 if a stage fails, its files cannot be read, or the study "
        "names what nothing has logged. PAPER.tex: say which of its numbers (`tables --macros`) no longer match the "
        "results; exit status 1 where any does not.",
    )
    check.add_argument("study", metavar="STUDY[/VARIANT]", help="default: the first variant; or a PAPER.tex")
    _add_configs(check)
    _add_results(check)
    prune = _add(
        commands,
        "prune",
        "results",
        "Remove stages that no plan and no database needs any more; without --yes only list them.",
        "A stage is needed by the current configurations, by the plan that was started last, and by the "
        "database that tables and gate are made from.",
    )
    prune.add_argument("--yes", action="store_true", help="remove them")
    _add_configs(prune)
    variants = add("variants", "The lineage of a study: what each variant changes, and why.")
    variants.add_argument("study", metavar="STUDY")
    _add_json(variants)
    show = add("show", "The resolved configuration of one variant, as YAML.")
    show.add_argument(
        "variant", metavar="STUDY/VARIANT", help="STUDY/ may be left out where one study has such a variant"
    )
    fit = _add(
        commands,
        "fit",
        "fit",
        "What each stage holds in memory, per device and on the machine, next to what is declared and measured.",
        "In GiB. held: from the first step to the last; one row: the least that a stage can run in; configured: with "
        "its batches as they are; halved: it runs, in smaller parts. Exit status 1 where a stage cannot fit.",
    )
    _add_study(fit)
    fit.add_argument("--device-memory", type=float, metavar="GIB", help="of one device (default: as declared)")
    _add_json(fit)
    _add_configs(fit)
    compare = add("diff", "What variant B changes with respect to variant A; where there are results, also the effect.")
    _pair(compare)
    _add_json(compare)
    which = _add(
        commands,
        "explain",
        "explain",
        "Which of the changes between A and B carry the effect: what it costs to know, then the answer.",
        "Up to four factors all combinations are tried, up to eight 16 of them, beyond that groups, which are halved.",
    )
    _add_configs(which)
    _pair(which)
    _add_json(which)
    which.add_argument("--yes", action="store_true", help="write the variants that are missing into the study's folder")


def _pair(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="the old one: STUDY/VARIANT, or VARIANT where one study has both")
    parser.add_argument("b", metavar="B", help="the new one, likewise")
    parser.add_argument("--study", help="the study of both, instead of STUDY/")
    _add_results(parser)


def _results(commands: _Commands) -> None:
    def add(name: str, text: str, epilog: str | None = None) -> argparse.ArgumentParser:
        parser = _add(commands, name, "results", text, epilog)
        _add_results(parser)
        return parser

    status = add("status", "Progress of each study, what runs, what failed, and the time left.")
    _add_json(status)
    status.add_argument("--watch", action="store_true", help="again and again until all is done; stop with Ctrl-C")
    add("collect", "Bring the DuckDB file up to date with the stage folders; it is replaced when the new one is done.")
    merge = add(
        "merge",
        "Add the stages of another results folder, such as another site's half of the grid.",
        "Stages have the same key if they were made from the same. A key that ended well in both with different items, "
        "weights or metrics is an error, and nothing is added. Statuses are dated as written now.",
    )
    merge.add_argument("other", metavar="OTHER_RESULTS", type=Path)
    merge.add_argument("--site", help="its name, for the provenance of the stages (default: the folder's path)")
    tables = add(
        "tables",
        "Write each study's table as Markdown, CSV, LaTeX and HTML, the same by subset as CSV and LaTeX, and runs.csv.",
    )
    tables.add_argument(
        "--by", metavar="KEY", help="instead: a row per value of this configuration key (by-KEY.md, .csv, .tex, .html)"
    )
    tables.add_argument("--macros", action="store_true", help="a LaTeX macro for each number, defined in numbers.tex")
    figures = add("figures", "Draw each study's learning curves, primary metric and lineage.")
    for command in (tables, figures):
        command.add_argument("--reports", type=Path, help="folder that they go into (default: likewise)")
    kinds = ("svg", "pdf", "png")
    figures.add_argument("--format", nargs="+", choices=kinds, default=["svg"], help="of the files (default: svg)")
    sql = add(
        "sql",
        "Query the database. It is opened read-only and can reach no other file.",
        "tables: studies, variants, runs, results, curves, items, stages, metrics, health, published; see "
        "docs/explanation/architecture.md. Example: "
        'python -m ablation sql "select variant, avg(value) from results where '
        "metric = 'edited/mean/ss_distance' group by all order by all\"",
    )
    sql.add_argument("query", metavar="QUERY", help="one SQL statement, or - to read it from stdin")
    shape = sql.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print CSV at full precision")
    _add_json(shape)
    origin = _add(
        commands,
        "trace",
        "trace",
        "Where a number of a table comes from: runs, keys, commit, uncommitted changes, and how to run it again.",
    )
    _add_results(origin)
    _add_json(origin)
    origin.add_argument("table", metavar="TABLE", help="a study, or a file of its tables")
    origin.add_argument("row", metavar="ROW", help="a variant, or the first row")
    origin.add_argument("column", metavar="COLUMN", help="a heading, or any final metric")
    board = add("tensorboard", "Write the metrics as event files, and start TensorBoard on them.")
    _add_study(board)
    board.add_argument("--to", type=Path, metavar="FOLDER", help="of the event files (default: RESULTS/tensorboard)")
    board.add_argument("--port", type=int, default=6006, help="default: 6006; 0 takes a free one")


def _imports(commands: _Commands) -> None:
    formats = formats_of("import") | formats_of("ledger")
    bring = _add(
        commands,
        "import",
        "imports",
        "Read runs that other programs logged; without --yes show what they are, and write nothing.",
        f"formats: {', '.join(f'{name} ({each.title})' for name, each in formats.items())}. Example: "
        "ablation import trainer_state runs/ --study lr --metric eval_loss --direction min --margin 0.01",
    )
    add = bring.add_argument
    _add_results(bring)
    add("format", metavar="FORMAT", help="what wrote the runs")
    add("paths", metavar="PATH", nargs="+", type=Path, help="files or folders")
    add("--study", metavar="S", help="name of the imported study, or its study.yaml")
    add("--sd", type=float, metavar="SD", help="of a ledger: standard deviation of one run (default: of its repeats)")
    add(
        "--map",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="seed=, variant= (a key of the configuration, or name:REGEX), parents.VARIANT=, ignore=, leave_out=, "
        "allow=prompt, metrics.NEW=, study=: docs/how-to/import.md",
    )
    add("--metric", nargs="+", metavar="NAME", help="the final metric that decides")
    add("--items", nargs="+", metavar="P/S/N", help="the items that decide: protocol/subset/name")
    add("--direction", metavar="D", help="max, min or target=0.5")
    add("--margin", type=float, metavar="M", help="a smaller difference does not matter")
    add(
        "--at",
        "--step",
        metavar="STEP",
        help="the step of final metrics: last, best, common (the last that all runs logged), or a number; default: "
        "that of the model that was kept, if that is known, else the last",
    )
    add("--yes", action="store_true", help="import it")


def _models(commands: _Commands) -> None:
    copy = _add(
        commands,
        "export",
        "results",
        "Copy a model of a run as a Hugging Face folder, or write the tables of the database as Parquet.",
        "python -m ablation export gad d-final --to DIR                        the final student\n"
        "python -m ablation export gad d-final --part critic --step 40 --to DIR\n"
        "python -m ablation export tables --to DIR\n"
        "python -m ablation export --from results/stages/gspo/reinforce/KEY/checkpoint --hf-model BASE --to DIR",
    )
    add = copy.add_argument
    _add_results(copy)
    add("study", metavar="STUDY", nargs="?")
    add("variant", metavar="VARIANT", nargs="?")
    add("--seed", type=int, help="default: the first of the plan")
    add("--part", metavar="NAME", help="another model than the trained one, as `critic`")
    add("--stage", metavar="STAGE", help="default: the last one that left it")
    add("--step", type=int, help="a kept step (keep_checkpoints); default: the end of the stage")
    add("--from", dest="source", type=Path, metavar="DIR", help="a folder instead of a run")
    add("--hf-model", type=Path, metavar="DIR", help="config and tokenizer, if not with the weights")
    add("--precision", choices=("float32", "bfloat16", "float16"), help="default: as the weights are")
    add("--to", type=Path, required=True, metavar="DIR", help="a folder that is new or empty")


def _judgement(commands: _Commands) -> None:
    def add(name: str, module: str, text: str) -> argparse.ArgumentParser:
        parser = _add(commands, name, module, text)
        _add_results(parser)
        return parser

    verdicts = add(
        "verdicts",
        "analysis",
        "Judge every comparison: better, worse, equivalent, undecided, confounded, invalid, not run.",
    )
    _add_study(verdicts)
    form = verdicts.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print every column as CSV, at full precision")
    _add_json(form)
    brief = "print one sentence for each study, as the report has them"
    form.add_argument("--brief", action="store_true", help=brief)
    merge = add(
        "gate",
        "gate",
        "May a study's changes merge: exit status 0 passed, 10 worse, 11 undecided, 12 invalid, 13 decided otherwise. "
        "Without STUDY: list what failed, diverged, is blocked or corrupt; exit status 1 if anything is.",
    )
    _add_json(merge)
    merge.add_argument("study", nargs="?", metavar="STUDY", help="whose comparisons are asked")
    merge.add_argument("comparisons", nargs="*", metavar="COMPARISON", help="CHILD or PARENT:CHILD (default: all)")
    _requirement(merge, "what every comparison must be (default: not worse)")
    identical = "identical: imported runs of both sides may have the same values"
    merge.add_argument("--allow", nargs="+", choices=("identical",), default=[], help=identical)
    nightly = merge.add_argument_group("one new run against the runs that there are (docs/how-to/nightly-gate.md)")
    nightly.add_argument("--reference", metavar="PAST", help="a folder of runs, or the CSV file that --update keeps")
    nightly.add_argument("--new", nargs="+", type=Path, metavar="RUN", help="the new run, then its reruns")
    nightly.add_argument(
        "--metric",
        nargs="+",
        metavar="NAME[:min]",
        help="what is watched: NAME (larger is better), NAME:min, NAME:both",
    )
    nightly.add_argument("--window", default="last", metavar="last:N", help="mean of the last N values (default: last)")
    nightly.add_argument("--update", action="store_true", help="append a run that passes to PAST")
    _audit(add("audit", "audit", "Check a study's published numbers, and compare them with ours; or check any table."))
    _plan(
        add(
            "plan",
            "plan",
            "How many seeds and items find an effect, and their cost: the smallest detectable effect of each size.",
        )
    )
    more = add(
        "decide", "analysis", "Add seeds to the comparisons that are undecided, until decided or the budget is used up."
    )
    _add_json(more)
    more.add_argument("study", metavar="STUDY")
    more.add_argument("--budget", type=float, required=True, metavar="HOURS", help="device-hours to spend at most")
    more.add_argument(
        "--dry-run", action="store_true", help="say what the next round would be, from the results there are"
    )
    more.add_argument("--cores", default="all", help="of snakemake (default: all)")
    more.add_argument("--gpus", type=int, help="the pool of accelerators (default: as in configs/config.yaml)")
    more.add_argument("--config", nargs="*", default=[], metavar="KEY=VALUE", help="of snakemake, such as scale=smoke")
    _compare(commands)
    page = add("report", "report", "Write the report page: one HTML file that opens offline.")
    page.add_argument("--reports", type=Path, help="folder that index.html goes into (default: likewise)")
    page.add_argument("--out", type=Path, metavar="FILE", help="another name for the page")
    page.add_argument(
        "--so-far",
        action="store_true",
        help="write nothing else, and only if something is still to run: as a grid does",
    )
    published = add(
        "publish", "report", "Write the report page as a folder for Hugging Face Spaces, without uploading it."
    )
    published.add_argument(
        "folder", type=_named, metavar="DIR", help="where index.html goes, and a README.md if it has none"
    )
    live = add(
        "serve", "report", "Show the report page in a browser of this machine, with what runs now; it follows the grid."
    )
    live.add_argument("--port", type=int, default=8642, help="default: 8642; 0 takes a free one")
    live.add_argument(
        "--every", type=float, default=30.0, metavar="SECONDS", help="redraw it at most this often (default: 30)"
    )


def _named(text: str) -> Path:
    """A path that is not empty, as a variable without a value is."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty; write . for this folder")
    return Path(text)


def _compare(commands: _Commands) -> None:
    """Add compare: evaluations that others wrote, without a project."""
    both = _add(
        commands,
        "compare",
        "compare",
        "Compare evaluations by others' tools: verdict, effect, interval, p, and the items that changed most.",
        f"formats: {'; '.join(each.title for each in formats_of('compare').values())}. Folders are searched; patterns "
        "in quotes are expanded.",
    )
    add = both.add_argument
    add("files", nargs="*", metavar="A", help="evaluations of one side, all seeds and tasks")
    add("--with", nargs="+", dest="other", metavar="B", default=[], help="of the side compared with it")
    add("--study", type=Path, metavar="FILE", help="a YAML file that names many variants and their files")
    add("--names", nargs=2, metavar=("A", "B"), help="what the sides are called (default: by their paths)")
    add("--metric", metavar="NAME", help="or the column of a table (default: the first, or `value`)")
    add("--item", metavar="NAME", help="the column that names a table's items (default: `item`)")
    add("--pass-at", type=int, metavar="K", help="compare the chance that any of K samples is right")
    add("--cons-at", type=int, metavar="K", help="compare the chance that most of K samples are right")
    add("--filter", metavar="NAME", help="of lm-eval's filters (default: the first)")
    add("--cluster", metavar="doc.FIELD", help="lm-eval's field that items which err together share, such as a passage")
    add("--tasks", nargs="+", metavar="TASK", default=[], help="only these (default: all in the files)")
    add("--weight", choices=("tasks", "items"), help="what counts equally in the effect (default: tasks)")
    add("--direction", metavar="WAY", help="max, min or target=0.5 (default: as the files say, else max)")
    add("--margin", type=float, help="what does not matter (default: a hundredth of the scale)")
    add("--at", metavar="NAME", help="only what lies in folders of this name: --at checkpoint-2000")
    share = "whether runs of one seed share something, or no runs do (default: paired where all files name seeds)"
    add("--seeds", choices=("paired", "independent"), help=share)
    about = "what the verdict is about (default: checkpoints where each side has one run)"
    add("--claim", choices=("recipe", "checkpoints"), help=about)
    add("--seed-from", metavar="REGEX", help="finds the seed in a path, in one group: 'run(\\d+)'")
    add(
        "--allow",
        nargs="+",
        choices=("prompt", "target", "task", "identical"),
        default=[],
        help="what may differ between the sides, being the change that is compared; identical: it may change no value",
    )
    add("--common-items", action="store_true", help="leave out items that some run does not have")
    add("--latest", action="store_true", help="of several evaluations of one run, take the newest file")
    add("--flips", type=int, default=3, metavar="N", help="items shown at each end (default: 3)")
    add("--page", type=Path, metavar="FILE", help="write the report page as well")
    _requirement(both, "end as `gate` does: 0 only if every pair is this (docs/how-to/gate.md)")
    shape = both.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print every column of the verdicts, at full precision")
    _add_json(shape)


def _requirement(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--require", choices=("not worse", "better", "equivalent"), help=text)
    allowed = "runs that may be missing or have failed; their seeds are left out on both sides"
    parser.add_argument("--without", nargs="+", metavar="VARIANT:SEED", default=[], help=allowed)
    said = "print the answers as Markdown, and append them to the file that GITHUB_STEP_SUMMARY names"
    parser.add_argument("--markdown", action="store_true", help=said)


def _plan(size: argparse.ArgumentParser) -> None:
    add = size.add_argument
    _add_json(size)
    add("study", nargs="?", metavar="STUDY", help="whose results tell the noise")
    add("comparisons", nargs="*", metavar="COMPARISON", help="CHILD or PARENT:CHILD (default: all)")
    add("--effect", type=float, required=True, metavar="E", help="the effect that is to be found")
    add("--power", type=float, default=0.8, metavar="P", help="with this probability (default: 0.8)")
    add("--pilot", nargs="+", type=Path, default=[], metavar="PATH", help="other results, or evaluations of two sides")
    add("--seed-sd", type=float, metavar="SD", help="of the difference of two runs, seed by seed, stated")
    add("--item-sd", type=float, metavar="SD", help="of that difference, item by item, over many seeds")
    said = "of the difference of two samples of an item, stated (default: estimated, if samples are right or wrong)"
    add("--sample-sd", type=float, metavar="SD", help=said)
    add("--checkpoint-sd", type=float, metavar="SD", help="of that of two runs, checkpoint by checkpoint")
    add("--family", type=int, default=1, metavar="N", help="comparisons of a stated noise (default: 1)")
    add("--seeds", type=int, nargs="+", metavar="N", help="rows of the table (default: 3 to 20, or looks)")
    add("--items", type=int, nargs="+", metavar="N", help="likewise (default: as many, 2 and 4 times)")
    add("--samples", type=int, nargs="+", metavar="N", help="likewise: of an item (default: as many)")
    add("--checkpoints", type=int, nargs="+", metavar="N", help="likewise: that are averaged (default: as many)")
    add("--hours", type=float, metavar="H", help="refuse if no plan finds the effect in so many")


def _audit(check: argparse.ArgumentParser) -> None:
    add = check.add_argument
    add("study", nargs="?", metavar="STUDY", help="a study, or the name of a file in configs/published")
    add("--table", type=Path, metavar="FILE", help="instead of STUDY: a CSV file, rows named in its first column")
    add("--items", metavar="N,N,...", help="evaluation items behind each column but the mean; one for all, or NAME=N")
    add("--target", metavar="RATE", help="the numbers are distances of a rate from it, as 0.5")
    add("--runs", type=int, metavar="N", help="number of training runs that a number is the mean of")
    add("--percent", action="store_true", help="the numbers are percentages without their sign")
    _add_json(check)
    add("--columns", metavar="NAME,...", help="only these columns (default: all)")


def _add(commands: _Commands, name: str, module: str, text: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Add the command that `run_<name>` in a module of `ablation.cli` runs."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, epilog=epilog)
    parser.set_defaults(run=f"ablation.cli.{module}:run_{name}")
    return parser


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", help="as sized by configs/scales/SCALE.yaml (show, diff: as declared by default)")
    parser.add_argument(
        "--config", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="as for snakemake"
    )


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", nargs="?", metavar="STUDY", help="only this study (default: all)")


def _add_json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print all of it as JSON (docs/reference/python.md)")


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, help="folder of plan and stages (default: as in configs/config.yaml)")
