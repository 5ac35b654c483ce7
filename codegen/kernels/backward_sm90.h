/* backward_sm90.h: the backward pass for sm_90a in one kernel of five products. It adds to dK, dV and dQ. FK_ORDERED
 * says which kernel this file becomes: fk_backward_ordered_sm90 (1) or fk_backward_unordered_sm90 (0). Their orders of
 * addition are those of the kernels of backward_ordered_mma.h, where a turn is for a step.
 *
 * Requires: backward_steps.h, tiles_sm90.h; head_dim and value_dim 64, or both 128; all maps; a counter that is 0; if
 *           ordered, locks that are 0, and runs of one row of cells each with their turns. The file may be included
 *           twice, to have both kernels.
 * Grid:     any number of CTAs. Each takes its next piece of work from the counter: an item, a KV head, and all or some
 *           query heads of its group. (By head, an item is of one KV head and all heads of its group.)
 * Order:    a CTA does its pieces in the order in which it took them, and waits only for pieces that were taken before.
 *           So the oldest piece under way never waits, and any grid gives the same bits. Fused, it also waits for
 *           flags.
 * Threads:  three warpgroups. Of the first, two warps load ("loaders"); one waits for turns ("waiters"),
 *           and one adds dQ and passes turns on ("passers"), so that no thread that computes has to poll a lock. The
 *           other two warpgroups compute ("workers"). Each has 64 of the item's keys and all rows of a step.
 * Shared:   K, V; two stages of Q, dO, base, delta and minus of their rows, and a record that says which
 *           these are; two buffers of dS; dQ of a step; mbarriers; tickets (the numbers of the pieces that were taken
 *           from the counter).
 * Source:   the backward pass of FlashAttention-3, by work list; the locks are the semaphores of its deterministic
 *           mode.
 *
 * Loading:  TMA loads a whole tile. If rows of it do not exist, the loaders copy it themselves and fill up with 0,
 *           because 0 times NaN is NaN. They always copy LSE and delta themselves. Only they read the list of runs:
 *           polling a lock empties the L1 cache, so other warps that read the list would wait for global memory in
 *           every step.
 *
 * Products: S^T = K Q^T and dP^T = V dO^T have keys as rows, so that P^T and dS^T already are operands, in registers,
 *           of dV += P^T dO and dK += dS^T Q. dS also goes to shared memory, because each warpgroup computes half of
 *           dQ = dS K, for which it needs dS of all keys. If head_dim is 64, its half is 64 of 128 rows; if 128, 64 of
 *           128 columns (of 64 rows).
 *
 * dQ:       workers leave a step's dQ in shared memory, and passers let the TMA add it to memory, a row at a time. So
 *           workers wait neither for the step's turn nor for the additions. They wait only until the dQ of the step
 *           before has been read. (An instruction of a worker adds 8 bytes at most without exchanges between lanes.)
 *
 * Turns:    a turn may be passed on when the L2 cache has what was added in it. One warp that waited for
 *           that would look at the lock of its next turn only afterwards. So there are two: waiters look at the lock
 *           of turn n + 1 while dQ is added in turn n, and while passers wait until these additions are done. dQ of a
 *           step has a turn, and so have dK and dV of a piece if other pieces have the same keys. These named
 *           barriers are for turns:
 *               STEP    waiters arrive, passers wait     a turn of dQ has come
 *               TURN    waiters arrive, workers wait     a turn of dK or dV has come
 *               ADDED   workers arrive, passers wait     workers have added dK or dV
 *               NEXT    passers arrive, waiters wait     STEP or TURN has been left
 *           One of each is enough, since nobody arrives at one for a turn before all have left it for the one before:
 *             - Waiters arrive at STEP or TURN behind NEXT of the turn before. Passers arrive there when they have left
 *               STEP; or when they have left ADDED, at which workers arrive when they have left TURN.
 *             - Workers arrive at ADDED behind TURN, so behind NEXT of the turn before, at which passers arrive when
 *               they have left ADDED of that turn.
 *             - Passers arrive at NEXT behind STEP, or behind ADDED and so TURN, at which waiters arrive when they have
 *               left NEXT of the turn before.
 *           Passers wait for workers, and for a lock only where waiters have found its turn. So a turn that has come is
 *           always passed on, even if the next one of the CTA never comes.
 *
 * Overlap:  the rows of the next step are loaded while this step is computed. Within a step, products run beside other
 *           work: dQ of the step before and S begin together; then S runs while that dQ is stored to shared memory; dP,
 *           while the mask is evaluated and P is made; dV, while dS is made; dK, while dS is stored to shared memory.
 *           The first step of an item has no dQ before it. It begins that product all the same, on whatever is in the
 *           buffer, and drops the result, because no path of the loop may leave out a product (see README.md).
 *           dS has two buffers, so one barrier of both warpgroups a step is enough: a warpgroup that writes a buffer
 *           again has met the other one after that one had read it. No worker waits for additions to sums in memory.
 */
#if FK_HAS_BACKWARD_SM90(FK_HEAD_DIM, FK_VALUE_DIM)
#ifndef FK_BACKWARD_SM90
#define FK_BACKWARD_SM90

