"""ranks.py: how the processes of a plan, each of which is a rank, learn their ranks and find each other."""
from __future__ import annotations

import ctypes
import itertools
import os
import secrets
import socket
from typing import Any, Dict, Iterator

from ._c import C, check, fcp_error
from .errors import Error

# Launchers of MPI: the variables with a process's rank, the number of processes, and how many this machine has.
_LAUNCHERS = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
              ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
              ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"))
_turns: Dict[str, Iterator[int]] = {}  # members of a group -> how many calls they have made; in all the same number


def mpi_place(group: str) -> tuple[int, int, str, range]:
    """(nodes, gpus, profile, ranks of this process) as the launcher of MPI says it."""
    if group != "mpi":
        raise Error("E706", f"'{group}' is no group: it is None, 'mpi', or one of torch.distributed")
    for names in _LAUNCHERS:
        if names[0] in os.environ and names[1] in os.environ:
            rank, ranks, local = (int(os.environ.get(name, 0)) for name in names)
            local = local or ranks
            if ranks % local:
                raise Error("E706", f"detect: {ranks} processes, of which {local} on this machine: nodes are not alike")
            return ranks // local, local, "cpu", range(rank, rank + 1)
    raise Error("E706", "detect: nothing says which process of MPI this is: start it with mpirun")


def meet(group: Any) -> tuple[int, int, Any, str]:
    """(rank, ranks, store, key) of a group of torch.distributed. Its processes have found each other through the store,
    and can exchange data in it. The key is one that no other call uses."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    if isinstance(group, str):
        raise Error("E706", f"'{group}' is no group: it is None, 'mpi', or one of torch.distributed")
    if not dist.is_initialized():
        raise Error("E706", "init_process_group has not been called")
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise Error("E706", "this process is not in the group")
    members = "-".join(map(str, dist.get_process_group_ranks(group)))
    turn = _turns.setdefault(members, itertools.count())
    return rank, ranks, distributed_c10d._get_default_store(), f"fcpc/{members}/{next(turn)}"


def gather_hosts(group: Any) -> tuple[int, list[str]]:
    """(rank, the machine of each process) of a group."""
    rank, ranks, store, key = meet(group)
    store.set(f"{key}/{rank}", socket.gethostname())
    return rank, [store.get(f"{key}/{r}").decode() for r in range(ranks)]


def connection_id(group: Any, nccl: bool = False) -> tuple[int, int, Any, socket.socket | None]:
    """(rank, ranks, id, port) for connections of our own among the processes of a group.

    The id is a buffer of 128 bytes: HOST:PORT:SECRET, or an id of NCCL. The group's first process makes it, and the
    others get it from the store. `port` is the socket by which the first process keeps the id's port: nobody else gets
    it before the session listens there. The caller closes it when the session is made.
    """
    rank, ranks, store, key = meet(group)
    port = None
    if rank == 0 and nccl:
        store.set(key, _nccl_id())
    elif rank == 0:
        text, port = _new_id()
        store.set(key, text)
    return rank, ranks, ctypes.create_string_buffer(store.get(key), 128), port


def _nccl_id() -> bytes:
    made, err = ctypes.create_string_buffer(128), fcp_error()
    check(C["fcp_start_id"](made, ctypes.byref(err)), err)
    return made.raw


def _new_id() -> tuple[str, socket.socket]:
    """The text of an id (where others reach this machine, a port that is free here, and a secret), and the port's socket.

    The socket does not listen, and SO_REUSEADDR lets another one of this process do so at the same port.
    """
    master = os.environ.get("MASTER_ADDR") or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((master, 1))  # sends nothing: it asks which of this machine's addresses would be used
        host = s.getsockname()[0]
    port = socket.socket()
    port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    port.bind((host, 0))
    return f"{host}:{port.getsockname()[1]}:{secrets.token_hex(16)}", port
