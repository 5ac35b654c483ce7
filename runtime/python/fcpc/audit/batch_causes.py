"""batch_causes.py: patterns of faulty loaders that are known, each with what it would give.

A cause is named if what it gives equals all that was seen. A new pattern is one more line that yields (the cause in
words, what each rank would have).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterator, Tuple

import torch

from .loaded import NONE, Held, Whole, shifted_rows
from .placed import FOREIGN, PADDING, Rule, rules
from .report import Finding

SHIFTED = "labels shifted after the division"
LOCAL_POSITIONS = "positions restart on each rank: they count its own rows"
Guess = Iterator[Tuple[str, "list[torch.Tensor]"]]


@dataclass(frozen=True)
class Loaded:
    """What ranks hold, and which token each of their rows is (placed.py); first: which they should have."""
    held: list[Held]
    whole: Whole
    at: list[torch.Tensor]
    first: Rule | None

    @property
    def ranks(self) -> int:
        return len(self.held)

    def of(self, values: torch.Tensor, rows: list[torch.Tensor] | None = None, other: int = NONE) -> list[torch.Tensor]:
        """Numbers of tokens, for each rank's rows; `other` where a row has no token."""
        return [torch.where(at >= 0, values[at.clamp(min=0)], other) if len(values) else torch.full_like(at, other)
                for at in (self.at if rows is None else rows)]

    def orders(self) -> Iterator[Rule]:
        """Other orders that rows could have: those that are known, and those of other ranks."""
        sizes = [len(at) for at in self.at]
        for rule in [*rules(self.whole.lengths, self.ranks, sum(sizes)), *([self.first] if self.first else [])]:
            if [len(x) for x in rule.rows] == sizes:
                if not all(torch.equal(a, b) for a, b in zip(rule.rows, self.at)):
                    yield rule
        for step in range(1, self.ranks):
            moved = [self.at[(rank + step) % self.ranks] for rank in range(self.ranks)]
            if [len(x) for x in moved] == sizes:
                yield Rule(f"those of the rank {step} further", moved)


def of_tokens(case: Loaded, kinds: set[str]) -> Iterator[str]:
    """Tokens that are there twice, or nowhere."""
    at, whole = case.at, case.whole
    every = torch.arange(len(whole.place))
    if case.ranks > 1 and len(every):
        if all(torch.equal(x[x >= 0].sort().values, every) for x in at):
            yield "not divided: every rank holds the whole batch"
            return
        if len(at[0]) and all(torch.equal(x, at[0]) for x in at):
            yield "every rank holds the same part: ranks of the group read by the same number, or are dealt it again"
            return
        others = [rank for rank, x in enumerate(at) if len(x) and bool((x == FOREIGN).all())]
        if others:
            yield f"rank {others[0]} holds another batch: loaders are not seeded alike, or each rank is dealt " \
                  "samples of its own"
            return
    held = torch.cat(at)
    times = torch.bincount(held[held >= 0], minlength=len(every))
    surplus: list[int] = []
    for x, rows in zip(case.held, at):
        again = (rows == FOREIGN) | (rows >= 0) & (times[rows.clamp(min=0)] > 1) if len(times) else rows == FOREIGN
        again &= ~x.counted if x.labels is not None or x.loss_mask is not None else again
        surplus += x.tokens[again].tolist() if x.tokens is not None else []
    if len(set(surplus)) == 1 and len(surplus) >= len(held) - len(every) > 0 and not (held == PADDING).any():
        yield f"rows are filled up with number {surplus[0]}, it seems: say pad={surplus[0]}, or give attention_mask, " \
              "and they are padding"
    if "token_lost" in kinds and "token_twice" not in kinds:
        lost, from_end = times == 0, torch.tensor(whole.lengths).repeat_interleave(torch.tensor(whole.lengths))
        tail = from_end - whole.place  # 1: the last of its sequence
        for name, behind in (("the batch", len(every) - every), ("each sequence", tail)):
            most = int(behind[lost].max())
            if bool((behind[lost] <= 2 * case.ranks).all()) and most < 2 * case.ranks and \
                    (name == "each sequence" or int(lost.sum()) == most):
                yield f"remainder cut off: the last tokens of {name} are lost, because ranks do not divide their number"
                return
    if "token_twice" in kinds:
        first, last = ({int(x[i]) for x in at if len(x)} for i in (0, -1))
        if set((times > 1).nonzero()[:, 0].tolist()) == {x for x in last if x >= 0 and times[x] > 1} <= first:
            yield "parts overlap by a token: each rank's last token is the first of the next part, as if labels were " \
                  "still to be cut from it"


def of_order(case: Loaded, kinds: set[str]) -> Iterator[str]:
    """Rows in another order than the caller says."""
    for rule in rules(case.whole.lengths, case.ranks, sum(map(len, case.at))) if "order" in kinds else ():
        if all(len(a) == len(b) and torch.equal(a, b) for a, b in zip(rule.rows, case.at)) and case.first is not None:
            yield f"another order of tokens: they are {rule.name}, and not {case.first.name}"
            break


