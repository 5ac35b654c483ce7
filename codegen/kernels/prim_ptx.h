/* prim_ptx.h: the primitives of prim.h as PTX, for NVRTC, sm_80 and later, without any header.
 *
 * An instruction that orders or writes memory is volatile and clobbers "memory", so that the compiler leaves it where
 * it is. Arithmetic instructions are neither, so that the compiler may move them.
 */
#ifndef FK_PRIM_PTX_H
#define FK_PRIM_PTX_H
#define FK_DEVICE static __device__ __forceinline__
#define FK_KERNEL(name, threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) name
#define FK_PARAMETER const __grid_constant__
#define FK_UNROLL _Pragma("unroll")
#define FK_UNROLL_SOME _Pragma("unroll 2") /* twice hides the latency; more would only take registers */
#define FK_ROLL _Pragma("unroll 1")

/* Three switches for builds that look for faults, or for time. FK_BOUND limits every wait but those at named barriers
 * to so many nanoseconds. The first wait that would last longer writes down what it waits for (fk_gave_up, which the
 * host reads after the kernel); then all waits end at once, and results are wrong. FK_WAITED adds up how long warps
 * wait, and for what. FK_DELAY makes each CTA begin after a random delay. */
#ifndef FK_BOUND
#define FK_BOUND 0
#endif
#ifndef FK_WAITED
#define FK_WAITED 0
#endif
#ifndef FK_DELAY
#define FK_DELAY 0
#endif
/* Times of waits have 32 bits, because these kernels have few registers left: a wait must not last 4 seconds. */
#define FK_CLOCK(name, type, ptx, x)                                                                                   \
    FK_DEVICE type name(void) {                                                                                        \
        type now;                                                                                                      \
        asm volatile(ptx ";" : "=" x(now)::"memory");                                                                  \
        return now;                                                                                                    \
    }
#if FK_BOUND || FK_WAITED
/* The names of a kernel's waits, for the host (abi.h). They stand in the kernel's own file, beside what they name: a
 * string of mbarriers in the order of their places, one of named barriers from 0 on, and one of roles with their
 * numbers of warps. A '|' is between two names. */
#define FK_NAME_WAITS(kernel, mbarriers, barriers, roles)                                                              \
    extern "C" {                                                                                                       \
    __device__ char fk_##kernel##_mbarriers[] = mbarriers;                                                             \
    __device__ char fk_##kernel##_barriers[] = barriers;                                                               \
    __device__ char fk_##kernel##_roles[] = roles;                                                                     \
    }
extern "C" {
__device__ fk_u32 fk_first_mbarrier[1];
}
/* Which wait for an mbarrier it is: mbarriers are numbered by their addresses, modulo 16. */
FK_DEVICE fk_u32 fk_shared(void);
#define FK_WAIT_OF_MBARRIER(address) (FK_WAIT_MBARRIER + ((address)-fk_shared()) / 8 % 16)
#define FK_NOTE_MBARRIER(address)                                                                                      \
    asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(fk_first_mbarrier)),        \
                 "r"(FK_PLACE_LAST - ((address)-fk_shared()))                                                          \
                 : "memory")
#else
#define FK_NOTE_MBARRIER(address)
#endif
#if FK_BOUND
/* fk_gave_up: abi.h. fk_waits: what each warp of each CTA waits for now, and from its 8th bit on for which number; 0:
 * for nothing. */
extern "C" {
__device__ fk_u32 fk_gave_up[FK_GAVE_UP], fk_first_gives_up[1];
__device__ fk_u32 fk_waits[FK_WAIT_CTAS * FK_WAIT_WARPS];
}
FK_CLOCK(fk_nanoseconds, fk_u32, "mov.u32 %0, %%globaltimer_lo", "r")
FK_DEVICE fk_u32 *fk_waits_of(fk_u32 warp) { return fk_waits + blockIdx.x % FK_WAIT_CTAS * FK_WAIT_WARPS + warp; }
/* Writes x into this warp's place; its first lane does. The address is made here each time: a compiler would keep it in
 * registers that these kernels do not have. */
