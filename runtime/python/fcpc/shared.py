"""shared.py: one planner for all processes of a machine.

Each process of a group would make the same plans: eight of them on a machine spend eight times the processor time and
the memory. So they share a folder of the machine's memory. Of a batch, the process that comes first makes the plan and
writes it; the others wait, and map that file. Its name is a digest of what is planned, so whoever finds a file finds
what it would have made.

    KEY.lock                      held alone by who plans, and together by all who use the plan
    KEY.plan, KEY.2.plan, ...     one for each mask; each appears whole, by renaming

The kernel takes a lock from a process that ends, however it ends. So nobody waits for a process that was killed: the
next one finds no plan, and makes it. The last who uses a plan removes its files; those of processes that were killed
are removed by the next process that begins.

Whoever can write into the folder can give others a plan. It must belong to the user, and nobody else may enter it. What
is in it is treated as every file from outside: the loader verifies it, or it is removed and planned anew.
"""
import ctypes
import fcntl
import hashlib
import os
import stat
import time
import weakref

from .errors import Error

MANY_RANKS = 1024  # up to so many, planning is cheaper than to agree on who does it


def usual_folder():
    return f"/dev/shm/fcpc-{os.geteuid()}"


def key_of(parts):
    """A digest of what decides about a plan, in order: texts, and (address, bytes) of arrays."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else (ctypes.c_char * part[1]).from_address(part[0])
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Folder:
    """The folder, made if it is not there. Errors: E011 (it is not this user's alone)."""

    def __init__(self, path):
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

    def plan(self, key, count, load, make, gate, stop=None):
        """(the `count` plans of a key, who holds their files for us, why files were not used).

        load, make   load(path) gives a plan from a file or raises Error; make() makes all plans, each with `save`
        gate         what is entered while planning: a semaphore, if few may plan at once
        stop         see Program.plan
        """
        files, warnings = [self._name(key, f"{i}.plan" if i > 1 else "plan") for i in range(1, count + 1)], []
        with gate:  # who has no room to plan must not take the lock: somebody else may have
            use = self._lock(key, files, fcntl.LOCK_EX)
            if use:
                plans = _loaded(files, load, warnings) or _written(files, make(), warnings)
                fcntl.flock(use.fd, fcntl.LOCK_SH)
                return plans, use, warnings
        use = self._lock(key, files, fcntl.LOCK_SH)
        while not use:
            if stop is not None and stop.value:
                raise Error("E013", "interrupted")
            time.sleep(0.001)
            use = self._lock(key, files, fcntl.LOCK_SH)
        plans = _loaded(files, load, warnings)
        if not plans:  # who planned has failed, or was killed
            with gate:
                plans = make()
        return plans, use, warnings

    def _name(self, key, what):
        return os.path.join(self.path, f"{key}.{what}")

    def _lock(self, key, files, kind):
        """A _Use with the lock of a key; None: others have it."""
        name = self._name(key, "lock")
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if _try_lock(fd, kind) and _is(fd, name):
            return _Use(fd, [*files, name])
        os.close(fd)
        return None

    def _remove_abandoned(self):
        for key in {name.split(".")[0] for name in os.listdir(self.path)}:
            use = self._lock(key, [], fcntl.LOCK_EX)
            if use:
                files = [os.path.join(self.path, name) for name in os.listdir(self.path) if name.startswith(key)]
                _remove([name for name in files if not name.endswith(".lock")])
                use.release()


class _Use:
    """Files of the folder that somebody uses. `release` may be called once; when the object goes, it is."""

    def __init__(self, fd, files):
        self.fd, self.release = fd, weakref.finalize(self, _release, fd, files, os.getpid())


def _release(fd, files, process):
    """Gives a lock back. The last who has it removes the files."""
    if os.getpid() != process:  # a copy by fork: the lock is the parent's
        return
    if _try_lock(fd, fcntl.LOCK_EX) and _is(fd, files[-1]):
        _remove(files)
    fcntl.flock(fd, fcntl.LOCK_UN)  # also for children that were forked and have the file open
    os.close(fd)


def _try_lock(fd, kind):
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _is(fd, name):
    """Is this file the one of that name? Its last user may have removed it between our opening and our locking it."""
    try:
        there = os.lstat(name)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _remove(files):
    for name in files:
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass


def _loaded(files, load, warnings):
    """The plans in the files; None: they are not there, or not right, and gone."""
    plans = []
    try:
        for name in files:
            there = os.lstat(name)
            if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
                raise Error("E010", "it is no file of this user", name)
            plans.append(load(name))
        return plans
    except FileNotFoundError:
        return None
    except Error as error:
        warnings.append(f"a shared plan is not used: {error.file}: {error.code}: {error.message}")
        _remove(files)
        return None


def _written(files, plans, warnings):
    """Writes the plans for others. If there is no room, they plan for themselves."""
    try:
        for name, plan in zip(files, plans):
            plan.save(name)
    except Error as error:
        warnings.append(f"a plan is not shared: {error.code}: {error.message}")
    return plans