def _within(case: Loaded, number: torch.Tensor) -> list[torch.Tensor]:
    """For each row its place in the run of neighbouring rows that have the same number."""
    made = []
    for own in case.of(number, other=-1):
        begin = torch.ones(len(own), dtype=torch.bool)
        begin[1:] = own[1:] != own[:-1]
        rows = torch.arange(len(own))
        made.append(rows - torch.where(begin, rows, 0).cummax(0).values if len(own) else rows)
    return made


def positions(case: Loaded) -> Guess:
    """Each rank's positions."""
    whole = case.whole
    packed = torch.arange(len(whole.place))
    begins = torch.ones(len(packed), dtype=torch.bool)
    begins[whole.following[whole.following >= 0]] = False
    yield LOCAL_POSITIONS, \
        [torch.arange(x.count) % max(x.columns, 1) for x in case.held]
    yield "positions restart on each rank: they count its own rows, all of its tensor's rows together", \
        [torch.arange(x.count) for x in case.held]
    yield "positions restart on each rank and in each document: they count each part of a document by itself", \
        _within(case, begins.cumsum(0))
    yield "positions restart on each rank and in each sequence: they count each part of a sequence by itself", \
        _within(case, whole.sequence)
    yield "positions do not restart at documents: they count the packed batch", case.of(packed)
    yield "positions do not restart at documents: they count each sequence", case.of(whole.place)
    yield "positions begin with 1", case.of(whole.positions + 1)
    yield "positions are those of the token before: they are shifted like labels", \
        case.of((whole.positions - 1).clamp(min=0))
    yield "positions are those of the token behind: they are shifted like labels", case.of(whole.positions + 1)
    for rule in case.orders():
        for name, values in ("positions", whole.positions), ("positions of the packed batch", packed):
            yield f"{name} are in another order than tokens: {rule.name}", case.of(values, rule.rows)
    offset = torch.tensor([0, *(x.count for x in case.held)]).cumsum(0)
    yield "positions are counted from rank to rank, as if rows were contiguous", \
        [torch.arange(x.count) + int(begin) for x, begin in zip(case.held, offset)]


def labels(case: Loaded) -> Guess:
    """Each rank's labels."""
    whole = case.whole
    assert whole.own is not None and whole.want is not None and whole.tokens is not None
    count = len(whole.place)
    after, last = whole.following.clamp(min=0), whole.following < 0
    first = torch.ones(count, dtype=torch.bool)
    first[whole.following[~last]] = False
    sources = [whole.own, torch.where(whole.own == NONE, whole.tokens, whole.own)]
    for own in sources[:1 if torch.equal(*sources) else 2]:
        mine = case.of(own)
        shifted = [shifted_rows(x, held.columns) for x, held in zip(mine, case.held)]
        name = f"{SHIFTED}: each rank shifts its own rows, so "
        yield name + "the last row of each part has lost its label. Shift the whole batch before it is divided", shifted
        yield name + "the last row of each part has the rank's first label. Shift the whole batch before it is " \
            "divided", [x.roll(-1) for x in mine]
        ends = [torch.where(case.of(last.long(), other=1)[r] == 1, NONE, x) for r, x in enumerate(shifted)]
        yield name + "the last row of each part has lost its label; documents are kept apart", ends
        packed = torch.cat([own[1:], own[:1] if count else own])
        for end in (packed, torch.where(torch.arange(count) == count - 1, NONE, packed)):
            yield "labels cross documents: the last token of a document predicts the first of the next", case.of(end)
        inside = torch.where(torch.arange(count) == count - 1, NONE, packed)
        inside = torch.where(whole.place + 1 == torch.tensor(whole.lengths).repeat_interleave(
            torch.tensor(whole.lengths)), NONE, inside)
        yield "labels cross documents: they are shifted within sequences, and the last token of a document predicts " \
            "the first of the next", case.of(inside)
        yield "labels are not shifted: each token has its own as label. If the model shifts them, say " \
            "model_shifts=True", mine
        yield "labels are shifted the wrong way: each token has that before it as label", \
            case.of(torch.where(first, NONE, own.roll(1)))
    want = whole.want
    twice = torch.where(last, NONE, want[after]) if count else want
    yield "labels are shifted twice", case.of(twice)
    yield "labels are shifted twice: before the division, and on each rank again", \
        [shifted_rows(x, held.columns) for x, held in zip(case.of(want), case.held)]
    yield "labels are rolled on each rank, though they were shifted before", [x.roll(-1) for x in case.of(want)]
    for rule in case.orders():
        yield f"labels are in another order than tokens: {rule.name}", case.of(want, rule.rows)


