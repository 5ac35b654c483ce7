"""hf.py: lets models of Hugging Face's transformers compute their attention by a plan.

    import fcpc.hf                                       # registers "fcpc" with transformers
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fcpc")
    prog = fcpc.hf.program(model, cluster=fcpc.detect(group))
    attn = Attention(prog, group=group)
    for batch, plan in prog.ahead(loader):
        loss = model(**fcpc.hf.inputs(attn, plan, batch.tokens, batch.labels)).loss

A model passes the keyword `fcpc` on to each of its layers, and with it the plan. So nothing here keeps state. The batch
dimension is 1, because sequences are packed end to end.

Every layer compares what the model asks for with what the plan does, and any difference is an error. A layer cannot see
some differences: labels, a model that keeps only the last logits, images, another attention function. So the import
also wraps three methods of transformers' classes and their loss, below. Calls without `fcpc=` behave as before.
"""
from __future__ import annotations

import functools
import inspect
import re
import sys
import weakref
from typing import Any, Callable, Optional

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss

from . import mixers
from .errors import Error
from .forest import Forest
from .layers import Kind, Model
from .plan import Plan
from .program import UNSET, Cluster, Program, Unset
from .program import program as _program
from .torch import Attention, BoundAttention

NAME = "fcpc"
_OTHER = 'a model is made with attn_implementation="fcpc", or gets it by model.set_attn_implementation("fcpc")'
_ASK = "fcpc.hf.program(model) takes it from the model's config"

# What a model may hand to its attention besides what `attention` names, and what changes nothing that a plan computes.
_HARMLESS = frozenset(("position_embeddings", "cache_position", "use_cache", "output_hidden_states", "return_dict",
                       "num_items_in_batch", "shift_labels", "layer_idx", "layer_type", "past_key_values",
                       "output_router_logits"))


# --- what a config says -----------------------------------------------------------------------------------------------

# Settings that say: this model has another attention than the language or this file knows.
_UNKNOWN = {
    "alibi": "adds a bias by distance (ALiBi) to its scores",
    "attn_temperature_tuning": "scales queries by their place in the tensor",
    "block_configs": "has layers of different shapes",
    "index_topk": "chooses keys by an indexer",
}
# In a config that does not say what each layer is, settings that say: some mix tokens by their place in the tensor.
_MIXERS = ("conv_L_cache", "hybrid_override_pattern", "linear_num_value_heads", "lru_width", "mamba_d_ssm",
           "mamba_d_state", "ssm_state_size", "state_size")
# Models whose layers learn sinks, which their configs do not say.
_SINKS = {"gpt_oss", "flint", "granite_swa", "granitemoe_swa"}


def _get(config: Any, name: str, default: Any = None) -> Any:
    """A setting. A config whose layers differ refuses to give some of its settings; then that of layer 0 is taken."""
    try:
        return getattr(config, name, default)
    except RuntimeError:
        return getattr(config.per_layer_config[0], name, default)


def _types(config: Any) -> list[str] | None:
    """The type of each layer; None: the config does not list them, so all are alike."""
    found: list[str] | None = _get(config, "layer_types") or _get(config, "layers_block_type")
    return found or _get(config, "block_types")


def _layers(config: Any) -> list[Any]:
    """The config of each layer. Most models have one for all."""
    if getattr(config, "is_heterogeneous", False):
        return list(config.per_layer_config)
    types = _types(config)
    count = len(types) if types else _get(config, "num_hidden_layers")
    return [config] * (count if isinstance(count, int) else 0)


def _refuse(config: Any, why: str) -> Error:
    return Error("E702", f"fcpc cannot compute {_get(config, 'model_type') or type(config).__name__}: {why}")


def _by_place(config: Any, number: int, kind: str) -> Error:
    """The error about a layer that mixes tokens otherwise than by attention."""
    why = mixers.REFUSED.get(_get(config, "model_type"))
    return _refuse(config, f"layer {number} is {kind}, which mixes tokens by their place in the tensor, and a plan has "
                           f"them in another order" + (f": {why}" if why else
                                                       f". fcpc.hf has that of {', '.join(mixers.MIXERS)}"))


