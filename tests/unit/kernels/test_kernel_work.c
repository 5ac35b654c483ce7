/* test_kernel_work.c: tests the kernels' work lists. The lists by rows and by keys cover the same pairs, each output
 * belongs to one item, and the longest items come first. In the ordered backward pass, the turn of an item is the
 * number of items before it, and few items wait for their turn. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>

#include "runtime/worklists/worklists.h"
#include "tests/support/plan_of.h"
#include "tests/support/order_model.h"

enum { APART = 1 << 16, MOST = 64 };

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
/* Sums over `count` places that lie `step` apart. The sum of all pairs of rows and keys is the product of their
 * sums. */
static uint64_t sum_of(uint64_t first, uint64_t count, uint64_t step, uint64_t salt) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += mix(first + i * step + salt);
    return sum;
}

/* What TMA finds at a row is what lies at an offset. */
static void same_bytes(const fcp_arena *a, uint32_t place, uint32_t row, uint32_t slot, uint64_t k, uint64_t v,
                       uint32_t count) {
    fcp_launch_tensor all[FCP_LAUNCH_TENSORS];
    fcp_launch_tensors(a, all);
    cr_assert(place == FK_AT_HOME || place == FK_MOVED);
    const fcp_launch_tensor *ks = &all[place == FK_AT_HOME ? 2 : 4], *vs = &all[place == FK_AT_HOME ? 3 : 5];
    uint64_t arena = (uintptr_t)a->k;
    cr_assert_eq(ks->address + slot * ks->strides[2] + row * ks->strides[1], arena + k);
    cr_assert_eq(vs->address + slot * vs->strides[2] + row * vs->strides[1], arena + v);
    cr_assert(row + count <= ks->rows && row + count <= vs->rows && slot < ks->slots && slot < vs->slots);
}

static uint64_t pairs_of_rows(const fcp_worklists *w, const fcp_arena *a, uint64_t stride) {
    uint64_t pairs = 0, last = UINT64_MAX;
    for (uint32_t i = 0; i < w->row_count; i++) {
        const fk_row_item *item = &w->rows[i];
        uint64_t total = 0;
        cr_assert(item->count >= 1 && item->count <= FK_ROWS && item->first + item->runs <= w->key_run_count);
        for (uint32_t j = item->first; j < item->first + item->runs; j++) {
            const fk_key_run *run = &w->key_runs[j];
            cr_assert(run->cls == FK_FULL || run->cls == FK_PARTIAL);
            cr_assert(run->k % 16 == 0 && run->v > run->k && run->v < a->bytes);
            same_bytes(a, run->place, run->row, run->slot, run->k, run->v, run->count);
            pairs += sum_of(item->token, item->count, 1, 1) * sum_of(run->k, run->count, stride, 2) * run->cls;
            total += run->count;
        }
        cr_assert(total <= last, "item %u is longer than the one before it", i);
        last = total;
        for (uint32_t j = 0; j < i; j++)
            cr_assert(w->rows[j].token + w->rows[j].count <= item->token ||
                      item->token + item->count <= w->rows[j].token);
    }
    return pairs;
}

static uint64_t pairs_of_keys(const fcp_worklists *w, const fcp_arena *a, fcp_key_order order, uint64_t stride,
                              uint32_t *shared) {
    const uint32_t group = a->heads / a->kv_heads;
    const bool ordered = order == FCP_KEYS_ORDERED, turned = order != FCP_KEYS_JOINT;
    uint64_t pairs = 0;
    uint32_t turns[1024] = {0};
    cr_assert(w->lock_count <= 1024);
    for (uint32_t i = 0; i < w->key_count; i++) {
        const fk_key_item *item = &w->keys[i];
        cr_assert(item->count >= 1 && item->count <= FK_KEYS && item->runs &&
                  item->first + item->runs <= w->row_run_count);
        same_bytes(a, item->place, item->row, item->slot, item->k, item->v, item->count);
        for (uint32_t j = item->first; j < item->first + item->runs; j++) {
            const fk_row_run *run = &w->row_runs[j];
            pairs += sum_of(run->token, run->count, 1, 1) * sum_of(item->k, item->count, stride, 2) * run->cls;
            if (!ordered) continue;
            cr_assert(j == item->first || run[-1].position > run->position, "from the last row to the first");
            cr_assert(run->count <= FK_ROWS && run->lock < w->lock_count && run->turn == turns[run->lock]++);
            for (uint32_t k = 0; k < j; k++) /* a lock is of the same rows always */
                if (w->row_runs[k].lock == run->lock && k >= w->keys[0].first)
                    cr_assert(w->row_runs[k].token == run->token && w->row_runs[k].count == run->count);
        }
        bool alone = item->lock == FK_NONE, others = false;
        for (uint32_t j = 0; j < w->key_count; j++) {
            const fk_key_item *other = &w->keys[j];
            if (j == i || other->dk + other->count * stride * 2 <= item->dk ||
                item->dk + item->count * stride * 2 <= other->dk)
                continue;
            cr_assert(!alone && other->dk == item->dk && other->count == item->count && other->lock == item->lock,
                      "keys of several items");
            others = true;
        }
        cr_assert(alone ? w->subs == group : others || w->subs < group);
        *shared += !alone;
        if (alone || !turned) continue;
        cr_assert(item->lock < w->lock_count && item->turn == turns[item->lock]++);
    }
    return pairs;
}

