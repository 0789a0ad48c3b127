/* node_work.c - threads that read and pack samples, and which sample is next.
 *
 * There are more threads than CPUs may be used: a thread that waits for a disk needs none, and a
 * gate lets only so many pack at once.  Which of the requests that have room for another frame is
 * next depends on whose they are (node_share.h).
 *
 * A request has room while the frames that wait for its client are below a limit, and there is
 * memory for what comes next.  That is taken before a thread begins, so that answers which nobody
 * reads hold a known number of bytes, and no thread.
 *
 * What brings work, or room enough for it (node_stream.c), wakes one thread, and a thread that
 * found something wakes the next if there may be more: most requests are for a sample or two, and
 * all threads waking up for each took a fifth of what sending a file takes.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/field_parcel.h"
#include "remote/node_impl.h"

enum {
    PAGE_BYTES = 128 * PEN__NODE_PAGE, /* of the manifest: a guess, until it is made */
    KEEP_BYTES = 1 << 20,              /* of a thread's buffers, while it waits */
};

/* One thread's tools. */
typedef struct worker {
    pen_node *node;
    pen__bytes_coder *coder; /* of fields; NULL until it is needed */
    pen__room file, frame, marks;
    pen__at_work *at;
    pen__jpeg_index_state indexed; /* of the sample that was packed last */
} worker;

/* What it is at. */
typedef struct task {
    pen__exchange *exchange;
    int item; /* -1: the block */
    pen__turn turn;
    bool may_pack;
    int64_t bytes; /* held for what it makes */
} task;

/* ---- the line of those who wait; the lock is held ---- */

void pen__work_join(pen_node *node, pen__exchange *x)
{
    pen__client *client = x->client;
    uint64_t key[3] = {0, 0, x->order ? x->order->job : 0};
    memcpy(key, client->address, sizeof client->address);
    x->job =
        pen__share_enter(&node->share, &client->share, pen__hash64(key, sizeof key), pen__now_ns());
}

pen__share_limits pen__work_limits(const pen_node *node)
{
    return (pen__share_limits){fmin(node->opts.cpus, node->quota_cpus), node->opts.cpus_per_client};
}

void pen__work_enqueue(pen_node *node, pen__exchange *exchange)
{
    if (!exchange->job)
        pen__work_join(node, exchange);
    exchange->next_job = NULL;
    exchange->is_queued = true;
    exchange->runnable_ns = pen__now_ns();
    *node->last_job = exchange;
    node->last_job = &exchange->next_job;
    node->n_waiting_items += exchange->order ? exchange->order->n_items : 1;
    pthread_cond_signal(&node->work);
}

void pen__work_dequeue(pen_node *node, pen__exchange *exchange)
{
    if (!exchange->is_queued)
        return;
    exchange->is_queued = false;
    node->n_waiting_items -= exchange->order ? exchange->order->n_items - exchange->next_item : 1;
    for (pen__exchange **at = &node->jobs; *at; at = &(*at)->next_job)
        if (*at == exchange) {
            *at = exchange->next_job;
            if (!*at)
                node->last_job = at;
            break;
        }
}

/* The longest parcel of a file.  Pixels that outgrow it and what a request may have in memory are
 * not made. */
static size_t parcel_cap(const pen_node *node, const pen_pipeline *pipe, size_t len)
{
    const size_t cap = pen__parcel_bound(pipe, len), raw = pen__parcel_bound(NULL, len);
    return cap > raw && (int64_t)cap > node->opts.buffer_bytes ? raw : cap;
}

/* May something be made of what is stored? */
static bool is_work(const pen__exchange *x, const pen__node_item *item)
{
    const uint32_t made = PEN__FORMS_ALL & ~(1U << PEN__FORM_RAW);
    return (item->forms & made) != 0 && (item->field != PEN_FIELD_IMAGE || x->pipe);
}

/* What the next piece of an answer takes. */
static int64_t bytes_ahead(const pen_node *node, const pen__exchange *x)
{
    if (x->route.kind == PEN__ROUTE_MANIFEST)
        return PAGE_BYTES;
    const pen__node_item *item = x->order ? &x->order->items[x->next_item] : NULL;
    const pen_field field = item ? item->field : x->route.field;
    const int64_t len =
        pen_dataset_field_length(x->served->ds, item ? item->id : x->route.id, field);
    if (len < 0 || len > node->opts.memory_bytes / 2)
        return sizeof(pen_error); /* it will not be read */
    if (!item)
        return len;
    return PEN__FRAME_HEAD +
           (field == PEN_FIELD_IMAGE
                ? (int64_t)parcel_cap(node, is_work(x, item) ? x->pipe : NULL, (size_t)len)
                : PEN__FIELD_HEAD + len);
}

