"""torch_cuda.py: what fcpc's Python package gives for tensors on CUDA. Run by torch_cuda.c, a step of gpu-check; needs
PyTorch with CUDA, and for some cases transformers.

The cases of torch_cases.py are run on the CPU, whose results the tests compare with float64, and on the device, and the
results of both are compared. Cases of CUDA alone (streams, graphs, memory, NCCL, torch.compile) check themselves. For
each case it prints a line as soon as it is known:

    begin NAME -    right NAME MARGIN    wrong NAME REASON    skip NAME REASON
    fact NAME VALUE    note NAME TEXT    none torch REASON

MARGIN is the largest error in parts of what is allowed. Arguments are the names of cases that are known already. After
an error of CUDA the process has no device any more, and ends; it is then started again for the other cases.
"""
import contextlib
import gc
import os
import sys
import tempfile
import time
import traceback
import warnings

# The root of the mean square of errors, in parts of that of the values: a few roundings of bf16, and those of several
# layers.
NEAR, NEAR_OF_MODELS = 1e-2, 5e-2
CUDA_CASES = {}


def say(kind, name, text):
    print(kind, name, " ".join(str(text).split()), flush=True)


try:
    import torch

    import fcpc
    from fcpc.torch import Attention
    from torch_cases import CASES, DIM, HEADS, KV_HEADS, WORDS, Drawn, Skip, logits_of, net, program
except Exception as error:
    say("none", "torch", f"{type(error).__name__}: {error}")
    sys.exit()


def cuda_case(function):
    CUDA_CASES[function.__name__] = function
    return function


# --- of CUDA alone ----------------------------------------------------------------------------------------------------

def a_step(device, plan, tokens=1000):
    """(run, leaves): run() computes o and the gradients of a batch on the device."""
    draw = Drawn(device)
    leaves = [plan.take(draw(tokens, h, DIM, grad=False)).requires_grad_() for h in (HEADS, KV_HEADS, KV_HEADS)]
    d_o = plan.take(draw(tokens, HEADS, DIM, grad=False))

    def run(bound):
        o = bound(*leaves)
        return [o.detach(), *torch.autograd.grad(o, leaves, d_o)]
    return run, leaves


def assert_same(got, want, what):
    for name, x, y in zip(("o", "dq", "dk", "dv"), got, want, strict=True):
        if not torch.equal(x, y):
            raise AssertionError(f"{what}: {name} has other bits, at {int((x != y).sum())} of {x.numel()} numbers")


