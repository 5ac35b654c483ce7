"""sft.py: TRL's SFTTrainer tunes a model with sinks and windows; all processes that a launcher starts share each batch.

    python3 examples/python/sft.py
    torchrun --nproc-per-node 4 examples/python/sft.py
    torchrun --nproc-per-node 4 examples/python/sft.py --context 2     # two groups of two processes, with own batches

The model is a small random gpt-oss, and the data are made here, so nothing is downloaded. With the same batches the
losses that it prints do not depend on how many processes compute them, but for rounding.
"""
import argparse
import os
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, GptOssConfig, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from fcpc.trainer import ContextParallel

WORDS, PERIOD = 32, 8
MODEL = GptOssConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, head_dim=16, sliding_window=16, num_local_experts=2, num_experts_per_tok=1,
                     layer_types=["sliding_attention", "full_attention"], pad_token_id=0)


class Tuner(ContextParallel, SFTTrainer):
    """SFTTrainer, with context parallelism."""


def documents(count):
    """Documents that repeat their first PERIOD words, which nobody can know: these are the prompt."""
    draw = torch.Generator().manual_seed(0)
    for _ in range(count):
        times = int(torch.randint(2, 9, (), generator=draw))
        words = torch.randint(3, WORDS, (PERIOD,), generator=draw).repeat(times)
        yield {"input_ids": words.tolist(), "completion_mask": [0] * PERIOD + [1] * (len(words) - PERIOD)}


def tokenizer():
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w1"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w2")


def tune(folder, context=None, steps=10):
    """Tunes, and returns the loss of each step."""
    torch.manual_seed(0)
    arguments = SFTConfig(folder, packing=True, max_length=128, per_device_train_batch_size=4, max_steps=steps,
                          learning_rate=0.01, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True,
                          router_aux_loss_coef=0.0, gradient_checkpointing=False, bf16=False,
                          use_cpu=not torch.cuda.is_available())
    trainer = Tuner(AutoModelForCausalLM.from_config(MODEL), arguments, processing_class=tokenizer(),
                    train_dataset=Dataset.from_list([*documents(200)]), context=context, plan={"block": 16})
    trainer.train()
    return [x["loss"] for x in trainer.state.log_history if "loss" in x]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", type=int, help="how many processes share a batch; default: all")
    with tempfile.TemporaryDirectory() as folder:
        losses = tune(folder, parser.parse_args().context)
    if os.environ.get("RANK", "0") == "0":
        print(f"loss {losses[0]:.3f} in the first step, {losses[-1]:.3f} in step {len(losses)}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
