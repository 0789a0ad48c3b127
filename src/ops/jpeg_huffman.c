/* jpeg_huffman.c - building the look-up tables and finding them again.
 *
 * An AC table is made in two steps: for every 11 bits the one symbol they start with
 * (`single`), then pairs of those, the second looked up with the bits that the
 * first leaves.
 */
#include "ops/jpeg_huffman.h"

#include <string.h>

enum { BITS = PEN__JPEG_AC_BITS, N_ENTRIES = 1 << BITS };

/* What some bits start with. */
typedef struct single {
    uint8_t bits;      /* of code and value; 0: the symbol is not complete, or not usable */
    uint8_t pair_bits; /* the same for a symbol that may come second, else more than fit */
    uint8_t symbol, code_bits;
    int16_t value;
} single;

/* Canonical codes from the counts.  No code may leave its length or consist of ones
 * only, which is also what libjpeg asks. */
bool pen__jpeg_set_long_codes(pen__jpeg_long_codes *codes, pen__jpeg_code code)
{
    int32_t next = 0, n_so_far = 0;
    memset(codes->symbols, 0, sizeof codes->symbols);
    memcpy(codes->symbols, code.counts + 16, (size_t)code.n_symbols);
    codes->end[0] = codes->offset[0] = 0;
    for (int n = 1; n <= 16; n++) {
        int count = code.counts[n - 1];
        codes->offset[n] = n_so_far - next;
        next += count;
        n_so_far += count;
        if (count > 0 && next >= 1 << n)
            return false;
        codes->end[n] = next << (16 - n);
        next <<= 1;
    }
    return true;
}

