/* test_dataset.c - what holds for every source: one identity, threads, memory, descriptors. */
#include "trees.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"

enum { N_CLASSES = 3, N_FILES = 40, N_SHARDS = 6, N_SOURCES = 4 };

/* Some bytes that depend on the sample. */
static size_t content(int class, int file, char *dst)
{
    size_t n = (size_t)(class * 131 + file * 17);
    for (size_t i = 0; i < n; i++)
        dst[i] = (char)(class * 7 + file * 3 + (int)i);
    return n;
}

/* The same samples as a folder, as shards and as manifests, written in other orders. */
static void put_everything(void)
{
    char name[64], label[8], data[2048];
    tar_maker shards[N_SHARDS] = {0};
    char csv[8192] = "path,label\n", jsonl[16384] = "";
    for (int i = N_CLASSES * N_FILES; i-- > 0;) {
        int class = i % N_CLASSES, file = i / N_CLASSES;
        size_t n = content(class, file, data);
        snprintf(name, sizeof name, "d/c%d/f%03d.jpg", class, file);
        put_bytes(name, data, n);
        snprintf(csv + strlen(csv), sizeof csv - strlen(csv), "%s,%d\n", name + 2, class);
        snprintf(jsonl + strlen(jsonl), sizeof jsonl - strlen(jsonl),
                 "{\"path\": \"%s\", \"label\": \"class %d\"}\n", name + 2, class);
        tar_maker *shard = &shards[i % N_SHARDS];
        tar_add(shard, '0', name + 2, data, n);
        snprintf(label, sizeof label, "%d", class);
        memcpy(strrchr(name, '.'), ".cls", 5);
        tar_text(shard, name + 2, label);
    }
    for (int i = 0; i < N_SHARDS; i++) {
        snprintf(name, sizeof name, "s-%02d.tar", i);
        tar_end(&shards[i]);
        tar_put(&shards[i], name);
    }
    put_text("d/list.csv", csv);
    put_text("d/list.jsonl", jsonl);
}

static const char *spec_of(int source)
{
    static const char *const specs[N_SOURCES] = {"d", "s-{00..05}.tar", "d/list.csv",
                                                 "d/list.jsonl"};
    return in_tree(specs[source]);
}

static void folder_shards_and_manifests_of_the_same_files_are_the_same_dataset(void **state)
{
    (void)state;
    put_everything();
    pen_dataset_opts opts = tree_opts(true);
    char first_hash[33] = "";
    for (int source = 0; source < N_SOURCES; source++) {
        pen_dataset *ds = open_ok(spec_of(source), &opts);
        assert_int_equal(pen_dataset_count(ds), N_CLASSES * N_FILES);
        int64_t total = 0;
        for (int i = 0; i < N_CLASSES * N_FILES; i++) {
            char want[2048], key[32];
            uint8_t got[2048];
            int class = i / N_FILES, file = i % N_FILES;
            size_t n = content(class, file, want);
            snprintf(key, sizeof key, "c%d/f%03d", class, file);
            assert_string_equal(key_of(ds, i), key);
            assert_int_equal(pen_dataset_find(ds, key), i);
            assert_int_equal(pen_dataset_label(ds, i), class);
            assert_int_equal(pen_dataset_length(ds, i), n);
            assert_int_equal(pen_dataset_read(ds, i, got, sizeof got, NULL), n);
            assert_memory_equal(got, want, n);
            total += (int64_t)n;
        }
        assert_int_equal(pen_dataset_bytes(ds), total);
        assert_int_equal(strlen(pen_dataset_hash(ds)), 32);
        if (source == 0)
            memcpy(first_hash, pen_dataset_hash(ds), 33);
        assert_string_equal(pen_dataset_hash(ds), first_hash);
        pen_dataset_unref(ds);
    }
}

