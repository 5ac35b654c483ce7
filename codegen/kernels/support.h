/* support.h: the small kernels that a pass needs beside attention.
 *
 * Requires: common.h; arrays of an even count of numbers that lie next to each other.
 * Grid:     any number of CTAs of FK_SUPPORT_THREADS. No two threads touch the same number.
 * Cost:     everything is read once and written once.
 */

/* Sets each LSE to the sink of its head and lse_low to 0, which is right for a row that sees no key. count: rows times
 * heads; to, lse_low: the two numbers of LSE; from: the sinks. */
FK_KERNEL(fk_begin_lse, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < p->count; i += step) {
        fk_store(p->to + i * 4, fk_load(p->from + i % p->heads * 4)); // cost: step
        fk_store(p->lse_low + i * 4, 0);
    }
}

/* delta = sum(dO * O) over the numbers of a row, less the gradient of the row's LSE if there is one. One warp does a
 * row. count: rows times heads; from: O; other: dO; d_lse: the gradients. */
FK_KERNEL(fk_delta, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * (FK_SUPPORT_THREADS / 32);
    for (fk_u64 i = (fk_u64)fk_cta() * (FK_SUPPORT_THREADS / 32) + fk_warp(); i < p->count; i += step) {
        float sum = 0;
        for (fk_u32 c = fk_lane() * 2; c < FK_VALUE_DIM; c += 64) {
            float o[2], d_o[2];
            fk_unpack(o, fk_load_bits(p->from + i * FK_VALUE_BYTES + c * 2));
            fk_unpack(d_o, fk_load_bits(p->other + i * FK_VALUE_BYTES + c * 2));
            sum = fk_fma(o[0], d_o[0], sum);
            sum = fk_fma(o[1], d_o[1], sum);
        }
        for (fk_u32 mask = 16; mask; mask /= 2) sum += fk_shuffle_xor(sum, mask);
        if (fk_lane() == 0) fk_store(p->to + i * 4, p->d_lse ? sum - fk_load(p->d_lse + i * 4) : sum); // cost: step
    }
}

/* One step of adding up the gradients of sinks: each FK_FOLD (128) neighbouring rows of a head become one row. So
 * 20,000 rows become 157, then 2, then 1. A thread adds the rows of one head in their order, whatever the grid is.
 *   from   float [count][heads]. In the first step, where `lse` is not 0, it is delta, and -exp(sink - LSE) delta is
 *          added for each row. In later steps it is the sums of the step before.
 *   to     float [rows / FK_FOLD, rounded up][heads].
 *   group  not 0: this is the last step, which leaves one row. `to` then has the model's heads: head i of the range
 *          goes to head model_head + i / group * shared + i % group.
 */
FK_KERNEL(fk_fold_sinks, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    const fk_u64 rows = (p->count + FK_FOLD - 1) / FK_FOLD, step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < rows * p->heads; i += step) {
        const fk_u32 head = (fk_u32)(i % p->heads);
        const fk_u64 first = i / p->heads * FK_FOLD, end = first + FK_FOLD < p->count ? first + FK_FOLD : p->count;
        const float sink = p->lse ? fk_load(p->sinks + (fk_u64)head * 4) : 0;
        float sum = 0;
        for (fk_u64 row = first; row < end; row++) {
            const fk_u64 at = (row * p->heads + head) * 4; // cost: step
            float x = fk_load(p->from + at);
            if (p->lse) x *= -fk_weight_of(sink - fk_load(p->lse + at), fk_load(p->lse_low + at));
            sum += x;
        }
        const fk_u64 place = p->group ? p->model_head + head / p->group * p->shared + head % p->group : i;
        fk_store(p->to + place * 4, sum);
    }
}

/* to += from, for `count` numbers. */
FK_KERNEL(fk_add, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < p->count / 2; i += step) {
        float a[2], b[2];
        fk_load2(a, p->to + i * 8);
        fk_load2(b, p->from + i * 8);
        fk_store2(p->to + i * 8, a[0] + b[0], a[1] + b[1]); // cost: step
    }
}

/* to = from, rounded to the input type, for `count` numbers. */
FK_KERNEL(fk_round, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < p->count / 2; i += step) {
        float a[2];
        fk_load2(a, p->from + i * 8);
        fk_store_bits(p->to + i * 4, fk_pack(a[0], a[1])); // cost: step
    }
}

