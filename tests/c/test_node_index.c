/* test_node_index.c - a storage node finds the marks of JPEG files while it serves them, keeps them
 * for the next one, and sends the same bytes as one that does not. */
#include "testing.h"

#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <penstock/penstock.h>

#include "asking.h"
#include "base/mem.h"
#include "engine/parcel.h"
#include "openmetrics.h"
#include "pictures.h"
#include "remote/node_impl.h"
#include "trees.h"

enum { N_GOOD = 9, N_SHORT = 2, N_PNG = 1, N_ALL = N_GOOD + N_SHORT + N_PNG, N_EPOCHS = 3 };

static pen_pipeline *line;

static const char *name_of(int i)
{
    static char name[32];
    snprintf(name, sizeof name, "data/c/%02d.%s", i, i < N_GOOD + N_SHORT ? "jpg" : "png");
    return name;
}

/* All files have the same length: behind the end marker anything may follow. */
static void put_picture(int i, uint64_t seed)
{
    enum { LENGTH = 60000, TOO_SHORT = 9000 };
    make_parents(name_of(i));
    const char *path = in_tree(name_of(i));
    (i < N_GOOD + N_SHORT ? write_jpeg : write_png)(path, 150 + 7 * i, 200 - 5 * i, seed);
    assert_int_equal(truncate(path, i < N_GOOD || i >= N_GOOD + N_SHORT ? LENGTH : TOO_SHORT), 0);
}

static int set_up(void **state)
{
    if (tree_setup(state) != 0)
        return -1;
    unsetenv("PENSTOCK_INDEX");
    for (int i = 0; i < N_ALL; i++)
        put_picture(i, (uint64_t)i);
    const pen_op ops[] = {pen_op_random_resized_crop(64, 64), pen_op_to_tensor()};
    return pen_pipeline_create(&line, ops, 2, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL);
}

static int tear_down(void **state)
{
    pen_pipeline_unref(line);
    return tree_teardown(state);
}

/* ---- nodes ---- */

static pen_dataset_opts cached_at(const char *cache)
{
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.cache_dir = in_tree(cache);
    return opts;
}

/* Not started yet. */
static pen_node *node_with(const char *cache, bool use_index)
{
    pen_node *node;
    pen_node_opts opts;
    pen_node_opts_init(&opts);
    opts.listen = "127.0.0.1:0";
    opts.cpus = 2;
    opts.use_index = use_index;
    const pen_dataset_opts ds = cached_at(cache);
    pen_error err = {0};
    if (pen_node_create(&node, &opts, &err) ||
        pen_node_add(node, "data", in_tree("data"), &ds, &err))
        fail_msg("%s", err.text);
    return node;
}

static pen_node *start(const char *cache, bool use_index)
{
    pen_node *node = node_with(cache, use_index);
    assert_int_equal(pen_node_start(node, NULL), 0);
    return node;
}

static int64_t entries_on_disk(const char *cache)
{
    pen_dataset *ds;
    const pen_dataset_opts opts = cached_at(cache);
    assert_int_equal(pen_dataset_open(&ds, in_tree("data"), &opts, NULL), 0);
    int64_t n_samples, n_bytes;
    pen_dataset_jpeg_index(ds, &n_samples, &n_bytes);
    pen_dataset_unref(ds);
    return n_samples;
}

/* All samples of an epoch. */
static int post_all(const pen_node *node, int epoch, int forms)
{
    static char items[2048];
    int n = 0;
    for (int i = 0; i < N_ALL; i++)
        n += snprintf(items + n, sizeof items - (size_t)n, "%c[%d,%d,0,1,%d]", i ? ',' : '[', i,
                      epoch, forms);
    snprintf(items + n, sizeof items - (size_t)n, "]");
    return post(port_of(node), pen_pipeline_hash(line), items);
}

static void put_line(const pen_node *node)
{
    const int status = put(port_of(node), pen_pipeline_hash(line), pen_pipeline_describe(line));
    assert_true(status == 200 || status == 201);
}

/* All parcels of some epochs, files and cuts, or whatever is smallest: the caller frees. */
typedef struct parcels {
    uint8_t *data[N_EPOCHS][N_ALL];
    size_t len[N_EPOCHS][N_ALL];
    int n_cuts;
} parcels;

