"""frameworks.py: the versions of other packages that our adapters were tested with.

An adapter takes the place of functions of its framework. Another version may call them otherwise. So an adapter asks
`require` for what it replaces: what is no longer there is an error before anything is computed, and another version
than the tested one is a warning.
"""
from __future__ import annotations

import importlib
import importlib.metadata
import warnings

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
