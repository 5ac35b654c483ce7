/* forward_sm90.h: the forward pass for sm_90a, where head_dim and value_dim are multiples of 64.
 *
 * One producer warpgroup loads tiles, and two consumer warpgroups of 64 rows each compute. TMA loads a tile in boxes of
 * 64 rows, as many as lie wholly in the run. The producer's threads copy the rows after the last whole box and fill the
 * rest of the tile with zeros. So nothing beyond the run is read, and where P is 0 it is multiplied with 0.
 *
 * Two things overlap. With FK_OVERLAP, a consumer begins the products with K of a step, and right after them the
 * products with V of the step before, which then run beside the softmax of this step. With FK_TURNS, the two consumers
 * begin their products in turn, so that one computes its softmax while the tensor cores work for the other.
 *
 * Tiles are numbered over all items of the CTA: the n-th K, or V, is in stage n % 2, and is the (n / 2)-th filling of
 * it.
 *
 * Requires: common.h, tiles_sm90.h, forward_rows.h; K and V of the item's runs in their slots, which the maps describe;
 *           a state slot that an earlier visit wrote, unless this is the first visit; a counter that is 0. It gives the
 *           running state of the item's rows for each query head, or on the last visit O and LSE; and the counter is 0
 *           again.
 * Grid:     any number of CTAs, which share item_count * head_count * group pieces of work (by head and packed
 *           item_count). Each takes its next piece from the counter, so that one that is slow or begins late gets less.
 * Waits:    fused, the first thread waits for the arrival of Q, and of a run before its first K is loaded; once for each
 *           flag.
 * Shared:   Q, two stages of K, two of V, mbarriers; tickets (the numbers of pieces); fused, a bit for each flag.
 * Source:   the pipeline of FlashAttention-3; the online softmax of Milakov and Gimelshein.
 */
#ifndef FK_OVERLAP
#define FK_OVERLAP !(FK_VALUE_DIM > 192 && FK_HAS_SCORE) /* with these two it would spill registers */
#endif
#ifndef FK_TURNS
#define FK_TURNS 1
#endif
#if FK_HEAD_DIM > 192 || FK_VALUE_DIM > 128 /* FK_F_STEP is 64; else 128 */
#define FK_F_WGMMA_QK FK_WGMMA(fk_wgmma_, 64)
#else
#define FK_F_WGMMA_QK FK_WGMMA(fk_wgmma_, 128)
#endif
/* If K and V differ in size, they are at different places and of different maps, and the producer needs more
 * registers. */
#if FK_HEAD_DIM != FK_VALUE_DIM
#define FK_F_PRODUCER_REGISTERS fk_setmaxnreg_dec(56)
#define FK_F_CONSUMER_REGISTERS fk_setmaxnreg_inc(224)
#else
#define FK_F_PRODUCER_REGISTERS fk_setmaxnreg_dec(40)
#define FK_F_CONSUMER_REGISTERS fk_setmaxnreg_inc(232)
#endif
#define FK_F_WGMMA_PV FK_WGMMA(fk_wgmma_registers_, FK_VALUE_DIM)
enum {
    FK_F_K_TILE = FK_TILE_BYTES(FK_F_STEP, FK_HEAD_DIM),
    FK_F_V_TILE = FK_TILE_BYTES(FK_F_STEP, FK_VALUE_DIM),
    /* mbarriers: a stage of K or of V is full, or free; and the same for Q. */
    FK_K_FULL = 0,
    FK_K_FREE = 2,
    FK_V_FULL = 4,
    FK_V_FREE = 6,
    FK_Q_FULL = 8,
    FK_Q_FREE = 9,
    FK_F_BARRIERS = 10,
    FK_F_FLAGS = (FK_FORWARD_SM90_BARRIERS - FK_F_BARRIERS * 8 - 8) / 4 * 32, /* flags that have a bit */
    FK_PRODUCERS = 1,
    FK_FIRST_TURN = 2 /* barriers for some threads: the producer's; 2 and 3 the consumers' */
};

