/* test_tar.c - shards: what is read, and what hostile bytes may not do. */
#include "trees.h"

#include "base/mem.h"
#include "base/rng.h"
#include "source/tar_index.h"

/* Index bytes in memory; frees everything. */
static int index_bytes(const uint8_t *bytes, size_t len, pen_error *err)
{
    int64_t live = pen__mem_live();
    pen__shard_index index = {0};
    pen__tar_bytes in = {.fd = -1, .mem = bytes, .size = len};
    int rc = pen__tar_index_build(&index, &in, NULL, NULL, err);
    for (size_t i = 0; rc == 0 && i < index.n; i++) /* whatever is accepted is within */
        assert_true((uint64_t)index.records[i].block * 512 + index.records[i].length <= len);
    pen__shard_index_fini(&index);
    assert_int_equal(pen__mem_live(), live);
    return rc;
}

static void index_fails(const tar_maker *tar, int code, const char *text)
{
    pen_error err = {0};
    int rc = index_bytes(tar->bytes, tar->n, &err);
    if (rc != code || !strstr(err.text, text))
        fail_msg("%s with \"%s\" instead of %s with \"%s\"", pen_error_name(rc), err.text,
                 pen_error_name(code), text);
}

static void index_works(const tar_maker *tar)
{
    pen_error err = {0};
    if (index_bytes(tar->bytes, tar->n, &err) != 0)
        fail_msg("%s", err.text);
}

static void a_pax_record(tar_maker *tar, char type, const char *key, const char *value)
{
    char record[8192];
    size_t body = strlen(key) + strlen(value) + 3, len = body + 1;
    while (len != body + (size_t)snprintf(NULL, 0, "%zu", len))
        len = body + (size_t)snprintf(NULL, 0, "%zu", len);
    snprintf(record, sizeof record, "%zu %s=%s\n", len, key, value);
    tar_add(tar, type, "pax", record, len);
}

static void members_that_share_a_name_up_to_its_first_dot_are_one_sample(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_add(&tar, '5', "./", "", 0);
    tar_add(&tar, '5', "./n01/", "", 0);
    tar_text(&tar, "./n01/b.jpg", "image b");
    tar_text(&tar, "./n01/b.cls", " 12\n");
    tar_text(&tar, "n01/b.json", "{\"x\": 1}");
    tar_text(&tar, "n01/b.depth.png", "a further field");
    tar_text(&tar, "n01/a.PNG", "image a");
    tar_text(&tar, "n01/a.txt", "caption");
    tar_text(&tar, "n01/c.webp", "image c"); /* its label stands further on */
    tar_text(&tar, "meta.json", "{}");
    tar_text(&tar, "README", "text");
    tar_text(&tar, "n01/._b.jpg", "left by another system");
    tar_text(&tar, "n01/c.cls", "0");
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
    static const expected want[] = {{"n01/a", -1}, {"n01/b", 12}, {"n01/c", 0}};
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_kind(ds), PEN_SOURCE_TAR);
    assert_int_equal(pen_dataset_class_count(ds), 0);
    assert_reads(ds, 0, "image a");
    assert_reads(ds, 1, "image b");
    assert_int_equal(pen_dataset_field_length(ds, 1, PEN_FIELD_CLS), 4);
    assert_int_equal(pen_dataset_field_length(ds, 1, PEN_FIELD_JSON), 8);
    assert_int_equal(pen_dataset_field_length(ds, 1, PEN_FIELD_TXT), PEN_ENOTFOUND);
    assert_int_equal(pen_dataset_field_length(ds, 3, PEN_FIELD_TXT), PEN_EINVAL);
    uint8_t buffer[16];
    assert_int_equal(pen_dataset_field_read(ds, 0, PEN_FIELD_TXT, buffer, 16, NULL), 7);
    assert_memory_equal(buffer, "caption", 7);
    assert_int_equal(pen_dataset_field_read(ds, 1, PEN_FIELD_JSON, buffer, 16, NULL), 8);
    assert_memory_equal(buffer, "{\"x\": 1}", 8);
    assert_int_equal(pen_dataset_field_read(ds, 2, PEN_FIELD_TXT, buffer, 16, NULL), PEN_ENOTFOUND);
    uint8_t cls[2][4] = {{0}};
    const int64_t ids[] = {2, 0, 1};
    uint8_t *const dst[] = {cls[0], NULL, cls[1]}; /* the one between has none */
    assert_int_equal(pen_dataset_fields_read(ds, ids, 3, PEN_FIELD_CLS, dst, NULL), 0);
    assert_memory_equal(cls, "0\0\0\0 12\n", 8);
    assert_int_equal(pen_dataset_fields_read(ds, ids, 3, PEN_FIELD_TXT, dst, NULL), PEN_ENOTFOUND);
    assert_string_equal(pen_field_name(PEN_FIELD_TXT), "txt");
    assert_null(pen_field_name(PEN_FIELD_COUNT));
    pen_dataset_unref(ds);
}

