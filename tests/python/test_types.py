"""test_types.py: what mypy --strict says of the package, and of each piece of Python in runtime/python/README.md."""
from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import typing
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What the README's pieces do not say: the caller's own names. Each piece becomes the body of a function that gets them.
PRELUDE = '''
from __future__ import annotations
import functools
from collections.abc import Callable, Iterable
from typing import Any, Protocol
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.data import DataLoader, Dataset
from transformers import AutoModelForCausalLM
import fcpc
from fcpc.torch import Attention

class Batch(Protocol):
    lengths: list[int]
    doc: torch.Tensor
    tokens: torch.Tensor
    labels: torch.Tensor
    advantages: torch.Tensor
'''
NAMES = '''batch: Batch, group: dist.ProcessGroup, loader: Iterable[Batch], model: torch.nn.Module, prog: fcpc.Program,
    optimizer: torch.optim.Optimizer, attn: Attention, plan: fcpc.Plan, mesh: DeviceMesh, lengths: list[int],
    tokens: torch.Tensor, doc: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor,
    lse: torch.Tensor, d_o: torch.Tensor, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, name: str, stream: int,
    lse_of_prefix: torch.Tensor, o_of_prefix: torch.Tensor, dataset: Dataset[Any], collate: Callable[..., Any],
    train: Callable[[Attention], None], m: fcpc.masks.Mask, x: torch.Tensor, wq: torch.Tensor, wk: torch.Tensor,
    wv: torch.Tensor, wo: torch.Tensor, w: torch.Tensor, attention: fcpc.torch.BoundAttention,
    rule: Callable[..., torch.Tensor], forest: fcpc.Forest, old: list[torch.Tensor], advantages: torch.Tensor,
    rotate: Callable[[torch.Tensor, torch.Tensor, tuple[int, ...]], torch.Tensor]'''


def pieces():
    """(the line before it, text) of each piece of Python in the README."""
    lines, begin = (ROOT / "runtime/python/README.md").read_text().split("\n"), None
    for number, line in enumerate(lines):
        if line.startswith("```"):
            if begin is not None and lines[begin].startswith("```python"):
                last = lines[number - 1].split("  #")[0].split(" #")[0].rstrip()
                yield begin + 1, "\n".join(lines[begin + 1:number] + ["    pass"] * last.endswith(":"))
            begin = number if begin is None else None


@unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not there (make setup)")
class Types(unittest.TestCase):
    def test_strict(self):
        """mypy --strict accepts the package and the README's Python, and finds mistakes that a user may make."""
        text = PRELUDE
        for line, piece in pieces():
            text += f"\n\ndef in_line_{line}({NAMES}) -> None:\n{textwrap.indent(piece, '    ')}\n"
        text += (f"\n\ndef results({NAMES}) -> tuple[fcpc.Predictions, fcpc.MicroBatches]:\n"
                 "    return forest.labels(), prog.micro_batches(forest, tokens=8192)\n")
        wrong = ("plan.take_labels(tokens).counts", "prog.plan(lengths, field={})",
                 "attn.bind(plan)(q, k, v, return_lse=True).shape")
        text += "".join(f"\n\ndef wrong_{i}({NAMES}) -> None:\n    {line}\n" for i, line in enumerate(wrong))
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "readme.py").write_text(text)
            said = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "tests/python/mypy.ini",
                 "--cache-dir", ROOT / "build/mypy", "-p", "fcpc", "-m", "readme"], cwd=folder, text=True,
                env={**os.environ, "MYPYPATH": f"{ROOT / 'runtime/python'}:{folder}"}, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT)
        errors = [line for line in said.stdout.split("\n") if ": error:" in line]
        self.assertIn('has no attribute "counts"', said.stdout)
        self.assertIn('Unexpected keyword argument "field"', said.stdout)
        self.assertIn('"tuple[Tensor, Tensor]" has no attribute "shape"', said.stdout)
        self.assertEqual(len(errors), 3, "\n".join(errors))


class Docstrings(unittest.TestCase):
    def test_everything_public(self):
        """All functions, classes, methods and properties that a user may call have a docstring, and are in API.md. The
        docstring of a class names the attributes of its objects."""
        import fcpc
        import fcpc.hf
        import fcpc.torch
        import pages
        listed = [thing for _, things in pages.CHAPTERS for thing in things]
        self.assertLessEqual({getattr(fcpc, name) for name in fcpc.__all__}, set(listed))
        for module in fcpc.hf, fcpc.torch:
            self.assertTrue(all(inspect.getdoc(thing) for thing in vars(module).values() if inspect.isfunction(thing)
                                and thing.__module__ == module.__name__ and not thing.__name__.startswith("_")))
        prog = fcpc.program("causal", dtype="fp32", head_dim=16)
        plan = prog.plan([64])
        objects = [prog, plan, fcpc.Error("E203", "..."), fcpc.detect(), fcpc.torch.Attention(prog), fcpc.Session(plan)]
        for thing in listed:
            self.assertTrue(inspect.getdoc(thing), thing)
            for name, member in pages.members(thing) if inspect.isclass(thing) else ():
                self.assertTrue(member.__doc__, f"{thing.__name__}.{name}")
        for x in objects:
            for name in vars(x):
                if not name.startswith("_"):
                    self.assertRegex(inspect.getdoc(type(x)), rf"\b{name}\b", type(x).__name__)

    def test_what_is_returned(self):
        """Of what class a result is, is said too: each class of the package that an annotation of a public function,
        method or property names is in API.md."""
        import fcpc
        import pages
        listed = [thing for _, things in pages.CHAPTERS for thing in things]
        inside = {sys.modules["fcpc.trace"].Traced}  # what it has stands in the docstring of fcpc.trace
        met = set()
        for thing in listed:
            for name, member in pages.members(thing) if inspect.isclass(thing) else [(thing.__name__, thing)]:
                function = member.fget if isinstance(member, property) else member
                given = [f.__annotations__.get("return", "") for f in (function, *typing.get_overloads(function))]
                for word in re.findall(r"\w+", f"{given}"):
                    kind = function.__globals__.get(word, getattr(fcpc, word, None))
                    if inspect.isclass(kind) and kind.__module__.split(".")[0] == "fcpc":
                        met.add(kind)
                        self.assertTrue(kind in listed or kind in inside, f"{name} returns {kind}")
        self.assertLessEqual({fcpc.Plan, fcpc.Labels, fcpc.Stretch, fcpc.Predictions, fcpc.MicroBatches}, met)

    def test_files(self):
        """The README says of each file of the package what is in it."""
        text = (ROOT / "runtime/python/README.md").read_text()
        for path in (ROOT / "runtime/python/fcpc").glob("*.py"):
            self.assertTrue(path.name == "__init__.py" or f"| `fcpc/{path.name}` |" in text, path.name)


if __name__ == "__main__":
    unittest.main()
