/* serve.c - hand out what loaders are doing, by HTTP.
 *
 *     GET /metrics       OpenMetrics of all loaders that share the address
 *     GET /status.json   what `penstock top` shows
 *     PUT /knobs         turns knobs (serve_knobs.c); on the local socket only
 *
 * libmicrohttpd speaks HTTP, in one thread for an address.  The first loader that wants an
 * address begins its server, the last one that leaves ends it: MHD_stop_daemon, which joins.
 * The local socket (for `penstock top PID`) is an abstract one, named by the process, so that
 * nothing is left of it whatever way a process ends; it answers its own user and root only.
 *
 * Two locks.  `life` is held while servers begin and end, and is never wanted by their threads;
 * `list` guards which loaders there are, and is held while a request looks at them: a loader
 * that left the list is seen by nobody.  `life` comes first.
 *
 * A forked child has the sockets but not the threads, so it closes them: whoever connects
 * shall not wait for an answer from there.
 *
 * libmicrohttpd aborts the process when it finds itself broken.  A training run is worth more
 * than its metrics: http_guard.c ends its thread instead.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <penstock/metrics.h>

#include "base/fail.h"
#include "base/mem.h"
#include "base/place.h"
#include "engine/http_guard.h"
#include "engine/loader_impl.h"
#include "engine/views.h"

enum {
    MAX_CONNECTIONS = 16,
    IDLE_S = 5,                /* a connection that says nothing for so long is closed */
    REQUEST_BYTES = 16 * 1024, /* of memory for a connection */
    PORTS = 16,                /* tried upwards, where another process has the first */
    AT_ADDRESS = 0,            /* pen_loader.servers */
    LOCALLY = 1,
};

typedef struct pen__server {
    struct pen__server *next;
    bool is_local, is_loopback;
    pen__place wanted;             /* what was asked for; the port may have become another */
    char address[PEN__PLACE_TEXT]; /* what it came to */
    int fd;
    struct MHD_Daemon *daemon;
    const pen_loader **loaders; /* guarded by `list`, as all that follows */
    int n, cap;
    pen_guest *guests; /* of the local one */
} pen__server;

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER, list = PTHREAD_MUTEX_INITIALIZER;
static pen__server *servers;

static bool is_empty(const pen__server *server)
{
    return server->n == 0 && !server->guests;
}

void pen__serve_lock(void)
{
    pthread_mutex_lock(&list);
}

void pen__serve_unlock(void)
{
    pthread_mutex_unlock(&list);
}

/* ---- forks ---- */

static void before_fork(void)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&list);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&list);
    pthread_mutex_unlock(&life);
}

static void in_child(void)
{
    for (const pen__server *s = servers; s; s = s->next)
        close(s->fd);
    servers = NULL;
    after_fork();
}

static void prepare(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- answers ---- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
                             const char *body, size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (status != MHD_HTTP_OK)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned status, const char *why)
{
    return reply(connection, status, "text/plain; charset=utf-8", why, strlen(why));
}

