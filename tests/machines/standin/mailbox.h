/* mailbox.h: what the processes of one communicator share: a file of a folder that the unique id names, mapped by each.
 *
 * Bytes of a pair of ranks go through a ring that one of them writes and one reads; everything else is single words. */
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
/* From one rank to another. */
typedef struct box_pair {
    _Atomic uint32_t connects;            /* 1: the sender wants to be connected, 2: the receiver; 4, 8: for collectives */
    _Atomic uint64_t posted;              /* receives begun */
    _Atomic uint64_t written, taken;      /* bytes of the ring, ever */
    unsigned char ring[BOX_RING];
} box_pair;
typedef struct box {
    char magic[16];
    _Atomic uint32_t ranks; /* as the first of them said */
    box_rank rank[BOX_RANKS];
    box_pair pair[];        /* [from][to], of `ranks` ranks */
} box;

typedef struct mailbox {
    box *box;
    size_t bytes;
    uint32_t ranks;
    char folder[BOX_ID];
} mailbox;

/* Makes a folder under $TMPDIR with an empty mailbox, and writes the id that finds it; false: it cannot. */
bool mailbox_make(char id[BOX_ID]);
typedef enum mailbox_result { MAILBOX_OPEN, MAILBOX_NO_ID, MAILBOX_NOT_THERE, MAILBOX_OTHER_RANKS, MAILBOX_SYSTEM } mailbox_result;
mailbox_result mailbox_open(mailbox *m, const char id[BOX_ID], uint32_t ranks);
void mailbox_close(mailbox *m);
/* Everybody has it open: no name is needed any longer. */
void mailbox_forget(mailbox *m);
box_pair *mailbox_pair(const mailbox *m, uint32_t from, uint32_t to);
/* The rank is not there any longer: it said so, or its process has ended. */
bool mailbox_dead(const mailbox *m, uint32_t rank);

/* As many bytes as now go; the number of them. */
size_t box_write(box_pair *p, const void *from, size_t bytes);
size_t box_read(box_pair *p, void *to, size_t bytes);
#endif
