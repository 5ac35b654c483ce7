"""Compares strategy dcp with Mt-KaHyPar on the same blocks and tiles, at the balance and tokens that Mt-KaHyPar
reached.

    MTKAHYPAR=FOLDER [FCPC=build/fcpc] [RANKS=64] [RUNS=3] [BLOCK=2048] [MASKS='lambda causal'] \
        partition.py LIST.lengths...

FOLDER is where Python finds the module mtkahypar, such as .../site-packages (it is on PyPI, under the MIT licence).
RANKS is a multiple of 8. BLOCK is that of all masks; else causal has 2048 and the others 1024. For each mask and list:

1. Mt-KaHyPar divides a hypergraph among the ranks, at imbalance 0.1, in four ways: two hypergraphs,

       rows    a vertex for each block, with its row of tiles; a net for each block's K and V
       tiles   a vertex for each tile and one for each block's tokens; nets for K and V, and for Q with its result

   each with two weights, since it takes only one number for a vertex:

       pairs   the vertex's part of all pairs
       both    half its part of all pairs, and half its part of all tokens

2. dcp places the same blocks. Its caps are the largest work and the most tokens of a rank in Mt-KaHyPar's result.
3. The bytes that a forward pass moves are counted by one rule for both. For dcp the count is compared with the plan's
   summary.

Times are wall-clock times on one thread: the least of RUNS runs of Mt-KaHyPar, and of three times as many of dcp. The
two alternate, so that other work on the machine slows both.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import time

GPUS, KV, WHOLE, PART = 8, 4096, 33024, 49664  # bytes a token: 64 heads, 8 of K and V, head_dim 128, bf16
PROGRAM = """model {{ heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }}
cluster {{ nodes = {nodes}; gpus = 8; intra = 450 GB/s; inter = 50 GB/s }}
batch {{ lengths = file("{lengths}") }}
plan {{ mask = {mask}; block = {block}; strategy = {strategy}; passes = forward; layout = planned }}
"""
BLOCKS = {"causal": 2048}  # others: 1024
MASKS = "lambda shared_question causal_blockwise causal"


def fail(why):
    sys.exit("partition.py: " + why)


class Batch:
    """The blocks and tiles of a list under a mask, as fcpc cuts them."""

    def __init__(self, fcpc, ranks, mask, lengths):
        self.fcpc, self.ranks = fcpc, ranks
        self.settings = {"nodes": ranks // GPUS, "lengths": os.path.abspath(lengths), "mask": mask,
                         "block": int(os.environ.get("BLOCK", BLOCKS.get(mask, 1024)))}
        self.tokens, self.tiles = [], []  # of each block; (Q block, KV block, pairs)
        for line in self.run("fcp", "-q", "--dump", "problem").splitlines():
            kind, *words = line.split()
            if kind not in ("block", "tile"):
                continue
            word = dict(w.split("=") for w in words[1:])
            if kind == "block":
                self.tokens.append(int(word["tokens"]))
            else:
                self.tiles.append((int(word["q_block"]), int(word["k_block"]), int(word["pairs"])))

    def run(self, strategy, *options):
        with tempfile.NamedTemporaryFile("w", suffix=".fcp") as f:
            f.write(PROGRAM.format(strategy=strategy, **self.settings))
            f.flush()
            done = subprocess.run([self.fcpc, f.name, *options], capture_output=True, text=True)
        if done.returncode:
            fail(done.stderr)
        return done.stdout

    def cost(self, home, rank):
        """Of homes and ranks of tiles: bytes, those between nodes, most work and most tokens over the mean."""
        rows, columns = [set() for _ in self.tokens], [set() for _ in self.tokens]
        load, held = [0] * self.ranks, [0] * self.ranks
        for (q, k, pairs), r in zip(self.tiles, rank):
            rows[q].add(r)
            columns[k].add(r)
            load[r] += pairs
        total = net = 0
        for b, tokens in enumerate(self.tokens):
            held[home[b]] += tokens
            for ranks, each in ((rows[b], WHOLE if len(rows[b]) == 1 else PART), (columns[b], KV)):
                total += len(ranks - {home[b]}) * tokens * each
                net += len({r // GPUS for r in ranks} - {home[b] // GPUS}) * tokens * each
        return total, net, max(load) * self.ranks / sum(load), max(held) * self.ranks / sum(held)


class Partitioner:
    """Mt-KaHyPar on a batch."""

    def __init__(self, module):
        self.module = module
        self.library = module.initialize(1)

    def divide(self, batch, by_rows, pairs_weigh):
        n, scale = len(batch.tokens), 1 << 26
        rows, columns = [[] for _ in range(n)], [[] for _ in range(n)]
        for t, (q, k, _) in enumerate(batch.tiles):
            rows[q].append(t)
            columns[k].append(t)
        all_pairs, all_tokens = sum(p for _, _, p in batch.tiles), sum(batch.tokens)
        of_tile = [scale * pairs_weigh * p / all_pairs for _, _, p in batch.tiles]
        of_block = [scale * (1 - pairs_weigh) * t / all_tokens for t in batch.tokens]
        m = len(batch.tiles)
        if by_rows:
            weights = [of_block[b] + sum(of_tile[t] for t in rows[b]) for b in range(n)]
            nets = [(sorted({batch.tiles[t][0] for t in columns[b]} | {b}), batch.tokens[b]) for b in range(n)]
        else:
            weights = of_tile + of_block
            nets = [(columns[b] + [m + b], batch.tokens[b] * KV // 128) for b in range(n)]
            nets += [(rows[b] + [m + b], batch.tokens[b] * WHOLE // 128) for b in range(n)]
        nets = [net for net in nets if len(net[0]) > 1]
        context = self.library.context_from_preset(self.module.PresetType.DETERMINISTIC)
        context.set_partitioning_parameters(batch.ranks, 0.1, self.module.Objective.KM1)
        context.logging = False
        self.module.set_seed(1)
        graph = self.library.create_hypergraph(context, len(weights), len(nets), [e for e, _ in nets],
                                               [max(1, int(w)) for w in weights], [w for _, w in nets])
        start = time.perf_counter()
        done = graph.partition(context)
        seconds = time.perf_counter() - start
        part = [done.block_id(v) for v in range(len(weights))]
        home = part if by_rows else part[m:]
        return home, [home[q] for q, _, _ in batch.tiles] if by_rows else part[:m], seconds


def ours(batch, load, tokens):
    """dcp within those caps: its cost, and its time."""
    epsilon = [max(1000, math.floor((cap - 1) * 1e6)) / 1e6 for cap in (load, tokens)]
    strategy = "dcp(epsilon_compute = %.6f, epsilon_memory = %.6f)" % tuple(epsilon)
    with tempfile.NamedTemporaryFile(suffix=".plan") as plan:
        summary = json.loads(batch.run(strategy, "--json", "-o", plan.name))
    return strategy, summary


def check_rule(batch, strategy, summary):
    """What this file counts of dcp's placement is what its plan says that it moves."""
    home, rank = [], []
    for line in batch.run(strategy, "-q", "--dump", "placement").splitlines():
        words = line.split()
        if words[0] in ("home", "exec"):
            value = int(dict(w.split("=") for w in words[2:])["rank"])
            (home if words[0] == "home" else rank).append(value)
    counted = batch.cost(home, rank)
    if counted[:2] != (summary["bytes_total"], summary["bytes_inter_node"]):
        fail("%s: counted %s bytes, the plan moves %d" % (strategy, counted[:2], summary["bytes_total"]))


