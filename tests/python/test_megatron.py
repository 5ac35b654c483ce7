"""test_megatron.py: fcpc.megatron beside Megatron-core's own modules, on the CPU. Losses and gradients of a GPTModel
that is divided by plans must be those of one that is not, with Megatron's own DotProductAttention and its own masks, to
the rounding of float32."""
import contextlib
import functools
import unittest
import warnings
from unittest import mock

with warnings.catch_warnings():  # that other packages are not here, and that settings are old
    warnings.simplefilter("ignore")
    import megatron_gpt
    from megatron_gpt import OnCPU

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.datasets.gpt_dataset import _get_ltor_masks_and_position_ids
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

import fcpc
import fcpc.megatron
from agent import forked, four_ranks
from fcpc.torch import Attention

WORDS, EOD, LENGTH, ROWS, STEPS = 32, 0, 96, 2, 3


class Norm(torch.nn.LayerNorm):
    """Megatron's own without Apex refuses sequence_parallel: it does not mark parameters whose gradients are to be
    summed over tensor ranks. This one does."""

    def __init__(self, config, hidden_size, eps=1e-5):
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


class Case:
    """A model, and how its batches are divided into documents.

    documents  None: each row is one. "eod": at EOD, as reset_attention_mask does. "thd": by cu_seqlens of one row
    model      arguments of GPTModel
    config     settings of its TransformerConfig
    """

    def __init__(self, documents=None, model=(), norm=False, **config):
        self.documents, self.norm, self.model = documents, norm, {"position_embedding_type": "rope", **dict(model)}
        self.config = config

    def make_config(self, tensor=1, context=1, **more):
        settings = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_query_groups": 2,
                    "attention_dropout": 0.0, "hidden_dropout": 0.0, "use_cpu_initialization": True,
                    "calculate_per_token_loss": True, "finalize_model_grads_func": finalize_model_grads,
                    "tensor_model_parallel_size": tensor, "context_parallel_size": context, **self.config, **more}
        return TransformerConfig(**settings)

    def make_model(self, config, spec):
        layer = spec(get_gpt_layer_local_spec(num_experts=config.num_moe_experts, qk_layernorm=config.qk_layernorm,
                                              moe_use_legacy_grouped_gemm=False))
        if self.norm:
            layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
            layer = TransformerBlockSubmodules([layer] * config.num_layers, Norm)
        torch.manual_seed(0)
        return GPTModel(config, layer, WORDS, LENGTH, **self.model)

    def batches(self, number):
        """Those of a data-parallel group, as Megatron's datasets give them."""
        draw = torch.Generator().manual_seed(5 + number)
        for step in range(STEPS):
            words = torch.randint(1, WORDS, (ROWS, LENGTH + 1), generator=draw)
            words[torch.rand(words.shape, generator=draw) < 0.04] = EOD
            batch = {"tokens": words[:, :-1].contiguous(), "labels": words[:, 1:].contiguous()}
            made = [_get_ltor_masks_and_position_ids(row, EOD, True, True, True, True) for row in batch["tokens"]]
            batch["loss_mask"] = torch.stack([mask for _, mask, _ in made])
            # The ranks that hold the first row have fewer tokens that count than those of the second.
            batch["loss_mask"][0, :LENGTH // 2] = 0
            if self.documents == "eod":
                batch["position_ids"] = torch.stack([places for _, _, places in made])
                batch["attention_mask"] = torch.stack([mask for mask, _, _ in made])
            else:
                batch["position_ids"] = torch.arange(LENGTH).repeat(ROWS, 1)
            if self.documents == "thd":
                cuts = torch.tensor([0, 50 + step, 50 + step, 70, LENGTH])
                batch = {name: x[:1] for name, x in batch.items()}
                batch["cu_seqlens"] = cuts[None].int()
                batch["position_ids"] = torch.cat([torch.arange(n) for n in cuts.diff().tolist()])[None]
                doc = torch.repeat_interleave(torch.arange(4), cuts.diff())
                batch["attention_mask"] = ((doc[:, None] != doc) | (torch.arange(LENGTH)[:, None] <
                                                                    torch.arange(LENGTH)))[None, None]
            yield batch


def their_loss(mask, output):
    """What pretrain_gpt.py of Megatron-LM returns."""
    total, tokens = (output.float() * mask).sum(), mask.sum().int()
    return total, tokens, {"lm loss": torch.stack([total.detach(), tokens.float()])}


def theirs(data, model):
    batch = next(data)
    output = model(batch["tokens"], batch["position_ids"], batch.get("attention_mask"), labels=batch["labels"])
    return output, functools.partial(their_loss, batch["loss_mask"])


def planned(case, config, number, **more):
    """Batches of this rank. The plan divides each batch by itself, without what Megatron knows of it."""
    group = parallel_state.get_context_parallel_group()
    eod = case.documents == "eod"
    program = fcpc.megatron.program(config, cluster=fcpc.detect(group), block=16, **more,
                                    **{"documents": "doc"} if eod else {})
    attention = Attention(program, group=group)
    for batch in case.batches(number):
        batch.pop("attention_mask", None)
        fields = {"doc": fcpc.megatron.documents(batch["tokens"], EOD).flatten()} if eod else None
        plan = program.plan(fcpc.megatron.lengths(batch), fields)
        yield fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, batch)


