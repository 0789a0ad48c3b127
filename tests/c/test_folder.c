/* test_folder.c - directories of images. */
#include "trees.h"

#include <errno.h>

#include "source/source.h"

static void classes_and_files_come_in_torchvisions_order(void **state)
{
    (void)state;
    /* '-' sorts below '/' and '.': plain string order of paths would differ. */
    put_text("d/cat/b.jpg", "1");
    put_text("d/cat/a.jpg", "2");
    put_text("d/cat/a-b.jpg", "3");
    put_text("d/cat/sub/z.png", "4");
    put_text("d/cat/sub-1/y.webp", "5");
    put_text("d/cat/sub/deep/w.jpg", "8");
    put_text("d/cat-like/a.JPEG", "6");
    put_text("d/Zebra/deep/er/x.Jpg", "7");
    static const expected want[] = {
        {"Zebra/deep/er/x", 0}, {"cat/a-b", 1},     {"cat/a", 1},          {"cat/b", 1},
        {"cat/sub/z", 1},       {"cat/sub-1/y", 1}, {"cat/sub/deep/w", 1}, {"cat-like/a", 2},
    };
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_kind(ds), PEN_SOURCE_FOLDER);
    assert_int_equal(pen_dataset_class_count(ds), 3);
    assert_string_equal(pen_dataset_class_name(ds, 0), "Zebra");
    assert_string_equal(pen_dataset_class_name(ds, 2), "cat-like");
    assert_null(pen_dataset_class_name(ds, 3));
    assert_null(pen_dataset_class_name(ds, -1));
    assert_reads(ds, 0, "7");
    assert_reads(ds, 7, "6");
    pen_dataset_unref(ds);
}

static void a_flat_folder_has_label_zero_and_no_classes(void **state)
{
    (void)state;
    put_text("d/b.jpg", "bb");
    put_text("d/a.png", "a");
    put_text("d/notes/readme.md", "no image");
    static const expected want[] = {{"a", 0}, {"b", 0}};
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_class_count(ds), 0);
    assert_int_equal(pen_dataset_bytes(ds), 3);
    assert_int_equal(pen_dataset_find(ds, "/a"), PEN_ENOTFOUND);
    assert_int_equal(pen_dataset_find(ds, "c"), PEN_ENOTFOUND);
    assert_int_equal(pen_dataset_find(ds, ""), PEN_ENOTFOUND);
    pen_dataset_unref(ds);
}

static void an_empty_class_keeps_its_label(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "1");
    put_text("d/b/notes.txt", "no image");
    put_text("d/c/x.jpg", "1");
    static const expected want[] = {{"a/x", 0}, {"c/x", 2}};
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_class_count(ds), 3);
    pen_dataset_unref(ds);
}

static void images_in_the_root_beside_classes_are_an_error_that_names_one(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "1");
    put_text("d/stray.jpg", "1");
    open_fails(in_tree("d"), NULL, PEN_EINVAL, "'stray.jpg'");
}

static void hidden_and_other_files_are_passed_over_and_counted(void **state)
{
    (void)state;
    put_text("d/a/.x.jpg", "1");
    put_text("d/.git/x.jpg", "1");
    put_text("d/a/x.gif", "1");
    put_text("d/a/jpg", "1");
    put_text("d/a/x.jpg.txt", "1");
    open_fails(in_tree("d"), NULL, PEN_ENOTFOUND, "found 3 other files");
    open_fails(in_tree("d"), NULL, PEN_ENOTFOUND, ".jpg .jpeg .png .webp");
    put_text("d/a/x.jpg", "1");
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_int_equal(pen_dataset_count(ds), 1);
    pen_dataset_unref(ds);
}

static void files_that_differ_only_in_their_extension_keep_it(void **state)
{
    (void)state;
    put_text("d/k/a.jpg", "1");
    put_text("d/k/a.png", "2");
    put_text("d/k/a.jpg.png", "3"); /* its stem is the first one's new key */
    put_text("d/k/b.jpg", "4");
    put_text("d/m/a.jpg", "5");
    static const expected want[] = {
        {"k/a.jpg", 0}, {"k/a.jpg.png", 0}, {"k/a.png", 0}, {"k/b", 0}, {"m/a", 1}};
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_find(ds, "k/a"), PEN_ENOTFOUND);
    pen_dataset_unref(ds);
}

static void links_are_followed_and_a_loop_is_an_error(void **state)
{
    (void)state;
    put_text("real/x.jpg", "linked");
    put_text("d/a/y.jpg", "plain");
    assert_int_equal(symlink("../../real/x.jpg", in_tree("d/a/z.jpg")), 0);
    assert_int_equal(symlink("../real", in_tree("d/b")), 0);
    static const expected want[] = {{"a/y", 0}, {"a/z", 0}, {"b/x", 1}};
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_samples(ds, want, COUNT(want));
    assert_reads(ds, 1, "linked");
    assert_reads(ds, 2, "linked");
    pen_dataset_unref(ds);
    assert_int_equal(symlink("..", in_tree("d/a/up")), 0);
    open_fails(in_tree("d"), NULL, PEN_EINVAL, "a/up': a link leads back");
}