def ratio(a, b):
    """a / b, where both may be 0: lists whose sequences all fit on a rank move nothing."""
    return a / b if b else math.inf if a else 1.0


def main():
    folder = os.environ.get("MTKAHYPAR")
    if not folder or len(sys.argv) < 2:
        fail(__doc__.split("\n\n")[1].strip())
    sys.path.insert(0, folder)
    import mtkahypar
    peer, ranks, runs = Partitioner(mtkahypar), int(os.environ.get("RANKS", "64")), int(os.environ.get("RUNS", "3"))
    fcpc = os.environ.get("FCPC", "build/fcpc")
    print("%-34s %-12s | %9s %8s %7s %7s %8s | %9s %8s %7s %7s %8s | %6s %6s" % (
        "", "Mt-KaHyPar", "MB", "net MB", "balance", "tokens", "ms", "dcp: MB", "net MB", "balance", "tokens", "ms",
        "bytes", "time"))
    missed = slow = count = 0
    for mask in os.environ.get("MASKS", MASKS).split():
        for lengths in sys.argv[1:]:
            batch = Batch(fcpc, ranks, mask, lengths)
            for by_rows in (True, False):
                for weigh in (1.0, 0.5):
                    home, rank, seconds = peer.divide(batch, by_rows, weigh)
                    total, net, load, tokens = batch.cost(home, rank)
                    strategy, summary = ours(batch, load, tokens)
                    check_rule(batch, strategy, summary)
                    place = summary["seconds"]["place"]
                    for i in range(3 * runs - 1):
                        place = min(place, ours(batch, load, tokens)[1]["seconds"]["place"])
                        if i % 3:
                            continue
                        seconds = min(seconds, peer.divide(batch, by_rows, weigh)[2])
                    bytes_ratio, time_ratio = ratio(summary["bytes_total"], total), place / seconds
                    count += 1
                    missed += bytes_ratio > 1.05
                    slow += time_ratio > 0.05
                    each = "%9.1f %8.1f %7.4f %7.4f %8.1f"
                    print(("%-34s %-12s | " + each + " | " + each + " | %6.3f %6.3f") % (
                        mask + " " + os.path.basename(lengths).removesuffix(".lengths"),
                        ("rows" if by_rows else "tiles") + (", pairs" if weigh == 1 else ", both"), total / 1e6,
                        net / 1e6, load, tokens, seconds * 1e3, summary["bytes_total"] / 1e6,
                        summary["bytes_inter_node"] / 1e6, summary["compute_max_over_mean"],
                        summary["tokens_max_over_mean"], place * 1e3, bytes_ratio, time_ratio), flush=True)
    print("bytes more than 1.05 of Mt-KaHyPar's: %d of %d; time more than a twentieth: %d" % (missed, count, slow))


if __name__ == "__main__":
    main()
