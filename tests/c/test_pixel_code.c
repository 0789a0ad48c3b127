/* test_pixel_code.c - pixels come back from their code as they were, and no input does harm. */
#include "images.h"
#include "pixels.h"

#include <penstock/error.h>

#include "codec/pixel_code.h"

typedef struct picture {
    int w, h, ch;
    block px;
} picture;

static size_t n_bytes(const picture *p)
{
    return (size_t)(p->w * p->h * p->ch);
}

typedef enum kind { FLAT, SLOPES, NOISE, CHECKS, FAR_APART, N_KINDS } kind;

static picture make(kind k, int w, int h, int ch, uint64_t seed)
{
    picture p = {w, h, ch, block_new((size_t)(w * h * ch), seed % 3)};
    uint64_t dice = seed + 1;
    uint8_t *slopes = make_picture(w, h, ch, seed);
    for (int i = 0; i < w * h * ch; i++)
        switch (k) {
        case FLAT:
            p.px.at[i] = (uint8_t)seed;
            break;
        case SLOPES:
            p.px.at[i] = slopes[i];
            break;
        case NOISE:
            p.px.at[i] = (uint8_t)roll(&dice);
            break;
        case CHECKS:
            p.px.at[i] = (i / ch + i / ch / w) % 2 ? 255 : 0;
            break;
        default: /* residuals of 128, for which no shape has a share */
            p.px.at[i] = (uint8_t)(i / ch % 2 * 128 + (roll(&dice) % 50 == 0));
        }
    free(slopes);
    return p;
}

static block new_scratch(const picture *p)
{
    return block_new(pen__pixels_scratch(p->w, p->h, p->ch), 0);
}

static file encode(const picture *p, size_t room)
{
    block scratch = new_scratch(p), dst = block_new(room, 1);
    int64_t n = pen__pixels_encode(p->px.at, p->w, p->h, p->ch, scratch.at, dst.at, room);
    assert_true(n >= 0 && (size_t)n <= room);
    file code = {malloc((size_t)n + 1), (size_t)n};
    memcpy(code.data, dst.at, (size_t)n);
    block_free(dst);
    block_free(scratch);
    return code;
}

/* Into px; guards of all that is written are checked. */
static int decode(const picture *p, const uint8_t *src, size_t len, block px, pen_error *err)
{
    block scratch = new_scratch(p);
    uint8_t *copy = malloc(len ? len : 1); /* so that a sanitizer sees a read past it */
    if (len)
        memcpy(copy, src, len);
    int rc = pen__pixels_decode(copy, len, p->w, p->h, p->ch, scratch.at, px.at, err);
    free(copy);
    block_free(scratch);
    return rc;
}

static size_t check_round_trip(const picture *p)
{
    file code = encode(p, pen__pixels_bound(p->w, p->h, p->ch));
    block px = block_new(n_bytes(p), 2);
    pen_error err = {0};
    assert_true(code.len > 0);
    assert_int_equal(decode(p, code.data, code.len, px, &err), 0);
    assert_memory_equal(px.at, p->px.at, n_bytes(p));
    block_free(px);
    free(code.data);
    return code.len;
}

static void images_of_all_sizes_come_back(void **state)
{
    (void)state;
    static const int sides[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 64, 101};
    enum { N = sizeof sides / sizeof sides[0] };
    for (int i = 0; i < N * N; i++)
        for (int k = 0; k < N_KINDS; k++)
            for (int ch = 1; ch <= 3; ch += 2) {
                picture p = make((kind)k, sides[i % N], sides[i / N], ch, (uint64_t)i);
                assert_true(check_round_trip(&p) <= pen__pixels_bound(p.w, p.h, ch));
                block_free(p.px);
            }
}

static void long_and_thin_images_come_back(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 5000}, {5000, 1}, {2, 3001}, {3001, 2}, {65535, 1}};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < N_KINDS; k++)
            for (int ch = 1; ch <= 3; ch += 2) {
                picture p = make((kind)k, sizes[i][0], sizes[i][1], ch, (uint64_t)(i + 3));
                check_round_trip(&p);
                block_free(p.px);
            }
}

/* A slope with little noise, as photographs have: three bits a sample or less. */
static void smooth_images_shrink_and_noise_does_not_grow(void **state)
{
    (void)state;
    for (int ch = 1; ch <= 3; ch += 2) {
        picture p = make(NOISE, 224, 224, ch, 3);
        assert_int_equal(check_round_trip(&p), pen__pixels_bound(224, 224, ch));
        for (int i = 0; i < 224 * 224 * ch; i++)
            p.px.at[i] = (uint8_t)(i / ch % 224 / 2 + i / ch / 224 / 2 + p.px.at[i] % 2);
        assert_true(check_round_trip(&p) < n_bytes(&p) * 3 / 8);
        block_free(p.px);
        p = make(FLAT, 224, 224, ch, 3);
        assert_true(check_round_trip(&p) < n_bytes(&p) / 64);
        block_free(p.px);
    }
}

static void code_fits_into_the_room_there_is_or_is_refused(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int ch = 1; ch <= 3; ch += 2) {
            picture p = make((kind)k, 13, 11, ch, 7);
            size_t most = pen__pixels_bound(p.w, p.h, ch);
            file whole = encode(&p, most);
            for (size_t room = 0; room <= most; room++) {
                file code = encode(&p, room);
                assert_int_equal(code.len, room < whole.len ? 0 : whole.len);
                assert_memory_equal(code.data, whole.data, code.len);
                free(code.data);
            }
            free(whole.data);
            block_free(p.px);
        }
}

