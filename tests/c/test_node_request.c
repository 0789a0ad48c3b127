/* test_node_request.c - requests to a storage node: what is understood, and what is not. */
#include "testing.h"

#include "remote/node_request.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HASH         "0123456789abcdef0123456789abcdef"

static void paths_lead_where_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        pen__route_kind kind;
        const char *name;
        int64_t id;
    } cases[] = {
        {"/healthz", PEN__ROUTE_HEALTH, "", 0},
        {"/metrics", PEN__ROUTE_METRICS, "", 0},
        {"/v1", PEN__ROUTE_ROOT, "", 0},
        {"/v1/data/photos", PEN__ROUTE_DATASET, "photos", 0},
        {"/v1/data/a.B_c-9/manifest", PEN__ROUTE_MANIFEST, "a.B_c-9", 0},
        {"/v1/data/a/samples", PEN__ROUTE_SAMPLES, "a", 0},
        {"/v1/data/a/samples/0", PEN__ROUTE_SAMPLE, "a", 0},
        {"/v1/data/a/samples/9223372036854775807", PEN__ROUTE_SAMPLE, "a", INT64_MAX},
        {"/v1/data/a/samples/12/cls", PEN__ROUTE_SAMPLE, "a", 12},
        {"/v1/data/a/samples/0/txt", PEN__ROUTE_SAMPLE, "a", 0},
        {"/v1/pipelines/" HASH, PEN__ROUTE_PIPELINE, "", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        pen__route route;
        assert_int_equal(pen__route_parse(cases[i].path, &route), cases[i].kind);
        assert_string_equal(route.name, cases[i].name);
        assert_int_equal(route.id, cases[i].id);
    }
    pen__route route;
    pen__route_parse("/v1/data/a/samples/7", &route);
    assert_int_equal(route.field, PEN_FIELD_IMAGE);
    pen__route_parse("/v1/data/a/samples/7/json", &route);
    assert_int_equal(route.field, PEN_FIELD_JSON);
}

static void other_paths_lead_nowhere(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "",
        "/",
        "healthz",
        "/healthz/",
        "/v1/",
        "/v2",
        "/v1/data",
        "/v1/data/",
        "/v1/data//manifest",
        "/v1/data/..",
        "/v1/data/./manifest",
        "/v1/data/../../etc/passwd",
        "/v1/data/a/../b",
        "/v1/data/a b",
        "/v1/data/a%2e",
        "/v1/data/a\xc3\xa9",
        "/v1/data/a/samples/",
        "/v1/data/a/samples/-1",
        "/v1/data/a/samples/+1",
        "/v1/data/a/samples/1x",
        "/v1/data/a/samples/ 1",
        "/v1/data/a/samples/0x10",
        "/v1/data/a/samples/9223372036854775808",
        "/v1/data/a/samples/99999999999999999999999",
        "/v1/data/a/samples/1/2",
        "/v1/data/a/samples/1/",
        "/v1/data/a/samples/1/image",
        "/v1/data/a/samples/1/JSON",
        "/v1/data/a/samples/1/json/",
        "/v1/data/a/samples/1/jso",
        "/v1/data/a/samples//json",
        "/v1/data/a/samples/json",
        "/v1/data/a/manifest/",
        "/v1/data/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "/v1/pipelines/",
        "/v1/pipelines/" HASH "0",
        "/v1/pipelines/0123456789ABCDEF0123456789ABCDEF",
        "/v1/pipelines/../../x",
    };
    for (size_t i = 0; i < COUNT(paths); i++) {
        pen__route route;
        if (pen__route_parse(paths[i], &route) != PEN__ROUTE_NONE)
            fail_msg("%s", paths[i]);
    }
}

