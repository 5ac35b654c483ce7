"""program.py: a program of the language: a mask, a model and a cluster, for which batches are planned."""
from __future__ import annotations

import array
import ctypes
import difflib
import enum
import hashlib
import html
import inspect
import os
import re
import stat
import threading
import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import (Any, Callable, ContextManager, Iterable, Iterator, Mapping, NamedTuple, Sequence, TypeVar, Union,
                    overload)

from ._c import (C, ReadOnly, fcpc_batch, fcpc_field, fcpc_options, fcpc_question, fcpc_split_options, fcpc_times,
                 take_text)
from .batches import Lengths, Numbers, cu_seqlens, differences, fields_of, kind_of, numbers_of, shortly
from .errors import Diagnostics, Error, warn
from .fields import Declared, Held, Over, Sizes, declared_in, held, numbers_of_field
from .forest import Forest, MicroBatches
from .interrupt import interruptibly
from .masks import Mask as ForeignMask
from .parts import part_files
from .plan import Plan, load, together
from .ranks import gather_hosts, mpi_place
from .recurrent import Halo, Scan
from .shared import MANY_RANKS, Folder, key_of, usual_folder, whole_files
from .turns import Turns
from .written import (beside_masks, count_of, documents_of, dtype_of, foreign_word, in_python, name_of, section, separating,
                      table_of, value_of)

Batch = TypeVar("Batch")
# Text of the language, a function as FlexAttention takes it, or what another project holds.
Mask = Union[str, Callable[..., Any], ForeignMask]


class Unset(enum.Enum):
    """The default of an argument for which None has a meaning of its own."""
    UNSET = 0

    def __repr__(self) -> str:
        return self.name


UNSET = Unset.UNSET
QUICK = 1024  # batches of up to so many tokens are planned in an unnoticeable time, whatever the mask is


