/* test_remote_source.c - datasets on a server, from opening to closing.
 *
 * The server is libmicrohttpd with a local dataset behind it, and it can be told to fail.  What
 * networks do to a client is tested at length in tests/python/test_remote.py; here it is threads,
 * memory and forks, for sanitizers to watch.
 */
#include "trees.h"
#include "wire.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <math.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "base/mem.h"
#include "remote/remote_open.h"
#include "source/source.h"

enum { N_FILES = 40, N_THREADS = 8 };

/* How the next POSTs are answered. */
typedef enum mood { GOOD, BUSY, BROKEN, SHORT, SPOILED, SILENT, DENYING, MISHEARING } mood;

static struct node {
    struct MHD_Daemon *daemon;
    pen_dataset *ds;
    int port;
    _Atomic int mood, n_moody; /* that many POSTs, then good again */
    _Atomic int n_posts, n_connections;
    _Atomic int n_zeros;         /* in the name of the second class */
    _Atomic(const char *) cores; /* what it says of its processors, or NULL */
    _Atomic uint64_t job;        /* of the last POST */
} node;

/* ---- the server ---- */

static _Thread_local uint32_t asked; /* a connection has its own */

static void *on_target(void *ctx, const char *target, struct MHD_Connection *connection)
{
    (void)ctx, (void)connection;
    asked = pen__crc32c(0, target, strlen(target));
    return NULL;
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const void *body,
                             size_t len)
{
    char sum[9];
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    snprintf(sum, sizeof sum, "%08x", asked);
    MHD_add_response_header(response, "Penstock-Asked", sum);
    const char *cores = atomic_load(&node.cores);
    if (cores)
        MHD_add_response_header(response, "Penstock-Cores", cores);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result describe(struct MHD_Connection *connection)
{
    char json[8192];
    snprintf(json, sizeof json,
             "{\"count\": %lld, \"bytes\": %lld, \"hash\": \"%s\", \"page\": 16, "
             "\"classes\": [\"c0\", \"c%0*d\"]}",
             (long long)pen_dataset_count(node.ds), (long long)pen_dataset_bytes(node.ds),
             pen_dataset_hash(node.ds), atomic_load(&node.n_zeros) + 1, 1);
    seal_text(json, sizeof json);
    return reply(connection, 200, json, strlen(json));
}

static enum MHD_Result send_page(struct MHD_Connection *connection)
{
    wire *page = malloc(sizeof *page);
    const char *number = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "page");
    int64_t first = 16 * atoi(number), count = pen_dataset_count(node.ds);
    int64_t n = count - first < 16 ? count - first : 16;
    char key[PEN_KEY_MAX];
    begin_page(page, (uint64_t)first, (uint32_t)n, 0);
    for (int64_t id = first; id < first + n; id++) {
        int64_t len = pen_dataset_key(node.ds, id, key, sizeof key);
        put_record(page, (uint64_t)pen_dataset_length(node.ds, id), pen_dataset_label(node.ds, id),
                   key, (size_t)len, 0);
    }
    end_page(page);
    enum MHD_Result result = reply(connection, 200, page->bytes, page->n);
    free(page);
    return result;
}

static enum MHD_Result send_frames(struct MHD_Connection *connection, const char *body, size_t len,
                                   int now)
{
    json_t *root = json_loadb(body, len, 0, NULL), *items = json_object_get(root, "items");
    wire *frames = calloc(1, sizeof *frames);
    atomic_store(&node.job, strtoull(json_string_value(json_object_get(root, "job")), NULL, 10));
    uint8_t file[4096];
    for (size_t i = 0; i < json_array_size(items); i++) {
        int64_t id = json_integer_value(json_array_get(json_array_get(items, i), 0));
        int64_t n = pen_dataset_read(node.ds, id, file, sizeof file, NULL);
        static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* put_raw_frame has a buffer */
        pthread_mutex_lock(&one);
        put_raw_frame(frames, (uint32_t)i, (uint64_t)id, file, (size_t)n);
        pthread_mutex_unlock(&one);
    }
    if (now == SPOILED)
        frames->bytes[frames->n - 1] ^= 1;
    enum MHD_Result result =
        reply(connection, 200, frames->bytes, now == SHORT ? frames->n * 2 / 3 : frames->n);
    free(frames);
    json_decref(root);
    return result;
}

