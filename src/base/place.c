/* place.c - where servers listen. */
#include "base/place.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool pen__place_parse(const char *text, pen__place *out)
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

bool pen__place_is_loopback(const pen__place *p)
{
    return p->any.sa_family == AF_INET ? ntohl(p->v4.sin_addr.s_addr) >> 24 == 127
                                       : IN6_IS_ADDR_LOOPBACK(&p->v6.sin6_addr);
}

in_port_t *pen__place_port(pen__place *p)
{
    return p->any.sa_family == AF_INET ? &p->v4.sin_port : &p->v6.sin6_port;
}

void pen__place_write(const pen__place *p, char text[PEN__PLACE_TEXT])
{
    char host[INET6_ADDRSTRLEN] = "";
    const bool is_v4 = p->any.sa_family == AF_INET;
    const in_port_t port = is_v4 ? p->v4.sin_port : p->v6.sin6_port;
    inet_ntop(p->any.sa_family,
              is_v4 ? (const void *)&p->v4.sin_addr : (const void *)&p->v6.sin6_addr, host,
              sizeof host);
    snprintf(text, PEN__PLACE_TEXT, is_v4 ? "%s:%d" : "[%s]:%d", host, ntohs(port));
}

int pen__listen_at(const struct sockaddr *at, socklen_t len, int backlog)
{
    const int one = 1;
    int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (at->sa_family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, at, len) == 0 && listen(fd, backlog) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

int pen__listen_near(pen__place *place, int n_ports, int backlog)
{
    const int port = ntohs(*pen__place_port(place));
    const socklen_t len = place->any.sa_family == AF_INET ? sizeof place->v4 : sizeof place->v6;
    int fd = -EADDRINUSE;
    for (int i = 0; fd == -EADDRINUSE && i < n_ports && port + i <= 65535; i++) {
        *pen__place_port(place) = htons((uint16_t)(port + i));
        fd = pen__listen_at(&place->any, len, backlog);
    }
    socklen_t got = len;
    if (fd >= 0)
        getsockname(fd, &place->any, &got);
    return fd;
}
