"""test_fields.py: numbers of each sequence, head, token and block, as text and as captured tensors; and values."""
import itertools
import pickle
import random
import re
import unittest
from pathlib import Path

import numpy
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

import fcpc
from expecting import Expecting
from fcpc.torch import Attention
from test_foreign import HEADS, KV_HEADS, a_program, seen
from test_program import heard
from test_torch import NEAR, Compared, compute

import gallery

GROUP = HEADS // KV_HEADS
SIZES = {"heads": HEADS, "kv_heads": KV_HEADS}


def first_of(queries, keys, align):
    return 0 if align == "top_left" else keys - queries


def shape_of(dims, queries, keys, align):
    """The shape of a sequence's numbers: dims is a list of (what, cell)."""
    first, made = first_of(queries, keys, align), []
    for what, cell in dims:
        if what == "queries":
            made.append(len({(first + i) // cell for i in range(queries)}))
        else:
            made.append(SIZES.get(what) or len({i // cell for i in range(keys)}))
    return made


def element(values, dims, queries, keys, align):
    """values[h, q, k] as a tensor [heads, queries, keys], of one sequence's numbers."""
    first, index = first_of(queries, keys, align), []
    at = torch.meshgrid(torch.arange(HEADS), torch.arange(queries) + first, torch.arange(keys), indexing="ij")
    for what, cell in dims:
        index.append({"heads": at[0], "kv_heads": at[0] // GROUP, "queries": at[1] // cell - first // cell,
                      "keys": at[2] // cell}[what])
    return values[tuple(index)] if index else values.expand(HEADS, queries, keys)


KINDS = [[*heads, *rows, *columns] for heads, rows, columns in itertools.product(
    ([], [("heads", 1)], [("kv_heads", 1)]), ([], [("queries", 1)], [("queries", 24)]),
    ([], [("keys", 1)], [("keys", 40)]))]


def declared(dims, more=""):
    said = ", ".join(f"{what} / {cell}" if cell > 1 else what for what, cell in dims) or "sequences"
    return f"given({more}over = {said})"


def read(dims):
    index = {"heads": "h", "kv_heads": "h / (heads / kv_heads)", "queries": "q", "keys": "k"}
    said = ", ".join(index[what] + (f" / {cell}" if cell > 1 else "") for what, cell in dims)
    return f"x[{said}]" if said else "x"


class Masks(Expecting):
    def test_every_kind(self):
        """Random batches of fields over everything, against their definition; values come in each of three forms."""
        draw = random.Random(7)
        torch.manual_seed(7)
        for dims, align in itertools.product(KINDS, ("bottom_right", "top_left")):
            alike = draw.random() < 0.5
            keys = [draw.choice((0, 1, 40, 63, 90)) for _ in range(3)]
            queries = [draw.choice((n, n, max(n - 25, 0), n + 7)) for n in keys]
            if alike:
                keys, queries = keys[:1] * 3, queries[:1] * 3
            values = [torch.randint(0, 2, shape_of(dims, *size, align)) for size in zip(queries, keys)]
            form = draw.choice(("flat", "list", "arrays", "stacked"))
            if form == "stacked" and not alike:
                form = "arrays"
            given = {"flat": lambda: torch.cat([x.flatten() for x in values]),
                     "list": lambda: [x.tolist() for x in values],
                     "arrays": lambda: [x.numpy() for x in values], "stacked": lambda: torch.stack(values)}[form]()
            prog = a_program(f"k <= q + 40 and {read(dims)} == 1", fields={"x": declared(dims)}, align=align)
            plan = prog.plan(keys, {"x": given}, queries=queries)
            for i, (m, n) in enumerate(zip(queries, keys)):
                if m and n:
                    near = torch.arange(n) <= (torch.arange(m) + first_of(m, n, align))[:, None] + 40
                    want = (element(values[i], dims, m, n, align) == 1) & near
                    for h in range(HEADS):
                        self.assertTrue(torch.equal(seen(plan, m, n, i, h), want[h]),
                                        (dims, align, form, queries, keys, h))


class Scores(Compared):
    def test_every_kind(self):
        """Attention with reals of the batch in its score is attention with them added to logits."""
        torch.manual_seed(8)
        lengths = [70, 1, 130]
        for dims in KINDS[::2]:
            values = [torch.randn(shape_of(dims, n, n, "")) for n in lengths]
            prog = a_program("causal", score=f"s + {read(dims)}", fields={"x": declared(dims, "real, ")})
            plan = prog.plan(lengths, {"x": [x.numpy() for x in values]})
            inputs = [torch.randn(sum(lengths), n, 16) for n in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
            got = compute(Attention(prog).bind(plan), plan, *inputs)
            want = [[], [], [], []]
            for i, n in enumerate(lengths):
                q, k, v, d_o = (x.split(lengths)[i].clone().requires_grad_() for x in inputs)
                kk, vv = (x.repeat_interleave(GROUP, 1).transpose(0, 1) for x in (k, v))
                logits = q.transpose(0, 1) @ kk.transpose(1, 2) / 4 + element(values[i], dims, n, n, "")
                o = (logits.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1) @ vv).transpose(0, 1)
                o.backward(d_o.detach())
                for made, x in zip(want, (o.detach(), q.grad, k.grad, v.grad)):
                    made.append(x)
            self.assert_near(got, [torch.cat(x) for x in want], NEAR["fp32"])


B, LENGTH = 3, 96
_draw = torch.Generator().manual_seed(9)
prefix = torch.tensor([10, 0, 70])
is_prefix_lm = torch.tensor([True, False, True])
reach = torch.randint(1, LENGTH, (B, HEADS), generator=_draw)
of_kv = torch.randint(1, LENGTH, (B, KV_HEADS), generator=_draw)
doc = torch.randint(0, 4, (B, LENGTH), generator=_draw).sort().values
start = torch.randint(0, LENGTH, (B, HEADS, LENGTH), generator=_draw)
keep = torch.rand(B, HEADS, 3, 6, generator=_draw) < 0.4
shared = torch.rand(B, 12, 12, generator=_draw) < 0.4
FUNCTIONS = [lambda b, h, q, k: (k < prefix[b]) | (q >= k),
             lambda b, h, q, k: torch.where(is_prefix_lm[b], k < prefix[b], q >= k),
             lambda b, h, q, k: (q >= k) & (q - k < reach[b, h]),
             lambda b, h, q, k: (q >= k) & (q - k < of_kv[b, h // GROUP]),
             lambda b, h, q, k: (q >= k) & (doc[b, q] == doc[b, k]),
             lambda b, h, q, k: (q >= k) & (doc[b, q] % 2 == 1),
             lambda b, h, q, k: (q >= k) & (q < start[b, h, k]),
             lambda b, h, q, k: keep[b, h, q // 32, k >> 4],
             lambda b, h, q, k: (q >= k) & shared[b][q // 8][k // 8] | (k < prefix[b])]


class Captured(Expecting):
    def test_against_create_mask(self):
        """A function of several sequences has in each the pairs of FlexAttention's create_mask."""
        for number, function in enumerate(FUNCTIONS):
            plan = a_program(function, documents=None).plan([LENGTH] * B)
            want = create_mask(function, B, HEADS, LENGTH, LENGTH, device="cpu")
            for b, h in itertools.product(range(B), range(HEADS)):
                self.assertTrue(torch.equal(seen(plan, LENGTH, LENGTH, b, h), want[b, h]), (number, b, h))

    def test_the_next_batch(self):
        """It brings its own values; of other lengths and without values there is a warning, or an error."""
        prog = a_program(FUNCTIONS[0])
        first = prog.plan([50, 50, 50])
        other = prog.plan([100, 10], {"prefix": [0, 5]})
        self.assertEqual([other.part(sequence=i)["pairs"] for i in range(2)], [100 * 101 // 2, 55 + 10])
        with heard() as said:
            self.assertEqual(prog.plan([50, 50, 50]).digest, first.digest)
        self.assertEqual([str(w.message) for w in said if "captured" in str(w.message)], [])
        with heard() as said:
            plan = prog.plan([50, 60, 70])
        words = [str(w.message) for w in said if "captured" in str(w.message)]
        self.assertEqual(len(words), 1)
        self.assertIn('plan(lengths, {"prefix": values})', words[0])
        self.assertIn(words[0], plan.warnings)
        for lengths, words in ([50, 60], "the batch needs 2 values of it. There are 3"), ([9] * 4, "needs 4 values"):
            self.expect("E320", lambda: prog.plan(lengths), "field 'prefix' is over sequences", words,
                        'plan(lengths, {"prefix": values})')
        self.expect("E320", lambda: a_program(FUNCTIONS[7]).plan([LENGTH, 64, LENGTH]), "sequence 1 has 64 tokens",
                    'plan(lengths, {"keep": values})')
        with heard() as said:
            list(prog.ahead([{"lengths": [n, 60, 70]} for n in (1, 2, 3)]))
        self.assertEqual(sum("captured" in str(w.message) for w in said), 1)

    def test_values_are_read_once(self):
        mine = torch.tensor([10, 20])
        prog = a_program(lambda b, h, q, k: k < mine[b])
        before = prog.plan([64, 64]).digest
        mine += 1
        self.assertEqual(prog.plan([64, 64]).digest, before)
        self.assertNotEqual(prog.plan([64, 64], {"mine": mine}).digest, before)

    def test_names(self):
        """A tensor has the name of the variable, list or attribute that holds it. What nothing reads is a warning."""
        both = [torch.tensor([3, 4]), torch.tensor([5, 6])]

        class Object:
            def __init__(self):
                self.before = both[0]

            def __call__(self, b, h, q, k):
                return k < self.before[b]

            def method(self, b, h, q, k):
                return k < self.before[b]
        for mask, names in [(lambda b, h, q, k: (k < both[0][b]) | (q < both[1][b]), ["both", "both_2"]),
                            (Object(), ["before"]), (Object().method, ["before"])]:
            with heard() as said:
                prog = a_program(mask)
            self.assertEqual((list(prog.fields), said), (names, []))
            pairs = prog.plan([9, 9]).summary()["pairs"]
            want = sum((k < 3 + i) | (len(names) == 2 and q < 5 + i)
                       for i in range(2) for q in range(9) for k in range(9))
            self.assertEqual(pairs, want)
        with heard() as said:
            fcpc.program("causal", fields=["lost", "doc"], documents="doc")
        self.assertEqual([(w.category, w.filename) for w in said], [(fcpc.Warning, __file__)])
        self.assertIn("no mask or score reads field 'lost'", str(said[0].message))

    def test_in_mask_and_score(self):
        """One tensor in both, and one name for two tensors."""
        side = torch.arange(2 * 64).view(2, 64) % 5

        def other(n):
            side = torch.full((2,), n)
            return lambda b, h, q, k: k < side[b]
        prog = a_program(None, layers=[lambda b, h, q, k: side[b, q] > 1, other(7), other(9)],
                         score=lambda s, b, h, q, k: torch.where(side[b, k] > 1, s, s + 1.0))
        self.assertIn("field side = given\n", prog.text)
        plan = prog.plan([64, 64])
        pairs = [p.summary()["pairs"] for p in plan.layers]
        self.assertEqual(pairs, [(side > 1).sum().item() * 64, 2 * 7 * 64, 2 * 9 * 64])
        with self.assertRaises(fcpc.Error) as raised:
            a_program(None, fields=["side"], layers=[lambda b, h, q, k: side[b, q] > 1,
                                                     lambda b, h, q, k: side[b, q // 32] > 1])
        self.assertEqual(raised.exception.code, "E320")

    def test_reals(self):
        """A captured tensor of reals, read by a score."""
        torch.manual_seed(3)
        bias, slope = torch.randn(2, HEADS, 64), torch.rand(2, HEADS)
        prog = a_program("causal", score=lambda s, b, h, q, k: s + bias[b, h, k] - slope[b, h] * (q - k))
        self.assertIn("field bias = given(real, over = heads, keys)", prog.text)
        plan = prog.plan([64, 64])
        inputs = [torch.randn(128, n, 16) for n in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
        o = compute(Attention(prog).bind(plan), plan, *inputs)[0]
        at = torch.arange(64)
        for i in range(2):
            q, k, v = (x.split(64)[i].double().transpose(0, 1) for x in inputs[:3])
            k, v = k.repeat_interleave(GROUP, 0), v.repeat_interleave(GROUP, 0)
            logits = q @ k.mT / 4 + bias[i][:, None] - slope[i][:, None, None] * (at[:, None] - at)
            want = (logits.masked_fill(at[:, None] < at, -torch.inf).softmax(-1) @ v).transpose(0, 1)
            self.assertLess((o[64 * i:64 * (i + 1)] - want).abs().max(), 1e-5)


class Values(Expecting):
    def test_shapes(self):
        """What does not fit a batch is refused, with the shape that would."""
        prog = a_program("x[h, q / 32, k / 16] == 1", fields={"x": "given(over = heads, queries / 32, keys / 16)"})
        ok = numpy.zeros((2, HEADS, 3, 5), dtype=int)
        prog.plan([80, 80], {"x": ok})
        for lengths, values, *words in [
                ([80, 80], ok[:, :3], "over heads, queries / 32, keys / 16", "sequence 0 has 80 tokens",
                 "have the shape [4, 3, 5], and these have [3, 3, 5]"),
                ([80, 30], ok, "sequence 1 has 30 tokens", "[4, 1, 2]", "a list with an array for each sequence"),
                ([80, 80], ok[0], "the batch has 2 sequences", "[2, 4, 3, 5]", "The shape of these is [4, 3, 5]"),
                ([80], ok, "the batch has one sequence", "[1, 4, 3, 5]"),
                ([80, 80], [ok[0]], "the list has numbers of one sequence, and the batch has 2"),
                ([80, 80], [ok[0], ok[1, :, :1]], "sequence 1 has 80 tokens", "these have [4, 1, 5]"),
                ([80, 80], list(ok.reshape(2, -1)), "sequence 0", "these have [60]"),
                ([80, 80], ok.reshape(-1)[1:], "'x'", "119")]:
            self.expect("E320", lambda: prog.plan(lengths, {"x": values}), *words)
        prog.plan([80], {"x": ok[0]})
        ragged = [[[[0] * 5] * 3] * HEADS, [[[0] * 5] * 2 + [[0] * 4]] * HEADS]
        self.expect("E202", lambda: prog.plan([80, 80], {"x": ragged}), "field 'x', sequence 1: rows of different")
        queries = a_program("x[q] == 1", fields={"x": "given(over = queries)"})
        self.expect("E320", lambda: queries.plan([80], {"x": [numpy.zeros(70, dtype=int)]}, queries=[60]),
                    "60 queries and 80 keys", "[60]")

    def test_types(self):
        prog = a_program("x == 1", fields={"x": "given(over = sequences)"})
        first, second = (prog.plan([9, 9], {"x": x}) for x in ([True, 0], torch.tensor([1, 0])))
        self.assertEqual(first.digest, second.digest)
        for reals in [1.0, 0.0], numpy.zeros(2), torch.zeros(2):
            self.expect("E202", lambda: prog.plan([9, 9], {"x": reals}), "field 'x'", "whole number")
        self.expect("E202", lambda: prog.plan([9, 9], {"x": torch.zeros(2)}), 'fields={name: "given(real)"}')
        self.expect("E202", lambda: a_program("k < x", fields={"x": torch.tensor([1, 2])}), '{"x": "given(over = seq',
                    'plan(lengths, {"x": values})')
        self.expect("E320", lambda: prog.plan([9, 9]), "'x' has no values", 'plan(lengths, {"x": values})')
        real = a_program("causal", score="s + x", fields={"x": "given(real, over = sequences)"})
        same = {real.plan([9, 9], {"x": x}).digest for x in (
            [1, 2], [1.0, 2.0], numpy.array([1, 2]), numpy.array([1, 2], "float32"), torch.tensor([1., 2.]).bfloat16(),
            torch.tensor([1, 2]))}
        self.assertEqual(len(same), 1)
        self.expect("E202", lambda: real.plan([9, 9], {"x": ["a", "b"]}), "field 'x': element 0 is 'a', a number")

    def test_pickled(self):
        """Captured values of every shape go with the program."""
        for function in FUNCTIONS:
            prog = a_program(function, documents=None)
            again = pickle.loads(pickle.dumps(prog))  # prog, or an equal program that another test still holds
            self.assertEqual((again.source, again.fields), (prog.source, prog.fields))
            self.assertEqual(pickle.loads(pickle.dumps(prog.plan([LENGTH] * B))).digest, prog.plan([LENGTH] * B).digest)


class Readme(Expecting):
    def test_what_you_hold_and_what_you_write(self):
        """Each row of the README's table is Python that runs."""
        tokens = torch.arange(2 * 130).view(2, 130)
        names = {"fcpc": fcpc, "cu_seqlens": [0, 130, 260], "cu_seqlens_q": [0, 130, 200],
                 "cu_seqlens_k": [0, 130, 260],
                 "tokens": tokens, "attention_mask": (tokens > 7).long(), "lengths": [130, 130],
                 "doc": torch.arange(260) // 50, "prefix": torch.tensor([7, 9]), "w": torch.ones(2, 8).long(),
                 "list_of_keep": [torch.ones(8, 2, 2, dtype=torch.bool)] * 2, "prog": fcpc.program("causal"),
                 "mask_mod": gallery.causal, "score_mod": gallery.softcap,
                 "block_mask": create_block_mask(gallery.causal, None, None, 128, 128, device="cpu"),
                 "indices": torch.full((2, 1, 64, 1), 50), "q_ranges": [[0, 64]], "k_ranges": [[0, 64]],
                 "attn_type_map": [1]}
        text = (Path(__file__).resolve().parents[2] / "runtime/python/README.md").read_text()
        part = text.split("## What you hold, and")[1].split("\n## ")[0]
        rows = re.findall(r"^\| [^|]* \| ([^|]*) \|$", part, re.MULTILINE)
        self.assertGreater(len(rows), 12)
        for row in rows[2:]:
            here = dict(names)
            for piece in re.findall(r"`([^`]*)`", row):
                with self.subTest(piece):
                    if "fcpc." in piece or piece.startswith(("prog.", "tokens[")):
                        name, _, expression = piece.rpartition(" = ") if piece.startswith("m = ") else ("", "", piece)
                        made = eval(expression, here)
                        if isinstance(made, fcpc.Program):
                            here["prog"] = made
                        elif name:
                            prog = fcpc.program(made)
                            self.assertGreater(prog.plan(made).summary()["pairs"], 0)


if __name__ == "__main__":
    unittest.main()
