/* jpeg_huffman.h - look-up tables for JPEG's Huffman codes, and a cache of them.
 *
 * AC coefficients are most of a file.  One look-up of the next 11 bits gives up to two of
 * them at once: where they go, their values and how many bits they took.  What does
 * not fit into 11 bits takes a slower way (see jpeg_scan.c).
 *
 * Building a pair of AC tables takes some ten microseconds, and most encoders write
 * the same ones into every file, so a decoder keeps the tables it used last, by content.
 */
#ifndef PEN_OPS_JPEG_HUFFMAN_H
#define PEN_OPS_JPEG_HUFFMAN_H

#include "ops/jpeg_frame.h"

enum {
    PEN__JPEG_AC_BITS = 11, /* 12 cost more cache misses than they save look-ups */
    PEN__JPEG_DC_BITS = 9,
    PEN__JPEG_EOB = 128, /* added to `advance` when the block ends */
};

/* What the next bits mean at zigzag position k, the first one not yet filled.
 * Where one symbol is all, the second coefficient is a zero at the place the first
 * one leaves free, to be overwritten: storing both always is quicker than
 * asking. */
typedef struct pen__jpeg_ac_entry {
    uint8_t bits;          /* taken by all of this; 0: not complete in 11 bits */
    uint8_t advance;       /* k grows by this */
    uint8_t first, second; /* coefficients at k + first, k + second */
    int16_t first_value;   /* bits == 0: the symbol (run << 4 | size) ... */
    int8_t second_value;
    uint8_t first_bits; /* ... and its code's length, 0 if over 11; else bits of the first */
} pen__jpeg_ac_entry;

/* A DC difference is too long for a look-up of its own, so the table has only its size. */
typedef struct pen__jpeg_dc_entry {
    uint8_t bits;      /* code and difference; 0: the code has more than 9 bits */
    uint8_t code_bits; /* code alone */
    uint8_t size;      /* bits of the difference */
} pen__jpeg_dc_entry;

/* Codes of any length.  The codes of one length are consecutive numbers. */
typedef struct pen__jpeg_long_codes {
    int32_t end[17];    /* one more than the last code of this length, left-aligned in 16 bits */
    int32_t offset[17]; /* add the code for its symbol's place */
    uint8_t symbols[256];
} pen__jpeg_long_codes;

typedef struct pen__jpeg_ac_table {
    pen__jpeg_ac_entry entries[1 << PEN__JPEG_AC_BITS];
    pen__jpeg_long_codes codes;
} pen__jpeg_ac_table;

typedef struct pen__jpeg_dc_table {
    pen__jpeg_dc_entry entries[1 << PEN__JPEG_DC_BITS];
    pen__jpeg_long_codes codes;
} pen__jpeg_dc_table;

/* The symbol that the top bits of `peek` (16 valid) start with, and its code's length
 * as symbol << 8 | length; negative if there is none. */
static inline int pen__jpeg_long_symbol(const pen__jpeg_long_codes *codes, int32_t peek)
{
    for (int n = 1; n <= 16; n++)
        if (peek < codes->end[n])
            return codes->symbols[(peek >> (16 - n)) + codes->offset[n]] << 8 | n;
    return -1;
}

/* --- the cache --- */

/* More than the three that an image uses, so that none in use is ever replaced. */
enum { PEN__JPEG_N_CACHED = 4 };

typedef struct pen__jpeg_cached {
    uint8_t key[16 + 256]; /* counts and symbols */
    int n_key;             /* 0: empty */
    uint64_t last_use;
} pen__jpeg_cached;

/* About 80 KiB.  One thread's; zeroed before first use. */
typedef struct pen__jpeg_tables {
    pen__jpeg_cached ac_keys[PEN__JPEG_N_CACHED], dc_keys[PEN__JPEG_N_CACHED];
    uint64_t n_uses;
    uint64_t n_built;
    pen__jpeg_ac_table ac[PEN__JPEG_N_CACHED];
    pen__jpeg_dc_table dc[PEN__JPEG_N_CACHED];
} pen__jpeg_tables;

/* The table for this code, from the cache or built into it; valid for the next two
 * calls of the same function at least.  NULL if the code is not a proper one. */
const pen__jpeg_ac_table *pen__jpeg_ac_table_for(pen__jpeg_tables *tables, pen__jpeg_code code);
const pen__jpeg_dc_table *pen__jpeg_dc_table_for(pen__jpeg_tables *tables, pen__jpeg_code code);

/* For other tables of the same codes (jpeg_lane_tables.c, jpeg_count.c).  Whether a code can be
 * decoded at all, its numbers, and the slot among PEN__JPEG_N_CACHED that holds it, or the oldest
 * one, now to be filled. */
bool pen__jpeg_is_proper(pen__jpeg_code code, bool is_dc);
bool pen__jpeg_set_long_codes(pen__jpeg_long_codes *codes, pen__jpeg_code code);
int pen__jpeg_find_slot(pen__jpeg_cached *slots, uint64_t *n_uses, pen__jpeg_code code,
                        bool *is_new);

#endif
