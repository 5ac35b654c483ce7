"""test_program.py: how a program is made of its parts, what it warns of, and how it goes to another process."""
import contextlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
import weakref
from concurrent.futures import ProcessPoolExecutor

import numpy
import torch

import fcpc
from expecting import Expecting
from fcpc.torch import Attention

DOCUMENTS = [1, 1, 1, 2, 2, 3, 3, 3]
NO_PAIR = "q < k and k <= q"


@contextlib.contextmanager
def heard():
    """A list that gets what is warned meanwhile."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield said


class Documents(Expecting):
    def program(self, mask, **more):
        return fcpc.program(mask, head_dim=16, **more)

    def test_positions_and_labels_follow(self):
        prog = self.program("causal", documents="doc", cluster=fcpc.detect(ranks=2))
        self.assertEqual((prog.documents, prog.fields), ("doc", ("doc",)))
        plan = prog.plan([8], {"doc": DOCUMENTS})
        self.assertEqual(plan.documents, 3)
        self.assertEqual(plan.restore(plan.positions()).tolist(), [0, 1, 2, 0, 1, 0, 1, 2])
        labels = plan.take_labels(numpy.arange(8))
        self.assertEqual(plan.restore(labels.labels).tolist(), [1, 2, -100, 4, -100, 6, 7, -100])
        self.assertEqual(fcpc.parse(prog.text).documents, "doc")
        self.assertIsNone(fcpc.parse(prog.text.replace("documents = doc", "")).documents)

    def test_where_nothing_is_said(self):
        """A mask that separates documents is a reason to say which field does."""
        doc = torch.tensor(DOCUMENTS)
        for mask in ("causal and doc[q] == doc[k]", "doc[k] == doc[q]", "(causal and (doc[q] == doc[k]))",
                     "document(d = doc)", "causal_document(d = doc)",
                     "same and q - k < 9 where { same = doc[k] == doc[q] }",
                     lambda b, h, q, k: (q >= k) & (doc[q] == doc[k])):
            with heard() as said:
                self.program(mask, fields=["doc"])
            self.assertEqual([(w.category, w.filename) for w in said], [(fcpc.Warning, __file__)], mask)
            self.assertIn('write documents="doc"', str(said[0].message))
            with heard() as said:
                for documents in (None, "doc"):
                    self.program(mask, fields=["doc"], documents=documents)
            self.assertEqual(said, [])
        with heard() as said:
            fcpc.program(layers=["causal", ("causal and doc[q] == doc[k]", 3)], fields=["doc"])
        self.assertEqual(len(said), 1)
        with heard() as said:
            for mask in ("causal or doc[q] == doc[k]", "not (doc[q] == doc[k])", "causal and doc[q] == other[k]",
                         "causal and doc[q] + 1 == doc[k] + 1", "if doc[q] == doc[k] then causal else q == k"):
                self.program(mask, fields=["doc", "other"])
        self.assertEqual([w for w in said if "reads field" not in str(w.message)], [])

    def test_what_is_no_name(self):
        for wrong in (3, ["doc"], True):
            self.expect("E202", lambda: self.program("causal", documents=wrong), "documents: the name of a field")


class Hints(Expecting):
    def test_words_of_other_projects(self):
        """The compiler's hints, as arguments of fcpc.program."""
        for more, hint in [({"window": 64}, 'write mask="window(w = 64)"'),
                           ({"window_size": (128, 32)}, 'write mask="window_both(l = 128, r = 32)"'),
                           ({"window_size": (128, -1)}, 'write mask="q - k <= 128"'),
                           ({"window_size": (-1, 0)}, 'write mask="causal"'),
                           ({"window_size": (None, None)}, 'write mask="window_both(l = 64, r = 0)"'),
                           ({"softcap": 30}, 'write score="softcap(c = 30.0)"'),
                           ({"alibi": True}, 'write score="alibi"'), ({"num_heads": 12}, "write heads=12"),
                           ({"cu_seqlens": [0, 3, 5]}, "write prog.plan(fcpc.lengths([0, 3, 5]))"),
                           ({"cu_seqlens_k": [0, 3]}, "cu_seqlens_k=[0, 3]))"), ({"seqlens": [7, 3]}, "prog.plan([7, 3])"),
                           ({"batch_size": 4}, "write prog.plan([64] * 4)"),
                           ({"world_size": 4}, "write cluster=fcpc.detect(ranks=4)"),
                           ({"torch_dtype": torch.bfloat16}, 'write dtype="bf16"'),
                           ({"attn_bias": [1, 2]}, 'write tables={"bias": [0.5, 0.25, 0.0]}'),
                           ({"mask_mod": len}, "fcpc.program takes a mask_mod"), ({"d_model": 9}, "heads=32, head_dim=128"),
                           ({"doc_ids": [0, 1]}, 'fields=["doc"]'), ({"ring_degree": 2}, 'strategy="ring"'),
                           ({"block_size": 512}, "block=512"), ({"dropout_p": 0.1}, "there is no dropout"),
                           ({"headz": 3}, "did you mean heads=...?")]:
            with self.subTest(more):
                error = self.expect("E205", lambda: fcpc.program("causal", **more), "= hint: ", hint)
                self.assertEqual(str(error).count("did you mean"), "headz" in more, str(error))
                self.assertNotIn(" { ", str(error))
        self.expect("E200", lambda: fcpc.program("k < prefix[b]", fields=["prefix"]),
                    'fields={"prefix": "given(over = sequences)"}')
        self.expect("E203", lambda: fcpc.program("k <= q or k < prefix"),
                    'fields={"prefix": "given(over = sequences)"}')


