/* globals.c: variables of the stand-in's modules: what watched builds of the kernels (codegen/kernels/abi.h, "waits")
 * would write down of their waits. Kernels on fibers do not, so what is read here is made up: with control.gives_up one
 * wait gave up, and each warp has waited a tenth of its time.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/kernels/abi.h"
#include "tests/machines/standin/symbols.h"

static const char mbarriers[] = "K full, stage 0|K full, stage 1|K free, stage 0|K free, stage 1",
                  roles[] = "producer 4|consumer 0 4|consumer 1 4";

/* One wait of consumer 0 for the second mbarrier, while the producer waits for another. */
static void fill_gave_up(uint32_t *x) {
    const uint32_t told[] = {1, FK_WAIT_MBARRIER + 1, 8, 0, 0, 128};
    if (!control.gives_up) return;
    memcpy(x, told, sizeof told);
    x[6] = FK_WAIT_MBARRIER + 2 + 1 + (1 << 8);
    x[6 + 4] = FK_WAIT_MBARRIER + 1 + 1;
}
static void fill_waited(uint64_t (*x)[FK_WAITS]) {
    for (int w = 0; w < FK_WAIT_WARPS; w++) {
        x[w][FK_WAIT_MBARRIER] = 100;
        x[w][FK_WAIT_WHOLE] = x[w][FK_WAIT_NANOSECONDS] = 1000;
    }
}

/* The variables that a module has, in the order of cu_module_.waits. */
API cuModuleGetGlobal_v2(cu_ptr *out, size_t *size, cu_module m, const char *name) {
    const struct {
        const char *name, *built;
        size_t size;
    } all[MODULE_WAITS] = {{"fk_gave_up", "#define FK_BOUND", FK_GAVE_UP * 4},
                           {"fk_waits", "#define FK_BOUND", (size_t)FK_WAIT_CTAS * FK_WAIT_WARPS * 4},
                           {"fk_waited", "#define FK_WAITED", (size_t)FK_WAIT_WARPS * FK_WAITS * 8},
                           {"fk_first_mbarrier", "#define FK_", 4},
                           {"fk_forward_mbarriers", "#define FK_", sizeof mbarriers},
                           {"fk_forward_roles", "#define FK_", sizeof roles}};
    const char *end = strstr(m->text, "#line");
    ENTER;
    for (int i = 0; i < MODULE_WAITS; i++) {
        const char *built = strcmp(all[i].name, name) ? NULL : strstr(m->text, all[i].built);
        if (!built || !end || built > end) continue;
        cu_result made = m->waits[i] ? CU_SUCCESS : memory_allocate(&m->waits[i], all[i].size, false);
        if (made) return made;
        void *to = (void *)(uintptr_t)m->waits[i];
        memset(to, 0, all[i].size);
        if (i == 0) fill_gave_up(to);
        if (i == 2) fill_waited(to);
        if (i == 3) memcpy(to, &(uint32_t){FK_PLACE_LAST}, 4);
        if (i == 4) memcpy(to, mbarriers, sizeof mbarriers);
        if (i == 5) memcpy(to, roles, sizeof roles);
        *out = m->waits[i];
        *size = all[i].size;
        return CU_SUCCESS;
    }
    return NOT_FOUND;
}
void module_waits_end(cu_module m) {
    for (int i = 0; i < MODULE_WAITS; i++)
        if (m->waits[i]) memory_end(m->waits[i], false, false);
}
