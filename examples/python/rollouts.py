"""rollouts.py: rollouts of one prompt share what came before them, so each shared token is computed once.

    python3 examples/python/rollouts.py

In reinforcement learning a prompt is answered many times, and several answers go on from the same first turns. Here a
prompt P has two answers, A and B, and B goes on in two ways:

    P -+- A                 rollouts: P A, P B C, P B D
       +- B -+- C           the tree, depth first: P A B C D, each part once
             +- D

`fcpc.forest` finds the tree by comparing the tokens of the rollouts. A token sees the tokens before it in its own
rollout: those whose subtree it is in. Depth first, a token's subtree ends at one place, `last`. So the mask is
`causal and q <= last[k]`. Example, with one token in each part: the subtree of B is B C D, at 2 to 4. So last[2] = 4,
and C and D see B. A's subtree ends at 1, so they do not see A.

Printed is how far the forest's attention and gradients are from those of each rollout alone, and what a batch of trees
costs, compared with rollouts one after the other and with rollouts filled up to the longest.
"""
import random

import torch
import torch.nn.functional as F

import fcpc
from fcpc.torch import Attention

HEADS, KV_HEADS, DIM, WORDS = 4, 2, 16, 1 << 20


def rollouts(draw, prompt, answers, tokens):
    """Token ids of the rollouts of one prompt.

    answers: how many ways there are to go on, turn by turn; tokens: the least and the most of a turn."""
    made = [torch.tensor([draw.randrange(WORDS) for _ in range(prompt)])]
    for ways in answers:
        made = [torch.cat([before, torch.tensor([draw.randrange(WORDS) for _ in range(draw.randint(*tokens))])])
                for before in made for _ in range(ways)]
    return made


def program(cluster, **model):
    return fcpc.program("causal and q <= last[k]", fields=["last"], cluster=cluster, **model)


def check():
    """Returns the largest difference between the forest's o, dq, dk, dv and those of each rollout alone, relative to
    the largest value. The loss is a sum over the rollouts, so a token that several share counts for all of them."""
    forest = fcpc.forest(rollouts(random.Random(1), 90, (3, 2), (10, 40)))
    prog = program(fcpc.Cluster(1, 4, "cpu"), heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="fp32", block=32)
    plan = prog.plan(forest)
    torch.manual_seed(0)
    q, k, v = (torch.randn(len(forest), heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
    d_o = [torch.randn(len(rows), HEADS, DIM) for rows in forest.unpack(forest.tokens)]
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    o = plan.restore(Attention(prog).bind(plan)(*(plan.take(x) for x in ours)))
    sum((x * d).sum() for x, d in zip(forest.unpack(o), d_o)).backward()

    alone, got, want = [x.clone().requires_grad_() for x in (q, k, v)], [], []
    for rows, mine, d in zip(forest.unpack(torch.arange(len(forest))), forest.unpack(o), d_o):
        x, y, z = (t[rows].transpose(0, 1) for t in alone)
        y, z = (t.repeat_interleave(HEADS // KV_HEADS, 0) for t in (y, z))
        one = F.scaled_dot_product_attention(x, y, z, is_causal=True).transpose(0, 1)
        one.backward(d)
        got.append(mine.detach())
        want.append(one.detach())
    return max(((a - b).abs().max() / b.abs().max()).item()
               for a, b in zip([torch.cat(got), *(x.grad for x in ours)], [torch.cat(want), *(x.grad for x in alone)]))


def costs(nodes=2):
    """{how the batch is made: the figures of its plan}, of eight prompts with sixteen rollouts each."""
    draw = random.Random(2)
    batch = [r for _ in range(8) for r in rollouts(draw, draw.randint(4096, 12288), (4, 2, 2), (512, 2048))]
    lengths = [len(r) for r in batch]
    cluster, model = fcpc.Cluster(nodes, 8, "h100"), {"heads": 32, "kv_heads": 8, "block": 1024}
    causal = fcpc.program("causal", cluster=cluster, **model)
    plans = {"trees": program(cluster, **model).plan(fcpc.forest(batch)),
             "each rollout": causal.plan(lengths),
             "filled to the longest": causal.plan([max(lengths)] * len(lengths))}
    return {name: {"tokens": plan.global_tokens, "flops": sum(plan.summary()[f"flops_{x}"] for x in plan.passes),
                   "bytes": plan.summary()["bytes_total"] + plan.summary()["backward_bytes_total"],
                   "seconds": sum(x["makespan_s"] for _, x in plan.simulate().passes())}
            for name, plan in plans.items()}


def main():
    print(f"a forest differs from its rollouts alone by {check():.1e} of the largest value")
    print(f"\n{'16 GPUs, both passes':24}{'tokens':>10}{'TFLOP':>10}{'GB moved':>10}{'ms':>10}")
    for name, x in costs().items():
        print(f"{name:24}{x['tokens']:>10}{x['flops'] / 1e12:>10.1f}{x['bytes'] / 1e9:>10.2f}"
              f"{x['seconds'] * 1e3:>10.2f}")


if __name__ == "__main__":
    main()
