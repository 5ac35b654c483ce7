/* forward_sm90.h: the forward pass for sm_90a, where head_dim and value_dim are multiples of 64.
 *
 * Requires: common.h, tiles_sm90.h, forward_rows.h; K and V of the item's runs in their slots, which the maps
 *           describe; a state slot that an earlier visit wrote, unless this is the first visit.
 * Gives:    the running state of the item's rows for each query head, or on the last visit O and LSE.
 * Grid:     any number of blocks. There are item_count * head_count * group pieces of work, by head and packed
 *           item_count, and block i does pieces i, i + blocks, ...
 * Threads:  three warpgroups. The first is the producer and brings tiles. The other two are consumers and have 64
 *           rows each.
 * Waits:    fused, the first thread waits for the arrival of Q, and of a run before its first K is brought.
 * Shared:   Q, two stages of K, two of V, and barriers.
 * Source:   the pipeline of FlashAttention-3; the online softmax of Milakov and Gimelshein.
 *
 * The copy engine brings a tile in boxes of 64 rows, as many as lie wholly in the run. The producer's threads copy
 * the rows after the last whole box and fill the tile with zeros. So nothing beyond the run is read, and where P is
 * 0 it is multiplied with 0.
 *
 * With FK_OVERLAP, a step begins its products with K and right after them the products with V of the step before; the
 * latter run beside the softmax of this step. With FK_TURNS, the two consumers begin their products in turn, so that
 * one computes its softmax while the matrix unit works for the other.
 *
 * Numbers of tiles count over all items of the block: the n-th K, or V, is in stage n % 2, and is the (n / 2)-th
 * filling of it.
 */
#ifndef FK_OVERLAP
#define FK_OVERLAP !(FK_VALUE_DIM > 192 && FK_HAS_SCORE) /* with these two it would spill registers */
#endif
#ifndef FK_TURNS
#define FK_TURNS 1
#endif
#if FK_HEAD_DIM > 192 || FK_VALUE_DIM > 128 /* FK_F_STEP is 64; else 128 */
#define FK_F_PRODUCT FK_PRODUCT(fk_product_, 64)
#else
#define FK_F_PRODUCT FK_PRODUCT(fk_product_, 128)
#endif
/* K and V of different sizes are at different places and of different maps: the producer needs more registers. */
#if FK_HEAD_DIM != FK_VALUE_DIM
#define FK_F_PRODUCER_REGISTERS fk_registers_down(56)
#define FK_F_CONSUMER_REGISTERS fk_registers_up(224)
#else
#define FK_F_PRODUCER_REGISTERS fk_registers_down(40)
#define FK_F_CONSUMER_REGISTERS fk_registers_up(232)
#endif
#define FK_F_GATHER FK_PRODUCT(fk_product_registers_, FK_VALUE_DIM)
enum {
    FK_F_K_TILE = FK_TILE_BYTES(FK_F_STEP, FK_HEAD_DIM),
    FK_F_V_TILE = FK_TILE_BYTES(FK_F_STEP, FK_VALUE_DIM),
    /* Barriers in shared memory: a stage of K or of V is full, or free; and the same for Q. */
    FK_K_THERE = 0, FK_K_FREE = 2, FK_V_THERE = 4, FK_V_FREE = 6, FK_Q_THERE = 8, FK_Q_FREE = 9, FK_F_BARRIERS = 10,
    FK_PRODUCERS = 1, FK_FIRST_TURN = 2 /* barriers for some threads: the producer's; 2 and 3 the consumers' */
};

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

/* A consumer waits for the n-th filling of a stage. The producer waits until consumers have read the filling before
 * it. */
