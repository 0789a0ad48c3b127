/* fail.c - error names, messages, and the one way to report a reason. */
#include "base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int code;
    const char *name, *message;
    bool is_data;
} list[] = {
#define ROW(name, number, text, is_data) {number, "PEN_" #name, text, is_data},
    PEN_ERRORS(ROW)
#undef ROW
};

#define N_LIST (sizeof list / sizeof list[0])

const char *pen_error_name(int code)
{
    for (size_t i = 0; i < N_LIST; i++)
        if (list[i].code == code)
            return list[i].name;
    return code == PEN_OK      ? "PEN_OK"
           : code == PEN_END   ? "PEN_END"
           : code == PEN_AGAIN ? "PEN_AGAIN"
                               : "PEN_UNKNOWN";
}

const char *pen_error_message(int code)
{
    for (size_t i = 0; i < N_LIST; i++)
        if (list[i].code == code)
            return list[i].message;
    return code >= 0 ? "no error" : "unknown error";
}

bool pen_error_is_data(int code)
{
    for (size_t i = 0; i < N_LIST; i++)
        if (list[i].code == code)
            return list[i].is_data;
    return false;
}

int pen__fail(pen_error *err, int code, int64_t offset, const char *fmt, ...)
{
    if (err) {
        err->code = code;
        err->offset = offset;
        err->sample = -1;
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
    }
    return code;
}

int pen__fail_errno(pen_error *err, int errno_value, const char *what, const char *path)
{
    char buffer[128];
    const char *reason = strerror_r(errno_value, buffer, sizeof buffer); /* the GNU one */
    return pen__fail(err, PEN_EIO, -1, "cannot %s '%s': %s", what, path, reason);
}

void pen__fail_prefix(pen_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char text[sizeof err->text], old[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    memcpy(old, err->text, sizeof old);
    old[sizeof old - 1] = '\0';
    size_t n = strlen(text);
    snprintf(err->text, sizeof err->text, "%s", text);
    if (n + 2 < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - n, ": %.*s", (int)(sizeof err->text - n - 3),
                 old);
}