static void the_hash_tells_keys_lengths_and_labels_apart(void **state)
{
    (void)state;
    static const char *const lists[] = {"a.jpg,1\nb.jpg,2\n", "a.jpg,1\nb.jpg,3\n",
                                        "a.jpg,1\nc.jpg,2\n", "a.jpg,1\nd.jpg,2\n",
                                        "a.jpg,1\n",          "a.jpg,1\nb.jpg,-1\n"};
    char hashes[COUNT(lists)][33];
    put_text("a.jpg", "1");
    put_text("b.jpg", "1");
    put_text("c.jpg", "1"); /* another key than b */
    put_text("d.jpg", "12");
    for (size_t i = 0; i < COUNT(lists); i++) {
        put_text("list.csv", lists[i]);
        pen_dataset *ds = open_ok(in_tree("list.csv"), NULL);
        memcpy(hashes[i], pen_dataset_hash(ds), 33);
        pen_dataset_unref(ds);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(hashes[i], hashes[j]);
    }
}

static void a_folder_and_a_plain_tar_of_it_are_the_same_dataset(void **state)
{
    (void)state;
    static const char *const dirs[2][2] = {{"", ""}, {"cat/", "dog/"}}; /* flat, classes */
    pen_dataset_opts opts = tree_opts(false);
    for (int i = 0; i < 2; i++) {
        tar_maker tar = {0};
        char name[64], root[16], shard[16];
        snprintf(root, sizeof root, "d%d", i);
        snprintf(shard, sizeof shard, "%d.tar", i);
        for (int f = 0; f < 2; f++) {
            snprintf(name, sizeof name, "%s/%s%d.jpg", root, dirs[i][f], f);
            put_text(name, "picture");
            tar_text(&tar, name + strlen(root) + 1, "picture");
        }
        tar_end(&tar);
        tar_put(&tar, shard);
        pen_dataset *folder = open_ok(in_tree(root), NULL);
        pen_dataset *plain = open_ok(in_tree(shard), &opts);
        assert_string_equal(pen_dataset_hash(folder), pen_dataset_hash(plain));
        assert_int_equal(pen_dataset_label(plain, 1), i);
        assert_int_equal(pen_dataset_class_count(plain), pen_dataset_class_count(folder));
        pen_dataset_unref(folder);
        pen_dataset_unref(plain);
    }
    tar_maker tar = {0}; /* a label of -1 is a label: directories are not asked */
    tar_text(&tar, "cat/1.jpg", "picture");
    tar_text(&tar, "cat/1.cls", "-1");
    tar_end(&tar);
    tar_put(&tar, "none.tar");
    pen_dataset *none = open_ok(in_tree("none.tar"), &opts);
    assert_int_equal(pen_dataset_label(none, 0), -1);
    pen_dataset_unref(none);
}

static void ids_are_part_of_the_hash(void **state)
{
    (void)state;
    put_text("a/x.jpg", "one"); /* the same keys and lengths, but x.k.jpg < x.png */
    put_text("a/x.k.jpg", "two");
    put_text("b/x.png", "one");
    put_text("b/x.k.jpg", "two");
    pen_dataset *a = open_ok(in_tree("a"), NULL), *b = open_ok(in_tree("b"), NULL);
    assert_string_equal(key_of(a, 0), "x");
    assert_string_equal(key_of(b, 0), "x.k");
    assert_string_not_equal(pen_dataset_hash(a), pen_dataset_hash(b));
    pen_dataset_unref(a);
    pen_dataset_unref(b);
}

static void shards_given_by_a_relative_path_survive_a_change_of_directory(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_text(&tar, "a.jpg", "picture");
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(in_tree("")), 0);
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok("s.tar", &opts);
    assert_int_equal(chdir("/"), 0);
    assert_reads(ds, 0, "picture");
    pen_dataset_unref(ds);
    assert_int_equal(chdir(before), 0);
}

/* A change of this value makes every stored state of a run unusable: it must be meant. */
static void the_hash_is_the_same_on_every_machine_and_version(void **state)
{
    (void)state;
    put_text("d/cat/1.jpg", "one");
    put_text("d/dog/2.png", "four");
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    assert_string_equal(pen_dataset_hash(ds), "4582a29dc58eab0af8cfa94b2e649b61");
    pen_dataset_unref(ds);
}

