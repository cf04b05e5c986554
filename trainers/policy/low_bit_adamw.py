"""AdamW whose two moments take 2 bytes a parameter each (bfloat16), or 1 (8 bits by blocks), instead of 4.

8 bits: block-wise dynamic quantisation (Dettmers et al. 2022, arXiv 2110.02861, section 2): a block of up to 256 values
is divided by its largest magnitude, and each value is one of 256 numbers whose exponents reach down to 1e-7. Here a
block lies within a row of a weight (its first dimension), which is what several devices divide, so that any number of
them stores the same. Vectors and small matrices stay in float32, as in bitsandbytes.

Both are rounded stochastically: up with the probability of how far a value is on the way up, so that the mean of what
is stored is the moment (Gupta et al. 2015, arXiv 1502.02551; Zamirai et al. 2020, arXiv 2010.06192). Rounded to nearest
a second moment v stands still where its change in a step, (1 - beta2) (g^2 - v), is less than half of the distance to
the next number: in bfloat16, where that is 2^-8 of v or more, with beta2 = 0.999 at any g^2 from 0 to nearly 3 v. In 8
bits a second moment above 0 is never stored as 0: the next step would divide by epsilon.

The random numbers are a hash of the step, the parameter, and the value's place in the whole weight: there is no
generator to be saved, and neither the number of devices nor their kind changes them.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

BLOCK = 256  # values that share a scale
FEWEST = 4096  # values of a matrix that is worth 8 bits (bitsandbytes' min_8bit_size)
MOMENTS = ("exp_avg", "exp_avg_sq")
_SCALES = "_scales"
_AT_ONCE = 2**20  # values; what a step computes in float32 is never a whole matrix


class LowBitAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101), with moments of fewer bits.

    A state holds `step`, and as `exp_avg` and `exp_avg_sq` bfloat16, float32, or uint8 codes of the parameter's shape,
    with `exp_avg_scales` and `exp_avg_sq_scales` beside them, float32 (rows, blocks of a row).

    Args:
        parameters: whole tensors, or DTensors that are divided along their first dimension.
        lr, betas, eps, weight_decay: as those of `torch.optim.AdamW`.
        bits: 16 for bfloat16, or 8.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        bits: int,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._bits = bits

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the parameters that have a gradient."""
        assert closure is None
        number = 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if not state:
                        state.update(_fresh(parameter, self._bits))
                    state["step"] += 1
                    _update(parameter, state, group, number)
                number += 1

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, in the types of each slot, on any number of devices."""
        numbered = [parameter for group in self.param_groups for parameter in group["params"]]
        self.state.clear()
        for number, slots in state_dict["state"].items():
            parameter = numbered[number]
            expected = _fresh(parameter, self._bits)
            if slots.keys() != expected.keys():
                raise ValueError(
                    f"the saved states of the optimiser are {', '.join(sorted(slots))}; those of {self._bits} bits are "
                    f"{', '.join(sorted(expected))}: other settings of memory.optimizer_states"
                )
            for name, like in expected.items():
                _local(like).copy_(_local(_part(slots[name], like)))
            self.state[parameter] = expected
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})


adamw_bfloat16, adamw_8bit = partial(LowBitAdamW, bits=16), partial(LowBitAdamW, bits=8)


def _fresh(parameter: Tensor, bits: int) -> dict[str, Tensor]:
    """Return moments of 0 after no step, divided as the parameter is."""
    state = {"step": torch.tensor(0.0)}
    small = parameter.dim() < 2 or parameter.numel() < FEWEST
    kind = torch.bfloat16 if bits == 16 else torch.float32 if small else torch.uint8
    shape = (len(parameter), _blocks(parameter)) if parameter.dim() else ()
    for name in MOMENTS:
        if kind == torch.uint8:
            state[name] = _zeros(parameter, tuple(parameter.shape), kind)
            _local(state[name]).fill_(_code_of_zero(signed=name == "exp_avg"))
            state[name + _SCALES] = _zeros(parameter, shape, torch.float32)
        else:
            state[name] = _zeros(parameter, tuple(parameter.shape), kind)
    return state


def _zeros(parameter: Tensor, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    """Return zeros of which this rank has the rows that it has of the parameter."""
    here = _local(parameter)
    rows = shape if not shape else (len(here), *shape[1:])
    return _like(torch.zeros(rows, dtype=kind, device=here.device), parameter, shape)


def _like(rows: Tensor, parameter: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return rows as a part of a tensor of that shape, if the parameter has only a part."""
    if not isinstance(parameter, DTensor):
        return rows
    assert parameter.placements == (Shard(0),)
    stride = torch.empty(shape, device="meta").stride()
    made = DTensor.from_local(
        rows, parameter.device_mesh, parameter.placements, run_check=False, shape=torch.Size(shape), stride=stride
    )
    return made.to(rows.device)  # offloaded weights: the mesh's devices are others


