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
 * than its metrics: its thread ends instead, and nothing of it is touched any more.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
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
#include "engine/loader_impl.h"
#include "engine/views.h"

enum {
    MAX_CONNECTIONS = 16,
    IDLE_S = 5,                /* a connection that says nothing for so long is closed */
    REQUEST_BYTES = 16 * 1024, /* of memory for a connection */
    PORTS = 16,                /* tried upwards, where another process has the first */
    ADDRESS_CAP = 80,
    AT_ADDRESS = 0, /* pen_loader.servers */
    LOCALLY = 1,
};

typedef union place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} place;

typedef struct pen__server {
    struct pen__server *next;
    bool is_local, is_loopback;
    place wanted;              /* what was asked for; the port may have become another */
    char address[ADDRESS_CAP]; /* what it came to */
    int fd;
    struct MHD_Daemon *daemon;
    const pen_loader **loaders; /* guarded by `list` */
    int n, cap;
} pen__server;

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER, list = PTHREAD_MUTEX_INITIALIZER;
static pen__server *servers;

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

/* ---- panics ---- */

static atomic_bool is_broken;
static _Thread_local jmp_buf *escape; /* of a thread of ours, inside the library */

/* It must not return.  Who has no escape is one of the library's own threads. */
static void on_panic(void *ctx, const char *file, unsigned line, const char *why)
{
    (void)ctx, (void)file, (void)line, (void)why;
    atomic_store(&is_broken, true);
    if (escape)
        longjmp(*escape, 1);
    pthread_exit(NULL);
}

static void prepare(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
    MHD_set_panic_func(on_panic, NULL);
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

typedef int (*writer)(const pen_loader *const *loaders, int n, pen__text *text);

static enum MHD_Result answer_with(const pen__server *server, struct MHD_Connection *connection,
                                   writer write, const char *type)
{
    pen__text text = {0};
    pthread_mutex_lock(&list);
    int rc = write(server->loaders, server->n, &text);
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
    int rc = pen__serve_turn(connection, server->loaders, server->n, &err);
    pthread_mutex_unlock(&list);
    if (rc == 0)
        return answer_with(server, connection, pen__status_write_all, "application/json");
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
        return answer_with(server, connection, pen__metrics_write,
                           "application/openmetrics-text; version=1.0.0; charset=utf-8");
    if (strcmp(url, "/status.json") == 0)
        return answer_with(server, connection, pen__status_write_all, "application/json");
    return refuse(connection, MHD_HTTP_NOT_FOUND, "/metrics and /status.json are here\n");
}

/* ---- addresses ---- */

/* "127.0.0.1:9464", "[::1]:9464", "localhost:9464", ":9464".  Names are not looked up. */
static bool parse_place(const char *text, place *out)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    memset(out, 0, sizeof *out);
    if (!colon || (size_t)(colon - text) >= sizeof host || strlen(colon + 1) > 5 || !colon[1] ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    const long port = strtol(colon + 1, NULL, 10);
    if (port > 65535)
        return false;
    size_t len = (size_t)(colon - text);
    memcpy(host, text, len);
    host[len] = '\0';
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host + 1, &out->v6.sin6_addr) == 1;
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons((uint16_t)port);
    if (len == 0 || strcmp(host, "localhost") == 0)
        out->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        return inet_pton(AF_INET, host, &out->v4.sin_addr) == 1;
    return true;
}

static bool is_loopback(const place *p)
{
    return p->any.sa_family == AF_INET ? ntohl(p->v4.sin_addr.s_addr) >> 24 == 127
                                       : IN6_IS_ADDR_LOOPBACK(&p->v6.sin6_addr);
}

static in_port_t *port_of(place *p)
{
    return p->any.sa_family == AF_INET ? &p->v4.sin_port : &p->v6.sin6_port;
}

static void write_place(place *p, char text[ADDRESS_CAP])
{
    char host[INET6_ADDRSTRLEN] = "";
    const bool is_v4 = p->any.sa_family == AF_INET;
    inet_ntop(p->any.sa_family, is_v4 ? (void *)&p->v4.sin_addr : (void *)&p->v6.sin6_addr, host,
              sizeof host);
    snprintf(text, ADDRESS_CAP, is_v4 ? "%s:%d" : "[%s]:%d", host, ntohs(*port_of(p)));
}

