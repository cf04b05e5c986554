"""Copy the documentation into build/site, with what is made for the site alone, from which `make site` builds HTML.

The folder mirrors the repository, so that the pages' links hold: it has all pages, the files that they link to, every
command's help, and the keys of every study.
"""

import re
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SITE = ROOT / "build/site"
sys.path[:0] = [str(ROOT), str(DOCS)]

from make_reference import key_pages  # noqa: E402

from ablation.cli.parser import GROUPS, build_parser  # noqa: E402


def pages() -> list[Path]:
    """Return the pages that are files of the repository."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")]
    return [*top, *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def made() -> dict[Path, str]:
    """Return path -> text of the pages that only the site has."""
    return {DOCS / "reference/commands.md": command_page(), **key_pages()}


def command_page() -> str:
    """Return the help of every command."""
    parser = build_parser()
    (commands,) = (action.choices for action in parser._actions if isinstance(action.choices, dict))
    lines = [(DOCS / "reference/commands.md").read_text(encoding="utf-8").rstrip(), ""]
    for names in GROUPS.values():
        for name in names:
            lines += [f"## ablation {name}", "", "```text", commands[name].format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def write(site: Path = SITE) -> None:
    """Write the folder, without what was in it."""
    shutil.rmtree(site, ignore_errors=True)
    texts = {path: path.read_text(encoding="utf-8") for path in pages()} | made()
    files = set()
    for path, text in texts.items():
        copy = site / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        linked = (path.parent / target for target in re.findall(r"\]\(([^)#\s:]+)[)#]", text))
        files |= {target.resolve() for target in linked if target.is_file()} - texts.keys()
    for file in files:
        copy = site / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)


if __name__ == "__main__":
    write()
