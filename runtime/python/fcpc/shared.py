"""shared.py: lets the processes of a machine share plans, so that each plan is made once.

Without this, eight processes of a group on a machine would all make the same plan, and spend eight times the processor
time and the memory. So they share a folder in the machine's memory. The process that comes first makes the plan of a
batch and writes it there. The others wait for that file and map it. The name of the file is a digest of what is
planned. So whoever finds a file knows that it has the plan that it would have made itself.

    KEY.lock                      held exclusively by the process that plans, and shared by all that use the plan
    KEY.common, KEY.4.0, ...      what all ranks need of the plan, and what rank 4 needs of its mask 0 (parts.py)
    KEY.plan, KEY.2.plan, ...     or the whole plan, if it was asked for: a file for each mask

Each file appears whole, by renaming, and KEY.common when the others are there.

The kernel releases a lock when its process ends, however it ends. So nobody waits for a process that was killed: the
next one finds no plan, and makes it. The last user of a plan removes its files. Files of processes that were killed are
removed by the next process that opens the folder. The locks belong to an open file (F_OFD_SETLK). So threads of one
process exclude each other too, and a forked child shares its parent's lock. The process that has planned turns its
exclusive lock into a shared one in a single step. With flock there would be a moment without a lock, in which another
process could remove files that are in use.

Whoever can write into the folder can give others a plan. So it must belong to the user, and no other user may enter it.
A file may still be damaged. The loader verifies whole plans, and compares parts with the roots in KEY.common, which has
a digest. What is wrong is removed and made again.
"""
from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import stat
import struct
import time
import weakref
from typing import TYPE_CHECKING, Callable, ContextManager, Iterable, NamedTuple

from .errors import Error

if TYPE_CHECKING:
    from .plan import Plan

MANY_RANKS = 1024  # up to this many ranks planning is cheaper than sharing
_ROUNDS = 50       # how often a process waits for a plan that then is not there, before it plans alone


def usual_folder() -> str:
    """The folder of this user's plans in the machine's memory."""
    return f"/dev/shm/fcpc-{os.geteuid()}"