class Warnings(Expecting):
    def test_of_a_program(self):
        text = "mask m = causal where { far = q - k < 9 }\nplan { mask = m }"
        for make in (fcpc.parse, fcpc.Program):
            with heard() as said:
                prog = make(text)
            self.assertEqual([(w.category, w.filename) for w in said], [(fcpc.Warning, __file__)])
            self.assertIn("'far' is defined and never used", str(said[0].message))
            self.assertEqual(prog.warnings, (str(said[0].message),))
            self.assertIn("warning: program:1: 'far'", repr(prog))
            self.assertIn("warning: program:1: &#x27;far", prog._repr_html_())

    def test_of_a_plan(self):
        with heard() as said:
            plan = fcpc.program(NO_PAIR, cluster=fcpc.detect(ranks=4)).plan([100])
        texts = [str(w.message) for w in said]
        self.assertEqual({(w.category, w.filename) for w in said}, {(fcpc.Warning, __file__)})
        self.assertTrue(any("allows no pair" in t for t in texts) and any("ranks" in t for t in texts), texts)
        self.assertEqual(plan.warnings, tuple(texts))
        self.assertIn("allows no pair", repr(plan))

    def test_ahead(self):
        """They come with the first plan that has them, in the thread that takes it, at its line."""
        prog = fcpc.program(NO_PAIR, cluster=fcpc.detect(ranks=4))
        with heard() as said:
            loop = prog.ahead([{"lengths": [100 + 4000 * i]} for i in range(2)], depth=1)
            _, first = next(loop)
            self.assertEqual(len(said), 2)
            plans = [first, *(plan for _, plan in loop)]
        self.assertEqual([str(w.message) for w in said], list(first.warnings))
        self.assertEqual({w.filename for w in said}, {__file__})
        self.assertGreater(len({plan.warnings for plan in plans}), 1)

    def test_shown_to_a_newcomer(self):
        """A process that has set nothing sees of both ways to a plan that ranks get no tokens, at its own lines."""
        text = ("import fcpc\n"
                "prog = fcpc.program('causal', cluster=fcpc.detect(ranks=4), block=4096)\n"
                "plan = prog.plan([3000])\n"
                "for batch, plan in prog.ahead([{'lengths': [300]}, {'lengths': [301]}]): pass\n")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
        said = subprocess.run([sys.executable, "-"], input=text, text=True, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).stdout
        self.assertRegex(said, r"^<stdin>:3: Warning: .*3 of 4 ranks get no tokens.*\n(.*\n)?"
                               r"<stdin>:4: Warning: .*3 of 4 ranks get no tokens")
        self.assertEqual(said.count("get no tokens"), 2, said)

    def test_as_errors(self):
        """Nothing is left half made: the next call works, and threads have ended."""
        prog = fcpc.program(NO_PAIR)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", category=fcpc.Warning)
            with self.assertRaisesRegex(fcpc.Warning, "allows no pair"):
                prog.plan([100])
            with self.assertRaisesRegex(fcpc.Warning, "allows no pair"):
                list(prog.ahead([{"lengths": [100]}] * 5))
            with self.assertRaisesRegex(fcpc.Warning, "never used"):
                fcpc.parse("mask m = causal where { far = q - k < 9 }\nplan { mask = m }")
        self.assertFalse([t for t in threading.enumerate() if t.name.startswith("fcpc-ahead")])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=fcpc.Warning)
            self.assertEqual(prog.plan([100]).tokens, 100)


