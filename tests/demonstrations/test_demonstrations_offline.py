"""Offline data: what is written is read, missing scores stay missing, and bad rows are named."""

import json
import math

import pytest

from trainers.demonstrations.offline import SCHEMA, import_json, read_candidates, write_candidates


def row(query="q", pointer=(0, 1), **scores):
    values = {"correct": 1.0, "acc_score": 0.5, "info_score": 0.2, "beam_logprob": -1.0, "method": "beam"}
    return {"query": query, "pointer": list(pointer), **values, **scores}


def written(tmp_path, rows):
    write_candidates(tmp_path / "c.parquet", rows)
    return tmp_path / "c.parquet"


def test_rows_are_grouped_by_query_in_order_and_missing_scores_are_nan(tmp_path):
    rows = [
        row("b", (2, 0), info_score=0.1),
        row("a", (1, 2), correct=None),
        row("b", (0, 1), info_score=0.3),
        row("a", (0, 2)),
    ]
    data = read_candidates(written(tmp_path, rows), pool_size=3, shots=2)
    assert data.queries == ["b", "a"]
    assert data.pointers.tolist() == [[[2, 0], [0, 1]], [[1, 2], [0, 2]]]
    assert data.info_score[0].tolist() == pytest.approx([0.1, 0.3])
    assert math.isnan(data.correct[1, 0])
    assert data.correct[1, 1] == 1


@pytest.mark.parametrize(
    ("pointer", "problem"),
    [
        ((0, 3), r"row 1: pointer \[0, 3\]: index 3 is outside the pool of 3 candidates \(0 to 2\)"),
        ((-1, 0), r"row 1: pointer \[-1, 0\]: index -1 is outside the pool"),
        ((1, 1), r"row 1: pointer \[1, 1\] names a candidate twice"),
        ((0, 1, 2), r"row 1: pointer \[0, 1, 2\] has 3 indices, `shots` is 2"),
    ],
)
def test_a_bad_pointer_is_an_error_with_file_and_row(tmp_path, pointer, problem):
    with pytest.raises(ValueError, match=rf"c\.parquet, {problem}"):
        read_candidates(written(tmp_path, [row(), row(pointer=pointer)]), pool_size=3, shots=2)


def test_unequal_numbers_of_sequences_are_named(tmp_path):
    path = written(tmp_path, [row("a"), row("a"), row("b")])
    with pytest.raises(ValueError, match="b has 1, others up to 2"):
        read_candidates(path, pool_size=3, shots=2)


def test_legacy_json_of_the_source_is_imported(tmp_path):
    content = {
        "17": {
            "pointer_candidates": [
                {"pointer": [2, 0], "vqa_correct": 1, "vqa_acc_score": 0.9, "beam_score": 0.04, "gen_method": "beam"},
                {"pointer": [1, 0], "vqa_correct": 0, "vqa_acc_score": None, "logprob_score": -3.5},
            ]
        }
    }
    (tmp_path / "rl.json").write_text(json.dumps(content))
    rows = import_json(tmp_path / "rl.json", pool_size=3, shots=2)
    assert rows[0] == {
        "query": "17",
        "pointer": [2, 0],
        "correct": 1.0,
        "acc_score": 0.9,
        "info_score": 0.04,
        "beam_logprob": None,
        "method": "beam",
    }
    assert rows[1]["acc_score"] is None
    assert rows[1]["beam_logprob"] == -3.5
    data = read_candidates(written(tmp_path, rows), pool_size=3, shots=2)
    assert math.isnan(data.acc_score[0, 1])


def test_json_with_the_names_of_the_columns_is_imported(tmp_path):
    (tmp_path / "rl.json").write_text(json.dumps([row("a"), row("a", (1, 2))]))
    rows = import_json(tmp_path / "rl.json", pool_size=3, shots=2)
    assert [set(found) for found in rows] == [set(SCHEMA.names)] * 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"query": "a", "pointer": [0, 9]}]', r"rl\.json, row 0 \(query a\): pointer \[0, 9\]: index 9 is outside"),
        ('{"a": {"candidates": []}}', r"rl\.json: not scored sequences \(KeyError: 'pointer_candidates'\)"),
        ("[", r"rl\.json: not scored sequences \(JSONDecodeError"),
    ],
)
def test_json_of_another_shape_is_refused_with_the_file(tmp_path, text, problem):
    (tmp_path / "rl.json").write_text(text)
    with pytest.raises(ValueError, match=problem):
        import_json(tmp_path / "rl.json", pool_size=3, shots=2)
