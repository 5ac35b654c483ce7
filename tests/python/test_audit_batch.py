"""test_audit_batch.py: audit.batch against faulty loaders, which it must name, and against right ones, of fcpc and of
other projects, where it must be silent."""
import contextlib
import os
import random
import time
import unittest
import warnings
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist

import fcpc
import faulty_loaders as loaders
from agent import forked
from faulty_loaders import IGNORE, PAD, Batch
from fcpc import audit
from fcpc.audit.rows import RULES, order_of
from right_loaders import RIGHT, Rank, program_of, random_batch

LENGTHS = [24, 33, 7]
# (loader, what a cause begins with, kinds of findings, what audit.batch is told besides)
FAULTS = [
    (loaders.shifted_by_the_model, "labels shifted after the division", {"label_lost"},
     {"model_shifts": True}),
    (loaders.shifted_in_zigzag, "labels shifted after the division", {"label", "label_lost", "label_crosses"},
     {"model_shifts": True}),
    (loaders.rolled_on_each_rank, "labels shifted after the division", {"label", "label_lost", "label_crosses"}, {}),
    (loaders.crossing_documents, "labels cross documents", {"label_crosses"}, {"prompts": 0}),
    (loaders.not_shifted, "labels are not shifted", {"label", "label_lost", "label_crosses"}, {}),
    (loaders.shifted_twice, "labels are shifted twice", {"label", "label_lost", "label_extra"}, {"model_shifts": True}),
    (loaders.labels_in_another_order, "labels are in another order than tokens: contiguous",
     {"label", "label_lost", "label_crosses", "label_extra"}, {}),
    (loaders.labels_not_divided, "not divided: labels", {"shape"}, {}),
    (loaders.local_positions, "positions restart on each rank", {"position"}, {}),
    (loaders.packed_positions, "positions do not restart at documents", {"position"}, {}),
    (loaders.shifted_positions, "positions are those of the token before", {"position"}, {}),
    (loaders.positions_in_another_order, "positions are in another order than tokens: contiguous", {"position"}, {}),
    (loaders.same_part, "every rank holds the same part", {"token_lost", "token_twice"}, {}),
    (loaders.whole_on_each, "not divided: every rank holds the whole batch", {"token_twice"}, {}),
    (loaders.remainder_cut, "remainder cut off: the last tokens of each sequence", {"token_lost"}, {}),
    (loaders.another_batch, "rank 2 holds another batch", {"token_lost", "token_foreign"}, {}),
    (loaders.overlapping, "parts overlap by a token", {"token_twice"}, {}),
    (loaders.mask_not_applied, "all labels count", {"label_extra", "label_crosses"}, {}),
    (loaders.mask_not_shifted, "the loss mask is that of the tokens themselves",
     {"label_lost", "label_crosses"}, {}),
    (loaders.mask_in_another_order, "the loss mask is in another order than tokens: contiguous",
     {"label_lost", "label_extra", "label_crosses"}, {}),
    (loaders.mean_of_means, "mean of means", {"divisor"}, {}),
    (loaders.counted_before_the_shift, "counted before labels were shifted", {"divisor"}, {"prompts": 0}),
    (loaders.cu_seqlens_of_local_positions, "cu_seqlens are made of positions", {"cu_seqlens"}, {}),
    (loaders.cu_seqlens_divided, "cu_seqlens are divided as if they were tokens", {"cu_seqlens"}, {}),
    (loaders.padding_counted, "padding in the loss", {"padding"}, {"pad": PAD}),
    (loaders.of_a_neighbour, "labels are in another order than tokens: those of the rank 1 further",
     {"label", "label_lost", "label_crosses", "label_extra"}, {}),
]


def audited(batch, made, **more):
    return audit.batch(made, program_of(batch), lengths=batch.lengths, **{"given": batch.whole(), **more})


