"""Models loaded, saved and checkpointed by one process or several: python loads.py FOLDER, under torchrun's launcher.

FOLDER holds what `prepare` writes. Each case leaves what the model is: weights, buffers, flags, what it computes, and
the next random number that anyone would draw.
"""

import gc
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)

from ablation.runner.ranks import ALONE
from trainers.gad.config import Critic as CriticSettings
from trainers.gad.critic import new_critic
from trainers.policy.batch import Sequences
from trainers.policy.config import Memory, Precision, Scratch
from trainers.policy.models import Placement, build_policy, load_policy_and_reference
from trainers.policy.ppo import build_critic
from trainers.policy.text import word_tokenizer
from trainers.policy.value_model import ValueModel
from trainers.running import checkpoint
from trainers.running.state import State

VOCABULARY = 37  # divides by no number of ranks
SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.4}
TOKENS = torch.arange(12).view(2, 6) % 5  # that any vocabulary here has
LARGE = {**SHAPE, "vocab_size": 2000, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 14}


def prepare(folder):
    """Write the models that the cases load, and the checkpoint of one process that several go on from."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer([f"w{number}" for number in range(VOCABULARY - 4)])
    size = len(tokenizer)
    models = {
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**SHAPE | {"vocab_size": size}, **HEADS, tie_word_embeddings=True)),
        "low": LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS, tie_word_embeddings=False)).bfloat16(),
        "gpt2": GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2)),
        "reward": Qwen2ForSequenceClassification(
            Qwen2Config(**SHAPE | {"vocab_size": size}, **HEADS, num_labels=1, pad_token_id=0)
        ),
    }
    for name, model in models.items():
        nn.init.normal_(model.score.weight) if name == "reward" else None
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    critic = ValueModel.from_causal(folder / "qwen2", placement(ALONE), sees_token=True)
    nn.init.normal_(critic.head.weight)
    critic.save(folder / "critic")
    resume(ALONE, folder, None, "one", 1)


def prepare_large(folder):
    """Write the model by which memory is measured."""
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**LARGE, **HEADS, tie_word_embeddings=True)).save_pretrained(folder / "large")


def placement(ranks, **precision):
    return Placement.of(["cpu"], Precision(**precision), ranks)


def sharded(ranks, folder, **precision):
    return load_policy_and_reference(folder, placement(ranks, **precision), Memory(), None)[0]


def reference(ranks, folder, **precision):
    return load_policy_and_reference(folder, placement(ranks, **precision), Memory(), None, reference=True)[1]


def scratch(ranks, folder):
    tokenizer = word_tokenizer(["a", "b", "c"])
    shape = Scratch(hidden=16, layers=2, heads=2, feed_forward=24, positions=32)
    return ranks.shard(ranks.build(lambda: build_policy(shape, tokenizer, 5)))


def critic(ranks, folder, how):
    there = placement(ranks, activation_checkpointing=True)

    def make():
        if how == "saved":
            return ValueModel.load(folder / "critic", there, sees_token=True)
        settings = CriticSettings(init="student" if how == "student" else "reward_model")
        generator = torch.Generator().manual_seed(3)
        return new_critic(settings, folder / "qwen2", folder / "reward", there, generator)

    return ranks.shard(ranks.build(make))


CASES = {
    "tied": lambda ranks, folder: sharded(ranks, folder / "qwen2"),
    "activation checkpointing": lambda ranks, folder: sharded(ranks, folder / "qwen2", activation_checkpointing=True),
    "from bfloat16": lambda ranks, folder: sharded(ranks, folder / "low"),
    "gpt2": lambda ranks, folder: sharded(ranks, folder / "gpt2"),
    "reference": lambda ranks, folder: reference(ranks, folder / "qwen2"),
    "reference in bfloat16": lambda ranks, folder: reference(ranks, folder / "qwen2", compute="bfloat16"),
    "scratch": scratch,
    "critic of ppo": lambda ranks, folder: build_critic(folder / "qwen2", placement(ranks), Memory(), 0),
    "critic from the student": lambda ranks, folder: critic(ranks, folder, "student"),
    "critic from a reward model": lambda ranks, folder: critic(ranks, folder, "reward model"),
    "saved critic": lambda ranks, folder: critic(ranks, folder, "saved"),
}


def described(ranks, model):
    """Return all that a model is: tensors, and what is not a tensor."""
    tensors = {name: ranks.full_tensor(value).detach().clone() for name, value in model.state_dict().items()}
    tensors |= {f"buffer {name}": value.clone() for name, value in model.named_buffers()}
    with torch.no_grad(), ranks.full_weights(model, autocast=False):
        if isinstance(model, ValueModel):
            mask = torch.ones_like(TOKENS)
            tensors["computed"] = model(Sequences(TOKENS, mask, TOKENS, mask))
        else:
            tensors["computed"] = model(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS)).logits
    said = {
        "class": type(model).__name__.removeprefix("FSDP"),
        "modes": sorted({module.training for module in model.modules()}),
        "dropout": sorted({module.p for module in model.modules() if isinstance(module, nn.Dropout)}),
        "checkpointing": sorted(
            {getattr(module, "gradient_checkpointing", None) for module in model.modules()}, key=str
        ),
        "learns": {name: parameter.requires_grad for name, parameter in model.named_parameters()},  # a tied one once
        "next": torch.rand(1).item(),
    }
    if isinstance(model, ValueModel):
        assert model.placement.ranks is ranks
    return tensors, said


def cases(ranks, folder):
    tensors, said = {}, {}
    for name, case in CASES.items():
        torch.manual_seed(1)
        found, said[name] = described(ranks, case(ranks, folder))
        tensors |= {f"{name}/{key}": value.contiguous() for key, value in found.items()}
    save(ranks, folder)
    return tensors, said


def save(ranks, folder):
    """Write models as a stage does at its end."""
    out = folder / f"saved by {ranks.size}"
    for name in ("qwen2", "gpt2"):
        ranks.save(sharded(ranks, folder / name), out / name)
    critic(ranks, folder, "saved").save(out / "critic")


def resume(ranks, folder, source, target, steps):
    """Go on from a checkpoint for some steps and leave another; return the losses, and what was read."""
    model = ranks.shard(ranks.build(lambda: Qwen2ForCausalLM.from_pretrained(folder / "qwen2").double()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    generator = torch.Generator().manual_seed(9)
    state = State({"model": model}, {"optimizer": optimizer}, {"generator": generator})
    first = 0
    if source is not None:
        found = checkpoint.load(folder / source, ranks)
        state.load(found)
        first = found.step
    losses = []
    for _ in range(steps):
        rows = torch.randint(VOCABULARY - 1, (4, 5), generator=generator)
        here = rows[ranks.share(len(rows))]
        logits = model(input_ids=here).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), here[:, 1:].flatten(), reduction="sum") / rows.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(sum(ranks.gather(loss.item())))
    checkpoint.save(folder / target, first + steps, state.tensors(), {"losses": losses}, ranks)
    return losses


def damaged(ranks, folder):
    """The second rank's file is damaged; return what each rank makes of it."""
    resume(ranks, folder, None, "damaged", 1)
    whole = checkpoint.load(folder / "damaged", ranks) is not None
    ranks.gather(None)
    if ranks.rank == 0:
        path = sorted((folder / "damaged").rglob("*.safetensors"))[-1]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    ranks.gather(None)
    return ranks.gather([whole, checkpoint.load(folder / "damaged", ranks) is not None])


