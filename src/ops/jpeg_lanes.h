/* jpeg_lanes.h - many stretches of a JPEG scan decoded at once by one thread.
 *
 * A stretch is what lies between two marks: its first bit is known, and so is where it
 * must end.  So stretches need not be taken one after the other.  With AVX-512 each
 * 64-bit lane of a vector is at work on one of them, and every look-up is made for
 * eight at a time; only what is unusual takes a branch.
 *
 * For files without restart markers, whose bits are in one piece from mark to mark.
 *
 * Safe on any input: reads nothing but the caller's bytes, writes nothing but the blocks
 * of its stretches and the slack behind them.
 */
#ifndef PEN_OPS_JPEG_LANES_H
#define PEN_OPS_JPEG_LANES_H

#include "ops/jpeg_huffman.h"

enum {
    PEN__JPEG_LANE_BITS = 11,
    PEN__JPEG_LANE_SHORT = 1 << PEN__JPEG_LANE_BITS,
    PEN__JPEG_LANE_MAX_TAKEN = 18, /* bits, by a look-up that does not ask for more */
    PEN__JPEG_LANE_LONG = 511,     /* entries for codes that are longer, at most */
    PEN__JPEG_LANE_ENTRIES = PEN__JPEG_LANE_SHORT + PEN__JPEG_LANE_LONG + 1,
    PEN__JPEG_LANE_SLACK = 64, /* coefficients behind the blocks of a stretch */
    PEN__JPEG_LANE_ZEROS = 32, /* bytes behind those of a stretch */
};

/* What the next 11 bits mean, or where they are not a whole code, the next 16. */
typedef struct pen__jpeg_lane_table {
    uint64_t entries[PEN__JPEG_LANE_ENTRIES];
    int32_t first_long, n_long; /* 16 bits from first_long on have n_long entries */
    uint64_t unused[7];
} pen__jpeg_lane_table;
_Static_assert(sizeof(pen__jpeg_lane_table) % 64 == 0,
               "tables lie eight entries apart, see routes");

/* About 160 KiB.  One thread's; zeroed before first use. */
typedef struct pen__jpeg_lane_tables {
    pen__jpeg_cached dc_keys[PEN__JPEG_N_CACHED], ac_keys[PEN__JPEG_N_CACHED];
    uint64_t n_uses;
    uint64_t idle[8]; /* the entry of a lane that has nothing to do */
    pen__jpeg_lane_table dc[PEN__JPEG_N_CACHED], ac[PEN__JPEG_N_CACHED];
} pen__jpeg_lane_tables;

/* The tables of an image's blocks, in the order of an MCU. */
typedef struct pen__jpeg_lane_codes {
    const pen__jpeg_lane_table *dc[6], *ac[6];
    const uint64_t *idle;
    int n_blocks;
} pen__jpeg_lane_codes;

typedef struct pen__jpeg_stretch {
    uint32_t first_bit, end_bit; /* in the bytes */
    uint32_t first_coef;         /* in the blocks, a multiple of 64 */
    uint32_t n_coefs;            /* 64 a block, whole MCUs, at least one */
    bool is_cut; /* the last block ends at any bit up to end_bit, else exactly there */
} pen__jpeg_stretch;

/* False if a code is not a proper one or unfit for lanes. */
bool pen__jpeg_lane_codes_set(pen__jpeg_lane_codes *codes, const pen__jpeg_frame *frame,
                              pen__jpeg_lane_tables *tables);

#if defined(__x86_64__)
/* Decode all stretches.  `bytes` have no stuffing, and PEN__JPEG_LANE_ZEROS zeros behind
 * each stretch.  Coefficients come in zigzag order, with the DC as the difference to the
 * block before; they are zero at first.  There is PEN__JPEG_LANE_SLACK after each stretch,
 * which may be changed, and once more at `spare`.  False if the data are not sound or a stretch
 * does not end where it should. */
bool pen__jpeg_lanes_avx512(const pen__jpeg_lane_codes *codes, const uint8_t *bytes,
                            const pen__jpeg_stretch *list, const uint16_t *order, int n,
                            int16_t *coefs, uint32_t spare);

/* Make DCs of the differences in n_blocks blocks, going on from `dc`, and count coefficients as
 * pen__jpeg_scan_mcu does, except that the last one is never zero.  False if a DC leaves int16. */
bool pen__jpeg_lanes_finish_avx512(const uint8_t *component_of, int mcu_blocks, int16_t *coefs,
                                   uint32_t n_blocks, int32_t *dc, uint8_t *n_coefs);
#endif

#endif
