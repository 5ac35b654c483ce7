"""test_group.py: attention over the processes of a group of torch.distributed, and of MPI, on the CPU (ranks.py)."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

import fcpc
from agent import forked
from fcpc.ranks import _new_id
from fcpc.torch import Attention

HERE = os.path.dirname(os.path.abspath(__file__))


class Groups(unittest.TestCase):
    def test_two_processes(self):
        by_mpi = shutil.which("mpirun") is not None
        with tempfile.TemporaryDirectory() as folder:
            worker = [sys.executable, os.path.join(HERE, "ranks.py"), os.path.join(folder, "store")]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]),
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "TMPDIR": folder}
            commands = [["mpirun", "--oversubscribe", "-n", "2", *worker, "0", "mpi"]] if by_mpi else \
                [[*worker, str(rank), "none"] for rank in range(2)]
            running = [subprocess.Popen(c, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                       for c in commands]
            said = [p.communicate(timeout=500) for p in running]
        out = "".join(o for o, _ in said)
        why = "".join(e for _, e in said)
        always = ["values", "learnt", "merged", "training", "example", "errors"]
        for what in always + by_mpi * ["values by MPI"]:
            self.assertEqual(out.count(f"[{what}]"), 2, f"{what}:\n{out}{why}")
        if not by_mpi:
            self.skipTest("MPI: mpirun is not there (make setup)")

    def test_a_killed_rank(self):
        """A rank is killed while another waits for it: that one hears of it, before its time is over."""
        self.assertEqual(forked(2, self.rank), [7, -signal.SIGKILL])

    def rank(self, store, rank):
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        prog = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", block=32,
                            cluster=fcpc.detect(dist.group.WORLD))
        plan = prog.plan([300])
        attention = Attention(prog, group=dist.group.WORLD, timeout=200).bind(plan)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            attention(*(torch.zeros(plan.tokens, 2, 16) for _ in range(3)))
        except fcpc.Error as error:
            return 7 if error.code == "E703" and "rank 1 has failed, or its process has ended" in str(error) else 1
        return 2

    def test_the_port_is_kept(self):
        """Nobody else gets the port of an id before the session listens there."""
        text, kept = _new_id()
        host, port, _ = text.split(":")
        with kept, socket.socket() as other, socket.socket() as own:
            with self.assertRaises(OSError):
                other.bind((host, int(port)))
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a session does
            own.bind((host, int(port)))
            own.listen()
            with socket.create_connection((host, int(port)), timeout=10):
                self.assertTrue(own.accept())

    def test_what_is_no_group(self):
        for name in ("ring", ""):
            with self.assertRaises(fcpc.Error) as caught:
                fcpc.detect(name)
            self.assertEqual(caught.exception.code, "E706")
        if "OMPI_COMM_WORLD_RANK" not in os.environ:
            with self.assertRaisesRegex(fcpc.Error, "start it with mpirun"):
                fcpc.detect("mpi")


if __name__ == "__main__":
    unittest.main()
