/* test_loader.c - the law, in C: no thread count, budget, seek or restart changes a byte. */
#include "testing.h"

#include <dirent.h>
#include <sys/wait.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "lines.h"
#include <penstock/knobs.h>

#include "loading.h"

static uint64_t epoch_hash(const pen_loader_opts *o)
{
    uint64_t hash = 0;
    pen_loader *loader = open_loader(o);
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    pen_loader_free(loader);
    return hash;
}

static uint64_t reference(void)
{
    pen_loader_opts o = options(0);
    return epoch_hash(&o);
}

static void any_number_of_workers_gives_the_same_bytes(void **state)
{
    (void)state;
    uint64_t want = reference();
    static const int counts[] = {1, 2, 3, 8};
    for (int i = 0; i < 4; i++)
        for (int ready = 1; ready <= 4; ready++) {
            pen_loader_opts o = options(counts[i]);
            o.ready_batches = ready;
            assert_true(epoch_hash(&o) == want);
        }
}

static void batches_ready_at_first_keep_all_threads_busy(void **state)
{
    (void)state;
    static const struct {
        int workers, batch, ready, want;
    } cases[] = {{2, 32, 0, 2}, {0, 1, 0, 3}, {1, 2, 0, 2},
                 {8, 8, 0, 3},  {8, 3, 0, 7}, {2, 1, 9, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pen_loader_opts o = options(cases[i].workers);
        pen_knobs knobs = {.struct_size = sizeof knobs};
        o.batch_size = cases[i].batch;
        o.ready_batches = cases[i].ready;
        pen_loader *loader = open_loader(&o);
        assert_int_equal(pen_loader_get_knobs(loader, &knobs), 0);
        assert_int_equal((int)knobs.value[PEN_KNOB_READY_BATCHES], cases[i].want);
        pen_loader_free(loader);
    }
}

static void a_budget_that_throttles_gives_the_same_bytes(void **state)
{
    (void)state;
    uint64_t want = reference();
    pen_loader_opts o = options(4);
    o.memory_budget = 720 * 1024; /* the batch and one or two samples */
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    assert_true(hash == want);
    pen_loader_stats stats;
    pen_loader_get_stats(loader, &stats);
    assert_true(stats.budget_peak <= o.memory_budget);
    pen_loader_free(loader);

    o.memory_budget = 200 * 1024;
    loader = open_loader(&o);
    pen_batch *b;
    pen_error err;
    assert_int_equal(pen_loader_next(loader, -1, &b, &err), PEN_EBUDGET);
    assert_non_null(strstr(err.text, "sample 'class"));
    pen_loader_free(loader);
}

/* The bytes of an epoch, or the error that a sample without room ends it with. */
static int try_epoch(const pen_loader_opts *o, uint64_t *hash)
{
    pen_loader *loader = open_loader(o);
    pen_error err;
    pen_batch *b;
    int rc;
    *hash = 0;
    while ((rc = pen_loader_next(loader, -1, &b, &err)) == 0) {
        *hash = hash_batch(b, *hash);
        pen_batch_unref(b);
    }
    pen_loader_stats stats;
    pen_loader_get_stats(loader, &stats);
    assert_true(stats.budget_peak <= stats.budget_bytes);
    if (rc < 0) {
        const char *reason = strstr(err.text, ": needs ");
        double needs, leaves;
        assert_non_null(strstr(err.text, "sample 'class"));
        assert_non_null(reason);
        assert_int_equal(
            sscanf(reason, ": needs %lf MB, the memory budget leaves %lf MB", &needs, &leaves), 2);
        assert_true(needs > leaves);
    }
    pen_loader_free(loader);
    return rc;
}

static void every_operation_keeps_the_law(void **state)
{
    (void)state;
    pen_op ops[PEN_PIPELINE_MAX_OPS];
    pen_pipeline *usual = pipe_;
    pipe_ = make(ops, everything(ops));
    uint64_t want = reference(), hash;
    static const int counts[] = {1, 2, 8};
    for (size_t i = 0; i < COUNT(counts); i++) {
        pen_loader_opts o = options(counts[i]);
        assert_true(epoch_hash(&o) == want);
        int rc = PEN_END; /* with less and less memory, until a sample does not fit */
        for (o.memory_budget = 2048 * 1024; rc == PEN_END; o.memory_budget -= 128 * 1024) {
            rc = try_epoch(&o, &hash);
            assert_true(rc == PEN_EBUDGET || (rc == PEN_END && hash == want));
        }
    }
    static const unsigned levels[] = {0, PEN__CPU_AVX2};
    for (size_t i = 0; i < COUNT(levels); i++) {
        pen__cpu_mask(levels[i]);
        assert_true(reference() == want);
    }
    pen__cpu_mask(~0U);
    pen_pipeline_unref(pipe_);
    pipe_ = usual;
}

static void three_resumes_in_a_row_cut_anywhere_go_on_exactly(void **state)
{
    (void)state;
    uint64_t want = reference();
    for (int a = 0; a <= BATCHES; a++)
        for (int b = a; b <= BATCHES; b++) {
            char text[PEN_STATE_MAX] = "";
            uint64_t hash = 0;
            const int cuts[3] = {a, b - a, 1000};
            for (int part = 0; part < 3; part++) {
                pen_loader_opts o = options(part); /* 0, 1 and 2 workers */
                pen_loader *loader = open_loader(&o);
                if (part)
                    assert_int_equal(pen_loader_resume(loader, text, NULL), 0);
                int64_t epoch, batch;
                pen_loader_tell(loader, &epoch, &batch);
                if (epoch == 0)
                    take(loader, cuts[part], &hash);
                assert_true(pen_loader_state(loader, text, sizeof text) < PEN_STATE_MAX);
                pen_loader_free(loader);
            }
            assert_true(hash == want);
        }
}

static void ranks_together_see_the_same_batches(void **state)
{
    (void)state;
    pen_loader_opts one = options(2);
    one.tail = PEN_TAIL_WRAP;
    pen_loader *whole = open_loader(&one), *part[2];
    for (int r = 0; r < 2; r++) {
        pen_loader_opts o = options(1);
        o.tail = PEN_TAIL_WRAP;
        o.batch_size = BATCH / 2;
        o.world_size = 2;
        o.rank = r;
        part[r] = open_loader(&o);
    }
    size_t half = BATCH / 2 * pen_pipeline_shape(pipe_).bytes;
    for (int i = 0; i < 2 * BATCHES; i++) {
        pen_batch *w, *p;
        int rc = pen_loader_next(whole, -1, &w, NULL);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(pen_loader_next(part[r], -1, &p, NULL), rc);
            if (rc == 0)
                assert_memory_equal((uint8_t *)pen_batch_data(w) + (size_t)r * half,
                                    pen_batch_data(p), half);
            pen_batch_unref(p);
        }
        pen_batch_unref(w);
    }
    pen_loader_free(whole);
    pen_loader_free(part[0]);
    pen_loader_free(part[1]);
}

