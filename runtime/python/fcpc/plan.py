"""plan.py: a plan: who computes what for one batch, and which tokens this process holds."""
from __future__ import annotations

import ctypes
import html
import json
import os
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, NamedTuple, Union

from ._c import (C, ReadOnly, call_text, check, fcp_error, fcp_pairs_proof, fcp_shape, fcp_table, fcpc_question,
                 fcpc_show_options, fcpc_times, path_bytes, take_text)
from .arrays import Rows, array_of, check_holds, dim_of_tokens, index_of, is_array, is_tensor, reverse, taken, whole
from .errors import Diagnostics, Error
from .interrupt import interruptibly
from .recurrent import Layer, Stretch, layers_of, stretches_of
from .restore import restore

if TYPE_CHECKING:
    from .parts import Common
    from .program import Program

DTYPES = ("fp32", "fp16", "bf16")  # in the order of fcp_dtype
LAYOUTS = ("planned", "contiguous", "zigzag")  # of fcp_layout
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Labels(NamedTuple):
    """What `Plan.take_labels` gives.

    labels   for each token of this process the label of the token behind it in its document, else `ignore`
    count    how many labels other than `ignore` all processes have together
    """
    labels: Any
    count: int  # type: ignore[assignment] # a tuple's own `count` is not missed


