/* guest.h - what serve.c shows of guests (penstock/guest.h), and wishes for their knobs.
 *
 * All but the number and the owner is guarded by the lock of serve.c's list.
 */
#ifndef PEN_ENGINE_GUEST_H
#define PEN_ENGINE_GUEST_H

#include <sys/types.h>

#include <penstock/guest.h>
#include <penstock/knobs.h>

struct pen__server;

struct pen_guest {
    pen_guest *next; /* of the same server */
    struct pen__server *server;
    int64_t number;
    pid_t owner; /* a forked child has a copy that nobody sees */
    char *said;  /* NULL before the first time */
    size_t said_len;
    char wishes[PEN_GUEST_WISHES_MAX];
};

/* Keep these wishes, all or none: numbers that are not NaN, and a bit for each knob that is left
 * to the policy again.  They must be among the knobs that the guest said it has, and in range:
 * PEN_EINVAL; also when it does not ask, and they are too many. */
int pen__guest_wish(pen_guest *guest, const pen_knobs *knobs, uint64_t released, pen_error *err);

/* ---- serve.c ---- */

/* 0, or -errno. */
int pen__serve_guest(pen_guest *guest);
void pen__serve_guest_end(pen_guest *guest);
void pen__serve_lock(void);
void pen__serve_unlock(void);

#endif
