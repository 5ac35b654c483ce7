"""test_triton.py: the machine that executes PTX (tests/machines/ptx/ptx.h) executes kernels of another compiler.

No GPU has run fcpc's kernels; this machine has. If it took a descriptor of wgmma, a swizzle or a map of TMA for
something else than a GPU does, and the kernels made the same mistake, their tests would pass. Triton's kernels do run
on GPUs. They use the same instructions for the same tiles: wgmma with operands in shared memory, turned and not, and in
registers; mma.sync with ldmatrix; loads by cp.async and TMA; mbarriers. So their results must be right here, too, and
wrong if one bit of them is changed.
"""
import os
import re
import subprocess
import tempfile
import unittest

import numpy
import torch

try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
except ImportError:
    raise unittest.SkipTest("Triton is not there") from None

import triton_kernels as kernels
from fcpc import _c

MACHINE = str(_c.folder() / "ptx-file")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
WARPS = 4


def compiled(kernel, arch, signature, **constants):
    """Triton's PTX of a kernel, and how much shared memory it takes. Arguments that `constants` names are constants."""
    types = {name: "constexpr" if name in constants else signature[name] for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(types.values()) if t[0] in "*i"}
    made = triton.compile(ASTSource(kernel, signature=types, constexprs=constants, attrs=aligned),
                          target=GPUTarget("cuda", arch, 32), options={"num_warps": WARPS, "num_stages": 2})
    return made.asm["ptx"], made.metadata.shared


def as_nvrtc_writes_it(text):
    """The same instructions, as the machine reads them. Of two it asks for more than Triton writes, and than GPUs need:
    the thread that has written shared memory fences it for wgmma and TMA, not the one that goes on; and so does the one
    that has opened a barrier."""
    text = re.sub(r"\.section\s+\.debug.*", "", re.sub(r"//[^\n]*", "", text), flags=re.DOTALL)
    text = re.sub(r"^\s*\.(loc|file)\b.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\.ptr \.\w+ \.align \d+ ", "", text).replace(".reqntid", ".maxntid")
    text = re.sub(r"\.param \.[ub](32|64) (\w+_param_\d+)", lambda m: f".param .align {int(m[1]) // 8} .b8 {m[2]}"
                  f"[{int(m[1]) // 8}]", text)
    # addresses, numbers and names
    text = re.sub(r"\[ (%\w+) \+ (-?\d+) \]", r"[\1+\2]", text).replace("+0]", "]")
    text = re.sub(r"\b0x([0-9a-f]+)\b(?=[,;])", lambda m: str(int(m[1], 16)), text, flags=re.IGNORECASE)
    text = re.sub(r"\b(mbarrier[\w.]*)\.shared\.b64", r"\1.shared::cta.b64", text)
    text = re.sub(r"\b(st|ld)\.shared::cta\.", r"\1.shared.", text).replace("div.full.f32", "div.rn.f32")
    loops = iter(range(1000))
    text = re.sub(r"\{\s*\.reg \.pred complete;.*?\}", lambda m: re.sub(
        r"complete(?=[,; ])|waitLoop", lambda n, number=next(loops): f"$L_{n[0]}_{number}" if n[0] == "waitLoop" else
        f"complete_{number}", m[0]), text, flags=re.DOTALL)
    # instructions that the machine does not have
    text = re.sub(r"elect\.sync\s+(%\w+)\|(%\w+), -1;", r"mov.u32 \1, %laneid;\nsetp.eq.u32 \2, \1, 0;", text)
    text = re.sub(r"(@%\w+ )?mbarrier\.inval[^;]*;", "", text)
    text = re.sub(r"cp\.async\.bulk\.tensor\.2d\.shared::(?:cta|cluster)\.global\.(mbarrier\S+) (.*), \{(.*?)\}\]",
                  r"cp.async.bulk.tensor.4d.shared::cluster.global.tile.\1 \2, {\3, 0, 0}]", text)
    return text.replace("bar.sync", "fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;\nbar.sync")


def run(text, kernel, blocks, shared, arguments, shape, change=None):
    """What a kernel writes to its argument "out", float32 of that shape; or what the machine says."""
    text = as_nvrtc_writes_it(text)
    if change:
        changed = re.sub(change[0], change[1], text)
        assert changed != text, change
        text = changed
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for i, x in enumerate(arguments):
            path = os.path.join(folder, str(i))
            if isinstance(x, str) and x == "out":
                made.append(f"out:{path}:{4 * shape[0] * shape[1]}")
                out = path
                continue
            if isinstance(x, str):
                made.append(x)
                continue
            x, box = x if isinstance(x, tuple) else (x, None)
            with open(path, "wb") as f:
                f.write(x.contiguous().view(torch.int16).numpy().tobytes())
            made.append(f"in:{path}")
            if box:
                made[-1:] = [f"map:{path}:{x.shape[1]},{x.shape[0]}:{box[1]},{box[0]}",
                             *(f"u32:{n}" for n in x.shape), *(f"u64:{n}" for n in x.stride())]
        with open(os.path.join(folder, "ptx"), "w") as f:
            f.write(text)
        done = subprocess.run([MACHINE, f.name, kernel, str(blocks), str(32 * WARPS), str(shared), "1", *made,
                               "u64:0", "u64:0"], capture_output=True, text=True)  # Triton's own memory
        if done.returncode:
            return done.stderr
        return torch.from_numpy(numpy.fromfile(out, "float32").reshape(shape))


def drawn(dtype, *shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DTYPES[dtype])


