/* test_parcel.c - heads of parcels: what is written is read, and nothing else is. */
#include "testing.h"

#include <stdbool.h>

#include "engine/parcel.h"

static const pen_image_info photo = {.format = PEN_FORMAT_JPEG,
                                     .width = 500,
                                     .height = 375,
                                     .channels = 3,
                                     .bits = 8,
                                     .orientation = 6,
                                     .sampling_h = 2,
                                     .sampling_v = 1};

enum { MANY = 3000, CAP = PEN__PARCEL_HEAD + MANY };

/* One of each form. */
static pen__parcel parcel_of(pen__form form)
{
    pen__parcel p = {.form = form, .info = photo, .raw_len = MANY, .len = 1234};
    switch (form) {
    case PEN__FORM_RAW:
        p.len = MANY;
        break;
    case PEN__FORM_JPEG_CUT:
        p.kept = (pen__rect){16, 8, 484, 367};
        break;
    case PEN__FORM_PIXELS:
    case PEN__FORM_PIXELS_CODED:
        p.cut = 2;
        p.channels = 3;
        p.kept = (pen__rect){0, 0, 20, 30};
        p.len = form == PEN__FORM_PIXELS ? 20 * 30 * 3 : 1;
        break;
    default:
        break;
    }
    return p;
}

/* Write the head; the payload is zeros. */
static size_t write_parcel(const pen__parcel *p, uint8_t dst[CAP])
{
    memset(dst, 0, CAP);
    pen__parcel_write_head(p, dst);
    return PEN__PARCEL_HEAD + p->len;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    uint8_t bytes[CAP];
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        pen__parcel p = parcel_of((pen__form)form), got;
        p.info.is_progressive = form % 2;
        p.info.is_animated = form % 3 == 0;
        size_t len = write_parcel(&p, bytes);
        pen_error err = {0};
        if (pen__parcel_read(&got, bytes, len, &err) != 0)
            fail_msg("form %d: %s", form, err.text);
        assert_int_equal(pen__parcel_length(bytes), len);
        assert_ptr_equal(got.data, bytes + PEN__PARCEL_HEAD);
        assert_int_equal(got.form, form);
        assert_int_equal(got.cut, p.cut);
        assert_int_equal(got.channels, p.channels);
        assert_memory_equal(&got.kept, &p.kept, sizeof p.kept);
        assert_int_equal(got.raw_len, p.raw_len);
        assert_int_equal(got.len, p.len);
        uint8_t again[PEN__PARCEL_HEAD];
        pen__parcel_write_head(&got, again);
        assert_memory_equal(again, bytes, PEN__PARCEL_HEAD);
    }
}

static void a_raw_file_need_not_be_an_image(void **state)
{
    (void)state;
    uint8_t bytes[CAP];
    pen__parcel p = {.form = PEN__FORM_RAW, .raw_len = 5, .len = 5}, got;
    size_t len = write_parcel(&p, bytes);
    assert_int_equal(pen__parcel_read(&got, bytes, len, NULL), 0);
    p = (pen__parcel){.form = PEN__FORM_ZSTD, .raw_len = 5, .len = 5};
    len = write_parcel(&p, bytes);
    assert_int_equal(pen__parcel_read(&got, bytes, len, NULL), PEN_ECORRUPT);
    p = (pen__parcel){.form = PEN__FORM_RAW};
    assert_int_equal(pen__parcel_read(&got, bytes, write_parcel(&p, bytes), NULL), 0);
}

static void a_parcel_has_the_length_its_head_says(void **state)
{
    (void)state;
    uint8_t bytes[CAP];
    pen__parcel p = parcel_of(PEN__FORM_RAW), got;
    const size_t len = write_parcel(&p, bytes);
    for (size_t n = 0; n < len; n++) {
        uint8_t *copy = malloc(n ? n : 1); /* so that a sanitizer sees a read past it */
        memcpy(copy, bytes, n);
        pen_error err = {0};
        assert_int_equal(pen__parcel_read(&got, copy, n, &err), PEN_ECORRUPT);
        assert_true(err.text[0] != '\0');
        free(copy);
    }
}

