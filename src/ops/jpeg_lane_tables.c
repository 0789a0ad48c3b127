/* jpeg_lane_tables.c - look-up tables for jpeg_lanes.h.
 *
 * An entry is 64 bits, in fields that one instruction each takes out of a vector:
 *
 *   from bit 0: all bits that are taken; 0: not to be found here
 *            8: bits of the first symbol's code
 *           16: 64 less the bits of its value, which is always taken from the data
 *           24: zeros before its coefficient
 *           32: 16 times the distance from it to the second one; 128: ODD
 *           40: the second coefficient, 0 where there is none
 *           56: how far the position moves, and one more and END where the block ends
 *
 * A sound symbol never moves the position further than 64 from the block's beginning, and an END no
 * further than that either, because of the one more.  What does is looked at again with more care
 * (jpeg_lanes_avx512.c).  An ODD entry is one that always does: its symbol's code has
 * more than 11 bits, or code and value have more than are sure to be there.
 */
#include "ops/jpeg_lanes.h"

#include <string.h>

enum {
    BITS = PEN__JPEG_LANE_BITS,
    N_SHORT = PEN__JPEG_LANE_SHORT,
    MAX_RUN = 2, /* before a second coefficient: the two are stored as one word of four */
    NEVER = 255, /* bits, more than there ever is room for */
};

#define FIELD(x, at) ((uint64_t)(x) << (at))
static const uint64_t odd = FIELD(128, 32), end = FIELD(128, 56), one_step = FIELD(1, 56);

/* From AC positions 1 to 63, and from DCs' 0, this leads past 64 and stays below 128. */
static uint64_t odd_move(bool is_dc)
{
    return odd | FIELD(is_dc ? 65 : 64, 56);
}

/* The entry of a symbol whose code has n bits. */
static uint64_t entry_of(int symbol, int n, bool is_dc)
{
    int size = symbol & 15, run = is_dc ? 0 : symbol >> 4;
    bool ends = !is_dc && symbol == 0;
    if (!ends && !is_dc && size == 0 && run != 15) /* without a meaning in sequential files */
        return odd_move(is_dc);
    uint64_t e = FIELD(n + size, 0) | FIELD(n, 8) | FIELD(64 - size, 16) | FIELD(run, 24);
    if (n <= BITS && n + size > PEN__JPEG_LANE_MAX_TAKEN)
        return e | odd_move(is_dc);
    return e | (ends ? end | one_step : FIELD(run + 1, 56));
}

