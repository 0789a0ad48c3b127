/* test_mix.c - MixUp and CutMix: what they do, and that ranks and workers change no byte. */
#include "testing.h"

#include <locale.h>
#include <math.h>

#include "base/mem.h"
#include "engine/mix.h"
#include "loading.h"

enum { CLASSES = 2 };
static const pen_mix both[] = {{PEN_MIX_MIXUP, 0.4, 1.0}, {PEN_MIX_CUTMIX, 1.0, 1.0}};

static pen_loader_opts mix_options(int workers)
{
    pen_loader_opts o = options(workers);
    o.mixes = both;
    o.n_mixes = 2;
    o.num_classes = CLASSES;
    return o;
}

static uint64_t hash_mixed(const pen_batch *b, uint64_t hash)
{
    size_t n = (size_t)(pen_batch_count(b) * pen_batch_classes(b));
    return XXH3_64bits_withSeed(pen_batch_mixed_labels(b), n * sizeof(float), hash_batch(b, hash));
}

static pen_batch *next_batch(pen_loader *loader)
{
    pen_batch *b;
    pen_error err;
    int rc = pen_loader_next(loader, -1, &b, &err);
    if (rc < 0)
        fail_msg("%s", err.text);
    return rc == 0 ? b : NULL;
}

/* The batch as it should be: out of place, one value after the other. */
static void assert_mixed(const pen_batch *mixed, const pen_batch *plain, const pen_mix_params *p)
{
    pen_shape shape = pen_batch_shape(plain);
    int64_t n = pen_batch_count(plain), plane = (int64_t)shape.width * shape.height;
    assert_int_equal(pen_batch_count(mixed), n);
    int64_t values = plane * shape.channels;
    const float *in = pen_batch_data(plain), *out = pen_batch_data(mixed);
    float own = (float)p->lam, other = (float)(1.0 - p->lam);
    for (int64_t i = 0; i < n; i++) {
        int64_t before = (i + n - 1) % n;
        for (int64_t k = 0; k < values; k++) {
            int64_t x = k % shape.width, y = k % plane / shape.width;
            bool is_in = x >= p->x1 && x < p->x2 && y >= p->y1 && y < p->y2;
            float a = in[before * values + k], b = in[i * values + k];
            volatile float a_part = a * other, b_part = b * own;
            float want = p->kind == PEN_MIX_MIXUP ? a_part + b_part : is_in ? a : b;
            assert_true(memcmp(&out[i * values + k], &want, sizeof want) == 0);
        }
        for (int64_t c = 0; c < CLASSES; c++) {
            float want = (pen_batch_labels(plain)[before] == c ? other : 0) +
                         (pen_batch_labels(plain)[i] == c ? own : 0);
            assert_true(pen_batch_mixed_labels(mixed)[i * CLASSES + c] == want);
        }
        assert_int_equal(pen_batch_ids(mixed)[i], pen_batch_ids(plain)[i]);
        assert_int_equal(pen_batch_labels(mixed)[i], pen_batch_labels(plain)[i]);
    }
}