static enum MHD_Result take_post(struct MHD_Connection *connection, const char *body, size_t len)
{
    atomic_fetch_add(&node.n_posts, 1);
    int now = atomic_fetch_sub(&node.n_moody, 1) > 0 ? atomic_load(&node.mood) : GOOD;
    if (now == BUSY)
        return reply(connection, 503, "{\"error\": \"busy\"}", 17);
    if (now == BROKEN)
        return reply(connection, 500, "{\"error\": \"broken\"}", 19);
    if (now == DENYING)
        return reply(connection, 400, "{\"error\": \"odd\"}", 16);
    if (now == MISHEARING)
        asked ^= 1;
    if (now == SILENT)
        return MHD_NO; /* the connection is closed */
    return send_frames(connection, body, len, now);
}

typedef struct upload {
    char bytes[65536];
    size_t n;
} upload;

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **con)
{
    (void)ctx, (void)version;
    if (!*con) {
        *con = calloc(1, sizeof(upload));
        return MHD_YES;
    }
    upload *up = *con;
    if (*len > 0) {
        memcpy(up->bytes + up->n, data, *len);
        up->n += *len;
        asked = pen__crc32c(asked, data, *len);
        *len = 0;
        return MHD_YES;
    }
    if (strcmp(method, "POST") == 0)
        return take_post(connection, up->bytes, up->n);
    return strstr(url, "/manifest") ? send_page(connection) : describe(connection);
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **con,
                         enum MHD_RequestTerminationCode code)
{
    (void)ctx, (void)connection, (void)code;
    free(*con);
}

static void on_connection(void *ctx, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode what)
{
    (void)ctx, (void)connection, (void)own;
    atomic_fetch_add(&node.n_connections, what == MHD_CONNECTION_NOTIFY_STARTED);
}

static void start_daemon(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    node.daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL,
        NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL,
        MHD_OPTION_LISTENING_ADDRESS_REUSE, 1U, MHD_OPTION_URI_LOG_CALLBACK, on_target, NULL,
        MHD_OPTION_END);
    assert_non_null(node.daemon);
    node.port = MHD_get_daemon_info(node.daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}

static int node_setup(void **state)
{
    tree_setup(state);
    setenv("PENSTOCK_REMOTE_TIMEOUT", "20", 1);
    char name[64], text[4096];
    for (int i = 0; i < N_FILES; i++) {
        snprintf(name, sizeof name, "d/c%d/%03d.jpg", i % 2, i);
        int n = snprintf(text, sizeof text, "file %d %0*d", i, i * 40 + 1, i);
        put_bytes(name, text, (size_t)n);
    }
    node.ds = open_ok(in_tree("d"), NULL);
    atomic_store(&node.n_moody, 0);
    atomic_store(&node.n_posts, 0);
    atomic_store(&node.n_connections, 0);
    atomic_store(&node.n_zeros, 0);
    atomic_store(&node.cores, NULL);
    start_daemon(0);
    return 0;
}

static int node_teardown(void **state)
{
    MHD_stop_daemon(node.daemon);
    pen_dataset_unref(node.ds);
    return tree_teardown(state);
}

/* ---- the client ---- */

static const char *address(void)
{
    static char text[64];
    snprintf(text, sizeof text, "penstock://127.0.0.1:%d/pictures", node.port);
    return text;
}

static void read_is_right(const pen_dataset *ds, int64_t id)
{
    uint8_t got[4096], want[4096];
    pen_error err = {0};
    int64_t n = pen_dataset_read(ds, id, got, sizeof got, &err);
    if (n < 0)
        fail_msg("%s", err.text);
    assert_int_equal(n, pen_dataset_read(node.ds, id, want, sizeof want, NULL));
    assert_memory_equal(got, want, (size_t)n);
}