enum {
    FK_B_ROWS = FK_BACKWARD_SM90_ROWS(FK_HEAD_DIM), /* rows of a step */
    /* P and dS are made for so many rows of a step at a time; more would spill registers. */
    FK_B_PART = FK_HEAD_DIM == 128 && FK_HAS_SCORE ? 32 : 64,
    FK_B_PARTS = FK_B_ROWS / FK_B_PART,
    FK_B_COLUMNS = FK_B_PART / 8,
    FK_B_GROUP = 128,
    FK_B_LOADERS = 64,
    FK_B_WAITERS = 32,
    FK_B_PASSERS = 32,
    FK_B_WORKERS = 2 * FK_B_GROUP,
    FK_B_THREADS = FK_BACKWARD_SM90_THREADS,
    FK_B_KEYS_BYTES = FK_TILE_BYTES(FK_KEYS, FK_HEAD_DIM),
    FK_B_ROWS_BYTES = FK_TILE_BYTES(FK_B_ROWS, FK_HEAD_DIM),
    FK_B_DS_BYTES = FK_KEYS * FK_B_ROWS * 2,
    FK_B_DQ_ROW = FK_BACKWARD_SM90_DQ_ROW(FK_HEAD_DIM),
    FK_B_DQ_BYTES = FK_B_ROWS * FK_B_DQ_ROW
};

/* Named barriers. Who meets whom, and what it means. */
enum {
    FK_B_STAGE_FREE = 1, /* and 2. Workers, passers, and if ordered waiters, to loaders: we have read the stage */
    FK_B_KEYS_FREE = 3,  /* everybody to loaders: we have read K, V and the ticket before */
    FK_B_DS = 4,         /* workers among themselves: dS is there */
    FK_B_TURN,           /* waiters to workers: it is the turn of this piece to add dK, or dV */
    FK_B_ADDED,          /* workers to passers: we have added it */
    FK_B_STEP,           /* waiters to passers: it is the turn of this step to add dQ */
    FK_B_NEXT,           /* passers to waiters: FK_B_TURN, or FK_B_STEP, has been left */
    FK_B_DQ_FREE,        /* passers to workers: the place of dQ has been read */
    FK_B_DQ,             /* workers to passers: the step's dQ is in its place */
    FK_B_PASSED,         /* passers among themselves: all rows have been added */
    FK_B_TICKET          /* loaders among themselves: the ticket is there */
};

#if defined FK_NAME_WAITS
FK_NAME_WAITS(backward, "rows full, stage 0|rows full, stage 1|keys full",
              "all|rows free, stage 0|rows free, stage 1|keys free|dS of all keys|a turn of dK or dV|dK or dV added|"
              "a turn of dQ|turn taken|place of dQ free|dQ of a step|dQ added|a ticket",
              "loaders 2|waiters 1|passers 1|worker 0 4|worker 1 4")
#endif

#if FK_HEAD_DIM == 64
#define FK_B_WGMMA_S FK_WGMMA(fk_wgmma_, 128)
#define FK_B_WGMMA_SUMS FK_WGMMA(fk_wgmma_registers_, 64)
#define FK_B_LOADERS_REGISTERS fk_setmaxnreg_dec(56) /* a loader has the numbers of two rows in registers */
#define FK_B_WORKERS_REGISTERS fk_setmaxnreg_inc(224)
#else
#define FK_B_WGMMA_S FK_WGMMA(fk_wgmma_, 64)
#define FK_B_WGMMA_SUMS FK_WGMMA(fk_wgmma_registers_, 128)
/* By head, loaders follow the heads of each run. */
#define FK_B_LOADERS_REGISTERS                                                                                         \
    if (FK_BY_HEAD) fk_setmaxnreg_dec(56);                                                                             \
    else fk_setmaxnreg_dec(40)
#define FK_B_WORKERS_REGISTERS                                                                                         \
    if (FK_BY_HEAD) fk_setmaxnreg_inc(224);                                                                            \
    else fk_setmaxnreg_inc(232)
#endif
#define FK_B_WGMMA_DQ FK_WGMMA(fk_wgmma_transposed_, 64)

/* Places in shared memory. */
FK_DEVICE fk_u32 fk_b_keys(fk_u32 which) { return fk_shared() + which * FK_B_KEYS_BYTES; } /* K, V */
FK_DEVICE fk_u32 fk_b_rows(fk_u32 stage, fk_u32 which) { /* Q, dO */
    return fk_b_keys(2) + (stage * 2 + which) * FK_B_ROWS_BYTES;
}
FK_DEVICE fk_u32 fk_b_ds(fk_u32 buffer) { return fk_b_rows(2, 0) + buffer * FK_B_DS_BYTES; }
FK_DEVICE fk_u32 fk_b_dq_rows(void) { return fk_b_ds(2); }
FK_DEVICE fk_u32 fk_b_numbers(fk_u32 stage, fk_u32 which) { /* base, delta, minus */
    return fk_b_dq_rows() + FK_B_DQ_BYTES + (stage * 3 + which) * FK_B_ROWS * 4;
}
FK_DEVICE fk_u32 fk_b_record(fk_u32 stage) { return fk_b_numbers(2, 0) + stage * FK_BACKWARD_SM90_RECORD; }
FK_DEVICE fk_u32 fk_b_stage_full(fk_u32 stage) { return fk_b_record(2) + stage * 8; }
FK_DEVICE fk_u32 fk_b_keys_full(void) { return fk_b_stage_full(2); }
FK_DEVICE fk_u32 fk_b_ticket(fk_u32 piece) { return fk_b_stage_full(3) + piece % 2 * 4; }

/* The CTA's n-th piece of work, by the ticket that the loaders took. There are two places for tickets. A place is
 * written again only when the keys of the piece after it are loaded, and by then everybody has read it. */
