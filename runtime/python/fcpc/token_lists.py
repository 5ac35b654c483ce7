"""token_lists.py: the token lists of rollouts as C takes them, and values in the caller's shape.

Rollouts come in one of three shapes. Of two rollouts, 5 6 7 and 5 8:

    a list      [[5, 6, 7], [5, 8]]; each element is a list, an array or a tensor
    padded      [[5, 6, 7], [5, 8, 0]] with lengths=[3, 2], or with mask=[[1, 1, 1], [1, 1, 0]]
    flat        [5, 6, 7, 5, 8] with cu_seqlens=[0, 3, 5]

Values of tokens, such as advantages, have the same shape. `Shape` brings them to the tokens end to end, and back.
"""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence

from .arrays import is_array, is_tensor
from .batches import kind_of, lengths as lengths_of, numbers_of
from .errors import Error


def numpy() -> Any:
    """The library, which forests need."""
    try:
        import numpy as found
    except ImportError:
        raise ImportError("fcpc.forest needs numpy: pip install numpy") from None
    return found


class Shape(NamedTuple):
    """The shape in which values of the tokens of rollouts come.

    kind     "list", "padded" or "flat"
    lengths  int64 array [rollouts], in tokens
    width    of a padded tensor
    begins   int64 array [rollouts]: in which column of its row each rollout begins. None: all in column 0
    """
    kind: str
    lengths: Any
    width: int = 0
    begins: Any = None

    @property
    def dims(self) -> tuple[int, ...]:
        """The first dimensions of values of this shape, unless it is a list."""
        return (len(self.lengths), self.width) if self.kind == "padded" else (int(self.lengths.sum()),)

    def places(self) -> Any:
        """Of a padded tensor, in which element of all its rows end to end each token is; None: all are, in order."""
        np, count = numpy(), len(self.lengths)
        if self.kind != "padded" or (self.lengths == self.width).all():
            return None
        first = np.arange(count) * self.width + (0 if self.begins is None else self.begins)
        return ranges(first, self.lengths)

    def of(self, rollouts: Any) -> Shape:
        """The shape of some of the rollouts."""
        return self._replace(lengths=self.lengths[rollouts],
                             begins=None if self.begins is None else self.begins[rollouts])


class Lists(NamedTuple):
    """Token lists in memory.

    tokens   int64 array, in one dimension
    first    int64 array [rollouts]: where each begins there
    shape    in which values of them come
    """
    tokens: Any
    first: Any
    shape: Shape


def ranges(first: Any, lengths: Any) -> Any:
    """The numbers first[i], first[i] + 1, ..., lengths[i] of them, for one i after the other."""
    np = numpy()
    total, starts = int(lengths.sum()), lengths.cumsum() - lengths
    return np.arange(total) + np.repeat(first - starts, lengths)


def token_lists(what: str, rollouts: Any, lengths: Any = None, mask: Any = None, cu_seqlens: Any = None) -> Lists:
    """Token lists in one of the shapes above. `what` is their name in messages.

    Errors: E202 (no whole numbers, or not of that shape), E300 (lengths that are not the rollouts')
    """
    said = [name for name, x in (("lengths", lengths), ("mask", mask), ("cu_seqlens", cu_seqlens)) if x is not None]
    if len(said) > 1:
        raise Error("E300", f"forest: {what} have {said[0]} and {said[1]}: one of them says all")
    if is_tensor(rollouts) or is_array(rollouts):
        tokens = _ids(what, rollouts)
        if tokens.ndim == 2:
            return _padded(what, tokens, lengths, mask, said)
        if tokens.ndim == 1:
            return _flat(what, tokens, cu_seqlens, said)
        raise Error("E202", f"forest: {what} are a tensor of shape {list(tokens.shape)}: [count, width] is expected "
                            "with lengths or mask, or [tokens] with cu_seqlens")
    if said:
        raise Error("E300", f"forest: {said[0]} is of a tensor, and {what} are {kind_of(rollouts)}")
    if isinstance(rollouts, (str, bytes)) or not hasattr(rollouts, "__iter__"):
        raise Error("E202", f"forest: {what} are lists of token ids, or a tensor of them, and this is "
                            f"{kind_of(rollouts)}")
    return _listed(what, list(rollouts))


def _ids(what: str, x: Any) -> Any:
    """Token ids as an int64 array."""
    if is_tensor(x):
        if x.is_floating_point() or x.is_complex():
            raise Error("E202", f"forest: {what}: token ids are whole numbers, and this is a tensor of {x.dtype}")
        x = x.detach().cpu().numpy()
    if x.dtype.kind not in "iub":
        raise Error("E202", f"forest: {what}: token ids are whole numbers, and this is an array of {x.dtype}")
    if x.dtype == "uint64" and x.size and x.max() > numpy().iinfo("int64").max:
        raise Error("E206", f"forest: {what}: a token id is {x.max()}, and at most 2^63 - 1 is expected")
    return x.astype("int64", copy=False)


