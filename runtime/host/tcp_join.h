/* tcp_join.h: how the ranks of the transport "tcp" find each other: ids, and the connections of each pair of ranks. */
#ifndef FCP_HOST_TCP_JOIN_H
#define FCP_HOST_TCP_JOIN_H
#include <sys/types.h>

#include "runtime/base/clock.h"
#include "runtime/rendezvous/rendezvous.h"

enum { FCP_TCP_SECRET = 32, FCP_TCP_HOST = 64 };

/* HOST:PORT:SECRET, the text of an id. */
typedef struct fcp_tcp_id {
    char host[FCP_TCP_HOST], secret[FCP_TCP_SECRET + 1];
    uint16_t port;
} fcp_tcp_id;
fcp_code fcp_tcp_id_read(const void *id, fcp_tcp_id *out, fcp_error *err);
/* With a secret that nobody can guess. */
fcp_code fcp_tcp_id_write(const char *host, uint16_t port, void *out_id, fcp_error *err);

/* Rank 0 calls this before others know the id. It listens at a port (0: any) of the address by which `host` is
 * known, and learns which port it is. nodes: the plan has several nodes, so ranks may come from other machines. */
fcp_code fcp_tcp_listen(const char *host, bool nodes, uint16_t port, int *out_socket, uint16_t *out_port,
                        fcp_error *err);

/* The connections of a pair of ranks. Beats have one of their own, so that no other message delays them. */
typedef enum fcp_tcp_line { FCP_TCP_DATA, FCP_TCP_BEATS, FCP_TCP_LINES } fcp_tcp_line;
typedef int fcp_tcp_pair[FCP_TCP_LINES]; /* sockets that do not block; -1: there is none */

/* Makes all connections of this rank within timeout_s, to out_pairs[r] of each other rank r. `listens` is rank 0's
 * socket, and unused elsewhere. After an error the connections that were made stay. Errors: FCP_E_START,
 * FCP_E_NO_MEMORY. */
fcp_code fcp_tcp_join(const fcp_place *place, const fcp_tcp_id *id, int listens, uint32_t timeout_s,
                      fcp_tcp_pair *out_pairs, fcp_error *err);

/* Waits a moment, and moves what can be moved. Returns the number of bytes moved, which may be 0, or -1 if the other
 * side has closed. */
ssize_t fcp_tcp_move(int socket, void *data, size_t bytes, bool sends);
#endif
