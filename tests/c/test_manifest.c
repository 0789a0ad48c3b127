/* test_manifest.c - lists of files: CSV and JSON lines. */
#include "trees.h"

#include "base/mem.h"
#include "base/rng.h"
#include "source/manifest.h"

static void put_images(void)
{
    put_text("m/n01/b.jpg", "bb");
    put_text("m/n01/a.jpg", "a");
    put_text("m/n02/c d.png", "ccc");
    put_text("m/\"q\",x.jpg", "dddd");
    put_text("outside.jpg", "out");
}

static pen_dataset *open_csv(const char *text)
{
    put_images();
    put_text("m/list.csv", text);
    return open_ok(in_tree("m/list.csv"), NULL);
}

static void csv_fails(const char *text, int code, const char *message)
{
    put_images();
    put_text("m/list.csv", text);
    open_fails(in_tree("m/list.csv"), NULL, code, message);
}

static void jsonl_fails(const char *text, int code, const char *message)
{
    put_images();
    put_text("m/list.jsonl", text);
    open_fails(in_tree("m/list.jsonl"), NULL, code, message);
}

static void csv_rows_are_samples_sorted_by_path(void **state)
{
    (void)state;
    pen_dataset *ds = open_csv("n02/c d.png,5\nn01/b.jpg,0\n./n01//a.jpg,-1\n");
    static const expected want[] = {{"n01/a", -1}, {"n01/b", 0}, {"n02/c d", 5}};
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_kind(ds), PEN_SOURCE_MANIFEST);
    assert_int_equal(pen_dataset_class_count(ds), 0);
    assert_reads(ds, 2, "ccc");
    pen_dataset_unref(ds);
}

static void csv_takes_quotes_crlf_bom_blank_lines_and_headers(void **state)
{
    (void)state;
    pen_dataset *ds = open_csv("\xEF\xBB\xBF"
                               "Label,note,PATH\r\n"
                               "cat,\"two\r\nlines\",\"\"\"q\"\",x.jpg\"\r\n"
                               "\r\n"
                               "dog , x , n01/a.jpg\r\n"
                               ",,\"n01/b.jpg\" \r\n"
                               "\"a\",,n02/c d.png");
    static const expected want[] = {{"\"q\",x", 1}, {"n01/a", 2}, {"n01/b", -1}, {"n02/c d", 0}};
    assert_samples(ds, want, COUNT(want));
    assert_int_equal(pen_dataset_class_count(ds), 3);
    assert_string_equal(pen_dataset_class_name(ds, 0), "a");
    assert_string_equal(pen_dataset_class_name(ds, 1), "cat");
    assert_string_equal(pen_dataset_class_name(ds, 2), "dog");
    pen_dataset_unref(ds);
}

static void integers_stay_labels_and_words_become_sorted_classes(void **state)
{
    (void)state;
    pen_dataset *ds = open_csv("path,label\nn01/a.jpg,10\nn01/b.jpg,9\n");
    static const expected numbers[] = {{"n01/a", 10}, {"n01/b", 9}};
    assert_samples(ds, numbers, COUNT(numbers));
    assert_int_equal(pen_dataset_class_count(ds), 0);
    pen_dataset_unref(ds);
    ds = open_csv("path,label\nn01/a.jpg,dog\nn01/b.jpg,cat\nn02/c d.png,emu 2\n");
    static const expected words[] = {{"n01/a", 1}, {"n01/b", 0}, {"n02/c d", 2}};
    assert_samples(ds, words, COUNT(words));
    assert_string_equal(pen_dataset_class_name(ds, 2), "emu 2");
    pen_dataset_unref(ds);
    ds = open_csv("n01/a.jpg\nn01/b.jpg\n");
    static const expected none[] = {{"n01/a", -1}, {"n01/b", -1}};
    assert_samples(ds, none, COUNT(none));
    pen_dataset_unref(ds);
}

static void json_lines_give_the_same_as_csv(void **state)
{
    (void)state;
    pen_dataset *csv = open_csv("n01/b.jpg,4\nn01/a.jpg,3\nn02/c d.png,");
    put_text("m/list.jsonl", "{\"path\": \"n01/a.jpg\", \"label\": 3, \"extra\": [1, {}]}\n\n"
                             "{\"label\": 4, \"path\": \"n01/\\u0062.jpg\"}\r\n"
                             "{\"path\": \"n02/c d.png\", \"label\": null}");
    pen_dataset *json = open_ok(in_tree("m/list.jsonl"), NULL);
    static const expected want[] = {{"n01/a", 3}, {"n01/b", 4}, {"n02/c d", -1}};
    assert_samples(csv, want, COUNT(want));
    assert_samples(json, want, COUNT(want));
    assert_string_equal(pen_dataset_hash(csv), pen_dataset_hash(json));
    pen_dataset_unref(csv);
    pen_dataset_unref(json);
}

