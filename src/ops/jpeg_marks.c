/* jpeg_marks.c - packing marks, and telling whether an entry is this file's.
 *
 * A mark takes ten bytes: its bit, counted from the beginning of the scan, and three
 * DC predictors.  Numbers are in the machine's order: an entry is never carried
 * from one kind of machine to another (the file of entries says whose it is).
 */
#include "ops/jpeg_marks.h"

#include <string.h>

#include "base/digest.h"

enum { VERSION = 2, SHARE = 40 /* of the file: marks take at most one part in so many */ };

typedef struct head {
    uint64_t check;   /* hash of everything behind this field */
    uint64_t content; /* hash of the JPEG file */
    uint64_t stamp;
    uint32_t n_rows, scan_at;
    uint16_t step;
    uint8_t is_complete, version;
    uint32_t unused; /* 0 */
} head;
_Static_assert(sizeof(head) == PEN__JPEG_MARKS_HEAD, "no padding in what is hashed");

typedef struct packed {
    uint16_t bit_hi, bit_lo;
    int16_t dc[PEN__JPEG_MAX_COMPONENTS];
} packed;
_Static_assert(sizeof(packed) == PEN__JPEG_MARK_BYTES, "ten bytes a mark");

static int32_t div_up(int32_t a, int32_t b)
{
    return (a + b - 1) / b;
}

static size_t entry_bytes(const pen__jpeg_grid *grid, int32_t n_rows)
{
    return sizeof(head) + ((size_t)n_rows * (size_t)grid->per_row + 1) * sizeof(packed);
}

pen__jpeg_grid pen__jpeg_grid_of(const pen__jpeg_frame *frame, size_t len)
{
    enum { FIRST_STEP = 4, MIN_ROWS = 3 };
    pen__jpeg_grid grid = {.n_columns = div_up(frame->width, 8 * frame->mcu_h),
                           .n_rows = div_up(frame->height, 8 * frame->mcu_v)};
    size_t most = len / SHARE < PEN__JPEG_MARKS_MAX ? len / SHARE : PEN__JPEG_MARKS_MAX;
    if (grid.n_rows < MIN_ROWS || len > UINT32_MAX / 8)
        return grid;
    for (grid.step = FIRST_STEP;; grid.step *= 2) {
        grid.per_row = div_up(grid.n_columns, grid.step);
        if (entry_bytes(&grid, grid.n_rows) <= most)
            return grid;
        if (grid.per_row == 1)
            break;
    }
    grid.per_row = 0;
    return grid;
}

void pen__jpeg_marks_begin(pen__jpeg_marks *marks, const pen__jpeg_frame *frame, size_t len)
{
    marks->grid = pen__jpeg_grid_of(frame, len);
    marks->scan_at = frame->scan_at;
    marks->n_rows = marks->n_marks = 0;
    marks->is_complete = false;
    marks->stamp = 0;
}

/* Is this an entry, whatever its file is? */
static bool read_head(const uint8_t *entry, size_t entry_len, head *h)
{
    if (entry_len < sizeof *h)
        return false;
    memcpy(h, entry, sizeof *h);
    return h->version == VERSION && h->n_rows > 0 &&
           h->check == pen__hash64(entry + sizeof h->check, entry_len - sizeof h->check);
}

bool pen__jpeg_marks_peek(const uint8_t *entry, size_t entry_len, pen__jpeg_marks_about *out)
{
    head h;
    if (!read_head(entry, entry_len, &h) || h.n_rows > INT32_MAX)
        return false;
    *out = (pen__jpeg_marks_about){h.stamp, h.scan_at, h.step, (int32_t)h.n_rows, h.is_complete};
    return true;
}

size_t pen__jpeg_marks_at(const uint8_t *entry, uint32_t scan_at, int32_t i)
{
    packed p;
    memcpy(&p, entry + sizeof(head) + (size_t)i * sizeof p, sizeof p);
    return scan_at + ((uint32_t)p.bit_hi << 16 | p.bit_lo) / 8;
}

