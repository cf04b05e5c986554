"""Optimiser states of fewer bits: what is stored, that its mean is the moment, and what AdamW makes of it."""

import pytest
import torch
from torch import nn

from trainers.policy import low_bit_adamw
from trainers.policy.config import Memory
from trainers.policy.learner import Learner
from trainers.policy.low_bit_adamw import LowBitAdamW, dequantize, levels, quantize, round_to_bfloat16
from trainers.policy.parts import of_memory
from trainers.state import pack, unpack


def nearest(like):
    return torch.full_like(like, 0.5)


def adamw(parameter, bits, betas=(0.9, 0.999)):
    return LowBitAdamW([parameter], lr=1e-2, betas=betas, weight_decay=0.1, bits=bits)


def gradients(shape, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-2, 0, shape[0])[:, None]  # rows of different magnitude
    return [torch.randn(*shape, generator=generator) * sizes for _ in range(steps)]


def train(bits, shape=(32, 300), steps=60):
    weights = nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(9)))
    optimizer = adamw(weights, bits) if bits < 32 else torch.optim.AdamW([weights], lr=1e-2, weight_decay=0.1)
    for gradient in gradients(shape, steps):
        weights.grad = gradient.clone()
        optimizer.step()
    return weights.detach(), optimizer


def test_the_numbers_that_8_bits_stand_for_are_those_of_bitsandbytes():
    signed, unsigned = levels(signed=True), levels(signed=False)
    assert len(signed) == len(unsigned) == 256
    # bitsandbytes.functional.create_dynamic_map, version 0.50.2
    assert signed[:3] == pytest.approx([-0.99296875, -0.97890625, -0.96484375])
    assert signed[-3:] == pytest.approx([0.97890625, 0.99296875, 1.0])
    assert unsigned[:4] == pytest.approx([0.0, 3.25e-7, 7.75e-7, 2.125e-6])
    assert unsigned[-2:] == pytest.approx([0.996484375, 1.0])


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("shape", [(5, 256), (7, 300), (64, 3, 5), (3, 1)])
def test_a_value_becomes_the_nearest_number_of_its_block(signed, shape):
    torch.manual_seed(0)
    values = torch.randn(shape) * torch.logspace(-6, 2, shape[0]).view(-1, *[1] * (len(shape) - 1))
    values = values if signed else values.abs()
    codes, scales = quantize(values, signed=signed, draw=nearest)
    assert codes.dtype == torch.uint8
    assert codes.shape == values.shape
    found = dequantize(codes, scales, signed=signed)
    table = torch.tensor(levels(signed=signed))
    for row, stored in zip(values.flatten(1), found.flatten(1), strict=True):
        for start in range(0, len(row), 256):
            block = row[start : start + 256]
            largest = torch.maximum(block.max(), block.min() / table[0]) if signed else block.max()
            allowed = table if signed else table[1:]  # a second moment above 0 is never 0
            best = allowed[(block[:, None] / largest - allowed).abs().argmin(1)] * largest
            torch.testing.assert_close(stored[start : start + 256], best, rtol=1e-6, atol=0)


def test_nothing_but_zeros_stays_so():
    codes, scales = quantize(torch.zeros(4, 8), signed=True, draw=nearest)
    assert not dequantize(codes, scales, signed=True).any()
    assert not scales.any()


@pytest.mark.parametrize(("signed", "largest"), [(True, 1), (True, -1), (False, 1)])
def test_the_mean_of_what_8_bits_store_is_the_value(signed, largest):
    values = torch.tensor([[1.0, 0.5003, 0.0314, 0.00271]]) * (torch.tensor([largest, -1, 1, -1]) if signed else 1)
    many = values.repeat(40000, 1)
    codes, scales = quantize(many, signed=signed, draw=low_bit_adamw._Noise(0, 3, 5).uniform)
    stored = dequantize(codes, scales, signed=signed)
    assert (stored != stored[0]).any()
    error = stored.std(0) / 200
    assert ((stored.mean(0) - values[0]).abs() <= 4 * error + 1e-7).all()


def test_the_mean_of_what_bfloat16_stores_is_the_value():
    value = torch.tensor([1.001, -3.3e-9, 7e20, 0.0]).repeat(40000, 1)
    stored = round_to_bfloat16(value, low_bit_adamw._Noise(7, 3, 5).bits(value)).double()
    neighbours = [set(each.tolist()) for each in stored.T]
    assert [len(each) for each in neighbours] == [2, 2, 2, 1]
    torch.testing.assert_close(stored.mean(0), value[0].double(), rtol=2e-4, atol=0)


def test_random_numbers_differ_from_step_to_step_and_from_place_to_place():
    like = torch.zeros(1000, 50)
    draws = [low_bit_adamw._Noise(0, step, moment).uniform(like) for step in (1, 2) for moment in (0, 1)]
    for draw in draws:
        assert draw.min() >= 0
        assert draw.max() < 1
        assert draw.mean().item() == pytest.approx(0.5, abs=0.005)
        assert draw.var().item() == pytest.approx(1 / 12, abs=0.002)
        assert len(draw.unique()) > 49000
    correlations = torch.corrcoef(torch.stack([draw.flatten() for draw in draws])) - torch.eye(4)
    assert correlations.abs().max() < 0.02
    assert torch.corrcoef(torch.stack([draws[0].flatten()[1:], draws[0].flatten()[:-1]]))[0, 1].abs() < 0.02
    torch.testing.assert_close(low_bit_adamw._Noise(50 * 10, 1, 0).uniform(like[:5]), draws[0][10:15], rtol=0, atol=0)


