/* test_bytes.c - zstd, lz4, snappy: what goes in comes out, and damage is found or harmless. */
#include "testing.h"

#include "base/mem.h"
#include "codec/bytes.h"
#include "images.h"

enum { LEN = 40000 };

static int set_up(void **state)
{
    return pen__bytes_coder_create((pen__bytes_coder **)state);
}

static int tear_down(void **state)
{
    pen__bytes_coder_free(*state);
    return 0;
}

/* Bytes of which about half is noise. */
static void fill(uint8_t *dst, size_t n, uint64_t seed)
{
    uint64_t dice = seed + 1;
    for (size_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(i % 64 < 32 ? i / 64 : roll(&dice));
}

static void what_goes_in_comes_out(void **state)
{
    static uint8_t src[LEN], coded[LEN], got[LEN + 1];
    for (int codec = PEN__BYTES_ZSTD; codec < PEN__BYTES_COUNT; codec++)
        for (size_t n = 200; n <= LEN; n = n * 3 / 2) {
            fill(src, n, n);
            size_t len = pen__bytes_encode(*state, (pen__bytes_codec)codec, src, n, coded, n - 1);
            assert_in_range(len, 1, n - 1);
            got[n] = 0xA5;
            assert_int_equal(
                pen__bytes_decode(*state, (pen__bytes_codec)codec, coded, len, got, n, NULL), 0);
            assert_memory_equal(got, src, n);
            assert_int_equal(got[n], 0xA5);
            assert_int_equal(
                pen__bytes_decode(*state, (pen__bytes_codec)codec, coded, len, got, n - 1, NULL),
                PEN_ECORRUPT);
            assert_int_equal(
                pen__bytes_decode(*state, (pen__bytes_codec)codec, coded, len, got, n + 1, NULL),
                PEN_ECORRUPT);
        }
}

static void what_does_not_fit_is_said(void **state)
{
    static uint8_t src[LEN], coded[LEN];
    uint64_t dice = 3;
    for (int i = 0; i < LEN; i++)
        src[i] = (uint8_t)roll(&dice);
    for (int codec = PEN__BYTES_ZSTD; codec < PEN__BYTES_COUNT; codec++) {
        assert_int_equal(
            pen__bytes_encode(*state, (pen__bytes_codec)codec, src, LEN, coded, LEN - 1), 0);
        assert_int_equal(pen__bytes_encode(*state, (pen__bytes_codec)codec, src, 0, coded, 9), 0);
        assert_int_equal(pen__bytes_encode(*state, (pen__bytes_codec)codec, src, 9, coded, 0), 0);
    }
    assert_false(pen__bytes_look_loose(*state, src, LEN));
    assert_false(pen__bytes_look_loose(*state, src, 0));
    memset(src, 0, sizeof src);
    assert_true(pen__bytes_look_loose(*state, src, LEN));
}

static void damage_is_found_or_harmless(void **state)
{
    enum { N = 900 };
    static uint8_t src[N], coded[N], got[N];
    uint64_t dice = 5;
    fill(src, N, 1);
    for (int codec = PEN__BYTES_ZSTD; codec < PEN__BYTES_COUNT; codec++) {
        size_t len = pen__bytes_encode(*state, (pen__bytes_codec)codec, src, N, coded, N - 1);
        for (size_t n = 0; n < len; n++) {
            uint8_t *copy = malloc(n ? n : 1);
            memcpy(copy, coded, n);
            assert_int_equal(
                pen__bytes_decode(*state, (pen__bytes_codec)codec, copy, n, got, N, NULL),
                PEN_ECORRUPT);
            free(copy);
        }
        for (int i = 0; i < 3000; i++) {
            uint8_t *copy = malloc(len);
            memcpy(copy, coded, len);
            copy[roll(&dice) % len] ^= (uint8_t)(1U << roll(&dice) % 8);
            pen__bytes_decode(*state, (pen__bytes_codec)codec, copy, len, got, N, NULL);
            free(copy);
        }
    }
}

/* Some hundred bytes that would become some gigabytes: nothing is written past the place, which a
 * sanitizer guards, and they are refused. */
static void a_bomb_does_not_go_off(void **state)
{
    enum { N = 1 << 20, ROOM = 100 };
    uint8_t *src = calloc(1, N), *coded = malloc(N), *got = malloc(ROOM);
    for (int codec = PEN__BYTES_ZSTD; codec < PEN__BYTES_COUNT; codec++) {
        size_t len = pen__bytes_encode(*state, (pen__bytes_codec)codec, src, N, coded, N);
        assert_in_range(len, 1, N / 20);
        assert_int_equal(
            pen__bytes_decode(*state, (pen__bytes_codec)codec, coded, len, got, ROOM, NULL),
            PEN_ECORRUPT);
    }
    /* lengths that a snappy block may claim: none is believed */
    static const uint8_t claims[][8] = {{ROOM, 0},
                                        {0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0},
                                        {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01},
                                        {0x80, 0x80, 0x80, 0x80, 0x80}};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++)
        for (size_t n = 0; n <= sizeof claims[0]; n++)
            assert_int_equal(
                pen__bytes_decode(*state, PEN__BYTES_SNAPPY, claims[i], n, got, ROOM, NULL),
                PEN_ECORRUPT);
    free(src), free(coded), free(got);
}

static void without_memory_nothing_is_coded(void **state)
{
    static uint8_t src[LEN], coded[LEN];
    (void)state;
    int64_t live = pen__mem_live();
    pen__bytes_coder *coder;
    pen__mem_fail_at(1);
    assert_int_equal(pen__bytes_coder_create(&coder), PEN_ENOMEM);
    pen__mem_fail_at(0);
    assert_int_equal(pen__bytes_coder_create(&coder), 0);
    for (int codec = PEN__BYTES_LZ4; codec < PEN__BYTES_COUNT; codec++) {
        pen__mem_fail_at(1);
        assert_int_equal(pen__bytes_encode(coder, (pen__bytes_codec)codec, src, LEN, coded, LEN),
                         0);
        pen__mem_fail_at(0);
        assert_true(pen__bytes_encode(coder, (pen__bytes_codec)codec, src, LEN, coded, LEN) > 0);
    }
    pen__mem_fail_at(1); /* its place is there: what snappy itself takes is not to be had */
    assert_int_equal(pen__bytes_encode(coder, PEN__BYTES_SNAPPY, src, LEN, coded, LEN), 0);
    pen__mem_fail_at(0);
    pen__bytes_coder_free(coder);
    assert_int_equal(pen__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_goes_in_comes_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_said, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_is_found_or_harmless, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bomb_does_not_go_off, set_up, tear_down),
        cmocka_unit_test(without_memory_nothing_is_coded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