class Peak:
    """The most memory of this process in a block, beyond what it had at its beginning, MB."""

    def __enter__(self):
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
        self.before, self.found = self._read("VmRSS"), 0.0
        return self

    def __exit__(self, *_):
        self.found = self._read("VmHWM") - self.before

    def _read(self, name):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def memory(ranks, folder):
    """Return what each rank holds while it loads, checkpoints, reads the checkpoint and saves, MB."""
    found = {}
    with Peak() as peak:
        model = sharded(ranks, folder / "large")
    found["load"] = peak.found
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    state = State({"model": model}, {"optimizer": optimizer})
    ranks.gather(None)
    with Peak() as peak:
        checkpoint.save(folder / "of large", 1, state.tensors(), {}, ranks)
    found["checkpoint"] = peak.found
    optimizer.state.clear()
    gc.collect()
    with Peak() as peak:
        state.load(checkpoint.load(folder / "of large", ranks))
    found["read"] = peak.found
    with Peak() as peak:
        ranks.save(model, folder / "large again")
    found["save"] = peak.found
    found["share"] = sum(value.to_local().numel() for value in model.parameters()) * 4 / 2**20
    return ranks.gather(found)


def main(folder):
    torch.set_num_threads(1)
    from trainers.parallel.group import Group

    ranks = Group.join(torch.device("cpu"))
    tensors, said = cases(ranks, folder)
    said = {"cases": ranks.gather(said)}
    said["losses"] = resume(ranks, folder, "one", "two", 2)
    said["damaged"] = damaged(ranks, folder)
    if (folder / "large").exists():
        said["memory"] = memory(ranks, folder)
    if ranks.rank == 0:
        save_file(tensors, folder / "tensors.safetensors")
        (folder / "said.json").write_text(json.dumps(said))
    ranks.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
