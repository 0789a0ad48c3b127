/* test_jpeg_cut.c - a window decoded from the cut is the window decoded from the file. */
#include "jpegs.h"
#include "pixels.h"

#include "ops/jpeg_cut.h"
#include "ops/jpeg_frame.h"

typedef struct tools {
    pen__jpeg_cutter *cutter;
    jpeg_ways ways;
} tools;

static int set_up(void **state)
{
    static tools t;
    *state = &t;
    return jpeg_ways_init(&t.ways) ? -1 : pen__jpeg_cutter_create(&t.cutter);
}

static int tear_down(void **state)
{
    tools *t = *state;
    pen__jpeg_cutter_free(t->cutter);
    jpeg_ways_fini(&t->ways);
    return 0;
}

/* The cut into a block of dst_cap bytes, whose guards are checked; empty if it was declined. */
static file cut_file(tools *t, file f, file marks, pen__rect window, size_t dst_cap,
                     pen__rect *kept)
{
    block dst = block_new(dst_cap, 3);
    int64_t n = pen__jpeg_cut(t->cutter, f.data, f.len, window, marks.data, marks.len, dst.at,
                              dst_cap, kept);
    assert_true(n >= 0 && (size_t)n <= dst_cap);
    file cut = copy_of(dst.at, (size_t)n);
    block_free(dst);
    return cut;
}

static size_t window_bytes(pen__rect window)
{
    return (size_t)window.w * (size_t)window.h * 3;
}

/* Both decoders must take the cut and give `px`. */
static void check_cut(tools *t, file cut, pen__rect kept, pen__rect window, const uint8_t *px,
                      const char *name)
{
    size_t n = window_bytes(window);
    uint8_t *got = malloc(n);
    assert_true(kept.x <= window.x && kept.x + kept.w >= window.x + window.w);
    assert_true(kept.y <= window.y && kept.y + kept.h >= window.y + window.h);
    pen_image_info info;
    assert_int_equal(pen_image_probe(cut.data, cut.len, &info, NULL), 0);
    assert_int_equal(info.width, kept.w);
    assert_int_equal(info.height, kept.h);
    pen__rect shifted = {window.x - kept.x, window.y - kept.y, window.w, window.h};
    for (int i = 0; i < 2; i++) {
        pen_error err = {0};
        memcpy(got, px, n);
        memset(got, 0xA5, window_bytes(window) / 3 * (size_t)pen__decode_channels(&info));
        if (decode_into(i ? t->ways.own : t->ways.library, cut, shifted, got, &err) != 0)
            fail_msg("%s, way %d: %s", name, i, err.text);
        if (memcmp(got, px, n) != 0)
            fail_msg("%s, way %d: window %d,%d %dx%d differs, kept %d,%d %dx%d", name, i, window.x,
                     window.y, window.w, window.h, kept.x, kept.y, kept.w, kept.h);
    }
    free(got);
}

/* Cut and compare.  Returns the length of the cut; a file that is flawed may be declined, and
 * one that is not declined must be sound. */
static size_t check_window_of(tools *t, file f, file marks, pen__rect window, const char *name)
{
    pen__rect kept;
    uint8_t *px = calloc(1, window_bytes(window));
    file cut = cut_file(t, f, marks, window, f.len + 1024, &kept);
    if (cut.len > 0) {
        assert_int_equal(decode_into(t->ways.library, f, window, px, NULL), 0);
        check_cut(t, cut, kept, window, px, name);
    }
    free(px), free(cut.data);
    return cut.len;
}

static void cuts_of_all_sizes_decode_to_the_same_pixels(void **state)
{
    static const int qualities[] = {1, 30, 75, 95, 100};
    tools *t = *state;
    uint64_t dice = 3;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 100; i++) {
            const jpeg_kind *kind = &ordinary_kinds[k];
            int most = i % 10 == 9 ? 200 : 60;
            int w = roll_between(&dice, 1, most), h = roll_between(&dice, 1, most);
            file f = make_jpeg(kind, w, h, (uint64_t)i, qualities[i % 5]);
            int64_t before = pen__decoder_jpeg_counts(t->ways.own).n_own;
            for (int j = 0; j < 12; j++) {
                pen__rect window = j ? random_window(&dice, w, h) : (pen__rect){0, 0, w, h};
                size_t n = check_window_of(t, f, no_marks, window, kind->name);
                assert_int_equal(n > 0, !is_narrow(kind, w));
            }
            /* what is cut from an ordinary file is one */
            assert_int_equal(pen__decoder_jpeg_counts(t->ways.own).n_own - before,
                             is_narrow(kind, w) ? 0 : 12);
            free(f.data);
        }
}

