"""command.py: `python -m fcpc audit WHAT`: audits an implementation on random programs, in some processes."""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
import torch.distributed as dist

from ..errors import Error, Warning
from . import others
from .check import check
from .programs import MASKS, Subject, Trial, draw

SAID = 3  # so many programs that differ are printed whole

HELP = """\
Is this context parallelism right? Runs it on random programs and batches, in several processes, and compares who sees
whom, by which weight, outputs and gradients with what fcpc's compiler says. Prints what differs, with the likely cause.

WHAT is a Python file that defines

    def attention(q, k, v, trial):    # tensors [rows, heads, head_dim] of this rank -> o, or (o, lse)
        return my_ring(q, k, v, trial.cu_seqlens, causal=trial.causal, window=trial.window, group=trial.group)

and, where the default is not what it can do:

    rows = "contiguous"    # which tokens a rank has: a name that help(fcpc.audit.check) lists, or a function of
                           # (trial, rank) that gives them, -1 for a row of padding
    masks = ["causal"]     # some of causal, full, window, window_both
    sequences = 3          # the most sequences that are packed into a batch; equal = True: all have the same length
    each = 1, total = 1    # lengths, and their sum, are multiples of these: numbers, or functions of the ranks' number
    longest = 96           # about the most tokens of a batch
    heads = [(4, 4), (4, 2), (4, 1)], head_dim = [16, 32]    # heads of q, heads of k and v; numbers of a head
    dtype = torch.float32, device = "cpu", backward = True
    program = "causal and q - k < 7", lengths = [40, 24]     # this one, in place of random ones

help(fcpc.audit.Trial) says what trial has. What stands behind "--" is sys.argv of the file. Or WHAT is one of

    torch-sdpa             torch's context_parallel around scaled_dot_product_attention
    torch-flex             the same for FlexAttention
    deepspeed-ulysses      DistributedAttention of DeepSpeed, which has to be installed

Under torchrun each process is one of its ranks, and a file may make its own group (backend "nccl", device "cuda").
"""
STATUS = "exit status: 0 no difference was found; 1 something differs; 2 it could not be audited"


def _torch_sdpa(trial: Trial) -> Any:
    whole = trial.mask == "full"
    return others.torch_sdpa(trial.group, trial.lengths, causal=not whole, balance=trial.choose.random() < 0.7,
                             rotate=trial.choose.choice(["allgather", "alltoall"]))


def _torch_flex(trial: Trial) -> Any:
    kinds: list[Any] = [None, "head-tail", "ptrr"]
    if all(length % (2 * trial.ranks) == 0 for length in trial.lengths):
        kinds.append(trial.lengths)
    return others.torch_flex(trial.group, trial.mask_mod, trial.tokens, balance=trial.choose.choice(kinds))


def _deepspeed(trial: Trial) -> Any:
    try:
        comm, layer = (importlib.import_module(f"deepspeed.{name}") for name in ("comm", "sequence.layer"))
    except ImportError as error:
        raise Error("E702", f"audit: DeepSpeed is not installed ({error})") from None
    if not comm.is_initialized():
        comm.init_distributed("gloo")
    return others.deepspeed_ulysses(layer.DistributedAttention, trial.group, trial.mask_mod, trial.tokens)


def _ranks(ranks: int) -> int:
    return ranks


KNOWN = {x.name: x for x in (
    Subject("torch-sdpa", _torch_sdpa, ("causal", "full"), 3, True, _ranks),
    Subject("torch-flex", _torch_flex, tuple(MASKS), 4, total=lambda ranks: 128 * ranks, longest=1, head_dim=(64,)),
    Subject("deepspeed-ulysses", _deepspeed, tuple(MASKS), 4, total=_ranks,
            heads=lambda ranks: ((4 * ranks, 4 * ranks), (4 * ranks, 2 * ranks), (2 * ranks, ranks))))}


