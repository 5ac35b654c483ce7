/* message_group.h: turns the wires that a rank has launched together into messages, for transports between processes.
 *
 * A transport that cannot reach the memory of other ranks sends each wire as one message: a header that says what the
 * message is, and behind it the wire's segments end to end. This file holds what all such transports keep of the group
 * that is under way. The transports differ in how the bytes travel.
 */
#ifndef FCP_HOST_MESSAGE_GROUP_H
#define FCP_HOST_MESSAGE_GROUP_H
#include "runtime/exec/transport.h"

typedef struct fcp_group {
    const fcp_wire *wires; /* the caller's */
    uint32_t count, left;  /* left: wires that are not complete */
    char **message;        /* of each wire, in `memory`: its header, then its bytes */
    bool *complete;        /* of each wire */
    size_t header;         /* bytes of a header */
    char *memory;
    size_t memory_held;
    uint32_t held;
} fcp_group;

/* Begins a group: makes room for its messages, and packs what is sent behind its header, which the caller fills. The
 * room is kept for later groups. Errors: FCP_E_NO_MEMORY. */
fcp_code fcp_group_begin(fcp_group *group, const fcp_wire *wires, uint32_t count, size_t header, fcp_error *err);
/* The bytes of a wire's message, its header included. */
size_t fcp_group_bytes(const fcp_group *group, uint32_t wire);
/* All of a wire's message has been taken, or has come: then it is unpacked. */
void fcp_group_complete(fcp_group *group, uint32_t wire);
/* The wire to name when the group is late: a receive rather than a send. There must be one that is not complete. */
uint32_t fcp_group_late(const fcp_group *group);
void fcp_group_free(fcp_group *group);
#endif
