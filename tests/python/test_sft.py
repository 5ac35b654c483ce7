"""test_sft.py: transformers' Trainer and TRL's SFTTrainer on four processes that share batches. The judge is the same
trainer in one process, whose model has transformers' own eager attention and gets each document as a row of its own."""
from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import unittest
import unittest.mock

try:
    import accelerate
    import transformers
    import trl
except ImportError:
    raise unittest.SkipTest("transformers, accelerate and trl are not there (make setup)") from None
import torch
from datasets import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from trl import SFTConfig, SFTTrainer

import fcpc
import fcpc.hf
import sft
from agent import four_ranks
from expecting import Expecting
from fcpc.trainer import ContextParallel, collate, pack
from test_hf import config, model_of

NO_LABEL, WORDS, STEPS = -100, 50, 10
FAMILIES = "llama", "qwen3", "gpt_oss", "gemma3_text"
TUNINGS = ("llama", False), ("llama", True), ("gpt_oss", True), ("gemma3_text", True)
PLAN = {"block": 8}


class Rows(torch.utils.data.Dataset):
    """Rows of three documents each. Half of their tokens have no label."""

    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            lengths = (torch.randint(4, 30, (2,), generator=draw)).tolist()
            lengths.append(80 - sum(lengths))
            tokens = torch.randint(1, WORDS, (80,), generator=draw)
            labels = tokens.masked_fill(torch.rand(80, generator=draw) < 0.5, NO_LABEL)
            self.rows.append({"input_ids": tokens.tolist(), "labels": labels.tolist(), "seq_lengths": lengths})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def apart(examples):
    """What one process gets: each document is a row, filled up with a word that nobody sees."""
    ids, labels = [], []
    for one in examples:
        ids += torch.tensor(one["input_ids"]).split(one["seq_lengths"])
        labels += torch.tensor(one["labels"]).split(one["seq_lengths"])
    fill = torch.nn.utils.rnn.pad_sequence
    return {"input_ids": fill(ids, True, 0), "labels": fill(labels, True, NO_LABEL),
            "attention_mask": fill([torch.ones_like(x) for x in ids], True, 0)}


class Log(TrainerCallback):
    """Keeps the model's parameters of each step, and what is logged."""

    def __init__(self):
        self.sums = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.sums.append(sum(p.detach().double().abs().sum().item() for p in model.parameters()))


