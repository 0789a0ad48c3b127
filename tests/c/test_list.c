/* test_list.c - datasets of files that a program names. */
#include "trees.h"

#include "base/mem.h"

typedef const char *const *names;

static pen_dataset *list_ok(const char *root, names paths, const int64_t *labels, int64_t n)
{
    pen_dataset *ds;
    pen_error err;
    if (pen_dataset_from_list(&ds, root, paths, labels, n, NULL, 0, NULL, &err) != 0)
        fail_msg("%s", err.text);
    return ds;
}

static int list_fails(const char *root, names paths, const int64_t *labels, int64_t n,
                      names classes, int64_t n_classes, const char *words)
{
    pen_dataset *ds;
    pen_error err;
    int rc = pen_dataset_from_list(&ds, root, paths, labels, n, classes, n_classes, NULL, &err);
    assert_true(rc < 0);
    assert_null(ds);
    if (!strstr(err.text, words))
        fail_msg("'%s' has no '%s'", err.text, words);
    return rc;
}

static void ids_are_the_places_in_the_list(void **state)
{
    (void)state;
    put_text("d/b/2.jpg", "two");
    put_text("d/a/1.jpg", "one");
    put_text("d/top.png", "top");
    static const char *const paths[] = {"b/2.jpg", "top.png", "a/1.jpg", "./b//2.jpg"};
    static const int64_t labels[] = {5, -1, 0, 7};
    pen_dataset *ds = list_ok(in_tree("d"), paths, labels, 4);
    static const char *const keys[] = {"b/2", "top", "a/1", "b/2"};
    static const char *const texts[] = {"two", "top", "one", "two"};
    for (int64_t id = 0; id < 4; id++) {
        char key[PEN_KEY_MAX];
        assert_true(pen_dataset_key(ds, id, key, sizeof key) > 0);
        assert_string_equal(key, keys[id]);
        assert_int_equal(pen_dataset_label(ds, id), labels[id]);
        assert_reads(ds, id, texts[id]);
    }
    assert_int_equal(pen_dataset_find(ds, "b/2"), 0); /* the first of the two */
    assert_int_equal(pen_dataset_find(ds, "a/1"), 2);
    assert_int_equal(pen_dataset_find(ds, "top"), 1);
    assert_int_equal(pen_dataset_find(ds, "b/3"), PEN_ENOTFOUND);
    assert_int_equal(pen_dataset_kind(ds), PEN_SOURCE_LIST);
    assert_string_equal(pen_source_kind_name(PEN_SOURCE_LIST), "list");
    pen_dataset_unref(ds);
}

static void the_list_of_a_folder_is_that_folder(void **state)
{
    (void)state;
    put_text("d/a/1.jpg", "one");
    put_text("d/a/1.png", "same stem");
    put_text("d/a/2.jpg", "two");
    put_text("d/b/3.jpg", "three");
    const char *paths[] = {in_tree("d/a/1.jpg"), in_tree("d/a/1.png"), in_tree("d/a/2.jpg"),
                           in_tree("d/b/3.jpg")};
    static const int64_t labels[] = {0, 0, 0, 1}, others[] = {0, 0, 1, 1};
    const char *root = in_tree("d");
    pen_dataset *folder = open_ok(root, NULL);
    pen_dataset *list = list_ok(root, paths, labels, 4);
    assert_string_equal(pen_dataset_hash(list), pen_dataset_hash(folder));
    pen_dataset *relabelled = list_ok(in_tree("d/"), paths, others, 4);
    assert_string_not_equal(pen_dataset_hash(relabelled), pen_dataset_hash(folder));
    pen_dataset *fewer = list_ok(root, paths, labels, 3);
    assert_string_not_equal(pen_dataset_hash(fewer), pen_dataset_hash(folder));
    const char *turned[] = {paths[1], paths[0], paths[2], paths[3]};
    pen_dataset *order = list_ok(root, turned, labels, 4);
    assert_string_not_equal(pen_dataset_hash(order), pen_dataset_hash(folder));
    pen_dataset_unref(folder);
    pen_dataset_unref(list);
    pen_dataset_unref(relabelled);
    pen_dataset_unref(fewer);
    pen_dataset_unref(order);
}

static void files_beside_the_root_keep_their_whole_path(void **state)
{
    (void)state;
    put_text("d/x.jpg", "in");
    put_text("d-more/x.jpg", "beside");
    const char *paths[] = {in_tree("d/x.jpg"), in_tree("d-more/x.jpg"), "../d-more/x.jpg"};
    pen_dataset *ds = list_ok(in_tree("d"), paths, NULL, 3);
    char key[PEN_KEY_MAX];
    pen_dataset_key(ds, 0, key, sizeof key);
    assert_string_equal(key, "x");
    pen_dataset_key(ds, 1, key, sizeof key);
    assert_string_equal(key, in_tree("d-more/x"));
    assert_reads(ds, 1, "beside");
    assert_reads(ds, 2, "beside");
    assert_int_equal(pen_dataset_label(ds, 2), -1);
    assert_int_equal(pen_dataset_find(ds, in_tree("d-more/x")), 1);
    pen_dataset_unref(ds);
}

