"""Every command that a page or a message prints is executed, or stands in a list here with the reason why it is not.

Most run in one project: the repository's configurations, simulated results of its studies, and the examples' files. Of
`snakemake` the options and the settings are read; tests/workflow runs it.
"""

import ast
import re
import shlex
import shutil
import tarfile
from types import SimpleNamespace

import pytest
from snakemake.cli import parse_args

from ablation.cli.main import main
from ablation.cli.parser import build_parser
from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.store.collect import collect
from tests.repository import ROOT
from tests.simulate import DEBIAS, Study, simulate
from tests.test_docs import FOLLOWED, PAGES, STARTS, commands, known_commands, tracker_commands

CHANGE = {"lr": (1, 2)}
NAMED = {  # the study of a command without one
    "debias": DEBIAS,
    "innovations": None,
    "gspo": None,
    "gad": {"base": (None, {}), "d-warm": ("base", CHANGE), "d-final": ("d-warm", {"rate": (1, 2)})},
    "demonstrations": None,
}
WORDS = {  # what a reader puts in place of a page's own words
    "STUDY": "gad", "VARIANT": "d-final", "COLUMN": "mean", "TABLE": "gad", "ROW": "d-final", "E": "0.1", "M": "0.05",
    "N": "100", "A": "gad/base", "B": "d-final", "BASE": "examples/first/base.csv", "NEW": "examples/first/average.csv",
    "FILE.csv": "table.csv", "file.csv": "table.csv", "DIR": "made", "QUERY": "from runs", "COMPARISON": "d-final",
    "PAPER.tex": "paper.tex",
}  # fmt: skip
ELSEWHERE = {  # what runs in other tests, or cannot run in one
    "serve": "runs until it is stopped: tests/ablation/serve",
    "status --watch": "runs until it is stopped",
    "init": "tests/ablation/test_init.py",
    "export gad": "needs a trained model: tests/trainers/test_export.py",
    "export --from": "needs a trained model: tests/trainers/test_export.py",
    "check STUDY[/VARIANT]": "tests/test_followed_pages.py runs `check example/average`",
    "check example/base": "the project of `init`: tests/ablation/cli/test_check.py",
    "merge": "needs a second site: tests/ablation/store/test_merge.py",
    "nightly": "tests/ablation/cli/test_nightly.py runs what docs/how-to/nightly.md prints",
    "import trainer_state": "tests/test_docs.py runs the README's; the folder of docs/how-to/import.md is the reader's",
    "import table": "a file of the reader's: tests/ablation/readers",
    "import wandb": "runs of the reader's: tests/ablation/readers",
    "try": "a repository of the reader's: tests/ablation/campaign",
    "campaign": "a repository of the reader's: tests/ablation/campaign",
    "compare agents/*/eval_results.json": "tests/ablation/judge/compare/test_systems.py",
    "compare agents/long.csv": "tests/ablation/judge/compare/test_systems.py",
    "power --effect 0.05 --pilot agents/m2/eval_results.json": "tests/ablation/cli/test_power.py",
    "compare ../main/out/*.csv": "files of the reader's two branches",
    "power gad --effect 0.02 --pilot results/smoke": "the smoke grid's results",
    "explain": "tests/test_followed_pages.py",
    "verdicts example": "the project of `init`: tests/test_wheel.py",
    "verdicts lr": "tests/test_docs.py runs the README's import",
    "verdicts parity": "docs/reference/python.md: tests/ablation/test_api.py",
    "diff v4 my-variant": "a variant of the reader's",
    "show my-variant": "a variant of the reader's",
}
BARE = (
    *("add-seeds", "check", "check-paper", "collect", "compare", "diff", "export", "gate", "import", "init"),
    *("nightly", "power", "sql", "tables", "trace"),
)
"""Named as commands, not to be typed alone."""


