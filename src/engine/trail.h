/* trail.h - how much of each of the last seconds something took: one thread writes, any reads.
 *
 * For displays.  A second's entry is claimed by writing its number, without a lock; a reader
 * that comes in between sees a second too small, once.
 */
#ifndef PEN_ENGINE_TRAIL_H
#define PEN_ENGINE_TRAIL_H

#include <stdatomic.h>
#include <stdint.h>

enum { PEN__TRAIL_SECONDS = 60 };

/* Zero-initialise. */
typedef struct pen__trail {
    _Atomic int64_t first_ns; /* when it began; 0: not yet */
    struct {
        _Atomic int64_t second, ns;
    } entry[PEN__TRAIL_SECONDS + 1]; /* the present one is not complete */
} pen__trail;

/* It took from `from_ns` to `to_ns`, both on the monotonic clock. */
void pen__trail_add(pen__trail *trail, int64_t from_ns, int64_t to_ns);

/* Shares of the complete seconds before `now_ns`, oldest first; the number of them.
 * `open_since`: it is going on since then; 0: it is not. */
int pen__trail_read(const pen__trail *trail, int64_t now_ns, int64_t open_since,
                    double share[PEN__TRAIL_SECONDS]);

#endif