#if defined FK_NAME_WAITS
FK_NAME_WAITS(forward,
              "K full, stage 0|K full, stage 1|K free, stage 0|K free, stage 1|"
              "V full, stage 0|V full, stage 1|V free, stage 0|V free, stage 1|Q full|Q free",
              "all|rows that producers copy|the turn of consumer 0|the turn of consumer 1",
              "producer 4|consumer 0 4|consumer 1 4")
#endif

/* --- places ------------------------------------------------------------------------------------------------------- */

FK_DEVICE fk_u32 fk_forward_k(fk_u32 n) {
    return fk_shared() + FK_TILE_BYTES(FK_ROWS, FK_HEAD_DIM) + n % 2 * FK_F_K_TILE;
}
FK_DEVICE fk_u32 fk_forward_v(fk_u32 n) {
    return fk_shared() + FK_TILE_BYTES(FK_ROWS, FK_HEAD_DIM) + 2 * FK_F_K_TILE + n % 2 * FK_F_V_TILE;
}
FK_DEVICE fk_u32 fk_forward_barrier(fk_u32 i) {
    return fk_shared() + FK_FORWARD_SM90_TILES(FK_HEAD_DIM, FK_VALUE_DIM) + i * 8;
}

/* A consumer waits for the n-th filling of a stage; the producer waits until consumers have read the filling before
 * it. */
FK_DEVICE void fk_forward_wait_full(fk_u32 there, fk_u32 n) {
    fk_mbarrier_wait(fk_forward_barrier(there + n % 2), n / 2 % 2);
}
FK_DEVICE void fk_forward_wait_free(fk_u32 free, fk_u32 n) {
    if (n >= 2) fk_mbarrier_wait(fk_forward_barrier(free + n % 2), (n / 2 - 1) % 2);
}
/* A warp says that it has read a stage. */
FK_DEVICE void fk_forward_release_stage(fk_u32 barrier) {
    if (fk_lane() == 0) fk_mbarrier_arrive(fk_forward_barrier(barrier));
}

/* --- the producer ------------------------------------------------------------------------------------------------- */

/* Where the number of the CTA's n-th piece of work is. */
FK_DEVICE fk_u32 fk_forward_ticket(fk_u32 n) { return fk_forward_barrier(FK_F_BARRIERS) + n % 2 * 4; }

/* Fused: the first thread waits for a flag. Then it may read what has arrived, and TMA loads that it begins may, too,
 * for the rest of the kernel. The two fences of a wait are slow: they wait for the thread's stores, and empty the L1
 * cache. So it keeps a bit for each flag that it has waited for, and waits once only. Flags beyond FK_F_FLAGS have no
 * bit. */
FK_DEVICE fk_u32 fk_forward_awaited(fk_u32 word) { return fk_forward_barrier(FK_F_BARRIERS) + 8 + word * 4; }
FK_DEVICE void fk_forward_await(const fk_launch *p, fk_u32 arrival) {
    if (!FK_FUSED || !arrival) return;
    fk_u32 word = (arrival - 1) / 32, bit = 1u << (arrival - 1) % 32, awaited = 0;
    if (arrival <= FK_F_FLAGS) awaited = fk_load_shared_bits(fk_forward_awaited(word));
    if (awaited & bit) return;
    fk_forward_arrival(p, arrival);
    fk_fence_proxy_async_global();
    if (arrival <= FK_F_FLAGS) fk_store_shared_bits(fk_forward_awaited(word), awaited | bit);
}

