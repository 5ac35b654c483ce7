"""megatron.py: context parallelism by plans for models of Megatron-core.

    import fcpc.megatron
    spec = fcpc.megatron.layer_spec(get_gpt_layer_local_spec())        # or that with Transformer Engine
    prog = fcpc.megatron.program(config, cluster=fcpc.detect(parallel_state.get_context_parallel_group()))
    attn = Attention(prog, group=parallel_state.get_context_parallel_group())
    for batch, plan in prog.ahead(loader, of=fcpc.megatron.lengths):
        batch = fcpc.megatron.get_batch_on_this_cp_rank(attn, plan, batch)
        loss = model(**fcpc.megatron.inputs(batch))
        output, report = fcpc.megatron.loss_func(config, batch, loss)

A plan goes through the model as its `packed_seq_params`, which Megatron hands to each layer. So nothing here keeps
state, and several micro-batches may be in flight. The batch dimension inside of the model is 1, because sequences are
packed end to end.

Megatron computes the rotation of a token (RoPE) from the rank's number, by its own rule of two chunks for each rank. A
plan has other tokens on a rank. So the import wraps three methods of Megatron's classes: with a plan they take the
places of the plan's tokens. Calls without a plan behave as before.
"""
# mypy: disable-error-code="import-untyped"
from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, Callable, Iterable, Mapping

import torch

from .frameworks import require

require("megatron-core", "megatron.core.models.common.embeddings.rotary_pos_embedding:RotaryEmbedding.get_emb",
        "megatron.core.models.common.embeddings.rotary_pos_embedding:RotaryEmbedding.get_rotary_seq_len",
        "megatron.core.models.common.embeddings.yarn_rotary_pos_embedding:YarnRotaryEmbedding",
        "megatron.core.models.gpt.gpt_model:GPTModel._preprocess", "megatron.core.packed_seq_params:PackedSeqParams",
        "megatron.core.transformer.attention:SelfAttention",
        "megatron.core.transformer.transformer_block:TransformerBlockSubmodules",
        "megatron.core.transformer.transformer_layer:TransformerLayerSubmodules",
        "megatron.core.transformer.utils:is_layer_window_attention",
        "megatron.core.transformer.utils:make_sharded_tensors_for_checkpoint")

from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from megatron.core.models.common.embeddings.yarn_rotary_pos_embedding import YarnRotaryEmbedding
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.attention import SelfAttention
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules
from megatron.core.transformer.utils import is_layer_window_attention, make_sharded_tensors_for_checkpoint

from .batches import Lengths
from .batches import lengths as _lengths
from .errors import Error
from .layers import Kind, Model
from .plan import Plan
from .program import UNSET, Cluster, Program, Unset
from .program import program as _program
from .torch import Attention

_BATCH = "fcpc.megatron.get_batch_on_this_cp_rank(attn, plan, batch)"


# --- what a config says -----------------------------------------------------------------------------------------------

# Settings of a model that a plan cannot honour, with what it does then.
_UNKNOWN = {
    "multi_latent_attention": "rotates latent keys (MLA) by the rank's number",
    "experimental_attention_variant": "has layers that are no attention of this kind",
    "linear_attention_freq": "has layers that mix tokens by their place in the tensor",
    "is_hybrid_model": "has Mamba layers, which mix tokens by their place in the tensor",
    "heterogeneous_block_specs": "has layers of different shapes",
    "mtp_num_layers": "finds the tokens after the next (MTP) by their place in the tensor",
    "qk_clip": "asks attention for its largest logits",
    "log_max_attention_logit": "asks attention for its largest logits",
    "hybrid_context_parallel": "divides each sequence among another number of ranks",
    "fp8_dot_product_attention": "computes attention in FP8",
    "fp8_multi_head_attention": "computes attention in FP8",
}
# The same of a model with experts: what these compute is no sum over tokens, so it differs where a rank has a part.
_OF_EXPERTS = {
    "moe_aux_loss_coeff": "has a loss of its router, which is no sum over tokens",
    "moe_z_loss_coeff": "has a loss of its router, which is a mean over the tokens of a rank",
    "moe_expert_capacity_factor": "leaves out tokens of full experts, by how many tokens a rank has",
}


def _refuse(why: str) -> Error:
    return Error("E702", f"fcpc.megatron cannot compute this model: it {why}")


