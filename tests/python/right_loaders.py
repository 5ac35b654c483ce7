"""right_loaders.py: random batches as right loaders hand them to ranks: by rules of other projects, by their own
functions where they run on a CPU, and by plans.

Each function gives (Batch, what ranks get, what audit.batch is told).
"""
from unittest import mock

import torch

import fcpc
import faulty_loaders as loaders
from faulty_loaders import IGNORE, PAD, Batch


def program_of(batch, **more):
    return fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", cluster=fcpc.detect(ranks=batch.ranks), **more)


class Rank:
    """What Megatron asks of a group."""

    def __init__(self, rank, ranks):
        self.number, self.ranks = rank, ranks

    def rank(self):
        return self.number

    def size(self):
        return self.ranks


def random_batch(drawn, multiple=1, least=1, same=False):
    """Documents of random lengths, tokens of a small or a large vocabulary, or all different, some with prompts."""
    ranks = drawn.choice([1, 2, 3, 4])
    lengths = [max(least, drawn.randint(0, 20)) * multiple * ranks for _ in range(drawn.randint(1, 4))]
    lengths = lengths[:1] * len(lengths) if same else lengths
    draw = torch.Generator().manual_seed(drawn.getrandbits(32))
    vocabulary = drawn.choice([4, 50, 1000, None])
    tokens = None if vocabulary is None else torch.randint(10, 10 + vocabulary, (sum(lengths),), generator=draw)
    return Batch(lengths, ranks, tokens, drawn.choice([0, 0, 1, 5]))


def given_of(drawn, batch):
    """The whole batch in one of the ways that audit.batch takes."""
    options = [batch.whole(), {"input_ids": batch.tokens[None], "labels": batch.own[None]},
               {"tokens": batch.tokens, "labels": batch.labels, "loss_mask": batch.mask}]
    if bool((batch.own == batch.tokens).all()):
        options += [batch.tokens, {"tokens": batch.tokens}]
    return drawn.choice(options)


def of_llama3(batch, rank):
    """cu_seqlens of a rank whose keys are gathered from the begin of its first document on: ring-flash-attention's
    llama3 rule, for a causal mask."""
    side, cuts = len(batch.tokens) // batch.ranks, batch.cu_seqlens
    begin, end = rank * side, (rank + 1) * side
    inside = cuts[(cuts > begin) & (cuts < end)]
    first = int(cuts[cuts <= begin].max()) if side else 0
    q, k = (torch.cat([torch.tensor([low]), inside, torch.tensor([end])]) for low in (begin, first))
    return {"cu_seqlens": None, "max_seqlen": None, "cu_seqlens_q": q - begin, "cu_seqlens_k": k - first,
            "max_seqlen_q": q.diff().max(), "max_seqlen_k": k.diff().max()}


def by_a_rule(drawn):
    """One of the rules of other projects, written in faulty_loaders.py from what they document."""
    way = drawn.choice(list(loaders.WAYS))
    batch = random_batch(drawn, 2 if "zigzag" in way else 1)
    more = {"labels": batch.labels, "loss_mask": drawn.choice([None, batch.mask])}
    count = {} if drawn.random() < 0.5 else {"num_items_in_batch": (batch.labels != IGNORE).sum()}
    made = [{**x, **count, "cu_seqlens": batch.cu_seqlens.int(), "max_seqlen": max(batch.lengths)}
            for x in batch.parts(loaders.WAYS[way](batch), **more)]
    if way == "contiguous" and drawn.random() < 0.5:
        made = [{**x, **of_llama3(batch, rank)} for rank, x in enumerate(made)]
    if more["loss_mask"] is not None and drawn.random() < 0.3:
        for x in made:
            x.pop("labels")
    rows = drawn.choice([None, loaders.WAYS[way](batch)])
    given = given_of(drawn, batch) if rows is None or drawn.random() < 0.7 else None
    return batch, made, {"given": given, "rows": rows}


def in_any_order(drawn):
    """Tokens in runs of random lengths, dealt out at random."""
    batch = random_batch(drawn)
    count = len(batch.tokens)
    cuts = sorted({0, count, *(drawn.randint(0, count) for _ in range(drawn.randint(0, 9)))})
    runs = [torch.arange(a, b) for a, b in zip(cuts, cuts[1:])]
    drawn.shuffle(runs)
    rows = [[torch.zeros(0, dtype=torch.int64)] for _ in range(batch.ranks)]
    for run in runs:
        drawn.choice(rows).append(run)
    rows = [torch.cat(x) for x in rows]
    if drawn.random() < 0.5:
        return batch, batch.parts(rows), {"given": given_of(drawn, batch), "rows": rows}
    return batch, batch.parts(rows), {"given": given_of(drawn, batch)}