/* Items whose sums begin with them are alone, and nobody has added to the sums before. added: per home slot, whether an
 * instruction before has added to it. Returns how many home items begin. */
static uint32_t check_begins(const fcp_worklists *w, const fcp_arena *a, const bool *added) {
    const uint64_t arena = (uintptr_t)a->k, row = (uint64_t)a->kv_heads * a->plan->problem->head_dim * sizeof(float);
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->key_count; i++) {
        const fk_key_item *item = &w->keys[i];
        if (item->lock != FK_NONE) cr_assert(!item->begins);
        if (item->dk + arena >= (uintptr_t)a->dkv || item->lock != FK_NONE) continue;
        const uint64_t slot = (item->dk + arena - (uintptr_t)a->dk) / row / APART;
        cr_assert(slot < a->homes);
        cr_assert_eq(item->begins, !added[slot], "home slot %" PRIu64, slot);
        count += item->begins;
    }
    return count;
}

/* Keys that several items have: whether there are any. */
static void check_plan(const char *text, bool wants_shared) {
    fcp_plan *plan = plan_named("work.fcp", text);
    const fcp_problem *p = plan->problem;
    uint64_t first[MOST + 1], stride = (uint64_t)p->kv_heads * p->head_dim * fcp_dtype_size((fcp_dtype)p->dtype);
    for (uint32_t i = 0; i <= MOST; i++) first[i] = (uint64_t)i * APART;
    uint32_t launches = 0, shared = 0, begun = 0;
    fcp_worklists w = {0};
    for (uint32_t rank = 0; rank < p->ranks; rank++) {
        uint32_t homes = 0;
        bool added[MOST] = {false};
        for (uint64_t b = 0; b < plan->blocks_count; b++) homes += plan->blocks[b].home == rank;
        cr_assert(homes <= MOST);
        fcp_homes h = {.homes = homes, .tokens = {homes * APART, homes * APART}, .first = {first, first}};
        fcp_slots slots = {{[FCP_KV] = MOST, [FCP_STATE] = MOST, [FCP_DKV] = MOST}};
        fcp_arena a;
        fcp_arena_lay(plan, FCP_BACKWARD, rank, &h, &slots, (void *)(uintptr_t)4096, &a);
        const fcp_stream *stream = fcp_stream_of(plan, FCP_BACKWARD, rank, FCP_COMPUTE);
        for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
            const fcp_instr *x = &plan->instrs[i];
            fcp_error err;
            if (x->op == FCP_OP_REDUCE && x->c < homes) added[x->c] = true;
            if (x->op != FCP_OP_ATTEND) continue;
            cr_assert(fcp_worklists_rows(&w, &a, x->a, x->b, &err) == FCP_OK);
            uint64_t rows = pairs_of_rows(&w, &a, stride);
            for (fcp_key_order order = FCP_KEYS_ALONE; order <= FCP_KEYS_ORDERED; order++) {
                cr_assert(fcp_worklists_keys(&w, &a, x->a, x->b, order, &err) == FCP_OK);
                cr_assert(pairs_of_keys(&w, &a, order, stride, &shared) == rows, "rank %u, instruction %u", rank, i);
                begun += check_begins(&w, &a, added);
            }
            for (const fcp_visit *v = plan->visits + x->a; v < plan->visits + x->a + x->b; v++)
                for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++)
                    if (plan->tiles[t].dkv_slot < homes) added[plan->tiles[t].dkv_slot] = true;
            launches += rows != 0;
        }
    }
    cr_assert(launches >= 2 && (begun || wants_shared));
    cr_assert_eq(shared != 0, wants_shared);
    fcp_worklists_free(&w);
    fcp_plan_free(plan);
}

/* Ranges of query heads that have the same KV heads add to the same sums, launch after launch: none of them begins
 * them. */
