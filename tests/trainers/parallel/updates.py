"""Updates of small models, by one process or by several: `python -m` with OUT, as launch.py runs it.

Leaves for each case what three steps gave: losses and norms, and the weights after them, gathered.
"""

import json
import os
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from ablation.runner.ranks import ALONE
from tests.make_stage import parts_of
from tests.trainers.policy.helpers import EOS, PAD, objective_of, uniforms
from trainers.gad.config import GadConfig
from trainers.gad.critic import build_loss, update_critic
from trainers.models.random_model import build_random_model
from trainers.policy.classifier import RewardModel
from trainers.policy.config import Gae, Lora, Memory, PolicyConfig, Precision, Update
from trainers.policy.grpo import Actor, Batch, sampler_gap
from trainers.policy.learner import Learner, batched_logps
from trainers.policy.models import Placement, checkpoint_activations, frozen_copy
from trainers.policy.ppo import Critic, Estimate
from trainers.policy.responses import Responder
from trainers.policy.rollout import sample
from trainers.policy.supervised import fit
from trainers.policy.text import pad
from trainers.policy.value_model import TokenRewardModel, ValueModel
from trainers.running.micro_batch import MicroBatch

# benchmarks/device_parts.py has the same done by NVIDIA devices, with NCCL.
DEVICE = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if os.environ.get("ABLATION_TEST_DEVICE") == "cuda" else "cpu"
VOCABULARY = 37  # divides by no number of ranks
SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.4}
PROMPTS = [[5, 9, 12], [7, 3, 8, 20, 11, 4], [6], [9, 9, 10, 12, 14]]


def qwen2():
    return Qwen2ForCausalLM(Qwen2Config(**SHAPE, **HEADS, tie_word_embeddings=True))


def llama():
    return LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS, tie_word_embeddings=False))


def gpt2():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.4}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def build(make):
    torch.manual_seed(0)
    return make().double().eval().to(DEVICE)


def responses(model):
    """16 responses of unequal lengths, the same whoever asks: the model is not sharded yet."""
    prompts = [each.to(DEVICE) for each in pad(PROMPTS, PAD, left=True)]
    numbers = uniforms(16, 8).to(DEVICE)
    return sample(model, *prompts, group_size=4, max_new_tokens=8, eos=EOS, pad=PAD, uniforms=numbers)


def weights(ranks, module):
    return {name: ranks.full_tensor(value).clone() for name, value in module.state_dict().items()}


