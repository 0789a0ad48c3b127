/* test_allow.c - what nodes may do with which sample. */
#include "testing.h"

#include <math.h>

#include "base/mem.h"
#include "engine/allow.h"
#include "lines.h"
#include "trees.h"

enum { N = 1000 };

static pen_pipeline *line;
static pen__allow allow;

static int make_line(void **state)
{
    (void)state;
    const pen_op ops[] = {pen_op_random_resized_crop(224, 224), pen_op_hflip(0.5F),
                          pen_op_color_jitter(0.4F, 0, 0, 0), pen_op_to_tensor()};
    return pen_pipeline_create(&line, ops, 4, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL);
}

static int drop_line(void **state)
{
    (void)state;
    pen_pipeline_unref(line);
    return 0;
}

static void begin(pen_offload kind)
{
    memset(&allow, 0, sizeof allow);
    assert_int_equal(pen__allow_init(&allow, kind, line, N), 0);
}

static pen__foreseen choose(int64_t sample, size_t len)
{
    const pen_key key = {.seed = 1, .sample = sample};
    pen__foreseen foreseen;
    pen__allow_choose(&allow, &key, len, &foreseen);
    return foreseen;
}

/* It came raw, and now its header is known. */
static void come(int64_t sample, pen_image_info info, size_t len)
{
    const pen__parcel parcel = {.form = PEN__FORM_RAW, .info = info, .raw_len = len, .len = len};
    const pen__foreseen nothing = {0};
    pen__allow_learn(&allow, sample, &nothing, &parcel, NAN);
}

static bool is_raw(pen__choice choice)
{
    return choice.forms == 1U << PEN__FORM_RAW && choice.max_cut == 0;
}

/* Samples of 100 KB to 400 KB, all known: which part gets more than raw? */
static double offloaded_share(double share)
{
    int n = 0;
    pen__allow_set_share(&allow, share);
    for (int round = 0; round < 2; round++)
        for (int i = n = 0; i < N; i++)
            n += !is_raw(choose(i, 100000 + 300 * (size_t)i).choice);
    return n / (double)N;
}

static void all_that_is_known_come(void)
{
    for (int i = 0; i < N; i++)
        come(i, photo(800, 600), 100000 + 300 * (size_t)i);
}

static void with_a_share_of_one_everything_is_left_to_the_node(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    assert_int_equal(choose(3, 100000).choice.forms, PEN__FORMS_ALL);
    assert_int_equal(choose(3, 100000).choice.max_cut, 4); /* Decode, crop, flip, jitter */
    assert_int_equal(choose(3, 0).choice.forms, PEN__FORMS_ALL);
    pen__allow_fini(&allow);
}

static bool is_within(const pen__choice *choice, const pen__allow_bounds *bounds)
{
    const uint32_t pixels = 1U << PEN__FORM_PIXELS | 1U << PEN__FORM_PIXELS_CODED;
    const uint32_t bytes = 1U << PEN__FORM_ZSTD | 1U << PEN__FORM_LZ4 | 1U << PEN__FORM_SNAPPY;
    uint32_t outside = bounds->cut_wire == 0 ? pixels : 0;
    outside |= bounds->codec < PEN_CODEC_BYTES ? bytes : 0;
    outside |= bounds->codec < PEN_CODEC_PIXELS ? 1U << PEN__FORM_PIXELS_CODED : 0;
    return choice->max_cut <= bounds->cut_wire && !(choice->forms & outside);
}

/* With every sample, whatever its worth; and what is within them is still done. */
static void bounds_hold_for_every_sample(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    all_that_is_known_come();
    assert_true(pen__allow_has_bounds(&allow));
    for (int cut = pen__allow_widest(&allow).cut_wire; cut >= 0; cut--)
        for (int codec = PEN_CODEC_PIXELS; codec >= PEN_CODEC_NONE; codec--)
            for (int i = 0; i < N; i++) {
                const pen__allow_bounds bounds = {cut, (pen_codec)codec};
                pen__allow_set_bounds(&allow, &bounds);
                pen__allow_set_share(&allow, i % 2 ? 0.9 : 1);
                const pen__foreseen f = choose(i, 100000 + 300 * (size_t)i);
                assert_true(is_within(&f.choice, &bounds));
                assert_true(i % 2 || f.choice.forms >> PEN__FORM_JPEG_CUT & 1);
                const bool has_pixels = !isinf(f.estimate.of[PEN__FORM_PIXELS].bytes);
                assert_int_equal(has_pixels, cut > 0);
            }
    pen__allow_fini(&allow);
}

