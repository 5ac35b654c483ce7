/* lsp.h: a language server: it answers an editor that speaks the Language Server Protocol.
 *
 *     lsp_server *s = lsp_server_new();
 *     lsp_feed(s, bytes, size);                      what the editor has sent, in pieces of any size
 *     while ((job = lsp_next_job(s))) {              a text that changed is to be checked
 *         lsp_job_run(job);                          on any thread; all else is for one thread
 *         lsp_job_done(s, job);
 *     }
 *     text *out = lsp_output(s);                     to be sent to the editor, and emptied by the caller
 *
 * Requests are answered when they are fed, from the newest text. Diagnostics take longer, because they need files and a
 * plan: they are jobs. There is one job at a time. If the text of a job changes, the server asks it to stop.
 *
 * Source: Language Server Protocol 3.17.
 */
#ifndef FCPC_LSP_LSP_H
#define FCPC_LSP_LSP_H
#include "compiler/base/text.h"

typedef struct lsp_server lsp_server;
typedef struct lsp_job lsp_job;

/* The most bytes of a message. */
#define LSP_MESSAGE_MOST ((size_t)64 << 20)
/* Planning in an editor is given up after so many seconds, or before it begins if deciding the mask is estimated to take
 * more than this many seconds of a processor. */
#define LSP_PLAN_SECONDS 10.0
#define LSP_MASK_SECONDS 2.0

lsp_server *lsp_server_new(void);    /* NULL: no memory */
void lsp_server_free(lsp_server *s); /* it has no job; NULL is accepted */
void lsp_feed(lsp_server *s, const char *bytes, size_t size);
text *lsp_output(lsp_server *s);

typedef enum lsp_state {
    LSP_RUNNING,
    LSP_ENDED, /* the editor has said `shutdown`, and then `exit` */
    LSP_LEFT,  /* it has said `exit` alone */
    LSP_BROKEN /* what it sends is no protocol, so the next message cannot be found; or there is no memory */
} lsp_state;
lsp_state lsp_server_state(const lsp_server *s);
const char *lsp_server_why(const lsp_server *s); /* why it is broken */

/* The next step of a job; NULL: there is nothing to do. A job belongs to the caller until lsp_job_done. */
lsp_job *lsp_next_job(lsp_server *s);
void lsp_job_run(lsp_job *job);
void lsp_job_done(lsp_server *s, lsp_job *job);
/* Ends a job that has run for too long; any thread may say so while it runs. The editor is told. */
void lsp_job_late(lsp_job *job);
/* Ends the job that runs, because nobody waits for it any more. */
void lsp_stop(lsp_server *s);
#endif
