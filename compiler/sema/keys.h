/* keys.h: finds the keys that a program sets, checks their values, and stores what they mean in the program. */
#ifndef FCPC_SEMA_KEYS_H
#define FCPC_SEMA_KEYS_H
#include "compiler/sema/sema.h"

typedef struct sema_keys {
    bool misspelled; /* a section has an unknown name; a key that seems to be missing may stand there */
    const entry *at[KEY_COUNT];               /* NULL: not set */
    const section *sections[SECTION_COUNT];   /* NULL: not there */
} sema_keys;

/* Finds the sections and keys of the program; reports unknown and repeated ones. *out is zero-initialised. */
void sema_collect_keys(sema *s, sema_keys *out);

/* Reads a number with a unit of the dimension into *out, in 10^-power of the base unit; it must be at least 1 of these.
 * False: it is something else, reported with the example. */
bool sema_quantity(sema *s, const expr *v, const char *what, unit_dimension dimension, int power, const char *example,
                   uint64_t *out);

/* The index of a name in a set of names; -1: it is none of them, reported. `what` must be one of the names. */
int sema_choice(sema *s, const expr *e, const char *what, const char *const *names, int count);
/* Is the value true? 1, 0; or -1: it is neither true nor false, reported. */
int sema_flag(sema *s, const expr *e, const char *what);

/* Each function reads the keys of one section into s->out. sema_check_cluster needs the dtype, so it must be called
 * after sema_check_model. With `needed`, a program without lengths is an error. sema_check_plan does not read mask,
 * score and sink, which expr/choose.c lowers. */
void sema_check_model(sema *s, const sema_keys *k);
/* Reads `linear` and `linear_memory` of the model (linear.c). It needs heads and the cluster's flops. */
void sema_check_linear(sema *s, const sema_keys *k);
void sema_check_cluster(sema *s, const sema_keys *k);
void sema_check_batch(sema *s, const sema_keys *k, bool needed);
void sema_check_plan(sema *s, const sema_keys *k);
#endif