static void ranges_are_within_the_sample(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t length;
        pen__range_kind kind;
        uint64_t from, to;
    } cases[] = {
        {"bytes=0-99", 1000, PEN__RANGE_PART, 0, 100},
        {"bytes=0-0", 1000, PEN__RANGE_PART, 0, 1},
        {"Bytes=0-1", 1000, PEN__RANGE_PART, 0, 2}, /* names of units are of any case */
        {"BYTES=-100", 1000, PEN__RANGE_PART, 900, 1000},
        {"bytes=999-", 1000, PEN__RANGE_PART, 999, 1000},
        {"bytes=10-5000", 1000, PEN__RANGE_PART, 10, 1000},
        {"bytes=0-18446744073709551615", 1000, PEN__RANGE_PART, 0, 1000},
        {"bytes=-100", 1000, PEN__RANGE_PART, 900, 1000},
        {"bytes=-5000", 1000, PEN__RANGE_PART, 0, 1000},
        {"bytes=1000-", 1000, PEN__RANGE_OUTSIDE, 0, 1000},
        {"bytes=1000-1001", 1000, PEN__RANGE_OUTSIDE, 0, 1000},
        {"bytes=-0", 1000, PEN__RANGE_OUTSIDE, 1000, 1000},
        {"bytes=0-", 0, PEN__RANGE_OUTSIDE, 0, 0},
        {"bytes=-1", 0, PEN__RANGE_OUTSIDE, 0, 0},
        {NULL, 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=-", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=5-1", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=0-1,4-5", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=0 - 1", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=--1", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes=0-18446744073709551616", 1000, PEN__RANGE_PART, 0, 1000},
        {"bytes=18446744073709551616-", 1000, PEN__RANGE_OUTSIDE, 0, 1000},
        {"bytes=99999999999999999999999-99999999999999999999999", 1000, PEN__RANGE_OUTSIDE, 0,
         1000},
        {"bytes=-99999999999999999999999", 1000, PEN__RANGE_PART, 0, 1000},
        {"bytes=00000000000000000000000000-0000000000000000000000005", 1000, PEN__RANGE_PART, 0, 6},
        {"bytes=18446744073709551616x-", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"lines=0-1", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"byte=0-1", 1000, PEN__RANGE_WHOLE, 0, 1000},
        {"bytes", 1000, PEN__RANGE_WHOLE, 0, 1000},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t from, to;
        pen__range_kind kind = pen__range_parse(cases[i].text, cases[i].length, &from, &to);
        if (kind != cases[i].kind || from != cases[i].from || to != cases[i].to)
            fail_msg("%s: %d, %llu to %llu", cases[i].text, kind, (unsigned long long)from,
                     (unsigned long long)to);
    }
}

static void lists_in_headers_are_searched(void **state)
{
    (void)state;
    assert_true(pen__etag_is_in("\"a\"", "\"a\""));
    assert_true(pen__etag_is_in("\"b\" , W/\"a\"", "\"a\""));
    assert_true(pen__etag_is_in("*", "\"a\""));
    assert_false(pen__etag_is_in(NULL, "\"a\""));
    assert_false(pen__etag_is_in("", "\"a\""));
    assert_false(pen__etag_is_in("a, \"ab\"", "\"a\""));
    assert_true(pen__accepts_zstd("zstd"));
    assert_true(pen__accepts_zstd("gzip, ZSTD;q=0.5"));
    assert_true(pen__accepts_zstd("zstd ; q=1"));
    assert_false(pen__accepts_zstd("zstd;q=0"));
    assert_false(pen__accepts_zstd("gzip,zstd; q=0.000"));
    assert_false(pen__accepts_zstd("zstdx, xzstd, *"));
    assert_false(pen__accepts_zstd(""));
    assert_false(pen__accepts_zstd(NULL));
}

