/* loading.h - a small folder, a pipeline with everything random in it, loaders over them. */
#ifndef PEN_TESTS_LOADING_H
#define PEN_TESTS_LOADING_H

#include "testing.h"

#include <penstock/penstock.h>
#include <xxhash.h>

#include "pictures.h"

enum { PICTURES = 23, BATCH = 4, BATCHES = 6 };

static char dir[64];
static pen_dataset *ds;
static pen_pipeline *pipe_;

static inline int make_world(void **state)
{
    (void)state;
    static const float mean[3] = {0.485F, 0.456F, 0.406F}, std[3] = {0.229F, 0.224F, 0.225F};
    make_folder(dir, PICTURES);
    pen_op ops[] = {pen_op_random_resized_crop(24, 20),
                    pen_op_hflip(0.5F),
                    pen_op_color_jitter(0.4F, 0.4F, 0.4F, 0.1F),
                    pen_op_to_tensor(),
                    pen_op_normalize(mean, std, 3),
                    pen_op_random_erasing(0.5F)};
    pen_error err;
    if (pen_dataset_open(&ds, dir, NULL, &err) != 0)
        fail_msg("%s", err.text);
    return pen_pipeline_create(&pipe_, ops, 6, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, &err);
}

static inline int unmake_world(void **state)
{
    (void)state;
    pen_pipeline_unref(pipe_);
    pen_dataset_unref(ds);
    remove_folder(dir);
    return 0;
}

static inline pen_loader_opts options(int workers)
{
    pen_loader_opts o;
    pen_loader_opts_init(&o);
    o.batch_size = BATCH;
    o.seed = 5;
    o.order = PEN_ORDER_SHUFFLE;
    o.workers = workers;
    return o;
}

static inline pen_loader *open_loader(const pen_loader_opts *o)
{
    pen_loader *loader;
    pen_error err;
    if (pen_loader_create(&loader, ds, pipe_, o, &err) != 0)
        fail_msg("%s", err.text);
    return loader;
}

static inline uint64_t hash_batch(const pen_batch *b, uint64_t seed)
{
    size_t n = (size_t)pen_batch_count(b);
    seed = XXH3_64bits_withSeed(pen_batch_data(b), n * pen_batch_shape(b).bytes, seed);
    seed = XXH3_64bits_withSeed(pen_batch_labels(b), n * 8, seed);
    return XXH3_64bits_withSeed(pen_batch_ids(b), n * 8, seed);
}

/* Up to n batches from where the loader stands; *hash goes on. */
static inline int take(pen_loader *loader, int n, uint64_t *hash)
{
    for (int i = 0; i < n; i++) {
        pen_batch *b;
        pen_error err;
        int rc = pen_loader_next(loader, -1, &b, &err);
        if (rc == PEN_END)
            return i;
        if (rc)
            fail_msg("%s", err.text);
        *hash = hash_batch(b, *hash);
        pen_batch_unref(b);
    }
    return n;
}

/* A file that is gone ends the epoch with an error that names it; once it is back, seeking goes
 * on with epoch 0, whose hash is `want`.  Frees the loader. */
static inline void lose_and_find_a_file(pen_loader *loader, uint64_t want)
{
    char path[128], aside[128];
    snprintf(path, sizeof path, "%s/class0/0002.jpg", dir);
    snprintf(aside, sizeof aside, "%s.aside", dir);
    assert_int_equal(rename(path, aside), 0);
    pen_batch *b;
    pen_error err;
    int rc;
    while ((rc = pen_loader_next(loader, -1, &b, &err)) == 0)
        pen_batch_unref(b);
    assert_int_equal(rc, PEN_EIO);
    assert_non_null(strstr(err.text, "0002"));
    assert_int_equal(rename(aside, path), 0);
    assert_int_equal(pen_loader_seek(loader, 0, 0, NULL), 0);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    assert_true(hash == want);
    pen_loader_free(loader);
}

#endif