def part_of(whole, like):
    """What a tensor rank has of a parameter, or of its gradient."""
    size, rank = (f() for f in (parallel_state.get_tensor_model_parallel_world_size,
                                parallel_state.get_tensor_model_parallel_rank))
    for dim, (many, few) in enumerate(zip(whole.shape, like.shape)):
        if many != few:
            whole = whole.chunk(size, dim)[rank]
    return whole


def trained(case, config, spec, data, forward_step, state=None):
    """(losses, gradients of the first step, the parameters it began with)."""
    model, gradients = case.make_model(config, spec), {}
    if state is not None:
        with torch.no_grad():
            for name, x in model.named_parameters():
                x.copy_(part_of(state[name], x))
    began = {name: x.detach().clone() for name, x in model.named_parameters()}
    wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(), model)

    def after():
        if not gradients:
            gradients.update({name: x.main_grad.clone() for name, x in model.named_parameters()})
    losses = megatron_gpt.train(wrapped, data, STEPS, forward_step, after, optimizer="sgd", lr=0.05)
    return losses, gradients, began


def compare(case, layouts, more):
    """On each of four ranks: the largest differences from one process, (of losses, of gradients over the largest of a
    parameter), for each layout (tensor, context, settings)."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    rank, found = dist.get_rank(), []
    # Without Transformer Engine a router of experts reads a name that is not there.
    with OnCPU(), mock.patch("megatron.core.transformer.moe.moe_utils.te_general_gemm", None, create=True):
        for tensor, context, settings in layouts:
            number = rank // (tensor * context)
            parallel_state.initialize_model_parallel(1, context_parallel_size=1)
            own = {name: x for name, x in settings.items() if name == "calculate_per_token_loss"}
            want, right, state = trained(case, case.make_config(**own), lambda spec: spec, case.batches(number), theirs)
            parallel_state.destroy_model_parallel()
            parallel_state.initialize_model_parallel(tensor, context_parallel_size=context)
            config = case.make_config(tensor, context, **settings)
            got, gradients, _ = trained(case, config, fcpc.megatron.layer_spec, planned(case, config, number, **more),
                                        megatron_gpt.forward_step, state)
            found.append((max(abs(a - b) for a, b in zip(got, want)),
                          max(((x - part_of(right[name], x)).abs().max() / right[name].abs().max().clamp(min=1e-30)
                               ).item() for name, x in gradients.items())))
            assert gradients.keys() == right.keys() and all(x.abs().max() > 0 for x in right.values())
            parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return found


def example(tensor, context):
    """The losses of examples/python/megatron_gpt.py on this rank."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor, context_parallel_size=context)
    with OnCPU():
        config, steps = megatron_gpt.make_config(), 8
        data = megatron_gpt.planned(config, megatron_gpt.batches(steps))
        losses = megatron_gpt.train(megatron_gpt.make_model(config), data, steps)
    dist.destroy_process_group()
    return losses


