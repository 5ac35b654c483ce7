"""test_audit_others.py: audits of other projects' context parallelism: which rank has which tokens by their rules, what
they compute, and the command."""
import contextlib
import importlib.util
import io
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (_HeadTailLoadBalancer,
                                                                                    _PerDocumentHeadTailLoadBalancer)

import fcpc
from agent import forked
from fcpc import __main__, audit
from fcpc.audit import command, others
from fcpc.audit.rows import RULES, order_of


def lists(order):
    return [x.tolist() for x in order]


class Rules(unittest.TestCase):
    def test_by_hand(self):
        """Two sequences on two ranks, of 8 and 4 tokens; and of 5 and 2, which have padding."""
        for name, even, odd in (
                ("contiguous", [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]], [[0, 1, 2, 3], [4, 5, 6]]),
                ("zigzag", [[0, 1, 2, 9, 10, 11], [3, 4, 5, 6, 7, 8]], [[0, 1, 6], [2, 3, 4, 5]]),
                ("stripe", [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]], [[0, 2, 4, 6], [1, 3, 5]]),
                ("contiguous_each", [[0, 1, 2, 3, 8, 9], [4, 5, 6, 7, 10, 11]], [[0, 1, 2, 5], [3, 4, -1, 6]]),
                ("zigzag_each", [[0, 1, 6, 7, 8, 11], [2, 3, 4, 5, 9, 10]],
                 [[0, 1, -1, -1, 5, -1], [2, 3, 4, -1, 6, -1]])):
            self.assertEqual(lists(order_of(name, [8, 4], 2)), even, name)
            self.assertEqual(lists(order_of(name, [5, 2], 2)), odd, name)

    def test_every_token_once(self):
        """order_of itself refuses a rule that has a token twice, or not at all."""
        drawn = random.Random(3)
        for _ in range(100):
            lengths, ranks = [drawn.randint(0, 20) for _ in range(drawn.randint(1, 4))], drawn.randint(1, 5)
            for name in RULES:
                order = order_of(name, lengths, ranks)
                if name.endswith("_each"):
                    self.assertEqual(len({len(x) for x in order}), 1, "all ranks have as many rows")

    def test_of_torch_and_megatron(self):
        """Their own functions give the same rows."""
        with warnings.catch_warnings():  # that other packages are not here
            warnings.simplefilter("ignore")
            from megatron.core import utils
        drawn = random.Random(4)
        for _ in range(50):
            ranks = drawn.randint(2, 5)
            lengths = [2 * ranks * drawn.randint(1, 4) for _ in range(drawn.randint(1, 3))]
            tokens = torch.arange(sum(lengths))
            whole = _HeadTailLoadBalancer(len(tokens), ranks, "cpu")._generate_indices()[0].chunk(ranks)
            each = _PerDocumentHeadTailLoadBalancer([lengths], ranks, "cpu")._generate_indices()[0].chunk(ranks)
            of_rank = []
            for rank in range(ranks):
                with mock.patch.multiple(utils, get_pg_size=lambda _: ranks, get_pg_rank=lambda _, rank=rank: rank):
                    made = utils.get_batch_on_this_cp_rank({"tokens": tokens[None]}, cp_group=mock.Mock())
                of_rank.append(made["tokens"][0])
            self.assertEqual(lists(order_of("zigzag", lengths, ranks)), lists(whole))
            self.assertEqual(lists(order_of("zigzag", lengths, ranks)), lists(of_rank))
            self.assertEqual(lists(order_of("zigzag_each", lengths, ranks)), lists(each))

    def test_unknown(self):
        with self.assertRaises(fcpc.Error) as caught:
            audit.check(lambda *of: of, fcpc.program("causal", dtype="fp32", head_dim=16), [8], rows="headtail")
        self.assertIn("one of contiguous, contiguous_each, stripe, zigzag, zigzag_each", str(caught.exception))


class Exchange(torch.autograd.Function):
    """Of some equal parts of dimension 0, part r goes to rank r; gradients go back."""

    @staticmethod
    def forward(ctx, x):
        made = torch.empty_like(x)
        dist.all_to_all_single(made, x.contiguous())
        return made

    @staticmethod
    def backward(ctx, d):
        return Exchange.apply(d)


