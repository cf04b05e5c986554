"""What must not pass a gate does not pass it, whatever is damaged or withheld around it.

A study whose answer is worse, failed, missing or stale is copied, one to three things around it are harmed, and `gate`,
`compare` and `check-paper` are asked: never 0. `make chaos` tries 2,000 cases. A case is its number:
`ABLATION_FUZZ=passes:17 python -m pytest tests/chaos/test_passes.py` runs one.
"""

import errno
import io
import itertools
import json
import os
import random
import resource
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from ablation.cli.main import main
from ablation.store.collect import collect
from tests.chaos.test_fuzz import harm
from tests.repository import ROOT
from tests.simulate import Study, simulate, stage_dir
from tests.time_limit import time_limit

SHORT, LONG = 20.0, 2000  # seconds; cases
GOOD = Study("known", variants=2, seeds=5, steps=2, metrics=1, seed_sd=0.005, items={"gender": 150, "race": 150})
GOOD = replace(GOOD, distances={"v1": 0.0})
WORSE = replace(GOOD, distances={"v1": 0.3})
EDITED = ("plan.json", "study.json")  # where these can be read, they ask another question


def written(results: Path, study: Study) -> Path:
    return simulate(results, [study], digests=True)


def worse(results: Path) -> None:
    written(results, WORSE)
    collect(results)


def failed(results: Path) -> None:
    written(results, replace(GOOD, states={("v1", 2): "failed"}))
    collect(results)


def missing(results: Path) -> None:
    (stage_dir(written(results, GOOD), "known", "v1", 2, "evaluate") / "status.json").unlink()
    collect(results)


def stale(results: Path) -> None:
    written(results, GOOD)
    collect(results)
    written(results, WORSE)


def gone(results: Path) -> None:
    plan = written(results, GOOD)
    collect(results)
    shutil.rmtree(stage_dir(plan, "known", "v1", 2, "evaluate"))


def imported(results: Path) -> None:
    """The examples' runs, the better ones as the parent."""
    runs = results.parent / "runs"
    for old, new in (("base", "new"), ("fast", "base")):
        shutil.copytree(ROOT / "examples/first/runs" / old, runs / new)
    words = ["--study", "known", "--metric", "eval_loss", "--direction", "min"]
    words += ["--margin", "0.01"]
    assert main(["import", "trainer_state", str(runs), *words, "--results", str(results)]) == 0
    collect(results)
    shutil.rmtree(runs)


def evaluated(results: Path) -> None:
    """Tables of a child that is worse."""
    chance = random.Random(0)
    for side, right in (("a", 0.8), ("b", 0.5)):
        for seed in range(5):
            rows = [f"{item},{int(chance.random() < right)}" for item in range(80)]
            path = results / side / f"seed{seed}" / "samples.csv"
            path.parent.mkdir(parents=True)
            path.write_text("\n".join(["item,value", *rows]) + "\n")


def printed(results: Path) -> None:
    """A paper whose numbers have changed since."""
    written(results, GOOD)
    assert main(["tables", "--macros", "--results", str(results), "--reports", str(results / "paper")]) == 0
    names = [f"\\ablation{{known/v1/{column}}}" for column in ("gender", "race", "mean")]
    (results / "paper.tex").write_text("\\input{paper/known/numbers}\n" + "\n".join(names))
    written(results, WORSE)


GATE = (["gate", "known", "--results", "results"], ["gate", "known", "v1", "--json", "--results", "results"])
COMPARE = ["compare", "results/a/*/*.csv", "--with", "results/b/*/*.csv", "--margin", "0.05", "--direction", "max"]
COMPARE += ["--require", "not-worse"]
KINDS: dict[Callable[[Path], None], tuple[list[str], ...]] = {
    worse: GATE,
    failed: (*GATE, ["status", "--failed", "--results", "results"]),
    missing: GATE,
    stale: GATE,
    gone: (*GATE, ["status", "--failed", "--results", "results"]),
    imported: GATE,
    evaluated: (COMPARE, [*COMPARE, "--json"], [*COMPARE, "--markdown"]),
    printed: (["check-paper", "results/paper.tex", "--results", "results"],),
}


# --- harm ------------------------------------------------------------------------------------------------------------


def damage_file(chance: random.Random, folder: Path) -> str:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()))
    harm(chance, path)
    if path.name in EDITED and path.is_file():
        with suppress(ValueError, OSError):
            json.loads(path.read_bytes())
            path.write_bytes(b"{")
    return f"harmed {path.relative_to(folder)}"


