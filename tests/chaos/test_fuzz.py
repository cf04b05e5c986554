"""Files damaged at random: the right value or one clear error; never a traceback, a hang, or another number.

A case is its target and its number: `ABLATION_FUZZ=yaml:17 python -m pytest tests/chaos/test_fuzz.py -k yaml` runs one.
`make chaos` goes on for ten minutes.
"""

import csv
import io
import itertools
import json
import math
import os
import random
import re
import shutil
import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablation.cli.collected import collect as collect_output
from ablation.config.settings import load_settings
from ablation.config.yaml_io import parse_foreign
from ablation.contract.display import printable
from ablation.contract.errors import TrackerError
from ablation.contract.reading import read_json, read_text
from ablation.judge.compare.groups import Options, expand, read_group, sides_by, without_errors
from ablation.plan.build import build_plan
from ablation.readers.run import Reader, as_text, load_reader, read_settings
from ablation.readers.sheet import Wanted
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from ablation.store.imports.importing import Request, import_runs
from ablation.store.progress import describe
from tests.ablation.readers import test_agents as agents
from tests.ablation.readers.samples import write_group
from tests.ablation.readers.stored import HERE as STORED
from tests.ablation.readers.stored import make
from tests.ablation.toy_study import Toy
from tests.simulate import Study, simulate
from tests.time_limit import time_limit

SHORT, LONG = 15.0, 600.0  # seconds of all targets together; the cases are the same in every run, in the same order
CPU = 10  # seconds of one case
DEEP = b"[" * 100_000
_LEVELS = (b"a%d: &a%d [%s]\n" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 9))
BOMB = b"a0: &a0 [x]\n" + b"".join(_LEVELS)
HOSTILE = [
    *b"n/a 1_0 nan -inf 1e999 1e-400 true null 0x1f 9223372036854775808 1,5 2001-99-99".split(),
    *b"' , - * {} [] ../x".split(),
    *(b"", b'"', b"\n", b"\r", b"\0", b'"\\ud800"', b"\x1b[2J", b"\xff\xfe"),
    *("\u0661\u0663".encode(), "\u202e".encode()),
    *(b"&a [*a]", b"!!bool x", b"!!timestamp x"),
    *(DEEP, DEEP + b"]" * 100_000, BOMB, b"1" * 5000, b"x" * 100_000),
]
_SCALAR = re.compile(rb'"[^"\n]*"|[^\s,:{}\[\]"]+')
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|inf|infinity)", re.IGNORECASE)

TRUTH = {"true": 1, "false": 0}
Harm = Callable[[Path], None]
Numbers = dict[Any, float]


class Target(NamedTuple):
    """What is attacked. `write` makes a good folder once; `read` reads a copy of it, of which a file was harmed."""

    write: Callable[[Path], Any]
    read: Callable[[Path, Path], None]  # folder, the file that was harmed
    files: str = "**/*"


# --- damage ----------------------------------------------------------------------------------------------------------


