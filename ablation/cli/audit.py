"""The command `audit`: check a study's published numbers against arithmetic and its results, or check any table."""

import argparse
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from ablation.audit.reproduction import Measured
from ablation.cli.common import add_shared, open_store, print_json, results_folder
from ablation.config.names import suggest
from ablation.config.published_schema import PublishedFile
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted

OF_A_TABLE = ("items", "target", "runs", "percent", "columns")


def declare_audit(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `audit`."""
    parser.description = (
        "Check whether a study's published numbers are possible, consistent and larger than chance, and compare them "
        "with its results. With --table, check any table."
    )
    add_shared(parser, "--results")
    add = parser.add_argument
    add("study", nargs="?", metavar="STUDY", help="a study, or the name of a file in configs/published")
    text = "a CSV file to check instead of STUDY; its first column names the rows"
    add("--table", type=Path, metavar="FILE", help=text)
    text = "number of evaluation items: one for all columns except the mean, one per column, or NAME=N for some columns"
    add("--items", nargs="+", metavar="N", help=text)
    add("--target", metavar="RATE", help="target rate, such as 0.5, if the numbers are distances from it")
    add("--runs", type=int, metavar="N", help="number of training runs over which each number is averaged")
    add("--percent", action="store_true", help="the numbers are percentages without a %% sign")
    add_shared(parser, "--json")
    add("--columns", nargs="+", metavar="NAME", help="check only these columns (default: all)")


def run_audit(arguments: argparse.Namespace) -> int:
    """Print one sentence for each finding; return 1 if any finding is an error, else 0."""
    if (arguments.table is None) == (arguments.study is None):
        problem, remedy = "is missing", "name a study, or pass --table FILE.csv"
        if arguments.study is not None:
            problem, remedy = "cannot be combined with --table", "leave one out"
        raise ConfigError("audit", "STUDY", arguments.study, problem, remedy)
    if arguments.table is not None:
        if arguments.results is not None:
            raise ConfigError("audit", "--results", None, "cannot be combined with --table", "leave one out")
        return _audit_table(arguments)
    if given := [name for name in OF_A_TABLE if getattr(arguments, name) not in (None, False)]:
        remedy = "leave it out, or write the value into configs/published/<name>.yaml"
        raise ConfigError("audit", f"--{given[0]}", None, "works only with --table", remedy)
    file, published = _published(arguments.study)
    return _print(arguments, str(file), published, _ours(arguments, published))


def _audit_table(arguments: argparse.Namespace) -> int:
    from ablation.config.published_table import read_table

    if arguments.runs is not None and arguments.runs < 1:
        raise ConfigError("audit", "--runs", arguments.runs, "is below 1", "pass a number of at least 1")
    table = read_table(
        arguments.table,
        items=arguments.items or (),
        target=arguments.target,
        runs=arguments.runs,
        percent=arguments.percent,
        columns=arguments.columns or (),
    )
    return _print(arguments, str(arguments.table), table, None)


def _published(study: str) -> tuple[Path, PublishedFile]:
    from ablation.config.published_schema import load_published
    from ablation.config.yaml_io import load_yaml

    configs = Path("configs")
    study_file = configs / "studies" / study / "_study.yaml"
    name = (load_yaml(study_file).get("published") if study_file.exists() else None) or study
    file = configs / "published" / f"{name}.yaml"
    if not file.exists():
        known = sorted(path.stem for path in file.parent.glob("*.yaml"))
        remedy = suggest(name, known, "files in configs/published")
        raise ConfigError("audit", "STUDY", study, "has no published numbers", remedy)
    return file, load_published(file)


def _ours(arguments: argparse.Namespace, published: PublishedFile) -> Measured | None:
    results = results_folder(arguments)
    if not (results / "plan.json").exists():
        return None
    # late: importing the database takes a second, and checking a table does not need it
    from ablation.audit.measured import measured, published_value
    from ablation.judge.stored import read_measurements

    with open_store(results) as store:
        if arguments.study not in store.studies():
            return None
        value = published_value(store, arguments.study, published)
        return measured(store, read_measurements(store, arguments.study, value), published)


def _print(arguments: argparse.Namespace, what: str, published: PublishedFile, measured: Measured | None) -> int:
    from ablation.audit import audit

    findings = audit(published, measured)
    if arguments.json:
        print_json("audit", map(asdict, findings), file=what)
    else:
        for finding in findings:
            print(f"{finding.severity:5}  {finding.kind:13}  {finding.sentence}")
        counts: Counter[str] = Counter(finding.severity for finding in findings)
        nouns = {"error": "error", "warn": "warning", "note": "note"}
        print(f"{what}: {', '.join(counted(counts[severity], noun) for severity, noun in nouns.items())}")
    return int(any(finding.severity == "error" for finding in findings))
