/* decoding.h - what the tests of all formats do with a file. */
#ifndef PEN_TESTS_DECODING_H
#define PEN_TESTS_DECODING_H

#include "images.h"

#include "base/mem.h"
#include "ops/decode.h"

static inline int decode_into(pen__decoder *dec, file f, pen__rect window, uint8_t *dst,
                              pen_error *err)
{
    pen_image_info info;
    int rc = pen_image_probe(f.data, f.len, &info, err);
    pen__image image = {.px = dst};
    return rc < 0 ? rc : pen__decode(dec, f.data, f.len, &info, window, &image, err);
}

/* A sink that puts rows where they belong, and checks how they come. */
typedef struct collector {
    uint8_t *dst;
    size_t row_bytes;
    int32_t n_rows, next;
    unsigned slack; /* what lies behind rows, read and not used */
} collector;

static inline void collect(void *ctx, int32_t y, const uint8_t *rows, size_t stride, int32_t n_rows)
{
    collector *c = ctx;
    assert_true(y == c->next || y == 0);
    assert_true(n_rows == 4 || (n_rows > 0 && n_rows < 4 && y + n_rows == c->n_rows));
    for (int32_t i = 0; i < n_rows; i++, rows += stride) {
        memcpy(c->dst + (size_t)(y + i) * c->row_bytes, rows, c->row_bytes);
        c->slack += rows[c->row_bytes + PEN__DECODE_SLACK - 1];
    }
    c->next = y + n_rows;
}

/* decode_into by way of a sink. */
static inline int collect_into(pen__decoder *dec, file f, pen__rect window, uint8_t *dst,
                               pen_error *err)
{
    pen_image_info info;
    int rc = pen_image_probe(f.data, f.len, &info, err);
    if (rc < 0)
        return rc;
    collector c = {dst, (size_t)(window.w * pen__decode_channels(&info)), window.h, 0, 0};
    rc = pen__decode_rows(dec, f.data, f.len, &info, window, &(pen__row_sink){collect, &c}, err);
    if (rc == 0)
        assert_int_equal(c.next, window.h);
    return rc;
}

static inline pen__rect random_window(uint64_t *state, int w, int h)
{
    pen__rect r = {.w = roll_between(state, 1, w), .h = roll_between(state, 1, h)};
    r.x = roll_between(state, 0, w - r.w);
    r.y = roll_between(state, 0, h - r.h);
    return r;
}

/* The window, byte for byte, and not a byte behind it. */
static inline void check_window(pen__decoder *dec, file f, pen__rect window, const uint8_t *whole,
                                int w, int ch, const char *name)
{
    size_t row_bytes = (size_t)(window.w * ch), n_bytes = row_bytes * (size_t)window.h;
    uint8_t *dst = malloc(n_bytes + 8);
    memset(dst + n_bytes, 0xA5, 8);
    pen_error err = {0};
    int rc = decode_into(dec, f, window, dst, &err);
    if (rc != 0)
        fail_msg("%s: %s", name, err.text);
    for (int y = 0; y < window.h; y++) {
        const uint8_t *row = whole + (size_t)(((window.y + y) * w + window.x) * ch);
        if (memcmp(dst + (size_t)y * row_bytes, row, row_bytes) != 0)
            fail_msg("%s: row %d of window %d,%d %dx%d", name, y, window.x, window.y, window.w,
                     window.h);
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(dst[n_bytes + (size_t)i], 0xA5);
    free(dst);
}

/* The bytes in an allocation of their own, so that a sanitizer sees a read past them. */
static inline file copy_of(const uint8_t *data, size_t len)
{
    file copy = {malloc(len ? len : 1), len};
    if (len)
        memcpy(copy.data, data, len);
    return copy;
}

static inline void check_survives(pen__decoder *dec, file f, uint64_t *dice)
{
    pen_image_info info;
    pen_error err = {0};
    int rc = pen_image_probe(f.data, f.len, &info, &err);
    if (rc == 0 && (int64_t)info.width * info.height <= 1 << 20) {
        pen__rect window = random_window(dice, info.width, info.height);
        uint8_t *dst = malloc((size_t)window.w * (size_t)window.h * 3);
        rc = decode_into(dec, f, window, dst, &err);
        free(dst);
    }
    if (rc != 0) {
        assert_true(pen_error_is_data(rc));
        assert_int_equal(err.code, rc);
        assert_true(err.text[0] != '\0');
    }
}

static inline void check_truncations(pen__decoder *dec, file f, uint64_t *dice)
{
    for (size_t len = 0; len < f.len; len++) {
        file cut = copy_of(f.data, len);
        check_survives(dec, cut, dice);
        free(cut.data);
    }
}

static inline void check_flips(pen__decoder *dec, file f, int n_files, uint64_t *dice)
{
    for (int i = 0; i < n_files; i++) {
        file bad = copy_of(f.data, f.len);
        for (int n = roll_between(dice, 1, 4); n > 0; n--)
            bad.data[roll(dice) % bad.len] = (uint8_t)roll(dice);
        check_survives(dec, bad, dice);
        free(bad.data);
    }
}

/* Decode with the n-th allocation failing, for every n there is.  Returns how many
 * could fail. */
static inline int check_failing_memory(file f, pen__rect window)
{
    uint8_t *dst = malloc((size_t)window.w * (size_t)window.h * 3);
    int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM, n = 0;
    while (rc == PEN_ENOMEM) {
        pen__decoder *dec = NULL;
        pen__mem_fail_at(++n);
        rc = pen__decoder_create(&dec, NULL);
        if (rc == 0)
            rc = decode_into(dec, f, window, dst, NULL);
        pen__mem_fail_at(0);
        pen__decoder_free(dec);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_int_equal(rc, 0);
    free(dst);
    return n - 1;
}

static inline int set_up_decoder(void **state)
{
    return pen__decoder_create((pen__decoder **)state, NULL);
}

static inline int tear_down_decoder(void **state)
{
    pen__decoder_free(*state);
    return 0;
}

#endif
