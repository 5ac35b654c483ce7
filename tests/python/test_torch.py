"""test_torch.py: attention as an operator of PyTorch, against scaled_dot_product_attention, on the CPU."""
import copy
import gc
import os
import tempfile
import threading
import unittest
import warnings

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import fcpc
import fcpc.torch
from fcpc.torch import Attention
from expecting import Expecting

HEADS, KV_HEADS, DIM = 4, 2, 16
# How far results may be from those of float32 inputs, per dtype: a few steps of its own rounding.
NEAR = {"fp32": 2e-5, "fp16": 6e-3, "bf16": 5e-2}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def a_program(mask="causal", **more):
    return fcpc.program(**{"mask": mask, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "fp32",
                           "cluster": fcpc.detect(), "block": 64, **more})


def draw(tokens, dtype="fp32", seed=1):
    """q, k, v and the gradient of o, in the order of the packed batch."""
    torch.manual_seed(seed)
    shapes = [(tokens, h, DIM) for h in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    return [torch.randn(s).to(DTYPES[dtype]) for s in shapes]


def judge(allowed, q, k, v, d_o):
    """o, dq, dk, dv as PyTorch computes them in float32. allowed: bool [queries, keys] or [heads, queries, keys]."""
    q, k, v = (x.float().detach().requires_grad_() for x in (q, k, v))
    kk, vv = (x.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for x in (k, v))
    o = F.scaled_dot_product_attention(q.transpose(0, 1), kk, vv, attn_mask=allowed).transpose(0, 1)
    o.backward(d_o.float())
    return o.detach(), q.grad, k.grad, v.grad


def causal(lengths):
    """The mask of packed causal sequences."""
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return torch.ones(len(number), len(number)).tril().bool() & (number[:, None] == number)


def compute(attention, plan, q, k, v, d_o):
    """The same by fcpc: taken into the plan's order, and brought back."""
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    o = plan.restore(attention(plan.take(q), plan.take(k), plan.take(v)))
    o.backward(d_o)
    return o.detach(), q.grad, k.grad, v.grad


class Compared(unittest.TestCase):
    def assert_near(self, got, want, near):
        for name, a, b in zip(("o", "dq", "dk", "dv"), got, want):
            self.assertLess((a.float() - b).abs().max().item(), near * max(1, b.abs().max().item()), name)


class Values(Compared):
    def test_all_dtypes(self):
        lengths = [300, 150, 62]
        for dtype, near in NEAR.items():
            prog = a_program(dtype=dtype)
            plan, inputs = prog.plan(lengths), draw(512, dtype)
            got = compute(Attention(prog).bind(plan), plan, *inputs)
            self.assertEqual({x.dtype for x in got}, {DTYPES[dtype]})
            self.assert_near(got, judge(causal(lengths), *inputs), near)

    def test_masks_and_strategies(self):
        at = torch.arange(512)
        distance = at[:, None] - at
        document = torch.arange(512) // 100
        cases = [("window(w = 70)", {}, (distance >= 0) & (distance < 70), {}),
                 ("abs(q - k) <= 20 or k < 30", {"strategy": "ring"}, (distance.abs() <= 20) | (at < 30), {}),
                 ("causal and doc[q] == doc[k]", {"fields": ["doc"], "strategy": "dcp"},
                  (distance >= 0) & (document[:, None] == document), {"doc": document}),
                 ("causal and q - k < 30 * (h + 1)", {"strategy": "ulysses"},
                  (distance >= 0) & (distance < 30 * (torch.arange(HEADS)[:, None, None] + 1)), {})]
        for mask, more, allowed, fields in cases:
            prog, inputs = a_program(mask, **more), draw(512)
            plan = prog.plan([512], fields)
            self.assert_near(compute(Attention(prog).bind(plan), plan, *inputs), judge(allowed, *inputs), NEAR["fp32"])

    def test_learnable_sinks(self):
        """A sink is one more logit of each softmax; its gradient is autograd's."""
        at = torch.arange(256)
        for strategy in ("fcp", "ulysses", "dcp"):
            prog, inputs = a_program(strategy=strategy, sink=0.25), draw(256)
            plan, attn = prog.plan([256]), Attention(prog)
            for given in (None, torch.tensor([-1.0, 0.5, 2.0, 0.0])):
                sink = given if given is None else given.clone().requires_grad_()
                got = compute(lambda q, k, v: attn.bind(plan)(q, k, v, sink), plan, *inputs)
                x, y, z = (t.clone().requires_grad_() for t in inputs[:3])
                extra = (torch.full((HEADS,), 0.25) if given is None else given.clone()).requires_grad_()
                kk, vv = (t.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for t in (y, z))
                logits = (x.transpose(0, 1) @ kk.transpose(1, 2) / DIM ** 0.5).masked_fill(at[:, None] < at, -torch.inf)
                weights = torch.cat([logits, extra[:, None, None].expand(HEADS, 256, 1)], 2).softmax(-1)[..., :-1]
                o = (weights @ vv).transpose(0, 1)
                o.backward(inputs[3])
                self.assert_near(got, (o.detach(), x.grad, y.grad, z.grad), NEAR["fp32"])
                if sink is not None:
                    self.assertLess((sink.grad - extra.grad).abs().max().item(), 1e-4)

    def test_learnable_tables(self):
        """Each rank computes some of the pairs; the gradients of tables, summed over ranks, are autograd's."""
        torch.manual_seed(4)
        near, gain = torch.randn(HEADS, 33), torch.rand(HEADS) + 0.5
        at = torch.arange(256)
        distance, heads = (at[:, None] - at).clamp(0, 32), torch.arange(HEADS)[:, None, None]

        def score(s, b, h, q, k):
            return 20.0 * torch.tanh(s * gain[h] / 20.0) + near[h, torch.clamp(q - k, 0, 32)]
        for strategy, given in ("fcp", ("near", "gain")), ("ulysses", ("near",)), ("dcp", ("gain",)):
            prog, inputs = a_program(strategy=strategy, score=score), draw(256)
            plan, attn = prog.plan([256]), Attention(prog)
            mine = {n: t.clone().requires_grad_() for n, t in (("near", near * 2), ("gain", gain + 1)) if n in given}
            got = compute(lambda q, k, v: attn.bind(plan)(q, k, v, tables=mine), plan, *inputs)
            want = {n: t.detach().clone().requires_grad_() for n, t in {"near": near, "gain": gain, **mine}.items()}
            x, y, z = (t.clone().requires_grad_() for t in inputs[:3])
            kk, vv = (t.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for t in (y, z))
            s = x.transpose(0, 1) @ kk.transpose(1, 2) / DIM ** 0.5
            s = 20.0 * torch.tanh(s * want["gain"][:, None, None] / 20.0) + want["near"][heads, distance]
            o = (s.masked_fill(at[:, None] < at, -torch.inf).softmax(-1) @ vv).transpose(0, 1)
            o.backward(inputs[3])
            self.assert_near(got, (o.detach(), x.grad, y.grad, z.grad), NEAR["fp32"])
            for name, table in mine.items():
                self.assertLess((table.grad - want[name].grad).abs().max().item(), 1e-4, (strategy, name))
            for threads in (1, 4):
                again = {n: t.detach().clone().requires_grad_() for n, t in mine.items()}
                of = Attention(prog, threads=threads).bind(plan)
                compute(lambda q, k, v: of(q, k, v, tables=again), plan, *inputs)
                self.assertTrue(all(torch.equal(again[n].grad, mine[n].grad) for n in mine), f"{threads} threads")

    def test_widths_of_values(self):
        """Values have a width of their own, or are the first numbers of the keys, whose gradient then has both."""
        lengths, (q, k, _, _) = [100, 0, 156], draw(256)
        for wide in (8, 16, 40):
            v, d_o = torch.randn(256, KV_HEADS, wide), torch.randn(256, HEADS, wide)
            for strategy in ("fcp", "ulysses", "dcp"):
                prog = a_program(value_dim=wide, strategy=strategy)
                plan = prog.plan(lengths)
                got = compute(Attention(prog).bind(plan), plan, q, k, v, d_o)
                self.assertEqual((plan.value_dim, plan.values_in_keys, got[0].shape), (wide, False, d_o.shape))
                self.assert_near(got, judge(causal(lengths), q, k, v, d_o), NEAR["fp32"])
        d_o, prog = torch.randn(256, HEADS, 8), a_program(value_dim=8, values="keys")
        plan, attn = prog.plan(lengths), Attention(prog)
        x, y = (t.clone().requires_grad_() for t in (q, k))
        o = plan.restore(attn.bind(plan)(plan.take(x), plan.take(y)))
        o.backward(d_o)
        a, b = (t.clone().requires_grad_() for t in (q, k))
        kk = b.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1)
        want = F.scaled_dot_product_attention(a.transpose(0, 1), kk, kk[..., :8], causal(lengths)).transpose(0, 1)
        want.backward(d_o)
        self.assert_near((o.detach(), x.grad, y.grad), (want.detach(), a.grad, b.grad), NEAR["fp32"])

    def test_lse_and_largest_logits(self):
        """A loss may depend on o, on lse, or on both; the largest logits are those of all rows."""
        for more, shown in ({}, False), ({"sink": 0.5}, True), ({"strategy": "ulysses", "value_dim": 8}, True):
            prog = a_program(lse_gradient=True, **more)
            lengths, sink = [100, 156], "sink" in more
            plan, attn, (q, k, v, d_o) = prog.plan(lengths), Attention(prog), draw(256)
            v, d_o = v[..., :prog.plan(lengths).value_dim], d_o[..., :prog.plan(lengths).value_dim]
            d_lse = torch.randn(256, HEADS)
            for of_o, of_lse in ((1.0, 1.0), (0.0, 1.0), (None, 1.0), (1.0, None)):
                x, y, z = (t.clone().requires_grad_() for t in (q, k, v))
                bound = attn.bind(plan)
                o, lse, most = bound(*map(plan.take, (x, y, z)), return_lse=True, return_max=True)
                self.assertFalse(most.requires_grad)
                o, lse = plan.restore(o), plan.restore(lse)
                a, b, c = (t.clone().requires_grad_() for t in (q, k, v))
                kk, vv = (t.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for t in (b, c))
                logits = (a.transpose(0, 1) @ kk.transpose(1, 2) / DIM ** 0.5).masked_fill(~causal(lengths), -torch.inf)
                with_sink = torch.cat([logits, torch.full((HEADS, 256, 1), 0.5)], 2) if sink else logits
                right = with_sink.softmax(-1)[..., :256] @ vv
                right_lse = with_sink.logsumexp(-1)
                for got, want in (o, right.transpose(0, 1)), (lse, right_lse.transpose(0, 1)), \
                        (most, logits.amax((1, 2))):
                    self.assertLess((got - want).abs().max().item(), 1e-5)
                loss = lambda o, lse: sum(weight * (t * d).sum() for weight, t, d in (  # noqa: E731
                    (of_o, o, d_o), (of_lse, lse, d_lse)) if weight is not None)
                loss(o, lse).backward()
                loss(right.transpose(0, 1), right_lse.transpose(0, 1)).backward()
                self.assert_near([o.detach(), x.grad, y.grad, z.grad],
                                 [right.detach().transpose(0, 1), a.grad, b.grad,
                                  torch.zeros_like(c) if c.grad is None else c.grad], NEAR["fp32"])
            self.assertTrue(torch.equal(bound(*map(plan.take, (q, k, v)), return_max=True)[1], most))
            self.assertTrue(torch.equal(plan.restore(bound(*map(plan.take, (q, k, v)), return_lse=True)[1]), lse))

    def test_merged_with_a_prefix(self):
        """Attention over a prefix and over the rest, merged by their LSE, is attention over both, with gradients."""
        both, (q, k, v, d_o) = a_program(), draw(128)
        k, v = (torch.cat([torch.randn(64, KV_HEADS, DIM), x]) for x in (k, v))
        prefix, rest = (a_program(mask, lse_gradient=True) for mask in ("full", "causal"))
        plans = [p.plan([keys], queries=[128]) for p, keys in ((prefix, 64), (rest, 128), (both, 192))]
        parts = slice(0, 64), slice(64, 192), slice(0, 192)
        x, y, z = (t.clone().requires_grad_() for t in (q, k, v))

        def part(prog, plan, keys, **more):
            found = Attention(prog).bind(plan)(plan.take(x), *(plan.take(t[keys], keys=True) for t in (y, z)), **more)
            return [plan.restore(t) for t in found] if more else plan.restore(found)
        (o1, lse1), (o2, lse2) = (part(*of, return_lse=True) for of in zip((prefix, rest), plans, parts))
        lse = torch.logaddexp(lse1, lse2)
        merged = o1 * (lse1 - lse).exp()[..., None] + o2 * (lse2 - lse).exp()[..., None]
        merged.backward(d_o)
        got = [merged.detach(), *(t.grad for t in (x, y, z))]
        x, y, z = (t.clone().requires_grad_() for t in (q, k, v))
        whole = part(both, plans[2], parts[2])
        whole.backward(d_o)
        self.assert_near(got, [whole.detach(), *(t.grad for t in (x, y, z))], NEAR["fp32"])

    def test_far_logits(self):
        """Gradients are right however large logits are: what rounding took from lse is kept beside it."""
        q, k, v, d_o = draw(128)
        for mask, inputs in ("causal", (q * 300, k * 300)), ("causal", (q * 0, k)):
            for shift in 0.0, -1e9, 2.4e38:
                prog = a_program(mask, score=f"s + {shift!r}" if shift else None)
                plan, exact = prog.plan([128]), [x.double().requires_grad_() for x in (*inputs, v)]
                got = compute(Attention(prog).bind(plan), plan, *inputs, v, d_o)
                kk, vv = (t.repeat_interleave(HEADS // KV_HEADS, 1).transpose(0, 1) for t in exact[1:])
                s = (exact[0].transpose(0, 1) @ kk.transpose(1, 2) / DIM ** 0.5).float().double()
                if shift:  # as float32 adds it
                    s = s + ((s.detach().float() + shift).double() - shift - s.detach())
                o = (s.masked_fill(~causal([128]), -torch.inf).softmax(-1) @ vv).transpose(0, 1)
                o.backward(d_o.double())
                if not shift or not inputs[0].any():
                    self.assert_near(got[::3], (o.detach().float(), exact[2].grad.float()), 1e-4)

    def test_without_tokens(self):
        """Batches with sequences of nothing, and of nothing else, go through a step like any other."""
        prog = a_program(lse_gradient=True)
        attn = Attention(prog)
        for lengths in [0], [0, 0], [0, 100, 0, 28, 0]:
            plan, inputs = prog.plan(lengths), draw(sum(lengths))
            self.assert_near_or_empty(compute(attn.bind(plan), plan, *inputs), lengths, inputs)
        plan = prog.plan([7, 0, 20], queries=[0, 9, 3])
        q, k, v = (torch.randn(n, h, DIM).requires_grad_() for n, h in ((12, HEADS), (27, KV_HEADS), (27, KV_HEADS)))
        o, lse, most = attn.bind(plan)(plan.take(q), plan.take(k, keys=True), plan.take(v, keys=True), return_lse=True,
                                       return_max=True)
        (o.sum() + lse[lse.isfinite()].sum()).backward()
        o, lse = plan.restore(o), plan.restore(lse)
        self.assertTrue((lse[:9] == -torch.inf).all() and lse[9:].isfinite().all() and most.isfinite().all())
        self.assertFalse(o[:9].any() or q.grad[:9].any() or k.grad[:7].any() or v.grad[:7].any())
        self.assertTrue(q.grad[9:].all() and v.grad[7:].all())
        nothing = prog.plan([7, 0], queries=[0, 9])
        o, most = attn.bind(nothing)(q[:9].detach(), k[:7].detach(), v[:7].detach(), return_max=True)
        self.assertTrue(not o.any() and (most == -torch.inf).all())

    def assert_near_or_empty(self, got, lengths, inputs):
        if sum(lengths):
            self.assert_near(got, judge(causal(lengths), *inputs), NEAR["fp32"])
        else:
            self.assertEqual([x.shape for x in got], [x.shape for x in (inputs[3], *inputs[:3])])

    def test_layers(self):
        """Each layer attends by its own mask, and all of them have their tokens in the same order."""
        at, inputs = torch.arange(512), draw(512)
        window = (at[:, None] >= at) & (at[:, None] - at < 70)
        for strategy in ("fcp", "zigzag"):
            prog = a_program(None, layers=["causal", (lambda b, h, q, k: (q >= k) & (q - k < 70), 3)],
                             strategy=strategy)
            attn, plan = Attention(prog), prog.plan([400, 112])
            self.assertEqual((prog.masks, len(plan.layers), plan.layers[0]), (2, 2, plan))
            self.assertEqual(plan.homes, plan.layers[1].homes)
            self.assertEqual(list(plan.rows()), list(plan.layers[1].rows()))
            bound = [attn.bind(plan), attn.bind(plan, layer=1)]
            for allowed, attention in zip((causal([400, 112]), causal([400, 112]) & window), bound):
                self.assert_near(compute(attention, plan, *inputs), judge(allowed, *inputs), NEAR["fp32"])

    def test_a_layout_of_the_caller(self):
        """With layout = contiguous the caller's order is the packed batch's."""
        prog, inputs = a_program(layout="contiguous"), draw(256)
        plan = prog.plan([156, 100])
        self.assertEqual(list(plan.rows()), list(range(256)))
        self.assert_near(compute(Attention(prog).bind(plan), plan, *inputs), judge(causal([156, 100]), *inputs),
                         NEAR["fp32"])

    def test_other_strides(self):
        prog, (q, k, v, d_o) = a_program(), draw(128)
        plan = prog.plan([128])
        attention = Attention(prog).bind(plan)
        want = attention(plan.take(q), plan.take(k), plan.take(v))
        strided = [plan.take(x).transpose(0, 1).contiguous().transpose(0, 1) for x in (q, k, v)]
        self.assertFalse(strided[0].is_contiguous())
        self.assertTrue(torch.equal(attention(*strided), want))


class Plans(Compared):
    def test_micro_batches(self):
        """The backward pass of each batch finds its own plan, whichever was bound since."""
        prog = a_program()
        attn, kept = Attention(prog), []
        for i, lengths in enumerate(([256], [100, 156], [30, 226])):
            plan = prog.plan(lengths)
            q, k, v, d_o = draw(256, seed=i)
            inputs = [plan.take(x).requires_grad_() for x in (q, k, v)]
            kept.append((plan, inputs, attn.bind(plan)(*inputs), judge(causal(lengths), q, k, v, d_o), d_o))
        for plan, inputs, o, want, d_o in kept:
            o.backward(plan.take(d_o))
            self.assert_near([plan.restore(x) for x in (o.detach(), *(x.grad for x in inputs))], want, NEAR["fp32"])

    def test_checkpointing(self):
        """What is computed again is computed with the plan of the first time."""
        prog = a_program()
        attn, kept = Attention(prog), []
        for i, lengths in enumerate(([256], [100, 156])):
            plan = prog.plan(lengths)
            q, k, v, d_o = draw(256, seed=i)
            inputs = [plan.take(x).requires_grad_() for x in (q, k, v)]
            o = checkpoint(lambda q, k, v, a: a(q * 1, k, v), *inputs, attn.bind(plan), use_reentrant=False)
            kept.append((plan, inputs, o, judge(causal(lengths), q, k, v, d_o), d_o))
        for plan, inputs, o, want, d_o in kept:
            o.backward(plan.take(d_o))
            self.assert_near([plan.restore(x) for x in (o.detach(), *(x.grad for x in inputs))], want, NEAR["fp32"])

    def test_session_plans_are_used_again(self):
        """However many plans follow each other, the session has as many as are in use at once; all are given back."""
        prog = a_program()
        attn, held = Attention(prog), None
        q, k, v, _ = draw(256)
        for i in range(30):
            plan = prog.plan([100 + i, 156 - i])
            held = attn.bind(plan), attn.bind(plan)
            self.assertTrue(torch.equal(held[0](q, k, v), held[1](q, k, v)))
        self.assertLessEqual(len(attn._plans), 4)
        del held
        gc.collect()
        self.assertEqual(len(attn._free), len(attn._plans))
        self.assertFalse([b for b in fcpc.torch._bound.values() if b.attention is attn])

    def test_interrupted_late(self):
        """A Ctrl-C that C has not heard of any more is raised all the same, and no place of a plan is lost."""
        prog = a_program()
        attn, plan, (q, k, v, _) = Attention(prog), prog.plan([128]), draw(128)
        for _ in range(2):
            attn._options.interruption._raised.append(KeyboardInterrupt())
            self.assertRaises(KeyboardInterrupt, lambda: attn.bind(plan))
            self.assertEqual((attn._free, len(attn._plans)), ([0], 1))
        bound = attn.bind(plan)
        attn._options.interruption._raised.append(KeyboardInterrupt())
        self.assertRaises(KeyboardInterrupt, lambda: bound(q, k, v))
        bound(q, k, v)


class Operators(Compared, Expecting):
    def test_opcheck(self):
        prog = a_program(sink=0.0, score="s + t[h]", tables={"t": [0.5] * HEADS}, lse_gradient=True)
        plan = prog.plan([128])
        attention = Attention(prog).bind(plan)
        q, k, v, d_o = draw(128)
        sink, table = torch.zeros(HEADS), torch.ones(HEADS)
        inputs = (q, k, v, sink, table, attention.number)
        o, lse, low, _ = torch.ops.fcpc.attention(*inputs)
        saved = (q, k, v, o, lse, low, sink, table, attention.number)
        torch.library.opcheck(torch.ops.fcpc.attention_backward, (d_o, None, *saved))
        for x in (q, k, v, sink, table):
            x.requires_grad_()
        torch.library.opcheck(torch.ops.fcpc.attention, inputs)
        prog = a_program(value_dim=8, values="keys", lse_gradient=True)
        attention = Attention(prog).bind(prog.plan([128]))
        inputs = (q, k, None, None, None, attention.number, 8, True)
        o, lse, low, most = (x.detach() for x in torch.ops.fcpc.attention(*inputs))
        self.assertEqual([list(x.shape) for x in (o, lse, low, most)], [[128, 4, 8], [128, 4], [128, 4], [4]])
        saved = (q.detach(), k.detach(), None, o, lse, low, None, None, attention.number)
        torch.library.opcheck(torch.ops.fcpc.attention_backward, (o, lse, *saved))
        torch.library.opcheck(torch.ops.fcpc.attention, inputs)

    def test_seen_from_outside(self):
        """What watches operators, as counters of FLOPs and selective checkpointing do, sees both passes."""
        seen = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, op, types, args=(), kwargs=None):
                seen.append(op.name())
                return op(*args, **(kwargs or {}))
        prog = a_program()
        q, k, v, _ = draw(128)
        attention = Attention(prog).bind(prog.plan([128]))
        with Watch():
            attention(q.requires_grad_(), k, v).sum().backward()
            attention(q.detach(), k, v)
        self.assertEqual([x for x in seen if x.startswith("fcpc::")],
                         ["fcpc::attention", "fcpc::attention_backward", "fcpc::attention"])

    def test_no_forward_mode(self):
        """Torch would take a tangent that nobody computes for zero."""
        prog = a_program()
        bound, (q, k, v, _) = Attention(prog).bind(prog.plan([128])), draw(128)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(k, k)
            operator = torch.ops.fcpc.attention
            for x in q, q.clone().requires_grad_():
                self.expect("E702", lambda: bound(x, dual, v), "forward mode")
            self.expect("E702", lambda: operator(q, dual, v, None, None, bound.number), "forward mode")
            o = bound(x, k, v)
            self.expect("E702", lambda: o.backward(torch.autograd.forward_ad.make_dual(o, o)), "forward mode")
            bound(q, k, v)

    def test_deep_copies(self):
        """A copy of a model goes on with the attention that the model holds."""
        prog = a_program()
        attn, (q, k, v, _) = Attention(prog), draw(128)
        bound = attn.bind(prog.plan([128]))
        want = bound(q, k, v)
        again = copy.deepcopy({"attention": attn, "bound": bound})
        self.assertIs(again["attention"], attn)
        del bound, attn
        gc.collect()
        self.assertTrue(torch.equal(again["bound"](q, k, v), want))

    def test_no_second_derivatives(self):
        """A gradient of a gradient is refused: it would leave attention out. First ones are what they always are."""
        bound, inputs = self.bound_with_everything()
        o, lse = bound(*inputs[:4], {"t": inputs[4]}, return_lse=True)
        losses = {"o": o.sum(), "o * o": (o * o).sum(), "lse": lse.sum(), "both": o.sum() * lse.sum()}
        for of, loss in losses.items():
            plain = torch.autograd.grad(loss, inputs, retain_graph=True)
            first = torch.autograd.grad(loss, inputs, create_graph=True)
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(plain, first)), of)
            for name, d in zip(("q", "k", "v", "sink", "table"), first):
                with self.subTest(of, gradient_of=name):
                    self.expect("E702", lambda: torch.autograd.grad(d.sum(), inputs, retain_graph=True,
                                                                    allow_unused=True),
                                "no second derivatives", "create_graph=True", "scaled_dot_product_attention")
        q, k, v = (x.detach() for x in inputs[:3])
        self.expect("E702", lambda: torch.autograd.functional.hessian(lambda x: bound(x, k, v).sum(), q), "no second")
        self.expect("E702", lambda: torch.autograd.gradgradcheck(lambda x: bound(x, k, v).sum(), inputs[0], eps=0.01),
                    "no second")
        whole = torch.autograd.functional.jacobian(lambda x: bound(x, k, v).sum((1, 2))[:2], q)
        again = torch.autograd.functional.jacobian(lambda x: bound(x, k, v).sum((1, 2))[:2], q, vectorize=True)
        self.assertTrue(torch.equal(whole, again) and whole.any())

    def test_functions(self):
        """torch.func.grad and vjp are what backward gives; all else is refused, also where it would be zero."""
        bound, inputs = self.bound_with_everything()
        loss = lambda q, k, v, sink, t: (bound(q, k, v, sink, {"t": t}) ** 2).sum()  # noqa: E731
        want, plain = torch.autograd.grad(loss(*inputs), inputs), [x.detach() for x in inputs]
        q, k, v = plain[:3]
        for got in torch.func.grad(loss, argnums=(0, 1, 2, 3, 4))(*plain), \
                torch.func.vjp(loss, *plain)[1](torch.tensor(1.0)):
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, want)))
        with torch.autocast("cpu", torch.bfloat16):
            got = torch.func.grad(lambda x: bound(x, k, v).sum())(q.bfloat16())
            x = q.bfloat16().requires_grad_()
            self.assertTrue(torch.equal(got, torch.autograd.grad(bound(x, k, v).sum(), x)[0]))

        def of_q(x):
            return bound(x, k, v).sum()
        f, grad = torch.func, torch.func.grad(of_q)
        operator = lambda x: torch.ops.fcpc.attention(x, k, v, None, None, bound.number)[0].sum()  # noqa: E731
        for call, word in ((lambda: f.grad(lambda x: grad(x).sum())(q), "no second derivatives"),
                           (lambda: f.jvp(of_q, (q,), (q,)), "forward mode"),
                           (lambda: f.jvp(operator, (q,), (q,)), "forward mode"),
                           (lambda: f.jvp(grad, (q,), (q,)), "forward mode"),
                           (lambda: f.jacfwd(of_q)(q), "forward mode"),
                           (lambda: f.hessian(of_q)(q), "forward mode"),
                           (lambda: f.vmap(of_q)(q[None]), "packed end to end"),
                           (lambda: f.jacrev(lambda x: bound(x, k, v).sum(0))(q), "functional.jacobian")):
            self.expect("E702", call, word)

    def bound_with_everything(self):
        """Attention that has sinks, a table and gradients of lse, and its inputs."""
        prog = a_program(sink=0.0, score="s + t[h]", tables={"t": [0.5] * HEADS}, lse_gradient=True)
        inputs = [*draw(16)[:3], torch.zeros(HEADS), torch.ones(HEADS)]
        return Attention(prog).bind(prog.plan([16])), [x.requires_grad_() for x in inputs]

    def test_compiled_whole_and_once(self):
        """One graph without breaks; a new plan, and another number of tokens, compile nothing anew."""
        from torch._dynamo.testing import CompileCounterWithBackend
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")

        def layer(q, k, v, attention):
            return attention(q * 2, k, v) + 1
        prog = a_program()
        attn, compiled = Attention(prog), torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
        for lengths in ([256], [100, 156], [200, 184], [384], [130, 200]):
            plan, inputs = prog.plan(lengths), draw(sum(lengths))
            q, k, v, d_o = inputs
            got = compute(lambda *x, a=attn.bind(plan): compiled(*x, a), plan, *inputs)
            o, dq, dk, dv = judge(causal(lengths), q * 2, k, v, d_o)
            self.assert_near(got, (o + 1, dq * 2, dk, dv), NEAR["fp32"])
        self.assertEqual(counter.frame_count, 1)

    def test_compiled_with_lse(self):
        """The same where LSE and the largest logits leave, and where no v says how wide o is."""
        from torch._dynamo.testing import CompileCounterWithBackend
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")

        def layer(q, k, attention):
            o, lse, most = attention(q * 2, k, return_lse=True, return_max=True)
            return o + 1, lse.exp(), most
        prog = a_program(value_dim=8, values="keys", lse_gradient=True)
        attn, compiled = Attention(prog), torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
        for lengths in ([256], [100, 0, 156], [384]):
            plan, (q, k, _, d_o) = prog.plan(lengths), draw(sum(lengths))
            results = []
            for run in compiled, layer:
                x, y = (t.clone().requires_grad_() for t in (q, k))
                o, lse, most = run(x, y, attn.bind(plan))
                torch.autograd.backward([o, lse], [d_o[..., :8], torch.ones_like(lse)])
                results.append([o.detach(), lse.detach(), most, x.grad, y.grad])
            for got, want in zip(*results):
                self.assertTrue(torch.allclose(got, want, rtol=1e-5))
        self.assertEqual(counter.frame_count, 1)


