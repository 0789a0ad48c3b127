/* jpeg_count.c - look-up tables for jpeg_count.h, and its scalar twin.
 *
 * An entry is 32 bits:
 *
 *   from bit 0: all bits that are taken
 *            8: a DC's difference, 16 bits
 *           24: how far the position moves, and one more and END where the block ends
 *
 * As in jpeg_lane_tables.c, a sound symbol never moves the position further than 64, and what does
 * is looked at again: pen__jpeg_count_symbol.  Entries can be added: those of several symbols
 * are the sum of each one's.
 */
#include "ops/jpeg_count.h"

#include <string.h>

#include "ops/jpeg_bits.h"

enum { BITS = PEN__JPEG_COUNT_BITS, N = PEN__JPEG_COUNT_ENTRIES, MAX_MOVE = 64, END = 128 };

#define FIELD(x, at) ((uint32_t)(x) << (at))

static uint32_t ac_entry(int symbol, int n)
{
    int size = symbol & 15, run = symbol >> 4;
    if (symbol != 0 && size == 0 && run != 15)
        return 0;
    return FIELD(n + size, 0) | FIELD(symbol == 0 ? END + 1 : run + 1, 24);
}

/* `value` is the difference's bits. */
static uint32_t dc_entry(int size, int n, int value)
{
    int difference = size > 0 && value < 1 << (size - 1) ? value - (1 << size) + 1 : value;
    return FIELD(n + size, 0) | FIELD((uint16_t)difference, 8) | FIELD(1, 24);
}

uint32_t pen__jpeg_count_symbol(const pen__jpeg_count_table *table, uint64_t bits, bool is_dc)
{
    int found = pen__jpeg_long_symbol(&table->codes, (int)(bits >> 48));
    int symbol = found >> 8, n = found & 31;
    if (found < 0 || (is_dc && symbol > PEN__JPEG_COUNT_MAX_DC))
        return 0;
    return is_dc ? dc_entry(symbol, n, (int)(bits << n >> 1 >> (63 - symbol)))
                 : ac_entry(symbol, n);
}

static uint32_t odd(bool is_dc)
{
    return FIELD(is_dc ? 65 : 64, 24);
}

/* The first entry of those for r bits, r from 0 on. */
static uint32_t *of_bits(uint32_t *all, int r)
{
    return all + (1 << r);
}

static int fill(uint32_t *entries, int at, int n, uint32_t e)
{
    for (int i = 0; i < n; i++)
        entries[at + i] = e;
    return at + n;
}

/* A symbol and what may follow it in `rest` bits, for each of its values. */
static int fill_chains(uint32_t *entries, int at, int n_values, uint32_t e, const uint32_t *rests,
                       int n_rests)
{
    for (int i = 0; i < n_rests; i++) {
        uint32_t sum = e + rests[i];
        bool fits = (sum & 255) <= PEN__JPEG_COUNT_MAX_TAKEN && (sum >> 24 & 127) <= MAX_MOVE;
        entries[at + i] = fits ? sum : e;
    }
    for (int value = 1; value < n_values; value++)
        memcpy(entries + at + value * n_rests, entries + at, (size_t)n_rests * sizeof *entries);
    return at + n_values * n_rests;
}

/* What all numbers of r bits start with, by what those of fewer bits do.  Where they are
 * not a whole code, nothing: whoever has more bits finds it. */
static void set_chains(uint32_t *all, int r, pen__jpeg_code code)
{
    uint32_t *entries = of_bits(all, r);
    const uint8_t *symbol = code.counts + 16;
    int at = 0;
    for (int n = 1; n <= r; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, symbol++) {
            uint32_t e = ac_entry(*symbol, n);
            int size = *symbol & 15, rest = r - n - size;
            if (n + size > PEN__JPEG_COUNT_MAX_TAKEN)
                e = 0;
            if (e == 0 || *symbol == 0 || rest < 0)
                at = fill(entries, at, 1 << (r - n), e);
            else
                at = fill_chains(entries, at, 1 << size, e, of_bits(all, rest), 1 << rest);
        }
    fill(entries, at, (1 << r) - at, 0);
}

static void build_ac(pen__jpeg_count_table *table, pen__jpeg_code code)
{
    uint32_t all[2 * N];
    for (int r = 0; r <= BITS; r++)
        set_chains(all, r, code);
    const uint32_t *from = of_bits(all, BITS);
    for (int i = 0; i < N; i++)
        table->entries[i] = from[i] ? from[i] : odd(false);
}

static void build_dc(pen__jpeg_count_table *table, pen__jpeg_code code)
{
    const uint8_t *size = code.counts + 16;
    int at = 0;
    for (int n = 1; n <= BITS; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, size++) {
            int rest = BITS - n - *size;
            if (rest < 0)
                at = fill(table->entries, at, 1 << (BITS - n), odd(true));
            for (int value = 0; rest >= 0 && value < 1 << *size; value++)
                at = fill(table->entries, at, 1 << rest, dc_entry(*size, n, value));
        }
    fill(table->entries, at, N - at, odd(true));
}

static const pen__jpeg_count_table *table_for(pen__jpeg_count_tables *tables, pen__jpeg_code code,
                                              bool is_dc)
{
    bool is_new;
    pen__jpeg_cached *keys = is_dc ? tables->dc_keys : tables->ac_keys;
    int slot = pen__jpeg_find_slot(keys, &tables->n_uses, code, &is_new);
    pen__jpeg_count_table *table = is_dc ? &tables->dc[slot] : &tables->ac[slot];
    if (!is_new)
        return table;
    if (!pen__jpeg_is_proper(code, is_dc) || !pen__jpeg_set_long_codes(&table->codes, code)) {
        keys[slot].n_key = 0;
        return NULL;
    }
    if (is_dc)
        build_dc(table, code);
    else
        build_ac(table, code);
    return table;
}

