"""`python -m fcpc` and the command `fcpc`: the program that the package carries."""
from __future__ import annotations

import os
import sys

from ._c import folder


def main() -> None:
    """Becomes that program, with the arguments of this process."""
    program = str(folder() / "fcpc")
    try:
        os.execv(program, ["fcpc", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"fcpc cannot start {program}: {error}")


if __name__ == "__main__":
    main()