def key_of(parts: Iterable[str | tuple[int, int]]) -> str:
    """A digest of all that a plan depends on: texts, and arrays as (address, bytes)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else (ctypes.c_char * part[1]).from_address(part[0])
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Files(NamedTuple):
    """How a process reads and writes the plans of a batch.

    names   the files that it reads, without the key
    read    read(paths of these) gives the plans, or raises Error or FileNotFoundError
    write   write(path_of, plans): writes plans that were made, each file at path_of(name), and returns them as `read`
            would
    """
    names: list[str]
    read: Callable[[list[str]], list[Plan]]
    write: Callable[[Callable[[str], str], list[Plan]], list[Plan]]


def whole_files(count: int, load: Callable[[str], Plan]) -> Files:
    """Whole plans. load(path) gives one; each has `save`."""
    names = [f"{i}.plan" if i > 1 else "plan" for i in range(1, count + 1)]

    def write(path_of: Callable[[str], str], plans: list[Plan]) -> list[Plan]:
        for name, plan in zip(names, plans):
            plan.save(path_of(name))
        return plans
    return Files(names, lambda paths: [load(path) for path in paths], write)


class Folder:
    """The folder, made if it is not there. Errors: E011 (it is not this user's alone)."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError as error:
            raise Error("E011", f"plans cannot be shared in {path}: {error.strerror}", path) from None
        there = os.lstat(path)
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o077:
            raise Error("E011", f"plans cannot be shared in {path}: it must be a folder of this user alone (mode 700)",
                        path)
        self._remove_abandoned()

    def plan(self, key: str, files: Files, make: Callable[[], list[Plan]], gate: ContextManager[object],
             stop: ctypes.c_int | None = None) -> tuple[list[Plan], _Use | None, list[str]]:
        """Returns the plans of a key, which are read from files or newly made, and with them the _Use that keeps the
        files (or None), and warnings about files.

        make   makes all plans
        gate   a context that is entered while planning: a semaphore, to limit how many plan at once
        stop   see Program.plan
        """
        def path_of(name: str) -> str:
            return self._name(key, name)
        paths = [path_of(name) for name in files.names]
        warnings: list[str] = []
        for _ in range(_ROUNDS):
            with gate:  # who has no room to plan must not take the lock: somebody else may have
                use = self._lock(key, fcntl.F_WRLCK)
                if use:
                    try:
                        plans = _loaded(paths, files, warnings) or _written(path_of, files, make(), warnings)
                    except BaseException:
                        use.release()
                        raise
                    _try_lock(use.fd, fcntl.F_RDLCK)
                    return plans, use, warnings
            while not (use := self._lock(key, fcntl.F_RDLCK)):
                if stop is not None and stop.value:
                    raise Error("E013", "interrupted")
                time.sleep(0.001)
            there = _loaded(paths, files, warnings)
            if there:
                return there, use, warnings
            # Who planned has failed, was killed, or has found no room. Or nobody did, and it was a process that begins.
            use.release()
            time.sleep(0.001 * (os.getpid() % 7 + 1))  # not all at the same time
        with gate:
            return make(), None, warnings

    def _name(self, key: str, what: str) -> str:
        return os.path.join(self.path, f"{key}.{what}")

    def _lock(self, key: str, kind: int) -> _Use | None:
        """Takes the lock of a key; None: others have it."""
        name = self._name(key, "lock")
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if _try_lock(fd, kind) and _is(fd, name):
            return _Use(fd, name)
        os.close(fd)
        return None

    def _remove_abandoned(self) -> None:
        for key in {name.split(".")[0] for name in os.listdir(self.path)}:
            use = self._lock(key, fcntl.F_WRLCK)
            if use:
                use.release()


class _Use:
    """Files of the folder that are in use, until `release` is called or the object is deleted."""

    def __init__(self, fd: int, lock: str) -> None:
        self.fd, self.release = fd, weakref.finalize(self, _release, fd, lock, os.getpid())


def _release(fd: int, lock: str, process: int) -> None:
    """Releases a lock. The last process that has it removes the files of its key, the lock as the last."""
    if os.getpid() != process:  # a copy by fork: the lock is the parent's
        return
    _try_lock(fd, fcntl.F_UNLCK)  # first: of two who ask at once whether they are the last, one is
    if _try_lock(fd, fcntl.F_WRLCK) and _is(fd, lock):
        folder, name = os.path.split(lock)
        key = name[:-len("lock")]
        others = [other for other in os.listdir(folder) if other.startswith(key) and other != name]
        _remove([os.path.join(folder, other) for other in [*others, name]])
    _try_lock(fd, fcntl.F_UNLCK)  # also for children that were forked and have the file open
    os.close(fd)


def _try_lock(fd: int, kind: int) -> bool:
    """Changes the open file's lock to F_WRLCK, F_RDLCK or F_UNLCK; False: others have a lock that forbids it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 0, 0))  # a struct flock
        return True
    except (BlockingIOError, PermissionError):  # EAGAIN, EACCES: another has it
        return False


def _is(fd: int, name: str) -> bool:
    """Does the name still lead to this file? Its last user may have removed it between our opening and our locking
    it."""
    try:
        there = os.lstat(name)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _remove(files: list[str]) -> None:
    for name in files:
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass


def write_whole(path: str, data: bytes) -> None:
    """Writes a file that appears whole. Errors: E011"""
    try:
        fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.rename(path + ".new", path)
    except OSError as error:
        raise Error("E011", f"cannot write: {error.strerror}", path) from None


def read_whole(path: str) -> bytes:
    """The bytes of a file. Errors: E010; FileNotFoundError"""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Error("E010", f"cannot read: {error.strerror}", path) from None


def _loaded(paths: list[str], files: Files, warnings: list[str]) -> list[Plan] | None:
    """The plans in the files; None: they are not there, or were wrong and have been removed."""
    try:
        for path in paths:
            there = os.lstat(path)
            if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
                raise Error("E010", "it is no file of this user", path)
        return files.read(paths)
    except FileNotFoundError:
        return None
    except Error as error:
        warnings.append(f"a shared plan is not used: {error.file or paths[0]}: {error.code}: {error.message}")
        _remove(paths)
        return None


def _written(path_of: Callable[[str], str], files: Files, plans: list[Plan], warnings: list[str]) -> list[Plan]:
    """Writes the plans for others. If there is no room, they plan for themselves."""
    try:
        return files.write(path_of, plans)
    except Error as error:
        warnings.append(f"a plan is not shared: {error.code}: {error.message}")
    return plans
