/* make_seeds.c: makes the seeds of fuzz/corpus/plan: small plans that are right, and damaged ones named by the error
 * they give; and those of fuzz/corpus/extract: the extracts of the first and the last rank of plans that are right.
 *
 * Usage: make_seeds PLANS EXTRACTS, two folders. It writes the same files every time. `make fuzz-seeds` runs it after
 *     the format of plans has changed. Right plans keep their names. Damage is done to tables (plan_damage.h and
 *     plan_damage_recurrent.h in tests/support) and to bytes. For each error code that some damage gives, the first MOST plans are written, as e<code>-1, e<code>-2, ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "tests/support/moved_tables.h"
#include "tests/support/plan_damage.h"
#include "tests/support/plan_damage_recurrent.h"
#include "tests/support/scatter.h"
#include "fuzz/reseal.h"

enum { MOST = 3, FORMAT_MOST = 12, TRIES = 6 };

#define MODEL "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16 }\n"
static const struct {
    const char *name, *source;
} sound[] = {
    {"fields", MODEL "batch { lengths = [200, 60]; field doc = [7 x 150, 900 x 110]; field g = [0 x 259, 1] }\n"
                     "cluster { gpus = 2 }\n"
                     "mask m(field d) = d[q] == d[k] and (k <= q or k - run(d, k) < 8) or g[k] == 1\n"
                     "plan { mask = m(d = doc); block = 128; passes = forward }"},
    {"one-rank", MODEL "batch { lengths = [200, 90] }\nplan { mask = causal; block = 128 }"},
    {"two-ranks", MODEL "batch { lengths = [300] }\ncluster { gpus = 2 }\n"
                        "plan { mask = causal; block = 128; layout = contiguous; strategy = fcp(coalesce = 1) }"},
    {"nodes", MODEL "batch { lengths = [700, 300, 40] }\ncluster { nodes = 2; gpus = 2 }\n"
                    "plan { mask = causal; block = 128; layout = zigzag; strategy = fcp(coalesce = 2, buffers = 2) }"},
    {"ring", MODEL "batch { lengths = [600, 150] }\ncluster { gpus = 3 }\n"
                   "plan { mask = full; strategy = ring(coalesce = 1); layout = contiguous }"},
    {"zigzag", MODEL "batch { lengths = [500] }\ncluster { nodes = 3 }\n"
                     "plan { mask = window(w = 200); strategy = zigzag; passes = forward }"},
    {"table", "model { heads = 2; head_dim = 8; table t = [[1, 0], [0, 1]]; table u = [70000, -1] }\n"
              "batch { lengths = [130] }\nplan { mask = m; block = 128; passes = forward }\n"
              "mask m = t[q % 2, k % 2] == 1 and q - k < u[h]"},
    {"slices",
     MODEL "batch { lengths = [200, 90] }\ncluster { gpus = 2 }\n"
           "mask m = slices([0, 100, 0, 100, causal], [40, 200, 20, 150, both], [90, 180, 100, 160, inverse])\n"
           "plan { mask = m; block = 128; passes = forward }"},
    {"score", "model { heads = 2; head_dim = 8; table near = [0.5, -1.0, 0.25] }\nbatch { lengths = [130] }\n"
              "score bias = 2.0 * tanh(s / 2.0) + near[(q + k) % 3]\n"
              "plan { mask = causal; score = bias; sink = [1.0, -0.5]; block = 128 }"},
    {"values", "model { heads = 2; kv_heads = 1; head_dim = 24; value_dim = 16 }\nbatch { lengths = [200, 90] }\n"
               "cluster { gpus = 2 }\nplan { mask = causal; block = 128; layout = contiguous; lse_gradient = true }"},
    {"values-in-keys", "model { heads = 2; kv_heads = 1; head_dim = 24; value_dim = 16; values = keys }\n"
                       "batch { lengths = [200, 90] }\ncluster { gpus = 2 }\nplan { mask = causal; block = 128 }"},
    {"split", MODEL "batch { lengths = [40:300, 1:90, 100:20]; field doc = [7 x 150, 900 x 260] }\n"
                    "cluster { gpus = 2 }\nmask m = k <= q and (doc[k] == 7 or q - k < 64)\n"
                    "plan { mask = m; block = 128; strategy = fcp(coalesce = 1); layout = contiguous }"},
    {"no-tokens", MODEL "batch { lengths = [0, 150, 0:40, 70:0, 3:90, 0]; field doc = [7 x 150, 900 x 130] }\n"
                        "cluster { gpus = 2 }\nmask m = k <= q and doc[k] > 0\n"
                        "plan { mask = m; block = 128; layout = zigzag }"},
    {"documents", MODEL "batch { lengths = [200, 60]; field doc = [7 x 150, 900 x 110]; documents = doc }\n"
                        "cluster { gpus = 2 }\nplan { mask = causal; block = 128; passes = forward }"},
    {"shapes", MODEL "batch { lengths = [40:200, 150]; field w = [16, 900] over sequences\n"
                     "field keep = [1 x 5, 0, 1 x 14] over heads, queries / 64, keys / 100\n"
                     "field bias = [0.5 x 350] over kv_heads, keys }\n"
                     "mask m = keep[h, q / 64, k / 100] == 1 and q - k < w\nscore b = s + bias[0, k]\n"
                     "plan { mask = m; score = b; block = 128; passes = forward }"},
    {"nothing", MODEL "batch { lengths = [0, 0] }\ncluster { gpus = 2 }\nplan { mask = causal; layout = contiguous }"},
};
enum { SOUND = sizeof sound / sizeof *sound };

static unsigned made[FCP_CODE_COUNT];

static void stop(const char *why) {
    fprintf(stderr, "make_seeds: %s\n", why);
    exit(1);
}

static void write_file(const char *folder, const char *name, const uint8_t *bytes, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, size, f) != size || fclose(f)) stop(path);
}

/* Writes bytes under the name of the error they give, if that has not enough of them. */
static void keep(const char *folder, const uint8_t *bytes, size_t size) {
    fcp_plan *plan = NULL;
    fcp_code code = fcp_plan_load_memory(bytes, size, &plan, NULL);
    fcp_plan_free(plan);
    if (code == FCP_OK || made[code] == (code == FCP_E_PLAN_FORMAT ? FORMAT_MOST : MOST)) return;
    char name[32];
    snprintf(name, sizeof name, "e%s-%u", fcp_code_name(code) + 1, ++made[code]);
    write_file(folder, name, bytes, size);
}

