/* jpeg_count_avx512.c - pieces of a scan parsed in sixteen lanes, two groups of eight.
 *
 * The same as jpeg_lanes_avx512.c, with less to do: nothing is stored but where MCUs begin.
 * A piece that begins at a wrong place soon finds codes that there are not, or too many
 * coefficients; then it begins anew at the next bit, some times.
 *
 * Every look-up of a lane with a piece moves it on, and before each refill it is asked which lanes
 * have come far enough.  Behind the data are zeros, for a lane that runs past the end before it is
 * asked; refills stay within them.
 */
#include "ops/jpeg_count.h"

#if defined(__x86_64__)
#include <string.h>

#include "ops/jpeg_gather_avx512.h"

enum {
    N_GROUPS = PEN__JPEG_COUNT_LANES / LANES,
    IDLE = 7,      /* the block of a lane without one */
    MAX_PAST = 40, /* bytes from the last one of the data: refills go no further */
    MAX_LOG = 48,
    N_STEPS = 3,       /* from refill to refill */
    NEXT_TRY = 32 * 8, /* bits, until a piece is asked again whether it has met the next */
};
_Static_assert(MAX_PAST + 8 <= PEN__JPEG_COUNT_ZEROS, "refills stay within the zeros");

typedef struct group {
    __m512i bits;  /* the next ones, on top */
    __m512i at;    /* which number the first of them has */
    __m512i next;  /* offset of the next byte to be read */
    __m512i k;     /* zigzag position */
    __m512i route; /* of the block, see route_of() */
    __m512i table; /* where the entries for the next look-up begin */
    __m512i dc;    /* sums */
    __m512i goal;
    __mmask8 is_dc; /* lanes whose next symbol is a DC */
} group;

/* Where MCUs ended in some lanes, and the sums there.  Kept for a while, because writing down
 * eight words is quicker than asking which of them count. */
typedef struct log_entry {
    _Alignas(64) uint64_t at[LANES], dc[LANES];
    uint8_t lanes;
} log_entry;

typedef struct numbers {
    __m512i next_part, n7f, nff, n63, n64, dc_part, last;
    __m512i swap, move, ac_part, next_dc_part, dc_shift, next; /* for shuffling bytes */
    __m512i routes;
} numbers;

typedef struct work {
    numbers c;
    pen__jpeg_count_job *job;
    int n_busy[N_GROUPS], n_log[N_GROUPS];
    bool is_flawed; /* where it is true */
    uint64_t routes[LANES];
    log_entry logs[N_GROUPS][MAX_LOG + N_STEPS + 1];
} work;

/* Of a table's first entry, counted from the idle one. */
static uint64_t place_of(const pen__jpeg_count_codes *codes, const pen__jpeg_count_table *table)
{
    ptrdiff_t n_bytes = (const uint8_t *)table - (const uint8_t *)codes->idle;
    return (uint64_t)n_bytes / sizeof *codes->idle;
}

/* --- one look-up --- */

/* To at least 56 bits. */
AVX512_INLINE void refill(group *g, const numbers *c, const uint8_t *bytes)
{
    __m512i more = _mm512_shuffle_epi8(gather_bytes(bytes, g->next), c->swap);
    __m512i n_bits = _mm512_sub_epi64(_mm512_slli_epi64(g->next, 3), g->at);
    g->bits = _mm512_or_si512(g->bits, _mm512_srlv_epi64(more, n_bits));
    __m512i n = _mm512_srli_epi64(_mm512_sub_epi64(c->n63, n_bits), 3);
    g->next = _mm512_min_epu64(_mm512_add_epi64(g->next, n), c->last);
}

AVX512_INLINE __m512i look_up(const group *g, const uint32_t *entries)
{
    __m512i peek = _mm512_srli_epi64(g->bits, 64 - PEN__JPEG_COUNT_BITS);
    return gather_entries(entries, sizeof(uint32_t), _mm512_add_epi64(peek, g->table));
}

AVX512_INLINE __m512i position_after(const group *g, const numbers *c, __m512i e)
{
    return _mm512_add_epi64(g->k, _mm512_shuffle_epi8(e, c->move));
}