def _check_config(config: Any) -> None:
    """Refuses what a plan cannot honour (E203, E702)."""
    experts = _OF_EXPERTS if getattr(config, "num_moe_experts", None) and config.context_parallel_size > 1 else {}
    for name, why in {**_UNKNOWN, **experts}.items():
        value = getattr(config, name, None)
        if any(value) if isinstance(value, (list, tuple)) else value:
            raise _refuse(f"{why} ({name} = {value!r})")
    if config.attention_dropout:
        raise Error("E203", f"fcpc.megatron: attention_dropout is {config.attention_dropout}, and a plan has no "
                            "dropout: TransformerConfig(attention_dropout=0.0)")
    if getattr(config, "cuda_graph_impl", "none") != "none":
        raise Error("E203", f"fcpc.megatron: cuda_graph_impl = {config.cuda_graph_impl!r} repeats the plan of one "
                            "batch")
    if config.pipeline_model_parallel_size > 1 and not config.variable_seq_lengths:
        raise Error("E203", "fcpc.megatron: ranks and batches have different numbers of tokens, and stages of a "
                            "pipeline expect one: TransformerConfig(variable_seq_lengths=True)")
    if config.expert_model_parallel_size > 1 and config.moe_token_dispatcher_type == "allgather":
        raise Error("E203", "fcpc.megatron: ranks have different numbers of tokens, and moe_token_dispatcher_type = "
                            "'allgather' takes as many from each: 'alltoall' takes any")


def _kind(config: Any, layer_number: int) -> Kind:
    """The attention of a layer; layer_number counts from 1, as Megatron does."""
    if not is_layer_window_attention(config.window_size, config.window_attn_skip_freq, layer_number):
        return Kind()
    left, right = config.window_size
    if right not in (0, -1) or left < -1:
        raise _refuse(f"has window_size = {config.window_size}, and a causal window (left, 0) is known")
    return Kind() if left == -1 else Kind(window=left + 1)  # the token itself and `left` before it


def program(config: Any, *, cluster: Cluster | None = None, fields: Any = (), documents: str | None | Unset = UNSET,
            dtype: Any = None, mask: str | None = None, **plan: Any) -> Program:
    """Makes the program of a model of Megatron-core: each layer has the mask that its config says.

    config    a TransformerConfig, or a model that has one. heads and kv_heads are those of one tensor rank
    cluster   from fcpc.detect(parallel_state.get_context_parallel_group()), or an fcpc.Cluster; None: one rank
    fields    names of numbers that each batch brings for each of its tokens, as in fcpc.program
    documents name of the field that tells documents of a sequence apart, as reset_attention_mask does: see `documents`.
              Then no token sees another document. Sequences are separate always
    dtype     of q, k and v; None: bf16 or fp16 if the config says so, else its params_dtype
    mask      text of the language, such as "k <= last[q]": a condition that all layers' masks have in addition
    plan      other arguments of fcpc.program. heads, kv_heads, head_dim, scale, score and sink replace what the config
              says

    Layers are causal. With window_size = (left, 0) a token sees itself and the `left` tokens before it, in the layers
    that window_attn_skip_freq names; left = -1 is no window. softmax_type "off-by-one" and "learnable" are sinks.

    Errors: E702 and E203 (this config asks for something that a plan cannot do; the message names it), and those of
    fcpc.program.
    """
    config = getattr(config, "config", config)
    if not hasattr(config, "num_query_groups"):
        raise Error("E202", f"megatron.program: a TransformerConfig or its model is expected, this is a "
                            f"{type(config).__name__}")
    _check_config(config)
    if mask is not None and not isinstance(mask, str):
        raise Error("E202", f"megatron.program: mask is text of the language, and this is a {type(mask).__name__}")
    kinds = [_kind(config, number + 1) for number in range(config.num_layers)]
    known = tuple(dict.fromkeys(kinds))
    more = [f"{documents}[q] == {documents}[k]"] if isinstance(documents, str) else []
    masks = [" and ".join([kind.text(), *more, *([f"({mask})"] if mask else [])]) for kind in known]
    tensor = config.tensor_model_parallel_size
    shape = {"heads": config.num_attention_heads // tensor, "kv_heads": max(1, config.num_query_groups // tensor),
             "head_dim": config.kv_channels, "scale": config.softmax_scale or config.kv_channels ** -0.5}
    if config.softmax_type != "vanilla":
        shape["sink"] = 0.0
    if dtype is None:
        dtype = torch.bfloat16 if config.bf16 else torch.float16 if config.fp16 else config.params_dtype
    layers = tuple(known.index(kind) for kind in kinds)
    which: dict[str, Any] = {"mask": masks[0]} if len(masks) == 1 else {
        "layers": [(one, layers.count(number)) for number, one in enumerate(masks)]}
    made = _program(**which, fields=fields, cluster=cluster, documents=documents, dtype=dtype, **{**shape, **plan})
    made.model = Model("model of Megatron-core", known, layers, None)
    return made