def harmed(chance: random.Random, content: bytes) -> bytes:
    """Return the content with one to three faults."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
        end = min(end, at + chance.choice([1, 2, 10, 100, 10_000]))
        fault, token = chance.randrange(7), chance.choice(HOSTILE)
        scalars = list(itertools.islice(_SCALAR.finditer(content, at), 1)) or list(_SCALAR.finditer(content))[:1]
        if fault <= 1 and scalars:
            content = content[: scalars[0].start()] + token + content[scalars[0].end() :]
        elif fault == 2:
            content = content[:at] + token + content[at:]
        elif fault == 3:
            content = content[:at]
        elif fault == 4:
            content = content[:at] + content[end:]
        elif fault == 5:
            content = content[:end] + content[at:]
        elif content:
            at = min(at, len(content) - 1)
            content = content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]
    return content


def reshaped(chance: random.Random, path: Path) -> None:
    """Write a Parquet file again, with a column of other values, another type, another name, or none."""
    table = pq.read_table(path)
    place = chance.randrange(table.num_columns)
    name, rows = table.column_names[place], table.num_rows
    columns: list[Any] = [
        pa.nulls(rows),
        pa.array([math.nan] * rows),
        pa.array(["n/a", "\x1b[2J", "\u202e", "1_0"][chance.randrange(4) :][:1] * rows),
        pa.array([2**63 - 1] * rows),
        pa.array([2**64 - 1] * rows, pa.uint64()),
        pa.array([[1.0]] * rows),
        pa.array([b"\xff"] * rows),
        pa.array([True] * rows),
        pa.array(["a"] * rows).dictionary_encode(),
    ]
    change = chance.randrange(len(columns) + 3)
    if change < len(columns):
        table = table.set_column(place, name, columns[change])
    elif change == len(columns):
        table = table.drop_columns([name])
    elif change == len(columns) + 1:
        table = table.append_column(name, columns[0])
    else:
        table = table.slice(0, 0)
    pq.write_table(table, path)


def harm(chance: random.Random, path: Path) -> None:
    kind = chance.randrange(40)
    if kind < 3:
        path.unlink()
    elif kind == 3:
        long_line(path)
    elif kind == 4:
        path.write_bytes(chance.choice(HOSTILE))
    elif path.suffix == ".parquet" and kind < 30:
        reshaped(chance, path)
    else:
        path.write_bytes(harmed(chance, path.read_bytes()))


def long_line(path: Path) -> None:
    """Make it one line of 2 GB, which needs no room."""
    os.truncate(path, 2 << 30)


def endless_view(path: Path) -> None:
    """Leave a database whose `metrics` are a query that never ends."""
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            """CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
            SELECT i AS id, 'r' AS run_name, i AS step, '{}' AS metrics, 't' AS timestamp FROM n"""
        )


# --- targets ---------------------------------------------------------------------------------------------------------


def write_plain(folder: Path) -> None:
    """Items and metrics in every form that a command may write."""
    rows = [{"item": f"i{n}", "value": n / 4, "subset": "ab"[n % 2]} for n in range(12)]
    points = [{"step": n, "name": "loss", "value": 1.5 / (n + 1)} for n in range(6)]
    for name, table in (("items", rows), ("metrics", points)):
        pd.DataFrame(table).to_csv(folder / f"{name}.csv", index=False)
        pd.DataFrame(table).to_parquet(folder / f"{name}.parquet", index=False)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))


def plainly(path: Path) -> Numbers | None:
    """Read a table as the standard library does; raise ValueError where a row or a number is not one."""
    if path.suffix == ".csv":
        csv.field_size_limit(1 << 30)
        marked = path.read_bytes()[:2] in (b"\xff\xfe", b"\xfe\xff")
        text = path.read_text(encoding="utf-16" if marked else "utf-8-sig")
        head, *lines = [*csv.reader(io.StringIO(text, newline=""), strict=True)] or [[]]
        rows = [dict(zip(head, line, strict=True)) for line in lines if line]
    else:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
    if (all if path.stem == "items" else any)("value" not in row for row in rows):
        return None  # a column of another name is a measure of another name
    found = {}
    for row in rows:
        if path.stem == "metrics" and row["value"] in ("", None):
            continue
        word = str(row.get("value")).strip()
        if word.lower() not in TRUTH and path.suffix == ".csv" and not _NUMBER.fullmatch(word):
            raise ValueError(f"{word!r} is not a number")
        step = str(row.get("step")).strip().partition(".")[0]
        key = (str(row["item"]), str(row.get("subset", "all"))) if "item" in row else (int(step), row["name"])
        found[key] = float(TRUTH.get(word.lower(), word))
    return found


def read_plain(folder: Path, path: Path) -> None:
    """Where a table is read, the standard library reads the same numbers."""
    name = path.stem
    with redirect_stderr(io.StringIO()) as told:
        metrics, items = collect_output(folder, [{"reader": name, "place": path.name}])
    if path.suffix == ".parquet" or (name == "metrics" and told.getvalue()):
        return  # a log's torn lines may be left out, with a word; items never
    table = items if name == "items" else metrics
    keys = ("item", "subset") if name == "items" else ("step", "name")
    ours = {tuple(row[key] for key in keys): row["value"] for row in table.to_pylist()}
    if path.stat().st_size < 1 << 20:
        same(ours, plainly(path))


def same(ours: Numbers, theirs: Numbers | None) -> None:
    if theirs is not None:
        shown = {tuple(as_text(str(part)) for part in key): repr(float(value)) for key, value in theirs.items()}
        assert {tuple(map(str, key)): repr(float(value)) for key, value in ours.items()} == shown


def read_compared(folder: Path, path: Path) -> None:
    """Read evaluations as `compare` does; of a plain table the numbers are those of the standard library."""
    plain = path.name.startswith("items")
    group = read_group("a", expand([str(path if plain else folder)]), Options())
    without_errors([group], "refuse", common_items=False)
    sheets = group.sheets
    if plain and path.suffix != ".parquet":
        ours = {(i, s.subset): v for s in sheets for i, v in zip(s.items, s.values, strict=True)}
        same(ours, plainly(path))


def write_agents(folder: Path) -> None:
    """A result of each benchmark of agents."""
    for name in ("pro", "jobs", "runs"):
        (folder / name).mkdir()
    agents.objects(folder / "each/a", range(20))
    agents.report(folder / "model.run.json", agents.A)
    (folder / "pro/eval_results.json").write_text(json.dumps(dict.fromkeys(agents.A, True)))
    (folder / "pro/infra_errors.json").write_text("{}")
    agents.instances(folder / "run/model", agents.B)
    agents.tau2(folder / "tau2.json", agents.TRIALS[:5])
    agents.harbor(folder / "jobs/a", dict(list(agents.TASKS.items())[:4]))
    agents.terminal_bench(folder / "runs/a", dict(list(agents.TASKS.items())[:4]))
    agents.promptfoo(folder / "output.json", agents.successes(3, 5, 6, 9))
    agents.langsmith(folder / "langsmith.csv", range(20))
    agents.oaieval(folder / "oaieval.jsonl", range(20))


def read_agents(folder: Path, path: Path) -> None:
    """Read the evaluation that a file is a part of, for each of its systems; the numbers may be others'."""
    by = ("provider", "prompt") if path.name == "output.json" else ()
    options = Options(Wanted(by=by))
    place = next((each for each in path.parents if each.parent.name in ("run", "jobs", "runs", "each")), path)
    files = expand([str(folder / "pro" if place.parent.name == "pro" else place)])
    sides = sides_by([files], options) if by else {"a": files}
    groups = [read_group(name, side, options) for name, side in sides.items()]
    assert all(np.isfinite(sheet.values).all() for group in groups for sheet in group.sheets)
    without_errors(groups, "refuse", common_items=False)


