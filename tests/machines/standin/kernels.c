/* kernels.c: kernels of the stand-in driver: finds from its work list which memory a launch touches, and runs it on
 * fibers. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/standin/parts.h"

void range_add(ranges *r, uint64_t begin, uint64_t bytes) {
    if (!bytes) return;
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 16;
        r->all = realloc(r->all, r->capacity * sizeof *r->all);
    }
    r->all[r->count++] = (range){begin, begin + bytes};
}

static const struct {
    const char *name;
    size_t offset, parameters;
    const char *beside; /* a text that a source contains if it contains this kernel */
} known[] = {
#define KERNEL(name, member, type, beside) {#name, offsetof(fibers_kernels, member), sizeof(type), beside},
#define SMALL(member) KERNEL(fk_##member, member, fk_support, NULL)
#define ORDERED "#define FK_ORDERED 1\n"
#define UNORDERED "#define FK_ORDERED 0\n"
    KERNEL(fk_forward, forward, fk_launch, NULL)
    KERNEL(fk_forward_sm90, forward_sm90, fk_launch_maps, NULL)
    KERNEL(fk_backward_dkv, dkv, fk_launch, NULL)
    KERNEL(fk_backward_dq, dq, fk_launch, NULL)
    KERNEL(fk_backward_ordered, ordered, fk_launch, ORDERED)
    KERNEL(fk_backward_unordered, unordered, fk_launch, UNORDERED)
    KERNEL(fk_backward_ordered_sm90, ordered_sm90, fk_launch_maps, ORDERED)
    KERNEL(fk_backward_unordered_sm90, unordered_sm90, fk_launch_maps, UNORDERED)
    KERNEL(fk_backward_tables, tables, fk_launch_tables, NULL)
    KERNEL(fk_combine, combine, fk_launch, NULL)
    KERNEL(fk_gather, gather, fk_gather_launch, NULL)
    SMALL(begin_lse) SMALL(delta) SMALL(add) SMALL(round) SMALL(narrow) SMALL(widen) SMALL(merge)
    SMALL(state_out) SMALL(fold_sinks) SMALL(round_sums)
#undef KERNEL
#undef SMALL
#undef ORDERED
#undef UNORDERED
};

/* The kernels of layers that recur, which are a source of their own. */
static bool find_recurrent(cu_function f) {
    const fibers_recurrent *all = &fibers_recurrent_kernels;
    const struct {
        const char *name;
        const fibers_kernel *kernel;
        size_t parameters;
    } list[] = {{"fk_rows_move", &all->rows_move, sizeof(fk_rows_launch)},
                {"fk_rows_add", &all->rows_add, sizeof(fk_rows_launch)},
                {"fk_scan_scaled", &all->scan_scaled, sizeof(fk_scan_launch)},
                {"fk_scan_matrix", &all->scan_matrix, sizeof(fk_scan_launch)}};
    char entry[48];
    snprintf(entry, sizeof entry, "FK_KERNEL(%s,", f->name);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!strcmp(list[i].name, f->name) && strstr(f->module->text, entry)) {
            f->kernel = list[i].kernel;
            f->parameters = list[i].parameters;
            return true;
        }
    return false;
}
static bool is_rows(const node *n) { return !strncmp(n->function->name, "fk_rows_", 8); }
static bool is_scan(const node *n) { return !strncmp(n->function->name, "fk_scan_", 8); }
bool kernel_is_recurrent(const node *n) { return is_rows(n) || is_scan(n); }