/* May who is at the other end of a local socket ask? */
static bool is_our_user(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (!info || getsockopt(info->connect_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

/* A web page that has its own name resolve to 127.0.0.1 could read what we say; its name is
 * in the header. */
static bool is_host_plain(struct MHD_Connection *connection)
{
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    char name[64];
    unsigned char number[16];
    if (!host)
        return true;
    if (*host == '[')
        return true; /* a number: names have no brackets */
    size_t len = strcspn(host, ":");
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, number) == 1;
}

typedef int (*writer)(const pen__server *server, pen__text *text);

static int write_metrics(const pen__server *server, pen__text *text)
{
    return pen__metrics_write(server->loaders, server->n, text);
}

static int write_status(const pen__server *server, pen__text *text)
{
    return pen__status_write_all(server->loaders, server->n, server->guests, text);
}

static enum MHD_Result answer_with(const pen__server *server, struct MHD_Connection *connection,
                                   writer write, const char *type)
{
    pen__text text = {0};
    pthread_mutex_lock(&list);
    int rc = write(server, &text);
    pthread_mutex_unlock(&list);
    enum MHD_Result result =
        rc ? refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, pen_error_message(rc))
           : reply(connection, MHD_HTTP_OK, type, text.data, text.len);
    pen__text_fini(&text);
    return result;
}

/* Knobs are turned by who may do anything else to the process as well, not by the network. */
static enum MHD_Result turn_knobs(const pen__server *server, struct MHD_Connection *connection)
{
    pen_error err = {0};
    pthread_mutex_lock(&list);
    int rc = pen__serve_turn(connection, server->loaders, server->n, server->guests, &err);
    pthread_mutex_unlock(&list);
    if (rc == 0)
        return answer_with(server, connection, write_status, "application/json");
    const unsigned status = rc == PEN_EINVAL      ? MHD_HTTP_BAD_REQUEST
                            : rc == PEN_ENOTFOUND ? MHD_HTTP_NOT_FOUND
                                                  : MHD_HTTP_INTERNAL_SERVER_ERROR;
    return refuse(connection, status, err.text);
}

static enum MHD_Result answer(void *ctx, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_len, void **state)
{
    const pen__server *server = ctx;
    (void)version, (void)upload, (void)upload_len, (void)state;
    if (server->is_local ? !is_our_user(connection)
                         : server->is_loopback && !is_host_plain(connection))
        return refuse(connection, MHD_HTTP_FORBIDDEN, "not for you\n");
    if (server->is_local && strcmp(method, MHD_HTTP_METHOD_PUT) == 0 && strcmp(url, "/knobs") == 0)
        return turn_knobs(server, connection);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET it\n");
    if (strcmp(url, "/metrics") == 0)
        return answer_with(server, connection, write_metrics,
                           "application/openmetrics-text; version=1.0.0; charset=utf-8");
    if (strcmp(url, "/status.json") == 0)
        return answer_with(server, connection, write_status, "application/json");
    return refuse(connection, MHD_HTTP_NOT_FOUND, "/metrics and /status.json are here\n");
}

/* ---- sockets ---- */

/* At the place that is wanted, or at the next free port above it. */
static int listen_near(pen__server *server)
{
    pen__place at = server->wanted;
    int fd = pen__listen_near(&at, PORTS, MAX_CONNECTIONS);
    if (fd >= 0)
        pen__place_write(&at, server->address);
    return fd;
}

static int listen_locally(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX}; /* a first byte of 0: abstract */
    const int n =
        snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "penstock-%lld", (long long)getpid());
    return pen__listen_at((const struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n),
                          MAX_CONNECTIONS);
}

/* ---- servers; `life` is held ---- */

static void call_start(void *ctx)
{
    pen__server *server = ctx;
    const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD |
                           (server->wanted.any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0U);
    server->daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, answer, server, MHD_OPTION_LISTEN_SOCKET, server->fd,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_END);
}

static void call_stop(void *ctx)
{
    const pen__server *server = ctx;
    MHD_stop_daemon(server->daemon);
}

static pen__server *find_server(const pen__place *wanted, bool is_local)
{
    for (pen__server *s = servers; s; s = s->next)
        if (s->is_local == is_local &&
            (is_local || memcmp(&s->wanted, wanted, sizeof *wanted) == 0))
            return s;
    return NULL;
}

/* 0, or -errno. */
static int begin_server(const pen__place *wanted, bool is_local, pen__server **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    if (pen__http_is_broken())
        return -EIO;
    pen__server *server = pen__calloc(1, sizeof *server);
    if (!server)
        return -ENOMEM;
    server->is_local = is_local;
    if (!is_local) {
        server->wanted = *wanted;
        server->is_loopback = pen__place_is_loopback(wanted);
    }
    server->fd = is_local ? listen_locally() : listen_near(server);
    if (server->fd < 0) {
        int rc = server->fd;
        pen__free(server);
        return rc;
    }
    const bool is_sound = pen__http_call(call_start, server);
    if (!server->daemon) {
        close(server->fd);
        if (is_sound)
            pen__free(server);
        return -ENOMEM;
    }
    pthread_mutex_lock(&list);
    server->next = servers;
    servers = server;
    pthread_mutex_unlock(&list);
    *out = server;
    return 0;
}

static void end_server(pen__server *server)
{
    pthread_mutex_lock(&list);
    for (pen__server **at = &servers; *at; at = &(*at)->next)
        if (*at == server) {
            *at = server->next;
            break;
        }
    pthread_mutex_unlock(&list);
    if (!pen__http_call(call_stop, server)) /* joins its thread, closes the socket */
        return;                             /* lost: nobody knows who still holds it */
    pen__free(server->loaders);
    pen__free(server);
}

static int show(pen__server *server, const pen_loader *loader)
{
    int rc = 0;
    pthread_mutex_lock(&list);
    if (server->n == server->cap) {
        const int cap = server->cap ? 2 * server->cap : 4;
        const pen_loader **loaders = pen__realloc(server->loaders, (size_t)cap * sizeof *loaders);
        if (loaders) {
            server->loaders = loaders;
            server->cap = cap;
        } else {
            rc = -ENOMEM;
        }
    }
    if (rc == 0)
        server->loaders[server->n++] = loader;
    pthread_mutex_unlock(&list);
    return rc;
}

