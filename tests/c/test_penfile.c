/* test_penfile.c - reading packs: what is damaged, what has changed, and what hostile bytes may not
 * do. */
#include "packs.h"

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/mem.h"
#include "base/rng.h"
#include "source/penfile.h"
#include "source/source.h"

/* Places in the header (docs/pack.md). */
enum {
    VERSION = 8,
    FLAGS = 12,
    N_RECORDS = 16,
    FIRST_ID = 24,
    N_ALL = 32,
    INDEX_AT = 40,
    N_NAMES = 48,
    N_CLASSES = 56,
    N_CLASS_NAMES = 64,
    INDEX_SUM = 72,
    ID = 76,
    RESERVED = 108,
    SUM = 508,
    RECORD = 40,
};

/* The bytes of a pack of five samples, with classes and fields. */
typedef struct image {
    uint8_t bytes[16384];
    size_t len, index_at;
} image;

static void load(image *to, const char *name)
{
    FILE *file = fopen(in_tree(name), "rb");
    assert_non_null(file);
    to->len = fread(to->bytes, 1, sizeof to->bytes, file);
    assert_true(to->len < sizeof to->bytes);
    to->index_at = (size_t)pen__le64(to->bytes + INDEX_AT);
    fclose(file);
}

static void make(image *to)
{
    tar_maker tar = {0};
    tar_text(&tar, "a/0.jpg", "zero");
    tar_text(&tar, "a/1.jpg", "one");
    tar_text(&tar, "a/1.txt", "a caption");
    tar_text(&tar, "b/2.jpg", "two");
    tar_text(&tar, "b/2.json", "{}");
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
    pack_ok(ds, in_tree("p.pen"), 0, 1);
    pen_dataset_unref(ds);
    load(to, "p.pen");
}

/* Give header and index the checksums that their bytes have. */
static void seal(image *p)
{
    pen__le_put(p->bytes + INDEX_SUM, pen__crc32c(0, p->bytes + p->index_at, p->len - p->index_at),
                4);
    pen__le_put(p->bytes + SUM, pen__crc32c(0, p->bytes, SUM), 4);
}

static void open_bytes_fails(const image *p, int code, const char *text)
{
    pen_dataset_opts opts = tree_opts(false);
    const int64_t live = pen__mem_live();
    const int fds = open_fds();
    put_bytes("x.pen", p->bytes, p->len);
    open_fails(in_tree("x.pen"), &opts, code, text);
    assert_int_equal(pen__mem_live(), live);
    assert_int_equal(open_fds(), fds);
}

static void cut_at_any_byte_it_is_an_error(void **state)
{
    (void)state;
    image p;
    make(&p);
    const size_t len = p.len;
    for (p.len = 0; p.len < len; p.len++)
        open_bytes_fails(&p, PEN_ECORRUPT, "shard '");
    p.len = len;
    p.bytes[p.len++] = 0;
    open_bytes_fails(&p, PEN_ECORRUPT, "it was cut or added to");
}

static void a_bit_that_turned_in_header_or_index_is_found(void **state)
{
    (void)state;
    image p;
    make(&p);
    for (size_t at = 0; at < p.len; at = at == SUM + 3 ? p.index_at : at + 1) {
        p.bytes[at] ^= 0x10;
        pen_dataset *ds;
        pen_dataset_opts opts = tree_opts(false);
        put_bytes("x.pen", p.bytes, p.len);
        int rc = pen_dataset_open(&ds, in_tree("x.pen"), &opts, NULL);
        const bool is_version = at >= VERSION && at < FLAGS;
        assert_int_equal(rc, is_version ? PEN_EUNSUPPORTED : PEN_ECORRUPT);
        p.bytes[at] ^= 0x10;
    }
}

static void a_newer_version_says_so(void **state)
{
    (void)state;
    image p;
    make(&p);
    p.bytes[VERSION] = 2;
    memset(p.bytes + RESERVED, 7, 512 - RESERVED); /* whatever it has there */
    open_bytes_fails(&p, PEN_EUNSUPPORTED, "version 2");
    put_text("x.pen", "a text");
    pen_dataset_opts opts = tree_opts(false);
    open_fails(in_tree("x.pen"), &opts, PEN_ECORRUPT, "it is no pack");
    put_bytes("x.pen", "", 0);
    open_fails(in_tree("x.pen"), &opts, PEN_ECORRUPT, "it is no pack");
}

