/* test_node.c - a storage node over real sockets on this machine, asked as strangers would. */
#include "testing.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <zstd.h>

#include <penstock/penstock.h>

#include "asking.h"
#include "base/mem.h"
#include "engine/parcel.h"
#include "openmetrics.h"
#include "pictures.h"
#include "remote/remote_http.h"
#include "remote/remote_part.h"
#include "telemetry/limits.h"

enum { N_PICTURES = 23 };

static char folder[64];

static int make_world(void **state)
{
    (void)state;
    make_folder(folder, N_PICTURES);
    return 0;
}

static int unmake_world(void **state)
{
    (void)state;
    remove_folder(folder);
    return 0;
}

static pen_node_opts plain(void)
{
    pen_node_opts opts;
    pen_node_opts_init(&opts);
    opts.listen = "127.0.0.1:0";
    opts.cpus = 2;
    return opts;
}

static pen_node *start(const pen_node_opts *opts)
{
    pen_node *node;
    pen_error err = {0};
    if (pen_node_create(&node, opts, &err) || pen_node_add(node, "data", folder, NULL, &err) ||
        pen_node_start(node, &err))
        fail_msg("%s", err.text);
    return node;
}

/* ---- what is there ---- */

static void health_and_what_is_served_are_told(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    size_t len;
    pen_dataset *ds;
    assert_int_equal(pen_dataset_open(&ds, folder, NULL, NULL), 0);
    assert_int_equal(get(port, "/healthz"), 200);
    assert_string_equal(body_of_answer(&len), "ok\n");
    assert_int_equal(get(port, "/v1"), 200);
    json_t *root = json_loads(body_of_answer(&len), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(root, "protocol")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "cpus")), 2);
    const json_t *one = json_array_get(json_object_get(root, "datasets"), 0);
    assert_string_equal(json_string_value(json_object_get(one, "hash")), pen_dataset_hash(ds));
    assert_int_equal(json_integer_value(json_object_get(one, "count")), N_PICTURES);
    assert_int_equal(json_integer_value(json_object_get(one, "bytes")), pen_dataset_bytes(ds));
    json_decref(root);
    assert_int_equal(get(port, "/v1/data/data"), 200);
    root = json_loads(body_of_answer(&len), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "kind")), "folder");
    assert_int_equal(json_array_size(json_object_get(root, "classes")), 2);
    json_decref(root);
    static om_text parsed;
    assert_int_equal(get(port, "/metrics"), 200);
    om_parse(body_of_answer(&len), &parsed);
    assert_int_equal(ask(port, "HEAD /v1", "", ""), 200);
    assert_string_equal(body_of_answer(&len), "");
    pen_dataset_unref(ds);
    pen_node_free(node);
    assert_int_equal(connect_to(port), -1);
}

static void samples_come_as_they_are_stored(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    static uint8_t file[1 << 20];
    char etag[64], header[128], path[64];
    pen_dataset *ds;
    assert_int_equal(pen_dataset_open(&ds, folder, NULL, NULL), 0);
    for (int id = 0; id < N_PICTURES; id++) {
        const int64_t n = pen_dataset_read(ds, id, file, sizeof file, NULL);
        size_t len;
        snprintf(path, sizeof path, "/v1/data/data/samples/%d", id);
        assert_int_equal(get(port, path), 200);
        const char *body = body_of_answer(&len);
        assert_int_equal(len, n);
        assert_memory_equal(body, file, len);
        assert_int_equal(sscanf(strstr(answer, "ETag: "), "ETag: %63s", etag), 1);
        assert_int_equal(strlen(etag), 34);
    }
    const int64_t n = pen_dataset_length(ds, N_PICTURES - 1);
    char line[80];
    size_t len;
    snprintf(line, sizeof line, "GET %s", path);
    assert_int_equal(ask(port, line, "Range: Bytes=2-5\r\n", ""), 206);
    assert_memory_equal(body_of_answer(&len), file + 2, 4);
    assert_int_equal(len, 4);
    snprintf(header, sizeof header, "Content-Range: bytes 2-5/%lld\r\n", (long long)n);
    assert_non_null(strstr(answer, header));
    assert_int_equal(ask(port, line, "Range: bytes=999999999-\r\n", ""), 416);
    assert_int_equal(ask(port, line, "Range: bytes=0-1,3-4\r\n", ""), 200);
    snprintf(header, sizeof header, "If-None-Match: %s\r\n", etag);
    assert_int_equal(ask(port, line, header, ""), 304);
    snprintf(header, sizeof header, "Range: bytes=0-0\r\nIf-Range: %s\r\n", etag);
    assert_int_equal(ask(port, line, header, ""), 206);
    assert_int_equal(ask(port, line, "Range: bytes=0-0\r\nIf-Range: \"x\"\r\n", ""), 200);
    snprintf(line, sizeof line, "HEAD %s", path);
    assert_int_equal(ask(port, line, "", ""), 200);
    snprintf(header, sizeof header, "Content-Length: %lld\r\n", (long long)n);
    assert_non_null(strstr(answer, header));
    assert_string_equal(body_of_answer(&len), "");
    pen_dataset_unref(ds);
    pen_node_free(node);
}

