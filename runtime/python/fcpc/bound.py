"""bound.py: how operators of PyTorch find the plan that they run, and what all of them refuse.

In a graph the plan is a tensor that holds the plan's number. So torch.compile does not see which plan it is, and a new
plan in each step causes no new compilation. Autograd saves this tensor for the backward pass.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from .errors import Error

if TYPE_CHECKING:
    from torch import Tensor

bound: dict[int, Any] = {}  # the plan of each number, as long as the tensor lives that holds the number
numbers = itertools.count(1)


def binding(number: Tensor) -> Any:
    found = bound.get(int(number))
    if found is None:
        raise Error("E203", "attention: there is no such plan any more, or it was bound in another process")
    return found


def is_on(x: Tensor, cuda: bool) -> bool:
    return x.is_cuda if cuda else x.is_cpu


def no_tangents(who: str) -> Error:
    return Error("E702", f"{who}: there are no derivatives in forward mode (torch.func.jvp, "
                         "torch.autograd.forward_ad): backward(), torch.autograd.grad and torch.func.vjp have gradients")


def refuse_tangents(who: str, *inputs: Tensor | None) -> None:
    """An error in forward mode: without it torch would take the missing derivative for zero."""
    unpack: Any = forward_ad.unpack_dual
    for x in inputs:
        if x is not None and unpack(x).tangent is not None:
            raise no_tangents(who)


def transformed(who: str, no_vmap: str, forward: Any, keep: Callable[..., None], backward: Any) -> Any:
    """An operator while a transform of torch.func is active. torch.func does not support what register_autograd makes,
    and under jvp it would get tangents of zero. For an autograd Function grad and vjp work."""
    def jvp(ctx: Any, *_: Any) -> Any:
        raise no_tangents(who)

    def vmap(info: Any, in_dims: Any, *_: Any) -> Any:
        raise Error("E702", no_vmap)
    made: Any = type("Transformed", (torch.autograd.Function,), {
        "forward": staticmethod(forward), "setup_context": staticmethod(keep), "backward": staticmethod(backward),
        "jvp": staticmethod(jvp), "vmap": staticmethod(vmap)})
    return made.apply
