/* remote_frames.h - a stream of frames, taken apart as its bytes arrive.
 *
 * A frame is a head of 36 bytes ("PENF", u32 index in the request, u64 sample id, i32 status,
 * u32 body length, u32 CRC-32C of the body, u32 microseconds of the server's processor, u32 CRC-32C
 * of the 32 bytes before, all little endian) and a body.  Bytes may come in pieces of any size; a
 * body is passed on as it comes, so that it can go straight to where it belongs, and judged when it
 * is complete.
 */
#ifndef PEN_REMOTE_REMOTE_FRAMES_H
#define PEN_REMOTE_REMOTE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

enum { PEN__FRAME_HEAD = 36 };

typedef struct pen__frame {
    uint32_t index;
    uint64_t id;
    int32_t status; /* 0: the body is a parcel; PEN_E*: it is text */
    uint32_t len, crc;
    uint32_t cpu_us; /* that it takes to make the body and to send it */
} pen__frame;

/* Who gets the frames.  `begin` and `end` end the stream with anything but 0. */
typedef struct pen__frame_sink {
    int (*begin)(void *ctx, const pen__frame *frame, pen_error *err);
    void (*body)(void *ctx, const pen__frame *frame, size_t at, const uint8_t *bytes, size_t n);
    int (*end)(void *ctx, const pen__frame *frame, bool is_intact, pen_error *err);
} pen__frame_sink;

/* Zero-initialise for each stream. */
typedef struct pen__frames {
    uint8_t head[PEN__FRAME_HEAD];
    size_t have; /* bytes of the head */
    pen__frame frame;
    size_t at; /* bytes of the body */
    uint32_t crc;
} pen__frames;

/* Take the next `n` bytes.  0, PEN_ECORRUPT, or what the sink says; after an error the stream is
 * over. */
int pen__frames_feed(pen__frames *frames, const uint8_t *bytes, size_t n,
                     const pen__frame_sink *sink, void *ctx, pen_error *err);

/* May the stream end here? */
static inline bool pen__frames_is_between(const pen__frames *frames)
{
    return frames->have == 0;
}

#endif
