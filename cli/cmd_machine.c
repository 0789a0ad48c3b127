/* cmd_machine.c - penstock machine: what the loader can know about this machine.
 *
 * Two readings some time apart; one table drives both the text and the JSON, so that
 * neither forgets a field.
 */
#include "cli.h"

#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void help(void)
{
    puts("usage: penstock machine [PATH] [OPTIONS]\n\n"
         "What the machine is doing, and what it does not tell: CPU, memory, pressure, control\n"
         "group, disks, network, energy, GPUs.  PATH: show the disk that holds it as well.\n\n"
         "  --ms N             time between the two readings (default 500)\n"
         "  --json             one JSON object; null is unavailable, \"none\" is no limit");
}

typedef enum unit { SHARE, BYTES, SECONDS, NUMBER } unit;
typedef enum origin { GAUGE, RATE } origin;

/* A value: its line, its name in JSON, what text says behind it. */
typedef struct field {
    const char *group, *key, *words;
    unit kind;
    origin from;
    size_t offset;
} field;

#define GAUGE_AT(member) GAUGE, offsetof(pen_machine, member)
#define RATE_AT(member)  RATE, offsetof(pen_rates, member)

#define PRESSURE_FIELDS(group, at, i)                                              \
    {group, "some", "some waiting", SHARE, RATE_AT(at[i].some)},                   \
        {group, "full", "all waiting", SHARE, RATE_AT(at[i].full)},                \
        {group, "some_avg10", "some, in 10 s", SHARE, GAUGE_AT(at[i].some_avg10)}, \
    {                                                                              \
        group, "full_avg10", "all, in 10 s", SHARE, GAUGE_AT(at[i].full_avg10)     \
    }

#define DISK_FIELDS(group, at)                                                                  \
    {group, "busy", "busy", SHARE, RATE_AT(at.busy)},                                           \
        {group, "read_bytes_per_s", "read a second", BYTES, RATE_AT(at.read_bytes_per_s)},      \
        {group, "write_bytes_per_s", "written a second", BYTES, RATE_AT(at.write_bytes_per_s)}, \
        {group, "reads_per_s", "reads a second", NUMBER, RATE_AT(at.reads_per_s)},              \
        {group, "writes_per_s", "writes a second", NUMBER, RATE_AT(at.writes_per_s)},           \
        {group, "read_latency_s", "a read", SECONDS, RATE_AT(at.read_latency_s)},               \
        {group, "write_latency_s", "a write", SECONDS, RATE_AT(at.write_latency_s)},            \
        {group, "latency_s", "a request", SECONDS, RATE_AT(at.latency_s)},                      \
        {group, "queue", "under way on average", NUMBER, RATE_AT(at.queue)},                    \
    {                                                                                           \
        group, "in_flight", "now", NUMBER, GAUGE_AT(at.in_flight)                               \
    }

#define NET_FIELDS(group, at)                                                                     \
    {group, "rx_bytes_per_s", "in a second", BYTES, RATE_AT(at.rx_bytes_per_s)},                  \
        {group, "tx_bytes_per_s", "out a second", BYTES, RATE_AT(at.tx_bytes_per_s)},             \
        {group, "rx_packets_per_s", "packets in a second", NUMBER, RATE_AT(at.rx_packets_per_s)}, \
        {group, "tx_packets_per_s", "out", NUMBER, RATE_AT(at.tx_packets_per_s)},                 \
        {group, "errors_per_s", "errors a second", NUMBER, RATE_AT(at.errors_per_s)},             \
    {                                                                                             \
        group, "drops_per_s", "drops a second", NUMBER, RATE_AT(at.drops_per_s)                   \
    }