static void each_sample_is_mixed_with_the_one_before_it(void **state)
{
    (void)state;
    pen_loader_opts plain_opts = options(1), o = mix_options(2);
    pen_loader *plain = open_loader(&plain_opts), *mixed = open_loader(&o);
    int seen[2] = {0};
    for (int i = 0; i < 4 * BATCHES; i++) {
        pen_batch *a = next_batch(plain), *b = next_batch(mixed);
        assert_int_equal(a == NULL, b == NULL);
        if (!a)
            continue;
        pen_mix_params p;
        assert_int_equal(
            pen_loader_draw_mix(mixed, pen_batch_epoch(b), pen_batch_index(b), &p, NULL), 0);
        assert_mixed(b, a, &p); /* the last one is short */
        seen[p.kind]++;
        pen_batch_unref(a);
        pen_batch_unref(b);
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
    pen_loader_free(plain);
    pen_loader_free(mixed);
}

static uint64_t mixed_epoch(const pen_loader_opts *o)
{
    pen_loader *loader = open_loader(o);
    uint64_t hash = 0;
    for (pen_batch *b; (b = next_batch(loader)); pen_batch_unref(b))
        hash = hash_mixed(b, hash);
    pen_loader_free(loader);
    return hash;
}

static void no_number_of_workers_changes_a_byte(void **state)
{
    (void)state;
    pen_loader_opts o = mix_options(0);
    uint64_t want = mixed_epoch(&o);
    for (int workers = 1; workers <= 4; workers++) {
        o = mix_options(workers);
        o.ready_batches = 1 + workers % 3;
        assert_true(mixed_epoch(&o) == want);
    }
    o.seed++;
    assert_true(mixed_epoch(&o) != want);
}

static void no_number_of_ranks_changes_a_byte(void **state)
{
    (void)state;
    for (int tail = PEN_TAIL_DROP; tail <= PEN_TAIL_WRAP; tail++)
        for (int ranks = 2; ranks <= 4; ranks += 2) {
            pen_loader_opts o = mix_options(2);
            o.tail = (pen_tail)tail;
            pen_loader *whole = open_loader(&o), *parts[4];
            for (int r = 0; r < ranks; r++) {
                o.batch_size = BATCH / ranks;
                o.world_size = ranks;
                o.rank = r;
                parts[r] = open_loader(&o);
            }
            for (pen_batch *w; (w = next_batch(whole)); pen_batch_unref(w))
                for (int r = 0; r < ranks; r++) {
                    pen_batch *p = next_batch(parts[r]);
                    size_t n = (size_t)(BATCH / ranks), bytes = n * pen_batch_shape(w).bytes;
                    assert_int_equal(pen_batch_count(p), n);
                    assert_memory_equal((uint8_t *)pen_batch_data(w) + (size_t)r * bytes,
                                        pen_batch_data(p), bytes);
                    assert_memory_equal(pen_batch_mixed_labels(w) + (size_t)r * n * CLASSES,
                                        pen_batch_mixed_labels(p), n * CLASSES * sizeof(float));
                    pen_batch_unref(p);
                }
            for (int r = 0; r < ranks; r++) {
                assert_null(next_batch(parts[r]));
                pen_loader_free(parts[r]);
            }
            pen_loader_free(whole);
        }
}

static void replay_and_resume_give_the_same_bytes(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        pen_loader_opts o = mix_options(2);
        o.world_size = ranks;
        pen_loader *loader = open_loader(&o), *other = open_loader(&o);
        char text[PEN_STATE_MAX];
        for (int i = 0; i < 2; i++)
            pen_batch_unref(next_batch(loader));
        assert_true(pen_loader_state(loader, text, sizeof text) > 0);
        assert_int_equal(pen_loader_resume(other, text, NULL), 0);
        pen_batch *a = next_batch(loader), *b = next_batch(other), *c;
        assert_int_equal(pen_loader_replay(other, 0, 2, &c, NULL), 0);
        assert_true(hash_mixed(a, 0) == hash_mixed(b, 0));
        assert_true(hash_mixed(a, 0) == hash_mixed(c, 0));
        pen_batch_unref(a);
        pen_batch_unref(b);
        pen_batch_unref(c);
        pen_loader_free(loader);
        pen_loader_free(other);
    }
}

static void a_state_with_another_mix_is_refused(void **state)
{
    (void)state;
    char text[PEN_STATE_MAX];
    pen_error err;
    pen_loader_opts o = mix_options(0);
    pen_loader *loader = open_loader(&o);
    assert_true(pen_loader_state(loader, text, sizeof text) > 0);
    pen_loader_free(loader);
    o.n_mixes = 1;
    loader = open_loader(&o);
    assert_int_equal(pen_loader_resume(loader, text, &err), PEN_ESTATE);
    assert_non_null(strstr(err.text, "mix"));
    pen_loader_free(loader);
    o = options(0);
    loader = open_loader(&o);
    assert_int_equal(pen_loader_resume(loader, text, &err), PEN_ESTATE);
    pen_loader_free(loader);
}