AVX512_INLINE __mmask8 is_too_far(const numbers *c, __m512i after)
{
    return _mm512_cmpgt_epu64_mask(_mm512_and_si512(after, c->n7f), c->n64);
}

/* On by entries e to position `after`. */
AVX512_INLINE void advance(group *g, work *w, int first_piece, __m512i e, __m512i after)
{
    const numbers *c = &w->c;
    int *n_log = &w->n_log[first_piece / LANES];
    /* 0 where it is no DC */
    __m512i difference = _mm512_sllv_epi64(_mm512_and_si512(e, c->dc_part),
                                           _mm512_shuffle_epi8(g->route, c->dc_shift));
    g->dc = _mm512_add_epi16(g->dc, difference);
    __m512i n = _mm512_and_si512(e, c->nff);
    g->bits = _mm512_sllv_epi64(g->bits, n);
    g->at = _mm512_add_epi64(g->at, n);
    __mmask8 ends = _mm512_cmpge_epu64_mask(after, c->n64);
    __mmask8 is_last = _mm512_mask_testn_epi64_mask(ends, g->route, c->next_part);
    g->k = _mm512_mask_mov_epi64(after, ends, _mm512_setzero_si512());
    /* which table comes next is what the next look-up waits for, and the route is not */
    g->table = _mm512_mask_mov_epi64(_mm512_shuffle_epi8(g->route, c->ac_part), ends,
                                     _mm512_shuffle_epi8(g->route, c->next_dc_part));
    g->route = _mm512_mask_permutexvar_epi64(g->route, ends, _mm512_shuffle_epi8(g->route, c->next),
                                             c->routes);
    g->is_dc = ends;
    log_entry *to = &w->logs[first_piece / LANES][*n_log];
    _mm512_store_si512(to->at, g->at);
    _mm512_store_si512(to->dc, g->dc);
    to->lanes = is_last;
    *n_log += is_last != 0;
}

/* --- what is unusual --- */

#define SET(v, lane, x) v = _mm512_mask_set1_epi64(v, (__mmask8)(1 << (lane)), (int64_t)(x))

/* A lane begins its piece, or has nothing to do: then it takes no bits for ever. */
AVX512 void begin_piece(group *g, work *w, int i, bool has_piece)
{
    int lane = i % LANES;
    uint64_t word = 0, route = w->routes[IDLE], goal = UINT64_MAX;
    uint32_t bit = 8 * w->job->n_bytes;
    if (has_piece) {
        bit = w->job->pieces[i].first_bit;
        goal = w->job->pieces[i].goal;
        memcpy(&word, w->job->bytes + bit / 8, sizeof word);
        word = __builtin_bswap64(word) << bit % 8;
        route = w->routes[0];
    }
    __mmask8 mask = (__mmask8)(1 << lane);
    g->is_dc = (__mmask8)(has_piece ? g->is_dc | mask : g->is_dc & ~mask);
    SET(g->bits, lane, word);
    SET(g->at, lane, bit);
    SET(g->next, lane, bit / 8 + 7);
    SET(g->k, lane, 0);
    SET(g->dc, lane, 0);
    SET(g->route, lane, route);
    SET(g->table, lane, has_piece ? place_of(w->job->codes, w->job->codes->dc[0]) : 0);
    SET(g->goal, lane, goal);
}

static void end_piece(group *g, work *w, int i, bool is_sound)
{
    w->is_flawed |= !is_sound && i == 0;
    w->n_busy[i / LANES]--;
    begin_piece(g, w, i, false);
}

/* From the log to the lists. */
static void read_log(work *w, int group_index)
{
    pen__jpeg_count_job *job = w->job;
    const log_entry *log = w->logs[group_index], *end = log + w->n_log[group_index];
    for (; log < end; log++)
        for (unsigned lanes = log->lanes; lanes; lanes &= lanes - 1) {
            int lane = __builtin_ctz(lanes), i = group_index * LANES + lane;
            pen__jpeg_count_piece *piece = &job->pieces[i];
            if (piece->n < job->room)
                pen__jpeg_count_list(job, i)[piece->n++] =
                    pen__jpeg_count_pack((uint32_t)log->at[lane], log->dc[lane]);
        }
    w->n_log[group_index] = 0;
}