FK_DEVICE fk_key_piece fk_b_piece(const fk_launch *p, fk_u32 n) {
    return fk_key_piece_of(p, fk_load_shared_bits(fk_b_ticket(n)));
}
/* How many threads take part when a stage becomes free. */
FK_DEVICE fk_u32 fk_b_free_threads(const int ordered) {
    return FK_B_LOADERS + FK_B_WORKERS + FK_B_PASSERS + (ordered ? FK_B_WAITERS : 0);
}

/* --- records ------------------------------------------------------------------------------------------------------ */

/* What workers need to know of a step. */
typedef struct fk_b_record_of {
    fk_i64 position;      /* of the first row */
    fk_u32 out, count;    /* the first row in dq; how many rows there are */
    fk_u32 cls, head;     /* the class of the cells (fk_b_class); the query head */
    fk_u32 more;          /* does another step of the piece follow? */
} fk_b_record_of;
/* Where the numbers of a record are. The turn and the lock are for waiters and passers. */
enum {
    FK_B_OUT = 8,
    FK_B_COUNT = 12,
    FK_B_CLASS = 16,
    FK_B_HEAD = 20,
    FK_B_MORE = 24,
    FK_B_TURN_OF = 28,
    FK_B_LOCK = 32
};

FK_DEVICE void fk_b_store_record(fk_u32 to, const fk_b_record_of *x, fk_u32 turn, fk_u64 lock) {
    fk_store_shared_long(to, (fk_u64)x->position);
    fk_store_shared_bits(to + FK_B_OUT, x->out);
    fk_store_shared_bits(to + FK_B_COUNT, x->count);
    fk_store_shared_bits(to + FK_B_CLASS, x->cls);
    fk_store_shared_bits(to + FK_B_HEAD, x->head);
    fk_store_shared_bits(to + FK_B_MORE, x->more);
    fk_store_shared_bits(to + FK_B_TURN_OF, turn);
    fk_store_shared_long(to + FK_B_LOCK, lock);
}
FK_DEVICE fk_b_record_of fk_b_load_record(fk_u32 from) {
    fk_b_record_of x;
    x.position = (fk_i64)fk_load_shared_long(from);
    x.out = fk_load_shared_bits(from + FK_B_OUT);
    x.count = fk_load_shared_bits(from + FK_B_COUNT);
    x.cls = fk_load_shared_bits(from + FK_B_CLASS);
    x.head = fk_load_shared_bits(from + FK_B_HEAD);
    x.more = fk_load_shared_bits(from + FK_B_MORE);
    return x;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* Loads K and V of an item. */
FK_DEVICE void fk_b_load_keys(const fk_launch_maps *m, const fk_key_item *item, fk_u32 kv_head) {
    const fk_launch *p = &m->launch;
    fk_u32 thread = fk_thread(), barrier = fk_b_keys_full(), count = item->count;
    if (count == FK_KEYS) {
        if (thread == 0) {
            int home = item->place == FK_AT_HOME;
            fk_mbarrier_arrive_expect(barrier, 2 * FK_B_KEYS_BYTES);
            fk_tma_load_rows(fk_b_keys(0), FK_BOXES, FK_KEYS, FK_KEYS, home ? &m->k : &m->moved_k, kv_head, item->row,
                             item->slot, barrier);
            fk_tma_load_rows(fk_b_keys(1), FK_BOXES, FK_KEYS, FK_KEYS, home ? &m->v : &m->moved_v, kv_head, item->row,
                             item->slot, barrier);
        } else fk_mbarrier_arrive(barrier);
        return;
    }
    fk_u64 from = p->arena + (fk_u64)kv_head * FK_ROW_BYTES;
    fk_copy_rows(fk_b_keys(0), FK_BOXES, FK_KEYS, thread, FK_B_LOADERS, from + item->k, fk_k_stride(p), count);
    fk_copy_rows(fk_b_keys(1), FK_BOXES, FK_KEYS, thread, FK_B_LOADERS, from + item->v, fk_k_stride(p), count);
    fk_cp_async_wait();
    fk_fence_proxy_async();
    fk_mbarrier_arrive(barrier);
}

/* The class of a run's cells for the workers: FK_FULL only if the item has all keys of a tile, too, so that they test one
 * number. 0: all pairs count of the keys that exist. */
FK_DEVICE fk_u32 fk_b_class(const fk_row_run *run, fk_u32 keys) {
    return fk_run_class(run) == FK_FULL && keys < FK_KEYS ? 0 : fk_run_class(run);
}

/* Loads the rows of the CTA's step n, which are those of a run from `at` on, and leaves their record. more: does
 * another step of the piece follow? keys: how many the item has. */
FK_DEVICE void fk_b_load_rows(const fk_launch_maps *m, const fk_row_run *run, fk_u32 at, fk_u32 head, fk_u32 more,
                              fk_u32 keys, fk_u32 n, const int ordered) {
    enum { EACH = (FK_B_ROWS + FK_B_LOADERS - 1) / FK_B_LOADERS };
    const fk_launch *p = &m->launch;
    fk_u32 thread = fk_thread(), stage = n % 2, barrier = fk_b_stage_full(stage), there = run->count - at;
    fk_u64 token = run->token + at;
    float lse[EACH], low[EACH], delta[EACH];
    FK_UNROLL
    for (fk_u32 i = 0; i < EACH; i++) {
        fk_u32 row = thread + i * FK_B_LOADERS;
        lse[i] = -fk_infinity(); /* a row that does not exist */
        low[i] = delta[i] = 0;
        if (row < FK_B_ROWS && row < there) {
            lse[i] = fk_load(fk_row(p, p->lse, token + row, head, 4));
            low[i] = fk_load(fk_row(p, p->lse_low, token + row, head, 4));
            delta[i] = fk_load(fk_row(p, p->delta, token + row, head, 4));
        }
    }
    if (n >= 2) fk_named_barrier_sync(FK_B_STAGE_FREE + stage, fk_b_free_threads(ordered));
    if (thread == FK_B_LOADERS - 1) { /* a thread that does not begin copies */
        fk_b_record_of x = {run->position + at, run->out + at, there, fk_b_class(run, keys), head, more};
        fk_b_store_record(fk_b_record(stage), &x, ordered ? run->turn : 0, ordered ? fk_row_lock(p, run, head, at) : 0);
    }
    FK_UNROLL
    for (fk_u32 i = 0; i < EACH; i++) {
        fk_u32 row = thread + i * FK_B_LOADERS;
        const fk_row_numbers x = fk_row_numbers_of(lse[i], low[i], delta[i]);
        if (row >= FK_B_ROWS) break;
        fk_store_shared(fk_b_numbers(stage, 0) + row * 4, x.base);
        fk_store_shared(fk_b_numbers(stage, 1) + row * 4, x.delta);
        fk_store_shared(fk_b_numbers(stage, 2) + row * 4, x.minus);
    }
    if (there >= FK_B_ROWS) {
        if (thread == 0) {
            fk_mbarrier_arrive_expect(barrier, 2 * FK_B_ROWS_BYTES);
            fk_tma_load_rows(fk_b_rows(stage, 0), FK_BOXES, FK_B_ROWS, FK_B_ROWS, &m->q, head, (fk_u32)token, 0,
                             barrier);
            fk_tma_load_rows(fk_b_rows(stage, 1), FK_BOXES, FK_B_ROWS, FK_B_ROWS, &m->d_o, head, (fk_u32)token, 0,
                             barrier);
        } else fk_mbarrier_arrive(barrier);
        return;
    }
    fk_copy_rows(fk_b_rows(stage, 0), FK_BOXES, FK_B_ROWS, thread, FK_B_LOADERS,
                 fk_row(p, p->q, token, head, FK_ROW_BYTES), fk_q_stride(p), there);
    fk_copy_rows(fk_b_rows(stage, 1), FK_BOXES, FK_B_ROWS, thread, FK_B_LOADERS,
                 fk_row(p, p->d_o, token, head, FK_ROW_BYTES), fk_q_stride(p), there);
    fk_cp_async_wait();
    fk_fence_proxy_async();
    fk_mbarrier_arrive(barrier);
}

/* Takes the ticket of the CTA's next piece. Fused, it also waits until what the piece reads has arrived; then the other
 * loaders, and the TMA, may read it. */
FK_DEVICE void fk_b_take(const fk_launch *p, fk_u32 done) {
    const fk_u32 ticket = fk_fetch_increment(p->counter);
    fk_store_shared_bits(fk_b_ticket(done), ticket);
    if (!FK_FUSED) return;
    const fk_key_piece piece = fk_key_piece_of(p, ticket);
    if (piece.item) fk_key_arrival(p, piece.item);
    fk_fence_proxy_async_global();
}

/* What the loaders do. */
FK_DEVICE void fk_b_load(const fk_launch_maps *m, const int ordered) {
    const fk_launch *p = &m->launch;
    fk_u32 n = 0;
    for (fk_u32 done = 0;; done++) {
        if (fk_thread() == 0) fk_b_take(p, done);
        fk_named_barrier_sync(FK_B_TICKET, FK_B_LOADERS);
        const fk_key_piece piece = fk_b_piece(p, done);
        const fk_key_item *item = piece.item;
        if (done) fk_named_barrier_sync(FK_B_KEYS_FREE, FK_B_THREADS);
        if (!item) break;
        const fk_row_run *runs = (const fk_row_run *)p->runs + item->first;
        fk_u32 head = fk_run_head(runs, piece.first, piece.first, p->group), more = 1;
        fk_step step = {0, 0};
        fk_b_load_keys(m, item, piece.kv_head);
        while (more) {
            const fk_row_run *run = runs + step.run;
            fk_u32 at = step.at, this_head = head;
            more = (fk_u32)fk_next_rows(&step, &head, FK_B_ROWS, run->count, item->runs, runs, piece.first,
                                        piece.heads);
            fk_b_load_rows(m, run, at, this_head, more, item->count, n++, ordered);
        }
    }
    fk_mbarrier_arrive(fk_b_keys_full()); /* others see the last ticket: there is no more work */
    for (fk_u32 i = n < 2 ? 0 : n - 2; i < n; i++)
        fk_named_barrier_sync(FK_B_STAGE_FREE + i % 2, fk_b_free_threads(ordered));
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* Waits for a turn and says so at a barrier of `threads` threads. first: it is the CTA's first turn. */
FK_DEVICE void fk_b_wait_turn(fk_u64 lock, fk_u32 turn, int first, fk_u32 barrier, fk_u32 threads) {
    if (fk_lane() == 0) {
        fk_acquire(lock, turn);
        fk_fence_proxy_async_global(); /* for what passers begin to add */
    }
    if (!first) fk_named_barrier_sync(FK_B_NEXT, FK_B_WAITERS + FK_B_PASSERS);
    fk_named_barrier_arrive(barrier, threads);
}

/* What the waiters do, if ordered. */
FK_DEVICE void fk_b_wait_turns(const fk_launch *p, const int ordered) {
    fk_u32 n = 0;
    for (fk_u32 done = 0;; done++) {
        fk_mbarrier_wait(fk_b_keys_full(), done % 2);
        const fk_key_piece piece = fk_b_piece(p, done);
        if (!piece.item) break;
        fk_named_barrier_arrive(FK_B_KEYS_FREE, FK_B_THREADS);
        for (fk_u32 more = ordered; more; n++) {
            fk_u32 record = fk_b_record(n % 2);
            fk_mbarrier_wait(fk_b_stage_full(n % 2), n / 2 % 2);
            fk_u64 lock = fk_load_shared_long(record + FK_B_LOCK);
            fk_u32 turn = fk_load_shared_bits(record + FK_B_TURN_OF);
            more = fk_load_shared_bits(record + FK_B_MORE);
            fk_named_barrier_arrive(FK_B_STAGE_FREE + n % 2, fk_b_free_threads(1));
            fk_b_wait_turn(lock, turn, n == 0, FK_B_STEP, FK_B_WAITERS + FK_B_PASSERS);
        }
        for (fk_u32 sum = 0; ordered && piece.item->lock != FK_NONE && sum < 2; sum++) /* of dK, then of dV */
            fk_b_wait_turn(fk_key_lock(p, &piece) + sum * 4, fk_key_turn(&piece), 0, FK_B_TURN,
                           FK_B_WAITERS + FK_B_WORKERS);
    }
    if (ordered && n > 0) fk_named_barrier_sync(FK_B_NEXT, FK_B_WAITERS + FK_B_PASSERS);
}

/* Begins to add the rows of a step's dQ, which begin at `to`; returns when they have been read. */
FK_DEVICE void fk_b_add_rows(const fk_launch *p, fk_u64 to, fk_u32 count) {
    for (fk_u32 row = fk_lane(); row < FK_B_ROWS && row < count && !FK_WITHOUT_DQ; row += 32)
        fk_bulk_add(to + row * fk_q_stride(p) * 2, fk_b_dq_rows() + row * FK_B_DQ_ROW, FK_HEAD_DIM * 4);
    fk_bulk_commit();
    fk_bulk_wait_read();
    fk_named_barrier_arrive(FK_B_DQ_FREE, FK_B_PASSERS + FK_B_WORKERS);
}

/* What the passers do: they add dQ, and if ordered pass turns on. */
FK_DEVICE void fk_b_pass_turns(const fk_launch *p, const int ordered) {
    fk_u32 n = 0;
    fk_named_barrier_arrive(FK_B_DQ_FREE, FK_B_PASSERS + FK_B_WORKERS);
    for (fk_u32 done = 0;; done++) {
        fk_mbarrier_wait(fk_b_keys_full(), done % 2);
        const fk_key_piece piece = fk_b_piece(p, done);
        if (!piece.item) break;
        fk_named_barrier_arrive(FK_B_KEYS_FREE, FK_B_THREADS);
        for (fk_u32 more = 1; more; n++) {
            fk_mbarrier_wait(fk_b_stage_full(n % 2), n / 2 % 2);
            const fk_b_record_of rows = fk_b_load_record(fk_b_record(n % 2));
            fk_u64 lock = fk_load_shared_long(fk_b_record(n % 2) + FK_B_LOCK);
            fk_u32 turn = fk_load_shared_bits(fk_b_record(n % 2) + FK_B_TURN_OF);
            fk_named_barrier_arrive(FK_B_STAGE_FREE + n % 2, fk_b_free_threads(ordered));
            fk_named_barrier_sync(FK_B_DQ, FK_B_PASSERS + FK_B_WORKERS);
            if (ordered) {
                fk_named_barrier_sync(FK_B_STEP, FK_B_WAITERS + FK_B_PASSERS);
                fk_named_barrier_arrive(FK_B_NEXT, FK_B_WAITERS + FK_B_PASSERS);
            }
            fk_b_add_rows(p, fk_row(p, p->dq, rows.out, rows.head, FK_HEAD_DIM * 4), rows.count);
            if (ordered) {
                fk_bulk_wait();
                fk_named_barrier_sync(FK_B_PASSED, FK_B_PASSERS);
                if (fk_lane() == 0) fk_release(lock, turn + 1);
            }
            more = rows.more;
        }
        for (fk_u32 sum = 0; ordered && piece.item->lock != FK_NONE && sum < 2; sum++) {
            fk_named_barrier_sync(FK_B_ADDED, FK_B_PASSERS + FK_B_WORKERS);
            fk_named_barrier_arrive(FK_B_NEXT, FK_B_WAITERS + FK_B_PASSERS);
            if (fk_lane() == 0) fk_release(fk_key_lock(p, &piece) + sum * 4, fk_key_turn(&piece) + 1);
        }
    }
    fk_bulk_wait();
}

/* --- working ------------------------------------------------------------------------------------------------------ */

/* Begins S = (this worker's 64 rows of K, which begin at `keys`) times (the rows at `rows`). */
FK_DEVICE void fk_b_scores(float *c, fk_u32 keys, fk_u32 rows) {
    keys = fk_uniform(keys);
    rows = fk_uniform(rows);
    fk_wgmma_fence();
    FK_UNROLL
    for (fk_u32 k = 0; k < FK_HEAD_DIM / 16; k++)
        FK_B_WGMMA_S(c, fk_descriptor_k_major(keys, FK_KEYS, 0, k), fk_descriptor_k_major(rows, FK_B_ROWS, 0, k),
                     k > 0);
    fk_wgmma_commit();
}
/* How many rows of a step a product dP is for. S is one product for all of them, because every product reads the
 * worker's keys again; but by head there are fewer registers. */
FK_DEVICE fk_u32 fk_b_dp_rows(void) { return FK_HEAD_DIM == 128 && FK_HAS_SCORE && FK_BY_HEAD ? 32 : 64; }
/* Begins dP = (this worker's 64 rows of V, which begin at `keys`) times (those of the rows at `rows` from `first`). */
FK_DEVICE void fk_b_dp(float *c, fk_u32 keys, fk_u32 rows, fk_u32 first) {
    keys = fk_uniform(keys);
    rows = fk_uniform(rows);
    fk_wgmma_fence();
    FK_UNROLL
    for (fk_u32 k = 0; k < FK_HEAD_DIM / 16; k++) {
        const fk_u64 a = fk_descriptor_k_major(keys, FK_KEYS, 0, k);
        const fk_u64 b = fk_descriptor_k_major(rows, FK_B_ROWS, first, k);
        if (fk_b_dp_rows() == 32) FK_WGMMA(fk_wgmma_, 32)(c, a, b, k > 0);
        else FK_WGMMA(fk_wgmma_, 64)(c, a, b, k > 0);
    }
    fk_wgmma_commit();
}
/* Begins c += packed times rows, where packed is 64 keys by FK_B_PART rows in the input type. */
FK_DEVICE void fk_b_sums(float *c, const fk_u32 (*packed)[2], fk_u32 rows, fk_u32 part) {
    rows = fk_uniform(rows);
    fk_wgmma_fence();
    FK_UNROLL
    for (fk_u32 k = 0; k < FK_B_PART / 16; k++) {
        FK_B_WGMMA_SUMS(c, packed[2 * k], fk_descriptor_mn_major(rows, FK_B_ROWS, part * (FK_B_PART / 16) + k, 0), 1);
    }
    fk_wgmma_commit();
}
/* Begins c = this worker's half of dQ: its 64 rows of dS times K, or dS times its 64 columns of K. */
FK_DEVICE void fk_b_dq(float *c, fk_u32 ds, fk_u32 worker) {
    fk_u32 keys = fk_uniform(fk_b_keys(0) + (FK_HEAD_DIM == 64 ? 0 : worker * (FK_KEYS * FK_TILE_ROW)));
    ds = fk_uniform(ds + (FK_HEAD_DIM == 64 ? worker * (FK_KEYS * FK_TILE_ROW) : 0));
    fk_wgmma_fence();
    FK_UNROLL
    for (fk_u32 k = 0; k < FK_KEYS / 16; k++)
        FK_B_WGMMA_DQ(c, fk_descriptor_mn_major(ds, FK_KEYS, k, 0), fk_descriptor_mn_major(keys, FK_KEYS, k, 0), k > 0);
    fk_wgmma_commit();
}

typedef struct fk_b_sums_of {
    float k[FK_CHUNKS][4], v[FK_CHUNKS][4];
} fk_b_sums_of;

/* In a step with a far row: makes of S of a part what fk_weight wants. minus_at: where the numbers `minus` are. */
FK_DEVICE void fk_b_minus(const fk_launch *p, float (*s)[4], fk_u32 minus_at) {
    const float per_logit = fk_per_logit(p);
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_B_COLUMNS; j++) {
        float minus[2];
        fk_load_shared2(minus, minus_at + j * 32);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) s[j][i] = fk_minus(p, s[j][i], minus[i % 2], per_logit);
    }
}

