/* devices.c - sums over disks and interfaces. */
#include "telemetry/devices.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_CAP = 512 };

/* ---- what /sys says ------------------------------------------------------------- */

static bool exists(const char *root, const char *dir, const char *name, const char *file)
{
    char path[PATH_CAP];
    return snprintf(path, sizeof path, "%s%s/%s/%s", root, dir, name, file) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* Has the folder an entry that begins with `prefix`?  "" asks for any. */
static bool has_entry(const char *root, const char *dir, const char *name, const char *prefix)
{
    char path[PATH_CAP];
    DIR *folder = NULL;
    if (snprintf(path, sizeof path, "%s%s/%s", root, dir, name) < (int)sizeof path)
        folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
        found = *entry->d_name != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (folder)
        closedir(folder);
    return found;
}

static bool is_hidden(const char *root, const char *name)
{
    char path[PATH_CAP];
    FILE *file = NULL;
    if (snprintf(path, sizeof path, "%s/sys/block/%s/hidden", root, name) < (int)sizeof path)
        file = fopen(path, "re");
    int first = file ? fgetc(file) : EOF;
    if (file)
        fclose(file);
    return first == '1';
}

static pen__device_kind disk_kind(const char *root, const char *name)
{
    static const char *const memory_or_file[] = {"loop", "ram", "zram"};
    char slaves[PATH_CAP];
    if (!exists(root, "/sys/block", "", ""))
        return PEN__DEVICE_UNKNOWN;
    for (int i = 0; i < 3; i++)
        if (strncmp(name, memory_or_file[i], strlen(memory_or_file[i])) == 0)
            return PEN__DEVICE_STACKED;
    snprintf(slaves, sizeof slaves, "%s/slaves", name);
    if (!exists(root, "/sys/block", name, "") /* a partition */
        || exists(root, "/sys/block", name, "dm") || exists(root, "/sys/block", name, "md") ||
        has_entry(root, "/sys/block", slaves, "") || is_hidden(root, name))
        return PEN__DEVICE_STACKED;
    return PEN__DEVICE_HARDWARE;
}

static pen__device_kind interface_kind(const char *root, const char *name)
{
    if (strcmp(name, "lo") == 0)
        return PEN__DEVICE_LOOPBACK;
    if (!exists(root, "/sys/class/net", "", ""))
        return PEN__DEVICE_UNKNOWN;
    if (has_entry(root, "/sys/class/net", name, "lower_"))
        return PEN__DEVICE_STACKED;
    return exists(root, "/sys/class/net", name, "device") ? PEN__DEVICE_HARDWARE
                                                          : PEN__DEVICE_VIRTUAL;
}

/* The last part of a link's target, or the one before: ".../block/sda/sda1". */
bool pen__disk_of(const char *root, unsigned major, unsigned minor, char name[PEN__DEVICE_NAME_CAP])
{
    char number[32], path[PATH_CAP], target[PATH_CAP];
    *name = '\0';
    snprintf(number, sizeof number, "%u:%u", major, minor);
    if (snprintf(path, sizeof path, "%s/sys/dev/block/%s", root, number) >= (int)sizeof path)
        return false;
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0 || n == sizeof target - 1)
        return false;
    target[n] = '\0';
    char *slash = strrchr(target, '/');
    if (slash && exists(root, "/sys/dev/block", number, "partition")) {
        *slash = '\0';
        slash = strrchr(target, '/');
    }
    const char *last = slash ? slash + 1 : target;
    if (*last == '\0' || strlen(last) >= PEN__DEVICE_NAME_CAP)
        return false;
    snprintf(name, PEN__DEVICE_NAME_CAP, "%.*s", PEN__DEVICE_NAME_CAP - 1, last);
    return true;
}

/* ---- remembering ----------------------------------------------------------------- */

/* A place for a new name: a free one, or that of a device which is gone (hosts of
 * containers make and remove interfaces all day); -1 if all are in use. */
static int place_for_new(pen__devices *devices)
{
    if (devices->n_known < PEN__DEVICES_CAP)
        return devices->n_known++;
    for (int i = 0; i < PEN__DEVICES_CAP; i++)
        if (devices->reading - devices->known[i].seen > 1)
            return i;
    return -1;
}

