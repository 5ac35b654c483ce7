"""test_recurrent.py: layers that recur on plans: stretches, halos, scans, and layers in plain PyTorch (recurring.py) that
give the same on any placement, with gradients. The judge is the layer by itself, in float64."""
import copy
import os
import random
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch.autograd import forward_ad

import fcpc
import hybrid
import recurring
from agent import four_ranks
from expecting import Expecting
from fcpc.torch import Attention
from recurring import CHANNELS, COLUMNS, HEADS, KINDS, LAYERS, ROWS, Convolution

NEAR = 1e-4


def a_program(group=None, ranks=4, kinds=KINDS, **more):
    return fcpc.program(layers=["causal and doc[q] == doc[k]", *kinds], documents="doc", heads=2, head_dim=16,
                        dtype="fp32", cluster=fcpc.detect(group, ranks) if group is None else fcpc.detect(group),
                        **{"block": 16, **more})


def a_batch(seed):
    """(lengths, documents, doc) of a random batch: some documents have one token."""
    draw = random.Random(seed)
    documents = [draw.choice([1, 2, 5, draw.randint(3, 90)]) for _ in range(draw.randint(1, 7))]
    at = draw.randint(0, len(documents))
    lengths = [sum(documents[:at]), sum(documents[at:])]
    return lengths, documents, torch.repeat_interleave(torch.arange(len(documents)) % 3, torch.tensor(documents))


def inputs_of(layer, tokens, seed):
    torch.manual_seed(seed)
    return layer.draw(tokens)


def taken(plan, x):
    """This process's part, in float32: a row for each token, or a weight, which all have."""
    return {name: (plan.take(value) if name != "w" else value.clone()).float().requires_grad_()
            for name, value in x.items()}


def far(got, want):
    """How far a result is from the judge's, as a part of what may be."""
    return ((got.double() - want).abs().max() / (NEAR * max(1.0, want.abs().max()))).item() if want.numel() else 0.0


def judged(x, function, d):
    """(result, gradients) in float64."""
    x = {name: value.clone().requires_grad_() for name, value in x.items()}
    y = function(x)
    y.backward(d)
    return y.detach(), {name: value.grad for name, value in x.items()}


def cases():
    """(layer, how it is computed whole, how by a plan) by name."""
    for name, layer in LAYERS.items():
        for reverse in (False, True):
            yield (f"{name}{' reverse' * reverse}", layer,
                   lambda x, documents, layer=layer, reverse=reverse: recurring.whole(layer, x, documents, reverse),
                   lambda x, attention, layer=layer, reverse=reverse: recurring.by_plan(layer, x, attention, reverse))
    for before, after in ((3, 0), (1, 2), (0, 40)):
        layer = Convolution(before, after)
        yield f"convolution {before} {after}", layer, layer.whole, layer.by_plan


