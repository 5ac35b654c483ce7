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
import warnings

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
        o, (lse, low) = numpy.empty_like(q), numpy.empty((2, plan.tokens, HEADS), numpy.float32)
        dq, dk, dv = (numpy.empty_like(t) for t in (q, k, v))
        shared = {"sink": sink.detach().numpy(), "table": slope.detach()}  # of another library, among those of numpy
        d_sink, d_table = numpy.empty((2, HEADS), numpy.float32), torch.empty(2, HEADS)
        session = fcpc.Session(plan)
        session.forward(q, k, v, o, lse, lse_low=low, **shared)
        session.backward(q, k, v, o, lse, d_o, dq, dk, dv, lse_low=low, d_sink=d_sink, d_table=d_table, **shared)
        for got, right in zip((o, dq, dk, dv, d_sink.sum(0), d_table.sum(0).numpy()),
                              (want.detach(), x.grad, y.grad, z.grad, sink.grad, slope.grad)):
            self.assertTrue((got == right.numpy()).all())

    def test_widths_maxima_and_gradients_of_lse(self):
        """Values with a width of their own, or in the keys; and what only some want: the same bits as torch."""
        for more in {"value_dim": 8}, {"value_dim": 24, "sink": 0.5}, {"value_dim": 8, "values": "keys"}:
            plan = (prog := a_program(lse_gradient=True, **more)).plan([100, 28, 0])
            within, wide = plan.values_in_keys, plan.value_dim
            self.assertEqual((wide, within), (more["value_dim"], "values" in more))
            q, k, v, _ = draw(plan)
            v = None if within else numpy.resize(v, (128, KV_HEADS, wide))
            d_o, d_lse = numpy.resize(q, (128, HEADS, wide)), numpy.resize(k, (128, HEADS))
            o, (lse, low) = numpy.empty_like(d_o), numpy.empty((2, 128, HEADS), numpy.float32)
            grads = [None if x is None else numpy.empty_like(x) for x in (q, k, v)]
            most, session = numpy.empty((2, HEADS), numpy.float32), fcpc.Session(plan)
            session.forward(q, k, v, o, lse, lse_low=low, max_logit=most)
            session.backward(q, k, v, o, lse, d_o, *grads, lse_low=low, d_lse=d_lse)
            mine = [None if x is None else torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
            want = Attention(prog).bind(plan)(*mine, return_lse=True, return_max=True)
            torch.autograd.backward(want[:2], [torch.from_numpy(d_o), torch.from_numpy(d_lse)])
            for got, right in zip((o, lse, most.max(0), *grads), (*want, *(x is not None and x.grad for x in mine))):
                self.assertTrue(got is None or (got == right.detach().numpy()).all())
        self.expect("E701", lambda: session.forward(q, k, k, o, lse), "there is no v", "first 8 numbers of the keys")
        self.expect("E701", lambda: session.backward(q, k, None, o, lse, d_o, *grads[:2], o), "there is no dv")
        plain = fcpc.Session(a_program().plan([128]))
        o, grads = numpy.zeros_like(q), [numpy.zeros_like(x) for x in (q, k, k)]
        self.expect("E701", lambda: plain.backward(q, k, k, o, lse, o, *grads, d_lse=d_lse), "lse_gradient")
        self.expect("E701", lambda: plain.forward(q, k, None, o, lse), "tensor v is missing")
        self.expect("E701", lambda: plain.forward(q, k, k, o, lse, max_logit=most[:1]), "max_logit is [1, 4]")

    def test_a_far_lse(self):
        """Where LSE is large, gradients need what rounding took from it, and who leaves it out is warned."""
        plan = a_program(score="s + 1.0e8").plan([128])
        session, (q, k, v, d_o) = fcpc.Session(plan), draw(plan)
        other = fcpc.Session(a_program().plan([128]))
        o, (lse, low) = numpy.empty_like(q), numpy.empty((2, 128, HEADS), numpy.float32)
        grads, near = [numpy.empty_like(x) for x in (q, k, v)], [numpy.empty_like(x) for x in (q, k, v)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.forward(q * 0, k, v, o, lse, lse_low=low)  # all logits are equal, so P is 1 / n
            session.backward(q * 0, k, v, o, lse, d_o, *grads, lse_low=low)
            other.forward(q * 0, k, v, o, lse, lse_low=low)
            other.backward(q * 0, k, v, o, lse, d_o, *near)  # here it needs none
        for got, right in zip(grads, near):
            self.assertLess(abs(got - right).max(), 1e-5 * max(1, abs(right).max()))
        session.forward(q * 0, k, v, o, lse)
        with self.assertWarnsRegex(fcpc.Warning, r"lse is up to 1e\+08, where float32 has steps of 8.*pass lse_low"):
            session.backward(q * 0, k, v, o, lse, d_o, *grads)
        self.assertGreater(abs(grads[2] - near[2]).max(), 0.1)

    def test_without_tokens(self):
        """A batch of nothing runs; rows without keys are 0, and so are gradients of keys without rows."""
        none = a_program().plan([0, 0])
        empty = numpy.empty((0, HEADS, DIM), numpy.float32), numpy.empty((0, KV_HEADS, DIM), numpy.float32)
        (q, k), lse, session = empty, numpy.empty((0, HEADS), numpy.float32), fcpc.Session(none)
        session.forward(q, k, k, q, lse)
        session.backward(q, k, k, q, lse, q, q, k, k)
        plan = a_program().plan([7, 0], queries=[0, 9])
        q, k, v = (numpy.ones((n, h, DIM), numpy.float32) for n, h in ((9, HEADS), (7, KV_HEADS), (7, KV_HEADS)))
        o, lse, session = numpy.ones_like(q), numpy.ones((9, HEADS), numpy.float32), fcpc.Session(plan)
        dq, dk, dv = (numpy.ones_like(x) for x in (q, k, v))
        session.forward(q, k, v, o, lse)
        session.backward(q, k, v, o, lse, q, dq, dk, dv)
        self.assertTrue((lse == -numpy.inf).all() and not any(x.any() for x in (o, dq, dk, dv)))

    def test_closing(self):
        """Closing gives all back, also at the end of `with`; then nothing runs. To close twice is no error."""
        plan = a_program().plan([128])
        (q, k, v, _), lse = draw(plan), numpy.empty((128, HEADS), numpy.float32)
        with fcpc.Session(plan) as session:
            session.forward(q, k, v, numpy.empty_like(q), lse)
        session.close()
        for use in (lambda: session.forward(q, k, v, numpy.empty_like(q), lse), session.wait, session.__enter__):
            self.expect("E203", use, "this Session is closed")

    def test_wrong_arguments(self):
        plan = a_program().plan([128])
        for bad in a_program(), 3, None:
            self.expect("E203", lambda: fcpc.Session(bad), "a plan is expected", "prog.plan(lengths) makes one")
        for name in "threads", "timeout", "device":
            self.expect("E203", lambda: fcpc.Session(plan, **{name: "two"}), f"{name} is 'two': it is a whole number")
        self.expect("E203", lambda: fcpc.Session(plan, allocator=3), "no allocator")
        self.expect("E706", lambda: fcpc.Session(plan, group=3), "3 is no group")
        self.expect("E706", lambda: fcpc.Session(plan, group="ring"), "'ring' is no group")
        session, (q, k, v, _), lse = fcpc.Session(plan, threads=numpy.int64(1)), draw(plan), numpy.empty((128, HEADS))
        self.expect("E203", lambda: session.forward(q, k, v, q, lse, stream="one"), "a str is no stream")

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
        for process, words in zip(both, (("torch", "layers", "layers in a graph", "nccl"), ("nccl",))):
            self.says(process, *words)

    def test_libraries(self):
        """A package of NVIDIA's, as pip lays it out, holds the stand-in for NVRTC. Without cuda-pathfinder nobody finds
        it."""
        folder = os.path.join(self.folder, "nvidia", "cuda_nvrtc", "lib")
        os.makedirs(folder)
        packaged = shutil.copy(f"{self.build}/standin/libnvrtc.so", os.path.join(folder, "libnvrtc.so.13"))
        env = {"PACKAGES": self.folder, "PACKAGED": packaged, "NCCL": os.path.realpath(self.env.pop("FCP_NCCL"))}
        del self.env["FCP_NVRTC"], self.env["FCP_CACHE"]
        env["FCP_CACHE"] = os.path.join(self.folder, "cache")
        self.says(self.run_it("libraries_of_packages", **env), "libraries")
        env.update(FCP_NVRTC="/nowhere/libnvrtc.so", FCP_NCCL=env["NCCL"])
        self.says(self.run_it("libraries_without_pathfinder", **env), "no pathfinder")


if __name__ == "__main__":
    unittest.main()
