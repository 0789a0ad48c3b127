/* test_hot_path.c - what a sample costs beside its pixels once a loader is under way: memory
 * from the allocator, and locks. */
#include "testing.h"

#include <dlfcn.h>
#include <pthread.h>

#include <penstock/penstock.h>

#include "base/mem.h"
#include "pictures.h"
#include "trees.h"

enum { PICTURES = 192, BATCH = 48, BATCHES = PICTURES / BATCH };

static _Atomic int64_t n_locks;

/* In front of the C library's, for the whole program. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    n_locks++;
    return real(mutex);
}

static pen_dataset *ds;
static pen_pipeline *pipe_;

static int set_up(void **state)
{
    if (tree_setup(state) != 0)
        return -1;
    unsetenv("PENSTOCK_INDEX");
    for (int i = 0; i < PICTURES; i++) {
        char name[32];
        snprintf(name, sizeof name, "data/c/%03d.jpg", i);
        make_parents(name);
        write_jpeg(in_tree(name), 200 + i, 180, (uint64_t)i);
        make_old(in_tree(name)); /* the index of a new one is written again later */
    }
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.cache_dir = in_tree("cache");
    pen_op ops[] = {pen_op_random_resized_crop(64, 64), pen_op_hflip(0.5F), pen_op_to_tensor()};
    return pen_dataset_open(&ds, in_tree("data"), &opts, NULL) ||
           pen_pipeline_create(&pipe_, ops, 3, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL);
}

static int tear_down(void **state)
{
    pen_pipeline_unref(pipe_);
    pen_dataset_unref(ds);
    return tree_teardown(state);
}

static void run_epoch(pen_loader *loader)
{
    pen_batch *batch;
    int rc;
    while ((rc = pen_loader_next(loader, -1, &batch, NULL)) == 0)
        pen_batch_unref(batch);
    assert_int_equal(rc, PEN_END);
}

static pen_loader *loader_with(int workers)
{
    pen_loader_opts o;
    pen_loader_opts_init(&o);
    o.batch_size = BATCH;
    o.order = PEN_ORDER_SHUFFLE;
    o.workers = workers;
    pen_loader *loader;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, NULL), 0);
    return loader;
}

/* Locks of an epoch once everything is under way, after making sure that its samples allocate
 * nothing. */
static int64_t locks_of_an_epoch(int workers)
{
    enum { WARM_UP = 6 };
    pen_loader *loader = loader_with(0);
    for (int i = 0; i < WARM_UP; i++) /* until the index is complete, and saved on closing */
        run_epoch(loader);
    pen_loader_free(loader);
    loader = loader_with(workers);
    for (int i = 0; i < WARM_UP; i++) /* blocks find their size */
        run_epoch(loader);
    int64_t n_allocated = pen__mem_count();
    n_locks = 0;
    run_epoch(loader);
    int64_t locks = n_locks;
    /* A worker may meet the sample that needs the largest block only now. */
    assert_in_range(pen__mem_count() - n_allocated, 0, 2 * workers);
    pen_loader_stats stats;
    pen_loader_get_stats(loader, &stats);
    assert_true(stats.jpeg_indexed >= (WARM_UP + 1) * PICTURES);
    pen_loader_free(loader);
    return locks;
}

/* A batch: opening it, a slab from the pool and back to it, waking and taking, and once for each
 * worker that finds no slot left. */
enum { LOCKS_A_BATCH = 12 };

static void a_sample_allocates_and_locks_nothing(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 2; workers++)
        assert_in_range(locks_of_an_epoch(workers), 1, LOCKS_A_BATCH * (BATCHES + 2));
}

static void without_workers_a_sample_asks_once_whether_its_batch_is_ready(void **state)
{
    (void)state;
    assert_in_range(locks_of_an_epoch(0), 1, PICTURES + LOCKS_A_BATCH * BATCHES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_sample_allocates_and_locks_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            without_workers_a_sample_asks_once_whether_its_batch_is_ready, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
