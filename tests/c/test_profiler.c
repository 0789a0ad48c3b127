/* test_profiler.c - the figures of a profile are those of the real thing. */
#include "testing.h"

#include <math.h>

#include "base/fail.h"
#include "base/mem.h"
#include "engine/pack.h"
#include "engine/unpack.h"
#include "lines.h"
#include "loading.h"
#include "source/source.h"

static pen_profiler *profiler_of(pen_pipeline *pipe)
{
    pen_profiler *profiler;
    pen_error err;
    if (pen_profiler_create(&profiler, ds, pipe, &err) != 0)
        fail_msg("%s", err.text);
    return profiler;
}

static pen_profile_sample measure(pen_profiler *profiler, int64_t id)
{
    pen_profile_sample sample;
    pen_error err;
    const pen_key key = {.seed = 3, .sample = id, .epoch = 1};
    if (pen_profiler_measure(profiler, &key, &sample, &err) != 0)
        fail_msg("%s", err.text);
    return sample;
}

/* Where `form` behind operation `op` stands. */
static size_t find(const pen_profiler *profiler, pen_profile_form form, size_t op)
{
    for (size_t i = 0; i < pen_profiler_count(profiler); i++) {
        const pen_profile_point point = pen_profiler_point(profiler, i);
        if (point.form == form && point.op == op)
            return i;
    }
    fail_msg("no point of form %d behind operation %zu", form, op);
    return 0;
}

/* Bytes of the payload, where one form is insisted on. */
static double packed_bytes(int64_t id, int max_cut, uint32_t forms)
{
    const size_t len = (size_t)pen_dataset_length(ds, id);
    const size_t bound = pen__parcel_bound(pipe_, len);
    uint8_t *file = malloc(len), *parcel = malloc(bound);
    pen__packer *packer;
    const pen__pack_order order = {.pipe = pipe_,
                                   .key = {.seed = 3, .sample = id, .epoch = 1},
                                   .max_cut = max_cut,
                                   .forms = forms};
    assert_int_equal(pen__packer_create(&packer, NULL), 0);
    assert_int_equal(pen_dataset_read(ds, id, file, len, NULL), len);
    const int64_t n = pen__pack(packer, &order, file, len, NULL, 0, parcel, bound, NULL);
    assert_true(n > 0);
    pen__packer_free(packer);
    free(file), free(parcel);
    return (double)n - PEN__PARCEL_HEAD;
}

static void points_stand_in_the_order_of_the_line(void **state)
{
    (void)state;
    pen_profiler *p = profiler_of(pipe_);
    static const pen_profile_point want[] = {
        {PEN_PROFILE_FILE, 0, 0},   {PEN_PROFILE_JPEG_CUT, 0, 0}, {PEN_PROFILE_PIXELS, 1, 0},
        {PEN_PROFILE_CODED, 1, 0},  {PEN_PROFILE_PIXELS, 2, 1},   {PEN_PROFILE_CODED, 2, 1},
        {PEN_PROFILE_PIXELS, 3, 2}, {PEN_PROFILE_CODED, 3, 2},    {PEN_PROFILE_PIXELS, 4, 3},
        {PEN_PROFILE_CODED, 4, 3},  {PEN_PROFILE_TENSOR, 7, 6},
    };
    assert_int_equal(pen_profiler_count(p), COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        const pen_profile_point got = pen_profiler_point(p, i);
        assert_int_equal(got.form, want[i].form);
        assert_int_equal(got.n_ops, want[i].n_ops);
        assert_int_equal(got.op, want[i].op);
    }
    assert_string_equal(pen_profile_form_name(pen_profiler_point(p, 99).form), "unknown");
    pen_profiler_free(p);
}

static void bytes_are_those_that_a_node_would_send(void **state)
{
    (void)state;
    pen_profiler *p = profiler_of(pipe_);
    for (int64_t id = 0; id < PICTURES; id++) {
        const pen_profile_sample s = measure(p, id);
        const double len = (double)pen_dataset_length(ds, id);
        const double cut = s.points[find(p, PEN_PROFILE_JPEG_CUT, 0)].bytes;
        const double plain = s.points[find(p, PEN_PROFILE_PIXELS, 1)].bytes;
        assert_true(s.points[0].bytes == len && s.points[0].cpu_s == 0);
        if (!isnan(cut) && cut < len)
            assert_true(cut == packed_bytes(id, 0, 1U << PEN__FORM_JPEG_CUT | 1));
        assert_true(plain == 24 * 20 * 3);
        assert_true(plain == packed_bytes(id, 2, 1U << PEN__FORM_PIXELS | PEN__FORMS_AT_FURTHEST));
        assert_true(s.points[find(p, PEN_PROFILE_TENSOR, 6)].bytes == 24 * 20 * 3 * 4);
        assert_true(s.sent.bytes == packed_bytes(id, 99, PEN__FORMS_ALL));
        assert_true(s.sent.bytes <= len && s.sent.cpu_s >= 0);
        assert_true(isnan(s.node_cpu_s)); /* nobody else was asked */
    }
    pen_profiler_free(p);
}

