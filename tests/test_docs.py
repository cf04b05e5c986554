"""The documents say what the code says: commands, options, keys, links."""

import argparse
import re
import runpy
import shlex
import shutil
import subprocess
import textwrap

import pytest
import yaml

from ablation.cli.main import main
from ablation.cli.parser import build_parser
from ablation.config.formats import FORMATS
from ablation.config.settings import SettingsFile
from ablation.config.study_schema import Analysis, StudyFile
from tests.repository import ROOT
from tests.test_imports import ROOMS

PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("examples/**/*.md"))]
PAGES += sorted(ROOT.glob("docs/**/*.md"))
FOLLOWED = ("add-a-trainer.md", "add-a-task.md", "add-a-loss.md", "attribute-effects.md", "check.md", "trace.md")
"""By test_followed_pages.py."""
STARTS = ("python -m ablation", "ablation")
GENERATED = runpy.run_path(str(ROOT / "docs/make_reference.py"))["pages"]()


def code(text):
    """The pieces of a page that are code: indented or fenced blocks line by line, and spans."""
    blocks = re.findall(r"^(?: {4,}|\t)(.+)$", text, flags=re.MULTILINE)
    fenced = [line for block in re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]
    return [*blocks, *fenced, *re.findall(r"`([^`\n]+)`", text)]


def commands(text, start):
    """The commands in a page that begin with `start`, as words, without comments and redirections."""
    for piece in code(text):
        for part in re.split(r"\s+#|\s[|>]\s|&&|;", piece):
            if part.strip().startswith(f"{start} "):
                yield part.strip()


def tracker_commands(path):
    """The commands in a page that are `ablation ...` or `python -m ablation ...`, without that beginning."""
    text = path.read_text(encoding="utf-8")
    return [command.removeprefix(start) for start in STARTS for command in commands(text, start)]


def known_commands():
    """{name: its parser}."""
    (found,) = (each.choices for each in build_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return found


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: path.name)
def test_pages_made_from_code_are_up_to_date(path):
    assert path.is_file(), "run `make docs`"
    assert path.read_text(encoding="utf-8") == GENERATED[path], "run `make docs`"


def test_every_format_is_described_with_the_commands_that_read_it():
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \|", (ROOT / "docs/reference/formats.md").read_text(), flags=re.MULTILINE
    )
    described = {name: tuple(re.findall(r"`(\w+)`", commands)) for name, commands in rows}
    assert described == {name: each.uses for name, each in FORMATS.items()}


def test_the_site_lists_every_page_and_has_no_dead_link(tmp_path):
    runpy.run_path(str(ROOT / "docs/make_site.py"))["write"](tmp_path)
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert set(re.findall(r"'([^']+\.md)'", str(nav))) == pages - {
        "AGENTS.md",
        "benchmarks/evidence/README.md",
        "examples/github-action/comment.md",
        "examples/skill/SKILL.md",
        "examples/campaign/SKILL.md",
        "examples/campaign/program.md",
    }
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s:]+)[)#]", (tmp_path / page).read_text(encoding="utf-8")):
            place, source = ((root / page).parent / target for root in (tmp_path, ROOT))
            workflow = re.fullmatch(r"\.\./\.\./actions/(workflows/[\w.]+)(/badge\.svg)?", target)
            if workflow:  # a page of GitHub's, as a folder is one
                assert (ROOT / ".github" / workflow[1]).exists(), (page, target)
            else:
                of_the_site_alone = place.exists() and not (ROOT / page).is_file()
                assert source.is_dir() or (place.exists() and source.exists()) or of_the_site_alone, (page, target)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_of_the_tracker_exist(path):
    """Every `python -m ablation ...` and `ablation ...` in the documents is understood by the parser, options too."""
    known = known_commands()
    for command in tracker_commands(path):
        words = shlex.split(command.replace("...", ""))
        if not words:
            continue
        assert words[0] in known, f"{path.name}: {command}"
        options = {option for action in known[words[0]]._actions for option in action.option_strings}
        for word in words:
            if word.startswith("--") and " " not in word:
                assert word.split("=")[0] in options, f"{path.name}: {command}"