def _numbers(name: str, x: Any, count: int, what: str) -> Any:
    """Whole numbers from 0 on, one for each rollout, as an int64 array."""
    np = numpy()
    held = numbers_of(x, "Q", f"forest: {name}")
    if held is None or held.size != count:
        raise Error("E300", f"forest: {name} has {held.size if held else 0} numbers, and there are {count} {what}")
    if not count:
        return np.zeros(0, "int64")
    found = np.array((ctypes.c_uint64 * held.size).from_address(held.address), dtype="uint64")
    if found.max() >= 1 << 62:
        raise Error("E206", f"forest: {name}: {found.max()} is too large")
    return found.astype("int64")


def _padded(what: str, tokens: Any, lengths: Any, mask: Any, said: list[str]) -> Lists:
    np, (count, width), begins = numpy(), tokens.shape, None
    if said == ["cu_seqlens"] or not said:
        raise Error("E300", f"forest: {what} are a tensor of shape {[count, width]}: say which of it are tokens, with "
                            "lengths=[...] if rows are filled up on the right, or with mask= of the same shape")
    if mask is not None:
        its = _mask(what, mask, (count, width))
        found = its.sum(1)
        begins = its.argmax(1) if width else np.zeros(count, "int64")
        ends = width - its[:, ::-1].argmax(1) if width else begins
        holes = np.flatnonzero((found > 0) & (ends - begins != found))
        if len(holes):
            raise Error("E300", f"forest: the mask of {what} has a gap in row {holes[0]}: the tokens of a rollout "
                                "stand one behind the other")
        lengths, begins = found, begins if begins.any() else None
    else:
        lengths = _numbers("lengths", lengths, count, what)
        if count and lengths.max() > width:
            row = int(lengths.argmax())
            raise Error("E300", f"forest: lengths: row {row} has {lengths[row]} tokens, and the tensor is {width} wide")
    tokens = np.ascontiguousarray(tokens)
    first = np.arange(count) * width + (0 if begins is None else begins)
    return Lists(tokens.reshape(-1), first, Shape("padded", lengths, width, begins))


def _mask(what: str, mask: Any, shape: tuple[int, int]) -> Any:
    if is_tensor(mask):
        mask = mask.detach().cpu().numpy()
    mask = numpy().asarray(mask)
    if mask.shape != shape:
        raise Error("E300", f"forest: the mask of {what} has the shape {list(mask.shape)}, and they have {list(shape)}")
    if mask.dtype.kind not in "iub" or mask.size and not ((mask == 0) | (mask == 1)).all():
        raise Error("E202", f"forest: the mask of {what} has 1 for each token, and 0 beside them")
    return mask.astype("int64")


def _flat(what: str, tokens: Any, cu_seqlens: Any, said: list[str]) -> Lists:
    np = numpy()
    if said != ["cu_seqlens"]:
        raise Error("E300", f"forest: {what} are a tensor in one dimension: cu_seqlens says where each of them begins")
    lengths = np.array(lengths_of(cu_seqlens).keys, dtype="int64")
    if lengths.sum() != len(tokens):
        raise Error("E300", f"forest: cu_seqlens ends with {lengths.sum()}, and {what} have {len(tokens)} tokens")
    return Lists(np.ascontiguousarray(tokens), lengths.cumsum() - lengths, Shape("flat", lengths))


def _listed(what: str, rollouts: list[Any]) -> Lists:
    np, parts = numpy(), []
    for i, x in enumerate(rollouts):
        if isinstance(x, (str, bytes)):
            raise Error("E202", f"forest: {what}: element {i} is {x!r}, and token ids are expected: tokenize it")
        if not (is_tensor(x) or is_array(x)):
            held = numbers_of(x, "q", f"forest: {what}, element {i}")
            size = held.size if held else 0
            x = np.frombuffer(held.owner, "int64")[:size] if held else np.zeros(0, "int64")
        x = _ids(what, x)
        if x.ndim != 1:
            raise Error("E202", f"forest: {what}: element {i} has the shape {list(x.shape)}, and a list of token ids "
                                "is expected")
        parts.append(x)
    lengths = np.array([len(x) for x in parts], dtype="int64")
    tokens = np.concatenate(parts) if parts else np.zeros(0, "int64")
    return Lists(tokens, lengths.cumsum() - lengths, Shape("list", lengths))


def behind(prompts: Lists, of: Sequence[int], answers: Lists) -> Lists:
    """Each answer behind its prompt, number of[i] of the prompts. The shape stays that of the answers."""
    np = numpy()
    before = prompts.shape.lengths[of] if len(of) else np.zeros(0, "int64")
    lengths = before + answers.shape.lengths
    first = lengths.cumsum() - lengths
    tokens = np.empty(int(lengths.sum()), "int64")
    starts = prompts.first[of] if len(of) else before
    for at, p, b, a, n in zip(first.tolist(), starts.tolist(), before.tolist(), answers.first.tolist(),
                              answers.shape.lengths.tolist()):
        tokens[at:at + b] = prompts.tokens[p:p + b]
        tokens[at + b:at + b + n] = answers.tokens[a:a + n]
    return Lists(tokens, first, answers.shape)
