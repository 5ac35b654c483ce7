/* test_data_file.c: tests the reading of files that a program names, in each place where it may name one: files without
 * an end, files that hold no numbers, paths that are not files, and the places of errors in long texts. Errors in short
 * texts are in tests/golden/diag. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary.h"

/* Where a program names a file: %s. */
static const char *const places[] = {
    "batch { lengths = file(\"%s\") }\nplan { mask = causal }",
    "batch { lengths = [4]; field x = file(\"%s\") }\nplan { mask = causal }",
    "batch { lengths = [4]; field x = file(\"%s\") }\nmask m = x[q] == x[k]\nplan { mask = m }",
    "batch { lengths = [4] }\nplan { mask = slices(file(\"%s\")) }",
    "batch { lengths = [4] }\nplan { mask = causal; sink = file(\"%s\") }",
    "batch { lengths = [4] }\nmodel { table x = file(\"%s\") }\nmask m = x[q] == x[k]\nplan { mask = m }"};
enum { PLACES = sizeof places / sizeof *places, LENGTHS = 0, SLICES = 3, SINK = 4, TABLE = 5 };

static char folder[TEMPORARY];

static const char *path_of(const char *name) {
    static char path[TEMPORARY + 16];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void begin(void) {
    signal(SIGPIPE, SIG_IGN);
    cr_assert(temporary_folder(folder, "data"));
}

static void end(void) {
    static const char *const names[] = {"a", "a.npy", "pipe", "socket", "folder"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) remove(path_of(names[i]));
    rmdir(folder);
}
TestSuite(data_file, .init = begin, .fini = end, .timeout = 120);

static long resident(void) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_maxrss >> 10;
}

/* Parses the program of a place. *said, unless NULL, is what it says; the caller frees it. */
static fcp_code parse(size_t place, const char *path, const fcpc_options *options, char **said) {
    char source[1024];
    fcpc_program *program = NULL;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    snprintf(source, sizeof source, places[place], path);
    const fcp_code code = fcpc_parse_text("", source, strlen(source), options, d, &program);
    if (said) *said = fcpc_diagnostics_render(d, false);
    if (code == FCP_OK) fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

/* --- files without an end ----------------------------------------------------------------------------------------- */

/* What a pipe gives: `begin`, and then `again` until nobody reads it any more, or `most` bytes. */
typedef struct stream {
    const char *path, *again;
    const void *begin;
    size_t begin_size;
    uint64_t most, given;
    pthread_t thread;
} stream;

static void *give(void *given) {
    static char many[1 << 16];
    stream *s = given;
    const size_t each = strlen(s->again), size = sizeof many / each * each;
    for (size_t i = 0; i < size; i++) many[i] = s->again[i % each];
    const int fd = open(s->path, O_WRONLY);
    ssize_t put = fd >= 0 && s->begin_size ? write(fd, s->begin, s->begin_size) : 1;
    while (put > 0 && s->given < s->most && (put = write(fd, many, size)) > 0) s->given += (uint64_t)put;
    if (fd >= 0) close(fd);
    return NULL;
}

/* Text that goes on for ever is read as far as it makes sense, and takes no memory. */
Test(data_file, endless) {
    static const struct { const char *again; unsigned places; } streams[] = {
        {"x", (1u << PLACES) - 1},  {"\n", (1u << PLACES) - 1}, {"# none\n", (1u << PLACES) - 1},
        {" ", ~(1u << TABLE)},      {"1", ~(1u << TABLE)},      {"1\n", ~(1u << TABLE | 1u << SLICES)},
        {"0 1 0 1\n", 1u << SLICES}, {"1 ", 1u << SINK | 1u << SLICES}};
    const char *path = path_of("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        for (size_t place = 0; place < PLACES; place++) {
            if (!(streams[i].places >> place & 1)) continue;
            stream s = {.path = path, .again = streams[i].again, .most = UINT64_C(1) << 40};
            char *said;
            const long before = resident();
            cr_assert_eq(pthread_create(&s.thread, NULL, give, &s), 0);
            const fcp_code code = parse(place, path, NULL, &said);
            pthread_join(s.thread, NULL);
            cr_expect(code == FCP_E_LENGTHS || code == FCP_E_LENGTHS_FILE || code == FCP_E_FIELD ||
                      code == FCP_E_FIELD_FILE || code == FCP_E_HEADS || code == FCP_E_TOO_LARGE,
                      "'%s' at %zu: %s", s.again, place, said);
            cr_expect(s.given <= 72 << 20, "'%s' at %zu: %" PRIu64 " bytes were read", s.again, place, s.given);
            if (!SANITIZED) cr_expect_lt(resident() - before, 512, "'%s' at %zu", s.again, place);
            free(said);
        }
}

/* A hole of 9 GB takes nothing: its first byte is wrong, also behind a good beginning, and of whatever name. */
Test(data_file, sparse) {
    static const char *const names[] = {"a", "a.npy"}, *const starts[] = {"", "1\n# ones\n"};
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 2; i++) {
            const char *path = path_of(names[n]);
            FILE *f = fopen(path, "w");
            cr_assert(f && fputs(starts[i], f) >= 0 && fclose(f) == 0);
            cr_assert_eq(truncate(path, INT64_C(9) << 30), 0);
            for (size_t place = 0; place < PLACES; place++) {
                char *said;
                const long before = resident();
                const fcp_code code = parse(place, path, NULL, &said);
                cr_expect_eq(code, place == LENGTHS || place == SLICES ? FCP_E_READ : FCP_E_FIELD_FILE, "%s", said);
                if (place != LENGTHS && place != SLICES && !n)
                    cr_expect_not_null(strstr(said, i ? "NUL byte, at byte 9" : "NUL byte, at byte 0"), "%s", said);
                if (!SANITIZED) cr_expect_lt(resident() - before, 64);
                free(said);
            }
            unlink(path);
        }
}

