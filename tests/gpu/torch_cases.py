"""torch_cases.py: what programs do with fcpc and PyTorch, as functions of a device. Each returns its results: outputs
and gradients, which are the same on every device, to rounding. torch_cuda.py runs them on a GPU."""
import contextlib
from types import SimpleNamespace

import torch

import fcpc
from fcpc.torch import Attention

HEADS, KV_HEADS, DIM, WORDS = 4, 2, 64, 50
SHAPES = {"scalar": (2,), "vector": (2, 8), "matrix": (2, 8, 8)}  # of decays
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Skip(Exception):
    """What a case needs is not there."""


class Drawn:
    """Random tensors. They are drawn on the CPU, so that they are the same for all devices."""

    def __init__(self, device, dtype=None):
        self.device, self.dtype = device, dtype or torch.bfloat16
        self.draw = torch.Generator().manual_seed(5)

    def __call__(self, *shape, dtype=None, grad=True):
        x = torch.randn(*shape, generator=self.draw).to(dtype or self.dtype)
        return x.to(self.device).requires_grad_(grad)

    def words(self, *shape):
        return torch.randint(WORDS, shape, generator=self.draw).to(self.device)


def program(mask="causal", ranks=4, **more):
    return fcpc.program(**{"mask": mask, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "bf16",
                           "cluster": fcpc.detect(ranks=ranks), **more})


def passes(device, prog, plan, dtype=None, shared=None, **more):
    """o and the gradients of q, k and v, in the order of the packed batch; and those of sinks and tables."""
    draw, n = Drawn(device, dtype), plan.global_tokens
    q, k, v = draw(n, plan.heads, plan.head_dim), draw(n, plan.kv_heads, plan.head_dim), \
        draw(n, plan.kv_heads, plan.value_dim)
    inputs = (q, k) if plan.values_in_keys else (q, k, v)
    shared = {} if shared is None else shared(draw)
    with Attention(prog, device=device) as attention:
        o = plan.restore(attention.bind(plan)(*(plan.take(x) for x in inputs), **shared, **more))
        o.backward(draw(*o.shape, grad=False))
    leaves = [x for y in shared.values() for x in (y.values() if isinstance(y, dict) else [y])]
    return [o, *(x.grad for x in inputs), *(x.grad for x in leaves)]


# --- attention --------------------------------------------------------------------------------------------------------

@case
def masks(device):
    made, document = [], torch.arange(1000) // 170
    for mask, more, fields in (("causal", {}, {}), ("window(w = 150)", {"strategy": "ring"}, {}),
                               ("lambda(sink = 16, window = 100)", {"ranks": 1}, {}),
                               ("causal and doc[q] == doc[k]", {"fields": ["doc"], "strategy": "dcp"},
                                {"doc": document}),
                               ("full", {"strategy": "ulysses", "ranks": 2}, {})):
        prog = program(mask, **more)
        made += passes(device, prog, prog.plan([1000], fields))
    prog = program()
    return made + passes(device, prog, prog.plan([700, 0, 1, 299]))


@case
def widths(device):
    """Head sizes, values of another width, values in the keys, and fp16."""
    made = []
    for more in ({"head_dim": 128}, {"head_dim": 192, "value_dim": 128}, {"head_dim": 72}, {"dtype": "fp16"},
                 {"head_dim": 96, "value_dim": 64, "kv_heads": 1, "values": "keys"}):
        prog = program(ranks=2, **more)
        dtype = torch.float16 if more.get("dtype") == "fp16" else torch.bfloat16
        made += passes(device, prog, prog.plan([300, 212]), dtype)
    return made


@case
def sinks_and_tables(device):
    prog = program(ranks=2, sink=0.0, score="s + slope[h] * (k - q) / 16.0", tables={"slope": [0.5] * HEADS})
    f32 = torch.float32
    return passes(device, prog, prog.plan([400, 100]), shared=lambda draw: {
        "sink": draw(HEADS, dtype=f32), "tables": {"slope": draw(HEADS, dtype=f32)}})


@case
def lse_and_largest_logits(device):
    prog = program(ranks=2, lse_gradient=True)
    plan, draw = prog.plan([300, 200]), Drawn(device)
    q, k, v = draw(500, HEADS, DIM), draw(500, KV_HEADS, DIM), draw(500, KV_HEADS, DIM)
    with Attention(prog, device=device) as attention:
        o, lse, most = attention.bind(plan)(*(plan.take(x) for x in (q, k, v)), return_lse=True, return_max=True)
        (plan.restore(o).float().sum() + plan.restore(lse).sin().sum()).backward()
    return [plan.restore(o), plan.restore(lse), most, q.grad, k.grad, v.grad]


