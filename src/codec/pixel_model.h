/* pixel_model.h - what the coder of pixels expects of a sample before it sees it.
 *
 * Private to pixel_*.c, and part of the format: encoder and decoder must agree to the bit, so all
 * of it is integer arithmetic.
 *
 * Planes: grey as it is; colour as G, R-G, B-G, modulo 256, differences around 128.
 *
 * Prediction, from the samples W (left), N (above), NW and NE: the plane through the first three,
 * half-way smoothed, but nothing beyond W, N and NE.  The residual is the difference to it, modulo
 * 256, from -128 to 127.
 *
 * Activity: how much neighbouring samples differ from each other, and how large their residuals
 * were. It has one of 16 contexts, and each context of a plane has a shape, that is one of a few
 * fixed distributions of residuals (pixel_shapes.h).  The encoder chooses them for each image.
 *
 * At the edges, samples that are not there are those next to them: N for NW, NE and W.  In the
 * first row all are W, beginning with 128.
 */
#ifndef PEN_CODEC_PIXEL_MODEL_H
#define PEN_CODEC_PIXEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PEN__PIXELS_CONTEXTS = 16,
    PEN__PIXELS_PLANES = 3,
    PEN__PIXELS_FIRST = 128,     /* left of the first sample; the zero of differences */
    PEN__PIXELS_ROW_MARGIN = 64, /* bytes before and behind each row */
};

/* A row: the samples of a pixel's planes side by side, and the sizes of their residuals, 0 to 128.
 * Margins belong to it.  Neighbours are `ch` bytes apart, and planes need no loops of their own. */
typedef struct pen__pixel_row {
    uint8_t *samples, *sizes; // (w, ch)
} pen__pixel_row;

/* Activities from 0 to 255 to contexts. */
extern const uint8_t pen__pixels_context_of[256];

/* Pixels to samples and back. */
void pen__pixels_split(const uint8_t *px, int32_t w, int ch, uint8_t *samples);
void pen__pixels_join(const uint8_t *samples, int32_t w, int ch, uint8_t *px);

/* For the row after this one: repeat its ends. */
void pen__pixels_end_row(const pen__pixel_row *row, int32_t w, int ch);

/* All residuals (as uint8_t) and activities of a row whose samples are known; sets its sizes. */
void pen__pixels_model(const pen__pixel_row *above, const pen__pixel_row *row, int32_t w, int ch,
                       bool is_first, uint8_t *residuals, uint8_t *activities);

/* As much of it as follows from the row above: prediction is (3 * W + slope) >> 2, within W, low
 * and high; activity is `calm` and what W and the residuals to its left add. */
typedef struct pen__pixel_above {
    int16_t *slope, *calm;
    uint8_t *low, *high;
} pen__pixel_above;

void pen__pixels_look_above(const pen__pixel_row *above, int32_t w, int ch,
                            const pen__pixel_above *out);

static inline int pen__pixels_predict(int left, int slope, int low, int high)
{
    int guess = (3 * left + slope) >> 2;
    low = left < low ? left : low;
    high = left > high ? left : high;
    guess = guess < low ? low : guess;
    return guess > high ? high : guess;
}

#endif
