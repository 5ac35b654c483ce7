/* test_plan.c: tests the plan file (saving, loading, a change to any byte), the functions that read a plan, and
 * its dump. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <dirent.h>

#include "fuzz/reseal.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/dump.h"
#include "tests/support/plan_tables.h"
#include "tests/support/temporary.h"

/* --- a folder of its own, and bytes ------------------------------------------------------------------------------- */

static char folder[TEMPORARY];

static const char *in_folder(const char *name) {
    static char path[2][TEMPORARY + 40];
    static int turn;
    if (!*folder) {
        cr_assert(temporary_folder(folder, "plan"));
    }
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int files_in_folder(void) {
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static void remove_folder(void) {
    DIR *d = *folder ? opendir(folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    if (*folder) rmdir(folder);
    *folder = 0;
}

static uint8_t *read_all(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *bytes = malloc(*size + 1);
    cr_assert_eq(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

static void write_all(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    cr_assert(f);
    cr_assert_eq(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

/* The hand-made plan as a file's bytes. */
static uint8_t *hand_bytes(size_t *size) {
    tables t;
    fcp_error err = {0};
    hand_make(&t);
    cr_assert_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    const char *path = in_folder("hand");
    cr_assert_eq(fcp_plan_save(&t.plan, path, &err), FCP_OK, "%s", err.message);
    uint8_t *bytes = read_all(path, size);
    cr_assert_eq(*size, t.plan.file_size);
    tables_free(&t);
    return bytes;
}

static fcp_code load_bytes(const void *bytes, size_t size) {
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    fcp_code code = fcp_plan_load_memory(bytes, size, &plan, &err);
    cr_assert_eq(err.code, code);
    cr_assert((plan != NULL) == (code == FCP_OK));
    if (code) cr_assert(*err.message, "an error without a message");
    fcp_plan_free(plan);
    return code;
}

#define EXPECT(code, wanted)                                                                                           \
    do {                                                                                                               \
        fcp_code code_ = (code);                                                                                       \
        cr_expect_eq(code_, FCP_E_##wanted, "%s instead of " #wanted, fcp_code_name(code_));                           \
    } while (0)

/* --- sizes -------------------------------------------------------------------------------------------------------- */

Test(plan, crc32c) {
    cr_expect_eq(fcp_crc32c("123456789", 9), 0xe3069283u);
    cr_expect_eq(fcp_crc32c(NULL, 0), 0);
    uint8_t zeros[32] = {0};
    cr_expect_eq(fcp_crc32c(zeros, 32), 0x8a9136aau); /* RFC 3720, B.4 */
}

Test(plan, class_bytes) {
    fcp_problem p = {.heads = 64, .kv_heads = 8, .range_kv = 8, .range_sub = 8, .head_dim = 128, .value_dim = 128,
                     .dtype = FCP_BF16, .max_block = 4096, .max_q_block = 4096, .unit = 2048, .passes = 3};
    cr_expect_eq(fcp_class_bytes(&p, FCP_KV, FCP_FORWARD), 2 * 8 * 128 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DKV, FCP_BACKWARD), 2 * 8 * 128 * 4);
    cr_expect_eq(fcp_class_bytes(&p, FCP_Q, FCP_FORWARD), 64 * 128 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_STATE, FCP_FORWARD), 64 * 130 * 4);
    cr_expect_eq(fcp_class_bytes(&p, FCP_Q, FCP_BACKWARD), 2 * 16384 + 64 * 12);
    cr_expect_eq(fcp_class_bytes(&p, FCP_O, FCP_FORWARD), 16384 + 512);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DQ, FCP_BACKWARD), 32768);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DQW, FCP_BACKWARD), 16384);
    cr_expect_eq(fcp_class_bytes(&p, FCP_IN, FCP_FORWARD), 16384 + 4096);
    cr_expect_eq(fcp_class_bytes(&p, FCP_IN, FCP_BACKWARD), 3 * 16384 + 4096 + 512);
    cr_expect_eq(fcp_class_bytes(&p, FCP_OUT, FCP_FORWARD), 16384 + 512);
    cr_expect_eq(fcp_class_bytes(&p, FCP_OUT, FCP_BACKWARD), 16384 + 4096);
    /* worked out by hand: a unit of KV has 2048 * 4096 bytes, and one of dKV twice that */
    cr_expect_eq(fcp_unit_tokens(&p, FCP_KV, FCP_NET), 2048);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_DKV, FCP_NET), 2048);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_Q, FCP_NET), 512, "2 * 2048 * 4096 / 32768: LSE and delta do not count");
    cr_expect_eq(fcp_unit_tokens(&p, FCP_STATE, FCP_NET), 256, "2048 * 4096 / 32768: m and l do not count");
    cr_expect_eq(fcp_unit_tokens(&p, FCP_O, FCP_NET), 512);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_DQ, FCP_NET), 512);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_DQW, FCP_NET), 1024);
    /* inside a node twice as many, of partial results four times as many, and at most a block of 4096 */
    cr_expect_eq(fcp_unit_tokens(&p, FCP_KV, FCP_LOCAL), 2048);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_DKV, FCP_LOCAL), 2048);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_Q, FCP_LOCAL), 1024);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_STATE, FCP_LOCAL), 1024);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_DQW, FCP_LOCAL), 2048);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_IN, FCP_LOCAL), 2048);
    p.wire = FCP_BF16;
    cr_expect_eq(fcp_class_bytes(&p, FCP_STATE, FCP_FORWARD), 64 * (128 * 2 + 8), "m and l stay in fp32");
    cr_expect_eq(fcp_class_bytes(&p, FCP_DKV, FCP_BACKWARD), 2 * 8 * 128 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DQ, FCP_BACKWARD), 16384);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DQW, FCP_BACKWARD), 16384);
    cr_expect_eq(fcp_slot_bytes(&p, FCP_STATE, FCP_FORWARD), 64 * 130 * 4, "slots are in fp32");
    cr_expect_eq(fcp_slot_bytes(&p, FCP_DKV, FCP_BACKWARD), 2 * 8 * 128 * 4);
    cr_expect_eq(fcp_slot_bytes(&p, FCP_DQ, FCP_BACKWARD), 32768);
    cr_expect_eq(fcp_unit_tokens(&p, FCP_STATE, FCP_NET), 256, "the same rounds as with fp32");
    cr_expect_eq(fcp_unit_tokens(&p, FCP_Q, FCP_NET), 512);
    p.wire = FCP_FP32;
    p.passes = 1;
    cr_expect_eq(fcp_unit_tokens(&p, FCP_Q, FCP_NET), 512, "forward alone");
    p.unit = 1;
    cr_expect_eq(fcp_unit_tokens(&p, FCP_STATE, FCP_NET), 1);
    p.range_kv = p.range_sub = 2;
    cr_expect_eq(fcp_class_bytes(&p, FCP_KV, FCP_FORWARD), 2 * 2 * 128 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_O, FCP_FORWARD), 4 * 128 * 2 + 4 * 8);
    p.range_kv = p.range_sub = 8;
    p.dtype = FCP_FP32;
    cr_expect_eq(fcp_class_bytes(&p, FCP_KV, FCP_FORWARD), 2 * 8 * 128 * 4);
}