bool pen__jpeg_marks_fit(const pen__jpeg_grid *grid, const pen__jpeg_marks_about *about,
                         size_t entry_len)
{
    return grid->per_row > 0 && about->step == grid->step && about->n_rows <= grid->n_rows &&
           about->is_complete <= (about->n_rows == grid->n_rows) &&
           entry_len == entry_bytes(grid, about->n_rows);
}

bool pen__jpeg_marks_load(pen__jpeg_marks *marks, const uint8_t *entry, size_t entry_len,
                          const uint8_t *src, size_t len)
{
    head h;
    pen__jpeg_marks_about about;
    const pen__jpeg_grid *grid = &marks->grid;
    if (!pen__jpeg_marks_peek(entry, entry_len, &about) ||
        !pen__jpeg_marks_fit(grid, &about, entry_len))
        return false;
    memcpy(&h, entry, sizeof h);
    if (about.scan_at != marks->scan_at || (src && h.content != pen__hash64(src, len)))
        return false;
    memcpy(marks->bytes, entry, entry_len);
    marks->n_rows = about.n_rows;
    marks->n_marks = marks->n_rows * grid->per_row + 1;
    marks->is_complete = about.is_complete;
    marks->stamp = about.stamp;
    return true;
}

pen__jpeg_mark pen__jpeg_marks_get(const pen__jpeg_marks *marks, int32_t i)
{
    packed p;
    memcpy(&p, marks->bytes + sizeof(head) + (size_t)i * sizeof p, sizeof p);
    uint32_t bit = (uint32_t)p.bit_hi << 16 | p.bit_lo;
    pen__jpeg_mark mark = {.at = marks->scan_at + bit / 8, .n_bits = (int)(bit % 8)};
    for (int c = 0; c < PEN__JPEG_MAX_COMPONENTS; c++)
        mark.dc[c] = p.dc[c];
    return mark;
}

pen__jpeg_mark pen__jpeg_marks_end(const pen__jpeg_marks *marks, const pen__jpeg_frame *frame)
{
    return marks->n_rows > 0 ? pen__jpeg_marks_get(marks, marks->n_rows * marks->grid.per_row)
                             : pen__jpeg_first_mark(frame);
}

bool pen__jpeg_marks_add(pen__jpeg_marks *marks, const pen__jpeg_mark *mark)
{
    const pen__jpeg_grid *grid = &marks->grid;
    if (marks->n_marks > grid->n_rows * grid->per_row)
        return false;
    uint64_t bit = (uint64_t)(mark->at - marks->scan_at) * 8 + (uint64_t)mark->n_bits;
    packed p = {.bit_hi = (uint16_t)(bit >> 16), .bit_lo = (uint16_t)bit};
    for (int c = 0; c < PEN__JPEG_MAX_COMPONENTS; c++)
        p.dc[c] = (int16_t)mark->dc[c];
    memcpy(marks->bytes + sizeof(head) + (size_t)marks->n_marks * sizeof p, &p, sizeof p);
    marks->n_rows = marks->n_marks++ / grid->per_row;
    return true;
}

size_t pen__jpeg_marks_seal(pen__jpeg_marks *marks, const uint8_t *src, size_t len)
{
    size_t n_bytes = entry_bytes(&marks->grid, marks->n_rows);
    head h = {.content = pen__hash64(src, len),
              .stamp = marks->stamp,
              .scan_at = (uint32_t)marks->scan_at,
              .n_rows = (uint32_t)marks->n_rows,
              .step = (uint16_t)marks->grid.step,
              .is_complete = marks->is_complete,
              .version = VERSION};
    memcpy(marks->bytes, &h, sizeof h);
    h.check = pen__hash64(marks->bytes + sizeof h.check, n_bytes - sizeof h.check);
    memcpy(marks->bytes, &h.check, sizeof h.check);
    return n_bytes;
}
