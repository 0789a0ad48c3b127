/* node_answer.c - answers of a storage node: JSON, errors, and how a block or frames are begun.
 *
 * All of it runs in the network's thread.
 */
#include <stdio.h>
#include <string.h>

#include <penstock/version.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/fail.h"
#include "remote/node_impl.h"
#include "remote/remote_asked.h"
#include "remote/remote_part.h"

enum { BLOCK_BYTES = 32 * 1024 }; /* asked for at a time */

static const char json_type[] = "application/json";

enum MHD_Result pen__answer_with(pen__exchange *x, unsigned status, struct MHD_Response *response,
                                 const char *type)
{
    pen_node *node = x->node;
    char asked[9];
    if (!response)
        return MHD_NO;
    if (type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    snprintf(asked, sizeof asked, "%08x", x->asked_sum);
    MHD_add_response_header(response, PEN__ASKED_HEADER, asked);
    pthread_mutex_lock(&node->lock);
    x->phase = PEN__PHASE_SENDING;
    x->peer->touched_ns = pen__now_ns();
    pen__pace_begin(&x->pace, x->peer->touched_ns);
    if (status < sizeof node->stats.responses / sizeof node->stats.responses[0])
        node->stats.responses[status]++;
    pthread_mutex_unlock(&node->lock);
    enum MHD_Result result = MHD_queue_response(x->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static struct MHD_Response *from_text(const pen__text *text)
{
    return MHD_create_response_from_buffer(text->len, text->data ? text->data : (char *)"",
                                           MHD_RESPMEM_MUST_COPY);
}

/* Count the bytes of an answer that is a copy of its own, until it is sent.  Who holds nothing may
 * always have one: somebody must be able to look what keeps a node busy. */
static bool hold_text(pen__exchange *x, int64_t len)
{
    pthread_mutex_lock(&x->node->lock);
    const bool is_held = x->client->held_bytes == 0 || pen__may_hold(x, len);
    if (is_held) {
        pen__hold(x, len);
        x->node->stats.sent_bytes += len;
    }
    pthread_mutex_unlock(&x->node->lock);
    return is_held;
}

enum MHD_Result pen__answer_text(pen__exchange *x, unsigned status, const char *type,
                                 pen__text *text)
{
    const bool is_held = hold_text(x, (int64_t)text->len);
    struct MHD_Response *response = is_held && !text->failed ? from_text(text) : NULL;
    pen__text_fini(text);
    if (!is_held)
        return pen__answer_error(x, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory for the answer");
    return pen__answer_with(x, status, response, type);
}

static const char *allowed_methods(pen__route_kind kind)
{
    return kind == PEN__ROUTE_SAMPLES ? "POST" : kind == PEN__ROUTE_PIPELINE ? "PUT" : "GET, HEAD";
}

enum MHD_Result pen__answer_error(pen__exchange *x, unsigned status, const char *why)
{
    pen__text text = {0};
    pen__text_add(&text, "{\"error\": ");
    pen__text_add_json(&text, why, strlen(why));
    pen__text_add(&text, "}\n");
    struct MHD_Response *response = text.failed ? NULL : from_text(&text);
    pen__text_fini(&text);
    if (!response)
        return MHD_NO;
    if (x->must_close)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allowed_methods(x->route.kind));
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return pen__answer_with(x, status, response, json_type);
}

/* ---- what is served ---- */

pen__served *pen__node_find(const pen_node *node, const char *name)
{
    for (int i = 0; i < node->n_served; i++)
        if (strcmp(node->served[i].name, name) == 0)
            return &node->served[i];
    return NULL;
}

static void add_dataset(pen__text *text, const pen__served *served)
{
    pen__text_add(text, "\"name\": \"%s\", \"count\": %lld, \"bytes\": %lld, \"hash\": \"%s\"",
                  served->name, (long long)pen_dataset_count(served->ds),
                  (long long)pen_dataset_bytes(served->ds), pen_dataset_hash(served->ds));
}

enum MHD_Result pen__answer_root(pen__exchange *x)
{
    const pen_node *node = x->node;
    pen__text text = {0};
    pen__text_add(&text,
                  "{\"server\": \"penstock\", \"version\": \"%s\", \"protocol\": 1, \"cpus\": %d, "
                  "\"datasets\": [",
                  pen_version(), node->opts.cpus);
    for (int i = 0; i < node->n_served; i++) {
        pen__text_add(&text, i ? ", {" : "{");
        add_dataset(&text, &node->served[i]);
        pen__text_add(&text, "}");
    }
    pen__text_add(&text, "]}\n");
    return pen__answer_text(x, MHD_HTTP_OK, json_type, &text);
}

/* The names, each by `add`.  Are they all UTF-8?  Files, and so directories, may have any names. */
static bool add_classes(pen__text *text, const pen_dataset *ds,
                        void (*add)(pen__text *, const char *, size_t))
{
    bool are_text = true;
    for (int64_t i = 0; i < pen_dataset_class_count(ds); i++) {
        const char *name = pen_dataset_class_name(ds, i);
        const size_t len = strlen(name);
        pen__text_add(text, i ? ", " : "");
        add(text, name, len);
        are_text = are_text && pen__text_is_utf8(name, len);
    }
    return are_text;
}

/* Clients take so much and no more: better none of them is served, and it is known why, than each
 * refuses what it gets. */
static int check_description(const pen__served *served, pen_error *err)
{
    const pen__text *text = &served->description;
    if (text->failed)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    if (text->len <= PEN__PART_MAX_DESCRIPTION)
        return 0;
    return pen__fail(err, PEN_ELIMIT, -1,
                     "dataset '%s' cannot be served: its description, most of it names of classes, "
                     "takes %zu bytes, and clients take %d at most",
                     served->name, text->len, (int)PEN__PART_MAX_DESCRIPTION);
}

int pen__served_describe(pen__served *served, pen_error *err)
{
    const pen_dataset *ds = served->ds;
    pen__text *text = &served->description;
    pen__text_add(text, "{");
    add_dataset(text, served);
    pen__text_add(text, ", \"kind\": \"%s\", \"classes\": [",
                  pen_source_kind_name(pen_dataset_kind(ds)));
    const bool are_text = add_classes(text, ds, pen__text_add_json);
    if (!are_text) {
        pen__text_add(text, "], \"class_bytes\": [");
        add_classes(text, ds, pen__text_add_hex);
    }
    pen__text_add(text, "], \"page\": %d", PEN__NODE_PAGE);
    if (!text->failed)
        pen__text_add(text, ", \"crc32c\": \"%08x\"}\n", pen__crc32c(0, text->data, text->len));
    return check_description(served, err);
}

/* There may be thousands of classes, and as many who ask and do not read: all get the same bytes.
 */
enum MHD_Result pen__answer_dataset(pen__exchange *x)
{
    const pen__text *text = &x->served->description;
    pthread_mutex_lock(&x->node->lock);
    x->node->stats.sent_bytes += (int64_t)text->len;
    pthread_mutex_unlock(&x->node->lock);
    return pen__answer_with(
        x, MHD_HTTP_OK,
        MHD_create_response_from_buffer(text->len, text->data, MHD_RESPMEM_PERSISTENT), json_type);
}

/* ---- blocks ---- */

static ssize_t read_block(void *ctx, uint64_t at, char *dst, size_t cap)
{
    pen__exchange *x = ctx;
    const size_t left = x->block_to - x->block_from - (size_t)at, n = left < cap ? left : cap;
    memcpy(dst, x->block.data + x->block_from + at, n);
    pthread_mutex_lock(&x->node->lock);
    x->peer->touched_ns = pen__now_ns();
    x->pace.bytes += (int64_t)n;
    x->node->stats.sent_bytes += (int64_t)n;
    pthread_mutex_unlock(&x->node->lock);
    return (ssize_t)n;
}

/* The part of the block that is sent; without body where there is none. */
static struct MHD_Response *from_block(pen__exchange *x)
{
    const size_t len = x->block_to - x->block_from;
    if (len == 0)
        return MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
    return MHD_create_response_from_callback(len, BLOCK_BYTES, read_block, x, NULL);
}

static unsigned status_of(int code)
{
    switch (code) {
    case PEN_EINVAL:
    case PEN_ENOTFOUND:
        return MHD_HTTP_NOT_FOUND;
    case PEN_ENOMEM:
    case PEN_ECANCELED:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static const char *header_of(const pen__exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

/* What of the sample is wanted; sets block_from and block_to, and tells the status. */
static unsigned apply_range(pen__exchange *x)
{
    const char *only_if = header_of(x, MHD_HTTP_HEADER_IF_RANGE);
    uint64_t from, to;
    if (only_if && strcmp(only_if, x->etag) != 0)
        return MHD_HTTP_OK;
    const pen__range_kind kind =
        pen__range_parse(header_of(x, MHD_HTTP_HEADER_RANGE), x->block_len, &from, &to);
    if (kind == PEN__RANGE_OUTSIDE)
        return MHD_HTTP_RANGE_NOT_SATISFIABLE;
    if (kind == PEN__RANGE_WHOLE)
        return MHD_HTTP_OK;
    x->block_from = (size_t)from;
    x->block_to = (size_t)to;
    return MHD_HTTP_PARTIAL_CONTENT;
}

static enum MHD_Result answer_sample(pen__exchange *x)
{
    unsigned status = apply_range(x);
    if (pen__etag_is_in(header_of(x, MHD_HTTP_HEADER_IF_NONE_MATCH), x->etag))
        status = MHD_HTTP_NOT_MODIFIED;
    if (status == MHD_HTTP_NOT_MODIFIED || status == MHD_HTTP_RANGE_NOT_SATISFIABLE)
        x->block_from = x->block_to = 0;
    struct MHD_Response *response = from_block(x);
    if (!response)
        return MHD_NO;
    char range[96] = "";
    if (status == MHD_HTTP_PARTIAL_CONTENT)
        snprintf(range, sizeof range, "bytes %zu-%zu/%zu", x->block_from, x->block_to - 1,
                 x->block_len);
    if (status == MHD_HTTP_RANGE_NOT_SATISFIABLE)
        snprintf(range, sizeof range, "bytes */%zu", x->block_len);
    if (*range)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_RANGE, range);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, x->etag);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    return pen__answer_with(x, status, response, "application/octet-stream");
}

enum MHD_Result pen__answer_block(pen__exchange *x)
{
    if (x->rc)
        return pen__answer_error(x, status_of(x->rc), x->err.text);
    if (x->route.kind == PEN__ROUTE_SAMPLE)
        return answer_sample(x);
    struct MHD_Response *response = from_block(x);
    if (!response)
        return MHD_NO;
    if (x->page.as_zstd)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "zstd");
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT_ENCODING);
    return pen__answer_with(x, MHD_HTTP_OK, response, "application/vnd.penstock.manifest");
}

/* ---- frames ---- */

static bool is_complete(const pen__exchange *x)
{
    return x->n_framed == x->order->n_items && x->queue.bytes == 0;
}

/* What waits, for the network.  The lock is held. */
static size_t take_bytes(pen__exchange *x, char *dst, size_t cap)
{
    pen_node *node = x->node;
    const bool was_full = x->queue.bytes >= node->opts.buffer_bytes;
    const size_t n = pen__queue_take(&x->queue, &node->chunks, dst, cap);
    if (n == 0)
        return 0;
    x->peer->touched_ns = pen__now_ns();
    x->pace.bytes += (int64_t)n;
    node->stats.sent_bytes += (int64_t)n;
    if (was_full)
        x->runnable_ns = x->peer->touched_ns;
    pen__hold(x, -(int64_t)n);
    return n;
}

static ssize_t read_frames(void *ctx, uint64_t at, char *dst, size_t cap)
{
    (void)at;
    pen__exchange *x = ctx;
    pen_node *node = x->node;
    pthread_mutex_lock(&node->lock);
    const size_t n = take_bytes(x, dst, cap);
    const bool is_done = is_complete(x), is_lost = x->rc || node->is_closing;
    pthread_mutex_unlock(&node->lock);
    if (n > 0)
        return (ssize_t)n;
    if (is_done)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (is_lost)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    MHD_suspend_connection(x->connection);
    pthread_mutex_lock(&node->lock);
    x->is_suspended =
        !(x->queue.bytes > 0 || is_complete(x) || x->rc || node->is_closing); /* came meanwhile */
    const bool is_suspended = x->is_suspended;
    if (is_suspended)
        pen__pace_rest(&x->pace, pen__now_ns());
    pthread_mutex_unlock(&node->lock);
    if (!is_suspended)
        MHD_resume_connection(x->connection);
    return 0;
}

/* Tell the job how much of our processors it may use.  No comma of some locale gets in. */
static void add_cores(pen__exchange *x, struct MHD_Response *response)
{
    pen_node *node = x->node;
    char text[32];
    pthread_mutex_lock(&node->lock);
    pen__work_join(node, x);
    const pen__share_limits limits = pen__work_limits(node);
    const int64_t millionths =
        (int64_t)(1e6 * pen__share_cores(&node->share, x->job, &limits, pen__now_ns()));
    pthread_mutex_unlock(&node->lock);
    snprintf(text, sizeof text, "%d.%06d", (int)(millionths / 1000000),
             (int)(millionths % 1000000)); /* a quota may be a hundredth of a core */
    MHD_add_response_header(response, "Penstock-Cores", text);
}

enum MHD_Result pen__answer_frames(pen__exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_frames, x, NULL);
    if (response)
        add_cores(x, response);
    return pen__answer_with(x, MHD_HTTP_OK, response, "application/vnd.penstock.frames");
}
