"""written.py: writes values of Python in the language, and finds out a few things from a program's text."""
from __future__ import annotations

import re
from typing import Any, Iterable, Mapping

from ._c import C, take_text
from .batches import index_or_none, kind_of
from .errors import Error

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
    raise Error("E202", f"{key}: {kind_of(value)} is no value of the language: those are numbers, True and False, text "
                        "and lists of these")


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


_KEY = 1  # FCPC_FOREIGN_KEY


def foreign_word(word: str) -> str:
    """What to write in place of an argument that other projects call so; "": it is no such word."""
    found = C["fcpc_foreign_word"](word.encode(), _KEY, None)
    return take_text(found) if found else ""


_PIECE = re.compile(r"\b(model|cluster|batch|plan) \{ (.*?) \}|\b(mask|score) (?!=)\w+ = ([^:\n]*)")
_NUMBERS = re.compile(r"[-\d.]+|\[[-\d., ]*\]")


def in_python(hint: str) -> str:
    """A hint of the compiler, such as "write plan { mask = window(w = 64) }", with the arguments of fcpc.program in
    place of the language's sections."""
    def of_piece(found: re.Match[str]) -> str:
        if found[3]:
            return f'{found[3]}="{found[4]}"'
        parts = [_argument(found[1], *part.split(" = ", 1)) for part in found[2].split("; ")]
        return found[0] if "" in parts else ", ".join(parts)
    return _PIECE.sub(of_piece, hint)


def _argument(section: str, key: str, value: str) -> str:
    """`key = value` of a section, as Python has it; "": it has no such thing."""
    kind, _, name = key.rpartition(" ")
    if section == "batch" and kind == "field":
        over = re.search(r" over (.*)", value)
        return f'fields={{"{name}": "given(over = {over[1]})"}}' if over else f'fields=["{name}"]' \
            if value == "given" else ""
    if section == "batch" and key == "lengths":
        value = re.sub(r"^\[(\d+) x (\d+)\]$", r"[\1] * \2", value)
        sums = re.fullmatch(r"cumulative\((\[.*?\])(?:, keys = (\[.*\]))?\)", value)
        said = f"fcpc.lengths({sums[1]}{f', cu_seqlens_k={sums[2]}' if sums[2] else ''})" if sums else value
        return f"prog.plan({said})" if re.match(r"(fcpc\.lengths\()?\[\d[-\d, ]*\]", said) else ""
    if section == "cluster":
        return f"cluster=fcpc.detect(ranks={value})" if key == "gpus" else f"cluster=fcpc.Cluster({key}={value})"
    if section == "model" and kind == "table":
        return f'tables={{"{name}": {value}}}'
    if section == "batch" and key != "align":
        return ""
    return f"{key}={value}" if _NUMBERS.fullmatch(value) else f'{key}="{value}"'


# --- what a text says -------------------------------------------------------------------------------------------------

def beside_masks(text: str) -> list[str]:
    """What a program, in canonical text, says beside its masks, its batch and its tables."""
    parts = [part for part in text.split("\n\n") if not part.startswith(("mask ", "batch {"))]
    return [re.sub(r"^    table \w+ += .*?(?=^    \w|^\}|\Z)", "", part, flags=re.MULTILINE | re.DOTALL).strip()
            for part in parts]


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
