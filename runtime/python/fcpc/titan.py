"""titan.py: context parallelism by plans for models of torchtitan.

    def llama3_8b_planned():                                    # in the file that --module names
        return fcpc.titan.planned(llama3_8b())

    torchrun --nproc-per-node 8 -m torchtitan.train --module mine --config llama3_8b_planned \\
        --parallelism.context_parallel_degree 4

What torchtitan lets others replace is replaced: the trainer's post_dataloading_process takes a rank's part of each
batch, and an override puts PlannedAttention in the place of FlexAttention. Model, loader, loss, optimizer, FSDP2,
tensor parallelism, activation checkpointing and compilation stay torchtitan's.

A model here has as many tokens in a rank as the plan gives it, and a few more of no meaning behind them where
torchtitan divides tokens evenly: among tensor ranks, or in the chunks of ChunkedLossWrapper. These have no label, and
attention leaves them out.
"""
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
import tyro

from .frameworks import other_batch, require

require("torchtitan", "torchtitan.config:override", "torchtitan.config.override:derive",
        "torchtitan.distributed.activation_checkpoint:SelectiveAC.get_save_ops",
        "torchtitan.models.common.attention:FlexAttention.Config",
        "torchtitan.models.common.attention:GQAttention.Config",
        "torchtitan.models.common.decoder:Decoder.get_attention_masks", "torchtitan.protocols.sharding:LocalMapConfig",
        "torchtitan.components.validate:Validator.post_dataloading_process",
        "torchtitan.trainer:Trainer.post_dataloading_process")

import torchtitan.components.validate
import torchtitan.trainer
from torchtitan.components.loss import IGNORE_INDEX, ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.config import TORCH_DTYPE_MAP, override
from torchtitan.config.override import derive
from torchtitan.distributed import activation_checkpoint
from torchtitan.distributed.spmd_types import annotate_input_spmd_types
from torchtitan.models.common.attention import FlexAttention, GQAttention
from torchtitan.models.common.decoder import Decoder
from torchtitan.protocols.module import Module

from .errors import Error
from .program import detect
from .program import program as _program
from .torch import Attention, BoundAttention

_OVERRIDE = "fcpc.titan.planned_attention"


# --- what a config says -----------------------------------------------------------------------------------------------

def planned(config: Any, mask: str = "causal", **plan: Any) -> Trainer.Config:
    """The config of a job that computes attention by plans: what a function of a config_registry returns.

    config   a torchtitan.trainer.Trainer.Config, such as llama3_debugmodel() gives; it is not changed
    mask     who attends to whom within a document, text of the language
    plan     other arguments of fcpc.program, such as block=1024 or strategy="dcp"

    The job is the same but for attention and for who has which tokens. Documents are those of the loader: one begins
    in each row, and wherever `positions` are 0. CUDA graphs are switched off, because a graph would repeat the plan of
    one batch. parallelism.context_parallel_degree says how many ranks share a batch, as before.

    Errors: E202 (no config of torchtitan's own Trainer). What a plan cannot honour is an error when the job starts,
    after the command line has been read: see Trainer.
    """
    if type(config) is not torchtitan.trainer.Trainer.Config:
        raise Error("E202", "titan.planned: a torchtitan.trainer.Trainer.Config is expected, and this is a "
                            f"{type(config).__module__}.{type(config).__qualname__}")
    made: Trainer.Config = derive(config, Trainer.Config, plan={"mask": mask, **plan})
    made.training = dataclasses.replace(config.training, disable_cuda_graphs=True)
    if type(config.validator) is torchtitan.components.validate.Validator.Config:
        made.validator = derive(config.validator, Validator.Config)
    if type(config.activation_checkpoint) is activation_checkpoint.SelectiveAC.Config:
        made.activation_checkpoint = derive(config.activation_checkpoint, SelectiveAC.Config)
    return made


def _refuse(why: str) -> Error:
    return Error("E702", f"fcpc.titan cannot compute this model: it {why}")


