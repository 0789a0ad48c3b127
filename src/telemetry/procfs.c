/* procfs.c - parsers of /proc/stat, meminfo, pressure, diskstats and net/dev. */
#include "telemetry/procfs.h"

#include <math.h>
#include <string.h>

/* ---- CPU --------------------------------------------------------------------- */

static double or_zero(double value)
{
    return isnan(value) ? 0 : value;
}

/* user nice system idle iowait irq softirq steal guest guest_nice.  Guest time is part of
 * user and nice already. */
static pen_cpu_times cpu_times(pen__scan *line, double tick_s)
{
    double f[8];
    for (int i = 0; i < 8; i++)
        f[i] = pen__scan_next(line) * tick_s;
    return (pen_cpu_times){
        .busy_s = f[0] + f[1] + f[2] + or_zero(f[5]) + or_zero(f[6]),
        .idle_s = f[3],
        .iowait_s = f[4],
        .steal_s = f[7],
    };
}

void pen__parse_stat(pen__scan text, double tick_s, pen_machine *out)
{
    const pen_cpu_times unknown = {NAN, NAN, NAN, NAN};
    out->cpu = unknown;
    out->n_cores = 0;
    pen__scan line, word;
    while (pen__scan_line(&text, &line)) {
        if (!pen__scan_word(&line, &word) || !pen__scan_starts(word, "cpu"))
            break; /* they come first, and what follows is long */
        if (pen__scan_is(word, "cpu")) {
            out->cpu = cpu_times(&line, tick_s);
            continue;
        }
        double number = pen__scan_count(pen__scan_after(word, 3));
        if (!(number < PEN_MACHINE_CORES))
            continue;
        int32_t core = (int32_t)number;
        while (out->n_cores <= core) /* those that are offline are not listed */
            out->cores[out->n_cores++] = unknown;
        out->cores[core] = cpu_times(&line, tick_s);
    }
}

/* ---- this process ------------------------------------------------------------- */

/* Fields are numbered as in proc(5), where 2 is the name in brackets; the name may hold
 * blanks and brackets, so counting starts after the last one. */
void pen__parse_self(pen__scan text, double page_bytes, pen_process *out)
{
    enum { STATE = 3, MAJOR_FAULTS = 12, THREADS = 20, RSS = 24 };
    double f[RSS + 1];
    pen__scan rest = {text.end, text.end};
    for (const char *p = text.at; p < text.end; p++)
        if (*p == ')')
            rest.at = p + 1;
    for (int i = STATE; i <= RSS; i++)
        f[i] = pen__scan_next(&rest);
    out->major_faults = f[MAJOR_FAULTS];
    out->threads = f[THREADS];
    out->rss_bytes = f[RSS] * page_bytes;
}

/* ---- memory -------------------------------------------------------------------- */

/* "MemFree:  123 kB" in bytes; NaN above `most`, which may itself be unknown. */
static double kib_value(pen__scan text, const char *key, double most)
{
    double bytes = pen__scan_value(text, key) * 1024;
    return bytes > PEN__COUNT_MAX || bytes > most ? NAN : bytes;
}

void pen__parse_meminfo(pen__scan text, pen_memory *out)
{
    double total = kib_value(text, "MemTotal:", NAN);
    double swap = kib_value(text, "SwapTotal:", NAN);
    *out = (pen_memory){
        .total_bytes = total,
        .free_bytes = kib_value(text, "MemFree:", total),
        .available_bytes = kib_value(text, "MemAvailable:", total),
        .cached_bytes = kib_value(text, "Cached:", total),
        .swap_total_bytes = swap,
        .swap_free_bytes = kib_value(text, "SwapFree:", swap),
    };
}

/* ---- pressure ------------------------------------------------------------------- */

/* "avg10=1.50 avg60=... avg300=... total=12345": percent and microseconds. */
static void pressure_line(pen__scan line, double *avg10, double *total_s)
{
    pen__scan word;
    while (pen__scan_word(&line, &word)) {
        if (pen__scan_starts(word, "avg10="))
            *avg10 = pen__scan_decimal(pen__scan_after(word, strlen("avg10="))) / 100;
        else if (pen__scan_starts(word, "total="))
            *total_s = pen__scan_count(pen__scan_after(word, strlen("total="))) * 1e-6;
    }
    if (*avg10 > 1)
        *avg10 = NAN;
}

void pen__parse_pressure(pen__scan text, pen_pressure *out)
{
    *out = (pen_pressure){NAN, NAN, NAN, NAN};
    pen__scan line, word;
    while (pen__scan_line(&text, &line)) {
        if (!pen__scan_word(&line, &word))
            continue;
        if (pen__scan_is(word, "some"))
            pressure_line(line, &out->some_avg10, &out->some_s);
        else if (pen__scan_is(word, "full"))
            pressure_line(line, &out->full_avg10, &out->full_s);
    }
}

/* ---- devices --------------------------------------------------------------------- */

/* The word as a name, which becomes part of a path: no "..", no slash. */
static bool take_name(pen__scan word, char *name, size_t cap)
{
    size_t n = (size_t)(word.end - word.at);
    if (n == 0 || n >= cap || *word.at == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (word.at[i] == '\0')
            return false;
        name[i] = word.at[i] == '/' ? '!' : word.at[i]; /* as sysfs writes it */
    }
    name[n] = '\0';
    return true;
}

/* Two numbers of the device, its name, then eleven counters; kernels from 4.18 and 5.5 on
 * add discards and flushes. */
bool pen__parse_disk(pen__scan line, pen_disk *out)
{
    enum { COUNTERS = 11 };
    double f[COUNTERS];
    pen__scan name;
    if (isnan(pen__scan_next(&line)) || isnan(pen__scan_next(&line)))
        return false;
    if (!pen__scan_word(&line, &name) || !take_name(name, out->name, sizeof out->name))
        return false;
    for (int i = 0; i < COUNTERS; i++)
        if (isnan(f[i] = pen__scan_next(&line)))
            return false;
    const double sector = 512; /* whatever the disk's own sectors are */
    out->n_disks = 1;
    out->reads = f[0];
    out->read_bytes = f[2] * sector;
    out->read_s = f[3] * 1e-3;
    out->writes = f[4];
    out->write_bytes = f[6] * sector;
    out->write_s = f[7] * 1e-3;
    out->in_flight = f[8];
    out->busy_s = f[9] * 1e-3;
    out->queue_s = f[10] * 1e-3;
    return true;
}

/* "eth0: bytes packets errs drop fifo frame compressed multicast", then the same sent. */
bool pen__parse_interface(pen__scan line, char name[PEN__INTERFACE_CAP], pen_net *out)
{
    enum { FIELDS = 16 };
    double f[FIELDS];
    size_t n = (size_t)(line.end - line.at);
    const char *colon = n > 0 ? memchr(line.at, ':', n) : NULL;
    if (!colon)
        return false;
    pen__scan before = {line.at, colon}, word;
    line.at = colon + 1; /* old kernels leave no blank after it */
    if (!pen__scan_word(&before, &word) || !take_name(word, name, PEN__INTERFACE_CAP))
        return false;
    for (int i = 0; i < FIELDS; i++)
        if (isnan(f[i] = pen__scan_next(&line)))
            return false;
    *out = (pen_net){
        .n_interfaces = 1,
        .rx_bytes = f[0],
        .rx_packets = f[1],
        .tx_bytes = f[8],
        .tx_packets = f[9],
        .errors = f[2] + f[10],
        .drops = f[3] + f[11],
    };
    return true;
}
