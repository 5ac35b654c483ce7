"""test_foreign.py: what people hold from other projects, against those projects' own definitions, on random inputs.

The definitions are written here from the documents of FlashAttention, MagiAttention, FlashMask and FlexAttention. The
BlockMasks are those of the PyTorch that is here.
"""
import itertools
import random
import unittest
from types import SimpleNamespace

import numpy
import torch
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask, create_mask, or_masks

import fcpc
from expecting import Expecting
from fcpc.torch import Attention
from test_program import heard
from test_torch import NEAR, Compared, compute, judge

import gallery

HEADS, KV_HEADS = 4, 2


def a_program(mask, **more):
    return fcpc.program(**{"mask": mask, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": 16, "dtype": "fp32",
                           "cluster": fcpc.detect(), "block": 64, **more})


def seen(plan, queries, keys, sequence=0, head=0):
    """The mask of one sequence and head, pair by pair: [queries, keys]."""
    step = 32  # larger parts are counted in squares of several pairs
    made = torch.zeros(queries, keys, dtype=torch.bool)
    for row in range(0, queries, step):
        for col in range(0, keys, step):
            rows, cols = (row, min(row + step, queries)), (col, min(col + step, keys))
            made[slice(*rows), slice(*cols)] = torch.tensor(plan.part(rows, cols, sequence, head)["grid"]) > 0
    return made


class Lengths(Expecting):
    def test_cumulative(self):
        """Random cu_seqlens, of every type that holds whole numbers."""
        draw = random.Random(1)
        for kind in (list, numpy.array, lambda x: torch.tensor(x, dtype=torch.int32), torch.tensor, tuple):
            keys = [draw.choice((0, 1, 7, 300)) for _ in range(draw.randint(1, 6))]
            queries = [draw.randint(0, n) for n in keys]
            sums = [[0, *(sum(x[:i + 1]) for i in range(len(x)))] for x in (queries, keys)]
            self.assertEqual(fcpc.lengths(kind(sums[1])), fcpc.Lengths(keys))
            both = fcpc.lengths(kind(sums[0]), cu_seqlens_k=kind(sums[1]))
            self.assertEqual((both.keys, both.queries or keys), (keys, queries))
            prog = a_program("causal")
            self.assertEqual(prog.plan(both).digest, prog.plan(keys, queries=queries).digest)

    def test_ahead(self):
        prog = a_program("causal")
        of = [SimpleNamespace(lengths=fcpc.lengths(*said)) for said in ([[0, 100, 350]], [[0, 7], [0, 9]])]
        plans = [plan for _, plan in prog.ahead(of)]
        self.assertEqual([plan.digest for plan in plans],
                         [prog.plan([100, 250]).digest, prog.plan([9], queries=[7]).digest])

    def test_what_is_not_cumulative(self):
        for said, code, words in [([3, 5], "E300", "Of lengths, [3, 5], they would be [0, 3, 8]"),
                                  ([], "E300", "of no sequence they are [0]"),
                                  ([0, 5, 3], "E300", "element 2 is 3, less than 5"),
                                  ([0, 0.5], "E202", "element 1 is 0.5"), ([0, -1], "E206", "element 1 is -1"),
                                  (torch.zeros(2), "E202", "a tensor of torch.float32"),
                                  (torch.zeros(2, 2, dtype=torch.int32), "E202", "in one dimension")]:
            self.expect(code, lambda: fcpc.lengths(said), "cu_seqlens: ", words)
            self.expect(code, lambda: fcpc.lengths([0], said), "cu_seqlens_k: ", words)
        self.expect("E300", lambda: fcpc.lengths([0, 1, 2], [0, 5]), "of 2 sequences, and cu_seqlens_k of 1")
        self.expect("E300", lambda: a_program("causal").plan(fcpc.lengths([0, 5]), queries=[3]), "leave `queries` out")


def magi(q_ranges, k_ranges, types, queries, keys):
    """MagiAttention: what each range allows. Rows and columns count from where the ranges begin, or from their ends."""
    made = torch.zeros(queries, keys, dtype=torch.bool)
    for (q0, q1), (k0, k1), kind in zip(q_ranges, k_ranges, types):
        rows, cols = torch.arange(q1 - q0)[:, None], torch.arange(k1 - k0)
        allowed = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool)
        if kind in (1, 3):  # the last row sees the last column, each row before it one column less
            allowed &= (k1 - k0) - 1 - cols >= (q1 - q0) - 1 - rows
        if kind in (2, 3):  # the first row sees all from the first column on, each row behind it one column less
            allowed &= cols >= rows
        made[q0:q1, k0:k1] |= allowed
    return made


