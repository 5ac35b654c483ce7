"""trace.py: a function of Python becomes a mask or a score of the language.

    def mine(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (doc[q_idx] == doc[kv_idx])

The function is called once, with symbols instead of numbers. Each operation on a symbol makes a new symbol. So the
result is the expression tree of what the function computes, and it is written in the language:

    mask main_mask = q >= k and doc[q] == doc[k]

Some of Python cannot be traced: `if`, `and`, `or`, `not`, chained comparisons and loops over symbols need a value that
is not there yet. These are errors that name the function's own line.
"""
from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import CellType, FrameType
from typing import Any, NoReturn

from .errors import Error
from .fields import Over

_HERE = os.path.dirname(os.path.abspath(__file__))
_RESERVED = {"and", "or", "not", "if", "then", "else", "where", "true", "false", "q", "k", "n", "h", "s", "heads",
             "kv_heads", "x", "rect", "slices", "run", "exact", "min", "max", "abs", "file"}
# The precedence of operators; an operand with a lower one than its operator gets parentheses.
_BINDS = {"if": 0, "or": 1, "and": 2, "not": 3, **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 4),
          "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "neg": 7}
_ATOM = 8


def _line() -> tuple[str, int]:
    """(file, line) of the caller's function: the innermost frame that is neither of this package nor of torch."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if os.path.dirname(os.path.abspath(name)) != _HERE and f"{os.sep}torch{os.sep}" not in name:
            return name, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _refuse(message: str, at: tuple[str, int] | None = None, code: str = "E210") -> NoReturn:
    file, line = at or _line()
    source = linecache.getline(file, line).strip()
    place = f"{file}:{line}: " if line else ""
    shown = f"\n    {source}" if source else ""
    raise Error(code, message, file, line, text=f"{place}error[{code}]: {message}{shown}")


class Sym:
    """A symbol: a node of the expression tree.

    kind   "int", "real" or "bool"
    at     the line that made it
    real   whether it, or any of its operands, computes with reals
    bits   for a whole number that is never negative: the bits that may be set in it; None: not known
    """
    __slots__ = ("op", "args", "kind", "at", "real", "bits")
    __hash__ = object.__hash__

    def __init__(self, op: str, args: tuple[Any, ...], kind: str, bits: int | None = None) -> None:
        self.op, self.args, self.kind, self.at, self.bits = op, args, kind, _line(), bits
        self.real: bool = kind == "real" or any(a.real for a in args if isinstance(a, Sym))

    def __bool__(self) -> bool:
        _refuse("this asks whether a symbol is true: `if`, `and`, `or`, `not` and `a < b < c` become torch.where, &, "
                "|, ~ and (a < b) & (b < c)")

    def _number(self, *_: Any) -> Any:
        _refuse("this asks for the number behind a symbol, which is known for each pair alone")

    __index__ = __int__ = __float__ = __len__ = __iter__ = item = tolist = _number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _FUNCTIONS:
            return lambda *rest, **named: _FUNCTIONS[name](self, *rest, **named)
        _refuse(f"a mask or score has no '{name}'")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        name = getattr(function, "__name__", str(function)).strip("_")
        if name == "getitem":
            return _indexed(*args)
        if name not in _FUNCTIONS:
            _refuse(f"torch.{name} is no operation of masks and scores")
        return _FUNCTIONS[name](*args, **(kwargs or {}))


def _symbol(value: Any) -> Sym:
    """A value as a symbol."""
    if isinstance(value, Sym):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # a tensor of one number
    if isinstance(value, bool):
        return Sym("true" if value else "false", (), "bool")
    if isinstance(value, (int, float)):
        return Sym("number", (value,), "int", value if value >= 0 else None) if isinstance(value, int) else \
            Sym("number", (value,), "real")
    _refuse(f"a {type(value).__name__} is no number here" + (": tensors are read as t[q_idx]" if hasattr(value, "shape")
                                                              else ""))


def _constant(x: Sym) -> Any:
    return x.args[0] if x.op == "number" else None


def _arithmetic(op: str) -> Callable[[Any, Any], Sym]:
    def make(a: Any, b: Any) -> Sym:
        a, b = _symbol(a), _symbol(b)
        if "bool" in (a.kind, b.kind):
            _refuse(f"{op} computes with a condition: torch.where(c, 1, 0) makes a number of it", code="E202")
        return Sym(op, (a, b), "real" if "real" in (a.kind, b.kind) else "int")
    return make


def _floor_divide(a: Any, b: Any) -> Sym:
    made = _arithmetic("/")(a, b)
    return made if made.kind == "int" else Sym("floor", (made,), "real")


def _divide(a: Any, b: Any, rounding_mode: str | None = None) -> Sym:
    if rounding_mode == "floor":
        return _floor_divide(a, b)
    if rounding_mode is not None:
        _refuse(f"rounding_mode = '{rounding_mode}': only 'floor' is there")
    a, b = _symbol(a), _symbol(b)
    if a.kind == b.kind == "int":
        a = Sym("*", (Sym("number", (1.0,), "real"), a), "real")
    return _arithmetic("/")(a, b)


def _compare(op: str) -> Callable[[Any, Any], Sym]:
    def make(a: Any, b: Any) -> Sym:
        a, b = _symbol(a), _symbol(b)
        if (a.kind == "bool") != (b.kind == "bool") or a.kind == "bool" and op not in ("==", "!="):
            _refuse(f"{op} compares a condition and a number", code="E202")
        return Sym(op, (a, b), "bool")
    return make


def _logic(op: str, bits: Callable[[Sym, Sym], Sym]) -> Callable[[Any, Any], Sym]:
    """and, or, xor of two conditions; `bits`: the same of two whole numbers."""
    def make(a: Any, b: Any) -> Sym:
        a, b = _symbol(a), _symbol(b)
        if a.kind == b.kind == "int":
            return bits(a, b)
        if not a.kind == b.kind == "bool":
            _refuse("&, | and ^ take two conditions, or two whole numbers", code="E202")
        return Sym(op, (a, b), "bool")
    return make


def _bits_of_both(a: Sym, b: Sym) -> Sym:
    """& of a number and a constant, as a sum with a part for each run of ones in the constant: x & 0b1100110 is
    x / 2 % 4 * 2 + x / 32 % 4 * 32."""
    x, mask = (a, _constant(b)) if _constant(a) is None else (b, _constant(a))
    if mask is None or mask < 0:
        _refuse("bits of numbers: & takes a constant from 0 on", code="E202")
    mask &= mask if x.bits is None else x.bits
    made, low = _symbol(0), 0
    while mask >> low:
        ones = 0
        while mask >> low + ones & 1:
            ones += 1
        if ones:
            part = _arithmetic("%")(_floor_divide(x, 1 << low) if low else x, 1 << ones)
            part = _arithmetic("*")(part, 1 << low) if low else part
            made = part if _constant(made) == 0 else _arithmetic("+")(made, part)
        low += max(ones, 1)
    made.bits = mask
    return made


def _bits_of_either(a: Sym, b: Sym) -> Sym:
    """| and ^ of two numbers that have no bit in common: their sum."""
    if a.bits is None or b.bits is None or a.bits & b.bits:
        _refuse("bits of numbers: | and ^ take two that cannot have a bit in common, as (x & 3) | (y & 3) << 2",
                code="E202")
    made = _arithmetic("+")(a, b)
    made.bits = a.bits | b.bits
    return made


def _not(a: Any) -> Sym:
    a = _symbol(a)
    if a.kind != "bool":
        _refuse("bits of numbers: ~ takes a condition here", code="E202")
    return Sym("not", (a,), "bool")


def _shift(up: bool) -> Callable[[Any, Any], Sym]:
    def make(a: Any, b: Any) -> Sym:
        count, a = _constant(_symbol(b)), _symbol(a)
        if not isinstance(count, int) or not 0 <= count < 63:
            _refuse("a shift is by a constant number of bits")
        made = (_arithmetic("*") if up else _floor_divide)(a, 1 << count)
        if a.bits is not None:
            made.bits = a.bits << count if up else a.bits >> count
        return made
    return make


def _where(condition: Any, a: Any, b: Any) -> Sym:
    condition, a, b = _symbol(condition), _symbol(a), _symbol(b)
    if condition.kind != "bool" or (a.kind == "bool") != (b.kind == "bool"):
        _refuse("torch.where takes a condition and two values of one type", code="E202")
    return Sym("if", (condition, a, b), "real" if "real" in (a.kind, b.kind) else a.kind)


def _extreme(op: str) -> Callable[[Any, Any], Sym]:
    def make(a: Any, b: Any) -> Sym:
        return Sym(op, _arithmetic(op)(a, b).args, _arithmetic(op)(a, b).kind)
    return make


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x = x if min is None else _extreme("max")(x, min)
    return x if max is None else _extreme("min")(x, max)


def _real(op: str) -> Callable[[Any], Sym]:
    return lambda x: Sym(op, (_symbol(x),), "real")


def _abs(x: Any) -> Sym:
    return Sym("abs", (_symbol(x),), _symbol(x).kind)


def _negative(x: Any) -> Sym:
    x = _symbol(x)
    return Sym("neg", (x,), x.kind)


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _filled_with(number: int) -> Callable[..., Sym]:
    """x.new_ones((), dtype=torch.bool): how FlexAttention writes a mask that allows everything."""
    return lambda x, size=(), dtype=None, **__: _symbol(bool(number) if str(dtype) == "torch.bool" else number)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _arithmetic("+"), "sub": _arithmetic("-"), "mul": _arithmetic("*"), "remainder": _arithmetic("%"),
    "div": _divide, "true_divide": _divide, "floor_divide": _floor_divide, "neg": _negative, "abs": _abs,
    "eq": _compare("=="), "ne": _compare("!="), "lt": _compare("<"), "le": _compare("<="), "gt": _compare(">"),
    "ge": _compare(">="), "logical_and": _logic("and", _bits_of_both), "logical_or": _logic("or", _bits_of_either),
    "logical_not": _not, "logical_xor": _logic("!=", _bits_of_either),
    "where": _where, "minimum": _extreme("min"), "maximum": _extreme("max"), "clamp": _clamp, "clip": _clamp,
    "exp": _real("exp"), "exp2": _real("exp2"), "log": _real("log"), "log2": _real("log2"), "tanh": _real("tanh"),
    "sqrt": _real("sqrt"), "floor": _real("floor"), "contiguous": _same, "view": _same,
    "unsqueeze": _same, "squeeze": _same,
    "new_ones": _filled_with(1), "new_zeros": _filled_with(0),
}
for _name, _other in (("bitwise_and", "logical_and"), ("bitwise_or", "logical_or"), ("bitwise_not", "logical_not"),
                      ("and", "logical_and"), ("or", "logical_or"), ("invert", "logical_not"),
                      ("bitwise_xor", "logical_xor"), ("xor", "logical_xor"), ("absolute", "abs"),
                      ("subtract", "sub"), ("multiply", "mul"), ("mod", "remainder"), ("truediv", "div"),
                      ("floordiv", "floor_divide"), ("negative", "neg"), ("min", "minimum"), ("max", "maximum")):
    _FUNCTIONS[_name] = _FUNCTIONS[_other]
_FUNCTIONS["rshift"], _FUNCTIONS["lshift"] = _shift(False), _shift(True)
for _name in ("rsub", "rdiv", "rtruediv", "rfloordiv", "rmod", "radd", "rmul", "rand", "ror", "rxor"):
    _plain = {"rdiv": "div"}.get(_name, _name[1:])
    _FUNCTIONS[_name] = lambda a, b, f=_FUNCTIONS[_plain]: f(b, a)
for _name in ("add", "sub", "mul", "mod", "truediv", "floordiv", "and", "or", "xor", "rshift", "lshift", "eq", "ne",
              "lt", "le", "gt", "ge", "neg", "invert", "abs", "rsub", "radd", "rmul", "rmod", "rtruediv", "rfloordiv",
              "rand", "ror", "rxor"):
    # each function reads its own arguments, so that a plain number may stand on either side
    setattr(Sym, f"__{_name}__", lambda *a, f=_FUNCTIONS[_name]: _of_rows(f, a))


class Field:
    """A field, for use in mask functions: `doc = fcpc.Field("doc")`, then `doc[b, q_idx] == doc[b, kv_idx]`.

    name   the name of one of the program's `fields`, for which each batch has values
    real   True: its numbers are reals, which scores may read

    How it is read says what it has a number for, in each sequence (b may be left out, except where it is alone):

        prefix[b]                                the sequence
        slope[b, h]                              each query head; [b, h // 4]: each KV head, if 4 query heads share one
        doc[b, q_idx], doc[b, kv_idx]            each token; [b, h, kv_idx]: each head and key
        keep[b, h, q_idx // 128, kv_idx // 128]  each head, cell of 128 queries and cell of 128 keys
    """

    def __init__(self, name: str, real: bool = False) -> None:
        self.name, self.real = name, real

    def __getitem__(self, index: Any) -> Sym:
        return _element(self.name, index if isinstance(index, tuple) else (index,), self.real)


def _is_b(index: Any) -> bool:
    return isinstance(index, Sym) and index.op == "b"


def _element(name: str, index: tuple[Any, ...], real: bool) -> Sym:
    """An element of a field. The first index may be b."""
    index = index[1:] if index and _is_b(index[0]) else index
    if any(map(_is_b, index)):
        _refuse(f"'{name}': the number of the sequence, b, is the first index of a field, and of nothing else")
    whole = tuple(map(_whole, index))
    if _tracing:
        _tracing[-1].read(name, [_Read(i) for i in whole], real)
    return Sym("index", (_Named(name), *whole), "real" if real else "int")


class _Read:
    """What an index of a field depends on.

    of     "h" for a query head, "h /" for a KV head, "" for a constant, "q", "k" or "qk" for positions
    cell   c, if it is positions // c; else 1
    """

    def __init__(self, index: Sym) -> None:
        self.at, self.cell = index.at, 1
        found = _leaves(index)
        if found == {"h"}:
            if index.op != "h" and not (index.op == "/" and index.args[0].op == "h"
                                        and _constant(index.args[1]) is not None):
                _refuse("of heads a field is read at h, or at h // n for the KV head that n query heads share")
            self.of = index.op if index.op == "h" else "h /"
        else:
            self.of = "".join(x for x in "qk" if x in found) or ("qk" if found else "")
            if index.op == "/" and (_constant(index.args[1]) or 0) > 1:
                self.cell = int(_constant(index.args[1]))


def _leaves(root: Sym) -> set[str]:
    """The variables that an expression depends on."""
    found, seen, todo = set(), {id(root)}, [root]
    while todo:
        node = todo.pop()
        if node.op in ("b", "h", "q", "k", "s"):
            found.add(node.op)
        for argument in node.args:
            if isinstance(argument, Sym) and id(argument) not in seen:
                seen.add(id(argument))
                todo.append(argument)
    return found


def _whole(index: Any) -> Sym:
    made = _symbol(index)
    if made.kind != "int":
        _refuse("an index is a whole number", code="E202")
    return made


class _Row:
    """A row of symbols, such as t[q_idx] of a table with several columns. An operation applies to each of them."""
    __hash__ = object.__hash__

    def __init__(self, symbols: list[Any]) -> None:
        self.symbols = symbols

    def row(self) -> list[Any]:
        return self.symbols

    def _joined(self, op: str, none: bool) -> Sym:
        made: Sym = _symbol(none)
        for i, x in enumerate(self.row()):
            made = _FUNCTIONS[op](made, x) if i else _symbol(x)
        return made

    def any(self, dim: int = -1) -> Sym:
        return self._joined("logical_or", False)

    def all(self, dim: int = -1) -> Sym:
        return self._joined("logical_and", True)


class _Table(_Row):
    """A tensor that the function has captured. `index`: those that were given so far, as in t[h][q_idx]."""

    def __init__(self, tensor: Any, index: tuple[Any, ...] = ()) -> None:
        self.tensor, self.index = tensor, index

    def __getitem__(self, index: Any) -> Any:
        return _indexed(self.tensor, self.index + (index if isinstance(index, tuple) else (index,)))

    def row(self) -> list[Any]:
        if len(self.index) != self.tensor.dim() - 1 or self.tensor.shape[-1] > _ROW_MOST:
            _refuse(f"a part of a tensor of shape {list(self.tensor.shape)} is no number here, and no row of at most "
                    f"{_ROW_MOST}")
        return [self[i] for i in range(self.tensor.shape[-1])]


_ROW_MOST = 64


def _of_rows(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A function of symbols, or, where one is a row, of each of its symbols."""
    rows = [a.row() if isinstance(a, _Row) else None for a in arguments]
    sizes = {len(row) for row in rows if row is not None}
    if not sizes:
        return function(*arguments)
    if len(sizes) > 1:
        _refuse(f"rows of {' and '.join(map(str, sorted(sizes)))} numbers do not go together")
    return _Row([function(*(a if row is None else row[i] for a, row in zip(arguments, rows)))
                 for i in range(sizes.pop())])


for _name in ("add", "sub", "mul", "mod", "floordiv", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge", "invert"):
    setattr(_Row, f"__{_name}__", lambda *a, f=_FUNCTIONS[_name]: _of_rows(f, a))


_tracing: list[Traced] = []  # of the trace that goes on: what it knows of captured tensors


def _indexed(tensor: Any, index: Any) -> Any:
    """A captured tensor at some indices: an element of a field or table."""
    index = index if isinstance(index, tuple) else (index,)
    if len(index) < tensor.dim():
        return _Table(tensor, index)
    # What has a number for each sequence is of the batch; with one sequence it may as well be of the model.
    of_batch = _is_b(index[0]) and (tensor.shape[0] > 1 or tensor.dim() == 1) if index else False
    if not of_batch and not _tracing[-1].is_field(tensor):
        tensor, index = _as_table(tensor, index)
    name, is_field = _tracing[-1].name_of(tensor, of_batch)
    if is_field:
        element = _element(name, index, tensor.is_floating_point())
    else:
        if not index:
            _refuse(f"'{name}' has no dimension: a table has one at least")
        if any(map(_is_b, index)):
            _refuse(f"'{name}': the number of the sequence, b, is the first index of a field, and of nothing else")
        element = Sym("index", (_Named(name), *map(_whole, index)), "real" if tensor.is_floating_point() else "int")
    kind = str(tensor.dtype)
    return Sym("!=", (element, _symbol(0)), "bool") if kind == "torch.bool" else element


def _as_table(tensor: Any, index: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A tensor of any number of dimensions as a table of one or two, and the indices of the same element in it."""
    traced = _tracing[-1]
    if tensor.dim() > 1 and tensor.shape[0] == 1 and _is_b(index[0]):
        tensor, index = traced.view_of(tensor, tensor.shape[1:]), index[1:]  # the same for all sequences
    if len(index) <= 2:
        return tensor, index
    count = tensor[0].numel()

    def within(i: Any, size: int) -> Sym:
        """The index i; if it is out of its range, one that is outside of the table, not in another row."""
        i = _whole(i)
        inside = _FUNCTIONS["logical_and"](_FUNCTIONS["ge"](i, 0), _FUNCTIONS["lt"](i, size))
        return i if _constant(i) in range(size) else _where(inside, i, count)
    last = within(index[1], tensor.shape[1])
    for i, size in zip(index[2:], tensor.shape[2:]):
        last = _arithmetic("+")(_arithmetic("*")(last, size), within(i, size))
    return traced.view_of(tensor, (tensor.shape[0], count)), (index[0], last)


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name


def _captured(function: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of all that a function, and the functions it has captured, can see by a name. The function may be
    a method, or an object that is called; then the object's attributes have names, too."""
    if id(function) in seen:
        return
    seen.add(id(function))
    if not hasattr(function, "__code__") and hasattr(type(function).__call__, "__code__"):
        function = type(function).__call__.__get__(function)  # an object of a class of its own
    code = getattr(function, "__code__", None)
    if code is None:
        return
    cells = [(n, c.cell_contents) for n, c in zip(code.co_freevars, function.__closure__ or ()) if _filled(c)]
    own = list(getattr(getattr(function, "__self__", None), "__dict__", {}).items())
    for name, value in own + cells + [(n, function.__globals__[n]) for n in code.co_names if n in function.__globals__]:
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if hasattr(each, "is_floating_point"):
                yield name, each
            elif callable(each):
                yield from _captured(each, seen)


def _filled(cell: CellType) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


class Traced:
    """The result of tracing a function.

    text          the condition or number, as it stands behind `mask name =`
    definitions   masks that the text calls, each a line
    tables        {name: tensor} that it reads, beside those that were there already
    fields        {name: values} of the captured fields that it reads
    over          {name: what it has numbers for} of all fields that it reads
    """

    def __init__(self, function: Callable[..., Any], fields: Iterable[str], tables: Mapping[str, Any],
                 known: Mapping[str, Any]) -> None:
        self.text = ""
        self.tables: dict[str, Any] = dict(tables)
        self.fields: dict[str, Any] = {}
        self.over: dict[str, Over] = {}
        self._reads: dict[str, list[_Read]] = {}
        self.definitions: list[str] = []
        self._declared, self._names, self._known = set(fields), dict[int, str](), known
        self._used = {*_RESERVED, *self._declared, *tables, *known}
        self._views: dict[tuple[int, tuple[int, ...]], tuple[Any, Any]] = {}  # (id, shape) -> (the tensor, its view)
        for name, tensor in _captured(function, set()):
            self._names.setdefault(id(tensor), name)

    def is_field(self, tensor: Any) -> bool:
        """Is it named as a field of the batch?"""
        return self._names.get(id(tensor)) in self._declared

    def read(self, name: str, index: list[_Read], real: bool) -> None:
        """Takes notice of a field that is read. All its reads together say what it has numbers for."""
        known = self._reads.setdefault(name, index)
        if len(known) != len(index):
            _refuse(f"field '{name}' is read with {len(index)} indices here, and with {len(known)} elsewhere; b does "
                    "not count")
        for old, new in zip(known, index):
            if not old.of or not new.of:  # a constant says nothing
                old.of, old.cell = old.of or new.of, max(old.cell, new.cell)
            elif "h" in old.of + new.of and old.of != new.of or old.cell != new.cell:
                _refuse(f"field '{name}' is read here in another way than elsewhere: an index is of one kind, heads or "
                        "positions, and of cells of one size")
            elif "h" not in old.of:
                old.of = "".join(sorted({*old.of, *new.of}, reverse=True))
        self.over[name] = Over(real=real)

    def finish(self) -> None:
        """Finds what each field has numbers for."""
        for name, reads in self._reads.items():
            heads = {"h": "heads", "h /": "kv_heads"}.get(reads[0].of, "") if reads else ""
            rest = reads[1:] if heads else reads
            if any("h" in x.of for x in rest) or len(rest) > 2:
                _refuse(f"field '{name}' is read with {len(reads)} indices: in each sequence a field may have numbers "
                        "for [heads], [queries], [keys], in this order; the last two perhaps in cells, as q_idx // 128."
                        " What has more dimensions becomes several tensors, and a list of blocks the mask of these",
                        reads[-1].at)
            if len(rest) == 2:
                if rest[0].of != "q" or rest[1].of not in ("k", ""):
                    _refuse(f"field '{name}' is read at two positions: the first is the query's, the second the key's",
                            rest[0].at)
                q_cell, k_cell = rest[0].cell, rest[1].cell
            else:  # where it is read at queries alone, and nobody has declared it, it has numbers for queries
                of_queries = bool(rest) and rest[0].of == "q" and name not in self._declared
                cell = rest[0].cell if rest else 0
                q_cell, k_cell = (cell, 0) if of_queries else (0, cell)
            self.over[name] = Over(heads, q_cell, k_cell, self.over[name].real)

    def view_of(self, tensor: Any, shape: Iterable[int]) -> Any:
        """The same numbers in another shape, under the same name: one object for each shape."""
        key = id(tensor), tuple(shape)
        if key not in self._views:
            self._views[key] = tensor, tensor.reshape(shape)
            self._names[id(self._views[key][1])] = self._names.get(id(tensor), "table")
        return self._views[key][1]

    def name_of(self, tensor: Any, of_batch: bool = False) -> tuple[str, bool]:
        """The name of a captured tensor, and whether it is a field. of_batch: it is one, also where nobody says so."""
        name = self._names.get(id(tensor), "table")
        if name in self._declared:
            self.fields[name] = tensor
            return name, True
        there = {**self._known, **self.fields} if of_batch else self.tables
        known = next((known for known, other in there.items() if other is tensor), None)
        if known is not None:
            return known, of_batch
        base, number = name, 1
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        (self.fields if of_batch else self.tables)[name] = tensor
        return name, of_batch


def trace(function: Callable[..., Any], kind: str = "mask", fields: Iterable[str] = (),
          tables: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> Traced:
    """Traces a function (b, h, q_idx, kv_idx) of kind "mask", or (score, b, h, q_idx, kv_idx) of kind "score".

    fields   names of captured tensors that are fields of the batch. So are those that are indexed with b first, if they
             have numbers for more than one sequence; all others are tables. `Field` says how fields are read
    tables   {name: tensor} that there are already: another tensor of such a name gets another name

    What comes back has `text`, the condition or number, as it stands behind `mask name =`; `definitions`, the masks
    that the text calls; `tables`, {name: tensor}, those that it reads beside the given ones; `fields`, {name: values},
    the captured fields that it reads; and `over`, {name: what it has numbers for}, of all fields that it reads.

    Errors: E210 (what cannot be written down, with the function's own line), E202 (types that do not fit)
    """
    return traced_function(function, kind, fields, dict(tables), {})


def traced_function(function: Callable[..., Any], kind: str, fields: Iterable[str], tables: Mapping[str, Any],
                    known: Mapping[str, Any]) -> Traced:
    """`trace`. known: {name: tensor} of fields that other functions of the program have captured."""
    traced = Traced(function, fields, tables, known)
    arguments = [Sym(name, (), "int") for name in ("b", "h", "q", "k")]
    if kind == "score":
        arguments.insert(0, Sym("s", (), "real"))
    _tracing.append(traced)
    try:
        with _Reads():
            root = _symbol(function(*arguments))
    finally:
        _tracing.pop()
    if (root.kind == "bool") != (kind == "mask"):
        _refuse(f"the function gives a {'condition' if root.kind == 'bool' else 'number'}, and a {kind} is a "
                f"{'condition' if kind == 'mask' else 'number'}", root.at, "E202")
    traced.finish()
    traced.text = _Writer(traced, kind == "score").whole(root)
    return traced


def _Reads() -> AbstractContextManager[Any]:
    """The context of tracing: in it t[q_idx] of a captured tensor is a symbol, and reads nothing."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        import contextlib
        return contextlib.nullcontext()

    class Reads(torch.overrides.TorchFunctionMode):  # type: ignore[misc] # its type is not known here
        def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (),
                               kwargs: dict[str, Any] | None = None) -> Any:
            if function is torch.Tensor.__getitem__:
                index = args[1] if isinstance(args[1], tuple) else (args[1],)
                if any(isinstance(i, Sym) for i in index):
                    return _indexed(args[0], index)
            return function(*args, **(kwargs or {}))
    return Reads()


class _Writer:
    """Writes an expression as text. A sub-expression that is used more than once becomes a definition behind
    `where`."""

    def __init__(self, traced: Traced, in_score: bool) -> None:
        self.traced, self.in_score = traced, in_score
        self.uses: dict[int, int] = {}
        self.names: dict[int, str] = {}
        self.lines: list[str] = []

    def whole(self, root: Sym) -> str:
        self._count(root)
        text, _ = self._text(root, False)
        return text + (" where {\n" + "".join(f"    {line}\n" for line in self.lines) + "}" if self.lines else "")

    def _arguments(self, node: Sym) -> list[Sym]:
        return [a for a in node.args if isinstance(a, Sym)]

    def _is_mask(self, node: Sym) -> bool:
        """A condition on whole numbers in a score: it is a mask of its own, where // and % may stand."""
        return node.kind == "bool" and len(node.args) > 0 and not node.real

    def _count(self, node: Sym) -> None:
        """Counts how often each expression is used. What becomes a mask of its own is counted by its own writer."""
        self.uses[id(node)] = self.uses.get(id(node), 0) + 1
        if self.uses[id(node)] == 1 and not (self.in_score and self._is_mask(node)):
            for argument in self._arguments(node):
                self._count(argument)

    def _text(self, node: Sym, inside: bool) -> tuple[str, int]:
        if id(node) in self.names:
            return self.names[id(node)], _ATOM
        text, binds = self._expression(node, inside)
        worth = node.op != "index" and self._arguments(node) or any(self._arguments(a) for a in self._arguments(node))
        if self.uses.get(id(node), 0) > 1 and worth and not (self.in_score and inside):
            name = self.names[id(node)] = f"t{len(self.lines) + 1}"
            self.lines.append(f"{name} = {text}")
            return name, _ATOM
        return text, binds

    def _under(self, node: Sym, binds: int, inside: bool) -> str:
        """The text of an argument, in parentheses if it binds no tighter than `binds`."""
        text, own = self._text(node, inside)
        return text if own > binds else f"({text})"

    def _expression(self, node: Sym, inside: bool) -> tuple[str, int]:
        op, args = node.op, node.args
        if self.in_score and self._is_mask(node):
            name = f"condition_{len(self.traced.definitions) + 1}"
            self.traced.definitions.append(f"mask {name} = {_Writer(self.traced, False).whole(node)}")
            return name, _ATOM
        if op == "b":
            _refuse("b is the number of a sequence. A batch is a list of sequences, and none sees another, so a mask "
                    "does not ask for it. What differs from one to the next is a field: a tensor with a number for "
                    "each, such as first = torch.tensor([1, 0, 0]), which is read as first[b]", node.at)
        if op == "number":
            from .written import real
            text = str(args[0]) if node.kind == "int" else real(args[0])
            return text, _BINDS["neg"] if text.startswith("-") else _ATOM
        if op == "index":
            if not self.in_score and node.kind == "real":
                _refuse(f"masks compute with whole numbers, and '{args[0].name}' holds reals, which scores may read",
                        node.at, "E202")
            inner = ", ".join(self._text(a, True)[0] for a in args[1:])
            return f"{args[0].name}[{inner}]" if inner else args[0].name, _ATOM
        if not args:
            return op, _ATOM
        if not self.in_score and node.kind == "real":
            _refuse("masks compute with whole numbers: // divides them", node.at, "E202")
        if op == "if":
            c, a, b = (self._text(x, inside)[0] for x in args)
            return f"if {c} then {a} else {b}", _BINDS["if"]
        if op == "not":
            return f"not {self._under(args[0], _BINDS['not'], inside)}", _BINDS["not"]
        if op == "neg":
            return f"-{self._under(args[0], _BINDS['neg'], inside)}", _BINDS["neg"]
        if op not in _BINDS:
            return f"{op}({', '.join(self._text(a, inside)[0] for a in args)})", _ATOM
        if self.in_score and not inside and op in "/%" and node.kind == "int":
            _refuse("in a score // and % of whole numbers stand inside an index or a condition only", node.at, "E202")
        binds = _BINDS[op]
        loose = binds - (op in ("+", "-", "*", "/", "%", "and", "or"))  # these go from left to right
        return f"{self._under(args[0], loose, inside)} {op} {self._under(args[1], binds, inside)}", binds
