"""pretend_cuda.py: tensors that say that they are on CUDA, and hold their numbers in memory of this process.

PyTorch without a GPU has no such tensors, so what a program does to them there was never run: most of all, that it
mixes them with tensors of the CPU by mistake. Here such a mixture is the error that it is on a GPU.

    with PretendCuda():
        x = torch.zeros(3, device="cuda")
        x + torch.ones(3)                   # RuntimeError: ... on the same device
        x.cpu() + torch.ones(3)

A tensor of this kind wraps one of the CPU. Operators are computed with these, and their results are wrapped again. What
makes tensors (`device="cuda"`) or moves them (`to`, `cpu`, `cuda`) is caught before PyTorch finds that it has no CUDA.
Operators of fcpc run as they stand, with a session of the host that takes the memory for that of a device.
"""
import contextlib
import ctypes
import unittest.mock

import torch
import torch.utils._pytree as tree
from torch.overrides import TorchFunctionMode

import fcpc.scans
import fcpc.torch as ours

CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
# What takes tensors of two devices on a GPU as well: numbers of rows that are on the CPU, and copies.
_INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
_MIXED = {aten.copy_.default, *_INDEXED}


class Pretended(torch.Tensor):
    """A tensor on the device. `inside` holds its numbers."""

    @staticmethod
    def __new__(cls, inside, requires_grad=False):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inside.shape, inside.stride(), inside.storage_offset(), dtype=inside.dtype, layout=inside.layout,
            device=inside.device, requires_grad=requires_grad)
        made.inside = inside
        return made

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def get_device(self):
        return 0

    def data_ptr(self):
        return self.inside.data_ptr()

    def _refuse(self, *_, **__):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
    numpy = __array__ = __buffer__ = __dlpack__ = _refuse

    def __dlpack_device__(self):
        return 2, 0

    def __repr__(self):
        return f"{self.inside!r} on cuda"

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        every = [x for x in tree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if op.namespace == "fcpc":
            return _FCPC[op._opname](*args, **kwargs)
        if op not in _MIXED and any(x.dim() and not isinstance(x, Pretended) for x in every) or \
                op in _INDEXED and not isinstance(args[0], Pretended):
            raise RuntimeError(f"{op}: Expected all tensors to be on the same device, but found at least two devices, "
                               "cuda:0 and cpu!")
        if op is aten.histc.default and not args[0].is_floating_point():  # which the CPU has not
            return Pretended(op(args[0].inside.float(), *args[1:], **kwargs).to(args[0].dtype))
        made = op(*tree.tree_map(_inside, args), **tree.tree_map(_inside, kwargs))
        if op._schema.is_mutable:
            return args[0] if isinstance(made, torch.Tensor) else made
        return tree.tree_map(_wrapped, made)


def _inside(x):
    return x.inside if isinstance(x, Pretended) else x


def _wrapped(x):
    return Pretended(x) if isinstance(x, torch.Tensor) and not isinstance(x, Pretended) else x


_FCPC = {"attention": ours._attention, "attention_backward": ours._attention_backward, **fcpc.scans._OPERATORS}


class _Up(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Pretended(x.detach().clone())

    @staticmethod
    def backward(ctx, d):
        return d.inside


class _Down(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.inside.clone()

    @staticmethod
    def backward(ctx, d):
        return Pretended(d)


def _device_of(x):
    """The type of a device, if x is one or names one."""
    if isinstance(x, torch.device):
        return x.type
    if isinstance(x, str) and x.split(":")[0] in ("cuda", "cpu"):
        return x.split(":")[0]
    return None


def _moved(x, to):
    if to == "cuda" and not isinstance(x, Pretended):
        return _Up.apply(x)
    if to == "cpu" and isinstance(x, Pretended):
        return _Down.apply(x)
    return x


class PretendCuda(TorchFunctionMode):
    """While it is entered, there is a device "cuda", and fcpc's attention of it is that of the host."""

    _depth = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return _moved(args[0], "cuda")
        if function is torch.Tensor.cpu:
            return _moved(args[0], "cpu")
        if function is torch.Tensor.tolist:
            return _inside(args[0]).tolist()
        if function is torch.Tensor.new_tensor and isinstance(args[0], Pretended):
            return Pretended(args[0].inside.new_tensor(*args[1:], **kwargs))
        if function is torch.Tensor.to:
            return self._to(*args, **kwargs)
        if kwargs.get("device") is None:
            return function(*args, **kwargs)
        on, needs = _device_of(kwargs.pop("device")), kwargs.pop("requires_grad", False)
        like = any(isinstance(x, Pretended) for x in tree.tree_leaves(args))  # zeros_like and the like
        if function in (torch.tensor, torch.as_tensor) or not like:
            kwargs["device"] = "cpu"
        made = function(*args, **kwargs)
        made = _wrapped(made) if on == "cuda" else _inside(made)
        return made.requires_grad_() if needs else made

    def _to(self, x, *rest, device=None, other=None, dtype=None, copy=False, **_):
        for at in rest:
            if isinstance(at, torch.dtype):
                dtype = at
            elif isinstance(at, torch.Tensor):
                other = at
            elif not isinstance(at, bool) and at is not None:
                device = at
        if other is not None:
            device, dtype = other.device, other.dtype
        moved = x if device is None else _moved(x, _device_of(device))
        moved = moved if dtype is None else moved.type(dtype)
        return moved.clone() if copy and moved is x else moved

    def __enter__(self):
        self._depth += 1
        if self._depth > 1:
            return super().__enter__()
        self._patches = contextlib.ExitStack()
        options, engine = ours.session_options, torch.autograd._engine_run_backward

        def inside(*args, **kwargs):  # functions in Python that compute gradients are inside of this mode, too
            with self:
                return engine(*args, **kwargs)
        for what, name, instead in (
                (ours, "session_options", lambda group, cuda, number, threads, timeout, allocator:
                    options(group, False, 0, threads, timeout, None)),
                (ours, "_run_on_cuda", _run_on_host), (ours, "_stream_of", lambda device: None),
                (torch.autograd, "_engine_run_backward", inside), (torch.cuda, "is_available", lambda: True),
                (torch.cuda, "current_device", lambda: 0),
                (torch.cuda, "get_device_capability", lambda device=None: (7, 0)),
                (torch.cuda, "synchronize", lambda device=None: None)):
            self._patches.enter_context(unittest.mock.patch.object(what, name, instead))
        swapped = torch.__future__.get_swap_module_params_on_conversion()
        self._patches.callback(torch.__future__.set_swap_module_params_on_conversion, swapped)
        torch.__future__.set_swap_module_params_on_conversion(True)  # Module.to puts other objects in their place
        return super().__enter__()

    def __exit__(self, *what):
        super().__exit__(*what)
        self._depth -= 1
        if not self._depth:
            self._patches.close()


def _run_on_host(attention, which, array, kept):
    error = ctypes.byref(attention._error)
    if kept:
        return ours.C["fcp_session_run_kept"](attention._session, which, array, None, error)
    return ours.C["fcp_session_run"](attention._session, which, array, error)
