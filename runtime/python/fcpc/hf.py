"""hf.py: models of Hugging Face's transformers compute their attention by a plan.

    import fcpc.hf                                       # enters "fcpc" into the registry of attention functions
    model = AutoModelForCausalLM.from_config(config, attn_implementation="fcpc")
    for batch, plan in prog.ahead(loader):
        out = model(plan.take(batch.tokens)[None], position_ids=plan.positions()[None], fcpc=attn.bind(plan))

A model hands the keyword `fcpc` down to each of its layers, so nothing here keeps state: the plan is the caller's, as
in fcpc.torch. The batch dimension is 1, because sequences are packed end to end.
"""
from transformers import AttentionInterface

from .errors import Error

NAME = "fcpc"


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, fcpc=None, s_aux=None,
              sliding_window=None, softcap=None, **_):
    """Attention of one layer, as transformers calls it: (o, None).

    query            [1, heads, tokens, head_dim] in the plan's order
    key              [1, kv_heads, tokens, head_dim], likewise
    value            [1, kv_heads, tokens, value_dim], likewise
    attention_mask   None: the program has the mask
    scaling          None, or the plan's own scale
    fcpc             what `Attention.bind` gave
    s_aux            sinks, [heads], of models that learn them

    o is [1, tokens, heads, value_dim]. What the model asks for and a plan cannot do, or does by its program alone, is
    an error rather than left out: E209 (no plan), E701 (shapes, a mask), E203 (scale, dropout, window, softcap).
    """
    if fcpc is None:
        raise Error("E209", "this model attends by fcpc, and its call names no plan: model(..., fcpc=attn.bind(plan))")
    if query.shape[0] != 1:
        raise Error("E701", f"attention: the batch dimension is {query.shape[0]}: pack sequences end to end")
    if attention_mask is not None:
        raise Error("E701", "attention: the model was given an attention_mask; the mask is the program's")
    if scaling is not None and abs(scaling - fcpc.plan.scale) > 1e-6 * abs(fcpc.plan.scale):
        raise Error("E203", f"attention: the model scales by {scaling}, the plan by {fcpc.plan.scale}: "
                            f"program(scale={scaling}) is the model's")
    for what, given, instead in (("dropout", dropout or None, "a plan has none: set it to 0 in the config"),
                                 ("sliding_window", sliding_window, "the mask says it: set it to None in the config"),
                                 ("softcap", softcap, "the score says it: set it to None in the config")):
        if given is not None:
            raise Error("E203", f"attention: the model asks for {what} = {given}: {instead}")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return fcpc(q, k, v, None if s_aux is None else s_aux.float())[None], None


AttentionInterface.register(NAME, attention)
