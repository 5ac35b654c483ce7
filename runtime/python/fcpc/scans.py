"""scans.py: what layers beside attention need of other ranks, as operators of PyTorch: halos and scans, with gradients.

    attention = attn.bind(plan)
    x = attention.halo(x, before=3)                    # each stretch of tokens between the rows before and behind it
    x = attention.trim(F.conv1d(x.t()[None], w, groups=len(w))[0].t())
    entering = attention.scan(decay, state)            # the state that enters each stretch

A *stretch* is neighbouring tokens of one document that lie one behind the other in this process's tensors
(Plan.stretches). Such a layer computes each stretch by itself, as it computes a document, but begins with the halo's
rows in place of zeros, and with the state that enters in place of none.
"""
from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import torch

from ._c import C, fcp_halo_gradient_rank, fcp_halo_rank, fcp_scan_rank
from .bound import binding, is_on, refuse_tangents, transformed
from .errors import Error
from .recurrent import Halo, Scan, find
from .session import BACKWARD, FORWARD, words

if TYPE_CHECKING:
    from torch import Tensor

    from .plan import Plan

_NUMBERS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # fcp_dtype
_ONE = "They are for the layers of the first mask: bind(plan) without layer= has them"


class Recurring:
    """What BoundAttention does beside attention."""
    plan: Plan
    number: Tensor

    def _see(self, plan: Plan, device: torch.device) -> None:
        """Finds out where rows stand in packed tensors: for each kind of halo, those of the tokens and of the halo."""
        self._kinds = plan.recurrent
        self._stretches = len(plan.stretches()) if plan.recurrent else 0
        # A zero that needs a gradient.
        self._asks = torch.zeros((), device=device, requires_grad=True) if len(plan.here) < plan.ranks else None
        places = [_places(plan, x, device) if isinstance(x, Halo) else None for x in plan.recurrent]
        self._inside = [None if x is None else x[0] for x in places]
        self._beside = [None if x is None else x[1] for x in places]

    def halo(self, x: Tensor, before: int | None = None, after: int | None = None, layer: int | None = None) -> Tensor:
        """The rows of this process with those of their neighbours: [plan.tokens, ...] becomes [plan.tokens +
        stretches * (before + after), ...], in which each stretch of tokens stands behind the `before` rows that precede
        it in its document and before the `after` rows that follow it. Rows beyond the document are zeros.

        x        [plan.tokens, ...] in the plan's order, of any type, with at least one number in a row
        before, after   those of the kind of layers; None: whatever that has
        layer    its number in plan.recurrent; None: the only one with this before and after

        For example, the document 1 2 3 4 5 6, of which this process holds 1 2 and 5 6: with before = 2 that is
        0 0 1 2 3 4 5 6. A convolution over it, or anything else that reads `before` rows back and `after` rows on, is
        right at each token of this process; `trim` takes these out again.

        On CUDA a call may be a part of a graph (torch.cuda.graph), if the same call was made before the capture.

        The gradient of a halo row goes back to its owner. x must be float32, float16 or bfloat16 to have gradients.
        Where ranks are processes, all of them make the same calls, and all have a part in the backward pass.

        Errors: E203 (no such kind of layers, or several), E701 (shape, dtype or device), E702 (second derivatives,
        forward mode, vmap), E703
        """
        number = self._find_halo("halo", before, after, layer)
        kind = self._kinds[number]
        if not torch.compiler.is_compiling():
            if not isinstance(x, torch.Tensor):
                raise Error("E701", f"halo: x is a {type(x).__name__}: a tensor of torch is expected")
            if x.requires_grad and x.dtype not in _NUMBERS and torch.is_grad_enabled():
                raise Error("E701", f"halo: x is {_name(x.dtype)} and needs a gradient: those are float32, float16 and "
                                    "bfloat16")
            refuse_tangents("halo", x)
        rows = self._stretches * (kind.before + kind.after)  # type: ignore[union-attr]
        made: Tensor = _halo_operator(x, self._inside[number], self._beside[number], self.number, number, rows)
        return made

    def trim(self, y: Tensor, before: int | None = None, after: int | None = None, layer: int | None = None,
             dim: int = 0) -> Tensor:
        """The rows of this process's own tokens: the inverse of `halo`, [plan.tokens, ...].

        y      rows as `halo` has made them; or before + after rows fewer, as a convolution without padding gives, whose
               row i has read rows i to i + before + after
        before, after, layer   as in `halo`
        dim    the dimension of y whose rows they are

        Errors: E203, E701 (y has another number of rows)
        """
        number = self._find_halo("trim", before, after, layer)
        kind, own = self._kinds[number], self._inside[number]
        assert isinstance(kind, Halo) and own is not None
        wide = kind.before + kind.after
        packed = own.shape[0] + self._stretches * wide
        if y.shape[dim] == packed:
            return y.index_select(dim, own)
        if y.shape[dim] != max(packed - wide, 0):
            raise Error("E701", f"trim: dimension {dim} of y has {y.shape[dim]} rows; halo gave {packed}, and a "
                                f"convolution without padding makes {max(packed - wide, 0)} of them")
        return y.index_select(dim, own - kind.before)

    def scan(self, decay: Tensor, state: Tensor, reverse: bool = False, layer: int | None = None) -> Tensor:
        """The state that enters each stretch of tokens, if a stretch turns the state h that enters it into A h + b:
        [stretches, heads, head_dim, value_dim], float32. Documents begin with a state of zeros.

        decay    A of each stretch, float32: [stretches, heads] (scalar), [stretches, heads, head_dim] (vector: a
                 number for each row of the state) or [stretches, heads, head_dim, head_dim] (matrix)
        state    b of each stretch, float32: the state with which it ends if it begins with zeros, [stretches, heads,
                 head_dim, value_dim]
        reverse  states run from the end of each document to its beginning
        layer    the number of the kind of layers in plan.recurrent; None: the only one with these shapes

        The stretches are plan.stretches(), in this order. Decay and state of a stretch which no other one follows in
        its document change nothing. Graphs are as for `halo`.

        Both inputs have gradients. Where ranks are processes, all of them make the same calls, and all have a part in
        the backward pass. So the result must be a part of each process's loss, also where it has no stretches; it needs
        a gradient there whatever its inputs need.

        Errors: as for `halo`
        """
        number = self._find_scan(decay, state, bool(reverse), layer)
        if not torch.compiler.is_compiling():
            refuse_tangents("scan", decay, state)
        if self._asks is not None and not (decay.requires_grad or state.requires_grad):
            state = state + self._asks  # other processes' states may need the gradient that this one's scan passes on
        made: Tensor = _scan_operator(decay, state, self.number, number)
        return made

    def _find_halo(self, who: str, before: int | None, after: int | None, layer: int | None) -> int:
        def fits(x: Any) -> bool:
            return before in (None, x.before) and (after == x.after or after is None and (before is None or x.after == 0))
        wanted = f"before = {before}, after = {0 if after is None and before is not None else after}"
        return find(self._kinds, layer, who, Halo, fits, wanted, "" if self._kinds else _ONE)

    def _find_scan(self, decay: Tensor, state: Tensor, reverse: bool, layer: int | None) -> int:
        for name, x in ("decay", decay), ("state", state):
            if not isinstance(x, torch.Tensor):
                raise Error("E701", f"scan: {name} is a {type(x).__name__}: a tensor of torch is expected")
            if x.dtype != torch.float32:
                raise Error("E701", f"scan: {name} is {_name(x.dtype)}, and states are float32: {name}.float() casts it")
            if x.dim() == 0 or x.shape[0] != self._stretches:
                raise Error("E701", f"scan: {name} is {list(x.shape)}, and this process has {self._stretches} stretches "
                                    "of tokens (plan.stretches()): the first dimension is theirs")

        def fits(x: Any) -> bool:
            return bool(x.reverse == reverse and x.state_shape == tuple(state.shape[1:])
                        and x.decay_shape == tuple(decay.shape[1:]))
        wanted = f"decay {list(decay.shape)} and state {list(state.shape)}{', reverse' if reverse else ''}"
        return find(self._kinds, layer, "scan", Scan, fits, wanted, "" if self._kinds else _ONE)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _places(plan: Plan, kind: Halo, device: torch.device) -> tuple[Tensor, Tensor]:
    """(where the rows of tokens stand in a packed tensor, where the rows of halos stand)"""
    found, before, after = plan.stretches(), kind.before, kind.after
    lengths = torch.tensor([x.length for x in found], dtype=torch.int64)
    at = torch.arange(len(found)) * (before + after)
    begins = lengths.cumsum(0) - lengths + at
    own = torch.arange(plan.tokens) + torch.repeat_interleave(at, lengths) + before
    beside = torch.cat([begins[:, None] + torch.arange(before),
                        (begins + lengths)[:, None] + before + torch.arange(after)], 1)
    return own.to(device), beside.flatten().to(device)


