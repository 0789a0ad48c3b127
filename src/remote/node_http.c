/* node_http.c - requests, as libmicrohttpd hands them over.
 *
 * Its one thread calls `handle` when the head of a request is there, again with each piece of its
 * body, and once more when it is complete; then either an answer is begun at once, or the
 * connection is suspended until a thread of node_work.c has made one, and `handle` is called again.
 *
 * Whether a request is refused is decided by its head.  The refusal is told when the body is in,
 * for a client that is still sending would not hear it; a body beyond all reason ends the
 * connection.  Only a request that is complete takes a place among those that are worked on: bodies
 * that never come take none.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/describe.h"
#include "remote/node_impl.h"

enum {
    BODY_FIRST = 4096,
    MAX_DISCARDED = 1 << 20, /* of a body that nobody wants */
};

static const char *header_of(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* ---- the life of an exchange ---- */

struct MHD_Connection *pen__exchange_wake(pen__exchange *x)
{
    if (!x->is_suspended)
        return NULL;
    x->is_suspended = false;
    x->peer->touched_ns = pen__now_ns();
    pen__pace_go_on(&x->pace, x->peer->touched_ns);
    return x->connection;
}

void pen__exchange_settle(pen__exchange *x)
{
    pen_node *node = x->node;
    if (!x->is_over || x->n_held > 0)
        return;
    if (x->job)
        pen__share_leave(x->job, pen__now_ns());
    pen__queue_drop(&x->queue, &node->chunks);
    pen__hold(x, -x->held_bytes);
    pen__hold_body(x, -(int64_t)x->body_cap);
    x->client->n_open--;
    pen_pipeline_unref(x->pipe);
    pen__free(x->order);
    pen__room_fini(&x->block);
    pen__free(x->body);
    pen__free(x);
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **own,
                         enum MHD_RequestTerminationCode code)
{
    (void)connection, (void)code;
    pen_node *node = ctx;
    pen__exchange *x = *own;
    if (!x)
        return;
    *own = NULL;
    pthread_mutex_lock(&node->lock);
    pen__work_dequeue(node, x);
    x->peer->exchange = NULL;
    x->peer->touched_ns = pen__now_ns();
    if (x->before)
        x->before->next = x->next;
    else
        node->exchanges = x->next;
    if (x->next)
        x->next->before = x->before;
    node->n_exchanges--;
    node->n_heavy -= x->is_heavy;
    x->client->n_heavy -= x->is_heavy;
    if (x->is_heavy && node->n_heavy == 0)
        node->quiet_ns = x->peer->touched_ns;
    x->is_over = true;
    pen__work_cancel(node, x);
    pen__exchange_settle(x);
    if (node->n_exchanges == 0)
        pthread_cond_broadcast(&node->quiet);
    pthread_mutex_unlock(&node->lock);
}

/* ---- the head of a request ---- */

/* A web page that has its own name resolve to this machine must not read what we serve: its name
 * is in the header.  Numbers and "localhost" are fine. */
static bool is_host_plain(const char *host)
{
    size_t n = 0; /* without the port */
    if (!host)
        return true;
    if (*host == '[') {
        n = 1 + strspn(host + 1, "0123456789abcdefABCDEF:.%");
        if (host[n++] != ']')
            return false;
    } else {
        n = strcspn(host, ":");
        if (strspn(host, "0123456789.") != n && (n != 9 || strncasecmp(host, "localhost", 9) != 0))
            return false;
    }
    n += host[n] == ':' ? 1 + strspn(host + n + 1, "0123456789") : 0;
    return host[n] == '\0';
}

static bool is_method_right(pen__route_kind kind, const char *method)
{
    if (kind == PEN__ROUTE_SAMPLES)
        return strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    if (kind == PEN__ROUTE_PIPELINE)
        return strcmp(method, MHD_HTTP_METHOD_PUT) == 0;
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
}

static uint64_t content_length(const pen__exchange *x)
{
    const char *text = header_of(x->connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t length = 0;
    return text && !pen__decimal_parse(text, UINT64_MAX, &length) ? UINT64_MAX : length;
}

static void refuse(pen__exchange *x, unsigned status, const char *why)
{
    if (x->refusal)
        return;
    x->refusal_status = status;
    x->refusal = why;
}

/* Is it no request at all? */
static void judge_form(pen__exchange *x)
{
    const char *fault =
        x->peer->has_many_arguments ? "too many arguments" : pen__head_fault(x->connection);
    x->peer->has_many_arguments = false;
    x->must_close = fault != NULL;
    if (fault)
        refuse(x, MHD_HTTP_BAD_REQUEST, fault);
}

/* Is it refused for who asks, or for how it asks?  The lock is held. */
static void judge(pen__exchange *x, const char *method)
{
    pen_node *node = x->node;
    const pen__route_kind kind = x->route.kind;
    /* Who looks whether we are alive stands on the machine of a client, or behind one address with
     * them: what those do must not look like our death. */
    if (kind != PEN__ROUTE_HEALTH && !pen__client_may_ask(x->client, pen__now_ns(), &node->opts))
        refuse(x, MHD_HTTP_TOO_MANY_REQUESTS, "too many requests a second from this address");
    if (node->token && kind != PEN__ROUTE_HEALTH &&
        !pen__token_is_right(header_of(x->connection, MHD_HTTP_HEADER_AUTHORIZATION),
                             node->token)) {
        refuse(x, MHD_HTTP_UNAUTHORIZED, "a token is wanted, and this is not it");
        node->stats.refused_tokens++;
    }
    if (!node->token && node->is_loopback &&
        !is_host_plain(header_of(x->connection, MHD_HTTP_HEADER_HOST)))
        refuse(x, MHD_HTTP_FORBIDDEN, "ask by number or as localhost, or give the node a token");
    if (kind == PEN__ROUTE_NONE)
        refuse(x, MHD_HTTP_NOT_FOUND, "no such path");
    else if (!is_method_right(kind, method))
        refuse(x, MHD_HTTP_METHOD_NOT_ALLOWED, "not with this method");
    if (content_length(x) > PEN__NODE_MAX_BODY)
        refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "a body of more than 64 KiB");
    if (node->is_stopping)
        refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "this node is about to end");
    node->stats.requests[kind]++;
}