typedef struct reader {
    pthread_t thread;
    const pen_dataset *ds;
    int first, n_wrong;
} reader;

static void *read_everything(void *ctx)
{
    reader *r = ctx;
    for (int k = 0; k < 20 * N_CLASSES * N_FILES; k++) {
        int i = (r->first + k * 7) % (N_CLASSES * N_FILES);
        char want[2048];
        uint8_t got[2048];
        size_t n = content(i / N_FILES, i % N_FILES, want);
        if (pen_dataset_read(r->ds, i, got, sizeof got, NULL) != (int64_t)n ||
            memcmp(got, want, n) != 0)
            r->n_wrong++;
    }
    return NULL;
}

static void read_with_eight_threads(const pen_dataset *ds)
{
    reader readers[8] = {0};
    for (int i = 0; i < 8; i++) {
        readers[i].ds = ds;
        readers[i].first = i * 13;
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_everything, &readers[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].n_wrong, 0);
    }
}

static void eight_threads_read_equal_bytes_and_leave_no_descriptor(void **state)
{
    (void)state;
    put_everything();
    pen_dataset_opts opts = tree_opts(false);
    int before = open_fds();
    for (int source = 0; source < N_SOURCES; source++) {
        pen_dataset *ds = open_ok(spec_of(source), &opts);
        read_with_eight_threads(ds);
        assert_true(open_fds() <= before + N_SHARDS);
        pen_dataset_unref(ds);
        assert_int_equal(open_fds(), before);
    }
}

static void shards_beyond_the_descriptor_limit_are_read_too(void **state)
{
    (void)state;
    put_everything();
    struct rlimit old, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = (rlim_t)open_fds() + 12; /* a quarter of it is kept: less than the shards */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    pen_dataset_opts opts = tree_opts(false);
    int before = open_fds();
    pen_dataset *ds = open_ok(spec_of(1), &opts);
    read_with_eight_threads(ds);
    assert_true(open_fds() <= before + (int)few.rlim_cur / 4);
    pen_dataset_unref(ds);
    assert_int_equal(open_fds(), before);
    setrlimit(RLIMIT_NOFILE, &old);
}

static void a_failing_allocation_leaks_neither_memory_nor_descriptors(void **state)
{
    (void)state;
    put_everything();
    int64_t live = pen__mem_live();
    int fds = open_fds();
    for (int source = 0; source < N_SOURCES; source++)
        for (int cached = 0; cached < 2; cached++) {
            pen_dataset_opts opts = tree_opts(cached);
            bool was_reached = true;
            for (int64_t n = 1; was_reached; n++) {
                pen_dataset *ds;
                pen_error err = {0};
                int64_t count = pen__mem_count();
                pen__mem_fail_at(n);
                int rc = pen_dataset_open(&ds, spec_of(source), &opts, &err);
                pen__mem_fail_at(0);
                was_reached = pen__mem_count() - count >= n;
                /* what only saves memory or time may fail unnoticed */
                assert_true(rc == 0 || (rc == PEN_ENOMEM && was_reached && !ds));
                if (ds)
                    assert_int_equal(pen_dataset_count(ds), N_CLASSES * N_FILES);
                pen_dataset_unref(ds);
                assert_int_equal(pen__mem_live(), live);
                assert_int_equal(open_fds(), fds);
            }
        }
}

static void what_is_no_dataset_is_an_error_that_says_what_is(void **state)
{
    (void)state;
    put_text("x.zip", "zip");
    put_text("x.tar.gz", "gz");
    put_text("sub/keep", "");
    open_fails(in_tree("nowhere"), NULL, PEN_ENOTFOUND, "no such file or directory");
    open_fails(in_tree("x.zip/y"), NULL, PEN_ENOTFOUND, "no such file or directory");
    open_fails(in_tree("x.zip"), NULL, PEN_EUNSUPPORTED, "give a directory, a .tar or .pen file");
    open_fails(in_tree("x.tar.gz"), NULL, PEN_EUNSUPPORTED, "decompress it first");
    open_fails(in_tree("sub"), NULL, PEN_ENOTFOUND, "no images under");
    open_fails("", NULL, PEN_EINVAL, "empty");
    open_fails(NULL, NULL, PEN_EINVAL, "empty");
    open_fails(in_tree("s-{0..1.tar"), NULL, PEN_EINVAL, "without its '}'");
    pen_dataset_opts opts = {0};
    open_fails(in_tree("sub"), &opts, PEN_EINVAL, "pen_dataset_opts_init");
    assert_string_equal(pen_source_kind_name(PEN_SOURCE_TAR), "tar");
    assert_string_equal(pen_source_kind_name(PEN_SOURCE_PACK), "pack");
    assert_string_equal(pen_source_kind_name((pen_source_kind)9), "unknown");
    pen_dataset_unref(NULL);
}

