/* fcp.c: the fcp strategy: it balances work, keeps tokens under the cap, moves few blocks, and has no very busy sender.
 *
 * Requires: tokens[b] <= block; less than 2^40 tokens in all; work that adds up to less than 2^64; reads ascending.
 * Gives: a home for every block. Every rank has at most floor(mean) + block tokens. Its work is at most (1 + tolerance)
 *     times the mean or the heaviest block, whichever is more, where exchanges of blocks can reach that. The busiest
 *     rank never has over a thousandth more work than in LPT's placement after repair.c. Few tokens move. No rank is
 *     empty while another has two blocks.
 * Cost: O(blocks log blocks + reads + blocks x ranks of a sequence), the last bounded; memory O(blocks + reads).
 * Units: work in 1 / PLACE_ONE of the limit, tokens; transfers are KV blocks.
 * Source: our own. The frame is FCP's: fixed blocks, LPT's order, its token cap, work where Q lives. The packing is
 *     best fit decreasing with affinity, in two dimensions (work and tokens).
 *
 * What moves. KV block j moves to every rank other than its home that reads it, and a block that reads itself is at one
 * of its readers. Let U(r) be the set of KV blocks that the blocks of rank r read. Then
 *
 *     transfers = sum over r of |U(r)|  -  number of blocks,
 *
 * so transfers are saved by keeping these sets small. Two facts help.
 *
 * 1. Blocks that share reads, directly or through others, form a cluster: a long sequence, or a few short ones that
 *    share a block. A cluster that lies on one rank moves nothing. So light clusters are packed whole, and divided only
 *    when no rank takes them.
 * 2. Within a causal sequence the reads are nested: block i reads blocks 0 to i. A rank that holds block i has paid for
 *    all earlier ones. Summed over its ranks, the sequence costs the largest index that each holds, plus 1. So its
 *    blocks come heaviest first, and each goes to a rank that has a later block and where it still fits: that costs
 *    nothing. If there are several such ranks, it goes where it fits most tightly; if there is none, it opens another
 *    rank. Block j then has about as many readers as ranks are needed for the work of blocks j and later. Other masks
 *    are treated the same way: the rank whose blocks share most reads is preferred.
 *
 * Why that is not enough. Take a rank that is full of work with two blocks, the last of a long sequence. It has room
 * for the tokens of fourteen more blocks, but only for blocks with hardly any work, and there are not many of those. If
 * they have been given away early, that room stays empty, and tokens go to other ranks. On real batches the busiest
 * rank then ends 2 to 6 % over the mean.
 *
 * What is done about it. A rank takes a block only if everything else can still be placed under both limits.
 * feasibility.c tells that; it judges what is still to come by density (work per token). So items are placed from the
 * densest to the lightest: blocks of heavy clusters one by one, light clusters whole.
 *
 * Where an item goes:
 *   1. To the rank that reads most of it already. If that rank would have to send more blocks than any block receives,
 *      other ranks come first, and read a short prefix again.
 *   2. If no rank reads any of it: all that is left of its cluster goes to one rank.
 *   3. If no rank takes all of that: the item goes to the rank with the largest need (feasibility.c).
 *
 * Afterwards. If blocks are too coarse, a rank may be over the limit; repair.c exchanges blocks. spread_senders.c moves
 * homes away from the busiest senders, and renumber_ranks.c renumbers the ranks so that those of a cluster share nodes.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/base/union_find.h"
#include "compiler/place/fcp/fcp_parts.h"
#include "compiler/place/fcp/place_fcp.h"
#include "compiler/problem/problem.h"

/* A rank that has blocks of a cluster, as an element of the cluster's list of such ranks. */
typedef struct member_rank {
    uint32_t rank, next; /* next: of the same cluster */
    uint32_t top, last;  /* of its blocks there: the one with most reads, the newest */
} member_rank;

/* What is placed at once: a light cluster, or one block. Its blocks are member[first] to member[first + count - 1]. */
typedef struct item {
    uint32_t first, count;
} item;

/* How far a cluster is placed: the ranks that have blocks of it, and the blocks, work and tokens that are left. */
typedef struct progress {
    uint32_t first_rank, rank_count, blocks_left;
    int64_t work_left, tokens_left;
} progress;

