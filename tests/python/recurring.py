"""recurring.py: layers that recur, in plain PyTorch: as a loop over the tokens of a document, which is what they mean, and
as a user of fcpc computes them, stretch by stretch with the states and rows of other ranks.

A layer is a class with `draw`, which makes its inputs, and `run`, which computes neighbouring tokens: from the state that
enters, (outputs, the state that leaves). All inputs have one row for each token."""
import torch
import torch.nn.functional as F

import fcpc

HEADS, ROWS, COLUMNS, CHANNELS, CHUNK = 2, 4, 6, 5, 7


def outer(k, v):
    return k[..., :, None] * v[..., None, :]


class Linear:
    """h = a h + k v^T, y = q h, with a number a for each head and token: Mamba-2, gated linear attention. Without a
    state it is computed by chunks, as such layers are in practice."""
    decay = "scalar"

    @staticmethod
    def draw(tokens):
        q, k = (torch.randn(tokens, HEADS, ROWS, dtype=torch.float64) for _ in range(2))
        return {"q": q, "k": k, "v": torch.randn(tokens, HEADS, COLUMNS, dtype=torch.float64),
                "a": torch.rand(tokens, HEADS, dtype=torch.float64) * 0.6 + 0.4}

    @staticmethod
    def run(x, state):
        made = []
        for q, k, v, a in zip(*(x[name].split(CHUNK) for name in ("q", "k", "v", "a"))):
            near = a.log().cumsum(0)                                     # [tokens, heads]
            between = (near[:, None] - near).masked_fill(torch.ones(len(q), len(q)).triu(1).bool()[..., None], -torch.inf)
            inside = torch.einsum("thr,shr,tsh,shc->thc", q, k, between.exp(), v)
            made.append(inside + torch.einsum("thr,th,hrc->thc", q, near.exp(), state))
            state = near[-1].exp()[:, None, None] * state + torch.einsum("shr,sh,shc->hrc", k, (near[-1] - near).exp(), v)
        return torch.cat(made), state

    @staticmethod
    def decays(x):
        """A of neighbouring tokens."""
        return x["a"].prod(0)


class Gated(Linear):
    """h = diag(a) h + k v^T, with a number for each row of the state: GLA, and without the delta rule KDA."""
    decay = "vector"

    @staticmethod
    def draw(tokens):
        return {**Linear.draw(tokens), "a": torch.rand(tokens, HEADS, ROWS, dtype=torch.float64) * 0.6 + 0.4}

    @staticmethod
    def run(x, state):
        made = []
        for q, k, v, a in zip(*(x[name] for name in ("q", "k", "v", "a"))):
            state = a[..., None] * state + outer(k, v)
            made.append(torch.einsum("hr,hrc->hc", q, state))
        return torch.stack(made), state


class Delta(Linear):
    """h = a (I - beta k k^T) h + beta k v^T: the gated delta rule. A is the product of these matrices, and nobody has to
    write it: it is what the rule makes of the identity as a state when all values are zeros."""
    decay = "matrix"

    @staticmethod
    def draw(tokens):
        x = Linear.draw(tokens)
        return {**x, "k": F.normalize(x["k"], dim=-1), "beta": torch.rand(tokens, HEADS, dtype=torch.float64)}

    @staticmethod
    def run(x, state):
        made = []
        for q, k, v, a, beta in zip(*(x[name] for name in ("q", "k", "v", "a", "beta"))):
            state = a[..., None, None] * state
            read = torch.einsum("hr,hrc->hc", k, state)
            state = state + outer(k, beta[..., None] * (v - read))
            made.append(torch.einsum("hr,hrc->hc", q, state))
        return torch.stack(made), state

    @staticmethod
    def decays(x):
        one = torch.eye(ROWS, dtype=x["q"].dtype).expand(HEADS, ROWS, ROWS)
        return Delta.run({**x, "v": x["v"].new_zeros(len(x["v"]), HEADS, ROWS)}, one)[1]


class Convolution:
    """y = sum of w[i] x[t - before + i]."""

    def __init__(self, before, after):
        self.before, self.after = before, after

    def draw(self, tokens):
        wide = self.before + self.after + 1
        return {"x": torch.randn(tokens, CHANNELS, dtype=torch.float64),
                "w": torch.randn(CHANNELS, 1, wide, dtype=torch.float64)}

    def whole(self, x, documents):
        return torch.cat([F.conv1d(F.pad(part.t()[None], (self.before, self.after)), x["w"], groups=CHANNELS)[0].t()
                          for part in x["x"].split(documents)])

    def by_plan(self, x, attention, padded=False):
        packed = attention.halo(x["x"], self.before, self.after)
        wide = self.before + self.after
        y = F.conv1d(packed.t()[None], x["w"], groups=CHANNELS, padding=wide if padded else 0)
        return attention.trim(y[0, :, self.after:len(packed) + self.after].t() if padded else y[0].t(), self.before,
                              self.after)


LAYERS = {"linear": Linear, "gated": Gated, "delta": Delta}
KINDS = [fcpc.Scan(HEADS, ROWS, COLUMNS, layer.decay, reverse) for layer in LAYERS.values()
         for reverse in (False, True)] + [fcpc.Halo(3, 0, CHANNELS), fcpc.Halo(1, 2, CHANNELS), fcpc.Halo(0, 40)]


SHAPES = {"scalar": (HEADS,), "vector": (HEADS, ROWS), "matrix": (HEADS, ROWS, ROWS)}


def turned(x, reverse):
    return {name: value.flip(0) for name, value in x.items()} if reverse else x


def whole(layer, x, documents, reverse=False):
    """Each document by itself, from a state of zeros."""
    made = []
    for parts in zip(*(value.split(documents) for value in x.values())):
        state = x["q"].new_zeros(HEADS, ROWS, COLUMNS)
        y, _ = layer.run(turned(dict(zip(x, parts)), reverse), state)
        made.append(y.flip(0) if reverse else y)
    return torch.cat(made)


def stacked(parts, *shape):
    return torch.stack(parts) if parts else torch.zeros(0, *shape)


def by_plan(layer, x, attention, reverse=False):
    """The same of this process's tokens. Each stretch is computed twice: once for what it does to a state, and once more
    when the state that enters it is known."""
    lengths = [stretch.length for stretch in attention.plan.stretches()]
    parts = [turned(dict(zip(x, part)), reverse) for part in zip(*(value.split(lengths) for value in x.values()))]
    zeros = x["q"].new_zeros(HEADS, ROWS, COLUMNS)
    decay = stacked([layer.decays(part) for part in parts], *SHAPES[layer.decay])
    state = stacked([layer.run(part, zeros)[1] for part in parts], HEADS, ROWS, COLUMNS)
    entering = attention.scan(decay, state, reverse)
    made = [layer.run(part, one)[0] for part, one in zip(parts, entering)]
    # The last part is empty. Where a process has no tokens, the scan is part of its loss all the same.
    return torch.cat([*(y.flip(0) if reverse else y for y in made), entering.sum(2)[:0]])
