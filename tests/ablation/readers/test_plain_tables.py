"""`ablation compare` of plain tables."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from ablation.contract.errors import ConfigError
from ablation.judge.statistics import contrast
from ablation.readers import items, tabular
from ablation.readers.columns import number, numbers
from ablation.readers.sheet import short
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
    assert read(capsys, groups[0], "--with", groups[1], "--item", "question id")["effect"] == want["effect"]
    said = refused(capsys, groups[0], "--with", groups[1])
    assert "name another column with --item" in said or "with --item and --metric" in said


def test_seeds_that_agree_by_chance_are_not_said_to_be_enough(tmp_path, capsys):
    # Each seed has other items right.
    rows = [(seed, item, (7 * item + 50 * seed) % 200) for seed in range(2) for item in range(200)]
    pair = [(place < 70, 100 <= place < 182 - seed) for seed, _, place in rows]
    for name, values in zip(("base", "new"), zip(*pair, strict=True), strict=True):
        frame = pd.DataFrame(rows, columns=["seed", "item", "place"]).assign(value=np.array(values, int))
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    found = read(capsys, tmp_path / "base.csv", "--with", tmp_path / "new.csv", "--margin", "0.02")
    assert found["reason"].endswith("detecting an effect this size would take more seeds or items")


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
        ("item,points\na,1\n", "has no column 'value', only item, points"),
        ("seed,points\n0,1\n", "has no column 'item' or 'value', only seed, points"),
        (
            "id,qid,score\na,b,1\n",
            "columns id, qid may be the item column; choose one with --item, such as --item id",
        ),
        ("item,score,correct\na,1,1\n", "may be the value column; choose one with --metric, such as --metric score"),
        (f"item,{'x' * 6000}\na,1\n", f"only item, {'x' * 193}…"),
        ("item,value\na,1\na,0\n", "occurs 2 times"),
        ("item,value\na,1\nb,nan\n", "its cell in column value is empty; errors: good 0 of 2, bad 1 of 2"),
        ("item,value\na,right\nb,wrong\n", "write numbers such as 0.5, or 1 and 0 for right and wrong"),
        ("item,value\na,1\nb,\n", "item b has no score: its cell in column value is empty"),
        ("item,value\na,1\nb,inf\n", "item b has no finite value"),
        ("item,value\na,1\n,0\n", "is missing in row 2"),
        ("item,value,seed\na,1,one\n", "is not a whole number in row 1"),
        ("item,value,seed\na,1,0\nb,1,\n", "is missing in row 2"),
        ("item,value\na,1\nb,1_0\n", "row 2: value = '1_0': is not a number; write numbers such as 0.5"),
        ('item,value\na,1\nb,"1,758"\n', "row 2: value = '1,758': may mean 1.758 or 1758; write numbers without"),
        ('item,value\na,0.5\nb,"0,5"\n', "row 1: value = '0.5': has a decimal point, but other cells have a decimal"),
        ("item,value\na,1\nb,50%\n", "row 1: value = '1': has no % sign, but other cells have one"),
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


NOTATIONS = {
    "utf-16": ("utf-16", ",", "{:.3f}", ""),
    "utf-16 without a mark": ("utf-16-le", ",", "{:.3f}", ""),
    "sep=": ("utf-8", ";", "{:.3f}", "sep=;\n"),
    "decimal comma": ("utf-8", ";", "{:.3f}", ""),
    "percent": ("utf-8", ",", "{:.1%}", ""),
    "tabs": ("utf-16", "\t", "{:.3f}", ""),
}


@pytest.mark.parametrize("name", NOTATIONS)
def test_the_notations_of_spreadsheets_give_the_same_numbers(name, tmp_path, capsys):
    encoding, separator, form, head = NOTATIONS[name]
    values = [np.round(np.random.default_rng(side).uniform(size=80), 3) for side in range(2)]
    files = [tmp_path / f"{name}{side}.csv" for side in range(4)]
    for file, of in zip(files[:2], values, strict=True):
        cells = [form.format(v).replace(".", "," if name == "decimal comma" else ".") for v in of]
        lines = [separator.join(("item", "value")), *(f"q{at}{separator}{cell}" for at, cell in enumerate(cells))]
        file.write_text(head + "\n".join(lines) + "\n", encoding=encoding)
    for file, of in zip(files[2:], values, strict=True):
        pd.DataFrame({"item": [f"q{at}" for at in range(80)], "value": of}).to_csv(file, index=False)
    found, want = (read(capsys, a, "--with", b, "--margin", "0.1") for a, b in (files[:2], files[2:]))
    for key in ("effect", "low", "high", "p", "items"):
        assert found[key] == pytest.approx(want[key], rel=1e-9), key


@pytest.mark.parametrize("name", ["points", "1,234.5", "1.234,5", "12,345,678", "7,5 %", "1e-3", "-0,25"])
def test_a_cell_is_read_only_where_it_can_be_one_number(name):
    known = {"1,234.5": 1234.5, "1.234,5": 1234.5, "12,345,678": 12345678, "7,5 %": 0.075, "1e-3": 0.001}
    assert number(name) == (known | {"points": None, "-0,25": -0.25})[name]
    assert number("1,758") is None
    assert numbers(["1,758", "0,5", ""])[:2] == [1.758, 0.5]
    assert numbers(["1,758", "12.5"]) == [1758, 12.5]


def test_the_repeats_of_an_item_are_found_by_their_column(tmp_path, capsys):
    """198 questions of 5 epochs, by hand: the mean over an item's epochs, then a paired comparison of items."""
    chance = np.random.default_rng(5)
    values = {side: (chance.uniform(size=(60, 5)) < level).astype(float) for side, level in (("a", 0.7), ("b", 0.5))}
    for side, of in values.items():
        rows = [(f"q{at:02}", float(of[at, epoch]), epoch) for at in range(60) for epoch in range(5)]
        pd.DataFrame(rows, columns=["question_id", "score", "epoch"]).to_csv(tmp_path / f"{side}.csv", index=False)
    found = read(capsys, tmp_path / "a.csv", "--with", tmp_path / "b.csv")
    difference = (values["b"] - values["a"]).mean(axis=1)
    assert (found["effect"], found["items"]) == (pytest.approx(difference.mean()), 60)
    assert (found["low"], found["high"]) == pytest.approx(
        stats.ttest_1samp(difference, 0).confidence_interval(0.95), rel=0.02
    )
    assert "each item has 5 samples, numbered by epoch" in " ".join(found["notes"])
    (tmp_path / "c.csv").write_text("".join((tmp_path / "a.csv").read_text().splitlines(keepends=True)[:-1]))
    assert "has 5 samples" in refused(capsys, tmp_path / "a.csv", "--with", tmp_path / "c.csv")


