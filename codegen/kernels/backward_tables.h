/* backward_tables.h: the gradients of the tables of reals that a score reads, such as ALiBi's slopes.
 * fk_backward_tables adds to sums what the pairs of its key items contribute; fk_round_sums makes floats of the sums. A
 * pair contributes dS times fk_part to each element that it has read, where dS is the derivative of the loss by the
 * score.
 *
 * Requires: backward_steps.h; a score with FK_READS reads, for which fk_part and fk_place are printed; K and V of the
 *           visits in their slots; LSE and delta of their rows; sums that hold numbers (abi.h).
 * Bits:     a sum in floating point would depend on the order in which CTAs run. These sums are whole numbers and
 *           exact, so every order and any grid gives the same bits. Each digit of FK_SUM_BITS bits has a word of 64: a
 *           float adds less than 2^24 to each of two words, so 2^39 additions fit without a carry. No digit is lost, so
 *           no scale has to be chosen.
 * Adding:   in a step, a thread goes through its pairs in a fixed order. What consecutive pairs contribute to the same
 *           element, it first adds up in float, and then adds to the element's sum. (If a table has a number for each
 *           head, all pairs of the step read the same element.) So the bits do depend on how the work list cuts rows
 *           and keys, but on nothing else.
 * Grid:     any number of CTAs. There are item_count * parts * KV heads pieces of work.
 * Shared:   as fk_backward_dkv.
 * Cost:     the products S and dP once more, beside the kernels that compute dQ, dK and dV, which have no registers
 *           left for this; and two atomic additions for each place and thread.
 */

/* The bits of a number. */
FK_DEVICE fk_u32 fk_bits_of(float x) {
    union {
        float x;
        fk_u32 bits;
    } both;
    both.x = x;
    return both.bits;
}

/* Adds x to a sum. A finite float is a whole number of 24 bits times 2^(place - 149). */
FK_DEVICE void fk_add_to_sum(fk_u64 sum, float x) {
    const fk_u32 bits = fk_bits_of(x), exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff, minus = bits >> 31;
    if (exponent == 0xff) {
        if (fraction || !minus) fk_add_global_long(sum + FK_SUM_DIGITS * 8, 1);
        if (fraction || minus) fk_add_global_long(sum + FK_SUM_DIGITS * 8 + 8, 1);
        return;
    }
    const fk_u32 place = exponent ? exponent - 1 : 0;
    const fk_u64 whole = (fk_u64)(exponent ? fraction | 0x800000 : fraction) << place % FK_SUM_BITS;
    const fk_i64 low = (fk_i64)(whole & ((1u << FK_SUM_BITS) - 1)), high = (fk_i64)(whole >> FK_SUM_BITS);
    sum += place / FK_SUM_BITS * 8;
    if (low) fk_add_global_long(sum, minus ? -low : low);
    if (high) fk_add_global_long(sum + 8, minus ? -high : high);
}

/* --- pairs -------------------------------------------------------------------------------------------------------- */

#if FK_RANGES
#define fk_part(env, i, s, q, k, h) fk_part(env, i, s, q, k, (int)fk_model_head(env, h))
#define fk_place(env, i, s, q, k, h) fk_place(env, i, s, q, k, (int)fk_model_head(env, h))
#endif

/* The pairs of a thread in a step. s: the products q k; d: dP, and then dS; row, key: the positions of its first row
 * and first key; keys: how many keys there are from that one on. */
typedef struct fk_table_pairs {
    float s[FK_K_COLUMNS][4], d[FK_K_COLUMNS][4];
    fk_i64 row, key;
    fk_i32 keys;
} fk_table_pairs;

/* Adds what the pairs have at one read. The places of neighbours are often the same: then one addition is enough. */
FK_DEVICE void fk_tables_add(const fk_launch *p, fk_u64 sums, const fk_env *env, fk_u32 read, fk_u32 head,
                             const fk_table_pairs *x) {
    fk_i64 place = -1;
    float sum = 0;
    FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++)
        FK_UNROLL
        for (fk_u32 n = 0; n < FK_K_COLUMNS * 2; n++) {
            const float d = x->d[n / 2][half * 2 + n % 2];
            const float s = fk_rounded_product(x->s[n / 2][half * 2 + n % 2], p->scale);
            const fk_i64 row = x->row + n / 2 * 8 + n % 2, key = x->key + half * 8;
            if (d == 0 || (fk_i32)half * 8 >= x->keys) continue;
            const fk_i64 here = fk_place(env, read, s, row, key, head);
            if (here != place) {
                if (place >= 0 && sum != 0) fk_add_to_sum(sums + (fk_u64)place * FK_SUM_BYTES, sum);
                place = here;
                sum = 0;
            }
            sum += d * fk_part(env, read, s, row, key, head);
        }
    if (place >= 0 && sum != 0) fk_add_to_sum(sums + (fk_u64)place * FK_SUM_BYTES, sum);
}