def written(name: str) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        if (STORED / "written" / name).is_dir():
            shutil.copytree(STORED / "written" / name, folder, dirs_exist_ok=True)
        else:
            make(name, "", "written", folder)

    return write


def read_imported(name: str) -> Callable[[Path, Path], None]:
    def read(folder: Path, path: Path) -> None:
        reader: Reader = load_reader(name)
        at = folder
        if name in ("mlflow", "trackio"):
            at = next(each for each in (path, *path.parents) if each.parent == folder)
        request = Request(name, reader, [at], "s", str(folder), None, write=True)
        outcome = import_runs(folder.parent / "results", request)
        for line in outcome.problems:
            assert "\n" not in line

    return read


def read_yaml(folder: Path, path: Path) -> None:
    """Plan the study; each file is also read as if another program had written it."""
    with suppress(ValueError, OSError):
        parse_foreign(read_text(path))
    read_settings([path], lambda line: None)
    build_plan(load_settings({}, configs=folder / "configs"), root=folder)


def write_settings(folder: Path) -> None:
    """A project, and settings as words of a command line."""
    Toy(folder)
    words = {"scale": "full", "studies": "[toy]", "seeds": "2", "gpus": "2", "results": "r", "group_minutes": "3"}
    words |= {"nodes": "1", "retry": "failed", "cost_per_device_hour": "7.5"}
    (folder / "words.json").write_text(json.dumps(words))


