"""`python -m ablation export`: the model of a run as a folder that plain transformers loads, with the same logits."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedTokenizerFast

from ablation.cli.main import main
from ablation.store.export import find_model
from tests.ablation.typed import refused
from tests.simulate import Study, editing, simulate, stage_dir
from trainers.export import export
from trainers.gad.students import save_models
from trainers.policy.batch import Sequences
from trainers.policy.config import Precision, Scratch
from trainers.policy.models import Placement, build_policy, save_policy
from trainers.policy.sources import keeping
from trainers.policy.text import word_tokenizer
from trainers.policy.value_model import ValueModel
from trainers.running import checkpoint

IDS = torch.tensor([[3, 4, 5, 6]])


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer([f"w{i}" for i in range(20)])


def model_of(tokenizer, seed):
    shape = Scratch(hidden=16, layers=2, heads=2, feed_forward=24, init_std=0.4)
    return build_policy(shape, tokenizer, seed).eval()


TREE = {"full": (None, {}), "stopped": ("full", {"lr": (1, 2)}), "broken": ("full", {"lr": (1, 3)})}


@pytest.fixture
def results(tmp_path, tokenizer):
    """Two seeds of `full` are trained to the end, `stopped` after its first stage; `broken` has left no model."""
    plan = simulate(tmp_path / "results", [Study("gad", variant_tree=TREE), Study("debias", variant_tree=TREE)])
    with editing(plan) as content:
        content["studies"][0]["trained_model"] = "student"
    for number, (variant, seed, trained) in enumerate([("full", 0, 2), ("full", 1, 2), ("stopped", 0, 1)]):
        for place, stage in enumerate(("train", "evaluate")[:trained]):
            folder = stage_dir(plan, "gad", variant, seed, stage) / "student"
            save_policy(folder, model_of(tokenizer, 10 * number + place), tokenizer)
    return plan.parent


def logits(folder):
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()(IDS).logits


def test_the_exported_model_has_the_students_logits(results, tmp_path, tokenizer):
    target = tmp_path / "exported"
    assert main(["export", "gad", "full", "--seed", "1", "--results", str(results), "--output", str(target)]) == 0
    with torch.no_grad():
        expected = model_of(tokenizer, 11)(IDS).logits
    torch.testing.assert_close(logits(target), expected, rtol=0, atol=0)
    assert PreTrainedTokenizerFast.from_pretrained(target)("w3 w4")["input_ids"] == tokenizer("w3 w4")["input_ids"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in target.iterdir()}


def test_what_cannot_be_exported_is_told_in_one_line(results, tmp_path, capsys):
    for arguments, words in (
        (["gad", "unknown"], "is not in the plan"),
        (["gad", "full", "--seed", "7"], "is not in the plan"),
        (["debias", "full"], "declares no trained model"),
        (["gad", "broken"], "has no finished model"),
    ):
        said = refused(capsys, "export", *arguments, "--results", results, "--output", tmp_path / "x")
        assert words in said
    again = f"study=gad variant=broken scale=simulated results={results} reports={tmp_path / 'reports'}`"
    assert said.endswith(f"run `snakemake --cores all --config {again}")  # not into the results of another grid
    assert not (tmp_path / "x").exists()


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


# --- the critic, and kept steps -----------------------------------------------------------------------------------


@pytest.fixture
def critic(tmp_path, tokenizer):
    save_policy(tmp_path / "body", model_of(tokenizer, 6), tokenizer)
    made = ValueModel.from_causal(tmp_path / "body", Placement.of(["cpu"], Precision()), sees_token=True)
    torch.nn.init.normal_(made.head.weight, generator=torch.Generator().manual_seed(0))
    torch.nn.init.constant_(made.head.bias, 0.3)
    return made


def scores(critic):
    prompt, response = IDS[:, :2], IDS[:, 2:]
    with torch.no_grad():
        return critic(Sequences(prompt, torch.ones_like(prompt), response, torch.ones_like(response)))


def test_the_exported_critic_is_a_token_classifier_with_its_scores(results, tmp_path, tokenizer, critic):
    end = find_model(results, "gad", "full", 0).parent
    save_models(end, model_of(tokenizer, 1), tokenizer, critic)
    export(find_model(results, "gad", "full", 0, part="critic"), tmp_path / "out")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out", local_files_only=True).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(IDS).logits[:, 2:, 0], scores(critic), rtol=0, atol=1e-6)
    assert PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")("w3")["input_ids"] == [6]
    # And it is a reward model to start a critic from: the source hands its warm-up's critic on like that.
    again = ValueModel.from_reward_model(tmp_path / "out", Placement.of(["cpu"], Precision()), tmp_path / "body")
    torch.testing.assert_close(scores(again), scores(critic), rtol=0, atol=1e-6)


def test_any_kept_step_is_exported_also_of_a_stage_that_has_not_ended(results, tmp_path, tokenizer, capsys):
    end = find_model(results, "gad", "full", 0).parent
    for step, seed in ((20, 30), (100, 31)):
        save_models(end / "steps" / str(step), model_of(tokenizer, seed), tokenizer)
    (end / "status.json").unlink()
    with torch.no_grad():
        kept = logits(find_model(results, "gad", "full", 0, step=20))
        torch.testing.assert_close(kept, model_of(tokenizer, 30)(IDS).logits, rtol=0, atol=0)
    with keeping(end / "steps", 99) as folder:  # `reinforce` keeps nothing but the policy
        save_policy(folder, model_of(tokenizer, 32), tokenizer)
    assert find_model(results, "gad", "full", 0, step=99) == end / "steps" / "99"
    (end / "steps" / "99").rename(tmp_path / "away")
    warm = find_model(results, "gad", "full", 0, stage="train")
    assert warm.parent.parent.name == "train"
    for words, options in (
        ("kept steps: 20, 100", ["--step", "7"]),
        ("kept steps: 20, 100", ["--step", "0"]),
        ("no critic", ["--part", "critic", "--stage", "train"]),
        ("the stage does not exist", ["--stage", "trian"]),
    ):
        words_of = ["export", "gad", "full", *options, "--results", results, "--output", tmp_path / "x"]
        assert words in refused(capsys, *words_of)


def test_a_checkpoint_of_adapters_is_refused_with_what_to_do(tmp_path, tokenizer):
    save_policy(tmp_path / "base", model_of(tokenizer, 8), tokenizer)
    checkpoint.save(tmp_path / "checkpoint", 1, {"policy/model.q_proj.lora_A.default.weight": torch.ones(2)}, {})
    with pytest.raises(ValueError, match=r"memory.lora .* wait until the stage ends, and export the merged model"):
        export(tmp_path / "checkpoint", tmp_path / "x", described_by=tmp_path / "base")
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_is_written_with_another_description_and_precision(tmp_path, tokenizer):
    base, model = tmp_path / "base", model_of(tokenizer, 9)
    save_policy(base, model_of(tokenizer, 8), tokenizer)
    weights = {f"policy/{name}": value for name, value in model.state_dict().items()}
    checkpoint.save(tmp_path / "checkpoint", 1, weights, {})
    words = ["--from", str(tmp_path / "checkpoint"), "--output", str(tmp_path / "out")]
    assert main(["export", *words, "--hf-model", str(base), "--precision", "bfloat16"]) == 0
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    for name, value in found.state_dict().items():
        assert torch.equal(value, model.state_dict()[name].bfloat16()), name