bool pen__jpeg_count_codes_set(pen__jpeg_count_codes *codes, const pen__jpeg_frame *frame,
                               pen__jpeg_count_tables *tables)
{
    codes->n_blocks = 0;
    codes->idle = tables->idle;
    tables->idle[0] = 0; /* takes no bits, stays where it is */
    for (int c = 0; c < frame->n_components; c++) {
        const pen__jpeg_component *comp = &frame->components[c];
        const pen__jpeg_count_table *dc = table_for(tables, comp->dc, true);
        const pen__jpeg_count_table *ac = table_for(tables, comp->ac, false);
        if (!dc || !ac)
            return false;
        for (int n = c == 0 ? frame->mcu_h * frame->mcu_v : 1; n > 0; n--) {
            codes->dc[codes->n_blocks] = dc;
            codes->ac[codes->n_blocks] = ac;
            codes->component_of[codes->n_blocks++] = (uint8_t)c;
        }
    }
    return true;
}

/* --- the ends of a piece --- */

void pen__jpeg_count_begin(pen__jpeg_count_job *job, int i)
{
    pen__jpeg_count_piece *piece = &job->pieces[i];
    piece->n = 1;
    pen__jpeg_count_list(job, i)[0] = piece->first_bit;
    job->next_met[i] = 0;
    if (i > 0)
        job->next_met[i - 1] = 0;
}

/* If one MCU begins where one of the next piece's does, so do all that follow: hence the
 * last one tells. */
static bool meets_next(pen__jpeg_count_job *job, int i)
{
    if (i + 1 >= job->n_pieces)
        return false;
    const pen__jpeg_count_mcu *next = pen__jpeg_count_list(job, i + 1);
    uint32_t bit = pen__jpeg_count_place(pen__jpeg_count_list(job, i)[job->pieces[i].n - 1]);
    uint32_t *at = &job->next_met[i], n = job->pieces[i + 1].n;
    while (*at < n && pen__jpeg_count_place(next[*at]) < bit)
        ++*at;
    return *at < n && pen__jpeg_count_place(next[*at]) == bit;
}

bool pen__jpeg_count_is_done(pen__jpeg_count_job *job, int i, uint32_t bit)
{
    return bit >= job->pieces[i].end || meets_next(job, i);
}

bool pen__jpeg_count_anew(pen__jpeg_count_job *job, int i, uint32_t bit)
{
    enum { IN_STEP = 32, PADDING = 16 };
    pen__jpeg_count_piece *piece = &job->pieces[i];
    if (i == 0 || piece->n > IN_STEP || bit + PADDING >= piece->end ||
        ++piece->n_errors > PEN__JPEG_COUNT_MAX_ERRORS)
        return false;
    piece->first_bit = bit + 1;
    pen__jpeg_count_begin(job, i);
    return true;
}

/* --- one piece after the other --- */

/* The next block from *bit on: its DC's difference; false if it is not sound. */
static bool count_block(const pen__jpeg_count_job *job, int b, uint32_t *bit, uint16_t *difference)
{
    for (uint32_t k = 0; k < MAX_MOVE;) {
        const pen__jpeg_count_table *table = k == 0 ? job->codes->dc[b] : job->codes->ac[b];
        uint64_t bits = load_be64(job->bytes + *bit / 8) << *bit % 8;
        uint32_t e = table->entries[bits >> (64 - BITS)], after = k + (e >> 24);
        if ((after & 127) > MAX_MOVE) {
            e = pen__jpeg_count_symbol(table, bits, k == 0);
            after = k + (e >> 24);
            if (e == 0 || (after & 127) > MAX_MOVE)
                return false;
        }
        if (k == 0)
            *difference = (uint16_t)(e >> 8);
        *bit += e & 255;
        if (*bit >= 8 * (job->n_bytes + PEN__JPEG_COUNT_ZEROS / 2))
            return false;
        k = after;
    }
    return true;
}

/* False if it ends because it is not sound. */
static bool count_piece(pen__jpeg_count_job *job, int i)
{
    pen__jpeg_count_piece *piece = &job->pieces[i];
    pen__jpeg_count_mcu *list = pen__jpeg_count_list(job, i);
    uint32_t bit = piece->first_bit;
    uint16_t dc[PEN__JPEG_MAX_COMPONENTS] = {0};
    for (;;) {
        bool is_sound = true;
        for (int b = 0; b < job->codes->n_blocks && is_sound; b++) {
            uint16_t difference = 0, *sum = &dc[job->codes->component_of[b]];
            is_sound = count_block(job, b, &bit, &difference);
            *sum = (uint16_t)(*sum + difference);
        }
        if (is_sound) {
            uint64_t sums = (uint64_t)dc[0] << 16 | (uint64_t)dc[1] << 32 | (uint64_t)dc[2] << 48;
            list[piece->n++] = pen__jpeg_count_pack(bit, sums);
            if (piece->n == job->room ||
                (bit >= piece->goal && pen__jpeg_count_is_done(job, i, bit)))
                return true;
        } else {
            if (!pen__jpeg_count_anew(job, i, bit))
                return false;
            bit = piece->first_bit;
            memset(dc, 0, sizeof dc);
        }
    }
}

bool pen__jpeg_count_c(pen__jpeg_count_job *job)
{
    bool is_sound = true;
    for (int i = job->n_pieces - 1; i >= 0; i--) {
        pen__jpeg_count_begin(job, i);
        is_sound = count_piece(job, i);
    }
    return is_sound;
}
