"""What a stage imports: no more than it needs, and what is left out comes when it is used after all."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablation.runner.runlog import METRICS, Metrics, items_table
from tests.trainers.toy_stage import ROOT, run_stage, status, write_stage

TRANSFORMERS = """
import sys
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


def run(stage):
    small = dict(hidden_size=16, intermediate_size=16, num_attention_heads=2, num_hidden_layers=1, vocab_size=32)
    LlamaForCausalLM(LlamaConfig(**small)).save_pretrained(stage.out / "model")
    model = AutoModelForCausalLM.from_pretrained(stage.out / "model").eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    ids = torch.arange(8)[None]
    for step in range(2):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        stage.log_metrics(step, {"train/loss": loss})
    model.generate(ids, max_new_tokens=4, do_sample=False)
    stage.save_items([("1", "gender", "edited", "ss", 1.0)])
    stage.metrics.write()
    (stage.out / "modules").write_text("\\n".join(sorted(sys.modules)))
"""

# Each costs 0.1 to 1 s of CPU, in every stage of every grid.
UNWANTED = (
    *("accelerate", "datasets", "duckdb", "IPython", "matplotlib", "pandas", "scipy", "sklearn", "tensorboard"),
    *("tensorflow", "torch._dynamo", "torch._inductor", "torch.distributed.checkpoint", "torch.distributed.fsdp"),
    *("torch.distributed.tensor", "torchvision", "triton", "wandb"),
)


@pytest.fixture(scope="module")
def stage_modules(tmp_path_factory):
    """The names of all modules that a stage has which loads, trains and samples from a model of transformers."""
    folder = tmp_path_factory.mktemp("imports")
    out = write_stage(folder)
    (folder / "toy_trainer.py").write_text(TRANSFORMERS)
    assert run_stage(out, cold=True).returncode == 0
    assert status(out)["state"] == "ok", (out / "log.txt").read_text()
    return set((out / "modules").read_text().splitlines())


@pytest.mark.slow
def test_a_stage_that_trains_imports_nothing_that_it_does_not_need(stage_modules):
    assert {"torch", "transformers.models.llama.modeling_llama"} <= stage_modules
    found = [name for name in UNWANTED if any(m == name or m.startswith(f"{name}.") for m in stage_modules)]
    assert not found
    assert len(stage_modules) < 2600  # 2,300 with torch 2.13 and transformers 5.23; 3,600 with all of the above


def ask(code):
    """Run code in a process that defers imports; return what it prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_what_was_deferred_is_the_real_thing_when_it_is_used():
    found = ask("""
import json, sys
from ablation.runner.deferred_imports import StandIn, defer_imports
defer_imports()
import torch
from transformers.distributed import sharding_utils, utils
from transformers.loss import loss_for_object_detection as detection
stand_in = detection.linear_sum_assignment
answers = [isinstance(stand_in, StandIn), "scipy" in sys.modules, utils.is_dtensor(torch.zeros(2))]
answers += [[index.tolist() for index in stand_in([[4, 1], [2, 3]])], "scipy.optimize" in sys.modules]
from torch.distributed.tensor import DTensor  # anybody but transformers gets the real one
answers += [isinstance(DTensor, type), sharding_utils.DTensor._real() is DTensor, utils.is_dtensor(torch.zeros(2))]
class Own(sharding_utils.DTensor): pass
answers += [issubclass(DTensor, sharding_utils.DTensor), Own.__mro__[1] is DTensor]
import torch._dynamo
answers += [torch._dynamo is sys.modules["torch._dynamo"], callable(torch._dynamo.optimize)]
print(json.dumps(answers))
""")
    assert found == [True, False, False, [[0, 1], [1, 0]], True, True, True, False, True, True, True, True]


def test_tables_are_those_that_arrow_would_build(tmp_path):
    rows = [(3, "größe/mean", float("nan")), (-1, "", 1e-310), (2**62, "a", -0.0)]
    metrics = Metrics(tmp_path / "metrics.parquet")
    metrics.restore(rows)
    metrics.write()
    written = pq.read_table(tmp_path / "metrics.parquet")
    expected = pa.table([pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), METRICS, strict=True)], METRICS)
    assert written.schema == expected.schema
    for name in METRICS.names[:2]:
        assert written[name].to_pylist() == expected[name].to_pylist()
    bits = [np.array(table["value"]).tobytes() for table in (written, expected)]
    assert bits[0] == bits[1]
    items = items_table([("ä1", "s", "p", "n", 1), ("2", "s", "p", "n", True)])
    assert items.to_pylist()[0] == {"item": "ä1", "subset": "s", "protocol": "p", "name": "n", "value": 1.0}
    assert (items_table([]).num_rows, items.num_rows) == (0, 2)
    metrics.restore([(2**70, "a", 1.0)])
    with pytest.raises(OverflowError):
        metrics.write()