class Faulty(unittest.TestCase):
    def test_each_is_named(self):
        """Also where tokens have the numbers of a small vocabulary, so that many are the same."""
        some = torch.randint(8, 1000, (sum(LENGTHS),), generator=torch.Generator().manual_seed(3))
        for loader, cause, kinds, more in FAULTS:
            more = {"prompts": 4, **more}
            prompts = more.pop("prompts")
            for tokens in None, some:
                with self.subTest(loader.__name__, unique=tokens is None):
                    batch = Batch(LENGTHS, tokens=tokens, prompts=prompts)
                    report = audited(batch, loader(batch), **more)
                    self.assertFalse(report.ok)
                    self.assertTrue(report.causes and report.causes[0].startswith(cause), f"\n{report}")
                    if tokens is None:
                        self.assertEqual({x.kind for x in report.findings}, kinds, f"\n{report}")


class Right(unittest.TestCase):
    def silent(self, name, count):
        drawn = random.Random(f"{name} {count}")
        torch.manual_seed(count)
        for number in range(count):
            batch, made, more = RIGHT[name](drawn)
            more = {"program": program_of(batch) if "program" not in more else None, "lengths": batch.lengths, **more}
            report = audit.batch(made, more.pop("program"), **more)
            self.assertTrue(report.ok, f"{name} {number}: {batch.lengths} on {batch.ranks} ranks\n{report}")

    def test_some_batches(self):
        for name in RIGHT:
            with self.subTest(name):
                self.silent(name, 10)

    def test_rows_by_name(self):
        """A batch that is divided as a name says raises no alarm with that name, and one with another."""
        tokens, lengths, prog = torch.arange(100, 126), [9, 17], fcpc.program("causal")
        for name in RULES:
            order = order_of(name, lengths, 2)
            made = [{"tokens": torch.where(at < 0, 0, tokens[at])} for at in order]
            for rows in RULES:
                with self.subTest(name, rows=rows):
                    report = audit.batch(made, prog, lengths=lengths, given=tokens, rows=rows, pad=0)
                    self.assertEqual(report.ok, rows == name, report)

    def test_many_batches(self):
        for name in RIGHT:
            begin = time.time()
            with self.subTest(name):
                self.silent(name, int(os.environ.get("AUDIT_BATCHES", "60")))
            print(f"{name}: {time.time() - begin:.1f} s")


