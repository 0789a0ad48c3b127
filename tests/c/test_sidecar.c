/* test_sidecar.c - blocks about samples: kept, joined with what others keep, and never in
 * the way. */
#include "trees.h"

#include "base/mem.h"
#include "source/fileio.h"
#include "source/sidecar.h"

enum { N = 5 };
#define PLENTY (1 << 20)

static pen_dataset *ds;

static int set_up(void **state)
{
    if (tree_setup(state) != 0)
        return -1;
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "c/%d.jpg", i);
        make_parents(name);
        put_bytes(name, "picture", 7);
    }
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.cache_dir = in_tree("cache");
    return pen_dataset_open(&ds, in_tree(""), &opts, NULL);
}

static int tear_down(void **state)
{
    pen_dataset_unref(ds);
    return tree_teardown(state);
}

static bool put(pen__sidecar *s, int64_t id, const char *text)
{
    return pen__sidecar_put(s, id, text, strlen(text));
}

static const char *get(const pen__sidecar *s, int64_t id)
{
    static char text[64];
    text[pen__sidecar_get(s, id, text, sizeof text - 1)] = '\0';
    return text;
}

static void save_and_free(pen__sidecar *s)
{
    pen__sidecar_save(s);
    pen__sidecar_free(s);
}

/* A file with the text "two" for sample 2. */
static void keep_two(void)
{
    pen__sidecar *s = pen__sidecar_open(ds, PLENTY);
    put(s, 2, "two");
    save_and_free(s);
}

static bool has_two(void)
{
    pen__sidecar *s = pen__sidecar_open(ds, PLENTY);
    bool has = strcmp(get(s, 2), "two") == 0;
    pen__sidecar_free(s);
    return has;
}

static const char *kept_file(void)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/cache/%s.marks", tree, pen_dataset_hash(ds));
    return path;
}

static void blocks_are_found_again_now_and_later(void **state)
{
    (void)state;
    pen__sidecar *s = pen__sidecar_open(ds, PLENTY);
    assert_string_equal(get(s, 3), "");
    put(s, 3, "three");
    put(s, 0, "nil");
    put(s, 3, "III");
    assert_string_equal(get(s, 3), "III");
    pen__sidecar_size size = pen__sidecar_size_of(s);
    assert_int_equal(size.n_blocks, 2);
    assert_int_equal(size.bytes, 6);
    char small[2];
    assert_int_equal(pen__sidecar_get(s, 3, small, sizeof small), 0);
    assert_int_equal(pen__sidecar_look(ds).n_blocks, 0);
    save_and_free(s);
    s = pen__sidecar_open(ds, PLENTY);
    assert_string_equal(get(s, 3), "III");
    assert_string_equal(get(s, 0), "nil");
    assert_string_equal(get(s, 1), "");
    put(s, 1, "one");
    put(s, 3, "iii");
    save_and_free(s);
    s = pen__sidecar_open(ds, PLENTY);
    assert_string_equal(get(s, 0), "nil");
    assert_string_equal(get(s, 1), "one");
    assert_string_equal(get(s, 3), "iii");
    pen__sidecar_free(s);
    int64_t n_samples, n_bytes;
    pen_dataset_jpeg_index(ds, &n_samples, &n_bytes);
    assert_int_equal(n_samples, 3);
    assert_int_equal(n_bytes, 9);
}

/* Ranks begin together and save one after the other. */
static void those_who_save_add_to_each_other(void **state)
{
    (void)state;
    pen__sidecar *a = pen__sidecar_open(ds, PLENTY), *b = pen__sidecar_open(ds, PLENTY);
    put(a, 0, "from a");
    put(a, 1, "longer");
    put(b, 1, "short");
    put(b, 2, "from b");
    pen__sidecar_save(a);
    pen__sidecar_save(b);
    assert_string_equal(get(b, 0), "from a"); /* taken over on the way */
    assert_string_equal(get(b, 1), "short");  /* its own, newer than what was there */
    put(a, 3, "more");
    put(a, 4, "most");
    pen__sidecar_save(a);
    assert_string_equal(get(a, 2), "from b");
    pen__sidecar_free(a);
    pen__sidecar_free(b);
    a = pen__sidecar_open(ds, PLENTY);
    assert_string_equal(get(a, 2), "from b");
    assert_string_equal(get(a, 4), "most");
    pen__sidecar_free(a);
}

