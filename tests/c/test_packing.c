/* test_packing.c - packs are what was packed, and nothing is half written. */
#include "packs.h"

#include <errno.h>
#include <sys/syscall.h>

#include "base/mem.h"

/* The n-th call from now of what may fail while a file is written fails; 0: none does. */
static int fail_call_at, n_calls;
static int fail_reason;

static bool must_fail(void)
{
    n_calls++;
    if (n_calls != fail_call_at)
        return false;
    errno = fail_reason;
    return true;
}

/* In place of libc's, for all of this program that is not libc. */
ssize_t write(int fd, const void *bytes, size_t n)
{
    return must_fail() ? -1 : syscall(SYS_write, fd, bytes, n);
}

int fsync(int fd)
{
    return must_fail() ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return must_fail() ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fallocate(int fd, int mode, off_t from, off_t len)
{
    return must_fail() ? -1 : (int)syscall(SYS_fallocate, fd, mode, from, len);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    return must_fail() ? -1 : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static pen_dataset *(*const sources[])(void) = {folder_to_pack, tars_to_pack, manifest_to_pack,
                                                list_to_pack};

static void a_pack_is_the_dataset_that_was_packed(void **state)
{
    (void)state;
    pen_dataset_opts opts = tree_opts(false);
    mkdir(in_tree("out"), 0755);
    for (size_t i = 0; i < COUNT(sources); i++) {
        char name[32];
        snprintf(name, sizeof name, "out/%zu.pen", i);
        pen_dataset *ds = sources[i]();
        const char *spec = pack_ok(ds, in_tree(name), 0, 1);
        assert_string_equal(spec, in_tree(name));
        pen_dataset *packed = open_ok(spec, &opts);
        assert_int_equal(pen_dataset_kind(packed), PEN_SOURCE_PACK);
        assert_same_dataset(ds, packed);
        pen_dataset_unref(packed);
        pen_dataset_unref(ds);
    }
    assert_int_equal(count_names(in_tree("out")), 2 + (int)COUNT(sources));
}

static void so_are_its_shards_in_whatever_order(void **state)
{
    (void)state;
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = folder_to_pack();
    char path[64];
    const char *spec = pack_ok(ds, in_tree("one.pen"), 1, 9); /* each sample its own */
    assert_string_equal(spec, in_tree("one-{000..008}.pen"));
    static const char *const orders[] = {"one-{000..008}.pen", "one-{008..000}.pen",
                                         "{one-00{8,3,5}.pen,one-00{0,1,2,4,6,7}.pen}"};
    for (size_t i = 0; i < COUNT(orders); i++) {
        pen_dataset *packed = open_ok(in_tree(orders[i]), &opts);
        assert_same_dataset(ds, packed);
        pen_dataset_unref(packed);
    }
    pack_ok(ds, in_tree("few.pen"), 3000, 0);
    pen_dataset *few = open_ok(in_tree("few-{000..001}.pen"), &opts);
    assert_true(pen_dataset_count(few) > 2 && pen_dataset_count(few) < 9);
    assert_int_equal(pen_dataset_class_count(few), 4); /* labels mean what they mean in all of it */
    for (int i = 0; i < 9; i++) {
        struct stat st;
        snprintf(path, sizeof path, "few-%03d.pen", i);
        if (stat(in_tree(path), &st) == 0)
            assert_true(st.st_size <= 3000);
    }
    pen_dataset_unref(few);
    pen_dataset_unref(ds);
}

static void a_pack_of_a_pack_is_the_same_bytes(void **state)
{
    (void)state;
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = tars_to_pack();
    pen_dataset *packed = open_ok(pack_ok(ds, in_tree("a.pen"), 0, 1), &opts);
    pack_ok(packed, in_tree("b.pen"), 0, 1);
    struct stat st, again;
    assert_int_equal(stat(in_tree("a.pen"), &st), 0);
    assert_int_equal(stat(in_tree("b.pen"), &again), 0);
    assert_int_equal(st.st_size, again.st_size);
    char a[8192], b[8192];
    FILE *x = fopen(in_tree("a.pen"), "rb"), *y = fopen(in_tree("b.pen"), "rb");
    assert_true(st.st_size < (off_t)sizeof a);
    assert_int_equal(fread(a, 1, sizeof a, x), st.st_size);
    assert_int_equal(fread(b, 1, sizeof b, y), st.st_size);
    assert_memory_equal(a, b, (size_t)st.st_size);
    fclose(x);
    fclose(y);
    pen_dataset_unref(packed);
    pen_dataset_unref(ds);
}

static void shards_of_different_packs_are_refused(void **state)
{
    (void)state;
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = folder_to_pack(), *other = manifest_to_pack();
    pack_ok(ds, in_tree("a.pen"), 3000, 0);
    pack_ok(other, in_tree("b.pen"), 1, 3);
    pack_ok(ds, in_tree("whole.pen"), 0, 1);
    open_fails(in_tree("{a,b}-000.pen"), &opts, PEN_EINVAL, "different packs");
    open_fails(in_tree("a-{000,001,000}.pen"), &opts, PEN_EINVAL, "listed twice");
    open_fails(in_tree("{a-001,whole}.pen"), &opts, PEN_EINVAL, "hold the same samples");
    open_fails(in_tree("b-{000..003}.pen"), &opts, PEN_ENOTFOUND, "no such shard");
    pen_dataset_unref(ds);
    pen_dataset_unref(other);
}

static void pack_fails(const pen_dataset *ds, const char *path, const pen_pack_opts *opts, int code,
                       const char *text)
{
    pen_error err = {0};
    int64_t rc = pen_pack_write(ds, path, opts, NULL, 0, &err);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%s with \"%s\" instead of %s with \"%s\"", pen_error_name((int)rc), err.text,
                 pen_error_name(code), text);
    assert_int_equal(err.code, code);
}

static void what_cannot_be_packed_is_told_before_anything_is_written(void **state)
{
    (void)state;
    pen_dataset *ds = manifest_to_pack();
    pen_pack_opts opts;
    pen_pack_opts_init(&opts);
    mkdir(in_tree("out"), 0755);
    mkdir(in_tree("out/dir.pen"), 0755);
    put_text("out/old.pen", "old");
    put_text("out/s-002.pen", "old");
    pack_fails(ds, in_tree("out/x"), NULL, PEN_EINVAL, "ends in .pen");
    pack_fails(ds, in_tree("out/.pen"), NULL, PEN_EINVAL, "ends in .pen");
    pack_fails(ds, NULL, NULL, PEN_EINVAL, "ends in .pen");
    pack_fails(ds, in_tree("none/x.pen"), NULL, PEN_EIO, "cannot create");
    pack_fails(ds, in_tree("out/old.pen"), NULL, PEN_EINVAL, "is there already");
    opts.overwrite = true;
    pack_fails(ds, in_tree("out/dir.pen"), &opts, PEN_EINVAL, "is a directory");
    opts.overwrite = false;
    opts.shard_bytes = 1;
    pack_fails(ds, in_tree("out/s.pen"), &opts, PEN_EINVAL, "s-002.pen' is there already");
    pack_fails(ds, in_tree("out/{a}.pen"), &opts, PEN_EINVAL, "braces");
    opts.shard_bytes = -1;
    pack_fails(ds, in_tree("out/x.pen"), &opts, PEN_EINVAL, "1 TiB");
    opts.struct_size = 0;
    pack_fails(ds, in_tree("out/x.pen"), &opts, PEN_EINVAL, "pen_pack_opts_init");
    char spec[4];
    assert_int_equal(pen_pack_write(ds, in_tree("out/x.pen"), NULL, spec, sizeof spec, NULL),
                     PEN_ENOSPC);
    assert_int_equal(count_names(in_tree("out")), 5);
    pen_dataset_unref(ds);
}

static void keys_that_leave_the_root_are_refused(void **state)
{
    (void)state;
    put_text("in/a.jpg", "a");
    put_text("b.jpg", "b");
    static const char *const up[] = {"a.jpg", "../b.jpg"};
    const char *absolute[] = {in_tree("b.jpg")};
    pen_dataset *ds;
    assert_int_equal(pen_dataset_from_list(&ds, in_tree("in"), up, NULL, 2, NULL, 0, NULL, NULL),
                     0);
    pack_fails(ds, in_tree("x.pen"), NULL, PEN_EINVAL, "'..' component");
    pen_dataset_unref(ds);
    assert_int_equal(
        pen_dataset_from_list(&ds, in_tree("in"), absolute, NULL, 1, NULL, 0, NULL, NULL), 0);
    pack_fails(ds, in_tree("x.pen"), NULL, PEN_EINVAL, "is absolute");
    pen_dataset_unref(ds);
}

static void overwriting_takes_the_place_of_the_old_file(void **state)
{
    (void)state;
    pen_dataset_opts opts = tree_opts(false);
    pen_pack_opts pack_opts;
    pen_pack_opts_init(&pack_opts);
    pack_opts.overwrite = true;
    put_text("x.pen", "old");
    pen_dataset *ds = manifest_to_pack();
    assert_int_equal(pen_pack_write(ds, in_tree("x.pen"), &pack_opts, NULL, 0, NULL), 1);
    pen_dataset *packed = open_ok(in_tree("x.pen"), &opts);
    /* over what it is read from, even */
    assert_int_equal(pen_pack_write(packed, in_tree("x.pen"), &pack_opts, NULL, 0, NULL), 1);
    pen_dataset_unref(packed);
    packed = open_ok(in_tree("x.pen"), &opts);
    assert_same_dataset(ds, packed);
    pen_dataset_unref(packed);
    pen_dataset_unref(ds);
}

/* Packing into out/ fails, and leaves there what was there: "old" in old-001.pen. */
static void leaves_nothing(const pen_dataset *ds, const pen_pack_opts *opts, int code)
{
    pen_error err = {0};
    int64_t rc = pen_pack_write(ds, in_tree("out/x.pen"), opts, NULL, 0, &err);
    if (rc != code)
        fail_msg("%s: %s", pen_error_name((int)rc), err.text);
    assert_int_equal(err.code, code);
    assert_int_equal(count_names(in_tree("out")), 2);
}

static int cancel_at;

static int cancel(void *ctx, int64_t done, int64_t total)
{
    int *n = ctx;
    assert_true(done <= total);
    return ++*n == cancel_at;
}

static void a_cancelled_pack_leaves_nothing_behind(void **state)
{
    (void)state;
    mkdir(in_tree("out"), 0755);
    pen_dataset *ds = folder_to_pack();
    for (cancel_at = 1; cancel_at <= 9; cancel_at++) {
        int n = 0;
        pen_pack_opts opts;
        pen_pack_opts_init(&opts);
        opts.shard_bytes = 3000;
        opts.progress = cancel;
        opts.progress_ctx = &n;
        leaves_nothing(ds, &opts, PEN_ECANCELED);
    }
    pen_dataset_unref(ds);
}

static void an_unreadable_sample_is_named_and_nothing_is_left(void **state)
{
    (void)state;
    mkdir(in_tree("out"), 0755);
    pen_dataset *ds = manifest_to_pack();
    assert_int_equal(unlink(in_tree("m/y/2.jpg")), 0);
    leaves_nothing(ds, NULL, PEN_EIO);
    pack_fails(ds, in_tree("out/x.pen"), NULL, PEN_EIO, "sample 'y/2'");
    pen_dataset_unref(ds);
}

/* What packing into out/x.pen may have made. */
static void remove_packs(void)
{
    unlink(in_tree("out/x.pen"));
    for (int i = 0; i < 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "out/x-%03d.pen", i);
        unlink(in_tree(name));
    }
}

