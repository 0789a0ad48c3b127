/* pixel_code.h - lossless coding of small 8-bit images, for crops on the wire.
 *
 * Pixels become planes (G, R-G, B-G), planes become residuals of a prediction from their
 * neighbours, and residuals are coded with rANS by one of a few fixed distributions for each
 * context.  Made for crops of photographs of some hundred pixels a side; anything else is
 * coded as well, only not as small.
 *
 * The format has no head: width, height and channels are known to who decodes.  It is the same on
 * every machine.
 */
#ifndef PEN_CODEC_PIXEL_CODE_H
#define PEN_CODEC_PIXEL_CODE_H

#include <penstock/error.h>

#include <stddef.h>
#include <stdint.h>

/* Bytes that encoding always fits in.  Width and height from 1 to 65535, 1 or 3 channels. */
size_t pen__pixels_bound(int32_t w, int32_t h, int ch);

/* Bytes of scratch that encoding and decoding take, aligned to 64. */
size_t pen__pixels_scratch(int32_t w, int32_t h, int ch);

/* Code px (h, w, ch).  Returns the length, or 0 if it does not fit into dst_cap bytes. */
int64_t pen__pixels_encode(const uint8_t *px, int32_t w, int32_t h, int ch, void *scratch,
                           uint8_t *dst, size_t dst_cap);

/* The pixels again: all w * h * ch of them are written, or the answer is PEN_ECORRUPT.
 * Never reads past src + len nor writes past px + w * h * ch, whatever the input. */
int pen__pixels_decode(const uint8_t *src, size_t len, int32_t w, int32_t h, int ch, void *scratch,
                       uint8_t *px, pen_error *err);

#endif