def arguments(folder, **more):
    return TrainingArguments(folder, **{
        "use_cpu": True, "max_steps": STEPS, "ddp_find_unused_parameters": False,
        "train_sampling_strategy": "sequential", "learning_rate": 0.01, "lr_scheduler_type": "constant",
        "logging_steps": 1, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "optim": "sgd",
        "max_grad_norm": 0.5,
        "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "per_device_eval_batch_size": 2, **more})


def run(trainer):
    """Losses and norms of the steps, sums of the parameters after each, and the loss of an evaluation."""
    log = Log()
    trainer.add_callback(log)
    trainer.remove_callback(PrinterCallback)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        result = trainer.train()
        evaluated = trainer.evaluate()
    steps = [x for x in trainer.state.log_history if "loss" in x]
    return {"loss": [x["loss"] for x in steps], "grad_norm": [x["grad_norm"] for x in steps], "sums": log.sums,
            "train_loss": [result.training_loss], "eval_loss": [evaluated["eval_loss"]],
            "tokens": [trainer.state.num_input_tokens_seen]}


@functools.cache
def alone(name, groups=1, **more):
    """One process, which has the rows of all groups."""
    with tempfile.TemporaryDirectory() as folder:
        return run(Trainer(
            model_of(config(name), "eager"), arguments(folder, per_device_train_batch_size=2 * groups,
                                                       remove_unused_columns=False, **more),
            data_collator=apart, train_dataset=Rows(24, 1), eval_dataset=Rows(8, 2)))


def shared(name, context, data=None, **more):
    """One of four processes."""
    with tempfile.TemporaryDirectory() as folder:
        return run(ContextParallel(
            model_of(config(name)), arguments(folder, include_num_input_tokens_seen="all", **more),
            data_collator=collate, train_dataset=data or Rows(24, 1), eval_dataset=Rows(8, 2), context=context,
            plan=PLAN))


class Stream(torch.utils.data.IterableDataset):
    """The same rows, whose number is not known."""

    def __iter__(self):
        return iter(Rows(24, 1).rows)


def resumed(folder):
    """Losses of a run that is ended after half of its steps, and of the run that goes on."""
    found = []
    for steps in STEPS // 2, STEPS:
        trainer = ContextParallel(
            model_of(config("llama")), arguments(folder, max_steps=steps, save_steps=STEPS // 2, optim="adamw_torch",
                                                 save_strategy="steps"),
            data_collator=collate, train_dataset=Rows(24, 1), plan=PLAN)
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=bool(found))
        found = [x["loss"] for x in trainer.state.log_history if "loss" in x]
    return found


def variants(folder):
    fresh()
    return {"checkpointing": shared("gpt_oss", 4, gradient_checkpointing=True),
            "stream": shared("llama", 2, Stream(), train_sampling_strategy="random"),
            "bf16": shared("llama", 4, bf16=True), "resumed": resumed(folder)}


def fresh():
    """Forgets what accelerate has found in the process that has forked this one: that it is alone."""
    for state in accelerate.state.PartialState, accelerate.state.GradientState:
        state._reset_state()
    accelerate.state.AcceleratorState._reset_state(True)


def smallest():
    fresh()
    return {("llama", 4): shared("llama", 4)}


def families():
    fresh()
    return {(name, context): shared(name, context) for name in FAMILIES for context in (4, 2)}


def settings(folder, name, **more):
    return SFTConfig(folder, **{
        "use_cpu": True, "bf16": False, "max_steps": 4, "learning_rate": 0.01, "logging_steps": 1, "report_to": [],
        "lr_scheduler_type": "constant", "save_strategy": "steps", "save_steps": 4, "save_only_model": True,
        "disable_tqdm": True, "optim": "sgd", "gradient_checkpointing": False, "max_length": 48,
        "train_sampling_strategy": "sequential", "completion_only_loss": True, "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4, "router_aux_loss_coef": 0.0 if name == "gpt_oss" else None,
        "ddp_find_unused_parameters": False, **more})


def tuner(kind, folder, name, attention, packing, **more):
    """An SFTTrainer on tokens of prompts and completions."""
    draw = torch.Generator().manual_seed(3)
    rows = [{"input_ids": torch.randint(1, WORDS, (n,), generator=draw).tolist(),
             "completion_mask": [0] * 5 + [1] * (n - 5)} for n in torch.randint(12, 40, (48,), generator=draw).tolist()]
    arguments = settings(folder, name, packing=packing)
    return kind(model_of(config(name), attention), arguments, train_dataset=Dataset.from_list(rows),
                eval_dataset=Dataset.from_list(rows[:16]), processing_class=words(), **more)


def words():
    """A tokenizer that needs no download."""
    from tokenizers import Tokenizer, models
    made = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w1"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="w0", eos_token="w2")


class Tuner(ContextParallel, SFTTrainer):
    pass


class Apart(SFTTrainer):
    """In one process: each document that TRL has packed is a row of its own. transformers' gpt-oss would let documents
    of a row see each other."""

    def _prepare_inputs(self, inputs):
        inputs = super()._prepare_inputs(inputs)
        if "position_ids" not in inputs:
            return inputs
        begins = (inputs["position_ids"][0] == 0).nonzero().flatten().tolist()
        lengths = [b - a for a, b in zip(begins, [*begins[1:], inputs["input_ids"].shape[1]])]
        return apart([{"input_ids": inputs["input_ids"][0].tolist(), "labels": inputs["labels"][0].tolist(),
                       "seq_lengths": lengths}])


def tuned(kind, name, attention, packing, **more):
    with tempfile.TemporaryDirectory() as folder:
        found = run(trainer := tuner(kind, folder, name, attention, packing, **more))
        found["saved"] = sorted(os.listdir(folder))
        found["logged"] = [{k: v for k, v in x.items() if k in ("mean_token_accuracy", "entropy", "num_tokens")}
                           for x in trainer.state.log_history]
    return found


def example():
    fresh()
    with tempfile.TemporaryDirectory() as folder:
        return sft.tune(folder, steps=4)


def tunings():
    fresh()
    return {(name, packing): tuned(Tuner, name, fcpc.hf.NAME, packing, context=4, plan=PLAN)
            for name, packing in TUNINGS}


class Comparing(Expecting):
    def compare(self, found, want, atol=2e-5):
        for name in "loss", "grad_norm", "sums", "train_loss", "eval_loss":
            got, right = (torch.tensor(x[name], dtype=torch.float64) for x in (found, want))
            self.assertEqual(got.shape, right.shape, name)
            self.assertLess(((got - right) / right).abs().max().item(), atol, (name, got, right))


class Trained(Comparing):
    def test_smallest(self):
        every = four_ranks(smallest)
        want = alone("llama")
        for found in every:
            self.compare(found["llama", 4], want)

    def test_other_tokens(self):
        for code, words in four_ranks(differing):
            self.assertEqual(code, "E706")
            self.assertIn("rank 2 of this group has read another batch", words)

    def test_settings_that_are_kept(self):
        """Layers that are computed again, rows that are read from a stream, autocast, and a run that goes on."""
        with tempfile.TemporaryDirectory() as folder:
            every = four_ranks(variants, folder)
        whole = alone("llama", optim="adamw_torch")["loss"]
        self.assertEqual(len(whole), STEPS)
        for found in every:
            self.compare(found["checkpointing"], alone("gpt_oss"))
            self.compare(found["stream"], alone("llama", groups=2))
            self.compare(found["bf16"], alone("llama", bf16=True), 2e-2)
            self.assertLess((torch.tensor(found["resumed"]) - torch.tensor(whole)).abs().max().item(), 1e-4)

    def test_families(self):
        every = four_ranks(families)
        for name in FAMILIES:
            for context in 4, 2:
                with self.subTest(name, context=context):
                    want = alone(name, groups=4 // context)
                    for found in every:
                        self.compare(found[name, context], want)


class Tuned(Comparing):
    def test_example(self):
        """The losses of examples/python/sft.py do not depend on how many processes compute them."""
        every, want = four_ranks(example), example()
        self.assertEqual(len(want), 4)
        for found in every:
            self.assertLess((torch.tensor(found) - torch.tensor(want)).abs().max().item(), 1e-4)

    def test_tuned(self):
        every = four_ranks(tunings)
        for name, packing in TUNINGS:
            with self.subTest(name, packing=packing):
                want = tuned(Apart, name, "eager", packing)
                for found in every:
                    self.compare(found[name, packing], want)
                    self.assertEqual(len(found[name, packing]["logged"]), len(want["logged"]))
                    for got, right in zip(found[name, packing]["logged"], want["logged"]):
                        self.assertEqual(got.keys(), right.keys())
                        for figure, value in right.items():
                            self.assertAlmostEqual(got[figure], value, places=4, msg=figure)
                self.assertIn("checkpoint-4", want["saved"])
                self.assertEqual([x[name, packing]["saved"] for x in every], [want["saved"], [], [], []])


class Refused(Expecting):
    """What a plan cannot honour is an error that says so, before anything is trained."""

    def made(self, kind=ContextParallel, settings=arguments, model="llama", changes=None, **more):
        with tempfile.TemporaryDirectory() as folder:
            return kind(model_of(config(model, **(changes or {}))), settings(folder), data_collator=collate,
                        train_dataset=Rows(4, 1), plan=PLAN, **more)

    def test_settings(self):
        for words, more in {
                "label_smoothing_factor": {"label_smoothing_factor": 0.1},
                "neftune_noise_alpha": {"neftune_noise_alpha": 1.0},
                "split_batches": {"accelerator_config": {"split_batches": True}},
                "dispatch_batches": {"accelerator_config": {"dispatch_batches": True}},
                "batch_rebalance": {"train_sampling_strategy": "batch_rebalance"}}.items():
            with self.subTest(words):
                self.expect("E203", lambda: self.made(settings=lambda folder: arguments(folder, **more)), words)
        self.expect("E203", lambda: self.made(compute_loss_func=lambda *_, **__: 0), "compute_loss_func")
        self.expect("E203", lambda: self.made(context=3), "context = 3", "no multiple")
        with self.subTest("ParallelismConfig"), tempfile.TemporaryDirectory() as folder:
            beside = unittest.mock.Mock(total_size=2, cp_size=2, tp_size=1)
            with unittest.mock.patch.object(accelerate.Accelerator, "parallelism_config", beside, create=True):
                self.expect("E203", lambda: self.made(), "ParallelismConfig")
        with unittest.mock.patch.object(ContextParallel, "_generate_and_score_completions", create=True):
            self.expect("E702", lambda: self.made(), "draws answers of its own")  # as TRL's GRPOTrainer does
        self.expect("E702", lambda: self.made(model="llama", changes={"is_causal": False}), "both directions")

    def test_preferences(self):
        """Trainers of TRL whose loss is another one."""
        class Preferring(ContextParallel, trl.DPOTrainer):
            pass
        rows = [{"prompt": "w3 w4", "chosen": "w5 w6", "rejected": "w7"}] * 4
        with tempfile.TemporaryDirectory() as folder:
            settings = trl.DPOConfig(folder, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True)
            self.expect("E702", lambda: Preferring(
                model_of(config("llama")), model_of(config("llama"), "eager"), settings, plan=PLAN,
                train_dataset=Dataset.from_list(rows), processing_class=words()), "DPOTrainer has a loss of its own")

    def test_dropout(self):
        trainer = self.made(changes={"attention_dropout": 0.1})
        self.expect("E203", trainer.train, "dropout = 0.1")

    def test_batches(self):
        """What a batch has is read, or it is an error."""
        ids = torch.arange(1, 13).view(2, 6)
        left = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])
        found = pack({"input_ids": ids, "attention_mask": left, "labels": ids.masked_fill(left == 0, NO_LABEL)})
        self.assertEqual(found.lengths, [4, 5])
        self.assertEqual(found.tokens.tolist(), [3, 4, 5, 6, 7, 8, 9, 10, 11])
        self.assertEqual(found.labels.tolist(), [NO_LABEL, 4, 5, 6, NO_LABEL, 8, 9, 10, 11])
        self.assertEqual((found.counted, found.kept.tolist()), (7, [2, 3, 4, 5, 6, 7, 8, 9, 10]))
        again = torch.tensor([[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]])
        self.assertEqual(pack({"input_ids": ids, "position_ids": again}).lengths, [3, 2, 1, 6])
        one = {"input_ids": ids[:1], "labels": ids[:1], "position_ids": again[:1]}
        same = {"cu_seq_lens_q": torch.tensor([0, 3, 5, 6]), "seq_idx": torch.tensor([[0, 0, 0, 1, 1, 2]]),
                "shift_labels": torch.tensor([[2, 3, NO_LABEL, 5, NO_LABEL, NO_LABEL]]), "max_length_q": 3}
        self.assertEqual(pack({**one, **same}).lengths, [3, 2, 1])
        for words, more in {
                "shift_labels are not": {"shift_labels": torch.tensor([[2, 3, 4, 5, 6, NO_LABEL]])},
                "cu_seq_lens_q says": {"cu_seq_lens_q": torch.tensor([0, 6])},
                "seq_idx says": {"seq_idx": torch.tensor([[0, 0, 0, 1, 1, 1]])},
                "position_ids go on with 4": {"position_ids": torch.tensor([[0, 1, 2, 4, 5, 6]])},
                "between column 1 and column 3": {"attention_mask": torch.tensor([[1, 1, 0, 1, 1, 1]])},
                "a mask of pairs": {"attention_mask": torch.ones(1, 1, 6, 6)},
                "has a label": {"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0]])}}.items():
            with self.subTest(words):
                self.expect("E701", lambda: pack({**one, **more}), words)
        for name in "past_key_values", "pixel_values", "token_type_ids":
            self.expect("E203", lambda: pack({**one, name: torch.zeros(1, 6)}), name)
        example = {"input_ids": [1, 2, 3], "seq_lengths": [2, 1]}
        self.assertEqual(collate([example, example])["position_ids"].tolist(), [[0, 1, 0, 0, 1, 0]])
        self.expect("E203", lambda: collate([{**example, "completion_mask": [0, 1, 1]}]), "completion_mask")
        self.expect("E701", lambda: collate([{**example, "seq_lengths": [2, 2]}]), "documents of 4")

    def test_predictions(self):
        """Logits come in the batch's order, where padding has none; rows are those of the model alone."""
        rows = [{"input_ids": torch.arange(1, n + 1), "labels": torch.arange(1, n + 1)} for n in (20, 33)]
        fill = torch.nn.utils.rnn.pad_sequence

        def padded(examples):
            ids = [x["input_ids"] for x in examples]
            return {"input_ids": fill(ids, True, 0), "labels": fill(ids, True, NO_LABEL),
                    "attention_mask": fill([torch.ones_like(x) for x in ids], True, 0)}
        with tempfile.TemporaryDirectory() as folder:
            trainer = ContextParallel(model_of(config("llama")), arguments(folder), data_collator=padded, plan=PLAN)
            found = trainer.predict(rows)
        alone = model_of(config("llama"), "eager")
        for got, row in zip(found.predictions, rows):
            n = len(row["input_ids"])
            want = alone(row["input_ids"][None], use_cache=False).logits[0].detach()
            self.assertLess((torch.tensor(got[:n]) - want).abs().max().item(), 1e-4)
            self.assertFalse(got[n:].any())
        self.assertEqual(found.label_ids[0][20:].tolist(), [NO_LABEL] * 13)


def differing():
    """Rank 2 reads other tokens than the ranks with which it shares the batch."""
    fresh()
    rank = int(os.environ["RANK"])
    data = Rows(4, 1)
    if rank == 2:
        data.rows[1]["input_ids"][7] += 1
    with tempfile.TemporaryDirectory() as folder:
        trainer = ContextParallel(model_of(config("llama")), arguments(folder), data_collator=collate,
                                  train_dataset=data, plan=PLAN)
        try:
            trainer.train()
        except fcpc.Error as error:
            return error.code, str(error)
    return None


if __name__ == "__main__":
    unittest.main()