def test_rows_of_two_systems_are_told_apart_by_a_column(tmp_path, capsys):
    rows = [(f"q{at}", model, at % 2) for at in range(9) for model in ("m-one", "m-two")]
    pd.DataFrame(rows, columns=["id", "model_id", "correct"]).to_csv(tmp_path / "long.csv", index=False)
    (tmp_path / "b.csv").write_text("id,correct\nq0,1\n")
    said = refused(capsys, tmp_path / "long.csv", "--with", tmp_path / "b.csv")
    assert "item q0 occurs 2 times; the column model_id distinguishes the rows; pass --by model_id if it" in said


def test_an_array_of_objects_is_a_table(tmp_path, capsys):
    for side in "ab":
        rows = [{"task_id": at, "passed": bool(at % (3 if side == "a" else 2)), "log": "x" * 99} for at in range(40)]
        (tmp_path / f"{side}.json").write_text(json.dumps(rows))
    found = read(capsys, tmp_path / "a.json", "--with", tmp_path / "b.json")
    assert (found["items"], found["effect"]) == (40, pytest.approx(20 / 40 - 26 / 40))
    (tmp_path / "b.json").write_text('[{"task_id": 1, "passed": true}, 3]')
    assert "is not a JSON array of objects" in refused(capsys, tmp_path / "a.json", "--with", tmp_path / "b.json")
    (tmp_path / "b.json").write_text('[{"task_id": 1, "passed": true}, {"task')
    assert "cannot be read" in refused(capsys, tmp_path / "a.json", "--with", tmp_path / "b.json")


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_the_tables_of_a_folder_are_read_where_it_holds_nothing_else(suffix, tmp_path, capsys):
    for side, right in (("a", range(20)), ("b", range(5, 28))):
        frame = pd.DataFrame({"task_id": range(30), "success": [int(at in right) for at in range(30)]})
        (folder := tmp_path / side).mkdir()
        if suffix == "csv":
            frame.to_csv(folder / "results.csv", index=False)
        else:
            frame.to_json(folder / f"results.{suffix}", orient="records", lines=suffix == "jsonl")
    a, b = tmp_path / "a", tmp_path / "b"
    for words in ([a, "--with", b], [a, b], [f"{tmp_path}/*"]):
        found = read(capsys, *words)
        assert (found["items"], found["effect"]) == (30, pytest.approx(3 / 30))
        assert (
            f"{b}: its tables (results.{suffix}) are read, because the folder holds no results of a known program"
            in found["notes"]
        )
    assert f"ablation compare '{tmp_path}/*'" in refused(capsys, tmp_path)
    (b / "summary.csv").write_text("model,tokens\nb,100\n")
    found = read(capsys, a, b)
    assert found["effect"] == pytest.approx(3 / 30)
    assert any(note.startswith(f"{b / 'summary.csv'}: is left out (has no column") for note in found["notes"])
    (b / "older.csv").write_text("task_id,success\n" + "".join(f"{at},1\n" for at in range(30)))
    assert "was also evaluated on all in" in refused(capsys, a, b)


