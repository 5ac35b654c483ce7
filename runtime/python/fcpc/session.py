"""session.py: runs plans on tensors of any library that supports DLPack: numpy, CuPy, JAX, torch.

    session = fcpc.Session(plan)
    session.forward(q, k, v, o, lse)        # reads q, k, v; writes into o and lse, which the caller has made

fcpc.torch does the same for torch alone, with gradients. It uses what this file defines before `Session`.
"""
from __future__ import annotations

import ctypes
import itertools
import math
import os
import socket
import threading
from typing import Any, Protocol, Sequence

from ._c import (ALLOCATE, RELEASE, C, Me, Owner, check, fcp_allocator, fcp_error, fcp_session_options, fcp_start,
                 fcp_tensors)
from .batches import index_or_none
from .errors import Error, warn
from .interrupt import Interruption
from .plan import Plan
from .ranks import connection_id

FORWARD, BACKWARD = 0, 1        # fcp_pass
SHARED = ("sink", "table")      # parameters that all ranks have: what each has of their gradients is summed
VALUES = ("v", "dv")            # which a plan has unless its values are in its keys
FAR = 16384.0                   # beyond it float32 is so coarse that rounding changes exp by a thousandth or more
_NAMES = [field[0] for field in fcp_tensors._fields_]
_SIZES = {"fp32": 4, "fp16": 2, "bf16": 2}
_TYPES = {(2, 32): "fp32", (2, 16): "fp16", (4, 16): "bf16"}  # of DLPack: code and bits
_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13                  # its devices


