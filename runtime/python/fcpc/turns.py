"""turns.py: lets nodes plan batches in turn, and send each other the plans.

If planning takes longer than a training step, `ahead` cannot keep up while each node plans every batch. So node 0 plans
batch 0, node 1 plans batch 1, and so on, and four nodes plan four batches at the same time. On each node the first
process plans. It cuts what each rank needs out of the plan (parts.py), and all other processes get this through the
store of torch.distributed, each its own:

    KEY/7             what batch 7 is, or the error of the rank that planned it: JSON
    KEY/7/common/0    the common part, in pieces that every store accepts: 0, 1, ...
    KEY/7/4/1/0       what rank 4 needs of the batch's mask 1, likewise. Rank 4 removes it
    KEY/7/plan/1/0    or the whole plan of mask 1, if all want it
    KEY/7/taken       how many processes have the plan; the last one removes all of these keys
    KEY/left/4        rank 4 has left its loop
    KEY/busy/4        rank 4 has been planning for a while: a number that it increments

The planner verifies a plan when it has made it, and the others trust it. They compare what comes with the roots in the
common part, and that with its digest. So they notice what has been altered on the way. A whole plan is verified by each
process. The batch must be the one that this process has, which is compared by a digest too (shared.key_of).
"""
from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Callable, Iterator

from .errors import Error
from .parts import Common, cut, of_parts
from .ranks import meet

if TYPE_CHECKING:
    from .plan import Plan
    from .program import Program

_PIECE = 4 << 20    # the store of torch.distributed takes 8 MiB at a time
_SLOWEST = 0.05     # seconds between two questions to the store
_BEATS = 4          # how often within the time limit a rank says that it is busy


