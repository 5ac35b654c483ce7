/* mailbox.h: how the processes of one NCCL communicator talk to each other in tests: through a file that each of them
 * maps.
 *
 * The communicator's unique id names the folder of that file. Bytes from one rank to another go through a ring buffer,
 * which one of them writes and the other reads. Everything else is single atomic words.
 */
#ifndef STANDIN_MAILBOX_H
#define STANDIN_MAILBOX_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BOX_RANKS = 16, BOX_RING = 32768, BOX_ID = 128 };

enum box_state { BOX_AWAY, BOX_JOINED, BOX_CHECKED, BOX_FINAL, BOX_GONE, BOX_DEAD };
typedef struct box_rank {
    _Atomic int pid, device, state;
} box_rank;
/* What goes from one rank to another. */
typedef struct box_pair {
    _Atomic uint32_t connects; /* bits: 1 the sender wants to connect, 2 the receiver does; 4, 8 for collectives */
    _Atomic uint64_t posted;   /* how many receives have begun */
    _Atomic uint64_t written, taken; /* bytes that went through the ring since the beginning */
    unsigned char ring[BOX_RING];
} box_pair;
typedef struct box {
    char magic[16];
    _Atomic uint32_t ranks; /* as the first rank that came said */
    box_rank rank[BOX_RANKS];
    box_pair pair[];        /* [from][to] */
} box;

typedef struct mailbox {
    box *box;
    size_t bytes;
    uint32_t ranks;
    char folder[BOX_ID];
} mailbox;

/* Makes an empty mailbox in a new folder under $TMPDIR, and the id that finds it. False: it could not. */
bool mailbox_make(char id[BOX_ID]);
typedef enum mailbox_result {
    MAILBOX_OPEN, MAILBOX_NO_ID, MAILBOX_NOT_THERE, MAILBOX_OTHER_RANKS, MAILBOX_SYSTEM
} mailbox_result;
mailbox_result mailbox_open(mailbox *m, const char id[BOX_ID], uint32_t ranks);
void mailbox_close(mailbox *m);
/* Removes the folder. All ranks have the file open by now. */
void mailbox_forget(mailbox *m);
box_pair *mailbox_pair(const mailbox *m, uint32_t from, uint32_t to);
/* Has this rank gone? It said so, or its process has ended. */
bool mailbox_dead(const mailbox *m, uint32_t rank);

/* Writes or reads as many bytes as the ring has room for or holds now. Returns their number. */
size_t box_write(box_pair *p, const void *from, size_t bytes);
size_t box_read(box_pair *p, void *to, size_t bytes);
#endif