class Tensor(Protocol):
    """A tensor of any library that has DLPack."""

    def __dlpack__(self, *arguments: Any, **more: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class Allocator(Protocol):
    """Where a session takes its device memory from: see Session."""

    def allocate(self, device: int, size: int, /) -> int | None: ...

    def release(self, device: int, address: int, /) -> None: ...


class Alone:
    """A lock that a call holds. A second thread, or a forked process, gets an error instead of a wrong result."""

    def __init__(self, what: str) -> None:
        self.what, self.process, self.lock = what, os.getpid(), threading.Lock()

    def here(self) -> bool:
        return os.getpid() == self.process

    def __enter__(self) -> None:
        if not self.here():
            raise Error("E203", f"this {self.what} belongs to another process: its threads were not forked with it")
        if not self.lock.acquire(blocking=False):
            raise Error("E203", f"this {self.what} is in use by another thread: each thread needs one of its own")

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class Places:
    """The shapes and dtypes of a plan's tensors, and where in them the rows of each rank of this process begin.

    needs   {name: (shape, dtype)}. Gradients of parameters that all ranks share, and largest logits, have a row for
            each rank
    """

    def __init__(self, plan: Plan) -> None:
        ranks, shared = len(plan.here), {"sink": plan.heads, "table": plan.table_numbers}
        queries, keys = (plan.tokens, plan.heads), (plan.key_tokens, plan.kv_heads)
        wide, narrow = (plan.head_dim,), (plan.value_dim,)
        self.needs: dict[str, tuple[tuple[int, ...], str]] = {
                      **dict.fromkeys(("q", "dq"), (queries + wide, plan.dtype)),
                      **dict.fromkeys(("k", "dk"), (keys + wide, plan.dtype)),
                      **dict.fromkeys(("o", "d_o"), (queries + narrow, plan.dtype)),
                      **dict.fromkeys(("lse", "lse_low", "d_lse"), (queries, "fp32")),
                      "max_logit": ((ranks, plan.heads), "fp32")}
        if not plan.values_in_keys:
            self.needs.update(dict.fromkeys(VALUES, (keys + narrow, plan.dtype)))
        for name in SHARED:
            self.needs[name] = (shared[name],), "fp32"
            self.needs["d_" + name] = (ranks, shared[name]), "fp32"
        begins = {name: self._begins(plan, name) for name in self.needs}
        begins.update(dict.fromkeys(SHARED, [0] * ranks))
        # C reads a structure fcp_tensors for each rank. They are filled as one array of pointers, which is faster. Here
        # is, for each tensor and rank, the place of the pointer in that array, and its offset from the tensor's address.
        self.pointers = len(_NAMES) * ranks
        self.places = {name: [(rank * len(_NAMES) + at, begin) for rank, begin in enumerate(begins[name])]
                       for at, name in enumerate(_NAMES) if name in begins}

    def _begins(self, plan: Plan, name: str) -> list[int]:
        """The offset in bytes, from the tensor's address, of the rows of each rank."""
        shape, dtype = self.needs[name]
        row = _SIZES[dtype]
        for size in shape[1:]:
            row *= size
        rows: Sequence[int] = plan.rank_keys if name in ("k", "dk", *VALUES) else plan.rank_queries
        if name[2:] in SHARED or name == "max_logit":
            rows = [1] * len(plan.here)
        return [count * row for count in itertools.accumulate(rows, initial=0)][:-1]

    def array(self) -> ctypes.Array[ctypes.c_void_p]:
        return (ctypes.c_void_p * self.pointers)()

    def point(self, array: ctypes.Array[ctypes.c_void_p], name: str, base: int) -> None:
        """Puts a tensor at address `base` into the array."""
        for place, begin in self.places[name]:
            array[place] = base + begin


class DeviceMemory:
    """The functions by which C takes device memory from an object with allocate(device, bytes) and release(device,
    address).

    An exception must not pass through C. If `allocate` raises one, C gets no memory and fails, and the exception is in
    `raised`. An exception of `release` goes to sys.unraisablehook.
    """

    def __init__(self, allocator: Allocator) -> None:
        self.raised: BaseException | None = None

        def allocate(_: Any, device: int, size: int) -> int | None:
            try:
                return allocator.allocate(device, size)
            except BaseException as error:
                self.raised = error
                return None

        def release(_: Any, device: int, address: int) -> None:
            allocator.release(device, address)
        self.options = fcp_allocator(None, ALLOCATE(allocate), RELEASE(release))  # holds both functions


class Options(fcp_session_options):
    """The options of a session, and all that they point to, which must live as long as the session."""
    memory: DeviceMemory | None = None
    interruption: Interruption
    id: Any = None
    port: socket.socket | None = None  # keeps the port of the id, until the session listens there
    start_record: fcp_start

    def create(self, plan: Plan, err: fcp_error) -> tuple[int, int | None]:
        """Makes a session of the plan: a code, which `check` must be called with, and the session or None."""
        made = ctypes.c_void_p()
        code = C["fcp_session_create"](plan._handle, ctypes.byref(self), ctypes.byref(made), ctypes.byref(err))
        if self.port and not code:
            self.port.close()
        return code, made.value

    def check(self, code: int, err: fcp_error) -> None:
        """Raises what a signal handler or the caller's allocator has raised during a call of C; else the error that C
        has returned, if it is one."""
        self.interruption.check()
        raised = None if self.memory is None else self.memory.raised
        if raised is None:
            check(code, err)
            return
        assert self.memory
        self.memory.raised = None
        try:
            check(code, err)
        except Error as error:
            if not isinstance(raised, Exception):
                raise raised  # the user has interrupted the program
            raise error from raised


def _number(name: str, given: Any) -> int:
    found = index_or_none(given)
    if found is None or not 0 <= found < 1 << 32:
        raise Error("E203", f"{name} is {given!r}: it is a whole number from 0 on, of at most 32 bits")
    return found


def session_options(group: Any, cuda: bool = False, device: int = 0, threads: int = 0, timeout: int = 0,
                    allocator: Allocator | None = None) -> Options:
    """The options of a session of a group. device: the GPU of this process. allocator: where device memory comes from,
    or None. After each call of C with these options their `check` must be called."""
    transport = None if group is None else b"nccl" if cuda else b"mpi" if group == "mpi" else b"tcp"
    options = Options(ctypes.sizeof(fcp_session_options), b"cuda" if cuda else b"host", transport,
                      compute_threads=_number("threads", threads), timeout_s=_number("timeout", timeout))
    device = _number("device", device)
    options.interruption = Interruption()
    options.interrupted = options.interruption.function
    if cuda:
        from . import libraries
        libraries.load()
    if cuda and allocator is not None:
        options.memory = DeviceMemory(allocator)
        options.allocator = options.memory.options
    if transport in (b"nccl", b"tcp"):
        rank, ranks, options.id, options.port = (0, 0, None, None) if group == "mpi" else connection_id(group, cuda)
        options.start_record = fcp_start(ctypes.sizeof(fcp_start), ranks, rank, device + 1 if cuda else 0,
                                         id=ctypes.addressof(options.id) if options.id else None)
        options.start = ctypes.addressof(options.start_record)
    return options


def words(shape: Sequence[int], dtype: str, device: object) -> str:
    """A description of a tensor, for messages."""
    return f"{list(shape)} of {dtype} on {device}"


# --- DLPack -----------------------------------------------------------------------------------------------------------

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def borrow(x: Tensor, stream: int | None = None) -> tuple[Any, _DLTensor]:
    """(capsule, DLTensor) of an object with __dlpack__. The tensor is borrowed as long as the capsule lives."""
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise Error("E701", f"a {type(x).__name__} has no __dlpack__: tensors come by DLPack")
    on_cuda = x.__dlpack_device__()[0] in (_CUDA, _MANAGED)
    try:
        capsule = x.__dlpack__(stream=stream) if on_cuda and stream is not None else x.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Error("E701", f"a {type(x).__name__} is not to be had by DLPack: {error}") from None
    return capsule, _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))


