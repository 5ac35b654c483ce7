"""program.py: a program of the language: a mask, a model and a cluster, from which batches are planned."""
import array
import ctypes
import hashlib
import html
import os
import stat
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

from ._c import (C, Owner, fcpc_batch, fcpc_field, fcpc_options, fcpc_question, fcpc_times, take_text)
from .errors import Diagnostics, Error
from .plan import Plan, load, together
from .ranks import gather_hosts, mpi_place
from .shared import MANY_RANKS, Folder, key_of, usual_folder
from .turns import Turns


def _hash_of(path):
    """The SHA-256 of a file. A pipe cannot be read twice, and may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Error("E010", f"{path} is not a regular file: plans of a program that reads it cannot be shared")
        total = hashlib.sha256()
        while piece := file.read(1 << 20):
            total.update(piece)
    return total.hexdigest()


@dataclass(frozen=True)
class Cluster:
    """The hardware of a program: nodes x gpus ranks. `detect` makes one.

    gpu    a profile of the language, a100 h100 h200 b200 910c or cpu, which says how fast links and kernels are
    here   the ranks of this process, a range; None: all
    """
    nodes: int = 1
    gpus: int = 1
    gpu: str = "h100"
    here: range = None


def detect(group=None, ranks=4):
    """The cluster of a process group of torch.distributed.

    The ranks of the plan are the processes of the group, in its order. Processes of one host are a node; each node must
    have as many as the others, side by side. group None: there are no other processes, and `ranks` ranks live in this
    one, on the CPU. "mpi": the processes that mpirun has started, as its environment says.
    """
    if group is None:
        return Cluster(1, ranks, "cpu")
    if isinstance(group, str):
        return Cluster(*mpi_place(group))
    import torch
    rank, hosts = gather_hosts(group)
    starts = [i for i, host in enumerate(hosts) if i == 0 or host != hosts[i - 1]]
    gpus = len(hosts) // len(starts)
    if len(set(hosts)) != len(starts) or starts != list(range(0, len(hosts), gpus)):
        raise Error("E706", f"detect: hosts have unlike numbers of ranks, or ranks that are not neighbours: {hosts}")
    name = torch.cuda.get_device_name().lower() if torch.cuda.is_available() else "cpu"
    profile = next((p for p in ("a100", "h100", "h200", "b200", "cpu") if p in name), "h100")
    return Cluster(len(starts), gpus, profile, range(rank, rank + 1))


class Program(Owner):
    """A parsed program. It does not change: any number of threads may plan from it at the same time.

    source     the text it was parsed from
    fields     the names of the fields that each batch brings
    masks      how many masks there are: more than one if it has `layers`
    share      the folder in which processes of this machine share plans; None: each process plans for itself
    node       how many ranks a node has
    warnings   what the compiler said, line by line
    model      what `fcpc.hf.program` has read from a model's config; else None. It goes where the program goes
    """

    def __init__(self, text, name="program", defines=(), fields=(), here=None, values=None, share=None,
                 node=1):
        self.source, self.name, self.fields, self.here, self.node = text, name, tuple(fields), here, node
        self._values = dict(values or {})  # of fields that a mask function has captured
        self.model = None
        if isinstance(defines, str):
            raise Error("E202", f"defines: settings in a list are expected, this is {defines!r}")
        settings = (ctypes.c_char_p * len(defines))(*(d.encode() for d in defines))
        self._options = fcpc_options(ctypes.sizeof(fcpc_options), ctypes.addressof(settings), len(defines))
        self._settings = settings  # the options point to it
        made, source = ctypes.c_void_p(), text.encode()
        with Diagnostics() as d:
            d.check(C["fcpc_parse_text"](name.encode(), source, len(source), ctypes.byref(self._options), d.handle,
                                         ctypes.byref(made)))
            self.warnings = d.warnings()
        self._handle = made.value
        self.masks = C["fcpc_program_layers"](self._handle, 0, None)
        self.share = share or None
        self._folder, self._texts = Folder(share) if share else None, None
        if share:
            self._identity()  # now: files that the program has read may change

    def __del__(self):
        if getattr(self, "_handle", None) and C:
            C["fcpc_program_free"](self._handle)

    def _identity(self):
        """All that decides about plans besides the batch: the program, and what it has read."""
        if self._texts is None:
            texts = [C["fcp_version"]().decode(), self.text]
            while (path := C["fcpc_program_file"](self._handle, len(texts) - 2)) is not None:
                texts.append(_hash_of(path))
            self._texts = texts
        return self._texts

    @property
    def text(self):
        """The program in canonical layout. Parsing this text gives a program that prints the same."""
        return take_text(C["fcpc_program_print"](self._handle))

    def plan(self, lengths=None, fields=None, queries=None, here=None, stop=None, max_seconds=0):
        """Plans a batch, and proves that each tile is computed once, on data that is there.

        With `layers`, plans each mask: see Plan.layers.

        lengths   tokens of each sequence: numbers in a list, an array or a tensor; None: the program's own batch
        fields    {name: values}, whole numbers, one for each token, sequences end to end
        queries   where it differs from the number of keys: queries of each sequence
        here      the ranks of this process; None: as the program's cluster says
        stop      a ctypes.c_int that another thread may set to end the planning (E013)
        max_seconds  a mask that is estimated to take longer to decide, on one processor, is refused at once (E405). The
                  estimate counts work and no time, so it is the same on every machine; 0: no limit

        Errors: E300 (lengths), E320 (fields), E31x (the mask fails at a pair), E403 and E404 (too large), E405.
        """
        return self._plan(lengths, fields, queries, here, stop, max_seconds=max_seconds)

    def _plan(self, lengths, fields, queries, here, stop, gate=nullcontext(), turns=None, number=0,
              max_seconds=0):
        """`plan`; `gate` is entered while planning. With `turns`, the batch has this number, and another rank may plan
        it."""
        held = [_whole(lengths, "Q", "lengths"), _whole(queries, "Q", "queries")]
        if held[0] and held[1] and held[0][1] != held[1][1]:
            raise Error("E300", f"there are {held[0][1]} lengths and {held[1][1]} numbers of queries")
        values = {**self._values, **(fields or {})}
        listed = (fcpc_field * len(values))()
        for slot, (name, given) in zip(listed, values.items()):
            if given is None:
                raise Error("E320", f"field '{name}' has no values: they are None")
            held.append(_whole(given, "q", f"field '{name}'"))
            slot.name, slot.values, slot.count = name.encode(), held[-1][0], held[-1][1]
        batch = fcpc_batch(ctypes.sizeof(fcpc_batch), held[0] and held[0][0], held[1] and held[1][0],
                           held[0][1] if held[0] else 0, ctypes.addressof(listed), len(values))
        batch.max_seconds = max_seconds
        here = self.here if here is None else here

        def make():
            made, times = (ctypes.c_void_p * self.masks)(), fcpc_times()
            with Diagnostics() as d:
                d.check(C["fcpc_plan_layers"](self._handle, ctypes.byref(batch), None if stop is None else
                                              ctypes.byref(stop), d.handle, ctypes.byref(times), made))
                said = d.warnings()
            return [Plan(handle, here, times, said, self) for handle in made]
        if self._folder is None and turns is None:
            return together(make())
        parts = [x for name, of in zip(("lengths", "queries", *values), held)
                 for x in (name, "none" if of is None else (of[0], 8 * of[1]))]
        key, from_file = key_of([*self._identity(), *parts]), lambda path: load(path, here, self)
        if turns is None:
            return together(*self._folder.plan(key, self.masks, from_file, make, gate, stop))
        if turns.planner(number) == turns.rank:
            with gate:
                plan = together(turns.give(number, key, make))
        elif self._folder is None:
            plan = together(turns.take(number, key, from_file, stop))
        else:  # of a machine's processes one takes the plan from the store, and the others from the folder
            plan = together(*self._folder.plan(key, self.masks, from_file,
                                               lambda: turns.take(number, key, from_file, stop), nullcontext(), stop))
        turns.done(number)
        return plan

    def ahead(self, loader, depth=2, threads=2, of=None, group=None, timeout=120, max_seconds=0):
        """Yields (batch, plan) for each batch of a loader, planned by threads while the steps before it run.

        depth     so many batches are taken from the loader before they are needed
        threads   so many plan at once
        of        a function from a batch to (lengths, fields), or to lengths alone. None: the batch has `lengths` and
                  what the program names as fields, as attributes or as keys
        group     None: each process plans every batch. The group of torch.distributed whose processes are the ranks:
                  its nodes plan in turn, and the others get the plan through the group's store. A node plans one of as
                  many batches as there are nodes, so that `depth` should be as large
        timeout   with a group: seconds after which a plan that has not come is an error (E703), unless the rank that
                  plans it says that it is still planning
        max_seconds  as `plan` takes it

        Batches come in the loader's order. An error of planning is raised where its batch would have come. When the
        loop ends early, planning that is under way is stopped. Threads that plan have a lower priority (nice 10).
        With a group, an error of the rank that plans is raised in all, and a batch that is not the same in all is E706.
        """
        if depth < 1 or threads < 1:
            raise Error("E203", f"ahead: depth is {depth} and threads {threads}; both are at least 1")
        stop, waiting, gate = ctypes.c_int(0), deque(), threading.Semaphore(threads)
        turns = None if group is None else Turns(group, self.node, timeout)
        # Where plans are shared, the other threads wait for plans of other processes.
        pool = ThreadPoolExecutor(threads if self._folder is None and turns is None else threads + depth,
                                  thread_name_prefix="fcpc-ahead", initializer=_after_others)
        try:
            for number, batch in enumerate(loader):
                lengths, fields = self._of(batch) if of is None else _pair(of(batch))
                waiting.append((batch, pool.submit(self._plan, lengths, fields, None, None, stop, gate, turns, number,
                                                   max_seconds)))
                if len(waiting) > depth:
                    batch, planned = waiting.popleft()
                    yield batch, planned.result()
            while waiting:
                batch, planned = waiting.popleft()
                yield batch, planned.result()
        except BaseException:  # also where the caller has left the loop
            if turns is not None:
                turns.leave()
            raise
        finally:
            stop.value = 1
            pool.shutdown(cancel_futures=True)

    def _of(self, batch):
        found = {}
        for name in ("lengths", *self.fields):
            has = name in batch if hasattr(batch, "keys") else hasattr(batch, name)
            if has:
                found[name] = batch[name] if hasattr(batch, "keys") else getattr(batch, name)
            elif name not in self._values:
                raise Error("E209", f"ahead: a batch has no '{name}': `of` says where its lengths and fields are")
        return found.pop("lengths"), found

    def explain(self, q, k, length=0, head=0, logit=0.0, width=80):
        """Says why query q sees key k or does not, with the value of every sub-expression; and what the score does."""
        question = fcpc_question(ctypes.sizeof(fcpc_question), q, k, length, head=head, logit=logit, width=width)
        made, source = ctypes.c_void_p(), self.source.encode()
        with Diagnostics() as d:
            d.check(C["fcpc_explain_text"](self.name.encode(), source, len(source), ctypes.byref(self._options),
                                           ctypes.byref(question), d.handle, ctypes.byref(made)))
        return take_text(made.value)

    def __repr__(self):
        return f"fcpc.Program:\n{self.text}"

    def _repr_html_(self):
        """The text; and a picture of each mask over one sequence of 2048 tokens, unless it reads fields of a batch."""
        picture = "" if self.fields else "".join(plan.svg() for plan in self.plan([2048], {}).layers)
        return f"{picture}<pre>{html.escape(self.source)}</pre>"


def _after_others():
    """This thread, and those that it will start, take the processor time that others leave: steps come before plans."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _pair(said):
    return said if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], dict) else (said, None)


