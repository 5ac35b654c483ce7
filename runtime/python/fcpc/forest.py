"""forest.py: rollouts that share their first tokens, as trees: each shared token is there once (fcpc.forest).

Example: the rollouts 5 6 7 and 5 6 8 are one tree, which is the sequence 5 6 7 8. A token sees the tokens before it in
its own rollouts, so the mask is `causal and q <= last[k]`, where last[k] is the end of k's subtree: 7 is no part of
what 8 sees, because 7's subtree ends with 7 itself.
"""
from __future__ import annotations

import ctypes
import hashlib
import sys
from typing import TYPE_CHECKING, Any, Iterable, List, NamedTuple, Sequence

from ._c import C, ReadOnly, check, fcp_error, fcpc_forest_view, fcpc_rollouts
from .arrays import array_of, is_array, is_tensor, taken
from .batches import kind_of, numbers_of, shortly
from .errors import Error
from .token_lists import Lists, Shape, behind, numpy, ranges, token_lists

if TYPE_CHECKING:
    from .plan import Plan


def forest(rollouts: Any, prompts: Any = None, *, lengths: Any = None, mask: Any = None, cu_seqlens: Any = None,
           prompt_lengths: Any = None, prompt_mask: Any = None, prompt_cu_seqlens: Any = None, groups: Any = None,
           least: int = 1) -> Forest:
    """The trees of rollouts: a `Forest`. Rollouts are equal up to some token share what is before it, computed once.

    rollouts    token ids, whole numbers: a list with a list, an array or a tensor for each rollout; or a tensor
                [count, width] with `lengths` (filled up on the right) or `mask` (1 for tokens, 0 on either side); or
                a tensor [tokens] with `cu_seqlens`, where each begins and at last how many there are
    prompts     token ids in one of these forms, with prompt_lengths, prompt_mask or prompt_cu_seqlens: one for each
                rollout, which stands before it; or, with `groups`, one for each group, by rising numbers of the groups.
                Then values of tokens are those of `rollouts` alone, the answers. None: rollouts have their prompts in
                them
    groups      a whole number for each rollout: only those of one number share tokens. None: all may, by content
    least       a stretch that rollouts share has at least so many tokens, else each has its own

    The same rollouts give the same trees, everywhere. 20 million tokens take about 0.2 seconds in C; lists of Python
    numbers take longer, because each number is looked at by Python.

    Errors: E202 (no whole numbers, or in other shapes), E206 (numbers out of range), E300 (lengths, mask, cu_seqlens or
    groups that do not belong to these rollouts)
    """
    answers = token_lists("rollouts", rollouts, lengths, mask, cu_seqlens)
    count = len(answers.shape.lengths)
    its_groups = None if groups is None else _groups(groups, count)
    if not isinstance(least, int) or not 0 <= least < 1 << 62:
        raise Error("E206", f"forest: least is {least!r}, and a number of tokens is expected")
    before, whole = None, answers
    if prompts is not None:
        their = token_lists("prompts", prompts, prompt_lengths, prompt_mask, prompt_cu_seqlens)
        of = _prompt_of(len(their.shape.lengths), count, its_groups)
        whole = behind(their, of, answers)
        before = their.shape.lengths[of]
    elif not (prompt_lengths is None and prompt_mask is None and prompt_cu_seqlens is None):
        raise Error("E300", "forest: there are no prompts, whose lengths these would be")
    return Forest(_made(whole, answers.shape.lengths if before is None else before + answers.shape.lengths, its_groups,
                        least), answers.shape, before)


def _groups(groups: Any, count: int) -> Any:
    np = numpy()
    held = numbers_of(groups, "q", "forest: groups")
    if held is None or held.size != count:
        raise Error("E300", f"forest: groups has {held.size if held else 0} numbers, and there are {count} rollouts")
    return np.array((ctypes.c_int64 * count).from_address(held.address), dtype="int64")