/* A plan that knew nothing of them would count on savings that cannot be had. */
static void what_would_be_saved_is_within_bounds(void **state)
{
    (void)state;
    double saved[3];
    begin(PEN_OFFLOAD_AUTO);
    all_that_is_known_come();
    pen__allow_set_share(&allow, 0.999);
    static const pen__allow_bounds bounds[3] = {
        {4, PEN_CODEC_PIXELS}, {4, PEN_CODEC_NONE}, {0, PEN_CODEC_NONE}};
    for (int k = 0; k < 3; k++) {
        pen__allow_set_bounds(&allow, &bounds[k]);
        for (int i = 0; i < N; i++)
            choose(i, 100000 + 300 * (size_t)i);
        saved[k] = pen__allow_gain(&allow, 1).saved_bytes;
    }
    assert_true(saved[0] > 1.05 * saved[1] && saved[1] > 1.05 * saved[2] && saved[2] > 0);
    pen__allow_fini(&allow);
}

static void policies_that_are_compared_with_go_as_far_as_they_go(void **state)
{
    (void)state;
    static const int cuts[PEN_OFFLOAD_COUNT] = {
        [PEN_OFFLOAD_NONE] = 0,   [PEN_OFFLOAD_ALL] = 4,      [PEN_OFFLOAD_RESIZE] = 2,
        [PEN_OFFLOAD_SOPHON] = 2, [PEN_OFFLOAD_FASTFLOW] = 4,
    };
    for (int kind = PEN_OFFLOAD_NONE; kind < PEN_OFFLOAD_COUNT; kind++) {
        begin((pen_offload)kind);
        assert_false(pen__allow_has_bounds(&allow));
        const pen__allow_bounds widest = pen__allow_widest(&allow);
        assert_int_equal(widest.cut_wire, cuts[kind]);
        assert_int_equal(widest.codec, PEN_CODEC_NONE);
        pen__allow_fini(&allow);
    }
}

static void with_less_fewer_samples_are_worked_on(void **state)
{
    (void)state;
    static const pen_offload kinds[] = {PEN_OFFLOAD_AUTO, PEN_OFFLOAD_SOPHON};
    for (int k = 0; k < 2; k++) {
        begin(kinds[k]);
        all_that_is_known_come();
        double last = 0;
        assert_true(offloaded_share(0) == 0);
        for (int i = 1; i <= 4; i++) {
            const double now = offloaded_share(i / 4.0);
            assert_true(now >= last);
            last = now;
        }
        assert_true(last == 1);
        pen__allow_fini(&allow);
    }
}

static void a_share_is_that_of_all_steps(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_SOPHON); /* one step a sample, where there is one */
    all_that_is_known_come();
    pen__allow_set_share(&allow, 0.999);
    for (int i = 0; i < N; i++)
        choose(i, 400000);
    int n = 0;
    pen__allow_set_share(&allow, 0.5);
    for (int i = 0; i < N; i++)
        n += !is_raw(choose(i, 400000).choice);
    assert_in_range(n, N * 0.42, N * 0.58);
    pen__allow_fini(&allow);
}

