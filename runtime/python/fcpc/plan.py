"""plan.py: a plan: who computes what for one batch, and which tokens this process holds."""
from __future__ import annotations

import ctypes
import html
import json
import sys
from typing import Any, NamedTuple, TypeVar

from ._c import (C, Owner, call_text, check, fcp_error, fcp_pairs_proof, fcp_shape, fcp_table, fcpc_question,
                 fcpc_show_options, fcpc_times, path_bytes, take_text)
from .errors import Diagnostics, Error

DTYPES = ("fp32", "fp16", "bf16")  # in the order of fcp_dtype
LAYOUTS = ("planned", "contiguous", "zigzag")  # of fcp_layout
Rows = TypeVar("Rows")  # a tensor of torch, or an array of numpy


class Labels(NamedTuple):
    """What `Plan.take_labels` gives.

    labels   for each token of this process the label of the token behind it in its document, else `ignore`
    count    how many labels other than `ignore` all processes have together
    """
    labels: Any
    count: int  # type: ignore[assignment] # a tuple's own `count` is not missed


class Plan(Owner):
    """The plan of one batch. `Program.plan` and `Program.ahead` make it; `fcpc.load` reads it from a file.

    The *packed batch* has all sequences end to end. The *plan's order* has the tokens of this process as the plan
    places them: those of its first rank, then those of the next. With all ranks in one process it is a permutation of
    the packed batch; where ranks are processes, each holds its part.

    ranks, heads, kv_heads, head_dim, value_dim, dtype, layout, scale   as the program says
    values_in_keys  the values are the first value_dim numbers of the keys: there are no v and dv
    lse_gradient    the backward pass takes a gradient of lse
    global_tokens   queries of the whole batch
    sequences       how many there are
    here            the ranks of this process, a range of neighbours
    tokens          queries that this process holds: the rows of its tensors
    table_numbers   how many numbers the tables of reals have that the score reads
    program         the Program that made it; None if it comes from a file
    layers          of a program with `layers` the plan of each mask, else this plan alone. This plan is the first
    seconds         how long planning took, all layers together; 0 if another process has planned it
    warnings        what the compiler said, line by line

    A plan does not change, and any number of threads may use it. A copy of it is the plan itself. It is not pickled: for
    another process, `save` it there and `fcpc.load` it.
    """

    def __init__(self, handle, here=None, times=None, warnings=(), program=None):
        self._handle, self._times, self.program = handle, times or fcpc_times(), program
        self._others = ()
        self._rows, self._positions, self._first = {}, None, None
        shape = fcp_shape()
        C["fcp_plan_shape"](handle, ctypes.byref(shape))
        self.ranks, self.heads, self.kv_heads = shape.ranks, shape.heads, shape.kv_heads
        self.head_dim, self.value_dim, self.values_in_keys = shape.head_dim, shape.value_dim, shape.values_in_keys
        self.lse_gradient, self.scale, self.sequences = shape.lse_gradient, shape.scale, shape.sequences
        self.dtype, self.layout = DTYPES[shape.dtype], LAYOUTS[shape.layout]
        self.passes = tuple(name for name, has in zip(("forward", "backward"), shape.has_pass) if has)
        self.global_tokens, self.global_key_tokens = shape.tokens, shape.key_tokens
        self.here = range(self.ranks) if here is None else here
        if not (isinstance(self.here, range) and self.here.step == 1
                and 0 <= self.here.start < self.here.stop <= self.ranks):
            raise Error("E203", f"here is {here!r}: a range of neighbours among ranks 0 to {self.ranks - 1} is expected")
        self.rank_queries, self.rank_keys = self._counts(self.here)
        self.tokens, self.key_tokens = sum(self.rank_queries), sum(self.rank_keys)
        self.table_numbers = C["fcp_plan_table_numbers"](handle)
        self.seconds, self.warnings = self._times.total, list(warnings)

    def __del__(self):
        if getattr(self, "_handle", None) and C:
            C["fcp_plan_free"](self._handle)

    @property
    def layers(self):
        return (self, *self._others)

    @property
    def tables(self):
        """The tables of reals that the score reads, in order: {name: (shape, doubles)}, an array of them row by row."""
        made, table = {}, fcp_table()
        for i in range(C["fcp_plan_tables"](self._handle, 0, None)):
            C["fcp_plan_tables"](self._handle, i, ctypes.byref(table))
            shape = (table.rows, table.columns) if table.columns else (table.rows,)
            doubles = ctypes.c_double * (table.rows * max(1, table.columns))
            made[table.name.decode()] = shape, doubles.from_buffer_copy(doubles.from_address(table.values))
        return made

    # --- which tokens ---------------------------------------------------------------------------------------------

    def _counts(self, ranks: range) -> tuple[list[int], list[int]]:
        """How many queries and how many keys each of some ranks has."""
        numbers = ctypes.c_uint64 * len(ranks)
        queries, keys = numbers(), numbers()
        C["fcp_plan_ranks_tokens"](self._handle, ranks.start, len(ranks), queries, keys)
        return list(queries), list(keys)

    def _list(self, fill, keys, ranks=None):
        """The numbers that `fill(rank, keys, array)` writes for each rank of this process, or of `ranks`, end to end."""
        ranks = self.here if ranks is None else ranks
        counts = self._counts(ranks)[keys]
        made = (ctypes.c_int64 * sum(counts))()
        at = ctypes.addressof(made)
        for rank, count in zip(ranks, counts):
            fill(rank, keys, at)
            at += count * 8
        return made

    def rows(self, shift=0, keys=False):
        """Where the tokens of this process stand in the packed batch, in the plan's order: an int64 array of `tokens`.

        With a shift it gives, for each of them, the row of the token so many places behind in the same sequence; -1
        where there is none. With `keys` it is about keys, which differs only if a sequence has not as many keys as
        queries.
        """
        return self._rows_of(shift, keys)

    def _rows_of(self, shift: int = 0, keys: bool = False) -> Any:
        shift = max(-1 << 62, min(shift, 1 << 62))  # no sequence is as long
        if (shift, keys) not in self._rows:
            self._rows[shift, keys] = self._list(
                lambda rank, keys, at: C["fcp_plan_rows"](self._handle, rank, keys, shift, at), keys)
        return self._rows[shift, keys]

    def take(self, x: Rows, shift: int = 0, fill: Any = None, keys: bool = False, dim: int = 0) -> Rows:
        """The rows of `x` that this process holds, in the plan's order: [global_tokens, ...] becomes [tokens, ...].

        x       a tensor of torch, on any device, or an array of numpy, of the packed batch
        shift   1: of each token, the row of the one behind it in its document. `take_labels` does that with labels
        fill    stands where the document has no such token. With a shift it must be named, and x must be able to hold it
        keys    x is about the keys, which differ from the queries where a sequence has more of them
        dim     the dimension of x that is the tokens: 1, or -1, for positions of shape [3, global_tokens]

        Errors: E701 (x has not as many rows, or cannot hold `fill`), E209 (no `fill`)
        """
        dim = self._dim("take", x, dim, self.global_key_tokens if keys else self.global_tokens, "plan's batch")
        if shift and fill is None:
            raise Error("E209", "take: what stands where a document has no such token? With a shift, name it: "
                                "fill=-100, for example. take_labels makes labels of a language model")
        if shift:
            _check_holds("take", x, "fill", fill)
        return _taken(x, self._rows_of(shift, keys), dim, fill if shift else None)

    def take_labels(self, labels: Any, ignore: int = -100, dim: int = 0) -> Labels:
        """The labels of this process for the loss of a language model, and how many the whole batch has: Labels.

        labels   whole numbers [global_tokens, ...] of the packed batch, a tensor or an array, NOT shifted: each token's
                 own number, or `ignore`. With more dimensions each row has several labels, which count one by one
        ignore   stands for a token that has no label. It also takes the place of the label behind the last token of
                 each document, so that none is predicted from another document or from another rank's tokens
        dim      the dimension of labels that is the tokens

        The loss is the sum over the tokens of this process, divided by `count`, which is the same in all processes.
        Where all labels may be `ignore`, divide by max(count, 1).

        Errors: E701 (other than global_tokens labels, no whole numbers, or a type that cannot hold `ignore`)
        """
        dim = self._dim("take_labels", labels, dim, self.global_tokens, "plan's batch")
        dtype = str(labels.dtype)
        if "int" not in dtype:
            raise Error("E701", f"take_labels: labels are whole numbers, and these are {dtype}")
        _check_holds("take_labels", labels, "ignore", ignore)
        first = _taken(labels, self._first_rows(), dim)  # they are behind no token, so they are no labels
        count = int((labels != ignore).sum()) - int((first != ignore).sum())
        return Labels(_taken(labels, self._rows_of(1), dim, ignore), count)

    def _first_rows(self) -> Any:
        """The row in the packed batch of each document's first token."""
        if self._first is None:
            rows, before = (self._list(
                lambda rank, keys, at: C["fcp_plan_rows"](self._handle, rank, keys, shift, at), False,
                range(self.ranks)) for shift in (0, -1))
            found = [row for row, other in zip(rows, before) if other < 0]
            self._first = (ctypes.c_int64 * len(found))(*found)
        return self._first

    def _dim(self, who: str, x: Any, dim: int, want: int, where: str) -> int:
        """The dimension of x that is the tokens, counted from 0. It must have `want` of them."""
        if not (_is_tensor(x) or _is_array(x)):
            made = "" if x is None else ": torch.tensor(x) or numpy.asarray(x) makes one"
            raise Error("E701", f"{who}: a tensor of torch or an array of numpy is expected, and x is "
                                f"{'None' if x is None else 'a ' + type(x).__name__}{made}")
        shape = tuple(x.shape)
        if not -len(shape) <= dim < len(shape):
            raise Error("E701", f"{who}: dim is {dim}, and x has the shape {list(shape)}")
        if shape[dim] != want:
            other = [i for i, n in enumerate(shape) if n == want]
            hint = f". Its dimension {other[0]} has as many: dim={other[0]}" if other else ""
            raise Error("E701", f"{who}: there are {shape[dim]} rows, and the {where} has {want} tokens{hint}")
        return dim % len(shape)

    def restore(self, x: Rows, dim: int = 0) -> Rows:
        """The reverse of `take`: rows in the plan's order become rows of the packed batch. All ranks must be here."""
        if len(self.here) != self.ranks:
            raise Error("E203", "restore: this process holds a part of the batch alone")
        dim = self._dim("restore", x, dim, self.tokens, "plan")
        return _taken(x, _reverse(self._rows_of()), dim)

    def positions(self, like=None):
        """The position of each token of this process in its sequence, in the plan's order: int64, [tokens].

        It is a tensor if torch is loaded, on the device of the tensor `like`; else an array of numpy.
        """
        if self._positions is None:
            self._positions = self._list(
                lambda rank, keys, at: C["fcp_plan_positions"](self._handle, rank, keys, at), False)
        made = _array(self._positions, like)
        return made.clone() if hasattr(made, "clone") else made.copy()  # the caller's own

    # --- what it is -----------------------------------------------------------------------------------------------

    def _digest(self, name):
        digest, err = (ctypes.c_uint8 * 32)(), fcp_error()
        check(C[name](self._handle, digest, ctypes.byref(err)), err)
        return bytes(digest).hex()

    @property
    def digest(self):
        """The SHA-256 of the plan: the same for the same plan on every machine, as 64 hexadecimal digits."""
        return self._digest("fcp_plan_digest")

    @property
    def homes(self):
        """The SHA-256 of where tokens are. Plans in which it is equal may share tensors, as layers of a model do."""
        return self._digest("fcp_plan_homes")

    def save(self, path):
        """Writes the plan to a file, which `fcpc run`, `fcpc show` and `fcpc.load` read."""
        err = fcp_error()
        check(C["fcp_plan_save"](self._handle, path_bytes(path), ctypes.byref(err)), err)

    def verify_pairs(self, stop=None, max_seconds=0):
        """Proves that the plan computes exactly the pairs that its mask allows, and returns how many it has.

        Planning and loading prove that each tile is computed once, on data that is there; they do not ask the mask
        which pairs a tile has. This does, and takes time where the boundary of the mask does not repeat itself. With
        layers it is about this plan alone.

        stop         a ctypes.c_int that another thread may set to end it (E013)
        max_seconds  it is given up (E405) once it has worked for so many seconds of one processor, which are counted and
                     not measured; 0: never

        Errors: E615 (the plan computes other pairs, or counts them wrongly)
        """
        proof, err = fcp_pairs_proof(), fcp_error()
        check(C["fcp_plan_verify_pairs"](self._handle, max_seconds, None if stop is None else ctypes.byref(stop),
                                         ctypes.byref(proof), ctypes.byref(err)), err)
        return proof.pairs

    def summary(self):
        """The figures of the plan, as a dict; README.md explains them. Units: bytes, seconds, FLOP."""
        return json.loads(call_text("fcpc_summary_json", self._handle, ctypes.byref(self._times)))

    def simulate(self, profile=None):
        """How long the plan would take on its cluster: a Simulation.

        profile   says how fast kernels are: a name, such as "h200", or a file; None: that of the cluster's gpu.
                  compiler/simulate/README.md says what is predicted. Errors: E340, E010 (there is no such profile)
        """
        return Simulation(json.loads(call_text("fcpc_simulate_json", self._handle, profile and profile.encode())))

    def text(self, width=80, unicode=False):
        """A picture of the plan for a terminal: its mask, who owns which tokens, and the pipeline."""
        options = fcpc_show_options(ctypes.sizeof(fcpc_show_options), width, unicode=unicode)
        return call_text("fcpc_show_text", self._handle, ctypes.byref(options))

    def svg(self):
        """The picture that `text` draws, as an SVG image."""
        return call_text("fcpc_show_svg", self._handle, None)

    def html(self):
        """A page about the plan that needs no other file: what each rank does when, and why it waits."""
        return call_text("fcpc_show_html", self._handle, None)

    def part(self, rows=None, cols=None, sequence=None):
        """The mask of one sequence, counted: a dict whose `grid` has the allowed pairs of each square.

        rows, cols   (begin, end), queries and keys of the sequence; None: all
        sequence     its number in the batch; None: the longest
        """
        (row, row_end), (col, col_end) = rows or (0, 0), cols or (0, 0)
        options = fcpc_show_options(
            ctypes.sizeof(fcpc_show_options), part=True, choose_sequence=sequence is not None,
            sequence=sequence or 0, row=row, row_end=row_end, col=col, col_end=col_end)
        return json.loads(call_text("fcpc_show_json", self._handle, ctypes.byref(options)))

    def explain(self, q, k, sequence=None, head=0, width=80):
        """Says why query q sees key k or does not, which rank computes the pair, and how both come there."""
        question = fcpc_question(ctypes.sizeof(fcpc_question), q, k, choose_sequence=sequence is not None,
                                 sequence=sequence or 0, head=head, plan=self._handle, width=width)
        made = ctypes.c_void_p()
        with Diagnostics() as d:
            d.check(C["fcpc_explain_text"](b"plan", None, 0, None, ctypes.byref(question), d.handle,
                                           ctypes.byref(made)))
        return take_text(made.value)

    def __repr__(self):
        return call_text("fcpc_summary_text", self._handle, ctypes.byref(self._times), b"plan", None).rstrip()

    def _repr_html_(self):
        return f"{self.svg()}<pre>{html.escape(repr(self))}</pre>"