class Layers(unittest.TestCase):
    def test_any_placement(self):
        """Results and gradients of each layer are those of the layer by itself: random batches, strategies, layouts and
        blocks."""
        ways = [{}, {"strategy": "ring", "layout": "zigzag"}, {"strategy": "dcp", "block": 32},
                {"layout": "contiguous", "block": 8}, {"strategy": "ulysses", "ranks": 2}]
        for seed, way in enumerate(ways):
            prog = a_program(**way)
            lengths, documents, doc = a_batch(seed)
            plan = prog.plan(lengths, {"doc": doc})
            attention = Attention(prog).bind(plan)
            for name, layer, alone, by_plan in cases():
                x = inputs_of(layer, len(doc), seed)
                d = torch.randn(len(doc), *((CHANNELS,) if "w" in x else (HEADS, COLUMNS)), dtype=torch.float64)
                want, gradients = judged(x, lambda x: alone(x, documents), d)
                mine = taken(plan, x)
                y = by_plan(mine, attention)
                y.backward(plan.take(d).float())
                self.assertLess(far(y.detach(), plan.take(want)), 1, (name, way))
                for key, right in gradients.items():
                    right = right if key == "w" else plan.take(right)
                    self.assertLess(far(mine[key].grad, right), 1, (name, way, key))

    def test_padded_convolution(self):
        """`trim` takes rows of a convolution that fills up by itself, too."""
        prog = a_program()
        lengths, documents, doc = a_batch(9)
        plan = prog.plan(lengths, {"doc": doc})
        for before, after in ((3, 0), (1, 2)):
            layer = Convolution(before, after)
            x = inputs_of(layer, len(doc), 9)
            y = layer.by_plan(taken(plan, x), Attention(prog).bind(plan), padded=True)
            self.assertLess(far(y.detach(), plan.take(layer.whole(x, documents))), 1)

    def test_batches_in_flight(self):
        """Each backward pass runs the plan of its own forward pass, and with the layers of several masks."""
        prog = fcpc.program(layers=["causal", ("window(w = 9)", 2), *KINDS], heads=2, head_dim=16, dtype="fp32", block=16,
                            cluster=fcpc.detect())
        attn, results = Attention(prog), []
        for seed, length in enumerate((120, 77, 33)):
            plan = prog.plan([length])
            attention, window = attn.bind(plan), attn.bind(plan, layer=1)
            x = inputs_of(LAYERS["delta"], length, seed)
            mine = taken(plan, x)
            y = recurring.by_plan(LAYERS["delta"], mine, attention)
            q = torch.randn(length, 2, 16)
            window(q, q, q)
            results.append((plan, x, mine, y, torch.randn(length, HEADS, COLUMNS, dtype=torch.float64)))
        for plan, x, mine, y, d in results:
            y.backward(plan.take(d).float())
            _, right = judged(x, lambda x: recurring.whole(LAYERS["delta"], x, [len(d)]), d)
            for key, value in right.items():
                self.assertLess(far(mine[key].grad, plan.take(value)), 1, key)

    def test_four_processes(self):
        """Four processes have the bits of one. In the second batch one of them has no token."""
        for found in four_ranks(as_a_rank, [as_one(seed) for seed in (0, 10)]):
            self.assertEqual(found, [])


def results_of(prog, group, seed):
    """{layer: (result, gradients of its inputs)} of this process's tokens."""
    lengths, _, doc = a_batch(seed)
    plan = prog.plan(lengths, {"doc": doc})
    attention, found = Attention(prog, group=group, timeout=200).bind(plan), {}
    for name, layer, _, by_plan in cases():
        x = inputs_of(layer, len(doc), seed)
        d = torch.randn(len(doc), *((CHANNELS,) if "w" in x else (HEADS, COLUMNS)))
        if "w" in x and group is not None and not plan.tokens:  # F.conv1d refuses fewer rows than its weight has
            attention.halo(plan.take(x["x"]).float().requires_grad_(), layer.before, layer.after).sum().backward()
            continue
        mine = taken(plan, x)
        y = by_plan(mine, attention)
        y.backward(plan.take(d))
        found[name] = [y.detach(), *(torch.zeros_like(value) if value.grad is None else value.grad
                                     for key, value in mine.items() if key != "w")]
    return plan, found


def as_one(seed):
    plan, found = results_of(a_program(), None, seed)
    return seed, {name: [plan.restore(x) for x in results] for name, results in found.items()}


def as_a_rank(judged):
    """What differs."""
    dist.init_process_group("gloo")
    prog, wrong = a_program(dist.group.WORLD), []
    for seed, want in judged:
        plan, found = results_of(prog, dist.group.WORLD, seed)
        wrong += [(seed, name, i) for name, results in found.items() for i, x in enumerate(results)
                  if not torch.equal(x, plan.take(want[name][i]))]
    dist.destroy_process_group()
    return wrong


def losses_of_a_rank():
    dist.init_process_group("gloo")
    losses = hybrid.train(dist.group.WORLD, 3)
    dist.destroy_process_group()
    return losses