/* Most windows of such a photograph have fewer pixels than the crop that is made of them. */
static void sophon_sends_crops_that_are_resized_or_files(void **state)
{
    (void)state;
    const uint32_t plain = 1U << PEN__FORM_RAW | 1U << PEN__FORM_PIXELS;
    int n_sent = 0;
    begin(PEN_OFFLOAD_SOPHON);
    for (int i = 0; i < N; i++)
        come(i, photo(320, 240), i % 2 ? 100000 : 200000);
    for (int i = 0; i < 2 * N; i++) {
        const size_t len = i % 2 ? 100000 : 200000;
        const pen__foreseen f = choose(i % N, len);
        assert_true(f.estimate.of[PEN__FORM_PIXELS].bytes == 224 * 224 * 3);
        pen__allow_set_share(&allow, 0.95); /* each is weighed */
        if (i < N || is_raw(f.choice))
            continue;
        n_sent++;
        assert_true(len > 224 * 224 * 3);
        assert_int_equal(f.choice.max_cut, 2); /* Decode, crop */
        assert_int_equal(f.choice.forms, plain | PEN__FORMS_AT_FURTHEST);
    }
    assert_in_range(n_sent, N / 4, N / 2);
    pen__allow_fini(&allow);
}

static void the_best_steps_go_first(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    all_that_is_known_come();
    offloaded_share(0.5);
    /* what is worked on saves more for its time than what is not */
    double taken = INFINITY, left = 0;
    for (int i = 0; i < N; i++) {
        const size_t len = 100000 + 300 * (size_t)i;
        const double threshold = allow.threshold;
        const pen__foreseen f = choose(i, len);
        pen__offer offers[PEN__MAX_OFFERS];
        const int n = pen__estimate_offers(&f.estimate, PEN__FORMS_ALL, offers);
        bool is_allowed = !is_raw(f.choice); /* up to the step that was taken */
        for (int k = 0; k < n; k++) {
            const double worth = pen__offer_worth(&offers[k]) / threshold;
            taken = is_allowed && worth < taken ? worth : taken;
            left = !is_allowed && worth > left ? worth : left;
            is_allowed = is_allowed && f.choice.forms != offers[k].forms;
        }
    }
    assert_true(left > 0 && taken < INFINITY);
    assert_true(taken > 0.9 && left < 1.1); /* the threshold moves a little meanwhile */
    pen__allow_fini(&allow);
}

static void a_sample_that_never_came_is_taken_for_a_typical_one(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    for (int i = 0; i < 500; i++)
        come(i, photo(1600, 1200), 480000); /* 0.25 bytes a pixel */
    const pen__foreseen guessed = choose(700, 480000);
    come(700, photo(1600, 1200), 480000);
    const pen__foreseen known = choose(700, 480000);
    for (int i = 0; i < 4; i++) {
        const double a = guessed.estimate.of[i].bytes, b = known.estimate.of[i].bytes;
        assert_true(fabs(a - b) < 0.03 * b);
    }
    assert_true(guessed.is_estimated && known.is_estimated);
    pen__allow_fini(&allow);
}

static void what_is_no_image_teaches_nothing(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    const pen__foreseen before = choose(1, 100000);
    for (int i = 0; i < 100; i++)
        come(i, (pen_image_info){0}, 100000);
    const pen__foreseen after = choose(1, 100000);
    assert_true(before.estimate.of[PEN__FORM_JPEG_CUT].bytes ==
                after.estimate.of[PEN__FORM_JPEG_CUT].bytes);
    pen__allow_fini(&allow);
}

static void what_a_node_says_of_its_time_is_believed(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    all_that_is_known_come();
    for (int i = 0; i < N; i++) {
        const pen__foreseen f = choose(i, 300000);
        const pen__parcel parcel = {.form = PEN__FORM_PIXELS_CODED,
                                    .info = photo(800, 600),
                                    .raw_len = 300000,
                                    .len = 40000};
        pen__allow_learn(&allow, i, &f, &parcel, 0.02);
    }
    double sum = 0;
    for (int i = 0; i < N; i++) {
        const pen__foreseen f = choose(i, 300000);
        sum += (double)pen__foreseen_ns(&f) * 1e-9;
    }
    assert_true(fabs(sum / N - 0.02) < 0.003);
    pen__allow_fini(&allow);
}

