"""faulty.py: attention over several ranks, simulated in one process: right ones, and ones with a fault.

Each is a function of lists, the q, k and v of all ranks, that gives the list of all ranks' o, as `audit.check` takes it
without a group. `make(problem)` makes one for a batch. The faults are ours; each says what public bug it is like.
"""
import torch

import fcpc
from fcpc.torch import Attention


class Problem:
    """A batch and a mask of sequences, for a number of ranks.

    rows     for each rank, its tokens of the packed batch
    allowed  a function of (sequence and position of query, the same of key) that says who sees whom
    k_rows   the same of keys, where they are others than queries
    """
    def __init__(self, lengths, rows, mask, heads=4, kv_heads=2, dim=16, sink=None, cap=None, causal=True, queries=None,
                 k_rows=None, window=None, scale=None):
        queries = lengths if queries is None else queries
        self.heads, self.kv_heads, self.dim, self.sink, self.cap = heads, kv_heads, dim, sink, cap
        self.rows, self.k_rows, self.ranks = rows, rows if k_rows is None else k_rows, len(rows)
        self.mask, self.causal, self.window = mask, causal, window
        self.scale = dim ** -0.5 if scale is None else scale
        self.q_seq, self.q_at = places(queries, [k - q for q, k in zip(queries, lengths)])
        self.k_seq, self.k_at = places(lengths, [0] * len(lengths))

    def allowed(self, q, k):
        """bool [queries, keys] of tokens of the packed batch. A token -1, padding, sees nobody and is not seen."""
        q_seq, q_at, k_seq, k_at = self.q_seq[q][:, None], self.q_at[q][:, None], self.k_seq[k], self.k_at[k]
        return self.mask(q_seq, q_at, k_seq, k_at) & (q_seq == k_seq) & (q >= 0)[:, None] & (k >= 0)

    def logits(self, q, k, allowed, kv=None, scale=None):
        kv = torch.arange(self.heads) // (self.heads // self.kv_heads) if kv is None else kv
        s = torch.einsum("qhd,khd->hqk", q, k[:, kv]) * (self.scale if scale is None else scale)
        s = s if self.cap is None else self.cap * torch.tanh(s / self.cap)
        return s.masked_fill(~allowed, -torch.inf)

    def values(self, v, kv=None):
        return v[:, torch.arange(self.heads) // (self.heads // self.kv_heads) if kv is None else kv]

    def part(self, q, k, v, allowed, sink=None, **more):
        """o and LSE of some keys; sink [heads] is one more logit."""
        s = self.logits(q, k, allowed, **more)
        lse = s.logsumexp(-1)
        if sink is not None:
            lse = torch.logaddexp(lse, sink[:, None])
        safe = lse.masked_fill(lse == -torch.inf, 0)
        return torch.einsum("hqk,khd->qhd", (s - safe[..., None]).exp(), self.values(v, more.get("kv"))), lse.T

    def sinks(self):
        return None if self.sink is None else torch.full((self.heads,), self.sink)


def places(lengths, first):
    """The sequence and the position of each token; the last one is that of padding."""
    seq = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)] + [torch.tensor([-1])])
    at = torch.cat([torch.arange(n) + start for n, start in zip(lengths, first)] + [torch.tensor([0])])
    return seq, at


def merged(parts):
    """(o, LSE) of several parts of the keys as one."""
    o, lse = parts[0]
    for other, more in parts[1:]:
        both = torch.logaddexp(lse, more)
        safe = both.masked_fill(both == -torch.inf, 0)
        o = o * (lse - safe).exp()[..., None] + other * (more - safe).exp()[..., None]
        lse = both
    return o, lse


# --- right ones -------------------------------------------------------------------------------------------------------

def ring(p, allowed=None, merge=merged, sink_of=None, gives_lse=True, **more):
    """Keys go round; each step's part is merged by its LSE. The first step has the sink."""
    allowed = allowed or (lambda rank, of: p.allowed(p.rows[rank], p.k_rows[of]))

    def attention(q, k, v):
        made = []
        for rank in range(p.ranks):
            steps = [(rank - step) % p.ranks for step in range(p.ranks)]
            parts = [p.part(q[rank], k[of], v[of], allowed(rank, of),
                            p.sinks() if (sink_of or (lambda i: i == 0))(i) else None, **more)
                     for i, of in enumerate(steps)]
            o, lse = merge(parts)
            made.append((o, lse) if gives_lse else o)
        return made
    return attention