/* One or more lanes have reached their goals, or the log is full. */
AVX512 void check_goals(group *g, work *w, int first_piece)
{
    _Alignas(64) uint64_t at[LANES], goals[LANES];
    _mm512_store_si512(at, g->at), _mm512_store_si512(goals, g->goal);
    for (int i = 0; i < N_GROUPS; i++)
        read_log(w, i);
    for (int lane = 0; lane < LANES; lane++) {
        int i = first_piece + lane;
        bool is_full = goals[lane] < UINT64_MAX && w->job->pieces[i].n == w->job->room;
        if (at[lane] < goals[lane] && !is_full)
            continue;
        if (is_full || pen__jpeg_count_is_done(w->job, i, (uint32_t)at[lane]))
            end_piece(g, w, i, true);
        else
            SET(g->goal, lane, at[lane] + NEXT_TRY);
    }
}

/* One symbol alone for each lane that goes too far: because a code is long, because code and value
 * are, because a later symbol belongs to the next block, or because there is none. */
AVX512 __m512i entries_with_care(__m512i bits, __m512i k, __m512i route, __m512i e, unsigned is_dc,
                                 unsigned far, const pen__jpeg_count_codes *codes, unsigned *bad)
{
    _Alignas(64) uint64_t words[LANES], routes[LANES], ks[LANES];
    _mm512_store_si512(words, bits), _mm512_store_si512(routes, route), _mm512_store_si512(ks, k);
    for (; far; far &= far - 1) {
        int lane = __builtin_ctz(far), next = (int)(routes[lane] >> 40);
        int b = next > 0 ? next - 1 : codes->n_blocks - 1;
        bool is_dc_here = is_dc >> lane & 1;
        uint32_t one = pen__jpeg_count_symbol(is_dc_here ? codes->dc[b] : codes->ac[b], words[lane],
                                              is_dc_here);
        if (one == 0 || ((ks[lane] + (one >> 24)) & 127) > 64) {
            *bad |= 1U << lane;
            one = codes->idle[0];
        }
        SET(e, lane, one);
    }
    return e;
}

/* These lanes had no sound symbol. */
AVX512 void begin_anew(group *g, work *w, int first_piece, unsigned lanes)
{
    _Alignas(64) uint64_t at[LANES];
    _mm512_store_si512(at, g->at);
    read_log(w, first_piece / LANES);
    for (; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes), i = first_piece + lane;
        if (pen__jpeg_count_anew(w->job, i, (uint32_t)at[lane]))
            begin_piece(g, w, i, true);
        else
            end_piece(g, w, i, false);
    }
}

/* --- the whole --- */

/* One look-up of eight lanes. */
AVX512_INLINE void step(group *g, work *w, const uint32_t *entries, int first_piece)
{
    const numbers *c = &w->c;
    __m512i e = look_up(g, entries), after = position_after(g, c, e);
    __mmask8 far = is_too_far(c, after);
    if (UNLIKELY(far)) {
        unsigned bad = 0;
        refill(g, c, w->job->bytes);
        e = entries_with_care(g->bits, g->k, g->route, e, g->is_dc, far, w->job->codes, &bad);
        advance(g, w, first_piece, e, position_after(g, c, e));
        if (UNLIKELY(bad)) {
            group copy = *g; /* whose address may be taken */
            begin_anew(&copy, w, first_piece, bad);
            *g = copy;
        }
        refill(g, c, w->job->bytes);
    } else {
        advance(g, w, first_piece, e, after);
    }
}

/* Before each refill.  False if there is no more to do for this group. */
AVX512_INLINE bool goes_on(group *g, work *w, int first_piece)
{
    __mmask8 reached = _mm512_cmpge_epu64_mask(g->at, g->goal);
    if (UNLIKELY(reached || w->n_log[first_piece / LANES] >= MAX_LOG)) {
        group copy = *g;
        check_goals(&copy, w, first_piece);
        *g = copy;
    }
    return w->n_busy[first_piece / LANES] > 0;
}

