"""rows.py: which rank has which tokens: the rules of other projects, by name."""
from __future__ import annotations

from typing import Any, Callable, Sequence, Union

import torch

from ..errors import Error

Rows = Union[str, Sequence[Any], Callable[[int, int], Any]]
Way = Callable[[torch.Tensor, int], "list[torch.Tensor]"]
"""Divides tokens, int64, among a number of ranks: gives those of each rank."""


def _contiguous(tokens: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    side = -(-len(tokens) // ranks)
    return [tokens[r * side:(r + 1) * side] for r in range(ranks)]


def _zigzag(tokens: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    pieces = _contiguous(tokens, 2 * ranks)
    return [torch.cat([pieces[r], pieces[2 * ranks - 1 - r]]) for r in range(ranks)]


def _stripe(tokens: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    return [tokens[r::ranks] for r in range(ranks)]


WAYS: dict[str, Way] = {"contiguous": _contiguous, "zigzag": _zigzag, "stripe": _stripe}


def padded(length: int, begin: int, to: int) -> torch.Tensor:
    """The tokens of a sequence that begins at `begin`: `to` of them, filled up with -1, or cut."""
    tokens = torch.arange(to)
    return torch.where(tokens < length, tokens + begin, -1)


def of_each(way: Way, lengths: Sequence[int], to: Sequence[int], ranks: int) -> list[torch.Tensor]:
    """The tokens of each rank where every sequence is divided by itself, after it has been filled up or cut to `to`."""
    begins = [sum(lengths[:i]) for i in range(len(lengths))]
    parts = [way(padded(*one), ranks) for one in zip(lengths, begins, to)]
    return [torch.cat([torch.zeros(0, dtype=torch.int64), *(part[rank] for part in parts)]) for rank in range(ranks)]


def _of_batch(way: Way) -> Callable[[Sequence[int], int], list[torch.Tensor]]:
    return lambda lengths, ranks: way(torch.arange(sum(lengths)), ranks)


def _of_sequences(way: Way, pieces: int) -> Callable[[Sequence[int], int], list[torch.Tensor]]:
    """Each sequence is filled up until its pieces, so many for each rank, are equal."""
    return lambda lengths, ranks: of_each(way, lengths, [-(-n // (pieces * ranks)) * pieces * ranks for n in lengths],
                                          ranks)


RULES: dict[str, Callable[[Sequence[int], int], list[torch.Tensor]]] = {
    "contiguous": _of_batch(_contiguous), "contiguous_each": _of_sequences(_contiguous, 1),
    "stripe": _of_batch(_stripe), "zigzag": _of_batch(_zigzag), "zigzag_each": _of_sequences(_zigzag, 2)}
"""For (lengths of the batch, ranks) the tokens of each rank, as `audit.check` names them for its `rows`."""


def order_of(rows: Rows, lengths: Sequence[int] | int, ranks: int) -> list[torch.Tensor]:
    """Which tokens each rank has, int64; -1 is a row of padding.

    rows     a name of RULES, a list with the tokens of each rank, or a function of (rank, ranks)
    lengths  of the batch's sequences; a number stands for one sequence

    Errors: E203 (an unknown name, other lists than ranks, a token twice or not at all)
    """
    lengths = [lengths] if isinstance(lengths, int) else lengths
    tokens = sum(lengths)
    if callable(rows):
        made = [rows(rank, ranks) for rank in range(ranks)]
    elif isinstance(rows, str):
        if rows not in RULES:
            raise Error("E203", f'audit: rows="{rows}" is not known: one of {", ".join(RULES)}, a list with the tokens '
                                "of each rank, or a function of (rank, ranks) that gives them")
        made = RULES[rows](lengths, ranks)
    else:
        made = list(rows)
    if len(made) != ranks:
        raise Error("E203", f"audit: rows has the tokens of {len(made)} ranks, and there are {ranks}")
    order = [torch.as_tensor(list(x) if isinstance(x, range) else x, dtype=torch.int64).reshape(-1).clamp(min=-1)
             for x in made]
    held = torch.cat(order)
    times = torch.bincount(held[held >= 0], minlength=tokens)
    wrong = (times != 1).nonzero()
    if len(times) > tokens or len(wrong):
        token = int(wrong[0]) if len(wrong) else len(times) - 1
        raise Error("E203", f"audit: rows names token {token} {int(times[token])} times, and the batch has {tokens} "
                            "tokens, of which each rank holds some: each is there once, and -1 is padding")
    return order