typedef struct packing {
    place_state s;
    needs n;
    item *items;
    need_item *sizes;
    uint32_t item_count;
    uint64_t *sequence; /* items in the order they are placed */
    progress *clusters; /* by the number of their first block */
    member_rank *ranks;
    uint32_t rank_count; /* of `ranks` */
    uint64_t *sends;     /* per rank: transfers it must send, so far */
    uint64_t most_sends;
    uint64_t total_tokens;
} packing;

uint32_t place_overlap(const place_state *s, uint32_t a, uint32_t b) {
    const place_run *x = s->runs + s->run_start[a], *x_end = s->runs + s->run_start[a + 1];
    const place_run *y = s->runs + s->run_start[b], *y_end = s->runs + s->run_start[b + 1];
    uint32_t common = 0;
    while (x < x_end && y < y_end) {
        uint32_t from = x->first > y->first ? x->first : y->first, to = x->end < y->end ? x->end : y->end;
        if (from < to) common += to - from;
        if (x->end < y->end) x++;
        else y++;
    }
    return common;
}

/* --- setup -------------------------------------------------------------------------------------------------------- */

/* Returns the run of consecutive blocks with which a list of reads begins. *read moves to the first block after the
 * run. */
static inline place_run next_run(const uint32_t **read, const uint32_t *end) {
    const uint32_t *at = *read, first = *at;
    if (end[-1] - first == (size_t)(end - at) - 1) at = end;
    else for (at++; at < end && *at == at[-1] + 1; at++) {}
    *read = at;
    return (place_run){first, at[-1] + 1};
}

/* Finds for each block the runs of consecutive blocks that it reads, and the clusters: blocks that read one another,
 * directly or through others. If block 9 reads the run 3 to 6, then 9 is joined with 3, 3 with 4, 4 with 5, and 5 with
 * 6. If block 10 then reads 3 to 7, only 10 with 3 and 6 with 7 are still to be joined: `linked` skips neighbours that
 * have been joined, so that a long run is not gone through for each of its readers. */
static fcp_code find_clusters(packing *p, arena *scratch) {
    const place_input *in = p->s.in;
    uint32_t n = in->blocks, runs = 0;
    uint32_t *parent = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint32_t *linked = ARENA_NEW(scratch, uint32_t, n + (size_t)1); /* its sets are runs that are joined already */
    p->s.run_start = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    if (!parent || !linked || !p->s.run_start) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b <= n; b++) parent[b] = linked[b] = b;
    for (uint32_t pass = 0; pass < 2; pass++) { /* count, then fill */
        runs = 0;
        for (uint32_t b = 0; b < n; b++) {
            const uint32_t *read = in->reads + in->reads_start[b], *end = in->reads + in->reads_start[b + 1];
            if (!pass && (size_t)(end - read) > p->s.most_reads) p->s.most_reads = (uint32_t)(end - read);
            if (pass) p->s.run_start[b] = runs;
            for (; read < end; runs++) {
                const place_run run = next_run(&read, end);
                if (!pass) continue;
                p->s.runs[runs] = run;
                union_join(parent, b, run.first);
                for (uint32_t j = union_find(linked, run.first); j + 1 < run.end; j = union_find(linked, j)) {
                    union_join(parent, j, j + 1);
                    linked[j] = j + 1;
                }
            }
        }
        if (!pass && !(p->s.runs = ARENA_NEW(scratch, place_run, runs + (size_t)1))) return FCP_E_NO_MEMORY;
    }
    p->s.run_start[n] = runs;
    for (uint32_t b = 0; b < n; b++) parent[b] = union_find(parent, b);
    p->s.cluster = parent;
    return group_new(scratch, parent, sizeof *parent, n, n, in->stop, &p->s.member_start, &p->s.member);
}

/* Finds the work that the busiest rank may have: (1 + tolerance) times the mean or the heaviest block, whichever is
 * more. If a lower bound for every placement is larger, that is the limit. The bound, for k = 1, 2, ...: of the
 * k x ranks + 1 heaviest blocks some rank holds k + 1, and so has at least the work of the k + 1 lightest of these.
 * Example: on 2 ranks with blocks of 5, 5 and 5, some rank has 10. */