/* The last run that begins at or before a token of the bundle. */
FK_DEVICE const fk_gather_run *fk_run_of(const fk_gather_launch *p, fk_u32 token) {
    const fk_gather_run *runs = (const fk_gather_run *)p->runs;
    fk_u32 low = 0, high = p->run_count;
    while (high - low > 1) {
        fk_u32 middle = low + (high - low) / 2;
        if (runs[middle].at <= token) low = middle;
        else high = middle;
    }
    return runs + low;
}

/* Where a token's row begins at one of the ends. */
FK_DEVICE fk_u64 fk_row_at(const fk_gather_tensor *x, fk_u64 base, fk_u32 end, const fk_gather_run *run, fk_u32 within,
                           fk_u32 in_message) {
    if (end == FK_IN_MESSAGE) return base + (fk_u64)in_message * x->row * 4;
    if (end == FK_AT_BLOCKS) return base + (run->home + within) * x->row * 4;
    return base +
           ((fk_u64)(run->place + within) * x->full + x->kv_step * run->kv_first + x->sub_step * run->sub_first) * 4;
}

/* Moves tokens of a bundle, tensor by tensor, one warp a row. */
FK_KERNEL(fk_gather, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_gather_launch launch) {
    const fk_gather_launch *p = &launch;
    fk_u32 step = fk_ctas() * (FK_SUPPORT_THREADS / 32);
    for (fk_u32 i = fk_cta() * (FK_SUPPORT_THREADS / 32) + fk_warp(); i < p->tokens; i += step) {
        fk_u32 token = p->first + i; // cost: step
        const fk_gather_run *run = fk_run_of(p, token);
        FK_UNROLL
        for (fk_u32 t = 0; t < FK_GATHER_TENSORS; t++) {
            const fk_gather_tensor *x = &p->tensor[t];
            if (t >= p->tensors) break;
            if (!x->to) continue;
            fk_u64 to = fk_row_at(x, x->to, p->to, run, token - run->at, i);
            fk_u64 from = fk_row_at(x, x->from, p->from, run, token - run->at, i);
            for (fk_u32 w = fk_lane(); w < x->row; w += 32) {
                fk_u32 far = x->chunk == x->row ? w : w / x->chunk * x->stride + w % x->chunk;
                fk_u32 bits = x->from ? fk_load_bits(from + (p->from == FK_AT_CALLER ? far : w) * 4) : 0;
                fk_store_bits(to + (p->to == FK_AT_CALLER ? far : w) * 4, bits);
            }
        }
    }
}

/* Merges the running state at `from` into that at `to`. count: rows times heads; other: how many rows a slot has room
 * for, times heads. One warp does a row. */
FK_KERNEL(fk_merge, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * (FK_SUPPORT_THREADS / 32), m_at = p->other * FK_VALUE_DIM * 4;
    fk_u64 l_at = m_at + p->other * 4;
    for (fk_u64 i = (fk_u64)fk_cta() * (FK_SUPPORT_THREADS / 32) + fk_warp(); i < p->count; i += step) {
        float m = fk_load(p->to + m_at + i * 4), m_from = fk_load(p->from + m_at + i * 4); // cost: step
        float most = fk_max(m, m_from), base = fk_base_of(most);
        float factor = fk_weight_of(m, base), factor_from = fk_weight_of(m_from, base);
        float l = fk_load(p->to + l_at + i * 4) * factor + fk_load(p->from + l_at + i * 4) * factor_from;
        l = fk_shuffle_xor(l, 16); /* all lanes have the same number: this waits until each of them has read m and l */
        if (fk_lane() == 0) {
            fk_store(p->to + m_at + i * 4, most);
            fk_store(p->to + l_at + i * 4, l);
        }
        for (fk_u32 c = fk_lane() * 2; c < FK_VALUE_DIM; c += 64) {
            float o[2], o_from[2];
            fk_load2(o, p->to + (i * FK_VALUE_DIM + c) * 4);
            fk_load2(o_from, p->from + (i * FK_VALUE_DIM + c) * 4);
            fk_store2(p->to + (i * FK_VALUE_DIM + c) * 4, o[0] * factor + o_from[0] * factor_from,
                      o[1] * factor + o_from[1] * factor_from);
        }
    }
}

