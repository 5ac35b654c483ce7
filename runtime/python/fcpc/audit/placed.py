"""placed.py: which token of the batch each row of each rank is.

If every token of the batch has a number of its own, that can be looked up. Otherwise the rows are compared with the
ways to divide a batch that people use, and, if none of them fits, with runs of the batch, the longest first.
"""
from __future__ import annotations

from typing import Callable, Iterator, NamedTuple, Sequence

import torch

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


def _padded(length: int, begin: int, to: int) -> torch.Tensor:
    """The tokens of a sequence, filled up with -1, or cut."""
    tokens = torch.arange(to)
    return torch.where(tokens < length, tokens + begin, PADDING)


def _contiguous(tokens: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    side = -(-len(tokens) // ranks)
    return [tokens[r * side:(r + 1) * side] for r in range(ranks)]


def _zigzag(tokens: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    side = -(-len(tokens) // (2 * ranks))
    pieces = [tokens[i * side:(i + 1) * side] for i in range(2 * ranks)]
    return [torch.cat([pieces[r], pieces[2 * ranks - 1 - r]]) for r in range(ranks)]


def _striped(tokens: torch.Tensor, ranks: int) -> list[torch.Tensor]:
    return [tokens[r::ranks] for r in range(ranks)]


_WAYS: tuple[tuple[str, Callable[[torch.Tensor, int], list[torch.Tensor]]], ...] = (
    ("contiguous", _contiguous), ("zigzag", _zigzag), ("striped", _striped),
    ("contiguous, in parts as equal as can be", lambda tokens, ranks: list(tokens.tensor_split(ranks))))


def rules(lengths: Sequence[int], ranks: int, total: int) -> Iterator[Rule]:
    """The known ways to divide a batch over ranks that have `total` rows together. If these are more than the tokens,
    the batch or each of its sequences is filled up; if they are fewer, it is cut."""
    number, begins = sum(lengths), [sum(lengths[:i]) for i in range(len(lengths))]
    said = "" if total == number else ", filled up" if total > number else ", cut"
    for name, way in _WAYS:
        yield Rule(f"{name}{said}", way(_padded(number, 0, total), ranks))
    if len(lengths) < 2:
        return
    sizes = {tuple(lengths)}
    for unit in ranks, 2 * ranks:
        sizes |= {tuple(-(-n // unit) * unit for n in lengths), tuple(n // unit * unit for n in lengths)}
    if total % len(lengths) == 0:
        sizes.add((total // len(lengths),) * len(lengths))
    for padded in sorted(sizes):
        if sum(padded) == total:
            for name, way in _WAYS:
                parts = [way(_padded(n, begin, to), ranks) for n, begin, to in zip(lengths, begins, padded)]
                yield Rule(f"{name} within each sequence{said}", [torch.cat(own) for own in zip(*parts)])


def place(tokens: list[torch.Tensor], pads: list[torch.Tensor], whole: torch.Tensor, lengths: Sequence[int],
          first: Rule | None, wrong: Callable[[list[torch.Tensor]], int]) -> Placed:
    """Which token each row is.

    tokens   for each rank, the numbers of its rows, int64
    pads     for each rank, bool: which rows may be padding
    whole    int64 [tokens]: the numbers of the batch
    first    the way that the caller says, which is tried before all others
    wrong    a function of the tokens of each rank that says how much else would then be wrong. Where tokens have the
             same numbers and several ways fit, the one with the least is taken
    """
    fits = []
    for rule in [*([first] if first else ()), *rules(lengths, len(tokens), sum(map(len, tokens)))]:
        if all(len(own) == len(row) and bool(torch.where(row >= 0, own == whole[row.clamp(min=0)], pad).all())
               for own, row, pad in zip(tokens, rule.rows, pads)) and len(whole):
            if first is not None and rule is first:
                return Placed(first.rows, first.name)
            fits.append(rule)
    unique, order = whole.sort()
    looked_up = not len(unique) or not bool((unique[1:] == unique[:-1]).any())
    if fits and not looked_up:
        best = min(fits, key=lambda rule: wrong(rule.rows))
        return Placed(best.rows, best.name)
    if looked_up:
        made = [_look_up(own, unique, order) for own in tokens]
    else:
        held: set[int] = set()
        parts = {tuple(own.tolist()): own for own in tokens}  # ranks that hold the same numbers hold the same tokens
        found = [_runs(own.tolist(), whole.tolist(), held) for own in parts.values()]
        _share_out(found, whole)
        of = dict(zip(parts, found))
        made = [of[tuple(own.tolist())].clone() for own in tokens]
    made = [torch.where((at == FOREIGN) & pad, PADDING, at) for at, pad in zip(made, pads)]
    _take_back(made, pads, len(whole))
    name = next((rule.name for rule in fits if all(torch.equal(a, b) for a, b in zip(rule.rows, made))), None)
    return Placed(made, name)


def _look_up(own: torch.Tensor, unique: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    if not len(unique):
        return torch.full_like(own, FOREIGN)
    at = torch.searchsorted(unique, own).clamp(max=len(unique) - 1)
    return torch.where(unique[at] == own, order[at], FOREIGN)


_GRAM = 4


def _runs(own: list[int], whole: list[int], held: set[int]) -> torch.Tensor:
    """Covers rows with runs of the batch: at each row the longest one that begins there, rather one that nobody has."""
    grams: dict[tuple[int, ...], list[int]] = {}
    for size in range(1, _GRAM + 1):
        for i in range(len(whole) - size + 1):
            grams.setdefault(tuple(whole[i:i + size]), []).append(i)
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


def _take_back(made: list[torch.Tensor], pads: list[torch.Tensor], number: int) -> None:
    """Rows of padding may have the number of a real token. They are padding if another row has that token."""
    held = torch.cat(made)
    times = torch.bincount(held[held >= 0], minlength=number)
    for at, pad in zip(made, pads):
        for row in pad.nonzero()[:, 0].tolist():
            if at[row] >= 0 and times[at[row]] > 1:
                times[at[row]] -= 1
                at[row] = PADDING
