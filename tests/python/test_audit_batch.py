"""test_audit_batch.py: audit.batch against faulty loaders, which it must name, and against right ones, of fcpc and of
other projects, where it must be silent."""
import contextlib
import os
import random
import time
import unittest
import warnings
from unittest import mock

import torch
import torch.distributed as dist

import fcpc
import faulty_loaders as loaders
from agent import forked
from faulty_loaders import IGNORE, PAD, Batch
from fcpc import audit

LENGTHS = [24, 33, 7]
# (loader, what a cause begins with, kinds of findings, what audit.batch is told besides)
FAULTS = [
    (loaders.shifted_by_the_model, "labels shifted after the division", {"label_lost"},
     {"model_shifts": True}),
    (loaders.shifted_in_zigzag, "labels shifted after the division", {"label", "label_lost", "label_crosses"},
     {"model_shifts": True}),
    (loaders.rolled_on_each_rank, "labels shifted after the division", {"label", "label_lost", "label_crosses"}, {}),
    (loaders.crossing_documents, "labels cross documents", {"label_crosses"}, {"prompts": 0}),
    (loaders.not_shifted, "labels are not shifted", {"label", "label_lost", "label_crosses"}, {}),
    (loaders.shifted_twice, "labels are shifted twice", {"label", "label_lost", "label_extra"}, {"model_shifts": True}),
    (loaders.labels_in_another_order, "labels are in another order than tokens: contiguous",
     {"label", "label_lost", "label_crosses", "label_extra"}, {}),
    (loaders.labels_not_divided, "not divided: labels", {"shape"}, {}),
    (loaders.local_positions, "positions restart on each rank", {"position"}, {}),
    (loaders.packed_positions, "positions do not restart at documents", {"position"}, {}),
    (loaders.shifted_positions, "positions are those of the token before", {"position"}, {}),
    (loaders.positions_in_another_order, "positions are in another order than tokens: contiguous", {"position"}, {}),
    (loaders.same_part, "every rank holds the same part", {"token_lost", "token_twice"}, {}),
    (loaders.whole_on_each, "not divided: every rank holds the whole batch", {"token_twice"}, {}),
    (loaders.remainder_cut, "remainder cut off: the last tokens of each sequence", {"token_lost"}, {}),
    (loaders.another_batch, "rank 2 holds another batch", {"token_lost", "token_foreign"}, {}),
    (loaders.overlapping, "parts overlap by a token", {"token_twice"}, {}),
    (loaders.mask_not_applied, "all labels count", {"label_extra", "label_crosses"}, {}),
    (loaders.mask_not_shifted, "the loss mask is that of the tokens themselves",
     {"label_lost", "label_crosses"}, {}),
    (loaders.mask_in_another_order, "the loss mask is in another order than tokens: contiguous",
     {"label_lost", "label_extra", "label_crosses"}, {}),
    (loaders.mean_of_means, "mean of means", {"divisor"}, {}),
    (loaders.counted_before_the_shift, "counted before labels were shifted", {"divisor"}, {"prompts": 0}),
    (loaders.cu_seqlens_of_local_positions, "cu_seqlens are made of positions", {"cu_seqlens"}, {}),
    (loaders.padding_counted, "padding in the loss", {"padding"}, {"pad": PAD}),
    (loaders.of_a_neighbour, "labels are in another order than tokens: those of the rank 1 further",
     {"label", "label_lost", "label_crosses", "label_extra"}, {}),
]


def program_of(batch, **more):
    return fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", cluster=fcpc.detect(ranks=batch.ranks), **more)


def audited(batch, made, **more):
    return audit.batch(made, program_of(batch), lengths=batch.lengths, **{"given": batch.whole(), **more})


class Faulty(unittest.TestCase):
    def test_each_is_named(self):
        """Also where tokens have the numbers of a small vocabulary, so that many are the same."""
        some = torch.randint(8, 1000, (sum(LENGTHS),), generator=torch.Generator().manual_seed(3))
        for loader, cause, kinds, more in FAULTS:
            more = {"prompts": 4, **more}
            prompts = more.pop("prompts")
            for tokens in None, some:
                with self.subTest(loader.__name__, unique=tokens is None):
                    batch = Batch(LENGTHS, tokens=tokens, prompts=prompts)
                    report = audited(batch, loader(batch), **more)
                    self.assertFalse(report.ok)
                    self.assertTrue(report.causes and report.causes[0].startswith(cause), f"\n{report}")
                    if tokens is None:
                        self.assertEqual({x.kind for x in report.findings}, kinds, f"\n{report}")


if __name__ == "__main__":
    unittest.main()
