"""hybrid.py: a small hybrid model learns to repeat what it has read: three layers of linear attention with a causal
convolution, then one layer of softmax attention, all on the placement that attention has chosen.

    python3 examples/python/hybrid.py                                # four ranks in this process: a laptop
    torchrun --nproc-per-node 4 examples/python/hybrid.py

The losses that it prints do not depend on how many processes compute them, but for rounding. A linear layer computes
each stretch of tokens that lies in one piece at its rank. What it needs of other ranks are three rows before the
stretch, for the convolution (`halo`), and the state that enters it, DIM x DIM numbers for each head (`scan`).
"""
import torch
import torch.distributed as dist
import torch.nn.functional as F

import fcpc
from fcpc.torch import Attention
from train import DIM, HEADS, PERIOD, WORDS, batches, join

KERNEL = 4                  # tokens that the convolution reads
LINEAR = 3                  # layers of linear attention before each one of attention
WIDE = HEADS * DIM


class LinearAttention(torch.nn.Module):
    """h = a h + k v^T and y = q h for each head, with a number a from 0 to 1 that each token computes, behind a causal
    convolution of q, k and v."""

    def __init__(self):
        super().__init__()
        self.qkv, self.decay = torch.nn.Linear(WIDE, 3 * WIDE), torch.nn.Linear(WIDE, HEADS)
        self.taps = torch.nn.Parameter(torch.randn(3 * WIDE, 1, KERNEL) / KERNEL)

    def forward(self, x, attention):
        rows = attention.halo(self.qkv(x), before=KERNEL - 1)  # [tokens + 3 for each stretch, 3 * WIDE]
        rows = F.conv1d(rows.t()[None], self.taps, groups=3 * WIDE)[0].t()
        q, k, v = F.silu(attention.trim(rows, before=KERNEL - 1)).view(len(x), 3 * HEADS, DIM).split(HEADS, 1)
        k = F.normalize(k, dim=-1)
        # The logarithm of the decay from each token to the end of its stretch, and the states that stretches make
        log = F.logsigmoid(self.decay(x) + 4)
        lengths = [stretch.length for stretch in attention.plan.stretches()]
        stretches = list(zip(*(tensor.split(lengths) for tensor in (q, k, v, log.to(q.dtype)))))
        decay = torch.stack([log.sum(0).exp() for _, _, _, log in stretches])
        state = torch.stack([torch.einsum("tha,th,thb->hab", k, (log.sum(0) - log.cumsum(0)).exp(), v)
                             for _, k, v, log in stretches])
        entering = attention.scan(decay, state)                # [stretches, HEADS, DIM, DIM]
        return torch.cat([self.stretch(*part, h) for part, h in zip(stretches, entering)]).flatten(1)

    @staticmethod
    def stretch(q, k, v, log, entering):
        """The outputs of one stretch: what its own tokens give, and what the state that enters gives."""
        since = log.cumsum(0)
        between = (since[:, None] - since).masked_fill(torch.ones(len(q), len(q)).triu(1).bool()[..., None], -torch.inf)
        inside = torch.einsum("tha,sha,tsh,shb->thb", q, k, between.exp(), v)
        return inside + torch.einsum("tha,th,hab->thb", q, since.exp(), entering)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, WIDE), torch.nn.Embedding(PERIOD, WIDE)
        self.linear = torch.nn.ModuleList(LinearAttention() for _ in range(LINEAR))
        self.qkv, self.out = torch.nn.Linear(WIDE, 3 * WIDE), torch.nn.Linear(WIDE, WORDS)

    def forward(self, tokens, positions, attention):
        x = self.words(tokens) + self.places(positions % PERIOD)
        for layer in self.linear:
            x = x + layer(F.rms_norm(x, x.shape[1:]), attention)
        q, k, v = self.qkv(F.rms_norm(x, x.shape[1:])).view(len(x), 3 * HEADS, DIM).split(HEADS, 1)
        x = x + attention(q, k, v).flatten(1)
        return self.out(F.rms_norm(x, x.shape[1:]))


def train(group, steps=40, ranks=4):
    """Trains, and returns the loss of each step. group: its processes are the ranks; None: `ranks` ranks are in this
    process."""
    torch.manual_seed(0)
    model, losses = Model(), []
    prog = fcpc.program(layers=["causal and doc[q] == doc[k]", fcpc.Scan(decay="scalar", times=LINEAR),
                                fcpc.Halo(before=KERNEL - 1, channels=3 * WIDE, times=LINEAR)],
                        documents="doc", heads=HEADS, head_dim=DIM, dtype="fp32", block=32,
                        cluster=fcpc.detect(group, ranks))
    attn = Attention(prog, group=group)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for batch, plan in prog.ahead(batches(steps, 0), depth=2, threads=1):
        logits = model(plan.take(batch["tokens"]), plan.positions(), attn.bind(plan))
        labels, count = plan.take_labels(batch["labels"])
        loss = F.cross_entropy(logits, labels, reduction="sum") / count
        loss.backward()
        loss = loss.detach()
        if group is not None:  # each rank has the loss and the gradients of its own tokens
            for x in (loss, *(p.grad for p in model.parameters())):
                dist.all_reduce(x, group=group)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    losses = train(dist.group.WORLD if join() else None)
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"loss {losses[0]:.3f} in the first step, {losses[-1]:.3f} in step {len(losses)}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