/* One step: the rows in `buffer` with the keys of the item. `key` is the position of the first key, `keys` how many
 * there are. */
FK_DEVICE void fk_tables_step(const fk_launch *p, fk_u64 sums, const fk_env *env, fk_i64 key, fk_u32 keys,
                              const fk_row_run *run, fk_u32 at, fk_u32 head, fk_u32 buffer) {
    const fk_u32 band = fk_warp() % FK_K_BANDS, t = fk_lane() % 4 * 2, own = band * 16 + fk_lane() / 4;
    fk_u32 allowed[2] = {~0u, ~0u};
    fk_table_pairs x;
    x.row = run->position + at + t;
    x.key = key + own;
    x.keys = (fk_i32)keys - (fk_i32)own;
    if (fk_run_class(run) != FK_FULL)
        fk_mask_bits(env, 1, 1, FK_K_COLUMNS, x.key, x.row, FK_K_STEP, head, allowed); // cost: PARTIAL
    fk_rows_by_rows(x.s, FK_K_COLUMNS, FK_CHUNKS, fk_dkv_k(), band * 16, fk_dkv_q(buffer));
    fk_rows_by_rows(x.d, FK_K_COLUMNS, FK_VALUE_CHUNKS, fk_dkv_v(), band * 16, fk_dkv_do(buffer));
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_K_COLUMNS; j++) {
        float base[2], minus[2], delta[2], slope;
        fk_load_shared2(base, fk_dkv_numbers(buffer, 0) + (j * 8 + t) * 4);
        fk_load_shared2(minus, fk_dkv_numbers(buffer, 2) + (j * 8 + t) * 4);
        fk_load_shared2(delta, fk_dkv_numbers(buffer, 1) + (j * 8 + t) * 4);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            const fk_i64 row = x.row + j * 8 + i % 2, k = x.key + i / 2 * 8;
            const float weight = fk_weight(p, env, x.s[j][i], minus[i % 2], base[i % 2], row, k, head, &slope);
            x.d[j][i] = fk_gradient(fk_mask_bit(allowed, i / 2, j, i % 2) ? weight : 0, x.d[j][i], delta[i % 2]);
        }
    }
    FK_ROLL
    for (fk_u32 read = 0; read < FK_READS; read++) fk_tables_add(p, sums, env, read, head, &x);
}

/* The walk of fk_dkv_piece, for all heads of a group. Where two warps share keys, the second only helps to copy. */
FK_DEVICE void fk_tables_item(const fk_launch *p, fk_u64 sums, const fk_key_item *item, fk_u32 part, fk_u32 kv_head) {
    fk_u32 first = part * FK_K_KEYS, first_head = kv_head * p->group, heads = p->group, buffer = 0;
    if (first >= item->count) return;
    if (FK_FUSED) { /* all that it reads has arrived: the kernel runs behind the one that has waited */
        const fk_key_fused *fused = fk_key_fused_of(p, item);
        first_head += fused->first;
        heads = fused->heads;
    }
    fk_u32 head = first_head;
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 keys = item->count - first;
    const fk_row_run *runs = (const fk_row_run *)p->runs + item->first;
    fk_dkv_sums unused;
    fk_step step = {0, 0};
    int more = 1, idle = fk_warp() >= FK_K_BANDS || fk_warp() * 16 >= keys;
    if (FK_BY_HEAD) head = fk_run_head(runs, first_head, first_head, heads);
    fk_dkv_open(p, item, runs, first, kv_head, head, &unused);
    while (more) {
        fk_step now = step;
        fk_u32 now_head = head;
        more = fk_next_rows(&step, &head, FK_K_STEP, runs[step.run].count, item->runs, runs, first_head, heads); // cost: step
        fk_cp_async_wait();
        fk_sync(); /* this step is there, and everybody has read the one before */
        if (more) fk_dkv_copy(p, runs + step.run, step.at, head, 1 - buffer, 1);
        if (!idle)
            fk_tables_step(p, sums, &env, item->position + first, keys, runs + now.run, now.at, now_head, buffer);
        buffer = 1 - buffer;
    }
}

