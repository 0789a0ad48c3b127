/* test_jpeg_window.c - the own JPEG decoder against libjpeg: same pixels where it takes
 * a file, same verdict where it does not. */
#include "jpegs.h"

#include "base/mem.h"
#include "ops/jpeg_extent.h"

static int set_up(void **state)
{
    static jpeg_ways ways;
    *state = &ways;
    return jpeg_ways_init(&ways);
}

static int tear_down(void **state)
{
    jpeg_ways_fini(*state);
    return 0;
}

static int64_t n_own(const jpeg_ways *p)
{
    return pen__decoder_jpeg_counts(p->own).n_own;
}

/* The same verdict, and where it is good the same pixels and none behind them; rows that go to a
 * sink included. */
static void check_alike(jpeg_ways *p, file f, pen__rect window, const char *name)
{
    pen_image_info info;
    if (pen_image_probe(f.data, f.len, &info, NULL) < 0)
        return;
    size_t n = (size_t)window.w * (size_t)window.h * (size_t)pen__decode_channels(&info);
    enum { LIBRARY, OWN, LIBRARY_ROWS, OWN_ROWS, N_WAYS };
    uint8_t *px[N_WAYS];
    pen_error err[N_WAYS] = {{0}};
    int rc[N_WAYS];
    for (int i = 0; i < N_WAYS; i++) {
        pen__decoder *dec = i & OWN ? p->own : p->library;
        px[i] = malloc(n + 8);
        memset(px[i], 0xA5, n + 8);
        rc[i] = (i < LIBRARY_ROWS ? decode_into : collect_into)(dec, f, window, px[i], &err[i]);
        if (rc[i] != rc[0] || err[i].offset != err[0].offset ||
            strcmp(err[i].text, err[0].text) != 0)
            fail_msg("%s, way %d: %d %s instead of %d %s", name, i, rc[i], err[i].text, rc[0],
                     err[0].text);
        if (rc[i] == 0 && memcmp(px[i], px[0], n + 8) != 0)
            fail_msg("%s, way %d: window %d,%d %dx%d of %dx%d differs", name, i, window.x, window.y,
                     window.w, window.h, info.width, info.height);
    }
    for (int i = 0; i < N_WAYS; i++)
        free(px[i]);
}

static void check_windows(jpeg_ways *p, file f, int w, int h, int n_windows, uint64_t *dice,
                          const char *name)
{
    check_alike(p, f, (pen__rect){0, 0, w, h}, name);
    for (int i = 0; i < n_windows; i++)
        check_alike(p, f, random_window(dice, w, h), name);
}

/* Sizes from 1x1 on.  Only images too narrow to be interpolated are left to libjpeg. */
static void ordinary_files_of_all_sizes_are_decoded_exactly_and_by_us(void **state)
{
    static const int qualities[] = {1, 30, 75, 95, 100};
    jpeg_ways *p = *state;
    uint64_t dice = 21;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 120; i++) {
            int most = i % 10 == 9 ? 200 : 40;
            int w = roll_between(&dice, 1, most), h = roll_between(&dice, 1, most);
            file f = make_jpeg(&ordinary_kinds[k], w, h, (uint64_t)i, qualities[i % 5]);
            int64_t before = n_own(p);
            check_windows(p, f, w, h, 12, &dice, ordinary_kinds[k].name);
            assert_int_equal(n_own(p) - before, is_narrow(&ordinary_kinds[k], w) ? 0 : 2 * 13);
            free(f.data);
        }
}