def filled_up(drawn):
    """Each sequence is filled up to what ranks divide, then divided in zigzag: Transformer Engine's padded thd."""
    batch = random_batch(drawn)
    unit, rows = 2 * batch.ranks, [[] for _ in range(batch.ranks)]
    for begin, length in zip(batch.cu_seqlens.tolist(), batch.lengths):
        to = -(-length // unit) * unit
        own = torch.full((to,), -1)
        own[:length] = torch.arange(begin, begin + length)
        chunks = own.tensor_split(unit)
        for rank in range(batch.ranks):
            rows[rank] += [chunks[rank], chunks[unit - 1 - rank]]
    made = []
    for own in map(torch.cat, rows):
        real = own >= 0
        made.append({"tokens": torch.where(real, batch.tokens[own], PAD), "attention_mask": real.long(),
                     "labels": torch.where(real, batch.labels[own], IGNORE),
                     "position_ids": torch.where(real, batch.positions[own], 0)})
        if drawn.random() < 0.5:
            made[-1].pop("attention_mask")
        padded = [-(-n // unit) * unit for n in batch.lengths]
        made[-1].update(cu_seqlens_q=batch.cu_seqlens, cu_seqlens_q_padded=torch.tensor([0, *padded]).cumsum(0))
    return batch, made, {"given": given_of(drawn, batch), "pad": PAD}


def of_megatron(drawn):
    """Megatron-core's own get_batch_on_this_cp_rank, of rows [b, s] whose last label is the text behind them."""
    from megatron.core.utils import get_batch_on_this_cp_rank
    batch = random_batch(drawn, 2, same=True)
    rows, side = len(batch.lengths), batch.lengths[0]
    text = torch.randint(10, 60, (rows, side + 1), generator=torch.Generator().manual_seed(drawn.getrandbits(32)))
    whole = {"tokens": text[:, :-1], "labels": text[:, 1:], "position_ids": torch.arange(side).repeat(rows, 1),
             "loss_mask": (torch.rand(rows, side) < 0.8).float()}
    with mock.patch("torch.distributed.is_initialized", return_value=True):  # else it takes each group for one rank
        made = [get_batch_on_this_cp_rank(dict(whole), Rank(rank, batch.ranks)) for rank in range(batch.ranks)]
    return batch, made, {"given": whole, "lengths": None}


def of_torch(drawn):
    """The indices of torch's head-tail balancers, of the whole batch and of each document."""
    from torch.distributed.tensor.experimental._context_parallel import _load_balancer as torchs
    batch = random_batch(drawn, 2)
    make = drawn.choice([lambda: torchs._HeadTailLoadBalancer(len(batch.tokens), batch.ranks, "cpu"),
                         lambda: torchs._PerDocumentHeadTailLoadBalancer([batch.lengths], batch.ranks, "cpu")])
    order = make()._generate_indices()[0].long()
    return batch, batch.parts(order.chunk(batch.ranks)), {"given": given_of(drawn, batch)}


def of_a_plan(drawn):
    """What a plan gives: the ranks of one process, end to end. Documents are sequences, or a field."""
    batch = random_batch(drawn)
    if drawn.random() < 0.5:
        prog, lengths, fields = program_of(batch, block=8), batch.lengths, None
    else:
        prog, lengths, fields = program_of(batch, block=8, documents="doc"), [len(batch.tokens)], {"doc": batch.doc}
    plan = prog.plan(lengths, fields)
    labels, count = plan.take_labels(batch.own)
    made = {"tokens": plan.take(batch.tokens), "position_ids": plan.positions(), "labels": labels,
            "num_items_in_batch": count}
    given = drawn.choice([None, given_of(drawn, batch)])
    if drawn.random() < 0.5:
        return batch, made, {"program": plan, "given": given, "lengths": drawn.choice([None, lengths])}
    sizes = plan.rank_queries
    parts = {name: x.split(sizes) if x.shape == plan.take(batch.tokens).shape else [x] * len(sizes)
             for name, x in made.items() if name != "num_items_in_batch"}
    every = [{name: x[rank] for name, x in parts.items()} for rank in range(len(sizes))]
    return batch, every, {"program": prog, "rows": plan, "given": given, "lengths": lengths, "fields": fields}


def of_one_rank(drawn):
    """A model of transformers shifts its labels itself, which is right on one rank."""
    batch = random_batch(drawn)
    batch = Batch(batch.lengths, 1, batch.tokens, max(1, drawn.choice([0, 4])))
    made = {"input_ids": batch.tokens[None], "labels": batch.own[None], "position_ids": batch.positions[None]}
    return batch, made, {"given": {"input_ids": batch.tokens, "labels": batch.own}, "model_shifts": True}


RIGHT = {f.__name__: f for f in (by_a_rule, in_any_order, filled_up, of_megatron, of_torch, of_a_plan, of_one_rank)}
