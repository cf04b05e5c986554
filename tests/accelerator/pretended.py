"""A pretended CUDA device: tensors stay on the CPU, and a label on their storage says that they are on the device.

    with Pretended() as device:
        run(make_stage(..., devices=["cuda:0"]))
    device.waits, device.alerts

Refuses what CUDA refuses, with torch's words; counts what makes the host wait for the device, as
`torch.cuda.set_sync_debug_mode` does; keeps the names of what torch warns of in its deterministic mode. Views share
their storage, and with it the label. A copy to the host that does not block holds nonsense until the host waits.
"""

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
OWN = torch._C.TensorBase
TESTS = str(Path(__file__).parents[1])
aten = torch.ops.aten
WAITS = {
    aten._local_scalar_dense,  # item, float, int, bool
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten.equal,
    aten.bincount,
    aten._linalg_check_errors,
}
# What `torch.use_deterministic_algorithms` says of CUDA: no deterministic implementation.
ALERTS = {
    aten.put_,
    aten.histc,
    aten.kthvalue,
    aten.nll_loss2d_forward,
    aten._ctc_loss_backward,
    aten._adaptive_avg_pool2d_backward,
    aten.avg_pool3d_backward,
    aten.upsample_linear1d_backward,
    aten.upsample_bilinear2d_backward,
    aten.upsample_bicubic2d_backward,
    aten.reflection_pad1d_backward,
    aten.grid_sampler_2d_backward,
}
PUT = (aten.index_put, aten.index_put_, aten._index_put_impl_)


def is_on_device(tensor):
    return getattr(tensor.untyped_storage(), "pretended", False)


def label(tensor, on_device):
    setattr(tensor.untyped_storage(), "pretended", on_device)  # noqa: B010  # no attribute that mypy knows