/* Turns S of a part into P times the slopes, in place, and packs P in the input type. base_at, minus_at: where these
 * numbers of the part's rows are. full: all pairs count; else those whose bits are set. */
FK_DEVICE void fk_b_weights(const fk_launch *p, const fk_env *env, float (*s)[4], fk_u32 (*packed)[2], fk_u32 base_at,
                            fk_u32 minus_at, const int full, const fk_u32 *allowed, fk_i64 row, fk_i64 key,
                            fk_u32 head) {
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_B_COLUMNS; j++) {
        float base[2], minus[2] = {0, 0}, slopes[4];
        fk_load_shared2(base, base_at + j * 32);
        if (FK_HAS_SCORE) fk_load_shared2(minus, minus_at + j * 32);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            float weight = fk_weight(p, env, s[j][i], minus[i % 2], base[i % 2], row + j * 8 + i % 2,
                                     key + i / 2 * 8, head, &slopes[i]);
            s[j][i] = full || fk_mask_bit(allowed, i / 2, j, i % 2) ? weight : 0;
        }
        packed[j][0] = fk_pack(s[j][0], s[j][1]);
        packed[j][1] = fk_pack(s[j][2], s[j][3]);
#if FK_HAS_SCORE
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) s[j][i] = fk_times(s[j][i], slopes[i]);
#endif
    }
}

