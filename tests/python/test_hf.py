"""test_hf.py: models of transformers attend by a plan, against their own attention on a mask. Ranks that are processes
train the same model (ranks.py)."""
import copy
import unittest

try:
    import transformers
except ImportError:
    raise unittest.SkipTest("transformers is not there (make setup)") from None
import torch
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, GptOssConfig, GptOssForCausalLM, LlamaConfig,
                          LlamaForCausalLM)

import fcpc
import fcpc.hf
from fcpc.torch import Attention
from test_example import DIM, HEADS, KV_HEADS, WORDS, loader

MODEL = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "dtype": "fp32", "block": 32}
SIZES = {"vocab_size": WORDS, "hidden_size": HEADS * DIM, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM}
NO_LABEL = -100  # what transformers leaves out of a loss


def tiny(**more):
    """A small random Llama that attends by plans."""
    torch.manual_seed(0)
    return LlamaForCausalLM._from_config(LlamaConfig(**{**SIZES, **more}), attn_implementation=fcpc.hf.NAME)


def tiny_deepseek():
    """A small random DeepSeek-V3: keys have a part without and one with positions, and are wider than values."""
    torch.manual_seed(0)
    config = DeepseekV3Config(vocab_size=WORDS, hidden_size=64, intermediate_size=96, moe_intermediate_size=16,
                              num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=HEADS,
                              n_shared_experts=1, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1,
                              first_k_dense_replace=1, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=16,
                              qk_rope_head_dim=8, v_head_dim=16)
    return DeepseekV3ForCausalLM._from_config(config, attn_implementation=fcpc.hf.NAME)


DEEPSEEK = {"kv_heads": HEADS, "head_dim": 24, "value_dim": 16}


def on_its_own(model):
    """The same model with the attention that transformers has."""
    model = copy.deepcopy(model)
    model.set_attn_implementation("eager")
    return model


def program(group=None, **more):
    return fcpc.program(mask="causal and doc[q] == doc[k]", fields=["doc"], cluster=fcpc.detect(group),
                        **{**MODEL, **more})


def call(model, plan, attention, tokens, **more):
    return model(plan.take(tokens)[None], position_ids=plan.positions()[None], use_cache=False, fcpc=attention, **more)


def loss_by_plan(model, batch, plan, attn):
    """The loss of this process's tokens, as the README says it."""
    labels = plan.take(batch.labels, shift=1, fill=NO_LABEL)[None]
    return call(model, plan, attn.bind(plan), batch.tokens, labels=labels, shift_labels=labels,
                num_items_in_batch=plan.global_tokens).loss


def allowed_pairs(batch):
    """(what a model adds to its scores, which tokens have a next one in their sequence, positions)."""
    number = torch.repeat_interleave(torch.arange(2), torch.tensor(batch.lengths))
    at = torch.arange(len(number))
    allowed = (at[:, None] >= at) & (number[:, None] == number) & (batch.doc[:, None] == batch.doc)
    follows = torch.cat([number[1:] == number[:-1], torch.tensor([False])])
    return (torch.zeros(1, 1, *allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min), follows,
            torch.cat([torch.arange(n) for n in batch.lengths]))


def loss_by_mask(model, batch):
    """The same loss by transformers alone, of the whole batch in its own order."""
    mask, follows, positions = allowed_pairs(batch)
    labels = batch.labels.roll(-1).masked_fill(~follows, NO_LABEL)[None]
    return model(batch.tokens[None], position_ids=positions[None], attention_mask=mask, use_cache=False, labels=labels,
                 shift_labels=labels, num_items_in_batch=len(batch.tokens)).loss


