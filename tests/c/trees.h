/* trees.h - throw-away directories, files and tar archives for tests. */
#ifndef PEN_TESTS_TREES_H
#define PEN_TESTS_TREES_H

#include "testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include <penstock/dataset.h>

/* Where the current test may write; made by tree_setup, gone after tree_teardown. */
static char tree[128];

static inline int tree_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(tree, sizeof tree, "%.90s/penstock-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(tree) ? 0 : -1;
}

static inline int tree_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static inline int tree_teardown(void **state)
{
    (void)state;
    return nftw(tree, tree_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* "<tree>/<name>"; a few results are alive at a time. */
static inline const char *in_tree(const char *name)
{
    static char paths[8][PATH_MAX];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", tree, name);
    return path;
}

static inline void make_parents(const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", tree, name);
    for (char *p = path + strlen(tree) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(path, 0755);
    }
}

static inline void put_bytes(const char *name, const void *bytes, size_t len)
{
    make_parents(name);
    FILE *file = fopen(in_tree(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static inline int open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    int n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* A tar under construction. */
typedef struct tar_maker {
    uint8_t *bytes;
    size_t n, cap;
} tar_maker;

static inline uint8_t *tar_room(tar_maker *tar, size_t n)
{
    if (tar->n + n > tar->cap) {
        tar->cap = (tar->n + n) * 2;
        tar->bytes = realloc(tar->bytes, tar->cap);
        assert_non_null(tar->bytes);
    }
    uint8_t *at = tar->bytes + tar->n;
    memset(at, 0, n);
    tar->n += n;
    return at;
}

/* Give the header at `at` the checksum its bytes have. */
static inline void tar_seal(uint8_t *at)
{
    memset(at + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += at[i];
    snprintf((char *)at + 148, 8, "%06o", sum);
}

/* A ustar header; returns its offset, for tests that spoil it. */
static inline size_t tar_header(tar_maker *tar, char type, const char *name, size_t size)
{
    size_t offset = tar->n;
    uint8_t *at = tar_room(tar, 512);
    size_t len = strlen(name);
    assert_true(len <= 100);
    memcpy(at, name, len);
    memcpy(at + 100, "0000644", 7);
    snprintf((char *)at + 124, 12, "%011o", (unsigned)size);
    memcpy(at + 136, "00000000000", 11);
    at[156] = (uint8_t)type;
    memcpy(at + 257, "ustar\00000", 8);
    tar_seal(at);
    return offset;
}

static inline size_t tar_add(tar_maker *tar, char type, const char *name, const void *data,
                             size_t len)
{
    size_t offset = tar_header(tar, type, name, len);
    if (len > 0)
        memcpy(tar_room(tar, (len + 511) / 512 * 512), data, len);
    return offset;
}

static inline size_t tar_text(tar_maker *tar, const char *name, const char *text)
{
    return tar_add(tar, '0', name, text, strlen(text));
}

static inline void tar_end(tar_maker *tar)
{
    tar_room(tar, 1024);
}

/* Write it out and forget it. */
static inline void tar_put(tar_maker *tar, const char *name)
{
    put_bytes(name, tar->bytes, tar->n);
    free(tar->bytes);
    *tar = (tar_maker){0};
}

/* Options that keep the cache within the tree, or switch it off. */
static inline pen_dataset_opts tree_opts(bool use_cache)
{
    static char dir[160];
    snprintf(dir, sizeof dir, "%s/cache", tree);
    pen_dataset_opts opts;
    pen_dataset_opts_init(&opts);
    opts.cache_dir = dir;
    opts.use_cache = use_cache;
    return opts;
}

static inline pen_dataset *open_ok(const char *spec, const pen_dataset_opts *opts)
{
    pen_dataset *ds;
    pen_error err = {0};
    if (pen_dataset_open(&ds, spec, opts, &err) != 0)
        fail_msg("'%s': %s", spec, err.text);
    assert_non_null(ds);
    return ds;
}

/* Opening fails with `code` and a message that has `text` in it. */
static inline void open_fails(const char *spec, const pen_dataset_opts *opts, int code,
                              const char *text)
{
    pen_dataset *ds;
    pen_error err = {0};
    int rc = pen_dataset_open(&ds, spec, opts, &err);
    assert_null(ds);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%s with \"%s\" instead of %s with \"%s\"", pen_error_name(rc), err.text,
                 pen_error_name(code), text);
    assert_int_equal(err.code, code);
    assert_null(strchr(err.text, '\n'));
}

static inline const char *key_of(const pen_dataset *ds, int64_t id)
{
    static char key[PEN_KEY_MAX];
    int64_t len = pen_dataset_key(ds, id, key, sizeof key);
    assert_int_equal(len, strlen(key));
    return key;
}

/* Ids in order have these keys and labels, and every key finds its id. */
typedef struct expected {
    const char *key;
    int label;
} expected;

static inline void assert_samples(const pen_dataset *ds, const expected *want, size_t n)
{
    assert_int_equal(pen_dataset_count(ds), n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(key_of(ds, (int64_t)i), want[i].key);
        assert_int_equal(pen_dataset_label(ds, (int64_t)i), want[i].label);
        assert_int_equal(pen_dataset_find(ds, want[i].key), i);
    }
}

static inline void assert_reads(const pen_dataset *ds, int64_t id, const char *want)
{
    uint8_t buffer[4096];
    pen_error err = {0};
    int64_t n = pen_dataset_read(ds, id, buffer, sizeof buffer, &err);
    if (n < 0)
        fail_msg("%s", err.text);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(buffer, want, (size_t)n);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A file that was written long ago: what is new may change again unnoticed, and is not believed. */
static inline void make_old(const char *path)
{
    const struct timespec long_ago[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
}

#endif