def printed():
    """{command: where it is printed}, of the pages and of texts in the code without a value in them."""
    found = {}
    for page in PAGES:
        if page.name not in FOLLOWED or page.name == "check.md":
            found |= {command.strip(): page.name for command in tracker_commands(page)}
    for path in ROOT.glob("ablation/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for start in STARTS:
                    named = re.findall(rf"`{start} ([^`]+)`", node.value)
                    found |= {command.strip(): path.name for command in named}
    return {command: where for command, where in found.items() if command not in BARE}


def is_elsewhere(command):
    return any(command == start or command.startswith(f"{start} ") for start in ELSEWHERE)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("printed")
    for name in ("configs", "trainers", "examples", "workflow", "Snakefile"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    items = {"gender": 60, "race": 60}
    simulate(folder / "results", [Study(name, variant_tree=of, seeds=3, items=items) for name, of in NAMED.items()])
    collect(folder / "results")
    (folder / "results/toy").mkdir()
    simulate(folder / "results/toy", [Study("toy", seeds=3, items=items)])
    collect(folder / "results/toy")
    shutil.copy(ROOT / "examples/first/average.csv", folder / "third.csv")
    (folder / "table.csv").write_text("row,a,b,c\nv,0.50,0.25,0.75\n")
    with tarfile.open(ROOT / "tests/ablation/readers/fixtures/lm_eval.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("command", sorted(filter(lambda each: not is_elsewhere(each), printed())))
def test_a_command_that_is_printed_runs(command, project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    shutil.rmtree("made", ignore_errors=True)
    first, *rest = shlex.split(command)
    sides = {"A": WORDS["BASE"], "B": WORDS["NEW"], "C": "third.csv"} if first == "compare" else {}
    words = [first, *((WORDS | sides).get(word, word) for word in rest)]
    if words[0] == "check-paper":
        assert main(["tables", "--macros"]) == 0
        (project / "paper.tex").write_text("\\input{reports/gad/numbers}\\ablation{gad/d-final/mean}")
    status = main(words)
    assert status in (0, 10, 11, 13) or (status == 1 and words[0] == "audit"), capsys.readouterr().err


def test_commands_about_configurations_are_among_them():
    assert {each.split()[0] for each in printed() if not is_elsewhere(each)} >= {"variants", "diff"}


def test_no_reason_is_left_of_a_command_that_went():
    left = printed()
    assert [start for start in ELSEWHERE if not any(f"{each} ".startswith(f"{start} ") for each in left)] == []


def templates():
    """{a command with values in it, which its own test runs: where it is printed}; each value is VALUE."""
    found = {}
    for path in ROOT.glob("ablation/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
                found |= {c: path.name for c in re.findall("`(?:python -m )?ablation ([^`]+)`", text) if "VALUE" in c}
    for path in ROOT.glob("ablation/show/templates/*.j2"):
        text = re.sub(r"\{\{.*?\}\}", "VALUE", path.read_text(encoding="utf-8"))
        found |= dict.fromkeys(re.findall("<code>(?:python -m )?ablation ([^<]+)</code>", text), path.name)
    return found


@pytest.mark.parametrize("command", sorted(templates()))
def test_a_command_that_is_printed_with_values_is_understood(command):
    build_parser().parse_args(shlex.split(command))


@pytest.mark.parametrize("name", list(known_commands()))
def test_the_examples_of_a_commands_help_are_understood(name):
    epilog = known_commands()[name].epilog or ""
    for example in re.findall(r"^  ablation (.*?)(?:  .*)?$", epilog, flags=re.MULTILINE):
        build_parser().parse_args(shlex.split(example))


SNAKEMAKE = sorted({found for page in PAGES for found in commands(page.read_text(encoding="utf-8"), "snakemake")})


@pytest.mark.parametrize("command", SNAKEMAKE)
def test_the_options_and_settings_of_a_snakemake_command_are_valid(command, project, monkeypatch):
    monkeypatch.chdir(project)
    if any(word in command for word in ("...", "key=value", "toy", "my-variant", "v4-squared", "example", "=reversal")):
        pytest.skip("about what the reader adds: tests/test_followed_pages.py")
    monkeypatch.setattr("snakemake.cli.get_appdirs", lambda: SimpleNamespace(user_config_dir="", site_config_dir=""))
    _, options = parse_args([*shlex.split(command)[1:], "--workflow-profile", "none"])
    if "wandb=" in command:
        pytest.importorskip("wandb")
    given = dict(pair.split("=", 1) for pair in options.config or ())
    settings = load_settings(given)
    if "variant" in given:
        variants = {name for study in load_studies(settings).values() for name in study.variants}
        assert set(given["variant"].split(",")) <= variants