class Mutated(unittest.TestCase):
    """One number of a right batch is wrong: that, and nothing else, is found, at its place."""

    def test_one_number(self):
        drawn, draw = random.Random(11), torch.Generator().manual_seed(11)
        for number in range(60):
            batch = random_batch(drawn, 2, least=1)
            tokens = None if number % 2 else torch.randint(1000, 1400, batch.tokens.shape, generator=draw)
            batch = Batch(batch.lengths, batch.ranks, tokens, drawn.choice([0, 5]))
            made = batch.parts(loaders.zigzag(batch))
            rank = drawn.choice([r for r, x in enumerate(made) if len(x["tokens"])])
            row = drawn.randrange(len(made[rank]["tokens"]))
            token = int(loaders.zigzag(batch)[rank][row])
            name, value = drawn.choice([("tokens", 9), ("position_ids", 999), ("labels", 9), ("labels", IGNORE)])
            label, last = int(batch.labels[token]), token + 1 in batch.cu_seqlens
            if value == label:
                continue
            made[rank][name][row] = value
            kinds = {"tokens": ["token_lost", "token_foreign"], "position_ids": ["position"],
                     "labels": ["label_crosses" if last else "label_extra"] if label == IGNORE else
                     ["label_lost"] if value == IGNORE else ["label"]}[name]
            report = audited(batch, made)
            self.assertEqual([(x.kind, x.count) for x in report.findings], [(kind, 1) for kind in kinds], report)
            place = f"token {int(batch.positions[token])} of sequence {int(batch.doc[token])}"
            self.assertIn(f"{place} " if name == "tokens" else f"{place} (rank {rank}, row {row})", str(report))

    def test_two_tokens_changed_places(self):
        """With all that belongs to them, on two ranks: each token is there once, but not where rows says."""
        batch = Batch(LENGTHS)
        rows = loaders.zigzag(batch)
        rows[0][3], rows[2][5] = int(rows[2][5]), int(rows[0][3])
        self.assertTrue(audited(batch, batch.parts(rows)).ok)
        report = audited(batch, batch.parts(rows), rows=loaders.zigzag(batch))
        self.assertEqual([(x.kind, x.count) for x in report.findings], [("order", 2)], report)
        self.assertIn("row 3 of rank 0 is token 21 of sequence 0, and by rows it is token 3 of sequence 0", str(report))
        report = audited(batch, batch.parts(loaders.zigzag(batch)), rows="contiguous")
        self.assertEqual(report.causes, ["another order of tokens: they are zigzag, and not contiguous"])

    def test_numbers_of_the_batch(self):
        """cu_seqlens, max_seqlen and weights of the loss."""
        batch = Batch(LENGTHS)
        for name, value in (("cu_seqlens", batch.cu_seqlens + (torch.arange(4) == 2)), ("max_seqlen", 31),
                            ("cu_seqlens_padded", torch.tensor([0, 16]))):
            made = batch.parts(loaders.contiguous(batch))
            made[3][name] = value
            report = audited(batch, made)
            self.assertEqual([x.kind for x in report.findings], [name], report)
            self.assertIn(f"rank 3 has {name}", str(report))
        weights = torch.rand(64, generator=torch.Generator().manual_seed(1)) + 0.5
        given = batch.whole(loss_mask=weights)
        made = batch.parts(loaders.contiguous(batch), loss_mask=weights)
        self.assertTrue(audited(batch, made, given=given).ok)
        made[1]["loss_mask"] = torch.ones(16)
        report = audited(batch, made, given=given)
        self.assertEqual([x.kind for x in report.findings], ["weight"], report)