FK_DEVICE void fk_forward_await(fk_u32 there, fk_u32 n) {
    fk_barrier_wait(fk_forward_barrier(there + n % 2), n / 2 % 2);
}
FK_DEVICE void fk_forward_await_free(fk_u32 free, fk_u32 n) {
    if (n >= 2) fk_barrier_wait(fk_forward_barrier(free + n % 2), (n / 2 - 1) % 2);
}
/* A warp says that it has read a stage. */
FK_DEVICE void fk_forward_leave(fk_u32 barrier) {
    if (fk_lane() == 0) fk_barrier_arrive(fk_forward_barrier(barrier));
}

/* --- the producer ------------------------------------------------------------------------------------------------- */

/* Brings the n-th tile of K or of V, which is one step of a run. All threads of the producer call it. */
FK_DEVICE void fk_forward_bring(const fk_launch_maps *maps, const fk_key_run *run, fk_u32 at, fk_u32 v, fk_u32 kv_head,
                                fk_u32 n) {
    const fk_launch *p = &maps->launch;
    fk_u32 there = v ? FK_V_THERE : FK_K_THERE, free = v ? FK_V_FREE : FK_K_FREE;
    fk_u32 barrier = fk_forward_barrier(there + n % 2), tile = v ? fk_forward_v(n) : fk_forward_k(n);
    fk_u32 boxes = v ? FK_VALUE_BOXES : FK_BOXES;
    /* whole: rows in whole boxes */
    fk_u32 keys = run->count - at, whole = keys < FK_F_STEP ? keys / FK_BOX * FK_BOX : FK_F_STEP;
    if (fk_thread() == 0) {
        const fk_map *map = run->place == FK_MOVED ? v ? &maps->moved_v : &maps->moved_k : v ? &maps->v : &maps->k;
        fk_forward_await_free(free, n);
        if (FK_FUSED && !v && at == 0) { /* the V of a run comes after its K */
            fk_forward_arrival(p, run, at);
            fk_fence_async_global();
        }
        fk_barrier_expect(barrier, whole * boxes * FK_TILE_ROW);
        fk_tile_fetch(tile, boxes, FK_F_STEP, whole, map, kv_head, run->row + at, run->slot, barrier);
    }
    if (whole < FK_F_STEP) {
        fk_u64 stride = v ? fk_v_stride(p) : fk_k_stride(p);
        fk_u64 from = p->arena + (v ? run->v : run->k) + at * stride + (fk_u64)kv_head * boxes * FK_TILE_ROW;
        fk_sync_some(FK_PRODUCERS, 128); /* the first thread has found the stage free, and the keys there */
        fk_tile_gather_from(tile, boxes, FK_F_STEP, whole, fk_thread(), 128, from, stride, keys);
        fk_copy_wait();
        fk_fence_async();
        fk_sync_some(FK_PRODUCERS, 128);
    }
    if (fk_thread() == 0) fk_barrier_arrive(barrier);
}

/* Brings Q. The rows of a packed tile are of several heads, and so the producer's threads copy them. */
FK_DEVICE void fk_forward_bring_q(const fk_launch_maps *maps, const fk_row_item *item, fk_u32 head, fk_u32 items) {
    const fk_launch *p = &maps->launch;
    fk_u32 barrier = fk_forward_barrier(FK_Q_THERE), rows = item->count > FK_BOX ? FK_ROWS : FK_BOX;
    if (fk_thread() == 0 && items) fk_barrier_wait(fk_forward_barrier(FK_Q_FREE), (items - 1) % 2);
    if (FK_FUSED && fk_thread() == 0) {
        fk_forward_arrival_q(p, item);
        fk_fence_async_global();
    }
    if (FK_PACKED && item->pack > 1) {
        fk_sync_some(FK_PRODUCERS, 128); /* the first thread has found Q free, and the rows there */
        FK_ROLL
        for (fk_u32 i = fk_thread(); i < rows * FK_CHUNKS; i += 128) {
            fk_u32 row = i / FK_CHUNKS, chunk = i % FK_CHUNKS, there = row < item->count;
            fk_u32 to = fk_shared() + (chunk / 8 * FK_ROWS + row) * FK_TILE_ROW + (chunk % 8 ^ row % 8) * 16;
            fk_copy(to, fk_forward_packed_row(p, item, there ? row : 0, head) + chunk * 16, there ? 16 : 0);
        }
        fk_copy_wait();
        fk_fence_async();
        fk_sync_some(FK_PRODUCERS, 128);
        if (fk_thread() == 0) fk_barrier_arrive(barrier);
    } else if (fk_thread() == 0) {
        fk_barrier_expect(barrier, rows * FK_ROW_BYTES);
        fk_tile_fetch(fk_shared(), FK_BOXES, FK_ROWS, rows, &maps->q, head, (fk_u32)item->token, 0, barrier);
    }
}

