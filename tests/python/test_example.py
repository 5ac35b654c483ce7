"""test_example.py: a training loop with a small model, compared with the same model under a dense mask. Ranks that are
processes run it too (ranks.py). test_loops.py has the loops of runtime/python/README.md."""
import copy
import unittest
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F

import fcpc
import rollouts
import spellings
from fcpc.torch import Attention

WORDS, HEADS, KV_HEADS, DIM = 50, 4, 2, 16


class Model(torch.nn.Module):
    """Two layers of attention and nothing else that looks at other tokens."""

    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, HEADS * DIM), torch.nn.Embedding(512, HEADS * DIM)
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(HEADS * DIM, (HEADS + 2 * KV_HEADS) * DIM) for _ in range(2))
        self.out = torch.nn.Linear(HEADS * DIM, WORDS)

    def forward(self, tokens, positions, attention):
        x = self.words(tokens) + self.places(positions)
        for layer in self.qkv:
            q, k, v = layer(x).view(len(x), -1, DIM).split([HEADS, KV_HEADS, KV_HEADS], 1)
            x = x + attention(q, k, v).reshape(x.shape)
        return self.out(x)


def loader(batches):
    for i in range(batches):
        lengths = [200 - 30 * (i % 5), 120 + 30 * (i % 5)]
        doc = torch.cat([torch.arange(n) // 70 for n in lengths])
        tokens = torch.randint(WORDS, (320,), generator=torch.Generator().manual_seed(i))
        yield SimpleNamespace(lengths=lengths, doc=doc, tokens=tokens, labels=tokens)


def on_a_mask(model, batch):
    """The loss of a batch with every token in its place, by scaled_dot_product_attention."""
    number = torch.repeat_interleave(torch.arange(2), torch.tensor(batch.lengths))
    at = torch.arange(320)
    allowed = (at[:, None] >= at) & (number[:, None] == number) & (batch.doc[:, None] == batch.doc)

    def attention(q, k, v):
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for x in (k, v))
        return F.scaled_dot_product_attention(q.transpose(0, 1), k, v, attn_mask=allowed).transpose(0, 1)
    document = number * 100 + batch.doc
    positions = allowed.sum(1) - 1
    labels = batch.labels.roll(-1).masked_fill(document != document.roll(-1), -100)
    return F.cross_entropy(model(batch.tokens, positions, attention), labels)


class Rollouts(unittest.TestCase):
    def test_trees(self):
        """Attention and gradients of a tree are those of each rollout alone; and a tree costs less."""
        self.assertLess(rollouts.check(), 1e-5)
        trees, each, filled = rollouts.costs().values()
        for figure in ("tokens", "flops", "seconds"):
            self.assertLess(2 * trees[figure], each[figure], figure)
            self.assertLess(each[figure], filled[figure], figure)


class Spellings(unittest.TestCase):
    def test_the_same_batch(self):
        """All ways to describe one batch have the same pairs, and so the same attention."""
        allowed = spellings.mask_mod(0, 0, torch.arange(spellings.TOKENS)[:, None], torch.arange(spellings.TOKENS))
        for name, (pairs, far) in spellings.compare().items():
            self.assertEqual(pairs, allowed.sum(), name)
            self.assertLess(far, 1e-5, name)


README = Path(fcpc.__file__).parents[1] / "README.md"


class Wide(torch.nn.Module):
    """A model with the heads of the README's program."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 16, dtype=torch.bfloat16)
        self.qkv = torch.nn.Linear(16, 48 * 128, dtype=torch.bfloat16)
        self.out = torch.nn.Linear(32 * 128, WORDS, dtype=torch.bfloat16)

    def forward(self, tokens, positions, attention):
        q, k, v = self.qkv(self.words(tokens)).view(len(tokens), 48, 128).split([32, 8, 8], 1)
        return self.out(attention(q, k, v).flatten(1)).float()


class Readme(unittest.TestCase):
    def test_the_loop_as_it_stands(self):
        """The README's first loop, run as it is, on batches that a forked worker of a data loader makes."""
        text = README.read_text().split("## A training loop")[1].split("```python\n")[1].split("```")[0]
        torch.manual_seed(0)
        batches = torch.utils.data.DataLoader(list(loader(2)), batch_size=None, num_workers=1,
                                              multiprocessing_context="fork")
        names = {"group": None, "model": Wide(), "loader": batches}
        before = copy.deepcopy(names["model"])
        names["optimizer"] = torch.optim.SGD(names["model"].parameters(), lr=0.1)
        exec(compile(text, str(README), "exec"), names)
        self.assertTrue(3 < names["loss"].item() < 5, names["loss"])
        self.assertGreater((names["model"].qkv.weight - before.qkv.weight).abs().max(), 0)
        self.assertIn("<svg", names["plan"]._repr_html_())


class Example(unittest.TestCase):
    def test_the_loop(self):
        self.loop(None)

    def loop(self, group):
        torch.manual_seed(0)
        model, steps = Model(), 0
        prog = fcpc.program(mask="causal and doc[q] == doc[k]", fields=["doc"], documents="doc", heads=HEADS,
                            kv_heads=KV_HEADS, head_dim=DIM, cluster=fcpc.detect(group), dtype="fp32", block=32)
        attn = Attention(prog, group=group)
        for batch, plan in prog.ahead(loader(4), depth=2, threads=2):
            logits = model(plan.take(batch.tokens), plan.positions(), attn.bind(plan))
            labels, count = plan.take_labels(batch.labels)
            loss = F.cross_entropy(logits, labels, reduction="sum") / count
            loss.backward()
            got, steps = [p.grad.clone() for p in model.parameters()], steps + 1
            loss = loss.detach()
            if group is not None:
                for x in (loss, *got):
                    dist.all_reduce(x, group=group)
                self.assertEqual((plan.here, plan.tokens < 320), (range(dist.get_rank(), dist.get_rank() + 1), True))
            model.zero_grad()
            want = on_a_mask(model, batch)
            want.backward()
            self.assertAlmostEqual(loss.item(), want.item(), places=5)
            for a, p in zip(got, model.parameters()):
                self.assertLess((a - p.grad).abs().max().item(), 1e-6)
            model.zero_grad()
        self.assertEqual(steps, 4)