static pen_dataset_opts confined(void)
{
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.is_confined = true;
    return opts;
}

/* Links to files, by both kinds of path, to nothing and to a directory; links that stay inside are
 * followed, those in other links, too. */
static void a_confined_dataset_leaves_out_what_leads_out(void **state)
{
    (void)state;
    put_text("real/x.jpg", "secret");
    put_text("d/a/inside.jpg", "fine");
    put_text("d/k/sub/y.jpg", "deep");
    assert_int_equal(symlink("inside.jpg", in_tree("d/a/near.jpg")), 0);
    assert_int_equal(symlink("k/sub", in_tree("d/m")), 0);
    assert_int_equal(symlink("../m/y.jpg", in_tree("d/a/twice.jpg")), 0);
    assert_int_equal(symlink("../../real/x.jpg", in_tree("d/a/out.jpg")), 0);
    assert_int_equal(symlink(in_tree("real/x.jpg"), in_tree("d/a/root.jpg")), 0);
    assert_int_equal(symlink("../../real/nothing.jpg", in_tree("d/a/gone.jpg")), 0);
    assert_int_equal(symlink("../real", in_tree("d/b")), 0);
    static const expected want[] = {
        {"a/inside", 0}, {"a/near", 0}, {"a/twice", 0}, {"k/sub/y", 1}, {"m/y", 2}};
    const pen_dataset_opts opts = confined();
    pen_dataset *ds = open_ok(in_tree("d"), &opts);
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_class_count(ds), 3);
    assert_int_equal(ds->n_outside, 4);
    static const char *const texts[] = {"fine", "fine", "deep", "deep", "deep"};
    for (int i = 0; i < 5; i++)
        assert_reads(ds, i, texts[i]);
    pen_dataset_unref(ds);
    assert_int_equal(unlink(in_tree("d/a/gone.jpg")), 0);
    ds = open_ok(in_tree("d"), NULL); /* where they are wanted, they are followed */
    assert_int_equal(pen_dataset_count(ds), 8);
    assert_int_equal(ds->n_outside, 0);
    pen_dataset_unref(ds);
}

/* A directory there would be named, so a link is, too: it may be one to a directory. */
static void a_confined_dataset_names_a_link_whose_path_is_too_long(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "1");
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    int at = open(in_tree("d/a"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (int depth = 0; depth < 15; depth++) {
        assert_true(at >= 0);
        assert_int_equal(mkdirat(at, name, 0700), 0);
        int next = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    assert_int_equal(symlinkat(".", at, name), 0);
    const pen_dataset_opts opts = confined();
    open_fails(in_tree("d"), &opts, PEN_EIO, "File name too long");
    assert_int_equal(unlinkat(at, name, 0), 0);
    close(at);
}

static void links_that_were_left_out_are_told_of_where_nothing_else_is_there(void **state)
{
    (void)state;
    put_text("real/x.jpg", "secret");
    put_text("d/notes.txt", "no image");
    assert_int_equal(symlink("../real/x.jpg", in_tree("d/out.jpg")), 0);
    const pen_dataset_opts opts = confined();
    open_fails(in_tree("d"), &opts, PEN_ENOTFOUND,
               "found 1 other files, left out 1 links that lead out of it");
}

static void a_confined_dataset_reads_nothing_outside_of_its_directory(void **state)
{
    (void)state;
    put_text("real/x.jpg", "secret");
    put_text("d/a/file.jpg", "public");
    put_text("d/b/x.jpg", "public");
    const pen_dataset_opts opts = confined();
    pen_dataset *ds = open_ok(in_tree("d"), &opts);
    assert_int_equal(unlink(in_tree("d/a/file.jpg")), 0); /* after it was looked at */
    assert_int_equal(symlink("../../real/x.jpg", in_tree("d/a/file.jpg")), 0);
    assert_int_equal(rename(in_tree("d/b"), in_tree("d/c")), 0);
    assert_int_equal(symlink("../real", in_tree("d/b")), 0);
    for (int i = 0; i < 2; i++) {
        uint8_t bytes[64];
        pen_error err;
        assert_int_equal(pen_dataset_read(ds, i, bytes, sizeof bytes, &err), PEN_ENOTFOUND);
        assert_non_null(strstr(err.text, "leads out of the directory"));
    }
    pen_dataset_unref(ds);
}

static void a_dangling_link_with_an_images_name_is_an_error(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "1");
    assert_int_equal(symlink("nowhere", in_tree("d/a/readme")), 0);
    pen_dataset_unref(open_ok(in_tree("d"), NULL));
    assert_int_equal(symlink("nowhere.jpg", in_tree("d/a/gone.jpg")), 0);
    open_fails(in_tree("d"), NULL, PEN_EIO, "a/gone.jpg");
}

static void fifos_never_block_and_are_no_images(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "12");
    assert_int_equal(mkfifo(in_tree("d/a/pipe.jpg"), 0600), 0);
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_int_equal(pen_dataset_count(ds), 1);
    /* and one that takes an image's place after indexing */
    assert_int_equal(rename(in_tree("d/a/pipe.jpg"), in_tree("d/a/x.jpg")), 0);
    uint8_t buffer[8];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 0, buffer, sizeof buffer, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "not a regular file"));
    pen_dataset_unref(ds);
}

