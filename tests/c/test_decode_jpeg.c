/* test_decode_jpeg.c - JPEG windows against full decodes by plain libjpeg, over every
 * subsampling and coding; and files that lie. */
#include "decoding.h"

#include <dirent.h>

#include "base/mem.h"
#include "ops/decode_formats.h"

#define SAME(s)    \
    {              \
        s, s, s, s \
    }

static const jpeg_kind kinds[] = {
    {.name = "grey", .channels = 1, .sampling = {0x11}, .as = JCS_GRAYSCALE},
    {.name = "grey, 2x2", .channels = 1, .sampling = {0x22}, .as = JCS_GRAYSCALE},
    {.name = "grey, progressive",
     .channels = 1,
     .sampling = {0x11},
     .as = JCS_GRAYSCALE,
     .is_progressive = true},
    {.name = "4:4:4", .channels = 3, .sampling = SAME(0x11), .as = JCS_YCbCr},
    {.name = "4:4:4 as 2x2",
     .channels = 3,
     .sampling = SAME(0x22),
     .as = JCS_YCbCr,
     .is_in_scans = true},
    {.name = "4:2:2", .channels = 3, .sampling = {0x21, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "4:4:0", .channels = 3, .sampling = {0x12, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "4:2:0", .channels = 3, .sampling = {0x22, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "4:1:1", .channels = 3, .sampling = {0x41, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "1x4", .channels = 3, .sampling = {0x14, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "4:1:0", .channels = 3, .sampling = {0x42, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "2x4", .channels = 3, .sampling = {0x24, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "3x1", .channels = 3, .sampling = {0x31, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "1x3", .channels = 3, .sampling = {0x13, 0x11, 0x11}, .as = JCS_YCbCr},
    {.name = "4x2 over 2x1",
     .channels = 3,
     .sampling = {0x42, 0x21, 0x11},
     .as = JCS_YCbCr,
     .is_in_scans = true},
    {.name = "mixed chroma", .channels = 3, .sampling = {0x22, 0x21, 0x12}, .as = JCS_YCbCr},
    {.name = "coarse luma", .channels = 3, .sampling = {0x11, 0x22, 0x22}, .as = JCS_YCbCr},
    {.name = "4:4:4, progressive",
     .channels = 3,
     .sampling = SAME(0x11),
     .as = JCS_YCbCr,
     .is_progressive = true},
    {.name = "4:2:0, progressive",
     .channels = 3,
     .sampling = {0x22, 0x11, 0x11},
     .as = JCS_YCbCr,
     .is_progressive = true},
    {.name = "4:2:2, progressive",
     .channels = 3,
     .sampling = {0x21, 0x11, 0x11},
     .as = JCS_YCbCr,
     .is_progressive = true},
    {.name = "4:4:0, progressive",
     .channels = 3,
     .sampling = {0x12, 0x11, 0x11},
     .as = JCS_YCbCr,
     .is_progressive = true},
    {.name = "4:2:0, one scan a component",
     .channels = 3,
     .sampling = {0x22, 0x11, 0x11},
     .as = JCS_YCbCr,
     .is_in_scans = true},
    {.name = "4:2:0, restarts",
     .channels = 3,
     .sampling = {0x22, 0x11, 0x11},
     .as = JCS_YCbCr,
     .restart_rows = 1},
    {.name = "4:2:0, arithmetic",
     .channels = 3,
     .sampling = {0x22, 0x11, 0x11},
     .as = JCS_YCbCr,
     .is_arithmetic = true},
    {.name = "4:2:0, arithmetic, progressive",
     .channels = 3,
     .sampling = {0x22, 0x11, 0x11},
     .as = JCS_YCbCr,
     .is_arithmetic = true,
     .is_progressive = true},
    {.name = "RGB", .channels = 3, .sampling = SAME(0x11), .as = JCS_RGB},
    {.name = "RGB, 2x2", .channels = 3, .sampling = {0x11, 0x22, 0x11}, .as = JCS_RGB},
    {.name = "CMYK", .channels = 4, .sampling = SAME(0x11), .as = JCS_CMYK},
    {.name = "YCCK", .channels = 4, .sampling = {0x22, 0x11, 0x11, 0x22}, .as = JCS_YCCK},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* The plainest way to decode; inks become light by Pillow's formula. */
static uint8_t *decode_plainly(file f, int *w, int *h, int *ch)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, f.data, f.len);
    jpeg_read_header(&cinfo, TRUE);
    bool is_ink = cinfo.num_components == 4;
    cinfo.out_color_space = is_ink ? JCS_CMYK : cinfo.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&cinfo);
    *w = (int)cinfo.output_width;
    *h = (int)cinfo.output_height;
    *ch = is_ink ? 3 : cinfo.output_components;
    uint8_t *px = malloc((size_t)*w * (size_t)*h * (size_t)*ch), *out = px;
    uint8_t *row = malloc((size_t)*w * 4);
    while (cinfo.output_scanline < cinfo.output_height) {
        jpeg_read_scanlines(&cinfo, &row, 1);
        for (int x = 0; x < *w; x++)
            for (int c = 0; c < *ch; c++) {
                int ink = is_ink ? 255 - row[4 * x + c] : 0, light = is_ink ? row[4 * x + 3] : 0;
                int covered = (ink * light * 2 + 255) / 510; /* rounded, exact for bytes */
                *out++ = is_ink ? (uint8_t)(light - covered) : row[*ch * x + c];
            }
    }
    free(row);
    jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
    return px;
}

static void check_file(pen__decoder *dec, file f, int n_windows, uint64_t *state, const char *name)
{
    int w, h, ch;
    uint8_t *whole = decode_plainly(f, &w, &h, &ch);
    check_window(dec, f, (pen__rect){0, 0, w, h}, whole, w, ch, name);
    for (int i = 0; i < n_windows; i++)
        check_window(dec, f, random_window(state, w, h), whole, w, ch, name);
    free(whole);
}

/* 29 kinds x 60 sizes x 61 windows: 106,140 in all. */
static void every_window_of_every_kind_equals_the_cut_full_decode(void **state)
{
    enum { N_SIZES = 60, N_WINDOWS = 60 };
    uint64_t dice = 42;
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < N_SIZES; i++) {
            int most = i % 10 == 9 ? 150 : 40;
            int w = roll_between(&dice, 1, most), h = roll_between(&dice, 1, most);
            uint8_t *px = make_picture(w, h, kinds[k].channels, (uint64_t)i);
            file f = encode_jpeg(&kinds[k], px, w, h, i % 3 ? 75 : 98);
            check_file(*state, f, N_WINDOWS, &dice, kinds[k].name);
            free(px);
            free(f.data);
        }
}

/* All windows at the edges of 4:2:0, where upsampling looks across. */
static void every_column_and_row_of_subsampled_files_is_exact(void **state)
{
    enum { W = 53, H = 49 };
    for (int k = 0; k < N_KINDS; k++) {
        uint8_t *px = make_picture(W, H, kinds[k].channels, 5);
        file f = encode_jpeg(&kinds[k], px, W, H, 90);
        int w, h, ch;
        uint8_t *whole = decode_plainly(f, &w, &h, &ch);
        for (int x = 0; x < W; x++)
            check_window(*state, f, (pen__rect){x, x % 7, 1, H - 7}, whole, w, ch, kinds[k].name);
        for (int y = 0; y < H; y++)
            check_window(*state, f, (pen__rect){y % 5, y, W - 5, 1}, whole, w, ch, kinds[k].name);
        free(whole);
        free(px);
        free(f.data);
    }
}

/* The same picture in fewer scans than it was made of: libjpeg smooths it. */
static void windows_of_unfinished_progressive_files_are_exact(void **state)
{
    uint64_t dice = 3;
    uint8_t *px = make_picture(90, 70, 3, 8);
    for (int k = 0; k < N_KINDS; k++) {
        if (!kinds[k].is_progressive || kinds[k].channels != 3)
            continue;
        file f = encode_jpeg(&kinds[k], px, 90, 70, 80);
        int n_scans = 0;
        for (size_t i = 2; i + 1 < f.len; i++) {
            if (f.data[i] != 0xFF || f.data[i + 1] != 0xDA || ++n_scans == 1)
                continue;
            file cut = {malloc(i + 2), i + 2};
            memcpy(cut.data, f.data, i);
            memcpy(cut.data + i, "\xff\xd9", 2);
            check_file(*state, cut, 20, &dice, kinds[k].name);
            free(cut.data);
        }
        assert_true(n_scans > 3);
        free(f.data);
    }
    free(px);
}

/* Tables may come in a stream of their own, here an empty one. */
static void an_image_behind_a_stream_without_one_is_found(void **state)
{
    uint64_t dice = 4;
    uint8_t *px = make_picture(32, 32, 3, 1), *dst = malloc(32 * 32 * 3);
    file f = encode_jpeg(&kinds[7], px, 32, 32, 75), joined = {malloc(f.len + 4), f.len + 4};
    int w, h, ch;
    uint8_t *whole = decode_plainly(f, &w, &h, &ch);
    memcpy(joined.data, "\xff\xd8\xff\xd9", 4);
    memcpy(joined.data + 4, f.data, f.len);
    check_window(*state, joined, (pen__rect){0, 0, w, h}, whole, w, ch, "joined");
    check_truncations(*state, joined, &dice);
    free(px), free(dst), free(whole), free(f.data), free(joined.data);
}

/* A file without quantisation tables must not find those of the file before it. */
static void no_table_survives_from_one_file_to_the_next(void **state)
{
    pen__decoder *dec = *state;
    uint8_t *px = make_picture(32, 32, 3, 1), *first = malloc(32 * 32 * 3),
            *again = malloc(32 * 32 * 3);
    file f = encode_jpeg(&kinds[3], px, 32, 32, 75), other = encode_jpeg(&kinds[3], px, 32, 32, 10);
    file bare = {malloc(f.len), 0}; /* f without its DQT segments */
    for (size_t i = 0; i < f.len;) {
        size_t n = 1;
        if (i + 4 < f.len && f.data[i] == 0xFF && f.data[i + 1] == 0xDB) {
            i += 2 + ((size_t)f.data[i + 2] << 8 | f.data[i + 3]);
            continue;
        }
        memcpy(bare.data + bare.len, f.data + i, n);
        bare.len += n;
        i += n;
    }
    pen__rect all = {0, 0, 32, 32};
    pen_error err;
    assert_int_equal(decode_into(dec, f, all, first, &err), 0);
    assert_int_equal(decode_into(dec, other, all, again, &err), 0);
    assert_int_equal(decode_into(dec, bare, all, again, &err), PEN_ECORRUPT);
    assert_int_equal(decode_into(dec, f, all, again, &err), 0);
    assert_memory_equal(first, again, 32 * 32 * 3);
    free(px), free(first), free(again), free(f.data), free(other.data), free(bare.data);
}

/* --- broken files --- */

static void truncation_at_every_length_is_survived(void **state)
{
    uint64_t dice = 11;
    for (int k = 0; k < N_KINDS; k++) {
        uint8_t *px = make_picture(19, 17, kinds[k].channels, 2);
        file f = encode_jpeg(&kinds[k], px, 19, 17, 60);
        check_truncations(*state, f, &dice);
        free(px);
        free(f.data);
    }
}

static void truncated_entropy_data_are_corrupt_at_their_end(void **state)
{
    uint8_t *px = make_picture(64, 64, 3, 2), *dst = malloc(64 * 64 * 3);
    file f = encode_jpeg(&kinds[7], px, 64, 64, 90);
    pen_error err;
    f.len -= f.len / 4;
    assert_int_equal(decode_into(*state, f, (pen__rect){0, 0, 64, 64}, dst, &err), PEN_ECORRUPT);
    assert_int_equal(err.offset, (int64_t)f.len);
    /* ... but what lies above the damage can be had */
    assert_int_equal(decode_into(*state, f, (pen__rect){0, 0, 64, 16}, dst, &err), 0);
    free(px), free(dst), free(f.data);
}

static void flipped_bytes_are_survived(void **state)
{
    uint64_t dice = 5;
    for (int k = 0; k < N_KINDS; k++) {
        uint8_t *px = make_picture(40, 33, kinds[k].channels, 2);
        file f = encode_jpeg(&kinds[k], px, 40, 33, 70);
        check_flips(*state, f, 300, &dice);
        free(px);
        free(f.data);
    }
}

static size_t find_frame(file f)
{
    for (size_t at = 2;; at += 2 + ((size_t)f.data[at + 2] << 8 | f.data[at + 3]))
        if (f.data[at + 1] == 0xC0)
            return at;
}

static void headers_that_promise_too_much_are_refused(void **state)
{
    uint8_t *px = make_picture(16, 16, 3, 2), *dst = malloc(16 * 16 * 3);
    file f = encode_jpeg(&kinds[7], px, 16, 16, 70);
    size_t frame = find_frame(f);
    pen_image_info info;
    pen_error err;
    memcpy(f.data + frame + 5, "\xff\xdc\xff\xdc", 4); /* 65500 x 65500 */
    assert_int_equal(pen_image_probe(f.data, f.len, &info, &err), PEN_ELIMIT);
    memcpy(f.data + frame + 5, "\x00\x00\x00\x10", 4);
    assert_int_equal(pen_image_probe(f.data, f.len, &info, &err), PEN_ECORRUPT);
    memcpy(f.data + frame + 5, "\x00\x10\x00\x10", 4);
    f.data[frame + 4] = 12;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, &err), 0);
    assert_int_equal(info.bits, 12);
    assert_int_equal(decode_into(*state, f, (pen__rect){0, 0, 16, 16}, dst, &err),
                     PEN_EUNSUPPORTED);
    f.data[frame + 4] = 8;
    f.data[frame + 1] = 0xC3; /* lossless */
    assert_int_equal(decode_into(*state, f, (pen__rect){0, 0, 16, 16}, dst, &err),
                     PEN_EUNSUPPORTED);
    free(px), free(dst), free(f.data);
}

/* --- memory and cancelling --- */

static void a_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    uint8_t *px = make_picture(64, 64, 3, 2);
    file f = encode_jpeg(&kinds[18], px, 64, 64, 70);
    /* the decoder, its JPEG part, and the block */
    assert_int_equal(check_failing_memory(f, (pen__rect){0, 0, 64, 64}), 3);
    free(px), free(f.data);
}

/* libjpeg gets what pen__decode_memory says and no more: long and thin images of
 * every kind show that it is enough. */
static void the_memory_bound_is_enough_for_every_kind(void **state)
{
    static const int sizes[][2] = {{8191, 9}, {9, 8191}, {1021, 517}, {1, 1}};
    uint64_t dice = 8;
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < 4; i++) {
            int w = sizes[i][0], h = sizes[i][1];
            uint8_t *px = make_picture(w, h, kinds[k].channels, 2);
            file f = encode_jpeg(&kinds[k], px, w, h, 30);
            check_file(*state, f, 1, &dice, kinds[k].name);
            free(px), free(f.data);
        }
}

static void the_second_image_of_a_size_allocates_nothing(void **state)
{
    uint8_t *px = make_picture(64, 64, 3, 2), *dst = malloc(64 * 64 * 3);
    file f = encode_jpeg(&kinds[7], px, 64, 64, 70);
    assert_int_equal(decode_into(*state, f, (pen__rect){0, 0, 64, 64}, dst, NULL), 0);
    int64_t before = pen__mem_count();
    assert_int_equal(decode_into(*state, f, (pen__rect){3, 9, 40, 40}, dst, NULL), 0);
    assert_int_equal(pen__mem_count(), before);
    free(px), free(dst), free(f.data);
}

/* Past the check that pen__decode makes before it starts. */
static void check_cancels_between_rows(file f, uint8_t *dst)
{
    atomic_bool cancel = true;
    pen_image_info info;
    pen__jpeg *jpeg;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    pen__decode_job job = {f.data, f.len, &info, {0, 0, 64, 64}, dst, &cancel, NULL, NULL};
    assert_int_equal(pen__jpeg_create(&jpeg), 0);
    assert_int_equal(pen__jpeg_decode(jpeg, &job), PEN_ECANCELED);
    pen__jpeg_free(jpeg);
}

static void a_cancelled_decode_ends_and_the_decoder_lives_on(void **state)
{
    (void)state;
    uint8_t *px = make_picture(64, 64, 3, 2), *dst = malloc(64 * 64 * 3);
    file f = encode_jpeg(&kinds[7], px, 64, 64, 70);
    atomic_bool cancel = true;
    pen__decoder *dec;
    assert_int_equal(pen__decoder_create(&dec, &cancel), 0);
    pen__rect all = {0, 0, 64, 64};
    assert_int_equal(decode_into(dec, f, all, dst, NULL), PEN_ECANCELED);
    check_cancels_between_rows(f, dst);
    atomic_store(&cancel, false);
    assert_int_equal(decode_into(dec, f, all, dst, NULL), 0);
    pen__decoder_free(dec);
    free(px), free(dst), free(f.data);
}

/* --- real files --- */

static file read_file(const char *path)
{
    file f = {0};
    FILE *in = fopen(path, "rb");
    if (!in)
        return f;
    f.data = malloc(1 << 24);
    f.len = fread(f.data, 1, 1 << 24, in);
    fclose(in);
    return f;
}

/* Beside the project, seen from its root or from the build folder. */
static DIR *open_samples(char *path, size_t cap)
{
    const char *roots[] = {getenv("PENSTOCK_SAMPLES"), "../shared/data", "../../shared/data"};
    DIR *folder = NULL;
    for (int i = 0; i < 3 && !folder; i++)
        if (roots[i]) {
            snprintf(path, cap, "%s/imagenet", roots[i]);
            folder = opendir(path);
        }
    return folder;
}

static void windows_of_real_photographs_are_exact(void **state)
{
    char path[1024];
    DIR *folder = open_samples(path, sizeof path);
    if (!folder) {
        print_message("no sample files: PENSTOCK_SAMPLES is not set\n");
        skip();
    }
    uint64_t dice = 9;
    int n_files = 0;
    for (struct dirent *entry; n_files < 60 && (entry = readdir(folder));) {
        char name[2048];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        file f = read_file(name);
        if (f.len > 3 && memcmp(f.data, "\xff\xd8\xff", 3) == 0) {
            check_file(*state, f, 10, &dice, entry->d_name);
            n_files++;
        }
        free(f.data);
    }
    closedir(folder);
    assert_true(n_files > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_of_every_kind_equals_the_cut_full_decode),
        cmocka_unit_test(every_column_and_row_of_subsampled_files_is_exact),
        cmocka_unit_test(windows_of_unfinished_progressive_files_are_exact),
        cmocka_unit_test(an_image_behind_a_stream_without_one_is_found),
        cmocka_unit_test(no_table_survives_from_one_file_to_the_next),
        cmocka_unit_test(truncation_at_every_length_is_survived),
        cmocka_unit_test(truncated_entropy_data_are_corrupt_at_their_end),
        cmocka_unit_test(flipped_bytes_are_survived),
        cmocka_unit_test(headers_that_promise_too_much_are_refused),
        cmocka_unit_test(a_failing_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(the_memory_bound_is_enough_for_every_kind),
        cmocka_unit_test(the_second_image_of_a_size_allocates_nothing),
        cmocka_unit_test(a_cancelled_decode_ends_and_the_decoder_lives_on),
        cmocka_unit_test(windows_of_real_photographs_are_exact),
    };
    return cmocka_run_group_tests(tests, set_up_decoder, tear_down_decoder);
}