def read_words(folder: Path, path: Path) -> None:
    """Load settings as `--config` gives them."""
    try:
        words = read_json(path)
    except (ValueError, OSError):
        return
    if isinstance(words, dict):
        load_settings(words, configs=folder / "configs")


def write_stages(folder: Path) -> None:
    simulate(folder / "results", [Study(variants=2, steps=2, items={"a": 5})], digests=True)
    collect(folder / "results")


def read_stages(folder: Path, path: Path) -> None:
    """Collect, and look as `serve` does. What is in the database then, was there before the damage."""
    results = folder / "results"
    was = numbers(results)
    shutil.rmtree(results / DATABASE, ignore_errors=True)
    describe(results)
    collect(results)
    now = numbers(results)
    if path.name != "plan.json":
        assert {key: now[key] for key in now if now[key] != was.get(key)} == {}


def numbers(results: Path) -> dict[Any, str]:
    with Store(results / DATABASE) as store:
        rows = [
            *store.sql("SELECT key, step, name, value FROM metrics").itertuples(index=False),
            *store.sql("SELECT key, item, subset, protocol, name, value FROM items").itertuples(index=False),
        ]
    return {tuple(row[:-1]): repr(float(np.float64(row[-1]))) for row in rows}


LOGGERS = ("verl", "tensorboard", "mlflow", "wandb", "trackio")
TARGETS = {
    "yaml": Target(Toy, read_yaml, "configs/**/*.yaml"),
    "settings": Target(write_settings, read_words, "words.json"),
    "plain": Target(write_plain, read_plain),
    "compare": Target(write_plain, read_compared, "items.*"),
    "lm_eval": Target(lambda folder: write_group(folder / "base"), read_compared),
    "agents": Target(write_agents, read_agents),
    "stages": Target(write_stages, read_stages, "results/[ps]*/**/*.*"),
    **{name: Target(written(name), read_imported(name)) for name in LOGGERS},
    "trainer": Target(written("trainer"), read_imported("trainer_state")),
    "trl": Target(written("trl"), read_imported("trainer_state")),
}


TORN = b'{"item": "a", "value": 1}\n{"item": "b", "va\n{"item": "c", "value": 0}\n'
VARIANT = "configs/studies/toy/v2.yaml"
STATE = "base/seed_0/trainer_state.json"
# What went wrong once; cells of a table: tests/ablation/test_collected.py and readers/test_plain_tables.py.
KNOWN: list[tuple[str, str, bytes | Harm]] = [
    ("plain", "items.jsonl", TORN),
    ("plain", "items.jsonl", b'{"item": "a", "value": ' + DEEP),
    ("plain", "items.jsonl", long_line),
    ("plain", "items.csv", long_line),
    ("plain", "metrics.csv", b"step,name,value\ntrue,loss,1\n"),
    ("plain", "metrics.csv", b"step,name,value\n9007199254740993,loss,1\n"),
    ("plain", "metrics.jsonl", b'{"step": 9223372036854775808, "name": "loss", "value": 1}\n'),
    ("plain", "metrics.jsonl", b'{"step": 1, "name": "\\ud800", "value": 1}\n'),
    ("compare", "items.csv", b"item,value\na,1,2\nb,0\n"),
    ("compare", "items.csv", long_line),
    ("compare", "items.jsonl", TORN),
    ("compare", "items.jsonl", long_line),
    ("yaml", VARIANT, b"extends: base\nwhy: &a [*a]\n"),
    ("yaml", VARIANT, BOMB),
    ("yaml", VARIANT, b"why: " + DEEP),
    ("yaml", VARIANT, long_line),
    ("trainer", STATE, b'{"log_history": ' + DEEP),
    ("trainer", STATE, b'{"log_history": [{"step": 1, "\\ud800": 1}]}'),
    ("trainer", STATE, long_line),
    ("verl", "grpo/seed_0.jsonl", b'{"step": 9223372036854775808, "data": {"a": 1}}\n'),
    ("verl", "grpo/seed_0.jsonl", long_line),
    ("trackio", "grid.db", endless_view),
]


