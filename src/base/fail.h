/* fail.h - fill a pen_error and return its code, in one line. */
#ifndef PEN_BASE_FAIL_H
#define PEN_BASE_FAIL_H

#include <penstock/error.h>

/* Set *err (may be NULL) to `code`, with a printf-style reason, and return `code`:
 *     return pen__fail(err, PEN_ECORRUPT, offset, "bad checksum");
 * offset -1: unknown. */
int pen__fail(pen_error *err, int code, int64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a failed system call: adds strerror(errno_value). */
int pen__fail_errno(pen_error *err, int errno_value, const char *what, const char *path);

/* Put "context: " in front of the reason that is already there. */
void pen__fail_prefix(pen_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
