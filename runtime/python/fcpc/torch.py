"""torch.py: attention as PyTorch calls it: an operator with gradients, which torch.compile takes whole.

    attn = Attention(prog, group=group)             # once; group None: all ranks in this process
    for batch, plan in prog.ahead(loader):
        x = plan.take(batch.tokens)
        loss = model(x, plan.positions(), attn.bind(plan))      # in a layer: o = attention(q, k, v)
        loss.backward()

The plan goes through the graph as a tensor that holds its number. So torch.compile does not see which plan it is, and a
new plan in each step compiles nothing anew; and what autograd has saved for a backward pass finds the plan of its own
forward pass, whatever was bound since: under activation checkpointing, and with several micro-batches in flight.
"""
import ctypes
import itertools
import weakref

import torch
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from ._c import C, Owner, check, fcp_error
from .errors import Error
from .session import BACKWARD, FORWARD, VALUES, Alone, Places, session_options, warn_of_low, words

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_OWN_BATCH = 0xFFFFFFFF     # FCP_OWN_BATCH
# What a forward pass and a backward pass read and write, in the order in which _Binding.run takes it.
_INPUTS = ("q", "k", "v", "sink", "table"), ("q", "k", "v", "sink", "table", "o", "d_o", "lse", "lse_low", "d_lse")
_OUTPUTS = ("o", "lse", "lse_low", "max_logit"), ("dq", "dk", "dv", "d_sink", "d_table")

_bound = {}  # number -> _Binding, as long as the tensor lives that holds the number
_numbers = itertools.count(1)


