"""libraries.py: where NVIDIA's libraries are in an environment of Python.

The C library opens NVRTC and NCCL by their names. Of a name that this process has loaded already, as NCCL by torch, it
gets that file; else the system's. The packages nvidia-* put theirs into folders where nobody looks but NVIDIA's
cuda-pathfinder, which PyTorch's packages for CUDA bring along: it loads them from there, or from conda's environment, and
then they are found by name. Without it the system's are used. FCP_NVRTC and FCP_NCCL name other files.
"""
from __future__ import annotations

import importlib
import os

from .errors import Error

_VARIABLES = {"nvrtc": "FCP_NVRTC", "nccl": "FCP_NCCL"}


def load() -> list[str]:
    """Loads what is not named by a variable, as far as it is there. Returns the files of what was loaded now or before.
    E702: a library is there and cannot be loaded."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return []
    found = []
    for name, variable in _VARIABLES.items():
        if os.environ.get(variable):
            continue
        try:
            found.append(str(pathfinder.load_nvidia_dynamic_lib(name).abs_path))
        except pathfinder.DynamicLibNotFoundError:
            pass  # C looks in its own places, and its error lists them
        except RuntimeError as error:
            raise Error("E702", f"cuda-pathfinder cannot load {name}: {error}") from error
    return found


def explained(error: Error) -> Error:
    """An error of C; with a word of cuda-pathfinder, where that is missing and could have found a library."""
    if error.code == "E702" and any(name.upper() in error.message for name in _VARIABLES):
        try:
            importlib.import_module("cuda.pathfinder")
        except ImportError:
            return Error("E702", f"{error.message}. In a package of Python it is found by cuda-pathfinder, which is not "
                                 "here: pip install cuda-pathfinder")
    return error