static void names_with_more_dots_end_at_the_last_where_there_is_no_plain_image(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_text(&tar, "x/fig-1.2-b.png", "two b");
    tar_text(&tar, "x/fig-1.2-b.cls", "4");
    tar_text(&tar, "x/fig-1.10.jpg", "ten");
    tar_text(&tar, "x/fig-1.2-a.jpg", "two a");
    tar_text(&tar, "x/fig-1-x.jpg", "plain"); /* sorts between fig-1 and fig-1.2 */
    tar_text(&tar, "x/plain.jpg", "image");
    tar_text(&tar, "x/plain.mask.png", "not an image of its own");
    tar_text(&tar, "x/plain.mask.cls", "not a label either");
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    static const expected want[] = {{"x/fig-1-x", -1},
                                    {"x/fig-1.10", -1},
                                    {"x/fig-1.2-a", -1},
                                    {"x/fig-1.2-b", 4},
                                    {"x/plain", -1}};
    pen_dataset_opts opts = tree_opts(true);
    for (int cached = 0; cached < 2; cached++) {
        pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
        assert_samples(ds, want, COUNT(want));
        assert_reads(ds, 2, "two a");
        assert_reads(ds, 4, "image");
        pen_dataset_unref(ds);
    }
}

static void long_names_and_sizes_come_from_extended_headers(void **state)
{
    (void)state;
    char gnu[301], pax[601], path[512];
    memset(gnu, 'g', 300);
    memset(pax, 'p', 600);
    gnu[300] = pax[600] = '\0';
    memcpy(gnu + 250, ".jpg", 5);
    memcpy(pax + 590, ".jpg", 5);
    gnu[100] = pax[100] = pax[300] = '/';
    tar_maker tar = {0};
    tar_add(&tar, 'L', "././@LongLink", gnu, strlen(gnu) + 1);
    tar_text(&tar, "short", "by gnu");
    a_pax_record(&tar, 'g', "comment", "for everybody");
    a_pax_record(&tar, 'x', "path", pax);
    tar_text(&tar, "short", "by pax");
    a_pax_record(&tar, 'x', "size", "5");
    size_t at = tar_text(&tar, "sized.jpg", "12345");
    memcpy(tar.bytes + at + 124, "77777777777", 11); /* pax overrides it */
    tar_seal(tar.bytes + at);
    at = tar_text(&tar, "binary.jpg", "1234567");
    memset(tar.bytes + at + 124, 0, 12);
    tar.bytes[at + 124] = 0x80;
    tar.bytes[at + 135] = 7;
    tar_seal(tar.bytes + at);
    at = tar_text(&tar, "leaf.jpg", "prefixed");
    memcpy(tar.bytes + at + 345, "some/prefix", 11);
    tar_seal(tar.bytes + at);
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
    assert_int_equal(pen_dataset_count(ds), 5);
    snprintf(path, sizeof path, "%.250s", gnu);
    assert_reads(ds, pen_dataset_find(ds, path), "by gnu");
    pax[590] = '\0';
    assert_reads(ds, pen_dataset_find(ds, pax), "by pax");
    assert_reads(ds, pen_dataset_find(ds, "sized"), "12345");
    assert_reads(ds, pen_dataset_find(ds, "binary"), "1234567");
    assert_reads(ds, pen_dataset_find(ds, "some/prefix/leaf"), "prefixed");
    pen_dataset_unref(ds);
}

static void keys_that_occur_in_two_shards_get_the_shard_in_front(void **state)
{
    (void)state;
    static const char *const shards[] = {"t/s-00.tar", "t/s-01.tar", "t/more/s-00.tar"};
    for (size_t i = 0; i < COUNT(shards); i++) {
        tar_maker tar = {0};
        tar_text(&tar, "0001.jpg", shards[i]);
        tar_text(&tar, i == 1 ? "only.jpg" : "0002.png", "x");
        tar_end(&tar);
        tar_put(&tar, shards[i]);
    }
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("t/{s-{00..01},more/s-00}.tar"), &opts);
    static const expected want[] = {{"more/s-00/0001", 0}, {"more/s-00/0002", 0}, {"s-00/0001", 0},
                                    {"s-00/0002", 0},      {"s-01/0001", 0},      {"s-01/only", 0}};
    assert_samples(ds, want, COUNT(want));
    assert_reads(ds, 0, "t/more/s-00.tar");
    assert_reads(ds, 4, "t/s-01.tar");
    pen_dataset_unref(ds);
    open_fails(in_tree("t/{s-00,s-00}.tar"), &opts, PEN_EINVAL, "listed twice");
    open_fails(in_tree("t/s-{00..02}.tar"), &opts, PEN_ENOTFOUND, "s-02.tar' (3 of 3)");
}

