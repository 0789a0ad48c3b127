/* test_pack.c - whatever form a sample travels in, it arrives as the same tensor. */
#include "testing.h"

#include "base/mem.h"
#include "engine/pack.h"
#include "engine/unpack.h"
#include "journeys.h"

enum { W = 150, H = 117 };

/* What most tests need; packers and pipelines may be used again and again. */
typedef struct tools {
    pen__packer *packer;
    pen_pipeline *pipe;
} tools;

static int set_up(void **state)
{
    static tools t;
    *state = &t;
    t.pipe = pipeline_of(0);
    return pen__packer_create(&t.packer, NULL);
}

static int tear_down(void **state)
{
    tools *t = *state;
    pen__packer_free(t->packer);
    pen_pipeline_unref(t->pipe);
    return 0;
}

/* A parcel in an allocation of its own length, so that a sanitizer sees a byte past it. */
static file pack(pen__packer *packer, const pen__pack_order *order, file f)
{
    const size_t cap = pen__parcel_bound(order->pipe, f.len);
    uint8_t *dst = malloc(cap + 8);
    memset(dst + cap, 0xA5, 8);
    pen_error err = {0};
    int64_t n = pen__pack(packer, order, f.data, f.len, NULL, 0, dst, cap, &err);
    if (n < PEN__PARCEL_HEAD)
        fail_msg("%lld: %s", (long long)n, err.text);
    for (int i = 0; i < 8; i++)
        assert_int_equal(dst[cap + (size_t)i], 0xA5);
    file out = {malloc((size_t)n), (size_t)n};
    memcpy(out.data, dst, out.len);
    free(dst);
    return out;
}

static pen__form form_of(file parcel)
{
    return (pen__form)parcel.data[1];
}

/* Pack, unpack, compare; the form it took. */
static pen__form travel(pen__packer *packer, const pen__pack_order *order, file f,
                        const uint8_t *want, const char *name)
{
    const size_t bytes = pen_pipeline_shape((pen_pipeline *)(uintptr_t)order->pipe).bytes;
    file parcel = pack(packer, order, f);
    pen__form form = form_of(parcel);
    uint8_t *got = malloc(bytes);
    memset(got, 0xA5, bytes);
    pen_error err = {0};
    int rc = pen__unpack_run(order->pipe, &order->key, parcel.data, parcel.len, f.len, got, &err);
    if (rc != 0)
        fail_msg("%s, form %d, cut %d: %s", name, form, parcel.data[2], err.text);
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s, form %d, cut %d: other bytes", name, form, parcel.data[2]);
    free(got), free(parcel.data);
    return form;
}

static void every_form_and_cut_arrives_as_the_same_tensor(void **state)
{
    tools *t = *state;
    int n_of_form[PEN__FORM_COUNT] = {0};
    for (int line = 0; line < N_LINES; line++)
        for (int which = 0; which < N_FILES; which++) {
            pen_pipeline *pipe = pipeline_of(line);
            const size_t bytes = pen_pipeline_shape(pipe).bytes;
            const int n_ops = (int)pen_pipeline_op_count(pipe);
            file f = file_of(which, W, H);
            uint8_t *want = malloc(bytes);
            char name[64];
            snprintf(name, sizeof name, "line %d, file %d", line, which);
            pen__pack_order order = {.pipe = pipe, .key = {9, line, which, 0}};
            assert_int_equal(pen_pipeline_run(pipe, &order.key, f.data, f.len, want, bytes, NULL),
                             0);
            for (int i = 0; i < 6; i++) {
                order.max_cut = i < 5 ? i : n_ops;
                const uint32_t where = order.max_cut != 2 ? PEN__FORMS_AT_FURTHEST : 0;
                for (int form = 0; form < PEN__FORM_COUNT; form++) {
                    order.forms = 1U << form | where; /* insists on it */
                    n_of_form[travel(t->packer, &order, f, want, name)]++;
                }
                order.forms = PEN__FORMS_ALL;
                travel(t->packer, &order, f, want, name);
            }
            free(want), free(f.data);
            pen_pipeline_unref(pipe);
        }
    for (int form = 0; form < PEN__FORM_COUNT; form++)
        if (n_of_form[form] == 0)
            fail_msg("no parcel had form %d", form);
}