/* A repeated file keeps one key, and one that shares its stem is told apart from all of it. */
static void repeats_and_shared_stems_do_not_disturb_each_other(void **state)
{
    (void)state;
    put_text("d/a.jpg", "j");
    put_text("d/a.png", "p");
    put_text("d/b.jpg", "b");
    static const char *const paths[] = {"a.jpg", "b.jpg", "a.png", "a.jpg", "b.jpg"};
    static const char *const keys[] = {"a.jpg", "b", "a.png", "a.jpg", "b"};
    pen_dataset *ds = list_ok(in_tree("d"), paths, NULL, 5);
    for (int64_t id = 0; id < 5; id++) {
        char key[PEN_KEY_MAX];
        pen_dataset_key(ds, id, key, sizeof key);
        assert_string_equal(key, keys[id]);
    }
    assert_int_equal(pen_dataset_find(ds, "a.jpg"), 0);
    assert_int_equal(pen_dataset_find(ds, "b"), 1);
    pen_dataset_unref(ds);
}

static void classes_name_the_labels(void **state)
{
    (void)state;
    put_text("d/x.jpg", "x");
    static const char *const paths[] = {"x.jpg", "x.jpg"}, *const classes[] = {"ant", "bee"},
                             *const twice[] = {"ant", "ant"};
    static const int64_t good[] = {1, -1}, high[] = {0, 2}, low[] = {-2, 0},
                         huge[] = {INT64_C(1) << 31, 0};
    pen_dataset *ds;
    assert_int_equal(
        pen_dataset_from_list(&ds, in_tree("d"), paths, good, 2, classes, 2, NULL, NULL), 0);
    assert_int_equal(pen_dataset_class_count(ds), 2);
    assert_string_equal(pen_dataset_class_name(ds, 1), "bee");
    pen_dataset_unref(ds);
    list_fails(in_tree("d"), paths, high, 2, classes, 2, "place 1 of the list: the label 2");
    list_fails(in_tree("d"), paths, low, 2, NULL, 0, "place 0 of the list: the label -2");
    list_fails(in_tree("d"), paths, huge, 2, NULL, 0, "place 0");
    list_fails(in_tree("d"), paths, good, 2, twice, 2, "classes 0 and 1 are both named 'ant'");
}

static void what_is_not_there_is_named_with_its_place(void **state)
{
    (void)state;
    put_text("d/x.jpg", "x");
    static const char *const missing[] = {"x.jpg", "y.jpg"}, *const dir[] = {"."},
                             *const sub[] = {"x.jpg", "x.jpg/z.jpg"},
                             *const none[] = {"x.jpg", NULL};
    assert_int_equal(
        list_fails(in_tree("d"), missing, NULL, 2, NULL, 0, "place 1 of the list: no file 'y.jpg'"),
        PEN_ENOTFOUND);
    assert_int_equal(list_fails(in_tree("d"), sub, NULL, 2, NULL, 0, "place 1"), PEN_ENOTFOUND);
    list_fails(in_tree("d"), dir, NULL, 1, NULL, 0, "place 0");
    list_fails(in_tree("d"), none, NULL, 2, NULL, 0, "place 1 of the list has no path");
    list_fails(in_tree("d"), missing, NULL, 0, NULL, 0, "empty");
    list_fails(in_tree("nowhere"), missing, NULL, 1, NULL, 0, "nowhere");
}

static void every_failed_allocation_is_survived(void **state)
{
    (void)state;
    put_text("d/a/x.jpg", "x");
    put_text("d/b/y.jpg", "y");
    static const char *const paths[] = {"b/y.jpg", "a/x.jpg", "a/x.jpg"}, *const classes[] = {"c"};
    int64_t live = pen__mem_live();
    int fds = open_fds(), rc = -1;
    for (int n = 1; rc != 0 && n < 100; n++) {
        pen_dataset *ds;
        pen__mem_fail_at(n);
        rc = pen_dataset_from_list(&ds, in_tree("d"), paths, NULL, 3, classes, 1, NULL, NULL);
        pen__mem_fail_at(0);
        assert_true(rc == 0 || rc == PEN_ENOMEM);
        pen_dataset_unref(ds);
        assert_int_equal(pen__mem_live(), live);
        assert_int_equal(open_fds(), fds);
    }
    assert_int_equal(rc, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ids_are_the_places_in_the_list),
        CASE(the_list_of_a_folder_is_that_folder),
        CASE(files_beside_the_root_keep_their_whole_path),
        CASE(repeats_and_shared_stems_do_not_disturb_each_other),
        CASE(classes_name_the_labels),
        CASE(what_is_not_there_is_named_with_its_place),
        CASE(every_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