static void a_file_that_changed_or_went_is_an_io_error_that_names_it(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "1234");
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    uint8_t buffer[16];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 0, buffer, 3, &err), PEN_ENOSPC);
    put_text("d/a/x.jpg", "12345");
    assert_int_equal(pen_dataset_read(ds, 0, buffer, sizeof buffer, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "'a/x.jpg' changed since it was indexed"));
    unlink(in_tree("d/a/x.jpg"));
    assert_int_equal(pen_dataset_read(ds, 0, buffer, sizeof buffer, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "a/x.jpg"));
    pen_dataset_unref(ds);
}

static void names_with_odd_bytes_are_keys_but_messages_stay_one_line(void **state)
{
    (void)state;
    put_text("d/a\nb/x\xff\x01.jpg", "1");
    static const expected want[] = {{"a\nb/x\xff\x01", 0}};
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_samples(ds, want, COUNT(want));
    unlink(in_tree("d/a\nb/x\xff\x01.jpg"));
    uint8_t byte;
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 0, &byte, 1, &err), PEN_EIO);
    assert_null(strchr(err.text, '\n'));
    pen_dataset_unref(ds);
}

static int count_calls(void *ctx, int64_t done, int64_t total)
{
    (void)total;
    int64_t *seen = ctx;
    assert_true(done > seen[1]);
    seen[0]++;
    seen[1] = done;
    return 0;
}

static int refuse(void *ctx, int64_t done, int64_t total)
{
    (void)ctx, (void)done, (void)total;
    return 1;
}

static void twenty_thousand_files_take_under_64_bytes_each_beside_their_names(void **state)
{
    (void)state;
    enum { N_DIRS = 20, N_FILES = 1000 };
    for (int i = 0; i < N_DIRS; i++) {
        char name[64];
        snprintf(name, sizeof name, "d/class%02d/", i);
        make_parents(name);
        int dir = open(in_tree(name), O_RDONLY | O_DIRECTORY);
        for (int j = 0; j < N_FILES; j++) {
            snprintf(name, sizeof name, "image_%05d.jpg", j * 7 % N_FILES);
            int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
            assert_true(fd >= 0);
            close(fd);
        }
        close(dir);
    }
    int64_t seen[2] = {0, 0};
    pen_dataset_opts opts = tree_opts(false);
    opts.progress = count_calls;
    opts.progress_ctx = seen;
    pen_dataset *ds = open_ok(in_tree("d"), &opts);
    assert_int_equal(pen_dataset_count(ds), N_DIRS * N_FILES);
    assert_true(pen_dataset_index_bytes(ds) >= 36LL * N_DIRS * N_FILES);
    assert_true(pen_dataset_index_bytes(ds) <= 64LL * N_DIRS * N_FILES);
    assert_true(seen[0] >= 2);
    opts.progress = refuse;
    open_fails(in_tree("d"), &opts, PEN_ECANCELED, "cancelled");
    assert_string_equal(key_of(ds, 7 * N_FILES + 123), "class07/image_00123");
    assert_int_equal(pen_dataset_label(ds, 7 * N_FILES + 123), 7);
    assert_int_equal(pen_dataset_find(ds, "class19/image_00999"), N_DIRS * N_FILES - 1);
    pen_dataset_unref(ds);
}

static void a_directory_that_may_not_be_read_is_an_error_that_names_it(void **state)
{
    (void)state;
    if (geteuid() == 0)
        skip(); /* root reads everything */
    put_text("d/a/x.jpg", "1");
    put_text("d/b/x.jpg", "1");
    chmod(in_tree("d/b"), 0);
    open_fails(in_tree("d"), NULL, PEN_EIO, "d/b': Permission denied");
    chmod(in_tree("d/b"), 0755);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(classes_and_files_come_in_torchvisions_order),
        CASE(a_flat_folder_has_label_zero_and_no_classes),
        CASE(an_empty_class_keeps_its_label),
        CASE(images_in_the_root_beside_classes_are_an_error_that_names_one),
        CASE(hidden_and_other_files_are_passed_over_and_counted),
        CASE(files_that_differ_only_in_their_extension_keep_it),
        CASE(links_are_followed_and_a_loop_is_an_error),
        CASE(a_confined_dataset_leaves_out_what_leads_out),
        CASE(links_that_were_left_out_are_told_of_where_nothing_else_is_there),
        CASE(a_confined_dataset_names_a_link_whose_path_is_too_long),
        CASE(a_confined_dataset_reads_nothing_outside_of_its_directory),
        CASE(a_dangling_link_with_an_images_name_is_an_error),
        CASE(fifos_never_block_and_are_no_images),
        CASE(a_file_that_changed_or_went_is_an_io_error_that_names_it),
        CASE(names_with_odd_bytes_are_keys_but_messages_stay_one_line),
        CASE(twenty_thousand_files_take_under_64_bytes_each_beside_their_names),
        CASE(a_directory_that_may_not_be_read_is_an_error_that_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
