"""test_plan.py: programs, plans, and plans ahead, from Python."""
import copy
import ctypes
import gc
import os
import pickle
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy

import fcpc
from expecting import Expecting

DOCUMENTS = numpy.repeat(numpy.arange(10), 50)


def a_program(**more):
    return fcpc.program(**{"mask": "causal and doc[q] == doc[k]", "fields": ["doc"], "heads": 4, "kv_heads": 2,
                           "head_dim": 16, "cluster": fcpc.detect(), "block": 64, **more})


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Numbers(Expecting):
    def test_what_is_no_length(self):
        prog = fcpc.program(mask="causal", block=64)
        for lengths, code, words in [([100, -5], "E206", "lengths: element 1 is -5, a whole number from 0 on"),
                                     ([1.5], "E202", "lengths: element 0 is 1.5"),
                                     ([(100, 4096)], "E202", "have `queries` beside `lengths`"),
                                     ("100", "E202", "in a list, an array or a tensor are expected, this is '100'"),
                                     (100, "E202", "this is 100")]:
            with self.subTest(lengths=lengths):
                self.expect(code, lambda: prog.plan(lengths), words)

    def test_what_is_no_value_of_a_field(self):
        self.expect("E202", lambda: a_program().plan([2], {"doc": [0, 0.5]}), "field 'doc': element 1 is 0.5",
                    "a whole number of at most 64 bits")


class Extracts(Expecting):
    """What one rank needs of a plan, and nothing else."""

    def test_a_rank_reads_its_own(self):
        prog = a_program(cluster=fcpc.Cluster(gpus=4))
        plan, batch = prog.plan([300, 200], {"doc": DOCUMENTS}), numpy.arange(500)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.slices")
            root = plan.save_extracts(path)
            self.assertEqual(plan.save_extracts(path), root)
            for rank in range(4):
                here = range(rank, rank + 1)
                plan.save(os.path.join(folder, "a.plan"))
                want, got = fcpc.load(os.path.join(folder, "a.plan"), here), fcpc.load(path, here, root=root)
                self.assertEqual((got.digest, got.homes, got.tokens, got.sequences, got.global_tokens),
                                 (want.digest, want.homes, want.tokens, want.sequences, want.global_tokens))
                self.assertEqual(list(got.rows()), list(want.rows()))
                self.assertEqual(list(got.positions()), list(want.positions()))
                self.assertTrue((got.take(batch, shift=1, fill=-1) == want.take(batch, shift=1, fill=-1)).all())
                self.expect("E506", got.summary, "whole plan")
                self.expect("E506", lambda: got.save(path))
                self.expect("E506", lambda: got.save_extracts(path))
                self.expect("E506", lambda: got.take_labels(batch), "the whole plan is needed")
            self.expect("E505", lambda: fcpc.load(path, range(1), root="0" * 64), "not of the plan whose root was given")
            for wrong in "", root[:-1], root.upper() + "G", 7:
                self.expect("E203", lambda: fcpc.load(path, range(1), root=wrong), "64 hexadecimal digits")
            for here in None, range(2), range(0):
                self.expect("E203", lambda: fcpc.load(path, here, root=root), "range(RANK, RANK + 1)")
            self.expect("E203", lambda: fcpc.load(path, range(4, 5), root=root), "none of rank 4")


