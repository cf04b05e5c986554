"""Samples of lmms-eval and of Every Eval Ever: rows as their writer and their published schema have them."""

import json

import pytest

from ablation.contract.errors import ConfigError
from ablation.readers.evaluation import reader_of
from ablation.readers.sheet import ANY, Wanted
from tests.ablation.readers.command import read

DATE = "20260301_120000"


def lmms_rows(right):
    """As `EvaluationTracker.save_results_samples` leaves a row: without `arguments` and `doc`, with `input`."""
    for number, is_right in enumerate(right):
        yield {
            "doc_id": number,
            "target": "B",
            "filtered_resps": ["B" if is_right else "A"],
            "doc_hash": f"{hash((number, tuple(right))):x}",  # covers the address of an image: differs between runs
            "exact_match": float(is_right),
            "mme_score": {"question_id": number, "category": "count", "score": 100.0 * is_right},
            "submission": {"prediction": "A"},
            "input": f"<image>\nQuestion {number}?",
        }


def eee_rows(right, name="GSM8K"):
    for number, is_right in enumerate(right):
        yield {
            "schema_version": "instance_level_eval_0.2.1",
            "evaluation_id": "gsm8k/model/1",
            "model_id": "org/model",
            "evaluation_name": name,
            "sample_id": f"gsm8k_{number:04d}",
            "interaction_type": "single_turn",
            "input": {"raw": f"Question {number}?", "reference": ["4"], "choices": None},
            "output": {"raw": ["4" if is_right else "5"]},
            "messages": None,
            "answer_attribution": [
                {"turn_idx": 0, "source": "output.raw", "extracted_value": "4" if is_right else "5",
                 "extraction_method": "regex", "is_terminal": True}
            ],
            "evaluation": {"score": 1.0 if is_right else 0.25, "is_correct": is_right},
        }  # fmt: skip


def written(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sheets(path, wanted=ANY):
    return list(reader_of(path).sheets(path, wanted))


def test_lmms_eval(tmp_path):
    path = written(tmp_path / f"{DATE}_samples_mme.jsonl", lmms_rows([True, False, True]))
    about = {"model_name": "org/model", "higher_is_better": {"mme": {"exact_match": True}}}
    (tmp_path / f"{DATE}_results.json").write_text(json.dumps(about))
    (sheet,) = sheets(path)
    assert (sheet.subset, sheet.metric, sheet.facts.tool) == ("mme", "exact_match", "lmms-eval")
    assert dict(zip(sheet.items, sheet.values, strict=True)) == {"0": 1.0, "1": 0.0, "2": 1.0}
    assert sheet.facts.larger_is_better is True
    assert sheet.facts.settings == {"model_name": "org/model"}
    assert sheet.texts(["1"])["1"].answered == "A"
    (scored,) = sheets(path, Wanted(metric="mme_score"))
    assert scored.values.tolist() == [100.0, 0.0, 100.0]
    with pytest.raises(ConfigError, match=r"submission.*no number for this metric"):
        sheets(path, Wanted(metric="submission"))
    with pytest.raises(ConfigError, match=r"does not have this metric; choose from exact_match, mme_score"):
        sheets(path, Wanted(metric="anls"))
    assert sheets(path, Wanted(tasks=("other",))) == []


def test_every_eval_ever(tmp_path):
    rows = [*eee_rows([True, False]), *eee_rows([True], "MATH")]
    path = written(tmp_path / "5917cc37-8805-4453-bf5f-13411ea66ccf.jsonl", rows)
    metric = {"evaluation_name": "GSM8K", "metric_config": {"lower_is_better": False}}
    about = {"model_info": {"id": "org/model"}, "evaluation_results": [metric]}
    path.with_suffix(".json").write_text(json.dumps(about))
    first, second = sheets(path)
    assert (first.subset, second.subset, first.metric) == ("GSM8K", "MATH", "score")
    assert first.values.tolist() == [1.0, 0.25]
    assert (first.facts.larger_is_better, second.facts.larger_is_better) == (True, None)
    assert sheets(path, Wanted(metric="is_correct", tasks=("GSM8K",)))[0].values.tolist() == [1.0, 0.0]
    assert first.texts(["gsm8k_0001"])["gsm8k_0001"].answered == "5"


@pytest.mark.parametrize(
    ("name", "rows"),
    [(f"{DATE}_samples_mme.jsonl", lmms_rows), ("5917cc37-8805-4453-bf5f-13411ea66ccf_samples.jsonl", eee_rows)],
)
def test_compared_by_folder(tmp_path, capsys, name, rows):
    for seed in range(3):
        written(tmp_path / f"a/seed_{seed}" / name, rows([(item + seed) % 3 > 0 for item in range(60)]))
        written(tmp_path / f"b/seed_{seed}" / name, rows([(item + seed) % 7 > 0 for item in range(60)]))
    row = read(capsys, tmp_path / "a", "--with", tmp_path / "b", "--margin", "0.02")
    assert (row["verdict"], row["items"], row["seeds"]) == ("better", 60, 3)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"doc_id": 0}, "item 0 occurs twice"),
        ({"exact_match": float("nan")}, "no finite value"),
        ({"filtered_resps": None}, "line 2: is damaged"),
        (None, "line 2: is damaged"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(tmp_path, row, problem):
    first, second = lmms_rows([True, False])
    path = written(tmp_path / f"{DATE}_samples_mme.jsonl", [first, {} if row is None else second | row])
    with pytest.raises(ConfigError, match=problem):
        sheets(path)