class Attention(Owner):
    """Runs the plans of a program. It holds the session: threads, memory, connections and plans.

    prog      an fcpc.Program; its plans are what `bind` takes
    group     None: all ranks live in this process.
              A process group of torch.distributed: each of its processes is a rank. They find each other through the
              store that init_process_group has made, and then have connections of their own, so that any backend of
              the group will do.
              "mpi": each process that mpirun has started is a rank.
    device    where tensors are and attention is computed: "cpu", or "cuda" for NVIDIA GPUs. With a group "cuda" is the
              current device, unless it has a number ("cuda:1"); without one, ranks take turns on all of them
    threads   how many threads may compute at once; 0: one for each processor, or this process's share of them
    timeout   seconds that a wait may last in which nothing goes on; 0: 120

    With "cuda" its device memory comes from torch's caching allocator. If there is too little, `bind` raises E012,
    whose __cause__ is what torch says.

    Where ranks are processes, all of them make their Attention, bind their plans and run them in the same order, and
    sum the gradients of sinks and tables among themselves, as of any parameter that they share. It belongs to one
    process and is used by one thread at a time; otherwise E203.
    """

    def __init__(self, prog, group=None, device="cpu", threads=0, timeout=0):
        self._prog, self._alone, self._error = prog, Alone("Attention"), fcp_error()
        self.device = torch.device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise Error("E702", f"attention: there is no backend for {self.device}: there are cpu and cuda")
        cuda = self.device.type == "cuda"
        number = _current_device(self.device) if cuda and group is not None else 0
        self._options = session_options(group, cuda, number, threads, timeout, _Caching() if cuda else None)
        self._here = prog.here if group is not None else None
        self._session, self._plans, self._free = None, [], []  # _free: numbers of session plans that nobody uses
        self._selected = 0  # the number of the plan that the session would run

    def __del__(self):
        if getattr(self, "_session", None) and C and self._alone.here():
            C["fcp_session_free"](self._session)

    def bind(self, plan, layer=0):
        """Attention of one batch: a function (q, k, v=None, sink=None, tables=None, return_lse=False,
        return_max=False) -> o.

        layer  of a program with `layers`, the number of the mask in that list, from 0

        q      [plan.tokens, heads, head_dim] in the plan's order, in the program's dtype
        k      [plan.key_tokens, kv_heads, head_dim], likewise
        v      [plan.key_tokens, kv_heads, value_dim], likewise; left out where the program's values are in its keys:
               the gradient of k then has both
        o      [plan.tokens, heads, value_dim], likewise
        sink   [heads], float32: a logit of each head in every softmax, in place of what the program says, with a
               gradient; the program must have one (sink=0.0 will do)
        tables {name: tensor}, float32, each of the shape that the program gives it: tables of reals that the score
               reads, with gradients. Those that are not named have the program's numbers
        return_lse   True: the result is (o, lse). lse is [plan.tokens, heads] in float32, the natural logarithm of the
               sum of exponentials; -inf, or the sink, in a row that sees no key. A loss may depend on it if the program
               has lse_gradient=True; else its backward pass is an error (E701). Here float32 is enough for gradients,
               because what rounding took from lse is kept beside it. Who computes with lse has it no more: beyond 16384
               exp(x - lse) is off by a thousandth or more. On the CPU that is a RuntimeWarning
        return_max   True: the largest logit of each head comes last, [heads] in float32, without gradient: of the rows
               that this process's ranks have finished, with the score and without the sink; -inf if there are none.
               Where ranks are processes, dist.all_reduce(most, dist.ReduceOp.MAX, group=group) is the batch's

        Other strides than those of a dense tensor are copied first. A row that sees no key has o = 0. Errors: E701
        (shape, dtype or device), E203 (a plan of another program: heads, ranks, ...), E703.
        """
        if plan.program not in (self._prog, None):
            raise Error("E203", "bind: the plan is of another program than this Attention")
        if layer not in range(len(plan.layers)):
            raise Error("E203", f"bind: there is no layer {layer}: the plan has {len(plan.layers)}, counted from 0")
        plan = plan.layers[layer]
        here = range(plan.ranks) if self._here is None else self._here
        if plan.here != here:
            raise Error("E203", f"bind: the plan is for ranks {list(plan.here)}, and this process runs {list(here)}")
        check = self._options.check
        with self._alone:
            slot, err = self._take_slot(), self._error
            if self._session is None:
                made = ctypes.c_void_p()
                check(C["fcp_session_create"](plan._handle, ctypes.byref(self._options), ctypes.byref(made),
                                              ctypes.byref(err)), err)
                self._session, slot = made.value, 0
                self._plans.append(plan)
            elif slot is None:
                number = ctypes.c_uint32()
                check(C["fcp_session_add"](self._session, plan._handle, _OWN_BATCH, ctypes.byref(number),
                                           ctypes.byref(err)), err)
                slot = number.value
                self._plans.append(plan)
            else:
                code = self._select(slot)
                code = code or C["fcp_session_rebind"](self._session, plan._handle, ctypes.byref(err))
                if code:
                    self._free.append(slot)
                    check(code, err)
                self._plans[slot] = plan
        return BoundAttention(_Binding(self, slot, plan))

    def _select(self, slot):
        """Makes a plan the one that the session runs. Most calls run the plan of the call before."""
        code = 0 if slot == self._selected else C["fcp_session_select"](self._session, slot, ctypes.byref(self._error))
        if not code:
            self._selected = slot
        return code

    def _take_slot(self):
        """The number of a session's plan that nobody uses any more; None: there is none. All processes take the same:
        when a plan is given up depends on when each collects its garbage, so they tell each other."""
        if self._session is None or self._here is None:
            return self._free.pop() if self._free else None
        mine, err = (ctypes.c_uint8 * 64)(), fcp_error()
        every = (ctypes.c_uint8 * (64 * C["fcp_session_processes"](self._session)))()
        for slot in self._free:
            if slot < 512:
                mine[slot // 8] |= 1 << slot % 8
        check(C["fcp_session_gather"](self._session, mine, 64, every, ctypes.byref(err)), err)
        for slot in range(min(512, len(self._plans))):
            if all(every[at + slot // 8] >> slot % 8 & 1 for at in range(0, len(every), 64)):
                self._free.remove(slot)
                return slot
        return None


class BoundAttention(Owner):
    """What `Attention.bind` gives, for one plan: attention(q, k, v=None, sink=None, tables=None, return_lse=False,
    return_max=False) -> o."""

    def __init__(self, binding):
        self.plan, self._own = binding.plan, binding.tables
        self._value_dim = binding.plan.value_dim if binding.plan.values_in_keys else None  # no v says it
        self.number = torch.tensor(next(_numbers))
        number = int(self.number)
        _bound[number] = binding
        weakref.finalize(self.number, binding.end, number).atexit = False

    def __call__(self, q, k, v=None, sink=None, tables=None, return_lse=False, return_max=False):
        table = self._together(tables) if tables else None
        o, lse, _, most = _operator(q, k, v, sink, table, self.number, self._value_dim, return_max)
        if not return_lse:
            return (o, most) if return_max else o
        if not torch.compiler.is_compiling() and lse.is_cpu and type(lse) is torch.Tensor:
            warn_of_low(_largest(lse), "Inside of attention no gradient suffers")
        return (o, lse, most) if return_max else (o, lse)

    def _together(self, tables):
        """All tables of the plan as C takes them: in one tensor, in the plan's order."""
        for name, x in tables.items():
            own = self._own.get(name)
            if own is None or x.shape != own.shape:
                raise Error("E701", f"attention: the score reads no table '{name}' of shape {list(x.shape)}: it reads "
                                    f"{ {n: list(t.shape) for n, t in self._own.items()} }")
        return torch.cat([tables.get(name, own).flatten() for name, own in self._own.items()])


class _Binding:
    """A plan in its place in a session, and where in a tensor of all tokens the rows of each rank begin."""

    def __init__(self, attention, slot, plan):
        self.attention, self.slot, self.plan = attention, slot, plan
        self.device, self.cuda = attention.device, attention.device.type == "cuda"
        places = self.places = Places(plan)
        needs = {name: (name, shape, _DTYPES[dtype], places.places[name])
                 for name, (shape, dtype) in places.needs.items()}
        needs.update((name, (name, None, None, ())) for name in VALUES if name not in needs)
        self.shapes = {name: shape for name, (shape, _) in places.needs.items()}
        self.takes = [[needs[name] for name in names] for names in _INPUTS]
        self.gives = [[places.places.get(name, ()) for name in names] for names in _OUTPUTS]
        self.tables = {name: torch.frombuffer(doubles, dtype=torch.float64).float().view(shape).to(self.device)
                       for name, (shape, doubles) in plan.tables.items()}

    def end(self, number):
        """Nobody holds the number any more: no pass of this plan will come."""
        _bound.pop(number, None)
        self.attention._free.append(self.slot)

    def run(self, which, inputs, outputs):
        """Runs a pass. inputs, outputs: the tensors of all tokens that _INPUTS and _OUTPUTS name; None is left out."""
        array, copies = self.places.array(), []
        for x, (name, shape, dtype, places) in zip(inputs, self.takes[which]):
            if x is None:
                continue
            if shape is None:
                raise Error("E701", f"attention: there is no {name}: the values are the first {self.plan.value_dim} "
                                    "numbers of the keys")
            if x.shape != shape or x.dtype != dtype or not _is_on(x, self.cuda):
                raise Error("E701", f"attention: {name} is {words(x.shape, _type(x.dtype), x.device.type)}; the plan "
                                    f"needs {words(shape, _type(dtype), self.device.type)}")
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
            code = attention._select(self.slot)
            if not code and self.cuda:
                code = _run_on_cuda(attention, which, array)
            elif not code:
                code = C["fcp_session_run"](attention._session, which, array, ctypes.byref(attention._error))
            if code:
                attention._options.check(code, attention._error)


def _type(dtype):
    return str(dtype).removeprefix("torch.")


# Without a GPU no test can run what these say of CUDA: keep them small.

class _Caching:
    """The allocator of torch, so that a session and torch share what a GPU has, and do not compete for it.

    torch frees memory for a stream: what it hands out in the current stream is free there, though work that is in the
    stream may still use it. The session has other streams, so this waits for that work. The session gives memory back
    when its streams have ended, so any stream of torch may have it next.
    """

    def allocate(self, device, size):
        stream = torch.cuda.current_stream(device)
        address = torch.cuda.caching_allocator_alloc(size, device, stream)
        stream.synchronize()
        return address

    def release(self, device, address):
        torch.cuda.caching_allocator_delete(address)


def _is_on(x, cuda):
    return x.is_cuda if cuda else x.is_cpu


def _current_device(device):
    return torch.cuda.current_device() if device.index is None else device.index


def _run_on_cuda(attention, which, array):
    """Puts a pass into the current stream. torch calls the legacy stream 0, and the driver calls it 1."""
    with torch.cuda.device(attention.device):
        stream = torch.cuda.current_stream().cuda_stream or 1
        return C["fcp_session_run_on"](attention._session, which, array, stream, ctypes.byref(attention._error))


def _binding(number):
    binding = _bound.get(int(number))
    if binding is None:
        raise Error("E203", "attention: there is no such plan any more, or it was bound in another process")
    return binding


def _largest(lse):
    """The largest magnitude of a tensor; rows without keys do not count."""
    finite = lse.detach()[lse.isfinite()]
    return finite.abs().max().item() if len(finite) else 0.0


def _dense(x):
    """A tensor that looks like x, and whose rows lie behind each other."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


# --- the operators ----------------------------------------------------------------------------------------------------

_library = torch.library.Library("fcpc", "DEF")
_library.define("attention(Tensor q, Tensor k, Tensor? v, Tensor? sink, Tensor? table, Tensor plan, "
                "SymInt? value_dim=None, bool want_max=False) -> (Tensor o, Tensor lse, Tensor lse_low, Tensor most)")
_library.define("attention_backward(Tensor? d_o, Tensor? d_lse, Tensor q, Tensor k, Tensor? v, Tensor o, Tensor lse, "
                "Tensor lse_low, Tensor? sink, Tensor? table, Tensor plan) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")


def _attention(q, k, v, sink, table, plan, value_dim=None, want_max=False):
    """(o, lse, lse_low, the largest logits); value_dim is for who knows no plan. What nobody wants has no numbers."""
    binding = _binding(plan)
    shapes = binding.shapes
    o, (lse, low) = q.new_empty(shapes["o"]), (q.new_empty(shapes["lse"], dtype=torch.float32) for _ in range(2))
    most = q.new_full(shapes["max_logit"], -torch.inf, dtype=torch.float32) if want_max else None
    binding.run(FORWARD, (q, k, v, sink, table), (o, lse, low, most))
    return o, lse, low, lse.new_empty(0) if most is None else most.amax(0)


def _attention_backward(d_o, d_lse, q, k, v, o, lse, lse_low, sink, table, plan):
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
    return *grads[:2], q.new_empty(0) if v is None else grads[2], *(lse.new_empty(0) if x is None else x.sum(0)
                                                                    for x in of_ranks)


_library.impl("attention", _attention, "CompositeExplicitAutograd")
_library.impl("attention_backward", _attention_backward, "CompositeExplicitAutograd")


@torch.library.register_fake("fcpc::attention")
def _(q, k, v, sink, table, plan, value_dim=None, want_max=False):
    rows = q.shape[:2]
    lse, low = (q.new_empty(rows, dtype=torch.float32) for _ in range(2))
    most = lse.new_empty(rows[1] if want_max else 0)
    return q.new_empty((*rows, value_dim if v is None else v.shape[2])), lse, low, most


@torch.library.register_fake("fcpc::attention_backward")
def _(d_o, d_lse, q, k, v, o, lse, lse_low, sink, table, plan):
    dv = q.new_empty(0) if v is None else _dense(v)
    return _dense(q), _dense(k), dv, *(lse.new_empty(0) if x is None else _dense(x) for x in (sink, table))


class _Differentiable(torch.autograd.Function):
    """Attention with gradients."""

    @staticmethod
    def forward(ctx, keys, q, k, v, sink, table, plan, value_dim, want_max):
        o, lse, low, most = _below_autograd(keys, q, k, v, sink, table, plan, value_dim, want_max)
        ctx.mark_non_differentiable(low, most)
        ctx.set_materialize_grads(False)  # None: the loss does not depend on it
        ctx.save_for_backward(q, k, v, o, lse, low, sink, table, plan)
        return o, lse, low, most

    @staticmethod
    @once_differentiable
    def backward(ctx, d_o, d_lse, *_):
        q, k, v, o, lse, low, sink, table, plan = ctx.saved_tensors
        dq, dk, dv, d_sink, d_table = torch.ops.fcpc.attention_backward(d_o, d_lse, q, k, v, o, lse, low, sink, table,
                                                                        plan)
        return (None, dq, dk, None if v is None else dv, None if sink is None else d_sink,
                None if table is None else d_table, None, None, None)


def _below_autograd(keys, q, k, v, sink, table, plan, value_dim, want_max):
    """What the operator does below its gradients. keys: the set of those who are to see this call, one after the other.
    Mostly the device alone is left. Else there is a tracer, of shapes or of a graph, and torch calls that one."""
    keys &= _BELOW
    if keys.raw_repr() in _COMPUTES:
        return _attention(q, k, v, sink, table, plan, value_dim, want_max)
    return _operator.redispatch(keys, q, k, v, sink, table, plan, value_dim, want_max)


def _autograd(keys, q, k, v, sink, table, plan, value_dim=None, want_max=False):
    """What the operator does first. torch.library.register_autograd would do the same, with more work in each call."""
    if forward_ad._current_level >= 0 and any(x is not None and forward_ad.unpack_dual(x).tangent is not None
                                              for x in (q, k, v, sink, table)):
        raise Error("E702", "attention: there are no derivatives in forward mode (torch.func.jvp, forward_ad)")
    if torch.is_grad_enabled() and torch._C._any_requires_grad(q, k, v, sink, table):
        return _Differentiable.apply(keys, q, k, v, sink, table, plan, value_dim, want_max)
    return _below_autograd(keys, q, k, v, sink, table, plan, value_dim, want_max)


_BELOW = torch._C._after_autograd_keyset
_COMPUTES = {torch._C.DispatchKeySet(key).raw_repr() for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)}
_operator = torch.ops.fcpc.attention.default
_library.impl("attention", _autograd, "Autograd", with_keyset=True)