class Pretended(TorchDispatchMode):
    """The device. waits: how often the host waited, by function and operator; alerts: what torch warned of."""

    def __init__(self):
        super().__init__()
        self.waits, self.alerts = Counter(), set()
        self._pending, self._target, self._backward = [], None, False

    def __enter__(self):
        self._patches = ExitStack()
        for owner, name, new in self._replaced():
            self._patches.enter_context(patch.object(owner, name, new))
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._patches.close()

    def wait(self, why):
        """The host waits: what was copied without blocking is there."""
        frame = sys._getframe()
        while frame.f_back and "/trainers/" not in frame.f_code.co_filename.removeprefix(TESTS):
            frame = frame.f_back
        self.waits[f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_name}: {why}"] += 1
        while self._pending:
            shown, real = self._pending.pop()
            OWN.copy_(shown, real)

    def move(self, tensor, target, dtype=None, *, blocking=True):
        """A copy on the other side."""
        outer, self._target = self._target, target
        try:
            found = OWN.to(tensor, dtype=dtype or tensor.dtype, copy=True)
        finally:
            self._target = outer
        if blocking:
            self.wait(f"copy to {target.type}")
        elif target == CPU:
            shown = found.detach()
            self._pending.append((shown, OWN.clone(shown)))
            shown.fill_(torch.nan if shown.is_floating_point() else 1)
        return found

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, packet = dict(kwargs or {}), func.overloadpacket
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        here = any(map(is_on_device, tensors))
        made = kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda"
        if made:
            kwargs["device"] = CPU
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = False
        made |= not tensors and self._backward  # zeros for gradients that are not there
        if here and self._target is None:
            self._refuse(packet, func, args, kwargs, tensors)
            self._count(packet, args, kwargs)
        if here or made:
            generators = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Generator)]
            if generators:
                raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        known = {each.untyped_storage()._cdata for each in tensors}
        found = func(*args, **kwargs)
        there = self._target == CUDA if self._target is not None else here or made
        if there:
            for each in tree_leaves(found):
                if isinstance(each, Tensor) and each.untyped_storage()._cdata not in known:
                    label(each, True)
        return found

    def _refuse(self, packet, func, args, kwargs, tensors):
        """Raise as CUDA does where tensors on the host and on the device cannot be together."""
        others = [each for each in tensors if not is_on_device(each)]
        if packet is aten.copy_ or not others:
            return
        problem = (
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({func})"
        )
        if packet is aten.index or packet in PUT:
            if not is_on_device(args[0]):
                raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
            if packet in PUT and not is_on_device(args[2]) and args[2].dim() > 0:
                raise RuntimeError(problem)
            return
        scalars = torch.Tag.pointwise in func.tags or packet in (aten.fill_, aten.fill) or "_foreach" in packet.__name__
        in_place = packet.__name__.endswith("_") and isinstance(args[0], Tensor) and not is_on_device(args[0])
        if in_place or not scalars or any(each.dim() > 0 for each in others):
            raise RuntimeError(problem)

    def _count(self, packet, args, kwargs):
        """Note what the host waits for, and what has no deterministic implementation."""
        name, first = packet.__name__, args[0] if args and isinstance(args[0], Tensor) else None
        if packet in WAITS or (packet is aten.repeat_interleave and kwargs.get("output_size") is None):
            self.wait(name)
        across = packet is aten.copy_ and is_on_device(args[0]) != is_on_device(args[1])
        if across and not (kwargs.get("non_blocking") or args[2:] == (True,)):
            self.wait("copy_")
        if packet is aten.index or packet in PUT:
            indices = [each for each in args[1] if each is not None]
            masks = any(each.dtype in (torch.bool, torch.uint8) for each in indices)
            filled = packet in PUT and masks and args[2].numel() == 1 and not any(args[3:])  # a masked fill
            if masks and not filled:
                self.wait(f"{name} by a mask")
            for _ in (each for each in indices if not is_on_device(each)):
                self.wait(f"{name} by numbers on the host")
        sums = packet in (aten.cumsum, aten.cumsum_) and first.is_floating_point()
        weighted = packet is aten.bincount and len(args) > 1 and args[1] is not None
        product = packet in (aten.scatter_reduce, aten.scatter_reduce_) and args[4:5] == ("prod",)
        median = packet is aten.median and len(args) > 1
        if torch.are_deterministic_algorithms_enabled() and (sums or weighted or product or median or packet in ALERTS):
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise RuntimeError(f"{name} does not have a deterministic implementation on cuda")
            self.alerts.add(name)

    def _replaced(self):
        """What in torch asks a tensor where it is, or moves it: (owner, name, replacement)."""

        def to(tensor, *args, copy=False, **kwargs):
            if args and isinstance(args[0], Tensor):
                args = (args[0].device, args[0].dtype, *args[1:])
            device, dtype, non_blocking, layout = torch._C._nn._parse_to(*args, **kwargs)
            layout = {} if layout is None else {"memory_format": layout}
            device = tensor.device if device is None else device
            if device.type == tensor.device.type:
                return OWN.to(tensor, dtype=dtype or tensor.dtype, copy=copy, **layout)
            if device.type == "meta":
                return OWN.to(tensor, device=device, dtype=dtype or tensor.dtype)
            return self.move(tensor, CUDA if device.type == "cuda" else CPU, dtype, blocking=not non_blocking)

        def refused(words, name):
            own = getattr(torch.Tensor, name)

            def call(tensor, *args, **kwargs):
                if is_on_device(tensor):
                    raise words
                return own(tensor, *args, **kwargs)

            return torch.Tensor, name, call

        def new(name):
            own = getattr(torch.Tensor, name)

            def call(tensor, *args, device=None, **kwargs):
                found = own(tensor, *args, device=CPU, **kwargs)
                there = is_on_device(tensor) if device is None else torch.device(device).type == "cuda"
                label(found, there)
                return found

            return torch.Tensor, name, call

        def made(name):
            own = getattr(torch, name)

            def call(data, *args, device=None, **kwargs):
                found = own(data, *args, **kwargs)
                return found if device is None else to(found, torch.device(device))

            return torch, name, call

        def composed(owner, name):
            own = getattr(owner, name)

            def call(first, *args, **kwargs):
                one = first if isinstance(first, Tensor) else first[0]
                outer, self._target = self._target, one.device
                try:
                    return own(first, *args, **kwargs)
                finally:
                    self._target = outer

            return owner, name, call

        def backward(outputs, *args, own=torch.autograd._engine_run_backward, **kwargs):
            self._backward = any(map(is_on_device, outputs))
            try:
                return own(outputs, *args, **kwargs)
            finally:
                self._backward = False

        def tolist(tensor):
            return OWN.tolist(tensor.cpu())

        def deepcopy(tensor, memo, own=torch.Tensor.__deepcopy__):
            found = own(tensor, memo)
            label(found, is_on_device(tensor))
            return found

        def grouped(*args, own=torch._C._group_tensors_by_device_and_dtype):
            return {
                (next(each for each in value[0][0] if each is not None).device, key[1]): value
                for key, value in own(*args).items()
            }

        autocast, enabled, dtype = torch.autocast, torch.is_autocast_enabled, torch.get_autocast_dtype
        numpy = TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        pinned = RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
        return [
            (torch.Tensor, "device", property(lambda each: CUDA if is_on_device(each) else OWN.device.__get__(each))),
            (torch.Tensor, "is_cuda", property(is_on_device)),
            (torch.Tensor, "is_cpu", property(lambda each: each.device == CPU)),
            (torch.Tensor, "get_device", lambda each: 0 if is_on_device(each) else -1),
            (torch.Tensor, "to", to),
            (torch.Tensor, "cpu", lambda each: to(each, CPU)),
            (torch.Tensor, "cuda", lambda each, *_, **__: to(each, CUDA)),
            (torch.Tensor, "tolist", tolist),
            (torch.Tensor, "__deepcopy__", deepcopy),
            refused(numpy, "numpy"),
            refused(numpy, "__array__"),
            refused(pinned, "pin_memory"),
            *map(new, ("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor")),
            made("tensor"),  # of Python's numbers
            made("as_tensor"),
            composed(nn.functional, "one_hot"),  # in C++, of a tensor that is made where the first one is
            composed(torch._C._nn, "pad_sequence"),
            (torch.autograd, "_engine_run_backward", backward),
            (torch._C, "_group_tensors_by_device_and_dtype", grouped),
            (torch.cuda, "_lazy_init", lambda: None),
            (torch.cuda, "synchronize", lambda *_: self.wait("synchronize")),
            (torch, "autocast", lambda device_type, *args, **kwargs: autocast("cpu", *args, **kwargs)),
            (torch, "is_autocast_enabled", lambda *_: enabled("cpu")),
            (torch, "get_autocast_dtype", lambda *_: dtype("cpu")),
        ]
