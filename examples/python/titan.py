"""titan.py: a model of torchtitan's shape, parallel over data, pipeline, context and tensor.

    python3 examples/python/titan.py                                                # all in this process
    torchrun --nproc-per-node 4 examples/python/titan.py --context 2 --tensor 2
    torchrun --nproc-per-node 4 examples/python/titan.py --context 2 --pipeline 2
    torchrun --nproc-per-node 8 examples/python/titan.py --data 2 --context 2 --tensor 2

The losses that it prints do not depend on how the processes are divided, but for rounding. It needs no torchtitan.
Where a model there hands a BlockMask down to its layers, this one hands down what `Attention.bind` gave. Three things
differ from a training loop without context parallelism:

1. The group `context` of the mesh makes the plans (`setup`). Its heads are those of one tensor rank.
2. Tokens, positions and labels are taken in the plan's order, and the loss is a sum over the labels of this process,
   divided by their number in all (`step`).
3. Gradients are summed over `context` as over `data` (`reduce`).
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fcpc
import fcpc.torch

WORDS, DIM, HEADS, KV_HEADS, HEAD_DIM, LAYERS, LONGEST = 32, 64, 4, 2, 16, 4, 512
AXES = ("data", "pipeline", "context", "tensor")


# --- the model --------------------------------------------------------------------------------------------------------

def rotate(x, freqs_cis):
    """Rotary embeddings: x [1, tokens, heads, head_dim], freqs_cis [tokens, head_dim / 2]."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * freqs_cis[:, None]).flatten(3)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.wk, self.wv = (nn.Linear(DIM, KV_HEADS * HEAD_DIM, bias=False) for _ in range(2))
        self.wo = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def forward(self, x, freqs_cis, attention):
        q, k, v = (w(x).view(*x.shape[:2], -1, HEAD_DIM) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, freqs_cis), rotate(k, freqs_cis)
        # Keys are not repeated for the queries' heads: that would be more to send.
        return self.wo(attention(q[0], k[0], v[0])[None].flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(DIM, 2 * DIM, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * DIM, DIM, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM), nn.RMSNorm(DIM)

    def forward(self, x, freqs_cis, attention):
        x = x + self.attention(self.attention_norm(x), freqs_cis, attention)
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """All stages of a pipeline. `divide` leaves one: other layers go, and embeddings or output become None."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, DIM)
        self.layers = nn.ModuleDict({str(i): TransformerBlock() for i in range(LAYERS)})
        self.norm, self.output = nn.RMSNorm(DIM), nn.Linear(DIM, WORDS, bias=False)
        angles = torch.outer(torch.arange(LONGEST), 1e4 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        self.freqs_cis = torch.polar(torch.ones_like(angles), angles)

    def forward(self, x, attention, positions):
        x = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            x = layer(x, self.freqs_cis[positions], attention)
        return self.output(self.norm(x)) if self.output is not None else x


def divide(model, mesh):
    """Leaves this process its layers, and of their matrices its part."""
    stage, stages = mesh["pipeline"].get_local_rank(), mesh["pipeline"].size()
    for name in list(model.layers):
        if int(name) * stages // LAYERS != stage:
            del model.layers[name]
    if stage > 0:
        model.tok_embeddings = None
    if stage < stages - 1:
        model.norm = model.output = None
    if mesh["tensor"].size() > 1:
        for layer in model.layers.values():
            parallelize_module(layer, mesh["tensor"], {
                **{f"attention.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}, "attention.wo": RowwiseParallel(),
                **{f"feed_forward.{w}": ColwiseParallel() for w in ("w1", "w3")}, "feed_forward.w2": RowwiseParallel()})


# --- training ---------------------------------------------------------------------------------------------------------

def batches(count, number, groups):
    """Sequences that repeat themselves after eight words: those of data group `number`, of `groups`."""
    draw = torch.Generator().manual_seed(3)
    for i in range(count):
        lengths = [160 - 16 * (i % 4), 96 + 16 * (i % 4)] * 2
        words = [torch.randint(WORDS, (8,), generator=draw).repeat(n // 8) for n in lengths]
        mine = range(number * 4 // groups, (number + 1) * 4 // groups)
        yield {"lengths": [lengths[j] for j in mine], "tokens": torch.cat([words[j] for j in mine])}


class Trainer:
    def __init__(self, mesh):
        """mesh: of data, pipeline, context and tensor; None: all in this process."""
        torch.manual_seed(0)  # the same parameters everywhere
        self.mesh, self.model, tensor, group = mesh, Transformer(), 1, None
        if mesh is not None:
            divide(self.model, mesh)
            tensor, group = mesh["tensor"].size(), mesh["context"].get_group()
        self.prog = fcpc.program("causal", heads=HEADS // tensor, kv_heads=KV_HEADS // tensor, head_dim=HEAD_DIM,
                                 dtype="fp32", block=32, cluster=fcpc.detect(group))
        self.attention = fcpc.torch.Attention(self.prog, group=group)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2, foreach=False)

    def train(self, steps):
        """The loss of each step."""
        mesh, losses = self.mesh, []
        number, groups = (0, 1) if mesh is None else (mesh["data"].get_local_rank(), mesh["data"].size())
        for batch, plan in self.prog.ahead(batches(steps, number, groups), depth=2, threads=1):
            losses.append(self.reduce(self.step(batch, plan)).item())
            self.optimizer.step()
            self.optimizer.zero_grad()
        return losses

    def step(self, batch, plan):
        """Both passes of this process's tokens and layers. Its part of the loss, which is 0 but in the last stage."""
        attention, positions = self.attention.bind(plan), plan.positions()
        pipeline = self.mesh and self.mesh["pipeline"]
        stage, last = (pipeline.get_local_rank(), pipeline.size() - 1) if pipeline else (0, 0)
        x = plan.take(batch["tokens"])[None]
        if stage > 0:
            x = torch.empty(1, plan.tokens, DIM)
            dist.recv(x, group=pipeline.get_group(), group_src=stage - 1)
            x.requires_grad_()
        out, loss = self.model(x, attention, positions), torch.zeros(())
        if stage == last:
            labels, count = plan.take_labels(batch["tokens"])
            loss = F.cross_entropy(out[0], labels, reduction="sum") / self.over_data(torch.tensor(count))
            loss.backward()
        else:
            dist.send(out.detach(), group=pipeline.get_group(), group_dst=stage + 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, group=pipeline.get_group(), group_src=stage + 1)
            out.backward(gradient)
        if stage > 0:
            dist.send(x.grad, group=pipeline.get_group(), group_dst=stage - 1)
        return loss.detach()

    def over_data(self, count):
        """The labels of all data groups: each process knows those of its own batch."""
        if self.mesh is not None:
            dist.all_reduce(count, group=self.mesh["data"].get_group())
        return count

    def reduce(self, loss):
        """Sums gradients and loss over context and data, whose ranks have other tokens and the same parameters."""
        if self.mesh is None:
            return loss
        grads = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in self.model.parameters()]
        for x in (loss, *grads):
            for axis in ("context", "data"):
                dist.all_reduce(x, group=self.mesh[axis].get_group())
        dist.all_reduce(loss, group=self.mesh["pipeline"].get_group())  # all but the last stage have 0
        return loss


def main():
    parser = argparse.ArgumentParser()
    for axis in AXES:
        parser.add_argument(f"--{axis}", type=int, default=1, help="ranks of this axis")
    sizes = vars(parser.parse_args())
    mesh = None
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", [sizes[axis] for axis in AXES], mesh_dim_names=AXES)
    losses = Trainer(mesh).train(steps=20)
    if mesh is None or dist.get_rank() == 0:
        print(f"loss {losses[0]:.4f} in the first step, {losses[-1]:.4f} in step {len(losses)}")
    if mesh is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
