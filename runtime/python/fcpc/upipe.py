"""upipe.py: attention with its projections, phase by phase, as UPipe does it.

    prog = fcpc.program(mask="causal", heads=32, kv_heads=8, strategy="upipe(heads = 8)", cluster=fcpc.detect(group))
    attn = PhasedAttention(prog, group=group)
    for batch, plan in attn.program.ahead(loader):          # plans of one phase
        y = attn.bind(plan)(x, wq, wk, wv, wo, on_q=rotate, on_k=rotate)

A layer that projects all heads, attends and projects back holds Q, K, V and O of all heads at once. Here a phase
projects its own heads alone, attends, and adds its part of the output projection to y. So memory for Q, K, V and O is
that of one phase, and the session's memory is too.

How: all phases run one plan, the program's with the heads of a phase. Query heads that share KV heads are in phases
behind each other. The first of these phases brings K and V to the ranks that attend, where they stay for the others
(fcp_session_run_kept). The backward pass keeps x and the weights alone, and computes all else again, phase by phase.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import torch
import torch.nn.functional as F

from ._c import C, Owner, check, fcp_error, fcpc_phases
from .bound import binding as _binding
from .errors import Error
from .plan import Plan
from .program import Program
from .session import BACKWARD, FORWARD, words
from .torch import Attention, _type

if TYPE_CHECKING:
    from torch import Tensor

# What is done to the heads of a phase between projection and attention: (heads, positions, their numbers) -> heads.
Between = Callable[["Tensor", "Tensor", "tuple[int, ...]"], "Tensor"]


class Phase(NamedTuple):
    """What one phase computes.

    heads     the numbers of its query heads in the model
    kv_heads  those of the KV heads that they need
    first     it is the first of the phases that have these KV heads
    last      it is the last of them
    """
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    first: bool
    last: bool


def phases(prog: Program) -> list[Phase]:
    """The phases of a program with strategy="upipe(heads = ...)", in order.

    For example, 16 heads with 4 KV heads, 4 at a time: query heads 0 4 8 12, then 1 5 9 13, and so on, all with KV
    heads 0 1 2 3.

    Errors: E203 (the strategy has no phases), E210 (the mask or the score names the head, so phases need plans that
    differ)
    """
    if not isinstance(prog, Program):
        raise Error("E203", f"phases: a {type(prog).__name__} is no program: fcpc.program(...) makes one")
    found, err = fcpc_phases(), fcp_error()
    check(C["fcpc_program_phases"](prog._handle, ctypes.byref(found), None, None, ctypes.byref(err)), err)
    order = (ctypes.c_uint32 * (found.count * found.heads))()
    of_kv = (ctypes.c_uint32 * (found.count // found.sharing * found.kv_heads))()
    check(C["fcpc_program_phases"](prog._handle, ctypes.byref(found), order, of_kv, ctypes.byref(err)), err)
    made = []
    for i in range(found.count):
        group, at = divmod(i, found.sharing)
        made.append(Phase(tuple(order[i * found.heads:][:found.heads]),
                          tuple(of_kv[group * found.kv_heads:][:found.kv_heads]), at == 0, at == found.sharing - 1))
    return made


class PhasedAttention(Attention):
    """Attention with its projections, phase by phase. It owns a session, as an Attention does.

    prog      an fcpc.Program with strategy="upipe(heads = ...)"
    program   the program of one phase: plans come from it, attn.program.plan(lengths) or attn.program.ahead(loader)
    phases    what each phase computes
    group, device, threads, timeout   as in fcpc.torch.Attention

    `bind` takes a plan of `program`, and gives a function that takes x and the weights: see BoundPhases.

    Errors: those of Attention and of `phases`.
    """

    def __init__(self, prog: Program, group: Any = None, device: str | torch.device = "cpu", threads: int = 0,
                 timeout: int = 0) -> None:
        self.phases = phases(prog)
        one = self.phases[0]
        self.program = prog._with([f"model.heads={len(one.heads)}", f"model.kv_heads={len(one.kv_heads)}",
                                   f"plan.strategy.heads={len(one.heads)}"])
        super().__init__(self.program, group, device, threads, timeout)

    def bind(self, plan: Plan, layer: int = 0) -> BoundPhases:  # type: ignore[override] # another function
        """Returns attention with its projections for one batch: BoundPhases. plan: one of `program`."""
        if isinstance(plan, Plan) and plan.heads == sum(len(phase.heads) for phase in self.phases) != len(
                self.phases[0].heads):
            raise Error("E203", "bind: this is a plan of all heads: attn.program.plan(lengths) makes that of a phase, "
                                "which all phases run")
        return BoundPhases(self, super().bind(plan, layer))


class BoundPhases(Owner):
    """What `PhasedAttention.bind` gives, for one plan: attention with its projections.

    plan       the plan, which all phases run
    keys_stay  K and V are sent once for all phases that share them. False: for each phase, because with this strategy
               their memory is used again (fcp_session_keys_stay)
    """

    def __init__(self, attention: PhasedAttention, bound: Any) -> None:
        self.plan: Plan = bound.plan
        self._phases, self._bound = attention.phases, bound
        self._positions: Optional[Tensor] = None
        binding = _binding(bound.number)
        with attention._alone:
            err = fcp_error()
            attention._options.check(attention._select(binding.slot), attention._error)
            mine = ctypes.c_uint8(C["fcp_session_keys_stay"](attention._session))
            every = (ctypes.c_uint8 * C["fcp_session_processes"](attention._session))()
            attention._options.check(C["fcp_session_gather"](attention._session, ctypes.addressof(mine), 1,
                                                             ctypes.addressof(every), ctypes.byref(err)), err)
        self.keys_stay = all(every)
        self._alike = self.plan.rows() == self.plan.rows(keys=True)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, x: Tensor, wq: Tensor, wk: Tensor, wv: Tensor | None, wo: Tensor, *,
                 on_q: Between | None = None, on_k: Between | None = None, parameters: Sequence[Tensor] = (),
                 bq: Tensor | None = None, bk: Tensor | None = None, bv: Tensor | None = None,
                 sink: Tensor | None = None, sums: torch.dtype | None = None) -> Tensor:
        """y [plan.tokens, out]: the output projection of attention on the projections of x, with gradients.

        x      [plan.tokens, hidden] in the plan's order
        wq     [heads * head_dim, hidden], wk [kv_heads * head_dim, hidden], wv [kv_heads * value_dim, hidden], as
               torch.nn.Linear has them: of all heads of the model. wv is None if the program's values are in its keys
        wo     [out, heads * value_dim]
        bq, bk, bv   biases of wq, wk and wv, or None. A bias of wo is added to y by the caller
        on_q   a function (q, positions, heads) -> q, which is called with the queries of each phase, [plan.tokens,
               heads of the phase, head_dim], before they attend: rotary embeddings, norms. positions: int64,
               [plan.tokens], of each token in its document; heads: the numbers of the phase's heads
        on_k   the same for keys, with the numbers of the KV heads. It is called once for each KV head
        parameters   the tensors that on_q and on_k use and that need gradients. Those of a torch.nn.Module are found
        sink   [heads], float32, as in fcpc.torch.Attention
        sums   the dtype in which y and the gradients of x, K and V are summed over phases; None: the program's. With
               torch.float32 nothing is rounded between phases, in twice the memory for these

        Under torch.autocast x and the weights come in any of float32, float16 and bfloat16; otherwise all have the
        program's dtype. y has the program's dtype.

        The backward pass keeps x and what else was given, and computes the rest again: it calls on_q and on_k again,
        and these must compute the same. There are first derivatives alone. torch.compile does not look inside.

        Errors: E701 (shape or dtype; a parameter of on_q or on_k that needs a gradient and was not named; keys that
        are other tokens than queries), and those of attention.
        """
        given = list(parameters)
        for function in on_q, on_k:
            if isinstance(function, torch.nn.Module):
                given.extend(p for p in function.parameters() if not any(p is other for other in given))
        self._check(x, wq, wk, wv, wo, bq, bk, bv, sink)
        y: Tensor = _Phased.apply(self, on_q, on_k, sums or self._dtype, x, wq, wk, wv, wo, bq, bk, bv, sink, *given)
        return y

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._bound._dtype
        return dtype

    def _check(self, x: Any, *weights: Any) -> None:
        """Refuses tensors that do not fit the plan and the model."""
        plan, heads = self.plan, sum(len(phase.heads) for phase in self._phases)
        kv_heads = sum(len(phase.kv_heads) for phase in self._phases if phase.first)
        if not self._alike:
            raise Error("E701", "attention: keys are other tokens than queries, so one x has not both")
        if not isinstance(x, torch.Tensor) or x.dim() != 2 or x.shape[0] != plan.tokens:
            what = words(x.shape, _type(x.dtype), x.device.type) if isinstance(x, torch.Tensor) else type(x).__name__
            raise Error("E701", f"attention: x is {what}; the plan needs [{plan.tokens}, hidden]: plan.take(x)")
        hidden, out = x.shape[1], weights[3].shape[0] if isinstance(weights[3], torch.Tensor) else 0
        sizes = heads * plan.head_dim, kv_heads * plan.head_dim, kv_heads * plan.value_dim
        shapes = [(size, hidden) for size in sizes] + [(out, heads * plan.value_dim), *((size,) for size in sizes),
                                                       (heads,)]
        autocast = torch.is_autocast_enabled(x.device.type)
        for name, w, shape in zip(("wq", "wk", "wv", "wo", "bq", "bk", "bv", "sink"), weights, shapes):
            if w is None and (name in ("bq", "bk", "bv", "sink") or (name == "wv" and plan.values_in_keys)):
                continue
            if not isinstance(w, torch.Tensor) or tuple(w.shape) != shape or (name in ("wv", "bv")
                                                                              and plan.values_in_keys):
                has = list(w.shape) if isinstance(w, torch.Tensor) else w if w is None else f"a {type(w).__name__}"
                need = "None, because values are in the keys" if plan.values_in_keys and "v" in name else list(shape)
                raise Error("E701", f"attention: {name} is {has}; {heads} heads with {kv_heads} KV heads need {need}")
        for name, w in zip(("x", "wq", "wk", "wv", "wo", "bq", "bk", "bv"), (x, *weights)):
            if w is not None and not autocast and w.dtype != self._dtype:
                raise Error("E701", f"attention: {name} is {_type(w.dtype)}, and the program's dtype is "
                                    f"{_type(self._dtype)}: cast it, or use torch.autocast")

    def _places(self) -> Tensor:
        """The positions of this process's tokens."""
        if self._positions is None:
            self._positions = self.plan.positions(torch.empty(0, device=_binding(self._bound.number).device))
        return self._positions


