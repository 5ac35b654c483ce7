"""libraries.py: finds NVIDIA's libraries in an environment of Python.

The C library opens NVRTC and NCCL by their names. If this process has loaded a library of that name already, as torch
loads NCCL, it gets that one; else the system's. But the packages nvidia-* of Python put their libraries into folders
where the system does not look. NVIDIA's cuda-pathfinder, which is installed with PyTorch for CUDA, loads them from
there, or from conda's environment. After that they are found by name. Without cuda-pathfinder the system's are used.
The variables FCP_NVRTC and FCP_NCCL name other files.
"""
from __future__ import annotations

import importlib
import os

from .errors import Error

_VARIABLES = {"nvrtc": "FCP_NVRTC", "nccl": "FCP_NCCL"}


def load() -> list[str]:
    """Loads the libraries that are there, except those that a variable names. Returns their files.
    E702: a library is there and cannot be loaded."""
    return list(files().values())


def files() -> dict[str, str]:
    """The same: {variable: the file that was loaded}."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        return {}
    found = {}
    for name, variable in _VARIABLES.items():
        if os.environ.get(variable):
            continue
        try:
            found[variable] = str(pathfinder.load_nvidia_dynamic_lib(name).abs_path)
        except pathfinder.DynamicLibNotFoundError:
            pass  # C looks in its own places, and its error lists them
        except RuntimeError as error:
            raise Error("E702", f"cuda-pathfinder cannot load {name}: {error}") from error
    return found


def explained(error: Error) -> Error:
    """An error of C. If a library is missing that cuda-pathfinder could have found, and that is missing too, it says
    so."""
    if error.code == "E702" and any(name.upper() in error.message for name in _VARIABLES):
        try:
            importlib.import_module("cuda.pathfinder")
        except ImportError:
            return Error("E702", f"{error.message}. In a package of Python it is found by cuda-pathfinder, which is not "
                                 "here: pip install cuda-pathfinder")
    return error