static void the_smallest_allowed_form_is_taken(void **state)
{
    tools *t = *state;
    for (int which = 0; which < N_FILES; which++)
        for (int n = 0; n < 8; n++) {
            file f = file_of(which, W, H);
            pen__pack_order order = {.pipe = t->pipe, .key = {1, n, 0, 0}, .max_cut = 9};
            size_t least = PEN__PARCEL_HEAD + f.len;
            order.forms = PEN__FORMS_ALL;
            file best = pack(t->packer, &order, f);
            for (int form = 1; form < PEN__FORM_COUNT; form++) {
                order.forms = 1U << form | 1U << PEN__FORM_RAW;
                file one = pack(t->packer, &order, f);
                assert_true(form_of(one) == (pen__form)form || form_of(one) == PEN__FORM_RAW);
                const bool is_guessed = form == PEN__FORM_PIXELS_CODED; /* may be left out */
                least = one.len < least && !is_guessed ? one.len : least;
                free(one.data);
            }
            if (best.len > least)
                fail_msg("file %d: form %d of %zu bytes, there is one of %zu", which, form_of(best),
                         best.len, least);
            free(best.data), free(f.data);
        }
}

static void only_what_is_allowed_is_sent(void **state)
{
    tools *t = *state;
    file f = file_of(4, W, H);
    pen__pack_order order = {.pipe = t->pipe, .forms = 1U << PEN__FORM_PIXELS, .max_cut = 0};
    file parcel = pack(t->packer, &order, f); /* no cut is allowed, so there are no pixels */
    assert_int_equal(form_of(parcel), PEN__FORM_RAW);
    free(parcel.data);
    order.max_cut = 3;
    parcel = pack(t->packer, &order, f);
    assert_int_equal(form_of(parcel), PEN__FORM_PIXELS);
    assert_true(parcel.data[2] == 1 || parcel.data[2] == 2); /* the earliest of equals */
    free(parcel.data);
    order.forms |= PEN__FORMS_AT_FURTHEST;
    parcel = pack(t->packer, &order, f);
    assert_int_equal(parcel.data[2], 3);
    free(parcel.data);
    order.pipe = NULL;
    order.forms = PEN__FORMS_ALL;
    parcel = pack(t->packer, &order, f);
    assert_int_equal(form_of(parcel), PEN__FORM_RAW);
    assert_int_equal(parcel.len, PEN__PARCEL_HEAD + f.len);
    assert_memory_equal(parcel.data + PEN__PARCEL_HEAD, f.data, f.len);
    free(parcel.data), free(f.data);
}

/* Elsewhere images are RGB however grey: policies that are compared with send them so. */
static void grey_pixels_have_all_channels_where_that_is_asked(void **state)
{
    tools *t = *state;
    const pen_shape shape = pen_pipeline_shape(t->pipe);
    const size_t n_pixels = (size_t)shape.width * (size_t)shape.height;
    uint8_t *want = malloc(shape.bytes);
    for (size_t times = 2; times <= 4; times += 2) { /* one channel is shorter, three are not all */
        file f = file_of(11, 30, 30);
        f = with_tail(f, times * n_pixels - f.len);
        pen__pack_order order = {.pipe = t->pipe, .key = {1, 1, 1, 0}, .max_cut = 9};
        assert_int_equal(
            pen_pipeline_run(t->pipe, &order.key, f.data, f.len, want, shape.bytes, NULL), 0);
        for (int ch = 1; ch <= 3; ch += 2) {
            order.forms = 1U << PEN__FORM_PIXELS | (ch == 3 ? PEN__FORMS_AT_FURTHEST : 0);
            file parcel = pack(t->packer, &order, f);
            assert_int_equal(parcel.data[3], ch);
            assert_true(ch == 1 || parcel.len == PEN__PARCEL_HEAD + 3 * n_pixels);
            free(parcel.data);
            assert_int_equal(travel(t->packer, &order, f, want, "grey"), PEN__FORM_PIXELS);
            order.forms |= 1U << PEN__FORM_RAW;
            assert_int_equal(travel(t->packer, &order, f, want, "grey"),
                             (size_t)ch < times ? PEN__FORM_PIXELS : PEN__FORM_RAW);
        }
        free(f.data);
    }
    free(want);
}

