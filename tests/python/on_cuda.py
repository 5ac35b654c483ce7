"""on_cuda.py: what a process of test_session.py does on the driver, NVRTC and NCCL of tests/machines/standin. Their
device memory is memory of this process, so numpy reads and writes it. Says [NAME] for each thing that is so."""
import ctypes
import gc
import os
import sys
import tempfile
import unittest.mock

import numpy

import fcpc
from fcpc import libraries
from fcpc._c import fcp_error
from fcpc.session import _DLTensor

HEADS, KV_HEADS, DIM = 4, 2, 16
SHAPES = {"scalar": (2,), "vector": (2, 8), "matrix": (2, 8, 8)}  # of decays
FLOAT = {2: 16, 4: 32}  # bits of a number's bytes
driver = ctypes.CDLL(os.environ["FCP_CUDA_DRIVER"])


def say(what):
    print(f"[{what}]", flush=True)


def driver_call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, f"{name}: {result}"


def begin_device(number=0):
    """Makes the primary context of a device current, as a program that has tensors there has done."""
    context = ctypes.c_void_p()
    driver_call("cuInit", 0)
    driver_call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    driver_call("cuCtxSetCurrent", context)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class OnDevice:
    """An array in device memory, which others see by DLPack alone."""

    def __init__(self, like):
        address = ctypes.c_uint64()
        driver_call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(like.nbytes, 1)))
        memory = (ctypes.c_char * like.nbytes).from_address(address.value)
        self.array, self.streams = numpy.frombuffer(memory, like.dtype).reshape(like.shape), []
        self.array[...] = like
        self.shape = (ctypes.c_int64 * like.ndim)(*like.shape)
        self.managed = _Managed(_DLTensor(address.value, 2, 0, like.ndim, 2, FLOAT[like.itemsize], 1, self.shape, None,
                                          0))

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return make(ctypes.addressof(self.managed), b"dltensor", None)


def a_program(cluster, **more):
    return fcpc.program("causal", heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="fp16", block=128,
                        cluster=cluster, sink=0.0, score="s + slope[h] * (k - q) / 16.0",
                        tables={"slope": [0.5] * HEADS}, lse_gradient=True, **more)


def draw(plan):
    """The tensors of a plan: inputs in the order of the packed batch, and outputs."""
    drawn = numpy.random.default_rng(3)
    q, d_o = (drawn.standard_normal((plan.global_tokens, HEADS, DIM)).astype("float16") for _ in range(2))
    k, v = (drawn.standard_normal((plan.global_tokens, KV_HEADS, DIM)).astype("float16") for _ in range(2))
    return q, k, v, d_o


def both_passes(session, inputs, make, put=lambda run: run(), **stream):
    """o, lse, all gradients and the largest logits of a session whose tensors `make` makes of arrays; they are waited
    for. put: does the runs. Of the last three each rank has a row."""
    plan = session.plan
    q, k, v, d_o = (make(plan.take(x)) for x in inputs)
    o, dq = (make(numpy.zeros((plan.tokens, HEADS, DIM), "float16")) for _ in range(2))
    dk, dv = (make(numpy.zeros((plan.tokens, KV_HEADS, DIM), "float16")) for _ in range(2))
    lse, low, d_table, d_sink, most = (make(numpy.zeros((rows, HEADS), "float32"))
                                       for rows in 2 * [plan.tokens] + 3 * [len(plan.here)])
    d_lse = make(plan.take(inputs[3])[..., 0].astype("float32"))
    sink, slope = (make(numpy.array(x, "float32")) for x in ([0.5, -1, 2, 0], [0.25, 1, 0, -0.5]))

    def run():
        shared = dict(sink=sink, table=slope, **stream)
        session.forward(q, k, v, o, lse, lse_low=low, max_logit=most, **shared)
        session.backward(q, k, v, o, lse, d_o, dq, dk, dv, lse_low=low, d_lse=d_lse, d_sink=d_sink, d_table=d_table,
                         **shared)
    put(run)
    session.wait()
    return [getattr(x, "array", x) for x in (o, lse, dq, dk, dv, d_table, d_sink, most)], q


def by_graph(stream):
    """What makes a graph of runs on a stream, as torch.cuda.graph does, and launches it twice."""
    def put(run):
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        driver_call("cuStreamBeginCapture_v2", stream, 0)
        try:
            run()
        finally:
            driver_call("cuStreamEndCapture", stream, ctypes.byref(graph))
        driver_call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
        for _ in range(2):
            driver_call("cuGraphLaunch", made, stream)
        driver_call("cuGraphExecDestroy", made)
        driver_call("cuGraphDestroy", graph)
    return put