static int extend(int bits, int size)
{
    return bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

/* What a symbol adds to the entry of the one before; `value` is its value's bits. */
static uint64_t second_of(int symbol, int n, int value)
{
    int size = symbol & 15, run = symbol >> 4;
    if (symbol == 0)
        return FIELD(n, 0) | end | one_step;
    if (size == 0 || run > MAX_RUN)
        return NEVER;
    return FIELD(n + size, 0) | FIELD(16 * (run + 1), 32) |
           FIELD((uint16_t)extend(value, size), 40) | FIELD(run + 1, 56);
}

static int fill(uint64_t *entries, int at, int n, uint64_t e)
{
    for (int i = 0; i < n; i++)
        entries[at + i] = e;
    return at + n;
}

/* What all numbers of 11 bits start with.  Returns how many start with a code. */
static int set_firsts(uint64_t *entries, pen__jpeg_code code, bool is_dc)
{
    int at = 0;
    const uint8_t *symbol = code.counts + 16;
    for (int n = 1; n <= BITS; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, symbol++)
            at = fill(entries, at, 1 << (BITS - n), entry_of(*symbol, n, is_dc));
    fill(entries, at, N_SHORT - at, odd_move(is_dc));
    return at;
}

static void set_seconds(uint64_t seconds[N_SHORT], pen__jpeg_code code)
{
    int at = 0;
    const uint8_t *symbol = code.counts + 16;
    for (int n = 1; n <= BITS; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, symbol++) {
            int rest = BITS - n - (*symbol & 15);
            if (rest < 0)
                at = fill(seconds, at, 1 << (BITS - n), NEVER);
            for (int value = 0; rest >= 0 && value < 1 << (*symbol & 15); value++)
                at = fill(seconds, at, 1 << rest, second_of(*symbol, n, value));
        }
    fill(seconds, at, N_SHORT - at, NEVER);
}

/* Where the first symbol leaves room, the one behind it comes with it. */
static void add_seconds(uint64_t *entries, int n_entries, pen__jpeg_code code)
{
    uint64_t seconds[N_SHORT];
    set_seconds(seconds, code);
    for (int at = 0; at < n_entries;) {
        uint64_t first = entries[at];
        int n = (int)(first & 255), room = BITS - n;
        if (room <= 0 || n == 0 || first & (odd | end)) {
            at++;
            continue;
        }
        for (int rest = 0; rest < 1 << room; rest++, at++) {
            uint64_t second = seconds[rest << n];
            entries[at] = first + ((int)(second & 255) <= room ? second : 0);
        }
    }
}

/* Codes over 11 bits: entries for the next 16.  False if there are too many. */
static bool set_longs(pen__jpeg_lane_table *table, pen__jpeg_code code, int n_short, bool is_dc)
{
    const uint8_t *symbol = code.counts + 16;
    int at = 0;
    for (int n = 1; n <= 16; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, symbol++) {
            if (n <= BITS)
                continue;
            if (at + (1 << (16 - n)) > PEN__JPEG_LANE_LONG)
                return false;
            at = fill(table->entries + N_SHORT, at, 1 << (16 - n), entry_of(*symbol, n, is_dc));
        }
    table->first_long = n_short << (16 - BITS);
    table->n_long = at;
    table->entries[N_SHORT + at] = odd_move(is_dc);
    return true;
}

/* Codes may not leave their lengths: pen__jpeg_is_proper has been asked. */
static bool build(pen__jpeg_lane_table *table, pen__jpeg_code code, bool is_dc)
{
    if (!pen__jpeg_is_proper(code, is_dc))
        return false;
    int n_short = set_firsts(table->entries, code, is_dc);
    if (!is_dc)
        add_seconds(table->entries, n_short, code);
    return set_longs(table, code, n_short, is_dc);
}

static const pen__jpeg_lane_table *table_for(pen__jpeg_lane_tables *tables, pen__jpeg_code code,
                                             bool is_dc)
{
    bool is_new;
    pen__jpeg_cached *keys = is_dc ? tables->dc_keys : tables->ac_keys;
    int slot = pen__jpeg_find_slot(keys, &tables->n_uses, code, &is_new);
    pen__jpeg_lane_table *table = is_dc ? &tables->dc[slot] : &tables->ac[slot];
    if (is_new && !build(table, code, is_dc)) {
        keys[slot].n_key = 0;
        return NULL;
    }
    return table;
}

bool pen__jpeg_lane_codes_set(pen__jpeg_lane_codes *codes, const pen__jpeg_frame *frame,
                              pen__jpeg_lane_tables *tables)
{
    codes->n_blocks = 0;
    codes->idle = tables->idle;
    tables->idle[0] = FIELD(64, 16); /* takes no bits, stays where it is */
    for (int c = 0; c < frame->n_components; c++) {
        const pen__jpeg_component *comp = &frame->components[c];
        const pen__jpeg_lane_table *dc = table_for(tables, comp->dc, true);
        const pen__jpeg_lane_table *ac = table_for(tables, comp->ac, false);
        if (!dc || !ac)
            return false;
        for (int n = c == 0 ? frame->mcu_h * frame->mcu_v : 1; n > 0; n--) {
            codes->dc[codes->n_blocks] = dc;
            codes->ac[codes->n_blocks++] = ac;
        }
    }
    return true;
}
