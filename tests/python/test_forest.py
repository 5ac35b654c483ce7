"""test_forest.py: rollouts as forests (fcpc.forest). The judges are a trie of Python's dictionaries, and each rollout
by itself in float64."""
import copy
import random
import unittest

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F

import fcpc
from agent import four_ranks
from expecting import Expecting
from fcpc.torch import Attention

HEADS, KV_HEADS, DIM, WORDS, WINDOW = 4, 2, 8, 23, 9
MASK = "causal and q <= last[k]"
LAYERS = [MASK, f"{MASK} and at[q] - at[k] < {WINDOW}"]


def drawn(seed, rollouts=9, turns=(1, 4), tokens=(1, 12), words=WORDS):
    """Random rollouts. Each goes on from some first turns of an earlier one, or begins anew."""
    draw, made = random.Random(seed), []
    for _ in range(rollouts):
        before = draw.choice(made) if made and draw.random() < 0.8 else []
        kept = before[:draw.randint(0, len(before))]
        new = sum(draw.randint(*tokens) for _ in range(draw.randint(*turns)))
        made.append(kept + [draw.randrange(words) for _ in range(new)])
    return made


def nodes_of(rollouts, groups=None):
    """The nodes of a trie: {(group, tokens up to here): the numbers of the rollouts that have it}."""
    found = {}
    for i, rollout in enumerate(rollouts):
        for end in range(1, len(rollout) + 1):
            found.setdefault((groups[i] if groups else 0, *rollout[:end]), []).append(i)
    return found


def in_order(rollouts):
    """The nodes of a trie depth first, branches in the order of their first rollouts: [tokens up to here]."""
    nodes = nodes_of(rollouts)
    made = []

    def visit(node):
        if node[1:]:
            made.append(node[1:])
        below = [x for x in nodes if len(x) == len(node) + 1 and x[:len(node)] == node]
        for child in sorted(below, key=lambda x: nodes[x][0]):
            visit(child)
    visit((0,))
    return made