def assert_near(got, want):
    for a, b in zip(got, want):
        a, b = a.astype("float32"), b.astype("float32")
        assert numpy.isfinite(a).all() and abs(a - b).max() < 4e-3 * max(1, abs(b).max()), abs(a - b).max()


def use_plan(plan):
    """Tells the driver which plan its kernels are of."""
    path = os.path.join(tempfile.gettempdir(), f"{plan.digest}.{os.getpid()}.plan")
    plan.save(path)
    os.environ["STANDIN_PLAN"] = path


def alone():
    """All ranks in this process: tensors in host memory and on the device, by the session and by a stream."""
    plan = a_program(fcpc.detect(ranks=2)).plan([150, 90])
    use_plan(plan)
    begin_device()
    inputs = draw(plan)
    want, _ = both_passes(fcpc.Session(plan), inputs, numpy.array)
    session = fcpc.Session(plan, backend="cuda")
    assert_near(both_passes(session, inputs, numpy.array)[0], want)
    say("host memory")
    got, q = both_passes(session, inputs, OnDevice)
    assert_near(got, want)
    assert q.streams == [None, None]
    say("device memory")
    again, q = both_passes(session, inputs, OnDevice, stream=0)
    assert q.streams == [1, 1], "the legacy stream has a name of its own"
    assert all((a == b).all() for a, b in zip(got, again))
    stream = ctypes.c_void_p()
    driver_call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
    again, q = both_passes(session, inputs, OnDevice, stream=stream.value)
    assert q.streams == [stream.value, stream.value] and all((a == b).all() for a, b in zip(got, again))
    say("streams")
    again, _ = both_passes(session, inputs, OnDevice, by_graph(stream), stream=stream.value)
    assert all((a == b).all() for a, b in zip(got, again))
    try:
        both_passes(session, inputs, numpy.array, by_graph(stream), stream=stream.value)
    except fcpc.Error as error:
        assert error.code == "E701" and "captured" in error.message, error
    else:
        raise AssertionError("a graph with tensors in host memory")
    say("graphs")


class Pool:
    """An allocator, which notes what it has given. fail_at: the call with this number raises."""

    def __init__(self, fail_at=0):
        self.given, self.calls, self.fail_at = {}, 0, fail_at

    def allocate(self, device, size):
        self.calls += 1
        if self.calls == self.fail_at:
            raise MemoryError("the pool is empty")
        address = ctypes.c_uint64()
        driver_call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self.given[address.value] = device
        return address.value

    def release(self, device, address):
        assert self.given.pop(address) == device
        driver_call("cuMemFree_v2", ctypes.c_uint64(address))


def allocators():
    """Device memory from an object: all of it goes back, and what it raises is the cause of an error with a code."""
    plan = a_program(fcpc.detect(ranks=2)).plan([150, 90])
    use_plan(plan)
    begin_device()
    inputs, pool = draw(plan), Pool()
    want, _ = both_passes(fcpc.Session(plan, backend="cuda"), inputs, numpy.array)
    session = fcpc.Session(plan, backend="cuda", allocator=pool)
    gc.collect()  # nothing but the session holds what C calls
    got, _ = both_passes(session, inputs, numpy.array)
    assert all((a == b).all() for a, b in zip(got, want))
    assert len(pool.given) > 10 and set(pool.given.values()) == {0, 1}
    del session
    assert not pool.given
    say("allocator")
    for at in range(1, pool.calls + 1):
        short = Pool(at)
        try:
            both_passes(fcpc.Session(plan, backend="cuda", allocator=short), inputs, numpy.array)
        except fcpc.Error as error:
            assert error.code == "E012" and "the allocator has no" in error.message, error
            assert isinstance(error.__cause__, MemoryError), error.__cause__
        else:
            assert False, "nobody has noticed"
        gc.collect()
        assert not short.given, (at, short.given)
    say("no memory")


class TorchPool(Pool):
    """The functions of torch.cuda that fcpc.torch calls for memory, on the driver that stands in."""

    def __init__(self):
        super().__init__()
        self.stream, self.waited = unittest.mock.Mock(), []
        self.stream.synchronize = lambda: self.waited.append(True)

    def caching_allocator_alloc(self, size, device, stream):
        assert stream is self.stream
        return self.allocate(device, size)

    def caching_allocator_delete(self, address):
        self.release(self.given[address], address)

    def current_stream(self, device):
        return self.stream