def over_bound(x):
    """How many times as long as the largest bound a simulated pass takes. A batch without tokens takes no time."""
    return x["makespan_s"] / x["makespan_lower_bound_s"] if x["makespan_lower_bound_s"] else 1.0


class Simulation(dict):
    """What the simulator predicts: `forward` and `backward`, each a dict as `fcpc sim --json` has it. Times in seconds.

    In a notebook it is a table, and a bar for each rank: how long it computes, and how long it waits for what.
    """
    _COLOURS = {"compute": "#4878a8", "kv": "#d8a048", "q": "#b86878", "return": "#78a868", "reshuffle": "#9080b0"}

    def passes(self):
        return [(name, self[name]) for name in ("forward", "backward") if name in self]

    def __repr__(self):
        return "\n".join(f"{name:8} {x['makespan_s'] * 1e3:.4f} ms, {over_bound(x):.3f} of the bound; waiting "
                         f"{sum(x['exposed'].values()) * 1e3:.4f} ms; MFU {x['mfu']:.3f}" for name, x in self.passes())

    def _bars(self, x):
        """A row of an SVG for each rank; the picture is as wide as the pass is long."""
        rows = []
        for r, rank in enumerate(x["per_rank"]):
            at = 0.0
            for what, colour in self._COLOURS.items():
                wide = rank["compute_s" if what == "compute" else f"wait_{what}_s"] / (x["makespan_s"] or 1) * 600
                if wide > 0:
                    rows.append(f'<rect x="{at:.2f}" y="{r * 10}" width="{wide:.2f}" height="8" fill="{colour}">'
                                f"<title>rank {r}: {what}</title></rect>")
                at += wide
        return f'<svg width="600" height="{len(x["per_rank"]) * 10}">{"".join(rows)}</svg>'

    def _repr_html_(self):
        head = "<tr><th>pass</th><th>ms</th><th>over the bound</th><th>MFU</th><th>ranks: " + ", ".join(
            f'<span style="color:{c}">{name}</span>' for name, c in self._COLOURS.items()) + "</th></tr>"
        rows = [f"<tr><td>{name}</td><td>{x['makespan_s'] * 1e3:.4f}</td>"
                f"<td>{over_bound(x):.3f}</td><td>{x['mfu']:.3f}</td>"
                f"<td>{self._bars(x)}</td></tr>" for name, x in self.passes()]
        return f"<table>{head}{''.join(rows)}</table>"