/* Brings all tiles of an item, in the order in which consumers need them: the first K; then always the K of a step
 * before the V of the step before it. */
FK_DEVICE void fk_forward_produce(const fk_launch_maps *maps, const fk_row_item *item, fk_u32 head, fk_u32 items,
                                  fk_u32 *n) {
    const fk_launch *p = &maps->launch;
    const fk_key_run *runs = (const fk_key_run *)p->runs + item->first;
    fk_step k = {0, 0}, v = {0, 0};
    fk_u32 ks = *n, vs = *n, more = 1, kv_head = head / p->group;
    fk_forward_bring_q(maps, item, head, items);
    FK_ROLL
    while (more || vs != ks) {
        fk_u32 is_v = !more || ks - vs == 2;
        const fk_key_run *run = runs + (is_v ? v.run : k.run);
        fk_forward_bring(maps, run, is_v ? v.at : k.at, is_v, kv_head, is_v ? vs : ks);
        if (is_v) fk_advance(&v, FK_F_STEP, run->count, item->runs), vs++;
        else more = (fk_u32)fk_advance(&k, FK_F_STEP, run->count, item->runs), ks++;
    }
    *n = ks;
}

/* --- the consumers ------------------------------------------------------------------------------------------------ */

/* A consumer waits for its turn to begin products, and gives the turn to the other. Both barriers are of 256 threads:
 * those of the consumer that waits and those of the one that lets it go on. */
FK_DEVICE void fk_forward_take_turn(fk_u32 consumer) {
    if (FK_TURNS) fk_sync_some(FK_FIRST_TURN + consumer, 256);
}
FK_DEVICE void fk_forward_pass_turn(fk_u32 consumer) {
    if (FK_TURNS) fk_arrive_some(FK_FIRST_TURN + 1 - consumer, 256);
}

/* Begins s = Q K with the n-th K. */
FK_DEVICE void fk_forward_begin_scores(fk_u32 consumer, fk_u32 n, float *s) {
    fk_u32 k_tile = fk_uniform(fk_forward_k(n)), q_tile = fk_uniform(fk_shared() + consumer * 64 * FK_TILE_ROW);
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_HEAD_DIM / 16; i++)
        FK_F_PRODUCT(s, fk_by_rows(q_tile, FK_ROWS, 0, i), fk_by_rows(k_tile, FK_F_STEP, 0, i), i != 0);
    fk_products_end();
}
/* Begins O += P V with the n-th V. */
FK_DEVICE void fk_forward_begin_gather(fk_u32 n, float *o, const fk_u32 *weights) {
    fk_u32 v_tile = fk_uniform(fk_forward_v(n));
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_F_STEP / 16; i++)
        FK_F_GATHER(o, weights + i * 4, fk_by_columns(v_tile, FK_F_STEP, i, 0), 1);
    fk_products_end();
}

/* What a consumer knows of its item, and where it is in it. n: the number of the current tile of K. */
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
    fk_u32 counting[1][2];
} fk_forward_keys;

