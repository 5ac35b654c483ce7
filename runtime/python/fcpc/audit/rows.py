"""rows.py: which rank has which tokens: the rules of other projects, by name."""
from __future__ import annotations

from typing import Any, Callable, Sequence, Union

import torch

from ..errors import Error

Rows = Union[str, Sequence[Any], Callable[[int, int], Any]]
_Rule = Callable[[Sequence[int], int, int], "list[range]"]


def _pieces(begin: int, length: int, count: int, numbers: Sequence[int]) -> list[range]:
    """Of `count` pieces of a sequence, those with these numbers. The last pieces are shorter, or empty."""
    side = -(-length // count)
    return [range(begin + min(i * side, length), begin + min((i + 1) * side, length)) for i in numbers]


def _contiguous(lengths: Sequence[int], rank: int, ranks: int) -> list[range]:
    return _pieces(0, sum(lengths), ranks, [rank])


def _zigzag(lengths: Sequence[int], rank: int, ranks: int) -> list[range]:
    return _pieces(0, sum(lengths), 2 * ranks, [rank, 2 * ranks - 1 - rank])


def _stripe(lengths: Sequence[int], rank: int, ranks: int) -> list[range]:
    return [range(rank, sum(lengths), ranks)]


def _of_each(lengths: Sequence[int], count: int, numbers: Sequence[int]) -> list[range]:
    """The same pieces of every sequence. Each has `count` equal pieces, so it is filled up with padding, -1."""
    begin, made = 0, []
    for length in lengths:
        side = -(-length // count)
        for piece in _pieces(begin, length, count, numbers):
            made += [piece, range(-1, -1 - side + len(piece), -1)]  # negative numbers stand for padding
        begin += length
    return made


def _contiguous_each(lengths: Sequence[int], rank: int, ranks: int) -> list[range]:
    return _of_each(lengths, ranks, [rank])


def _zigzag_each(lengths: Sequence[int], rank: int, ranks: int) -> list[range]:
    return _of_each(lengths, 2 * ranks, [rank, 2 * ranks - 1 - rank])


RULES: dict[str, _Rule] = {"contiguous": _contiguous, "contiguous_each": _contiguous_each, "stripe": _stripe,
                           "zigzag": _zigzag, "zigzag_each": _zigzag_each}
"""For (lengths of the batch, rank, ranks) the tokens of that rank, as `audit.check` names them for its `rows`."""


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
        made = [[token for piece in RULES[rows](lengths, rank, ranks) for token in piece] for rank in range(ranks)]
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