/* The producer loads the n-th tile of K or of V, which is one step of a run. All its threads call it. */
FK_DEVICE void fk_forward_load(const fk_launch_maps *maps, const fk_key_run *run, fk_u32 at, fk_u32 v, fk_u32 kv_head,
                               fk_u32 n) {
    const fk_launch *p = &maps->launch;
    fk_u32 there = v ? FK_V_FULL : FK_K_FULL, free = v ? FK_V_FREE : FK_K_FREE;
    fk_u32 barrier = fk_forward_barrier(there + n % 2), tile = v ? fk_forward_v(n) : fk_forward_k(n);
    fk_u32 boxes = v ? FK_VALUE_BOXES : FK_BOXES;
    /* whole: rows in whole boxes */
    fk_u32 keys = run->count - at, whole = keys < FK_F_STEP ? keys / FK_BOX * FK_BOX : FK_F_STEP;
    if (fk_thread() == 0) {
        const fk_map *map = run->place == FK_MOVED ? v ? &maps->moved_v : &maps->moved_k : v ? &maps->v : &maps->k;
        fk_forward_wait_free(free, n);
        if (!v && at == 0) fk_forward_await(p, run->arrival); /* the V of a run comes after its K */
        fk_mbarrier_arrive_expect(barrier, whole * boxes * FK_TILE_ROW);
        fk_tma_load_rows(tile, boxes, FK_F_STEP, whole, map, kv_head, run->row + at, run->slot, barrier);
    }
    if (whole < FK_F_STEP) {
        fk_u64 stride = v ? fk_v_stride(p) : fk_k_stride(p);
        fk_u64 from = p->arena + (v ? run->v : run->k) + at * stride + (fk_u64)kv_head * boxes * FK_TILE_ROW;
        fk_named_barrier_sync(FK_PRODUCERS, 128); /* the first thread has found the stage free, and the keys there */
        fk_copy_rows_from(tile, boxes, FK_F_STEP, whole, fk_thread(), 128, from, stride, keys);
        fk_cp_async_wait();
        fk_fence_proxy_async();
        fk_named_barrier_sync(FK_PRODUCERS, 128);
    }
    if (fk_thread() == 0) fk_mbarrier_arrive(barrier);
}

/* The producer takes the n-th piece of work of this CTA, and leaves its number for the consumers. They may read it when
 * Q is full, and have read it when Q is free. */
FK_DEVICE fk_u32 fk_forward_take(const fk_launch *p, fk_u32 work, fk_u32 n) {
    if (fk_thread() == 0) {
        fk_u32 piece = fk_fetch_ticket(p->counter, work + fk_ctas() - 1); /* each CTA fetches one too many */
        if (n) fk_mbarrier_wait(fk_forward_barrier(FK_Q_FREE), (n - 1) % 2);
        fk_store_shared_bits(fk_forward_ticket(n), piece);
    }
    fk_named_barrier_sync(FK_PRODUCERS, 128);
    return fk_load_shared_bits(fk_forward_ticket(n));
}

/* The producer loads Q. The rows of a packed tile are of several heads, so its threads copy them. */
FK_DEVICE void fk_forward_load_q(const fk_launch_maps *maps, const fk_row_item *item, fk_u32 head) {
    const fk_launch *p = &maps->launch;
    fk_u32 barrier = fk_forward_barrier(FK_Q_FULL), rows = item->count > FK_BOX ? FK_ROWS : FK_BOX;
    if (fk_thread() == 0) fk_forward_await(p, item->arrival);
    if (FK_PACKED && item->pack > 1) {
        fk_named_barrier_sync(FK_PRODUCERS, 128); /* the first thread has found the rows there */
        FK_ROLL
        for (fk_u32 i = fk_thread(); i < rows * FK_CHUNKS; i += 128) {
            fk_u32 row = i / FK_CHUNKS, chunk = i % FK_CHUNKS, there = row < item->count;
            fk_u32 to = fk_shared() + (chunk / 8 * FK_ROWS + row) * FK_TILE_ROW + (chunk % 8 ^ row % 8) * 16;
            fk_cp_async(to, fk_forward_packed_row(p, item, there ? row : 0, head) + chunk * 16, there ? 16 : 0);
        }
        fk_cp_async_wait();
        fk_fence_proxy_async();
        fk_named_barrier_sync(FK_PRODUCERS, 128);
        if (fk_thread() == 0) fk_mbarrier_arrive(barrier);
    } else if (fk_thread() == 0) {
        fk_mbarrier_arrive_expect(barrier, rows * FK_ROW_BYTES);
        fk_tma_load_rows(fk_shared(), FK_BOXES, FK_ROWS, rows, &maps->q, head, (fk_u32)item->token, 0, barrier);
    }
}

/* The producer loads all tiles of an item, in the order in which consumers need them: K of step 0; then always K of a
 * step before V of the step before it. For three steps: K0, K1, V0, K2, V1, V2. */