static void what_a_sample_cannot_be_is_no_number(void **state)
{
    (void)state;
    const pen_op val[] = {pen_op_resize(40), pen_op_center_crop(24, 20), pen_op_to_tensor()};
    pen_pipeline *line = make(val, COUNT(val));
    pen_profiler *p = profiler_of(line);
    size_t n_uncut = 0;
    for (int64_t id = 0; id < PICTURES; id++) {
        const pen_profile_sample s = measure(p, id);
        n_uncut += isnan(s.points[find(p, PEN_PROFILE_JPEG_CUT, 0)].bytes);
        for (size_t i = 0; i < pen_profiler_count(p); i++)
            assert_int_equal(isnan(s.points[i].bytes), isnan(s.points[i].cpu_s));
        assert_true(s.points[find(p, PEN_PROFILE_PIXELS, 2)].bytes == 24 * 20 * 3);
        /* a resize and its crop are one step */
        assert_true(isnan(s.points[find(p, PEN_PROFILE_PIXELS, 1)].bytes));
        assert_true(isnan(s.points[find(p, PEN_PROFILE_CODED, 1)].bytes));
    }
    assert_true(n_uncut >= PICTURES / 5); /* PNG files */
    pen_profiler_free(p);
    pen_pipeline_unref(line);
}

static void groups_are_one_operation(void **state)
{
    (void)state;
    const pen_op ops[] = {pen_op_random_apply(0.5F, 1), pen_op_color_jitter(0.4F, 0, 0, 0),
                          pen_op_random_resized_crop(24, 20)};
    pen_pipeline *line = make(ops, COUNT(ops));
    pen_profiler *p = profiler_of(line);
    const pen_profile_point group = pen_profiler_point(p, find(p, PEN_PROFILE_PIXELS, 1));
    assert_int_equal(group.n_ops, 3);
    assert_int_equal(pen_profiler_count(p), 2 + 2 * 3 + 1);
    for (int64_t id = 0; id < PICTURES; id++)
        assert_true(measure(p, id).points[find(p, PEN_PROFILE_TENSOR, 3)].bytes == 24 * 20 * 3);
    pen_profiler_free(p);
    pen_pipeline_unref(line);
}

static void a_bad_sample_is_named_and_the_next_one_measured(void **state)
{
    (void)state;
    pen_profiler *p = profiler_of(pipe_);
    pen_profile_sample s;
    pen_error err;
    char path[128];
    const int64_t len = pen_dataset_length(ds, 0);
    snprintf(path, sizeof path, "%s/class0/0000.jpg", dir);
    uint8_t *zeros = calloc(1, (size_t)len);
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(zeros, 1, (size_t)len, file), len);
    fclose(file);
    free(zeros);
    const pen_key key = {.sample = 0}, none = {.sample = PICTURES};
    assert_int_equal(pen_profiler_measure(p, &key, &s, &err), PEN_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "class0/0000"));
    assert_int_equal(err.sample, 0);
    assert_true(isnan(s.points[0].bytes) && isnan(s.sent.bytes));
    assert_int_equal(pen_profiler_measure(p, &none, &s, &err), PEN_EINVAL);
    assert_int_equal(pen_profiler_measure(p, &key, &s, NULL), PEN_EUNSUPPORTED);
    assert_true(measure(p, 1).sent.bytes > 0);
    pen_profiler_free(p);
    pen_profiler_free(NULL);
}

/* ---- a node ---- */

static int n_fetched;

static int64_t fetch(const pen_dataset *from, const pen__wanted *wanted, uint8_t *dst,
                     size_t dst_cap, const atomic_bool *cancel, pen_error *err)
{
    (void)from, (void)dst, (void)cancel;
    const size_t len = (size_t)pen_dataset_length(ds, wanted->key.sample);
    assert_true(dst_cap >= pen__parcel_bound(wanted->pipe, len));
    assert_int_equal(wanted->choice.forms, PEN__FORMS_ALL);
    n_fetched++;
    if (wanted->key.sample == 1)
        return pen__fail(err, PEN_EIO, -1, "the line is dead");
    if (wanted->key.sample != 2)
        *wanted->node_ns = n_fetched % 2 ? 3000000 : 2000000;
    return PEN__PARCEL_HEAD;
}

static void a_node_is_asked_what_it_takes_there(void **state)
{
    (void)state;
    const pen__source *usual = ds->source;
    pen__source fetching = *usual;
    pen_profiler *p = profiler_of(pipe_);
    pen_profile_sample s;
    pen_error err;
    fetching.fetch = fetch;
    ds->source = &fetching;
    const double took = measure(p, 0).node_cpu_s, untold = measure(p, 2).node_cpu_s;
    const pen_key key = {.sample = 1};
    const int rc = pen_profiler_measure(p, &key, &s, &err);
    ds->source = usual;
    assert_true(took == 0.002); /* the smaller of two */
    assert_true(isnan(untold));
    assert_int_equal(rc, PEN_EIO);
    pen_profiler_free(p);
}

static void every_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    bool is_done = false;
    for (int n = 1; !is_done && n < 200; n++) {
        pen_profiler *p;
        pen_profile_sample s;
        const pen_key key = {.sample = 0};
        pen__mem_fail_at(n);
        int rc = pen_profiler_create(&p, ds, pipe_, NULL);
        if (rc == 0)
            rc = pen_profiler_measure(p, &key, &s, NULL);
        pen__mem_fail_at(0);
        is_done = rc == 0;
        assert_true(rc == 0 || rc == PEN_ENOMEM);
        pen_profiler_free(p);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_true(is_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(points_stand_in_the_order_of_the_line, make_world,
                                        unmake_world),
        cmocka_unit_test_setup_teardown(bytes_are_those_that_a_node_would_send, make_world,
                                        unmake_world),
        cmocka_unit_test_setup_teardown(what_a_sample_cannot_be_is_no_number, make_world,
                                        unmake_world),
        cmocka_unit_test_setup_teardown(groups_are_one_operation, make_world, unmake_world),
        cmocka_unit_test_setup_teardown(a_bad_sample_is_named_and_the_next_one_measured, make_world,
                                        unmake_world),
        cmocka_unit_test_setup_teardown(a_node_is_asked_what_it_takes_there, make_world,
                                        unmake_world),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_an_error_and_leaks_nothing,
                                        make_world, unmake_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
