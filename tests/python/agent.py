"""agent.py: runs a function on ranks that are forked from this process, where PyTorch is loaded already: by torchrun's
agent, or by the test itself, where a rank is to die."""
import multiprocessing
import os
import tempfile

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def when_all_are_there(ready, function, *arguments):
    """The store's thread in this process looks up who connects to it, under a lock of libc. A rank that is forked at that
    moment finds the lock taken for ever. So no rank connects before the last one has been forked."""
    ready.wait(timeout=100)
    return function(*arguments)


def four_ranks(function, *arguments):
    """What the function gives on each of four ranks."""
    ready = multiprocessing.get_context("fork").Barrier(4)
    with tempfile.TemporaryDirectory() as folder:
        config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, rdzv_backend="c10d",
                              rdzv_endpoint="localhost:0", run_id="agent", max_restarts=0, start_method="fork",
                              monitor_interval=0.05, logs_specs=DefaultLogsSpecs(folder))
        found = elastic_launch(config, when_all_are_there)(ready, function, *arguments)
    return [found[rank] for rank in range(4)]


def forked(ranks, function):
    """function(init_method, rank) on each of some ranks: how they ended, by what it gave or by which signal."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(ranks):
            children.append(os.fork())
            if not children[-1]:
                os._exit(function(f"file://{folder}/store", rank))
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