def by_torch():
    """The operator of torch hands its tensors over by their addresses. Tensors on CUDA need a GPU: here those of the
    CPU are said to be such, and the stream is the legacy one. The driver finds out where they are."""
    import torch
    import fcpc.torch as ours
    prog = a_program(fcpc.detect(ranks=2))
    plan, results = prog.plan([150, 90]), []
    use_plan(plan)
    begin_device()
    inputs = [torch.from_numpy(x) for x in draw(plan)]
    ours._is_on = lambda x, cuda: x.is_cpu
    ours._run_on_cuda = lambda attention, which, array, kept: ours.C["fcp_session_run_on"](
        attention._session, which, array, 1, ctypes.byref(attention._error))
    pool = TorchPool()
    for name in ("caching_allocator_alloc", "caching_allocator_delete", "current_stream"):
        unittest.mock.patch.object(torch.cuda, name, getattr(pool, name)).start()
    for device in ("cpu", "cuda"):
        with unittest.mock.patch.object(torch.Tensor, "to", lambda x, device: x):  # tables stay here, too
            attention = ours.Attention(prog, device=device).bind(plan)
        assert bool(pool.given) == (device == "cuda") and len(pool.waited) == pool.calls
        q, k, v = (plan.take(x).requires_grad_() for x in inputs[:3])
        sink, slope = (torch.tensor(x).requires_grad_() for x in ([0.5, -1, 2, 0], [0.25, 1, 0, -0.5]))
        o = attention(q, k, v, sink, {"slope": slope})
        o.backward(plan.take(inputs[3]))
        results.append([x.detach().numpy() for x in (o, q.grad, k.grad, v.grad, sink.grad, slope.grad)])
    assert_near(results[1], results[0])
    assert any((a != b).any() for a, b in zip(*results)), "these are other kernels"
    del attention, o, q, k, v, sink, slope
    gc.collect()
    assert not pool.given, "what torch gave is torch's again"
    say("torch")
    layers_by_torch()


def layers_by_torch():
    """Halos and scans on CUDA have the results and gradients of the CPU."""
    import torch
    import fcpc.scans
    import fcpc.torch as ours
    prog = fcpc.program(layers=["causal", fcpc.Halo(2, 1), *(fcpc.Scan(2, 8, 8, decay) for decay in SHAPES)], heads=HEADS,
                        kv_heads=KV_HEADS, head_dim=DIM, cluster=fcpc.detect(ranks=2), block=32)
    plan, results = prog.plan([150, 90]), []
    use_plan(plan)
    fcpc.scans.is_on = lambda x, cuda: x.is_cpu
    ours._stream_of = lambda device: 1
    for device in ("cpu", "cuda"):
        with unittest.mock.patch.object(torch.Tensor, "to", lambda x, device: x):
            attention = ours.Attention(prog, device=device).bind(plan)
        torch.manual_seed(0)
        count, found = len(plan.stretches()), []
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(plan.tokens, 6, dtype=dtype, requires_grad=True)
            packed = attention.halo(x, 2, 1)
            packed.backward(torch.randn_like(packed))
            found += [packed, x.grad]
        for shape in SHAPES.values():
            decay, state = torch.rand(count, *shape, requires_grad=True), torch.randn(count, 2, 8, 8, requires_grad=True)
            entering = attention.scan(decay, state)
            entering.backward(torch.randn_like(entering))
            found += [entering, decay.grad, state.grad]
        fcpc._c.C["fcp_session_wait"](ours._binding(attention.number).attention._session, ctypes.byref(fcp_error()))
        results.append([x.detach().float() for x in found])
    for got, want in zip(*results):
        assert torch.allclose(got, want, rtol=1e-4, atol=1e-5) and want.abs().max() > 0
    say("layers")
    stream = ctypes.c_void_p()
    driver_call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
    ours._stream_of = lambda device: stream.value
    layers_by_graph(attention, stream)
    say("layers in a graph")


