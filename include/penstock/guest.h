/* guest.h - a loader that is made outside this library, shown beside those that are.
 *
 *     pen_guest *guest;
 *     pen_guest_open(&guest, &err);
 *     pen_guest_say(guest, text, len);          every second or so, what `penstock top` shows
 *     pen_guest_wishes(guest, wishes, cap);     as often, what somebody wants of its knobs
 *     pen_guest_close(guest);
 *
 * Worker processes of a Python dataset are one.  Nobody calls a guest: what it said last is
 * shown, and what is wished waits until it asks, so that it needs no thread and no lock of its own.
 */
#ifndef PENSTOCK_GUEST_H
#define PENSTOCK_GUEST_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/visibility.h>

#define PEN_GUEST_SAID_MAX   65536 /* bytes */
#define PEN_GUEST_WISHES_MAX 512   /* bytes, with the NUL */

typedef struct pen_guest pen_guest;

/* Answer on the process's local socket, as loaders with a policy do.  PEN_ENOTFOUND:
 * PENSTOCK_TOP=off; PEN_EIO: the system refuses; PEN_ENOMEM. */
PEN_API int pen_guest_open(pen_guest **out, pen_error *err);
/* Its number among the loaders of this process. */
PEN_API int64_t pen_guest_number(const pen_guest *guest);

/* What it is like now: a JSON object with members as in docs/watching.md, copied.  PEN_EINVAL for
 * what is longer than PEN_GUEST_SAID_MAX or no object; PEN_ENOMEM; PEN_EFORK. */
PEN_API int pen_guest_say(pen_guest *guest, const char *json, size_t len);

/* Take what was wished since the last time, "workers=3&ready_batches=auto": later words count.
 * Its length, 0 for nothing, or PEN_ENOSPC. */
PEN_API int64_t pen_guest_wishes(pen_guest *guest, char *dst, size_t dst_cap);

/* Nobody sees it any more when this returns.  NULL is fine. */
PEN_API void pen_guest_close(pen_guest *guest);

#endif
