"""One of several processes of a stage, on torch.distributed.

Weights, gradients and optimiser states are sharded by FSDP2 (`torch.distributed.fsdp.fully_shard`; Zhao et al. 2023,
arXiv 2304.11277, as ZeRO stage 3 of Rajbhandari et al. 2020, arXiv 1910.02054). Losses of micro-batches are divided by
what all rows of a minibatch count (`trainers.running.micro_batch`), so gradients are summed over ranks, not averaged.
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
# Of a rank for the others, where all do the same, and where each has work of its own: loading, saving, sampling. What
# happens to one that dies does not wait for this.
TOGETHER, PATIENCE = timedelta(minutes=2), timedelta(minutes=30)


class Group(Ranks):
    """One rank of several, with the collective operations that it shares with the others."""

    def __init__(self, mesh: DeviceMesh, objects: distributed.ProcessGroup, halvings: int) -> None:
        self.rank, self.size, self.halvings = mesh.get_rank(), mesh.size(), halvings
        self._mesh, self._objects, self._counts = mesh, objects, True

    @classmethod
    def join(cls, device: torch.device, halvings: int = 0) -> "Group":
        """Meet the other ranks, whose addresses the launcher put into the environment."""
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
        """Do `work` on this rank's rows, as often as every rank; return the results of all.

        A rank without rows takes one that does not count: what the ranks compute together needs it.
        """
        every = self._every_part(len(rows), size)
        parts, results = every[self.share(len(every))], []
        for number, part in enumerate(parts, 1):
            before_each(number == len(parts))
            self._counts = part.start < part.stop
            results.append(work(rows[part] if self._counts else rows[:1]))
        return self._results([part.start < part.stop for part in every], results)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the loss of a part; zeros for a row that does not count."""
        (loss if self._counts else 0 * loss).backward()

    def _every_part(self, rows: int, size: int) -> list[slice]:
        number = -(-rows // (size * self.size)) * self.size
        return [slice(rows * index // number, rows * (index + 1) // number) for index in range(number)]

    def share(self, count: int) -> slice:
        """Return the numbers of the things, of `count`, that belong to this rank; possibly none."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def gather(self, value: T) -> list[T]:
        """Return what every rank gave, in order of their numbers; a tensor is where it was, on this rank's device."""
        buffer = io.BytesIO()
        torch.save(value, buffer)
        received: list[bytes] = [b""] * self.size
        distributed.all_gather_object(received, buffer.getvalue(), group=self._objects)

        def place(storage: Any, location: str) -> Any:
            return storage if location == "cpu" else storage.cuda(torch.cuda.current_device())

        return [torch.load(io.BytesIO(each), map_location=place, weights_only=False) for each in received]

    def _results(self, counts: list[bool], results: list[T]) -> list[T]:
        """Return what the parts of all ranks gave that count; scalars in one collective, without the host."""
        leaves = [leaf for each in results for leaf in _leaves(each)]
        if not all(isinstance(leaf, Tensor) and leaf.dim() == 0 for leaf in leaves):
            every = [each for rank_results in self.gather(results) for each in rank_results]
        elif leaves:
            mine = torch.stack([leaf.detach().to(self._mesh.device_type, torch.float64) for leaf in leaves])
            numbers = mine.new_empty(self.size, len(mine))
            distributed.all_gather(list(numbers), mine, group=self._mesh.get_group())
            every = [_with(results[0], iter(values)) for values in numbers.view(len(counts), -1)]
        else:  # nothing, of each
            every = results * self.size
        return [each for each, there in zip(every, counts, strict=True) if there]

    def reduce_gradients(self, model: Any, now: bool) -> None:
        """Set whether the next backward pass adds up gradients over ranks, or each rank keeps its own whole ones."""
        model.set_requires_gradient_sync(now)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor with its sum over ranks, the same bits in all."""
        contiguous = [tensor.contiguous() for tensor in tensors]
        for work in [distributed.all_reduce(each, async_op=True) for each in contiguous]:
            work.wait()
        for tensor, each in zip(tensors, contiguous, strict=True):
            if each is not tensor:
                tensor.copy_(each)

    def same(self, value: T) -> T:
        """Return the value of the first rank."""
        values = [value]
        distributed.broadcast_object_list(values, src=0, group=self._objects)
        return values[0]

    def build(self, make: Callable[[], T]) -> T:
        """Return the model that `make` makes, with weights in the first rank alone; all go on with its random state."""
        with nullcontext() if self.rank == 0 else without_weights():
            made = make()
        set_random_state(self.same(random_state()))
        return made

    def shard(self, model: T, *, autocast: bool = False) -> T:
        """Shard a model, block by block, in place, with the first rank's weights; no rank gets more than its block.

        What autocast casts in a block, its linear layers, is cast before it is gathered. Norms, which it computes in
        float32, are gathered with what is outside of the blocks.
        """
        assert isinstance(model, nn.Module)
        distributed.barrier(self._objects)  # all have read theirs
        blocks = list(_blocks(model))
        inside = {part for block in blocks for part in block.modules() if not autocast or isinstance(part, LINEAR)}
        low = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        # The outermost too, since others work before it is needed again.
        share: Any = partial(fully_shard, mesh=self._mesh, reshard_after_forward=True)
        send_weights(model, self._mesh, without=inside)
        share(model, ignored_params={each for part in inside for each in part.parameters(recurse=False)})
        for block in blocks:
            send_weights(block, self._mesh)
            there = {each for each in block.parameters() if isinstance(each, DTensor)}
            share(block, ignored_params=there, mp_policy=low if autocast else MixedPrecisionPolicy())
        for module in _sharded(model):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no sum that divides
            module.set_gradient_divide_factor(1.0)
        return model

    @contextmanager
    def full_weights(self, model: Any, *, autocast: bool) -> Iterator[Any]:
        """Gather the weights once: into a copy in the precision of autocast, or where they belong."""
        modules = list(_sharded(model))
        if not modules:  # what is only measured is whole everywhere
            yield model
            return
        if autocast:
            for module in modules:
                module.reshard()  # the last forward may have left some whole
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
        """Return the whole of a tensor that is sharded over ranks."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def save(self, model: Any, folder: Path) -> None:
        """Gather a model's weights, one by one, in the first rank's memory, which writes them; what is tied, once."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(model, options=options)
        tied = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
        folder.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            model.save_pretrained(folder, state_dict={n: w for n, w in weights.items() if n not in tied})
        distributed.barrier(self._objects)


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield what maps and statistics hold, in order."""
    if isinstance(tree, dict) or is_dataclass(tree):
        for each in (tree if isinstance(tree, dict) else vars(tree)).values():
            yield from _leaves(each)
    elif tree is not None:
        yield tree


def _with(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """Return the same with other leaves, in the precision of its own."""
    if isinstance(tree, dict):
        return {name: _with(each, leaves) for name, each in tree.items()}
    if is_dataclass(tree):
        kind: Any = type(tree)
        return kind(*(_with(each, leaves) for each in vars(tree).values()))
    return None if tree is None else next(leaves).to(tree.dtype)


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers that transformers says belong on one device; the largest pieces that are gathered at once."""
    kinds = {
        name
        for module in model.modules()
        if isinstance(module, PreTrainedModel)
        for name in module._no_split_modules or ()
    }
    yield from (module for module in model.modules() if type(module).__name__ in kinds)


def _sharded(model: nn.Module) -> Iterator[FSDPModule]:
    yield from (module for module in model.modules() if isinstance(module, FSDPModule))
