"""test_titan.py: fcpc.titan beside torchtitan itself, on the CPU. Losses and norms of gradients of its debug model that
is divided by plans must be those of one process with torchtitan's own masks, to the rounding of float32."""
import contextlib
import dataclasses
import io
import json
import logging
import os
import tempfile
import traceback
import unittest
import warnings
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from datasets import Dataset
from torch.nn.attention.flex_attention import create_block_mask, create_mask

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import titan_job
import torchtitan.components.validate
from torchtitan.components.loss import MSELoss
from torchtitan.config import ConfigManager
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models import deepseek_v3, gpt_oss, llama3, qwen3

import fcpc
import fcpc.titan
from agent import forked

titan_job.logger.setLevel("ERROR")
STEPS = 2  # of a job, if its test needs no more
OWN = "torch.distributed.tensor.experimental._context_parallel._attention"


def small(config, rows=2, length=128):
    """Two layers, and short rows."""
    del config.model_spec.model.layers[2:]
    config.training.local_batch_size, config.training.seq_len = rows, length


def dense(q, k, v, *, score_mod, block_mask, scale, enable_gqa, return_aux, kernel_options):
    """FlexAttention for a CPU, where it has no gradients: by all pairs, and by the mask of the BlockMask."""
    assert score_mod is None and not return_aux.lse
    mask = create_mask(block_mask.mask_mod, q.shape[0], 1, q.shape[2], k.shape[2], device=q.device)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=scale, enable_gqa=enable_gqa), None


def exact_norm(grads, norm_type, *_, of=torch.nn.utils.get_total_norm):
    """In float32 a processor's sum of half a million squares is wrong by 1e-5, and that of a part of them by less."""
    return of([x.double() for x in grads], norm_type).float()


@contextlib.contextmanager
def as_rank(init_method, rank, ranks):
    """This process is one of `ranks`, and has what torchtitan needs on a CPU."""
    make = dist.init_process_group
    with contextlib.ExitStack() as here:
        here.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)  # of torch: that it sends more than once where meshes are divided twice
        here.enter_context(mock.patch.dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks)))
        here.enter_context(mock.patch("torch.distributed.init_process_group", lambda backend, timeout, **_: make(
            backend, init_method, timeout, ranks, rank)))
        here.enter_context(mock.patch("torch.nn.utils.get_total_norm", exact_norm))
        here.enter_context(mock.patch("time.sleep"))  # torchtitan waits for other ranks at the end
        here.enter_context(mock.patch("torchtitan.models.common.attention.FlexAttention.compiled_flex_attn", dense))
        here.enter_context(mock.patch("torchtitan.models.common.decoder.create_attention_mask", create_block_mask))
        here.enter_context(mock.patch(OWN + "._compiled_create_block_mask", create_block_mask))
        yield


def each(ranks, function):
    """What function() gives in each of some processes, or {"error": ...}."""
    with tempfile.TemporaryDirectory() as folder:
        def one(init_method, rank):
            try:
                with as_rank(init_method, rank, ranks):
                    try:
                        found = function()
                    except fcpc.Error as error:
                        found = {"error": str(error)}
                    Path(folder, str(rank)).write_text(json.dumps(found))
                return 0
            except BaseException:
                traceback.print_exc()
                return 1
        assert forked(ranks, one) == [0] * ranks
        return [json.loads(Path(folder, str(rank)).read_text()) for rank in range(ranks)]


def job(ranks, by_plans, steps=STEPS, change=None, plan=None, **parallelism):
    """What each rank of a job has logged. torchtitan's state is global, so each job has processes of its own."""
    config = titan_job.stock(steps)
    for name, value in parallelism.items():
        setattr(config.parallelism, name, value)
    if change:
        change(config)
    if by_plans:
        config = fcpc.titan.planned(config, **{"block": 16, **(plan or {})})

    def train():
        found = titan_job.train(config)
        dist.destroy_process_group()
        return found
    return each(ranks, train)


CP2, TP2, FOUR = {"context_parallel_degree": 2}, {"tensor_parallel_degree": 2}, {"context_parallel_degree": 4}


def changed(*changes, rows=2, length=128):
    """A change of a config: the small model, then others."""
    def change(config):
        small(config, rows, length)
        for one in changes:
            one(config)
    return change