class Example(unittest.TestCase):
    def test_the_same_losses(self):
        """examples/python/hybrid.py on one rank, where each document is in one piece, on four ranks, and on four
        processes."""
        alone, four = hybrid.train(None, 3, ranks=1), hybrid.train(None, 3)
        self.assertGreater(abs(alone[0] - alone[2]), 0.05)
        for losses in [four, *four_ranks(losses_of_a_rank)]:
            self.assertLess(max(abs(a - b) for a, b in zip(losses, alone)), 1e-4, losses)


class Stretches(Expecting):
    def test_they_are_all_tokens(self):
        for seed in range(6):
            lengths, documents, doc = a_batch(seed)
            plan = a_program(block=8).plan(lengths, {"doc": doc})
            rows, begins = list(plan.rows()), [sum(documents[:i]) for i in range(len(documents))]
            found = plan.stretches()
            self.assertEqual(rows, [x.start + i for x in found for i in range(x.length)])
            self.assertEqual([x.first for x in found] + [plan.tokens], plan.cu_seqlens().tolist())
            self.assertEqual(plan.cu_seqlens().dtype, torch.int32)
            for x in found:
                begin = begins[x.document]
                self.assertEqual((x.begins, x.ends), (x.start == begin,
                                                      x.start + x.length == begin + documents[x.document]))
            each = [plan.stretches(rank) for rank in range(plan.ranks)]
            self.assertEqual([x._replace(first=0) for x in found], [x._replace(first=0) for y in each for x in y])
            self.assertTrue(all(not y or y[0].first == 0 for y in each))
            self.assertEqual([plan.cu_seqlens(rank)[-1].item() for rank in range(plan.ranks)], list(plan.rank_queries))

    def test_of_one_rank_alone(self):
        """What one rank needs of a plan has its stretches and its layers."""
        lengths, _, doc = a_batch(0)
        plan = a_program().plan(lengths, {"doc": doc})
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "extracts")
            root = plan.save_extracts(path)
            for rank in range(plan.ranks):
                mine = fcpc.load(path, range(rank, rank + 1), root=root)
                self.assertEqual(mine.recurrent, plan.recurrent)
                self.assertEqual([x._replace(document=0) for x in mine.stretches()],
                                 [x._replace(document=0) for x in plan.stretches(rank)])
                self.expect("E506", lambda: mine.stretches((rank + 1) % 4))

    def test_what_a_plan_has(self):
        self.assertEqual(a_program().plan([9], {"doc": [0] * 9}).recurrent,
                         (*KINDS[:-1], fcpc.Halo(0, 40, 32)))
        prog = fcpc.program(layers=["causal", (fcpc.Scan(decay="vector"), 3), "halo(before = 2) x 2"], heads=2,
                            head_dim=16, cluster=fcpc.detect(ranks=2))
        plan = prog.plan([64])
        self.assertEqual(plan.recurrent, (fcpc.Scan(2, 16, 16, "vector", False, 3), fcpc.Halo(2, 0, 32, 2)))
        self.assertEqual((prog.masks, copy.deepcopy(plan).recurrent), (1, plan.recurrent))
        self.assertEqual(fcpc.program("causal").plan([64]).recurrent, ())

    def test_errors(self):
        plan = a_program().plan([40], {"doc": [0] * 40})
        self.expect("E203", lambda: plan.stretches(4), "there is no rank 4")
        self.expect("E203", lambda: plan.stretches("1"), "a whole number")
        split = fcpc.program("causal", cluster=fcpc.detect()).plan([100], queries=[50])
        self.expect("E702", split.stretches, "other numbers of queries than of keys")
        for layers, words in ((["causal", fcpc.Scan(decay="full")], "scalar, vector, matrix"),
                              (["causal", fcpc.Halo("3")], "a whole number"),
                              (["causal", (fcpc.Halo(3), "2")], "a whole number")):
            self.expect("E202", lambda: fcpc.program(layers=layers), words)


