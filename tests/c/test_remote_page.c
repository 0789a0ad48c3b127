/* test_remote_page.c - manifests of remote datasets, honest and not. */
#include "trees.h"
#include "wire.h"

#include "base/crc32c.h"
#include "base/mem.h"
#include "engine/headers.h"
#include "remote/remote_page.h"
#include "remote/remote_part.h"

static int count_record(void *ctx, const pen__page_record *record, pen_error *err)
{
    (void)err;
    int *n = ctx;
    assert_true(record->key_len > 0);
    (*n)++;
    return 0;
}

static int parse(const wire *page, size_t len, uint32_t n, int *found)
{
    pen_error err = {0};
    *found = 0;
    uint8_t *copy = malloc(len ? len : 1); /* an end that a sanitizer guards */
    memcpy(copy, page->bytes, len);
    int rc = pen__page_parse(copy, len, 0, n, count_record, found, &err);
    free(copy);
    assert_int_equal(rc, err.code);
    return rc;
}

static void make_page(wire *page, uint32_t flags)
{
    begin_page(page, 0, 3, flags);
    put_record(page, 10, 0, "a/1", 3, flags);
    put_record(page, 0, -1, "a/2", 3, flags);
    put_record(page, UINT32_MAX, INT32_MAX, "top", 3, flags);
    end_page(page);
}

static void pages_come_with_and_without_headers_and_fields(void **state)
{
    (void)state;
    static wire page;
    int n;
    for (uint32_t flags = 0; flags < 4; flags++) {
        make_page(&page, flags);
        assert_int_equal(parse(&page, page.n, 3, &n), 0);
        assert_int_equal(n, 3);
    }
}

static void a_page_cut_at_any_byte_is_an_error(void **state)
{
    (void)state;
    static wire page;
    int n;
    for (uint32_t flags = 0; flags < 4; flags++) {
        make_page(&page, flags);
        for (size_t len = 0; len < page.n; len++)
            assert_int_equal(parse(&page, len, 3, &n), PEN_ECORRUPT);
    }
}

