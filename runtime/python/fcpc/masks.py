"""masks.py: masks as other projects hold them: MagiAttention's ranges, FlashMask's row indices, FlexAttention's blocks.

    m = fcpc.masks.from_startend_row_indices(indices, causal=True)
    prog = fcpc.program(mask=m, heads=32, kv_heads=8)
    plan = prog.plan(m)
    for batch in batches:                                       # of the same kind
        plan = prog.plan(fcpc.masks.from_startend_row_indices(batch.indices, causal=True))
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .arrays import is_array, is_tensor
from .batches import Lengths, index_or_none, kind_of
from .errors import Error
from .trace import Field, trace
from .written import table_of


@dataclass(frozen=True)
class Mask:
    """A mask that another project describes, and the batch that the description is of. fcpc.program takes it as a mask,
    and `Program.plan` as a batch.

    text       the mask: in the language, or a function
    lengths    of the batch
    fields     {name: values} of the batch
    declared   {name: how the language declares it} of these fields
    constants  what of a program's text is constant: it serves another batch only if that has the same
    top_left   sequences have other numbers of queries than of keys, and the description counts both from 0. So the
               program needs align="top_left", which it has if this is its only mask
    """
    text: str | Callable[..., Any]
    lengths: Lengths
    fields: Mapping[str, Any] = field(default_factory=dict)
    declared: Mapping[str, str] = field(default_factory=dict)
    top_left: bool = False
    constants: tuple[str, ...] = field(default=(), repr=False)

    def is_of(self, source: str) -> bool:
        """Has a program with this text all constants of the mask?"""
        return all(f" = {said}\n" in source for said in self.constants)


def _tensor(x: Any) -> Any:
    """The numbers of a tensor on any device, as nested lists; of what is no tensor, as they are."""
    return x.tolist() if hasattr(x, "tolist") else x


# --- MagiAttention ----------------------------------------------------------------------------------------------------

# By number and by name, as MagiAttention's AttnMaskType has them, and as the language has them.
_KINDS = {"full": 0, "causal": 1, "inverse": 2, "inv_causal": 2, "both": 3, "bi_causal": 3}


def from_ranges(q_ranges: Any, k_ranges: Any, types: Any = 0, total_seqlen_q: int | None = None,
                total_seqlen_k: int | None = None) -> Mask:
    """The mask of MagiAttention's ranges: range i of queries sees range i of keys, as type i says.

    q_ranges, k_ranges   each a list of (start, end), a tensor [n, 2], or MagiAttention's AttnRanges
    types   one for each range, or one for all: 0 "full", 1 "causal" (aligned at the bottom right of the two ranges),
            2 "inv_causal" (at the top left), 3 "bi_causal" (both), or an AttnMaskType
    total_seqlen_q, total_seqlen_k   how many tokens there are; None: as many as the ranges reach

    The batch is one sequence, of all tokens. The ranges are constants of the mask. So another batch needs a program of
    its own, which takes milliseconds to make, and one `Attention` takes the plans of all of them. A pair in several
    ranges counts once, which the compiler warns of.

    Errors: E323 (a range ends before it begins, or reaches beyond the tokens), E202, E203 (other arguments)
    """
    q, k = _ranges("q_ranges", q_ranges), _ranges("k_ranges", k_ranges)
    if len(q) != len(k):
        raise Error("E203", f"from_ranges: there are {len(q)} q_ranges and {len(k)} k_ranges, and each has its like")
    types = _tensor(types)
    if not isinstance(types, Iterable) or isinstance(types, str):
        types = [types] * len(q)
    kinds = [_kind(i, x) for i, x in enumerate(types)]
    if len(kinds) != len(q):
        raise Error("E203", f"from_ranges: there are {len(q)} ranges and {len(kinds)} types")
    tokens = []
    for name, said, ranges in ("total_seqlen_q", total_seqlen_q, q), ("total_seqlen_k", total_seqlen_k, k):
        reach = max((end for _, end in ranges), default=0)
        if said is not None and index_or_none(said) is None:
            raise Error("E202", f"from_ranges: {name} is {kind_of(said)}, and a whole number is expected")
        if said is not None and said < reach:
            raise Error("E323", f"from_ranges: a range reaches to {reach}, and {name} is {said}")
        tokens.append(reach if said is None else int(said))
    if total_seqlen_q is None and total_seqlen_k is None:
        tokens = [max(tokens)] * 2  # self-attention, unless somebody says otherwise
    names = ("full", "causal", "inverse", "both")
    pieces = [f"[{a}, {b}, {c}, {d}, {names[kind]}]" for (a, b), (c, d), kind in zip(q, k, kinds) if a < b and c < d]
    other = tokens[0] != tokens[1]
    text = f"slices({', '.join(pieces)})" if pieces else "false"
    return Mask(text, Lengths([tokens[1]], [tokens[0]] if other else None), top_left=other, constants=(text,))


def _ranges(name: str, ranges: Any) -> list[tuple[int, int]]:
    ranges = ranges.to_naive_ranges() if hasattr(ranges, "to_naive_ranges") else _tensor(ranges)
    if isinstance(ranges, (str, bytes)) or not isinstance(ranges, Iterable):
        raise Error("E202", f"from_ranges: {name}: a list of (start, end) or a tensor [n, 2] is expected, and this is "
                            f"{kind_of(ranges)}")
    made = []
    for i, one in enumerate(ranges):
        pair = (one.start, one.end) if hasattr(one, "start") and hasattr(one, "end") else _tensor(one)
        bounds = [index_or_none(x) for x in pair] if isinstance(pair, Sequence) and len(pair) == 2 else [None]
        if None in bounds:
            raise Error("E202", f"from_ranges: {name}, element {i}: (start, end) is expected, this is {kind_of(one)}")
        if not 0 <= bounds[0] <= bounds[1]:  # type: ignore[operator] # None is not among them
            raise Error("E323", f"from_ranges: {name}, element {i}: {bounds[0]} to {bounds[1]} is no range of tokens")
        made.append((bounds[0], bounds[1]))
    return made  # type: ignore[return-value]


def _kind(i: int, said: Any) -> int:
    found = index_or_none(said)
    if found is None:
        name = getattr(said, "value", said)  # an AttnMaskType is an enum of names
        found = _KINDS.get(name.lower()) if isinstance(name, str) else index_or_none(name)
    if found not in range(4) or isinstance(said, bool):
        raise Error("E202", f"from_ranges: types, element {i}: 0 full, 1 causal, 2 inv_causal or 3 bi_causal, by "
                            f"number or by name, is expected, and this is {kind_of(said)}")
    assert found is not None
    return found


# --- FlashMask --------------------------------------------------------------------------------------------------------

# Of each form, (causal, columns): the names of its columns, and the mask. What startend_row_indices has for a key names
# rows, which are queries, that do not see this key: `lt` below the diagonal, `ut` above it, `s` where they start, `e`
# where they end.
_FORMS = {(True, 1): (("lts",), "q >= k and q < {lts}"),
          (True, 2): (("lts", "lte"), "q >= k and (q < {lts} or q >= {lte})"),
          (False, 2): (("lts", "ute"), "q < {lts} and q >= {ute}"),
          (False, 4): (("lts", "lte", "uts", "ute"), "(q < {lts} or q >= {lte}) and (q < {uts} or q >= {ute})")}


def from_startend_row_indices(startend_row_indices: Any, causal: bool = False, name: str = "") -> Mask:
    """The mask of FlashMask's startend_row_indices: for each key the rows (queries) that do not see it.

    startend_row_indices   [batch, heads, keys, columns], whole numbers; heads is 1, or the number of KV heads
    causal   True: no query sees keys behind it, and columns are 1 (start) or 2 (start, end) of the rows that are masked
             below the diagonal. False: columns are 2 (start of the rows below that are masked, to the last one; end of
             those above, from the first one) or 4 (start and end below, start and end above)
    name     fields are called lts, lte, uts and ute (lower or upper triangle, start or end), with this and _ before it.
             Masks of one program that have other values each need a name of their own

    The batch has `batch` sequences of `keys` tokens. The program is the same for all batches of one form; each brings
    its own `fields`.

    Errors: E202 (no whole numbers), E701 (the shape)
    """
    indices, shape = startend_row_indices, tuple(getattr(startend_row_indices, "shape", ()))
    if len(shape) != 4 or not (hasattr(indices, "tolist") or hasattr(indices, "numpy")):
        raise Error("E701", "from_startend_row_indices: a tensor [batch, heads, keys, columns] is expected, this is "
                            f"{f'of the shape {list(shape)}' if shape else kind_of(indices)}")
    if not is_tensor(indices) and not is_array(indices):
        indices = indices.numpy()  # a tensor of Paddle
    form = _FORMS.get((bool(causal), shape[3]))
    if form is None:
        other = "causal=False takes 2 or 4" if not causal else "causal=True takes 1 or 2"
        raise Error("E701", f"from_startend_row_indices: there are {shape[3]} columns, and {other}")
    if "float" in str(indices.dtype) or "bool" in str(indices.dtype):
        raise Error("E202", f"from_startend_row_indices: whole numbers are expected, and these are {indices.dtype}")
    columns, text = form
    names = [f"{name}_{x}" if name else x for x in columns]
    per_head = shape[1] > 1
    index = "h / (heads / kv_heads), k" if per_head else "k"
    values = {x: indices[..., i] if per_head else indices[:, 0, :, i] for i, x in enumerate(names)}
    text = text.format(**{x: f"{of}[{index}]" for x, of in zip(columns, names)})
    return Mask(text, Lengths([int(shape[2])] * int(shape[0])), values,
                dict.fromkeys(names, "given(over = kv_heads, keys)" if per_head else "given"), constants=(text,))


# --- FlexAttention ----------------------------------------------------------------------------------------------------

_NONE, _PARTIAL, _FULL = 0, 1, 2  # of a block: what its lists say


def from_block_mask(block_mask: Any, lists: bool = False, fields: Iterable[str] = (), name: str = "blocks") -> Mask:
    """The mask of a BlockMask of torch.nn.attention.flex_attention, and its batch.

    A BlockMask says twice who sees whom: by its function mask_mod, which is traced as fcpc.program does it, and by its
    lists of blocks, kv_indices and full_kv_indices. create_block_mask makes the lists from the function. They are
    compared in every pair, which takes as long as create_block_mask took:

    - If both say the same, the mask is the function.
    - If there is no function (BlockMask.from_kv_blocks without mask_mod), the mask is the lists: a field `name`, over
      heads if there are several, and over cells of queries and keys.
    - If they differ, that is an error (E203), because flex_attention computes one thing when it is compiled and another
      when it is not. `lists=True` is what it computes when it is compiled: blocks that are in no list are not seen, of
      those in kv_indices what the function allows, and those in full_kv_indices whole.

    lists      True: the lists are right, and are compared with nothing
    fields     names of captured tensors that are of the batch, such as document in document[q_idx], so that the program
               is the same for all batches. Tensors of several sequences, document[b, q_idx], are fields without that;
               others are tables, which are constants of the program
    name       the name of the field that has the lists

    The batch has Q_LEN queries and KV_LEN keys for each sequence of the BlockMask.

    Errors: E203 (no BlockMask, or one that contradicts itself), and those of fcpc.trace
    """
    for wanted in ("kv_num_blocks", "kv_indices", "mask_mod", "BLOCK_SIZE"):
        if not hasattr(block_mask, wanted):
            raise Error("E203", f"from_block_mask: a BlockMask is expected, and this is {kind_of(block_mask)}")
    function = block_mask.mask_mod
    only_lists = getattr(function, "__name__", "") == "noop_mask"
    q_len, kv_len = map(int, getattr(block_mask, "seq_lengths", block_mask.shape[-2:]))
    states = _states(block_mask, q_len, kv_len)
    text, own, values = function, [*fields], {}
    if only_lists or lists:
        text, values = _of_lists(block_mask, function, states, only_lists, name)
        own.append(name)
    else:
        _compare(block_mask, function, states, q_len, kv_len)
    traced = trace(text, "mask", own)
    sequences = states.shape[0]
    return Mask(text, Lengths([kv_len] * sequences, None if q_len == kv_len else [q_len] * sequences),
                {**traced.fields, **values}, {of: over.declared() for of, over in traced.over.items()}, q_len != kv_len,
                (traced.text, *(table_of(of, table) for of, table in traced.tables.items())))


def _states(block_mask: Any, q_len: int, kv_len: int) -> Any:
    """For each sequence, head, block of queries and block of keys: _NONE, _PARTIAL or _FULL."""
    torch = sys.modules["torch"]
    rows, columns = (-(-length // cell) for length, cell in zip((q_len, kv_len), block_mask.BLOCK_SIZE))
    made = torch.zeros((*block_mask.kv_indices.shape[:3], columns + 1), dtype=torch.int8)
    for state, count, indices in ((_PARTIAL, block_mask.kv_num_blocks, block_mask.kv_indices),
                                  (_FULL, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)):
        if count is not None:
            count, indices = count.cpu(), indices.cpu().long()
            listed = torch.arange(indices.shape[3]) < count[..., None]
            wrong = listed & ((indices < 0) | (indices >= columns))
            if wrong.any():
                raise Error("E203", f"from_block_mask: the lists name block {int(indices[wrong][0])} of keys, and "
                                    f"there are {columns}")
            made.scatter_(3, torch.where(listed, indices, columns), state)  # one column more takes what is not listed
    if made.shape[2] < rows:
        raise Error("E203", f"from_block_mask: {made.shape[2]} blocks of queries have lists, and there are {rows}")
    return made[:, :, :rows, :columns]


def _of_lists(block_mask: Any, function: Callable[..., Any], states: Any, only_lists: bool, name: str) -> Any:
    """The mask whose lists decide: (function, {name: values})."""
    (q_cell, k_cell), several = block_mask.BLOCK_SIZE, states.shape[1] > 1
    blocks: Any = Field(name)

    def mask(b: Any, h: Any, q: Any, k: Any) -> Any:
        at = (q // q_cell, k // k_cell)
        state = blocks[(b, h, *at) if several else (b, *at)]
        return state > _NONE if only_lists else (state == _FULL) | (state == _PARTIAL) & function(b, h, q, k)
    return mask, {name: states if several else states[:, 0]}


def _compare(block_mask: Any, function: Callable[..., Any], states: Any, q_len: int, kv_len: int) -> None:
    """Compares the lists with the function in every pair. Errors: E203"""
    torch = sys.modules["torch"]
    q_cell, k_cell = block_mask.BLOCK_SIZE
    device, keys = block_mask.kv_indices.device, torch.arange(kv_len, device=block_mask.kv_indices.device)
    every = function
    for dims in ((None, None, None, 0), (None, None, 0, None)):
        every = torch.vmap(every, in_dims=dims)
    last = -(-kv_len // k_cell) * k_cell - kv_len
    for b in range(states.shape[0]):
        for h in range(states.shape[1]):
            for row in range(states.shape[2]):
                queries = torch.arange(row * q_cell, min(q_len, (row + 1) * q_cell), device=device)
                if not len(queries):
                    continue
                allowed = every(torch.tensor(b, device=device), torch.tensor(h, device=device), queries, keys)
                counts = torch.nn.functional.pad(allowed.sum(0), (0, last)).view(-1, k_cell).sum(1).cpu()
                sizes = torch.full_like(counts, k_cell * len(queries))
                sizes[-1:] -= last * len(queries)
                said = states[b, h, row, :len(counts)]
                wrong = (said == _FULL) & (counts < sizes) | (said == _NONE) & (counts > 0)
                if wrong.any():
                    column = int(wrong.nonzero()[0, 0])
                    raise Error("E203", "from_block_mask: mask_mod and the lists of blocks contradict each other: of "
                                        f"sequence {b}, head {h}, block [{row}, {column}], queries {row * q_cell} to "
                                        f"{row * q_cell + len(queries) - 1} and keys from {column * k_cell} on, "
                                        f"mask_mod allows {int(counts[column])} of {int(sizes[column])} pairs, and it "
                                        f"is in {'no list' if said[column] == _NONE else 'full_kv_indices'}. Compiled, "
                                        "flex_attention follows the lists: lists=True does so")
