/* penfile_write.c - one .pen file, from front to back; the header comes last.
 *
 * Fields are put together in a buffer, each with its checksum and the zeros that fill its last
 * block, and go out in large pieces.  Until the end the header is zeros, so a file that was not
 * finished is no pack.
 */
#include "source/penfile_write.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/little_endian.h"
#include "base/mem.h"
#include "source/fileio.h"
#include "source/grow.h"
#include "source/names.h"

enum { PIECE = 4 << 20 };

static int fail_write(const pen__penfile_writer *w, int reason, pen_error *err)
{
    pen__shown shown;
    return pen__fail_errno(err, reason, "write", pen__show(&shown, w->path, strlen(w->path)));
}

static int flush(pen__penfile_writer *w, pen_error *err)
{
    int rc = pen__write_full(w->fd, w->bytes, w->n);
    if (rc)
        return fail_write(w, -rc, err);
    w->written += w->n;
    w->n = 0;
    return 0;
}

/* Room for `len` bytes behind what is in the buffer. */
static int make_room(pen__penfile_writer *w, size_t len, pen_error *err)
{
    if (w->n > 0 && w->n + len > PIECE) {
        int rc = flush(w, err);
        if (rc)
            return rc;
    }
    size_t need = w->n + len;
    uint8_t *bytes = pen__grow(w->bytes, &w->cap, need > PIECE ? need : PIECE, 1);
    if (!bytes)
        return pen__fail(err, PEN_ENOMEM, -1, "out of memory for %zu bytes", need);
    w->bytes = bytes;
    return 0;
}

int pen__penfile_begin(pen__penfile_writer *w, int fd, const char *path, pen_error *err)
{
    w->fd = fd;
    w->path = path;
    w->written = 0;
    w->n = 0;
    w->index.n = w->index.n_names = 0;
    int rc = make_room(w, PEN__PENFILE_HEAD, err);
    if (rc)
        return rc;
    memset(w->bytes, 0, PEN__PENFILE_HEAD);
    w->n = PEN__PENFILE_HEAD;
    return 0;
}

int pen__penfile_room(pen__penfile_writer *w, size_t len, uint8_t **out, pen_error *err)
{
    int rc = make_room(w, (size_t)pen__penfile_blocks(len) * PEN__BLOCK, err);
    if (rc == 0)
        *out = w->bytes + w->n;
    return rc;
}

pen__field_at pen__penfile_add(pen__penfile_writer *w, size_t len)
{
    uint8_t *field = w->bytes + w->n;
    const size_t all = (size_t)pen__penfile_blocks(len) * PEN__BLOCK;
    const uint64_t block = (w->written + w->n) / PEN__BLOCK;
    pen__le_put(field + len, pen__crc32c(0, field, len), PEN__PENFILE_SUM);
    memset(field + len + PEN__PENFILE_SUM, 0, all - len - PEN__PENFILE_SUM);
    w->n += all;
    return (pen__field_at){(uint32_t)block, (uint32_t)len};
}

static int write_index(pen__penfile_writer *w, pen__penfile_head *head, const pen__intern *classes,
                       pen_error *err)
{
    const size_t n_own = pen__shard_index_bytes(&w->index), len = n_own + classes->n_bytes;
    int rc = make_room(w, len, err);
    if (rc)
        return rc;
    uint8_t *bytes = w->bytes + w->n;
    pen__shard_index_put(&w->index, bytes);
    if (classes->n_bytes > 0)
        memcpy(bytes + n_own, classes->bytes, classes->n_bytes);
    head->n_records = w->index.n;
    head->n_names = w->index.n_names;
    head->n_classes = classes->n;
    head->n_class_names = classes->n_bytes;
    head->index_at = w->written + w->n;
    head->index_sum = pen__crc32c(0, bytes, len);
    w->n += len;
    return flush(w, err);
}

int pen__penfile_end(pen__penfile_writer *w, pen__penfile_head *head, const pen__intern *classes,
                     pen_error *err)
{
    uint8_t bytes[PEN__PENFILE_HEAD];
    int rc = write_index(w, head, classes, err);
    if (rc)
        return rc;
    /* What the header vouches for is on the disk before it. */
    if (fdatasync(w->fd) != 0)
        return fail_write(w, errno, err);
    pen__penfile_put_head(head, bytes);
    if (lseek(w->fd, 0, SEEK_SET) != 0)
        return fail_write(w, errno, err);
    rc = pen__write_full(w->fd, bytes, sizeof bytes);
    if (rc)
        return fail_write(w, -rc, err);
    return fsync(w->fd) == 0 ? 0 : fail_write(w, errno, err);
}

void pen__penfile_writer_fini(pen__penfile_writer *w)
{
    pen__shard_index_fini(&w->index);
    pen__free(w->bytes);
    w->bytes = NULL;
    w->n = w->cap = 0;
}