def _hash_of(path: str) -> str | None:
    """The SHA-256 of a file; None: it is no regular file. A pipe cannot be read twice, and may never end."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            total = hashlib.sha256()
            while piece := file.read(1 << 20):
                total.update(piece)
        return total.hexdigest()
    except OSError:
        return None


@dataclass(frozen=True)
class Cluster:
    """The hardware of a program: nodes x gpus ranks. `detect` makes one.

    gpu    a profile of the language, a100 h100 h200 b200 910c or cpu, which says how fast links and kernels are
    here   the ranks of this process, a range; None: all
    """
    nodes: int = 1
    gpus: int = 1
    gpu: str = "h100"
    here: range | None = None


def detect(group: Any = None, ranks: int = 4) -> Cluster:
    """The cluster of a process group of torch.distributed.

    The ranks of the plan are the processes of the group, in its order. Processes of one host are a node. All nodes must
    have the same number of processes, and those of a node must be neighbours in the group.

    group  None: there are no other processes, and `ranks` ranks are in this one, on the CPU. "mpi": the processes that
           mpirun has started, according to its environment variables

    Errors: E706 (hosts have different numbers of ranks, or this is no group), E202 (this is no number of ranks)
    """
    if isinstance(group, int):
        raise Error("E706", f"detect: {group} is no group of processes: fcpc.detect(ranks={int(group)}) is for ranks "
                            "in this process")
    if group is None:
        count = count_of("ranks", ranks)
        if count < 1:
            raise Error("E202", f"detect: ranks is {ranks}, and at least 1 is expected")
        return Cluster(1, count, "cpu")
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


class Given(NamedTuple):
    """A batch as C takes it, which is valid as long as this is kept.

    captured  the fields whose values are those that a mask function has captured
    """
    batch: fcpc_batch
    lengths: Numbers | None
    queries: Numbers | None
    fields: dict[str, Numbers]
    sizes: Sizes | None
    captured: list[str]
    listed: Any


class Program(ReadOnly):
    """A parsed program. It does not change: any number of threads may plan from it at the same time.

    source     the text it was parsed from
    name       what the compiler's messages call it
    fields     the names of the fields, which each batch has values for
    documents  the field that separates the documents of a sequence: where it changes, a new document begins, and with
               it positions and labels. None: each sequence is a document
    masks      how many masks there are: more than one if it has `layers`
    here       the ranks of this process, a range; None: all
    share      the folder in which processes of this machine share plans; None: each process plans for itself
    profile    the profile by which the compiler chooses and `Plan.simulate` predicts; None: that of the cluster's gpu
    node       how many ranks a node has
    warnings   what the compiler said, line by line
    model      what `fcpc.hf.program` has read from a model's config; else None. It is pickled with the program

    Its attributes are read-only. Programs with the same parts are equal. A pickle has these parts, and the values that
    mask functions have captured. Another process parses the program again, once, and does not repeat its warnings. It
    is an error there (E010) if a file that the program reads has changed.
    """
    source: str
    name: str
    fields: tuple[str, ...]
    documents: str | None
    masks: int
    here: range | None
    share: str | None
    profile: str | None
    node: int
    warnings: tuple[str, ...]
    model: Any
    _handle: int
    _defines: tuple[str, ...]
    _values: dict[str, Held]
    _declared: Declared | None
    _first: str | None
    _options: fcpc_options
    _settings: Any
    _files: tuple[tuple[str, str | None], ...]
    _folder: Folder | None
    _texts: list[str] | None
    _key: str

    def __init__(self, text: str, name: str = "program", defines: Sequence[str] = (), fields: Iterable[str] = (),
                 here: range | None = None, values: Mapping[str, Any] | None = None, share: str | None = None,
                 node: int = 1, profile: str | None = None) -> None:
        if not isinstance(text, str):
            raise Error("E202", f"the text of a program is expected, and this is {kind_of(text)}")
        if isinstance(defines, str):
            raise Error("E202", f"defines: settings in a list are expected, this is {defines!r}")
        kept = {field: held(given, f"field '{field}'") for field, given in (values or {}).items()}
        self._make(text, name, tuple(defines), tuple(fields), here, kept, share, node, profile)
        for said in self.warnings:
            warn(said)

    def _make(self, text: str, name: str, defines: tuple[str, ...], fields: tuple[str, ...], here: range | None,
              values: dict[str, Held], share: str | None, node: int, profile: str | None) -> None:
        settings = (ctypes.c_char_p * len(defines))(*(d.encode() for d in defines))
        options = fcpc_options(ctypes.sizeof(fcpc_options), ctypes.addressof(settings), len(defines),
                               profile=os.fsencode(profile) if profile else None)
        made, source = ctypes.c_void_p(), text.encode()
        with Diagnostics() as d:
            d.check(C["fcpc_parse_text"](name.encode(), source, len(source), ctypes.byref(options), d.handle,
                                         ctypes.byref(made)))
            said = d.warnings()
        # _settings: the options point to it
        self._put(_handle=made.value, _options=options, _settings=settings, source=text, name=name, _defines=defines,
                  fields=fields, here=here, _values=values, share=share or None, profile=profile or None, node=node,
                  warnings=said, model=None,
                  _texts=None, _first=None)
        files: list[str] = []
        while (path := C["fcpc_program_file"](self._handle, len(files))) is not None:
            files.append(os.fsdecode(path))
        self._put(_files=tuple((path, _hash_of(path)) for path in files),  # now: they may change
                  masks=C["fcpc_program_layers"](self._handle, 0, None), _folder=Folder(share) if share else None,
                  documents=documents_of(self.text) if any("documents" in t for t in (text, *defines)) else None,
                  _declared=declared_in(self.text) if any("field" in t for t in (text, *defines)) else None)
        if share:
            self._identity()
        self._remember()

    def _remember(self) -> None:
        """Registers the program by a digest of its parts, so that a pickle that returns to this process becomes the
        same object."""
        parts = (C["fcp_version"]().decode(), self.source, self.name, self._defines, self.fields, self.here, self.share,
                 self.profile, self.node, self._files, self.model, [(name, x.shape) for name, x in self._values.items()])
        arrays = [(x.numbers.buffer_info()[0], 8 * len(x.numbers)) for x in self._values.values()]
        self._put(_key=key_of([repr(parts), *arrays]))
        _programs.setdefault(self._key, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "model" or self.model is not None:
            super().__setattr__(name, value)
        if _programs.get(self._key) is self:
            del _programs[self._key]
        self._put(model=value)
        self._remember()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and C:
            C["fcpc_program_free"](self._handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self.source)

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._check_files("go to another process")
        parts = (self.source, self.name, self._defines, self.fields, self.here, self._values, self.share, self.node,
                 self.profile)
        return _again, (self._key, C["fcp_version"]().decode(), self._files, self.model, parts)

    def _check_files(self, what: str) -> None:
        for path, digest in self._files:
            if digest is None:
                raise Error("E010", f"{path} is not a regular file: a program that reads it cannot {what}", path)

    def _identity(self) -> list[str]:
        """All that plans depend on besides the batch: the program, and the files that it has read."""
        if self._texts is None:
            self._check_files("share its plans")
            self._put(_texts=[C["fcp_version"]().decode(), self.text, *([self.profile] if self.profile else []),
                              *(digest or "" for _, digest in self._files)])
        assert self._texts
        return self._texts

    @property
    def text(self) -> str:
        """The program in canonical layout. Parsing this text gives a program that prints the same."""
        return take_text(C["fcpc_program_print"](self._handle))

    def _with(self, defines: Sequence[str]) -> Program:
        """The same program with other settings."""
        made = Program.__new__(Program)
        made._make(self.source, self.name, (*self._defines, *defines), self.fields, self.here, self._values, self.share,
                   self.node, self.profile)
        return made

    def differs_in_masks_alone(self, other: Program) -> bool:
        """Do the two programs have the same model, cluster and settings, whatever their masks, fields and tables are?
        Then an `Attention` of one runs plans of the other."""
        return self == other or (self.here, self.node, self.masks) == (other.here, other.node, other.masks) and \
            beside_masks(self.text) == beside_masks(other.text)

    def plan(self, lengths: Any = None, fields: Mapping[str, Any] | None = None, queries: Any = None,
             here: range | None = None, stop: ctypes.c_int | None = None, max_seconds: float = 0,
             whole: bool = False) -> Plan:
        """Plans a batch, and proves that each tile is computed once, on data that is there.

        With `layers`, plans each mask: see Plan.layers.

        lengths   tokens of each sequence: numbers in a list, an array or a tensor; None: the program's own batch. They
                  are the differences of what FlashAttention calls cu_seqlens: fcpc.lengths(cu_seqlens) makes them. Or
                  an fcpc.Forest, with the fields `last` and `at`; or what fcpc.masks has made of another project's
                  mask, which has lengths and fields
        fields    {name: values}: all numbers of the field in one dimension, sequences end to end; or a list with an
                  array for each sequence; or, where sequences are alike, one array whose first dimension is theirs.
                  fcpc.Field says which numbers a field has. Of a field that is not here the program's own values are
                  taken, or those that a mask function had captured when the program was made
        queries   where it differs from the number of keys: queries of each sequence
        here      the ranks of this process; None: as the program's cluster says
        stop      a ctypes.c_int that another thread may set to end the planning (E013)
        max_seconds  a mask whose analysis is estimated to take longer on one processor is refused at once (E405). The
                  estimate counts work, not time, so it is the same on every machine; 0: no limit
        whole     where processes share plans (`share`), a process that is one rank gets what this rank needs of the
                  plan alone, which is all that a step of training asks for: see Plan.whole. True: it gets the whole
                  plan. All processes say the same

        The compiler's warnings about the plan are issued here, as fcpc.Warning, and are also in its `warnings`.

        Errors: E300 (lengths), E320 (fields), E31x (the mask fails at a pair), E403 and E404 (too large), E405.
        """
        return _warned(self._plan(lengths, fields, queries, here, stop, max_seconds=max_seconds, whole=whole))

    @overload
    def micro_batches(self, lengths: Forest, queries: None = None, tokens: int = 0, least: int = 0,
                      keep_order: bool = False, fields: None = None) -> MicroBatches: ...

    @overload
    def micro_batches(self, lengths: Any, queries: Any = None, tokens: int = 0, least: int = 0,
                      keep_order: bool = False, fields: Mapping[str, Any] | None = None) -> list[list[int]]: ...

    def micro_batches(self, lengths: Any, queries: Any = None, tokens: int = 0, least: int = 0,
                      keep_order: bool = False, fields: Mapping[str, Any] | None = None) -> Any:
        """Splits a batch that is too large for the ranks: the numbers of the sequences of each micro-batch, rising.

        Each sequence is in one micro-batch. All have about the same predicted work, and the one with most comes first.

        lengths, queries, fields  as in `plan`
        tokens      the most tokens of a rank; 0: as the program's strategy `groups` has it, or 65536
        least       at least so many micro-batches, as far as there are sequences
        keep_order  each micro-batch has neighbouring sequences, and they are in the batch's order

        `lengths` may be a forest of rollouts. Then the micro-batches are forests, each with some of the rollouts. A
        tree that all ranks together cannot hold is cut at branches, and its parts repeat what is before them: as few
        tokens as such cuts can, `MicroBatches.repeated`. All other trees stay whole. Each micro-batch goes to `plan`,
        or all of them to `ahead`; `Forest.select` brings along what else the caller has of the rollouts:

            for part, plan in prog.ahead(prog.micro_batches(forest, tokens=8192)):
                logits = model(plan.take(part.tokens), plan.take(part.at), attn.bind(plan))
                loss = (part.logprobs(logits, plan) * part.select(advantages)).sum()

        Errors: E206 (a sequence or rollout alone has too many tokens, or a number is out of range), E300 (lengths),
        E320 (fields)
        """
        if lengths is None:
            raise Error("E300", "micro_batches: lengths are expected")
        options = _split_options(tokens, least, keep_order)
        if isinstance(lengths, Forest):
            if queries is not None or fields is not None:
                raise Error("E300", "micro_batches: a forest says its queries and fields: leave both out")
            self._reads_last("micro_batches")
            return self._micro_forests(lengths, options)
        given = self._batch("micro_batches", lengths, fields, queries)
        assert given.lengths
        of, count = (ctypes.c_uint32 * given.lengths.size)(), ctypes.c_uint32()

        def call(stop: ctypes.c_int) -> None:
            with Diagnostics() as d:
                d.check(C["fcpc_split_batch"](self._handle, ctypes.byref(given.batch), ctypes.byref(options),
                                              ctypes.byref(stop), d.handle, of, None, ctypes.byref(count)))
        interruptibly(call, None)
        return _members(of, count.value)

    def _micro_forests(self, forest: Forest, options: fcpc_split_options) -> MicroBatches:
        cut, count, most = ctypes.c_void_p(), ctypes.c_uint32(), len(forest.rollouts)
        of, seconds = (ctypes.c_uint32 * most)(), (ctypes.c_double * most)()

        def call(stop: ctypes.c_int) -> None:
            with Diagnostics() as d:
                d.check(C["fcpc_split_forest"](self._handle, forest._owner.handle, ctypes.byref(options),
                                               ctypes.byref(stop), d.handle, ctypes.byref(cut), of,
                                               seconds, ctypes.byref(count)))
        interruptibly(call, None)
        whole = forest._of(cut.value or 0)
        made = [whole.pick(trees) for trees in _members(of[:whole.trees], count.value)]
        return MicroBatches(made, len(whole) - len(forest), seconds[:count.value])

    def _reads_last(self, what: str) -> None:
        """Checks that the program can be for forests."""
        if "last" not in self.fields:
            raise Error("E203", f"{what}: no mask of the program reads a field `last`, so tokens would see other "
                                "branches of their tree: \"causal and q <= last[k]\", with fields=[\"last\"]")

    def _batch(self, what: str, lengths: Any, fields: Mapping[str, Any] | None, queries: Any) -> Given:
        """A batch as C takes it. `what` is the method that was given it."""
        if isinstance(lengths, ForeignMask):
            if not lengths.is_of(self.source):
                raise Error("E203", f"{what}: this is a batch of a mask that is not the program's: ranges, tables or "
                                    "the text differ. Tensors that differ from batch to batch are fields, "
                                    "from_block_mask(fields=[name]); what else differs needs another program")
            lengths, fields = lengths.lengths, {**lengths.fields, **fields_of(fields)}
        if isinstance(lengths, Forest):
            self._reads_last(what)
            fields = {**{name: getattr(lengths, name) for name in ("last", "at") if name in self.fields},
                      **fields_of(fields)}
            lengths = lengths.lengths
        if isinstance(lengths, Lengths):
            if queries is not None:
                raise Error("E300", f"{what}: the lengths say the queries as well: leave `queries` out")
            lengths, queries = lengths.keys, lengths.queries
        held, asked = numbers_of(lengths, "Q", "lengths"), numbers_of(queries, "Q", "queries")
        if held and asked and held.size != asked.size:
            raise Error("E300", f"there are {held.size} lengths and {asked.size} numbers of queries")
        brought = fields_of(fields)
        declared = self._declared or Declared({}, {}, False)
        sizes = held and Sizes(held.owner, (asked or held).owner, held.size, declared)
        given = {name: numbers_of_field(name, x, declared.over.get(name, Over()), sizes)
                 for name, x in {**self._values, **brought}.items()}
        listed = (fcpc_field * len(given))()
        for slot, (name, values) in zip(listed, given.items()):
            slot.name, slot.count = name.encode(), values.size
            slot.values, slot.reals = (None, values.address) if values.real else (values.address, None)
        batch = fcpc_batch(ctypes.sizeof(fcpc_batch), held and held.address, asked and asked.address,
                           held.size if held else 0, ctypes.addressof(listed), len(given))
        return Given(batch, held, asked, given, sizes, [name for name in self._values if name not in brought], listed)

    def _plan(self, lengths: Any, fields: Mapping[str, Any] | None, queries: Any, here: range | None,
              stop: ctypes.c_int | None, gate: ContextManager[Any] = nullcontext(), turns: Turns | None = None,
              number: int = 0, max_seconds: float = 0, whole: bool = False) -> Plan:
        """`plan` without warnings. `gate` is a context that is entered while planning. With `turns`, `number` is the
        number of the batch in the loop, and another rank may plan it."""
        batch, held, asked, given, sizes, captured, _listed = self._batch("plan", lengths, fields, queries)
        declared = self._declared or Declared({}, {}, False)
        cumulative = cu_seqlens(held, {name: x for name, x in given.items()
                                       if declared.over.get(name, Over())[:3] == Over()[:3]})
        of_batch = [f"lengths begin with 0 and ascend, as cu_seqlens do, {shortly(cumulative)}. Lengths are the "
                    f"differences of those, {differences(cumulative)}: fcpc.lengths(cu_seqlens) makes them"
                    ] if cumulative else []
        of_batch += self._stale(captured, sizes)
        batch.max_seconds = max_seconds
        here = self.here if here is None else here

        def make() -> list[Plan]:
            made, times = (ctypes.c_void_p * self.masks)(), fcpc_times()

            def call(stop: ctypes.c_int) -> tuple[str, ...]:
                with Diagnostics() as d:
                    d.check(C["fcpc_plan_layers"](self._handle, ctypes.byref(batch), ctypes.byref(stop), d.handle,
                                                  ctypes.byref(times), made))
                    return d.warnings()
            said = interruptibly(call, stop, quick=held is not None and sum(held.owner) <= QUICK)
            return [Plan(handle or 0, here, times, said, self) for handle in made]

        def joined(plans: list[Plan], use: Any = None, warnings: Iterable[str] = ()) -> Plan:
            plan = together(plans, use, (*of_batch, *warnings))
            if cumulative:
                plan._kept["cu_seqlens"] = cumulative[-1]
            return plan
        if self._folder is None and turns is None:
            return joined(make())
        parts = [x for name, of in (("lengths", held), ("queries", asked), *given.items())
                 for x in (name, "none" if of is None else (of.address, 8 * of.size))]
        alone = not whole and here is not None and len(here) == 1 and (
            self.node > 1 if turns is None else here.start == turns.rank)
        form = "whole" if not alone or here is None else "parts" if turns else \
            f"parts of node {here.start // self.node}"
        key = key_of([*self._identity(), form, *parts])

        def from_file(path: str) -> Plan:
            return load(path, here, self)
        if turns is None:
            assert self._folder
            files = part_files(self, here.start, stop) if alone and here is not None else \
                whole_files(self.masks, from_file)
            return joined(*self._folder.plan(key, files, make, gate, stop))
        taking, program = turns, self if alone else None
        if turns.planner(number) == turns.rank:
            with gate:
                plan = joined(turns.give(number, key, make, program, stop))
        elif self._folder is None or alone:
            plan = joined(turns.take(number, key, from_file, program, stop))
        else:  # of a machine's processes one takes the whole plan from the store, and the others from the folder
            plan = joined(*self._folder.plan(key, whole_files(self.masks, from_file),
                                             lambda: taking.take(number, key, from_file, None, stop), nullcontext(),
                                             stop))
        turns.done(number)
        return plan

    def _stale(self, names: list[str], sizes: Sizes | None) -> list[str]:
        """A warning if fields have the values that a function has captured, and this is not the first batch."""
        if not names or sizes is None:
            return []
        now = key_of([repr((list(sizes.keys[:sizes.sequences]), list(sizes.queries[:sizes.sequences])))])
        if self._first in (None, now):
            self._put(_first=now)
            return []
        each = ", ".join(f'"{name}": values' for name in names)
        return [f"this batch has other lengths than the first one, and field{'s'[:len(names) > 1]} {', '.join(names)} "
                "still the values that the function had captured when the program was made. Each batch brings its own: "
                f"plan(lengths, {{{each}}})"]

    def ahead(self, loader: Iterable[Batch], depth: int = 2, threads: int = 2,
              of: Callable[[Batch], Any] | None = None, group: Any = None, timeout: float = 120,
              max_seconds: float = 0, whole: bool = False) -> Iterator[tuple[Batch, Plan]]:
        """Yields (batch, plan) for each batch of a loader, planned by threads while the steps before it run.

        depth     how many batches are taken from the loader before they are needed
        threads   how many batches are planned at once
        of        a function from a batch to (lengths, fields), or to lengths alone. None: the batch has `lengths` and
                  what the program names as fields, as attributes or as keys. So has a forest of rollouts
        group     None: each process plans every batch. The group of torch.distributed whose processes are the ranks:
                  its nodes plan in turn, and each other process gets what its rank needs of the plan through the
                  group's store. With n nodes each node plans one of n batches, so `depth` should be at least n
        timeout   with a group: seconds after which a plan that has not come is an error (E703), unless the rank that
                  plans it reports that it is still planning
        max_seconds  as in `plan`
        whole     as in `plan`, also with a group

        Batches come in the loader's order. An error of planning is raised when its batch is due. The compiler's
        warnings about a plan are issued when the loop gets that plan. Warnings that differ only in their numbers are
        issued once in a loop; `plan.warnings` always has them. If the loop ends early, planning that is under way is
        stopped. Threads that plan have a lower priority (nice 10). With a group, an error of the rank that plans is
        raised in all of its processes, and a batch that is not the same in all of them is E706.
        """
        if depth < 1 or threads < 1:
            raise Error("E203", f"ahead: depth is {depth} and threads {threads}; both are at least 1")
        stop, gate = ctypes.c_int(0), threading.Semaphore(threads)
        waiting: deque[tuple[Batch, Future[Plan]]] = deque()
        known: set[str] = set()  # warnings that this loop has had
        turns = None if group is None else Turns(group, self.node, timeout)
        # Where plans are shared, the other threads wait for plans of other processes.
        pool = ThreadPoolExecutor(threads if self._folder is None and turns is None else threads + depth,
                                  thread_name_prefix="fcpc-ahead", initializer=_after_others)
        try:
            for number, batch in enumerate(loader):
                lengths, fields = self._of(batch) if of is None else _pair(of(batch))
                waiting.append((batch, pool.submit(self._plan, lengths, fields, None, None, stop, gate, turns, number,
                                                   max_seconds, whole)))
                if len(waiting) > depth:
                    batch, planned = waiting.popleft()
                    yield batch, _warned(planned.result(), known)
            while waiting:
                batch, planned = waiting.popleft()
                yield batch, _warned(planned.result(), known)
        except BaseException:  # also where the caller has left the loop
            if turns is not None:
                turns.leave()
            raise
        finally:
            stop.value = 1
            pool.shutdown(cancel_futures=True)

    def _of(self, batch: Any) -> tuple[Any, dict[str, Any]]:
        found = {}
        if isinstance(batch, Forest):
            self._reads_last("ahead")
        for name in ("lengths", *self.fields):
            has = name in batch if hasattr(batch, "keys") else hasattr(batch, name)
            if has:
                found[name] = batch[name] if hasattr(batch, "keys") else getattr(batch, name)
            elif name not in self._values and name not in getattr(found.get("lengths"), "fields", ()):
                raise Error("E209", f"ahead: a batch has no '{name}': `of` says where its lengths and fields are")
        return found.pop("lengths"), found

    def explain(self, q: int, k: int, length: int = 0, head: int = 0, logit: float = 0.0, width: int = 80) -> str:
        """Explains why query q sees key k or not, with the value of every sub-expression, and what the score does.

        length   tokens of the sequence; 0: as many as q and k need
        head     the query head, for masks and scores that name h
        logit    the logit that the score gets
        width    columns of the text

        Errors: E206 (q or k is not in the sequence), and those of the mask at this pair
        """
        question = fcpc_question(ctypes.sizeof(fcpc_question), q, k, length, head=head, logit=logit, width=width)
        made, source = ctypes.c_void_p(), self.source.encode()
        with Diagnostics() as d:
            d.check(C["fcpc_explain_text"](self.name.encode(), source, len(source), ctypes.byref(self._options),
                                           ctypes.byref(question), d.handle, ctypes.byref(made)))
        return take_text(made.value)

    def __repr__(self) -> str:
        return "\n".join([f"fcpc.Program:\n{self.text.rstrip()}", *(f"warning: {said}" for said in self.warnings)])

    def _repr_html_(self) -> str:
        """The text; and a picture of each mask over one sequence of 2048 tokens, unless it reads fields of a batch."""
        picture = "" if self.fields else "".join(
            plan.svg() for plan in self._plan([2048], {}, None, None, None, whole=True).layers)
        said = "".join(f"\nwarning: {said}" for said in self.warnings)
        return f"{picture}<pre>{html.escape(self.source + said)}</pre>"


# Each program of this process by its parts. Of those that are equal it has the first.
_programs: weakref.WeakValueDictionary[str, Program] = weakref.WeakValueDictionary()


def _again(key: str, version: str, files: Any, model: Any, parts: Any) -> Program:
    """The program that was pickled: the one that is here, or another of its parts."""
    found = _programs.get(key)
    if found is not None:
        return found
    here = C["fcp_version"]().decode()
    if version != here:
        raise Error("E010", f"this program comes from fcpc {version}, and here is {here}")
    made = Program.__new__(Program)
    made._make(*parts)
    for (path, digest), (other, its) in zip(made._files, files):
        if (path, digest) != (other, its):
            raise Error("E010", f"{other} is here another file than the one that the program has read", other)
    if model is not None:
        made.model = model
    return made


def _warned(plan: Plan, known: set[str] | None = None) -> Plan:
    """Issues the warnings of a plan, in the thread of the caller who gets the plan. known: those issued already,
    without their numbers and plurals; they are not issued again."""
    for said in plan.warnings:
        kind = re.sub(r"[0-9]+|s\b", "", said)
        if known is None or kind not in known:
            warn(said)
        if known is not None:
            known.add(kind)
    return plan


def _after_others() -> None:
    """Lowers the priority of this thread, and of threads that it starts: training steps come before planning."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _split_options(tokens: int, least: int, keep_order: bool) -> fcpc_split_options:
    for name, number in (("tokens", tokens), ("least", least)):
        if not 0 <= number < 1 << 24:
            raise Error("E206", f"micro_batches: {name} is {number}, and must be from 0 to 2^24 - 1")
    return fcpc_split_options(ctypes.sizeof(fcpc_split_options), tokens, least, keep_order)


