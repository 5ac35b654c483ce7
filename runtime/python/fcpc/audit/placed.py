"""placed.py: which token of the batch each row of each rank is.

If every token of the batch has a number of its own, that can be looked up. Otherwise the rows are compared with the
ways to divide a batch that people use, and, if none of them fits, with runs of the batch, the longest first.
"""
from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import torch

from .rows import WAYS, Way, of_each, padded

PADDING, FOREIGN = -1, -2
"""In place of a token: a row of padding, and a row whose number no token of the batch has."""


class Rule(NamedTuple):
    """A way to divide a batch: its name, and the tokens of each rank, int64, where -1 is a row of padding."""
    name: str
    rows: list[torch.Tensor]


class Placed(NamedTuple):
    """at: for each rank, the token of each row, int64; also PADDING and FOREIGN. rule: the name of the way that fits,
    or None."""
    at: list[torch.Tensor]
    rule: str | None


_WAYS: tuple[tuple[str, Way], ...] = (
    ("contiguous", WAYS["contiguous"]), ("zigzag", WAYS["zigzag"]), ("striped", WAYS["stripe"]),
    ("contiguous, in parts as equal as can be", lambda tokens, ranks: list(tokens.tensor_split(ranks))))


def rules(lengths: Sequence[int], ranks: int, total: int) -> Iterator[Rule]:
    """The known ways to divide a batch over ranks that have `total` rows together. If these are more than the tokens,
    the batch or each of its sequences is filled up; if they are fewer, it is cut."""
    number = sum(lengths)
    said = "" if total == number else ", filled up" if total > number else ", cut"
    for name, way in _WAYS:
        yield Rule(f"{name}{said}", way(padded(number, 0, total), ranks))
    if len(lengths) < 2:
        return
    sizes = {tuple(lengths)}
    for unit in ranks, 2 * ranks:
        sizes |= {tuple(-(-n // unit) * unit for n in lengths), tuple(n // unit * unit for n in lengths)}
    if total % len(lengths) == 0:
        sizes.add((total // len(lengths),) * len(lengths))
    for to in sorted(sizes):
        if sum(to) == total:
            for name, way in _WAYS:
                yield Rule(f"{name} within each sequence{said}", of_each(way, lengths, to, ranks))


class Column(NamedTuple):
    """Numbers that rows have: those of each rank's rows, and those of the batch's tokens, int64."""
    held: list[torch.Tensor]
    whole: torch.Tensor


def place(columns: list[Column], pads: list[torch.Tensor], lengths: Sequence[int], first: Rule | None) -> Placed:
    """Which token each row is.

    columns  the numbers of tokens; behind them others, such as positions and labels. Where tokens have the same numbers
             and several places are possible, those are taken at which least of the others is wrong
    pads     for each rank, bool: which rows may be padding
    first    the way that the caller says, which is tried before all others
    """
    tokens, whole = columns[0]
    sizes = [len(own) for own in tokens]
    known, fits = [*([first] if first else ()), *rules(lengths, len(tokens), sum(sizes))], []
    for rule in known:
        if all(len(own) == len(row) and bool(torch.where(row >= 0, own == whole[row.clamp(min=0)], pad).all())
               for own, row, pad in zip(tokens, rule.rows, pads)) and len(whole):
            if first is not None and rule is first:
                return Placed(first.rows, first.name)
            fits.append(rule)
    if fits:
        rule = min(fits, key=lambda rule: _wrong(rule.rows, columns))
        return Placed(rule.rows, rule.name)
    unique, order = whole.sort()
    if len(unique) and bool((unique[1:] == unique[:-1]).any()):
        best = min((_nearly(rule, columns[0], pads) for rule in known if [len(x) for x in rule.rows] == sizes),
                   key=lambda near: _wrong(near.at, columns), default=None)
        if best is not None and sum(int((at == FOREIGN).sum()) for at in best.at) * 20 <= sum(sizes):
            return best
        made = _searched(columns, pads)
        if best is not None and _wrong(best.at, columns) <= _wrong(made, columns):
            return best
        return Placed(made, None)
    made = [_look_up(own, unique, order) for own in tokens]
    _tell_padding(made, pads, len(whole))
    return Placed(made, None)


def _nearly(rule: Rule, tokens: Column, pads: list[torch.Tensor]) -> Placed:
    """A way that some rows do not fit."""
    return Placed([torch.where((at >= 0) & (own == tokens.whole[at.clamp(min=0)]), at,
                               torch.where(pad, PADDING, FOREIGN))
                   for at, own, pad in zip(rule.rows, tokens.held, pads)], rule.name)


def _wrong(rows: list[torch.Tensor], columns: list[Column]) -> int:
    """How many numbers would be wrong if rows are these tokens, and how many tokens are not there once."""
    wrong = sum(int((own != column.whole[at.clamp(min=0)])[at >= 0].sum())
                for column in columns for own, at in zip(column.held, rows))
    held = torch.cat(rows)
    times = torch.bincount(held[held >= 0], minlength=len(columns[0].whole))
    return wrong + int((times != 1).sum() + (held == FOREIGN).sum())


def _searched(columns: list[Column], pads: list[torch.Tensor]) -> list[torch.Tensor]:
    """The places that runs of the batch show: of all numbers together, then of fewer, because some may be wrong."""
    best, least = [], -1
    for more in [columns[1:], *([x] for x in columns[1:] if len(columns) > 2), []]:
        some, sizes = [columns[0], *more], [len(x) for x in columns[0].held]
        both = torch.cat([torch.stack([torch.cat(x.held) for x in some], 1),
                          torch.stack([x.whole for x in some], 1)])
        number = both.unique(dim=0, return_inverse=True)[1]  # the same for the same numbers
        rows, whole = number[:sum(sizes)], number[sum(sizes):]
        numbers, held = whole.tolist(), set[int]()
        grams = _grams(numbers)
        parts = {tuple(own.tolist()): own for own in rows.split(sizes)}  # ranks with the same numbers have the same
        found = [_runs(list(own), numbers, grams, held) for own in parts]
        _share_out(found, whole)
        of = dict(zip(parts, found))
        made = [of[tuple(own.tolist())].clone() for own in rows.split(sizes)]
        _tell_padding(made, pads, len(whole))
        wrong = _wrong(made, columns)
        if least < 0 or wrong < least:
            best, least = made, wrong
        if least == 0:
            break
    return best


def _look_up(own: torch.Tensor, unique: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    if not len(unique):
        return torch.full_like(own, FOREIGN)
    at = torch.searchsorted(unique, own).clamp(max=len(unique) - 1)
    return torch.where(unique[at] == own, order[at], FOREIGN)


_GRAM = 4


def _grams(whole: list[int]) -> dict[tuple[int, ...], list[int]]:
    """Where each sequence of up to _GRAM numbers begins in the batch."""
    grams: dict[tuple[int, ...], list[int]] = {}
    for size in range(1, _GRAM + 1):
        for i in range(len(whole) - size + 1):
            grams.setdefault(tuple(whole[i:i + size]), []).append(i)
    return grams


def _runs(own: list[int], whole: list[int], grams: dict[tuple[int, ...], list[int]], held: set[int]) -> torch.Tensor:
    """Covers rows with runs of the batch: at each row the longest one that begins there, rather one that nobody has."""
    made: list[int] = []
    row = 0
    while row < len(own):
        found: list[int] = []
        for size in range(min(_GRAM, len(own) - row), 0, -1):
            found = grams.get(tuple(own[row:row + size]), [])
            if found:
                break
        best, most = FOREIGN, (0, 0)
        for begin in found:
            length = 0
            while row + length < len(own) and begin + length < len(whole) and \
                    own[row + length] == whole[begin + length]:
                length += 1
            free = sum(begin + i not in held for i in range(length))
            if (free, length) > most:
                best, most = begin, (free, length)
        count = max(most[1], 1)
        made += [FOREIGN] if best == FOREIGN else range(best, best + count)
        held.update(made[row:])
        row += count
    return torch.tensor(made, dtype=torch.int64)


def _share_out(made: list[torch.Tensor], whole: torch.Tensor) -> None:
    """Of tokens with the same number, one that is held twice becomes one that is lost: runs may go too far by chance.
    The row that continues its neighbour with the lost token is changed, else the last one."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for rank, at in enumerate(made):
        for row, token in enumerate(at.tolist()):
            if token >= 0:
                rows.setdefault(token, []).append((rank, row))
    twice: dict[int, list[int]] = {}
    for token, where in rows.items():
        if len(where) > 1:
            twice.setdefault(int(whole[token]), []).append(token)
    for lost in set(range(len(whole))) - set(rows):
        options = twice.get(int(whole[lost]), [])
        if not options:
            continue
        token = options[0]

        def continues(where: tuple[int, int]) -> bool:
            at, row = made[where[0]], where[1]
            return row + 1 < len(at) and int(at[row + 1]) == lost + 1 or row > 0 and int(at[row - 1]) == lost - 1
        rank, row = max(rows[token], key=lambda where: (continues(where), where))
        made[rank][row] = lost
        rows[token].remove((rank, row))
        if len(rows[token]) == 1:
            options.remove(token)


def _tell_padding(made: list[torch.Tensor], pads: list[torch.Tensor], number: int) -> None:
    """Rows that may be padding are, if their number is no token's, or if another row has that token."""
    for at, pad in zip(made, pads):
        at[(at == FOREIGN) & pad] = PADDING
    held = torch.cat(made)
    times = torch.bincount(held[held >= 0], minlength=number)
    for at, pad in reversed(list(zip(made, pads))):  # rows are filled up at their ends
        for row in pad.nonzero()[:, 0].flip(0).tolist():
            if at[row] >= 0 and times[at[row]] > 1:
                times[at[row]] -= 1
                at[row] = PADDING
