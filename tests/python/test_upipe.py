"""test_upipe.py: attention with its projections, phase by phase, against the same in float64, on the CPU."""
import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as F

import fcpc
from agent import four_ranks
from expecting import Expecting
from fcpc.torch import Attention
from fcpc.upipe import PhasedAttention, phases

DIM, HIDDEN, OUT = 8, 24, 20
NAMES = "x", "wq", "wk", "wv", "wo", "bq", "bk", "bv"


def a_program(heads, kv_heads, ranks, together, mask="causal", **more):
    return fcpc.program(**{"mask": mask, "heads": heads, "kv_heads": kv_heads, "head_dim": DIM, "dtype": "fp32",
                           "strategy": f"upipe(heads = {together})", "cluster": fcpc.detect(ranks=ranks), **more})


def draw(tokens, heads, kv_heads, value_dim=DIM, seed=1):
    """x, the weights and biases, and the gradient of y, in the order of the packed batch."""
    torch.manual_seed(seed)
    sizes = heads * DIM, kv_heads * DIM, kv_heads * value_dim
    weights = [torch.randn(size, HIDDEN) / HIDDEN ** 0.5 for size in sizes]
    wo = torch.randn(OUT, heads * value_dim) / (heads * value_dim) ** 0.5
    return [torch.randn(tokens, HIDDEN), *weights, wo, *(torch.randn(size) for size in sizes)], torch.randn(tokens, OUT)