class Refusals:
    """What cannot be honoured is an error, and says what to do."""

    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        parallel_state.initialize_model_parallel()

    @classmethod
    def tearDownClass(cls):
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()

    def setUp(self):
        self.here = self.enterContext(contextlib.ExitStack())
        self.here.enter_context(OnCPU())
        self.here.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")

    def refused(self, code, words, call, *arguments, **more):
        with self.assertRaises(fcpc.Error) as caught:
            call(*arguments, **more)
        self.assertEqual(caught.exception.code, code, caught.exception)
        self.assertRegex(str(caught.exception), words)

    def planned(self, case, program=None, ranks=4, **batch):
        """(a model, its config, the first batch, the program and its plan): ranks are in this process."""
        config = case.make_config()
        program = program or fcpc.megatron.program(config, cluster=fcpc.detect(ranks=ranks), block=16)
        attention = Attention(program)
        whole = {**next(case.batches(0)), **batch}
        whole.pop("attention_mask", None)
        plan = program.plan(fcpc.megatron.lengths(whole))
        return case.make_model(config, fcpc.megatron.layer_spec), config, whole, attention, plan

    def called(self, case, change=None, program=None, **more):
        """Calls the model by a plan, with some arguments or attributes of its config changed."""
        model, config, whole, attention, plan = self.planned(case, program)
        inputs = fcpc.megatron.inputs(fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, whole))
        for name, value in (change or {}).items():
            setattr(config, name, value)
        return model(**{**inputs, **more})

    def test_in_one_process(self):
        """All ranks of a plan in one process: the losses of each token are those of Megatron's own attention."""
        for case in Case(), Case(window_size=(20, 0)), Case(window_size=(-1, 0)), Case("thd"):
            model, config, whole, attention, plan = self.planned(case)
            batch = fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, whole)
            got = plan.restore(model(**fcpc.megatron.inputs(batch))[0])
            # Megatron's own masks with -1, "no window", leave out every key.
            own = Case(case.documents, **{} if config.window_size == (-1, 0) else case.config)
            judge = own.make_model(own.make_config(), lambda spec: spec)
            judge.load_state_dict(model.state_dict())
            mask = next(case.batches(0)).get("attention_mask")
            want = judge(whole["tokens"], whole["position_ids"], mask, labels=whole["labels"])
            torch.testing.assert_close(got, want.flatten(), rtol=0, atol=2e-6)

    def test_configs(self):
        base = dict(num_layers=2, hidden_size=32, num_attention_heads=4, attention_dropout=0.0)
        for code, words, settings in [
                ("E203", "attention_dropout is 0.1, .*attention_dropout=0.0", {"attention_dropout": 0.1}),
                ("E702", "window_size = .20, 5., and a causal window", {"window_size": (20, 5)}),
                ("E702", r"router, which is no sum over tokens \(moe_aux_loss_coeff = 0.01\)",
                 {"num_moe_experts": 2, "moe_aux_loss_coeff": 0.01, "context_parallel_size": 2}),
                ("E702", "leaves out tokens of full experts", {
                    "num_moe_experts": 2, "moe_expert_capacity_factor": 1.0, "context_parallel_size": 2,
                    "moe_router_load_balancing_type": "none", "moe_token_dispatcher_type": "alltoall"}),
                ("E702", r"\(MTP\) by their place", {"mtp_num_layers": 1}),
                ("E702", "Mamba", {"is_hybrid_model": True}),
                ("E203", "variable_seq_lengths=True", {"pipeline_model_parallel_size": 2,
                                                       "pipeline_dtype": torch.float32}),
                ("E702", "largest logits", {"log_max_attention_logit": True})]:
            config = TransformerConfig(**{**base, **settings})
            self.refused(code, words, fcpc.megatron.program, config)
            if "window_size" not in settings:
                self.refused(code, words, fcpc.megatron.CoreAttention, config, 1, AttnMaskType.causal, "self")
        self.refused("E702", "latent keys", fcpc.megatron.program, MLATransformerConfig(**base))
        self.refused("E202", "a TransformerConfig or its model is expected", fcpc.megatron.program, 3)
        self.refused("E202", "mask is text", fcpc.megatron.program, TransformerConfig(**base), mask=3)

    def test_layers(self):
        config = Case().make_config()
        make = fcpc.megatron.CoreAttention
        self.refused("E203", "attn_mask_type padding", make, config, 1, AttnMaskType.padding, "self")
        self.refused("E702", "'cross'", make, config, 1, AttnMaskType.causal, "cross")
        self.refused("E203", "no dropout", make, config, 1, AttnMaskType.causal, "self", attention_dropout=0.1)
        self.refused("E702", "k_channels = 24", make, config, 1, AttnMaskType.causal, "self", k_channels=24)
        self.refused("E702", "MLASelfAttention, and SelfAttention is expected", fcpc.megatron.layer_spec,
                     get_gpt_layer_local_spec(multi_latent_attention=True))
        self.refused("E202", "a ModuleSpec is expected", fcpc.megatron.layer_spec, 3)
        layer, q = make(config, 1, AttnMaskType.causal, "self"), torch.zeros(8, 1, 4, 8)
        self.refused("E209", "names no plan", layer, q, q, q)
        self.refused("E209", "lengths of its sequences", layer, q, q, q, packed_seq_params=PackedSeqParams("thd"))
        *_, whole, attention, plan = self.planned(Case())
        params = fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, whole)["packed_seq_params"]
        self.refused("E702", "this is no GPTModel", layer, q, q, q, packed_seq_params=params)
        params.seen = True
        for code, words, more in [("E203", "attention_bias", {"attention_bias": q}),
                                  ("E701", "attention_mask", {"attention_mask": q}),
                                  ("E203", "attn_mask_type no_mask", {"attn_mask_type": AttnMaskType.no_mask})]:
            self.refused(code, words, layer, q, q, q, packed_seq_params=params, **more)
        self.refused("E701", "packed end to end", layer, *3 * [q.expand(8, 2, 4, 8)], packed_seq_params=params)
        layer.softmax_scale = 1.0
        self.refused("E203", "the model scales by 1.0", layer, q, q, q, packed_seq_params=params)

    def test_calls(self):
        case, make = Case(), functools.partial(fcpc.program, "causal", heads=4, kv_heads=2, head_dim=8, dtype="fp32",
                                               block=16, cluster=fcpc.detect(ranks=4))
        places = torch.arange(LENGTH * ROWS)[None]
        self.assertTrue(self.called(case, program=make()).isfinite().all())  # a program by hand
        self.refused("E203", "among 1 processes, and context_parallel_size is 2", self.called, case,
                     {"context_parallel_size": 2})
        self.refused("E203", "a window of 9, and the program 1 masks", self.called, case, {"window_size": (8, 0)},
                     make())
        self.refused("E203", "other layers or windows", self.called, case, {"window_size": (8, 0)})
        self.refused("E203", "has a sink", self.called, case, None, make(sink=0.0))
        self.refused("E203", "has no sink", self.called, Case(softmax_type="learnable"), None, make())
        self.refused("E701", "position_ids are not those", self.called, case, position_ids=places)
        self.refused("E701", "input_ids are", self.called, case, input_ids=torch.zeros(2, LENGTH, dtype=torch.long))
        self.refused("E701", "attention_mask", self.called, case, attention_mask=torch.zeros(1, 1, 4, 4))
        self.refused("E702", "decoder_input", self.called, case, decoder_input=torch.zeros(LENGTH * ROWS, 1, 32))
        self.refused("E702", "no cache of others", self.called, case, inference_context=mock.Mock())

    def test_batches(self):
        *_, whole, attention, plan = self.planned(Case())
        get = fcpc.megatron.get_batch_on_this_cp_rank
        for code, words, change in [
                ("E701", "create_attention_mask=False", {"attention_mask": torch.zeros(1)}),
                ("E701", r"labels are \[2, 95\]", {"labels": whole["labels"][:, 1:]}),
                ("E701", "1 sequences, of 96 tokens together, and the plan 2 of 192", {
                    name: whole[name][:1] for name in ("tokens", "labels", "loss_mask", "position_ids")}),
                ("E701", "cu_seqlens are of one packed row", {"cu_seqlens": torch.tensor([0, LENGTH])}),
                ("E209", "no tokens", {"tokens": None})]:
            self.refused(code, words, get, attention, plan, {**whole, **change})
        self.refused("E203", "a plan is expected", get, attention, 3, whole)
        self.refused("E203", "an fcpc.torch.Attention is expected", get, 3, plan, whole)
        made = get(attention, plan, {"tokens": whole["tokens"]})
        self.assertTrue(torch.equal(made["position_ids"][0], plan.positions()))
        self.refused("E209", "no loss_mask", fcpc.megatron.loss_func, Case().make_config(), made, torch.zeros(1, 4))
        tokens = torch.tensor([[5, EOD, 5, 5, EOD, EOD, 5]])
        self.assertEqual(fcpc.megatron.documents(tokens, EOD).tolist(), [[0, 0, 1, 1, 1, 2, 3]])
        padded = {"tokens": torch.zeros(1, 12), "cu_seqlens": torch.tensor([[0, 5, 9]]),
                  "cu_seqlens_padded": torch.tensor([[0, 8, 12]])}
        self.assertEqual(list(fcpc.megatron.lengths(padded).keys), [8, 4])


