"""test_trainer.py: transformers' Trainer with bf16=True, which is torch.autocast, trains a model that attends by plans.
"""
import tempfile
import unittest

try:
    import accelerate  # noqa: F401
    import transformers  # noqa: F401
except ImportError:
    raise unittest.SkipTest("transformers and accelerate are not there (make setup)") from None
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

import fcpc
import fcpc.hf
from fcpc.torch import Attention

WORDS, LENGTHS, NO_LABEL = 50, [20, 9, 35], -100
CONFIG = LlamaConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=8)


class Batches(torch.utils.data.Dataset):
    """Sequences of random words, packed end to end."""

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return {"tokens": torch.randint(WORDS, (sum(LENGTHS),), generator=torch.Generator().manual_seed(i))}


def collate(batches):
    return batches[0]


class ByPlan(Trainer):
    """Each batch has its plan."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        plan = self.prog.plan(LENGTHS)
        out = model(**fcpc.hf.inputs(self.attn, plan, inputs["tokens"], inputs["tokens"]))
        return (out.loss, out) if return_outputs else out.loss


class ByMask(Trainer):
    """The same model with the attention that transformers has, on the mask that a plan would have."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        number = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
        allowed = torch.ones(len(number), len(number)).tril().bool() & (number[:, None] == number)
        follows = torch.cat([number[1:] == number[:-1], torch.tensor([False])])
        labels = inputs["tokens"].roll(-1).masked_fill(~follows, NO_LABEL)[None]
        out = model(inputs["tokens"][None], position_ids=torch.cat([torch.arange(n) for n in LENGTHS])[None],
                    attention_mask=torch.zeros(1, 1, *allowed.shape).masked_fill(~allowed, torch.finfo().min),
                    use_cache=False, labels=labels, shift_labels=labels, num_items_in_batch=int(follows.sum()))
        return (out.loss, out) if return_outputs else out.loss


class UnderAutocast(unittest.TestCase):
    def test_losses(self):
        """Losses are near those of the model's own attention, whether the plan computes in float32 or in bfloat16."""
        found = {}
        for how, dtype in ("eager", None), ("fcpc", "fp32"), ("fcpc", "bf16"):
            torch.manual_seed(0)
            model = LlamaForCausalLM._from_config(CONFIG, attn_implementation=how)
            with tempfile.TemporaryDirectory() as folder:
                arguments = TrainingArguments(folder, bf16=True, use_cpu=True, per_device_train_batch_size=1,
                                              num_train_epochs=2, learning_rate=0.02, logging_steps=1, report_to=[],
                                              save_strategy="no", remove_unused_columns=False, disable_tqdm=True)
                kind = ByPlan if dtype else ByMask
                trainer = kind(model, arguments, train_dataset=Batches(), data_collator=collate)
                if dtype:
                    trainer.prog = fcpc.program("causal", heads=4, kv_heads=2, head_dim=8, dtype=dtype, block=16,
                                                cluster=fcpc.detect())
                    trainer.attn = Attention(trainer.prog)
                trainer.remove_callback(PrinterCallback)
                trainer.train()
            found[dtype] = torch.tensor([x["loss"] for x in trainer.state.log_history if "loss" in x])
            self.assertEqual({p.dtype for p in model.parameters()}, {torch.float32})
        self.assertEqual(len(found[None]), 6)
        for dtype in "fp32", "bf16":  # within a few steps of bfloat16's rounding
            self.assertLess((found[dtype] - found[None]).abs().max().item(), 0.02, dtype)
        self.assertLess(found[None][-1], found[None][0])
