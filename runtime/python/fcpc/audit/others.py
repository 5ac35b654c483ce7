"""others.py: context parallelism of other projects, as `audit.check` takes it.

Each function gives (attention, rows) for a group of torch.distributed: what `check` calls on each rank, and which
tokens each rank has. All processes of the group call it.

    attention, rows = others.torch_sdpa(group, [256])
    print(audit.check(attention, fcpc.program("causal", head_dim=16, dtype="fp32"), [256], group, rows=rows))

What is run is the other project's own code: its split of tokens, its communication, its merging, its gradients. On a
GPU so are its kernels. On the CPU some are not there, and each function says what stands in for them.
"""
from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import Any, Callable, Iterator, Sequence, Tuple

import torch
import torch.nn.functional as F

from ..errors import Error

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Audited = Tuple[Attention, "list[torch.Tensor]"]
IN_TORCH = "torch.distributed.tensor.experimental._context_parallel._attention"
"""The module of torch that has its context parallelism."""


def torch_sdpa(group: Any, lengths: Sequence[int], *, causal: bool = True, balance: bool = True,
               rotate: str = "allgather", device: str = "cpu") -> Audited:
    """torch's `context_parallel` around scaled_dot_product_attention: (attention, rows).

    lengths  of the sequences. All are alike, because they are the rows of torch's batch, and ranks divide them. Lengths
             that 2 * ranks do not divide turn load balance off: that is torch's rule
    causal   else every query sees every key, which torch has without load balance only
    balance  whether a rank has a piece of the head and one of the tail
    rotate   how keys go round: "allgather" or "alltoall"

    On the CPU torch has no ring for its own kernel. Here it gets one: torch's ring around
    `_scaled_dot_product_flash_attention_for_cpu`, entered in its table as its GPU kernels are. The audit calls
    backward() after attention, and torch wants it inside of `context_parallel`, so it is entered once more for that.

    Errors: E203 (other lengths)
    """
    own = _own_torch()
    ranks, length = group.size(), lengths[0]
    if any(x != length for x in lengths) or length % ranks:
        raise Error("E203", f"audit: torch's context_parallel has rows of one length, which its {ranks} ranks divide, "
                            f"and these are {list(lengths)}")
    mesh = _mesh(group, device)

    @contextlib.contextmanager
    def parallel() -> Iterator[torch.Tensor]:
        """The context of torch; gives the places that this rank has of a sequence."""
        options, places = own._cp_options, torch.arange(length, device=device)
        with _changed(options, "enable_load_balance", balance and causal), \
                _changed(options, "rotate_method", options.rotate_method), \
                _changed(own, "_dispatch_mode", own._dispatch_mode), _cpu_ring(own):
            own.set_rotate_method(rotate)
            with own.context_parallel(mesh, buffers=[places], buffer_seq_dims=[0]):
                yield places

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.unflatten(0, (len(lengths), -1)).transpose(1, 2) for x in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
        return o.transpose(1, 2).flatten(0, 1)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = _Within.apply(parallel, run, q, k, v)
        return made
    with parallel() as places:
        mine = torch.cat([places + i * length for i in range(len(lengths))]).cpu()
    return attention, _of_all(mine, group)


def torch_flex(group: Any, mask_mod: Callable[..., Any], tokens: int, *, balance: str | Sequence[int] | None = None,
               device: str = "cpu") -> Audited:
    """torch's `_ContextParallel` for FlexAttention, which gathers keys and values: (attention, rows).

    mask_mod  FlexAttention's function of (b, h, q_idx, kv_idx), places in the packed batch; heads are alike
    tokens    of the whole batch, a multiple of 128 * ranks: torch refuses others
    balance   torch's load balancer: None, "head-tail", "ptrr" (by the mask's blocks), or the lengths of documents, each
              a multiple of 2 * ranks (head-tail per document)

    Nothing is compiled, so that each mask does not cost seconds: flex_attention and create_block_mask run as they do
    when they are debugged. On the CPU flex_attention has a backward pass only so, and torch refuses it because the
    compiled one has none: this refusal is left out.

    Errors: E203 (no such load balancer), those of torch
    """
    from torch.distributed.tensor.experimental._context_parallel import _load_balancer as balancers
    from torch.distributed.tensor.parallel import parallelize_module
    from torch.nn.attention import flex_attention as flex
    own, ranks, mesh = _own_torch(), group.size(), _mesh(group, device)
    whole = flex.create_block_mask(mask_mod, 1, 1, tokens, tokens, device=device)
    balancer: Any = None
    if balance == "head-tail":
        balancer = balancers._HeadTailLoadBalancer(tokens, ranks, device)
    elif balance == "ptrr":
        balancer = balancers._PTRRLoadBalancer(whole, ranks)
    elif isinstance(balance, str):
        raise Error("E203", f'audit: balance="{balance}" is not known: None, "head-tail", "ptrr", or lengths')
    elif balance is not None:
        of_documents: Any = balancers._PerDocumentHeadTailLoadBalancer
        balancer = of_documents([list(balance)], ranks, device)
    options = own._cp_options
    with _changed(own, "_compiled_create_block_mask", flex.create_block_mask), \
            _changed(options, "enable_load_balance", options.enable_load_balance), \
            _changed(own, "_dispatch_mode", own._dispatch_mode):
        places, mask = own._context_parallel_shard(mesh, [torch.arange(tokens, device=device), whole], [0, 0], balancer)

    class Inner(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **more: Any) -> Any:
            return flex.flex_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **more)
    kind = own._ContextParallel
    inner = parallelize_module(Inner(), mesh, kind(seq_dim=2, attention_type=kind.AttentionType.FLEX))

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x[None].transpose(1, 2) for x in (q, k, v))
        check = flex._validate_device if q.is_cuda else lambda *_: None
        with _changed(flex, "_validate_device", check), warnings.catch_warnings(), \
                _changed(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
            warnings.simplefilter("ignore")  # that nothing is compiled
            o: torch.Tensor = inner(q, k, v, block_mask=mask)
        return o.transpose(1, 2)[0]
    return attention, _of_all(places.cpu(), group)


def deepspeed_ulysses(kind: Any, group: Any, mask_mod: Callable[..., Any], tokens: int, *,
                      device: str = "cpu") -> Audited:
    """`DistributedAttention` of DeepSpeed, which exchanges tokens for heads: (attention, rows).

        from deepspeed.sequence.layer import DistributedAttention
        attention, rows = others.deepspeed_ulysses(DistributedAttention, group, mask_mod, 256)

    kind      that class, or one that is called alike
    mask_mod  as `torch_flex` takes it. Attention within a rank, which has all tokens, is torch's with this mask
    tokens    of the whole batch. Ranks divide it

    Errors: E203 (they do not)
    """
    if tokens % group.size():
        raise Error("E203", f"audit: DistributedAttention gives {group.size()} ranks as many tokens each, and there "
                            f"are {tokens}")
    at = torch.arange(tokens, device=device)
    zero = torch.zeros((), dtype=torch.int64, device=device)
    allowed = mask_mod(zero, zero, at[:, None], at[None, :])

    def local(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (q, k, v))  # from [tokens, 1, heads, numbers]
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, enable_gqa=q.shape[1] != k.shape[1])
        return o.permute(2, 0, 1, 3)
    distributed = kind(local, group, scatter_idx=2, gather_idx=0)

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = distributed(q[:, None], k[:, None], v[:, None], 1)
        return made.reshape(q.shape[0], q.shape[1], v.shape[2])
    return attention, list(torch.arange(tokens).chunk(group.size()))


