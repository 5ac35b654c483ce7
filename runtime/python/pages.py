"""pages.py: writes API.md beside this file from the docstrings, for `make python-pages`; a test compares the page."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fcpc
import fcpc.audit
import fcpc.hf
import fcpc.megatron
import fcpc.titan
import fcpc.torch
import fcpc.trainer
import fcpc.upipe

PAGE = Path(__file__).parent / "API.md"
# For whom what is: people who design masks, who train, and who look at what a plan costs.
CHAPTERS: list[tuple[str, list[Any]]] = [
    ("Programs and masks", [fcpc.program, fcpc.parse, fcpc.Program, fcpc.trace, fcpc.Field, fcpc.lengths,
                            fcpc.Lengths]),
    ("What other projects hold", [fcpc.masks.from_ranges, fcpc.masks.from_startend_row_indices,
                                  fcpc.masks.from_block_mask, fcpc.masks.Mask]),
    ("Plans", [fcpc.Plan, fcpc.Labels, fcpc.Simulation, fcpc.load]),
    ("Training", [fcpc.detect, fcpc.Cluster, fcpc.torch.Attention, fcpc.torch.BoundAttention, fcpc.Session]),
    ("Rollouts", [fcpc.forest, fcpc.Forest, fcpc.Predictions, fcpc.MicroBatches]),
    ("Layers that recur", [fcpc.Scan, fcpc.Halo, fcpc.Stretch]),
    ("Projections, phase by phase", [fcpc.upipe.PhasedAttention, fcpc.upipe.BoundPhases, fcpc.upipe.phases,
                                     fcpc.upipe.Phase]),
    ("Models of Hugging Face", [fcpc.hf.program, fcpc.hf.inputs, fcpc.hf.bind, fcpc.hf.BoundModel, fcpc.hf.attention]),
    ("Trainer, accelerate and TRL", [fcpc.trainer.ContextParallel, fcpc.trainer.collate, fcpc.trainer.pack,
                                     fcpc.trainer.Packed]),
    ("Models of Megatron-core", [fcpc.megatron.layer_spec, fcpc.megatron.program, fcpc.megatron.lengths,
                                 fcpc.megatron.documents, fcpc.megatron.get_batch_on_this_cp_rank,
                                 fcpc.megatron.inputs, fcpc.megatron.loss_func, fcpc.megatron.CoreAttention,
                                 fcpc.megatron.PlannedSeqParams]),
    ("Models of torchtitan", [fcpc.titan.planned, fcpc.titan.Trainer, fcpc.titan.Validator, fcpc.titan.SelectiveAC,
                              fcpc.titan.PlannedAttention, fcpc.titan.Planned]),
    ("Audits", [fcpc.audit.check, fcpc.audit.batch, fcpc.audit.Report, fcpc.audit.BatchReport, fcpc.audit.Finding,
                fcpc.audit.Trial]),
    ("Errors and warnings", [fcpc.Error, fcpc.Warning])]
# Modules by whose names their functions are called; those of all others are in fcpc itself.
OWN_NAMES = "fcpc.audit", "fcpc.hf", "fcpc.masks", "fcpc.megatron", "fcpc.titan", "fcpc.torch", "fcpc.trainer", "fcpc.upipe"
# Nobody makes these himself.
GIVEN = (fcpc.Plan, fcpc.Forest, fcpc.Predictions, fcpc.MicroBatches, fcpc.Simulation, fcpc.Labels, fcpc.Stretch,
         fcpc.torch.BoundAttention, fcpc.upipe.BoundPhases, fcpc.upipe.Phase, fcpc.hf.BoundModel, fcpc.trainer.Packed,
         fcpc.megatron.PlannedSeqParams, fcpc.titan.Planned, fcpc.Error, fcpc.Warning, fcpc.audit.Report,
         fcpc.audit.BatchReport, fcpc.audit.Finding, fcpc.audit.Trial)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that the package has written; also what a call of it does."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.split(".")[0] == "fcpc":
            found.update(vars(base))
    for name, member in sorted(found.items()):
        if (not name.startswith("_") or name == "__call__") and \
                (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def _signature(thing: Any) -> str:
    """How it is called. The docstrings say of what type things are."""
    if isinstance(thing, property) or thing in GIVEN:
        return ""
    signature = inspect.signature(thing)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _block(name: str, thing: Any) -> str:
    """The signature and the docstring of a function or class."""
    return f"`{name}{_signature(thing)}`\n\n```text\n{inspect.getdoc(thing)}\n```\n"


def page() -> str:
    """The text of API.md."""
    lines = ["# The Python package: all functions", "",
             "[README.md](README.md) says how they go together. This page is made from the docstrings of the package "
             "by `make python-pages`.", ""]
    for title, things in CHAPTERS:
        lines += [f"## {title}", ""]
        for thing in things:
            module = ".".join(thing.__module__.split(".")[:2])
            path = module if module in OWN_NAMES else "fcpc"
            lines.append(f"### {path}.{thing.__name__}\n\n{_block(thing.__name__, thing)}")
            for name, member in members(thing) if inspect.isclass(thing) else ():
                lines.append(_block(thing.__name__ if name == "__call__" else f"{thing.__name__}.{name}", member))
    return "\n".join(lines) + "\nLicence: [Apache 2.0](../../LICENSE).\n"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    PAGE.write_text(page())
