/* wire.h - what travels between a client and a server: manifest pages and frames as a storage node
 * writes them, and sockets to ask one as a stranger would. */
#ifndef PEN_TESTS_WIRE_H
#define PEN_TESTS_WIRE_H

#include "testing.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"

typedef struct wire {
    uint8_t bytes[65536];
    size_t n;
} wire;

static inline void put_number(wire *w, uint64_t value, int n_bytes)
{
    assert_true(w->n + (size_t)n_bytes <= sizeof w->bytes);
    for (int i = 0; i < n_bytes; i++)
        w->bytes[w->n++] = (uint8_t)(value >> (8 * i));
}

static inline void put_chars(wire *w, const void *text, size_t len)
{
    assert_true(w->n + len <= sizeof w->bytes);
    memcpy(w->bytes + w->n, text, len);
    w->n += len;
}

static inline void begin_page(wire *w, uint64_t first, uint32_t n, uint32_t flags)
{
    w->n = 0;
    put_chars(w, "PENM", 4);
    put_number(w, 1, 4);
    put_number(w, first, 8);
    put_number(w, n, 4);
    put_number(w, flags, 4);
}

/* flags, as of the page: 1: a header; 2: fields, json of 7 bytes, txt of none and one that nobody
 * knows. */
static inline void put_record(wire *w, uint64_t length, int64_t label, const char *key,
                              size_t key_len, uint32_t flags)
{
    put_number(w, length, 8);
    put_number(w, (uint64_t)label, 8);
    put_number(w, key_len, 2);
    if (flags & 1)
        put_chars(w, "\1\3\10\1\0\2\2\0\x10\0\x20\0", 12);
    if (flags & 2)
        put_chars(w, "\x4C\7\0\0\0\0\0\0\0\1\2\3\4", 13);
    put_chars(w, key, key_len);
}

static inline void end_page(wire *w)
{
    put_number(w, pen__crc32c(0, w->bytes, w->n), 4);
}

static inline void put_frame(wire *w, uint32_t index, uint64_t id, int32_t status, const void *body,
                             size_t len)
{
    size_t at = w->n;
    put_chars(w, "PENF", 4);
    put_number(w, index, 4);
    put_number(w, id, 8);
    put_number(w, (uint32_t)status, 4);
    put_number(w, len, 4);
    put_number(w, pen__crc32c(0, body, len), 4);
    put_number(w, 1000 + index, 4); /* microseconds */
    put_number(w, pen__crc32c(0, w->bytes + at, 32), 4);
    put_chars(w, body, len);
}

/* A raw parcel in a frame. */
static inline void put_raw_frame(wire *w, uint32_t index, uint64_t id, const void *file, size_t len)
{
    static wire parcel;
    parcel.n = 0;
    put_number(&parcel, 1, 4); /* version 1, form 0, cut 0, channels 0 */
    put_number(&parcel, len, 4);
    put_number(&parcel, 0, 8);
    put_number(&parcel, 0, 8);
    put_number(&parcel, len, 8);
    put_number(&parcel, 0, 8);
    put_number(&parcel, 0, 8);
    put_chars(&parcel, file, len);
    put_frame(w, index, id, 0, parcel.bytes, parcel.n);
}

/* The end of a dataset's description. */
static inline void seal_text(char *json, size_t cap)
{
    const size_t len = strlen(json) - 1;
    assert_int_equal(json[len], '}');
    snprintf(json + len, cap - len, ", \"crc32c\": \"%08x\"}\n", pen__crc32c(0, json, len));
}

/* The port of "HOST:PORT". */
static inline int port_in(const char *address)
{
    return atoi(strrchr(address, ':') + 1);
}

/* To this machine; -1 if nobody is there. */
static inline int connect_to(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Read until the other side closes, and end the text; the status, 0 for no answer.  Takes the fd.
 */
static inline int read_answer(int fd, char *answer, size_t cap, size_t *len)
{
    ssize_t got;
    *len = 0;
    while (*len < cap - 1 && (got = recv(fd, answer + *len, cap - 1 - *len, 0)) > 0)
        *len += (size_t)got;
    answer[*len] = '\0';
    close(fd);
    int status = 0;
    sscanf(answer, "HTTP/1.%*d %d", &status);
    return status;
}

#endif
