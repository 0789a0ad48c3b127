/* node.c - the life of a storage node: options, datasets, threads, and their end.
 *
 * Ending, in this order: no new connections; what is under way may go on for a while; then no more
 * work is begun (is_closing) and every suspended connection is resumed, for libmicrohttpd may not
 * be stopped while one is; threads end; libmicrohttpd ends, which completes all exchanges; the
 * index is written.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/mem.h"
#include "engine/http_guard.h"
#include "remote/node_impl.h"
#include "source/names.h"
#include "source/source.h"
#include "telemetry/limits.h"

enum {
    BACKLOG = 1024,
    MAX_CPUS = 1024,
    MAX_TOKEN = 512,
    SAVE_S = 300, /* writing an index of gigabytes is work, and only a crash loses what is new */
};

void pen_node_opts_init(pen_node_opts *opts)
{
    *opts = (pen_node_opts){
        .struct_size = sizeof *opts,
        .listen = "127.0.0.1:7470",
        .memory_bytes = (int64_t)512 << 20,
        .buffer_bytes = (int64_t)4 << 20,
        .max_connections = 8192,
        .max_requests = 512,
        .max_header_bytes = 32 * 1024,
        .requests_per_s = 20000, /* eight loaders of one machine, several times over */
        .cpus_per_client = 0,
        .idle_s = 60,
        .slow_s = 30,
        .slowest_bytes_per_s = 4096,
        .item_s = 4, /* waiting and packing together below what clients take for a stall, 10 s */
        .use_index = 1,
    };
}

/* ---- options ---- */

static int complete_opts(pen_node_opts *full, const pen_node_opts *opts, pen_error *err)
{
    pen_node_opts_init(full);
    if (!opts)
        return 0;
    if (opts->struct_size < sizeof opts->struct_size || opts->struct_size > sizeof *full)
        return pen__fail(err, PEN_EINVAL, -1,
                         "node options have a size of %zu: call pen_node_opts_init first",
                         opts->struct_size);
    memcpy(full, opts, opts->struct_size);
    full->struct_size = sizeof *full;
    return 0;
}

static int check_range(const char *name, double value, double min, double max, pen_error *err)
{
    if (value >= min && value <= max)
        return 0;
    return pen__fail(err, PEN_EINVAL, -1, "%s must be from %.9g to %.9g", name, min, max);
}

static int check_opts(const pen_node_opts *o, pen_error *err)
{
    int rc = check_range("cpus", o->cpus, 0, MAX_CPUS, err);
    if (rc == 0)
        rc = check_range("memory_bytes", (double)o->memory_bytes, 1 << 20, 0x1p60, err);
    if (rc == 0)
        rc = check_range("buffer_bytes", (double)o->buffer_bytes, 1 << 12, 0x1p60, err);
    if (rc == 0)
        rc = check_range("max_connections", o->max_connections, 1, 1 << 20, err);
    if (rc == 0)
        rc = check_range("max_per_client", o->max_per_client, 0, 1 << 20, err);
    if (rc == 0)
        rc = check_range("max_requests", o->max_requests, 1, 1 << 20, err);
    if (rc == 0)
        rc = check_range("max_header_bytes", o->max_header_bytes, 4096, 1 << 20, err);
    if (rc == 0)
        rc = check_range("requests_per_s", o->requests_per_s, 0.1, 1e9, err);
    if (rc == 0)
        rc = check_range("cpus_per_client", o->cpus_per_client, 0, MAX_CPUS, err);
    if (rc == 0)
        rc = check_range("idle_s", o->idle_s, 0.1, 1e6, err);
    if (rc == 0)
        rc = check_range("slow_s", o->slow_s, 0.1, 1e6, err);
    if (rc == 0)
        rc = check_range("slowest_bytes_per_s", (double)o->slowest_bytes_per_s, 0, 0x1p60, err);
    return rc ? rc : check_range("item_s", o->item_s, 0.1, 1e6, err);
}