FK_DEVICE void fk_forward_produce(const fk_launch_maps *maps, const fk_row_item *item, fk_u32 head, fk_u32 *n) {
    const fk_launch *p = &maps->launch;
    const fk_key_run *runs = (const fk_key_run *)p->runs + item->first;
    fk_step k = {0, 0}, v = {0, 0};
    fk_u32 ks = *n, vs = *n, more = 1, kv_head = head / p->group;
    fk_forward_load_q(maps, item, head);
    FK_ROLL
    while (more || vs != ks) {
        fk_u32 is_v = !more || ks - vs == 2;
        const fk_key_run *run = runs + (is_v ? v.run : k.run);
        fk_forward_load(maps, run, is_v ? v.at : k.at, is_v, kv_head, is_v ? vs : ks);
        if (is_v) fk_advance(&v, FK_F_STEP, run->count, item->runs), vs++;
        else more = (fk_u32)fk_advance(&k, FK_F_STEP, run->count, item->runs), ks++;
    }
    *n = ks;
}

/* --- the consumers ------------------------------------------------------------------------------------------------ */

/* A consumer waits for its turn to begin products, and gives the turn to the other. Both named barriers are of 256
 * threads: those of the consumer that waits and those of the one that lets it go on. */
FK_DEVICE void fk_forward_take_turn(fk_u32 consumer) {
    if (FK_TURNS) fk_named_barrier_sync(FK_FIRST_TURN + consumer, 256);
}
FK_DEVICE void fk_forward_pass_turn(fk_u32 consumer) {
    if (FK_TURNS) fk_named_barrier_arrive(FK_FIRST_TURN + 1 - consumer, 256);
}

/* Begins s = Q K with the n-th K. */
FK_DEVICE void fk_forward_begin_qk(fk_u32 consumer, fk_u32 n, float *s) {
    fk_u32 k_tile = fk_uniform(fk_forward_k(n)), q_tile = fk_uniform(fk_shared() + consumer * 64 * FK_TILE_ROW);
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_HEAD_DIM / 16; i++)
        FK_F_WGMMA_QK(s, fk_descriptor_k_major(q_tile, FK_ROWS, 0, i), fk_descriptor_k_major(k_tile, FK_F_STEP, 0, i),
                      i != 0);
    fk_wgmma_commit();
}
/* Begins O += P V with the n-th V. */
FK_DEVICE void fk_forward_begin_pv(fk_u32 n, float *o, const fk_u32 *weights) {
    fk_u32 v_tile = fk_uniform(fk_forward_v(n));
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_F_STEP / 16; i++)
        FK_F_WGMMA_PV(o, weights + i * 4, fk_descriptor_mn_major(v_tile, FK_F_STEP, i, 0), 1);
    fk_wgmma_commit();
}

/* A consumer's item and how far it has come. n: the number of the current tile of K. */
typedef struct fk_forward_side {
    const fk_launch *p;
    const fk_row_item *item;
    const fk_key_run *runs;
    fk_env env;
    fk_u32 head, consumer, n;
    fk_step step;
} fk_forward_side;

/* The keys of one step. */
typedef struct fk_forward_keys {
    const fk_key_run *run;
    fk_u32 at, keys;
    int whole;
    fk_u32 allowed[1][2];
} fk_forward_keys;

/* Finds the keys of the current step. */
FK_DEVICE void fk_forward_step_keys(const fk_forward_side *c, fk_forward_keys *k) {
    k->run = c->runs + c->step.run;
    k->at = c->step.at;
    k->keys = k->run->count - k->at < FK_F_STEP ? k->run->count - k->at : FK_F_STEP;
    k->whole = fk_forward_whole(k->run, k->keys);
    k->allowed[0][0] = k->allowed[0][1] = 0;
}
/* Evaluates the mask, if some pair may not count. */
FK_DEVICE void fk_forward_mask_step(const fk_forward_side *c, fk_forward_keys *k) {
    if (!k->whole) fk_forward_mask(&c->env, c->item, k->run, k->at, k->keys, c->head, k->allowed); // cost: PARTIAL
}

/* The products with K have ended: frees K, and after the last step Q, and turns the products into P. O is not updated
 * yet. */
