"""Sequences and pools from the source's JSON."""

import json

import pytest
import torch

from tests.trainers.demonstrations.helpers import config, run
from trainers.demonstrations.offline import read_candidates
from trainers.demonstrations.prepared import load_prepared


def source_file(tmp_path, content):
    """An asset with the source's JSON."""
    asset = tmp_path / "asset" / "files"
    asset.mkdir(parents=True, exist_ok=True)
    (asset / "rl.json").write_text(json.dumps(content))
    return {"offline": tmp_path / "asset"}


def test_the_sources_json_brings_sequences_and_pools(folders, tmp_path):
    """Its pools are in another order than the task's own: a pointer means what it means in the file."""
    learnt = {"learner": folders["learner"]}
    own = load_prepared(folders["embed"])
    candidates_ = [{"pointer": [0, 1, 2], "vqa_correct": 1}, {"pointer": [3, 4, 5], "vqa_correct": 0}]
    content = {"_meta": {"version": "k64"}}
    for number in range(20):
        pool = [f"query-{number}/{place}" for place in reversed(range(6))]
        failed = [{"pointer": [0, 1, 3], "vqa_correct": 0, "eval_failed": True}] if number == 3 else []
        content[f"query-{number}"] = {
            "candidate_pool_ids": pool,
            "pointer_candidates": candidates_[: 1 + (number != 4)] + failed,
        }
    offline = source_file(tmp_path, content)
    embedded, _ = run("embed", config(), {**learnt, **offline}, tmp_path / "embed")
    prepared = load_prepared(embedded)
    torch.testing.assert_close(prepared.pools[:20], own.pools[:20].flip(1))
    torch.testing.assert_close(prepared.pools[20:], own.pools[20:])
    inputs = {**learnt, **offline, "embed": embedded}
    out, _ = run("candidates", config(), inputs, tmp_path / "candidates")
    data = read_candidates(out / "candidates.parquet", pool_size=6, shots=3)
    assert data.correct[0].tolist() == [1.0, 0.0]
    assert data.present.sum(1).tolist() == [2] * 4 + [1] + [2] * 15  # query 4 has one; the failed one is left out
    assert data.info_score.isnan().all()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, r"no candidate_pool_ids: without the pool nobody knows"),
        ({"candidate_pool_ids": [f"query-0/{n}" for n in range(5)]}, r"a pool of 5, task\.candidates = 6: set it to 5"),
        ({"candidate_pool_ids": [f"query-0/{n}" for n in (0, 1, 2, 3, 4, 4)]}, r"a demonstration twice"),
        ({"candidate_pool_ids": [7, 8, 9, 10, 11, 12]}, r"'7' is the id of no question of this task"),
        ({"candidate_pool_ids": [f"query-{n}" for n in range(1, 7)]}, r"query-1 in its pool is not a demonstration"),
    ],
)
def test_a_file_without_usable_pools_is_refused(folders, tmp_path, entry, problem):
    content = {"query-0": {"pointer_candidates": [{"pointer": [0, 1, 2]}], **entry}}
    inputs = {"learner": folders["learner"], **source_file(tmp_path, content)}
    with pytest.raises(ValueError, match=rf"rl\.json, query query-0: .*{problem}"):
        run("embed", config(), inputs, tmp_path / "embed")


def test_a_query_that_is_not_for_training_is_refused(folders, tmp_path):
    pool = [f"query-25/{n}" for n in range(6)]
    content = {"query-25": {"candidate_pool_ids": pool, "pointer_candidates": [{"pointer": [0, 1, 2]}]}}
    inputs = {"learner": folders["learner"], **source_file(tmp_path, content)}
    with pytest.raises(ValueError, match=r"rl\.json, query query-25: it is not a training query"):
        run("embed", config(), inputs, tmp_path / "embed")


def test_a_bad_pointer_of_the_file_is_named(folders, tmp_path):
    pool = [f"query-0/{n}" for n in range(6)]
    content = {"query-0": {"candidate_pool_ids": pool, "pointer_candidates": [{"pointer": [0, 1, 6]}]}}
    inputs = {"learner": folders["learner"], **source_file(tmp_path, content)}
    inputs["embed"], _ = run("embed", config(), inputs, tmp_path / "embed")
    with pytest.raises(ValueError, match=r"rl\.json, row 0 \(query query-0\): pointer \[0, 1, 6\]: index 6 is outside"):
        run("candidates", config(), inputs, tmp_path / "candidates")
