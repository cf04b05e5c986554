"""`ablation compare` of plain tables."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablation.contract.errors import ConfigError
from ablation.judge.statistics import contrast
from ablation.readers import items, tabular
from tests.ablation.readers.command import read, refused
from tests.ablation.readers.samples import ITEMS, hits


def table(path, seeds=3, gain=0.0, named=(), **more):
    rows = [
        {"item": f"i{at}", "value": value, "seed": seed, **{key: f(at) for key, f in more.items()}}
        for seed in range(seeds)
        for at, value in enumerate(hits(seed, gain))
    ]
    frame = pd.DataFrame(rows).rename(columns=dict(named))
    if "correct" in frame:
        frame = frame.astype({"correct": bool})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_plain_table_of_any_form_gives_the_same_numbers(suffix, groups, tmp_path, capsys):
    a, b = table(tmp_path / f"base{suffix}"), table(tmp_path / f"new{suffix}", gain=0.25)
    found, same = read(capsys, a, "--with", b), read(capsys, groups[0], "--with", groups[1])
    for key in ("effect", "low", "high", "p", "mde", "verdict", "seeds", "items", "child", "parent"):
        assert found[key] == pytest.approx(same[key]), key


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_columns_with_other_names_and_truth_values(suffix, tmp_path, capsys):
    named = {"item": "question id", "value": "correct"}
    same, groups = (
        [
            table(tmp_path / f"{name}{stem}{suffix}", gain=gain, named=names)
            for name, gain in (("base", 0.0), ("new", 0.25))
        ]
        for stem, names in (("", {}), ("_own", named))
    )
    want = read(capsys, same[0], "--with", same[1])
    found = read(capsys, groups[0], "--with", groups[1], "--item", "question id", "--metric", "correct")
    for key in ("effect", "low", "high", "items", "verdict"):
        assert found[key] == want[key], key
    said = refused(capsys, groups[0], "--with", groups[1], "--item", "question id")
    assert said.endswith("--metric names another column")


def test_seeds_that_agree_by_chance_are_not_said_to_be_enough(tmp_path, capsys):
    # Each seed has other items right.
    rows = [(seed, item, (7 * item + 50 * seed) % 200) for seed in range(2) for item in range(200)]
    pair = [(place < 70, 100 <= place < 182 - seed) for seed, _, place in rows]
    for name, values in zip(("base", "new"), zip(*pair, strict=True), strict=True):
        frame = pd.DataFrame(rows, columns=["seed", "item", "place"]).assign(value=np.array(values, int))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    found = read(capsys, tmp_path / "base.csv", "--with", tmp_path / "new.csv", "--margin", "0.02")
    assert found["reason"].endswith("more seeds or items would be needed for an effect this large")


def test_subsets_clusters_and_words_of_a_table(tmp_path, capsys):
    more = {
        "subset": lambda at: "odd" if at % 2 else "even",
        "cluster": lambda at: f"c{at // 4}",
        "text": lambda at: f"What is {at}?",
        "answer": lambda at: f"answer {at}",
    }
    a, b = table(tmp_path / "a.csv", **more), table(tmp_path / "b.csv", gain=0.25, **more)
    found = read(capsys, a, "--with", b)
    values = np.array([[hits(seed, gain) for seed in range(3)] for gain in (0.25, 0.0)])
    at = np.array(sorted(range(ITEMS), key=lambda i: f"i{i}"))
    parts = [at[at % 2 == rest] for rest in (0, 1)]
    alone = contrast([values[:, :, part] for part in parts], (1, -1), "max", clusters=[part // 4 for part in parts])
    assert [task["subset"] for task in found["tasks"]] == ["even", "odd"]
    assert (found["effect"], found["low"], found["high"]) == pytest.approx((alone.effect, alone.low, alone.high))
    assert found["best"][0]["text"]["asked"] == f"What is {found['best'][0]['item'][1:]}?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("item,score\na,1\n", "has no column 'value', only item, score"),
        ("seed,accuracy\n0,1\n", "has no column 'item' or 'value', only seed, accuracy"),
        (f"item,{'x' * 6000}\na,1\n", f"only item, {'x' * 193}…"),
        ("item,value\na,1\na,0\n", "stands 2 times"),
        ("item,value\na,1\nb,nan\n", "item b has no finite value; no item may be dropped: evaluate again"),
        ("item,value\na,right\nb,wrong\n", "write numbers as 0.5, right and wrong as 1 and 0"),
        ("item,value\na,1\nb,\n", "item b has no finite value"),
        ("item,value\na,1\n,0\n", "row 2 has none"),
        ("item,value,seed\na,1,one\n", "row 1 has no seed"),
        ("item,value,seed\na,1,0\nb,1,\n", "row 2 has no seed"),
        ("item,value\na,1\nb,1_0\n", "item b has no finite value"),
        (
            'item,value\na,1\nb,"0,5"\nc,"1,0"\n',
            "b and 1 more have no finite value; write numbers as 0.5",
        ),
        ('item,value\na,1\n"b,0\nc,1\n', "cannot be read"),
        ("item,value\n", "has no rows"),
        ("", "is empty"),
    ],
)
def test_a_table_that_is_wrong(text, words, tmp_path, capsys):
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("item,value\na,1\nb,0\n")
    bad.write_text(text)
    said = refused(capsys, good, "--with", bad)
    assert words in said
    assert "bad.csv" in said


def test_what_unpacks_to_more_than_memory_is_refused_before_it_does(tmp_path, capsys, monkeypatch):
    rows = {"item": pa.DictionaryArray.from_arrays([0] * 300, ["x" * 10_000]).cast(pa.string()), "value": [1.0] * 300}
    pq.write_table(pa.table(rows), tmp_path / "items.parquet")
    assert (tmp_path / "items.parquet").stat().st_size < 50_000
    monkeypatch.setattr(tabular, "MOST_BYTES", 1 << 20)
    assert "unpacks to 2 MiB" in refused(capsys, table(tmp_path / "a.csv"), "--with", tmp_path / "items.parquet")
    with pytest.raises(ConfigError, match="unpacks to more than"):
        list(items.read(tmp_path, print))
    monkeypatch.setattr(tabular, "MOST_ROWS", 299)
    with pytest.raises(ConfigError, match="has 300 rows"):
        list(items.read(tmp_path, print))
