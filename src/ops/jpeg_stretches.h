/* jpeg_stretches.h - stretches of a scan between marks, collected and decoded together.
 *
 * What jpeg_lanes.h needs and gives, made fit for jpeg_window.c: bytes without their stuffing,
 * DCs summed up, and how many coefficients each block has.
 *
 * Marks are not believed.  A stretch that does not lead from its first bit to the
 * next mark, with its bits and predictors, makes the decode return false.
 */
#ifndef PEN_OPS_JPEG_STRETCHES_H
#define PEN_OPS_JPEG_STRETCHES_H

#include "ops/jpeg_lanes.h"
#include "ops/jpeg_scan.h"

enum {
    PEN__JPEG_MAX_STRETCHES = 256,
    PEN__JPEG_STRETCH_BLOCKS = 3072, /* of all stretches and a spare one for each */
    PEN__JPEG_STRETCH_BYTES = 128 << 10,
};

/* Memory for a pen__jpeg_stretches and for finding marks (jpeg_guess.h), aligned to 64. */
typedef struct pen__jpeg_stretch_room {
    _Alignas(64) int16_t coefs[64 * (PEN__JPEG_STRETCH_BLOCKS + 2)];
    uint8_t n_coefs[PEN__JPEG_STRETCH_BLOCKS];
    uint8_t bytes[PEN__JPEG_STRETCH_BYTES];
} pen__jpeg_stretch_room;

typedef struct pen__jpeg_stretches {
    pen__jpeg_lane_codes codes;
    uint8_t component_of[PEN__JPEG_MAX_BLOCKS];
    const uint8_t *src;
    size_t len;
    pen__jpeg_stretch_room *room;
    int n;
    size_t n_bytes;
    uint32_t n_blocks;
    pen__jpeg_stretch list[PEN__JPEG_MAX_STRETCHES];
    uint16_t order[PEN__JPEG_MAX_STRETCHES]; /* in which they are decoded */
    pen__jpeg_mark begin[PEN__JPEG_MAX_STRETCHES], end[PEN__JPEG_MAX_STRETCHES];
} pen__jpeg_stretches;

/* Whether this processor can. */
bool pen__jpeg_stretches_are_possible(void);

/* Whether this processor and this file can be treated so.  False is no verdict on the file. */
bool pen__jpeg_stretches_start(pen__jpeg_stretches *all, const pen__jpeg_frame *frame,
                               pen__jpeg_lane_tables *tables, const uint8_t *src, size_t len,
                               pen__jpeg_stretch_room *room);

/* Forget the stretches so far. */
void pen__jpeg_stretches_clear(pen__jpeg_stretches *all);

/* How many there are, and back to that, forgetting those added since. */
typedef struct pen__jpeg_stretches_count {
    int n;
    size_t n_bytes;
    uint32_t n_blocks;
} pen__jpeg_stretches_count;
pen__jpeg_stretches_count pen__jpeg_stretches_counted(const pen__jpeg_stretches *all);
void pen__jpeg_stretches_back_to(pen__jpeg_stretches *all, pen__jpeg_stretches_count count);

/* Add n_mcus between two marks, all there are or, for a cut stretch, the first ones.  1, or 0 if
 * there is no room, or -1 if the bytes between the marks are not what they should be. */
int pen__jpeg_stretches_add(pen__jpeg_stretches *all, const pen__jpeg_mark *begin,
                            const pen__jpeg_mark *end, int32_t n_mcus, bool is_cut);

/* Decode all that were added: blocks in zigzag order and their numbers of coefficients, as
 * pen__jpeg_scan_mcu gives them, from list[i].first_coef on. */
bool pen__jpeg_stretches_decode(pen__jpeg_stretches *all);

#endif