bool kernel_find(cu_function f) {
    if (f->module->recurrent) return find_recurrent(f);
    const cu_module m = f->module;
    const fibers_kernels *all =
        fibers_kernels_find(m->head_dim, m->value_dim, m->bf16 ? FCP_BF16 : FCP_FP16, m->score);
    char entry[48];
    snprintf(entry, sizeof entry, "FK_KERNEL(%s,", f->name);
    for (size_t i = 0; all && i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, f->name) == 0 && strstr(f->module->text, entry) &&
            (!known[i].beside || strstr(f->module->text, known[i].beside))) {
            f->kernel = (const fibers_kernel *)(const void *)((const char *)all + known[i].offset);
            if (strstr(f->module->text, "#define FK_DO_BUFFERS 1\n"))
                f->kernel = f->kernel == &all->ordered     ? &all->ordered_one
                            : f->kernel == &all->unordered ? &all->unordered_one
                                                           : f->kernel;
            f->parameters = known[i].parameters;
            return f->kernel->run != NULL;
        }
    return false;
}

/* Adds rows [first, first + count) of an array [tokens][heads * bytes] that begins at base. */
static void rows(ranges *r, uint64_t base, uint64_t first, uint64_t count, uint64_t row) {
    range_add(r, base + first * row, count * row);
}

/* How many queries the rows of an item are of, from its first one on. */
static uint32_t queries_of(const fk_row_item *x) {
    return x->pack > 1 ? (x->skip + x->count + x->pack - 1) / x->pack : x->count;
}

/* Where kernels that finish rows raise the largest logits: from the first head of a range to its last. */
static void maxima_range(node *n, uint64_t maxima, uint32_t model_head, uint32_t heads, uint32_t group,
                         uint32_t shared) {
    const uint32_t last = heads - 1, count = last / group * shared + last % group + 1;
    if (maxima) range_add(&n->writes, maxima + 4 * (uint64_t)model_head, 4ull * count);
}

/* What a visit reads and writes beside inputs: running states, or O and LSE. v: value_dim. */
static void state_ranges(node *n, const fk_launch *p, const fk_row_item *x, uint32_t v) {
    const uint64_t wide = (uint64_t)p->heads * v * 2, row = (uint64_t)p->heads * 4;
    const uint64_t o = p->arena + x->state, m = o + p->max_block * wide * 2, l = m + p->max_block * row;
    const uint32_t count = queries_of(x);
    for (int write = 0; write < 2; write++) {
        if (x->flags & (write ? FK_LAST : FK_FIRST)) continue;
        ranges *r = write ? &n->writes : &n->reads;
        rows(r, o, x->block_token, count, wide * 2);
        rows(r, m, x->block_token, count, row);
        rows(r, l, x->block_token, count, row);
    }
    if (!(x->flags & FK_LAST)) return;
    rows(&n->writes, p->o, x->out, count, wide);
    rows(&n->writes, p->lse, x->out, count, row);
    rows(&n->writes, p->lse_low, x->out, count, row);
    maxima_range(n, p->maxima, p->model_head, p->heads, p->group, p->shared);
}

static void combine_ranges(node *n, uint32_t v) {
    const fk_launch *p = &n->parameters.launch;
    const fk_merge_item *items = (const fk_merge_item *)(uintptr_t)p->items;
    range_add(&n->reads, p->items, p->item_count * sizeof *items);
    for (uint32_t i = 0; i < p->item_count; i++) {
        range_add(&n->reads, p->splits + items[i].first, (uint64_t)items[i].parts * items[i].rows.count * (v + 2) * 4);
        state_ranges(n, p, &items[i].rows, v);
    }
}

/* Was the kernel's source compiled with a switch on? */
static bool is_defined(const node *n, const char *name) {
    char line[80];
    snprintf(line, sizeof line, "#define %s 1\n", name);
    return strstr(n->function->module->text, line) != NULL;
}

/* What the kernel reads after it has waited for a flag, or for two. */
static ranges *awaited_of(node *n, uint64_t flag, uint64_t other) {
    for (uint32_t i = 0; i < n->awaited_count; i++)
        if (n->awaited[i].flag == flag && n->awaited[i].other == other) return &n->awaited[i].reads;
    n->awaited = realloc(n->awaited, (n->awaited_count + 1) * sizeof *n->awaited);
    n->awaited[n->awaited_count] = (awaited){.flag = flag, .other = other};
    return &n->awaited[n->awaited_count++].reads;
}