def in_flight(device, **autocast):
    """Forward passes of three plans, then their backward passes in another order, with checkpoints."""
    from torch.utils.checkpoint import checkpoint
    prog, draw, made = program(ranks=2), Drawn(device), []
    dtype = torch.float32 if autocast else torch.bfloat16
    with Attention(prog, device=device) as attention:
        for lengths in ([100, 60], [333], [40, 0, 80]):
            plan = prog.plan(lengths)
            q, k, v = (draw(sum(lengths), h, DIM, dtype=dtype) for h in (HEADS, KV_HEADS, KV_HEADS))
            bound = attention.bind(plan)
            with torch.autocast(device, **autocast) if autocast else contextlib.nullcontext():
                o = checkpoint(bound, *(plan.take(x) for x in (q, k, v)), use_reentrant=False)
            made.append((plan.restore(o), (q, k, v)))
        for o, _ in made[1:] + made[:1]:
            o.float().square().sum().backward()
    return [x for o, leaves in made for x in (o, *(leaf.grad for leaf in leaves))]


@case
def batches_in_flight(device):
    return in_flight(device)


@case
def autocast(device):
    return in_flight(device, dtype=torch.float16)


@case
def phases(device):
    """Projections phase by phase (fcpc.upipe)."""
    from fcpc.upipe import PhasedAttention
    prog = program(strategy="upipe(heads = 2)", ranks=2)
    with PhasedAttention(prog, device=device) as attention:
        plan, draw = attention.program.plan([150, 50]), Drawn(device)
        x, wo = draw(200, 96), draw(96, HEADS * DIM)
        wq, wk, wv = (draw(h * DIM, 96) for h in (HEADS, KV_HEADS, KV_HEADS))
        scaled = [(w * 0.1).detach().requires_grad_() for w in (wq, wk, wv, wo)]
        y = plan.restore(attention.bind(plan)(plan.take(x), *scaled, on_q=lambda q, positions, heads: q * (
            1 + positions[:, None, None] % 3).to(q)))
        y.backward(draw(*y.shape, grad=False))
    return [y, x.grad, *(w.grad for w in scaled)]


@case
def layers_that_recur(device):
    prog = program(layers=["causal", fcpc.Halo(2, 1), *(fcpc.Scan(2, 8, 8, decay) for decay in SHAPES)], mask=None,
                   block=32)
    plan, made, draw = prog.plan([150, 90, 1]), [], Drawn(device)
    with Attention(prog, device=device) as attention:
        bound = attention.bind(plan)
        for dtype in (torch.float32, torch.bfloat16):
            x = draw(plan.tokens, 6, dtype=dtype)
            packed = bound.halo(x, 2, 1)
            packed.backward(draw(*packed.shape, dtype=dtype, grad=False))
            made += [packed, bound.trim(packed, 2, 1), x.grad]
        for shape in SHAPES.values():
            stretches = len(plan.stretches())
            decay = draw(stretches, *shape, dtype=torch.float32, grad=False).sigmoid().mul(0.3).requires_grad_()
            state = draw(stretches, 2, 8, 8, dtype=torch.float32)
            entering = bound.scan(decay, state)
            entering.backward(draw(*entering.shape, dtype=torch.float32, grad=False))
            made += [entering, decay.grad, state.grad]
    return made


# --- training ---------------------------------------------------------------------------------------------------------

def net(device):
    draw = Drawn("cpu", torch.float32)
    shapes = {"words": (WORDS, 32), "qkv": ((HEADS + 2 * KV_HEADS) * DIM, 32), "out": (WORDS, HEADS * DIM)}
    return {name: (draw(*shape, grad=False) * 0.2).to(device).requires_grad_() for name, shape in shapes.items()}


def logits_of(weights, tokens, positions, attention):
    x = weights["words"][tokens] + (positions[:, None] % 7) * 0.1
    qkv = (x @ weights["qkv"].t()).view(len(x), HEADS + 2 * KV_HEADS, DIM).to(torch.bfloat16)
    q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], 1)
    return attention(q, k, v).flatten(1).float() @ weights["out"].t()


@case
def training(device):
    """Plans made ahead, labels, positions."""
    prog = program("causal and doc[q] == doc[k]", fields=["doc"], documents="doc", ranks=2)
    weights, made, loader = net(device), [], []
    for i, lengths in enumerate(([120, 80], [64], [100, 30, 5])):
        draw = Drawn(device)
        draw.draw.manual_seed(i)
        tokens = draw.words(sum(lengths))
        doc = torch.arange(sum(lengths)).to(device) // 50
        loader.append(SimpleNamespace(lengths=lengths, tokens=tokens, doc=doc,
                                      labels=torch.where(tokens % 4 == 0, -100, tokens)))
    with Attention(prog, device=device) as attention:
        for batch, plan in prog.ahead(loader):
            logits = logits_of(weights, plan.take(batch.tokens), plan.positions(batch.tokens), attention.bind(plan))
            labels, count = plan.take_labels(batch.labels)
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum") / max(count, 1)
            loss.backward()
            made.append(loss)
    return made + [x.grad for x in weights.values()]