class Said(unittest.TestCase):
    """What a report says."""

    def test_all_of_it(self):
        batch = Batch(LENGTHS)
        made = loaders.shifted_in_zigzag(batch)
        for x in made:
            x.update(rope="yarn", position_ids=None)
        lines = str(audited(batch, made, given=batch.tokens, model_shifts=True)).splitlines()
        self.assertEqual(lines, [
            "token 7 of sequence 0 (rank 0, row 7) has label 1056; its label is 1008 (2 of 64)",
            "token 31 of sequence 1 (rank 1, row 15) has no label that counts; its label is 1056 (3 of 64)",
            "token 32 of sequence 1 (rank 0, row 8) is the last of its document, and has label 1057; no token of its "
            "document follows (2 of 64)",
            "likely cause: labels shifted after the division: each rank shifts its own rows, so the last row of each "
            "part has lost its label. Shift the whole batch before it is divided",
            "tokens are divided: zigzag",
            "labels that count: 15 + 15 + 15 + 15 = 60",
            "not checked: which labels count: given has neither labels nor loss_mask, so all should",
            "not checked: positions: the batch has none", "not checked: loss_mask: the batch has none",
            "not checked: what the loss is divided by: the batch has none",
            "not checked: rope: it is read by no check"])

    def test_without_given(self):
        """Positions, or rows, say where tokens are; then labels are compared with the tokens that ranks hold."""
        one = Batch([64])
        report = audited(one, one.parts(loaders.zigzag(one)), given=None)
        self.assertTrue(report.ok and report.order == "zigzag" and report.counts == [15, 16, 16, 16], report)
        self.assertIn("not checked: whether each token is there once: positions say where tokens are", str(report))
        report = audited(one, loaders.shifted_in_zigzag(one), given=None, model_shifts=True)
        self.assertTrue(report.causes[0].startswith("labels shifted after the division"), report)
        report = audited(one, loaders.local_positions(one), given=None)
        self.assertEqual([x.kind for x in report.findings], ["position"])
        self.assertTrue(report.causes[0].startswith("positions restart on each rank"), report)
        self.assertIn("which token is on which rank", str(report))
        prompts = Batch([64], prompts=9)
        report = audited(prompts, prompts.parts(loaders.zigzag(prompts)), given=None, rows="zigzag")
        self.assertTrue(report.ok, report)
        self.assertIn("not checked: 8 labels are left out", str(report))
        report = audited(one, one.parts([x[1:] for x in loaders.zigzag(one)]), given=None)
        self.assertEqual((report.findings[0].kind, report.findings[0].count), ("rows", 4))

    def test_given_whose_labels_cross(self):
        """Labels of the whole batch that cross documents are no measure."""
        batch = Batch(LENGTHS)
        labels = batch.tokens.roll(-1)
        labels[-1] = IGNORE
        report = audited(batch, batch.parts(loaders.zigzag(batch), labels=labels),
                         given={"tokens": batch.tokens, "labels": labels})
        self.assertEqual([x.kind for x in report.findings], ["label_crosses", "given_crosses"])
        self.assertEqual(report.causes, ["labels cross documents: the last token of a document predicts the first of "
                                         "the next"])

    def test_padding(self):
        """Of padding that nobody says the report guesses the number. Rows of transformers, which are filled up, are
        their whole batch's tokens; given's attention_mask says which of them are no text."""
        batch = Batch([17, 13])
        tokens, labels = (torch.cat([x, torch.full((2,), fill)]) for x, fill in ((batch.tokens, 1005),
                                                                                 (batch.labels, IGNORE)))
        made = [{"tokens": x, "labels": y} for x, y in zip(tokens.chunk(4), labels.chunk(4))]
        self.assertTrue(audited(batch, made, pad=1005).ok)
        report = audited(batch, made)
        self.assertIn("token_twice", {x.kind for x in report.findings})
        self.assertTrue(report.causes[0].startswith("rows are filled up with number 1005"), report)
        ids = torch.tensor([[5, 6, 7, 8, 1, 1, 1, 1], [9, 10, 11, 12, 13, 14, 15, 1]])
        there = (ids != 1).long()
        labels = torch.where(ids != 1, ids, IGNORE)
        given = {"input_ids": ids, "labels": labels, "attention_mask": there}
        whole = {"input_ids": ids, "attention_mask": there, "position_ids": (there.cumsum(1) - 1).clamp(min=0),
                 "shift_labels": torch.cat([labels[:, 1:], torch.full((2, 1), IGNORE)], 1)}
        made = [{name: x.chunk(2, 1)[rank] for name, x in whole.items()} for rank in range(2)]
        report = audit.batch(made, program_of(batch), given=given)
        self.assertTrue(report.ok and report.counts == [7, 2], report)
        made[1]["shift_labels"] = torch.where(made[1]["attention_mask"] == 0, 1, made[1]["shift_labels"])
        report = audit.batch(made, program_of(batch), given=given)
        self.assertEqual([x.kind for x in report.findings], ["label_crosses", "label_extra"], report)

    def test_other_shapes(self):
        batch = Batch(LENGTHS)
        made = [{**x, "position_ids": x["position_ids"].expand(3, -1)} for x in batch.parts(loaders.zigzag(batch))]
        self.assertIn("not checked: position_ids of three planes", str(audited(batch, made)))
        made = [{**x, "position_ids": batch.positions} for x in batch.parts(loaders.zigzag(batch))]
        self.assertEqual(audited(batch, made).causes, ["not divided: position_ids has the numbers of the whole batch"])

    def test_names(self):
        batch = Batch(LENGTHS)
        made = [{"ids": x["tokens"], "where": x["position_ids"]} for x in batch.parts(loaders.zigzag(batch))]
        report = audited(batch, made, given=batch.tokens, names={"tokens": "ids", "positions": "where"})
        self.assertTrue(report.ok and report.order == "zigzag", report)
        self.assertNotIn("where", str(report))


