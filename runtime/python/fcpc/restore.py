"""restore.py: gathers the rows of all processes on each of them, in the order of the packed batch (Plan.restore)."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from .arrays import Rows, index_of, is_array, is_tensor, reverse
from .errors import Error

if TYPE_CHECKING:
    from .plan import Plan


def restore(plan: Plan, rows: Rows, group: Any, dim: Any) -> Rows:
    """See Plan.restore."""
    x: Any = rows
    import torch
    import torch.distributed as dist
    rank = _rank(plan, group)
    wrong: Error | None = None
    said: tuple[Any, ...] = ()
    try:
        dim = plan._dim("restore", x, dim, plan.tokens)
        if is_tensor(x) and x.requires_grad and torch.is_grad_enabled():
            raise Error("E701", "restore: with a group, each process would count the gradient that x requires: "
                                "restore(x.detach(), group=...)")
        said = (plan.homes, str(x.dtype), [*x.shape[:dim], *x.shape[dim + 1:]]), plan.tokens, plan.whole
    except Error as error:
        wrong = error
    everyone: list[Any] = [None] * plan.ranks
    dist.all_gather_object(everyone, said, group=group)  # also after an error, so that nobody waits for this process
    if wrong:
        raise wrong
    for other, its in enumerate(everyone):
        if not its or its[0] != said[0]:
            (homes, dtype, shape), *_ = said
            what = "has met an error" if not its else "has another plan" if its[0][0] != homes else \
                f"restores {its[0][1]}, in other dimensions {its[0][2]}; here they are {dtype}, {shape}"
            raise Error("E706", f"restore: rank {other} {what} (this is rank {rank})")
    with torch.no_grad():
        return cast(Rows, _gathered(plan, x, group, dim, [its[1] for its in everyone], all(its[2] for its in everyone)))


def _rank(plan: Plan, group: Any) -> int:
    """The rank of this process in the group, which must be the plan's."""
    import torch.distributed as dist
    if not dist.is_available() or not dist.is_initialized():
        raise Error("E706", "restore: init_process_group of torch.distributed has not been called")
    if not isinstance(group, dist.ProcessGroup) and group != dist.GroupMember.NON_GROUP_MEMBER:
        hint = ": its get_group() gives one" if hasattr(group, "get_group") else ", by which rows would go"
        raise Error("E706", f"restore: {group!r} is no group of torch.distributed{hint}")
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise Error("E706", "restore: this process is not in the group")
    if size != plan.ranks:
        raise Error("E706", f"restore: the group has {size} processes, and the plan {plan.ranks} ranks")
    if plan.here != range(rank, rank + 1):
        raise Error("E203", f"restore: this process is rank {rank} of the group, and here the plan has ranks "
                            f"{list(plan.here)}")
    return rank


def _gathered(plan: Plan, x: Any, group: Any, dim: int, counts: list[int], known: bool) -> Any:
    """Gathers the rows.

    counts   how many rows each rank has
    known    all processes have the whole plan, and so know where the rows of others belong. Else this is gathered, too
    """
    import torch
    rest = [*x.shape[:dim], *x.shape[dim + 1:]]
    width = math.prod(rest) * x.dtype.itemsize
    if is_array(x):
        import numpy
        mine = torch.from_numpy(numpy.moveaxis(x, dim, 0).flatten().view("uint8"))
    else:
        mine = x.movedim(dim, 0).contiguous().flatten().view(torch.uint8)
    rows = _from_all(mine.view(plan.tokens, width), counts, group)
    if known:
        index = index_of(plan._rows(ranks=range(plan.ranks)), rows)
    else:
        places = index_of(plan._rows(), rows).to(rows.device).view(torch.uint8)
        index = _from_all(places.view(plan.tokens, 8), counts, group).flatten().view(torch.int64).cpu()
    index = reverse(index)
    rows = rows.index_select(0, index.to(rows.device)).flatten()
    if is_array(x):
        return numpy.moveaxis(rows.numpy().view(x.dtype).reshape(-1, *rest), 0, dim).copy()
    return rows.view(x.dtype).view(plan.global_tokens, *rest).movedim(0, dim).contiguous()


def _from_all(mine: Any, counts: list[int], group: Any) -> Any:
    """The rows of all processes, end to end. They are bytes, which every backend can send, and are padded to the same
    size everywhere."""
    import torch
    import torch.distributed as dist
    padded = torch.zeros(max(counts), mine.shape[1], dtype=mine.dtype, device=_device_of(group, mine.device))
    padded[:len(mine)] = mine
    parts = [torch.empty_like(padded) for _ in counts]
    if padded.numel():
        dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:count] for part, count in zip(parts, counts)]).to(mine.device)


def _device_of(group: Any, device: Any) -> Any:
    """Where a tensor must be for a group to send it: NCCL sends none of the CPU."""
    import torch
    import torch.distributed as dist
    kinds = [part.split(":")[0] for part in str(dist.get_backend_config(group)).split(",")]  # "cpu:gloo,cuda:nccl"
    return device if device.type in kinds else torch.device(kinds[0])
