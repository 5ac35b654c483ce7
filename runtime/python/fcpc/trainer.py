"""trainer.py: transformers' Trainer and TRL's SFTTrainer with context parallelism by plans.

    from fcpc.trainer import ContextParallel, collate
    trainer = ContextParallel(model, args, data_collator=collate, train_dataset=rows, context=4)     # was: Trainer

    class Tuner(ContextParallel, SFTTrainer):                   # the same for TRL, whose collator and packing stay
        pass

`context` processes share each batch: they read the same rows, and each computes the tokens that the plan gives it. The
others are data parallel beside them: eight processes with context=4 are two groups, with batches of their own.

What a Trainer does already is kept. Its loss is the sum over the tokens of a process, divided by the number of labels
of the step in all processes, times the number of processes, because DDP averages gradients. This is right for parts of
a batch, too, if each batch is counted once. So this file changes which rows a process reads, what the model is given,
and what is counted or gathered: one process of a group speaks for the group.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from accelerate.utils import recursively_apply  # type: ignore[import-untyped]
from torch.distributed.device_mesh import init_device_mesh
from transformers import PreTrainedModel, Trainer

from . import hf
from .errors import Error
from .frameworks import other_batch, require
from .plan import Plan
from .program import Cluster, detect
from .torch import Attention

_NO_LABEL = -100
require("transformers", *(f"transformers:Trainer.{name}" for name in (
    "create_accelerator_and_postprocess", "get_cp_size", "_get_dataloader", "_get_num_items_in_batch",
    "_prepare_inputs", "_set_signature_columns_if_needed", "_track_num_input_tokens", "compute_loss",
    "evaluation_loop", "floating_point_ops", "prediction_step", "training_step")))
require("accelerate", "accelerate:Accelerator._prepare_device_mesh", "accelerate:Accelerator.gather_for_metrics",
        "accelerate.utils:recursively_apply")


# --- batches ----------------------------------------------------------------------------------------------------------

class Packed(NamedTuple):
    """A batch without padding, documents end to end.

    tokens   [tokens]: their numbers
    labels   [tokens], not shifted; the first of each document is -100, because no token of its own stands before it.
             None: there are none
    lengths  how many tokens each document has
    kept     [tokens]: where each token was in the batch, row * columns + column
    shape    (rows, columns) of the batch
    counted  how many labels there are
    """
    tokens: torch.Tensor
    labels: torch.Tensor | None
    lengths: list[int]
    kept: torch.Tensor
    shape: tuple[int, int]
    counted: int


# What a batch may bring: `pack` reads these, or compares them with the documents that it finds.
_READ = {"input_ids", "labels", "position_ids", "attention_mask", "shift_labels", "cu_seq_lens_q", "cu_seq_lens_k",
         "max_length_q", "max_length_k", "seq_idx"}


def pack(batch: Mapping[str, Any]) -> Packed:
    """Takes the documents out of a batch as collators make it.

    input_ids       [rows, columns]
    attention_mask  [rows, columns]: 0 where a row is filled up, before or behind its tokens; none: nowhere
    position_ids    [rows, columns]: a document begins where they begin anew, at 0. None: each row is a document
    labels          [rows, columns], not shifted, as models of transformers take them

    shift_labels, cu_seq_lens_q, cu_seq_lens_k and seq_idx must say the same, if they are there.

    Errors: E701 (a shape, a mask that leaves out other tokens than those, positions or documents that contradict each
    other, a label of a token that is left out), E203 (anything else in the batch)
    """
    batch = {name: value for name, value in batch.items() if value is not None}
    unread = sorted(set(batch) - _READ)
    if unread:
        raise Error("E203", f"the batch has {', '.join(unread)}, which a plan knows nothing of: let the collator leave "
                            "it out. What the mask reads goes to fcpc.hf.program and a loop of your own")
    ids = batch.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        raise Error("E701", f"input_ids of shape [rows, columns] are expected, and the batch has "
                            f"{list(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__}")
    rows, columns = ids.shape
    for name in "labels", "position_ids", "attention_mask", "shift_labels", "seq_idx":
        if name in batch and tuple(batch[name].shape) != (rows, columns):
            mask = ": a mask of pairs is the program's, of which fcpc.hf.program takes mask=" \
                if name == "attention_mask" else ""
            raise Error("E701", f"{name} are {list(batch[name].shape)}, and input_ids {[rows, columns]}{mask}")
    here = batch.get("attention_mask", torch.ones_like(ids)) != 0
    kept = here.flatten().nonzero().flatten()
    row, column = kept // max(columns, 1), kept % max(columns, 1)
    begins = torch.ones(len(kept), dtype=torch.bool, device=kept.device)
    begins[1:] = row[1:] != row[:-1]
    gaps = ~begins[1:] & (column[1:] != column[:-1] + 1)
    if gaps.any():
        at = int(gaps.nonzero()[0])
        raise Error("E701", f"attention_mask leaves out tokens between column {int(column[at])} and column "
                            f"{int(column[at + 1])} of row {int(row[at])}. A plan has no such holes: it leaves out "
                            "only what a row is filled up with")
    if "position_ids" in batch:
        where = batch["position_ids"].flatten()[kept]
        begins[1:] |= where[1:] != where[:-1] + 1
        astray = begins & (where != 0)
        if astray.any():
            at = int(astray.nonzero()[0])
            raise Error("E701", f"position_ids go on with {int(where[at])} at column {int(column[at])} of row "
                                f"{int(row[at])}, where they neither follow the position before nor begin at 0")
    starts = begins.nonzero().flatten()
    lengths = torch.diff(starts, append=starts.new_tensor([len(kept)]))
    _compare_documents(batch, kept, starts)
    if "labels" not in batch:
        return Packed(ids.flatten()[kept], None, lengths.tolist(), kept, (rows, columns), 0)
    given = batch["labels"].long()
    if (given[~here] != _NO_LABEL).any():
        raise Error("E701", "a token that attention_mask leaves out has a label: -100 is that of what a row is filled "
                            "up with")
    labels = given.flatten()[kept].masked_fill(begins, _NO_LABEL)
    if "shift_labels" in batch:
        after = torch.full_like(given.flatten(), _NO_LABEL)
        if len(kept):
            after[kept[:-1]] = labels[1:]
        if not torch.equal(after.view(rows, columns), batch["shift_labels"].long()):
            raise Error("E701", "shift_labels are not the labels shifted within documents. Leave them out: the plan "
                                "makes them, wherever the next token is")
    return Packed(ids.flatten()[kept], labels, lengths.tolist(), kept, (rows, columns),
                  int((labels != _NO_LABEL).sum()))


def _compare_documents(batch: Mapping[str, Any], kept: torch.Tensor, starts: torch.Tensor) -> None:
    """Checks that documents begin where the batch says in other ways, too."""
    said = {name: batch[name].flatten()[:-1].unique() for name in ("cu_seq_lens_q", "cu_seq_lens_k") if name in batch}
    if "seq_idx" in batch:
        number = batch["seq_idx"].flatten()[kept]
        said["seq_idx"] = torch.cat([starts[:1], (number[1:] != number[:-1]).nonzero().flatten() + 1])
    for name, begin in said.items():
        if begin.tolist() != starts.tolist():
            raise Error("E701", f"{name} says that documents begin at {begin.tolist()[:8]}, and position_ids and rows "
                                f"at {starts.tolist()[:8]}")


def collate(examples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """A data_collator that packs examples end to end: {"input_ids", "labels", "position_ids"}, each [1, tokens].

    input_ids    the tokens of an example
    labels       one for each token, not shifted, or -100; none: the tokens themselves
    seq_lengths  the lengths of its documents, as trl.pack_dataset writes them; none: an example is one document

    Errors: E701 (other numbers of labels, or lengths that do not add up), E203 (an example has something else)
    """
    ids, labels, places = [], [], []
    for number, one in enumerate(examples):
        extra = sorted(name for name in one if name not in ("input_ids", "labels", "seq_lengths")
                       and not (name == "attention_mask" and all(one[name])))
        if extra:
            raise Error("E203", f"example {number} has {', '.join(extra)}, which collate does not know: leave it out, "
                                "or write its effect into labels")
        count = len(one["input_ids"])
        own = one.get("labels")
        lengths = [count] if one.get("seq_lengths") is None else [int(n) for n in one["seq_lengths"]]
        if sum(lengths) != count or own is not None and len(own) != count:
            raise Error("E701", f"example {number} has {count} tokens, {count if own is None else len(own)} labels, "
                                f"and documents of {sum(lengths)} tokens")
        ids.append(torch.as_tensor(one["input_ids"]))
        labels.append(torch.as_tensor(one["input_ids"] if own is None else own))
        places += [torch.arange(n) for n in lengths]
    return {"input_ids": torch.cat(ids)[None], "labels": torch.cat(labels)[None],
            "position_ids": torch.cat(places)[None]}


# --- trainers ---------------------------------------------------------------------------------------------------------

class Groups(Trainer):
    """A Trainer whose processes share batches in groups of `context`: who reads what, and what is counted once. The
    class below gives each process its part.

    context   how many processes share a batch
    group     the process group of those that share this process's batch; None: it has its batches alone
    prog      the fcpc.Program of the model
    attn      the fcpc.torch.Attention of the program
    """

    def __init__(self, *args: Any, context: int | None = None, plan: Mapping[str, Any] | None = None,
                 **kwargs: Any) -> None:
        self._asked = context
        super().__init__(*args, **kwargs)
        self._refuse_settings()
        model = self._text_model()
        if model.config._attn_implementation != hf.NAME:
            model.set_attn_implementation(hf.NAME)
        cluster: Cluster = detect(ranks=1) if self.group is None else detect(self.group)
        low = torch.bfloat16 if self.args.bf16 else torch.float16 if self.args.fp16 else None
        self.prog = hf.program(model, cluster=cluster, **{"dtype": low, **(plan or {})})
        self.attn = Attention(self.prog, group=self.group, device=self.args.device.type)

    def _text_model(self) -> PreTrainedModel:
        """The model without what accelerate and PEFT have put around it."""
        model: Any = self.accelerator.unwrap_model(self.model)
        if not isinstance(model, PreTrainedModel) and hasattr(model, "get_base_model"):
            model = model.get_base_model()
        if not isinstance(model, PreTrainedModel):
            raise Error("E702", f"a model of transformers is expected, and this is a {type(model).__name__}")
        return model

    def create_accelerator_and_postprocess(self) -> None:
        """Makes the groups, once a Trainer has joined the processes."""
        super().create_accelerator_and_postprocess()
        self._refuse_other_parallelism()
        world = self.args.world_size
        self.context = world if self._asked is None else self._asked
        if not isinstance(self.context, int) or self.context < 1 or world % self.context:
            raise Error("E203", f"context = {self.context!r} processes share a batch, and {world} processes are no "
                                "multiple of it")
        self.group = dist.new_subgroups(self.context)[0] if self.context > 1 else None
        # Otherwise process 0 would read an IterableDataset and deal out rows, one part to each process.
        self.accelerator.dataloader_config.dispatch_batches = False

    def _refuse_other_parallelism(self) -> None:
        """Refuses what would part batches or weights in another way at the same time."""
        loading: Any = self.args.accelerator_config
        beside = getattr(self.accelerator, "parallelism_config", None)
        why = {
            "DeepSpeed": self.is_deepspeed_enabled,
            "FSDP": self.is_fsdp_enabled,
            "a ParallelismConfig (cp_size, sp_size, tp_size, dp_shard_size)":
                beside is not None and beside.total_size > 1,
            "tensor parallelism (tp_plan, tp_size)": self.get_tp_size() > 1,
            "nn.DataParallel (one process with several GPUs: start one for each)": self.args.n_gpu > 1,
            "accelerator_config.split_batches": loading.split_batches,
            "accelerator_config.dispatch_batches": loading.dispatch_batches,
        }
        for what, on in why.items():
            if on:
                raise Error("E203", f"fcpc.trainer runs with DDP alone, and {what} is switched on: switch it off")

    def _refuse_settings(self) -> None:
        """Refuses settings whose effect depends on the order of tokens in a tensor, or on who has which."""
        args, many = self.args, self.args.world_size > 1
        why = {
            "label_smoothing_factor": (args.label_smoothing_factor, "shifts labels by their place in the tensor"),
            "compute_loss_func": (self.compute_loss_func, "would see the tokens of one process, in the plan's order"),
            "neftune_noise_alpha": (args.neftune_noise_alpha, "scales its noise by how many tokens a tensor has"),
            "average_tokens_across_devices=False": (many and not args.average_tokens_across_devices,
                                                    "divides by the labels of one process"),
            "eval_use_gather_object": (args.eval_use_gather_object, "would gather a batch once for each process"),
            "train_sampling_strategy='batch_rebalance'": (args.train_sampling_strategy == "batch_rebalance",
                                                          "deals out rows to each process"),
            "router_aux_loss_coef": (getattr(self, "aux_loss_enabled", False),
                                     "adds a loss of the router, which is no sum over tokens: router_aux_loss_coef=0.0 "
                                     "leaves it out"),
        }
        for name, (on, what) in why.items():
            if on:
                raise Error("E203", f"{name}: it {what}. fcpc.trainer cannot honour it")
        if hasattr(self, "_generate_and_score_completions"):
            raise Error("E702", f"{type(self).__name__} draws answers of its own in each process, so processes could "
                                "not share a batch: fcpc.trainer runs with Trainer and SFTTrainer")
        other = [kind.__name__ for kind in type(self).__mro__ if kind.__module__.startswith("trl.")
                 and "compute_loss" in vars(kind) and kind.__name__ != "SFTTrainer"]
        if other:
            raise Error("E702", f"{other[0]} has a loss of its own, which is no sum over the tokens of a batch: "
                                "fcpc.trainer runs with Trainer and SFTTrainer")
        if not self.model_accepts_loss_kwargs:
            raise Error("E702", f"a {type(self.model).__name__} takes no num_items_in_batch, so its loss would be the "
                                "mean over the labels of one process")

    def get_cp_size(self) -> int:
        """How many processes have the same batch; from it a Trainer finds its total batch size."""
        return self.context

    def _get_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """accelerate asks its mesh which processes read the same rows."""
        if self.context == 1:
            return super()._get_dataloader(*args, **kwargs)
        shape = self.args.world_size // self.context, self.context
        mesh = init_device_mesh(self.args.device.type, shape, mesh_dim_names=("dp_replicate", "cp"))
        accelerator: Any = self.accelerator
        accelerator._prepare_device_mesh = lambda: mesh
        try:
            return super()._get_dataloader(*args, **kwargs)
        finally:
            del accelerator._prepare_device_mesh

    def _once(self, x: torch.Tensor) -> torch.Tensor:
        """Of rows that all processes have given, those of the first process of each group."""
        groups = x.unflatten(0, (self.args.world_size // self.context, self.context, -1))
        first: torch.Tensor = groups[:, 0].flatten(0, 1)
        return first

    def _gather_groups(self, x: Any) -> Any:
        """As accelerate's gather_for_metrics, but once for each group."""
        found, state = recursively_apply(self._once, self.accelerator.gather(x)), self.accelerator.gradient_state
        if state.end_of_dataloader and state.remainder > 0:
            found = recursively_apply(lambda rows: rows[:state.remainder], found)
        return found

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluates, and counts each batch once."""
        if self.context > 1:
            self.gather_function = self._gather_groups
        return super().evaluation_loop(*args, **kwargs)

    def floating_point_ops(self, inputs: Any) -> Any:
        """Of this process: a Trainer adds up all processes, and each batch is in several."""
        return super().floating_point_ops(inputs) / self.context

    def _track_num_input_tokens(self, inputs: Any) -> None:
        before = self.state.num_input_tokens_seen
        super()._track_num_input_tokens(inputs)  # type: ignore[no-untyped-call]
        self.state.num_input_tokens_seen = before + (self.state.num_input_tokens_seen - before) // self.context

    def _check_same(self, packed: Packed) -> None:
        """Compares the batches of a group. Plans are compared by fcpc; the same lengths may have other tokens."""
        if self.group is None:
            return
        rank = other_batch(self.group, self.args.device, packed.tokens, packed.labels, torch.tensor(packed.lengths))
        if rank is not None:
            raise Error("E706", f"rank {rank} of this group has read another batch than rank 0: a dataset or a "
                                "collator that draws at random must draw the same in all processes of a group")


class ContextParallel(Groups):
    """A Trainer with context parallelism: in place of transformers.Trainer, or before TRL's SFTTrainer: class
    Tuner(ContextParallel, SFTTrainer).

    context   how many processes share a batch; None: all. The world's size must be a multiple of it, and processes of
              a group are neighbours in it
    plan      other arguments of fcpc.hf.program, such as {"block": 64}
    group     the process group of those that share this process's batch; None: it has its batches alone
    prog      the fcpc.Program of the model
    attn      the fcpc.torch.Attention of the program

    All other arguments are the Trainer's. The model attends by plans from then on, also where there is one process.

    A batch may be packed ([1, tokens], with position_ids that begin anew) or filled up ([rows, columns], with
    attention_mask): `pack` says what it may have. Documents do not see each other. Losses, gradients and their norm are
    those of one process that has the batch of all, to rounding. The loss of an evaluation is the mean over the batches
    of all groups. Predictions come in the batch's order.

    What a plan cannot honour is an error: E203 (settings, other parallelism), E701 (a mask of your own), E702 (models),
    E706 (processes of a group that have read different batches).
    """

    def _set_signature_columns_if_needed(self) -> None:
        """Keeps the column that says where documents begin, which a Trainer would remove."""
        super()._set_signature_columns_if_needed()
        if self._signature_columns is not None and "seq_lengths" not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, "seq_lengths"]

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """The labels of the step: of all groups, and each batch counted once."""
        if not batch_samples or batch_samples[0].get("labels") is None:
            return None
        count = torch.tensor(sum(pack(batch).counted for batch in batch_samples), device=device)
        if self.args.world_size > 1:
            count = self.accelerator.gather(count).sum() // self.context
        return count.clamp(min=1)

    def _planned(self, inputs: Any) -> tuple[dict[str, Any], Packed, Plan]:
        packed = pack(super()._prepare_inputs(inputs))
        self._check_same(packed)
        plan = self.prog.plan(packed.lengths)
        return hf.inputs(self.attn, plan, packed.tokens, packed.labels), packed, plan

    def _prepare_inputs(self, inputs: Any) -> Any:
        return self._planned(inputs)[0]

    @contextlib.contextmanager
    def _all_parts(self) -> Iterator[None]:
        """TRL adds up figures of all processes by gather_for_metrics. At the end of the data that leaves out rows which
        were read twice, and here these would be the parts of some processes."""
        accelerator: Any = self.accelerator
        accelerator.gather_for_metrics = accelerator.gather
        try:
            yield
        finally:
            del accelerator.gather_for_metrics

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        """The trainer's own loss, of the tokens of this process."""
        with self._all_parts():
            return super().compute_loss(*args, **kwargs)

    def _summed(self, loss: torch.Tensor) -> torch.Tensor:
        if self.group is not None:
            dist.all_reduce(loss, group=self.group)
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss of the group's batch, in each of its processes: some of what a Trainer logs is of one process."""
        return self._summed(super().training_step(*args, **kwargs).clone()) / self.context

    def prediction_step(self, model: Any, inputs: Any, prediction_loss_only: bool,
                        ignore_keys: list[str] | None = None) -> tuple[Any, Any, Any]:
        """(loss, logits, labels) of the group's batch: the mean over its labels; logits [rows, columns, words] in the
        batch's order, 0 where a row is filled up; labels as they came."""
        labels, loss = inputs.get("labels"), None
        with torch.no_grad(), self.compute_loss_context_manager():
            planned, packed, plan = self._planned(inputs)
            if labels is not None:
                part = self.compute_loss(model, dict(planned), num_items_in_batch=torch.tensor(
                    max(packed.counted, 1), device=self.args.device))
                loss = self._summed(part.detach().clone()) / self.accelerator.num_processes
            if prediction_loss_only:
                return loss, None, None
            out = model(**{name: x for name, x in planned.items()
                           if name not in ("labels", "shift_labels", "num_items_in_batch")})
            found = plan.restore(out.logits[0].detach(), group=self.group)
            logits = found.new_zeros(packed.shape[0] * packed.shape[1], found.shape[-1])
            logits[packed.kept.to(found.device)] = found
        return loss, logits.view(*packed.shape, -1), None if labels is None else labels.to(found.device)
