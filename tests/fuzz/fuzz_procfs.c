/* fuzz_procfs.c - any bytes as a file of /proc, /sys or a control group: numbers within
 * reason, or unavailable.  The first byte chooses the parser. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/procfs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Unavailable, or neither negative nor beyond what any counter reaches. */
static void check(double value)
{
    if (!isnan(value) && !(value >= 0 && value < 1e20))
        abort();
}

/* A limit may also be known not to exist. */
static void check_limit(double value)
{
    if (!isinf(value) || value < 0)
        check(value);
}

static void check_name(const char *name, size_t cap)
{
    if (strnlen(name, cap) == cap || *name == '\0' || *name == '.' || strchr(name, '/'))
        abort();
}

static void fuzz_stat(pen__scan text)
{
    static pen_machine machine;
    pen__parse_stat(text, 0.01, &machine);
    if (machine.n_cores < 0 || machine.n_cores > PEN_MACHINE_CORES)
        abort();
    check(machine.cpu.busy_s);
    for (int32_t i = 0; i < machine.n_cores; i++) {
        check(machine.cores[i].busy_s);
        check(machine.cores[i].steal_s);
    }
}

static void fuzz_self(pen__scan text)
{
    pen_process process;
    pen__parse_self(text, 4096, &process);
    check(process.rss_bytes);
    check(process.threads);
    check(process.major_faults);
}

static void fuzz_meminfo(pen__scan text)
{
    pen_memory memory;
    pen__parse_meminfo(text, &memory);
    check(memory.available_bytes);
    if (memory.free_bytes > memory.total_bytes || memory.swap_free_bytes > memory.swap_total_bytes)
        abort();
}

static void fuzz_disks(pen__scan text)
{
    pen__scan line;
    while (pen__scan_line(&text, &line)) {
        pen_disk disk;
        if (!pen__parse_disk(line, &disk))
            continue;
        check_name(disk.name, sizeof disk.name);
        check(disk.read_bytes);
        check(disk.queue_s);
    }
}

static void fuzz_interfaces(pen__scan text)
{
    pen__scan line;
    while (pen__scan_line(&text, &line)) {
        pen_net net;
        char name[PEN__INTERFACE_CAP];
        if (!pen__parse_interface(line, name, &net))
            continue;
        check_name(name, sizeof name);
        check(net.rx_bytes);
        check(net.drops);
    }
}

static void fuzz_pressure(pen__scan text)
{
    pen_pressure pressure;
    pen__parse_pressure(text, &pressure);
    if (pressure.some_avg10 > 1 || pressure.full_avg10 > 1)
        abort();
    check(pressure.some_avg10);
    check(pressure.full_s);
}

static void fuzz_cpu_stat(pen__scan text)
{
    pen_cgroup group;
    pen__parse_cpu_stat(text, &group);
    check(group.cpu_periods);
    check(group.cpu_throttled_s);
    check(group.cpu_s);
}

static void fuzz_group(unsigned kind, pen__scan text)
{
    char path[64];
    switch (kind) {
    case 6:
        check_limit(pen__parse_cpu_max(text));
        break;
    case 7:
        check_limit(pen__parse_cfs_quota(text, 100000));
        break;
    case 8:
        fuzz_cpu_stat(text);
        break;
    case 9:
        check(pen__parse_memory_file(text));
        break;
    case 10:
        check_limit(pen__parse_memory_limit(text));
        break;
    case 11:
        check(pen__parse_number(text));
        break;
    case 12:
        check(pen__scan_value(text, "high"));
        break;
    default:
        pen__parse_group(text, kind & 1 ? "memory" : "", path, sizeof path);
        if (strnlen(path, sizeof path) == sizeof path)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static void (*const parsers[])(pen__scan) = {fuzz_stat,  fuzz_self,       fuzz_meminfo,
                                                 fuzz_disks, fuzz_interfaces, fuzz_pressure};
    if (len == 0)
        return 0;
    unsigned kind = data[0];
    char *text = malloc(len); /* exactly as long as it is, for the sanitizer */
    memcpy(text, data + 1, len - 1);
    pen__scan scan = pen__scan_text(text, len - 1);
    if (kind < sizeof parsers / sizeof parsers[0])
        parsers[kind](scan);
    else
        fuzz_group(kind, scan);
    free(text);
    return 0;
}
