"""Options that several commands share."""

import argparse
from pathlib import Path
from typing import Any


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add `--results`."""
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help="results folder (default: from configs/config.yaml)"
    )


def add_reports(parser: argparse.ArgumentParser) -> None:
    """Add `--reports`."""
    parser.add_argument(
        "--reports", type=Path, metavar="DIR", help="reports folder (default: from configs/config.yaml)"
    )


def add_configs(parser: argparse.ArgumentParser) -> None:
    """Add `--scale` and `--config`."""
    parser.add_argument("--scale", help="use configs/scales/SCALE.yaml (default: from configs/config.yaml)")
    said = "override a setting, as for snakemake"
    parser.add_argument("--config", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=said)


def add_study(parser: argparse.ArgumentParser) -> None:
    """Add an optional STUDY."""
    parser.add_argument("study", nargs="?", metavar="STUDY", help="only this study (default: all)")


def add_pair(parser: argparse.ArgumentParser) -> None:
    """Add variants A and B of one study."""
    parser.add_argument("a", metavar="A", help="the baseline: STUDY/VARIANT, or VARIANT if only one study has both")
    parser.add_argument("b", metavar="B", help="the candidate, written the same way")
    parser.add_argument("--study", help="the study of both, instead of STUDY/")
    add_results(parser)


def add_json(parser: Any) -> None:
    """Add `--json` to a parser, or to a group of options that exclude each other."""
    parser.add_argument("--json", action="store_true", help="print JSON with every value (docs/reference/python.md)")


def add_requirement(parser: argparse.ArgumentParser, text: str) -> None:
    """Add what a gate asks of every comparison."""
    parser.add_argument("--require", choices=("not-worse", "better", "equivalent"), help=text)
    allowed = "runs that may be missing or failed; the other variant's run with that seed is left out as well"
    parser.add_argument("--without", nargs="+", metavar="VARIANT:SEED", default=[], help=allowed)
    said = "print Markdown, and append it to the file that GITHUB_STEP_SUMMARY names"
    parser.add_argument("--markdown", action="store_true", help=said)
