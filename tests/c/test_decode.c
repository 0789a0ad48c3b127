/* test_decode.c - the public calls: what is it, how large, and its pixels as asked. */
#include "decoding.h"

static const jpeg_kind COLOUR = {
    .name = "4:2:0", .channels = 3, .sampling = {0x22, 0x11, 0x11}, .as = JCS_YCbCr};
static const jpeg_kind GREY = {
    .name = "grey", .channels = 1, .sampling = {0x11}, .as = JCS_GRAYSCALE};

static file make_jpeg(const jpeg_kind *kind, int w, int h)
{
    uint8_t *px = make_picture(w, h, kind->channels, 1);
    file f = encode_jpeg(kind, px, w, h, 85);
    free(px);
    return f;
}

static void a_jpeg_header_is_told_in_full(void **state)
{
    (void)state;
    file f = make_jpeg(&COLOUR, 37, 21);
    pen_image_info info;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    assert_int_equal(info.format, PEN_FORMAT_JPEG);
    assert_int_equal(info.width, 37);
    assert_int_equal(info.height, 21);
    assert_int_equal(info.channels, 3);
    assert_int_equal(info.bits, 8);
    assert_int_equal(info.orientation, 1);
    assert_int_equal(info.sampling_h, 2);
    assert_int_equal(info.sampling_v, 2);
    assert_false(info.is_grey || info.is_progressive || info.is_animated);
    free(f.data);
}

/* Put a segment behind SOI. */
static file with_segment(file f, int marker, const void *body, size_t n_body)
{
    file out = {malloc(f.len + 4 + n_body), f.len + 4 + n_body};
    memcpy(out.data, f.data, 2);
    out.data[2] = 0xFF;
    out.data[3] = (uint8_t)marker;
    out.data[4] = (uint8_t)((n_body + 2) >> 8);
    out.data[5] = (uint8_t)(n_body + 2);
    memcpy(out.data + 6, body, n_body);
    memcpy(out.data + 6 + n_body, f.data + 2, f.len - 2);
    return out;
}

static void orientation_comes_from_exif_and_else_from_xmp(void **state)
{
    (void)state;
    static const uint8_t exif[] =
        "Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0";
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/\0<a tiff:Orientation=\"3\"/>";
    file plain = make_jpeg(&COLOUR, 9, 9);
    file with_xmp = with_segment(plain, 0xE1, xmp, sizeof xmp - 1);
    file with_both = with_segment(with_xmp, 0xE1, exif, sizeof exif - 1);
    pen_image_info info;
    assert_int_equal(pen_image_probe(with_xmp.data, with_xmp.len, &info, NULL), 0);
    assert_int_equal(info.orientation, 3);
    assert_int_equal(pen_image_probe(with_both.data, with_both.len, &info, NULL), 0);
    assert_int_equal(info.orientation, 6);
    free(plain.data), free(with_xmp.data), free(with_both.data);
}

static void what_is_no_image_is_unsupported(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "", "G", "GIF89a.............", "RIFF....WAVEfmt .....", "\x89PNG\r\n\x1a", "\xff\xd8"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        pen_image_info info;
        pen_error err;
        assert_int_equal(pen_image_probe((const uint8_t *)texts[i], strlen(texts[i]), &info, &err),
                         PEN_EUNSUPPORTED);
        assert_int_equal(info.format, PEN_FORMAT_UNKNOWN);
    }
}

static void formats_have_names(void **state)
{
    (void)state;
    assert_string_equal(pen_format_name(PEN_FORMAT_JPEG), "jpeg");
    assert_string_equal(pen_format_name(PEN_FORMAT_PNG), "png");
    assert_string_equal(pen_format_name(PEN_FORMAT_WEBP), "webp");
    assert_string_equal(pen_format_name(PEN_FORMAT_UNKNOWN), "unknown");
    assert_string_equal(pen_format_name((pen_format)99), "unknown");
}