static uint8_t *bytes_of(const fcp_plan *plan, size_t *size) {
    char path[] = "/tmp/fcp-seed-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) || fcp_plan_save(plan, path, NULL)) stop("cannot save a plan");
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = malloc(1 << 20);
    if (!f || !bytes) stop("cannot read a plan");
    *size = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    unlink(path);
    return bytes;
}

static fcp_plan *plan_of(const char *source) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    if (!d || fcpc_parse_text("seed.fcp", source, strlen(source), NULL, d, &program) ||
        fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan)) {
        char *shown = d ? fcpc_diagnostics_render(d, false) : NULL;
        stop(shown ? shown : "out of memory");
    }
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return plan;
}

static void save_damaged(const char *folder, tables *t) {
    fcp_error err = {0};
    if (judge(t, &err) == FCP_OK) return;
    size_t size;
    uint8_t *bytes = bytes_of(&t->plan, &size);
    keep(folder, bytes, size);
    free(bytes);
}

/* Every kind of damage to the tables, saved as if it were sound. */
static void damage_tables(const char *folder, const fcp_plan *plan, unsigned number) {
    for (unsigned i = 0; i < MOST; i++) {
        tables t;
        tables_copy(&t, plan);
        ((uint64_t *)t.summary)[5 * i + number]++; /* it is numbers throughout */
        save_damaged(folder, &t);
        tables_free(&t);
    }
    const size_t few = sizeof kinds / sizeof *kinds, all = few + sizeof recurrent_kinds / sizeof *recurrent_kinds;
    for (size_t k = 0; k < all; k++)
        for (unsigned try = 0; try < TRIES; try++) {
            tables t;
            draw d = {number * UINT64_C(1000003) + k * 1009 + try, 0};
            tables_copy(&t, plan);
            if (k >= few) tables_plan(&t);
            if ((k < few ? &kinds[k] : &recurrent_kinds[k - few])->apply(&t, &d)) save_damaged(folder, &t);
            tables_free(&t);
        }
}