# --- faults in results of agents; what is read of them otherwise: tests/ablation/readers/test_agents.py ---------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def replaced(old: str, new: str) -> Harm:
    def write(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return write


def with_json(change: Callable[[Any], Any]) -> Harm:
    def write(path: Path) -> None:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return write


def repeated_trial(name: str) -> Harm:
    """Copy the folder of a trial; with another name it is one that was tried again."""

    def write(path: Path) -> None:
        folder = path.parent.with_name(path.parent.name + "-again")
        shutil.copytree(path.parent, folder)
        file = folder / path.name
        file.write_text(file.read_text().replace(path.parent.name, path.parent.name + name))

    return write


def last_line_again(path: Path) -> None:
    path.write_text(path.read_text() + path.read_text().splitlines()[-2 if path.suffix == ".jsonl" else -1] + "\n")


TASK = next(iter(agents.TASKS))
REPORT, PRO, TAU2, PROMPTFOO = "model.run.json", "pro/eval_results.json", "tau2.json", "output.json"
INSTANCE = f"run/model/{agents.B[0]}/report.json"
OBJECT = "each/a/t3.json"
TRIAL, ATTEMPT = f"jobs/a/{TASK[:32]}__0/result.json", f"runs/a/{TASK}/{TASK}.1-of-3.run/results.json"
UNEQUAL = "evaluate all items equally often"
FAULTS: dict[str, list[tuple[str, Harm, str]]] = {
    "truncated": [
        (file, cut, "")
        for file in (REPORT, PRO, INSTANCE, TAU2, TRIAL, ATTEMPT, PROMPTFOO, OBJECT, "langsmith.csv", "oaieval.jsonl")
    ],
    "an id twice": [
        (REPORT, with_json(lambda of: of["unresolved_ids"].__setitem__(0, of["resolved_ids"][0])), "is also in"),
        (PRO, replaced(agents.A[1], agents.A[0]), "occurs twice"),
        (INSTANCE, lambda path: path.write_text(f"{path.read_text()[:-1]}, {path.read_text()[1:]}"), "occurs twice"),
        (TAU2, with_json(lambda of: of["simulations"].append(of["simulations"][0])), "occurs twice"),
        (TRIAL, repeated_trial(""), "occurs twice"),
        (ATTEMPT, repeated_trial(""), "occurs twice"),
        (PROMPTFOO, with_json(lambda of: of["results"]["results"].append(of["results"]["results"][0])), UNEQUAL),
        (OBJECT, replaced("t3", "t4"), "occurs 2 times"),
        ("langsmith.csv", last_line_again, "occurs 2 times"),
        ("oaieval.jsonl", last_line_again, "has two values of correct"),
    ],
    "an id and its error": [
        (REPORT, with_json(lambda of: of.update(infra_failure_ids=of["resolved_ids"][:1])), "infrastructure"),
        ("pro/infra_errors.json", with_json(lambda of: of.update({agents.A[0]: "no image"})), "is also in"),
        (INSTANCE, replaced('"resolved": true', '"resolved": true, "infra_failure": true'), "infrastructure"),
        (TAU2, replaced("user_stop", "infrastructure_error"), "infrastructure_error"),
        (TRIAL, replaced('"exception_info": null', '"reward_valid": false'), "reward_valid"),
        (ATTEMPT, replaced('"is_resolved": false', '"is_resolved": null'), "failure mode"),
        (PROMPTFOO, replaced('"failureReason": 0', '"failureReason": 2'), "has no score"),
        (OBJECT, replaced('"score": 1', '"error": "x"'), "is empty"),
        ("langsmith.csv", replaced("0,x,,True", "0,x,no connection,True"), "there is an error in column error"),
        ("oaieval.jsonl", replaced('"type": "sampling"', '"type": "error"'), "has no score"),
    ],
    "tried again": [
        (TAU2, with_json(lambda of: of["simulations"].append(of["simulations"][0] | {"trial": 9})), UNEQUAL),
        (TRIAL, repeated_trial("9"), UNEQUAL),
        (ATTEMPT, repeated_trial("9"), UNEQUAL),
        ("langsmith.csv", lambda path: path.write_text(f"{path.read_text()}0,x,,True,0.1,e0,r9\n"), UNEQUAL),
    ],
}


@pytest.mark.parametrize("harmed_as", ["agents"], indirect=True)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_in_a_file_of_agents_is_refused(harmed_as, kind):
    read, _ = harmed_as
    for file, harm, said in FAULTS[kind]:
        refusal = read(file, harm, refused)
        assert refusal, (kind, file)
        assert said in refusal, (kind, file, refusal)


def test_several_benchmarks_in_one_folder_are_not_one_result(tmp_path):
    write_agents(tmp_path)
    with pytest.raises(TrackerError, match="was also evaluated on all in"):
        read_group("a", expand([str(tmp_path)]), Options())


# --- cases -----------------------------------------------------------------------------------------------------------


def numbers_of(name: str, long: bool) -> Iterator[int]:
    chosen, _, number = os.environ.get("ABLATION_FUZZ", "").partition(":")
    if chosen:
        yield from [int(number)] if chosen == name else []
        return
    end = time.monotonic() + (LONG if long else SHORT) / len(TARGETS)
    yield from itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


def attempt(target: Target, folder: Path, path: Path) -> str:
    """Read a harmed folder; return what is wrong with the way in which that ended, or nothing."""
    begin = time.process_time()
    try:
        with time_limit():
            target.read(folder, path)
    except TrackerError as error:
        text = str(error)
        if "\n" in text or printable(text) != text or len(text) > 5000:
            return f"not one clear line: {text[:500]!r}"
    except Exception:
        return printable(traceback.format_exc()[-3000:])
    took = time.process_time() - begin  # a loaded machine is not a fault
    return f"took {took:.0f} s" if took > CPU else ""


def refused(target: Target, folder: Path, path: Path) -> str:
    """Read a harmed folder; return the error, or nothing."""
    try:
        target.read(folder, path)
    except TrackerError as error:
        return str(error)
    return ""


@pytest.fixture
def harmed_as(request, tmp_path):
    """Give what reads a copy of a target's folder after a file of it was harmed, and returns what is wrong."""
    target, good, folder = TARGETS[request.param], tmp_path / "good", tmp_path / "case"
    good.mkdir()
    target.write(good)
    files = sorted(path.relative_to(good) for path in good.glob(target.files) if path.is_file())

    def read(name: str, harm: Harm, how: Callable[[Target, Path, Path], str] = attempt) -> str:
        shutil.copytree(good, folder)
        try:
            harm(folder / name)
            return how(target, folder, folder / name)
        finally:
            shutil.rmtree(folder)
            shutil.rmtree(tmp_path / "results", ignore_errors=True)

    return read, files


@pytest.mark.parametrize(("harmed_as", "file", "harm"), KNOWN, indirect=["harmed_as"])
def test_what_went_wrong_once(harmed_as, file, harm):
    def write(path: Path) -> None:
        path.write_bytes(harm)

    assert not harmed_as[0](file, harm if callable(harm) else write)


@pytest.mark.parametrize(("harmed_as", "name"), [(name, name) for name in TARGETS], indirect=["harmed_as"])
def test_damage_is_an_error_or_does_no_harm(harmed_as, name, long):
    read, files = harmed_as
    found = []
    for number in numbers_of(name, long):
        chance = random.Random(f"{name}:{number}")
        file = chance.choice(files)
        if problem := read(file, partial(harm, chance)):
            found.append(f"{name}:{number} {file}: {problem}")
    assert not found, f"{len(found)} cases\n" + "\n\n".join(found[:10])