class Ulysses:
    """Called as DeepSpeed's DistributedAttention is. factor: of gradients, 1 is right."""
    factor = 1

    def __init__(self, local, group, scatter_idx, gather_idx):
        self.local, self.ranks = local, group.size()
        assert (scatter_idx, gather_idx) == (2, 0)

    def __call__(self, q, k, v, batch_dim_idx):
        assert batch_dim_idx == 1
        whole = [Exchange.apply(torch.stack(x.chunk(self.ranks, 2))).flatten(0, 1) for x in (q, k, v)]
        o = self.local(*whole)
        o = torch.cat(list(Exchange.apply(torch.stack(o.chunk(self.ranks, 0)))), 2)
        return o * self.factor + o.detach() * (1 - self.factor)


class Doubled(Ulysses):
    factor = 2


def on_ranks(ranks, function, *arguments):
    """What each rank of a group gives, a number below 100."""
    def one(store, rank):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
        return function(dist.group.WORLD, *arguments)
    return forked(ranks, one)


def wrong_of(group, name, programs):
    """How many of a known implementation's programs differ."""
    return command.audit(command.KNOWN[name], group, programs, 0, 1, print if group.rank() == 0 else lambda line: None)


class Others(unittest.TestCase):
    def test_torch_sdpa(self):
        """It is right. It has no windows: a program that has one differs, and the cause is named. Lengths that it
        cannot have are refused with words."""
        def look(group):
            if wrong_of(group, "torch-sdpa", 3):
                return 1
            attention, rows = others.torch_sdpa(group, [32])
            prog = fcpc.program("causal and q - k < 5", heads=4, kv_heads=2, head_dim=16, dtype="fp32")
            said = audit.check(attention, prog, [32], group, rows=rows).causes
            with self.assertRaisesRegex(fcpc.Error, "which its 2 ranks divide"):
                others.torch_sdpa(group, [31])
            return 7 if lists(rows) == lists(order_of("zigzag", 32, 2)) and said[0].startswith("window lost") else 2
        self.assertEqual(on_ranks(2, look), [7, 7])

    def test_torch_flex(self):
        self.assertEqual(on_ranks(2, wrong_of, "torch-flex", 2), [0, 0])

    def test_many_of_torch(self):
        """AUDIT_PROGRAMS: how many."""
        count = int(os.environ.get("AUDIT_PROGRAMS", "0"))
        for name, ranks, programs in ("torch-sdpa", 4, count or 8), ("torch-flex", 2, count or 4):
            begin = time.time()
            self.assertEqual(on_ranks(ranks, wrong_of, name, programs), [0] * ranks)
            print(f"{name}: {programs} programs, {time.time() - begin:.1f} s")

    def test_ulysses(self):
        """An exchange as DeepSpeed's: right; and with gradients that count twice."""
        def both(group):
            trial = command.draw(command.KNOWN["deepspeed-ulysses"], 3, 1, group)
            causes = []
            for kind in Ulysses, Doubled:
                attention, rows = others.deepspeed_ulysses(kind, group, trial.mask_mod, trial.tokens)
                causes.append(audit.check(attention, trial.program, list(trial.lengths), group, rows=rows).causes)
            return 7 if causes[0] == [] and causes[1][0].startswith("gradient counted twice") else 1
        self.assertEqual(on_ranks(2, both), [7, 7])

    @unittest.skipIf(importlib.util.find_spec("deepspeed") is None, "DeepSpeed is not installed")
    def test_deepspeed(self):
        self.assertEqual(on_ranks(2, wrong_of, "deepspeed-ulysses", 20), [0, 0])


