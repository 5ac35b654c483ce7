"""bare.py: what a process of test_package.py does with the installed wheel, where there is nothing but Python and the C
library: no numpy, and no library that a wheel could have forgotten. Says [right] if it is."""
import array
import ctypes
import subprocess
import sys

import fcpc
from fcpc.session import _DLTensor

HEADS, DIM, LENGTHS = 2, 32, [150, 42]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Tensor:
    """Numbers of float32, which others see by DLPack."""

    def __init__(self, *shape, fill=lambda at: 0.0):
        count = 1
        for size in shape:
            count *= size
        self.numbers = array.array("f", map(fill, range(count)))
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.managed = Managed(_DLTensor(self.numbers.buffer_info()[0], 1, 0, len(shape), 2, 32, 1, self.shape, None,
                                         0))

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return make(ctypes.addressof(self.managed), b"dltensor", None)


def draw(at):
    return ((at * 7919) % 1000 - 500) / 250


plan = fcpc.program("causal", heads=HEADS, kv_heads=HEADS, head_dim=DIM, dtype="fp32", block=64,
                    cluster=fcpc.detect(ranks=2)).plan(LENGTHS)
shape = plan.tokens, HEADS, DIM
q, k, d_o = (Tensor(*shape, fill=lambda at, by=by: draw(at + by)) for by in (0, 3, 5))
v = Tensor(*shape, fill=lambda at: float(at % DIM))  # all values of a head are the same: so is each o
o, dq, dk, dv = (Tensor(*shape) for _ in range(4))
lse = Tensor(plan.tokens, HEADS)
session = fcpc.Session(plan)
session.forward(q, k, v, o, lse)
session.backward(q, k, v, o, lse, d_o, dq, dk, dv)
assert all(abs(a - b) < 1e-4 for a, b in zip(o.numbers, v.numbers)), "o"
assert all(x < 1e-3 for x in map(abs, dq.numbers)), "where all values are the same, no logit matters"
for at in range(HEADS * DIM):  # the weights of a query add up to 1
    assert abs(sum(dv.numbers[at::HEADS * DIM]) - sum(d_o.numbers[at::HEADS * DIM])) < 1e-2, "dv"
said = subprocess.run([sys.executable, "-m", "fcpc", "run", sys.argv[1], "-D", "batch.lengths=[512]", "-D",
                       "plan.block=128"], stdout=subprocess.PIPE, text=True, check=True).stdout
assert said.count(": right") == 6 and "wrong" not in said, said
print("[right]")