class Autocast(Compared, Expecting):
    """Under torch.autocast q, k and v are cast to the dtype of their plan, and sinks and tables to float32."""

    def test_dtypes(self):
        given = torch.float32, torch.bfloat16, torch.float16, torch.bfloat16, torch.bfloat16
        for dtype, to in ("fp32", torch.bfloat16), ("bf16", torch.bfloat16), ("bf16", torch.float16):
            prog = a_program(dtype=dtype, sink=0.0, score="s + t[h]", tables={"t": [0.5] * HEADS})
            bound, raw = Attention(prog).bind(prog.plan([64])), [*draw(64)[:3], torch.zeros(HEADS), torch.ones(HEADS)]
            results = []
            for how in "autocast", "operator", "by hand":
                q, k, v, sink, t = inputs = [x.to(d).requires_grad_() for x, d in zip(raw, given)]
                if how == "by hand":
                    o = bound(*(x.to(DTYPES[dtype]) for x in (q, k, v)), sink.float(), {"t": t.float()})
                with torch.autocast("cpu", to):
                    if how == "autocast":
                        o = bound(q, k, v, sink, {"t": t})
                    elif how == "operator":
                        o = torch.ops.fcpc.attention(q, k, v, sink, t, bound.number)[0]
                self.assertEqual(o.dtype, DTYPES[dtype])
                (o ** 2).sum().backward()
                self.assertEqual([x.grad.dtype for x in inputs], list(given))
                results.append([o, *(x.grad for x in inputs)])
            self.assertTrue(all(torch.equal(a, b) and a.any() for r in results for a, b in zip(r, results[-1])))

    def test_errors(self):
        """Without autocast another dtype is an error that says what to do, and so are dtypes that nobody casts."""
        prog = a_program()
        bound, (q, k, v, _) = Attention(prog).bind(prog.plan([64])), draw(64)
        self.expect("E701", lambda: bound(q, k.bfloat16(), v), "k is [64, 2, 16] of bfloat16", "k.to(torch.float32)",
                    "torch.autocast")
        with torch.autocast("cpu", torch.bfloat16):
            self.expect("E701", lambda: bound(q, k.double(), v), "k is [64, 2, 16] of float64")
            self.expect("E701", lambda: bound(q, k.long(), v), "of int64")
            with torch.autocast("cpu", enabled=False):
                self.expect("E701", lambda: bound(q, k.bfloat16(), v), "of bfloat16")

    def test_checkpointing(self):
        """What is computed again is cast again."""
        prog, found = a_program(), []
        bound, (q, k, v, _) = Attention(prog).bind(prog.plan([64])), draw(64)
        for run in lambda f, x: f(x), lambda f, x: checkpoint(f, x, use_reentrant=False):
            x = q.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16):
                o = run(lambda x: bound((x @ x.transpose(1, 2)) @ x, k, v), x)
            o.sum().backward()
            found.append((o, x.grad))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(*found)))

    def test_devices(self):
        """Without a GPU there is no more to see than that CUDA has the rule."""
        for key in "AutocastCPU", "AutocastCUDA":
            self.assertTrue(torch.library.get_kernel("fcpc::attention", key))

    def test_compiled(self):
        """One graph, which has the casts, in the region of autocast and around it; a new plan compiles nothing anew."""
        from torch._dynamo.testing import CompileCounterWithBackend
        torch._dynamo.reset()
        counter, prog, weight = CompileCounterWithBackend("aot_eager"), a_program(), torch.randn(DIM, DIM)
        attn = Attention(prog)

        def layer(q, k, v, attention):
            with torch.autocast("cpu", torch.bfloat16):
                return attention(q @ weight, k, v)

        def around(q, k, v, attention):
            return attention(q @ weight, k, v)
        results = []
        for function in layer, around:
            compiled = torch.compile(function, backend=counter, fullgraph=True, dynamic=True)
            for run in compiled, function:
                for lengths in ([64], [20, 108]):
                    q, k, v, d_o = draw(sum(lengths))
                    bound, inputs = attn.bind(prog.plan(lengths)), [q, k.bfloat16(), v]
                    for x in inputs:
                        x.requires_grad_()
                    with torch.autocast("cpu", torch.bfloat16, enabled=function is around):
                        o = run(*inputs, bound)
                    o.backward(d_o)
                    results.append([o, *(x.grad for x in inputs)])
        for i, result in enumerate(results):
            self.assertEqual([x.dtype for x in result], [torch.float32] * 2 + [torch.bfloat16, torch.float32])
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(result, results[i % 2])))
        self.assertEqual(counter.frame_count, 2)
        for dtype in torch.float32, None:
            called = torch.compile(lambda q, k, v, plan: torch.ops.fcpc.attention(  # noqa: E731
                q, k, v, None, None, plan, autocast=dtype)[0], backend="aot_eager", fullgraph=True)
            with torch.autocast("cpu", torch.bfloat16):
                if dtype:
                    self.assertTrue(torch.equal(called(*inputs, bound.number), attn.bind(bound.plan)(*inputs)))
                else:
                    with self.assertRaisesRegex(Exception, "E209.*autocast=torch.bfloat16"):
                        called(*inputs, bound.number)


