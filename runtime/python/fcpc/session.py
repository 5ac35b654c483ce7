"""session.py: runs plans on tensors of any library that speaks DLPack: numpy, CuPy, JAX, torch.

    session = fcpc.Session(plan)
    session.forward(q, k, v, o, lse)        # reads q, k, v; writes into o and lse, which the caller has made

fcpc.torch does the same for torch alone, with gradients; it shares what is below `Session` here.
"""
import ctypes
import itertools
import math
import os
import threading

from ._c import ALLOCATE, RELEASE, C, Owner, check, fcp_allocator, fcp_error, fcp_session_options, fcp_start, fcp_tensors
from .errors import Error, warn
from .ranks import connection_id

FORWARD, BACKWARD = 0, 1        # fcp_pass
SHARED = ("sink", "table")      # parameters that all ranks have: what each has of their gradients is summed
VALUES = ("v", "dv")            # which a plan has unless its values are in its keys
FAR = 16384.0                   # from here on steps of float32 are so large that half of one changes exp by a thousandth
_NAMES = [name for name, _ in fcp_tensors._fields_]
_SIZES = {"fp32": 4, "fp16": 2, "bf16": 2}
_TYPES = {(2, 32): "fp32", (2, 16): "fp16", (4, 16): "bf16"}  # of DLPack: code and bits
_CPU, _CUDA, _PINNED, _MANAGED = 1, 2, 3, 13                  # its devices


class Alone:
    """A lock for one call. Two threads, or a process that was forked, get an error instead of a wrong result."""

    def __init__(self, what):
        self.what, self.process, self.lock = what, os.getpid(), threading.Lock()

    def here(self):
        return os.getpid() == self.process

    def __enter__(self):
        if not self.here():
            raise Error("E203", f"this {self.what} belongs to another process: its threads were not forked with it")
        if not self.lock.acquire(blocking=False):
            raise Error("E203", f"this {self.what} is in use by another thread: each thread needs one of its own")

    def __exit__(self, *_):
        self.lock.release()


class Places:
    """What the tensors of a plan look like, and where in them the rows of each rank of this process begin.

    needs   {name: (shape, dtype)}; gradients of what all ranks share, and largest logits, have a row for each rank
    """

    def __init__(self, plan):
        ranks, shared = len(plan.here), {"sink": plan.heads, "table": plan.table_numbers}
        queries, keys = (plan.tokens, plan.heads), (plan.key_tokens, plan.kv_heads)
        wide, narrow = (plan.head_dim,), (plan.value_dim,)
        self.needs = {**dict.fromkeys(("q", "dq"), (queries + wide, plan.dtype)),
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
        # C reads an fcp_tensors for each rank. They are filled as one array of pointers, which is faster. Here is where
        # in it the pointers to each tensor stand, and how far behind the tensor's begin each points.
        self.pointers = len(_NAMES) * ranks
        self.places = {name: [(rank * len(_NAMES) + at, begin) for rank, begin in enumerate(begins[name])]
                       for at, name in enumerate(_NAMES) if name in begins}

    def _begins(self, plan, name):
        """How many bytes behind the tensor's begin the rows of each rank begin."""
        shape, dtype = self.needs[name]
        row = _SIZES[dtype]
        for size in shape[1:]:
            row *= size
        rows = plan.rank_keys if name in ("k", "dk", *VALUES) else plan.rank_queries
        if name[2:] in SHARED or name == "max_logit":
            rows = [1] * len(plan.here)
        return [count * row for count in itertools.accumulate(rows, initial=0)][:-1]

    def array(self):
        return (ctypes.c_void_p * self.pointers)()

    def point(self, array, name, base):
        """Puts a tensor at address `base` into the array."""
        for place, begin in self.places[name]:
            array[place] = base + begin


class DeviceMemory:
    """What C calls to have device memory from an object with allocate(device, bytes) and release(device, address).

    An exception must not go through C, so `allocate` then has none to give: C fails, and `check` raises C's error
    from the exception. What `release` raises nobody waits for; ctypes hands it to sys.unraisablehook.
    """

    def __init__(self, allocator):
        self.raised = None

        def allocate(_, device, size):
            try:
                return allocator.allocate(device, size)
            except BaseException as error:
                self.raised = error
                return None

        def release(_, device, address):
            allocator.release(device, address)
        self.options = fcp_allocator(None, ALLOCATE(allocate), RELEASE(release))  # holds both functions

    def check(self, code, err):
        """Raises the error that a C function has returned, unless it is none."""
        raised, self.raised = self.raised, None
        try:
            check(code, err)
        except Error as error:
            if raised is not None and not isinstance(raised, Exception):
                raise raised  # the user has interrupted the program
            raise error from raised


def session_options(group, cuda=False, device=0, threads=0, timeout=0, allocator=None):
    """The options of a session of a group; they hold what they point to, and live as long as the session. device: of
    this process, with cuda. allocator: where device memory comes from, or None."""
    for name, number in ("threads", threads), ("timeout", timeout):
        if not 0 <= number < 1 << 32:
            raise Error("E203", f"{name} is {number}: it is a number from 0 on, of at most 32 bits")
    transport = None if group is None else b"nccl" if cuda else b"mpi" if group == "mpi" else b"tcp"
    options = fcp_session_options(ctypes.sizeof(fcp_session_options), b"cuda" if cuda else b"host", transport,
                                  compute_threads=threads, timeout_s=timeout)
    if cuda:
        from . import libraries
        libraries.load()
    options.check = check
    if cuda and allocator is not None:
        options.memory = DeviceMemory(allocator)
        options.allocator, options.check = options.memory.options, options.memory.check
    if transport in (b"nccl", b"tcp"):
        rank, ranks, options.id = (0, 0, None) if group == "mpi" else connection_id(group, cuda)
        options.held = fcp_start(ctypes.sizeof(fcp_start), ranks, rank, device + 1 if cuda else 0,
                                 id=ctypes.addressof(options.id) if options.id else None)
        options.start = ctypes.addressof(options.held)
    return options


def words(shape, dtype, device):
    """A tensor's looks, for messages."""
    return f"{list(shape)} of {dtype} on {device}"


# --- DLPack -----------------------------------------------------------------------------------------------------------

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes, _pointer_of.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def borrow(x, stream=None):
    """(capsule, DLTensor) of an object with __dlpack__. The capsule is not consumed: with it ends the loan."""
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise Error("E701", f"a {type(x).__name__} has no __dlpack__: tensors come by DLPack")
    on_cuda = x.__dlpack_device__()[0] in (_CUDA, _MANAGED)
    try:
        capsule = x.__dlpack__(stream=stream) if on_cuda and stream is not None else x.__dlpack__()
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Error("E701", f"a {type(x).__name__} is not to be had by DLPack: {error}") from None
    return capsule, _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))