def _members(of: Iterable[int], count: int) -> list[list[int]]:
    """What is in each of `count` micro-batches: of[i] is that of number i."""
    made: list[list[int]] = [[] for _ in range(count)]
    for i, number in enumerate(of):
        made[number].append(i)
    return made


def _pair(said: Any) -> tuple[Any, Any]:
    return said if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], dict) else (said, None)


def parse(text: str, name: str = "program", defines: Sequence[str] = (), fields: Iterable[str] = (),
          here: range | None = None, share: str | None = None, profile: str | None = None) -> Program:
    """A program from its whole text (grammar/LANGUAGE.md).

    name      what messages call it
    defines   settings such as "cluster.nodes=4", which take the place of the text's
    fields    names of the fields that `ahead` looks for in a batch
    here      the ranks of this process, a range; None: all
    share     the folder in which processes of this machine share plans, see Program
    profile   as in `program`

    Errors: those of the language (E1xx, E2xx), with the place in the text; E340, E010 (there is no such profile)
    """
    return Program(text, name, defines, fields, here, share=share, profile=profile)


def program(mask: Mask | None = None, fields: Any = (), heads: int = 8, kv_heads: int | None = None,
            head_dim: int = 128, cluster: Cluster | None = None, dtype: Any = "bf16", scale: float | None = None,
            score: Mask | None = None, tables: Mapping[str, Any] | None = None, layers: Sequence[Any] | None = None,
            share: str | None = None, value_dim: int | None = None, values: str | None = None,
            documents: str | None | Unset = UNSET, align: str | None = None, profile: str | None = None,
            **plan: Any) -> Program:
    """A program from its parts.

    mask      who attends to whom: text of the language, such as "causal and doc[q] == doc[k]"; or a function
              (b, h, q_idx, kv_idx) as FlexAttention takes it, see fcpc.trace; or what fcpc.masks has made of another
              project's mask
    fields    the names of fields, for which each batch has numbers; or {name: "given(range = 0..64)"}, {name:
              "given(over = sequences)"}, {name: "given(real, over = heads, keys)"}. A field has a number for each
              token, unless this says otherwise or a mask function reads it in another way, see fcpc.Field
    documents the name of the field that separates the documents of a sequence. A document is a run of neighbouring
              tokens of a sequence in which this field is the same. Positions begin anew in each document, and labels
              end with it; masks do not change. `fields` need not list it. None: each sequence is a document
    heads, kv_heads, head_dim, scale   of the model; kv_heads None: as many as heads
    dtype     of the tensors: bf16, fp16 or fp32, or what torch or numpy calls so, such as torch.bfloat16
    value_dim how many numbers a head of v and o has; None: head_dim
    values    "keys": the values are the first value_dim numbers of each key, as when latents are keys and values at
              once (MLA); there are then no v and no dv
    cluster   from `detect`, or a Cluster; None: one rank
    score     a function that is applied to each logit: text, such as "softcap(c = 30.0)"; or a Python function
              (score, b, h, q_idx, kv_idx)
    tables    {name: numbers}, of one or two dimensions: data of the model that mask and score may read
    layers    instead of mask, if layers of the model differ: a list of masks, each alone or as (mask, how many layers
              have it). Their plans have each token on the same rank, so that nothing moves between layers. Beside masks
              it may have layers that mix tokens otherwise: fcpc.Scan and fcpc.Halo, alone or as (fcpc.Scan(...), how
              many), or their text, "scan(decay = matrix) x 3"
    align     where a sequence with other queries than keys has its queries: "bottom_right", the default, has the last
              query where the last key is; "top_left" has the first query where the first key is
    share     the folder in which processes of this machine share plans: one of them makes a plan, and the others get
              what their ranks need of it. None: /dev/shm/fcpc-USER if each process is one rank, there are more than
              1024 ranks, and a machine has several of them; otherwise, and with "", plans are not shared
    profile   says how fast kernels are: a name, such as "h200", or a file that `fcpc calibrate` has made. By it the
              compiler chooses what is left open (strategy="auto", the block, the margin, the ranks of groups), and
              Plan.simulate predicts. None: that of the cluster's gpu
    plan      keys of the section `plan`: block=512, strategy="dcp", sink=0.5, layout="zigzag", lse_gradient=True.
              layout is "planned" unless it is stated

    The compiler's warnings about the program are issued as fcpc.Warning. There is also a warning if a mask keeps tokens
    within their document, f[q] == f[k], and the argument `documents` is missing; and if nothing reads a field.

    Errors: those of the language (E1xx, E2xx), with the place in the text that was made of the parts; E202 (an argument
    of a wrong type); E340, E010 (there is no such profile)
    """
    cluster = Cluster() if cluster is None else cluster
    if not isinstance(cluster, Cluster):
        one = f"fcpc.detect(ranks={int(cluster)})" if isinstance(cluster, int) else "fcpc.detect(group)"
        raise Error("E202", f"cluster: {kind_of(cluster)} is no fcpc.Cluster: write cluster={one}")
    declared = _declared(fields)
    if documents is not UNSET and documents is not None:
        if not isinstance(documents, str):
            raise Error("E202", "documents: the name of a field is expected, or None, and this is "
                                f"{kind_of(documents)}")
        declared.setdefault(documents, "given")
    if tables is not None and not hasattr(tables, "items"):
        raise Error("E202", f"tables: {{name: numbers}} is expected, and this is {kind_of(tables)}")
    if layers is not None and not isinstance(layers, (list, tuple)):
        raise Error("E202", f"layers: a list of masks is expected, and this is {kind_of(layers)}")
    functions = _Functions(declared, dict(tables or {}))

    top_left: list[bool] = []  # of each mask: must queries be at the top left?

    def text_of(x: Any, kind: str) -> str:
        if isinstance(x, ForeignMask) and kind == "mask":
            top_left.append(x.top_left)
            return functions.foreign(x)
        top_left.extend([False] * (kind == "mask"))
        if isinstance(x, str):
            return x
        if callable(x):
            return functions.text(x, kind)
        hint = ": fcpc.masks.from_block_mask takes it" if hasattr(x, "mask_mod") else ""
        raise Error("E202", f"a {kind} is text of the language, such as {_EXAMPLES[kind]}, or a function, and this is "
                            f"{kind_of(x)}{hint}")
    masks = {} if mask is None else {"main_mask": text_of(mask, "mask")}
    counts = []
    for i, layer in enumerate(layers or (), 1):
        one, count = layer if isinstance(layer, tuple) and len(layer) == 2 else (layer, 1)
        other = _beside_attention(one, count_of("layers", count))
        if other:
            counts.append(other)
            continue
        masks[f"layer_{i}"] = text_of(one, "mask")
        counts.append(f"layer_{i} x {count_of('layers', count)}")
    said = None if score is None else text_of(score, "score")
    if layers is not None:
        plan["layers"] = counts
    if any(top_left) and align is None:
        if not all(top_left):
            raise Error("E209", "masks of several kinds, of which one counts queries from 0, and sequences with other "
                                'queries than keys: say align="top_left", which then holds for all of them')
        align = "top_left"
    if any(top_left) and align != "top_left":
        raise Error("E206", f"align is {align}, and the mask needs top_left: it counts queries from 0")
    heads = count_of("heads", heads)
    if scale is not None and not isinstance(getattr(scale, "tolist", lambda: scale)(), (int, float)):
        raise Error("E202", f"scale: a number is expected, this is {kind_of(scale)}")
    model = {"heads": heads, "kv_heads": heads if kv_heads is None else count_of("kv_heads", kv_heads),
             "head_dim": count_of("head_dim", head_dim),
             "value_dim": None if value_dim is None else count_of("value_dim", value_dim), "values": values,
             "dtype": dtype_of(dtype), "scale": None if scale is None else float(scale)}
    for key, value in plan.items():
        if value is not None:
            _check_value(key, value)
    its_tables = [f"table {name} = {table_of(name, table)}" for name, table in functions.tables.items()]
    lines = [section("model", model, its_tables),
             section("cluster", {"nodes": cluster.nodes, "gpus": cluster.gpus, "gpu": name_of(cluster.gpu)}),
             section("batch", {"align": align, "documents": None if documents is UNSET else documents},
                     [f"field {name} = {text}" for name, text in declared.items()]) if declared or align else "",
             *functions.before, *(f"mask {name} = {text}" for name, text in masks.items()),
             f"score main_score = {said}" if said else "",
             section("plan", {"mask": mask and "main_mask", "score": said and "main_score", "layout": "planned",
                              **plan})]
    if share is None and cluster.here is not None and cluster.gpus > 1 and cluster.nodes * cluster.gpus > MANY_RANKS:
        share = usual_folder()
    try:
        made = Program("\n".join(line for line in lines if line) + "\n", "program", (), declared, cluster.here,
                       functions.values, share, cluster.gpus, profile)
    except Error as error:
        raise _with_hint(error, plan) from None
    read = {*re.findall(r"\w+", " ".join([*masks.values(), said or "", *functions.before])), documents}
    for name in declared:
        if name not in read:
            warn(f"no mask or score reads field '{name}', so its values change nothing. A tensor that a function has "
                 "captured has the name of the variable or attribute that holds it")
    field = separating(made.text) if documents is UNSET and declared else None
    if field:
        warn(f"the mask has {field}[q] == {field}[k]. If {field} tells documents of a sequence apart, write "
             f'documents="{field}": positions and labels then begin anew at each. If each sequence is one document, '
             "write documents=None")
    return made


