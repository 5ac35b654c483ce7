"""Plans the same lists with other projects' planners and with fcpc, in one run, and prints them side by side.

    [DISTCA=..] [MAGI=..] [MTKAHYPAR=..] [RUSTWORKX=..] [FCPC=build/fcpc] [RANKS=64] [RUNS=3] peers.py LIST.lengths...

    DISTCA     a checkout of DistCA; its planner runs at tolerance 0.1, as it is by default
    MAGI       a checkout of MagiAttention; its dispatch solver runs with its default, a heap
    MTKAHYPAR  where Python finds mtkahypar: partition.py compares more of it, at its own balance
    RUSTWORKX  where Python finds rustworkx, which colours the edges of bipartite graphs

What is not given is left out, and a line says so. DistCA and MagiAttention import modules that need PyTorch or a GPU,
but not for planning. If such a module is not installed, an empty one takes its place, and a line says so, too.

Masks are causal, blocks 2K, 64 heads with 8 of K and V, head_dim 128, bf16, a forward pass, nodes of 8. Lengths are
rounded down to even ones, because DistCA takes no others. What the columns count:

    bytes   those that a placement makes necessary:
            - K and V of each token, once for each rank that reads it and is not its home
            - for each row that is computed away from home, Q there, and the result back; the running state in place of
              the result where several ranks compute the row
    rounds  of fcpc's plan; for a peer a lower bound, the units of 2K tokens that its busiest port moves
    times   wall-clock, the least of RUNS runs, in which all take turns. A planner in Python could be faster in another
            language; so compare the other columns first
"""
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest.mock
from collections import defaultdict

from partition import GPUS, KV, PART, WHOLE, Batch, Partitioner

BLOCK = 2048
STRATEGIES = [  # name, strategy, layout, tokens
    ("fcpc cad, in place, 0.1", "cad(tolerance = 0.1)", "contiguous", "capped"),
    ("fcpc cad, in place, 0.01", "cad(tolerance = 0.01)", "contiguous", "capped"),
    ("fcpc fcp", "fcp", "planned", "capped"),
    ("fcpc fcp, tokens equal", "fcp", "planned", "equal"),
    ("fcpc dcp, 0.1", "dcp(epsilon_compute = 0.1, epsilon_memory = 0.1)", "planned", "capped"),
]


def absent(what, why):
    print("%s: not compared, %s" % (what, why))


# --- modules that planners import and do not need ---------------------------------------------------------------------

