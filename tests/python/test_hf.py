"""test_hf.py: models of transformers attend by a plan. The judge is the same model with its own eager attention, given
each document alone. Ranks that are processes compute the same (test_agent.py)."""
import copy
import functools
import pickle
import unittest
from types import SimpleNamespace

try:
    import transformers
except ImportError:
    raise unittest.SkipTest("transformers is not there (make setup)") from None
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, LlamaForCausalLM, masking_utils

import fcpc
import fcpc.hf
from expecting import Expecting
from fcpc import mixers
from fcpc.torch import Attention

WORDS, WINDOW, NO_LABEL = 50, 6, -100
SIZES = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "initializer_range": 0.2, "pad_token_id": 0}
GROUPS = {"num_key_value_heads": 2, "head_dim": 8}
KINDS = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0, "rope_theta": 10000.0,
        "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}
# (transformers' name of a model, its config beside SIZES, how many masks its program has)
MODELS = {
    "llama": (GROUPS, 1),
    "qwen3": ({**GROUPS, "use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}, 2),
    "gemma2": ({**GROUPS, **KINDS, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 20}, 2),
    "gemma3_text": ({**GROUPS, **KINDS, "query_pre_attn_scalar": 20}, 2),
    "gpt_oss": ({**GROUPS, **KINDS, "num_local_experts": 2, "num_experts_per_tok": 1}, 2),
    "mistral": ({**GROUPS, "sliding_window": WINDOW}, 1),
    "deepseek_v3": ({**LATENT, **EXPERTS, "num_key_value_heads": 4, "n_shared_experts": 1, "n_routed_experts": 4,
                     "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "max_position_embeddings": 256,
                     "rope_parameters": YARN}, 1),
    "phi": ({}, 1),
    "phi3": ({"num_key_value_heads": 2, "sliding_window": WINDOW}, 1),
    "olmo2": ({"num_key_value_heads": 2}, 1),
    "olmo3": ({"num_key_value_heads": 2, **KINDS}, 2),
    "granite": ({"num_key_value_heads": 2, "attention_multiplier": 0.2}, 1),
    "llama4_text": ({**GROUPS, "intermediate_size_mlp": 48, "num_local_experts": 2, "attention_chunk_size": WINDOW,
                     "layer_types": ["chunked_attention", "full_attention"], "attn_temperature_tuning": False}, 2),
}
# Those with layers that recur beside attention.
RECUR = {"layer_types": ["linear_attention", "full_attention"]}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6,
         "linear_conv_kernel_dim": 4}
KIMI = {**LATENT, **EXPERTS, **RECUR, "q_lora_rank": None, "num_key_value_heads": 4, "num_experts": 4, "n_group": 1,
        "topk_group": 1}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_d_conv": 4,
         "mamba_chunk_size": 16}
SHARED = {"num_experts": 4, "shared_expert_intermediate_size": 16, **EXPERTS}
HYBRIDS = {
    "qwen3_next": ({**GROUPS, **DELTA, **SHARED, "num_hidden_layers": 4,
                    "layer_types": ["linear_attention"] * 3 + ["full_attention"]}, 1),
    "qwen3_5_text": ({**GROUPS, **DELTA, **RECUR}, 1),
    "qwen3_5_moe_text": ({**GROUPS, **DELTA, **SHARED, **RECUR}, 1),
    "olmo_hybrid": ({**GROUPS, **DELTA, **RECUR, "linear_num_key_heads": 4, "eos_token_id": 1}, 1),
    "kimi_linear": ({**KIMI, "linear_num_heads": 4, "linear_head_dim": 8, "n_routed_experts": 4, "eos_token_id": 1,
                     "bos_token_id": 2}, 1),
    "bailing_hybrid": ({**KIMI, "head_dim": 8, "first_k_dense_replace": 1, "eos_token_id": 1}, 1),
    "nemotron_h": ({**GROUPS, "layers_block_type": ["linear_attention", "mlp", "full_attention"], "mamba_num_heads": 4,
                    "mamba_head_dim": 16, "n_groups": 2, "ssm_state_size": 8, "chunk_size": 16}, 1),
    "bamba": ({**GROUPS, **MAMBA, "attn_layer_indices": [1]}, 1),
    "granitemoehybrid": ({**GROUPS, **MAMBA, **RECUR, "num_local_experts": 4, "num_experts_per_tok": 2,
                          "shared_intermediate_size": 16, "position_embedding_type": "rope"}, 1),
    "falcon_h1": ({**GROUPS, **MAMBA, "mamba_d_ssm": 64}, 1),
    "lfm2": ({**GROUPS, "layer_types": ["conv", "full_attention"]}, 1),
    "lfm2_moe": ({**GROUPS, **EXPERTS, "layer_types": ["conv", "full_attention"], "num_experts": 4,
                  "num_dense_layers": 1}, 1),
}
MODELS.update(HYBRIDS)
NO_DOCUMENTS = {"llama4_text"}  # chunks count from the begin of a sequence, so documents are sequences
NO_POSITIONS = {"llama4_text", "granitemoehybrid"}  # hand none to their layers