def _device(t: _DLTensor) -> str:
    name = {_CPU: "cpu", _CUDA: "cuda", _PINNED: "pinned memory", _MANAGED: "cuda"}.get(t.device_type)
    return name or f"device kind {t.device_type}"


def _dense(t: _DLTensor, shape: tuple[int, ...]) -> bool:
    """Is the tensor contiguous? The strides of dimensions of size 1, and of empty tensors, do not matter."""
    if not t.strides:
        return True
    stride = 1
    for at in reversed(range(t.ndim)):
        if shape[at] != 1 and t.strides[at] != stride:
            return 0 in shape
        stride *= shape[at]
    return True


def largest_of(lse: Tensor) -> float:
    """The largest magnitude in a dense tensor of float32 in host memory, without -inf, which rows without keys have."""
    capsule, t = borrow(lse)
    count = math.prod(t.shape[i] for i in range(t.ndim))
    if t.device_type not in (_CPU, _PINNED) or (t.code, t.bits) != (2, 32) or not count:
        return 0.0  # whoever reads the tensor says what is wrong with it
    numbers = memoryview((ctypes.c_float * count).from_address((t.data or 0) + t.byte_offset)).cast("B").cast("f")
    least = min(numbers)
    if least == -math.inf:
        least = min((x for x in numbers if x != -math.inf), default=0.0)
    return max(-least, max(numbers))


def warn_of_low(largest: float, instead: str) -> None:
    """Warns that LSE is so large that float32 is too coarse for it. It points to the caller of the public function."""
    if FAR <= largest < math.inf:
        step = 2.0 ** (math.frexp(largest)[1] - 24)
        warn(f"lse is up to {largest:.6g}, where float32 has steps of {step:.3g}: exp(x - lse) may be off by a factor "
             f"of {math.exp(min(step / 2, 700.0)):.6g}. {instead}", stacklevel=3)


class Running(Owner):
    """The common base of Session and Attention: owns a session of C, which one thread of one process may use at a
    time."""

    def __init__(self) -> None:
        self._session: int | None = None
        self._closed = False
        self._alone, self._error = Alone(type(self).__name__), fcp_error()

    def __del__(self) -> None:
        if getattr(self, "_session", None) and C and self._alone.here():
            C["fcp_session_free"](self._session)

    def close(self) -> None:
        with self._alone:
            if self._session is not None:
                C["fcp_session_free"](self._session)
            self._session, self._closed = None, True

    def __enter__(self: Me) -> Me:
        self._refuse_closed()  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Error("E203", f"this {type(self).__name__} is closed")