/* The page's records are the dataset's. */
static void check_page(const uint8_t *page, size_t len, const pen_dataset *ds, bool with_headers)
{
    const uint8_t *at = page + 24;
    assert_memory_equal(page, "PENM\1\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_int_equal(le(page + 16, 4), N_PICTURES);
    assert_int_equal(le(page + 20, 4), with_headers);
    assert_int_equal(le(page + len - 4, 4), pen__crc32c(0, page, len - 4));
    for (int64_t id = 0; id < N_PICTURES; id++) {
        char key[PEN_KEY_MAX];
        const int64_t n = pen_dataset_key(ds, id, key, sizeof key);
        assert_int_equal(le(at, 8), pen_dataset_length(ds, id));
        assert_int_equal((int64_t)le(at + 8, 8), pen_dataset_label(ds, id));
        assert_int_equal(le(at + 16, 2), n);
        at += 18;
        if (with_headers) {
            static uint8_t file[1 << 20];
            pen_image_info info;
            const int64_t got = pen_dataset_read(ds, id, file, sizeof file, NULL);
            assert_int_equal(pen_image_probe(file, (size_t)got, &info, NULL), 0);
            assert_int_equal(at[0], info.format);
            assert_int_equal(at[5], info.sampling_h);
            assert_int_equal(at[7], 0);
            assert_int_equal(le(at + 8, 2), info.width);
            assert_int_equal(le(at + 10, 2), info.height);
            at += 12;
        }
        assert_memory_equal(at, key, (size_t)n);
        at += n;
    }
    assert_ptr_equal(at + 4, page + len);
}

static void the_manifest_comes_in_pages(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    pen_dataset *ds;
    size_t len;
    assert_int_equal(pen_dataset_open(&ds, folder, NULL, NULL), 0);
    assert_int_equal(get(port, "/v1/data/data/manifest?page=0&headers=2"), 200);
    static const uint8_t unknown[12] = {0};
    assert_memory_equal(body_of_answer(&len) + 24 + 18, unknown, sizeof unknown);
    for (int round = 0; round < 2; round++) { /* the second time, headers are known */
        assert_int_equal(get(port, "/v1/data/data/manifest?page=0&headers=1"), 200);
        const char *body = body_of_answer(&len);
        check_page((const uint8_t *)body, len, ds, true);
    }
    assert_int_equal(get(port, "/v1/data/data/manifest?page=0&headers=2"), 200);
    const char *body = body_of_answer(&len);
    check_page((const uint8_t *)body, len, ds, true);
    assert_int_equal(get(port, "/v1/data/data/manifest?page=0"), 200);
    body = body_of_answer(&len);
    check_page((const uint8_t *)body, len, ds, false);
    assert_int_equal(
        ask(port, "GET /v1/data/data/manifest?page=0", "Accept-Encoding: gzip, zstd\r\n", ""), 200);
    assert_non_null(strstr(answer, "Content-Encoding: zstd"));
    static uint8_t page[1 << 16];
    body = body_of_answer(&len);
    len = ZSTD_decompress(page, sizeof page, body, len);
    assert_false(ZSTD_isError(len));
    check_page(page, len, ds, false);
    assert_int_equal(get(port, "/v1/data/data/manifest?page=1"), 404);
    assert_int_equal(get(port, "/v1/data/data/manifest?page=x"), 400);
    assert_int_equal(get(port, "/v1/data/data/manifest?page=-1"), 400);
    assert_int_equal(get(port, "/v1/data/data/manifest?page=0&headers=3"), 400);
    pen_dataset_unref(ds);
    pen_node_free(node);
}

/* ---- frames ---- */

static pen_pipeline *training_line(void)
{
    static const float half[3] = {0.5F, 0.5F, 0.5F};
    const pen_op ops[] = {pen_op_random_resized_crop(24, 24), pen_op_hflip(0.5F),
                          pen_op_to_tensor(), pen_op_normalize(half, half, 3)};
    pen_pipeline *pipe;
    assert_int_equal(pen_pipeline_create(&pipe, ops, 4, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL), 0);
    return pipe;
}

/* All pictures, in whatever form. */
static const char *all_items(void)
{
    static char items[2048];
    snprintf(items, sizeof items, "[");
    for (int i = 0; i < N_PICTURES; i++)
        snprintf(items + strlen(items), sizeof items - strlen(items), "%s[%d,%d,0,3,63]",
                 i ? "," : "", i, i);
    strcat(items, "]");
    return items;
}

static void raw_parcels_hold_the_files(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    sent_frame frames[4];
    static uint8_t file[1 << 20];
    pen_dataset *ds;
    assert_int_equal(pen_dataset_open(&ds, folder, NULL, NULL), 0);
    assert_int_equal(
        post(port_of(node), NULL, "[[3,0,0,0,1],[0,0,0,0,1],[99,0,0,0,1],[3,1,0,0,1]]"), 200);
    assert_int_equal(read_frames(frames, 4), 4);
    static const int64_t ids[4] = {3, 0, 99, 3};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(frames[i].id, ids[i]);
        if (i == 2)
            continue;
        pen__parcel parcel;
        assert_int_equal(frames[i].status, 0);
        assert_int_equal(pen__parcel_read(&parcel, frames[i].body, frames[i].len, NULL), 0);
        assert_int_equal(parcel.form, PEN__FORM_RAW);
        assert_int_equal(parcel.len, pen_dataset_read(ds, ids[i], file, sizeof file, NULL));
        assert_memory_equal(parcel.data, file, parcel.len);
    }
    assert_int_equal(frames[2].status, PEN_EINVAL);
    assert_memory_equal(frames[2].body, "no sample 99", 12);
    pen_dataset_unref(ds);
    pen_node_free(node);
}

