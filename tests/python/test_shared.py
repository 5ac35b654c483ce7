"""test_shared.py: processes of one machine that share plans in a folder: one makes each, and the others get what their
ranks need of it, or the whole plan."""
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from contextlib import nullcontext

import numpy

import fcpc
from fcpc.shared import Folder, whole_files
from expecting import Expecting

BATCHES = [([300, 200 + i], list(range(500 + i))) for i in range(4)]
# The files of a plan: for each form, whether it is whole, what rank 1 reads, and how many there are with the lock.
FORMS = [(False, ["common", "1.0", "1.1"], 6), (True, ["plan", "2.plan"], 3)]
# A process: plans all batches ahead, keeps the plans, and says of each its digest and whether it was planned here.
WORKER = """
import sys
sys.path[:0] = [{here!r}]
from test_shared import BATCHES, a_program
prog = a_program(sys.argv[1], int(sys.argv[2]))
plans = [plan for _, plan in prog.ahead(BATCHES, depth=3, threads=1, of=lambda b: (b[0], {{"doc": b[1]}}),
                                        whole=sys.argv[3] == "True")]
print(*(f"{{p.digest}}:{{int(p.seconds > 0)}}:{{p.layers[1].digest}}" for p in plans), flush=True)
sys.stdin.read()
"""


def a_program(folder, rank=1, **more):
    """A program of two masks, so that a plan has several files."""
    return fcpc.program(None, layers=["causal and q - k < 90 + doc[q] % 7", "causal"], fields=["doc"], heads=4,
                        head_dim=16, block=64, cluster=fcpc.Cluster(2, 2, "cpu", range(rank, rank + 1)), share=folder,
                        **more)


def plan_of(prog, i=0, whole=False):
    return prog.plan(BATCHES[i][0], {"doc": BATCHES[i][1]}, whole=whole)


class Empty:
    """What is there of a plan for a folder."""

    def save(self, path):
        open(path, "w").close()


EMPTY = whole_files(1, lambda path: Empty())


