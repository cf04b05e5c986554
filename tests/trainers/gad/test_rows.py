"""Rows of files: what is read, what is refused with file, row and reason, splits, lengths, and the generated task."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.trainers.gad.helpers import gad_stage
from trainers.gad import data
from trainers.gad.config import GadConfig
from trainers.gad.data import length_statistics, response_limit
from trainers.gad.rows import read_teacher_rows, split_rows
from trainers.policy.text import prompt_tokens, word_tokenizer
from trainers.tasks.interface import Problem, read_problems, write_problems
from trainers.tasks.settings import TemplatedLists
from trainers.tasks.templated_lists import WORDS, create


def good(number):
    return {"content": [{"role": "user", "content": f"question {number}"}], "teacher_response": f"answer {number}"}


def write(path, rows):
    if path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_both_formats_give_the_same_rows(tmp_path, suffix):
    said = (("system", "be brief"), ("user", "hello"), ("assistant", "hi,\u2028you"), ("user", "and now?"))
    chat = {"content": [{"role": role, "content": text} for role, text in said], "teacher_response": "nothing"}
    rows, duplicates = read_teacher_rows(write(tmp_path / f"rows{suffix}", [good(1), chat, good(1)]))
    assert duplicates == 1
    assert [row.answer for row in rows] == ["answer 1", "nothing"]  # the repeated chat counts once
    assert (rows[1].earlier, rows[1].prompt) == (chat["content"][:-1], "and now?")
    assert rows[0].chat == "question 1"
    assert rows[1].chat == "\n\n".join(f"{role}: {text}" for role, text in said)
    assert len({row.id for row in rows}) == 2
    write_problems(tmp_path / "kept.jsonl", rows)
    assert read_problems(tmp_path / "kept.jsonl") == rows


@pytest.mark.parametrize(
    ("suffix", "bad", "reason"),
    [
        (
            "jsonl",
            {"content": [{"role": "user", "content": "q"}]},
            "row 2: the field teacher_response is missing; add it",
        ),
        ("jsonl", good(2) | {"teacher_response": None}, "row 2: teacher_response is .* valid str"),
        ("parquet", good(2) | {"teacher_response": None}, "row 2: teacher_response is .* valid str"),
        ("jsonl", good(2) | {"teacher_response": "  "}, "row 2: teacher_response is .  ."),
        ("jsonl", {"content": [], "teacher_response": "a"}, "row 2: content is .* at least 1 item"),
        ("jsonl", good(2) | {"content": [{"role": "teacher", "content": "q"}]}, r"row 2: content\.0\.role is "),
        (
            "jsonl",
            good(2) | {"content": [{"role": "assistant", "content": "q"}]},
            "row 2: .*end with the role 'user'",
        ),
        ("jsonl", [1, 2], r"row 2: the row is \[1, 2\]"),
    ],
)
def test_a_bad_row_is_refused_with_file_number_and_reason(tmp_path, suffix, bad, reason):
    path = write(tmp_path / f"rows.{suffix}", [good(1), bad])
    with pytest.raises(ValueError, match=rf"rows\.{suffix}: {reason}"):
        read_teacher_rows(path)


def test_a_file_without_a_column_of_no_json_or_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the column teacher_response is missing"):
        read_teacher_rows(write(tmp_path / "rows.parquet", [{"content": good(1)["content"]}]))
    path = tmp_path / "rows.jsonl"
    for content, problem in ((json.dumps(good(1)) + "\n{oops\n", r"rows\.jsonl: row 2 is not JSON"), ("\n", "no rows")):
        path.write_text(content)
        with pytest.raises(ValueError, match=problem):
            read_teacher_rows(path)


def some(first, last):
    return [Problem(f"r{i}", str(i), "a") for i in range(first, last)]


def test_splits_are_disjoint_follow_the_seed_and_say_when_there_are_too_few():
    rows = some(0, 20)
    splits = split_rows(rows, train=None, dev=4, test=6, seed=0)
    assert {name: len(part) for name, part in splits.items()} == {"test": 6, "dev": 4, "train": 10}
    assert sorted(row.id for part in splits.values() for row in part) == sorted(row.id for row in rows)
    assert split_rows(rows[::-1], train=None, dev=4, test=6, seed=0) == splits
    assert split_rows(rows, train=None, dev=4, test=6, seed=1) != splits
    assert len(split_rows(rows, train=3, dev=4, test=6, seed=0)["train"]) == 3
    with pytest.raises(ValueError, match=r"too few different rows \(20\): train needs"):
        split_rows(rows, train=15, dev=4, test=6, seed=0)


def test_the_limit_is_the_teachers_99th_percentile_rounded_up():
    lengths = length_statistics([*range(1, 100), 1000])
    assert lengths == pytest.approx({"mean": 59.5, "p50": 50.5, "p95": 95.05, "p99": 99 + 0.01 * 901, "max": 1000})
    assert lengths["p99"] == pytest.approx(np.percentile([*range(1, 100), 1000], 99))
    assert response_limit(GadConfig(), lengths) == 109
    assert response_limit(GadConfig(sampling={"length_factor": 3.0}), lengths) == 325
    assert response_limit(GadConfig(sampling={"max_response_length": 7, "length_factor": 3.0}), lengths) == 21


def test_chats_without_a_template_are_joined_and_with_one_use_it():
    tokenizer = word_tokenizer(["be", "brief", "hello", "system", "user", "assistant"])
    chat = Problem("x", "hello", "", earlier=[{"role": "system", "content": "be brief"}])
    assert tokenizer.decode(prompt_tokens(tokenizer, chat)) == "be brief hello"
    each = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    tokenizer.chat_template = each + "{% if add_generation_prompt %}assistant{% endif %}"
    assert tokenizer.decode(prompt_tokens(tokenizer, Problem("x", "hello", ""))) == "user hello assistant"
    assert tokenizer.decode(prompt_tokens(tokenizer, chat)) == "system be brief user hello assistant"


# --- the generated task ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lists():
    task = create(TemplatedLists())
    return task, task.splits({"warm": 300, "train": 100, "dev": 30, "test": 40}, seed=0)


def test_the_expected_response_is_perfect_and_every_word_is_known(lists):
    task, splits = lists
    for problem in [p for part in splits.values() for p in part]:
        assert task.reward(problem, problem.answer) == 1
        assert task.correct(problem, problem.answer)
        words = f"{problem.prompt} {problem.answer} {problem.demonstration or ''}".split()
        assert set(words) <= set(WORDS)


def test_each_part_counts_a_quarter(lists):
    task, _ = lists
    problem = Problem("x", "casual list these fruit : plum apple mango ?", "")
    perfect = "hey , your sorted fruit : 1 apple 2 mango 3 plum . total 3 . cheers"
    assert task.reward(problem, perfect) == 1
    assert task.reward(problem, perfect.replace("hey , your", "dear reader , the")) == 0.75
    assert task.reward(problem, perfect.replace("total 3", "total 4")) == 0.75
    assert task.reward(problem, perfect.replace("cheers", "kind regards")) == 0.75
    assert task.reward(problem, perfect.replace("2 mango 3 plum", "2 plum 3 mango")) == pytest.approx(0.75 + 0.25 / 3)
    assert task.reward(problem, perfect.replace(" 3 plum .", " 3 plum 4 plum .")) == pytest.approx(0.75 + 0.25 * 3 / 4)
    assert task.reward(problem, "sorted fruit") == 0
    assert not task.correct(problem, perfect.replace("3 plum", "3 peach"))


# --- shares, files of their own, rows left out ------------------------------------------------------------------------


def test_a_validation_file_leaves_all_the_others_to_train_on_but_those_it_holds_itself():
    splits = split_rows(some(0, 20), train=None, dev=0.5, test=0.5, seed=0, validation=some(18, 24))
    assert {name: len(part) for name, part in splits.items()} == {"test": 3, "dev": 3, "train": 18}
    assert {row.id for row in splits["train"]} == {f"r{i}" for i in range(18)}
    with pytest.raises(ValueError, match="6 in validation_source"):
        split_rows(some(0, 20), train=None, dev=4, test=4, seed=0, validation=some(18, 24))


def test_the_data_stage_reads_both_files_and_counts_what_it_leaves_out(tmp_path):
    """Duplicates, a chat of the validation file, a prompt that is too long."""
    model = tmp_path / "model" / "files"
    tokenizer = word_tokenizer([f"w{i}" for i in range(40)])
    tokenizer.save_pretrained(model)

    def chat(number, length=2, answer=3):
        words = " ".join([f"w{number}", *["w0"] * (length - 1)])
        return {"content": [{"role": "user", "content": words}], "teacher_response": " ".join(["w1"] * answer)}

    files = {
        "data_source": [*map(chat, range(10)), chat(3), chat(4), chat(11, length=9), chat(20)],
        "validation_source": [chat(number) for number in range(20, 26)],
    }
    inputs = {"model": tmp_path / "model"}
    for name, rows in files.items():
        (tmp_path / name / "files").mkdir(parents=True)
        write(tmp_path / name / "files" / "rows.jsonl", rows)
        inputs[name] = tmp_path / name
    asset = {"kind": "responses", "sources": [{"source": "path", "path": "rows.jsonl"}]}
    settings = GadConfig(
        task=None,
        model={"kind": "model", "sources": [{"source": "path", "path": "model"}]},
        data={"train": None, "dev": 0.5, "test": 0.5, "max_prompt_length": 8},
        **dict.fromkeys(files, asset),
    )
    stage = gad_stage(tmp_path / "data", settings, inputs)
    data.run(stage)
    logged = {name.removeprefix("rows/"): value for _, name, value in stage.metrics.rows if name.startswith("rows/")}
    sizes = {"train": 10, "dev": 3, "test": 3}
    assert logged == sizes | {"duplicates": 2, "too_long": 1, "held_out": 1}
    assert len(read_problems(stage.out / "train.jsonl")) == 10
    assert data.teacher_lengths(stage.out)["mean"] == 4  # with the end token