def _kinds(config: Any) -> list[Kind | None]:
    """The attention of each layer, or an error that names what a plan cannot compute (E702). None: the layer has no
    attention."""
    types, kinds = _types(config), list[Optional[Kind]]()
    mixed = _get(config, "model_type") in mixers.MIXERS
    if types is None and _get(config, "model_type") in mixers.REFUSED:
        raise _refuse(config, mixers.REFUSED[_get(config, "model_type")])
    for number, layer in enumerate(_layers(config)):
        window = _get(layer, "sliding_window") if _get(layer, "use_sliding_window", True) else None
        chunk = _get(layer, "attention_chunk_size")
        kind = types[number] if types else "sliding_attention" if window is not None else \
            "chunked_attention" if chunk else "full_attention"
        if kind in mixers.ALONE or mixed and kind in mixers.MIXED - mixers.BOTH:
            kinds.append(None)
        elif kind in ("full_attention", "attention") or mixed and kind in mixers.BOTH:
            kinds.append(Kind())
        elif kind == "sliding_attention" and window is not None:
            kinds.append(Kind(window=int(window)))
        elif kind == "chunked_attention" and chunk is not None:
            kinds.append(Kind(chunk=int(chunk)))
        elif kind in mixers.MIXED or kind == "hybrid_sliding":
            raise _by_place(config, number, kind)
        else:
            raise _refuse(config, f"layer {number} is {kind}, which is no attention that fcpc.hf knows")
    if kinds and not any(kinds):
        raise _refuse(config, "no layer has attention, by which tokens could be placed")
    others = {} if types else dict.fromkeys(_MIXERS, "has layers that mix tokens by their place in the tensor")
    for name, why in {**_UNKNOWN, **others}.items():
        if _get(config, name):
            raise _refuse(config, f"it {why} ({name} = {_get(config, name)!r})")
    if _get(config, "is_encoder_decoder"):
        raise _refuse(config, "it has an encoder and a decoder")
    if _get(config, "is_causal", True) is False or _get(config, "use_bidirectional_attention") in (True, "all"):
        raise _refuse(config, "its attention looks in both directions (is_causal, use_bidirectional_attention)")
    return kinds


def _text_config(config: Any) -> Any:
    config = getattr(config, "config", config)  # of a model
    try:
        return config.get_text_config()
    except (AttributeError, ValueError) as error:
        raise Error("E202", f"a config of transformers with one text model, or its model, is expected; this is a "
                            f"{type(config).__name__}: {error}") from None


def _shape(config: Any) -> dict[str, Any]:
    """heads, kv_heads, head_dim, value_dim and scale, as fcpc.program takes them."""
    found = [_shape_of(config, layer) for layer in _layers(config)]
    for number, other in enumerate(found):
        for name, value in other.items():
            if value != found[0][name]:
                raise _refuse(config, f"layer {number} has {name} = {value} and layer 0 {found[0][name]}, and a "
                                      f"program has one {name}")
    return found[0]


def _shape_of(config: Any, layer: Any) -> dict[str, Any]:
    heads = _get(layer, "num_attention_heads")
    if not isinstance(heads, int):
        raise _refuse(config, f"num_attention_heads is {heads!r}, and a program has one number of heads")
    dim = _get(layer, "head_dim") or layer.hidden_size // heads
    shape = {"heads": heads, "kv_heads": _get(layer, "num_key_value_heads") or heads, "head_dim": dim}
    latent = _get(layer, "qk_nope_head_dim") is not None  # then each head has keys and values of its own
    if latent:
        dim = layer.qk_nope_head_dim + layer.qk_rope_head_dim
        shape.update(kv_heads=heads, head_dim=dim)
    if _get(layer, "v_head_dim"):
        shape["value_dim"] = layer.v_head_dim
    scale = dim ** -0.5
    if _get(layer, "query_pre_attn_scalar") is not None:
        scale = layer.query_pre_attn_scalar ** -0.5
    elif _get(layer, "attention_multiplier") is not None:
        scale = layer.attention_multiplier
    elif latent:
        scale *= _yarn(layer)
    return {**shape, "scale": float(scale)}


def _yarn(config: Any) -> float:
    """The factor of the scale in models with latent attention (MLA) whose context is extended by YaRN."""
    if not _get(config, "rope_parameters"):  # it rotates nothing
        return 1.0
    try:
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale
    except ImportError:
        return 1.0
    return float(yarn_apply_mscale(config.rope_parameters, 1.0))  # type: ignore[no-untyped-call]


def _reach(config: Any) -> int | None:
    """Returns the position from which on the rotation of a token (RoPE) depends on other tokens; None: it never does.
    With the rope types dynamic and longrope a model takes the largest position in its tensor. If that is this position
    or a later one, it rotates all tokens otherwise. In a process the tensor has only the tokens of the process."""
    said = _get(config, "rope_parameters") or {}
    found = []
    for one in [said] if "rope_type" in said else said.values():
        if isinstance(one, dict) and one.get("rope_type") in ("dynamic", "longrope"):
            name = "original_max_position_embeddings"
            found += [one.get(name), _get(config, name), _get(config, "max_position_embeddings")]
    return min((int(limit) for limit in found if limit), default=None)


def _scale_and_sinks(config: Any, text: Any) -> dict[str, float]:
    """The scale and the sinks of the layers, from the model, or else from its name."""
    found = {"sink": 0.0} if text.model_type in _SINKS else {}
    for module in config.modules() if isinstance(config, PreTrainedModel) else ():
        if not hasattr(module, "layer_idx") or getattr(module, "config", None) is not text:
            continue
        if getattr(module, "sinks", None) is not None:
            found["sink"] = 0.0
        scale = getattr(module, "scaling", None)
        if isinstance(scale, (int, float)) and found.setdefault("scale", float(scale)) != scale:
            raise _refuse(text, f"layer {module.layer_idx} has scale = {scale} and one before it {found['scale']}, and "
                                "a program has one scale")
    return found