def config(name, **more):
    return transformers.AutoConfig.for_model(name, **{**SIZES, **MODELS[name][0], **more})


def model_of(of, attention=fcpc.hf.NAME):
    """The model of a config, with random weights that are always the same."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(of, attn_implementation=attention)


def tiny(**more):
    """A small random Llama that attends by plans."""
    return model_of(config("llama", **more))


def on_its_own(model):
    """The same model with the attention that transformers has."""
    model = copy.deepcopy(model)
    model.set_attn_implementation("eager")
    return model


def batch_of(seed=0, lengths=(64, 36), documents=(24, 40, 9, 27)):
    """A batch whose sequences have two documents each. Half of the tokens have no label."""
    seeded = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, WORDS, (sum(lengths),), generator=seeded)
    labels = tokens.masked_fill(torch.rand(len(tokens), generator=seeded) < 0.5, NO_LABEL)
    return SimpleNamespace(lengths=lengths, documents=documents, tokens=tokens, labels=labels,
                           doc=torch.repeat_interleave(torch.arange(len(documents)), torch.tensor(documents)))


def each_alone(model, batch):
    """(logits, loss) of transformers alone: each document by itself, and the loss over the labels of all."""
    logits = [model(x[None], use_cache=False).logits[0] for x in batch.tokens.split(batch.documents)]
    labels = [x[1:] for x in batch.labels.split(batch.documents)]
    losses = [F.cross_entropy(x[:-1], y, ignore_index=NO_LABEL, reduction="sum") for x, y in zip(logits, labels)]
    return torch.cat(logits), sum(losses) / sum(int((y != NO_LABEL).sum()) for y in labels)


@functools.lru_cache(maxsize=None)
def judged(name):
    """(batch, logits, loss, gradients) of a model of MODELS."""
    batch, model = batch_of(), model_of(config(name), "eager")
    if name in NO_DOCUMENTS:
        batch.lengths = batch.documents
    logits, loss = each_alone(model, batch)
    loss.backward()
    return batch, logits.detach(), loss.item(), [p.grad for p in model.parameters()]


def program(model, group=None, documents="doc", **more):
    return fcpc.hf.program(model, cluster=fcpc.detect(group), documents=documents, block=16, **more)


# A program by hand, of models that have GROUPS.
HAND = {"fields": ["doc"], "documents": "doc", "heads": 4, "kv_heads": 2, "head_dim": 8, "dtype": "fp32"}


def by_hand(**more):
    return fcpc.program(mask="causal and doc[q] == doc[k]", **HAND, **more)


def inputs(model, attn, plan, batch):
    positions = False if model.config.model_type in NO_POSITIONS else None
    return fcpc.hf.inputs(attn, plan, batch.tokens, batch.labels, positions=positions)


def by_plan(model, batch, group=None):
    """(plan, the model's output) of a batch."""
    documents = None if batch.lengths == batch.documents else "doc"
    prog = program(model, group, documents)
    plan, attn = prog.plan(batch.lengths, {"doc": batch.doc} if documents else {}), Attention(prog, group=group)
    return plan, model(**inputs(model, attn, plan, batch))


def farthest(got, want):
    """How far numbers are from what they should be, as a part of what they may be."""
    return ((got - want).abs().max() / (1e-4 * want.abs().max() + 1e-7)).item()


class Models(Expecting):
    def test_each(self):
        """Logits, loss and gradients are those of the model's own attention, which sees each document alone."""
        for name, (_, masks) in MODELS.items():
            batch, logits, loss, gradients = judged(name)
            with self.subTest(name):
                model = model_of(config(name))
                plan, out = by_plan(model, batch)
                self.assertEqual(len(plan.layers), masks)
                self.assertLess(farthest(plan.restore(out.logits[0].detach()), logits), 1)
                self.assertAlmostEqual(out.loss.item(), loss, places=5)
                out.loss.backward()
                for (weight, p), right in zip(model.named_parameters(), gradients):
                    self.assertEqual(p.grad is None, right is None, weight)
                    if right is not None:
                        self.assertLess(farthest(p.grad, right), 1, weight)
                if name == "gpt_oss":
                    self.assertGreater(model.model.layers[0].self_attn.sinks.grad.abs().min(), 0)

    def test_what_a_program_says(self):
        """Masks, scores, sinks, shapes and scale of a program are those of the config."""
        for name, has in {"gemma2": ("softcap(c = 2.0)", "window(w = 6)", "layer_1 x 1", "scale = 0.2236"),
                          "gpt_oss": ("sink = 0.0", "doc[q] == doc[k]", "heads = 4", "kv_heads = 2", "dtype = fp32"),
                          "deepseek_v3": ("head_dim = 16", "value_dim = 8", "kv_heads = 4"),
                          "llama4_text": ("q / 6 == k / 6",)}.items():
            made = fcpc.hf.program(config(name), documents=None if name in NO_DOCUMENTS else "doc")
            for words in has:
                self.assertIn(words, made.source, name)
        gemma = fcpc.hf.program(config("gemma3_text", num_hidden_layers=6, dtype=torch.bfloat16,
                                       layer_types=["sliding_attention"] * 5 + ["full_attention"]))
        self.assertEqual((gemma.masks, gemma.model.layers), (2, (0, 0, 0, 0, 0, 1)))
        self.assertIn("layer_1 x 5, layer_2", gemma.source)
        self.assertIn("dtype = bf16", gemma.source)
        whole = transformers.Gemma3Config(text_config=config("gemma3_text").to_dict())
        self.assertEqual(fcpc.hf.program(whole).model, fcpc.hf.program(config("gemma3_text")).model)
        model = tiny()
        for layer in model.model.layers:
            layer.self_attn.scaling, layer.self_attn.sinks = 0.75, torch.zeros(4)
        for words in ("scale = 0.75", "sink = 0.0"):
            self.assertIn(words, fcpc.hf.program(model).source)
        layer.self_attn.scaling = 0.5
        self.expect("E702", lambda: fcpc.hf.program(model), "layer 1 has scale = 0.5")
        self.assertNotIn(b"fcpc.hf", pickle.dumps(gemma))  # who unpickles it to plan need not load transformers
        self.assertEqual(pickle.loads(pickle.dumps(gemma)).model, gemma.model)
        more = fcpc.hf.program(config("llama"), mask="k <= last[q]", fields=["last"], scale=0.5, block=16)
        for words in ("causal and (k <= last[q])", "scale = 0.5", "block = 16", "field last"):
            self.assertIn(words, more.source)

    def test_checkpointing(self):
        """Layers that are computed again find the plan of their own step, and positions are compared again."""
        model = model_of(config("gemma2"))
        judge, batches = on_its_own(model), [batch_of(seed) for seed in range(2)]
        model.activation_checkpointing_enable()
        model.train()
        prog = program(model)
        attn = Attention(prog)
        losses = [model(**fcpc.hf.inputs(attn, plan, batch.tokens, batch.labels)).loss
                  for batch, plan in prog.ahead(batches)]
        want = [each_alone(judge, batch)[1] for batch in batches]
        sum(losses).backward()
        sum(want).backward()
        for (name, p), right in zip(model.named_parameters(), judge.parameters()):
            self.assertLess(farthest(p.grad, right.grad), 1, name)

    def test_compiled(self):
        """torch.compile takes a model whole. The next plan compiles nothing anew, and positions are still compared."""
        model = model_of(config("gemma3_text")).eval()
        prog = program(model)
        from torch._dynamo.testing import CompileCounterWithBackend
        attn, counter = Attention(prog), CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=False)
        for seed in range(2):
            batch = batch_of(seed)
            plan = prog.plan(batch.lengths, {"doc": batch.doc})
            given = fcpc.hf.inputs(attn, plan, batch.tokens, batch.tokens)
            with torch.no_grad():
                got, want = compiled(**given), model(**given)
                self.assertLess(farthest(got.logits, want.logits), 1)
                self.assertLess(farthest(got.loss, want.loss), 1)
                given["position_ids"] = given["position_ids"] + 1
                self.expect("E701", lambda: compiled(**given), "position_ids are not the plan's")
        self.assertEqual(counter.frame_count, 1)

    def test_by_hand(self):
        """A program of one mask, made by hand, runs a model whose layers are all alike, with `Attention.bind` alone."""
        model, (batch, logits, *_) = tiny(), judged("llama")
        prog = by_hand()
        plan = prog.plan(batch.lengths, {"doc": batch.doc})
        out = model(plan.take(batch.tokens)[None], position_ids=plan.positions()[None], use_cache=False,
                    fcpc=Attention(prog).bind(plan))
        self.assertLess(farthest(plan.restore(out.logits[0].detach()), logits), 1)