class Kernels(unittest.TestCase):
    def near(self, found, want, what):
        self.assertIsInstance(found, torch.Tensor, f"{what}: {found}")
        error = (found.double() - want).abs().max() / want.abs().max()
        self.assertLess(error, 1e-5 if "attention" not in what else 1e-2, what)

    def a_product(self, arch, a_turned, b_turned, m, n, k, dtype="bf16", change=None):
        """a or b are turned: their columns lie side by side, not their rows."""
        a, b = drawn(dtype, 2 * m, 3 * k), drawn(dtype, 3 * k, n, seed=1)
        x, y = (a.t() if a_turned else a), (b.t() if b_turned else b)
        step = ["ak", "am"][a_turned], ["bn", "bk"][b_turned]
        text, shared = compiled(kernels.product, arch, {**dict.fromkeys("abc", f"*{dtype}"), "c": "*fp32", "k": "i32",
                                                        **dict.fromkeys(("am", "ak", "bk", "bn"), "i32")},
                                **dict.fromkeys(step, 1), M=m, N=n, K=k)
        found = run(text, "product", 2, shared, [x.contiguous(), y.contiguous(), "out", f"u32:{3 * k}",
                                                 f"u32:{2 * m if a_turned else 3 * k}",
                                                 f"u32:{3 * k if b_turned else n}"], (2 * m, n), change)
        return text, found, a.double() @ b.double()

    def test_products(self):
        for arch, of in ((90, "wgmma.mma_async"), (80, "mma.sync")):
            for turned in ((0, 0), (0, 1), (1, 0), (1, 1)):
                for m, n, k in ((64, 64, 64), (64, 256, 64), (128, 128, 64), (64, 64, 128))[:4 if arch == 90 else 1]:
                    what = f"sm_{arch}, turned {turned}, {m} x {n} x {k}"
                    text, found, want = self.a_product(arch, *turned, m, n, k, "fp16" if m == 128 else "bf16")
                    self.assertIn(of, text)
                    self.near(found, want, what)

    def test_products_by_tma(self):
        for a_turned, b_turned in ((0, 0), (0, 1), (1, 0), (1, 1)):
            m, n, k = 64, 128, 64
            a, b = drawn("bf16", 2 * m, 3 * k), drawn("bf16", 3 * k, n, seed=1)
            x, y = (a.t() if a_turned else a).contiguous(), (b.t() if b_turned else b).contiguous()
            boxes = ([k, m] if a_turned else [m, k]), ([n, k] if b_turned else [k, n])
            text, shared = compiled(kernels.product_by_tma, 90, {
                "a": f"tensordesc<bf16{boxes[0]}>", "b": f"tensordesc<bf16{boxes[1]}>", "c": "*fp32", "k": "i32"},
                M=m, N=n, K=k, A_TURNED=a_turned, B_TURNED=b_turned)
            self.assertIn("cp.async.bulk.tensor", text)
            # a box has 64 columns, of 128 bytes; Triton divides wider blocks into several
            found = run(text, "product_by_tma", 2, shared, [(x, (boxes[0][0], 64)), (y, (boxes[1][0], 64)), "out",
                                                            f"u32:{3 * k}"], (2 * m, n))
            self.near(found, a.double() @ b.double(), f"TMA, turned {a_turned} {b_turned}")

    def test_attention(self):
        for arch in (90, 80):
            for causal in (0, 1):
                for dim, dtype in ((64, "bf16"), (128, "fp16"))[:2 if arch == 90 else 1]:
                    q, k, v = (drawn(dtype, 128, dim, seed=i) for i in range(3))
                    q = (q.float() * dim ** -0.5 * 1.4427).to(q)
                    text, shared = compiled(kernels.attention, arch, {
                        **dict.fromkeys("qkv", f"*{dtype}"), "o": "*fp32", "keys": "i32"},
                        M=64, N=64, D=dim, CAUSAL=causal)
                    in_registers = re.search(r"wgmma\.mma_async[^;]*\}, \{", text)
                    self.assertEqual(bool(in_registers), arch == 90)
                    s = q.double() @ k.double().t()
                    if causal:
                        s = s.masked_fill(torch.ones(128, 128).triu(1).bool(), -torch.inf)
                    found = run(text, "attention", 2, shared, [q, k, v, "out", "u32:128"], (128, dim))
                    self.near(found, (s * numpy.log(2)).softmax(1) @ v.double(),
                              f"attention, sm_{arch}, {dim}, {causal}")

    def test_flaws(self):
        """One bit of a descriptor or of a product is another, and the result is wrong."""
        for turned, flaw in (((0, 0), (r"(wgmma\.mma_async[^;]*), 0, 1;", r"\1, 0, 0;")),
                             ((1, 0), (r"(wgmma\.mma_async[^;]*), 1, 1;", r"\1, 0, 1;")),
                             ((0, 1), (r"\b4611686293\d{9}\b", lambda m: str(int(m[0]) ^ 1 << 62))),    # the swizzle
                             ((0, 1), (r"\b4611686293\d{9}\b", lambda m: str(int(m[0]) ^ 64 << 32)))):  # SBO
            _, found, want = self.a_product(90, *turned, 64, 64, 64, change=flaw)
            if isinstance(found, torch.Tensor):  # else the machine says what is wrong: a race, no swizzle
                self.assertGreater((found.double() - want).abs().max(), 1e-2 * want.abs().max(), flaw)


if __name__ == "__main__":
    unittest.main()