static const field fields[] = {
    {"cpu", "busy", "busy", SHARE, RATE_AT(cpu.busy)},
    {"cpu", "iowait", "idle with a disk at work", SHARE, RATE_AT(cpu.iowait)},
    {"cpu", "steal", "stolen", SHARE, RATE_AT(cpu.steal)},
    {"process", "cores", "cores", NUMBER, RATE_AT(process_cores)},
    {"process", "rss_bytes", "resident", BYTES, GAUGE_AT(process.rss_bytes)},
    {"process", "threads", "threads", NUMBER, GAUGE_AT(process.threads)},
    {"process", "major_faults_per_s", "major faults a second", NUMBER, RATE_AT(major_faults_per_s)},
    {"memory", "total_bytes", "in all", BYTES, GAUGE_AT(memory.total_bytes)},
    {"memory", "free_bytes", "free", BYTES, GAUGE_AT(memory.free_bytes)},
    {"memory", "available_bytes", "available", BYTES, GAUGE_AT(memory.available_bytes)},
    {"memory", "cached_bytes", "cached", BYTES, GAUGE_AT(memory.cached_bytes)},
    {"memory", "swap_total_bytes", "swap", BYTES, GAUGE_AT(memory.swap_total_bytes)},
    {"memory", "swap_free_bytes", "of it free", BYTES, GAUGE_AT(memory.swap_free_bytes)},
    PRESSURE_FIELDS("pressure_cpu", pressure, PEN_PRESSURE_CPU),
    PRESSURE_FIELDS("pressure_memory", pressure, PEN_PRESSURE_MEMORY),
    PRESSURE_FIELDS("pressure_io", pressure, PEN_PRESSURE_IO),
    {"group_cpu", "quota_cores", "cores allowed", NUMBER, GAUGE_AT(cgroup.cpu_quota_cores)},
    {"group_cpu", "cores", "used", NUMBER, RATE_AT(cgroup.cpu_cores)},
    {"group_cpu", "throttled_share", "of periods throttled", SHARE,
     RATE_AT(cgroup.throttled_share)},
    {"group_cpu", "throttled_cores", "cores held back", NUMBER, RATE_AT(cgroup.throttled_cores)},
    {"group_memory", "limit_bytes", "memory allowed", BYTES, GAUGE_AT(cgroup.memory_limit_bytes)},
    {"group_memory", "high_bytes", "until slowed down", BYTES, GAUGE_AT(cgroup.memory_high_bytes)},
    {"group_memory", "used_bytes", "used", BYTES, GAUGE_AT(cgroup.memory_used_bytes)},
    {"group_memory", "file_bytes", "of it cache", BYTES, GAUGE_AT(cgroup.memory_file_bytes)},
    {"group_memory", "high_events_per_s", "times slowed down a second", NUMBER,
     RATE_AT(cgroup.memory_high_events_per_s)},
    {"group_memory", "limit_events_per_s", "times at the limit a second", NUMBER,
     RATE_AT(cgroup.memory_limit_events_per_s)},
    PRESSURE_FIELDS("group_pressure_cpu", cgroup.pressure, PEN_PRESSURE_CPU),
    PRESSURE_FIELDS("group_pressure_memory", cgroup.pressure, PEN_PRESSURE_MEMORY),
    PRESSURE_FIELDS("group_pressure_io", cgroup.pressure, PEN_PRESSURE_IO),
    DISK_FIELDS("disks", disks),
    DISK_FIELDS("data_disk", data_disk),
    NET_FIELDS("network", net),
    NET_FIELDS("loopback", loopback),
    {"package", "power_w", "W", NUMBER, RATE_AT(package_w)},
};

#define N_FIELDS (sizeof fields / sizeof fields[0])

typedef struct readings {
    pen_machine before, now;
    pen_rates rates;
} readings;

static double value_of(const readings *r, const field *f)
{
    double value;
    const char *base = f->from == GAUGE ? (const char *)&r->now : (const char *)&r->rates;
    memcpy(&value, base + f->offset, sizeof value);
    return value;
}

/* ---- text ----------------------------------------------------------------------- */

static void print_value(unit kind, double value, const char *words)
{
    char text[32];
    if (isnan(value))
        printf("-");
    else if (isinf(value))
        printf("unlimited");
    else if (kind == SHARE)
        printf("%.1f %%", value * 100);
    else if (kind == BYTES)
        printf("%s", cli_bytes(text, value));
    else if (kind == SECONDS)
        printf("%.2f ms", value * 1000);
    else
        printf("%.4g", value);
    printf(" %s", words);
}

/* One line a group: what is known, then the names of what is not. */
static void print_group(const readings *r, size_t from, size_t end)
{
    const char *between = "";
    for (size_t f = from; f < end; f++) {
        double value = value_of(r, &fields[f]);
        if (isnan(value))
            continue;
        fputs(between, stdout);
        print_value(fields[f].kind, value, fields[f].words);
        between = ", ";
    }
    between = *between ? "; unavailable: " : "unavailable: ";
    for (size_t f = from; f < end; f++) {
        if (!isnan(value_of(r, &fields[f])))
            continue;
        printf("%s%s", between, fields[f].key);
        between = ", ";
    }
    puts("");
}

static void print_fields(const readings *r)
{
    for (size_t i = 0, end; i < N_FIELDS; i = end) {
        char name[32];
        for (end = i; end < N_FIELDS && strcmp(fields[end].group, fields[i].group) == 0;)
            end++;
        snprintf(name, sizeof name, "%s", fields[i].group);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? ' ' : *p;
        printf("%-22s ", name);
        print_group(r, i, end);
    }
}

