"""test_turns.py: nodes that plan in turn, and hand each other the plans, or what each rank needs of them: four ranks as
one, two or four nodes."""
import os
import signal
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

import fcpc
from agent import forked, four_ranks
from fcpc.torch import Attention
from fcpc.turns import Turns

BATCHES = [([300, 200 + i], list(range(500 + i))) for i in range(9)]


def a_program(nodes, rank, share=""):
    """A program of two masks, so that a plan has two files."""
    return fcpc.program(None, layers=["causal and q - k < 90 + doc[q] % 7", "causal"], fields=["doc"], heads=2,
                        head_dim=16, dtype="fp32", block=64, share=share,
                        cluster=fcpc.Cluster(nodes, 4 // nodes, "cpu", range(rank, rank + 1)))


def ahead(prog, batches, depth=3, **more):
    return prog.ahead(batches, depth, threads=1, of=lambda b: (b[0], {"doc": b[1]}), group=dist.group.WORLD, **more)


def loops(shares):
    """For each way to divide the ranks: [(digest, digest of the second mask, planned here)] of all batches. And how
    many keys are left in the store."""
    dist.init_process_group("gloo")
    store, rank, said = dist.distributed_c10d._get_default_store(), dist.get_rank(), []
    for nodes, share, whole in shares:
        prog = a_program(nodes, rank, share)
        attention, found = Attention(prog, group=dist.group.WORLD, timeout=200), []
        dist.barrier()
        before = store.num_keys()
        dist.barrier()
        for _, plan in ahead(prog, BATCHES, whole=whole):
            assert plan.whole == whole
            found.append((plan.digest, plan.layers[1].digest, plan.seconds > 0))
        dist.barrier()
        left = store.num_keys() - before
        attention.bind(plan)(*(torch.zeros(plan.tokens, 2, 16) for _ in range(3)))
        said.append((found, left))
    try:
        three = fcpc.program("causal", cluster=fcpc.Cluster(1, 3, "cpu", range(1)))
        next(three.ahead(BATCHES, group=dist.group.WORLD))
    except fcpc.Error as error:
        said.append(str(error))
    dist.destroy_process_group()
    return said


def tensors(tokens):
    draw = torch.Generator().manual_seed(7)
    return [torch.randn(tokens, 2, 16, generator=draw) for _ in range(4)]


def computed(attention, plan, group=None):
    """o, dq, dk and dv of both masks, of the whole batch, and the count of labels."""
    found = []
    for number in range(2):
        q, k, v, d_o = (plan.take(x).requires_grad_() for x in tensors(plan.global_tokens))
        o = attention.bind(plan, number)(q, k, v)
        o.backward(d_o.detach())
        found += [plan.restore(x.detach(), group=group).numpy().tobytes() for x in (o, q.grad, k.grad, v.grad)]
    return [*found, plan.take_labels(torch.arange(plan.global_tokens)).count]


def results(_):
    """What four ranks compute by what each needs of a plan, by whole plans, and by both."""
    dist.init_process_group("gloo")
    rank, group, said = dist.get_rank(), dist.group.WORLD, []
    prog = a_program(2, rank)
    attention = Attention(prog, group=group, threads=1)
    (_, part), = ahead(prog, BATCHES[:1])
    (_, whole), = ahead(prog, BATCHES[:1], whole=True)
    for plan in part, whole, whole if rank % 2 else part:
        said.append(computed(attention, plan, group))
    dist.destroy_process_group()
    return said


def is_slow(_):
    """As `fails`: rank 1 takes longer to plan its first batch than the others' time limit."""
    give = Turns.give
    Turns.give = lambda self, batch, what, make, *more: give(
        self, batch, what, lambda: (time.sleep(2.5 if batch == 1 else 0), make())[1], *more)
    try:
        return fails("slow", timeout=1)
    finally:
        Turns.give = give


def fails(case, **more):
    """(batches that came, code, message) of a loop that an error ends."""
    dist.init_process_group("gloo")
    rank, batches, came = dist.get_rank(), list(BATCHES), 0
    if case == "a wrong batch":
        batches[2] = ([300, 202], [1])
    if case == "not whole" and rank != 1:
        more["whole"] = True
    if case == "another batch" and rank == 1:
        batches[1] = ([300, 201], [0] * 501)
    try:
        for _ in ahead(a_program(4, rank), batches, depth=1, **more):
            came += 1
            if case == "left early" and rank == 2:
                break
        error = None
    except fcpc.Error as caught:
        error = caught
    dist.barrier()  # the store is there until all have what they wait for
    dist.destroy_process_group()
    return came, error and error.code, str(error)


class InTurn(unittest.TestCase):
    def test_each_batch_is_planned_once(self):
        """By the first rank of the node whose turn it is. All have its plan, bit for bit, and no key stays."""
        want = [(p.digest, p.layers[1].digest) for p in
                (a_program(2, 0).plan(lengths, {"doc": doc}) for lengths, doc in BATCHES)]
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            plans = os.path.join(folder, "plans")
            shares = [(1, "", False), (2, "", False), (2, "", True), (4, "", False), (2, plans, False),
                      (2, plans, True)]
            ranks = four_ranks(loops, shares)
            self.assertEqual(os.listdir(plans), [])
        self.assertEqual([said[len(shares):] for said in ranks],
                         4 * [["error[E706]: ahead: 4 processes do not make nodes of 3"]])
        for i, (nodes, *_) in enumerate(shares):
            for rank, said in enumerate(ranks):
                found, left = said[i]
                self.assertEqual(left, 0)
                self.assertEqual([planned for *_, planned in found],
                                 [n % nodes * (4 // nodes) == rank for n in range(len(BATCHES))])
                if nodes == 2:
                    self.assertEqual([tuple(digests) for *digests, _ in found], want)
                self.assertEqual(found, [(*ranks[0][i][0][n][:2], planned) for n, (*_, planned) in enumerate(found)])

    def test_results(self):
        """Bits are those of one process with the whole plan. Ranks that have it compute with ranks that have not."""
        prog = fcpc.Program(a_program(2, 0).source)  # all ranks in this process
        lengths, doc = BATCHES[0]
        want = computed(Attention(prog, threads=1), prog.plan(lengths, {"doc": doc}))
        for said in four_ranks(results, None):
            self.assertEqual([got == want for got in said], [True] * 3)

    def test_an_error_comes_to_all(self):
        for came, code, message in four_ranks(fails, "a wrong batch"):
            self.assertEqual((came, code), (2, "E320"), message)

    def test_another_batch(self):
        """Rank 1 plans a batch that the others do not have."""
        said = four_ranks(fails, "another batch")
        for rank in 0, 2, 3:
            came, code, message = said[rank]
            self.assertEqual((came, code), (1, "E706"), message)
            self.assertIn("not the batch of rank 1", message)

    def test_another_form(self):
        """Rank 1 wants what it needs alone, and the others the whole plan."""
        came, code, message = four_ranks(fails, "not whole")[1]
        self.assertEqual((came, code), (0, "E706"), message)
        self.assertIn("the same `whole`", message)

    def test_a_rank_that_leaves(self):
        said = four_ranks(fails, "left early")
        self.assertEqual(said[2][:2], (1, None))
        for rank in 0, 1, 3:
            came, code, message = said[rank]
            self.assertEqual((came, code), (2, "E703"), message)
            self.assertIn("rank 2 plans batch 2 and has left its loop", message)

    def test_a_rank_that_is_slow(self):
        """It says that it is planning, and the others wait for longer than the time limit."""
        for came, code, message in four_ranks(is_slow, None):
            self.assertEqual((came, code), (len(BATCHES), None), message)

    def test_a_killed_rank(self):
        """Who waits for its plan gets an error when the time is over."""
        self.assertEqual(forked(4, self.rank), [7, -signal.SIGKILL, 7, 7])

    def rank(self, store, rank):
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=4)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            list(ahead(a_program(4, rank), BATCHES, timeout=1))
        except fcpc.Error as error:
            return 7 if error.code == "E703" and "rank 1 plans batch 1 and has not sent it" in str(error) else 1
        return 2

    def test_what_is_no_group(self):
        with self.assertRaises(fcpc.Error) as caught:
            next(a_program(4, 0).ahead(BATCHES, of=lambda b: b, group="mpi"))
        self.assertEqual(caught.exception.code, "E706")


if __name__ == "__main__":
    unittest.main()
