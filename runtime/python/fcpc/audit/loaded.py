"""loaded.py: what `audit.batch` compares: the batch as a program says it is, and what each rank holds of it."""
from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Mapping

import torch

from ..errors import Error
from ..plan import Plan

NONE = -(1 << 62)
"""In place of a label: there is none, or the loss leaves it out."""

# What frameworks call things. Of several names in a batch the first one counts.
NAMES: dict[str, tuple[str, ...]] = {
    "tokens": ("tokens", "input_ids"),
    "positions": ("position_ids", "positions"),
    "labels": ("shift_labels", "labels"),
    "loss_mask": ("loss_mask",),
    "attention_mask": ("attention_mask",),
    "divisor": ("num_items_in_batch", "num_label_tokens"),
}
CU_SEQLENS = ("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_kv", "cu_seq_lens_q", "cu_seq_lens_k",
              "cu_seqlens_padded", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
MAX_SEQLEN = ("max_seqlen", "max_seqlen_q", "max_seqlen_k", "max_seqlen_kv", "max_length_q", "max_length_k")


@dataclass
class Held:
    """What one rank's model gets; None: the batch does not have it. All are flat and have a number for each row.

    columns    how many rows make a row of the rank's tensor, [rows, columns], whose labels a model shifts together
    labels     NONE where a label is `ignore`. They are shifted, whoever shifts them
    own        the labels before a model shifts them; None: they come shifted
    pads       bool: which rows may be padding; None: nothing says so
    said       cu_seqlens and max_seqlen by their names
    undivided  {ours: (its name, how many numbers it has)} of what has another number of rows than tokens
    unread     names of the batch that are not checked
    """
    tokens: torch.Tensor | None
    columns: int
    count: int
    positions: torch.Tensor | None = None
    labels: torch.Tensor | None = None
    own: torch.Tensor | None = None
    loss_mask: torch.Tensor | None = None
    pads: torch.Tensor | None = None
    divisor: float | None = None
    said: dict[str, torch.Tensor] = field(default_factory=dict)
    undivided: dict[str, tuple[str, int]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def counted(self) -> torch.Tensor:
        """bool: whose labels the loss counts."""
        made = torch.ones(self.count, dtype=torch.bool)
        if self.labels is not None:
            made &= self.labels != NONE
        if self.loss_mask is not None:
            made &= self.loss_mask != 0
        return made

    @property
    def effective(self) -> torch.Tensor | None:
        """The labels that the loss counts, and NONE for the others."""
        return None if self.labels is None else torch.where(self.counted, self.labels, NONE)


@dataclass
class Whole:
    """The whole batch, as the program and `given` say. All are int64 [tokens] unless stated otherwise.

    lengths    tokens of each sequence; sequence, place: the number of each token's sequence, and its place there
    following  the next token of the same document, or -1
    positions  the position of each token
    tokens     their numbers; None: nobody says them
    own        the label of each token itself, not shifted, or NONE. None: nobody says them
    want       the label that each token predicts, or NONE if the loss leaves it out; None: nobody says tokens or labels
    weight     float64: the loss mask; None: there is none
    counts_all which labels count was not said, so all that have a next token do
    crossing   how many of given's own labels cross documents
    real       bool: which tokens are no padding of given's own
    """
    lengths: tuple[int, ...]
    sequence: torch.Tensor
    place: torch.Tensor
    following: torch.Tensor
    positions: torch.Tensor
    tokens: torch.Tensor | None = None
    own: torch.Tensor | None = None
    want: torch.Tensor | None = None
    weight: torch.Tensor | None = None
    counts_all: bool = True
    crossing: int = 0
    real: torch.Tensor | None = None

    def name(self, token: int) -> str:
        """"token 37 of sequence 2"."""
        return f"token {int(self.place[token])} of sequence {int(self.sequence[token])}"


def tensor_of(name: str, x: Any) -> torch.Tensor:
    """A tensor of the caller's on the CPU. Errors: E701 (no numbers)."""
    x = x.to_local() if hasattr(x, "to_local") else x
    try:
        return torch.as_tensor(x).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise Error("E701", f"audit.batch: {name} is no tensor: {error}") from None


def _found(batch: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """{our name: (its name in the batch, what it is)}."""
    made = {}
    for our, theirs in NAMES.items():
        for name in (*([names[our]] if our in names else []), *theirs):
            if batch.get(name) is not None:
                made[our] = name, batch[name]
                break
    return made


def _whole_numbers(name: str, x: torch.Tensor) -> torch.Tensor:
    if x.is_floating_point() or x.is_complex():
        raise Error("E701", f"audit.batch: {name} are {x.dtype}, and whole numbers are expected")
    return x.long()


def held_of(batch: Any, names: Mapping[str, str], ignore: int, model_shifts: bool, pad: int | None) -> Held:
    """Reads what one rank holds. Errors: E701 (no mapping, no numbers), E209 (neither tokens nor positions)."""
    if not isinstance(batch, Mapping) and not hasattr(batch, "keys"):
        raise Error("E701", f"audit.batch: a batch is a mapping of names to tensors, and this is a "
                            f"{type(batch).__name__}")
    found = _found(batch, names)
    lead = next((our for our in ("tokens", "positions") if our in found), None)
    if lead is None:
        raise Error("E209", f"audit.batch: the batch has {', '.join(map(str, batch)) or 'nothing'}, and neither "
                            f"tokens nor positions by a name that is known: names={{\"tokens\": ...}} says theirs")
    first = tensor_of(*found[lead])
    made = Held(None, first.shape[-1] if first.dim() else 1, first.numel())

    def read(our: str) -> torch.Tensor | None:
        if our not in found:
            return None
        x = tensor_of(*found[our])
        if x.numel() != made.count:
            if our == "positions" and x.dim() > 1 and x.shape[0] == 3 and x[0].numel() == made.count:
                made.unread.append(f"{found[our][0]} of three planes")
            else:
                made.undivided[our] = found[our][0], x.numel()
            return None
        return x.reshape(-1)
    for our in "tokens", "positions", "labels":
        x = read(our)
        if x is not None:
            setattr(made, our, _whole_numbers(found[our][0], x))
    if made.labels is not None:
        made.labels = torch.where(made.labels == ignore, NONE, made.labels)
        if model_shifts and found["labels"][0] != "shift_labels":
            made.own = made.labels
            made.labels = shifted_rows(made.own, made.columns)
    mask = read("loss_mask")
    made.loss_mask = None if mask is None else mask.double()
    if "attention_mask" in found and tensor_of(*found["attention_mask"]).numel() == made.count:
        there = read("attention_mask")
        assert there is not None
        made.pads = there == 0
    if pad is not None and made.tokens is not None:
        made.pads = (made.tokens == pad) | (False if made.pads is None else made.pads)
    if "divisor" in found:
        x = tensor_of(*found["divisor"])
        if x.numel() != 1:
            raise Error("E701", f"audit.batch: {found['divisor'][0]} has {x.numel()} numbers, and one is expected")
        made.divisor = float(x.reshape(-1)[0])
    for name in (*CU_SEQLENS, *MAX_SEQLEN):
        if batch.get(name) is not None:
            made.said[name] = _whole_numbers(name, tensor_of(name, batch[name])).reshape(-1)
    known = {name for name, _ in found.values()} | set(made.said)
    if found.get("labels", ("",))[0] == "shift_labels":
        known.add("labels")
    made.unread += [str(name) for name in batch if name not in known and batch[name] is not None]
    if "attention_mask" in found and tensor_of(*found["attention_mask"]).numel() != made.count:
        made.unread.append(found["attention_mask"][0])
    return made


def shifted_rows(x: torch.Tensor, columns: int) -> torch.Tensor:
    """Labels as a model shifts them: within each row of the tensor that it gets; the last of a row has none."""
    rows = x.reshape(-1, max(columns, 1))
    return torch.cat([rows[:, 1:], torch.full_like(rows[:, :1], NONE)], 1).reshape(-1)[:len(x)]


def lengths_of(given: Any, names: Mapping[str, str]) -> list[int] | None:
    """The lengths of the whole batch, where `given` shows them: by cu_seqlens, or by rows of the same length."""
    if isinstance(given, Mapping):
        for name in CU_SEQLENS[:5]:
            if given.get(name) is not None:
                said: list[int] = tensor_of(name, given[name]).reshape(-1).long().diff().tolist()
                return said
        found = _found(given, names)
        if "tokens" not in found:
            return None
        given = found["tokens"][1]
    if given is None:
        return None
    x = tensor_of("given", given)
    return [x.shape[-1]] * (x.numel() // max(x.shape[-1], 1)) if x.dim() else None


def whole_of(plan: Plan, lengths: list[int]) -> Whole:
    """What a plan says of the whole batch, in the order of the packed batch. Errors: E203 (other lengths)"""
    every = range(plan.ranks)
    rows, following, positions = (torch.tensor(list(x), dtype=torch.int64) for x in (
        plan._rows(ranks=every), plan._rows(1, ranks=every), plan._list("fcp_plan_positions", False, ranks=every)))
    if sum(lengths) != len(rows):
        raise Error("E203", f"audit.batch: lengths are of {sum(lengths)} tokens, and the plan is of {len(rows)}")
    back = rows.argsort()
    count = torch.tensor(lengths, dtype=torch.int64)
    begins = (count.cumsum(0) - count).repeat_interleave(count)
    return Whole(tuple(lengths), torch.arange(len(lengths)).repeat_interleave(count),
                 torch.arange(len(rows)) - begins, following[back], positions[back])


def add_given(whole: Whole, given: Any, names: Mapping[str, str], ignore: int) -> None:
    """Puts what the caller gives of the whole batch into it.

    Errors: E701 (other shapes), E209 (given has no tokens)
    """
    found = _found(given, names) if isinstance(given, Mapping) else {"tokens": ("tokens", given)}
    if "tokens" not in found:
        raise Error("E209", f"audit.batch: given has {', '.join(map(str, given))}, and no tokens")
    shape = tensor_of(*found["tokens"]).shape
    packed = len(shape) < 2 or shape[0] == 1
    count, read = len(whole.place), {}
    for our, (name, x) in found.items():
        if our != "divisor":
            x = tensor_of(name, x)
            if x.numel() != count:
                raise Error("E701", f"audit.batch: given's {name} has {x.numel()} numbers, and the program's batch "
                                    f"{count} tokens")
            read[our] = x.reshape(-1).double() if our == "loss_mask" else _whole_numbers(name, x).reshape(-1)
    whole.tokens, whole.weight = read["tokens"], read.get("loss_mask")
    whole.positions = read.get("positions", whole.positions)
    labels = read.get("labels")
    if "attention_mask" in read:
        whole.real = read["attention_mask"] != 0
    if labels is not None:
        labels = torch.where(labels == ignore, NONE, labels)
        some = labels != NONE
        own = torch.equal(labels[some], whole.tokens[some])
        inside = some & (whole.following >= 0)
        if own and torch.equal(labels[inside], whole.tokens[whole.following[inside]]):  # equal tokens: both would fit
            own = bool((some & (whole.following < 0)).any())
        if own and found["labels"][0] != "shift_labels":
            whole.own = labels
        else:
            whole.want = labels
    whole.counts_all = labels is None and whole.weight is None
    finish(whole, packed)


def finish(whole: Whole, packed: bool) -> None:
    """Derives labels from tokens, where they are not given, and takes away those that cross documents.

    packed   sequences stand end to end, so a label at the end of one may be the first token of the next
    """
    assert whole.tokens is not None
    after, last = whole.following.clamp(min=0), whole.following < 0
    if whole.want is None:
        if whole.own is None:
            whole.own = whole.tokens if whole.real is None else torch.where(whole.real, whole.tokens, NONE)
        whole.want = torch.where(last, NONE, whole.own[after])
    else:
        whole.own = torch.full_like(whole.want, NONE)  # those of first tokens are not known
        whole.own[after[~last]] = whole.want[~last]
        # A label at the end of a document is that of the text behind the batch, or it crosses. Where a document ends
        # within its sequence, or all of them have the next one's first token, it crosses.
        next_of = torch.cat([whole.tokens[1:], whole.tokens.new_tensor([NONE])])
        same = torch.cat([whole.sequence[1:] == whole.sequence[:-1], torch.tensor([False])])[:len(last)]
        counted = whole.want != NONE if whole.weight is None else (whole.want != NONE) & (whole.weight != 0)
        ends = last & counted & (next_of[:len(last)] != NONE)
        crosses = ends & same
        if packed and bool((whole.want == next_of[:len(last)])[ends & ~same].all()):
            crosses = ends
        whole.crossing = int(crosses.sum())
        whole.want = torch.where(crosses, NONE, whole.want)
    if whole.weight is not None:
        whole.want = torch.where(whole.weight != 0, whole.want, NONE)


def digest_of(given: Any, lengths: Any, fields: Any) -> str:
    """A digest of the whole batch as this process has it, which processes compare."""
    digest = hashlib.sha256(repr(lengths).encode())
    for part in (given if isinstance(given, Mapping) else {"tokens": given}), fields or {}:
        for name in sorted(part, key=str):
            x = part[name]
            if isinstance(x, (torch.Tensor, list, tuple)) or hasattr(x, "__array__"):
                digest.update(f"{name} {torch.as_tensor(x).reshape(-1).tolist()}".encode())
    return digest.hexdigest()
