/* test_decode_png.c - every kind of PNG against its samples, and PNGs that lie. */
#include "decoding.h"

#include <png.h>

#include "ops/decode_formats.h"

typedef struct png_kind {
    int colour, bits;
} png_kind;

enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

static const png_kind kinds[] = {
    {GREY, 1},    {GREY, 2},       {GREY, 4},        {GREY, 8},      {GREY, 16},
    {RGB, 8},     {RGB, 16},       {PALETTE, 1},     {PALETTE, 2},   {PALETTE, 4},
    {PALETTE, 8}, {GREY_ALPHA, 8}, {GREY_ALPHA, 16}, {RGB_ALPHA, 8}, {RGB_ALPHA, 16},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0], N_PALETTE = 11 };

static int samples_of(int colour)
{
    return colour == RGB ? 3 : colour == RGB_ALPHA ? 4 : colour == GREY_ALPHA ? 2 : 1;
}

static png_color palette_entry(int i)
{
    return (png_color){(png_byte)(i * 37 + 1), (png_byte)(255 - i * 5), (png_byte)(i * i)};
}

static void append(png_structp png, png_bytep data, size_t len)
{
    file *f = png_get_io_ptr(png);
    f->data = realloc(f->data, f->len + len);
    memcpy(f->data + f->len, data, len);
    f->len += len;
}

static void flush(png_structp png)
{
    (void)png;
}

/* `samples`: (h, w, samples_of(colour)), each below 2^bits.  Rows are packed here, so
 * that the writer does nothing but filter and deflate. */
static file encode_png(png_kind kind, bool is_interlaced, const uint16_t *samples, int w, int h)
{
    file f = {0};
    int n = w * samples_of(kind.colour);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &f, append, flush);
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, kind.bits, kind.colour,
                 is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    png_set_filter(png, 0, PNG_ALL_FILTERS);
    png_color palette[N_PALETTE];
    for (int i = 0; i < N_PALETTE; i++)
        palette[i] = palette_entry(i);
    int n_palette = kind.bits < 4 ? 1 << kind.bits : N_PALETTE;
    if (kind.colour == PALETTE)
        png_set_PLTE(png, info, palette, n_palette);
    png_set_benign_errors(png, 1);
    png_set_check_for_invalid_index(png, -1);
    png_write_info(png, info);
    uint8_t *rows = calloc((size_t)h, (size_t)n * 2);
    uint8_t **pointers = malloc((size_t)h * sizeof *pointers);
    for (int y = 0; y < h; y++) {
        pointers[y] = rows + (size_t)y * (size_t)n * 2;
        for (int i = 0; i < n; i++) {
            int at = i * kind.bits, value = samples[y * n + i];
            if (kind.bits == 16) {
                pointers[y][2 * i] = (uint8_t)(value >> 8);
                pointers[y][2 * i + 1] = (uint8_t)value;
            } else {
                pointers[y][at / 8] |= (uint8_t)(value << (8 - kind.bits - at % 8));
            }
        }
    }
    png_write_image(png, pointers);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(rows);
    free(pointers);
    return f;
}

/* What Pillow's convert("RGB") makes of one pixel's samples. */
static void expected_pixel(png_kind kind, const uint16_t *s, uint8_t *out)
{
    int n = kind.colour == RGB || kind.colour == RGB_ALPHA ? 3 : 1;
    if (kind.colour == PALETTE) {
        int n_palette = kind.bits < 4 ? 1 << kind.bits : N_PALETTE;
        png_color entry = s[0] < n_palette ? palette_entry(s[0]) : (png_color){0, 0, 0};
        out[0] = entry.red, out[1] = entry.green, out[2] = entry.blue;
        return;
    }
    for (int c = 0; c < n; c++)
        out[c] = (uint8_t)(kind.bits < 8         ? s[c] * 255 / ((1 << kind.bits) - 1)
                           : kind.bits == 8      ? s[c]
                           : kind.colour == GREY ? (s[c] > 255 ? 255 : s[c])
                                                 : s[c] >> 8);
}

static uint16_t *make_samples(png_kind kind, int w, int h, uint64_t *dice)
{
    int n = w * h * samples_of(kind.colour);
    uint16_t *samples = malloc((size_t)n * sizeof *samples);
    int most = (1 << kind.bits) - 1;
    for (int i = 0; i < n; i++) /* half of the 16-bit ones small, where grey is not clipped */
        samples[i] = (uint16_t)roll_between(dice, 0, i % 2 && most > 400 ? 400 : most);
    return samples;
}

static file make_png(png_kind kind, bool is_interlaced, int w, int h, uint64_t *dice)
{
    uint16_t *samples = make_samples(kind, w, h, dice);
    file f = encode_png(kind, is_interlaced, samples, w, h);
    free(samples);
    return f;
}

