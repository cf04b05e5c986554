"""The bytes of all tensors that are alive while code runs: the truth that estimates of memory are held against.

A storage counts from the operation that made it until it is freed, as an accelerator's allocator counts it; what a
kernel needs within itself is not seen. As torch.distributed._tools.mem_tracker does it, without its phases.
"""

import gc
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveMemory(TorchDispatchMode):
    """Within it: `live` bytes that were made inside and are not freed, and their `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __enter__(self) -> "LiveMemory":
        gc.collect()
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {id(each.untyped_storage()) for each in tree_iter((args, kwargs)) if isinstance(each, torch.Tensor)}
        found = func(*args, **(kwargs or {}))
        for each in tree_iter(found):
            if isinstance(each, torch.Tensor):
                self._count(each.untyped_storage(), given)
        return found

    def _count(self, storage: Any, given: set[int]) -> None:
        if id(storage) in given or storage in self._known:
            return  # a view, or changed in place
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.live -= size

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.live