static int check_access(const pen_node *node, pen_error *err)
{
    const pen_node_opts *o = &node->opts;
    if (!o->tls_cert != !o->tls_key)
        return pen__fail(err, PEN_EINVAL, -1,
                         "a certificate needs its key, and a key its certificate");
    if (o->tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return pen__fail(err, PEN_EINVAL, -1, "libmicrohttpd was built without TLS here");
    if (o->token && (!*o->token || strlen(o->token) > MAX_TOKEN))
        return pen__fail(err, PEN_EINVAL, -1, "a token has 1 to %d characters", MAX_TOKEN);
    for (const char *p = o->token; p && *p; p++)
        if (*p <= ' ' || *p > '~')
            return pen__fail(err, PEN_EINVAL, -1,
                             "a token is of visible characters, without spaces");
    if (!node->is_loopback && !o->token && !o->tls_cert)
        return pen__fail(err, PEN_EINVAL, -1,
                         "%s is not only for this machine: give the node a token, or TLS",
                         o->listen);
    return 0;
}

/* A name may have several addresses, and may get others: which of them is meant is for whoever
 * starts a node to say, all the more as a token is wanted beyond loopback. */
static int read_place(pen_node *node, pen_error *err)
{
    const char *text = node->opts.listen ? node->opts.listen : "";
    const size_t len = strcspn(text, ":");
    pen__shown shown;
    if (pen__place_parse(text, &node->place))
        return 0;
    const bool is_name = *text != '[' && text[len] == ':' && strspn(text, "0123456789.") < len;
    return pen__fail(err, PEN_EINVAL, -1,
                     "listen wants an address such as 127.0.0.1:7470 or [::]:7470, not '%s'%s",
                     pen__show(&shown, text, strlen(text)),
                     is_name ? ": names are not looked up, but localhost" : "");
}

static int copy_text(char **out, const char *text)
{
    *out = text ? pen__strdup(text) : NULL;
    return text && !*out ? PEN_ENOMEM : 0;
}

/* Some wait for disks. */
static int n_threads(const pen_node *node)
{
    return 2 * node->opts.cpus + 2;
}

static int set_up(pen_node *node, const pen_node_opts *opts, pen_error *err)
{
    int rc = complete_opts(&node->opts, opts, err);
    if (rc == 0)
        rc = check_opts(&node->opts, err);
    if (rc == 0)
        rc = read_place(node, err);
    if (rc)
        return rc;
    node->is_loopback = pen__place_is_loopback(&node->place);
    rc = check_access(node, err);
    if (rc)
        return rc;
    if (node->opts.cpus == 0)
        node->opts.cpus = pen__limit_cores();
    if (node->opts.max_per_client == 0)
        node->opts.max_per_client = (node->opts.max_connections + 3) / 4;
    node->quota_cpus = pen__limit_quota();
    if (copy_text(&node->token, node->opts.token) ||
        copy_text(&node->tls_cert, node->opts.tls_cert) ||
        copy_text(&node->tls_key, node->opts.tls_key) ||
        pen__clients_init(&node->clients, node->opts.max_connections) ||
        pen__share_init(&node->share, node->opts.max_requests + n_threads(node)))
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    node->opts.token = node->opts.tls_cert = node->opts.tls_key = node->opts.listen = NULL;
    return 0;
}

int pen_node_create(pen_node **out, const pen_node_opts *opts, pen_error *err)
{
    *out = NULL;
    pen_node *node = pen__calloc(1, sizeof *node);
    if (!node)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&node->lock, NULL);
    pthread_mutex_init(&node->header_lock, NULL);
    pthread_cond_init(&node->work, NULL);
    pthread_cond_init(&node->quiet, &monotonic);
    pthread_cond_init(&node->tick, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pen__gate_init(&node->cpu_gate);
    node->last_job = &node->jobs;
    node->save_ns = SAVE_S * INT64_C(1000000000);
    node->fd = -1;
    int rc = set_up(node, opts, err);
    if (rc) {
        pen_node_free(node);
        return rc;
    }
    *out = node;
    return 0;
}

/* ---- datasets ---- */

/* The last part of a path, without .tar or .pen. */
static void name_of(const char *spec, char out[PEN__NODE_NAME])
{
    size_t end = strlen(spec);
    while (end > 0 && spec[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && spec[begin - 1] != '/')
        begin--;
    size_t n = end - begin;
    if (n > 4 && (memcmp(spec + end - 4, ".tar", 4) == 0 || memcmp(spec + end - 4, ".pen", 4) == 0))
        n -= 4;
    if (n >= PEN__NODE_NAME)
        n = 0;
    memcpy(out, spec + begin, n);
    out[n] = '\0';
}

static int choose_name(const pen_node *node, const char *name, const char *spec,
                       char out[PEN__NODE_NAME], pen_error *err)
{
    pen__shown shown;
    if (!name)
        name_of(spec, out);
    else if (strlen(name) < PEN__NODE_NAME)
        memcpy(out, name, strlen(name) + 1);
    else
        *out = '\0';
    if (!pen__node_name_is_valid(out))
        return pen__fail(
            err, PEN_EINVAL, -1,
            "'%s' is no name for a dataset: 1 to 64 of A-Z a-z 0-9 . _ -; give another",
            pen__show(&shown, name ? name : spec, strlen(name ? name : spec)));
    if (pen__node_find(node, out))
        return pen__fail(err, PEN_EINVAL, -1, "two datasets are named '%s': name one otherwise",
                         out);
    return 0;
}

/* Not opened even once: opening asks the other node, and waits for it. */
static int refuse_remote(const char *spec, pen_error *err)
{
    pen__shown shown;
    if (!pen__is_remote(spec))
        return 0;
    return pen__fail(err, PEN_EINVAL, -1,
                     "'%s' is what another node serves, and a node serves only what its own "
                     "machine reads: it would hang whenever that one does; loaders open that "
                     "address themselves",
                     pen__show(&shown, spec, strlen(spec)));
}

int pen_node_add(pen_node *node, const char *name, const char *spec, const pen_dataset_opts *opts,
                 pen_error *err)
{
    char chosen[PEN__NODE_NAME];
    pen_dataset_opts confined;
    pen_dataset_opts_init(&confined);
    if (opts)
        memcpy(&confined, opts,
               opts->struct_size < sizeof confined ? opts->struct_size : sizeof confined);
    confined.struct_size = sizeof confined;
    confined.is_confined = true;
    confined.allow_outside = false;
    if (node->daemon)
        return pen__fail(err, PEN_EINVAL, -1, "the node runs already");
    int rc = refuse_remote(spec, err);
    if (rc == 0)
        rc = choose_name(node, name, spec, chosen, err);
    if (rc)
        return rc;
    pen__served *served = pen__realloc(node->served, (size_t)(node->n_served + 1) * sizeof *served);
    if (!served)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory");
    node->served = served;
    served += node->n_served;
    memset(served, 0, sizeof *served);
    rc = pen_dataset_open(&served->ds, spec, &confined, err);
    if (rc)
        return rc;
    memcpy(served->name, chosen, sizeof chosen);
    served->header_lock = &node->header_lock;
    rc = pen__served_describe(served, err);
    if (rc) {
        pen__text_fini(&served->description);
        pen_dataset_unref(served->ds);
        return rc;
    }
    if (node->opts.use_index)
        pen__index_open(served);
    node->n_served++;
    return 0;
}

int64_t pen_node_left_out(const pen_node *node)
{
    int64_t n = 0;
    for (int i = 0; i < node->n_served; i++)
        n += node->served[i].ds->n_outside;
    return n;
}

/* ---- start ---- */

static int listen_there(pen_node *node, pen_error *err)
{
    int fd = pen__listen_near(&node->place, 1, BACKLOG);
    pen__place_write(&node->place, node->address);
    if (fd < 0) {
        pen__fail_errno(err, -fd, "listen at", node->address);
        *node->address = '\0';
        return PEN_EIO;
    }
    node->fd = fd;
    return 0;
}

/* Up to n threads, and not none. */
static int start_pool(pen_node *node, pen__pool **out, int n, const char *name,
                      void (*run)(void *ctx, int index))
{
    int rc = pen__pool_create(out, n, name, run, node);
    return rc == 0 && pen__pool_grow(*out, n) == 0 ? PEN_ENOMEM : rc;
}

static bool has_index(const pen_node *node)
{
    for (int i = 0; i < node->n_served; i++)
        if (node->served[i].marks)
            return true;
    return false;
}

static int start_threads(pen_node *node)
{
    const int n = n_threads(node);
    int rc = pen__work_init(node, n);
    pen__gate_limit(&node->cpu_gate, node->opts.cpus);
    if (rc == 0)
        rc = start_pool(node, &node->workers, n, "pen-node", pen__work_run);
    if (rc == 0)
        rc = start_pool(node, &node->watcher, 1, "pen-watch", pen__watch_run);
    if (rc == 0 && has_index(node))
        rc = start_pool(node, &node->saver, 1, "pen-index", pen__index_run);
    return rc;
}

int pen_node_start(pen_node *node, pen_error *err)
{
    if (node->fd >= 0 || node->is_closing)
        return pen__fail(err, PEN_EINVAL, -1, "a node is started once");
    if (node->n_served == 0)
        return pen__fail(err, PEN_EINVAL, -1, "a node without a dataset serves nothing");
    if (pen__http_is_broken())
        return pen__fail(err, PEN_EIO, -1, "libmicrohttpd has given up in this process");
    int rc = listen_there(node, err);
    if (rc)
        return rc;
    rc = start_threads(node);
    if (rc == 0 && (!pen__http_call(pen__node_call_start, node) || !node->daemon))
        rc = pen__fail(err, PEN_EINVAL, -1,
                       node->tls_cert ? "libmicrohttpd does not start: certificate and key must be "
                                        "PEM and belong together"
                                      : "libmicrohttpd does not start");
    else if (rc)
        pen__fail(err, rc, -1, "no threads, or no memory for them, to be had");
    atomic_store(&node->is_running, rc == 0);
    if (rc)
        pen_node_stop(node, 0);
    return rc;
}

int64_t pen_node_address(const pen_node *node, char *dst, size_t dst_cap)
{
    const size_t n = strlen(node->address);
    if (n >= dst_cap)
        return PEN_ENOSPC;
    memcpy(dst, node->address, n + 1);
    return (int64_t)n;
}

bool pen_node_is_running(const pen_node *node)
{
    return atomic_load(&node->is_running) && !pen__http_is_broken();
}

/* ---- stop ---- */

/* The lock is held. */
static void wait_for_quiet(pen_node *node, double grace_s)
{
    const double most_s = 1e6; /* what is longer is for ever as well, and fits into nanoseconds */
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + (int64_t)((grace_s < most_s ? grace_s : most_s) * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    int rc = 0;
    while (node->n_exchanges > 0 && rc == 0)
        rc = pthread_cond_timedwait(&node->quiet, &node->lock, &until);
}

/* The lock is held, and nothing is suspended any more. */
static void resume_all(pen_node *node)
{
    for (pen__exchange *x = node->exchanges; x;) {
        if (x->is_queued && x->order)
            pen__work_dequeue(node, x); /* its stream is cut off, and the client asks elsewhere */
        else if (x->is_queued)
            pen__work_give_up(node, x, PEN_ECANCELED, "this node is about to end");
        struct MHD_Connection *connection = pen__exchange_wake(x);
        if (!connection) {
            x = x->next;
            continue;
        }
        pthread_mutex_unlock(&node->lock);
        MHD_resume_connection(connection);
        pthread_mutex_lock(&node->lock);
        x = node->exchanges; /* others may have gone meanwhile */
    }
}

void pen_node_stop(pen_node *node, double grace_s)
{
    if (node->fd < 0)
        return;
    const bool is_up = node->daemon && !pen__http_is_broken();
    if (is_up && pen__http_call(pen__node_call_quiesce, node))
        shutdown(node->fd, SHUT_RDWR); /* who comes now is refused, not kept waiting */
    pthread_mutex_lock(&node->lock);
    node->is_stopping = true;
    if (is_up && grace_s > 0)
        wait_for_quiet(node, grace_s);
    node->is_closing = true;
    pen__work_cancel(node, NULL);
    if (is_up)
        resume_all(node);
    pthread_cond_broadcast(&node->work);
    pthread_cond_broadcast(&node->tick);
    pthread_mutex_unlock(&node->lock);
    pen__pool_join(node->workers);
    pen__pool_join(node->watcher);
    pen__pool_join(node->saver);
    node->workers = node->watcher = node->saver = NULL;
    atomic_store(&node->is_running, false);
    if (is_up && pen__http_call(pen__node_call_stop, node))
        node->daemon = NULL;
    close(node->fd);
    node->fd = -1;
    pen__index_save(node); /* last, for nobody waits for it but who ends the node */
}

void pen_node_free(pen_node *node)
{
    if (!node)
        return;
    pen_node_stop(node, 0);
    if (node->daemon)
        return; /* libmicrohttpd is broken: nobody knows what its thread still looks at */
    for (int i = 0; i < node->n_served; i++) {
        pen__text_fini(&node->served[i].description);
        pen__index_close(&node->served[i]);
        pen_dataset_unref(node->served[i].ds);
        pen__free(node->served[i].headers);
    }
    pen__free(node->served);
    pen__pipelines_fini(&node->pipelines);
    pen__clients_fini(&node->clients);
    pen__share_fini(&node->share);
    pen__chunks_fini(&node->chunks);
    pen__work_fini(node);
    pen__gate_fini(&node->cpu_gate);
    pthread_cond_destroy(&node->work);
    pthread_cond_destroy(&node->quiet);
    pthread_cond_destroy(&node->tick);
    pthread_mutex_destroy(&node->lock);
    pthread_mutex_destroy(&node->header_lock);
    pen__free(node->token);
    pen__free(node->tls_cert);
    pen__free(node->tls_key);
    pen__free(node);
}