static void pipelines_are_put_and_parcels_packed(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    pen_pipeline *pipe = training_line();
    const char *hash = pen_pipeline_hash(pipe), *text = pen_pipeline_describe(pipe);
    assert_int_equal(post(port, hash, "[[0,0,0,0,1]]"), 404); /* not known yet */
    assert_int_equal(put(port, hash, text), 201);
    assert_int_equal(put(port, hash, text), 200);
    assert_int_equal(put(port, hash, "{}"), 422);
    assert_int_equal(put(port, "0123456789abcdef0123456789abcdef", text), 422);
    assert_int_equal(post(port, hash, all_items()), 200);
    sent_frame frames[N_PICTURES];
    assert_int_equal(read_frames(frames, N_PICTURES), N_PICTURES);
    int n_pixels = 0;
    for (int i = 0; i < N_PICTURES; i++) {
        pen__parcel parcel;
        assert_int_equal(frames[i].status, 0);
        assert_int_equal(pen__parcel_read(&parcel, frames[i].body, frames[i].len, NULL), 0);
        n_pixels += parcel.cut > 0;
    }
    assert_true(n_pixels > 0); /* 24 x 24 pixels are less than most of the files */
    pen_pipeline_unref(pipe);
    pen_node_free(node);
}

/* Is that the checksum its head tells? */
static void says_it_was_asked(const char *target, const char *body)
{
    char line[64];
    const uint32_t sum = pen__crc32c(0, target, strlen(target));
    snprintf(line, sizeof line, "\r\nPenstock-Asked: %08x\r\n",
             pen__crc32c(sum, body, strlen(body)));
    const char *at = strstr(answer, line);
    assert_non_null(at);
    assert_true(at < strstr(answer, "\r\n\r\n"));
}

static void every_answer_says_what_it_was_asked(void **state)
{
    (void)state;
    static const char *const targets[] = {"/v1",
                                          "/healthz",
                                          "/metrics",
                                          "/v1/data/data",
                                          "/nowhere",
                                          "/v1/data/data/manifest?page=0&headers=1",
                                          "/v1/data/data/manifest?page=7",
                                          "/v1/data/d%61ta",
                                          "/v1/data/data/samples/1"};
    static char long_body[70000];
    pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        get(port, targets[i]);
        says_it_was_asked(targets[i], "");
    }
    memset(long_body, ' ', sizeof long_body - 1);
    const char *const bodies[] = {"{\"pipeline\":null,\"seed\":\"1\",\"items\":[[0,0,0,0,1]]}", "{",
                                  long_body};
    static const int statuses[] = {200, 400, 413};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        assert_int_equal(ask(port, "POST /v1/data/data/samples", "", bodies[i]), statuses[i]);
        says_it_was_asked("/v1/data/data/samples", bodies[i]);
        assert_int_equal(ask(port, "POST /v1/data/other/samples?a=b", "", bodies[i]),
                         i == 2 ? 413 : 404);
        says_it_was_asked("/v1/data/other/samples?a=b", bodies[i]);
    }
    assert_int_equal(put(port, "0123456789abcdef0123456789abcdef", "{}"), 422);
    says_it_was_asked("/v1/pipelines/0123456789abcdef0123456789abcdef", "{}");
    pen_node_free(node);
}

/* What the head of the answer says that the job may use. */
static double told_cores(void)
{
    const char *at = strstr(answer, "Penstock-Cores: ");
    assert_non_null(at);
    assert_true(at < strstr(answer, "\r\n\r\n"));
    return atof(at + 16);
}

static void jobs_are_told_what_they_may_use_and_all_are_served(void **state)
{
    (void)state;
    enum { N_JOBS = 6 };
    pen_node_opts opts = plain();
    opts.cpus = 1;
    pen_node *node = start(&opts);
    const int port = port_of(node);
    pen_pipeline *pipe = training_line();
    const char *hash = pen_pipeline_hash(pipe);
    assert_int_equal(put(port, hash, pen_pipeline_describe(pipe)), 201);
    assert_int_equal(post(port, NULL, "[[0,0,0,0,1]]"), 200);
    assert_true(fabs(told_cores() - fmin(1, pen__limit_quota())) < 0.0011); /* nobody else asks */
    int fds[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) {
        char job[8];
        snprintf(job, sizeof job, "%d", 10 + i);
        fds[i] = say_post(port, job, i % 2 ? hash : NULL, all_items());
    }
    for (int i = 0; i < N_JOBS; i++) {
        sent_frame frames[N_PICTURES];
        assert_int_equal(listen_to(fds[i]), 200);
        assert_true(told_cores() > 0 && told_cores() <= 1);
        assert_int_equal(read_frames(frames, N_PICTURES), N_PICTURES);
        for (int k = 0; k < N_PICTURES; k++)
            assert_int_equal(frames[k].status, 0);
    }
    static om_text om;
    size_t len;
    assert_int_equal(get(port, "/metrics"), 200);
    om_parse(body_of_answer(&len), &om);
    const double fair = om_value(&om, "penstock_node_turn_cpu_seconds_total{turn=\"fair\"}"),
                 worth = om_value(&om, "penstock_node_turn_cpu_seconds_total{turn=\"worth\"}");
    assert_true(fair > 0 && worth > 0);
    assert_true(om_value(&om, "penstock_node_active_jobs") <= N_JOBS + 1);
    pen_pipeline_unref(pipe);
    pen_node_free(node);
}