/* What an index knows of a JPEG file makes packing quicker, and no parcel different. */
static void marks_change_no_parcel(void **state)
{
    tools *t = *state;
    pen__decoder *dec;
    assert_int_equal(pen__decoder_create(&dec, NULL), 0);
    int n_marked = 0;
    for (int i = 0; i < 24; i++) {
        file f = file_of(1 + i % 5, 500, 400);
        const size_t cap = pen__parcel_bound(t->pipe, f.len);
        uint8_t *plain = malloc(cap), *marked = malloc(cap), *px = malloc(500 * 400 * 3);
        pen__image image = {.px = px};
        pen_image_info info;
        const void *marks;
        assert_int_equal(pen_image_probe(f.data, f.len, &info, NULL), 0);
        pen__decoder_give_marks(dec, NULL, 0);
        const pen__rect all = {0, 0, 500, 400};
        assert_int_equal(pen__decode(dec, f.data, f.len, &info, all, &image, NULL), 0);
        size_t n_marks = pen__decoder_take_marks(dec, &marks);
        n_marked += n_marks > 0;
        pen__pack_order order = {.pipe = t->pipe, .key = {5, i, 0, 0}, .max_cut = 3};
        for (order.forms = 1; order.forms <= PEN__FORMS_ALL; order.forms = order.forms * 2 + 1) {
            int64_t n = pen__pack(t->packer, &order, f.data, f.len, NULL, 0, plain, cap, NULL);
            int64_t m =
                pen__pack(t->packer, &order, f.data, f.len, marks, n_marks, marked, cap, NULL);
            assert_int_equal(n, m);
            assert_memory_equal(plain, marked, (size_t)n);
        }
        free(plain), free(marked), free(px), free(f.data);
    }
    assert_true(n_marked > 12);
    pen__decoder_free(dec);
}

/* Nor do marks that are found on the way, which are given again the next time; whatever the file
 * is. */
static void an_index_changes_no_parcel(void **state)
{
    tools *t = *state;
    uint64_t dice = 4;
    int n_of[4] = {0};
    for (int i = 0; i < 90; i++) {
        file f = file_of(i % N_FILES, 200 + 5 * i, 300);
        if (i % 9 == 8)
            f.len = roll(&dice) % f.len;
        const size_t cap = pen__parcel_bound(t->pipe, f.len);
        uint8_t *plain = malloc(cap), *marked = malloc(cap), entry[PEN__JPEG_MARKS_MAX];
        size_t n_entry = 0;
        pen__pack_order order = {.pipe = t->pipe, .key = {5, i, 0, 0}, .max_cut = 3};
        for (order.forms = 1; order.forms <= PEN__FORMS_ALL; order.forms = order.forms * 2 + 1) {
            order.wants_index = false;
            int64_t n = pen__pack(t->packer, &order, f.data, f.len, NULL, 0, plain, cap, NULL);
            assert_int_equal(pen__packer_indexed(t->packer).state, PEN__INDEX_NONE);
            order.wants_index = true;
            int64_t m =
                pen__pack(t->packer, &order, f.data, f.len, entry, n_entry, marked, cap, NULL);
            assert_int_equal(n, m);
            assert_memory_equal(plain, marked, (size_t)n);
            const pen__jpeg_indexed found = pen__packer_indexed(t->packer);
            n_of[found.state]++;
            assert_int_equal(found.state == PEN__INDEX_KNOWN, n_entry > 0);
            if (order.forms == 1) /* raw: nothing is made of the file */
                assert_int_equal(found.state, PEN__INDEX_NONE);
            if (found.marks)
                memcpy(entry, found.marks->bytes, n_entry = found.n_bytes);
        }
        free(plain), free(marked), free(f.data);
    }
    for (int i = 0; i < 4; i++)
        assert_true(n_of[i] > 9);
}