/* Finds the keys of the current step. */
FK_DEVICE void fk_forward_see(const fk_forward_side *c, fk_forward_keys *k) {
    k->run = c->runs + c->step.run;
    k->at = c->step.at;
    k->keys = k->run->count - k->at < FK_F_STEP ? k->run->count - k->at : FK_F_STEP;
    k->whole = fk_forward_whole(k->run, k->keys);
    k->counting[0][0] = k->counting[0][1] = 0;
}
/* Looks which pairs count, if some may not. */
FK_DEVICE void fk_forward_count_keys(const fk_forward_side *c, fk_forward_keys *k) {
    if (!k->whole) fk_forward_count(&c->env, c->item, k->run, k->at, k->keys, c->head, k->counting); // cost: PARTIAL
}

/* The products with K have ended: frees K, and after the last step Q, and turns the products into P. O is not updated
 * yet. */
FK_DEVICE void fk_forward_judge(const fk_forward_side *c, fk_forward_keys *k, int more, float (*s)[FK_F_COLUMNS][4],
                                fk_forward_rows *x, float (*factor)[2]) {
    fk_forward_leave(FK_K_FREE + c->n % 2);
    if (!more) fk_forward_leave(FK_Q_FREE);
    fk_forward_scores(c->p, &c->env, c->item, k->run, k->at, k->whole, k->counting, c->head, s);
    fk_forward_softmax(c->p, s, x, factor);
}

/* O += P V of the step before c->n; then frees V. */
FK_DEVICE void fk_forward_finish(const fk_forward_side *c, float *o, const fk_u32 *weights) {
    fk_forward_await(FK_V_THERE, c->n - 1);
    fk_products_begin();
    fk_forward_begin_gather(c->n - 1, o, weights);
    fk_products_wait_0();
    fk_products_settle(o, FK_VALUE_DIM / 2);
    fk_forward_leave(FK_V_FREE + (c->n - 1) % 2);
}

/* All steps of an item: computes O, m and l. It waits for the K of the next step between a softmax and the end of the
 * products beside it. Any place would do there; but if nothing stands between them, nvcc moves the wait for the
 * products up, before the softmax. */
FK_DEVICE void fk_forward_steps(fk_forward_side *c, fk_forward_rows *x) {
    float s[1][FK_F_COLUMNS][4], factor[1][2], *scores = &s[0][0][0], *o = &x->o[0][0][0];
    fk_u32 weights[1][FK_F_COLUMNS * 2];
    fk_forward_keys keys;
    int more;
    fk_forward_see(c, &keys);
    fk_forward_await(FK_K_THERE, c->n);
    fk_forward_take_turn(c->consumer);
    fk_products_begin();
    fk_forward_begin_scores(c->consumer, c->n, scores);
    fk_forward_pass_turn(c->consumer);
    fk_forward_count_keys(c, &keys);
    more = fk_advance(&c->step, FK_F_STEP, keys.run->count, c->item->runs);
    fk_products_wait_0();
    fk_products_settle(scores, FK_F_STEP / 2);
    fk_forward_judge(c, &keys, more, s, x, factor);
    fk_forward_weigh(s, x, factor, weights);
    c->n++;
    if (more) fk_forward_await(FK_K_THERE, c->n);
    while (more) {
        if (!FK_OVERLAP) fk_forward_finish(c, o, weights[0]);
        fk_forward_see(c, &keys);
        fk_forward_take_turn(c->consumer);
        fk_products_begin();
        fk_forward_begin_scores(c->consumer, c->n, scores);
        if (FK_OVERLAP) {
            fk_forward_await(FK_V_THERE, c->n - 1);
            fk_products_begin();
            fk_forward_begin_gather(c->n - 1, o, weights[0]);
        }
        fk_forward_pass_turn(c->consumer);
        fk_forward_count_keys(c, &keys);
        more = fk_advance(&c->step, FK_F_STEP, keys.run->count, c->item->runs); // cost: step
        if (FK_OVERLAP) fk_products_wait_1();
        else fk_products_wait_0();
        fk_products_settle(scores, FK_F_STEP / 2);
        fk_forward_judge(c, &keys, more, s, x, factor); // cost: elements
        if (more) fk_forward_await(FK_K_THERE, c->n + 1);
        if (FK_OVERLAP) {
            fk_products_wait_0();
            fk_products_settle(o, FK_VALUE_DIM / 2);
            fk_forward_leave(FK_V_FREE + (c->n - 1) % 2);
        }
        fk_forward_weigh(s, x, factor, weights); // cost: elements
        c->n++;
    }
    fk_forward_finish(c, o, weights[0]);
}

