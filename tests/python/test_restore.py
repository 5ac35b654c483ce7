"""test_restore.py: rows of four processes in the packed batch's order, on each of them."""
import unittest

import numpy
import torch
import torch.distributed as dist

import fcpc
from agent import four_ranks

TYPES = ("bool", "uint8", "int16", "uint16", "int64", "float16", "float32", "float64", "complex64")
BATCHES = [40, 0, 7, 90], [5], [0, 3], [0]  # of [5] three ranks have nothing


def planned(lengths, group, here=None, layout="planned"):
    return fcpc.program("causal", heads=1, head_dim=16, cluster=fcpc.detect(group), block=16, layout=layout).plan(
        lengths, here=here)


def code_of(call):
    try:
        return call() and "nothing"
    except fcpc.Error as error:
        return f"{error.code} {error.message}"


def assert_comes_back(plan, x, group):
    """What each process has taken of x comes back whole, to the last bit, in memory of its own."""
    for dim in range(x.ndim):
        turned = x.swapaxes(0, dim)
        got = plan.restore(plan.take(turned, dim=dim), group=group, dim=dim - x.ndim)
        assert type(got) is type(x) and got.dtype == x.dtype and got.shape == turned.shape
        assert (got == turned).all(), (plan.here, dim)


def everything():
    dist.init_process_group("gloo")
    rank, group = dist.get_rank(), dist.group.WORLD
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]  # ranks of the plan are ranks of the group
    for number, lengths in enumerate(BATCHES):
        plan = planned(lengths, group, layout=["zigzag", "planned"][number % 2])
        made = numpy.random.default_rng(7).integers(0, 100, (sum(lengths), 2))
        for name in TYPES if number == 0 else ("int64",):
            assert_comes_back(plan, made.astype(name), group)
            assert_comes_back(plan, torch.from_numpy(made.astype(name)), group)
    plan = planned([64] * 4, group)
    for other in (torch.bfloat16, torch.float8_e4m3fn):
        assert_comes_back(plan, torch.arange(256.0).to(other), group)
    assert_comes_back(plan, torch.zeros(256, 0), group)
    pair = pairs[rank % 2]
    assert_comes_back(planned([40, 30 + rank % 2], pair), torch.arange(70 + rank % 2), pair)

    found = []
    for x, words in ((torch.zeros(plan.tokens, requires_grad=True), {}), (torch.zeros(plan.tokens - (rank == 2)), {}),
                     (torch.zeros(plan.tokens, dtype=[torch.float32, torch.int32][rank == 2]), {}),
                     (torch.zeros(plan.tokens, 3), {"group": pairs[rank % 2]}), ([1.0], {}),
                     (torch.zeros(plan.tokens), {"group": pairs[1 - rank % 2]})):
        found.append(code_of(lambda: plan.restore(x, **{"group": group, **words})))
    other = planned([60, 40], group) if rank == 1 else planned([61, 39], group)
    found.append(code_of(lambda: other.restore(torch.zeros(other.tokens), group=group)))
    wrong = planned([64] * 4, group, here=range(3 - rank, 4 - rank))
    found.append(code_of(lambda: wrong.restore(torch.zeros(wrong.tokens), group=group)))
    for no_group in (1, dist.device_mesh.init_device_mesh("cpu", (4,))):
        found.append(code_of(lambda: plan.restore(torch.zeros(plan.tokens), no_group)))
    with torch.no_grad():  # where nothing asks for gradients, none are lost
        plan.restore(torch.zeros(plan.tokens, requires_grad=True), group=group)
    dist.destroy_process_group()
    return found


class Restore(unittest.TestCase):
    def test_on_four_processes(self):
        found = four_ranks(everything)
        for rank, said in enumerate(found):
            for got, want in zip(said, [
                    "E701 restore: with a group, each process would count the gradient",
                    "E701 restore: dimension 0 has" if rank == 2 else "E706 restore: rank 2 has met an error",
                    "E706 restore: rank 0 restores torch.float32" if rank == 2 else
                    "E706 restore: rank 2 restores torch.int32, in other dimensions []; here they are torch.float32",
                    "E706 restore: the group has 2 processes, and the plan 4 ranks",
                    "E701 restore: a tensor of torch or an array of numpy is expected, and this is a list",
                    "E706 restore: this process is not in the group",
                    "E706 restore: rank 0 has another plan" if rank == 1 else "E706 restore: rank 1 has another plan",
                    f"E203 restore: this process is rank {rank} of the group, and here the plan has ranks [{3 - rank}]",
                    "E706 restore: 1 is no group of torch.distributed", "E706 restore: DeviceMesh"]):
                self.assertTrue(got.startswith(want), (rank, got, want))
            self.assertEqual(len(said), 10)


if __name__ == "__main__":
    unittest.main()