class Jobs(unittest.TestCase):
    """Losses and norms of jobs by plans beside those of torchtitan."""

    def same(self, got, want, losses=2e-6, norms=2e-6):
        most = {}
        for one in got:
            for name, bound in ("losses", losses), ("norms", norms), ("validated", losses):
                mine, its = torch.tensor(one[name]), torch.tensor(want[0][name])
                self.assertEqual(mine.shape, its.shape, name)
                if len(its):
                    most[name] = max(most.get(name, 0), ((mine - its).abs() / its).max().item())
                    self.assertLessEqual(most[name], bound, name)
        self.assertGreater(abs(want[0]["losses"][0] - want[0]["losses"][-1]), 0.01)  # it learns something
        print(", ".join(f"{name} {value:.1e}" for name, value in most.items()))

    def test_two_ranks(self):
        """The smallest run: two layers, two steps, and a validation."""
        def validate(config):
            config.validator.enable, config.validator.freq, config.validator.steps = True, 2, 1
        want = job(1, False, 2, changed(validate))
        self.same(job(2, True, 2, changed(validate), **CP2), want)
        self.assertEqual(len(want[0]["validated"]), 2)

    def test_other_tokens(self):
        """Ranks that share a batch have read different ones: documents are as long, and words are others."""
        def words(_):
            letters = "ab" if os.environ["RANK"] == "0" else "ac"
            return Dataset.from_dict({"text": [letters * 20] * 100})
        source = dataclasses.replace(titan_job.DATASETS["words"], loader=words)
        with mock.patch.dict(titan_job.DATASETS, words=source):
            for found in job(2, True, 1, changed(), **CP2):
                self.assertIn("E706", found["error"])
                self.assertIn("have read different batches", found["error"])

    def test_layouts(self):
        """A few steps of two layers; with TITAN_STEPS=20 as many of the whole debug model."""
        steps, change = int(os.environ.get("TITAN_STEPS", STEPS)), changed(rows=1)
        if "TITAN_STEPS" in os.environ:
            def change(config):
                config.training.seq_len = 128
        one, two = job(1, False, steps, change), job(2, False, steps, change)
        for want, settings in (one, FOUR), (two, CP2), (one, {**CP2, **TP2}):
            with self.subTest(settings):
                self.same(job(4, True, steps, change, **settings), want)

    def test_the_own_context_parallelism(self):
        """torchtitan's, which takes rows of 128 tokens a rank or more."""
        change = changed(rows=1, length=256)
        self.same(job(4, True, STEPS, change, **CP2, **TP2), job(4, False, STEPS, change, **CP2, **TP2))

    def test_compositions(self):
        """Activation checkpointing, replicas, and sequences that are not divided among tensor ranks."""
        want, pair = job(1, False, STEPS, changed()), job(2, False, STEPS, changed())

        def set_to(where, **values):
            def change(config):
                for name, value in values.items():
                    setattr(getattr(config, where) if where else config, name, value)
            return change
        whole = lambda config: setattr(config, "loss", config.loss.loss_fn)  # noqa: E731
        for name, its, ranks, change, settings in [
                ("full checkpoints", want, 2, [set_to("", activation_checkpoint=FullAC.Config())], CP2),
                ("no checkpoints, loss in one piece", want, 2, [whole, set_to("", activation_checkpoint=None)], CP2),
                ("no sequence parallelism", want, 4, [whole], {**CP2, **TP2, "enable_sequence_parallel": False}),
                ("replicas", pair, 4, [], {**CP2, "data_parallel_replicate_degree": 2})]:
            with self.subTest(name):
                self.same(job(ranks, True, STEPS, changed(*change), **settings), its)

    def test_compiled(self):
        """Steps have other numbers of tokens; more than 8 compilations of a layer would be an error."""
        def compiled(config):
            config.compile.enable, config.compile.backend = True, "aot_eager"
        self.same(job(2, True, 11, changed(compiled), **CP2), job(1, False, 11, changed()))

    def test_other_models(self):
        """Norms of queries and keys, GQA, tied weights; a window; and ranks without tokens."""
        def qwen(config):
            config.model_spec = qwen3.model_registry("debugmodel")
            config.loss.loss_fn.global_vocab_size = config.model_spec.model.vocab_size
            del config.model_spec.model.layers[2:]
        self.same(job(4, True, STEPS, changed(qwen), **CP2, **TP2), job(1, False, STEPS, changed(qwen)))
        tiny = changed(rows=1, length=64)
        self.same(job(4, True, STEPS, tiny, {"block": 64}, **FOUR), job(1, False, STEPS, tiny))
        narrow = job(1, True, STEPS, changed(), {"mask": "window(w = 20)"})
        self.same(job(2, True, STEPS, changed(), {"mask": "window(w = 20)"}, **CP2), narrow)
        self.assertNotEqual(narrow[0]["losses"], job(1, True, STEPS, changed())[0]["losses"])

    def test_the_example(self):
        """By torchtitan's command line."""
        def main():
            told = io.StringIO()
            with contextlib.redirect_stdout(told), mock.patch("sys.argv", [
                    "titan_job.py", "--training.steps", "4", "--parallelism.context_parallel_degree",
                    os.environ["WORLD_SIZE"]]):
                titan_job.main()
            return told.getvalue()
        one, two = each(1, main), each(2, main)
        self.assertRegex(one[0], r"^loss 7\.\d+ in the first step, \d\.\d+ in step 4$")
        self.assertEqual(two, [one[0], ""])


