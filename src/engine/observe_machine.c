/* observe_machine.c - the machine's part of the state vector.
 *
 * What the machine does not tell is NaN and stays so: a sum or a mean of which a part is not
 * known is not known either.
 */
#include <math.h>

#include "engine/observe.h"

/* Of our group where the kernel tells that, else of the machine. */
static double pressure(const pen_rates *rates, int kind)
{
    const double group = rates->cgroup.pressure[kind].some;
    return isnan(group) ? rates->pressure[kind].some : group;
}

static double share_of(double part, double whole)
{
    return isfinite(whole) && whole > 0 ? part / whole : NAN;
}

void pen__observe_machine(const pen_machine *machine, const pen_rates *rates, pen_policy_state *s)
{
    const double machine_cores = (double)machine->n_cores;
    const pen_cgroup *group = &machine->cgroup;
    s->process_cores = rates->process_cores;
    s->machine_busy = rates->cpu.busy;
    s->other_cores = fmax(rates->cpu.busy * machine_cores - rates->process_cores, 0);
    if (isnan(rates->cpu.busy) || isnan(rates->process_cores))
        s->other_cores = NAN; /* fmax drops it */
    s->steal = rates->cpu.steal;
    s->cpu_pressure = pressure(rates, PEN_PRESSURE_CPU);
    s->io_pressure = pressure(rates, PEN_PRESSURE_IO);
    s->memory_pressure = pressure(rates, PEN_PRESSURE_MEMORY);
    s->throttled_share = rates->cgroup.throttled_share;
    s->memory_available_bytes = machine->memory.available_bytes;
    s->group_memory_share = share_of(group->memory_used_bytes, group->memory_limit_bytes);
    s->disk_latency_s = rates->disks.read_latency_s;
    s->disk_bytes_per_s = rates->disks.read_bytes_per_s;
    s->net_bytes_per_s = rates->net.rx_bytes_per_s;
    s->package_watts = rates->package_w;
    if (group->cpu_quota_cores > 0 && group->cpu_quota_cores < s->cores)
        s->cores = group->cpu_quota_cores;
}

void pen__observe_gpus(const pen_machine *machine, const pen_rates *rates,
                       const pen__visible *visible, pen_policy_state *s)
{
    bool picked[PEN_MACHINE_GPUS];
    const int n = pen__visible_pick(visible, machine, picked);
    if (n <= 0)
        return; /* all NaN */
    double busy = 0, used = 0, total = 0, watts = 0;
    for (int i = 0; i < machine->n_gpus; i++) {
        const pen_gpu *gpu = &machine->gpus[i];
        if (!picked[i])
            continue;
        busy += gpu->busy;
        used += gpu->memory_used_bytes;
        total += gpu->memory_total_bytes;
        const double mean_w = i < rates->n_gpus ? rates->gpu_w[i] : NAN;
        watts += isnan(mean_w) ? gpu->power_w : mean_w;
    }
    s->gpu_busy = busy / n;
    s->gpu_memory_share = share_of(used, total);
    s->gpu_watts = watts;
}