static void windows_at_every_edge_are_cut_exactly(void **state)
{
    static const int sides[] = {1, 2, 7, 8, 9, 14, 15, 16, 17, 30, 31, 32, 33, 47, 48};
    enum { H = 46, N = sizeof sides / sizeof sides[0] };
    tools *t = *state;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int w = 49; w <= 52; w++) { /* an MCU of one to four pixels at the right edge */
            const jpeg_kind *kind = &ordinary_kinds[k];
            file f = make_jpeg(kind, w, H, 4, 90);
            for (int i = 0; i < N; i++)
                for (int j = 0; j < N - 2; j++) {
                    int a = sides[i], b = sides[j];
                    const pen__rect windows[] = {
                        {a, b, w - a, H - b}, {0, 0, a, b}, {a, b, 1, 1}, {w - 1, b, 1, 1}};
                    for (int n = 0; n < 4; n++)
                        assert_true(check_window_of(t, f, no_marks, windows[n], kind->name) > 0);
                }
            free(f.data);
        }
}

/* Black and white checks at the coarsest setting: differences go as far as they do. */
static void harsh_pictures_are_cut_exactly(void **state)
{
    enum { W = 70, H = 60 };
    tools *t = *state;
    uint64_t dice = 6;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int quality = 1; quality <= 100; quality += 9) {
            size_t n = (size_t)(W * H * ordinary_kinds[k].channels);
            uint8_t *px = malloc(n);
            for (size_t i = 0; i < n; i++)
                px[i] = (i / 200 + roll(&dice) % 4) % 2 ? 255 : 0;
            file f = encode_jpeg(&ordinary_kinds[k], px, W, H, quality);
            for (int i = 0; i < 6; i++)
                assert_true(check_window_of(t, f, no_marks, random_window(&dice, W, H),
                                            ordinary_kinds[k].name) > 0);
            free(px), free(f.data);
        }
}

static int n_dc_words(file f)
{
    pen__jpeg_frame frame;
    assert_true(pen__jpeg_frame_read(&frame, f.data, f.len));
    return frame.components[0].dc.n_symbols;
}

/* Brightness begins in the middle of its range, and changes little from block to block, so codes
 * made for such a picture have no word for what a cut begins with. */
static void words_that_a_code_lacks_are_appended(void **state)
{
    enum { W = 320, H = 96 };
    tools *t = *state;
    uint64_t dice = 12;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        const jpeg_kind *kind = &ordinary_kinds[k];
        uint8_t *px = malloc((size_t)(W * H * kind->channels));
        for (int i = 0; i < W * H * kind->channels; i++) {
            int x = i / kind->channels % W, up = x < W / 2 ? x : W - 1 - x;
            px[i] = (uint8_t)(128 + up * 120 / (W / 2));
        }
        jpeg_kind optimised = *kind;
        optimised.is_optimised = true;
        optimised.restart_mcus = optimised.restart_rows = 0;
        file f = encode_jpeg(&optimised, px, W, H, 90);
        for (int i = 0; i < 40; i++) {
            pen__rect window = random_window(&dice, W - 120, H), kept;
            window.x += 60;
            assert_true(check_window_of(t, f, no_marks, window, kind->name) > 0);
            file cut = cut_file(t, f, no_marks, window, f.len, &kept);
            assert_true(n_dc_words(cut) > n_dc_words(f));
            free(cut.data);
        }
        free(px), free(f.data);
    }
}

static void only_what_the_window_needs_is_kept(void **state)
{
    enum { W = 400, H = 400 };
    tools *t = *state;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        const jpeg_kind *kind = &ordinary_kinds[k];
        file f = make_jpeg(kind, W, H, 4, 90);
        pen__rect kept;
        file whole = cut_file(t, f, no_marks, (pen__rect){0, 0, W, H}, f.len + 64, &kept);
        file part = cut_file(t, f, no_marks, (pen__rect){100, 100, 200, 200}, f.len, &kept);
        int side = 8 * (kind->channels == 3 ? kind->sampling[0] >> 4 : 1);
        assert_true(whole.len > 0 && whole.len <= f.len + 64);
        assert_true(part.len < whole.len * 31 / 100); /* a quarter, and edges */
        assert_true(kept.w <= 200 + 2 * side && kept.w % side == 0);
        free(f.data), free(whole.data), free(part.data);
    }
}