/* For shuffling: bytes i to i + n - 1 of each word. */
AVX512_INLINE __m512i field(int i, int n)
{
    char bytes[16];
    for (int k = 0; k < 16; k++)
        bytes[k] = (char)(k % 8 < n ? k / 8 * 8 + i + k % 8 : -128);
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)bytes));
}

/* Where the entries for ACs begin, from bit 16 those for the next block's DC, from bit 32 the place
 * of the DC's component in sums, and from bit 40 the next block's number. */
static uint64_t route_of(const pen__jpeg_count_codes *codes, int b)
{
    int next = b + 1 < codes->n_blocks ? b + 1 : 0;
    uint64_t ac = place_of(codes, codes->ac[b]), dc = place_of(codes, codes->dc[next]);
    uint64_t shift = 8 + 16 * (uint64_t)codes->component_of[b]; /* from bit 8 of an entry */
    return ac | dc << 16 | shift << 32 | (uint64_t)next << 40;
}

AVX512 void set_numbers(work *w)
{
    const pen__jpeg_count_codes *codes = w->job->codes;
    numbers *c = &w->c;
    c->next_part = all((int64_t)7 << 40), c->n7f = all(127), c->nff = all(0xFF),
    c->dc_part = all(0xFFFF00);
    c->n63 = all(63), c->n64 = all(64), c->last = all(w->job->n_bytes + MAX_PAST);
    c->swap =
        _mm512_broadcast_i32x4(_mm_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
    c->move = field(3, 1);
    c->ac_part = field(0, 2), c->next_dc_part = field(2, 2), c->dc_shift = field(4, 1);
    c->next = field(5, 1);
    memset(w->routes, 0, sizeof w->routes);
    for (int b = 0; b < codes->n_blocks; b++)
        w->routes[b] = route_of(codes, b);
    w->routes[IDLE] = (uint64_t)IDLE << 40;
    c->routes = _mm512_loadu_si512(w->routes);
}

AVX512 void begin_group(group *g, work *w, int first_piece)
{
    memset(g, 0, sizeof *g);
    w->n_busy[first_piece / LANES] = w->n_log[first_piece / LANES] = 0;
    for (int i = first_piece; i < first_piece + LANES; i++) {
        bool has_piece = i < w->job->n_pieces;
        if (has_piece)
            pen__jpeg_count_begin(w->job, i);
        w->n_busy[first_piece / LANES] += has_piece;
        begin_piece(g, w, i, has_piece);
    }
}

/* The next look-ups of one group alone. */
AVX512_INLINE bool go_on(group *g, work *w, const uint32_t *entries, int first_piece)
{
    refill(g, &w->c, w->job->bytes);
    for (int i = 0; i < N_STEPS; i++)
        step(g, w, entries, first_piece);
    return goes_on(g, w, first_piece) && !w->is_flawed;
}

TARGET bool pen__jpeg_count_avx512(pen__jpeg_count_job *job)
{
    const uint32_t *entries = job->codes->idle; /* and all others behind it */
    work w;
    w.job = job, w.is_flawed = false;
    set_numbers(&w);
    group a, b, copy;
    begin_group(&copy, &w, 0), a = copy;
    begin_group(&copy, &w, LANES), b = copy;
    bool has_a = w.n_busy[0] > 0, has_b = w.n_busy[1] > 0;
    while (has_a && has_b) {
        refill(&a, &w.c, job->bytes);
        refill(&b, &w.c, job->bytes);
        for (int i = 0; i < N_STEPS; i++) {
            step(&a, &w, entries, 0);
            step(&b, &w, entries, LANES);
        }
        has_a = goes_on(&a, &w, 0);
        has_b = goes_on(&b, &w, LANES);
        if (w.is_flawed)
            return false;
    }
    while (has_a)
        has_a = go_on(&a, &w, entries, 0);
    while (has_b)
        has_b = go_on(&b, &w, entries, LANES);
    return !w.is_flawed;
}
#endif
