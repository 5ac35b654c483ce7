"""check.py: compares what attention does on some ranks with what a program says."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch

from ..errors import Error
from .causes import Case, causes_of
from .definition import Definition, define
from .probe import Probe, Seen
from .report import Finding, Report
from .rows import Rows, order_of

class Near(NamedTuple):
    """How far numbers may be apart by rounding alone, in a dtype.

    of_weight   of each weight, as a part of it: logits are rounded before exp, and parts of the softmax are merged
    least       a weight below this is none
    of_most     of outputs, LSE and gradients, as a part of the largest one
    """
    of_weight: float
    least: float
    of_most: float


NEAR = {torch.float64: Near(1e-4, 1e-6, 1e-4), torch.float32: Near(1e-4, 1e-6, 1e-4),
        torch.float16: Near(2e-2, 1e-5, 2e-2), torch.bfloat16: Near(1e-1, 1e-5, 1e-1)}


def check(attention: Callable[..., Any], program: Any, lengths: Any, group: Any = None, *, rows: Rows = "contiguous",
          key_rows: Rows | None = None, fields: Any = None, queries: Any = None, layer: int = 0, sink: Any = None,
          ranks: int = 4, backward: bool = True, dtype: torch.dtype = torch.float32, device: Any = "cpu",
          seed: int = 1) -> Report:
    """Does `attention` compute on some ranks what `program` says? A Report: `ok`, or what differs and why.

        report = audit.check(my_ring, prog, [700, 324], group)
        assert report.ok, report

    attention  with a group: (q, k, v) of this rank -> o of this rank, tensors [rows, heads, head_dim]; it may give
               (o, lse), with lse [rows, heads]. All processes call check. Without a group: lists of all ranks' q, k
               and v -> the list of all ranks' o
    program    what attention should compute, an fcpc.Program. How many ranks it has does not matter
    lengths    tokens of each sequence of the batch, or what fcpc.lengths makes
    queries    queries of each sequence, where they are others than the keys
    rows       which tokens of the packed batch each rank has: a name, a list with a tensor of tokens for each rank, or
               a function (rank, ranks) that gives one. A token -1 is a row of padding, which nobody may see. Names:
               "contiguous"       of `ranks` pieces of the batch, rank r has piece r: ring_flash_attn_func,
                                  llama3_flash_attn_varlen_func, torch's context_parallel without load balance,
                                  DeepSpeed's Ulysses, NO_LOAD_BALANCE of Transformer Engine
               "contiguous_each"  the same of each sequence: ring_flash_attn_varlen_func
               "zigzag"           of 2 * ranks pieces of the batch, rank r has pieces r and 2 * ranks - 1 - r: torch's
                                  context_parallel with load balance (head-tail), zigzag_ring_flash_attn_func, a row of
                                  Megatron-core's batch
               "zigzag_each"      the same of each sequence: thd and bshd of Transformer Engine,
                                  zigzag_ring_flash_attn_varlen_func, torch's head-tail per document
               "stripe"           token t is on rank t % ranks: stripe_flash_attn_func
               The rules of each sequence fill it up with padding until its pieces are equal, as
               pad_thd_sequences_for_cp of Transformer Engine does
    key_rows   the same of keys, where rows of keys are others than rows of queries; None: rows
    fields     {name: values} of the batch, as Program.plan takes them
    layer      which of the program's masks it is
    sink       [heads], in place of the program's sinks
    ranks      how many ranks there are, without a group
    backward   whether gradients of q, k and v are compared as well. That is done where outputs are right, because wrong
               outputs have other gradients
    dtype      of q, k and v; device: where they are
    seed       of the numbers that are drawn

    attention is called about (keys / head_dim) times. The whole matrix of weights is compared, which limits the batch
    (E203 says how). What attention itself raises is not caught.

    Errors: E203 (too large a batch, wrong rows), E701 (attention gives tensors of other shapes), those of Program.plan
    """
    if dtype not in NEAR:
        raise Error("E202", f"audit: dtype is {dtype}, and one of {', '.join(map(str, NEAR))} is expected")
    of = define(program, lengths, queries, fields, layer, sink)
    ranks = ranks if group is None else group.size()
    heads, kv_heads, dim, value_dim = of.plan.heads, of.plan.kv_heads, of.plan.head_dim, of.plan.value_dim
    q_order = order_of(rows, of.q_lengths, ranks)
    k_order = order_of(rows if key_rows is None else key_rows, of.k_lengths, ranks)
    probe = Probe(attention, q_order, k_order, group, dtype, device)
    drawn = torch.Generator().manual_seed(seed)
    keys = probe.keys + probe.pads
    shapes = [(probe.queries, heads, dim), (keys, kv_heads, dim), (keys, kv_heads, value_dim),
              (probe.queries, heads, value_dim)]
    # Logits are about as large as a normal distribution's: no weight of a pair that is seen is lost in rounding.
    q, k, v, d_o = (torch.randn(shape, generator=drawn).to(dtype) for shape in shapes)
    q = q * (1 / (of.plan.scale * dim ** 0.5) if of.plan.scale else 1)
    q = q.to(dtype)
    seen = probe.look(q, k, v, d_o, backward)
    return _compare(of, probe, seen, q, k, v, d_o, NEAR[dtype])


def _compare(of: Definition, probe: Probe, seen: Seen, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
             d_o: torch.Tensor, near: Near) -> Report:
    real = slice(0, probe.keys)
    weights, o, lse, *grads = of.outputs(q, k[real], v[real], d_o)
    (q_rank, q_local), (k_rank, k_local) = _places(probe.q_order, probe.queries), _places(probe.k_order, probe.keys)
    names = _Names(of, q_rank, k_rank, probe)
    found = list(_forward(of, probe, seen, weights, o, lse, near, names))
    causes: list[str] = []
    if found and bool(seen.weights.isfinite().all()):
        logits = of.logits(q, k)
        if of.scored and of.program.masks == 1:  # else there is no single mask to change
            logits[..., real] = of.scored_logits(q, k[real], v[real])
        causes = causes_of(Case(of, probe, seen, q, k[real], logits, q_rank, k_rank, q_local, k_local,
                                near.of_weight, near.least))
        if not causes and any(x.kind == "kv_head" for x in found) and len(found) == 1:
            causes = ["KV head groups permuted: values are read from other heads than keys"]
        if not causes and [x.kind for x in found] == ["lse"]:
            causes = [name for name, other in (
                ("LSE is in base 2: log2 of the sum in place of ln", lse / 0.6931471805599453),
                ("LSE without the sink", of.weights(logits[..., real], sink=torch.full((of.plan.heads,), -torch.inf))[1]
                 if of.sink is not None and not of.scored else None))
                if other is not None and seen.lse is not None and _off(seen.lse, other, near).sum() == 0]
    elif not found and seen.dq is not None:
        fit: dict[str, list[str]] = {}  # each cause, and the gradients that it fits
        for name, got, want, what in zip(("dq", "dk", "dv"), (seen.dq, seen.dk, seen.dv), grads,
                                         ("query", "key", "key")):
            assert got is not None
            wrong = _off(got, want, near).flatten(1).any(1)
            if wrong.any():
                at = int(wrong.nonzero()[0])
                factor = float((got * want).sum() / (want * want).sum().clamp(min=1e-300))
                alike = not _off(got, want * factor, near).any()
                said = f"is {factor:.4g} times that of the program" if alike else "differs from that of the program"
                place = names.query(at) if what == "query" else names.key(at)
                found.append(Finding(name, f"the gradient of {name[1]}, {name}, {said}: first at {place}",
                                     int(wrong.sum()), len(wrong)))
                for cause in _of_gradient(name, factor, len(probe.q_order), of, near) if alike else ():
                    fit.setdefault(cause, []).append(name)
        most = max(map(len, fit.values()), default=0)  # one that fits all of them is no chance
        causes = [f"{cause} ({', '.join(names)})" for cause, names in fit.items() if len(names) == most]
        if [x.kind for x in found] == ["dk", "dv"] and not fit and not of.scored:
            own = of.own_gradients(q, k[real], v[real], d_o, q_rank[:, None] == k_rank)
            assert seen.dk is not None and seen.dv is not None
            if not _off(seen.dk, own[0], near).any() and not _off(seen.dv, own[1], near).any():
                causes = ["gradient of other ranks' queries lost: keys and values get that of their own rank's alone"]
    return Report(found, causes)


def _forward(of: Definition, probe: Probe, seen: Seen, weights: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
             near: Near, names: _Names) -> Any:
    pairs = of.allowed.numel()
    bad = ~seen.weights.isfinite().all(-1).T | ~seen.o.isfinite().all(-1)
    if bad.any():
        row, head = (int(x) for x in bad.nonzero()[0])
        yield Finding("nan", f"{names.query(row)} gets outputs that are no numbers, in head {head}", int(bad.sum()),
                      bad.numel())
    got, pads = seen.weights[..., :probe.keys], seen.weights[..., probe.keys:]
    sees = ~of.allowed & (got.abs() > near.least)
    if sees.any():
        row, key, head = _first(sees)
        yield Finding("sees", f"{names.query(row)} sees {names.key(key)}{names.head(sees, head)}; the program does not "
                      "allow it", int(sees.sum()), pairs)
    if (pads.abs() > near.least).any():
        row, pad, head = _first(pads.abs() > near.least)
        yield Finding("padding", f"{names.query(row)} sees padding of rank {probe.pad_ranks[pad]}; nobody may see it",
                      int((pads.abs() > near.least).sum()), pads.numel())
    lost = of.allowed & (weights > 100 * near.least) & (got.abs() < near.least)
    if lost.any():
        row, key, head = _first(lost)
        yield Finding("misses", f"{names.query(row)} does not see {names.key(key)}{names.head(lost, head)}; the "
                      "program allows it", int(lost.sum()), int(of.allowed.sum()))
    off = ((got - weights).abs() > near.of_weight * weights + near.least) & of.allowed & ~lost
    if off.any():
        row, key, head = _first(off)
        yield Finding("weight", f"{names.query(row)} weighs {names.key(key)} by {float(got[head, row, key]):.6g} in "
                      f"head {head}; by the program it is {float(weights[head, row, key]):.6g}", int(off.sum()),
                      int(of.allowed.sum()))
    forward = bool(bad.any() or sees.any() or (pads.abs() > near.least).any() or lost.any() or off.any())
    if seen.kv is not None:
        kv = torch.arange(of.plan.heads) // of.group
        want = torch.zeros_like(seen.kv).scatter(2, kv[:, None, None].expand(-1, seen.kv.shape[1], 1),
                                                 seen.weights.sum(-1, keepdim=True))
        wrong = (seen.kv - want).abs().amax(-1) > 0.1 * want.sum(-1) + near.least
        if wrong.any():
            head, row = (int(x) for x in wrong.nonzero()[0])
            yield Finding("kv_head", f"{names.query(row)} reads values of KV head {int(seen.kv[head, row].argmax())} "
                          f"in head {head}; by the program they are of KV head {int(kv[head])}", int(wrong.sum()),
                          wrong.numel())
            forward = True
    if not forward:
        wrong = _off(seen.o, o, near).any(-1)
        if wrong.any():
            row, head = (int(x) for x in wrong.nonzero()[0])
            yield Finding("o", f"{names.query(row)} gets another output than its weights make of the values, in head "
                          f"{head}", int(wrong.sum()), wrong.numel())
        if seen.lse is not None:
            wrong = _off(seen.lse, lse, near)
            if wrong.any():
                row, head = (int(x) for x in wrong.nonzero()[0])
                yield Finding("lse", f"{names.query(row)} has LSE {float(seen.lse[row, head]):.6g} in head {head}; by "
                              f"the program it is {float(lse[row, head]):.6g}", int(wrong.sum()), wrong.numel())


def _of_gradient(name: str, factor: float, ranks: int, of: Definition, near: Near) -> list[str]:
    """The causes for which a gradient would be `factor` times what it should be."""
    close = [(float(ranks), f"gradient counted {'twice' if ranks == 2 else f'{ranks} times'}: each of {ranks} ranks "
                            "adds all of it"),
             (1 / ranks, f"gradient averaged instead of summed: it is divided by the {ranks} ranks"),
             (2.0, "gradient counted twice"),
             (float(of.group), f"gradient counted once for each of the {of.group} heads that share a KV head"),
             (1 / of.group, f"gradient averaged instead of summed over the {of.group} heads that share a KV head"),
             (0.0, "gradient lost: it is zero"), (-1.0, "gradient of the wrong sign")]
    if of.plan.scale and name != "dv":
        close += [(1 / of.plan.scale, "scale left out of the gradient"),
                  (of.plan.scale, "scale applied twice to the gradient")]
    return [cause for value, cause in close if abs(value - factor) <= 10 * near.of_most * abs(value) + near.of_most]


def _off(got: torch.Tensor, want: torch.Tensor, near: Near) -> torch.Tensor:
    """Where numbers differ by more than rounding does. -inf is equal to -inf."""
    finite = want[want.isfinite()]
    most = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    return ~((got == want) | ((got - want).abs() <= near.of_most * most))


def _first(where: torch.Tensor) -> tuple[int, int, int]:
    """(query, key, head) of the first pair, by query."""
    row, key, head = (int(x) for x in where.permute(1, 2, 0).nonzero()[0])
    return row, key, head


def _places(order: list[torch.Tensor], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rank of each token, and its row there."""
    rank, local = torch.zeros(2, count, dtype=torch.int64)
    for r, own in enumerate(order):
        rows = (own >= 0).nonzero()[:, 0]
        rank[own[rows]], local[own[rows]] = r, rows
    return rank, local


class _Names:
    """What a message calls a query, a key or a head."""

    def __init__(self, of: Definition, q_rank: torch.Tensor, k_rank: torch.Tensor, probe: Probe) -> None:
        self.of, self.q_rank, self.k_rank = of, q_rank, k_rank

    @staticmethod
    def _place(token: int, lengths: tuple[int, ...]) -> tuple[int, int]:
        for sequence, length in enumerate(lengths):
            if token < length:
                return sequence, token
            token -= length
        raise IndexError(token)

    def query(self, token: int) -> str:
        sequence, at = self._place(token, self.of.q_lengths)
        return f"query {at} of sequence {sequence} (rank {int(self.q_rank[token])})"

    def key(self, token: int) -> str:
        sequence, at = self._place(token, self.of.k_lengths)
        return f"key {at} of sequence {sequence} (rank {int(self.k_rank[token])})"

    def head(self, where: torch.Tensor, head: int) -> str:
        return "" if bool((where == where[:1]).all()) else f" in head {head}"
