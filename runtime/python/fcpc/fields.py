"""fields.py: what a field has numbers for, and the numbers of a batch in the order in which C takes them.

A batch of two sequences, of 300 and 100 tokens, and a field `over = heads, queries / 128, keys / 128` of 8 heads: the
first sequence has numbers of the shape [8, 3, 3], the second of [8, 1, 1]. C takes them end to end, each row-major.
"""
from __future__ import annotations

import array
import ctypes
import math
import re
from typing import Any, NamedTuple, Sequence

from .batches import Numbers, kind_of, numbers_of
from .errors import Error

Shape = tuple[int, ...]


class Over(NamedTuple):
    """What a field has a number for, in each sequence.

    heads   "heads" or "kv_heads": each of them has numbers of its own; "": they share them
    q_cell  0: queries share numbers; else each cell of so many positions of queries has its own
    k_cell  the same of keys
    real    True: they are reals; False: whole numbers; None: the program does not say, for example of a file
    """
    heads: str = ""
    q_cell: int = 0
    k_cell: int = 1
    real: bool | None = False

    def text(self) -> str:
        """As it stands behind `over = `."""
        parts = [self.heads] if self.heads else []
        parts += [side if cell == 1 else f"{side} / {cell}"
                  for side, cell in (("queries", self.q_cell), ("keys", self.k_cell)) if cell]
        return ", ".join(parts) or "sequences"

    def declared(self, said: str = "given") -> str:
        """The declaration `said`, and in it what this adds to it."""
        more = [*(["real"] if self.real else []), *([f"over = {self.text()}"] if self.text() != "keys" else [])]
        if not more or re.search(r"\bover\b", said):
            return said
        return said.replace("given", f"given({', '.join(more)})", 1) if "(" not in said else \
            said.replace("(", f"({', '.join(more)}, ", 1)


class Declared(NamedTuple):
    """What a program says about the sizes of its fields.

    over      {name: Over} of its fields
    heads     {"heads": how many, "kv_heads": how many}
    top_left  queries begin at position 0, and not where the last query is at the last key
    """
    over: dict[str, Over]
    heads: dict[str, int]
    top_left: bool