def policy(ranks, make, *, checkpointing=False, adapters=None, compute="float32", allocate=False, **update):
    """Three updates of a policy by GSPO, with a reference and an entropy bonus."""
    settings = Update(**{"lr": 1e-2, "epochs": 3, "minibatches": 1, "entropy_coef": 0.01, **update})
    model, placement = build(make), Placement.of([DEVICE], Precision(compute=compute), ranks)
    sequences = responses(model)
    model = model if compute == "float32" else model.float()
    reference = None if adapters else frozen_copy(model, placement)
    reference = reference.double() if reference is not None and compute == "float32" else reference
    with torch.no_grad():
        old = batched_logps(model, sequences, 1.0, MicroBatch())
    if checkpointing:
        checkpoint_activations(model)
    if adapters:
        from trainers.policy import lora

        lora.adapt(model.requires_grad_(False), adapters, placement.precision, seed=8).double()
    model = placement.shard(model)
    if adapters:
        reference = lora.Reference(model)
    micro_batch = MicroBatch(settings.micro_batch, ranks=ranks)
    learner = Learner.adamw(model, lr=settings.lr, micro_batch=micro_batch, reduces=settings.reduces)
    if allocate:
        learner.allocate()
    objective = objective_of(PolicyConfig(update=settings, ratio="gspo"))
    actor = Actor(learner, objective, settings, placement, reference=reference)
    advantages = torch.randn(16, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(DEVICE)
    found = actor.batch(sequences, advantages)
    batch = Batch(sequences, advantages, old, found.ref_per_token_logps)
    metrics = actor.learn(batch, kl_coef=0.1, generator=torch.Generator().manual_seed(2))
    return metrics, weights(ranks, model) | optimizer_states(ranks, learner)


def gradients(ranks, make):
    """One update in bfloat16, by micro-batches of the same rows whatever the number of ranks: the first moments.

    Weights follow the sign of each, also where it is nearly 0.
    """
    metrics, tensors = policy(ranks, make, compute="bfloat16", micro_batch=4, epochs=1)
    return metrics, {name: tensor for name, tensor in tensors.items() if name.endswith("/exp_avg")}


class Collectives(TorchDispatchMode):
    """Counts them by name. (CommDebugMode of torch does so too, but loses its way where FSDP2 hooks into modules.)"""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # until it is about the tensors here
        if func.namespace in ("c10d", "_c10d_functional") and "_wrap" not in str(func) and "wait" not in str(func):
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def watched(ranks, **update):
    """What goes on in a step of several ranks: collectives, and in what precision a block has its weights."""
    counts, dtypes, step = Counter(), {}, Learner.step

    def look(module, _, name):
        dtypes[name] = str(module.weight.dtype)

    def counted(learner, *arguments):
        for name, module in learner.model.named_modules():
            if name.startswith("model.layers.1.") and getattr(module, "weight", None) is not None:
                module.register_forward_pre_hook(partial(look, name=type(module).__name__))
        with Collectives(counts):
            return step(learner, *arguments)

    with patch.object(Learner, "step", counted):
        policy(ranks, qwen2, micro_batch=4, epochs=1, **update)
    return counts | dtypes


def optimizer_states(ranks, learner):
    found = learner.optimizer.state_dict()["state"]
    return {f"{n}/{slot}": ranks.full_tensor(value) for n, slots in found.items() for slot, value in slots.items()}


def sampled(ranks, make=qwen2, compute="float32", adapters=None):
    """Responses by the ranks, each to its own prompts, with the same numbers; in bfloat16 with a copy."""
    placement, model = Placement.of([DEVICE], Precision(compute=compute), ranks), build(make)
    if adapters:
        from trainers.policy import lora

        lora.adapt(model, adapters, placement.precision, seed=8)
        for name, parameter in model.named_parameters():
            nn.init.constant_(parameter, 0.05) if "lora_B" in name else None
    if compute == "float32" or not adapters:  # else the frozen weights are in bfloat16
        model = model.double() if compute == "float32" else model.float()
    model = ranks.shard(model)
    tokenizer = type("Tokenizer", (), {"eos_token_id": EOS, "pad_token_id": PAD})()
    tokenizer.batch_decode = tokenizer.decode = lambda ids, **_: ""
    prompts, generator = PROMPTS[:3], torch.Generator().manual_seed(3)
    respond = Responder(model, tokenizer, placement)
    sequences, _ = respond(prompts, group_size=4, limit=12, generator=generator, micro_batch=MicroBatch(4, ranks=ranks))
    micro_batch = MicroBatch(8, ranks=ranks)
    distinct, _ = respond.evenly(
        prompts, samples=8, limit=6, temperature=1.0, generator=generator, micro_batch=micro_batch
    )
    found = {"responses": sequences.completion_ids, "mask": sequences.completion_mask, "logps": sequences.logps}
    return {}, found | {"distinct": distinct.sequences.completion_ids, "shares": distinct.shares}


def sampled_after_update(ranks):
    """A forward leaves some weights whole, and an update changes them: the next copy has the new ones."""
    model = build(qwen2).float()
    placement = Placement.of([DEVICE], Precision(compute="bfloat16"), ranks)
    learner = Learner.adamw(ranks.shard(model), lr=3e-2, micro_batch=MicroBatch(3, ranks=ranks))
    actor = Actor(learner, objective_of(PolicyConfig()), Update(epochs=2), placement)
    tokenizer = type("Tokenizer", (), {"eos_token_id": EOS, "pad_token_id": PAD})()
    tokenizer.batch_decode = lambda ids, **_: ""
    respond = Responder(learner.model, tokenizer, placement)
    numbers, found = torch.Generator().manual_seed(8), {}
    advantages = torch.randn(16, generator=numbers, dtype=torch.float64).to(DEVICE)
    for step in range(3):
        before = respond(PROMPTS, group_size=4, limit=8, generator=numbers, micro_batch=MicroBatch(4, ranks=ranks))[0]
        batch = actor.batch(before, advantages)
        found[f"fresh {step}"] = sampler_gap(actor, batch, "bfloat16")["rollout/logp_gap"] < 0.05
        actor.learn(batch, kl_coef=0.0, generator=torch.Generator().manual_seed(step))
        moved = (actor.logps(before) - before.logps).abs()[before.completion_mask.bool()].mean()
        found[f"moved {step}"] = moved.item() > 0.2
    return found, {}


def value_model(ranks, savers=None):
    model = build(qwen2)
    sequences = responses(model)
    with torch.random.fork_rng():
        adapters = None
        if savers is not None:
            from trainers.policy.lora import Adapters as adapters
        critic = ValueModel(model.model, Placement.of([DEVICE], Precision(), ranks, adapters), sees_token=True)
    head = nn.init.normal_(critic.head.weight.detach().cpu(), std=0.3, generator=torch.Generator().manual_seed(4))
    critic.head.weight.data.copy_(head)
    critic = critic if savers is None else critic.with_adapters(savers, 9)
    return sequences, ranks.shard(critic.double())


def ppo_critic(ranks):
    """A critic's updates on given returns."""
    sequences, critic = value_model(ranks)
    micro_batch = MicroBatch(3, ranks=ranks)
    settings = Update(epochs=3, minibatches=2)
    numbers = torch.Generator().manual_seed(5)
    returns = torch.randn(sequences.completion_mask.shape, generator=numbers, dtype=torch.float64).to(DEVICE)
    learner = Critic(Learner.adamw(critic, lr=1e-2, micro_batch=micro_batch), Gae().critic)
    values = learner.estimate(sequences, returns.sum(1).cpu()).values
    estimate = Estimate(returns, returns, values)
    metrics = learner.learn(sequences, estimate, update=settings, generator=torch.Generator().manual_seed(6))
    return metrics, {"values": values} | weights(ranks, critic)


def discriminator(ranks, savers=None):
    """A discriminator's updates on pairs: fewer prompts in a minibatch than there may be ranks."""
    student, critic = value_model(ranks, savers)
    teacher = student.select(torch.arange(0, 16, 4, device=DEVICE))
    learner = Learner.adamw(critic, lr=1e-2, micro_batch=MicroBatch(1, ranks=ranks))
    norm = update_critic(
        learner,
        build_loss(GadConfig(), parts_of(GadConfig(), "gad")["discriminator"]),
        teacher,
        student,
        update=Update(epochs=3, minibatches=2),
        pooling="mean",
        generator=torch.Generator().manual_seed(7),
    )
    return norm, weights(ranks, critic)


def supervised(ranks):
    """Cross-entropy, without a minibatch's reordering."""
    placement, model = Placement.of([DEVICE], Precision(), ranks), build(llama)
    sequences = responses(model)
    model = ranks.shard(model)
    learner = Learner.adamw(model, lr=1e-2, micro_batch=MicroBatch(5, ranks=ranks))
    found = {}
    for step in range(3):
        losses, norm = fit(learner, sequences, placement)
        found |= {f"loss {step}": sum(losses).item(), f"norm {step}": norm.item()}
    return found, weights(ranks, model)


def rewards(ranks):
    """Scores of responses and of their tokens by reward models whose weights and rows the ranks share."""
    folder = Path(ranks.same(tempfile.mkdtemp() if ranks.rank == 0 else None))
    if ranks.rank == 0:
        _, tokenizer = build_random_model("llama", hidden=16, layers=1, heads=2, vocab=260, positions=64, seed=0)
        torch.manual_seed(0)
        shape = SHAPE | HEADS | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        LlamaForSequenceClassification(LlamaConfig(**shape, num_labels=1)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    ranks.same(None)
    placement = Placement.of(["cpu"], Precision(), ranks)
    texts = ["a", "some words", "a longer response than the others, by far", "b b", "five"]
    scores = RewardModel(folder, placement, batch_size=2)(["asked?"] * 5, texts)
    one = RewardModel(folder, placement)(["asked?"], ["one response, fewer than ranks"])
    sequences = responses(build(qwen2))
    tokens = TokenRewardModel(folder, placement, folder, batch_size=3)(sequences, ["asked?"] * len(sequences), EOS)
    if ranks.rank == 0:
        tokenizer.chat_template = "{% for each in messages %}<s>{{ each['content'] }}</s>{% endfor %}"
        tokenizer.save_pretrained(folder)
    ranks.same(None)
    chats = TokenRewardModel(folder, placement, folder, batch_size=3)(sequences, ["asked?"] * len(sequences), EOS)
    return {}, {"scores": scores, "one": one, "tokens": tokens, "chats": chats}


CASES = {
    "tied": lambda ranks: policy(ranks, qwen2),
    "untied": lambda ranks: policy(ranks, llama, micro_batch=3, minibatches=2),
    "gpt2": lambda ranks: policy(ranks, gpt2, micro_batch=2),
    "checkpointing": lambda ranks: policy(ranks, qwen2, checkpointing=True, micro_batch=2),
    "reduced once": lambda ranks: policy(ranks, llama, micro_batch=3, minibatches=2, reduces="minibatch"),
    "allocated early": lambda ranks: policy(ranks, qwen2, allocate=True),
    "bfloat16": lambda ranks: gradients(ranks, llama),
    "bfloat16, gpt2": lambda ranks: gradients(ranks, gpt2),
    "fewer rows than parts": lambda ranks: policy(ranks, qwen2, minibatches=5, micro_batch=1, epochs=1),
    "fewer rows than ranks": lambda ranks: policy(ranks, qwen2, minibatches=16, epochs=1),
    "ppo critic": ppo_critic,
    "discriminator": discriminator,
    "supervised": supervised,
    "rewards": rewards,
    "sampled": sampled,
    "sampled in bfloat16": lambda ranks: sampled(ranks, compute="bfloat16"),
    "sampled after an update": sampled_after_update,
    "sampled in bfloat16 by gpt2": lambda ranks: sampled(ranks, gpt2, "bfloat16"),
}

ADAPTERS = Lora(rank=3, alpha=6.0)
WITH_PEFT = {  # where peft is installed
    "adapters": lambda ranks: policy(ranks, qwen2, adapters=ADAPTERS, micro_batch=2),
    "adapters, checkpointing": lambda ranks: policy(ranks, llama, adapters=ADAPTERS, checkpointing=True, minibatches=2),
    "adapters of some layers, gpt2": lambda ranks: policy(ranks, gpt2, adapters=Lora(rank=2, targets=("c_attn",))),
    "adapted critic": lambda ranks: discriminator(ranks, Memory(lora=ADAPTERS)),
    "sampled with adapters": lambda ranks: sampled(ranks, adapters=ADAPTERS),
    "sampled with adapters in bfloat16": lambda ranks: sampled(ranks, compute="bfloat16", adapters=ADAPTERS),
}


def main(out, cases):
    torch.set_num_threads(1)
    ranks = ALONE
    if "RANK" in os.environ:
        from trainers.parallel.group import Group

        ranks = Group.join(torch.device(DEVICE))
    metrics, tensors = {}, {}
    for name, case in cases.items():
        metrics[name], found = case(ranks)
        tensors |= {f"{name}/{key}": value.detach().cpu().clone().contiguous() for key, value in found.items()}
    if ranks is not ALONE:
        metrics["watched"] = watched(ranks)
        metrics["watched, bfloat16"] = watched(ranks, compute="bfloat16", reduces="minibatch")
    if ranks.rank == 0:
        save_file(tensors, out / "tensors.safetensors")
        (out / "metrics.json").write_text(json.dumps(metrics))
    if ranks is not ALONE:
        ranks.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), WITH_PEFT if sys.argv[2:] == ["peft"] else CASES)
