/* test_jpeg_huffman.c - look-up tables against codes read bit by bit; the cache. */
#include "testing.h"

#include "images.h"
#include "ops/jpeg_huffman.h"

typedef struct code_bytes {
    uint8_t bytes[16 + 256];
    pen__jpeg_code code;
} code_bytes;

/* A random proper code: lengths are dealt out as long as there is room. */
static void roll_code(uint64_t *dice, code_bytes *out, int n_kinds, bool is_dc)
{
    int n = 0, room = 1;
    memset(out, 0, sizeof *out);
    for (int length = 1; length <= 16; length++) {
        room *= 2;
        int most = length < 16 ? room / 2 : room - 1; /* all ones is no code */
        int count = most > 0 && n < n_kinds ? roll_between(dice, 0, most) : 0;
        count = count < n_kinds - n ? count : n_kinds - n;
        count = count < 255 ? count : 255;
        out->bytes[length - 1] = (uint8_t)count;
        n += count;
        room -= count;
    }
    for (int i = 0; i < n; i++)
        out->bytes[16 + i] = (uint8_t)(is_dc ? i % 12 : (int)(roll(dice) % 256));
    out->code = (pen__jpeg_code){out->bytes, n};
}

/* The slow and obvious way: symbol << 8 | length, or -1. */
static int symbol_of(const code_bytes *c, uint32_t peek16)
{
    int code = 0, at = 0;
    for (int length = 1; length <= 16; length++) {
        int count = c->bytes[length - 1], head = (int)(peek16 >> (16 - length));
        if (head >= code && head - code < count)
            return c->bytes[16 + at + head - code] << 8 | length;
        code = (code + count) << 1;
        at += count;
    }
    return -1;
}

static int value_of(uint32_t bits, int size)
{
    return (int)bits < 1 << (size - 1) ? (int)bits - (1 << size) + 1 : (int)bits;
}

/* Check one symbol of an entry: at bit `at` of the 11, filling from position k. */
static int check_symbol(const code_bytes *c, int index, int at, int *k, int place, int value)
{
    uint32_t peek16 = ((uint32_t)index << 21 << at) >> 16;
    int found = symbol_of(c, peek16), symbol = found >> 8, length = found & 255;
    assert_true(found >= 0);
    if (symbol == 0) {
        *k += PEN__JPEG_EOB;
        return length;
    }
    int run = symbol >> 4, size = symbol & 15;
    assert_true(size > 0 || run == 15);
    uint32_t bits = size ? (peek16 << length & 0xFFFF) >> (16 - size) : 0;
    assert_int_equal(place, *k + run);
    assert_int_equal(value, size ? value_of(bits, size) : 0);
    *k += run + 1;
    return length + size;
}

static void every_entry_says_what_its_bits_mean(void **state)
{
    pen__jpeg_tables *tables = *state;
    uint64_t dice = 1;
    int n_pairs = 0;
    for (int round = 0; round < 100; round++) {
        code_bytes c;
        roll_code(&dice, &c, roll_between(&dice, 1, 162), false);
        const pen__jpeg_ac_table *table = pen__jpeg_ac_table_for(tables, c.code);
        assert_non_null(table);
        for (int i = 0; i < 1 << PEN__JPEG_AC_BITS; i++) {
            const pen__jpeg_ac_entry *e = &table->entries[i];
            int found = symbol_of(&c, (uint32_t)i << 5), k = 0;
            if (e->bits == 0) { /* over 11 bits, or no symbol that AC codes may have */
                int length = found & 255, symbol = found < 0 ? 0 : found >> 8;
                int total = length + (symbol & 15);
                bool is_odd = (symbol & 15) == 0 && symbol != 0 && symbol != 0xF0;
                assert_true(found < 0 || total > PEN__JPEG_AC_BITS || is_odd);
                if (e->first_bits)
                    assert_int_equal(e->first_value << 8 | e->first_bits, found);
                continue;
            }
            int n = check_symbol(&c, i, 0, &k, e->first, e->first_value);
            assert_int_equal(n, e->first_bits);
            if (e->bits > n) {
                n += check_symbol(&c, i, n, &k, e->second, e->second_value);
                n_pairs++;
            } else if (k < PEN__JPEG_EOB) {
                assert_int_equal(e->second, k);
                assert_int_equal(e->second_value, 0);
            }
            assert_int_equal(n, e->bits);
            assert_int_equal(k, e->advance);
        }
    }
    assert_true(n_pairs > 1000);
}