class _Weights(NamedTuple):
    """x and the weights of a call, all in one dtype, without gradients."""
    x: Tensor
    wq: Tensor
    wk: Tensor
    wv: Tensor | None
    wo: Tensor
    bq: Tensor | None
    bk: Tensor | None
    bv: Tensor | None

    @staticmethod
    def of(tensors: Sequence[Tensor | None], dtype: torch.dtype) -> _Weights:
        return _Weights(*(None if t is None else t.detach().to(dtype) for t in tensors))  # type: ignore[arg-type]


def _rows(heads: tuple[int, ...], width: int, like: Tensor) -> Tensor:
    """The rows of a weight, or the numbers of a bias, that belong to some heads."""
    first = torch.tensor(heads, device=like.device)[:, None] * width
    return (first + torch.arange(width, device=like.device)).flatten()


def _project(x: Tensor, w: Tensor, b: Tensor | None, rows: Tensor, width: int) -> Tensor:
    """[tokens, heads, width]: the projection to some heads."""
    made: Tensor = F.linear(x, w[rows], None if b is None else b[rows]).unflatten(1, (-1, width))
    return made


class _Between:
    """on_q or on_k on the heads of a phase, and its derivative."""

    def __init__(self, name: str, function: Between | None, projected: Tensor, positions: Tensor,
                 heads: tuple[int, ...], parameters: Sequence[Tensor], gradients: bool) -> None:
        self.name, self.parameters, self.projected = name, parameters, projected
        self.found: Tensor | None = None
        self.out = projected
        if function is None:
            return
        with torch.set_grad_enabled(gradients):
            self.projected = projected.detach().requires_grad_(gradients)
            found = function(self.projected, positions, heads)
        if not isinstance(found, torch.Tensor) or found.shape != projected.shape:
            has = list(found.shape) if isinstance(found, torch.Tensor) else f"a {type(found).__name__}"
            raise Error("E701", f"attention: {name} gives {has}, and is given {list(projected.shape)}")
        self.found, self.out = found, found.detach().to(projected.dtype)

    def back(self, d: Tensor, into: list[Tensor | None]) -> Tensor:
        """The gradient of what was projected; those of parameters are added to `into`."""
        if self.found is None or not self.found.requires_grad:
            return d if self.found is None else torch.zeros_like(self.projected)
        wanted = [i for i, p in enumerate(self.parameters) if p.requires_grad]
        known = [self.projected, *(self.parameters[i] for i in wanted)]
        for leaf in _leaves(self.found):
            if not any(leaf is one for one in known):
                raise Error("E701", f"attention: {self.name} uses a tensor of shape {list(leaf.shape)} that needs a "
                                    "gradient: name it, parameters=[...]")
        first, *others = torch.autograd.grad(self.found, known, d.to(self.found.dtype), allow_unused=True)
        for i, gradient in zip(wanted, others):
            had = into[i]
            if gradient is not None:
                into[i] = gradient if had is None else had + gradient
        return torch.zeros_like(self.projected) if first is None else first


