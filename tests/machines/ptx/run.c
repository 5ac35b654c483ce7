/* run.c: runs a grid: decides which CTA, which warp and which lanes continue next.
 *
 * Requires: a module and a launch.
 * Gives:    ptx_run.
 * Method:   - CTAs begin in order, and some run side by side. The seed draws one of their warps, which runs until it
 *             waits or its turn ends.
 *           - Every lane of a warp has its own place in the code. The lanes that are least far in the code execute
 *             together, until they reach other lanes, diverge, or come to an instruction of the whole warp.
 *           - At an instruction of the whole warp, lanes wait for all lanes that have not ended. All of these must come
 *             to this instruction.
 * Cost:     some tens of nanoseconds for an instruction of a warp.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/module.h"
#include "tests/support/splitmix.h"

enum { TURN = 3000, PATIENCE = 20000 };
#define MOST_INSTRUCTIONS (UINT64_C(1) << 28)

/* --- what instructions call --------------------------------------------------------------------------------------- */

ptx_next ptx_fail(ptx_warp *w, unsigned lane, const char *format, ...) {
    ptx_machine *m = w->machine;
    if (m->failed) return PTX_FAIL;
    m->failed = true;
    char what[PTX_ERROR / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const ptx_insn *i = w->now;
    char where[40] = "";
    if (lane < PTX_LANES) snprintf(where, sizeof where, ", lane %u", lane);
    int length = i ? (int)strcspn(i->text, ";\n") : 0;
    snprintf(m->error, PTX_ERROR, "%s, block %u, warp %u%s, line %u, '%.*s': %s", m->kernel->name, w->block->number,
             w->index, where, i ? i->line : 0, length > 100 ? 100 : length, i ? i->text : "", what);
    return PTX_FAIL;
}

uint64_t ptx_roll(ptx_machine *m, uint64_t n) { return splitmix(&m->state) % n; }
void ptx_moved(ptx_machine *m) { m->moved = m->executed; }

uint64_t ptx_value(const ptx_warp *w, const ptx_operand *o, unsigned lane) {
    const uint8_t *at = ptx_in(w, o);
    uint32_t small;
    uint64_t large;
    if (o->bits == 64) return memcpy(&large, at + lane * 8, 8), large;
    if (o->bits == 1) return (memcpy(&small, at, 4), small >> lane & 1) ^ o->negated;
    return memcpy(&small, at + lane * 4, 4), small;
}
void ptx_set(ptx_warp *w, const ptx_operand *o, unsigned lane, uint64_t x) {
    uint8_t *at = ptx_out(w, o);
    uint32_t small = o->bits == 16 ? (uint32_t)x & 0xffff : (uint32_t)x;
    if (o->bits == 64) memcpy(at + lane * 8, &x, 8);
    else if (o->bits != 1) memcpy(at + lane * 4, &small, 4);
    else {
        memcpy(&small, at, 4);
        small = (small & ~(1u << lane)) | (uint32_t)(x & 1) << lane;
        memcpy(at, &small, 4);
    }
}
uint32_t ptx_predicate(const ptx_warp *w, const ptx_operand *o) {
    uint32_t x;
    memcpy(&x, ptx_in(w, o), 4);
    return o->negated ? ~x : x;
}
bool ptx_must_know(ptx_warp *w, const ptx_operand *o, uint32_t mask, const char *what) {
    uint32_t unknown = mask & ~ptx_known(w, o);
    if (unknown) ptx_fail(w, (unsigned)__builtin_ctz(unknown), "%s that nobody wrote", what);
    return !unknown;
}

/* --- warps -------------------------------------------------------------------------------------------------------- */

/* Which lanes go on next, and the least place of the others. 0: all wait for each other, or none is left. */
static uint32_t choose(ptx_warp *w, uint32_t *pc, uint32_t *next) {
    uint32_t ready = w->live & ~w->parked, mask = 0;
    *pc = *next = UINT32_MAX;
    for (uint32_t rest = ready; rest; rest &= rest - 1) {
        uint32_t at = w->pc[__builtin_ctz(rest)];
        if (at < *pc) *pc = at;
    }
    for (uint32_t rest = ready; rest; rest &= rest - 1) {
        unsigned l = (unsigned)__builtin_ctz(rest);
        if (w->pc[l] == *pc) mask |= 1u << l;
        else if (w->pc[l] < *next) *next = w->pc[l];
    }
    return mask;
}

static void place(ptx_warp *w, uint32_t mask, uint32_t pc) {
    for (; mask; mask &= mask - 1) w->pc[__builtin_ctz(mask)] = pc;
}

/* All lanes wait for each other. Then they must be at the same instruction. */
static bool gather(ptx_warp *w, uint32_t *pc) {
    unsigned first = (unsigned)__builtin_ctz(w->live);
    *pc = w->pc[first];
    w->now = &w->machine->kernel->insns[*pc];
    for (unsigned l = first; l < PTX_LANES; l++)
        if (w->live >> l & 1 && w->pc[l] != *pc)
            return ptx_fail(w, first, "divergence: lane %u waits for it at line %u, '%.40s'", l,
                            w->machine->kernel->insns[w->pc[l]].line, w->machine->kernel->insns[w->pc[l]].text),
                   false;
    w->parked = 0;
    return true;
}

/* Runs a warp for a while. False: the launch has failed. */
static bool turn(ptx_warp *w, uint32_t budget) {
    ptx_machine *m = w->machine;
    const ptx_insn *code = m->kernel->insns;
    while (w->live) {
        uint32_t pc, next, mask = choose(w, &pc, &next);
        bool together = !mask; /* then all have come to an instruction of the whole warp */
        if (together) {
            if (!gather(w, &pc)) return false;
            mask = w->live;
        }
        for (;;) {
            const ptx_insn *i = &code[pc];
            uint32_t active = mask;
            w->now = i;
            m->executed++;
            if (i->form->flags & PTX_TOGETHER && mask != w->live) {
                place(w, mask, pc);
                w->parked |= mask;
                break;
            }
            if (i->guard.bits) {
                if (!ptx_must_know(w, &i->guard, mask, "a condition")) return false;
                active &= ptx_predicate(w, &i->guard);
                if (i->form->flags & PTX_TOGETHER && active && active != mask)
                    return ptx_fail(w, PTX_LANES, "divergence: only lanes %08x execute an instruction of all", active),
                           false;
            }
            ptx_next done = active ? i->form->run(w, i, active) : PTX_NEXT;
            if (done == PTX_FAIL) return false;
            if (done == PTX_JUMP) {
                uint32_t to = (uint32_t)i->operands[0].value;
                place(w, mask & ~active, pc + 1);
                place(w, active, to);
                if (active != mask) break;
                pc = to;
                if (next == UINT32_MAX && budget) {
                    budget--;
                    continue;
                }
                break;
            }
            if (done == PTX_END) {
                w->live &= ~active;
                w->parked &= ~active;
                place(w, mask & ~active, pc + 1);
                ptx_moved(m);
                break;
            }
            if (done != PTX_AGAIN) pc++;
            if (done != PTX_NEXT || !budget) {
                place(w, mask, pc);
                return true;
            }
            budget--;
            if (pc >= next) {
                place(w, mask, pc);
                break;
            }
        }
        if (!budget) return true;
        budget--;
    }
    return true;
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* Ends a block. False: something of it is still under way. */
static bool close_block(ptx_block *b) {
    bool good = ptx_async_close(b);
    for (uint32_t v = 0; b->warps && v < b->warp_count; v++) {
        ptx_warp *w = &b->warps[v];
        free(w->base[0]);
        free(w->known);
        free(w->clock);
        free(w->seen);
        free(w->copies);
        free(w->local);
        free(w->more);
    }
    for (int i = 0; i < PTX_BARRIERS; i++) free(b->barriers[i].clock);
    ptx_shared_close(b);
    free(b->warps);
    free(b->more);
    *b = (ptx_block){0};
    return good;
}

static bool open_block(ptx_machine *m, ptx_block *b) {
    const ptx_launch *launch = m->launch;
    const ptx_kernel *k = m->kernel;
    *b = (ptx_block){.machine = m,
                     .number = m->next_block++,
                     .warp_count = m->warps,
                     .shared = launch->shared,
                     .left = m->warps,
                     .running = true};
    b->first = m->far ? b->number * (m->warps + m->agents) : 0;
    b->warps = calloc(m->warps, sizeof *b->warps);
    if (!b->warps || !ptx_shared_open(b)) return false;
    for (uint32_t v = 0; v < m->warps; v++) {
        ptx_warp *w = &b->warps[v];
        uint32_t threads = launch->threads - v * PTX_LANES;
        void *file = NULL;
        *w = (ptx_warp){.machine = m,
                        .block = b,
                        .index = v,
                        .self = b->first + v,
                        .live = threads < PTX_LANES ? (1u << threads) - 1 : PTX_ALL};
        if (posix_memalign(&file, 64, k->file)) return false;
        w->base[0] = file;
        w->base[1] = launch->module->constants;
        w->known = calloc(k->registers, sizeof *w->known);
        w->clock = ptx_clock_new(m);
        w->seen = ptx_clock_new(m);
        if (k->local) w->local = calloc(PTX_LANES * 2, k->local);
        if (!w->known || !w->clock || !w->seen || (k->local && !w->local)) return false;
        memset(file, 0xff, k->file); /* a NaN, should anybody look */
        w->known[0] = PTX_ALL;
        w->clock[w->self] = 1;
        for (int s = 0; s < PTX_SPECIALS; s++)
            for (unsigned l = 0; l < PTX_LANES; l++) {
                const uint32_t values[PTX_SPECIALS] = {
                    v * PTX_LANES + l, launch->threads, b->number, launch->blocks, l, v, 0, 1};
                memcpy(w->base[0] + s * PTX_SMALL + l * 4, &values[s], 4);
            }
    }
    return true;
}

static bool stuck(ptx_machine *m, const char *what) {
    for (uint32_t i = 0; i < m->launch->resident; i++)
        for (uint32_t v = 0; m->blocks[i].running && v < m->warps; v++) {
            ptx_warp *w = &m->blocks[i].warps[v];
            if (w->live) return ptx_fail(w, PTX_LANES, "deadlock: %s; it is at", what), false;
        }
    return false;
}

/* Nobody can go on, so the world outside does. False: there is nothing left to do. */
static bool gets_on(const ptx_machine *m) {
    return m->launch->outside && m->launch->outside(m->launch->outside_context);
}

static bool run(ptx_machine *m) {
    uint32_t resident = m->launch->resident, running = 0;
    uint64_t turns = 0, last = 0; /* turns in which nothing has moved */
    for (;;) {
        for (uint32_t i = 0; i < resident; i++)
            if (!m->blocks[i].running && m->next_block < m->launch->blocks) {
                if (!open_block(m, &m->blocks[i]))
                    return snprintf(m->error, PTX_ERROR, "out of memory for a block"), false;
                running++;
            }
        if (!running) return true;
        uint32_t can = 0, all = resident * m->warps;
        for (uint32_t n = 0; n < all; n++) {
            const ptx_block *b = &m->blocks[n / m->warps];
            can += b->running && b->warps[n % m->warps].live && !b->warps[n % m->warps].blocked;
        }
        if (!can && !gets_on(m)) return stuck(m, "all warps wait");
        if (!can) continue;
        uint32_t which = (uint32_t)ptx_roll(m, can);
        ptx_warp *w = NULL;
        for (uint32_t n = 0; n < all && !w; n++) {
            const ptx_block *b = &m->blocks[n / m->warps];
            if (b->running && b->warps[n % m->warps].live && !b->warps[n % m->warps].blocked && which-- == 0)
                w = &b->warps[n % m->warps];
        }
        uint64_t before = m->executed;
        if (!turn(w, 1 + (uint32_t)ptx_roll(m, TURN))) return false;
        turns = m->moved != last || m->executed - before > 64 ? 0 : turns + 1;
        last = m->moved;
        if (turns > PATIENCE && !gets_on(m)) return stuck(m, "warps only look whether something has changed");
        if (turns > PATIENCE) turns = 0;
        if (m->executed > (m->launch->most ? m->launch->most : MOST_INSTRUCTIONS)) return stuck(m, "it does not end");
        if (!w->live) {
            ptx_block *b = w->block;
            if (--b->left == 0) {
                if (!close_block(b)) return false;
                running--;
            }
        }
    }
}

bool ptx_run(const ptx_launch *launch, char *error) {
    ptx_machine m = {.launch = launch,
                     .kernel = launch->kernel,
                     .state = launch->seed,
                     .error = error,
                     .warps = (launch->threads + PTX_LANES - 1) / PTX_LANES};
    *error = 0;
    if (!launch->blocks) return true;
    m.far = launch->resident > 1;
    m.agents = strcmp(ptx_module_target(launch->module), "sm_90a") ? 0 : PTX_AGENTS;
    m.clocks = (m.far ? launch->blocks : 1) * (m.warps + m.agents);
    bool good = launch->resident && m.warps && m.warps <= PTX_WARPS && launch->range_count &&
                launch->parameter_bytes == launch->kernel->parameters &&
                (!launch->kernel->threads || launch->threads <= launch->kernel->threads);
    if (!good)
        snprintf(error, PTX_ERROR, "%s cannot be launched with %u threads, %zu bytes of parameters",
                 launch->kernel->name, launch->threads, launch->parameter_bytes);
    m.words = good ? calloc(ptx_range_count(launch), sizeof *m.words) : NULL;
    m.blocks = good ? calloc(launch->resident, sizeof *m.blocks) : NULL;
    if (good && (!m.words || !m.blocks)) good = snprintf(error, PTX_ERROR, "out of memory") < 0;
    good = good && run(&m);
    for (uint32_t i = 0; m.blocks && i < launch->resident; i++) close_block(&m.blocks[i]);
    ptx_memory_close(&m);
    free(m.blocks);
    return good;
}
