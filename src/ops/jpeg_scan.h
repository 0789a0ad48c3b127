/* jpeg_scan.h - the entropy-coded part of an ordinary JPEG file, MCU by MCU.
 *
 * Anything irregular in the data - a code that does not exist, a run past the last
 * coefficient, a marker or the end of the file where data should be - makes a call
 * return false, and the scan is of no further use.  Whether such a file is an
 * error, and what its pixels are, is libjpeg's to say.
 *
 * Safe on any input: reads nothing past the source, writes nothing past the
 * caller's blocks and the chunk.
 */
#ifndef PEN_OPS_JPEG_SCAN_H
#define PEN_OPS_JPEG_SCAN_H

#include "ops/jpeg_huffman.h"

enum {
    PEN__JPEG_MAX_BLOCKS = 6,   /* of an MCU: four luma, two chroma */
    PEN__JPEG_BLOCK_SLACK = 64, /* coefficients, for look-ups that run on after a block's last */
    /* A coefficient takes at most 16 bits of code and 15 of value, in bytes: */
    PEN__JPEG_MAX_MCU_BYTES = PEN__JPEG_MAX_BLOCKS * 64 * 31 / 8,
    PEN__JPEG_CHUNK_BYTES = 16 << 10,
    /* room behind the data: an MCU that runs out of them reads zeros, and refills are
     * eight bytes */
    PEN__JPEG_CHUNK_SLACK = PEN__JPEG_MAX_MCU_BYTES + 64,
};

/* Where an MCU's bits begin, and what came before as far as it matters.  Decoding can
 * start at any MCU whose mark is known. */
typedef struct pen__jpeg_mark {
    size_t at;  /* offset of the byte in the file */
    int n_bits; /* of that byte that are taken already */
    int32_t dc[PEN__JPEG_MAX_COMPONENTS];
} pen__jpeg_mark;

/* Bits come from the chunk, in which the file's bytes lie without their stuffing.
 * The top `n_bits` of `bits` are next; what is below them is either zero or
 * already right. */
typedef struct pen__jpeg_bits {
    uint64_t bits;
    int n_bits;
    const uint8_t *next; /* in the chunk */
} pen__jpeg_bits;

typedef struct pen__jpeg_scan {
    pen__jpeg_bits in;
    const uint8_t *safe; /* with in.next up to here a whole MCU is in the chunk */
    int32_t dc[PEN__JPEG_MAX_COMPONENTS];
    int n_blocks;
    uint8_t component_of[PEN__JPEG_MAX_BLOCKS];
    const pen__jpeg_dc_table *dc_tables[PEN__JPEG_MAX_COMPONENTS];
    const pen__jpeg_ac_table *ac_tables[PEN__JPEG_MAX_COMPONENTS];
    int restart_interval, mcus_to_restart, next_restart;
    const uint8_t *src;
    size_t len, at; /* the file, and where unstuffing goes on */
    uint8_t *chunk, *end;
    size_t chunk_bytes;    /* to be filled next time */
    const uint8_t *anchor; /* in the chunk: a place whose offset in the file is known, */
    size_t anchor_at;      /* and the offset */
    bool is_at_marker;     /* the chunk's data are the last before src[at], a marker */
    bool has_bmi2;
    bool is_zigzag; /* the order in which coefficients are wanted; natural unless set */
} pen__jpeg_scan;

/* Make ready for seeking.  `chunk` has room for PEN__JPEG_CHUNK_BYTES +
 * PEN__JPEG_CHUNK_SLACK bytes.  False when a code is not a proper one. */
bool pen__jpeg_scan_start(pen__jpeg_scan *scan, const pen__jpeg_frame *frame,
                          pen__jpeg_tables *tables, const uint8_t *src, size_t len, uint8_t *chunk);

/* The first MCU's. */
static inline pen__jpeg_mark pen__jpeg_first_mark(const pen__jpeg_frame *frame)
{
    return (pen__jpeg_mark){.at = frame->scan_at};
}

/* Go on at `mark`, the beginning of MCU number n_mcus; about n_bytes of the file will be
 * wanted from there.  A wrong mark gives wrong coefficients or false, and no harm. */
bool pen__jpeg_scan_seek(pen__jpeg_scan *scan, const pen__jpeg_mark *mark, int64_t n_mcus,
                         size_t n_bytes);
/* Where the next MCU begins, before the restart marker if one is due.  False if the data have
 * run out. */
bool pen__jpeg_scan_tell(pen__jpeg_scan *scan, pen__jpeg_mark *mark);

/* The next MCU: scan->n_blocks blocks of 64 coefficients, and for each the number of coefficients,
 * in zigzag order, up to which any may differ from zero (1: only the DC).  PEN__JPEG_BLOCK_SLACK
 * coefficients behind the blocks are spoilt. */
bool pen__jpeg_scan_mcu(pen__jpeg_scan *scan, int16_t *blocks, uint8_t *n_coefs);

/* Pass over MCUs. */
bool pen__jpeg_scan_skip(pen__jpeg_scan *scan, int32_t n_mcus);

/* jpeg_pair.c: the next MCUs of two scans of the same file at once, which takes less time than
 * one after the other.  NULL instead of blocks passes over them. */
bool pen__jpeg_scan_pair(pen__jpeg_scan *const scans[2], int32_t n_mcus, int16_t *const blocks[2],
                         uint8_t *const n_coefs[2]);

/* What comes before each MCU, for jpeg_pair.c: restart markers, and the chunk. */
bool pen__jpeg_scan_prepare(pen__jpeg_scan *scan);

/* Whether the data so far held all the bits that were read. */
bool pen__jpeg_scan_is_sound(const pen__jpeg_scan *scan);

/* Whether the scan ends here, in less than a byte of padding, and the file with it:
 * the end marker follows. */
bool pen__jpeg_scan_is_at_end(pen__jpeg_scan *scan);

#endif