FK_DEVICE void fk_waits_for(fk_u32 x) {
    asm volatile(
        "{ .reg .pred p; .reg .u32 t, w, c; .reg .u64 a, b; mov.u32 t, %%tid.x; mov.u32 c, %%ctaid.x; "
        "and.b32 c, c, %1; shr.u32 w, t, 5; mad.lo.s32 c, c, %2, w; and.b32 t, t, 31; setp.eq.s32 p, t, 0; "
        "mov.u64 b, fk_waits; mul.wide.u32 a, c, 4; add.s64 a, a, b; @p st.volatile.global.u32 [a], %0; }" ::"r"(x),
        "n"(FK_WAIT_CTAS - 1), "n"(FK_WAIT_WARPS + 0)
        : "memory");
}
FK_DEVICE fk_u32 fk_gives_up(fk_u32 begun, fk_u32 what, fk_u64 address, fk_u32 value) {
    if (*(volatile fk_u32 *)fk_gave_up == 0) {
        if (fk_nanoseconds() - begun < FK_BOUND) return 0;
        if (atomicAdd(fk_first_gives_up, 1)) return 0; /* another writes it down, while all still wait */
        fk_gave_up[1] = what;
        fk_gave_up[2] = (fk_u32)address;
        fk_gave_up[3] = value;
        fk_gave_up[4] = blockIdx.x;
        fk_gave_up[5] = threadIdx.x;
        FK_ROLL
        for (fk_u32 i = 0; i < FK_WAIT_WARPS; i++)
            fk_gave_up[6 + i] = i * 32 < blockDim.x ? *(volatile fk_u32 *)fk_waits_of(i) : 0;
    }
    atomicAdd(fk_gave_up, 1);
    return 1;
}
#define FK_BEGUN(what, value)                                                                                          \
    const fk_u32 begun = fk_nanoseconds();                                                                             \
    fk_waits_for((what) + 1 + ((value) << 8))
#define FK_ENDED(what) fk_waits_for(0)
#else
#define fk_gives_up(begun, what, address, value) 0
#endif
#if FK_WAITED
extern "C" {
__device__ fk_u64 fk_waited[FK_WAIT_WARPS * FK_WAITS];
}
FK_CLOCK(fk_clock, fk_u32, "mov.u32 %0, %%clock", "r")
FK_CLOCK(fk_clock_long, fk_u64, "mov.u64 %0, %%clock64", "l")
FK_CLOCK(fk_nanoseconds_long, fk_u64, "mov.u64 %0, %%globaltimer", "l")
/* Adds to a number of this warp; its first lane does. The address is made here each time: a compiler would keep it in
 * registers that these kernels do not have. */
FK_DEVICE void fk_waited_add(fk_u32 what, fk_u64 x) {
    asm volatile("{ .reg .pred p; .reg .u32 t, w; .reg .u64 a, b; mov.u32 t, %%tid.x; shr.u32 w, t, 5; "
                 "mad.lo.s32 w, w, %2, %0; and.b32 t, t, 31; setp.eq.s32 p, t, 0; mov.u64 b, fk_waited; "
                 "mul.wide.u32 a, w, 8; add.s64 a, a, b; @p red.relaxed.gpu.global.add.u64 [a], %1; }" ::"r"(what),
                 "l"(x), "n"(FK_WAITS + 0)
                 : "memory");
}
/* A warp of an attention kernel, from its begin to its end. Differences are made in memory, which takes no register. */
struct fk_watch {
    __device__ __forceinline__ fk_watch() {
        fk_waited_add(FK_WAIT_WHOLE, 0 - fk_clock_long());
        fk_waited_add(FK_WAIT_NANOSECONDS, 0 - fk_nanoseconds_long());
    }
    __device__ __forceinline__ ~fk_watch() {
        fk_waited_add(FK_WAIT_WHOLE, fk_clock_long());
        fk_waited_add(FK_WAIT_NANOSECONDS, fk_nanoseconds_long());
    }
};
#define FK_WATCH() const fk_watch watch
#if FK_BOUND
#error "a build either bounds waits or times them"
#endif
#define FK_BEGUN(what, value) const fk_u32 begun = fk_clock()
#define FK_ENDED(what) fk_waited_add(what, fk_clock() - begun)
#endif
#ifndef FK_BEGUN
#define FK_BEGUN(what, value)
#define FK_ENDED(what)
#endif
#if FK_DELAY
FK_DEVICE void fk_delay(void) { /* up to a millisecond */
    fk_u32 x = (fk_u32)(clock64() >> 14) * 2654435761u ^ (blockIdx.x + 1) * 2246822519u;
    asm volatile("nanosleep.u32 %0;" ::"r"((x >> 8) % 1000000));
}
#endif

FK_DEVICE fk_u32 fk_thread(void) { return threadIdx.x; }
FK_DEVICE fk_u32 fk_cta(void) { return blockIdx.x; }
FK_DEVICE fk_u32 fk_ctas(void) { return gridDim.x; }
FK_DEVICE fk_u32 fk_shared(void) {
    extern __shared__ __align__(1024) unsigned char fk_shared_memory[];
    return (fk_u32)__cvta_generic_to_shared(fk_shared_memory);
}
FK_DEVICE fk_u32 fk_popcount(fk_u32 x) {
    fk_u32 count;
    asm("popc.b32 %0, %1;" : "=r"(count) : "r"(x));
    return count;
}
FK_DEVICE void fk_sync(void) {
    FK_BEGUN(FK_WAIT_BARRIER, 0);
    asm volatile("bar.sync 0;" ::: "memory");
    FK_ENDED(FK_WAIT_BARRIER);
}

