"""test_agent.py: models that train on four ranks, which torchrun's agent has started, and on one. The agent forks them
from this process, which has loaded PyTorch already."""
import unittest

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import titan
from agent import four_ranks
from fcpc.torch import Attention

try:
    import test_hf
except unittest.SkipTest:
    test_hf = None


def alone(model, steps):
    """(loss, gradients) of steps of one process, with the attention of transformers."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), []
    for step in range(steps):
        _, loss = test_hf.each_alone(model, test_hf.batch_of(step))
        loss.backward()
        found.append((loss.item(), [p.grad.clone() for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
    return found


def summed(loss, model):
    """The loss and the gradients of all ranks. A rank whose tokens chose no expert has no gradient of it."""
    parts = [loss.detach(), *(torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters())]
    for x in parts:
        dist.all_reduce(x)
    return parts


def trained(want):
    """The same steps of a Llama over the group. What is farthest from them, as a part of what may be."""
    dist.init_process_group("gloo")
    model, worst = test_hf.tiny(), 0.0
    prog = test_hf.program(model, dist.group.WORLD)
    attn = Attention(prog, group=dist.group.WORLD, timeout=200)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = [test_hf.batch_of(step) for step in range(len(want))]
    for (batch, plan), right in zip(prog.ahead(batches, depth=2, threads=2), want):
        assert plan.tokens < plan.global_tokens
        loss = model(**test_hf.inputs(model, attn, plan, batch)).loss
        loss.backward()
        worst = max(worst, far_off(summed(loss, model), right))
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return worst


def far_off(parts, right):
    loss, gradients = right
    return max(abs(parts[0].item() - loss) / 1e-5,
               *(test_hf.farthest(x, torch.zeros_like(x) if y is None else y) for x, y in zip(parts[1:], gradients)))


def each_model(judged):
    """For each model what is farthest from what it should be: logits of this rank, the loss, the gradients."""
    dist.init_process_group("gloo")
    found = {}
    for name, (batch, logits, loss, gradients) in judged.items():
        model = test_hf.model_of(test_hf.config(name))
        plan, out = test_hf.by_plan(model, batch, dist.group.WORLD)
        assert plan.tokens < plan.global_tokens
        out.loss.backward()
        mine = test_hf.farthest(out.logits[0].detach(), plan.take(logits)) if plan.tokens else 0.0
        found[name] = max(mine, far_off(summed(out.loss, model), (loss, gradients)))
    dist.destroy_process_group()
    return found


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
        want = alone(test_hf.model_of(test_hf.config("llama"), "eager"), 10)
        self.assertEqual(len({loss for loss, _ in want}), 10)
        for worst in four_ranks(trained, want):
            self.assertLess(worst, 1)

    @unittest.skipIf(test_hf is None, "transformers is not there (make setup)")
    def test_each_model(self):
        """Logits, loss and gradients of each model are those of one process with the model's own attention."""
        for found in four_ranks(each_model, {name: test_hf.judged(name) for name in test_hf.MODELS}):
            for name, worst in found.items():
                self.assertLess(worst, 1, name)

    def test_context_among_other_groups(self):
        """A model of torchtitan's shape has the losses of one process, however its ranks are divided."""
        want = torch.tensor(titan.Trainer(None).train(2))
        self.assertGreater((want[0] - want[1]).abs(), 1e-3)
        for losses in four_ranks(titans):
            for sizes, got in zip(MESHES, losses):
                self.assertLess((torch.tensor(got) - want).abs().max().item(), 1e-4, sizes)


if __name__ == "__main__":
    unittest.main()