def _misfit(values, kind):
    """Says which of the values is no whole number that `kind` of array holds."""
    expected = "a whole number of at most 64 bits" if kind == "q" else "a whole number from 0 on"
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        return f"numbers in a list, an array or a tensor are expected, this is {values!r}"
    for i, value in enumerate(values):
        try:
            array.array(kind, [value])
        except (TypeError, OverflowError):
            pair = "; sequences with other queries than keys have `queries` beside `lengths`"
            return f"element {i} is {value!r}, {expected} is expected{pair if isinstance(value, tuple) else ''}"
    return f"{expected} is expected"


def _whole(values, kind, what):
    """(address, count, what owns the memory) of whole numbers of 64 bits, signed ('q') or not ('Q'); of None: None."""
    if values is None:
        return None
    if hasattr(values, "data_ptr"):  # a tensor of torch
        if values.is_floating_point() or values.is_complex() or values.dim() != 1:
            raise Error("E202", f"{what}: a tensor of whole numbers with one dimension is expected")
        if kind == "q":
            values = values.detach().cpu().contiguous().long()
            return values.data_ptr(), len(values), values
        values = values.tolist()
    elif hasattr(values, "__array_interface__"):
        if values.dtype.kind not in "iub" or values.ndim != 1:
            raise Error("E202", f"{what}: an array of whole numbers with one dimension is expected")
        if kind == "q" and values.dtype != "uint64":
            values = values.astype("int64", order="C", copy=False)
            if not values.flags.c_contiguous:
                values = values.copy()
            return values.__array_interface__["data"][0], len(values), values
        values = values.tolist()
    try:
        numbers = array.array(kind, values)
    except (TypeError, OverflowError) as error:
        code = "E206" if isinstance(error, OverflowError) else "E202"
        raise Error(code, f"{what}: {_misfit(values, kind)}") from None
    count = len(numbers)
    numbers = numbers or array.array(kind, [0])  # so that no values are something other than no array
    return numbers.buffer_info()[0], count, numbers


