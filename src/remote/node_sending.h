/* node_sending.h - what it takes to send a frame.
 *
 * Threads that read and pack know what that took them.  The rest of this process's time goes into
 * sending: waking the network's thread, copies, the kernel's network, TLS.  For a file as it is
 * stored that is most of all, and who plans by the node's time must know it, or takes a processor
 * that has no more to give for a slow network.  So it is measured, as what nobody's work accounts
 * for.
 *
 * Some of it is by the frame and some by the byte.  What the two are to each other is fixed, a
 * frame counts as PEN__SENDING_FRAME bytes: a node whose frames are all alike could not tell them
 * apart, and what it learned of small ones would be wrong for large ones.  (Measured at 60 Mbit/s:
 * 0.142 ms a frame of 111 KB, 0.100 ms a frame of 41 KB.)  How long such a byte takes is measured.
 *
 * Fields, many of which are sent at once, count by their bytes alone.
 *
 * (In a program that does other things beside its node those count as well, up to 10 ns a byte.)
 *
 * Pure: the caller has the clocks, and guards all but pen__sending_ns().
 */
#ifndef PEN_REMOTE_NODE_SENDING_H
#define PEN_REMOTE_NODE_SENDING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    PEN__SENDING_FRAME = 128 << 10, /* bytes that take as long as a frame does beside its own */
    PEN__SENDING_STEP = 16 << 20,   /* between two looks: for less it is not worth asking clocks */
};

/* Sums since the node began. */
typedef struct pen__sending_sums {
    int64_t sent_bytes;
    int64_t frames;     /* with samples, and blocks */
    int64_t process_ns; /* of all threads of this process */
    int64_t work_ns;    /* of that, what threads took to read, pack and understand */
} pen__sending_sums;

/* Zero-initialise. */
typedef struct pen__sending {
    pen__sending_sums last;
    bool has_begun; /* what the process did before the first look, also after a pause, was not all
                       sending */
    int n_looks;    /* so far, up to those that count */
    _Atomic int64_t ps_a_byte; /* picoseconds; 0: not known */
} pen__sending;

/* Has enough been sent since the last look?  Clocks of `now` are not needed for that. */
bool pen__sending_is_due(const pen__sending *sending, const pen__sending_sums *now);
/* Nothing was sent for a while: what the process does meanwhile is no sending. */
void pen__sending_pause(pen__sending *sending);

/* When it is due. */
void pen__sending_look(pen__sending *sending, const pen__sending_sums *now);

/* What so many frames with so many bytes together take; until that is known, what is usual. */
int64_t pen__sending_ns(const pen__sending *sending, int64_t frames, int64_t bytes);

#endif
