"""test_rows.py: which rows a process takes from the packed batch, and gives back; and that nobody changes a plan."""
import os
import pickle
import random
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

import fcpc
from expecting import Expecting

IGNORE = -100
LAYOUTS = ("planned", "contiguous", "zigzag", "contiguous(group = 2)")


def planned(lengths, ranks=2, here=None, mask="causal", **more):
    return fcpc.program(mask, heads=1, head_dim=16, cluster=fcpc.detect(ranks=ranks), block=16, **more).plan(
        lengths, here=here)


def by_documents(lengths, values, ranks=2, here=None, **more):
    """A plan that is told where documents are: values of the field doc, one for each token."""
    return fcpc.program("causal and doc[q] == doc[k]", ["doc"], documents="doc", heads=1, head_dim=16,
                        cluster=fcpc.detect(ranks=ranks), block=16, **more).plan(lengths, {"doc": values}, here=here)


def each_place(lengths, values=None):
    """Of the packed batch: (the first row of a token's document, the row behind its last one)."""
    firsts, sequence = [], 0
    for length in lengths:
        for row in range(sequence, sequence + length):
            same = row > sequence and (values is None or values[row] == values[row - 1])
            firsts.append(firsts[-1] if same else row)
        sequence += length
    return [(first, first + firsts.count(first)) for first in firsts]