class NoPositions(LlamaForCausalLM):
    def forward(self, input_ids=None, **kwargs):
        return super().forward(input_ids, **kwargs)


class Refused(Expecting):
    """What a plan cannot do for a model is refused, and says what to do."""

    @classmethod
    def setUpClass(cls):
        cls.batch = batch_of()

    def bound(self, model, prog=None, **more):
        """(plan, what the model is called with)."""
        prog = prog or program(model, **more)
        plan = prog.plan(self.batch.lengths, {"doc": self.batch.doc})
        return plan, fcpc.hf.inputs(Attention(prog), plan, self.batch.tokens, self.batch.labels)

    def test_masks(self):
        """An attention_mask with a zero is an error, with two dimensions and with four. One without is none."""
        model = tiny()
        _, given = self.bound(model)
        ones = torch.ones_like(given["input_ids"])
        right = model(**given).loss
        self.assertEqual(model(**given, attention_mask=ones).loss, right)
        ones[0, 0] = 0
        self.expect("E701", lambda: model(**given, attention_mask=ones), "pack sequences", "prog.plan(lengths)")
        four = torch.zeros(1, 1, ones.shape[1], ones.shape[1])
        self.expect("E701", lambda: model(**given, attention_mask=four), "pack sequences")
        for more in ({"and_mask_function": masking_utils.causal_mask_function},
                     {"block_sequence_ids": torch.zeros(1, 4, dtype=torch.long)}):
            self.expect("E702", lambda: masking_utils.create_causal_mask(
                model.config, torch.zeros(1, 4, 32), None, None, **more), "adds to its mask")

    def test_positions(self):
        """position_ids that are missing, or are not the plan's, are an error."""
        model = tiny()
        plan, given = self.bound(model)
        wrong = {**given, "position_ids": torch.arange(plan.tokens)[None]}
        self.expect("E701", lambda: model(**wrong), "position_ids=plan.positions()[None]")
        missing = {key: value for key, value in given.items() if key != "position_ids"}
        self.expect("E701", lambda: model(**missing), "position_ids=plan.positions()[None]")
        given["position_ids"][0, 5] += 1  # in place, so that it is the tensor that inputs() has made
        self.expect("E701", lambda: model(**given), "token 5 of this process")
        given["position_ids"][0, 5] -= 1
        model(**given)
        given["position_ids"][0, 5] += 1
        self.expect("E701", lambda: model(**given), "token 5 of this process")
        with torch.inference_mode():  # whose tensors do not count how often they were changed
            _, given = self.bound(model)
            model(**given)
            given["position_ids"][0, 5] += 1
            self.expect("E701", lambda: model(**given), "token 5 of this process")

    def test_positions_of_your_own(self):
        """Positions that a batch brings are those that position_ids must be, and `positions=False` compares nothing."""
        model = tiny()
        prog = program(model)
        plan, attn = prog.plan(self.batch.lengths, {"doc": self.batch.doc}), Attention(prog)
        mine = torch.arange(plan.tokens) * 2
        given = fcpc.hf.inputs(attn, plan, self.batch.tokens, positions=mine)
        self.assertEqual(given["position_ids"].tolist(), [plan.take(mine).tolist()])
        model(**given)
        self.expect("E701", lambda: model(**{**given, "position_ids": plan.positions()[None]}), "not the plan's")
        model(**{**given, "fcpc": fcpc.hf.bind(attn, plan, positions=False), "position_ids": plan.positions()[None]})
        three = fcpc.hf.inputs(attn, plan, self.batch.tokens, positions=torch.stack([mine, mine, mine]))
        self.assertEqual(three["position_ids"].shape, (3, 1, plan.tokens))
        three["fcpc"].compare(three["position_ids"])
        three["fcpc"].compare(three["position_ids"][0])
        self.expect("E701", lambda: three["fcpc"].compare(three["position_ids"] + 1), "not the plan's")
        self.expect("E701", lambda: given["fcpc"].compare(three["position_ids"]), "several planes")

    def test_labels(self):
        """labels without shift_labels are an error, and so are losses of other tasks."""
        model = tiny()
        _, given = self.bound(model)
        loss, table = model.loss_function, transformers.loss.loss_utils.LOSS_MAPPING
        self.assertIs(table["ForCausalLM"], transformers.loss.loss_utils.ForCausalLMLoss)  # by which a Trainer counts
        self.expect("E701", lambda: model(**{**given, "shift_labels": None}), "shift_labels", "fcpc.hf.inputs")
        self.expect("E701", lambda: model(**{**given, "labels": None}), "shift_labels without labels")
        for name in MODELS:
            model, sequences = model_of(config(name)), batch_of().documents
            prog = program(model, documents=None)
            given = inputs(model, Attention(prog), prog.plan(sequences, {}), self.batch)
            model(**given)
        self.expect("E701", lambda: loss(None, None, 5, fcpc=given["fcpc"]), "shift_labels")
        self.expect("E702", lambda: transformers.LlamaForSequenceClassification._from_config(
            config("llama"), attn_implementation="fcpc"), "LlamaForSequenceClassification", "plan.restore")
        masked = tiny()
        masked.loss_type = "ForMaskedLM"
        other = masked.loss_function
        self.expect("E702", lambda: other(None, None, 5, fcpc=given["fcpc"]), "ForMaskedLM")
        part = fcpc.hf.program(config("llama"), cluster=fcpc.Cluster(1, 2, here=range(1))).plan([64])
        bound = fcpc.hf.BoundModel(part, (), None)
        bound.attended, bound.labels = True, 9
        self.expect("E209", lambda: loss(None, None, 5, shift_labels=1, fcpc=bound), "num_items_in_batch",
                    "take_labels")
        self.expect("E203", lambda: loss(None, None, 5, shift_labels=1, num_items_in_batch=8, fcpc=bound),
                    "num_items_in_batch is 8", "9 labels")

    def test_other_ignore(self):
        """Whatever stands for no label in the batch, the loss leaves it out."""
        model, batch = tiny(), self.batch
        prog = program(model)
        attn, plan = Attention(prog), prog.plan(batch.lengths, {"doc": batch.doc})
        labels = torch.where(batch.labels == 5, 6, batch.labels)
        losses = [model(**fcpc.hf.inputs(attn, plan, batch.tokens, torch.where(labels == NO_LABEL, ignore, labels),
                                         ignore=ignore)).loss for ignore in (NO_LABEL, 5)]
        self.assertEqual(*losses)

    def test_what_a_model_is_called_with(self):
        """What a model does by the order of its tensors, where layers do not see it."""
        model = tiny()
        _, given = self.bound(model)
        for code, more in (("E203", {"logits_to_keep": 1}), ("E702", {"pixel_values": torch.zeros(1)}),
                           ("E702", {"image_grid_thw": torch.zeros(1)}), ("E702", {"input_features": torch.zeros(1)})):
            self.expect(code, lambda: model(**given, **more), next(iter(more)))

    def test_what_layers_ask(self):
        """Scale, window, softcap, sinks, dropout and what is unknown are compared in each layer."""
        model = tiny()
        plan, given = self.bound(model)
        layer, x = model.model.layers[0].self_attn, torch.zeros(1, 4, plan.tokens, 8)
        right = {"scaling": 8 ** -0.5, "position_ids": given["position_ids"], "fcpc": given["fcpc"]}

        def ask(module=layer, mask=None, **more):
            return fcpc.hf.attention(module, x, x[:, :2], x[:, :2], mask, **{**right, **more})
        self.assertEqual(ask()[0].shape, (1, plan.tokens, 4, 8))
        sinks = torch.zeros(4)
        for code, words, more in (("E203", "scales by 30.0", {"scaling": 30.0}),
                                  ("E203", "sliding_window = 30", {"sliding_window": 30}),
                                  ("E203", "sliding_window = 30", {"mask": fcpc.hf.Unmade(30)}),
                                  ("E203", "softcap = 30.0", {"softcap": 30.0}),
                                  ("E203", "dropout = 0.5", {"dropout": 0.5}),
                                  ("E203", "sink=0.0", {"s_aux": sinks}),
                                  ("E203", "both directions", {"is_causal": False}),
                                  ("E203", "both directions", {"mask": fcpc.hf.Unmade(None, causal=False)}),
                                  ("E702", "a window of 30", {"mask": fcpc.hf.Unmade(None), "sliding_window": 30}),
                                  ("E203", "'position_bias'", {"position_bias": x}),
                                  ("E209", "names no plan", {"fcpc": None}),
                                  ("E202", "this is a int", {"fcpc": 3}),
                                  ("E203", "layer 2", {"module": SimpleNamespace(layer_idx=2)}),
                                  ("E203", "layer None", {"module": SimpleNamespace()})):
            self.expect(code, lambda: ask(**more), words)
        self.expect("E702", lambda: fcpc.hf.Unmade(None).shape, "computes with its mask")
        two = torch.stack([self.batch.tokens, self.batch.tokens])
        self.expect("E701", lambda: tiny()(two, use_cache=False, fcpc=given["fcpc"]), "batch dimension is 2")
        self.expect("E701", lambda: model(**{**given, "input_ids": given["input_ids"][:, :9],
                                             "position_ids": given["position_ids"][:, :9]}), "[1, 9]")
        self.expect("E203", lambda: model_of(config("llama", attention_dropout=0.5)).train()(**given), "dropout = 0.5")
        _, given = self.bound(model, sink=0.0)
        self.expect("E203", lambda: model(**given), "the program has sinks, and the model none")

    def test_other_programs(self):
        """A program that is not the model's is an error, which names fcpc.hf.program."""
        for name in ("gemma2", "qwen3", "gpt_oss", "olmo3"):
            model = model_of(config(name))
            scale = fcpc.hf.program(model).plan([8]).scale
            _, given = self.bound(model, by_hand(scale=scale))
            self.expect("E203", lambda: model(**given), "a window of 6", "fcpc.hf.program(model)")
            several = fcpc.program(layers=["causal", "window(w = 6)"], scale=scale, **HAND)
            self.expect("E203", lambda: self.bound(model, several), "2 masks", "fcpc.hf.program(model)")
            prog = program(model)
            plan, given = self.bound(model, prog)
            given["fcpc"] = Attention(prog).bind(plan)
            self.expect("E203", lambda: model(**given), "several masks", "fcpc.hf.bind")
            self.expect("E203", lambda: fcpc.hf.bind(Attention(prog), plan.layers[1]), "one of the 2 masks")
        _, given = self.bound(tiny())
        self.expect("E203", lambda: model_of(config("mistral"))(**given), "sliding_window = 6", "fcpc.hf.program")
        _, given = self.bound(model_of(config("mistral", sliding_window=7)))
        self.expect("E203", lambda: model_of(config("mistral"))(**given), "sliding_window = 6", "has 7")
        self.expect("E203", lambda: program(config("llama4_text")), "a sequence of its own")
        self.expect("E202", lambda: fcpc.hf.program(3), "a config of transformers with one")
        self.expect("E202", lambda: fcpc.hf.program(config("llama"), mask=lambda b, h, q, k: q >= k), "text")

    def test_no_tokens(self):
        """Models of transformers cannot compute without tokens. All ranks say so, not only the one that has none."""
        for rank in range(2):
            prog = fcpc.hf.program(config("llama"), cluster=fcpc.Cluster(1, 2, here=range(rank, rank + 1)), block=16)
            self.expect("E203", lambda: fcpc.hf.bind(None, prog.plan([9])), "rank 1 has no token")

    def test_what_is_bound(self):
        """An Attention and a plan, in this order."""
        prog = program(tiny())
        attn, plan = Attention(prog), prog.plan(self.batch.lengths, {"doc": self.batch.doc})
        self.expect("E203", lambda: fcpc.hf.bind(prog, plan), "an fcpc.torch.Attention is expected")
        self.expect("E203", lambda: fcpc.hf.bind(attn, None), "a plan is expected")
        self.expect("E203", lambda: fcpc.hf.inputs(plan, attn, self.batch.tokens), "a plan is expected")
        self.expect("E701", lambda: fcpc.hf.inputs(attn, plan, self.batch.tokens[None]), "the packed batch is expected")

    def test_furthest_position(self):
        """Where the furthest position of a process decides how all its tokens are rotated, processes would differ."""
        for rope in ({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
                     {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
                      "original_max_position_embeddings": 16}):
            of = config("llama", rope_parameters=rope,
                        max_position_embeddings=16 if rope["rope_type"] == "dynamic" else 64)
            prog = fcpc.hf.program(of, cluster=fcpc.Cluster(1, 2, "cpu", range(1)), block=16)
            for lengths, refused in ([17, 16], True), ([16, 16], False):
                plan = prog.plan(lengths)
                self.expect("E702" if refused else "E203", lambda: fcpc.hf.bind(None, plan),
                            "goes to position 16" if refused else "an fcpc.torch.Attention")
                positions = torch.arange(plan.global_tokens)  # the caller's own go further
                self.expect("E702", lambda: fcpc.hf.inputs(None, plan, positions, positions=positions), "position")
            model = model_of(of)
            prog = program(model, documents=None)
            model(**fcpc.hf.inputs(Attention(prog), prog.plan([40]), torch.arange(40)))

    def test_other_models(self):
        """A model that mixes tokens by their place, or whose layers are no attention of the language, is named."""
        for name, why in mixers.REFUSED.items():
            kind = transformers.AutoConfig.for_model(name)
            with self.subTest(name):
                self.expect("E702", lambda: fcpc.hf.program(kind), name, why)
        for name, more, words in (
                ("jamba", {}, ("jamba", "layer 0 is linear_attention", "by their place", "takes no initial state")),
                ("lfm3", {"layer_types": ["conv", "full_attention"]}, ("layer 0 is conv", "fcpc.hf has that of qwen3_n")),
                ("recurrent_gemma", {"lru_width": 32}, ("recurrent_gemma", "layer 0 is")),
                ("deepseek_v32", {}, ("layer 0 is indexed_attention", "no attention that fcpc.hf knows")),
                ("gemma4_text", {"head_dim": 8, "global_head_dim": 16, "num_key_value_heads": 2, **KINDS},
                 ("gemma4_text", "has head_dim = 16 and layer 0 8")),
                ("llama4_text", {**MODELS["llama4_text"][0], "attn_temperature_tuning": True}, ("by their place",)),
                ("gemma3_text", {**MODELS["gemma3_text"][0], "use_bidirectional_attention": True},
                 ("both directions",)),
                ("t5", {}, ("t5", "an encoder and a decoder"))):
            sizes = {key: value for key, value in SIZES.items() if name != "t5"}
            of = transformers.AutoConfig.for_model(name, **{**sizes, **more})
            with self.subTest(name):
                self.expect("E702", lambda: fcpc.hf.program(of), *words)
        for make, words in ((lambda: model_of(transformers.BloomConfig(hidden_size=32, n_head=4, n_layer=1)),
                             ("Bloom", "computes attention by itself")),
                            (lambda: NoPositions._from_config(config("llama"), attn_implementation="fcpc"),
                             ("NoPositions", "no position_ids"))):
            self.expect("E702", make, *words)
        hybrid = transformers.AutoConfig.for_model("jamba", **SIZES)
        self.expect("E702", lambda: model_of(hybrid), "layer 0 is linear_attention")
        model, (_, given) = tiny(), self.bound(tiny(), by_hand())
        for layer in model.model.layers:
            layer.self_attn.config = hybrid
        hybrid._attn_implementation = fcpc.hf.NAME
        self.expect("E702", lambda: model(**given), "layer 0 is linear_attention")

    def test_layers_that_recur(self):
        """A hybrid's program has its layers. Without them, or with a KV cache, its call is an error."""
        of = config("qwen3_next")
        made = fcpc.hf.program(of, documents="doc")
        self.assertIn("scan(heads = 4, head_dim = 8, value_dim = 6, decay = matrix) x 3", made.source)
        self.assertIn("halo(before = 3, channels = 56) x 3", made.source)
        self.assertEqual((made.masks, made.model.layers), (1, (-1, -1, -1, 0)))
        self.assertEqual(set(HYBRIDS), set(mixers.MIXERS))
        model, batch = model_of(of), batch_of()
        prog = program(model)
        plan = prog.plan(batch.lengths, {"doc": batch.doc})
        self.assertGreater(len(plan.stretches()), plan.documents)  # states go from stretch to stretch
        given = inputs(model, Attention(prog), plan, batch)
        self.expect("E203", lambda: model(**{**given, "use_cache": True}), "use_cache=False")
        plain = by_hand()
        plan = plain.plan(batch.lengths, {"doc": batch.doc})
        given = inputs(model, Attention(plain), plan, batch)
        self.expect("E203", lambda: model(**given), "no kind of layers is so")
        alone = model_of(of, "eager")
        logits = alone(batch.tokens[None], use_cache=False).logits  # as if nothing had been wrapped
        self.assertLess(farthest(logits, model_of(of, "sdpa")(batch.tokens[None], use_cache=False).logits), 1)

    def test_other_attention(self):
        """A model that attends by something else does not leave the plan out."""
        _, given = self.bound(tiny())
        for name in ("eager", "sdpa"):
            self.expect("E203", lambda: model_of(config("llama"), name)(**given), f"attends by {name}",
                        'attn_implementation="fcpc"')
        model = model_of(config("llama"), "sdpa")
        model.set_attn_implementation("fcpc")
        self.assertEqual(model(**given).loss, tiny()(**given).loss)
        model = model_of(transformers.OpenAIGPTConfig(n_embd=32, n_head=4, n_layer=1, vocab_size=WORDS), "eager")
        given["fcpc"].attended = False
        self.expect("E203", lambda: model(**given), "no layer of this model", 'attn_implementation="fcpc"')

    def test_router(self):
        """The router's own loss over the tokens of one process is not a part of that over all."""
        model = model_of(transformers.MixtralConfig(**SIZES, **GROUPS, num_local_experts=2, num_experts_per_tok=1,
                                                    sliding_window=None, output_router_logits=True))
        _, given = self.bound(model)
        model(**given)
        given["fcpc"].plan = SimpleNamespace(here=range(1), ranks=4, scale=8 ** -0.5)
        self.expect("E203", lambda: model(**given), "output_router_logits")


if __name__ == "__main__":
    unittest.main()