def gathered(p, allowed=None, **more):
    """Each rank has all keys. `allowed`: bool for (rank, tokens of all keys as ranks have them)."""
    keys = torch.cat(p.k_rows)
    allowed = allowed or (lambda rank: p.allowed(p.rows[rank], keys))
    return lambda q, k, v: [p.part(mine, torch.cat(k), torch.cat(v), allowed(rank), p.sinks(), **more)
                            for rank, mine in enumerate(q)]


def ulysses(p, allowed=None):
    """Each rank has some heads of all tokens, in the order of the packed batch."""
    def attention(q, k, v):
        q_rows, k_rows = torch.cat(p.rows), torch.cat(p.k_rows)
        q_real, k_real = q_rows >= 0, k_rows >= 0
        order, k_order = q_rows[q_real].argsort(), k_rows[k_real].argsort()
        tokens = q_rows[q_real][order], k_rows[k_real][k_order]
        whole = [torch.cat(x)[real][at] for x, real, at in ((q, q_real, order), (k, k_real, k_order),
                                                            (v, k_real, k_order))]
        kv = torch.arange(p.heads) // (p.heads // p.kv_heads)
        outs = []
        for head in range(p.heads):
            one = Problem.__new__(Problem)
            one.__dict__.update(p.__dict__, heads=1, kv_heads=1)
            outs.append(one.part(whole[0][:, head:head + 1], whole[1][:, kv[head]:kv[head] + 1],
                                 whole[2][:, kv[head]:kv[head] + 1], (allowed or p.allowed)(*tokens), one.sinks())[0])
        o = torch.cat(outs, 1)
        back = torch.zeros(len(q_rows), *o.shape[1:]).index_copy(0, q_real.nonzero()[:, 0][order], o)
        return list(back.split([len(x) for x in q]))
    return attention


def of_fcpc(program, lengths, p, fields=None, queries=None):
    """fcpc's own operator, all ranks in this process. close() ends it."""
    attention = Attention(program)
    plan = program.plan(lengths, fields, queries=queries)

    def run(q, k, v):
        q_rows, k_rows = torch.cat(p.rows), torch.cat(p.k_rows)
        q_at, k_at = (torch.zeros(int((r >= 0).sum()), dtype=torch.int64) for r in (q_rows, k_rows))
        for at, r in (q_at, q_rows), (k_at, k_rows):
            at[r[r >= 0]] = (r >= 0).nonzero()[:, 0]
        mine = plan.take(torch.cat(q)[q_at]), *(plan.take(torch.cat(x)[k_at], keys=True) for x in (k, v))
        o = plan.restore(attention.bind(plan)(*mine))
        back = torch.zeros(len(q_rows), *o.shape[1:]).index_copy(0, q_at, o)
        return list(back.split([len(x) for x in q]))
    run.close = attention.close
    return run


# --- faults -----------------------------------------------------------------------------------------------------------

def local_causal(p):
    """Each rank builds its causal mask from rows 0, 1, ... of its shard, and queries are compared with all keys.

    Whoever calls attention with is_causal=True and a shard of queries gets that.
    """
    k = torch.cat(p.k_rows)
    return gathered(p, lambda rank: (torch.arange(len(p.rows[rank]))[:, None] >= k) & (k >= 0))


def local_both(p):
    """A ring whose every step is causal, by rows of the two shards."""
    return ring(p, lambda rank, of: torch.arange(len(p.rows[rank]))[:, None] >= torch.arange(len(p.k_rows[of])))


def shifted(p):
    """A ring that masks the keys it holds as those that it will get next: the rank is off by one."""
    return ring(p, lambda rank, of: p.allowed(p.rows[rank], p.k_rows[(of + 1) % p.ranks]))


def no_documents(p):
    """Packed sequences see each other. Like trl#6843: under CP a hook puts plain causal in place of every mask."""
    def allowed(q, k):
        return p.mask(0 * q[:, None], q[:, None], 0 * k, k) & (q >= 0)[:, None] & (k >= 0)
    return ring(p, lambda rank, of: allowed(p.rows[rank], p.k_rows[of]))


def no_window(p):
    """The window is not handed to attention at all; the mask is causal. Like accelerate#4177, and prime-rl#2828, where
    a ring looks for the window under another name."""
    def allowed(q, k):
        return (p.q_at[q][:, None] >= p.k_at[k]) & (p.q_seq[q][:, None] == p.k_seq[k])
    return ring(p, lambda rank, of: allowed(p.rows[rank], p.k_rows[of]))


