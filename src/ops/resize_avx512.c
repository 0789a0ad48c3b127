/* resize_avx512.c - the passes of a resize where the processor can multiply and add four bytes at
 * once (VNNI) and put any 64 bytes in any order (VBMI).
 *
 * A weight has 23 bits and a sign; as three signed digits of eight bits,
 *
 *     weight = d2 * 2^16 + d1 * 2^8 + d0,
 *
 * it makes three sums of bytes by bytes, each exact modulo 2^32 as in resize_avx2.c, but
 * for four taps an instruction instead of two, and pixels need no widening.
 *
 * Across.  A vector has 16 lanes of four bytes, and a lane sums up one value of an output:
 * 5 RGB pixels or 16 grey ones make a group.  The bytes that a group's first four taps look
 * at lie close together, in one 64-byte window of the row or a few; a permutation puts each
 * where its lane is.  The next four taps are in the same order, so many bytes further.
 * Packed form, for each group:
 *
 *     uint8 { where in the windows each lane's four bytes are [64] }
 *     for taps in fours: int8 { d0[16][4], d1[16][4], d2[16][4] }
 *
 * with the windows' beginning in packed_start.  Groups at the right end start further
 * left, so that no window ends behind PEN__RESIZE_SLACK.  Where the windows would be
 * too many, or the row is shorter than they are, resize_avx2.c does it: n_windows is 0.
 *
 * Down.  64 bytes of four rows are interleaved, so that lanes hold the four taps of an
 * output.  Packed form, for taps in fours: int8 { d0[4], d1[4], d2[4] }.
 */
#include "ops/resize_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET      "avx2,avx512f,avx512bw,avx512vl,avx512vnni,avx512vbmi"
#define SIMD        __attribute__((target(TARGET)))
#define SIMD_INLINE static inline __attribute__((target(TARGET), always_inline))

#define ALL_64 (~(__mmask64)0)

/* MAX_FEW: fours of taps whose bytes all stay in registers. */
enum { LANES = 16, WINDOW = 64, MAX_WINDOWS = 4, MAX_FEW = 3 };

static int32_t fours_of(const pen__taps *taps)
{
    return (taps->widest + 3) / 4;
}

/* The weights of four taps of output i from t on, zero outside its taps, digit by digit:
 * int8 { d0[4], d1[4], d2[4], zeros }.  With 128 added to each digit, bytes are digits. */
SIMD_INLINE __m128i digits_of_four(const pen__taps *taps, int32_t i, int32_t t)
{
    const __m128i middle = _mm_set1_epi32(0x808080);
    const __m128i by_digit = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, -1, -1, -1, -1);
    int32_t n_before = t < 0 ? -t : 0, n_left = taps->used[i] - t;
    unsigned wanted = n_before >= 4 || n_left <= 0 ? 0 : 0xFU << n_before;
    if (n_left < 4)
        wanted &= n_left > 0 ? (1U << n_left) - 1 : 0;
    const int32_t *weight = taps->weight + (ptrdiff_t)i * taps->stride + t;
    __m128i four = _mm_maskz_loadu_epi32((__mmask8)wanted, weight);
    return _mm_shuffle_epi8(_mm_xor_si128(_mm_add_epi32(four, middle), middle), by_digit);
}

/* ---- packing for the horizontal pass -------------------------------------- */

static int32_t outputs_a_group(int ch)
{
    return LANES / ch;
}

static size_t group_bytes(int32_t n_fours)
{
    return 64 * (1 + 3 * (size_t)n_fours);
}

/* Outputs at the right end start further left, so that their last taps are in the row. */
static int32_t start_of(const pen__taps *taps, int32_t i)
{
    int32_t n_taps = 4 * fours_of(taps);
    int32_t furthest = taps->extent > n_taps ? taps->extent - n_taps : 0;
    return taps->start[i] < furthest ? taps->start[i] : furthest;
}

typedef struct range {
    int32_t lowest, highest;
} range;

/* Where the outputs of a group start.  Not always in order: zeros at the front of an output's
 * weights are dropped, and one that starts on a zero may start behind its right neighbour. */
static range starts_of_group(const pen__taps *taps, int32_t first, int32_t per_group)
{
    int32_t end = first + per_group < taps->count ? first + per_group : taps->count;
    range r = {start_of(taps, first), start_of(taps, first)};
    for (int32_t i = first + 1; i < end; i++) {
        int32_t start = start_of(taps, i);
        r.lowest = start < r.lowest ? start : r.lowest;
        r.highest = start > r.highest ? start : r.highest;
    }
    return r;
}

