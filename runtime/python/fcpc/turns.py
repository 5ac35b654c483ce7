"""turns.py: lets nodes plan batches in turn, and send each other the plans.

If planning takes longer than a training step, `ahead` cannot keep up while each node plans every batch. So node 0 plans
batch 0, node 1 plans batch 1, and so on, and four nodes plan four batches at the same time. On each node the first
process plans. All other processes get the plan's bytes through the store of torch.distributed:

    KEY/7             a description of batch 7's plans, or the error of the rank that planned it: JSON
    KEY/7/0, 1, ...   the bytes, in pieces that every store accepts
    KEY/7/taken       how many processes have the plan; the last one removes all of these keys
    KEY/left/4        rank 4 has left its loop
    KEY/busy/4        rank 4 has been planning for a while: a number that it increments

Plans that come from other processes are not trusted. The loader verifies a plan; it must have the digest that its
planner has sent, and be of the batch that this process has, which is compared by a digest too (shared.key_of).
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
from .ranks import meet

if TYPE_CHECKING:
    from .plan import Plan

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
        self.rank, self._ranks, self._store, self._key = meet(group)
        if self._ranks % node:
            raise Error("E706", f"ahead: {self._ranks} processes do not make nodes of {node}")
        self._node, self._timeout = node, timeout

    def planner(self, batch: int) -> int:
        """The rank that plans a batch."""
        return batch * self._node % self._ranks

    def give(self, batch: int, what: str, make: Callable[[], list[Plan]]) -> list[Plan]:
        """Makes the plans of a batch, by make(), and sends them to all. `what`: a digest of all that they depend on."""
        try:
            with self._busy():
                plans = make()
            data, sizes = _bytes_of(plans)
        except BaseException as error:
            self._say_error(batch, error)
            raise
        for number, at in enumerate(range(0, len(data), _PIECE)):
            self._store.set(self._name(batch, number), data[at:at + _PIECE])
        self._say(batch, {"what": what, "sizes": sizes, "digests": [plan.digest for plan in plans]})
        return plans

    def take(self, batch: int, what: str, load: Callable[[str], Plan], stop: ctypes.c_int | None) -> list[Plan]:
        """Gets the plans of a batch that another rank plans. `load`: gives a plan from a path; `stop`: see
        Program.plan.

        Errors: that of the planner; E706 (it has planned another batch than this process has); E703 (it has ended, or
        has sent nothing in time); those of the loader.
        """
        said = json.loads(self._wait(batch, stop))
        if "error" in said:
            raise Error(*said["error"])
        rank = self.planner(batch)
        if said["what"] != what:
            raise Error("E706", f"batch {batch} of the loop is not the batch of rank {rank}, which has planned it: all "
                                "ranks need the same program, lengths and fields")
        pieces = -(-sum(said["sizes"]) // _PIECE)
        data = b"".join(self._store.get(self._name(batch, number)) for number in range(pieces))
        plans = _plans_of(data, said["sizes"], load)
        if [plan.digest for plan in plans] != said["digests"]:
            raise Error("E706", f"the plan of batch {batch} has not come as rank {rank} has sent it")
        return plans

    def done(self, batch: int) -> None:
        """This process has the plans of a batch."""
        if self._store.add(self._name(batch, "taken"), 1) < self._ranks:
            return
        number = 0
        while self._store.delete_key(self._name(batch, number)):
            number += 1
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


def _bytes_of(plans: list[Plan]) -> tuple[bytes, list[int]]:
    """(the files of some plans, end to end; the size of each)."""
    files = []
    for plan in plans:
        with _memory() as file:
            plan.save(_path(file))
            files.append(file.read())
    return b"".join(files), [len(file) for file in files]


def _plans_of(data: bytes, sizes: list[int], load: Callable[[str], Plan]) -> list[Plan]:
    """The reverse: what `load` makes of each file."""
    plans = []
    for size in sizes:
        with _memory() as file:
            file.write(data[:size])
            file.flush()
            plans.append(load(_path(file)))
        data = data[size:]
    return plans


def _memory() -> IO[bytes]:
    """A file in memory, which is deleted when nobody has it open or mapped."""
    return os.fdopen(os.memfd_create("fcpc-plan", os.MFD_CLOEXEC), "w+b")


def _path(file: IO[bytes]) -> str:
    return f"/proc/self/fd/{file.fileno()}"