class Rows(Expecting):
    def assert_as_counted(self, plan, places, labels):
        """The plan's rows, positions and labels against those that a loop finds. Returns this process's labels."""
        rows = list(plan.rows())
        self.assertEqual(plan.positions().tolist(), [row - places[row][0] for row in rows])
        for shift in (-2, 1, 3):
            self.assertEqual(list(plan.rows(shift)), [
                row + shift if places[row][0] <= row + shift < places[row][1] else -1 for row in rows])
        mine, count = plan.take_labels(labels)
        self.assertEqual(mine.tolist(), [labels[row + 1].tolist() if row + 1 < places[row][1] else
                                         torch.full_like(labels[0], IGNORE).tolist() for row in rows])
        behind = [row for row in range(len(places)) if row > places[row][0]]
        self.assertEqual(count, int((labels[behind] != IGNORE).sum()))
        self.assertIs(type(count), int)
        return mine

    def test_against_a_loop(self):
        numbers = random.Random(5)
        for case in range(48):
            lengths = [numbers.choice([0, 1, 2, 7, 40]) for _ in range(numbers.randrange(1, 6))]
            ranks, shape, layout = numbers.choice([2, 4]), numbers.choice([(), (2,)]), LAYOUTS[case % 4]
            values = [] if case % 3 else None
            for _ in range(sum(lengths) if values is not None else 0):
                values.append(numbers.randrange(-1, 2) if not values or numbers.random() < 0.2 else values[-1])
            places = each_place(lengths, values)
            labels = torch.tensor([numbers.choice([IGNORE, 5, 6]) for _ in places for _ in range(2 if shape else 1)],
                                  dtype=torch.int64).view(len(places), *shape)

            def plan(here=None):
                if values is None:
                    return planned(lengths, ranks, here, layout=layout)
                return by_documents(lengths, values, ranks, here, layout=layout)
            with self.subTest(lengths=lengths, values=values, ranks=ranks, layout=layout):
                whole = plan()
                self.assertEqual(whole.documents, len(set(places)))
                all_labels = self.assert_as_counted(whole, places, labels)
                parts = [self.assert_as_counted(plan(range(r, r + 1)), places, labels) for r in range(ranks)]
                self.assertEqual(torch.cat(parts).tolist(), all_labels.tolist())
                self.assertEqual(int((all_labels != IGNORE).sum()), whole.take_labels(labels).count)

    def test_two_documents_in_a_sequence(self):
        """The same in a plan that is saved and loaded, and in one that is pickled."""
        plan, tokens = by_documents([8], [5] * 4 + [6] * 4, ranks=1), torch.arange(8)
        with tempfile.TemporaryDirectory() as folder:
            plan.save(os.path.join(folder, "a.plan"))
            loaded = fcpc.load(os.path.join(folder, "a.plan"))
        for p in (plan, loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(plan))):
            self.assertEqual((p.documents, p.sequences), (2, 1))
            self.assertEqual(p.positions().tolist(), [0, 1, 2, 3, 0, 1, 2, 3])
            self.assertEqual(p.take(tokens, shift=1, fill=-1).tolist(), [1, 2, 3, -1, 5, 6, 7, -1])
            labels, count = p.take_labels(tokens)
            self.assertEqual((labels.tolist(), count), ([1, 2, 3, IGNORE, 5, 6, 7, IGNORE], 6))

    def test_types_and_dimensions(self):
        """Tensors and arrays, numbers of all types; restore is the reverse of take."""
        plan = planned([30, 0, 20], layout="zigzag")
        rows, behind = numpy.asarray(plan.rows()), numpy.asarray(plan.rows(1))
        self.assertNotEqual(rows.tolist(), sorted(rows))
        made = numpy.arange(2 * 50 * 3).reshape(2, 50, 3) % 100
        for name in ("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
                     "float32", "float64", "complex64"):
            array = made.astype(name)
            for x in (array, torch.from_numpy(array)):
                for dim in (1, -2):
                    got = plan.take(x, dim=dim)
                    self.assertEqual((got.dtype, got.tolist()), (x.dtype, array[:, rows].tolist()))
                    self.assertEqual(plan.restore(got, dim=dim).tolist(), array.tolist())
                shifted = array[:, behind]
                shifted[:, behind < 0] = 1
                self.assertEqual(plan.take(x, shift=1, fill=1, dim=1).tolist(), shifted.tolist())
        for name in ("bfloat16", "float8_e4m3fn"):
            x = torch.arange(50.0).to(getattr(torch, name))
            self.assertEqual(plan.restore(plan.take(x)).float().tolist(), x.float().tolist())
            self.assertEqual(plan.take(x, shift=1, fill=1.0)[behind < 0].tolist(), [1, 1])
        x = torch.zeros(50, 2, device="meta")  # where there is no memory, so that nothing may be copied to the CPU
        self.assertEqual(plan.restore(plan.take(x, shift=1, fill=0)).device, x.device)
        leaf = torch.zeros(50, requires_grad=True)
        (plan.restore(plan.take(leaf, shift=1, fill=0.0)) * torch.arange(50)).sum().backward()
        self.assertEqual(leaf.grad.tolist(), [0, *range(29), 0, *range(30, 49)])

    def test_labels(self):
        plan, labels = planned([4, 0, 3]), numpy.array([1, 2, 3, IGNORE, 1, IGNORE, 3])
        want = [2, 3, IGNORE, IGNORE, IGNORE, 3, IGNORE]
        for x in (labels, labels.astype("i1"), torch.tensor(labels).short(), labels[None], torch.tensor(labels[None])):
            made = plan.take_labels(x, dim=x.ndim - 1)
            self.assertEqual((made.labels.ravel().tolist(), made.count, made.labels.dtype), (want, 3, x.dtype))
        self.assertEqual(plan.take_labels(numpy.arange(7, dtype="uint8"), ignore=255).count, 5)
        self.assertEqual(plan.take_labels(numpy.full(7, IGNORE)).count, 0)
        self.assertIsInstance(plan.take_labels(labels), fcpc.Labels)
        self.expect("E701", lambda: plan.take_labels(labels.astype("uint8")), "ignore is -100", "uint8")
        self.expect("E701", lambda: plan.take_labels(torch.zeros(7)), "whole numbers", "torch.float32")
        self.expect("E701", lambda: plan.take_labels(torch.zeros(1, 7).long()), "write dim=1")
        self.expect("E203", lambda: plan.take_labels(labels, ignore=0.5), "ignore is 0.5")

    def test_what_fill_must_be(self):
        plan, tokens = planned([5]), torch.arange(5)
        self.expect("E209", lambda: plan.take(tokens, shift=1), "name it: fill=-100")
        self.assertEqual(plan.take(tokens, shift=1, fill=0).tolist(), [1, 2, 3, 4, 0])
        self.assertEqual(plan.take(tokens, shift=-1, fill=torch.tensor(7)).tolist(), [7, 0, 1, 2, 3])
        for x, fill in ((tokens.byte(), -100), (tokens, 0.5), (tokens.numpy(), 1 << 63), (tokens, float("inf")),
                        (tokens.bool(), 2), (tokens, 1j), (tokens.half(), 1e9), (tokens.numpy().astype("f2"), 1e9),
                        (tokens.float(), 1j)):
            self.expect("E701", lambda x=x, fill=fill: plan.take(x, shift=1, fill=fill), f"fill is {fill}")
        self.assertEqual(plan.take(tokens.half(), shift=1, fill=-torch.inf)[-1], -torch.inf)
        self.expect("E203", lambda: plan.take(tokens, shift=1, fill=tokens), "a number is expected")

    def test_wrong_arguments(self):
        plan, part = planned([40, 10]), planned([40, 10], here=range(1), layout="contiguous")
        x = torch.zeros(50, 2)
        for call, code, *words in (
                (lambda: plan.take(None), "E701", "this is None"),
                (lambda: plan.take([0] * 50), "E701", "this is a list: torch.tensor(x) or"),
                (lambda: plan.take(x[None]), "E701", "dimension 0 has 1 rows, and the plan 50 tokens", "write dim=1"),
                (lambda: plan.take(torch.tensor([0, 40, 50])), "E701", "cu_seqlens"),
                (lambda: part.take(part.take(x)), "E701", f"{part.tokens} rows", "taken already?"),
                (lambda: part.restore(part.take(x)), "E203", "ranks [0] of 2", "group="),
                (lambda: plan.restore(x[:9]), "E701", "9 rows"),
                (lambda: plan.take(x, dim=2), "E701", "dim is 2", "[50, 2]"),
                (lambda: plan.take(torch.tensor(1)), "E701", "shape []"),
                (lambda: plan.take(x, dim="1"), "E203", "dim is '1'"),
                (lambda: plan.take(x, shift=0.5), "E203", "shift is 0.5"),
                (lambda: fcpc.load(3), "E203", "path of a plan's file", "this is 3"),
                (lambda: plan.save(None), "E203", "path of a plan's file"),
                (lambda: plan.restore(x, group="mpi"), "E706", "'mpi' is no group of torch.distributed"),
                (lambda: plan.positions("cuda"), "E701", "like is 'cuda'"),
                (lambda: plan.restore(x, group=object()), "E706", "init_process_group")):
            self.expect(code, call, *words)

    def test_positions_are_like(self):
        plan = planned([5])
        self.assertEqual(type(plan.positions()), torch.Tensor)
        self.assertEqual(type(plan.positions(numpy.zeros(1))), numpy.ndarray)
        for _ in range(2):
            made = plan.positions(torch.zeros(1))
            self.assertEqual(made.tolist(), [0, 1, 2, 3, 4])
            made += 1  # the caller's own

    def test_without_numpy_and_torch(self):
        """Everything but rows of arrays works, and these say what they need."""
        program = """
import sys
class Hidden:
    def find_spec(self, name, *_):
        if name in ("numpy", "torch"):
            raise ImportError(name)
sys.meta_path.insert(0, Hidden())
import fcpc
plan = fcpc.program("causal", heads=1, block=16).plan([5])
assert list(plan.rows(1)) == [1, 2, 3, 4, -1]
for call in (plan.positions, lambda: plan.take([1]), lambda: plan.take_labels([1]), lambda: plan.restore([1])):
    try:
        call()
    except ImportError as error:
        print(error)
"""
        made = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True)
        self.assertEqual(made.stdout, "take and positions need numpy or torch: pip install numpy\n" * 4, made.stderr)