def refusals():
    """On each of four ranks: what they say of batches that a rank cannot compute alone."""
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(2, context_parallel_size=2)
    said, case = [], Case(norm=True)
    with OnCPU():
        config = case.make_config(2, 2, sequence_parallel=True)
        group = parallel_state.get_context_parallel_group()
        program = fcpc.megatron.program(config, cluster=fcpc.detect(group), block=16)
        attention, model = Attention(program, group=group), case.make_model(config, fcpc.megatron.layer_spec)
        for length in 81, 8:
            batch = {"tokens": torch.zeros(1, length, dtype=torch.long)}
            plan = program.plan(fcpc.megatron.lengths(batch))
            try:
                model(**fcpc.megatron.inputs(fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, batch)))
            except fcpc.Error as error:
                said.append(str(error))
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return said


def in_one_process(store, rank):
    """Runs the tests of Refusals: 0, or 1 if one fails."""
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(type("Refused", (Refusals, unittest.TestCase), {}))
    result = unittest.TextTestRunner(warnings=False).run(tests)
    return 0 if result.wasSuccessful() and result.testsRun >= 5 else 1


class OneProcess(unittest.TestCase):
    def test_refusals(self):
        """In a process of its own: ranks that are forked where a process group has been would wait for ever."""
        self.assertEqual(forked(1, in_one_process), [0])


