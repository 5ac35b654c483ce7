"""libraries.py: where NVIDIA's libraries are in an environment of Python.

The C library opens NVRTC and NCCL by their names. Of a name that this process has loaded already, as NCCL by torch, it
gets that file; else the system's. The packages nvidia-* put theirs into folders where nobody looks. What torch has not
loaded is loaded from there, and is then found by its name. FCP_NVRTC and FCP_NCCL name other files.
"""
import ctypes
import importlib.util
import os
import re
from pathlib import Path

_FILES = {"FCP_NVRTC": "libnvrtc.so", "FCP_NCCL": "libnccl.so"}


def loaded(name):
    """The files of that name, with any version behind it, which this process has mapped."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if f"/{name}" in line}
    return sorted(path for path in paths if Path(path).name.startswith(name))


def packaged(name):
    """The files of that name in the packages nvidia-*, the newest version first."""
    spec = importlib.util.find_spec("nvidia")
    found = [path for root in (spec.submodule_search_locations if spec else []) for path in
             Path(root).glob(f"*/lib/{name}.*")]
    return [str(path) for path in sorted(found, key=lambda p: [int(n) for n in re.findall("[0-9]+", p.name)],
                                         reverse=True)]


def load():
    """Loads what is neither loaded nor named by a variable, as far as there are packages. Returns their files."""
    found = []
    for variable, name in _FILES.items():
        if not os.environ.get(variable) and not loaded(name):
            found += packaged(name)[:1]
    for path in found:
        ctypes.CDLL(path)
    return found