/* However many threads it was told to run; a quota of a cgroup would do the same. */
static void nobody_is_promised_more_than_the_system_gives(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    pen_node_opts opts = plain();
    opts.cpus = 4;
    pen_node *node = start(&opts);
    sched_setaffinity(0, sizeof all, &all);
    assert_int_equal(post(port_of(node), NULL, "[[0,0,0,0,1]]"), 200);
    assert_true(told_cores() > 0 && told_cores() <= 1);
    pen_node_free(node);
}

static void wrong_orders_are_refused_as_a_whole(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    static char body[70000];
    assert_int_equal(ask(port, "POST /v1/data/data/samples", "", ""), 400);
    assert_int_equal(ask(port, "POST /v1/data/data/samples", "", "{"), 400);
    assert_int_equal(ask(port, "POST /v1/data/other/samples", "", "{}"), 404);
    assert_int_equal(post(port, "0123456789abcdef0123456789abcdef", "[[0,0,0,0,1]]"), 404);
    assert_int_equal(ask(port, "POST /v1/data/data/samples", "",
                         "{\"pipeline\":null,\"seed\":\"0\",\"hash\":"
                         "\"0123456789abcdef0123456789abcdef\",\"items\":[[0,0,0,0,1]]}"),
                     409);
    memset(body, ' ', 66000);
    assert_int_equal(ask(port, "POST /v1/data/data/samples", "", body), 413);
    assert_int_equal(ask(port, "GET /v1/data/data/samples", "", ""), 405);
    assert_non_null(strstr(answer, "Allow: POST"));
    assert_int_equal(ask(port, "POST /v1", "", ""), 405);
    assert_int_equal(ask(port, "DELETE /v1/data/data/samples/0", "", ""), 405);
    assert_int_equal(get(port, "/v1/data/data/samples/23"), 404);
    assert_int_equal(get(port, "/v1/data/other"), 404);
    assert_int_equal(get(port, "/v1/data/../../etc/passwd"), 404);
    assert_int_equal(get(port, "/v1/data/%2e%2e/%2e%2e/etc/passwd"), 404);
    assert_int_equal(get(port, "/v1/data/data%00/manifest"), 404);
    assert_int_equal(get(port, "/etc/passwd"), 404);
    assert_int_equal(get(port, "/healthz"), 200);
    pen_node_free(node);
}

/* ---- who may ask, and how much ---- */

static void a_token_is_wanted_where_there_is_one(void **state)
{
    (void)state;
    pen_node_opts opts = plain();
    opts.token = "open-sesame";
    pen_node *node = start(&opts);
    const int port = port_of(node);
    assert_int_equal(get(port, "/v1"), 401);
    assert_non_null(strstr(answer, "WWW-Authenticate: Bearer"));
    assert_int_equal(get(port, "/metrics"), 401);
    assert_int_equal(get(port, "/nothing"), 401);
    assert_int_equal(get(port, "/healthz"), 200);
    assert_int_equal(ask(port, "GET /v1", "Authorization: Bearer open-sesam\r\n", ""), 401);
    assert_int_equal(ask(port, "GET /v1", "Authorization: Bearer open-sesame\r\n", ""), 200);
    pen_node_free(node);
}

static void strange_hosts_are_refused_on_loopback(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    static const char request[] =
        "GET /v1 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    int fd = connect_to(port_of(node));
    send(fd, request, sizeof request - 1, MSG_NOSIGNAL);
    assert_int_equal(listen_to(fd), 403);
    pen_node_free(node);
}

static void what_makes_no_sense_is_refused_at_once(void **state)
{
    (void)state;
    pen_node *node = NULL;
    pen_error err;
    pen_node_opts opts = plain();
    opts.listen = "0.0.0.0:0";
    assert_int_equal(pen_node_create(&node, &opts, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "token"));
    opts.listen = "[::]:0";
    assert_int_equal(pen_node_create(&node, &opts, &err), PEN_EINVAL);
    opts.listen = "storage.example:7470";
    assert_int_equal(pen_node_create(&node, &opts, &err), PEN_EINVAL);
    opts = plain();
    opts.tls_cert = "x";
    assert_int_equal(pen_node_create(&node, &opts, &err), PEN_EINVAL);
    opts = plain();
    opts.token = "two words";
    assert_int_equal(pen_node_create(&node, &opts, &err), PEN_EINVAL);
    opts = plain();
    opts.max_requests = 0;
    assert_int_equal(pen_node_create(&node, &opts, &err), PEN_EINVAL);
    opts = plain();
    assert_int_equal(pen_node_create(&node, &opts, &err), 0);
    assert_int_equal(pen_node_start(node, &err), PEN_EINVAL); /* nothing to serve */
    assert_int_equal(pen_node_add(node, "../x", folder, NULL, &err), PEN_EINVAL);
    assert_int_equal(pen_node_add(node, "x", "/nowhere", NULL, &err), PEN_ENOTFOUND);
    assert_int_equal(pen_node_add(node, "x", folder, NULL, &err), 0);
    assert_int_equal(pen_node_add(node, "x", folder, NULL, &err), PEN_EINVAL);
    assert_non_null(strstr(err.text, "two datasets"));
    pen_node_free(node);
    opts.tls_cert = "no certificate";
    opts.tls_key = "no key";
    assert_int_equal(pen_node_create(&node, &opts, &err), 0);
    assert_int_equal(pen_node_add(node, NULL, folder, NULL, &err), 0);
    assert_int_equal(pen_node_start(node, &err), PEN_EINVAL);
    assert_false(pen_node_is_running(node));
    pen_node_free(node);
}