class Plan(ReadOnly):
    """The plan of one batch. `Program.plan` and `Program.ahead` make it; `fcpc.load` reads it from a file.

    The *packed batch* is all sequences end to end. The *plan's order* is the order in which this process holds its
    tokens: first those of its first rank, then those of the next. If all ranks are in one process, it is a permutation
    of the packed batch; if ranks are processes, each holds its part.

    ranks, heads, kv_heads, head_dim, value_dim, dtype, layout, scale   as the program says
    passes          those that the plan has, of "forward" and "backward"
    values_in_keys  the values are the first value_dim numbers of the keys: there are no v and dv
    lse_gradient    the backward pass takes a gradient of lse
    global_tokens, global_key_tokens   queries, and keys, of the whole batch
    sequences       how many there are
    documents       how many there are. A document is a run of neighbouring tokens of a sequence that have the same
                    value in the field that the program names with `documents`. If it names none, each sequence with
                    queries is a document
    here            the ranks of this process, a range of neighbours
    whole           False: the plan is what the rank of this process needs of it alone, which is less. A step of
                    training asks no more. Methods that look at all ranks raise E506
    tokens, key_tokens   queries, and keys, that this process holds: the rows of its tensors
    rank_queries, rank_keys   the same of each rank of this process
    table_numbers   how many numbers the tables of reals have that the score reads
    program         the Program that made it; None if it comes from a file
    layers          the plans of all masks, of which this plan is the first: more than one if the program has `layers`
    recurrent       the kinds of layers beside attention that the program's `layers` name, in order: fcpc.Halo and
                    fcpc.Scan. The first plan of a program has them
    seconds         how long planning took, all layers together; 0 if another process has planned it
    warnings        what the compiler said, line by line

    A plan does not change: its attributes are read-only, a copy of it is the plan itself, and any number of threads may
    use it. A pickle contains the plan's file and its program; when it is loaded, the plan is verified as from a file.
    What a rank needs alone is not pickled (E506).
    """
    ranks: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    dtype: str
    layout: str
    scale: float
    passes: tuple[str, ...]
    values_in_keys: bool
    lse_gradient: bool
    global_tokens: int
    global_key_tokens: int
    sequences: int
    documents: int
    here: range
    whole: bool
    tokens: int
    key_tokens: int
    rank_queries: tuple[int, ...]
    rank_keys: tuple[int, ...]
    table_numbers: int
    recurrent: tuple[Layer, ...]
    program: Program | None
    seconds: float
    warnings: tuple[str, ...]
    _handle: int
    _times: fcpc_times
    _others: tuple[Plan, ...]
    _kept: dict[Any, Any]
    _use: Any
    _common: Common | None

    def __init__(self, handle: int, here: range | None = None, times: fcpc_times | None = None,
                 warnings: Iterable[str] = (), program: Program | None = None, part: bool = False,
                 common: Common | None = None) -> None:
        times = times or fcpc_times()
        # _kept: what has been computed of it; _use: what holds its file, where processes share it; _common: of what one
        # rank needs, what it knows of the others
        self._put(_handle=handle, _common=common, whole=not part, _times=times, _others=(), _kept={}, _use=None,
                  program=program, seconds=times.total, warnings=tuple(warnings))
        shape = fcp_shape()
        C["fcp_plan_shape"](handle, ctypes.byref(shape))
        here = range(shape.ranks) if here is None else here
        if not (isinstance(here, range) and here.step == 1 and 0 <= here.start < here.stop <= shape.ranks):
            raise Error("E203", f"here is {here!r}: a range of neighbours among ranks 0 to {shape.ranks - 1} is "
                                "expected")
        queries, keys = self._counts(here)
        self._put(ranks=shape.ranks, heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
                  value_dim=shape.value_dim, values_in_keys=shape.values_in_keys, lse_gradient=shape.lse_gradient,
                  scale=shape.scale, sequences=shape.sequences,
                  documents=common.documents if common else shape.documents, dtype=DTYPES[shape.dtype],
                  layout=LAYOUTS[shape.layout], global_tokens=shape.tokens, global_key_tokens=shape.key_tokens,
                  passes=tuple(name for name, has in zip(("forward", "backward"), shape.has_pass) if has), here=here,
                  rank_queries=queries, rank_keys=keys, tokens=sum(queries), key_tokens=sum(keys),
                  table_numbers=C["fcp_plan_table_numbers"](handle), recurrent=layers_of(handle))

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and C:
            C["fcp_plan_free"](self._handle)

    def __reduce_ex__(self, protocol: Any) -> Any:
        plans = [(plan._bytes(), plan.warnings) for plan in self.layers]
        return _of_bytes, (plans, self.here, self.program)

    def _bytes(self) -> bytes:
        """What `save` writes."""
        self._needs_whole("pickle")
        with os.fdopen(os.memfd_create("fcpc-plan", os.MFD_CLOEXEC), "rb") as file:
            self.save(f"/proc/self/fd/{file.fileno()}")
            file.seek(0)
            return file.read()

    @property
    def layers(self) -> tuple[Plan, ...]:
        """The plans of all masks, of which this plan is the first: more than one if the program has `layers`."""
        return (self, *self._others)

    @property
    def tables(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """The tables of reals that the score reads, in order: {name: (shape, doubles)}, an array of them row by row."""
        made: dict[str, tuple[tuple[int, ...], Any]] = {}
        table = fcp_table()
        for i in range(C["fcp_plan_tables"](self._handle, 0, None)):
            C["fcp_plan_tables"](self._handle, i, ctypes.byref(table))
            shape = (table.rows, table.columns) if table.columns else (table.rows,)
            doubles = ctypes.c_double * (table.rows * max(1, table.columns))
            made[table.name.decode()] = shape, doubles.from_buffer_copy(doubles.from_address(table.values))
        return made

    def _needs_whole(self, who: str) -> None:
        """Raises E506 if this is what one rank needs alone."""
        if not self.whole:
            raise Error("E506", f"{who}: this is what rank {self.here.start} needs of the plan, and the whole plan is "
                                "needed: with whole=True, Program.plan and Program.ahead give it to each process; "
                                "fcpc.load reads it from a file of Plan.save")

    def _knows(self, who: str) -> Common:
        """What is known of the other ranks; E506: nothing."""
        if self._common is None:
            self._needs_whole(who)
        assert self._common
        return self._common

    # --- which tokens ---------------------------------------------------------------------------------------------

    def _counts(self, ranks: range) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How many queries, and how many keys, each of some ranks has."""
        numbers = ctypes.c_uint64 * len(ranks)
        queries, keys = numbers(), numbers()
        C["fcp_plan_ranks_tokens"](self._handle, ranks.start, len(ranks), queries, keys)
        return tuple(queries), tuple(keys)

    def _all_queries(self, who: str = "plan") -> tuple[int, ...]:
        """How many queries each of all ranks has."""
        return self._counts(range(self.ranks))[0] if self.whole else self._knows(who).queries

    def _furthest(self, who: str = "plan") -> int:
        """The largest position of a token of the batch."""
        if not self.whole:
            found = self._knows(who).furthest
            if found is None:  # whoever has made the plan has not had the same model
                self._needs_whole(who)
            return int(found or 0)
        if "furthest" not in self._kept:
            known = array_of(self._list("fcp_plan_positions", False, ranks=range(self.ranks)))
            self._kept["furthest"] = int(known.max()) if len(known) else 0
        return int(self._kept["furthest"])

    def _list(self, function: str, keys: bool, *more: Any, ranks: range | None = None) -> Any:
        """The lists that a function of C makes for each rank of this process, or of `ranks`, end to end."""
        kept = function, keys, more, ranks
        if kept not in self._kept:
            ranks = self.here if ranks is None else ranks
            counts = self._counts(ranks)[keys]
            made = (ctypes.c_int64 * sum(counts))()
            at = ctypes.addressof(made)
            for rank, count in zip(ranks, counts):
                C[function](self._handle, rank, keys, *more, at)
                at += count * 8
            self._kept[kept] = made
        return self._kept[kept]

    def _rows(self, shift: int = 0, keys: bool = False, ranks: range | None = None) -> Any:
        shift = max(-1 << 62, min(shift, 1 << 62))  # no sequence is as long
        return self._list("fcp_plan_rows", keys, shift, ranks=ranks)

    def rows(self, shift: int = 0, keys: bool = False) -> memoryview:
        """The row in the packed batch of each token of this process, in the plan's order: [tokens], a read-only
        memoryview of int64, which numpy.asarray takes without a copy.

        shift   for each token, the row of the token `shift` places after it in the same document; -1: there is none
        keys    the rows of keys: they differ only if a sequence has more or fewer keys than queries
        """
        rows = self._rows(whole("rows", "shift", shift), bool(keys))
        return memoryview(rows).cast("B").cast("q").toreadonly()

    def take(self, x: Rows, shift: int = 0, fill: Any = None, keys: bool = False, dim: int = 0) -> Rows:
        """The rows of `x` that this process holds, in the plan's order: [global_tokens, ...] becomes [tokens, ...].

        x       a tensor of torch, on any device, or an array of numpy, of the packed batch
        shift   1: for each token, the row of the next token in its document. `take_labels` does that with labels
        fill    the value where the document has no such token. With a shift it is required, and must fit the type of x
        keys    the rows of x are keys: they differ from queries if a sequence has more keys than queries
        dim     the dimension of x whose rows are tokens: 1, or -1, for positions of shape [3, global_tokens]

        The result has memory of its own. Gradients flow through it, if x is a tensor of torch.

        Errors: E701 (x has not as many rows, or cannot hold `fill`), E209 (no `fill`)
        """
        shift, want = whole("take", "shift", shift), self.global_key_tokens if keys else self.global_tokens
        dim = self._dim("take", x, dim, want)
        if not shift:
            return taken(x, index_of(self._rows(0, bool(keys)), x), dim)
        if fill is None:
            raise Error("E209", "take: what stands where a document has no such token? With a shift, name it: "
                                "fill=-100, for example. take_labels makes labels of a language model")
        fill = check_holds("take", x, "fill", fill)
        return taken(x, index_of(self._rows(shift, bool(keys)), x), dim, fill)

    def take_labels(self, labels: Any, ignore: int = -100, dim: int = 0) -> Labels:
        """The labels of this process for the loss of a language model, and how many the whole batch has: Labels.

        labels   whole numbers [global_tokens, ...] of the packed batch, a tensor or an array, NOT shifted: each token's
                 own number, or `ignore`. With more dimensions each row has several labels, and each of them counts
        ignore   the label of tokens that have none. The last token of each document gets it too, so that no token is
                 predicted from another document
        dim      the dimension of labels whose rows are tokens

        The loss is the sum over the tokens of this process, divided by `count`, which is the same in all processes.
        Where all labels may be `ignore`, divide by max(count, 1).

        Errors: E701 (other than global_tokens labels, no whole numbers, or a type that cannot hold `ignore`), E506 (of
        what fcpc.load has read with a root, which does not know all documents)
        """
        dim = self._dim("take_labels", labels, dim, self.global_tokens)
        if "int" not in str(labels.dtype):
            raise Error("E701", f"take_labels: labels are whole numbers, and these are {labels.dtype}")
        ignore = whole("take_labels", "ignore", ignore)
        check_holds("take_labels", labels, "ignore", ignore)
        first = taken(labels, index_of(self._first_rows(), labels), dim)  # behind no token, so they are not counted
        count = int((labels != ignore).sum() - (first != ignore).sum())
        return Labels(taken(labels, index_of(self._rows(1), labels), dim, ignore), count)

    def _first_rows(self) -> Any:
        """The row in the packed batch of each document's first token."""
        if "first rows" not in self._kept:
            made = (ctypes.c_int64 * self.documents)()
            if self.whole:
                C["fcp_plan_documents"](self._handle, made)
            else:
                made[:] = list(self._knows("take_labels").first_rows)
            self._kept["first rows"] = made
        return self._kept["first rows"]

    def restore(self, x: Rows, group: Any = None, dim: int = 0) -> Rows:
        """The inverse of `take`: rows in the plan's order, [tokens, ...], become rows of the packed batch,
        [global_tokens, ...].

        x      a tensor of torch, on any device, or an array of numpy, of any type
        group  the process group of torch.distributed whose processes are the ranks of the plan. All of them call this,
               each with its own rows, and each gets the rows of all. None: this process holds all ranks
        dim    the dimension of x whose rows are tokens

        Without a group gradients flow through. With one, x must not require a gradient, because every process would add
        its own: restore(x.detach(), group=group).

        Errors: E701 (x has not as many rows, or requires a gradient), E203 (this process holds a part of the ranks, or
        is another rank of the group), E706 (a group that is not the plan's; processes that have different plans, or
        rows of different types or dimensions)
        """
        if isinstance(group, str):
            raise Error("E706", f"restore: '{group}' is no group of torch.distributed, by which rows would go")
        if group is not None:
            return restore(self, x, group, dim)
        if len(self.here) != self.ranks:
            raise Error("E203", f"restore: this process holds a part of the batch alone, ranks {list(self.here)} of "
                                f"{self.ranks}. With group=, processes give each other their rows")
        dim = self._dim("restore", x, dim, self.tokens)
        return taken(x, reverse(index_of(self._rows(), x)), dim)

    def _dim(self, who: str, x: Any, dim: Any, want: int) -> int:
        """The dimension of x whose rows are tokens; it must have `want` of them."""
        others = {self._kept.get("cu_seqlens", -1): "its lengths are cu_seqlens, it seems: lengths are the differences",
                  self.global_tokens: "so many has the whole batch",
                  self.tokens: "so many has this process: is it taken already?"}
        return dim_of_tokens(who, x, dim, want, others)

    def positions(self, like: Any = None) -> Any:
        """The position of each token of this process in its document, in the plan's order: int64, [tokens].

        like   a tensor: the result is a tensor on its device; an array: the result is an array of numpy. None: a tensor
               if torch is loaded, else an array
        """
        if not (like is None or is_tensor(like) or is_array(like)):
            raise Error("E701", f"positions: like is {like!r}, and a tensor or an array is expected")
        made = array_of(self._list("fcp_plan_positions", False), "numpy" if is_array(like) else "")
        if hasattr(made, "clone"):
            return made.clone() if like is None else made.to(like.device, copy=True)
        return made.copy()  # the caller's own

    # --- stretches ------------------------------------------------------------------------------------------------

    def stretches(self, rank: int | None = None) -> tuple[Stretch, ...]:
        """Where this process holds neighbouring tokens of a document one behind the other: fcpc.Stretch. Together the
        stretches are all its tokens, in the order of its tensors.

        rank   of this rank alone, whose tensors begin at row 0; None: of all ranks of this process, whose tensors lie
               end to end

        Errors: E702 (sequences have other numbers of queries than of keys), E203 (there is no such rank), E506 (another
        rank than that of which this plan has what it needs)
        """
        if rank is not None:
            number = whole("stretches", "rank", rank)
            if number not in range(self.ranks):
                raise Error("E203", f"stretches: there is no rank {number}: the plan has {self.ranks}, from 0 on")
            if number not in self.here:
                self._needs_whole("stretches")
            return tuple(self._stretches(number, 0))
        if "stretches" not in self._kept:
            made: list[Stretch] = []
            first = 0
            for each, tokens in zip(self.here, self.rank_queries):
                made += self._stretches(each, first)
                first += tokens
            self._kept["stretches"] = tuple(made)
        found: tuple[Stretch, ...] = self._kept["stretches"]
        return found

    def _stretches(self, rank: int, first: int) -> list[Stretch]:
        made = stretches_of(self._handle, rank, first)
        if not made and self._counts(range(rank, rank + 1))[0][0]:
            raise Error("E702", "stretches: sequences have other numbers of queries than of keys, and layers that run "
                                "along a document need one row for each token")
        return made

    def cu_seqlens(self, rank: int | None = None) -> Any:
        """Where the stretches begin in the tensors of this process, and the end of the last one: int32, [stretches + 1],
        as kernels for packed sequences take them. A tensor if torch is loaded, else an array of numpy.

        rank   as in `stretches`, whose errors these are
        """
        found = self.stretches(rank)
        ends = [0, *(x.first + x.length for x in found)]
        made = array_of((ctypes.c_int64 * len(ends))(*ends))
        return made.int() if is_tensor(made) else made.astype("int32")

    # --- what it is -----------------------------------------------------------------------------------------------

    def _digest(self, name: str) -> str:
        if name not in self._kept:
            digest, err = (ctypes.c_uint8 * 32)(), fcp_error()
            check(C[name](self._handle, digest, ctypes.byref(err)), err)
            self._kept[name] = bytes(digest).hex()
        return str(self._kept[name])

    @property
    def digest(self) -> str:
        """The SHA-256 of the plan: the same for the same plan on every machine, as 64 hexadecimal digits."""
        return self._digest("fcp_plan_digest")

    @property
    def homes(self) -> str:
        """The SHA-256 of where each token is. Plans with the same value hold their tokens in the same order, so layers
        of a model may use different ones."""
        return self._digest("fcp_plan_homes")

    def save(self, path: Path) -> None:
        """Writes the plan to a file, which `fcpc run`, `fcpc show` and `fcpc.load` read."""
        self._needs_whole("save")
        err = fcp_error()
        check(C["fcp_plan_save"](self._handle, _path("save", path), ctypes.byref(err)), err)

    def save_extracts(self, path: Path) -> str:
        """Writes what each rank needs of the plan to one file, from which `fcpc.load` reads what one rank needs alone.

        Returns the root: 64 hexadecimal digits that prove to each rank that what it reads is of this plan. If the
        program has layers, the file is of this plan alone.

        Errors: E506 (the plan is itself what one rank needs)
        """
        self._needs_whole("save_extracts")
        root, err = (ctypes.c_uint8 * 32)(), fcp_error()
        interruptibly(lambda stop: check(C["fcp_extracts_save"](
            self._handle, _path("save_extracts", path), ctypes.byref(stop), root, ctypes.byref(err)), err), None)
        return bytes(root).hex()

    def verify_pairs(self, stop: ctypes.c_int | None = None, max_seconds: float = 0) -> int:
        """Proves that the plan computes exactly the pairs that its mask allows, and returns how many it has.

        Planning and loading prove that each tile is computed once, on data that is there. They do not evaluate the mask
        to see which pairs a tile has. This method does, which can take long for a mask without a regular structure. If
        the program has layers, it verifies this plan alone.

        stop         a ctypes.c_int that another thread may set to end it (E013)
        max_seconds  ends it (E405) after an amount of work that takes one processor about so many seconds; the amount
                     is counted, so it is the same on every machine; 0: no limit

        Errors: E615 (the plan computes other pairs, or counts them wrongly)
        """
        self._needs_whole("verify_pairs")
        proof, err = fcp_pairs_proof(), fcp_error()
        interruptibly(lambda stop: check(C["fcp_plan_verify_pairs"](
            self._handle, max_seconds, ctypes.byref(stop), ctypes.byref(proof), ctypes.byref(err)), err), stop)
        return int(proof.pairs)

    def summary(self) -> dict[str, Any]:
        """The figures of the plan, as a dict; compiler/OUTPUT.md explains them. Units: bytes, seconds, FLOP."""
        self._needs_whole("summary")
        made: dict[str, Any] = json.loads(call_text("fcpc_summary_json", self._handle, ctypes.byref(self._times)))
        return made

    def simulate(self, profile: str | None = None) -> Simulation:
        """How long the plan would take on its cluster: a Simulation.

        profile   says how fast kernels are: a name, such as "h200", or a file; None: the program's, or else that of
                  the cluster's gpu.
                  compiler/simulate/README.md says what is predicted. Errors: E340, E010 (there is no such profile)
        """
        self._needs_whole("simulate")
        return Simulation(json.loads(call_text("fcpc_simulate_json", self._handle, self._by(profile))))

    def _by(self, profile: str | None) -> bytes | None:
        profile = profile or (self.program.profile if self.program else None)
        return os.fsencode(profile) if profile else None

    def text(self, width: int = 80, unicode: bool = False) -> str:
        """A picture of the plan for a terminal: its mask, who owns which tokens, and the pipeline."""
        self._needs_whole("text")
        options = fcpc_show_options(ctypes.sizeof(fcpc_show_options), width, unicode=unicode)
        return call_text("fcpc_show_text", self._handle, ctypes.byref(options))

    def svg(self) -> str:
        """The picture that `text` draws, as an SVG image."""
        self._needs_whole("svg")
        return call_text("fcpc_show_svg", self._handle, None)

    def html(self) -> str:
        """A self-contained HTML page about the plan: what each rank does when, and why it waits, by the program's
        profile, or else that of the cluster's gpu."""
        self._needs_whole("html")
        options = fcpc_show_options(ctypes.sizeof(fcpc_show_options), profile=self._by(None))
        return call_text("fcpc_show_html", self._handle, ctypes.byref(options))

    def part(self, rows: tuple[int, int] | None = None, cols: tuple[int, int] | None = None,
             sequence: int | None = None, head: int | None = None) -> dict[str, Any]:
        """The mask of one sequence, counted: a dict whose `grid` has the allowed pairs of each square.

        rows, cols   (begin, end), queries and keys of the sequence; None: all
        sequence     its number in the batch; None: the longest
        head         the query head whose mask it is; None: the pairs of all heads are summed
        """
        self._needs_whole("part")
        (row, row_end), (col, col_end) = rows or (0, 0), cols or (0, 0)
        options = fcpc_show_options(
            ctypes.sizeof(fcpc_show_options), part=True, choose_sequence=sequence is not None,
            sequence=sequence or 0, row=row, row_end=row_end, col=col, col_end=col_end, choose_head=head is not None,
            head=head or 0)
        made: dict[str, Any] = json.loads(call_text("fcpc_show_json", self._handle, ctypes.byref(options)))
        return made

    def explain(self, q: int, k: int, sequence: int | None = None, head: int = 0, width: int = 80) -> str:
        """Says why query q sees key k or does not, which rank computes the pair, and how both come there."""
        self._needs_whole("explain")
        question = fcpc_question(ctypes.sizeof(fcpc_question), q, k, choose_sequence=sequence is not None,
                                 sequence=sequence or 0, head=head, plan=self._handle, width=width)
        made = ctypes.c_void_p()
        with Diagnostics() as d:
            d.check(C["fcpc_explain_text"](b"plan", None, 0, None, ctypes.byref(question), d.handle,
                                           ctypes.byref(made)))
        return take_text(made.value)

    def __repr__(self) -> str:
        if self.whole:
            said = call_text("fcpc_summary_text", self._handle, ctypes.byref(self._times), b"plan", None).rstrip()
        else:
            said = f"plan: what rank {self.here.start} of {self.ranks} needs of it; {self.tokens} of " \
                   f"{self.global_tokens} tokens in {self.sequences} sequences are here"
        return "\n".join([said, *("warning: " + " ".join(w.split()) for w in self.warnings)])

    def _repr_html_(self) -> str:
        return f"{self.svg() if self.whole else ''}<pre>{html.escape(repr(self))}</pre>"


def over_bound(x: Mapping[str, Any]) -> float:
    """The makespan of a simulated pass over its largest lower bound; 1 for a batch without tokens, which takes no
    time."""
    return float(x["makespan_s"] / x["makespan_lower_bound_s"]) if x["makespan_lower_bound_s"] else 1.0


class Simulation(Dict[str, Any]):
    """What the simulator predicts: `forward` and `backward`, each a dict with the members that `fcpc sim --json` has
    for a pass. Times are in seconds.

    A notebook shows it as a table, with a bar for each rank: how long it computes, and how long it waits for what.
    """
    _COLOURS = {"compute": "#4878a8", "kv": "#d8a048", "q": "#b86878", "return": "#78a868", "reshuffle": "#9080b0"}

    def passes(self) -> list[tuple[str, dict[str, Any]]]:
        """(its name, what is predicted) for each pass that the plan has."""
        return [(name, self[name]) for name in ("forward", "backward") if name in self]

    def __repr__(self) -> str:
        return "\n".join(f"{name:8} {x['makespan_s'] * 1e3:.4f} ms, {over_bound(x):.3f} of the bound; waiting "
                         f"{sum(x['exposed'].values()) * 1e3:.4f} ms; MFU {x['mfu']:.3f}"
                         + (f"; a layer {x['layer_s'] * 1e3:.4f} ms" if "layer_s" in x else "")
                         for name, x in self.passes())

    def _bars(self, x: Mapping[str, Any]) -> str:
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

    def _repr_html_(self) -> str:
        head = "<tr><th>pass</th><th>ms</th><th>over the bound</th><th>MFU</th><th>ranks: " + ", ".join(
            f'<span style="color:{c}">{name}</span>' for name, c in self._COLOURS.items()) + "</th></tr>"
        rows = [f"<tr><td>{name}</td><td>{x['makespan_s'] * 1e3:.4f}</td>"
                f"<td>{over_bound(x):.3f}</td><td>{x['mfu']:.3f}</td>"
                f"<td>{self._bars(x)}</td></tr>" for name, x in self.passes()]
        return f"<table>{head}{''.join(rows)}</table>"


def load(path: Path, here: range | None = None, program: Program | None = None, root: str | None = None) -> Plan:
    """Reads a plan from a file, and proves that each tile is computed once, on data that is there.

    path      of a file that Plan.save or fcpc has written
    here      the ranks of this process; None: all
    program   the Program that has made it, if it is known
    root      what Plan.save_extracts returned, or `fcpc -o PLAN --slices` printed, to somebody who is trusted. Then
              `path` is that file, and what is read is what the one rank in `here` needs of the plan. A session of this
              rank takes it in place of the plan. It counts the documents that it knows, and methods that need the whole
              plan, or all documents, raise E506

    Errors: E010 (there is no such file), E50x (it is no plan, or altered; E505: not of the plan with this root), E60x (a
    plan that is wrong), E203 (`here`, `root`)
    """
    handle, err = ctypes.c_void_p(), fcp_error()
    if root is not None:
        if not (isinstance(root, str) and len(root) == 64 and set(root) <= set("0123456789abcdef")):
            raise Error("E203", f"load: a root is 64 hexadecimal digits, this is {root!r}")
        if not (isinstance(here, range) and len(here) == 1 and 0 <= here.start < 2**32):
            raise Error("E203", f"load: what one rank needs is read, and here is {here!r}: range(RANK, RANK + 1)")
        data = (ctypes.c_uint8 * 32).from_buffer_copy(bytes.fromhex(root))
        check(C["fcp_extracts_load"](_path("load", path), here.start, data, ctypes.byref(handle), ctypes.byref(err)),
              err)
        return Plan(address(handle), here, program=program, part=True)
    check(C["fcp_plan_load"](_path("load", path), ctypes.byref(handle), ctypes.byref(err)), err)
    return Plan(address(handle), here, program=program)


def together(plans: list[Plan], use: Any = None, warnings: Iterable[str] = ()) -> Plan:
    """The plans of a program's masks as one: the first, which has the others. `use`: what holds their files."""
    for plan in plans:
        plan._put(_use=use, warnings=(*plan.warnings, *warnings))
    plans[0]._put(_others=tuple(plans[1:]))
    return plans[0]


def _of_bytes(plans: list[tuple[bytes, tuple[str, ...]]], here: range, program: Program | None) -> Plan:
    """The plan that was pickled, verified."""
    made = []
    for data, warnings in plans:
        handle, err = ctypes.c_void_p(), fcp_error()
        check(C["fcp_plan_load_memory"](data, len(data), ctypes.byref(handle), ctypes.byref(err)), err)
        made.append(Plan(address(handle), here, warnings=warnings, program=program))
    return together(made)


def address(handle: ctypes.c_void_p) -> int:
    if not handle.value:
        raise MemoryError("fcpc is out of memory")
    return handle.value


def _path(who: str, path: Any) -> bytes:
    """A path as C takes it."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise Error("E203", f"{who}: the path of a plan's file is expected, this is {path!r}")
    return path_bytes(path)
