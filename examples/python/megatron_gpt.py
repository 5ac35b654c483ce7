"""megatron_gpt.py: trains a GPTModel of Megatron-core with context parallelism by plans.

    python3 examples/python/megatron_gpt.py                                         # one process, nothing is divided
    torchrun --nproc-per-node 4 examples/python/megatron_gpt.py --context 4
    torchrun --nproc-per-node 4 examples/python/megatron_gpt.py --context 2 --tensor 2

The losses that it prints do not depend on how the processes are divided, but for rounding. Three lines differ from a
script of Megatron's: the layer spec (`make_model`), the batch of this rank and the loss function (`forward_step`).
Documents of a sequence end with the token EOD and do not see each other, and some layers have a window.

Model, schedule, DDP and optimizer are Megatron's. They are written for NVIDIA GPUs. `OnCPU` lets them run without one,
and a script for GPUs has none of it.
"""
import argparse
import contextlib
import functools
import os
from unittest import mock

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.overrides import TorchFunctionMode

import fcpc
import fcpc.megatron
from fcpc.torch import Attention

WORDS, EOD, LENGTH, ROWS = 32, 0, 128, 2


class OnCPU(TorchFunctionMode):
    """Within it, what Megatron puts on a GPU stays on the CPU, and there are no random numbers of a GPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        if function is torch.Tensor.cuda:
            return args[0]
        return function(*args, **kwargs)

    def __enter__(self):
        self.patches = contextlib.ExitStack()
        nothing, state = mock.Mock(fork=lambda *_: contextlib.nullcontext()), torch.zeros(1)
        for name, instead in [("torch.cuda.current_device", lambda: torch.device("cpu")),
                              ("megatron.core.tensor_parallel.get_cuda_rng_tracker", lambda *_, **__: nothing),
                              ("megatron.core.tensor_parallel.random._get_cuda_rng_state", lambda *_, **__: state),
                              ("megatron.core.tensor_parallel.random._set_cuda_rng_state", lambda *_, **__: None)]:
            self.patches.enter_context(mock.patch(name, instead))
        return super().__enter__()

    def __exit__(self, *error):
        self.patches.close()
        return super().__exit__(*error)


def make_config():
    return TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, num_query_groups=2, qk_layernorm=True,
        window_size=(23, 0), window_attn_skip_freq=2, attention_dropout=0.0, hidden_dropout=0.0,
        tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
        context_parallel_size=parallel_state.get_context_parallel_world_size(),
        calculate_per_token_loss=True, finalize_model_grads_func=finalize_model_grads, use_cpu_initialization=True)


def make_model(config):
    """A GPTModel, in Megatron's DDP. The same parameters everywhere."""
    torch.manual_seed(0)
    spec = fcpc.megatron.layer_spec(get_gpt_layer_local_spec(qk_layernorm=config.qk_layernorm))
    model = GPTModel(config, spec, WORDS, LENGTH, position_embedding_type="rope")
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model)


def batches(count):
    """Batches as a dataset of Megatron gives them: each label is the next token. No token is predicted from EOD."""
    draw = torch.Generator().manual_seed(3 + parallel_state.get_data_parallel_rank())
    for _ in range(count):
        words = 1 + (torch.randint(WORDS, (ROWS, 1), generator=draw) + torch.arange(LENGTH + 1)) % (WORDS - 1)
        words[torch.rand(words.shape, generator=draw) < 0.03] = EOD
        tokens, labels = words[:, :LENGTH].contiguous(), words[:, 1:LENGTH + 1].contiguous()
        yield {"tokens": tokens, "labels": labels, "loss_mask": (tokens != EOD).float(),
               "doc": fcpc.megatron.documents(tokens, EOD).flatten()}


def planned(config, loader):
    """Each step's batch of this rank, by a plan that is made while the steps before it run."""
    group = parallel_state.get_context_parallel_group()
    program = fcpc.megatron.program(config, cluster=fcpc.detect(group), documents="doc", block=16)
    attention = Attention(program, group=group)
    for batch, plan in program.ahead(loader, of=lambda b: (fcpc.megatron.lengths(b), {"doc": b["doc"]})):
        yield fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, batch)


def forward_step(data_iterator, model):
    batch = next(data_iterator)
    loss = model(**fcpc.megatron.inputs(batch))
    return loss, functools.partial(fcpc.megatron.loss_func, model.config, batch)


def train(model, data_iterator, steps, forward_step=forward_step, after=None, **optimizer):
    """The loss of each step. after: a function that is called when the gradients of a step are there."""
    settings = {"optimizer": "adam", "lr": 1e-2, "clip_grad": 0.0, **optimizer}  # clipping asserts that there is a GPU
    optimizer = get_megatron_optimizer(OptimizerConfig(**settings), [model])
    run, losses = get_forward_backward_func(), []
    for _ in range(steps):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        reports = run(forward_step_func=forward_step, data_iterator=data_iterator, model=model, num_microbatches=1,
                      seq_length=LENGTH, micro_batch_size=ROWS, forward_only=False)
        report = sum(one["lm loss"] for one in reports)
        dist.all_reduce(report, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
        total, tokens = report.tolist()
        losses.append(total / tokens)
        if after is not None:
            after()
        optimizer.step()
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensor", type=int, default=1, help="ranks that divide matrices and heads")
    parser.add_argument("--context", type=int, default=1, help="ranks that divide sequences")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(options.tensor, context_parallel_size=options.context)
    with OnCPU() if not torch.cuda.is_available() else contextlib.nullcontext():
        config = make_config()
        losses = train(make_model(config), planned(config, batches(options.steps)), options.steps)
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.4f} in the first step, {losses[-1]:.4f} in step {len(losses)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
