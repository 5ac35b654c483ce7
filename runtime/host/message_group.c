/* message_group.c: packs and unpacks the messages of a group of wires, and keeps their memory (message_group.h). */
#include "runtime/host/message_group.h"

#include <stdlib.h>

#include "runtime/base/clock.h"

size_t fcp_group_bytes(const fcp_group *group, uint32_t wire) {
    return group->header + fcp_wire_bytes(&group->wires[wire]);
}

static bool make_room(fcp_group *g, uint32_t count, size_t bytes) {
    if (count > g->held) {
        free(g->message);
        free(g->complete);
        g->message = calloc(count, sizeof *g->message);
        g->complete = calloc(count, sizeof *g->complete);
        g->held = g->message && g->complete ? count : 0;
    }
    if (bytes > g->memory_held) {
        free(g->memory);
        g->memory = malloc(bytes);
        g->memory_held = g->memory ? bytes : 0;
    }
    return g->held >= count && g->memory_held >= bytes;
}

fcp_code fcp_group_begin(fcp_group *group, const fcp_wire *wires, uint32_t count, size_t header, fcp_error *err) {
    size_t bytes = 0;
    group->wires = wires;
    group->count = group->left = count;
    group->header = header;
    for (uint32_t i = 0; i < count; i++) bytes += fcp_group_bytes(group, i);
    if (!make_room(group, count, bytes))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u messages of %zu bytes", count, bytes);
    char *at = group->memory;
    for (uint32_t i = 0; i < count; i++) {
        group->message[i] = at;
        group->complete[i] = false;
        if (wires[i].dir == FCP_SEND) fcp_wire_pack(&wires[i], at + header);
        at += fcp_group_bytes(group, i);
    }
    return FCP_OK;
}

void fcp_group_complete(fcp_group *group, uint32_t wire) {
    const fcp_wire *w = &group->wires[wire];
    if (w->dir == FCP_RECV) fcp_wire_unpack(w, group->message[wire] + group->header);
    if (w->ended) *w->ended = fcp_clock_ns();
    group->complete[wire] = true;
    group->left--;
}

uint32_t fcp_group_late(const fcp_group *group) {
    uint32_t late = 0;
    for (uint32_t i = 0; i < group->count; i++)
        if (!group->complete[i] && (group->wires[i].dir == FCP_RECV || group->complete[late])) late = i;
    return late;
}

void fcp_group_free(fcp_group *group) {
    free(group->message);
    free(group->complete);
    free(group->memory);
}