class MagiAttention(Expecting):
    def test_random_ranges(self):
        draw = random.Random(2)
        names = ["full", "causal", "inv_causal", "bi_causal"]
        for _ in range(20):
            queries, keys = draw.choice([(200, 200), (130, 170), (170, 90)])
            q, k, types = [], [], []
            for _ in range(draw.randint(1, 9)):
                for ranges, most in (q, queries), (k, keys):
                    ranges.append(tuple(sorted(draw.choices(range(most + 1), k=2))))
                types.append(draw.randrange(4))
            as_held = draw.choice([lambda x: x, torch.tensor, numpy.array,
                                   lambda x: [SimpleNamespace(start=a, end=b) for a, b in x],
                                   lambda x: SimpleNamespace(to_naive_ranges=lambda: x)])
            said = draw.choice([types, torch.tensor(types), [names[i] for i in types],
                                [SimpleNamespace(value=names[i]) for i in types]])
            m = fcpc.masks.from_ranges(as_held(q), as_held(k), said, queries, keys)
            plan = a_program(m).plan(m)
            self.assertTrue(torch.equal(seen(plan, queries, keys), magi(q, k, types, queries, keys)), (q, k, types))

    def test_of_each_batch(self):
        """Programs of other ranges run in one Attention, because only their masks differ."""
        torch.manual_seed(1)
        ranges = [[[0, 100], [100, 250]], [[0, 250]]], [[[0, 100], [0, 250]], [[0, 200]]]
        attn = None
        for q, k in zip(*ranges):
            m = fcpc.masks.from_ranges(q, k, "causal", 250, 250)
            prog = a_program(m)
            attn = attn or Attention(prog)
            inputs = [torch.randn(250, n, 16) for n in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
            plan = prog.plan(m.lengths)
            allowed = magi(q, k, [1] * len(q), 250, 250)
            Compared.assert_near(self, compute(attn.bind(plan), plan, *inputs), judge(allowed, *inputs), NEAR["fp32"])

    def test_totals(self):
        m = fcpc.masks.from_ranges([[0, 10]], [[0, 30]])
        self.assertEqual((m.lengths, m.text), (fcpc.Lengths([30]), "slices([0, 10, 0, 30, full])"))
        m = fcpc.masks.from_ranges([[5, 5]], [[0, 30]], 1, 10, 40)
        self.assertEqual((m.lengths, m.text, m.top_left), (fcpc.Lengths([40], [10]), "false", True))
        self.assertIn("align = top_left", a_program(m).text)

    def test_what_is_no_range(self):
        call = fcpc.masks.from_ranges
        self.expect("E323", lambda: call([[5, 3]], [[0, 3]]), "q_ranges, element 0: 5 to 3 is no range")
        self.expect("E323", lambda: call([[0, 3]], [[-1, 3]]), "k_ranges, element 0: -1 to 3")
        self.expect("E323", lambda: call([[0, 3]], [[0, 3]], 0, 2), "a range reaches to 3, and total_seqlen_q is 2")
        self.expect("E202", lambda: call([[0, 3, 5]], [[0, 3]]), "(start, end) is expected", "[0, 3, 5]")
        self.expect("E202", lambda: call([[0, 0.5]], [[0, 3]]), "[0, 0.5]")
        self.expect("E202", lambda: call(7, [[0, 3]]), "q_ranges: a list of (start, end)", "7")
        self.expect("E202", lambda: call([[0, 3]], [[0, 3]], "windowed"), "types, element 0", "windowed")
        self.expect("E202", lambda: call([[0, 3]], [[0, 3]], [4]), "types, element 0", "4")
        self.expect("E202", lambda: call([[0, 3]], [[0, 3]], [0], "many"), "total_seqlen_q is 'many'")
        self.expect("E203", lambda: call([[0, 3]], [[0, 3], [3, 4]]), "1 q_ranges and 2 k_ranges")
        self.expect("E203", lambda: call([[0, 3]], [[0, 3]], [0, 1]), "1 ranges and 2 types")


def flashmask(indices, causal):
    """FlashMask: [heads, rows, keys] of one sequence. Each key names rows that are masked, and `causal` masks more."""
    heads, keys, columns = indices.shape
    rows = torch.arange(keys)[:, None]
    of = [indices[:, None, :, i] for i in range(columns)]
    if causal:
        below = (rows >= of[0]) & (rows < of[1]) if columns == 2 else rows >= of[0]
        return ~below & (rows >= torch.arange(keys))
    if columns == 2:
        return ~(rows >= of[0]) & ~(rows < of[1])
    return ~((rows >= of[0]) & (rows < of[1])) & ~((rows >= of[2]) & (rows < of[3]))


class FlashMask(Expecting):
    FORMS = (True, 1), (True, 2), (False, 2), (False, 4)

    def test_random_indices(self):
        """All forms, one head or one for each KV head, in one program for two batches."""
        torch.manual_seed(3)
        for causal, columns in self.FORMS:
            for heads in (1, KV_HEADS):
                prog = None
                for sequences, keys in (1, 70), (2, 100):
                    indices = torch.randint(0, keys + 1, (sequences, heads, keys, columns), dtype=torch.int32)
                    given = {1: indices, 2: indices.numpy(),  # and as a library has it that only knows numpy
                             4: SimpleNamespace(shape=indices.shape, numpy=indices.numpy)}[columns]
                    m = fcpc.masks.from_startend_row_indices(given, causal)
                    prog = prog or a_program(m)
                    plan = prog.plan(m)
                    for b in range(sequences):
                        want = flashmask(indices[b], causal).expand(KV_HEADS, keys, keys)
                        for h in range(HEADS):
                            self.assertTrue(torch.equal(seen(plan, keys, keys, b, h), want[h // (HEADS // KV_HEADS)]),
                                            (causal, columns, heads, b, h))

    def test_documents(self):
        """The example of its documentation: three documents, causal."""
        ends = torch.tensor([4, 4, 4, 4, 7, 7, 7, 10, 10, 10], dtype=torch.int32).view(1, 1, 10, 1)
        m = fcpc.masks.from_startend_row_indices(ends, causal=True)
        want = a_program("causal and doc[q] == doc[k]", fields=["doc"], documents=None).plan(
            [10], {"doc": [0] * 4 + [1] * 3 + [2] * 3})
        self.assertEqual(a_program(m).plan(m).summary()["pairs"], want.summary()["pairs"])

    def test_several_in_a_program(self):
        one, two = (fcpc.masks.from_startend_row_indices(torch.full((1, 1, 64, 1), n), True) for n in (9, 64))
        self.expect("E201", lambda: a_program(None, layers=[one, two]), "two masks of the program have a field 'lts'")
        two = fcpc.masks.from_startend_row_indices(torch.full((1, 1, 64, 1), 64), True, name="far")
        plan = a_program(None, layers=[one, two, one]).plan([64], {**one.fields, **two.fields})
        pairs = [p.summary()["pairs"] for p in plan.layers]
        self.assertEqual(pairs, [45, 65 * 32, 45])

    def test_what_is_none(self):
        call = fcpc.masks.from_startend_row_indices
        self.expect("E701", lambda: call(torch.zeros(3, 4)), "a tensor [batch, heads, keys, columns]", "[3, 4]")
        self.expect("E701", lambda: call([1, 2]), "[1, 2]")
        for causal, columns in ((True, 4), (False, 1), (True, 3)):
            self.expect("E701", lambda: call(torch.zeros(1, 1, 4, columns, dtype=torch.int32), causal),
                        f"{columns} columns")
        self.expect("E202", lambda: call(torch.zeros(1, 1, 4, 1), True), "torch.float32")
        m = call(torch.zeros(1, 1, 4, 1, dtype=torch.int32), True)
        self.expect("E320", lambda: a_program(m).plan(m.lengths), "'lts' has no values",
                    'plan(lengths, {"lts": values})')


def compiled(block_mask, function, b, h):
    """What a compiled flex_attention computes: lists choose blocks, and the function acts in those of kv_indices."""
    (queries, keys), (q_cell, k_cell) = block_mask.seq_lengths, block_mask.BLOCK_SIZE
    allowed = create_mask(function, b + 1, h + 1, queries, keys, device="cpu")[b, h]
    made = torch.zeros(queries, keys, dtype=torch.bool)
    for count, indices, whole in ((block_mask.kv_num_blocks, block_mask.kv_indices, False),
                                  (block_mask.full_kv_num_blocks, block_mask.full_kv_indices, True)):
        for row in range(-(-queries // q_cell)):
            for column in indices[b, h, row, :count[b, h, row]].tolist() if count is not None else ():
                at = slice(row * q_cell, (row + 1) * q_cell), slice(column * k_cell, (column + 1) * k_cell)
                made[at] = True if whole else allowed[at]
    return made


def random_lists(b, h, rows, columns, share, whole=0.0):
    """Random lists of blocks for BlockMask.from_kv_blocks, and of those that are whole."""
    draw = torch.rand(b, h, rows, columns)
    made = []
    for chosen in (draw < share) & (draw >= whole), draw < whole:
        order = torch.argsort(chosen.int(), dim=-1, descending=True, stable=True).int()
        made += [chosen.sum(-1).int(), order]
    return made


class FlexAttention(Expecting):
    def test_gallery(self):
        """BlockMasks that create_block_mask has made of functions."""
        for name, function, fields in gallery.MASKS:
            if name in ("full", "packed window", "neighbourhood", "block_diffusion", "documents", "tiles_of_a_map"):
                heads = gallery.HEADS if name in gallery.NAME_HEADS else None
                block_mask = create_block_mask(function, None, heads, gallery.LENGTH, gallery.LENGTH, device="cpu",
                                               BLOCK_SIZE=64)
                m = fcpc.masks.from_block_mask(block_mask, fields=fields)
                self.assertEqual(sorted(m.fields), sorted(fields))
                want = create_mask(function, None, heads, gallery.LENGTH, gallery.LENGTH, device="cpu")[0].sum()
                self.assertEqual(a_program(m, documents=None).plan(m).summary()["pairs"], want, name)

    def test_several_sequences(self):
        """BlockMasks of batches, whose functions read tensors of each sequence and head, and are made of others."""
        torch.manual_seed(11)
        for queries, keys in ((150, 150), (100, 180)):
            document = torch.randint(0, 3, (2, keys)).sort().values
            near, bound = torch.randint(1, keys, (2, HEADS)), torch.randint(0, keys, (2, queries))
            function = or_masks(and_masks(gallery.causal, lambda b, h, q, k: document[b, q] == document[b, k]),
                                lambda b, h, q, k: (k - q).abs() < near[b, h] // 4,
                                lambda b, h, q, k: k < bound[b, q] // 2)
            block_mask = create_block_mask(function, 2, HEADS, queries, keys, device="cpu", BLOCK_SIZE=(64, 32))
            m = fcpc.masks.from_block_mask(block_mask)
            self.assertEqual(sorted(m.fields), ["bound", "document", "near"])
            plan = a_program(m).plan(m)
            want = create_mask(function, 2, HEADS, queries, keys, device="cpu")
            for b, h in itertools.product(range(2), range(HEADS)):
                self.assertTrue(torch.equal(seen(plan, queries, keys, b, h), want[b, h]))

    def test_the_next_batch(self):
        """Tensors that are fields may be others; what is constant in the program may not."""
        def batch_of(size, **more):
            document = torch.arange(128) // size

            def mask(b, h, q, k):
                return (q >= k) & (document[q] == document[k])
            block_mask = create_block_mask(mask, None, None, 128, 128, device="cpu", BLOCK_SIZE=64)
            return fcpc.masks.from_block_mask(block_mask, **more)
        prog = a_program(batch_of(10, fields=["document"]), documents=None)
        for size in (10, 64):
            want = a_program(batch_of(size)).plan(batch_of(size)).summary()["pairs"]
            self.assertEqual(prog.plan(batch_of(size, fields=["document"])).summary()["pairs"], want)
            (_, ahead), = prog.ahead([{"lengths": batch_of(size, fields=["document"])}])
            self.assertEqual(ahead.summary()["pairs"], want)
        prog = a_program(batch_of(10))
        prog.plan(batch_of(10))
        self.expect("E203", lambda: prog.plan(batch_of(64)), "ranges, tables or the text differ", "fields=[name]")
        prog = a_program(fcpc.masks.from_ranges([[0, 9]], [[0, 9]]))
        self.expect("E203", lambda: prog.plan(fcpc.masks.from_ranges([[0, 9]], [[0, 9]], 1)), "ranges, tables")
        self.expect("E203", lambda: a_program("causal").plan(fcpc.masks.from_ranges([[0, 9]], [[0, 9]], 1)), "ranges")

    def test_other_queries_than_keys(self):
        block_mask = create_block_mask(gallery.causal, None, None, 200, 330, device="cpu", BLOCK_SIZE=(64, 128))
        m = fcpc.masks.from_block_mask(block_mask)
        self.assertEqual((m.lengths, m.top_left), (fcpc.Lengths([330], [200]), True))
        plan = a_program(m).plan(m.lengths)
        self.assertTrue(torch.equal(seen(plan, 200, 330), torch.ones(200, 330).tril().bool()))
        self.expect("E206", lambda: a_program(m, align="bottom_right"), "needs top_left")
        self.expect("E209", lambda: a_program(None, layers=["causal", m]), 'say align="top_left"')
        self.assertEqual(a_program(None, layers=["causal", m], align="top_left").masks, 2)

    def test_contradictions(self):
        """A block that the function allows and no list has, and a block that is said to be whole and is not."""
        lists = random_lists(1, 1, 4, 4, 0.5)
        lists[0][0, 0, 2] = 1
        lists[1][0, 0, 2] = torch.tensor([1, 0, 2, 3])
        wrong = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=64, mask_mod=gallery.causal)
        self.expect("E203", lambda: fcpc.masks.from_block_mask(wrong), "contradict each other", "is in no list",
                    "lists=True")
        full = [torch.full((1, 1, 4), 4).int(), torch.arange(4).int().expand(1, 1, 4, 4)]
        none = [torch.zeros(1, 1, 4).int(), full[1]]
        wrong = BlockMask.from_kv_blocks(*none, *full, BLOCK_SIZE=64, mask_mod=gallery.causal)
        self.expect("E203", lambda: fcpc.masks.from_block_mask(wrong), "block [0, 0], queries 0 to 63 and keys from 0",
                    "allows 2080 of 4096 pairs", "in full_kv_indices")
        self.expect("E203", lambda: fcpc.masks.from_block_mask(gallery.causal), "a BlockMask is expected")
        lists[1][..., 0], lists[0][...] = 9, 1
        wrong = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=64, compute_q_blocks=False)
        self.expect("E203", lambda: fcpc.masks.from_block_mask(wrong), "block 9 of keys, and there are 4")
        self.expect("E202", lambda: a_program(wrong), "fcpc.masks.from_block_mask takes it")

    def test_lists_alone(self):
        """Without a function the lists decide, per head; two batches of one program."""
        torch.manual_seed(4)
        prog = None
        for (q_cell, k_cell), (queries, keys) in (((32, 64), (200, 200)), ((32, 64), (70, 256))):
            lists = random_lists(2, HEADS, -(-queries // q_cell), -(-keys // k_cell), 0.4, 0.1)
            block_mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=(q_cell, k_cell), seq_lengths=(queries, keys))
            m = fcpc.masks.from_block_mask(block_mask)
            prog = prog or a_program(m, align="top_left")
            plan = prog.plan(m)
            every = lambda b, h, q, k: q >= 0
            for b in range(2):
                for h in range(HEADS):
                    self.assertTrue(torch.equal(seen(plan, queries, keys, b, h), compiled(block_mask, every, b, h)))

    def test_lists_and_function(self):
        """lists=True is what flex_attention computes when it is compiled."""
        torch.manual_seed(5)
        bound = torch.randint(0, 200, (2, 200))

        def function(b, h, q, k):
            return (q >= k) | (k < bound[b, q])
        for heads in (1, HEADS):
            lists = random_lists(2, heads, 4, 4, 0.6, 0.2)
            block_mask = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=64, mask_mod=function, seq_lengths=(200, 200))
            m = fcpc.masks.from_block_mask(block_mask, lists=True)
            self.assertEqual(sorted(m.fields), ["blocks", "bound"])
            plan = a_program(m).plan(m)
            for b in range(2):
                for h in range(HEADS):
                    want = compiled(block_mask, function, b, h % heads)
                    self.assertTrue(torch.equal(seen(plan, 200, 200, b, h), want))

    def test_attention(self):
        """The values are those of attention under the mask."""
        torch.manual_seed(6)
        block_mask = BlockMask.from_kv_blocks(*random_lists(1, HEADS, 4, 4, 0.7), BLOCK_SIZE=64)
        m = fcpc.masks.from_block_mask(block_mask)
        prog = a_program(m)
        plan = prog.plan(m)
        inputs = [torch.randn(256, n, 16) for n in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
        allowed = torch.stack([compiled(block_mask, lambda b, h, q, k: q >= 0, 0, h) for h in range(HEADS)])
        Compared.assert_near(self, compute(Attention(prog).bind(plan), plan, *inputs), judge(allowed, *inputs),
                             NEAR["fp32"])
