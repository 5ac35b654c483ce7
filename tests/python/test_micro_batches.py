"""test_micro_batches.py: batches whose masks read fields, and forests of rollouts, are split into micro-batches. Losses
and gradients that are summed over the micro-batches are those of the whole batch."""
import random
import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as F

import fcpc
from agent import four_ranks
from fcpc.torch import Attention

TREES = """model {{ heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }}
cluster {{ gpus = 2; gpu = cpu }}
batch {{ field last = given; field at = given }}
mask tree = causal and q <= last[k]
mask near = tree and at[q] - at[k] < 6
plan {{ {masks}; block = 128; strategy = fcp }}"""


class Fields(unittest.TestCase):
    def test_equal_lengths_cost_what_their_fields_leave(self):
        """Eight chains, and eight sequences of 128 pieces that do not see each other: as long, but with less to do."""
        prog = fcpc.parse(TREES.format(masks="mask = tree"), fields=["last", "at"])
        length = 4096
        chain, pieces = [length - 1] * length, [t | 31 for t in range(length)]
        lengths, last = [length] * 16, [chain, pieces] * 8
        fields = {"last": last, "at": [list(range(length))] * 16}
        made = prog.micro_batches(lengths, tokens=4 * length, fields=fields, least=4)
        self.assertEqual(sorted(sum(made, [])), list(range(16)))
        self.assertEqual([sum(n % 2 == 0 for n in numbers) for numbers in made], [2] * 4)
        self.assertEqual(made, prog.micro_batches(lengths, None, 4 * length, 4, False, fields))

    def test_values_are_checked_as_by_plan(self):
        prog = fcpc.parse(TREES.format(masks="layers = [tree, near]"), fields=["last", "at"])
        right = {"last": [2, 2, 2], "at": [0, 1, 2]}
        self.assertEqual(prog.micro_batches([3], fields=right), [[0]])
        for fields, code in ((None, "E320"), ({"last": [2, 2, 2]}, "E320"), ({**right, "at": [1, 2]}, "E320"),
                             ({**right, "other": [1, 2, 3]}, "E320"), ([1, 2, 3], "E202")):
            for call in (prog.plan, prog.micro_batches):
                with self.assertRaises(fcpc.Error) as raised:
                    call([3], fields=fields)
                self.assertEqual(raised.exception.code, code, fields)
        for options, code in (({"tokens": -1}, "E206"), ({"least": 1 << 24}, "E206"), ({"tokens": 1}, "E206")):
            with self.assertRaises(fcpc.Error) as raised:
                prog.micro_batches([3], fields=right, **options)
            self.assertEqual(raised.exception.code, code, options)


IDS, WIDTH, HEADS, KV_HEADS, DIM, WINDOW = 31, 24, 4, 2, 16, 6


class Model(torch.nn.Module):
    """Two layers of attention, one of which sees a window, on what the two masks of TREES allow."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.ids, self.places = torch.nn.Embedding(IDS, WIDTH), torch.nn.Embedding(64, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * DIM) for _ in range(2))
        self.out = torch.nn.ModuleList(torch.nn.Linear(HEADS * DIM, WIDTH) for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, IDS)

    def forward(self, tokens, at, attentions):
        x = self.ids(tokens) + self.places(at)
        for layer, out, attention in zip(self.layers, self.out, attentions):
            q, k, v = layer(x).view(len(x), HEADS + 2 * KV_HEADS, DIM).split((HEADS, KV_HEADS, KV_HEADS), 1)
            x = x + out(attention(q, k, v).flatten(1)).tanh()
        return self.head(x)


def alone(window):
    """Attention of one rollout by itself."""
    def attention(q, k, v):
        n = len(q)
        far = torch.arange(n)[:, None] - torch.arange(n)
        k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for x in (k, v))
        return F.scaled_dot_product_attention(q.transpose(0, 1), k, v, (far >= 0) & (far < window)).transpose(0, 1)
    return attention


def turns(count, seed):
    """Rollouts of some turns, which begin with one of three prompts and go on from each other's turns."""
    draw, made = random.Random(seed), []
    for i in range(count):
        mine = made[draw.randrange(i)] if i > 2 and draw.random() < 0.8 else []
        keep = draw.randint(0, len(mine))
        made.append(mine[:keep] + [draw.randrange(IDS) for _ in range(draw.randint(1, 12))])
        made[-1] = made[-1][:40]
    return made


def the_batch():
    """Rollouts, and of each what weighs its tokens and its advantage."""
    rollouts, draw = turns(24, 1), torch.Generator().manual_seed(1)
    return (rollouts, [torch.rand(len(x), generator=draw) for x in rollouts],
            [torch.randn((), generator=draw) for _ in rollouts])


def loss_of(logprobs, entropies, weights, advantage):
    """A sum over the tokens of one rollout: a clipped policy gradient with an entropy bonus."""
    ratio = (logprobs + 3.5 * weights).exp()
    clipped = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return -(clipped * weights + 0.01 * entropies).sum()


def one_by_one(model):
    """The loss of each rollout alone."""
    for ids, weights, advantage in zip(*the_batch()):
        tokens = torch.tensor(ids)
        logits = model(tokens, torch.arange(len(ids)), (alone(99), alone(WINDOW))).log_softmax(1)[:-1]
        yield loss_of(F.pad(logits.gather(1, tokens[1:, None])[:, 0], (1, 0)),
                      F.pad(-(logits.exp() * logits).sum(1), (1, 0)), weights, advantage)


