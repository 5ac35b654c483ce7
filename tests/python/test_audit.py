"""test_audit.py: audit.check against faulty implementations, which it must name, and against right ones, where it must
be silent."""
import os
import random
import time
import unittest

import torch
import torch.distributed as dist
from torch.distributed.nn import all_gather

import fcpc
import faulty
from agent import forked
from faulty import Problem
from fcpc import audit
from fcpc.audit.rows import order_of


def of_rows(kind, tokens, ranks=4, pads=0, drawn=None):
    """The tokens of each rank; pads: so many rows of padding behind them."""
    if kind == "random":
        order = list(range(tokens))
        drawn.shuffle(order)
        cuts = sorted(drawn.randint(0, tokens) for _ in range(ranks - 1))
        made = [torch.tensor(order[a:b], dtype=torch.int64) for a, b in zip([0, *cuts], [*cuts, tokens])]
    else:
        made = order_of(kind, tokens, ranks)
    return [torch.cat([x, torch.full((pads,), -1)]) for x in made]


def causal(q_seq, q, k_seq, k):
    return q >= k


def full(q_seq, q, k_seq, k):
    return (q >= k) | True


def window(width):
    return lambda q_seq, q, k_seq, k: (q >= k) & (q - k < width)


def program_of(text, p, **more):
    return fcpc.program(mask=text, heads=p.heads, kv_heads=p.kv_heads, head_dim=p.dim, dtype="fp32", sink=p.sink,
                        score=p.cap and f"softcap(c = {p.cap})", cluster=fcpc.detect(ranks=p.ranks), **more)


LENGTHS = [40, 24]
# (implementation, what the cause begins with, mask's text, mask, what the Problem has besides)
FAULTS = [
    (faulty.local_causal, "causal by local index of queries", "causal", causal, {"lengths": [64]}),
    (faulty.local_both, "causal by local index", "causal", causal, {"lengths": [64]}),
    (faulty.shifted, "shift by 1 rank", "causal", causal, {}),
    (faulty.no_documents, "document ignored", "causal", causal, {}),
    (faulty.no_window, "window lost", "window(w = 9)", window(9), {"window": 9}),
    (faulty.window_lost_between, "window lost between ranks", "window(w = 9)", window(9), {"window": 9}),
    (faulty.window_off_by_one, "off by one", "window(w = 9)", window(9), {"window": 9}),
    (faulty.only_own, "keys of other ranks not seen", "causal", causal, {}),
    (faulty.zigzag_as_contiguous, "rows taken for contiguous", "causal", causal,
     {"lengths": [64], "rows": "zigzag"}),
    (faulty.padding_seen, "padding seen", "causal", causal, {"pads": 2}),
    (faulty.heads_permuted, "KV head groups permuted: h % kv_heads", "causal", causal, {}),
    (faulty.not_merged, "softmax per rank not merged", "causal", causal, {}),
    (faulty.sink_each_step, "sink counted once per rank", "causal", causal, {"sink": 0.5}),
    (faulty.sink_ignored, "sink ignored", "causal", causal, {"sink": 0.5}),
    (faulty.scale_of_padded, "scale of padded head_dim", "causal", causal, {}),
    (faulty.top_left, "causal aligned to the wrong corner", "causal", causal, {"queries": [20, 24]}),
    (faulty.counted_twice, "gradient counted 4 times", "causal", causal, {}),
    (faulty.averaged, "gradient averaged instead of summed", "causal", causal, {}),
    (faulty.lost_between, "gradient of other ranks' queries lost", "causal", causal, {}),
    (faulty.lse_in_base_2, "LSE is in base 2", "causal", causal, {}),
    (faulty.no_documents, "document ignored", "causal", causal, {"cap": 20.0}),
    (faulty.window_lost_between, "window lost between ranks", "window(w = 9)", window(9),
     {"window": 9, "cap": 2.0, "rows": "zigzag"}),
]


def problem_of(mask, lengths=None, rows="contiguous", pads=0, queries=None, **more):
    lengths = LENGTHS if lengths is None else lengths
    asked = lengths if queries is None else queries
    return lengths, queries, Problem(lengths, of_rows(rows, sum(asked), pads=pads), mask, queries=queries,
                                     k_rows=of_rows(rows, sum(lengths), pads=pads), **more)


