/* test_tar_cache.c - cached indexes: used when right, ignored when anything is wrong. */
#include "trees.h"

#include <xxhash.h>

#include "base/mem.h"
#include "base/rng.h"
#include "source/fileio.h"
#include "source/tar_index.h"

static void put_shard(const char *data)
{
    tar_maker tar = {0};
    tar_text(&tar, "n/b.jpg", data);
    tar_text(&tar, "n/b.cls", "7");
    tar_text(&tar, "n/a.jpg", "aaa");
    tar_text(&tar, "n/c.jpg", "cc");
    tar_end(&tar);
    tar_put(&tar, "s.tar");
}

/* The one file in the cache directory; "" if there is none, and never two. */
static const char *cache_file(void)
{
    static char path[PATH_MAX];
    path[0] = '\0';
    DIR *dir = opendir(in_tree("cache"));
    for (struct dirent *item; dir && (item = readdir(dir));) {
        if (item->d_name[0] == '.')
            continue;
        assert_string_equal(path, "");
        snprintf(path, sizeof path, "%s/cache/%s", tree, item->d_name);
    }
    if (dir)
        closedir(dir);
    return path;
}

static pen__shard_stamp shard_stamp(void)
{
    struct stat st;
    assert_int_equal(stat(in_tree("s.tar"), &st), 0);
    return pen__shard_stamp_of(&st);
}

/* Does the cache hold what the shard's headers say? */
static bool is_cached(void)
{
    pen__shard_index index = {0};
    pen__shard_stamp stamp = shard_stamp();
    bool loaded = pen__tar_cache_load(&index, in_tree("cache"), in_tree("s.tar"), &stamp);
    if (loaded)
        assert_int_equal(index.n, 3);
    pen__shard_index_fini(&index);
    return loaded;
}

static void open_and_check(bool use_cache, const char *b)
{
    pen_dataset_opts opts = tree_opts(use_cache);
    pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
    static const expected want[] = {{"n/a", -1}, {"n/b", 7}, {"n/c", -1}};
    assert_samples(ds, want, COUNT(want));
    assert_reads(ds, 1, b);
    assert_int_equal(pen_dataset_field_length(ds, 1, PEN_FIELD_CLS), 1);
    pen_dataset_unref(ds);
}

static void the_second_opening_does_not_read_headers(void **state)
{
    (void)state;
    put_shard("bbbb");
    open_and_check(true, "bbbb");
    assert_true(is_cached());
    /* Spoil a header without changing the stamp: opening does not notice, so it did not look. */
    pen__shard_stamp stamp = shard_stamp();
    int fd = open(in_tree("s.tar"), O_RDWR);
    assert_int_equal(pwrite(fd, "ZZZZ", 4, 0), 4);
    close(fd);
    pen__shard_index index = {0};
    assert_true(pen__tar_cache_load(&index, in_tree("cache"), in_tree("s.tar"), &stamp));
    pen__shard_index_fini(&index);
    assert_false(is_cached()); /* but the changed file has another stamp */
}

static void a_changed_shard_is_indexed_again_and_its_old_index_replaced(void **state)
{
    (void)state;
    put_shard("bbbb");
    open_and_check(true, "bbbb");
    put_shard("other");
    assert_false(is_cached());
    open_and_check(true, "other");
    assert_true(is_cached());
    cache_file(); /* still one */
}

static void without_use_cache_nothing_is_written(void **state)
{
    (void)state;
    put_shard("bbbb");
    open_and_check(false, "bbbb");
    assert_string_equal(cache_file(), "");
}

static void a_cache_that_cannot_be_written_is_no_error(void **state)
{
    (void)state;
    put_shard("bbbb");
    put_text("cache", "a file where the directory should be");
    open_and_check(true, "bbbb");
}

/* Apply `spoil` to the cache file's bytes with the checksum made right again when asked,
 * and see that it is refused and the dataset opens all the same. */
static void is_refused(const char *bytes, size_t len)
{
    FILE *file = fopen(cache_file(), "wb");
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    fclose(file);
    assert_false(is_cached());
    open_and_check(true, "bbbb");
    assert_true(is_cached());
}

static void damaged_files_are_ignored_and_rebuilt(void **state)
{
    (void)state;
    put_shard("bbbb");
    open_and_check(true, "bbbb");
    char *bytes = NULL;
    int64_t len = pen__read_file(AT_FDCWD, cache_file(), 1 << 20, &bytes, NULL);
    assert_true(len > 0);
    for (int64_t cut = 0; cut < len; cut += 7)
        is_refused(bytes, (size_t)cut);
    for (int64_t at = 0; at < len; at += 5) {
        bytes[at] ^= 0x20;
        is_refused(bytes, (size_t)len);
        bytes[at] ^= 0x20;
    }
    char *longer = calloc((size_t)len + 1, 1);
    memcpy(longer, bytes, (size_t)len);
    is_refused(longer, (size_t)len + 1);
    free(longer);
    pen__free(bytes);
}

