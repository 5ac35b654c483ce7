"""frameworks.py: what our adapters have in common: versions of other packages, and whether ranks read the same batch.

An adapter takes the place of functions of its framework. Another version may call them otherwise. So an adapter asks
`require` for what it replaces: what is no longer there is an error before anything is computed, and another version
than the tested one is a warning.
"""
from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import warnings
from typing import Any

import torch
import torch.distributed as dist

from .errors import Error, Warning

# As in tests/python/requirements.txt, which a test compares.
TESTED = {
    "accelerate": "1.15.0",
    "megatron-core": "0.16.1",
    "torchtitan": "0.3.0",
    "transformers": "5.23.0",
    "trl": "1.16.0",
}


def require(package: str, *names: str) -> None:
    """Checks that the package is there and has what an adapter replaces.

    package  its name on PyPI, one of TESTED
    names    what the adapter replaces or calls, as "module:attribute" or "module:Class.method"

    Errors: E702 if the package or a name is missing. A version other than the tested one is an fcpc.Warning.
    """
    tested = TESTED[package]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise Error("E702", f"{package} is not installed: pip install {package}=={tested}") from None
    for name in names:
        module, _, path = name.partition(":")
        try:
            found = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise Error("E702", f"{package} {version} has no {name}, which fcpc's adapter replaces ({error}); it was "
                                f"tested with {package} {tested}") from None
    if version != tested:
        warnings.warn(f"{package} {version} is here, and fcpc's adapter was tested with {tested}: compare the losses of "
                      "a few steps with those of one rank before you rely on it", Warning, stacklevel=3)


def other_batch(group: Any, device: Any, *batch: torch.Tensor | None) -> int | None:
    """The first rank of a group that has read another batch than its rank 0; None: all have read the same.

    group   of torch.distributed, which communicates from `device`. All of its ranks call this
    batch   tensors of any shape on any device, of which digests are compared; None stands for one that is missing
    """
    made = hashlib.sha256()
    for x in batch:
        made.update(b"none" if x is None else f"{list(x.shape)}".encode() + x.cpu().contiguous().numpy().tobytes())
    mine = torch.tensor([int.from_bytes(made.digest()[:7], "big")], device=device)
    every = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(every, mine, group=group)
    return next((rank for rank, other in enumerate(every) if not torch.equal(other, every[0])), None)