static void epochs_follow_each_other_and_differ(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    uint64_t first = 0, second = 0, again = 0;
    assert_int_equal(take(loader, 1000, &first), BATCHES);
    int64_t epoch, batch;
    pen_loader_tell(loader, &epoch, &batch);
    assert_true(epoch == 1 && batch == 0);
    assert_int_equal(take(loader, 1000, &second), BATCHES);
    assert_true(first != second);
    assert_int_equal(pen_loader_seek(loader, 1, 0, NULL), 0);
    assert_int_equal(take(loader, 1000, &again), BATCHES);
    assert_true(second == again);
    assert_int_equal(pen_loader_seek(loader, 0, BATCHES + 1, NULL), PEN_EINVAL);
    assert_int_equal(pen_loader_seek(loader, -1, 0, NULL), PEN_EINVAL);
    pen_loader_free(loader);
}

static void any_batch_can_be_built_again(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    for (int i = 0; i < BATCHES; i++) {
        pen_batch *live, *again;
        assert_int_equal(pen_loader_next(loader, -1, &live, NULL), 0);
        assert_int_equal(pen_loader_replay(loader, 0, i, &again, NULL), 0);
        assert_true(hash_batch(live, 0) == hash_batch(again, 0));
        pen_batch_unref(live);
        pen_batch_unref(again);
    }
    pen_batch *none;
    assert_int_equal(pen_loader_replay(loader, 0, BATCHES, &none, NULL), PEN_EINVAL);
    pen_loader_free(loader);
}

