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
    const pen_cgroup *group = &machine->cgroup;
    s->process_cores = rates->process_cores;
    s->machine_busy = rates->cpu.busy;
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

/* On a machine of 64 cores others may use 40, and none of the 4 that we may run on; and where a
 * quota leaves us 4 of 64, they can use 60 before we have less.  Within a group that has a quota,
 * others of the group have their part of it. */
void pen__observe_rivals(const pen_rates *rates, const cpu_set_t *own, pen_policy_state *s)
{
    double busy = 0, n = 0;
    for (int32_t i = 0; i < rates->n_cores; i++) {
        if ((own && !CPU_ISSET(i, own)) || isnan(rates->cores[i].busy)) /* not ours, or offline */
            continue;
        busy += rates->cores[i].busy;
        n++;
    }
    s->other_cores = NAN;
    if (n == 0 || isnan(rates->process_cores))
        return;
    const double spare = fmax(n - s->cores, 0);
    s->other_cores = fmax(busy - rates->process_cores - spare, 0);
    if (spare > 0) /* NaN, not told, loses */
        s->other_cores = fmax(s->other_cores, rates->cgroup.cpu_cores - rates->process_cores);
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