def _check_model(model: Any) -> tuple[int, int, int]:
    """(heads, kv_heads, head_dim). Refuses models whose layers are not all causal attention over documents."""
    if not isinstance(model, Decoder.Config) or not model.layers:
        raise _refuse(f"is a {type(model).__qualname__}, and a Decoder is expected")
    its = type(model)._owner
    for name in ("forward", "get_attention_masks"):
        if getattr(its, name) is not getattr(Decoder, name):
            raise _refuse(f"has its own {name} ({its.__name__}), so its layers may attend otherwise than by documents")
    shapes = set()
    for number, layer in enumerate(model.layers):
        attention: Any = getattr(layer, "attention", None)
        if type(attention) is not GQAttention.Config:
            raise _refuse(f"has a {type(attention).__qualname__} in layer {number}, and GQAttention is expected")
        if type(attention.inner_attention) is not FlexAttention.Config:
            raise Error("E203", f"fcpc.titan: layer {number} attends by {type(attention.inner_attention).__qualname__}"
                                ', and a plan takes the place of FlexAttention: attn_backend="flex"')
        if getattr(layer, "moe", None) is not None:
            raise _refuse(f"has experts in layer {number}, and how a router balances them depends on a rank's tokens")
        heads = attention.n_heads
        shapes.add((heads, attention.n_kv_heads or heads, attention.head_dim or attention.dim // heads))
    if len(shapes) > 1:
        raise _refuse(f"has layers with other numbers of heads: {sorted(shapes)}")
    return shapes.pop()


def _check_settings(config: Trainer.Config) -> None:
    """Refuses settings that a plan cannot honour (E203)."""
    parallelism, loss = config.parallelism, config.loss
    inner = loss.loss_fn if type(loss) is ChunkedLossWrapper.Config else loss
    why = {
        f"parallelism.pipeline_parallel_degree = {parallelism.pipeline_parallel_degree}: stages would have to be told "
        "the shape of each micro-batch": parallelism.pipeline_parallel_degree > 1,
        f"parallelism.spmd_backend = '{parallelism.spmd_backend}': it divides sequences evenly, and a plan does not. "
        "Leave it at 'spmd_types'": parallelism.spmd_backend != "spmd_types",
        "debug.spmd_typechecking: it has no rule for a plan's attention": config.debug.spmd_typechecking,
        "training.disable_cuda_graphs = False: a graph would repeat the plan of one batch":
            not config.training.disable_cuda_graphs,
        f"comm.mode = '{config.comm.mode}': ranks find each other by torch.distributed": config.comm.mode != "default",
        f"the loss is {type(inner).__qualname__}, and may depend on the order of tokens. CrossEntropyLoss does not":
            type(inner) is not CrossEntropyLoss.Config,
        f"the validator is {type(config.validator).__qualname__}, and would run without a plan":
            config.validator.enable and not isinstance(config.validator, Validator.Config),
    }
    for what, on in why.items():
        if on:
            raise Error("E203", f"fcpc.titan: {what}")


# --- attention --------------------------------------------------------------------------------------------------------

class Planned:
    """What goes through a model in the place of attention masks: attention by the plan of a batch, and how many tokens
    this rank has. Rows behind these are of no meaning."""

    def __init__(self, attention: BoundAttention) -> None:
        self.attention, self.tokens = attention, attention.plan.tokens


class PlannedAttention(Module):  # type: ignore[misc]
    """The inner_attention of a model: attention by the plan that the model was given.

    Errors: E209 (the model was called without a plan), E203 (another scale, or an out_transform).
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Module.Config):  # type: ignore[misc]
        """It has no settings."""

    def __init__(self, config: Config) -> None:
        super().__init__()

    def forward(self, q_BLNH: torch.Tensor, k_BLNH: torch.Tensor, v_BLNH: torch.Tensor, *, attention_masks: Any = None,
                scale: float | None = None, enable_gqa: bool = False, **more: Any) -> torch.Tensor:
        """q [1, tokens, heads, head_dim], k and v [1, tokens, kv_heads, head_dim] of this rank, in the plan's order;
        the result is like q. Rows behind those of the plan are 0."""
        if not isinstance(attention_masks, Planned):
            raise Error("E209", "this model attends by fcpc, and its call names no plan: fcpc.titan.Trainer and "
                                "fcpc.titan.Validator make one for each batch")
        if more or scale is not None and abs(scale * q_BLNH.shape[3] ** 0.5 - 1) > 1e-6:
            raise Error("E203", f"fcpc.titan: a layer asks attention for scale = {scale} and {sorted(more)}, and a "
                                "plan has the scale head_dim ** -0.5, and nothing else")
        tokens = attention_masks.tokens
        o = attention_masks.attention(q_BLNH[0, :tokens], k_BLNH[0, :tokens], v_BLNH[0, :tokens])
        return torch.nn.functional.pad(o, (0, 0, 0, 0, 0, q_BLNH.shape[1] - tokens))[None]


@override(target=FlexAttention.Config, description="attention by fcpc's plans")  # type: ignore[untyped-decorator]
def planned_attention(config: Any) -> Any:
    """The override that Trainer activates: PlannedAttention in the place of FlexAttention. Keys and values stay where
    they are; torchtitan would gather those of all ranks before each call."""
    its = config.sharding_config
    if its is not None:
        src = its.in_src_shardings
        grads = tuple(src[name] for name in ("q_BLNH", "k_BLNH", "v_BLNH"))
        its = dataclasses.replace(its, in_dst_shardings=dict(src),
                                  local_map=dataclasses.replace(its.local_map, in_grad_placements=grads))
    return derive(config, PlannedAttention.Config, sharding_config=its)


class SelectiveAC(activation_checkpoint.SelectiveAC):  # type: ignore[misc]
    """torchtitan's selective activation checkpointing, which saves what a plan's attention gave, as it does with
    FlexAttention."""

    @dataclass(kw_only=True, slots=True)
    class Config(activation_checkpoint.SelectiveAC.Config):  # type: ignore[misc]
        """As torchtitan's."""

    def get_save_ops(self) -> set[Any]:
        """What is saved and not computed again."""
        return {*super().get_save_ops(), torch.ops.fcpc.attention.default}


# --- training ---------------------------------------------------------------------------------------------------------

class _Parts:
    """Makes the plan of each batch, and this rank's part of it."""

    def __init__(self, config: Trainer.Config, heads: tuple[int, int, int], parallel_dims: Any, device: Any) -> None:
        self.parallel_dims, self.device, tensor = parallel_dims, device, parallel_dims.tp
        group = self.group = parallel_dims.get_mesh("cp").get_group() if parallel_dims.cp_enabled else None
        self.prog = _program(**{"heads": heads[0] // tensor, "kv_heads": heads[1] // tensor, "head_dim": heads[2],
                                "dtype": TORCH_DTYPE_MAP[config.training.mixed_precision_param],
                                "cluster": detect(ranks=1) if group is None else detect(group), **config.plan})
        self.attn = Attention(self.prog, group=group, device=device)
        self.multiple = math.lcm(tensor if config.parallelism.enable_sequence_parallel else 1,
                                 config.loss.num_chunks if type(config.loss) is ChunkedLossWrapper.Config else 1)

    def _check_same(self, *batch: torch.Tensor) -> None:
        """Compares what the ranks of a group have read. Plans are compared by fcpc; other tokens may have the same
        plan."""
        if self.group is not None and other_batch(self.group, self.device, *batch) is not None:
            raise Error("E706", "fcpc.titan: the ranks of this group have read different batches: a loader that draws "
                                "at random must draw the same in all ranks of a dp_rank")

    def __call__(self, batch: Mapping[str, torch.Tensor],
                 labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any], int]:
        """(inputs, labels, other arguments of the model, how many tokens of the batch this rank has)."""
        if unknown := batch.keys() - {"input", "positions"}:
            raise Error("E701", f"fcpc.titan: the batch has {sorted(unknown)}, and nobody would put them in the plan's "
                                "order")
        tokens, positions = batch["input"], batch.get("positions")
        if positions is None or not tokens.shape == positions.shape == labels.shape:
            raise Error("E701", "fcpc.titan: input, positions and labels [rows, tokens] are expected, and these are "
                        f"{[None if x is None else list(x.shape) for x in (tokens, positions, labels)]}: positions say "
                        "where documents begin")
        self._check_same(tokens, positions, labels)
        begins = positions == 0
        begins[:, 0] = True
        at = begins.flatten().nonzero().flatten().tolist()
        plan = self.prog.plan([b - a for a, b in zip(at, [*at[1:], tokens.numel()])])
        more = -plan.tokens % self.multiple or (0 if plan.tokens else self.multiple)
        mine = [torch.nn.functional.pad(plan.take(x.flatten()).to(self.device), (0, more), value=value)[None]
                for x, value in ((tokens, 0), (labels, IGNORE_INDEX), (positions, 0))]
        inputs, labels, kwargs = annotate_input_spmd_types(
            self.parallel_dims, mine[0], mine[1],
            {"positions": mine[2], "attention_masks": Planned(self.attn.bind(plan))})
        return inputs, labels, kwargs, plan.tokens


class Trainer(torchtitan.trainer.Trainer):  # type: ignore[misc]
    """torchtitan's Trainer, whose ranks share batches by plans. `planned` makes its config.

    Losses, gradients and their norm are those of one rank that has the whole batch, to rounding. Parameters,
    optimizers and checkpoints are torchtitan's own, so a job may go on with or without plans.

    Errors: E203 (settings that a plan cannot honour), E702 (models with other attention), E701 (batches without
    positions, or with more than tokens), E706 (ranks of a group that have read different batches).
    """

    @dataclass(kw_only=True, slots=True)
    class Config(torchtitan.trainer.Trainer.Config):  # type: ignore[misc]
        """torchtitan's, and `plan`: arguments of fcpc.program."""
        plan: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)

    def __init__(self, config: Config) -> None:
        _check_settings(config)
        heads = _check_model(config.model_spec.model if config.model_spec else None)
        if _OVERRIDE not in config.override.imports:
            config.override = dataclasses.replace(config.override, imports=[*config.override.imports, _OVERRIDE])
        super().__init__(config)
        self._parts = _Parts(config, heads, self.parallel_dims, self.device)
        if config.validator.enable:
            self.validator.parts = self._parts

    def post_dataloading_process(self, input_dict: dict[str, torch.Tensor],
                                 labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        """(inputs, labels, other arguments of the model) of this rank, in the plan's order: [1, tokens]."""
        inputs, labels, kwargs, count = self._parts(input_dict, labels)
        self.ntokens_seen += count
        return inputs, labels, kwargs


class Validator(torchtitan.components.validate.Validator):  # type: ignore[misc]
    """torchtitan's Validator, whose ranks share batches by plans. A Trainer sets its `parts`."""

    @dataclass(kw_only=True, slots=True)
    class Config(torchtitan.components.validate.Validator.Config):  # type: ignore[misc]
        """As torchtitan's."""

    parts: _Parts

    def post_dataloading_process(self, input_dict: dict[str, torch.Tensor], labels: torch.Tensor,
                                 model_parts: list[Any]) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
        """As the Trainer's."""
        return self.parts(input_dict, labels)[:3]
