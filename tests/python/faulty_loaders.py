"""faulty_loaders.py: what loaders hand each rank of a batch, right ones and ones with a fault.

Each is a function of a `Batch` that gives the list of what the ranks get, as `audit.batch` takes it without a group.
The faults are ours; each says what public bug it is like. Nothing here uses fcpc.
"""
import torch

IGNORE = -100


class Batch:
    """Documents that are packed end to end, and how many ranks divide them.

    tokens   int64 [n]
    own      each token's own label, or IGNORE: prompts have none
    lengths  of the documents
    """
    def __init__(self, lengths, ranks=4, tokens=None, prompts=0):
        self.lengths, self.ranks, count = lengths, ranks, sum(lengths)
        self.tokens = torch.arange(count) + 1000 if tokens is None else tokens
        self.positions = torch.cat([torch.arange(n) for n in lengths])
        self.doc = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        self.own = torch.where(self.positions < prompts, IGNORE, self.tokens)
        last = torch.cat([self.doc[1:] != self.doc[:-1], torch.tensor([True])])
        self.labels = torch.where(last, IGNORE, self.own.roll(-1))
        self.mask = (self.labels != IGNORE).float()
        self.cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)

    def whole(self, **more):
        return {"tokens": self.tokens, "shift_labels": self.labels, "position_ids": self.positions, **more}

    def parts(self, rows, **more):
        """What ranks get by a rule (tokens, ranks) -> the tokens of each rank. more: other values, [n]."""
        every = {"tokens": self.tokens, "position_ids": self.positions, "labels": self.labels, **more}
        return [{name: x[own] for name, x in every.items() if x is not None} for own in rows]


# --- ways to divide a batch -------------------------------------------------------------------------------------------

def contiguous(batch):
    return list(torch.arange(len(batch.tokens)).tensor_split(batch.ranks))


def zigzag(batch):
    """Of 2 * ranks chunks, rank r has chunks r and 2 * ranks - 1 - r: Megatron's, and torch's head-tail."""
    chunks = torch.arange(len(batch.tokens)).tensor_split(2 * batch.ranks)
    return [torch.cat([chunks[r], chunks[2 * batch.ranks - 1 - r]]) for r in range(batch.ranks)]


def each_zigzag(batch):
    """The same within each sequence: Transformer Engine's thd, and ring-flash-attention's zigzag varlen."""
    made = [[] for _ in range(batch.ranks)]
    for begin, end in zip(batch.cu_seqlens.tolist(), batch.cu_seqlens[1:].tolist()):
        side = (end - begin) // (2 * batch.ranks)
        for r in range(batch.ranks):
            for chunk in r, 2 * batch.ranks - 1 - r:
                made[r].append(torch.arange(begin + chunk * side, begin + (chunk + 1) * side))
    return [torch.cat(x) for x in made]


def each_contiguous(batch):
    """Each sequence in as many pieces as ranks: ring-flash-attention's varlen ring."""
    pieces = [x.tensor_split(batch.ranks) for x in torch.arange(len(batch.tokens)).split(batch.lengths)]
    return [torch.cat([x[r] for x in pieces]) for r in range(batch.ranks)]


def striped(batch):
    """Token i is on rank i % ranks: striped attention."""
    return [torch.arange(r, len(batch.tokens), batch.ranks) for r in range(batch.ranks)]


WAYS = {f.__name__: f for f in (contiguous, zigzag, each_zigzag, each_contiguous, striped)}


# --- faulty ones ------------------------------------------------------------------------------------------------------

def shifted_by_the_model(batch, way=contiguous):
    """Each rank's model shifts its own part (transformers#36607, of ALST)."""
    return batch.parts(way(batch), labels=batch.own)


def shifted_in_zigzag(batch):
    """The same where parts are zigzag, so a label comes from another place (bionemo-recipes#1449)."""
    return shifted_by_the_model(batch, zigzag)


def rolled_on_each_rank(batch):
    """Labels are rolled after ranks have selected their tokens (verl#4250)."""
    made = batch.parts(zigzag(batch), labels=batch.own)
    return [{**x, "labels": x["labels"].roll(-1)} for x in made]


def crossing_documents(batch):
    """Labels of the packed batch, so the last token of a document predicts the first of the next (bionemo-recipes#1449,
    ChatLearn#343)."""
    labels = batch.own.roll(-1)
    labels[-1] = IGNORE
    return batch.parts(contiguous(batch), labels=labels)


def not_shifted(batch):
    """Nobody shifts: shift_labels are the tokens themselves (accelerate#3782)."""
    return batch.parts(contiguous(batch), labels=batch.own)


def shifted_twice(batch):
    """The dataset shifts and the model does again (InternLM#318, ms-swift#9977)."""
    return batch.parts(contiguous(batch))


def labels_in_another_order(batch):
    """Tokens are zigzag and labels contiguous (slime#73)."""
    made, other = batch.parts(zigzag(batch)), batch.parts(contiguous(batch))
    return [{**x, "labels": y["labels"]} for x, y in zip(made, other)]


def labels_not_divided(batch):
    """Each rank has its tokens and all labels (ms-swift#6293)."""
    return [{**x, "labels": batch.labels} for x in batch.parts(zigzag(batch))]