class Trees(Expecting):
    def test_against_a_trie(self):
        for seed in range(40):
            rollouts = drawn(seed, words=2 + seed % 5, tokens=(0, 4))
            forest, order, nodes = fcpc.forest(rollouts), in_order(rollouts), nodes_of(rollouts)
            self.assertEqual(forest.tokens.tolist(), [x[-1] for x in order])
            self.assertEqual(forest.at.tolist(), [len(x) - 1 for x in order])
            self.assertEqual(forest.parents.tolist(), [order.index(x[:-1]) if x[:-1] else -1 for x in order])
            self.assertEqual(forest.sharing.tolist(), [len(nodes[0, *x]) for x in order])
            roots = [i for i, x in enumerate(order) if len(x) == 1] + [len(order)]
            self.assertEqual(forest.lengths, [b - a for a, b in zip(roots, roots[1:])])
            for i, x in enumerate(order):
                inside = [j for j, y in enumerate(order) if y[:len(x)] == x]
                root = max(r for r in roots if r <= i)
                self.assertEqual(int(forest.last[i]), max(inside) - root)
            self.assertEqual((len(forest), forest.trees), (len(order), len(roots) - 1))
            self.assertEqual(forest.rollout_tokens, sum(map(len, rollouts)))
            for rollout, back in zip(rollouts, forest.unpack(forest.tokens)):
                self.assertEqual(back.tolist(), rollout)

    def test_groups(self):
        """Rollouts of different groups share nothing."""
        for seed in range(20):
            rollouts, draw = drawn(seed, words=3), random.Random(seed)
            groups = [draw.randrange(-2, 3) for _ in rollouts]
            self.assertEqual(len(fcpc.forest(rollouts, groups=groups)), len(nodes_of(rollouts, groups)))
        self.assertEqual(fcpc.forest([[1, 2], [1, 3]], groups=[0, 1]).lengths, [2, 2])

    def test_least(self):
        """No stretch that rollouts share is shorter than `least`, and each rollout is whole."""
        for seed in range(30):
            rollouts = drawn(seed, words=3)
            for least in (2, 3, 7, 10 ** 6):
                forest = fcpc.forest(rollouts, least=least)
                for rollout, back in zip(rollouts, forest.unpack(forest.tokens)):
                    self.assertEqual(back.tolist(), rollout)
                sharing, parents = forest.sharing.tolist(), forest.parents.tolist()
                children = {}
                for row, parent in enumerate(parents):
                    children.setdefault(parent, []).append(row)
                for row in range(len(forest)):  # begins a stretch?
                    if sharing[row] == 1 or parents[row] >= 0 and sharing[parents[row]] == sharing[row]:
                        continue
                    length, end = 1, row
                    while len(children.get(end, [])) == 1 and sharing[children[end][0]] == sharing[row]:
                        end, length = children[end][0], length + 1
                    self.assertGreaterEqual(length, least)
        self.assertEqual(len(fcpc.forest([[1, 2, 3], [1, 2, 4]], least=3)), 6)
        self.assertEqual(len(fcpc.forest([[1, 2, 3], [1, 2, 4]], least=2)), 4)

    def test_forms(self):
        """Lists, padded tensors, flat ones, arrays: the same trees, and values in the same form."""
        rollouts = drawn(3)
        want = fcpc.forest(rollouts)
        lengths, width = [len(x) for x in rollouts], max(map(len, rollouts)) + 2
        padded = torch.full((len(rollouts), width), -7)
        left, mask = padded.clone(), torch.zeros(len(rollouts), width, dtype=torch.int64)
        for i, x in enumerate(rollouts):
            padded[i, :len(x)] = torch.tensor(x)
            left[i, width - len(x):] = torch.tensor(x)
            mask[i, width - len(x):] = 1
        flat, cu = torch.cat([torch.tensor(x) for x in rollouts]), [0, *numpy.cumsum(lengths).tolist()]
        forms = {"arrays": fcpc.forest([numpy.array(x, "int32") for x in rollouts]),
                 "tensors": fcpc.forest([torch.tensor(x) for x in rollouts]),
                 "padded": fcpc.forest(padded, lengths=lengths),
                 "an array": fcpc.forest(padded.numpy(), lengths=lengths),
                 "32 bits": fcpc.forest(padded.int(), lengths=torch.tensor(lengths)),
                 "strided": fcpc.forest(padded.repeat(1, 2).t().contiguous().t()[:, :width], lengths=lengths),
                 "left": fcpc.forest(left, mask=mask), "bools": fcpc.forest(left, mask=mask.bool()),
                 "flat": fcpc.forest(flat, cu_seqlens=cu), "a flat array": fcpc.forest(flat.numpy(), cu_seqlens=cu)}
        for name, forest in forms.items():
            for what in ("tokens", "at", "last", "parents", "sharing"):
                self.assertTrue(torch.equal(getattr(forest, what), getattr(want, what)), (name, what))
        self.assertTrue(torch.equal(forms["padded"].unpack(want.tokens), padded.clamp(min=0)))
        self.assertTrue(torch.equal(forms["left"].unpack(want.tokens), left.clamp(min=0)))
        self.assertTrue(torch.equal(forms["flat"].unpack(want.tokens), flat))

    def test_prompts(self):
        """Answers behind their prompts: values are those of answers."""
        prompts, answers = [[1, 2, 3], [4]], [[5, 6], [5, 7], [], [8]]
        want = fcpc.forest([[1, 2, 3, 5, 6], [1, 2, 3, 5, 7], [4], [4, 8]], groups=[0, 0, 1, 1])
        each = fcpc.forest(answers, [prompts[0], prompts[0], prompts[1], prompts[1]])
        by_group = fcpc.forest(answers, prompts, groups=[3, 3, 5, 5])
        padded = fcpc.forest(torch.tensor([[5, 6], [5, 7], [0, 0], [8, 0]]), torch.tensor([[1, 2, 3], [0, 0, 4]]),
                             lengths=[2, 2, 0, 1], prompt_mask=torch.tensor([[1, 1, 1], [0, 0, 1]]),
                             groups=[3, 3, 5, 5])
        for forest in (each, by_group, padded):
            self.assertTrue(torch.equal(forest.tokens, want.tokens))
            self.assertTrue(torch.equal(forest.sharing, want.sharing))
        self.assertEqual([x.tolist() for x in each.unpack(each.tokens)], answers)
        self.assertEqual(padded.unpack(padded.tokens).tolist(), [[5, 6], [5, 7], [0, 0], [8, 0]])
        self.assertEqual(padded.pack(torch.ones(4, 2)).tolist(), [0, 0, 0, 2, 1, 1, 0, 1])  # prompts count for nothing
        self.assertEqual(padded.labels().weights.tolist(), [2, 1, 1, 1])
        self.assertEqual(padded.labels().labels.tolist(), [5, 6, 7, 8])
        self.assertEqual(padded.labels().rows.tolist(), [2, 3, 3, 6])

    def test_small(self):
        self.assertEqual(fcpc.forest([]).lengths, [])
        self.assertEqual(fcpc.forest([[], []]).rollouts, (0, 1))
        one = fcpc.forest([[9], [9], [9]])
        self.assertEqual((one.tokens.tolist(), one.sharing.tolist(), one.parents.tolist()), ([9], [3], [-1]))
        self.assertEqual([x.tolist() for x in one.logprobs(torch.zeros(1, 10))], [[0], [0], [0]])
        self.assertIn("3 rollouts of 3 tokens, in 1 trees of 1 tokens", repr(one))

    def test_parts(self):
        for seed in range(20):
            rollouts = drawn(seed, words=3)
            forest = fcpc.forest(rollouts)
            cap = max(map(len, rollouts)) + seed % 7
            cut = forest.cut(cap)
            self.assertLessEqual(max(cut.lengths), cap)
            self.assertEqual([x.tolist() for x in cut.unpack(cut.tokens)], rollouts)
            if max(forest.lengths) <= cap:
                self.assertEqual(cut.lengths, forest.lengths)
            seen = []
            for tree in range(cut.trees):
                part = cut.pick([tree])
                self.assertEqual(part.lengths, [cut.lengths[tree]])
                self.assertEqual([x.tolist() for x in part.unpack(part.tokens)], part.select(rollouts))
                self.assertEqual([x.tolist() for x in part.pick([0]).unpack(part.tokens)], part.select(rollouts))
                seen += part.rollouts
            self.assertEqual(sorted(seen), [i for i, x in enumerate(rollouts) if x])

    def test_select(self):
        padded, rewards = torch.arange(12).view(3, 4), torch.tensor([1.0, 2.0, 3.0])
        part = fcpc.forest(padded, lengths=[4, 2, 3]).pick([0, 2])
        self.assertTrue(torch.equal(part.select(padded), padded[[0, 2]]))
        self.assertTrue(torch.equal(part.select(rewards), rewards[[0, 2]]))
        self.assertEqual(part.select(["a", "b", "c"]), ["a", "c"])
        flat = fcpc.forest(torch.arange(9), cu_seqlens=[0, 4, 6, 9]).pick([0, 2])
        self.assertEqual(flat.select(torch.arange(9)).tolist(), [0, 1, 2, 3, 6, 7, 8])
        self.assertEqual(flat.unpack(flat.tokens).tolist(), [0, 1, 2, 3, 6, 7, 8])
        self.expect("E701", lambda: part.select(torch.zeros(2, 4)), "2 rows", "3 rollouts")
        self.expect("E701", lambda: part.select([1, 2]), "rollout 2")
        self.expect("E701", lambda: part.select([1, 2, 3, 4]), "4 elements", "3 rollouts")

    def test_errors(self):
        some = torch.zeros(2, 3, dtype=torch.int64)
        for code, call, *words in (
                ("E202", lambda: fcpc.forest(5), "lists of token ids"),
                ("E202", lambda: fcpc.forest(["hello"]), "tokenize"),
                ("E202", lambda: fcpc.forest([[1.5]]), "1.5"),
                ("E202", lambda: fcpc.forest([some]), "element 0", "[2, 3]"),
                ("E202", lambda: fcpc.forest(some.float(), lengths=[1, 2]), "float32"),
                ("E202", lambda: fcpc.forest(some[None], lengths=[1]), "[1, 2, 3]"),
                ("E206", lambda: fcpc.forest([[1 << 64]]), "rollouts, element 0"),
                ("E206", lambda: fcpc.forest([[1]], least=-1), "least"),
                ("E300", lambda: fcpc.forest(some), "lengths", "mask"),
                ("E300", lambda: fcpc.forest(some[0]), "cu_seqlens"),
                ("E300", lambda: fcpc.forest([[1]], lengths=[1]), "lengths is of a tensor"),
                ("E300", lambda: fcpc.forest(some, lengths=[1]), "1 numbers", "2 rollouts"),
                ("E206", lambda: fcpc.forest(some, lengths=[1, -1]), "-1"),
                ("E300", lambda: fcpc.forest(some, lengths=[1, 4]), "row 1", "4 tokens", "3 wide"),
                ("E300", lambda: fcpc.forest(some, lengths=[1, 2], mask=some), "one of them"),
                ("E300", lambda: fcpc.forest(some, mask=torch.tensor([[1, 0, 1], [0, 0, 0]])), "gap in row 0"),
                ("E300", lambda: fcpc.forest(some, mask=some[:1]), "[1, 3]"),
                ("E202", lambda: fcpc.forest(some, mask=some + 2), "1 for each token"),
                ("E300", lambda: fcpc.forest(some[0], cu_seqlens=[0, 2]), "ends with 2", "3 tokens"),
                ("E300", lambda: fcpc.forest([[1]], groups=[1, 2]), "groups has 2"),
                ("E300", lambda: fcpc.forest([[1]], prompts=[[1], [2]]), "2 prompts", "1 rollouts"),
                ("E300", lambda: fcpc.forest([[1], [2]], prompts=[[1], [2]], groups=[5, 4]), "do not rise"),
                ("E300", lambda: fcpc.forest([[1]], prompt_lengths=[1]), "no prompts")):
            self.expect(code, call, *words)
        forest = fcpc.forest(some, lengths=[3, 3])
        for code, call, *words in (
                ("E701", lambda: forest.pack(torch.zeros(2, 4)), "[2, 3]", "[2, 4]"),
                ("E701", lambda: forest.pack([1, 2]), "[2, 3]"),
                ("E203", lambda: forest.pack(torch.zeros(2, 3), reduce="max"), "max"),
                ("E701", lambda: forest.pack(torch.tensor([[0, 0, 0], [0, 1, 0]]), "same"), "token 1", "rollout"),
                ("E701", lambda: forest.pack(torch.zeros(2, 3, requires_grad=True), "same"), "detach"),
                ("E701", lambda: forest.unpack(torch.zeros(4)), "3 tokens", "[4]"),
                ("E701", lambda: fcpc.forest([[1, 2]]).pack([torch.zeros(3)]), "rollout 0", "2 tokens", "[3]"),
                ("E701", lambda: fcpc.forest([[1, 2]]).pack([]), "a list of 1"),
                ("E206", lambda: forest.cut(2), "rollout 0", "3 tokens"),
                ("E203", lambda: forest.pick([1]), "0 to 0"),
                ("E701", lambda: forest.logprobs(torch.zeros(2, 5)), "[3, vocabulary]"),
                ("E701", lambda: forest.logprobs(torch.zeros(3, 5).long()), "int64"),
                ("E203", lambda: forest.logprobs(torch.zeros(3, 5), temperature=0), "temperature"),
                ("E701", lambda: fcpc.forest([[1, 7]]).logprobs(torch.zeros(2, 5)), "7 to 7", "5 ids"),
                ("E203", lambda: forest.logprobs(torch.zeros(3, 5), group="mpi"), "plan")):
            self.expect(code, call, *words)
        prog = fcpc.program("causal", cluster=fcpc.Cluster(1, 1, "cpu"))
        for call in (prog.plan, prog.micro_batches, lambda forest: list(prog.ahead([forest]))):
            self.expect("E203", lambda: call(forest), "no mask", "last")
        self.expect("E203", lambda: forest.logprobs(torch.zeros(5, 5), prog.plan([5])), "5 tokens", "with 3")
        with self.assertRaises(AttributeError):
            forest.tokens = 3


