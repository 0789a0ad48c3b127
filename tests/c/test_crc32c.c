/* test_crc32c.c - checksums: known answers, twins, pieces, flipped bits. */
#include "testing.h"

#include "base/crc32c.h"
#include "base/rng.h"

enum { N = 1000, MANY = 16 << 10 };

static uint8_t bytes[MANY + 16];

static int fill(void **state)
{
    (void)state;
    pen__rng rng;
    pen__rng_init(&rng, 5, PEN__RNG_OP, 0, 0, 0, 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)pen__rng_u32(&rng);
    return 0;
}

/* From RFC 3720, B.4, and the check value of the catalogue of CRCs. */
static void known_answers_are_given(void **state)
{
    (void)state;
    uint8_t block[32] = {0};
    assert_int_equal(pen__crc32c(0, "123456789", 9), 0xE3069283);
    assert_int_equal(pen__crc32c(0, "", 0), 0);
    assert_int_equal(pen__crc32c(0, block, 32), 0x8A9136AA);
    memset(block, 0xFF, sizeof block);
    assert_int_equal(pen__crc32c(0, block, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++)
        block[i] = (uint8_t)i;
    assert_int_equal(pen__crc32c(0, block, 32), 0x46DD794E);
    assert_int_equal(pen__crc32c_c(0, block, 32), 0x46DD794E);
}

static void twins_agree_at_every_length_and_alignment(void **state)
{
    (void)state;
    for (size_t from = 0; from < 9; from++)
        for (size_t len = 0; len < 300; len++)
            assert_int_equal(pen__crc32c(7, bytes + from, len),
                             pen__crc32c_c(7, bytes + from, len));
}

/* Long ones are summed in stretches. */
static void twins_agree_on_long_data(void **state)
{
    (void)state;
    for (size_t len = 900; len < MANY; len += 1 + len / 40)
        for (size_t from = 0; from < 9; from += 4)
            assert_int_equal(pen__crc32c(7, bytes + from, len),
                             pen__crc32c_c(7, bytes + from, len));
    for (size_t rounds = 3072; rounds < MANY; rounds += 3072)
        for (size_t len = rounds - 9; len < rounds + 18; len++)
            assert_int_equal(pen__crc32c(9, bytes + 1, len), pen__crc32c_c(9, bytes + 1, len));
}

static void pieces_give_the_sum_of_the_whole(void **state)
{
    (void)state;
    const uint32_t whole = pen__crc32c(0, bytes, N);
    for (size_t cut = 0; cut <= N; cut++) {
        assert_int_equal(pen__crc32c(pen__crc32c(0, bytes, cut), bytes + cut, N - cut), whole);
        assert_int_equal(pen__crc32c_c(pen__crc32c_c(0, bytes, cut), bytes + cut, N - cut), whole);
    }
}

static void every_flipped_bit_shows(void **state)
{
    (void)state;
    const uint32_t whole = pen__crc32c(0, bytes, 100);
    for (int bit = 0; bit < 800; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(pen__crc32c(0, bytes, 100), whole);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers_are_given),
        cmocka_unit_test(twins_agree_at_every_length_and_alignment),
        cmocka_unit_test(twins_agree_on_long_data),
        cmocka_unit_test(pieces_give_the_sum_of_the_whole),
        cmocka_unit_test(every_flipped_bit_shows),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
