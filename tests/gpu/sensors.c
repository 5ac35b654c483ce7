/* sensors.c: reads the clock, the power and the temperature of device 0 from NVML while the device works.
 *
 * A figure means little without them: a device that is held back by power or heat is slower, and says so here alone.
 * NVML is loaded if it is there; without it the text says so. Nothing is set, only read.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"

typedef struct nvml_device_ *nvml_device;
enum { NVML_SM = 1, NVML_CORE_TEMPERATURE = 0 };
#define NVML_SYMBOLS(X)                                                              \
    X(nvmlInit_v2, init, (void))                                                     \
    X(nvmlDeviceGetHandleByIndex_v2, device, (unsigned, nvml_device *))              \
    X(nvmlDeviceGetClockInfo, clock, (nvml_device, int, unsigned *))                 \
    X(nvmlDeviceGetPowerUsage, power, (nvml_device, unsigned *))                     \
    X(nvmlDeviceGetTemperature, temperature, (nvml_device, int, unsigned *))         \
    X(nvmlDeviceGetCurrentClocksThrottleReasons, held, (nvml_device, unsigned long long *))

static struct sensors {
#define X(symbol, name, arguments) int (*name) arguments;
    NVML_SYMBOLS(X)
#undef X
    nvml_device handle;
    bool asked;
} nvml; /* of this process */

/* The driver counts the visible devices, NVML all of them: the first visible one by its number, if it is one. */
static unsigned index_of_first(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *end;
    unsigned long first = visible ? strtoul(visible, &end, 10) : 0;
    return visible && end != visible ? (unsigned)first : 0;
}

static bool find(void *handle, const char *name, void *slot) {
    void *symbol = handle ? dlsym(handle, name) : NULL;
    memcpy(slot, &symbol, sizeof symbol); /* POSIX: an object pointer from dlsym is a function's */
    return symbol != NULL;
}

static void open_nvml(void) {
    const char *only = getenv("FCP_NVML");
    void *handle = dlopen(only && *only ? only : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool whole = true;
    nvml.asked = true;
#define X(symbol, name, arguments) whole = find(handle, #symbol, &nvml.name) && whole;
    NVML_SYMBOLS(X)
#undef X
    if (!whole || nvml.init() || nvml.device(index_of_first(), &nvml.handle)) nvml.handle = NULL;
}

void gpu_sense(gpu *g) {
    unsigned mhz = 0, milliwatts = 0, degrees = 0;
    unsigned long long held = 0;
    if (!nvml.asked) open_nvml();
    snprintf(g->sensed, sizeof g->sensed, "clock and power not known");
    if (!nvml.handle || nvml.clock(nvml.handle, NVML_SM, &mhz) || nvml.power(nvml.handle, &milliwatts) ||
        nvml.temperature(nvml.handle, NVML_CORE_TEMPERATURE, &degrees) || nvml.held(nvml.handle, &held))
        return;
    snprintf(g->sensed, sizeof g->sensed, "%u MHz, %u W, %u C, held back by %#llx", mhz, milliwatts / 1000, degrees,
             held);
}