static void keys_that_differ_between_shards_stay_as_they_are(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_text(&tar, "k/2.jpg", "x");
    tar_put(&tar, "a.tar"); /* no end blocks: it ends right after a member */
    tar_text(&tar, "k/1.jpg", "x");
    tar_end(&tar);
    tar_put(&tar, "b.tar");
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("{a,b}.tar"), &opts);
    static const expected want[] = {{"k/1", 0}, {"k/2", 0}};
    assert_samples(ds, want, COUNT(want));
    pen_dataset_unref(ds);
}

static void what_would_be_a_guess_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *names[3], *data, *text;
    } cases[] = {
        {{"a.jpg", "b.jpg", "a.jpg"}, "", "the same field"},
        {{"a.jpg", "a.png", NULL}, "", "the same field"},
        {{"a.jpg", "a.cls", "a.CLS"}, "1", "the same field"},
        {{"a.x.jpg", "b.jpg", "a.x.png"}, "", "the same field"},
        {{"a.jpg", "a.cls", NULL}, "cat", "'a.cls' (data at byte 1536) is no class label"},
        {{"a.jpg", "a.cls", NULL}, "", "no class label"},
        {{"a.jpg", "a.cls", NULL}, "1 2", "no class label"},
        {{"a.jpg", "a.cls", NULL}, "0x10", "no class label"},
        {{"a.jpg", "a.cls", NULL}, "-2", "no class label"},
        {{"a.jpg", "a.cls", NULL}, "2147483648", "no class label"},
        {{"a.jpg", "a.cls", NULL}, "99999999999999999999999999", "no class label"},
        {{"../a.jpg", NULL, NULL}, "", "'..' component"},
        {{"a/../b.jpg", NULL, NULL}, "", "'..' component"},
        {{"/etc/a.jpg", NULL, NULL}, "", "is absolute"},
        {{".", NULL, NULL}, "", "is empty"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        tar_maker tar = {0};
        for (int j = 0; j < 3 && cases[i].names[j]; j++)
            tar_text(&tar, cases[i].names[j], cases[i].data);
        tar_end(&tar);
        index_fails(&tar, PEN_ECORRUPT, cases[i].text);
        free(tar.bytes);
    }
}

static void links_devices_and_unknown_types_are_refused_with_their_offset(void **state)
{
    (void)state;
    static const struct {
        char type;
        const char *text;
    } cases[] = {{'1', "a hard link (write the tar with --hard-dereference)"},
                 {'2', "a symbolic link"},
                 {'3', "a device"},
                 {'4', "a device"},
                 {'6', "a FIFO"},
                 {'S', "a sparse file"},
                 {'Q', "does not know"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        tar_maker tar = {0};
        tar_text(&tar, "a.jpg", "x");
        tar_add(&tar, cases[i].type, "b.jpg", "", 0);
        tar_end(&tar);
        index_fails(&tar, PEN_EUNSUPPORTED, cases[i].text);
        index_fails(&tar, PEN_EUNSUPPORTED, "'b.jpg' at byte 1024");
        free(tar.bytes);
    }
}

static void sizes_that_overflow_or_run_past_the_end_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *field, *text;
    } cases[] = {
        {"77777777777\0", "truncated"},
        {"777777777777", "truncated"},
        {"00000001001\0", "truncated"}, /* 513: within the file, but not its padding */
        {"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "out of range"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "out of range"},
        {"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", "truncated"},
        {"-1\0\0\0\0\0\0\0\0\0", "out of range"},
        {"12x45678901\0", "out of range"},
        {"89\0\0\0\0\0\0\0\0\0", "out of range"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        tar_maker tar = {0};
        tar_text(&tar, "a.jpg", "x");
        memcpy(tar.bytes + 124, cases[i].field, 12);
        tar_seal(tar.bytes);
        index_fails(&tar, PEN_ECORRUPT, cases[i].text);
        free(tar.bytes);
    }
    static const char *const sizes[] = {"18446744073709551615",
                                        "9223372036854775807",
                                        "99999999999999999999999",
                                        "-1",
                                        "1x",
                                        "4096"};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        tar_maker tar = {0};
        a_pax_record(&tar, 'x', "size", sizes[i]);
        tar_text(&tar, "a.jpg", "x");
        index_fails(&tar, PEN_ECORRUPT, i == 5 ? "truncated" : "bad pax");
        free(tar.bytes);
    }
}