/* Damage to a file: its magic, versions, sizes, checksums, sections. */
static void damage_bytes(const char *folder, const uint8_t *sane, size_t size) {
    uint8_t *bytes = malloc(size + 64);
    if (!bytes) stop("out of memory");
    for (unsigned i = 0; i < 24; i++) {
        file_header h;
        size_t length = size;
        memcpy(bytes, sane, size);
        memset(bytes + size, 0, 64);
        memcpy(&h, bytes, sizeof h);
        switch (i % 8) {
        case 0: bytes[i / 8] ^= 0x20; break;
        case 1: h.reader_version += 1 + i; memcpy(bytes, &h, sizeof h); break;
        case 2: h.required |= UINT64_C(1) << i; memcpy(bytes, &h, sizeof h); break;
        case 3: length = size / (2 + i / 8); break;
        case 4: length = size + 64; break;
        case 5: bytes[size - 1 - i / 8 * 64] ^= 1; break;
        case 6: h.sections += i; memcpy(bytes, &h, sizeof h); break;
        default: bytes[sizeof h + i] ^= 1; break;
        }
        if (i % 8 == 1 || i % 8 == 2 || i % 8 == 6) { /* right checksum: what lies behind it is met */
            h.header_crc = fcp_crc32c(&h, offsetof(file_header, header_crc));
            memcpy(bytes, &h, sizeof h);
        }
        keep(folder, bytes, length);
    }
    free(bytes);
}

typedef struct named {
    const char *folder, *name;
} named;

static bool write_extract(void *context, uint32_t rank, const void *bytes, size_t size) {
    const named *to = context;
    char name[64];
    snprintf(name, sizeof name, "%s-%u", to->name, rank);
    write_file(to->folder, name, bytes, size);
    return true;
}

static void extracts_of(const char *folder, const char *name, const fcp_plan *plan) {
    const uint32_t ranks = plan->problem->ranks;
    uint8_t root[FCP_DIGEST_BYTES];
    named to = {folder, name};
    fcp_code code = fcp_extracts_cut(plan, 0, 1, NULL, write_extract, &to, root, NULL);
    if (!code && ranks > 1) code = fcp_extracts_cut(plan, ranks - 1, 1, NULL, write_extract, &to, root, NULL);
    if (code) stop("cannot cut an extract");
}

static void seeds_of(char **folders, const char *name, const fcp_plan *plan, unsigned number) {
    const char *folder = folders[0];
    size_t size;
    uint8_t *bytes = bytes_of(plan, &size);
    write_file(folder, name, bytes, size);
    damage_bytes(folder, bytes, size);
    if (plan->tiles_count) damage_tables(folder, plan, number);
    extracts_of(folders[1], name, plan);
    free(bytes);
}

int main(int argc, char **argv) {
    if (argc != 3) stop("usage: make_seeds PLANS EXTRACTS");
    argv++;
    for (unsigned i = 0; i < SOUND; i++) {
        fcp_plan *plan = plan_of(sound[i].source);
        seeds_of(argv, sound[i].name, plan, i);
        fcp_plan_free(plan);
    }
    tables hand; /* two in which work is done away from home */
    moved_make(&hand, NULL);
    seeds_of(argv, "moved", tables_plan(&hand), 3); /* a number that finds figures of the summary, as above */
    tables_free(&hand);
    const scatter any = scatter_new(8);
    fcp_plan *plan = scatter_plan("model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp16 }\n"
                                  "batch { lengths = [260, 90] }\ncluster { gpus = 3 }\n"
                                  "plan { mask = causal; block = 128; layout = contiguous }", &any);
    if (!plan) stop("no plan by a scatter");
    seeds_of(argv, "scatter", plan, 4);
    fcp_plan_free(plan);
    plan =
        plan_of(MODEL "batch { lengths = [250, 40, 300] }\ncluster { nodes = 2; gpus = 2 }\n"
                      "plan { block = 128; layout = zigzag; strategy = zigzag\nlayers = [causal, "
                      "scan(heads = 4, head_dim = 2, value_dim = 2, decay = matrix), halo(before = 3, after = 40)] }");
    seeds_of(argv, "recurrent", plan, 2);
    fcp_plan_free(plan);
    unsigned all = 0;
    for (int c = 0; c < FCP_CODE_COUNT; c++) all += made[c];
    printf("%d sound plans, %u damaged\n", SOUND + 3, all);
    return 0;
}