/* Spoil one file, and compare with what is left, mixed by hand. */
static void skipped_samples_leave_before_mixing(void **state)
{
    (void)state;
    char path[128], aside[128], command[512];
    snprintf(path, sizeof path, "%s/class0/0006.jpg", dir);
    snprintf(aside, sizeof aside, "%s.aside", dir);
    snprintf(command, sizeof command,
             "cp '%s' '%s' && printf 'no picture at all' | dd of='%s' conv=notrunc 2>/dev/null",
             path, aside, path);
    assert_int_equal(system(command), 0);
    pen_loader_opts plain_opts = options(1), o = mix_options(2);
    plain_opts.on_error = o.on_error = PEN_ON_ERROR_SKIP;
    pen_loader *plain = open_loader(&plain_opts), *mixed = open_loader(&o);
    int64_t n = 0;
    for (pen_batch *a, *b; (a = next_batch(plain)); pen_batch_unref(a), pen_batch_unref(b)) {
        b = next_batch(mixed);
        pen_mix_params p;
        pen_loader_draw_mix(mixed, 0, pen_batch_index(b), &p, NULL);
        assert_mixed(b, a, &p);
        n += pen_batch_count(b);
    }
    assert_int_equal(n, PICTURES - 1);
    pen_loader_free(plain);
    pen_loader_free(mixed);

    /* replaced: the neighbouring rank sees the same stand-in, and does not count it */
    int64_t n_bad = 0;
    o = mix_options(1);
    o.on_error = PEN_ON_ERROR_REPLACE;
    o.tail = PEN_TAIL_WRAP;
    pen_loader *whole = open_loader(&o), *parts[2];
    for (int r = 0; r < 2; r++) {
        o.batch_size = BATCH / 2;
        o.world_size = 2;
        o.rank = r;
        parts[r] = open_loader(&o);
    }
    for (pen_batch *w; (w = next_batch(whole)); pen_batch_unref(w))
        for (int r = 0; r < 2; r++) {
            pen_batch *p = next_batch(parts[r]);
            size_t bytes = BATCH / 2 * pen_batch_shape(w).bytes;
            assert_memory_equal((uint8_t *)pen_batch_data(w) + (size_t)r * bytes, pen_batch_data(p),
                                bytes);
            pen_batch_unref(p);
        }
    pen_loader_stats stats, all;
    pen_loader_get_stats(whole, &all);
    for (int r = 0; r < 2; r++) {
        pen_loader_get_stats(parts[r], &stats);
        n_bad += stats.bad_samples;
        pen_loader_free(parts[r]);
    }
    assert_true(all.bad_samples >= 1);
    assert_int_equal(n_bad, all.bad_samples);
    pen_loader_free(whole);
    assert_int_equal(rename(aside, path), 0);
}

static void a_fed_batch_is_mixed_with_itself(void **state)
{
    (void)state;
    static const int64_t ids[2][3] = {{3, 9, 1}, {4, 4, 20}};
    pen_loader_opts plain_opts = options(1), o = mix_options(2);
    plain_opts.order = o.order = PEN_ORDER_FED;
    o.rank = plain_opts.rank = 1;
    o.world_size = plain_opts.world_size = 2;
    pen_loader *plain = open_loader(&plain_opts), *mixed = open_loader(&o);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pen_loader_feed(plain, ids[i], 3, NULL), 0);
        assert_int_equal(pen_loader_feed(mixed, ids[i], 3, NULL), 0);
    }
    for (int i = 0; i < 2; i++) {
        pen_batch *a = next_batch(plain), *b = next_batch(mixed);
        pen_mix_params p;
        pen_loader_draw_mix(mixed, 0, i, &p, NULL);
        assert_mixed(b, a, &p);
        pen_batch_unref(a);
        pen_batch_unref(b);
    }
    pen_loader_free(plain);
    pen_loader_free(mixed);
}