class ReadOnly(unittest.TestCase):
    def test_attributes(self):
        plan = planned([40, 10])
        for name in ("tokens", "ranks", "program", "warnings", "rank_queries", "layers", "digest", "anything"):
            for change in (lambda: setattr(plan, name, 3), lambda: delattr(plan, name)):
                with self.assertRaisesRegex(AttributeError, f"plan.{name} is read-only"):
                    change()
        for name in ("rank_queries", "rank_keys", "warnings", "passes"):
            self.assertIsInstance(getattr(plan, name), tuple)

    def test_rows(self):
        plan = planned([40, 10])
        rows = plan.rows()
        with self.assertRaises(TypeError):
            rows[0] = 1
        with self.assertRaises(ValueError):
            numpy.asarray(rows)[0] = 1
        x = torch.arange(50)
        self.assertEqual(x[torch.tensor(rows)].tolist(), plan.take(x).tolist())
        self.assertEqual(len(rows), 50)

    def test_pickled(self):
        """It comes back as it was, and verified; also with a part of the ranks, with layers, and in another process."""
        prog = fcpc.program(heads=1, head_dim=16, cluster=fcpc.detect(), block=16,
                            layers=["causal", "q < k and k <= q"])
        plan = prog.plan([100, 20], here=range(1, 3))
        again = pickle.loads(pickle.dumps(plan))
        self.assertIs(again.program, prog)
        self.assertEqual([(p.digest, p.here, p.warnings) for p in again.layers],
                         [(p.digest, p.here, p.warnings) for p in plan.layers])
        self.assertEqual(list(again.rows(1)), list(plan.rows(1)))
        self.assertEqual((again.seconds, len(again.layers)), (0, 2))
        program = """
import pickle, sys
plan = pickle.load(sys.stdin.buffer)
assert plan.program is plan.layers[1].program and plan.here == range(1, 3)
print(*(p.digest for p in plan.layers), plan.program.plan([100, 20]).digest)
"""
        made = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(plan), capture_output=True)
        digests = [p.digest for p in plan.layers]
        self.assertEqual(made.stdout.decode().split(), [*digests, digests[0]], made.stderr)

    def test_pickled_without_a_program(self):
        plan = planned([100, 20])
        with tempfile.TemporaryDirectory() as folder:
            plan.save(os.path.join(folder, "a.plan"))
            loaded = fcpc.load(os.path.join(folder, "a.plan"), here=range(1))
        again = pickle.loads(pickle.dumps(loaded))
        self.assertEqual((again.digest, again.here, again.program), (plan.digest, range(1), None))
        data = bytearray(pickle.dumps(loaded))
        data[data.index(again._bytes()) + 500] ^= 1
        with self.assertRaisesRegex(fcpc.Error, "E50"):
            pickle.loads(data)
        with self.assertRaisesRegex(TypeError, "not pickled: make one there"):
            pickle.dumps(fcpc.Session(plan))

    def test_warnings_are_shown(self):
        plan = planned([40], mask="q < k and k <= q")
        self.assertTrue(plan.warnings)
        for line in plan.warnings:
            self.assertIn(f"\nwarning: {line}", repr(plan))
        self.assertIn("warning: program", plan._repr_html_())


if __name__ == "__main__":
    unittest.main()
