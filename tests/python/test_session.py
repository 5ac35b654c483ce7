"""test_session.py: runs plans on tensors of any library: by DLPack on the processor; and on the driver, NVRTC and NCCL
that stand in for those of a GPU (on_cuda.py)."""
import copy
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy
import torch

import fcpc
from expecting import Expecting
from fcpc.torch import Attention

HERE = os.path.dirname(os.path.abspath(__file__))
HEADS, KV_HEADS, DIM = 4, 2, 16


def a_program(**more):
    return fcpc.program(**{"mask": "causal", "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "fp32",
                           "cluster": fcpc.detect(ranks=2), "block": 64, **more})


def draw(plan, kind=numpy.float32):
    numbers = numpy.random.default_rng(1)
    return [numbers.standard_normal((plan.tokens, h, DIM)).astype(kind) for h in (HEADS, KV_HEADS, KV_HEADS, HEADS)]


class OnTheHost(Expecting):
    def test_same_bits_as_torch(self):
        """Arrays of numpy give what tensors of torch give: results, gradients, also of sinks and tables."""
        prog = a_program(sink=0.5, score="s + slope[h] * (k - q)", tables={"slope": [0.1, 0.2, 0.3, 0.4]})
        plan = prog.plan([100, 28])
        q, k, v, d_o = draw(plan)
        x, y, z = (torch.from_numpy(t).requires_grad_() for t in (q, k, v))
        sink, slope = torch.tensor([1.0, 0, -1, 2]).requires_grad_(), torch.rand(HEADS).requires_grad_()
        want = Attention(prog).bind(plan)(x, y, z, sink, {"slope": slope})
        want.backward(torch.from_numpy(d_o))
        o, lse = numpy.empty_like(q), numpy.empty((plan.tokens, HEADS), numpy.float32)
        dq, dk, dv = (numpy.empty_like(t) for t in (q, k, v))
        shared = {"sink": sink.detach().numpy(), "table": slope.detach()}  # of another library, among those of numpy
        d_sink, d_table = numpy.empty((2, HEADS), numpy.float32), torch.empty(2, HEADS)
        session = fcpc.Session(plan)
        session.forward(q, k, v, o, lse, **shared)
        session.backward(q, k, v, o, lse, d_o, dq, dk, dv, d_sink=d_sink, d_table=d_table, **shared)
        for got, right in zip((o, dq, dk, dv, d_sink.sum(0), d_table.sum(0).numpy()),
                              (want.detach(), x.grad, y.grad, z.grad, sink.grad, slope.grad)):
            self.assertTrue((got == right.numpy()).all())

    def test_what_is_refused(self):
        plan = a_program().plan([128])
        session, (q, k, v, _) = fcpc.Session(plan), draw(plan)
        o, lse = numpy.empty_like(q), numpy.empty((128, HEADS), numpy.float32)
        session.forward(q, k, v, o, lse)
        fixed = q.copy()
        fixed.flags.writeable = False
        for words, bad in {
                "q is [100, 4, 16] of fp32 on cpu; the plan needs [128, 4, 16] of fp32 on cpu": q[:100],
                "q is [128, 4, 16] of another type": q.astype(numpy.float64),
                "q is [128, 4, 16] of fp16": q.astype(numpy.float16),
                "not dense: its strides are [64, 1, 4]": q.transpose(0, 2, 1).copy().transpose(0, 2, 1),
                "a list has no __dlpack__": q.tolist(),
                "is not to be had by DLPack": fixed}.items():
            self.expect("E701", lambda: session.forward(bad, k, v, o, lse), words)
        self.expect("E701", lambda: session.forward(None, k, v, o, lse), "tensor q is missing")
        self.expect("E209", lambda: session.forward(q, k, v, o, lse, bias=lse), "no tensor 'bias'")
        self.expect("E701", lambda: session.forward(q, k, v, o, lse, sink=numpy.zeros(4, numpy.float32)), "none")
        self.expect("E203", lambda: session.forward(q, k, v, o, lse, stream=0), "no streams")
        self.expect("E702", lambda: fcpc.Session(plan, backend="tpu"), "host and cuda")
        self.expect("E702", lambda: Attention(a_program(), device="meta"), "no backend for meta")
        self.expect("E706", lambda: fcpc.Session(plan, group="ring"), "ring")

    def test_of_one_thread_and_one_process(self):
        plan = a_program().plan([128])
        session, (q, k, v, _) = fcpc.Session(plan), draw(plan)
        o, lse = numpy.empty_like(q), numpy.empty((128, HEADS), numpy.float32)
        self.assertIs(copy.deepcopy([session])[0], session)
        with self.assertRaisesRegex(TypeError, "a Session belongs to its process"):
            pickle.dumps(session)
        with session._alone:
            said = []
            thread = threading.Thread(target=lambda: said.append(
                self.expect("E203", lambda: session.forward(q, k, v, o, lse), "another thread")))
            thread.start()
            thread.join()
        self.assertEqual(len(said), 1)
        child = os.fork()
        if child == 0:
            try:
                session.forward(q, k, v, o, lse)
            except fcpc.Error as error:
                del session
                os._exit(7 if error.code == "E203" and "another process" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        session.forward(q, k, v, o, lse)

    def test_strides_that_do_not_matter(self):
        plan = a_program(heads=1, kv_heads=1).plan([128])
        q = numpy.ones((128, 1, DIM), numpy.float32)
        o, lse = numpy.zeros_like(q), numpy.zeros((128, 1), numpy.float32)
        odd = numpy.lib.stride_tricks.as_strided(q, q.shape, (q.strides[0], 4, 4))  # one head: its stride says nothing
        fcpc.Session(plan).forward(odd, q, q, o, lse)
        self.assertTrue((o == 1).all())


class OnTheStandIn(unittest.TestCase):
    """Without a GPU: in processes of their own, because the driver is chosen once in each."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.build = os.environ["FCPC_LIBRARIES"]
        self.env = {**os.environ, "FCP_CUDA_DRIVER": f"{self.build}/standin/libcuda.so", "STANDIN_DEVICES": "2",
                    "FCP_NVRTC": f"{self.build}/standin/libnvrtc.so", "FCP_NCCL": f"{self.build}/standin/libnccl.so",
                    "FCP_CACHE": f"{self.build}/kernels", "TMPDIR": self.folder,
                    "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")])}

    def run_it(self, *what, **env):
        return subprocess.Popen([sys.executable, os.path.join(HERE, "on_cuda.py"), *what], env={**self.env, **env},
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def says(self, process, *words):
        said, _ = process.communicate(timeout=300)
        for word in words:
            self.assertIn(f"[{word}]", said)

    def test_one_process(self):
        self.says(self.run_it("alone"), "host memory", "device memory", "streams", "graphs")

    def test_allocators(self):
        self.says(self.run_it("allocators"), "allocator", "no memory")

    def test_with_torch(self):
        """Its operator, and two processes that find each other through its group."""
        store = os.path.join(self.folder, "store")
        both = [self.run_it(*what, RANK=str(rank), STORE=store)
                for rank, what in enumerate((("by_torch", "by_nccl"), ("by_nccl",)))]
        for process, words in zip(both, (("torch", "nccl"), ("nccl",))):
            self.says(process, *words)

    def test_libraries(self):
        """A package of NVIDIA's, as pip lays it out, holds the NVRTC that stands in, as the newest of all."""
        folder = os.path.join(self.folder, "nvidia", "cuda_nvrtc", "lib")
        os.makedirs(folder)
        packaged = shutil.copy(f"{self.build}/standin/libnvrtc.so", os.path.join(folder, "libnvrtc.so.99"))
        env = {"PACKAGED": packaged, "NCCL": os.path.realpath(self.env.pop("FCP_NCCL"))}
        del self.env["FCP_NVRTC"], self.env["FCP_CACHE"]
        env["PYTHONPATH"] = os.pathsep.join([self.folder, self.env["PYTHONPATH"]])
        env["FCP_CACHE"] = os.path.join(self.folder, "cache")
        self.says(self.run_it("libraries_of_packages", **env), "libraries")


if __name__ == "__main__":
    unittest.main()