class WithoutTokens(Expecting):
    """Sequences of no tokens, without queries, and without keys."""

    def test_the_batch_agrees(self):
        lengths, batch = [0, 5, 0, 0, 130, 0], numpy.arange(135) + 1000
        documents = numpy.concatenate([numpy.arange(n) // 3 for n in lengths])
        for more in {}, {"layout": "zigzag"}, {"layout": "contiguous(group = 2)"}, {"strategy": "cad"}:
            plan = a_program(**more).plan(lengths, {"doc": documents})
            want = a_program(**more).plan([5, 130], {"doc": documents})
            self.assertEqual((plan.sequences, plan.global_tokens, plan.tokens), (6, 135, 135))
            self.assertEqual(list(plan.rows()), list(want.rows()))
            self.assertEqual(sorted(plan.rows()), list(range(135)))
            self.assertEqual(list(plan.positions()), list(want.positions()))
            self.assertTrue((plan.restore(plan.take(batch)) == batch).all())
            behind = plan.restore(plan.take(batch, shift=1, fill=-1))
            self.assertEqual(list(numpy.flatnonzero(behind == -1)), [4, 134])

    def test_queries_without_keys(self):
        prog = a_program(mask="causal", fields=[])
        plan = prog.plan([7, 0, 64, 0], queries=[0, 9, 3, 0])
        self.assertEqual((plan.global_tokens, plan.global_key_tokens, plan.sequences), (12, 71, 4))
        positions = plan.restore(numpy.asarray(plan.positions()))
        self.assertEqual(list(positions), [*range(-9, 0), 61, 62, 63])
        self.assertEqual(sorted(plan.rows(keys=True)), list(range(71)))
        self.assertEqual(plan.summary()["pairs"], 62 + 63 + 64)

    def test_nothing_at_all(self):
        none = numpy.zeros((0, 3))
        for lengths in [0], [0, 0, 0]:
            plan = a_program().plan(lengths, {"doc": []})
            self.assertEqual((plan.tokens, plan.sequences), (0, len(lengths)))
            self.assertEqual(plan.take(none).shape, (0, 3))
            self.assertEqual(plan.take(none, shift=1, fill=0).shape, (0, 3))
            self.assertEqual(plan.restore(none).shape, (0, 3))
            self.assertEqual(len(plan.positions()), 0)
            self.assertEqual(plan.simulate("h100")["forward"]["makespan_s"], 0)
            self.assertIn("1.000 of the bound", repr(plan.simulate("h100")))
            self.assertIn("<svg", plan.simulate("h100")._repr_html_())
            self.assertIn("0 tokens", repr(plan))
        self.expect("E701", lambda: plan.take(numpy.zeros((1, 3))), "1 rows", "0 tokens")


class Plans(unittest.TestCase):
    def test_what_a_plan_says(self):
        plan = a_program().plan([300, 200], {"doc": DOCUMENTS})
        self.assertEqual((plan.ranks, plan.heads, plan.kv_heads, plan.head_dim, plan.dtype), (4, 4, 2, 16, "bf16"))
        self.assertEqual((plan.global_tokens, plan.tokens, plan.sequences, plan.layout), (500, 500, 2, "planned"))
        self.assertEqual(sum(plan.rank_queries), 500)
        self.assertEqual(plan.summary()["pairs"], sum(n * (n + 1) // 2 for n in [50] * 10))
        self.assertIn("500 tokens in 2 sequences", repr(plan))
        self.assertIn("<svg", plan._repr_html_())
        self.assertIn("does not see", plan.explain(200, 149))
        self.assertGreater(plan.seconds, 0)
        self.assertEqual(plan.part((148, 152), (148, 152))["grid"],
                         [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]])

    def test_take_and_restore(self):
        plan = a_program().plan([300, 200], {"doc": DOCUMENTS})
        tokens = numpy.arange(500) * 7
        taken = plan.take(tokens)
        self.assertFalse((taken == tokens).all())
        self.assertTrue((plan.restore(taken) == tokens).all())
        self.assertTrue((taken == numpy.asarray(plan.rows()) * 7).all())
        inside = numpy.asarray(plan.rows()) % 300
        self.assertTrue((plan.positions() == numpy.where(numpy.asarray(plan.rows()) < 300, inside, inside)).all())
        following = plan.take(tokens, shift=1, fill=-100)
        last = numpy.isin(plan.rows(), (299, 499))
        self.assertTrue((following[~last] == taken[~last] + 7).all())
        self.assertTrue((following[last] == -100).all())
        self.assertEqual(last.sum(), 2)

    def test_a_part_of_the_ranks(self):
        prog = a_program()
        whole = prog.plan([300, 200], {"doc": DOCUMENTS})
        parts = [prog.plan([300, 200], {"doc": DOCUMENTS}, here=range(r, r + 1)) for r in range(4)]
        self.assertEqual(sum(p.tokens for p in parts), 500)
        self.assertEqual(numpy.concatenate([p.take(DOCUMENTS) for p in parts]).tolist(),
                         whole.take(DOCUMENTS).tolist())
        with self.assertRaises(fcpc.Error) as raised:
            parts[0].restore(parts[0].take(DOCUMENTS))
        self.assertEqual(raised.exception.code, "E203")

    def test_copies(self):
        """A copy has no object of C of its own: both would free it."""
        prog = fcpc.program(mask="causal", cluster=fcpc.detect(), block=64)
        plan = prog.plan([200])
        for x in (prog, plan):
            self.assertIs(copy.copy(x), x)
            self.assertIs(copy.deepcopy({"x": x})["x"], x)
        digest, other = plan.digest, copy.copy(plan)
        del other
        gc.collect()
        self.assertEqual(plan.digest, digest)

    def test_more_keys_than_queries(self):
        plan = fcpc.program("causal", heads=2, head_dim=16, cluster=fcpc.detect(ranks=2), block=64).plan(
            [200, 100], queries=[50, 100])
        self.assertEqual((plan.global_tokens, plan.global_key_tokens), (150, 300))
        self.assertEqual(sorted(plan.rows(keys=True)), list(range(300)))
        self.assertEqual(sorted(plan.positions().tolist()), sorted([*range(150, 200), *range(100)]))

    def test_layers(self):
        """A plan for each mask, with the same homes; what is wrong with the list is said by the language."""
        prog = a_program(mask=None, layers=["causal", ("window(w = 20)", 3)])
        self.assertIn("layers = [layer_1, layer_2 x 3]", prog.text.replace(" x 1", ""))
        batches = [{"lengths": [300, 200], "doc": DOCUMENTS}] * 3
        for _, plan in prog.ahead(batches):
            self.assertEqual(plan.layers[0], plan)
            self.assertEqual([p.summary()["pairs"] for p in plan.layers],
                             [45150 + 20100, sum(min(20, i + 1) for n in (300, 200) for i in range(n))])
            self.assertEqual(len({p.homes for p in plan.layers}), 1)
            self.assertEqual(plan.layers[1].layers, (plan.layers[1],))
        self.assertEqual(a_program(mask="causal").plan([500], {"doc": DOCUMENTS}).layers[1:], ())
        for layers, code in ([], "E206"), ([("causal", 0)], "E206"), (["nowhere"], "E200"):
            with self.assertRaises(fcpc.Error) as raised:
                a_program(mask=None, layers=layers)
            self.assertEqual(raised.exception.code, code)
        with self.assertRaises(fcpc.Error) as raised:
            a_program(layers=["causal"])
        self.assertIn("`mask` and `layers` are both set", str(raised.exception))

    def test_same_input_same_bytes(self):
        prog, given = a_program(), DOCUMENTS.tolist()
        with ThreadPoolExecutor(4) as pool:
            digests = list(pool.map(lambda _: prog.plan([300, 200], {"doc": given}).digest, range(16)))
        self.assertEqual(len(set(digests)), 1)
        for other in (DOCUMENTS, DOCUMENTS.astype("int16"), DOCUMENTS.repeat(2)[::2]):
            self.assertEqual(prog.plan(numpy.array([300, 200]), {"doc": other}).digest, digests[0])

    def test_paths(self):
        plan = fcpc.program(mask="causal", block=64).plan([100])
        with tempfile.TemporaryDirectory() as folder:
            for name in (os.path.join(folder, "a.plan"), os.fsencode(folder) + b"/\xff.plan"):
                plan.save(name)
                self.assertTrue(os.path.exists(name))
                self.assertEqual(fcpc.load(name).digest, plan.digest)
            for call in (plan.save, fcpc.load):
                with self.assertRaisesRegex(ValueError, "null byte"):
                    call(os.path.join(folder, "a.plan\0b"))

    def test_pairs_of_the_mask(self):
        plan = a_program().plan([300, 200], {"doc": DOCUMENTS})
        self.assertEqual(plan.verify_pairs(), plan.summary()["pairs"])
        with self.assertRaises(fcpc.Error) as caught:
            plan.verify_pairs(stop=ctypes.c_int(1))
        self.assertEqual(caught.exception.code, "E013")
        self.assertEqual(plan.verify_pairs(max_seconds=10), plan.summary()["pairs"])
        with self.assertRaisesRegex(fcpc.Error, "E405.*the limit of"):
            plan.verify_pairs(max_seconds=1e-9)

    def test_save_and_load(self):
        plan = a_program().plan([300, 200], {"doc": DOCUMENTS})
        with tempfile.TemporaryDirectory() as folder:
            plan.save(f"{folder}/a.plan")
            again = fcpc.load(f"{folder}/a.plan")
            self.assertEqual(again.digest, plan.digest)
            self.assertEqual(again.homes, plan.homes)
            bytes_ = bytearray(open(f"{folder}/a.plan", "rb").read())
            bytes_[-100] ^= 1
            open(f"{folder}/b.plan", "wb").write(bytes_)
            for path, code in ((f"{folder}/b.plan", "E503"), (f"{folder}/c.plan", "E010")):
                with self.assertRaises(fcpc.Error) as raised:
                    fcpc.load(path)
                self.assertEqual(raised.exception.code, code)

    def test_canonical_text(self):
        prog = a_program(strategy="dcp(divisions = 3)", sink=[0.5, -1.0, 1e-7, 2.0], score="softcap(c = 30.0)")
        self.assertEqual(fcpc.parse(prog.text).text, prog.text)
        self.assertEqual(a_program().plan([500], {"doc": DOCUMENTS}).digest,
                         fcpc.parse(a_program().text).plan([500], {"doc": DOCUMENTS}).digest)

    def test_a_profile_that_begins_with_a_digit(self):
        prog = fcpc.program("causal", cluster=fcpc.Cluster(1, 2, "910c"), block=64)
        self.assertIn('gpu = "910c"', prog.text)
        self.assertEqual(repr(prog.plan([128]).simulate()), repr(prog.plan([128]).simulate("910c")))

    def test_warnings(self):
        plan = fcpc.program("q < k and k <= q", cluster=fcpc.detect(ranks=1), block=64).plan([100])
        self.assertTrue(any("allows no pair" in w for w in plan.warnings), plan.warnings)


class Errors(Expecting):
    def test_of_the_program(self):
        e = self.expect("E200", lambda: fcpc.program("causl"), "did you mean 'causal'?", "^^^^^")
        self.assertEqual((e.file, e.line, e.column), ("program", 12, 18))
        self.expect("E400", lambda: fcpc.program("causal", heads=3, kv_heads=2))
        self.expect("E205", lambda: fcpc.program("causal", blck=64), "block")
        self.expect("E330", lambda: fcpc.program("causal", scale=float("nan")))
        self.expect("E202", lambda: fcpc.program("causal", sink=object()))
        again = pickle.loads(pickle.dumps(e))
        self.assertEqual((again.code, str(again), again.line), (e.code, str(e), e.line))

    def test_of_the_caller(self):
        prog = a_program()
        batch = [300, 200], {"doc": DOCUMENTS}
        for here in (range(3, 9), range(-1, 2), range(4, 5), range(0, 4, 2), range(0), [0]):
            self.expect("E203", lambda: prog.plan(*batch, here=here), "among ranks 0 to 3 is expected")
        self.expect("E320", lambda: prog.plan([5], {"doc": None}), "no values")
        self.expect("E202", lambda: fcpc.parse(prog.source, defines="cluster.nodes=4"), "in a list")
        plan = prog.plan(*batch)
        for shift in (1 << 64, 1 << 63, -(1 << 64)):  # as numbers of 64 bits these would be 0 and less than 0
            self.assertEqual(set(plan.rows(shift)), {-1})
        self.expect("E203", lambda: fcpc.Session(plan, threads=-1), "threads is -1")
        self.expect("E203", lambda: plan.explain(5, 3, width=-1), "width is larger than 1000")

    def test_of_the_batch(self):
        prog = a_program()
        self.expect("E209", lambda: prog.plan())
        self.expect("E320", lambda: prog.plan([300, 200], {"doc": DOCUMENTS[:5]}), "5 values", "500 tokens")
        self.expect("E320", lambda: prog.plan([300, 200]))
        self.expect("E320", lambda: prog.plan([500], {"doc": DOCUMENTS, "dok": DOCUMENTS}))
        self.expect("E206", lambda: prog.plan([-1], {"doc": DOCUMENTS}))
        self.expect("E202", lambda: prog.plan([1.5], {"doc": DOCUMENTS}))
        self.expect("E202", lambda: prog.plan([500], {"doc": DOCUMENTS * 0.5}))
        self.expect("E320", lambda: prog.plan([500], {"doc": []}), "0 values")
        self.expect("E300", lambda: fcpc.program("causal").plan([]))
        self.expect("E300", lambda: prog.plan([1, 2], {"doc": DOCUMENTS}, queries=[1]))
        plan = prog.plan([500], {"doc": DOCUMENTS})
        self.expect("E701", lambda: plan.take(DOCUMENTS[:5]), "5 rows", "500 tokens")
        self.expect("E206", lambda: plan.explain(500, 0))

    def test_stop(self):
        stop = ctypes.c_int(1)
        self.expect("E013", lambda: fcpc.program("(q * k) % 1009 < 13", block=4096).plan([65536], stop=stop))

    def test_limit(self):
        prog = fcpc.program("(q * k) % 1009 < 13", block=4096)
        self.expect("E405", lambda: prog.plan([1 << 20], max_seconds=60))
        self.expect("E405", lambda: list(prog.ahead([SimpleNamespace(lengths=[1 << 20])], max_seconds=60)))
        self.expect("E203", lambda: prog.plan([100], max_seconds=-1))
        prog.plan([100], max_seconds=1)


class Ahead(unittest.TestCase):
    def batches(self, count):
        for i in range(count):
            self.taken += 1
            yield SimpleNamespace(number=i, lengths=[100 + i, 400 - i], doc=DOCUMENTS)

    def setUp(self):
        self.taken = 0

    def test_order_and_depth(self):
        prog, seen = a_program(), []
        for batch, plan in prog.ahead(self.batches(12), depth=3, threads=2):
            self.assertLessEqual(self.taken - len(seen), 4)
            seen.append(batch.number)
            self.assertEqual(plan.digest, prog.plan(batch.lengths, {"doc": DOCUMENTS}).digest)
        self.assertEqual(seen, list(range(12)))

    def test_where_lengths_are(self):
        prog = a_program()
        mapped = [{"lengths": [500], "doc": DOCUMENTS}]
        self.assertEqual([p.sequences for _, p in prog.ahead(mapped)], [1])
        self.assertEqual([p.sequences for _, p in prog.ahead([3, 4], of=lambda n: ([100] * 5, {"doc": DOCUMENTS}))],
                         [5, 5])
        causal = fcpc.program("causal", block=64)
        self.assertEqual([p.sequences for _, p in causal.ahead([2, 3], of=lambda n: [64] * n)], [2, 3])
        with self.assertRaises(fcpc.Error) as raised:
            next(prog.ahead([{"lengths": [500]}]))
        self.assertEqual(raised.exception.code, "E209")

    def test_an_error_comes_in_its_turn(self):
        prog, seen = a_program(), []
        batches = [{"lengths": [500], "doc": DOCUMENTS[:n]} for n in (500, 500, 3, 500)]
        with self.assertRaises(fcpc.Error) as raised:
            for batch, _ in prog.ahead(batches, depth=3):
                seen.append(batch)
        self.assertEqual((raised.exception.code, len(seen)), ("E320", 2))

    def test_leaving_early_ends_the_threads(self):
        loop = a_program().ahead(self.batches(100), depth=5, threads=3)
        next(loop)
        loop.close()
        self.assertLessEqual(self.taken, 6)
        self.assertFalse([t for t in threading.enumerate() if t.name.startswith("fcpc-ahead")])


class Memory(unittest.TestCase):
    def test_many_plans_keep_it(self):
        """After a while, planning and looking at thousands of plans takes no more memory."""
        prog = a_program()
        rounds = 4000

        def some(count):
            for i in range(count):
                plan = prog.plan([200 + i % 7, 300 - i % 7], {"doc": DOCUMENTS})
                plan.take(DOCUMENTS, shift=1, fill=-1)
                try:
                    prog.plan([200], {"doc": DOCUMENTS})
                except fcpc.Error:
                    pass
            return resident()
        before = some(rounds // 5)
        self.assertLess(some(rounds) - before, 2 << 20)
