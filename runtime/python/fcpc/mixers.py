"""mixers.py: layers of transformers that mix tokens otherwise than by attention, on a plan. fcpc.hf uses it.

In transformers such a layer calls a few functions of its module, and hands them the keyword `fcpc` of the model's call.
So these functions are wrapped: without the keyword they compute as before. With it a convolution gets the rows of other
ranks (a halo), and a rule that takes an initial state gets the one that enters each stretch of tokens (a scan):

    causal_conv1d_fn(x, weight, ...)                     halo(x), the function, trim
    torch_chunk_gated_delta_rule(q, k, v, g, beta, ...)  the function on each stretch, once for what it does to a state
    chunk_kimi_delta_attention(...)                      and once more from the state that enters
    mamba2_chunk_scan(x, dt, A, B, C, ...)               the same

Models whose rule takes no initial state cannot be computed so. They are refused by their names.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from .errors import Error
from .recurrent import Halo, Layer, Scan


# --- what a config says -----------------------------------------------------------------------------------------------

def _gated_delta(config: Any) -> tuple[Layer, ...]:
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return (Scan(config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim, "matrix"),
            Halo(config.linear_conv_kernel_dim - 1, 0, 2 * keys + values))


def _kimi_delta(config: Any) -> tuple[Layer, ...]:
    heads, dim = config.linear_num_heads, config.linear_head_dim
    return Scan(heads, dim, dim, "matrix"), Halo(config.linear_conv_kernel_dim - 1, 0, 3 * heads * dim)


def _mamba2(heads: str, width: str, groups: str, state: str, kernel: str) -> Callable[[Any], tuple[Layer, ...]]:
    def found(config: Any) -> tuple[Layer, ...]:
        count, dim, rows = (int(getattr(config, name)) for name in (heads, width, state))
        channels = count * dim + 2 * getattr(config, groups) * rows
        return Scan(count, rows, dim, "scalar"), Halo(getattr(config, kernel) - 1, 0, channels)
    return found


def _short_convolution(config: Any) -> tuple[Layer, ...]:
    return (Halo(config.conv_L_cache - 1, 0, config.hidden_size),)


_BAMBA = _mamba2("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
# What the layers of a model ask of other ranks, by its model_type. Tests have all of them.
MIXERS: dict[str, Callable[[Any], tuple[Layer, ...]]] = {
    "qwen3_next": _gated_delta, "qwen3_5_text": _gated_delta, "qwen3_5_moe_text": _gated_delta,
    "olmo_hybrid": _gated_delta, "kimi_linear": _kimi_delta, "bailing_hybrid": _kimi_delta,
    "nemotron_h": _mamba2("mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel"),
    "bamba": _BAMBA, "granitemoehybrid": _BAMBA, "falcon_h1": _BAMBA,
    "lfm2": _short_convolution, "lfm2_moe": _short_convolution,
}
# Why the layers of other models cannot be computed, by model_type: what their module does.
REFUSED = {
    "falcon_mamba": "its selective scan (FalconMambaMixer) takes no initial state",
    "jamba": "its selective scan (JambaMambaMixer) takes no initial state",
    "mamba": "its selective scan (MambaMixer) takes no initial state",
    "mamba2": "it has no attention by which tokens could be placed",
    "minimax": "its lightning attention (MiniMaxLightningAttention) takes a state from a cache alone",
    "recurrent_gemma": "its RecurrentGemmaRglru takes no initial state",
    "rwkv": "its RwkvSelfAttention takes a state of another kind, and shifts tokens by their place",
    "xlstm": "its xLSTMLayer takes a state of another kind",
    "zamba": "its selective scan (ZambaMambaMixer) takes no initial state",
    "zamba2": "one layer of attention stands behind several layers (hybrid), and fcpc.hf has not been tested with that",
}
# The types of layers that have such a mixer, and those that also have attention.
MIXED = {"linear_attention", "conv", "mamba", "mamba2", "recurrent", "hybrid", "ssm", "rwkv"}
BOTH = {"hybrid"}
ALONE = {"mlp", "moe"}  # which mix no tokens


def layers_of(config: Any, kinds: list[str]) -> list[Layer]:
    """What the layers of these types ask of other ranks, each kind with the number of layers that are so."""
    times = sum(kind in MIXED for kind in kinds)
    return [x._replace(times=times) for x in MIXERS[config.model_type](config)] if times else []


# --- what a layer computes --------------------------------------------------------------------------------------------

def _attention(given: Any) -> Any:
    """The BoundAttention of the keyword `fcpc`, whose plan has the layers."""
    bound = getattr(given, "attentions", None)
    return bound[0] if bound else given


def _no_cache(asked: Any, who: str) -> None:
    if asked:
        raise Error("E203", f"{who}: the model asks for its last state, as for a KV cache: call it with use_cache=False, "
                            "as fcpc.hf.inputs does")


def _convolution(function: Callable[..., Any]) -> Callable[..., Any]:
    """causal_conv1d_fn: [1, channels, tokens] -> the same."""
    @functools.wraps(function)
    def convolution(hidden_states: Any, weight: Any, bias: Any = None, *args: Any, fcpc: Any = None, **more: Any) -> Any:
        if fcpc is None:
            return function(hidden_states, weight, bias, *args, **more)
        attention, before = _attention(fcpc), weight.shape[-1] - 1
        packed = attention.halo(hidden_states[0].t(), before, 0)
        y = function(packed.t()[None], weight, bias, *args, **more)
        return attention.trim(y[0], before, 0, dim=1)[None]
    return convolution


def _by_stretch(attention: Any, tensors: list[Any]) -> list[tuple[Any, tuple[Any, ...]]]:
    """(stretch, its part of each tensor [1, tokens, ...])"""
    stretches = attention.plan.stretches()
    lengths = [x.length for x in stretches]
    return list(zip(stretches, zip(*(x.split(lengths, 1) for x in tensors))))


def _delta_rule(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch_chunk_gated_delta_rule and chunk_kimi_delta_attention: [1, tokens, heads, ...] -> (o, last state)."""
    @functools.wraps(function)
    def rule(query: Any, key: Any, value: Any, g: Any, beta: Any, *args: Any, initial_state: Any = None,
             output_final_state: bool = False, fcpc: Any = None, **more: Any) -> Any:
        if fcpc is None:
            return function(query, key, value, g, beta, *args, initial_state=initial_state,
                            output_final_state=output_final_state, **more)
        _no_cache(output_final_state or initial_state is not None, function.__name__)
        attention, heads, rows, columns = _attention(fcpc), value.shape[2], key.shape[3], value.shape[3]
        parts = _by_stretch(attention, [query, key, value, g, beta])
        one = torch.eye(rows, device=value.device).expand(1, heads, rows, rows)
        zeros = one.new_zeros(1, heads, rows, columns)
        decays, states = [], []
        for stretch, (q, k, v, d, b) in parts:
            if stretch.ends:  # nothing asks what it does to a state
                decays.append(one * 0)
                states.append(zeros)
                continue
            # Columns of a state do not meet. With values of zeros the rule makes A of the identity as its state.
            wide = torch.cat([v, v.new_zeros(*v.shape[:3], rows)], 3)
            _, last = function(q, k, wide, d, b, *args, initial_state=torch.cat([zeros, one], 3), output_final_state=True,
                               **more)
            states.append(last[..., :columns].float())
            decays.append(last[..., columns:].float())
        entering = attention.scan(torch.cat(decays), torch.cat(states))
        made = [function(*part, *args, initial_state=state[None], output_final_state=False, **more)[0]
                for (_, part), state in zip(parts, entering)]
        return torch.cat(made, 1), None
    return rule


