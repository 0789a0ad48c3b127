/* jpeg_cut_head.h - everything of a cut JPEG file but its bits: headers, and codes for DC
 * differences.
 *
 * The head has the file's own tables, those that its scan uses, and nothing else: no thumbnails,
 * profiles or comments.  Components are numbered 1, 2, 3, which means YCbCr where no other marker
 * says something else, so none is needed to keep the colours.
 *
 * A cut may need a difference that the file's code has no word for.  Longer words than all
 * others are appended then, which changes none of those there are.
 */
#ifndef PEN_OPS_JPEG_CUT_HEAD_H
#define PEN_OPS_JPEG_CUT_HEAD_H

#include "ops/image.h"
#include "ops/jpeg_frame.h"
#include "ops/jpeg_put.h"

enum { PEN__JPEG_N_SIZES = 16 }; /* bits that a DC difference may have: 0 to 15 */

/* A DC code, to write with. */
typedef struct pen__jpeg_dc_words {
    pen__jpeg_code code;                 /* the file's */
    uint16_t word[PEN__JPEG_N_SIZES];    /* for each size */
    uint8_t n_bits[PEN__JPEG_N_SIZES];   /* of the word; 0: there is none */
    uint8_t appended[PEN__JPEG_N_SIZES]; /* sizes, in the order of their words */
    int n_appended, most_appended;
    int append_bits; /* length of appended words */
    uint32_t append_word;
} pen__jpeg_dc_words;

/* Which tables the components share. */
typedef struct pen__jpeg_cut_head {
    const pen__jpeg_frame *frame;
    int n_quants, n_dc, n_ac;
    uint8_t quant_of[PEN__JPEG_MAX_COMPONENTS]; /* number of each component's table */
    uint8_t dc_of[PEN__JPEG_MAX_COMPONENTS], ac_of[PEN__JPEG_MAX_COMPONENTS];
    uint8_t quant_from[PEN__JPEG_MAX_COMPONENTS]; /* a component that has the table */
    uint8_t ac_from[PEN__JPEG_MAX_COMPONENTS];
    pen__jpeg_dc_words dc[PEN__JPEG_MAX_COMPONENTS];
} pen__jpeg_cut_head;

/* `frame` stays, and its codes are proper ones. */
void pen__jpeg_cut_head_begin(pen__jpeg_cut_head *head, const pen__jpeg_frame *frame);

/* Bytes of the head as it is now.  Each word that is appended makes it longer. */
size_t pen__jpeg_cut_head_bytes(const pen__jpeg_cut_head *head);
/* Write it; kept gives the size of the image.  Returns the end. */
uint8_t *pen__jpeg_cut_head_write(const pen__jpeg_cut_head *head, pen__rect kept, uint8_t *dst);

/* Code a DC difference of a component.  False where no code can have a word for it. */
bool pen__jpeg_put_dc(pen__jpeg_put *put, pen__jpeg_dc_words *words, int32_t difference);

/* The word of an AC symbol and, into *n_bits, its length; 0 if there is none. */
uint32_t pen__jpeg_ac_word(pen__jpeg_code code, int symbol, int *n_bits);

#endif