def program(config: Any, *, cluster: Cluster | None = None, fields: Any = (),
            documents: str | None | Unset = UNSET, dtype: Any = None, mask: str | None = None, forest: bool = False,
            **plan: Any) -> Program:
    """Makes the program of a model of transformers: each layer has the mask that its config says.

    config    a config, or a model, of which the `config` is read. In a model of several parts it is that of the text
              model: from_pretrained(name, attn_implementation={"text_config": "fcpc"})
    cluster   from fcpc.detect, or an fcpc.Cluster; None: one rank
    fields    names of numbers that each batch brings for each of its tokens, as in fcpc.program
    documents name of the field that tells documents of a sequence apart, as in fcpc.program. Then no token sees
              another document. Sequences are separate always
    dtype     of q, k and v; None: that of the model, or of the config
    mask      text of the language, such as "k <= last[q]": a condition that all layers' masks have in addition
    forest    True: batches are forests of rollouts (fcpc.forest), whose fields `last` and `at` the masks read; windows
              and chunks count positions of a rollout. `inputs` takes the forest, and the model gives logits
    plan      other arguments of fcpc.program. heads, kv_heads, head_dim, value_dim, scale, score and sink replace
              what the config says

    Layers of the same kind share a mask. Layers that mix tokens otherwise are part of the program, too, in models whose
    modules let a state in: fcpc.mixers lists these, and why others do not. Kinds are full_attention, sliding_attention
    (a token sees itself and the sliding_window - 1 before it) and chunked_attention. The score is the config's
    attn_logit_softcapping. Some configs do not say that their model learns sinks or has a scale of its own: then pass
    the model in place of its config.

    Errors: E702 (this model does something else than attention of these kinds; the message names it), and those of
    fcpc.program.
    """
    text = _text_config(config)
    kinds = _kinds(text)
    if isinstance(config, PreTrainedModel):
        _usable(type(config))
    known = tuple(dict.fromkeys(kind for kind in kinds if kind is not None))
    apart = documents if isinstance(documents, str) else None
    if apart and any(kind.chunk is not None for kind in known):
        raise Error("E203", "hf.program: attention in chunks counts from the begin of a document: give each document a "
                            "sequence of its own, without documents=")
    if forest and apart:
        raise Error("E203", "hf.program: in a forest each rollout is a document of its own: leave documents= out")
    if mask is not None and not isinstance(mask, str):
        raise Error("E202", f"hf.program: mask is text of the language, and this is a {type(mask).__name__}")
    more = ([f"{apart}[q] == {apart}[k]"] if apart else []) + ([f"({mask})"] if mask else [])
    masks = [" and ".join([kind.text(forest), *more]) for kind in known]
    if forest:
        fields = _of_forests(fields, known)
    softcap = _get(text, "attn_logit_softcapping")
    if softcap is not None and plan.get("score") is None:
        plan["score"] = f"softcap(c = {float(softcap)!r})"
    if dtype is None:
        dtype = getattr(config, "dtype", None) or getattr(text, "dtype", None) or torch.get_default_dtype()
    layers = tuple(-1 if kind is None else known.index(kind) for kind in kinds)
    beside = mixers.layers_of(text, _types(text) or []) if text.model_type in mixers.MIXERS else []
    if forest and beside:
        raise _refuse(text, "layers that recur go along a sequence, and a forest's branches stand one behind the other "
                            "in it")
    which: dict[str, Any] = {"mask": masks[0]} if len(masks) == 1 and not beside else {
        "layers": [*((one, layers.count(number)) for number, one in enumerate(masks)), *beside]}
    of_layers = {**_shape(text), **_scale_and_sinks(config, text)}
    made = _program(**which, fields=fields, cluster=cluster, documents=documents, dtype=dtype, **{**of_layers, **plan})
    made.model = Model(text.model_type, known, layers, None if softcap is None else float(softcap), _reach(text),
                       forest)
    return made


def _of_forests(fields: Any, known: tuple[Kind, ...]) -> Any:
    """The fields of a program, and those by which masks know a forest."""
    names = ["last", "at"] if any(kind != Kind() for kind in known) else ["last"]
    if isinstance(fields, str) or not hasattr(fields, "__iter__"):
        return fields  # which is an error that fcpc.program explains
    taken = [name for name in names if name in fields]
    if taken:
        raise Error("E203", f"hf.program: the field '{taken[0]}' is the forest's: give yours another name")
    return {**fields, **dict.fromkeys(names, "given")} if hasattr(fields, "items") else [*fields, *names]


# --- a plan for a model -----------------------------------------------------------------------------------------------

class BoundModel:
    """What `bind` gives: the attention of each layer of a model, of one plan.

    plan        the plan; its `layers` are the plans of the masks
    attentions  what Attention.bind gave for each mask, in their order
    model       what the program knows of the model; None: it was not made by fcpc.hf.program
    positions   position_ids must be equal to these, [..., tokens]; None: they are not compared
    sinks       whether the program has sinks
    """

    def __init__(self, plan: Plan, attentions: tuple[BoundAttention, ...], positions: torch.Tensor | None) -> None:
        self.plan, self.attentions, self.positions = plan, attentions, positions
        of = plan.program
        self.model: Model | None = None if of is None else of.model
        self.sinks = None if of is None else _has_sinks(of)
        self.attended = False  # has any layer asked?
        self.labels: int | None = None  # how many the batch has, of `inputs`
        self.config: Any = None  # that of the model, once its layers have been found to be alike
        self._compared: tuple[weakref.ref[torch.Tensor], int] | None = None

    def compare(self, position_ids: torch.Tensor | None) -> None:
        """Checks that each token has the position that the model was given. All layers of a pass have the same tensor,
        so it is compared once."""
        if self.positions is None:
            return
        if position_ids is None:
            raise Error("E701", "attention: the model hands no position_ids to its layers, so they cannot be compared "
                                "with the plan. positions=False, of fcpc.hf.inputs and bind, says that they are right")
        version = None if position_ids.is_inference() else position_ids._version  # None: changes are not counted
        if self._compared is not None and version is not None:
            last, then = self._compared
            if last() is position_ids and then == version:
                return
        _compare(position_ids, self.positions)
        self._compared = None if version is None else (weakref.ref(position_ids), version)


