"""forest_loss.py: log-probabilities and entropies of rollouts, from logits of a forest's rows (Forest.logprobs).

The logits of a row predict the tokens of all rows that have it as their parent. So there is one log-probability for
each row but a tree's first, whatever number of rollouts share it: with p its parent and t its id,

    logits[p, t] / T - logsumexp(logits[p] / T)

The gradient of logits[p] is -softmax times the sum of the gradients of what p predicts, plus each of these at its id.
Both are computed for some rows at a time, in float32 or float64, so that no second tensor of all logits is held.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from .arrays import index_of
from .batches import kind_of
from .errors import Error
from .token_lists import numpy

if TYPE_CHECKING:
    from .forest import Forest
    from .plan import Plan

_NUMBERS = 1 << 24  # of logits that are computed with at a time


def logprobs(made: Forest, logits: Any, plan: Plan | None, group: Any, temperature: float, owner: bool) -> Any:
    """See Forest.logprobs."""
    _check(made, "logprobs", logits, plan, temperature)
    of, slots = _own_predictions(made, plan)
    labels = torch.from_numpy(numpy().asarray(made.tokens)[of])
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise Error("E701", f"logprobs: there are token ids from {int(labels.min())} to {int(labels.max())}, and "
                            f"logits of {logits.shape[1]} ids")
    device = logits.device
    found = _LogProbs.apply(logits, torch.from_numpy(slots).to(device), labels.to(device), float(temperature))
    rows = torch.from_numpy(of).to(device)
    every = found.new_zeros(len(made)).index_copy(0, rows, found)
    if owner:
        return every[torch.from_numpy(made._value_rows()[own_values(made, plan)]).to(device)]
    return made.unpack(_summed(made, every, plan, group))


def entropy(made: Forest, logits: Any, plan: Plan | None, group: Any, temperature: float, owner: bool) -> Any:
    """See Forest.entropy."""
    _check(made, "entropy", logits, plan, temperature)
    found = torch.cat([_entropy(part, temperature) for part in logits.split(_at_once(logits))])
    if not owner:
        return made.unpack(everywhere(made, found, plan, group), before=True)
    before = numpy().asarray(made.parents)[made._value_rows()[own_values(made, plan)]]
    return found[torch.from_numpy(_slots(made, plan)[before]).to(found.device)]


def _entropy(logits: Any, temperature: float) -> Any:
    """Of each row of some logits; torch keeps their softmax for the gradient."""
    found = torch.log_softmax(logits.to(_wide(logits)) / temperature, -1)
    weighed = found.exp() * found
    return -weighed.masked_fill(found == -torch.inf, 0).sum(-1)  # what is impossible adds nothing


def own_values(made: Forest, plan: Plan | None) -> Any:
    """Which of the values of a forest's tokens are of tokens that this process predicts: their numbers, rising."""
    np = numpy()
    parents = np.asarray(made.parents)[made._value_rows()]
    return np.flatnonzero((parents >= 0) & (_slots(made, plan)[parents] >= 0))


def _slots(made: Forest, plan: Plan | None) -> Any:
    """Of each row, which of this process's tokens it is, in the plan's order; -1: another process has it."""
    np, rows = numpy(), len(made)
    if plan is None:
        return np.arange(rows)
    _check_plan(made, plan)
    key = f"slots {id(plan)}"
    kept = made._kept.get(key)
    if kept is None or kept[0] is not plan:
        slots = np.full(rows, -1)
        own = np.frombuffer(plan.rows(), "int64") if plan.tokens else np.zeros(0, "int64")
        slots[own] = np.arange(len(own))
        for old in [name for name in made._kept if name.startswith("slots ")]:
            del made._kept[old]
        kept = made._kept[key] = plan, slots
    return kept[1]


def _own_predictions(made: Forest, plan: Plan | None) -> tuple[Any, Any]:
    """The rows that this process's tokens predict, and which of its tokens predicts each."""
    np = numpy()
    parents = np.asarray(made.parents)
    slots = np.where(parents >= 0, _slots(made, plan)[parents], -1)
    of = np.flatnonzero(slots >= 0)
    return of, slots[of]


def _check_plan(made: Forest, plan: Plan) -> None:
    if plan.global_tokens != len(made) or plan.sequences != made.trees:
        raise Error("E203", f"the plan is of {plan.sequences} sequences with {plan.global_tokens} tokens, and the "
                            f"forest has {made.trees} trees with {len(made)}")