def local_positions(batch):
    """Each rank counts its own rows, as a model does without position_ids (speculators#871)."""
    return [{**x, "position_ids": torch.arange(len(x["tokens"]))} for x in batch.parts(zigzag(batch))]


def packed_positions(batch):
    """Positions are overwritten by the places in the packed batch (NeMo Speech#12551)."""
    return batch.parts(contiguous(batch), position_ids=torch.arange(len(batch.tokens)))


def shifted_positions(batch):
    """Positions are shifted right with tokens (prime-rl#1525)."""
    return batch.parts(contiguous(batch), position_ids=(batch.positions - 1).clamp(min=0))


def positions_in_another_order(batch):
    """Tokens are zigzag, and positions those of a contiguous part."""
    made, other = batch.parts(zigzag(batch)), batch.parts(contiguous(batch))
    return [{**x, "position_ids": y["position_ids"]} for x, y in zip(made, other)]


def same_part(batch):
    """All ranks get one part, again and again (DeepSpeed#7484)."""
    return batch.parts(contiguous(batch)[1:2] * batch.ranks)


def whole_on_each(batch):
    """get_batch knows nothing of context parallelism (ChatLearn#189)."""
    return batch.parts([torch.arange(len(batch.tokens))] * batch.ranks)


def remainder_cut(batch):
    """Each sequence is cut to what ranks divide (TransformerEngine#1930)."""
    side = [n // (2 * batch.ranks) * 2 * batch.ranks for n in batch.lengths]
    rows = [[] for _ in range(batch.ranks)]
    for begin, count in zip(batch.cu_seqlens.tolist(), side):
        chunks = torch.arange(begin, begin + count).tensor_split(2 * batch.ranks)
        for r in range(batch.ranks):
            rows[r] += [chunks[r], chunks[2 * batch.ranks - 1 - r]]
    return batch.parts([torch.cat(x) for x in rows])


def another_batch(batch):
    """One rank's loader has another seed (axolotl#3920)."""
    made = batch.parts(contiguous(batch))
    made[2] = {**made[2], "tokens": made[2]["tokens"] + 5000, "labels": made[2]["labels"] + 5000}
    return made


def overlapping(batch):
    """Each part has a token more, for labels that are then not cut from it."""
    rows = contiguous(batch)
    return batch.parts([torch.cat([x, y[:1]]) for x, y in zip(rows, rows[1:])] + rows[-1:])


def mask_not_applied(batch):
    """All labels of documents count, those of prompts too."""
    labels = torch.where(batch.labels == IGNORE, batch.tokens.roll(-1), batch.labels)
    return batch.parts(zigzag(batch), labels=labels, loss_mask=torch.ones(len(batch.tokens)))


def mask_not_shifted(batch):
    """The mask is of the tokens, and labels of the tokens behind them."""
    labels = torch.where(batch.labels == IGNORE, batch.tokens.roll(-1), batch.labels)
    return batch.parts(zigzag(batch), labels=labels, loss_mask=batch.mask.roll(1))


def mask_in_another_order(batch):
    """The mask of a contiguous part, with tokens in zigzag (slime#73)."""
    labels = torch.where(batch.labels == IGNORE, batch.tokens.roll(-1), batch.labels)
    made, other = (batch.parts(way(batch), labels=labels, loss_mask=batch.mask) for way in (zigzag, contiguous))
    return [{**x, "loss_mask": y["loss_mask"]} for x, y in zip(made, other)]


def mean_of_means(batch):
    """Each rank divides by its own labels (Megatron-LM#7513 and #673, verl#6049)."""
    return [{**x, "num_items_in_batch": (x["labels"] != IGNORE).sum()} for x in batch.parts(contiguous(batch))]


def counted_before_the_shift(batch):
    """First labels of documents count, which no token predicts (transformers#46204)."""
    count = (batch.own != IGNORE).sum()
    return [{**x, "num_items_in_batch": count} for x in batch.parts(contiguous(batch))]


def cu_seqlens_of_local_positions(batch):
    """The first position of a rank's part is taken for an offset (prime-rl#2392)."""
    made = batch.parts(contiguous(batch))
    for x in made:
        first = torch.nonzero(x["position_ids"] == 0)[:, 0]
        begin = x["position_ids"][:1]
        x["cu_seqlens"] = torch.cat([begin, first[first > 0] + begin, begin + len(x["tokens"])])
    return made


def cu_seqlens_divided(batch):
    """Each tensor of the batch is divided, cu_seqlens too: Megatron-core's get_batch_on_this_cp_rank does so, where
    their number allows it."""
    parts = batch.cu_seqlens.chunk(batch.ranks)
    return [{**x, "cu_seqlens": parts[rank % len(parts)]} for rank, x in enumerate(batch.parts(zigzag(batch)))]


PAD = 7


def padding_counted(batch):
    """Rows are filled up, and the labels of padding count (prime-rl#674)."""
    made = batch.parts(zigzag(batch))
    for x in made:
        for name, fill in ("tokens", PAD), ("position_ids", 0), ("labels", PAD):
            x[name] = torch.cat([x[name], torch.full((2,), fill)])
    return made


def of_a_neighbour(batch):
    """Labels are those of the next rank: a ring is one step further."""
    made = batch.parts(contiguous(batch))
    return [{**x, "labels": y["labels"]} for x, y in zip(made, made[1:] + made[:1])]