def layers_by_graph(attention, stream):
    """Halos and scans that were captured give in each launch what they gave outside. torch works on the CPU here, and
    is in no graph: so the halo is that of the session, without the tensor that torch makes of it."""
    import torch
    import fcpc.scans
    from fcpc._c import fcp_halo_rank
    of, plan = fcpc.scans.binding(attention.number), attention.plan
    count, (tokens, stretches) = len(plan.stretches()), fcpc.scans._begins(of)

    def there(x):
        return torch.from_numpy(OnDevice(x.numpy()).array)
    x, halo = there(torch.randn(plan.tokens, 5)), there(torch.zeros(count, 3, 5))
    array = (fcp_halo_rank * len(tokens))(*(fcp_halo_rank(x.data_ptr() + a * 20, halo.data_ptr() + b * 60)
                                            for a, b in zip(tokens, stretches)))
    inputs = [(there(torch.rand(count, *shape)), there(torch.randn(count, 2, 8, 8))) for shape in SHAPES.values()]
    made = [halo, *(there(torch.zeros_like(state)) for _, state in inputs)]  # a capture takes no memory of the driver

    def run():
        fcpc.scans._call(of, "fcp_session_halo", 0, 20, array)
        for each, result in zip(inputs, made[1:]):
            with unittest.mock.patch.object(torch, "empty_like", lambda x: result):
                attention.scan(*each)

    def wait():
        fcpc._c.C["fcp_session_wait"](of.attention._session, ctypes.byref(fcp_error()))
        return [y.clone() for y in made]
    try:
        by_graph(stream)(run)
    except fcpc.Error as error:
        assert "the halo of layer 0 has not been called like this before" in error.message, error
    else:
        raise AssertionError("the first halo of rows of 20 bytes is in a graph")
    run()
    want = wait()
    for y in made:
        y.zero_()
    by_graph(stream)(run)
    assert all(torch.equal(a, b) and b.abs().max() > 0 for a, b in zip(wait(), want))


def by_nccl():
    """Two processes, one rank each, which find each other through a group's store. NCCL is what is loaded already."""
    import torch.distributed as dist
    rank, store = int(os.environ["RANK"]), os.environ["STORE"]
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    group = dist.group.WORLD
    whole = a_program(fcpc.detect(ranks=2)).plan([150, 90])
    mine = a_program(fcpc.detect(group)).plan([150, 90])
    assert mine.digest == whole.digest and list(mine.here) == [rank]
    use_plan(mine)
    inputs, (first, end) = draw(whole), (sum(whole.rank_queries[:rank]), sum(whole.rank_queries[:rank + 1]))
    want, _ = both_passes(fcpc.Session(whole), inputs, numpy.array)
    begin_device(rank)
    session = fcpc.Session(mine, backend="cuda", group=group, device=rank)
    for make in (numpy.array, OnDevice):
        got, _ = both_passes(session, inputs, make)
        assert_near(got, [x[first:end] for x in want[:-3]] + [x[rank:rank + 1] for x in want[-3:]])
    say("nccl")
    dist.barrier(group)
    os._exit(0)  # as in ranks.py


def libraries_of_packages():
    """NCCL is the one that this process has loaded, and NVRTC that of a package, whatever else the machine has."""
    from fcpc._c import C
    made, err = ctypes.create_string_buffer(128), fcp_error()
    packaged, nccl = os.environ["PACKAGED"], os.environ["NCCL"]
    ctypes.CDLL(nccl)
    with unittest.mock.patch("site.getsitepackages", lambda: [os.environ["PACKAGES"]]):
        assert libraries.load() == [packaged, nccl]
    assert C["fcp_start_id"](made, ctypes.byref(err)) == 0, err.message
    plan = a_program(fcpc.detect(ranks=1)).plan([100])
    fcpc.Session(plan, backend="cuda")
    with open("/proc/self/maps") as maps:
        mapped = {line.split()[-1] for line in maps if "libnvrtc.so" in line or "libnccl.so" in line}
    assert mapped == {packaged, nccl}, mapped
    say("libraries")


def libraries_without_pathfinder():
    """Then the system's are used, and where it has none the error says who knows more."""
    sys.modules["cuda.pathfinder"] = None
    assert libraries.load() == []
    try:
        fcpc.Session(a_program(fcpc.detect(ranks=1)).plan([100]), backend="cuda")
    except fcpc.Error as error:
        assert error.code == "E702" and "NVRTC is not there" in error.message, error
        assert "pip install cuda-pathfinder" in error.message, error
    else:
        raise AssertionError("a system without NVRTC")
    say("no pathfinder")


if __name__ == "__main__":
    for what in sys.argv[1:]:
        globals()[what]()
