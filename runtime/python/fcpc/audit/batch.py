"""batch.py: compares what a loader hands each rank with what a program says of the whole batch."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping, Sequence

import torch

from ..batches import Lengths
from ..errors import Error
from ..plan import Plan
from ..program import Program
from .batch_causes import LOCAL_POSITIONS, SHIFTED, Loaded, causes_of
from .definition import plan_of
from .loaded import (MAX_SEQLEN, NONE, Held, Whole, add_given, digest_of, finish, held_of, lengths_of, whole_of)
from .placed import FOREIGN, PADDING, Column, Placed, Rule, place, rules
from .rows import Rows, order_of
from .report import Finding, Report


class BatchReport(Report):
    """A Report of what a loader hands the ranks, which also says what could not be checked.

    The kinds of its findings are token_lost, token_twice, token_foreign (a number that no token has), order (rows that
    are not as `rows` says), rows (how many there are), shape (a tensor with more or fewer numbers than rows), position,
    label, label_lost (one that should count), label_extra (one that should not), label_crosses (of a document's last
    token), padding (that counts), weight (in loss_mask), the names of cu_seqlens and max_seqlen, divisor, given (ranks
    have different ones) and given_crosses.

    counts     how many labels count on each rank, a list of int. The loss is the sum over all of them, divided by
               sum(counts) on every rank
    order      how the tokens are divided, such as "zigzag", or None if that is no way that is known
    unchecked  list of str: what was not checked, and why
    """

    def __init__(self, findings: list[Finding], causes: list[str], counts: list[int], order: str | None,
                 unchecked: list[str]) -> None:
        super().__init__(findings, causes)
        self.counts, self.order, self.unchecked = counts, order, unchecked

    def __repr__(self) -> str:
        lines = [super().__repr__()]
        if self.order is not None:
            lines.append(f"tokens are divided: {self.order}")
        if self.counts:
            uneven = len(set(self.counts)) > 1
            lines.append(f"labels that count: {' + '.join(map(str, self.counts))} = {sum(self.counts)}" + (
                f"; a mean over each rank's own would be another loss: divide sums by {sum(self.counts)}"
                if uneven else "") + ("; where a rank has none, its mean is no number" if 0 in self.counts and uneven
                                      else ""))
        return "\n".join(lines + [f"not checked: {x}" for x in self.unchecked])


def batch(batch: Any, program: Any, group: Any = None, *, lengths: Any = None, given: Any = None, fields: Any = None,
          rows: Rows | Plan | None = None, names: Mapping[str, str] | None = None, ignore: int = -100,
          model_shifts: bool = False, pad: int | None = None) -> BatchReport:
    """Does a loader hand each rank its part of the batch that `program` says? A BatchReport: `ok`, or what differs and
    why.

        report = audit.batch(mine, prog, group, given=whole)                    # mine: what this rank's model gets
        report = audit.batch([rank0, rank1], prog, given=whole)                 # of all ranks, in one process
        report = audit.batch({"tokens": plan.take(tokens)}, plan, group, given=tokens)
        assert report.ok, report

    It checks that each token is on one rank, once, positions, labels, which labels the loss counts, cu_seqlens and
    max_seqlen, and the number that a rank divides its loss by. What is not there is not checked, which the report says.

    batch    a mapping with the tensors of this rank, [n], [1, n] or [rows, n]: tokens or input_ids; position_ids or
             positions; labels or shift_labels (these count if both are there), each for the token that predicts it;
             loss_mask, of these labels; attention_mask, 0 where there is padding; num_items_in_batch, if it is of this
             batch alone. With a group all of its processes call this and get the same report. Without one it is the
             list of all ranks' batches, or one rank's
    program  an fcpc.Program, or a Plan of the batch, which says lengths, fields and rows as well. The program says
             which documents there are
    lengths  tokens of each sequence; None: those of the plan, those of given's cu_seqlens, or given's rows
    given    the whole batch before it is divided: its tokens, or a mapping as above. Labels may be shifted already, or
             be each token's own (what they equal decides). Without labels and loss_mask every token has the next one of
             its document as label. Numbers that are all different, as torch.arange(n), show most: then no token can be
             taken for another. With a group each process gives what it has read, and they are compared. None: labels
             are compared with the tokens that ranks hold, where rows or positions say which these are
    fields   {name: values} of the whole batch, as Program.plan takes them
    rows     which tokens each rank should have: what audit.check takes, or a Plan. None: any way is right that has each
             token once
    names    {"tokens": "ids"}: what the batch calls tokens, positions, labels, loss_mask, attention_mask, divisor
    ignore   the label that the loss leaves out
    model_shifts   labels are each token's own, and the model shifts them within the rows that it gets, as those of
             transformers do with `labels`
    pad      the number of the tokens that rows are filled up with, if attention_mask does not say which these are

    Errors: E202 (no program), E203 (wrong rows, or lengths that are not the plan's), E209 (no tokens, no lengths), E701
    (no tensors, or of other shapes), E706 (a plan of other ranks than the group's), those of Program.plan
    """
    names = names or {}
    if not isinstance(program, (Plan, Program)):
        raise Error("E202", f"audit.batch: an fcpc.Program or a Plan is expected, and this is a "
                            f"{type(program).__name__}")

    def mine(one: Any) -> tuple[Held, str]:
        return held_of(one, names, ignore, model_shifts, pad), digest_of(given, lengths, fields)
    held, digests = _gather(batch, group, mine)
    if len(set(digests)) > 1:  # all compare with that of rank 0
        first_of_all = [given, lengths, fields]
        torch.distributed.broadcast_object_list(first_of_all, torch.distributed.get_global_rank(group, 0), group)
        given, lengths, fields = first_of_all
    whole, plan = _whole(program, lengths, given, fields, names)
    if rows is None and plan is not None:
        rows = plan
    if isinstance(rows, Plan) and len(held) == 1 and group is None:  # all of its ranks end to end
        first: Rule | None = Rule("the plan's order", [torch.cat(_rows_of(rows))])
    elif isinstance(rows, Plan):
        if rows.ranks != len(held):
            raise Error("E706", f"audit.batch: the plan has {rows.ranks} ranks, and there are batches of {len(held)}")
        first = Rule("the plan's order", _rows_of(rows))
    else:
        first = None if rows is None else Rule(rows if isinstance(rows, str) else "as rows says",
                                               order_of(rows, whole.lengths, len(held)))
    if given is not None:
        add_given(whole, given, names, ignore)
    checker = _Checker(held, whole, first, given is not None)
    found = [] if len(set(digests)) == 1 else [_other_given(digests)]
    return checker.report(found)


def _gather(batch: Any, group: Any, read: Callable[[Any], tuple[Held, str]]) -> tuple[list[Held], list[str]]:
    """What all ranks hold, and their digests of the whole batch. An error of one rank is raised on all of them."""
    if group is None:
        parts: list[Any] = [read(x) for x in (batch if isinstance(batch, (list, tuple)) else [batch])]
    else:
        mine: Any
        try:
            mine = read(batch)
        except Error as error:
            mine = error.code, error.message
        parts = [None] * group.size()
        torch.distributed.all_gather_object(parts, mine, group=group)
    for rank, part in enumerate(parts):
        if isinstance(part[0], str):
            raise Error(part[0], f"{part[1]} (rank {rank})")
    return [part[0] for part in parts], [part[1] for part in parts]


def _rows_of(plan: Plan) -> list[torch.Tensor]:
    """Which tokens each rank of a plan has."""
    every = range(plan.ranks)
    return list(torch.tensor(list(plan._rows(ranks=every)), dtype=torch.int64).split(list(plan._counts(every)[0])))


def _whole(program: Any, lengths: Any, given: Any, fields: Any, names: Mapping[str, str]) -> tuple[Whole, Plan | None]:
    """The whole batch, and the plan if there is one."""
    shown = lengths_of(given, names)
    if lengths is not None:
        lengths = list(lengths.queries or lengths.keys) if isinstance(lengths, Lengths) else [int(n) for n in lengths]
    if isinstance(program, Plan):
        plan: Plan | None = program
        assert plan is not None
        if lengths is None:
            lengths = shown if shown is not None and sum(shown) == plan.global_tokens else [plan.global_tokens]
        return whole_of(plan, lengths), plan
    if lengths is None:
        lengths = shown
    if lengths is None:
        raise Error("E209", "audit.batch: lengths of the sequences are missing: lengths=[...], given=, or a Plan in "
                            "place of the program")
    return whole_of(plan_of(program, fields, lengths, lengths), lengths), None


def _other_given(digests: list[str]) -> Finding:
    other = next(rank for rank, x in enumerate(digests) if x != digests[0])
    return Finding("given", f"rank {other} has another whole batch (given, lengths, fields) than rank 0",
                   sum(x != digests[0] for x in digests), len(digests))


class _Checker:
    """Compares what ranks hold with the whole batch."""

    def __init__(self, held: list[Held], whole: Whole, first: Rule | None, given: bool) -> None:
        self.held, self.whole, self.first, self.given = held, whole, first, given
        self.unchecked: list[str] = []
        self.tokens = all(x.tokens is not None for x in held)
        self.count, self.total = len(whole.place), sum(x.count for x in held)
        self.pads = [torch.zeros(x.count, dtype=torch.bool) if x.pads is None else x.pads for x in held]

    def report(self, found: list[Finding]) -> BatchReport:
        found += self._shapes()
        placed = self._place()
        if placed is None:
            found += self._unplaced()
            loaded = None
        else:
            loaded = Loaded(self.held, self.whole, placed.at, self.first)
            found += [*self._order(placed), *self._once(placed.at), *self._positions(placed.at),
                      *self._labels(placed.at), *self._said(placed.at), *self._divisor(placed.at)]
        causes = causes_of(loaded, found) if loaded is not None and found else []
        if loaded is None and any(x.kind == "position" for x in found):
            causes += [LOCAL_POSITIONS] * all(torch.equal(x.positions, torch.arange(x.count) % max(x.columns, 1))
                                              for x in self.held if x.positions is not None)
        if any(x.kind == "given" for x in found):
            causes.insert(0, "ranks have read different batches: their loaders are not seeded alike, or each rank is "
                             "dealt samples of its own")
        if not self.given and [x.kind for x in found] == ["label_lost"]:  # without given, nothing says which count
            causes = [x for x in causes if x.startswith(SHIFTED) and found[0].count < sum(
                int(held.counted.sum()) for held in self.held)]
            if not causes:
                self.unchecked.append(f"{found.pop().count} labels are left out: without given, nothing says which "
                                      "count")
        self._absent()
        has_labels = all(x.labels is not None or x.loss_mask is not None for x in self.held)
        return BatchReport(found, causes, [int(x.counted.sum()) for x in self.held] if has_labels else [],
                           placed.rule if placed is not None else None, self.unchecked)

    def _absent(self) -> None:
        for our, name in (("positions", "positions"), ("labels", "labels"), ("loss_mask", "loss_mask"),
                          ("divisor", "what the loss is divided by")):
            without = [r for r, x in enumerate(self.held) if getattr(x, our) is None]
            without = [r for r in without if our not in self.held[r].undivided]
            if without:
                who = "the batch has none" if len(without) == len(self.held) else f"rank {without[0]} has none"
                self.unchecked.append(f"{name}: {who}")
        for name in sorted({name for x in self.held for name in x.unread}):
            self.unchecked.append(f"{name}: it is read by no check")

    def _shapes(self) -> Iterator[Finding]:
        wrong = [(rank, name, size) for rank, x in enumerate(self.held) for name, size in x.undivided.values()]
        if wrong:
            rank, name, size = wrong[0]
            yield Finding("shape", f"rank {rank}'s {name} has {size} numbers, and it has {self.held[rank].count} rows",
                          len(wrong), len(self.held))

    def _place(self) -> Placed | None:
        """Which token each row is; None: nothing says it."""
        whole, first = self.whole, self.first
        sizes = first is not None and [len(x) for x in first.rows] == [x.count for x in self.held]
        if whole.tokens is None or not self.tokens:
            rule = first if sizes else self._by_positions() if first is None else None
            if rule is None:
                return None
            self.unchecked.append("whether each token is there once: "
                                  f"{'rows say' if first is not None else 'positions say'} where tokens are, and "
                                  f"{'without given' if self.tokens else 'without tokens in the batch'} nothing else")
            if self.tokens:
                whole.tokens = torch.zeros(self.count, dtype=torch.int64)
                for x, at in zip(self.held, rule.rows):
                    assert x.tokens is not None
                    whole.tokens[at[at >= 0]] = x.tokens[at >= 0]
                finish(whole, True)
            return Placed(rule.rows, rule.name)
        columns = [Column([x.tokens for x in self.held if x.tokens is not None], whole.tokens)]
        if all(x.positions is not None for x in self.held):
            columns.append(Column([x.positions for x in self.held if x.positions is not None], whole.positions))
        labels = [x.effective for x in self.held]
        if whole.want is not None and all(x is not None for x in labels):
            columns.append(Column([x for x in labels if x is not None], whole.want))
        placed = place(columns, self.pads, whole.lengths, first)
        if placed.rule is None and len(whole.tokens.unique()) < self.count:
            self.unchecked.append("which of the tokens with the same number a row is: that with which least is wrong "
                                  "is taken; numbers that are all different leave no doubt, or rows=")
        return placed

    def _by_positions(self) -> Rule | None:
        """The known way to divide the batch that gives the positions which the ranks hold."""
        if any(x.positions is None for x in self.held):
            return None
        sizes = [x.count for x in self.held]
        return next((rule for rule in rules(self.whole.lengths, len(self.held), self.total)
                     if [len(x) for x in rule.rows] == sizes and not self._astray(rule.rows)), None)

    def _astray(self, rows: list[torch.Tensor]) -> int:
        """How many positions are wrong if rows are these tokens."""
        return sum(int((x.positions != self.whole.positions[at.clamp(min=0)])[at >= 0].sum())
                   for x, at in zip(self.held, rows) if x.positions is not None)

    def _row(self, rank: int, row: int, at: torch.Tensor) -> str:
        token = int(at[row])
        return f"{self.whole.name(token)} (rank {rank}, row {row})" if token >= 0 else f"row {row} of rank {rank}"

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _unplaced(self) -> Iterator[Finding]:
        """What can be said of ranks whose tokens are not known: how many rows they have."""
        real = [int((~pad).sum()) for pad in self.pads]
        if self.first is not None:
            want = [int((x >= 0).sum()) for x in self.first.rows]
            rank = next((r for r, (a, b) in enumerate(zip(real, want)) if a != b), None)
            if rank is not None:
                yield Finding("rows", f"rank {rank} has {real[rank]} tokens, and by rows it has {want[rank]}",
                              sum(a != b for a, b in zip(real, want)), len(real))
        elif sum(real) != self.count:
            yield Finding("rows", f"ranks have {sum(real)} tokens together, and the batch has {self.count}",
                          abs(sum(real) - self.count), self.count)
        elif all(x.positions is None for x in self.held):
            raise Error("E209", "audit.batch: nothing says which token is on which rank: given=, rows=, or positions "
                                "in the batch")
        if sum(real) == self.count and all(x.positions is not None for x in self.held):
            held = torch.cat([x.positions[~pad] for x, pad in zip(self.held, self.pads) if x.positions is not None])
            most = int(max(held.max(), self.whole.positions.max())) + 1 if self.count else 0
            times, due = (torch.bincount(x.clamp(min=0), minlength=most) for x in (held, self.whole.positions))
            if not torch.equal(times, due):
                at = int((times != due).nonzero()[0])
                yield Finding("position", f"{int(times[at])} tokens have position {at}; by the program {int(due[at])} "
                              "have it", int((times - due).clamp(min=0).sum()), self.count)
        self.unchecked.append("labels, and which token is on which rank: nothing says it: given=, or rows=")

    def _order(self, placed: Placed) -> Iterator[Finding]:
        """Do ranks hold the rows that they should?"""
        if self.first is None or placed.at is self.first.rows:
            return
        wrong = [(rank, row) for rank, (at, want) in enumerate(zip(placed.at, self.first.rows))
                 for row in range(max(len(at), len(want)))
                 if row >= len(at) or row >= len(want) or int(at[row]) != int(want[row])]
        if wrong:
            rank, row = wrong[0]
            at, want = placed.at[rank], self.first.rows[rank]
            if row >= min(len(at), len(want)):
                said = f"rank {rank} has {len(at)} rows, and by rows it has {len(want)}"
            else:
                said = f"row {row} of rank {rank} is {self._called(int(at[row]))}, and by rows it is " \
                       f"{self._called(int(want[row]))}"
            yield Finding("order", said, len(wrong), sum(map(len, self.first.rows)))

    def _called(self, token: int) -> str:
        return self.whole.name(token) if token >= 0 else "padding" if token == PADDING else "no token of the batch"

    def _once(self, placed: list[torch.Tensor]) -> Iterator[Finding]:
        every = torch.cat(placed)
        times = torch.bincount(every[every >= 0], minlength=self.count)
        for kind, wrong in ("token_lost", times == 0), ("token_twice", times > 1):
            if wrong.any():
                token = int(wrong.nonzero()[0])
                where = [f"rank {rank}, row {int(row)}" for rank, at in enumerate(placed)
                         for row in (at == token).nonzero()[:, 0]]
                said = "is on no rank" if kind == "token_lost" else f"is there {len(where)} times: " \
                    f"{'; '.join(where[:3])}{'; ...' if len(where) > 3 else ''}"
                yield Finding(kind, f"{self.whole.name(token)} {said}", int(wrong.sum()), self.count)
        foreign = [(rank, int(row)) for rank, at in enumerate(placed) for row in (at == FOREIGN).nonzero()[:, 0]]
        if foreign:
            rank, row = foreign[0]
            own = self.held[rank].tokens
            assert own is not None
            number = int(own[row])
            has = self.whole.tokens is not None and bool((self.whole.tokens == number).any())
            said = "and no token with that number belongs there" if has else "which no token of the batch has"
            yield Finding("token_foreign", f"row {row} of rank {rank} has number {number}, {said}; of padding, pad= "
                          "says so", len(foreign), self.total)

    # --- positions and labels -----------------------------------------------------------------------------------------

    def _first_of(self, kind: str, wrong: list[torch.Tensor], of: int, say: Any) -> Iterator[Finding]:
        """A Finding of the first of some rows, bool for each rank."""
        for rank, rows in enumerate(wrong):
            if rows.any():
                yield Finding(kind, say(rank, int(rows.nonzero()[0])), sum(int(x.sum()) for x in wrong), of)
                return

    def _positions(self, placed: list[torch.Tensor]) -> Iterator[Finding]:
        want, real = self.whole.positions, self.whole.real
        real = torch.ones(self.count, dtype=torch.bool) if real is None else real
        wrong = [torch.zeros(0, dtype=torch.bool) if x.positions is None else
                 (x.positions != want[at.clamp(min=0)]) & (at >= 0) & real[at.clamp(min=0)] if self.count else at >= 0
                 for x, at in zip(self.held, placed)]

        def say(rank: int, row: int) -> str:
            positions = self.held[rank].positions
            assert positions is not None
            return f"{self._row(rank, row, placed[rank])} has position {int(positions[row])}; by the program it is " \
                   f"{int(want[placed[rank][row]])}"
        yield from self._first_of("position", wrong, self.total, say)

    def _labels(self, placed: list[torch.Tensor]) -> Iterator[Finding]:
        whole = self.whole
        if all(x.labels is None and x.loss_mask is None for x in self.held):
            return
        kinds: dict[str, list[torch.Tensor]] = {}
        for x, at in zip(self.held, placed):
            real = (at >= 0) & (x.labels is not None or x.loss_mask is not None)
            safe = at.clamp(min=0)
            want = torch.full_like(at, NONE)
            after = at.clone()
            if self.count:
                after = torch.where(real, whole.following[safe], PADDING)
                if whole.want is not None:
                    want = torch.where(real, whole.want[safe], NONE)
            counts = x.counted if x.labels is not None or x.loss_mask is not None else real
            known = whole.want is not None
            lost = real & (want != NONE) & ~counts
            more = real & (want == NONE) & counts & known
            kinds.setdefault("label", []).append(
                real & (want != NONE) & counts & (x.labels != want) if x.labels is not None else real & False)
            kinds.setdefault("label_lost", []).append(lost)
            kinds.setdefault("label_crosses", []).append(more & (after < 0))
            kinds.setdefault("label_extra", []).append(more & (after >= 0))
            kinds.setdefault("padding", []).append((at == PADDING) & counts)
            weight = real & False
            if whole.weight is not None and x.loss_mask is not None and self.count:
                weight = real & (want != NONE) & counts & (x.loss_mask != whole.weight[safe])
            kinds.setdefault("weight", []).append(weight)

        def say(kind: str, rank: int, row: int) -> str:
            x, at = self.held[rank], placed[rank]
            place, label = self._row(rank, row, at), None if x.labels is None else int(x.labels[row])
            want = int(whole.want[at[row]]) if whole.want is not None and at[row] >= 0 else NONE
            has = "counts in the loss" if label is None else f"has label {label}"
            if kind == "label":
                return f"{place} has label {label}; its label is {want}"
            if kind == "label_lost":
                return f"{place} has no label that counts; its label is {want}"
            if kind == "label_crosses":
                return f"{place} is the last of its document, and {has}; no token of its document follows"
            if kind == "label_extra":
                return f"{place} {has}, which the loss should leave out"
            if kind == "weight":
                assert x.loss_mask is not None and whole.weight is not None
                return f"{place} has weight {float(x.loss_mask[row]):g} in loss_mask, which should be " \
                       f"{float(whole.weight[at[row]]):g}"
            return f"row {row} of rank {rank} is padding, and {has}"
        for kind, wrong in kinds.items():
            yield from self._first_of(kind, wrong, self.total, lambda *where, kind=kind: say(kind, *where))
        if whole.crossing:
            yield Finding("given_crosses", f"{whole.crossing} labels of given cross documents: the last token of a "
                          "document has the first of the next as label", whole.crossing, self.count)
        if whole.want is None:
            self.unchecked.append("labels: nothing says what they should be")
        elif whole.counts_all and self.given and kinds["label_lost"] and any(x.any() for x in kinds["label_lost"]):
            self.unchecked.append("which labels count: given has neither labels nor loss_mask, so all should")

    # --- numbers of the batch -----------------------------------------------------------------------------------------

    def _said(self, placed: list[torch.Tensor]) -> Iterator[Finding]:
        """cu_seqlens and max_seqlen, where the batch has them."""
        whole, ranks = self.whole, len(self.held)
        begins = torch.ones(self.count, dtype=torch.bool)
        begins[whole.following[whole.following >= 0]] = False
        documents = torch.cat([begins.nonzero()[:, 0], torch.tensor([self.count])])
        sequences = torch.tensor([0, *whole.lengths]).cumsum(0)
        right = [documents, sequences]
        for unit in ranks, 2 * ranks:
            right += [torch.cat([x.new_zeros(1), (-(-x.diff() // unit) * unit).cumsum(0)]) for x in right[:2]]
        right += [x // ranks for x in right if bool((x % ranks == 0).all())]
        number = begins.cumsum(0)
        for rank, (x, at) in enumerate(zip(self.held, placed)):
            held = torch.where(at >= 0, number[at.clamp(min=0)], -1) if self.count else at
            cuts = (held[1:] != held[:-1]).nonzero()[:, 0] + 1
            local = torch.cat([torch.tensor([0]), cuts, torch.tensor([len(held)])])
            # Of keys that a rank gathers: from the begin of the first row's document on, and perhaps to the last's end.
            own = [local]
            if len(at) and at[0] >= 0 and at[-1] >= 0:
                starts = torch.where(begins, torch.arange(self.count), 0).cummax(0).values
                keys = torch.cat([local[:1], local[1:] + (at[0] - starts[at[0]])])
                end = documents[torch.searchsorted(documents, at[-1], right=True)]
                own += [keys, torch.cat([keys[:-1], keys[-1:] + (end - at[-1] - 1)])]
            for name, said in x.said.items():
                if name in MAX_SEQLEN:
                    least = int(documents.diff().max()) if self.count else 0
                    asked = min([least, *(int(y.diff().max()) for key, y in x.said.items()
                                          if key not in MAX_SEQLEN and y.numel() > 1)])
                    if said.numel() != 1 or int(said[0]) < asked:
                        yield Finding(name, f"rank {rank} has {name} {said.tolist()}, and a document of {least} tokens",
                                      1, ranks)
                        return
                    continue
                asked_for = [*right, *(torch.cat([y, torch.tensor([self.total])]) for y in right),
                             *own[:3 if "k" in name else 1]]
                once = said.unique_consecutive()  # sequences of no tokens have the same number twice
                if not any(torch.equal(once, y.unique_consecutive()) for y in asked_for):
                    yield Finding(name, f"rank {rank} has {name} {_shortly(said)}; of the whole batch they are "
                                  f"{_shortly(documents)}, and of its own rows {_shortly(local)}", 1, ranks)
                    return

    def _divisor(self, placed: list[torch.Tensor]) -> Iterator[Finding]:
        """The number that each rank divides its loss by, where the batch has it."""
        if self.whole.want is None or any(x.divisor is None for x in self.held):
            return
        want = int((self.whole.want != NONE).sum()) if self.given else sum(int(x.counted.sum()) for x in self.held)
        wrong = [rank for rank, x in enumerate(self.held) if x.divisor != want]
        if wrong:
            rank = wrong[0]
            yield Finding("divisor", f"rank {rank} divides by {self.held[rank].divisor:g}; the batch has {want} labels",
                          len(wrong), len(self.held))


def _shortly(x: torch.Tensor) -> str:
    some: Sequence[int] = x.tolist()
    return str(list(some)) if len(some) <= 8 else f"[{', '.join(map(str, some[:7]))}, ...]"