/* A call that fails may be one that is done without: making room in advance. */
static void the_nth_call_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    mkdir(in_tree("out"), 0755);
    pen_dataset *ds = folder_to_pack();
    pen_pack_opts opts;
    pen_pack_opts_init(&opts);
    static const int reasons[] = {ENOSPC, EIO};
    static const int64_t sizes[] = {0, 3000};
    for (size_t i = 0; i < 4; i++) {
        int n_failed = 0;
        opts.shard_bytes = sizes[i % 2];
        fail_reason = reasons[i / 2];
        for (int n = 1;; n++) {
            pen_error err = {0};
            fail_call_at = n;
            n_calls = 0;
            int64_t rc = pen_pack_write(ds, in_tree("out/x.pen"), &opts, NULL, 0, &err);
            fail_call_at = 0;
            if (n > n_calls) {
                assert_true(rc > 0);
                break;
            }
            if (rc < 0) {
                n_failed++;
                assert_int_equal(rc, PEN_EIO);
                assert_non_null(strstr(err.text, strerror(fail_reason)));
                assert_int_equal(count_names(in_tree("out")), 2);
            }
            remove_packs(); /* without it, as good as with it */
        }
        assert_true(n_failed >= 4);
        remove_packs();
    }
    pen_dataset_unref(ds);
}