def _is_tensor(x: Any) -> bool:
    return "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor)


def _is_array(x: Any) -> bool:
    return "numpy" in sys.modules and isinstance(x, sys.modules["numpy"].ndarray)


def _check_holds(who: str, x: Any, name: str, number: Any) -> None:
    """x can hold the number, as it is. Torch would put another one there, and numpy would say less."""
    dtype = str(x.dtype).replace("torch.", "")
    if dtype == "bool":
        fits = number in (0, 1)
    elif "int" in dtype:
        info = sys.modules["torch" if _is_tensor(x) else "numpy"].iinfo(x.dtype)
        fits = number == number // 1 and info.min <= number <= info.max
    else:
        fits = True
    if not fits:
        raise Error("E701", f"{who}: {name} is {number}, and x is {dtype}, which cannot hold it")


def _taken(x: Any, rows: Any, dim: int, fill: Any = None) -> Any:
    """The rows of x along a dimension, in a tensor or an array of their own; `fill` where a row is less than 0."""
    if _is_array(x):
        numpy = sys.modules["numpy"]
        index = _array(rows, numpy=True)
        taken = numpy.take(x, index, axis=dim)
        if fill is not None:
            taken[(slice(None),) * dim + (index < 0,)] = fill
        return taken
    torch = sys.modules["torch"]
    index = _array(rows, x)
    taken = x.index_select(dim, index.clamp(min=0))
    if fill is not None:  # by `where`, which takes all types
        there = (index >= 0).view(-1, *[1] * (x.dim() - dim - 1))
        taken = torch.where(there, taken, torch.full((), fill, dtype=x.dtype, device=x.device))
    return taken