/* The other node would be waited for when this one starts, and when it ends. */
static void what_another_node_serves_is_refused_and_not_asked_for(void **state)
{
    (void)state;
    static const char *const schemes[] = {"penstock", "penstocks"};
    const pen_node_opts opts = plain();
    pen_node *node;
    pen_error err = {0};
    char spec[64];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    const int other = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); /* never answers */
    assert_int_equal(bind(other, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(other, 1), 0);
    assert_int_equal(getsockname(other, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(pen_node_create(&node, &opts, &err), 0);
    for (int i = 0; i < 2; i++) {
        snprintf(spec, sizeof spec, "%s://127.0.0.1:%d/data", schemes[i], ntohs(at.sin_port));
        assert_int_equal(pen_node_add(node, NULL, spec, NULL, &err), PEN_EINVAL);
        assert_non_null(strstr(err.text, spec));
        assert_non_null(strstr(err.text, "what another node serves"));
    }
    assert_int_equal(accept(other, NULL, NULL), -1); /* nobody came */
    assert_int_equal(pen_node_add(node, NULL, folder, NULL, &err), 0);
    pen_node_free(node);
    close(other);
}

/* A node of one row, whose class has a name of so many letters. */
static int add_class(pen_node **node, size_t name_len, pen_error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/one.csv", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "path,label\nclass0/0000.jpg,");
    for (size_t i = 0; i < name_len; i++)
        fputc('x', file);
    fputc('\n', file);
    assert_int_equal(fclose(file), 0);
    const pen_node_opts opts = plain();
    assert_int_equal(pen_node_create(node, &opts, NULL), 0);
    const int rc = pen_node_add(*node, "long", path, NULL, err);
    remove(path);
    return rc;
}

static void a_description_that_no_client_would_take_is_refused_at_the_start(void **state)
{
    (void)state;
    pen_node *node;
    pen_error err;
    size_t len;
    assert_int_equal(add_class(&node, 1, &err), 0);
    assert_int_equal(pen_node_start(node, &err), 0);
    assert_int_equal(get(port_of(node), "/v1/data/long"), 200);
    body_of_answer(&len);
    pen_node_free(node);
    const size_t most = PEN__PART_MAX_DESCRIPTION - (len - 1);
    assert_int_equal(add_class(&node, most, &err), 0);
    pen_node_free(node);
    assert_int_equal(add_class(&node, most + 1, &err), PEN_ELIMIT);
    assert_non_null(strstr(err.text, "'long'"));
    assert_non_null(strstr(err.text, " 16777217 bytes"));
    assert_non_null(strstr(err.text, " 16777216 at most"));
    pen_node_free(node);
}

static void too_many_requests_a_second_are_told_so(void **state)
{
    (void)state;
    pen_node_opts opts = plain();
    opts.requests_per_s = 0.2; /* two at once */
    pen_node *node = start(&opts);
    assert_int_equal(get(port_of(node), "/v1"), 200);
    assert_int_equal(get(port_of(node), "/v1"), 200);
    assert_int_equal(get(port_of(node), "/v1"), 429);
    assert_non_null(strstr(answer, "Retry-After: 1"));
    for (int i = 0; i < 5; i++) /* it is alive all the same */
        assert_int_equal(get(port_of(node), "/healthz"), 200);
    pen_node_free(node);
}

/* Waiting for a thread and being packed: its frame comes before anybody takes it for a stall. */
static void a_node_speaks_before_its_clients_give_up(void **state)
{
    (void)state;
    pen_node_opts opts;
    pen__http http;
    pen_node_opts_init(&opts);
    unsetenv("PENSTOCK_REMOTE_TIMEOUT");
    assert_int_equal(pen__http_init(&http, NULL), 0);
    assert_true(2.2 * opts.item_s * 1e9 < (double)http.stall_ns);
    pen__http_fini(&http);
}

static double metric(int port, const char *name)
{
    char line[80];
    size_t len;
    assert_int_equal(get(port, "/metrics"), 200);
    snprintf(line, sizeof line, "\npenstock_node_%s ", name);
    const char *at = strstr(body_of_answer(&len), line);
    assert_non_null(at);
    return atof(at + strlen(line));
}

static void a_client_that_has_used_its_cpu_time_gets_files(void **state)
{
    (void)state;
    pen_node_opts opts = plain();
    opts.cpus_per_client = 1e-9;
    pen_node *node = start(&opts);
    const int port = port_of(node);
    pen_pipeline *pipe = training_line();
    assert_int_equal(put(port, pen_pipeline_hash(pipe), pen_pipeline_describe(pipe)), 201);
    sent_frame frames[3];
    assert_int_equal(post(port, pen_pipeline_hash(pipe), "[[0,0,0,3,63]]"), 200);
    assert_int_equal(
        post(port, pen_pipeline_hash(pipe), "[[0,0,0,3,63],[1,0,0,3,63],[2,0,0,3,63]]"), 200);
    assert_int_equal(read_frames(frames, 3), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(frames[i].body[1], PEN__FORM_RAW);
    pen_pipeline_unref(pipe);
    pen_node_free(node);
}

static void a_client_that_has_used_its_cpu_time_is_told_instead_of_getting_blocks(void **state)
{
    (void)state;
    static const char *const blocks[] = {
        "/v1/data/data/samples/1",
        "/v1/data/data/manifest?page=0",
        "/v1/data/data/manifest?page=0&headers=1",
    };
    pen_node_opts opts = plain();
    opts.cpus_per_client = 1e-9; /* what the first one takes comes back within months */
    pen_node *node = start(&opts);
    const int port = port_of(node);
    assert_int_equal(get(port, "/v1/data/data/samples/0"), 200);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(get(port, blocks[i]), 503);
        assert_non_null(strstr(answer, "Retry-After: 1"));
        assert_non_null(strstr(answer, "processor time"));
    }
    assert_int_equal(get(port, "/v1/data/data"), 200);
    assert_int_equal(get(port, "/v1/data/data/samples/99"), 404);
    assert_int_equal(post(port, NULL, "[[0,0,0,0,1]]"), 200);
    pen_node_free(node);
}

static void reading_orders_and_pipelines_is_charged(void **state)
{
    (void)state;
    const pen_node_opts opts = plain();
    pen_node *node = start(&opts);
    const int port = port_of(node);
    assert_true(metric(port, "parse_cpu_seconds_total") == 0);
    assert_int_equal(post(port, NULL, "[[0,0,0,0]]"), 400);
    const double after_order = metric(port, "parse_cpu_seconds_total");
    assert_true(after_order > 0);
    assert_int_equal(put(port, "0123456789abcdef0123456789abcdef", "{\"numerics\":1}"), 422);
    assert_true(metric(port, "parse_cpu_seconds_total") > after_order);
    pen_node_free(node);
}

/* What is read takes longer than what it may use is refilled. */
static void a_client_that_sends_much_to_read_is_told_to_come_later(void **state)
{
    (void)state;
    enum { LEN = 60000, MOST = 100000 };
    static char spaces[LEN + 64];
    memset(spaces, ' ', LEN);
    pen_node_opts opts = plain();
    opts.cpus_per_client = 1e-9;
    pen_node *node = start(&opts);
    const int port = port_of(node);
    int status = 422, n = 0;
    for (; status == 422 && n < MOST; n++)
        status = put(port, "0123456789abcdef0123456789abcdef", spaces);
    assert_int_equal(status, 503);
    assert_true(n > 1);
    snprintf(spaces + LEN, sizeof spaces - LEN,
             "{\"pipeline\": null, \"seed\": \"7\", \"items\": [[0,0,0,0,1]]}");
    for (n = 0, status = 200; status == 200 && n < MOST; n++)
        status = ask(port, "POST /v1/data/data/samples", "", spaces);
    assert_int_equal(status, 503);
    assert_non_null(strstr(answer, "Retry-After: 1"));
    assert_non_null(strstr(answer, "processor time"));
    assert_int_equal(get(port, "/healthz"), 200);
    pen_node_free(node);
}

/* One that sends its request letter by letter, one that never reads, and many that are idle. */
static void slow_and_idle_clients_are_cut_off_and_hold_up_nobody(void **state)
{
    (void)state;
    pen_node_opts opts = plain();
    opts.idle_s = opts.slow_s = 2;
    opts.buffer_bytes = 1 << 14;
    pen_node *node = start(&opts);
    const int port = port_of(node);
    int idle[200];
    for (int i = 0; i < 200; i++)
        assert_true((idle[i] = connect_to(port)) >= 0);
    assert_int_equal(get(port, "/healthz"), 200);
    int slow = connect_to(port);
    static const char letters[] = "GET /healthz HTTP/1.1\r\nX: ";
    for (size_t i = 0;; i++) { /* until the node has had enough */
        if (send(slow, &letters[i % (sizeof letters - 1)], 1, MSG_NOSIGNAL) < 0)
            break;
        usleep(20000);
        assert_int_equal(get(port, "/healthz"), 200);
    }
    close(slow);
    for (int i = 0; i < 200; i++)
        assert_true(listen_to(idle[i]) == 0);
    static om_text parsed;
    size_t len;
    assert_int_equal(get(port, "/metrics"), 200);
    om_parse(body_of_answer(&len), &parsed);
    const char *cut = strstr(answer, "penstock_node_cut_connections_total ");
    assert_non_null(cut);
    assert_true(atoi(strchr(cut, ' ')) >= 201);
    pen_node_free(node);
}

/* Before, while and after threads are at their samples, with hardly any memory for these. */
static void clients_that_hang_up_leave_nothing_behind(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    pen_node_opts opts = plain();
    opts.memory_bytes = 1 << 20;
    opts.buffer_bytes = 1 << 12;
    pen_node *node = start(&opts);
    const int port = port_of(node);
    pen_pipeline *pipe = training_line();
    assert_int_equal(put(port, pen_pipeline_hash(pipe), pen_pipeline_describe(pipe)), 201);
    char body[1024], bytes[256];
    int n = snprintf(body, sizeof body, "{\"pipeline\": \"%s\", \"seed\": \"7\", \"items\": [",
                     pen_pipeline_hash(pipe));
    for (int i = 0; i < N_PICTURES; i++)
        n += snprintf(body + n, sizeof body - (size_t)n, "%s[%d,0,0,3,63]", i ? "," : "", i);
    snprintf(body + n, sizeof body - (size_t)n, "]}");
    for (int i = 0; i < 300; i++) {
        const bool is_post = i % 3 > 0;
        int fd = say(port, is_post ? "POST /v1/data/data/samples" : "GET /v1/data/data/samples/1",
                     "", is_post ? body : "");
        if (i % 4 == 1)
            usleep(1000);
        if (i % 5 == 2)
            recv(fd, bytes, sizeof bytes, 0);
        close(fd);
    }
    /* that for the metrics is one */
    for (int i = 0; metric(port, "open_requests") > 1 || metric(port, "buffered_bytes") > 0; i++) {
        assert_true(i < 1000);
        usleep(20000);
    }
    assert_true(metric(port, "waiting_items") == 0);
    pen_pipeline_unref(pipe);
    pen_node_free(node);
    assert_int_equal(pen__mem_live(), live);
}

static void wait_until_it_holds(int port, int64_t bytes)
{
    for (int i = 0; metric(port, "buffered_bytes") != (double)bytes; i++) {
        assert_true(i < 1000);
        usleep(10000);
    }
}

/* Of a client, no more than a sixteenth of the memory: here that is one body of full length. */
static void requests_that_do_not_end_hold_little_memory(void **state)
{
    (void)state;
    enum { LEN = 64000 };
    static char body[LEN + 1];
    static const char head[] =
        "POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nConnection: close\r\n"
        "Content-Length: 64000\r\n\r\n";
    memset(body, 'x', LEN);
    const int64_t live = pen__mem_live();
    pen_node_opts opts = plain();
    opts.memory_bytes = 1 << 20;
    pen_node *node = start(&opts);
    const int port = port_of(node);
    for (int round = 0; round < 2; round++) {
        int fd = connect_to(port);
        send(fd, head, sizeof head - 1, MSG_NOSIGNAL);
        send(fd, body, LEN - 1, MSG_NOSIGNAL);
        wait_until_it_holds(port, 64 << 10);
        assert_int_equal(ask(port, "POST /v1/data/data/samples", "", body), 503);
        assert_non_null(strstr(answer, "Retry-After: 1"));
        assert_non_null(strstr(answer, "no memory for the request"));
        assert_int_equal(put(port, "0123456789abcdef0123456789abcdef", "{}"), 503);
        if (round == 0) {
            send(fd, body, 1, MSG_NOSIGNAL);
            assert_int_equal(listen_to(fd), 400);
        } else {
            close(fd);
        }
        wait_until_it_holds(port, 0);
        assert_int_equal(post(port, NULL, "[[0,0,0,0,1]]"), 200);
    }
    pen_node_free(node);
    assert_int_equal(pen__mem_live(), live);
}

/* ---- its end, and its beginning without memory ---- */

static void *keep_asking(void *ctx)
{
    static const char request[] =
        "POST /v1/data/data/samples HTTP/1.1\r\nHost: localhost\r\nContent-Length: 62\r\n\r\n"
        "{\"pipeline\":null,\"seed\":\"0\",\"items\":[[0,0,0,0,1],[1,0,0,0,1]]}";
    char bytes[4096];
    for (int fd; (fd = connect_to(*(int *)ctx)) >= 0; close(fd))
        for (int i = 0; i < 50; i++)
            if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0 ||
                recv(fd, bytes, sizeof bytes, 0) <= 0)
                break;
    return NULL;
}

static void it_ends_in_the_middle_of_requests(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    for (int round = 0; round < 5; round++) {
        const pen_node_opts opts = plain();
        pen_node *node = start(&opts);
        int port = port_of(node);
        pthread_t clients[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&clients[i], NULL, keep_asking, &port);
        usleep(30000);
        pen_node_stop(node, round % 2 ? 0.05 : 0);
        assert_false(pen_node_is_running(node));
        for (int i = 0; i < 4; i++)
            pthread_join(clients[i], NULL);
        pen_node_free(node);
    }
    assert_int_equal(pen__mem_live(), live);
}

/* With all the time there is, it ends when the last client has had its answer or was cut off. */
static void patience_without_end_has_one(void **state)
{
    (void)state;
    static const char half[] = "POST /v1/data/data/samples HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 62\r\n\r\n{";
    pen_node_opts opts = plain();
    opts.idle_s = 0.3;
    pen_node *node = start(&opts);
    const int fd = connect_to(port_of(node));
    assert_int_equal(send(fd, half, sizeof half - 1, MSG_NOSIGNAL), sizeof half - 1);
    pen_node_stop(node, INFINITY);
    assert_false(pen_node_is_running(node));
    close(fd);
    pen_node_free(node);
}

static void garbage_does_no_harm(void **state)
{
    (void)state;
    pen_node_opts opts = plain();
    opts.idle_s = 2; /* half a request is waited for */
    pen_node *node = start(&opts);
    const int port = port_of(node);
    static char junk[100000];
    uint32_t x = 1;
    static const char *const lines[] = {
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET /v1 HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", /* a TLS hello */
        "POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nContent-Length: -5\r\n\r\n",
        "POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nContent-Length: 99999999999\r\n\r\nx",
        ("POST /v1/data/data/samples HTTP/1.1\r\nHost: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\nzz\r\n"),
        "GET /%00%ff%zz HTTP/1.1\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        int fd = connect_to(port);
        send(fd, lines[i], strlen(lines[i]), MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        listen_to(fd);
    }
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < sizeof junk; i++)
            junk[i] = round % 2 ? 'A' : (char)((x = x * 1664525 + 1013904223) >> 24);
        int fd = connect_to(port);
        send(fd, junk, sizeof junk, MSG_NOSIGNAL);
        close(fd);
    }
    memset(junk, 'a', 60000);
    memcpy(junk, "GET /v1 HTTP/1.1\r\nX: ", 21);
    int fd = connect_to(port);
    send(fd, junk, 60000, MSG_NOSIGNAL);
    assert_int_not_equal(listen_to(fd), 200);
    assert_int_equal(get(port, "/healthz"), 200);
    pen_node_free(node);
}