Test(kernel_work, ranges_share_sums) {
    fcp_plan *plan = plan_named("ranges.fcp", "model { heads = 4; kv_heads = 2; head_dim = 64 }\ncluster { gpus = 2 }\n"
                                              "batch { lengths = [300, 130] }\n"
                                              "plan { mask = causal; layout = contiguous; strategy = upipe }\n");
    uint64_t first[MOST + 1];
    uint32_t shared = 0;
    fcp_worklists w = {0};
    for (uint32_t i = 0; i <= MOST; i++) first[i] = (uint64_t)i * APART;
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        fcp_homes h = {.homes = MOST, .tokens = {MOST * APART, MOST * APART}, .first = {first, first}};
        fcp_slots slots = {{[FCP_KV] = MOST, [FCP_STATE] = MOST, [FCP_DKV] = MOST}};
        fcp_arena a;
        fcp_arena_lay(plan, FCP_BACKWARD, rank, &h, &slots, (void *)(uintptr_t)4096, &a);
        const fcp_stream *stream = fcp_stream_of(plan, FCP_BACKWARD, rank, FCP_COMPUTE);
        for (const fcp_instr *x = plan->instrs + stream->first; x < plan->instrs + stream->first + stream->count; x++) {
            fk_u64 sums[4 * MOST];
            uint32_t ranges[4 * MOST] = {0}, last[4 * MOST], begun[4 * MOST] = {0}, count = 0;
            if (x->op != FCP_OP_ATTEND) continue;
            for (w.range = 0; w.range < plan->heads_count; w.range++) {
                fcp_error err;
                cr_assert(fcp_worklists_keys(&w, &a, x->a, x->b, FCP_KEYS_ORDERED, &err) == FCP_OK);
                for (uint32_t i = 0; i < w.key_count; i++) {
                    uint32_t j = 0;
                    while (j < count && sums[j] != w.keys[i].dk) j++;
                    cr_assert(j < 4 * MOST);
                    if (j == count) sums[count] = w.keys[i].dk, last[count++] = FCP_NONE;
                    ranges[j] += last[j] != w.range;
                    last[j] = w.range;
                    begun[j] += w.keys[i].begins;
                }
            }
            for (uint32_t j = 0; j < count; j++) {
                cr_assert(ranges[j] == 1 || !begun[j], "%u ranges, %u begin", ranges[j], begun[j]);
                shared += ranges[j] > 1;
            }
        }
    }
    cr_assert(shared);
    fcp_worklists_free(&w);
    fcp_plan_free(plan);
}

Test(kernel_work, rows_and_keys_agree) {
    check_plan("model { heads = 4; kv_heads = 2; head_dim = 64 }\ncluster { gpus = 3; gpu = cpu }\n"
               "batch { lengths = [3000, 700, 130 x 3, 20 x 5] }\nplan { mask = causal; block = 512 }\n", false);
    check_plan("model { heads = 2; kv_heads = 1; head_dim = 128; dtype = fp16 }\n"
               "cluster { nodes = 2; gpus = 2; gpu = cpu }\n"
               "batch { lengths = [2000, 900, 100 x 4] }\n"
               "plan { mask = lambda(sink = 40, window = 300); block = 256; strategy = zigzag(coalesce = 3) }\n",
               false);
    check_plan("model { heads = 2; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2; gpu = cpu }\n"
               "batch { lengths = [1500, 1, 127, 128, 129] }\n"
               "plan { mask = shared_question(p = 30, answers = 3); block = 384; strategy = fcp(coalesce = 8) }\n",
               false);
    check_plan("model { heads = 2; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2; gpu = cpu }\n"
               "batch { lengths = [16000] }\n"
               "plan { mask = lambda(sink = 100, window = 200); block = 1K; strategy = fcp(coalesce = 8) }\n", true);
    check_plan("model { heads = 6; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2; gpu = a100 }\n"
               "batch { lengths = [2000, 300] }\nplan { mask = causal; block = 512; strategy = fcp(coalesce = 8) }\n",
               true);
}

/* The sum of all pairs of (query, head) and key that the rows list, each with the class of its cell. */
static uint64_t pairs_of_heads(const fcp_worklists *w, const fcp_arena *a) {
    const bool single = w->single;
    const uint64_t heads = a->heads, group = heads / a->kv_heads;
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < w->row_count; i++) {
        const fk_row_item *item = &w->rows[i];
        uint64_t rows = 0, keys = 0;
        for (uint32_t j = item->first; j < item->first + item->runs; j++)
            keys += sum_of((uint64_t)w->key_runs[j].position, w->key_runs[j].count, 1, item->sequence) *
                    w->key_runs[j].cls;
        cr_assert(item->count <= FK_ROWS && (item->pack == 1 || (single && item->pack == group)));
        for (uint32_t r = 0; r < item->count; r++) {
            const uint64_t query = (uint64_t)item->position + (item->skip + r) / item->pack;
            const uint64_t head = (item->flags >> FK_HEAD_SHIFT) + (item->skip + r) % item->pack;
            for (uint64_t h = single ? head : 0; h < (single ? head + 1 : heads); h++)
                rows += mix((query * heads + h) * 1000 + item->sequence);
        }
        pairs += rows * keys;
    }
    return pairs;
}