static void check_kind(pen__decoder *dec, png_kind kind, bool is_interlaced, int w, int h,
                       uint64_t *dice)
{
    int n = samples_of(kind.colour);
    bool is_grey = kind.colour == GREY || kind.colour == GREY_ALPHA;
    int ch = is_grey ? 1 : 3;
    uint16_t *samples = make_samples(kind, w, h, dice);
    uint8_t *whole = malloc((size_t)(w * h * ch));
    for (int i = 0; i < w * h; i++)
        expected_pixel(kind, samples + i * n, whole + i * ch);
    file f = encode_png(kind, is_interlaced, samples, w, h);
    pen_image_info info;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    assert_int_equal(info.is_grey, is_grey);
    assert_int_equal(info.bits, kind.bits);
    assert_int_equal(info.is_progressive, is_interlaced);
    char name[64];
    snprintf(name, sizeof name, "colour %d, %d bits, %dx%d", kind.colour, kind.bits, w, h);
    check_window(dec, f, (pen__rect){0, 0, w, h}, whole, w, ch, name);
    for (int i = 0; i < 10; i++)
        check_window(dec, f, random_window(dice, w, h), whole, w, ch, name);
    free(samples), free(whole), free(f.data);
}

static void every_kind_of_png_decodes_to_its_samples(void **state)
{
    uint64_t dice = 1;
    for (int k = 0; k < N_KINDS; k++)
        for (int w = 1; w <= 20; w += w < 10 ? 1 : 5)
            for (int h = 1; h <= 18; h += h < 10 ? 1 : 4)
                for (int is_interlaced = 0; is_interlaced < 2; is_interlaced++)
                    check_kind(*state, kinds[k], is_interlaced, w, h, &dice);
}

static void truncations_and_flips_are_survived(void **state)
{
    uint64_t dice = 2;
    for (int k = 0; k < N_KINDS; k++)
        for (int is_interlaced = 0; is_interlaced < 2; is_interlaced++) {
            file f = make_png(kinds[k], is_interlaced, 13, 11, &dice);
            check_truncations(*state, f, &dice);
            check_flips(*state, f, 100, &dice);
            free(f.data);
        }
}

static uint32_t checksum(const uint8_t *data, size_t len)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

static void put_be32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Damage with its checksum put right reaches what lies behind the checksum. */
static void flips_with_right_checksums_are_survived(void **state)
{
    uint64_t dice = 3;
    for (int k = 0; k < N_KINDS; k++) {
        file f = make_png(kinds[k], k % 2, 13, 11, &dice);
        for (int i = 0; i < 200; i++) {
            file bad = copy_of(f.data, f.len);
            bad.data[roll_between(&dice, 16, (int)f.len - 17)] = (uint8_t)roll(&dice);
            for (size_t at = 8; at + 12 <= bad.len;) {
                size_t n = pen__be32(bad.data + at);
                if (n > bad.len - at - 12)
                    break;
                put_be32(bad.data + at + 8 + n, checksum(bad.data + at + 4, n + 4));
                at += n + 12;
            }
            check_survives(*state, bad, &dice);
            free(bad.data);
        }
        free(f.data);
    }
}

static void checksums_count_in_the_header_and_not_in_the_data(void **state)
{
    uint64_t dice = 4;
    file f = make_png(kinds[5], false, 13, 11, &dice);
    uint8_t dst[13 * 11 * 3];
    pen__rect all = {0, 0, 13, 11};
    f.data[f.len - 13] ^= 1; /* the last byte of IDAT's */
    assert_int_equal(decode_into(*state, f, all, dst, NULL), 0);
    f.data[8 + 8 + 13] ^= 1; /* the first of IHDR's */
    pen_error err;
    assert_int_equal(decode_into(*state, f, all, dst, &err), PEN_ECORRUPT);
    assert_int_equal(err.offset, 8);
    free(f.data);
}

static void bombs_are_refused_by_their_header(void **state)
{
    (void)state;
    uint64_t dice = 4;
    file f = make_png(kinds[5], false, 13, 11, &dice);
    pen_image_info info;
    for (uint32_t side = 20000; side; side = side == 20000   ? 70000
                                             : side == 70000 ? 0xFFFFFFFF
                                                             : 0) {
        put_be32(f.data + 16, side);
        put_be32(f.data + 20, side == 20000 ? side : 1);
        put_be32(f.data + 29, checksum(f.data + 12, 17));
        assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), PEN_ELIMIT);
    }
    put_be32(f.data + 16, 0);
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), PEN_ECORRUPT);
    free(f.data);
}

static void a_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    uint64_t dice = 6;
    for (int is_interlaced = 0; is_interlaced < 2; is_interlaced++) {
        file f = make_png(kinds[5], is_interlaced, 40, 40, &dice);
        assert_true(check_failing_memory(f, (pen__rect){0, 0, 40, 40}) > 5);
        free(f.data);
    }
}

static void cancelling_is_noticed_between_rows(void **state)
{
    (void)state;
    uint64_t dice = 7;
    file f = make_png(kinds[5], false, 13, 11, &dice);
    uint8_t dst[13 * 11 * 3];
    pen_image_info info;
    atomic_bool cancel = true;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    pen__decode_job job = {f.data, f.len, &info, {0, 0, 13, 11}, dst, &cancel, NULL, NULL};
    assert_int_equal(pen__png_decode(&job), PEN_ECANCELED);
    free(f.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_png_decodes_to_its_samples),
        cmocka_unit_test(truncations_and_flips_are_survived),
        cmocka_unit_test(flips_with_right_checksums_are_survived),
        cmocka_unit_test(checksums_count_in_the_header_and_not_in_the_data),
        cmocka_unit_test(bombs_are_refused_by_their_header),
        cmocka_unit_test(a_failing_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(cancelling_is_noticed_between_rows),
    };
    return cmocka_run_group_tests(tests, set_up_decoder, tear_down_decoder);
}
