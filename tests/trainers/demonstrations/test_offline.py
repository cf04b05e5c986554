"""Offline data: what is written is read, missing scores stay missing, and bad rows are named."""

import json
import math

import pytest

from trainers.demonstrations.config import Sizes
from trainers.demonstrations.division import divide_questions
from trainers.demonstrations.offline import read_candidates, write_candidates
from trainers.demonstrations.source_json import imported_pools, read_sequences


def row(query="q", pointer=(0, 1), **scores):
    values = {"correct": 1.0, "acc_score": 0.5, "info_score": 0.2, "logp_gain": -1.0, "method": "beam"}
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


def test_queries_may_have_different_numbers_of_sequences(tmp_path):
    rows = [row("a", (0, 1), correct=0.0), row("b", (2, 1)), row("a", (1, 2))]
    data = read_candidates(written(tmp_path, rows), pool_size=3, shots=2)
    assert data.present.tolist() == [[True, True], [True, False]]
    assert data.pointers[1, 0].tolist() == [2, 1]
    assert data.correct[0].tolist() == [0.0, 1.0]


def test_a_file_without_rows_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"c\.parquet: no sequence"):
        read_candidates(written(tmp_path, []), pool_size=3, shots=2)


CONTENT = {
    "_meta": {"version": "k64"},
    "17": {
        "query": {"query_id": 17, "question_id": 4001},
        "candidate_pool_ids": [3, 9, 4],
        "pointer_candidates": [
            {"pointer": [2, 0], "vqa_correct": 1, "vqa_acc_score": 0.9, "beam_score": 0.04, "gen_method": "beam"},
            {"pointer": [1, 0], "vqa_correct": 0, "vqa_acc_score": None, "logp_gain": -3.5},
            {"pointer": [1, 2], "vqa_correct": 0, "vqa_acc_score": 0.0, "vqa_eval_mode": "error"},
        ],
    },
}


def source(tmp_path, content):
    path = tmp_path / "rl.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_the_sources_json_is_read_with_its_pools(tmp_path):
    found = read_sequences(source(tmp_path, CONTENT))
    assert found.pools == {"17": ["3", "9", "4"]}
    assert found.rows[0] == {
        "query": "17",
        "pointer": [2, 0],
        "correct": 1.0,
        "acc_score": 0.9,
        "info_score": 0.04,
        "logp_gain": None,
        "method": "beam",
    }
    assert found.rows[1]["acc_score"] is None
    assert found.rows[1]["logp_gain"] == -3.5
    assert (len(found.rows), found.skipped) == (2, 1)
    data = read_candidates(written(tmp_path, found.rows), pool_size=3, shots=2)
    assert math.isnan(data.acc_score[0, 1])


def test_questions_are_called_by_id_or_by_their_place_in_the_training_file(tmp_path):
    found = read_sequences(source(tmp_path, CONTENT))
    names = [str(number) for number in (9, 17, 3, 4, 11)]
    assert imported_pools(found, names, None).pools == {1: [2, 0, 3]}
    places = [100 + place for place in range(20)]  # items in the order of the file
    assert imported_pools(found, names, places).pools == {117: [103, 109, 104]}
    with pytest.raises(ValueError, match=r"query 17: '17' is the position in the training file of no question"):
        imported_pools(found, names, [0, 1, 2])


def test_imported_queries_are_the_training_queries_and_keep_their_pools(tmp_path):
    """Of 12 questions 5 and 8 are asked; the rest may be demonstrations, also of each other, but none of itself."""
    content = {
        "8": {"candidate_pool_ids": [5, 1, 2], "pointer_candidates": [{"pointer": [0, 1]}]},
        "5": {"candidate_pool_ids": [8, 0, 3], "pointer_candidates": [{"pointer": [0, 1]}]},
    }
    names = [str(number) for number in range(12)]
    imported = imported_pools(read_sequences(source(tmp_path, content)), names, None)
    sizes = Sizes(train=2, validation=2, test=2)
    division = divide_questions(range(12), None, sizes=sizes, candidates=3, seed=0, imported=imported)
    assert list(division.queries[:2]) == [8, 5]
    pools = [[division.demonstrations[place] for place in pool] for pool in division.pools.tolist()]
    assert pools[:2] == [[5, 1, 2], [8, 0, 3]]
    asked = set(division.queries)
    assert len(asked) == 6
    assert all(not asked & set(pool) for pool in pools[2:])
    with pytest.raises(ValueError, match=r"sequences of 2 queries, task\.sizes\.train = 3: set it to 2"):
        divide_questions(
            range(12), None, sizes=Sizes(train=3, validation=2, test=2), candidates=3, seed=0, imported=imported
        )


def test_one_pool_may_be_given_for_all_queries(tmp_path):
    entry = {"pointer_candidates": [{"pointer": [0, 1]}]}
    content = {"candidate_pool_ids": [5, 1, 2], "8": entry, "7": {**entry, "pool": [5, 1, 2]}}
    names = [str(number) for number in range(12)]
    imported = imported_pools(read_sequences(source(tmp_path, content)), names, None)
    assert (imported.shared, imported.pools) == ([5, 1, 2], {8: [5, 1, 2], 7: [5, 1, 2]})
    sizes = Sizes(train=2, validation=4, test=3)  # 12 less 3 in the pool: all of them
    division = divide_questions(range(12), None, sizes=sizes, candidates=3, seed=0, imported=imported)
    assert {tuple(division.demonstrations[place] for place in pool) for pool in division.pools.tolist()} == {(5, 1, 2)}
    assert sorted(division.queries) == [0, 3, 4, 6, 7, 8, 9, 10, 11]
    with pytest.raises(ValueError, match=r"9 questions to learn from, task\.sizes ask for 10 queries of them: too few"):
        divide_questions(
            range(12), None, sizes=Sizes(train=2, validation=5, test=3), candidates=3, seed=0, imported=imported
        )
    with pytest.raises(ValueError, match=r"query 8: a pool beside candidate_pool_ids of all queries"):
        read_sequences(source(tmp_path, content | {"8": {**entry, "pool": [5, 1, 3]}}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"query": "a", "pointer": [0, 9]}]', r"rl\.json: not scored sequences \(AttributeError"),
        ('{"a": {"candidate_pool_ids": [1]}}', r"rl\.json: not scored sequences \(KeyError: 'pointer_candidates'\)"),
        ('{"a": {"pointer_candidates": []}}', r"rl\.json, query a: no candidate_pool_ids"),
        ("[", r"rl\.json: not scored sequences \(JSONDecodeError"),
    ],
)
def test_json_of_another_shape_is_refused_with_the_file(tmp_path, text, problem):
    with pytest.raises(ValueError, match=problem):
        read_sequences(source(tmp_path, text))