/* The parts of each merge: items of the same rows, which leave their states one after the other and have all keys. */
static void check_merges(const fcp_worklists *w, uint32_t head_dim) {
    uint64_t at = 0, parts = 0, split = 0;
    for (uint32_t i = 0; i < w->merge_count; i++) {
        const fk_merge_item *x = &w->merges[i];
        cr_assert(x->first == at && x->parts >= 2);
        at += (uint64_t)x->parts * x->rows.count * (head_dim + 2) * 4;
        parts += x->parts;
        for (uint32_t j = 0; j < w->row_count; j++) {
            const fk_row_item *y = &w->rows[j];
            if (!(y->flags & FK_SPLIT) || y->state < x->first || y->state >= at) continue;
            cr_assert(y->flags & FK_FIRST && !(y->flags & FK_LAST) && y->runs);
            cr_assert(y->token == x->rows.token && y->count == x->rows.count && y->skip == x->rows.skip &&
                      y->flags >> FK_HEAD_SHIFT == x->rows.flags >> FK_HEAD_SHIFT);
            cr_assert_eq((y->state - x->first) % (x->rows.count * (head_dim + 2) * 4), 0);
            split++;
        }
    }
    cr_assert(at == w->split_bytes && parts == split && parts);
}

/* The parts of rows whose keys are cut: items of the same rows and head, each of which has a number of its own, and
 * only the first of which may go on from an earlier state. */
static void check_parts(const fcp_worklists *w, uint32_t head_dim) {
    uint64_t parts = 0;
    cr_assert_eq(w->split_bytes, (uint64_t)w->cut_parts * FK_PART_BYTES(head_dim));
    for (uint32_t i = 0; i < w->row_count; i++) {
        const fk_row_item *x = &w->rows[i];
        uint32_t of = 0, same = 0;
        if (x->parts < 2) continue;
        cr_assert(w->single && x->runs && x->part < x->parts && x->cut + x->parts <= w->cut_parts);
        cr_assert(!x->part || x->flags & FK_FIRST);
        for (uint32_t j = 0; j < w->row_count; j++) {
            const fk_row_item *y = &w->rows[j];
            if (y->parts < 2 || y->cut + y->parts <= x->cut || x->cut + x->parts <= y->cut) continue;
            cr_assert(y->cut == x->cut && y->parts == x->parts && y->token == x->token && y->count == x->count &&
                      y->out == x->out && y->flags >> FK_HEAD_SHIFT == x->flags >> FK_HEAD_SHIFT);
            of++;
            same += y->part == x->part;
        }
        cr_assert(of == x->parts && same == 1);
        parts++;
    }
    cr_assert_eq(parts, w->cut_parts);
}

/* Items of the forward pass that are of single heads, and together have the pairs of those for all heads. */
static void check_single(const char *text, bool packed, bool wants_cut) {
    fcp_plan *plan = plan_named("single.fcp", text);
    uint64_t first[MOST + 1], sums[2] = {0, 0}, cut = 0;
    fcp_worklists w = {0};
    fcp_error err;
    for (uint32_t i = 0; i <= MOST; i++) first[i] = (uint64_t)i * APART;
    cr_assert_eq(fcp_plan_packed(plan), packed);
    for (fcp_pass pass = FCP_FORWARD; pass <= FCP_BACKWARD; pass++)
        for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
            fcp_homes h = {.homes = MOST, .tokens = {MOST * APART, MOST * APART}, .first = {first, first}};
            fcp_slots slots = {{[FCP_KV] = MOST, [FCP_STATE] = MOST, [FCP_DKV] = MOST}};
            fcp_arena a;
            fcp_arena_lay(plan, pass, rank, &h, &slots, (void *)(uintptr_t)4096, &a);
            const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
            for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
                const fcp_instr *x = &plan->instrs[i];
                if (x->op != FCP_OP_ATTEND) continue;
                cr_assert_eq(fcp_worklists_rows(&w, &a, x->a, x->b, &err), FCP_OK);
                if (!wants_cut) cr_assert_eq(w.single, pass == FCP_FORWARD);
                sums[pass] += pairs_of_heads(&w, &a);
                if (pass == FCP_FORWARD && w.merge_count) check_merges(&w, plan->problem->head_dim);
                else check_parts(&w, plan->problem->head_dim);
                cut += w.cut_parts;
            }
        }
    cr_assert_eq(sums[FCP_FORWARD], sums[FCP_BACKWARD]);
    cr_assert_eq(cut != 0, wants_cut);
    fcp_worklists_free(&w);
    fcp_plan_free(plan);
}

