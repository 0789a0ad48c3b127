/* node_watch.c - the thread that looks several times a second who is too slow.
 *
 * A limit on silence would let a byte now and then keep a connection alive.  So it is counted how
 * long one takes to come a step further: to make a request, or to take the next piece of an answer
 * (some ten kilobytes).  As who takes a piece now and then would hold what it asked for all day, so
 * much of an answer must be taken over so long a time.  Who takes too long is cut off by closing
 * the socket's both directions; libmicrohttpd finds that and does the rest.
 *
 * Samples that no thread has come to for too long are answered with an error: better than to let
 * the client wait for a node that is drowned.  Those that take a thread too long are sent in the
 * smallest form that it has found by then.
 *
 * A connection that is suspended is not looked at by libmicrohttpd: who hangs up while threads work
 * for it is found here.
 */
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "remote/node_impl.h"

enum { PERIOD_MS = 100, QUIET_MS = 1000 };

/* How long it may stay as it is; 0: as long as it takes us. */
static double patience_s(const pen_node *node, const pen__peer *peer)
{
    const pen__exchange *x = peer->exchange;
    if (!x || x->phase == PEN__PHASE_RECEIVING)
        return node->opts.idle_s;
    return x->phase == PEN__PHASE_SENDING && !x->is_suspended ? node->opts.slow_s : 0;
}

static bool is_stuck(const pen_node *node, const pen__peer *peer, int64_t now)
{
    const double patience = patience_s(node, peer);
    return patience > 0 && (double)(now - peer->touched_ns) * 1e-9 >= patience;
}

/* ---- how fast an answer is taken ---- */

void pen__pace_begin(pen__pace *pace, int64_t now_ns)
{
    *pace = (pen__pace){.from_ns = now_ns};
}

void pen__pace_rest(pen__pace *pace, int64_t now_ns)
{
    pace->rest_ns = now_ns;
}

void pen__pace_go_on(pen__pace *pace, int64_t now_ns)
{
    if (pace->rest_ns)
        pace->from_ns += now_ns - pace->rest_ns;
    pace->rest_ns = 0;
}

bool pen__pace_is_slow(pen__pace *pace, int64_t now_ns, const pen_node_opts *opts)
{
    if (pace->rest_ns || (double)(now_ns - pace->from_ns) * 1e-9 < opts->slow_s)
        return false;
    const bool is_slow = (double)pace->bytes < (double)opts->slowest_bytes_per_s * opts->slow_s;
    pen__pace_begin(pace, now_ns);
    return is_slow;
}

/* A socket that takes bytes waits for us, not for who is behind it. */
static bool takes_bytes(const pen__peer *peer)
{
    struct pollfd fd = {.fd = peer->fd, .events = POLLOUT};
    return poll(&fd, 1, 0) > 0;
}

static bool is_trickling(const pen_node *node, const pen__peer *peer, int64_t now)
{
    pen__exchange *x = peer->exchange;
    return x && x->phase == PEN__PHASE_SENDING && pen__pace_is_slow(&x->pace, now, &node->opts) &&
           !takes_bytes(peer);
}

/* ---- who is cut off, and who gives up ---- */

static void cut_slow(pen_node *node, int64_t now)
{
    for (pen__peer *p = node->peers; p; p = p->next) {
        if (p->is_cut || !(is_stuck(node, p, now) || is_trickling(node, p, now)))
            continue;
        shutdown(p->fd, SHUT_RDWR);
        p->is_cut = true;
        node->stats.cut_connections++;
    }
}

/* Give up requests that waited for too long, up to the first one whose connection is to be resumed;
 * NULL: there are no more. */
static struct MHD_Connection *give_up_late(pen_node *node, int64_t now)
{
    for (pen__exchange *x = node->jobs; x; x = x->next_job) {
        const bool could_run = !x->order || x->queue.bytes < node->opts.buffer_bytes;
        if (!could_run || (double)(now - x->runnable_ns) * 1e-9 < node->opts.item_s)
            continue;
        pen__work_give_up(node, x, PEN_EIO, "this node is overloaded: try again later");
        struct MHD_Connection *connection = pen__exchange_wake(x);
        if (connection)
            return connection;
    }
    return NULL;
}

/* Whoever waits for room hears of what little there is by now: the client may take no more for a
 * while. */
static void tell_room(pen_node *node)
{
    if (node->is_short && node->freed_bytes > 0)
        pen__wake_short(node);
}

static bool has_hung_up(const pen__peer *peer)
{
    struct pollfd fd = {.fd = peer->fd, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Let go of the first request whose client has gone; the connection to resume, or NULL. */
static struct MHD_Connection *let_gone_go(pen_node *node)
{
    for (pen__peer *p = node->peers; p; p = p->next) {
        pen__exchange *x = p->exchange;
        if (!x || !x->is_suspended || !has_hung_up(p))
            continue;
        if (!x->order && !x->is_queued) { /* a thread is at the block */
            pen__work_cancel(node, x);
            continue;
        }
        if (x->order) {
            pen__work_dequeue(node, x);
            x->rc = PEN_ECANCELED; /* its stream ends, and with it what is under way */
        } else {
            pen__work_give_up(node, x, PEN_ECANCELED, "hung up");
        }
        return pen__exchange_wake(x);
    }
    return NULL;
}

static void cancel_long(pen_node *node, int64_t now)
{
    for (int i = 0; i < node->n_threads; i++) {
        pen__at_work *at = &node->at_work[i];
        if (at->exchange && (double)(now - at->began_ns) * 1e-9 >= node->opts.item_s)
            atomic_store(&at->is_cancelled, true);
    }
}

/* A burst is over: give memory back that it has left behind.  The lock is held, and free meanwhile.
 */
static void tidy_up(pen_node *node, int64_t now)
{
    if (node->quiet_ns == 0 || node->n_heavy > 0 || now - node->quiet_ns < QUIET_MS * 1000000LL)
        return;
    node->quiet_ns = 0;
    pen__sending_pause(&node->sending);
    pen__chunks_fini(&node->chunks);
    pthread_mutex_unlock(&node->lock);
    pen__mem_trim();
    pthread_mutex_lock(&node->lock);
}

void pen__watch_wait(pen_node *node, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&node->tick, &node->lock, &until);
}

void pen__watch_run(void *ctx, int index)
{
    (void)index;
    pen_node *node = ctx;
    pthread_mutex_lock(&node->lock);
    while (!node->is_closing) {
        const int64_t now = pen__now_ns();
        tell_room(node);
        cut_slow(node, now);
        cancel_long(node, now);
        for (struct MHD_Connection *c; (c = give_up_late(node, now)) || (c = let_gone_go(node));) {
            pthread_mutex_unlock(&node->lock);
            MHD_resume_connection(c);
            pthread_mutex_lock(&node->lock);
        }
        tidy_up(node, now);
        pen__watch_wait(node, PERIOD_MS * 1000000LL);
    }
    pthread_mutex_unlock(&node->lock);
}