/* A number of `size` bytes elsewhere than it was, under right checksums. */
typedef struct lie {
    size_t at;
    uint64_t value;
    int size;
    const char *text;
} lie;

static void refuse(const image *p, const lie *lies, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        image copy = *p;
        pen__le_put(copy.bytes + lies[i].at, lies[i].value, lies[i].size);
        seal(&copy);
        open_bytes_fails(&copy, PEN_ECORRUPT, lies[i].text);
    }
}

static void numbers_that_lie_are_refused_under_right_checksums(void **state)
{
    (void)state;
    image p;
    make(&p);
    const size_t index = p.index_at, names = index + 3 * RECORD, second = index + RECORD;
    assert_string_equal((const char *)p.bytes + names, "a/0");
    const lie header[] = {
        {VERSION, 0, 4, "impossible version"},
        {FLAGS, 1, 4, "impossible version"},
        {N_RECORDS, 0, 8, "sensible samples"},
        {N_RECORDS, 4, 8, "sensible samples"}, /* more than in all of the pack */
        {N_RECORDS, UINT64_MAX, 8, "sensible samples"},
        {N_RECORDS, 2, 8, "should have"},
        {N_RECORDS, UINT64_C(1) << 61, 8, "sensible samples"}, /* a product that wraps */
        {FIRST_ID, 1, 8, "sensible samples"},
        {FIRST_ID, UINT64_MAX, 8, "sensible samples"},
        {N_ALL, 2, 8, "sensible samples"},
        {N_ALL, UINT64_C(1) << 32, 8, "sensible samples"},
        {INDEX_AT, index + 1, 8, "outside"},
        {INDEX_AT, 0, 8, "outside"},
        {INDEX_AT, UINT64_MAX - 511, 8, "outside"},
        {INDEX_AT, index - 512, 8, "should have"},
        {N_NAMES, UINT64_MAX, 8, "sensible names"},
        {N_NAMES, 11, 8, "should have"},
        {N_CLASSES, 5, 8, "sensible names"}, /* of four bytes in all */
        {N_CLASSES, 1, 8, ""},
        {N_CLASS_NAMES, UINT64_MAX, 8, "sensible names"},
        {ID, 'x', 1, "no identity"},
        {RESERVED, 1, 1, "nobody knows"},
        {SUM - 1, 1, 1, "nobody knows"},
    };
    refuse(&p, header, COUNT(header));
    const lie records[] = {
        {index, 1, 4, "not where it should be"},
        {index, UINT32_MAX, 4, "lies outside"},
        {second, 0, 4, "not where it should be"}, /* the name of the first */
        {index + 4, 0, 4, "lies outside"},        /* in the header */
        {index + 4, UINT32_MAX, 4, "lies outside"},
        {second + 4, 1, 4, "where another one does"}, /* the image of the first */
        {index + 8, UINT32_MAX, 4, "lies outside"},
        {index + 8, 509, 4, "where another one does"}, /* its checksum reaches into the next */
        {index + 2 * RECORD + 4, 6, 4, ""},            /* the last one, over its own field */
        {index + 12, (uint32_t)-2, 4, "a label that is none"},
        {index + 12, 2, 4, "there are 2 classes"},
        {second + 32, UINT32_MAX, 4, "lies outside"}, /* the caption */
        {second + 32, 2, 4, "where another one does"},
        {second + 20, 9, 4, "where another one does"}, /* no cls, of nine bytes */
    };
    refuse(&p, records, COUNT(records));
}

static void an_index_that_is_mostly_holes_takes_no_memory(void **state)
{
    (void)state;
    image p;
    make(&p);
    const uint64_t n = UINT32_MAX / RECORD + 1;
    pen__le_put(p.bytes + N_RECORDS, n, 8);
    pen__le_put(p.bytes + N_ALL, n, 8);
    pen__le_put(p.bytes + SUM, pen__crc32c(0, p.bytes, SUM), 4);
    put_bytes("x.pen", p.bytes, p.len);
    assert_int_equal(truncate(in_tree("x.pen"), (off_t)(p.index_at + n * RECORD + 12 + 4)), 0);
    pen_dataset_opts opts = tree_opts(false);
    open_fails(in_tree("x.pen"), &opts, PEN_ELIMIT, "its index has more than");
}

