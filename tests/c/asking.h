/* asking.h - a storage node asked as strangers would: requests, answers, frames. */
#ifndef PEN_TESTS_ASKING_H
#define PEN_TESTS_ASKING_H

#include <penstock/node.h>

#include "wire.h"

enum { ANSWER_CAP = 1 << 22 };

/* The last one, head and body. */
static char answer[ANSWER_CAP];
static size_t answer_len;

static inline int port_of(const pen_node *node)
{
    char address[128];
    assert_true(pen_node_address(node, address, sizeof address) > 0);
    return port_in(address);
}

static inline int listen_to(int fd)
{
    return read_answer(fd, answer, sizeof answer, &answer_len);
}

/* Send a request, with a body if there is one. */
static inline int say(int port, const char *line, const char *headers, const char *body)
{
    char head[1024];
    int fd = connect_to(port);
    assert_true(fd >= 0);
    int n = snprintf(head, sizeof head,
                     "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: "
                     "%zu\r\n%s\r\n",
                     line, strlen(body), headers);
    send(fd, head, (size_t)n, MSG_NOSIGNAL);
    send(fd, body, strlen(body), MSG_NOSIGNAL);
    return fd;
}

static inline int ask(int port, const char *line, const char *headers, const char *body)
{
    return listen_to(say(port, line, headers, body));
}

static inline int get(int port, const char *path)
{
    char line[300];
    snprintf(line, sizeof line, "GET %s", path);
    return ask(port, line, "", "");
}

static inline char *body_of_answer(size_t *len)
{
    char *at = strstr(answer, "\r\n\r\n");
    assert_non_null(at);
    *len = answer_len - (size_t)(at + 4 - answer);
    return at + 4;
}

/* The body, its chunks joined in place. */
static inline uint8_t *unchunked(size_t *len)
{
    size_t left, n = 0;
    char *from = body_of_answer(&left), *to = from;
    uint8_t *start_of_body = (uint8_t *)to;
    assert_non_null(strstr(answer, "chunked"));
    for (unsigned long chunk; (chunk = strtoul(from, &from, 16)) > 0; from += chunk + 2) {
        from += 2;
        assert_true(from + chunk <= answer + answer_len);
        memmove(to + n, from, chunk);
        n += chunk;
    }
    *len = n;
    return start_of_body;
}

static inline uint64_t le(const uint8_t *p, int n)
{
    uint64_t value = 0;
    for (int i = 0; i < n; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static inline int put(int port, const char *hash, const char *text)
{
    char line[80];
    snprintf(line, sizeof line, "PUT /v1/pipelines/%s", hash);
    return ask(port, line, "", text);
}

/* Every frame is whole; statuses and parcels by index. */
typedef struct sent_frame {
    bool is_there;
    int64_t id;
    int32_t status;
    const uint8_t *body;
    size_t len;
} sent_frame;

static inline int read_frames(sent_frame *out, int n)
{
    enum { HEAD = 36 };
    size_t len, n_frames = 0;
    const uint8_t *at = unchunked(&len), *end = at + len;
    memset(out, 0, (size_t)n * sizeof *out);
    for (; at < end; n_frames++) {
        assert_true(end - at >= HEAD);
        assert_memory_equal(at, "PENF", 4);
        assert_int_equal(le(at + 32, 4), pen__crc32c(0, at, 32));
        const size_t index = le(at + 4, 4), body = le(at + 20, 4);
        assert_true(index < (size_t)n && !out[index].is_there);
        assert_true((size_t)(end - at) >= HEAD + body);
        assert_int_equal(le(at + 24, 4), pen__crc32c(0, at + HEAD, body));
        out[index] =
            (sent_frame){true, (int64_t)le(at + 8, 8), (int32_t)le(at + 16, 4), at + HEAD, body};
        at += HEAD + body;
    }
    return (int)n_frames;
}

/* The request of a job; its connection. */
static inline int say_post(int port, const char *job, const char *pipeline, const char *items)
{
    static char body[4096];
    char quoted[64] = "null";
    if (pipeline)
        snprintf(quoted, sizeof quoted, "\"%s\"", pipeline);
    snprintf(body, sizeof body,
             "{\"pipeline\": %s, \"seed\": \"7\", \"job\": \"%s\", \"items\": %s}", quoted, job,
             items);
    return say(port, "POST /v1/data/data/samples", "", body);
}

static inline int post(int port, const char *pipeline, const char *items)
{
    return listen_to(say_post(port, "0", pipeline, items));
}

#endif