static enum MHD_Result begin(pen_node *node, struct MHD_Connection *connection, const char *url,
                             const char *method, void **own)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    pen__peer *peer = info ? info->socket_context : NULL;
    pen__exchange *x = peer && peer->client ? pen__calloc(1, sizeof *x) : NULL;
    if (!x)
        return MHD_NO;
    x->node = node;
    x->peer = peer;
    x->client = peer->client;
    x->connection = connection;
    x->asked_sum = peer->target_sum;
    pen__route_parse(url, &x->route);
    judge_form(x);
    *own = x;
    pthread_mutex_lock(&node->lock);
    peer->exchange = x;
    peer->touched_ns = pen__now_ns();
    x->client->n_open++;
    x->next = node->exchanges;
    if (x->next)
        x->next->before = x;
    node->exchanges = x;
    node->n_exchanges++;
    judge(x, method);
    pthread_mutex_unlock(&node->lock);
    /* A body of whose length nobody is sure is not waited for.  Of other methods than these the
     * library wants it before it answers. */
    const bool has_no_end = x->must_close && (strcmp(method, MHD_HTTP_METHOD_POST) == 0 ||
                                              strcmp(method, MHD_HTTP_METHOD_PUT) == 0);
    if (x->refusal && (has_no_end || content_length(x) > MAX_DISCARDED))
        return pen__answer_error(x, x->refusal_status, x->refusal);
    return MHD_YES;
}

/* ---- its body ---- */

static bool has_body(const pen__exchange *x)
{
    return x->route.kind == PEN__ROUTE_SAMPLES || x->route.kind == PEN__ROUTE_PIPELINE;
}

static bool hold_body(pen__exchange *x, size_t more)
{
    pthread_mutex_lock(&x->node->lock);
    const bool may = pen__may_hold_body(x, (int64_t)more);
    if (may)
        pen__hold_body(x, (int64_t)more);
    pthread_mutex_unlock(&x->node->lock);
    return may;
}

/* It was read, or nobody will. */
static void drop_body(pen__exchange *x)
{
    pthread_mutex_lock(&x->node->lock);
    pen__hold_body(x, -(int64_t)x->body_cap);
    pthread_mutex_unlock(&x->node->lock);
    pen__free(x->body);
    x->body = NULL;
    x->body_len = x->body_cap = 0;
}

