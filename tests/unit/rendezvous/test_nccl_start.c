/* test_nccl_start.c: tests how the processes of a plan find each other: how one learns its rank from the
 * environment, and how rank 0's id reaches the others by a file or by MPI. It needs neither NCCL nor a device. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/rendezvous/rendezvous.h"
#include "tests/support/temporary.h"

/* --- the environment ---------------------------------------------------------------------------------------------- */

static const char *const variables[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                        "PMIX_RANK",
                                        "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};

/* Sets what `text` says, "A=1 B=2", and nothing else of what launchers set. */
static void environment(const char *text) {
    char copy[400], *rest = copy;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    snprintf(copy, sizeof copy, "%s", text);
    for (char *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(one, '=');
        *equals = 0;
        setenv(one, equals + 1, 1);
    }
}

Test(start, who_says_it) {
    static const struct {
        const char *text, *from;
        uint32_t rank, local;
        bool mpi;
    } all[] = {
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1", "torchrun", 5, 1, false},
        {"OMPI_COMM_WORLD_RANK=6 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=2", "Open MPI", 6, 2, true},
        {"PMI_RANK=7 PMI_SIZE=8 MPI_LOCALRANKID=3", "MPICH", 7, 3, true},
        {"PMI_RANK=7 PMI_SIZE=8", "MPICH", 7, 3, true}, /* 7 of nodes of 4 */
        {"PMIX_RANK=4", "PMIx", 4, 0, true}, /* says no size */
        {"SLURM_PROCID=2 SLURM_NTASKS=8 SLURM_LOCALID=2", "Slurm", 2, 2, true},
        /* the nearer one */
        {"RANK=1 WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=2", "torchrun",
         1, 1, false},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 SLURM_PROCID=0 SLURM_NTASKS=1", "Open MPI", 3, 3, true},
        /* half of what a launcher sets counts for nothing */
        {"RANK=1 PMI_RANK=2 PMI_SIZE=8 MPI_LOCALRANKID=0", "MPICH", 2, 0, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fcp_place p;
        fcp_error err = {0};
        environment(all[i].text);
        cr_assert_eq(fcp_place_find(NULL, 8, 4, &p, &err), FCP_OK, "%s: %s", all[i].text, err.message);
        cr_assert(p.rank == all[i].rank && p.ranks == 8 && p.local == all[i].local && p.mpi == all[i].mpi &&
                      strcmp(p.from, all[i].from) == 0,
                  "%s: %s says rank %u, local %u", all[i].text, p.from, p.rank, p.local);
    }
}

Test(start, what_is_wrong) {
    static const struct {
        const char *text, *part;
    } all[] = {
        {"", "RANK and WORLD_SIZE"},
        {"RANK=1", "OMPI_COMM_WORLD_RANK"},
        {"RANK=1 WORLD_SIZE=4", "torchrun started 4 processes (WORLD_SIZE)"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "Open MPI started 1 process (OMPI_COMM_WORLD_SIZE)"},
        {"RANK=8 WORLD_SIZE=8", "rank 8, and there are ranks 0 to 7"},
        {"RANK=x WORLD_SIZE=8", "RANK is \"x\""},
        {"RANK=-1 WORLD_SIZE=8", "RANK is \"-1\""},
        {"RANK=1 WORLD_SIZE=8x", "WORLD_SIZE is \"8x\""},
        {"RANK=1 WORLD_SIZE=8 LOCAL_RANK=99999999999999999999", "LOCAL_RANK is"},
        {"PMIX_RANK=9", "rank 9, and there are"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fcp_place p;
        fcp_error err = {0};
        environment(all[i].text);
        cr_assert_eq(fcp_place_find(NULL, 8, 4, &p, &err), FCP_E_START, "%s", all[i].text);
        cr_assert(strstr(err.message, all[i].part), "%s: \"%s\" is not in: %s", all[i].text, all[i].part, err.message);
    }
}

Test(start, caller) {
    fcp_place p;
    fcp_error err = {0};
    fcp_start start = {.size = sizeof start, .ranks = 8, .rank = 6};
    environment("RANK=1 WORLD_SIZE=8 LOCAL_RANK=1"); /* is not asked */
    cr_assert_eq(fcp_place_find(&start, 8, 4, &p, &err), FCP_OK, "%s", err.message);
    cr_assert(p.rank == 6 && p.local == 2 && !p.mpi);
    start.ranks = 7;
    cr_assert_eq(fcp_place_find(&start, 8, 4, &p, &err), FCP_E_START);
    start = (fcp_start){.size = sizeof(fcp_start), .ranks = 8, .rank = 8};
    cr_assert_eq(fcp_place_find(&start, 8, 4, &p, &err), FCP_E_START);
    environment("");
    cr_assert_eq(fcp_place_find(NULL, 1, 1, &p, &err), FCP_OK, "one rank needs nobody: %s", err.message);
    cr_assert(p.rank == 0 && p.ranks == 1);
    environment("RANK=5"); /* half of what torchrun says: it did not start this process */
    cr_assert_eq(fcp_place_find(NULL, 1, 1, &p, &err), FCP_OK, "%s", err.message);
    cr_assert(p.rank == 0 && p.ranks == 1);
    /* with an id at hand nothing is asked; a torchrun has no way of its own */
    uint8_t id[FCP_ID_BYTES], given[FCP_ID_BYTES];
    memset(given, 7, sizeof given);
    start = (fcp_start){.size = sizeof(fcp_start), .ranks = 8, .id = given};
    p = (fcp_place){.rank = 3, .ranks = 8, .from = "torchrun"};
    cr_assert_eq(fcp_id_share(&p, &start, 1, id, &err), FCP_OK);
    cr_assert_arr_eq(id, given, sizeof id);
    cr_assert_eq(fcp_id_share(&p, NULL, 1, id, &err), FCP_E_START);
    cr_assert(strstr(err.message, "--id-file"), "%s", err.message);
}

/* --- by files ----------------------------------------------------------------------------------------------------- */

enum { RANKS = 6, LONG = 200 /* seconds: a rank that comes at all comes earlier */ };
typedef struct sharer {
    fcp_place place;
    const char *path;
    uint32_t timeout_s;
    unsigned after; /* ranks that have asked before it begins */
    long late_ms;
    uint8_t id[FCP_ID_BYTES];
    fcp_code code;
    fcp_error err;
} sharer;

static void wait_for_file(const char *path) {
    while (access(path, F_OK)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void *share(void *argument) {
    sharer *x = argument;
    char name[TEMPORARY + 40];
    for (unsigned r = 0; r < RANKS; r++) {
        snprintf(name, sizeof name, "%s.%u", x->path, r);
        if (x->after >> r & 1) wait_for_file(name);
    }
    nanosleep(&(struct timespec){.tv_nsec = x->late_ms * 1000000}, NULL);
    const fcp_start start = {.size = sizeof start, .id_file = x->path};
    x->code = fcp_id_share(&x->place, &start, x->timeout_s, x->id, &x->err);
    return NULL;
}

/* The ranks of `present`, each a thread; rank 0's id is `value`. With `last` rank 0 comes last of all, and is the one
 * that may give up: not for the others' being late. */
static void run_ranks(sharer all[RANKS], const char *path, unsigned present, uint8_t value, uint32_t timeout_s,
                      bool last) {
    pthread_t threads[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) {
        all[r] = (sharer){.place = {.rank = r, .ranks = RANKS, .from = "a test"}, .path = path, .timeout_s = timeout_s};
        if (last && r) all[r].timeout_s = LONG;
        all[r].late_ms = r * 37 % 5 * 11;
        all[r].after = last && !r ? present & ~1u : 0;
        if (r == 0) memset(all[r].id, value, sizeof all[r].id);
        if (present >> r & 1) cr_assert_eq(pthread_create(&threads[r], NULL, share, &all[r]), 0);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        fcp_patience patience = fcp_patience_of(timeout_s + 20, 0.1);
        while (present >> r & 1 && pthread_tryjoin_np(threads[r], NULL)) {
            cr_assert(!fcp_patience_ends(&patience), "rank %u does not give up", r);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
}

static void all_have(const sharer all[RANKS], uint8_t value) {
    for (uint32_t r = 0; r < RANKS; r++) {
        cr_assert_eq(all[r].code, FCP_OK, "rank %u: %s", r, all[r].err.message);
        for (int i = 0; i < FCP_ID_BYTES; i++) cr_assert_eq(all[r].id[i], value, "rank %u has another id", r);
    }
}

static void make_folder(char folder[TEMPORARY]) { cr_assert(temporary_folder(folder, "start")); }
static void remove_folder(const char *folder) { cr_assert_eq(rmdir(folder), 0, "%s: something is left", folder); }

Test(start, by_files) {
    char folder[TEMPORARY], path[TEMPORARY + 20];
    sharer all[RANKS];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/id", folder);
    for (uint8_t value = 1; value < 5; value++) { /* the same path, run after run */
        run_ranks(all, path, (1 << RANKS) - 1, value, LONG, false);
        all_have(all, value);
    }
    remove_folder(folder);
}

/* A file of a run that died, byte by byte as it is. */
typedef struct kept {
    char bytes[4096];
    size_t size;
} kept;
static void keep(kept *k, const char *path) {
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    k->size = fread(k->bytes, 1, sizeof k->bytes, f);
    fclose(f);
    struct stat s;
    cr_assert_eq(stat(path, &s), 0);
    cr_assert_eq(s.st_mode & 0777, 0600);
}
/* A rank is killed once `file` is there, which it leaves behind. */
static void die(sharer *x, const char *file, kept *left) {
    pid_t child = fork();
    int status;
    cr_assert(child >= 0);
    if (child == 0) {
        share(x);
        _exit(1);
    }
    wait_for_file(file);
    cr_assert(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    keep(left, file);
}
static void put_back(const kept *k, const char *path, mode_t mode) {
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(k->bytes, 1, k->size, f) == k->size && fclose(f) == 0);
    chmod(path, mode);
}

/* Dead processes left an answer, questions, and a question that says that its answer was taken. None of it is
 * believed. */
Test(start, what_a_dead_run_left) {
    char folder[TEMPORARY], path[TEMPORARY + 20], name[TEMPORARY + 40];
    sharer all[RANKS];
    kept question, taken, answer;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/id", folder);
    snprintf(name, sizeof name, "%s.2", path);
    /* a rank that asks and dies, and rank 0, which answers it and dies */
    sharer alone = {.place = {.rank = 2, .ranks = RANKS, .from = "a test"}, .path = path, .timeout_s = LONG};
    sharer first = {.place = {.rank = 0, .ranks = RANKS, .from = "a test"}, .path = path, .timeout_s = LONG};
    memset(first.id, 99, sizeof first.id);
    die(&alone, name, &question);
    die(&first, path, &answer);
    /* those that give up leave nothing */
    unlink(path);
    alone.timeout_s = first.timeout_s = 1;
    share(&alone);
    cr_assert_eq(alone.code, FCP_E_START);
    cr_assert(strstr(alone.err.message, "rank 0 did not answer rank 2"), "%s", alone.err.message);
    cr_assert_eq(access(name, F_OK), -1, "a question is left");
    put_back(&question, name, 0600);
    share(&first);
    cr_assert_eq(first.code, FCP_E_START);
    cr_assert(strstr(first.err.message, "rank 1 did not ask for the id"), "%s", first.err.message);
    cr_assert_eq(access(path, F_OK), -1, "an answer is left");
    taken = question;
    taken.bytes[16] = 1; /* its answer was taken */

    put_back(&answer, path, 0600);
    put_back(&question, name, 0600);
    run_ranks(all, path, (1 << RANKS) - 1, 1, LONG, false);
    all_have(all, 1);
    put_back(&answer, path, 0600);
    put_back(&taken, name, 0600);
    run_ranks(all, path, (1 << RANKS) - 1, 2, LONG, false);
    all_have(all, 2);
    /* cut short, and of somebody who lets others write */
    answer.size -= 3;
    put_back(&answer, path, 0600);
    put_back(&question, name, 0666);
    run_ranks(all, path, (1 << RANKS) - 1, 3, LONG, false);
    all_have(all, 3);
    remove_folder(folder);
}

Test(start, who_does_not_come) {
    char folder[TEMPORARY], path[TEMPORARY + 20], to[TEMPORARY + 20];
    sharer all[RANKS];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/id", folder);
    run_ranks(all, path, 0x37, 1, 2, true); /* all but rank 3 */
    cr_assert_eq(all[0].code, FCP_E_START);
    cr_assert(strstr(all[0].err.message, "rank 3 did not ask for the id within 2 s") &&
                  strstr(all[0].err.message, "id.3"),
              "%s", all[0].err.message);
    run_ranks(all, path, 0x3e, 1, 1, false); /* all but rank 0 */
    for (int r = 1; r < RANKS; r++)
        cr_assert(strstr(all[r].err.message, "rank 0 did not answer"), "%s", all[r].err.message);
    /* a link is not followed; a folder is not there */
    snprintf(to, sizeof to, "%s/elsewhere", folder);
    cr_assert_eq(symlink(to, path), 0);
    run_ranks(all, path, 3, 1, 1, false);
    for (int r = 0; r < 2; r++) cr_assert(strstr(all[r].err.message, "something else"), "%s", all[r].err.message);
    unlink(path);
    snprintf(path, sizeof path, "%s/nowhere/id", folder);
    run_ranks(all, path, 2, 1, 1, false);
    cr_assert(strstr(all[1].err.message, "cannot make"), "%s", all[1].err.message);
    remove_folder(folder);
}

/* --- by MPI ------------------------------------------------------------------------------------------------------- */

/* An id by a stand-in library: rank 0 and then rank 1, each a process, as MPI begins once in one. */
static void by_mpi(const char *library, const char *path, bool twice) {
    char name[300];
    const char *build = getenv("B");
    snprintf(name, sizeof name, "%s/standin/%s", build && *build ? build : "build", library);
    setenv("FCP_MPI", name, 1);
    setenv("STANDIN_MPI", path, 1);
    setenv("STANDIN_MPI_SIZE", "2", 1);
    for (uint32_t r = 0; r < 2; r++) {
        pid_t child = fork();
        if (child == 0) {
            fcp_place p = {.rank = r, .ranks = 2, .mpi = true, .from = "a test"};
            uint8_t id[FCP_ID_BYTES];
            fcp_error err = {0};
            memset(id, r ? 0 : 42, sizeof id);
            setenv("STANDIN_MPI_RANK", r ? "1" : "0", 1);
            int bad = fcp_id_share(&p, NULL, 1, id, &err) != FCP_OK;
            for (int i = 0; i < FCP_ID_BYTES; i++) bad |= id[i] != 42;
            if (twice) { /* another session's */
                memset(id, r ? 0 : 43, sizeof id);
                bad |= fcp_id_share(&p, NULL, 1, id, &err) != FCP_OK || id[0] != 43 || id[FCP_ID_BYTES - 1] != 43;
            }
            if (bad) fprintf(stderr, "%s\n", err.message);
            _exit(bad);
        }
        int status;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert_eq(status, 0, "%s, rank %u", library, r);
    }
}

Test(start, by_mpi) {
    char folder[TEMPORARY], path[TEMPORARY + 20];
    fcp_place p = {.rank = 0, .ranks = 3, .mpi = true, .from = "a test"};
    uint8_t id[FCP_ID_BYTES] = {0};
    fcp_error err = {0};
    make_folder(folder);
    snprintf(path, sizeof path, "%s/mpi", folder);
    by_mpi("libmpi-open.so", path, false);
    unlink(path);
    by_mpi("libmpi-mpich.so", path, true);
    unlink(path);
    /* another number of processes than the launcher says; none at all */
    setenv("STANDIN_MPI_RANK", "0", 1);
    cr_assert_eq(fcp_id_share(&p, NULL, 1, id, &err), FCP_E_START);
    cr_assert(strstr(err.message, "process 0 of 2, and a test that it is 0 of 3"), "%s", err.message);
    unlink(path);
    remove_folder(folder);
}
Test(start, no_mpi) {
    fcp_place p = {.rank = 0, .ranks = 3, .mpi = true, .from = "a test"};
    uint8_t id[FCP_ID_BYTES] = {0};
    fcp_error err = {0};
    setenv("FCP_MPI", "/nowhere/libmpi.so", 1);
    cr_assert_eq(fcp_id_share(&p, NULL, 1, id, &err), FCP_E_START);
    cr_assert(err.code == FCP_E_START && strstr(err.message, "/nowhere/libmpi.so") && strstr(err.message, "--id-file"),
              "%s", err.message);
}
