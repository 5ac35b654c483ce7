"""interrupt.py: Ctrl-C, and whatever else a handler of signals raises, while C computes.

Python runs handlers in its main thread, between two of its own instructions, and not while that thread is in a function
of C. So a session calls Python now and then (Interruption). Functions that end when a number is set are given to
another thread, while the main thread waits in Python (interruptibly).
"""
from __future__ import annotations

import _thread
import ctypes
import threading
from typing import Any, Callable, Generator, List, TypeVar

from ._c import INTERRUPTED

T = TypeVar("T")


def _asked(raised: List[BaseException]) -> Generator[int, Any, None]:
    """Says 1, and puts it into the list, when a handler has raised something; else 0."""
    said = 0
    while True:
        try:
            while True:  # a handler may run at any step in here, and at none that is outside of `try`
                yield said
                said = 0
                ctypes.pythonapi.PyErr_CheckSignals()
        except GeneratorExit:
            return
        except BaseException as error:
            # without this frame: whoever clears the frames of a traceback would end the generator
            raised.append(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
            said = 1


class Interruption:
    """What C calls to learn whether the user wants no more of a run: handlers of signals run in that call. An exception
    must not go through C. So it is kept, C ends the run, and `check` raises it.

    C calls a generator's `send`: in a function a handler would run before the first line, outside of any `try`."""

    def __init__(self) -> None:
        self._raised: List[BaseException] = []
        asked = _asked(self._raised)
        next(asked)
        self.function = INTERRUPTED(asked.send)

    def check(self) -> None:
        """Raises what a handler has raised."""
        if self._raised:
            error = self._raised[0]
            self._raised.clear()
            raise error


def interruptibly(function: Callable[[ctypes.c_int], T], stop: ctypes.c_int | None = None, quick: bool = False) -> T:
    """function(stop), which ends with an error soon after stop.value is no longer 0.

    In the main thread another thread calls it, and this one waits. If a handler raises something, `stop` is set until
    the function has ended, and then that is raised. quick: the function ends soon anyway; a thread would take longer."""
    number = ctypes.c_int(0) if stop is None else stop
    if quick or threading.get_ident() != threading.main_thread().ident:
        return function(number)
    ended, results, errors, raised = _thread.allocate_lock(), [], [], []

    def work() -> None:
        try:
            results.append(function(number))
        except BaseException as error:
            errors.append(error)
        finally:
            ended.release()
    ended.acquire()
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:  # there is no memory for a thread
        return function(number)
    while True:
        try:
            ended.acquire()
            break
        except BaseException as error:
            raised.append(error)
            number.value = 1
    if raised:
        number.value = 0
        raise raised[0]
    if errors:
        raise errors[0]
    return results[0]