/* Few queries: heads share tiles, and keys are cut. */
Test(kernel_work, short_rows_have_the_same_pairs) {
    check_single("model { heads = 6; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2 }\n"
                 "batch { lengths = [1:9000, 50:3000, 64:65, 300, 7:700] }\n"
                 "plan { mask = causal; block = 512; strategy = fcp(coalesce = 4) }\n", true, false);
}

/* Fewer rows than SMs, or some left over at the end: keys are cut. */
Test(kernel_work, cut_rows_have_the_same_pairs) {
    check_single("model { heads = 6; kv_heads = 2; head_dim = 16 }\ncluster { gpu = h100 }\n"
                 "batch { lengths = [2000, 300] }\nplan { mask = causal; block = 1K }\n", false, true);
    check_single("model { heads = 3; kv_heads = 1; head_dim = 64 }\ncluster { gpu = h100 }\n"
                 "batch { lengths = [700:20K] }\nplan { mask = full; block = 2K; strategy = fcp(coalesce = 64) }\n",
                 false, true);
    check_single("model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { gpu = h100 }\nbatch { lengths = [3000] }\n"
                 "mask m = causal and (h % 2 == 0 or q - k < 300)\nplan { mask = m; block = 1K }\n", false, true);
    check_single("model { heads = 5; kv_heads = 1; head_dim = 16 }\ncluster { gpus = 2; gpu = h100 }\n" /* in chains */
                 "batch { lengths = [256:4K] }\nplan { mask = full; block = 1K; strategy = ring; margin = 129 }\n", false,
                 true);
}

/* Of the time of a GPU's SMs so many hundredths are used, by cells alone. Beside: longest first. */
static void check_dealt_mask(const char *model, const char *gpu, uint32_t blocks, const char *lengths, const char *mask,
                             uint64_t least) {
    char text[400];
    snprintf(text, sizeof text,
             "model { %s; head_dim = 128 }\ncluster { gpu = %s }\nbatch { lengths = [%s] }\n"
             "plan { mask = %s; block = 4K; strategy = fcp(coalesce = 64); passes = forward }\n",
             model, gpu, lengths, mask);
    fcp_plan *plan = plan_named("dealt.fcp", text);
    fcp_worklists_time used;
    for (int tickets = 0; tickets < 2; tickets++) {
        cr_assert(order_model_forward(plan, blocks, 0, tickets, &used));
        cr_expect_eq(100 * used.work / (used.end * blocks), least, "%s, %s, tickets %d: %" PRIu64, model, lengths,
                     tickets, 100 * used.work / (used.end * blocks));
    }
    fcp_plan_free(plan);
}

static void check_dealt(const char *model, const char *gpu, uint32_t blocks, const char *lengths, uint64_t least) {
    check_dealt_mask(model, gpu, blocks, lengths, "causal", least);
}

Test(kernel_work, rows_are_dealt_out_evenly) {
    check_dealt("heads = 64; kv_heads = 8", "h100", 132, "2K", 98);   /* 96 */
    check_dealt("heads = 40; kv_heads = 8", "h100", 132, "2K", 98);   /* 95 */
    check_dealt("heads = 16; kv_heads = 16", "h100", 132, "4K", 100); /* the other order has 98 */
    check_dealt("heads = 40; kv_heads = 8", "b200", 148, "1K", 97);   /* 88 */
}

/* Beside: not cut. */
Test(kernel_work, keys_of_rows_are_cut_where_there_are_few_rows) {
    check_dealt("heads = 8; kv_heads = 1", "h100", 132, "2K", 74);  /* 51 */
    check_dealt("heads = 8; kv_heads = 1", "h100", 132, "1K", 31);  /* 27 */
    check_dealt("heads = 1; kv_heads = 1", "h100", 132, "8K", 64);  /* 24 */
    check_dealt("heads = 8; kv_heads = 1", "h100", 132, "4K", 100); /* 100: as it was */
}

/* Chains, where rows of equal length are left for more than half of the SMs. Beside: whole rows. */
Test(kernel_work, rows_that_are_left_are_cut_in_chains) {
    check_dealt_mask("heads = 64; kv_heads = 8", "h100", 132, "4K", "full", 98);   /* 96 */
    check_dealt_mask("heads = 16; kv_heads = 16", "h100", 132, "8K", "full", 98);  /* 96 */
    check_dealt_mask("heads = 13; kv_heads = 1", "h100", 132, "2K", "full", 82);   /* 78 */
}