OLD_TERMS = re.compile(
    r"\b[Ll]ineages?\b|\b[Aa]rms?\b|\b[Cc]ertificates?\b|\bedges? (of|between)\b|err together|found with \d+%|"
    r"\bper_(study|word)\b|--flips|\bflips=|\blooks: ?\[|`looks`|\bruns? a side\b|the two sides|other side's\b|"
    r"\b([Aa]n?|[Tt]he|first|last|next|planned|declared) looks?\b(?! at| up|:)|"
    r"\bablation (fit|decide|plan)\b|\b(the|each|two|both|either|one|other) edges?\b"
)
"""What docs/reference/glossary.md has other terms for."""
STUMBLES = re.compile(
    r"\bstands (twice|\{)|were they the same|use their seeds\?|tells? (its|their) seed|which know nothing of|"
    r"one run each (cannot|says|does)|as large as it looks|key would lie|\bis no (number|size|text|folder|file)\b|"
    r"there is no such|can be had\b|\bmend (it|the)\b|whatever the seeds|\"belongs to --|is a command of its own|"
    r"is it one evaluation|is one a copy|two scales\?|none in common|\b(Its|The) (upper|lower) end\.|\bLikewise\b|"
    r"\bnot even [0-9{]|says what it did|let what belongs|nothing tells|corrects (it|this)\b|it has gone\b|"
    r"asks which metric|nothing has been written|is shown of all|together than apart|"
    r"where it does not apply|\bask for fewer\b|asked for were|"
    r"\bend(ed)? well\b|\bas for snakemake\b|it is not known which values|\bsuch a (variant|key)\b|"
    r"is on another scale than|seeds of [0-9{][^ ]* items|\brounds of more seeds\b|"
    r"can have no effect|may all be the|\bmeans of the means\b|not all right or wrong|because they are not numbers|"
    r"that both have with|\bholds none\b|\bor one above\b|leads nowhere|ended badly|why \(the first\)|"
    r"not started after|\basks? nothing of what|is given twice|, as (0\.5|51\.7%|253)\b|of the hub needs|"
    r"\bat no step have\b|matches none of them|\bhealthy is\b|; none: all|has no such (run|input|column)|"
    r"repeat the call"
)
"""Sentences that users had to read twice; CONTRIBUTING.md says what to write instead."""
FOLDERS = ("ablation", "configs", "docs", "examples", "workflow")
SINGLE = ("README.md", "AGENTS.md", "Makefile")


TEXTS = (".py", ".md", ".yaml", ".yml", ".j2", ".js", ".smk", ".rst", "Makefile")


@pytest.mark.parametrize(
    ("phrases", "endings", "others"),
    [
        pytest.param(OLD_TERMS, (*TEXTS, ".json", ".css"), {"CONTRIBUTING.md"}, id="terms"),
        pytest.param(STUMBLES, TEXTS, {"trainers"}, id="sentences"),
    ],
)
def test_phrases_that_went_do_not_come_back(phrases, endings, others):
    """In help texts, pages, keys and columns, which all stand in these files."""
    listed = ["git", "ls-files", *FOLDERS, *SINGLE, *others]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        if name.endswith(endings) and not name.startswith("docs/sample/"):
            found = phrases.search((ROOT / name).read_text(encoding="utf-8"))
            assert found is None, f"{name}: {found[0]}"


def test_targets_of_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for path in PAGES:
        for command in commands(path.read_text(encoding="utf-8"), "make"):
            words = [word for word in command.split()[1:] if re.fullmatch("[a-z-]+", word) and word[0] != "-"]
            assert set(words[:1]) <= targets, f"{path.name}: {command}"


def test_help_lists_every_target_of_make():
    command = ["make", "--no-print-directory", "help"]  # `make test` runs this below another make
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    [phony] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(line.split()[0] for line in listed) == sorted(phony.split())
    assert all(len(line.split()) > 1 for line in listed)


SHOWING = ("add-a-variant", "vllm", "audit-a-table", "choose-a-margin", "choose-seeds", "one-run-of-each")
SHOWING += ("import", "README", "gate", "read-the-report")
"""Pages whose commands run in one project, in this order: README imports what the last two judge."""


