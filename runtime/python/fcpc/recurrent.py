"""recurrent.py: layers that mix tokens otherwise than by attention: what a program says of them, and what a plan has.

    prog = fcpc.program(layers=["causal", (fcpc.Scan(heads=32, decay="matrix"), 3), (fcpc.Halo(before=3), 3)], ...)

Here are no tensors: fcpc.torch computes with them.
"""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Union

from ._c import C, fcp_layer_shape, fcp_stretch
from .batches import kind_of
from .errors import Error
from .written import count_of

DECAYS = ("scalar", "vector", "matrix")  # in the order of fcp_decay


class Stretch(NamedTuple):
    """Neighbouring tokens of one document that lie one behind the other in this process's tensors.

    For example, a rank holds tokens 0 to 3 and 8 to 11 of a document of 16: it has two stretches, and the first one
    begins the document.

    document   its number in the batch, as Plan.documents counts; in what one rank needs of a plan, its number there
    start      the row of its first token in the packed batch
    first      and in the tensors of this process
    length     tokens, at least 1
    begins     its first token is the document's first
    ends       its last token is the document's last
    """
    document: int
    start: int
    first: int
    length: int
    begins: bool
    ends: bool


class Halo(NamedTuple):
    """Layers whose tokens read neighbours in their own document, as a causal convolution does.

    before, after   how many tokens before and behind itself a token reads
    channels        how many numbers a token has there, by which the plan is priced; None: heads * head_dim of the
                    model. Tensors of other widths run as well
    times           how many layers of the model are so

    An element of `layers` of fcpc.program, and of Plan.recurrent.
    """
    before: int = 0
    after: int = 0
    channels: int | None = None
    times: int = 1

    def text(self, times: int | None = None) -> str:
        """The element as the language writes it."""
        named = {"before": self.before, "after": self.after, "channels": self.channels}
        return _element("halo", {key: value for key, value in named.items() if value}, self.times, times)

    def words(self) -> str:
        """What it is, for messages."""
        return f"halo(before = {self.before}, after = {self.after})"


class Scan(NamedTuple):
    """Layers in which a state runs along each document: linear attention, the delta rule, Mamba-2. A stretch of tokens
    turns the state h that enters it into A h + b.

    heads      how many states there are; None: the model's heads
    head_dim, value_dim   each state is head_dim x value_dim numbers in float32; None: those of the model
    decay      A: "scalar", a number for each head, as in Mamba-2; "vector", a number for each row of the state, as in
               gated linear attention; "matrix", head_dim x head_dim, as in the delta rule
    reverse    states run from the end of each document to its beginning
    times      how many layers of the model are so

    An element of `layers` of fcpc.program, and of Plan.recurrent.
    """
    heads: int | None = None
    head_dim: int | None = None
    value_dim: int | None = None
    decay: str = "scalar"
    reverse: bool = False
    times: int = 1

    def text(self, times: int | None = None) -> str:
        """The element as the language writes it."""
        if self.decay not in DECAYS:
            raise Error("E202", f"Scan: decay is {kind_of(self.decay)}, and there are {', '.join(DECAYS)}")
        named = {"heads": self.heads, "head_dim": self.head_dim, "value_dim": self.value_dim, "decay": self.decay,
                 "reverse": "true" if self.reverse else None}
        return _element("scan", {key: value for key, value in named.items() if value is not None}, self.times, times)

    def words(self) -> str:
        """What it is, for messages."""
        return (f"scan(heads = {self.heads}, head_dim = {self.head_dim}, value_dim = {self.value_dim}, "
                f"decay = {self.decay}{', reverse = true' if self.reverse else ''})")

    @property
    def decay_shape(self) -> tuple[int, ...]:
        """The shape of A, for one stretch."""
        heads, rows = self.heads or 0, self.head_dim or 0
        return {"scalar": (heads,), "vector": (heads, rows), "matrix": (heads, rows, rows)}[self.decay]

    @property
    def state_shape(self) -> tuple[int, ...]:
        """The shape of b, for one stretch."""
        return self.heads or 0, self.head_dim or 0, self.value_dim or 0


Layer = Union[Halo, Scan]


def _element(name: str, named: dict[str, Any], own: int, times: int | None) -> str:
    for key, value in named.items():
        if key not in ("decay", "reverse"):
            count_of(f"{name}: {key}", value)
    count = count_of("layers", own) * (1 if times is None else count_of("layers", times))
    said = ", ".join(f"{key} = {value}" for key, value in named.items())
    return f"{name}({said}) x {count}" if said else f"{name} x {count}"


def layers_of(plan: int) -> tuple[Layer, ...]:
    """The kinds of such layers that a plan of C has."""
    made: list[Layer] = []
    shape = fcp_layer_shape()
    for number in range(C["fcp_plan_recurrent"](plan, 0, None)):
        C["fcp_plan_recurrent"](plan, number, ctypes.byref(shape))
        if shape.kind == 0:
            made.append(Halo(shape.before, shape.after, shape.channels, shape.times))
        else:
            made.append(Scan(shape.heads, shape.rows, shape.columns, DECAYS[shape.decay], shape.reverse, shape.times))
    return tuple(made)


def stretches_of(plan: int, rank: int, first: int) -> list[Stretch]:
    """The stretches of a rank; `first` is the row at which its tokens begin in the tensors."""
    found = (fcp_stretch * C["fcp_plan_stretches"](plan, rank, None))()
    C["fcp_plan_stretches"](plan, rank, found)
    return [Stretch(x.document, x.start, first + x.first, x.length, bool(x.begins), bool(x.ends)) for x in found]


def find(layers: tuple[Layer, ...], layer: Any, who: str, kind: type[Layer], fits: Any, wanted: str, hint: str) -> int:
    """The number of a kind of layers: `layer`, or if that is None the only one that fits. fits: a function of a Layer.
    wanted, hint: what is asked for, and what to do if there is none, in words. Errors: E203"""
    has = ", ".join(f"{number}: {x.words()}" for number, x in enumerate(layers)) or "none"
    if layer is None:
        found = [number for number, x in enumerate(layers) if isinstance(x, kind) and fits(x)]
        if len(found) == 1:
            return found[0]
        many = "several kinds of layers are so, and layer= says which" if found else "no kind of layers is so"
        raise Error("E203", f"{who}: {wanted}: {many}. The plan has {has}. " + (
            hint or "Elements of program(layers=[...]) make them"))
    if isinstance(layer, bool) or not isinstance(layer, int) or layer not in range(len(layers)):
        raise Error("E203", f"{who}: there is no kind of layers {layer!r}. The plan has {has}")
    if not isinstance(layers[layer], kind) or not fits(layers[layer]):
        raise Error("E203", f"{who}: {wanted}, and kind {layer} of the plan's layers is {layers[layer].words()}")
    return layer
