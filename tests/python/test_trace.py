"""test_trace.py: functions of Python as masks and scores, against what PyTorch makes of them."""
import sys
import time
import unittest

import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

import fcpc
from fcpc.torch import Attention

import gallery
from gallery import HEADS, LENGTH
from test_torch import NEAR, Compared, compute, judge


def a_program(mask, **more):
    return fcpc.program(**{"mask": mask, "heads": HEADS, "kv_heads": 2, "head_dim": 16, "dtype": "fp32",
                           "cluster": fcpc.detect(), "block": 64, **more})


def pairs_of(plan):
    """The mask that a plan has, pair by pair: [LENGTH, LENGTH], summed over the heads if it names them."""
    step = 32  # larger parts are drawn in squares of several pairs
    return torch.cat([torch.cat([torch.tensor(plan.part((row, row + step), (col, col + step))["grid"])
                                 for col in range(0, LENGTH, step)], 1) for row in range(0, LENGTH, step)])


class Masks(Compared):
    def test_gallery(self):
        """Every mask of the gallery has exactly the pairs that create_mask gives."""
        for name, function, fields in gallery.MASKS:
            heads = HEADS if name in gallery.NAME_HEADS else None
            want = create_mask(function, None, heads, LENGTH, LENGTH, device="cpu")[0].long().sum(0)
            plan = a_program(function, fields=fields).plan([LENGTH])
            self.assertEqual(plan.summary()["pairs"], want.sum().item(), name)
            self.assertTrue(torch.equal(pairs_of(plan), want), name)

    def test_blocks(self):
        """Its blocks are those of FlexAttention's create_block_mask: full, partial and none."""
        for name, function, fields in gallery.MASKS:
            blocks = create_block_mask(function, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=128)
            want = sorted([blocks.kv_num_blocks.sum().item(), blocks.full_kv_num_blocks.sum().item()])
            view = a_program(function, fields=fields).plan([LENGTH]).part()
            if name not in gallery.NAME_HEADS:  # one block of its own for each head
                self.assertEqual(sorted([view["cells_partial"], view["cells_full"]]), want, name)

    def test_values(self):
        """Attention under some of them is scaled_dot_product_attention under the mask of create_mask."""
        for name, function, fields in gallery.MASKS:
            if name in ("per_head", "packed window", "neighbourhood", "block_diffusion", "turns"):
                torch.manual_seed(3)
                inputs = [torch.randn(LENGTH, h, 16) for h in (HEADS, 2, 2, HEADS)]
                prog = a_program(function, fields=fields)
                plan = prog.plan([LENGTH])
                allowed = create_mask(function, None, HEADS, LENGTH, LENGTH, device="cpu")[0]
                self.assert_near(compute(Attention(prog).bind(plan), plan, *inputs), judge(allowed, *inputs),
                                 NEAR["fp32"])

    def test_scores(self):
        """A score is what FlexAttention adds to logits, forward and backward."""
        at = torch.arange(LENGTH)
        h, q, k = torch.meshgrid(torch.arange(HEADS), at, at, indexing="ij")
        for name, function in gallery.SCORES:
            torch.manual_seed(5)
            inputs = [torch.randn(LENGTH, n, 16) for n in (HEADS, 2, 2, HEADS)]
            prog = a_program(gallery.causal, score=function)
            plan = prog.plan([LENGTH])
            got = compute(Attention(prog).bind(plan), plan, *inputs)
            x, y, z = (t.clone().requires_grad_() for t in inputs[:3])
            kk, vv = (t.repeat_interleave(HEADS // 2, 1).transpose(0, 1) for t in (y, z))
            logits = function(x.transpose(0, 1) @ kk.transpose(1, 2) / 4, None, h, q, k)
            o = (logits.masked_fill(q < k, -torch.inf).softmax(-1) @ vv).transpose(0, 1)
            o.backward(inputs[3])
            self.assert_near(got, (o.detach(), x.grad, y.grad, z.grad), NEAR["fp32"])


class Text(unittest.TestCase):
    def test_what_is_written(self):
        cases = [(lambda b, h, q, k: (q >= k) & (gallery.document[q] == gallery.document[k]),
                  "q >= k and table[q] == table[k]"),
                 (gallery.documents, "document[q] == document[k]"),
                 (gallery.full, "true"),
                 (lambda b, h, q, k: True, "true"),
                 (lambda b, h, q, k: ~(q - (k - 3) < 5) & ((q < k) | (h == 1)),
                  "not q - (k - 3) < 5 and (q < k or h == 1)"),
                 (lambda b, h, q, k: -(-q // 2) > 3 - k * (h + 1), "-(-q / 2) > 3 - k * (h + 1)"),
                 (lambda b, h, q, k: torch.where(q < 5, q, k) < torch.minimum(q, k),
                  "(if q < 5 then q else k) < min(q, k)")]
        for function, text in cases:
            self.assertEqual(fcpc.trace(function).text, text)

    def test_bits(self):
        """& | ^ << >> of whole numbers, also below 0, are what Python makes of them."""
        def mixed(q, k):
            return ((q - k & 0b1100110) | (k & 1) << 3 ^ (q & 1) << 4) >> 1
        plan = a_program(lambda b, h, q, k: mixed(q, k) % 3 == 0).plan([LENGTH])
        want = torch.tensor([[mixed(q, k) % 3 == 0 for k in range(LENGTH)] for q in range(LENGTH)]).long()
        self.assertTrue(torch.equal(pairs_of(plan), want))

    def test_indices_of_many_dimensions(self):
        """An index that is out of its range is a fault of the mask, and no element of another row."""
        cube = torch.arange(4 * 8 * 8).view(4, 8, 8)
        plan = a_program(lambda b, h, q, k: cube[q % 4, q % 8, k % 8] % 5 < 2).plan([LENGTH])
        at = torch.arange(LENGTH)
        want = cube[at[:, None] % 4, at[:, None] % 8, at % 8] % 5 < 2
        self.assertTrue(torch.equal(pairs_of(plan), want.long()))
        for out in (lambda b, h, q, k: cube[q % 4, q % 9, k % 8] > 5, lambda b, h, q, k: cube[q % 4, 0, k % 8 - 1] > 5):
            with self.assertRaises(fcpc.Error) as raised:
                a_program(out).plan([LENGTH])
            self.assertEqual(raised.exception.code, "E313")

    def test_used_twice(self):
        """What is used more than once is written once, however often it doubles."""
        def deep(times):
            def mask(b, h, q, k):
                x = q - k
                for _ in range(times):
                    x = torch.maximum(x, x // 2 + x % 3)
                return x > 3
            return mask
        self.assertLess(len(fcpc.trace(deep(40)).text), 3000)
        plan = a_program(deep(3)).plan([LENGTH])
        want = create_mask(deep(3), None, None, LENGTH, LENGTH, device="cpu")[0, 0].long()
        self.assertTrue(torch.equal(pairs_of(plan), want))

    def test_fields(self):
        doc = fcpc.Field("doc")
        prog = a_program(lambda b, h, q, k: doc[b, q] == doc[b, k], fields=["doc"])
        self.assertIn("doc[q] == doc[k]", prog.source)
        first = prog.plan([LENGTH], {"doc": gallery.document})
        captured = a_program(gallery.documents, fields=["document"])
        self.assertEqual(first.summary()["pairs"], captured.plan([LENGTH]).summary()["pairs"])
        other = captured.plan([LENGTH], {"document": gallery.document * 0})
        self.assertEqual(other.summary()["pairs"], LENGTH * LENGTH)

    def test_what_a_field_has_numbers_for(self):
        """How a captured tensor is read says what it is over."""
        f = torch.zeros(2, 2, 2, 2, dtype=torch.long)
        one, two, three = f[0, 0, 0], f[0, 0], f[0]
        cases = [(lambda b, h, q, k: k < one[b], "sequences", "k < one"),
                 (lambda b, h, q, k: q - k < two[b, h], "heads", "q - k < two[h]"),
                 (lambda b, h, q, k: q - k < two[b, h // 2], "kv_heads", "q - k < two[h / 2]"),
                 (lambda b, h, q, k: two[b, k] > 0, "keys", "two[k] > 0"),
                 (lambda b, h, q, k: two[b, q] > k, "queries", "two[q] > k"),
                 (lambda b, h, q, k: two[b, q] == two[b, k], "keys", "two[q] == two[k]"),
                 (lambda b, h, q, k: two[b, q] == two[b, 0], "queries", "two[q] == two[0]"),
                 (lambda b, h, q, k: two[b, two[b, k]] > 0, "keys", "two[two[k]] > 0"),
                 (lambda b, h, q, k: two[b, (q - 1) >> 6] == two[b, k // 64], "keys / 64",
                  "two[(q - 1) / 64] == two[k / 64]"),
                 (lambda b, h, q, k: three[b, h, k] < q, "heads, keys", "three[h, k] < q"),
                 (lambda b, h, q, k: three[b, q, k] > 0, "queries, keys", "three[q, k] > 0"),
                 (lambda b, h, q, k: f[b, h, q // 128, k // 64] == 1, "heads, queries / 128, keys / 64",
                  "f[h, q / 128, k / 64] == 1")]
        for function, over, text in cases:
            traced = fcpc.trace(function)
            (name, found), = traced.over.items()
            self.assertEqual((found.text(), traced.text), (over, text))
            self.assertEqual(list(traced.fields), [name])
            self.assertEqual(traced.tables, {})
        named = fcpc.trace(lambda b, h, q, k: two[q // 128, k // 128] > 0, fields=["two"])
        self.assertEqual(named.over["two"].text(), "queries / 128, keys / 128")
        wide = f.double()
        scored = fcpc.trace(lambda s, b, h, q, k: s + wide[b, h, q, k], "score")
        self.assertEqual(scored.over["wide"].declared(), "given(real, over = heads, queries, keys)")

    def test_names_of_tables(self):
        n, other = torch.arange(3), torch.arange(3)

        def outer():
            n = other
            return lambda b, h, q, k: n[q % 3] == k % 3
        inner = outer()
        traced = fcpc.trace(lambda b, h, q, k: (n[q % 3] < k) & inner(b, h, q, k))
        self.assertEqual(sorted(traced.tables), ["n_2", "n_3"])  # n is the length, in the language
        a_program(lambda b, h, q, k: (n[q % 3] < k) & inner(b, h, q, k)).plan([64])

    def test_functions_with_tensors_of_one_name(self):
        """Two functions of a program that have each captured another `n`: both keep their own."""
        def first(n):
            return lambda b, h, q, k: k < n[q % 3]
        near = first(torch.tensor([1, 2, 3]))
        prog = a_program(None, layers=[first(torch.tensor([5, 5, 5])), first(torch.tensor([7, 7, 7]))],
                         score=lambda s, b, h, q, k: torch.where(near(b, h, q, k), s, 0.0))
        plan = prog.plan([64])
        self.assertEqual([p.summary()["pairs"] for p in plan.layers], [64 * 5, 64 * 7])
        doc = [torch.arange(64) // size for size in (8, 16)]

        def same(doc):
            return lambda b, h, q, k: doc[q] == doc[k]
        self.assertEqual(a_program(None, fields=["doc"], layers=[same(doc[0]), same(doc[0].clone())]).masks, 2)
        with self.assertRaises(fcpc.Error) as raised:
            a_program(None, fields=["doc"], layers=[same(doc[0]), same(doc[1])])
        self.assertEqual(raised.exception.code, "E320")


class Refused(unittest.TestCase):
    def expect(self, code, function, words, kind="mask"):
        with self.assertRaises(fcpc.Error) as raised:
            fcpc.trace(function, kind)
        self.assertEqual(raised.exception.code, code, str(raised.exception))
        self.assertIn(words, str(raised.exception))
        self.assertEqual(raised.exception.file, __file__)
        self.assertGreater(raised.exception.line, 0)

    def test_what_is_no_expression(self):
        table, square, doc = torch.arange(8), torch.arange(4).view(2, 2), fcpc.Field("doc")
        for words, function in {
                "whether a symbol is true": lambda b, h, q, k: 0 <= q - k < 5,
                "torch.erf is no operation": lambda b, h, q, k: torch.erf(q) > k,
                "the number behind a symbol": lambda b, h, q, k: table[:int(q)].sum() > k,
                "has no 'sum'": lambda b, h, q, k: q.sum() > k,
                "a number for each, such as first = torch.tensor([1, 0, 0])": lambda b, h, q, k: (b == 0) | (q > k),
                "b is the number of a sequence": lambda b, h, q, k: q > b,
                "is the first index of a field": lambda b, h, q, k: square[q, b] > k,
                "tensors are read as": lambda b, h, q, k: q > table,
                "a shift is by a constant": lambda b, h, q, k: q >> k > 0}.items():
            self.expect("E210", function, words)
        cube = torch.zeros(4, 4, 65)
        for words, function in {
                "of shape [4, 4, 65] is no number here": lambda b, h, q, k: cube[h, q % 4] > k,
                "no row of at most 64": lambda b, h, q, k: (cube[h, q % 4] == k).any(-1),
                "rows of 4 and 8": lambda b, h, q, k: (table.view(1, 8)[q % 1] == cube[h, :, 0][q % 4]).any(),
                "4 indices": lambda b, h, q, k: torch.zeros(2, 4, 4, 65, 65)[b, h, q, k, k] > k,
                "another way than elsewhere": lambda b, h, q, k: (cube[b, h, q] > k) | (cube[b, q, k] > k),
                "with 1 indices here, and with 2": lambda b, h, q, k: (doc[b, h, k] > 1) | (doc[b, k] > 1),
                "the first is the query's": lambda b, h, q, k: cube[b, k, q] > k,
                "at h // n": lambda b, h, q, k: cube[b, h + 1, q] > k,
                "cells of one size": lambda b, h, q, k: square[b, q // 4] == square[b, k // 8]}.items():
            self.expect("E210", function, words)

    def test_if(self):
        def mask(b, h, q, k):
            if q > k:
                return True
            return k < 5
        with self.assertRaises(fcpc.Error) as raised:
            a_program(mask)
        self.assertEqual(raised.exception.line, mask.__code__.co_firstlineno + 1)
        self.assertIn("if q > k:", str(raised.exception))

    def test_types(self):
        for words, function in {
                "computes with a condition": lambda b, h, q, k: (q > k) + 1 > 0,
                "compares a condition": lambda b, h, q, k: (q > k) == 1,
                "& takes a constant from 0 on": lambda b, h, q, k: q & k == 0,
                "a constant from 0": lambda b, h, q, k: q & -4 == 0,
                "cannot have a bit in common": lambda b, h, q, k: (q & 3) | (k & 2) > 2,
                "| and ^ take two that": lambda b, h, q, k: q ^ 1 == k,
                "two conditions, or two": lambda b, h, q, k: (q > k) & 1,
                "~ takes a condition": lambda b, h, q, k: ~q > k,
                "// divides them": lambda b, h, q, k: q / 2 > k,
                "'slopes' holds reals": lambda b, h, q, k: gallery.slopes[h] > k,
                "gives a number": lambda b, h, q, k: q - k,
                "an index is a whole number": lambda b, h, q, k: gallery.reach[q / 2] > k}.items():
            self.expect("E202", function, words)
        self.expect("E202", lambda s, b, h, q, k: s + (q - k) // 2, "inside an index or a condition", "score")
        self.expect("E202", lambda s, b, h, q, k: q > k, "gives a condition", "score")
        with self.assertRaises(fcpc.Error) as raised:
            fcpc.trace(lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")), "score")
        self.assertEqual(raised.exception.code, "E330")
