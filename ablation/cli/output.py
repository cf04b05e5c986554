"""The commands `tables`, `figures`, `check-paper`, `export` and `export-tables`, which need results."""

import argparse
from pathlib import Path

from ablation.cli.common import add_shared, claimed_reports, open_store, print_json, print_paths, results_folder
from ablation.contract.errors import ConfigError
from ablation.contract.extras import need


def declare_tables(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `tables`."""
    parser.description = (
        "Write each study's table as Markdown, CSV, LaTeX and HTML, a table by subset as CSV and LaTeX, and runs.csv."
    )
    add_shared(parser, "--results", "--reports")
    text = "write only a table with a row for each value of this configuration key (by-KEY.md, .csv, .tex, .html)"
    parser.add_argument("--by", metavar="KEY", help=text)
    text = "also write numbers.tex, with a LaTeX macro for each number"
    parser.add_argument("--macros", action="store_true", help=text)


def run_tables(arguments: argparse.Namespace) -> int:
    """Write the tables of the studies or, with `--by`, tables by the values of one key; print their paths."""
    from ablation.show.table_files import render_groups, render_tables
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    reports = claimed_reports(arguments)
    if not arguments.by:
        return print_paths(render_tables(database, reports, macros=arguments.macros))
    if arguments.macros:
        raise ConfigError("tables", "--macros", None, "cannot be combined with --by", "leave one out")
    return print_paths(render_groups(database, reports, arguments.by))


def declare_figures(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `figures`."""
    parser.description = "Draw each study's forest plot, learning curves, primary metric and variant tree."
    add_shared(parser, "--results", "--reports")
    add, kinds = parser.add_argument, ("svg", "pdf", "png")
    add("--format", nargs="+", choices=kinds, default=["svg", "pdf"], help="file formats (default: svg pdf)")
    add("--style", type=Path, metavar="FILE", help="a matplotlib style sheet to apply on top of the tracker's own")
    text = "compare each variant in the forest plot with its parent (default) or with the root"
    add("--against", choices=("parent", "root"), default="parent", help=text)
    text = "order of the forest plot's rows: as in the variant tree (default), or the largest effect first"
    add("--sort", choices=("tree", "effect"), default="tree", help=text)


def run_figures(arguments: argparse.Namespace) -> int:
    """Draw the figures; print their paths."""
    need("matplotlib", "`ablation figures`")
    from ablation.show.figures import render_figures
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    reports = claimed_reports(arguments)
    rows = {"against": arguments.against, "order": arguments.sort}
    return print_paths(render_figures(database, reports, arguments.format, arguments.style, **rows))


def declare_check_paper(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `check-paper`."""
    parser.description = "Check that the numbers that a paper inputs from `tables --macros` still match the results."
    add_shared(parser, "--results", "--json")
    parser.add_argument("paper", metavar="PAPER.tex", type=Path, help="the main file of the paper")


def run_check_paper(arguments: argparse.Namespace) -> int:
    """Print the numbers that do not match, and how many match; the exit status is 1 if any does not match."""
    from ablation.show.table_files import all_numbers, check_paper

    with open_store(results_folder(arguments), strict=True) as store:
        checked = check_paper(arguments.paper, all_numbers(store))
    if arguments.json:
        print_json("check-paper", [{"problem": problem} for problem in checked.problems], matching=checked.matching)
    else:
        for problem in checked.problems:
            print(problem)
        total = checked.matching + len(checked.problems)
        print(f"{arguments.paper}: {checked.matching} of {total} numbers match the results")
    return 1 if checked.problems else 0


def declare_export(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `export`."""
    parser.description = "Copy a model of a run as a Hugging Face folder."
    parser.epilog = (
        "examples:\n"
        "  ablation export gad d-final --output DIR                       the final student\n"
        "  ablation export gad d-final --part critic --step 40 --output DIR\n"
        "  ablation export --from results/stages/gspo/reinforce/KEY/checkpoint --hf-model BASE --output DIR"
    )
    add_shared(parser, "--results")
    add = parser.add_argument
    add("study", metavar="STUDY", nargs="?")
    add("variant", metavar="VARIANT", nargs="?")
    add("--seed", type=int, help="seed of the run (default: the plan's first seed)")
    add("--part", metavar="NAME", help="another model of the stage, such as `critic` (default: the trained model)")
    add("--stage", metavar="STAGE", help="stage that wrote the model (default: the last stage that wrote one)")
    add("--step", type=int, help="step of a kept checkpoint (`keep_checkpoints`); default: the end of the stage")
    add("--from", dest="source", type=Path, metavar="DIR", help="export the model in this folder instead of a run's")
    text = "folder with the config and tokenizer, if they are not beside the weights"
    add("--hf-model", type=Path, metavar="DIR", help=text)
    text = "type of the exported weights (default: the type of the model's weights)"
    add("--precision", choices=("float32", "bfloat16", "float16"), help=text)
    add("--output", type=Path, required=True, metavar="DIR", help="a new or empty folder")


def run_export(arguments: argparse.Namespace) -> int:
    """Copy one model, and print the folder from which it was copied."""
    from ablation.store.export import export, find_model

    if arguments.source is None and arguments.variant is None:
        remedy = "name STUDY and VARIANT, or pass a folder with --from"
        raise ConfigError("export", "VARIANT", None, "is missing", remedy)
    of_run = {"STUDY": "study", "VARIANT": "variant", "--seed": "seed"}
    of_run |= {"--part": "part", "--stage": "stage", "--step": "step", "--results": "results"}
    for option, name in of_run.items():
        if arguments.source is not None and (value := getattr(arguments, name)) is not None:
            value = str(value) if isinstance(value, Path) else value
            raise ConfigError("export", option, value, "cannot be combined with --from", "leave one out")
    model = arguments.source or find_model(
        results_folder(arguments),
        arguments.study,
        arguments.variant,
        arguments.seed,
        part=arguments.part,
        stage=arguments.stage,
        step=arguments.step,
    )
    options = [("--hf-model", arguments.hf_model), ("--precision", arguments.precision)]
    status = export(model, arguments.output, *(word for name, value in options if value for word in (name, str(value))))
    if status == 0:
        print(f"{arguments.output}: exported from {model}")
    return status


def declare_export_tables(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `export-tables`."""
    parser.description = "Write each table and view of the database as a Parquet file."
    add_shared(parser, "--results")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new or empty folder")


def run_export_tables(arguments: argparse.Namespace) -> int:
    """Write the tables as Parquet files; print their paths."""
    from ablation.store.current import load_or_collect
    from ablation.store.export import export_tables

    return print_paths(export_tables(load_or_collect(results_folder(arguments)), arguments.output))
