/* jpeg_frame.h - what the own JPEG decoder must know of a file before its first scan.
 *
 * A strict reader of headers: it says yes to ordinary files only, those that jpeg_window.c
 * decodes, and no to anything else, be it unusual or broken.  A no is never a
 * verdict on the file; libjpeg gives that.
 */
#ifndef PEN_OPS_JPEG_FRAME_H
#define PEN_OPS_JPEG_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PEN__JPEG_MAX_COMPONENTS = 3 };

/* A Huffman table as it lies in the file: 16 counts, then the symbols. */
typedef struct pen__jpeg_code {
    const uint8_t *counts; /* NULL: not there */
    int n_symbols;
} pen__jpeg_code;

typedef struct pen__jpeg_component {
    uint8_t id, sampling, quant_index; /* sampling is 0xHV */
    uint16_t quant[64];                /* in natural order */
    pen__jpeg_code dc, ac;
} pen__jpeg_component;

/* Either one component, whatever its sampling, or Y, Cb, Cr with full chroma blocks
 * of 1x1 beside luma of 1x1, 2x1, 1x2 or 2x2. */
typedef struct pen__jpeg_frame {
    int32_t width, height;
    int n_components;
    int mcu_h, mcu_v; /* luma blocks of an MCU: 1 or 2 to each side; grey has 1 x 1 */
    int group_v;      /* rows of MCUs that libjpeg reads at a time: 1, or a grey file's V */
    int restart_interval;
    pen__jpeg_component components[PEN__JPEG_MAX_COMPONENTS];
    size_t scan_at; /* offset of the first entropy-coded byte */
} pen__jpeg_frame;

/* Natural position of each zigzag position. */
extern const uint8_t pen__jpeg_natural_order[64];

/* Whether this is an ordinary file; fills `frame` if so.  Codes point into `src`.
 * Reads nothing past src+len. */
bool pen__jpeg_frame_read(pen__jpeg_frame *frame, const uint8_t *src, size_t len);

#endif