_with_sinks: weakref.WeakKeyDictionary[Program, bool] = weakref.WeakKeyDictionary()


def _has_sinks(of: Program) -> bool:
    if of not in _with_sinks:
        _with_sinks[of] = re.search(r"^\s*sink = ", of.text, re.MULTILINE) is not None
    return _with_sinks[of]


def _idle(plan: Plan) -> int | None:
    """The first rank without tokens, if ranks are processes; None: there is none. All ranks find the same one."""
    if len(plan.here) != 1 < plan.ranks:
        return None if plan.tokens else plan.here.start
    queries = plan._all_queries("hf.bind")
    return next((rank for rank, tokens in enumerate(queries) if not tokens), None)


def bind(attn: Attention, plan: Plan, positions: Any = None) -> BoundModel:
    """Makes what a model takes as `fcpc=`, with the attention of each of its layers.

    attn       the fcpc.torch.Attention of the program
    plan       a plan of the program
    positions  what the model's position_ids must be: a tensor whose last dimension is the tokens of this process.
               None: plan.positions(). If position ids have several planes, such as [3, 1, tokens] in models that see
               images, pass a tensor with the same planes. False: they are not compared; a step that a CUDA graph
               captures needs this

    If a program has several masks, only one made by `program` knows which layer has which; any other is E203. Models
    of transformers cannot compute without tokens, so each process must have some (else E203, on all of them).
    """
    return _bind(attn, plan, positions, None if positions is None or positions is False else positions)


def _bind(attn: Attention, plan: Plan, positions: Any, known: torch.Tensor | None) -> BoundModel:
    """known: positions of the batch, as many as this process knows, if they are not the plan's."""
    if not isinstance(plan, Plan):
        raise Error("E203", f"hf.bind: a plan is expected, and this is a {type(plan).__name__}")
    model = None if plan.program is None else plan.program.model
    if model is None and len(plan.layers) > 1:
        raise Error("E203", f"hf.bind: the plan has {len(plan.layers)} masks, and nothing says which layer of a model "
                            "has which: fcpc.hf.program(model) makes a program that does")
    if model is not None and len(plan.layers) != len(model.kinds):
        raise Error("E203", f"hf.bind: this is the plan of one of the {len(model.kinds)} masks of the program alone")
    idle = _idle(plan)
    if idle is not None:
        raise Error("E203", f"hf.bind: rank {idle} has no token of this batch, and models of transformers compute "
                            "nothing without one: a smaller block=, fewer ranks, or larger batches")
    if model is not None and model.reach is not None and len(plan.here) < plan.ranks:
        furthest = plan._furthest("hf.bind") if known is None else int(known.max())
        if furthest >= model.reach:
            raise Error("E702", f"hf.bind: a document goes to position {furthest}. From {model.reach} on a "
                                f"{model.name} rotates all tokens by what the furthest position is (rope_type dynamic "
                                "or longrope), and each process would see another one")
    if model is not None and model.forest and positions is None:
        raise Error("E203", "hf.bind: the program is for forests, in which positions are those of a rollout: "
                            "fcpc.hf.inputs(attn, plan, forest)")
    if positions is False:
        positions = None
    else:  # a copy of the caller's, which may change it
        positions = plan.positions() if positions is None else positions.clone()
    if not isinstance(attn, Attention):
        raise Error("E203", f"hf.bind: an fcpc.torch.Attention is expected, and this is a {type(attn).__name__}")
    return BoundModel(plan, tuple(attn.bind(plan, number) for number in range(len(plan.layers))), positions)