/* What a header says is not allocated before it has come. */
Test(data_file, a_header_is_no_promise) {
    static const char text[] = "batch { lengths = [8589934592]; field x = file(\"%s\") }\nplan { mask = causal }";
    char header[128], source[1024];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\1\0\x76", 10);
    const char dictionary[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (8589934592,), }";
    memcpy(header + 10, dictionary, sizeof dictionary - 1);
    header[127] = '\n';
    const char *path = path_of("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    stream s = {.path = path, .again = "x", .begin = header, .begin_size = sizeof header, .most = 1 << 20};
    cr_assert_eq(pthread_create(&s.thread, NULL, give, &s), 0);
    snprintf(source, sizeof source, text, path);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    const long before = resident();
    cr_expect_eq(fcpc_parse_text("", source, strlen(source), NULL, d, &program), FCP_E_FIELD_FILE);
    pthread_join(s.thread, NULL);
    char *said = fcpc_diagnostics_render(d, false);
    cr_expect_not_null(strstr(said, "cut short"), "%s", said);
    if (!SANITIZED) cr_expect_lt(resident() - before, 64);
    free(said);
    fcpc_diagnostics_free(d);
}

/* --- what is no file ---------------------------------------------------------------------------------------------- */

static void refused(fcp_code code, fcpc_diagnostics *d, const char *path) {
    char *said = fcpc_diagnostics_render(d, false);
    cr_expect_eq(code, FCP_E_READ, "%s: %s", path, said);
    cr_expect(strstr(said, "it is not a regular file") || strstr(said, "Is a directory"), "%s: %s", path, said);
    free(said);
    fcpc_diagnostics_free(d);
}

/* With regular_files nothing else is opened, wherever it is named: no pipe makes a caller wait. */
Test(data_file, only_regular_files) {
    char *paths[5];
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int none[2];
    static const char *const names[] = {"pipe", "folder", "socket"};
    for (int i = 0; i < 3; i++) paths[i] = strdup(path_of(names[i]));
    cr_assert(mkfifo(paths[0], 0600) == 0 && mkdir(paths[1], 0700) == 0);
    snprintf(where.sun_path, sizeof where.sun_path, "%s", paths[2]);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&where, sizeof where) == 0 && pipe(none) == 0);
    paths[3] = strdup("/dev/zero");
    char open_one[32];
    snprintf(open_one, sizeof open_one, "/dev/fd/%d", none[0]); /* as /dev/stdin is one */
    paths[4] = strdup(open_one);
    for (int p = 0; p < 5; p++) {
        char define[1024], field[1024];
        snprintf(define, sizeof define, "batch.lengths=file(\"%s\")", paths[p]);
        snprintf(field, sizeof field, "x=%s", paths[p]);
        const char *const defines[] = {define}, *const fields[] = {field};
        const fcpc_options plain = {.size = sizeof plain, .regular_files = true};
        fcpc_options by[4] = {plain, plain, plain, plain};
        by[0].defines = defines, by[0].define_count = 1;
        by[1].lengths_file = paths[p];
        by[2].fields = fields, by[2].field_count = 1;
        by[3].profile = paths[p];
        char source[1024];
        fcpc_program *program = NULL;
        for (size_t place = 0; place < PLACES; place++) {
            fcpc_diagnostics *d = fcpc_diagnostics_new();
            snprintf(source, sizeof source, places[place], paths[p]);
            refused(fcpc_parse_text("", source, strlen(source), &plain, d, &program), d, paths[p]);
        }
        for (int i = 0; i < 4; i++) {
            static const char text[] = "batch { lengths = [4]; field x = [0 x 4] }\nplan { mask = causal }";
            fcpc_diagnostics *d = fcpc_diagnostics_new();
            refused(fcpc_parse_text("", text, sizeof text - 1, &by[i], d, &program), d, paths[p]);
        }
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        refused(fcpc_parse_file(paths[p], &plain, d, &program), d, paths[p]);
        free(paths[p]);
    }
    close(fd), close(none[0]), close(none[1]);
}