/* Makes O and LSE of a running state, with the sink if there is one, and raises the largest logits. from: the state's
 * slot; to: the rows of O; lse, lse_low: those of LSE; sinks, maxima: as in fk_launch; other, count: as for fk_merge.
 * One warp does a row. */
FK_KERNEL(fk_state_out, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * (FK_SUPPORT_THREADS / 32), m_at = p->other * FK_VALUE_DIM * 4;
    fk_u64 l_at = m_at + p->other * 4;
    for (fk_u64 i = (fk_u64)fk_cta() * (FK_SUPPORT_THREADS / 32) + fk_warp(); i < p->count; i += step) {
        float most = fk_load(p->from + m_at + i * 4), sum = fk_load(p->from + l_at + i * 4); // cost: step
        const fk_u32 head = (fk_u32)(i % p->heads);
        float lse[2], factor = fk_end_row(p->sinks, fk_sink(p->sinks, head), most, sum, lse);
        if (fk_lane() == 0) {
            fk_store(p->lse + i * 4, lse[0]);
            fk_store(p->lse_low + i * 4, lse[1]);
            fk_raise_maximum(p->maxima, p->model_head, p->group, p->shared, head, most);
        }
        for (fk_u32 c = fk_lane() * 2; c < FK_VALUE_DIM; c += 64) {
            float o[2];
            fk_load2(o, p->from + (i * FK_VALUE_DIM + c) * 4);
            fk_store_bits(p->to + i * FK_VALUE_BYTES + c * 2, fk_pack(o[0] * factor, o[1] * factor));
        }
    }
}

/* Running states of one row, in `count` parts that lie `size` bytes apart: O begins at `o`, m and l are at `m` and `l`.
 * An earlier state of the row, if there is one, comes before them. */
typedef struct fk_row_parts {
    fk_u64 o, m, l, size;
    fk_u32 count;
    fk_u64 earlier_o, earlier_m, earlier_l; /* 0: there is none */
} fk_row_parts;

/* Sums columns c and c + 1 of O over all parts, weighted relative to `most`, the greatest m of all. Eight parts are
 * loaded at a time: one load after another would take as long as the attention did. */
FK_DEVICE void fk_sum_parts(const fk_row_parts *x, float most, fk_u32 c, float sum[2]) {
    sum[0] = sum[1] = 0;
    if (x->earlier_o) {
        float factor = fk_weight_of(fk_load(x->earlier_m), most), o[2];
        fk_load2(o, x->earlier_o + c * 4);
        sum[0] = factor * o[0];
        sum[1] = factor * o[1];
    }
    for (fk_u32 i = 0; i < x->count; i += 8) {
        float m[8], o[8][2];
        FK_UNROLL
        for (fk_u32 j = 0; j < 8; j++) {
            fk_u64 at = (i + j) * x->size;
            m[j] = -fk_infinity();
            o[j][0] = o[j][1] = 0;
            if (i + j >= x->count) continue;
            m[j] = fk_load(x->m + at);
            fk_load2(o[j], x->o + at + c * 4);
        }
        FK_UNROLL
        for (fk_u32 j = 0; j < 8; j++) {
            float factor = fk_weight_of(m[j], most);
            sum[0] = fk_fma(factor, o[j][0], sum[0]);
            sum[1] = fk_fma(factor, o[j][1], sum[1]);
        }
    }
}

/* Joins the parts of a row, in their order: into its running state, or on the last visit into O and LSE. A warp does
 * it. */