def masks(case: Loaded) -> Guess:
    """Which labels of each rank's count, as 0 and 1; padding does not."""
    whole = case.whole
    assert whole.want is not None
    counted = (whole.want != NONE).long()
    if not len(counted):
        return
    yield "all labels count: the loss mask is not applied", case.of(torch.ones_like(counted), other=0)
    yield "all labels within documents count: the loss mask is not applied", \
        case.of((whole.following >= 0).long(), other=0)
    yield "the loss mask is that of the tokens themselves, and not shifted like labels", \
        case.of(torch.cat([counted[:1], counted[:-1]]), other=0)
    yield "the loss mask is that of the tokens themselves, and not shifted like labels", \
        case.of(torch.cat([counted[:1] * 0, counted[:-1]]), other=0)
    yield "the loss mask is shifted twice", case.of(torch.cat([counted[1:], counted[:1] * 0]), other=0)
    yield "the loss mask is shifted on each rank", \
        [torch.cat([x[1:], x[:1] * 0]) for x in case.of(counted, other=0)]
    for rule in case.orders():
        yield f"the loss mask is in another order than tokens: {rule.name}", case.of(counted, rule.rows, 0)


def _fitting(guesses: Callable[[Loaded], Guess], case: Loaded, seen: list[torch.Tensor], right: list[torch.Tensor],
             where: list[torch.Tensor]) -> Iterator[str]:
    """The names of guesses that equal what was seen on the rows `where`, but not what is right; one of each kind."""
    def alike(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
        return all(len(x) == len(y) and torch.equal(x[rows], y[rows]) for x, y, rows in zip(a, b, where))
    said: set[str] = set()
    for name, made in guesses(case):
        kind = name.split(":")[0]
        if kind not in said and alike(made, seen) and not alike(made, right):
            said.add(kind)
            yield name


def of_numbers(case: Loaded, kinds: set[str]) -> Iterator[str]:
    """cu_seqlens, and what the loss is divided by."""
    if any(kind.startswith("cu_seq") for kind in kinds):
        said = [x for held in case.held for name, x in held.said.items() if name.startswith("cu_seq")]
        every = torch.tensor([0, *case.whole.lengths]).cumsum(0)
        rows = max(held.count for held in case.held)
        if all(len(x) < len(every) and bool(torch.isin(x, every).all()) for x in said):
            yield "cu_seqlens are divided as if they were tokens: each rank has some of its numbers"
        elif any(len(x) and int(x[0]) != 0 for x in said):
            yield "cu_seqlens are made of positions on a rank whose first token is not the first of its document: " \
                  "they do not begin with 0"
        elif case.ranks > 1 and all(len(x) and int(x[-1]) > rows * case.ranks for x in said):
            yield "cu_seqlens go on behind the batch: they are of another batch, or of ranks times the batch"
    if "divisor" in kinds and case.whole.want is not None:
        whole, total = case.whole, int((case.whole.want != NONE).sum())
        own = [int(x.counted.sum()) for x in case.held]
        divisors = [x.divisor for x in case.held]
        first = int((whole.following < 0).sum())  # as many documents
        before = {total + first, 0 if whole.own is None else int((whole.own != NONE).sum())}
        for name, would in (
                ("mean of means: each rank divides by its own labels, and ranks have different numbers of them"
                 if len(set(own)) > 1 else "mean of means: each rank divides by its own labels", own),
                *(("counted before labels were shifted: the first labels of documents count, which no token predicts",
                   [count] * case.ranks) for count in before),
                ("all tokens are counted, and not labels", [len(whole.place)] * case.ranks),
                ("rows are counted, and not labels", [x.count for x in case.held]),
                ("counted once by each rank, and summed", [total * case.ranks] * case.ranks)):
            if divisors == [float(x) for x in would]:
                yield name
                break


def causes_of(case: Loaded, found: list[Finding]) -> list[str]:
    """The causes that fit what was seen, the likeliest first: at most three of each kind of fault."""
    kinds = {x.kind for x in found}
    made = list(of_tokens(case, kinds)) if kinds & {"token_lost", "token_twice", "token_foreign"} else []
    made += list(of_order(case, kinds))
    made += [f"not divided: {name} has the numbers of the whole batch" for name in sorted(
        {name for x in case.held for name, size in x.undivided.values() if size == len(case.whole.place)})]
    real = [at >= 0 for at in case.at]
    if "position" in kinds:
        of = [x.positions if x.positions is not None else want
              for x, want in zip(case.held, case.of(case.whole.positions))]
        made += list(_fitting(positions, case, of, case.of(case.whole.positions), real))[:3]
    if kinds & {"label", "label_lost", "label_crosses", "label_extra"} and case.whole.want is not None:
        right, some = case.of(case.whole.want), []
        masked = any(x.loss_mask is not None for x in case.held)

        def of_masks() -> list[str]:
            return list(_fitting(masks, case, [x.counted.long() for x in case.held],
                                 [(x != NONE).long() for x in right], real))
        # Labels that a mask leaves out may be any. So where there is a mask and no label is wrong, it is the mask.
        if masked and "label" not in kinds:
            some = of_masks()
        if not some and all(x.labels is not None for x in case.held):
            where = [rows & (x.loss_mask != 0 if x.loss_mask is not None else rows) for rows, x in zip(real, case.held)]
            some = list(_fitting(labels, case, [x.labels for x in case.held if x.labels is not None], right, where))
        if not some and not (masked and "label" not in kinds):
            some = of_masks()
        made += some[:3]
    if "padding" in kinds:
        made.append("padding in the loss: its labels are not ignored")
    return made + list(of_numbers(case, kinds))