static void unusual_files_and_windows_outside_are_declined(void **state)
{
    enum { FAR_AWAY = 0x7FFFFFFF };
    static const pen__rect outside[] = {{-1, 0, 9, 9},
                                        {0, -1, 9, 9},
                                        {0, 0, 41, 9},
                                        {0, 0, 9, 41},
                                        {40, 0, 1, 1},
                                        {0, 40, 1, 1},
                                        {0, 0, 0, 9},
                                        {0, 0, 9, 0},
                                        {5, 5, FAR_AWAY, FAR_AWAY},
                                        {FAR_AWAY, FAR_AWAY, 1, 1},
                                        {0, 0, -FAR_AWAY, 1},
                                        {-FAR_AWAY, 0, FAR_AWAY, 1}};
    tools *t = *state;
    pen__rect kept;
    for (int k = 0; k <= N_UNUSUAL_KINDS; k++) { /* and an ordinary one */
        const jpeg_kind *kind = k < N_UNUSUAL_KINDS ? &unusual_kinds[k] : &ordinary_kinds[9];
        file f = make_jpeg(kind, 40, 40, 1, 80);
        file cut = cut_file(t, f, no_marks, (pen__rect){8, 8, 20, 20}, f.len, &kept);
        assert_int_equal(cut.len > 0, k == N_UNUSUAL_KINDS);
        for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
            file none = cut_file(t, f, no_marks, outside[i], f.len, &kept);
            assert_int_equal(none.len, 0);
            free(none.data);
        }
        free(f.data), free(cut.data);
    }
}

static void cuts_fit_into_the_room_there_is_or_are_declined(void **state)
{
    tools *t = *state;
    const pen__rect window = {13, 9, 30, 40};
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], 60, 60, 5, 80);
        pen__rect kept;
        file whole = cut_file(t, f, no_marks, window, f.len, &kept);
        for (size_t room = 0; room <= whole.len; room++) {
            file cut = cut_file(t, f, no_marks, window, room, &kept);
            assert_int_equal(cut.len, room < whole.len ? 0 : whole.len);
            free(cut.data);
        }
        free(f.data), free(whole.data);
    }
}

/* --- damage --- */

static void check_damaged(tools *t, file bad, uint64_t *dice, const char *name)
{
    pen_image_info info;
    pen__rect window = {0, 0, 20, 20};
    if (pen_image_probe(bad.data, bad.len, &info, NULL) == 0 && info.width <= 4096 &&
        info.height <= 4096)
        window = random_window(dice, info.width, info.height);
    check_window_of(t, bad, no_marks, window, name);
}

static void damaged_files_are_declined_or_cut_as_libjpeg_reads_them(void **state)
{
    tools *t = *state;
    uint64_t dice = 78;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], 60, 75, 3, 50 + 4 * k);
        for (int i = 0; i < 1500; i++) {
            file bad = copy_of(f.data, f.len);
            for (int n = roll_between(&dice, 1, 3); n > 0; n--) {
                size_t at = roll(&dice) % bad.len;
                if (i % 3 == 0)
                    bad.data[at] = (uint8_t)(i % 2 ? 0xFF : roll(&dice));
                else
                    bad.data[at] ^= (uint8_t)(1U << roll(&dice) % 8);
            }
            check_damaged(t, bad, &dice, ordinary_kinds[k].name);
            free(bad.data);
        }
        free(f.data);
    }
}

static void files_cut_short_anywhere_are_survived(void **state)
{
    tools *t = *state;
    uint64_t dice = 79;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = make_jpeg(&ordinary_kinds[k], 40, 49, 3, 40);
        for (size_t len = 0; len < f.len; len++) {
            file bad = copy_of(f.data, len);
            check_damaged(t, bad, &dice, ordinary_kinds[k].name);
            free(bad.data);
        }
        free(f.data);
    }
}

/* --- marks --- */