static void keys_and_classes_that_may_not_be_are_refused(void **state)
{
    (void)state;
    image p;
    make(&p);
    const size_t names = p.index_at + 3 * RECORD, classes = names + 12;
    static const char *const keys[] = {"../", "/a0", "a//", "./a", "a/.", "..\0", "a\0b", "\0/0"};
    for (size_t i = 0; i < COUNT(keys); i++) {
        image copy = p;
        memcpy(copy.bytes + names, keys[i], 3);
        seal(&copy);
        open_bytes_fails(&copy, PEN_ECORRUPT, "the key of sample");
    }
    assert_string_equal((const char *)p.bytes + classes, "a");
    static const struct {
        const char *bytes, *text;
    } wrong[] = {{"a\0a\0", "one name"},
                 {"a\0bb", "no end"},
                 {"a\0\0\0", "no class"},
                 {"\0\0b\0", "one name"}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        image copy = p;
        memcpy(copy.bytes + classes, wrong[i].bytes, 4);
        seal(&copy);
        open_bytes_fails(&copy, PEN_ECORRUPT, wrong[i].text);
    }
    image copy = p;
    copy.bytes[classes - 1] = 'x'; /* the last key without its end */
    seal(&copy);
    open_bytes_fails(&copy, PEN_ECORRUPT, "ends within a name");
}

static void mutated_packs_are_refused_or_lie_within_the_file(void **state)
{
    (void)state;
    image p;
    make(&p);
    const int64_t live = pen__mem_live();
    pen__rng rng;
    int n_accepted = 0;
    for (int round = 0; round < 20000; round++) {
        pen__rng_init(&rng, 9, PEN__RNG_OP, round, 0, 0, 0);
        image copy = p;
        for (uint32_t i = 0, m = 1 + pen__rng_below(&rng, 3); i < m; i++) {
            uint32_t at = pen__rng_below(&rng, (uint32_t)(SUM - VERSION + p.len - p.index_at));
            at = at < SUM - VERSION ? VERSION + at : (uint32_t)p.index_at + at - (SUM - VERSION);
            copy.bytes[at] = (uint8_t)pen__rng_u32(&rng);
        }
        seal(&copy);
        pen__penfile_head head;
        pen__shard_index index = {0};
        pen__intern classes = {0};
        if (pen__penfile_get_head(&head, copy.bytes, 512, copy.len, NULL) == 0 &&
            pen__penfile_get_index(&index, &classes, &head, copy.bytes + head.index_at, NULL) == 0)
            n_accepted++;
        for (size_t i = 0; i < index.n; i++)
            assert_true((uint64_t)index.records[i].block * 512 + index.records[i].length + 4 <=
                        p.index_at);
        pen__shard_index_fini(&index);
        pen__intern_fini(&classes);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_true(n_accepted > 0 && n_accepted < 20000);
}

static void read_fails(const pen_dataset *ds, int64_t id, int code, const char *text)
{
    uint8_t buffer[64];
    pen_error err = {0};
    int64_t rc = pen_dataset_read(ds, id, buffer, sizeof buffer, &err);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%s with \"%s\" instead of %s with \"%s\"", pen_error_name((int)rc), err.text,
                 pen_error_name(code), text);
}

static void a_damaged_sample_is_a_fault_of_the_data_and_others_are_read(void **state)
{
    (void)state;
    image p;
    make(&p);
    for (int of_checksum = 0; of_checksum < 2; of_checksum++) {
        image copy = p;
        copy.bytes[512 + (of_checksum ? 4 : 1)] ^= 1;
        put_bytes("x.pen", copy.bytes, copy.len);
        pen_dataset_opts opts = tree_opts(false);
        pen_dataset *ds = open_ok(in_tree("x.pen"), &opts);
        read_fails(ds, 0, PEN_ECORRUPT, "x.pen': what is there is not what was written");
        assert_true(pen_error_is_data(PEN_ECORRUPT));
        assert_reads(ds, 1, "one");
        pen_dataset_unref(ds);
    }
    image copy = p;
    copy.bytes[512 * 3] ^= 1; /* the caption */
    put_bytes("x.pen", copy.bytes, copy.len);
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("x.pen"), &opts);
    uint8_t buffer[64];
    assert_int_equal(pen_dataset_field_read(ds, 1, PEN_FIELD_TXT, buffer, 64, NULL), PEN_ECORRUPT);
    assert_reads(ds, 1, "one");
    pen_dataset_unref(ds);
}