class Arguments(Expecting):
    """A wrong argument is refused with what to write instead."""

    def refuse(self, code, words, mask="causal", **arguments):
        self.expect(code, lambda: fcpc.program(mask, **arguments), *words)

    def test_of_a_program(self):
        self.refuse("E202", ["cluster=fcpc.detect(ranks=4)"], cluster=4)
        self.refuse("E202", ["cluster=fcpc.detect(group)"], cluster="mpi")
        self.refuse("E202", ['text of the language, such as "causal", or a function', "this is 3"], mask=3)
        self.refuse("E202", ["a score is text"], score=3)
        self.refuse("E202", ["heads: a whole number is expected, this is '8'"], heads="8")
        self.refuse("E202", ["kv_heads: a whole number"], kv_heads=2.0)
        self.refuse("E202", ["head_dim: a whole number"], head_dim=True)
        self.refuse("E202", ["scale: a number is expected"], scale="1")
        self.refuse("E202", ["write fields=['doc']"], fields="doc")
        self.refuse("E202", ["names in a list", "[3]"], fields=[3])
        self.refuse("E202", ["{name: numbers} is expected"], tables=[1.0])
        self.refuse("E202", ["t[1] is 'x'"], tables={"t": [1, "x"]})
        self.refuse("E202", ["one or two dimensions"], tables={"t": numpy.zeros((2, 2, 2))})
        self.refuse("E202", ["sink: an object is no value of the language"], sink=object())
        self.refuse("E206", ["layers is empty"], mask=None, layers=[])
        self.refuse("E202", ["a list of masks is expected"], mask=None, layers="causal")
        self.refuse("E205", ["did you mean 'strategy'?"], strateggy="dcp")
        self.refuse("E205", ["did you mean heads=...?"], head=4)
        self.expect("E706", lambda: fcpc.detect(4), "fcpc.detect(ranks=4)")
        for wrong in (0, -1, "4", True):
            self.expect("E202", lambda: fcpc.detect(ranks=wrong), "ranks")
        self.expect("E202", lambda: fcpc.detect(ranks="4"), "ranks: a whole number is expected")
        self.expect("E202", lambda: fcpc.parse(3), "the text of a program")

    def test_dtypes(self):
        for name, of in {"bf16": (torch.bfloat16, "bfloat16"), "fp16": (torch.float16, numpy.float16, "float16"),
                         "fp32": (torch.float32, numpy.dtype("float32"), numpy.float32, "float32")}.items():
            for dtype in (name, *of):
                self.assertEqual(fcpc.program("causal", dtype=dtype).plan([10]).dtype, name)
        for wrong in (torch.float64, numpy.float64, "float64", float, torch.int32, 16):
            self.refuse("E206", ["bf16, fp16 or fp32"], dtype=wrong)

    def test_numbers_of_a_batch(self):
        prog = fcpc.program("causal", fields=["doc"])
        self.expect("E202", lambda: prog.plan(100), "this is 100: write [100]")
        self.expect("E202", lambda: prog.plan(torch.ones(2, 3, dtype=torch.int64)), "the shape of these is [2, 3]")
        self.expect("E202", lambda: prog.plan(numpy.ones((2, 3), dtype=int)), "the shape of these is [2, 3]")
        self.expect("E202", lambda: prog.plan(torch.ones(2)), "torch.float32")
        self.expect("E202", lambda: prog.plan([8], DOCUMENTS), '{"doc": values}')
        prog = fcpc.program("causal", documents="doc")
        self.expect("E320", lambda: prog.plan([8]), "values come with it, in plan(lengths, {\"doc\": values})")

    def test_cu_seqlens(self):
        """What FlashAttention takes in place of lengths may be lengths: a field decides, or there is a warning."""
        prog = fcpc.program("causal", fields=["doc"], head_dim=16)
        self.expect("E300", lambda: prog.plan(torch.tensor([0, 10, 25]), {"doc": [0] * 25}),
                    "lengths are cu_seqlens", "Lengths are the differences, [10, 15]")
        causal = fcpc.program("causal", head_dim=16)
        with heard() as said:
            plan = causal.plan([0, 10, 25])
        self.assertEqual([w.category for w in said], [fcpc.Warning])
        self.assertIn("Lengths are the differences of those, [10, 15]", str(said[0].message))
        self.expect("E701", lambda: plan.take(numpy.zeros(25)), "its lengths are cu_seqlens, it seems")
        with heard() as said:
            self.assertEqual(prog.plan([0, 10, 25], {"doc": [0] * 35}).global_tokens, 35)
            for lengths in ([0, 10], [0, 0, 10], [5, 10, 25], [0, 25, 10]):
                causal.plan(lengths)
        self.assertEqual(said, [])

    def test_read_only(self):
        prog = fcpc.program("causal")
        for name in ("fields", "masks", "documents", "other"):
            with self.assertRaisesRegex(AttributeError, f"program.{name} is read-only"):
                setattr(prog, name, 1)
        with self.assertRaisesRegex(AttributeError, "read-only"):
            del prog.fields
        self.assertIsInstance(prog.fields, tuple)
        self.assertIsInstance(prog.warnings, tuple)


