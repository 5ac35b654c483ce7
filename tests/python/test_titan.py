"""test_titan.py: fcpc.titan beside torchtitan itself, on the CPU. Losses and norms of gradients of its debug model that is
divided by plans must be those of one process with torchtitan's own masks, to the rounding of float32."""
import contextlib
import os
import unittest
import warnings
from unittest import mock

import torch
import torch.distributed as dist

import titan_job  # before anything of torchtitan

import fcpc
import fcpc.titan
from agent import four_ranks
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC


def dense(q, k, v, *, score_mod, block_mask, scale, enable_gqa, return_aux, kernel_options):
    """FlexAttention for a CPU, where it has no gradients: by all pairs, and by the mask of the BlockMask."""
    assert score_mod is None and not return_aux.lse
    mask = create_mask(block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device=q.device)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=enable_gqa), None


def run(config, ranks, store):
    """What titan_job.train gives in the first `ranks` processes; None in the others."""
    rank, make = int(os.environ["RANK"]), dist.init_process_group
    if rank >= ranks:
        return None

    def init(backend, timeout, **_):
        make(backend, timeout=timeout, store=store, rank=rank, world_size=ranks)
    with contextlib.ExitStack() as here:
        here.enter_context(mock.patch.dict(os.environ, WORLD_SIZE=str(ranks)))
        here.enter_context(mock.patch("torch.distributed.init_process_group", init))
        here.enter_context(mock.patch("time.sleep"))
        here.enter_context(mock.patch("torchtitan.models.common.attention.FlexAttention.compiled_flex_attn", dense))
        here.enter_context(mock.patch("torchtitan.models.common.decoder.create_attention_mask", create_block_mask))
        try:
            return titan_job.train(config)
        finally:
            dist.destroy_process_group()


def jobs(steps, layouts):
    """On each of four ranks what each job gave. layouts: (by plans, ranks, settings of parallelism, change)."""
    warnings.simplefilter("ignore")
    titan_job.logger.setLevel("ERROR")
    store, found = dist.FileStore(os.environ["FCPC_STORE"], 4), []
    for number, (by_plans, ranks, settings, change) in enumerate(layouts):
        config = titan_job.stock(steps)
        for name, value in settings.items():
            setattr(config.parallelism, name, value)
        if change:
            change(config)
        if by_plans:
            config = fcpc.titan.planned(config, block=16)
        found.append(run(config, ranks, dist.PrefixStore(str(number), store)))
    return found
