"""Whatever one stage's folder holds, it costs that stage alone: it is corrupt, with a reason."""

import json
import os
import random
from functools import partial

import pandas as pd
import pytest

from ablation.cli.main import main
from ablation.contract.status import left_files
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.simulate import Study, simulate, stage_dir
from tests.time_limit import time_limit

DEEP = "[" * 100_000 + "]" * 100_000


def endless(path):
    path.touch()
    os.truncate(path, 1 << 40)


def status(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def text(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def frame(path, **columns):
    rows = pd.read_parquet(path)
    for name, values in columns.items():
        rows[name] = [*values, *rows[name][len(values) :]]
    rows.to_parquet(path, index=False)


def clusters(path, names):
    rows = pd.read_parquet(path)
    number = rows["item"].map({item: i for i, item in enumerate(rows["item"].unique())})
    rows["cluster"] = [names[i % len(names)] for i in number] if len(names) < len(rows) else list(names)
    rows.to_parquet(path, index=False)


def truncated(path):
    path.write_bytes(path.read_bytes()[:-20])


def scrambled(path):
    data = bytearray(path.read_bytes())
    data[4:200] = b"\xff" * 196  # the pages, not the footer: only reading the values shows it
    path.write_bytes(data)


def without_values(path):
    pd.read_parquet(path).drop(columns="value").to_parquet(path, index=False)


def values_of_text(path):
    pd.read_parquet(path).astype({"value": str}).to_parquet(path, index=False)


SHARDS = [truncated, scrambled, without_values, values_of_text]
FAULTS = [
    ("status.json", endless),
    ("weights.json", endless),
    *((f"{name}.parquet", kind) for kind in SHARDS for name in ("metrics", "items")),
    *(
        ("status.json", partial(text, content=content))
        for content in ("{", "[]", '{"state": "great"}', '{"state": "ok", "key": "other"}')
    ),
    ("provenance.json", partial(text, content="not json")),
    ("status.json", partial(text, content=b'{"state": "failed", "reason": "caf\xe9"}')),
    ("status.json", partial(text, content=DEEP)),
    ("status.json", partial(text, content='{"state": "ok", "attempt": ' + "9" * 5000 + "}")),
    ("status.json", partial(status, attempt=1e30)),
    ("status.json", partial(status, attempt=-1)),
    ("status.json", partial(status, wall_s=float("nan"))),
    ("status.json", partial(status, wall_s=True)),
    ("status.json", partial(status, state=["ok"])),
    ("status.json", partial(status, reason=["a"])),
    ("status.json", partial(status, ended=5)),
    ("status.json", partial(status, device=[])),
    ("status.json", partial(status, files={"metrics.parquet": "3"})),
    ("status.json", partial(status, sha256={"metrics.parquet": 3})),
    ("weights.json", partial(text, content=DEEP)),
    ("weights.json", partial(text, content='{"digest": "x", "moved": [1e400, "a"]}')),
    ("weights.json", partial(text, content='{"digest": "x", "moved": [' + str(10**400) + "]}")),
    ("weights.json", partial(text, content='{"digest": "\\ud800", "moved": [1]}')),
    ("provenance.json", partial(text, content=DEEP)),
    ("provenance.json", partial(text, content='{"a": NaN}')),
    ("provenance.json", partial(text, content='{"a": "\\ud800"}')),
    ("metrics.parquet", partial(frame, name=[None])),
    ("metrics.parquet", partial(frame, step=[None])),
    ("metrics.parquet", partial(frame, name=["train/\x1b[31mloss"])),
    ("metrics.parquet", partial(frame, name=["m" * 100_000])),
    ("items.parquet", partial(frame, item=[None])),
    ("items.parquet", partial(frame, subset=["\x1b]0;owned\x07"])),
    ("items.parquet", partial(frame, item=["\x9b31m"])),
    ("items.parquet", partial(clusters, names=("a", None))),
    ("items.parquet", partial(clusters, names=("a", "\x1b[31m"))),
    ("items.parquet", partial(clusters, names="aaaaabbbbb")),
    ("items.parquet", partial(clusters, names=(1.5,))),
]


def test_faults_of_stages_cost_these_stages_alone(tmp_path):
    results = tmp_path / "results"
    plan = simulate(results, [Study(variants=len(FAULTS), seeds=2, steps=2, items={"a": 5})])
    attacked = [stage_dir(plan, "toy", f"v{number}", 0, "evaluate") for number in range(len(FAULTS))]
    for place, (name, fault) in zip(attacked, FAULTS, strict=True):
        fault(place / name)
    with time_limit():
        assert main(["collect", "--results", str(results)]) == 0
    with Store(results / DATABASE) as store:
        stages = store.sql("SELECT key, state, reason FROM stages")
        left = store.sql("SELECT DISTINCT key FROM metrics UNION SELECT key FROM items UNION SELECT key FROM weights")
    found = {key: (state, reason) for key, state, reason in stages.itertuples(index=False)}
    wrong = {}
    for number, (name, fault) in enumerate(FAULTS):
        state, reason = found.pop(attacked[number].name)
        if state != "corrupt" or not reason.startswith(f"{name}: ") or not reason.isprintable() or len(reason) > 500:
            wrong[name, str(fault)] = state, reason
    assert wrong == {}
    assert {state for state, _ in found.values()} == {"ok"}
    assert not {path.name for path in attacked} & set(left["key"])
    with time_limit():
        assert main(["tables", "--results", str(results), "--reports", str(tmp_path / "reports")]) == 0
        assert main(["status", "--results", str(results)]) == 0


@pytest.mark.parametrize("name", ["metrics.parquet", "items.parquet", "weights.json", "provenance.json"])
def test_a_flipped_bit_is_damage_though_the_file_can_be_read(tmp_path, name):
    """Of 400 flipped bits of a Parquet file nine in ten were read, by DuckDB and pyarrow alike, as other rows."""
    results, chance = tmp_path / "results", random.Random(name)
    plan = simulate(results, [Study(variants=20, seeds=1, steps=50, items={"a": 50})])
    stages = [stage_dir(plan, "toy", f"v{number}", 0, "evaluate") for number in range(20)]
    for stage in stages:
        (stage / "weights.json").write_text('{"digest": "abc", "moved": [0.5, 0.25]}')
        status(stage / "status.json", **left_files(stage))
    whole, *damaged = stages
    for stage in damaged:
        content = bytearray((stage / name).read_bytes())
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (stage / name).write_bytes(content)
    collected = collect(results)
    with Store(results / DATABASE) as store:
        found = dict(store.sql("SELECT key, state FROM stages").itertuples(index=False))
        reasons = store.sql("SELECT DISTINCT reason FROM stages WHERE state = 'corrupt'")["reason"].tolist()
    assert collected.states["corrupt"] == len(damaged)
    assert {found[stage.name] for stage in damaged} == {"corrupt"}
    assert found[whole.name] == "ok"
    assert all(reason.startswith(f"{name}: ") for reason in reasons)


def test_the_words_of_an_error_are_shown_and_do_nothing(tmp_path, capsys):
    reasons = ["caf\udce9", "\x1b[2J\x1b]0;owned\x07", "a\nb\r\nc\0d", "x" * 500_000, "\u202egnp.exe"]
    results = tmp_path / "results"
    plan = simulate(results, [Study(variants=5)])
    failed = [stage_dir(plan, "toy", f"v{number}", 0, "evaluate") for number in range(5)]
    for folder_, reason in zip(failed, reasons, strict=True):
        status(folder_ / "status.json", state="failed", reason=reason, device=reason)
    folders = ["--results", str(results)]
    for command in ("tables", "figures", "report", "status", "verdicts"):
        more = {"verdicts": ["toy"], "status": ["--failed"]}.get(command, [])
        more += ["--reports", str(tmp_path / "reports")] if command in ("tables", "figures", "report") else []
        assert main([command, *more, *folders]) in (0, 1)
    assert main(["sql", "select chr(27) || device as d from stages", *folders]) == 0
    shown = capsys.readouterr()
    texts = (path for path in (tmp_path / "reports").rglob("*") if path.suffix in (".md", ".csv", ".tex", ".html"))
    for output in (shown.out, shown.err, *(path.read_text() for path in texts)):
        assert not set(output) & set("\x1b\x07\0\r\u202e\udce9")
    with Store(results / DATABASE) as store:
        found = store.sql("SELECT reason FROM stages WHERE state = 'failed' ORDER BY rowid")["reason"].tolist()
    assert found[:3] == ["caf\\udce9", "\\x1b[2J\\x1b]0;owned\\x07", "a b c\\x00d"]
    assert [len(reason) for reason in found[3:]] == [500, len("\\u202egnp.exe")]