class Turns:
    """The turns of one loop.

    group     of torch.distributed: each of its processes is a rank of the plans, in its order
    node      how many ranks a node has
    timeout   seconds after which a plan that has not come is an error, unless its planner says that it is planning
    """

    def __init__(self, group: Any, node: int, timeout: float) -> None:
        self.rank, self.ranks, self._store, self._key = meet(group)
        if self.ranks % node:
            raise Error("E706", f"ahead: {self.ranks} processes do not make nodes of {node}")
        self._node, self._timeout = node, timeout

    def planner(self, batch: int) -> int:
        """The rank that plans a batch."""
        return batch * self._node % self.ranks

    def give(self, batch: int, what: str, make: Callable[[], list[Plan]], program: Program | None,
             stop: ctypes.c_int | None) -> list[Plan]:
        """Makes the plans of a batch, by make(), and sends them to all. `what`: a digest of all that they depend on.

        program   of which each rank gets what it needs, and so does this one. None: all get the whole plans
        """
        keys: list[str] = []
        try:
            with self._busy():
                plans = make()
                if program is None:
                    for mask, plan in enumerate(plans):
                        keys += self._send(self._name(batch, "plan", mask), plan._bytes())
                else:
                    common, plans = self._send_parts(batch, plans, program, stop)
                    keys += self._send(self._name(batch, "common"), common)
            self._say(batch, {"what": what, "digests": [plan.digest for plan in plans], "keys": keys})
        except BaseException as error:
            self._say_error(batch, error)
            raise
        return plans

    def _send_parts(self, batch: int, plans: list[Plan], program: Program,
                    stop: ctypes.c_int | None) -> tuple[bytes, list[Plan]]:
        """Sends each other rank what it needs. Returns the common part, and the plans of this rank."""
        mine: list[bytes] = []

        def take(rank: int, mask: int, extract: bytes) -> None:
            if rank == self.rank:
                mine.append(extract)
            else:
                self._send(self._name(batch, rank, mask), extract)
        common = cut(plans, range(self.ranks), take, stop)
        return common, of_parts(Common(common), mine, self.rank, program, plans)

    def take(self, batch: int, what: str, load: Callable[[str], Plan], program: Program | None,
             stop: ctypes.c_int | None) -> list[Plan]:
        """Gets the plans of a batch that another rank plans. `load`: gives a whole plan from a path; `program`: see
        `give`; `stop`: see Program.plan.

        Errors: that of the planner; E706 (it has planned another batch than this process has); E703 (it has ended, or
        has sent nothing in time); those of the loader.
        """
        said = json.loads(self._wait(batch, stop))
        if "error" in said:
            raise Error(*said["error"])
        rank = self.planner(batch)
        if said["what"] != what:
            raise Error("E706", f"batch {batch} of the loop is not the batch of rank {rank}, which has planned it: all "
                                "ranks need the same program, lengths and fields, and the same `whole`")
        if program is None:
            plans = [_plan_of(self._receive(self._name(batch, "plan", mask)), load)
                     for mask in range(len(said["digests"]))]
        else:
            common = Common(self._receive(self._name(batch, "common")))
            mine = [self._receive(self._name(batch, self.rank, mask), mine=True) for mask in range(len(common.roots))]
            plans = of_parts(common, mine, self.rank, program, [])
        if [plan.digest for plan in plans] != said["digests"]:
            raise Error("E706", f"the plan of batch {batch} has not come as rank {rank} has sent it")
        return plans

    def _send(self, name: str, data: bytes) -> list[str]:
        """Puts bytes into the store, behind their number. Returns the keys that have them."""
        data, keys = len(data).to_bytes(8, "little") + data, []
        for number, at in enumerate(range(0, len(data), _PIECE)):
            keys.append(f"{name}/{number}")
            self._store.set(keys[-1], data[at:at + _PIECE])
        return keys

    def _receive(self, name: str, mine: bool = False) -> bytes:
        """What `_send` has put there; it is removed if it is for this rank alone."""
        pieces = [self._store.get(f"{name}/0")]
        size = 8 + int.from_bytes(pieces[0][:8], "little")
        pieces += [self._store.get(f"{name}/{number}") for number in range(1, -(-size // _PIECE))]
        for number in range(len(pieces) if mine else 0):
            self._store.delete_key(f"{name}/{number}")
        return b"".join(pieces)[8:]

    def done(self, batch: int) -> None:
        """This process has the plans of a batch."""
        if self._store.add(self._name(batch, "taken"), 1) < self.ranks:
            return
        for key in json.loads(self._store.get(self._name(batch)))["keys"]:
            self._store.delete_key(key)
        self._store.delete_key(self._name(batch))
        self._store.delete_key(self._name(batch, "taken"))

    def leave(self) -> None:
        """Tells the others, which may be waiting, that this process will not plan any more."""
        with suppress(RuntimeError):  # there may be nobody left, nor a store
            self._store.set(f"{self._key}/left/{self.rank}", b"")

    def _name(self, batch: int, *more: int | str) -> str:
        return "/".join(map(str, (self._key, batch, *more)))

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Tells the others again and again, as long as the context lasts, that this process is planning. They then know
        it from one that has died."""
        over, name = threading.Event(), f"{self._key}/busy/{self.rank}"

        def beat() -> None:
            with suppress(RuntimeError):  # the store may be gone
                while not over.wait(self._timeout / _BEATS):
                    self._store.add(name, 1)
                self._store.delete_key(name)
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _say(self, batch: int, what: dict[str, Any]) -> None:
        self._store.set(self._name(batch), json.dumps(what))

    def _say_error(self, batch: int, error: BaseException) -> None:
        if isinstance(error, Error):
            if error.code == "E013":  # `leave` says that
                return
            said = [error.code, error.message, error.file, error.line, error.column, error.where, str(error)]
        else:
            said = ["E703", f"rank {self.rank} has failed to plan batch {batch}: {error!r}"]
        self._say(batch, {"error": said})

    def _wait(self, batch: int, stop: ctypes.c_int | None) -> bytes:
        """Waits for what the planner says of a batch. It asks the store now and then: waiting inside the store would
        block the other threads of this process."""
        name, left = self._name(batch), f"{self._key}/left/{self.planner(batch)}"
        busy, heard, look = f"{self._key}/busy/{self.planner(batch)}", None, 0.0
        end, pause = time.monotonic() + self._timeout, 0.001
        while not self._store.check([name]):
            if stop is not None and stop.value:
                raise Error("E013", "interrupted")
            if time.monotonic() > look:
                look = time.monotonic() + self._timeout / _BEATS / 2
                said = self._count(busy)
                if said not in (None, heard):
                    heard, end = said, time.monotonic() + self._timeout
            why = "has left its loop" if self._store.check([left]) and not self._store.check([name]) else \
                f"has not sent it for {self._timeout} s" if time.monotonic() > end else None
            if why:
                error = Error("E703", f"rank {self.planner(batch)} plans batch {batch} and {why}")
                self._say_error(batch, error)  # so that nobody else waits as long
                raise error
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST)
        data: bytes = self._store.get(name)
        return data

    def _count(self, name: str) -> int | None:
        """A number in the store; None: there is none. It may be removed at any time, so it is not waited for."""
        return self._store.add(name, 0) if self._store.check([name]) else None


def _plan_of(data: bytes, load: Callable[[str], Plan]) -> Plan:
    """The plan whose file has these bytes."""
    with _memory() as file:
        file.write(data)
        file.flush()
        return load(f"/proc/self/fd/{file.fileno()}")


def _memory() -> IO[bytes]:
    """A file in memory, which is deleted when nobody has it open or mapped."""
    return os.fdopen(os.memfd_create("fcpc-plan", os.MFD_CLOEXEC), "w+b")
