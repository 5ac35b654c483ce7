"""phases_memory.py: what a rank holds at once for an attention layer: by Ulysses, and by UPipe in two ways.

    python3 examples/python/phases_memory.py

A layer has an input x, its projections to Q, K and V, attention, and the projection of O back to the hidden size. 64
heads are computed on 8 ranks, for all tokens by all ranks in this process. What torch allocates is counted by its
profiler, and divided by the ranks; the memory of the session's largest rank is added. So copies of x, y and their
gradients are in it, weights and their gradients are not.

The unit is x of a rank, S / C of the hidden size in the paper of UPipe. Its tables 2 and 6 are the last two columns:
for Ulysses with offloaded activations, and for UPipe. They count Q, K, V and O once, and what is exchanged once more.
A session also has blocks at home and gradients in fp32, so it takes more. It takes some minutes, which most processors
need for products in bf16.
"""
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import fcpc
from fcpc.torch import Attention
from fcpc.upipe import PhasedAttention

HEADS, DIM, RANKS, TOKENS, TOGETHER = 64, 16, 8, 2048, 8
HIDDEN = HEADS * DIM
WAYS = "ulysses", "upipe, Q K V given", "upipe, by phase"


def peak_of(function):
    """The largest number of bytes that torch holds at once, of what the function allocates."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as made:
        function()
    held = most = 0
    for event in made.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def layer(way, kv_heads, passes, tokens=TOKENS):
    """(a function of x and the weights that gives y, the bytes of its session at the largest rank)"""
    prog = fcpc.program(mask="window(w = 64)", heads=HEADS, kv_heads=kv_heads, head_dim=DIM, passes=passes,
                        strategy="ulysses" if way == "ulysses" else f"upipe(heads = {TOGETHER})",
                        cluster=fcpc.detect(ranks=RANKS))
    if way == "upipe, by phase":
        attn = PhasedAttention(prog)
        plan = attn.program.plan([tokens])
        return attn.bind(plan), plan.summary()["memory_peak_bytes"]
    plan = prog.plan([tokens])
    call = Attention(prog).bind(plan)

    def whole(x, wq, wk, wv, wo):
        q, k, v = (F.linear(x, w).unflatten(1, (-1, DIM)) for w in (wq, wk, wv))
        o = call(q, k, v)
        del q, k, v
        return F.linear(o.flatten(1), wo)

    def kept(*tensors):  # x alone, as UPipe's authors train
        return checkpoint(whole, *tensors, use_reentrant=False) if torch.is_grad_enabled() else whole(*tensors)
    return kept, plan.summary()["memory_peak_bytes"]


def measure(way, kv_heads, backward, tokens=TOKENS):
    """The peak of a rank, in x of a rank."""
    call, session = layer(way, kv_heads, "forward, backward" if backward else "forward", tokens)
    sizes = HEADS * DIM, kv_heads * DIM, kv_heads * DIM
    weights = [*(torch.zeros(size, HIDDEN, dtype=torch.bfloat16) for size in sizes),
               torch.zeros(HIDDEN, HEADS * DIM, dtype=torch.bfloat16)]

    def step():
        x = torch.ones(tokens, HIDDEN, dtype=torch.bfloat16, requires_grad=backward)
        with torch.set_grad_enabled(backward):
            y = call(x, *weights)
            if backward:
                loss = y.sum()
                del y  # the next layer has made its gradient of it
                loss.backward()
    peak = peak_of(step)
    return (peak / RANKS + session) / (tokens / RANKS * HIDDEN * 2)


def paper(kv_heads, backward):
    """Tables 2 and 6: Ulysses with offloading, and UPipe."""
    g, nu = HEADS / kv_heads, HEADS / TOGETHER
    gamma, beta = 1 + 2 / g, 4 + 4 / g
    if not backward:
        return 1 + gamma + 1, 2 + (gamma + 1) / nu
    return max(3, beta + 2, gamma + 2), 2 + max(2, beta + 1, 2 * (gamma + 1)) / nu


def main():
    print(f"{HEADS} heads on {RANKS} ranks, {TOGETHER} at a time; the unit is x of a rank")
    print(f"{'':24}" + "".join(f"{way:>20}" for way in WAYS)
          + f"{'falls':>8}{'paper: ulysses':>16}{'upipe':>8}{'falls':>8}")
    for kv_heads in 64, 8:
        for backward in False, True:
            got, said = [measure(way, kv_heads, backward) for way in WAYS], paper(kv_heads, backward)
            print(f"{HEADS}:{kv_heads:<4} {'with backward' if backward else 'forward':<16}"
                  + "".join(f"{x:20.2f}" for x in got) + f"{1 - got[2] / got[0]:8.1%}"
                  + f"{said[0]:16.2f}{said[1]:8.2f}{1 - said[1] / said[0]:8.1%}")


if __name__ == "__main__":
    main()
