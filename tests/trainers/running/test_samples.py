"""The words behind evaluation items: what is kept of them, whatever a stage hands over."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from ablation.contract import samples as limits
from ablation.contract.code import code_of
from ablation.contract.samples import FILE
from tests.make_stage import make_stage
from tests.repository import ROOT
from trainers.policy.batch import Sequences
from trainers.policy.evaluation import Quotes, telling
from trainers.policy.systematic_sampling import Distinct
from trainers.running.samples import save_samples, some_items


def place(item="1", subset="race", protocol="edited"):
    return {"item": item, "subset": subset, "protocol": protocol}


def saved(tmp_path, rows):
    save_samples(make_stage(tmp_path, "toy.evaluate", None, {}), rows)
    return pd.read_parquet(tmp_path / FILE)


def test_rows_may_have_texts_and_numbers_of_their_own(tmp_path):
    rows = [
        place() | {"prompt": "2 + 2", "response": "4", "correct": 1.0, "demonstrations": "1 + 1 → 2"},
        place("2") | {"prompt": "3 + 3", "response": "é\ud800\x00", "reference": "6", "demonstrations": None},
    ]
    table = saved(tmp_path, rows)
    assert table["response"].tolist() == ["4", "é\ufffd\x00"]
    assert table["reference"].tolist() == ["", "6"]
    assert table["demonstrations"].tolist() == ["1 + 1 → 2", ""]
    assert table["correct"][0] == 1.0
    assert np.isnan(table["correct"][1])
    assert pq.ParquetFile(tmp_path / FILE).metadata.row_group(0).column(0).compression == "ZSTD"
    save_samples(make_stage(tmp_path, "toy.evaluate", None, {}), [])  # replaces it
    assert pd.read_parquet(tmp_path / FILE).columns.tolist() == [*limits.PLACE, *limits.TEXTS]


def test_a_long_text_keeps_its_beginning_and_its_end(tmp_path):
    table = saved(tmp_path, [place() | {"response": "a" * 9_000 + "end"}])
    assert len(table["response"][0].replace(" [… 1,003 characters left out …] ", "")) == limits.LONGEST
    assert table["response"][0].endswith("end")
    again = limits.cut(table["response"][0], 300)
    assert again.startswith("a" * 200 + " [… 8,703 characters left out …] ")


def test_some_items_are_the_same_in_every_run():
    names = [f"item-{i}" for i in range(50)]
    chosen = {names[i] for i in some_items(names, 10)}
    turned = names[::-1]
    assert {turned[i] for i in some_items(turned, 10)} == chosen
    assert len(chosen) == 10
    assert some_items(names, 10) == sorted(some_items(names, 10))
    assert some_items(names, 50) == list(range(50))


def test_a_prompt_s_quotes_are_its_most_common_response_and_the_most_common_other_outcome():
    assert telling([3, 4, 5], {3: 0.2, 4: 0.5, 5: 0.3}, {3: 1.0, 4: 0.0, 5: 0.0}) == [4, 3]
    assert telling([3, 4, 5], {3: 0.2, 4: 0.5, 5: 0.3}, {3: 0.0, 4: 0.0, 5: 0.0}) == [4, 5]
    assert telling([3, 4, 5], {3: 0.2, 4: 0.5, 5: 0.3}, None) == [4, 5]
    assert telling([3], {3: 1.0}, None) == [3]


def test_quotes_stand_with_their_prompt_and_their_values():
    ids = torch.zeros(3, 1, dtype=torch.long)
    found = Distinct(Sequences(ids, ids, ids, ids), torch.tensor([0, 0, 1]), torch.tensor([0.25, 0.75, 1.0]))
    asked = [{"item": "a", "prompt": "1 + 1", "reference": "2"}, {"item": "b", "prompt": "2 + 2", "reference": "4"}]
    quotes = Quotes(asked, outcome="accuracy")
    quotes.keep("sampled", found, ["3", "2", "4"], {"accuracy": [0.0, 1.0, 1.0]})
    common = {"subset": "test", "protocol": "sampled"}
    assert quotes.rows == [
        asked[0] | common | {"response": "2", "accuracy": 1.0, "share of the samples": 0.75},
        asked[0] | common | {"response": "3", "accuracy": 0.0, "share of the samples": 0.25},
        asked[1] | common | {"response": "4", "accuracy": 1.0},
    ]


@pytest.mark.parametrize("entry", ["debias.train", "policy.reinforce", "gad.adversarial", "demonstrations.grpo"])
def test_what_is_quoted_is_in_no_key_of_a_training(entry):
    reached = code_of(f"trainers.{entry}", ROOT, exclude=[f"trainers.{entry.partition('.')[0]}.parts"]).files
    quoting = ("trainers/running/samples.py", "ablation/contract/samples.py", "trainers/policy/evaluation.py")
    assert not reached.keys() & set(quoting)
