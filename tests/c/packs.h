/* packs.h - datasets of every kind to pack, and what a pack of one must be. */
#ifndef PEN_TESTS_PACKS_H
#define PEN_TESTS_PACKS_H

#include "trees.h"

#include <penstock/pack.h>

/* A folder: keys that collide, and names whose order is not that of keys. */
static inline pen_dataset *folder_to_pack(void)
{
    put_text("d/ant/a.jpg", "ant a");
    put_text("d/ant/a-b.jpg", "ant a-b");
    put_text("d/ant/c.jpg", "ant c, jpg");
    put_text("d/ant/c.png", "ant c, png");
    put_text("d/ant-like/deep/x.webp", "");
    put_text("d/bee/\1odd \xff.jpg", "a name that is no text");
    mkdir(in_tree("d/empty"), 0755); /* a class all the same */
    char long_text[1500];
    memset(long_text, 'l', sizeof long_text);
    put_bytes("d/bee/long.png", long_text, sizeof long_text);
    put_bytes("d/bee/to-the-end.png", long_text, 1020); /* with its checksum, two blocks */
    put_bytes("d/bee/beyond.png", long_text, 1021);
    pen_dataset_opts opts = tree_opts(false);
    return open_ok(in_tree("d"), &opts);
}

/* Two tar shards with all fields, and keys that need their shard in front. */
static inline pen_dataset *tars_to_pack(void)
{
    for (int i = 0; i < 2; i++) {
        tar_maker tar = {0};
        tar_text(&tar, "n/0.jpg", i ? "one" : "zero");
        tar_text(&tar, "n/0.cls", i ? "7" : "3\n");
        tar_text(&tar, "n/0.json", "{\"a\": 1}");
        tar_text(&tar, "n/1.png", "without a label");
        tar_text(&tar, "n/1.txt", "");
        tar_end(&tar);
        tar_put(&tar, i ? "t/s-1.tar" : "t/s-0.tar");
    }
    pen_dataset_opts opts = tree_opts(false);
    return open_ok(in_tree("t/s-{0..1}.tar"), &opts);
}

/* A manifest: labels are words, and none of them a directory. */
static inline pen_dataset *manifest_to_pack(void)
{
    put_text("m/x/1.jpg", "one");
    put_text("m/y/2.jpg", "two");
    put_text("m/3.jpg", "three");
    put_text("m/list.csv", "path,label\nx/1.jpg,wolf\n3.jpg,\"dog, wild\"\ny/2.jpg,wolf\n");
    pen_dataset_opts opts = tree_opts(false);
    return open_ok(in_tree("m/list.csv"), &opts);
}

/* A list in its own order, which names a file twice. */
static inline pen_dataset *list_to_pack(void)
{
    put_text("l/b/2.jpg", "two");
    put_text("l/a/1.jpg", "one");
    static const char *const paths[] = {"b/2.jpg", "a/1.jpg", "b/2.jpg"};
    static const int64_t labels[] = {2, -1, 0};
    static const char *const classes[] = {"x", "", "z"};
    pen_dataset *ds;
    assert_int_equal(
        pen_dataset_from_list(&ds, in_tree("l"), paths, labels, 3, classes, 3, NULL, NULL), 0);
    return ds;
}

static inline void assert_same_field(const pen_dataset *a, const pen_dataset *b, int64_t id,
                                     pen_field field)
{
    uint8_t x[4096], y[4096];
    pen_error err = {0};
    int64_t n = pen_dataset_field_length(a, id, field);
    assert_int_equal(pen_dataset_field_length(b, id, field), n);
    if (n < 0)
        return;
    assert_int_equal(pen_dataset_field_read(a, id, field, x, sizeof x, NULL), n);
    memset(y, 0xAB, sizeof y);
    if (pen_dataset_field_read(b, id, field, y, (size_t)n, &err) != n)
        fail_msg("%s", err.text);
    assert_memory_equal(x, y, (size_t)n);
    assert_int_equal(y[n], 0xAB); /* not a byte behind it */
}

/* Everything that anybody can see of a dataset, but where it lies. */
static inline void assert_same_dataset(const pen_dataset *a, const pen_dataset *b)
{
    char key[PEN_KEY_MAX];
    const int64_t n = pen_dataset_count(a);
    assert_int_equal(pen_dataset_count(b), n);
    assert_int_equal(pen_dataset_bytes(b), pen_dataset_bytes(a));
    assert_string_equal(pen_dataset_hash(b), pen_dataset_hash(a));
    assert_int_equal(pen_dataset_class_count(b), pen_dataset_class_count(a));
    for (int64_t i = 0; i < pen_dataset_class_count(a); i++)
        assert_string_equal(pen_dataset_class_name(b, i), pen_dataset_class_name(a, i));
    for (int64_t id = 0; id < n; id++) {
        assert_true(pen_dataset_key(a, id, key, sizeof key) > 0);
        assert_string_equal(key_of(b, id), key);
        assert_int_equal(pen_dataset_find(b, key), pen_dataset_find(a, key));
        assert_int_equal(pen_dataset_label(b, id), pen_dataset_label(a, id));
        for (int field = 0; field < PEN_FIELD_COUNT; field++)
            assert_same_field(a, b, id, (pen_field)field);
    }
}

/* Pack it; what to open it with. */
static inline const char *pack_ok(const pen_dataset *ds, const char *path, int64_t shard_bytes,
                                  int64_t n_files)
{
    static char spec[PEN_PACK_SPEC_MAX];
    pen_error err = {0};
    pen_pack_opts opts;
    pen_pack_opts_init(&opts);
    opts.shard_bytes = shard_bytes;
    int64_t n = pen_pack_write(ds, path, &opts, spec, sizeof spec, &err);
    if (n < 0)
        fail_msg("%s", err.text);
    if (n_files > 0)
        assert_int_equal(n, n_files);
    return spec;
}

/* Names in a directory, "." and ".." too. */
static inline int count_names(const char *dir)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

#endif