static void holding_every_batch_does_not_block(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    o.ready_batches = 1;
    pen_loader *loader = open_loader(&o);
    pen_batch *held[BATCHES];
    for (int i = 0; i < BATCHES; i++)
        assert_int_equal(pen_loader_next(loader, -1, &held[i], NULL), 0);
    pen_loader_free(loader); /* batches stay valid */
    for (int i = 0; i < BATCHES; i++) {
        assert_int_equal(pen_batch_index(held[i]), i);
        pen_batch_unref(held[i]);
    }
}

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void stopping_early_leaves_no_thread_file_or_memory(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    int threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
    for (int n = 0; n < 20; n++) {
        pen_loader_opts o = options(3);
        uint64_t hash = 0;
        pen_loader *loader = open_loader(&o);
        take(loader, n % 4, &hash);
        if (n % 3 == 0)
            pen_loader_seek(loader, 9, 2, NULL);
        pen_loader_free(loader);
    }
    assert_int_equal(pen__mem_live(), live);
    for (int i = 0; i < 1000 && count_entries("/proc/self/task") > threads; i++)
        usleep(10000); /* a joined thread may be listed for a moment yet */
    assert_int_equal(count_entries("/proc/self/task"), threads);
    assert_int_equal(count_entries("/proc/self/fd"), files);
}

/* Damage one file, look what each mode does, and mend it. */
static void bad_samples_are_raised_skipped_or_replaced(void **state)
{
    (void)state;
    char path[128], ledger[128];
    snprintf(path, sizeof path, "%s/class0/0006.jpg", dir);
    char command[512];
    snprintf(
        command, sizeof command,
        "cp '%s' '%s.good' && printf 'no picture at all' | dd of='%s' conv=notrunc 2>/dev/null",
        path, dir, path);
    assert_int_equal(system(command), 0);
    snprintf(ledger, sizeof ledger, "%s.ledger", dir);
    pen_error err;
    pen_batch *b;
    int rc;

    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    while ((rc = pen_loader_next(loader, -1, &b, &err)) == 0)
        pen_batch_unref(b);
    assert_int_equal(rc, PEN_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "class0/0006"));
    assert_int_equal(pen_loader_next(loader, -1, &b, &err), rc); /* it stays */
    pen_loader_free(loader);

    uint64_t hashes[2][2];
    for (int mode = PEN_ON_ERROR_SKIP; mode <= PEN_ON_ERROR_REPLACE; mode++)
        for (int workers = 0; workers < 4; workers += 3) {
            o = options(workers);
            o.on_error = (pen_on_error)mode;
            o.ledger_path = ledger;
            loader = open_loader(&o);
            int64_t n = 0;
            uint64_t hash = 0;
            while ((rc = pen_loader_next(loader, -1, &b, &err)) == 0) {
                n += pen_batch_count(b);
                hash = hash_batch(b, hash);
                pen_batch_unref(b);
            }
            assert_int_equal(rc, PEN_END);
            assert_int_equal(n, mode == PEN_ON_ERROR_SKIP ? PICTURES - 1 : PICTURES);
            pen_loader_stats stats;
            pen_loader_get_stats(loader, &stats);
            assert_true(stats.bad_samples >= 1);
            hashes[mode - 1][workers > 0] = hash;
            pen_loader_free(loader);
        }
    assert_true(hashes[0][0] == hashes[0][1] && hashes[1][0] == hashes[1][1]);

    o = options(1);
    o.on_error = PEN_ON_ERROR_SKIP;
    o.batch_size = 1; /* a batch with nothing left in it is not delivered */
    loader = open_loader(&o);
    int n_delivered = 0;
    while ((rc = pen_loader_next(loader, -1, &b, &err)) == 0) {
        assert_int_equal(pen_batch_count(b), 1);
        pen_batch_unref(b);
        n_delivered++;
    }
    assert_int_equal(rc, PEN_END);
    assert_int_equal(n_delivered, PICTURES - 1);
    pen_loader_free(loader);

    o = options(1);
    o.on_error = PEN_ON_ERROR_SKIP;
    o.max_bad = 0;
    loader = open_loader(&o);
    while ((rc = pen_loader_next(loader, -1, &b, &err)) == 0)
        pen_batch_unref(b);
    assert_int_equal(rc, PEN_EBAD);
    pen_loader_free(loader);

    char line[2048];
    FILE *f = fopen(ledger, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_non_null(strstr(line, "\"key\":\"class0/0006\""));
    assert_non_null(strstr(line, "\"action\":\"skip\""));
    fclose(f);
    unlink(ledger);
    snprintf(command, sizeof command, "mv '%s.good' '%s'", dir, path);
    assert_int_equal(system(command), 0);
}