/* Offsets in the format: 80 bytes of header, then records of 40. */
enum { CHECKSUM_AT = 16, HASHED_AT = 24, COUNT_AT = 56, RECORDS_AT = 80, RECORD = 40 };

static void forge(char *bytes, size_t len)
{
    uint64_t sum = XXH3_64bits(bytes + HASHED_AT, len - HASHED_AT);
    memcpy(bytes + CHECKSUM_AT, &sum, sizeof sum);
}

static void forged_files_with_a_right_checksum_are_refused_too(void **state)
{
    (void)state;
    put_shard("bbbb");
    open_and_check(true, "bbbb");
    char *bytes = NULL;
    size_t len = (size_t)pen__read_file(AT_FDCWD, cache_file(), 1 << 20, &bytes, NULL);
    size_t names = RECORDS_AT + 3 * RECORD;
    assert_string_equal(bytes + names, "n/a.jpg");
    static const struct {
        size_t at;
        uint32_t value;
    } numbers[] = {
        {RECORDS_AT, 0xFFFFFFFF},              /* name past the names */
        {RECORDS_AT, 8},                       /* the next one's name: keys not ascending */
        {RECORDS_AT + 4, 0},                   /* image in the first header */
        {RECORDS_AT + 4, 0xFFFFFFFF},          /* image past the shard */
        {RECORDS_AT + 8, 0xFFFFFFFF},          /* longer than the shard */
        {RECORDS_AT + 12, (uint32_t)-2},       /* no label */
        {RECORDS_AT + RECORD + 16, 0xFFFFFF},  /* cls past the shard */
        {RECORDS_AT + RECORD + 20, 0xFFFFFFF}, /* cls too long */
        {COUNT_AT, 4},                         /* one record more than there are */
        {COUNT_AT + 4, 0x10000000},            /* a product that wraps */
    };
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char *copy = malloc(len);
        memcpy(copy, bytes, len);
        memcpy(copy + numbers[i].at, &numbers[i].value, 4);
        forge(copy, len);
        is_refused(copy, len);
        free(copy);
    }
    static const char *const texts[] = {"../.jpg", "/aa.jpg", "n//.jpg", "./a.jpg",
                                        "n/a.txt", "n/.ajpg", "n/a\0jpg"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        char *copy = malloc(len);
        memcpy(copy, bytes, len);
        memcpy(copy + names, texts[i], 7);
        forge(copy, len);
        is_refused(copy, len);
        free(copy);
    }
    char *copy = malloc(len);
    memcpy(copy, bytes, len);
    copy[len - 1] = 'x'; /* the last name without its end */
    forge(copy, len);
    is_refused(copy, len);
    free(copy);
    pen__free(bytes);
}

static void mutated_files_are_refused_or_lie_within_the_shard(void **state)
{
    (void)state;
    put_shard("bbbb");
    open_and_check(true, "bbbb");
    char *bytes = NULL;
    size_t len = (size_t)pen__read_file(AT_FDCWD, cache_file(), 1 << 20, &bytes, NULL);
    char *copy = malloc(len);
    pen__shard_stamp stamp = shard_stamp();
    int64_t live = pen__mem_live();
    pen__rng rng;
    int n_accepted = 0;
    for (int round = 0; round < 20000; round++) {
        pen__rng_init(&rng, 9, PEN__RNG_OP, round, 0, 0, 0);
        memcpy(copy, bytes, len);
        for (uint32_t i = 0, m = 1 + pen__rng_below(&rng, 3); i < m; i++)
            copy[COUNT_AT + pen__rng_below(&rng, (uint32_t)len - COUNT_AT)] =
                (char)pen__rng_u32(&rng);
        forge(copy, len);
        pen__shard_index index = {0};
        if (pen__tar_cache_parse(&index, copy, len, &stamp)) {
            n_accepted++;
            for (size_t i = 0; i < index.n; i++)
                assert_true((uint64_t)index.records[i].block * 512 + index.records[i].length <=
                            stamp.size);
        }
        pen__shard_index_fini(&index);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_true(n_accepted > 0 && n_accepted < 20000);
    free(copy);
    pen__free(bytes);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_second_opening_does_not_read_headers),
        CASE(a_changed_shard_is_indexed_again_and_its_old_index_replaced),
        CASE(without_use_cache_nothing_is_written),
        CASE(a_cache_that_cannot_be_written_is_no_error),
        CASE(damaged_files_are_ignored_and_rebuilt),
        CASE(forged_files_with_a_right_checksum_are_refused_too),
        CASE(mutated_files_are_refused_or_lie_within_the_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