class Values(unittest.TestCase):
    def test_transposes(self):
        """<pack(x), y> = <x, unpack(y)>, in all forms, and gradients are differences."""
        for seed in range(10):
            rollouts = drawn(seed, words=3)
            forest = fcpc.forest(rollouts)
            x = [torch.randn(len(r), 2, dtype=torch.float64) for r in rollouts]
            y = torch.randn(len(forest), 2, dtype=torch.float64)
            left, right = (forest.pack(x) * y).sum(), sum((a * b).sum() for a, b in zip(x, forest.unpack(y)))
            self.assertAlmostEqual(left.item(), right.item(), places=9)
        lengths = [len(r) for r in rollouts]
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rollouts], True)
        padded = fcpc.forest(padded, lengths=lengths)
        x = torch.randn(len(lengths), max(lengths), dtype=torch.float64, requires_grad=True)
        y = torch.randn(len(padded), dtype=torch.float64, requires_grad=True)
        for reduce in ("sum", "mean"):
            self.assertTrue(torch.autograd.gradcheck(lambda x: padded.pack(x, reduce), x))
        for before in (False, True):
            self.assertTrue(torch.autograd.gradcheck(lambda y: padded.unpack(y, before), y))

    def test_reduce(self):
        forest = fcpc.forest([[1, 2], [1, 3], [4]])
        x = [[1.0, 2.0], [3.0, 4.0], [5.0]]
        self.assertEqual(forest.pack(x).tolist(), [4, 2, 4, 5])
        self.assertEqual(forest.pack(x, "mean").tolist(), [2, 2, 4, 5])
        self.assertEqual(forest.pack([[1.0, 2.0], [1.0, 4.0], [5.0]], "same").tolist(), [1, 2, 4, 5])
        for part in (torch.tensor, numpy.array):  # a bool, or a small number, counts for all who share it
            self.assertEqual(forest.pack([part([True] * len(a)) for a in x]).tolist(), [2, 1, 1, 1])
        many = fcpc.forest([[7]] * 300)
        self.assertEqual(many.pack([torch.ones(1, dtype=torch.uint8)] * 300).tolist(), [300])
        arrays = [numpy.array(a) for a in x]
        self.assertEqual(forest.pack(arrays).tolist(), [4, 2, 4, 5])
        self.assertEqual(forest.pack(arrays, "mean").tolist(), [2, 2, 4, 5])
        back = forest.unpack(numpy.array([1, 2, 3, 4]), before=True)
        self.assertEqual([a.tolist() for a in back], [[0, 1], [0, 1], [0]])

    def test_logprobs(self):
        """Of random logits: log-probabilities, entropies and their gradients are those of each rollout alone."""
        for seed in range(8):
            rollouts = drawn(seed)
            forest = fcpc.forest(rollouts)
            torch.manual_seed(seed)
            logits = (3 * torch.randn(len(forest), WORDS, dtype=torch.float64)).requires_grad_()
            weights, more = ([torch.randn(len(r), dtype=torch.float64) for r in rollouts] for _ in range(2))

            def total(logits, values):
                return sum((w * x).sum() for w, x in zip(values, logits))
            got = total(forest.logprobs(logits, temperature=0.7), weights) + \
                total(forest.entropy(logits, temperature=0.7), more)
            grad, = torch.autograd.grad(got, logits)
            want = 0
            for i, rows in enumerate(forest.unpack(torch.arange(len(forest)))):
                for j in range(1, len(rows)):
                    p = torch.log_softmax(logits[rows[j - 1]] / 0.7, -1)
                    want = want + weights[i][j] * p[rollouts[i][j]] - more[i][j] * (p.exp() * p).sum()
            right, = torch.autograd.grad(want, logits)
            self.assertAlmostEqual(got.item(), want.item(), places=8)
            self.assertLess((grad - right).abs().max(), 1e-12 * max(1, right.abs().max()))

    def test_types_and_parts(self):
        """Half types are computed in float32; many logits in parts, with the same bits; impossible ids in entropies."""
        forest = fcpc.forest(drawn(5, rollouts=30))
        logits = torch.randn(len(forest), WORDS)
        for dtype in (torch.bfloat16, torch.float16):
            half = logits.to(dtype).requires_grad_()
            found = torch.cat(forest.logprobs(half))
            self.assertEqual(found.dtype, torch.float32)
            self.assertTrue(torch.equal(found, torch.cat(forest.logprobs(half.detach().float()))))
            found.sum().backward()
            self.assertEqual(half.grad.dtype, dtype)
        from fcpc import forest_loss

        def results():
            x = logits.clone().requires_grad_()
            values = torch.cat([*forest.logprobs(x), *forest.entropy(x)])
            values.square().sum().backward()
            return values.detach(), x.grad
        whole, numbers = results(), forest_loss._NUMBERS
        forest_loss._NUMBERS = 3 * WORDS
        try:
            parts = results()
        finally:
            forest_loss._NUMBERS = numbers
        self.assertTrue(torch.equal(whole[0], parts[0]) and torch.equal(whole[1], parts[1]))
        logits[:, 0] = -torch.inf
        self.assertTrue(torch.cat(forest.entropy(logits)).isfinite().all())