FK_DEVICE void fk_cp_async(fk_u32 to, fk_u64 from, fk_u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
FK_DEVICE void fk_cp_async_wait(void) {
    FK_BEGUN(FK_WAIT_COPIES, 0);
    asm volatile("cp.async.wait_all;" ::: "memory");
    FK_ENDED(FK_WAIT_COPIES);
}

/* Loads and stores of one number: the name, the instruction, the types of address and number, and their constraints. */
#define FK_LOAD(name, ptx, address, a, number, x)                                                                      \
    FK_DEVICE number name(address from) {                                                                              \
        number value;                                                                                                  \
        asm volatile(ptx " %0, [%1];" : "=" x(value) : a(from) : "memory");                                            \
        return value;                                                                                                  \
    }
#define FK_STORE(name, ptx, address, a, number, x)                                                                     \
    FK_DEVICE void name(address to, number value) { asm volatile(ptx " [%0], %1;" ::a(to), x(value) : "memory"); }
FK_STORE(fk_store_shared, "st.shared.f32", fk_u32, "r", float, "f")
FK_STORE(fk_store_shared_bits, "st.shared.u32", fk_u32, "r", fk_u32, "r")
FK_STORE(fk_store_shared_long, "st.shared.u64", fk_u32, "r", fk_u64, "l")
FK_LOAD(fk_load_shared_bits, "ld.shared.u32", fk_u32, "r", fk_u32, "r")
FK_LOAD(fk_load_shared_long, "ld.shared.u64", fk_u32, "r", fk_u64, "l")
FK_LOAD(fk_load, "ld.global.f32", fk_u64, "l", float, "f")
FK_LOAD(fk_load_bits, "ld.global.u32", fk_u64, "l", fk_u32, "r")
FK_STORE(fk_store, "st.global.f32", fk_u64, "l", float, "f")
FK_STORE(fk_store_bits, "st.global.u32", fk_u64, "l", fk_u32, "r")
FK_LOAD(fk_load_byte, "ld.global.u8", fk_u64, "l", fk_u32, "r")
FK_STORE(fk_store_byte, "st.global.u8", fk_u64, "l", fk_u32, "r")
FK_STORE(fk_store_host_bits, "st.relaxed.sys.global.u32", fk_u64, "l", fk_u32, "r")
#undef FK_LOAD
#undef FK_STORE
FK_DEVICE void fk_load_shared2(float out[2], fk_u32 from) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(out[0]), "=f"(out[1]) : "r"(from) : "memory");
}
FK_DEVICE void fk_store_shared2(fk_u32 to, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}
FK_DEVICE void fk_load2(float out[2], fk_u64 from) {
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(out[0]), "=f"(out[1]) : "l"(from) : "memory");
}
FK_DEVICE void fk_store2(fk_u64 to, float a, float b) {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
}
FK_DEVICE void fk_load4(float out[4], fk_u64 from) {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
                 : "l"(from)
                 : "memory");
}
FK_DEVICE void fk_store4(fk_u64 to, const float x[4]) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
}
FK_DEVICE void fk_load_bits4(fk_u32 out[4], fk_u64 from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(from)
                 : "memory");
}
FK_DEVICE void fk_store_bits4(fk_u64 to, const fk_u32 x[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

FK_DEVICE void fk_add_global2(fk_u64 to, float a, float b) {
/* One instruction adds two numbers. Devices before sm_90 need one for each, and so does the ptxas of CUDA 12.0. */
#if __CUDA_ARCH__ >= 900 && (__CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 1)
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
#else
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(a) : "memory");
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to + 4), "f"(b) : "memory");
#endif
}

FK_DEVICE void fk_add_global_long(fk_u64 to, fk_i64 x) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(to), "l"(x) : "memory");
}

/* Among floats of one sign, comparing the bits as whole numbers gives the order of the floats, or for negative ones the
 * reverse order. */
FK_DEVICE void fk_max_global(fk_u64 to, float x) {
    fk_u32 bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));
    if (bits >> 31) asm volatile("red.relaxed.gpu.global.min.u32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
    else asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(to), "r"(bits) : "memory");
}

