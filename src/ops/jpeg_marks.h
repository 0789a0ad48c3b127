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
 *
 * Who has only parts of a file in memory cannot hash all of it.  For him an entry has a stamp,
 * given by whoever read the file when the entry was made (its length and times): where it still is
 * the same, so is the file.
 */
#ifndef PEN_OPS_JPEG_MARKS_H
#define PEN_OPS_JPEG_MARKS_H

#include "ops/jpeg_scan.h"

enum {
    PEN__JPEG_MARK_BYTES = 10,
    PEN__JPEG_MARKS_HEAD = 40,
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
    uint64_t stamp;   /* of the file when the entry was made; 0: not known */
    _Alignas(8) uint8_t bytes[PEN__JPEG_MARKS_MAX];
} pen__jpeg_marks;

/* Nothing is known yet. */
void pen__jpeg_marks_begin(pen__jpeg_marks *marks, const pen__jpeg_frame *frame, size_t len);

/* Take an entry over after pen__jpeg_marks_begin; false if it is not one of this file.  `src` is
 * NULL where only parts of it are there, and the stamp was found to be right. */
bool pen__jpeg_marks_load(pen__jpeg_marks *marks, const uint8_t *entry, size_t entry_len,
                          const uint8_t *src, size_t len);

/* Mark number i, from 0 to n_rows * per_row. */
pen__jpeg_mark pen__jpeg_marks_get(const pen__jpeg_marks *marks, int32_t i);
/* Where the first row of MCUs begins that is not known. */
pen__jpeg_mark pen__jpeg_marks_end(const pen__jpeg_marks *marks, const pen__jpeg_frame *frame);
/* The next one; false if it cannot be kept, and then none can from here on. */
bool pen__jpeg_marks_add(pen__jpeg_marks *marks, const pen__jpeg_mark *mark);

/* What an entry says without its file.  False if it is none. */
typedef struct pen__jpeg_marks_about {
    uint64_t stamp;
    uint32_t scan_at; /* bytes of the file before the entropy-coded ones */
    int32_t step, n_rows;
    bool is_complete;
} pen__jpeg_marks_about;
bool pen__jpeg_marks_peek(const uint8_t *entry, size_t entry_len, pen__jpeg_marks_about *out);
/* Has an entry of this length the marks of a file with this grid? */
bool pen__jpeg_marks_fit(const pen__jpeg_grid *grid, const pen__jpeg_marks_about *about,
                         size_t entry_len);
/* Where in the file mark number i of such an entry is. */
size_t pen__jpeg_marks_at(const uint8_t *entry, uint32_t scan_at, int32_t i);

/* Make marks->bytes an entry of this file.  Returns its length. */
size_t pen__jpeg_marks_seal(pen__jpeg_marks *marks, const uint8_t *src, size_t len);

#endif
