/* bench_python.c: measures what the Python package costs over the C functions that it calls.
 * tests/bench/bench_python.py measures, in the environment that make setup makes; here its lines become rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

#define PYTHON "build/python/bin/python"

/* Writes the lengths of a batch to a temporary file, whose name is put into `path`. */
static bool write_lengths(char *path) {
    size_t count;
    bool drawn;
    uint64_t *lengths = workload_lengths("wlbllm-256x32k", 256u << 15, &count, &drawn);
    int fd = lengths ? mkstemp(path) : -1;
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    for (size_t i = 0; f && i < count; i++) fprintf(f, "%llu\n", (unsigned long long)lengths[i]);
    free(lengths);
    return f && fclose(f) == 0;
}

/* A line is NAME, VALUE, UNIT, GOAL, met or missed or -, and a NOTE, with tabs between. */
static void read_row(char *line) {
    char *part[6] = {line};
    for (int i = 1; i < 6; i++) {
        char *tab = part[i - 1] ? strchr(part[i - 1], '\t') : NULL;
        if (tab) *tab = 0;
        part[i] = tab ? tab + 1 : NULL;
    }
    if (!part[5]) return;
    part[5][strcspn(part[5], "\n")] = 0;
    bench_row(part[0], strtod(part[1], NULL), part[2], part[3], !strcmp(part[4], "met"), part[5]);
}

void bench_python(void) {
    if (!bench_may_want("python")) return; /* all rows have it in their names */
    if (access(PYTHON, X_OK) != 0) {
        printf("python: there is no " PYTHON " (make setup)\n");
        return;
    }
    char path[] = "/tmp/fcpc-bench-XXXXXX", command[200], line[512];
    if (write_lengths(path)) {
        snprintf(command, sizeof command, PYTHON " tests/bench/bench_python.py %s", path);
        FILE *said = popen(command, "r");
        while (said && fgets(line, sizeof line, said)) read_row(line);
        if (said) pclose(said);
    }
    unlink(path);
}