class Refusals(unittest.TestCase):
    """What cannot be honoured is an error, and says what to do."""

    def refuses(self, code, words, call, *arguments, **more):
        with self.assertRaises(fcpc.Error) as caught:
            call(*arguments, **more)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertRegex(str(caught.exception), words)

    def test_settings(self):
        def refused(words, where, code="E203", **values):
            config = fcpc.titan.planned(titan_job.stock())
            for name, value in values.items():
                setattr(getattr(config, where) if where else config, name, value)
            self.refuses(code, words, fcpc.titan.Trainer, config)
        refused("pipeline_parallel_degree = 2: stages", "parallelism", pipeline_parallel_degree=2)
        refused("spmd_backend = 'full_dtensor'", "parallelism", spmd_backend="full_dtensor")
        refused("spmd_typechecking", "debug", spmd_typechecking=True)
        refused("disable_cuda_graphs = False: a graph would repeat", "training", disable_cuda_graphs=False)
        refused("the loss is MSELoss.Config", "", loss=MSELoss.Config())
        refused("comm.mode = 'fake_backend'", "comm", mode="fake_backend")
        refused("the validator is .*, and would run without a plan", "",
                validator=torchtitan.components.validate.Validator.Config(enable=True))

    def test_models(self):
        for code, words, spec in [
                ("E203", "layer 0 attends by VarlenAttention.Config, .*attn_backend=\"flex\"",
                 llama3.model_registry("debugmodel", attn_backend="varlen")),
                ("E702", "experts in layer 0", qwen3.model_registry("debugmodel_moe")),
                ("E702", "has its own forward .DeepSeekV3Model.", deepseek_v3.model_registry("debugmodel")),
                ("E702", "has its own get_attention_masks", gpt_oss.model_registry("debugmodel"))]:
            config = dataclasses.replace(fcpc.titan.planned(titan_job.stock()), model_spec=spec)
            self.refuses(code, words, fcpc.titan.Trainer, config)
        config = fcpc.titan.planned(titan_job.stock())
        config.model_spec.model.layers[1].attention = None
        self.refuses("E702", "has a NoneType in layer 1, and GQAttention is expected", fcpc.titan.Trainer, config)
        self.refuses("E202", "a torchtitan.trainer.Trainer.Config is expected", fcpc.titan.planned, 3)
        self.refuses("E202", "is a fcpc.titan.Trainer.Config", fcpc.titan.planned,
                     fcpc.titan.planned(titan_job.stock()))

    def test_batches_and_calls(self):
        config = fcpc.titan.planned(titan_job.stock())
        parts = fcpc.titan._Parts(config, (16, 16, 16), mock.Mock(tp=1, cp_enabled=False), torch.device("cpu"))
        x = torch.arange(32)[None]
        self.refuses("E701", r"the batch has \['image'\]", parts, {"input": x, "positions": x, "image": x}, x)
        self.refuses("E701", "positions say where documents begin", parts, {"input": x}, x)
        self.refuses("E701", "positions say where documents begin", parts, {"input": x, "positions": x}, x[:, 1:])
        layer, q = fcpc.titan.PlannedAttention.Config().build(), torch.zeros(1, 32, 16, 16)
        self.refuses("E209", "its call names no plan", layer, q, q, q)
        planned = fcpc.titan.Planned(parts.attn.bind(parts.prog.plan([32])))
        self.refuses("E203", "scale = 1.0", layer, q, q, q, attention_masks=planned, scale=1.0)
        self.refuses("E203", "out_transform", layer, q, q, q, attention_masks=planned, out_transform=abs)

    def test_configs(self):
        """A config that is given stays as it is; options of the command line reach the job."""
        config = titan_job.stock()
        before = config.to_dict()
        fcpc.titan.planned(config, block=32)
        self.assertEqual(config.to_dict(), before)
        made = ConfigManager().parse_args(["--module", "titan_job", "--config", "debugmodel", "--training.steps", "7",
                                           "--parallelism.context_parallel_degree", "4"])
        self.assertIs(type(made), fcpc.titan.Trainer.Config)
        self.assertEqual((made.training.steps, made.parallelism.context_parallel_degree), (7, 4))
        self.assertEqual(made.plan, {"mask": "causal", "block": 16})