def _part(value: Tensor, like: Tensor) -> Tensor:
    """Return what belongs here of a slot of a checkpoint, which may be whole."""
    if isinstance(value, DTensor) or not isinstance(like, DTensor):
        return value
    first = _first_row(like)
    return value[first : first + len(_local(like))]


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _first_row(tensor: Tensor) -> int:
    """Return the number of the first row that is here, as `torch.chunk` divides them."""
    if not isinstance(tensor, DTensor):
        return 0
    share = -(-tensor.shape[0] // tensor.device_mesh.size())
    return min(tensor.shape[0], share * tensor.device_mesh.get_local_rank())


def _blocks(parameter: Tensor) -> int:
    """Return the number of blocks in a row."""
    return -(-(parameter.numel() // len(parameter)) // BLOCK) if parameter.numel() else 0


def _update(parameter: Tensor, state: dict[str, Tensor], group: dict[str, Any], number: int) -> None:
    """Take a step with the rows that are here, some at a time."""
    weights, gradients = _local(parameter.detach()), _local(parameter.grad)  # type: ignore[arg-type]
    if weights.numel() == 0:
        return
    slots = {name: _local(value) for name, value in state.items()}
    columns = weights.numel() // (len(weights) if weights.dim() else 1)
    first, step = _first_row(parameter) * columns, int(state["step"])
    for rows in _some_rows(weights):
        moments = []
        for slot, name in enumerate(MOMENTS):
            scales = slots.get(name + _SCALES)
            of_rows = {"values": slots[name][rows]} | ({} if scales is None else {"scales": scales[rows]})
            change, beta = gradients[rows], group["betas"][slot]
            change = change if slot == 0 else change.square()
            moment = _read(of_rows, signed=slot == 0, dtype=weights.dtype).lerp_(change, 1 - beta)
            start = first + (rows.start or 0) * columns if isinstance(rows, slice) else first
            _write(of_rows, moment, signed=slot == 0, noise=_Noise(start, step, 2 * number + slot))
            moments.append(moment)
        mean, square = moments
        beta1, beta2 = group["betas"]
        some = weights[rows]
        some.mul_(1 - group["lr"] * group["weight_decay"])
        deviation = square.sqrt_().div_((1 - beta2**step) ** 0.5).add_(group["eps"])
        some.addcdiv_(mean, deviation, value=-group["lr"] / (1 - beta1**step))


def _some_rows(weights: Tensor) -> Iterator[Any]:
    """Yield indices of rows that are together few enough."""
    if weights.dim() == 0:
        yield ...
        return
    count = max(1, _AT_ONCE * len(weights) // weights.numel())
    yield from (slice(start, start + count) for start in range(0, len(weights), count))


def _read(slot: dict[str, Tensor], *, signed: bool, dtype: torch.dtype) -> Tensor:
    """Return a moment in a new tensor."""
    values = slot["values"]
    return (
        dequantize(values, slot["scales"], signed=signed).to(dtype) if "scales" in slot else values.to(dtype, copy=True)
    )


def _write(slot: dict[str, Tensor], moment: Tensor, *, signed: bool, noise: "_Noise") -> None:
    """Store a moment, in place."""
    if "scales" in slot:
        codes, scales = quantize(moment, signed=signed, draw=noise.uniform)
        slot["values"].copy_(codes)
        slot["scales"].copy_(scales)
    elif slot["values"].dtype == torch.bfloat16:
        slot["values"].copy_(round_to_bfloat16(moment, noise.bits(moment)))
    else:
        slot["values"].copy_(moment)


class _Noise:
    """Random numbers by the place of the first value, the step, and which moment of which parameter it is."""

    def __init__(self, first: int, step: int, moment: int) -> None:
        self._first, self._key = first, _mixed(torch.tensor(step * 0x9E3779B1 + moment * 0x85EBCA6B)).item()

    def bits(self, like: Tensor) -> Tensor:
        """Return 32 random bits for each value, int64."""
        places = torch.arange(self._first, self._first + like.numel(), device=like.device).view(like.shape)
        return _mixed(_mixed(places) + (places >> 32) * 0x9E3779B1 + self._key)

    def uniform(self, like: Tensor) -> Tensor:
        """Return numbers in [0, 1) for each value, float32."""
        return (self.bits(like) >> 8).float().mul_(2.0**-24)


def _mixed(numbers: Tensor) -> Tensor:
    """Return 32 bits that depend on all of the lowest 32 (`lowbias32` of Wellons' hash-prospector)."""
    mask = 0xFFFFFFFF
    numbers = numbers & mask
    numbers = (numbers ^ (numbers >> 16)) * 0x7FEB352D & mask
    numbers = (numbers ^ (numbers >> 15)) * 0x846CA68B & mask
    return numbers ^ (numbers >> 16)


def round_to_bfloat16(values: Tensor, bits: Tensor) -> Tensor:
    """Return values in bfloat16, each one of its two neighbours; the mean over random `bits` is the value.

    bits: integers, of which the lowest 16 count.
    """
    raw = values.float().view(torch.int32) + (bits & 0xFFFF).int()
    return (raw & -0x10000).view(torch.float32).bfloat16()


@cache
def levels(*, signed: bool) -> tuple[float, ...]:
    """Return the 256 numbers in [-1, 1], or in [0, 1], that 8 bits stand for, in order (arXiv 2110.02861, section 1.3).

    Seven decades down from 1, each with twice as many numbers as the next smaller one; signed ones have half as many.
    """
    found = [0.0, 1.0]
    for decade in range(7):
        count = 2**decade if signed else 2 ** (decade + 1)
        edges = torch.linspace(0.1, 1, count + 1)
        middles = (10 ** (decade - 6) * ((edges[:-1] + edges[1:]) / 2)).tolist()
        found += middles + ([-each for each in middles] if signed else [])
    return tuple(sorted(found))


def _table(like: Tensor, *, signed: bool) -> Tensor:
    return torch.tensor(levels(signed=signed), dtype=torch.float32, device=like.device)


def _code_of_zero(*, signed: bool) -> int:
    return levels(signed=signed).index(0.0)


def quantize(values: Tensor, *, signed: bool, draw: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Return codes of the values' shape, and scales (rows, blocks of a row), with which every value is in range.

    draw: gives for each value what share of the way up it must have gone to be rounded up: uniform numbers round
    stochastically, 0.5 to nearest.
    """
    table, rows = _table(values, signed=signed), values.reshape(len(values), -1).float()
    width = rows.shape[1]
    padded = torch.nn.functional.pad(rows, (0, -width % BLOCK))
    lowest, highest = padded.view(len(rows), -1, BLOCK).aminmax(dim=-1)
    # Signed levels end at -0.993 and 1: a block whose largest value is negative would lose 0.7% of it at each step.
    scales = torch.maximum(highest, lowest / table[0]) if signed else highest
    divided = rows / scales.clamp(min=1e-38).repeat_interleave(BLOCK, 1)[:, :width]
    below = torch.searchsorted(table, divided.contiguous(), right=True).sub_(1).clamp_(0, 254)
    share = (divided - table[below]) / (table[below + 1] - table[below])
    codes = below + (share > draw(rows))
    if not signed:
        codes = torch.where((codes == 0) & (rows > 0), 1, codes)  # 0 would be divided by
    return codes.to(torch.uint8).view(values.shape), scales


def dequantize(codes: Tensor, scales: Tensor, *, signed: bool) -> Tensor:
    """Return the values that `quantize` stored, float32."""
    rows = codes.reshape(len(codes), -1)
    wide = scales.repeat_interleave(BLOCK, 1)[:, : rows.shape[1]]
    return (_table(codes, signed=signed)[rows.int()] * wide).view(codes.shape)