static void only_the_token_opens(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "Bearer",
                                        "Bearer ",
                                        "Bearer secre",
                                        "Bearer secrett",
                                        "Bearer secretsecret",
                                        "Bearer  secret",
                                        "Basic secret",
                                        "secret",
                                        "Bearer Secret",
                                        "Bearer secret\t"};
    assert_true(pen__token_is_right("Bearer secret", "secret"));
    assert_true(pen__token_is_right("bearer secret", "secret"));
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(pen__token_is_right(wrong[i], "secret"));
    assert_false(pen__token_is_right(NULL, "secret"));
    assert_false(pen__token_is_right("Bearer ", ""));
    assert_false(pen__token_is_right("Bearer x", ""));
}

static pen__node_order order;

static int parse(const char *text, pen_error *err)
{
    return pen__node_order_parse(&order, text, strlen(text), err);
}

static void an_order_is_taken_apart(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"pipeline\": \"" HASH "\", \"seed\": \"18446744073709551615\", "
                           "\"hash\": \"" HASH "\", \"base\": 1000, \"later\": [1], "
                           "\"job\": \"18446744073709551614\", "
                           "\"items\": [[7, 4294967295, 65535, 3, 15], [0, 0, 0, 0, 0]]}",
                           NULL),
                     0);
    assert_string_equal(order.pipeline, HASH);
    assert_string_equal(order.dataset, HASH);
    assert_true(order.seed == UINT64_MAX);
    assert_int_equal(order.base, 1000);
    assert_true(order.job == UINT64_MAX - 1);
    assert_int_equal(order.n_items, 2);
    assert_int_equal(order.items[0].id, 7);
    assert_int_equal(order.items[0].epoch, UINT32_MAX);
    assert_int_equal(order.items[0].occurrence, 65535);
    assert_int_equal(order.items[0].max_cut, 3);
    assert_int_equal(order.items[0].forms, 15);
    assert_int_equal(order.items[0].field, PEN_FIELD_IMAGE);
    assert_int_equal(parse("{\"pipeline\":null,\"seed\":\"0\",\"items\":[[9,\"json\",113],"
                           "[8,\"cls\",0],[1099511627775,\"txt\",4294967295],[1,2,3,4,5]]}",
                           NULL),
                     0);
    assert_int_equal(order.items[0].field, PEN_FIELD_JSON);
    assert_int_equal(order.items[0].id, 9);
    assert_int_equal(order.items[0].forms, 113);
    assert_int_equal(order.items[0].max_cut, 0);
    assert_int_equal(order.items[1].field, PEN_FIELD_CLS);
    assert_int_equal(order.items[2].field, PEN_FIELD_TXT);
    assert_int_equal(order.items[3].field, PEN_FIELD_IMAGE);
    assert_int_equal(parse("{\"pipeline\":null,\"seed\":\"0\",\"items\":[[1,2,3,4,5]]}", NULL), 0);
    assert_int_equal(parse("{\"pipeline\":null,\"seed\":\"0\",\"items\":[[1,2,3,255,5]]}", NULL),
                     0);
    assert_string_equal(order.pipeline, "");
    assert_true(order.job == 0);
    assert_string_equal(order.dataset, "");
}

#define ORDER(items) "{\"pipeline\":null,\"seed\":\"0\",\"items\":" items "}"