def parse(text, name="program", defines=(), fields=(), here=None, share=None):
    """A program from its whole text (grammar/LANGUAGE.md). `defines`: settings such as "cluster.nodes=4". `share`: the
    folder in which processes of this machine share plans, see Program."""
    return Program(text, name, defines, fields, here, share=share)


def program(mask=None, fields=(), heads=8, kv_heads=None, head_dim=128, cluster=None, dtype="bf16", scale=None,
            score=None, tables=None, layers=None, share=None, value_dim=None, values=None, **plan):
    """A program from its parts.

    mask      who attends to whom: text of the language, such as "causal and doc[q] == doc[k]"; or a function
              (b, h, q_idx, kv_idx) as FlexAttention takes it, see fcpc.trace
    fields    names of numbers that each batch brings for each of its tokens; or {name: "given(range = 0..64)"}
    heads, kv_heads, head_dim, dtype, scale   of the model; kv_heads None: as many as heads. dtype: bf16 fp16 fp32
    value_dim numbers of a head of v and o; None: head_dim
    values    "keys": the values are the first value_dim numbers of each key, as when latents are keys and values at
              once (MLA); there are then no v and no dv
    cluster   from `detect`, or a Cluster; None: one rank
    score     what takes the place of a logit: text, such as "softcap(c = 30.0)"; or a function
              (score, b, h, q_idx, kv_idx)
    tables    {name: numbers}, of one or two dimensions: data of the model that mask and score may read
    layers    in place of mask, where layers of the model differ: a list of masks, each alone or as (mask, how many
              layers have it). All are planned with each token at the same rank, so that nothing moves between layers
    share     the folder in which processes of this machine share plans: one of them makes a plan and the others map it.
              None: /dev/shm/fcpc-USER if each process is one of more than 1024 ranks and a machine has several; ""
              never
    plan      keys of the section `plan`: block=512, strategy="dcp", sink=0.5, layout="zigzag", lse_gradient=True.
              layout is "planned" unless it is stated

    Errors: those of the language (E1xx, E2xx), with the place in the text that was made of the parts.
    """
    cluster = cluster or Cluster()
    declared = dict(fields) if hasattr(fields, "items") else {name: "given" for name in fields}
    tables, captured, before = dict(tables or {}), {}, []

    def text_of(x, kind):
        return x if isinstance(x, str) else _traced(x, kind, declared, tables, captured, before)
    masks = {} if mask is None else {"main_mask": text_of(mask, "mask")}
    for i, layer in enumerate(layers or (), 1):
        masks[f"layer_{i}"] = text_of(layer[0] if isinstance(layer, tuple) else layer, "mask")
    score = score and text_of(score, "score")
    if layers is not None:
        counts = [layer[1] if isinstance(layer, tuple) else 1 for layer in layers]
        plan["layers"] = [f"layer_{i} x {_value(count)}" for i, count in enumerate(counts, 1)]
    plan = {"layout": "planned", **plan}
    model = {"heads": heads, "kv_heads": heads if kv_heads is None else kv_heads, "head_dim": head_dim,
             "value_dim": value_dim, "values": values, "dtype": dtype,
             "scale": None if scale is None else float(scale)}
    lines = [_section("model", model, [f"table {n} = {_numbers(t)}" for n, t in tables.items()]),
             _section("cluster", {"nodes": cluster.nodes, "gpus": cluster.gpus, "gpu": _name(cluster.gpu)}),
             _section("batch", {}, [f"field {n} = {text}" for n, text in declared.items()]) if declared else "",
             *before, *(f"mask {name} = {text}" for name, text in masks.items()),
             f"score main_score = {score}" if score else "",
             _section("plan", {"mask": mask and "main_mask", "score": score and "main_score", **plan})]
    if share is None and cluster.here is not None and cluster.gpus > 1 and cluster.nodes * cluster.gpus > MANY_RANKS:
        share = usual_folder()
    return Program("\n".join(line for line in lines if line) + "\n", "program", (), declared, cluster.here, captured,
                   share, cluster.gpus)


