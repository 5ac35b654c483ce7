"""test_agent.py: models that train on four ranks, which torchrun's agent has started, and on one. The agent forks them
from this process, which has loaded PyTorch already."""
import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import titan
from fcpc.torch import Attention
from test_example import loader

try:
    import test_hf
except unittest.SkipTest:
    test_hf = None


def four_ranks(function):
    """What the function gives on each of four ranks."""
    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
                          run_id="test_agent", max_restarts=0, start_method="fork", monitor_interval=0.05)
    found = elastic_launch(config, function)()
    return [found[rank] for rank in range(4)]


def llama():
    """Ten steps of a small Llama over the group: what is farthest from one process with the attention of transformers,
    as a part of what may be."""
    dist.init_process_group("gloo")
    ours, prog, worst, steps = test_hf.tiny(), test_hf.program(dist.group.WORLD), 0.0, 0
    judge, attn = test_hf.on_its_own(ours), Attention(prog, group=dist.group.WORLD, timeout=200)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (ours, judge)]
    for batch, plan in prog.ahead(loader(10), depth=2, threads=2):
        loss = test_hf.loss_by_plan(ours, batch, plan, attn)
        loss.backward()
        loss = loss.detach()
        for x in (loss, *(p.grad for p in ours.parameters())):
            dist.all_reduce(x)
        want = test_hf.loss_by_mask(judge, batch)
        want.backward()
        worst = max(worst, abs(loss.item() - want.item()) / 1e-5)
        for a, b in zip(ours.parameters(), judge.parameters()):
            near = 1e-4 * b.grad.abs().max().item() + 1e-7
            worst = max(worst, (a.grad - b.grad).abs().max().item() / near)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        steps += plan.tokens < plan.global_tokens
    dist.destroy_process_group()
    return worst, steps


def titans():
    """Losses of examples/python/titan.py on each of MESHES."""
    dist.init_process_group("gloo")
    losses = [titan.Trainer(init_device_mesh("cpu", sizes, mesh_dim_names=titan.AXES)).train(3) for sizes in MESHES]
    dist.destroy_process_group()
    return losses


MESHES = ((1, 1, 2, 2), (1, 2, 2, 1), (2, 1, 2, 1))  # data, pipeline, context, tensor


class FourRanks(unittest.TestCase):
    @unittest.skipIf(test_hf is None, "transformers is not there (make setup)")
    def test_a_llama(self):
        for worst, steps in four_ranks(llama):
            self.assertLess(worst, 1)
            self.assertEqual(steps, 10)

    def test_context_among_other_groups(self):
        """A model of torchtitan's shape has the losses of one process, however its ranks are divided."""
        want = torch.tensor(titan.Trainer(None).train(3))
        self.assertGreater((want[0] - want[1]).abs(), 1e-3)
        for losses in four_ranks(titans):
            for sizes, got in zip(MESHES, losses):
                self.assertLess((torch.tensor(got) - want).abs().max().item(), 1e-4, sizes)


if __name__ == "__main__":
    unittest.main()
