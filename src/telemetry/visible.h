/* visible.h - which of the machine's GPUs this process may use, as CUDA_VISIBLE_DEVICES says.
 *
 * The driver's library lists all of them, in the order of the bus.  CUDA counts as well, but the
 * fastest first unless CUDA_DEVICE_ORDER is PCI_BUS_ID, so its numbers say which GPUs are meant
 * only where that is set, where all are of one kind, or where all are named.  Names such as
 * GPU-8932f937 are not looked up.  What is not certain is not known.
 */
#ifndef PEN_TELEMETRY_VISIBLE_H
#define PEN_TELEMETRY_VISIBLE_H

#include <penstock/telemetry.h>

typedef struct pen__visible {
    bool is_set;   /* else all are visible */
    bool is_plain; /* nothing but numbers */
    bool by_bus;   /* counted as the driver does */
    int n;
    int number[PEN_MACHINE_GPUS];
} pen__visible;

/* From the values of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER; NULL: not set. */
void pen__visible_parse(pen__visible *out, const char *devices, const char *order);

/* Which entries of machine->gpus are visible; how many, or -1: not known. */
int pen__visible_pick(const pen__visible *visible, const pen_machine *machine,
                      bool picked[PEN_MACHINE_GPUS]);

#endif