def inputs(attn: Attention, plan: Plan, input_ids: torch.Tensor | Forest, labels: torch.Tensor | None = None, *,
           positions: Any = None, ignore: int = -100) -> dict[str, Any]:
    """Makes the arguments of a call of a model: model(**fcpc.hf.inputs(attn, plan, batch.tokens, batch.labels)).

    input_ids  [global_tokens]: the packed batch; or a forest of rollouts, if the program is one with forest=True. Then
               the model gives logits, for Forest.logprobs, and computes no loss
    labels     [global_tokens], not shifted: the token itself, or `ignore`; None: the model computes no loss
    positions  [global_tokens]: the position of each token of the packed batch, if that is not its place in its
               document. With several planes they are [3, global_tokens]. False: positions are not compared, for
               models that do not pass position_ids to their layers, such as Llama 4
    ignore     the label of tokens that the loss leaves out. The model gets -100 in its place

    The loss is the sum over the labels of this process, divided by the number of labels of the whole batch. So the
    losses and the gradients of all processes are to be summed.
    """
    if not isinstance(plan, Plan):
        raise Error("E203", f"hf.inputs: a plan is expected, and this is a {type(plan).__name__}")
    compared = positions is not False
    of_forests = plan.program is not None and plan.program.model is not None and plan.program.model.forest
    if isinstance(input_ids, Forest):
        if not of_forests:
            raise Error("E203", "hf.inputs: the program is not for forests: fcpc.hf.program(model, forest=True)")
        if labels is not None:
            raise Error("E203", "hf.inputs: tokens of a forest have several labels: call the model without labels, and "
                                "forest.logprobs(logits, plan) gives each rollout's")
        if (plan.global_tokens, plan.sequences) != (len(input_ids), input_ids.trees):
            raise Error("E203", f"hf.inputs: the plan is of {plan.sequences} sequences with {plan.global_tokens} "
                                f"tokens, and the forest has {input_ids.trees} trees with {len(input_ids)}")
        if not isinstance(attn, Attention):
            raise Error("E203", f"hf.inputs: an fcpc.torch.Attention is expected, and this is a {type(attn).__name__}")
        if compared and positions is not None:
            raise Error("E203", "hf.inputs: a forest has positions of its own: leave positions= out")
        positions, input_ids = (torch.as_tensor(x).to(attn.device) for x in (input_ids.at, input_ids.tokens))
    elif of_forests:
        raise Error("E203", "hf.inputs: the program is for forests: fcpc.hf.inputs(attn, plan, forest)")
    if input_ids.dim() != 1:
        raise Error("E701", f"hf.inputs: input_ids are {list(input_ids.shape)}, and the packed batch is expected, "
                            f"[{plan.global_tokens}]: sequences end to end, without padding")
    where = plan.positions(input_ids) if positions is None or positions is False else plan.take(positions, dim=-1)
    found = {"input_ids": plan.take(input_ids)[None], "position_ids": where.unsqueeze(-2), "use_cache": False,
             "fcpc": _bind(attn, plan, where if compared else False,
                           None if positions is None or positions is False else positions)}
    if labels is not None:
        mine, count = plan.take_labels(labels, ignore)
        if ignore != -100:  # which is what models leave out
            mine, count = plan.take_labels(labels.long().masked_fill(labels == ignore, -100))
        found.update(labels=mine[None], shift_labels=mine[None], num_items_in_batch=max(count, 1))
        found["fcpc"].labels = count
    return found


_plain: weakref.WeakKeyDictionary[BoundAttention, BoundModel] = weakref.WeakKeyDictionary()


def _bound(given: BoundModel | BoundAttention | None) -> BoundModel:
    """The keyword `fcpc` of a call."""
    if isinstance(given, BoundModel):
        return given
    if given is None:
        raise Error("E209", "this model attends by fcpc, and its call names no plan, or the model does not hand it "
                            "down to its layers: model(**fcpc.hf.inputs(attn, plan, tokens, labels))")
    if not isinstance(given, BoundAttention):
        raise Error("E202", f"attention: fcpc is what fcpc.hf.bind(attn, plan) gives; this is a {type(given).__name__}")
    if torch.compiler.is_compiling():
        raise Error("E203", "attention: under torch.compile fcpc is what fcpc.hf.bind(attn, plan) gives")
    if given not in _plain:
        of = given.plan.program
        if len(given.plan.layers) > 1 or of is not None and of.masks > 1:
            raise Error("E203", "attention: the program has several masks, and this is bound to one of them alone: "
                                "fcpc=fcpc.hf.bind(attn, plan) gives each layer its own")
        made = BoundModel(given.plan, (), given.plan.positions())
        _plain[given] = made
    return _plain[given]


# --- attention --------------------------------------------------------------------------------------------------------

class _Computed(Error, AttributeError):
    """The error that a model reads its mask. It is also an AttributeError, so that hasattr works."""


class Unmade:
    """Takes the place of the mask that a model would have made, which the plan already contains.

    window  the window or chunk of the mask, or None
    causal  whether no query sees a key that comes after it
    """

    def __init__(self, window: int | None, causal: bool = True) -> None:
        self.window, self.causal = window, causal

    def __getattr__(self, name: str) -> Any:
        raise _Computed("E702", f"attention: this model computes with its mask (.{name}), and fcpc makes none: the "
                                "mask is the program's")


def _mask(*_: Any, attention_mask: torch.Tensor | None = None, mask_function: Callable[..., Any] | None = None,
          local_size: int | None = None, use_vmap: bool = False, allow_is_bidirectional_skip: bool | None = None,
          **__: Any) -> Unmade:
    """What transformers calls to make the mask of some layers. It makes no mask, and refuses one that a plan cannot
    have."""
    compiling = torch.compiler.is_compiling()
    if attention_mask is not None and (compiling or not attention_mask.all()):
        what = "cannot be looked at under torch.compile" if compiling else "leaves tokens out"
        raise Error("E701", f"attention: attention_mask {what}. A plan has no padding: pack sequences end to end, "
                            "prog.plan(lengths), and call the model without attention_mask")
    if use_vmap or getattr(mask_function, "__name__", "") == "or_mask":
        raise Error("E702", "attention: the model adds to its mask by itself, as for tokens of images that see each "
                            "other. The mask is the program's: fcpc.hf.program(model, mask=...)")
    return Unmade(local_size, allow_is_bidirectional_skip is None)  # whoever makes a causal mask does not say it


