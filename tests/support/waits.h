/* waits.h: says in words what the kernels' watched builds have written down of their waits (codegen/kernels/abi.h,
 * "waits"). gpu-check reads the tables from a device, the tests of the PTX machine from its memory.
 */
#ifndef SUPPORT_WAITS_H
#define SUPPORT_WAITS_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "codegen/kernels/abi.h"

enum { WAIT_NAME = 80 };
/* What a module says of its waits; all empty if it gives no names. first: what fk_first_mbarrier is. */
typedef struct wait_names {
    char mbarriers[400], barriers[400], roles[200];
    uint32_t first;
} wait_names;

/* The index-th of the names between which there is a '|'. False: there are not so many. */
static inline bool wait_part(const char *names, uint32_t index, char out[WAIT_NAME]) {
    for (; index && names; index--) {
        names = strchr(names, '|');
        if (names) names++;
    }
    if (!names || !*names) return false;
    snprintf(out, WAIT_NAME, "%.*s", (int)strcspn(names, "|"), names);
    return true;
}

static inline void wait_name(const wait_names *n, uint32_t what, char out[WAIT_NAME]) {
    const uint32_t first = n->first ? (FK_PLACE_LAST - n->first) / 8 % 16 : 0;
    const uint32_t mbarrier = (what - FK_WAIT_MBARRIER + 16 - first) % 16;
    char name[WAIT_NAME];
    if (what == FK_WAIT_TURN) snprintf(out, WAIT_NAME, "a lock's turn");
    else if (what == FK_WAIT_ARRIVAL) snprintf(out, WAIT_NAME, "an arrival");
    else if (what == FK_WAIT_COPIES) snprintf(out, WAIT_NAME, "cp.async");
    else if (what >= FK_WAITS) snprintf(out, WAIT_NAME, "wait %u", what);
    else if (what < FK_WAIT_MBARRIER && wait_part(n->barriers, what, name))
        snprintf(out, WAIT_NAME, "named barrier %u, \"%.50s\"", what, name);
    else if (what < FK_WAIT_MBARRIER) snprintf(out, WAIT_NAME, "named barrier %u", what);
    else if (n->first && wait_part(n->mbarriers, mbarrier, name)) snprintf(out, WAIT_NAME, "mbarrier \"%.60s\"", name);
    else snprintf(out, WAIT_NAME, "mbarrier %u", mbarrier);
}

/* The role of a warp, and how many warps have it. Without roles all warps have one. */
static inline uint32_t wait_role(const wait_names *n, uint32_t warp, char out[WAIT_NAME]) {
    char part[WAIT_NAME];
    for (uint32_t i = 0, begin = 0; wait_part(n->roles, i, part); i++) {
        char *space = strrchr(part, ' ');
        unsigned count = 0;
        if (!space || sscanf(space, "%u", &count) != 1) break;
        *space = 0;
        if (warp < begin + count) {
            memcpy(out, part, WAIT_NAME);
            return count;
        }
        begin += count;
    }
    snprintf(out, WAIT_NAME, "all warps");
    return FK_WAIT_WARPS;
}

/* What each warp waits for, by `now` (as in fk_waits); neighbours of the same role that wait for the same are told
 * once. */
static inline void wait_all(const wait_names *n, const uint32_t now[FK_WAIT_WARPS], char *out, size_t size) {
    size_t used = 0;
    *out = 0;
    for (uint32_t w = 0; w < FK_WAIT_WARPS; w++) {
        char role[WAIT_NAME], other[WAIT_NAME], name[WAIT_NAME];
        if (!now[w]) continue;
        uint32_t last = w;
        wait_role(n, w, role);
        for (; last + 1 < FK_WAIT_WARPS && now[last + 1] == now[w]; last++) {
            wait_role(n, last + 1, other);
            if (strcmp(role, other)) break;
        }
        wait_name(n, (now[w] & 255) - 1, name);
        used += (size_t)snprintf(out + used, size - used, "%swarps %u to %u (%s) for %s, %u", used ? "; " : "", w, last,
                                 role, name, now[w] >> 8);
        if (used >= size) return;
        w = last;
    }
}

/* What fk_gave_up says. */
static inline void wait_gave_up(const wait_names *n, const uint32_t x[FK_GAVE_UP], char *out, size_t size) {
    char name[WAIT_NAME], role[WAIT_NAME], all[700];
    const char *number = x[1] >= FK_WAIT_MBARRIER && x[1] < FK_WAIT_TURN ? "phase" : "number";
    wait_name(n, x[1], name);
    wait_role(n, x[5] / 32, role);
    wait_all(n, x + 6, all, sizeof all);
    snprintf(out, size, "%u waits gave up, the first for %s at %#x, %s %u, in CTA %u, thread %u (%s)%s%s", x[0], name,
             x[2], number, x[3], x[4], x[5], role, *all ? "; its CTA then waited: " : "", all);
}

/* One line of where time went: what a role waited for, as a part of its time. */
typedef struct wait_line {
    char role[WAIT_NAME], name[WAIT_NAME];
    double part, whole_ns; /* whole_ns: how long warps of that role lasted, all in all */
} wait_line;
enum { WAIT_LINES = 128 };
/* Adds up fk_waited by role. Returns how many lines there are, of what was waited for at all. */
static inline uint32_t wait_lines(const wait_names *n, const uint64_t (*waited)[FK_WAITS], wait_line out[WAIT_LINES]) {
    uint32_t count = 0;
    for (uint32_t w = 0, next; w < FK_WAIT_WARPS; w = next) {
        char role[WAIT_NAME], other[WAIT_NAME];
        uint64_t sums[FK_WAITS] = {0};
        wait_role(n, w, role);
        for (next = w; next < FK_WAIT_WARPS; next++) {
            wait_role(n, next, other);
            if (strcmp(role, other)) break;
            for (uint32_t k = 0; k < FK_WAITS; k++) sums[k] += waited[next][k];
        }
        for (uint32_t k = 0; k < FK_WAIT_WHOLE && count < WAIT_LINES; k++) {
            if (!sums[k] || !sums[FK_WAIT_WHOLE]) continue;
            wait_line *to = &out[count++];
            memcpy(to->role, role, WAIT_NAME);
            wait_name(n, k, to->name);
            to->part = (double)sums[k] / (double)sums[FK_WAIT_WHOLE];
            to->whole_ns = (double)sums[FK_WAIT_NANOSECONDS];
        }
    }
    return count;
}
#endif
