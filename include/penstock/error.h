/* error.h - what can go wrong, and how the library says so.
 *
 * Functions return 0 or a negative PEN_E* code; counts are int64_t, negative
 * on error.  States that are not faults ("end", "not now") are positive.
 * Where a reason helps, the caller passes a pen_error and finds the text
 * there; NULL is legal everywhere.  The library never prints, exits or aborts.
 */
#ifndef PENSTOCK_ERROR_H
#define PENSTOCK_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/visibility.h>

/* name, number (stable across versions), message, is it the data's fault?
 * Only data faults may be skipped or replaced (see loader.h, on_error). */
#define PEN_ERRORS(X)                                               \
    X(ENOMEM, -1, "out of memory", false)                           \
    X(EINVAL, -2, "invalid argument", false)                        \
    X(ENOSPC, -3, "destination too small", false)                   \
    X(EIO, -4, "input/output error", false)                         \
    X(ECORRUPT, -5, "corrupt data", true)                           \
    X(EUNSUPPORTED, -6, "unsupported format or feature", true)      \
    X(ELIMIT, -7, "over a limit", true)                             \
    X(ESTATE, -8, "state belongs to another stream", false)         \
    X(EFORK, -9, "handle was inherited through fork", false)        \
    X(ECANCELED, -10, "cancelled", false)                           \
    X(EBUDGET, -11, "sample does not fit the memory budget", false) \
    X(EBAD, -12, "too many bad samples", false)                     \
    X(ENOTFOUND, -13, "not found", false)

enum {
#define PEN_ERROR_ENUM(name, number, text, is_data) PEN_##name = number,
    PEN_ERRORS(PEN_ERROR_ENUM)
#undef PEN_ERROR_ENUM
        PEN_OK = 0,
    PEN_END = 1,   /* no more batches in this epoch */
    PEN_AGAIN = 2, /* nothing yet: the time-out passed */
};

/* Why a call failed.  `text` is one line and complete: it names the sample
 * and the place where they are known. */
typedef struct pen_error {
    int code;
    int64_t offset; /* byte in the sample or file, -1 if unknown */
    int64_t sample; /* id of the sample at fault, -1 if none */
    char text[480];
} pen_error;

/* "PEN_ECORRUPT", or "PEN_UNKNOWN" for a number that is not in the list. */
PEN_API const char *pen_error_name(int code);
/* The list's message for `code`. */
PEN_API const char *pen_error_message(int code);
/* True for faults of the data itself, as opposed to the machine or the call. */
PEN_API bool pen_error_is_data(int code);

#endif