@contextlib.contextmanager
def another_stream():
    """Work in here is behind that of the current stream, and before what follows there."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


@cuda_case
def the_same_bits(device):
    """Two runs, on the current stream and on another one behind work that takes long."""
    prog = program(ranks=2)
    plan = prog.plan([700, 300])
    run, leaves = a_step(device, plan)
    with Attention(prog, device=device) as attention:
        bound = attention.bind(plan)
        want = run(bound)
        assert_same(run(bound), want, "a second run")
        big, right = torch.randn(4096, 4096, device=device), [x.detach().clone() for x in leaves]
        with torch.no_grad():
            for x in leaves:
                x.fill_(7)
        with another_stream():
            for _ in range(50):
                big = big @ big * 1e-3
            with torch.no_grad():  # attention must wait for this, which is behind the products
                for x, y in zip(leaves, right):
                    x.copy_(y)
            got = run(bound)
            copies = [x.clone() for x in got]  # and this for attention
        assert_same(copies, want, "a run on another stream")


@cuda_case
def graphs(device):
    """A captured step, launched on other inputs."""
    prog = program(ranks=2)
    plan = prog.plan([700, 300])
    run, leaves = a_step(device, plan)
    with Attention(prog, device=device) as attention:
        bound = attention.bind(plan)
        with another_stream():
            for _ in range(2):
                run(bound)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = run(bound)
        for times in (1.0, -0.5, 2.0):
            with torch.no_grad():
                for x in leaves:
                    x.mul_(times)
            graph.replay()
            got = [x.clone() for x in made]
            assert_same(got, run(bound), f"a graph, inputs times {times}")
        del graph, made


@cuda_case
def compiled(device):
    """torch.compile takes the whole layer, and a new plan compiles nothing anew."""
    prog = program(ranks=2)
    weights, count = net(device), []

    def counting(module, inputs):
        from torch._inductor.compile_fx import compile_fx
        count.append(1)
        return compile_fx(module, inputs)
    try:
        step = torch.compile(logits_of, backend=counting, fullgraph=True, dynamic=True)
        step_of = {}
        with Attention(prog, device=device) as attention:
            for lengths in ([120, 80], [150, 20, 30]):
                plan = prog.plan(lengths)
                tokens = plan.take(Drawn(device).words(200))
                for name, run in ("compiled", step), ("eager", logits_of):
                    logits = run(weights, tokens, plan.positions(tokens), attention.bind(plan))
                    grads = torch.autograd.grad(logits.float().square().sum(), list(weights.values()))
                    step_of[name] = [logits, *grads]
                compare(step_of["compiled"], step_of["eager"])
    except Exception as error:
        if type(error).__module__.startswith("torch._") and "ompiler" in str(error):  # no C compiler, or no Triton
            raise Skip(error) from None
        raise
    if len(count) != 1:
        raise AssertionError(f"compiled {len(count)} times")


@cuda_case
def memory(device):
    """Memory is torch's, goes back to it, and is missing with E012 and torch's error."""
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    prog = program(ranks=2)
    plan = prog.plan([60000])
    with Attention(prog, device=device) as attention:
        attention.bind(plan)
        held = torch.cuda.memory_allocated() - before
        if held <= 0:
            raise AssertionError("a bound plan holds nothing of torch's memory")
    gc.collect()
    after = torch.cuda.memory_allocated() - before
    if after:
        raise AssertionError(f"{after} of {held} bytes were not given back")
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + held / 4) / total)
    try:
        with Attention(prog, device=device) as attention:
            attention.bind(plan)
    except fcpc.Error as error:
        if error.code != "E012" or not isinstance(error.__cause__, torch.cuda.OutOfMemoryError):
            raise AssertionError(f"{error.code}, caused by {error.__cause__!r}") from error
    else:
        raise AssertionError("a fourth of the memory was enough")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@cuda_case
def nccl(device):
    """A group of one process, whose messages go by NCCL; rows and log-probabilities of all ranks."""
    import torch.distributed as dist
    if not dist.is_nccl_available():
        raise Skip("PyTorch has no NCCL")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            group = dist.group.WORLD
            prog = program(cluster=fcpc.detect(group))
            plan = prog.plan([700, 300])
            run, _ = a_step(device, plan)
            alone = program(ranks=1)
            with Attention(prog, group=group, device=device) as attention, Attention(alone, device=device) as other:
                got = run(attention.bind(plan))
                assert_same(got, run(other.bind(alone.plan([700, 300]))), "over NCCL")
                if not torch.equal(plan.restore(got[0], group=group), plan.restore(got[0])):
                    raise AssertionError("restore by NCCL gives other rows")
                if not (plan.restore(got[0].float().cpu().numpy(), group=group) == plan.restore(
                        got[0].float().cpu().numpy())).all():
                    raise AssertionError("restore of an array gives other rows")
            forest = fcpc.forest([[1, 2, 3, 4], [1, 2, 5]])
            shared = program("causal and q <= last[k]", fields=["last"], cluster=fcpc.detect(group)).plan(forest)
            logits = Drawn(device)(shared.tokens, WORDS, dtype=torch.float32)
            for x, y in zip(forest.logprobs(logits, shared, group), forest.logprobs(logits, shared)):
                if not torch.equal(x, y):
                    raise AssertionError("log-probabilities by NCCL are others")
        finally:
            dist.destroy_process_group()


@cuda_case
def time_of_a_call(device):
    """Milliseconds of forward and backward passes, 16K causal, 16 query and 4 KV heads of 128: of fcpc from Python, one
    rank, and of PyTorch's attention. And what a call takes on the CPU."""
    n, heads, kv_heads, dim = 16384, 16, 4, 128
    prog = fcpc.program("causal", heads=heads, kv_heads=kv_heads, head_dim=dim, cluster=fcpc.detect(ranks=1))
    plan, draw = prog.plan([n]), Drawn(device)
    q, k, v = (plan.take(draw(n, h, dim, grad=False)).requires_grad_() for h in (heads, kv_heads, kv_heads))
    d_o = plan.take(draw(n, heads, dim, grad=False))

    def torchs(q, k, v):
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return o[0].transpose(0, 1)
    with Attention(prog, device=device) as attention:
        for name, attend in ("fcpc", attention.bind(plan)), ("sdpa", torchs):
            times, host = [], []
            for _ in range(12):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda.synchronize()
                began = time.perf_counter()
                a.record()
                torch.autograd.grad(attend(q, k, v), (q, k, v), d_o)
                b.record()
                host.append(1e3 * (time.perf_counter() - began))
                torch.cuda.synchronize()
                times.append(a.elapsed_time(b))
            say("fact", f"torch.{name}.causal.16384.both", sorted(times)[len(times) // 2])
            say("fact", f"torch.{name}.host", sorted(host)[len(host) // 2])


# --- running ----------------------------------------------------------------------------------------------------------

def compare(got, want, near=NEAR):
    """The largest error, in parts of what is allowed."""
    if len(got) != len(want):
        raise AssertionError(f"{len(got)} results, and {len(want)} on the CPU")
    most = 0.0
    for i, (x, y) in enumerate(zip(got, want)):
        if x.shape != y.shape or x.dtype != y.dtype:
            raise AssertionError(f"result {i} is {list(x.shape)} of {x.dtype}, and on the CPU {list(y.shape)} of "
                                 f"{y.dtype}")
        x, y = x.detach().cpu().double(), y.detach().cpu().double()
        if not torch.equal(x.isinf(), y.isinf()) or x.isnan().any():
            raise AssertionError(f"result {i} has other infinities, or is no number somewhere")
        x, y = (z.masked_fill(z.isinf(), 0) for z in (x, y))
        if not x.numel():
            continue
        error = float((x - y).square().mean().sqrt() / (y.square().mean().sqrt() + 1e-12))
        most = max(most, error / near)
        if most > 1:
            far = int((x - y).abs().argmax())
            raise AssertionError(f"result {i}, {list(x.shape)}: the error is {error:.2e} of its size; at {far} of "
                                 f"{x.numel()} numbers {float(x.flatten()[far])} and not {float(y.flatten()[far])}")
    return most


def lost(error):
    """Has this process lost its device? Then all that follows fails, too."""
    return "CUDA error" in str(error) or "CUDA_ERROR" in str(error) or \
        isinstance(error, getattr(torch, "AcceleratorError", ()))


def run(name, device):
    """Runs a case, and returns whether others can follow."""
    say("begin", name, "-")
    try:
        if name in CUDA_CASES:
            CUDA_CASES[name](device)
            torch.cuda.synchronize()
            say("right", name, 0)
            return True
        near = NEAR_OF_MODELS if name.startswith("transformers") else NEAR
        want = CASES[name]("cpu")
        got = CASES[name](device)
        for x in got:
            if x.device.type != device:
                raise AssertionError(f"a result is on {x.device}")
        say("right", name, f"{compare(got, want, near):.3f}")
    except Skip as error:
        say("skip", name, str(error)[:200] or type(error).__name__)
    except Exception as error:  # the next case may be right
        where = traceback.extract_tb(error.__traceback__)[-1]
        say("wrong", name, f"{type(error).__name__}: {str(error)[:300]} "
                           f"({os.path.basename(where.filename)}:{where.lineno})")
        traceback.print_exc()
        return not lost(error)
    return True


def main():
    if not torch.cuda.is_available():
        say("none", "torch", f"PyTorch {torch.__version__} sees no CUDA device")
        return
    warnings.simplefilter("ignore", fcpc.Warning)  # some plans are meant to have ranks without tokens
    say("note", "torch", f"PyTorch {torch.__version__}, fcpc {fcpc.__version__}")
    for name in [*CASES, *CUDA_CASES]:
        if name not in sys.argv[1:] and not run(name, "cuda"):
            return
    say("note", "end", "all")


if __name__ == "__main__":
    main()