/* Edges of MCUs, blocks and the image, each with each. */
static void windows_at_every_edge_are_exact(void **state)
{
    static const int sides[] = {1, 2, 7, 8, 9, 14, 15, 16, 17, 30, 31, 32, 33};
    enum { W = 50, H = 46, N = sizeof sides / sizeof sides[0] };
    jpeg_ways *p = *state;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], W, H, 4, 90);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                int a = sides[i], b = sides[j];
                check_alike(p, f, (pen__rect){a, b, W - a, H - b}, ordinary_kinds[k].name);
                check_alike(p, f, (pen__rect){0, 0, a, b}, ordinary_kinds[k].name);
                check_alike(p, f, (pen__rect){a, b, 1, 1}, ordinary_kinds[k].name);
            }
        free(f.data);
    }
}

/* Black and white checks at the coarsest setting: values go as far as they do. */
static void harsh_pictures_are_exact(void **state)
{
    enum { W = 70, H = 60 };
    jpeg_ways *p = *state;
    uint64_t dice = 6;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int quality = 1; quality <= 100; quality += 9) {
            size_t n = (size_t)(W * H * ordinary_kinds[k].channels);
            uint8_t *px = malloc(n);
            for (size_t i = 0; i < n; i++)
                px[i] = roll(&dice) % 2 ? 255 : 0;
            file f = encode_jpeg(&ordinary_kinds[k], px, W, H, quality);
            int64_t before = n_own(p);
            check_windows(p, f, W, H, 4, &dice, ordinary_kinds[k].name);
            assert_int_equal(n_own(p) - before, 2 * 5);
            free(px), free(f.data);
        }
}

static void unusual_files_are_left_to_libjpeg(void **state)
{
    jpeg_ways *p = *state;
    uint64_t dice = 2;
    for (int k = 0; k < N_UNUSUAL_KINDS; k++) {
        file f = make_jpeg(&unusual_kinds[k], 40, 40, 1, 80);
        pen__jpeg_counts before = pen__decoder_jpeg_counts(p->own);
        check_windows(p, f, 40, 40, 4, &dice, unusual_kinds[k].name);
        pen__jpeg_counts after = pen__decoder_jpeg_counts(p->own);
        assert_int_equal(after.n_foreign - before.n_foreign, 2 * 5);
        assert_int_equal(after.n_own, before.n_own);
        assert_int_equal(after.n_flawed, before.n_flawed);
        free(f.data);
    }
    assert_int_equal(pen__decoder_jpeg_counts(p->library).n_foreign, 0);
}

/* --- damage --- */

static file flip(file f, uint64_t *dice)
{
    file bad = copy_of(f.data, f.len);
    for (int n = roll_between(dice, 1, 3); n > 0; n--) {
        size_t at = roll(dice) % bad.len;
        switch (roll(dice) % 4) {
        case 0:
            bad.data[at] = (uint8_t)roll(dice);
            break;
        case 1:
            bad.data[at] ^= (uint8_t)(1U << roll(dice) % 8);
            break;
        case 2:
            bad.data[at] = 0xFF;
            break;
        default: /* a marker out of nowhere */
            bad.data[at] = 0xFF;
            if (at + 1 < bad.len)
                bad.data[at + 1] = (uint8_t)roll_between(dice, 0xD0, 0xDA);
        }
    }
    return bad;
}

static file shorten(file f, uint64_t *dice)
{
    size_t len = roll(dice) % f.len, at = roll(dice) % f.len, n = roll(dice) % 20;
    if (roll(dice) % 2)
        return copy_of(f.data, len);
    n = n < f.len - at ? n : f.len - at; /* bytes lost in the middle */
    file bad = copy_of(f.data, f.len - n);
    memcpy(bad.data + at, f.data + at + n, f.len - at - n);
    return bad;
}

static void damaged_files_have_libjpegs_verdict_and_pixels(void **state)
{
    jpeg_ways *p = *state;
    uint64_t dice = 77;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], 60, 75, 3, 50 + 4 * k);
        for (int i = 0; i < 1000; i++) {
            file bad = i % 3 ? flip(f, &dice) : shorten(f, &dice);
            pen_image_info info;
            if (pen_image_probe(bad.data, bad.len, &info, NULL) == 0 && info.width <= 4096 &&
                info.height <= 4096) {
                check_alike(p, bad, (pen__rect){0, 0, info.width, info.height},
                            ordinary_kinds[k].name);
                check_alike(p, bad, random_window(&dice, info.width, info.height),
                            ordinary_kinds[k].name);
            }
            free(bad.data);
        }
        free(f.data);
    }
    assert_true(pen__decoder_jpeg_counts(p->own).n_flawed > 1000);
}