/* The number that `size` bits stand for: the lower half are negatives. */
static int extend(int bits, int size)
{
    return bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

/* End of block, sixteen zeros, or a coefficient behind some zeros.  Symbols without
 * a meaning in sequential files are left to the slow way, which refuses them. */
static bool is_usable(int symbol)
{
    return (symbol & 15) != 0 || symbol == 0 || symbol == 0xF0;
}

/* What every number of 11 bits starts with, going through the codes in order.  The low half of
 * a symbol says how many bits of value follow its code. */
static void set_singles(single out[N_ENTRIES], pen__jpeg_code code)
{
    enum { NEVER = 255 };
    int at = 0;
    const uint8_t *symbol = code.counts + 16;
    for (int n = 1; n <= BITS; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, symbol++) {
            int size = *symbol & 15, rest = BITS - n - size, end = at + (1 << (BITS - n));
            bool is_complete = rest >= 0 && is_usable(*symbol);
            single s = {is_complete ? (uint8_t)(n + size) : 0, NEVER, *symbol, (uint8_t)n, 0};
            for (int value = 0; at < end; value++) {
                if (is_complete) {
                    s.value = (int16_t)(size > 0 ? extend(value, size) : 0);
                    s.pair_bits = s.value == (int8_t)s.value ? s.bits : NEVER;
                }
                int stop = is_complete ? at + (1 << rest) : end;
                while (at < stop)
                    out[at++] = s;
            }
        }
    while (at < N_ENTRIES)
        out[at++] = (single){.pair_bits = NEVER};
}

static pen__jpeg_ac_entry entry_of_one(const single *s)
{
    pen__jpeg_ac_entry e = {.first_value = s->symbol, .first_bits = s->code_bits};
    if (s->bits == 0)
        return e;
    e.bits = e.first_bits = s->bits;
    e.first_value = s->value;
    if (s->symbol == 0) {
        e.advance = PEN__JPEG_EOB;
        return e;
    }
    e.first = s->symbol >> 4;
    e.second = e.advance = (uint8_t)(e.first + 1);
    return e;
}

static void add_second(pen__jpeg_ac_entry *e, const single *s)
{
    e->bits = (uint8_t)(e->bits + s->bits);
    if (s->symbol == 0) {
        e->advance = (uint8_t)(e->advance + PEN__JPEG_EOB);
        return;
    }
    e->second = (uint8_t)(e->second + (s->symbol >> 4));
    e->second_value = (int8_t)s->value;
    e->advance = (uint8_t)(e->second + 1);
}

/* Numbers with the same first symbol follow each other and differ in what comes second. */
static bool build_ac(pen__jpeg_ac_table *table, pen__jpeg_code code)
{
    single singles[N_ENTRIES];
    if (!pen__jpeg_set_long_codes(&table->codes, code))
        return false;
    set_singles(singles, code);
    for (int i = 0; i < N_ENTRIES;) {
        const pen__jpeg_ac_entry first = entry_of_one(&singles[i]);
        bool has_room = first.bits > 0 && first.advance < PEN__JPEG_EOB;
        int room = has_room ? BITS - first.bits : 0, end = i + (1 << room);
        for (int rest = 0; i < end; i++, rest++) {
            const single *second = &singles[rest << first.bits];
            table->entries[i] = first;
            if (second->pair_bits <= room)
                add_second(&table->entries[i], second);
        }
    }
    return true;
}

/* DC symbols are sizes; libjpeg refuses those over 15. */
static bool has_sizes_only(pen__jpeg_code code)
{
    for (int i = 0; i < code.n_symbols; i++)
        if (code.counts[16 + i] > 15)
            return false;
    return true;
}

bool pen__jpeg_is_proper(pen__jpeg_code code, bool is_dc)
{
    pen__jpeg_long_codes codes;
    return pen__jpeg_set_long_codes(&codes, code) && (!is_dc || has_sizes_only(code));
}

static bool build_dc(pen__jpeg_dc_table *table, pen__jpeg_code code)
{
    enum { DC_BITS = PEN__JPEG_DC_BITS, N = 1 << DC_BITS };
    if (!has_sizes_only(code) || !pen__jpeg_set_long_codes(&table->codes, code))
        return false;
    int at = 0;
    const uint8_t *size = code.counts + 16;
    for (int n = 1; n <= DC_BITS; n++)
        for (int i = 0; i < code.counts[n - 1]; i++, size++)
            for (int end = at + (1 << (DC_BITS - n)); at < end; at++)
                table->entries[at] = (pen__jpeg_dc_entry){(uint8_t)(n + *size), (uint8_t)n, *size};
    memset(table->entries + at, 0, (size_t)(N - at) * sizeof table->entries[0]);
    return true;
}

/* The slot that holds this code, or the one to replace; *is_new tells which. */
int pen__jpeg_find_slot(pen__jpeg_cached *slots, uint64_t *n_uses, pen__jpeg_code code,
                        bool *is_new)
{
    int n_key = 16 + code.n_symbols, slot = -1, oldest = 0;
    for (int i = 0; i < PEN__JPEG_N_CACHED && slot < 0; i++) {
        if (slots[i].n_key == n_key && memcmp(slots[i].key, code.counts, (size_t)n_key) == 0)
            slot = i;
        if (slots[i].last_use < slots[oldest].last_use)
            oldest = i;
    }
    *is_new = slot < 0;
    if (*is_new) {
        slot = oldest;
        slots[slot].n_key = n_key;
        memcpy(slots[slot].key, code.counts, (size_t)n_key);
    }
    slots[slot].last_use = ++*n_uses;
    return slot;
}

const pen__jpeg_ac_table *pen__jpeg_ac_table_for(pen__jpeg_tables *tables, pen__jpeg_code code)
{
    bool is_new;
    int slot = pen__jpeg_find_slot(tables->ac_keys, &tables->n_uses, code, &is_new);
    tables->n_built += is_new;
    if (is_new && !build_ac(&tables->ac[slot], code)) {
        tables->ac_keys[slot].n_key = 0;
        return NULL;
    }
    return &tables->ac[slot];
}

const pen__jpeg_dc_table *pen__jpeg_dc_table_for(pen__jpeg_tables *tables, pen__jpeg_code code)
{
    bool is_new;
    int slot = pen__jpeg_find_slot(tables->dc_keys, &tables->n_uses, code, &is_new);
    tables->n_built += is_new;
    if (is_new && !build_dc(&tables->dc[slot], code)) {
        tables->dc_keys[slot].n_key = 0;
        return NULL;
    }
    return &tables->dc[slot];
}