FK_DEVICE fk_u32 fk_fetch_increment(fk_u64 counter) {
    fk_u32 x;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(x) : "l"(counter) : "memory");
    return x;
}
/* `inc` makes 0 of the number that it is given, and adds 1 to any other. */
FK_DEVICE fk_u32 fk_fetch_ticket(fk_u64 counter, fk_u32 last) {
    fk_u32 x;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(x) : "l"(counter), "r"(last) : "memory");
    return x;
}
FK_DEVICE fk_u32 fk_comes_last(fk_u64 counter, fk_u32 count) {
    fk_u32 before = 0;
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    if (threadIdx.x % 32 == 0)
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(counter), "r"(count - 1)
                     : "memory");
    asm volatile("shfl.sync.idx.b32 %0, %0, 0, 0x1f, 0xffffffff;" : "+r"(before)::"memory");
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); /* what one lane may read now, all may */
    return before == count - 1;
}
FK_DEVICE void fk_acquire(fk_u64 lock, fk_u32 x) {
    fk_u32 is;
    FK_BEGUN(FK_WAIT_TURN, x);
    /* Each look empties the L1 cache. A fence behind relaxed looks would do so once, but would also wait until this
     * SM's own writes have reached the L2 cache, which are those of the turn before. */
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is) : "l"(lock) : "memory");
    while (is != x && !fk_gives_up(begun, FK_WAIT_TURN, lock, x));
    FK_ENDED(FK_WAIT_TURN);
}
FK_DEVICE void fk_wait_arrival(fk_u64 flag) {
    fk_u32 is;
    FK_BEGUN(FK_WAIT_ARRIVAL, 1);
    do asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(is) : "l"(flag) : "memory");
    while (is != 1 && !fk_gives_up(begun, FK_WAIT_ARRIVAL, flag, 1));
    FK_ENDED(FK_WAIT_ARRIVAL);
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
FK_DEVICE void fk_release(fk_u64 lock, fk_u32 x) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(lock), "r"(x) : "memory");
}

FK_DEVICE void fk_ldmatrix(fk_u32 out[4], fk_u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
}
FK_DEVICE void fk_ldmatrix_trans(fk_u32 out[4], fk_u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
}
#define FK_MMA(type)                                                                                                   \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "   \
        "{%0, %1, %2, %3};"                                                                                            \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
FK_DEVICE void fk_mma_bf16(float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) { FK_MMA("bf16"); }
FK_DEVICE void fk_mma_fp16(float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) { FK_MMA("f16"); }
#undef FK_MMA
FK_DEVICE float fk_shuffle_xor(float x, fk_u32 mask) {
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "r"(mask));
    return y;
}
FK_DEVICE fk_u32 fk_shuffle_xor_bits(fk_u32 x, fk_u32 mask) {
    fk_u32 y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x), "r"(mask));
    return y;
}
FK_DEVICE fk_u32 fk_any(fk_u32 x) { return (fk_u32)__any_sync(0xffffffff, (int)x); }

FK_DEVICE fk_u32 fk_pack_bf16(float low, float high) {
    fk_u32 x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
FK_DEVICE fk_u32 fk_pack_fp16(float low, float high) {
    fk_u32 x;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
FK_DEVICE void fk_unpack_bf16(float out[2], fk_u32 x) {
    asm("mov.b32 %0, %1;" : "=f"(out[0]) : "r"(x << 16));
    asm("mov.b32 %0, %1;" : "=f"(out[1]) : "r"(x & 0xffff0000u));
}
FK_DEVICE void fk_unpack_fp16(float out[2], fk_u32 x) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(out[0]), "=f"(out[1])
        : "r"(x));
}
#define FK_APPROXIMATE(name, ptx)                                                                                      \
    FK_DEVICE float name(float x) {                                                                                    \
        float y;                                                                                                       \
        asm(ptx ".f32 %0, %1;" : "=f"(y) : "f"(x));                                                                    \
        return y;                                                                                                      \
    }
FK_APPROXIMATE(fk_exp2, "ex2.approx.ftz")
FK_APPROXIMATE(fk_log2, "lg2.approx.ftz")
FK_APPROXIMATE(fk_reciprocal, "rcp.approx.ftz")
FK_APPROXIMATE(fk_tanh_approx, "tanh.approx")
#undef FK_APPROXIMATE
FK_DEVICE float fk_max(float a, float b) {
    float y;
    asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
FK_DEVICE float fk_fma(float a, float b, float c) {
    float y;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(a), "f"(b), "f"(c));
    return y;
}
FK_DEVICE float fk_rounded_product(float a, float b) { return __fmul_rn(a, b); }
FK_DEVICE float fk_rounded_sum(float a, float b) { return __fadd_rn(a, b); }
FK_DEVICE float fk_infinity(void) {
    float y;
    asm("mov.b32 %0, 0x7f800000;" : "=f"(y));
    return y;
}
#endif