class Refused(unittest.TestCase):
    def test_with_words(self):
        batch = Batch(LENGTHS)
        made = batch.parts(loaders.contiguous(batch))
        prog = program_of(batch)
        plan = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", cluster=fcpc.detect(ranks=3)).plan(LENGTHS)
        for code, said, one, more in (
                ("E209", "neither tokens nor positions", [{"ids": batch.tokens}], {}),
                ("E202", "an fcpc.Program or a Plan is expected", made, {"program": "causal"}),
                ("E701", "a batch is a mapping", [batch.tokens], {}),
                ("E701", "tokens are torch.float32", [{"tokens": batch.tokens.float()}], {}),
                ("E701", "given's shift_labels has 3 numbers", made, {"given": batch.whole(shift_labels=LENGTHS)}),
                ("E209", "given has labels, and no tokens", made, {"given": {"labels": batch.labels}}),
                ("E209", "lengths of the sequences are missing", made, {"given": None, "lengths": None}),
                ("E209", "nothing says which token is on which rank", [{"tokens": x["tokens"]} for x in made],
                 {"given": None}),
                ("E706", "the plan has 3 ranks, and there are batches of 4", made, {"rows": plan}),
                ("E203", "lengths are of 9 tokens, and the plan is of 64", made, {"program": plan, "lengths": [9]}),
                ("E203", "tokens of 1 ranks, and there are 4", made, {"rows": [torch.arange(64)]}),
                ("E701", "num_items_in_batch has 4 numbers", [{**x, "num_items_in_batch": LENGTHS + [1]} for x in made],
                 {})):
            more = {"program": prog, "lengths": LENGTHS, "given": batch.whole(), **more}
            with self.subTest(said), self.assertRaises(fcpc.Error) as caught:
                audit.batch(one, more.pop("program"), **more)
            self.assertEqual(caught.exception.code, code)
            self.assertIn(said, str(caught.exception))


class Adapters(unittest.TestCase):
    """What fcpc's own adapters hand to models."""

    def test_transformers(self):
        import fcpc.hf
        from fcpc.torch import Attention
        from fcpc.trainer import collate, pack
        words = torch.arange(60) + 5
        packed = pack(collate([{"input_ids": words[:40].tolist(), "seq_lengths": [30, 10]},
                               {"input_ids": words[40:].tolist(), "labels": [-100] * 8 + words[48:].tolist()}]))
        prog = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", cluster=fcpc.detect(ranks=3), block=8)
        plan = prog.plan(packed.lengths)
        with Attention(prog) as attention:
            made = fcpc.hf.inputs(attention, plan, packed.tokens, packed.labels)
        report = audit.batch(made, plan, given={"input_ids": packed.tokens, "labels": packed.labels},
                             lengths=packed.lengths)
        self.assertTrue(report.ok, report)
        self.assertEqual(sum(report.counts), 50)  # 60, less three last tokens and seven of a prompt
        made["labels"] = made["shift_labels"] = made["shift_labels"].roll(1)
        self.assertFalse(audit.batch(made, plan, given=packed.tokens, lengths=packed.lengths).ok)

    def test_megatron(self):
        import fcpc.megatron
        from fcpc.torch import Attention
        text = torch.randint(0, 30, (2, 49), generator=torch.Generator().manual_seed(4))
        batch = {"tokens": text[:, :-1], "labels": text[:, 1:], "position_ids": torch.arange(48).repeat(2, 1),
                 "loss_mask": (torch.rand(2, 48, generator=torch.Generator().manual_seed(4)) < 0.7).float()}
        prog = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", cluster=fcpc.detect(ranks=4), block=8)
        plan = prog.plan(fcpc.megatron.lengths(batch))
        with Attention(prog) as attention:
            made = fcpc.megatron.get_batch_on_this_cp_rank(attention, plan, batch)
        report = audit.batch(made, plan, given=batch)
        self.assertTrue(report.ok, report)
        self.assertEqual(sum(report.counts), int(batch["loss_mask"].sum()))
        made["loss_mask"] = made["loss_mask"].roll(1)
        self.assertFalse(audit.batch(made, plan, given=batch).ok)

    def test_megatrons_own_divides_cu_seqlens(self):
        """Megatron-core's get_batch_on_this_cp_rank takes every tensor for one of tokens. With three sequences on two
        ranks cu_seqlens has four numbers, and is divided without a word."""
        from megatron.core.utils import get_batch_on_this_cp_rank
        batch = Batch([8, 4, 4], 2)
        whole = {name: x[None] for name, x in batch.whole(cu_seqlens=batch.cu_seqlens).items()}
        with mock.patch("torch.distributed.is_initialized", return_value=True):
            made = [get_batch_on_this_cp_rank(dict(whole), Rank(rank, 2)) for rank in range(2)]
        self.assertEqual([x["cu_seqlens"].tolist() for x in made], [[[0, 16]], [[8, 12]]])
        report = audited(batch, made, given=whole)
        self.assertEqual([x.kind for x in report.findings], ["cu_seqlens"], report)
        self.assertEqual(report.causes, ["cu_seqlens are divided as if they were tokens: each rank has some of its "
                                         "numbers"])