class Closing(Expecting):
    def setUp(self):
        self.prog = a_program()
        self.plan, self.inputs = self.prog.plan([128]), draw(128)[:3]

    def test_closed(self):
        """A closed Attention computes no more, and its session has ended; to close it twice is no error."""
        with Attention(self.prog) as attn:
            bound = attn.bind(self.plan)
            o = bound(self.inputs[0].requires_grad_(), *self.inputs[1:])
            self.assertTrue(attn._session)
        self.assertIsNone(attn._session)
        attn.close()
        again = lambda: attn.__enter__()  # noqa: E731
        for call in lambda: bound(*self.inputs), lambda: o.sum().backward(), lambda: attn.bind(self.plan), again:
            self.expect("E203", call, "closed")
        never = Attention(self.prog)
        never.close()
        self.expect("E203", lambda: never.bind(self.plan), "closed")
        with self.assertRaises(ZeroDivisionError), Attention(self.prog) as attn:
            attn.bind(self.plan)
            1 / 0
        self.expect("E203", lambda: attn.bind(self.plan), "closed")

    def test_elsewhere(self):
        """A process that was forked cannot close it, nor a thread while another uses it."""
        attn = Attention(self.prog)
        bound = attn.bind(self.plan)
        child = os.fork()
        if child == 0:
            try:
                attn.close()
            except fcpc.Error as error:
                os._exit(7 if error.code == "E203" and "another process" in str(error) else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        with attn._alone:
            self.expect("E203", attn.close, "another thread")
        bound(*self.inputs)
        attn.close()


class Errors(Expecting):
    def setUp(self):
        self.prog = a_program()
        self.attn, self.plan = Attention(self.prog), self.prog.plan([128])
        self.bound, (self.q, self.k, self.v, _) = self.attn.bind(self.plan), draw(128)

    def test_tensors(self):
        q, k, v = self.q, self.k, self.v
        self.expect("E701", lambda: self.bound(q[:100], k, v), "q is [100, 4, 16]", "needs [128, 4, 16]")
        self.expect("E701", lambda: self.bound(q, k[:, :1], v), "k is [128, 1, 16]")
        self.expect("E701", lambda: self.bound(q, k, v.half()), "v is [128, 2, 16] of float16 on cpu")
        self.expect("E701", lambda: self.bound(q, k, v, torch.zeros(HEADS)), "the plan has none")
        self.expect("E701", lambda: self.bound(q, k, v, torch.zeros(3)), "sink is [3]")
        self.expect("E701", lambda: self.bound(q, k, v, tables={"t": torch.zeros(3)}), "no table 't' of shape [3]")
        self.assertTrue(torch.equal(self.bound(q, k, v, tables={}), self.bound(q, k, v)))
        self.expect("E701", lambda: self.bound(q, k), "tensor v is missing")
        within = a_program(value_dim=8, values="keys")
        inside = Attention(within).bind(within.plan([128]))
        self.expect("E701", lambda: inside(q, k, v), "there is no v", "first 8 numbers of the keys")
        self.expect("E209", lambda: torch.ops.fcpc.attention(q.to("meta"), k.to("meta"), None, None, None,
                                                             inside.number), "how wide o is")
        self.expect("E400", lambda: a_program(value_dim=17), "value_dim")

    def test_shapes(self):
        """Shapes as other libraries have them are refused with what to write."""
        q, k, v = self.q, self.k, self.v
        for x in q[None], torch.stack([q, q]):
            self.expect("E701", lambda: self.bound(x, k, v), "[tokens, heads, head_dim]", "without a batch dimension",
                        "q[0]")
        self.expect("E701", lambda: self.bound(q, k.flatten(1), v), "k.unflatten(1, (2, 16))")
        self.expect("E701", lambda: self.bound(q, k, v.transpose(0, 1)), "v.transpose(0, 1)")
        prog = a_program(cluster=fcpc.Cluster(gpus=2))
        plan = prog.plan([128], here=range(1, 2))
        part = fcpc.torch._Binding(self.attn, 0, plan)
        self.assertEqual(part._advice("k", k, (plan.key_tokens, KV_HEADS, DIM), k.dtype),
                         f". The whole batch has 128 tokens, and this process holds {plan.tokens} of them: "
                         "plan.take(k, keys=True)")
        self.assertIn("plan.take(q)", part._advice("q", q, (plan.tokens, HEADS, DIM), q.dtype))

    def test_arguments(self):
        """What is no program, plan, tensor, device, group or number is named, with what it should be."""
        for wrong in None, 3, self.plan, "causal":
            self.expect("E203", lambda: Attention(wrong), "no program", "fcpc.program(")
        self.expect("E203", lambda: Attention(self.plan), "a Plan", "plan.program")
        for wrong, word in (None, "None"), (self.prog, "a Program"), ([128], "a list"):
            self.expect("E203", lambda: self.attn.bind(wrong), word, "prog.plan(lengths)")
        self.expect("E203", lambda: self.attn.bind(self.plan, layer="1"), "no layer '1'")
        for device in 3, "gpu", "mps", None:
            self.expect("E702", lambda: Attention(self.prog, device=device), "no backend", '"cpu"')
        for group in 3, ["mpi"], self.prog:
            self.expect("E706", lambda: Attention(self.prog, group=group), "no group", "torch.distributed")
        for number in "2", 1.5, None:
            self.expect("E203", lambda: Attention(self.prog, threads=number), f"threads is {number!r}", "whole number")
            self.expect("E203", lambda: Attention(self.prog, timeout=number), f"timeout is {number!r}")
        for inputs in (None, self.k, self.v), (self.q, self.k.numpy(), self.v), (self.q, self.k, [1.0]):
            self.expect("E701", lambda: self.bound(*inputs), "a tensor of torch is expected")

    def test_lse(self):
        """A loss that depends on lse needs a plan that has its gradient; a large one is warned of."""
        q, k, v = self.q.requires_grad_(), self.k, self.v
        o, lse = self.bound(q, k, v, return_lse=True)
        self.expect("E701", lambda: (o.sum() + lse.sum()).backward(), "depends on lse", "lse_gradient=True")
        o, lse = self.bound(q, k, v, return_lse=True)
        (o.sum() + lse.detach().sum() + 0 * lse.sum()).backward()
        far = a_program(score="s - 1.0e6")
        bound = Attention(far).bind(far.plan([128]))
        with self.assertWarnsRegex(fcpc.Warning, r"lse is up to 1e\+06.*steps of 0.0625"):
            bound(q, k, v, return_lse=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bound(q, k, v).sum().backward()
            self.bound(q, k, v, return_lse=True)
        self.expect("E701", lambda: fcpc.torch._attention(q.to("meta"), k, v, None, None, self.bound.number),
                    "on meta")

    def test_plans(self):
        other = a_program(heads=2)
        self.expect("E203", lambda: self.attn.bind(other.plan([128])), "another program")
        with tempfile.TemporaryDirectory() as folder:
            other.plan([128]).save(f"{folder}/plan")
            loaded = fcpc.load(f"{folder}/plan")
        self.expect("E203", lambda: self.attn.bind(loaded), "heads")
        self.expect("E203", lambda: self.attn.bind(self.prog.plan([128], here=range(1))), "ranks")
        for layer in (1, -1):
            self.expect("E203", lambda: self.attn.bind(self.plan, layer=layer), f"no layer {layer}")
        number = self.bound.number.clone()
        del self.bound
        gc.collect()
        inputs = (self.q, self.k, self.v, None, None, number)
        self.expect("E203", lambda: torch.ops.fcpc.attention(*inputs), "no such plan")
        forward = a_program(passes="forward")
        o = Attention(forward).bind(forward.plan([128]))(self.q.requires_grad_(), self.k, self.v)
        self.expect("E705", lambda: o.sum().backward(), "no backward pass")

    def test_another_thread(self):
        held, go = threading.Event(), threading.Event()

        def hold():
            with self.attn._alone:
                held.set()
                go.wait(60)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(60)
        try:
            self.expect("E203", lambda: self.bound(self.q, self.k, self.v), "another thread")
        finally:
            go.set()
            thread.join()
        self.bound(self.q, self.k, self.v)

    def test_a_forked_process(self):
        """A data loader's worker has plans, and no threads to run them with: it gets an error, and ends well."""
        child = os.fork()
        if child == 0:
            try:
                planned = self.prog.plan([128]).digest == self.plan.digest
                self.bound(self.q, self.k, self.v)
            except fcpc.Error as error:
                os._exit(7 if planned and error.code == "E203" and "another process" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