# --- batches ----------------------------------------------------------------------------------------------------------

class PlannedSeqParams(PackedSeqParams):  # type: ignore[misc]
    """A plan, as a model of Megatron-core takes it: its `packed_seq_params`. `get_batch_on_this_cp_rank` makes it.

    plan          the plan; its `layers` are the plans of the masks
    attentions    what Attention.bind gave for each mask, in their order
    places        [tokens]: the place of each token of this process in its sequence, by which it is rotated
    position_ids  [1, tokens]: those of the batch, or else the positions in documents
    tokens        how many tokens of this micro-batch count in the loss, on all ranks of the context-parallel group
    seen          whether GPTModel has been called with it
    """

    def __init__(self, attn: Attention, plan: Plan, places: torch.Tensor, position_ids: torch.Tensor,
                 tokens: torch.Tensor | None) -> None:
        super().__init__(qkv_format="fcpc")  # an attention that knows no plans must not take it for one of its own
        self.plan, self.places, self.position_ids, self.tokens = plan, places, position_ids, tokens
        self.attentions = tuple(attn.bind(plan, number) for number in range(len(plan.layers)))
        self.seen = False


def documents(tokens: torch.Tensor, eod: int) -> torch.Tensor:
    """The number of the document of each token in its sequence, as reset_attention_mask divides them: the token `eod`
    is the last of its document. [b, s] becomes [b, s]: a field for prog.plan, flattened."""
    ends = (tokens == eod).long()
    return ends.cumsum(-1) - ends


def lengths(batch: Mapping[str, Any]) -> Lengths:
    """The lengths of the sequences of one of Megatron's batches, for prog.ahead(loader, of=fcpc.megatron.lengths).

    batch   has `tokens`, [b, s]: b sequences of s tokens. With `cu_seqlens`, [1, n + 1], the one row is packed from n
            sequences. With `cu_seqlens_padded` these sequences have padding at their ends, which later tokens alone
            could see, and there are none in a sequence
    """
    tokens = batch["tokens"]
    if tokens.dim() != 2:
        raise Error("E701", f"megatron.lengths: tokens are {list(tokens.shape)}, and [b, s] is expected")
    padded = batch.get("cu_seqlens_padded")
    cu_seqlens = batch.get("cu_seqlens") if padded is None else padded
    if cu_seqlens is None:
        return Lengths([tokens.shape[1]] * tokens.shape[0])
    if tokens.shape[0] != 1:
        raise Error("E701", f"megatron.lengths: cu_seqlens are of one packed row, and tokens are {list(tokens.shape)}")
    return _lengths(cu_seqlens.reshape(-1).long())