class Empty(types.ModuleType):
    """Any name is in it: as a class, or as an object that takes whatever is done to it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else unittest.mock.MagicMock()


class Fallback(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes last: what no other finder has, and is in the list, is empty."""
    names = {"torch", "triton", "rich", "megatron", "debugpy"}

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.names:
            return None
        if "." not in name:
            print("%s: not installed; an empty module takes its place" % name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def package_without_init(name, folder):
    """A package whose __init__ does not run, because it would load CUDA."""
    if not os.path.isdir(folder):
        sys.exit("peers.py: there is no folder " + folder)
    package = types.ModuleType(name)
    package.__path__ = [folder]
    sys.modules[name] = package
    return package


# --- what a placement costs -------------------------------------------------------------------------------------------

def length_of(ranges):
    """Tokens in the union of half-open ranges, and the union."""
    union = []
    for first, end in sorted(ranges):
        if union and first <= union[-1][1]:
            union[-1][1] = max(union[-1][1], end)
        elif first < end:
            union.append([first, end])
    return sum(end - first for first, end in union), union


class Work:
    """Rows at ranks, and homes of tokens, as ranges of the whole batch: bytes, rounds, balance."""

    def __init__(self, ranks):
        self.ranks, self.pairs = ranks, [0] * ranks
        self.rows, self.keys = [[] for _ in range(ranks)], [[] for _ in range(ranks)]
        self.homes = []  # (first, end, rank)

    def add(self, rank, document, first, end):
        """Rows first to end of a document that begins there, under a causal mask."""
        self.rows[rank].append((document + first, document + end))
        self.keys[rank].append((document, document + end))
        self.pairs[rank] += (first + 1 + end) * (end - first) // 2

    def cost(self):
        homes = sorted(self.homes)
        held = [0] * self.ranks
        for first, end, rank in homes:
            held[rank] += end - first
        sent = defaultdict(int)  # tokens, by (from, to, bytes each)
        for ranges, each, back in ((self.keys, KV, 0), (self.rows, WHOLE, 1)):
            for rank in range(self.ranks):
                union, at = length_of(ranges[rank])[1], 0
                for first, end in union:
                    while at and homes[at][0] > first:
                        at -= 1
                    while at < len(homes) and homes[at][0] < end:
                        overlap = min(end, homes[at][1]) - max(first, homes[at][0])
                        if overlap > 0 and homes[at][2] != rank:
                            sent[homes[at][2], rank, each] += overlap
                        at += 1
                    at = max(0, at - 1)
        total = sum(n * each for (_, _, each), n in sent.items())
        net = sum(n * each for (a, b, each), n in sent.items() if a // GPUS != b // GPUS)
        ports = defaultdict(int)
        for (a, b, each), n in sent.items():
            units = -(-n // BLOCK) if each == KV else -(-4 * n // BLOCK)  # no unit of Q exceeds one of K and V
            ports["out", a] += units
            ports["in", b] += units
        return {"bytes_total": total, "bytes_inter_node": net, "rounds": max(ports.values(), default=0),
                "compute_max_over_mean": max(self.pairs) * self.ranks / sum(self.pairs),
                "tokens_max_over_mean": max(held) * self.ranks / sum(held)}


# --- the planners -----------------------------------------------------------------------------------------------------

class DistCA:
    """Documents lie on ranks in order; one that does not fit goes on at the next, early and late rows in pairs."""

    def __init__(self, folder):
        sys.path.insert(0, folder)
        package_without_init("distca.runtime", os.path.join(folder, "distca", "runtime"))
        import distca.planner.planner as planner
        self.module = planner

    def plan(self, lengths, ranks):
        config = types.SimpleNamespace(hidden_size=64 * 128, num_attention_heads=64, num_key_value_heads=8)
        parallel = types.SimpleNamespace(pipeline_model_parallel_size=1, tensor_model_parallel_size=1)
        each = -(-sum(lengths) // ranks)
        each += each % 2
        items = self.module.batch_to_items_general([lengths], each, ranks, config)
        planner = self.module.Planner(ranks, parallel, tolerance_factor=0.1, model_config=config)
        start = time.perf_counter()
        done = planner.plan_items(items)
        seconds = time.perf_counter() - start
        begin = [0]
        for n in lengths:
            begin.append(begin[-1] + n)
        work = Work(ranks)
        for item in items:
            for part in item.to_dicts():
                at = begin[part["seqid"]]
                work.homes.append((at + part["kv"] - part["q"], at + part["kv"], part["gpuid"]))
        for item in done:
            for part in item.to_dicts():
                work.add(part["gpuid"], begin[part["seqid"]], part["kv"] - part["q"], part["kv"])
        return work, seconds


class Magi:
    """The batch in chunks of 2K tokens, each with its rows; every rank gets as many."""

    def __init__(self, folder):
        root = os.path.join(folder, "magi_attention")
        for name in ("", ".meta", ".meta.solver", ".common"):
            package_without_init("magi_attention" + name, root + name.replace(".", "/"))
        common = sys.modules["magi_attention.common"]
        from magi_attention.common.range import AttnRange
        from magi_attention.common.ranges import AttnRanges
        common.AttnRange, common.AttnRanges = AttnRange, AttnRanges
        import magi_attention.meta.solver.dispatch_solver as solver
        self.module = solver

    def plan(self, lengths, ranks):
        chunks, at, room = [[]], 0, BLOCK  # a chunk is a list of (document, first row, end)
        for n in lengths:
            first = 0
            while first < n:
                if not room:
                    chunks.append([])
                    room = BLOCK
                end = min(n, first + room)
                chunks[-1].append((at, first, end))
                room -= end - first
                first = end
            at += n
        areas = [sum((f + 1 + e) * (e - f) // 2 for _, f, e in chunk) for chunk in chunks]
        jobs = self.module.DispatchJob.from_job_list(areas)
        start = time.perf_counter()
        data = self.module.DispatchData(jobs=jobs, num_buckets=ranks)
        solution = self.module.DispatchSolver(self.module.MinHeapDispatchAlg()).solve(data)
        seconds = time.perf_counter() - start
        work = Work(ranks)
        for rank, bucket in enumerate(solution.bucket_partitions):
            for job in bucket:
                for document, first, end in chunks[job]:
                    work.homes.append((document + first, document + end, rank))
                    work.add(rank, document, first, end)
        return work, seconds


class Fcpc:
    def __init__(self, fcpc, ranks, lengths, strategy, layout, tokens):
        self.program = (
            "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
            "cluster { nodes = %d; gpus = %d; intra = 450 GB/s; inter = 50 GB/s }\n"
            'batch { lengths = file("%s") }\n'
            "plan { mask = causal; block = 2K; strategy = %s; layout = %s; tokens = %s; passes = forward }\n" % (
                ranks // GPUS, GPUS, os.path.abspath(lengths), strategy, layout, tokens))
        self.fcpc = fcpc

    def run(self, *options):
        done = subprocess.run([self.fcpc, "-q", "-", *options], input=self.program, capture_output=True, text=True)
        if done.returncode:
            sys.exit("peers.py: " + done.stderr)
        return done.stdout

    def summary(self):
        s = json.loads(self.run("--json"))
        s["rounds"] += s["rounds_dependent"]
        return s


def partitioned(partitioner, batch):
    """Whole rows of tiles, by Mt-KaHyPar: cost and seconds."""
    home, rank, seconds = partitioner.divide(batch, True, 1.0)
    total, net, load, held = batch.cost(home, rank)
    ports = defaultdict(int)
    for reader, k in {(home[q], k) for q, k, _ in batch.tiles if home[q] != home[k]}:
        ports["in", reader] += 1
        ports["out", home[k]] += 1
    return {"bytes_total": total, "bytes_inter_node": net, "compute_max_over_mean": load,
            "tokens_max_over_mean": held, "rounds": max(ports.values(), default=0)}, seconds


def row(who, cost, seconds):
    print("  %-34s %9.1f ms %8.4f %8.4f %10.1f MB %10.1f MB %7d" % (
        who, 1e3 * seconds, cost["compute_max_over_mean"], cost["tokens_max_over_mean"], cost["bytes_total"] / 1e6,
        cost["bytes_inter_node"] / 1e6, cost["rounds"]), flush=True)


def colouring(library, fcpc, runs):
    """The units that may go from the start, as a bipartite graph: rounds of the plan and colours of the library."""
    for fabric in ("net", "local"):
        edges = []
        for line in fcpc.run("--dump", "traffic").splitlines():
            word = dict(w.split("=") for w in line.split()[2:]) if line.startswith("fetch") else {}
            if word.get("fabric") == fabric and word["parent"] == "-":
                edges += [(int(word["src"]), int(word["dst"]))] * int(word["units"])
        if not edges:
            continue
        degree = defaultdict(int)
        graph = library.PyGraph(multigraph=True)
        ends = {}
        for a, b in edges:
            for end in (("out", a), ("in", b)):
                degree[end] += 1
                if end not in ends:
                    ends[end] = graph.add_node(end)
        graph.add_edges_from([(ends["out", a], ends["in", b], None) for a, b in edges])
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            colours = library.graph_bipartite_edge_color(graph)
            times.append(time.perf_counter() - start)
        used = set()
        for e, colour in colours.items():
            a, b = graph.get_edge_endpoints_by_index(e)
            if (a, colour) in used or (b, colour) in used:
                sys.exit("peers.py: rustworkx gave two edges of a node one colour")
            used |= {(a, colour), (b, colour)}
        print("  %-34s %9.1f ms  %d units, busiest port %d, %d colours" % (
            "rustworkx, " + fabric, 1e3 * min(times), len(edges), max(degree.values()), len(set(colours.values()))))
    summary = [json.loads(fcpc.run("--json")) for _ in range(runs)]
    s = summary[0]
    print("  %-34s %9.1f ms  both fabrics: %d rounds from the start, bound %d; %d that wait for others" % (
        "fcpc", 1e3 * min(x["seconds"]["colour"] for x in summary), s["rounds"], s["rounds_lower_bound"],
        s["rounds_dependent"]))


def module_at(variable, name, what):
    folder = os.environ.get(variable)
    if not folder:
        absent(what, "%s is not set" % variable)
        return None
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        absent(what, str(error))
        return None


def compare(path, ranks, runs, fcpc, planners, partitioner, library):
    lengths = [int(line) // 2 * 2 for line in open(path) if int(line) >= 2]
    with tempfile.NamedTemporaryFile("w", suffix=".lengths") as even:
        even.write("".join("%d\n" % n for n in lengths))
        even.flush()
        print("%s: %d documents, %d tokens, %d ranks" % (os.path.basename(path), len(lengths), sum(lengths), ranks))
        print("  %-34s %12s %8s %8s %13s %13s %7s" % ("", "time", "work", "tokens", "bytes", "on net", "rounds"))
        ours = [(name, Fcpc(fcpc, ranks, even.name, *rest)) for name, *rest in STRATEGIES]
        found, seconds = {}, defaultdict(lambda: 1e9)
        batch = Batch(fcpc, ranks, "causal", even.name) if partitioner else None
        for _ in range(runs):
            for name, planner in planners:
                work, spent = planner.plan(lengths, ranks)
                found[name] = found.get(name) or work.cost()
                seconds[name] = min(seconds[name], spent)
            if partitioner:
                found["Mt-KaHyPar, rows, 0.1"], spent = partitioned(partitioner, batch)
                seconds["Mt-KaHyPar, rows, 0.1"] = min(seconds["Mt-KaHyPar, rows, 0.1"], spent)
            for name, planner in ours:
                s = planner.summary()
                found[name] = s
                seconds[name] = min(seconds[name], s["seconds"]["place"] + s["seconds"]["classify"])
        for name, cost in found.items():
            row(name, cost, seconds[name])
        if library:
            colouring(library, ours[2][1], runs)
    print(flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit("peers.py: " + __doc__.split("\n\n")[1].strip())
    ranks, runs = int(os.environ.get("RANKS", "64")), int(os.environ.get("RUNS", "3"))
    partition = module_at("MTKAHYPAR", "mtkahypar", "Mt-KaHyPar")
    library = module_at("RUSTWORKX", "rustworkx", "a library's edge colouring")
    sys.meta_path.append(Fallback())
    planners = []
    for variable, what, make in (
            ("DISTCA", "DistCA's planner, 0.1", DistCA),
            ("MAGI", "MagiAttention's solver", Magi)):
        if os.environ.get(variable):
            planners.append((what, make(os.environ[variable])))
        else:
            absent(what, "%s is not set" % variable)
    for path in sys.argv[1:]:
        compare(path, ranks, runs, os.environ.get("FCPC", "build/fcpc"), planners,
                Partitioner(partition) if partition else None, library)


if __name__ == "__main__":
    main()
