"""Bounds of memory against the tensors of the passes themselves, on models small enough to run."""

from types import SimpleNamespace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from tests.trainers.footprint.live_memory import LiveMemory
from trainers.footprint import Model, of_config
from trainers.gad.critic import pair_scores
from trainers.objectives.policy import aggregate
from trainers.policy import continuous, learner, value_model
from trainers.policy.batch import Sequences
from trainers.policy.learner import Learner, batched_logps, per_token_logps
from trainers.policy.models import Placement
from trainers.policy.rollout import sample_all
from trainers.policy.value_model import ValueModel
from trainers.running.state import State

WORDS = 2000
COMMON = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 1}


@pytest.fixture(autouse=True)
def as_on_an_accelerator(monkeypatch):
    """On a CPU small models go another way, without padding."""
    for module in (learner, value_model):
        monkeypatch.setattr(module, "packs", lambda model: False)
    monkeypatch.setattr(continuous, "applies", lambda model, device: True)


def made(kind):
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
    torch.manual_seed(0)
    if kind == "gpt2":
        dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        return GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=3, n_head=4, n_positions=256, **dropout, **COMMON))
    if kind == "qwen3":
        more = {"num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True}
        return Qwen3ForCausalLM(Qwen3Config(**sizes, **more, **COMMON))
    return Qwen2ForCausalLM(Qwen2Config(**sizes, num_key_value_heads=2, tie_word_embeddings=False, **COMMON))


def shape(model):
    return of_config(model.config.to_dict())


def precision(compute, *, checkpointing=False):
    return SimpleNamespace(compute=compute, activation_checkpointing=checkpointing)


def autocast(compute):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=compute == "bfloat16")


def sequences(rows, prompt, response):
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(WORDS, (rows, width), generator=generator) for width in (prompt, response)]
    return Sequences(ids[0], torch.ones_like(ids[0]), ids[1], torch.ones_like(ids[1]))


def check_bound(work, seen):
    """A bound is above what was seen, and by at most half of it."""
    assert 0.98 * seen <= work.of_rows(work.rows) <= 1.5 * seen


def checkpointed(model, *, active):
    if active:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def peak_of_second_step(learner, backward, rows):
    """Bytes beside weights, gradients and optimiser."""
    with LiveMemory() as memory:
        learner.step(rows, backward)
        held = memory.live
        memory.restart()
        learner.micro_batch.run(rows, backward)
        assert held == pytest.approx(12 * sum(each.numel() for each in learner.model.parameters()), rel=1e-3)
        return memory.peak - held


def logits_loss(model, rows, compute, entropy):
    with autocast(compute):
        logps, entropies = per_token_logps(model, rows, entropy_gradient=entropy == "learnt")
    loss = aggregate(logps, rows.completion_mask, "token_mean", denominator=1.0)
    (loss + (entropies.sum() if entropy == "learnt" else 0)).backward()


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable")
@pytest.mark.parametrize(
    ("kind", "compute", "checkpointing", "entropy"),
    [
        ("qwen2", "float32", False, "learnt"),
        ("qwen2", "float32", True, "dropped"),
        ("qwen2", "bfloat16", False, "dropped"),
        ("qwen2", "bfloat16", True, "dropped"),
        ("qwen3", "bfloat16", True, "learnt"),
        ("gpt2", "float32", False, "learnt"),
        ("gpt2", "bfloat16", True, "dropped"),
    ],
)
def test_an_update_stays_below_its_bound(kind, compute, checkpointing, entropy):
    model = checkpointed(made(kind), active=checkpointing)
    rows = sequences(3, 80, 80)
    learner = Learner.adamw(model, lr=1e-5)
    seen = peak_of_second_step(learner, lambda part: logits_loss(model, rows, compute, entropy), torch.arange(3))
    settings = precision(compute, checkpointing=checkpointing)
    work = Model("", shape(model), settings).update("", 3, 160, predicted=80, entropy=entropy == "learnt")
    check_bound(work, seen)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable")
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_critics_update_stays_below_its_bound(compute):
    body = made("qwen2").model
    settings = precision(compute, checkpointing=True)
    critic = ValueModel(body, Placement.of(["cpu"], settings), sees_token=True)
    teacher, student = sequences(1, 60, 60), sequences(4, 60, 60)
    learner = Learner.adamw(critic, lr=1e-5)

    def backward(part):
        scores = pair_scores(critic, teacher, student, part, 4, pooling="mean")
        sum(each.pooled.sum() for each in scores).backward()

    critic.train()
    seen = peak_of_second_step(learner, backward, torch.arange(1))
    known = of_config(body.config.to_dict())
    assert known.body == pytest.approx(sum(each.numel() for each in critic.parameters()), rel=0.01)
    # The teacher's pass and the student's are two: what is computed again is one of them.
    check_bound(Model("", known, settings).update("", 5, 120), seen)


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
@pytest.mark.parametrize(("compute", "frozen"), [("float32", False), ("bfloat16", False), ("bfloat16", True)])
def test_sampling_and_log_probabilities_stay_below_their_bounds(kind, compute, frozen):
    model = made(kind).eval()
    if frozen:
        model = model.requires_grad_(False).to(torch.bfloat16)
    known = Model("", shape(model), precision(compute), frozen=frozen)
    rows = sequences(8, 60, 1)  # of which four are read while the first four are in memory
    uniforms = torch.rand(16, 60, dtype=torch.float64)
    with LiveMemory() as memory, autocast(compute):
        settings = {"group_size": 2, "max_new_tokens": 60, "eos": WORDS + 1, "pad": 0, "uniforms": uniforms}
        sample_all(model, rows.prompt_ids, rows.prompt_mask, batch_size=8, **settings)
    check_bound(known.sampling("", 8, group=2, prompt=60, response=60), memory.peak)
    if kind == "qwen2":
        with LiveMemory() as memory, autocast(compute):
            batched_logps(model, sequences(4, 60, 60), 1.0, None)
        check_bound(known.forward("", 4, 120, predicted=60), memory.peak)


@pytest.mark.parametrize("kind", ["gpt2", "qwen2"])
def test_weights_and_moments_are_as_many_bytes_as_is_estimated(kind):
    model = made(kind)
    learner = Learner.adamw(model, lr=1e-5)
    logits_loss(model, sequences(1, 4, 4), "float32", "dropped")
    learner.optimizer.step()
    there = State({"policy": model}, {"optimizer": learner.optimizer}).tensors()
    known = shape(model)
    # Of a tied output matrix the state has two names, the optimiser one; AdamW counts steps for each tensor.
    twice, counters = 4 * known.matrix * known.tied, 4 * len(list(model.parameters()))
    seen = sum(each.numel() * each.element_size() for each in there.values()) - twice - counters
    sizes = Model("policy", known, precision("float32")).held
    assert sizes["policy: weights"] + sizes["policy: optimiser"] == pytest.approx(seen, rel=0.02)
