"""test_loops.py: the loops of runtime/python/README.md, as they stand there, on four ranks. Losses, gradients and
parameters must be those of one process that has PyTorch's own attention, to the rounding of float32."""
from __future__ import annotations

import functools
import itertools
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import fcpc
from agent import four_ranks
from fcpc.torch import Attention

README = Path(fcpc.__file__).parents[1] / "README.md"
WORDS, HEADS, KV_HEADS, DIM, IGNORE = 20, 2, 1, 16, -100
SGD = {"lr": 0.1, "momentum": 0.9}  # its steps are as wrong as its gradients are; those of AdamW hide a factor
SIZES = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "fp32", "block": 16}
UNLABELLED = 2  # this rank has no label in the second batch


def blocks(chapter):
    """The pieces of Python in a chapter of the README."""
    text = README.read_text().split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    return [piece.split("```")[0] for piece in text.split("```python\n")[1:]]


BY_HAND, DDP, FSDP, AVERAGED, IN_PARTS = blocks("A training loop")
MESH, GROUPS = blocks("Beside tensor, pipeline and data parallelism")
LOGP, FOREST, ROLLOUTS = blocks("Reinforcement learning")
TRANSFORMERS, = blocks("Models of Hugging Face")
SETUP = BY_HAND.split("for batch, plan")[0]


class Model(torch.nn.Module):
    """Attention, and nothing else that looks at other tokens. With experts, each token goes through one of two layers,
    and a layer that no token goes through has no gradient."""

    def __init__(self, experts):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, HEADS * DIM), torch.nn.Embedding(80, HEADS * DIM)
        self.qkv = torch.nn.Linear(HEADS * DIM, (HEADS + 2 * KV_HEADS) * DIM)
        self.out = torch.nn.Linear(HEADS * DIM, WORDS)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(HEADS * DIM, HEADS * DIM) for _ in range(2 * experts))

    def forward(self, tokens, positions, attention):
        x = self.words(tokens) + self.places(positions)
        q, k, v = self.qkv(x).view(len(x), HEADS + 2 * KV_HEADS, DIM).split([HEADS, KV_HEADS, KV_HEADS], 1)
        x = 2 * x + attention(q, k, v).flatten(1)
        for number, expert in enumerate(self.experts):
            mine = tokens % 2 == number
            if mine.any():
                x = torch.where(mine[:, None], expert(x), x)
        return self.out(x)


def model(experts=False):
    torch.manual_seed(0)
    return Model(experts)


def batches(number=0):
    """Four batches of documents inside sequences, half of whose labels are masked. In the second one a rank has no
    label, the third has fewer blocks than ranks, and in the last nothing has a label."""
    draw = torch.Generator().manual_seed(number)
    for i, (lengths, documents) in enumerate([([60, 0, 36], [25, 35, 20, 16]), ([80, 40], [40, 40, 10, 30]),
                                              ([20], [12, 8]), ([40], [40])]):
        doc = torch.repeat_interleave(torch.arange(len(documents)) % 3, torch.tensor(documents))
        tokens = torch.randint(WORDS, (sum(lengths),), generator=draw)
        labels = torch.where(torch.rand(len(tokens), generator=draw) < 0.5, tokens, IGNORE)
        if i == 1:
            labels[of_rank(lengths, doc, UNLABELLED)] = IGNORE
        if i == 3:
            labels[:] = IGNORE
        yield SimpleNamespace(lengths=lengths, doc=doc, tokens=tokens, labels=labels)


def small_program():
    """The README's, with the sizes of the test."""
    return fcpc.program("causal and doc[q] == doc[k]", fields=["doc"], documents="doc", cluster=fcpc.detect(), **SIZES)


def of_rank(lengths, doc, rank):
    """Where the labels of a rank's tokens stand in the packed batch."""
    plan = small_program().plan(lengths, {"doc": doc}, here=range(rank, rank + 1))
    return [row for row in plan.rows(shift=1) if row >= 0]


def facts(batch):
    """Of a batch in its own order: the pairs that attend, the positions, and the label of the token behind each one."""
    sequence = torch.repeat_interleave(torch.arange(len(batch.lengths)), torch.tensor(batch.lengths))
    at, document = torch.arange(len(batch.tokens)), sequence * 100 + batch.doc
    same = document[:, None] == document
    allowed, positions = same & (at[:, None] >= at), (same & (at[:, None] > at)).sum(1)
    labels = batch.labels.roll(-1).masked_fill(document != document.roll(-1), IGNORE)
    labels[-1] = IGNORE
    return allowed, positions, labels


def by_itself(net, batch):
    """(logits, the label of the token behind each one) of a batch in its own order, by PyTorch's attention."""
    allowed, positions, labels = facts(batch)

    def attention(q, k, v):
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for x in (k, v))
        return F.scaled_dot_product_attention(q.transpose(0, 1), k, v, attn_mask=allowed).transpose(0, 1)
    return net(batch.tokens, positions, attention), labels


