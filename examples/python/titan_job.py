"""titan_job.py: a job of torchtitan with context parallelism by plans.

    python3 examples/python/titan_job.py                                            # one process, nothing is divided
    torchrun --nproc-per-node 4 examples/python/titan_job.py --parallelism.context_parallel_degree 4
    torchrun --nproc-per-node 4 examples/python/titan_job.py --parallelism.context_parallel_degree 2 \\
        --parallelism.tensor_parallel_degree 2

The losses that it prints do not depend on how the processes are divided, but for rounding. `debugmodel` is a function
of a config_registry, and one line of it is ours: `fcpc.titan.planned`. Options are torchtitan's.

torchtitan is written for GPUs, and its tokenizer and data are files that its package does not have. `on_cpu` lets it
run without a GPU, and `Words` and `documents` are in the place of the files. A job of yours has none of these.
"""
import os
import sys
import tempfile
import types
import zlib
from dataclasses import dataclass
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor


from datasets import Dataset
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import ConfigManager
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.tools.logging import logger

import fcpc.titan


def on_cpu():
    """Lets torchtitan take the CPU for its device. It takes "cuda", and asks it for its memory."""
    device = types.SimpleNamespace(
        device_count=lambda: 1, current_device=lambda: 0, set_device=lambda _: None, synchronize=lambda: None,
        get_device_name=lambda _=None: "cpu", get_device_properties=lambda _=None: mock.Mock(total_memory=1 << 30),
        reset_peak_memory_stats=lambda: None, empty_cache=lambda: None, memory_stats=lambda _=None: {})
    for name, module in list(sys.modules.items()):
        if name.startswith("torchtitan."):
            for own, instead in ("device_type", "cpu"), ("device_module", device):
                if own in vars(module):
                    setattr(module, own, instead)


if not torch.cuda.is_available():
    on_cpu()


class Words(BaseTokenizer):
    """Letters as tokens."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **_):
        super().__init__()
        self.eos_id = 1

    def encode(self, text, add_bos=True, add_eos=True):
        return [0] * add_bos + [ord(letter) for letter in text] + [1] * add_eos

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    def get_vocab_size(self):
        return 128


def documents(_):
    """Texts of many lengths, each of which repeats itself."""
    draw = torch.Generator().manual_seed(3)
    texts = []
    for _ in range(400):
        length, words = int(torch.randint(3, 90, (), generator=draw)), torch.randint(97, 123, (5,), generator=draw)
        texts.append("".join(map(chr, words.repeat(length).tolist()))[:3 * length])
    return Dataset.from_dict({"text": texts})


DATASETS["words"] = DatasetConfig(path="", loader=documents, sample_processor=lambda sample: sample["text"])


class Losses(MetricsProcessor):
    """Keeps what torchtitan logs."""

    @dataclass(kw_only=True, slots=True)
    class Config(MetricsProcessor.Config):
        pass

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.losses, self.norms, self.validated = [], [], []

    def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
        super().log(step, global_avg_loss, global_max_loss, grad_norm, extra_metrics)
        self.losses.append(global_avg_loss)
        self.norms.append(grad_norm)

    def log_validation(self, loss, step):
        super().log_validation(loss, step)
        self.validated.append(loss)


def stock(steps=20):
    """torchtitan's debug model, in float32 and with short rows."""
    config = llama3_debugmodel()
    config.dump_folder, config.hf_assets_path = tempfile.gettempdir(), "."
    config.comm.trace_buf_size = 0  # else torchtitan makes a folder for what NCCL did last
    config.tokenizer, config.dataloader.dataset = Words.Config(), "words"
    config.validator.dataloader.dataset = "words"
    config.metrics = Losses.Config(log_freq=1)
    config.training.local_batch_size, config.training.seq_len, config.training.steps = 2, 256, steps
    config.training.mixed_precision_param = "float32"
    config.training.disable_cuda_graphs = True
    config.debug.seed, config.debug.enable_structured_logging = 0, False
    return config


def debugmodel():
    """The same job by plans: what --config names."""
    return fcpc.titan.planned(stock(), block=16)


def begin(model):
    """The same parameters, however the model is divided. On a GPU torchtitan sees to that. On a CPU the random numbers
    of a divided tensor depend on who has which part."""
    with torch.no_grad():
        for name, own in model.named_parameters():
            name = name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")
            draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            whole = torch.ones(own.shape) if "norm" in name else torch.randn(own.shape, generator=draw) * 0.05
            own.copy_(distribute_tensor(whole, own.device_mesh, own.placements, src_data_rank=None)
                      if isinstance(own, DTensor) else whole)


def train(config):
    """Losses and norms of gradients of each step, and what validation gave."""
    trainer = config.build()
    begin(trainer.model_parts[0])
    for module in trainer.model_parts[0].modules():
        if isinstance(module, FSDPModule) and trainer.device.type == "cpu":
            module.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor
    try:
        trainer.train()
        seen = trainer.metrics_processor
        return {"losses": seen.losses, "norms": seen.norms, "validated": seen.validated}
    finally:
        trainer.close()


def main():
    for name, value in dict(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0").items():
        os.environ.setdefault(name, value)
    logger.setLevel("WARNING")
    sys.path.insert(0, os.path.dirname(__file__))
    config = ConfigManager().parse_args(["--module", "titan_job", "--config", "debugmodel", *sys.argv[1:]])
    losses = train(config)["losses"]
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.4f} in the first step, {losses[-1]:.4f} in step {len(losses)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
