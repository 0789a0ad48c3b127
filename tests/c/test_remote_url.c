/* test_remote_url.c - addresses of remote datasets. */
#include "testing.h"

#include "remote/remote_url.h"

static pen__remote_url url;

static void parses(const char *text)
{
    pen_error err = {0};
    if (pen__remote_url_parse(&url, text, &err) != 0)
        fail_msg("'%s': %s", text, err.text);
}

static void fails(const char *text, const char *words)
{
    pen_error err = {0};
    assert_int_equal(pen__remote_url_parse(&url, text, &err), PEN_EINVAL);
    if (!strstr(err.text, words))
        fail_msg("'%s' for '%s' has no '%s'", err.text, text, words);
}

static void one_server_has_a_default_port(void **state)
{
    (void)state;
    parses("penstock://node7/photos");
    assert_false(url.is_tls);
    assert_string_equal(url.name, "photos");
    assert_int_equal(url.n_servers, 1);
    assert_int_equal(url.n_shards, 1);
    assert_string_equal(url.servers[0].label, "node7:7470");
    parses("penstocks://node7.example:443/a.b_c-D/");
    assert_true(url.is_tls);
    assert_string_equal(url.name, "a.b_c-D");
    assert_string_equal(url.servers[0].label, "node7.example:443");
    parses("penstock://[::1]:80/x");
    assert_string_equal(url.servers[0].label, "[::1]:80");
    parses("penstock://[fe80::7]/x");
    assert_string_equal(url.servers[0].label, "[fe80::7]:7470");
}

static void commas_join_replicas_and_a_plus_begins_a_shard(void **state)
{
    (void)state;
    parses("penstock://a,b:1+c,[::1]:2,d+e/x");
    static const char *const labels[] = {"a:7470", "b:1", "c:7470", "[::1]:2", "d:7470", "e:7470"};
    static const int shards[] = {0, 0, 1, 1, 1, 2};
    assert_int_equal(url.n_servers, 6);
    assert_int_equal(url.n_shards, 3);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(url.servers[i].label, labels[i]);
        assert_int_equal(url.servers[i].shard, shards[i]);
    }
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    fails("http://a/x", "no address");
    fails("penstock://a", "lacks the dataset's name");
    fails("penstock://a/", "lacks the dataset's name");
    fails("penstock:///x", "lacks a host");
    fails("penstock://a,/x", "lacks a host");
    fails("penstock://a++b/x", "lacks a host");
    fails("penstock://[]/x", "lacks a host");
    fails("penstock://[::1/x", "lacks a host");
    fails("penstock://[::1]x/x", "character");
    fails("penstock://a b/x", "character");
    fails("penstock://user@a/x", "character");
    fails("penstock://a:/x", "port");
    fails("penstock://a:0/x", "port");
    fails("penstock://a:65536/x", "port");
    fails("penstock://a:99999999999999999999/x", "port");
    fails("penstock://a:7x/x", "port");
    fails("penstock://a/x/y", "dataset name");
    fails("penstock://a/x?y", "dataset name");
    fails("penstock://a/\xc3\xa4", "dataset name");
}

static void limits_are_kept(void **state)
{
    (void)state;
    char text[8192];
    snprintf(text, sizeof text, "penstock://a/%064d", 0);
    parses(text);
    snprintf(text, sizeof text, "penstock://a/%065d", 0);
    fails(text, "dataset name");
    snprintf(text, sizeof text, "penstock://%0255d/x", 0);
    parses(text);
    snprintf(text, sizeof text, "penstock://%0256d/x", 0);
    fails(text, "too long");
    snprintf(text, sizeof text, "penstock://a");
    for (int i = 1; i < PEN__REMOTE_MAX_SERVERS; i++)
        strncat(text, i % 3 ? ",a" : "+a", sizeof text - strlen(text) - 1);
    size_t len = strlen(text);
    strncat(text, "/x", sizeof text - len - 1);
    parses(text);
    assert_int_equal(url.n_servers, PEN__REMOTE_MAX_SERVERS);
    snprintf(text + len, sizeof text - len, ",b/x");
    fails(text, "more than 64 servers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_server_has_a_default_port),
        cmocka_unit_test(commas_join_replicas_and_a_plus_begins_a_shard),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