FK_DEVICE void fk_forward_make_p(const fk_forward_side *c, fk_forward_keys *k, int more, float (*s)[FK_F_COLUMNS][4],
                                 fk_forward_rows *x, float (*factor)[2]) {
    fk_forward_release_stage(FK_K_FREE + c->n % 2);
    if (!more) fk_forward_release_stage(FK_Q_FREE);
    fk_forward_scores(c->p, &c->env, c->item, k->run, k->at, k->whole, k->allowed, c->head, s);
    fk_forward_softmax(c->p, s, x, factor);
}

/* O += P V of the step before c->n; then frees V. */
FK_DEVICE void fk_forward_finish(const fk_forward_side *c, float *o, const fk_u32 *weights) {
    fk_forward_wait_full(FK_V_FULL, c->n - 1);
    fk_wgmma_fence();
    fk_forward_begin_pv(c->n - 1, o, weights);
    fk_wgmma_wait_0();
    fk_wgmma_settle(o, FK_VALUE_DIM / 2);
    fk_forward_release_stage(FK_V_FREE + (c->n - 1) % 2);
}

/* Does all steps of an item: computes O, m and l.
 *
 * The wait for the K of the next step stands between the softmax and the wait for the products that run beside it. If
 * nothing stood there, nvcc would move the wait for the products up, before the softmax.
 */
FK_DEVICE void fk_forward_steps(fk_forward_side *c, fk_forward_rows *x) {
    float s[1][FK_F_COLUMNS][4], factor[1][2], *scores = &s[0][0][0], *o = &x->o[0][0][0];
    fk_u32 weights[1][FK_F_COLUMNS * 2];
    fk_forward_keys keys;
    int more;
    fk_forward_step_keys(c, &keys);
    fk_forward_wait_full(FK_K_FULL, c->n);
    fk_forward_take_turn(c->consumer);
    fk_wgmma_fence();
    fk_forward_begin_qk(c->consumer, c->n, scores);
    fk_forward_pass_turn(c->consumer);
    fk_forward_mask_step(c, &keys);
    more = fk_advance(&c->step, FK_F_STEP, keys.run->count, c->item->runs);
    fk_wgmma_wait_0();
    fk_wgmma_settle(scores, FK_F_STEP / 2);
    fk_forward_make_p(c, &keys, more, s, x, factor);
    fk_forward_rescale(s, x, factor, weights);
    c->n++;
    if (more) fk_forward_wait_full(FK_K_FULL, c->n);
    while (more) {
        if (!FK_OVERLAP) fk_forward_finish(c, o, weights[0]);
        fk_forward_step_keys(c, &keys);
        fk_forward_take_turn(c->consumer);
        fk_wgmma_fence();
        fk_forward_begin_qk(c->consumer, c->n, scores);
        if (FK_OVERLAP) {
            fk_forward_wait_full(FK_V_FULL, c->n - 1);
            fk_wgmma_fence();
            fk_forward_begin_pv(c->n - 1, o, weights[0]);
        }
        fk_forward_pass_turn(c->consumer);
        fk_forward_mask_step(c, &keys);
        more = fk_advance(&c->step, FK_F_STEP, keys.run->count, c->item->runs); // cost: step
        if (FK_OVERLAP) fk_wgmma_wait_1();
        else fk_wgmma_wait_0();
        fk_wgmma_settle(scores, FK_F_STEP / 2);
        fk_forward_make_p(c, &keys, more, s, x, factor); // cost: elements
        if (more) fk_forward_wait_full(FK_K_FULL, c->n + 1);
        if (FK_OVERLAP) {
            fk_wgmma_wait_0();
            fk_wgmma_settle(o, FK_VALUE_DIM / 2);
            fk_forward_release_stage(FK_V_FREE + (c->n - 1) % 2);
        }
        fk_forward_rescale(s, x, factor, weights); // cost: elements
        c->n++;
    }
    fk_forward_finish(c, o, weights[0]);
}

/* A warp frees a stage that it did not read. fk_uniform makes sure that all its lanes have waited for the stage before
 * one of them frees it. */
FK_DEVICE void fk_forward_release_unread(fk_u32 barrier) {
    fk_uniform(barrier);
    fk_forward_release_stage(barrier);
}

