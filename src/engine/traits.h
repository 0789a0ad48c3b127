/* traits.h - how samples differ from what is estimated of them: four bytes a sample.
 *
 * The estimates (estimate.h) know a sample's header and length; two files alike in both may differ
 * all the same, in quality, detail or kind of code.  A trait is what came over what was estimated,
 * in steps of 2.4 %.  Crops differ from epoch to epoch, so one time says half of it: what is known
 * of others counts as much (docs/near-storage.md has what that gains).
 *
 * Any thread, without a lock: the traits of a sample are one word.
 */
#ifndef PEN_ENGINE_TRAITS_H
#define PEN_ENGINE_TRAITS_H

#include <stdatomic.h>
#include <stdint.h>

#include <penstock/error.h>

typedef enum pen__trait {
    PEN__TRAIT_CUT_BYTES,   /* of a part of the JPEG file */
    PEN__TRAIT_CODED_BYTES, /* of coded pixels */
    PEN__TRAIT_CPU,         /* of a node, whatever it does */
    PEN__TRAIT_COUNT
} pen__trait;

typedef struct pen__traits {
    _Atomic uint32_t *words; // (n), a byte each, 0: not known; NULL: nothing ever is
    int64_t n;
} pen__traits;

/* Nothing is known yet.  PEN_ENOMEM. */
int pen__traits_init(pen__traits *traits, int64_t n);
void pen__traits_fini(pen__traits *traits);

/* Times what is estimated; 1 for what is not known. */
double pen__traits_factor(const pen__traits *traits, int64_t sample, pen__trait trait);
/* It was so many times what was estimated; what is no number, or not above 0, says nothing. */
void pen__traits_note(pen__traits *traits, int64_t sample, pen__trait trait, double ratio);

/* All traits of a sample as a number, to keep. */
uint32_t pen__traits_word(const pen__traits *traits, int64_t sample);
/* The reverse, for a sample of which nothing is known; what is no such number is ignored. */
void pen__traits_restore(pen__traits *traits, int64_t sample, uint32_t word);

#endif
