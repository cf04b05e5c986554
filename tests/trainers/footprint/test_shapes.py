"""Numbers of parameters against the models themselves, which torch makes without memory."""

import json
import re
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText

from ablation.contract.code import Code, Sources
from ablation.contract.footprint import GIB, ModelAsset
from tests.repository import ROOT
from trainers.assets_config import Asset
from trainers.debias.config import DebiasConfig
from trainers.debias.editor import Hypernetwork
from trainers.debias.footprint import _edited, _editor
from trainers.footprint import LISTED, Model, of_config, shape_of, training
from trainers.models.causal import EditedModule
from trainers.policy.config import Lora, Memory, PolicyConfig, Precision, Scratch
from trainers.policy.footprint import PROMPT, scratch_shape
from trainers.policy.footprint import footprint as of_policy
from trainers.tasks.interface import SPLITS
from trainers.tasks.settings import Arithmetic, KnightsKnaves

FLOAT32 = Precision()
QWEN_7B = LISTED["Qwen/Qwen2.5-7B"]
WRITTEN = {  # what the config.json of a repository says
    "openai-community/gpt2-medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 50257},
    "Qwen/Qwen2.5-7B": {
        **{"hidden_size": 3584, "num_hidden_layers": 28, "intermediate_size": 18944, "num_attention_heads": 28},
        **{"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    },
    "Qwen/Qwen3-0.6B": {
        **{"hidden_size": 1024, "num_hidden_layers": 28, "intermediate_size": 3072, "num_attention_heads": 16},
        **{"num_key_value_heads": 8, "vocab_size": 151936, "tie_word_embeddings": True, "head_dim": 128},
    },
    "HuggingFaceTB/SmolLM2-135M": {
        **{"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536, "num_attention_heads": 9},
        **{"num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True},
    },
}
KINDS = dict(zip(WRITTEN, ("gpt2", "qwen2", "qwen3", "llama"), strict=True))


def count(model):
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize(
    ("repo", "parameters"),
    # As the model cards round them; others are compared with the models below.
    [("Qwen/Qwen2.5-0.5B", 0.494e9), ("Qwen/Qwen2.5-1.5B", 1.54e9), ("Qwen/Qwen2.5-3B", 3.09e9)],
)
def test_published_sizes(repo, parameters):
    assert LISTED[repo].parameters == pytest.approx(parameters, rel=0.005)


@pytest.mark.parametrize("repo", WRITTEN)
def test_parameters_are_those_of_the_model_that_torch_makes_without_memory(repo):
    config = AutoConfig.for_model(KINDS[repo], **WRITTEN[repo])
    with torch.device("meta"):
        whole, body = AutoModelForCausalLM.from_config(config), AutoModel.from_config(config)
    known = LISTED[repo]
    assert known.parameters == pytest.approx(count(whole), rel=0.005)
    assert known.body == pytest.approx(count(body), rel=0.005)
    written = of_config(config.to_dict())  # what transformers writes next to a model says the same
    assert (written.parameters, written.kept, written.keys) == (known.parameters, known.kept, known.keys)


def test_a_vision_tower_is_counted():
    tower = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 2048}
    text = {
        **{"hidden_size": 2048, "num_hidden_layers": 36, "intermediate_size": 11008, "num_attention_heads": 16},
        **{"num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    }
    config = AutoConfig.for_model("qwen2_5_vl", text_config=text, vision_config=tower, tie_word_embeddings=True)
    with torch.device("meta"):
        counted = count(AutoModelForImageTextToText.from_config(config))
    assert LISTED["Qwen/Qwen2.5-VL-3B"].parameters == pytest.approx(counted, rel=0.002)
    assert of_config(config.to_dict()).parameters == LISTED["Qwen/Qwen2.5-VL-3B"].parameters


def test_by_hand_student_and_critic_of_7b_in_float32_with_adamw():
    student, scores = Model("student", QWEN_7B, FLOAT32), Model("critic", QWEN_7B, FLOAT32, critic=True)
    held = sum(training([student, scores], []).held.values())
    # The model card's parameters; a critic has no output matrix.
    assert held == pytest.approx(16 * (2 * 7_615_616_512 - 152_064 * 3_584), rel=1e-3)
    assert held / GIB == pytest.approx(218.84, rel=1e-3)
    # The machine has the student while it is read and, before several devices divide them, its copy in float32.
    assert training([student, scores], [], student.reference).host == 4 * QWEN_7B.parameters
    two = [replace(model, devices=2) for model in (student, scores)]
    assert training(two, [], two[0].reference).host == 8 * QWEN_7B.parameters


def test_the_editor(monkeypatch):
    config = DebiasConfig()
    known = LISTED["openai-community/gpt2-medium"]
    modules = [EditedModule(f"h.{block}.mlp.c_proj", block, 4096, 1024) for block in (21, 22, 23)]
    monkeypatch.setattr(torch, "randn", lambda *size, generator: torch.empty(size))  # that is one of the CPU
    with torch.device("meta"):
        editor = Hypernetwork(modules, rank=1920, n_blocks=2, lr=1e-7, seed=0)
    monkeypatch.undo()
    assert _editor(config, known, len(_edited(config, known))) == pytest.approx(count(editor), rel=1e-4)


@pytest.mark.parametrize("task", [KnightsKnaves(people=5), KnightsKnaves(form="textual"), Arithmetic(digits=4)])
def test_a_prompt_is_assumed_longer_than_the_longest_of_a_task(task):
    made = import_module(f"trainers.tasks.{task.name}").create(task, None)
    problems = made.splits(dict.fromkeys(SPLITS, 100), 0)["train"]
    pieces = (re.findall(r"\d|[^\W\d]+|[^\w\s]", f"{made.instruction or ''} {each.prompt}") for each in problems)
    assert 1.5 * max(map(len, pieces)) + 16 < PROMPT  # tokens of a word with SmolLM2's tokenizer, and of ChatML


def test_a_warm_start_that_ends_at_an_accuracy_draws_responses():
    plain, until = (
        of_policy("warm_start", PolicyConfig(warm_start={"until": each}), {}, 1).works
        for each in (None, {"problems": 70})
    )
    assert [(work.name, work.rows) for work in until[len(plain) :]] == [("sampling", 70)]
    config = PolicyConfig(warm_start={"until": {"problems": 70}})
    (*_, alone), (*_, together) = (of_policy("warm_start", config, {}, devices).works for devices in (1, 2))
    gathered = 4 * scratch_shape(Scratch(), PolicyConfig().task).parameters
    assert together.of_rows(together.rows) - alone.of_rows(alone.rows) == gathered


def test_gradients_that_are_added_up_once_are_whole_on_each_of_several_devices():
    parameters = scratch_shape(Scratch(), PolicyConfig().task).parameters
    once = PolicyConfig(update={"reduces": "minibatch"})
    for devices, more in ((1, 0), (4, 4 * parameters)):
        each, later = (of_policy("reinforce", config, {}, devices).held for config in (PolicyConfig(), once))
        assert sum(later.values()) - sum(each.values()) == more


def test_a_divided_model_in_bfloat16_gathers_two_blocks_in_half_and_copies_nothing_but_the_output_matrix():
    """By hand: whole are two blocks of 28, the embedding and the output matrix, and their gradients."""
    mixed = Precision(compute="bfloat16", activation_checkpointing=True)
    divided = Model("", QWEN_7B, mixed, 2).update("", 1, 100, predicted=100)
    block, matrix = QWEN_7B.block, 152_064 * 3_584
    gathered, gradients = 2 * 2 * block + 4 * 2 * matrix, 4 * (2 * block + 2 * matrix)
    assert divided.of_rows(0) == gathered + gradients + 4 * 18_944 * 3_584 + 2 * matrix


def test_files_that_are_there_are_believed_before_what_was_published(tmp_path):
    written = AutoConfig.for_model("qwen3", **WRITTEN["Qwen/Qwen3-0.6B"]).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(written))
    hub, path = (
        Asset.model_validate({"kind": "model", "sources": [source]})
        for source in ({"source": "hub", "repo": "openai-community/gpt2"}, {"source": "path", "path": str(tmp_path)})
    )
    models = [ModelAsset(hub), ModelAsset(hub, tmp_path), ModelAsset(path)]
    assert [shape_of({"model": model}, "model").hidden for model in models] == [768, 1024, 1024]


def test_no_stage_reaches_it_so_that_it_is_in_no_key():
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("trainers/*/*.py")]
    start = Code(tuple(file for file in files if "footprint" not in file), {}, {}, entry="any")
    assert not {file for file in Sources(ROOT).files(start) if "footprint" in file}


@pytest.mark.parametrize("targets", [None, ("q_proj", "down_proj")])
def test_adapters_are_two_matrices_beside_each_layer_that_gets_them(targets):
    settings, known = Memory(lora=Lora(rank=4, targets=targets)), QWEN_7B
    learnt = Model("policy", known, Precision(compute="bfloat16"), memory=settings)
    h, f, keys = 3_584, 18_944, 512
    sides = {"q_proj": 2 * h, "down_proj": h + f} if targets else {"all": 2 * 2 * h + 2 * (h + keys) + 3 * (h + f)}
    assert learnt.trained == 28 * 4 * sum(sides.values())
    sizes = {name.removeprefix("policy: "): size for name, size in learnt.held.items()}
    own = {"adapters": 4, "gradients": 4, "optimiser": 8}
    assert sizes == {"weights": 2 * known.parameters} | {name: size * learnt.trained for name, size in own.items()}
    assert learnt.reference.held == {}  # the model without its adapters
