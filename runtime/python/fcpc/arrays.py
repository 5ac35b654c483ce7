"""arrays.py: takes rows from tensors of torch and from arrays of numpy, whichever the caller has."""
from __future__ import annotations

import math
import sys
from typing import Any, TypeVar, cast

from .batches import index_or_none
from .errors import Error

Rows = TypeVar("Rows")  # a tensor of torch, or an array of numpy


def is_tensor(x: Any) -> bool:
    return "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor)


def is_array(x: Any) -> bool:
    return "numpy" in sys.modules and isinstance(x, sys.modules["numpy"].ndarray)


def whole(who: str, name: str, number: Any) -> int:
    """An argument that must be a whole number. Errors: E203"""
    found = index_or_none(number)
    if found is None:
        raise Error("E203", f"{who}: {name} is {number!r}, and a whole number is expected")
    return found


def dim_of_tokens(who: str, x: Any, dim: Any, want: int, others: dict[int, str]) -> int:
    """The number of the dimension of x whose rows are tokens, from 0. It must have `want` rows.

    others   {number of rows: hint}: if x has this wrong number of rows, the error has the hint
    """
    if not (is_tensor(x) or is_array(x)):
        _library()
        made = "" if x is None else ": torch.tensor(x) or numpy.asarray(x) makes one"
        raise Error("E701", f"{who}: a tensor of torch or an array of numpy is expected, and this is "
                            f"{'None' if x is None else 'a ' + type(x).__name__}{made}")
    shape, at = tuple(x.shape), whole(who, "dim", dim)
    if not -len(shape) <= at < len(shape):
        raise Error("E701", f"{who}: dim is {at}, and the tensor has the shape {list(shape)}")
    if shape[at] == want:
        return at if at >= 0 else at + len(shape)
    hint = others.get(shape[at], "")
    if want in shape:
        hint = f"dimension {shape.index(want)} has as many: write dim={shape.index(want)}"
    elif len(shape) == 1 and len(x) > 1 and x[0] == 0 and x[-1] == want:
        hint = "it looks like cu_seqlens, and a row for each token is expected"
    raise Error("E701", f"{who}: dimension {at} has {shape[at]} rows, and the plan {want} tokens"
                        f"{hint and '; '}{hint}")


def check_holds(who: str, x: Any, name: str, number: Any) -> Any:
    """Checks that the type of x can hold the number exactly, and returns it. Torch would silently store another one."""
    if getattr(number, "shape", None) == ():
        number = number.item()
    if not isinstance(number, (int, float, complex)):
        raise Error("E203", f"{who}: {name} is {number!r}, and a number is expected")
    dtype = str(x.dtype).replace("torch.", "")
    fits = True
    if dtype == "bool":
        fits = number in (0, 1)
    elif "int" in dtype:
        info = sys.modules["torch" if is_tensor(x) else "numpy"].iinfo(x.dtype)
        fits = not isinstance(number, complex) and number == number // 1 and info.min <= number <= info.max
    elif "float" in dtype:
        info = sys.modules["torch" if is_tensor(x) else "numpy"].finfo(x.dtype)
        fits = not isinstance(number, complex) and (not abs(number) < math.inf or abs(number) <= float(info.max))
    if not fits:
        raise Error("E701", f"{who}: {name} is {number}, and numbers of type {dtype} cannot be that")
    return number


def taken(rows: Rows, index: Any, dim: int, fill: Any = None) -> Rows:
    """Rows along a dimension, in memory of their own; `fill` where the index is less than 0."""
    x: Any = rows
    if is_array(x):
        array = sys.modules["numpy"].take(x, index, axis=dim)
        if fill is not None:
            array[(slice(None),) * dim + (index < 0,)] = fill
        return cast(Rows, array)
    torch = sys.modules["torch"]
    tensor = x.index_select(dim, index.clamp(min=0).to(x.device))
    if fill is not None:  # by `where`, which takes all types
        there = (index >= 0).view(-1, *[1] * (x.dim() - dim - 1)).to(x.device)
        tensor = torch.where(there, tensor, torch.full((), fill, dtype=x.dtype, device=x.device))
    return cast(Rows, tensor)


def index_of(rows: Any, x: Any) -> Any:
    """Row numbers as an int64 array if x is an array, else as a tensor on the CPU. It shares their memory."""
    return array_of(rows, "numpy" if is_array(x) else "torch")


def reverse(index: Any) -> Any:
    """The inverse of a permutation of rows."""
    library = sys.modules["torch" if is_tensor(index) else "numpy"]
    made = library.empty_like(index)
    made[index] = library.arange(len(index))
    return made


def array_of(numbers: Any, library: str = "") -> Any:
    """64-bit integers of C as a tensor or an array that shares their memory: of torch if it is loaded, or as said."""
    name = library or ("torch" if "torch" in sys.modules else _library())
    if name == "numpy":
        return sys.modules["numpy"].frombuffer(numbers, dtype="int64")
    torch = sys.modules["torch"]
    return torch.frombuffer(numbers, dtype=torch.int64) if len(numbers) else torch.empty(0, dtype=torch.int64)


def _library() -> str:
    """Imports numpy, or else torch."""
    for name in ("numpy", "torch"):
        try:
            __import__(name)
            return name
        except ImportError:
            pass
    raise ImportError("take and positions need numpy or torch: pip install numpy")