static void a_remote_dataset_is_what_the_server_has(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    assert_int_equal(pen_dataset_kind(ds), PEN_SOURCE_REMOTE);
    assert_string_equal(pen_dataset_hash(ds), pen_dataset_hash(node.ds));
    assert_int_equal(pen_dataset_class_count(ds), 2);
    assert_true(pen_dataset_index_bytes(ds) >
                pen_dataset_index_bytes(node.ds) + 4096); /* requests */
    for (int64_t id = 0; id < N_FILES; id++) {
        char key[PEN_KEY_MAX];
        pen_dataset_key(node.ds, id, key, sizeof key);
        assert_string_equal(key_of(ds, id), key);
        assert_int_equal(pen_dataset_find(ds, key), id);
        read_is_right(ds, id);
    }
    pen_error err;
    uint8_t small[1];
    assert_int_equal(pen_dataset_read(ds, 0, small, 1, &err), PEN_ENOSPC);
    assert_int_equal(pen_dataset_read(ds, N_FILES, small, 1, &err), PEN_EINVAL);
    assert_int_equal(pen_dataset_field_length(ds, 0, PEN_FIELD_TXT), PEN_ENOTFOUND);
    pen_dataset_unref(ds);
}

/* Open so many shards, all of them this node's, with so much memory for what they hold. */
static int fill_shards(int n, int64_t max_bytes)
{
    char spec[256] = "penstock://";
    for (int i = 0; i < n; i++)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), "%s127.0.0.1:%d", i ? "+" : "",
                 node.port);
    strcat(spec, "/pictures");
    static pen__remote_route route;
    route = (pen__remote_route){.max_bytes = max_bytes};
    const pen_dataset_opts opts = {.struct_size = sizeof opts};
    pen_dataset ds = {0};
    pen__http http;
    pen_error err = {0};
    assert_int_equal(pen__remote_url_parse(&route.url, spec, &err), 0);
    assert_int_equal(pen__http_init(&http, &err), 0);
    int rc = pen__remote_fill(&ds, &route, &http, &opts, &err);
    assert_int_equal(rc, err.code);
    assert_int_equal(ds.index.n, rc == 0 ? n * N_FILES : 0);
    pen__http_fini(&http);
    pen__index_fini(&ds.index);
    pen__intern_fini(&ds.classes);
    pen__free(ds.headers);
    return rc;
}

/* The least memory that they can be opened with. */
static int64_t memory_for_shards(int n)
{
    int64_t too_little = 0, enough = 1 << 20;
    assert_int_equal(fill_shards(n, enough), 0);
    while (enough - too_little > 1) {
        const int64_t middle = (too_little + enough) / 2;
        const int rc = fill_shards(n, middle);
        assert_true(rc == 0 || rc == PEN_ELIMIT);
        *(rc == 0 ? &enough : &too_little) = middle;
    }
    return enough;
}

static void what_shards_hold_is_counted_together(void **state)
{
    (void)state;
    const int64_t one = memory_for_shards(1);
    assert_true(one >= pen__index_bytes(&node.ds->index));
    assert_int_equal(memory_for_shards(2), 2 * one);
    atomic_store(&node.n_zeros, 6000);
    assert_true(memory_for_shards(1) >= one + 4000);
}

typedef struct reader {
    pthread_t thread;
    pen_dataset *ds;
    int number, n_wrong;
} reader;

static void *read_all(void *arg)
{
    reader *r = arg;
    uint8_t got[4096], want[4096];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N_FILES; i++) {
            int64_t id = (i * 7 + r->number) % N_FILES;
            int64_t n = pen_dataset_read(r->ds, id, got, sizeof got, NULL);
            r->n_wrong += n != pen_dataset_read(node.ds, id, want, sizeof want, NULL) ||
                          memcmp(got, want, (size_t)n) != 0;
        }
    return NULL;
}

static int read_in_threads(pen_dataset *ds)
{
    reader readers[N_THREADS];
    int n_wrong = 0;
    for (int i = 0; i < N_THREADS; i++) {
        readers[i] = (reader){.ds = ds, .number = i};
        pthread_create(&readers[i].thread, NULL, read_all, &readers[i]);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        n_wrong += readers[i].n_wrong;
    }
    return n_wrong;
}