static fcp_code find_limit(const place_input *in, arena *scratch, const uint64_t *work, uint64_t *out_limit) {
    uint32_t n = in->blocks, ranks = in->ranks;
    uint64_t *sorted = ARENA_NEW(scratch, uint64_t, n + (size_t)1);
    uint64_t *other = ARENA_NEW(scratch, uint64_t, n + (size_t)1);
    if (!sorted || !other) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < n; b++) sorted[b] = UINT64_MAX - work[b];
    sort_u64(sorted, other, n);
    uint64_t *sum = other, most = 0; /* of the heaviest blocks */
    sum[0] = 0;
    for (uint32_t b = 0; b < n; b++) sum[b + 1] = sum[b] + (UINT64_MAX - sorted[b]);
    for (uint64_t k = 1; k * ranks < n; k++) {
        uint64_t last = k * ranks, least = sum[last + 1] - sum[last - k];
        if (least > most) most = least;
    }
    uint64_t base = sum[n] / ranks + (sum[n] % ranks != 0);
    if (sum[1] > base) base = sum[1];
    unsigned __int128 most_over = (unsigned __int128)base * in->tolerance / 1000000;
    if (most_over > UINT64_MAX || __builtin_add_overflow(base, (uint64_t)most_over, &base)) base = UINT64_MAX;
    *out_limit = base > most ? base : most;
    return FCP_OK;
}