def _leaves(x: Tensor) -> Iterator[Tensor]:
    """The tensors whose gradients backward() would fill."""
    left, seen = [x.grad_fn], set()
    while left:
        node: Any = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        left.extend(following for following, _ in node.next_functions)


class _Run:
    """One pass over all phases: what forward and backward have in common."""

    def __init__(self, bound: BoundPhases, on_q: Between | None, on_k: Between | None, w: _Weights,
                 sink: Tensor | None, parameters: Sequence[Tensor], gradients: bool) -> None:
        self.bound, self.on_q, self.on_k, self.w, self.sink = bound, on_q, on_k, w, sink
        self.parameters, self.gradients, self.plan = parameters, gradients, bound.plan
        self.binding = _binding(bound._bound.number)
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.kept: object = None

    def queries(self, phase: Phase) -> tuple[Tensor, _Between]:
        """The queries of a phase; and the rows of wq that made them."""
        width = self.plan.head_dim
        rows = _rows(phase.heads, width, self.w.x)
        return rows, _Between("on_q", self.on_q, _project(self.w.x, self.w.wq, self.w.bq, rows, width),
                              self.bound._places(), phase.heads, self.parameters, self.gradients)

    def keys(self, phase: Phase) -> tuple[Tensor, _Between]:
        width = self.plan.head_dim
        rows = _rows(phase.kv_heads, width, self.w.x)
        return rows, _Between("on_k", self.on_k, _project(self.w.x, self.w.wk, self.w.bk, rows, width),
                              self.bound._places(), phase.kv_heads, self.parameters, self.gradients)

    def begin(self, phase: Phase) -> None:
        """Projects the K and V of the phases that share them."""
        if not phase.first:
            return
        self.kept, gradients, self.gradients = None, self.gradients, False
        self.k = self.keys(phase)[1].out.contiguous()
        self.gradients = gradients
        if self.w.wv is not None:
            width = self.plan.value_dim
            self.v = _project(self.w.x, self.w.wv, self.w.bv, _rows(phase.kv_heads, width, self.w.x), width)

    def run(self, which: int, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None]) -> None:
        """A pass of the plan. Behind the first one the session has K and V."""
        shared = (self.k, self.v) if self.kept is None else (None, None)
        kept = self.binding.run(which, (inputs[0], *shared, *inputs[1:]), outputs, self.kept)
        if self.bound.keys_stay:
            self.kept, self.k, self.v = kept, None, None

    def forward(self, q: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        shapes = self.binding.shapes
        o = q.new_empty(shapes["o"])
        lse, low = (q.new_empty(shapes["lse"], dtype=torch.float32) for _ in range(2))
        self.run(FORWARD, (q, sink, None), (o, lse, low, None))
        return o, lse, low

    def columns(self, phase: Phase) -> tuple[Tensor, Tensor]:
        """The columns of the output projection that belong to a phase, and their numbers."""
        numbers = _rows(phase.heads, self.plan.value_dim, self.w.x)
        return numbers, self.w.wo[:, numbers]


def _part(sink: Tensor | None, phase: Phase) -> tuple[Tensor | None, list[int]]:
    heads = list(phase.heads)
    return None if sink is None else sink.detach()[heads].float().contiguous(), heads


class _Phased(torch.autograd.Function):
    """All phases of a call."""

    @staticmethod
    def forward(ctx: Any, bound: BoundPhases, on_q: Any, on_k: Any, sums: torch.dtype, *tensors: Any) -> Tensor:
        ctx.bound, ctx.on_q, ctx.on_k, ctx.sums = bound, on_q, on_k, sums
        ctx.save_for_backward(*tensors)
        with torch.autocast(tensors[0].device.type, enabled=False):
            w = _Weights.of(tensors[:8], bound._dtype)
            at = _Run(bound, on_q, on_k, w, tensors[8], tensors[9:], False)
            y = w.x.new_zeros((w.x.shape[0], w.wo.shape[0]), dtype=sums)
            for phase in bound._phases:
                at.begin(phase)
                o, _, _ = at.forward(at.queries(phase)[1].out.contiguous(), _part(at.sink, phase)[0])
                _add(y, o.flatten(1), at.columns(phase)[1].t())
                del o
            return y.to(bound._dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
        tensors, bound = ctx.saved_tensors, ctx.bound
        with torch.autocast(dy.device.type, enabled=False):
            found = _gradients(ctx, bound, tensors, dy.to(bound._dtype).contiguous())
        return (None,) * 4 + tuple(None if g is None or t is None else g.to(t.dtype) for g, t in zip(found, tensors))


def _add(to: Tensor, a: Tensor, b: Tensor) -> None:
    """to += a @ b."""
    if to.dtype == a.dtype:
        to.addmm_(a, b)
    else:
        to += a @ b


def _gradients(ctx: Any, bound: BoundPhases, tensors: Sequence[Any], dy: Tensor) -> list[Tensor | None]:
    """The gradients of a call's tensors, phase by phase."""
    w, sink, parameters = _Weights.of(tensors[:8], bound._dtype), tensors[8], tensors[9:]
    at = _Run(bound, ctx.on_q, ctx.on_k, w, sink, parameters, True)
    plan, binding = bound.plan, at.binding
    wanted = ctx.needs_input_grad[4:]
    dx = torch.zeros_like(w.x, dtype=ctx.sums) if wanted[0] else None
    dw: list[Tensor | None] = [torch.zeros_like(t) if t is not None and is_wanted else None
                               for t, is_wanted in zip(w[1:], wanted[1:])]
    d_sink = None if sink is None else torch.zeros(sink.shape, device=sink.device)
    of_parameters: list[Tensor | None] = [None] * len(parameters)

    def through(number: int, rows: Tensor, d: Tensor) -> None:
        """The gradients of a projection: of x, and of the rows of weight and bias number `number`."""
        flat, weight, bias = d.flatten(1), dw[number], dw[number + 4]
        if dx is not None:
            _add(dx, flat, w[1 + number][rows])  # type: ignore[index]
        if weight is not None:
            weight[rows] = flat.t() @ w.x
        if bias is not None:
            bias[rows] = flat.sum(0)
    dk = dv = None
    for phase in bound._phases:
        at.begin(phase)
        rows, q = at.queries(phase)
        mine, heads = _part(sink, phase)
        held = q.out.contiguous()
        o, lse, low = at.forward(held, mine)
        numbers, part = at.columns(phase)
        d_o = (dy @ part).unflatten(1, (-1, plan.value_dim))
        if dw[3] is not None:
            dw[3][:, numbers] = dy.t() @ o.flatten(1)
        dq = torch.empty_like(held)
        now = [dq.new_empty(binding.shapes[name]) if name in binding.shapes else None for name in ("dk", "dv")]
        of_ranks = None if mine is None else lse.new_zeros(binding.shapes["d_sink"])
        at.run(BACKWARD, (held, mine, None, o, d_o, lse, low, None), (dq, *now, of_ranks, None))
        del o, d_o, lse, low, held
        if d_sink is not None and of_ranks is not None:
            d_sink[heads] = of_ranks.sum(0)
        through(0, rows, q.back(dq, of_parameters))
        del q, dq
        if phase.first:
            dk, dv = (None if d is None else d.to(ctx.sums) for d in now)
        else:
            for total, d in zip((dk, dv), now):
                if total is not None and d is not None:
                    total += d
        del now
        if phase.last:
            at.k = at.v = None
            rows, k = at.keys(phase)
            assert dk is not None
            through(1, rows, k.back(dk.to(bound._dtype), of_parameters))
            if dv is not None:
                through(2, _rows(phase.kv_heads, plan.value_dim, w.x), dv.to(bound._dtype))
            dk = dv = None
            del k
    return [dx, *dw, d_sink, *of_parameters]
