/* networks.h: what the files that look at layers that recur share. Private to runtime/verify; networks.c says what is
 * proven.
 */
#ifndef FCP_VERIFY_NETWORKS_H
#define FCP_VERIFY_NETWORKS_H
#include "runtime/plan/recurrent.h"
#include "runtime/verify/verify_parts.h"

/* All stretches of the plan. Stretch i of rank r has the number first[r] + i. In order of the packed batch they have
 * places, so the stretches of a document lie next to each other. */
typedef struct all_stretches {
    uint64_t count;
    uint64_t *first;          /* ranks + 1 of them */
    fcp_stretch *of;          /* by number */
    uint32_t *place;          /* by number */
    uint32_t *begin, *end;    /* by place: of the stretches of the document */
    uint64_t *document_end;   /* by place: the row behind the document's last */
    uint64_t *document_start; /* by place: its first row */
    /* By number: how many stretches up to and with this one do not come first in their documents, in the order of the
     * packed batch, and in the other. `others`: of all; both ways they are as many. */
    uint32_t *later[2];
    uint32_t others;
    void *room, *more_room; /* of these tables */
} all_stretches;

/* A step that sends or receives, and its place in its rank's stream. */
typedef struct message {
    uint32_t rank, at;
} message;

/* One network: a layer in a pass. */
typedef struct network {
    const verifier *v;
    const all_stretches *all;
    const fcp_recurrent *layer;
    uint32_t number; /* of the layer */
    fcp_pass pass;
    const fcp_step_stream *stream; /* by rank */
    uint64_t steps;                /* of all ranks */
    struct scan_state *scan;       /* check_scan.c */
    struct halo_state *halo;       /* check_halo.c */
} network;

static inline const fcp_step *fcp_verify_step(const network *n, const message *m) {
    return &n->v->plan->steps[n->stream[m->rank].first + m->at];
}

/* An error of a rank in a network, at a step of its stream or, with FCP_NONE, at none. */
fcp_code fcp_verify_fail_step(const network *n, fcp_code code, uint32_t rank, uint32_t at, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));

/* networks.c: everything about layers that recur. The rest of the plan is right. */
fcp_code fcp_verify_networks(const verifier *v);

/* check_scan.c: follows what registers hold, round by round. The steps of the network are in order (networks.c).
 *   fcp_verify_scan_open     allocates n->scan, which fcp_verify_scan_close frees
 *   fcp_verify_scan_send     does what the rank does before it sends, and takes message `number`, of `count`
 *   fcp_verify_scan_receive  stores it. All sends of its round have been taken
 *   fcp_verify_scan_end      does what is left, and looks at the results. *out_depth: the longest chain of messages */
fcp_code fcp_verify_scan_open(network *n, uint64_t count);
void fcp_verify_scan_close(network *n);
fcp_code fcp_verify_scan_send(network *n, const message *m, uint64_t number);
fcp_code fcp_verify_scan_receive(network *n, const message *m, uint64_t number);
fcp_code fcp_verify_scan_end(network *n, uint32_t *out_depth);

/* check_halo.c: notes which rows come from where.
 *   fcp_verify_halo_open     allocates n->halo, which fcp_verify_halo_close frees
 *   fcp_verify_halo_moved    message `to` receives what message `from` sends
 *   fcp_verify_halo_end      looks at all rows */
fcp_code fcp_verify_halo_open(network *n);
void fcp_verify_halo_close(network *n);
fcp_code fcp_verify_halo_moved(network *n, const message *from, const message *to);
fcp_code fcp_verify_halo_end(network *n);
#endif