@pytest.mark.parametrize(("bits", "tolerance"), [(16, 0.01), (8, 0.06)])
@pytest.mark.parametrize("square", [0.0, 2.5])
def test_a_second_moment_follows_small_changes_that_rounding_to_nearest_loses(bits, tolerance, square):
    """At beta2 = 0.999 a moment of 1 moves by less than half of bfloat16's distance there, at any g^2 from 0 to 3."""
    rows = torch.ones(64, 128)
    rows[:, 0] = 4.0  # the largest of each block
    weights = nn.Parameter(torch.zeros(64, 128))
    optimizer = adamw(weights, bits)
    weights.grad = rows.sqrt() / 0.001**0.5  # the first step makes the moment what it is here
    optimizer.step()
    weights.grad = torch.full_like(rows, square**0.5)
    weights.grad[:, 0] = 2.0
    nearly = rows[:, 1:].bfloat16()
    for _ in range(1000):
        optimizer.step()
        nearly = (nearly.float() + 0.001 * (square - nearly.float())).bfloat16()
    state = optimizer.state[weights]
    found = state["exp_avg_sq"].float()
    if bits == 8:
        found = dequantize(state["exp_avg_sq"], state["exp_avg_sq_scales"], signed=False)
    expected = square + (1 - square) * 0.999**1000
    assert found[:, 1:].mean().item() == pytest.approx(expected, rel=tolerance)
    assert (nearly == 1).all()  # the fault that this is about


@pytest.mark.parametrize(("bits", "tolerance"), [(16, 0.01), (8, 0.07)])
def test_training_goes_where_adamw_goes(bits, tolerance):
    start = torch.randn(32, 300, generator=torch.Generator().manual_seed(9))
    exact, found = train(32)[0], train(bits)[0]
    assert (found != start).all()
    assert (found - exact).norm() < tolerance * (exact - start).norm()


def test_what_is_too_small_for_8_bits_is_exactly_adamw_in_float32():
    """Vectors, and matrices of fewer than 4,096 values."""
    torch.testing.assert_close(train(8, shape=(8, 100))[0], train(32, shape=(8, 100))[0], rtol=1e-5, atol=1e-6)


def test_what_the_states_take():
    taken = {}
    for bits in (32, 16, 8):
        state = train(bits, shape=(32, 512), steps=1)[1].state_dict()["state"][0]
        taken[bits] = sum(value.nbytes for name, value in state.items() if name != "step")
    assert taken == {32: 8 * 32 * 512, 16: 4 * 32 * 512, 8: 2 * 32 * 512 + 2 * 4 * 32 * 2}


@pytest.mark.parametrize("at_once", [1, 1000, 2**20])
@pytest.mark.parametrize("bits", [16, 8])
def test_how_many_rows_are_computed_at_once_changes_nothing(monkeypatch, bits, at_once):
    expected = train(bits, steps=3)[0]
    monkeypatch.setattr(low_bit_adamw, "_AT_ONCE", at_once)
    torch.testing.assert_close(train(bits, steps=3)[0], expected, rtol=0, atol=0)


def learner(states):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(300, 40), nn.Linear(40, 3))
    optimizer = of_memory(Memory(optimizer_states=states))["optimizer"]
    return Learner.adamw(model, lr=1e-2, weight_decay=0.1, optimizer=optimizer)


def go_on(one, steps):
    rows = torch.randn(6, 300, generator=torch.Generator().manual_seed(2))

    def backward(part):
        one.memory.backward(one.model(part).square().sum() / len(rows))

    for _ in range(steps):
        one.step(rows, backward)
    return one


@pytest.mark.parametrize("states", ["float32", "bfloat16", "8bit"])
def test_a_resumed_training_is_the_same_bit_for_bit(states):
    whole = go_on(learner(states), 6)
    first = go_on(learner(states), 3)
    saved = pack({"m": first.model}, {"o": first.optimizer}, {})
    kinds = {value.dtype for name, value in saved.items() if name.startswith("o/") and "exp_avg" in name}
    assert {"bfloat16": torch.bfloat16, "8bit": torch.uint8}.get(states, torch.float32) in kinds
    resumed = learner(states)
    unpack({name: value.clone() for name, value in saved.items()}, {"m": resumed.model}, {"o": resumed.optimizer}, {})
    go_on(resumed, 3)
    ends = [pack({"m": each.model}, {"o": each.optimizer}, {}) for each in (whole, resumed)]
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name
        assert value.dtype == ends[1][name].dtype


def test_states_of_another_kind_are_refused():
    first = go_on(learner("bfloat16"), 1)
    saved = pack({"m": first.model}, {"o": first.optimizer}, {})
    with pytest.raises(ValueError, match=r"states of the optimiser are .* those of 8 bits .*memory.optimizer_states"):
        unpack(saved, {"m": first.model}, {"o": learner("8bit").optimizer}, {})
