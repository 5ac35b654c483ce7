"""test_grpo.py: examples/python/grpo.py. The judge is TRL's own GRPOTrainer with transformers' eager attention, for the
same prompts and answers: losses and gradients of each step, on one process and on four."""
import os
import tempfile
import unittest
import warnings

try:
    import accelerate
    import transformers
    import trl  # noqa: F401
except ImportError:
    raise unittest.SkipTest("transformers, accelerate and trl are not there (make setup)") from None
import torch

import fcpc.hf
import grpo
from agent import four_ranks

PARTS = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}  # of a generation, which TRL shuffles
CASES = {
    "clipped, with KL": {},
    "two parts": PARTS,
    "two parts, the mean of each answer": {**PARTS, "loss_type": "grpo"},
    "a ratio of the whole answer": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "entropy": {"entropy_coef": 0.05, "top_entropy_quantile": 0.5, "loss_type": "bnpo"},
    "in micro-batches": {"tokens": 96},
    "layers that are computed again": {"gradient_checkpointing": True},
    "answers without an end are left out": {"mask_truncated_completions": True},
}
SPREAD = {"num_generations": 8, "per_device_train_batch_size": 4}  # a prompt has answers on two processes
ON_FOUR = {
    "spread": SPREAD,
    "spread, in micro-batches": {**SPREAD, "tokens": 24},
    "spread, two parts, entropy": {**SPREAD, **PARTS, "entropy_coef": 0.05, "max_steps": 2},
}


def fresh():
    """Forgets what accelerate has found in the process that has forked this one: that it is alone."""
    for state in accelerate.state.PartialState, accelerate.state.GradientState:
        state._reset_state()
    accelerate.state.AcceleratorState._reset_state(True)
    transformers.utils.logging.disable_progress_bar()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.simplefilter("ignore")


def compared(folder, cases):
    """For each case: (difference of losses, of gradients, tokens that were computed, tokens of the rollouts)."""
    fresh()
    found = {}
    for name, settings in cases.items():
        loss, gradient, sharing = grpo.compare(folder, **settings)
        found[name] = loss, gradient, sharing.computed, sharing.rollout_tokens
    return found


class Alike(unittest.TestCase):
    def setUp(self):
        folder, filters = tempfile.TemporaryDirectory(), warnings.catch_warnings()
        self.addCleanup(folder.cleanup)
        filters.__enter__()
        self.addCleanup(filters.__exit__, None, None, None)
        self.folder = folder.name
        grpo.save_model(self.folder)

    def alike(self, found):
        for name, (loss, gradient, computed, rollouts) in found.items():
            with self.subTest(name):
                self.assertLess(loss, 1e-5)
                self.assertLess(gradient, 1e-5)
                self.assertLess(computed, 0.7 * rollouts)

    def test_smallest(self):
        self.alike(compared(self.folder, {"clipped, with KL": {}}))

    def test_settings(self):
        found = compared(self.folder, CASES)
        self.alike(found)
        self.assertEqual(found["two parts"][2], found["clipped, with KL"][2])  # answers to a prompt stay together
        self.assertGreater(found["in micro-batches"][2], found["clipped, with KL"][2])  # trees were cut

    def test_four_processes(self):
        """Losses of a process depend on tokens that others have computed, and its gradients go back to them."""
        for found in four_ranks(compared, self.folder, ON_FOUR):
            self.alike(found)

    def test_generates(self):
        """The model answers by itself, with its own attention and cache, and then trains by plans."""
        fresh()
        sharing = grpo.trainer_of(grpo.SharingGRPO, self.folder, grpo.prompts(32), fcpc.hf.NAME, generate=True,
                                  max_steps=2)
        losses, gradients = grpo.run(sharing)
        self.assertEqual((len(losses), len(gradients)), (2, 2))
        self.assertLess(sharing.computed, sharing.rollout_tokens)
        self.assertEqual(sharing.model.config._attn_implementation, fcpc.hf.NAME)

    def test_evaluates(self):
        fresh()
        losses = []
        for kind, attention, more in ((grpo.GRPOTrainer, "eager", {}), (grpo.SharingGRPO, fcpc.hf.NAME, {"plan": {}})):
            trainer = grpo.trainer_of(kind, self.folder, grpo.prompts(32), attention, loss_type="grpo", max_steps=1,
                                      per_device_eval_batch_size=8, **more)
            trainer.train()
            losses.append(trainer.evaluate(eval_dataset=grpo.prompts(6))["eval_loss"])
        self.assertGreater(abs(losses[0]), 1e-6)  # a mean of advantages is near 0
        self.assertAlmostEqual(*losses, delta=1e-6)

    def test_refused(self):
        """What a forest cannot have is an error."""
        fresh()
        sharing = grpo.trainer_of(grpo.SharingGRPO, self.folder, grpo.prompts(32), fcpc.hf.NAME)
        ids = torch.ones(4, 6, dtype=torch.long)
        with self.assertRaisesRegex(ValueError, "tokens alone, and no pixel_values"):
            sharing._get_per_token_logps_and_entropies(sharing.model, ids, ids, 3, pixel_values=torch.zeros(4, 1))
        with self.assertRaisesRegex(ValueError, "no loss of a router"):
            sharing._get_per_token_logps_and_entropies(sharing.model, ids, ids, 3, compute_aux_loss=True)

    def test_together(self):
        """Rows are put in order by their prompts, with all that belongs to them."""
        prompt = torch.tensor([[0, 7], [5, 6], [0, 7], [5, 6]])
        whole = {"prompt_ids": prompt, "prompt_mask": (prompt > 0).long(), "advantages": torch.arange(4.0),
                 "num_items_in_batch": torch.tensor(9), "old_per_token_logps": None}
        parts = [{name: x[i:i + 2] if x is not None and x.dim() else x for name, x in whole.items()} for i in (0, 2)]
        found = grpo.together(parts)
        self.assertEqual([part["advantages"].tolist() for part in found], [[0.0, 2.0], [1.0, 3.0]])
        self.assertEqual([part["prompt_ids"].tolist() for part in found], [[[0, 7]] * 2, [[5, 6]] * 2])
        self.assertEqual([int(part["num_items_in_batch"]) for part in found], [9, 9])


if __name__ == "__main__":
    unittest.main()