static void gains_are_those_of_recent_samples(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    assert_true(isnan(pen__allow_raw(&allow).bytes));
    all_that_is_known_come();
    for (int i = 0; i < N; i++)
        choose(i, 300000);
    assert_true(fabs(pen__allow_raw(&allow).bytes - 300000) < 1);
    const pen__gain half = pen__allow_gain(&allow, 0.5), all = pen__allow_gain(&allow, 1);
    assert_true(half.saved_bytes < all.saved_bytes && half.cpu_s < all.cpu_s);
    assert_true(half.saved_bytes / half.cpu_s > all.saved_bytes / all.cpu_s);
    assert_true(all.saved_bytes < 300000);
    pen__allow_fini(&allow);
}

/* What nodes say of files is learned as well, and no part of what work on them costs. */
static void what_files_take_a_node_is_known(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    all_that_is_known_come();
    for (int i = 0; i < N; i++)
        choose(i, 300000);
    const pen__gain before = pen__allow_gain(&allow, 1);
    pen__allow_set_share(&allow, 0);
    for (int i = 0; i < 4 * N; i++) {
        const pen__foreseen f = choose(i % N, 300000);
        const pen__parcel parcel = {
            .form = PEN__FORM_RAW, .info = photo(800, 600), .raw_len = 300000, .len = 300000};
        assert_true(is_raw(f.choice));
        pen__allow_learn(&allow, i % N, &f, &parcel, 0.0008);
    }
    assert_true(fabs(pen__allow_raw(&allow).cpu_s - 0.0008) < 0.00003);
    assert_int_equal(pen__traits_word(&allow.traits, 7), 0);
    const double less = before.cpu_s - pen__allow_gain(&allow, 1).cpu_s;
    assert_true(less > 0.0002 && less < 0.0005);
    pen__allow_fini(&allow);
}

/* ---- samples that differ from others like them ---- */

/* It came as coded pixels, with so many times the usual bytes and time. */
static void come_unlike(int64_t sample, double bytes, double time)
{
    const pen__foreseen f = choose(sample, 300000);
    const pen__parcel parcel = {.form = PEN__FORM_PIXELS_CODED,
                                .info = photo(800, 600),
                                .raw_len = 300000,
                                .len =
                                    (size_t)(bytes * f.estimate.of[PEN__FORM_PIXELS_CODED].bytes)};
    pen__allow_learn(&allow, sample, &f, &parcel,
                     time * pen__estimate_cost(&f.estimate, f.choice.forms));
}

static void samples_that_took_long_come_last(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_SOPHON); /* one step a sample */
    all_that_is_known_come();
    for (int i = 0; i < N; i++)
        come_unlike(i, 1, i % 2 ? 0.25 : 4);
    pen__allow_set_share(&allow, 0.5);
    int n[2] = {0};
    for (int round = 0; round < 2; round++)
        for (int i = n[0] = n[1] = 0; i < N; i++)
            n[i % 2] += !is_raw(choose(i, 300000).choice);
    assert_true(n[0] * 2 < n[1]);
    pen__allow_fini(&allow);
}

static void until_it_is_known_what_is_usual_nobody_differs(void **state)
{
    (void)state;
    begin(PEN_OFFLOAD_AUTO);
    for (int i = 0; i < 100; i++)
        come_unlike(i, 2, 4);
    for (int i = 0; i < 100; i++)
        assert_int_equal(pen__traits_word(&allow.traits, i), 0);
    for (int i = 0; i < 100; i++)
        come_unlike(i, 2, 4);
    assert_true(pen__traits_factor(&allow.traits, 99, PEN__TRAIT_CODED_BYTES) > 1.3);
    assert_true(pen__traits_factor(&allow.traits, 99, PEN__TRAIT_CPU) > 1.8);
    assert_true(pen__traits_factor(&allow.traits, 99, PEN__TRAIT_CUT_BYTES) == 1);
    pen__allow_fini(&allow);
}

/* ---- from run to run ---- */

static pen_dataset *place(const char *name)
{
    static pen_dataset ds;
    static char cache[PATH_MAX];
    snprintf(cache, sizeof cache, "%s", in_tree(name));
    memset(ds.hash, 'a', sizeof ds.hash - 1);
    ds.cache = cache;
    return &ds;
}

