"""test_verl_batch.py: examples/python/verl_batch.py. The judge is the same update on padded rows in one process, with
transformers' eager attention, and a loss that is written here once more, from its definition, token by token."""
import math
import unittest

try:
    import transformers  # noqa: F401
except ImportError:
    raise unittest.SkipTest("transformers is not there (make setup)") from None
import torch
import torch.distributed as dist

import fcpc.hf
import verl_batch
from agent import four_ranks
from verl_batch import Actor, Settings, SharingActor, farthest

MODES = "token-mean", "seq-mean-token-sum", "seq-mean-token-mean"


def compared(context):
    """For each mode, and with a budget that cuts trees, what `compare` finds on four processes."""
    dist.init_process_group("gloo")
    group = dist.new_subgroups(context)[0]
    found = {mode: verl_batch.compare(Settings(loss_agg_mode=mode), group) for mode in MODES}
    found["a small budget"] = verl_batch.compare(Settings(ppo_max_token_len_per_gpu=64), group)
    dist.destroy_process_group()
    return found


class Alike(unittest.TestCase):
    def alike(self, apart, padded, real, shared):
        for what, far in apart.items():
            self.assertLess(far, 1e-5, what)
        self.assertLess(real, padded)
        self.assertLess(shared, 0.65 * real)

    def test_one_process(self):
        settings = {mode: Settings(loss_agg_mode=mode) for mode in MODES}
        settings["clipped twice"] = Settings(clip_ratio_c=1.05)
        for name, its in settings.items():
            with self.subTest(name):
                self.alike(*verl_batch.compare(its))

    def test_a_budget_that_cuts_trees(self):
        """No part has more tokens than that, each rollout is in one part, and loss and gradients stay."""
        of = Settings(ppo_max_token_len_per_gpu=120)
        model = verl_batch.model_of(0, fcpc.hf.NAME)
        actor, data = SharingActor(model, of, block=16), verl_batch.made()
        forest, parts = actor.forest(data), [*actor.parts(data)]
        self.assertGreater(max(forest.lengths), 120)
        self.assertLessEqual(max(len(part) for _, part in parts), 120)
        self.assertEqual(sorted(row for rows, _ in parts for row in rows), list(range(len(data))))
        for far in verl_batch.compare(of)[0].values():
            self.assertLess(far, 1e-5)

    def test_divided_by_micro_batches(self):
        """With the rule of DataParallelPPOActor a loss depends on how rows are cut, so both cut alike here."""
        for mode in MODES:
            of = Settings(loss_agg_mode=mode, per_micro_batch=True, ppo_max_token_len_per_gpu=200)
            data = verl_batch.made()
            every, cuts = list(range(len(data))), SharingActor(verl_batch.model_of(0, fcpc.hf.NAME), of, block=16)
            shared, _ = verl_batch.updated(SharingActor, fcpc.hf.NAME, data, of, every, block=16)
            padded, _ = verl_batch.updated(Actor, "eager", data, of, every,
                                           cut=lambda part: [rows for rows, _ in cuts.parts(part)])
            whole, _ = verl_batch.updated(Actor, "eager", data, of, every)
            for (loss, gradients), (right, its), (other, _) in zip(shared.steps, padded.steps, whole.steps):
                self.assertAlmostEqual(loss, right, places=6)
                self.assertLess(farthest(gradients, its), 1e-5)
                if mode == "token-mean":  # means of rows do not depend on how rows are cut
                    self.assertNotAlmostEqual(loss, other, places=4)

    def test_four_processes(self):
        for context in 4, 2:
            for found in four_ranks(compared, context):
                for name, its in found.items():
                    with self.subTest(name, context=context):
                        self.alike(*its)


class Loss(unittest.TestCase):
    """The loss, written token by token."""

    def test_of_each_token(self):
        of = Settings()
        for logp, old, advantage in ((-1.0, -1.0, 2.0), (-0.5, -1.0, 2.0), (-2.0, -1.0, 2.0), (-0.5, -1.0, -2.0),
                                     (-2.0, -1.0, -2.0), (-0.2, -2.0, -1.0), (-1.0, -60.0, -1.0)):
            ratio = math.exp(min(logp - old, 20))
            clipped = min(max(ratio, 1 - of.clip_ratio_low), 1 + of.clip_ratio_high)
            want = min(ratio * advantage, clipped * advantage)
            if advantage < 0:
                want = max(want, of.clip_ratio_c * advantage)
            got = verl_batch.policy_loss(*map(torch.tensor, (logp, old, advantage)), of)
            self.assertAlmostEqual(got.item(), -want, places=5, msg=(logp, old, advantage))
        for logp, ref in (-1.0, -1.0), (-1.0, -3.0), (-3.0, -1.0), (-30.0, -1.0):
            want = min(math.exp(min(ref - logp, 20)) - min(ref - logp, 20) - 1, 10)
            self.assertAlmostEqual(verl_batch.kl(torch.tensor(logp), torch.tensor(ref)).item(), want, places=5)

    def test_means(self):
        x, mask = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0], [3.0, 3.0, 3.0]]), torch.tensor(
            [[1, 0, 1], [0, 1, 0], [0, 0, 0]])
        for mode, want in zip(MODES, (21 / 3, 21 / 2, (5 / 2 + 16) / 2)):
            self.assertAlmostEqual(verl_batch.aggregate(x, mask, mode, 3, 2).item(), want, places=5)
        with self.assertRaisesRegex(ValueError, "loss_agg_mode token-max"):
            verl_batch.aggregate(x, mask, "token-max", 3, 2)


if __name__ == "__main__":
    unittest.main()