/* Heads of Q and K have 192 numbers, those of V and O 128. */
Test(plan, class_bytes_of_values) {
    fcp_problem p = {.heads = 16, .kv_heads = 4, .range_kv = 4, .range_sub = 4, .head_dim = 192, .value_dim = 128,
                     .dtype = FCP_BF16, .max_block = 1024, .max_q_block = 1024, .unit = 512, .passes = 3};
    cr_expect_eq(fcp_class_bytes(&p, FCP_KV, FCP_FORWARD), 4 * (192 + 128) * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DKV, FCP_BACKWARD), 4 * (192 + 128) * 4);
    cr_expect_eq(fcp_class_bytes(&p, FCP_Q, FCP_FORWARD), 16 * 192 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_Q, FCP_BACKWARD), 16 * ((192 + 128) * 2 + 12));
    cr_expect_eq(fcp_class_bytes(&p, FCP_STATE, FCP_FORWARD), 16 * 130 * 4);
    cr_expect_eq(fcp_class_bytes(&p, FCP_O, FCP_FORWARD), 16 * (128 * 2 + 8));
    cr_expect_eq(fcp_class_bytes(&p, FCP_DQ, FCP_BACKWARD), 16 * 192 * 4);
    cr_expect_eq(fcp_class_bytes(&p, FCP_DQW, FCP_BACKWARD), 16 * 192 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_IN, FCP_FORWARD), 16 * 192 * 2 + 4 * 320 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_IN, FCP_BACKWARD), 16 * ((192 + 2 * 128) * 2 + 8) + 4 * 320 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_OUT, FCP_FORWARD), 16 * (128 * 2 + 8));
    cr_expect_eq(fcp_class_bytes(&p, FCP_OUT, FCP_BACKWARD), 16 * 192 * 2 + 4 * 320 * 2);
    cr_expect_eq(fcp_held_bytes(&p, FCP_HOLDS_KV, FCP_IN, FCP_BACKWARD), 4 * 320 * 2, "keys and values alone");
    p.lse_gradient = 1;
    cr_expect_eq(fcp_class_bytes(&p, FCP_IN, FCP_BACKWARD), 16 * ((192 + 2 * 128) * 2 + 12) + 4 * 320 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_IN, FCP_FORWARD), 16 * 192 * 2 + 4 * 320 * 2);
    p.values_in_keys = 1;
    cr_expect_eq(fcp_class_bytes(&p, FCP_KV, FCP_FORWARD), 4 * 192 * 2, "V is in K");
    cr_expect_eq(fcp_class_bytes(&p, FCP_DKV, FCP_BACKWARD), 4 * 192 * 4);
    cr_expect_eq(fcp_class_bytes(&p, FCP_OUT, FCP_BACKWARD), 16 * 192 * 2 + 4 * 192 * 2);
    cr_expect_eq(fcp_class_bytes(&p, FCP_O, FCP_FORWARD), 16 * (128 * 2 + 8));
}

