"""ranks.py: what each process of test_group.py does. It is one rank of two, under mpirun if there is one. It says each
thing that is so, as [thing], and ends with an error if one is not."""
import os
import sys
import time

import torch
import torch.distributed as dist

import fcpc
import train
from fcpc.torch import Attention
from test_example import DIM, HEADS, KV_HEADS, Example

MODEL = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "fp32", "block": 32}


def say(what):
    print(f"[{what}]", flush=True)  # in brackets, because mpirun may put another rank's word before the line's end


def values(group, what):
    """Outputs and gradients of this rank's tokens are those of the whole batch in one process."""
    prog = fcpc.program(mask="causal", cluster=fcpc.detect(group), **MODEL)
    alone = fcpc.program(mask="causal", cluster=fcpc.detect(ranks=2), **MODEL)
    attention, judge, held = Attention(prog, group=group, timeout=200), Attention(alone), []
    for step in range(4):
        plan, whole = (p.plan([200 - 10 * step, 100 + 10 * step]) for p in (prog, alone))
        assert len(plan.here) == 1 and plan.digest == whole.digest
        torch.manual_seed(step)
        q, k, v, d_o = (torch.randn(300, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS))
        mine = [plan.take(x).requires_grad_() for x in (q, k, v)]
        o = attention.bind(plan)(*mine)
        o.backward(plan.take(d_o))
        every = [x.requires_grad_() for x in (q, k, v)]
        want = whole.restore(judge.bind(whole)(*(whole.take(x) for x in every)))
        want.backward(d_o)
        for got, right in zip([o, *(x.grad for x in mine)], [want, *(x.grad for x in every)]):
            assert torch.equal(got.detach(), plan.take(right.detach())), f"step {step}"
        if step == plan.here[0]:
            held.append(o)  # this rank gives up the plan of another step than that rank
    say(what)


def learnt(group):
    """The gradients of sinks and tables, summed over the group, have the bits of one process."""
    def gradients(cluster, group):
        prog = fcpc.program(mask="causal", score="s + slope[h] * (k - q)", tables={"slope": [0.0] * HEADS}, sink=0.0,
                            cluster=cluster, **MODEL)
        plan = prog.plan([200, 100])
        torch.manual_seed(7)
        q, k, v, d_o = (torch.randn(300, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS))
        inputs = [torch.rand(HEADS).requires_grad_() for _ in range(2)]
        o = Attention(prog, group=group, timeout=200).bind(plan)(*map(plan.take, (q, k, v)), inputs[0],
                                                                 {"slope": inputs[1]})
        o.backward(plan.take(d_o))
        return [x.grad for x in inputs]
    mine, want = gradients(fcpc.detect(group), group), gradients(fcpc.detect(ranks=2), None)
    for x in mine:
        dist.all_reduce(x, group=group)
    assert all(torch.equal(a, b) and a.abs().min() > 0 for a, b in zip(mine, want)), (mine, want)
    say("learnt")


def merged(group):
    """Results with a width of their own, LSE with its gradient, and the largest logits, reduced over the group."""
    def results(cluster, group):
        prog = fcpc.program(mask="causal", cluster=cluster, value_dim=8, lse_gradient=True, **MODEL)
        plan = prog.plan([0, 200, 0, 100])
        torch.manual_seed(11)
        shapes = (HEADS, DIM), (KV_HEADS, DIM), (KV_HEADS, 8), (HEADS, 8), (HEADS,)
        q, k, v, d_o, d_lse = (torch.randn(300, *shape) for shape in shapes)
        inputs = [plan.take(x).requires_grad_() for x in (q, k, v)]
        o, lse, most = Attention(prog, group=group, timeout=200).bind(plan)(*inputs, return_lse=True, return_max=True)
        torch.autograd.backward([o, lse], [plan.take(d_o), plan.take(d_lse)])
        return plan, most, [o.detach(), lse.detach(), *(x.grad for x in inputs)]
    plan, most, mine = results(fcpc.detect(group), group)
    whole, want, every = results(fcpc.detect(ranks=2), None)
    for got, right in zip(mine, every):
        assert torch.equal(got, plan.take(whole.restore(right)))
    dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
    assert torch.equal(most, want), (most, want)
    say("merged")


def example():
    """examples/python/train.py over the group has the losses of one process; and with each rank as a group of its own,
    those of a process that has both batches."""
    from torch.distributed.device_mesh import init_device_mesh
    one = train.batches

    def both(count, _):
        for a, b in zip(one(count, 0), one(count, 1)):
            yield {"lengths": a["lengths"] + b["lengths"],
                   **{name: torch.cat([a[name], b[name]]) for name in ("tokens", "labels", "doc")}}
    got = [train.train(init_device_mesh("cpu", sizes, mesh_dim_names=train.AXES), steps=4) for sizes in ((1, 2), (2, 1))]
    want = [train.train(None, steps=4)]
    train.batches = both
    want.append(train.train(None, steps=4))
    assert torch.allclose(torch.tensor(got), torch.tensor(want), atol=1e-4) and want[0] != want[1], (got, want)
    say("example")


def errors(group):
    """Plans that differ are refused by both ranks; and when rank 1 ends, rank 0 hears of it before the time is over."""
    rank = dist.get_rank(group)
    prog = fcpc.program(mask="causal", cluster=fcpc.detect(group), **MODEL)
    try:
        Attention(prog, group=group).bind(prog.plan([300 + rank]))
        raise AssertionError("plans differ, and nobody says so")
    except fcpc.Error as error:
        assert error.code == "E706" and "rank 1 has another plan than rank 0" in str(error), error
    plan = prog.plan([300])
    q, k, v = (plan.take(torch.randn(300, heads, DIM)) for heads in (HEADS, KV_HEADS, KV_HEADS))
    attention = Attention(prog, group=group, timeout=200).bind(plan)
    begun = time.monotonic()
    if rank == 0:
        try:
            attention(q, k, v)
            raise AssertionError("a rank has ended, and nobody says so")
        except fcpc.Error as error:
            assert error.code == "E703" and "rank 1" in str(error), error
        assert time.monotonic() - begun < 200
    say("errors")


def main():
    store, rank, by_mpi = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "mpi"
    rank = fcpc.detect("mpi").here[0] if by_mpi else rank
    if by_mpi:
        values("mpi", "values by MPI")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    group = dist.group.WORLD
    values(group, "values")
    learnt(group)
    merged(group)
    Example().loop(group)
    say("training")
    example()
    errors(group)
    os._exit(0)  # the group ends with its processes: rank 1 must not wait for rank 0, which waits for it to end


if __name__ == "__main__":
    main()