/* How far libjpeg reads for a window is part of its verdict on short files. */
static void files_cut_anywhere_have_libjpegs_verdict_for_any_rows(void **state)
{
    enum { W = 40, H = 49 };
    jpeg_ways *p = *state;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], W, H, 3, 40);
        for (size_t len = f.len / 3; len <= f.len; len += 1 + len % 5) {
            file cut = copy_of(f.data, len);
            for (int y = (int)len % 3; y < H; y += 3)
                check_alike(p, cut, (pen__rect){3, y / 2, 20, y - y / 2 + 1},
                            ordinary_kinds[k].name);
            free(cut.data);
        }
        free(f.data);
    }
}

/* Sound code, but values that no encoder writes. */
static void absurd_quantisers_give_libjpegs_pixels(void **state)
{
    jpeg_ways *p = *state;
    uint64_t dice = 31;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 40; i++) {
            file f = make_jpeg(&ordinary_kinds[k], 33, 33, (uint64_t)i, 70);
            for (size_t at = 2; f.data[at + 1] != 0xDA;
                 at += 2 + ((size_t)f.data[at + 2] << 8 | f.data[at + 3]))
                if (f.data[at + 1] == 0xDB)
                    for (int q = 0; q < 64; q++)
                        if (roll(&dice) % 4 == 0)
                            f.data[at + 5 + (size_t)q] = (uint8_t)roll(&dice);
            check_windows(p, f, 33, 33, 2, &dice, ordinary_kinds[k].name);
            free(f.data);
        }
}

/* --- marks --- */

/* Same verdict and pixels with the entry as from libjpeg; whether it was used. */
static bool check_with_marks(jpeg_ways *p, file f, file entry, pen__rect window, const char *name)
{
    pen_image_info info;
    if (pen_image_probe(f.data, f.len, &info, NULL) < 0)
        return false;
    size_t n = (size_t)window.w * (size_t)window.h * (size_t)pen__decode_channels(&info);
    uint8_t *px[3];
    pen_error err[3] = {{0}};
    int rc[3];
    int64_t before = pen__decoder_jpeg_counts(p->own).n_indexed;
    for (int i = 0; i < 3; i++) {
        px[i] = malloc(n + 8);
        memset(px[i], 0xA5, n + 8);
        if (i > 0)
            pen__decoder_give_marks(p->own, entry.data, entry.len);
        rc[i] = (i < 2 ? decode_into : collect_into)(i ? p->own : p->library, f, window, px[i],
                                                     &err[i]);
        if (rc[i] != rc[0] || strcmp(err[i].text, err[0].text) != 0)
            fail_msg("%s, way %d: %d %s instead of %d %s", name, i, rc[i], err[i].text, rc[0],
                     err[0].text);
        if (rc[i] == 0 && memcmp(px[i], px[0], n + 8) != 0)
            fail_msg("%s, way %d: window %d,%d %dx%d of %dx%d differs", name, i, window.x, window.y,
                     window.w, window.h, info.width, info.height);
    }
    for (int i = 0; i < 3; i++)
        free(px[i]);
    return pen__decoder_jpeg_counts(p->own).n_indexed == before + 2;
}

