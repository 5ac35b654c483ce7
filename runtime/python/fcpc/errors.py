"""errors.py: what goes wrong, as one kind of exception with the stable codes of runtime/errors.def, and one of warning.
"""
from __future__ import annotations

import ctypes
import warnings

from ._c import C, fcpc_diagnostic, take_text


class Error(Exception):
    """An error of fcpc.

    code      the stable code, such as "E202"; runtime/errors.def lists them
    message   one line
    file, line, column   the place in a program's text; "" and 0 where there is none
    where     the place in a plan: a dict that may have rank, pass, stage, queue and instruction
    warnings  what the compiler said besides, line by line

    str() of it is what a terminal would show: the message, the source line, a caret below the place, and hints.
    """

    def __init__(self, code, message, file="", line=0, column=0, where=None, text=None, warnings=()):
        super().__init__(text or f"error[{code}]: {message}")
        self.code, self.message = code, message
        self.file, self.line, self.column = file, line, column
        self.where, self.warnings = where or {}, list(warnings)

    def __reduce__(self):  # so that it comes whole out of a worker process
        return _again, (self.code, self.message, self.file, self.line, self.column, self.where, str(self),
                        self.warnings)

    @classmethod
    def of_c(cls, err):
        """The error in an fcp_error."""
        where = {name: getattr(err.where, name) for name, _ in err.where._fields_
                 if getattr(err.where, name) != 0xFFFFFFFF}
        return cls(C["fcp_code_name"](err.code).decode(), err.message.decode(errors="replace"),
                   err.file.decode(errors="replace"), err.line, err.column, where)


def _again(*arguments):
    return Error(*arguments)


class Warning(UserWarning):
    """What is not wrong, and yet hardly what was meant: warnings.filterwarnings("error", category=fcpc.Warning)."""


def warn(text: str, stacklevel: int = 2) -> None:
    """Warns with a `Warning`. stacklevel: 1 is the line that calls `warn`, 2 the line that called its function."""
    warnings.warn(text, Warning, stacklevel + 1)


class Diagnostics:
    """What the compiler says while it parses or plans: `with Diagnostics() as d: d.check(C[...](d.handle, ...))`."""

    def __enter__(self):
        self.handle = C["fcpc_diagnostics_new"]()
        if not self.handle:
            raise MemoryError("fcpc is out of memory")
        return self

    def __exit__(self, *_):
        C["fcpc_diagnostics_free"](self.handle)

    def _all(self):
        x = fcpc_diagnostic()
        for i in range(C["fcpc_diagnostics_count"](self.handle)):
            C["fcpc_diagnostics_get"](self.handle, i, ctypes.byref(x))
            yield x

    def warnings(self):
        """The warnings, one line each."""
        return [f"{x.file.decode()}:{x.line}: {x.message.decode()}" if x.line else x.message.decode()
                for x in self._all() if x.warning]

    def check(self, code):
        """Raises the first error, with the text of all, if `code` is not FCP_OK."""
        if not code:
            return
        name = C["fcp_code_name"](code).decode()
        first = next((x for x in self._all() if not x.warning), None)
        if first is None:
            raise Error(name, C["fcp_code_text"](code).decode())
        raise Error(name, first.message.decode(errors="replace"), first.file.decode(errors="replace"), first.line,
                    first.column, text=take_text(C["fcpc_diagnostics_render"](self.handle, False)).rstrip(),
                    warnings=self.warnings())