/* Windows that the widest group looks at, 0 if they do not fit. */
static int32_t count_windows(const pen__taps *taps, int ch)
{
    int32_t per_group = outputs_a_group(ch), n_fours = fours_of(taps), n_windows = 1;
    if (taps->stride > PEN__TAPS_MAX_GROUPED)
        return 0;
    for (int32_t first = 0; first < taps->count; first += per_group) {
        range starts = starts_of_group(taps, first, per_group);
        int32_t n_bytes = (starts.highest - starts.lowest + 4) * ch;
        int32_t n = (n_bytes + WINDOW - 1) / WINDOW;
        n_windows = n > n_windows ? n : n_windows;
    }
    int32_t reach = n_windows * WINDOW + 4 * ch * (n_fours - 1);
    bool fits = reach <= taps->extent * ch + PEN__RESIZE_SLACK;
    return fits && n_windows <= MAX_WINDOWS ? n_windows : 0;
}

/* Outputs from `first` on, with windows from byte `base` of the row on.  An output has a lane
 * for each channel. */
SIMD static void pack_group(const pen__taps *taps, int32_t first, int32_t base, int ch,
                            uint8_t *out)
{
    const __m128i bytes_of_four =
        ch == 3 ? _mm_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 0, 0, 0, 0)
                : _mm_setr_epi8(0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __mmask8 lanes = ch == 3 ? 7 : 1;
    int32_t n_fours = fours_of(taps), per_group = outputs_a_group(ch);
    int32_t n = taps->count - first < per_group ? taps->count - first : per_group;
    memset(out, 0, group_bytes(n_fours));
    for (int32_t i = 0; i < n; i++) {
        int32_t start = start_of(taps, first + i), offset = taps->start[first + i] - start;
        uint8_t *lane = out + 4 * i * ch;
        __m128i from = _mm_set1_epi8((char)(start * ch - base));
        _mm_mask_storeu_epi32(lane, lanes, _mm_add_epi8(from, bytes_of_four));
        for (int32_t f = 0; f < n_fours; f++) {
            __m128i digits = digits_of_four(taps, first + i, 4 * f - offset);
            _mm_mask_storeu_epi32(lane += WINDOW, lanes, _mm_shuffle_epi32(digits, 0x00));
            _mm_mask_storeu_epi32(lane += WINDOW, lanes, _mm_shuffle_epi32(digits, 0x55));
            _mm_mask_storeu_epi32(lane += WINDOW, lanes, _mm_shuffle_epi32(digits, 0xAA));
        }
    }
}

static void prepare_horizontal_avx512(pen__taps *taps, int ch)
{
    taps->n_windows = count_windows(taps, ch);
    if (taps->n_windows == 0) {
        pen__resize_kernels_avx2.prepare_horizontal(taps, ch);
        return;
    }
    int32_t n_fours = fours_of(taps), per_group = outputs_a_group(ch);
    int32_t reach = taps->n_windows * WINDOW + 4 * ch * (n_fours - 1);
    int32_t furthest = taps->extent * ch + PEN__RESIZE_SLACK - reach;
    uint8_t *out = taps->packed;
    for (int32_t g = 0; g * per_group < taps->count; g++, out += group_bytes(n_fours)) {
        int32_t base = starts_of_group(taps, g * per_group, per_group).lowest * ch;
        taps->packed_start[g] = base < furthest ? base : furthest;
        pack_group(taps, g * per_group, taps->packed_start[g], ch, out);
    }
}

/* ---- sums ------------------------------------------------------------------ */

/* Of three digits: sums, a lane each, or the weights of four taps. */
typedef struct sums {
    __m512i digit[3];
} sums, weights;

SIMD_INLINE sums sums_start(void)
{
    const __m512i zero = _mm512_setzero_si512();
    return (sums){{_mm512_set1_epi32(PEN__TAPS_HALF), zero, zero}};
}

SIMD_INLINE void sums_add(sums *s, __m512i px, const weights *w)
{
    for (int digit = 0; digit < 3; digit++)
        s->digit[digit] = _mm512_dpbusd_epi32(s->digit[digit], px, w->digit[digit]);
}

SIMD_INLINE __m512i sums_join(const sums *s)
{
    __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(s->digit[2], 8), s->digit[1]);
    __m512i all = _mm512_add_epi32(_mm512_slli_epi32(upper, 8), s->digit[0]);
    return _mm512_srai_epi32(all, PEN__TAPS_BITS);
}

