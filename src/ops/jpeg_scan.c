/* jpeg_scan.c - bits to coefficients.
 *
 * Three layers: the chunk (bytes without stuffing, up to the next marker), the bits
 * (a 64-bit word, filled eight bytes at a time without asking), and the blocks.
 * No layer checks for the end of data inside an MCU: before each MCU the chunk is made
 * to hold as many bytes as one can take, or all that are left and zeros
 * behind; whether zeros were read is asked afterwards.
 *
 * Where a bit lies in the file is found by counting: every 0xFF in the chunk had a zero of
 * stuffing behind it.  An anchor remembers how far that count has come.
 *
 * Damage that libjpeg repairs or ignores must not pass here as sound.  So: a marker's
 * 0xFF is never part of fill bytes, a restart marker comes exactly where it is due with
 * less than a byte of padding before it, and data that end without a marker
 * are refused as soon as that is seen, because libjpeg might look at them, too.
 */
#include "ops/jpeg_scan.h"

#include <string.h>

#include "base/cpu.h"
#include "ops/jpeg_bits.h"
#include "ops/jpeg_unstuff.h"

/* --- the chunk --- */

/* Bits in the chunk that have not been read; negative if zeros behind them were. */
static int64_t bits_left(const pen__jpeg_scan *scan)
{
    return (scan->end - scan->in.next) * 8 + scan->in.n_bits;
}

/* Append bytes without their stuffing until the chunk is full or a marker comes. */
static bool append(pen__jpeg_scan *scan)
{
    const uint8_t *src = scan->src + scan->at;
    uint8_t *end = pen__jpeg_unstuff(scan->end, scan->chunk + scan->chunk_bytes, &src,
                                     scan->src + scan->len, &scan->is_at_marker);
    if (!end)
        return false;
    scan->at = (size_t)(src - scan->src);
    scan->end = end;
    memset(end, 0, PEN__JPEG_CHUNK_SLACK);
    return true;
}

/* Whole bytes that wait in the word go back to the chunk. */
static void put_back(pen__jpeg_bits *in)
{
    in->next -= in->n_bits >> 3;
    in->n_bits &= 7;
    in->bits &= ~(UINT64_MAX >> in->n_bits);
}

static void move_anchor(pen__jpeg_scan *scan, const uint8_t *to)
{
    scan->anchor_at += pen__jpeg_stuffed_bytes(scan->anchor, (size_t)(to - scan->anchor));
    scan->anchor = to;
}

/* Make the chunk hold one more MCU, or all that comes before the next marker. */
static bool fill_chunk(pen__jpeg_scan *scan)
{
    if (scan->is_at_marker)
        return bits_left(scan) >= 0;
    put_back(&scan->in);
    int n_begun = scan->in.n_bits > 0; /* a byte that is half read stays, for the anchor */
    const uint8_t *first = scan->in.next - n_begun;
    size_t n_left = (size_t)(scan->end - first);
    move_anchor(scan, first);
    memmove(scan->chunk, first, n_left);
    scan->anchor = scan->chunk;
    scan->in.next = scan->chunk + n_begun;
    scan->end = scan->chunk + n_left;
    if (!append(scan))
        return false;
    scan->chunk_bytes = PEN__JPEG_CHUNK_BYTES;
    /* at a marker every MCU comes here, to see that it does not overrun */
    scan->safe = scan->is_at_marker ? scan->chunk - 1 : scan->end - PEN__JPEG_MAX_MCU_BYTES - 8;
    return true;
}

/* The first chunk takes n_bytes, if there are so many. */
static bool begin_chunk(pen__jpeg_scan *scan, size_t at, size_t n_bytes)
{
    scan->at = scan->anchor_at = at;
    scan->in = (pen__jpeg_bits){0, 0, scan->chunk};
    scan->anchor = scan->end = scan->chunk;
    scan->chunk_bytes = n_bytes < PEN__JPEG_CHUNK_BYTES ? n_bytes : PEN__JPEG_CHUNK_BYTES;
    scan->is_at_marker = false;
    return fill_chunk(scan);
}

/* With `keep` false the blocks are parsed only. */
ALWAYS_INLINE bool read_mcu(pen__jpeg_scan *scan, bool keep, int16_t *blocks, uint8_t *n_coefs,
                            bool is_zigzag)
{
    pen__jpeg_bits in = scan->in; /* a copy, so that it lives in registers */
    bool is_bad = false;
    for (int b = 0; b < scan->n_blocks; b++) {
        int c = scan->component_of[b];
        int16_t *block = keep ? blocks + 64 * b : NULL;
        if (keep)
            clear_block(block);
        refill(&in);
        int32_t dc = scan->dc[c] + read_dc(&in, scan->dc_tables[c], &is_bad);
        int n = keep ? read_ac(&in, scan->ac_tables[c], block, is_zigzag)
                     : read_ac(&in, scan->ac_tables[c], NULL, false);
        is_bad |= n == 0 || dc != (int16_t)dc;
        if (is_bad)
            return false;
        scan->dc[c] = dc;
        if (keep) {
            block[0] = (int16_t)dc;
            n_coefs[b] = (uint8_t)n;
        }
    }
    scan->in = in;
    return true;
}

/* --- MCUs --- */

static bool pass_restart_marker(pen__jpeg_scan *scan)
{
    while (!scan->is_at_marker)
        if (bits_left(scan) >= 8 + 64 || !fill_chunk(scan))
            return false;
    int64_t n_left = bits_left(scan);
    if (n_left < 0 || n_left >= 8 || scan->src[scan->at + 1] != 0xD0 + scan->next_restart)
        return false;
    scan->next_restart = (scan->next_restart + 1) & 7;
    scan->mcus_to_restart = scan->restart_interval;
    memset(scan->dc, 0, sizeof scan->dc);
    return begin_chunk(scan, scan->at + 2, PEN__JPEG_CHUNK_BYTES);
}