static void a_missing_file_is_raised_whatever_the_mode(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    o.on_error = PEN_ON_ERROR_REPLACE;
    lose_and_find_a_file(open_loader(&o), reference());
}

static void options_that_cannot_hold_are_refused(void **state)
{
    (void)state;
    pen_loader *loader;
    pen_error err;
    pen_loader_opts o = options(1);
    o.batch_size = 0;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o = options(1);
    o.world_size = 2;
    o.tail = PEN_TAIL_SHORT;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o.tail = PEN_TAIL_WRAP;
    o.on_error = PEN_ON_ERROR_SKIP;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o = options(1);
    o.rank = 1;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    o = options(1);
    o.memory_budget = 1000;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "budget"));
    o = options(1);
    o.ledger_path = "/nowhere/at/all";
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EIO);
    assert_null(loader);
    char pipe_path[128]; /* must not wait for a reader */
    snprintf(pipe_path, sizeof pipe_path, "%s/fifo", dir);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    o.ledger_path = pipe_path;
    assert_int_equal(pen_loader_create(&loader, ds, pipe_, &o, &err), PEN_EIO);
    unlink(pipe_path);
    pen_loader_free(NULL);
}

static void a_state_of_another_stream_is_refused(void **state)
{
    (void)state;
    char text[PEN_STATE_MAX];
    pen_error err;
    pen_loader_opts o = options(0);
    pen_loader *a = open_loader(&o);
    pen_loader_state(a, text, sizeof text);
    o.seed = 6;
    pen_loader *b = open_loader(&o);
    assert_int_equal(pen_loader_resume(b, text, &err), PEN_ESTATE);
    assert_non_null(strstr(err.text, "seed"));
    assert_int_equal(pen_loader_resume(b, "{}", &err), PEN_EINVAL);
    pen_loader_free(a);
    pen_loader_free(b);
}

static void inline_work_is_back_in_time_and_goes_on(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    pen_batch *b;
    for (int i = 1; i < BATCH; i++) /* no time at all: one sample a call */
        assert_int_equal(pen_loader_next(loader, 0, &b, NULL), PEN_AGAIN);
    assert_int_equal(pen_loader_next(loader, 0, &b, NULL), 0);
    uint64_t hash = hash_batch(b, 0), wanted = 0;
    pen_batch_unref(b);
    pen_loader_free(loader);
    loader = open_loader(&o);
    take(loader, 1, &wanted);
    assert_true(hash == wanted);
    pen_loader_free(loader);
}

