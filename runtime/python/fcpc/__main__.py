"""`python -m fcpc` and the command `fcpc`: the program that the package carries, and the audit, which is in Python.

`python -m fcpc doctor` lets that program look at this Python, and at the libraries that this package would load."""
from __future__ import annotations

import os
import sys

from ._c import folder


def main() -> None:
    """Becomes that program, with the arguments of this process; or is `fcpc.audit`'s command, if the first is audit."""
    if sys.argv[1:2] == ["audit"]:
        try:
            from .audit.command import main as audit
        except ImportError as error:
            print(f"fcpc audit needs PyTorch: {error}", file=sys.stderr)
            sys.exit(2)
        sys.exit(audit(sys.argv[2:]))
    if sys.argv[1:2] == ["doctor"]:
        from .errors import Error
        from .libraries import files
        os.environ.setdefault("FCPC_PYTHON", sys.executable)
        try:
            os.environ.update(files())
        except Error as error:
            print(f"fcpc: {error}", file=sys.stderr)
    program = str(folder() / "fcpc")
    try:
        os.execv(program, ["fcpc", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"fcpc cannot start {program}: {error}")


if __name__ == "__main__":
    main()