static void the_next_run_begins_with_what_was_learned(void **state)
{
    (void)state;
    pen__foreseen before[N], after;
    begin(PEN_OFFLOAD_AUTO);
    pen__allow_keep(&allow, place("cache"));
    assert_false(pen__allow_has_news(&allow));
    all_that_is_known_come();
    for (int i = 0; i < N; i++)
        come_unlike(i, 1.5, 3);
    assert_true(pen__allow_has_news(&allow));
    for (int i = 0; i < N; i++)
        before[i] = choose(i, 200000);
    const uint32_t word = pen__traits_word(&allow.traits, 7);
    pen__allow_save(&allow);
    assert_false(pen__allow_has_news(&allow));
    pen__allow_fini(&allow);

    begin(PEN_OFFLOAD_AUTO);
    after = choose(7, 200000);
    assert_true(after.estimate.both.cpu_s != before[7].estimate.both.cpu_s);
    pen__allow_keep(&allow, place("cache"));
    for (int i = 0; i < N; i++) {
        after = choose(i, 200000);
        assert_memory_equal(&after.estimate, &before[i].estimate, sizeof after.estimate);
    }
    assert_true(word != 0 && pen__traits_word(&allow.traits, 7) == word);
    pen__allow_fini(&allow);
}

static void what_cannot_be_kept_is_a_warning_once(void **state)
{
    (void)state;
    char text[300];
    begin(PEN_OFFLOAD_AUTO);
    put_text("file", "no directory");
    pen__allow_keep(&allow, place("file/cache"));
    pen__allow_save(&allow); /* nothing to save, nothing to complain of */
    pen__allow_warning(&allow, text, sizeof text);
    assert_string_equal(text, "");
    for (int round = 0; round < 3; round++) {
        all_that_is_known_come();
        pen__allow_save(&allow);
        pen__allow_warning(&allow, text, sizeof text);
        assert_int_equal(strstr(text, "file/cache") != NULL, round == 0);
        assert_int_equal(text[0] != '\0', round == 0);
    }
    pen__allow_fini(&allow);
}

static void without_memory_there_is_no_table(void **state)
{
    (void)state;
    memset(&allow, 0, sizeof allow);
    for (int n = 1; n <= 2; n++) {
        pen__mem_fail_at(n);
        assert_int_equal(pen__allow_init(&allow, PEN_OFFLOAD_AUTO, line, N), PEN_ENOMEM);
        pen__mem_fail_at(0);
        pen__allow_fini(&allow);
    }
    pen__allow_fini(&allow); /* of nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_a_share_of_one_everything_is_left_to_the_node),
        cmocka_unit_test(bounds_hold_for_every_sample),
        cmocka_unit_test(what_would_be_saved_is_within_bounds),
        cmocka_unit_test(policies_that_are_compared_with_go_as_far_as_they_go),
        cmocka_unit_test(with_less_fewer_samples_are_worked_on),
        cmocka_unit_test(a_share_is_that_of_all_steps),
        cmocka_unit_test(sophon_sends_crops_that_are_resized_or_files),
        cmocka_unit_test(the_best_steps_go_first),
        cmocka_unit_test(a_sample_that_never_came_is_taken_for_a_typical_one),
        cmocka_unit_test(what_is_no_image_teaches_nothing),
        cmocka_unit_test(what_a_node_says_of_its_time_is_believed),
        cmocka_unit_test(gains_are_those_of_recent_samples),
        cmocka_unit_test(what_files_take_a_node_is_known),
        cmocka_unit_test(samples_that_took_long_come_last),
        cmocka_unit_test(until_it_is_known_what_is_usual_nobody_differs),
        cmocka_unit_test_setup_teardown(the_next_run_begins_with_what_was_learned, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_kept_is_a_warning_once, tree_setup,
                                        tree_teardown),
        cmocka_unit_test(without_memory_there_is_no_table),
    };
    return cmocka_run_group_tests(tests, make_line, drop_line);
}