static void a_forked_child_is_told_so(void **state)
{
    (void)state;
    pen_loader_opts o = options(2);
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    take(loader, 1, &hash);
    pid_t child = fork();
    if (child == 0) {
        pen_batch *b;
        bool is_told = pen_loader_next(loader, -1, &b, NULL) == PEN_EFORK &&
                       pen_loader_seek(loader, 3, 0, NULL) == PEN_EFORK &&
                       pen_loader_replay(loader, 0, 0, &b, NULL) == PEN_EFORK;
        pen_loader_free(loader);
        _exit(is_told ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    pen_loader_free(loader);
}

/* An empty file is a bad sample like any other, and costs no memory for ever. */
static void an_empty_file_is_skipped_without_a_leak(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/class1/empty.jpg", dir);
    fclose(fopen(path, "wb"));
    pen_dataset *full = ds;
    assert_int_equal(pen_dataset_open(&ds, dir, NULL, NULL), 0);
    int64_t live = pen__mem_live();
    pen_loader_opts o = options(2);
    o.on_error = PEN_ON_ERROR_SKIP;
    pen_loader *loader = open_loader(&o);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    pen_loader_stats stats;
    pen_loader_get_stats(loader, &stats);
    assert_int_equal(stats.bad_samples, 1);
    assert_int_equal(stats.samples, PICTURES);
    pen_loader_free(loader);
    assert_int_equal(pen__mem_live(), live);
    pen_dataset_unref(ds);
    ds = full;
    unlink(path);
}

static void seeking_clears_a_lack_of_memory(void **state)
{
    (void)state;
    pen_loader_opts o = options(0);
    pen_loader *loader = open_loader(&o);
    pen_batch *b;
    pen__mem_fail_at(1); /* the slab */
    assert_int_equal(pen_loader_next(loader, -1, &b, NULL), PEN_ENOMEM);
    pen__mem_fail_at(0);
    assert_int_equal(pen_loader_next(loader, -1, &b, NULL), PEN_ENOMEM); /* it stays */
    assert_int_equal(pen_loader_seek(loader, 0, 0, NULL), 0);
    uint64_t hash = 0;
    assert_int_equal(take(loader, 1000, &hash), BATCHES);
    assert_true(hash == reference());
    pen_loader_free(loader);
}

/* Inline, so that the n-th allocation is always the same one. */
static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    pen_loader_opts o = options(0);
    for (int n = 1; n < 400; n++) {
        pen_loader *loader;
        pen_batch *b;
        pen_error err = {0};
        pen__mem_fail_at(n);
        int rc = pen_loader_create(&loader, ds, pipe_, &o, &err);
        for (int i = 0; rc == 0 && i < 3; i++) {
            rc = pen_loader_next(loader, -1, &b, &err);
            pen_batch_unref(b);
        }
        pen__mem_fail_at(0);
        if (rc && rc != PEN_ENOMEM)
            fail_msg("allocation %d: %s", n, err.text);
        pen_loader_free(loader);
        assert_int_equal(pen__mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_workers_gives_the_same_bytes),
        cmocka_unit_test(batches_ready_at_first_keep_all_threads_busy),
        cmocka_unit_test(a_budget_that_throttles_gives_the_same_bytes),
        cmocka_unit_test(every_operation_keeps_the_law),
        cmocka_unit_test(three_resumes_in_a_row_cut_anywhere_go_on_exactly),
        cmocka_unit_test(ranks_together_see_the_same_batches),
        cmocka_unit_test(epochs_follow_each_other_and_differ),
        cmocka_unit_test(any_batch_can_be_built_again),
        cmocka_unit_test(holding_every_batch_does_not_block),
        cmocka_unit_test(stopping_early_leaves_no_thread_file_or_memory),
        cmocka_unit_test(bad_samples_are_raised_skipped_or_replaced),
        cmocka_unit_test(a_missing_file_is_raised_whatever_the_mode),
        cmocka_unit_test(options_that_cannot_hold_are_refused),
        cmocka_unit_test(a_state_of_another_stream_is_refused),
        cmocka_unit_test(inline_work_is_back_in_time_and_goes_on),
        cmocka_unit_test(a_forked_child_is_told_so),
        cmocka_unit_test(an_empty_file_is_skipped_without_a_leak),
        cmocka_unit_test(seeking_clears_a_lack_of_memory),
        cmocka_unit_test(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