static void print_gpus(const readings *r)
{
    if (r->rates.n_gpus == 0)
        printf("%-22s unavailable\n", "gpus");
    for (int32_t i = 0; i < r->rates.n_gpus; i++) {
        pen_gpu gpu = r->now.gpus[i];
        printf("gpu %-18d %s: ", i, cli_printable(gpu.name));
        print_value(SHARE, gpu.busy, "busy, ");
        print_value(SHARE, gpu.memory_busy, "memory busy, ");
        print_value(BYTES, gpu.memory_used_bytes, "used of ");
        print_value(BYTES, gpu.memory_total_bytes, ", ");
        print_value(NUMBER, gpu.power_w, "W now, ");
        print_value(NUMBER, r->rates.gpu_w[i], "W on average\n");
    }
}

static void print_text(const readings *r)
{
    printf("%-22s %.2f s\n", "between readings", r->rates.seconds);
    print_fields(r);
    printf("%-22s", "cores");
    for (int32_t i = 0; i < r->rates.n_cores; i++)
        isnan(r->rates.cores[i].busy) ? printf(" -")
                                      : printf(" %.0f", r->rates.cores[i].busy * 100);
    puts(r->rates.n_cores ? " % busy" : " unavailable");
    if (*r->now.data_disk.name)
        printf("%-22s %s\n", "data disk is", r->now.data_disk.name);
    print_gpus(r);
}

/* ---- JSON ----------------------------------------------------------------------- */

static void json_value(double value)
{
    if (isnan(value))
        printf("null");
    else if (isinf(value))
        printf("\"none\"");
    else
        printf("%.15g", value);
}

static void json_gpu(const readings *r, int32_t i)
{
    const pen_gpu *gpu = &r->now.gpus[i];
    const struct {
        const char *key;
        double value;
    } values[] = {{"busy", gpu->busy},
                  {"memory_busy", gpu->memory_busy},
                  {"memory_used_bytes", gpu->memory_used_bytes},
                  {"memory_total_bytes", gpu->memory_total_bytes},
                  {"power_w", gpu->power_w},
                  {"mean_power_w", r->rates.gpu_w[i]}};
    printf("%s{\"name\":", i ? "," : "");
    cli_json_string(stdout, gpu->name);
    for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        printf(",\"%s\":", values[v].key);
        json_value(values[v].value);
    }
    printf("}");
}

static void print_json(const readings *r)
{
    printf("{\"seconds\":%.6f", r->rates.seconds);
    for (size_t i = 0; i < N_FIELDS; i++) {
        bool is_first = i == 0 || strcmp(fields[i].group, fields[i - 1].group) != 0;
        bool is_last = i + 1 == N_FIELDS || strcmp(fields[i].group, fields[i + 1].group) != 0;
        if (is_first)
            printf(",\"%s\":{", fields[i].group);
        printf("%s\"%s\":", is_first ? "" : ",", fields[i].key);
        json_value(value_of(r, &fields[i]));
        fputs(is_last ? "}" : "", stdout);
    }
    printf(",\"data_disk_name\":");
    cli_json_string(stdout, r->now.data_disk.name);
    printf(",\"cores\":[");
    for (int32_t i = 0; i < r->rates.n_cores; i++) {
        fputs(i ? "," : "", stdout);
        json_value(r->rates.cores[i].busy);
    }
    printf("],\"gpus\":[");
    for (int32_t i = 0; i < r->rates.n_gpus; i++)
        json_gpu(r, i);
    puts("]}");
}

/* ---- the command ------------------------------------------------------------------ */

static bool take(readings *r, const char *path, long long ms)
{
    pen_sampler *sampler;
    pen_sampler_opts opts;
    pen_error err = {0};
    pen_sampler_opts_init(&opts);
    opts.data_path = path;
    if (pen_sampler_create(&sampler, &opts, &err) != 0) {
        cli_complain("%s", err.text);
        return false;
    }
    *r = (readings){PEN_MACHINE_INIT, PEN_MACHINE_INIT, PEN_RATES_INIT};
    struct timespec nap = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    bool ok = pen_sampler_read(sampler, &r->before) == 0;
    nanosleep(&nap, NULL);
    ok = ok && pen_sampler_read(sampler, &r->now) == 0 &&
         pen_machine_rates(&r->before, &r->now, &r->rates) == 0;
    pen_sampler_free(sampler);
    return ok;
}

int cmd_machine(int argc, char **argv)
{
    static const struct option options[] = {
        {"ms", 1, NULL, 'm'}, {"json", 0, NULL, 'j'}, {"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
    static readings r;
    long long ms = 500;
    bool as_json = false;
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            help();
            return EXIT_OK;
        }
        if (c == '?' || (c == 'm' && !cli_number("--ms", optarg, 1, 3600000, &ms)))
            return EXIT_USAGE;
        as_json |= c == 'j';
    }
    if (optind < argc - 1) {
        cli_complain("machine takes one PATH at most; see penstock machine --help");
        return EXIT_USAGE;
    }
    if (!take(&r, optind < argc ? argv[optind] : NULL, ms))
        return EXIT_FAILED;
    (as_json ? print_json : print_text)(&r);
    return EXIT_OK;
}
