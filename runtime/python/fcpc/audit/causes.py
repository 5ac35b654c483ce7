"""causes.py: patterns of faults that are known, each with what it would give.

A cause is named if what it gives equals all that was seen. So a new pattern is one more function in `PATTERNS`: it
takes the `Case` and yields (the cause in words, the weights that it would give) for each of its variants.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Tuple

import torch

from ..errors import Error
from .definition import Definition, variant
from .probe import Probe, Seen


@dataclass(frozen=True)
class Case:
    """One audit: what the program says, what was run, and what was seen.

    logits          float64 [heads, queries, keys + padding], scaled
    q_rank, k_rank  the rank of each query and key of the packed batch; q_local, k_local its row there
    near, least     weights may be apart by this part of them, and by `least`
    """
    definition: Definition
    probe: Probe
    seen: Seen
    q: torch.Tensor
    k: torch.Tensor
    logits: torch.Tensor
    q_rank: torch.Tensor
    k_rank: torch.Tensor
    q_local: torch.Tensor
    k_local: torch.Tensor
    near: float
    least: float

    @property
    def ranks(self) -> int:
        return len(self.probe.q_order)

    def given(self, allowed: torch.Tensor) -> torch.Tensor:
        """The weights where these pairs are allowed."""
        return self.definition.weights(self.logits[..., :allowed.shape[-1]], allowed)[0]

    def fits(self, weights: torch.Tensor) -> bool:
        """Is this what was seen? Padding that it does not name is not seen."""
        seen, pads = self.seen.weights, self.seen.weights.shape[-1] - weights.shape[-1]
        if pads:
            weights = torch.cat([weights, weights.new_zeros(*weights.shape[:2], pads)], -1)
        return bool(((seen - weights).abs() <= self.near * weights.abs() + self.least).all())


Guess = Iterator[Tuple[str, torch.Tensor]]


def other_masks(case: Case) -> Guess:
    """Another mask than the program's, everywhere."""
    of, own = case.definition, case.definition.allowed
    yield "document ignored: sequences that are packed see each other, as if the batch were one sequence", \
        case.given(variant(of, fields=of.fields, whole=True))
    for name, values in dict(of.fields or {}).items():
        if len(values) == sum(of.k_lengths):
            alike = torch.zeros(len(values), dtype=torch.int64)
            yield f"document ignored: as if field '{name}' were the same for all tokens", \
                case.given(variant(of, fields={**of.fields, name: alike}))
            yield f"document ignored: as if field '{name}' were the same for all tokens, and the batch one sequence", \
                case.given(variant(of, fields={**of.fields, name: alike}, whole=True))
    yield "mask ignored: every query sees every key of its sequence", case.given(variant(of, ["plan.mask=full"]))
    yield "mask ignored: every query sees every key of the batch", torch.softmax(
        case.logits[..., :own.shape[-1]], -1) if of.sink is None else case.given(torch.ones_like(own))
    yield "window lost: the mask is causal and no more", case.given(variant(of, ["plan.mask=causal"]))
    for align in "top_left", "bottom_right":
        yield f"causal aligned to the wrong corner: align = {align}, where queries and keys differ in number", \
            case.given(variant(of, [f"batch.align={align}"]))


def other_layers(case: Case) -> Guess:
    """The mask of another layer."""
    of = case.definition
    for number in range(case.definition.program.masks):
        if number != of.layer:
            yield f"masks of layers mixed up: this is the mask of layer {number}, not of layer {of.layer}", \
                case.given(variant(replace(of, layer=number)))


def other_numbers(case: Case) -> Guess:
    """A number of the mask, such as a window's width, is one more or less."""
    source = case.definition.program.source
    for line in re.finditer(r"^mask .*$", source, re.M):
        for number in re.finditer(r"(?<![\w.])\d+(?![\w.])", line[0]):
            begin, end = line.start() + number.start(), line.start() + number.end()
            for value in int(number[0]) - 1, int(number[0]) + 1:
                if value >= 0:
                    yield f"off by one: as if the {number[0]} in the mask were {value}", case.given(
                        variant(case.definition, source=f"{source[:begin]}{value}{source[end:]}"))