/* If communication asks for more SMs than there are, attention keeps one, and nothing is cut for others. */
Test(kernel_work, rows_for_one_multiprocessor_are_not_cut) {
    fcp_plan *plan = plan_named("one.fcp", "model { heads = 5; kv_heads = 1; head_dim = 16 }\n"
                                           "cluster { gpus = 2; gpu = h100 }\nbatch { lengths = [256:4K] }\n"
                                           "plan { mask = full; block = 1K; strategy = ring; margin = 200 }\n");
    fcp_worklists_time used;
    cr_assert(order_model_forward(plan, 1, 0, true, &used));
    cr_expect_eq(used.end, used.work, "%" PRIu64 " instead of %" PRIu64, used.end, used.work);
    fcp_plan_free(plan);
}

/* Lays out rank 0 of a plan, which is not there. */
static fcp_arena arena_of(const fcp_plan *plan, uint64_t first[MOST + 1]) {
    const uint32_t homes = (uint32_t)plan->blocks_count;
    for (uint32_t i = 0; i <= MOST; i++) first[i] = (uint64_t)i * APART;
    fcp_homes h = {.homes = homes, .tokens = {homes * APART, homes * APART}, .first = {first, first}};
    fcp_slots slots = {{[FCP_KV] = MOST, [FCP_STATE] = MOST, [FCP_DKV] = MOST}};
    fcp_arena a;
    fcp_arena_lay(plan, FCP_BACKWARD, 0, &h, &slots, (void *)(uintptr_t)4096, &a);
    return a;
}

/* The pairs of a list by head as pairs_of_heads counts them, by rows of q and keys. Turns at rows and at keys are
 * counted for each head. */
static uint64_t pairs_by_head(const fcp_worklists *w, const fcp_arena *a, fcp_key_order order, uint64_t stride) {
    const uint32_t group = a->heads / a->kv_heads, words = w->lock_count * a->heads;
    uint32_t *turns = calloc(2 * (size_t)words + 1, sizeof *turns), *key_turns = turns + words;
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < w->key_count; i++) {
        const fk_key_item *item = &w->keys[i];
        uint64_t rows = 0;
        for (uint32_t j = item->first; j < item->first + item->runs; j++) {
            const fk_row_run *run = &w->row_runs[j];
            const uint32_t set = run->cls >> FK_SET_SHIFT & ((1u << FK_SET_HEADS) - 1);
            const uint32_t base = item->kv_head * group + (run->cls >> FK_SET_BASE_SHIFT) * FK_SET_HEADS;
            cr_assert(set);
            for (uint32_t h = base; h < base + FK_SET_HEADS; h++) {
                if (!(set >> (h - base) & 1)) continue;
                cr_assert(h / group == item->kv_head);
                for (uint32_t r = 0; r < run->count; r++)
                    rows += mix((uint64_t)(run->token + r) * a->heads + h) * (run->cls & 3);
                if (order == FCP_KEYS_ORDERED) cr_assert_eq(run->turn, turns[run->lock * a->heads + h]++);
            }
        }
        pairs += rows * sum_of(item->k, item->count, stride, 2);
        for (uint32_t j = 0; j < i; j++)
            if (w->keys[j].dk == item->dk && w->keys[j].kv_head == item->kv_head)
                cr_assert(item->lock != FK_NONE && w->keys[j].lock == item->lock);
        if (order != FCP_KEYS_JOINT && item->lock != FK_NONE)
            cr_assert_eq(item->turn, key_turns[item->lock * a->heads + item->kv_head]++);
    }
    free(turns);
    return pairs;
}

/* By head: however items are cut, their pairs are those that the rows list. */
static void check_by_head(const char *mask, const char *gpu, bool wants_shared) {
    char text[400];
    snprintf(text, sizeof text,
             "model { heads = 12; kv_heads = 2; head_dim = 64 }\ncluster { gpu = %s }\nbatch { lengths = [2000, 300] }\n"
             "mask m = %s\nplan { mask = m; block = 1K; strategy = fcp(coalesce = 64) }\n",
             gpu, mask);
    fcp_plan *plan = plan_named("heads.fcp", text);
    uint64_t first[MOST + 1], stride = plan->problem->kv_heads * 64 * 2, rows = 0;
    const fcp_arena a = arena_of(plan, first);
    const fcp_stream *stream = fcp_stream_of(plan, FCP_BACKWARD, 0, FCP_COMPUTE);
    fcp_worklists w = {0};
    fcp_error err;
    bool shared = false;
    for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        if (x->op != FCP_OP_ATTEND) continue;
        cr_assert_eq(fcp_worklists_rows(&w, &a, x->a, x->b, &err), FCP_OK);
        for (uint32_t j = 0; j < w.row_count; j++) {
            const fk_row_item *item = &w.rows[j];
            uint64_t queries = 0;
            for (uint32_t r = 0; r < item->count; r++)
                queries += mix((uint64_t)(item->token + r) * a.heads + (item->flags >> FK_HEAD_SHIFT));
            for (uint32_t k = item->first; k < item->first + item->runs; k++)
                rows += queries * sum_of(w.key_runs[k].k, w.key_runs[k].count, stride, 2) * w.key_runs[k].cls;
        }
        for (fcp_key_order order = FCP_KEYS_ALONE; order <= FCP_KEYS_ORDERED; order++) {
            cr_assert_eq(fcp_worklists_keys(&w, &a, x->a, x->b, order, &err), FCP_OK);
            cr_assert_eq(pairs_by_head(&w, &a, order, stride), rows, "%s, %s, order %d", mask, gpu, (int)order);
            for (uint32_t j = 0; j < w.key_count; j++) shared = shared || w.keys[j].lock != FK_NONE;
        }
        rows = 0;
    }
    cr_assert_eq(shared, wants_shared);
    fcp_worklists_free(&w);
    fcp_plan_free(plan);
}