/* Makes dS of a part from P and dP, in place of P, and packs it in the input type. If the part is full, nothing has to
 * be selected: P is 0 for rows that do not exist, and all others see all keys. */
FK_DEVICE void fk_b_gradients(float (*s)[4], const float (*g)[4], fk_u32 (*packed)[2], fk_u32 delta_at,
                              const int full) {
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_B_COLUMNS; j++) {
        float delta[2];
        fk_load_shared2(delta, delta_at + j * 32);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++)
            s[j][i] = full && !FK_HAS_SCORE ? s[j][i] * (g[j][i] - delta[i % 2])
                                            : fk_gradient(s[j][i], g[j][i], delta[i % 2]);
        packed[j][0] = fk_pack(s[j][0], s[j][1]);
        packed[j][1] = fk_pack(s[j][2], s[j][3]);
    }
}

/* Writes packed dS to shared memory, after all of it was made: a load of delta would wait for a store before it. own:
 * the lane's first key. ds: the box of dS that has the part, which begins at its chunk `chunk`. */
FK_DEVICE void fk_b_store_ds(const fk_u32 (*packed)[2], fk_u32 ds, fk_u32 chunk, fk_u32 own) {
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_B_COLUMNS; j++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 key = own + half * 8;
            fk_store_shared_bits(ds + key * FK_TILE_ROW + ((chunk + j) ^ key % 8) * 16 + fk_lane() % 4 * 4,
                                 packed[j][half]);
        }
}