bool pen__jpeg_scan_prepare(pen__jpeg_scan *scan)
{
    if (scan->restart_interval) {
        if (scan->mcus_to_restart == 0 && !pass_restart_marker(scan))
            return false;
        scan->mcus_to_restart--;
    }
    return scan->in.next <= scan->safe || fill_chunk(scan);
}

/* What comes before each MCU. */
ALWAYS_INLINE bool prepare(pen__jpeg_scan *scan)
{
    bool is_ready = scan->restart_interval == 0 && scan->in.next <= scan->safe;
    return is_ready || pen__jpeg_scan_prepare(scan);
}

ALWAYS_INLINE bool keep_mcu(pen__jpeg_scan *scan, int16_t *blocks, uint8_t *n_coefs)
{
    if (!prepare(scan))
        return false;
    return scan->is_zigzag ? read_mcu(scan, true, blocks, n_coefs, true)
                           : read_mcu(scan, true, blocks, n_coefs, false);
}

ALWAYS_INLINE bool skip_mcus(pen__jpeg_scan *scan, int32_t n_mcus)
{
    for (int32_t i = 0; i < n_mcus; i++)
        if (!prepare(scan) || !read_mcu(scan, false, NULL, NULL, false))
            return false;
    return true;
}

#if defined(__x86_64__)
/* The same with shifts that do not go through the flags. */
#define BMI2 __attribute__((target("bmi2")))
BMI2 static bool scan_mcu_bmi2(pen__jpeg_scan *scan, int16_t *blocks, uint8_t *n_coefs)
{
    return keep_mcu(scan, blocks, n_coefs);
}

BMI2 static bool scan_skip_bmi2(pen__jpeg_scan *scan, int32_t n_mcus)
{
    return skip_mcus(scan, n_mcus);
}
#endif

bool pen__jpeg_scan_mcu(pen__jpeg_scan *scan, int16_t *blocks, uint8_t *n_coefs)
{
#if defined(__x86_64__)
    if (scan->has_bmi2)
        return scan_mcu_bmi2(scan, blocks, n_coefs);
#endif
    return keep_mcu(scan, blocks, n_coefs);
}

bool pen__jpeg_scan_skip(pen__jpeg_scan *scan, int32_t n_mcus)
{
#if defined(__x86_64__)
    if (scan->has_bmi2)
        return scan_skip_bmi2(scan, n_mcus);
#endif
    return skip_mcus(scan, n_mcus);
}

bool pen__jpeg_scan_is_sound(const pen__jpeg_scan *scan)
{
    return bits_left(scan) >= 0;
}

bool pen__jpeg_scan_is_at_end(pen__jpeg_scan *scan)
{
    enum { M_EOI = 0xD9 };
    while (!scan->is_at_marker)
        if (bits_left(scan) >= 8 + 64 || !fill_chunk(scan))
            return false;
    int64_t n_left = bits_left(scan);
    return n_left >= 0 && n_left < 8 && scan->src[scan->at + 1] == M_EOI;
}

/* Restart markers before MCU number n, and MCUs up to the next one.  Where a marker is due
 * it has not been passed yet. */
static void set_restarts(pen__jpeg_scan *scan, int64_t n)
{
    int interval = scan->restart_interval;
    if (interval == 0)
        return;
    int64_t n_passed = n > 0 ? (n - 1) / interval : 0;
    scan->next_restart = (int)(n_passed & 7);
    scan->mcus_to_restart = (int)((n_passed + 1) * interval - n);
}

bool pen__jpeg_scan_seek(pen__jpeg_scan *scan, const pen__jpeg_mark *mark, int64_t n_mcus,
                         size_t n_bytes)
{
    set_restarts(scan, n_mcus);
    memcpy(scan->dc, mark->dc, sizeof scan->dc);
    if (mark->at >= scan->len ||
        !begin_chunk(scan, mark->at, n_bytes + PEN__JPEG_MAX_MCU_BYTES + 16))
        return false;
    refill(&scan->in);
    take(&scan->in, mark->n_bits & 7);
    return bits_left(scan) >= 0;
}

bool pen__jpeg_scan_tell(pen__jpeg_scan *scan, pen__jpeg_mark *mark)
{
    if (bits_left(scan) < 0)
        return false;
    move_anchor(scan, scan->in.next - (scan->in.n_bits + 7) / 8);
    mark->at = scan->anchor_at;
    mark->n_bits = -scan->in.n_bits & 7;
    memcpy(mark->dc, scan->dc, sizeof mark->dc);
    return true;
}

bool pen__jpeg_scan_start(pen__jpeg_scan *scan, const pen__jpeg_frame *frame,
                          pen__jpeg_tables *tables, const uint8_t *src, size_t len, uint8_t *chunk)
{
    *scan = (pen__jpeg_scan){.src = src,
                             .len = len,
                             .chunk = chunk,
                             .restart_interval = frame->restart_interval,
                             .has_bmi2 = (pen__cpu_flags() & PEN__CPU_AVX2) != 0};
    for (int c = 0; c < frame->n_components; c++) {
        int n = c == 0 ? frame->mcu_h * frame->mcu_v : 1;
        while (n-- > 0)
            scan->component_of[scan->n_blocks++] = (uint8_t)c;
        scan->dc_tables[c] = pen__jpeg_dc_table_for(tables, frame->components[c].dc);
        scan->ac_tables[c] = pen__jpeg_ac_table_for(tables, frame->components[c].ac);
        if (!scan->dc_tables[c] || !scan->ac_tables[c])
            return false;
    }
    return true;
}
