/* test_jpeg_scan.c - coefficients from entropy-coded data against libjpeg's. */
#include "testing.h"

#include "images.h"
#include "ops/jpeg_scan.h"

static const jpeg_kind kinds[] = {
    {.name = "grey", .channels = 1, .sampling = {0x11}, .as = JCS_GRAYSCALE},
    {.name = "grey, 2x2", .channels = 1, .sampling = {0x22}, .as = JCS_GRAYSCALE},
    COLOUR("4:4:4", 0x11, .is_optimised = true),
    COLOUR("4:2:2", 0x21, .restart_mcus = 1),
    COLOUR("4:4:0", 0x12, .restart_mcus = 3, .is_optimised = true),
    COLOUR("4:2:0", 0x22, .restart_rows = 1),
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct bench {
    pen__jpeg_tables tables;
    pen__jpeg_frame frame;
    pen__jpeg_scan scan, other;
    uint8_t chunk[PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK];
    uint8_t other_chunk[PEN__JPEG_CHUNK_BYTES + PEN__JPEG_CHUNK_SLACK];
    bool is_zigzag; /* the order that scans are asked for */
} bench;

static bool start(bench *b, file f)
{
    if (!pen__jpeg_frame_read(&b->frame, f.data, f.len) ||
        !pen__jpeg_scan_start(&b->scan, &b->frame, &b->tables, f.data, f.len, b->chunk) ||
        !pen__jpeg_scan_start(&b->other, &b->frame, &b->tables, f.data, f.len, b->other_chunk))
        return false;
    b->scan.is_zigzag = b->other.is_zigzag = b->is_zigzag;
    const pen__jpeg_mark first = pen__jpeg_first_mark(&b->frame);
    return pen__jpeg_scan_seek(&b->scan, &first, 0, PEN__JPEG_CHUNK_BYTES);
}

static int mcus_in_row(const bench *b)
{
    return (b->frame.width + 8 * b->frame.mcu_h - 1) / (8 * b->frame.mcu_h);
}

static int rows_of_mcus(const bench *b)
{
    return (b->frame.height + 8 * b->frame.mcu_v - 1) / (8 * b->frame.mcu_v);
}

/* libjpeg's coefficients of a file. */
typedef struct reference {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    jvirt_barray_ptr *arrays;
} reference;

static void open_reference(reference *r, file f)
{
    r->cinfo.err = jpeg_std_error(&r->errors);
    jpeg_create_decompress(&r->cinfo);
    jpeg_mem_src(&r->cinfo, f.data, f.len);
    jpeg_read_header(&r->cinfo, TRUE);
    r->arrays = jpeg_read_coefficients(&r->cinfo);
}

static void check_block(reference *r, int c, int x, int y, const int16_t *coefs, int n_coefs,
                        bool is_zigzag)
{
    jpeg_component_info *comp = &r->cinfo.comp_info[c];
    if (x >= (int)comp->width_in_blocks || y >= (int)comp->height_in_blocks)
        return; /* beyond the image: libjpeg does not keep it */
    JBLOCKARRAY rows = r->cinfo.mem->access_virt_barray((j_common_ptr)&r->cinfo, r->arrays[c],
                                                        (JDIMENSION)y, 1, FALSE);
    for (int k = 0; k < 64; k++) {
        int at = pen__jpeg_natural_order[k], value = coefs[is_zigzag ? k : at];
        assert_int_equal(value, rows[0][x][at]);
        assert_true(k < n_coefs || value == 0);
    }
}

static void check_blocks(bench *b, reference *r, int column, int row, const int16_t *blocks,
                         const uint8_t *n_coefs)
{
    int h = b->frame.mcu_h, v = b->frame.mcu_v, n = 0;
    for (int y = 0; y < v; y++)
        for (int x = 0; x < h; x++, n++)
            check_block(r, 0, column * h + x, row * v + y, blocks + 64 * n, n_coefs[n],
                        b->is_zigzag);
    for (int c = 1; c < b->frame.n_components; c++, n++)
        check_block(r, c, column, row, blocks + 64 * n, n_coefs[n], b->is_zigzag);
    assert_int_equal(n, b->scan.n_blocks);
}

static void check_mcu(bench *b, reference *r, int column, int row)
{
    int16_t blocks[PEN__JPEG_MAX_BLOCKS * 64 + PEN__JPEG_BLOCK_SLACK];
    uint8_t n_coefs[PEN__JPEG_MAX_BLOCKS];
    assert_true(pen__jpeg_scan_mcu(&b->scan, blocks, n_coefs));
    check_blocks(b, r, column, row, blocks, n_coefs);
}

/* All MCUs, with every third run of some passed over. */
static void check_scan(bench *b, file f, bool skips)
{
    reference r;
    open_reference(&r, f);
    assert_true(start(b, f));
    for (int y = 0; y < rows_of_mcus(b); y++)
        for (int x = 0; x < mcus_in_row(b);) {
            int left = mcus_in_row(b) - x, n = left < 2 + y % 5 ? left : 2 + y % 5;
            if (skips && (x + y) % 3 == 0) {
                assert_true(pen__jpeg_scan_skip(&b->scan, n));
                x += n;
            } else {
                check_mcu(b, &r, x++, y);
            }
        }
    assert_true(pen__jpeg_scan_is_sound(&b->scan));
    assert_true(pen__jpeg_scan_is_at_end(&b->scan));
    jpeg_destroy_decompress(&r.cinfo);
}

/* Noise at quality 100 fills blocks to their last coefficient. */
static file noisy_file(const jpeg_kind *kind, int w, int h, int quality)
{
    uint64_t dice = (uint64_t)(w * h + quality);
    size_t n = (size_t)(w * h * kind->channels);
    uint8_t *px = malloc(n);
    for (size_t i = 0; i < n; i++)
        px[i] = roll(&dice) % 2 ? (uint8_t)roll(&dice) : (uint8_t)(roll(&dice) % 2 * 255);
    file f = encode_jpeg(kind, px, w, h, quality);
    free(px);
    return f;
}

static void coefficients_equal_those_of_libjpeg(void **state)
{
    static const int qualities[] = {1, 10, 40, 75, 90, 97, 100};
    for (int k = 0; k < N_KINDS; k++)
        for (int q = 0; q < 7; q++)
            for (int noisy = 0; noisy < 2; noisy++) {
                int w = 90 + 13 * q, h = 70 + 9 * k;
                uint8_t *px = make_picture(w, h, kinds[k].channels, (uint64_t)q);
                file f = noisy ? noisy_file(&kinds[k], w, h, qualities[q])
                               : encode_jpeg(&kinds[k], px, w, h, qualities[q]);
                for (int way = 0; way < 4; way++) {
                    ((bench *)*state)->is_zigzag = way & 1;
                    check_scan(*state, f, way & 2);
                }
                free(px), free(f.data);
            }
}

/* More data than a chunk holds, so that MCUs lie across its end. */
static void files_longer_than_a_chunk_are_read_on(void **state)
{
    for (int k = 0; k < N_KINDS; k++) {
        file f = noisy_file(&kinds[k], 500, 301, 95);
        assert_true(f.len > 3 * PEN__JPEG_CHUNK_BYTES);
        check_scan(*state, f, k % 2);
        free(f.data);
    }
}

/* The marks of all MCUs and of the end; the caller frees them. */
static pen__jpeg_mark *marks_of(bench *b, file f)
{
    assert_true(start(b, f));
    int n = mcus_in_row(b) * rows_of_mcus(b);
    pen__jpeg_mark *marks = calloc((size_t)n + 1, sizeof *marks);
    for (int i = 0; i <= n; i++) {
        assert_true(pen__jpeg_scan_tell(&b->scan, &marks[i]));
        assert_true(i == n || pen__jpeg_scan_skip(&b->scan, 1));
    }
    return marks;
}

static void decoding_can_begin_at_every_mcu(void **state)
{
    bench *b = *state;
    for (int k = 0; k < N_KINDS; k++)
        for (int quality = 30; quality < 100; quality += 65) {
            file f = noisy_file(&kinds[k], 90, 75, quality);
            reference r;
            open_reference(&r, f);
            pen__jpeg_mark *marks = marks_of(b, f), arrived;
            int n_columns = mcus_in_row(b), n = n_columns * rows_of_mcus(b);
            for (int i = 0; i < n; i++) {
                int last = i + 1 + i % 5 < n ? i + 1 + i % 5 : n;
                size_t n_bytes = i % 3 ? marks[last].at - marks[i].at + 1 : (size_t)(i % 40);
                assert_true(pen__jpeg_scan_seek(&b->scan, &marks[i], i, n_bytes));
                for (int m = i; m < last; m++)
                    check_mcu(b, &r, m % n_columns, m / n_columns);
                assert_true(pen__jpeg_scan_tell(&b->scan, &arrived));
                assert_memory_equal(&arrived, &marks[last], sizeof arrived);
            }
            assert_true(pen__jpeg_scan_seek(&b->scan, &marks[n], n, 0));
            assert_true(pen__jpeg_scan_is_at_end(&b->scan));
            jpeg_destroy_decompress(&r.cinfo);
            free(marks), free(f.data);
        }
}

/* Two rows at once, in groups of MCUs, some of them passed over. */
static void check_pair(bench *b, reference *r, const pen__jpeg_mark *marks, int rows[2])
{
    enum { MOST = 4 };
    static int16_t blocks[2][MOST * PEN__JPEG_MAX_BLOCKS * 64 + PEN__JPEG_BLOCK_SLACK];
    uint8_t n_coefs[2][MOST * PEN__JPEG_MAX_BLOCKS];
    pen__jpeg_scan *const scans[2] = {&b->scan, &b->other};
    int16_t *const keep[2] = {blocks[0], blocks[1]}, *const skip[2] = {NULL, NULL};
    uint8_t *const counts[2] = {n_coefs[0], n_coefs[1]};
    int n_columns = mcus_in_row(b), n_blocks = b->scan.n_blocks;
    for (int i = 0; i < 2; i++) {
        const pen__jpeg_mark *from = &marks[rows[i] * n_columns], *to = from + n_columns;
        assert_true(
            pen__jpeg_scan_seek(scans[i], from, rows[i] * n_columns, to->at - from->at + 1));
    }
    for (int x = 0, n, turn = rows[0]; x < n_columns; x += n, turn++) {
        n = 1 + turn % MOST < n_columns - x ? 1 + turn % MOST : n_columns - x;
        bool is_kept = turn % 3 != 0;
        assert_true(pen__jpeg_scan_pair(scans, n, is_kept ? keep : skip, counts));
        for (int i = 0; i < 2 * n && is_kept; i++)
            check_blocks(b, r, x + i / 2, rows[i % 2], keep[i % 2] + 64 * n_blocks * (i / 2),
                         counts[i % 2] + n_blocks * (i / 2));
    }
    for (int i = 0; i < 2; i++) {
        pen__jpeg_mark arrived;
        assert_true(pen__jpeg_scan_tell(scans[i], &arrived));
        assert_memory_equal(&arrived, &marks[(rows[i] + 1) * n_columns], sizeof arrived);
    }
}

static void two_rows_at_once_have_the_coefficients_of_each(void **state)
{
    static const int qualities[] = {1, 40, 90, 100};
    bench *b = *state;
    for (int k = 0; k < N_KINDS; k++)
        for (int q = 0; q < 4; q++) {
            file f = noisy_file(&kinds[k], 230 + k, 100 + q, qualities[q]);
            reference r;
            open_reference(&r, f);
            pen__jpeg_mark *marks = marks_of(b, f);
            for (int y = 0; y < 2 * rows_of_mcus(b); y++) {
                b->scan.is_zigzag = b->other.is_zigzag = b->is_zigzag = y % 2;
                check_pair(b, &r, marks, (int[2]){y / 2, (y / 2 * 3 + 1) % rows_of_mcus(b)});
            }
            jpeg_destroy_decompress(&r.cinfo);
            free(marks), free(f.data);
        }
}

/* Whether all MCUs and the end are found in order. */
static bool is_all_in_order(bench *b, file f)
{
    return start(b, f) && pen__jpeg_scan_skip(&b->scan, mcus_in_row(b) * rows_of_mcus(b)) &&
           pen__jpeg_scan_is_sound(&b->scan) && pen__jpeg_scan_is_at_end(&b->scan);
}

static file insert(file f, size_t at, const void *bytes, size_t n)
{
    file out = {malloc(f.len + n), f.len + n};
    memcpy(out.data, f.data, at);
    memcpy(out.data + at, bytes, n);
    memcpy(out.data + at + n, f.data + at, f.len - at);
    return out;
}

static size_t find_marker(file f, size_t from, int marker)
{
    while (f.data[from] != 0xFF || f.data[from + 1] != marker)
        from++;
    return from;
}

/* libjpeg forgives some of this, so it is no error: only not ours. */
static void what_does_not_belong_is_not_in_order(void **state)
{
    bench *b = *state;
    file f = noisy_file(&kinds[5], 64, 64, 60);
    assert_true(is_all_in_order(b, f));
    size_t restart = find_marker(f, b->frame.scan_at, 0xD0), end = f.len - 2;
    const struct {
        size_t at;
        const char *bytes;
        size_t n;
    } extra[] = {
        {restart, "\x55", 1},
        {restart, "\xff\xff", 2},
        {restart, "\xff", 1},
        {restart, "\xff\xd3", 2},
        {end, "\x00", 1},
        {end, "\xff\x00", 2},
        {end, "\xff", 1},
        {end, "\xff\xd1", 2},
        {restart + 2, "\xff\xd0", 2},
        {b->frame.scan_at, "\xff", 1},
    };
    for (size_t i = 0; i < sizeof extra / sizeof extra[0]; i++) {
        file bad = insert(f, extra[i].at, extra[i].bytes, extra[i].n);
        assert_false(is_all_in_order(b, bad));
        free(bad.data);
    }
    f.data[restart + 1] = 0xD1;
    assert_false(is_all_in_order(b, f));
    f.data[restart + 1] = 0xD0;
    for (size_t len = 0; len < f.len; len++) {
        file cut = {malloc(len + 1), len};
        memcpy(cut.data, f.data, len);
        assert_false(is_all_in_order(b, cut));
        free(cut.data);
    }
    free(f.data);
}

static int set_up(void **state)
{
    *state = calloc(1, sizeof(bench));
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
        cmocka_unit_test(coefficients_equal_those_of_libjpeg),
        cmocka_unit_test(files_longer_than_a_chunk_are_read_on),
        cmocka_unit_test(decoding_can_begin_at_every_mcu),
        cmocka_unit_test(two_rows_at_once_have_the_coefficients_of_each),
        cmocka_unit_test(what_does_not_belong_is_not_in_order),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
