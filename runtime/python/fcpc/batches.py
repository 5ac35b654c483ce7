"""batches.py: the numbers of a batch, its lengths and fields, as C takes them."""
from __future__ import annotations

import array
import ctypes
import operator
from dataclasses import dataclass
from typing import Any, Mapping, NamedTuple

from .errors import Error

_FOR_EACH = {"Q": "one for each sequence", "q": "one for each token, sequences end to end",
             "d": "one for each token, sequences end to end"}
_EXPECTED = {"Q": "a whole number from 0 on", "q": "a whole number of at most 64 bits", "d": "a number"}


@dataclass(frozen=True)
class Lengths:
    """The lengths of a batch, as `Program.plan` takes them: `fcpc.lengths` makes them.

    keys     how many keys each sequence has
    queries  how many queries each has; None: as many as keys
    """
    keys: list[int]
    queries: list[int] | None = None


def lengths(cu_seqlens: Any, cu_seqlens_k: Any = None) -> Lengths:
    """The lengths of a batch that FlashAttention's varlen functions describe: prog.plan(fcpc.lengths(cu_seqlens)).

    cu_seqlens    where each sequence begins in the packed tokens, and at last how many there are: [0, 3, 5, 10] are
                  sequences of 3, 2 and 5 tokens. A list, an array, or a tensor on any device
    cu_seqlens_k  the same of the keys, if sequences have other numbers of keys than of queries. Then cu_seqlens is what
                  FlashAttention calls cu_seqlens_q. The last query is where the last key is, in both projects

    A number that stands there twice is a sequence of no tokens.

    Errors: E202 (no whole numbers, or not in one dimension), E300 (they do not begin with 0, decrease, or are of
    batches of different sizes)
    """
    of_queries = _differences_of("cu_seqlens", cu_seqlens)
    if cu_seqlens_k is None:
        return Lengths(of_queries)
    of_keys = _differences_of("cu_seqlens_k", cu_seqlens_k)
    if len(of_keys) != len(of_queries):
        raise Error("E300", f"cu_seqlens is of {len(of_queries)} sequences, and cu_seqlens_k of {len(of_keys)}")
    return Lengths(of_keys, None if of_keys == of_queries else of_queries)


def _differences_of(name: str, values: Any) -> list[int]:
    numbers = numbers_of(values, "Q", name)
    said = list((ctypes.c_uint64 * numbers.size).from_address(numbers.address)) if numbers else []
    if not said or said[0]:
        made = [0]
        for length in said:
            made.append(made[-1] + length)
        meant = f". Of lengths, {shortly(said)}, they would be {shortly(made)}; plan() takes lengths as they are" \
            if said else ": of no sequence they are [0]"
        raise Error("E300", f"{name}: the first number is 0, where the first sequence begins{meant}")
    for i in range(1, len(said)):
        if said[i] < said[i - 1]:
            raise Error("E300", f"{name}: element {i} is {said[i]}, less than {said[i - 1]} before it, and sums of "
                                "lengths do not decrease")
    return [b - a for a, b in zip(said, said[1:])]


class Numbers(NamedTuple):
    """Numbers of 64 bits at an address, whole ones or reals, and what owns the memory."""
    address: int
    size: int
    owner: Any
    real: bool = False


def index_or_none(x: Any) -> int | None:
    """A whole number of any type as an int; None: it is no whole number."""
    try:
        return operator.index(x)
    except TypeError:
        return None


