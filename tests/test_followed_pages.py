"""Six pages are followed word for word, in a copy of the project: their files are written, their commands are run.

A block whose first line is a comment with a path is a file; another one whose first line is a command is run. After
`$ `, what follows the command is what it prints.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests import warm
from tests.chaos.light import real
from tests.repository import ROOT

COPIED = ("ablation", "trainers", "workflow", "configs", "docs")

pytestmark = [pytest.mark.slow, pytest.mark.rest]


class Follower:
    """Reads a page and does what it says, in `folder`."""

    def __init__(self, page: str, folder: Path, *, copied: bool = True) -> None:
        self.folder, text = folder, (ROOT / "docs/how-to" / page).read_text(encoding="utf-8")
        self.path = folder if copied else ROOT
        if copied:
            real(folder)
            shutil.copytree(ROOT / "docs", folder / "docs")
        pieces = re.findall(r"(?:^(?: {4}.*|[ \t]*)\n)+", text, flags=re.MULTILINE)
        blocks = [textwrap.dedent(piece).strip("\n") + "\n" for piece in pieces if piece.strip()]
        # Two files may follow each other without a word between them.
        blocks = [part for block in blocks for part in re.split(r"\n\n+(?=# [\w./-]+\.(?:py|yaml)\n)", block)]
        named = [(re.match(r"# ([\w./-]+\.(?:py|yaml))\n", block), block) for block in blocks]
        self.files = {match[1]: block.rstrip("\n") + "\n" for match, block in named if match}
        self.blocks = blocks
        commands = [block.splitlines() for match, block in named if not match]
        lines = [line.removeprefix("$ ") for lines in commands for line in lines]
        self.commands = [line for line in lines if re.match("ablation |snakemake ", line)]
        printed = [block[2:].partition("\n") for match, block in named if not match and block.startswith("$ ")]
        self.printed = {command: output for command, _, output in printed}

    def write(self, *names: str) -> None:
        """Write the named files; none may be there already."""
        for name in names:
            path = self.folder / name
            assert not path.exists(), f"{name}: a page of additions names a file of the project"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.files[name], encoding="utf-8")

    def run(self, command: str, status: int = 0) -> str:
        """Run a command as the page has it, until it ends with this status; return what it prints."""
        own = {"PYTHONPATH": str(self.path), "ABLATION_LEASES": str(self.folder / "leases"), "OMP_NUM_THREADS": "1"}
        words = shlex.split(command.replace("--cores all", "--cores 2"), comments=True)
        module, *arguments = words[2:] if words[:2] == ["python", "-m"] else words
        done = warm.run(module, arguments, cwd=self.folder, env={**os.environ, **own}, timeout=900)
        assert done.returncode == status, f"{command}\n{done.stdout[-3000:]}"
        return done.stdout

    def python(self, code: str) -> str:
        """Run Python in the copy."""
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self.folder, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
        )  # fmt: skip
        return done.stdout


KEYS = """
import json
from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
studies = json.loads(build_plan(load_settings({"scale": "smoke"})).text)["studies"]
runs = {f"{study['name']}/{run['variant']}/{run['seed']}": run["stages"] for study in studies for run in study["runs"]}
print(json.dumps({f"{name}/{stage}": key for name, stages in runs.items() for stage, key in stages.items()}))
"""


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """The keys of every stage before anything is added."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", KEYS]
    found: dict[str, str] = json.loads(subprocess.check_output(words, cwd=ROOT, env=environment))
    return found


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of the copy that is the project's own."""
    paths = [path for name in COPIED for path in (folder / name).glob("**/*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if "__pycache__" not in path.parts}


def test_a_study_from_nothing(tmp_path):
    """docs/how-to/add-a-trainer.md: a study `toy` runs to the page, and no file outside its own folders is edited."""
    follower = Follower("add-a-trainer.md", tmp_path)
    before = tree(tmp_path)
    assert len(follower.files) == 8
    follower.write(*follower.files)
    variants, validate, grid, verdicts, dry_run = follower.commands
    assert "toy: 2 variants" in follower.run(validate)
    assert (tmp_path / "configs/schema/toy.variant.json").is_file()
    assert follower.run(variants) == follower.printed[variants]
    follower.run(grid)
    page = (tmp_path / "reports/toy/index.html").read_text(encoding="utf-8")
    assert "Does a falling rate estimate numbers better" in page
    assert "falling" in (tmp_path / "reports/toy/toy/table.md").read_text()
    assert " confounded " in follower.run(verdicts)
    after = tree(tmp_path)
    assert {name for name in before if after.get(name) != before[name]} == set()
    added = {str(Path(name).relative_to(tmp_path).parent) for name in after.keys() - before.keys()}
    assert added == {"trainers/toy", "configs/studies/toy", "configs/schema"}
    # What the page says last: the two keys as one factor; no stage runs again, and the verdict is another.
    (factors,) = re.findall(
        r"^    (factors: .*)$", (ROOT / "docs/how-to/add-a-trainer.md").read_text(), flags=re.MULTILINE
    )
    with (tmp_path / "configs/studies/toy/_study.yaml").open("a") as file:
        file.write(f"{factors}\n")
    again = follower.run(grid)
    assert re.findall(r"^tables +\d", again, flags=re.MULTILINE)
    assert not re.findall(r"^toy_\w+ +\d", again, flags=re.MULTILINE)
    assert " better " in follower.run(verdicts)
    # A changed default reruns its readers, and the old one finds its results again.
    config = tmp_path / "trainers/toy/config.py"
    config.write_text(config.read_text().replace("steps: int = Field(default=50", "steps: int = Field(default=60"))
    listed = set(re.findall(r"^(toy_\w+) +(\d+)$", follower.run(dry_run), flags=re.MULTILINE))
    assert listed == {("toy_train", "4"), ("toy_evaluate", "4")}
    config.write_text(follower.files["trainers/toy/config.py"])
    os.utime(config, (time.time() + 2,) * 2)  # Python takes a file of the same size and second for unchanged
    assert "Nothing to be done" in follower.run(dry_run)


def test_the_comparison_of_the_page_is_taken_apart(tmp_path):
    """docs/how-to/attribute-effects.md: in a new project, what each of three changes of one variant did."""
    follower = Follower("attribute-effects.md", tmp_path, copied=False)
    page = (ROOT / "docs/how-to/attribute-effects.md").read_text(encoding="utf-8")
    follower.run("ablation init")
    follower.write("configs/studies/example/all.yaml")
    question, grid, declare, again, answer = follower.commands
    assert question == answer
    follower.run(grid)
    said = follower.run(declare)
    shown = page.split("writes nothing):\n\n")[1].split("\n\n")[0]
    assert said.startswith(textwrap.dedent(shown))
    assert "to run: 15 of 40 jobs" in said
    written = sorted(path.name for path in follower.folder.glob("configs/studies/example/base.*.yaml"))
    assert written == ["base.steps.average.yaml", "base.steps.lr.yaml", "base.steps.yaml"]
    assert re.search(r"^example_train +15$", follower.run(again), flags=re.MULTILINE)
    shown = follower.printed[answer].split()
    assert follower.run(answer).split()[: len(shown)] == shown  # lines end where the terminal does
    # The verdicts of the study's own comparisons are those of before, corrected for as many comparisons.
    assert "4 comparisons" in follower.run("ablation power example --effect 0.02")


MASKED = re.compile(r"[0-9a-f]{16}|\d{4}-\d\d-\d\dT\S+|[\d.]+ (?:s|min|MB)\b")
"""Keys, times, durations and memory: other ones in every project."""


def test_a_study_is_checked_a_number_traced_and_a_paper_held_to_it(tmp_path):
    """docs/how-to/check.md, trace.md and wrap-a-command.md: in one new project, what the pages show is printed."""
    checked = Follower("check.md", tmp_path, copied=False)
    traced = Follower("trace.md", tmp_path, copied=False)
    checked.run("ablation init")
    outputs = {}
    for command in ("ablation check example/average", "snakemake --cores 2", "ablation trace example average accuracy"):
        outputs[command] = checked.run(command)
    assert {"ablation check example/average", "ablation tables --macros"} < set(checked.commands)
    for page, command in (
        (checked, "ablation check example/average"),
        (traced, "ablation trace example average accuracy"),
    ):
        shown = page.printed[command]
        printed = [line for line in outputs[command].splitlines() if not line.startswith("    example.train ")]
        assert MASKED.sub("-", "\n".join(printed)) == MASKED.sub("-", shown.strip())
    [(_, shown)] = Follower("wrap-a-command.md", tmp_path, copied=False).printed.items()
    rows = [line.split()[:-2] for line in shown.splitlines() if line != "..."]  # without the device time
    verdicts = [line.split() for line in checked.run("ablation verdicts example").splitlines()]
    assert rows
    assert all(any(words[: len(row)] == row for words in verdicts) for row in rows)
    checked.run(outputs["ablation trace example average accuracy"].splitlines()[-1].strip())
    assert "0 stages added, 10 in both" in checked.run("ablation merge again/results")  # its parent's runs too
    checked.run("ablation tables --macros")
    (paper,) = (block for block in checked.blocks if block.startswith("# paper.tex\n"))
    (tmp_path / "paper.tex").write_text(paper)
    same, changed = (block for block in checked.blocks if "numbers match the results" in block)
    assert checked.run("ablation check-paper paper.tex") == same
    numbers = tmp_path / "reports/example/numbers.tex"
    numbers.write_text(re.sub(r"(average/accuracy.endcsname)\{.*\}", r"\1{0.9}", numbers.read_text(), count=1))
    assert checked.run("ablation check-paper paper.tex", status=1) == changed


def test_a_killed_stage_of_the_page_goes_on(tmp_path):
    """The stage of docs/how-to/add-a-trainer.md continues from its checkpoint, without torch, to the same numbers."""
    follower = Follower("add-a-trainer.md", tmp_path)
    follower.write(*follower.files)
    code = """
import sys
sys.modules["torch"] = None
from pathlib import Path
from types import SimpleNamespace
from trainers.running import checkpoint
from trainers.toy.config import ToyConfig
from trainers.toy.train import run

class Stage(SimpleNamespace):
    seed = 3
    def load_checkpoint(self): return checkpoint.load(self.out / "checkpoint")
    def save_checkpoint(self, *words): checkpoint.save(self.out / "checkpoint", *words)
    def progress(self, *words): pass
    def log_metrics(self, step, values):
        if step == self.dies_at: raise KeyboardInterrupt

for name, dies in (("whole", [None]), ("killed", [23, 41, None])):
    for dies_at in dies:
        out = Path(name)
        out.mkdir(exist_ok=True)
        try:
            run(Stage(config=ToyConfig(), out=out, dies_at=dies_at))
        except KeyboardInterrupt:
            pass
"""
    follower.python(code)
    whole, killed = ((tmp_path / name / "estimates.json").read_text() for name in ("whole", "killed"))
    assert whole == killed
    assert json.loads((tmp_path / "killed/checkpoint/state.json").read_text())["step"] == 50


def test_a_task_from_nothing(tmp_path, keys):
    """docs/how-to/add-a-task.md: a task is learnt from, its data set is accepted, and no other stage gets a new key."""
    follower = Follower("add-a-task.md", tmp_path)
    assert {name.split("/")[0] for name in keys} == {"debias", "innovations", "gspo", "gad", "demonstrations"}
    follower.write(*follower.files)
    (settings,) = [text for text in follower.blocks if text.startswith("class Reversal")]
    file = tmp_path / "trainers/tasks/settings.py"
    head, union, members = file.read_text().partition("TaskSettings = Annotated[")
    file.write_text(f"{head}{settings}\n\n{union}Reversal | {members.lstrip()}")
    after = json.loads(follower.python(KEYS))
    assert {name: after[name] for name in keys} == keys
    assert {name.split("/")[1] for name in after.keys() - keys.keys()} == {"reversal", "questions"}
    diff, validate, grid = follower.commands
    follower.run("ablation validate")
    (tmp_path / "configs/studies/innovations/questions.yaml").unlink()  # the page comes to it later
    follower.run(validate)
    assert follower.run(diff) == follower.printed[diff]
    follower.run(grid)
    query = "select value from results where variant = 'reversal' and metric = 'greedy/test/accuracy'"
    out = follower.run(f'ablation sql --json "{query}" --results results/try')
    (row,) = json.loads(out)["rows"]
    assert 0 <= row["value"] <= 1


def test_a_reward(tmp_path, keys):
    """docs/how-to/add-a-loss.md: a function and a value; no stage of another variant gets a new key."""
    follower = Follower("add-a-loss.md", tmp_path)
    follower.write(*follower.files)
    config = tmp_path / "trainers/debias/config.py"
    config.write_text(config.read_text().replace('"balanced_batch"]', '"balanced_batch", "squared"]'))
    after = json.loads(follower.python(KEYS))
    assert {name: after[name] for name in keys} == keys
    assert {name.split("/")[1] for name in after.keys() - keys.keys()} == {"v4-squared", "short"}
    diff, _grid = follower.commands
    assert follower.run(diff) == follower.printed[diff]