Test(plan, rank_memory) {
    fcp_problem p = {.heads = 4, .kv_heads = 2, .range_kv = 2, .range_sub = 2, .head_dim = 16, .value_dim = 16,
                     .dtype = FCP_FP16, .max_block = 100, .max_q_block = 100};
    uint64_t home = 10 * (128 + 128 + 128 + 32);
    const uint64_t none[FCP_CLASSES] = {0}, many[FCP_CLASSES] = {[FCP_KV] = UINT64_MAX / 9};
    const uint64_t slots[FCP_CLASSES] = {[FCP_KV] = 3, [FCP_STATE] = 2, [FCP_DKV] = 7};
    const uint64_t moved[FCP_CLASSES] = {[FCP_Q] = 3, [FCP_O] = 5, [FCP_DQ] = 7, [FCP_DQW] = 11};
    cr_expect_eq(fcp_rank_memory(&p, FCP_FORWARD, 10, 10, none), home);
    cr_expect_eq(fcp_rank_memory(&p, FCP_FORWARD, 10, 10, slots), home + 300 * 128 + 200 * 288);
    cr_expect_eq(fcp_rank_memory(&p, FCP_FORWARD, 10, 10, moved), home + 300 * 128 + 500 * 160);
    cr_expect_eq(fcp_rank_memory(&p, FCP_FORWARD, UINT64_MAX / 2, 1, slots), UINT64_MAX, "saturates");
    cr_expect_eq(fcp_rank_memory(&p, FCP_FORWARD, 1, 1, many), UINT64_MAX, "saturates");
    home = 10 * (3 * 128 + 128 + 48 + 4 * 16 * 4 + 256 + 128 + 128);
    cr_expect_eq(fcp_rank_memory(&p, FCP_BACKWARD, 10, 10, slots), home + 300 * 128 + 700 * 256);
    cr_expect_eq(fcp_rank_memory(&p, FCP_BACKWARD, 10, 10, moved), home + 300 * (256 + 48) + 700 * 256 + 1100 * 128);
}

Test(plan, accessors) {
    tables t;
    hand_make(&t);
    fcp_plan *plan = tables_plan(&t);
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    cr_expect_eq(shape.ranks, 2);
    cr_expect_eq(shape.heads, 4);
    cr_expect_eq(shape.kv_heads, 2);
    cr_expect_eq(shape.head_dim, 16);
    cr_expect_eq(shape.dtype, FCP_BF16);
    cr_expect_eq(shape.layout, FCP_LAYOUT_ZIGZAG);
    cr_expect(shape.has_pass[FCP_FORWARD] && shape.has_pass[FCP_BACKWARD]);
    cr_expect_eq(shape.tokens, 256);
    cr_expect_eq(shape.sequences, 1);
    cr_expect_eq(shape.scale, 0.25);
    fcp_layout_at at = {0};
    fcp_span span;
    cr_expect_eq(fcp_plan_rank_queries(plan, 0), 128);
    cr_expect(fcp_plan_layout(plan, 0, &at, &span) && span.start == 0 && span.length == 64);
    cr_expect(fcp_plan_layout(plan, 0, &at, &span) && span.start == 192 && span.length == 64);
    cr_expect_not(fcp_plan_layout(plan, 0, &at, &span));
    at = (fcp_layout_at){0};
    cr_expect_eq(fcp_plan_rank_queries(plan, 1), 128);
    cr_expect(fcp_plan_layout(plan, 1, &at, &span) && span.start == 64 && span.length == 64);
    cr_expect(fcp_plan_layout(plan, 1, &at, &span) && span.start == 128 && span.length == 64);
    cr_expect_not(fcp_plan_layout(plan, 1, &at, &span));
    at = (fcp_layout_at){0};
    cr_expect_eq(fcp_plan_rank_queries(plan, 2), 0, "no such rank");
    cr_expect_not(fcp_plan_layout(plan, 2, &at, &span));
    uint64_t queries[2] = {0}, keys[2] = {0};
    fcp_plan_ranks_tokens(plan, 1, 2, queries, keys);
    cr_expect(queries[0] == 128 && keys[0] == 128 && !queries[1] && !keys[1]);
    int64_t rows[128], places[128];
    fcp_plan_positions(plan, 0, false, places);
    fcp_plan_rows(plan, 0, true, 0, rows);
    for (int i = 0; i < 128; i++)
        cr_expect(rows[i] == i + (i < 64 ? 0 : 128) && places[i] == rows[i], "token %d", i);
    fcp_plan_rows(plan, 0, false, 1, rows);
    cr_expect(rows[0] == 1 && rows[63] == 64 && rows[64] == 193 && rows[126] == 255, "the next token");
    cr_expect_eq(rows[127], -1, "there is none behind the last");
    fcp_plan_rows(plan, 0, false, INT64_MIN, rows);
    cr_expect(rows[0] == -1 && rows[127] == -1);
    uint64_t length;
    cr_expect_eq(fcp_plan_sequence_offset(plan, 0, &length), 0);
    cr_expect_eq(length, 256);
    cr_expect_eq(fcp_plan_sequence_offset(plan, 1, &length), 256, "the end");
    cr_expect_eq(length, 0);
    fcp_plan_free(NULL);
    tables_free(&t);
}