def random_case(drawn):
    """(Problem, program, lengths, queries, fields) of a random mask, batch, order and head counts."""
    ranks = drawn.choice([1, 2, 3, 4])
    lengths = [drawn.choice([0, 1, 2, 5, 8, 13, 17, 24]) for _ in range(drawn.randint(1, 3))]
    lengths[-1] = max(lengths[-1], 1)
    queries, fields, tokens = None, None, sum(lengths)
    width, first = drawn.randint(1, 9), drawn.randint(0, 6)
    doc = torch.tensor(sorted(drawn.randint(0, 3) for _ in range(tokens)))
    starts = torch.tensor([0, *lengths]).cumsum(0)

    def same_doc(q_seq, q, k_seq, k):
        return doc[(starts[q_seq] + q).clamp(max=tokens - 1)] == doc[(starts[k_seq] + k).clamp(max=tokens - 1)]
    text, mask = drawn.choice([
        ("causal", causal), ("full", full), (f"window(w = {width})", window(width)),
        ("causal and doc[q] == doc[k]", lambda *at: causal(*at) & same_doc(*at)), ("doc[q] == doc[k]", same_doc),
        (f"causal or k < {first}", lambda q_seq, q, k_seq, k: (q >= k) | (k < first)),
        (f"causal and (k < {first} or q - k < {width})",
         lambda q_seq, q, k_seq, k: (q >= k) & ((k < first) | (q - k < width)))])
    if "doc" in text:
        fields = {"doc": doc}
    elif drawn.random() < 0.3:
        queries = [drawn.randint(0, n) for n in lengths]
        queries[-1] = max(queries[-1], 1)
    heads, kv_heads = drawn.choice([(4, 2), (4, 4), (4, 1), (2, 2), (6, 3)])
    kind, pads = drawn.choice(["contiguous", "zigzag", "random"]), drawn.choice([0, 0, 1, 3])
    asked = tokens if queries is None else sum(queries)
    rows = of_rows(kind, asked, ranks, pads, drawn)
    k_rows = rows if queries is None else of_rows(kind, tokens, ranks, pads, drawn)
    p = Problem(lengths, rows, mask, heads, kv_heads, drawn.choice([8, 16]), drawn.choice([None, None, -0.5, 1.0]),
                drawn.choice([None, None, None, 3.0]), queries=queries, k_rows=k_rows)
    more = {"fields": ["doc"], "documents": "doc"} if fields else {}
    return p, program_of(text, p, **more), lengths, queries, fields


RIGHT = {"ring": lambda p, *of: faulty.ring(p), "gathered": lambda p, *of: faulty.gathered(p),
         "ulysses": lambda p, *of: faulty.ulysses(p),
         "fcpc": lambda p, prog, lengths, queries, fields: faulty.of_fcpc(prog, lengths, p, fields, queries)}


class Right(unittest.TestCase):
    def silent(self, name, count):
        drawn = random.Random(f"{name} {count}")
        for number in range(count):
            p, prog, lengths, queries, fields = of = random_case(drawn)
            attention = RIGHT[name](*of)
            report = audit.check(attention, prog, lengths, rows=p.rows, key_rows=p.k_rows, ranks=p.ranks,
                                 fields=fields, queries=queries, seed=number)
            getattr(attention, "close", lambda: None)()
            self.assertTrue(report.ok, f"{name} {number}: {prog.source} {lengths} {queries} {p.rows}\n{report}")

    def test_some_programs(self):
        for name in RIGHT:
            self.silent(name, 15)

    def test_many_programs(self):
        for name in RIGHT:
            begin = time.time()
            self.silent(name, int(os.environ.get("AUDIT_PROGRAMS", "40")))
            print(f"{name}: {time.time() - begin:.1f} s")