# --- the calls of C ---------------------------------------------------------------------------------------------------

def _begins(of: Any) -> tuple[list[int], list[int]]:
    """The first token, and the first stretch, of each rank in this process's tensors."""
    if not hasattr(of, "first_rows"):
        plan = of.plan
        stretches = [len(plan.stretches(rank)) for rank in plan.here]
        of.first_rows = [list(itertools.accumulate(counts, initial=0))[:-1] for counts in (plan.rank_queries, stretches)]
    found: tuple[list[int], list[int]] = of.first_rows
    return found


def _look(who: str, of: Any, name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
    """A dense tensor that fits, or E701."""
    if tuple(x.shape) != shape or (dtype is not None and x.dtype != dtype) or not is_on(x, of.cuda):
        raise Error("E701", f"{who}: {name} is {words(x.shape, _name(x.dtype), x.device.type)}; the plan needs "
                            f"{words(shape, _name(dtype or x.dtype), of.device.type)}" + (
                                f": plan.take({name})" if x.dim() and x.shape[0] == of.plan.global_tokens else ""))
    return x if x.is_contiguous() else x.contiguous()


def _address(x: Tensor) -> int:
    """Where a tensor is. An empty one is nowhere, and C wants an address of each."""
    return x.data_ptr() or _NOWHERE


_nothing = ctypes.create_string_buffer(256)
_NOWHERE = ctypes.addressof(_nothing)


def _call(of: Any, function: str, *arguments: Any) -> None:
    attention = of.attention
    with attention._alone:
        attention._refuse_closed()
        code = attention._select(of.slot)
        if not code:
            code = C[function](attention._session, *arguments, attention._stream(), ctypes.byref(attention._error))
        attention._options.check(code, attention._error)


def _row(x: Tensor) -> int:
    """How many numbers a row has."""
    return x.shape[1:].numel()


# --- the operators ----------------------------------------------------------------------------------------------------

_torch_library: Any = torch.library  # whose types are not all declared
_library = _torch_library.Library("fcpc", "FRAGMENT")
# own, beside: where rows of tokens and of halos stand in the packed tensor. rows: how many of the halos, for compilers
_library.define("halo(Tensor x, Tensor own, Tensor beside, Tensor plan, int layer, SymInt rows) -> Tensor")
_library.define("halo_backward(Tensor d, Tensor own, Tensor beside, Tensor plan, int layer) -> Tensor")
_library.define("scan(Tensor decay, Tensor state, Tensor plan, int layer) -> Tensor")
_library.define("scan_backward(Tensor d, Tensor decay, Tensor entering, Tensor plan, int layer) -> (Tensor, Tensor)")
_halo_operator, _halo_back = torch.ops.fcpc.halo.default, torch.ops.fcpc.halo_backward.default
_scan_operator, _scan_back = torch.ops.fcpc.scan.default, torch.ops.fcpc.scan_backward.default


def _halo(x: Tensor, own: Tensor, beside: Tensor, plan: Tensor, layer: int, rows: int) -> Tensor:
    refuse_tangents("halo", x)
    of = binding(plan)
    x = _look("halo", of, "x", x, (of.plan.tokens, *x.shape[1:]))
    size = _row(x) * x.element_size()
    if not size:
        raise Error("E701", f"halo: x is {list(x.shape)}: its rows have no numbers")
    halo = x.new_empty(rows, *x.shape[1:])
    wide = of.plan.recurrent[layer].before + of.plan.recurrent[layer].after
    tokens, stretches = _begins(of)
    array = (fcp_halo_rank * len(tokens))(*(fcp_halo_rank(_address(x) + a * size, _address(halo) + b * wide * size)
                                            for a, b in zip(tokens, stretches)))
    _call(of, "fcp_session_halo", layer, size, array)
    packed = x.new_empty(len(x) + rows, *x.shape[1:])
    return packed.index_copy_(0, own, x).index_copy_(0, beside, halo)


def _halo_backward(d: Tensor, own: Tensor, beside: Tensor, plan: Tensor, layer: int) -> Tensor:
    refuse_tangents("halo", d)
    of = binding(plan)
    if d.dtype not in _NUMBERS:
        raise Error("E701", f"halo: its gradient is {_name(d.dtype)}, and those are float32, float16 and bfloat16")
    d_halo, dx = d.index_select(0, beside), d.index_select(0, own)
    wide = of.plan.recurrent[layer].before + of.plan.recurrent[layer].after
    tokens, stretches = _begins(of)
    size = _row(dx) * dx.element_size()
    array = (fcp_halo_gradient_rank * len(tokens))(
        *(fcp_halo_gradient_rank(_address(d_halo) + b * wide * size, _address(dx) + a * size)
          for a, b in zip(tokens, stretches)))
    _call(of, "fcp_session_halo_gradient", layer, _NUMBERS[dx.dtype], _row(dx), array)
    return dx


def _run_scan(of: Any, layer: int, which: int, decay: Tensor, state: Tensor) -> Tensor:
    kind = of.plan.recurrent[layer]
    count = len(of.plan.stretches())
    decay = _look("scan", of, "decay", decay, (count, *kind.decay_shape), torch.float32)
    state = _look("scan", of, "state", state, (count, *kind.state_shape), torch.float32)
    entering = torch.empty_like(state)
    _, stretches = _begins(of)
    sizes = _row(decay) * 4, _row(state) * 4
    array = (fcp_scan_rank * len(stretches))(
        *(fcp_scan_rank(_address(decay) + b * sizes[0], _address(state) + b * sizes[1],
                        _address(entering) + b * sizes[1]) for b in stretches))
    _call(of, "fcp_session_scan", layer, which, array)
    return entering


def _scan(decay: Tensor, state: Tensor, plan: Tensor, layer: int) -> Tensor:
    refuse_tangents("scan", decay, state)
    return _run_scan(binding(plan), layer, FORWARD, decay, state)


def _scan_backward(d: Tensor, decay: Tensor, entering: Tensor, plan: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """The gradients of decay and state. What leaves a stretch enters the next one, and has its gradient, so the gradient
    of a stretch's state is a scan of those that come behind it, with the decays transposed."""
    refuse_tangents("scan", d)
    d_state = _run_scan(binding(plan), layer, BACKWARD, decay.mT if decay.dim() == 4 else decay, d)
    if decay.dim() == 4:
        return d_state @ entering.mT, d_state
    return (d_state * entering).sum(3 if decay.dim() == 3 else (2, 3)), d_state


_OPERATORS: dict[str, Any] = {"halo": _halo, "halo_backward": _halo_backward, "scan": _scan,
                              "scan_backward": _scan_backward}
for _operator_name, _function in _OPERATORS.items():
    _library.impl(_operator_name, _function, "CompositeExplicitAutograd")

_fake = _torch_library.register_fake
_fake("fcpc::halo", lambda x, own, beside, plan, layer, rows: x.new_empty([x.shape[0] + rows, *x.shape[1:]]))
_fake("fcpc::halo_backward", lambda d, own, beside, plan, layer: d.new_empty([own.shape[0], *d.shape[1:]]))
_fake("fcpc::scan", lambda decay, state, plan, layer: torch.empty_like(state, memory_format=torch.contiguous_format))
_fake("fcpc::scan_backward", lambda d, decay, entering, plan, layer: (torch.empty_like(decay), torch.empty_like(d)))


# --- gradients --------------------------------------------------------------------------------------------------------

def _keep_halo(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:4])
    ctx.layer = inputs[4]


def _differentiate_halo(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
    return _halo_back(d, *ctx.saved_tensors, ctx.layer), None, None, None, None, None


def _keep_scan(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    decay, _, plan, ctx.layer = inputs
    ctx.save_for_backward(decay, output, plan)


def _differentiate_scan(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
    return *_scan_back(d, *ctx.saved_tensors, ctx.layer), None, None


def _no_more(who: str) -> Any:
    """The derivative of a gradient."""
    def refuse(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        raise Error("E702", f"{who}: there are no second derivatives: its gradient cannot be differentiated again "
                            "(create_graph=True, torch.autograd.functional.hessian, torch.func.hessian). Detach it")
    return refuse


def _keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """There is no derivative that could need it."""


for _who, _forward, _gradient, _keep, _differentiate in (
        ("halo", _halo_operator, _halo_back, _keep_halo, _differentiate_halo),
        ("scan", _scan_operator, _scan_back, _keep_scan, _differentiate_scan)):
    _no_vmap = f"{_who}: there is no torch.func.vmap of it: one call has all stretches of a batch"
    _torch_library.register_autograd(f"fcpc::{_who}", _differentiate, setup_context=_keep)
    _torch_library.register_autograd(f"fcpc::{_who}_backward", _no_more(_who))
    _library.impl(_who, transformed(_who, _no_vmap, _forward, _keep, _differentiate), "FuncTorchDynamicLayerFrontMode")
    _library.impl(f"{_who}_backward", transformed(_who, _no_vmap, _gradient, _keep_nothing, _no_more(_who)),
                  "FuncTorchDynamicLayerFrontMode")
