"""layers.py: what the layers of a model attend to. It is pickled with a program. So it is apart from hf.py: processes
that only plan need not load transformers."""
from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """The attention of a layer: the size of its window, or of its chunks; else None, and it sees all before it."""
    window: int | None = None
    chunk: int | None = None

    def text(self, forest: bool = False) -> str:
        """The mask in the language. In a forest of rollouts, windows and chunks count the positions of a rollout, the
        field `at`, and a key is seen in its subtree alone (fcpc.forest)."""
        if forest:
            near = "" if self.window is None else f" and at[q] - at[k] < {self.window}"
            chunk = "" if self.chunk is None else f" and at[q] / {self.chunk} == at[k] / {self.chunk}"
            return f"causal and q <= last[k]{near}{chunk}"
        if self.window is not None:
            return f"window(w = {self.window})"
        return "causal" if self.chunk is None else f"causal and q / {self.chunk} == k / {self.chunk}"

    def words(self) -> str:
        if self.window is not None:
            return f"attention in a window of {self.window}"
        return "full attention" if self.chunk is None else f"attention in chunks of {self.chunk}"


class Model(NamedTuple):
    """What `fcpc.hf.program` has read from a config. It is the program's `model`.

    name      the config's model_type
    kinds     what each of the program's masks is, in their order
    layers    for each layer of the model, from 0 on, the number of its mask; -1: it has no attention
    softcap   c of c * tanh(s / c), or None
    reach     the position from which on the rotation of a token (RoPE) depends on other tokens; None: it never does
    forest    its batches are forests of rollouts
    """
    name: str
    kinds: tuple[Kind, ...]
    layers: tuple[int, ...]
    softcap: float | None
    reach: int | None = None
    forest: bool = False
