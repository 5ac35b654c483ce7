"""probe.py: runs attention on tensors that show which query weighs which key.

Values with a single one show weights: if only key 7 has a one at number 0 of its values, and all others have zeros
there, then number 0 of an output is the weight of key 7. So one call shows the weights of as many keys as a head has
numbers.
"""
from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch

from ..errors import Error


class Seen(NamedTuple):
    """What attention gave, in the order of the packed batch.

    weights   float64 [heads, queries, keys + padding]: the columns behind the keys are rows of padding
    kv        float64 [heads, queries, kv_heads]: the weight of all keys of each head of keys; None: head_dim is too
              small to show it
    o, lse    float64 [queries, heads, value_dim], [queries, heads]; lse None: attention gives none
    dq, dk, dv  float64; None: not asked for
    """
    weights: torch.Tensor
    kv: torch.Tensor | None
    o: torch.Tensor
    lse: torch.Tensor | None
    dq: torch.Tensor | None
    dk: torch.Tensor | None
    dv: torch.Tensor | None


class Probe:
    """Calls attention on each rank's rows and gathers what it gives.

    q_order, k_order   int64, for each rank, the tokens that it has, as `order_of` gives them
    group              a group of torch.distributed; None: attention takes and gives lists, one element a rank
    """

    def __init__(self, attention: Callable[..., Any], q_order: list[torch.Tensor], k_order: list[torch.Tensor],
                 group: Any, dtype: torch.dtype, device: Any) -> None:
        self.attention, self.group, self.dtype, self.device = attention, group, dtype, device
        self.q_order, self.k_order = q_order, k_order
        self.queries, self.keys = (sum(int((x >= 0).sum()) for x in order) for order in (q_order, k_order))
        self.pads = sum(len(x) for x in k_order) - self.keys
        number = self.keys  # padding gets the numbers behind all keys, in the order of ranks
        self.k_numbers, self.pad_ranks = [], []
        for rank, own in enumerate(k_order):
            own, count = own.clone(), int((own < 0).sum())
            own[own < 0] = torch.arange(number, number + count)
            number += count
            self.k_numbers.append(own)
            self.pad_ranks += [rank] * count

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                 d_o: torch.Tensor | None = None) -> tuple[torch.Tensor | None, ...]:
        """o, lse, dq, dk, dv of one call. q [queries, ...]; k and v [keys + padding, ...]."""
        q = torch.cat([q, q.new_ones(1, *q.shape[1:])])  # the last row is what padding has among queries
        with torch.set_grad_enabled(d_o is not None):
            sides = [[self._own(x[numbers], d_o is not None) for numbers in order]
                     for x, order in ((q, self.q_order), (k, self.k_numbers), (v, self.k_numbers))]
            if self.group is None:
                made = list(self.attention(*sides))
                if len(made) != len(self.q_order):
                    raise Error("E701", f"audit: attention gave {len(made)} outputs for {len(self.q_order)} ranks")
                here = range(len(made))
            else:
                here = range(self.group.rank(), self.group.rank() + 1)
                made = [self.attention(*(side[here.start] for side in sides))]
            outs = [x if isinstance(x, tuple) else (x, None) for x in made]
            for rank, (o, lse) in zip(here, outs):
                for name, x, like in ("o", o, (*sides[0][rank].shape[:2], v.shape[-1])), \
                                     ("lse", lse, sides[0][rank].shape[:2]):
                    if x is not None and tuple(x.shape) != tuple(like):
                        raise Error("E701", f"audit: rank {rank}'s {name} has shape {list(x.shape)}, and for its q of "
                                            f"shape {list(sides[0][rank].shape)} it is {list(like)}")
            if d_o is not None:
                d_o = torch.cat([d_o, d_o.new_zeros(1, *d_o.shape[1:])])  # the last row is that of padding
                loss = sum((o * self._own(d_o[own], False)).sum()
                           for (o, _), own in zip(outs, (self.q_order[r] for r in here)))
                if loss.requires_grad:  # else gradients are lost, which is a finding
                    loss.backward()
        gives_lse = all(lse is not None for _, lse in outs)
        own = [([o.detach() for o, _ in outs], self.q_order, self.queries),
               ([lse.detach() for _, lse in outs] if gives_lse else None, self.q_order, self.queries)]
        for side, order in zip(sides, (self.q_order, self.k_order, self.k_order)):
            grads = [torch.zeros_like(side[r]) if side[r].grad is None else side[r].grad for r in here]
            own.append((grads if d_o is not None else None, order, self.queries if order is self.q_order else
                        self.keys))
        return tuple(None if parts is None else self._gather(parts, order, count) for parts, order, count in own)

    def _own(self, x: torch.Tensor, grad: bool) -> torch.Tensor:
        return x.to(self.device, self.dtype).requires_grad_(grad)

    def _gather(self, parts: list[torch.Tensor], order: list[torch.Tensor], count: int) -> torch.Tensor:
        parts = [x.double().cpu() for x in parts]
        if self.group is not None:
            every: list[Any] = [None] * len(order)
            torch.distributed.all_gather_object(every, parts[0], group=self.group)
            parts = every
        made = parts[0].new_zeros(count, *parts[0].shape[1:])
        for own, part in zip(order, parts):
            made[own[own >= 0]] = part[own >= 0]
        return made

    def look(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, d_o: torch.Tensor, backward: bool) -> Seen:
        """Calls attention as often as it takes to see all weights."""
        count, heads, dim = v.shape
        columns = []
        for base in range(0, count, dim):
            shown = torch.zeros(count, heads, dim)
            own = torch.arange(base, min(base + dim, count))
            shown[own, :, own - base] = 1
            o = self(q, k, shown)[0]
            assert o is not None
            columns.append(o[..., :len(own)])
        weights = torch.cat(columns, -1).permute(1, 0, 2) if columns else torch.zeros(q.shape[1], len(q), 0).double()
        kv = None
        if heads <= dim:
            o = self(q, k, torch.eye(heads, dim).expand(count, heads, dim))[0]
            assert o is not None
            kv = o[..., :heads].permute(1, 0, 2)
        o, lse, *grads = self(q, k, v, d_o if backward else None)
        assert o is not None
        return Seen(weights, kv, o, lse, *grads)