static void windows_with_marks_are_exact(void **state)
{
    jpeg_ways *p = *state;
    uint64_t dice = 5;
    int n_marked = 0;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 12; i++) {
            int w = roll_between(&dice, 60, 300), h = roll_between(&dice, 50, 260);
            file f = marked_file(&ordinary_kinds[k], w, h, (uint64_t)i);
            file entry = gather(p->own, f, no_marks, (pen__rect){0, 0, w, h});
            bool has_marks = entry.len > 0; /* or they were not worth their room */
            n_marked += has_marks;
            assert_true(entry.len <= f.len / 40);
            for (int j = 0; j < 25; j++)
                assert_int_equal(check_with_marks(p, f, entry, random_window(&dice, w, h),
                                                  ordinary_kinds[k].name),
                                 has_marks);
            assert_int_equal(
                check_with_marks(p, f, entry, (pen__rect){0, 0, w, h}, ordinary_kinds[k].name),
                has_marks);
            free(entry.data), free(f.data);
        }
    assert_true(n_marked > N_ORDINARY_KINDS * 12 / 2);
}

/* Epoch after epoch an entry knows more rows, until it knows all; then nothing is new. */
static void entries_grow_with_the_windows(void **state)
{
    enum { W = 150, H = 200 };
    jpeg_ways *p = *state;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, 3), entry = {0};
        size_t len = 0;
        for (int y = 30; y <= H; y += 34) {
            pen__rect window = {20, y - 20, 70, 20};
            file more = gather(p->own, f, entry, window);
            assert_true(more.len > len);
            free(entry.data);
            entry = more;
            len = entry.len;
            for (int end = y - 20; end < H; end += 13)
                assert_true(check_with_marks(p, f, entry,
                                             (pen__rect){11, end / 2, 90, end - end / 2 + 1},
                                             ordinary_kinds[k].name));
        }
        file nothing = gather(p->own, f, entry, (pen__rect){0, 0, W, H});
        assert_int_equal(nothing.len, 0);
        free(nothing.data), free(entry.data), free(f.data);
    }
}

/* Another file's entry, one of an older version of the file, and damaged ones. */
static void entries_that_do_not_fit_are_not_used(void **state)
{
    enum { W = 160, H = 120 };
    jpeg_ways *p = *state;
    uint64_t dice = 8;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, 1),
             g = marked_file(&ordinary_kinds[k], W, H, 2);
        const pen__rect all = {0, 0, W, H};
        file entry = gather(p->own, f, no_marks, all);
        assert_false(check_with_marks(p, g, entry, all, ordinary_kinds[k].name));
        for (int i = 0; i < 40; i++) {
            file bad = copy_of(entry.data, entry.len);
            bad.data[roll(&dice) % bad.len] ^= (uint8_t)(1U << roll(&dice) % 8);
            assert_false(
                check_with_marks(p, f, bad, random_window(&dice, W, H), ordinary_kinds[k].name));
            bad.len = roll(&dice) % entry.len;
            assert_false(
                check_with_marks(p, f, bad, random_window(&dice, W, H), ordinary_kinds[k].name));
            free(bad.data);
            file changed = copy_of(f.data, f.len);
            changed.data[f.len / 2 + (size_t)i] ^= 1;
            assert_false(check_with_marks(p, changed, entry, all, ordinary_kinds[k].name));
            free(changed.data);
        }
        free(entry.data), free(f.data), free(g.data);
    }
}

/* Whoever can write the file of entries can put their checksums right, too.  Then marks may be
 * believed that lead elsewhere, but only inside the buffers, and a good file stays good. */
static void forged_entries_do_no_harm(void **state)
{
    enum { W = 160, H = 120, N_PIXELS = W * H * 3 };
    jpeg_ways *p = *state;
    uint64_t dice = 9;
    uint8_t *px = malloc(N_PIXELS + 8);
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, 4);
        file entry = gather(p->own, f, no_marks, (pen__rect){0, 0, W, H});
        for (int i = 0; i < 150; i++) {
            file bad = forge(entry, i % 2, &dice);
            pen__rect window = i % 5 ? random_window(&dice, W, H) : (pen__rect){0, 0, W, H};
            memset(px, 0xA5, N_PIXELS + 8);
            size_t end = (size_t)window.w * (size_t)window.h * (size_t)ordinary_kinds[k].channels;
            pen__decoder_give_marks(p->own, bad.data, bad.len);
            assert_int_equal(decode_into(p->own, f, window, px, NULL), 0);
            for (size_t j = end; j < end + 8; j++)
                assert_int_equal(px[j], 0xA5);
            free(bad.data);
        }
        free(entry.data), free(f.data);
    }
    free(px);
}

