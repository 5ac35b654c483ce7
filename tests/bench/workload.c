/* workload.c: gives batches of sequence lengths, from files or drawn at random.
 *
 * Drawn lengths come from a linear congruential generator, so they are the same on every machine. They have the
 * quantiles of a long-tailed list of documents: median 3227 tokens, 90 % 5784, 99 % 26,070, longest 124,913. Between
 * two quantiles of the table, lengths lie on a straight line.
 */
#include "tests/bench/workload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/splitmix.h"

static uint64_t *append(uint64_t *list, size_t *count, size_t *capacity, uint64_t value) {
    if (*count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 1024;
        uint64_t *grown = realloc(list, *capacity * sizeof *list);
        if (!grown) {
            free(list);
            return NULL;
        }
        list = grown;
    }
    list[(*count)++] = value;
    return list;
}

static uint64_t *read_file(const char *path, size_t *out_count) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    uint64_t *list = NULL, value;
    size_t count = 0, capacity = 0;
    while (fscanf(f, "%" SCNu64, &value) == 1)
        if (!(list = append(list, &count, &capacity, value))) break;
    fclose(f);
    *out_count = count;
    return list;
}

static uint64_t *draw(uint64_t tokens, size_t *out_count) {
    static const uint32_t per_mille[] = {0, 100, 500, 900, 990, 1000}, length[] = {16, 700, 3227, 5784, 26070, 124913};
    uint64_t *list = NULL, state = 1, total = 0;
    size_t count = 0, capacity = 0;
    while (total < tokens) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t u = (uint32_t)(state >> 40) % 1000000, i = 0; /* millionths */
        while (u >= per_mille[i + 1] * 1000u) i++;
        uint64_t span = (per_mille[i + 1] - per_mille[i]) * 1000u;
        uint64_t n = length[i] + (u - per_mille[i] * 1000u) * (uint64_t)(length[i + 1] - length[i]) / span;
        if (n > tokens - total) n = tokens - total;
        if (!(list = append(list, &count, &capacity, n))) return NULL;
        total += n;
    }
    *out_count = count;
    return list;
}

uint64_t *workload_lengths(const char *name, uint64_t tokens, size_t *out_count, bool *out_drawn) {
    const char *folder = getenv("FCPC_WORKLOADS");
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.lengths", folder && *folder ? folder : "../shared/workloads", name);
    uint64_t *list = read_file(path, out_count);
    *out_drawn = list == NULL;
    return list ? list : draw(tokens, out_count);
}

uint64_t *workload_sample(const uint64_t *list, size_t list_count, uint64_t tokens, uint64_t seed, size_t *out_count) {
    uint64_t *lengths = NULL, left = tokens;
    size_t count = 0, capacity = 0;
    while (left) {
        uint64_t n = list[splitmix(&seed) % list_count];
        if (n > left) n = left;
        if (!(lengths = append(lengths, &count, &capacity, n))) return NULL;
        left -= n;
    }
    *out_count = count;
    return lengths;
}
