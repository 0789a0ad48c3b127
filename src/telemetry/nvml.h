/* nvml.h - GPUs, through the library that comes with NVIDIA's driver.
 *
 * It is loaded while we run, so that nothing has to be installed to build, and a machine
 * without it is a machine without GPUs.
 */
#ifndef PEN_TELEMETRY_NVML_H
#define PEN_TELEMETRY_NVML_H

#include <penstock/telemetry.h>

#define PEN__NVML_LIBRARY "libnvidia-ml.so.1"

typedef struct pen__nvml pen__nvml;

/* NULL without the library, without a working driver, and without memory.  `library` is
 * PEN__NVML_LIBRARY outside tests. */
pen__nvml *pen__nvml_open(const char *library);
void pen__nvml_close(pen__nvml *nvml);
/* Fill the GPUs, in the driver's order, and return their number; 0 for NULL. */
int32_t pen__nvml_read(pen__nvml *nvml, pen_gpu gpus[PEN_MACHINE_GPUS]);

#endif
