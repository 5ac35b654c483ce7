"""programs.py: random programs and batches, limited to what an implementation says it can do."""
from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch

from ..errors import Error
from ..program import Program, program
from .rows import Rows

MASKS = {"causal": "causal", "full": "full", "window": "causal and q - k < {}",
         "window_both": "q - k < {0} and k - q < {0}"}
"""What each mask is in the language. {} is the trial's window."""


@dataclass(frozen=True)
class Trial:
    """One program and one batch: what attention has to compute in one call of `audit.check`.

    number     which of the random programs it is, from 0 on
    mask       "causal", "full", "window" (causal, and the last `window` keys) or "window_both" (fewer than `window`
               keys away, on both sides); "" if the script has a program of its own
    window     keys, a query's own counted; 0: no window. FlashAttention's window_size is window - 1
    lengths    tokens of each sequence. Sequences are packed, and do not see each other
    heads, kv_heads, head_dim   of q and o, of k and v, numbers of each
    rank, ranks, group          who we are, and the group of torch.distributed
    program    the same as fcpc understands it
    choose     random.Random, alike on all ranks, for what else an implementation has to choose
    """
    number: int
    mask: str
    window: int
    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    head_dim: int
    rank: int
    ranks: int
    group: Any
    program: Program = field(repr=False)
    choose: random.Random = field(repr=False)

    @property
    def tokens(self) -> int:
        """How many tokens all sequences have."""
        return sum(self.lengths)

    @property
    def causal(self) -> bool:
        """Whether no query sees a key behind it."""
        return self.mask in ("causal", "window")

    @property
    def cu_seqlens(self) -> torch.Tensor:
        """Where sequences begin in the packed batch, and the end of the last: int32 [sequences + 1]."""
        return torch.tensor([0, *self.lengths]).cumsum(0).to(torch.int32)

    @property
    def mask_mod(self) -> Callable[..., Any]:
        """The mask as a function of (b, h, q_idx, kv_idx), as FlexAttention takes it: places in the packed batch.

        Errors: E203 (the file has a program of its own)
        """
        if not self.mask:
            raise Error("E203", "audit: the trial has a program of its own, and no mask_mod")
        sequence = torch.repeat_interleave(torch.arange(len(self.lengths)), torch.tensor(self.lengths))
        near = self.window if self.window else self.tokens
        causal = self.causal

        def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            same = (sequence[q_idx] == sequence[kv_idx]) & (q_idx - kv_idx < near)
            return same & (q_idx >= kv_idx) if causal else same & (kv_idx - q_idx < near)
        return mask_mod

    def __str__(self) -> str:
        window = f" of {self.window}" if self.window else ""
        mask = self.mask + window if self.mask else "the program of the file"
        return (f"program {self.number}: {mask}, lengths {list(self.lengths)}, {self.heads} heads, {self.kv_heads} of "
                f"keys, head_dim {self.head_dim}")

_KINDS: dict[str, tuple[type, ...]] = {
    "masks": (list, tuple), "sequences": (int,), "equal": (bool,), "longest": (int,), "head_dim": (list, tuple),
    "dtype": (torch.dtype,), "device": (str, torch.device), "backward": (bool,),
    "program": (str, Program, type(None)), "lengths": (list, tuple, type(None))}


@dataclass(frozen=True)
class Subject:
    """What is audited, and what it says that it can do.

    make       a function of a Trial that gives (attention, rows) for `audit.check`
    masks      names of MASKS
    sequences  the most sequences of a batch; equal: all have the same length
    each       lengths are multiples of it, a number or a function of the number of ranks
    total      the same of the sum of all lengths
    longest    about the most tokens of a batch
    heads      pairs (heads, kv_heads), numbers or a function of the number of ranks that gives them
    head_dim   numbers of a head: choices
    dtype, device   of q, k and v
    backward   whether gradients are compared
    program, lengths   one program and batch in place of random ones; both or neither
    """
    name: str
    make: Callable[[Trial], tuple[Callable[..., Any], Rows]]
    masks: Sequence[str] = ("causal",)
    sequences: int = 3
    equal: bool = False
    each: int | Callable[[int], int] = 1
    total: int | Callable[[int], int] = 1
    longest: int = 96
    heads: Any = ((4, 4), (4, 2), (4, 1))
    head_dim: Sequence[int] = (16, 32)
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    backward: bool = True
    program: Any = None
    lengths: Any = None

    def __post_init__(self) -> None:
        for name, kinds in _KINDS.items():
            if not isinstance(getattr(self, name), kinds):
                said = " or ".join(x.__name__ for x in kinds)
                given = type(getattr(self, name)).__name__
                raise Error("E203", f"audit: {name} is of type {given}: {said} is expected")
        for mask in self.masks:
            if mask not in MASKS:
                raise Error("E203", f"audit: masks has {mask!r}: it has some of {', '.join(MASKS)}")
        if (self.program is None) != (self.lengths is None):
            raise Error("E203", "audit: program and lengths go together: one says what attention computes, the other "
                                "of which batch")
        if not self.masks or self.sequences < 1 or self.longest < 1:
            raise Error("E203", "audit: masks, sequences and longest leave no batch")


def draw(subject: Subject, number: int, seed: int, group: Any) -> Trial:
    """A random program and batch that the subject can do: of the same numbers the same on all ranks."""
    ranks, drawn = group.size(), random.Random(f"{seed} {number}")
    pairs = subject.heads(ranks) if callable(subject.heads) else subject.heads
    (heads, kv_heads), dim = drawn.choice(list(pairs)), drawn.choice(list(subject.head_dim))
    each, total = (x(ranks) if callable(x) else x for x in (subject.each, subject.total))
    if subject.program is not None:
        of, lengths = subject.program, tuple(subject.lengths)
        if isinstance(of, str):
            of = program(of, heads=heads, kv_heads=kv_heads, head_dim=dim, dtype="fp32")
        plan = of.plan(list(lengths))
        return Trial(number, "", 0, lengths, plan.heads, plan.kv_heads, plan.head_dim, group.rank(), ranks, group, of,
                     drawn)
    lengths = _lengths(subject, each, total, drawn)
    mask = drawn.choice(list(subject.masks))
    window = drawn.randint(1, max(lengths)) if "{" in MASKS[mask] else 0
    of = program(MASKS[mask].format(window), heads=heads, kv_heads=kv_heads, head_dim=dim, dtype="fp32")
    return Trial(number, mask, window, lengths, heads, kv_heads, dim, group.rank(), ranks, group, of, drawn)


def _lengths(subject: Subject, each: int, total: int, drawn: random.Random) -> tuple[int, ...]:
    count = drawn.randint(1, subject.sequences)
    if subject.equal:
        step = math.lcm(each * count, total)
        return (step * drawn.randint(1, max(1, subject.longest // step)) // count,) * count
    step = math.lcm(each, total)
    tokens = step * drawn.randint(1, max(1, subject.longest // step))
    units = tokens // each
    cuts = sorted(drawn.sample(range(1, units), min(count, units) - 1))
    return tuple(each * (b - a) for a, b in zip([0, *cuts], [*cuts, units]))
