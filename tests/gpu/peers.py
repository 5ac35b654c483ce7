"""Times the peers of gpu-check's rows on the same device: cuDNN and FlashAttention through PyTorch's
scaled_dot_product_attention, and compiled FlexAttention. Run by peers.c; needs PyTorch 2.5 or later with CUDA.

For each figure it prints a line as soon as it is measured: milliseconds, or TFLOP/s for matmul.

    fact NAME VALUE          note NAME TEXT          none NAME REASON

Arguments are names of facts that are known already, and are not measured again. Inputs are one sequence, 64 query and 8
KV heads of 128, bf16. Figures are medians of CUDA events, as in measure.c: warm, with the second-level cache as the
repetition before leaves it. With PEERS_CPU set it runs on the processor with tiny sizes, so that the script itself can
be tried anywhere.
"""
import os
import sys
import time

KNOWN = set(sys.argv[1:])
SMALL = bool(os.environ.get("PEERS_CPU"))


def say(kind, name, text):
    print(kind, name, " ".join(str(text).split()), flush=True)


def main():
    try:
        import torch
        import torch.nn.functional as F
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except Exception as e:  # whatever is wrong with it, there are no peers
        say("none", "torch", f"{type(e).__name__}: {e}")
        return
    if not SMALL and not torch.cuda.is_available():
        say("none", "torch", f"PyTorch {torch.__version__} sees no CUDA device")
        return
    device = "cpu" if SMALL else "cuda"
    heads, kv_heads, dim = (4, 2, 16) if SMALL else (64, 8, 128)
    scale = 128 if SMALL else 1
    kind = "the processor" if SMALL else torch.cuda.get_device_name()
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    try:
        import triton
        triton_version = triton.__version__
    except Exception:
        triton_version = "none"
    say("note", "torch", f"PyTorch {torch.__version__}, cuDNN {cudnn}, Triton {triton_version}, {kind}")
    torch.manual_seed(7)

    def wait():
        if not SMALL:
            torch.cuda.synchronize()

    def median_ms(run):
        def some(count):
            times = []
            for _ in range(count):
                if SMALL:
                    begin = time.perf_counter()
                    run()
                    times.append(1e3 * (time.perf_counter() - begin))
                    continue
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record()
                run()
                b.record()
                times.append((a, b))
            wait()
            return times if SMALL else [a.elapsed_time(b) for a, b in times]
        last = some(2)[-1]
        times = sorted(some(2 if SMALL else max(5, min(40, int(250 / max(last, 1e-3))))))
        return times[len(times) // 2]

    def tensors(n):
        def one(h):
            return torch.randn(1, h, n, dim, device=device, dtype=torch.bfloat16, requires_grad=True)
        return one(heads), one(kv_heads), one(kv_heads), \
            torch.randn(1, heads, n, dim, device=device, dtype=torch.bfloat16)

    def both(name, attend, qkv, grad):
        """Forward, then backward, of one way to attend."""
        if f"{name}.forward" not in KNOWN:
            with torch.no_grad():
                say("fact", f"{name}.forward", median_ms(lambda: attend(*qkv)))
        if f"{name}.backward" not in KNOWN:
            out = attend(*qkv)
            say("fact", f"{name}.backward", median_ms(lambda: torch.autograd.grad(out, qkv, grad, retain_graph=True)))

    def known(*names):
        return all(f"{name}.{p}" in KNOWN for name in names for p in ("forward", "backward"))

    def attempt(name, what):
        try:
            what()
        except Exception as e:
            say("none", name, f"{type(e).__name__}: {str(e)[:200]}")

    def matmul():
        size = 256 if SMALL else 8192
        a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
        say("fact", "matmul", 2 * size ** 3 / median_ms(lambda: torch.mm(a, b)) * 1e-9)
    if "matmul" not in KNOWN:
        attempt("matmul", matmul)

    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    if SMALL:
        backends = {"cudnn": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}

    def sdpa(peer, n, causal):
        name = f"{peer}.{'causal' if causal else 'full'}.{n}"
        if known(name):
            return
        q, k, v, grad = tensors(n // scale)

        def attend(q, k, v):
            with sdpa_kernel(backends[peer]):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        attempt(name, lambda: both(name, attend, (q, k, v), grad))

    for n in (8192, 32768, 2048, 16384):
        for causal in (True, False):
            for peer in backends:
                if n != 2048 or peer == "cudnn":
                    sdpa(peer, n, causal)

    n = 16384 // scale
    unit = 1024 // scale
    lengths = [x // scale for x in (6000, 4000, 3000, 2000, 1000, 384)]
    n_documents = sum(lengths)
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)).to(device)
    question = n * 20 // 100
    each = max(1, (n - question) // 4)

    def part(t):  # the last answer has what is left over
        return torch.clamp(torch.div(t - question, each, rounding_mode="floor"), max=3)

    masks = {
        "window": (n, lambda b, h, q, k: (q >= k) & (q - k < unit)),
        "documents": (n_documents, lambda b, h, q, k: (q >= k) & (documents[q] == documents[k])),
        "lambda": (n, lambda b, h, q, k: (q >= k) & ((k < 64) | (q - k < unit))),
        "shared_question": (n, lambda b, h, q, k: (q >= k) & ((k < question) | (part(q) == part(k)))),
        "block_causal": (n, lambda b, h, q, k: k // unit <= q // unit),
    }

    def flex(mask):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        length, allowed = masks[mask]
        name = f"flex.{mask}.16384"
        if known(name) and f"blockmask.{mask}.16384" in KNOWN:
            return
        make = create_block_mask if SMALL else torch.compile(create_block_mask, dynamic=False)
        block = make(allowed, None, None, length, length, device=device)
        wait()
        begin = time.perf_counter()
        block = make(allowed, None, None, length, length, device=device)
        wait()
        say("fact", f"blockmask.{mask}.16384", 1e3 * (time.perf_counter() - begin))
        run = flex_attention if SMALL else torch.compile(flex_attention, dynamic=False)
        q, k, v, grad = tensors(length)
        both(name, lambda q, k, v: run(q, k, v, block_mask=block, enable_gqa=True), (q, k, v), grad)

    for mask in masks:
        attempt(f"flex.{mask}.16384", lambda: flex(mask))
    say("note", "flex", f"compiled, kernel options by default: Triton {triton_version}'s template "
        "unless PyTorch chose otherwise")
    say("note", "end", "all that was asked for")


main()
