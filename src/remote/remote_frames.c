/* remote_frames.c - from bytes to frames. */
#include "remote/remote_frames.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/little_endian.h"

enum { GUARDED = PEN__FRAME_HEAD - 4 };

static int read_head(pen__frames *frames, pen_error *err)
{
    const uint8_t *head = frames->head;
    if (memcmp(head, "PENF", 4) != 0)
        return pen__fail(err, PEN_ECORRUPT, -1, "the answer has something that is no frame");
    if (pen__crc32c(0, head, GUARDED) != pen__le32(head + GUARDED))
        return pen__fail(err, PEN_ECORRUPT, -1, "the checksum of a frame's head differs");
    frames->frame = (pen__frame){.index = pen__le32(head + 4),
                                 .id = pen__le64(head + 8),
                                 .status = (int32_t)pen__le32(head + 16),
                                 .len = pen__le32(head + 20),
                                 .crc = pen__le32(head + 24),
                                 .cpu_us = pen__le32(head + 28)};
    frames->at = 0;
    frames->crc = 0;
    return 0;
}

static int end_frame(pen__frames *frames, const pen__frame_sink *sink, void *ctx, pen_error *err)
{
    frames->have = 0;
    return sink->end(ctx, &frames->frame, frames->crc == frames->frame.crc, err);
}

/* Bytes of the head; how many were taken, or an error. */
static int64_t feed_head(pen__frames *frames, const uint8_t *bytes, size_t n,
                         const pen__frame_sink *sink, void *ctx, pen_error *err)
{
    size_t lacking = PEN__FRAME_HEAD - frames->have, taken = n < lacking ? n : lacking;
    memcpy(frames->head + frames->have, bytes, taken);
    frames->have += taken;
    if (frames->have < PEN__FRAME_HEAD)
        return (int64_t)taken;
    int rc = read_head(frames, err);
    if (rc == 0)
        rc = sink->begin(ctx, &frames->frame, err);
    if (rc == 0 && frames->frame.len == 0)
        rc = end_frame(frames, sink, ctx, err);
    return rc ? rc : (int64_t)taken;
}

static int64_t feed_body(pen__frames *frames, const uint8_t *bytes, size_t n,
                         const pen__frame_sink *sink, void *ctx, pen_error *err)
{
    size_t lacking = frames->frame.len - frames->at, taken = n < lacking ? n : lacking;
    frames->crc = pen__crc32c(frames->crc, bytes, taken);
    sink->body(ctx, &frames->frame, frames->at, bytes, taken);
    frames->at += taken;
    int rc = taken == lacking ? end_frame(frames, sink, ctx, err) : 0;
    return rc ? rc : (int64_t)taken;
}

int pen__frames_feed(pen__frames *frames, const uint8_t *bytes, size_t n,
                     const pen__frame_sink *sink, void *ctx, pen_error *err)
{
    for (size_t at = 0; at < n;) {
        int64_t taken = frames->have < PEN__FRAME_HEAD
                            ? feed_head(frames, bytes + at, n - at, sink, ctx, err)
                            : feed_body(frames, bytes + at, n - at, sink, ctx, err);
        if (taken < 0)
            return (int)taken;
        at += (size_t)taken;
    }
    return 0;
}
