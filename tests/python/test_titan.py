"""test_titan.py: fcpc.titan beside torchtitan itself, on the CPU. Losses and norms of gradients of its debug model that is
divided by plans must be those of one process with torchtitan's own masks, to the rounding of float32."""
import contextlib
import json
import os
import tempfile
import traceback
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

import titan_job  # before anything of torchtitan

import fcpc
import fcpc.titan
from agent import forked
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC


def dense(q, k, v, *, score_mod, block_mask, scale, enable_gqa, return_aux, kernel_options):
    """FlexAttention for a CPU, where it has no gradients: by all pairs, and by the mask of the BlockMask."""
    assert score_mod is None and not return_aux.lse
    mask = create_mask(block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device=q.device)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=enable_gqa), None


def run(config, init_method, rank, ranks):
    """What titan_job.train gives in this process, which is one of `ranks`."""
    make = dist.init_process_group
    with contextlib.ExitStack() as here:
        here.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        here.enter_context(mock.patch.dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks)))
        here.enter_context(mock.patch("torch.distributed.init_process_group", lambda backend, timeout, **_: make(
            backend, init_method, timeout, ranks, rank)))
        here.enter_context(mock.patch("time.sleep"))  # torchtitan waits for other ranks at the end
        here.enter_context(mock.patch("torchtitan.models.common.attention.FlexAttention.compiled_flex_attn", dense))
        here.enter_context(mock.patch("torchtitan.models.common.decoder.create_attention_mask", create_block_mask))
        found = titan_job.train(config)
        dist.destroy_process_group()
        return found


def job(ranks, by_plans, steps=3, change=None, plan=None, **parallelism):
    """What each rank of a job has logged. torchtitan's state is global, so each job has processes of its own."""
    config = titan_job.stock(steps)
    for name, value in parallelism.items():
        setattr(config.parallelism, name, value)
    if change:
        change(config)
    if by_plans:
        config = fcpc.titan.planned(config, block=16, **(plan or {}))
    titan_job.logger.setLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        def one(init_method, rank):
            try:
                found = run(config, init_method, rank, ranks)
                Path(folder, str(rank)).write_text(json.dumps(found))
                return 0
            except BaseException:
                traceback.print_exc()
                return 1
        assert forked(ranks, one) == [0] * ranks
        return [json.loads(Path(folder, str(rank)).read_text()) for rank in range(ranks)]