/* The same where all bytes are at hand: digit by digit, each sum beginning with what is left of
 * the one before. */
SIMD_INLINE __m512i sum_in_turn(const __m512i px[MAX_FEW], const weights w[MAX_FEW],
                                const int32_t n_fours)
{
    __m512i sum = _mm512_set1_epi32(PEN__TAPS_HALF);
    for (int digit = 0; digit < 3; digit++) {
        for (int32_t f = 0; f < n_fours; f++)
            sum = _mm512_dpbusd_epi32(sum, px[f], w[f].digit[digit]);
        sum = _mm512_srai_epi32(sum, digit < 2 ? 8 : PEN__TAPS_BITS - 16);
    }
    return sum;
}

/* Four vectors to bytes; of each four lanes, those of all four stand together. */
SIMD_INLINE __m512i pack_bytes(const __m512i out[4])
{
    return _mm512_packus_epi16(_mm512_packs_epi32(out[0], out[1]),
                               _mm512_packs_epi32(out[2], out[3]));
}

/* ---- horizontal: four rows at once ------------------------------------------- */

/* Where a group's bytes are. */
typedef struct places {
    __m512i where;
    __mmask64 in_window[MAX_WINDOWS];
} places;

SIMD_INLINE places places_of(const uint8_t *packed, const int32_t n_windows)
{
    places p = {.where = _mm512_load_si512(packed)};
    __m512i window = _mm512_and_si512(p.where, _mm512_set1_epi8((char)0xC0));
    for (int32_t w = 1; w < n_windows; w++)
        p.in_window[w] = _mm512_cmpeq_epi8_mask(window, _mm512_set1_epi8((char)(WINDOW * w)));
    return p;
}

/* The bytes of each lane: `where` says in which window in its top bits, and at which
 * byte in the six that the permutation looks at. */
SIMD_INLINE __m512i gather(const uint8_t *windows, const places *p, const int32_t n_windows)
{
    __m512i px = _mm512_permutexvar_epi8(p->where, _mm512_loadu_si512(windows));
    for (int32_t w = 1; w < n_windows; w++)
        px = _mm512_mask_permutexvar_epi8(px, p->in_window[w], p->where,
                                          _mm512_loadu_si512(windows + WINDOW * w));
    return px;
}

/* A group's outputs of four rows of few taps. */
SIMD_INLINE void few_fours(const uint8_t *const src[4], size_t at, int ch, const uint8_t *packed,
                           const int32_t n_fours, const int32_t n_windows, __m512i out[4])
{
    const places p = places_of(packed, n_windows);
    __m512i px[MAX_FEW];
    weights w[MAX_FEW];
    for (int32_t f = 0; f < n_fours; f++)
        for (int digit = 0; digit < 3; digit++)
            w[f].digit[digit] = _mm512_load_si512(packed += WINDOW);
    for (int k = 0; k < 4; k++) {
        for (int32_t f = 0; f < n_fours; f++)
            px[f] = gather(src[k] + at + (size_t)(4 * ch * f), &p, n_windows);
        out[k] = sum_in_turn(px, w, n_fours);
    }
}

/* The same with any number of taps: the digits' sums side by side. */
SIMD_INLINE void many_fours(const uint8_t *const src[4], size_t at, int ch, const uint8_t *packed,
                            int32_t n_fours, const int32_t n_windows, __m512i out[4])
{
    const places p = places_of(packed, n_windows);
    sums s[4];
    for (int k = 0; k < 4; k++)
        s[k] = sums_start();
    for (int32_t f = 0; f < n_fours; f++, at += (size_t)(4 * ch)) {
        weights w;
        for (int digit = 0; digit < 3; digit++)
            w.digit[digit] = _mm512_load_si512(packed += WINDOW);
        for (int k = 0; k < 4; k++)
            sums_add(&s[k], gather(src[k] + at, &p, n_windows), &w);
    }
    for (int k = 0; k < 4; k++)
        out[k] = sums_join(&s[k]);
}

/* Bytes of four rows to where they belong: all lanes of each, or the first n. */
SIMD_INLINE void store_rows(const __m512i out[4], uint8_t *const dst[4], size_t to, int32_t n)
{
    const __m512i by_row = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i px = _mm512_permutexvar_epi32(by_row, pack_bytes(out));
    const __m128i row[4] = {_mm512_castsi512_si128(px), _mm512_extracti32x4_epi32(px, 1),
                            _mm512_extracti32x4_epi32(px, 2), _mm512_extracti32x4_epi32(px, 3)};
    for (int k = 0; k < 4; k++) {
        if (n >= LANES)
            _mm_storeu_si128((void *)(dst[k] + to), row[k]);
        else
            _mm_mask_storeu_epi8(dst[k] + to, (__mmask16)((1 << n) - 1), row[k]);
    }
}

