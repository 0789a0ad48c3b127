/* jpeg_marks.h - a JPEG file's marks, as they are kept from epoch to epoch.
 *
 * A mark says where an MCU begins (jpeg_scan.h).  Kept are those of a grid: every few MCUs
 * of each row of MCUs, the first of each row among them.  With them a decode begins at
 * its window, passes over what is beside it, and takes two rows at once.
 *
 * An entry is one block of bytes: a head and the marks, from the first row on, as far
 * down as the file has been read so far.  It is bound to the file's content by a hash of
 * all its bytes and guarded by a checksum, so one that is stale, damaged or
 * another file's is not accepted.  What is accepted is still not believed: a decode that
 * uses two neighbouring marks checks that one leads to the other, and a wrong
 * mark can do no harm to memory.
 */
#ifndef PEN_OPS_JPEG_MARKS_H
#define PEN_OPS_JPEG_MARKS_H

#include "ops/jpeg_scan.h"

enum {
    PEN__JPEG_MARK_BYTES = 10,
    PEN__JPEG_MARKS_HEAD = 24,
    PEN__JPEG_MARKS_MAX = 32 << 10, /* bytes of an entry */
};

/* Which MCUs have marks: depends on the file's header and length alone. */
typedef struct pen__jpeg_grid {
    int32_t n_columns, n_rows; /* of MCUs */
    int32_t step;              /* columns from mark to mark; a row's last part may have less */
    int32_t per_row;           /* marks of a row; 0: marks are not worth their room */
} pen__jpeg_grid;

pen__jpeg_grid pen__jpeg_grid_of(const pen__jpeg_frame *frame, size_t len);

/* An entry under construction or in use.  n_rows rows are known, and where the next begins:
 * n_rows * per_row + 1 marks; none at all while n_rows is 0. */
typedef struct pen__jpeg_marks {
    pen__jpeg_grid grid;
    size_t scan_at;
    int32_t n_rows;
    bool is_complete; /* all rows are known, and the file ended after them as it should */
    int32_t n_marks;  /* n_rows * per_row + 1, and those of the row under way */
    _Alignas(8) uint8_t bytes[PEN__JPEG_MARKS_MAX];
} pen__jpeg_marks;

/* Nothing is known yet. */
void pen__jpeg_marks_begin(pen__jpeg_marks *marks, const pen__jpeg_frame *frame, size_t len);

/* Take an entry over after pen__jpeg_marks_begin; false if it is not one of this file. */
bool pen__jpeg_marks_load(pen__jpeg_marks *marks, const uint8_t *entry, size_t entry_len,
                          const uint8_t *src, size_t len);

/* Mark number i, from 0 to n_rows * per_row. */
pen__jpeg_mark pen__jpeg_marks_get(const pen__jpeg_marks *marks, int32_t i);
/* The next one; false if it cannot be kept, and then none can from here on. */
bool pen__jpeg_marks_add(pen__jpeg_marks *marks, const pen__jpeg_mark *mark);

/* Make marks->bytes an entry of this file.  Returns its length. */
size_t pen__jpeg_marks_seal(pen__jpeg_marks *marks, const uint8_t *src, size_t len);

#endif