static void any_flipped_bit_is_an_error(void **state)
{
    (void)state;
    static wire page;
    int n;
    make_page(&page, 3);
    for (size_t bit = 0; bit < page.n * 8; bit++) {
        page.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(parse(&page, page.n, 3, &n), PEN_ECORRUPT);
        page.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* The checksum is right, and something else is not. */
static void sealed_nonsense_is_an_error(void **state)
{
    (void)state;
    static wire page;
    static const char long_key[PEN_KEY_MAX + 1] = {0};
    static const struct {
        uint64_t length;
        int64_t label;
        const char *key;
        size_t key_len;
    } bad[] = {
        {(uint64_t)UINT32_MAX + 1, 0, "a", 1},
        {1, -2, "a", 1},
        {1, (int64_t)INT32_MAX + 1, "a", 1},
        {1, 0, "", 0},
        {1, 0, "a\0b", 3},
        {1, 0, "a/", 2},
        {1, 0, long_key, PEN_KEY_MAX},
    };
    int n;
    for (size_t i = 0; i < COUNT(bad); i++) {
        begin_page(&page, 0, 1, 0);
        put_record(&page, bad[i].length, bad[i].label, bad[i].key, bad[i].key_len, 0);
        end_page(&page);
        assert_int_equal(parse(&page, page.n, 1, &n), PEN_ECORRUPT);
        assert_int_equal(n, 0);
    }
    make_page(&page, 0);
    assert_int_equal(parse(&page, page.n, 2, &n), PEN_ECORRUPT); /* others than those asked for */
    assert_int_equal(parse(&page, page.n, 4, &n), PEN_ECORRUPT);
    begin_page(&page, 7, 1, 0);
    put_record(&page, 1, 0, "a", 1, 0);
    end_page(&page);
    assert_int_equal(parse(&page, page.n, 1, &n), PEN_ECORRUPT);
    begin_page(&page, 0, 1, 4); /* a flag of tomorrow */
    put_record(&page, 1, 0, "a", 1, 0);
    end_page(&page);
    assert_int_equal(parse(&page, page.n, 1, &n), PEN_ECORRUPT);
    begin_page(&page, 0, 1, 0);
    put_record(&page, 1, 0, "a", 1, 0);
    put_number(&page, 0, 1); /* a byte too many */
    end_page(&page);
    assert_int_equal(parse(&page, page.n, 1, &n), PEN_ECORRUPT);
}

/* A page that ends anywhere, under a checksum that is right. */
static void a_sealed_page_that_ends_too_soon_is_an_error(void **state)
{
    (void)state;
    static wire page;
    int n;
    for (uint32_t flags = 0; flags < 4; flags++) {
        make_page(&page, flags);
        for (size_t len = page.n - 5; len >= 24; len--) {
            page.n = len;
            end_page(&page);
            assert_int_equal(parse(&page, page.n, 3, &n), PEN_ECORRUPT);
        }
    }
    make_page(&page, 2);
    page.bytes[24 + 18] |= 1; /* an image beside the image */
    page.n -= 4;
    end_page(&page);
    assert_int_equal(parse(&page, page.n, 3, &n), PEN_ECORRUPT);
}

/* ---- parts ---- */

/* The page of a local dataset, as a server would write it. */
static void page_of(const pen_dataset *ds, wire *page, uint64_t first, uint32_t n)
{
    char key[PEN_KEY_MAX];
    begin_page(page, first, n, 0);
    for (uint64_t id = first; id < first + n; id++) {
        int64_t len = pen_dataset_key(ds, (int64_t)id, key, sizeof key);
        put_record(page, (uint64_t)pen_dataset_length(ds, (int64_t)id),
                   pen_dataset_label(ds, (int64_t)id), key, (size_t)len, 0);
    }
    end_page(page);
}

/* In the place of the last '}', what a description ends in. */
static void description_of(const pen_dataset *ds, char *json, size_t cap, int page)
{
    snprintf(json, cap,
             "{\"count\": %lld, \"bytes\": %lld, \"hash\": \"%s\", \"page\": %d, \"classes\": [",
             (long long)pen_dataset_count(ds), (long long)pen_dataset_bytes(ds),
             pen_dataset_hash(ds), page);
    for (int64_t i = 0; i < pen_dataset_class_count(ds); i++)
        snprintf(json + strlen(json), cap - strlen(json), "%s\"%s\"", i ? ", " : "",
                 pen_dataset_class_name(ds, i));
    snprintf(json + strlen(json), cap - strlen(json), "]}");
    seal_text(json, cap);
}

/* max_bytes is of samples alone here. */
static int build(const pen_dataset *ds, pen__part *part, int page_size, pen_error *err)
{
    const int64_t max_bytes = part->max_bytes;
    static wire page;
    char json[2048];
    description_of(ds, json, sizeof json, page_size);
    part->max_bytes = 0;
    int rc = pen__part_describe(part, json, strlen(json), err);
    part->max_bytes = max_bytes;
    while (rc == 0 && (int64_t)part->index.n < part->count) {
        page_of(ds, &page, part->index.n, pen__part_next_page(part));
        rc = pen__part_add_page(part, page.bytes, page.n, err);
    }
    return rc ? rc : pen__part_finish(part, err);
}

static void put_datasets(void)
{
    put_text("d/ant/1.jpg", "one");
    put_text("d/ant/1.png", "same stem");
    put_text("d/ant-like/2.jpg", "two");
    put_text("d/bee/deep/3.jpg", "three");
    put_text("d/bee/a-b.jpg", "x");
    put_text("d/bee/a.jpg", "y");
    put_text("e/aaa/7.jpg", "seven");
    put_text("e/bee/8.jpg", "eight");
}

/* A list may name a file twice, and absolute ones. */
static pen_dataset *open_list(void)
{
    const char *paths[] = {"bee/a.jpg", "ant/1.jpg", "bee/a.jpg", in_tree("e/aaa/7.jpg")};
    static const int64_t labels[] = {4, -1, 0, 9};
    pen_dataset *ds;
    assert_int_equal(
        pen_dataset_from_list(&ds, in_tree("d"), paths, labels, 4, NULL, 0, NULL, NULL), 0);
    return ds;
}

static void a_part_has_the_identity_of_what_is_served(void **state)
{
    (void)state;
    put_datasets();
    pen_dataset *all[] = {open_ok(in_tree("d"), NULL), open_list()};
    for (size_t i = 0; i < COUNT(all); i++)
        for (int page = 1; page < 8; page++) {
            pen__part part = {0};
            pen_error err = {0};
            if (build(all[i], &part, page, &err) != 0)
                fail_msg("%s", err.text);
            pen__part_fini(&part);
        }
    pen_dataset_unref(all[0]);
    pen_dataset_unref(all[1]);
}

static void what_the_manifest_has_otherwise_than_described_is_named(void **state)
{
    (void)state;
    put_datasets();
    pen_dataset *d = open_ok(in_tree("d"), NULL);
    pen__part part = {0};
    pen_error err = {0};
    char words[160];
    assert_int_equal(build(d, &part, 7, &err), 0);
    const long long n = (long long)pen_dataset_bytes(d);
    part.bytes++;
    assert_int_equal(pen__part_finish(&part, &err), PEN_ECORRUPT);
    snprintf(words, sizeof words, "has %lld bytes of samples, the server says %lld", n, n + 1);
    assert_non_null(strstr(err.text, words));
    assert_null(strstr(err.text, "hash"));
    memset(part.identity.samples, '0', PEN__DIGEST_TEXT - 1);
    assert_int_equal(pen__part_finish(&part, &err), PEN_ECORRUPT);
    snprintf(words, sizeof words, "hash %s, the server says 00000000", pen_dataset_hash(d));
    assert_non_null(strstr(err.text, words));
    pen__part_fini(&part);
    pen_dataset_unref(d);
}

static void parts_are_joined_with_the_union_of_their_classes(void **state)
{
    (void)state;
    put_datasets();
    pen_dataset *d = open_ok(in_tree("d"), NULL), *e = open_ok(in_tree("e"), NULL);
    pen__part parts[2] = {0};
    pen_error err = {0};
    assert_int_equal(build(d, &parts[0], 2, &err), 0);
    assert_int_equal(build(e, &parts[1], 3, &err), 0);
    pen_dataset joined = {0};
    assert_int_equal(pen__parts_join(&joined, parts, 2, &err), 0);
    assert_int_equal(joined.index.n, 8);
    static const char *const classes[] = {"aaa", "ant", "ant-like", "bee"};
    assert_int_equal(joined.classes.n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(pen__intern_text(&joined.classes, i), classes[i]);
    static const int labels[] = {1, 1, 2, 3, 3, 3, 0, 3};
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(joined.index.entries[i].label, labels[i]);
        assert_int_equal(joined.index.entries[i].shard, i >= 6);
        assert_int_equal(joined.index.entries[i].block, i >= 6 ? i - 6 : i);
    }
    assert_int_equal(pen__index_find(&joined.index, "bee/8", 5), 7);
    pen__part_fini(&parts[0]);
    pen__part_fini(&parts[1]);
    pen__index_fini(&joined.index);
    pen__intern_fini(&joined.classes);
    pen__free(joined.headers);
    pen_dataset_unref(d);
    pen_dataset_unref(e);
}

static void samples_take_no_more_memory_than_they_may(void **state)
{
    (void)state;
    put_datasets();
    pen_dataset *d = open_ok(in_tree("d"), NULL);
    pen__part part = {.max_bytes = 1};
    pen_error err = {0};
    assert_int_equal(build(d, &part, 2, &err), PEN_ELIMIT);
    assert_int_equal(part.index.n, 2); /* after the first page, not after all */
    pen__part_fini(&part);
    part = (pen__part){.max_bytes = 1 << 20};
    assert_int_equal(build(d, &part, 2, &err), 0);
    assert_in_range(pen__part_bytes(&part), 6 * 32, 1 << 20);
    pen__part_fini(&part);
    pen_dataset_unref(d);
}

static void headers_of_images_are_kept_where_they_could_be(void **state)
{
    (void)state;
    static wire page;
    pen__part part = {.count = 3, .page = 3};
    pen_image_info info;
    make_page(&page, 1);
    page.bytes[24 + 18 + 12 + 3 + 18] = 9; /* the second has a format that nobody knows */
    page.n -= 4;
    end_page(&page);
    assert_int_equal(pen__part_add_page(&part, page.bytes, page.n, NULL), 0);
    assert_true(pen__headers_unpack(part.headers[0], &info));
    assert_int_equal(info.format, PEN_FORMAT_JPEG);
    assert_int_equal(info.width, 16);
    assert_int_equal(info.height, 32);
    assert_int_equal(info.sampling_v, 2);
    assert_true(part.headers[1] == 0 && part.headers[2] == part.headers[0]);
    static const uint8_t unknown[12] = {0};
    assert_true(pen__page_header(unknown) == 0);
    pen__part_fini(&part);
}

static void fields_are_kept_as_far_as_they_are_known(void **state)
{
    (void)state;
    static wire page;
    for (uint32_t flags = 0; flags < 4; flags++) {
        pen__part parts[2] = {{.count = 3, .page = 3}, {.count = 3, .page = 3}};
        pen_dataset joined = {0};
        make_page(&page, flags);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pen__part_add_page(&parts[i], page.bytes, page.n, NULL), 0);
        assert_int_equal(pen__parts_join(&joined, parts, 2, NULL), 0);
        for (size_t i = 0; i < 6; i++) {
            const pen__entry *entry = &joined.index.entries[i];
            const pen__field_at *json = pen__index_field(&joined.index, entry, PEN_FIELD_JSON),
                                *txt = pen__index_field(&joined.index, entry, PEN_FIELD_TXT);
            assert_null(pen__index_field(&joined.index, entry, PEN_FIELD_CLS));
            assert_int_equal(json != NULL, flags >> 1);
            assert_int_equal(txt != NULL, flags >> 1);
            if (!json)
                continue;
            assert_int_equal(json->length, 7);
            assert_int_equal(txt->length, 0);
            assert_int_equal(pen__part_block_field(json->block), PEN_FIELD_JSON);
            assert_int_equal(pen__part_block_field(txt->block), PEN_FIELD_TXT);
        }
        pen__index_fini(&joined.index);
        pen__intern_fini(&joined.classes);
        pen__free(joined.headers);
    }
}

static void odd_descriptions_are_errors(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "{\"a\": 1}",
        "{\"hash\": 3}",
        "{\"hash\": \"0123456789abcdef0123456789abcdeX\", \"count\": 1, \"page\": 1}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 0, \"page\": 1}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 1e3, \"page\": 1}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 1, \"page\": 9999999}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 1, \"page\": 65537}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 536870913, \"page\": 65536}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"bytes\": 1, \"count\": 65537, "
        "\"page\": 1023}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 1, \"page\": 1, \"classes\": "
        "3}",
        "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"count\": 1, \"page\": 1, \"classes\": "
        "[3]}",
    };
    for (size_t i = 0; i < COUNT(odd); i++) {
        pen__part part = {0};
        pen_error err = {0};
        char json[256];
        snprintf(json, sizeof json, "%s", odd[i]);
        seal_text(json, sizeof json);
        assert_int_equal(pen__part_describe(&part, json, strlen(json), &err), PEN_ECORRUPT);
        pen__part_fini(&part);
    }
}

