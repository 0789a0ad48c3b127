/* node_sending.h - what it takes to send a byte.
 *
 * Threads that read and pack know what that took them.  The rest of this process's time goes into
 * sending: copies, the kernel's network, TLS.  For a file as it is stored that is most of all, and
 * who plans by the node's time must know it, or takes a processor that has no more to give for a
 * slow network.  So it is measured, as what nobody's work accounts for, by the byte.
 *
 * (In a program that does other things beside its node those count as well, up to 20 ns a byte.)
 *
 * Pure: the caller has the clocks, and guards all but pen__sending_ns().
 */
#ifndef PEN_REMOTE_NODE_SENDING_H
#define PEN_REMOTE_NODE_SENDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sums since the node began. */
typedef struct pen__sending_sums {
    int64_t sent_bytes;
    int64_t process_ns; /* of all threads of this process */
    int64_t work_ns;    /* of that, what threads took to read, pack and understand */
} pen__sending_sums;

/* Zero-initialise: nothing is known. */
typedef struct pen__sending {
    pen__sending_sums last;
    _Atomic int64_t ps_a_byte; /* picoseconds */
} pen__sending;

/* Bytes between two looks: for less it is not worth asking clocks. */
enum { PEN__SENDING_STEP = 4 << 20 };

static inline bool pen__sending_is_due(const pen__sending *sending, int64_t sent_bytes)
{
    return sent_bytes - sending->last.sent_bytes >= PEN__SENDING_STEP;
}

/* When it is due. */
void pen__sending_look(pen__sending *sending, const pen__sending_sums *now);

/* What so many bytes take; 0 until it is known. */
int64_t pen__sending_ns(const pen__sending *sending, int64_t bytes);

#endif