class Session(Running):
    """Runs a plan on tensors of any library that has DLPack (numpy, CuPy, JAX, torch), without gradients of its own.

    plan      an fcpc.Plan
    backend   "host", or "cuda" for NVIDIA GPUs
    group     None: all ranks are in this process. Else a process group of torch.distributed, or "mpi": each process is
              a rank, as in fcpc.torch
    device    with "cuda" and a group: the number of this process's GPU
    threads, timeout   as in fcpc.torch.Attention
    allocator  with "cuda", the source of the session's device memory; None: the driver. It is an object with two
              methods. allocate(device, bytes) returns an address that is a multiple of 256, of memory that no work in
              any stream still uses; None, 0 or an exception mean that there is none. release(device, address) gives
              memory back. Both are called in the thread that uses or closes the session

    `forward` and `backward` run the plan's passes on tensors of the caller's, dense, in the plan's order and dtype:

    q, dq           [plan.tokens, heads, head_dim]
    o, d_o          [plan.tokens, heads, value_dim]
    k, dk           [plan.key_tokens, kv_heads, head_dim]
    v, dv           [plan.key_tokens, kv_heads, value_dim]; None where the values are in the keys
    lse             [plan.tokens, heads], float32

    By keyword, and only where they are wanted:

    lse_low         like lse: the rounding error of lse. `forward` writes it, and `backward` reads it. If lse is large,
                    float32 is too coarse for it: beyond 16384 gradients are wrong by a thousandth or more without
                    lse_low, and beyond 1e9 each of n keys may get the weight 1 instead of 1/n. `backward` on the host
                    warns (fcpc.Warning) if it would have needed it
    d_lse           like lse: a gradient of lse, which `backward` reads, for programs with lse_gradient
    max_logit       a row of [heads] for each rank of this process, float32: `forward` writes the largest logit of the
                    rows that each rank has finished, without the sink; -inf if there are none. The batch's is the
                    maximum over all ranks
    sink, table     [heads] and [plan.table_numbers], float32, of this run; d_sink, d_table: a row for each rank of this
                    process, float32. Only where the program has sinks or tables of reals

    With "cuda" a tensor is in host memory or in that of a GPU; on a GPU the rows of each rank begin at a multiple of 4
    bytes. `stream` (an address, as cudaStream_t; 0 is the legacy stream) is the stream to which the run is appended.
    Without it, tensors must be ready when the call begins, and the run has ended when it returns. If the stream is
    being captured, the run becomes a part of that graph, and each launch of the graph is a run; then tensors are in
    device memory, and the graph must be destroyed before the session.

    An output must not overlap another tensor of the run. A session belongs to one process, and one thread may use it at
    a time; otherwise E203.

    Ctrl-C ends a run on the host within 0.2 s, and with a group also the wait for other ranks; so does any exception of
    a signal handler. Outputs are then undefined. Without a group the session can be used again. With one it refuses
    further runs, and the other ranks get E703 as if this process had ended.

    `close`, the end of a `with` block, or the end of the object give back the session's threads, memory and
    connections.

    Errors: E701 (shape, dtype, strides or device), E702 (no GPU), E703, E203 (another argument; closed); E012 (no
    memory), whose __cause__ is what the allocator raised.
    """

    def __init__(self, plan: Plan, backend: str = "host", group: Any = None, device: int = 0, threads: int = 0,
                 timeout: int = 0, allocator: Allocator | None = None) -> None:
        super().__init__()
        if not isinstance(plan, Plan):
            raise Error("E203", f"Session: a plan is expected, and a {type(plan).__name__} is none: prog.plan(lengths) "
                                "makes one")
        if backend not in ("host", "cuda"):
            raise Error("E702", f'there is no backend "{backend}": there are host and cuda')
        if not (group is None or isinstance(group, str) or hasattr(group, "size") or group == -100):  # torch's for others
            raise Error("E706", f"Session: {group!r} is no group: it is None, 'mpi', or one of torch.distributed")
        if allocator is not None and not (hasattr(allocator, "allocate") and hasattr(allocator, "release")):
            raise Error("E203", f"Session: a {type(allocator).__name__} is no allocator: it needs the methods allocate "
                                "and release")
        self.plan, self._cuda, self._places = plan, backend == "cuda", Places(plan)
        self._options = session_options(group, self._cuda, device, threads, timeout, allocator)
        code, self._session = self._options.create(plan, self._error)
        self._options.check(code, self._error)

    def close(self) -> None:
        """Ends the session: gives back its threads, memory and connections. Then runs are an error (E203). To close
        twice is no error."""
        super().close()

    def forward(self, q: Tensor, k: Tensor, v: Tensor | None, o: Tensor, lse: Tensor, stream: int | None = None,
                **more: Tensor | None) -> None:
        """Attention: reads q, k and v, and writes o and lse, and lse_low and max_logit if they are there.

        stream   with "cuda", the address of the CUDA stream to which the run is appended; None: it has ended on return
        more     lse_low, max_logit, sink, table: see Session

        Errors: E701 (a tensor that does not fit the plan), E209 (a name that no tensor has), E705 (the plan has no such
        pass), E203 (the session is closed, or in use), E703 (it failed, or has been interrupted before).
        """
        self._run(FORWARD, {"q": q, "k": k, "v": v, "o": o, "lse": lse, **more}, stream)

    def backward(self, q: Tensor, k: Tensor, v: Tensor | None, o: Tensor, lse: Tensor, d_o: Tensor, dq: Tensor,
                 dk: Tensor, dv: Tensor | None, stream: int | None = None, **more: Tensor | None) -> None:
        """The gradients of attention: reads what `forward` has read and written, and d_o, the gradient of o; writes dq,
        dk and dv, and d_sink and d_table if they are there.

        stream   as in `forward`
        more     lse_low, d_lse, sink, d_sink, table, d_table: see Session

        Errors: as in `forward`.
        """
        self._run(BACKWARD, {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": d_o, "dq": dq, "dk": dk, "dv": dv,
                             **more}, stream)
        if more.get("lse_low") is None and not self._cuda and lse is not None:
            warn_of_low(largest_of(lse), "session: pass lse_low, which forward writes, to backward, too")

    def wait(self) -> None:
        """Waits until all runs in streams have ended, at most for the session's timeout. On the host there is nothing
        to wait for. Errors: E703, also if a run before has failed; E203."""
        with self._alone:
            self._refuse_closed()
            self._options.check(C["fcp_session_wait"](self._session, ctypes.byref(self._error)), self._error)

    def _run(self, which: int, tensors: dict[str, Tensor | None], stream: int | None) -> None:
        self._refuse_closed()
        if stream is not None:
            address = index_or_none(stream)
            if address is None:
                raise Error("E203", f"session: a {type(stream).__name__} is no stream: its address is wanted, such as "
                                    "torch.cuda.current_stream().cuda_stream")
            stream = address or 1  # the legacy stream's own name
        array, held = self._places.array(), []
        for name, x in tensors.items():
            if x is not None:
                held.append(self._put(array, name, x, stream))
        with self._alone:
            self._refuse_closed()
            if stream is None:
                code = C["fcp_session_run"](self._session, which, array, ctypes.byref(self._error))
            else:
                code = C["fcp_session_run_on"](self._session, which, array, stream, ctypes.byref(self._error))
            self._options.check(code, self._error)

    def _put(self, array: ctypes.Array[ctypes.c_void_p], name: str, x: Tensor, stream: int | None) -> Any:
        """Puts a tensor into the array, if it fits; returns what keeps it."""
        if name in VALUES and self.plan.values_in_keys:
            raise Error("E701", f"session: there is no {name}: the values are the first {self.plan.value_dim} numbers "
                                "of the keys. It is None")
        if name not in self._places.needs:
            raise Error("E209", f"session: there is no tensor '{name}'")
        capsule, t = borrow(x, stream)
        shape, dtype = self._places.needs[name]
        got = tuple(t.shape[i] for i in range(t.ndim))
        is_type = _TYPES.get((t.code, t.bits)) if t.lanes == 1 else None
        fits = t.device_type in ((_CPU, _CUDA, _PINNED, _MANAGED) if self._cuda else (_CPU, _PINNED))
        if got != shape or is_type != dtype or not fits:
            where = "cpu or cuda" if self._cuda else "cpu"
            raise Error("E701", f"session: {name} is {words(got, is_type or 'another type', _device(t))}; the plan "
                                f"needs {words(shape, dtype, where)}")
        if not _dense(t, shape):
            raise Error("E701", f"session: {name} is not dense: its strides are {list(t.strides[:t.ndim])}")
        self._places.point(array, name, (t.data or 0) + t.byte_offset)
        return capsule
