/* fake_nvml.c - a driver's library without a driver, for test_nvml.c.
 *
 * Two GPUs by default: the first supports everything, the second, like an old one,
 * neither energy nor power.  The test changes `fake_nvml`, which it finds by dlsym.
 */
#include "fake_nvml.h"

#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, UNKNOWN = 999 };

EXPORT fake_nvml_state fake_nvml = {.n_gpus = 2};

struct fake_device {
    unsigned index;
};
static struct fake_device devices[64];

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *n);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct fake_device **out);
EXPORT int nvmlDeviceGetName(struct fake_device *device, char *name, unsigned length);
EXPORT int nvmlDeviceGetUtilizationRates(struct fake_device *device, unsigned out[2]);
EXPORT int nvmlDeviceGetMemoryInfo(struct fake_device *device, unsigned long long out[3]);
EXPORT int nvmlDeviceGetPowerUsage(struct fake_device *device, unsigned *milliwatts);
EXPORT int nvmlDeviceGetTotalEnergyConsumption(struct fake_device *device, unsigned long long *mj);

int nvmlInit_v2(void)
{
    fake_nvml.n_init += !fake_nvml.fails_init;
    return fake_nvml.fails_init ? UNKNOWN : OK;
}

int nvmlShutdown(void)
{
    fake_nvml.n_shutdown++;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    if (fake_nvml.n_init == fake_nvml.n_shutdown)
        return UNINITIALIZED;
    *n = fake_nvml.n_gpus;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct fake_device **out)
{
    if (index >= fake_nvml.n_gpus || index >= 64)
        return INVALID;
    if (fake_nvml.lost_gpu == (int)index + 1)
        return UNKNOWN;
    devices[index].index = index;
    *out = &devices[index];
    return OK;
}

int nvmlDeviceGetName(struct fake_device *device, char *name, unsigned length)
{
    const char text[] = "Fake GPU 0";
    if (length < sizeof text)
        return INVALID;
    for (unsigned i = 0; i < sizeof text; i++)
        name[i] = text[i];
    name[sizeof text - 2] = (char)('0' + device->index % 10);
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct fake_device *device, unsigned out[2])
{
    out[0] = fake_nvml.busy_percent + device->index;
    out[1] = 30;
    return OK;
}

int nvmlDeviceGetMemoryInfo(struct fake_device *device, unsigned long long out[3])
{
    (void)device;
    out[0] = 16000000000ULL; /* total, free, used */
    out[1] = 12000000000ULL;
    out[2] = 4000000000ULL;
    return OK;
}

int nvmlDeviceGetPowerUsage(struct fake_device *device, unsigned *milliwatts)
{
    *milliwatts = 250500;
    return device->index == 0 ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEnergyConsumption(struct fake_device *device, unsigned long long *mj)
{
    *mj = fake_nvml.energy_mj;
    return device->index == 0 ? OK : NOT_SUPPORTED;
}
