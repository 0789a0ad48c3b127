/* node_stream.c - bytes of an answer between the threads that make them and the network.
 *
 * They stand in chunks of fixed size, which are kept when they are empty: a sample costs no
 * allocation once a node is warm.  All of it is guarded by node->lock, and so is the count of how
 * much memory answers hold.  Rooms are for whole files and blocks, and their owner's alone.
 */
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "remote/node_impl.h"

enum {
    SPARE_CHUNKS = 256,     /* 16 MiB */
    WAKE_BYTES = 128 << 10, /* for which whoever waits for room is woken */
};

static pen__chunk *get_chunk(pen__chunks *chunks)
{
    pen__chunk *chunk = chunks->spare;
    if (chunk) {
        chunks->spare = chunk->next;
        chunks->n_spare--;
    } else {
        chunk = pen__malloc(sizeof *chunk);
    }
    if (chunk) {
        chunk->next = NULL;
        chunk->from = chunk->to = 0;
    }
    return chunk;
}

static void put_chunk(pen__chunks *chunks, pen__chunk *chunk)
{
    if (chunks->n_spare == SPARE_CHUNKS) {
        pen__free(chunk);
        return;
    }
    chunk->next = chunks->spare;
    chunks->spare = chunk;
    chunks->n_spare++;
}

void pen__chunks_fini(pen__chunks *chunks)
{
    while (chunks->spare) {
        pen__chunk *chunk = chunks->spare;
        chunks->spare = chunk->next;
        pen__free(chunk);
    }
    chunks->n_spare = 0;
}

/* Chain fresh chunks for what does not fit behind the last one; PEN_ENOMEM. */
static int make_room(const pen__queue *queue, pen__chunks *chunks, size_t len, pen__chunk **out)
{
    size_t room = queue->last ? PEN__CHUNK_BYTES - queue->last->to : 0;
    *out = NULL;
    while (room < len) {
        pen__chunk *chunk = get_chunk(chunks);
        if (!chunk)
            break;
        chunk->next = *out;
        *out = chunk;
        room += PEN__CHUNK_BYTES;
    }
    if (room >= len)
        return 0;
    while (*out) {
        pen__chunk *chunk = *out;
        *out = chunk->next;
        put_chunk(chunks, chunk);
    }
    return PEN_ENOMEM;
}

int pen__queue_put(pen__queue *queue, pen__chunks *chunks, const void *data, size_t len)
{
    pen__chunk *fresh;
    int rc = make_room(queue, chunks, len, &fresh);
    if (rc)
        return rc;
    queue->bytes += (int64_t)len;
    for (const uint8_t *p = data; len > 0;) {
        if (!queue->last || queue->last->to == PEN__CHUNK_BYTES) {
            pen__chunk *chunk = fresh;
            fresh = chunk->next;
            chunk->next = NULL;
            if (queue->last)
                queue->last->next = chunk;
            else
                queue->first = chunk;
            queue->last = chunk;
        }
        pen__chunk *to = queue->last;
        const size_t room = PEN__CHUNK_BYTES - to->to, n = len < room ? len : room;
        memcpy(to->data + to->to, p, n);
        to->to += (uint32_t)n;
        p += n;
        len -= n;
    }
    return 0;
}

static void drop_first(pen__queue *queue, pen__chunks *chunks)
{
    pen__chunk *chunk = queue->first;
    queue->first = chunk->next;
    if (!queue->first)
        queue->last = NULL;
    put_chunk(chunks, chunk);
}

size_t pen__queue_take(pen__queue *queue, pen__chunks *chunks, void *dst, size_t cap)
{
    size_t done = 0;
    while (queue->first && done < cap) {
        pen__chunk *from = queue->first;
        const size_t have = from->to - from->from, n = cap - done < have ? cap - done : have;
        memcpy((uint8_t *)dst + done, from->data + from->from, n);
        from->from += (uint32_t)n;
        done += n;
        if (from->from == from->to)
            drop_first(queue, chunks);
    }
    queue->bytes -= (int64_t)done;
    return done;
}

