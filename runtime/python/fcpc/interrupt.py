"""interrupt.py: lets Ctrl-C, and any other exception of a signal handler, end a computation in C.

Python runs signal handlers in its main thread, between two of its own instructions. So a handler cannot run while the
main thread is inside a function of C. There are two ways out. A session of C calls back into Python now and then
(Interruption). Functions of C that end when a number is set run in another thread, while the main thread waits in
Python (interruptibly).
"""
from __future__ import annotations

import _thread
import ctypes
import threading
from typing import Any, Callable, Generator, List, TypeVar

from ._c import INTERRUPTED

T = TypeVar("T")


def _asked(raised: List[BaseException]) -> Generator[int, Any, None]:
    """Yields 0 as long as no handler has raised an exception; else appends the exception to the list and yields 1."""
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
    """The callback by which C asks whether it should end a run. Signal handlers run during this call. Their exceptions
    must not pass through C. So an exception is stored, C ends the run, and `check` raises the exception.

    The callback is the `send` of a generator that is suspended inside a `try`. In a plain function a handler could run
    before the first line, and so outside of the `try`.
    """

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
    """Calls function(stop), which must end with an error soon after stop.value is set, so that signals can end it.

    If this is the main thread, another thread calls the function, and this one waits. If a handler raises an exception,
    `stop` is set, and the exception is raised when the function has ended.
    quick   the function takes less time than starting a thread: it is called here"""
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
