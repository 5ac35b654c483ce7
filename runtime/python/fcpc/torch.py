"""torch.py: attention for PyTorch: an operator with gradients, which torch.compile keeps as one node of its graph.

    attn = Attention(prog, group=group)             # once; group None: all ranks in this process
    for batch, plan in prog.ahead(loader):
        x = plan.take(batch.tokens)
        loss = model(x, plan.positions(), attn.bind(plan))      # in a layer: o = attention(q, k, v)
        loss.backward()

In the graph the plan is a tensor that holds the plan's number (bound.py). So each backward pass finds the plan of its
own forward pass, also under activation checkpointing and with several micro-batches in flight.
"""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
import torch.distributed as dist

from ._c import C, Owner, fcp_error
from .bound import binding as _binding
from .bound import bound as _bound
from .bound import is_on as _is_on
from .bound import numbers as _numbers
from .bound import refuse_tangents, transformed
from .errors import Error
from .plan import Plan
from .program import Program
from .scans import Recurring
from .session import BACKWARD, FORWARD, VALUES, Places, Running, session_options, warn_of_low, words

if TYPE_CHECKING:
    from torch import Tensor

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_OWN_BATCH = 0xFFFFFFFF     # FCP_OWN_BATCH
# What a forward pass and a backward pass read and write, in the order in which _Binding.run takes it.
_INPUTS = ("q", "k", "v", "sink", "table"), ("q", "k", "v", "sink", "table", "o", "d_o", "lse", "lse_low", "d_lse")
_OUTPUTS = ("o", "lse", "lse_low", "max_logit"), ("dq", "dk", "dv", "d_sink", "d_table")


