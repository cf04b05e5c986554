"""The command `publish`: the report page as a folder for Hugging Face Spaces."""

import argparse
import json
import shlex
from pathlib import Path

from ablation.cli.common import open_store, results_folder
from ablation.cli.options import add_results
from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.show.page.content import read_page
from ablation.show.page.render import draw

_MARK = b'<meta name="generator" content="ablation-tracker">'
_SPACE = """---
title: {title}
sdk: static
app_file: index.html
pinned: false
---

A report page of {studies}, made by `ablation publish`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Write the report page as a folder for Hugging Face Spaces. Nothing is uploaded."
    add_results(parser)
    said = "where index.html goes, and a README.md if it has none"
    parser.add_argument("--output", type=_named, required=True, metavar="DIR", help=said)


def run(arguments: argparse.Namespace) -> int:
    """Write the page and the front matter of a Space; a README that is there stays. Print how to upload it.

    Raises ConfigError where the folder holds another page.
    """
    folder: Path = arguments.output
    page_file = folder / "index.html"
    if page_file.exists() and _MARK not in page_file.read_bytes():
        raise ConfigError(page_file, "", None, "is not a page of ours", "name another folder, or move the file away")
    with open_store(results_folder(arguments)) as store:
        page = read_page(store)
    write_text(page_file, draw(page))
    if not (folder / "README.md").exists():
        titles = [study.name for study in page.studies]
        title = json.dumps(titles[0] if len(titles) == 1 else f"{len(titles)} studies")  # as YAML takes it
        write_text(folder / "README.md", _SPACE.format(title=title, studies="; ".join(titles)))
    print(f"{folder}: to upload it: hf upload USER/SPACE {shlex.quote(str(folder))} . --repo-type space")
    return 0


def _named(text: str) -> Path:
    """A path that is not empty, as a variable without a value is."""
    if not text:
        raise argparse.ArgumentTypeError("the name is empty; write . for this folder")
    return Path(text)