/* Room for so many more bytes; false: there is none. */
static bool grow_body(pen__exchange *x, size_t len)
{
    size_t cap = x->body_cap ? x->body_cap : BODY_FIRST;
    while (cap < x->body_len + len)
        cap *= 2;
    if (cap == x->body_cap)
        return true;
    if (!hold_body(x, cap - x->body_cap))
        return false;
    x->body_cap = cap; /* also where there is none: it is dropped then */
    char *body = pen__realloc(x->body, cap);
    if (body)
        x->body = body;
    return body != NULL;
}

static enum MHD_Result receive(pen__exchange *x, const char *bytes, size_t len)
{
    x->asked_sum = pen__crc32c(x->asked_sum, bytes, len);
    if (x->body_len + len > PEN__NODE_MAX_BODY)
        refuse(x, MHD_HTTP_CONTENT_TOO_LARGE, "a body of more than 64 KiB");
    else if (has_body(x) && !x->refusal && !grow_body(x, len))
        refuse(x, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory for the request");
    if (x->refusal || !has_body(x)) {
        drop_body(x);
        x->n_discarded += len;
        return x->n_discarded <= MAX_DISCARDED ? MHD_YES : MHD_NO;
    }
    memcpy(x->body + x->body_len, bytes, len);
    x->body_len += len;
    return MHD_YES;
}

/* ---- what is asked for ---- */

static const char spent[] = "this address has used its processor time";

/* Blocks have no smaller form for who has used its processor time: it comes back later. */
static bool may_work(const pen__exchange *x)
{
    pen_node *node = x->node;
    pthread_mutex_lock(&node->lock);
    const bool may = pen__client_may_have_block(x->client, pen__now_ns(), &node->opts);
    pthread_mutex_unlock(&node->lock);
    return may;
}

/* Let a thread make the block; `handle` will be called again. */
static enum MHD_Result wait_for_block(pen__exchange *x)
{
    pen_node *node = x->node;
    if (!may_work(x))
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, spent);
    MHD_suspend_connection(x->connection);
    pthread_mutex_lock(&node->lock);
    x->phase = PEN__PHASE_WAITING;
    x->is_suspended = true;
    struct MHD_Connection *again = NULL;
    if (node->is_closing) {
        x->rc = pen__fail(&x->err, PEN_ECANCELED, -1, "this node is about to end");
        x->phase = PEN__PHASE_READY;
        again = pen__exchange_wake(x);
    } else {
        pen__work_enqueue(node, x);
    }
    pthread_mutex_unlock(&node->lock);
    if (again)
        MHD_resume_connection(again);
    return MHD_YES;
}

/* An argument that is a number up to `max`, 0 without it; false: it is something else. */
static bool read_argument(const pen__exchange *x, const char *name, uint64_t max, uint64_t *out)
{
    const char *text = MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
    *out = 0;
    return !text || pen__decimal_parse(text, max, out);
}

static enum MHD_Result ask_manifest(pen__exchange *x)
{
    uint64_t number, headers, fields;
    if (!read_argument(x, "page", UINT64_MAX, &number) ||
        !read_argument(x, "headers", PEN__PAGE_COUNT - 1, &headers) ||
        !read_argument(x, "fields", 1, &fields))
        return pen__answer_error(x, MHD_HTTP_BAD_REQUEST,
                                 "page must be a number, headers 0, 1 or 2, fields 0 or 1");
    if (number >= pen__manifest_pages(x->served->ds))
        return pen__answer_error(x, MHD_HTTP_NOT_FOUND, "no such page");
    x->page = (pen__page_order){
        .number = number,
        .headers = (pen__page_headers)headers,
        .has_fields = fields,
        .as_zstd = pen__accepts_zstd(header_of(x->connection, MHD_HTTP_HEADER_ACCEPT_ENCODING))};
    return wait_for_block(x);
}

static enum MHD_Result ask_sample(pen__exchange *x)
{
    if (x->route.id >= pen_dataset_count(x->served->ds))
        return pen__answer_error(x, MHD_HTTP_NOT_FOUND, "no such sample");
    return wait_for_block(x);
}

static pen_pipeline *find_pipeline(pen_node *node, const char *hash)
{
    pthread_mutex_lock(&node->lock);
    pen_pipeline *pipe = pen__pipelines_get(&node->pipelines, hash);
    pthread_mutex_unlock(&node->lock);
    return pipe;
}

/* Reading a body is done for its client as packing is, and here: nobody else's request comes in
 * meanwhile. */
