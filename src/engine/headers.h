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
/* False: not known. */
bool pen__headers_get(const pen__headers *headers, int64_t sample, pen_image_info *info);

#endif