def _prompt_of(prompts: int, count: int, groups: Any) -> Any:
    """The number of the prompt of each rollout: that of its group, or its own."""
    np = numpy()
    names, of = ([], None) if groups is None else np.unique(groups, return_inverse=True)
    if of is not None and prompts == len(names):
        if prompts == count and (of != np.arange(count)).any():
            raise Error("E300", "forest: each rollout is a group of its own, and the groups do not rise: are the "
                                "prompts in the order of the rollouts, or of the groups? If of the rollouts, leave "
                                "`groups` out")
        return of
    if prompts != count:
        also = "" if of is None else f", in {len(names)} groups"
        raise Error("E300", f"forest: there are {prompts} prompts, and {count} rollouts{also}: one for each is "
                            "expected")
    return np.arange(count)


def _made(lists: Lists, lengths: Any, groups: Any, least: int) -> int:
    """The handle of a new forest."""
    np = numpy()
    given = fcpc_rollouts(ctypes.sizeof(fcpc_rollouts), len(lengths))
    held = [np.ascontiguousarray(x, dtype) for x, dtype in ((lengths, "uint64"), (lists.first, "uint64"),
                                                              (lists.tokens, "int64"))]
    given.lengths, given.first, given.tokens = (x.ctypes.data for x in held)
    given.groups = None if groups is None else groups.ctypes.data
    given.least = least
    made, err = ctypes.c_void_p(), fcp_error()
    check(C["fcpc_forest_make"](ctypes.byref(given), ctypes.byref(made), ctypes.byref(err)), err)
    return made.value or 0


class Predictions(NamedTuple):
    """What `Forest.labels` gives, [n] each.

    rows     the rows that predict
    labels   the ids
    weights  how much each counts
    """
    rows: Any
    labels: Any
    weights: Any