static bool has_room(const pen_node *node, const pen__exchange *exchange)
{
    return exchange->queue.bytes < node->opts.buffer_bytes &&
           pen__may_hold(exchange, bytes_ahead(node, exchange));
}

static pen__exchange *choose(pen_node *node, pen__turn *turn)
{
    pen__contest contest = pen__share_contest(&node->share);
    pen__exchange *best = NULL;
    for (pen__exchange *x = node->jobs; x && contest.turn == PEN__TURN_WORTH; x = x->next_job)
        if (has_room(node, x))
            pen__contest_enter(&contest, x->job);
    for (pen__exchange *x = node->jobs; x; x = x->next_job)
        if (has_room(node, x) && pen__contest_prefers(&contest, x->job, best ? best->job : NULL))
            best = x;
    *turn = contest.turn;
    if (best)
        pen__share_take(&node->share, best->job, contest.turn);
    return best;
}

static bool take_task(pen_node *node, task *out)
{
    pen__turn turn;
    pen__exchange *x = choose(node, &turn);
    if (!x) {
        node->is_short = node->jobs != NULL;
        return false;
    }
    const int64_t now = pen__now_ns();
    *out = (task){.exchange = x, .item = -1, .turn = turn, .bytes = bytes_ahead(node, x)};
    pen__hold(x, out->bytes);
    if (!x->order || x->next_item + 1 == x->order->n_items)
        pen__work_dequeue(node, x);
    else
        node->n_waiting_items--;
    if (x->order) {
        out->item = x->next_item++;
        out->may_pack = pen__client_may_pack(x->client, now, &node->opts);
        node->stats.limited_items += !out->may_pack && is_work(x, &x->order->items[out->item]);
    }
    x->runnable_ns = now;
    x->n_held++;
    return true;
}

/* ---- frames ---- */

static int count_error(pen_node *node, int code)
{
    const int number = code < 0 && code > -16 ? -code : 0;
    node->stats.item_errors[number]++;
    return code;
}

/* The lock is held.  A stream that lacks a frame is never complete: it ends with an error, and the
 * client asks again.  Nothing more is made for it. */
static void put_frame(pen_node *node, pen__exchange *x, const uint8_t *frame, size_t len)
{
    if (pen__queue_put(&x->queue, &node->chunks, frame, len) != 0) {
        x->rc = PEN_ENOMEM;
        pen__work_dequeue(node, x);
        return;
    }
    x->n_framed++;
    pen__hold(x, (int64_t)len);
}

static void put_error(pen_node *node, pen__exchange *x, int item, int code, const char *why)
{
    uint8_t frame[PEN__FRAME_HEAD + sizeof(((pen_error *)0)->text)];
    const size_t n = strnlen(why, sizeof frame - PEN__FRAME_HEAD);
    memcpy(frame + PEN__FRAME_HEAD, why, n);
    pen__frame_write_head(frame, (uint32_t)item, x->order->items[item].id, count_error(node, code),
                          0, frame + PEN__FRAME_HEAD, n);
    put_frame(node, x, frame, PEN__FRAME_HEAD + n);
}

void pen__work_give_up(pen_node *node, pen__exchange *x, int code, const char *why)
{
    pen__work_dequeue(node, x);
    if (!x->order) { /* 503 */
        x->rc = pen__fail(&x->err, PEN_ECANCELED, -1, "%s", why);
        x->phase = PEN__PHASE_READY;
        return;
    }
    for (; x->next_item < x->order->n_items; x->next_item++) {
        put_error(node, x, x->next_item, code, why);
        node->stats.late_items++;
    }
}

void pen__work_cancel(pen_node *node, const pen__exchange *x)
{
    for (int i = 0; i < node->n_threads; i++)
        if (node->at_work[i].exchange && (!x || node->at_work[i].exchange == x))
            atomic_store(&node->at_work[i].is_cancelled, true);
}

/* ---- items ---- */

