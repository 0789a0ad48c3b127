/* nvml.c - the few calls of NVML that we need, by dlopen.
 *
 * Types and numbers follow the NVML API reference.  A call that is missing in an old
 * driver, or that a GPU does not support, leaves its value unavailable.
 */
#include "telemetry/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

typedef struct device *device; /* opaque: nvmlDevice_t */
enum { NVML_OK = 0 };          /* every other nvmlReturn_t is a failure */

typedef struct utilization { /* nvmlUtilization_t: percent of the last sampling window */
    unsigned gpu, memory;
} utilization;

typedef struct memory { /* nvmlMemory_t: bytes */
    unsigned long long total, free, used;
} memory;

struct pen__nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, device *out);
    int (*name)(device, char *out, unsigned cap);
    int (*utilization)(device, utilization *out);
    int (*memory)(device, memory *out);
    int (*power)(device, unsigned *milliwatts);
    int (*energy)(device, unsigned long long *millijoules);
    int32_t n_gpus;
    device gpus[PEN_MACHINE_GPUS];
    char names[PEN_MACHINE_GPUS][sizeof((pen_gpu *)0)->name];
};

/* Set the function pointer at `slot`.  ISO C has no conversion from an object pointer to a
 * function pointer; POSIX promises that their bytes are the same. */
static bool find(pen__nvml *nvml, const char *name, void *slot)
{
    void *symbol = dlsym(nvml->library, name);
    memcpy(slot, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_all(pen__nvml *nvml)
{
    find(nvml, "nvmlDeviceGetName", &nvml->name);
    find(nvml, "nvmlDeviceGetUtilizationRates", &nvml->utilization);
    find(nvml, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    find(nvml, "nvmlDeviceGetPowerUsage", &nvml->power);
    find(nvml, "nvmlDeviceGetTotalEnergyConsumption", &nvml->energy);
    return find(nvml, "nvmlInit_v2", &nvml->init) && find(nvml, "nvmlShutdown", &nvml->shutdown) &&
           find(nvml, "nvmlDeviceGetCount_v2", &nvml->count) &&
           find(nvml, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle);
}

static void list_gpus(pen__nvml *nvml)
{
    unsigned n = 0;
    if (nvml->count(&n) != NVML_OK)
        return;
    for (unsigned i = 0; i < n && nvml->n_gpus < PEN_MACHINE_GPUS; i++) {
        int32_t at = nvml->n_gpus;
        char *name = nvml->names[at];
        if (nvml->handle(i, &nvml->gpus[at]) != NVML_OK)
            continue; /* fallen off the bus, or not ours to see */
        if (!nvml->name || nvml->name(nvml->gpus[at], name, sizeof nvml->names[at]) != NVML_OK)
            *name = '\0';
        name[sizeof nvml->names[at] - 1] = '\0';
        nvml->n_gpus++;
    }
}

pen__nvml *pen__nvml_open(const char *library)
{
    pen__nvml *nvml = pen__calloc(1, sizeof *nvml);
    if (!nvml)
        return NULL;
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library || !find_all(nvml) || nvml->init() != NVML_OK) {
        nvml->shutdown = NULL;
        pen__nvml_close(nvml);
        return NULL;
    }
    list_gpus(nvml);
    return nvml;
}

void pen__nvml_close(pen__nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->shutdown)
        nvml->shutdown();
    if (nvml->library)
        dlclose(nvml->library);
    pen__free(nvml);
}

static double percent(unsigned value)
{
    return value <= 100 ? value / 100.0 : NAN;
}

static void read_gpu(const pen__nvml *nvml, device gpu, pen_gpu *out)
{
    utilization busy;
    memory bytes;
    unsigned milliwatts;
    unsigned long long millijoules;
    if (nvml->utilization && nvml->utilization(gpu, &busy) == NVML_OK) {
        out->busy = percent(busy.gpu);
        out->memory_busy = percent(busy.memory);
    }
    if (nvml->memory && nvml->memory(gpu, &bytes) == NVML_OK && bytes.used <= bytes.total) {
        out->memory_used_bytes = (double)bytes.used;
        out->memory_total_bytes = (double)bytes.total;
    }
    if (nvml->power && nvml->power(gpu, &milliwatts) == NVML_OK)
        out->power_w = milliwatts * 1e-3;
    if (nvml->energy && nvml->energy(gpu, &millijoules) == NVML_OK)
        out->energy_j = (double)millijoules * 1e-3;
}

int32_t pen__nvml_read(pen__nvml *nvml, pen_gpu gpus[PEN_MACHINE_GPUS])
{
    int32_t n = nvml ? nvml->n_gpus : 0;
    for (int32_t i = 0; i < n; i++) {
        gpus[i] = (pen_gpu){"", NAN, NAN, NAN, NAN, NAN, NAN};
        memcpy(gpus[i].name, nvml->names[i], sizeof gpus[i].name);
        read_gpu(nvml, nvml->gpus[i], &gpus[i]);
    }
    return n;
}
