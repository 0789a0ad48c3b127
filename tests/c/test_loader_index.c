/* test_loader_index.c - the index of JPEG files: quicker, and not a byte different. */
#include "testing.h"

#include <penstock/penstock.h>
#include <xxhash.h>

#include "pictures.h"
#include "trees.h"

enum { PICTURES = 12, BATCH = 4, BATCHES = PICTURES / BATCH };

static pen_pipeline *pipe_;
static int n_readers; /* that read ahead */

/* All files have the same length: behind the end marker anything may follow. */
static void put_picture(int i, uint64_t seed)
{
    enum { LENGTH = 60000 };
    char name[32];
    snprintf(name, sizeof name, "data/%d/%02d.jpg", i % 2, i);
    make_parents(name);
    write_jpeg(in_tree(name), 150 + 7 * i, 200 - 5 * i, seed);
    assert_int_equal(truncate(in_tree(name), LENGTH), 0);
    make_old(in_tree(name));
}

static int set_up(void **state)
{
    if (tree_setup(state) != 0)
        return -1;
    unsetenv("PENSTOCK_INDEX");
    for (int i = 0; i < PICTURES; i++)
        put_picture(i, (uint64_t)i);
    pen_op ops[] = {pen_op_random_resized_crop(40, 40), pen_op_hflip(0.5F), pen_op_to_tensor()};
    return pen_pipeline_create(&pipe_, ops, 3, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL);
}

static int tear_down(void **state)
{
    pen_pipeline_unref(pipe_);
    return tree_teardown(state);
}

typedef struct outcome {
    uint64_t hash; /* of all bytes of all epochs */
    pen_loader_stats stats;
    int64_t bytes_in, cache_hits, cache_misses;
} outcome;

static pen_loader_opts options(int workers, bool use_index)
{
    pen_loader_opts o;
    pen_loader_opts_init(&o);
    o.batch_size = BATCH;
    o.order = PEN_ORDER_SHUFFLE;
    o.workers = workers;
    o.use_index = use_index;
    return o;
}

static outcome run(const pen_loader_opts *o, int n_epochs)
{
    outcome out = {0};
    pen_dataset *ds;
    pen_loader *loader;
    pen_batch *batch;
    pen_error err;
    pen_dataset_opts ds_opts;
    pen_dataset_opts_init(&ds_opts);
    ds_opts.cache_dir = in_tree("cache");
    assert_int_equal(pen_dataset_open(&ds, in_tree("data"), &ds_opts, &err), 0);
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, o, &err), 0);
    pen_knobs knobs;
    pen_knobs_init(&knobs);
    if (n_readers > 0) {
        knobs.value[PEN_KNOB_IO] = n_readers;
        knobs.value[PEN_KNOB_READ_AHEAD] = 2 * n_readers;
        assert_int_equal(pen_loader_set_knobs(loader, &knobs, &err), 0);
    }
    for (int epoch = 0; epoch < n_epochs; epoch++) {
        int rc;
        while ((rc = pen_loader_next(loader, -1, &batch, &err)) == 0) {
            size_t n = (size_t)pen_batch_count(batch) * pen_batch_shape(batch).bytes;
            out.hash = XXH3_64bits_withSeed(pen_batch_data(batch), n, out.hash);
            pen_batch_unref(batch);
        }
        assert_int_equal(rc, PEN_END);
    }
    pen_loader_get_stats(loader, &out.stats);
    pen_pipeline_stats now = PEN_PIPELINE_STATS_INIT;
    assert_int_equal(pen_loader_get_pipeline_stats(loader, &now), 0);
    out.bytes_in = now.bytes_in;
    out.cache_hits = now.cache_hits;
    out.cache_misses = now.cache_misses;
    pen_loader_free(loader);
    pen_dataset_unref(ds);
    return out;
}

static outcome run_epochs(int workers, bool use_index, int n_epochs)
{
    pen_loader_opts o = options(workers, use_index);
    return run(&o, n_epochs);
}

static int64_t samples_in_file(void)
{
    pen_dataset *ds;
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.cache_dir = in_tree("cache");
    assert_int_equal(pen_dataset_open(&ds, in_tree("data"), &opts, NULL), 0);
    int64_t n_samples, n_bytes;
    pen_dataset_jpeg_index(ds, &n_samples, &n_bytes);
    pen_dataset_unref(ds);
    return n_samples;
}

static void tensors_are_the_same_with_and_without(void **state)
{
    (void)state;
    outcome plain = run_epochs(0, false, 4);
    assert_int_equal(plain.stats.jpeg_indexed, 0);
    assert_int_equal(samples_in_file(), 0);
    outcome first = run_epochs(0, true, 4);
    assert_true(first.hash == plain.hash);
    /* workers run ahead into the next epoch, so only the inline count is exact */
    assert_int_equal(first.stats.jpeg_plain, PICTURES);
    assert_int_equal(first.stats.jpeg_indexed, 3 * PICTURES);
    assert_int_equal(first.stats.jpeg_library, 0);
    assert_int_equal(first.stats.index_samples, PICTURES);
    assert_true(first.stats.index_bytes > 0);
    assert_int_equal(samples_in_file(), PICTURES);
    outcome later = run_epochs(3, true, 4);
    assert_true(later.hash == plain.hash);
    assert_int_equal(later.stats.jpeg_plain, 0);
}

