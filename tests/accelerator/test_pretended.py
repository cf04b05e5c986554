"""The pretended device refuses what CUDA refuses, allows what it allows, and counts where the host waits."""

import inspect

import pytest
import torch
from torch import nn

from tests.accelerator.pretended import Pretended
from tests.trainers.policy.helpers import EOS, PAD, TINY, uniforms
from trainers.policy import rollout, spread
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
FAULTS = {
    "a sum with a tensor on the host": (lambda x: x + torch.ones(4), SAME),
    "a sum in place on the host": (lambda x: torch.zeros(4).add_(x), SAME),
    "a scalar on the host among what is stacked": (lambda x: torch.stack([x.sum(), torch.tensor(1.0)]), SAME),
    "a module that was not moved": (nn.Linear(4, 2), SAME),
    "a mask on the host": (lambda x: torch.where(torch.ones(4, dtype=torch.bool), x, 0.0), SAME),
    "values on the host for places on the device": (lambda x: x.__setitem__(x.long(), torch.ones(4)), SAME),
    "an index on the device into the host's numbers": (
        lambda x: torch.arange(4)[x.long()],
        "indices should be either on cpu or on the same device",
    ),
    "the host's generator": (
        lambda x: torch.rand(4, device=x.device, generator=torch.Generator()),
        "Expected a 'cuda' device type for generator but found 'cpu'",
    ),
    "the device's memory as numpy's": (lambda x: x.numpy(), "can't convert cuda:0 device type tensor to numpy"),
    "the device's memory pinned": (lambda x: x.pin_memory(), "only dense CPU tensors can be pinned"),
    "a sum without a fixed order": (lambda x: x.cumsum(0), "does not have a deterministic implementation"),
    "gradients without a fixed order": (
        lambda x: nn.functional.interpolate(x[None, None].requires_grad_(), 9, mode="linear").sum().backward(),
        "does not have a deterministic implementation",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cuda_refuses_is_refused(fault, device):
    act, words = FAULTS[fault]
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
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        old["sample"](model, *here, **settings)


def test_what_cuda_allows_is_allowed(device):
    x = torch.ones(4, device="cuda:0")
    assert (x * torch.tensor(2.0)).device == (x[torch.tensor([0, 1])]).device == x.new_zeros(2).device == x.device
    x[torch.tensor([0])] = 3.0
    x[x > 2] = 0.0
    x[:2] = torch.ones(2)
    assert (torch.empty_like(x).is_cuda, x.cpu().is_cuda, x.view(2, 2).device) == (True, False, x.device)
    assert x.cpu().tolist() == [1, 1, 1, 1]


def test_gradients_are_where_the_weights_are(device):
    layer = nn.Linear(4, 2).to("cuda:0")
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    layer(torch.ones(3, 4, device="cuda:0")).sum().backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    optimizer.step()
    assert all(each.grad.is_cuda for each in layer.parameters())
    assert all("copy to cuda" in wait for wait in device.waits)


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
    found = spread.sample_evenly(model, *prompts, uniforms=numbers, eos=eos, pad=PAD)
    rows = zip(found.prompts.tolist(), found.sequences.response_ids.tolist(), found.shares.tolist(), strict=True)
    return sorted(rows), found.sequences.mask.sum().item()


def drawn(model, prompts, limit, eos=-1):
    numbers = uniforms(18, limit)
    found = rollout.sample(model, *prompts, group_size=9, max_new_tokens=limit, eos=eos, pad=PAD, uniforms=numbers)
    return found.response_ids.tolist(), found.mask.tolist(), found.logps.double().mean().item()


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("draw", [drawn, evenly])
def test_a_token_makes_nobody_wait(draw, plain, model, prompts, monkeypatch):
    """However long the responses are: one look at which rows have ended for each block of tokens.

    What was drawn is put into its place once a block, too: at most four tensors of it.
    """
    if not plain:
        monkeypatch.setattr("trainers.policy.decode.is_plain", lambda model: False)
    found, puts = {}, {}
    for limit in (rollout.BLOCK, 3 * rollout.BLOCK):
        with Pretended() as device:
            model.to("cuda:0")
            draw(model, [each.to("cuda:0") for each in prompts], limit)
            model.to("cpu")
        found[limit], puts[limit] = sum(device.waits.values()), device.puts
    assert found[3 * rollout.BLOCK] - found[rollout.BLOCK] == 2
    assert 0 < puts[3 * rollout.BLOCK] - puts[rollout.BLOCK] <= 2 * 4


@pytest.mark.parametrize("draw", [drawn, evenly])
def test_responses_do_not_depend_on_the_blocks_of_tokens(draw, model, prompts, monkeypatch):
    found = {}
    for blocks in ([range(t, t + 1) for t in range(20)], [range(7), range(7, 14), range(14, 20)]):
        for module in (rollout, spread):
            monkeypatch.setattr(module, "blocks", lambda limit, device, blocks=blocks: blocks)
        monkeypatch.setattr(spread, "merges", lambda device, blocks=blocks: len(blocks) == 20)
        *words, number = draw(model, prompts, 20, eos=7)
        found[len(blocks)] = (words, pytest.approx(number))
    assert found[20] == found[3]
    rows = found[20][0][0]
    assert any(7 in row for row in (rows if draw is drawn else [row[1] for row in rows]))