/* Hundreds of reads, over the connections that the first few have made. */
static void threads_share_a_few_connections(void **state)
{
    (void)state;
    enum { A_SERVER = 4 };
    pen_dataset *ds = open_ok(address(), NULL);
    atomic_store(&node.n_connections, 0); /* opening has its own */
    assert_int_equal(read_in_threads(ds), 0);
    assert_int_equal(read_in_threads(ds), 0);
    assert_true(atomic_load(&node.n_posts) > A_SERVER);
    assert_in_range(atomic_load(&node.n_connections), 1, A_SERVER);
    pen_dataset_unref(ds);
}

static void what_fails_is_asked_for_again(void **state)
{
    (void)state;
    static const mood moods[] = {BUSY, BROKEN, SHORT, SPOILED, SILENT, DENYING, MISHEARING};
    pen_dataset *ds = open_ok(address(), NULL);
    for (size_t i = 0; i < COUNT(moods); i++) {
        atomic_store(&node.mood, moods[i]);
        atomic_store(&node.n_moody, 2);
        assert_int_equal(read_in_threads(ds), 0);
        assert_true(atomic_load(&node.n_moody) <= 0);
    }
    pen_dataset_unref(ds);
}

static void a_server_that_goes_is_waited_for(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    read_is_right(ds, 0);
    MHD_stop_daemon(node.daemon);
    reader r = {.ds = ds};
    pthread_create(&r.thread, NULL, read_all, &r);
    nanosleep(&(struct timespec){0, 100 * 1000000}, NULL); /* it meets nobody, or it does not */
    start_daemon(node.port);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.n_wrong, 0);
    pen_dataset_unref(ds);
}

static void time_runs_out_with_a_reason(void **state)
{
    (void)state;
    setenv("PENSTOCK_REMOTE_TIMEOUT", "0.3", 1);
    pen_dataset *ds = open_ok(address(), NULL);
    atomic_store(&node.mood, BROKEN);
    atomic_store(&node.n_moody, INT32_MAX);
    uint8_t got[4096];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 3, got, sizeof got, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "500, broken"));
    assert_non_null(strstr(err.text, "127.0.0.1:"));
    pen_dataset_unref(ds);
}

static void a_no_is_final_when_it_was_said_often(void **state)
{
    (void)state;
    setenv("PENSTOCK_REMOTE_TIMEOUT", "3600", 1);
    pen_dataset *ds = open_ok(address(), NULL);
    atomic_store(&node.mood, DENYING);
    atomic_store(&node.n_moody, INT32_MAX);
    uint8_t got[4096];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 3, got, sizeof got, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "answers 400, odd"));
    assert_int_equal(atomic_load(&node.n_posts), PEN__SERVER_DENIALS);
    assert_int_equal(pen_dataset_read(ds, 4, got, sizeof got, &err), PEN_EIO);
    assert_int_equal(atomic_load(&node.n_posts), PEN__SERVER_DENIALS + 1);
    atomic_store(&node.n_moody, 0); /* and is asked when it is needed again */
    read_is_right(ds, 3);
    pen_dataset_unref(ds);
}

static void an_answer_to_something_else_is_none(void **state)
{
    (void)state;
    setenv("PENSTOCK_REMOTE_TIMEOUT", "0.3", 1);
    pen_dataset *ds = open_ok(address(), NULL);
    atomic_store(&node.mood, MISHEARING);
    atomic_store(&node.n_moody, INT32_MAX);
    uint8_t got[4096];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 3, got, sizeof got, &err), PEN_EIO);
    assert_non_null(strstr(err.text, "what it was asked was damaged on its way"));
    pen_dataset_unref(ds);
}

static void a_cancelled_fetch_ends_soon(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    atomic_store(&node.mood, BROKEN);
    atomic_store(&node.n_moody, INT32_MAX);
    atomic_bool cancel = true;
    uint8_t got[4096];
    pen_error err = {0};
    pen__wanted wanted = {.key = {.sample = 5}};
    assert_int_equal(ds->source->fetch(ds, &wanted, got, sizeof got, &cancel, &err), PEN_ECANCELED);
    wanted.key.sample = N_FILES;
    assert_int_equal(ds->source->fetch(ds, &wanted, got, sizeof got, NULL, &err), PEN_EINVAL);
    pen_dataset_unref(ds);
}

static int leave_the_second_time(void *ctx)
{
    return ++*(int *)ctx == 2;
}

