"""spellings.py: one batch, described in seven ways, as people hold it who come from other projects.

    python3 examples/python/spellings.py

Three documents of 100, 60 and 96 tokens are packed; each token sees itself and the tokens before it in its document:

    token        0 ... 99   100 ... 159   160 ... 255
    document     0          1             2
    cu_seqlens   0          100           160            256

Whoever comes from another project holds this as `cu_seqlens`, as ranges of queries and keys, as the row at which each
key stops to be seen, or as a function. `WAYS` has one function for each, which gives a program and its plan. Printed
are the pairs of each, which are the same, and how far its attention is from that of the first.
"""
import torch
from torch.nn.attention.flex_attention import create_block_mask

import fcpc
from fcpc.torch import Attention

LENGTHS, CU_SEQLENS = [100, 60, 96], [0, 100, 160, 256]
TOKENS = CU_SEQLENS[-1]
DOCUMENT = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
ENDS = torch.tensor(CU_SEQLENS[1:])
MODEL = {"heads": 4, "kv_heads": 2, "head_dim": 16, "dtype": "fp32", "block": 64, "documents": None,
         "cluster": fcpc.detect(ranks=2)}


def mask_mod(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (DOCUMENT[q_idx] == DOCUMENT[kv_idx])


def sequences():
    """Each document is a sequence of the batch: none sees another, so no mask tells them apart."""
    prog = fcpc.program(mask="causal", **MODEL)
    return prog, prog.plan(LENGTHS)


def flash_attention():
    """FlashAttention's varlen functions take where sequences begin, and at last how many tokens there are."""
    prog = fcpc.program(mask="causal", **MODEL)
    return prog, prog.plan(fcpc.lengths(CU_SEQLENS))


def field():
    """One sequence, and the number of its document for each token."""
    prog = fcpc.program(mask="causal and doc[q] == doc[k]", fields=["doc"], **MODEL)
    return prog, prog.plan([TOKENS], {"doc": DOCUMENT})


def magi_attention():
    """MagiAttention: a range of queries sees a range of keys, here both of one document, and causal."""
    ranges = list(zip(CU_SEQLENS, CU_SEQLENS[1:]))
    return _of(fcpc.masks.from_ranges(ranges, ranges, "causal"))


def flash_mask():
    """FlashMask: from which row on a key is not seen any more. That is where its document ends."""
    return _of(fcpc.masks.from_startend_row_indices(ENDS[DOCUMENT].view(1, 1, TOKENS, 1), causal=True))


def flex_attention():
    """FlexAttention: a function of a pair. What it has captured becomes a field, because `fields` names it."""
    prog = fcpc.program(mask=mask_mod, fields=["DOCUMENT"], **MODEL)
    return prog, prog.plan([TOKENS])


def block_mask():
    """FlexAttention's BlockMask, which has the function in it."""
    made = create_block_mask(mask_mod, None, None, TOKENS, TOKENS, device="cpu")
    return _of(fcpc.masks.from_block_mask(made, fields=["DOCUMENT"]))


def _of(m):
    prog = fcpc.program(mask=m, **MODEL)
    return prog, prog.plan(m)


WAYS = [sequences, flash_attention, field, magi_attention, flash_mask, flex_attention, block_mask]


def compare():
    """{name: (pairs, how far attention is from that of the first way)}"""
    torch.manual_seed(0)
    q, k, v = (torch.randn(TOKENS, heads, 16) for heads in (4, 2, 2))
    found, first = {}, None
    for way in WAYS:
        prog, plan = way()
        o = plan.restore(Attention(prog).bind(plan)(plan.take(q), plan.take(k), plan.take(v)))
        first = o if first is None else first
        found[way.__name__] = plan.summary()["pairs"], (o - first).abs().max().item()
    return found


if __name__ == "__main__":
    for name, (pairs, far) in compare().items():
        print(f"{name:<16} {pairs} pairs, {far:.1e} from the first")