def gradients(model, losses):
    total = torch.zeros(())
    for loss in losses(model):
        loss.backward()
        total += loss.detach()
    return [total, *(x.grad for x in model.parameters())]


def a_step(group, ahead):
    """The sum of the losses of micro-batches, and its gradients; with a group these are summed over its ranks."""
    rollouts, weights, advantages = the_batch()
    prog = fcpc.program(layers=["causal and q <= last[k]", f"causal and q <= last[k] and at[q] - at[k] < {WINDOW}"],
                        fields=["last", "at"], heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, dtype="fp32", block=16,
                        cluster=fcpc.detect(group, 4) if group is None else fcpc.detect(group))
    forest = fcpc.forest(rollouts)
    parts = prog.micro_batches(forest, tokens=15)
    assert parts.repeated > 0 and len(parts) > 3, parts

    def losses(model):
        for part, plan in ahead(prog, forest, parts):
            logits = model(plan.take(part.tokens), plan.take(part.at), [attention.bind(plan, i) for i in (0, 1)])
            yield sum(loss_of(*x) for x in zip(part.logprobs(logits, plan, group), part.entropy(logits, plan, group),
                                               part.select(weights), part.select(advantages)))
    with Attention(prog, group=group) as attention:
        found = gradients(Model(), losses)
    for x in found[1:] if group is not None else ():
        dist.all_reduce(x, group=group)
    return found


def on_a_rank():
    dist.init_process_group("gloo")
    try:
        group = dist.group.WORLD
        return [x.numpy() for x in a_step(group, lambda prog, forest, parts: prog.ahead(parts, group=group))]
    finally:
        dist.destroy_process_group()


class Forests(unittest.TestCase):
    def setUp(self):
        self.prog = fcpc.parse(TREES.format(masks="layers = [tree, near]"), fields=["last", "at"])

    def check(self, forest, parts, cap):
        """Each rollout is in one part, whose trees hold the cap; together they have as many tokens as is said."""
        self.assertEqual(sorted(sum((part.rollouts for part in parts), ())), list(forest.rollouts))
        for part in parts:
            self.assertLessEqual(len(part), 2 * cap)
            self.assertEqual(part.select(list(forest.rollouts)), list(part.rollouts))
        self.assertEqual(sum(map(len, parts)), len(forest) + parts.repeated)
        self.assertEqual(len(parts.seconds), len(parts))
        self.assertGreater(min(parts.seconds), 0)

    def test_trees_are_cut_where_they_must_be(self):
        """Two trees of 8 rollouts each, of 20 shared tokens and 10 of their own: 100 rows."""
        rollouts = [[tree] * 20 + [10 + i] * 10 for tree in range(2) for i in range(8)]
        forest = fcpc.forest(rollouts)
        for cap, count, repeated in ((100, 1, 0), (50, 2, 0), (99, 2, 0), (25, 6, 80), (30, 4, 40)):
            parts = self.prog.micro_batches(forest, tokens=cap)
            self.check(forest, parts, cap)
            self.assertEqual(parts.seconds, sorted(parts.seconds, reverse=True))
            self.assertEqual((len(parts), parts.repeated), (count, repeated), cap)
        self.assertEqual(len(self.prog.micro_batches(forest, tokens=100, least=2)), 2)
        self.assertEqual(len(self.prog.micro_batches(forest)), 1)  # 65536 of a rank
        with self.assertRaises(fcpc.Error) as raised:
            self.prog.micro_batches(forest, tokens=14)
        self.assertEqual(raised.exception.code, "E206")
        self.assertIn("rollout 0 has 30 tokens", str(raised.exception))
        with self.assertRaises(fcpc.Error) as raised:
            self.prog.micro_batches(forest, fields={"last": forest.last})
        self.assertEqual(raised.exception.code, "E300")
        nothing = self.prog.micro_batches(fcpc.forest([[], []]))
        self.assertEqual((list(nothing), nothing.repeated), ([], 0))

    def test_many(self):
        """Random forests, and parts of parts."""
        for seed in range(30):
            rollouts = turns(30, seed)
            forest = fcpc.forest(rollouts, least=1 + seed % 3)
            cap = 20 + seed
            parts = self.prog.micro_batches(forest, tokens=cap, keep_order=seed % 2 == 0)
            self.check(forest, parts, cap)
            again = self.prog.micro_batches(parts[0], tokens=20)
            self.assertEqual(sorted(sum((part.rollouts for part in again), ())), list(parts[0].rollouts))
            for part in again:
                self.assertEqual([x.tolist() for x in part.unpack(part.tokens)], part.select(rollouts))

    def test_sums_are_those_of_the_whole(self):
        """Of all rollouts alone, of the forest, of its micro-batches in two ways: losses and all gradients are the same
        to rounding."""
        want = gradients(Model(), one_by_one)
        for ahead in (lambda prog, forest, parts: [(forest, prog.plan(forest))],
                      lambda prog, forest, parts: prog.ahead(parts),
                      lambda prog, forest, parts: prog.ahead(part for part in parts)):
            self.near(a_step(None, ahead), want)

    def test_four_processes(self):
        """Each process makes the same micro-batches, and one of them plans each; gradients are summed over them."""
        want = gradients(Model(), one_by_one)
        for found in four_ranks(on_a_rank):
            self.near(found, want)

    def near(self, found, want):
        for a, b in zip(found, want, strict=True):
            a, b = torch.as_tensor(a), torch.as_tensor(b)
            self.assertLess(float((a - b).abs().max()), 2e-5 * float(b.abs().max()) + 1e-6)


if __name__ == "__main__":
    unittest.main()
