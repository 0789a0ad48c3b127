/* rates.c - two readings make rates.
 *
 * A counter that is unknown or went backwards (a device came back, a group changed) makes
 * an unknown rate, never a negative or invented one.  NaN does most of that by itself.
 */
#include <math.h>
#include <string.h>

#include <penstock/telemetry.h>

/* Growth of a counter. */
static double grown(double before, double now)
{
    double d = now - before;
    return d >= 0 ? d : NAN;
}

/* The kernel keeps a disk's times as milliseconds in 32 bits, which hold out for 50 days
 * of one request at a time.  A counter that was past half of that wrapped; below, the disk
 * is another one. */
static double grown_ms32(double before, double now)
{
    const double wrap_s = 4294967.296;
    return now < before && before > wrap_s / 2 ? grown(before, now + wrap_s) : grown(before, now);
}

/* a / b, unknown for a mean over nothing. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

/* The kernel says that these two may step back a little; that is no time, then. */
static double grown_idle(double before, double now)
{
    return now < before ? 0 : now - before;
}

static pen_cpu_shares cpu_shares(const pen_cpu_times *before, const pen_cpu_times *now)
{
    double busy = grown(before->busy_s, now->busy_s);
    double idle = grown_idle(before->idle_s, now->idle_s);
    double iowait = grown_idle(before->iowait_s, now->iowait_s);
    double steal = grown(before->steal_s, now->steal_s);
    double total = busy + idle + iowait + steal;
    return (pen_cpu_shares){ratio(busy, total), ratio(iowait, total), ratio(steal, total)};
}

/* A share of wall time; clocks are read one after another, so it may come out as 1.001. */
static double share(double part_s, double seconds)
{
    return part_s > seconds ? 1 : part_s / seconds;
}

static void pressure_rates(const pen_pressure *before, const pen_pressure *now, double seconds,
                           pen_pressure_rates *out)
{
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        out[i] = (pen_pressure_rates){
            share(grown(before[i].some_s, now[i].some_s), seconds),
            share(grown(before[i].full_s, now[i].full_s), seconds),
        };
}

static void cgroup_rates(const pen_cgroup *before, const pen_cgroup *now, double seconds,
                         pen_cgroup_rates *out)
{
    /* Counters of different groups have nothing to do with each other. */
    double cpu = before->cpu_group == now->cpu_group ? 1 : NAN;
    double memory = before->memory_group == now->memory_group ? 1 : NAN;
    out->cpu_cores = grown(before->cpu_s, now->cpu_s) / seconds;
    out->throttled_share =
        cpu * ratio(grown(before->cpu_throttled_periods, now->cpu_throttled_periods),
                    grown(before->cpu_periods, now->cpu_periods));
    out->throttled_cores = cpu * grown(before->cpu_throttled_s, now->cpu_throttled_s) / seconds;
    out->memory_high_events_per_s =
        memory * grown(before->memory_high_events, now->memory_high_events) / seconds;
    out->memory_limit_events_per_s =
        memory * grown(before->memory_limit_events, now->memory_limit_events) / seconds;
    pressure_rates(before->pressure, now->pressure, seconds, out->pressure);
}

static pen_disk_rates disk_rates(const pen_disk *before, const pen_disk *now, double seconds)
{
    /* A disk that came or went brings or takes its whole past. */
    double same = before->n_disks == now->n_disks && strcmp(before->name, now->name) == 0 ? 1 : NAN;
    double reads = same * grown(before->reads, now->reads);
    double writes = same * grown(before->writes, now->writes);
    double read_s = grown_ms32(before->read_s, now->read_s);
    double write_s = grown_ms32(before->write_s, now->write_s);
    return (pen_disk_rates){
        .reads_per_s = reads / seconds,
        .writes_per_s = writes / seconds,
        .read_bytes_per_s = same * grown(before->read_bytes, now->read_bytes) / seconds,
        .write_bytes_per_s = same * grown(before->write_bytes, now->write_bytes) / seconds,
        .read_latency_s = ratio(read_s, reads),
        .write_latency_s = ratio(write_s, writes),
        .latency_s = ratio(read_s + write_s, reads + writes),
        .queue = same * grown_ms32(before->queue_s, now->queue_s) / seconds,
        .busy = same * share(grown_ms32(before->busy_s, now->busy_s), seconds * now->n_disks) *
                now->n_disks,
    };
}

static pen_net_rates net_rates(const pen_net *before, const pen_net *now, double seconds)
{
    double same = before->n_interfaces == now->n_interfaces ? 1 : NAN;
    return (pen_net_rates){
        .rx_bytes_per_s = same * grown(before->rx_bytes, now->rx_bytes) / seconds,
        .tx_bytes_per_s = same * grown(before->tx_bytes, now->tx_bytes) / seconds,
        .rx_packets_per_s = same * grown(before->rx_packets, now->rx_packets) / seconds,
        .tx_packets_per_s = same * grown(before->tx_packets, now->tx_packets) / seconds,
        .errors_per_s = same * grown(before->errors, now->errors) / seconds,
        .drops_per_s = same * grown(before->drops, now->drops) / seconds,
    };
}

static void all_rates(const pen_machine *before, const pen_machine *now, pen_rates *out)
{
    double seconds = (double)(now->time_ns - before->time_ns) * 1e-9;
    seconds = seconds > 0 ? seconds : NAN;
    out->seconds = seconds;
    out->n_cores = now->n_cores < before->n_cores ? now->n_cores : before->n_cores;
    out->n_gpus = now->n_gpus < before->n_gpus ? now->n_gpus : before->n_gpus;
    out->cpu = cpu_shares(&before->cpu, &now->cpu);
    for (int32_t i = 0; i < out->n_cores; i++)
        out->cores[i] = cpu_shares(&before->cores[i], &now->cores[i]);
    out->process_cores = grown(before->process.cpu_s, now->process.cpu_s) / seconds;
    out->major_faults_per_s =
        grown(before->process.major_faults, now->process.major_faults) / seconds;
    pressure_rates(before->pressure, now->pressure, seconds, out->pressure);
    cgroup_rates(&before->cgroup, &now->cgroup, seconds, &out->cgroup);
    out->disks = disk_rates(&before->disks, &now->disks, seconds);
    out->data_disk = disk_rates(&before->data_disk, &now->data_disk, seconds);
    out->net = net_rates(&before->net, &now->net, seconds);
    out->loopback = net_rates(&before->loopback, &now->loopback, seconds);
    out->package_w = grown(before->package_j, now->package_j) / seconds;
    for (int32_t i = 0; i < out->n_gpus; i++)
        out->gpu_w[i] = grown(before->gpus[i].energy_j, now->gpus[i].energy_j) / seconds;
}

int pen_machine_rates(const pen_machine *before, const pen_machine *now, pen_rates *out)
{
    size_t size = out->struct_size;
    /* This is the first version of pen_machine: there is no smaller one to accept. */
    if (before->struct_size != sizeof *before || now->struct_size != sizeof *now ||
        size < sizeof size || size > sizeof *out)
        return PEN_EINVAL;
    pen_rates rates = {.struct_size = size};
    all_rates(before, now, &rates);
    memcpy(out, &rates, size);
    return 0;
}
