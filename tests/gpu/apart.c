/* apart.c: runs a piece of work in a process of its own, and waits for it no longer than its time.
 *
 * A kernel that hangs, a context that is lost or a crash ends that process and nothing else. A process that is killed
 * while a kernel runs may stay until the driver lets go of it. Nobody waits for that: after a few seconds it is left
 * alone, and the text says so.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/gpu/gpu.h"

#define REAP_S 5.0 /* how long a killed process may take to go */

void gpu_end_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) raise(SIGKILL); /* it went before the line above, so no signal will come */
}

/* Hides all devices but the first of those that the environment lets us see. */
static void hide_others(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char first[80] = "0";
    if (visible) snprintf(first, sizeof first, "%.*s", (int)strcspn(visible, ","), visible);
    setenv("CUDA_VISIBLE_DEVICES", first, 1);
}

/* Lets go wrong what --inject names. */
static void go_wrong(gpu *g, const char *name) {
    if (gpu_injected(g, "die", name)) raise(SIGKILL);
    if (gpu_injected(g, "hang", name)) raise(SIGSTOP);
    if (gpu_injected(g, "kill", name)) {
        kill(g->first, SIGKILL);
        /* All processes of a machine end at once. If this one ended first, who waits for it would write that down. */
        for (;;) pause();
    }
    if (gpu_injected(g, "fail", name) && g->control) { /* the driver breaks in the middle of it */
        g->control->fail_at = g->control->calls + 40;
        g->control->fail_with = 719;
        g->control->breaks = true;
    }
    if (gpu_injected(g, "gives-up", name) && g->control) g->control->gives_up = true;
    if (gpu_injected(g, "stuck", name) && g->control) { /* a kernel never ends */
        g->control->hang_at = g->control->nodes + 20;
        g->timeout_s = 1;
    }
}

static void child(gpu *g, const gpu_apart *x, pid_t parent, gpu_answer *out) {
    fcp_error err = {.message = ""};
    setpgid(0, 0);
    gpu_end_with(parent); /* a process in a group of its own would outlive who waits for it */
    if (!x->all) hide_others();
    if (x->judged) gpu_may_crash(g);
    if (x->open) out->code = gpu_open(g, &err);
    if (out->code) {
        snprintf(out->why, sizeof out->why, "%.390s", err.message);
        out->result = GPU_FAILED;
    } else {
        go_wrong(g, x->name);
        out->result = x->work(g, x->context, out);
    }
    gpu_close(g);
    out->given = true;
    fflush(stdout);
    _exit(0);
}

/* Waits until the process has ended, has stopped, or its time is up. True: it has ended, *status says how. */
static bool wait_for(pid_t pid, double most, int *status) {
    fcp_patience left = fcp_patience_of(most, 0.1);
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG | WUNTRACED);
        if (ended == pid) return !WIFSTOPPED(*status);
        if (ended < 0 || fcp_patience_ends(&left)) return false;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static void end_process(const gpu *g, const gpu_apart *x, pid_t pid, double waited, gpu_answer *out) {
    int status;
    if (x->open) gpu_dump(g, pid, x->name, NULL);
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    bool gone = wait_for(pid, REAP_S, &status);
    out->result = GPU_FAILED;
    out->hung = true;
    snprintf(out->why, sizeof out->why, "did not end within %.0f s, and was ended%s", waited,
             gone ? "" : ", which the driver does not let happen");
}

void gpu_run_apart(gpu *g, const gpu_apart *x, gpu_answer *answer) {
    *answer = (gpu_answer){.result = GPU_FAILED};
    gpu_answer *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED) {
        snprintf(answer->why, sizeof answer->why, "out of memory");
        return;
    }
    double begin = fcp_clock();
    int status = 0;
    fflush(stdout);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) child(g, x, parent, out);
    if (pid < 0) snprintf(answer->why, sizeof answer->why, "no process: %s", strerror(errno));
    else if (!wait_for(pid, x->most, &status)) end_process(g, x, pid, fcp_clock() - begin, answer);
    else {
        kill(-pid, SIGKILL); /* what it may have left running */
        *answer = *out;
        if (!out->given) answer->result = GPU_FAILED;
        if (!out->given && WIFSIGNALED(status))
            snprintf(answer->why, sizeof answer->why, "its process was ended by signal %d", WTERMSIG(status));
        else if (!out->given)
            snprintf(answer->why, sizeof answer->why, "its process ended by itself, with %d", WEXITSTATUS(status));
    }
    if (x->judged) gpu_crashed(g, x->name);
    if (x->judged && pid > 0) gpu_unpipe(g, pid);
    munmap(out, sizeof *out);
}