static parcels serve_epochs(const pen_node *node)
{
    parcels out = {.n_cuts = 0};
    put_line(node);
    for (int epoch = 0; epoch < N_EPOCHS; epoch++) {
        sent_frame frames[N_ALL];
        assert_int_equal(post_all(node, epoch, epoch < 2 ? 3 : 63), 200);
        assert_int_equal(read_frames(frames, N_ALL), N_ALL);
        for (int i = 0; i < N_ALL; i++) {
            assert_int_equal(frames[i].status, 0);
            out.n_cuts += frames[i].body[1] == PEN__FORM_JPEG_CUT;
            out.len[epoch][i] = frames[i].len;
            out.data[epoch][i] = malloc(frames[i].len);
            memcpy(out.data[epoch][i], frames[i].body, frames[i].len);
        }
    }
    return out;
}

static void forget(parcels *p)
{
    for (int i = 0; i < N_EPOCHS * N_ALL; i++)
        free(p->data[i / N_ALL][i % N_ALL]);
}

/* The same, byte for byte.  Forgets `got`. */
static void check_same(parcels *got, const parcels *want)
{
    for (int i = 0; i < N_EPOCHS; i++)
        for (int j = 0; j < N_ALL; j++) {
            assert_int_equal(got->len[i][j], want->len[i][j]);
            assert_memory_equal(got->data[i][j], want->data[i][j], want->len[i][j]);
        }
    forget(got);
}

static parcels without_index(void)
{
    pen_node *node = start("none", false);
    parcels out = serve_epochs(node);
    assert_true(out.n_cuts > N_GOOD);
    pen_node_free(node);
    assert_int_equal(entries_on_disk("none"), 0);
    return out;
}

typedef struct counts {
    int made, hits, entries;
} counts;

static counts counted(const pen_node *node)
{
    static om_text om;
    size_t len;
    assert_int_equal(get(port_of(node), "/metrics"), 200);
    om_parse(body_of_answer(&len), &om);
    return (counts){(int)om_value(&om, "penstock_node_index_made_total"),
                    (int)om_value(&om, "penstock_node_index_hits_total"),
                    (int)om_value(&om, "penstock_node_index_entries")};
}

static void check_counts(const pen_node *node, int made, int hits, int entries)
{
    const counts n = counted(node);
    assert_int_equal(n.made, made);
    assert_int_equal(n.hits, hits);
    assert_int_equal(n.entries, entries);
}

/* ---- tests ---- */

static void a_node_that_has_served_leaves_an_index_to_the_next(void **state)
{
    (void)state;
    parcels want = without_index();
    pen_node *node = start("cache", true);
    check_counts(node, 0, 0, 0);
    parcels got = serve_epochs(node);
    check_same(&got, &want);
    check_counts(node, N_GOOD, (N_EPOCHS - 1) * N_GOOD, N_GOOD);
    pen_node_stop(node, 1);
    assert_int_equal(entries_on_disk("cache"), N_GOOD);
    pen_node_free(node);
    node = start("cache", true);
    check_counts(node, 0, 0, N_GOOD);
    got = serve_epochs(node);
    check_same(&got, &want);
    check_counts(node, 0, N_EPOCHS * N_GOOD, N_GOOD);
    pen_node_free(node);
    forget(&want);
}

static void a_loader_takes_what_a_node_has_found(void **state)
{
    (void)state;
    pen_node *node = start("cache", true);
    parcels got = serve_epochs(node);
    forget(&got);
    pen_node_free(node);
    pen_dataset *ds;
    pen_loader *loader;
    pen_loader_opts opts;
    pen_batch *batch;
    pen_loader_stats stats;
    const pen_dataset_opts cached = cached_at("cache");
    pen_loader_opts_init(&opts);
    opts.workers = 0;
    opts.batch_size = N_GOOD;
    assert_int_equal(pen_dataset_open(&ds, in_tree("data"), &cached, NULL), 0);
    assert_int_equal(pen_loader_create(&loader, ds, line, &opts, NULL), 0);
    assert_int_equal(pen_loader_next(loader, -1, &batch, NULL), 0);
    pen_loader_get_stats(loader, &stats);
    assert_int_equal(stats.jpeg_indexed, N_GOOD);
    pen_batch_unref(batch);
    pen_loader_free(loader);
    pen_dataset_unref(ds);
}

static void a_file_that_was_replaced_is_found_anew(void **state)
{
    (void)state;
    pen_node *node = start("cache", true);
    parcels got = serve_epochs(node);
    forget(&got);
    pen_node_free(node);
    put_picture(3, 77);
    parcels want = without_index();
    node = start("cache", true);
    got = serve_epochs(node);
    check_same(&got, &want);
    check_counts(node, 1, N_EPOCHS * N_GOOD - 1, N_GOOD);
    pen_node_free(node);
    forget(&want);
}