def test_a_table_of_a_folder_with_other_columns_is_read_by_the_options_that_the_error_names(tmp_path, capsys):
    for side, right in (("a", 20), ("b", 23)):
        (tmp_path / side).mkdir()
        rows = "".join(f"t{at},{int(at < right)}\n" for at in range(30))
        (tmp_path / side / "results.csv").write_text(f"task,points\n{rows}")
    said = refused(capsys, tmp_path / "a", tmp_path / "b")
    assert "only task, points" in said
    assert "name other columns with --item and --metric" in said
    found = read(capsys, tmp_path / "a", tmp_path / "b", "--item", "task", "--metric", "points")
    assert found["effect"] == pytest.approx(3 / 30)


def test_what_unpacks_to_more_than_memory_is_refused_before_it_does(tmp_path, capsys, monkeypatch):
    rows = {"item": pa.DictionaryArray.from_arrays([0] * 300, ["x" * 10_000]).cast(pa.string()), "value": [1.0] * 300}
    pq.write_table(pa.table(rows), tmp_path / "items.parquet")
    assert (tmp_path / "items.parquet").stat().st_size < 50_000
    monkeypatch.setattr(tabular, "MOST_BYTES", 1 << 20)
    assert "unpacks to more than" in refused(capsys, table(tmp_path / "a.csv"), "--with", tmp_path / "items.parquet")
    with pytest.raises(ConfigError, match="unpacks to more than"):
        list(items.read(tmp_path, print))
    monkeypatch.setattr(tabular, "MOST_ROWS", 299)
    with pytest.raises(ConfigError, match="has 300 rows"):
        list(items.read(tmp_path, print))


def test_long_names_of_items_are_cut_where_they_are_alike():
    names = [f"instance_NodeBB__NodeBB-{at:040x}-vnan" for at in range(100, 103)]
    assert len(set(map(short, names))) == 3
    assert all(len(short(name)) <= 64 and short(name).startswith("instance_NodeBB__NodeBB") for name in names)
    assert short("a" * 64) == "a" * 12  # a hash
    assert short("task_1") == "task_1"


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"item": [b"a", b"b"], "value": [1.0, 0.0]}, "is not text in row 1"),
        ({"item": [{"x": 1}, {"x": 2}], "value": [1.0, 0.0]}, "is not text in row 1"),
        ({"item": ["a", "b"], "value": [[1.0], [0.0]]}, "row 1: value = [1.0]: is not a number"),
    ],
)
def test_a_parquet_column_of_another_type_is_refused(cells, words, tmp_path, capsys):
    for name in ("a", "b"):
        pd.DataFrame(cells).to_parquet(tmp_path / f"{name}.parquet")
    assert words in refused(capsys, tmp_path / "a.parquet", "--with", tmp_path / "b.parquet")