/* Once around without entries, from then on with them; a later run has them from the first. */
static void entries_that_were_used_are_hits(void **state)
{
    (void)state;
    const outcome off = run_epochs(0, false, 2), first = run_epochs(0, true, 3);
    assert_int_equal(off.cache_hits, 0);
    assert_int_equal(off.cache_misses, 2 * PICTURES);
    assert_int_equal(first.cache_hits, 2 * PICTURES);
    assert_int_equal(first.cache_misses, PICTURES);
    const outcome later = run_epochs(0, true, 2);
    assert_int_equal(later.cache_hits, 2 * PICTURES);
    assert_int_equal(later.cache_misses, 0);
}

/* Other pictures under the same names, with the same lengths. */
static void an_index_of_other_pictures_is_not_used(void **state)
{
    (void)state;
    outcome before = run_epochs(0, true, 2);
    for (int i = 0; i < PICTURES; i++)
        put_picture(i, (uint64_t)(i + 50));
    assert_int_equal(samples_in_file(), PICTURES); /* it looks as if it were theirs */
    outcome plain = run_epochs(0, false, 2), after = run_epochs(0, true, 2);
    assert_true(plain.hash != before.hash);
    assert_true(plain.hash == after.hash);
    assert_int_equal(after.stats.jpeg_plain, PICTURES);
    assert_true(run_epochs(2, true, 2).hash == plain.hash);
}

/* Of files that are indexed parts are enough, and what comes out is the same. */
static void parts_of_files_are_enough(void **state)
{
    (void)state;
    const outcome plain = run_epochs(0, false, 4);
    setenv("PENSTOCK_PARTS", "always", 1);
    const outcome first = run_epochs(0, true, 4);
    assert_true(first.hash == plain.hash);
    assert_true(first.bytes_in < plain.bytes_in);
    const outcome later = run_epochs(0, true, 4);
    assert_true(later.hash == plain.hash);
    assert_true(later.bytes_in < first.bytes_in);
    assert_int_equal(later.stats.jpeg_indexed, 4 * PICTURES);
    assert_true(run_epochs(3, true, 4).hash == plain.hash);
    n_readers = 3;
    assert_true(run_epochs(2, true, 4).hash == plain.hash);
    n_readers = 0;
    setenv("PENSTOCK_PARTS", "off", 1);
    assert_int_equal(run_epochs(0, true, 4).bytes_in, plain.bytes_in);
    unsetenv("PENSTOCK_PARTS"); /* this machine is fast enough for all of it */
    assert_true(run_epochs(0, true, 4).hash == plain.hash);
}

/* Written anew, with the same length and the same time: the kernel knows better. */
static void parts_of_other_files_are_not_used(void **state)
{
    (void)state;
    setenv("PENSTOCK_PARTS", "always", 1);
    run_epochs(0, true, 2);
    usleep(20000); /* the clock of file systems ticks */
    for (int i = 0; i < PICTURES; i++)
        put_picture(i, (uint64_t)(i + 50));
    const outcome after = run_epochs(0, true, 2), again = run_epochs(0, true, 2);
    unsetenv("PENSTOCK_PARTS");
    const outcome plain = run_epochs(0, false, 2);
    assert_true(after.hash == plain.hash);
    assert_true(again.hash == plain.hash);
    assert_true(again.bytes_in < plain.bytes_in); /* and the new ones are known by now */
}

static void the_index_can_be_switched_off_or_limited(void **state)
{
    (void)state;
    setenv("PENSTOCK_INDEX", "off", 1);
    outcome off = run_epochs(0, true, 2);
    assert_int_equal(off.stats.jpeg_indexed, 0);
    assert_int_equal(samples_in_file(), 0);
    unsetenv("PENSTOCK_INDEX");
    pen_loader_opts o = options(0, true);
    o.index_max_bytes = 900;
    outcome limited = run(&o, 2);
    assert_true(limited.hash == off.hash);
    assert_in_range(limited.stats.index_samples, 1, PICTURES - 1);
    assert_in_range(limited.stats.index_bytes, 1, 900);
    assert_int_equal(samples_in_file(), limited.stats.index_samples);
    o.index_max_bytes = -1;
    pen_loader *loader;
    assert_int_equal(pen_loader_create(&loader, NULL, pipe_, &o, NULL), PEN_EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_are_the_same_with_and_without),
        TEST(entries_that_were_used_are_hits),
        TEST(an_index_of_other_pictures_is_not_used),
        TEST(parts_of_files_are_enough),
        TEST(parts_of_other_files_are_not_used),
        TEST(the_index_can_be_switched_off_or_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
