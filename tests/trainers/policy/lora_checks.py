"""Low-rank adapters; test_lora.py runs this file where peft is installed."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.trainers.policy.helpers import (
    CPU,
    EOS,
    PAD,
    SMALL,
    TINY,
    actor,
    killed_at,
    sampled_batch,
    stage,
    train,
    uniforms,
)
from trainers.export import export
from trainers.policy import evaluate, lora
from trainers.policy.config import Evaluate, Lora, Memory, PolicyConfig, Precision, Rollout, Update
from trainers.policy.decode import ModelDecoder, read_prompts
from trainers.policy.learner import batched_logps, per_token_logps
from trainers.policy.models import (
    Placement,
    build_policy,
    learning,
    load_policy,
    load_policy_and_reference,
    save_policy,
)
from trainers.policy.plain import is_plain, packs
from trainers.policy.rollout import sample
from trainers.policy.value_model import ValueModel
from trainers.running.micro_batch import MicroBatch

SETTINGS = Lora(rank=4, alpha=6.0)


def llama():
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.4}
    shape = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=37, **shape, **heads, tie_word_embeddings=False))


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.4}
    return GPT2LMHeadModel(GPT2Config(vocab_size=37, **sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


@pytest.fixture(params=["qwen2", "llama", "gpt2"])
def dense(request, tokenizer):
    torch.manual_seed(0)
    return {"qwen2": lambda: build_policy(TINY, tokenizer, seed=0), "llama": llama, "gpt2": gpt2}[
        request.param
    ]().eval()


def copied(model):
    found = type(model)(model.config)
    found.load_state_dict(model.state_dict())
    return found.eval()


def adapted(model, precision=None, *, moved=True, settings=SETTINGS):
    """The model with adapters; `moved`: as after some training."""
    made = lora.adapt(copied(model).requires_grad_(False), settings, precision or Precision(), seed=3)
    if moved:
        generator = torch.Generator().manual_seed(4)
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                parameter.data.normal_(std=0.2, generator=generator)
    return made


def changes(model):
    """{name of a layer's weight: (A, B)}."""
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "lora_A"):
            found[f"{name}.weight"] = module.lora_A["default"].weight, module.lora_B["default"].weight
    return found


def test_it_begins_as_the_model_was_with_adapters_at_all_linear_layers_of_the_blocks(dense):
    ids = torch.randint(20, (3, 9))
    made = adapted(dense, moved=False)
    assert torch.equal(made(ids).logits, dense(ids).logits)
    in_blocks = [
        name
        for name, module in dense.named_modules()
        if type(module).__name__ in ("Linear", "Conv1D") and name != "lm_head"
    ]
    assert {name.removesuffix(".weight") for name in changes(made)} == set(in_blocks)
    learns = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert len(learns) == 2 * len(in_blocks)
    assert all("lora_" in name for name in learns)
    again, other = adapted(dense, moved=False), lora.adapt(copied(dense), SETTINGS, Precision(), seed=5)
    for name, (first, _) in changes(made).items():
        assert first.dtype == torch.float32
        bound = first.shape[1] ** -0.5  # kaiming_uniform_ with a = sqrt(5)
        assert 0.8 * bound < first.abs().max() <= bound
        assert torch.equal(first, changes(again)[name][0])
        assert not torch.equal(first, changes(other)[name][0])


def test_every_adapter_moves_but_a_not_at_the_first_step_and_nothing_else_does(dense, prompts):
    made = adapted(dense, moved=False)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    one = actor(made, Update(epochs=1, minibatches=1), lr=1e-2)
    batch = sampled_batch(dense, prompts, torch.randn(16, generator=torch.Generator().manual_seed(1)))

    def moved():
        one.learn(batch, kl_coef=0.1, generator=torch.Generator().manual_seed(2))
        return {name for name, value in made.state_dict().items() if not torch.equal(value, before[name])}

    adapters = {name for name in before if "lora_" in name}
    assert moved() == {name for name in adapters if "lora_B" in name}
    assert moved() == adapters


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_the_reference_is_the_model_without_adapters_and_has_no_weights_of_its_own(
    tmp_path, tokenizer, prompts, compute
):
    dense, precision = build_policy(TINY, tokenizer, seed=0), Precision(compute=compute)
    placement = Placement.of(["cpu"], precision, adapters=lora.Adapters)
    save_policy(tmp_path, dense, tokenizer)
    sequences = sampled_batch(dense.eval(), prompts, torch.zeros(16)).sequences
    model, reference = load_policy_and_reference(tmp_path, placement, Memory(lora=SETTINGS), 0, reference=True)
    assert not list(reference.parameters())
    for _, second in changes(model).values():
        second.data.fill_(0.1)
    frozen = load_policy(tmp_path, torch.device("cpu"), precision)  # what the reference of a whole training is
    with placement.autocast():
        one, other, policy = (batched_logps(each, sequences, 1.0, MicroBatch()) for each in (reference, frozen, model))
    torch.testing.assert_close(one, other, rtol=0, atol=0 if compute == "bfloat16" else 1e-5)  # float32 packs
    assert (policy - one).abs().max() > 0.1
    assert {parameter.dtype for name, parameter in model.named_parameters() if "lora_" not in name} == {
        getattr(torch, compute)
    }
    assert model.get_parameter("model.layers.0.mlp.up_proj.lora_A.default.weight").dtype == torch.float32
    assert torch.equal(model.model.rotary_emb.inv_freq, dense.model.rotary_emb.inv_freq)