def _layer(module: Any, bound: BoundModel) -> tuple[Kind | None, int]:
    """(the kind of attention that this layer must have, the number of its mask). The kind is None if the program was
    not made by fcpc.hf.program."""
    number = getattr(module, "layer_idx", None)
    config = getattr(module, "config", None)
    if bound.model is None:
        if config is not None and config is not bound.config:
            kinds = dict.fromkeys(kind for kind in _kinds(config) if kind is not None)
            if len(kinds) > 1:
                raise Error("E203", f"attention: layers have {' and '.join(k.words() for k in kinds)}, and the program "
                                    "one mask for all: fcpc.hf.program(model) has a mask for each")
            if _reach(config) is not None and len(bound.plan.here) < bound.plan.ranks:
                raise Error("E702", "attention: the furthest position of a process decides how this model rotates its "
                                    "tokens (rope_type dynamic or longrope): fcpc.hf.program(model) knows how far "
                                    "processes do the same")
            bound.config = config
        return None, 0
    layers = bound.model.layers
    if not isinstance(number, int) or number not in range(len(layers)) or layers[number] < 0:
        raise Error("E203", f"attention: the program is for a {bound.model.name} of {len(layers)} layers, and this is "
                            f"layer {number}: fcpc.hf.program(model) with the model's own config")
    return bound.model.kinds[layers[number]], layers[number]


def _differs(what: str, asked: Any, has: Any, model: Model | None) -> Error:
    if model is None:
        return Error("E203", f"attention: the model asks for {what} = {asked}. {_ASK}. In a program by hand, mask and "
                             "score say it: set it to None in the config")
    return Error("E203", f"attention: the model asks for {what} = {asked}, and the program has {has}: {_ASK}")


def attention(module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any,
              scaling: float | None = None, dropout: float = 0.0, fcpc: BoundModel | BoundAttention | None = None,
              s_aux: torch.Tensor | None = None, sliding_window: int | None = None, softcap: float | None = None,
              position_ids: torch.Tensor | None = None, is_causal: bool | None = True,
              **more: Any) -> tuple[torch.Tensor, None]:
    """Attention of one layer, as transformers calls it: (o, None).

    query            [1, heads, tokens, head_dim] in the plan's order
    key              [1, kv_heads, tokens, head_dim], likewise
    value            [1, kv_heads, tokens, value_dim], likewise
    attention_mask   what the model has as its mask: it must be empty, because the program has the mask
    scaling          the plan's own scale; None: head_dim ** -0.5
    fcpc             what `bind` gave, or for a program of one mask what `Attention.bind` gave
    s_aux            sinks, [heads], of models that learn them
    sliding_window, softcap   those of this layer
    position_ids     [1, tokens]: compared with the plan's

    o is [1, tokens, heads, value_dim]. If the model asks for something that the plan does not do, that is an error:
    E209 (no plan), E701 (shapes, a mask, positions), E203 (scale, dropout, window, softcap, sinks, another keyword),
    E702 (layers that are no attention).
    """
    bound = _bound(fcpc)
    if query.shape[0] != 1:
        raise Error("E701", f"attention: the batch dimension is {query.shape[0]}: pack sequences end to end")
    kind, number = _layer(module, bound)
    if isinstance(attention_mask, Unmade):
        if sliding_window not in (None, attention_mask.window):
            raise Error("E702", f"attention: this layer has a window of {sliding_window}, and its mask one of "
                                f"{attention_mask.window}")
        sliding_window = attention_mask.window
        is_causal = attention_mask.causal and is_causal
    elif attention_mask is not None:
        raise Error("E701", "attention: the model was given an attention_mask. The mask is the program's: pack "
                            "sequences end to end, prog.plan(lengths), and call the model without attention_mask")
    _check(module, bound, kind, query, scaling, dropout, s_aux, sliding_window, softcap, is_causal, more)
    if torch.compiler.is_compiling():
        query = _compared_in_graph(query, position_ids, bound)
    else:
        bound.compare(position_ids)
    bound.attended = True
    attend = bound.attentions[number] if bound.attentions else fcpc
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    o = attend(q, k, v, None if s_aux is None else s_aux.float())  # type: ignore[operator, misc]
    return o[None], None


