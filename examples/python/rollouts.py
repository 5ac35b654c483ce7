"""rollouts.py: rollouts of one prompt share what came before them, so a tree of rollouts is one sequence.

    python3 examples/python/rollouts.py

In reinforcement learning a prompt is answered many times, and several answers go on from the same first turns. Here a
prompt P has two answers, A and B, and B goes on in two ways:

    P -+- A                 rollouts: P A, P B C, P B D
       +- B -+- C           the tree, depth first: P A B C D, each part once
             +- D

*The mask.* A token sees the tokens before it in its own rollout: those whose subtree it is in. Depth first, a token's
subtree ends at one place, `last`. So the mask is `causal and q <= last[k]`. Example, with one token in each part: the
subtree of B is B C D, at 2 to 4. So last[2] = 4, and C and D see B. A's subtree ends at 1, so they do not see A.

*Positions and labels.* Both belong to a rollout, not to the sequence. C has position 2, and so has D; and the token
after A in its rollout is not B. `plan.positions` and `plan.take_labels` count along the sequence, which would be wrong
here. The example makes its own, and brings them into the plan's order with `plan.take`.

The loss is that of the whole tree. Printed is how far the tree's attention and gradients are from those of each rollout
alone, and what a batch of trees costs, compared with rollouts one after the other and with rollouts filled up to the
longest.
"""
import random

import torch
import torch.nn.functional as F

import fcpc
from fcpc.torch import Attention

HEADS, KV_HEADS, DIM = 4, 2, 16


class Tree:
    """A prompt and what was generated after it. Each part is (number of the part before it, tokens), depth first."""

    def __init__(self, draw, prompt, answers, tokens):
        """answers: how many ways there are to go on, turn by turn; tokens: the least and the most of a turn."""
        self.parts = [(None, prompt)]
        self._grow(draw, 0, answers, tokens)
        self.begins = [0]
        for _, count in self.parts:
            self.begins.append(self.begins[-1] + count)
        self.tokens = self.begins[-1]

    def _grow(self, draw, before, answers, tokens):
        for _ in range(answers[0] if answers else 0):
            self.parts.append((before, draw.randint(*tokens)))
            self._grow(draw, len(self.parts) - 1, answers[1:], tokens)

    def paths(self):
        """The parts of each rollout, from the prompt to its end."""
        found = []
        for leaf in sorted(set(range(len(self.parts))) - {before for before, _ in self.parts}):
            path = [leaf]
            while self.parts[path[0]][0] is not None:
                path.insert(0, self.parts[path[0]][0])
            found.append(path)
        return found

    def rollouts(self):
        """For each rollout, where its tokens stand in the tree."""
        return [torch.cat([torch.arange(self.begins[p], self.begins[p + 1]) for p in path]) for path in self.paths()]

    def last(self):
        """For each token, the last token of its subtree: the field that the mask reads."""
        ends = self.begins[1:]
        for part in range(len(self.parts) - 1, 0, -1):
            before = self.parts[part][0]
            ends[before] = max(ends[before], ends[part])
        return torch.cat([torch.full((count,), end - 1) for end, (_, count) in zip(ends, self.parts)])


def program(cluster, **model):
    return fcpc.program("causal and q <= last[k]", fields=["last"], cluster=cluster, **model)


def check():
    """Returns the largest difference between the tree's o, dq, dk, dv and those of each rollout alone, relative to the
    largest value.

    The loss counts a token that several rollouts share once, as that of a policy gradient over a tree does.
    """
    tree = Tree(random.Random(1), 90, (3, 2), (10, 40))
    prog = program(fcpc.Cluster(1, 4, "cpu"), heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="fp32", block=32)
    plan = prog.plan([tree.tokens], {"last": tree.last()})
    torch.manual_seed(0)
    q, k, v, d_o = (torch.randn(tree.tokens, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS))
    ours = [x.clone().requires_grad_() for x in (q, k, v)]
    o = plan.restore(Attention(prog).bind(plan)(*(plan.take(x) for x in ours)))
    o.backward(d_o)

    alone, want, seen = [x.clone().requires_grad_() for x in (q, k, v)], torch.zeros_like(q), set()
    for tokens in tree.rollouts():
        x, y, z = (t[tokens].transpose(0, 1) for t in alone)
        y, z = (t.repeat_interleave(HEADS // KV_HEADS, 0) for t in (y, z))
        one = F.scaled_dot_product_attention(x, y, z, is_causal=True).transpose(0, 1)
        first = torch.tensor([t not in seen for t in tokens.tolist()])
        one.backward(d_o[tokens] * first[:, None, None])
        want[tokens] = one.detach()
        seen.update(tokens.tolist())
    return max(((a - b).abs().max() / b.abs().max()).item()
               for a, b in zip([o.detach(), *(x.grad for x in ours)], [want, *(x.grad for x in alone)]))


def costs(nodes=2):
    """{how the batch is made: the figures of its plan}, of eight prompts with sixteen rollouts each."""
    draw = random.Random(2)
    trees = [Tree(draw, draw.randint(4096, 12288), (4, 2, 2), (512, 2048)) for _ in range(8)]
    lengths = [len(tokens) for tree in trees for tokens in tree.rollouts()]
    cluster, model = fcpc.Cluster(nodes, 8, "h100"), {"heads": 32, "kv_heads": 8, "block": 1024}
    causal = fcpc.program("causal", cluster=cluster, **model)
    plans = {"trees": program(cluster, **model).plan([tree.tokens for tree in trees],
                                                     {"last": torch.cat([tree.last() for tree in trees])}),
             "each rollout": causal.plan(lengths),
             "filled to the longest": causal.plan([max(lengths)] * len(lengths))}
    return {name: {"tokens": plan.global_tokens, "flops": sum(plan.summary()[f"flops_{x}"] for x in plan.passes),
                   "bytes": plan.summary()["bytes_total"] + plan.summary()["backward_bytes_total"],
                   "seconds": sum(x["makespan_s"] for _, x in plan.simulate().passes())}
            for name, plan in plans.items()}


def main():
    print(f"a tree differs from its rollouts alone by {check():.1e} of the largest value")
    print(f"\n{'16 GPUs, both passes':24}{'tokens':>10}{'TFLOP':>10}{'GB moved':>10}{'ms':>10}")
    for name, x in costs().items():
        print(f"{name:24}{x['tokens']:>10}{x['flops'] / 1e12:>10.1f}{x['bytes'] / 1e9:>10.2f}"
              f"{x['seconds'] * 1e3:>10.2f}")


if __name__ == "__main__":
    main()