class Sizes(NamedTuple):
    """The sizes of a batch: of each sequence the keys and queries, and what the program says."""
    keys: Sequence[int]
    queries: Sequence[int]
    sequences: int
    declared: Declared

    def shape(self, over: Over, i: int) -> Shape:
        """The shape of the numbers of sequence i."""
        queries, keys = self.queries[i], self.keys[i]
        first = 0 if self.declared.top_left else keys - queries
        made = [self.declared.heads[over.heads]] if over.heads else []
        if over.q_cell:
            made.append((first + queries - 1) // over.q_cell - first // over.q_cell + 1 if queries else 0)
        if over.k_cell:
            made.append(-(-keys // over.k_cell))
        return tuple(made)


_DIMENSION = r"(?:sequences|kv_heads|heads|queries|keys)(?: ?/ ?\w+)?"
_OVER = re.compile(rf"\bover (?:= )?({_DIMENSION}(?:, {_DIMENSION})*)")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def number(text: str) -> int:
    """A whole number of the language: 128, 4K."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def declared_in(text: str) -> Declared:
    """What a program, in canonical text, says about its fields."""
    batch = re.search(r"^batch \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    inside = batch[1] if batch else ""
    found = {}
    for name, said in re.findall(r"^    field (\w+) += (.*?)(?=^    \w|\Z)", inside, re.MULTILINE | re.DOTALL):
        said = " ".join(said.split())
        over = _OVER.search(said)
        parts = dict(re.findall(r"(\w+)(?: ?/ ?(\w+))?", over[1])) if over else {"keys": ""}
        cells = {side: number(cell or "1") for side, cell in parts.items()}
        real = True if re.search(r"\breal\b", said) else False if said.startswith("given") else None
        found[name] = Over(next((x for x in ("kv_heads", "heads") if x in parts), ""), cells.get("queries", 0),
                           cells.get("keys", 0), real)
    heads = re.search(r"^    heads = (\w+)", text, re.MULTILINE)
    kv_heads = re.search(r"^    kv_heads = (\w+)", text, re.MULTILINE)
    count = number(heads[1]) if heads else 8
    return Declared(found, {"heads": count, "kv_heads": number(kv_heads[1]) if kv_heads else count},
                    re.search(r"^    align = top_left$", inside, re.MULTILINE) is not None)


class Held(NamedTuple):
    """A copy of the numbers of a field, which nobody else can change; and the shape in which they came."""
    numbers: array.array[Any]
    shape: Shape | None


def held(values: Any, what: str) -> Held:
    """Copies the numbers of a tensor that a function has captured."""
    shape = tuple(values.shape) if hasattr(values, "shape") else None
    if shape is not None:
        values = values.reshape(-1)
    real = hasattr(values, "is_floating_point") and values.is_floating_point()
    numbers, made = numbers_of(values, "d" if real else "q", what), array.array("d" if real else "q")
    if numbers:
        made.frombytes(ctypes.string_at(numbers.address, 8 * numbers.size))
    return Held(made, shape)


def numbers_of_field(name: str, values: Any, over: Over, sizes: Sizes | None) -> Numbers:
    """The numbers of a field for a batch, as C takes them. `values` is one of these:

        flat        the numbers of all sequences, end to end
        a list      the numbers of each sequence, each an array of the shape that Sizes.shape says
        stacked     one array, where all sequences have the same shape; the first dimension is that of the sequences

    sizes   None: the program's own batch, whose sizes C alone checks

    Errors: E320 (another shape), E202 (no numbers), E206 (out of range)
    """
    what = f"field '{name}'"
    if isinstance(values, Held):
        kind = values.numbers.typecode
        if sizes is not None:
            _check_captured(name, values, over, sizes)
        made = numbers_of(values.numbers, kind, what)
        assert made
        return made
    kind = "d" if over.real or over.real is None and _are_reals(values) else "q"
    if isinstance(values, (list, tuple)) and any(_is_part(x) for x in values):
        parts = [numbers_of_part(f"{what}, sequence {i}", x, kind) for i, x in enumerate(values)]
        if sizes is not None:
            if len(parts) != sizes.sequences:
                raise Error("E320", f"{what}: the list has numbers of {_sequences(len(parts))}, and the batch has "
                                    f"{sizes.sequences}")
            for i, (shape, _) in enumerate(parts):
                _check_sequence(what, i, shape, over, sizes)
        numbers = array.array(kind)
        for _, part in parts:
            numbers.frombytes(ctypes.string_at(part.address, 8 * part.size))
        made = numbers_of(numbers, kind, what)
        assert made
        return made
    if len(getattr(values, "shape", ())) > 1:
        _check(what, tuple(values.shape), over, sizes)
        values = values.reshape(-1)
    made = numbers_of(values, kind, what)
    assert made
    return made


def _check_captured(name: str, values: Held, over: Over, sizes: Sizes) -> None:
    """Checks that the values that a function has captured are as many as the batch needs, and of its shape."""
    try:
        if values.shape is not None:
            _check(f"field '{name}'", values.shape, over, sizes)
        want = sum(math.prod(sizes.shape(over, i)) for i in range(sizes.sequences))
        if want != len(values.numbers):
            raise Error("E320", f"field '{name}' is over {over.text()}, and the batch needs {want} values of it. There "
                                f"are {len(values.numbers)}")
    except Error as error:
        raise Error(error.code, f"{error.message}. They are what a function had captured when the program was made. A "
                                f'batch brings its own: plan(lengths, {{"{name}": values}})') from None


def _check(what: str, shape: Shape, over: Over, sizes: Sizes | None) -> None:
    """Checks the shape of one array with the numbers of all sequences."""
    if len(shape) == 1 or sizes is None:
        return
    count = sizes.sequences
    wants = [sizes.shape(over, i) for i in range(count)]
    if count == 1 and shape == wants[0]:
        return
    if len(shape) != len(wants[0]) + 1 or shape[0] != count:
        raise Error("E320", f"{what} is over {over.text()}, and the batch has {_sequences(count)}: its numbers have "
                            f"the shape {_stacked(wants)}, or are a list with an array for each sequence, or stand all "
                            f"in one dimension. The shape of these is {list(shape)}")
    for i in range(count):
        _check_sequence(what, i, shape[1:], over, sizes,
                        f": give a list with an array for each sequence, [{wants[0]}, {wants[1]}, ...]"
                        if len(set(wants)) > 1 else "")


def _check_sequence(what: str, i: int, shape: Shape, over: Over, sizes: Sizes, hint: str = "") -> None:
    want, queries, keys = sizes.shape(over, i), sizes.queries[i], sizes.keys[i]
    if shape != want and not (want == () and shape == (1,)) and not (0 in want and 0 in shape):
        of = f"{keys} tokens" if queries == keys else f"{queries} queries and {keys} keys"
        raise Error("E320", f"{what} is over {over.text()}: sequence {i} has {of}, so its numbers have the shape "
                            f"{list(want)}, and these have {list(shape)}{hint}")


def _stacked(wants: list[Shape]) -> str:
    """The shape of one array for a batch, for a message."""
    return str([len(wants), *wants[0]]) if len(set(wants)) == 1 else f"{wants[0]}, {wants[1]} and so on" \
        if wants else "[0]"


def _sequences(count: int) -> str:
    return "one sequence" if count == 1 else f"{count} sequences"


def _is_part(x: Any) -> bool:
    """Has it the numbers of a whole sequence, and is it no number?"""
    return isinstance(x, (list, tuple, array.array)) or len(getattr(x, "shape", ())) > 0


def _are_reals(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(map(_are_reals, values))
    return isinstance(values, float) or getattr(values, "typecode", "") in ("d", "f") or \
        "float" in str(getattr(values, "dtype", ""))


def numbers_of_part(what: str, values: Any, kind: str) -> tuple[Shape, Numbers]:
    """The numbers of one sequence, row-major, and their shape."""
    if hasattr(values, "shape") and hasattr(values, "reshape"):
        shape, flat = tuple(values.shape), values.reshape(-1)
    else:
        shape, flat = _shape_of(what, values)
    made = numbers_of(flat, kind, what)
    assert made
    return shape, made


def _shape_of(what: str, values: Any) -> tuple[Shape, list[Any]]:
    """The shape of nested lists, and all numbers in them."""
    if not isinstance(values, (list, tuple, array.array)):
        return (), [values]
    inner = [_shape_of(what, x) for x in values]
    shapes = {shape for shape, _ in inner}
    if len(shapes) > 1:
        raise Error("E202", f"{what}: rows of different lengths, {' and '.join(str(list(s)) for s in sorted(shapes))}, "
                            f"in {kind_of(values)}")
    return (len(inner), *(shapes.pop() if shapes else ())), [x for _, flat in inner for x in flat]