FK_KERNEL(fk_backward_tables, FK_K_THREADS, 1)(FK_PARAMETER fk_launch_tables launch) {
    const fk_launch *p = &launch.launch;
    fk_begin(p->mark, p->mark_value);
    const fk_u32 parts = FK_DKV_PARTS(FK_HEAD_DIM);
    fk_u32 heads = fk_each(p->head_count), work = p->item_count * parts * heads;
    for (fk_u32 n = 0, i; (i = fk_piece(n)) < work; n++)
        fk_tables_item(p, launch.sums, (const fk_key_item *)p->items + i / heads / parts, i / heads % parts,
                       fk_key_head(p, i, heads, parts));
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

FK_DEVICE fk_i64 fk_load_long(fk_u64 from) {
    return (fk_i64)((fk_u64)fk_load_bits(from + 4) << 32 | fk_load_bits(from));
}

/* Passes carries on: all digits but the last are then in [0, 2^FK_SUM_BITS). */
FK_DEVICE void fk_carry(fk_i64 digit[FK_SUM_DIGITS]) {
    FK_UNROLL
    for (fk_u32 i = 0; i + 1 < FK_SUM_DIGITS; i++) {
        const fk_i64 low = digit[i] & ((1 << FK_SUM_BITS) - 1);
        digit[i + 1] += (digit[i] - low) / (1 << FK_SUM_BITS);
        digit[i] = low;
    }
}

/* The bits of the float that is nearest to a sum. Its digits are carried, and none is below 0. The two highest digits
 * and two bits of the next one make a whole number of at most 50 bits. Of all bits below these, rounding only needs to
 * know whether one is set; the lowest bit of the whole number is set then (the "sticky bit"). */
FK_DEVICE fk_u64 fk_nearest(const fk_i64 digit[FK_SUM_DIGITS]) {
    const fk_u64 infinity = 0x7f800000, limit = (fk_u64)1 << FK_SUM_BITS;
    fk_u64 whole = 0, rest = 0;
    fk_i32 top = 1;
    if ((fk_u64)digit[FK_SUM_DIGITS - 1] >= limit) return infinity;
    FK_UNROLL
    for (fk_i32 i = 2; i < FK_SUM_DIGITS; i++)
        if (digit[i]) top = i;
    FK_UNROLL
    for (fk_i32 i = 0; i < FK_SUM_DIGITS; i++) {
        const fk_u64 d = (fk_u64)digit[i];
        if (i < top - 2) rest |= d;
        else if (i == top - 2) whole = d >> (FK_SUM_BITS - 2), rest |= d & ((limit >> 2) - 1);
        else if (i == top - 1) whole |= d << 2;
        else if (i == top) whole |= d << (FK_SUM_BITS + 2);
    }
    whole |= rest != 0;
    fk_u32 length = 0;
    for (fk_u64 x = whole; x; x /= 2) length++;
    /* The lowest bit counts 2^(lowest - 149), and the float's 2^(unit - 149). */
    const fk_i32 lowest = FK_SUM_BITS * (top - 1) - 2, normal = (fk_i32)length - 24 + lowest;
    const fk_i32 unit = normal > 0 ? normal : 0;
    const fk_u32 shift = (fk_u32)(unit - lowest); /* 2 or more */
    const fk_u64 below = whole & (((fk_u64)1 << shift) - 1), half = (fk_u64)1 << (shift - 1);
    fk_u64 number = whole >> shift;
    number += below > half || (below == half && (number & 1));
    number += (fk_u64)unit << 23; /* the leading bit of a normal number adds 1 to its exponent */
    return number < infinity ? number : infinity;
}

/* to: float, for `count` sums that are at `from`. */
FK_KERNEL(fk_round_sums, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 n = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); n < p->count; n += step) {
        const fk_u64 from = p->from + n * FK_SUM_BYTES;
        fk_i64 digit[FK_SUM_DIGITS];
        FK_UNROLL
        for (fk_u32 i = 0; i < FK_SUM_DIGITS; i++) digit[i] = fk_load_long(from + i * 8);
        const int plus = fk_load_long(from + FK_SUM_DIGITS * 8) != 0;
        const int minus = fk_load_long(from + FK_SUM_DIGITS * 8 + 8) != 0;
        fk_carry(digit);
        const int negative = digit[FK_SUM_DIGITS - 1] < 0;
        FK_UNROLL
        for (fk_u32 i = 0; i < FK_SUM_DIGITS; i++) digit[i] = negative ? -digit[i] : digit[i];
        fk_carry(digit);
        fk_u32 bits = (fk_u32)fk_nearest(digit) | (fk_u32)negative << 31;
        if (plus || minus) bits = plus && minus ? 0x7fc00000u : 0x7f800000u | (fk_u32)minus << 31;
        fk_store_bits(p->to + n * 4, bits); // cost: step
    }
}
