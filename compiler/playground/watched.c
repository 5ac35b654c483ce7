/* watched.c: tells the page how far a command is, in the place of the command line's progress.c, whose thread, terminal
 * and signals a page does not have.
 *
 * A page cannot interrupt the compiler: it ends the worker instead, with all its memory. So holding, guarding and
 * stopping do nothing here. What takes long asks fcp_stop_asked often; that is when the page is told.
 */
#include <emscripten.h>

#include "compiler/playground/play.h"
#include "runtime/base/clock.h"
#include "runtime/base/stop.h"

static const fcpc_progress *planning; /* NULL: nothing is being planned */
static size_t candidate, candidates;  /* the one that sim works on, from 1, and all; 0: there is one program */
static double told;                   /* when, in seconds */
static unsigned asked;                /* since the clock was read */

/* clang-format off */
EM_JS(void, tell_page, (double part, double tried, double of), {
    if (Module.tell) Module.tell(part, tried, of);
})
/* clang-format on */

static void tell(void) {
    const auto_report *tried = &play_input()->tried;
    double part = 0, done = 0, of = 0;
    if (planning && planning->expected) part = (double)planning->done / (double)planning->expected;
    if (candidates) {
        done = (double)candidate - 1;
        of = (double)candidates;
    } else {
        of = tried->count;
        for (uint32_t i = 0; i < tried->count; i++) done += tried->at[i].work > 0;
    }
    tell_page(part, done, of);
}

bool fcp_stop_asked(const volatile int *stop) {
    (void)stop;
    if (++asked < 16) return false;
    asked = 0;
    const double now = fcp_clock();
    if (now - told >= 0.1) {
        told = now;
        tell();
    }
    return false;
}

void cmd_progress_init(bool as_json, bool quiet) {
    (void)as_json;
    (void)quiet;
    told = fcp_clock();
}
void cmd_hold(void) {}
void cmd_release(void) {}
void cmd_guard(const char *path) { (void)path; }
void cmd_unguard(const char *path) { (void)path; }
void cmd_doing(const char *what) { (void)what; }
void cmd_watch(const fcpc_progress *of) { planning = of; }
void cmd_candidate(size_t number, size_t of) {
    candidate = number;
    candidates = of;
    if (of) tell();
}
void cmd_done(void) {}
double cmd_now(void) { return fcp_clock(); }