static bool may_be_read(const pen__exchange *x)
{
    pthread_mutex_lock(&x->node->lock);
    const bool may = pen__client_may_be_read(x->client, pen__now_ns(), &x->node->opts);
    pthread_mutex_unlock(&x->node->lock);
    return may;
}

static void charge(pen__exchange *x, int64_t cpu_ns)
{
    pthread_mutex_lock(&x->node->lock);
    pen__client_was_read(x->client, cpu_ns, &x->node->opts);
    x->node->stats.parse_cpu_ns += cpu_ns;
    pthread_mutex_unlock(&x->node->lock);
}

static enum MHD_Result ask_samples(pen__exchange *x)
{
    pen_node *node = x->node;
    pen_error err;
    if (!may_be_read(x))
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, spent);
    x->order = pen__malloc(sizeof *x->order);
    if (!x->order)
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    const int64_t began = pen__thread_cpu_ns();
    int rc = pen__node_order_parse(x->order, x->body ? x->body : "", x->body_len, &err);
    charge(x, pen__thread_cpu_ns() - began);
    drop_body(x);
    if (rc)
        return pen__answer_error(
            x, rc == PEN_ELIMIT ? MHD_HTTP_CONTENT_TOO_LARGE : MHD_HTTP_BAD_REQUEST, err.text);
    if (*x->order->dataset && strcmp(x->order->dataset, pen_dataset_hash(x->served->ds)) != 0)
        return pen__answer_error(x, MHD_HTTP_CONFLICT, "the dataset here is another one");
    if (*x->order->pipeline && !(x->pipe = find_pipeline(node, x->order->pipeline)))
        return pen__answer_error(x, MHD_HTTP_NOT_FOUND, "this pipeline is not known here: put it");
    enum MHD_Result result = pen__answer_frames(x);
    pthread_mutex_lock(&node->lock);
    if (result == MHD_YES)
        pen__work_enqueue(node, x);
    pthread_mutex_unlock(&node->lock);
    return result;
}

static enum MHD_Result answer_put(pen__exchange *x, bool is_new)
{
    pen__text text = {0};
    pen__text_add(&text, "{\"pipeline\": \"%s\"}\n", x->route.hash);
    return pen__answer_text(x, is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK, "application/json", &text);
}

static enum MHD_Result put_pipeline(pen__exchange *x)
{
    const char *body = x->body ? x->body : "";
    pen_error err;
    pen_pipeline *pipe = find_pipeline(x->node, x->route.hash);
    const bool is_known = pipe && strlen(pen_pipeline_describe(pipe)) == x->body_len &&
                          memcmp(pen_pipeline_describe(pipe), body, x->body_len) == 0;
    pen_pipeline_unref(pipe);
    if (is_known)
        return answer_put(x, false);
    if (!may_be_read(x))
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, spent);
    const int64_t began = pen__thread_cpu_ns();
    int rc = pen__describe_read(&pipe, body, x->body_len, &err);
    charge(x, pen__thread_cpu_ns() - began);
    if (rc)
        return pen__answer_error(
            x, rc == PEN_ENOMEM ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_UNPROCESSABLE_CONTENT,
            err.text);
    if (strcmp(pen_pipeline_hash(pipe), x->route.hash) != 0) {
        pen_pipeline_unref(pipe);
        return pen__answer_error(x, MHD_HTTP_UNPROCESSABLE_CONTENT,
                                 "the hash of this pipeline is another one");
    }
    pthread_mutex_lock(&x->node->lock);
    const bool is_new = pen__pipelines_put(&x->node->pipelines, pipe, x->client->address);
    pthread_mutex_unlock(&x->node->lock);
    pen_pipeline_unref(pipe);
    return answer_put(x, is_new);
}

static enum MHD_Result answer_metrics(pen__exchange *x)
{
    pen__text text = {0};
    if (pen__node_metrics_write(x->node, &text) != 0) {
        pen__text_fini(&text);
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    }
    return pen__answer_text(x, MHD_HTTP_OK,
                            "application/openmetrics-text; version=1.0.0; charset=utf-8", &text);
}

static bool is_heavy(pen__route_kind kind)
{
    return kind == PEN__ROUTE_SAMPLE || kind == PEN__ROUTE_SAMPLES || kind == PEN__ROUTE_MANIFEST ||
           kind == PEN__ROUTE_PIPELINE;
}

/* A place among the requests that are answered at once, for one that needs it.  Who has a quarter
 * of all places gets more only while a quarter is free: others shall find one, too. */