FK_DEVICE void fk_combine_row(const fk_launch *p, const fk_row_item *item, const fk_row_parts *x, fk_u32 query,
                              fk_u32 head) {
    float m = x->earlier_m ? fk_load(x->earlier_m) : -fk_infinity(), most = m, sum = 0;
    for (fk_u32 i = fk_lane(); i < x->count; i += 32) most = fk_max(most, fk_load(x->m + i * x->size));
    for (fk_u32 mask = 16; mask; mask /= 2) most = fk_max(most, fk_shuffle_xor(most, mask));
    float base = fk_base_of(most);
    if (x->earlier_l && fk_lane() == 0) sum = fk_load(x->earlier_l) * fk_weight_of(m, base);
    for (fk_u32 i = fk_lane(); i < x->count; i += 32)
        sum = fk_fma(fk_load(x->l + i * x->size), fk_weight_of(fk_load(x->m + i * x->size), base), sum);
    for (fk_u32 mask = 16; mask; mask /= 2) sum += fk_shuffle_xor(sum, mask);
    enum { COLUMNS = (FK_VALUE_DIM + 63) / 64 }; /* pairs of columns that a lane has */
    float o[COLUMNS][2] = {{0}};
    FK_UNROLL
    for (fk_u32 j = 0; j < COLUMNS; j++)
        if (fk_lane() * 2 + j * 64 < FK_VALUE_DIM) fk_sum_parts(x, base, fk_lane() * 2 + j * 64, o[j]);
    fk_shuffle_xor(0, 1); /* each lane has read the earlier m */
    if (!(item->flags & FK_LAST)) {
        fk_u64 state = p->arena + item->state, m_at = state + (fk_u64)p->max_block * p->heads * FK_VALUE_DIM * 4;
        fk_u64 l_at = m_at + (fk_u64)p->max_block * p->heads * 4, token = (fk_u64)item->block_token + query;
        if (fk_lane() == 0) {
            fk_store(fk_row(p, m_at, token, head, 4), most);
            fk_store(fk_row(p, l_at, token, head, 4), sum);
        }
        FK_UNROLL
        for (fk_u32 j = 0; j < COLUMNS; j++) {
            fk_u32 c = fk_lane() * 2 + j * 64;
            if (c < FK_VALUE_DIM) fk_store2(fk_row(p, state, token, head, FK_VALUE_DIM * 4) + c * 4, o[j][0], o[j][1]);
        }
        return;
    }
    float lse[2], factor = fk_end_row(p->sinks, fk_sink(p->sinks, head), most, sum, lse);
    fk_u64 token = (fk_u64)item->out + query;
    if (fk_lane() == 0) {
        fk_store(fk_row(p, p->lse, token, head, 4), lse[0]);
        fk_store(fk_row(p, p->lse_low, token, head, 4), lse[1]);
        fk_raise_maximum(p->maxima, p->model_head, p->group, p->shared, head, most);
    }
    FK_UNROLL
    for (fk_u32 j = 0; j < COLUMNS; j++) {
        fk_u32 c = fk_lane() * 2 + j * 64;
        if (c < FK_VALUE_DIM)
            fk_store_bits(fk_row(p, p->o, token, head, FK_VALUE_BYTES) + c * 2,
                          fk_pack(o[j][0] * factor, o[j][1] * factor));
    }
}

/* Joins what items with the flag FK_SPLIT left. items: of fk_merge_item. A CTA does an item at a time. */
FK_KERNEL(fk_combine, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    fk_begin(p->mark, p->mark_value);
    for (fk_u32 i = fk_cta(); i < p->item_count; i += fk_ctas()) {
        const fk_merge_item *merge = (const fk_merge_item *)p->items + i;
        const fk_row_item *item = &merge->rows;
        const fk_u64 numbers = (fk_u64)item->count * 4, at = p->splits + merge->first;
        const fk_u64 o = p->arena + item->state, m = o + (fk_u64)p->max_block * p->heads * FK_VALUE_DIM * 4;
        const fk_u64 l = m + (fk_u64)p->max_block * p->heads * 4;
        for (fk_u32 row = fk_warp(); row < item->count; row += FK_SUPPORT_THREADS / 32) {
            fk_u32 query = (item->skip + row) / item->pack; // cost: step
            fk_u32 head = (item->flags >> FK_HEAD_SHIFT) + (item->skip + row) % item->pack;
            fk_u64 token = (fk_u64)item->block_token + query;
            fk_row_parts x = {at + row * FK_VALUE_DIM * 4, at + numbers * FK_VALUE_DIM + row * 4,
                              at + numbers * (FK_VALUE_DIM + 1) + row * 4, numbers * (FK_VALUE_DIM + 2), merge->parts,
                              0, 0, 0};
            if (!(item->flags & FK_FIRST)) {
                x.earlier_o = fk_row(p, o, token, head, FK_VALUE_DIM * 4);
                x.earlier_m = fk_row(p, m, token, head, 4);
                x.earlier_l = fk_row(p, l, token, head, 4);
            }
            fk_combine_row(p, item, &x, query, head);
        }
    }
}