static void forward_ranges(node *n, uint32_t d, uint32_t v, bool back) {
    const fk_launch *p = &n->parameters.launch;
    const uint64_t q = (uint64_t)p->heads * d * 2, o = (uint64_t)p->heads * v * 2, row = (uint64_t)p->heads * 4;
    const uint64_t k_row = (uint64_t)p->kv_heads * d * 2, v_row = (uint64_t)p->kv_heads * v * 2;
    const fk_row_item *items = (const fk_row_item *)(uintptr_t)p->items;
    range_add(&n->reads, p->items, p->item_count * sizeof *items);
    if (!back && p->counter) range_add(&n->writes, p->counter, FK_TICKET_COUNTERS * 4);
    for (uint32_t i = 0; i < p->item_count; i++) {
        const fk_row_item *x = &items[i];
        const fk_key_run *runs = (const fk_key_run *)(uintptr_t)p->runs + x->first;
        const uint32_t count = queries_of(x);
        const uint64_t flag = p->locks + (x->arrival - 1) * 4ull;
        rows(!back && x->arrival ? awaited_of(n, flag, 0) : &n->reads, p->q, x->token, count, q);
        range_add(&n->reads, (uintptr_t)runs, x->runs * sizeof *runs);
        if (back) {
            rows(&n->reads, p->d_o, x->token, x->count, o);
            rows(&n->reads, p->lse, x->token, x->count, row);
            rows(&n->reads, p->lse_low, x->token, x->count, row);
            rows(&n->reads, p->delta, x->token, x->count, row);
            rows(&n->writes, p->dq, x->out, x->count, q * 2);
        } else if (x->flags & FK_SPLIT) {
            range_add(&n->writes, p->splits + x->state, (uint64_t)x->count * (v + 2) * 4);
        } else {
            state_ranges(n, p, x, v);
            if (x->parts > 1) range_add(&n->writes, p->splits + x->cut * FK_PART_BYTES(v), x->parts * FK_PART_BYTES(v));
            if (x->parts > 1)
                range_add(&n->writes, p->counter + (FK_TICKET_COUNTERS + x->cut * FK_PART_COUNTERS) * 4,
                          FK_PART_COUNTERS * 4);
        }
        for (uint32_t j = 0; j < x->runs; j++) {
            const fk_u32 arrival = back ? 0 : runs[j].arrival;
            ranges *reads = arrival ? awaited_of(n, p->locks + (arrival - 1) * 4, 0) : &n->reads;
            rows(reads, p->arena + runs[j].k, 0, runs[j].count, k_row);
            rows(reads, p->arena + runs[j].v, 0, runs[j].count, v_row);
        }
    }
}

/* Where what an item of a fused launch reads is noted: behind its flags. */
static ranges *item_reads(node *n, const fk_launch *p, const fk_key_fused *x) {
    const uint64_t flags[2] = {p->splits + (x->flags[0] - 1) * 4ull, p->splits + (x->flags[1] - 1) * 4ull};
    if (!x->flags[0] && !x->flags[1]) return &n->reads;
    return x->flags[0] ? awaited_of(n, flags[0], x->flags[1] ? flags[1] : 0) : awaited_of(n, flags[1], 0);
}