static void grey_files_spread_to_three_equal_channels(void **state)
{
    (void)state;
    file f = make_jpeg(&GREY, 20, 10);
    uint8_t grey[200], rgb[600];
    assert_int_equal(pen_image_decode(f.data, f.len, 0, 0, 20, 10, 1, grey, sizeof grey, NULL),
                     200);
    assert_int_equal(pen_image_decode(f.data, f.len, 0, 0, 20, 10, 3, rgb, sizeof rgb, NULL), 600);
    for (int i = 0; i < 600; i++)
        assert_int_equal(rgb[i], grey[i / 3]);
    free(f.data);
}

static void colour_files_fold_to_luma(void **state)
{
    (void)state;
    file f = make_jpeg(&COLOUR, 20, 10);
    uint8_t grey[200], rgb[600];
    assert_int_equal(pen_image_decode(f.data, f.len, 0, 0, 20, 10, 1, grey, sizeof grey, NULL),
                     200);
    assert_int_equal(pen_image_decode(f.data, f.len, 0, 0, 20, 10, 3, rgb, sizeof rgb, NULL), 600);
    for (int i = 0; i < 200; i++) {
        double luma = 0.299 * rgb[3 * i] + 0.587 * rgb[3 * i + 1] + 0.114 * rgb[3 * i + 2];
        assert_true(grey[i] > luma - 0.51 && grey[i] < luma + 0.51);
    }
    free(f.data);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    file f = make_jpeg(&COLOUR, 20, 10);
    uint8_t dst[600];
    static const int32_t outside[][4] = {
        {-1, 0, 5, 5}, {0, -1, 5, 5}, {16, 0, 5, 5}, {0, 6, 5, 5},
        {0, 0, 0, 5},  {0, 0, 5, 0},  {0, 0, 21, 1}, {INT32_MAX, 0, INT32_MAX, 1},
        {0, 0, -3, 1}};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        const int32_t *r = outside[i];
        assert_int_equal(pen_image_decode(f.data, f.len, r[0], r[1], r[2], r[3], 3, dst, 600, NULL),
                         PEN_EINVAL);
    }
    assert_int_equal(pen_image_decode(f.data, f.len, 0, 0, 20, 10, 2, dst, 600, NULL), PEN_EINVAL);
    assert_int_equal(pen_image_decode(f.data, f.len, 0, 0, 20, 10, 3, dst, 599, NULL), PEN_ENOSPC);
    free(f.data);
}

static void the_public_call_leaks_nothing_when_memory_fails(void **state)
{
    (void)state;
    file f = make_jpeg(&COLOUR, 20, 10);
    uint8_t dst[200];
    int64_t live = pen__mem_live(), rc = PEN_ENOMEM;
    for (int n = 1; rc == PEN_ENOMEM; n++) {
        pen__mem_fail_at(n);
        rc = pen_image_decode(f.data, f.len, 0, 0, 20, 10, 1, dst, sizeof dst, NULL);
        pen__mem_fail_at(0);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_int_equal(rc, 200);
    free(f.data);
}

static void memory_bounds_grow_with_the_image(void **state)
{
    (void)state;
    pen_image_info info = {.format = PEN_FORMAT_JPEG, .width = 500, .height = 375, .channels = 3};
    pen__rect window = {0, 0, 224, 224};
    size_t plain = pen__decode_memory(&info, window);
    assert_in_range(plain, 64 << 10, 512 << 10);
    info.is_progressive = true; /* all coefficients: 2 bytes for each of 3 x 500 x 375 */
    assert_true(pen__decode_memory(&info, window) > plain + 2 * 3 * 500 * 375);
    info = (pen_image_info){
        .format = PEN_FORMAT_PNG, .width = 500, .height = 375, .channels = 3, .bits = 8};
    plain = pen__decode_memory(&info, window);
    info.is_progressive = true;
    assert_int_equal(pen__decode_memory(&info, window) - plain, 500 * 375 * 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_jpeg_header_is_told_in_full),
        cmocka_unit_test(orientation_comes_from_exif_and_else_from_xmp),
        cmocka_unit_test(what_is_no_image_is_unsupported),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(grey_files_spread_to_three_equal_channels),
        cmocka_unit_test(colour_files_fold_to_luma),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(the_public_call_leaks_nothing_when_memory_fails),
        cmocka_unit_test(memory_bounds_grow_with_the_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
