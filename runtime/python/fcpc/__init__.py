"""fcpc: plans of context-parallel attention, from Python.

    import fcpc
    prog = fcpc.program(mask="causal and doc[q] == doc[k]", fields=["doc"], documents="doc", heads=32, kv_heads=8,
                        head_dim=128, cluster=fcpc.detect(ranks=8))
    plan = prog.plan([4096, 2048], {"doc": documents})
    mine = plan.take(tokens)

`fcpc.torch` has attention for PyTorch, and `fcpc.trace` turns Python functions into masks. Lengths are in tokens,
sizes in bytes, times in seconds, and positions count from 0. Errors are of the class fcpc.Error, with a code of
runtime/errors.def. What is allowed but probably a mistake is an fcpc.Warning.
"""
from . import masks
from ._c import C as _C
from .batches import Lengths, lengths
from .errors import Error, Warning
from .forest import Forest, MicroBatches, Predictions, forest
from .plan import Labels, Plan, Simulation, load
from .program import Cluster, Program, detect, parse, program
from .recurrent import Halo, Scan, Stretch
from .session import Session
from .trace import Field, trace

__version__ = _C["fcp_version"]().decode()
__all__ = ["Cluster", "Error", "Field", "Forest", "Halo", "Labels", "Lengths", "MicroBatches", "Plan", "Predictions",
           "Program", "Scan", "Session", "Simulation", "Stretch", "Warning", "detect", "forest", "lengths", "load",
           "parse", "program", "trace"]