/* tables: it writes no gradients of tensors. */
static void keys_ranges(node *n, uint32_t d, uint32_t v, bool joint, bool tables) {
    const fk_launch *p = &n->parameters.launch;
    const uint64_t q = (uint64_t)p->heads * d * 2, o = (uint64_t)p->heads * v * 2, row = (uint64_t)p->heads * 4;
    const uint64_t k_row = (uint64_t)p->kv_heads * d * 2, v_row = (uint64_t)p->kv_heads * v * 2;
    const fk_key_item *items = (const fk_key_item *)(uintptr_t)p->items;
    const fk_key_fused *fused = (const fk_key_fused *)(items + p->item_count);
    const bool is_fused = (joint || tables) && is_defined(n, "FK_FUSED");
    range_add(&n->reads, p->items, p->item_count * (sizeof *items + (is_fused ? sizeof *fused : 0)));
    for (uint32_t i = 0; i < p->item_count; i++) {
        const fk_key_item *x = &items[i];
        const fk_row_run *runs = (const fk_row_run *)(uintptr_t)p->runs + x->first;
        ranges *reads = is_fused && joint ? item_reads(n, p, &fused[i]) : &n->reads;
        range_add(&n->reads, (uintptr_t)runs, x->runs * sizeof *runs);
        rows(reads, p->arena + x->k, 0, x->count, k_row);
        rows(reads, p->arena + x->v, 0, x->count, v_row);
        if (!tables) rows(&n->writes, p->arena + x->dk, 0, x->count, k_row * 2);
        if (!tables) rows(&n->writes, p->arena + x->dv, 0, x->count, v_row * 2);
        for (uint32_t j = 0; j < x->runs; j++) {
            rows(reads, p->q, runs[j].token, runs[j].count, q);
            rows(reads, p->d_o, runs[j].token, runs[j].count, o);
            rows(reads, p->lse, runs[j].token, runs[j].count, row);
            rows(reads, p->lse_low, runs[j].token, runs[j].count, row);
            rows(reads, p->delta, runs[j].token, runs[j].count, row);
            if (joint) rows(&n->writes, p->dq, runs[j].out, runs[j].count, q * 2);
        }
    }
    if (!tables) range_add(&n->writes, p->locks, p->counter + 4 - p->locks);
}

/* One end of the row of a tensor: its address, or, at the caller's, that of a chunk of it. */
static uint64_t gather_at(const fk_gather_tensor *x, bool to, uint32_t end, const fk_gather_run *run, uint32_t token,
                          uint32_t first, uint32_t chunk) {
    uint64_t base = to ? x->to : x->from, within = token - run->at;
    if (end == FK_IN_MESSAGE) return base + 4ull * x->row * (token - first);
    if (end == FK_AT_BLOCKS) return base + 4ull * x->row * (run->home + within);
    return base + 4ull * (x->full * (run->place + within) + x->kv_step * run->kv_first + x->sub_step * run->sub_first +
                          chunk * x->stride);
}

static void gather_ranges(node *n) {
    const fk_gather_launch *p = &n->parameters.gather;
    const fk_gather_run *runs = (const fk_gather_run *)(uintptr_t)p->runs;
    range_add(&n->reads, p->runs, p->run_count * sizeof *runs);
    for (uint32_t i = 0, at = 0; i < p->tokens; i++) {
        while (at + 1 < p->run_count && runs[at + 1].at <= p->first + i) at++;
        for (uint32_t t = 0; t < p->tensors; t++)
            for (int to = 0; to < 2; to++) {
                const fk_gather_tensor *x = &p->tensor[t];
                uint32_t end = to ? p->to : p->from, chunks = end == FK_AT_CALLER ? x->row / x->chunk : 1;
                if (!x->to || (!to && !x->from)) continue; /* left out */
                for (uint32_t c = 0; c < chunks; c++)
                    range_add(to ? &n->writes : &n->reads,
                              gather_at(x, to, end, &runs[at], p->first + i, p->first, c), 4ull * x->row / chunks);
            }
    }
}