static void what_is_no_order_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"", "no JSON"},
        {"[]", "JSON object"},
        {"null", "no JSON"},
        {ORDER("[[1,2,3,4,5]]") "x", "no JSON"},
        {"{\"seed\":\"0\",\"items\":[[1,2,3,4,5]]}", "pipeline"},
        {"{\"pipeline\":7,\"seed\":\"0\",\"items\":[[1,2,3,4,5]]}", "pipeline"},
        {"{\"pipeline\":\"../x\",\"seed\":\"0\",\"items\":[[1,2,3,4,5]]}", "pipeline"},
        {"{\"pipeline\":null,\"items\":[[1,2,3,4,5]]}", "seed"},
        {"{\"pipeline\":null,\"seed\":0,\"items\":[[1,2,3,4,5]]}", "seed"},
        {"{\"pipeline\":null,\"seed\":\"-1\",\"items\":[[1,2,3,4,5]]}", "seed"},
        {"{\"pipeline\":null,\"seed\":\"18446744073709551616\",\"items\":[[1,2,3,4,5]]}", "seed"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"hash\":\"x\",\"items\":[[1,2,3,4,5]]}", "hash"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"seed\":\"0\",\"items\":[[1,2,3,4,5]]}", "duplicate"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"base\":-1,\"items\":[[1,2,3,4,5]]}", "base"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"base\":\"1\",\"items\":[[1,2,3,4,5]]}", "base"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"job\":1,\"items\":[[1,2,3,4,5]]}", "job"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"job\":null,\"items\":[[1,2,3,4,5]]}", "job"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"job\":\"\",\"items\":[[1,2,3,4,5]]}", "job"},
        {"{\"pipeline\":null,\"seed\":\"0\",\"job\":\"18446744073709551616\",\"items\":[[1,2,3,4,5]"
         "]}",
         "job"},
        {"{\"pipeline\":null,\"seed\":\"0\"}", "items"},
        {ORDER("[]"), "items"},
        {ORDER("{}"), "items"},
        {ORDER("[[1,2,3,4]]"), "item 0"},
        {ORDER("[[1,2,3,4,5,6]]"), "item 0"},
        {ORDER("[[1,2,3,4,5],7]"), "item 1"},
        {ORDER("[[-1,2,3,4,5]]"), "item 0"},
        {ORDER("[[9223372036854775807,2,3,4,5]]"), "item 0"},
        {ORDER("[[1.5,2,3,4,5]]"), "item 0"},
        {ORDER("[[1,4294967296,3,4,5]]"), "item 0"},
        {ORDER("[[1,2,65536,4,5]]"), "item 0"},
        {ORDER("[[1,2,3,256,5]]"), "item 0"},
        {ORDER("[[1,2,3,4,4294967296]]"), "item 0"},
        {ORDER("[[\"1\",2,3,4,5]]"), "item 0"},
        {ORDER("[[99999999999999999999,2,3,4,5]]"), "no JSON"},
        {ORDER("[[1,\"json\"]]"), "item 0"},
        {ORDER("[[1,\"json\",1,1]]"), "item 0"},
        {ORDER("[[1,\"jso\",1]]"), "item 0"},
        {ORDER("[[1,\"JSON\",1]]"), "item 0"},
        {ORDER("[[1,\"image\",1]]"), "item 0"},
        {ORDER("[[1,\"\",1]]"), "item 0"},
        {ORDER("[[1,3,1]]"), "item 0"},
        {ORDER("[[-1,\"json\",1]]"), "item 0"},
        {ORDER("[[1,\"json\",-1]]"), "item 0"},
        {ORDER("[[1,\"json\",4294967296]]"), "item 0"},
        {ORDER("[[\"json\",1,1]]"), "item 0"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        pen_error err;
        if (parse(cases[i].text, &err) != PEN_EINVAL || !strstr(err.text, cases[i].word))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

static void what_is_said_of_an_order_can_be_printed(void **state)
{
    (void)state;
    static const char *const texts[] = {"\x1b[2J", "{\"\x07\": 1}", "[\x1b\x7f]", "\r\n{} \x1b]0;"};
    for (size_t i = 0; i < COUNT(texts); i++) {
        pen_error err;
        assert_int_equal(parse(texts[i], &err), PEN_EINVAL);
        for (const char *p = err.text; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7F)
                fail_msg("text %zu", i);
    }
}

/* Numbers are drawn for 40 bits of id and base together. */
static void ids_have_forty_bits(void **state)
{
    (void)state;
    pen_error err;
    assert_int_equal(parse(ORDER("[[1099511627775,0,0,0,1]]"), NULL), 0);
    assert_int_equal(parse(ORDER("[[1099511627776,0,0,0,1]]"), &err), PEN_EINVAL);
#define BASED(base, id) \
    "{\"pipeline\":null,\"seed\":\"0\",\"base\":" base ",\"items\":[[" id ",0,0,0,1]]}"
    assert_int_equal(parse(BASED("1099511627775", "0"), NULL), 0);
    assert_int_equal(parse(BASED("1099511627770", "5"), NULL), 0);
    assert_int_equal(parse(BASED("1099511627770", "6"), &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "item 0"));
    assert_int_equal(parse(BASED("1099511627776", "0"), &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "base"));
    assert_int_equal(parse(BASED("9223372036854775807", "1"), &err), PEN_EINVAL);
}

static void orders_have_a_limit(void **state)
{
    (void)state;
    static char text[PEN__NODE_MAX_BODY + 2];
    size_t n = (size_t)snprintf(text, sizeof text, "{\"pipeline\":null,\"seed\":\"0\",\"items\":[");
    for (int i = 0; i < PEN__NODE_MAX_ITEMS; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "[%d,0,0,0,1],", i);
    strcpy(text + n - 1, "]}");
    assert_int_equal(parse(text, NULL), 0);
    assert_int_equal(order.n_items, PEN__NODE_MAX_ITEMS);
    strcpy(text + n - 1, ",[1,0,0,0,1]]}");
    assert_int_equal(parse(text, NULL), PEN_ELIMIT);
    memset(text, '[', sizeof text);
    assert_int_equal(pen__node_order_parse(&order, text, 2000, NULL), PEN_EINVAL);
    assert_int_equal(pen__node_order_parse(&order, text, PEN__NODE_MAX_BODY + 1, NULL), PEN_ELIMIT);
}

/* A tree of a body's worth of values would take a thread milliseconds to make. */
static void bodies_of_too_many_values_are_not_read(void **state)
{
    (void)state;
    static const char *const pieces[] = {"0,", "[", "{\"a\":", "[],"};
    static char text[PEN__NODE_MAX_BODY];
    for (size_t i = 0; i < COUNT(pieces); i++) {
        pen_error err;
        const size_t len = strlen(pieces[i]);
        for (size_t n = 0; n + len <= sizeof text; n += len)
            memcpy(text + n, pieces[i], len);
        assert_int_equal(pen__node_order_parse(&order, text, sizeof text, &err), PEN_ELIMIT);
        assert_non_null(strstr(err.text, "more values"));
    }
}

static void truncated_and_flipped_orders_do_no_harm(void **state)
{
    (void)state;
    static const char text[] = ORDER("[[1,2,3,4,5],[6,7,8,9,10]]");
    for (size_t cut = 0; cut < sizeof text - 1; cut++) {
        char *part = malloc(cut ? cut : 1); /* its end is where a sanitizer looks */
        memcpy(part, text, cut);
        assert_int_equal(pen__node_order_parse(&order, part, cut, NULL), PEN_EINVAL);
        free(part);
    }
    for (size_t bit = 0; bit < (sizeof text - 1) * 8; bit++) {
        char changed[sizeof text];
        memcpy(changed, text, sizeof text);
        changed[bit / 8] = (char)(changed[bit / 8] ^ 1 << bit % 8);
        int rc = pen__node_order_parse(&order, changed, sizeof text - 1, NULL);
        assert_true(rc == 0 || rc == PEN_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_lead_where_they_say),
        cmocka_unit_test(other_paths_lead_nowhere),
        cmocka_unit_test(ranges_are_within_the_sample),
        cmocka_unit_test(lists_in_headers_are_searched),
        cmocka_unit_test(only_the_token_opens),
        cmocka_unit_test(an_order_is_taken_apart),
        cmocka_unit_test(what_is_no_order_is_refused),
        cmocka_unit_test(what_is_said_of_an_order_can_be_printed),
        cmocka_unit_test(ids_have_forty_bits),
        cmocka_unit_test(orders_have_a_limit),
        cmocka_unit_test(bodies_of_too_many_values_are_not_read),
        cmocka_unit_test(truncated_and_flipped_orders_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