Test(kernel_work, lists_by_head_have_the_same_pairs) {
    static const char *const masks[] = {"causal and (h % 3 == 0 or q - k < 200)", "causal and q - k < 100 * (1 + h)",
                                        "causal and (h > 2 or q - k < 300)"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        check_by_head(masks[i], "cpu", false);
        check_by_head(masks[i], "h100", true);
    }
}

/* How many pieces of work the keys of one rank's only stage are, and of how many query heads one is. */
static void check_cut(const char *model, const char *gpu, const char *length, uint64_t pieces, uint32_t subs) {
    char text[400];
    snprintf(text, sizeof text,
             "model { %s; head_dim = 64 }\ncluster { gpu = %s }\nbatch { lengths = [%s] }\n"
             "plan { mask = full; block = 1K; strategy = fcp(coalesce = 64) }\n",
             model, gpu, length);
    fcp_plan *plan = plan_named("cut.fcp", text);
    const fcp_problem *p = plan->problem;
    fcp_worklists w = {0};
    fcp_error err;
    uint64_t first[MOST + 1];
    const fcp_arena a = arena_of(plan, first);
    const fcp_stream *stream = fcp_stream_of(plan, FCP_BACKWARD, 0, FCP_COMPUTE);
    for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        if (x->op != FCP_OP_ATTEND) continue;
        cr_assert_eq(fcp_worklists_keys(&w, &a, x->a, x->b, FCP_KEYS_ORDERED, &err), FCP_OK);
        const uint64_t cut = fcp_worklists_key_pieces(false, w.key_count, w.subs, p->kv_heads, p->heads / p->kv_heads);
        cr_expect_eq(cut, pieces, "%s, %s, %s: %" PRIu64 " pieces", model, gpu, length, cut);
        cr_expect_eq(w.subs, subs, "%s, %s, %s: %u heads", model, gpu, length, w.subs);
    }
    fcp_worklists_free(&w);
    fcp_plan_free(plan);
}

Test(kernel_work, keys_are_cut_for_the_multiprocessors_of_the_plan) {
    check_cut("heads = 64; kv_heads = 8", "h100", "8K", 512, 8); /* nearly four for each of 132: not cut */
    check_cut("heads = 64; kv_heads = 8", "h100", "2K", 512, 2);
    check_cut("heads = 64; kv_heads = 8", "cpu", "2K", 128, 8);
    check_cut("heads = 8; kv_heads = 1", "h100", "8K", 512, 1);
    check_cut("heads = 6; kv_heads = 1", "h100", "8K", 384, 1);
    check_cut("heads = 6; kv_heads = 2", "a100", "6K", 288, 1);
    check_cut("heads = 1; kv_heads = 1", "h100", "8K", 64 * 2, 1); /* by rows: of 64 runs parts of 32 */
}

/* Little work: of several cuts the one with which the last of 132 SMs ends first. `least`: how many
 * hundredths of their time steps use. The numbers beside are those of the usual cut. */
static void check_little(const char *model, unsigned head_dim, const char *mask, const char *length, uint64_t least) {
    char text[400];
    snprintf(text, sizeof text,
             "model { %s; head_dim = %u }\ncluster { gpu = h100 }\nbatch { lengths = [%s] }\nmask m = %s\n"
             "plan { mask = m; block = 4K; strategy = fcp(coalesce = 64) }\n",
             model, head_dim, length, mask);
    fcp_plan *plan = plan_named("little.fcp", text);
    const fcp_key_order order = head_dim > 128 ? FCP_KEYS_ALONE : FCP_KEYS_ORDERED;
    fcp_worklists_time with, without;
    cr_assert(order_model_of_rank(plan, 0, 132, order, &with, &without));
    const uint64_t used = 100 * with.work / (with.end * 132);
    cr_expect(used >= least, "%s, %u, %s, %s: %" PRIu64, model, head_dim, mask, length, used);
    fcp_plan_free(plan);
}