/* Rows, of which those that are added to are read, too. */
static void rows_ranges(node *n) {
    const fk_rows_launch *p = &n->parameters.rows;
    const fk_rows_run *runs = (const fk_rows_run *)(uintptr_t)p->runs;
    range_add(&n->reads, p->runs, p->run_count * sizeof *runs);
    for (uint32_t i = 0; i < p->run_count; i++) {
        const uint64_t to = p->back ? runs[i].from : runs[i].to, from = p->back ? runs[i].to : runs[i].from;
        range_add(&n->writes, p->to + to * p->row, runs[i].count * p->row);
        if (p->from) range_add(&n->reads, p->from + from * p->row, runs[i].count * p->row);
    }
}

static void scan_ranges(node *n) {
    const fk_scan_launch *p = &n->parameters.scan;
    const uint64_t state = 4ull * p->heads * p->rows * p->columns;
    const uint64_t each = p->decay == FK_DECAY_SCALAR   ? 1
                          : p->decay == FK_DECAY_VECTOR ? p->rows
                                                        : (uint64_t)p->rows * p->rows;
    const uint64_t decay = 4 * each * p->heads;
    range_add(&n->reads, p->first, state);
    range_add(&n->reads, p->then, state);
    range_add(&n->reads, p->then_decay, decay);
    range_add(&n->writes, p->to, state);
    if (!p->to_decay) return;
    range_add(&n->reads, p->first_decay, decay);
    range_add(&n->writes, p->to_decay, decay);
}

/* The plan whose mask and score the kernels evaluate. */
static const fcp_plan *plan_now(void) {
    static fcp_plan *loaded;
    const char *path = getenv("STANDIN_PLAN");
    fcp_error err;
    if (control.plan || loaded || !path) return control.plan ? control.plan : loaded;
    if (fcp_plan_load(path, &loaded, &err)) trouble("STANDIN_PLAN: %s", err.message);
    return loaded;
}

/* The sums of the gradients of tables: which of them a launch adds to, the scores say. */
static uint64_t sums_bytes(void) { return fcp_plan_table_numbers(plan_now()) * FK_SUM_BYTES; }