static void extended_headers_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "5 a=\n",
        "0 path=a\n",
        "99999999999999999999999 path=a\n",
        "x path=a\n",
        "11 path=a.j",
        "10 path=ab\n ",
        "7 path\n",
        "3 \n",
        "99 path=a\n",
        "15 path=ab.jpg\n\n",
        " 9 path=a\n",
        "12",
    };
    for (size_t i = 0; i < COUNT(bodies); i++) {
        tar_maker tar = {0};
        tar_add(&tar, 'x', "pax", bodies[i], strlen(bodies[i]));
        tar_text(&tar, "a.jpg", "x");
        tar_end(&tar);
        if (i > 0) /* the first is sound, only of no interest */
            index_fails(&tar, PEN_ECORRUPT, "bad pax header at byte 5");
        else
            index_works(&tar);
        free(tar.bytes);
    }
    tar_maker tar = {0};
    tar_add(&tar, 'x', "pax", "17 path=a\0b.jpg \n", 17);
    tar_text(&tar, "a.jpg", "x");
    index_fails(&tar, PEN_ECORRUPT, "NUL byte");
    tar.n = 0;
    a_pax_record(&tar, 'g', "path", "a.jpg");
    tar_text(&tar, "a.jpg", "x");
    index_fails(&tar, PEN_ECORRUPT, "for all members");
    tar.n = 0;
    a_pax_record(&tar, 'x', "GNU.sparse.major", "1");
    tar_text(&tar, "a.jpg", "x");
    index_fails(&tar, PEN_EUNSUPPORTED, "sparse");
    tar.n = 0;
    a_pax_record(&tar, 'x', "path", "../../a.jpg");
    tar_text(&tar, "a.jpg", "x");
    index_fails(&tar, PEN_ECORRUPT, "'..' component");
    tar.n = 0;
    char name[5000];
    memset(name, 'n', sizeof name);
    tar_add(&tar, 'L', "././@LongLink", name, sizeof name);
    tar_text(&tar, "a.jpg", "x");
    index_fails(&tar, PEN_ELIMIT, "5000 bytes");
    tar.n = 0;
    tar_add(&tar, 'L', "././@LongLink", "a.jpg", 6);
    index_fails(&tar, PEN_ECORRUPT, "truncated"); /* a name and no member */
    tar_end(&tar);
    index_fails(&tar, PEN_ECORRUPT, "truncated");
    free(tar.bytes);
}

static void only_a_tar_that_ends_after_a_member_may_lack_its_end(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_text(&tar, "a.jpg", "x");
    tar_text(&tar, "b.jpg", "y");
    size_t n_members = tar.n;
    tar_end(&tar);
    for (size_t n = 0; n < tar.n; n++) {
        pen_error err = {0};
        uint8_t *exact = malloc(n + 1); /* so that a sanitizer sees reads past the end */
        memcpy(exact, tar.bytes, n);
        int rc = index_bytes(exact, n, &err);
        bool is_whole = n == 1024 || n == n_members || n >= n_members + 512;
        assert_int_equal(rc, is_whole ? 0 : PEN_ECORRUPT);
        if (!is_whole)
            assert_non_null(strstr(err.text, "truncated tar"));
        free(exact);
    }
    tar_text(&tar, "c.jpg", "appended with cat");
    index_fails(&tar, PEN_ECORRUPT, "data after the end of the tar, at byte 3072");
    free(tar.bytes);
}

static void a_wrong_checksum_and_what_is_no_tar_are_refused(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_text(&tar, "a.jpg", "x");
    tar_text(&tar, "b.jpg", "x");
    tar_end(&tar);
    tar.bytes[1024 + 3] ^= 1;
    index_fails(&tar, PEN_ECORRUPT, "a wrong header checksum at byte 1024");
    memset(tar.bytes, 'x', 512);
    index_fails(&tar, PEN_ECORRUPT, "not a tar");
    tar_put(&tar, "bad.tar");
    pen_dataset_opts opts = tree_opts(false);
    open_fails(in_tree("bad.tar"), &opts, PEN_ECORRUPT, "bad.tar': not a tar");
    put_text("empty.tar", "");
    open_fails(in_tree("empty.tar"), &opts, PEN_ECORRUPT, "truncated tar");
    tar_text(&tar, "a.txt", "x");
    tar_text(&tar, "a.bin", "x");
    tar_end(&tar);
    tar_put(&tar, "none.tar");
    open_fails(in_tree("none.tar"), &opts, PEN_ENOTFOUND, "found 2 other members");
}