def load(path: str, arguments: Sequence[str]) -> Subject:
    """The Subject of a user's file, which is run. Errors: E203 (no such file, no attention, an unknown name)"""
    if not Path(path).is_file():
        raise Error("E203", f"audit: there is no file {path}, and it is none of {', '.join(KNOWN)}")
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise Error("E203", f"audit: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    attention = getattr(module, "attention", None)
    if not callable(attention):
        raise Error("E203", f"audit: {path} has no function attention(q, k, v, trial)")
    rows = getattr(module, "rows", "contiguous")

    def make(trial: Trial) -> tuple[Callable[..., Any], Any]:
        own = (lambda rank, ranks: rows(trial, rank)) if callable(rows) else rows
        return lambda q, k, v: attention(q, k, v, trial), own
    names = [x for x in Subject.__dataclass_fields__ if x not in ("name", "make")]
    return Subject(Path(path).name, make, **{x: getattr(module, x) for x in names if hasattr(module, x)})


def audit(subject: Subject, group: Any, programs: int, first: int, seed: int, say: Callable[[str], None]) -> int:
    """Checks a subject on its programs; `say` gets each line of the report. The number of those that differ."""
    wrong = 0
    numbers = range(first, first + (programs if subject.program is None else 1))
    for number in numbers:
        trial = draw(subject, number, seed, group)
        try:
            attention, rows = subject.make(trial)
            report = check(attention, trial.program, list(trial.lengths), group, rows=rows, dtype=subject.dtype,
                           device=subject.device, backward=subject.backward, seed=seed + number)
        except Exception:
            print(f"fcpc audit: rank {trial.rank}, {trial}:", file=sys.stderr)
            raise
        if not report.ok:
            wrong += 1
            if wrong <= SAID:
                say(f"{trial}:\n  " + str(report).replace("\n", "\n  "))
    what = f"{len(numbers)} program{'s' * (len(numbers) > 1)} on {group.size()} rank{'s' * (group.size() > 1)}"
    say(f"{subject.name}: {wrong} of {what} differ{'s' * (wrong == 1)}" if wrong else
        f"{subject.name}: {what}: no difference was found")
    return wrong


def _rank(options: argparse.Namespace, rank: int, store: str | None) -> int:
    """What one process does: its exit status."""
    for category in FutureWarning, UserWarning:  # each is said once, by one rank
        warnings.simplefilter("ignore" if rank else "once", category)
    warnings.simplefilter("ignore", Warning)
    try:
        if store is not None:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
        try:
            subject = KNOWN[options.what] if options.what in KNOWN else load(options.what, options.argument)
        except Error as error:
            if rank == 0:
                print(error, file=sys.stderr)
            return 2
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        group = dist.group.WORLD
        assert group is not None
        return int(audit(subject, group, options.programs, options.first, options.seed,
                         lambda line: print(line, flush=True) if rank == 0 else None) > 0)
    except Error as error:
        print(error, file=sys.stderr)
    except BaseException:  # SystemExit of a file too: a status of 0 would say that it is right
        traceback.print_exc()
    return 2


def _forked(options: argparse.Namespace, rank: int, store: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // options.ranks))
    status = _rank(options, rank, store)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # threads of the group may wait for ranks that have ended


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m fcpc audit", description=HELP, epilog=STATUS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     usage="%(prog)s [options] WHAT [-- argument ...]")

    def some(text: str) -> int:
        if int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text} is less than 1")
        return int(text)
    parser.add_argument("what", metavar="WHAT", help="a Python file, or a name")
    parser.add_argument("--ranks", type=some, metavar="N", help="processes (4); under torchrun, as many as it has")
    parser.add_argument("--programs", type=some, default=100, metavar="N", help="how many random programs (100)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first of them (0): with "
                        "--programs 1, one that was reported alone")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is drawn (1)")
    return parser


def main(arguments: Sequence[str]) -> int:
    """The command, with the arguments behind `audit`: its exit status."""
    parser, arguments = _parser(), list(arguments)
    mine = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:mine])
    options.argument = arguments[mine + 1:]
    if options.argument and options.what in KNOWN:
        parser.error(f"{options.what} takes no arguments")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if options.ranks not in (None, int(os.environ["WORLD_SIZE"])):
            parser.error(f"--ranks is {options.ranks}, and torchrun has started {os.environ['WORLD_SIZE']} processes")
        status = _rank(options, int(os.environ["RANK"]), None)
        if dist.is_initialized():
            dist.destroy_process_group()
        return status
    options.ranks = options.ranks or 4
    if options.what in KNOWN:  # once, and not by each process
        for module in "torch._dynamo", others.IN_TORCH, "torch.nn.attention.flex_attention":
            importlib.import_module(module)
    with tempfile.TemporaryDirectory() as folder:
        fork = multiprocessing.get_context("fork")
        ranks = [fork.Process(target=_forked, args=(options, rank, f"{folder}/store")) for rank in range(options.ranks)]
        for process in ranks:
            process.start()
        try:
            running = list(ranks)
            while running and all(x.exitcode in (None, 0, 1) for x in ranks):
                multiprocessing.connection.wait([x.sentinel for x in running])
                running = [x for x in running if x.exitcode is None]
            if running:  # a rank has failed: the others wait for it. They may have failed too, and say so
                multiprocessing.connection.wait([x.sentinel for x in running], timeout=1)
        finally:
            for process in ranks:
                process.kill()
                process.join()
    codes = [x.exitcode for x in ranks]
    return max(code or 0 for code in codes) if all(code in (0, 1) for code in codes) else 2