static void what_is_over_the_limit_is_not_kept(void **state)
{
    (void)state;
    pen__sidecar *s = pen__sidecar_open(ds, 8);
    assert_true(put(s, 0, "12345"));
    assert_false(put(s, 1, "6789"));
    assert_true(put(s, 2, "678"));
    assert_string_equal(get(s, 0), "12345");
    assert_string_equal(get(s, 1), "");
    assert_string_equal(get(s, 2), "678");
    pen__sidecar_free(s);
}

/* Whatever byte of header or table is changed, and wherever the file is cut. */
static void damaged_files_are_ignored(void **state)
{
    (void)state;
    keep_two();
    assert_true(has_two());
    char *bytes;
    int64_t len = pen__read_file(AT_FDCWD, kept_file(), PLENTY, &bytes, NULL);
    assert_true(len > 3);
    for (int64_t i = 0; i < len - 3; i++) {
        bytes[i] ^= 4;
        put_bytes(kept_file() + strlen(tree) + 1, bytes, (size_t)len);
        assert_false(has_two());
        bytes[i] ^= 4;
    }
    for (int64_t n = 0; n < len; n++) {
        put_bytes(kept_file() + strlen(tree) + 1, bytes, (size_t)n);
        assert_false(has_two());
    }
    keep_two();
    assert_true(has_two());
    pen__free(bytes);
}

static void a_file_that_shrinks_under_us_is_survived(void **state)
{
    (void)state;
    keep_two();
    pen__sidecar *s = pen__sidecar_open(ds, PLENTY);
    assert_int_equal(truncate(kept_file(), 10), 0);
    assert_string_equal(get(s, 2), "");
    put(s, 1, "one");
    save_and_free(s);
    assert_false(has_two());
}

static void files_that_others_may_write_are_ignored(void **state)
{
    (void)state;
    keep_two();
    assert_int_equal(chmod(kept_file(), 0666), 0);
    assert_false(has_two());
    assert_int_equal(chmod(kept_file(), 0644), 0);
    assert_true(has_two());
    assert_int_equal(rename(kept_file(), in_tree("elsewhere")), 0);
    assert_int_equal(symlink(in_tree("elsewhere"), kept_file()), 0);
    assert_false(has_two());
}

static void without_a_cache_directory_there_is_none(void **state)
{
    (void)state;
    pen_dataset *other;
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.use_cache = false;
    assert_int_equal(pen_dataset_open(&other, in_tree("c"), &opts, NULL), 0);
    assert_null(pen__sidecar_open(other, PLENTY));
    assert_int_equal(pen__sidecar_look(other).n_blocks, 0);
    pen_dataset_unref(other);
    opts.use_cache = true;
    opts.cache_dir = in_tree("c/0.jpg"); /* a file is in the way */
    assert_int_equal(pen_dataset_open(&other, in_tree("c"), &opts, NULL), 0);
    assert_null(pen__sidecar_open(other, PLENTY));
    pen_dataset_unref(other);
}

static void failing_memory_leaks_nothing(void **state)
{
    (void)state;
    int64_t live = pen__mem_live();
    for (int n = 1; n < 12; n++) {
        pen__mem_fail_at(n);
        pen__sidecar *s = pen__sidecar_open(ds, PLENTY);
        if (s) {
            put(s, 2, "two");
            put(s, n % N, "other");
            pen__sidecar_save(s);
        }
        pen__mem_fail_at(0);
        pen__sidecar_free(s);
        assert_int_equal(pen__mem_live(), live);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_found_again_now_and_later),
        TEST(those_who_save_add_to_each_other),
        TEST(what_is_over_the_limit_is_not_kept),
        TEST(damaged_files_are_ignored),
        TEST(a_file_that_shrinks_under_us_is_survived),
        TEST(files_that_others_may_write_are_ignored),
        TEST(without_a_cache_directory_there_is_none),
        TEST(failing_memory_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