class Operators(Expecting):
    def setUp(self):
        self.prog = a_program()
        self.plan = self.prog.plan([90, 31], {"doc": [0] * 50 + [1] * 40 + [0] * 31})
        self.attention = Attention(self.prog).bind(self.plan)
        self.stretches = len(self.plan.stretches())

    def scan(self, decay="matrix", seed=0):
        torch.manual_seed(seed)
        return torch.rand(self.stretches, *recurring.SHAPES[decay]), torch.randn(self.stretches, HEADS, ROWS, COLUMNS)

    def test_types_of_halos(self):
        """Rows of any type and shape travel as they are; of three there are gradients."""
        rows = torch.arange(self.plan.global_tokens)
        for dtype in (torch.int64, torch.bool, torch.float64, torch.uint8, torch.complex64):
            x = self.plan.take(rows[:, None, None].expand(-1, 2, 3).to(dtype))
            packed = self.attention.halo(x, 3, 0)
            self.assertTrue(torch.equal(self.attention.trim(packed, 3, 0), x), dtype)
            self.assertEqual((packed.dtype, packed.shape[1:]), (dtype, x.shape[1:]))
        for dtype, near in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)):
            x = torch.randn(self.plan.tokens, 4, dtype=dtype, requires_grad=True)
            packed = self.attention.halo(x, 3, 0)
            d = torch.randn_like(packed)
            packed.backward(d)
            mine = x.detach().double().requires_grad_()
            self.by_rows(mine, 3, 0).backward(d.double())
            self.assertLess((x.grad.double() - mine.grad).abs().max(), near * 10, dtype)
            self.assertTrue(torch.equal(packed.detach(), self.by_rows(x.detach(), 3, 0)))

    def by_rows(self, x, before, after):
        """What halo means: by rows of the packed batch."""
        rows, documents = list(self.plan.rows()), [(0, 50), (50, 90), (90, 121)]
        at = {row: i for i, row in enumerate(rows)}
        made, none = [], x.new_zeros(x.shape[1:])
        for s in self.plan.stretches():
            begin, end = documents[s.document]
            for row in range(s.start - before, s.start + s.length + after):
                made.append(x[at[row]] if begin <= row < end else none)
        return torch.stack(made)

    def test_derivatives(self):
        """Gradients are those of differences; a tensor that is not dense has the same."""
        decay, state = self.scan()
        weight = torch.randn_like(state)

        def loss(decay, state):
            return (self.attention.scan(decay, state) * weight).sum()
        for x in (decay, state):
            x.requires_grad_()
        loss(decay, state).backward()
        for name, x in (("decay", decay), ("state", state)):
            way = torch.randn_like(x)
            with torch.no_grad():
                step = 1e-2
                ends = [loss(*(y + t * way if y is x else y for y in (decay, state))).item() for t in (step, -step)]
            slope, right = (ends[0] - ends[1]) / (2 * step), (x.grad * way).sum().item()
            self.assertLess(abs(slope - right), 3e-2 * max(1, abs(right)), name)
        sparse = decay.detach().mT.contiguous().mT.requires_grad_()
        self.assertFalse(sparse.is_contiguous())
        loss(sparse, state.detach()).backward()
        self.assertTrue(torch.equal(sparse.grad, decay.grad))

    def test_the_same_bits(self):
        for decay in recurring.SHAPES:
            first, second = (self.attention.scan(*self.scan(decay)) for _ in range(2))
            other = Attention(self.prog, threads=3).bind(self.plan).scan(*self.scan(decay))
            self.assertTrue(torch.equal(first, second) and torch.equal(first, other))
            self.assertGreater(first.abs().max(), 0)

    def test_transforms(self):
        """torch.func.grad has the gradients; second derivatives, forward mode and vmap are refused with words."""
        decay, state = self.scan()
        x = torch.randn(self.plan.tokens, 3)
        for name, call, at in (("scan", lambda s: self.attention.scan(decay, s).square().sum(), state),
                               ("halo", lambda x: self.attention.halo(x, 3, 0).square().sum(), x)):
            leaf = at.clone().requires_grad_()
            right, = torch.autograd.grad(call(leaf), leaf, create_graph=True)
            self.assertTrue(torch.equal(torch.func.grad(call)(at), right.detach()), name)
            self.expect("E702", right.sum().backward, name, "second derivatives")
            self.expect("E702", lambda: torch.func.jvp(call, (at,), (at,)), name, "forward mode")
            self.expect("E702", lambda: torch.func.vmap(call)(at[None]), name, "vmap")
            with forward_ad.dual_level():
                self.expect("E702", lambda: call(forward_ad.make_dual(at, at)), name, "forward mode")

    def test_errors(self):
        halo, trim, scan = self.attention.halo, self.attention.trim, self.attention.scan
        x, (decay, state) = torch.zeros(self.plan.tokens, 3), self.scan()
        self.expect("E203", lambda: halo(x, 2), "before = 2", "no kind of layers is so", "6: halo(before = 3")
        self.expect("E203", lambda: halo(x), "several kinds")
        self.expect("E203", lambda: halo(x, layer=11), "there is no kind of layers 11")
        self.expect("E203", lambda: halo(x, layer=0), "kind 0", "scan(")
        self.expect("E203", lambda: halo(x, 3, layer=7), "kind 7")
        self.expect("E701", lambda: halo(x[:-1], 3), f"[{self.plan.tokens}, 3]")
        self.expect("E701", lambda: halo(x[:, :0], 3), "no numbers")
        self.expect("E701", lambda: halo(x.tolist(), 3), "a tensor of torch")
        self.expect("E701", lambda: halo(x.double().requires_grad_(), 3), "float64", "gradient")
        self.expect("E701", lambda: trim(x, 3), f"halo gave {self.plan.tokens + 3 * self.stretches}")
        self.expect("E701", lambda: scan(decay, state.double()), "state is float64", "state.float()")
        self.expect("E701", lambda: scan(decay[1:], state), f"has {self.stretches} stretches", "plan.stretches()")
        self.expect("E701", lambda: scan(decay, 1.0), "a tensor of torch")
        self.expect("E203", lambda: scan(decay[..., :-1, :-1], state), "no kind of layers is so")
        self.expect("E203", lambda: scan(decay, state, layer=0), "kind 0")
        plain = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", cluster=fcpc.detect())
        none = Attention(plain).bind(plain.plan([64]))
        self.expect("E203", lambda: none.halo(torch.zeros(64, 1), 3), "The plan has none")
        prog = a_program(passes="forward")
        once = Attention(prog).bind(prog.plan([64], {"doc": [0] * 64}))
        self.expect("E705", once.halo(torch.zeros(64, 1, requires_grad=True), 3, 0).sum().backward, "no backward pass")
        attn = Attention(self.prog)
        closed = attn.bind(self.plan)
        attn.close()
        self.expect("E203", lambda: closed.scan(decay, state), "closed")

    def test_compiled(self):
        """torch.compile takes a layer whole, and a new plan compiles nothing anew once sizes may vary."""
        count = []

        def backend(graph, example):
            count.append(1)
            return graph.forward

        def layer(x, decay, state, attention):
            return attention.trim(attention.halo(x, 3, 0) * 2, 3, 0), attention.scan(decay, state)
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend=backend, fullgraph=True)
        attn = Attention(self.prog)
        for tokens in (121, 90, 57, 130):
            plan = self.prog.plan([tokens], {"doc": [0] * tokens})
            stretches = len(plan.stretches())
            x = torch.randn(plan.tokens, 3, requires_grad=True)
            decay, state = torch.rand(stretches, HEADS), torch.randn(stretches, HEADS, ROWS, COLUMNS)
            attention = attn.bind(plan)
            got, want = compiled(x, decay, state, attention), layer(x, decay, state, attention)
            for a, b in zip(got, want):
                self.assertTrue(torch.equal(a, b))
            got[0].sum().backward()
        self.assertLessEqual(len(count), 2)


if __name__ == "__main__":
    unittest.main()