/* --- parts of files --- */

/* The file with nothing but what a window is said to need; no data: all of it. */
static file only_extent(file f, file entry, pen__rect window, size_t *n_missing)
{
    pen__jpeg_marks_about about;
    pen__jpeg_extent extent;
    pen_image_info info;
    assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
    if (!pen__jpeg_marks_peek(entry.data, entry.len, &about) ||
        !pen__jpeg_extent_of(&extent, entry.data, entry.len, &about, f.data, f.len, &info, window))
        return (file){0};
    file part = copy_of(f.data, f.len);
    for (size_t i = about.scan_at; i < f.len; i++)
        if (i < extent.begin || i >= extent.end)
            part.data[i] = i % 3 ? 0xFF : 0xD9; /* markers are the worst that can be there */
    *n_missing += f.len - about.scan_at - (extent.end - extent.begin);
    return part;
}

static void parts_are_enough_for_windows(void **state)
{
    jpeg_ways *p = *state;
    uint64_t dice = 12;
    size_t n_missing = 0;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 8; i++) {
            int w = roll_between(&dice, 60, 300), h = roll_between(&dice, 120, 400);
            file f = marked_file(&ordinary_kinds[k], w, h, (uint64_t)i);
            file entry = gather(p->own, f, no_marks, (pen__rect){0, 0, w, h});
            uint8_t *px[2] = {malloc((size_t)(w * h * 3)), malloc((size_t)(w * h * 3))};
            for (int n = 0; n < 12 && entry.len > 0; n++) {
                pen__rect window = random_window(&dice, w, h);
                file part = only_extent(f, entry, window, &n_missing);
                assert_non_null(part.data);
                pen__decoder_give_marks(p->own, entry.data, entry.len);
                pen__decoder_give_stamp(p->own, 0, true); /* as when it was gathered */
                assert_int_equal(decode_into(p->own, part, window, px[0], NULL), 0);
                assert_int_equal(decode_into(p->library, f, window, px[1], NULL), 0);
                assert_memory_equal(px[0], px[1],
                                    (size_t)(window.w * window.h * ordinary_kinds[k].channels));
                free(part.data);
            }
            free(px[0]), free(px[1]), free(entry.data), free(f.data);
        }
    assert_true(n_missing > 0);
}

/* Without marks, with those of another file, of another time, or with other bytes: all of the file
 * is asked for. */
static void parts_that_do_not_fit_are_no_verdict(void **state)
{
    enum { W = 160, H = 200 };
    jpeg_ways *p = *state;
    const pen__rect window = {20, 80, 100, 60};
    uint8_t *px = malloc(W * H * 3);
    size_t n_missing = 0;
    file f = marked_file(&ordinary_kinds[9], W, H, 4), g = marked_file(&ordinary_kinds[9], W, H, 5);
    file entry = gather(p->own, f, no_marks, (pen__rect){0, 0, W, H});
    file other = gather(p->own, g, no_marks, (pen__rect){0, 0, W, H});
    file part = only_extent(f, entry, window, &n_missing);
    const file entries[] = {{0}, other, entry, entry};
    for (int i = 0; i < 4; i++) {
        if (i == 3)
            memset(part.data + part.len / 2, 0x5A, 100);
        pen__decoder_give_marks(p->own, entries[i].data, entries[i].len);
        pen__decoder_give_stamp(p->own, i == 2 ? 7 : 0, true); /* of a file that has changed */
        assert_int_equal(decode_into(p->own, part, window, px, NULL), PEN_AGAIN);
    }
    assert_int_equal(decode_into(p->own, f, window, px, NULL), 0); /* the next one is whole again */
    free(px), free(part.data), free(entry.data), free(other.data), free(f.data), free(g.data);
}