class Adapter(unittest.TestCase):
    def assert_same(self, model, judge, loss, want):
        self.assertAlmostEqual(loss.item(), want.item(), places=5)
        for (name, p), right in zip(model.named_parameters(), judge.parameters()):
            near = 1e-4 * right.grad.abs().max().item() + 1e-7
            self.assertLess((p.grad - right.grad).abs().max().item(), near, name)

    def test_checkpointing(self):
        """Layers that are computed again find the plan of their own step, which the model handed down to them."""
        model, prog = tiny(), program()
        judge, attn = on_its_own(model), Attention(prog)
        model.activation_checkpointing_enable()
        losses = [loss_by_plan(model, batch, plan, attn) for batch, plan in prog.ahead(loader(2))]
        want = [loss_by_mask(judge, batch) for batch in loader(2)]
        sum(losses).backward()
        sum(want).backward()
        self.assert_same(model, judge, sum(losses), sum(want))

    def test_learnt_sinks(self):
        """A model that learns sinks hands them to its attention, and they get their gradient."""
        torch.manual_seed(0)
        config = GptOssConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1,
                              layer_types=["full_attention", "full_attention"])
        model, prog = GptOssForCausalLM._from_config(config, attn_implementation=fcpc.hf.NAME), program(sink=0.0)
        judge, (batch,) = on_its_own(model), loader(1)
        loss = loss_by_plan(model, batch, prog.plan(batch.lengths, {"doc": batch.doc}), Attention(prog))
        want = loss_by_mask(judge, batch)
        loss.backward()
        want.backward()
        self.assertTrue(model.model.layers[0].self_attn.sinks.grad.abs().min() > 0)
        self.assert_same(model, judge, loss, want)

    def test_deepseek(self):
        """Logits, losses, gradients and parameters of a model whose values are narrower than its keys are its own."""
        model, prog = tiny_deepseek(), program(**DEEPSEEK)
        judge, attn = on_its_own(model), Attention(prog)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, judge)]
        for batch, plan in prog.ahead(loader(3)):
            self.assertEqual((plan.head_dim, plan.value_dim), (24, 16))
            logits = plan.restore(call(model, plan, attn.bind(plan), batch.tokens).logits[0])
            mask, _, positions = allowed_pairs(batch)
            want = judge(batch.tokens[None], position_ids=positions[None], attention_mask=mask, use_cache=False).logits
            self.assertLess((logits - want[0]).abs().max().item(), 1e-4 * want.abs().max().item())
            loss, want = loss_by_plan(model, batch, plan, attn), loss_by_mask(judge, batch)
            loss.backward()
            want.backward()
            self.assertEqual([p.grad is None for p in model.parameters()], [p.grad is None for p in judge.parameters()])
            self.assert_same(model, judge, loss, want)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    def test_errors(self):
        """What a plan cannot do for a model is refused, and says what to do."""
        (batch,), prog = loader(1), program()
        plan = prog.plan(batch.lengths, {"doc": batch.doc})
        bound, two = Attention(prog).bind(plan), torch.stack([batch.tokens, batch.tokens])
        cases = [("E209", "names no plan", lambda: call(tiny(), plan, None, batch.tokens)),
                 ("E701", "batch dimension is 2", lambda: tiny()(two, fcpc=bound)),
                 ("E701", "q is", lambda: tiny()(batch.tokens[None, :100], use_cache=False, fcpc=bound)),
                 ("E701", "attention_mask", lambda: call(tiny(), plan, bound, batch.tokens,
                                                         attention_mask=allowed_pairs(batch)[0])),
                 ("E203", "dropout = 0.5", lambda: call(tiny(attention_dropout=0.5).train(), plan, bound,
                                                        batch.tokens))]
        x = torch.zeros(1, HEADS, plan.tokens, DIM)
        for what, code in {"scaling": "E203", "sliding_window": "E203", "softcap": "E203"}.items():
            cases.append((code, "scales by 30.0" if what == "scaling" else f"{what} = 30.0", lambda what=what:
                          fcpc.hf.attention(None, x, x[:, :KV_HEADS], x[:, :KV_HEADS], None, fcpc=bound,
                                            **{what: 30.0})))
        for code, words, run in cases:
            with self.assertRaisesRegex(fcpc.Error, words) as caught:
                run()
            self.assertEqual(caught.exception.code, code)


if __name__ == "__main__":
    unittest.main()