_BESIDE = re.compile(r"\s*(scan|halo)\b(?!\s*\[)")


def _beside_attention(element: Any, times: int) -> str:
    """An element of `layers` that is no mask, as the language writes it; "": it is a mask."""
    if isinstance(element, (Halo, Scan)):
        return element.text(times)
    if isinstance(element, str) and _BESIDE.match(element):
        return element if times == 1 else f"{element} x {times}"
    return ""


_EXAMPLES = {"mask": '"causal"', "score": '"softcap(c = 30.0)"'}


def _declared(fields: Any) -> dict[str, str]:
    """{name: how the language declares it} of the argument `fields`."""
    if hasattr(fields, "items"):
        for name, said in fields.items():
            if not isinstance(said, str):
                raise Error("E202", f"fields: this says what a field has numbers for, {{\"{name}\": \"given(over = "
                                    f"sequences)\"}}, and its values come with each batch, plan(lengths, {{\"{name}\": "
                                    f"values}}). Here is {kind_of(said)}")
        return dict(fields)
    names = [] if isinstance(fields, str) or not hasattr(fields, "__iter__") else list(fields)
    if isinstance(fields, str) or not hasattr(fields, "__iter__") or not all(isinstance(name, str) for name in names):
        meant = f": write fields=[{fields!r}]" if isinstance(fields, str) else ""
        raise Error("E202", f"fields: names in a list are expected, and this is {kind_of(fields)}{meant}")
    return dict.fromkeys(names, "given")