@case
def forests(device):
    """Rollouts that share their first tokens: log-probabilities, entropies, parts."""
    draw = torch.Generator().manual_seed(8)
    prompts = [torch.randint(WORDS, (n,), generator=draw) for n in (40, 25)]
    answers = [torch.randint(WORDS, (5 + i % 7,), generator=draw) for i in range(8)]
    padded = torch.zeros(8, 16, dtype=torch.int64)
    lengths = [len(x) for x in answers]
    for row, answer in zip(padded, answers):
        row[:len(answer)] = answer
    made = []
    prog, weights = program("causal and q <= last[k]", fields=["last"], ranks=2), net(device)
    advantages = torch.linspace(-1, 1, 8, device=device)
    forest = fcpc.forest(padded.to(device), prompts, lengths=torch.tensor(lengths).to(device), groups=[0] * 4 + [1] * 4)
    with Attention(prog, device=device) as attention:
        for part in [forest, *prog.micro_batches(forest, tokens=64)]:
            plan = prog.plan(part)
            tokens, at = (plan.take(torch.as_tensor(x).to(device)) for x in (part.tokens, part.at))
            logits = logits_of(weights, tokens, at, attention.bind(plan))
            logp, entropy = part.logprobs(logits, plan), part.entropy(logits, plan)
            mine = part.select(advantages)
            owned = part.logprobs(logits, plan, owner=True)
            weight = part.own(mine[:, None].expand(logp.shape), plan)
            loss = -(logp * mine[:, None]).sum() + 0.1 * entropy.sum() - 0.5 * (owned * weight).sum()
            loss.backward()
            packed = part.pack(torch.ones_like(logp))
            values = part.unpack(torch.arange(len(part), device=device).float())
            predictions = part.labels(mine[:, None].expand(logp.shape))
            rows, labels, times = (x.to(device) for x in predictions[:3])
            whole = plan.restore(logits.detach())
            made += [loss, logp, entropy, packed, values, times, whole[rows, labels]]
    return made + [x.grad for x in weights.values()]


def transformer(device, name, config):
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
        import fcpc.hf
    except ImportError as error:
        raise Skip(error) from None
    sizes = {"vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0}
    torch.manual_seed(3)
    try:
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **{**sizes, **config}),
                                                attn_implementation="fcpc")
    except (ValueError, KeyError) as error:  # this transformers does not have it yet
        raise Skip(error) from None
    with torch.no_grad():
        for p in made.parameters():
            if p.dim() > 1:
                p.mul_(4)
    return made.to(torch.bfloat16).to(device)


def program_of(model, **more):
    """The program of a model of transformers, if fcpc can replace what this version of it has."""
    try:
        return fcpc.hf.program(model, cluster=fcpc.detect(ranks=2), block=32, **more)
    except fcpc.Error as error:
        if error.code == "E702":
            raise Skip(error) from None
        raise


def train_transformer(device, name, config):
    model = transformer(device, name, config)
    prog = program_of(model)
    plan, draw = prog.plan([90, 38]), Drawn(device)
    tokens = draw.words(128)
    with Attention(prog, device=device) as attention:
        loss = model(**fcpc.hf.inputs(attention, plan, tokens, torch.where(tokens % 3 == 0, -100, tokens))).loss
        loss.backward()
    return [loss, *(p.grad for p in model.parameters() if p.grad is not None)]


@case
def transformers_windows(device):
    return train_transformer(device, "gemma2", {
        "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"], "attn_logit_softcapping": 20.0,
        "query_pre_attn_scalar": 16})


@case
def transformers_sinks(device):
    return train_transformer(device, "gpt_oss", {
        "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"], "num_local_experts": 2,
        "num_experts_per_tok": 1})