static void ids_out_of_range_and_small_buffers_are_errors(void **state)
{
    (void)state;
    put_text("d/c/x.jpg", "123");
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    char key[8];
    uint8_t data[8];
    static const int64_t bad[] = {-1, 1, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(pen_dataset_key(ds, bad[i], key, sizeof key), PEN_EINVAL);
        assert_int_equal(pen_dataset_length(ds, bad[i]), PEN_EINVAL);
        assert_int_equal(pen_dataset_read(ds, bad[i], data, sizeof data, NULL), PEN_EINVAL);
        assert_int_equal(pen_dataset_label(ds, bad[i]), -1);
    }
    assert_int_equal(pen_dataset_key(ds, 0, key, 3), PEN_ENOSPC);
    assert_int_equal(pen_dataset_key(ds, 0, key, 4), 3);
    assert_int_equal(pen_dataset_read(ds, 0, data, 2, NULL), PEN_ENOSPC);
    assert_int_equal(pen_dataset_read(ds, 0, data, 3, NULL), 3);
    assert_int_equal(pen_dataset_field_length(ds, 0, PEN_FIELD_CLS), PEN_ENOTFOUND);
    assert_int_equal(pen_dataset_field_length(ds, 0, PEN_FIELD_COUNT), PEN_EINVAL);
    pen_dataset *same = pen_dataset_ref(ds);
    pen_dataset_unref(ds);
    assert_int_equal(pen_dataset_count(same), 1);
    pen_dataset_unref(same);
}

static void the_index_stays_under_64_bytes_a_sample_with_every_field(void **state)
{
    (void)state;
    enum { N = 5000 };
    tar_maker tar = {0};
    for (int i = 0; i < N; i++) {
        static const char *const fields[] = {"jpg", "cls", "json", "txt"};
        for (int j = 0; j < 4; j++) {
            char name[32];
            snprintf(name, sizeof name, "%05d.%s", i, fields[j]);
            tar_text(&tar, name, j == 1 ? "1" : "{}");
        }
    }
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
    assert_int_equal(pen_dataset_count(ds), N);
    assert_true(pen_dataset_index_bytes(ds) <= 64 * N);
    for (int f = PEN_FIELD_CLS; f < PEN_FIELD_COUNT; f++)
        assert_int_equal(pen_dataset_field_length(ds, N - 1, (pen_field)f),
                         f == PEN_FIELD_CLS ? 1 : 2);
    pen_dataset_unref(ds);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(folder_shards_and_manifests_of_the_same_files_are_the_same_dataset),
        CASE(the_hash_tells_keys_lengths_and_labels_apart),
        CASE(a_folder_and_a_plain_tar_of_it_are_the_same_dataset),
        CASE(ids_are_part_of_the_hash),
        CASE(shards_given_by_a_relative_path_survive_a_change_of_directory),
        CASE(the_hash_is_the_same_on_every_machine_and_version),
        CASE(eight_threads_read_equal_bytes_and_leave_no_descriptor),
        CASE(shards_beyond_the_descriptor_limit_are_read_too),
        CASE(a_failing_allocation_leaks_neither_memory_nor_descriptors),
        CASE(what_is_no_dataset_is_an_error_that_says_what_is),
        CASE(ids_out_of_range_and_small_buffers_are_errors),
        CASE(the_index_stays_under_64_bytes_a_sample_with_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