Test(kernel_work, cuts_of_little_work_are_compared) {
    check_little("heads = 8; kv_heads = 1", 128, "causal", "2K", 71); /* 42 with pieces of one head */
    check_little("heads = 8; kv_heads = 1", 128, "full", "2K", 81);
    check_little("heads = 8; kv_heads = 1", 128, "full", "3K", 86); /* 65 */
    check_little("heads = 4; kv_heads = 1", 128, "causal", "4K", 86); /* 47, cut by rows */
    check_little("heads = 16; kv_heads = 1", 128, "full", "2K", 88);  /* 69 */
    check_little("heads = 4; kv_heads = 2", 128, "full", "2K", 77);   /* 53 */
}

/* dK and dV alone: their pieces wait for each other at keys only. Beside: not cut. */
Test(kernel_work, keys_alone_are_cut) {
    check_little("heads = 8; kv_heads = 1", 256, "causal", "2K", 84); /* 12 */
    check_little("heads = 8; kv_heads = 1", 256, "full", "2K", 92);   /* 24 */
    check_little("heads = 8; kv_heads = 1", 256, "causal", "8K", 98); /* 49 */
    check_little("heads = 64; kv_heads = 8", 256, "causal", "2K", 95);
}

/* By head. Beside: with the usual cut, by rows. */
Test(kernel_work, cuts_by_head_are_compared) {
    check_little("heads = 8; kv_heads = 1", 128, "causal and (h % 4 == 0 or q - k < 512)", "2K", 59); /* 11 */
    check_little("heads = 8; kv_heads = 1", 128, "causal and q - k < 256 * (1 + h % 8)", "8K", 85);   /* 37 */
    check_little("heads = 64; kv_heads = 8", 128, "causal and (h % 4 == 0 or q - k < 512)", "2K", 91);   /* 70 */
    check_little("heads = 64; kv_heads = 8", 128, "causal and q - k < 256 * (1 + h % 8)", "2K", 88);     /* 50 */
}

/* Few queries: keys are cut so that the model's 132 SMs are used for nine tenths of their time. */
static void check_short(const char *model, const char *lengths) {
    char text[400];
    snprintf(text, sizeof text,
             "model { %s; head_dim = 128 }\ncluster { gpu = h100 }\nbatch { lengths = [%s] }\n"
             "plan { mask = causal; block = 4K; strategy = fcp(coalesce = 64); passes = forward }\n",
             model, lengths);
    fcp_plan *plan = plan_named("short.fcp", text);
    fcp_worklists_time used;
    cr_assert(order_model_forward(plan, 132, 1, true, &used));
    cr_expect(used.work * 10 >= used.end * 132 * 9, "%s, %s: %llu units of work end at %llu", model, lengths,
              (unsigned long long)used.work, (unsigned long long)used.end);
    fcp_plan_free(plan);
}

Test(kernel_work, keys_of_few_queries_are_cut_for_the_multiprocessors) {
    check_short("heads = 64; kv_heads = 8", "1:128K");
    check_short("heads = 8; kv_heads = 1", "1:128K");             /* a part for each, not two for most */
    check_short("heads = 64; kv_heads = 8", "1:32K x 4, 1:1K x 100"); /* what is not cut counts too */
}

/* The lists of one rank. They take as long as the model says, beside lists without turns. */
static void check_waiting(const char *mask, const char *lengths, uint32_t kv_heads, uint32_t group, double most) {
    char text[400];
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = 64 }\ncluster { gpus = 1 }\nbatch { lengths = [%s] }\n"
             "plan { mask = %s; block = 1K; strategy = fcp(coalesce = 64) }\n",
             kv_heads * group, kv_heads, lengths, mask);
    fcp_plan *plan = plan_named("order.fcp", text);
    fcp_worklists_time with, without;
    cr_assert(order_model_of_rank(plan, 0, 116, FCP_KEYS_ORDERED, &with, &without));
    cr_assert(without.end && (double)with.end <= most * (double)without.end, "%s, %u x %u heads: %.3f", mask, kv_heads,
              group, (double)with.end / (double)without.end);
    fcp_plan_free(plan);
}

Test(kernel_work, turns_are_hardly_waited_for) {
    static const uint32_t heads[][2] = {{8, 8}, {8, 1}, {16, 2}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        check_waiting("causal", "8K", heads[i][0], heads[i][1], 1.04);
        check_waiting("full", "8K", heads[i][0], heads[i][1], 1.03);
        check_waiting("window(w = 1K)", "8K", heads[i][0], heads[i][1], 1.04);
        check_waiting("lambda(sink = 4, window = 2K)", "16K", heads[i][0], heads[i][1], 1.06);
        check_waiting("causal", "4K, 2K, 1K x 4", heads[i][0], heads[i][1], 1.08);
    }
}
