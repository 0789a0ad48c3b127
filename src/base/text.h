/* text.h - a string that grows, JSON written into it; numbers read. */
#ifndef PEN_BASE_TEXT_H
#define PEN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise; a failed allocation sets `failed` and later calls do nothing,
 * so one check at the end is enough. */
typedef struct pen__text {
    char *data; /* NUL-terminated once anything was added; NULL before */
    size_t len, cap;
    bool failed;
} pen__text;

/* As printf in the C locale, whatever the program's is. */
void pen__text_add(pen__text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A quoted JSON string; bytes that are no valid UTF-8 become U+FFFD. */
void pen__text_add_json(pen__text *text, const char *bytes, size_t len);
/* Would they all be kept in a JSON string? */
bool pen__text_is_utf8(const char *bytes, size_t len);
/* A quoted string of two hex digits a byte. */
void pen__text_add_hex(pen__text *text, const char *bytes, size_t len);
/* Its bytes, with a NUL behind them.  Returns their number, PEN_EINVAL where it is no hex, or
 * PEN_ENOSPC. */
int64_t pen__text_from_hex(const char *hex, size_t len, char *dst, size_t dst_cap);
/* As strtod in the C locale, whatever the program's is; *end is `text` where no number begins. */
double pen__text_number(const char *text, char **end);
/* How many values JSON text has at most, without making a tree of it, which takes a hundred times
 * as long. */
size_t pen__text_count_values(const char *text, size_t len);
void pen__text_fini(pen__text *text);

#endif
