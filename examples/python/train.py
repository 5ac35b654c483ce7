"""train.py: a small language model learns to repeat what it has read, over all processes that a launcher starts.

    python3 examples/python/train.py                                 # four ranks in this process: a laptop
    torchrun --nproc-per-node 4 examples/python/train.py
    mpirun -n 4 python3 examples/python/train.py
    sbatch examples/python/train.sbatch
    torchrun --nproc-per-node 4 examples/python/train.py --data 2    # two groups of two ranks, with own batches

The losses that it prints do not depend on how many processes compute them, but for rounding.
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import fcpc
from fcpc.torch import Attention

WORDS, HEADS, DIM, PERIOD = 32, 4, 16, 8
AXES = ("data", "context")
# What says to a process which it is, and how many there are: torchrun, Open MPI, Slurm.
LAUNCHERS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, HEADS * DIM), torch.nn.Embedding(PERIOD, HEADS * DIM)
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM) for _ in range(2))
        self.out = torch.nn.Linear(HEADS * DIM, WORDS)

    def forward(self, tokens, positions, attention):
        x = self.words(tokens) + self.places(positions % PERIOD)
        for layer in self.qkv:
            q, k, v = layer(x).view(len(x), 3 * HEADS, DIM).split(HEADS, 1)
            x = x + attention(q, k, v).flatten(1)
        return self.out(x)


def batches(count, number):
    """Sequences of two documents each, which repeat themselves after PERIOD words; every group of ranks has its own
    number. Nobody can know the first PERIOD words of a document, so they are no labels."""
    draw = torch.Generator().manual_seed(number)
    for i in range(count):
        documents = [80 - 8 * (i % 4), 80 - 8 * (i % 4), 32 + 8 * (i % 4), 64 + 8 * (i % 4)]
        words = [torch.randint(WORDS, (PERIOD,), generator=draw).repeat(n // PERIOD) for n in documents]
        labels = [torch.cat([torch.full((PERIOD,), -100), x[PERIOD:]]) for x in words]
        yield {"lengths": [sum(documents[:2]), sum(documents[2:])], "tokens": torch.cat(words),
               "labels": torch.cat(labels), "doc": torch.repeat_interleave(torch.arange(4), torch.tensor(documents))}


def train(mesh, steps=40):
    """Trains, and returns the loss of each step.

    mesh   all ranks, as (data, context): those of a context group share a batch, and each data group has its own
           batches. None: all in this process
    """
    torch.manual_seed(0)
    model, losses = Model(), []
    group, number = (None, 0) if mesh is None else (mesh["context"].get_group(), mesh["data"].get_local_rank())
    prog = fcpc.program(mask="causal and doc[q] == doc[k]", documents="doc", heads=HEADS, head_dim=DIM,
                        dtype="fp32", block=32, cluster=fcpc.detect(group))
    attn = Attention(prog, group=group)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for batch, plan in prog.ahead(batches(steps, number), depth=2, threads=1):
        logits = model(plan.take(batch["tokens"]), plan.positions(), attn.bind(plan))
        labels, count = plan.take_labels(batch["labels"])
        total = torch.tensor(count)
        if mesh is not None:
            dist.all_reduce(total, group=mesh["data"].get_group())
        loss = F.cross_entropy(logits, labels, reduction="sum") / total
        loss.backward()
        loss = loss.detach()
        if mesh is not None:  # each rank has the loss and the gradients of its own tokens
            for x in (loss, *(p.grad for p in model.parameters())):
                dist.all_reduce(x)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def join():
    """Makes the group of all processes that the launcher has started; False: there is no launcher."""
    for rank, ranks in LAUNCHERS:
        if rank in os.environ and ranks in os.environ:
            os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            os.environ.setdefault("MASTER_PORT", "29400")
            dist.init_process_group("gloo", rank=int(os.environ[rank]), world_size=int(os.environ[ranks]))
            return True
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=int, default=1, help="groups of ranks that have batches of their own")
    groups = parser.parse_args().data
    if not join():
        losses = train(None)
    else:
        losses = train(init_device_mesh("cpu", (groups, dist.get_world_size() // groups), mesh_dim_names=AXES))
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"loss {losses[0]:.3f} in the first step, {losses[-1]:.3f} in step {len(losses)}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