class Faulty(unittest.TestCase):
    def test_each_is_named(self):
        for make, cause, text, mask, more in FAULTS:
            lengths, queries, p = problem_of(mask, **more)
            with self.subTest(make.__name__, **more):
                report = audit.check(make(p), program_of(text, p), lengths, rows=p.rows, key_rows=p.k_rows,
                                     queries=queries)
                self.assertFalse(report.ok)
                self.assertTrue(any(said.startswith(cause) for said in report.causes[:2]), f"{make.__name__}\n{report}")

    def test_what_is_said(self):
        """The lines of a report, whole: places are of sequences, ranks are named, and there is one cause."""
        lengths, _, p = problem_of(window(9), window=9)
        report = audit.check(faulty.window_lost_between(p), program_of("window(w = 9)", p), lengths, rows=p.rows)
        self.assertEqual(str(report).splitlines()[0],
                         "query 16 of sequence 0 (rank 1) sees key 0 of sequence 0 (rank 0); the program does not "
                         "allow it (2128 of 16384)")
        self.assertEqual([x.kind for x in report.findings], ["sees", "weight"])
        self.assertEqual(report.causes, ["window lost between ranks: the mask is causal alone where query and key are "
                                         "on different ranks"])

    def test_an_unknown_fault_has_no_cause(self):
        """One pair too many fits no pattern; it is found and nothing is guessed. A NaN is a finding of its own."""
        lengths, _, p = problem_of(causal)

        def one_more(rank, of):
            allowed = p.allowed(p.rows[rank], p.k_rows[of])
            if (rank, of) == (1, 3):
                allowed[2, 5] = True
            return allowed
        report = audit.check(faulty.ring(p, one_more), program_of("causal", p), lengths, rows=p.rows)
        self.assertEqual((report.findings[0].kind, report.findings[0].count, report.causes), ("sees", 4, []))
        self.assertIn("query 18 of sequence 0 (rank 1) sees key 13 of sequence 1 (rank 3)", str(report))

        def broken(q, k, v):
            made = faulty.gathered(p)(q, k, v)
            made[2][0].data[3, 1] = float("nan")
            return made
        report = audit.check(broken, program_of("causal", p), lengths, rows=p.rows)
        self.assertEqual(report.findings[0].kind, "nan")
        self.assertIn("query 35 of sequence 0 (rank 2)", report.findings[0].message)

    def test_layers(self):
        """Layer 1 computes the mask of layer 0."""
        lengths, _, p = problem_of(causal)
        prog = fcpc.program(layers=["causal", "window(w = 9)"], heads=4, kv_heads=2, head_dim=16, dtype="fp32")
        self.assertTrue(audit.check(faulty.ring(p), prog, lengths, rows=p.rows).ok)
        report = audit.check(faulty.ring(p), prog, lengths, rows=p.rows, layer=1)
        self.assertTrue(any("this is the mask of layer 0" in x for x in report.causes), report)


    def test_other_types(self):
        """bfloat16 and float64: right ones are silent, and a window that is one too wide is found all the same."""
        for dtype in torch.bfloat16, torch.float16, torch.float64:
            lengths, _, p = problem_of(window(9), window=9)
            prog = program_of("window(w = 9)", p)

            def ring(make):
                return lambda q, k, v: [o.to(dtype) for o, _ in make([x.float() for x in q], [x.float() for x in k],
                                                                     [x.float() for x in v])]
            self.assertTrue(audit.check(ring(faulty.ring(p)), prog, lengths, rows=p.rows, dtype=dtype).ok)
            report = audit.check(ring(faulty.window_off_by_one(p)), prog, lengths, rows=p.rows, dtype=dtype)
            self.assertTrue(any("off by one" in cause for cause in report.causes), report)

    def test_no_gradient(self):
        lengths, _, p = problem_of(causal)
        right = faulty.ring(p)
        report = audit.check(lambda q, k, v: [o.detach() for o, _ in right(q, k, v)], program_of("causal", p), lengths,
                             rows=p.rows)
        self.assertEqual(report.causes, ["gradient lost: it is zero (dq, dk, dv)"])

    def test_no_tokens(self):
        lengths, _, p = problem_of(causal, lengths=[0, 0], pads=1)
        self.assertTrue(audit.check(faulty.ring(p), program_of("causal", p), lengths, rows=p.rows).ok)


class Groups(unittest.TestCase):
    def test_two_processes(self):
        """Each process has its own rows; both have the same report."""
        self.assertEqual(forked(2, self.rank), [7, 7])

    @staticmethod
    def rank(store, rank):
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        lengths = LENGTHS
        p = Problem(lengths, of_rows("zigzag", 64, 2), causal)
        prog = fcpc.program("causal", heads=4, kv_heads=2, head_dim=16, dtype="fp32")

        def attention(q, k, v, allowed=None):
            every = [torch.cat(all_gather(x.contiguous())) for x in (k, v)]
            return p.part(q, *every, p.allowed(p.rows[rank], torch.cat(p.rows)) if allowed is None else allowed)
        right = audit.check(attention, prog, lengths, dist.group.WORLD, rows="zigzag")
        own = torch.cat([torch.full((len(x),), r == rank) for r, x in enumerate(p.rows)])
        wrong = audit.check(lambda q, k, v: attention(q, k, v, p.allowed(p.rows[rank], torch.cat(p.rows)) & own)[0],
                            prog, lengths, dist.group.WORLD, rows="zigzag")
        every = [None, None]
        dist.all_gather_object(every, str(wrong))
        named = any(x.startswith("keys of other ranks not seen") for x in wrong.causes)
        if not right.ok or not named:
            print(right, wrong, sep="\n", flush=True)
        return 7 if right.ok and named and every[0] == every[1] else 1


class Refused(unittest.TestCase):
    def test_with_words(self):
        lengths, _, p = problem_of(causal)
        prog = program_of("causal", p)
        ring = faulty.ring(p)
        for code, said, make in (
                ("E203", 'rows="spiral" is not known', {"rows": "spiral"}),
                ("E203", "names token 0 4 times", {"rows": [torch.arange(16)] * 4}),
                ("E203", "tokens of 2 ranks, and there are 4", {"rows": p.rows[:2]}),
                ("E203", "layer 3 is not one of the program's 1 masks", {"layer": 3}),
                ("E209", "the program has no sinks", {"sink": [0.0] * 4}),
                ("E202", "dtype is torch.int8", {"dtype": torch.int8})):
            with self.assertRaises(fcpc.Error) as caught:
                audit.check(ring, prog, lengths, **{"rows": p.rows, **make})
            self.assertEqual(caught.exception.code, code)
            self.assertIn(said, str(caught.exception))
        for code, said, attention, batch in (
                ("E203", "a smaller batch shows the same faults", ring, [8192]),
                ("E701", "gave 3 outputs for 4 ranks", lambda q, k, v: q[1:], lengths),
                ("E701", "rank 0's o has shape [16, 64]", lambda q, k, v: [x.flatten(1) for x in q], lengths)):
            with self.assertRaises(fcpc.Error) as caught:
                audit.check(attention, prog, batch)
            self.assertEqual(caught.exception.code, code)
            self.assertIn(said, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