def _traced(function, kind, declared, tables, values, before):
    from .trace import trace
    traced = trace(function, kind, tuple(declared), tables)
    tables.update(traced.tables)
    for name, numbers in traced.fields.items():
        declared.setdefault(name, "given")
        known = values.get(name)
        if known is not None and numbers is not None and known.tolist() != numbers.tolist():
            raise Error("E320", f"two functions have captured field '{name}', each with values of its own")
        if numbers is not None:
            values[name] = numbers
    before.extend(traced.definitions)
    return traced.text


def _section(name, keys, lines=()):
    said = [f"{key} = {_value(value)}" for key, value in keys.items() if value is not None]
    return f"{name} {{\n" + "".join(f"    {line}\n" for line in [*said, *lines]) + "}"


def _value(value):
    """A value as the language writes it: text stands for itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return real(value)
    if hasattr(value, "tolist"):
        return _value(value.tolist())
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, int):
        return str(value)
    raise Error("E202", f"a {type(value).__name__} is no value of the language")


def _name(text):
    """A name as the language writes it: in quotes if it begins with a digit."""
    return f'"{text}"' if text[:1].isdigit() else text


def real(number):
    """A float as the language writes it: with digits on both sides of the point."""
    if number != number or number in (float("inf"), float("-inf")):
        raise Error("E330", f"{number} is not finite: a mask takes the place of scores that are -inf")
    digits, _, exponent = repr(float(number)).partition("e")
    return (digits if "." in digits else digits + ".0") + (f"e{exponent}" if exponent else "")


def _numbers(table):
    """A table as the language writes it; of conditions: 1 and 0."""
    return table if isinstance(table, str) else _value(table * 1 if hasattr(table, "tolist") else table)