static bool take_place(pen__exchange *x)
{
    pen_node *node = x->node;
    const int all = node->opts.max_requests, quarter = all / 4 > 1 ? all / 4 : 1;
    if (!is_heavy(x->route.kind))
        return true;
    pthread_mutex_lock(&node->lock);
    const int most = x->client->n_heavy < quarter ? all : all - quarter;
    x->is_heavy = node->n_heavy < most;
    node->n_heavy += x->is_heavy;
    x->client->n_heavy += x->is_heavy;
    pthread_mutex_unlock(&node->lock);
    return x->is_heavy;
}

/* The request is complete. */
static enum MHD_Result dispatch(pen__exchange *x)
{
    pen__text text = {0};
    if (x->refusal)
        return pen__answer_error(x, x->refusal_status, x->refusal);
    x->served = *x->route.name ? pen__node_find(x->node, x->route.name) : NULL;
    if (*x->route.name && !x->served)
        return pen__answer_error(x, MHD_HTTP_NOT_FOUND, "no such dataset");
    if (!take_place(x))
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests at once");
    switch (x->route.kind) {
    case PEN__ROUTE_METRICS:
        return answer_metrics(x);
    case PEN__ROUTE_ROOT:
        return pen__answer_root(x);
    case PEN__ROUTE_DATASET:
        return pen__answer_dataset(x);
    case PEN__ROUTE_MANIFEST:
        return ask_manifest(x);
    case PEN__ROUTE_SAMPLES:
        return ask_samples(x);
    case PEN__ROUTE_SAMPLE:
        return ask_sample(x);
    case PEN__ROUTE_PIPELINE:
        return put_pipeline(x);
    default:
        pen__text_add(&text, "ok\n");
        return pen__answer_text(x, MHD_HTTP_OK, "text/plain; charset=utf-8", &text);
    }
}

static enum MHD_Result handle(void *ctx, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_len, void **own)
{
    (void)version;
    pen__exchange *x = *own;
    if (!x)
        return begin(ctx, connection, url, method, own);
    if (*upload_len > 0) {
        const size_t n = *upload_len;
        *upload_len = 0;
        return receive(x, upload, n);
    }
    pthread_mutex_lock(&x->node->lock);
    const pen__phase phase = x->phase;
    pthread_mutex_unlock(&x->node->lock);
    if (phase == PEN__PHASE_READY)
        return pen__answer_block(x);
    return phase == PEN__PHASE_RECEIVING ? dispatch(x) : MHD_YES;
}

/* %41 is A.  What would be a NUL stays as it is: it would hide what follows it. */
static size_t unescape(void *ctx, struct MHD_Connection *connection, char *text)
{
    (void)ctx, (void)connection;
    char *to = text;
    for (const char *from = text; *from;) {
        unsigned value = 0;
        if (from[0] == '%' && isxdigit((unsigned char)from[1]) &&
            isxdigit((unsigned char)from[2]) && sscanf(from + 1, "%2x", &value) == 1 && value) {
            *to++ = (char)value;
            from += 3;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    return (size_t)(to - text);
}

/* ---- the daemon; called through http_guard.h ---- */

void pen__node_call_start(void *ctx)
{
    pen_node *node = ctx;
    const unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME |
                           (node->place.any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0U) |
                           (node->tls_cert ? MHD_USE_TLS : 0U);
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, node->tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, node->tls_key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0,
         (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL},
    };
    const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    node->daemon = MHD_start_daemon(
        flags, 0, pen__peer_may_connect, node, handle, node, MHD_OPTION_LISTEN_SOCKET, node->fd,
        MHD_OPTION_NOTIFY_CONNECTION, pen__peer_came_or_went, node, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, node, MHD_OPTION_CONNECTION_LIMIT, (unsigned)node->opts.max_connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)node->opts.max_header_bytes,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
        MHD_OPTION_URI_LOG_CALLBACK, pen__head_see_target, NULL, MHD_OPTION_ARRAY,
        node->tls_cert ? tls : none, MHD_OPTION_END);
}

void pen__node_call_quiesce(void *ctx)
{
    pen_node *node = ctx;
    MHD_quiesce_daemon(node->daemon); /* the socket is ours again once the daemon has ended */
}

void pen__node_call_stop(void *ctx)
{
    pen_node *node = ctx;
    MHD_stop_daemon(node->daemon);
}