class Norm(torch.nn.Module):
    """RMSNorm of each head with a weight, then rotary embeddings; and a number for each head, to see who is who."""

    def __init__(self, heads):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(DIM) + 0.5)
        self.of_head = torch.nn.Parameter(torch.rand(heads) + 0.5)
        self.seen = []

    def forward(self, x, positions, heads):
        self.seen.append(heads)
        x = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * self.weight.to(x.dtype)
        x = x * self.of_head.to(x.dtype)[list(heads), None]
        angle = positions.to(x.dtype)[:, None] / 100.0 ** (torch.arange(DIM // 2) * 2 / DIM)
        a, b = x.chunk(2, -1)
        c, s = angle.cos()[:, None], angle.sin()[:, None]
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)


def plain(inputs, dy, allowed, heads, kv_heads, positions, on_q, on_k, sink=None):
    """y and all gradients in float64, with all heads at once."""
    x, wq, wk, wv, wo, bq, bk, bv = inputs = [t.detach().double().requires_grad_() for t in inputs]
    modules = [m for m in (on_q, on_k) if m]
    doubles = [{n: p.detach().double().requires_grad_() for n, p in m.named_parameters()} for m in modules]

    def between(module, t):
        if module is None:
            return t
        return torch.func.functional_call(module, doubles[modules.index(module)],
                                          (t, positions, tuple(range(t.shape[1]))))
    q = between(on_q, F.linear(x, wq, bq).unflatten(1, (heads, -1)))
    k = between(on_k, F.linear(x, wk, bk).unflatten(1, (kv_heads, -1)))
    v = F.linear(x, wv, bv).unflatten(1, (kv_heads, -1))
    k, v = (t.repeat_interleave(heads // kv_heads, 1).transpose(0, 1) for t in (k, v))
    logits = (q.transpose(0, 1) @ k.transpose(1, 2) / DIM ** 0.5).masked_fill(~allowed, -torch.inf)
    if sink is not None:
        sink = sink.detach().double().requires_grad_()
        logits = torch.cat([logits, sink[:, None, None].expand(-1, len(x), 1)], 2)
    o = (logits.softmax(-1)[..., :len(x)] @ v).transpose(0, 1)
    y = F.linear(o.flatten(1), wo)
    y.backward(dy.double())
    return [y.detach(), *(t.grad for t in inputs), *(p.grad for d in doubles for p in d.values()),
            *([] if sink is None else [sink.grad])]


def phased(call, plan, inputs, dy, on_q, on_k, sink=None, **more):
    """The same by phases, brought back into the order of the packed batch."""
    x, *weights = (t.detach().clone().requires_grad_() for t in inputs)
    modules = [m for m in (on_q, on_k) if m]
    for module in modules:
        module.zero_grad()
    sink = None if sink is None else sink.detach().clone().requires_grad_()
    wq, wk, wv, wo, bq, bk, bv = weights
    y = plan.restore(call(plan.take(x), wq, wk, wv, wo, bq=bq, bk=bk, bv=bv, on_q=on_q, on_k=on_k, sink=sink, **more))
    y.backward(dy)
    return [y.detach(), x.grad, *(w.grad for w in weights), *(p.grad for m in modules for p in m.parameters()),
            *([] if sink is None else [sink.grad])]


def masked(lengths, window=None):
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    at = torch.arange(len(number))
    far = at[:, None] - at
    return (far >= 0) & (far < (window or len(at))) & (number[:, None] == number)


class Values(unittest.TestCase):
    def near(self, got, want, tolerance):
        self.assertEqual(len(got), len(want))
        for i, (a, b) in enumerate(zip(got, want)):
            self.assertLess((a.double() - b).abs().max().item(), tolerance * max(1, b.abs().max().item()), i)

    def test_shapes_and_masks(self):
        """Many shapes: with and without shared K and V, several heads of a phase on a rank, phases of two KV groups."""
        lengths = [150, 60, 30]
        positions = torch.cat([torch.arange(n) for n in lengths])
        cases = [(32, 8, 2, 2, None, "upipe(heads = 2)"), (64, 8, 4, 8, 40, "upipe(heads = 8)"),
                 (8, 8, 4, 4, None, "upipe(heads = 4)"), (16, 4, 8, 8, None, "upipe(heads = 8)"),
                 (8, 2, 4, 4, None, "upipe(heads = 4, inside = 2) + ring"),
                 (8, 2, 4, 2, 50, "upipe(heads = 2, inside = 2) + fcp")]
        for heads, kv_heads, ranks, together, window, strategy in cases:
            with self.subTest(heads=heads, kv_heads=kv_heads, ranks=ranks, strategy=strategy):
                mask = "causal" if window is None else f"window(w = {window})"
                attn = PhasedAttention(a_program(heads, kv_heads, ranks, together, mask, strategy=strategy, block=128))
                plan = attn.program.plan(lengths)
                call = attn.bind(plan)
                inputs, dy = draw(sum(lengths), heads, kv_heads)
                on_q, on_k = Norm(heads), Norm(kv_heads)
                got = phased(call, plan, inputs, dy, on_q, on_k)
                self.assertEqual(sorted(h for seen in on_q.seen[:len(attn.phases)] for h in seen), list(range(heads)))
                want = plain(inputs, dy, masked(lengths, window), heads, kv_heads, positions, on_q, on_k)
                self.near(got, want, 5e-5)

    def test_dtypes_sinks_and_values(self):
        lengths, at = [100, 44], {"bf16": (torch.bfloat16, 5e-2), "fp16": (torch.float16, 1e-2)}
        sink = torch.tensor([0.5, -1.0, 2.0, 0.0])
        for name, (dtype, tolerance) in at.items():
            attn = PhasedAttention(a_program(4, 2, 2, 2, dtype=name, sink=0.0, value_dim=16))
            plan = attn.program.plan(lengths)
            inputs, dy = draw(144, 4, 2, 16)
            inputs, dy = [t.to(dtype) for t in inputs], dy.to(dtype)
            got = phased(attn.bind(plan), plan, inputs, dy, None, None, sink, sums=torch.float32)
            self.assertEqual({t.dtype for t in got[:-1]}, {dtype})
            self.near(got, plain(inputs, dy, masked(lengths), 4, 2, None, None, None, sink), tolerance)

    def test_keys_stay_and_change_no_bit(self):
        """Without staying, K and V are sent again for each phase: the results have the same bits."""
        attn = PhasedAttention(a_program(8, 2, 2, 2))
        plan = attn.program.plan([90, 50])
        inputs, dy = draw(140, 8, 2)
        call = attn.bind(plan)
        self.assertTrue(call.keys_stay)
        got = phased(call, plan, inputs, dy, None, None)
        call.keys_stay = False
        again = phased(call, plan, inputs, dy, None, None)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, again)))

    def test_autocast_checkpoint_and_frozen_weights(self):
        attn = PhasedAttention(a_program(4, 4, 2, 2, dtype="bf16"))
        plan = attn.program.plan([64])
        call = attn.bind(plan)
        inputs, dy = draw(64, 4, 4)
        with torch.autocast("cpu", torch.bfloat16):
            x, wq, wk, wv, wo = (t.clone().requires_grad_(i != 1) for i, t in enumerate(inputs[:5]))
            y = torch.utils.checkpoint.checkpoint(lambda x: call(plan.take(x), wq, wk, wv, wo), x, use_reentrant=False)
        self.assertEqual(y.dtype, torch.bfloat16)
        y.backward(plan.take(dy).to(y.dtype))
        self.assertIsNone(wq.grad)
        zeros = [torch.zeros(size) for size in (32, 32, 32)]
        want = plain([*inputs[:5], *zeros], dy, masked([64]), 4, 4, None, None, None)
        self.near([plan.restore(y.detach()), x.grad, wk.grad, wv.grad, wo.grad], [*want[:2], *want[3:6]], 5e-2)


