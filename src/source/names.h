/* names.h - what file and member names mean: extensions, safe paths, printing. */
#ifndef PEN_SOURCE_NAMES_H
#define PEN_SOURCE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

/* The extensions taken as images, for messages. */
#define PEN__IMAGE_EXTENSIONS ".jpg .jpeg .png .webp"

/* Is "jpg" (no dot, any case) an image's extension?  What the file really holds
 * is found from its content, later. */
bool pen__is_image_extension(const char *extension, size_t len);

/* Length of `name` without its last extension; all of it when there is none.
 * A dot in front does not begin an extension. */
size_t pen__stem_length(const char *name, size_t len);

/* Bytes of `path` in front of the file name: 4 in "a/b/c.jpg", 0 in "c.jpg". */
size_t pen__leaf_start(const char *path, size_t len);
/* Length of `path` without the last extension of its file name. */
size_t pen__path_stem(const char *path, size_t len);

/* Copy `path` to dst (dst_cap bytes, NUL-terminated) without "." and empty
 * components.  Refused: nothing left, NUL bytes, too long, and unless `outside`
 * absolute paths and "..".  Returns the length, or PEN_EINVAL / PEN_ELIMIT with
 * *why saying what is wrong, as in "the name <why>". */
int64_t pen__path_clean(const char *path, size_t len, bool outside, char *dst, size_t dst_cap,
                        const char **why);

/* A decimal integer, whole text, within -1..INT32_MAX.  Returns 0, PEN_EINVAL (no
 * integer) or PEN_ELIMIT (an integer that is no label). */
int pen__parse_label(const char *text, size_t len, int32_t *out);

/* Foreign names in messages: one line, bounded, the end kept. */
typedef struct pen__shown {
    char text[168];
} pen__shown;
const char *pen__show(pen__shown *shown, const char *bytes, size_t len);

#endif
