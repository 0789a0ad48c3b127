/* devices.h - disks and network interfaces, each byte counted once.
 *
 * The kernel lists everything side by side: a disk, its partitions, the encrypted volume
 * on one of them; a bond, its links, a container's bridge.  The sums take what stands at
 * the bottom, as /sys describes it:
 *   disks       whole disks that rest on no other device: no partition, dm, md, loop, ram
 *               or zram, and no hidden path of a multipath disk
 *   interfaces  those that rest on no other; where any of them is a hardware device,
 *               only such (a container has none, and sees its end of a pair)
 * Without /sys nobody can tell, and the sums are unavailable.
 */
#ifndef PEN_TELEMETRY_DEVICES_H
#define PEN_TELEMETRY_DEVICES_H

#include <penstock/telemetry.h>

#include "telemetry/procfs.h"
#include "telemetry/watch.h"

enum { PEN__DEVICES_CAP = 512, PEN__DEVICE_NAME_CAP = 32, PEN__ROOT_CAP = 256 };

/* What /sys said about a name when it was first met. */
typedef enum pen__device_kind {
    PEN__DEVICE_UNKNOWN, /* there is no /sys, or no place to remember */
    PEN__DEVICE_STACKED, /* counted elsewhere, or no real device */
    PEN__DEVICE_VIRTUAL, /* an interface without hardware of ours behind it */
    PEN__DEVICE_HARDWARE,
    PEN__DEVICE_LOOPBACK,
} pen__device_kind;

typedef struct pen__devices {
    pen__watch list;
    char root[PEN__ROOT_CAP];
    struct {
        char name[PEN__DEVICE_NAME_CAP];
        pen__device_kind kind;
        uint32_t seen; /* the reading that listed it last */
    } known[PEN__DEVICES_CAP];
    int n_known, next; /* lines come in the same order each time: begin there */
    uint32_t reading;
} pen__devices;

/* The disk that holds files of this device number: partitions lead to their disk, dm and
 * md stay themselves.  False if there is none (network and memory file systems, overlays,
 * btrfs). */
bool pen__disk_of(const char *root, unsigned major, unsigned minor,
                  char name[PEN__DEVICE_NAME_CAP]);

/* Returns 0, PEN_ENOMEM, or PEN_EINVAL for a root that is too long. */
int pen__disks_init(pen__devices *disks, const char *root);
int pen__interfaces_init(pen__devices *interfaces, const char *root);
void pen__devices_fini(pen__devices *devices);

/* The sum, and the disk called `name` (may be ""). */
void pen__disks_read(pen__devices *disks, char *buffer, const char *name, pen_disk *all,
                     pen_disk *one);
void pen__interfaces_read(pen__devices *interfaces, char *buffer, pen_net *all, pen_net *loopback);

#endif