static pen__device_kind kind_of(pen__devices *devices, const char *name,
                                pen__device_kind (*ask)(const char *root, const char *name))
{
    int at = -1;
    for (int i = 0; i < devices->n_known && at < 0; i++) {
        int place = (devices->next + i) % devices->n_known;
        if (strcmp(devices->known[place].name, name) == 0)
            at = place;
    }
    if (at < 0) {
        at = place_for_new(devices);
        if (at < 0)
            return PEN__DEVICE_UNKNOWN;
        snprintf(devices->known[at].name, PEN__DEVICE_NAME_CAP, "%s", name);
        devices->known[at].kind = ask(devices->root, name);
    }
    devices->known[at].seen = devices->reading;
    devices->next = at + 1;
    return devices->known[at].kind;
}

static int init(pen__devices *devices, const char *root, const char *dir, const char *name)
{
    memset(devices, 0, sizeof *devices);
    devices->list.fd = -1;
    if (strlen(root) >= sizeof devices->root)
        return PEN_EINVAL;
    snprintf(devices->root, sizeof devices->root, "%s", root);
    return pen__watch_init(&devices->list, root, dir, name);
}

int pen__disks_init(pen__devices *disks, const char *root)
{
    return init(disks, root, "/proc", "diskstats");
}

int pen__interfaces_init(pen__devices *interfaces, const char *root)
{
    return init(interfaces, root, "/proc/net", "dev");
}

void pen__devices_fini(pen__devices *devices)
{
    pen__watch_fini(&devices->list);
}

/* ---- disks ------------------------------------------------------------------------ */

static const pen_disk no_disk = {"", 0, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
static const pen_net no_interface = {0, NAN, NAN, NAN, NAN, NAN, NAN};

static void add_disk(pen_disk *sum, const pen_disk *one)
{
    if (sum->n_disks++ == 0) {
        *sum = *one;
        *sum->name = '\0';
        return;
    }
    sum->reads += one->reads;
    sum->writes += one->writes;
    sum->read_bytes += one->read_bytes;
    sum->write_bytes += one->write_bytes;
    sum->read_s += one->read_s;
    sum->write_s += one->write_s;
    sum->busy_s += one->busy_s;
    sum->queue_s += one->queue_s;
    sum->in_flight += one->in_flight;
}

void pen__disks_read(pen__devices *disks, char *buffer, const char *name, pen_disk *all,
                     pen_disk *one)
{
    pen__scan text = pen__watch_read(&disks->list, buffer), line;
    bool is_unknown = false;
    disks->reading++;
    *all = *one = no_disk;
    while (pen__scan_line(&text, &line)) {
        pen_disk disk = no_disk;
        if (!pen__parse_disk(line, &disk))
            continue;
        if (strcmp(disk.name, name) == 0)
            *one = disk;
        pen__device_kind kind = kind_of(disks, disk.name, disk_kind);
        if (kind == PEN__DEVICE_HARDWARE)
            add_disk(all, &disk);
        is_unknown |= kind == PEN__DEVICE_UNKNOWN;
    }
    if (is_unknown)
        *all = no_disk;
}

/* ---- interfaces -------------------------------------------------------------------- */

static void add_interface(pen_net *sum, const pen_net *one)
{
    if (sum->n_interfaces++ == 0) {
        *sum = *one;
        return;
    }
    sum->rx_bytes += one->rx_bytes;
    sum->tx_bytes += one->tx_bytes;
    sum->rx_packets += one->rx_packets;
    sum->tx_packets += one->tx_packets;
    sum->errors += one->errors;
    sum->drops += one->drops;
}

void pen__interfaces_read(pen__devices *interfaces, char *buffer, pen_net *all, pen_net *loopback)
{
    pen__scan text = pen__watch_read(&interfaces->list, buffer), line;
    pen_net virtuals = no_interface;
    bool is_unknown = false;
    interfaces->reading++;
    *all = *loopback = no_interface;
    while (pen__scan_line(&text, &line)) {
        pen_net one;
        char name[PEN__INTERFACE_CAP];
        if (!pen__parse_interface(line, name, &one))
            continue;
        pen__device_kind kind = kind_of(interfaces, name, interface_kind);
        if (kind == PEN__DEVICE_LOOPBACK)
            *loopback = one;
        else if (kind == PEN__DEVICE_HARDWARE)
            add_interface(all, &one);
        else if (kind == PEN__DEVICE_VIRTUAL)
            add_interface(&virtuals, &one);
        is_unknown |= kind == PEN__DEVICE_UNKNOWN;
    }
    if (all->n_interfaces == 0)
        *all = virtuals;
    if (is_unknown)
        *all = no_interface;
}