/* Does step n, up to the barrier behind which dS of both workers is in shared memory. The product S has begun already.
 * first_key: the position of the item's first key. */
FK_DEVICE void fk_b_step(const fk_launch *p, const fk_env *env, fk_i64 first_key, fk_u32 keys,
                         const fk_b_record_of *rows, fk_u32 n, const int ordered, float (*all)[4], fk_b_sums_of *x) {
    fk_u32 stage = n % 2, worker = fk_thread() / FK_B_GROUP - 1, t = fk_lane() % 4 * 2;
    fk_u32 own = worker * 64 + fk_warp() % 4 * 16 + fk_lane() / 4;
    int full = rows->cls == FK_FULL;
    fk_u32 q = fk_b_rows(stage, 0), d_o = fk_b_rows(stage, 1), ds = fk_b_ds(stage);
    fk_i64 row = rows->position + t, key = first_key + own;
    float dp[8][4];
    fk_u32 p_packed[FK_B_COLUMNS][2], ds_packed[FK_B_COLUMNS][2];
    FK_UNROLL
    for (fk_u32 part = 0; part < FK_B_PARTS; part++) {
        float(*s)[4] = all + part * FK_B_COLUMNS;
        float(*g)[4] = dp + part * FK_B_PART % fk_b_dp_rows() / 8;
        const int begins = part * FK_B_PART % fk_b_dp_rows() == 0; /* a product dP begins with this part */
        fk_u32 numbers = (part * FK_B_PART + t) * 4;
        fk_u32 allowed[2] = {0, 0};
        if (begins) fk_b_dp(g[0], fk_b_keys(1) + worker * (64 * FK_TILE_ROW), d_o, part * FK_B_PART);
        if (!full) {
            fk_mask_bits(env, rows->cls == FK_PARTIAL, 1, FK_B_COLUMNS, key, row + part * FK_B_PART, FK_B_PART,
                         rows->head, allowed); // cost: PARTIAL
            FK_UNROLL
            for (fk_u32 half = 0; half < 2; half++)
                if (own + half * 8 >= keys) allowed[half] = 0; // cost: PARTIAL
        }
        fk_wgmma_wait_1();
        if (part == 0) fk_wgmma_settle(all[0], FK_B_ROWS / 2);
        fk_u32 base = fk_b_numbers(stage, 0) + numbers, delta = fk_b_numbers(stage, 1) + numbers;
        fk_u32 minus = fk_b_numbers(stage, 2) + numbers;
        fk_i64 first_row = row + part * FK_B_PART;
        if (fk_some_far(fk_b_numbers(stage, 2) + part * FK_B_PART * 4, FK_B_PART))
            fk_b_minus(p, s, minus); // cost: seldom
        if (full)
            fk_b_weights(p, env, s, p_packed, base, minus, 1, allowed, first_row, key,
                         rows->head); // cost: FULL elements
        else
            fk_b_weights(p, env, s, p_packed, base, minus, 0, allowed, first_row, key,
                         rows->head); // cost: PARTIAL elements
        fk_b_sums(x->v[0], (const fk_u32 (*)[2])p_packed, d_o, part);
        fk_wgmma_wait_1();
        if (begins) fk_wgmma_settle(g[0], fk_b_dp_rows() / 2);
        if (full) fk_b_gradients(s, (const float (*)[4])g, ds_packed, delta, 1); // cost: FULL elements
        else fk_b_gradients(s, (const float (*)[4])g, ds_packed, delta, 0); // cost: PARTIAL elements
        fk_b_store_ds((const fk_u32(*)[2])ds_packed,
                      ds + part * FK_B_PART / FK_BOX * (FK_KEYS * FK_TILE_ROW), // cost: elements
                      part * FK_B_COLUMNS % 8, own);
        fk_b_sums(x->k[0], (const fk_u32(*)[2])ds_packed, q, part);
    }
    fk_fence_proxy_async();
    fk_named_barrier_sync(FK_B_DS, FK_B_WORKERS);
    fk_wgmma_wait_0();
    fk_named_barrier_arrive(FK_B_STAGE_FREE + stage, fk_b_free_threads(ordered));
}

