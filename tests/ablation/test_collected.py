"""What a command left becomes metrics and items, whichever reader finds it."""

import json
import tarfile
from pathlib import Path

import pytest

from ablation.cli.collected import collect
from ablation.contract.errors import ConfigError


def collected(output, *wanted):
    metrics, items = collect(output, [{"place": ".", **entry} for entry in wanted])
    values = {(row["step"], row["name"]): row["value"] for row in metrics.to_pylist()}
    found = [tuple(row.values()) for row in items.to_pylist()]
    assert len(values) == metrics.num_rows
    return values, found


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_samples_of_the_real_lm_eval(tmp_path):
    archive = Path(__file__).parent / "readers" / "fixtures" / "lm_eval.tar.gz"
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    run = tmp_path / "runs" / "base" / "seed0"
    (results,) = (json.loads(path.read_text()) for path in run.rglob("results_*.json"))
    values, items = collected(run, {"reader": "lm_eval"})
    reported = results["results"]
    assert values[0, "lm_eval/openbook/acc"] == pytest.approx(reported["openbook"]["acc,none"])
    assert values[0, "lm_eval/openbook/acc_norm"] == pytest.approx(reported["openbook"]["acc_norm,none"])
    for name in ("strict-match", "flexible-extract"):
        expected = reported["letters"][f"exact_match,{name}"]
        assert values[0, f"lm_eval/letters/exact_match,{name}"] == pytest.approx(expected)
    assert len({(item, subset, name) for item, subset, _, name, _, _ in items}) == len(items)
    later = next(run.rglob("samples_openbook_*.jsonl"))
    cut = later.with_name("samples_openbook_2001-01-01T00-00-00.jsonl")
    cut.write_text(later.read_text()[:-40])  # an earlier one is not read
    assert collected(run, {"reader": "lm_eval"}) == (values, items)
    rows = [json.loads(line) | {"acc": 1.0} for line in later.read_text().splitlines()]
    write(later.with_name("samples_openbook_2099-01-01T00-00-00.jsonl"), rows)  # begun again: the newest counts
    values, again = collected(run, {"reader": "lm_eval"})
    assert values[0, "lm_eval/openbook/acc"] == 1.0
    assert len(again) == len(items)
    with pytest.raises(ConfigError, match="run lm_eval with --log_samples"):
        collected(tmp_path, {"reader": "lm_eval", "place": "runs/base/seed0/*/results*"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.csv", "step,loss,note,lr\n1,0.5,hi,\n2,0.25,,1e-3\n"),
        ("metrics.csv", "step,name,value\n1,loss,9\n1,loss,0.5\n2,loss,.25\n2,lr,0.001\n"),
        (
            "metrics.jsonl",
            '{"step": 1, "loss": 0.5, "note": "hi", "x": [1]}\n\n{"step": 2, "loss": 0.25, "lr": 0.001}\n',
        ),
    ],
)
def test_plain_metrics(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)
    assert collected(tmp_path, {"reader": "metrics"})[0] == {(1, "loss"): 0.5, (2, "loss"): 0.25, (2, "lr"): 0.001}
    assert ("columns without numbers are not read: note" in capsys.readouterr().err) == ("hi" in text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("items.csv", "\ufeff,item,acc,response\r\n0,1,1,42\r\n1,2,0,none\r\n\r\n", {(0, "test/all/acc"): 0.5}),
        ("items.csv", f'item,acc,prompt\na,1,"{"x" * 200_000}\n"\n', {(0, "test/all/acc"): 1.0}),
        ("items.jsonl", '\ufeff{"item": 1, "acc": true, "note": null}\n', {(0, "test/all/acc"): 1.0}),
        ("metrics.csv", "\ufeff,step,loss\n0,1.0,2\n", {(1, "loss"): 2.0}),
        (
            "metrics.jsonl",
            '{"step": 1, "name": "a", "value": 2}\n{"step": 2, "name": "a", "value": null}',
            {(1, "a"): 2},
        ),
    ],
)
def test_files_as_spreadsheets_and_pandas_write_them(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    assert collected(tmp_path, {"reader": name.partition(".")[0]})[0] == expected


def test_plain_items_in_all_their_forms(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.csv").write_text(
        "item,subset,right,tokens,answer,seed\nq1,math,true,30,x,4\nq2,math,0,50,y,4\n"
    )
    (tmp_path / "a" / "2.csv").write_text("item,subset,name,value,cluster\nq1,code,right,1,c\n")
    metrics, items = collected(tmp_path, {"reader": "items", "place": "a/*.csv"})
    assert items == [
        ("q1", "math", "test", "right", 1.0, None),
        ("q1", "math", "test", "tokens", 30.0, None),
        ("q2", "math", "test", "right", 0.0, None),
        ("q2", "math", "test", "tokens", 50.0, None),
        ("q1", "code", "test", "right", 1.0, "c"),
    ]
    assert metrics == {
        (0, "test/math/right"): 0.5,
        (0, "test/math/tokens"): 40.0,
        (0, "test/code/right"): 1.0,
        (0, "test/mean/right"): 0.75,
    }


def test_what_a_command_logged_is_not_replaced_by_a_mean(tmp_path):
    (tmp_path / "items.csv").write_text("item,value\na,1\nb,0\n")
    (tmp_path / "metrics.csv").write_text("step,test/all/value\n7,0.9\n")
    assert collected(tmp_path, {"reader": "metrics"}, {"reader": "items"})[0] == {(7, "test/all/value"): 0.9}


@pytest.mark.parametrize(
    "text", ["name,value\ntest/all/value,0.9\ntest/all/f1,0.8\n", "test/all/value,test/all/f1\n0.9,0.8\n"]
)
def test_final_metrics_need_no_step(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    assert collected(tmp_path, {"reader": "metrics"})[0] == {(0, "test/all/value"): 0.9, (0, "test/all/f1"): 0.8}


def test_the_last_evaluation_of_a_training(tmp_path):
    write(tmp_path / "log.jsonl", [{"step": step, "data": {"reward": step}} for step in (5, 10)])
    for step in (5, 10):
        rows = [{"input": q, "output": "x", "gts": "y", "score": step / 10, "step": step} for q in "ab"]
        write(tmp_path / "val" / f"{step}.jsonl", rows)
    values, items = collected(tmp_path, {"reader": "verl"})
    assert {name for _, _, name in ((row[2], row[1], row[1]) for row in items)} == {"step 5", "step 10", "last"}
    assert [row[4] for row in items if row[1] == "last"] == [1.0, 1.0]
    assert values[10, "validation/last/score"] == 1.0
    assert values[10, "validation/step 5/score"] == 0.5
    assert (10, "validation/mean/score") not in values
    _, items = collected(tmp_path, {"reader": "verl", "at": 7})
    assert [row[4] for row in items if row[1] == "last"] == [0.5, 0.5]


LOSSES = {100: 0.9, 300: 0.5, 400: 0.7}


def keep_the_best(folder):
    """What the Trainer leaves that kept the model of step 300."""
    rows = [{"step": step, "eval_loss": loss} for step, loss in LOSSES.items()]
    (folder / "trainer_state.json").write_text(json.dumps({"best_global_step": 300, "log_history": rows}))
    (folder / "args.json").write_text(json.dumps({"load_best_model_at_end": True}))


@pytest.mark.parametrize(("at", "kept"), [({}, 300), ({"at": "last"}, None), ({"at": 100}, 100)])
def test_the_step_of_the_model_that_was_kept_is_logged(tmp_path, capsys, at, kept):
    keep_the_best(tmp_path)
    values, _ = collected(tmp_path, {"reader": "trainer_state", **at})
    logged = {(step, "eval_loss"): loss for step, loss in LOSSES.items()}
    assert values == logged | ({(400, "kept_step"): kept} if kept else {})
    assert (f"final values are those of the kept model, at step {kept}" in capsys.readouterr().err) == bool(kept)


@pytest.mark.parametrize(("at", "last"), [({}, 300), ({"at": 100}, 100), ({"at": "last"}, 400)])
def test_items_in_a_file_of_their_own_are_of_the_kept_model_too(tmp_path, at, last):
    keep_the_best(tmp_path)
    lines = "".join(f"q,step {step},{step}\n" for step in (100, 300, 400))
    (tmp_path / "items.csv").write_text(f"item,subset,value\n{lines}")
    values, items = collected(tmp_path, {"reader": "trainer_state"}, {"reader": "items", **at})
    assert [row[4] for row in items if row[1] == "last"] == [last]
    assert values[400, "test/last/value"] == last
    assert [row[4] for row in collected(tmp_path, {"reader": "items", **at})[1] if row[1] == "last"] == [
        last if at else 400
    ]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("items.csv", "item,value\n,1\n", "line 2: item: is missing"),
        ("items.csv", "item,text\na,b\n", "line 2: value: is missing"),
        ("items.csv", "item,value\na,nan\n", "line 2: value = 'nan': is not finite"),
        (
            "items.csv",
            "item|acc\na|1\n",
            "name the item of each row in a column `item`; the columns are item|acc",
        ),
        ("items.jsonl", '{"item": 1, "value": 1, "n": 5}\n{"item": 2, "n": 7}\n', "line 2: value: is not a number"),
        ("items.csv", f"item,acc\n{'x' * 501},1\n", "is longer than 500 characters; use a shorter name"),
        ("items.csv", "item,acc,said\na,1,42\nb,0,no\n", "if the column holds words, rename it to `text`"),
        ("items.csv", "item,acc\na,1\nb,\nc,n/a\n", "line 3: acc = '': is not a number"),
        ("items.csv", "item,acc\na,1\nb,1_0\n", "line 3: acc = '1_0': is not a number"),
        ("items.csv", "item,acc,acc\na,1,0\n", "line 1 = 'acc': is the name of several columns"),
        ("items.csv", "item,acc\na,1\nb,0,1\n", "line 3: has 3 cells, but the heading has 2"),
        ("items.csv", 'item,acc\na,1\n"b,0\nc,1\n', "cannot be read (unexpected end of data)"),
        ("items.jsonl", '{"item": "a", "acc": 1}\n{"item": "b", "ac\n', "line 2"),
        ("items.jsonl", "[" * 100_000 + "\n", "line 1"),
        ("items.parquet", "no parquet", "cannot be read"),
        (
            "metrics.csv",
            "loss\n1\n2\n",
            "step: is missing, but a metric has several values; write a whole number",
        ),
        (
            "metrics.csv",
            "epoch,loss\n3,0.5\n",
            "if epoch is the step, write `metrics: {path: metrics.csv, step: epoch}`",
        ),
        ("metrics.csv", "Step,loss\n100,0.5\n", "if Step is the step, write "),
        ("metrics.jsonl", '{"global_step": 500, "loss": 0.5}\n', "{path: metrics.jsonl, step: global_step}"),
        (
            "metrics.csv",
            "step,loss\n,1\n",
            "step = '': is not a whole number of at most 64 bits; write a whole number as the step",
        ),
        ("metrics.jsonl", '{"step": 1, "loss": 1}\n{"loss": 2}\n', "line 2: step: is not a whole number"),
        ("metrics.csv", f"step,loss\n{2**63},1\n", "is not a whole number of at most 64 bits"),
        ("metrics.csv", "step,loss\n1,1\n2,n/a\n", "line 3: loss = 'n/a': is not a number"),
        ("metrics.jsonl", '{"step": 1, "loss": 1}\n{"ste', "line 2"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, text, problem):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        collected(tmp_path, {"reader": name.partition(".")[0]})
    assert problem in str(caught.value)


def test_a_line_of_two_gigabytes_is_refused_by_its_beginning(tmp_path):
    with (tmp_path / "items.jsonl").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(ConfigError, match=r"line 1 = .*is longer than 64 MiB"):
        collected(tmp_path, {"reader": "items"})