/* n_few, n_windows: constants where it matters.  n_few is 0 if taps are many. */
SIMD_INLINE void four_rows(const pen__taps *taps, const uint8_t *const src[4],
                           uint8_t *const dst[4], const int ch, const int32_t n_few,
                           const int32_t n_windows)
{
    int32_t n_fours = fours_of(taps), per_group = outputs_a_group(ch);
    const uint8_t *packed = taps->packed;
    for (int32_t x = 0, g = 0; x < taps->count; x += per_group, g++) {
        __m512i out[4];
        if (n_few > 0)
            few_fours(src, (size_t)taps->packed_start[g], ch, packed, n_few, n_windows, out);
        else
            many_fours(src, (size_t)taps->packed_start[g], ch, packed, n_fours, n_windows, out);
        /* a 16th byte behind five RGB pixels is the next group's, and written there again */
        store_rows(out, dst, (size_t)(x * ch), (taps->count - x) * ch);
        packed += group_bytes(n_fours);
    }
}

SIMD_INLINE void four_rows_by_width(const pen__taps *taps, const uint8_t *const src[4],
                                    uint8_t *const dst[4], const int ch)
{
    int32_t n_fours = fours_of(taps), n_windows = taps->n_windows;
    if (n_fours == 1 && n_windows == 1)
        four_rows(taps, src, dst, ch, 1, 1);
    else if (n_fours == 2 && n_windows == 1)
        four_rows(taps, src, dst, ch, 2, 1);
    else if (n_fours == 2 && n_windows == 2)
        four_rows(taps, src, dst, ch, 2, 2);
    else if (n_fours == 3 && n_windows == 2)
        four_rows(taps, src, dst, ch, 3, 2);
    else
        four_rows(taps, src, dst, ch, 0, n_windows);
}

SIMD static void four_rows_rgb(const pen__taps *taps, const uint8_t *const src[4],
                               uint8_t *const dst[4])
{
    four_rows_by_width(taps, src, dst, 3);
}

SIMD static void four_rows_grey(const pen__taps *taps, const uint8_t *const src[4],
                                uint8_t *const dst[4])
{
    four_rows_by_width(taps, src, dst, 1);
}

static void horizontal_avx512(const pen__taps *taps, const uint8_t *src, size_t src_stride,
                              int32_t n_rows, int ch, uint8_t *dst, size_t dst_stride)
{
    if (taps->n_windows == 0) {
        pen__resize_kernels_avx2.horizontal(taps, src, src_stride, n_rows, ch, dst, dst_stride);
        return;
    }
    for (int32_t y = 0; y < n_rows; y += 4) {
        const uint8_t *from[4];
        uint8_t *to[4];
        for (int32_t k = 0; k < 4; k++) { /* past the end, the last row is done again */
            size_t row = (size_t)(y + k < n_rows ? y + k : n_rows - 1);
            from[k] = src + row * src_stride;
            to[k] = dst + row * dst_stride;
        }
        if (ch == 3)
            four_rows_rgb(taps, from, to);
        else
            four_rows_grey(taps, from, to);
    }
}

/* ---- vertical ------------------------------------------------------------------ */

SIMD static void prepare_vertical_avx512(pen__taps *taps)
{
    int32_t n_fours = fours_of(taps);
    int8_t *out = taps->packed;
    for (int32_t i = 0; i < taps->count; i++)
        for (int32_t f = 0; f < n_fours; f++, out += 12)
            _mm_mask_storeu_epi32(out, 7, digits_of_four(taps, i, 4 * f));
}

/* Bytes of four rows, to four vectors of lanes that hold one byte of each. */
SIMD_INLINE void interleave(const __m512i row[4], __m512i px[4])
{
    __m512i low01 = _mm512_unpacklo_epi8(row[0], row[1]);
    __m512i high01 = _mm512_unpackhi_epi8(row[0], row[1]);
    __m512i low23 = _mm512_unpacklo_epi8(row[2], row[3]);
    __m512i high23 = _mm512_unpackhi_epi8(row[2], row[3]);
    px[0] = _mm512_unpacklo_epi16(low01, low23);
    px[1] = _mm512_unpackhi_epi16(low01, low23);
    px[2] = _mm512_unpacklo_epi16(high01, high23);
    px[3] = _mm512_unpackhi_epi16(high01, high23);
}

