"""Measures what the Python package costs, for the rows of bench_python.c: one line a row, with tabs between its parts.

Usage: bench_python.py LENGTHS, a file with a length on each line. What is compared is measured in turns, and the
medians are compared.
"""
import ctypes
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("FCPC_LIBRARIES", str(ROOT / "build"))
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(ROOT / "runtime/python"), str(ROOT / "tests/python")]

import torch  # noqa: E402
import fcpc  # noqa: E402
import fcpc.torch  # noqa: E402
from fcpc import _c, parts  # noqa: E402


def row(name, value, unit, goal, limit, note=""):
    met = "-" if limit is None else "met" if value <= limit else "missed"
    print(f"python {name}\t{value}\t{unit}\t{goal}\t{met}\t{note}", flush=True)


def in_turns(times, *functions):
    """The median time of each function, in seconds; they are called in turns."""
    found = [[] for _ in functions]
    for _ in range(times):
        for function, took in zip(functions, found):
            start = time.perf_counter()
            function()
            took.append(time.perf_counter() - start)
    return [sorted(took)[len(took) // 2] for took in found]


def empty_operator():
    """An operator with the inputs, outputs and gradients of ours, made as torch's pages say, that computes nothing."""
    library = torch.library.Library("fcpc_bench", "DEF")
    library.define("empty(Tensor q, Tensor k, Tensor v, Tensor? sink, Tensor? table, Tensor plan) -> "
                   "(Tensor, Tensor)")
    library.impl("empty", lambda q, k, v, sink, table, plan: (torch.empty_like(q), q.new_empty(q.shape[:2])),
                 "CompositeExplicitAutograd")
    torch.library.register_autograd(
        "fcpc_bench::empty", lambda ctx, d_o, _: (None,) * 6,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, *output), lib=library)
    return library, torch.ops.fcpc_bench.empty


def forward_call():
    prog = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", block=64, cluster=fcpc.Cluster(1, 1, "cpu"))
    plan = prog.plan([64])
    attn = fcpc.torch.Attention(prog, threads=1)
    bound = attn.bind(plan)
    q, k, v = (torch.randn(64, 2, 16, requires_grad=i == 0) for i in range(3))
    o, lse, low, _ = torch.ops.fcpc.attention(q, k, v, None, None, bound.number)
    tensors = _c.fcp_tensors(*(x.data_ptr() for x in (q, k, v, o, lse)), lse_low=low.data_ptr())
    err, run, (_, empty) = _c.fcp_error(), _c.C["fcp_session_run"], empty_operator()
    whole, bare, nothing = in_turns(2000, lambda: bound(q, k, v),
                                    lambda: run(attn._session, 0, ctypes.byref(tensors), ctypes.byref(err)),
                                    lambda: empty(q, k, v, None, None, bound.number))
    row("overhead of a forward call over the C call", (whole - bare) * 1e6, "us", "<= 30 us", 30,
        f"{whole * 1e6:.1f} us and {bare * 1e6:.1f} us, 64 tokens; an operator of torch with gradients that computes "
        f"nothing {nothing * 1e6:.1f} us")


def planning(lengths):
    cluster = fcpc.Cluster(32, 8, "h100")
    prog = fcpc.program("causal", heads=32, kv_heads=8, cluster=cluster, block=2048, strategy="fcp")
    numbers = (ctypes.c_uint64 * len(lengths))(*lengths)
    batch = _c.fcpc_batch(ctypes.sizeof(_c.fcpc_batch), ctypes.addressof(numbers), None, len(lengths))

    def bare():
        made = ctypes.c_void_p()
        assert _c.C["fcpc_plan_layers"](prog._handle, ctypes.byref(batch), None, None, None, ctypes.byref(made)) == 0
        _c.C["fcp_plan_free"](made)
    bare()
    whole, c = in_turns(40, lambda: prog.plan(lengths), bare)
    row("a plan for wlbllm-256 over the C call", whole / c, "x", "<= 1.05", 1.05,
        f"{whole * 1e3:.2f} ms and {c * 1e3:.2f} ms, {len(lengths)} sequences")
    return prog


def ahead(prog, lengths, steps=30):
    """Steps that compute on one processor, alone, and beside a thread that plans. The first plan has no step beside it:
    the clock starts when it is there, and ends while later ones are still planned."""
    x = torch.randn(700, 700)

    def step():
        y = x
        for _ in range(4):
            y = y @ x * 1e-2

    def timed(batches):
        for i, _ in enumerate(batches):
            if i == 0:
                begun = time.perf_counter()
            if i == steps:
                return time.perf_counter() - begun
            step()

    def beside():
        return timed(prog.ahead([lengths] * (steps + 4), threads=1, of=lambda batch: batch))
    beside()
    before = time.process_time()
    prog.plan(lengths)
    plan = time.process_time() - before
    found = [(timed(range(steps + 1)), beside()) for _ in range(7)]
    plain, with_ = (sorted(times)[len(found) // 2] for times in zip(*found))
    row("step time with planning ahead over without", with_ / plain, "x", "<= 1.02", 1.02,
        f"{with_ / steps * 1e3:.2f} ms and {plain / steps * 1e3:.2f} ms a step, {os.cpu_count()} processors; a plan "
        f"takes {plan * 1e3:.1f} ms of them")


def parts_of_plans(prog, lengths):
    """What a rank gets of a plan that another has made (ahead(group=)), and how long it takes to load."""
    plan, extracts = prog.plan(lengths), []
    common = parts.cut([plan], range(128, 129), lambda rank, mask, extract: extracts.append(extract), None)
    took, = in_turns(9, lambda: parts.of_parts(parts.Common(common), extracts, 128, prog, []))
    got, whole = len(common) + len(extracts[0]), len(plan._bytes())
    row("what a rank gets of a plan for wlbllm-256 of another", got / 1e3, "kB", "", None,
        f"common part {len(common) / 1e3:.1f} kB; {whole / 1e3:.0f} kB before, the whole plan")
    row("loading that", took * 1e3, "ms", "<= 1 ms", 1)


def tracing():
    from torch.nn.attention.flex_attention import create_block_mask
    import gallery
    start = time.perf_counter()
    create_block_mask(gallery.neighbourhood, None, None, 8192, 8192, device="cpu")
    block_mask = time.perf_counter() - start
    prog = fcpc.program(gallery.neighbourhood, block=2048)
    trace, plan = in_turns(200, lambda: fcpc.trace(gallery.neighbourhood), lambda: prog.plan([8192]))
    row("tracing a mask_mod", trace * 1e3, "ms", "<= 2 ms", 2,
        f"planning 8192 tokens {plan * 1e3:.2f} ms; create_block_mask {block_mask * 1e3:.0f} ms")


def main():
    lengths = [int(line) for line in open(sys.argv[1])]
    torch.set_num_threads(1)
    forward_call()
    prog = planning(lengths)
    ahead(prog, lengths)
    parts_of_plans(prog, lengths)
    tracing()


main()