void kernel_ranges(node *n) {
    const fk_support *x = &n->parameters.support;
    const char *name = n->function->name;
    if (!strcmp(name, "fk_gather")) {
        gather_ranges(n);
        return;
    }
    if (is_rows(n)) rows_ranges(n);
    if (is_scan(n)) scan_ranges(n);
    if (kernel_is_recurrent(n)) return;
    const uint32_t d = n->function->module->head_dim, v = n->function->module->value_dim;
    uint64_t mark = n->function->parameters == sizeof *x ? x->mark : n->parameters.launch.mark;
    range_add(&n->writes, mark, mark ? 4 : 0);
    if (!strncmp(name, "fk_forward", 10) || !strcmp(name, "fk_backward_dq")) forward_ranges(n, d, v, name[3] == 'b');
    else if (!strcmp(name, "fk_backward_tables")) {
        keys_ranges(n, d, v, false, true);
        range_add(&n->writes, n->parameters.tables.sums, sums_bytes());
    } else if (!strncmp(name, "fk_backward_", 12)) keys_ranges(n, d, v, strcmp(name, "fk_backward_dkv") != 0, false);
    else if (!strcmp(name, "fk_round_sums")) {
        range_add(&n->reads, x->from, x->count * FK_SUM_BYTES);
        range_add(&n->writes, x->to, x->count * 4);
    }
    else if (!strcmp(name, "fk_narrow") || !strcmp(name, "fk_widen")) {
        range_add(&n->reads, x->from, x->count * (name[3] == 'n' ? 4 : 2));
        range_add(&n->writes, x->to, x->count * (name[3] == 'n' ? 2 : 4));
    }
    else if (!strcmp(name, "fk_combine")) combine_ranges(n, v);
    else if (!strcmp(name, "fk_begin_lse")) {
        range_add(&n->reads, x->from, x->heads * 4);
        range_add(&n->writes, x->to, x->count * 4);
        range_add(&n->writes, x->lse_low, x->count * 4);
    } else if (!strcmp(name, "fk_delta")) {
        range_add(&n->reads, x->from, x->count * v * 2);
        range_add(&n->reads, x->other, x->count * v * 2);
        range_add(&n->reads, x->d_lse, x->d_lse ? x->count * 4 : 0);
        range_add(&n->writes, x->to, x->count * 4);
    } else if (!strcmp(name, "fk_merge") || !strcmp(name, "fk_state_out")) {
        bool merge = name[3] == 'm';
        uint64_t m = x->other * v * 4, l = m + x->other * 4,
                 parts[][2] = {{0, x->count * v * 4}, {m, x->count * 4}, {l, x->count * 4}};
        for (int i = 0; i < 3; i++) {
            range_add(&n->reads, x->from + parts[i][0], parts[i][1]);
            if (merge) range_add(&n->writes, x->to + parts[i][0], parts[i][1]);
        }
        if (merge) return;
        range_add(&n->writes, x->to, x->count * v * 2);
        range_add(&n->writes, x->lse, x->count * 4);
        range_add(&n->writes, x->lse_low, x->count * 4);
        range_add(&n->reads, x->sinks, x->sinks ? (uint64_t)x->heads * 4 : 0);
        maxima_range(n, x->maxima, x->model_head, x->heads, x->group, x->shared);
    } else if (!strcmp(name, "fk_fold_sinks")) {
        const uint32_t last = x->heads - 1, rows = (uint32_t)((x->count + FK_FOLD - 1) / FK_FOLD);
        const uint32_t first = x->group ? x->model_head : 0;
        const uint32_t end = x->group ? first + last / x->group * x->shared + last % x->group + 1 : rows * x->heads;
        range_add(&n->reads, x->from, x->count * x->heads * 4);
        range_add(&n->reads, x->lse, x->lse ? x->count * x->heads * 4 : 0);
        range_add(&n->reads, x->lse_low, x->lse ? x->count * x->heads * 4 : 0);
        range_add(&n->reads, x->sinks, x->lse ? (uint64_t)x->heads * 4 : 0);
        range_add(&n->writes, x->to + 4 * (uint64_t)first, 4 * (uint64_t)(end - first));
    } else {
        range_add(&n->reads, x->from, x->count * 4);
        range_add(&n->writes, x->to, x->count * (name[3] == 'a' ? 4 : 2));
    }
}

static void add_memory(machine_range *list, uint32_t *count, uint64_t address, cu_context context) {
    const allocation *a = address ? allocation_of(address) : NULL;
    if (!a) return;
    if (a->context != context && !a->host)
        trouble("a kernel of device %d reaches memory of device %d", context->device, a->context->device);
    for (uint32_t i = 0; i < *count; i++)
        if (list[i].begin == a->begin) return;
    list[(*count)++] = (machine_range){"device memory", a->begin, a->end, true, NULL};
}

/* Do the blocks of a kernel wait for each other, add to the same sums, or join what others left? */
static bool takes_turns(const char *name, const fk_launch *p) {
    return strstr(name, "ordered") || !strcmp(name, "fk_backward_dkv") ||
           (!strncmp(name, "fk_forward", strlen("fk_forward")) && p->counter);
}