/* --- damage --- */

static void check_corrupt(const picture *p, const uint8_t *src, size_t len)
{
    block px = block_new(n_bytes(p), 1);
    pen_error err = {0};
    int rc = decode(p, src, len, px, &err);
    if (rc != 0) {
        assert_int_equal(rc, PEN_ECORRUPT);
        assert_int_equal(err.code, PEN_ECORRUPT);
        assert_true(err.text[0] != '\0');
    }
    block_free(px);
}

static void code_cut_short_anywhere_is_corrupt(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int ch = 1; ch <= 3; ch += 2) {
            picture p = make((kind)k, 21, 17, ch, 9);
            file code = encode(&p, pen__pixels_bound(p.w, p.h, ch));
            block px = block_new(n_bytes(&p), 0);
            for (size_t len = 0; len < code.len; len++)
                assert_int_equal(decode(&p, code.data, len, px, NULL), PEN_ECORRUPT);
            code.data[code.len] = 0; /* or longer than it was */
            assert_int_equal(decode(&p, code.data, code.len + 1, px, NULL), PEN_ECORRUPT);
            block_free(px);
            free(code.data);
            block_free(p.px);
        }
}

static void flipped_bits_and_noise_do_no_harm(void **state)
{
    (void)state;
    uint64_t dice = 4;
    for (int k = 0; k < N_KINDS; k++)
        for (int ch = 1; ch <= 3; ch += 2) {
            picture p = make((kind)k, 33, 19, ch, 11);
            file code = encode(&p, pen__pixels_bound(p.w, p.h, ch));
            for (size_t bit = 0; bit < 8 * code.len; bit += 1 + bit / 900) {
                code.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
                check_corrupt(&p, code.data, code.len);
                code.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
            }
            for (int i = 0; i < 300; i++) {
                for (size_t at = i % 2 ? 0 : 1 + 48; at < code.len; at++)
                    code.data[at] = (uint8_t)(i % 3 ? roll(&dice) : 0);
                code.data[0] = i % 7 ? 1 : (uint8_t)i;
                for (int at = 1; i % 2 && at < 49 && (size_t)at < code.len; at++)
                    code.data[at] %= 24;
                check_corrupt(&p, code.data, code.len);
            }
            free(code.data);
            block_free(p.px);
        }
}

static void the_same_pixels_give_the_same_code_and_nothing_is_allocated(void **state)
{
    (void)state;
    picture p = make(SLOPES, 60, 50, 3, 2);
    block scratch = new_scratch(&p), dst[2] = {block_new(9001, 0), block_new(9001, 0)};
    int64_t n[2], before = pen__mem_count();
    for (int i = 0; i < 2; i++) {
        memset(scratch.at, 0x5A * i, scratch.n); /* what was there before does not matter */
        n[i] = pen__pixels_encode(p.px.at, p.w, p.h, p.ch, scratch.at, dst[i].at, 9001);
        memset(scratch.at, 0xA5 * i, scratch.n);
        assert_int_equal(
            pen__pixels_decode(dst[i].at, (size_t)n[i], p.w, p.h, p.ch, scratch.at, p.px.at, NULL),
            0);
    }
    assert_int_equal(pen__mem_count(), before);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(dst[0].at, dst[1].at, (size_t)n[0]);
    block_free(scratch), block_free(dst[0]), block_free(dst[1]), block_free(p.px);
}

/* Who encodes and who decodes may have different processors. */
static void every_cpu_level_writes_and_reads_the_same_code(void **state)
{
    (void)state;
    for (int i = 0; i < 60; i++) {
        picture p = make((kind)(i % N_KINDS), 1 + 7 * i % 90, 1 + i, i % 2 ? 3 : 1, (uint64_t)i);
        size_t room = pen__pixels_bound(p.w, p.h, p.ch);
        scalar_only();
        file plain = encode(&p, room);
        for (int level = 0; level < N_LEVELS; level++) {
            pen__cpu_mask(levels[level]);
            file code = encode(&p, room);
            assert_int_equal(code.len, plain.len);
            assert_memory_equal(code.data, plain.data, plain.len);
            free(code.data);
            block px = block_new(n_bytes(&p), 1);
            assert_int_equal(decode(&p, plain.data, plain.len, px, NULL), 0);
            assert_memory_equal(px.at, p.px.at, n_bytes(&p));
            block_free(px);
        }
        all_features();
        free(plain.data);
        block_free(p.px);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_of_all_sizes_come_back),
        cmocka_unit_test(long_and_thin_images_come_back),
        cmocka_unit_test(smooth_images_shrink_and_noise_does_not_grow),
        cmocka_unit_test(code_fits_into_the_room_there_is_or_is_refused),
        cmocka_unit_test(code_cut_short_anywhere_is_corrupt),
        cmocka_unit_test(flipped_bits_and_noise_do_no_harm),
        cmocka_unit_test(every_cpu_level_writes_and_reads_the_same_code),
        cmocka_unit_test(the_same_pixels_give_the_same_code_and_nothing_is_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