def lose_folder(chance: random.Random, folder: Path) -> str:
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_dir()))
    shutil.rmtree(path)
    if chance.randrange(3) == 0:
        path.symlink_to("nowhere")
    elif chance.randrange(3) == 0:
        path.touch()
    return f"lost {path.relative_to(folder)}"


def exchange(chance: random.Random, folder: Path) -> str:
    """Put one file in the place of another of its name: another stage's, or the other variant's."""
    path = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    others = sorted(other for other in folder.rglob(path.name) if other.is_file() and other != path)
    if not others or path.parts[-3:-2] in (("a",), ("b",)):  # a run that is another's copy is an evaluation like others
        return "nothing"
    other = chance.choice(others)
    path.unlink()
    (os.link if chance.randrange(2) else shutil.copy)(other, path)
    return f"{other.relative_to(folder)} in place of {path.relative_to(folder)}"


def obstruct(chance: random.Random, folder: Path) -> str:
    """Leave what is in the way of a collect."""
    name = chance.choice([".collect.lock", "collected.json", "analysis_history.json", "tracker.duckdb.wal"])
    path = folder / "results" / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True) if not path.is_dir() else None
    path.write_bytes(b"WAL") if name.endswith("wal") else path.mkdir(exist_ok=True)
    return f"obstructed {name}"


@contextmanager
def limited(kind: int, least: int) -> Iterator[None]:
    """No file may grow beyond `least` bytes, or no more than `least` files be open."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


class Closed(io.StringIO):
    """A standard output that cannot be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def withheld(chance: random.Random, stack: ExitStack, folder: Path) -> str:
    """Restrict the process."""
    kind = chance.randrange(8)
    if kind == 0:
        stack.enter_context(limited(resource.RLIMIT_FSIZE, chance.choice([0, 100, 4096, 300_000])))
    elif kind == 1:
        stack.enter_context(patch.object(tempfile, "tempdir", str(folder / "gone")))
    elif kind == 2:
        stack.enter_context(redirect_stdout(Closed(BrokenPipeError(errno.EPIPE, "Broken pipe"))))
    elif kind == 3:
        stack.enter_context(redirect_stdout(Closed(OSError(errno.ENOSPC, "No space left on device"))))
    elif kind == 4:
        stack.enter_context(redirect_stdout(None))  # type: ignore[type-var]
    return ("no space", "no temporary folder", "a closed pipe", "a full disk", "no output", *("nothing",) * 3)[kind]


# --- cases -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """A folder of each kind, in which nothing is damaged yet."""
    folders = {}
    for kind in KINDS:
        folders[kind] = tmp_path_factory.mktemp(kind.__name__)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            kind(folders[kind] / "results")
    return folders


def attempt(number: int, studies: dict[Callable[[Path], None], Path], folder: Path) -> str:
    """Try one case; return what is wrong with its end, or nothing."""
    chance = random.Random(f"passes:{number}")
    kind = chance.choice([*KINDS])
    words = chance.choice(KINDS[kind])
    shutil.copytree(studies[kind], folder, symlinks=True)
    did = []
    try:
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            with suppress(OSError, IndexError):  # harmed before
                did.append(chance.choice([damage_file, damage_file, lose_folder, exchange, obstruct])(chance, folder))
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(io.StringIO()))
            stack.enter_context(redirect_stderr(io.StringIO()))
            stack.enter_context(chdir(folder))
            stack.enter_context(time_limit())
            did.append(withheld(chance, stack, folder))
            status = main(words)
    except SystemExit as error:
        status = error.code
    except Exception:
        return f"{kind.__name__} {words} {did}: {traceback.format_exc()[-700:]}"
    finally:
        shutil.rmtree(folder)
    return "" if status in (1, 2, 10, 11, 12, 13, 141) else f"{kind.__name__} {words} {did}: {status}"


def test_what_must_not_pass_never_does(studies, tmp_path, long):
    chosen, _, one = os.environ.get("ABLATION_FUZZ", "").partition(":")
    if chosen and chosen != "passes":
        pytest.skip("another target was asked for")
    written(tmp_path / "results", GOOD)
    with chdir(tmp_path), redirect_stdout(io.StringIO()):
        assert [main(words) for words in GATE] == [0, 0]  # but for what is wrong with them, these would pass
    end = time.monotonic() + SHORT
    numbers = [int(one)] if chosen else range(LONG) if long else itertools.count()
    found = []
    for number in numbers:
        if not (long or chosen or time.monotonic() < end):
            break
        if problem := attempt(number, studies, tmp_path / "case"):
            found.append(f"passes:{number} {problem}")
    assert not found, f"{len(found)} of {number + 1} cases\n" + "\n\n".join(found[:20])