def _with_hint(error: Error, plan: Mapping[str, Any]) -> Error:
    """The error of a program, with its hints in Python; of a key that the language does not know, with the argument
    that may be meant."""
    text = "\n".join(in_python(line) if "= hint: " in line else line for line in str(error).split("\n"))
    key = next((key for key in plan if error.code == "E205" and f"'{key}'" in error.message), "")
    near = difflib.get_close_matches(key, inspect.signature(program).parameters, 1) if key else []
    if near and "hint: the keys are" in text and "did you mean" not in text:
        text += f"\n      = hint: did you mean {near[0]}=...?"
    return Error(error.code, error.message, error.file, error.line, error.column, error.where, text, error.warnings)


def _check_value(key: str, value: Any) -> None:
    """Checks that a value may stand in the section `plan`. The key may be one of another project, as mask_mod is."""
    try:
        value_of(value, key)
    except Error:
        meant = foreign_word(key)
        if not meant:
            raise
        message = f"there is no argument '{key}'"
        raise Error("E205", message, text=f"error[E205]: {message}\n      = hint: {in_python(meant)}") from None


class _Functions:
    """The functions of a program, one traced after the other: what they have captured and which fields they read.

    fields   {name: declaration} that the caller states
    """

    def __init__(self, fields: dict[str, str], tables: dict[str, Any]) -> None:
        self.declared, self.tables = fields, tables
        self.stated = dict(fields)
        self.values: dict[str, Any] = {}  # of the fields whose tensors functions have captured
        self.found: dict[str, Any] = {}  # those of them that nobody has stated
        self.over: dict[str, Over] = {}
        self.before: list[str] = []
        self.foreigners: dict[str, Any] = {}  # the values of fields of masks of other projects

    def foreign(self, mask: ForeignMask) -> str:
        """The text of a mask of another project. Its fields are not captured: each batch brings them."""
        for name, said in mask.declared.items():
            known = self.foreigners.setdefault(name, mask.fields.get(name))
            if name in self.stated and (self.stated[name] != said or known is not mask.fields.get(name)):
                raise Error("E201", f"two masks of the program have a field '{name}': give one of them another name, "
                                    "from_...(name=...)")
            self.stated[name] = self.declared[name] = said
        text = self.text(mask.text, "mask") if callable(mask.text) else mask.text
        for name in mask.fields:
            self.values.pop(name, None)
        return text

    def text(self, function: Callable[..., Any], kind: str) -> str:
        """The text of a function."""
        from .trace import traced_function
        traced = traced_function(function, kind, self.stated, self.tables, self.found)
        self.tables.update(traced.tables)
        for name, numbers in traced.fields.items():
            known = self.values.get(name)
            if known is not None and known is not numbers and (known.shape != numbers.shape
                                                               or known.tolist() != numbers.tolist()):
                raise Error("E320", f"two functions have captured field '{name}', each with values of its own")
            self.values[name] = numbers
            if name not in self.stated:
                self.found[name] = numbers
        for name, over in traced.over.items():
            known = self.over.get(name, over)
            if known != over and {known.text(), over.text()} == {"queries", "keys"}:
                over = known = over._replace(q_cell=0, k_cell=1)  # whoever has declared neither means both
            if known != over:
                raise Error("E320", f"field '{name}' is read as if it were over {known.text()}, and in another "
                                    f"function as if it were over {over.text()}")
            self.over[name] = over
            self.declared[name] = over.declared(self.stated.get(name, "given"))
        self.before.extend(traced.definitions)
        return traced.text