/* Lists the items (light clusters whole, other clusters block by block), and the order in which they are placed. */
static fcp_code list_items(packing *p, arena *scratch) {
    const place_input *in = p->s.in;
    uint32_t n = in->blocks, count = 0;
    p->items = ARENA_NEW(scratch, item, n + (size_t)1);
    p->sizes = ARENA_NEW(scratch, need_item, n + (size_t)1);
    p->sequence = ARENA_NEW(scratch, uint64_t, n + (size_t)1);
    need_item *light = ARENA_NEW(scratch, need_item, n + (size_t)1);
    uint64_t *other = ARENA_NEW(scratch, uint64_t, n + (size_t)1);
    if (!p->items || !p->sizes || !p->sequence || !light || !other) return FCP_E_NO_MEMORY;
    for (uint32_t c = 0; c < n; c++) {
        uint32_t from = p->s.member_start[c], to = p->s.member_start[c + 1];
        need_item all = {0, 0};
        for (uint32_t i = from; i < to; i++) {
            all.work += p->s.work[p->s.member[i]];
            all.tokens += in->tokens[p->s.member[i]];
        }
        if (all.work <= PLACE_ONE / PACK_WHOLE_WORK && all.tokens <= p->n.cap / PACK_WHOLE_TOKENS) {
            if (from == to) continue;
            p->items[count] = (item){from, to - from};
            p->sizes[count++] = all;
        } else {
            for (uint32_t i = from; i < to; i++) {
                p->items[count] = (item){i, 1};
                p->sizes[count++] = (need_item){p->s.work[p->s.member[i]], in->tokens[p->s.member[i]]};
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t tokens = p->sizes[i].tokens ? (uint64_t)p->sizes[i].tokens : 1;
        uint64_t density = (uint64_t)p->sizes[i].work * 1024 / tokens;
        p->sequence[i] = density > UINT32_MAX ? UINT32_MAX : density;
    }
    order_falling(p->sequence, other, count);
    for (uint32_t i = 0; i < count; i++) light[i] = p->sizes[p->sequence[count - 1 - i]];
    needs_supply(&p->n, light, count);
    p->item_count = count;
    return FCP_OK;
}

static fcp_code open_packing(packing *p, const place_input *in, arena *scratch, uint32_t *home) {
    uint32_t n = in->blocks;
    uint64_t total = 0, limit = 0, cap = place_token_cap(in);
    uint64_t *weight = NULL;
    *p = (packing){.s = {.in = in, .home = home}};
    for (uint32_t b = 0; b < n; b++) {
        total += in->work[b];
        p->total_tokens += in->tokens[b];
    }
    if (!total) { /* nothing to compute: balance tokens */
        if (!(weight = ARENA_NEW(scratch, uint64_t, n + (size_t)1))) return FCP_E_NO_MEMORY;
        for (uint32_t b = 0; b < n; b++) weight[b] = in->tokens[b];
    }
    const uint64_t *work = weight ? weight : in->work;
    p->s.work = ARENA_NEW(scratch, int64_t, n + (size_t)1);
    if (!p->s.work) return FCP_E_NO_MEMORY;
    fcp_code code = find_limit(in, scratch, work, &limit);
    if (!code) code = needs_init(&p->n, scratch, in, cap, p->total_tokens);
    if (code) return code;
    unsigned shift = 0;
    while (limit >> shift >> 33) shift++;
    limit >>= shift;
    for (uint32_t b = 0; b < n; b++) {
        uint64_t w = (work[b] >> shift) + (shift && work[b] & ((UINT64_C(1) << shift) - 1));
        p->s.work[b] = limit ? (int64_t)(((w << 30) + limit - 1) / limit) : 0;
    }
    p->s.left = p->n.left;
    p->s.room = p->n.room;
    if ((code = find_clusters(p, scratch))) return code;
    p->clusters = ARENA_NEW(scratch, progress, n + (size_t)1);
    p->ranks = ARENA_NEW(scratch, member_rank, n + (size_t)1);
    p->sends = ARENA_ZNEW(scratch, uint64_t, in->ranks + (size_t)1);
    if (!p->clusters || !p->ranks || !p->sends) return FCP_E_NO_MEMORY;
    p->most_sends = p->s.most_reads;
    return list_items(p, scratch);
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

/* How many ranks of a cluster are looked at when one of its blocks is placed: all of them, unless the cluster has very
 * many blocks. */
static uint32_t ranks_seen(const packing *p, uint32_t c) {
    uint32_t blocks = p->s.member_start[c + 1] - p->s.member_start[c];
    return blocks < 1024 ? 4096 : blocks < 8192 ? (1u << 19) / blocks : 64;
}

/* Makes a rank the home of block b. */
static void set_home(packing *p, uint32_t b, uint32_t rank) {
    uint32_t c = p->s.cluster[b], looks = ranks_seen(p, c);
    p->s.home[b] = rank;
    for (uint32_t i = p->clusters[c].first_rank; i != FCP_NONE && looks--; i = p->ranks[i].next) {
        member_rank *d = &p->ranks[i];
        if (d->rank != rank) continue;
        d->last = b;
        const uint32_t *start = p->s.in->reads_start;
        if (start[b + 1] - start[b] > start[d->top + 1] - start[d->top]) d->top = b;
        return;
    }
    p->ranks[p->rank_count] = (member_rank){rank, p->clusters[c].first_rank, b, b};
    p->clusters[c].first_rank = p->rank_count++;
    p->clusters[c].rank_count++;
}

/* How many ranks other than `rank` have blocks that read b. `rank` may be FCP_NONE. */
static uint32_t count_readers(const packing *p, uint32_t b, uint32_t rank) {
    uint32_t c = p->s.cluster[b], looks = ranks_seen(p, c), count = 0;
    for (uint32_t i = p->clusters[c].first_rank; i != FCP_NONE && looks--; i = p->ranks[i].next) {
        const member_rank *d = &p->ranks[i];
        if (d->rank == rank) continue;
        for (uint32_t k = p->s.run_start[d->top]; k < p->s.run_start[d->top + 1]; k++)
            if (p->s.runs[k].first <= b && b < p->s.runs[k].end) {
                count++;
                break;
            }
    }
    return count;
}

enum { LIGHT = PLACE_ONE / PACK_LIGHT };

static void place_block(packing *p, uint32_t b) {
    place_state *s = &p->s;
    needs *n = &p->n;
    int64_t work = s->work[b], tokens = s->in->tokens[b];
    uint32_t c = s->cluster[b], looks = ranks_seen(p, c), sends = count_readers(p, b, FCP_NONE);
    progress *all = &p->clusters[c];
    uint32_t best = FCP_NONE, best_common = 0;
    bool best_busy = false;
    int64_t best_value = 0, keep = n->keep;
    if (work >= LIGHT) n->keep = 0;
    for (uint32_t i = p->clusters[c].first_rank; i != FCP_NONE && looks--; i = p->ranks[i].next) {
        const member_rank *d = &p->ranks[i];
        uint32_t r = d->rank;
        if (n->room[r] < tokens || n->left[r] < work) continue;
        uint32_t common = place_overlap(s, b, d->top);
        if (d->last != d->top) {
            uint32_t other = place_overlap(s, b, d->last);
            if (other > common) common = other;
        }
        if (!common || common < best_common) continue;
        bool busy = p->sends[r] + sends > p->most_sends + 1;
        int64_t value = work < LIGHT || busy ? -(int64_t)p->sends[r]
                                             : -(int64_t)needs_density(n, n->left[r] - work, n->room[r] - tokens);
        if (best != FCP_NONE && common == best_common &&
            (busy > best_busy || (busy == best_busy && value <= best_value)))
            continue;
        if (!needs_allow(n, r, work, tokens)) continue;
        best = r;
        best_common = common;
        best_busy = busy;
        best_value = value;
    }
    if (best == FCP_NONE && all->blocks_left > 1 && all->work_left <= PLACE_ONE && all->tokens_left <= n->cap) {
        uint64_t rest = (uint64_t)all->blocks_left * all->rank_count;
        n->keep = 0;
        uint32_t r = rest > p->most_sends
                         ? FCP_NONE
                         : needs_best(n, all->work_left, all->tokens_left, PACK_TRIES, p->sends, p->most_sends - rest);
        if (r != FCP_NONE) { /* all that is left of the cluster */
            for (uint32_t i = p->s.member_start[c]; i < p->s.member_start[c + 1]; i++)
                if (s->home[p->s.member[i]] == FCP_NONE) set_home(p, p->s.member[i], r);
            needs_take(n, r, all->work_left, all->tokens_left);
            p->sends[r] += rest;
            all->work_left = all->tokens_left = all->blocks_left = 0;
            n->keep = keep;
            return;
        }
        n->keep = work >= LIGHT ? 0 : keep;
    }
    uint32_t reads = s->in->reads_start[b + 1] - s->in->reads_start[b];
    if (best == FCP_NONE || (best_busy && reads <= sends)) { /* reading it all costs less than sending it all */
        uint32_t r = needs_best(n, work, tokens, PACK_TRIES, p->sends, sub_sat(p->most_sends, sends));
        if (r != FCP_NONE) best = r;
    }
    if (best == FCP_NONE) best = needs_any(n, work, tokens);
    n->keep = keep;
    set_home(p, b, best);
    needs_take(n, best, work, tokens);
    p->sends[best] += count_readers(p, b, best);
    all->work_left -= work;
    all->tokens_left -= tokens;
    all->blocks_left--;
}

static fcp_code pack(packing *p) {
    const place_input *in = p->s.in;
    needs *n = &p->n;
    memset(p->s.home, 0xff, in->blocks * sizeof *p->s.home);
    for (uint32_t c = 0; c < in->blocks; c++)
        p->clusters[c] =
            (progress){.first_rank = FCP_NONE, .blocks_left = p->s.member_start[c + 1] - p->s.member_start[c]};
    for (uint32_t b = 0; b < in->blocks; b++) {
        p->clusters[p->s.cluster[b]].work_left += p->s.work[b];
        p->clusters[p->s.cluster[b]].tokens_left += in->tokens[b];
    }
    int64_t open = n->cap * in->ranks;
    needs_reset(n, open - (int64_t)p->total_tokens);
    for (uint32_t i = 0; i < p->item_count; i++) {
        if (!(i & 255) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        uint32_t which = (uint32_t)p->sequence[i];
        uint32_t *block = p->s.member + p->items[which].first, count = p->items[which].count;
        need_item size = p->sizes[which];
        int64_t keep = (open / in->ranks - in->block) / PACK_KEEP;
        n->keep = keep > 0 ? keep : 0;
        open -= size.tokens;
        uint32_t c = p->s.cluster[*block];
        if (p->s.member_start[c + 1] - p->s.member_start[c] == count) { /* a whole cluster */
            uint32_t r = count > 1 ? needs_best(n, size.work, size.tokens, PACK_TRIES, NULL, 0)
                                   : needs_any(n, size.work, size.tokens);
            if (r == FCP_NONE) r = needs_like(n, size.work, size.tokens);
            if (r != FCP_NONE) {
                for (uint32_t k = 0; k < count; k++) p->s.home[block[k]] = r;
                needs_take(n, r, size.work, size.tokens);
                continue;
            }
            for (uint32_t k = 1; k < count; k++) { /* it must be split: heaviest blocks first */
                uint32_t b = block[k], j = k;
                for (; j > 0 && p->s.work[block[j - 1]] < p->s.work[b]; j--) block[j] = block[j - 1];
                block[j] = b;
            }
        }
        for (uint32_t k = 0; k < count; k++)
            if (p->s.home[block[k]] == FCP_NONE) place_block(p, block[k]);
    }
    return FCP_OK;
}

/* --- the strategy ------------------------------------------------------------------------------------------------- */

/* The work by which the busiest rank is over the limit, as a negative number. 0: no rank is over it. */
static int64_t least_left(const place_state *s) {
    int64_t least = 0;
    for (uint32_t r = 0; r < s->in->ranks; r++)
        if (s->left[r] < least) least = s->left[r];
    return least;
}

/* Called if a rank is still over the limit, because blocks are coarse. Makes a second placement by plain LPT, repaired
 * in the same way, and takes it if its busiest rank has less work by more than a thousandth of the limit. */
static fcp_code try_lpt(packing *p, place_lists *lists, arena *scratch) {
    const place_input *in = p->s.in;
    place_state other = p->s;
    place_lists other_lists;
    other.home = ARENA_NEW(scratch, uint32_t, in->blocks);
    other.left = ARENA_NEW(scratch, int64_t, in->ranks);
    other.room = ARENA_NEW(scratch, int64_t, in->ranks);
    if (!other.home || !other.left || !other.room) return FCP_E_NO_MEMORY;
    fcp_code code = place_lpt(in, scratch, other.home);
    if (code) return code;
    for (uint32_t r = 0; r < in->ranks; r++) {
        other.left[r] = PLACE_ONE;
        other.room[r] = p->n.cap;
    }
    for (uint32_t b = 0; b < in->blocks; b++) {
        other.left[other.home[b]] -= other.work[b];
        other.room[other.home[b]] -= in->tokens[b];
    }
    if ((code = place_lists_init(&other_lists, &other, scratch))) return code;
    if ((code = place_repair(&other, &other_lists, scratch))) return code;
    if (least_left(&other) <= least_left(&p->s) + PLACE_ONE / PACK_LPT_GAIN) return FCP_OK;
    memcpy(p->s.home, other.home, in->blocks * sizeof *other.home);
    other.home = p->s.home;
    p->s = other;
    *lists = other_lists;
    return FCP_OK;
}

fcp_code place_fcp(const place_input *in, arena *scratch, uint32_t *out_home) {
    packing p;
    place_lists lists;
    if (!in->blocks || !in->ranks) return FCP_OK;
    if (in->ranks == 1) {
        memset(out_home, 0, in->blocks * sizeof *out_home);
        return FCP_OK;
    }
    fcp_code code = open_packing(&p, in, scratch, out_home);
    if (!code) code = pack(&p);
    if (!code) code = place_lists_init(&lists, &p.s, scratch);
    if (!code) code = place_repair(&p.s, &lists, scratch);
    if (!code && least_left(&p.s) < 0) code = try_lpt(&p, &lists, scratch);
    if (!code) code = place_spread(&p.s, &lists, scratch);
    if (!code) code = place_group_nodes(&p.s, scratch);
    return code;
}

fcp_code place_by_fcp(planning *x, const place_input *in, uint32_t *home) {
    fcp_code code = (x->program->place == PLACE_LPT ? place_lpt : place_fcp)(in, &x->scratch, home);
    if (!code && x->problem->split) code = place_keys(x->problem, in, &x->scratch, home);
    return code || !place_splits(x) ? code : place_split(x, in, home);
}