class Groups(unittest.TestCase):
    def test_two_processes(self):
        """Each process has its own batch; both have the same report, and an error of one is raised by both."""
        self.assertEqual(forked(2, self.rank), [7, 7])

    @staticmethod
    def rank(store, rank):
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        group, batch = dist.group.WORLD, Batch(LENGTHS, 2)
        prog, made = program_of(batch), batch.parts(loaders.zigzag(batch))[rank]
        right = audit.batch(made, prog, group, lengths=LENGTHS, given=batch.whole(), rows="zigzag")
        plan = fcpc.program("causal", heads=2, head_dim=16, dtype="fp32", block=8,
                            cluster=fcpc.detect(group)).plan(LENGTHS)
        labels, count = plan.take_labels(batch.tokens)
        by_plan = audit.batch({"tokens": plan.take(batch.tokens), "position_ids": plan.positions(), "labels": labels,
                               "num_items_in_batch": count}, plan, group, given=batch.tokens)
        wrong = audit.batch({**made, "labels": made["labels"].roll(rank)}, prog, group, lengths=LENGTHS,
                            given=batch.whole())
        other = audit.batch({**made, "tokens": made["tokens"] + 500 * rank}, prog, group, lengths=LENGTHS,
                            given=batch.whole(tokens=batch.tokens + 500 * rank))
        every = [None, None]
        dist.all_gather_object(every, [str(x) for x in (right, by_plan, wrong, other)])
        try:
            audit.batch(made if rank else {}, prog, group, lengths=LENGTHS, given=batch.whole())
            refused = ""
        except fcpc.Error as error:
            refused = str(error)
        good = (right.ok and by_plan.ok and every[0] == every[1] and "(rank 0)" in refused
                and "label" in {x.kind for x in wrong.findings} and "(rank 1, row" in str(wrong)
                and "rank 1 holds another batch" in str(other) and other.findings[0].kind == "given"
                and other.causes[0].startswith("ranks have read different"))
        if not good:
            print(right, by_plan, wrong, other, refused, sep="\n", flush=True)
        return 7 if good else 1

    def test_torchtitan(self):
        """torchtitan's prepare_context_parallel_input, with head-tail and without a balancer."""
        self.assertEqual(forked(2, self.titan), [7, 7])

    @staticmethod
    def titan(store, rank):
        with warnings.catch_warnings(), contextlib.redirect_stderr(None):
            warnings.simplefilter("ignore")
            from torchtitan.distributed.context_parallel import prepare_context_parallel_input
        from torch.distributed.device_mesh import init_device_mesh
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        mesh, drawn, good = init_device_mesh("cpu", (2,)), random.Random(3), True
        prog = fcpc.program("causal and doc[q] == doc[k]", heads=2, head_dim=16, dtype="fp32", documents="doc")
        for number in range(30):
            rows, side = drawn.randint(1, 3), 4 * drawn.randint(1, 12)
            text = torch.randint(0, 40, (rows, side + 1), generator=torch.Generator().manual_seed(number))
            cut = drawn.randint(0, side)
            doc = (torch.arange(side) >= cut).long().repeat(rows, 1)
            positions = torch.cat([torch.arange(cut), torch.arange(side - cut)]).repeat(rows, 1)
            labels = text[:, 1:].clone()
            if cut:
                labels[:, cut - 1] = IGNORE
            inputs, mine, more = prepare_context_parallel_input(
                text[:, :-1], labels, {"positions": positions}, mesh, torch.device("cpu"),
                drawn.choice(["headtail", None]))
            report = audit.batch({"tokens": inputs, "labels": mine, "positions": more["positions"]}, prog,
                                 mesh.get_group(), fields={"doc": doc.reshape(-1)},
                                 given={"tokens": text[:, :-1], "labels": labels})
            if not report.ok:
                print(number, report, flush=True)
                good = False
        return 7 if good else 1

    def test_transformers(self):
        """What transformers' Trainer and torch's context_parallel make of a batch, without and with positions, of
        rows that are filled up, and of documents that are packed by transformers' collator."""
        self.assertEqual(forked(2, self.trainer), [7, 7])

    @staticmethod
    def trainer(store, rank):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel
        from transformers import DataCollatorWithFlattening, Trainer
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
        mesh, drawn = init_device_mesh("cpu", (2,)), random.Random(8)
        group, wrong = mesh.get_group(), []
        prog = fcpc.program("causal and doc[q] == doc[k]", heads=2, head_dim=16, dtype="fp32", documents="doc")
        settings = SimpleNamespace(cp_enabled=True, cp_backend="torch")
        trainer = SimpleNamespace(accelerator=SimpleNamespace(
            parallelism_config=settings, maybe_context_parallel=lambda **more: more))
        model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="sdpa"))

        def audited(whole, doc, **more):
            batch = {name: x.clone() for name, x in whole.items()}
            call, batch = Trainer._prepare_context_parallel_inputs(trainer, model, batch)
            with context_parallel(mesh, **call.keywords):
                return audit.batch(batch, prog, group, fields={"doc": doc.reshape(-1)}, given={
                    name: whole[name] for name in ("input_ids", "labels", "attention_mask") if name in whole}, **more)
        for number in range(20):
            draw = torch.Generator().manual_seed(number)
            rows, side = drawn.randint(1, 3), drawn.choice([4, 12, 29, 30, 40])
            whole = {"input_ids": torch.randint(0, 50, (rows, side), generator=draw)}
            there = torch.arange(side) < torch.randint(1, side + 1, (rows, 1), generator=draw)
            whole["labels"] = torch.where(there, whole["input_ids"], IGNORE)
            if drawn.random() < 0.5:
                whole["attention_mask"] = there.long()
            if drawn.random() < 0.5:
                whole["position_ids"] = torch.arange(side).repeat(rows, 1)
            report = audited(whole, torch.zeros(rows, side, dtype=torch.int64))
            wrong += [] if report.ok else [(number, str(report))]
            lengths = [drawn.randint(1, 20) for _ in range(3)]
            packed = DataCollatorWithFlattening(return_tensors="pt")([
                {"input_ids": torch.randint(0, 50, (n,), generator=draw).tolist()} for n in lengths])
            doc = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
            report = audited(packed, doc)
            wrong += [] if report.ok else [(number, str(report))]
        packed = dict(packed)
        packed.pop("position_ids")
        report = audited(packed, doc)  # the Trainer then numbers the packed row
        wrong += [] if report.causes and report.causes[0].startswith("positions do not restart") else [str(report)]
        if wrong:
            print(*wrong, sep="\n", flush=True)
        return 1 if wrong else 7


if __name__ == "__main__":
    unittest.main()