/* Or else it would say that it runs, and nobody would ever get an answer. */
static void without_memory_for_its_threads_it_does_not_start(void **state)
{
    (void)state;
    enum { N_THREADS = 2 * 2 + 2, AT_LEAST_EACH = 4 };
    const int64_t live = pen__mem_live();
    const pen_node_opts opts = plain();
    int n_failed = 0;
    for (int rc = -1; rc != 0; n_failed += rc != 0) {
        pen_node *node;
        pen_error err = {0};
        assert_int_equal(pen_node_create(&node, &opts, NULL), 0);
        assert_int_equal(pen_node_add(node, "data", folder, NULL, NULL), 0);
        pen__mem_fail_at(n_failed + 1);
        rc = pen_node_start(node, &err);
        pen__mem_fail_at(0);
        if (rc)
            assert_int_equal(rc, PEN_ENOMEM);
        assert_int_equal(pen_node_is_running(node), rc == 0);
        pen_node_free(node);
        assert_int_equal(pen__mem_live(), live);
    }
    assert_true(n_failed >= AT_LEAST_EACH * N_THREADS);
}

static void failing_allocations_are_survived(void **state)
{
    (void)state;
    const int64_t live = pen__mem_live();
    const pen_node_opts opts = plain();
    for (int64_t n = 1, rc = -1; rc != 0; n++) { /* while it is made */
        pen_node *node = NULL;
        pen__mem_fail_at(n);
        rc = pen_node_create(&node, &opts, NULL);
        if (rc == 0)
            rc = pen_node_add(node, "data", folder, NULL, NULL);
        if (rc == 0)
            rc = pen_node_start(node, NULL);
        pen__mem_fail_at(0);
        pen_node_free(node);
        assert_int_equal(pen__mem_live(), live);
    }
    pen_node *node = start(&opts);
    const int port = port_of(node);
    for (int64_t n = 1; n < 40; n++) { /* while it runs: an error, or no answer */
        pen__mem_fail_at(n);
        int fd = say(port, "POST /v1/data/data/samples", "",
                     "{\"pipeline\":null,\"seed\":\"0\",\"items\":[[0,0,0,0,1]]}");
        listen_to(fd);
        fd = say(port, "GET /v1/data/data/manifest?headers=1", "Accept-Encoding: zstd\r\n", "");
        listen_to(fd);
        pen__mem_fail_at(0);
    }
    assert_int_equal(get(port, "/v1/data/data/samples/0"), 200);
    pen_node_free(node);
    assert_int_equal(pen__mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(health_and_what_is_served_are_told),
        cmocka_unit_test(samples_come_as_they_are_stored),
        cmocka_unit_test(the_manifest_comes_in_pages),
        cmocka_unit_test(raw_parcels_hold_the_files),
        cmocka_unit_test(pipelines_are_put_and_parcels_packed),
        cmocka_unit_test(every_answer_says_what_it_was_asked),
        cmocka_unit_test(jobs_are_told_what_they_may_use_and_all_are_served),
        cmocka_unit_test(nobody_is_promised_more_than_the_system_gives),
        cmocka_unit_test(wrong_orders_are_refused_as_a_whole),
        cmocka_unit_test(a_token_is_wanted_where_there_is_one),
        cmocka_unit_test(strange_hosts_are_refused_on_loopback),
        cmocka_unit_test(what_makes_no_sense_is_refused_at_once),
        cmocka_unit_test(what_another_node_serves_is_refused_and_not_asked_for),
        cmocka_unit_test(a_description_that_no_client_would_take_is_refused_at_the_start),
        cmocka_unit_test(too_many_requests_a_second_are_told_so),
        cmocka_unit_test(a_node_speaks_before_its_clients_give_up),
        cmocka_unit_test(a_client_that_has_used_its_cpu_time_gets_files),
        cmocka_unit_test(a_client_that_has_used_its_cpu_time_is_told_instead_of_getting_blocks),
        cmocka_unit_test(reading_orders_and_pipelines_is_charged),
        cmocka_unit_test(a_client_that_sends_much_to_read_is_told_to_come_later),
        cmocka_unit_test(slow_and_idle_clients_are_cut_off_and_hold_up_nobody),
        cmocka_unit_test(clients_that_hang_up_leave_nothing_behind),
        cmocka_unit_test(requests_that_do_not_end_hold_little_memory),
        cmocka_unit_test(it_ends_in_the_middle_of_requests),
        cmocka_unit_test(patience_without_end_has_one),
        cmocka_unit_test(garbage_does_no_harm),
        cmocka_unit_test(without_memory_for_its_threads_it_does_not_start),
        cmocka_unit_test(failing_allocations_are_survived),
    };
    return cmocka_run_group_tests(tests, make_world, unmake_world);
}