/* --- places in long texts ----------------------------------------------------------------------------------------- */

static void lines(FILE *f, const char *line, int count) {
    for (int i = 0; i < count; i++) fputs(line, f);
}

Test(data_file, places_of_errors) {
    static const struct { size_t place; const char *good, *bad, *says; } cases[] = {
        {LENGTHS, "7 # seven\n", "7 8 9\n", ":400001:1: error[E301]: this is not a length\n400001 | 7 8 9\n"},
        {SLICES, "0 1 0 1\n", "  0 1 0 x\n", ":400001:9: error[E321]: this is not a position\n400001 |   0 1 0 x\n"},
        {TABLE, "1, 2\n", "3\n", ":400001:1: error[E320]: this row has not as many numbers as those before it\n"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = path_of("a");
        FILE *f = fopen(path, "w");
        lines(f, cases[i].good, 400000);
        fputs(cases[i].bad, f);
        lines(f, cases[i].good, 1000);
        fclose(f);
        char *said;
        cr_expect_neq(parse(cases[i].place, path, NULL, &said), FCP_OK);
        cr_expect_not_null(strstr(said, cases[i].says), "%s", said);
        free(said);
    }
}

/* A row of a megabyte: the column is that in the line, and the picture a part of it. */
Test(data_file, places_in_a_long_row) {
    const char *path = path_of("a");
    FILE *f = fopen(path, "w");
    lines(f, "1 ", 500000);
    fputs("12x4", f);
    lines(f, " 1", 500000);
    fclose(f);
    char *said;
    cr_expect_eq(parse(TABLE, path, NULL, &said), FCP_E_FIELD_FILE);
    cr_expect_not_null(strstr(said, ":1:1000001: error[E321]: this is not a finite number"), "%s", said);
    cr_expect_not_null(strstr(said, "    1 | ...1 1 1"), "%s", said);
    cr_expect_not_null(strstr(said, "1 12x4 1"), "%s", said);
    cr_expect_not_null(strstr(said, "^^^^"), "%s", said);
    free(said);
}

/* A warning about a line that was read long ago shows it; that of a pipe, which is gone, has its number. */
Test(data_file, places_of_overlaps) {
    char *said;
    FILE *f = fopen(path_of("a"), "w");
    lines(f, "# nothing\n", 20000);
    fputs("0 4 0 4\n, 2 3 2 3 causal\n", f);
    lines(f, "# nothing\n", 20000);
    fclose(f);
    cr_expect_eq(parse(SLICES, path_of("a"), NULL, &said), FCP_OK, "%s", said);
    cr_expect_not_null(strstr(said, "a:20002:3: warning: 2 of 2 slices overlap: this one with that of line 20001\n"
                                    "20002 | , 2 3 2 3 causal\n"), "%s", said);
    free(said);
    static const char slices[] = "0 4 0 4\n2 3 2 3\n";
    const char *path = path_of("pipe");
    cr_assert_eq(mkfifo(path, 0600), 0);
    stream s = {.path = path, .again = "#\n", .begin = slices, .begin_size = sizeof slices - 1, .most = 1};
    cr_assert_eq(pthread_create(&s.thread, NULL, give, &s), 0);
    cr_expect_eq(parse(SLICES, path, NULL, &said), FCP_OK, "%s", said);
    pthread_join(s.thread, NULL);
    cr_expect_not_null(strstr(said, "2 of 2 slices overlap: line 1 with line 2"), "%s", said);
    free(said);
}

/* --- being stopped ------------------------------------------------------------------------------------------------ */

Test(data_file, stops) {
    static const int stop = 1;
    const fcpc_options options = {.size = sizeof options, .stop = &stop};
    FILE *f = fopen(path_of("a"), "w");
    lines(f, "1\n", 4);
    fclose(f);
    for (size_t place = 0; place < PLACES; place++)
        cr_expect_eq(parse(place, path_of("a"), &options, NULL), FCP_E_INTERRUPTED);
    cr_expect_eq(parse(1, path_of("a"), NULL, NULL), FCP_OK);
}
