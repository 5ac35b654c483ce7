"""written.py: writes values of Python in the language, and finds out a few things from a program's text."""
from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from ._c import C, take_text
from .batches import index_or_none, kind_of
from .errors import Error

KEY = 1  # FCPC_HABIT_KEY
_DTYPES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16", "fp32": "fp32",
           "float32": "fp32"}


def section(name: str, keys: Mapping[str, Any], lines: Iterable[str] = ()) -> str:
    """A section of a program. Keys whose value is None are left out; `lines` are behind them."""
    said = [f"{key} = {value_of(value, key)}" for key, value in keys.items() if value is not None]
    return f"{name} {{\n" + "".join(f"    {line}\n" for line in [*said, *lines]) + "}"


def value_of(value: Any, key: str) -> str:
    """A value as the language writes it: text stands for itself. `key`: whose it is, for the message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return real(value)
    if hasattr(value, "tolist"):
        return value_of(value.tolist(), key)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_of(v, key) for v in value) + "]"
    if isinstance(value, int):
        return str(value)
    other = C["fcpc_habit"](key.encode(), KEY, None)
    if other:  # a word of another project, such as score_mod
        message = f"there is no argument '{key}'"
        hint = in_python(take_text(other))
        raise Error("E205", message, text=f"error[E205]: {message}\n      = hint: {hint}")
    raise Error("E202", f"{key}: {kind_of(value)} is no value of the language: those are numbers, True and False, text "
                        "and lists of these")


# What a hint of the language says: "write model { heads = 32 }".
_KEYS = re.compile(r"(?<=write )(model|cluster|batch|plan) \{ (.*?) \}(?=:|$)", re.MULTILINE)


def _argument(said: re.Match[str]) -> str:
    """The keys of a section as arguments of Python: heads=32, cluster=fcpc.Cluster(gpus=8), program.plan([64, 32])."""
    where, keys = said.groups()
    pairs = [key.partition(" = ")[::2] for key in keys.split("; ")]
    name, value = pairs[0]
    if where == "batch" and name.startswith("field "):
        return f'fields=["{name[len("field "):]}"]'
    if where == "batch":
        queries, _, both = value.removeprefix("cumulative(").removesuffix(")").partition(", keys = ")
        keys = f", cu_seqlens_k={both}" if both else ""
        lengths = re.sub(r"\[(\d+) x (\d+)\]", r"[\1] * \2", value)
        ends = f"fcpc.lengths(cu_seqlens={queries}{keys})"
        return f"program.plan({ends if value.startswith('cumulative') else lengths})"
    given = ", ".join(f"{key}={value}" if value[0] in "0123456789[" else f'{key}="{value}"' for key, value in pairs)
    return f"cluster=fcpc.Cluster({given})" if where == "cluster" else given


def in_python(hint: str) -> str:
    """A hint of the language, or a text that ends with one, with the argument of Python in place of the key."""
    return _KEYS.sub(_argument, hint)


def name_of(text: str) -> str:
    """A name as the language writes it: in quotes if it begins with a digit."""
    return f'"{text}"' if text[:1].isdigit() else text


def real(number: float) -> str:
    """A float as the language writes it: with digits on both sides of the point."""
    if number != number or number in (float("inf"), float("-inf")):
        raise Error("E330", f"{number} is not finite: a mask takes the place of scores that are -inf")
    digits, _, exponent = repr(float(number)).partition("e")
    return (digits if "." in digits else digits + ".0") + (f"e{exponent}" if exponent else "")


def table_of(name: str, table: Any) -> str:
    """A table as the language writes it; of conditions: 1 and 0. Text stands for itself, as file("a.npy")."""
    if isinstance(table, str):
        return table
    numbers = (table * 1).tolist() if hasattr(table, "tolist") else table

    def check(x: Any, place: str, depth: int) -> None:
        if isinstance(x, (list, tuple)) and depth < 2:
            for i, each in enumerate(x):
                check(each, f"{place}[{i}]", depth + 1)
        elif not isinstance(getattr(x, "tolist", lambda: x)(), (int, float)) or not depth:
            raise Error("E202", "tables: numbers in a list, an array or a tensor of one or two dimensions are "
                                f"expected, and {place} is {kind_of(x)}")
    check(numbers, name, 0)
    return value_of(numbers, name)


def count_of(key: str, value: Any) -> int:
    """A whole number, as of heads. Text would stand for itself, and True for 1."""
    found = None if isinstance(value, bool) else index_or_none(value)
    if found is None:
        raise Error("E202", f"{key}: a whole number is expected, this is {kind_of(value)}")
    return found


def dtype_of(dtype: Any) -> str | None:
    """The language's name of a dtype, which may be one of torch, of numpy, or a name."""
    if dtype is None:
        return None
    name = dtype if isinstance(dtype, str) else \
        getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    known = _DTYPES.get(str(name).replace("torch.", ""))
    if not known:
        raise Error("E206", f"dtype: tensors may be bf16, fp16 or fp32, also by their names in torch and numpy, and "
                            f"this is {name or kind_of(dtype)}")
    return known


# --- what a text says -------------------------------------------------------------------------------------------------

_SAME = re.compile(r"(\w+)\[q\] == \1\[k\]|(\w+)\[k\] == \2\[q\]")
_OF_LIBRARY = re.compile(r"(?:causal_|prefix_)?document\(d = (\w+)(?:, .*)?\)")


def documents_of(text: str) -> str | None:
    """The field that a program's canonical text names in `batch { documents = ... }`."""
    found = re.search(r"^    documents = (\w+)$", text, re.MULTILINE)
    return found[1] if found else None


def separating(text: str) -> str | None:
    """A field f such that a mask of a program, in canonical text, has the conjunct f[q] == f[k]. None: no mask has."""
    for mask in re.findall(r"^mask \w+ =(.*?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL):
        body, _, where = mask.partition("\n    where {\n")
        named = {name: " ".join(value.split()) for name, value in
                 re.findall(r"^        (\w+) = (.*?)(?=\n        \w|\n    \}|\Z)", where, re.MULTILINE | re.DOTALL)}
        found = _separating(" ".join(body.split()), named)
        if found:
            return found
    return None


def _separating(text: str, named: Mapping[str, str]) -> str | None:
    while text.startswith("(") and len(_split(text[1:-1], ")")) == 1:
        text = text[1:-1]
    if text in named:
        return _separating(named[text], {})
    whole = len(_split(text, " or ")) > 1 or len(_split(text, " else ")) > 1
    parts = [text] if whole else _split(text, " and ")
    if len(parts) > 1:
        return next((found for part in parts if (found := _separating(part, named))), None)
    same, of_library = _SAME.fullmatch(text), _OF_LIBRARY.fullmatch(text)
    return same[1] or same[2] if same else of_library[1] if of_library else None


def _split(text: str, word: str) -> list[str]:
    """The parts of an expression between the words that stand in no parentheses."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        if not depth and text.startswith(word, i):
            parts.append(text[begin:i])
            begin = i + len(word)
        depth += (c in "([{") - (c in ")]}")
    return [*parts, text[begin:]]