def planned(prog, lengths):
    """In another process: the plan of a batch."""
    warnings.filterwarnings("ignore", category=fcpc.Warning)
    return prog.plan(lengths)


class Planning:
    """A collate_fn that holds a program."""

    def __init__(self, prog):
        self.prog = prog

    def __call__(self, batch):
        warnings.filterwarnings("ignore", category=fcpc.Warning)
        return self.prog.plan(batch)


class Pickles(Expecting):
    def captured(self):
        """A program of a function that has captured a field and a table."""
        doc, far = torch.tensor(DOCUMENTS), torch.tensor([3, 5])
        return fcpc.program(lambda b, h, q, k: (q >= k) & (q - k < far[h]) & (doc[q] == doc[k]), documents="doc", heads=2,
                            head_dim=16, dtype="fp32", cluster=fcpc.detect(ranks=2))

    def test_the_same_program(self):
        """Where the process has it, a pickle is that program; else one of the same parts, which is equal to it."""
        prog = self.captured()
        data, digest, text = pickle.dumps(prog), prog.plan([8]).digest, prog.text
        self.assertIs(pickle.loads(data), prog)
        plan = pickle.loads(pickle.dumps(prog.plan([8])))
        self.assertIs(plan.program, prog)
        kept, alive = prog._key, weakref.ref(prog)
        del prog, plan
        self.assertIsNone(alive())
        with heard() as said:
            again = pickle.loads(data)
        self.assertEqual((said, again._key, again.text, again.documents), ([], kept, text, "doc"))
        self.assertEqual(again.plan([8]).digest, digest)
        self.assertEqual(again, self.captured())
        self.assertNotEqual(again, fcpc.program("causal"))

    def test_what_a_model_has(self):
        prog = fcpc.program("causal")
        data = pickle.dumps(prog)
        prog.model = "a model"
        self.assertIsNone(pickle.loads(data).model)
        self.assertIs(pickle.loads(pickle.dumps(prog)), prog)
        with self.assertRaises(AttributeError):
            prog.model = "another"

    def test_files(self):
        """A program that has read a file is not made of another one; a pipe cannot be compared."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.lengths")
            text = f'batch {{ lengths = file("{path}") }}\nplan {{ mask = causal }}'
            with open(path, "w") as file:
                file.write("100")
            data = pickle.dumps(fcpc.parse(text))
            self.assertEqual(pickle.loads(data).plan().tokens, 100)
            with open(path, "w") as file:
                file.write("200")
            self.expect("E010", lambda: pickle.loads(data), "another file than the one that the program has read")
            os.mkfifo(path + "2")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                prog = fcpc.parse(f'mask m = slices(file("{path}2"))\nplan {{ mask = causal }}')
            self.expect("E010", lambda: pickle.dumps(prog), "not a regular file")

    def test_another_process(self):
        """A pool of processes that were not forked: it plans, and Attention takes the plans."""
        prog = self.captured()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            plan = pool.submit(planned, prog, [8]).result()
        self.assertEqual(plan.digest, prog.plan([8]).digest)
        self.assertIs(plan.program, prog)
        q, k, v = (torch.randn(8, 2, 16) for _ in range(3))
        self.assertEqual(Attention(prog).bind(plan)(q, k, v).shape, (8, 2, 16))

    def test_workers(self):
        """Workers of a DataLoader hold the program in collate_fn, and send plans."""
        prog = self.captured()
        for start in ("spawn", "forkserver"):
            loader = torch.utils.data.DataLoader([8, 8], batch_size=1, num_workers=1, collate_fn=Planning(prog),
                                                 multiprocessing_context=start)
            plans = list(loader)
            self.assertEqual([plan.digest for plan in plans], [prog.plan([8]).digest] * 2)
            q, k, v = (torch.randn(8, 2, 16) for _ in range(3))
            self.assertEqual(Attention(prog).bind(plans[0])(q, k, v).shape, (8, 2, 16))

    def test_what_is_not_pickled(self):
        prog = fcpc.program("causal", dtype="fp32", head_dim=16)
        attention, session = Attention(prog), fcpc.Session(prog.plan([8]))
        for x, name in ((attention, "an Attention"), (session, "a Session")):
            with self.assertRaisesRegex(TypeError, f"{name} belongs to its process and is not pickled"):
                pickle.dumps(x)


if __name__ == "__main__":
    sys.exit(unittest.main())
