/* headers.h - what is known of the images of a dataset that is elsewhere: 8 bytes a sample.
 *
 * Filled as samples come, read by whoever wants to know what a sample will weigh before it is asked
 * for.  Any thread, without a lock: an entry is one word.
 */
#ifndef PEN_ENGINE_HEADERS_H
#define PEN_ENGINE_HEADERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <penstock/image.h>

typedef struct pen__headers {
    _Atomic uint64_t *words; // (n), 0: not known; NULL: nothing ever is
    int64_t n;
} pen__headers;

/* Nothing is known yet.  PEN_ENOMEM. */
int pen__headers_init(pen__headers *headers, int64_t n);
void pen__headers_fini(pen__headers *headers);

/* Bytes of memory for n samples. */
int64_t pen__headers_memory(int64_t n);

void pen__headers_put(pen__headers *headers, int64_t sample, const pen_image_info *info);
/* An image's header as a number, to keep: 0 if it is none that could be decoded. */
uint64_t pen__headers_pack(const pen_image_info *info);
/* The reverse; false: it is no such number. */
bool pen__headers_unpack(uint64_t word, pen_image_info *info);
/* What is known of a sample, as such a number; 0: nothing. */
uint64_t pen__headers_word(const pen__headers *headers, int64_t sample);
/* The reverse, for a sample of which nothing is known; what is no such number is ignored. */
void pen__headers_restore(pen__headers *headers, int64_t sample, uint64_t word);

/* False: not known. */
bool pen__headers_get(const pen__headers *headers, int64_t sample, pen_image_info *info);

#endif
