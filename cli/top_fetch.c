/* top_fetch.c - one HTTP request to a loader's process: to know how it is, or to turn its knobs. */
#include "top.h"

#include "cli.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_BYTES = 4 << 20, TIMEOUT_S = 3 };

static void set_timeouts(int fd)
{
    const struct timeval limit = {.tv_sec = TIMEOUT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* ---- connecting ---- */

/* Is the one that listens there the process that was named?  Any user may take the name of a
 * process that does not listen. */
static bool is_process(int fd, long long pid)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid == pid;
}

static int connect_process(const char *target, char why[TOP_WHY_CAP])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const long long pid = strtoll(target, NULL, 10);
    char proc[64];
    snprintf(proc, sizeof proc, "/proc/%lld", pid);
    if (access(proc, F_OK) != 0) {
        snprintf(why, TOP_WHY_CAP, "there is no process %lld", pid);
        return -1;
    }
    const int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "penstock-%lld", pid);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        set_timeouts(fd);
        if (connect(fd, (const struct sockaddr *)&at,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 &&
            is_process(fd, pid))
            return fd;
        close(fd);
    }
    snprintf(
        why, TOP_WHY_CAP,
        "process %lld does not answer.  It does once a loader with a policy has made its first "
        "batch.  For others, and from outside a container: give the loader "
        "metrics=\"127.0.0.1:9464\", or start the process with "
        "PENSTOCK_METRICS=127.0.0.1:9464, and run penstock top 127.0.0.1:9464",
        pid);
    return -1;
}

/* "host:port" or "[::1]:port" in two. */
static bool split(const char *target, char host[256], char port[8])
{
    const char *colon = strrchr(target, ':');
    if (!colon || strlen(colon + 1) >= 8 || !colon[1] || (size_t)(colon - target) >= 256)
        return false;
    size_t len = (size_t)(colon - target);
    memcpy(host, target, len);
    host[len] = '\0';
    if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        memmove(host, host + 1, len - 1);
    }
    if (!*host)
        snprintf(host, 256, "127.0.0.1");
    snprintf(port, 8, "%s", colon + 1);
    char *end; /* what is above 65535 would be taken for another port */
    const long number = strtol(colon + 1, &end, 10);
    return *end == '\0' && number > 0 && number <= 65535;
}

static int connect_address(const char *target, char why[TOP_WHY_CAP])
{
    char host[256], port[8];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (!split(target, host, port)) {
        snprintf(why, TOP_WHY_CAP, "'%s' is neither a process number nor HOST:PORT", target);
        return -1;
    }
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc) {
        snprintf(why, TOP_WHY_CAP, "%s: %s", target, gai_strerror(rc));
        return -1;
    }
    int fd = -1, error = 0;
    for (const struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd >= 0) {
            set_timeouts(fd);
            if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
                break;
            error = errno == EINPROGRESS ? ETIMEDOUT : errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        snprintf(why, TOP_WHY_CAP, "nobody answers at %s: %s", target, strerror(error));
    return fd;
}

/* ---- asking ---- */

/* All that comes, up to a limit and for a limited time; NULL with the reason. */
static char *receive(int fd, size_t *len, char why[TOP_WHY_CAP])
{
    const double until = cli_seconds() + TIMEOUT_S;
    char *bytes = malloc(ANSWER_BYTES);
    ssize_t n = -1;
    *len = 0;
    while (bytes && *len < ANSWER_BYTES && cli_seconds() < until &&
           (n = recv(fd, bytes + *len, ANSWER_BYTES - *len, 0)) > 0)
        *len += (size_t)n;
    if (n == 0)
        return bytes;
    snprintf(why, TOP_WHY_CAP, "%s",
             !bytes                 ? "out of memory"
             : *len == ANSWER_BYTES ? "the answer is far too long"
                                    : "no complete answer in 3 seconds");
    free(bytes);
    return NULL;
}

json_t *top_parse(const char *response, size_t len, char why[TOP_WHY_CAP])
{
    static const char blank[] = "\r\n\r\n";
    const char *body = memmem(response, len, blank, sizeof blank - 1);
    json_t *status = NULL;
    if (!body || len < 12 || memcmp(response, "HTTP/1.", 7) != 0) {
        snprintf(why, TOP_WHY_CAP, "what answers does not speak HTTP");
    } else if (memcmp(response + 8, " 400", 4) == 0 || memcmp(response + 8, " 404", 4) == 0) {
        snprintf(why, TOP_WHY_CAP, "%.*s", (int)(len - (size_t)(body - response) - 4), body + 4);
        for (char *at = why; *at; at++) /* it is foreign, and may go to a terminal */
            *at = (unsigned char)*at < ' ' || (unsigned char)*at > '~' ? ' ' : *at;
    } else if (memcmp(response + 8, " 200", 4) != 0) {
        snprintf(why, TOP_WHY_CAP, "the answer is%.4s: %s", response + 8,
                 memcmp(response + 8, " 403", 4) == 0 ? "the process is another user's"
                                                      : "no Penstock loader");
    } else {
        body += sizeof blank - 1;
        status = json_loadb(body, len - (size_t)(body - response), 0, NULL);
        if (!json_is_array(json_object_get(status, "loaders"))) {
            json_decref(status);
            status = NULL;
            snprintf(why, TOP_WHY_CAP, "what answers is no Penstock loader");
        }
    }
    return status;
}

static bool is_process_number(const char *target)
{
    return *target && strspn(target, "0123456789") == strlen(target);
}

/* One request, and the status that answers it. */
static json_t *ask(const char *target, const char *request, char why[TOP_WHY_CAP])
{
    int fd =
        is_process_number(target) ? connect_process(target, why) : connect_address(target, why);
    if (fd < 0)
        return NULL;
    json_t *status = NULL;
    char *bytes = NULL;
    size_t len = 0;
    if (send(fd, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
        snprintf(why, TOP_WHY_CAP, "%s closed the connection", target);
    else if ((bytes = receive(fd, &len, why)) != NULL)
        status = top_parse(bytes, len, why);
    free(bytes);
    close(fd);
    return status;
}

json_t *top_fetch(const char *target, char why[TOP_WHY_CAP])
{
    return ask(target, "GET /status.json HTTP/1.0\r\nHost: localhost\r\n\r\n", why);
}

json_t *top_turn(const char *target, const char *wishes, char why[TOP_WHY_CAP])
{
    char request[TOP_WISHES_CAP + 64];
    if (!is_process_number(target)) {
        snprintf(why, TOP_WHY_CAP, "knobs are turned by a process number, not by an address");
        return NULL;
    }
    snprintf(request, sizeof request, "PUT /knobs?%s HTTP/1.0\r\nHost: localhost\r\n\r\n", wishes);
    return ask(target, request, why);
}