class Forest(ReadOnly):
    """Trees of rollouts, as sequences of a batch. `fcpc.forest` makes it.

    A *row* is a token's place in the forest: trees end to end, each in depth-first order. *The caller's shape* is that
    of the rollouts' token ids: values of tokens come and go in it.

    trees           how many there are. They come in the order of their first rollouts
    lengths         tokens of each tree: the lengths of the batch
    rollouts        the number of each rollout in what the caller gave, rising: a tuple. A forest that is a part of
                    another one has some of them
    rollout_tokens  tokens of all rollouts together, each counted as if nothing were shared
    tokens          [rows] token ids, which the model gets
    at              [rows] the position of each token in its rollouts, from 0. Also the field of window masks
    last            [rows] the end of each token's subtree, counted from the first token of its tree: the field of masks
    parents         [rows] the row before it in its rollouts, whose logits predict it; -1: it is the first of its tree
    sharing         [rows] how many rollouts have it

    The last five are int64: tensors on the CPU if torch is loaded, else arrays. They share the forest's memory, so do
    not write to them. A forest goes to `Program.plan`, `Program.ahead` and `Program.micro_batches` like lengths, if the
    program's fields are named `last` and `at`:

        prog = fcpc.program("causal and q <= last[k]", fields=["last"])
        window = fcpc.program("causal and q <= last[k] and at[q] - at[k] < 512", fields=["last", "at"])
        plan = prog.plan(forest)

    Windows count positions of the rollout, so they read `at`; `q - k` would count tokens of other branches too.
    """
    trees: int
    lengths: list[int]
    rollouts: tuple[int, ...]
    rollout_tokens: int
    tokens: Any
    at: Any
    last: Any
    parents: Any
    sharing: Any
    _owner: _Owner
    _shape: Shape
    _before: Any
    _start: Any
    _all: Any
    _kept: dict[str, Any]
    _origin: Shape | None

    def __init__(self, handle: int, shape: Shape, before: Any) -> None:
        np, view, owner = numpy(), fcpc_forest_view(), _Owner(handle)
        C["fcpc_forest_look"](handle, ctypes.byref(view))

        def numbers(address: int, count: int, kind: Any = ctypes.c_int64) -> Any:
            made = (kind * count).from_address(address) if count else (kind * 0)()
            made.owner = owner
            return made
        self._put(trees=view.trees, rollout_tokens=view.rollout_tokens, _owner=owner, _shape=shape, _before=before,
                  _kept={}, _origin=None, lengths=list(numbers(view.lengths, view.trees, ctypes.c_uint64)),
                  rollouts=tuple(numbers(view.rollout, view.rollouts, ctypes.c_uint32)),
                  _start=np.array(numbers(view.start, view.rollouts + 1, ctypes.c_uint64), "int64"),
                  _all=array_of(numbers(view.rows, view.rollout_tokens), "numpy"))
        for name, address in (("tokens", view.token), ("at", view.position), ("last", view.last),
                              ("parents", view.parent), ("sharing", view.sharing)):
            self._put(**{name: array_of(numbers(address, view.tokens))})

    def __len__(self) -> int:
        """How many rows there are: tokens, each shared one once."""
        return sum(self.lengths)

    def __repr__(self) -> str:
        return (f"fcpc.Forest: {len(self.rollouts)} rollouts of {self.rollout_tokens} tokens, in {self.trees} trees of "
                f"{len(self)} tokens")

    # --- values of tokens ---------------------------------------------------------------------------------------------

    def pack(self, x: Any, reduce: str = "sum") -> Any:
        """Values of the rollouts' tokens, in the caller's shape, as values of rows: [rows, ...].

        x       a tensor or an array whose first dimensions are the caller's; or, of rollouts in a list, a list of them
        reduce  what becomes of the values of a token that several rollouts share: their "sum", so that a weight counts
                for all of them; their "mean"; or "same", where they must be equal, as ids and log-probabilities of an
                earlier model are

        A row that has no value, as those of prompts, is 0. What stands beside the tokens of a padded tensor is not
        looked at. "sum" is the transpose of `unpack`, and gradients flow through it and through "mean". Whole numbers
        and bools are added up as int64.

        Errors: E701 (another shape; "same" of values that differ, or that require a gradient, because it would have to
        be shared out among equals), E203 (there is no such `reduce`)
        """
        if reduce not in ("sum", "mean", "same"):
            raise Error("E203", f"pack: reduce is {reduce!r}, and \"sum\", \"mean\" or \"same\" is expected")
        values = self._values("pack", x)
        rows = self._index(self._value_rows(), values)
        if reduce == "same" and is_tensor(values) and values.requires_grad:
            raise Error("E701", "pack: \"same\" takes the values of one rollout, and these require a gradient: detach "
                                "them, or say \"mean\"")
        if reduce != "same":
            values = _wide_enough(values)
        if is_tensor(values):
            zeros = values.new_zeros(len(self), *values.shape[1:])
            made = zeros.index_copy(0, rows, values) if reduce == "same" else zeros.index_add(0, rows, values)
        else:
            np = numpy()
            made = np.zeros((len(self), *values.shape[1:]), values.dtype)
            if reduce == "same":
                made[rows] = values
            else:
                np.add.at(made, rows, values)
        if reduce == "same":
            differ = (made[rows] != values).reshape(len(values), -1).any(1)
            if differ.any():
                raise Error("E701", f"pack: {self._name(int(differ.nonzero()[0][0]))} has another value than a rollout "
                                    "that shares it")
        if reduce == "mean":
            count = self._counts().reshape(-1, *[1] * (values.ndim - 1)).clip(1)
            made = made / (sys.modules["torch"].as_tensor(count).to(made) if is_tensor(made) else count)
        return made

    def unpack(self, y: Any, before: bool = False) -> Any:
        """Values of rows, [rows, ...], as values of the rollouts' tokens in the caller's shape. Beside the tokens of a
        padded tensor there are zeros.

        before  each token gets the value of the row before it, which predicts it, such as an entropy or a critic's
                value; a rollout's first token gets 0

        Gradients flow through: the gradient of a shared row is the sum of those of its rollouts. On CUDA torch adds
        them in no fixed order, unless torch.use_deterministic_algorithms says so.

        Errors: E701 (other than a value for each row)
        """
        if not (is_tensor(y) or is_array(y)) or not len(y.shape) or len(y) != len(self):
            shape = list(y.shape) if hasattr(y, "shape") else kind_of(y)
            raise Error("E701", f"unpack: a tensor with a row for each of the {len(self)} tokens of the trees is "
                                f"expected, and this is {shape}")
        rows = self._value_rows()
        if before:
            rows = numpy().asarray(self.parents)[rows]
        return self._in_shape(taken(y, self._index(rows, y), 0, 0 if before else None))

    def select(self, x: Any) -> Any:
        """Of values of all rollouts that the caller gave to `fcpc.forest`, those of this forest's rollouts, in their
        shape: for the parts that `Program.micro_batches`, `cut` and `pick` make. x may also have one row for each
        rollout, as rewards have.

        Errors: E701 (x has fewer rollouts, or more)
        """
        if self._origin is None:
            return x
        kept, its = list(self.rollouts), self._origin
        if isinstance(x, (list, tuple)):
            if kept and kept[-1] >= len(x):
                raise Error("E701", f"select: there are {len(x)} elements, and rollout {kept[-1]} is asked for")
            if len(x) != len(its.lengths):
                raise Error("E701", f"select: there are {len(x)} elements, and {len(its.lengths)} rollouts")
            return [x[i] for i in kept]
        if its.kind == "flat" and len(x) == int(its.lengths.sum()) and len(x) != len(its.lengths):
            starts = (its.lengths.cumsum() - its.lengths)[kept]
            kept = ranges(starts, its.lengths[kept])
        elif len(x) != len(its.lengths):
            raise Error("E701", f"select: there are {len(x)} rows, and {len(its.lengths)} rollouts")
        return x[sys.modules["torch"].as_tensor(kept, device=x.device) if is_tensor(x) else kept]

    def labels(self, weights: Any = None) -> Predictions:
        """All predictions of the trees, each once: which rows predict which ids, and how much each counts.

        weights   values in the caller's shape, such as a mask; None: 1 for each token of a rollout

        A row whose rollouts go on differently predicts several ids. The cross entropy of all rollouts is the sum of
        weight * -log p(label | row).
        """
        np = numpy()
        if weights is None:
            weight = self._counts()
        else:
            weight = self.pack(weights)
        parents = np.asarray(self.parents)
        of = np.flatnonzero((parents >= 0) & (self._counts() > 0))
        tokens = np.asarray(self.tokens)
        if is_tensor(weight) or "torch" in sys.modules:
            torch = sys.modules["torch"]
            weight = torch.as_tensor(weight)
            return Predictions(torch.from_numpy(parents[of]), torch.from_numpy(tokens[of]),
                               weight[torch.from_numpy(of).to(weight.device)])
        return Predictions(parents[of], tokens[of], weight[of])

    # --- what the model says ------------------------------------------------------------------------------------------

    def everywhere(self, y: Any, plan: Plan | None = None, group: Any = None) -> Any:
        """Values in a plan's order, [own tokens, ...], as values of all rows, [rows, ...], on every rank of the group.

        plan   the forest's; None: y has them in the forest's order already
        group  the group of torch.distributed whose processes are the ranks; None: this process has all ranks

        All processes call this. Each then computes the whole loss, the same; the gradient of a row goes back to the
        rank that has it. So gradients of parameters are summed over ranks, as for a loss that is a sum over own tokens.

        Errors: E701 (other than a value for each own token), E203 (the plan is not the forest's), E706 (processes have
        other forests or plans)
        """
        from . import forest_loss
        return forest_loss.everywhere(self, y, plan, group)

    def logprobs(self, logits: Any, plan: Plan | None = None, group: Any = None, temperature: float = 1.0,
                 owner: bool = False) -> Any:
        """The log-probability of each token of each rollout, in the caller's shape: log p(token | what is before it).

        logits       [own tokens, vocabulary], in the plan's order
        plan         the forest's; None: logits are in the forest's order, [rows, vocabulary]
        group        as in `everywhere`: every rank gets all log-probabilities
        temperature  logits are divided by it
        owner        True: this process gets those alone that its own logits predict, end to end: [n]. `own` brings
                     advantages into the same order. A loss is then a sum over ranks, and no values are exchanged

        They are float32, or float64 if the logits are. A rollout's first token has none: 0; with prompts these are
        those of the answers. Gradients are exact: a token that is shared gets those of all its rollouts.

        Errors: as of `everywhere`; E203 (temperature)
        """
        from . import forest_loss
        return forest_loss.logprobs(self, logits, plan, group, temperature, owner)

    def entropy(self, logits: Any, plan: Plan | None = None, group: Any = None, temperature: float = 1.0,
                owner: bool = False) -> Any:
        """The entropy of the distribution that predicts each token, otherwise as `logprobs`: in nats."""
        from . import forest_loss
        return forest_loss.entropy(self, logits, plan, group, temperature, owner)

    def own(self, x: Any, plan: Plan | None = None) -> Any:
        """Of values in the caller's shape, those of the tokens that logits of this process predict, end to end, in the
        order of `logprobs(owner=True)`: [n, ...]. Each token of each rollout but first ones is predicted by one rank.
        """
        from . import forest_loss
        values = self._values("own", x)
        return values[self._index(forest_loss.own_values(self, plan), values)]

    # --- parts --------------------------------------------------------------------------------------------------------

    def cut(self, tokens: int) -> Forest:
        """The same rollouts in trees of at most so many tokens. A tree that is larger is cut at branches, and each part
        repeats the tokens before its branch; of all cuts into neighbouring rollouts this one repeats the fewest.

        Errors: E206 (a rollout alone has more tokens)
        """
        if not isinstance(tokens, int) or not 0 <= tokens < 1 << 62:
            raise Error("E206", f"cut: tokens is {tokens!r}, and a number of tokens is expected")
        return self._part("fcpc_forest_cut", ctypes.c_uint64(tokens))

    def pick(self, trees: Sequence[int]) -> Forest:
        """A forest of some of the trees, by their numbers, and of their rollouts.

        Errors: E203 (numbers that do not rise, or no such tree)
        """
        held = numbers_of(trees, "Q", "pick: trees")
        count = held.size if held else 0
        numbers = list((ctypes.c_uint64 * count).from_address(held.address)) if held and count else []
        if any(x >= self.trees for x in numbers) or any(a >= b for a, b in zip(numbers, numbers[1:])):
            raise Error("E203", f"pick: trees are rising numbers from 0 to {self.trees - 1}, and these are "
                                f"{shortly(numbers)}")
        return self._part("fcpc_forest_pick", (ctypes.c_uint32 * max(count, 1))(*numbers), count)

    def _part(self, function: str, *arguments: Any) -> Forest:
        made, err = ctypes.c_void_p(), fcp_error()
        check(C[function](self._owner.handle, *arguments, ctypes.byref(made), ctypes.byref(err)), err)
        return self._of(made.value or 0)

    def _of(self, handle: int) -> Forest:
        """The forest of a new handle, which has some of the rollouts."""
        np, part = numpy(), Forest(handle, self._shape, self._before)
        origin = self._shape if self._origin is None else self._origin
        kept = np.searchsorted(np.array(self.rollouts, "int64"), np.array(part.rollouts, "int64"))
        part._put(_shape=self._shape.of(kept), _before=None if self._before is None else self._before[kept],
                  _origin=origin)
        return part

    # --- inside -------------------------------------------------------------------------------------------------------

    def _value_rows(self) -> Any:
        """The row of each token that has a value, end to end: int64 array."""
        if self._before is None:
            return self._all
        if "rows" not in self._kept:
            self._kept["rows"] = self._all[ranges(self._start[:-1] + self._before, self._shape.lengths)]
        return self._kept["rows"]

    def _counts(self) -> Any:
        """How many values each row has."""
        if self._before is None:
            return numpy().asarray(self.sharing)
        if "counts" not in self._kept:
            self._kept["counts"] = numpy().bincount(self._value_rows(), minlength=len(self))
        return self._kept["counts"]

    def _identity(self) -> str:
        """What is the same in all processes that have made this forest."""
        if "identity" not in self._kept:
            np, made = numpy(), hashlib.sha256(repr((self.lengths, self.rollouts)).encode())
            for x in (self.tokens, self.parents, self._value_rows()):
                made.update(np.asarray(x).data)
            self._kept["identity"] = made.hexdigest()
        return str(self._kept["identity"])

    def _places(self) -> Any:
        """Shape.places, kept."""
        if "places" not in self._kept:
            self._kept["places"] = self._shape.places()
        return self._kept["places"]

    def _index(self, index: Any, like: Any) -> Any:
        """An index, for an array or a tensor. The two that all values need are kept on the device."""
        if is_array(like):
            return index
        made = sys.modules["torch"].from_numpy(index)
        if like.device == made.device or index is not self._value_rows() and index is not self._kept.get("places"):
            return made.to(like.device)
        key = f"{'rows' if index is self._value_rows() else 'places'} on {like.device}"
        if key not in self._kept:
            self._kept[key] = made.to(like.device)
        return self._kept[key]

    def _name(self, value: int) -> str:
        """Which token a value is of, for a message."""
        ends = self._shape.lengths.cumsum()
        i = int(numpy().searchsorted(ends, value, side="right"))
        return f"token {value - int(ends[i] - self._shape.lengths[i])} of rollout {self.rollouts[i]}"

    def _values(self, who: str, x: Any) -> Any:
        """Values in the caller's shape, end to end: [tokens of all rollouts, ...]."""
        shape = self._shape
        if shape.kind == "list":
            return self._of_list(who, x)
        dims = shape.dims
        if not (is_tensor(x) or is_array(x)) or tuple(x.shape[:len(dims)]) != dims:
            found = list(x.shape) if hasattr(x, "shape") else kind_of(x)
            raise Error("E701", f"{who}: a tensor of shape {list(dims)} is expected, as the rollouts have it, and this "
                                f"is {found}")
        if shape.kind == "flat":
            return x
        flat, places = x.reshape(dims[0] * dims[1], *x.shape[2:]), self._places()
        return flat if places is None else taken(flat, self._index(places, x), 0)

    def _of_list(self, who: str, x: Any) -> Any:
        lengths = self._shape.lengths
        if not isinstance(x, (list, tuple)) or len(x) != len(lengths):
            raise Error("E701", f"{who}: a list of {len(lengths)} tensors is expected, as the rollouts have it, and "
                                f"this is {kind_of(x) if not isinstance(x, (list, tuple)) else f'one of {len(x)}'}")
        parts = [part if is_tensor(part) or is_array(part) else self._converted(part) for part in x]
        for i, (part, length) in enumerate(zip(parts, lengths)):
            if not len(part.shape) or len(part) != length:
                raise Error("E701", f"{who}: rollout {self.rollouts[i]} has {length} tokens, and element {i} has the "
                                    f"shape {list(part.shape)}")
        if not parts:
            return array_of(())
        if any(is_tensor(part) for part in parts):
            torch = sys.modules["torch"]
            return torch.cat([torch.as_tensor(part) for part in parts])
        return numpy().concatenate(parts)

    def _converted(self, part: Any) -> Any:
        if "torch" in sys.modules:
            return sys.modules["torch"].tensor(part)
        return numpy().asarray(part)

    def _in_shape(self, values: Any) -> Any:
        """The inverse of `_values`."""
        shape, rest = self._shape, values.shape[1:]
        if shape.kind == "list":
            ends = shape.lengths.cumsum()
            return [values[end - length:end] for end, length in zip(ends.tolist(), shape.lengths.tolist())]
        if shape.kind == "flat":
            return values
        places, dims = self._places(), shape.dims
        if places is None:
            return values.reshape(*dims, *rest)
        if is_tensor(values):
            zeros = values.new_zeros(dims[0] * dims[1], *rest)
            return zeros.index_copy(0, self._index(places, values), values).reshape(*dims, *rest)
        made = numpy().zeros((dims[0] * dims[1], *rest), values.dtype)
        made[places] = values
        return made.reshape(*dims, *rest)


class MicroBatches(List[Forest]):
    """What `Program.micro_batches` makes of a forest: forests that are planned and run one after the other.

    repeated  how many tokens they have together beyond the forest: those before a branch at which a tree was cut are
              computed once for each of its parts
    seconds   what each is predicted to take, if its work is even over the ranks, in all layers: a list, falling unless
              the order was kept
    """

    def __init__(self, forests: Iterable[Forest], repeated: int, seconds: Sequence[float]) -> None:
        super().__init__(forests)
        self.repeated = repeated
        self.seconds = list(seconds)


class _Owner:
    """Owns a forest of C."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __del__(self) -> None:
        if C:
            C["fcpc_forest_free"](self.handle)


def _wide_enough(values: Any) -> Any:
    """Values in a type that holds sums of them: whole numbers and bools as int64."""
    if is_array(values):
        return values.astype("int64") if values.dtype.kind in "iub" else values
    return values if values.is_floating_point() or values.is_complex() else values.long()
