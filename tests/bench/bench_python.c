/* bench_python.c: measures what the Python package costs over the C functions that it calls.
 * tests/bench/bench_python.py measures, in the environment that make setup makes; here its lines become rows. */
#include <stdio.h>
#include <stdlib.h>
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

void bench_python(void) {
    if (!bench_may_want("python")) return; /* all rows have it in their names */
    if (access(PYTHON, X_OK) != 0) {
        printf("python: there is no " PYTHON " (make setup)\n");
        return;
    }
    char path[] = "/tmp/fcpc-bench-XXXXXX", command[200];
    if (write_lengths(path)) {
        snprintf(command, sizeof command, PYTHON " tests/bench/bench_python.py %s", path);
        bench_script(command);
    }
    unlink(path);
}