def _check(module: Any, bound: BoundModel, kind: Kind | None, query: torch.Tensor, scaling: float | None,
           dropout: float, s_aux: torch.Tensor | None, window: int | None, softcap: float | None,
           is_causal: bool | None, more: dict[str, Any]) -> None:
    """Checks that the layer asks for what the plan does."""
    plan, model = bound.plan, bound.model
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if abs(scaling - plan.scale) > 1e-6 * abs(plan.scale):
        raise Error("E203", f"attention: the model scales by {scaling}, the plan by {plan.scale}: "
                            f"program(scale={scaling}) is the model's; {_ASK}")
    if dropout:
        raise Error("E203", f"attention: the model asks for dropout = {dropout}: a plan has none: set it to 0 in the "
                            "config")
    local = None if kind is None else kind.window if kind.chunk is None else kind.chunk
    if window != local:
        raise _differs("sliding_window", window, local, model)
    if softcap != (None if model is None else model.softcap):
        raise _differs("softcap", softcap, model and model.softcap, model)
    if s_aux is None and getattr(module, "sinks", None) is not None:
        raise Error("E702", "attention: this layer has sinks, and does not hand them to its attention (s_aux)")
    if s_aux is not None and bound.sinks is False:
        raise Error("E203", "attention: the model has sinks (s_aux), and the program none: "
                            "program(sink=0.0) takes the model's")
    if s_aux is None and bound.sinks:
        raise Error("E203", "attention: the program has sinks, and the model none (s_aux): program(sink=None) has none")
    if model is not None and (is_causal is False or not getattr(module, "is_causal", True)):
        raise Error("E203", "attention: this layer looks in both directions (is_causal = False), and the program is "
                            "causal")
    for name, given in more.items():
        if name not in _HARMLESS and given is not None and given is not False:
            raise Error("E203", f"attention: the model hands '{name}' to its attention, and a plan has nothing of it")
    config = getattr(module, "config", None)
    if more.get("output_router_logits", getattr(config, "output_router_logits", None)) and len(plan.here) < plan.ranks:
        raise Error("E203", "attention: the model adds a loss of its router (output_router_logits), which is no sum "
                            "over tokens: that of a part of the batch is another. Set it to False in the config")


# --- positions --------------------------------------------------------------------------------------------------------

def _planes(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])


def _compare(given: torch.Tensor, right: torch.Tensor) -> None:
    given, right = _planes(given), _planes(right)
    if len(given) == 1 < len(right):
        right = right[:1]  # a model of several planes hands the first, which is that of text, to its layers
    if given.shape != right.shape:
        raise Error("E701", f"attention: position_ids are {list(given.shape)}, and the plan's {list(right.shape)}. "
                            "Positions of several planes go to fcpc.hf.bind(attn, plan, positions=...), too")
    differ = (given != right.to(given.device)).any(0)
    if differ.any():
        at = int(differ.nonzero()[0])
        raise Error("E701", f"attention: position_ids are not the plan's: token {at} of this process is at "
                            f"{right[:, at].tolist()}, and position_ids say {given[:, at].tolist()}. Call the model "
                            "with position_ids=plan.positions()[None], or by fcpc.hf.inputs")


@torch.library.custom_op("fcpc::positions", mutates_args=())
def _positions(given: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """0.0, or E701. Its result is added to something, so that a compiled graph does not drop the call."""
    _compare(given, right)
    return torch.zeros((), device=given.device)


@_positions.register_fake
def _(given: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), device=given.device)


def _compared_in_graph(query: torch.Tensor, position_ids: torch.Tensor | None, bound: BoundModel) -> torch.Tensor:
    """The query, plus a 0 that compares positions in a compiled graph. A graph cannot remember a tensor that it has
    compared, so each layer compares."""
    if bound.positions is None:
        return query
    if position_ids is None:
        raise Error("E701", "attention: the model hands no position_ids to its layers")
    zero: torch.Tensor = _positions(position_ids, bound.positions)
    return query + zero.to(query.dtype)


# --- losses -----------------------------------------------------------------------------------------------------------