SCRIPT = """
import sys
import torch
import torch.distributed as dist
from fcpc.audit.rows import order_of
masks, rows, sequences = ["causal", "window"], "zigzag_each", 2

def gathered(x, trial):
    every = [torch.empty_like(x) for _ in range(trial.ranks)]
    dist.all_gather(every, x.detach().contiguous(), group=trial.group)
    every[trial.rank] = x
    return torch.cat(every)

backward = False

def attention(q, k, v, trial):
    if sys.argv[1:] == ["broken"] and trial.rank == 1:
        raise ValueError("broken on purpose")
    order = order_of(rows, trial.lengths, trial.ranks)
    mine, every = order[trial.rank], torch.cat(order)
    allowed = trial.mask_mod(0, 0, mine[:, None], every) & (mine >= 0)[:, None] & (every >= 0)
    if sys.argv[1:] == ["faulty"]:
        allowed &= torch.arange(len(every)) // len(mine) == trial.rank
    k, v = (gathered(x, trial).repeat_interleave(trial.heads // trial.kv_heads, 1) for x in (k, v))
    s = torch.einsum("qhd,khd->hqk", q, k) * trial.head_dim ** -0.5
    weights = s.masked_fill(~allowed, -1e9).softmax(-1) * allowed
    return torch.einsum("hqk,khd->qhd", weights, v)
"""


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "mine.py")
        with open(self.script, "w") as file:
            file.write(SCRIPT)

    def said(self, *arguments):
        """Its status, and what its processes say."""
        with tempfile.TemporaryFile("w+") as out:
            kept = [os.dup(1), os.dup(2)]
            try:
                sys.stdout.flush()
                sys.stderr.flush()
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                with mock.patch.object(sys, "argv", ["fcpc", "audit", self.script, *arguments]), \
                        self.assertRaises(SystemExit) as ended:
                    __main__.main()
            finally:
                for number, copy in zip((1, 2), kept):
                    os.dup2(copy, number)
                    os.close(copy)
            out.seek(0)
            return ended.exception.code, out.read()

    def test_right_faulty_and_broken(self):
        self.assertEqual(self.said("--ranks", "2", "--programs", "3"),
                         (0, "mine.py: 3 programs on 2 ranks: no difference was found\n"))
        status, text = self.said("--ranks", "2", "--programs", "3", "--", "faulty")
        self.assertEqual(status, 1, text)
        self.assertIn("likely cause: keys of other ranks not seen: each rank attends to its own alone", text)
        self.assertIn("mine.py: 3 of 3 programs on 2 ranks differ", text)
        begin = time.time()
        status, text = self.said("--ranks", "3", "--", "broken")
        self.assertEqual(status, 2, text)
        self.assertIn("fcpc audit: rank 1, program 0: ", text)
        self.assertIn("ValueError: broken on purpose", text)
        self.assertLess(time.time() - begin, 60, "rank 0 waits for one that has ended")
        with open(self.script, "a") as file:
            file.write("whole = attention\nattention = lambda q, k, v, trial: whole(q, k, v, trial)[trial.rank:]\n")
        status, text = self.said("--ranks", "2")
        self.assertEqual(status, 2, text)
        self.assertRegex(text, r"rank 1, program 0: .*\n.*E701.*rank 1's o has shape")

    def test_misuse(self):
        for arguments, said in ((["torch-sdpa", "--", "x"], "takes no arguments"), ([], "required: WHAT"),
                                (["x.py", "--ranks", "0"], "0 is less than 1")):
            with contextlib.redirect_stderr(io.StringIO()) as out, self.assertRaises(SystemExit) as ended:
                command.main(arguments)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(said, out.getvalue())
        with mock.patch.dict(os.environ, RANK="0", WORLD_SIZE="2"), self.assertRaises(SystemExit), \
                contextlib.redirect_stderr(io.StringIO()) as out:
            command.main([self.script, "--ranks", "4"])
        self.assertIn("torchrun has started 2 processes", out.getvalue())
        for text, said in (("", "has no function attention"), ("masks = ['cause']", "masks has 'cause'"),
                           ("lengths = [4]", "program and lengths go together"),
                           ("def backward(x): pass", "backward is of type function: bool is expected")):
            with open(self.script, "w") as file:
                file.write(text + ("\nattention = print" if text else ""))
            with mock.patch.object(sys, "argv", []), mock.patch.object(sys, "path", list(sys.path)), \
                    self.assertRaisesRegex(fcpc.Error, said):
                command.load(self.script, [])
        with self.assertRaisesRegex(fcpc.Error, "no file nothing.py, and it is none of torch-sdpa"):
            command.load("nothing.py", [])

    def test_torchrun_and_a_program(self):
        """Under torchrun, with a program and a batch of the file's own."""
        with open(self.script, "a") as file:
            file.write("program, lengths, heads, head_dim = 'causal', [12, 5], [(4, 2)], [16]\n"
                       "def own(q, k, v, trial, attend=attention):\n"
                       "    from dataclasses import replace\n"
                       "    return attend(q, k, v, replace(trial, mask='causal'))\n"
                       "attention = own\n")
        made = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--log-dir",
                               os.path.dirname(self.script), "-m", "fcpc", "audit", self.script], text=True,
                              timeout=200, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("mine.py: 1 program on 2 ranks: no difference was found", made.stdout)


if __name__ == "__main__":
    unittest.main()