/* A shard with one of everything, as raw material for mutations. */
static tar_maker rich_tar(void)
{
    tar_maker tar = {0};
    char name[200];
    memset(name, 'q', sizeof name);
    memcpy(name + 190, ".jpg", 5);
    tar_add(&tar, '5', "n/", "", 0);
    tar_text(&tar, "n/a.jpg", "image");
    tar_text(&tar, "n/a.cls", "3\n");
    tar_text(&tar, "n/a.json", "{}");
    tar_add(&tar, 'L', "././@LongLink", name, 195);
    tar_text(&tar, "q", "long");
    name[1] = '/';
    a_pax_record(&tar, 'x', "path", name);
    tar_text(&tar, "r", "pax");
    tar_end(&tar);
    return tar;
}

static void mutated_shards_end_in_success_or_a_clean_error(void **state)
{
    (void)state;
    tar_maker tar = rich_tar();
    uint8_t *copy = malloc(tar.n);
    pen__rng rng;
    int n_ok = 0, n_bad = 0;
    for (int round = 0; round < 20000; round++) {
        pen__rng_init(&rng, 5, PEN__RNG_OP, round, 0, 0, 0);
        memcpy(copy, tar.bytes, tar.n);
        size_t n = round % 4 == 3 ? pen__rng_below(&rng, (uint32_t)tar.n) : tar.n;
        for (uint32_t i = 0, m = 1 + pen__rng_below(&rng, 4); i < m; i++)
            copy[pen__rng_below(&rng, (uint32_t)tar.n)] = (uint8_t)pen__rng_u32(&rng);
        if (round % 2) /* with sums made right again, the fields behind them are reached */
            for (size_t at = 0; at < tar.n; at += 512)
                if (copy[at + 257] == 'u')
                    tar_seal(copy + at);
        pen_error err = {0};
        int rc = index_bytes(copy, n, &err);
        assert_int_equal(err.code, rc);
        assert_null(strchr(err.text, '\n'));
        n_ok += rc == 0;
        n_bad += rc != 0;
    }
    assert_true(n_ok > 100 && n_bad > 100);
    free(copy);
    free(tar.bytes);
}

static void a_failing_allocation_leaks_nothing(void **state)
{
    (void)state;
    tar_maker tar = rich_tar();
    int rc = PEN_ENOMEM;
    for (int64_t n = 1; rc != 0; n++) {
        pen__mem_fail_at(n);
        rc = index_bytes(tar.bytes, tar.n, NULL);
        pen__mem_fail_at(0);
        assert_true(rc == 0 || rc == PEN_ENOMEM);
    }
    free(tar.bytes);
}

static void a_shard_that_changed_after_it_was_indexed_is_an_io_error(void **state)
{
    (void)state;
    tar_maker tar = {0};
    tar_text(&tar, "a.jpg", "x");
    tar_put(&tar, "s.tar");
    pen_dataset_opts opts = tree_opts(false);
    pen_dataset *ds = open_ok(in_tree("s.tar"), &opts);
    tar_text(&tar, "a.jpg", "longer");
    tar_end(&tar);
    tar_put(&tar, "s.tar");
    uint8_t buffer[8];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 0, buffer, 8, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "s.tar': changed since it was indexed"));
    pen_dataset_unref(ds);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(members_that_share_a_name_up_to_its_first_dot_are_one_sample),
        CASE(names_with_more_dots_end_at_the_last_where_there_is_no_plain_image),
        CASE(long_names_and_sizes_come_from_extended_headers),
        CASE(keys_that_occur_in_two_shards_get_the_shard_in_front),
        CASE(keys_that_differ_between_shards_stay_as_they_are),
        CASE(what_would_be_a_guess_is_refused),
        CASE(links_devices_and_unknown_types_are_refused_with_their_offset),
        CASE(sizes_that_overflow_or_run_past_the_end_are_refused),
        CASE(extended_headers_that_make_no_sense_are_refused),
        CASE(only_a_tar_that_ends_after_a_member_may_lack_its_end),
        CASE(a_wrong_checksum_and_what_is_no_tar_are_refused),
        CASE(mutated_shards_end_in_success_or_a_clean_error),
        CASE(a_failing_allocation_leaks_nothing),
        CASE(a_shard_that_changed_after_it_was_indexed_is_an_io_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