def _device(t):
    name = {_CPU: "cpu", _CUDA: "cuda", _PINNED: "pinned memory", _MANAGED: "cuda"}.get(t.device_type)
    return name or f"device kind {t.device_type}"


def _dense(t, shape):
    """Do rows lie behind each other? Dimensions of one entry, and tensors without any, may have any strides."""
    if not t.strides:
        return True
    stride = 1
    for at in reversed(range(t.ndim)):
        if shape[at] != 1 and t.strides[at] != stride:
            return 0 in shape
        stride *= shape[at]
    return True


def largest_of(lse):
    """The largest magnitude of a dense tensor of float32 in host memory; rows without keys do not count."""
    capsule, t = borrow(lse)
    count = math.prod(t.shape[i] for i in range(t.ndim))
    if t.device_type not in (_CPU, _PINNED) or (t.code, t.bits) != (2, 32) or not count:
        return 0.0  # whoever reads the tensor says what is wrong with it
    numbers = memoryview((ctypes.c_float * count).from_address((t.data or 0) + t.byte_offset)).cast("B").cast("f")
    least = min(numbers)
    if least == -math.inf:
        least = min((x for x in numbers if x != -math.inf), default=0.0)
    return max(-least, max(numbers))


def warn_of_low(largest, instead):
    """Warns of an LSE that says too little. stacklevel: who called the function that was called."""
    if FAR <= largest < math.inf:
        step = 2.0 ** (math.frexp(largest)[1] - 24)
        warn(f"lse is up to {largest:.6g}, where float32 has steps of {step:.3g}: exp(x - lse) may be off by a factor "
             f"of {math.exp(min(step / 2, 700.0)):.6g}. {instead}", stacklevel=3)