static void bad_rows_are_errors_that_name_the_line(void **state)
{
    (void)state;
    csv_fails("n01/a.jpg,1\nn01/b.jpg,1 x\n", PEN_EINVAL, "line 2 a word");
    csv_fails("n01/a.jpg,10.0\nn01/b.jpg,2.0\n", PEN_EINVAL, "no integer");
    csv_fails("n01/a.jpg,1\nn01/zz.jpg,2\n", PEN_ENOTFOUND, "line 2: no file 'n01/zz.jpg'");
    csv_fails("file,class\nn01/a.jpg,1\n", PEN_ENOTFOUND, "a header must name its columns");
    csv_fails("n01/a.jpg,1\n\nn01/b.jpg,1\n./n01/a.jpg,1\n", PEN_EINVAL,
              "lines 1 and 4 both list 'n01/a.jpg'");
    csv_fails("n01/a.jpg,1\nn01/b.jpg\n", PEN_ECORRUPT, "line 2: 1 columns instead of 2");
    csv_fails("n01/a.jpg,1,2\n", PEN_ECORRUPT, "line 1: more than two columns");
    csv_fails("n01/a.jpg,1\n\"n01/b.jpg,2\n\n", PEN_ECORRUPT, "line 2: a quote that is never");
    csv_fails("\"n01/a.jpg\"x,1\n", PEN_ECORRUPT, "line 1: text after a closing quote");
    csv_fails("n01/\"a\".jpg,1\n", PEN_ECORRUPT, "line 1: a quote inside");
    csv_fails("n01/a.jpg,2147483648\n", PEN_EINVAL, "line 1: the label 2147483648");
    csv_fails("n01/a.jpg,-7\n", PEN_EINVAL, "line 1: the label -7");
    csv_fails("n01,1\n", PEN_EIO, "line 1: 'n01' is not a regular file");
    csv_fails(",1\n", PEN_EINVAL, "line 1: the path '' is empty");
    csv_fails("", PEN_ENOTFOUND, "no rows");
    csv_fails("path,label\n", PEN_ENOTFOUND, "no rows");
    jsonl_fails("{\"path\": \"n01/a.jpg\"}\n{oops\n", PEN_ECORRUPT, "line 2: no valid JSON");
    jsonl_fails("[1]\n", PEN_ECORRUPT, "line 1: no JSON object");
    jsonl_fails("{\"path\": 3}\n", PEN_ECORRUPT, "line 1: no \"path\"");
    jsonl_fails("{\"label\": 3}\n", PEN_ECORRUPT, "line 1: no \"path\"");
    jsonl_fails("{\"path\": \"n01/a.jpg\", \"label\": 1.5}", PEN_ECORRUPT, "line 1: a \"label\"");
    jsonl_fails("{\"path\": \"n01/a.jpg\", \"path\": \"n01/b.jpg\"}", PEN_ECORRUPT, "line 1");
    jsonl_fails("{\"path\": \"n01/\\u0000a.jpg\"}", PEN_ECORRUPT, "line 1");
    jsonl_fails("{\"path\": \"n01/a.jpg\", \"label\": 1}\n"
                "{\"path\": \"n01/b.jpg\", \"label\": \"cat\"}",
                PEN_EINVAL, "line 1 has a number for a label and line 2 a word");
}

static void deep_and_endless_lines_are_refused(void **state)
{
    (void)state;
    enum { N = (1 << 20) + 64 };
    char *text = malloc(N);
    memset(text, '[', N);
    text[N - 1] = '\0';
    jsonl_fails(text, PEN_ELIMIT, "line 1: more than");
    text[100] = '\0';
    jsonl_fails(text, PEN_ELIMIT, "line 1: nested deeper");
    memset(text, ',', 300);
    text[300] = '\0';
    csv_fails(text, PEN_ECORRUPT, "line 1: more than 256 columns");
    memset(text, 'p', 5000);
    text[5000] = '\0';
    csv_fails(text, PEN_ELIMIT, "is too long");
    free(text);
}