static bool run_kernel(node *n, bool (*outside)(void *), void *context_of_outside) {
    const fcp_plan *plan = plan_now();
    machine_range list[MACHINE_RANGES];
    uint32_t count = 0;
    char text[MACHINE_TEXT];
    cu_context context = n->function->module->context;
    if (!plan) {
        trouble("no plan for the kernels");
        return false;
    }
    fibers_mask mask;
    if (!fibers_mask_open(&mask, plan)) return false;
    machine *m = machine_new();
    mask.by_head = is_defined(n, "FK_BY_HEAD"); /* as it was compiled */
    mask.packed = is_defined(n, "FK_PACKED");
    mask.fused = is_defined(n, "FK_FUSED");
    const fk_launch *p = &n->parameters.launch;
    const fk_support *x = &n->parameters.support;
    fk_launch_maps maps;
    bool has_maps = n->function->parameters == sizeof maps;
    if (has_maps) memcpy(&maps, n->parameters.maps, sizeof maps);
    if (is_rows(n)) {
        const fk_rows_launch *rows = &n->parameters.rows;
        const uint64_t places[] = {rows->runs, rows->to, rows->from};
        for (int i = 0; i < 3; i++) add_memory(list, &count, places[i], context);
    } else if (is_scan(n)) {
        const fk_scan_launch *scan = &n->parameters.scan;
        const uint64_t places[] = {scan->to,       scan->first,       scan->then,
                                   scan->to_decay, scan->first_decay, scan->then_decay};
        for (int i = 0; i < 6; i++) add_memory(list, &count, places[i], context);
    } else if (n->function->parameters == sizeof n->parameters.gather) {
        const fk_gather_launch *g = &n->parameters.gather;
        add_memory(list, &count, g->runs, context);
        for (uint32_t i = 0; i < g->tensors; i++) {
            add_memory(list, &count, g->tensor[i].to, context);
            add_memory(list, &count, g->tensor[i].from, context);
        }
    } else if (n->function->parameters != sizeof *x) {
        add_memory(list, &count, p->arena, context);
        add_memory(list, &count, p->locks, context);
        add_memory(list, &count, p->splits, context);
        add_memory(list, &count, p->counter, context);
        add_memory(list, &count, p->sinks, context);
        add_memory(list, &count, p->maxima, context);
        add_memory(list, &count, p->mark, context);
        if (n->function->parameters == sizeof(fk_launch_tables))
            add_memory(list, &count, n->parameters.tables.sums, context);
    } else {
        add_memory(list, &count, x->to, context);
        add_memory(list, &count, x->from, context);
        add_memory(list, &count, x->other, context);
        add_memory(list, &count, x->lse, context);
        add_memory(list, &count, x->lse_low, context);
        add_memory(list, &count, x->sinks, context);
        add_memory(list, &count, x->maxima, context);
        add_memory(list, &count, x->d_lse, context);
        add_memory(list, &count, x->mark, context);
    }
    machine_launch run = {.kernel = n->function->kernel->run,
                          .parameters = has_maps ? (const void *)&maps : &n->parameters,
                          .blocks = n->blocks,
                          .threads = n->function->kernel->threads,
                          .shared = n->function->kernel->shared,
                          .ranges = list,
                          .range_count = count,
                          .seed = control.seed,
                          .resident = takes_turns(n->function->name, p) || n->awaited_count ? MACHINE_RESIDENT : 1,
                          .outside = n->awaited_count ? outside : NULL,
                          .outside_context = context_of_outside};
    fibers_mask_use(&mask);
    bool ok = machine_run(m, &run, text);
    machine_free(m);
    fibers_mask_use(NULL);
    fibers_mask_close(&mask);
    if (!ok) trouble("%s: %s", n->function->name, text);
    control.kernels++;
    control.kernels_with_flags += n->awaited_count != 0;
    control.kernels_with_maps += has_maps;
    control.unordered += !strcmp(n->function->name, "fk_backward_unordered");
    return ok;
}

/* A kernel that runs while another one waits. */
struct inner {
    node *n;
    bool ok;
};

static void *run_inner(void *x) {
    struct inner *inner = x;
    inner->ok = run_kernel(inner->n, NULL, NULL);
    return NULL;
}

bool kernel_run(node *n, bool (*outside)(void *), void *context_of_outside) {
    static bool waits;
    if (waits) { /* fibers belong to a thread, and those of this one are in use */
        struct inner inner = {.n = n};
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_inner, &inner)) return false;
        pthread_join(thread, NULL);
        return inner.ok;
    }
    waits = n->awaited_count != 0;
    const bool ok = run_kernel(n, outside, context_of_outside);
    waits = false;
    return ok;
}