def get_batch_on_this_cp_rank(attn: Attention, plan: Plan, batch: Mapping[str, Any]) -> dict[str, Any]:
    """This rank's part of a batch, by a plan. It takes the place of Megatron's function of the same name.

    attn   the fcpc.torch.Attention of the program, over the context-parallel group
    plan   a plan of the batch: prog.plan(fcpc.megatron.lengths(batch))
    batch  what a dataset of Megatron gives, each [b, s]: tokens; labels, shifted as they are there; loss_mask;
           position_ids. All but tokens may be missing or None. So may be attention_mask, which must, because the mask
           is the program's

    The result has tokens, labels, loss_mask and position_ids, each [1, tokens of this rank] in the plan's order, and
    packed_seq_params, which has the plan.

    Errors: E701 (a mask, a tensor of another shape, lengths that are not the plan's), E203 (the plan is of another
    program), E209 (no tokens).
    """
    if not isinstance(plan, Plan):
        raise Error("E203", f"megatron: a plan is expected, and this is a {type(plan).__name__}")
    if not isinstance(attn, Attention):
        raise Error("E203", f"megatron: an fcpc.torch.Attention is expected, and this is a {type(attn).__name__}")
    if batch.get("tokens") is None:
        raise Error("E209", "megatron: the batch has no tokens")
    if batch.get("attention_mask") is not None:
        raise Error("E701", "megatron: the batch has an attention_mask, and the mask is the program's. A dataset makes "
                            "none with create_attention_mask=False (--no-create-attention-mask-in-dataloader); "
                            "documents that see themselves alone are a field: fcpc.megatron.documents(tokens, eod)")
    tokens, its = batch["tokens"], lengths(batch)
    if len(its.keys) != plan.sequences or sum(its.keys) != plan.global_tokens:
        raise Error("E701", f"megatron: the batch has {len(its.keys)} sequences, of {sum(its.keys)} tokens together, "
                            f"and the plan {plan.sequences} of {plan.global_tokens}: "
                            "prog.plan(fcpc.megatron.lengths(batch))")
    made: dict[str, Any] = {"labels": None, "loss_mask": None}
    for name in ("tokens", "labels", "loss_mask", "position_ids"):
        x = batch.get(name)
        if x is None:
            continue
        if x.shape != tokens.shape:
            raise Error("E701", f"megatron: {name} are {list(x.shape)}, and tokens {list(tokens.shape)}")
        made[name] = plan.take(x.reshape(-1))[None]
    if "position_ids" not in made:
        made["position_ids"] = plan.positions(tokens)[None]
    begins = torch.tensor([0, *its.keys]).cumsum(0)[:-1].repeat_interleave(torch.tensor(its.keys))
    places = plan.take(torch.arange(plan.global_tokens) - begins).to(tokens.device)
    mask = batch.get("loss_mask")
    made["packed_seq_params"] = PlannedSeqParams(attn, plan, places, made["position_ids"],
                                                 None if mask is None else mask.sum())
    return made