/* A listening socket; -errno. */
static int listen_at(const struct sockaddr *at, socklen_t len)
{
    const int one = 1;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (at->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at, len) == 0 && listen(fd, MAX_CONNECTIONS) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

/* At the place that is wanted, or at the next free port above it. */
static int listen_near(pen__server *server)
{
    place at = server->wanted;
    const int port = ntohs(*port_of(&at));
    const socklen_t len = at.any.sa_family == AF_INET ? sizeof at.v4 : sizeof at.v6;
    int fd = -EADDRINUSE;
    for (int i = 0; fd == -EADDRINUSE && i < PORTS && port + i <= 65535; i++) {
        *port_of(&at) = htons((uint16_t)(port + i));
        fd = listen_at(&at.any, len);
    }
    socklen_t got = len;
    if (fd >= 0 && getsockname(fd, &at.any, &got) == 0)
        write_place(&at, server->address);
    return fd;
}

static int listen_locally(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX}; /* a first byte of 0: abstract */
    const int n =
        snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "penstock-%lld", (long long)getpid());
    return listen_at((const struct sockaddr *)&at,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
}

/* ---- servers; `life` is held ---- */

static struct MHD_Daemon *call_start(pen__server *server)
{
    const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD |
                           (server->wanted.any.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0U);
    return MHD_start_daemon(flags, 0, NULL, NULL, answer, server, MHD_OPTION_LISTEN_SOCKET,
                            server->fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES,
                            MHD_OPTION_END);
}

static void start_daemon(pen__server *server)
{
    jmp_buf here;
    sigset_t all;
    static sigset_t before; /* `life` guards it, and longjmp leaves it */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals belong to the program */
    escape = &here;
    if (setjmp(here) == 0)
        server->daemon = call_start(server);
    escape = NULL;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Joins its thread, closes the socket.  False: it is broken, and may still look at the server. */
static bool stop_daemon(const pen__server *server)
{
    jmp_buf here;
    if (atomic_load(&is_broken))
        return false;
    escape = &here;
    if (setjmp(here) == 0)
        MHD_stop_daemon(server->daemon);
    escape = NULL;
    return !atomic_load(&is_broken);
}

static pen__server *find_server(const place *wanted, bool is_local)
{
    for (pen__server *s = servers; s; s = s->next)
        if (s->is_local == is_local &&
            (is_local || memcmp(&s->wanted, wanted, sizeof *wanted) == 0))
            return s;
    return NULL;
}

/* 0, or -errno. */
static int begin_server(const place *wanted, bool is_local, pen__server **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    if (atomic_load(&is_broken))
        return -EIO;
    pen__server *server = pen__calloc(1, sizeof *server);
    if (!server)
        return -ENOMEM;
    server->is_local = is_local;
    if (!is_local) {
        server->wanted = *wanted;
        server->is_loopback = is_loopback(wanted);
    }
    server->fd = is_local ? listen_locally() : listen_near(server);
    if (server->fd < 0) {
        int rc = server->fd;
        pen__free(server);
        return rc;
    }
    start_daemon(server);
    if (!server->daemon) {
        close(server->fd);
        if (!atomic_load(&is_broken))
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
    if (!stop_daemon(server))
        return; /* lost: nobody knows who still holds it */
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

/* Show a loader at a place, and begin the server if it is the first there. */
static int join_server(pen_loader *loader, const place *wanted, bool is_local)
{
    pthread_mutex_lock(&life);
    pen__server *server = find_server(wanted, is_local);
    int rc = server ? 0 : begin_server(wanted, is_local, &server);
    if (rc == 0 && (rc = show(server, loader)) != 0 && server->n == 0)
        end_server(server);
    if (rc == 0)
        loader->servers[is_local ? LOCALLY : AT_ADDRESS] = server;
    pthread_mutex_unlock(&life);
    return rc;
}

/* ---- for loaders ---- */

static int serve_at(pen_loader *loader, const char *address, pen_error *err)
{
    place wanted;
    if (!*address || strcmp(address, "off") == 0)
        return 0;
    if (!parse_place(address, &wanted))
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

void pen__serve_locally(pen_loader *loader)
{
    const bool is_wanted = loader->servers[AT_ADDRESS] || pen__control_decides(loader);
    const char *wish = getenv("PENSTOCK_TOP");
    if (is_wanted && !(wish && strcmp(wish, "off") == 0) && !loader->servers[LOCALLY])
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
        if (server->n == 0)
            end_server(server);
    }
    pthread_mutex_unlock(&life);
}

int64_t pen_loader_address(const pen_loader *loader, char *dst, size_t dst_cap)
{
    const pen__server *server = loader->servers[AT_ADDRESS];
    const int n = snprintf(dst, dst_cap, "%s", server ? server->address : "");
    return (size_t)n < dst_cap ? n : PEN_ENOSPC;
}