static void marks_change_no_byte_of_a_cut(void **state)
{
    tools *t = *state;
    uint64_t dice = 5;
    int n_marked = 0;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 12; i++) {
            int w = roll_between(&dice, 60, 400), h = roll_between(&dice, 50, 260);
            file f = marked_file(&ordinary_kinds[k], w, h, (uint64_t)i);
            pen__rect known = i % 3 ? (pen__rect){0, 0, w, h} : random_window(&dice, w, h);
            file marks = gather(t->ways.own, f, no_marks, known);
            n_marked += marks.len > 0;
            for (int j = 0; j < 40; j++) {
                pen__rect window = random_window(&dice, w, h), kept[2];
                file plain = cut_file(t, f, no_marks, window, f.len, &kept[0]);
                file cut = cut_file(t, f, marks, window, f.len, &kept[1]);
                assert_int_equal(cut.len, plain.len);
                assert_memory_equal(cut.data, plain.data, plain.len);
                assert_memory_equal(&kept[1], &kept[0], sizeof kept[0]);
                free(cut.data), free(plain.data);
                check_window_of(t, f, marks, window, ordinary_kinds[k].name);
            }
            free(marks.data), free(f.data);
        }
    assert_true(n_marked > N_ORDINARY_KINDS * 12 / 2);
}

static void damaged_marks_change_no_byte_of_a_cut(void **state)
{
    enum { W = 160, H = 120 };
    tools *t = *state;
    uint64_t dice = 8;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, 1);
        file marks = gather(t->ways.own, f, no_marks, (pen__rect){0, 0, W, H});
        for (int i = 0; i < 60; i++) {
            file bad = copy_of(marks.data, marks.len);
            bad.data[roll(&dice) % bad.len] ^= (uint8_t)(1U << roll(&dice) % 8);
            if (i % 3 == 0)
                bad.len = roll(&dice) % bad.len;
            assert_true(
                check_window_of(t, f, bad, random_window(&dice, W, H), ordinary_kinds[k].name) > 0);
            free(bad.data);
        }
        free(marks.data), free(f.data);
    }
}

/* With their checksum put right they may be believed, but lead nowhere outside the buffers. */
static void forged_marks_do_no_harm(void **state)
{
    enum { W = 260, H = 120 };
    tools *t = *state;
    uint64_t dice = 9;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, 4);
        file marks = gather(t->ways.own, f, no_marks, (pen__rect){0, 0, W, H});
        for (int i = 0; i < 200; i++) {
            file bad = forge(marks, i % 2, &dice);
            pen__rect kept;
            file cut = cut_file(t, f, bad, random_window(&dice, W, H), f.len, &kept);
            free(cut.data), free(bad.data);
        }
        free(marks.data), free(f.data);
    }
}

/* --- memory --- */

static void a_cutter_is_one_allocation_and_a_cut_none(void **state)
{
    tools *t = *state;
    pen__jpeg_cutter *cutter;
    int64_t live = pen__mem_live();
    pen__mem_fail_at(1);
    assert_int_equal(pen__jpeg_cutter_create(&cutter), PEN_ENOMEM);
    pen__mem_fail_at(0);
    assert_null(cutter);
    assert_int_equal(pen__mem_live(), live);
    pen__jpeg_cutter_free(NULL);
    uint8_t dst[4096];
    file f = make_jpeg(&ordinary_kinds[9], 64, 64, 2, 50);
    pen__rect kept;
    int64_t before = pen__mem_count();
    assert_true(pen__jpeg_cut(t->cutter, f.data, f.len, (pen__rect){20, 20, 9, 9}, NULL, 0, dst,
                              sizeof dst, &kept) > 0);
    assert_int_equal(pen__mem_count(), before);
    free(f.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_of_all_sizes_decode_to_the_same_pixels),
        cmocka_unit_test(windows_at_every_edge_are_cut_exactly),
        cmocka_unit_test(harsh_pictures_are_cut_exactly),
        cmocka_unit_test(words_that_a_code_lacks_are_appended),
        cmocka_unit_test(only_what_the_window_needs_is_kept),
        cmocka_unit_test(unusual_files_and_windows_outside_are_declined),
        cmocka_unit_test(cuts_fit_into_the_room_there_is_or_are_declined),
        cmocka_unit_test(damaged_files_are_declined_or_cut_as_libjpeg_reads_them),
        cmocka_unit_test(files_cut_short_anywhere_are_survived),
        cmocka_unit_test(marks_change_no_byte_of_a_cut),
        cmocka_unit_test(damaged_marks_change_no_byte_of_a_cut),
        cmocka_unit_test(forged_marks_do_no_harm),
        cmocka_unit_test(a_cutter_is_one_allocation_and_a_cut_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
