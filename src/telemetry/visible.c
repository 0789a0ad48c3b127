/* visible.c - see visible.h. */
#include "telemetry/visible.h"

#include <stdlib.h>
#include <string.h>

void pen__visible_parse(pen__visible *out, const char *devices, const char *order)
{
    *out = (pen__visible){.is_set = devices, .is_plain = true};
    out->by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;
    if (!devices || !*devices)
        return; /* "": none */
    for (const char *at = devices;;) {
        char *end;
        const long number = strtol(at, &end, 10);
        end += strspn(end, " ");
        if (end == at || (*end && *end != ',') || out->n == PEN_MACHINE_GPUS) {
            out->is_plain = false;
            return;
        }
        if (number < 0)
            return; /* as CUDA has it: what follows is not looked at */
        out->number[out->n++] = number < PEN_MACHINE_GPUS ? (int)number : PEN_MACHINE_GPUS;
        if (!*end)
            return;
        at = end + 1;
    }
}

static bool are_of_one_kind(const pen_machine *machine)
{
    for (int i = 1; i < machine->n_gpus; i++)
        if (strcmp(machine->gpus[i].name, machine->gpus[0].name) != 0)
            return false;
    return true;
}

int pen__visible_pick(const pen__visible *visible, const pen_machine *machine,
                      bool picked[PEN_MACHINE_GPUS])
{
    int n = 0;
    for (int i = 0; i < PEN_MACHINE_GPUS; i++)
        picked[i] = !visible->is_set && i < machine->n_gpus;
    if (!visible->is_set)
        return machine->n_gpus;
    for (int i = 0; i < visible->n; i++) {
        const int number = visible->number[i];
        if (number >= machine->n_gpus && machine->n_gpus == PEN_MACHINE_GPUS)
            return -1; /* there may be more than are listed */
        if (number >= machine->n_gpus)
            break; /* as CUDA has it: the list ends at a number that there is not */
        if (picked[number])
            return -1;
        picked[number] = true;
        n++;
    }
    const bool is_certain =
        visible->by_bus || n == 0 || n == machine->n_gpus || are_of_one_kind(machine);
    return visible->is_plain && is_certain ? n : -1;
}