static void a_pack_that_changed_is_an_io_fault_as_of_tars(void **state)
{
    (void)state;
    image p;
    make(&p);
    for (int was_read = 0; was_read < 2; was_read++)
        for (int confined = 0; confined < 2; confined++) {
            put_bytes("x.pen", p.bytes, p.len);
            make_old(in_tree("x.pen"));
            pen_dataset_opts opts = tree_opts(false);
            opts.is_confined = confined;
            pen_dataset *ds = open_ok(in_tree("x.pen"), &opts);
            if (was_read) /* and is open since */
                assert_reads(ds, 1, "one");
            image other = p;
            memset(other.bytes + 512, 'x', 1024);
            int fd = open(in_tree("x.pen"), O_WRONLY);
            assert_int_equal(pwrite(fd, other.bytes, other.len, 0), other.len);
            close(fd);
            const int code = confined ? PEN_ENOTFOUND : PEN_EIO;
            read_fails(ds, 0, code, "changed since it was indexed");
            assert_int_equal(truncate(in_tree("x.pen"), 514), 0);
            read_fails(ds, 0, code, "changed since it was indexed");
            read_fails(ds, 2, code, confined ? "shard 'x.pen'" : tree);
            pen_dataset_unref(ds);
        }
}

static void parts_of_a_sample_are_read_in_place(void **state)
{
    (void)state;
    image p;
    make(&p);
    make_old(in_tree("p.pen"));
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("p.pen"), &opts);
    pen__opened opened;
    char part[3] = {0};
    assert_int_equal(pen__dataset_open_sample(ds, 2, &opened, NULL), 0);
    assert_int_equal(pread(opened.fd, part, 2, (off_t)opened.at + 1), 2);
    assert_string_equal(part, "wo");
    assert_true(opened.stamp != 0);
    uint8_t all[3];
    assert_int_equal(pen__opened_read(&opened, all, 3), 3);
    assert_memory_equal(all, "two", 3);
    pen__opened_close(&opened);
    pen_dataset_unref(ds);
}

static void a_failing_allocation_leaks_neither_memory_nor_descriptors(void **state)
{
    (void)state;
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = folder_to_pack();
    pack_ok(ds, in_tree("s.pen"), 3000, 0);
    pen_dataset_unref(ds);
    const int64_t live = pen__mem_live();
    const int fds = open_fds();
    bool was_reached = true;
    for (int64_t n = 1; was_reached; n++) {
        pen_error err = {0};
        const int64_t count = pen__mem_count();
        pen__mem_fail_at(n);
        int rc = pen_dataset_open(&ds, in_tree("s-{000..001}.pen"), &opts, &err);
        pen__mem_fail_at(0);
        was_reached = pen__mem_count() - count >= n;
        assert_true(rc == 0 || (rc == PEN_ENOMEM && was_reached && !ds));
        pen_dataset_unref(ds);
        assert_int_equal(pen__mem_live(), live);
        assert_int_equal(open_fds(), fds);
    }
}

static int stop(void *ctx, int64_t done, int64_t total)
{
    (void)ctx;
    return done > 0 && total > 0;
}

static void opening_may_be_cancelled(void **state)
{
    (void)state;
    image p;
    make(&p);
    pen_dataset_opts opts = tree_opts(false);
    opts.progress = stop;
    open_fails(in_tree("p.pen"), &opts, PEN_ECANCELED, "cancelled");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(cut_at_any_byte_it_is_an_error),
        CASE(a_bit_that_turned_in_header_or_index_is_found),
        CASE(a_newer_version_says_so),
        CASE(numbers_that_lie_are_refused_under_right_checksums),
        CASE(an_index_that_is_mostly_holes_takes_no_memory),
        CASE(keys_and_classes_that_may_not_be_are_refused),
        CASE(mutated_packs_are_refused_or_lie_within_the_file),
        CASE(a_damaged_sample_is_a_fault_of_the_data_and_others_are_read),
        CASE(a_pack_that_changed_is_an_io_fault_as_of_tars),
        CASE(parts_of_a_sample_are_read_in_place),
        CASE(a_failing_allocation_leaks_neither_memory_nor_descriptors),
        CASE(opening_may_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