class Model(torch.nn.Module):
    """A small transformer: GQA, rotated by position, layers with a window and without."""

    def __init__(self):
        super().__init__()
        wide = HEADS * DIM
        self.words, self.out = torch.nn.Embedding(WORDS, wide), torch.nn.Linear(wide, WORDS)
        self.qkv = torch.nn.ModuleList(torch.nn.Linear(wide, (HEADS + 2 * KV_HEADS) * DIM) for _ in LAYERS)

    @staticmethod
    def rotated(x, at):
        angle = at[:, None, None] / 10 ** torch.linspace(0, 2, DIM // 2, dtype=x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, tokens, at, attend):
        x = self.words(tokens)
        for number, qkv in enumerate(self.qkv):
            q, k, v = qkv(F.rms_norm(x, x.shape[1:])).view(len(x), -1, DIM).split((HEADS, KV_HEADS, KV_HEADS), 1)
            x = x + attend(number, self.rotated(q, at), self.rotated(k, at), v).flatten(1)
        return self.out(F.rms_norm(x, x.shape[1:]))


def alone(number, q, k, v):
    """Attention of one rollout."""
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    at = torch.arange(len(q))
    seen = (at[:, None] >= at) & (at[:, None] - at < (WINDOW if number else len(q) + 1))
    return F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in (q, k, v)), seen).transpose(0, 1)