static void who_reads_may_be_told_to_leave(void **state)
{
    (void)state;
    int n_calls = 0;
    pen_dataset_opts opts = tree_opts(false);
    opts.waiting = leave_the_second_time;
    opts.waiting_ctx = &n_calls;
    pen_dataset *ds = open_ok(address(), &opts);
    atomic_store(&node.mood, BROKEN);
    atomic_store(&node.n_moody, INT32_MAX);
    uint8_t got[4096];
    pen_error err = {0};
    assert_int_equal(pen_dataset_read(ds, 5, got, sizeof got, &err), PEN_ECANCELED);
    assert_int_equal(n_calls, 2);
    pen__wanted wanted = {.key = {.sample = 5}}; /* not the program's own thread */
    atomic_store(&node.n_moody, 3);
    assert_true(ds->source->fetch(ds, &wanted, got, sizeof got, NULL, &err) > 0);
    assert_int_equal(n_calls, 2);
    read_is_right(ds, 5);
    pen_dataset_unref(ds);
}

static void a_fetch_brings_a_parcel(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    uint8_t got[4096], want[4096];
    pen_error err = {0};
    pen__wanted wanted = {.key = {.sample = 17}};
    int64_t n = ds->source->fetch(ds, &wanted, got, sizeof got, NULL, &err);
    assert_int_equal(n, 48 + pen_dataset_read(node.ds, 17, want, sizeof want, NULL));
    assert_memory_equal(got + 48, want, (size_t)n - 48);
    assert_int_equal(ds->source->fetch(ds, &wanted, got, (size_t)n, NULL, &err), n);
    pen_dataset_unref(ds);
}

