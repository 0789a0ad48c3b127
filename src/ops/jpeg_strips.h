/* jpeg_strips.h - the way of a window, as far as jpeg_window.c and jpeg_known.c share it.
 *
 * Private to these two.  The first has the whole and the strips without marks, the second
 * those with marks.
 */
#ifndef PEN_OPS_JPEG_STRIPS_H
#define PEN_OPS_JPEG_STRIPS_H

#include "ops/jpeg_kernels.h"
#include "ops/jpeg_stretches.h"
#include "ops/jpeg_window.h"

enum {
    ROW_MARGIN = 64, /* before column 0: for the sample to its left, and alignment */
    BATCH = 96,      /* blocks of a scan between parsing and transforming: whole MCUs */
    GROUP_ROWS = 4,  /* of pixels, for a sink */
    BAND = 2,        /* strips in the planes at once, and decoded in turns by scans */
};

/* Rows of samples from column 0 of the first wanted MCU.  Row 0 is the last one of the
 * strip before. */
typedef struct pen__jpeg_plane {
    uint8_t *rows;
    ptrdiff_t stride;
} pen__jpeg_plane;

typedef struct pen__jpeg_jobs {
    int n;
    pen__jpeg_idct_job list[BAND * BATCH];
} pen__jpeg_jobs;

typedef struct pen__jpeg_strips {
    const pen__decode_job *job;
    pen__jpeg_frame frame;
    const pen__jpeg_kernels *kernels;
    pen__jpeg_marks *marks;
    bool gathers; /* marks, from what is parsed */
    bool has_scans;
    pen__jpeg_tables *tables;
    pen__jpeg_scan scans[BAND];
    uint8_t *chunks[BAND];
    bool has_lanes;   /* for rows with marks */
    bool has_guessed; /* some of them */
    pen__jpeg_stretches stretches;
    pen__jpeg_stretch_room *room;
    pen__jpeg_plane planes[PEN__JPEG_MAX_COMPONENTS];
    uint8_t *upsampled[2];            /* a row of chroma at full resolution, each */
    int32_t n_columns, n_strips;      /* of the image, in MCUs */
    int32_t first_column, end_column; /* wanted */
    int32_t first_strip, end_strip;   /* wanted */
    int32_t n_strips_read;            /* as far as libjpeg would */
    int32_t next_row;                 /* to be written */
    pen__jpeg_plane group;            /* rows of pixels on their way to a sink */
    int n_slots;                      /* blocks in `coefs` */
    pen__jpeg_jobs full, low; /* apart, because the kernel takes blocks of a kind in pairs */
    _Alignas(64) int16_t coefs[BAND * (64 * BATCH + PEN__JPEG_BLOCK_SLACK)];
} pen__jpeg_strips;

static inline int32_t div_up(int32_t a, int32_t b)
{
    return (a + b - 1) / b;
}

/* Make the scans ready, now that one is needed: with lanes there may be no need. */
bool pen__jpeg_start_scans(pen__jpeg_strips *s);

/* The blocks of an MCU, `column` from the first wanted one, in strip `i` of the band, are to be
 * transformed by the next pen__jpeg_flush. */
bool pen__jpeg_add_mcu(pen__jpeg_strips *s, const int16_t *blocks, const uint8_t *n_coefs,
                       int32_t column, int i);
bool pen__jpeg_flush(pen__jpeg_strips *s);

/* All rows of the window that strips are complete for, n of them from `strip` on in the
 * planes. */
void pen__jpeg_write_rows(pen__jpeg_strips *s, int32_t strip, int n);

/* Strips of the window that have marks.  0, PEN_ECANCELED or PEN__JPEG_DECLINED. */
int pen__jpeg_decode_known(pen__jpeg_strips *s, int32_t first, int32_t end);

#endif
