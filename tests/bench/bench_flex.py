"""Times FlexAttention's create_block_mask, for the rows of bench_cells.c. Requires PyTorch 2.5 or later; run by flex.c.

First it prints "ready VERSION". Then it reads requests, a line each:

    NAME UNIT SECONDS MEBIBYTES PARAMETER...

It makes the mask NAME for the longest sequence that takes about SECONDS and MEBIBYTES of memory. A sequence has a
multiple of UNIT tokens. If even UNIT tokens take more, only their first queries are done. The answer is one of

    QUERIES TOKENS SECONDS MEBIBYTES FULL PARTIAL     blocks of 128 x 128; FULL is -1 where the last block is cut off
    none REASON

A PARAMETER is a whole number, or a file with an int64 for each token; of a file, only the tokens of the sequence are
read. The masks are written from their definitions (as in tests/support/known_masks.h), over tensors of indices.
"""
import resource
import sys
import time


def masks(torch):
    lowest, highest = torch.minimum, torch.maximum

    def whole(x, like):  # a number as a tensor, as minimum and maximum want them
        return torch.full_like(like, x)

    def clamp(x, low, high):
        return highest(lowest(x, whole(high, x)), whole(low, x))

    def near(t, r, size):  # the middle of a window of 2 r + 1, moved inwards
        return lowest(highest(t, whole(r, t)), whole(size - 1 - r, t))

    def inside(q, k, r, size):
        return abs(near(q, r, size) - k) <= r

    def full(n):
        return lambda b, h, q, k: k >= 0

    def causal(n):
        return lambda b, h, q, k: k <= q

    def window(n, w):
        return lambda b, h, q, k: (k <= q) & (q - k < w)

    def window_both(n, left, right):
        return lambda b, h, q, k: (q - k <= left) & (k - q <= right)

    def prefix(n, p):
        return lambda b, h, q, k: (k < p) | (k <= q)

    def lambda_(n, sink, w):
        return lambda b, h, q, k: (k <= q) & ((k < sink) | (q - k < w))

    def shared_question(n, percent, answers):
        question = n * percent // 100
        each = max(1, (n - question) // answers)

        def part(t):
            return clamp((t - question) // each, -n, answers - 1)

        return lambda b, h, q, k: (k <= q) & ((k < question) | (part(q) == part(k)))

    def causal_blockwise(n, size, w):
        last = (n - 1) // size

        def mask(b, h, q, k):
            block = q // size
            outer = (block == 0) | (block == last)
            return (k <= q) & (outer | (k < size) | (k >= clamp(q - w * size, size, n)))

        return mask

    def causal_blockwise_fm(n, size):
        last = (n - 1) // size
        return lambda b, h, q, k: (k <= q) & ((q // size == k // size) | (q // size == last))

    def block_causal(n, size):
        return lambda b, h, q, k: k // size <= q // size

    def global_window(n, g, w):
        return lambda b, h, q, k: (abs(q - k) <= w) | (q < g) | (k < g)

    def qk_sparse(n, first, masked):
        return lambda b, h, q, k: (k <= q) & ~((k >= first) & (q < first + masked))

    def block_diffusion(n, size):
        half = n // 2

        def mask(b, h, q, k):
            clean_q, clean_k = q >= half, k >= half
            x, y = q % half // size, k % half // size
            return ((clean_q == clean_k) & (x == y)) | (clean_k & (y < x))

        return mask

    def draft_train(n, p, size):
        return lambda b, h, q, k: (k < p) | ((k <= q) & (q // size == k // size))

    def dilated(n, w, d):
        return lambda b, h, q, k: (abs(q - k) <= w) & ((q - k) % d == 0)

    def natten2d(n, width, kw, kh):
        height = n // width
        return lambda b, h, q, k: (inside(q % width, k % width, kw // 2, width) &
                                   inside(q // width, k // width, kh // 2, height))

    def sta2d(n, width, tw, th, kw, kh):
        across, down, tile = width // tw, n // width // th, tw * th
        return lambda b, h, q, k: (inside(q // tile % across, k // tile % across, kw // 2, across) &
                                   inside(q // tile // across, k // tile // across, kh // 2, down))

    def sta3d(n, width, height, tw, th, tt, kw, kh, kt):
        across, down, tile = width // tw, height // th, tw * th * tt
        deep = n // (width * height) // tt

        def mask(b, h, q, k):
            x, y = q // tile, k // tile
            return (inside(x % across, y % across, kw // 2, across) &
                    inside(x // across % down, y // across % down, kh // 2, down) &
                    inside(x // (across * down), y // (across * down), kt // 2, deep))

        return mask

    def svg_spatial(n, p, w):
        return lambda b, h, q, k: (q < p) | (k < p) | (abs(q - k) < w)

    def svg_temporal(n, p, picture, w):
        return lambda b, h, q, k: (q < p) | (k < p) | (abs((q - p) % picture - (k - p) % picture) < w)

    def document(n, d):
        return lambda b, h, q, k: d[q] == d[k]

    def causal_document(n, d):
        return lambda b, h, q, k: (k <= q) & (d[q] == d[k])

    def prefix_document(n, d, p):
        change = torch.ones(n, dtype=torch.bool)
        change[1:] = d[1:] != d[:-1]
        start = torch.cummax(torch.where(change, torch.arange(n), 0), 0).values  # of the document
        return lambda b, h, q, k: (d[q] == d[k]) & ((k <= q) | (k - start[k] < p))

    def global_field(n, g, w):
        return lambda b, h, q, k: (abs(q - k) <= w) | (g[q] != 0) | (g[k] != 0)

    def random_eviction(n, e):
        return lambda b, h, q, k: (k <= q) & (q < e[k])

    def tree(n, first, last, p):
        return lambda b, h, q, k: (k < p) | ((first[k] <= q) & (q <= last[k]))

    def hash_sparse(n, bucket):
        return lambda b, h, q, k: (k <= q) & (bucket[q] == bucket[k])

    named = {name: f for name, f in locals().items() if callable(f)}
    named["lambda"] = lambda_
    return named


def rise(reset=False):
    """The most memory this process held since the last reset, in MiB; where that is not known, since it began."""
    try:
        if reset:
            with open("/proc/self/clear_refs", "w") as f:
                f.write("5")
        with open("/proc/self/status") as f:
            return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(torch, create_block_mask, mask, queries, n):
    before = rise(reset=True)
    start = time.perf_counter()
    blocks = create_block_mask(mask, None, None, queries, n, device="cpu", BLOCK_SIZE=128)
    seconds = time.perf_counter() - start
    partial, full = int(blocks.kv_num_blocks.sum()), int(blocks.full_kv_num_blocks.sum())
    whole = queries % 128 == 0 and n % 128 == 0
    return queries, n, seconds, max(0, rise() - before), full if whole else -1, partial


LEAST, PAIR_BYTES = 1024, 18  # tokens; memory a pair takes, as measured


def answer(torch, create_block_mask, known, words):
    name, unit, seconds, mebibytes = words[0], int(words[1]), float(words[2]), float(words[3])
    if name not in known:
        return "none no such mask"
    n = -(-LEAST // unit) * unit
    queries = min(n, max(128, LEAST * LEAST * 4 // n // 128 * 128))
    best, reason = None, "memory"
    while queries * n * PAIR_BYTES / 2**20 <= mebibytes:
        try:
            values = [int(w) if w.lstrip("-").isdigit() else torch.from_file(w, size=n, dtype=torch.int64)
                      for w in words[4:]]
            best = measure(torch, create_block_mask, known[name](n, *values), queries, n)
        except (MemoryError, RuntimeError) as error:
            reason = str(error).split("\n")[0]
            break
        if best[2] * 2 > seconds:
            break
        if queries < n:
            queries = min(n, queries * 2)
        else:
            n, queries = n * 2, n * 2
    return "%d %d %.6f %.1f %d %d" % best if best else "none " + reason


def main():
    try:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask
    except ImportError as error:
        print("none", error)
        return
    torch.set_num_threads(1)  # as ours
    known = masks(torch)
    measure(torch, create_block_mask, known["full"](128), 128, 128)  # what is set up at the first call
    print("ready", torch.__version__, flush=True)
    for line in sys.stdin:
        print(answer(torch, create_block_mask, known, line.split()), flush=True)


if __name__ == "__main__":
    main()
