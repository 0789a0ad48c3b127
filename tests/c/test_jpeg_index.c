/* test_jpeg_index.c - entries of marks made without decoding, against those that decoding gathers,
 * and what is made with them. */
#include "jpegs.h"

#include "base/cpu.h"
#include "ops/jpeg_cut.h"
#include "ops/jpeg_index.h"

typedef struct tools {
    pen__jpeg_indexer *indexer;
    pen__jpeg_cutter *cutter;
    jpeg_ways ways;
} tools;

static int set_up(void **state)
{
    static tools t;
    *state = &t;
    return jpeg_ways_init(&t.ways) || pen__jpeg_cutter_create(&t.cutter) ||
           pen__jpeg_indexer_create(&t.indexer, NULL);
}

static int tear_down(void **state)
{
    tools *t = *state;
    pen__jpeg_indexer_free(t->indexer);
    pen__jpeg_cutter_free(t->cutter);
    jpeg_ways_fini(&t->ways);
    return 0;
}

static pen__jpeg_indexed make(tools *t, file f)
{
    return pen__jpeg_index(t->indexer, f.data, f.len, NULL, 0);
}

static pen__rect all_of(int w, int h)
{
    return (pen__rect){0, 0, w, h};
}

static void check_entry(pen__jpeg_indexed got, file want, const char *name)
{
    if (got.state != PEN__INDEX_MADE || got.n_bytes != want.len ||
        memcmp(got.marks->bytes, want.data, want.len) != 0)
        fail_msg("%s: state %d, %zu bytes instead of %zu, or others", name, got.state, got.n_bytes,
                 want.len);
}

/* ---- equal to what loaders make ---- */

static void entries_are_those_of_a_decoder(void **state)
{
    tools *t = *state;
    uint64_t dice = 3;
    int n_made = 0;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 24; i++) {
            const jpeg_kind *kind = &ordinary_kinds[k];
            int w = roll_between(&dice, 5, 400), h = roll_between(&dice, 1, 300);
            file f = marked_file(kind, w, h, (uint64_t)i);
            file want = gather(t->ways.own, f, no_marks, all_of(w, h));
            pen__jpeg_indexed got = make(t, f);
            if (want.len > 0)
                check_entry(got, want, kind->name);
            else
                assert_int_equal(got.state, PEN__INDEX_HOPELESS); /* too small */
            n_made += got.state == PEN__INDEX_MADE;
            free(want.data), free(f.data);
        }
    assert_true(n_made > N_ORDINARY_KINDS * 24 / 2);
}

/* Long enough for places to be guessed, in several rounds; with lanes, and without. */
static void entries_of_large_files_are_the_same_with_lanes_and_without(void **state)
{
    enum { W = 1100, H = 700 };
    tools *t = *state;
    pen__jpeg_indexer *single;
    pen__cpu_mask(PEN__CPU_AVX2);
    assert_int_equal(pen__jpeg_indexer_create(&single, NULL), 0);
    pen__cpu_mask(~0U);
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, (uint64_t)k);
        assert_true(f.len > 1 << 18);
        file want = gather(t->ways.own, f, no_marks, all_of(W, H));
        check_entry(make(t, f), want, ordinary_kinds[k].name);
        check_entry(pen__jpeg_index(single, f.data, f.len, NULL, 0), want, ordinary_kinds[k].name);
        free(want.data), free(f.data);
    }
    pen__jpeg_indexer_free(single);
}

/* ---- what was known before ---- */

static void a_complete_entry_is_taken_as_it_is(void **state)
{
    enum { W = 300, H = 200 };
    tools *t = *state;
    file f = marked_file(&ordinary_kinds[9], W, H, 1);
    pen__decoder_give_stamp(t->ways.own, 77, false);
    file known = gather(t->ways.own, f, no_marks, all_of(W, H)); /* with the stamp */
    pen__decoder_give_stamp(t->ways.own, 0, false);
    pen__jpeg_indexed got = pen__jpeg_index(t->indexer, f.data, f.len, known.data, known.len);
    assert_int_equal(got.state, PEN__INDEX_KNOWN);
    assert_int_equal(got.n_bytes, known.len);
    assert_memory_equal(got.marks->bytes, known.data, known.len);
    free(known.data), free(f.data);
}