def test_what_computes_from_the_weights_notices_adapters(tokenizer, prompts):
    dense = build_policy(TINY, tokenizer, seed=0).eval()
    assert is_plain(dense)
    assert packs(dense)
    for targets in (None, ("o_proj",), ("down_proj",)):
        made = adapted(dense, settings=Lora(rank=2, targets=targets))
        assert not is_plain(made)
        assert not is_plain(made.model)
        assert not packs(made)
        _, decoder = read_prompts(made, *prompts, room=3)
        assert isinstance(decoder, ModelDecoder)


def test_sampled_log_probabilities_are_those_of_the_adapted_model(dense, prompts):
    made = adapted(dense).double()
    sequences = sample(made, *prompts, group_size=4, max_new_tokens=8, eos=EOS, pad=PAD, uniforms=uniforms(16, 8))
    with torch.no_grad():
        expected = per_token_logps(made, sequences)[0].to(sequences.logps.dtype)
        torch.testing.assert_close(sequences.logps, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_the_saved_model_computes_the_same_without_peft(dense, tokenizer, tmp_path, compute):
    precision = Precision(compute=compute)
    made = adapted(dense, precision)
    save_policy(tmp_path / "saved", made, tokenizer)
    loaded, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values())
    assert type(loaded) is type(dense)
    assert not changes(loaded)
    ids = torch.randint(20, (3, 9))
    exact = made.float()(ids).logits  # the same weights, without the rounding of bfloat16's products
    torch.testing.assert_close(loaded.eval()(ids).logits, exact, rtol=1e-4, atol=1e-4)
    assert (exact - dense(ids).logits).abs().max() > 0.5
    with safe_open(tmp_path / "saved" / "model.safetensors", "pt") as file:
        assert not [name for name in file.keys() if "lora" in name or "base_layer" in name]  # noqa: SIM118
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float32}  # noqa: SIM118
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "float32"
    export(tmp_path / "saved", tmp_path / "exported")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", dtype="auto").eval()
    torch.testing.assert_close(exported(ids).logits, loaded(ids).logits, rtol=0, atol=0)


def test_a_critic_has_adapters_in_its_body_and_a_head_that_learns_whole(tokenizer, prompts, tmp_path):
    dense = build_policy(TINY, tokenizer, seed=0).eval()
    sequences = sampled_batch(dense, prompts, torch.zeros(16)).sequences
    placement = replace(CPU, adapters=lora.Adapters)
    critic = ValueModel(copied(dense).model, placement, sees_token=True).with_adapters(Memory(lora=SETTINGS), 0)
    held = learning(critic).state_dict()
    assert {name for name in held if "lora_" not in name} == {"head.weight", "head.bias"}
    optimizer = torch.optim.AdamW([each for each in critic.parameters() if each.requires_grad], lr=0.1)
    for _ in range(3):
        critic(sequences).sum().backward()
        optimizer.step()
    critic.save(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = ValueModel.load(tmp_path, CPU, sees_token=True)
    torch.testing.assert_close(loaded(sequences), critic(sequences), rtol=1e-4, atol=1e-4)
    assert critic(sequences).abs().max() > 1


def test_a_target_that_there_is_not_is_refused(dense):
    message = "memory.lora.targets: no linear layer of .* blocks is named 'q'; choose from"
    with pytest.raises(ValueError, match=message):
        lora.adapt(copied(dense), Lora(targets=("q",)), Precision(), seed=0)


VARIANTS = {
    "gspo": {"ratio": "gspo"},
    "ppo": {"advantage": {"kind": "gae"}, "rollout": Rollout(responses=16, group_size=1)},
    "bfloat16": {"ratio": "gspo", "precision": Precision(compute="bfloat16", activation_checkpointing=True)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_killed_run_goes_on_bit_identically_and_is_evaluated(prepared, tmp_path, monkeypatch, name):
    memory = Memory(lora=SETTINGS)
    settings = {**SMALL, **VARIANTS[name], "memory": memory, "evaluate": Evaluate(samples=2, checkpoints=2)}
    config = PolicyConfig(**settings)
    expected, weights = train(tmp_path / "whole", prepared, config)
    assert sorted(path.name for path in (tmp_path / "whole" / "steps").iterdir()) == ["3"]

    with killed_at(3, monkeypatch):
        train(tmp_path / "resumed", prepared, config)
    held = checkpointed(tmp_path / "resumed" / "checkpoint")
    of_models = {each for each in held if each.startswith(("policy/", "critic/"))}
    assert of_models
    assert all(re.search(r"lora_|critic/head", each) for each in of_models)
    found, resumed = train(tmp_path / "resumed", prepared, config)
    assert found.reset_index(drop=True).equals(expected.reset_index(drop=True))
    assert resumed == weights
    inputs = {**prepared, "policy": tmp_path / "whole"}
    evaluate.run(stage(tmp_path / "evaluated", config, inputs, seed=0))
    assert (tmp_path / "evaluated" / "items.parquet").exists()
    trained, start = (
        load_policy(path, torch.device("cpu")) for path in (tmp_path / "whole" / "policy", start_of(prepared))
    )
    for (where, one), other in zip(trained.named_parameters(), start.parameters(), strict=True):
        frozen = other.bfloat16().float() if name == "bfloat16" else other
        assert torch.equal(one, frozen) != where.endswith("_proj.weight"), where


def start_of(prepared):
    return prepared["warm_start"] / "policy"


def checkpointed(folder: Path):
    names = set()
    for file in folder.rglob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            names |= set(opened.keys())
    return names