class Ranks(unittest.TestCase):
    """Four processes."""

    def alike(self, case, layouts, **more):
        self.worst = 0.0, 0.0
        for found in four_ranks(compare, case, layouts, more):
            for of_losses, of_gradients in found:
                self.assertLess(of_losses, 4e-6)
                self.assertLess(of_gradients, 1e-5)
            self.worst = [max(pair) for pair in zip(self.worst, *found)]
        print("losses {:.1e}, gradients {:.1e}".format(*self.worst))

    def test_context(self):
        self.alike(Case("eod"), [(1, 4, {})])

    def test_layouts(self):
        mean = {"calculate_per_token_loss": False}
        self.alike(Case("eod", qk_layernorm=True), [(2, 2, {}), (1, 2, {}), (1, 2, mean), (1, 4, mean)])

    def test_windows_and_learnable_sinks(self):
        case = Case(window_size=(20, 0), window_attn_skip_freq=2, softmax_type="learnable")
        self.alike(case, [(1, 4, {}), (2, 2, {})])

    def test_batches_refused_by_all(self):
        """A rank with an odd number of tokens, which sequence parallelism cannot halve, and a rank without any. No rank
        begins to compute, and waits for the others."""
        for said in four_ranks(refusals):
            self.assertEqual(len(said), 2, said)
            self.assertRegex(said[0], r"rank \d has \d+ tokens, .*pad each sequence to a multiple of 2")
            self.assertRegex(said[1], r"rank \d has no token of this batch")

    def test_the_example(self):
        """Its losses fall, and are the same however four ranks are divided."""
        by_context, by_both = (torch.tensor(four_ranks(example, *sizes)) for sizes in ((1, 4), (2, 2)))
        torch.testing.assert_close(by_context, by_both, rtol=0, atol=1e-4)
        self.assertTrue((by_context[:, -1] < 0.8 * by_context[:, 0]).all(), by_context)

    def test_other_models(self):
        """Documents by cu_seqlens; positions of all types; recomputed activations; fewer groups than tensor ranks."""
        full = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        yarn = {f"yarn_{name}": value for name, value in {
            "rotary_scaling_factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0,
            "mscale": 1.0, "mscale_all_dim": 0.0, "correction_range_round_to_int": True}.items()}
        for case, *layouts in [
                (Case("thd"), (1, 4, {})),
                (Case("eod", {"position_embedding_type": "learned_absolute"}), (1, 4, full)),
                (Case("eod", {"rotary_percent": 0.5}, rotary_interleaved=True), (1, 4, {
                    "recompute_granularity": "selective"})),
                (Yarn(yarn), (1, 4, {})),
                (Case(softmax_type="off-by-one", num_query_groups=1, softmax_scale=0.3), (2, 2, {})),
                (Case("eod", norm=True), (2, 2, {"sequence_parallel": True})),
                (Case("eod", num_moe_experts=2, moe_router_topk=1, moe_router_load_balancing_type="none",
                      moe_router_pre_softmax=True, add_bias_linear=False), (1, 4, {}))]:
            with self.subTest(**case.config, documents=case.documents):
                self.alike(case, layouts)


class Yarn(Case):
    """The settings of YaRN are no settings of a TransformerConfig, and GPTModel looks for them there."""

    def __init__(self, settings):
        super().__init__("eod", {"position_embedding_type": "yarn"})
        self.settings = settings

    def make_config(self, *sizes, **more):
        config = super().make_config(*sizes, **more)
        for name, value in self.settings.items():
            setattr(config, name, value)
        return config