static void entries_that_are_partial_stale_or_damaged_are_made_anew(void **state)
{
    enum { W = 300, H = 200 };
    tools *t = *state;
    uint64_t dice = 9;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], W, H, 1);
        file whole = gather(t->ways.own, f, no_marks, all_of(W, H));
        file part = gather(t->ways.own, f, no_marks, (pen__rect){9, 9, 50, 80});
        assert_true(part.len > 0 && part.len < whole.len);
        pen__jpeg_indexed got = pen__jpeg_index(t->indexer, f.data, f.len, part.data, part.len);
        check_entry(got, whole, ordinary_kinds[k].name);
        for (int i = 0; i < 40; i++) {
            file bad = copy_of(whole.data, whole.len);
            bad.data[roll(&dice) % bad.len] ^= (uint8_t)(1U << roll(&dice) % 8);
            bad.len = i % 3 ? bad.len : roll(&dice) % bad.len;
            got = pen__jpeg_index(t->indexer, f.data, f.len, bad.data, bad.len);
            check_entry(got, whole, ordinary_kinds[k].name);
            free(bad.data);
        }
        f.data[f.len - 1] ^= 1; /* another file of the same length, and a broken one */
        got = pen__jpeg_index(t->indexer, f.data, f.len, whole.data, whole.len);
        assert_int_equal(got.state, PEN__INDEX_HOPELESS);
        free(whole.data), free(part.data), free(f.data);
    }
}

/* ---- what is made with them ---- */

static file cut_file(tools *t, file f, const pen__jpeg_marks *marks, pen__rect window)
{
    uint8_t *dst = malloc(f.len + 1024);
    pen__rect kept;
    int64_t n =
        pen__jpeg_cut_known(t->cutter, f.data, f.len, window, marks, dst, f.len + 1024, &kept);
    file cut = copy_of(dst, (size_t)n);
    free(dst);
    return cut;
}

/* With the marks, if there are any, and without. */
static void check_cut(tools *t, file f, const pen__jpeg_marks *marks, pen__rect window,
                      const char *name)
{
    file plain = cut_file(t, f, NULL, window), cut = cut_file(t, f, marks, window);
    if (plain.len != cut.len || memcmp(plain.data, cut.data, cut.len) != 0)
        fail_msg("%s: window %d,%d %dx%d: %zu bytes, without marks %zu", name, window.x, window.y,
                 window.w, window.h, cut.len, plain.len);
    free(plain.data), free(cut.data);
}

static void cuts_are_the_same_with_and_without(void **state)
{
    tools *t = *state;
    uint64_t dice = 5;
    for (int k = 0; k < N_ORDINARY_KINDS; k++)
        for (int i = 0; i < 8; i++) {
            int w = roll_between(&dice, 100, 500), h = roll_between(&dice, 80, 400);
            file f = marked_file(&ordinary_kinds[k], w, h, (uint64_t)i);
            pen__jpeg_indexed found = make(t, f);
            assert_int_equal(found.state, PEN__INDEX_MADE);
            for (int j = 0; j < 30; j++)
                check_cut(t, f, found.marks, random_window(&dice, w, h), ordinary_kinds[k].name);
            free(f.data);
        }
}

/* ---- files that are not in order ---- */

static void files_that_our_decoder_does_not_take_have_no_marks(void **state)
{
    tools *t = *state;
    static const uint8_t png[] = "\x89PNG\r\n\x1a\n and so on";
    for (int k = 0; k < N_UNUSUAL_KINDS; k++) {
        file f = marked_file(&unusual_kinds[k], 200, 200, 1);
        assert_int_equal(make(t, f).state, PEN__INDEX_HOPELESS);
        free(f.data);
    }
    file small = make_jpeg(&ordinary_kinds[9], 16, 16, 1, 50), none = copy_of(png, sizeof png);
    assert_int_equal(make(t, small).state, PEN__INDEX_HOPELESS);
    assert_int_equal(make(t, none).state, PEN__INDEX_HOPELESS);
    assert_int_equal(pen__jpeg_index(t->indexer, none.data, 0, NULL, 0).state, PEN__INDEX_HOPELESS);
    free(small.data), free(none.data);
}

/* Whatever a file is like: where our decoder takes all of it, its entry is made and the same; and
 * no cut depends on it. */
static void check_flawed(tools *t, file bad, uint64_t *dice, int n_of[2], const char *name)
{
    pen_image_info info;
    pen__jpeg_indexed got = make(t, bad);
    assert_int_equal(got.marks != NULL, got.state == PEN__INDEX_MADE);
    n_of[got.state == PEN__INDEX_MADE]++;
    if (pen_image_probe(bad.data, bad.len, &info, NULL) != 0 ||
        (int64_t)info.width * info.height > 1 << 20)
        return;
    uint8_t *px = malloc((size_t)info.width * (size_t)info.height * 3);
    const int64_t n_own = pen__decoder_jpeg_counts(t->ways.own).n_own;
    const void *entry;
    pen__decoder_give_marks(t->ways.own, NULL, 0);
    decode_into(t->ways.own, bad, all_of(info.width, info.height), px, NULL);
    const size_t n = pen__decoder_take_marks(t->ways.own, &entry);
    if (pen__decoder_jpeg_counts(t->ways.own).n_own > n_own && n > 0) {
        file want = copy_of(entry, n);
        check_entry(got, want, name);
        free(want.data);
    }
    for (int i = 0; i < 3; i++)
        check_cut(t, bad, got.marks, random_window(dice, info.width, info.height), name);
    free(px);
}