class _Within(torch.autograd.Function):
    """Runs a function, and its backward pass, each within a context."""

    @staticmethod
    def forward(ctx: Any, context: Any, run: Attention, *inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            ctx.inputs = [x.detach().requires_grad_() for x in inputs]
            with context():
                ctx.made = run(*ctx.inputs)
        ctx.context = context
        made: torch.Tensor = ctx.made.detach()
        return made

    @staticmethod
    def backward(ctx: Any, d_o: torch.Tensor) -> Any:
        with ctx.context():
            return None, None, *torch.autograd.grad(ctx.made, ctx.inputs, d_o)


@contextlib.contextmanager
def _cpu_ring(own: Any) -> Iterator[None]:
    """While it lasts, torch's table of rings has one for attention on the CPU."""
    from torch.distributed.tensor import DTensor, Shard
    aten = torch.ops.aten
    forward, backward = (aten._scaled_dot_product_flash_attention_for_cpu.default,
                         aten._scaled_dot_product_flash_attention_for_cpu_backward.default)

    def sharded(made: Any, mesh: Any) -> Any:
        return tuple(DTensor.from_local(x, mesh, [Shard(2)], run_check=False) for x in made)

    def ring(_: Any, args: Any, kwargs: Any) -> Any:
        q, k, v = args[:3]
        dropout, causal = (list(args[3:]) + [0.0, False][len(args) - 3:])
        if dropout or kwargs.get("attn_mask") is not None:
            raise Error("E203", "audit: torch's ring has no dropout on the CPU and no attn_mask")
        return sharded(own._templated_ring_attention(
            q.device_mesh.get_group(), 2, lambda q, k, v, is_causal, **more: forward(q, k, v, 0.0, is_causal, **more),
            q.to_local(), k.to_local(), v.to_local(), is_causal=causal, scale=kwargs.get("scale")), q.device_mesh)

    def ring_backward(_: Any, args: Any, kwargs: Any) -> Any:
        d_o, q, k, v, o, lse = (x.to_local() for x in args[:6])
        return sharded(own._templated_ring_attention_backward(
            args[1].device_mesh.get_group(), 2,
            lambda grad_out, query, key, value, out, logsumexp, is_causal, **more: backward(
                grad_out, query, key, value, out, logsumexp, 0.0, is_causal, **more),
            d_o, "grad_out", q, k, v, o, lse, args[7], scale=kwargs.get("scale")), args[1].device_mesh)
    table, before = own.custom_ops, dict(own.custom_ops)
    table.update({forward: ring, backward: ring_backward})
    try:
        yield
    finally:
        table.clear()
        table.update(before)


@contextlib.contextmanager
def _changed(of: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of another module has another value."""
    before = getattr(of, name)
    setattr(of, name, value)
    try:
        yield
    finally:
        setattr(of, name, before)


def _own_torch() -> Any:
    """The module that has torch's context parallelism. Errors: E702 (this torch has it not, or elsewhere)"""
    try:
        own = importlib.import_module(IN_TORCH)
        for name in ("context_parallel", "custom_ops", "_context_parallel_shard", "_cp_options", "_ContextParallel",
                     "_compiled_create_block_mask", "_templated_ring_attention", "_templated_ring_attention_backward"):
            getattr(own, name)
    except (ImportError, AttributeError) as error:
        raise Error("E702", f"torch {torch.__version__} has its context parallelism elsewhere than torch 2.14.1, with "
                            f"which audits of it were tested ({error})") from None
    return own


def _mesh(group: Any, device: str) -> Any:
    from torch.distributed.device_mesh import DeviceMesh
    return DeviceMesh.from_group(group, torch.device(device).type)


def _of_all(mine: torch.Tensor, group: Any) -> list[torch.Tensor]:
    """The tokens of each rank."""
    made: list[Any] = [None] * group.size()
    torch.distributed.all_gather_object(made, mine.long(), group=group)
    return made
