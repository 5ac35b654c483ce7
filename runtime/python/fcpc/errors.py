"""errors.py: the one class of exceptions, with the stable codes of runtime/errors.def, and the one class of
warnings."""
from __future__ import annotations

import ctypes
import os
import re
import sys
import warnings
from typing import Any, Iterable, Iterator

from ._c import C, fcp_error, fcpc_diagnostic, take_text


class Error(Exception):
    """An error of fcpc.

    code      the stable code, such as "E202"; runtime/errors.def lists them
    message   one line
    file, line, column   the place in a program's text; "" and 0 where there is none
    where     the place in a plan: a dict that may have rank, pass, stage, queue and instruction
    warnings  the compiler's warnings before the error, a line each

    str() of it is what a terminal would show: the message, the source line, a caret below the place, and hints.
    """

    def __init__(self, code: str, message: str, file: str = "", line: int = 0, column: int = 0,
                 where: dict[str, int] | None = None, text: str | None = None, warnings: Iterable[str] = ()) -> None:
        super().__init__(text or f"error[{code}]: {message}")
        self.code, self.message = code, message
        self.file, self.line, self.column = file, line, column
        self.where, self.warnings = where or {}, list(warnings)

    def __reduce__(self) -> Any:  # so that it comes whole out of a worker process
        return _again, (self.code, self.message, self.file, self.line, self.column, self.where, str(self),
                        self.warnings)

    @classmethod
    def of_c(cls, err: fcp_error) -> Error:
        """The error in an fcp_error, a structure of C."""
        where = {name: getattr(err.where, name) for name, _ in err.where._fields_
                 if getattr(err.where, name) != 0xFFFFFFFF}
        return cls(C["fcp_code_name"](err.code).decode(), err.message.decode(errors="replace"),
                   err.file.decode(errors="replace"), err.line, err.column, where)


def _again(*arguments: Any) -> Error:
    return Error(*arguments)


class Warning(UserWarning):
    """A warning of what is allowed but probably a mistake, such as ranks without tokens, or a mask that allows no pair.

    The compiler's warnings about a program are issued when it is made. Those about a plan are issued when the caller
    gets it, in the process that has planned it. Both objects also have them in their attribute `warnings`.

        warnings.filterwarnings("error", category=fcpc.Warning)     # raises them; "ignore" is silent
    """


_HERE = os.path.dirname(os.path.abspath(__file__))


def warn(text: str, stacklevel: int = 0) -> None:
    """Issues an fcpc.Warning.

    stacklevel   the line that it points to, as in warnings.warn: 1 is the caller of this function, 2 its caller, and
                 so on. 0: the innermost line outside of this package
    """
    if not stacklevel:
        frame = sys._getframe(1)
        stacklevel = 1
        while frame.f_back and os.path.dirname(os.path.abspath(frame.f_code.co_filename)) == _HERE:
            frame = frame.f_back
            stacklevel += 1
    warnings.warn(text, Warning, stacklevel + 1)


class Diagnostics:
    """What the compiler says while it parses or plans: `with Diagnostics() as d: d.check(C[...](d.handle, ...))`."""

    def __enter__(self) -> Diagnostics:
        self.handle = C["fcpc_diagnostics_new"]()
        if not self.handle:
            raise MemoryError("fcpc is out of memory")
        return self

    def __exit__(self, *_: Any) -> None:
        C["fcpc_diagnostics_free"](self.handle)

    def _all(self) -> Iterator[fcpc_diagnostic]:
        x = fcpc_diagnostic()
        for i in range(C["fcpc_diagnostics_count"](self.handle)):
            C["fcpc_diagnostics_get"](self.handle, i, ctypes.byref(x))
            yield x

    def warnings(self) -> tuple[str, ...]:
        """The warnings, one line each."""
        return tuple(f"{x.file.decode()}:{x.line}: {x.message.decode()}" if x.line else x.message.decode()
                     for x in self._all() if x.warning)

    def check(self, code: int) -> None:
        """Raises the first error, with the text of all, if `code` is not FCP_OK."""
        if not code:
            return
        name = C["fcp_code_name"](code).decode()
        first = next((x for x in self._all() if not x.warning), None)
        if first is None:
            raise Error(name, C["fcp_code_text"](code).decode())
        text = take_text(C["fcpc_diagnostics_render"](self.handle, False)).rstrip()
        field = re.search(r"field '(\w+)'", first.message.decode(errors="replace"))
        given = f'"{field[1]}"' if field else "name"
        # fcpc_batch.fields is what callers of C would fill in
        text = text.replace("fcpc_batch.fields", f"plan(lengths, {{{given}: values}})")
        raise Error(name, first.message.decode(errors="replace"), first.file.decode(errors="replace"), first.line,
                    first.column, text=text, warnings=self.warnings())