class Shared(Expecting):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "plans")

    def start(self, text, rank=1, whole=False):
        process = subprocess.Popen([sys.executable, "-c", text.format(here=os.path.dirname(__file__)), self.path,
                                    str(rank), str(whole)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        return process

    def test_one_plans_and_others_read(self):
        """Each plan is made once, whoever makes it; all have the same; and the last takes the files away."""
        for whole, files, count in FORMS:
            self.one_plans(whole, files[0], count)

    def one_plans(self, whole, file, count):
        workers = [self.start(WORKER, rank, whole) for rank in (0, 1, 1)]
        said = [w.stdout.readline().split() for w in workers]
        alone = a_program("")
        want = [f"{p.digest}:{p.layers[1].digest}" for p in (plan_of(alone, i) for i in range(len(BATCHES)))]
        for i, right in enumerate(want):
            got = [s[i].split(":") for s in said]
            self.assertEqual({f"{digest}:{second}" for digest, _, second in got}, {right})
            self.assertEqual(sum(int(planned) for _, planned, _ in got), 1)
        names = os.listdir(self.path)
        self.assertEqual(len(names), count * len(BATCHES))
        self.assertEqual(len([n for n in names if n.split(".", 1)[1] == file]), len(BATCHES))
        for w in workers:
            w.communicate()
        self.assertEqual(os.listdir(self.path), [])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o700)

    def test_a_killed_process(self):
        """Who plans and is killed leaves no lock, and nobody waits for it; what it has written goes with the next."""
        worker = self.start(WORKER)
        worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        left = os.listdir(self.path)
        self.assertEqual(len(left), 6 * len(BATCHES))
        holder = self.start("""
import fcntl, os, struct, sys
fd = os.open(sys.argv[1] + "/" + {left!r}, os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
print("held", flush=True)
sys.stdin.read()
""".replace("{left!r}", repr(next(n for n in left if n.endswith(".lock")))))
        self.assertEqual(holder.stdout.readline(), "held\n")
        prog = a_program(self.path)  # removes what nobody holds
        self.assertEqual(len(os.listdir(self.path)), 6)
        plans, waiting = [], threading.Thread(target=lambda: plans.extend(plan_of(prog, i) for i in range(4)))
        waiting.start()
        holder.send_signal(signal.SIGKILL)
        waiting.join(60)
        self.assertEqual([p.digest for p in plans], [plan_of(a_program(""), i).digest for i in range(4)])
        self.assertEqual(sum(p.seconds == 0 for p in plans), 1)  # the one that was written is whole, and is used

    def test_a_process_that_begins(self):
        """It takes the locks of all plans, to see whose files nobody uses. It gets none between planning and use."""
        folder, over = Folder(self.path), threading.Event()

        def begin():
            while not over.is_set():
                Folder(self.path)
        other = threading.Thread(target=begin)
        other.start()
        try:
            for i in range(4000):
                _, use, _ = folder.plan(str(i), EMPTY, lambda: [Empty()], nullcontext())
                self.assertTrue(os.path.exists(os.path.join(self.path, f"{i}.plan")), i)
                use.release()
        finally:
            over.set()
            other.join()

    def test_a_lock_that_nobody_plans_with(self):
        """A process that begins has the lock of a plan for a moment: who comes then makes the plan, and shares it."""
        folder, made = Folder(self.path), []
        lock, taken = folder._lock, iter([True])
        folder._lock = lambda *key: None if next(taken, False) else lock(*key)
        plans = [folder.plan("a", EMPTY, lambda: made.append(1) or [Empty()], nullcontext())
                 for _ in range(2)]
        self.assertEqual((len(made), os.path.exists(os.path.join(self.path, "a.plan"))), (1, True))
        for _, use, _ in plans:
            use.release()
        self.assertEqual(os.listdir(self.path), [])

    def test_without_room(self):
        """Who plans keeps what it cannot write; who waits for it plans for itself, and does not wait for ever."""
        class Full(Empty):
            def save(self, path):
                raise fcpc.Error("E011", "no room")
        folder = Folder(self.path)
        plans = [folder.plan("a", EMPTY, lambda: [Full()], nullcontext()) for _ in range(2)]
        self.assertIn("a plan is not shared: E011: no room", plans[0][2])
        self.assertEqual([len(made) for made, *_ in plans], [1, 1])

    def test_files_that_are_wrong(self):
        """A file that is damaged, empty, of another kind or of another size is not used, and the plan says so."""
        prog, want = a_program(self.path), plan_of(a_program("")).digest
        for whole, files, _ in FORMS:
            other = plan_of(prog, 1, whole)  # of which files are put in the place of the plan's
            stray = {name: self.read(name) for name in files}
            del other
            kept = plan_of(prog, 0, whole)
            right, key = {name: self.read(name) for name in files}, self.key()
            del kept
            for name in files:
                good = right[name]
                wrongs = [b"", good[:-1], good[:99] + bytes([good[99] ^ 1]) + good[100:], good + b"x", b"no plan", None]
                for wrong in [*wrongs, *([] if whole else [stray[name]])]:
                    for each, data in right.items():
                        with open(f"{self.path}/{key}.{each}", "wb") as file:
                            file.write(wrong if each == name and wrong is not None else data)
                    if wrong is None:
                        os.unlink(f"{self.path}/{key}.{name}")
                        os.symlink("/dev/zero", f"{self.path}/{key}.{name}")
                    plan = plan_of(prog, 0, whole)
                    self.assertEqual((plan.digest, plan.seconds > 0), (want, True), (name, wrong))
                    self.assertIn("a shared plan is not used", " ".join(plan.warnings))
                    again = plan_of(prog, 0, whole)
                    self.assertEqual((again.seconds, again.warnings), (0, ()))
                    del plan, again
        self.assertEqual(os.listdir(self.path), [])

    def key(self):
        """Of the one plan whose files are there."""
        key, = {name.split(".")[0] for name in os.listdir(self.path)}
        return key

    def read(self, name):
        with open(f"{self.path}/{self.key()}.{name}", "rb") as file:
            return file.read()

    def test_what_a_rank_gets(self):
        """It says what the whole plan says, whether it has made the plan or not, or that the whole plan is needed."""
        lengths, doc = [50] * 10, [i // 37 for i in range(500)]
        batch = numpy.arange(500) * 3
        labels = numpy.where(batch % 7 == 0, -100, batch)
        kept = []
        for rank in range(2):
            prog = a_program(self.path, rank, documents="doc", layout=["zigzag", "planned"][rank])
            alone = a_program("", rank, documents="doc", layout=["zigzag", "planned"][rank]).plan(lengths, {"doc": doc})
            kept.append([prog.plan(lengths, {"doc": doc}) for _ in range(2)])
            self.assertEqual([plan.seconds > 0 for plan in kept[rank]], [True, False])
            for got, want in [(x, y) for plan in kept[rank] for x, y in zip(plan.layers, alone.layers)]:
                self.assertEqual((got.whole, want.whole), (False, True))
                for name in ("digest", "homes", "ranks", "here", "tokens", "key_tokens", "rank_queries", "rank_keys",
                             "sequences", "documents", "global_tokens", "layout", "passes"):
                    self.assertEqual(getattr(got, name), getattr(want, name), name)
                self.assertEqual(list(got.rows()), list(want.rows()))
                self.assertEqual(list(got.positions(batch)), list(want.positions(batch)))
                self.assertEqual(list(got.take(batch, 1, -1)), list(want.take(batch, 1, -1)))
                (a, count), (b, right) = got.take_labels(labels), want.take_labels(labels)
                self.assertEqual((list(a), count), (list(b), right))
                self.assertEqual(got._all_queries(), want._all_queries())
                self.assertEqual(len(got.layers), len(want.layers))
                for call in (got.summary, got.simulate, got.text, got.svg, got.html, got.part, got.verify_pairs,
                             lambda: got.explain(9, 3), lambda: got.save("/dev/null"), lambda: pickle.dumps(got),
                             lambda: got.save_extracts("/dev/null")):
                    self.expect("E506", call, f"what rank {rank} needs", "whole=True")
                self.expect("E203", lambda: got.restore(batch[:got.tokens]), "With group=")
                self.assertIn(f"what rank {rank} of 4 needs", repr(got))
                self.assertIn(repr(got).split(";")[0], got._repr_html_())

    def test_folders_that_are_wrong(self):
        os.mkdir(self.path)
        os.chmod(self.path, 0o770)
        self.expect("E011", lambda: a_program(self.path), "this user alone")
        os.chmod(self.path, 0o700)
        os.symlink(self.path, self.path + "2")
        self.expect("E011", lambda: a_program(self.path + "2"), "this user alone")
        self.expect("E011", lambda: a_program("/dev/shm/nowhere/plans"), "No such file")

    def test_what_is_no_file_is_not_shared(self):
        """A program may name a pipe in a mask that nothing reads: it is never opened, which may wait for ever."""
        pipe = os.path.join(os.path.dirname(self.path), "pipe")
        os.mkfifo(pipe)
        for path in (pipe, "/dev/zero"):
            text = f'mask m = slices(file("{path}"))\nplan {{ mask = causal }}\ncluster {{ gpus = 2 }}'
            self.expect("E010", lambda: fcpc.Program(text, share=self.path), "not a regular file")

    def test_other_inputs_are_other_plans(self):
        """Whatever decides about a plan is in its name: lengths, fields, settings, and files that the program reads."""
        file = os.path.join(os.path.dirname(self.path), "a.lengths")
        keep, text = [], f'cluster {{ gpus = 2 }}\nbatch {{ lengths = file("{file}") }}\nplan {{ mask = causal }}'
        for lengths in ("100", "200", "200"):
            with open(file, "w") as out:
                out.write(lengths)
            keep.append(fcpc.parse(text, share=self.path).plan())
        prog = a_program(self.path)
        keep += [prog.plan([500], {"doc": [x] * 500}) for x in (1, 2)]
        keep += [prog.plan([250, 250], {"doc": [1] * 500}),
                 a_program(self.path, dtype="fp16").plan([500], {"doc": [1] * 500})]
        self.assertEqual([p.seconds > 0 for p in keep], [True, True, False, True, True, True, True])
        self.assertEqual(len({p.digest for p in keep}), 6)

    def test_errors_and_forks(self):
        """An error of planning comes to all; a forked child does not take the parent's files away."""
        prog = a_program(self.path)
        for _ in range(2):
            self.expect("E320", lambda: prog.plan([500], {"doc": [1]}))
        self.assertEqual(os.listdir(self.path), [])
        plan = plan_of(prog)
        child = os.fork()
        if child == 0:
            del plan
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(len(os.listdir(self.path)), 6)
        self.assertTrue(a_program(self.path) and plan_of(prog).seconds == 0)
        del plan
        self.assertEqual(os.listdir(self.path), [])

    def test_when_it_is_done(self):
        """By itself where each process is one of more than 1024 ranks, several on a machine."""
        def folder_of(*cluster, **more):
            return fcpc.program("causal", cluster=fcpc.Cluster(*cluster), **more).share
        mine = f"/dev/shm/fcpc-{os.geteuid()}"
        if not os.path.exists(mine):
            self.addCleanup(lambda: os.listdir(mine) or os.rmdir(mine))
        self.assertEqual(folder_of(129, 8, "h100", range(9, 10)), mine)
        for other in ((128, 8, "h100", range(9, 10)), (1032, 1, "h100", range(9, 10)), (129, 8, "h100")):
            self.assertIsNone(folder_of(*other))
        self.assertIsNone(folder_of(129, 8, "h100", range(9, 10), share=""))
        self.assertEqual(Folder(mine).path, mine)


if __name__ == "__main__":
    unittest.main()