/* A file with a fault says the same from a parcel as it says here. */
static void faults_are_found_where_they_would_be_without_parcels(void **state)
{
    tools *t = *state;
    const size_t bytes = pen_pipeline_shape(t->pipe).bytes;
    uint8_t *want = malloc(bytes), *got = malloc(bytes);
    uint64_t dice = 77;
    int n_faults = 0;
    for (int i = 0; i < 800; i++) {
        file f = file_of(i % N_FILES, 40, 36);
        if (i % 3 == 0)
            f.len = roll(&dice) % f.len;
        for (int n = i % 3; n > 0; n--)
            f.data[roll(&dice) % f.len] = (uint8_t)roll(&dice);
        pen__pack_order order = {
            .pipe = t->pipe, .key = {3, i, 0, 0}, .max_cut = i % 5, .forms = roll(&dice)};
        int wanted = pen_pipeline_run(t->pipe, &order.key, f.data, f.len, want, bytes, NULL);
        file parcel = pack(t->packer, &order, f);
        int found = pen__unpack_run(t->pipe, &order.key, parcel.data, parcel.len, f.len, got, NULL);
        if (found != wanted || (found == 0 && memcmp(want, got, bytes) != 0))
            fail_msg("round %d, form %d: %d instead of %d", i, form_of(parcel), found, wanted);
        n_faults += wanted != 0;
        free(parcel.data), free(f.data);
    }
    assert_in_range(n_faults, 100, 700);
    free(want), free(got);
}

/* A sample's parcel in a form that is insisted on. */
static file parcel_in_form(pen__packer *packer, const pen_pipeline *pipe, int form, file f)
{
    pen__pack_order order = {
        .pipe = pipe, .key = {1, 1, 1, 0}, .max_cut = 9, .forms = 1U << form, .wants_index = true};
    return pack(packer, &order, f);
}

static void damaged_parcels_do_no_harm(void **state)
{
    tools *t = *state;
    const pen_key key = {1, 1, 1, 0};
    uint8_t *dst = malloc(pen_pipeline_shape(t->pipe).bytes);
    uint64_t dice = 11;
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        file f = file_of(9, 50, 40), parcel = parcel_in_form(t->packer, t->pipe, form, f);
        assert_int_equal(form_of(parcel), form);
        for (size_t n = 0; n < parcel.len; n += n < 400 ? 1 : 97) {
            file copy = {malloc(n ? n : 1), n};
            memcpy(copy.data, parcel.data, n);
            assert_int_equal(pen__unpack_run(t->pipe, &key, copy.data, n, f.len, dst, NULL),
                             PEN_ECORRUPT);
            free(copy.data);
        }
        for (int i = 0; i < 1500; i++) {
            file copy = {malloc(parcel.len), parcel.len};
            memcpy(copy.data, parcel.data, parcel.len);
            size_t at = roll(&dice) % (i % 2 ? PEN__PARCEL_HEAD : parcel.len);
            copy.data[at] ^= (uint8_t)(1U << roll(&dice) % 8);
            pen_error err = {0};
            int rc = pen__unpack_run(t->pipe, &key, copy.data, copy.len, f.len, dst, &err);
            assert_true(rc == 0 || (pen_error_is_data(rc) && err.text[0] != '\0'));
            free(copy.data);
        }
        free(parcel.data), free(f.data);
    }
    free(dst);
}

static void parcels_of_another_sample_are_refused(void **state)
{
    tools *t = *state;
    pen_pipeline *other = pipeline_of(1);
    pen_key key = {1, 1, 1, 0};
    uint8_t *dst = malloc(pen_pipeline_shape(other).bytes);
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        file f = file_of(9, W, H), parcel = parcel_in_form(t->packer, t->pipe, form, f);
        assert_int_equal(
            pen__unpack_run(t->pipe, &key, parcel.data, parcel.len, f.len + 1, dst, NULL),
            PEN_ECORRUPT);
        int rc = pen__unpack_run(other, &key, parcel.data, parcel.len, f.len, dst, NULL);
        const bool has_all = form == PEN__FORM_RAW || form >= PEN__FORM_ZSTD;
        assert_int_equal(rc, has_all ? 0 : PEN_ECORRUPT);
        free(parcel.data), free(f.data);
    }
    free(dst);
    pen_pipeline_unref(other);
}

static void without_memory_the_file_travels_raw(void **state)
{
    tools *t = *state;
    const pen_key key = {1, 1, 1, 0};
    const size_t bytes = pen_pipeline_shape(t->pipe).bytes;
    uint8_t *want = malloc(bytes), *got = malloc(bytes);
    file f = file_of(9, W, H);
    assert_int_equal(pen_pipeline_run(t->pipe, &key, f.data, f.len, want, bytes, NULL), 0);
    const int64_t live = pen__mem_live();
    for (int form = 0; form < PEN__FORM_COUNT; form++)
        for (int n = 1; n < 30; n++) {
            pen__packer *packer = NULL;
            pen__mem_fail_at(n);
            int rc = pen__packer_create(&packer, NULL);
            file parcel = rc == 0 ? parcel_in_form(packer, t->pipe, form, f) : (file){0};
            pen__mem_fail_at(0);
            assert_true(rc == 0 || (rc == PEN_ENOMEM && !packer));
            if (rc == 0) {
                assert_int_equal(
                    pen__unpack_run(t->pipe, &key, parcel.data, parcel.len, f.len, got, NULL), 0);
                assert_memory_equal(got, want, bytes);
            }
            free(parcel.data);
            pen__packer_free(packer);
            assert_int_equal(pen__mem_live(), live);
        }
    free(want), free(got), free(f.data);
}