static void files_that_have_no_marks_are_tried_once(void **state)
{
    (void)state;
    pen_node *node = start("cache", true);
    parcels got = serve_epochs(node);
    forget(&got);
    const pen__served *served = &node->served[0];
    for (int i = 0; i < N_ALL; i++)
        assert_int_equal(pen__index_wants(served, i), i < N_GOOD || i >= N_GOOD + N_SHORT);
    pen_node_free(node);
}

static void nothing_is_found_for_files_as_they_are_stored(void **state)
{
    (void)state;
    pen_node *node = start("cache", true);
    put_line(node);
    assert_int_equal(post_all(node, 0, 1), 200);
    check_counts(node, 0, 0, 0);
    pen_node_free(node);
}

static void it_can_be_switched_off(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            setenv("PENSTOCK_INDEX", "off", 1);
        pen_node *node = start("cache", i == 1);
        assert_null(node->saver);
        parcels got = serve_epochs(node);
        forget(&got);
        check_counts(node, 0, 0, 0);
        pen_node_free(node);
        unsetenv("PENSTOCK_INDEX");
        assert_int_equal(entries_on_disk("cache"), 0);
    }
}

static void it_is_written_now_and_then(void **state)
{
    (void)state;
    pen_node *node = node_with("cache", true);
    node->save_ns = 1000000;
    assert_int_equal(pen_node_start(node, NULL), 0);
    parcels got = serve_epochs(node);
    forget(&got);
    while (entries_on_disk("cache") < N_GOOD) /* for ever, if nobody writes it */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    pen_node_free(node);
}

/* Nothing can be added to any file of this process, as on a full disk. */
static void fill_disk(bool is_full)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = is_full ? 0 : limit.rlim_max;
    signal(SIGXFSZ, is_full ? SIG_IGN : SIG_DFL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void marks_that_cannot_be_kept_are_made_once(void **state)
{
    (void)state;
    parcels want = without_index();
    pen_node *node = start("cache", true);
    fill_disk(true);
    parcels got = serve_epochs(node);
    fill_disk(false);
    check_same(&got, &want);
    check_counts(node, N_GOOD, 0, 0);
    pen_node_free(node);
    forget(&want);
}

/* Where nothing can be written, at the start or later, a node serves as ever. */
static void a_cache_that_takes_nothing_is_no_error(void **state)
{
    (void)state;
    parcels want = without_index();
    put_text("a-file", "and no directory");
    pen_node *node = start("a-file/cache", true);
    assert_null(node->served[0].marks);
    parcels got = serve_epochs(node);
    check_same(&got, &want);
    pen_node_free(node);
    node = start("cache", true);
    got = serve_epochs(node);
    check_same(&got, &want);
    assert_int_equal(rename(in_tree("cache"), in_tree("gone")), 0);
    pen_node_free(node);
    assert_int_equal(entries_on_disk("gone"), 0);
    forget(&want);
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    const pen_dataset_opts cached = cached_at("cache");
    pen_node_opts opts;
    pen_node_opts_init(&opts);
    opts.listen = "127.0.0.1:0";
    opts.cpus = 1;
    int n_started = 0;
    for (int64_t n = 1, n_made = 1; n_made >= n - 1; n++) { /* while it is made */
        pen_node *node = NULL;
        const int64_t before = pen__mem_count();
        pen__mem_fail_at(n);
        int rc = pen_node_create(&node, &opts, NULL);
        if (rc == 0)
            rc = pen_node_add(node, "data", in_tree("data"), &cached, NULL);
        if (rc == 0)
            rc = pen_node_start(node, NULL);
        n_started += rc == 0;
        pen__mem_fail_at(0);
        pen_node_free(node);
        n_made = pen__mem_count() - before;
        assert_int_equal(pen__mem_live(), live);
    }
    assert_true(n_started > 1);        /* it does without an index, or a thread */
    for (int64_t n = 1; n < 30; n++) { /* while it runs: an error, or no answer */
        pen_node *node = start("cache", true);
        put_line(node);
        pen__mem_fail_at(n);
        post_all(node, 0, 3);
        pen__mem_fail_at(0);
        assert_int_equal(post_all(node, 1, 3), 200);
        pen__mem_fail_at(n); /* of writing the index, too */
        pen_node_free(node);
        pen__mem_fail_at(0);
        assert_int_equal(pen__mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_node_that_has_served_leaves_an_index_to_the_next, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_loader_takes_what_a_node_has_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_was_replaced_is_found_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_that_have_no_marks_are_tried_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_found_for_files_as_they_are_stored, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(it_can_be_switched_off, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_written_now_and_then, set_up, tear_down),
        cmocka_unit_test_setup_teardown(marks_that_cannot_be_kept_are_made_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cache_that_takes_nothing_is_no_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failing_allocations_are_survived, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
