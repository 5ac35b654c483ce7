/* mailbox.c: the shared file of mailbox.h. Cost: a sparse file of BOX_RING bytes for each pair of ranks.
 *
 * The file lies in a folder of its own, which is removed once all ranks have the file open, or when the process that
 * made the folder ends normally.
 */
#include "tests/machines/standin/mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[16] = "mailbox of NCCL";
enum { MADE = 32 };
static char made[MADE][BOX_ID]; /* folders that this process made */
static pid_t maker;

static void remove_folder(const char *folder) {
    char path[BOX_ID + 8];
    snprintf(path, sizeof path, "%.*s/box", BOX_ID, folder);
    unlink(path);
    rmdir(folder);
}

__attribute__((destructor)) static void forget_all(void) {
    for (int i = 0; i < MADE && maker == getpid(); i++)
        if (made[i][0]) remove_folder(made[i]);
}

bool mailbox_make(char id[BOX_ID]) {
    const char *folder = getenv("TMPDIR");
    char text[BOX_ID], path[BOX_ID + 8];
    int size = snprintf(text, sizeof text, "%s/nccl-XXXXXX", folder && *folder ? folder : "/tmp");
    if (size < 0 || size + (int)sizeof magic >= BOX_ID || !mkdtemp(text)) return false;
    snprintf(path, sizeof path, "%s/box", text);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = file >= 0 && write(file, magic, sizeof magic) == (ssize_t)sizeof magic;
    if (file >= 0) close(file);
    if (!ok) remove_folder(text);
    if (!ok) return false;
    if (maker != getpid()) memset(made, 0, sizeof made);
    maker = getpid();
    for (int i = 0; i < MADE; i++)
        if (!made[i][0]) {
            memcpy(made[i], text, sizeof text);
            break;
        }
    memset(id, 0, BOX_ID);
    memcpy(id, magic, sizeof magic);
    memcpy(id + sizeof magic, text, (size_t)size + 1);
    return true;
}

mailbox_result mailbox_open(mailbox *m, const char id[BOX_ID], uint32_t ranks) {
    char path[BOX_ID + 8];
    struct stat st;
    *m = (mailbox){.ranks = ranks, .bytes = sizeof(box) + (size_t)ranks * ranks * sizeof(box_pair)};
    if (memcmp(id, magic, sizeof magic) || !memchr(id + sizeof magic, 0, BOX_ID - sizeof magic)) return MAILBOX_NO_ID;
    snprintf(m->folder, sizeof m->folder, "%s", id + sizeof magic);
    snprintf(path, sizeof path, "%s/box", m->folder);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return errno == ENOENT ? MAILBOX_NOT_THERE : MAILBOX_SYSTEM;
    bool ok = !fstat(file, &st) && (st.st_size >= (off_t)m->bytes || !ftruncate(file, (off_t)m->bytes));
    void *map = ok ? mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    if (map == MAP_FAILED) return MAILBOX_SYSTEM;
    m->box = map;
    uint32_t none = 0;
    if (atomic_compare_exchange_strong(&m->box->ranks, &none, ranks) || none == ranks) return MAILBOX_OPEN;
    mailbox_close(m);
    return MAILBOX_OTHER_RANKS;
}

void mailbox_close(mailbox *m) {
    if (m->box) munmap(m->box, m->bytes);
    m->box = NULL;
}

void mailbox_forget(mailbox *m) {
    remove_folder(m->folder);
    for (int i = 0; i < MADE; i++)
        if (strcmp(made[i], m->folder) == 0) made[i][0] = 0;
}

box_pair *mailbox_pair(const mailbox *m, uint32_t from, uint32_t to) {
    return &m->box->pair[(size_t)from * m->ranks + to];
}

bool mailbox_dead(const mailbox *m, uint32_t rank) {
    const box_rank *r = &m->box->rank[rank];
    int pid = atomic_load(&r->pid), state = atomic_load(&r->state);
    if (state == BOX_GONE || state == BOX_DEAD) return true;
    if (state == BOX_FINAL) return false; /* it has ended in an orderly way */
    return pid && kill(pid, 0) && errno == ESRCH;
}

size_t box_write(box_pair *p, const void *from, size_t bytes) {
    uint64_t at = atomic_load(&p->written), room = BOX_RING - (at - atomic_load(&p->taken));
    size_t count = bytes < room ? bytes : (size_t)room;
    for (size_t i = 0, part; i < count; i += part) {
        size_t to = (size_t)((at + i) % BOX_RING);
        part = count - i < BOX_RING - to ? count - i : BOX_RING - to;
        memcpy(p->ring + to, (const char *)from + i, part);
    }
    atomic_store(&p->written, at + count);
    return count;
}

size_t box_read(box_pair *p, void *to, size_t bytes) {
    uint64_t at = atomic_load(&p->taken), there = atomic_load(&p->written) - at;
    size_t count = bytes < there ? bytes : (size_t)there;
    for (size_t i = 0, part; i < count; i += part) {
        size_t from = (size_t)((at + i) % BOX_RING);
        part = count - i < BOX_RING - from ? count - i : BOX_RING - from;
        memcpy((char *)to + i, p->ring + from, part);
    }
    atomic_store(&p->taken, at + count);
    return count;
}
