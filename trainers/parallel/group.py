"""One of the ranks of a stage, which communicate by torch.distributed.

FSDP2 shards weights, gradients and optimiser states (`torch.distributed.fsdp.fully_shard`; Zhao et al. 2023, arXiv
2304.11277; ZeRO stage 3 of Rajbhandari et al. 2020, arXiv 1910.02054). Losses of micro-batches are divided by the
denominator of their whole minibatch (`trainers.running.micro_batch`), so gradients are summed over ranks, not averaged.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from ablation.runner.ranks import Ranks
from trainers.parallel.weights import (
    LINEAR,
    random_state,
    rollout_copy,
    send_weights,
    set_random_state,
    without_weights,
)

T = TypeVar("T")
# Time-outs of collective operations, during shared computation and during separate work such as loading or sampling.
# The launcher notices a rank that dies without waiting for them.
TOGETHER, PATIENCE = timedelta(minutes=2), timedelta(minutes=30)


class Group(Ranks):
    """One of several ranks, with their collective operations."""

    def __init__(self, mesh: DeviceMesh, objects: distributed.ProcessGroup, halvings: int) -> None:
        self.rank, self.size, self.halvings = mesh.get_rank(), mesh.size(), halvings
        self._mesh, self._objects, self._counts = mesh, objects, True

    @classmethod
    def join(cls, device: torch.device, halvings: int = 0) -> "Group":
        """Join the other ranks, whose addresses the launcher has put into the environment."""
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=PATIENCE)
        mesh = DeviceMesh.from_group(distributed.new_group(timeout=TOGETHER), device.type)
        return cls(mesh, distributed.new_group(backend="gloo", timeout=PATIENCE), halvings)

    def leave(self) -> None:
        """Wait until all ranks are done."""
        distributed.barrier(self._objects)
        distributed.destroy_process_group()

    def in_parts(
        self, rows: Any, size: int, work: Callable[[Any], T], before_each: Callable[[bool], object]
    ) -> list[T]:
        """Apply `work` to this rank's share of `rows`, in parts of at most `size`; return the results of all ranks.

        All ranks have the same number of parts, because collective operations need all ranks. For a part without rows,
        `work` gets one row whose result and gradient do not count. before_each: called before each part with whether
        it is the last one.
        """
        every = self._every_part(len(rows), size)
        parts, results = every[self.share(len(every))], []
        for number, part in enumerate(parts, 1):
            before_each(number == len(parts))
            self._counts = part.start < part.stop
            results.append(work(rows[part] if self._counts else rows[:1]))
        return self._results([part.start < part.stop for part in every], results)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a part's loss, or a zero gradient if the part's rows do not count."""
        (loss if self._counts else 0 * loss).backward()

    def _every_part(self, rows: int, size: int) -> list[slice]:
        number = -(-rows // (size * self.size)) * self.size
        return [slice(rows * index // number, rows * (index + 1) // number) for index in range(number)]

    def share(self, count: int) -> slice:
        """Return the slice of a sequence of length `count` that belongs to this rank; it may be empty."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, value: T) -> list[T]:
        """Return all ranks' values in order; tensors on other ranks' accelerators are moved to this rank's."""
        buffer = io.BytesIO()
        torch.save(value, buffer)
        received: list[bytes] = [b""] * self.size
        distributed.all_gather_object(received, buffer.getvalue(), group=self._objects)

        def place(storage: Any, location: str) -> Any:
            return storage if location == "cpu" else storage.cuda(torch.cuda.current_device())

        return [torch.load(io.BytesIO(each), map_location=place, weights_only=False) for each in received]

    def _results(self, counts: list[bool], results: list[T]) -> list[T]:
        """Return the results of all ranks' parts that count; scalar tensors are sent in one operation on the device."""
        leaves = [leaf for each in results for leaf in _leaves(each)]
        if not all(isinstance(leaf, Tensor) and leaf.dim() == 0 for leaf in leaves):
            every = [each for rank_results in self.gather(results) for each in rank_results]
        elif leaves:
            scalars = torch.stack([leaf.detach().to(self._mesh.device_type, torch.float64) for leaf in leaves])
            numbers = scalars.new_empty(self.size, len(scalars))
            distributed.all_gather(list(numbers), scalars, group=self._mesh.get_group())
            every = [_with(results[0], iter(values)) for values in numbers.view(len(counts), -1)]
        else:  # results without values
            every = results * self.size
        return [result for result, counted in zip(every, counts, strict=True) if counted]

    def reduce_gradients(self, model: Any, now: bool) -> None:
        """Make the next backward pass sum gradients over ranks if `now`, or else keep each rank's own gradients."""
        model.set_requires_gradient_sync(now)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over ranks, which is identical on all ranks."""
        contiguous = [tensor.contiguous() for tensor in tensors]
        for work in [distributed.all_reduce(each, async_op=True) for each in contiguous]:
            work.wait()
        for tensor, each in zip(tensors, contiguous, strict=True):
            if each is not tensor:
                tensor.copy_(each)

    def same(self, value: T) -> T:
        """Return the first rank's `value` on all ranks."""
        values = [value]
        distributed.broadcast_object_list(values, src=0, group=self._objects)
        return values[0]

    def build(self, make: Callable[[], T]) -> T:
        """Return the model from `make`, with weights only on the first rank, whose random state all ranks get."""
        with nullcontext() if self.rank == 0 else without_weights():
            made = make()
        set_random_state(self.same(random_state()))
        return made

    def shard(self, model: T, *, autocast: bool = False) -> T:
        """Shard a model in place with the first rank's weights, one block at a time to save memory.

        Under autocast, linear layers are cast to bfloat16 before they are gathered. Norms, which autocast computes in
        float32, are gathered together with the weights outside the blocks.
        """
        assert isinstance(model, nn.Module)
        distributed.barrier(self._objects)  # reading a model may take longer than collective operations may
        blocks = list(_blocks(model))
        inside = {part for block in blocks for part in block.modules() if not autocast or isinstance(part, LINEAR)}
        low = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        # The root module is resharded too, because other models run before it is needed again.
        share: Any = partial(fully_shard, mesh=self._mesh, reshard_after_forward=True)
        send_weights(model, self._mesh, without=inside)
        share(model, ignored_params={each for part in inside for each in part.parameters(recurse=False)})
        for block in blocks:
            send_weights(block, self._mesh)
            sharded = {parameter for parameter in block.parameters() if isinstance(parameter, DTensor)}
            share(block, ignored_params=sharded, mp_policy=low if autocast else MixedPrecisionPolicy())
        for module in _sharded(model):
            module.set_force_sum_reduction_for_comms(True)  # gloo cannot average
            module.set_gradient_divide_factor(1.0)
        return model

    @contextmanager
    def full_weights(self, model: Any, *, autocast: bool) -> Iterator[Any]:
        """Yield the model with gathered weights or, under autocast, a copy with linear layers in bfloat16."""
        modules = list(_sharded(model))
        if not modules:  # a model that is only measured is not sharded
            yield model
            return
        if autocast:
            for module in modules:
                module.reshard()  # the last forward pass may have left some weights gathered
            yield rollout_copy(model, self.full_tensor)
            return
        for module in modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield model
        finally:
            for module in modules:
                module.set_reshard_after_forward(True, recurse=False)
                module.reshard()

    def full_tensor(self, tensor: Any) -> Any:
        """Return the unsharded tensor."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def save(self, model: Any, folder: Path) -> None:
        """Gather a model's weights one by one on the first rank's CPU, and write them, tied weights only once."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=options)
        tied = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
        folder.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            model.save_pretrained(folder, state_dict={n: w for n, w in weights.items() if n not in tied})
        distributed.barrier(self._objects)


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield the values in nested dicts and dataclasses, in order."""
    if isinstance(tree, dict) or is_dataclass(tree):
        for branch in (tree if isinstance(tree, dict) else vars(tree)).values():
            yield from _leaves(branch)
    elif tree is not None:
        yield tree


def _with(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """Return `tree` with its values replaced by `leaves`, cast to the types of the values that they replace."""
    if isinstance(tree, dict):
        return {name: _with(branch, leaves) for name, branch in tree.items()}
    if is_dataclass(tree):
        kind: Any = type(tree)
        return kind(*(_with(branch, leaves) for branch in vars(tree).values()))
    return None if tree is None else next(leaves).to(tree.dtype)


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers that transformers does not split between devices, such as a decoder's blocks."""
    kinds = {
        name
        for module in model.modules()
        if isinstance(module, PreTrainedModel)
        for name in module._no_split_modules or ()
    }
    yield from (module for module in model.modules() if type(module).__name__ in kinds)


def _sharded(model: nn.Module) -> Iterator[FSDPModule]:
    yield from (module for module in model.modules() if isinstance(module, FSDPModule))