/* The parcel behind a frame's head in w->frame; its length or a PEN_E*. */
static int64_t pack_item(worker *w, const task *t, int64_t len, pen_error *err)
{
    const pen__exchange *x = t->exchange;
    const pen__node_item *item = &x->order->items[t->item];
    pen__pack_order order = {
        .pipe = t->may_pack && is_work(x, item) ? x->pipe : NULL,
        .key = {.seed = x->order->seed,
                .sample = item->id + x->order->base,
                .epoch = item->epoch,
                .occurrence = item->occurrence},
        .max_cut = item->max_cut,
        .forms = item->forms,
    };
    const size_t cap = parcel_cap(w->node, order.pipe, (size_t)len);
    if (cap < pen__parcel_bound(order.pipe, (size_t)len))
        order.pipe = NULL;
    if (pen__room_reserve(&w->frame, PEN__FRAME_HEAD + cap) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    size_t n_marks = 0;
    order.wants_index = order.pipe && w->marks.data && pen__index_wants(x->served, item->id);
    if (order.wants_index)
        n_marks = pen__sidecar_get(x->served->marks, item->id, w->marks.data, w->marks.cap);
    /* Stored files take no part in the queue for processors. */
    const int ticket = order.pipe ? pen__gate_enter(&w->node->cpu_gate) : 0;
    const int64_t n =
        pen__pack(w->at->packer, &order, w->file.data, (size_t)len, n_marks ? w->marks.data : NULL,
                  n_marks, w->frame.data + PEN__FRAME_HEAD, cap, err);
    if (order.pipe)
        pen__gate_leave(&w->node->cpu_gate, ticket);
    const pen__jpeg_indexed indexed = pen__packer_indexed(w->at->packer);
    if (order.wants_index)
        pen__index_keep(x->served, item->id, &indexed);
    w->indexed = indexed.state;
    return n;
}

/* The same for a field beside the image.  What is tried stands behind what is sent. */
static int64_t pack_field(worker *w, const task *t, int64_t len, pen_error *err)
{
    const pen__node_item *item = &t->exchange->order->items[t->item];
    const size_t bound = PEN__FRAME_HEAD + PEN__FIELD_HEAD + (size_t)len;
    bool is_coded = t->may_pack && pen__field_may_shrink(item->forms, (size_t)len);
    if (is_coded && !w->coder && pen__bytes_coder_create(&w->coder) != 0)
        is_coded = false;
    if (pen__room_reserve(&w->frame, bound + (is_coded ? (size_t)len : 0)) != 0)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    const int ticket = is_coded ? pen__gate_enter(&w->node->cpu_gate) : 0;
    const size_t n = pen__field_pack(w->coder, item->field, item->forms, w->file.data, (size_t)len,
                                     w->frame.data + PEN__FRAME_HEAD,
                                     is_coded ? w->frame.data + bound : NULL, &w->at->is_cancelled);
    if (is_coded)
        pen__gate_leave(&w->node->cpu_gate, ticket);
    return (int64_t)n;
}

/* The lock is held. */
static void look_at_sending(pen_node *node)
{
    const pen__node_stats *s = &node->stats;
    pen__sending_sums sums = {.sent_bytes = s->sent_bytes,
                              .frames = s->frames,
                              .work_ns = s->pack_cpu_ns + s->block_cpu_ns + s->parse_cpu_ns};
    if (!pen__sending_is_due(&node->sending, &sums))
        return;
    sums.process_ns = pen__process_cpu_ns();
    pen__sending_look(&node->sending, &sums);
}

static void do_item(worker *w, const task *t)
{
    pen_node *node = w->node;
    pen__exchange *x = t->exchange;
    const pen__node_item *item = &x->order->items[t->item];
    const bool is_image = item->field == PEN_FIELD_IMAGE;
    const int64_t id = item->id, began = pen__thread_cpu_ns();
    pen_error err = {0};
    w->indexed = PEN__INDEX_NONE;
    const int64_t len = pen__served_read(node, x->served, id, item->field, &w->file, &err);
    const int64_t n = len < 0 ? len : (is_image ? pack_item : pack_field)(w, t, len, &err);
    if (n >= 0) {
        if (is_image)
            pen__served_note(x->served, id, w->frame.data + PEN__FRAME_HEAD, (size_t)n);
        pen__frame_write_head(w->frame.data, (uint32_t)t->item, id, 0,
                              pen__thread_cpu_ns() - began +
                                  pen__sending_ns(&node->sending, is_image, n),
                              w->frame.data + PEN__FRAME_HEAD, (size_t)n);
    }
    const int64_t work_ns = pen__thread_cpu_ns() - began,
                  cpu_ns = work_ns + (n < 0 ? 0 : pen__sending_ns(&node->sending, is_image, n));

    pthread_mutex_lock(&node->lock);
    node->stats.pack_cpu_ns += work_ns;
    node->stats.index_made += w->indexed == PEN__INDEX_MADE;
    node->stats.index_hits += w->indexed == PEN__INDEX_KNOWN;
    node->stats.cancelled_items += is_work(x, item) && atomic_load(&w->at->is_cancelled);
    (t->may_pack && is_work(x, item) ? pen__client_used : pen__client_took)(
        x->client, cpu_ns); /* also if it hung up */
    pen__share_used(&node->share, x->job, t->turn, cpu_ns, n < 0 || x->is_over ? 0 : len - n,
                    pen__now_ns());
    if (!x->is_over) {
        if (n < 0) {
            put_error(node, x, t->item, (int)n, err.text);
        } else {
            put_frame(node, x, w->frame.data, PEN__FRAME_HEAD + (size_t)n);
            node->stats.items[w->frame.data[PEN__FRAME_HEAD + 1]]++; /* its form */
            node->stats.fields += !is_image;
            node->stats.frames += is_image;
            node->stats.raw_bytes += len;
            node->stats.parcel_bytes += n;
        }
    }
    look_at_sending(node);
    pen__hold(x, -t->bytes);
}

/* ---- blocks ---- */

static int64_t make_block(worker *w, pen__exchange *x, pen__room *out, char etag[PEN__ETAG_TEXT],
                          pen_error *err)
{
    if (x->route.kind == PEN__ROUTE_MANIFEST)
        return pen__manifest_write(w->node, x->served, &x->page, &w->at->is_cancelled, &w->file,
                                   out, err);
    char digest[PEN__DIGEST_TEXT];
    const int64_t len = pen__served_read(w->node, x->served, x->route.id, x->route.field, out, err);
    if (len < 0)
        return len;
    pen__digest(out->data, (size_t)len, digest);
    etag[0] = etag[PEN__ETAG_TEXT - 2] = '"';
    etag[PEN__ETAG_TEXT - 1] = '\0';
    memcpy(etag + 1, digest, PEN__DIGEST_TEXT - 1);
    return len;
}

static void do_block(worker *w, const task *t)
{
    pen__exchange *x = t->exchange;
    pen_error err = {0};
    pen__room block = {0};
    char etag[PEN__ETAG_TEXT] = "";
    const int64_t began = pen__thread_cpu_ns(), len = make_block(w, x, &block, etag, &err),
                  cpu_ns = pen__thread_cpu_ns() - began;
    if (len < 0)
        pen__room_fini(&block);
    pthread_mutex_lock(&w->node->lock);
    x->block = block;
    x->err = err;
    x->rc = len < 0 ? (int)len : 0;
    x->block_len = x->block_to = len < 0 ? 0 : (size_t)len;
    memcpy(x->etag, etag, sizeof etag);
    x->phase = PEN__PHASE_READY;
    w->node->stats.block_cpu_ns += cpu_ns;
    w->node->stats.frames += len >= 0;
    pen__share_used(&w->node->share, x->job, t->turn, cpu_ns, 0, pen__now_ns());
    pen__client_used(x->client, cpu_ns);
    pen__hold(x, (int64_t)x->block_len - t->bytes);
}

/* ---- a thread ---- */

/* The lock is held, and is free while the task is done. */
static void do_task(worker *w, const task *t)
{
    pen_node *node = w->node;
    w->at->exchange = t->exchange;
    w->at->began_ns = pen__now_ns();
    atomic_store(&w->at->is_cancelled, false);
    pthread_mutex_unlock(&node->lock);
    (t->item < 0 ? do_block : do_item)(w, t); /* takes the lock */
    w->at->exchange = NULL;
    t->exchange->n_held--;
    struct MHD_Connection *connection = pen__exchange_wake(t->exchange);
    pen__exchange_settle(t->exchange);
    if (connection) {
        pthread_mutex_unlock(&node->lock);
        MHD_resume_connection(connection);
        pthread_mutex_lock(&node->lock);
    }
}

int pen__work_init(pen_node *node, int n_threads)
{
    int rc = 0;
    node->at_work = pen__calloc((size_t)n_threads, sizeof *node->at_work);
    if (!node->at_work)
        return PEN_ENOMEM;
    node->n_threads = n_threads;
    for (int i = 0; rc == 0 && i < n_threads; i++)
        rc = pen__packer_create(&node->at_work[i].packer, &node->at_work[i].is_cancelled);
    return rc;
}

void pen__work_fini(pen_node *node)
{
    for (int i = 0; i < node->n_threads; i++)
        pen__packer_free(node->at_work[i].packer);
    pen__free(node->at_work);
}

void pen__work_run(void *ctx, int index)
{
    pen_node *node = ctx;
    worker w = {.node = node, .at = &node->at_work[index]};
    pen__room_reserve(&w.marks, PEN__JPEG_MARKS_MAX); /* does without */
    pthread_mutex_lock(&node->lock);
    for (task t; !node->is_closing;)
        if (take_task(node, &t)) {
            if (node->jobs)
                pthread_cond_signal(&node->work);
            do_task(&w, &t);
        } else {
            pen__room_trim(&w.file, KEEP_BYTES);
            pen__room_trim(&w.frame, KEEP_BYTES);
            pthread_cond_wait(&node->work, &node->lock);
        }
    pthread_mutex_unlock(&node->lock);
    pen__bytes_coder_free(w.coder);
    pen__room_fini(&w.file);
    pen__room_fini(&w.frame);
    pen__room_fini(&w.marks);
}
