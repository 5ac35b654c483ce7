"""plan.py: a plan: who computes what for one batch, and which tokens this process holds."""
import ctypes
import html
import json

from ._c import (C, Owner, call_text, check, fcp_error, fcp_pairs_proof, fcp_shape, fcp_table, fcpc_question,
                 fcpc_show_options, fcpc_times, path_bytes, take_text)
from .errors import Diagnostics, Error

DTYPES = ("fp32", "fp16", "bf16")  # in the order of fcp_dtype
LAYOUTS = ("planned", "contiguous", "zigzag")  # of fcp_layout


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
        self._rows, self._positions = {}, None
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
        numbers = ctypes.c_uint64 * len(self.here)
        queries, keys = numbers(), numbers()
        C["fcp_plan_ranks_tokens"](handle, self.here.start, len(self.here), queries, keys)
        self.rank_queries, self.rank_keys = list(queries), list(keys)
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

    def _list(self, fill, keys):
        """The numbers that `fill(rank, keys, array)` writes for each rank of this process, end to end."""
        counts = self.rank_keys if keys else self.rank_queries
        made = (ctypes.c_int64 * sum(counts))()
        at = ctypes.addressof(made)
        for rank, count in zip(self.here, counts):
            fill(rank, keys, at)
            at += count * 8
        return made

    def rows(self, shift=0, keys=False):
        """Where the tokens of this process stand in the packed batch, in the plan's order: an int64 array of `tokens`.

        With a shift it gives, for each of them, the row of the token so many places behind in the same sequence; -1
        where there is none. With `keys` it is about keys, which differs only if a sequence has not as many keys as
        queries.
        """
        shift = max(-1 << 62, min(shift, 1 << 62))  # no sequence is as long
        if (shift, keys) not in self._rows:
            self._rows[shift, keys] = self._list(
                lambda rank, keys, at: C["fcp_plan_rows"](self._handle, rank, keys, shift, at), keys)
        return self._rows[shift, keys]

    def take(self, x, shift=0, fill=0, keys=False):
        """The rows of `x` that this process holds, in the plan's order: [global_tokens, ...] becomes [tokens, ...].

        x       a tensor of torch, on any device, or an array of numpy; its rows are the packed batch's tokens
        shift   1: the token behind each one in its sequence, as a language model predicts it
        fill    stands where the sequence has no such token
        """
        want = self.global_key_tokens if keys else self.global_tokens
        if len(x) != want:
            raise Error("E701", f"take: there are {len(x)} rows, and the plan's batch has {want} tokens")
        index = _index(self.rows(shift, keys), x)
        taken = x[index]
        if shift:
            taken[index < 0] = fill
        return taken

    def restore(self, x):
        """The reverse of `take`: rows in the plan's order become rows of the packed batch. All ranks must be here."""
        if len(self.here) != self.ranks:
            raise Error("E203", "restore: this process holds a part of the batch alone")
        if len(x) != self.tokens:
            raise Error("E701", f"restore: there are {len(x)} rows, and the plan has {self.tokens} tokens")
        index = _index(self.rows(), x)
        restored = x.clone() if hasattr(x, "clone") else x.copy()
        restored[index] = x
        return restored

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


def _index(rows, x):
    """The rows as something that x can be indexed by."""
    return _array(rows, x if hasattr(x, "device") and hasattr(x, "clone") else None, type(x).__module__ == "numpy")


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
