"""test_shared.py: processes of one machine that share plans in a folder: one makes each, the others map it."""
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from contextlib import nullcontext

import fcpc
from fcpc.shared import Folder
from expecting import Expecting

BATCHES = [([300, 200 + i], list(range(500 + i))) for i in range(4)]
# A process: plans all batches ahead, keeps the plans, and says of each its digest and whether it was planned here.
WORKER = """
import sys
sys.path[:0] = [{here!r}]
from test_shared import BATCHES, a_program
prog = a_program(sys.argv[1])
plans = [plan for _, plan in prog.ahead(BATCHES, depth=3, threads=1, of=lambda b: (b[0], {{"doc": b[1]}}))]
print(*(f"{{p.digest}}:{{int(p.seconds > 0)}}:{{p.layers[1].digest}}" for p in plans), flush=True)
sys.stdin.read()
"""


def a_program(folder, **more):
    """A program of two masks, so that a plan has two files."""
    return fcpc.program(None, layers=["causal and q - k < 90 + doc[q] % 7", "causal"], fields=["doc"], heads=4,
                        head_dim=16, block=64, cluster=fcpc.Cluster(2, 2, "cpu", range(1, 2)), share=folder, **more)


def plan_of(prog, i=0):
    return prog.plan(BATCHES[i][0], {"doc": BATCHES[i][1]})


class Empty:
    """What is there of a plan for a folder."""

    def save(self, path):
        open(path, "w").close()


class Shared(Expecting):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "plans")

    def start(self, text):
        process = subprocess.Popen([sys.executable, "-c", text.format(here=os.path.dirname(__file__)), self.path],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        return process

    def test_one_plans_and_others_map(self):
        """Each plan is made once, whoever makes it; all have the same; and the last takes the files away."""
        workers = [self.start(WORKER) for _ in range(3)]
        said = [w.stdout.readline().split() for w in workers]
        alone = a_program("")
        want = [f"{p.digest}:{p.layers[1].digest}" for p in (plan_of(alone, i) for i in range(len(BATCHES)))]
        for i, right in enumerate(want):
            got = [s[i].split(":") for s in said]
            self.assertEqual({f"{digest}:{second}" for digest, _, second in got}, {right})
            self.assertEqual(sum(int(planned) for _, planned, _ in got), 1)
        self.assertEqual(len([n for n in os.listdir(self.path) if n.endswith(".plan")]), 2 * len(BATCHES))
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
        self.assertEqual(len(left), 3 * len(BATCHES))
        holder = self.start("""
import fcntl, os, struct, sys
fd = os.open(sys.argv[1] + "/" + {left!r}, os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
print("held", flush=True)
sys.stdin.read()
""".replace("{left!r}", repr(next(n for n in left if n.endswith(".lock")))))
        self.assertEqual(holder.stdout.readline(), "held\n")
        prog = a_program(self.path)  # removes what nobody holds
        self.assertEqual(len(os.listdir(self.path)), 3)
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
                _, use, _ = folder.plan(str(i), 1, lambda path: Empty(), lambda: [Empty()], nullcontext())
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
        plans = [folder.plan("a", 1, lambda path: Empty(), lambda: made.append(1) or [Empty()], nullcontext())
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
        plans = [folder.plan("a", 1, lambda path: Full(), lambda: [Full()], nullcontext()) for _ in range(2)]
        self.assertIn("a plan is not shared: E011: no room", plans[0][2])
        self.assertEqual([len(made) for made, *_ in plans], [1, 1])

    def test_files_that_are_wrong(self):
        """A file that is damaged, empty, of another kind or of another size is not used, and the plan says so."""
        prog, want = a_program(self.path), plan_of(a_program("")).digest
        kept = plan_of(prog)
        name = next(n for n in os.listdir(self.path) if n.count(".") == 1 and n.endswith(".plan"))
        path, right = os.path.join(self.path, name), None
        with open(path, "rb") as file:
            right = file.read()
        del kept
        for wrong in (b"", right[:-1], right[:999] + b"x" + right[1000:], right + b"x", b"no plan", None):
            if wrong is None:
                os.symlink("/dev/zero", path)
            else:
                with open(path, "wb") as file:
                    file.write(wrong)
            with open(path.replace(".plan", ".2.plan"), "wb") as file:
                file.write(right)
            plan = plan_of(prog)
            self.assertEqual((plan.digest, plan.seconds > 0), (want, True))
            self.assertIn("a shared plan is not used", " ".join(plan.warnings))
            self.assertEqual((plan_of(prog).seconds, plan_of(prog).warnings), (0, ()))
            del plan
        self.assertEqual(os.listdir(self.path), [])

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
        self.assertEqual(len(os.listdir(self.path)), 3)
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