static void damaged_files_have_a_true_entry_or_none(void **state)
{
    tools *t = *state;
    uint64_t dice = 78;
    int n_of[2] = {0};
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], 160, 120, (uint64_t)k);
        for (int i = 0; i < 150; i++) {
            file bad = copy_of(f.data, f.len);
            for (int n = roll_between(&dice, 1, 2); n > 0; n--) {
                size_t at = roll(&dice) % bad.len;
                bad.data[at] = (uint8_t)(i % 3 ? bad.data[at] ^ 1U << roll(&dice) % 8 : 0xFF);
            }
            check_flawed(t, bad, &dice, n_of, ordinary_kinds[k].name);
            free(bad.data);
        }
        free(f.data);
    }
    assert_true(n_of[0] > 200 && n_of[1] > 200);
}

/* Where a scan notices that a file ends depends on where it began, kilobytes before the end. */
static void files_cut_short_have_no_entry(void **state)
{
    tools *t = *state;
    uint64_t dice = 79;
    int n_of[2] = {0}, n = 0;
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], 320, 250, (uint64_t)k);
        for (size_t len = 0; len < f.len; len += 1 + f.len / 30, n++) {
            file bad = copy_of(f.data, len);
            check_flawed(t, bad, &dice, n_of, ordinary_kinds[k].name);
            free(bad.data);
        }
        for (size_t len = f.len - 4; len < f.len; len++, n++) {
            file bad = copy_of(f.data, len);
            check_flawed(t, bad, &dice, n_of, ordinary_kinds[k].name);
            free(bad.data);
        }
        free(f.data);
    }
    assert_int_equal(n_of[0], n);
}

/* ---- cancelling, memory ---- */

static void a_cancelled_file_is_not_given_up_for_good(void **state)
{
    (void)state;
    atomic_bool cancel = true;
    pen__jpeg_indexer *indexer;
    assert_int_equal(pen__jpeg_indexer_create(&indexer, &cancel), 0);
    for (int k = 0; k < N_ORDINARY_KINDS; k++) {
        file f = marked_file(&ordinary_kinds[k], 600, 500, 1);
        for (int i = 0; i < 2; i++) {
            atomic_store(&cancel, i == 0);
            pen__jpeg_indexed got = pen__jpeg_index(indexer, f.data, f.len, NULL, 0);
            assert_int_equal(got.state, i ? PEN__INDEX_MADE : PEN__INDEX_NONE);
            assert_int_equal(got.marks != NULL, i);
        }
        free(f.data);
    }
    pen__jpeg_indexer_free(indexer);
}

static void an_indexer_is_made_or_not_and_a_file_takes_no_memory(void **state)
{
    tools *t = *state;
    const int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int n = 1; rc == PEN_ENOMEM; n++) {
        pen__jpeg_indexer *indexer = NULL;
        pen__mem_fail_at(n);
        rc = pen__jpeg_indexer_create(&indexer, NULL);
        pen__mem_fail_at(0);
        assert_true(rc == 0 ? indexer != NULL : indexer == NULL);
        pen__jpeg_indexer_free(indexer);
        assert_int_equal(pen__mem_live(), live);
    }
    pen__jpeg_indexer_free(NULL);
    file f = marked_file(&ordinary_kinds[9], 500, 400, 1);
    const int64_t before = pen__mem_count();
    assert_int_equal(make(t, f).state, PEN__INDEX_MADE);
    assert_int_equal(pen__mem_count(), before);
    free(f.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_are_those_of_a_decoder),
        cmocka_unit_test(entries_of_large_files_are_the_same_with_lanes_and_without),
        cmocka_unit_test(a_complete_entry_is_taken_as_it_is),
        cmocka_unit_test(entries_that_are_partial_stale_or_damaged_are_made_anew),
        cmocka_unit_test(cuts_are_the_same_with_and_without),
        cmocka_unit_test(files_that_our_decoder_does_not_take_have_no_marks),
        cmocka_unit_test(damaged_files_have_a_true_entry_or_none),
        cmocka_unit_test(files_cut_short_have_no_entry),
        cmocka_unit_test(a_cancelled_file_is_not_given_up_for_good),
        cmocka_unit_test(an_indexer_is_made_or_not_and_a_file_takes_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