def losses(logp, entropy, old, reference, advantages):
    """Sums over the tokens of one rollout: PPO's clipped one with an entropy bonus and a penalty for KL, as k3; and
    GRPO's, by the mean over its tokens."""
    logp, entropy, old, reference = (x[1:] for x in (logp, entropy, old, reference))
    ratio, gap = (logp - old).exp(), reference - logp
    clipped = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    ppo = -clipped.sum() - 0.01 * entropy.sum() + 0.1 * (gap.exp() - gap - 1).sum()
    return ppo, -clipped.mean() if len(clipped) else 0 * logp.sum()


def a_step(group, owner=False):
    """(losses, gradients) of the model by plans of a forest; with a group they are summed over its ranks."""
    rollouts, judge = drawn(11, rollouts=12, tokens=(3, 20)), a_model()
    torch.manual_seed(2)
    old, reference, advantages = ([torch.randn(len(r)) / 3 for r in rollouts] for _ in range(3))
    forest = fcpc.forest(rollouts)
    prog = fcpc.program(layers=LAYERS, fields=["last", "at"], heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
                        dtype="fp32", block=16, cluster=fcpc.detect(group, 4) if group is None else fcpc.detect(group))
    plan = prog.plan(forest)
    with Attention(prog, group=group) as attention:
        layers = [attention.bind(plan, number) for number in range(2)]
        logits = judge(plan.take(forest.tokens), plan.take(forest.at), lambda i, *qkv: layers[i](*qkv))
        if owner:  # values of tokens that this rank predicts, end to end: a sum over them, with a mean per rollout
            logp, entropy = (f(logits, plan, owner=True) for f in (forest.logprobs, forest.entropy))
            share = [torch.full((len(r),), 1 / (len(r) - 1) if len(r) > 1 else 0.0) for r in rollouts]
            before, towards, weight, of_rollout = (forest.own(x, plan) for x in (old, reference, advantages, share))
            ratio, gap = (logp - before).exp(), towards - logp
            clipped = torch.minimum(ratio * weight, ratio.clamp(0.8, 1.2) * weight)
            found = (-clipped - 0.01 * entropy + 0.1 * (gap.exp() - gap - 1)).sum(), -(clipped * of_rollout).sum()
        else:
            logp, entropy = (f(logits, plan, group) for f in (forest.logprobs, forest.entropy))
            found = [sum(x) for x in zip(*(losses(*x[:4], x[4][1:]) for x in
                                           zip(logp, entropy, old, reference, advantages)))]
        (found[0] + found[1]).backward()
    values = [x.detach() for x in found]
    for x in [*(values if owner else []), *(p.grad for p in judge.parameters())] if group is not None else ():
        dist.all_reduce(x, group=group)
    return [*values, *(p.grad for p in judge.parameters())]