/* --- save and load ------------------------------------------------------------------------------------------------ */

/* An empty table may begin anywhere. */
static bool same_bytes(const void *a, const void *b, size_t size) { return !size || !memcmp(a, b, size); }

Test(plan, round_trip, .fini = remove_folder) {
    size_t size, again_size;
    uint8_t *bytes = hand_bytes(&size);
    const char *path = in_folder("one"), *second = in_folder("two");
    write_all(path, bytes, size);
    fcp_plan *plan = NULL, *copy = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcp_plan_load(path, &plan, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_plan_load_memory(bytes, size, &copy, &err), FCP_OK, "%s", err.message);
    tables t;
    hand_make(&t);
    tables_plan(&t);
#define X(id, type, member)                                                                                            \
    cr_expect_eq(plan->member##_count, t.member##_count);                                                              \
    cr_expect_eq(copy->member##_count, t.member##_count);                                                              \
    cr_expect(same_bytes(plan->member, t.member, t.member##_count * sizeof(type)), #member);                           \
    cr_expect(same_bytes(copy->member, t.member, t.member##_count * sizeof(type)), #member);                           \
    cr_expect_eq((uintptr_t)plan->member % 64, 0, #member);
    FCP_SECTIONS(X)
#undef X
    cr_expect_eq(plan->file_size, size);
    cr_assert_eq(fcp_plan_save(plan, second, &err), FCP_OK, "%s", err.message);
    uint8_t *again = read_all(second, &again_size);
    cr_expect_eq(again_size, size);
    cr_expect(!memcmp(bytes, again, size), "saving what was loaded gives the same bytes");
    cr_assert_eq(fcp_plan_save(copy, path, &err), FCP_OK, "over a file that is there, and mapped");
    cr_expect_eq(fcp_plan_verify(plan, NULL, NULL, &err), FCP_OK, "the old file is still what is mapped");
    fcp_plan_free(plan);
    fcp_plan_free(copy);
    tables_free(&t);
    free(bytes);
    free(again);
}

Test(plan, every_byte_is_guarded, .fini = remove_folder) {
    size_t size;
    uint8_t *bytes = hand_bytes(&size);
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    cr_assert_eq(load_bytes(bytes, size), FCP_OK);
    for (size_t i = 0; i < size; i++)
        for (size_t f = 0; f < sizeof flips; f++) {
            bytes[i] ^= flips[f];
            fcp_code code = load_bytes(bytes, size);
            cr_expect(code == (i < 8 ? FCP_E_PLAN_MAGIC : FCP_E_PLAN_CHECKSUM), "byte %zu: %s", i, fcp_code_name(code));
            bytes[i] ^= flips[f];
        }
    cr_expect_eq(load_bytes(bytes, size), FCP_OK);
    free(bytes);
}

Test(plan, every_length_is_guarded, .fini = remove_folder) {
    size_t size;
    uint8_t *bytes = hand_bytes(&size), *longer = calloc(1, size + 64);
    for (size_t n = 0; n < size; n++) {
        uint8_t *exact = malloc(n + 1); /* so that a sanitizer sees a read beyond */
        memcpy(exact, bytes, n);
        fcp_code code = load_bytes(exact, n);
        cr_expect_eq(code, FCP_E_PLAN_TRUNCATED, "%zu bytes: %s", n, fcp_code_name(code));
        free(exact);
    }
    memcpy(longer, bytes, size);
    EXPECT(load_bytes(longer, size + 1), PLAN_TRUNCATED);
    EXPECT(load_bytes(longer, size + 64), PLAN_TRUNCATED);
    free(longer);
    free(bytes);
}

Test(plan, versions_and_features, .fini = remove_folder) {
    size_t size;
    uint8_t *bytes = hand_bytes(&size);
    file_header saved, *h = (file_header *)(void *)bytes;
    saved = *h;
#define WITH(change, wanted)                                                                                           \
    do {                                                                                                               \
        change;                                                                                                        \
        plan_reseal(bytes, size, false);                                                                               \
        EXPECT(load_bytes(bytes, size), wanted);                                                                       \
        *h = saved;                                                                                                    \
    } while (0)
    WITH(h->reader_version = h->writer_version = FCP_PLAN_VERSION + 1, PLAN_VERSION);
    WITH(h->required = FCP_FEATURE_HEADS, PLAN_FORMAT); /* and the section of classes is not there */
    WITH(h->required = FCP_FEATURE_RECURRENT, PLAN_FORMAT); /* and there are no such layers */
    WITH(h->required = 4, PLAN_VERSION);
    WITH(h->required = UINT64_C(1) << 63, PLAN_VERSION);
    WITH(h->reader_version = 0, PLAN_FORMAT);
    WITH(h->writer_version = 0, PLAN_FORMAT);
    WITH(h->header_size += 64, PLAN_FORMAT);
    WITH(h->sections++, PLAN_FORMAT);
    WITH(h->reserved = 1, PLAN_FORMAT);
    WITH(h->total_size++, PLAN_TRUNCATED);
    WITH(h->total_size = UINT64_MAX, PLAN_TRUNCATED);
#undef WITH
    fcp_error err;
    fcp_plan *plan = NULL;
    h->reader_version = h->writer_version = FCP_PLAN_VERSION - 1;
    plan_reseal(bytes, size, false);
    cr_expect_eq(fcp_plan_load_memory(bytes, size, &plan, &err), FCP_E_PLAN_VERSION);
    cr_expect(strstr(err.message, "the plan is older") && strstr(err.message, "compile it again"), "%s", err.message);
    *h = saved;
    h->optional = 5;
    h->writer_version = FCP_PLAN_VERSION + 7; /* a newer writer that says we can read it */
    plan_reseal(bytes, size, false);
    cr_expect_eq(load_bytes(bytes, size), FCP_OK);
    free(bytes);
}

Test(plan, section_table, .fini = remove_folder) {
    size_t size;
    uint8_t *bytes = hand_bytes(&size);
    file_entry *e = (file_entry *)(void *)(bytes + sizeof(file_header));
    for (int i = 0; i < FCP_SECTION_HEAD_CLASSES; i++) { /* all that this file has */
        file_entry saved = e[i];
#define WITH(change)                                                                                                   \
    do {                                                                                                               \
        change;                                                                                                        \
        plan_reseal(bytes, size, false);                                                                               \
        fcp_code code_ = load_bytes(bytes, size);                                                                      \
        cr_expect(code_ == FCP_E_PLAN_FORMAT || code_ == FCP_E_PLAN_CHECKSUM, "section %d, " #change ": %s", i,        \
                  fcp_code_name(code_));                                                                               \
        e[i] = saved;                                                                                                  \
    } while (0)
        WITH(e[i].type++);
        WITH(e[i].record_size *= 2);
        WITH(e[i].record_size = 0);
        WITH(e[i].offset += 64);
        WITH(e[i].offset -= 64);
        WITH(e[i].offset = UINT64_MAX - 63);
        WITH(e[i].length = UINT64_MAX);
        WITH(e[i].length = UINT64_MAX - 63);
        WITH(e[i].length = size);
        if (saved.length) WITH(e[i].length = 0);
        WITH(e[i].length += fcp_record_sizes[i] * 64);
        WITH(e[i].reserved = 1);
#undef WITH
    }
    free(bytes);
}

/* The fuzzer's seeds are of this format: each is sound, or has the error after which it is named. */
Test(plan, seeds_are_what_they_say) {
    static const char name[] = "fuzz/corpus/plan";
    DIR *d = opendir(name);
    cr_assert(d, "%s", name);
    int sound = 0, damaged = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char path[300];
        size_t size;
        snprintf(path, sizeof path, "%s/%s", name, e->d_name);
        uint8_t *bytes = read_all(path, &size);
        fcp_code code = load_bytes(bytes, size);
        const char *dash = strchr(e->d_name, '-');
        bool error = e->d_name[0] == 'e' && dash == e->d_name + 4;
        cr_expect(error ? !strncmp(e->d_name + 1, fcp_code_name(code) + 1, 3) : !code,
                  "%s: %s; make fuzz-seeds makes them", path, fcp_code_name(code));
        sound += !error;
        damaged += error;
        free(bytes);
    }
    closedir(d);
    cr_expect(sound >= 8 && damaged >= 40, "%d sound, %d damaged", sound, damaged);
}

Test(plan, load_errors, .fini = remove_folder) {
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    const char *path = in_folder("none");
    EXPECT(fcp_plan_load(path, &plan, &err), READ);
    cr_expect_str_eq(err.file, path);
    cr_expect(strstr(err.message, "No such file"), "%s", err.message);
    EXPECT(fcp_plan_load("/", &plan, &err), READ);
    EXPECT(fcp_plan_load("/dev/null", &plan, &err), READ);
    path = in_folder("empty");
    write_all(path, "", 0);
    EXPECT(fcp_plan_load(path, &plan, &err), PLAN_TRUNCATED);
    cr_expect_str_eq(err.file, path);
    path = in_folder("other");
    write_all(path, "\x7f" "ELF, and more than sixty-four bytes of something that is not a plan at all", 70);
    EXPECT(fcp_plan_load(path, &plan, &err), PLAN_MAGIC);
    path = in_folder("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    EXPECT(fcp_plan_load(path, &plan, &err), READ);
    cr_expect_null(plan);
    EXPECT(fcp_plan_load(in_folder("none"), &plan, NULL), READ);
}

/* A file of 64 GiB, nearly all of it a hole: its header is enough to refuse it. To read the file would take minutes. */
Test(plan, a_file_much_longer_than_its_plan_is_not_read, .fini = remove_folder) {
    size_t size;
    uint8_t *bytes = hand_bytes(&size);
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    const char *path = in_folder("long");
    write_all(path, bytes, size);
    cr_assert_eq(truncate(path, (off_t)1 << 36), 0);
    EXPECT(fcp_plan_load(path, &plan, &err), PLAN_TRUNCATED);
    cr_expect(strstr(err.message, "too long"), "%s", err.message);
    cr_expect_str_eq(err.file, path);
    free(bytes);
}

Test(plan, save_errors_leave_nothing, .fini = remove_folder) {
    size_t size;
    free(hand_bytes(&size)); /* "hand" is there now */
    tables t;
    hand_make(&t);
    fcp_plan *plan = tables_plan(&t);
    fcp_error err = {0};
    const char *path = in_folder("no/such/folder");
    EXPECT(fcp_plan_save(plan, path, &err), WRITE);
    cr_expect_str_eq(err.file, path);
    cr_expect(strstr(err.message, path) && strstr(err.message, "No such file"), "%s", err.message);
    EXPECT(fcp_plan_save(plan, folder, &err), WRITE);
    EXPECT(fcp_plan_save(plan, "", &err), WRITE);
    EXPECT(fcp_plan_save(plan, "", NULL), WRITE);
    cr_expect_eq(fcp_plan_save(plan, "/dev/null", &err), FCP_OK, "not replaced, written to");
    struct stat null;
    cr_expect(!stat("/dev/null", &null) && S_ISCHR(null.st_mode));

    path = in_folder("kept");
    write_all(path, "as it was", 9);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {1000, RLIM_INFINITY}, before;
    getrlimit(RLIMIT_FSIZE, &before);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fcp_code code = fcp_plan_save(plan, path, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT(code, WRITE);
    cr_expect(strstr(err.message, "too large"), "%s", err.message);
    uint8_t *bytes = read_all(path, &size);
    cr_expect(size == 9 && !memcmp(bytes, "as it was", 9));
    cr_expect_eq(files_in_folder(), 2, "no temporary file is left");
    free(bytes);
    tables_free(&t);
}

Test(plan, a_plan_without_tiles_or_transfers, .fini = remove_folder) {
    /* one rank, one sequence, nothing allowed: empty sections */
    tables t;
    memset(&t, 0, sizeof t);
    PUSH(&t, problem,
         (fcp_problem){.ranks = 1, .nodes = 1, .gpus = 1, .heads = 1, .kv_heads = 1, .head_dim = 8, .value_dim = 8,
          .documents = FCP_NONE,
          .layout_group = 1,
                       .range_kv = 1, .range_sub = 1,
                       .block = 128, .max_block = 5, .max_q_block = 5, .unit = 5, .coalesce = 1, .buffers = 1,
                       .passes = 1,
                       .tokens = 5, .key_tokens = 5,
                       .memory_cap = 5 * 100, .scale = 1});
    PUSH(&t, cluster, (fcp_cluster){.gpu = "cpu"});
    PUSH(&t, sequences, (fcp_sequence){5, 5, 0});
    PUSH(&t, pieces, (fcp_piece){.length = 5});
    PUSH(&t, heads, (fcp_heads){.kv_count = 1, .sub_count = 1});
    PUSH(&t, blocks, (fcp_block){.pieces = 1, .tokens = 5, .holds = FCP_HOLDS_BOTH});
    for (int i = 0; i < 3; i++) PUSH(&t, round_starts, 0);
    PUSH(&t, transfers, (fcp_transfer){.block = FCP_NONE, .tokens = 5, .cls = FCP_IN, .fabric = FCP_LOCAL});
    PUSH(&t, transfers,
         (fcp_transfer){.block = FCP_NONE, .tokens = 5, .cls = FCP_OUT, .fabric = FCP_LOCAL, .dir = FCP_RECV});
    PUSH(&t, instrs, (fcp_instr){.op = FCP_OP_COPY, .a = 0, .b = 1});
    PUSH(&t, instrs, (fcp_instr){.op = FCP_OP_COPY, .a = 1, .b = 1});
    for (uint32_t i = 0; i < 4; i++) PUSH(&t, streams, (fcp_stream){i ? 2 : 0, i ? 0 : 2});
    PUSH(&t, mask, (mc_node){MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0});
    PUSH(&t, summary, (fcp_summary){.sequences = 1, .blocks = 1, .positions = 25, .tokens_max_rank = 5,
                                    .key_tokens_max_rank = 5, .stages = 1,
                                    .memory_peak_bytes = 5 * (4 * 8 * 4 + 8)});
    t.problem->memory_cap = t.summary->memory_peak_bytes;
    fcp_error err = {0};
    cr_assert_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    const char *path = in_folder("bare");
    cr_assert_eq(fcp_plan_save(&t.plan, path, &err), FCP_OK, "%s", err.message);
    fcp_plan *plan = NULL;
    cr_assert_eq(fcp_plan_load(path, &plan, &err), FCP_OK, "%s", err.message);
    cr_expect(plan->tiles && plan->source, "empty tables have an address");
    fcp_plan_free(plan);
    tables_free(&t);
}

/* The GPU that a plan was made for. Its multiprocessors are any number that a GPU may have; its name is text. */
Test(plan, a_gpu) {
    tables t;
    fcp_error err = {0};
    hand_make(&t);
    for (uint32_t i = 0; i < 3; i++) {
        t.cluster->multiprocessors = (uint32_t[]){0, 132, 65536}[i];
        cr_expect_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    }
    t.cluster->multiprocessors = 65537;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT);
    cr_expect_str_eq(err.message, "a GPU of 65537 multiprocessors");
    t.cluster->multiprocessors = 132;
    memcpy(t.cluster->gpu, "h2\0h", 4);
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT);
    cr_expect_str_eq(err.message, "the cluster's GPU name is not text");
    tables_free(&t);
}

/* Of two ranks on two nodes all goes over net: a WAIT names no number for local, and one of the communication queue
 * names one number. */
Test(plan, waits_over_fabrics_that_are_not_there) {
    for (int queue = 0; queue < FCP_QUEUES; queue++) {
        tables t;
        fcp_error err = {0};
        uint32_t count, at = 0;
        hand_make(&t);
        cr_assert_eq(judge(&t, &err), FCP_OK, "%s", err.message);
        fcp_instr *x = stream_instrs(&t, FCP_FORWARD, 1, queue, &count);
        while (at < count && x[at].op != FCP_OP_WAIT) at++;
        cr_assert_lt(at, count);
        x[at].b = 1;
        cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "queue %d", queue);
        tables_free(&t);
    }
}

/* Kernels keep the scale as a float, and 0 would make no number of a pair that is not allowed. */
Test(plan, a_scale_that_kernels_cannot_have) {
    const double bad[] = {0, -0.0, 1e-50, -1e-50, 1e50, INFINITY, NAN}, good[] = {1e-19, -0.25, 1e19};
    tables t;
    fcp_error err = {0};
    hand_make(&t);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t.problem->scale = bad[i];
        cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%g", bad[i]);
        cr_expect(strstr(err.message, "a scale that no float holds"), "%g: %s", bad[i], err.message);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        t.problem->scale = good[i];
        cr_expect_eq(judge(&t, &err), FCP_OK, "%g: %s", good[i], err.message);
    }
    tables_free(&t);
}

/* --- dump --------------------------------------------------------------------------------------------------------- */

typedef struct text {
    char *bytes;
    size_t size, chunks;
} text;

static void collect(void *context, const char *chunk, size_t size) {
    text *t = context;
    t->bytes = realloc(t->bytes, t->size + size + 1);
    memcpy(t->bytes + t->size, chunk, size);
    t->size += size;
    t->bytes[t->size] = 0;
    t->chunks++;
}

/* Reads one JSON value; returns what follows it, or NULL. */
static const char *json_value(const char *s) {
    while (*s == ' ' || *s == '\n') s++;
    if (*s == '"') {
        for (s++; *s != '"'; s++) {
            if ((unsigned char)*s < 0x20) return NULL;
            if (*s == '\\' && !strchr("\"\\nu", *++s)) return NULL;
        }
        return s + 1;
    }
    if (*s == '{' || *s == '[') {
        char close = *s == '{' ? '}' : ']';
        bool object = *s == '{';
        for (s++; *s != close;) {
            while (*s == ' ' || *s == '\n') s++;
            if (object && (*s != '"' || !(s = json_value(s)) || *s++ != ':')) return NULL;
            if (!(s = json_value(s))) return NULL;
            while (*s == ' ' || *s == '\n') s++;
            if (*s == ',' && s[1] != close)
                s++;
            else if (*s != close)
                return NULL;
        }
        return s + 1;
    }
    if (!strncmp(s, "null", 4)) return s + 4;
    size_t n = strspn(s, "-+.0123456789eE");
    return n ? s + n : NULL;
}

Test(dump, a_line_per_record) {
    tables t;
    hand_make(&t);
    fcp_plan *plan = tables_plan(&t);
    text out = {0};
    cr_assert_eq(fcp_plan_dump(plan, false, collect, &out, NULL), FCP_OK);
    uint64_t wanted = 1 + 2; /* version, two lines of source */
#define X(id, type, member) wanted += plan->member##_count;
    FCP_SECTIONS(X)
#undef X
    wanted -= plan->source_count;
    uint64_t lines = 0;
    for (size_t i = 0; i < out.size; i++) lines += out.bytes[i] == '\n';
    cr_expect_eq(lines, wanted, "%llu lines", (unsigned long long)lines);
    static const char *const must[] = {
        "plan version 7\n",
        "source | model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n",
        " scale=0.25\n",
        " dtype=bf16 wire=fp32 layout=zigzag layout_group=2 strategy=fcp topology=fat_tree ",
        "\ncluster gpu=h200 ",
        "\nsequence 0 queries=256 keys=256 q_first=0\n",
        "\npiece 1 sequence=0 start=128 length=128 block=1 offset=0\n",
        "\ntile 2 q_block=1 k_block=0 first_part=2 parts=1 kv_slot=1 dkv_slot=1 pairs=16384\n",
        "\nrun 1 row=0 col=0 count=1 cls=full\n",
        "\nvisit 0 q_block=0 first_tile=0 tiles=1 q_slot=0 state_slot=- o_slot=0 dq_slot=0 flags=single\n",
        "\nround 7 pass=backward round=3 kind=dependent stage=2 flags=-\n",
        " pass=backward rank=0 queue=compute op=reduce stage=2 block=0 from_slot=1 into_slot=0\n",
        " dir=send cls=kv fabric=net peer=1 block=0 first=64 tokens=64 slot=0\n",
        " dir=send cls=in fabric=net peer=1 block=- first=0 tokens=64 slot=-\n",
        "\nmask 2 op=le a=1 b=0\n"};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++) cr_expect(strstr(out.bytes, must[i]), "%s", must[i]);
    free(out.bytes);
    tables_free(&t);
}

Test(dump, json_is_one_object) {
    tables t;
    hand_make(&t);
    PUSH(&t, source, '"');
    PUSH(&t, source, '\\');
    PUSH(&t, source, '\t');
    t.problem->scale = 0.1;
    text out = {0};
    cr_assert_eq(fcp_plan_dump(tables_plan(&t), true, collect, &out, NULL), FCP_OK);
    const char *end = json_value(out.bytes);
    cr_expect(end && *end == 0, "%s", out.bytes);
    cr_expect(strstr(out.bytes, "256\\n\\\"\\\\\\u0009\""), "the source is escaped");
    cr_expect(strstr(out.bytes, "\"scale\":0.10000000000000001"), "enough digits to read it back");
    cr_expect(strstr(out.bytes, "\"state_slot\":null"));
    free(out.bytes);
    tables_free(&t);
}

Test(dump, chunks_join) {
    tables t;
    hand_make(&t);
    for (uint32_t i = 0; i < 20000; i++) PUSH(&t, source, i % 50 ? 'x' : '\n');
    for (uint32_t i = 0; i < 5000; i++)
        PUSH(&t, pieces, (fcp_piece){.sequence = i, .length = i, .start = UINT64_MAX - i});
    for (int json = 0; json < 2; json++) {
        text out = {0};
        cr_assert_eq(fcp_plan_dump(tables_plan(&t), json, collect, &out, NULL), FCP_OK);
        cr_expect(out.chunks > 3);
        cr_expect(strstr(out.bytes, json ? "{\"sequence\":4999,\"start\":18446744073709546616,\"length\":4999"
                                         : "\npiece 5001 sequence=4999 start=18446744073709546616 length=4999 "));
        free(out.bytes);
    }
    tables_free(&t);
}
