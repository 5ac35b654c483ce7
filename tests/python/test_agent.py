"""test_agent.py: models that train on four ranks, which torchrun's agent has started, and on one. The agent forks them
from this process, which has loaded PyTorch already."""
import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import titan
from agent import four_ranks
from fcpc.torch import Attention
from test_example import loader

try:
    import test_hf
except unittest.SkipTest:
    test_hf = None


def alone(model):
    """(loss, gradients) of ten steps of one process, with the attention of transformers."""
    optimizer, steps = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for batch in loader(10):
        loss = test_hf.loss_by_mask(model, batch)
        loss.backward()
        steps.append((loss.item(), [p.grad.clone() for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
    return steps


def trained(make, settings, want):
    """The same steps over the group. What is farthest from them, as a part of what may be."""
    dist.init_process_group("gloo")
    model, prog, worst = make(), test_hf.program(dist.group.WORLD, **settings), 0.0
    attn = Attention(prog, group=dist.group.WORLD, timeout=200)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for (batch, plan), (loss_alone, gradients) in zip(prog.ahead(loader(10), depth=2, threads=2), want):
        assert plan.tokens < plan.global_tokens
        loss = test_hf.loss_by_plan(model, batch, plan, attn)
        loss.backward()
        loss = loss.detach()
        for x in (loss, *(p.grad for p in model.parameters())):
            dist.all_reduce(x)
        worst = max(worst, abs(loss.item() - loss_alone) / 1e-5)
        for p, right in zip(model.parameters(), gradients):
            worst = max(worst, (p.grad - right).abs().max().item() / (1e-4 * right.abs().max().item() + 1e-7))
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return worst


def titans():
    """Losses of examples/python/titan.py on each of MESHES."""
    dist.init_process_group("gloo")
    losses = [titan.Trainer(init_device_mesh("cpu", sizes, mesh_dim_names=titan.AXES)).train(2) for sizes in MESHES]
    dist.destroy_process_group()
    return losses


MESHES = ((1, 1, 2, 2), (1, 2, 2, 1), (2, 1, 2, 1))  # data, pipeline, context, tensor


class FourRanks(unittest.TestCase):
    @unittest.skipIf(test_hf is None, "transformers is not there (make setup)")
    def test_a_llama(self):
        """Losses and gradients of ten steps are those of one process, to the rounding of float32."""
        self.assert_trained(test_hf.tiny, {})

    @unittest.skipIf(test_hf is None, "transformers is not there (make setup)")
    def test_a_deepseek(self):
        """The same of a model whose values are narrower than its keys."""
        self.assert_trained(test_hf.tiny_deepseek, test_hf.DEEPSEEK)

    def assert_trained(self, make, settings):
        want = alone(test_hf.on_its_own(make()))
        self.assertEqual(len({loss for loss, _ in want}), 10)
        for worst in four_ranks(trained, make, settings, want):
            self.assertLess(worst, 1)

    def test_context_among_other_groups(self):
        """A model of torchtitan's shape has the losses of one process, however its ranks are divided."""
        want = torch.tensor(titan.Trainer(None).train(2))
        self.assertGreater((want[0] - want[1]).abs(), 1e-3)
        for losses in four_ranks(titans):
            for sizes, got in zip(MESHES, losses):
                self.assertLess((torch.tensor(got) - want).abs().max().item(), 1e-4, sizes)


if __name__ == "__main__":
    unittest.main()