static void paths_outside_need_permission(void **state)
{
    (void)state;
    char text[PATH_MAX];
    csv_fails("../outside.jpg,1\n", PEN_EINVAL, "line 1: the path '../outside.jpg' has a '..'");
    csv_fails("n01/../n01/a.jpg,1\n", PEN_EINVAL, "has a '..'");
    snprintf(text, sizeof text, "%s,1\n", in_tree("outside.jpg"));
    csv_fails(text, PEN_EINVAL, "is absolute");
    snprintf(text, sizeof text, "%s,1\n../outside.jpg,2\n", in_tree("outside.jpg"));
    put_text("m/list.csv", text);
    pen_dataset_opts opts = tree_opts(false);
    opts.allow_outside = true;
    pen_dataset *ds = open_ok(in_tree("m/list.csv"), &opts);
    assert_int_equal(pen_dataset_count(ds), 2);
    assert_reads(ds, 0, "out");
    assert_reads(ds, 1, "out");
    for (int64_t i = 0; i < 2; i++)
        assert_int_equal(pen_dataset_find(ds, key_of(ds, i)), i);
    pen_dataset_unref(ds);
}

static void a_manifest_in_the_working_directory_needs_no_directory(void **state)
{
    (void)state;
    put_images();
    put_text("m/list.CSV", "n01/a.jpg,1\n");
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(in_tree("m")), 0);
    pen_dataset *ds = open_ok("list.CSV", NULL);
    assert_int_equal(fchdir(here), 0); /* the dataset does not depend on it */
    close(here);
    assert_reads(ds, 0, "a");
    pen_dataset_unref(ds);
}

static int take_any_row(void *ctx, const pen__row *row, pen_error *err)
{
    (void)err;
    uint32_t *sum = ctx; /* touch every byte: a sanitizer sees what is out of bounds */
    for (size_t i = 0; i < row->path_len; i++)
        *sum += (uint8_t)row->path[i];
    for (size_t i = 0; row->label && i < row->label_len; i++)
        *sum += (uint8_t)row->label[i];
    return 0;
}

static void mutated_manifests_end_in_rows_or_a_clean_error(void **state)
{
    (void)state;
    static const char csv[] = "path,label\r\n\"a \"\"b\"\".jpg\",1\nc.jpg, 2\n,\n\"x\ny\",\"z\"\n";
    static const char json[] = "{\"path\": \"a\\u00e9.jpg\", \"label\": 3}\n\n"
                               "{\"path\": \"b\", \"label\": \"x\", \"y\": [1, 2.5, {}]}\n";
    uint32_t sum = 0;
    int64_t live = pen__mem_live();
    pen__rng rng;
    for (int round = 0; round < 20000; round++) {
        pen__rng_init(&rng, 2, PEN__RNG_OP, round, 0, 0, 0);
        bool is_csv = round % 2;
        size_t n = is_csv ? sizeof csv - 1 : sizeof json - 1;
        char *copy = malloc(n); /* exactly as long, and without a NUL behind it */
        memcpy(copy, is_csv ? csv : json, n);
        for (uint32_t i = 0, m = pen__rng_below(&rng, 5); i < m; i++)
            copy[pen__rng_below(&rng, (uint32_t)n)] =
                "\",\r\n{}[]:\\ a\0\xff"[pen__rng_below(&rng, 14)];
        size_t len = round % 3 ? n : pen__rng_below(&rng, (uint32_t)n + 1);
        char *exact = malloc(len ? len : 1);
        memcpy(exact, copy, len);
        pen_error err = {0};
        int rc = is_csv ? pen__csv_parse(exact, len, take_any_row, &sum, &err)
                        : pen__jsonl_parse(exact, len, take_any_row, &sum, &err);
        assert_int_equal(err.code, rc);
        if (rc != 0)
            assert_non_null(strstr(err.text, "line "));
        free(exact);
        free(copy);
    }
    assert_int_equal(pen__mem_live(), live);
    assert_true(sum > 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, tree_setup, tree_teardown)
    const struct CMUnitTest tests[] = {
        CASE(csv_rows_are_samples_sorted_by_path),
        CASE(csv_takes_quotes_crlf_bom_blank_lines_and_headers),
        CASE(integers_stay_labels_and_words_become_sorted_classes),
        CASE(json_lines_give_the_same_as_csv),
        CASE(bad_rows_are_errors_that_name_the_line),
        CASE(deep_and_endless_lines_are_refused),
        CASE(paths_outside_need_permission),
        CASE(a_manifest_in_the_working_directory_needs_no_directory),
        CASE(mutated_manifests_end_in_rows_or_a_clean_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