def by_ranks(case: Case) -> Guess:
    """Who sees whom depends on which rank has it."""
    of, own = case.definition, case.definition.allowed
    same = case.q_rank[:, None] == case.k_rank
    causal = variant(of, ["plan.mask=causal"])
    yield "keys of other ranks not seen: each rank attends to its own alone", case.given(own & same)
    yield "window lost between ranks: the mask is causal alone where query and key are on different ranks", \
        case.given(torch.where(same, own, causal))
    yield "mask lost between ranks: keys of other ranks are seen whole", case.given(own | ~same)
    yield "mask lost between ranks: keys of earlier ranks are seen whole", \
        case.given(torch.where(same, own, case.q_rank[:, None] > case.k_rank))
    whole = variant(of, whole=True)
    yield "documents ignored between ranks: other sequences are seen where they are on other ranks", \
        case.given(torch.where(same, own, whole))
    yield "documents ignored within ranks: other sequences are seen where they are on the same rank", \
        case.given(torch.where(same, whole, own))
    if whole.shape[1] == whole.shape[2]:  # the mask at other places of the packed batch, as if it were one sequence
        q_all, k_all = torch.arange(whole.shape[1]), torch.arange(whole.shape[2])
        for name, q, k in (("causal by local index: query and key are compared by their rows on their ranks",
                            case.q_local, case.k_local),
                           ("causal by local index of queries: they are compared as if each rank's began at 0",
                            case.q_local, k_all),
                           ("causal by local index of keys: they are compared as if each rank's began at 0",
                            q_all, case.k_local)):
            local = whole[:, q][:, :, k]
            yield name, case.given(local)
            yield "window counted in local positions, " + name.split(":")[1], \
                case.given(torch.where(same, own, local) & causal)
        if all(bool((x[x >= 0].diff() == 1).all()) for x in case.probe.q_order):
            return  # rows are contiguous
        first = torch.tensor([int(x[x >= 0].min()) if (x >= 0).any() else 0 for x in case.probe.q_order])
        row = first[case.q_rank] + case.q_local, first[case.k_rank] + case.k_local
        yield "rows taken for contiguous: positions are counted from each rank's first token on", case.given(
            whole[:, row[0].clamp(max=len(q_all) - 1)][:, :, row[1].clamp(max=len(k_all) - 1)])
        side = -(-len(q_all) // case.ranks)
        at = [(rank * side + local).clamp(max=len(q_all) - 1)
              for rank, local in ((case.q_rank, case.q_local), (case.k_rank, case.k_local))]
        yield "rows taken for contiguous: positions are counted rank by rank, whichever tokens they have", \
            case.given(whole[:, at[0]][:, :, at[1]])


def by_shift(case: Case) -> Guess:
    """Keys are taken for those of a neighbouring rank."""
    own, numbers = case.definition.allowed, case.probe.k_numbers
    for step in range(1, case.ranks):
        taken = torch.arange(own.shape[-1])
        for rank, mine in enumerate(numbers):
            other = numbers[(rank + step) % case.ranks]
            both = min(len(mine), len(other))
            real = (mine[:both] < own.shape[-1]) & (other[:both] < own.shape[-1])
            taken[mine[:both][real]] = other[:both][real]
        for word in "mask", "values":
            name = f"shift by {step} rank{'s' * (step > 1)}: "
            if word == "mask":
                yield name + "keys are masked as if they were those of the rank behind", case.given(own[:, :, taken])
            else:
                back = torch.empty_like(taken)
                back[taken] = torch.arange(len(taken))
                yield name + "values come from another rank than their keys", \
                    case.given(own)[:, :, back] if len(set(taken.tolist())) == len(taken) else case.given(own)


def of_heads(case: Case) -> Guess:
    """Other heads of keys, or another scale."""
    of = case.definition
    heads, kv_heads, dim = of.plan.heads, of.plan.kv_heads, of.plan.head_dim
    numbers = torch.arange(heads)
    for name, kv in (("h % kv_heads instead of h // group", numbers % kv_heads),
                     ("in reverse", (numbers // of.group).flip(0)),
                     ("one further", (numbers // of.group + 1) % kv_heads),
                     ("all heads read the first", numbers * 0)):
        if not of.scored:
            yield f"KV head groups permuted: {name}", of.weights(of.logits(case.q, case.k, kv=kv))[0]
    if of.scored:
        return
    raw, right = of.logits(case.q, case.k, 1.0), of.plan.scale
    scales = {**{f"scale of padded head_dim: 1 / sqrt({wide})": wide ** -0.5
                 for wide in (8, 16, 32, 64, 96, 128, 192, 256) if wide > dim},
              "scale left out": 1.0, "scale applied twice": right * right, "scale of square root left out: 1 / head_dim":
              1 / dim, "scale of the program ignored: 1 / sqrt(head_dim)": dim ** -0.5,
              "scale of all heads' width: 1 / sqrt(heads * head_dim)": (heads * dim) ** -0.5,
              "exp taken for exp2: scale * ln 2": right * 0.6931471805599453,
              "exp2 taken for exp: scale / ln 2": right / 0.6931471805599453}
    for name, scale in scales.items():
        if abs(scale - right) > 1e-3 * right:
            yield f"{name} (scale {right:.4g} is {scale:.4g})", of.weights(raw * scale)[0]


def of_softmax(case: Case) -> Guess:
    """The softmax is merged wrongly, or its sink."""
    of, own, logits = case.definition, case.definition.allowed, case.logits[..., :case.definition.allowed.shape[-1]]
    weights, _ = of.weights(logits)
    parts, least = torch.zeros_like(weights), torch.zeros(weights.shape[:2], dtype=torch.int64)
    apart = weights.new_full((case.ranks, *weights.shape[:2]), -torch.inf)
    for rank in range(case.ranks):
        some = own & (case.k_rank == rank)
        apart[rank] = logits.masked_fill(~some, -torch.inf).logsumexp(-1)
        parts += of.weights(logits, some)[0]
        least += some.any(-1)
    name = "softmax per rank not merged: each rank's part is normalised alone, and parts are "
    yield name + "summed", parts
    yield name + "averaged over ranks", parts / case.ranks
    yield name + "averaged over those that have keys", parts / least.clamp(min=1)[..., None]
    if of.sink is not None:
        sink = of.sink
        for name, more in (("sink ignored", torch.full_like(sink, -torch.inf)),
                           ("sink counted once per rank", sink + torch.tensor(float(case.ranks)).log()),
                           ("sink counted twice", sink + torch.tensor(2.0).log())):
            yield name, of.weights(logits, sink=more)[0]
        every = torch.logaddexp(apart.logsumexp(0), sink[:, None] + least.clamp(min=1).log())
        yield "sink counted once per rank that has keys", (logits.masked_fill(~own, -torch.inf) - every[..., None]).exp()


def of_padding(case: Case) -> Guess:
    """Rows of padding are keys."""
    own, pads = case.definition.allowed, case.probe.pads
    if pads:
        at = torch.tensor(case.probe.pad_ranks)
        known = [("on every rank", torch.ones(own.shape[1], pads, dtype=torch.bool).expand(*own.shape[:2], pads)),
                 ("on their own rank", (case.q_rank[:, None] == at).expand(*own.shape[:2], pads))]
        seen = case.seen.weights[..., -pads:] > case.least
        if not any(torch.equal(seen, other) for _, other in known):
            known.append(("by some rows", seen))
        for name, rows in known:
            yield f"padding seen, {name}", case.given(torch.cat([own, rows], -1))


PATTERNS: tuple[Callable[[Case], Guess], ...] = (of_padding, other_masks, other_layers, other_numbers, of_heads,
                                                 of_softmax, by_ranks, by_shift)


def causes_of(case: Case) -> list[str]:
    """The causes that fit all that was seen, the likeliest first."""
    made: list[str] = []
    right = case.given(case.definition.allowed)
    for pattern in PATTERNS:
        guesses = pattern(case)
        while True:
            try:
                name, weights = next(guesses)
            except (StopIteration, Error):  # such a mask cannot be planned for this batch
                break
            if case.fits(weights) and not (weights.shape == right.shape and torch.equal(weights, right)):
                made.append(name)
    return made