/* What an output row is made of.  Rows past the last tap have no weight: the last stands for
 * them. */
typedef struct blend {
    const uint8_t *src;
    size_t stride;
    int32_t n_taps;
    const int8_t *packed;
} blend;

SIMD_INLINE const uint8_t *blend_row(const blend *b, int32_t t)
{
    return b->src + (size_t)(t < b->n_taps ? t : b->n_taps - 1) * b->stride;
}

/* The digits of the weights of tap 4 f and the three after it. */
SIMD_INLINE weights blend_weights(const blend *b, int32_t f)
{
    weights w;
    for (int digit = 0; digit < 3; digit++) {
        int32_t four;
        memcpy(&four, b->packed + 12 * f + 4 * digit, sizeof four);
        w.digit[digit] = _mm512_set1_epi32(four);
    }
    return w;
}

/* Up to 64 bytes of an output row of few taps, from byte x on. */
SIMD_INLINE void few_rows_64(const uint8_t *const rows[4 * MAX_FEW], const weights w[MAX_FEW],
                             const int32_t n_fours, size_t x, __mmask64 which, uint8_t *dst)
{
    __m512i row[4], px[4], by_four[4][MAX_FEW], out[4];
    for (int32_t f = 0; f < n_fours; f++) {
        for (int k = 0; k < 4; k++)
            row[k] = _mm512_maskz_loadu_epi8(which, rows[4 * f + k] + x);
        interleave(row, px);
        for (int k = 0; k < 4; k++)
            by_four[k][f] = px[k];
    }
    for (int k = 0; k < 4; k++)
        out[k] = sum_in_turn(by_four[k], w, n_fours);
    _mm512_mask_storeu_epi8(dst + x, which, pack_bytes(out));
}

SIMD_INLINE void few_rows(const blend *b, size_t n_bytes, uint8_t *dst, const int32_t n_fours)
{
    const uint8_t *rows[4 * MAX_FEW];
    weights w[MAX_FEW];
    for (int32_t f = 0; f < n_fours; f++) {
        w[f] = blend_weights(b, f);
        for (int32_t k = 0; k < 4; k++)
            rows[4 * f + k] = blend_row(b, 4 * f + k);
    }
    size_t x = 0;
    for (; x + 64 <= n_bytes; x += 64)
        few_rows_64(rows, w, n_fours, x, ALL_64, dst);
    if (x < n_bytes)
        few_rows_64(rows, w, n_fours, x, ALL_64 >> (64 - (n_bytes - x)), dst);
}

/* The same with any number of taps. */
SIMD_INLINE void many_rows_64(const blend *b, size_t x, __mmask64 which, uint8_t *dst)
{
    sums s[4];
    for (int k = 0; k < 4; k++)
        s[k] = sums_start();
    for (int32_t f = 0; 4 * f < b->n_taps; f++) {
        __m512i row[4], px[4];
        for (int32_t k = 0; k < 4; k++)
            row[k] = _mm512_maskz_loadu_epi8(which, blend_row(b, 4 * f + k) + x);
        interleave(row, px);
        const weights w = blend_weights(b, f);
        for (int k = 0; k < 4; k++)
            sums_add(&s[k], px[k], &w);
    }
    __m512i out[4];
    for (int k = 0; k < 4; k++)
        out[k] = sums_join(&s[k]);
    _mm512_mask_storeu_epi8(dst + x, which, pack_bytes(out));
}

SIMD static void vertical_avx512(const pen__taps *taps, int32_t i, const uint8_t *src,
                                 size_t src_stride, size_t n_bytes, uint8_t *dst)
{
    const blend b = {src, src_stride, taps->used[i],
                     (const int8_t *)taps->packed + (size_t)i * (size_t)fours_of(taps) * 12};
    size_t x = 0;
    if (b.n_taps <= 4) {
        few_rows(&b, n_bytes, dst, 1);
    } else if (b.n_taps <= 8) {
        few_rows(&b, n_bytes, dst, 2);
    } else {
        for (; x + 64 <= n_bytes; x += 64)
            many_rows_64(&b, x, ALL_64, dst);
        if (x < n_bytes)
            many_rows_64(&b, x, ALL_64 >> (64 - (n_bytes - x)), dst);
    }
}

const pen__resize_kernels pen__resize_kernels_avx512 = {
    prepare_horizontal_avx512, prepare_vertical_avx512, horizontal_avx512, vertical_avx512};
#else
typedef int pen__resize_avx512_is_empty;
#endif
