"""definition.py: what a program says about one batch: who sees whom, with which weight, and the gradients.

Who sees whom is counted by the compiler itself, out of the plan (`Plan.part`), so there is no second implementation of
masks here. Weights and gradients are computed from that in float64. Only a score is not known to Python as a formula:
for a program with a score, logits and gradients are those of the same program on one rank in float32, run by fcpc.
"""
from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Iterable

import torch

from ..batches import Lengths
from ..errors import Error, Warning
from ..program import Program

if TYPE_CHECKING:
    from ..plan import Plan

LIMIT = 1 << 27
"""The most pairs, of all heads, that are compared: each costs some numbers of 8 bytes."""
_SQUARES = 32  # a picture of Plan.part has at most so many squares each way


@dataclass(frozen=True)
class Definition:
    """A program, a batch, and what the program says about it.

    q_lengths, k_lengths   queries and keys of each sequence
    allowed   bool [heads, queries, keys] of the packed batch
    sink      float64 [heads], or None
    """
    program: Program
    plan: Plan
    layer: int
    fields: Any
    q_lengths: tuple[int, ...]
    k_lengths: tuple[int, ...]
    allowed: torch.Tensor
    sink: torch.Tensor | None
    scored: bool

    @property
    def group(self) -> int:
        """How many query heads share a head of keys."""
        return self.plan.heads // self.plan.kv_heads

    def logits(self, q: torch.Tensor, k: torch.Tensor, scale: float | None = None,
               kv: torch.Tensor | None = None) -> torch.Tensor:
        """Scaled products before the score, float64 [heads, queries, keys]. kv: the head of keys of each query head."""
        kv = torch.arange(self.plan.heads) // self.group if kv is None else kv
        scale = self.plan.scale if scale is None else scale
        return torch.einsum("qhd,khd->hqk", q.double(), k.double()[:, kv]) * scale

    def weights(self, logits: torch.Tensor, allowed: torch.Tensor | None = None,
                sink: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """The softmax over allowed keys and the sink, and the log-sum-exp: [heads, queries, keys], [queries, heads]."""
        sink = self.sink if sink is None else sink
        logits = logits.masked_fill(~(self.allowed if allowed is None else allowed), -torch.inf)
        lse = logits.logsumexp(-1) if logits.shape[-1] else logits.new_full(logits.shape[:2], -torch.inf)
        if sink is not None:
            lse = torch.logaddexp(lse, sink[:, None])
        weights = (logits - lse.masked_fill(lse == -torch.inf, 0)[..., None]).exp()
        return weights, lse.T

    def outputs(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                d_o: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """weights, o, lse, dq, dk, dv as the program defines them, float64."""
        x, y, z = (t.double().detach().requires_grad_() for t in (q, k, v))
        if self.scored:
            return self._of_fcpc(q, k, v, d_o)
        weights, lse = self.weights(self.logits(x, y))
        kv = torch.arange(self.plan.heads) // self.group
        o = torch.einsum("hqk,khd->qhd", weights, z[:, kv])
        grads = torch.autograd.grad(o, (x, y, z), d_o.double())
        return weights.detach(), o.detach(), lse.detach(), *grads

    def _of_fcpc(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, d_o: torch.Tensor,
                 *settings: str) -> tuple[torch.Tensor, ...]:
        """The same, run by fcpc on one rank in float32. settings: what to change in the program."""
        from ..torch import Attention
        plan = plan_of(self.program, self.fields, self.q_lengths, self.k_lengths, ["model.dtype=fp32", *settings])
        assert plan.program is not None
        sink = None if self.sink is None else self.sink.float()
        with Attention(plan.program) as attention:
            bound = attention.bind(plan, layer=self.layer)

            def run(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                mine = plan.take(x), plan.take(y, keys=True), plan.take(z, keys=True)
                o, lse = bound(*mine, sink=sink, return_lse=True)
                return plan.restore(o), plan.restore(lse)
            wide = [t.float().detach().requires_grad_() for t in (q, k, v)]
            o, lse = run(*wide)
            grads = torch.autograd.grad(o, wide, d_o.float())
            keys, columns, dim = len(k), [], v.shape[-1]
            for base in range(0, keys, dim):
                columns.append(run(q.float(), k.float(), one_hot(keys, plan.kv_heads, dim, base))[0].detach())
            weights = torch.cat(columns, -1)[..., :keys].permute(1, 0, 2)
        return tuple(t.double() for t in (weights, o.detach(), lse.detach(), *grads))

    def scored_logits(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Logits behind the score, float64 [heads, queries, keys]: of allowed pairs, and of others as far as float32
        has room for their weights, else -inf. Between sequences they are those of one long sequence."""
        d_o = torch.zeros(len(q), self.plan.heads, v.shape[-1])
        one = replace(self, q_lengths=(sum(self.q_lengths),), k_lengths=(sum(self.k_lengths),))
        made = torch.full(self.allowed.shape, -torch.inf, dtype=torch.float64)
        for of, settings in (one, ["plan.mask=full"]), (self, ["plan.mask=full"]), (self, []):
            try:
                weights, _, lse, *_ = of._of_fcpc(q, k, v, d_o, *settings)
            except Error:  # a field has other numbers than one long sequence needs
                continue
            made = torch.where(weights > 0, weights.log() + lse.T[..., None], made)
        return made

    def own_gradients(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, d_o: torch.Tensor,
                      same: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """dk and dv of those pairs alone whose query and key are on the same rank: `same`, bool [queries, keys]."""
        x, y, z = (t.double().detach() for t in (q, k, v))
        y.requires_grad_()
        z.requires_grad_()
        weights, _ = self.weights(torch.where(same, self.logits(x, y), self.logits(x, y.detach())))
        kv = torch.arange(self.plan.heads) // self.group
        o = torch.einsum("hqk,khd->qhd", weights * same, z[:, kv]) \
            + torch.einsum("hqk,khd->qhd", weights * ~same, z.detach()[:, kv])
        return torch.autograd.grad(o, (y, z), d_o.double())


def one_hot(keys: int, heads: int, dim: int, base: int) -> torch.Tensor:
    """Values that show weights, [keys, heads, dim]: key base + i has a one at its number i, all else is zeros."""
    made = torch.zeros(keys, heads, dim)
    own = torch.arange(base, min(base + dim, keys))
    made[own, :, own - base] = 1
    return made


def sizes_of(lengths: Any, queries: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Queries and keys of each sequence, of what `Program.plan` takes."""
    if isinstance(lengths, Lengths):
        lengths, queries = lengths.keys, lengths.queries
    keys = tuple(int(x) for x in lengths)
    return keys if queries is None else tuple(int(x) for x in queries), keys


def plan_of(program: Program, fields: Any, queries: Iterable[int], keys: Iterable[int],
            defines: Iterable[str] = (), source: str | None = None) -> Plan:
    """The plan of a batch on one rank in this process, with some settings or some text of the program changed."""
    keep = [x for x in program._defines if x.split("=")[0] not in {y.split("=")[0] for y in
                                                                   ("cluster.nodes", "cluster.gpus", *defines)}]
    changed = Program.__new__(Program)
    with warnings.catch_warnings():  # of masks that nobody has asked for
        warnings.simplefilter("ignore", Warning)
        changed._make(program.source if source is None else source, program.name,
                      (*keep, "cluster.nodes=1", "cluster.gpus=1", *defines), program.fields, None, program._values,
                      "", 1, program.profile)
        queries, keys = list(queries), list(keys)
        return changed.plan(Lengths(keys, None if queries == keys else queries), dict(fields or {}))


def allowed_of(plan: Plan, queries: Iterable[int], keys: Iterable[int]) -> torch.Tensor:
    """Who sees whom in the packed batch, counted by the compiler: bool [heads, queries, keys]."""
    queries, keys = list(queries), list(keys)
    made = torch.zeros(plan.heads, sum(queries), sum(keys), dtype=torch.bool)

    def fill(sequence: int, head: int, rows: tuple[int, int], cols: tuple[int, int], at: torch.Tensor) -> None:
        part = plan.part(rows, cols, sequence, head)
        side = part["group"]
        for i, line in enumerate(part["grid"]):
            top, bottom = rows[0] + i * side, min(rows[0] + (i + 1) * side, rows[1])
            for j, count in enumerate(line):
                left, right = cols[0] + j * side, min(cols[0] + (j + 1) * side, cols[1])
                if count == (bottom - top) * (right - left):
                    at[top:bottom, left:right] = True
                elif count:
                    fill(sequence, head, (top, bottom), (left, right), at)
    text = plan.program.text if plan.program is not None else "h"
    heads = plan.heads if re.search(r"\bh\b", text) else 1  # nothing reads the head, so all heads are alike
    row = col = 0
    for sequence, (q, k) in enumerate(zip(queries, keys)):
        for head in range(heads if q and k else 0):
            fill(sequence, head, (0, q), (0, k), made[head, row:row + q, col:col + k])
        row, col = row + q, col + k
    if heads < plan.heads:
        made[1:] = made[0]
    return made


def define(program: Program, lengths: Any, queries: Any, fields: Any, layer: int, sink: Any) -> Definition:
    """The Definition of a batch. Errors: E203 (too large, values that are keys, no such layer), and those of plan()."""
    of_q, of_k = sizes_of(lengths, queries)
    plan = plan_of(program, fields, of_q, of_k)
    if not 0 <= layer < len(plan.layers):
        raise Error("E203", f"audit: layer {layer} is not one of the program's {len(plan.layers)} masks")
    plan = plan.layers[layer]
    if plan.values_in_keys:
        raise Error("E203", 'audit: with values="keys" there are no values that could show the weights')
    if plan.heads * sum(of_q) * sum(of_k) > LIMIT:
        raise Error("E203", f"audit: {plan.heads} heads x {sum(of_q)} queries x {sum(of_k)} keys are more than {LIMIT} "
                            "pairs, all of which are compared: a smaller batch shows the same faults")
    said = re.search(r"^ *sink *= *(\S+)$", plan.program.text if plan.program else "", re.M)
    if sink is not None and said is None:
        raise Error("E209", "audit: the program has no sinks: say sink=0.0 in it, and the values here")
    if said is not None and sink is None:
        sink = [float(said[1])] * plan.heads
    return Definition(program, plan, layer, fields, of_q, of_k, allowed_of(plan, of_q, of_k),
                      None if sink is None else torch.as_tensor(sink).detach().double().cpu(),
                      bool(re.search(r"^ *score\s*=", plan.program.text if plan.program else "", re.M)))


def variant(definition: Definition, defines: Iterable[str] = (), source: str | None = None,
            fields: Any = None, whole: bool = False) -> torch.Tensor:
    """Who would see whom if the program, or the batch, were another. whole: all sequences are taken for one."""
    of_q, of_k = definition.q_lengths, definition.k_lengths
    if whole:
        of_q, of_k = (sum(of_q),), (sum(of_k),)
    plan = plan_of(definition.program, definition.fields if fields is None else fields, of_q, of_k, defines, source)
    return allowed_of(plan.layers[min(definition.layer, len(plan.layers) - 1)], of_q, of_k)