def a_model():
    torch.manual_seed(0)
    return Model()


def on_a_rank(owner):
    dist.init_process_group("gloo")
    try:
        return [x.numpy() for x in a_step(dist.group.WORLD, owner)]
    finally:
        dist.destroy_process_group()


class Trained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """The same losses and gradients, each rollout alone, in float64."""
        rollouts, judge = drawn(11, rollouts=12, tokens=(3, 20)), copy.deepcopy(a_model()).double()
        torch.manual_seed(2)
        old, reference, advantages = ([(torch.randn(len(r)) / 3).double() for r in rollouts] for _ in range(3))
        sums = [0, 0]
        for i, rollout in enumerate(rollouts):
            logits = judge(torch.tensor(rollout), torch.arange(len(rollout)), alone)
            p = torch.log_softmax(logits, -1)
            logp = F.pad(p[:-1].gather(1, torch.tensor(rollout)[1:, None])[:, 0], (1, 0))
            entropy = F.pad(-(p.exp() * p).sum(-1)[:-1], (1, 0))
            found = losses(logp, entropy, old[i], reference[i], advantages[i][1:])
            sums = [a + b for a, b in zip(sums, found)]
        (sums[0] + sums[1]).backward()
        cls.want = [*(x.detach() for x in sums), *(p.grad for p in judge.parameters())]

    def near(self, got):
        for a, b in zip(got, self.want, strict=True):
            self.assertLess((torch.as_tensor(a).double() - b).abs().max(), 2e-5 * max(1, b.abs().max()))

    def test_four_ranks_here(self):
        for owner in (False, True):
            self.near(a_step(None, owner))

    def test_four_processes(self):
        for owner in (False, True):
            for found in four_ranks(on_a_rank, owner):
                self.near(found)


if __name__ == "__main__":
    unittest.main()
