"""test_audit_others.py: audits of other projects' context parallelism: which rank has which tokens by their rules, what
they compute, and the command."""
import random
import unittest
from unittest import mock

import torch
from torch.distributed.tensor.experimental._context_parallel._load_balancer import (_HeadTailLoadBalancer,
                                                                                    _PerDocumentHeadTailLoadBalancer)

import fcpc
from fcpc import audit
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


if __name__ == "__main__":
    unittest.main()
