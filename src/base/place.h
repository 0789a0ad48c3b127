/* place.h - internet addresses as text and as sockets that listen there. */
#ifndef PEN_BASE_PLACE_H
#define PEN_BASE_PLACE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { PEN__PLACE_TEXT = 80 };

typedef union pen__place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} pen__place;

/* "127.0.0.1:9464", "[::1]:9464", "localhost:9464", ":9464" (loopback).  Names are not looked up.
 * Every byte of *out is set. */
bool pen__place_parse(const char *text, pen__place *out);
bool pen__place_is_loopback(const pen__place *place);
/* As the first two above. */
void pen__place_write(const pen__place *place, char text[PEN__PLACE_TEXT]);
in_port_t *pen__place_port(pen__place *place);

/* A socket that listens at a place (AF_UNIX, too), close-on-exec and non-blocking; -errno. */
int pen__listen_at(const struct sockaddr *at, socklen_t len, int backlog);
/* The same where `place` says, or at the next free of `n_ports` ports from there; then *place
 * tells which. */
int pen__listen_near(pen__place *place, int n_ports, int backlog);

#endif