/* A consumer without rows takes part in turns, and frees each stage when it is full. */
FK_DEVICE void fk_forward_skip(fk_forward_side *c) {
    fk_forward_release_unread(FK_Q_FREE);
    for (int more = 1; more; c->n++) {
        fk_forward_take_turn(c->consumer);
        fk_forward_pass_turn(c->consumer);
        fk_forward_wait_full(FK_K_FULL, c->n);
        fk_forward_release_unread(FK_K_FREE + c->n % 2);
        fk_forward_wait_full(FK_V_FULL, c->n);
        fk_forward_release_unread(FK_V_FREE + c->n % 2);
        more = fk_advance(&c->step, FK_F_STEP, c->runs[c->step.run].count, c->item->runs);
    }
}

/* Does one item and head. */
FK_DEVICE void fk_forward_consume(const fk_launch *p, const fk_row_item *item, fk_u32 head, fk_u32 consumer,
                                  fk_u32 *n) {
    int idle = consumer * 64 >= item->count;
    fk_forward_side c;
    fk_forward_rows x;
    c.p = p;
    c.item = item;
    c.runs = (const fk_key_run *)p->runs + item->first;
    c.env = fk_env_of(p, item->sequence);
    c.head = head;
    c.consumer = consumer;
    c.n = *n;
    c.step.run = c.step.at = 0;
    if (!idle) fk_forward_open(p, item, head, &x);
    if (!item->runs) fk_forward_release_unread(FK_Q_FREE);
    else if (idle) fk_forward_skip(&c);
    else fk_forward_steps(&c, &x);
    if (!idle) fk_forward_close(p, item, head, &x);
    *n = c.n;
}

FK_KERNEL(fk_forward_sm90, FK_F_THREADS, 1)(FK_PARAMETER fk_launch_maps maps) {
    const fk_launch *p = &maps.launch;
    FK_WATCH();
    fk_begin(p->mark, p->mark_value);
    fk_u32 heads = fk_forward_each(p), work = p->item_count * heads;
    fk_u32 group = fk_thread() / 128, n = 0, items = 0;
    if (fk_thread() == 0) {
        /* K and V are full when the TMA and the producer have arrived, Q when the TMA has. A stage is free when all
         * eight warps of the consumers have read it. */
        for (fk_u32 i = 0; i < FK_F_BARRIERS; i++)
            fk_mbarrier_init(fk_forward_barrier(i), i < FK_K_FREE || i / 2 == FK_V_FULL / 2 ? 2
                                                    : i == FK_Q_FULL                        ? 1
                                                                                            : 8);
        fk_mbarrier_init_fence();
        for (fk_u32 i = 0; FK_FUSED && i < FK_F_FLAGS / 32; i++) fk_store_shared_bits(fk_forward_awaited(i), 0);
    }
    fk_sync();
    if (group == 0) {
        FK_F_PRODUCER_REGISTERS;
        for (fk_u32 i; (i = fk_forward_take(p, work, items)) < work; items++) {
            const fk_row_item *item = (const fk_row_item *)p->items + i / heads;
            if (item->runs) fk_forward_produce(&maps, item, fk_forward_first_head(p, i, heads), &n);
            else if (fk_thread() == 0) fk_mbarrier_arrive(fk_forward_barrier(FK_Q_FULL));
        }
        if (fk_thread() == 0) fk_mbarrier_arrive(fk_forward_barrier(FK_Q_FULL)); /* there is no more work */
    } else {
        FK_F_CONSUMER_REGISTERS;
        if (group == 2) fk_forward_pass_turn(1);
        for (;; items++) {
            fk_u32 i = 0;
            fk_mbarrier_wait(fk_forward_barrier(FK_Q_FULL), items % 2);
            if (fk_lane() == 0) i = fk_load_shared_bits(fk_forward_ticket(items)); /* lane 0 frees Q */
            i = fk_from_first(i);
            if (i >= work) break;
            fk_forward_consume(p, (const fk_row_item *)p->items + i / heads, fk_forward_first_head(p, i, heads),
                               group - 1, &n);
        }
        if (group == 1) fk_forward_take_turn(0); /* the turn that the other passed last */
    }
}