def numbers_of(values: Any, kind: str, what: str) -> Numbers | None:
    """The numbers of a list, an array or a tensor, as C takes them; None for None.

    kind   "q" for the signed values of a field, "d" for reals, "Q" for lengths, which are unsigned

    Errors: E202 (no numbers, or not in one dimension), E206 (out of range)
    """
    if values is None:
        return None
    real = kind == "d"
    if hasattr(values, "data_ptr"):  # a tensor of torch
        if values.is_complex() or values.is_floating_point() and not real:
            raise Error("E202", f"{what}: whole numbers are expected, and this is a tensor of {values.dtype}"
                                f"{_as_reals(kind)}")
        _check_shape(tuple(values.shape), kind, what)
        if kind != "Q":
            values = values.detach().cpu().contiguous()
            values = values.double() if real else values.long()
            return Numbers(values.data_ptr(), len(values), values, real)
        values = values.tolist()
    elif hasattr(values, "__array_interface__"):
        if values.dtype.kind not in ("iubf" if real else "iub"):
            raise Error("E202", f"{what}: {'' if real else 'whole '}numbers are expected, and this is an array of "
                                f"{values.dtype}{_as_reals(kind)}")
        _check_shape(values.shape, kind, what)
        if real or kind == "q" and values.dtype != "uint64":
            values = values.astype("float64" if real else "int64", order="C", copy=False)
            if not values.flags.c_contiguous:
                values = values.copy()
            return Numbers(values.__array_interface__["data"][0], len(values), values, real)
        values = values.tolist()
    if isinstance(values, array.array) and values.typecode == kind and values:
        return Numbers(values.buffer_info()[0], len(values), values, real)
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        numbers = array.array(kind, values)
    except (TypeError, OverflowError) as error:
        code = "E206" if isinstance(error, OverflowError) else "E202"
        raise Error(code, f"{what}: {_misfit(values, kind)}") from None
    count = len(numbers)
    numbers = numbers or array.array(kind, [0])  # so that no values are something other than no array
    return Numbers(numbers.buffer_info()[0], count, numbers, real)


def _as_reals(kind: str) -> str:
    return ". A field of reals, which scores may read, is declared so: fields={name: \"given(real)\"}" \
        if kind == "q" else ""


def _check_shape(shape: tuple[int, ...], kind: str, what: str) -> None:
    if len(shape) != 1:
        raise Error("E202", f"{what}: numbers in one dimension are expected, {_FOR_EACH[kind]}, and the shape of these "
                            f"is {list(shape)}")


def _misfit(values: Any, kind: str) -> str:
    """A message about the first value that is no whole number, or that an array of `kind` cannot hold."""
    expected = _EXPECTED[kind]
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        made = f": write [{values}]" if isinstance(values, int) and values >= 0 else ""
        return f"numbers in a list, an array or a tensor are expected, this is {values!r}{made}"
    for i, value in enumerate(values):
        try:
            array.array(kind, [value])
        except (TypeError, OverflowError):
            pair = "; sequences with other queries than keys have `queries` beside `lengths`"
            more = pair if isinstance(value, tuple) else _as_reals(kind) if isinstance(value, float) else ""
            return f"element {i} is {value!r}, {expected} is expected{more}"
    return f"{expected} is expected"


def fields_of(fields: Any) -> Mapping[str, Any]:
    """The fields of a batch as the caller gives them: {name: values}, or None."""
    if fields is None:
        return {}
    if not hasattr(fields, "items"):
        raise Error("E202", "fields: {name: values} is expected, as {\"doc\": values}, and this is "
                            f"{kind_of(fields)}")
    for name, values in fields.items():
        if values is None:
            raise Error("E320", f"field '{name}' has no values: they are None")
    made: Mapping[str, Any] = fields
    return made


def kind_of(x: Any) -> str:
    """What something is, for a message: its repr if that is short, else its type."""
    shown = repr(x)
    kind = type(x).__name__
    return shown if len(shown) <= 40 and "\n" not in shown and " at 0x" not in shown else \
        f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def cu_seqlens(lengths: Numbers | None, fields: Mapping[str, Numbers]) -> list[int] | None:
    """Finds lengths that look cumulative, as flash_attn_varlen_func takes them: [0, 100, 250] instead of [100, 150].
    Returns them as a list, or None if they do not look so.

    Lengths that look so may be right all the same, because a sequence may have no tokens. A field of the batch settles
    it, because it has a value for each token. Errors: E300 (they are cumulative)
    """
    if lengths is None or lengths.size < 3:
        return None
    numbers = (ctypes.c_uint64 * lengths.size).from_address(lengths.address)
    said = [] if numbers[0] else list(numbers)
    if said != sorted(said) or len(set(said)) < 3 or any(x.size == sum(said) for x in fields.values()):
        return None
    for name, values in fields.items():
        if values.size == said[-1]:
            raise Error("E300", f"lengths are cu_seqlens, {shortly(said)}: field '{name}' has {values.size} values. "
                                f"Lengths are the differences, {differences(said)}")
    return said


def differences(said: list[int]) -> str:
    """The lengths that belong to cu_seqlens, for a message."""
    return shortly([b - a for a, b in zip(said, said[1:])])


def shortly(numbers: list[int]) -> str:
    """A list of numbers, of which a message shows the first."""
    return f"[{', '.join(map(str, numbers[:4]))}{', ...' if len(numbers) > 4 else ''}]"