static void hide(pen__server *server, const pen_loader *loader)
{
    pthread_mutex_lock(&list);
    for (int i = 0; i < server->n; i++)
        if (server->loaders[i] == loader) {
            memmove(&server->loaders[i], &server->loaders[i + 1],
                    (size_t)(server->n - i - 1) * sizeof *server->loaders);
            server->n--;
            break;
        }
    pthread_mutex_unlock(&list);
}

/* The server of a place, begun if there is none; `life` is held. */
static int get_server(const pen__place *wanted, bool is_local, pen__server **out)
{
    *out = find_server(wanted, is_local);
    return *out ? 0 : begin_server(wanted, is_local, out);
}

/* Show a loader at a place. */
static int join_server(pen_loader *loader, const pen__place *wanted, bool is_local)
{
    pen__server *server;
    pthread_mutex_lock(&life);
    int rc = get_server(wanted, is_local, &server);
    if (rc == 0 && (rc = show(server, loader)) != 0 && is_empty(server))
        end_server(server);
    if (rc == 0)
        loader->servers[is_local ? LOCALLY : AT_ADDRESS] = server;
    pthread_mutex_unlock(&life);
    return rc;
}

/* ---- for loaders ---- */

static int serve_at(pen_loader *loader, const char *address, pen_error *err)
{
    pen__place wanted;
    if (!*address || strcmp(address, "off") == 0)
        return 0;
    if (!pen__place_parse(address, &wanted))
        return pen__fail(err, PEN_EINVAL, -1,
                         "metrics wants an address such as 127.0.0.1:9464 or [::1]:9464, not '%s'",
                         address);
    int rc = join_server(loader, &wanted, false);
    return rc ? pen__fail_errno(err, -rc, "answer at", address) : 0;
}

int pen__serve_begin(pen_loader *loader, const char *address, pen_error *err)
{
    if (address)
        return serve_at(loader, address, err);
    /* The environment speaks to all programs and machines of a job: no reason not to train. */
    pen_error unheard;
    if ((address = getenv("PENSTOCK_METRICS")))
        serve_at(loader, address, &unheard);
    return 0;
}

static bool is_top_off(void)
{
    const char *wish = getenv("PENSTOCK_TOP");
    return wish && strcmp(wish, "off") == 0;
}

void pen__serve_locally(pen_loader *loader)
{
    const bool is_wanted = loader->servers[AT_ADDRESS] || pen__control_decides(loader);
    if (is_wanted && !is_top_off() && !loader->servers[LOCALLY])
        join_server(loader, NULL, true);
}

void pen__serve_end(pen_loader *loader)
{
    if (!loader->servers[AT_ADDRESS] && !loader->servers[LOCALLY])
        return;
    pthread_mutex_lock(&life);
    for (int i = 0; i < 2; i++) {
        pen__server *server = loader->servers[i];
        loader->servers[i] = NULL;
        if (!server)
            continue;
        hide(server, loader);
        if (is_empty(server))
            end_server(server);
    }
    pthread_mutex_unlock(&life);
}

/* ---- for guests ---- */

int pen__serve_guest(pen_guest *guest)
{
    if (is_top_off())
        return -EPERM;
    pthread_mutex_lock(&life);
    int rc = get_server(NULL, true, &guest->server);
    if (rc == 0) {
        pthread_mutex_lock(&list);
        guest->next = guest->server->guests;
        guest->server->guests = guest;
        pthread_mutex_unlock(&list);
    }
    pthread_mutex_unlock(&life);
    return rc;
}

void pen__serve_guest_end(pen_guest *guest)
{
    pen__server *server = guest->server;
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&list);
    for (pen_guest **at = &server->guests; *at; at = &(*at)->next)
        if (*at == guest) {
            *at = guest->next;
            break;
        }
    pthread_mutex_unlock(&list);
    if (is_empty(server))
        end_server(server);
    pthread_mutex_unlock(&life);
}

int64_t pen_loader_address(const pen_loader *loader, char *dst, size_t dst_cap)
{
    const pen__server *server = loader->servers[AT_ADDRESS];
    const int n = snprintf(dst, dst_cap, "%s", server ? server->address : "");
    return (size_t)n < dst_cap ? n : PEN_ENOSPC;
}