/* Fetch a sample, and ask what the server allows. */
static double cores_after_fetch(pen_dataset *ds, pen_pipeline *pipe, const char *says)
{
    uint8_t got[8192];
    pen_error err = {0};
    pen__wanted wanted = {.pipe = pipe, .key = {.sample = 17}, .choice = {.forms = 1}};
    atomic_store(&node.cores, says);
    assert_true(ds->source->fetch(ds, &wanted, got, sizeof got, NULL, &err) > 0);
    double cores = NAN;
    for (int i = 0; i < 2000; i++) { /* the answer ends a moment after its last sample */
        cores = ds->source->cores(ds, pipe);
        if (!says || !isnan(cores))
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return cores;
}

static void what_servers_allow_is_known(void **state)
{
    (void)state;
    const pen_op ops[] = {pen_op_center_crop(8, 8)}, others[] = {pen_op_center_crop(9, 9)};
    pen_pipeline *pipe, *other;
    assert_int_equal(pen_pipeline_create(&pipe, ops, 1, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL), 0);
    assert_int_equal(pen_pipeline_create(&other, others, 1, PEN_DTYPE_AUTO, PEN_LAYOUT_NCHW, NULL),
                     0);
    pen_dataset *ds = open_ok(address(), NULL), *again = open_ok(address(), NULL);
    assert_true(isnan(ds->source->cores(ds, pipe)));
    assert_true(cores_after_fetch(ds, pipe, "0.75") == 0.75);
    const uint64_t job = atomic_load(&node.job);
    assert_true(isnan(ds->source->cores(ds, other)));
    assert_true(isnan(cores_after_fetch(ds, other, NULL))); /* not told */
    assert_true(atomic_load(&node.job) != job);
    assert_true(isnan(again->source->cores(again, pipe)));
    assert_true(cores_after_fetch(again, pipe, "123456789") == 1024);
    assert_true(atomic_load(&node.job) != job); /* another process would be another job, too */
    pen_dataset_unref(ds);
    pen_dataset_unref(again);
    pen_pipeline_unref(pipe);
    pen_pipeline_unref(other);
}

static void a_child_of_a_fork_is_told_so(void **state)
{
    (void)state;
    pen_dataset *ds = open_ok(address(), NULL);
    read_is_right(ds, 1);
    pid_t child = fork();
    if (child == 0) {
        uint8_t got[4096];
        int64_t rc = pen_dataset_read(ds, 1, got, sizeof got, NULL);
        pen_dataset_unref(ds);
        _exit(rc == PEN_EFORK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    read_is_right(ds, 2);
    pen_dataset_unref(ds);
}

static int stop_at_once(void *ctx, int64_t done, int64_t total)
{
    (void)done, (void)total;
    return ++*(int *)ctx > 1;
}

static void opening_can_be_cancelled(void **state)
{
    (void)state;
    int n_calls = 0;
    pen_dataset_opts opts = tree_opts(false);
    opts.progress = stop_at_once;
    opts.progress_ctx = &n_calls;
    open_fails(address(), &opts, PEN_ECANCELED, "cancelled");
}

static void *start_later(void *arg)
{
    nanosleep(&(struct timespec){0, 200 * 1000000}, NULL);
    start_daemon(*(int *)arg);
    return NULL;
}

static void opening_waits_for_a_server_that_starts(void **state)
{
    (void)state;
    pthread_t thread;
    int port = node.port;
    MHD_stop_daemon(node.daemon);
    const char *where = address(); /* the thread will write the port again */
    assert_int_equal(pthread_create(&thread, NULL, start_later, &port), 0);
    pen_dataset *ds = open_ok(where, NULL);
    pthread_join(thread, NULL);
    read_is_right(ds, 1);
    pen_dataset_unref(ds);
}

static void what_is_not_there_is_said(void **state)
{
    (void)state;
    setenv("PENSTOCK_REMOTE_TIMEOUT", "0.3", 1);
    MHD_stop_daemon(node.daemon);
    open_fails(address(), NULL, PEN_EIO, "connection refused");
    open_fails("penstock://", NULL, PEN_EINVAL, "penstock://HOST");
    setenv("PENSTOCK_REMOTE_TIMEOUT", "soon", 1);
    open_fails(address(), NULL, PEN_EINVAL, "PENSTOCK_REMOTE_TIMEOUT is 'soon'");
    start_daemon(node.port);
}

static void failing_allocations_leave_nothing_behind(void **state)
{
    (void)state;
    uint8_t got[4096];
    pen_dataset *ds = open_ok(address(), NULL); /* what is made once for all */
    pen_dataset_unref(ds);
    int64_t live = pen__mem_live();
    int rc = PEN_ENOMEM;
    for (int n = 1; rc != 0; n++) {
        pen_error err = {0};
        pen__mem_fail_at(n);
        rc = pen_dataset_open(&ds, address(), NULL, &err);
        pen__mem_fail_at(0);
        if (rc != 0 && rc != PEN_ENOMEM)
            fail_msg("allocation %d: %s", n, err.text);
        pen_dataset_unref(ds);
        assert_int_equal(pen__mem_live(), live);
    }
    int64_t got_len = PEN_ENOMEM;
    for (int n = 1; n < 6; n++) { /* reading: an error, or another try */
        ds = open_ok(address(), NULL);
        pen__mem_fail_at(n);
        got_len = pen_dataset_read(ds, 9, got, sizeof got, NULL);
        pen__mem_fail_at(0);
        assert_true(got_len == PEN_ENOMEM || got_len == pen_dataset_length(ds, 9));
        pen_dataset_unref(ds);
        assert_int_equal(pen__mem_live(), live);
    }
}

#define NODE_TEST(test) cmocka_unit_test_setup_teardown(test, node_setup, node_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(a_remote_dataset_is_what_the_server_has),
        NODE_TEST(what_shards_hold_is_counted_together),
        NODE_TEST(threads_share_a_few_connections),
        NODE_TEST(what_fails_is_asked_for_again),
        NODE_TEST(a_server_that_goes_is_waited_for),
        NODE_TEST(time_runs_out_with_a_reason),
        NODE_TEST(a_no_is_final_when_it_was_said_often),
        NODE_TEST(an_answer_to_something_else_is_none),
        NODE_TEST(a_cancelled_fetch_ends_soon),
        NODE_TEST(who_reads_may_be_told_to_leave),
        NODE_TEST(a_fetch_brings_a_parcel),
        NODE_TEST(what_servers_allow_is_known),
        NODE_TEST(a_child_of_a_fork_is_told_so),
        NODE_TEST(opening_can_be_cancelled),
        NODE_TEST(opening_waits_for_a_server_that_starts),
        NODE_TEST(what_is_not_there_is_said),
        NODE_TEST(failing_allocations_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