static int describe(const char *json, size_t len, int64_t max_bytes, pen__part *part)
{
    pen_error err = {0};
    *part = (pen__part){.max_bytes = max_bytes};
    int rc = pen__part_describe(part, json, len, &err);
    assert_int_equal(err.code, rc);
    pen__part_fini(part);
    return rc;
}

static void a_damaged_description_is_told_from_what_is_none(void **state)
{
    (void)state;
    char json[2048];
    pen__part part;
    put_datasets();
    pen_dataset *ds = open_ok(in_tree("d"), NULL);
    description_of(ds, json, sizeof json, 7);
    const size_t len = strlen(json);
    assert_int_equal(describe(json, len, 0, &part), 0);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        json[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(describe(json, len, 0, &part), PEN_EIO);
        json[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t n = 1; n < len; n++)
        assert_int_equal(describe(json, n, 0, &part), PEN_EIO);
    static const char *const foreign[] = {"", "[]", "It works!", "<html><body>It works!</body>"};
    for (size_t i = 0; i < COUNT(foreign); i++)
        assert_int_equal(describe(foreign[i], strlen(foreign[i]), 0, &part), PEN_ECORRUPT);
    pen_dataset_unref(ds);
}

/* An empty object takes three bytes of text and two hundred of memory. */
static void a_description_of_many_values_is_no_way_to_take_memory(void **state)
{
    (void)state;
    enum { N = 1 << 18, CAP = 3 * N + 64 };
    char *json = malloc(CAP);
    pen__part part;
    strcpy(json, "{\"classes\": [");
    size_t len = strlen(json);
    for (int i = 0; i < N; i++, len += 3)
        memcpy(json + len, "{},", 3);
    strcpy(json + len - 1, "]}");
    seal_text(json, CAP);
    assert_int_equal(describe(json, strlen(json), INT64_C(32) << 20, &part), PEN_ELIMIT);
    assert_int_equal(describe(json, strlen(json), 0, &part), PEN_ECORRUPT);
    free(json);
}

static void names_of_classes_and_their_order_are_part_of_the_identity(void **state)
{
    (void)state;
    static const char *const lists[] = {"", "\"a\"", "\"a\", \"b\"", "\"b\", \"a\"", "\"ab\""};
    pen__identity seen[COUNT(lists)];
    for (size_t i = 0; i < COUNT(lists); i++) {
        char json[256];
        pen__part part;
        snprintf(json, sizeof json,
                 "{\"hash\": \"0123456789abcdef0123456789abcdef\", \"bytes\": 1, \"count\": 1, "
                 "\"page\": 1, \"classes\": [%s]}",
                 lists[i]);
        seal_text(json, sizeof json);
        assert_int_equal(describe(json, strlen(json), 0, &part), 0);
        seen[i] = part.identity;
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(seen[i].classes, seen[k].classes);
        assert_string_equal(seen[i].samples, seen[0].samples);
    }
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    put_datasets();
    pen_dataset *d = open_ok(in_tree("d"), NULL);
    int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int n = 1; rc != 0; n++) {
        pen__part parts[2] = {0};
        pen_dataset joined = {0};
        pen__mem_fail_at(n);
        rc = build(d, &parts[0], 2, NULL);
        if (rc == 0)
            rc = build(d, &parts[1], 9, NULL);
        if (rc == 0)
            rc = pen__parts_join(&joined, parts, 2, NULL);
        pen__mem_fail_at(0);
        assert_true(rc == 0 || rc == PEN_ENOMEM);
        pen__part_fini(&parts[0]);
        pen__part_fini(&parts[1]);
        pen__index_fini(&joined.index);
        pen__intern_fini(&joined.classes);
        pen__free(joined.headers);
        assert_int_equal(pen__mem_live(), live);
    }
    pen_dataset_unref(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_with_and_without_headers_and_fields),
        cmocka_unit_test(headers_of_images_are_kept_where_they_could_be),
        cmocka_unit_test(a_page_cut_at_any_byte_is_an_error),
        cmocka_unit_test(any_flipped_bit_is_an_error),
        cmocka_unit_test(sealed_nonsense_is_an_error),
        cmocka_unit_test(a_sealed_page_that_ends_too_soon_is_an_error),
        cmocka_unit_test(fields_are_kept_as_far_as_they_are_known),
        cmocka_unit_test_setup_teardown(a_part_has_the_identity_of_what_is_served, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(what_the_manifest_has_otherwise_than_described_is_named,
                                        tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(parts_are_joined_with_the_union_of_their_classes,
                                        tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(samples_take_no_more_memory_than_they_may, tree_setup,
                                        tree_teardown),
        cmocka_unit_test(odd_descriptions_are_errors),
        cmocka_unit_test_setup_teardown(a_damaged_description_is_told_from_what_is_none, tree_setup,
                                        tree_teardown),
        cmocka_unit_test(a_description_of_many_values_is_no_way_to_take_memory),
        cmocka_unit_test(names_of_classes_and_their_order_are_part_of_the_identity),
        cmocka_unit_test_setup_teardown(failing_allocations_leave_nothing_behind, tree_setup,
                                        tree_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