/* Inline, so that the n-th allocation is always the same one. */
static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    static const int64_t ids[BATCH] = {3, 1, 4, 1};
    const int64_t live = pen__mem_live();
    pen_loader_opts o = mix_options(0);
    o.order = PEN_ORDER_FED;
    int rc = -1;
    for (int n = 1; rc != 0 && n < 400; n++) {
        pen_loader *loader;
        pen_batch *b;
        pen_error err = {0};
        pen__mem_fail_at(n);
        rc = pen_loader_create(&loader, ds, pipe_, &o, &err);
        for (int i = 0; rc == 0 && i < 3; i++) {
            rc = pen_loader_feed(loader, ids, BATCH - i, &err);
            if (rc == 0 && (rc = pen_loader_next(loader, -1, &b, &err)) == 0)
                pen_batch_unref(b);
        }
        pen__mem_fail_at(0);
        if (rc && rc != PEN_ENOMEM)
            fail_msg("allocation %d: %s", n, err.text);
        pen_loader_free(loader);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_int_equal(rc, 0);
}

static void draws_follow_weights_and_boxes_stay_inside(void **state)
{
    (void)state;
    const pen__mixer mixer = {
        .mixes = {{PEN_MIX_MIXUP, 0.2, 0}, {PEN_MIX_CUTMIX, 1.0, 3.0}, {PEN_MIX_MIXUP, 0.2, 1.0}},
        .n = 3,
        .n_classes = 10,
    };
    const pen_shape shape = {3, 17, 40, PEN_DTYPE_FLOAT32, PEN_LAYOUT_NCHW, 3 * 17 * 40 * 4};
    int n_boxes = 0, extreme = 0, n_mixups = 0;
    double share = 0;
    for (int64_t batch = 0; batch < 20000; batch++) {
        pen_mix_params p;
        pen__mix_draw(&mixer, 1, 2, batch, &shape, &p);
        assert_true(p.lam >= 0 && p.lam <= 1);
        if (p.kind == PEN_MIX_MIXUP) {
            n_mixups++;
            extreme += p.lam < 0.05 || p.lam > 0.95; /* Beta(0.2, 0.2) is mostly there */
            continue;
        }
        n_boxes++;
        assert_true(p.x1 >= 0 && p.x1 <= p.x2 && p.x2 <= 40);
        assert_true(p.y1 >= 0 && p.y1 <= p.y2 && p.y2 <= 17);
        double taken = (double)((p.x2 - p.x1) * (p.y2 - p.y1)) / (17 * 40);
        assert_true(fabs(1 - p.lam - taken) < 1e-12);
        share += taken;
    }
    assert_in_range(n_boxes, 14700, 15300);
    assert_true(extreme > n_mixups / 2);
    assert_true(share / n_boxes > 0.25 && share / n_boxes < 0.4); /* half of it, cut at edges */
}

/* Where no caller may ask for the parameters, batches are mixed by them all the same: what
 * workers prefetch behind the last epoch, and what is fed behind any batch number. */
static void the_ends_of_the_stream_are_mixed_like_its_middle(void **state)
{
    (void)state;
    static const int64_t ids[BATCH] = {3, 1, 4, 1}, last = (int64_t)UINT32_MAX - 1;
    const pen__mixer mixer = {.mixes = {both[0], both[1]}, .n = 2, .n_classes = CLASSES};
    for (int is_fed = 0; is_fed < 2; is_fed++) {
        pen_loader_opts plain_opts = options(0), o = mix_options(0);
        plain_opts.order = o.order = is_fed ? PEN_ORDER_FED : PEN_ORDER_SHUFFLE;
        pen_loader *loaders[2] = {open_loader(&plain_opts), open_loader(&o)};
        pen_batch *batches[2];
        for (int i = 0; i < 2; i++) {
            int64_t batch = is_fed ? INT64_C(1) << 41 : BATCHES;
            assert_int_equal(pen_loader_seek(loaders[i], last, batch, NULL), 0);
            if (is_fed)
                assert_int_equal(pen_loader_feed(loaders[i], ids, BATCH, NULL), 0);
            batches[i] = next_batch(loaders[i]);
        }
        pen_shape shape = pen_batch_shape(batches[0]);
        pen_mix_params p;
        pen__mix_draw(&mixer, o.seed, pen_batch_epoch(batches[1]), pen_batch_index(batches[1]),
                      &shape, &p);
        assert_mixed(batches[1], batches[0], &p);
        for (int i = 0; i < 2; i++) {
            pen_batch_unref(batches[i]);
            pen_loader_free(loaders[i]);
        }
    }
}