/* A field of the head with a value that cannot be. */
static void refuse(pen__form form, int offset, int n_bytes, int64_t value)
{
    uint8_t bytes[CAP];
    pen__parcel p = parcel_of(form), got;
    const size_t len = write_parcel(&p, bytes);
    for (int i = 0; i < n_bytes; i++)
        bytes[offset + i] = (uint8_t)((uint64_t)value >> 8 * i);
    if (pen__parcel_read(&got, bytes, len, NULL) != PEN_ECORRUPT)
        fail_msg("form %d, byte %d: %lld is taken", form, offset, (long long)value);
}

static void impossible_fields_are_refused(void **state)
{
    (void)state;
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        static const int64_t images[][3] = {
            {32, 1, 0},  {32, 1, 4},   {33, 1, 0},  {33, 1, 5},
            {34, 1, 3},  {34, 1, 255}, {35, 1, 0},  {35, 1, 9},
            {36, 1, 8},  {37, 1, 0},   {37, 1, 5},  {38, 1, 0},
            {38, 1, 5},  {39, 1, 1},   {40, 4, 0},  {40, 4, 65536},
            {40, 4, -1}, {44, 4, 0},   {44, 4, -5}, {40, 8, -1},
            {0, 1, 0},   {0, 1, 2},    {1, 1, 7},   {1, 1, 255},
            {24, 8, -1}, {4, 4, 0},    {4, 4, -1},  {40, 8, (INT64_C(65535) << 32) + 65535}};
        for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
            refuse((pen__form)form, (int)images[i][0], (int)images[i][1], images[i][2]);
        const bool has_pixels = form == PEN__FORM_PIXELS || form == PEN__FORM_PIXELS_CODED;
        for (int at = 2; at < 4; at++) /* cut and channels */
            refuse((pen__form)form, at, 1, has_pixels ? 0 : 1);
        refuse((pen__form)form, 3, 1, 2);
        refuse((pen__form)form, 2, 1, 65);
        if (form != PEN__FORM_JPEG_CUT)
            refuse((pen__form)form, 8, 4, 1);
    }
    for (int at = 8; at < 24; at += 4) { /* the part of a JPEG file that is kept */
        refuse(PEN__FORM_JPEG_CUT, at, 4, -1);
        refuse(PEN__FORM_JPEG_CUT, at, 4, INT32_MAX);
        refuse(PEN__FORM_JPEG_CUT, at, 4, INT32_MIN);
        refuse(PEN__FORM_JPEG_CUT, at, 4, at == 8 ? 17 : at == 12 ? 9 : at == 16 ? 485 : 368);
    }
    refuse(PEN__FORM_JPEG_CUT, 32, 1, PEN_FORMAT_PNG);
    refuse(PEN__FORM_PIXELS, 16, 4, 21);
    refuse(PEN__FORM_PIXELS, 16, 8, 0);
    refuse(PEN__FORM_PIXELS_CODED, 16, 8, -1);
    refuse(PEN__FORM_PIXELS_CODED, 16, 4, 70000);
    refuse(PEN__FORM_RAW, 24, 8, MANY - 1);
}

static void the_bound_holds_the_file_and_the_finished_pixels(void **state)
{
    (void)state;
    pen_pipeline *pipe;
    pen_op ops[] = {pen_op_random_resized_crop(224, 200), pen_op_to_tensor()};
    assert_int_equal(pen_pipeline_create(&pipe, ops, 2, PEN_DTYPE_FLOAT32, PEN_LAYOUT_NCHW, NULL),
                     0);
    assert_int_equal(pen__parcel_bound(NULL, 7), PEN__PARCEL_HEAD + 7);
    assert_int_equal(pen__parcel_bound(pipe, 7), PEN__PARCEL_HEAD + 224 * 200 * 3);
    assert_int_equal(pen__parcel_bound(pipe, 1 << 20), PEN__PARCEL_HEAD + (1 << 20));
    pen_pipeline_unref(pipe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(a_raw_file_need_not_be_an_image),
        cmocka_unit_test(a_parcel_has_the_length_its_head_says),
        cmocka_unit_test(impossible_fields_are_refused),
        cmocka_unit_test(the_bound_holds_the_file_and_the_finished_pixels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