def _check(made: Forest, who: str, logits: Any, plan: Plan | None, temperature: float) -> None:
    want = len(made) if plan is None else plan.tokens
    if plan is not None:
        _check_plan(made, plan)
    if not isinstance(logits, torch.Tensor) or not logits.is_floating_point() or logits.dim() != 2 or \
            len(logits) != want:
        found = f"{list(logits.shape)} of {logits.dtype}" if hasattr(logits, "dtype") else kind_of(logits)
        raise Error("E701", f"{who}: logits are [{want}, vocabulary], a row for each token of "
                            f"{'the forest' if plan is None else 'this process'}, and these are {found}")
    if not isinstance(temperature, (int, float)) or not 0 < temperature < float("inf"):
        raise Error("E203", f"{who}: temperature is {temperature!r}, and a number above 0 is expected")


def _at_once(logits: Any) -> int:
    """How many rows of logits are computed with at a time."""
    return max(1, _NUMBERS // max(1, int(logits.shape[1])))


def _wide(x: Any) -> Any:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


class _LogProbs(torch.autograd.Function):
    """logits [n, vocabulary], slots [m] rows of them, labels [m]: the log-probabilities [m]."""

    @staticmethod
    def forward(ctx: Any, logits: Any, slots: Any, labels: Any, temperature: float) -> Any:
        parts = logits.split(_at_once(logits))
        lse = torch.cat([torch.logsumexp(part.to(_wide(part)) / temperature, -1) for part in parts])
        ctx.save_for_backward(logits, lse, slots, labels)
        ctx.temperature = temperature
        return logits[slots, labels].to(lse.dtype) / temperature - lse[slots]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        logits, lse, slots, labels = ctx.saved_tensors
        chunk, made = _at_once(logits), torch.empty_like(logits)
        grad = grad.to(lse.dtype) / ctx.temperature
        sums = lse.new_zeros(len(logits)).index_put((slots,), grad, accumulate=True)
        order = torch.argsort(slots, stable=True)
        slots, labels, grad = slots[order], labels[order], grad[order]
        bounds = torch.searchsorted(slots, torch.arange(0, len(logits) + chunk, chunk, device=slots.device)).tolist()
        for i, part in enumerate(logits.split(chunk) if len(logits) else ()):  # of nothing, too, there is a part
            its = slice(bounds[i], bounds[i + 1])
            wide = torch.exp(part.to(lse.dtype) / ctx.temperature - lse[i * chunk:i * chunk + len(part), None])
            wide *= -sums[i * chunk:i * chunk + len(part), None]
            wide.index_put_((slots[its] - i * chunk, labels[its]), grad[its], accumulate=True)
            made[i * chunk:i * chunk + len(part)] = wide
        return made, None, None, None


class _Summed(torch.autograd.Function):
    """The sum over the ranks of a group, where each row is not 0 on one rank alone. Each rank has the whole loss, so
    the gradient of a row is what this rank has of it."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        made = x.detach().clone()
        dist.all_reduce(made, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


def everywhere(made: Forest, y: Any, plan: Plan | None, group: Any) -> Any:
    """See Forest.everywhere."""
    want = len(made) if plan is None else plan.tokens
    if not isinstance(y, torch.Tensor) or not y.dim() or len(y) != want:
        found = list(y.shape) if hasattr(y, "shape") else kind_of(y)
        raise Error("E701", f"everywhere: a tensor with a row for each of {want} tokens is expected, and this is "
                            f"{found}")
    if plan is None:
        return _summed(made, y, plan, group)
    _check_plan(made, plan)
    rows = index_of(plan._rows(), y).to(y.device)
    return _summed(made, y.new_zeros(len(made), *y.shape[1:]).index_copy(0, rows, y), plan, group)


def _summed(made: Forest, every: Any, plan: Plan | None, group: Any) -> Any:
    """Rows of which this process has some, the others 0, as rows of all processes."""
    if group is None:
        if plan is not None and len(plan.here) != plan.ranks:
            raise Error("E203", f"this process has ranks {list(plan.here)} of {plan.ranks} alone: with group=, "
                                "processes give each other what they have; with owner=True each keeps its own")
        return every
    if plan is None:
        raise Error("E203", "with a group, logits are in the order of a plan, which must be said: plan=")
    from .restore import _rank
    rank = _rank(plan, group)
    key = f"same {id(plan)} {id(group)}"
    if made._kept.get(key) is not plan:  # compared once: forests and plans do not change
        said = plan.homes, made._identity(), str(every.dtype), list(every.shape[1:])
        everyone: list[Any] = [None] * plan.ranks
        dist.all_gather_object(everyone, said, group=group)
        for other, its in enumerate(everyone):
            if its != said:
                what = "plan" if its[0] != said[0] else "forest" if its[1] != said[1] else "type or shape of values"
                raise Error("E706", f"rank {other} has another {what} than rank {rank}")
        made._kept[key] = plan
    return cast(Any, _Summed.apply(every, group))