void pen__queue_drop(pen__queue *queue, pen__chunks *chunks)
{
    queue->bytes = 0;
    while (queue->first)
        drop_first(queue, chunks);
}

int pen__room_reserve(pen__room *room, size_t len)
{
    if (len <= room->cap)
        return 0;
    const size_t cap = room->cap ? len + len / 4 + 4096 : len; /* one that grows will grow again */
    pen__room_fini(room);
    room->data = pen__pages(cap);
    room->cap = room->data ? cap : 0;
    return room->data ? 0 : PEN_ENOMEM;
}

void pen__room_trim(pen__room *room, size_t keep)
{
    if (room->cap > keep)
        pen__room_fini(room);
}

void pen__room_fini(pen__room *room)
{
    pen__pages_free(room->data, room->cap);
    *room = (pen__room){0};
}

void pen__wake_short(pen_node *node)
{
    node->is_short = false;
    node->freed_bytes = 0;
    pthread_cond_signal(&node->work);
}

/* A thread waits for room.  What a client takes at once is far less than a sample, and to wake up
 * for each piece and find too little was a fifth of what a file takes a node on a slow link: so
 * pieces gather, unless nothing is left that could follow.  (What has gathered is told by the watch
 * before long.) */
static void free_room(pen_node *node, int64_t bytes, bool is_last)
{
    const int64_t most = node->opts.buffer_bytes / 8;
    if (!node->is_short)
        return;
    node->freed_bytes += bytes;
    if (node->freed_bytes >= (most < WAKE_BYTES ? most : WAKE_BYTES) || is_last)
        pen__wake_short(node);
}

void pen__hold(pen__exchange *x, int64_t bytes)
{
    x->held_bytes += bytes;
    x->client->held_bytes += bytes;
    x->node->held_bytes += bytes;
    if (bytes < 0)
        free_room(x->node, -bytes, x->held_bytes == 0);
}

/* A quarter is left to who has little: a few that take much and read it slowly are not to have all.
 */
bool pen__may_hold(const pen__exchange *x, int64_t bytes)
{
    const pen_node *node = x->node;
    const int64_t most = node->opts.memory_bytes, all = node->held_bytes + node->body_bytes + bytes,
                  own = x->client->held_bytes + bytes;
    if (node->held_bytes == 0)
        return true;
    if (own == bytes)
        return all <= most;
    return own <= most / 2 && all <= (own <= most / 16 ? most : most - most / 4);
}

void pen__hold_body(pen__exchange *x, int64_t bytes)
{
    x->client->body_bytes += bytes;
    x->node->body_bytes += bytes;
    if (bytes < 0)
        free_room(x->node, -bytes, true);
}

bool pen__may_hold_body(const pen__exchange *x, int64_t bytes)
{
    const pen_node *node = x->node;
    const int64_t most = node->opts.memory_bytes, bodies = node->body_bytes + bytes;
    return x->client->body_bytes + bytes <= most / 16 && bodies <= most / 4 &&
           node->held_bytes + bodies <= most;
}

void pen__frame_write_head(uint8_t head[PEN__FRAME_HEAD], uint32_t index, int64_t id,
                           int32_t status, int64_t cpu_ns, const uint8_t *body, size_t len)
{
    const int64_t cpu_us = cpu_ns / 1000;
    memcpy(head, "PENF", 4);
    pen__le_put(head + 4, index, 4);
    pen__le_put(head + 8, (uint64_t)id, 8);
    pen__le_put(head + 16, (uint32_t)status, 4);
    pen__le_put(head + 20, len, 4);
    pen__le_put(head + 24, pen__crc32c(0, body, len), 4);
    pen__le_put(head + 28, cpu_us < UINT32_MAX ? (uint64_t)cpu_us : UINT32_MAX, 4);
    pen__le_put(head + 32, pen__crc32c(0, head, 32), 4);
}