/* A stamp is kept with marks, and a new one makes a new entry of the old marks. */
static void entries_have_the_stamp_of_their_file(void **state)
{
    enum { W = 160, H = 120 };
    jpeg_ways *p = *state;
    uint8_t *px = malloc(W * H * 3);
    pen__jpeg_marks_about about;
    file f = marked_file(&ordinary_kinds[9], W, H, 4), entry = {0};
    for (uint64_t stamp = 7; stamp < 9; stamp++) {
        const void *found;
        pen__decoder_give_marks(p->own, entry.data, entry.len);
        pen__decoder_give_stamp(p->own, stamp, false);
        assert_int_equal(decode_into(p->own, f, (pen__rect){0, 0, W, H}, px, NULL), 0);
        size_t n = pen__decoder_take_marks(p->own, &found);
        assert_true(n > 0);
        free(entry.data);
        entry = copy_of(found, n);
        assert_true(pen__jpeg_marks_peek(entry.data, entry.len, &about));
        assert_int_equal(about.stamp, stamp);
        assert_true(about.is_complete);
    }
    for (size_t i = 0; i < entry.len; i += 7) {
        entry.data[i] ^= 4;
        assert_false(pen__jpeg_marks_peek(entry.data, entry.len, &about));
        entry.data[i] ^= 4;
    }
    assert_false(pen__jpeg_marks_peek(entry.data, 20, &about));
    free(px), free(entry.data), free(f.data);
}

/* --- memory --- */

static void a_failing_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    file f = make_jpeg(&ordinary_kinds[9], 64, 64, 2, 70);
    /* the decoder, its JPEG part, and the block */
    assert_int_equal(check_failing_memory(f, (pen__rect){0, 0, 64, 64}), 3);
    free(f.data);
}

static void the_second_image_of_a_size_allocates_nothing(void **state)
{
    jpeg_ways *p = *state;
    uint8_t *dst = malloc(64 * 64 * 3);
    for (int k = 3; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], 64, 64, 2, 70);
        assert_int_equal(decode_into(p->own, f, (pen__rect){0, 0, 64, 64}, dst, NULL), 0);
        int64_t before = pen__mem_count();
        assert_int_equal(decode_into(p->own, f, (pen__rect){3, 9, 40, 40}, dst, NULL), 0);
        assert_int_equal(pen__mem_count(), before);
        free(f.data);
    }
    free(dst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordinary_files_of_all_sizes_are_decoded_exactly_and_by_us),
        cmocka_unit_test(windows_at_every_edge_are_exact),
        cmocka_unit_test(harsh_pictures_are_exact),
        cmocka_unit_test(unusual_files_are_left_to_libjpeg),
        cmocka_unit_test(damaged_files_have_libjpegs_verdict_and_pixels),
        cmocka_unit_test(files_cut_anywhere_have_libjpegs_verdict_for_any_rows),
        cmocka_unit_test(absurd_quantisers_give_libjpegs_pixels),
        cmocka_unit_test(windows_with_marks_are_exact),
        cmocka_unit_test(entries_grow_with_the_windows),
        cmocka_unit_test(entries_that_do_not_fit_are_not_used),
        cmocka_unit_test(forged_entries_do_no_harm),
        cmocka_unit_test(parts_are_enough_for_windows),
        cmocka_unit_test(parts_that_do_not_fit_are_no_verdict),
        cmocka_unit_test(entries_have_the_stamp_of_their_file),
        cmocka_unit_test(a_failing_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(the_second_image_of_a_size_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