def _unshifted() -> Error:
    return Error("E701", "labels without shift_labels: the model would shift them by their place in the tensor, and in "
                         "the plan's order the next token is elsewhere. fcpc.hf.inputs(attn, plan, tokens, labels) has "
                         "both, or make them by plan.take_labels(labels)")


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a loss of transformers: with `fcpc=` it refuses what would be wrong in the plan's order of tokens."""
    @functools.wraps(function)
    def loss(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("fcpc")
        if given is None:
            return function(*args, **kwargs)
        given = _bound(given)
        if not given.attended:
            raise Error("E203", f"no layer of this model has attended by the plan: {_OTHER}")
        if given.model is not None and given.model.forest:
            raise Error("E203", "tokens of a forest have several labels: call the model without labels, and "
                                "forest.logprobs(logits, plan) gives each rollout's")
        if function is not ForCausalLMLoss:  # which takes shift_labels
            raise Error("E702", f"the loss {name} is not computed in the plan's order: it may depend on places. Call "
                                "the model without labels")
        if kwargs.get("shift_labels") is None:
            raise _unshifted()
        if len(given.plan.here) < given.plan.ranks:
            count = kwargs.get("num_items_in_batch")
            if count is None:
                raise Error("E209", "labels without num_items_in_batch: the loss would be the mean over the labels of "
                                    "this process alone. plan.take_labels(labels).count is that of all")
            if given.labels is not None and not torch.compiler.is_compiling() and count < given.labels:
                raise Error("E203", f"num_items_in_batch is {int(count)}, and the batch has {given.labels} labels over "
                                    "all ranks. A Trainer counts these with average_tokens_across_devices=True")
        return function(*args, **{key: value for key, value in kwargs.items() if key != "fcpc"})
    return loss


_guards: dict[Callable[..., Any], Callable[..., Any]] = {}  # not an lru_cache, of which torch.compile warns


def _with_guard(given: property) -> property:
    """Wraps the property of a model that gives its loss. The table of losses stays as it is, because a Trainer looks in
    it to see whether a model shifts its labels, and counts them otherwise if it finds another function."""
    found: Any = given.fget  # torch.compile cannot trace given.__get__

    def get(self: Any) -> Callable[..., Any]:
        function: Callable[..., Any] = found(self)
        if function not in _guards:
            names = [name for name, loss in LOSS_MAPPING.items() if loss is function]
            _guards[function] = _guarded(names[0], function) if names else function
        return _guards[function]
    return property(get, given.fset, given.fdel, given.__doc__)


# --- models -----------------------------------------------------------------------------------------------------------

_HEADS = re.compile(r"For(Sequence|Token|Audio|Image)Classification$|For(QuestionAnswering|MultipleChoice)$")


def _usable(model: type) -> None:
    """Checks that a model's class takes its attention from the registry and uses the positions that it is given."""
    name = model.__name__
    of = getattr(getattr(model, "config_class", None), "model_type", "")
    if of in mixers.REFUSED:
        raise Error("E702", f"fcpc cannot compute a {name}: {mixers.REFUSED[of]}")
    if not getattr(model, "_supports_attention_backend", False) and of not in mixers.MIXERS:
        raise Error("E702", f"fcpc cannot compute a {name}: it computes attention by itself and asks no registry "
                            "(its _supports_attention_backend is False)")
    if _HEADS.search(name):
        raise Error("E702", f"fcpc cannot compute a {name}: it looks for tokens by their place in the tensor, or takes "
                            "the mean over those of one process. Take its base model, and the rows of plan.restore")
    parameters = inspect.signature(model.forward).parameters  # type: ignore[attr-defined]
    if "position_ids" not in parameters and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        raise Error("E702", f"fcpc cannot compute a {name}: it takes no position_ids, so its positions are places in "
                            "the tensor, and a plan has tokens in another order")


_OTHER_INPUTS = re.compile(r"(pixel|image|video|audio|speech)_|input_(features|values)$")


def _calling(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the call of a model. It refuses arguments whose effect the layers could not see."""
    @functools.wraps(call)
    def calling(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("fcpc") is not None:
            if not torch.compiler.is_compiling():
                mixers.wrap({type(module).__module__ for module in self.modules()})
            for name, given in kwargs.items():
                if given is not None and _OTHER_INPUTS.match(name):
                    raise Error("E702", f"the model is given {name}, which it puts among the tokens by their order in "
                                        "the tensor. Make inputs_embeds of the packed batch, and call the model with "
                                        "inputs_embeds=plan.take(inputs_embeds)[None]")
            keep = kwargs.get("logits_to_keep")
            if isinstance(keep, int) and keep != 0:
                raise Error("E203", f"logits_to_keep = {keep} keeps the last rows of the tensor, and in the plan's "
                                    "order these are not the last tokens")
            labels, shifted = kwargs.get("labels"), kwargs.get("shift_labels")
            if labels is not None and shifted is None:
                raise _unshifted()
            if shifted is not None and labels is None and getattr(self, "loss_type", None):  # a model with a loss
                raise Error("E701", "shift_labels without labels: the model computes no loss. Who has taken labels "
                                    "out, as a Trainer does for label_smoothing_factor, shifts them by their place")
        return call(self, *args, **kwargs)
    return calling


def _guarding(interface: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method that gives a layer its attention function: another function than ours would ignore the plan."""
    @functools.wraps(interface)
    def guarding(self: Any, attn_implementation: str, default: Callable[..., Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = interface(self, attn_implementation, default)
        if attn_implementation == NAME:
            return function

        def without_plan(*args: Any, fcpc: Any = None, **kwargs: Any) -> Any:
            if fcpc is not None:
                raise Error("E203", f"this model attends by {attn_implementation}, which takes no plan: {_OTHER}")
            return function(*args, **kwargs)
        return without_plan
    return guarding


def _looking(applicable: Callable[..., str]) -> Callable[..., str]:
    """Wraps the method that transformers calls when a model is made, or gets another attention function."""
    @functools.wraps(applicable)
    def looking(self: Any, requested_attention: str | None, *args: Any, **kwargs: Any) -> str:
        if requested_attention == NAME:
            _kinds(_text_config(self.config))
            _usable(type(self))
            mixers.wrap({base.__module__ for base in type(self).__mro__ if base.__module__ in sys.modules})
        return applicable(self, requested_attention, *args, **kwargs)
    return looking


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, _mask)
_model: Any = PreTrainedModel
_model.loss_function = _with_guard(_model.loss_function)
PreTrainedModel.__call__ = _calling(PreTrainedModel.__call__)  # type: ignore[method-assign]
AttentionInterface.get_interface = _guarding(AttentionInterface.get_interface)  # type: ignore[method-assign]
PreTrainedModel.get_correct_attn_implementation = _looking(  # type: ignore[method-assign]
    PreTrainedModel.get_correct_attn_implementation)
