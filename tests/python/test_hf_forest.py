"""test_hf_forest.py: models of transformers on forests of rollouts. The judge is the same model with its own eager
attention, given each rollout alone."""
import copy
import unittest

try:
    import transformers
except ImportError:
    raise unittest.SkipTest("transformers is not there (make setup)") from None
import torch
import torch.distributed as dist

import fcpc
import fcpc.hf
from agent import four_ranks
from expecting import Expecting
from fcpc.torch import Attention
from test_forest import drawn
from test_hf import MODELS, SIZES, WORDS
from transformers import AutoConfig, AutoModelForCausalLM

NAMES = "llama", "qwen3", "gemma2", "gemma3_text", "mistral", "gpt_oss", "llama4_text", "deepseek_v3"


def a_model(name, attention="fcpc"):
    torch.manual_seed(3)
    config = AutoConfig.for_model(name, **{**SIZES, **MODELS[name][0]})
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).float()


def rollouts_of(seed=4):
    return drawn(seed, rollouts=8, tokens=(2, 9), words=WORDS - 1)


def a_step(name, group):
    """(log-probabilities, gradients) of a model by a plan of a forest; with a group, gradients are summed."""
    forest = fcpc.forest([[x + 1 for x in r] for r in rollouts_of()])
    model = a_model(name)
    prog = fcpc.hf.program(model, forest=True, block=8,
                           cluster=fcpc.detect(ranks=4) if group is None else fcpc.detect(group))
    plan = prog.plan(forest)
    with Attention(prog, group=group) as attention:
        unseen = {"positions": False} if name == "llama4_text" else {}
        logits = model(**fcpc.hf.inputs(attention, plan, forest, **unseen)).logits[0]
        found = forest.logprobs(logits, plan, group)
        sum((x * (1 + i % 3)).sum() for i, x in enumerate(found)).backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    if group is not None:
        for x in gradients:
            dist.all_reduce(x, group=group)
    return [*(x.detach() for x in found), *gradients]


def on_a_rank(name):
    dist.init_process_group("gloo")
    try:
        return [x.numpy() for x in a_step(name, dist.group.WORLD)]
    finally:
        dist.destroy_process_group()


def judged(name):
    model, made = a_model(name, "eager"), []
    for i, rollout in enumerate(rollouts_of()):
        tokens = torch.tensor(rollout) + 1
        p = torch.log_softmax(model(tokens[None]).logits[0].double(), -1)
        made.append(torch.cat([p.new_zeros(1), p[:-1].gather(1, tokens[1:, None])[:, 0]]))
    sum((x * (1 + i % 3)).sum() for i, x in enumerate(made)).backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return [*(x.detach() for x in made), *gradients]


class Models(Expecting):
    def near(self, got, want, name):
        for a, b in zip(got, want, strict=True):
            self.assertLess((torch.as_tensor(a).double() - b).abs().max(), 3e-4 * max(1, b.abs().max()), name)

    def test_each(self):
        for name in NAMES:
            with self.subTest(name):
                self.near(a_step(name, None), judged(name), name)

    def test_four_processes(self):
        for name in ("gemma2", "llama"):
            want = judged(name)
            for found in four_ranks(on_a_rank, name):
                self.near(found, want, name)

    def test_what_a_program_says(self):
        said = {name: fcpc.hf.program(a_model(name), forest=True).source for name in ("llama", "gemma2", "llama4_text")}
        self.assertIn("causal and q <= last[k]", said["llama"])
        self.assertNotIn("at[q]", said["llama"])
        self.assertIn("causal and q <= last[k] and at[q] - at[k] < 6", said["gemma2"])
        self.assertIn("causal and q <= last[k] and at[q] / 6 == at[k] / 6", said["llama4_text"])

    def test_refused(self):
        model, forest = a_model("llama"), fcpc.forest(rollouts_of())
        prog = fcpc.hf.program(model, forest=True, block=8)
        plan, attention = prog.plan(forest), Attention(prog)
        plain = fcpc.hf.program(model, block=8)
        other = plain.plan(forest.lengths)
        for call, *words in (
                (lambda: plain.plan(forest), "last"),
                (lambda: fcpc.hf.inputs(Attention(plain), other, forest), "forest=True"),
                (lambda: fcpc.hf.inputs(attention, plan, forest.tokens), "is for forests"),
                (lambda: fcpc.hf.bind(attention, plan), "those of a rollout"),
                (lambda: fcpc.hf.inputs(attention, plan, forest, forest.tokens), "several labels"),
                (lambda: fcpc.hf.inputs(attention, plan, forest, positions=forest.at), "positions="),
                (lambda: fcpc.hf.inputs(attention, plan, fcpc.forest([[1, 2]])), "1 trees with 2"),
                (lambda: fcpc.hf.inputs(None, plan, forest), "Attention is expected"),
                (lambda: fcpc.hf.program(model, forest=True, documents="doc", fields=["doc"]), "documents="),
                (lambda: fcpc.hf.program(model, forest=True, fields=["last"]), "'last'")):
            self.expect("E203", call, *words)
        self.expect("E702", lambda: fcpc.hf.program(a_model("lfm2"), forest=True), "branches")
        inputs = fcpc.hf.inputs(attention, plan, forest)
        labels = plan.take(forest.tokens)[None]
        self.expect("E203", lambda: model(**inputs, labels=labels, shift_labels=labels), "several labels")
        wrong = {**inputs, "position_ids": plan.positions()[None]}
        self.expect("E701", lambda: model(**wrong), "position_ids are not the plan's")

    def test_own_fields(self):
        """A condition of the caller's own stands beside the forest's."""
        model, forest = a_model("llama"), fcpc.forest(rollouts_of())
        prog = fcpc.hf.program(model, forest=True, fields=["kind"], mask="kind[k] == 0", block=8)
        plan = prog.plan(forest, {"kind": [0] * len(forest)})
        want = fcpc.hf.program(model, forest=True, block=8)
        logits = [model(**fcpc.hf.inputs(Attention(p), x, forest)).logits
                  for p, x in ((prog, plan), (want, want.plan(forest)))]
        self.assertTrue(torch.equal(*logits))


if __name__ == "__main__":
    unittest.main()
