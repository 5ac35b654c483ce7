"""ranks.py: what each process of test_group.py does: it is one rank of two, under mpirun if there is one. It prints a line
for each thing that is so, and ends with an error if one is not."""
import os
import sys
import time

import torch
import torch.distributed as dist

import fcpc
from fcpc.torch import Attention
from test_example import DIM, HEADS, KV_HEADS, Model, loader, on_a_mask

MODEL = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "fp32", "block": 32}


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
    print(what, flush=True)


def training(group):
    """The loop of the README: losses and gradients, summed over the ranks, are those of the batch on one mask."""
    torch.manual_seed(0)
    model = Model()
    prog = fcpc.program(mask="causal and doc[q] == doc[k]", fields=["doc"], cluster=fcpc.detect(group), **MODEL)
    attn = Attention(prog, group=group)
    for batch, plan in prog.ahead(loader(3), depth=2, threads=2):
        x, pos = plan.take(batch.tokens), plan.positions()
        labels, keep = plan.take(batch.labels, shift=1), plan.take(batch.loss_mask, shift=1)
        loss = model(x, pos, attn.bind(plan)).loss(labels, keep) / plan.global_tokens
        loss.backward()
        got = [loss.detach(), *(p.grad.clone() for p in model.parameters())]
        for x in got:
            dist.all_reduce(x)
        model.zero_grad()
        want = on_a_mask(model, batch)
        want.backward()
        for a, b in zip(got, [want, *(p.grad for p in model.parameters())]):
            assert (a - b).abs().max() < 1e-5
        model.zero_grad()
    print("training", flush=True)


def errors(group):
    """Plans that differ are refused by both ranks; and when rank 1 ends, rank 0 hears of it before the time is over."""
    rank = dist.get_rank(group)
    prog = fcpc.program(mask="causal", cluster=fcpc.detect(group), **MODEL)
    try:
        Attention(prog, group=group).bind(prog.plan([300 + rank]))
        raise AssertionError("plans differ, and nobody says so")
    except fcpc.Error as error:
        assert error.code == "E706" and "another plan" in str(error), error
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
    print("errors", flush=True)


def main():
    store, rank, by_mpi = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "mpi"
    rank = fcpc.detect("mpi").here[0] if by_mpi else rank
    if by_mpi:
        values("mpi", "values by MPI")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    group = dist.group.WORLD
    values(group, "values")
    training(group)
    errors(group)
    os._exit(0)  # the group ends with its processes: rank 1 must not wait for rank 0, which waits for it to end


main()