static void the_nth_allocation_that_fails_leaves_nothing_behind(void **state)
{
    (void)state;
    mkdir(in_tree("out"), 0755);
    pen_dataset *ds = folder_to_pack();
    pen_pack_opts opts;
    pen_pack_opts_init(&opts);
    opts.shard_bytes = 3000;
    const int64_t live = pen__mem_live();
    const int fds = open_fds();
    bool was_reached = true;
    for (int64_t n = 1; was_reached; n++) {
        pen_error err = {0};
        const int64_t count = pen__mem_count();
        pen__mem_fail_at(n);
        int64_t rc = pen_pack_write(ds, in_tree("out/x.pen"), &opts, NULL, 0, &err);
        pen__mem_fail_at(0);
        was_reached = pen__mem_count() - count >= n;
        assert_true(was_reached ? rc == PEN_ENOMEM : rc > 0);
        assert_int_equal(pen__mem_live(), live);
        assert_int_equal(open_fds(), fds);
        assert_true(rc > 0 || count_names(in_tree("out")) == 2);
    }
    pen_dataset_unref(ds);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_pack_is_the_dataset_that_was_packed),
        CASE(so_are_its_shards_in_whatever_order),
        CASE(a_pack_of_a_pack_is_the_same_bytes),
        CASE(shards_of_different_packs_are_refused),
        CASE(what_cannot_be_packed_is_told_before_anything_is_written),
        CASE(keys_that_leave_the_root_are_refused),
        CASE(overwriting_takes_the_place_of_the_old_file),
        CASE(a_cancelled_pack_leaves_nothing_behind),
        CASE(an_unreadable_sample_is_named_and_nothing_is_left),
        CASE(the_nth_call_that_fails_leaves_nothing_behind),
        CASE(the_nth_allocation_that_fails_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