static void dc_entries_tell_codes_from_differences(void **state)
{
    uint64_t dice = 2;
    for (int round = 0; round < 100; round++) {
        code_bytes c;
        roll_code(&dice, &c, 12, true);
        const pen__jpeg_dc_table *table = pen__jpeg_dc_table_for(*state, c.code);
        assert_non_null(table);
        for (int i = 0; i < 1 << PEN__JPEG_DC_BITS; i++) {
            const pen__jpeg_dc_entry *e = &table->entries[i];
            int found = symbol_of(&c, (uint32_t)i << 7), size = found >> 8, length = found & 255;
            if (e->bits == 0) {
                assert_true(found < 0 || length > PEN__JPEG_DC_BITS);
                continue;
            }
            assert_int_equal(e->code_bits, length);
            assert_int_equal(e->size, size);
            assert_int_equal(e->bits, length + size);
        }
    }
}

static void codes_of_any_length_are_found(void **state)
{
    uint64_t dice = 3;
    for (int round = 0; round < 50; round++) {
        code_bytes c;
        roll_code(&dice, &c, roll_between(&dice, 1, 256), false);
        const pen__jpeg_ac_table *table = pen__jpeg_ac_table_for(*state, c.code);
        for (uint32_t peek = 0; peek < 1 << 16; peek += 1 + peek % 3)
            assert_int_equal(pen__jpeg_long_symbol(&table->codes, (int32_t)peek),
                             symbol_of(&c, peek));
    }
}

static void improper_codes_are_refused(void **state)
{
    code_bytes c = {.bytes = {0}};
    c.bytes[0] = 2; /* both codes of one bit: 1 is all ones */
    c.code = (pen__jpeg_code){c.bytes, 2};
    assert_null(pen__jpeg_ac_table_for(*state, c.code));
    assert_null(pen__jpeg_ac_table_for(*state, c.code));
    c.bytes[0] = 0;
    c.bytes[1] = 5; /* five codes of two bits */
    c.code.n_symbols = 5;
    assert_null(pen__jpeg_dc_table_for(*state, c.code));
    c.bytes[1] = 1;
    c.bytes[16] = 16; /* a DC difference of 16 bits */
    c.code.n_symbols = 1;
    assert_null(pen__jpeg_dc_table_for(*state, c.code));
    assert_non_null(pen__jpeg_ac_table_for(*state, c.code));
}

static void a_code_seen_lately_is_not_built_again(void **state)
{
    pen__jpeg_tables *tables = *state;
    uint64_t dice = 4;
    code_bytes c[PEN__JPEG_N_CACHED + 1];
    const pen__jpeg_ac_table *table[PEN__JPEG_N_CACHED + 1];
    for (int i = 0; i <= PEN__JPEG_N_CACHED; i++)
        roll_code(&dice, &c[i], 60, false);
    for (int i = 0; i < PEN__JPEG_N_CACHED; i++)
        table[i] = pen__jpeg_ac_table_for(tables, c[i].code);
    uint64_t n_built = tables->n_built;
    for (int i = 0; i < PEN__JPEG_N_CACHED; i++)
        assert_ptr_equal(pen__jpeg_ac_table_for(tables, c[i].code), table[i]);
    assert_int_equal(tables->n_built, n_built);
    /* one more takes the place of the one used longest ago, and of no other */
    assert_ptr_equal(pen__jpeg_ac_table_for(tables, c[PEN__JPEG_N_CACHED].code), table[0]);
    for (int i = 1; i < PEN__JPEG_N_CACHED; i++)
        assert_ptr_equal(pen__jpeg_ac_table_for(tables, c[i].code), table[i]);
    assert_int_equal(tables->n_built, n_built + 1);
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(pen__jpeg_tables));
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_says_what_its_bits_mean),
        cmocka_unit_test(dc_entries_tell_codes_from_differences),
        cmocka_unit_test(codes_of_any_length_are_found),
        cmocka_unit_test(improper_codes_are_refused),
        cmocka_unit_test(a_code_seen_lately_is_not_built_again),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