def test_the_pages_show_what_their_commands_print(capsys, monkeypatch, tmp_path):
    for name in ("examples/first", "configs", "trainers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("base", "average"):  # the first seed
        lines = (tmp_path / f"examples/first/{name}.csv").read_text().splitlines(keepends=True)
        (tmp_path / f"{name}-0.csv").write_text("".join([lines[0], *(line for line in lines if line.startswith("0,"))]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for name in SHOWING:
        folder = ROOT if name == "README" else ROOT / "docs/how-to"
        text = (folder / f"{name}.md").read_text(encoding="utf-8")
        for path, content in re.findall(r"^    # (configs/\S+)\n((?:    .*\n)+)", text, flags=re.MULTILINE):
            (tmp_path / path).write_text(textwrap.dedent(content))
        blocks = re.findall(r"^    \$ ablation (.*)\n((?:    .*\n|\n)+)", text, flags=re.MULTILINE)
        assert len(blocks) == (4 if name == "README" else 1)
        for command, shown in blocks:
            assert main(shlex.split(command)) == (command == "audit debias"), command
            printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
            lines = textwrap.dedent(shown).strip().splitlines()
            wanted = "".join(r"(?:.*\n)*" if line == "..." else f"{re.escape(line)}\n" for line in lines)
            assert re.fullmatch(wanted, f"{printed.strip()}\n"), (command, printed)


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/how-to/*.md")), ids=lambda path: path.stem)
def test_a_how_to_page_begins_with_a_command_and_its_output(path):
    assert re.match(r"# .+\n\n    (\$ .+\n    .|ablation nightly )", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", ["compare", "power", "gate", "explain", "trace", "check"])
def test_a_question_is_answered_on_one_short_page(command):
    page = {"power": "choose-seeds", "explain": "attribute-effects"}.get(command, command)
    text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert re.search(rf"^    (\$ )?ablation {command} ", text, flags=re.MULTILINE)


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", index)}
    assert {path.resolve() for path in ROOT.glob("docs/**/*.md")} - {ROOT / "docs/index.md"} <= linked


STUDY_FILES = (ROOT / "docs/reference/study-files.md").read_text(encoding="utf-8")


def keys_of(heading, depth=4):
    """The keys, at one depth of indentation, of the example that follows a heading."""
    after = STUDY_FILES.split(heading, 1)[1]
    block = re.search(r"\n\n((?:    [^\n]*\n)+)", after)[1]
    lines = re.findall(rf"^ {{{depth}}}([a-z_]+(?:, [a-z_]+)*):(?: |$)", block, flags=re.MULTILINE)
    return {key for line in lines for key in line.split(", ")}


def test_every_key_of_a_study_is_documented():
    known = {info.alias or name for name, info in StudyFile.model_fields.items()}
    assert keys_of("`configs/studies/<study>/_study.yaml`:") == known
    assert keys_of("## Analysis plan", depth=6) == set(Analysis.model_fields)


def test_every_setting_is_documented():
    written = set(yaml.safe_load((ROOT / "configs/config.yaml").read_text(encoding="utf-8")))
    assert keys_of("`configs/config.yaml`, the file that a user edits first") == written
    selection = re.search(r"# selection of jobs.*?: (.*)", STUDY_FILES)[1]
    assert set(re.findall(r"([a-z]+):", selection)) | written == set(SettingsFile.model_fields)


def test_every_package_is_in_the_architecture():
    """Each folder of code is named, and the chain of imports is the one that tests/test_imports.py holds."""
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    packages = [path for room in ("ablation", "trainers") for path in ROOT.glob(f"{room}/*/__init__.py")]
    names = {f"`{path.parent.relative_to(ROOT)}/`" for path in packages}
    assert {name for name in names if name not in text} == set()
    [chain] = re.findall(r"Imports run one way: ([^,]+),\s+and trainers", text)
    assert re.split(r"\s+->\s+", chain)[::-1] == [room.removeprefix("ablation.") for room in ROOMS]


@pytest.mark.rest
def test_the_evidence_is_what_its_script_writes():
    text = (ROOT / "docs/explanation/evidence.md").read_text()
    assert text == runpy.run_path(str(ROOT / "docs/make_evidence.py"))["page"]()


def test_every_planted_fault_has_its_line_and_its_tests():
    for line in (ROOT / "tests/planted/faults.tsv").read_text(encoding="utf-8").splitlines():
        name, old, _, tests = line.split("\t")
        files = [ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*.py")
        assert sum(path.read_text(encoding="utf-8").count(old) == 1 for path in files) == 1, line
        assert all((ROOT / test).exists() for test in tests.split()), line