class Attention(Running):
    """Runs the plans of a program. It owns a session: threads, memory, connections and plans.

    prog      an fcpc.Program; `bind` takes its plans, and those of programs that differ from it in masks, fields and
              tables alone
    group     None: all ranks are in this process.
              A process group of torch.distributed: each of its processes is a rank. They find each other through the
              store that init_process_group has made, and then use connections of their own, so any backend of the
              group will do.
              "mpi": each process that mpirun has started is a rank.
    device    where tensors are and attention is computed: "cpu", or "cuda" for NVIDIA GPUs. With a group "cuda" is the
              current device, unless it has a number ("cuda:1"); without one, ranks take turns on all of them
    threads   how many threads may compute at once; 0: one for each processor, or this process's share of them
    timeout   how many seconds a rank may wait while no rank makes progress; 0: 120

    With "cuda" its device memory comes from torch's caching allocator. If there is too little, `bind` raises E012,
    whose __cause__ is torch's error.

    `close`, the end of a `with` block, or the end of the object give all of it back.

    If ranks are processes, all of them must make their Attention, bind their plans and run them in the same order. They
    must sum the gradients of sinks and tables over all processes, as for any shared parameter. An Attention belongs to
    one process, and one thread may use it at a time; otherwise E203. Errors: E203 (another argument), E702 (device),
    E706 (group).
    """

    def __init__(self, prog: Program, group: Any = None, device: str | torch.device = "cpu", threads: int = 0,
                 timeout: int = 0) -> None:
        super().__init__()
        if not isinstance(prog, Program):
            raise Error("E203", f"Attention: {_a(prog)} is no program: fcpc.program(...) makes one" + (
                ", and this plan's is plan.program" if isinstance(prog, Plan) else ""))
        self._prog = prog
        self.device = _device(device)
        _check_group(group)
        cuda = self.device.type == "cuda"
        number = _current_device(self.device) if cuda and group is not None else 0
        self._options = session_options(group, cuda, number, threads, timeout, _Caching() if cuda else None)
        self._here = prog.here if group is not None else None
        self._plans: list[Plan] = []
        self._free: list[int] = []  # numbers of session plans that nobody uses
        self._selected = 0  # the number of the plan that the session would run
        self._keys: object = None  # of the run whose k and v the session holds

    def close(self) -> None:
        """Ends the session: gives back its threads, memory and connections. Then `bind` is an error (E203), and so are
        calls of what it gave and backward passes of these. To close twice is no error."""
        super().close()
        self._plans.clear()

    def bind(self, plan: Plan, layer: int = 0) -> BoundAttention:
        """Returns attention for one batch: a function (q, k, v=None, sink=None, tables=None, return_lse=False,
        return_max=False) -> o.

        layer  if the program has `layers`: the number of the mask in that list, from 0

        q      [plan.tokens, heads, head_dim] in the plan's order, in the program's dtype
        k      [plan.key_tokens, kv_heads, head_dim], likewise
        v      [plan.key_tokens, kv_heads, value_dim], likewise. It is left out if the program's values are in its keys;
               then the gradient of k is that of both
        o      [plan.tokens, heads, value_dim], likewise
        sink   [heads], float32: the logit of each head's sink, which takes part in every softmax. It replaces what the
               program says, and has a gradient. The program must have a sink (sink=0.0 will do)
        tables {name: tensor}, float32, each of the shape that it has in the program: tables of reals that the score
               reads, with gradients. Tables that are not named have the program's numbers
        return_lse   True: the result is (o, lse). lse is [plan.tokens, heads] in float32, the natural logarithm of the
               sum of exponentials; -inf, or the sink, in a row that sees no key. A loss may depend on it if the program
               has lse_gradient=True; else the backward pass is an error (E701). The gradients of attention are exact
               enough, because the rounding error of lse is kept beside it. But the tensor lse does not have it: beyond
               16384, exp(x - lse) is wrong by a thousandth or more. On the CPU that is an fcpc.Warning
        return_max   True: the largest logit of each head is the last result, [heads] in float32, without gradient: of
               the rows that this process's ranks have finished, with the score and without the sink; -inf if there are
               none. If ranks are processes, dist.all_reduce(most, dist.ReduceOp.MAX, group=group) makes it the batch's

        Under torch.autocast q, k and v come in any of float32, float16 and bfloat16, and are cast to the program's
        dtype, whatever dtype autocast has; sinks and tables are cast to float32. So o has the program's dtype, and each
        gradient that of its tensor. Without autocast another dtype is an error.

        There are first derivatives, also by torch.func.grad and vjp. Second derivatives are an error (E702), and so are
        forward mode and torch.func.vmap.

        A tensor that is not contiguous is copied first. A row that sees no key has o = 0. Errors: E701
        (shape, dtype or device), E203 (no plan, or a plan of another program: heads, ranks, ...; closed), E703.
        """
        if not isinstance(plan, Plan):
            raise Error("E203", f"bind: {_a(plan)} is no plan: plan = prog.plan(lengths) makes that of a batch")
        if plan.program is not None and not plan.program.differs_in_masks_alone(self._prog):
            raise Error("E203", "bind: the plan is of another program than this Attention, and not only its mask is "
                                "another")
        if layer not in range(len(plan.layers)):
            raise Error("E203", f"bind: there is no layer {layer!r}: the plan has {len(plan.layers)}, counted from 0")
        plan = plan.layers[layer]
        here = range(plan.ranks) if self._here is None else self._here
        if plan.here != here:
            raise Error("E203", f"bind: the plan is for ranks {list(plan.here)}, and this process runs {list(here)}")
        with self._alone:
            self._refuse_closed()
            code, slot = self._put(plan, self._take_slot())
            try:
                self._options.check(code, self._error)
            except BaseException:  # the user's Ctrl-C as well, which may come where C has succeeded
                if slot is not None:
                    self._free.append(slot)
                raise
        assert slot is not None
        return BoundAttention(_Binding(self, slot, plan))

    def _put(self, plan: Plan, slot: int | None) -> tuple[int, int | None]:
        """Adds a plan to the session: (C's code, the plan's number in the session, if it has one). slot: the number of
        a plan that is not used any more, and is replaced; or None."""
        err = ctypes.byref(self._error)
        if self._session is None:
            code, self._session = self._options.create(plan, self._error)
            slot = None if code else 0
        elif slot is None:
            number = ctypes.c_uint32()
            code = C["fcp_session_add"](self._session, plan._handle, _OWN_BATCH, ctypes.byref(number), err)
            slot = None if code else number.value
        else:
            code = self._select(slot) or C["fcp_session_rebind"](self._session, plan._handle, err)
        if not code and slot is not None:
            self._plans[slot:slot + 1] = [plan]
        return code, slot

    def _select(self, slot: int) -> int:
        """Selects the plan that the session runs. Most calls run the same plan as the call before, and select
        nothing."""
        code = 0
        if slot != self._selected:
            code = C["fcp_session_select"](self._session, slot, ctypes.byref(self._error))
        if not code:
            self._selected = slot
        return code

    def _stream(self) -> int | None:
        """The stream to which calls of C are appended; None: they have ended on return."""
        return _stream_of(self.device) if self.device.type == "cuda" else None

    def _take_slot(self) -> int | None:
        """The number of a session's plan that is not used any more; None: there is none. All processes must take the
        same one. But when a plan is free depends on each process's garbage collection, so they tell each other."""
        if self._session is None or self._here is None:
            return self._free.pop() if self._free else None
        mine, err = (ctypes.c_uint8 * 64)(), fcp_error()
        every = (ctypes.c_uint8 * (64 * C["fcp_session_processes"](self._session)))()
        for slot in self._free:
            if slot < 512:
                mine[slot // 8] |= 1 << slot % 8
        self._options.check(C["fcp_session_gather"](self._session, mine, 64, every, ctypes.byref(err)), err)
        for slot in range(min(512, len(self._plans))):
            if all(every[at + slot // 8] >> slot % 8 & 1 for at in range(0, len(every), 64)):
                self._free.remove(slot)
                return slot
        return None


class BoundAttention(Recurring, Owner):
    """What `Attention.bind` gives, for one plan: attention(q, k, v=None, sink=None, tables=None, return_lse=False,
    return_max=False) -> o. `plan` is the plan.

    `halo` and `scan` are for the layers beside attention that the program's `layers` name (fcpc.Halo, fcpc.Scan)."""

    def __init__(self, binding: _Binding) -> None:
        self.plan, self._own, self._dtype = binding.plan, binding.tables, binding.dtype
        self._device = binding.device.type
        self._value_dim = binding.plan.value_dim if binding.plan.values_in_keys else None  # no v says it
        self.number = torch.tensor(next(_numbers))
        number = int(self.number)
        _bound[number] = binding
        weakref.finalize(self.number, binding.end, number).atexit = False
        self._see(binding.plan, binding.device)

    @overload
    def __call__(self, q: Tensor, k: Tensor, v: Tensor | None = None, sink: Tensor | None = None,
                 tables: Mapping[str, Tensor] | None = None) -> Tensor: ...

    @overload
    def __call__(self, q: Tensor, k: Tensor, v: Tensor | None = None, sink: Tensor | None = None,
                 tables: Mapping[str, Tensor] | None = None, *, return_lse: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def __call__(self, q: Tensor, k: Tensor, v: Tensor | None = None, sink: Tensor | None = None,
                 tables: Mapping[str, Tensor] | None = None, *, return_max: Literal[True]) -> tuple[Tensor, Tensor]: ...

    @overload
    def __call__(self, q: Tensor, k: Tensor, v: Tensor | None = None, sink: Tensor | None = None,
                 tables: Mapping[str, Tensor] | None = None, *, return_lse: bool = False,
                 return_max: bool = False) -> Any: ...

    def __call__(self, q: Tensor, k: Tensor, v: Tensor | None = None, sink: Tensor | None = None,
                 tables: Mapping[str, Tensor] | None = None, return_lse: bool = False,
                 return_max: bool = False) -> Any:
        """o, (o, lse), (o, most) or (o, lse, most): `Attention.bind` says what each is."""
        table = self._together(tables) if tables else None
        if not torch.compiler.is_compiling():
            for name, x in ("q", q), ("k", k), ("v", v), ("sink", sink):
                if not isinstance(x, torch.Tensor) and (x is not None or name in "qk"):
                    raise Error("E701", f"attention: {name} is {_a(x)}: a tensor of torch is expected")
            refuse_tangents("attention", q, k, v, sink, table)
        o, lse, _, most = _operator(q, k, v, sink, table, self.number, self._value_dim, return_max, self._dtype)
        if not return_lse:
            return (o, most) if return_max else o
        if not torch.compiler.is_compiling() and lse.is_cpu and type(lse) is torch.Tensor:
            warn_of_low(_largest(lse), "Inside of attention no gradient suffers")
        return (o, lse, most) if return_max else (o, lse)

    def _together(self, tables: Mapping[str, Tensor]) -> Tensor:
        """All tables of the plan in one tensor, in the plan's order, as C takes them."""
        for name, x in tables.items():
            own = self._own.get(name)
            if own is None or x.shape != own.shape:
                raise Error("E701", f"attention: the score reads no table '{name}' of shape {list(x.shape)}: it reads "
                                    f"{ {n: list(t.shape) for n, t in self._own.items()} }")
        with torch.autocast(self._device, enabled=False):  # which knows fewer pairs of dtypes
            return torch.cat([tables.get(name, own).flatten() for name, own in self._own.items()])


class _Binding:
    """A plan in a session, and where the rows of each rank begin in a tensor of all tokens."""

    def __init__(self, attention: Attention, slot: int, plan: Plan) -> None:
        self.attention, self.slot, self.plan = attention, slot, plan
        self.device, self.cuda = attention.device, attention.device.type == "cuda"
        self.dtype = _DTYPES[plan.dtype]
        places = self.places = Places(plan)
        needs: dict[str, tuple[str, Any, Any, Any]] = {name: (name, shape, _DTYPES[dtype], places.places[name])
                                                       for name, (shape, dtype) in places.needs.items()}
        needs.update((name, (name, None, None, ())) for name in VALUES if name not in needs)
        self.shapes = {name: shape for name, (shape, _) in places.needs.items()}
        self.takes = [[needs[name] for name in names] for names in _INPUTS]
        self.gives: list[list[Any]] = [[places.places.get(name, ()) for name in names] for names in _OUTPUTS]
        self.tables = {name: torch.frombuffer(doubles, dtype=torch.float64).float().view(shape).to(self.device)
                       for name, (shape, doubles) in plan.tables.items()}

    def end(self, number: int) -> None:
        """Frees the plan's number in the session. The tensor with its number is gone, so no pass of the plan can
        follow."""
        _bound.pop(number, None)
        self.attention._free.append(self.slot)

    def run(self, which: int, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None],
            kept: object = None) -> object:
        """Runs a pass. inputs, outputs: the tensors that _INPUTS and _OUTPUTS name, or None.

        kept: what an earlier call has returned: the run uses the k and v of that one, if no other run came between.
        """
        array, copies = self.places.array(), []
        for x, (name, shape, dtype, places) in zip(inputs, self.takes[which]):
            if x is None:
                continue
            if shape is None:
                raise Error("E701", f"attention: there is no {name}: the values are the first {self.plan.value_dim} "
                                    "numbers of the keys")
            if x.shape != shape or x.dtype != dtype or not _is_on(x, self.cuda):
                raise Error("E701", f"attention: {name} is {words(x.shape, _type(x.dtype), x.device.type)}; the plan "
                                    f"needs {words(shape, _type(dtype), self.device.type)}"
                                    f"{self._advice(name, x, shape, dtype)}")
            if not x.is_contiguous():
                x = x.contiguous()
                copies.append(x)
            base = x.data_ptr()
            for place, begin in places:
                array[place] = base + begin
        for x, places in zip(outputs, self.gives[which]):
            if x is None:
                continue
            base = x.data_ptr()
            for place, begin in places:
                array[place] = base + begin
        attention = self.attention
        with attention._alone:
            attention._refuse_closed()
            if kept is not None and kept is not attention._keys:
                raise Error("E203", "attention: another run of this Attention came between the phases of a call")
            attention._keys = None
            code = attention._select(self.slot)
            if not code and self.cuda:
                code = _run_on_cuda(attention, which, array, kept is not None)
            elif not code and kept is not None:
                code = C["fcp_session_run_kept"](attention._session, which, array, None, ctypes.byref(attention._error))
            elif not code:
                code = C["fcp_session_run"](attention._session, which, array, ctypes.byref(attention._error))
            attention._options.check(code, attention._error)
            attention._keys = kept or object()
            return attention._keys

    def _advice(self, name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        """How to correct a tensor of a wrong shape or dtype, if that can be guessed; else ""."""
        got, plan, per_token = tuple(x.shape), self.plan, len(shape) == 3
        whole = plan.global_key_tokens if name in ("k", "v") else plan.global_tokens
        if got == shape and x.dtype != dtype:
            return (f". {name}.to(torch.{_type(dtype)}) casts it" + (
                ", and so does torch.autocast; program(dtype=...) says what the plan needs" if per_token else ""))
        if not per_token or got == shape:
            return ""
        if len(got) == 4:
            return (f". Tensors are [tokens, heads, head_dim], without a batch dimension: sequences are packed end to "
                    f"end, and {name}[0] is a batch of one")
        if len(got) == 2:
            return f". Tensors are [tokens, heads, head_dim]: {name}.unflatten(1, ({shape[1]}, {shape[2]}))"
        if got[0] == whole != shape[0] and got[1:] == shape[1:]:
            return (f". The whole batch has {whole} tokens, and this process holds {shape[0]} of them: "
                    f"plan.take({name}{', keys=True' if name in ('k', 'v') else ''})")
        if got == (shape[1], shape[0], shape[2]):
            return f". Tensors are [tokens, heads, head_dim]: {name}.transpose(0, 1)"
        return ""


def _a(x: object) -> str:
    """What an object is, for messages."""
    return "None" if x is None else f"{x!r}" if isinstance(x, (int, float, str)) else f"a {type(x).__name__}"


def _device(device: object) -> torch.device:
    """The device of an Attention."""
    try:
        made = torch.device(device) if isinstance(device, (str, torch.device)) else None
    except RuntimeError:
        made = None
    if made is None or made.type not in ("cpu", "cuda"):
        raise Error("E702", f"attention: there is no backend for {device}: device is \"cpu\" or \"cuda\", or "
                            "\"cuda:1\" for one of several GPUs")
    return made


def _check_group(group: Any) -> None:
    """Refuses what is no group. A process that is not in its group is found later, when the processes meet."""
    if group is None or isinstance(group, str):
        return
    if not dist.is_available() or not (isinstance(group, dist.ProcessGroup)
                                       or group == dist.GroupMember.NON_GROUP_MEMBER):
        mesh = ": mesh.get_group() is that of a mesh of one dimension" if hasattr(group, "get_group") else ""
        raise Error("E706", f"Attention: {_a(group)} is no group: it is None, 'mpi', or one of torch.distributed{mesh}")


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# Without a GPU no test can run what these say of CUDA: keep them small.

class _Caching:
    """Takes the session's memory from torch's allocator, so that both share the memory of a GPU.

    torch may hand out memory that work in the current stream still uses, because later work in the same stream has to
    wait for it anyway. The session uses other streams, so `allocate` waits for that work. The session releases memory
    after its streams have ended, so any stream of torch may use it next.
    """

    def allocate(self, device: int, size: int) -> int:
        stream = torch.cuda.current_stream(device)
        address: int = torch.cuda.caching_allocator_alloc(size, device, stream)
        stream.synchronize()
        return address

    def release(self, device: int, address: int) -> None:
        delete: Any = torch.cuda.caching_allocator_delete  # which has no types
        delete(address)


def _current_device(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _stream_of(device: torch.device) -> int:
    """The current stream. torch calls the legacy stream 0, and the driver calls it 1."""
    with torch.cuda.device(device):
        return torch.cuda.current_stream().cuda_stream or 1


def _run_on_cuda(attention: Attention, which: int, array: Any, kept: bool) -> int:
    """Puts a pass into the current stream."""
    with torch.cuda.device(attention.device):
        run = C["fcp_session_run_kept" if kept else "fcp_session_run_on"]
        code: int = run(attention._session, which, array, attention._stream(), ctypes.byref(attention._error))
        return code


def _largest(lse: Tensor) -> float:
    """The largest magnitude in a tensor, without infinities, which rows without keys have."""
    finite = lse.detach()[lse.isfinite()]
    return finite.abs().max().item() if len(finite) else 0.0


def _dense(x: Tensor) -> Tensor:
    """An empty contiguous tensor with the shape, dtype and device of x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# --- the operators ----------------------------------------------------------------------------------------------------
# They use only public functions of torch.library and torch.autograd. Private ones would save 45 microseconds of a
# forward and a backward pass, which on the CPU take 10 milliseconds for 512 tokens and 4 heads of 64.

_torch_library: Any = torch.library  # whose types are not all declared

# autocast: the dtype to which q, k and v are cast under torch.autocast; None: that of the plan, if it is known.
# value_dim: the width of values, for compilers, which do not know the plan.
_library = _torch_library.Library("fcpc", "DEF")
_library.define("attention(Tensor q, Tensor k, Tensor? v, Tensor? sink, Tensor? table, Tensor plan, "
                "SymInt? value_dim=None, bool want_max=False, ScalarType? autocast=None) -> "
                "(Tensor o, Tensor lse, Tensor lse_low, Tensor most)")
_library.define("attention_backward(Tensor? d_o, Tensor? d_lse, Tensor q, Tensor k, Tensor? v, Tensor o, Tensor lse, "
                "Tensor lse_low, Tensor? sink, Tensor? table, Tensor plan) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
_operator, _operator_backward = torch.ops.fcpc.attention.default, torch.ops.fcpc.attention_backward.default


def _attention(q: Tensor, k: Tensor, v: Tensor | None, sink: Tensor | None, table: Tensor | None, plan: Tensor,
               value_dim: int | None = None, want_max: bool = False,
               autocast: torch.dtype | None = None) -> tuple[Tensor, ...]:
    """(o, lse, lse_low, the largest logits). A result that is not wanted is an empty tensor."""
    refuse_tangents("attention", q, k, v, sink, table)
    binding = _binding(plan)
    shapes = binding.shapes
    o, (lse, low) = q.new_empty(shapes["o"]), (q.new_empty(shapes["lse"], dtype=torch.float32) for _ in range(2))
    most = q.new_full(shapes["max_logit"], -torch.inf, dtype=torch.float32) if want_max else None
    binding.run(FORWARD, (q, k, v, sink, table), (o, lse, low, most))
    return o, lse, low, lse.new_empty(0) if most is None else most.amax(0)


def _attention_backward(d_o: Tensor | None, d_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor | None, o: Tensor,
                        lse: Tensor, lse_low: Tensor, sink: Tensor | None, table: Tensor | None,
                        plan: Tensor) -> tuple[Tensor, ...]:
    """The gradients of q, k, v, sink and table. A result that is not wanted is an empty tensor."""
    refuse_tangents("attention", d_o, d_lse)
    binding, shared = _binding(plan), {"d_sink": sink, "d_table": table}
    if d_lse is not None and not binding.plan.lse_gradient:
        if d_lse.any():
            raise Error("E701", "attention: the loss depends on lse, and the plan has no gradient of it: "
                                "program(lse_gradient=True) has; lse.detach() needs none")
        d_lse = None  # a compiler's zeros
    d_o = torch.zeros_like(o) if d_o is None else d_o
    grads = _dense(q), _dense(k), None if v is None else _dense(v)
    of_ranks = [None if x is None else lse.new_zeros(binding.shapes[name]) for name, x in shared.items()]
    binding.run(BACKWARD, (q, k, v, sink, table, o, d_o, lse, lse_low, d_lse), (*grads, *of_ranks))
    dq, dk, dv = grads
    return dq, dk, q.new_empty(0) if dv is None else dv, *(lse.new_empty(0) if x is None else x.sum(0)
                                                           for x in of_ranks)


_library.impl("attention", _attention, "CompositeExplicitAutograd")
_library.impl("attention_backward", _attention_backward, "CompositeExplicitAutograd")


def _looks(q: Tensor, k: Tensor, v: Tensor | None, sink: Tensor | None, table: Tensor | None, plan: Tensor,
           value_dim: int | None = None, want_max: bool = False,
           autocast: torch.dtype | None = None) -> tuple[Tensor, ...]:
    """The shapes and dtypes of what _attention returns, for compilers."""
    rows, wide = q.shape[:2], value_dim if v is None else v.shape[2]
    if wide is None:
        raise Error("E209", "attention: there is no v, and no value_dim says how wide o is")
    lse, low = (q.new_empty(rows, dtype=torch.float32) for _ in range(2))
    most = lse.new_empty(rows[1] if want_max else 0)
    return q.new_empty([*rows, wide]), lse, low, most


def _looks_backward(d_o: Tensor | None, d_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor | None, o: Tensor,
                    lse: Tensor, lse_low: Tensor, sink: Tensor | None, table: Tensor | None,
                    plan: Tensor) -> tuple[Tensor, ...]:
    dv = q.new_empty(0) if v is None else _dense(v)
    return _dense(q), _dense(k), dv, *(lse.new_empty(0) if x is None else _dense(x) for x in (sink, table))


_torch_library.register_fake("fcpc::attention", _looks)
_torch_library.register_fake("fcpc::attention_backward", _looks_backward)


# Gradients. attention_backward has a derivative too, which raises an error: without it torch would take it for zero.

def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, sink, table, plan = inputs[:6]
    o, lse, low, most = output
    ctx.mark_non_differentiable(low, most)
    ctx.set_materialize_grads(False)  # None: the loss does not depend on it
    ctx.save_for_backward(q, k, v, o, lse, low, sink, table, plan)


def _differentiate(ctx: Any, *d: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, o, lse, low, sink, table, plan = ctx.saved_tensors
    dq, dk, dv, d_sink, d_table = _operator_backward(d[0], d[1], q, k, v, o, lse, low, sink, table, plan)
    return (dq, dk, None if v is None else dv, None if sink is None else d_sink, None if table is None else d_table,
            None, None, None, None)


def _refuse_second(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    raise Error("E702", "attention: there are no second derivatives: a gradient of attention cannot be differentiated "
                        "again (create_graph=True, torch.autograd.functional.hessian, torch.func.hessian). Detach it, "
                        "or compute this part with torch.nn.functional.scaled_dot_product_attention")


torch.library.register_autograd("fcpc::attention", _differentiate, setup_context=_keep)
torch.library.register_autograd("fcpc::attention_backward", _refuse_second)


# While a transform of torch.func is active, the operators are autograd Functions.

_NO_VMAP = ("attention: there is no torch.func.vmap of it, nor jacrev, jacfwd and hessian, which use vmap: one call "
            "computes all sequences of a batch, packed end to end. torch.autograd.functional.jacobian goes row by row")
_transformed = transformed("attention", _NO_VMAP, _operator, _keep, _differentiate)


def _transform(*inputs: Any) -> Any:
    device = inputs[0].device.type
    if device in _AUTOCAST and torch.is_autocast_enabled(device):
        return _AUTOCAST[device](*inputs)  # which comes back here, with autocast off
    return _transformed(*inputs)


_library.impl("attention", _transform, "FuncTorchDynamicLayerFrontMode")
_library.impl("attention_backward", transformed("attention", _NO_VMAP, _operator_backward,
                                                lambda ctx, inputs, output: None, _refuse_second),
              "FuncTorchDynamicLayerFrontMode")


# Autocast. torch.library.register_autocast casts all tensors to one dtype that is fixed when it is called. It would
# cast sinks and tables too, and does not know the plan. So there is a rule of our own: q, k and v are cast to the
# plan's dtype.

def _autocast_rule(device: str) -> Callable[..., Any]:
    def cast(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        if x is None or x.device.type != device or not x.is_floating_point() or x.dtype == torch.float64:
            return x  # as torch's own rules leave it
        return x.to(dtype)

    def rule(q: Tensor, k: Tensor, v: Tensor | None, sink: Tensor | None, table: Tensor | None, plan: Tensor,
             value_dim: int | None = None, want_max: bool = False, autocast: torch.dtype | None = None) -> Any:
        try:
            dtype = autocast or _binding(plan).dtype
        except RuntimeError as error:  # torch's own
            raise Error("E209", "attention: a compiler does not see the plan: under torch.autocast name its dtype, "
                                "torch.ops.fcpc.attention(..., autocast=torch.bfloat16)") from error
        inputs = *(cast(x, dtype) for x in (q, k, v)), *(cast(x, torch.float32) for x in (sink, table))
        with torch.autocast(device, enabled=False):
            return _operator(*inputs, plan, value_dim, want_max)
    return rule


_AUTOCAST = {device: _autocast_rule(device) for device in ("cpu", "cuda")}
_library.impl("attention", _AUTOCAST["cpu"], "AutocastCPU")
_library.impl("attention", _AUTOCAST["cuda"], "AutocastCUDA")
