"""The pretended device refuses what CUDA refuses, allows what it allows, and counts where the host waits."""

import inspect

import pytest
import torch
from torch import nn

from ablation.runner.stage import RUNTIME_FACTS
from tests.accelerator.pretended import PUT, Pretended
from tests.trainers.policy.helpers import EOS, PAD, TINY, uniforms
from trainers.policy import continuous, rollout, systematic_sampling
from trainers.policy.models import build_policy
from trainers.policy.text import pad, word_tokenizer
from trainers.tasks.knights_knaves import WORDS


@pytest.fixture
def device():
    with Pretended() as device:
        yield device


@pytest.fixture
def prompts():
    return pad([[5, 9, 12], [7, 3, 8, 20, 11, 4]], PAD, left=True)


@pytest.fixture
def model():
    return build_policy(TINY, word_tokenizer(WORDS), seed=0).eval()


SAME = "Expected all tensors to be on the same device"
INDEX = "indices should be either on cpu or on the same device"
ORDER = "does not have a deterministic implementation"
FAULTS = [
    (lambda x: x + torch.ones(4), SAME),
    (lambda x: torch.zeros(4).add_(x), SAME),
    (lambda x: torch.stack([x.sum(), torch.tensor(1.0)]), SAME),
    (nn.Linear(4, 2), SAME),  # a module that was not moved
    (lambda x: torch.where(torch.ones(4, dtype=torch.bool), x, 0.0), SAME),
    (lambda x: x.__setitem__(x.long(), torch.ones(4)), SAME),
    (lambda x: torch.arange(4)[x.long()], INDEX),
    (lambda x: torch.rand(4, device=x.device, generator=torch.Generator()), "Expected a 'cuda' device type for gen"),
    (lambda x: x.numpy(), "can't convert cuda:0 device type tensor to numpy"),
    (lambda x: x.pin_memory(), "only dense CPU tensors can be pinned"),
    (lambda x: x.cumsum(0), ORDER),
    (lambda x: nn.functional.interpolate(x[None, None].requires_grad_(), 9, mode="linear").sum().backward(), ORDER),
]


@pytest.mark.parametrize(("act", "words"), FAULTS)
def test_what_cuda_refuses_is_refused(act, words, device):
    x = torch.ones(4, device="cuda:0")
    torch.use_deterministic_algorithms(True)
    with pytest.raises((RuntimeError, TypeError), match=words):
        act(x)


def test_the_sampler_that_left_its_numbers_on_the_host_is_refused(device, model, prompts):
    source = inspect.getsource(rollout.sample)
    line = next(line for line in source.splitlines() if "uniforms.to(device)" in line)
    old = dict(vars(rollout))
    exec(compile(source.replace(line, ""), "old", "exec"), old)
    settings = {"group_size": 2, "max_new_tokens": 4, "eos": EOS, "pad": PAD, "uniforms": uniforms(4, 4)}
    here = [each.to("cuda:0") for each in prompts]
    model.to("cuda:0")
    rollout.sample(model, *here, **settings)
    with pytest.raises(RuntimeError, match=INDEX):
        old["sample"](model, *here, **settings)


def test_a_copy_that_does_not_block_is_nonsense_until_the_host_waits(device):
    copied = torch.ones(4, device="cuda:0").to("cpu", non_blocking=True)
    assert copied.isnan().all()
    torch.cuda.synchronize()
    assert copied.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "act",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: x.masked_select(x > 0),
        lambda x: torch.equal(x, x),
        lambda x: x.repeat_interleave(x.long()),
        lambda x: torch.tensor([1, 2], device=x.device),
        lambda x: torch.zeros(4).to(x.device),
        lambda x: x.copy_(torch.zeros(4)),
        lambda x: x[torch.tensor([0, 1])],
    ],
)
def test_the_host_waits(act, device):
    x = torch.ones(4, device="cuda:0")
    assert not device.waits
    act(x)
    assert sum(device.waits.values()) == 1, device.waits


def evenly(model, prompts, limit, eos=-1):
    numbers = uniforms(2 * 9, limit).view(2, 9, limit)
    found = systematic_sampling.sample_evenly(model, *prompts, uniforms=numbers, eos=eos, pad=PAD)
    rows = zip(found.prompts.tolist(), found.sequences.completion_ids.tolist(), found.shares.tolist(), strict=True)
    return sorted(rows)


def drawn(model, prompts, limit, eos=-1, batch_size=None):
    settings = {"group_size": 9, "max_new_tokens": limit, "batch_size": batch_size, "uniforms": uniforms(18, limit)}
    found = rollout.sample_all(model, *prompts, eos=eos, pad=PAD, **settings)
    return found.completion_ids.tolist(), found.completion_mask.tolist()


def on_device(device, draw, model, prompts, *args, **kwargs):
    with device:
        model.to("cuda:0")
        try:
            return draw(model, [each.to("cuda:0") for each in prompts], *args, **kwargs)
        finally:
            model.to("cpu")


@pytest.fixture
def chosen(monkeypatch):
    RUNTIME_FACTS.clear()
    yield RUNTIME_FACTS
    RUNTIME_FACTS.clear()


@pytest.mark.parametrize("draw", [drawn, evenly])
def test_a_token_makes_nobody_wait(draw, model, prompts):
    """However long the responses are: one look at which rows have ended for each block of tokens."""
    found = {}
    for blocks in (1, 3):
        device = Pretended()
        on_device(device, draw, model, prompts, blocks * continuous.BLOCK)
        found[blocks] = sum(device.waits.values())
    assert found[3] - found[1] == 2


@pytest.mark.parametrize("draw", [drawn, evenly])
def test_all_tokens_but_the_first_are_replays_of_one_graph(draw, model, prompts, chosen):
    device, expected = Pretended(), draw(model, prompts, 40, eos=7)
    assert on_device(device, draw, model, prompts, 40, eos=7) == expected
    assert [each.replays for each in device.graphs] == [3 * continuous.BLOCK - 1]
    assert chosen == {"sampling": "CUDA graph"}
    assert not any(func.overloadpacket in PUT for func, *_ in device.graphs[0].calls)  # these sort their places


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("self.position.add_(live)", "self.position = self.position + live"),  # another tensor each time
        ("self.column.add_(1)", "self.column.fill_(self.steps + 1)"),  # a number of Python's
        ("self.written.add_(live)", "self.written.add_(int(live.any()))"),  # the host waits
    ],
)
@pytest.mark.usefixtures("chosen")
def test_a_step_that_cannot_be_replayed_is_found(line, fault, model, prompts, monkeypatch):
    source = inspect.getsource(continuous)
    assert line in source
    changed = dict(vars(continuous))
    exec(compile(source.replace(line, fault), "changed", "exec"), changed)
    expected = drawn(model, prompts, 20)
    monkeypatch.setattr(continuous, "write", changed["write"])
    assert on_device(Pretended(), drawn, model, prompts, 20) != expected or "not permitted" in RUNTIME_FACTS["sampling"]