@case
def transformers_recur(device):
    return train_transformer(device, "qwen3_next", {
        "num_hidden_layers": 4, "layer_types": ["linear_attention"] * 3 + ["full_attention"], "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4})


@case
def transformers_forest(device):
    model = transformer(device, "qwen3", {})
    draw = torch.Generator().manual_seed(2)
    prompt = torch.randint(WORDS, (50,), generator=draw)
    forest = fcpc.forest([torch.cat([prompt, torch.randint(WORDS, (12,), generator=draw)]) for _ in range(4)])
    prog = program_of(model, forest=True)
    plan = prog.plan(forest)
    with Attention(prog, device=device) as attention:
        logits = model(**fcpc.hf.inputs(attention, plan, forest)).logits[0]
        found = forest.logprobs(logits, plan)
        sum((x * (1 + i)).sum() for i, x in enumerate(found)).backward()
    return [*found, *(p.grad for p in model.parameters() if p.grad is not None)]


@case
def audited(device):
    """The package's own audit of its attention."""
    from fcpc import audit
    prog = program(ranks=3, head_dim=16, dtype="bf16")
    plan = prog.plan([60, 37])
    rows = torch.tensor(list(plan.rows())).split(plan.rank_queries)
    with Attention(prog, device=device) as attention:
        bound = attention.bind(plan)

        def attend(qs, ks, vs):
            o = bound(*(torch.cat(list(x)) for x in (qs, ks, vs)))
            return list(o.split([len(x) for x in rows]))
        report = audit.check(attend, prog, [60, 37], rows=list(rows), ranks=3, dtype=torch.bfloat16, device=device)
    if not report.ok:
        raise AssertionError(report)
    return []


# --- masks and batches of others --------------------------------------------------------------------------------------

@case
def masks_of_others(device):
    """A BlockMask, FlashMask's rows and MagiAttention's ranges, whose tensors are on the device."""
    from torch.nn.attention.flex_attention import create_block_mask
    document, near, at = torch.arange(300, device=device) // 70, torch.tensor([40, 9, 300, 77], device=device), \
        torch.arange(300, device=device)

    def seen(b, h, q, k):
        return (q >= k) & (document[q] == document[k]) & (q - k < near[h])
    rows = torch.stack([(at + 5).clamp(max=300), torch.full_like(at, 300)], 1).int()[None, None]
    ranges = torch.tensor([[0, 100], [100, 300]], device=device)
    made = []
    for mask, more in ((fcpc.masks.from_block_mask(create_block_mask(seen, None, HEADS, 300, 300, device=device)), {}),
                       (fcpc.masks.from_startend_row_indices(rows, causal=True), {}),
                       (fcpc.masks.from_ranges(ranges, ranges, torch.tensor([1, 0], device=device)), {})):
        prog = program(mask, ranks=2, documents=None, **more)
        made += passes(device, prog, prog.plan(mask))
    return made


@case
def batches_of_others(device):
    """What collators make, and the package's audit of what ranks get."""
    from fcpc import audit
    draw = Drawn(device)
    tokens = draw.words(120)
    prog = program("causal and doc[q] == doc[k]", fields=["doc"], documents="doc", block=16)
    plan = prog.plan([70, 50], {"doc": torch.arange(120, device=device) // 40})
    labels, count = plan.take_labels(tokens)
    rank = {"tokens": plan.take(tokens), "labels": labels, "position_ids": plan.positions(tokens)}
    report = audit.batch(rank, plan, given=tokens)
    if not report.ok:
        raise AssertionError(report)
    return [*rank.values(), tokens.new_tensor(count)]


@case
def batches_of_a_trainer(device):
    try:
        from fcpc.trainer import collate, pack
    except (ImportError, fcpc.Error) as error:
        raise Skip(error) from None
    draw, made = Drawn("cpu"), []
    packed = collate([{"input_ids": draw.words(n).tolist(), "seq_lengths": [4, n - 4]} for n in (9, 30)])
    ids, there = draw.words(3, 12), torch.arange(12) < torch.tensor([[5], [12], [9]])
    filled = {"input_ids": ids, "attention_mask": there.int(), "labels": torch.where(there, ids, -100)}
    for batch in packed, filled:
        its = pack({name: x.to(device) for name, x in batch.items()})
        made += [its.tokens, its.labels, its.kept, its.tokens.new_tensor([*its.lengths, its.counted])]
    return made


@case
def batches_of_megatron(device):
    try:
        from fcpc import megatron
    except (ImportError, fcpc.Error) as error:
        raise Skip(error) from None
    draw = Drawn(device)
    tokens = draw.words(2, 60)
    batch = {"tokens": tokens, "labels": tokens.roll(-1, 1), "loss_mask": (tokens % 3 > 0).float()}
    prog = program("causal", ranks=2, block=16)
    with Attention(prog, device=device) as attention:
        its = megatron.get_batch_on_this_cp_rank(attention, prog.plan(megatron.lengths(batch)), batch)
        losses = draw(*its["tokens"].shape, dtype=torch.float32)
        total, report = megatron.loss_func(SimpleNamespace(calculate_per_token_loss=False), its, losses)
        total.backward()
    return [its["tokens"], its["labels"], its["loss_mask"], its["position_ids"], total, report["lm loss"], losses.grad]
