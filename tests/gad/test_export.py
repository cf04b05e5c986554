"""`python -m tracker export`: the model of a run as a folder that plain transformers loads, with the same logits."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from contract.errors import TrackerError
from tracker.cli.main import main
from tracker.store.export import find_model
from trainers.export import export
from trainers.policy.config import Scratch
from trainers.policy.models import build_policy, save_policy
from trainers.policy.text import word_tokenizer

ROOT = Path(__file__).resolve().parents[2]
IDS = torch.tensor([[3, 4, 5, 6]])


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer([f"w{i}" for i in range(20)])


def model_of(tokenizer, seed):
    shape = Scratch(hidden=16, layers=2, heads=2, feed_forward=24, init_std=0.4)
    return build_policy(shape, tokenizer, seed).eval()


@pytest.fixture
def results(tmp_path, tokenizer):
    """Results of two variants with two seeds: `full` trained to the end, `stopped` after its first stage."""
    root = tmp_path / "results"
    runs, stages = [], []
    for number, (variant, seed, trained) in enumerate(
        [("full", 0, 2), ("full", 1, 2), ("stopped", 0, 1), ("broken", 0, 0)]
    ):
        run = {"variant": variant, "seed": seed, "stages": {}}
        for place, stage in enumerate(("warmup", "gad", "evaluate")):
            key = f"{number}{place}".rjust(16, "0")
            folder = root / "stages" / "gad" / stage / key
            folder.mkdir(parents=True)
            (folder / "status.json").write_text(
                json.dumps({"state": "ok", "key": key, "stage": f"gad.{stage}", "reason": ""})
            )
            if place < trained:
                save_policy(folder / "student", model_of(tokenizer, 10 * number + place), tokenizer)
            run["stages"][stage] = key
            stages.append({"key": key, "dir": str(folder)})
        runs.append(run)
    variants = [{"name": name} for name in ("full", "stopped", "broken")]
    study = {"name": "gad", "trained_model": "student", "variants": variants, "runs": runs}
    other = {"name": "debias", "trained_model": None, "variants": variants, "runs": []}
    (root / "plan.json").write_text(json.dumps({"results": str(root), "studies": [study, other], "stages": stages}))
    return root


def logits(folder):
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()(IDS).logits


@pytest.mark.parametrize(
    ("arguments", "seed_of_weights"),
    [(["full"], 1), (["full", "--seed", "1"], 11), (["stopped"], 20)],
    ids=["first seed", "chosen seed", "stopped after the warm-up"],
)
def test_the_exported_model_has_the_students_logits(results, tmp_path, tokenizer, arguments, seed_of_weights):
    target = tmp_path / "exported"
    assert main(["export", "gad", *arguments, "--results", str(results), "--to", str(target)]) == 0
    with torch.no_grad():
        expected = model_of(tokenizer, seed_of_weights)(IDS).logits
    torch.testing.assert_close(logits(target), expected, rtol=0, atol=0)
    assert PreTrainedTokenizerFast.from_pretrained(target)("w3 w4")["input_ids"] == tokenizer("w3 w4")["input_ids"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in target.iterdir()}


def test_what_cannot_be_exported_is_told_in_one_line(results, tmp_path, capsys):
    for arguments, words in (
        (["gad", "unknown"], "is not in the plan"),
        (["gad", "full", "--seed", "7"], "is not in the plan"),
        (["debias", "full"], "names no trained model"),
        (["gad", "broken"], "has left no finished model"),
    ):
        assert main(["export", *arguments, "--results", str(results), "--to", str(tmp_path / "x")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_model_of_a_stage_that_has_not_ended_is_not_exported(results):
    model = find_model(results, "gad", "full", 0)
    (model.parent / "status.json").unlink()
    with pytest.raises(TrackerError, match="gad missing"):
        find_model(results, "gad", "full", 0)


def test_a_folder_with_something_in_it_is_left_alone(results, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not lose")
    with pytest.raises(ValueError, match="not an empty folder"):
        export(find_model(results, "gad", "full"), tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_incomplete_weights_are_refused(tmp_path, tokenizer):
    from safetensors.torch import load_file, save_file

    save_policy(tmp_path / "model", model_of(tokenizer, 0), tokenizer)
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match="missing keys"):
        export(tmp_path / "model", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_several_files_become_one_model(tmp_path, tokenizer):
    model = model_of(tokenizer, 3)
    model.save_pretrained(tmp_path / "model", max_shard_size="4KB")
    tokenizer.save_pretrained(tmp_path / "model")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 2
    export(tmp_path / "model", tmp_path / "out")
    with torch.no_grad():
        torch.testing.assert_close(logits(tmp_path / "out"), model(IDS).logits, rtol=0, atol=0)
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 1


RANK = """
    import sys
    import torch, torch.distributed as dist
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from transformers import AutoModelForCausalLM
    source, target, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{target}.rendezvous", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    state = AutoModelForCausalLM.from_pretrained(source).state_dict()
    state.pop("lm_head.weight", None)  # tied
    pieces = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in state.items()}
    save(pieces, storage_writer=HuggingFaceStorageWriter(target, save_distributed=True))
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_pieces_that_two_ranks_wrote_are_merged(tmp_path, tokenizer):
    model = model_of(tokenizer, 4)
    save_policy(tmp_path / "whole", model, tokenizer)
    save_policy(tmp_path / "pieces", model, tokenizer)
    (tmp_path / "pieces" / "model.safetensors").unlink()
    command = [sys.executable, "-c", textwrap.dedent(RANK), str(tmp_path / "whole"), str(tmp_path / "pieces")]
    ranks = [subprocess.Popen([*command, str(rank)], cwd=ROOT) for rank in range(2)]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    files = sorted(path.name for path in (tmp_path / "pieces").glob("*.safetensors"))
    assert len(files) == 2
    assert all(name.startswith("shard-") for name in files)
    export(tmp_path / "pieces", tmp_path / "out")
    with torch.no_grad():
        torch.testing.assert_close(logits(tmp_path / "out"), model(IDS).logits, rtol=0, atol=0)