def alone(steps, clip=None, experts=False):
    """[[loss, gradients, parameters]] of each step of one process. steps: the batches of each step."""
    net, made = model(experts), []
    optimizer = torch.optim.SGD(net.parameters(), **SGD)
    for step in steps:
        total, count = 0.0, 0
        for batch in step:
            logits, labels = by_itself(net, batch)
            total = total + F.cross_entropy(logits, labels, reduction="sum")
            count += (labels != IGNORE).sum().item()
        loss = total / max(count, 1)
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        made.append([loss.item(), [p.grad.clone() for p in net.parameters()]])
        optimizer.step()
        optimizer.zero_grad()
        made[-1].append([p.detach().clone() for p in net.parameters()])
    return made


def whole(x):
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).detach().clone()


def run(pieces, names):
    """Runs pieces of the README, one behind the other, with a small model and with an optimizer that hides nothing."""
    make = fcpc.program
    with mock.patch.object(fcpc, "program", lambda *a, **k: make(*a, **{**k, **SIZES})), \
            mock.patch.object(torch.optim, "AdamW", functools.partial(torch.optim.SGD, **SGD)):
        for piece in pieces:
            exec(compile(piece, str(README), "exec"), names)


def trained(pieces, experts=False, **names):
    """[loss, gradients, parameters] of each step of pieces of the README, run one behind the other. The loss is this
    rank's part of it."""
    names.update(torch=torch, model=model(experts))
    names["optimizer"], steps = torch.optim.SGD(names["model"].parameters(), **SGD), []

    def parameters():
        return list(names["model"].parameters())

    def before(*_):
        steps.append([names["loss"].item(), [whole(p.grad) for p in parameters()]])

    def after(*_):
        steps[-1].append([whole(p) for p in parameters()])
    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    run(pieces, names)
    for hook in hooks:
        hook.remove()
    return steps


def distance(got, want):
    """How far gradients and parameters are from those of one process, as a part of the largest of each."""
    assert len(got) == len(want)
    return torch.stack([(a - b).abs().max() / (b.abs().max() + 1e-6) for step, right in zip(got, want)
                        for x, y in zip(step[1:], right[1:]) for a, b in zip(x, y)]).max().item()


def factor(got, want):
    """What the gradients of the first step are multiplied by."""
    a, b = (torch.cat([x.flatten() for x in steps[0][1]]) for steps in (got, want))
    return (a @ b / (b @ b)).item()


def log_probabilities(group):
    """Of all tokens, on this rank: as the README says it, and by PyTorch alone."""
    names = {"group": group, "model": model()}
    run([SETUP], names)
    for batch in itertools.islice(batches(), 2):
        batch.labels = batch.tokens
        names.update(batch=batch, plan=names["prog"].plan(batch.lengths, {"doc": batch.doc}))
        run([LOGP], names)
        yield names["everywhere"], -F.cross_entropy(*by_itself(names["model"], batch), reduction="none")


def rollouts(group):
    """Log-probabilities of the README's forest: as it says, and by PyTorch alone."""
    names = {"group": group, "model": model(), "fcpc": fcpc, "old": [torch.zeros(3)]}
    run([FOREST], names)
    names["attn"] = Attention(names["prog"], group=group)
    run([ROLLOUTS], names)
    for rollout, logp in zip([[5, 6, 7], [5, 6, 8, 9], [4]], names["logp"], strict=True):
        batch = SimpleNamespace(lengths=[len(rollout)], doc=torch.zeros(len(rollout), dtype=torch.long),
                                tokens=torch.tensor(rollout), labels=torch.tensor(rollout))
        yield logp[1:], -F.cross_entropy(*by_itself(names["model"], batch), reduction="none")[:-1]


def ranks(want):
    """Of each loop: (this rank's parts of the losses, how far gradients and parameters are from those of one process);
    and of each of two mistakes what it multiplies gradients by."""
    dist.init_process_group("gloo")
    group, (one, experts, parts, both) = dist.group.WORLD, want

    def compare(pieces, judge, loader, **more):
        steps = trained(pieces, group=group, loader=loader, **more)
        return [loss for loss, *_ in steps], distance(steps, judge)
    said = {"by hand": compare([BY_HAND], one, batches()),
            "by hand, experts": compare([BY_HAND], experts, batches(), experts=True)}
    for name, wrap in ("DDP", DDP), ("FSDP2", FSDP):
        said[name] = compare([SETUP, wrap, AVERAGED], one, batches())
        said[f"{name}, in parts"] = compare([SETUP, wrap, IN_PARTS], parts, itertools.chain(batches(0), batches(1)))
    data_group = dist.get_rank() // 2
    for name, mesh in ("FSDP2, groups", MESH), ("DDP, groups", MESH.replace(
            "fully_shard(model, mesh=mesh)", "model = torch.nn.parallel.DistributedDataParallel(model)")):
        said[name] = compare([mesh, SETUP, GROUPS], both, batches(data_group))
    # Two mistakes: tokens without a label are counted, and what is averaged is taken for a sum.
    steps = trained([BY_HAND.replace("max(count, 1)", "plan.global_tokens")], group=group, loader=batches())
    mistakes = [factor(steps, one)]
    steps = trained([SETUP, DDP, AVERAGED.replace("(loss * group.size())", "loss")], group=group, loader=batches())
    mistakes.append(factor(steps, one))
    assert all(torch.allclose(got, right, atol=1e-5) for got, right in log_probabilities(group))
    assert all(torch.allclose(got, right, atol=1e-5) for got, right in rollouts(group))
    dist.destroy_process_group()
    return said, mistakes


