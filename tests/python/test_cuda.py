"""test_cuda.py: the cases that gpu-check runs on a GPU (tests/gpu/torch_cases.py), on tensors that say that they are on
CUDA (pretend_cuda.py). So what the package does to tensors is tried, and no kernel."""
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "gpu"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import fcpc  # noqa: E402
import torch_cuda  # noqa: E402
from pretend_cuda import PretendCuda  # noqa: E402

NO_RULE = {"autocast"}  # autocast of CUDA is PyTorch's own, which asks the device


class OnCuda(unittest.TestCase):
    def test_cases(self):
        for name, case in torch_cuda.CASES.items():
            if name in NO_RULE:
                continue
            with self.subTest(name), warnings.catch_warnings(), PretendCuda():
                warnings.simplefilter("ignore", fcpc.Warning)
                try:
                    got = case("cuda")
                except torch_cuda.Skip as error:
                    self.skipTest(str(error))
                self.assertEqual({x.device.type for x in got}, {"cuda"} if got else set())
                self.assertLessEqual(torch_cuda.compare([x.cpu() for x in got], case("cpu")), 1e-3)

    def test_mixtures(self):
        """What is wrong on a GPU is wrong here."""
        with PretendCuda():
            x, index = torch.zeros(3, device="cuda"), torch.tensor([2, 0])
            for wrong in (lambda: x + torch.ones(3), lambda: torch.cat([x, torch.ones(3)]),
                          lambda: x.index_select(0, index), lambda: torch.ones(3)[index.cuda()],
                          lambda: torch.nn.functional.embedding(index, x[:, None])):
                with self.assertRaises(RuntimeError):
                    wrong()
            self.assertRaises(TypeError, x.numpy)
            for right in x + 1, x + torch.tensor(1.0), x[index], x.cpu().cuda(), torch.ones_like(x), x.new_zeros(2), \
                    torch.arange(3, device=x.device), torch.ones(3).to(x), torch.ones(3).copy_(x).to("cuda:0"):
                self.assertEqual(right.device.type, "cuda")
            self.assertEqual((x.cpu() + torch.ones(3)).tolist(), [1, 1, 1])
            y = torch.ones(2, requires_grad=True)
            (y.cuda() * 3).sum().backward()
            self.assertEqual((y.grad.device.type, y.grad.tolist()), ("cpu", [3, 3]))

    def test_a_group_that_sends_from_cuda_alone(self):
        """Rows on the CPU are sent as well, and come back there."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        dist.init_process_group("gloo", init_method=f"file://{folder.name}/store", rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

        def send(parts, mine, group):
            self.assertEqual(mine.device.type, "cuda")
            parts[0].copy_(mine)
        plan = fcpc.program("causal", heads=1, kv_heads=1, head_dim=16, cluster=fcpc.detect(dist.group.WORLD)).plan([9])
        x = torch.arange(18.0).view(9, 2)
        with PretendCuda(), mock.patch.object(dist, "get_backend_config", lambda group: "cuda:nccl"), \
                mock.patch.object(dist, "all_gather", send):
            for mine in x, x.cuda():
                back = plan.restore(plan.take(mine), group=dist.group.WORLD)
                self.assertEqual((back.device, back.tolist()), (mine.device, x.tolist()))
            self.assertEqual(plan.restore(plan.take(x.numpy()), group=dist.group.WORLD).tolist(), x.tolist())

    def test_errors_are_seen(self):
        """compare refuses what differs."""
        right = [torch.ones(3), torch.tensor([1.0, -torch.inf])]
        torch_cuda.compare(right, right)
        for wrong in (right[:1], [torch.ones(3), torch.tensor([1.0, 2.0])], [torch.tensor([1, 1, 1.1]), right[1]],
                      [torch.full((3,), torch.nan), right[1]], [right[0].double(), right[1]]):
            with self.assertRaises(AssertionError):
                torch_cuda.compare(wrong, right)

    def test_without_cuda(self):
        done = subprocess.run([sys.executable, torch_cuda.__file__], capture_output=True, text=True,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, timeout=120)
        self.assertRegex(done.stdout, r"^none torch PyTorch \S+ sees no CUDA device\n$", done.stderr)


if __name__ == "__main__":
    unittest.main()