static void a_digest_has_no_locale(void **state)
{
    (void)state;
    const pen__mixer mixer = {.mixes = {{PEN_MIX_MIXUP, 0.3, 1.5}}, .n = 1, .n_classes = 10};
    char plain[PEN__DIGEST_TEXT], other[PEN__DIGEST_TEXT];
    pen__mixer_digest(&mixer, plain);
    for (size_t i = 0; i < 3; i++) { /* whichever of these is installed */
        static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"};
        if (setlocale(LC_NUMERIC, names[i]) == NULL)
            continue;
        pen__mixer_digest(&mixer, other);
        assert_string_equal(plain, other);
    }
    setlocale(LC_NUMERIC, "C");
}

static void what_cannot_be_mixed_is_refused(void **state)
{
    (void)state;
    pen_loader *loader;
    pen_error err;
    pen_loader_opts o = mix_options(0);
    o.num_classes = 1;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "1 classes, and sample 'class1/0001' has the label 1"));
    o.num_classes = 0;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o = mix_options(0);
    o.n_mixes = PEN_MIX_MAX + 1;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    static const pen_mix wrong[] = {{PEN_MIX_MIXUP, 0.0, 1.0},      {PEN_MIX_MIXUP, -1.0, 1.0},
                                    {PEN_MIX_MIXUP, NAN, 1.0},      {PEN_MIX_MIXUP, 1.0, 0.0},
                                    {PEN_MIX_MIXUP, 1.0, -1.0},     {(pen_mix_kind)7, 1.0, 1.0},
                                    {PEN_MIX_CUTMIX, 5e-324, 1.0}, /* its share would be NaN */
                                    {PEN_MIX_CUTMIX, 1.0, INFINITY}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        o.mixes = &wrong[i];
        o.n_mixes = 1;
        assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    }
    pen_op crop = pen_op_center_crop(8, 8);
    pen_pipeline *bytes;
    assert_int_equal(pen_pipeline_create(&bytes, &crop, 1, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, &err),
                     0);
    o = mix_options(0);
    assert_int_equal(pen_loader_create(&loader, ds, bytes, &o, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "ToTensor"));
    pen_pipeline_unref(bytes);
    o = options(0);
    loader = open_loader(&o);
    pen_mix_params p;
    assert_int_equal(pen_loader_draw_mix(loader, 0, 0, &p, &err), PEN_EINVAL);
    pen_batch *b = next_batch(loader);
    assert_null(pen_batch_mixed_labels(b));
    assert_int_equal(pen_batch_classes(b), 0);
    pen_batch_unref(b);
    pen_loader_free(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_is_mixed_with_the_one_before_it),
        cmocka_unit_test(no_number_of_workers_changes_a_byte),
        cmocka_unit_test(no_number_of_ranks_changes_a_byte),
        cmocka_unit_test(replay_and_resume_give_the_same_bytes),
        cmocka_unit_test(a_state_with_another_mix_is_refused),
        cmocka_unit_test(skipped_samples_leave_before_mixing),
        cmocka_unit_test(a_fed_batch_is_mixed_with_itself),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(draws_follow_weights_and_boxes_stay_inside),
        cmocka_unit_test(the_ends_of_the_stream_are_mixed_like_its_middle),
        cmocka_unit_test(a_digest_has_no_locale),
        cmocka_unit_test(what_cannot_be_mixed_is_refused),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
