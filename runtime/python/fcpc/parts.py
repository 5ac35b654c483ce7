"""parts.py: cuts what each rank needs out of plans, and makes a rank's plans of it again.

A rank of very many needs little of a plan. So a process that has made and verified the plan of a batch gives each other
process the *extract* of its rank (fcp.h). The extracts are proven by their roots, which must come from a process that
is trusted. All ranks get the roots in the *common part*, with what a training step asks of the batch and an extract
does not know: how many tokens each rank holds, and where documents begin.

    the common part   SHA-256 of what follows | JSON: roots, documents, furthest | a new line | lists
    lists             JSON, compressed: queries of each rank, documents (their first row, as a difference to the last)
"""
from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import zlib
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator

from ._c import C, TAKE_EXTRACT, check, fcp_error
from .arrays import array_of
from .errors import Error
from .interrupt import interruptibly
from .shared import Files, read_whole, write_whole

if TYPE_CHECKING:
    from .plan import Plan
    from .program import Program


class Common:
    """The common part of the plans of a batch.

    roots      of each plan's extracts
    documents  how many there are
    furthest   the largest position of a token, if the program's model asks for it; else None
    """

    def __init__(self, data: bytes) -> None:
        digest, rest = data[:32], data[32:]
        if hashlib.sha256(rest).digest() != digest:
            raise Error("E503", "the common part of plans has been altered")
        head, self._lists = rest.split(b"\n", 1)
        said = json.loads(head)
        self.roots, self.documents, self.furthest = said["roots"], said["documents"], said["furthest"]
        self._read: dict[str, Any] = {}

    def _list(self, name: str) -> list[int]:
        if not self._read:
            self._read = json.loads(zlib.decompress(self._lists))
        found: list[int] = self._read[name]
        return found

    @property
    def queries(self) -> tuple[int, ...]:
        """How many tokens each rank holds."""
        return tuple(self._list("queries"))

    @property
    def first_rows(self) -> Iterator[int]:
        """The row in the packed batch of each document's first token."""
        return itertools.accumulate(self._list("documents"))


def cut(plans: list[Plan], ranks: range, take: Callable[[int, int, bytes], None], stop: ctypes.c_int | None) -> bytes:
    """Calls take(rank, number of the plan, its extract) for each of some ranks and each of the plans of a batch, and
    returns the common part. Plans of a program's masks have each token at the same place."""
    first = plans[0]
    rows = list(first._first_rows())
    lists = {"queries": first._all_queries(), "documents": [b - a for a, b in zip([0, *rows], rows)]}
    model = first.program and first.program.model
    furthest = None if getattr(model, "reach", None) is None else first._furthest()
    roots = [_cut(plan, ranks, number, take, stop) for number, plan in enumerate(plans)]
    said = {"roots": roots, "documents": len(rows), "furthest": furthest}
    rest = json.dumps(said).encode() + b"\n" + zlib.compress(json.dumps(lists).encode())
    return hashlib.sha256(rest).digest() + rest


def _cut(plan: Plan, ranks: range, number: int, take: Callable[[int, int, bytes], None],
         stop: ctypes.c_int | None) -> str:
    """Gives the extracts of one plan to `take`, and returns their root."""
    raised: list[BaseException] = []

    def taken(_: Any, rank: int, data: int, size: int) -> bool:
        try:  # an exception must not pass through C
            take(rank, number, ctypes.string_at(data, size))
            return True
        except BaseException as error:
            raised.append(error)
            return False
    function, root, err = TAKE_EXTRACT(taken), (ctypes.c_uint8 * 32)(), fcp_error()
    code = interruptibly(lambda stop: C["fcp_extracts_cut"](
        plan._handle, ranks.start, len(ranks), ctypes.byref(stop), function, None, root, ctypes.byref(err)), stop)
    if raised:
        raise raised[0]
    check(code, err)
    return bytes(root).hex()


def of_parts(common: Common, extracts: Iterable[bytes], rank: int, program: Program | None, made: list[Plan]
             ) -> list[Plan]:
    """The plans of a rank, of the common part and its extracts. `made`: the whole plans, if this process has made them,
    which say how long that took and what the compiler said."""
    from .plan import Plan, address
    plans = []
    for number, (root, extract) in enumerate(zip(common.roots, extracts)):
        handle, err = ctypes.c_void_p(), fcp_error()
        proof = (ctypes.c_uint8 * 32).from_buffer_copy(bytes.fromhex(root))
        check(C["fcp_extract_load"](extract, len(extract), rank, proof, ctypes.byref(handle), ctypes.byref(err)), err)
        times, warnings = (made[number]._times, made[number].warnings) if made else (None, ())
        plans.append(Plan(address(handle), range(rank, rank + 1), times, warnings, program, part=True, common=common))
    return plans


def part_files(program: Program, rank: int, stop: ctypes.c_int | None) -> Files:
    """The files by which the ranks of a node share what each needs of the plans of a batch."""
    def read(paths: list[str]) -> list[Plan]:
        common, *extracts = [read_whole(path) for path in paths]
        return of_parts(Common(common), extracts, rank, program, [])

    def write(path_of: Callable[[str], str], plans: list[Plan]) -> list[Plan]:
        mine: list[bytes] = []

        def take(of: int, mask: int, extract: bytes) -> None:
            write_whole(path_of(f"{of}.{mask}"), extract)
            if of == rank:
                mine.append(extract)
        first = rank // program.node * program.node
        common = cut(plans, range(first, min(first + program.node, plans[0].ranks)), take, stop)
        write_whole(path_of("common"), common)
        return of_parts(Common(common), mine, rank, program, plans)
    return Files(["common", *(f"{rank}.{mask}" for mask in range(program.masks))], read, write)