def one_of_four():
    """A rank's rows of y and of the gradient of x, and the gradients of the weights, summed over the group."""
    dist.init_process_group("gloo")
    group = dist.group.WORLD
    attn = PhasedAttention(a_program(16, 4, 4, 4, cluster=fcpc.detect(group)), group=group, timeout=100)
    plan = attn.program.plan([200, 57])
    (x, *weights), dy = draw(257, 16, 4)
    x, *weights = plan.take(x).requires_grad_(), *(w.requires_grad_() for w in weights[:4])
    call = attn.bind(plan)
    y = call(x, *weights)
    y.backward(plan.take(dy))
    for w in weights:
        dist.all_reduce(w.grad)
    found = [plan.restore(t.detach(), group=group) for t in (y, x.grad)] + [w.grad for w in weights]
    dist.destroy_process_group()
    return call.keys_stay, found


class Groups(unittest.TestCase):
    def test_four_processes(self):
        """What four processes have together is what one has, but for the order in which sums are rounded."""
        got = four_ranks(one_of_four)
        attn = PhasedAttention(a_program(16, 4, 4, 4))
        plan = attn.program.plan([200, 57])
        inputs, dy = draw(257, 16, 4)
        x, *weights = (t.requires_grad_() for t in inputs[:5])
        y = plan.restore(attn.bind(plan)(plan.take(x), *weights))
        y.backward(dy)
        for stays, found in got:
            self.assertTrue(stays)
            for a, b in zip(found, [y.detach(), x.grad, *(w.grad for w in weights)]):
                self.assertLess((a - b).abs().max(), 1e-5 * max(1, b.abs().max()))


class Phases(Expecting):
    def test_the_order(self):
        """Query heads that share KV heads follow each other: 0 4 8 12, 1 5 9 13, ..."""
        got = phases(a_program(16, 4, 4, 4))
        self.assertEqual([p.heads for p in got], [(i, 4 + i, 8 + i, 12 + i) for i in range(4)])
        self.assertEqual([p.kv_heads for p in got], [(0, 1, 2, 3)] * 4)
        self.assertEqual([(p.first, p.last) for p in got], [(True, False), *[(False, False)] * 2, (False, True)])

    def test_programs_without_phases(self):
        self.expect("E203", lambda: phases(a_program(4, 4, 2, 2, strategy="ulysses")), "strategy = upipe")
        self.expect("E203", lambda: PhasedAttention(7), "is no program")
        self.expect("E210", lambda: phases(a_program(4, 4, 2, 2, "causal and q - k < 9 * (h + 1)")), "names the head")
        self.expect("E210", lambda: phases(a_program(4, 4, 2, 2, sink=[0.0, 1.0, 0.0, 0.0])), "sinks differ")

    def test_wrong_tensors(self):
        prog = a_program(8, 2, 2, 2)
        attn = PhasedAttention(prog)
        self.expect("E203", lambda: attn.bind(prog.plan([64])), "attn.program.plan(lengths)")
        plan = attn.program.plan([64])
        call = attn.bind(plan)
        (x, wq, wk, wv, wo, *_), _ = draw(64, 8, 2)
        self.expect("E701", lambda: call(x[:3], wq, wk, wv, wo), "x is [3, 24]", "[64, hidden]")
        self.expect("E701", lambda: call(x, wk, wk, wv, wo), "wq is [16, 24]", "need [64, 24]")
        self.expect("E701", lambda: call(x, wq, wk, None, wo), "wv is None")
        self.expect("E701", lambda: call(x, wq, wk, wv, wo[:, 1:]), "wo is [20, 63]")
        self.expect("E701", lambda: call(x.double(), wq, wk, wv, wo), "x is float64", "torch.autocast")
        self.expect("E701", lambda: call(x, wq, wk, wv, wo, on_q=lambda q, at, heads: q[:, :1]), "on_q gives")
        weight = torch.ones(DIM, requires_grad=True)
        y = call(x.requires_grad_(), wq, wk, wv, wo, on_q=lambda q, at, heads: q * weight)
        self.expect("E701", lambda: y.sum().backward(), "parameters=[...]")
        call(x, wq, wk, wv, wo, on_q=lambda q, at, heads: q * weight, parameters=[weight]).sum().backward()
        self.assertGreater(weight.grad.abs().min(), 0)
        more = attn.program.plan([64], queries=[32])
        self.expect("E701", lambda: attn.bind(more)(x[:32], wq, wk, wv, wo), "other tokens than queries")

    def test_a_run_between_phases(self):
        """Another run of the same session between two phases would leave other keys there."""
        attn = PhasedAttention(a_program(8, 2, 2, 2))
        plan = attn.program.plan([64])
        call = attn.bind(plan)
        (x, *weights), _ = draw(64, 8, 2)
        asked = []

        def between(q, positions, heads):
            asked.append(heads)
            if len(asked) == 2:
                Attention.bind(attn, plan)(*(torch.randn(64, n, DIM) for n in (2, 2, 2)))
            return q
        self.expect("E203", lambda: call(x, *weights[:4], on_q=between), "between the phases")


if __name__ == "__main__":
    unittest.main()
