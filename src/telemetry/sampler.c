/* sampler.c - one reading of everything.
 *
 * The files are opened when the sampler is made; a reading is a pread or two a file, and
 * parsing on the caller's thread, without an allocation.  Each part fills its fields of the
 * sampler's own struct, and as much of that as the caller knows is copied out.
 */
#include "telemetry/sampler.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "telemetry/cgroup.h"
#include "telemetry/devices.h"
#include "telemetry/nvml.h"
#include "telemetry/procfs.h"
#include "telemetry/rapl.h"

struct pen_sampler {
    pen__watch stat, self, meminfo;
    pen__watch pressure[PEN_PRESSURE_COUNT];
    pen__cgroups groups;
    pen__devices disks, interfaces;
    pen__rapl rapl;
    pen__nvml *nvml;
    char data_disk[PEN__DEVICE_NAME_CAP];
    double tick_s, page_bytes;
    pid_t pid;
    pen_machine reading;
    char text[PEN__WATCH_CAP];
};

void pen_sampler_opts_init(pen_sampler_opts *opts)
{
    *opts = (pen_sampler_opts){.struct_size = sizeof *opts, .use_gpus = true};
}

/* The options with defaults for what the caller's version lacks. */
static int full_opts(pen_sampler_opts *full, const pen_sampler_opts *opts, pen_error *err)
{
    pen_sampler_opts_init(full);
    if (!opts)
        return 0;
    if (opts->struct_size < sizeof opts->struct_size || opts->struct_size > sizeof *full)
        return pen__fail(err, PEN_EINVAL, -1, "sampler options of %zu bytes: another library's",
                         opts->struct_size);
    memcpy(full, opts, opts->struct_size);
    full->struct_size = sizeof *full;
    return 0;
}

/* Any of these may run out of memory; all of them can be undone in any state. */
static int open_all(pen_sampler *sampler, const char *root)
{
    static const char *const pressures[] = {"cpu", "memory", "io"};
    int rc = pen__watch_init(&sampler->stat, root, "/proc", "stat");
    rc = rc ? rc : pen__watch_init(&sampler->self, root, "/proc/self", "stat");
    rc = rc ? rc : pen__watch_init(&sampler->meminfo, root, "/proc", "meminfo");
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        rc = rc ? rc : pen__watch_init(&sampler->pressure[i], root, "/proc/pressure", pressures[i]);
    rc = rc ? rc : pen__cgroups_init(&sampler->groups, root);
    rc = rc ? rc : pen__disks_init(&sampler->disks, root);
    rc = rc ? rc : pen__interfaces_init(&sampler->interfaces, root);
    return rc ? rc : pen__rapl_init(&sampler->rapl, root);
}

static int find_data_disk(pen_sampler *sampler, const char *root, const char *path, pen_error *err)
{
    struct stat st;
    if (!path)
        return 0;
    if (stat(path, &st) != 0)
        return pen__fail(err, PEN_ENOTFOUND, -1, "'%s': no such file, so no disk to watch", path);
    pen__disk_of(root, major(st.st_dev), minor(st.st_dev), sampler->data_disk);
    return 0;
}

int pen__sampler_create_at(pen_sampler **out, const char *root, const pen_sampler_opts *opts,
                           pen_error *err)
{
    pen_sampler_opts full;
    *out = NULL;
    int rc = full_opts(&full, opts, err);
    if (rc)
        return rc;
    pen_sampler *sampler = pen__calloc(1, sizeof *sampler);
    if (!sampler)
        return pen__fail(err, PEN_ENOMEM, -1, "no memory for a sampler");
    sampler->tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    sampler->page_bytes = (double)sysconf(_SC_PAGESIZE);
    sampler->pid = getpid();
    rc = open_all(sampler, root);
    if (rc)
        pen__fail(err, rc, -1, "cannot watch the machine");
    else
        rc = find_data_disk(sampler, root, full.data_path, err);
    if (rc) {
        pen_sampler_free(sampler);
        return rc;
    }
    if (full.use_gpus)
        sampler->nvml = pen__nvml_open(PEN__NVML_LIBRARY);
    *out = sampler;
    return 0;
}

int pen_sampler_create(pen_sampler **out, const pen_sampler_opts *opts, pen_error *err)
{
    return pen__sampler_create_at(out, "", opts, err);
}

void pen_sampler_free(pen_sampler *sampler)
{
    if (!sampler)
        return;
    pen__watch_fini(&sampler->stat);
    pen__watch_fini(&sampler->self);
    pen__watch_fini(&sampler->meminfo);
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        pen__watch_fini(&sampler->pressure[i]);
    pen__cgroups_fini(&sampler->groups);
    pen__devices_fini(&sampler->disks);
    pen__devices_fini(&sampler->interfaces);
    pen__rapl_fini(&sampler->rapl);
    if (sampler->pid == getpid()) /* the driver's library does not survive a fork */
        pen__nvml_close(sampler->nvml);
    pen__free(sampler);
}

static void read_all(pen_sampler *sampler, pen_machine *m)
{
    char *text = sampler->text;
    m->time_ns = pen__now_ns();
    pen__parse_stat(pen__watch_read(&sampler->stat, text), sampler->tick_s, m);
    pen__parse_self(pen__watch_read(&sampler->self, text), sampler->page_bytes, &m->process);
    m->process.cpu_s = (double)pen__process_cpu_ns() * 1e-9; /* the file has ticks of 10 ms */
    pen__parse_meminfo(pen__watch_read(&sampler->meminfo, text), &m->memory);
    for (int i = 0; i < PEN_PRESSURE_COUNT; i++)
        pen__parse_pressure(pen__watch_read(&sampler->pressure[i], text), &m->pressure[i]);
    /* For the whole machine the kernel defines no "full" for the CPU and writes zeros. */
    m->pressure[PEN_PRESSURE_CPU].full_avg10 = m->pressure[PEN_PRESSURE_CPU].full_s = NAN;
    pen__cgroups_read(&sampler->groups, text, &m->cgroup);
    pen__disks_read(&sampler->disks, text, sampler->data_disk, &m->disks, &m->data_disk);
    pen__interfaces_read(&sampler->interfaces, text, &m->net, &m->loopback);
    m->package_j = pen__rapl_read(&sampler->rapl, text);
    m->n_gpus = pen__nvml_read(sampler->nvml, m->gpus);
}

int pen_sampler_read(pen_sampler *sampler, pen_machine *out)
{
    size_t size = out->struct_size;
    if (size < sizeof size || size > sizeof *out)
        return PEN_EINVAL;
    if (sampler->pid != getpid())
        return PEN_EFORK;
    read_all(sampler, &sampler->reading);
    sampler->reading.struct_size = size;
    memcpy(out, &sampler->reading, size);
    return 0;
}