class Session(Owner):
    """Runs a plan on tensors of any library that has DLPack (numpy, CuPy, JAX, torch), without gradients of its own.

    plan      an fcpc.Plan
    backend   "host", or "cuda" for NVIDIA GPUs
    group     None: all ranks live in this process. Else a process group of torch.distributed, or "mpi": each process is
              a rank, as in fcpc.torch
    device    with "cuda" and a group: the number of this process's GPU
    threads, timeout   as in fcpc.torch.Attention
    allocator  with "cuda", where the session takes its device memory from: an object with two methods. allocate(device,
              bytes) returns an address, a multiple of 256, in memory that no work in any stream still uses; None or 0:
              there is none, and so does an exception. release(device, address) gives it back. None: the driver's
              memory. Both are called in the thread that uses the session, or lets it go

    `forward(q, k, v, o, lse)` reads q, k, v and writes o and lse. `backward(q, k, v, o, lse, d_o, dq, dk, dv)` writes
    dq, dk, dv. All of them are the caller's, dense, in the plan's order and dtype:

    q, dq           [plan.tokens, heads, head_dim]
    o, d_o          [plan.tokens, heads, value_dim]
    k, dk           [plan.key_tokens, kv_heads, head_dim]
    v, dv           [plan.key_tokens, kv_heads, value_dim]; None where the values are in the keys
    lse             [plan.tokens, heads], float32

    By keyword, and only where they are wanted:

    lse_low         as lse. `forward` writes what rounding took from lse, and `backward` reads it. Where lse is large,
                    float32 has no room for the logarithm of a sum of n equal terms: beyond 16384 the gradients are off
                    by a thousandth or more without lse_low, and beyond 1e9 each key may weigh 1 in place of 1/n.
                    `backward` on the host warns (fcpc.Warning) if it would have needed it
    d_lse           as lse: a gradient of lse, which `backward` reads, of programs with lse_gradient
    max_logit       a row of [heads] for each rank of this process, float32: `forward` writes the largest logit of the
                    rows that each rank has finished, without the sink; -inf where it has none. The largest of all ranks
                    is the batch's
    sink, table     [heads] and [plan.table_numbers], float32, of this run; d_sink, d_table: a row for each rank of this
                    process, float32. Only where the program has sinks or tables of reals

    With "cuda" a tensor lies in host memory or in that of a GPU; there what each rank has of it begins at a multiple of
    4 bytes. `stream` (an address, as cudaStream_t; 0 is the legacy stream) is where the run is put, behind what is
    there; without it the run has ended when the call returns, and tensors must be ready when it begins. If the stream
    is being captured, the run becomes a part of that graph, and each launch of the graph is a run; tensors then lie in
    device memory, and the graph ends before the session.

    No output overlaps another tensor of the run. A session belongs to one process and is used by one thread at a time;
    otherwise E203.

    Errors: E701 (shape, dtype, strides or device), E702 (no GPU), E703, E203; E012 (no memory), whose __cause__ is what
    the allocator raised.
    """

    def __init__(self, plan, backend="host", group=None, device=0, threads=0, timeout=0, allocator=None):
        if backend not in ("host", "cuda"):
            raise Error("E702", f'there is no backend "{backend}": there are host and cuda')
        self.plan, self._cuda, self._places, self._error = plan, backend == "cuda", Places(plan), fcp_error()
        self._alone = Alone("Session")
        self._options = session_options(group, self._cuda, device, threads, timeout, allocator)
        made = ctypes.c_void_p()
        self._options.check(C["fcp_session_create"](plan._handle, ctypes.byref(self._options), ctypes.byref(made),
                                                    ctypes.byref(self._error)), self._error)
        self._session = made.value

    def __del__(self):
        if getattr(self, "_session", None) and C and self._alone.here():
            C["fcp_session_free"](self._session)

    def forward(self, q, k, v, o, lse, stream=None, **more):
        self._run(FORWARD, {"q": q, "k": k, "v": v, "o": o, "lse": lse, **more}, stream)

    def backward(self, q, k, v, o, lse, d_o, dq, dk, dv, stream=None, **more):
        self._run(BACKWARD, {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": d_o, "dq": dq, "dk": dk, "dv": dv,
                             **more}, stream)
        if more.get("lse_low") is None and not self._cuda and lse is not None:
            warn_of_low(largest_of(lse), "session: pass lse_low, which forward writes, to backward, too")

    def wait(self):
        """Waits for everything that runs have put into streams."""
        with self._alone:
            check(C["fcp_session_wait"](self._session, ctypes.byref(self._error)), self._error)

    def _run(self, which, tensors, stream):
        if stream is not None:
            stream = stream or 1  # the legacy stream's own name
        array, held = self._places.array(), []
        for name, x in tensors.items():
            if x is not None:
                held.append(self._put(array, name, x, stream))
        with self._alone:
            if stream is None:
                code = C["fcp_session_run"](self._session, which, array, ctypes.byref(self._error))
            else:
                code = C["fcp_session_run_on"](self._session, which, array, stream, ctypes.byref(self._error))
            self._options.check(code, self._error)

    def _put(self, array, name, x, stream):
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