/* Leaves this worker's half of a step's dQ where passers find it. A row has 32 bytes more than it needs, so that eight
 * rows lie in different banks. */
FK_DEVICE void fk_b_leave_dq(const fk_launch *p, const float (*dq)[4]) {
    fk_u32 worker = fk_thread() / FK_B_GROUP - 1, row = fk_warp() % 4 * 16 + fk_lane() / 4, column = fk_lane() % 4 * 2;
    if (FK_HEAD_DIM == 64) row += worker * 64;
    else column += worker * 64;
    fk_u32 to = fk_b_dq_rows() + row * FK_B_DQ_ROW + column * 4;
    fk_named_barrier_sync(FK_B_DQ_FREE, FK_B_PASSERS + FK_B_WORKERS);
    FK_UNROLL
    for (fk_u32 j = 0; j < 8; j++) FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++)
        fk_store_shared2(to + half * 8 * FK_B_DQ_ROW + j * 32, p->scale * dq[j][half * 2],
                         p->scale * dq[j][half * 2 + 1]);
    fk_fence_proxy_async();
    fk_named_barrier_arrive(FK_B_DQ, FK_B_PASSERS + FK_B_WORKERS);
}

/* Does all steps of a piece. n counts the steps of the CTA; the next piece begins with the one that this returns. */
FK_DEVICE fk_u32 fk_b_work_piece(const fk_launch *p, const fk_key_piece *piece, const int ordered, fk_u32 n) {
    const fk_key_item *item = piece->item;
    fk_u32 kv_head = piece->kv_head, keys = item->count;
    fk_u32 worker = fk_thread() / FK_B_GROUP - 1, row = worker * 64 + fk_warp() % 4 * 16;
    fk_env env = fk_env_of(p, item->sequence);
    fk_b_sums_of x;
    float last_dq[8][4];
    int behind = 0;
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_CHUNKS; j++)
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) x.k[j][i] = x.v[j][i] = 0;
    for (;; n++) {
        float s[FK_B_ROWS / 8][4], dq[8][4];
        fk_mbarrier_wait(fk_b_stage_full(n % 2), n / 2 % 2);
        const fk_b_record_of rows = fk_b_load_record(fk_b_record(n % 2)); // cost: step
        fk_b_dq(dq[0], fk_b_ds(1 - n % 2), worker);
        fk_b_scores(s[0], fk_b_keys(0) + worker * (64 * FK_TILE_ROW), fk_b_rows(n % 2, 0));
        fk_wgmma_wait_1();
        fk_wgmma_settle(dq[0], 32);
        if (behind) fk_b_leave_dq(p, (const float(*)[4])dq);
        fk_b_step(p, &env, item->position, keys, &rows, n, ordered, s, &x);
        behind = 1;
        if (!rows.more) break;
    }
    fk_b_dq(last_dq[0], fk_b_ds(n % 2), worker);
    fk_wgmma_wait_0();
    fk_wgmma_settle(last_dq[0], 32);
    fk_named_barrier_arrive(FK_B_KEYS_FREE, FK_B_THREADS);
    fk_b_leave_dq(p, (const float(*)[4])last_dq);
    fk_wgmma_settle(x.k[0], FK_HEAD_DIM / 2);
    fk_wgmma_settle(x.v[0], FK_HEAD_DIM / 2);
    fk_u64 stride = fk_k_stride(p) * 2, at_key = (fk_u64)kv_head * FK_ROW_BYTES * 2;
    int turns = ordered && item->lock != FK_NONE;
    if (turns) fk_named_barrier_sync(FK_B_TURN, FK_B_WAITERS + FK_B_WORKERS);
    fk_add_sums_atomically(p->arena + item->dk + at_key, stride, row, keys, p->scale, FK_CHUNKS, 1,
                           (const float(*)[4])x.k, (int)item->begins);
    if (turns) fk_named_barrier_arrive(FK_B_ADDED, FK_B_PASSERS + FK_B_WORKERS);
    /* another piece may add to dK meanwhile */
    if (turns) fk_named_barrier_sync(FK_B_TURN, FK_B_WAITERS + FK_B_WORKERS);
    fk_add_sums_atomically(p->arena + item->dv + at_key, stride, row, keys, 1, FK_CHUNKS, 1, (const float(*)[4])x.v,
                           (int)item->begins);
    if (turns) fk_named_barrier_arrive(FK_B_ADDED, FK_B_PASSERS + FK_B_WORKERS);
    return n + 1;
}