def window_lost_between(p):
    """A ring that gives the window to its first step alone. Like lm-engine#447, where a condition is turned round."""
    def allowed(rank, of):
        q, k = p.rows[rank], p.k_rows[of]
        plain = (p.q_at[q][:, None] >= p.k_at[k]) & (p.q_seq[q][:, None] == p.k_seq[k])
        return p.allowed(q, k) if rank == of else plain
    return ring(p, allowed)


def window_off_by_one(p):
    """FlashAttention's window_size=(w, 0) has w + 1 keys, another's has w."""
    def allowed(q, k):
        far = p.q_at[q][:, None] - p.k_at[k]
        return (far >= 0) & (far <= p.window) & (p.q_seq[q][:, None] == p.k_seq[k])
    return ring(p, lambda rank, of: allowed(p.rows[rank], p.k_rows[of]))


def only_own(p):
    """Ranks attend to their own keys: CP is configured, and attention does not know of it."""
    return ring(p, lambda rank, of: p.allowed(p.rows[rank], p.k_rows[of]) & (rank == of))


def zigzag_as_contiguous(p):
    """Rows are in zigzag order, and masks are made as if they were contiguous."""
    starts = torch.tensor([0, *[len(x) for x in p.rows]]).cumsum(0)
    at = [torch.arange(starts[r], starts[r + 1]) for r in range(p.ranks)]
    return ring(p, lambda rank, of: p.allowed(at[rank], at[of]))


def padding_seen(p):
    """Padding at the end of each shard is a key like any other."""
    def allowed(rank, of):
        return p.allowed(p.rows[rank], p.k_rows[of]) | (p.k_rows[of] < 0)
    return ring(p, allowed)


def heads_permuted(p):
    """Query head h reads KV head h % kv_heads: KV heads are repeated as a whole in place of one by one. Like
    vllm-omni#5716, where padding of heads changes which KV head is whose."""
    return ring(p, kv=torch.arange(p.heads) % p.kv_heads)


def not_merged(p):
    """Parts are summed without their LSE."""
    return ring(p, merge=lambda parts: (sum(o for o, _ in parts), merged(parts)[1]))


def sink_each_step(p):
    """Each step of a ring has the sink, so its weight is there once a rank."""
    return ring(p, sink_of=lambda step: True)


def sink_ignored(p):
    """The sink is not handed over. Like prime-rl#3397: **kwargs swallow it."""
    return ring(p, sink_of=lambda step: False)


def scale_of_padded(p):
    """Heads are filled up to 32 numbers, and the scale is that of 32."""
    return ring(p, scale=32 ** -0.5)


def top_left(p):
    """Causal is aligned at the first query and the first key, where keys are more."""
    first = torch.tensor([int(p.q_at[p.q_seq == s].min()) if (p.q_seq == s).any() else 0
                          for s in range(int(p.q_seq.max()) + 1)] + [0])

    def allowed(q, k):
        return (p.q_at[q][:, None] - first[p.q_seq[q]][:, None] >= p.k_at[k]) & (p.q_seq[q][:, None] == p.k_seq[k])
    return ring(p, lambda rank, of: allowed(p.rows[rank], p.k_rows[of]))


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, d):
        return d * ctx.factor, None


def gradients(p, of_q, of_kv):
    right = ring(p)
    return lambda q, k, v: right([_Times.apply(x, of_q) for x in q], [_Times.apply(x, of_kv) for x in k],
                                 [_Times.apply(x, of_kv) for x in v])


def counted_twice(p):
    """The gradient of gathered keys is summed by all-reduce where each rank had all of it already. Like
    DeepSpeed#5248: gradients that grow with the number of ranks."""
    return gradients(p, 1, p.ranks)


def averaged(p):
    """Gradients of keys are averaged over ranks, as data parallelism does. Like DeepSpeed#5555 and Megatron-LM#906:
    a factor of the number of ranks."""
    return gradients(p, 1, 1 / p.ranks)


def lost_between(p):
    """An all-gather without a backward pass: a key gets the gradient of its own rank's queries alone. Like
    Automodel#3157: a ring's backward pass never sees the keys that came round."""
    keys = torch.cat(p.k_rows)

    def attention(q, k, v):
        return [p.part(mine, *(torch.cat([x if r == rank else x.detach() for r, x in enumerate(every)])
                               for every in (k, v)), p.allowed(p.rows[rank], keys), p.sinks())
                for rank, mine in enumerate(q)]
    return attention


def lse_in_base_2(p):
    """LSE is given in base 2, as some kernels have it inside."""
    right = ring(p)
    return lambda q, k, v: [(o, lse / 0.6931471805599453) for o, lse in right(q, k, v)]