def inputs(batch: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of GPTModel: model(**fcpc.megatron.inputs(batch)), where `batch` is what
    `get_batch_on_this_cp_rank` gave. With labels the model returns the loss of each token, [1, tokens]."""
    return {"input_ids": batch["tokens"], "position_ids": batch["position_ids"], "attention_mask": None,
            "labels": batch["labels"], "packed_seq_params": batch["packed_seq_params"]}


def loss_func(config: Any, batch: Mapping[str, Any], output_tensor: torch.Tensor) -> tuple[Any, ...]:
    """What Megatron's schedules take as the result of a loss_func, functools.partial(loss_func, config, batch).

    config         the model's TransformerConfig
    batch          what `get_batch_on_this_cp_rank` gave, with a loss_mask
    output_tensor  [1, tokens]: the loss of each token, from the model

    With calculate_per_token_loss it is (sum of this rank's losses, its number of tokens, report): Megatron divides by
    the tokens of all ranks and micro-batches. Without it, it is (sum of this rank's losses over the tokens of this
    micro-batch on all ranks of the context-parallel group, report): Megatron's schedule takes that times their number,
    and its DDP the mean over them. A mean over the tokens of one rank, as Megatron's own examples return it, would be
    another loss, because ranks have different numbers of tokens. report is {"lm loss": [sum, tokens]} of this rank,
    which are to be summed over the ranks.

    Errors: E209 (no loss_mask).
    """
    params, mask = batch["packed_seq_params"], batch["loss_mask"]
    if mask is None or params.tokens is None:
        raise Error("E209", "megatron: the batch has no loss_mask, which says what tokens count in the loss")
    total = (output_tensor.float() * mask).sum()
    report = {"lm loss": torch.stack([total.detach(), mask.sum().to(total)])}
    if config.calculate_per_token_loss:
        return total, mask.sum().int(), report
    return total / params.tokens.to(total).clamp(min=1), report


# --- attention --------------------------------------------------------------------------------------------------------

class CoreAttention(MegatronModule):  # type: ignore[misc]
    """The core_attention of a layer spec: attention by the plan that the model was given. Parameters and checkpoints
    are those of Megatron's DotProductAttention.

    It refuses what a plan cannot honour: E203 (dropout, a bias, a mask type that is not causal, another scale or
    window), E701 (a mask, a batch dimension), E702 (attention that is no self-attention), E209 (no plan).
    """

    def __init__(self, config: Any, layer_number: int, attn_mask_type: AttnMaskType, attention_type: str,
                 attention_dropout: float | None = None, softmax_scale: float | None = None,
                 cp_comm_type: str | None = None, pg_collection: Any = None, **more: Any) -> None:
        super().__init__(config=config)
        _check_config(config)
        if attention_type != "self":
            raise _refuse(f"has attention of the type '{attention_type}', and a plan is of self-attention")
        if attention_dropout:
            raise Error("E203", f"fcpc.megatron: attention_dropout is {attention_dropout}, and a plan has no dropout")
        for name, value in more.items():
            if value is not None:
                raise _refuse(f"makes its attention with {name} = {value!r}")
        _check_mask_type(attn_mask_type)
        self.layer_number, self.attn_mask_type = max(1, layer_number), attn_mask_type
        self.tp_group = None if pg_collection is None else pg_collection.tp
        self.softmax_scale = softmax_scale or config.softmax_scale or config.kv_channels ** -0.5
        heads = config.num_attention_heads // config.tensor_model_parallel_size
        made: dict[str, Any] = {"dtype": config.params_dtype,
                                "device": "cpu" if config.use_cpu_initialization else torch.cuda.current_device()}
        self.softmax_offset: torch.Tensor | None = None
        if config.softmax_type == "off-by-one":
            self.softmax_offset = torch.zeros(heads, **made)
        elif config.softmax_type == "learnable":
            del self.softmax_offset
            self.register_parameter("softmax_offset", torch.nn.Parameter(torch.empty(heads, **made)))
            if config.perform_initialization:
                config.init_method(self.softmax_offset)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                attention_mask: torch.Tensor | None = None, attn_mask_type: AttnMaskType | None = None,
                attention_bias: torch.Tensor | None = None,
                packed_seq_params: PackedSeqParams | None = None) -> torch.Tensor:
        """query [tokens, 1, heads, head_dim], key and value [tokens, 1, kv_heads, head_dim], in the plan's order, of
        this tensor rank's heads; the result is [tokens, 1, heads * head_dim]."""
        params = packed_seq_params
        if not isinstance(params, PlannedSeqParams):
            raise Error("E209", "this model attends by fcpc, and its call names no plan: packed_seq_params is what "
                                f"{_BATCH} gives" + ("" if params is None else
                                ". Of a packed batch fcpc.megatron.lengths(batch) are the lengths of its sequences"))
        if not params.seen:
            raise Error("E702", "fcpc.megatron: this is no GPTModel, or it overrides _preprocess: what rotates tokens, "
                                "or mixes them by their places in the tensor, does not know the plan")
        if attention_mask is not None:
            raise Error("E701", "fcpc.megatron: the model was given an attention_mask, and the mask is the program's")
        if attention_bias is not None:
            raise Error("E203", "fcpc.megatron: the model has an attention_bias, and a plan has none: the score of a "
                                "program may read a table")
        if query.dim() != 4 or query.shape[1] != 1:
            raise Error("E701", f"fcpc.megatron: query is {list(query.shape)}, and [tokens, 1, heads, head_dim] is "
                                "expected: sequences are packed end to end")
        _check_mask_type(self.attn_mask_type if attn_mask_type is None else attn_mask_type)
        plan = params.plan
        if abs(self.softmax_scale - plan.scale) > 1e-6 * abs(plan.scale):
            raise Error("E203", f"fcpc.megatron: the model scales by {self.softmax_scale}, and the plan by "
                                f"{plan.scale}: fcpc.megatron.program(config) takes it from the config")
        model = None if plan.program is None else plan.program.model
        number = 0 if model is None else model.layers[self.layer_number - 1]
        sink = None if self.softmax_offset is None else self.softmax_offset.to(query.device).float()
        o = params.attentions[number](query[:, 0], key[:, 0], value[:, 0], sink)
        return o.flatten(1)[:, None]

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: tuple[tuple[int, int, int], ...] = (),
                           metadata: dict[str, Any] | None = None) -> Any:
        """As DotProductAttention has it: learnable sinks are divided as heads are."""
        state = self.state_dict(prefix="", keep_vars=True) if self.config.softmax_type == "learnable" else {}
        return make_sharded_tensors_for_checkpoint(state, prefix, {"softmax_offset": 0}, sharded_offsets,
                                                   tp_group=self.tp_group, dp_cp_group=(metadata or {})["dp_cp_group"])


def _check_mask_type(kind: AttnMaskType) -> None:
    """The program has the mask. A layer that says it needs another than a causal one would get a wrong one."""
    if kind not in (AttnMaskType.causal, AttnMaskType.padding_causal, AttnMaskType.arbitrary):
        raise Error("E203", f"fcpc.megatron: a layer has the attn_mask_type {kind.name}, and the program is causal")


def layer_spec(spec: Any) -> Any:
    """A copy of a layer spec, or of the specs of a block, whose self-attention has CoreAttention.

    spec   a ModuleSpec, such as get_gpt_layer_local_spec() gives, or TransformerBlockSubmodules

    Errors: E702 (a layer that is no TransformerLayer with SelfAttention: MLA, Mamba, cross attention).
    """
    if isinstance(spec, TransformerBlockSubmodules):
        return dataclasses.replace(spec, layer_specs=[layer_spec(one) for one in spec.layer_specs])
    if not isinstance(spec, ModuleSpec):
        raise Error("E202", f"megatron.layer_spec: a ModuleSpec is expected, and this is a {type(spec).__name__}")
    parts: Any = spec.submodules
    if isinstance(parts, TransformerBlockSubmodules):
        return dataclasses.replace(spec, submodules=layer_spec(parts))
    attention: Any = getattr(parts, "self_attention", None)
    its = getattr(attention, "module", None)
    if not isinstance(parts, TransformerLayerSubmodules) or attention is None or \
            not (isinstance(its, type) and issubclass(its, SelfAttention)):
        raise _refuse(f"has a layer of {getattr(its or spec.module, '__name__', its)}, and SelfAttention is expected")
    inner: Any = dataclasses.replace(attention.submodules, core_attention=CoreAttention)
    return dataclasses.replace(spec, submodules=dataclasses.replace(
        parts, self_attention=dataclasses.replace(attention, submodules=inner)))


# --- models -----------------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=64)
def _has_sinks(of: Program) -> bool:
    return re.search(r"^\s*sink = ", of.text, re.MULTILINE) is not None


def _uneven(counts: Iterable[int], tensor: int) -> int | None:
    """The first rank whose tokens cannot be divided among the tensor ranks."""
    return next((rank for rank, tokens in enumerate(counts) if tokens % tensor), None)


def _check_model(model: Any, params: PlannedSeqParams, input_ids: Any, position_ids: Any, decoder_input: Any) -> None:
    """Checks that the model is one that a plan can compute, that the plan is one of its program, and that the tokens
    and positions are those of the plan. All ranks come to the same result."""
    config, plan = model.config, params.plan
    _check_config(config)
    ranks = plan.ranks // len(plan.here)
    if ranks != config.context_parallel_size:
        raise Error("E203", f"fcpc.megatron: the plan divides tokens among {ranks} processes, and "
                            f"context_parallel_size is {config.context_parallel_size}: cluster=fcpc.detect("
                            "parallel_state.get_context_parallel_group())")
    kinds = [_kind(config, number + 1) for number in range(config.num_layers)]
    its = None if plan.program is None else plan.program.model
    if its is None and (len(plan.layers) > 1 or set(kinds) != {Kind()}):
        raise Error("E203", f"fcpc.megatron: layers have {' and '.join(k.words() for k in dict.fromkeys(kinds))}, and "
                            f"the program {len(plan.layers)} masks, of which nothing says whose they are: "
                            "fcpc.megatron.program(config) makes one that does")
    if its is not None and (len(plan.layers) != len(its.kinds) or [its.kinds[i] for i in its.layers] != kinds):
        raise Error("E203", "fcpc.megatron: the program is of a model with other layers or windows: "
                            "fcpc.megatron.program(config) with the model's own config")
    sinks = None if plan.program is None else _has_sinks(plan.program)
    if sinks is not None and sinks != (config.softmax_type != "vanilla"):
        raise Error("E203", f"fcpc.megatron: softmax_type is '{config.softmax_type}', and the program has "
                            f"{'a sink' if sinks else 'no sink'}: fcpc.megatron.program(config)")
    kind = model.position_embedding_type
    if kind not in ("learned_absolute", "rope", "yarn", "none") or kind in ("rope", "yarn") and \
            type(model.rotary_pos_emb) not in (RotaryEmbedding, YarnRotaryEmbedding):
        raise _refuse(f"has positions of the type '{kind}', which it divides among ranks by their numbers")
    counts = plan._all_queries("fcpc.megatron")
    if 0 in counts and ranks > 1:
        raise Error("E203", f"fcpc.megatron: rank {counts.index(0)} has no token of this batch, and the layers of "
                            "Megatron compute nothing without one: a smaller block=, fewer ranks, or larger batches")
    tensor = config.tensor_model_parallel_size
    if config.sequence_parallel and ranks > 1 and (rank := _uneven(counts, tensor)) is not None:
        raise Error("E203", f"fcpc.megatron: rank {rank} has {counts[rank]} tokens, and sequence_parallel divides them "
                            f"among {tensor} tensor ranks: pad each sequence to a multiple of {tensor}, and let block= "
                            "be one")
    if position_ids is None or position_ids.shape != params.position_ids.shape or \
            not torch.equal(position_ids, params.position_ids.to(position_ids.device)):
        raise Error("E701", f"fcpc.megatron: position_ids are not those of the plan's tokens: {_BATCH} has them")
    if input_ids is not None and input_ids.shape != (1, plan.tokens):
        raise Error("E701", f"fcpc.megatron: input_ids are {list(input_ids.shape)}, and the plan has {plan.tokens} "
                            f"tokens here: {_BATCH}")
    if decoder_input is not None:
        raise _refuse("is given decoder_input, whose rows nobody has put in the plan's order")


def _preprocessing(preprocess: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method by which a GPTModel begins each pass."""
    @functools.wraps(preprocess)
    def preprocessing(self: Any, input_ids: Any, position_ids: Any, decoder_input: Any = None,
                      inference_context: Any = None, packed_seq_params: Any = None, padding_mask: Any = None) -> Any:
        if isinstance(packed_seq_params, PlannedSeqParams):
            if inference_context is not None:
                raise Error("E702", "fcpc.megatron: a plan has the keys of its batch alone, and no cache of others "
                                    "(inference_context)")
            _check_model(self, packed_seq_params, input_ids, position_ids, decoder_input)
            packed_seq_params.seen = True
        return preprocess(self, input_ids, position_ids, decoder_input=decoder_input,
                          inference_context=inference_context, packed_seq_params=packed_seq_params,
                          padding_mask=padding_mask)
    return preprocessing


def _asking(get_rotary_seq_len: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method that says how many tokens are rotated. With a plan it says which: its result goes to the call
    below as max_seq_len, and to nothing else."""
    @functools.wraps(get_rotary_seq_len)
    def asking(self: Any, inference_context: Any, transformer: Any, transformer_input: Any, transformer_config: Any,
               packed_seq_params: Any = None, **more: Any) -> Any:
        if isinstance(packed_seq_params, PlannedSeqParams):
            return packed_seq_params
        return get_rotary_seq_len(self, inference_context, transformer, transformer_input, transformer_config,
                                  packed_seq_params, **more)
    return asking


def _rotating(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the call of rotary embeddings: [tokens, 1, 1, dim] of the plan's tokens, in the plan's order."""
    @functools.wraps(call)
    def rotating(self: Any, max_seq_len: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(max_seq_len, PlannedSeqParams):
            return call(self, max_seq_len, *args, **kwargs)
        places = max_seq_len.places
        made = self.get_emb(int(places.max()) + 1 if len(places) else 1)
        if isinstance(made, tuple):  # YaRN has a factor beside it
            return made[0][places.to(made[0].device)], *made[1:]
        return made[places.to(made.device)]
    return rotating


GPTModel._preprocess = _preprocessing(GPTModel._preprocess)
RotaryEmbedding.get_rotary_seq_len = _asking(RotaryEmbedding.get_rotary_seq_len)
RotaryEmbedding.__call__ = _rotating(RotaryEmbedding.__call__)
