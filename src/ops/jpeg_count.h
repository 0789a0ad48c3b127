/* jpeg_count.h - where MCUs begin, found at many places of a scan at once.
 *
 * Without marks it is not known where in a file an MCU begins.  But Huffman codes fall into step by
 * themselves: who begins to parse at any bit, as if an MCU began there, arrives after some hundred
 * bits at the beginning of a true one, and from then on all is true.  So a scan is cut into
 * pieces at guessed places, and all are parsed at the same time, each until it meets an MCU that
 * the next piece has begun at, too.  The first piece begins truly; hence, piece by piece, all from
 * where two of them met is proven (jpeg_guess.c).
 *
 * No coefficients are kept, and one look-up takes as many symbols as fit into its bits; only
 * the differences of DCs are summed up.
 *
 * Safe on any input: reads nothing but the caller's bytes, writes nothing but the lists of MCUs,
 * and takes a time bounded by the number of bits.
 */
#ifndef PEN_OPS_JPEG_COUNT_H
#define PEN_OPS_JPEG_COUNT_H

#include "ops/jpeg_huffman.h"

enum {
    PEN__JPEG_COUNT_BITS = 12,
    PEN__JPEG_COUNT_ENTRIES = 1 << PEN__JPEG_COUNT_BITS,
    PEN__JPEG_COUNT_MAX_TAKEN = 18,  /* bits, by a look-up: three after a refill to 56 */
    PEN__JPEG_COUNT_ZEROS = 64,      /* bytes behind the data */
    PEN__JPEG_COUNT_LANES = 16,      /* pieces at most */
    PEN__JPEG_COUNT_MAX_ERRORS = 24, /* of a piece that began at a guess */
    PEN__JPEG_COUNT_MAX_DC = 11,     /* bits of a difference: no encoder writes more */
};

/* What the next 12 bits mean: see jpeg_count.c. */
typedef struct pen__jpeg_count_table {
    _Alignas(64) uint32_t entries[PEN__JPEG_COUNT_ENTRIES];
    pen__jpeg_long_codes codes;
} pen__jpeg_count_table;

/* About 140 KiB.  One thread's; zeroed before first use. */
typedef struct pen__jpeg_count_tables {
    pen__jpeg_cached dc_keys[PEN__JPEG_N_CACHED], ac_keys[PEN__JPEG_N_CACHED];
    uint64_t n_uses;
    _Alignas(64) uint32_t idle[16]; /* the entry of a lane that has nothing to do */
    pen__jpeg_count_table dc[PEN__JPEG_N_CACHED], ac[PEN__JPEG_N_CACHED];
} pen__jpeg_count_tables;

/* The tables of an image's blocks, in the order of an MCU. */
typedef struct pen__jpeg_count_codes {
    const pen__jpeg_count_table *dc[6], *ac[6];
    uint8_t component_of[6];
    const uint32_t *idle;
    int n_blocks;
} pen__jpeg_count_codes;

/* False if a code is not a proper one. */
bool pen__jpeg_count_codes_set(pen__jpeg_count_codes *codes, const pen__jpeg_frame *frame,
                               pen__jpeg_count_tables *tables);

/* One symbol, as an entry, of any length, from the next bits, of which 31 count.  0: there is none,
 * or none that an encoder writes. */
uint32_t pen__jpeg_count_symbol(const pen__jpeg_count_table *table, uint64_t bits, bool is_dc);

/* Where an MCU begins, in the lower 22 bits, and the sums of all differences of DCs since the piece
 * began, 14 bits for each component: enough to tell what one MCU adds, four times 11 bits. */
typedef uint64_t pen__jpeg_count_mcu;
enum { PEN__JPEG_COUNT_PLACE_BITS = 22, PEN__JPEG_COUNT_SUM_BITS = 14 };

static inline uint32_t pen__jpeg_count_place(pen__jpeg_count_mcu mcu)
{
    return mcu & ((1U << PEN__JPEG_COUNT_PLACE_BITS) - 1);
}

/* `sums` has 16 bits for each component, from bit 16 on. */
static inline pen__jpeg_count_mcu pen__jpeg_count_pack(uint32_t place, uint64_t sums)
{
    enum { REST = 16 - PEN__JPEG_COUNT_SUM_BITS };
    return place | (sums & 0x3FFF0000) << (PEN__JPEG_COUNT_PLACE_BITS - 16) |
           (sums & 0x3FFF00000000) << (PEN__JPEG_COUNT_PLACE_BITS - 16 - REST) |
           (sums & 0x3FFF000000000000) << (PEN__JPEG_COUNT_PLACE_BITS - 16 - 2 * REST);
}

/* What the MCU between two neighbours of a list adds to component c's DC. */
static inline int32_t pen__jpeg_count_difference(const pen__jpeg_count_mcu *list, int c)
{
    int shift = PEN__JPEG_COUNT_PLACE_BITS + PEN__JPEG_COUNT_SUM_BITS * c;
    uint32_t difference = (uint32_t)(list[1] >> shift) - (uint32_t)(list[0] >> shift);
    return (int32_t)(difference << (32 - PEN__JPEG_COUNT_SUM_BITS)) >>
           (32 - PEN__JPEG_COUNT_SUM_BITS);
}

typedef struct pen__jpeg_count_piece {
    uint32_t first_bit;
    uint32_t goal; /* from here on it ends where it meets the next piece, */
    uint32_t end;  /* and from here on anyway */
    uint32_t n;    /* MCUs found, whose list begins at the place of the first bit */
    int n_errors;  /* how often it had to begin anew */
} pen__jpeg_count_piece;

typedef struct pen__jpeg_count_job {
    const pen__jpeg_count_codes *codes;
    const uint8_t *bytes; /* without stuffing, PEN__JPEG_COUNT_ZEROS zeros behind */
    uint32_t n_bytes;
    int n_pieces; /* at least one; the first begins truly */
    pen__jpeg_count_piece pieces[PEN__JPEG_COUNT_LANES];
    uint32_t next_met[PEN__JPEG_COUNT_LANES]; /* how far the list of the next was compared */
    pen__jpeg_count_mcu *mcus;                /* `room` for each piece, at least two */
    uint32_t room;
} pen__jpeg_count_job;

static inline pen__jpeg_count_mcu *pen__jpeg_count_list(const pen__jpeg_count_job *job, int piece)
{
    return job->mcus + (size_t)piece * job->room;
}

/* Parse all pieces.  False if the first one, which is a true one, is not sound. */
bool pen__jpeg_count_c(pen__jpeg_count_job *job);
#if defined(__x86_64__)
bool pen__jpeg_count_avx512(pen__jpeg_count_job *job);
#endif

/* The one for lanes, where pen__jpeg_stretches_are_possible; elsewhere it is no quicker than a
 * scan, and of no use. */
static inline bool pen__jpeg_count(pen__jpeg_count_job *job)
{
#if defined(__x86_64__)
    return pen__jpeg_count_avx512(job);
#else
    return pen__jpeg_count_c(job);
#endif
}

/* For these two.  Piece i begins; */
void pen__jpeg_count_begin(pen__jpeg_count_job *job, int i);
/* it is at `bit`, at or behind its goal, and all MCUs before that are in its list: whether that is
 * all; */
bool pen__jpeg_count_is_done(pen__jpeg_count_job *job, int i, uint32_t bit);
/* there is no sound symbol at `bit`: false if it ends here, else it begins anew behind. */
bool pen__jpeg_count_anew(pen__jpeg_count_job *job, int i, uint32_t bit);

#endif