/* What the workers do. */
FK_DEVICE void fk_b_work(const fk_launch *p, const int ordered) {
    fk_u32 n = 0;
    for (fk_u32 done = 0;; done++) {
        fk_mbarrier_wait(fk_b_keys_full(), done % 2);
        const fk_key_piece piece = fk_b_piece(p, done);
        if (!piece.item) break;
        n = fk_b_work_piece(p, &piece, ordered, n);
    }
    fk_named_barrier_sync(FK_B_DQ_FREE, FK_B_PASSERS + FK_B_WORKERS);
}

FK_DEVICE void fk_b_roles(const fk_launch_maps *m, const int ordered) {
    const fk_launch *p = &m->launch;
    FK_WATCH();
    fk_begin(p->mark, p->mark_value);
    if (fk_thread() == 0) {
        fk_mbarrier_init(fk_b_stage_full(0), FK_B_LOADERS);
        fk_mbarrier_init(fk_b_stage_full(1), FK_B_LOADERS);
        fk_mbarrier_init(fk_b_keys_full(), FK_B_LOADERS);
        fk_mbarrier_init_fence();
    }
    fk_sync();
    if (fk_thread() < FK_B_GROUP) {
        FK_B_LOADERS_REGISTERS;
        if (fk_thread() < FK_B_LOADERS) fk_b_load(m, ordered);
        else if (fk_thread() < FK_B_LOADERS + FK_B_WAITERS) fk_b_wait_turns(p, ordered);
        else fk_b_pass_turns(p, ordered);
    } else {
        FK_B_WORKERS_REGISTERS;
        fk_b_work(p, ordered);
    }
}
#endif

#if FK_ORDERED
FK_KERNEL(fk_backward_ordered_sm90, FK_B_THREADS, 1)(FK_PARAMETER fk_launch_maps maps) { fk_b_roles(&maps, 1); }
#else
FK_KERNEL(fk_backward_unordered_sm90, FK_B_THREADS, 1)(FK_PARAMETER fk_launch_maps maps) { fk_b_roles(&maps, 0); }
#endif
#endif