static void unpacking_without_memory_says_so(void **state)
{
    tools *t = *state;
    const pen_key key = {1, 1, 1, 0};
    uint8_t *dst = malloc(pen_pipeline_shape(t->pipe).bytes);
    file f = file_of(9, W, H);
    for (int form = 0; form < PEN__FORM_COUNT; form++) {
        file parcel = parcel_in_form(t->packer, t->pipe, form, f);
        const int64_t kept = pen__mem_live();
        int rc = PEN_ENOMEM;
        for (int n = 1; rc == PEN_ENOMEM; n++) {
            pen__mem_fail_at(n);
            rc = pen__unpack_run(t->pipe, &key, parcel.data, parcel.len, f.len, dst, NULL);
            pen__mem_fail_at(0);
            assert_int_equal(pen__mem_live(), kept);
        }
        assert_int_equal(rc, 0);
        free(parcel.data);
    }
    free(dst), free(f.data);
}

/* Minutes for one sample: whoever wants it may do that. */
static void what_would_take_for_ever_travels_raw(void **state)
{
    tools *t = *state;
    pen_pipeline *pipe[2];
    pen_error err;
    for (int i = 0; i < 2; i++) {
        const int side = i ? 64 : 2000, kernel = i ? 5 : 511;
        const pen_op ops[] = {pen_op_resize(side), pen_op_center_crop(side, side),
                              pen_op_gaussian_blur(kernel, kernel)};
        assert_int_equal(
            pen_pipeline_create(&pipe[i], ops, 3, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, &err), 0);
    }
    file f = file_of(0, W, H);
    for (int i = 0; i < 2; i++) {
        const pen__pack_order order = {.pipe = pipe[i],
                                       .max_cut = 4,
                                       .forms = 1U << PEN__FORM_PIXELS | PEN__FORMS_AT_FURTHEST};
        file parcel = pack(t->packer, &order, f);
        assert_int_equal(form_of(parcel), i ? PEN__FORM_PIXELS : PEN__FORM_RAW);
        free(parcel.data);
        pen_pipeline_unref(pipe[i]);
    }
    free(f.data);
}

static void too_little_room_is_said(void **state)
{
    tools *t = *state;
    pen__pack_order order = {.forms = PEN__FORMS_ALL};
    uint8_t src[10] = {0}, dst[PEN__PARCEL_HEAD + 10];
    assert_int_equal(pen__pack(t->packer, &order, src, 10, NULL, 0, dst, 9, NULL), PEN_ENOSPC);
    assert_int_equal(pen__pack(t->packer, &order, src, 10, NULL, 0, dst, sizeof dst - 1, NULL),
                     PEN_ENOSPC);
    assert_int_equal(pen__pack(t->packer, &order, src, 10, NULL, 0, dst, sizeof dst, NULL),
                     sizeof dst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_and_cut_arrives_as_the_same_tensor),
        cmocka_unit_test(the_smallest_allowed_form_is_taken),
        cmocka_unit_test(only_what_is_allowed_is_sent),
        cmocka_unit_test(grey_pixels_have_all_channels_where_that_is_asked),
        cmocka_unit_test(marks_change_no_parcel),
        cmocka_unit_test(an_index_changes_no_parcel),
        cmocka_unit_test(faults_are_found_where_they_would_be_without_parcels),
        cmocka_unit_test(damaged_parcels_do_no_harm),
        cmocka_unit_test(parcels_of_another_sample_are_refused),
        cmocka_unit_test(without_memory_the_file_travels_raw),
        cmocka_unit_test(unpacking_without_memory_says_so),
        cmocka_unit_test(what_would_take_for_ever_travels_raw),
        cmocka_unit_test(too_little_room_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
