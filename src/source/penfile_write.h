/* penfile_write.h - write one .pen file, a field after the other. */
#ifndef PEN_SOURCE_PENFILE_WRITE_H
#define PEN_SOURCE_PENFILE_WRITE_H

#include "source/penfile.h"

/* Zero-initialise. */
typedef struct pen__penfile_writer {
    int fd;
    uint64_t written; /* bytes; those in the buffer come behind them */
    uint8_t *bytes;
    size_t n, cap;
    pen__shard_index index;
    const char *path; /* for messages */
} pen__penfile_writer;

/* Begin at the front of an empty file, which is the caller's. */
int pen__penfile_begin(pen__penfile_writer *w, int fd, const char *path, pen_error *err);
/* Room for a field of `len` bytes, which the caller fills before it calls anything else.
 * 0, PEN_ENOMEM, or PEN_EIO: what was in the buffer cannot be written. */
int pen__penfile_room(pen__penfile_writer *w, size_t len, uint8_t **out, pen_error *err);
/* What is in that room now is a field.  Returns where it is. */
pen__field_at pen__penfile_add(pen__penfile_writer *w, size_t len);
/* Write the index, with those names of classes, and `head`, whose places are set here; then wait
 * until all of it is on the disk. */
int pen__penfile_end(pen__penfile_writer *w, pen__penfile_head *head, const pen__intern *classes,
                     pen_error *err);
void pen__penfile_writer_fini(pen__penfile_writer *w);

#endif