def _mamba_scan(function: Callable[..., Any]) -> Callable[..., Any]:
    """mamba2_chunk_scan: [1, tokens, heads, width] -> the same. Its states are [1, heads, width, rows]."""
    @functools.wraps(function)
    def scan(hidden_states: Any, dt: Any, A: Any, B: Any, C: Any, chunk_size: int, D: Any = None, dt_bias: Any = None,
             initial_states: Any = None, dt_softplus: bool = False,
             dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False, fcpc: Any = None,
             **more: Any) -> Any:
        more = {"chunk_size": chunk_size, "D": D, "dt_bias": dt_bias, "dt_softplus": dt_softplus, "dt_limit": dt_limit,
                **more}
        if fcpc is None:
            return function(hidden_states, dt, A, B, C, initial_states=initial_states,
                            return_final_states=return_final_states, **more)
        _no_cache(return_final_states or initial_states is not None, function.__name__)
        attention = _attention(fcpc)
        parts = _by_stretch(attention, [hidden_states, dt, B, C])
        steps = dt if dt_bias is None else dt + dt_bias.to(dt.dtype)
        steps = (F.softplus(steps) if dt_softplus else steps).clamp(*dt_limit).float() * A.float()
        decay = torch.stack([x[0].sum(0).exp() for _, (x,) in _by_stretch(attention, [steps])])
        zeros = decay.new_zeros(1, hidden_states.shape[2], B.shape[3], hidden_states.shape[3])
        states = [zeros if stretch.ends else
                  function(x, t, A, b, c, initial_states=None, return_final_states=True, **more)[1].float().mT
                  for stretch, (x, t, b, c) in parts]
        entering = attention.scan(decay, torch.cat(states)).mT
        return torch.cat([function(x, t, A, b, c, initial_states=state[None], return_final_states=False, **more)
                          for (_, (x, t, b, c)), state in zip(parts, entering)], 1)
    return scan


def _unfused(function: Callable[..., Any]) -> Callable[..., Any]:
    """mamba2_split_conv1d_scan_combined: the whole layer by one kernel, which knows no plan. None: it is not there."""
    @functools.wraps(function)
    def none(*args: Any, fcpc: Any = None, **more: Any) -> Any:
        return function(*args, **more) if fcpc is None else None
    return none


_WRAPPED = {"causal_conv1d_fn": _convolution, "torch_chunk_gated_delta_rule": _delta_rule,
            "chunk_kimi_delta_attention": _delta_rule, "mamba2_chunk_scan": _mamba_scan,
            "mamba2_split_conv1d_scan_combined": _unfused}
_done: set[str] = set()


def wrap(modules: set[str]) -> None:
    """Wraps the functions of these modules of Python, once."""
    for name in modules - _done:
        module = sys.modules.get(name)
        for function, wrapper in _WRAPPED.items() if module is not None else ():
            if hasattr(module, function):
                setattr(module, function, wrapper(getattr(module, function)))
        _done.add(name)