def _reverse(rows: Any) -> Any:
    """Of a permutation of rows, the one that undoes it."""
    made = type(rows)()
    for i, row in enumerate(rows):
        made[row] = i
    return made


def _array(numbers, like=None, numpy=False):
    """An int64 tensor of torch, on the device of `like`, or an array of numpy. Both share the memory of `numbers`."""
    import sys
    torch = None if numpy else sys.modules.get("torch")
    if torch is None:
        import numpy
        return numpy.frombuffer(numbers, dtype=numpy.int64)
    made = torch.frombuffer(numbers, dtype=torch.int64) if len(numbers) else torch.empty(0, dtype=torch.int64)
    return made.to(like.device) if like is not None else made


def load(path, here=None, program=None):
    """Reads a plan from a file, and proves that each tile is computed once, on data that is there.

    here      the ranks of this process; None: all
    program   the one that has made it, if it is known
    """
    handle, err = ctypes.c_void_p(), fcp_error()
    check(C["fcp_plan_load"](path_bytes(path), ctypes.byref(handle), ctypes.byref(err)), err)
    return Plan(handle.value, here, program=program)


def together(plans, use=None, warnings=()):
    """The plans of a program's masks as one: the first, which has the others. `use`: what holds their files."""
    for plan in plans:
        plan._use = use
        plan.warnings += warnings
    plans[0]._others = tuple(plans[1:])
    return plans[0]