class Loops(unittest.TestCase):
    def test_four_ranks(self):
        """Gradients and parameters are those of one process, and losses add up to its loss: by hand, under DDP and
        under FSDP2, in micro-batches with clipping, and with two groups that have batches of their own. The comparison
        finds mistakes, by which gradients are those of one process times a factor."""
        want = (alone([[batch] for batch in batches()]), alone([[batch] for batch in batches()], experts=True),
                alone([batches(0), batches(1)], clip=1.0), alone(zip(batches(0), batches(1))))
        one, experts, _, both = ([loss for loss, *_ in steps] for steps in want)
        self.assertEqual([loss > 0 for loss in one + both], [True, True, True, False] * 2)
        self.assertTrue(all(abs(sum(g.norm() ** 2 for g in gradients) - 1) < 1e-4 for _, gradients, _ in want[2]))
        by_rank = four_ranks(ranks, want)
        for name in by_rank[0][0]:
            losses, far = zip(*(said[name] for said, _ in by_rank))
            self.assertLess(max(far), 2e-6, name)
            if "parts" not in name:  # there the loop's loss is that of a part
                for step, right in enumerate(both if "groups" in name else experts if "experts" in name else one):
                    self.assertAlmostEqual(sum(rank[step] for rank in losses), right, places=5, msg=name)
        labels = [[loss > 0 for loss in said["by hand"][0]] for said, _ in by_rank]
        self.assertEqual([some[1] for some in labels], [rank != UNLABELLED for rank in range(4)])
        self.assertEqual([some[2] for some in labels], [True, True, False, False])  # these ranks have no tokens
        for _, (of_all, averaged) in by_rank:
            self.assertLess(of_all, 0.6)
            self.assertAlmostEqual(averaged, 0.25, places=5)

    def test_the_table(self):
        """What the README's example says of positions and labels is so."""
        table = {cells[0].strip(" `"): [int(x) for x in cells[1:]] for cells in (
            line.strip("|").split("|") for line in README.read_text().split("\n") if line.startswith("| ")
            and all(x.strip().lstrip("-").isdigit() for x in line.strip("|").split("|")[1:]))}
        plan = small_program().plan([8], {"doc": table["doc"]})
        labels, count = plan.take_labels(torch.tensor(table["batch.labels"]))
        self.assertEqual(plan.restore(plan.positions()).tolist(), table["position"])
        self.assertEqual(plan.restore(labels).tolist(), table["label that the token gets"])
        self.assertIn(f"`count` is {count},", README.read_text())

    def test_a_model_of_transformers(self):
        """The README's loop with a small Llama: its gradients are those of the model's own attention."""
        from transformers import LlamaConfig, LlamaForCausalLM
        config = LlamaConfig(vocab_size=WORDS, hidden_size=HEADS * DIM, intermediate_size=32, num_hidden_layers=1,
                             num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=DIM)

        def make(_, attn_implementation):
            torch.manual_seed(0)
            return LlamaForCausalLM._from_config(config, attn_implementation=attn_implementation)
        names = {"AutoModelForCausalLM": SimpleNamespace(from_pretrained=make), "name": "", "group": None, "fcpc": fcpc,
                 "loader": batches(), "Attention": Attention}
        run([TRANSFORMERS], names)
        self.assertEqual(names["loss"].item(), 0)  # of the last batch, which has no labels
        judge = make("", "eager")
        for batch in batches():
            allowed, positions, labels = facts(batch)
            logits = judge(batch.tokens[None], position_ids=positions[None], use_cache=False,
                           attention_mask=torch.zeros(1, 1, *allowed.shape).masked_fill(~allowed, -1e9)).logits[0]
            (F.cross_entropy(logits, labels, reduction="sum") / (labels != IGNORE).sum().clamp(min=1)).backward()
        self.assertLess(distance([[0, [p.grad for p in names["model"].parameters()]]],
                                 [[0, [p.grad for p in judge.parameters()]]]), 1e-5)


if __name__ == "__main__":
    unittest.main()
