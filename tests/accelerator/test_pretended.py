"""The pretended device refuses what CUDA refuses, allows what it allows, and counts where the host waits."""

import inspect

import pytest
import torch
from torch import nn

from tests.accelerator.pretended import Pretended
from tests.trainers.policy.helpers import EOS, PAD, TINY, uniforms
from trainers.policy import rollout
from trainers.policy.models import build_policy
from trainers.policy.text import pad, word_tokenizer
from trainers.tasks.knights_knaves import WORDS


@pytest.fixture
def device():
    with Pretended() as device:
        yield device


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


def test_the_sampler_that_left_its_numbers_on_the_host_is_refused(device):
    source = inspect.getsource(rollout.sample)
    line = next(line for line in source.splitlines() if "uniforms.to(device)" in line)
    old = dict(vars(rollout))
    exec(compile(source.replace(line, ""), "old", "exec"), old)
    settings = {"group_size": 2, "max_new_tokens": 4, "eos": EOS, "pad": PAD, "uniforms": uniforms(4, 4)}
    here = [each.to("cuda:0") for each in pad([[5, 9, 12], [7, 3, 8, 20, 11, 4]], PAD, left=True)]
    model = build_policy(TINY, word_tokenizer(WORDS), seed=0).eval().to("cuda:0")
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
