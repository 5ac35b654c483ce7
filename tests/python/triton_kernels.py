"""triton_kernels.py: kernels in Triton's language, whose PTX test_triton.py executes: products of all layouts, by wgmma
or mma.sync, with loads by cp.async or TMA; and attention, where a product's result is an operand in registers."""
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, k, am, ak, bk, bn, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """c = a b. am, ak, bk, bn: how far the next row or column of a and b is."""
    rows, columns, inner = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    made = tl.zeros((M, N), tl.float32)
    for at in range(0, k, K):
        x = tl.load(a + rows[:, None] * am + (at + inner)[None, :] * ak)
        y = tl.load(b + (at + inner)[:, None] * bk + columns[None, :] * bn)
        made = tl.dot(x, y, made)
    tl.store(c + rows[:, None] * N + columns[None, :], made)


@triton.jit
def product_by_tma(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A_TURNED: tl.constexpr,
                   B_TURNED: tl.constexpr):
    first = tl.program_id(0) * M
    made = tl.zeros((M, N), tl.float32)
    for at in range(0, k, K):
        x = a.load([at, first]).T if A_TURNED else a.load([first, at])
        y = b.load([0, at]).T if B_TURNED else b.load([at, 0])
        made = tl.dot(x, y, made)
    tl.store(c + (first + tl.arange(0, M))[:, None] * N + tl.arange(0, N)[None, :], made)


@triton.jit
def attention(q, k, v, o, keys, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    """One head, by the online softmax. q is scaled already, so that its products are exponents of 2."""
    first = tl.program_id(0) * M
    rows, columns, dims = first + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + dims[None, :])
    most, total, made = tl.full((M,), -1e30, tl.float32), tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    end = first + M if CAUSAL else keys
    for at in range(0, end, N):
        y = tl.load(k + (at + columns)[None, :] * D + dims[:, None])
        s = tl.dot(x, y)
        if CAUSAL:
            s = tl.where(rows[:, None] >= (at + columns)[None, :], s, -1e30)
        now = tl.maximum(most, tl.max(s, 1))
        p, factor = tl.exp2(s - now[:, None]), tl.exp2(most - now)
        total, made = total * factor + tl.sum(p, 1), made * factor[:, None]
        z = tl.load(v + (at + columns)[:, None] * D + dims[None, :])
        made = tl.dot(p.to(x.dtype), z, made)
        most = now
    tl.store(o + rows[:, None] * D + dims[None, :], made / total[:, None])