/* A warp frees a stage that it did not read. fk_uniform makes sure that all its lanes have waited for the stage
 * before one frees it. */
FK_DEVICE void fk_forward_leave_unread(fk_u32 barrier) {
    fk_uniform(barrier);
    fk_forward_leave(barrier);
}

/* A consumer without rows frees the stages as they come. */
FK_DEVICE void fk_forward_skip(fk_forward_side *c) {
    fk_forward_leave_unread(FK_Q_FREE);
    for (int more = 1; more; c->n++) {
        fk_forward_take_turn(c->consumer);
        fk_forward_pass_turn(c->consumer);
        fk_forward_await(FK_K_THERE, c->n);
        fk_forward_leave_unread(FK_K_FREE + c->n % 2);
        fk_forward_await(FK_V_THERE, c->n);
        fk_forward_leave_unread(FK_V_FREE + c->n % 2);
        more = fk_advance(&c->step, FK_F_STEP, c->runs[c->step.run].count, c->item->runs);
    }
}

/* Does one item and head. `items`: how many items with keys this block had before. */
FK_DEVICE void fk_forward_consume(const fk_launch *p, const fk_row_item *item, fk_u32 head, fk_u32 consumer,
                                  fk_u32 items, fk_u32 *n) {
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
    if (item->runs) {
        fk_barrier_wait(fk_forward_barrier(FK_Q_THERE), items % 2);
        if (idle) fk_forward_skip(&c);
        else fk_forward_steps(&c, &x);
    }
    if (!idle) fk_forward_close(p, item, head, &x);
    *n = c.n;
}

FK_KERNEL(fk_forward_sm90, FK_F_THREADS, 1)(FK_PARAMETER fk_launch_maps maps) {
    const fk_launch *p = &maps.launch;
    fk_begin(p->mark, p->mark_value);
    fk_u32 heads = fk_forward_each(p), work = p->item_count * heads;
    fk_u32 group = fk_thread() / 128, n = 0, items = 0;
    if (fk_thread() == 0) {
        /* K and V are full when the copy engine and the producer have arrived, Q when the copy engine has; a stage is
         * free when all eight warps of the consumers have left it. */
        for (fk_u32 i = 0; i < FK_F_BARRIERS; i++)
            fk_barrier_open(fk_forward_barrier(i),
                            i < FK_K_FREE || i / 2 == FK_V_THERE / 2 ? 2 : i == FK_Q_THERE ? 1 : 8);
        fk_barrier_fence();
    }
    fk_sync();
    if (group == 0) {
        FK_F_PRODUCER_REGISTERS;
        for (fk_u32 piece = 0, i; (i = fk_piece(piece)) < work; piece++) {
            const fk_row_item *item = (const fk_row_item *)p->items + i / heads;
            if (item->runs) fk_forward_produce(&maps, item, fk_forward_first_head(p, i, heads), items++, &n);
        }
    } else {
        FK_F_CONSUMER_REGISTERS;
        if (group == 2) fk_forward_pass_turn(1);
        for (fk_u32 piece = 0, i; (i = fk_piece(piece)) < work; piece++) {
            const fk_row_item *item = (const fk_row_item *)p->items + i / heads;
            fk_forward_consume(p, item, fk_forward_first_head(p, i, heads), group - 1, items, &n);
            items += item->runs != 0;
        }
        if (group == 1) fk_forward_take_turn(0); /* the turn that the other passed last */
    }
}
